"""Public reports of runs that must agree and don't: asked of every target, explained, shrunk.

``questions`` says what a report asks, ``answers`` what a target gives, ``smallest`` looks for the
smallest case, and ``asking`` does all of it for a store. The threads themselves are data of an
experiment; nothing here knows a thread.
"""

from probe.experiments.reports.asking import ask
from probe.experiments.reports.questions import Conventions, Operators, Pair, Report

__all__ = ["Conventions", "Operators", "Pair", "Report", "ask"]
