"""Puts constants in behind operations, where only padding would be computed.

Behind an operation whose windows mix, a short run has other numbers in its last entries than the
full run, since it meets its own edge there. Those of them that read padding alone are constants:
they are known from one run of padding alone. Where they are put in behind every such operation, on
every branch, the next one reads what it reads in the full run, and a size serves that is shorter
than padding the inputs alone would take. What a plan says is run operation by operation, with the
constants put in, and has to give the full run's bits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from probe.errors import InputError
from probe.padding.computing import SizedOperation
from probe.padding.kept import Box, apart, index, where_kept
from probe.padding.positions import NotDerived
from probe.padding.search import PaddedModel
from probe.recording.followed import aligned, marked, reading, relabelled
from probe.recording.judging import Judged, judged, settled
from probe.recording.labelling import labels_of
from probe.recording.recording import Run
from probe.recording.store import digest
from probe.semantics.labels import Labels, told_apart

SETS = 3
"""Contents on which a plan is run, the first one as it was recorded."""


@dataclass(frozen=True)
class Splice:
    """Behind an ``operation``, in its ``output`` of that number: entries from ``start`` on along
    ``axis`` are constants. ``value``: the number of the value in the short run."""

    operation: str
    op: str
    output: int
    axis: int
    start: int
    value: int


@dataclass
class Between:
    """Content padded to ``size``, with constants put in behind operations.

    ``by_order``, ``in_the_way``, ``why``, ``certified``: as of ``search.Serves``. ``proved``:
    contents on which it gave the full run's bits. ``constants``: by place in ``splices``.
    """

    content: int
    size: int
    splices: list[Splice]
    boxes: tuple[Box | None, ...]
    by_order: str = "same"
    in_the_way: str = ""
    why: str = ""
    certified: bool = True
    proved: int = 0
    constants: list[np.ndarray] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Returns plain numbers and texts, without the constants."""
        found = {name: one for name, one in vars(self).items() if name != "constants"}
        found["boxes"] = [None if box is None else [vars(p) for p in box] for box in self.boxes]
        found["kept"] = found.pop("boxes")
        found["splices"] = [
            {name: one for name, one in vars(each).items() if name != "value"}
            for each in self.splices
        ]
        return found


def sought(graph: PaddedModel, content: int, below: int) -> Between | None:
    """Returns the shortest size under ``below`` that serves content with constants put in; None:
    there is none, or it can't be run so. Errors as of ``PaddedModel``."""
    for size in range(content, below):
        if graph.over():
            return None
        if graph.positions is not None:
            if graph.refused.get(size, graph.fixed + 1) <= content:
                continue  # what fails for shorter content fails for this
            try:
                derived = _derived(graph, content, size)
            except (NotDerived, InputError):
                derived = None
            if derived is None:
                graph.refused[size] = content
            elif derived.splices and _proved(graph, graph.side(content, size), derived):
                return derived
            continue
        try:
            side = graph.side(content, size)
        except InputError:
            continue
        found = _Followed(graph, content, size, side).between(judge=False)
        if found is None or not found.splices:
            continue
        found = _Followed(graph, content, size, side).between(judge=True)
        if found is not None and _proved(graph, side, found):
            return found
    return None


