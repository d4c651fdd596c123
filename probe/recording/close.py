"""Pairs values that two runs compute by different formulas if they are close.

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
from probe.recording.difference import Difference, Pair, compare, judge
from probe.recording.matching import computes
from probe.recording.recording import Recording, Run
from probe.semantics.labels import Selection

NEAR = 0.5
"""Of eps, the power up to which results of two formulas are taken for the same numbers: half of
the digits. What is computed from other elements differs in the first ones."""

SPREAD = 1 / 8
"""Of the standard deviation: what two results may be apart at most. Nearly constant values say
nothing."""

ALIKE = 4
"""Times the least distance that a pair may be apart where another is closer."""

LEAST, SAMPLED, MOST = 32, 1024, 512
"""Elements that a value has at least; those that are looked at; values of a shape on a side."""


def near(one: Pair, dtype: str) -> bool:
    """Returns whether all compared elements agree in so much of their digits."""
    if one.equal or dtype not in floats.FORMATS:
        return one.equal
    eps = float(floats.eps(dtype))
    return one.max_ulp is not None and one.scaled * eps <= eps**NEAR


def paired(left: Run, right: Run, found: Difference) -> Difference:
    """Compares two runs once more, with values that are close taken for the same.

    ``found``: what labels alone came to; it is returned where nothing else is close. Costs a look
    at samples of the values that have no counterpart, and at all of those that are close there.
    """
    every = {n: m for n, m in _pairs(left, right, found) if _near(left, right, n, m)}
    return compare(left, right, every) if every else found


def _near(left: Run, right: Run, mine: int, other: int) -> bool:
    """Returns whether all of two values are close, and not their samples alone."""
    value = left.recording.values[mine]
    one = Pair.of_all(mine, other, prod(value.shape))
    judge(left, right, [one])
    return near(one, value.dtype)


def _pairs(left: Run, right: Run, found: Difference) -> Iterator[tuple[int, int]]:
    """Yields values that are the closest to each other, of those that have no counterpart."""
    ours = _sampled(left, set(_loose(found, 0)))
    theirs = _sampled(right, set(_loose(found, 1)))
    for kind, some in ours.items():
        if kind not in theirs:
            continue
        dtype = kind[1]
        apart = _distances(some, theirs[kind], dtype)
        yield from _matched(apart, (list(some), list(theirs[kind])), (found.left, found.right))


def _matched(
    apart: np.ndarray, names: tuple[list[int], list[int]], runs: tuple[Recording, Recording]
) -> Iterator[tuple[int, int]]:
    """Yields pairs of values that are about the closest to each other.

    A scale of ones and a bias of zeros leave values as they are, so several may be as close: those
    of equal operations come first, then the last computed ones, as what follows reads them; of
    those that are moved alone the first ones, as others may be copies.
    """
    least = np.minimum(apart.min(1)[:, None], apart.min(0)[None])
    fair = np.isfinite(apart) & (apart <= ALIKE * least)
    given = [
        [run.operations[run.values[n].given] for n in some]
        for run, some in zip(runs, names, strict=True)
    ]
    computed = [[computes(one) for one in some] for some in given]

    def rank(both: tuple[int, int]) -> tuple[bool, bool, bool, float, int]:
        one, two = given[0][both[0]], given[1][both[1]]
        made = computed[0][both[0]], computed[1][both[1]]
        return (
            *(
                made[0] != made[1],
                one.op != two.op,
                one.op == two.op and one.path != two.path,
                float(apart[both]),
            ),
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


Kind = tuple[tuple[int, ...], str]
"""Shape and format."""


def _loose(found: Difference, side: int) -> Iterator[int]:
    """Yields values of a side that are not compared with anything, and that something reads.

    The mean that a fused norm gives besides is close to the one by hand, which leads to the result.
    """
    run = (found.left, found.right)[side]
    used = {*run.outputs, *(n for one in run.operations for n in one.reads)}
    for one in found.operations:
        number = (one.left, one.right)[side]
        if number is None or one.verdict not in ("left", "right", "unknown"):
            continue
        for n in run.operations[number].gives:
            value = run.values[n]
            known = value.content is not None or value.dtype not in floats.FORMATS
            if n in used and not known and np.prod(value.shape, dtype=int) >= LEAST:
                yield n


def _sampled(side: Run, wanted: set[int]) -> dict[Kind, dict[int, np.ndarray]]:
    """Returns some elements of values, evenly among all, by the values' shape and format."""
    run: Recording = side.recording
    numbers = sorted(wanted)
    parts = []
    for n in numbers:
        size = int(np.prod(run.values[n].shape, dtype=int))
        index = np.unique(np.linspace(0, size - 1, min(size, SAMPLED)).astype(int))
        parts.append((n, Selection((), index, index, ((), ()), True)))
    found: dict[Kind, dict[int, np.ndarray]] = {}
    for n, part in zip(numbers, side.parts(parts, 0) if parts else [], strict=True):
        value = run.values[n]
        some = found.setdefault((value.shape, value.dtype), {})
        if part is not None and len(some) < MOST:
            some[n] = floats.widen(part, value.dtype).astype(np.float64)
    return found


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
