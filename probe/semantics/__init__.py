"""What an operation computes, in words that all libraries share: which inputs each output reads.

A library's file gives each of its operations one of these. They serve twice: labels say which
outputs of two runs must agree (:mod:`probe.semantics.labels`), and of sums of
products and pools the engine is asked in which order they are added. An operation of which the
recorder does not know what it computes is ``Unknown``: its outputs must agree where all that it
reads does; whether its other outputs must agree is reported as unknown.

``labels(reads, shapes, what)`` gives the labels of the outputs from those of the inputs: ``shapes``
of the outputs, ``what`` a label of the operation's name and numbers.

``operations``: the constructors that tables call; ``contract``: what all meanings say, calls and
tables. A file for each kind of meaning: ``elementwise`` with the table of functions, ``moving``,
``sums`` and scans, ``groups`` (softmax, norms, attention, recurrent layers), sliding ``windows``.
``labels`` are the fingerprints, ``mixing`` is how they come together.
"""

from probe.semantics import operations
from probe.semantics.contract import (
    Compiled,
    Exact,
    Meaning,
    NotSettled,
    OperationTable,
    Quantised,
    Row,
    Shapes,
    Step,
    StepBuilder,
    Steps,
    Unknown,
    by_table,
    reads_of,
    rows_for,
    then,
    word_list,
    worded,
)
from probe.semantics.elementwise import Chooses, Each, Holds, Made, Vanishes, of_complex
from probe.semantics.groups import Attends, Encodes, Normalises, Recurs
from probe.semantics.moving import (
    Asked,
    Broadcasts,
    Joins,
    Map,
    Mapped,
    Moves,
    Pads,
    Passes,
    Picks,
    Reshapes,
    Same,
    Splits,
    Turns,
    Written,
)
from probe.semantics.sums import Accumulates, Blends, Contracts, Maximum, Reduces, Scans, Whole
from probe.semantics.windows import Convolution, Windows

# Elements that are moved and copied by an index, however that is known.
MOVED = (Moves, Asked, Mapped)

# What an operation means that moves elements and computes none.
MOVING = (*MOVED, Turns, Reshapes, Same)

# Every class of a meaning stands here: folders of recordings have them by these names.
__all__ = [
    "MOVED", "MOVING", "Accumulates", "Asked", "Attends", "Blends", "Broadcasts",
    "Chooses", "Compiled", "Contracts", "Convolution", "Each", "Encodes", "Exact",
    "Holds", "Joins", "Made", "Map", "Mapped", "Maximum", "Meaning", "Moves", "Normalises",
    "NotSettled", "OperationTable", "Pads", "Passes", "Picks", "Quantised", "Recurs",
    "Reduces", "Reshapes", "Row", "Same", "Scans", "Shapes", "Splits", "Step", "StepBuilder",
    "Steps", "Turns", "Unknown", "Vanishes", "Whole", "Windows", "Written", "by_table",
    "of_complex", "operations", "reads_of", "rows_for", "then",
    "word_list", "worded",
]  # fmt: skip
