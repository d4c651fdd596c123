"""Two runs side by side: which operations agree, which differ first, and which only pass it on.

Operations are aligned by name and order; of every pair of values those elements are compared that
must agree (:mod:`probe.recording.labels`). An operation is the *source* of a difference where
everything that it reads agrees and its outputs don't, *carried* where what it reads differs
already, *healed* where what it reads differs and its outputs agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any, TypeVar

import numpy as np

from probe import floats, memory, ulp
from probe.recording.labels import Labels, Selection, agreeing, of_content, of_digest, tag
from probe.recording.meaning import Unknown
from probe.recording.recording import SMALL, WEIGHT, Operation, Recording, Side, Value

LEAST_BYTES, MOST_BYTES, FREE_PART = 1 << 28, 1 << 30, 8
"""Bytes of values that are held at once, and which part of what is free that is in between: what
doesn't fit costs further runs."""


@dataclass
class Pair:
    """A value of either run, by number, and what must agree of them.

    ``compared``: elements; ``equal``: whether all have the same bits. ``known``: False where it
    isn't known of the rest whether it must agree.
    """

    left: int
    right: int
    selection: Selection
    known: bool
    compared: int = 0
    equal: bool = True
    differing: int = 0
    signed_zero: int = 0
    max_ulp: int | None = 0
    scaled: float = 0.0
    first: tuple[int, ...] | None = None


@dataclass
class Aligned:
    """An operation of both runs, or of one.

    ``verdict``: ``source``, ``carried``, ``healed``, ``equal``, ``left``, ``right`` or ``unknown``.
    ``own``: of a carried one, outputs that differ where its inputs are made to agree; None: that
    was not asked.
    """

    name: str
    op: str
    path: str
    left: int | None
    right: int | None
    reads: list[Pair] = field(default_factory=list)
    gives: list[Pair] = field(default_factory=list)
    verdict: str = ""
    cause: str = ""
    note: str = ""
    own: int | None = None

    @property
    def differing(self) -> int:
        """Elements of its outputs that must agree and don't."""
        return sum(one.differing for one in self.gives)

    @property
    def compared(self) -> int:
        """Elements of its outputs that must agree."""
        return sum(one.compared for one in self.gives)

    @property
    def max_ulp(self) -> int | None:
        """The largest distance; None where it has no number (a NaN, or integers)."""
        found = [one.max_ulp for one in self.gives if one.max_ulp is not None]
        return max(found, default=0) if len(found) == len(self.gives) else None

    def to_json(self) -> dict[str, Any]:
        """As ``operations`` of ``probe network --json`` has it."""
        return {
            "name": self.name,
            "op": self.op,
            "path": self.path,
            "verdict": self.verdict,
            "compared": self.compared,
            "differing": self.differing,
            "max_ulp": self.max_ulp,
            "cause": self.cause or None,
            "note": self.note or None,
            "own": self.own,
        }


@dataclass
class Difference:
    """Two runs compared; ``operations`` in the order of the run, those of one side between."""

    left: Recording
    right: Recording
    operations: list[Aligned]
    outputs: list[Pair]

    @property
    def first(self) -> Aligned | None:
        """The first source."""
        return next(iter(self.sources), None)

    @property
    def sources(self) -> list[Aligned]:
        """All sources, in order."""
        return [one for one in self.operations if one.verdict == "source"]

    @property
    def examined(self) -> int:
        """Operations of which something was compared."""
        return sum(one.verdict not in ("left", "right", "unknown") for one in self.operations)

    @property
    def verdict(self) -> str:
        """``differs``, ``equal`` or ``unknown``: of the outputs that must agree."""
        if any(one.differing for one in self.outputs):
            return "differs"
        judged = all((one.known or one.selection.whole) and one.compared for one in self.outputs)
        return "equal" if judged and self.outputs else "unknown"


def align(left: Recording, right: Recording) -> list[tuple[int | None, int | None]]:
    """Pairs the operations of two runs: the longest common parts, in order."""
    ours, theirs = ([(one.op, one.path) for one in side.operations] for side in (left, right))
    if ours == theirs:
        return [(n, n) for n in range(len(ours))]
    found: list[tuple[int | None, int | None]] = []
    for kind, i, j, k, m in SequenceMatcher(None, ours, theirs, autojunk=False).get_opcodes():
        if kind == "equal":
            found += [(i + n, k + n) for n in range(j - i)]
        else:
            found += [(n, None) for n in range(i, j)] + [(None, n) for n in range(k, m)]
    return found