def _derived(graph: PaddedModel, content: int, size: int) -> Between | None:
    """Follows a size by what its operations read, with constants put in behind each."""
    assert graph.positions is not None
    positions, reads = graph.positions, graph.read
    run, at = positions.run, positions.at(size)
    if any(at.sizes.get(n, 0) < 1 for n in graph.wanted):
        return None
    kept = {n: int((np.flatnonzero(one < content)[-1:] + 1).sum()) for n, one in reads.items()}
    leading, first = dict.fromkeys(positions.inputs, size), dict[int, int]()
    for one in positions.linked:
        found = positions.behind(one, at, leading)
        if any(found[n] < kept[n] for n in one.gives):
            return None
        first |= found
        leading |= {n: at.sizes[n] for n in one.gives}  # constants behind
    told: dict[int, SizedOperation] = {}
    for one in reversed(graph.computing.deciding):  # the last ones have few sizes
        asked = graph.computing.at(one, at, size)
        if asked is None:
            continue
        told[one.number] = asked
        if any(some[: kept[n]].any() for n, some in asked.apart.items()):
            return None
    made, doubts = Between(content, size, [], graph.boxes(content)), []
    for one in positions.linked:
        asked, operation = told.get(one.number), run.operations[one.number]
        for n in one.gives:
            bad = [] if asked is None else np.flatnonzero(asked.apart.get(n, ())).tolist()
            start = min([first[n], *bad[:1]])
            if start < at.sizes[n] and (axis := positions.axis(n)) is not None:
                output = list(operation.gives).index(n)
                made.splices.append(Splice(operation.name, operation.op, output, axis, start, n))
        if asked is not None:
            doubts += [(asked.name, asked.found.why)] if asked.found.why else []
            made.certified &= asked.found.certified or asked.found.how == "exact"
    if doubts:
        made.by_order, made.certified = "unknown", False
        made.in_the_way, made.why = doubts[0]
    return made


class _Followed:
    """One size: labels of the short run, with those of the full one where constants are put in."""

    def __init__(self, graph: PaddedModel, content: int, size: int, side: Run) -> None:
        self.graph, self.content, self.size, self.side = graph, content, size, side
        self.whole = graph.whole(content)
        self.left, self.right = labels_of(side, self.whole)
        self.told = labels_of(self.whole, graph.nothing)
        self.splices: list[Splice] = []
        self.judged: list[tuple[str, Judged]] = []

    def between(self, judge: bool) -> Between | None:
        ours, theirs = self.side.recording, self.whole.recording
        if [one.op for one in ours.operations] != [one.op for one in theirs.operations]:
            return None
        changed: set[int] = set()
        for mine, other in zip(ours.operations, theirs.operations, strict=True):
            if changed.intersection(mine.reads):
                relabelled(ours, mine, self.left, changed)
            if judge and not settled(mine.meaning):
                self._judge(mine.number, other.number, changed)
            for output, (n, m) in enumerate(zip(mine.gives, other.gives, strict=True)):
                if self._spliced(mine, output, n, m):
                    changed.add(n)
        boxes = where_kept(
            self.graph.boxes(self.content),
            [
                (self.left[n], self.right[m])
                for n, m in zip(ours.outputs, theirs.outputs, strict=True)
            ],
        )
        if boxes is None:
            return None
        return self._made(boxes)

    def _made(self, boxes: tuple[Box | None, ...]) -> Between:
        made = Between(self.content, self.size, self.splices, boxes)
        doubts = [(name, one.why) for name, one in self.judged if one.why]
        if doubts:
            made.by_order, made.certified = "unknown", False
            made.in_the_way, made.why = doubts[0]
        made.certified &= all(one.certified for _, one in self.judged if one.how != "exact")
        return made

    def _judge(self, mine: int, other: int, changed: set[int]) -> None:
        runs = self.side.recording, self.whole.recording
        one = aligned(runs, (self.left, self.right), mine, other)
        if not any(pair.compared for pair in one.gives):
            return
        told = judged(one, self.side, self.whole, self.graph.known)
        self.judged.append((one.name, told))
        for pair, some in zip(one.gives, told.apart, strict=False):
            if some is not None and some.any():
                self.left[pair.left] = marked(self.left[pair.left], pair, some, mine)
                changed.add(pair.left)

    def _spliced(self, one: Any, output: int, n: int, m: int) -> bool:
        """Puts the full run's labels in where the short run's last entries are constants."""
        left, right = self.left[n], self.right[m]
        if len(left.shape) != len(right.shape):
            return False
        axes = [a for a, (k, j) in enumerate(zip(left.shape, right.shape, strict=True)) if k != j]
        if len(axes) != 1 or left.shape[axes[0]] > right.shape[axes[0]]:
            return False
        axis, size = axes[0], left.shape[axes[0]]
        named = told_apart(left, right)
        ours = left.full(named)
        theirs = right.full(named).take(range(size), axis)
        others = tuple(a for a in range(ours.ndim) if a != axis)
        differs = np.asarray(ours != theirs).any(axis=others)
        content = np.asarray(reading(self.told[0][m], self.told[1][m]).any(axis=others))[:size]
        start = int(np.flatnonzero(content)[-1]) + 1 if content.any() else 0
        start = max(start, int(np.flatnonzero(differs)[0])) if differs.any() else size
        if start >= size:
            return False
        place = np.arange(size).reshape([-1 if a == axis else 1 for a in range(ours.ndim)])
        found = np.where(place >= start, theirs, ours)
        names = tuple(map(right.name, range(len(right.shape))))
        self.left[n] = Labels(left.shape, found, left.known, names)
        self.splices.append(Splice(one.name, one.op, output, axis, start, n))
        return True


