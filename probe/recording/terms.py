"""In which order a few whole arrays are added: ``(x + bias) + rest`` against ``(x + rest) + bias``.

Every addition is an operation of its own, or one of several terms from the first to the last, so
that the order is known; what it comes to is replayed in NumPy on all outputs.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from probe.recording.alone import Alone, unequal
from probe.recording.difference import Pair
from probe.recording.place import Placed
from probe.recording.recording import Value
from probe.semantics import Each, Step, Steps

FORMATS = ("float32", "float64")
"""Of which NumPy rounds an addition as a library does. float16 is added in float32 by some."""

LETTERS = "abcdefgh"
"""Names of what is added, in the order of the left side's operands; no longer sums are named."""


def of_terms(left: Alone, right: Alone, reads: Sequence[Pair], apart: np.ndarray) -> Placed | None:
    """Returns why two sums of the same terms differ: their order; None where they are no such sums,
    or NumPy does not give all differing outputs ``apart`` of both sides.

    ``reads``: which terms are the same.
    """
    ours, theirs = _tree(left), _tree(right)
    if ours is None or theirs is None:
        return None
    names, others = _named(left, right, reads)
    terms = [sorted(map(str, _leaves(*one))) for one in ((ours, names), (theirs, others))]
    if terms[0] != terms[1] or str(None) in terms[0]:
        return None
    said = _said(ours, names), _said(theirs, others)
    if said[0] == said[1]:
        return None
    for side, tree in ((left, ours), (right, theirs)):
        found = _added(tree, side.reads)
        if found.shape != side.value.shape:
            return None
        if unequal(side.taken(found)[apart], side.outputs[apart], side.value.dtype).any():
            return None
    why = (
        f"{said[0]} on the left, {said[1]} on the right, of the operands as the left reads them; "
        f"all {len(apart)} differing outputs replay in NumPy on both sides"
    )
    return Placed("order", why, len(apart), len(apart))


Tree = int | tuple["Tree", "Tree"]
"""An operand's number, or two of these that are added."""


def _tree(one: Alone) -> Tree | None:
    """Returns how an operation adds what it reads; None where it does anything else."""
    meaning = one.operation.meaning
    count = len(one.operation.reads)
    if set(one.dtypes) - {one.dtypes[-1]} or one.dtypes[-1] not in FORMATS:
        return None
    steps: Sequence[Step] = [Step(meaning, tuple(range(count)), one.value.shape)]
    if isinstance(meaning, Steps):
        steps = meaning.steps if not meaning.gives else ()
    values: list[Tree] = list(range(count))
    for step in steps:
        what = step.meaning
        plain = isinstance(what, Each) and what == Each(what.word, zero="adds")
        if not plain:
            return None
        made, *rest = (values[n] for n in step.reads)
        for each in rest:
            made = made, each
        values.append(made)
    return values[-1] if steps else None


def _named(left: Alone, right: Alone, reads: Sequence[Pair]) -> tuple[list[str | None], ...]:
    """Returns the names of both sides' operands; of the right side None where it is no one's."""
    numbers = left.operation.reads
    names = dict(zip(dict.fromkeys(numbers), LETTERS, strict=False))
    same = {one.right: one.left for one in reads if one.equal and one.selection.whole}
    for n in right.operation.reads:
        weight = right.side.recording.values[n]
        if n not in same and weight.given < 0:
            values = left.side.recording.values
            same[n] = next((m for m in numbers if _key(values[m]) == _key(weight)), -1)
    others = [names.get(same.get(n, -1)) for n in right.operation.reads]
    return [names.get(n) for n in numbers], others


def _key(one: Value) -> tuple[tuple[int, ...], str, str]:
    return one.shape, one.dtype, one.digest


def _leaves(tree: Tree, names: Sequence[str | None]) -> list[str | None]:
    if isinstance(tree, int):
        return [names[tree]]
    return [name for one in tree for name in _leaves(one, names)]


def _said(tree: Tree, names: Sequence[str | None]) -> str:
    """Returns the sum in words; the two sides of one addition have no order."""
    if isinstance(tree, int):
        return str(names[tree])
    both = sorted((_said(one, names) for one in tree), key=lambda one: (-len(one), one))
    return " + ".join(f"({one})" if len(one) > 1 else one for one in both)


def _added(tree: Tree, reads: Sequence[np.ndarray]) -> np.ndarray:
    if isinstance(tree, int):
        return reads[tree]
    with np.errstate(all="ignore"):
        return np.asarray(_added(tree[0], reads) + _added(tree[1], reads))