def labelled(side: Recording, other: Recording) -> list[Labels]:
    """Returns the labels of every value of a run; ``other``: the run that it is compared with."""
    theirs = {(v.shape, v.dtype, v.digest) for v in other.values if v.given < 0}
    alike = _alike(side, other)
    found: list[Labels | None] = []
    for value in side.values:
        label = None
        large = value.role == WEIGHT or value.content is None or value.content.size > SMALL
        if (
            value.given < 0
            and (value.shape, value.dtype, value.digest) in theirs
            and value.floating
            and (alike or large)
            and np.prod(value.shape, dtype=int) > 1
        ):
            label = of_digest(value.shape, value.digest)
        elif value.content is not None and (value.given < 0 or exact(value.content, value.dtype)):
            label = of_content(value.content)
        elif value.given < 0:
            label = of_digest(value.shape, value.digest)
        found.append(label)
    for one in side.operations:
        if all(found[n] is not None for n in one.gives):
            continue
        for number, label in zip(one.gives, given_labels(side, one, found), strict=True):
            if found[number] is None:
                found[number] = label
    assert all(one is not None for one in found)
    return found  # type: ignore[return-value]


def _alike(side: Recording, other: Recording) -> bool:
    """Whether both run the same operations on arrays of the same shapes.

    Only then is an input that is whole in both labelled by its place: where one side takes a part
    of it first, its elements have to be known by their content.
    """
    ours, theirs = (
        [(one.op, one.reads, one.gives) for one in recording.operations]
        for recording in (side, other)
    )
    shapes = [[value.shape for value in recording.values] for recording in (side, other)]
    return ours == theirs and shapes[0] == shapes[1]


def exact(content: np.ndarray, dtype: str) -> bool:
    """Whether what is computed from integers came without rounding: whole numbers, or infinite.

    Other results, sines of positions say, are labelled by how they were computed, so that they are
    compared.
    """
    if dtype not in floats.FORMATS:
        return "complex" not in dtype
    values = floats.widen(content, dtype)
    return bool(np.all((values == np.rint(values)) | ~np.isfinite(values)))


def filled(side: Side, other: Recording) -> None:
    """Fetches large values that no operation gave and that the other run hasn't: labels need them.

    So that an array taken for a weight is compared like any other where it differs.
    """
    theirs = {(v.shape, v.dtype, v.digest) for v in other.values if v.given < 0}
    values = side.recording.values
    wanted = {
        number
        for number, value in enumerate(values)
        if value.given < 0
        and value.content is None
        and (value.shape, value.dtype, value.digest) not in theirs
    }
    for number, array in (side.arrays(wanted) if wanted else {}).items():
        values[number].content = array


def given_labels(side: Recording, one: Operation, found: list[Labels | None]) -> list[Labels]:
    """Returns the labels of what an operation gives, from those of what it reads."""
    reads = [found[n] for n in one.reads]
    shapes = [side.values[n].shape for n in one.gives]
    meaning = one.meaning
    unknown = isinstance(meaning, Unknown)
    what = tag(one.op, repr(one.attributes)) if unknown else tag(meaning.word or one.op)
    if meaning.notices:
        zeros = side.values[one.gives[0]].zeros
        return meaning.labels(reads, shapes, what, zeros)  # type: ignore[arg-type, call-arg]
    return meaning.labels(reads, shapes, what)  # type: ignore[arg-type]


def compare(left: Side, right: Side) -> Difference:
    """Compares two runs of the same thing."""
    ours, theirs = left.recording, right.recording
    filled(left, theirs)
    filled(right, ours)
    labels = labelled(ours, theirs), labelled(theirs, ours)
    pairs: dict[tuple[int, int], Pair] = {}

    def pair(mine: int, other: int) -> Pair:
        if (mine, other) not in pairs:
            one, two = labels[0][mine], labels[1][other]
            chosen = agreeing(one, two)
            made = Pair(mine, other, chosen, one.known and two.known)
            made.compared = selected(chosen, ours.values[mine].shape)
            pairs[mine, other] = made
        return pairs[mine, other]

    found = []
    for mine, other in align(ours, theirs):
        one = ours.operations[mine] if mine is not None else theirs.operations[other or 0]
        made = Aligned(one.name, one.op, one.path, mine, other)
        if mine is None or other is None:
            made.verdict = "left" if other is None else "right"
        else:
            two = theirs.operations[other]
            made.reads = [pair(*both) for both in zip(one.reads, two.reads, strict=False)]
            made.gives = [pair(*both) for both in zip(one.gives, two.gives, strict=False)]
        found.append(made)
    outputs = [pair(*both) for both in zip(ours.outputs, theirs.outputs, strict=False)]
    judge(left, right, list(pairs.values()))
    for each in found:
        each.verdict = each.verdict or _verdict(each)
    return Difference(ours, theirs, found, outputs)


def selected(chosen: Selection, shape: tuple[int, ...]) -> int:
    """Returns how many elements of a left value of ``shape`` are selected."""
    if chosen.left is None:
        return int(np.prod(shape, dtype=int))
    rest = [n for axis, n in enumerate(shape) if axis not in chosen.axes and not chosen.flat]
    return int(len(chosen.left) * np.prod(rest if not chosen.flat else (), dtype=int))