def _proved(graph: PaddedModel, side: Run, found: Between) -> bool:
    """Runs the short run operation by operation with the constants put in, on several contents."""
    nothing = graph.nothing
    operations = zip(side.recording.operations, nothing.recording.operations, strict=True)
    numbers = {
        n: m for mine, other in operations for n, m in zip(mine.gives, other.gives, strict=True)
    }
    values = nothing.arrays({numbers[one.value] for one in found.splices})
    constants = {}
    for one in found.splices:
        whole = values[numbers[one.value]]
        size = side.recording.values[one.value].shape[one.axis]
        constants[one.value] = np.take(whole, range(one.start, size), one.axis)
    found.constants = [constants[one.value] for one in found.splices]
    agains = {one.number: one.again for one in side.recording.operations}
    if any(agains.get(one.number) is None for one in side.recording.operations):
        return False
    for seed in range(SETS):
        short = _interpreted(graph, side, found, agains, constants, seed)
        if short is None or not _agrees(graph, found, short, seed):
            return False
        found.proved += 1
    return True


def _interpreted(
    graph: PaddedModel,
    side: Run,
    found: Between,
    agains: Mapping[int, Any],
    constants: Mapping[int, np.ndarray],
    seed: int,
) -> list[np.ndarray] | None:
    run = side.recording
    given = {n for n, value in enumerate(run.values) if value.given < 0}
    values = dict(side.arrays(given))
    recorded = graph.inputs(found.content, found.size)
    moved = graph.inputs(found.content, found.size, seed)
    fresh = {digest(array): moved[name] for name, array in recorded.items()}
    for n in given:
        if (array := fresh.get(run.values[n].digest)) is not None:
            values[n] = np.ascontiguousarray(array).reshape(values[n].shape)
    splices = {one.value: one for one in found.splices}
    for one in run.operations:
        try:
            gives = agains[one.number]([np.array(values[n], order="C") for n in one.reads])
        except Exception:  # a library says no as it likes
            return None
        for n, array in zip(one.gives, gives, strict=False):
            values[n] = np.array(array)
            if n in splices:
                at = (slice(None),) * splices[n].axis + (slice(splices[n].start, None),)
                values[n][at] = constants[n]
    return [values[n] for n in run.outputs]


def _agrees(graph: PaddedModel, found: Between, short: list[np.ndarray], seed: int) -> bool:
    whole, run = graph.run(found.content, graph.fixed, seed), graph.whole(found.content).recording
    for number, box in enumerate(found.boxes):
        if box is None:
            continue
        mine = short[number][index(box, True, short[number].ndim)]
        other = whole[number][index(box, False, whole[number].ndim)]
        if apart(mine, other, run.values[run.outputs[number]]):
            return False
    return True
