"""How labels come together: broadcast pairs, sums over axes, products, axes split and joined.

What :mod:`probe.semantics` is made of. An axis along which labels are left out keeps its
name as long as an operation works along it place by place; where two meet, the name says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from probe.semantics.labels import ZERO, Labels, Name, joint, mixed, premix, tag, unmix

# Pairs of labels that a product mixes at once.
MOST_LABELS = 1 << 22  # speed alone


def all_known(reads: Sequence[Labels]) -> bool:
    return all(labels.known for labels in reads)


def one_label(reads: Sequence[Labels], what: np.uint64) -> np.ndarray:
    """Returns one label for all elements of everything that is read."""
    pairs: list[np.ndarray | np.uint64] = []
    for labels in reads:
        array = labels.array
        index = np.arange(1, array.size + 1, dtype=np.uint64).reshape(array.shape)
        pairs.append(tag(labels.shape, *map(labels.left_name, range(len(labels.shape)))))
        pairs.append(summed(joint(array, index), tuple(range(array.ndim))))
    return joint(what, *pairs)


def of_one(label: np.ndarray, shape: tuple[int, ...], known: bool = True) -> Labels:
    """Returns labels that differ by their index alone."""
    return Labels(shape, np.broadcast_to(label, tuple(min(n, 1) for n in shape)), known)


def summed(array: np.ndarray, axes: tuple[int, ...], keep: bool = False) -> np.ndarray:
    """Returns sums modulo 2^64."""
    return np.asarray(np.sum(array, axis=axes, dtype=np.uint64, keepdims=keep))


def scattered(array: np.ndarray) -> np.ndarray:
    """Returns labels that can be summed; zeros add nothing."""
    return np.where(array == ZERO, ZERO, mixed(array))


def visible(array: np.ndarray) -> np.ndarray:
    """Returns labels among which a zero counts as a number like others."""
    return np.where(array == ZERO, tag("zero"), array)


def by_row(labels: Labels) -> np.ndarray:
    """Returns a label for each row along the first axis."""
    lines = visible(labels.full()).reshape(labels.shape[0], prod(labels.shape[1:]))
    index = np.arange(1, lines.shape[-1] + 1, dtype=np.uint64)
    return joint(summed(joint(lines, index), (1,)), tag(labels.shape[1:]))


def met_names(met: Sequence[tuple[Name | None, ...]]) -> list[Name]:
    """Returns the names of axes from those that each operand's axis has there, None where none.

    One name where all agree. Where a name stands at two axes, as in an outer product of a value
    with itself, or in what merged axes give back when they are split, each operand's place counts
    too.
    """
    sets = [frozenset(name for name in names if name is not None) for names in met]
    apart = not any(
        _meet(first, second)
        for n, names in enumerate(sets)
        for others in sets[:n]
        for first in names
        for second in others
    )
    joined: list[Name] = []
    for names, every in zip(met, sets, strict=True):
        if apart and len(every) == 1:
            joined += every
        else:
            joined.append(("met", *sorted(map(hashed, every))) if apart else ("met", hashed(names)))
    return joined


def _meet(first: Name, second: Name) -> bool:
    """Returns whether two axes have, or may get where they are split or merged, the same name."""
    return any(_same_axis(a, b) for a in _components(first) for b in _components(second))


def _components(name: Name) -> Sequence[Name]:
    """Returns what a name gives when its axis is split."""
    if isinstance(name, tuple) and name[0] == "merged":
        return [part for each in name[2:] for part in _components(each)]  # type: ignore[arg-type]
    return [name]


def _same_axis(first: Name, second: Name) -> bool:
    wholes, numbers = [], []
    for name in (first, second):
        parted = isinstance(name, tuple) and name[0] == "part"
        wholes.append(name[1:3] if parted else (name, ()))  # type: ignore[index]
        numbers.append(name[3] if parted else None)  # type: ignore[index, misc]
    if wholes[0] == wholes[1]:  # two parts of one axis are apart
        return numbers[0] == numbers[1]
    if not wholes[0][1] and not wholes[1][1]:
        return False
    return _meet(*(whole for whole, _ in wholes))  # type: ignore[arg-type, misc]


def hashed(name: object) -> int:
    """Returns a name as a number, so that names of names stay short."""
    return int(tag(name))


def broadcast_labels(
    reads: Sequence[Labels],
) -> tuple[tuple[int, ...], list[np.ndarray], tuple[Name, ...]]:
    """Returns the shape to which NumPy broadcasts inputs, arrays that broadcast alike, and names.

    An axis along which all inputs that have it leave their labels out stays left out.
    """
    shape = np.broadcast_shapes(*(labels.shape for labels in reads))
    padded = [lifted(labels, len(shape)) for labels in reads]
    out = [axis for axis in range(len(shape)) if _is_left_out([(part, axis) for part in padded])]
    rest = [axis for axis in range(len(shape)) if axis not in out]
    met = [tuple(labels.left_name(axis) for labels in padded) for axis in out]
    names: list[Name] = list(range(len(shape)))
    for axis, name in zip(out, met_names(met), strict=True):
        names[axis] = name
    return shape, owned([labels.full(rest) for labels in padded], met), tuple(names)


def owned(arrays: Sequence[np.ndarray], met: Sequence[tuple[Name | None, ...]]) -> list[np.ndarray]:
    """Returns labels that know their own axes' names, where operands with others meet.

    Two parts of one projection have the same labels where these are left out along the channels:
    their names alone tell queries from keys, so that q[i] k[j] is not taken for k[i] q[j].
    """
    apart = [names for names in met if len({name for name in names if name is not None}) > 1]
    if not apart:
        return list(arrays)
    marked = []
    for number, array in enumerate(arrays):
        own = tag("owned", *sorted(map(hashed, (names[number] for names in apart))))
        marked.append(np.where(array == ZERO, ZERO, joint(array, own)))
    return marked


def lifted(labels: Labels, rank: int) -> Labels:
    """Returns labels with axes of size 1 in front."""
    front = rank - len(labels.shape)
    names = (*range(front), *(labels.name(axis) for axis in range(len(labels.shape))))
    shape, array = (1,) * front + labels.shape, labels.array
    return Labels(shape, array.reshape((1,) * front + array.shape), labels.known, names)


def _is_left_out(having: Sequence[tuple[Labels, int]]) -> bool:
    """Returns whether all that have this axis leave their labels out along it."""
    long = [(labels, axis) for labels, axis in having if labels.shape[axis] != 1]
    return bool(long) and all(labels.implicit(axis) for labels, axis in long)


def lay_along(labels: Labels, axis: int, rank: int) -> Labels:
    """Returns the labels of a value with one axis, as they lie along ``axis`` of ``rank`` axes."""
    if len(labels.shape) != 1:
        return labels

    def put(n: int) -> tuple[int, ...]:
        return tuple(n if a == axis else 1 for a in range(rank))

    names: list[Name] = list(range(rank))
    names[axis] = labels.name(0)
    array = labels.array.reshape(put(labels.array.shape[0]))
    return Labels(put(labels.shape[0]), array, labels.known, tuple(names))


def pair(left: Labels, right: Labels, what: np.uint64) -> Labels:
    """Returns the labels of a function of two operands that may change places."""
    shape, arrays, names = broadcast_labels([left, right])
    arrays = [*np.broadcast_arrays(*arrays)]
    label = joint(what, np.minimum(*arrays), np.maximum(*arrays))
    return Labels(shape, label, all_known([left, right]), names)


# What tells the labels of a b c from those of a + b + c.
PRODUCT = tag("a product of two")


def associated(left: Labels, right: Labels, adds: bool) -> Labels:
    """Returns the labels of a + b, or of a b, which are those of b + a and b a; and those of
    (a + b) + c are those of a + (b + c). A zero adds nothing, and makes a product zero."""
    # a bias of zeros, as converters add it, leaves the labels as they are
    for term, other in ((left, right), (right, left)) if adds else ():
        if not other.array.any() and np.broadcast_shapes(left.shape, right.shape) == term.shape:
            return term._replace(known=all_known([left, right]))
    shape, arrays, names = broadcast_labels([left, right])
    # products are added up in labels too, behind an exclusive or: else a + b and a b would be one
    key = ZERO if adds else PRODUCT
    with np.errstate(over="ignore"):
        label = unmix(np.add(*(premix(array ^ key) for array in arrays))) ^ key
    if not adds:
        label = np.where((arrays[0] == ZERO) | (arrays[1] == ZERO), ZERO, label)
    return Labels(shape, label, all_known([left, right]), names)


def reduce(labels: Labels, axes: tuple[int, ...], zero: bool) -> np.ndarray:
    """Returns one label for all elements along axes, in any order; the axes stay with size 1."""
    out = [axis for axis in axes if labels.implicit(axis)]
    array = scattered(labels.array if zero else visible(labels.array))
    sums = summed(array, tuple(axis for axis in axes if axis not in out), True)
    if out:
        word = tag(*sorted((hashed(labels.name(axis)), labels.shape[axis]) for axis in out))
        sums = np.where(sums == ZERO, ZERO, joint(sums, word))
    return sums


def contract(
    left: Labels, right: Labels, letters: tuple[str, str], out: str, what: np.uint64
) -> Labels:
    """Returns the labels of an einsum: sums of mixed pairs over the shared letters, zero where
    either is; its shape by the longer of both where one has size 1."""
    every = [*out, *(x for x in dict.fromkeys(letters[0] + letters[1]) if x not in out)]
    ends = ((left, letters[0]), (right, letters[1]))
    having = {x: [(labels, text.index(x)) for labels, text in ends if x in text] for x in every}
    left_out = [x for x in every if _is_left_out(having[x])]
    met = [
        tuple(labels.left_name(text.index(x)) if x in text else None for labels, text in ends)
        for x in left_out
    ]
    names = dict(zip(left_out, met_names(met), strict=True))
    sizes = {x: max(labels.shape[axis] for labels, axis in having[x]) for x in every}
    inner = [(hashed(names[x]), sizes[x]) for x in left_out if x not in out]
    what = tag(int(what), *sorted(inner))

    def lettered(labels: Labels, text: str) -> np.ndarray:
        """Returns an operand with an axis for every letter."""
        if len(set(text)) != len(text):
            raise ValueError(f"{text}: a letter stands twice in one operand")
        full = labels.full([axis for axis, letter in enumerate(text) if letter not in left_out])
        full = full.transpose([text.index(letter) for letter in every if letter in text])
        lengths = iter(full.shape)
        return full.reshape([next(lengths) if letter in text else 1 for letter in every])

    arrays = owned([lettered(labels, text) for labels, text in ends], met)
    # ab is ba, as where a library transposes a product, unless an index alone says whose axis it is
    turns = not any(x in out and (x in letters[0]) != (x in letters[1]) for x in left_out)
    products = _chunked(arrays, len(out), what, turns)
    shape, named = tuple(sizes[x] for x in out), tuple(names.get(x, k) for k, x in enumerate(out))
    return Labels(shape, products, all_known([left, right]), named)


def _chunked(arrays: Sequence[np.ndarray], out: int, what: np.uint64, turns: bool) -> np.ndarray:
    """``turns``: ab is ba."""
    broad = np.broadcast_shapes(*(array.shape for array in arrays))
    inner = tuple(range(out, len(broad)))
    shape = broad[:out]
    if not out:
        return _mixed_pair(arrays[0], arrays[1], inner, what, turns)
    labels = np.empty(shape, np.uint64)
    axis = int(np.argmax(shape))
    rest = max(int(np.prod(broad, dtype=int)) // max(broad[axis], 1), 1)
    rows = max(1, MOST_LABELS // rest)
    for start in range(0, shape[axis], rows):
        part = (slice(None),) * axis + (slice(start, start + rows),)
        some = [array if array.shape[axis] == 1 else array[part] for array in arrays]
        labels[part] = _mixed_pair(some[0], some[1], inner, what, turns)
    return labels


def _mixed_pair(
    left: np.ndarray, right: np.ndarray, inner: tuple[int, ...], what: np.uint64, turns: bool
) -> np.ndarray:
    # a sum of both has no order
    if turns:
        with np.errstate(over="ignore"):
            both = mixed(mixed(left) + mixed(right))
    else:
        both = joint(left, right)
    pair = np.where((left == ZERO) | (right == ZERO), ZERO, both)
    sums = summed(scattered(pair), inner)
    return np.where(sums == ZERO, ZERO, joint(sums, what))


def axis_groups(
    ours: tuple[int, ...], theirs: tuple[int, ...]
) -> list[tuple[list[int], list[int]]]:
    """Splits two shapes of one size into the smallest groups of axes with equal products."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(ours) or j < len(theirs):
        mine, other, left, right = [], [], 1, 1
        if i < len(ours):
            mine, left, i = [i], ours[i], i + 1
        if j < len(theirs) and (theirs[j] == left or left != 1 or not mine):
            other, right, j = [j], theirs[j], j + 1
        while left != right:
            if (left < right and i < len(ours)) or j >= len(theirs):
                left, i = left * ours[i], i + 1
                mine.append(i - 1)
            else:
                right, j = right * theirs[j], j + 1
                other.append(j - 1)
        groups.append((mine, other))
    return groups


