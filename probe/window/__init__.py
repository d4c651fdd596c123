"""Computes which inputs an output reads, and which outputs therefore must agree.

``geometry`` says where the windows lie and what they hold, ``agreement`` compares the windows of
two sizes or two paddings, ``conversion`` says what makes another framework read the same ones. No
value is rounded here.
"""

from probe.window.agreement import (
    VARY,
    Agreement,
    agreement,
    axis_of,
    case_at,
    case_for,
    number_of,
    shown,
    value_of,
)
from probe.window.conversion import FRAMEWORKS, Equivalent, equivalent
from probe.window.geometry import Geometry, columns, gather, padded, read_classes, scale

__all__ = [
    "FRAMEWORKS",
    "VARY",
    "Agreement",
    "Equivalent",
    "Geometry",
    "agreement",
    "axis_of",
    "case_at",
    "case_for",
    "columns",
    "equivalent",
    "gather",
    "number_of",
    "padded",
    "read_classes",
    "scale",
    "shown",
    "value_of",
]
