"""A failing case and a predicate in, a smaller failing case out; knows no backend.

First the shapes, with operands that show nearly every difference; then the operands. It ends where
no single step keeps the failure: the case is minimal for the steps in ``shapes`` and ``numbers``.
"""

from probe.shrink.finding import Finding
from probe.shrink.search import Passed, Search
from probe.shrink.smallest import BUDGET, Shrunk, shrink

__all__ = ["BUDGET", "Finding", "Passed", "Search", "Shrunk", "shrink"]
