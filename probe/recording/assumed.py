"""What two runs compute by different formulas, and is assumed to mean the same as it is close.

Labels pair what is the same formula over the same inputs. Attention in one operation and as two
products, or a normalisation and the weights that it was folded into, have other labels; but their
results agree in half of their digits. Such values are given one label, so that what comes before
them is compared as a group and what follows is paired as usual. A note reports the assumption that
they mean the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod

import numpy as np

from probe import floats
from probe.printing import counted
from probe.recording.difference import NAMES, NEAR, Difference, Pair, compare, judge, near
from probe.recording.matching import computes
from probe.recording.recording import Run
from probe.semantics.labels import Selection

SPREAD = 1 / 8
"""Of the standard deviation: what two results may be apart at most. Nearly constant values say
nothing."""

ALIKE = 4
"""Times the least distance that a pair may be apart where another is closer."""

LEAST, SAMPLED, MOST = 32, 1024, 512
"""Elements that a value has at least; those that are looked at; values of a shape on a side."""

NOT_CLOSE = (
    "the two sides compute their outputs differently from the same inputs, and the results are "
    "further apart than rounding takes two formulas: they are compared index by index, but may not "
    "mean the same"
)
ASSUMED = "assumed to mean the same"
SAME_OUTPUTS = (
    "the two sides run different operations on the same inputs; all of their outputs are "
    f"{ASSUMED}, as they are close"
)
MASKS = "; inputs that only one side reads, such as a mask, are assumed to mean the same, too"


def unlike(found: Difference, same: bool) -> bool:
    """Returns whether labels do not say of all outputs what must agree, as some operations have no
    counterpart, or one that computes something else.

    ``same``: whether both sides take all of the same inputs. Else one of them also has to compute
    what the other doesn't: other rows are no other formula.
    """
    met = {one.verdict for one in found.operations}
    if not ("unknown" in met or met.issuperset(NAMES)):
        return False
    sides = found.left.values, found.right.values
    shapes = [
        [(some[n].shape, some[n].dtype) for some, n in zip(sides, ends, strict=True)]
        for ends in ((one.left, one.right) for one in found.outputs)
    ]
    if all(one.selection.whole for one in found.outputs) or all(a != b for a, b in shapes):
        return False
    return same or any(
        number is not None and computes(run.operations[number])
        for one in found.operations
        if one.verdict in NAMES
        for run, number in ((found.left, one.left), (found.right, one.right))
    )


def by_closeness(found: Difference, same: bool) -> Difference:
    """Returns the comparison with close values taken for the same; where not both sides take all of
    the same inputs (``same``) only if all outputs are close then."""
    told = paired(found)
    ours = found.left.values
    close = (one.selection.whole and near(one, ours[one.left].dtype) for one in told.outputs)
    return told if same or all(close) else found


def places(found: Difference, same_inputs: bool) -> str:
    """Returns what is to be said of operations that are taken for the same, or nothing."""
    some = [one for one in found.operations if one.assumed]
    if not some:
        return ""
    apart = [
        pair.scaled * float(floats.eps(dtype))
        for one in some
        for pair in one.gives
        if (dtype := found.left.values[pair.left].dtype) in floats.FORMATS
    ]
    return (
        f"different operations whose results are close are {ASSUMED}, in "
        f"{counted(len(some), 'place')}; they are apart by at most {max(apart, default=0):.1e} of "
        "the largest number" + ("" if same_inputs else MASKS)
    )


def paired(found: Difference) -> Difference:
    """Compares two runs once more, with values that are close taken for the same.

    ``found``: what labels alone came to; it is returned where nothing else is close. Costs a look
    at samples of the values that have no counterpart, and at all of those that are close there.
    """
    every = dict[int, int]()
    ours, theirs = (
        _sampled(run, _loose(found, n)) for n, run in enumerate((found.left, found.right))
    )
    for (shape, dtype), some in ours.items():
        others = theirs.get((shape, dtype), {})
        for n, m in _closest(found, some, others, dtype) if some and others else ():
            one = Pair.of_all(n, m, prod(shape))
            judge(found.left, found.right, [one])  # all of two values, and not their samples alone
            if near(one, dtype):
                every[n] = m
    return compare(found.left, found.right, every) if every else found


def _loose(found: Difference, side: int) -> set[int]:
    """Returns values of a side that are not compared with anything, and that something reads.

    The mean that a fused norm gives besides is close to the one by hand, which leads to the result.
    """
    run = (found.left, found.right)[side]
    used = {*run.outputs, *(n for one in run.operations for n in one.reads)}
    given = (
        n
        for one in found.operations
        if one.verdict in (*NAMES, "unknown")
        if (number := (one.left, one.right)[side]) is not None
        for n in run.operations[number].gives
    )
    return {
        n
        for n in used.intersection(given)
        for value in [run.values[n]]
        if value.content is None and value.dtype in floats.FORMATS and prod(value.shape) >= LEAST
    }


Samples = dict[int, np.ndarray]
"""Some elements of values, by their numbers."""


def _sampled(side: Run, wanted: set[int]) -> dict[tuple[tuple[int, ...], str], Samples]:
    """Returns some elements of values, evenly among all, by the values' shape and format."""
    found: dict[tuple[tuple[int, ...], str], Samples] = {}
    for n in sorted(wanted):
        value = side.values[n]
        some = found.setdefault((value.shape, value.dtype), {})
        if len(some) < MOST:
            size = prod(value.shape)
            index = np.unique(np.linspace(0, size - 1, min(size, SAMPLED)).astype(int))
            part = Selection((), index, index, ((), ()), True)
            (taken,) = side.parts([(n, part)], 0)
            if taken is not None:
                some[n] = floats.widen(taken, value.dtype).astype(np.float64)
    return found