def _verdict(one: Aligned) -> str:
    if not one.compared:
        every_known = all(pair.known for pair in one.gives) and one.gives
        return "equal" if every_known or not one.gives else "unknown"
    if all(pair.equal for pair in one.gives):
        return "equal" if all(pair.equal for pair in one.reads) else "healed"
    return "source" if all(pair.equal for pair in one.reads) else "carried"


def judge(left: Side, right: Side, pairs: list[Pair]) -> None:
    """Finds which pairs differ, and counts differences by bits.

    Of pairs that are whole the digests are known. Parts are fetched where all of them fit into
    what may be held at once; else digests of them say first which are worth it.
    """
    ours, theirs = left.recording.values, right.recording.values
    apart = []
    for one in pairs:
        if one.selection.whole:
            one.equal = ours[one.left].digest == theirs[one.right].digest
            apart += [] if one.equal else [one]
    parts = [one for one in pairs if not one.selection.whole and one.compared]
    if sum(_bytes(one, ours) for one in (*apart, *parts)) > room():
        parts = _told_apart(left, right, parts)
    for some in batches(apart + parts, [_bytes(one, ours) for one in (*apart, *parts)]):
        mine = left.parts([(one.left, one.selection) for one in some], 0)
        other = right.parts([(one.right, one.selection) for one in some], 1)
        for one, *both in zip(some, mine, other, strict=True):
            if both[0] is not None and both[1] is not None:
                values = ours[one.left]
                _measured(one, both[0], both[1], values.dtype, values.shape)
            elif one.selection.whole:  # digests alone were kept: one element at least
                one.differing, one.max_ulp = 1, None
            else:
                _left_out(one)


def _told_apart(left: Side, right: Side, parts: list[Pair]) -> list[Pair]:
    """Returns the pairs whose selected elements have different digests."""
    mine = left.digests([(one.left, one.selection) for one in parts], 0)
    other = right.digests([(one.right, one.selection) for one in parts], 1)
    for one, *both in zip(parts, mine, other, strict=True):
        if None in both:
            _left_out(one)
        else:
            one.equal = both[0] == both[1]
    return [one for one in parts if not one.equal]


def _left_out(one: Pair) -> None:
    """Nothing is known of a pair that a recording on disk has left out."""
    one.known, one.compared, one.equal = False, 0, True


def room() -> int:
    """Bytes of values that may be held at once: a part of what is free."""
    free = memory.free()
    return MOST_BYTES if free is None else min(max(free // FREE_PART, LEAST_BYTES), MOST_BYTES)


def _bytes(one: Pair, ours: list[Value]) -> int:
    """Bytes of what is compared of a pair, on both sides."""
    return 2 * one.compared * itemsize(ours[one.left])


def itemsize(value: Value) -> int:
    """Bytes of an element."""
    known = value.dtype in floats.FORMATS
    return (floats.container(value.dtype) if known else np.dtype(value.dtype)).itemsize


Some = TypeVar("Some")


def batches(every: Sequence[Some], sizes: Sequence[int]) -> Iterator[list[Some]]:
    """Yields what may be held at once; ``sizes``: their bytes."""
    some: list[Some] = []
    size, most = 0, room()
    for one, more in zip(every, sizes, strict=True):
        if some and size + more > most:
            yield some
            some, size = [], 0
        some.append(one)
        size += more
    if some:
        yield some


def measure(one: Pair, mine: np.ndarray, other: np.ndarray, dtype: str) -> None:
    """Counts differences of two values; of either the selected elements alone."""
    both = one.selection.taken(mine, 0), one.selection.taken(other, 1)
    _measured(one, *both, dtype, mine.shape)


def _measured(
    one: Pair, ours: np.ndarray, theirs: np.ndarray, dtype: str, shape: tuple[int, ...]
) -> None:
    """The same of the selected elements; ``shape``: of the left value."""
    if "float" not in dtype:
        apart = ours != theirs
        one.differing, one.max_ulp = int(apart.sum()), None
        index = np.flatnonzero(apart)
    else:
        found = ulp.differences(ours, theirs, dtype)
        index = found.index
        one.differing = len(index)
        one.max_ulp = ulp.largest(found.ulps) if len(index) else 0
        if len(index):
            values = [floats.widen(array, dtype).reshape(-1) for array in (ours, theirs)]
            with np.errstate(invalid="ignore"):
                apart = np.abs(values[0] - values[1]).max()
            largest = max(float(np.nanmax(np.abs(values[1]))), 1e-300)
            one.scaled = float(apart / (floats.eps(dtype) * largest))
    one.equal = not one.differing
    if len(index):
        mask = np.zeros(ours.shape, bool)
        mask.reshape(-1)[index[0]] = True
        if one.selection.whole:
            place = np.argwhere(mask)[0]
        else:
            place = np.argwhere(one.selection.put(np.zeros(shape, bool), mask, 0))[0]
        one.first = tuple(map(int, place))
