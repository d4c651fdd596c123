"""Outputs of different operations on the same inputs, which are assumed to mean the same."""

from __future__ import annotations

import numpy as np

from probe import floats
from probe.recording.contract import INPUT
from probe.recording.difference import Difference, Pair, judge
from probe.recording.labels import Selection
from probe.recording.meaning import Joins, Moves, Reshapes, Same, Splits, Turns
from probe.recording.recording import Operation, Side, Value

NAMES = ("left", "right")
MOVING = (Moves, Turns, Reshapes, Same)
"""What an operation means that moves elements and computes none."""


def all_outputs(left: Side, right: Side, found: Difference, near: float | None = None) -> str:
    """Different operations on the same inputs, as of eager and compiled code: all outputs are taken
    to agree, as that is what was asked.

    ``near``: only those of which labels don't say all, and which are as near as that on both
    sides: the square roots of their format's eps, relative to the largest. Returns what is to be
    said of it, or nothing.
    """
    ours, theirs = found.left.values, found.right.values
    pairs: dict[int, Pair] = {}
    for place, one in enumerate(found.outputs):
        mine, other = ours[one.left], theirs[one.right]
        alike = mine.shape == other.shape and mine.dtype == other.dtype
        size = int(np.prod(mine.shape, dtype=int))
        if alike and not one.selection.whole and (near is None or one.compared < size):
            whole = Pair(one.left, one.right, Selection((), None, None, ((), ())), True)
            whole.compared = size
            pairs[place] = whole
        elif alike and near is None:
            one.known = True
    judge(left, right, list(pairs.values()))
    if near is not None:
        pairs = {n: one for n, one in pairs.items() if _near(one, ours[one.left], near)}
    for place, one in pairs.items():
        found.outputs[place] = one
    if not pairs:
        return ""
    return (
        "the two sides run different operations on the same inputs; all of their outputs are "
        f"assumed to mean the same{', as they are close' if near is not None else ''}"
    )


NEAR = 0.5
"""Of eps, the power up to which outputs of two formulas are taken for the same numbers: half of
the digits. What is computed from other elements differs in the first ones."""


def _near(one: Pair, value: Value, near: float) -> bool:
    """Returns whether all of two outputs agree in so much of their digits."""
    if one.equal or value.dtype not in floats.FORMATS:
        return one.equal
    eps = float(floats.eps(value.dtype))
    return one.max_ulp is not None and one.scaled * eps <= eps**near


def part_taken(found: Difference) -> bool:
    """Returns whether both sides take other parts of an input, or one takes it in another order,
    before anything is computed: as in ``model(x[:1])``, ``model(x.flip(0))`` against ``model(x)``.

    Then labels say which outputs must agree. Where nothing is known of an output, that is taken to
    be the difference only if both take a part or the rest runs the same operations: not eager
    against compiled.
    """
    sides = found.left, found.right
    moved = [
        {n for n, v in enumerate(side.values) if v.given < 0 and v.role == INPUT} for side in sides
    ]
    taken, others = False, False
    for one in found.operations:
        alone = one.verdict in NAMES
        for side, number, some in zip(sides, (one.left, one.right), moved, strict=True):
            if number is None:
                continue
            op = side.operations[number]
            if _only_moves(op, some):
                some.update(op.gives)
                takes = isinstance(op.meaning, Moves | Joins | Splits)
                taken |= alone and takes
                if takes and any(not pair.selection.whole for pair in one.gives):
                    return True
            else:
                others |= alone
    return taken and (not others or all(one.known for one in found.outputs))


def _only_moves(op: Operation, inputs: set[int]) -> bool:
    """Whether an operation puts elements of the inputs in other places, and computes nothing."""
    moves = isinstance(op.meaning, (*MOVING, Joins, Splits)) or op.meaning.word == "cast"
    return bool(op.reads) and moves and all(n in inputs for n in op.reads)
