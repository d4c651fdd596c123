"""Cases x targets x values of an axis: everything is run, compared with the longest, and stored.

``plan`` says what is computed of a case, ``bits`` runs it on all targets, ``observations`` are the
rows of the store, ``summary`` is what was found.
"""

from probe import public
from probe.sweep.bits import sweep
from probe.sweep.plan import Plan, Plans, axis_values
from probe.sweep.summary import Difference, Summary, TargetSummary

__all__ = ["Difference", "Plan", "Plans", "Summary", "TargetSummary", "axis_values", "sweep"]

public.opens(__name__)
