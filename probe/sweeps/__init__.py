"""Runs cases x targets x values of an axis, compares each with the longest, and stores it.

``plan`` says what is computed of a case and makes the rows of the store, ``bits`` runs on all
targets what is not stored yet, the likeliest first where time is short, ``summary`` says what was
found.
"""

from probe.sweeps.bits import answer_request, sweep_cases
from probe.sweeps.plan import Plan, Plans, SweepRequest, axis_values
from probe.sweeps.summary import DifferingRun, Summary, TargetSummary

__all__ = ["DifferingRun", "Plan", "Plans", "Summary", "SweepRequest", "TargetSummary"]
__all__ += ["answer_request", "axis_values", "sweep_cases"]