def reshape_labels(labels: Labels, to: tuple[int, ...]) -> Labels:
    """Returns the labels of the same elements in another shape.

    An axis along which labels are left out stays so where it is split, or where all that is merged
    with it is left out too; its name then tells the parts, and merging them gives it back.
    """
    if 0 in labels.shape or labels.shape == to:
        array = labels.array if labels.shape == to else np.zeros(to, np.uint64)
        return labels._replace(shape=to, array=array)
    lengths, names, fulls = [], list[Name](range(len(to))), []
    split = axis_groups(labels.shape, to)
    if not labels.fixed:
        labels = labels._replace(array=labels.full(_merged_with_one(labels.shape, split)))
    for mine, other in split:
        long = [axis for axis in mine if labels.shape[axis] != 1]
        if long and all(labels.implicit(axis) for axis in long):
            parts = [axis for axis in other if to[axis] != 1]
            fresh = _axis_names(labels, long, [to[a] for a in parts])
            for axis, name in zip(parts, fresh, strict=True):
                names[axis] = name
            lengths += [1] * len(other)
        else:
            fulls += long
            lengths += [to[axis] for axis in other]
    return Labels(to, labels.full(fulls).reshape(lengths), labels.known, tuple(names), labels.fixed)


def _merged_with_one(
    shape: tuple[int, ...], split: Sequence[tuple[list[int], list[int]]]
) -> list[int]:
    """Returns axes before which an axis of size 1 goes away, as if it were merged with them.

    A batch of 1 has to have the labels of a batch of 8, where (8, 12, ...) becomes (96, ...): there
    nothing can be left out along the merged axis. What goes away behind a longer axis is taken to
    belong to that, as in (20, 1, 64) to (20, 64), unless the axis behind it is split.
    """
    axes: list[int] = []
    gone, first = False, True
    for mine, other in split:
        if not other and all(shape[axis] == 1 for axis in mine):
            gone = True
            continue
        if gone and mine and (first or len(other) > 1):
            axes.append(mine[0])
        gone = first = False
    return axes


def _axis_names(labels: Labels, axes: Sequence[int], sizes: Sequence[int]) -> list[Name]:
    """Returns the names of axes that are split or merged."""
    old = tuple(labels.shape[axis] for axis in axes)
    names = tuple(labels.name(axis) for axis in axes)
    if old == tuple(sizes):
        return list(names)
    merged: Name = names[0] if len(axes) == 1 else ("merged", old, *names)
    first = names[0]
    parted = len(axes) > 1 and isinstance(first, tuple) and first[0] == "part"
    if parted and names == tuple(("part", first[1], old, k) for k in range(len(old))):  # type: ignore[index]
        merged = first[1]  # type: ignore[index, assignment]
    if len(sizes) == 1:
        return [merged]
    if isinstance(merged, tuple) and merged[0] == "merged" and merged[1] == tuple(sizes):
        return list(merged[2:])  # type: ignore[arg-type]
    return [("part", merged, tuple(sizes), k) for k in range(len(sizes))]
