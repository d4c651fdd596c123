"""Measures remedies for lengths that change bits: exactness, cost, distance from exact sums.

``remedy`` says what there is for a target and what came out, with the cheapest that is exact;
``cases`` and ``networks`` put each in the operator's place, judge it by its revealed
orders (never by luck), compare it with the exact sums, and time all in turns in one run.
"""

from probe.mitigations.cases import Remedied, Sessions, measure
from probe.mitigations.remedy import (
    Advice,
    Found,
    Measured,
    Remedy,
    advise,
    candidates,
    report,
    rows,
)

__all__ = [
    "Advice",
    "Found",
    "Measured",
    "Remedied",
    "Remedy",
    "Sessions",
    "advise",
    "candidates",
    "measure",
    "report",
    "rows",
]
