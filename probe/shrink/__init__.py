"""Reduces a failing case to a smaller one that still fails; knows no backend.

First the shapes, with operands that show nearly every difference; then the operands. It ends where
no single step keeps the failure: the case is minimal for the steps of ``shapes`` and ``smallest``.
``search`` tries steps, of whatever value.
"""

from probe.shrink.smallest import BUDGET, Shrunk, smallest_finding

__all__ = ["BUDGET", "Shrunk", "smallest_finding"]
