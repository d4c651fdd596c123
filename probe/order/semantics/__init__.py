"""What the engine of sums must be told of an operation to rebuild it: products, windows,
reductions, norms, and functions of elements. What only moves elements is said to, and no more;
which outputs of two runs must agree is found by running (:mod:`probe.diff`).

``operations``: the constructors that tables call; ``contract``: what all meanings say, calls and
tables; ``elementwise`` with the table of functions; ``sums``.
"""

from probe.order.semantics import operations
from probe.order.semantics.contract import (
    Meaning,
    Moves,
    NotSettled,
    OperationTable,
    Passes,
    Reshapes,
    Row,
    Same,
    Shapes,
    Step,
    StepBuilder,
    Steps,
    Turns,
    Unknown,
    by_table,
    rows_for,
    then,
    word_list,
    worded,
)
from probe.order.semantics.elementwise import Each, of_complex
from probe.order.semantics.sums import Contracts, Convolution, Frame, Normalises, Reduces, Windows

# Every class of a meaning stands here: folders of recordings have them by these names.
__all__ = [
    "Contracts", "Convolution", "Each", "Frame", "Meaning", "Moves",
    "Normalises", "NotSettled", "OperationTable", "Passes", "Reduces", "Reshapes",
    "Row", "Same", "Shapes", "Step", "StepBuilder", "Steps", "Turns", "Unknown", "Windows",
    "by_table", "of_complex", "operations", "rows_for", "then", "word_list", "worded",
]  # fmt: skip
