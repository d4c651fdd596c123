"""Labels of two runs, by which padding says which positions read content.

A label is a function of what is computed and of what the runs were given
(:mod:`probe.semantics.labels`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from probe import floats
from probe.agreement.repeated import aligned
from probe.recording.contract import WEIGHT, Operation
from probe.recording.pairs import NOTHING, WHOLE, Pair, Selection
from probe.recording.recording import Run, Value, array_digest, is_exact_content
from probe.semantics import Unknown
from probe.semantics.labels import Labels, of_content, of_digest, tag

Runs = tuple[Run, Run]
Both = tuple[list[Labels], list[Labels]]

# Labels of values that are known before anything is computed, by number.
Known = Mapping[int, Labels]


def labels_of(left: Run, right: Run) -> Both:
    """Returns the labels of every value of both runs."""
    sides = []
    for run, initial in zip((left, right), initial_labels(left, right), strict=True):
        known = dict(initial)
        for op in run.operations:
            if any(n not in known for n in op.gives):
                labels = result_labels(run, op, known)
                given = zip(op.gives, labels, strict=True)
                known.update((n, label) for n, label in given if n not in known)
        sides.append([known[n] for n in range(len(run.values))])
    return sides[0], sides[1]


def labelled_pair(runs: Runs, labels: Both, left: int, right: int) -> Pair:
    """Returns what must agree of two values, by the labels of all values of both runs."""
    ours, theirs = runs[0].values[left], runs[1].values[right]
    left_labels, right_labels = labels[0][left], labels[1][right]
    # of another format nothing is compared, though both may hold zeros
    chosen = agreeing(left_labels, right_labels) if ours.dtype == theirs.dtype else NOTHING
    hollow = 0 in ours.shape and 0 in theirs.shape
    known = left_labels.known and right_labels.known
    return Pair(left, right, chosen, known, chosen.count(ours.shape), hollow=hollow)


# Elements up to which an input is known element by element, where one side takes a part of it: a
# batch of a hundred pictures. Their labels take eight bytes each.
LARGE = 1 << 24


def initial_labels(left: Run, right: Run) -> tuple[dict[int, Labels], dict[int, Labels]]:
    """Returns the labels of what either run is given, and of exact results, by what these hold.

    A weight that both have is one thing, its elements known by their index; what one run alone has
    is known element by element. Costs a look at the weights that one run alone has.
    """
    sides, labels = (left, right), []
    # The first of two places where a label depends on what a run is compared with. Two pure ways
    # lose too much. A digest for every weight: a kernel that Keras keeps as (inputs, filters) and
    # PyTorch as (filters, inputs) would have nothing in common, and no layer behind it. The numbers
    # of every weight: then nothing can be left out along channels, and a product of (n, 4096) by
    # (4096, 4096) mixes 16 million pairs of labels a row, some 0.3 s, where a digest takes one.
    keys = [{v.key for v in side.values if _labelled_as_one(v)} for side in sides]
    one_sided = _one_sided(left, right)
    for side, theirs, formulas in zip(sides, keys[::-1], one_sided, strict=True):
        values = side.values
        initial = {n for n, v in enumerate(values) if v.given < 0}
        shared = {n for n in initial if _labelled_as_one(values[n]) and values[n].key in theirs}
        missing = {n for n in initial - shared if values[n].content is None}
        contents = {n: v.content for n, v in enumerate(values) if v.content is not None}
        contents |= side.arrays(missing) if missing else {}
        known = {}
        for n in initial:
            value, dtype = values[n], values[n].dtype
            # by its bits; the same bits in another shape are other elements
            sizes = [size for size in value.shape if size > 1]
            label = of_digest(value.shape, f"{value.digest} {sizes}")
            known[n] = label._replace(fixed=value.role == WEIGHT)
            row = n in shared and dtype in floats.FORMATS and len(value.shape) == 1
            # converters add biases of zeros, which add nothing
            if row and value.digest == array_digest(
                np.zeros(value.shape, floats.container_of_format(dtype))
            ):
                known[n] = known[n]._replace(array=np.zeros_like(label.array), fixed=False)
        for n in contents.keys() - shared - formulas:
            if n in initial or is_exact_content(contents[n], values[n].dtype):
                known[n] = of_content(contents[n])
        labels.append(known)
    return labels[0], labels[1]


def result_labels(run: Run, op: Operation, labels: Sequence[Labels | None] | Known) -> list[Labels]:
    """Returns the labels of what an operation gives, from those of what it reads."""
    reads = [labels[n] for n in op.reads]
    shapes = [run.values[n].shape for n in op.gives]
    meaning = op.meaning
    unknown = isinstance(meaning, Unknown)
    what = tag(op.op, repr(op.attributes)) if unknown else tag(meaning.word or op.op)
    if meaning.notices:
        zeros = run.values[op.gives[0]].zeros
        return meaning.labels(reads, shapes, what, zeros)  # type: ignore[arg-type, call-arg]
    return meaning.labels(reads, shapes, what)  # type: ignore[arg-type]


def _labelled_as_one(value: Value) -> bool:
    """Whether labels take a value as a whole, if both runs are given it."""
    large = value.role == WEIGHT or value.content is None or value.content.size > LARGE
    return large and value.given < 0 and value.floating and prod(value.shape) > 1


def _one_sided(ours: Run, theirs: Run) -> tuple[set[int], set[int]]:
    """Returns computed values of either run whose content is kept there, and not in the other.

    A batch of 16 may have too many integers to be kept where a batch of 1 has not: a label by
    content on one side and by formula on the other would never be equal.

    The second place where comparing decides on labels. It would be pure to know all such values by
    their content, or none: but one-hot rows of a vocabulary don't fit (8 bytes a label), and masks
    that two libraries make by different formulas are recognised by their content alone.
    """
    one_sided: tuple[set[int], set[int]] = set(), set()
    for mine, other in aligned(ours.operations, theirs.operations):
        gives = ours.operations[mine].gives, theirs.operations[other].gives
        for both in zip(*gives, strict=False):
            values = ours.values[both[0]], theirs.values[both[1]]
            known = [value.content is not None for value in values]
            if known[0] != known[1] and values[0].dtype == values[1].dtype:
                side = known.index(True)
                one_sided[side].add(both[side])
    return one_sided


def told_apart(left: Labels, right: Labels) -> tuple[int, ...]:
    """Returns the axes of two values of one rank along which their labels have to be written out to
    be compared."""
    return tuple(
        axis
        for axis, sizes in enumerate(zip(left.shape, right.shape, strict=True))
        if sizes[0] != sizes[1]
        or not (left.implicit(axis) and right.implicit(axis))
        or left.name(axis) != right.name(axis)
    )


def agreeing(left: Labels, right: Labels) -> Selection:
    """Returns which elements of two values have equal labels, pair by pair: an element goes with
    the one at its place where labels are equal there, else where its row went, else with the first
    that has its label."""
    flat = len(left.shape) != len(right.shape)
    axes = (0,) if flat else told_apart(left, right)
    mine, other = (side.full().reshape(-1) if flat else side.full(axes) for side in (left, right))
    if left.shape == right.shape and np.array_equal(mine, other):
        return WHOLE
    ends = zip((mine, other), (left, right), strict=True)
    sizes = [(side.size,) if flat else tuple(of.shape[a] for a in axes) for side, of in ends]
    ours, theirs = mine.reshape(-1), other.reshape(-1)
    partner = np.full(ours.size, -1)
    if axes and not flat:
        inside = tuple(slice(min(both)) for both in zip(*sizes, strict=True))
        same = ours.reshape(sizes[0])[inside] == theirs.reshape(sizes[1])[inside]
        at, to = (np.arange(prod(size)).reshape(size)[inside][same] for size in sizes)
        partner[at] = to
    # of the rest a label is looked for anywhere; sorting is left to what may be there at all
    rest = np.flatnonzero(partner < 0)
    rest = rest[_maybe_among(ours[rest], theirs)] if len(rest) else rest
    others = np.flatnonzero(_maybe_among(theirs, ours[rest])) if len(rest) else rest
    if len(others):
        order = others[np.argsort(theirs[others], kind="stable")]
        where = np.searchsorted(theirs[order], ours[rest]).clip(max=len(order) - 1)
        hit = theirs[order[where]] == ours[rest]
        at, where = rest[hit], where[hit]
        to = order[where]
        # of thousands of numbers some are equal by chance: each goes where the rest of its row
        # does, or a batch in another order would look as if elements had been taken elsewhere
        several = theirs[order[(where + 1).clip(max=len(order) - 1)]] == ours[at]
        several &= where + 1 < len(order)
        inner = prod(sizes[0][1:])
        if inner > 1 and several.any() and sizes[0][1:] == sizes[1][1:]:
            rows = np.full(sizes[0][0], -1)
            sure = ~several & (at % inner == to % inner)
            rows[at[sure] // inner] = to[sure] // inner
            # a row that is whole on the other side may have no label of its own
            whole_rows = {row.tobytes(): n for n, row in enumerate(theirs.reshape(-1, inner))}
            for n in np.unique(at[several] // inner):
                rows[n] = whole_rows.get(ours[n * inner : (n + 1) * inner].tobytes(), rows[n])
            there = rows[at // inner] * inner + at % inner
            again = several & (there >= 0)
            again[again] = theirs[there[again]] == ours[at[again]]
            to = np.where(again, there, to)
        partner[at] = to
    paired = np.flatnonzero(partner >= 0)
    alike = len(paired) == ours.size == theirs.size and left.shape == right.shape
    if alike and np.array_equal(partner, np.arange(ours.size)):
        return WHOLE
    return Selection(axes, paired, partner[paired], (sizes[0], sizes[1]), flat)


# Bits of labels by which most of those are left out that the other side has not.
MOST_BITS = 26


def _maybe_among(some: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Returns which labels may be among others: bool, False only where they aren't. No sorting."""
    bits = min(int(others.size).bit_length() + 3, MOST_BITS)
    low = np.uint64((1 << bits) - 1)
    table = np.zeros(1 << bits, bool)
    table[(others & low).astype(np.int64)] = True
    return np.asarray(table[(some & low).astype(np.int64)])