def _closest(
    found: Difference, ours: Samples, theirs: Samples, dtype: str
) -> Iterator[tuple[int, int]]:
    """Yields pairs of values that are about the closest to each other.

    A scale of ones and a bias of zeros leave values as they are, so several may be as close: those
    of equal operations come first, then the last computed ones, as what follows reads them; of
    those that are moved alone the first ones, as others may be copies.
    """
    apart = _distances(ours, theirs, dtype)
    least = np.minimum(apart.min(1)[:, None], apart.min(0)[None])
    fair = np.isfinite(apart) & (apart <= ALIKE * least)
    names = [*ours], [*theirs]
    given = [
        [run.operations[run.values[n].given] for n in some]
        for run, some in zip((found.left, found.right), names, strict=True)
    ]
    computed = [[computes(one) for one in some] for some in given]

    def rank(both: tuple[int, int]) -> tuple[bool, bool, bool, float, int]:
        one, two = given[0][both[0]], given[1][both[1]]
        made = computed[0][both[0]], computed[1][both[1]]
        return (
            made[0] != made[1],
            one.op != two.op,
            one.op == two.op and one.path != two.path,
            float(apart[both]),
            (one.number + two.number) * (-1 if all(made) else 1),
        )

    taken: tuple[set[int], set[int]] = set(), set()
    for n, m in sorted(zip(*(some.tolist() for some in fair.nonzero()), strict=True), key=rank):
        mixed = computed[0][n] != computed[1][m]
        if mixed and (taken[0] & {*fair[:, m].nonzero()[0]} or taken[1] & {*fair[n].nonzero()[0]}):
            continue
        if n not in taken[0] and m not in taken[1]:
            taken[0].add(n)
            taken[1].add(m)
            yield names[0][n], names[1][m]


def _distances(
    ours: Mapping[int, np.ndarray], theirs: Mapping[int, np.ndarray], dtype: str
) -> np.ndarray:
    """Returns how far samples are apart, at most over all elements; infinite where not close."""
    many = np.stack(list(theirs.values()))
    found = np.full((len(ours), len(many)), np.inf)
    limit = float(floats.eps(dtype)) ** NEAR
    for n, one in enumerate(ours.values()):
        kept = np.isfinite(one)
        if kept.sum() < LEAST:
            continue
        same = (np.isfinite(many) == kept).all(1)
        apart = np.abs(many[:, kept] - one[kept]).max(1, initial=0, where=same[:, None])
        most = min(limit * np.abs(one[kept]).max(), SPREAD * one[kept].std())
        found[n, same & (apart <= most)] = apart[same & (apart <= most)]
    return found
