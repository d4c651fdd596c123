"""What the engine of sums must be told of an operation to rebuild it: products, windows,
reductions, norms, and functions of elements. What only moves elements is said to, and no more;
which outputs of two runs must agree is found by running (:mod:`probe.diff`).

``contract``: what each meaning says, calls and tables, with the table of functions of elements;
``operations``: the constructors that tables call.
"""

from probe.order.semantics import operations
from probe.order.semantics.contract import (
    Contracts,
    Each,
    Frame,
    Meaning,
    Moves,
    Normalises,
    OperationTable,
    Passes,
    Reduces,
    Reshapes,
    Row,
    Same,
    Several,
    Shapes,
    Step,
    Steps,
    Turns,
    Unknown,
    Windows,
    by_name,
    by_table,
    moved,
    of_complex,
    rows_for,
    then,
    word_list,
    worded,
)

# Every class of a meaning stands here: folders of recordings have them by these names.
__all__ = [
    "Contracts", "Each", "Frame", "Meaning", "Moves",
    "Normalises", "OperationTable", "Passes", "Reduces", "Reshapes",
    "Row", "Same", "Several", "Shapes", "Step", "Steps", "Turns", "Unknown",
    "Windows", "by_name", "by_table", "moved", "of_complex", "operations", "rows_for", "then",
    "word_list", "worded",
]  # fmt: skip
