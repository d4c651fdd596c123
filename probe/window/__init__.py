"""Which inputs an output reads, at which weights, and which outputs therefore must agree.

``geometry`` says where the windows lie, ``gathering`` fetches what they hold, ``agreement``
compares the windows of two sizes or two paddings. No value is rounded in this package.
"""

from probe.window.agreement import (
    VARY,
    Agreement,
    agreement,
    agreement_same_shape,
    case_at,
    case_for,
    value_of,
)
from probe.window.gathering import columns, gather, scale
from probe.window.geometry import Geometry, read_classes

__all__ = [
    "VARY",
    "Agreement",
    "Geometry",
    "agreement",
    "agreement_same_shape",
    "case_at",
    "case_for",
    "columns",
    "gather",
    "read_classes",
    "scale",
    "value_of",
]
