"""Labels of a recorded run: what every value was computed from, to be compared with another run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from probe import floats
from probe.recording.recording import WEIGHT, Operation, Recording, Side, Value
from probe.semantics import Attends, Contracts, Steps, Unknown, Windows
from probe.semantics.labels import Labels, of_content, of_digest, tag

if TYPE_CHECKING:
    from probe.recording.arguments import Otherwise

LARGE = 1 << 24
"""Elements up to which an input is known element by element, where one side takes a part of it: a
batch of a hundred pictures. Their labels take eight bytes each."""


MOST_MIXED = 1 << 26
"""Pairs of labels that a run's products may mix where all labels are written out: seconds."""


def cost(side: Recording) -> float:
    """Returns about how many pairs of labels a run's products mix if all of them are written out:
    for each output as many as the sums have products."""
    found = 0.0
    for one in side.operations:
        sizes, given = (
            [float(np.prod(side.values[n].shape, dtype=float)) for n in some]
            for some in (one.reads, one.gives)
        )
        size = max(given, default=0.0)
        if len(sizes) > 1 and isinstance(one.meaning, Contracts | Windows | Attends | Steps):
            first, second = sorted(sizes)[-2:]
            found += size * max(1.0, (first * second / max(size, 1.0)) ** 0.5)
        else:
            found += max([size, *sizes])
    return found


def labelled(
    side: Recording,
    other: Recording,
    written: bool = False,
    same: Mapping[int, int] | None = None,
    like: Mapping[int, Otherwise] | None = None,
    formulas: Collection[int] = (),
) -> list[Labels]:
    """Returns the labels of every value of a run; ``other``: the run that it is compared with.

    ``same``: values that are taken for the same as one of the other run, by what both are called.
    ``like``: by number, operations that get the labels of one of the other run, whose arguments
    are different.
    ``formulas``: values that are labelled by how they were computed, though their content is known.

    ``written``: no label is left out. What is computed of labels that are left out has other labels
    than what is computed of those that are not, and whether they are may depend on the batch: a
    weight that is repeated for each of its rows and merged with them is not repeated for one row.
    """
    alike = _alike(side, other)
    theirs = {_key(v) for v in other.values if v.given < 0 and (alike or _by_digest(v))}
    _written_out(side, other)
    found: list[Labels | None] = []
    for number, value in enumerate(side.values):
        label = None
        if (
            value.given < 0
            and _key(value) in theirs
            and value.floating
            and (alike or _by_digest(value))
            and np.prod(value.shape, dtype=int) > 1
        ):
            label = _whole(value)._replace(fixed=value.role == WEIGHT)
            label = label._replace(array=label.full()) if written else label
        elif (
            value.content is not None
            and number not in formulas
            and (value.given < 0 or exact(value.content, value.dtype))
        ):
            label = of_content(value.content)
        elif value.given < 0:
            label = _whole(value)
        found.append(label)
    for one in side.operations:
        if all(found[n] is not None for n in one.gives):
            continue
        for number, label in zip(one.gives, _labels(side, one, found, like), strict=True):
            if found[number] is None:
                name = None if same is None else same.get(number)
                found[number] = label if name is None else _assumed(side.values[number], name)
    assert all(one is not None for one in found)
    return found  # type: ignore[return-value]


def _labels(
    side: Recording,
    one: Operation,
    found: list[Labels | None],
    like: Mapping[int, Otherwise] | None,
) -> list[Labels]:
    taken = (like or {}).get(one.number)
    if taken is None:
        return given_labels(side, one, found)
    own = list(found)
    for place, label in taken.scalars.items():
        own[one.reads[place]] = label
    asked = replace(one, meaning=taken.like.meaning, attributes=taken.like.attributes)
    return given_labels(side, asked, own)


def _written_out(side: Recording, other: Recording) -> None:
    """Has labels written out behind what leaves elements out somewhere in either run.

    A sum over labels that are left out has another label than one over those that are not: a row
    in which nothing vanishes would not be the same as in a batch of which another row does.
    """
    every = [(run, one) for run in (side, other) for one in run.operations if one.meaning.notices]
    words = {one.meaning.word for run, one in every if run.values[one.gives[0]].zeros is not None}
    for run, one in every:
        value = run.values[one.gives[0]]
        if run is side and value.zeros is None and one.meaning.word in words:
            value.zeros = np.zeros((1,) * len(side.values[(one.reads or one.gives)[0]].shape), bool)


def _whole(one: Value) -> Labels:
    """Labels of a value by its bits; the same bits in another shape are other elements."""
    return of_digest(one.shape, f"{one.digest} {[n for n in one.shape if n > 1]}")


def _assumed(one: Value, name: int) -> Labels:
    return of_digest(one.shape, f"taken for the same as value {name}")


def _key(one: Value) -> tuple[tuple[int, ...], str, str]:
    return one.shape, one.dtype, one.digest


def _by_digest(one: Value) -> bool:
    """Whether labels take a value that no operation gave as a whole, if both sides have it."""
    return one.role == WEIGHT or one.content is None or one.content.size > LARGE


def _alike(side: Recording, other: Recording) -> bool:
    """Returns whether both run the same operations on arrays of the same shapes.

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


def one_sided(
    ours: Recording, theirs: Recording, pairs: Sequence[tuple[int | None, int | None]]
) -> tuple[set[int], set[int]]:
    """Returns computed values of either run whose content is kept there, and not in the other.

    A batch of 16 may have too many integers to be kept where a batch of 1 has not: a label by
    content on one side and by formula on the other would never be equal. ``pairs``: operations.
    """
    found: tuple[set[int], set[int]] = set(), set()
    for mine, other in pairs:
        if mine is None or other is None:
            continue
        gives = ours.operations[mine].gives, theirs.operations[other].gives
        for both in zip(*gives, strict=False):
            values = ours.values[both[0]], theirs.values[both[1]]
            kept = [value.content is not None for value in values]
            if kept[0] != kept[1] and values[0].dtype == values[1].dtype:
                side = 0 if kept[0] else 1
                found[side].add(both[side])
    return found


def filled(side: Side, other: Recording) -> None:
    """Fetches large values that no operation gave and that the other run hasn't: labels need them.

    So that an array taken for a weight is compared like any other where it differs.
    """
    theirs = {_key(v) for v in other.values if v.given < 0 and _by_digest(v)}
    values = side.recording.values
    wanted = {
        number
        for number, value in enumerate(values)
        if value.given < 0 and value.content is None and _key(value) not in theirs
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
