"""Which elements of one run another run has too, computed alike all the way from the inputs.

Labels say which elements read the same (:mod:`probe.semantics.labels`). Here they are followed
operation by operation: where an operation computes an element differently in the two runs, its
label becomes one that the other run has nowhere, and so does that of whatever reads it. An output
that still has its label at the end is the other run's, bit for bit, as far as the operations were
judged. It works for every graph: chains, residual connections, concatenations, several inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from probe.recording.difference import Aligned, Pair
from probe.recording.judging import Judged, settled
from probe.recording.labelling import Both, given_labels, labels_of
from probe.recording.matching import Runs, align, matched
from probe.recording.recording import Operation, Recording, Run
from probe.semantics.labels import Labels, joined, tag, told_apart

Judge = Callable[[Aligned], Judged]


@dataclass
class JudgedPair:
    """An operation of both runs, and how it was judged."""

    one: Aligned
    found: Judged


@dataclass
class Followed:
    """Labels of two runs; ``left`` has those of its own where something was computed differently.

    ``told``: operations that were judged, but for those that have no choice. ``alone``: operations
    of one run that compute something.
    """

    left: list[Labels]
    right: list[Labels]
    told: list[JudgedPair] = field(default_factory=list)
    alone: list[str] = field(default_factory=list)


def follow(left: Run, right: Run, judge: Judge | None = None) -> Followed:
    """Follows two runs. ``judge``: says how an operation compares, given the pairs of its outputs
    that read the same and were computed alike before; None: what is read decides alone."""
    ours, theirs = left.recording, right.recording
    found = Followed(*labels_of(left, right))
    if judge is None:
        return found
    changed: set[int] = set()
    runs, labels = (ours, theirs), (found.left, found.right)
    pairs = align(*runs)
    if strict := any(mine != other for mine, other in pairs):
        # a loop that is run step by step: what is not told to be the counterpart's is different
        pairs = matched(runs, labels, {}).operations
    for mine, other in pairs:
        if mine is None:
            continue
        op = ours.operations[mine]
        if changed.intersection(op.reads):
            relabelled(ours, op, found.left, changed)
        if settled(op.meaning):
            continue
        if other is None:
            found.alone.append(op.name)
            for number in op.gives:
                found.left[number] = _all_marked(found.left[number], mine)
                changed.add(number)
            continue
        one = aligned(runs, labels, mine, other)
        told = Judged("exact", certified=True)
        if any(pair.compared for pair in one.gives):
            told = judge(one)
            found.told.append(JudgedPair(one, told))
        for n, pair in enumerate(one.gives):
            apart = told.apart[n] if n < len(told.apart) else None
            if strict and not pair.selection.whole:
                found.left[pair.left] = _only(found.left[pair.left], pair, apart, mine)
                changed.add(pair.left)
            elif apart is not None and apart.any():
                found.left[pair.left] = marked(found.left[pair.left], pair, apart, mine)
                changed.add(pair.left)
    return found


def relabelled(run: Recording, op: Operation, labels: list[Labels], changed: set[int]) -> None:
    """Labels what an operation gives anew, where something that it reads has another label."""
    given = given_labels(run, op, labels)
    for number, label in zip(op.gives, given, strict=True):
        if run.values[number].content is None:
            labels[number] = label
            changed.add(number)


def aligned(runs: Runs, labels: Both, mine: int, other: int) -> Aligned:
    """Returns an operation of both runs, with the pairs of what it reads and gives that agree by
    their labels."""
    one, two = runs[0].operations[mine], runs[1].operations[other]
    made = Aligned(one.name, one.op, one.path, mine, other, inside=((mine,), (other,)))
    for pairs, some in (made.reads, (one.reads, two.reads)), (made.gives, (one.gives, two.gives)):
        pairs += [Pair.of(runs, labels, *both) for both in zip(*some, strict=False)]
    return made


def marked(one: Labels, pair: Pair, apart: np.ndarray, number: int) -> Labels:
    """Labels with a mark where an operation computes differently; along axes that are left out, at
    all elements where it does so at one."""
    every = np.arange(int(np.prod(one.shape, dtype=int))).reshape(one.shape)
    index = np.asarray(pair.selection.taken(every, 0)).reshape(-1)
    mask = np.zeros(one.shape, bool)
    mask.reshape(-1)[index[apart]] = True
    return _masked(one, mask, number)


def _only(one: Labels, pair: Pair, apart: np.ndarray | None, number: int) -> Labels:
    """Labels with a mark wherever an operation was not seen to compute as its counterpart."""
    mask = ~pair.selection.mask(one.shape, 0)
    found = _masked(one, mask, number)
    return found if apart is None or not apart.any() else marked(found, pair, apart, number)


def _all_marked(one: Labels, number: int) -> Labels:
    return _masked(one, np.ones(one.shape, bool), number)


def _masked(one: Labels, mask: np.ndarray, number: int) -> Labels:
    out = tuple(axis for axis in range(len(one.shape)) if one.implicit(axis))
    mask = np.asarray(mask.any(axis=out, keepdims=True)) if out else mask
    mark = joined(one.array, tag("computed differently", number))
    return one._replace(array=np.where(mask, mark, one.array))


def reading(whole: Labels, nothing: Labels) -> np.ndarray:
    """Returns which elements of a value read content: bool, of its shape.

    ``whole``, ``nothing``: labels of the same run with content, and of padding alone. An exact
    zero of padding alone may be another one's: what is told apart reads content.
    """
    axes = told_apart(whole, nothing)
    found: np.ndarray = np.broadcast_to(whole.full(axes) != nothing.full(axes), whole.shape)
    return found
