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
    shown_axis_value,
    value_on_axis,
)
from probe.window.conversion import FRAMEWORKS, Equivalent, equivalent
from probe.window.geometry import Geometry, columns, gather, leaves_at_padding, read_classes, scale

__all__ = ["FRAMEWORKS", "VARY", "Agreement", "Equivalent", "Geometry", "agreement", "axis_of"]
__all__ += ["case_at", "case_for", "columns", "equivalent", "gather", "leaves_at_padding"]
__all__ += ["number_of", "read_classes", "scale", "shown_axis_value", "value_on_axis"]
