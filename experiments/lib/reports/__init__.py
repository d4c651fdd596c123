"""Runs public reports on every target, explains them and reduces their cases.

``answers`` says what a report asks, what a target gives, and what the smallest case is; ``asking``
does all of it for a store. The threads themselves are data of an experiment: nothing here knows
one.
"""

from lib.reports.answers import Conventions, Operators, Pair, Report
from lib.reports.asking import ask

__all__ = ["Conventions", "Operators", "Pair", "Report", "ask"]
