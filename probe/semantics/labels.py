"""Which elements of two runs must agree: labels that are equal where the same is computed.

Every element of every value of a run gets a label, 64 bits. Inputs are labelled by their content,
weights by a digest and the element's index; what an operation gives is labelled by the operation
and the labels of what it reads, as :mod:`probe.semantics` says it operation by operation.
Sums are labelled by sums (modulo 2^64) of mixed labels, so that neither order nor added zeros
matter. Equal labels then mean: the same formula, over the same inputs. Elements with equal labels
must agree; of others nothing is known.

A label is kept once where all elements along an axis differ by their index alone, as along the
channels behind a convolution: ``array`` has size 1 along such an axis.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

# The label of an exact zero: it adds nothing to a sum, and makes a product zero.
ZERO = np.uint64(0)

_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_ALL = (1 << 64) - 1


def mixed(array: np.ndarray) -> np.ndarray:
    """Returns 64-bit numbers scattered one to one (splitmix64, Steele, Lea, Flood 2014)."""
    return _scatter(np.array(array, np.uint64, order="C"))


BLOCK = 1 << 14  # speed alone: labels that are mixed at once, so that they stay in the cache


def _scatter(array: np.ndarray) -> np.ndarray:
    """Mixes an array in its place, and returns it."""
    flat = array.reshape(-1)
    beside = np.empty(min(BLOCK, flat.size), np.uint64)
    with np.errstate(over="ignore"):
        for start in range(0, flat.size, BLOCK):
            part = flat[start : start + BLOCK]
            shifted = beside[: part.size]
            part += np.uint64(_GOLDEN)
            for shift, factor in ((30, _FIRST), (27, _SECOND), (31, 1)):
                np.right_shift(part, np.uint64(shift), out=shifted)
                part ^= shifted
                if factor != 1:
                    part *= np.uint64(factor)
    return array


_ONE, _TWO = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)
_BACK = [np.uint64(pow(int(one), -1, 1 << 64)) for one in (_TWO, _ONE)]
_HALF = np.uint64(33)


# Both steps of MurmurHash3's fmix64 can be undone: the factors are odd, so that they have inverses
# modulo 2^64, and a shift by more than half of the bits is its own.
def _scrambled(array: np.ndarray, factors: Sequence[np.uint64]) -> np.ndarray:
    numbers = np.array(array, np.uint64, order="C")
    with np.errstate(over="ignore"):
        for factor in factors:
            numbers ^= numbers >> _HALF
            numbers *= factor
    return numbers ^ (numbers >> _HALF)


def unmix(array: np.ndarray) -> np.ndarray:
    """Returns 64-bit numbers scattered one to one, 0 to 0 (MurmurHash3's last step, Appleby 2011).

    It is another function than ``mixed``, with which ``joint`` ends: ``premix`` would undo that
    and leave a sum, in which operands of two labels could change places.
    """
    return _scrambled(array, (_ONE, _TWO))


def premix(array: np.ndarray) -> np.ndarray:
    """Returns the numbers of which ``unmix`` gives these.

    Labels of sums are made by it: the label of a + b is ``unmix(premix(a) + premix(b))``, so
    that of (a + b) + c is that of a + (b + c), and a zero adds nothing.
    """
    return _scrambled(array, _BACK)


def tag(*words: object) -> np.uint64:
    """Returns a label for words: names of operations, numbers, digests."""
    # reprs: 1, 1.0 and True are three words; zeros between them: "a", "bc" is not "ab", "c"
    text = "\0".join(map(repr, words)).encode()
    return np.uint64(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little"))


@lru_cache(1 << 14)
def _mixed_one(value: int) -> int:
    """Returns what ``mixed`` makes of one number: words are as many as arrays, and small."""
    value = (value + _GOLDEN) & _ALL
    value = (value ^ value >> 30) * _FIRST & _ALL
    value = (value ^ value >> 27) * _SECOND & _ALL
    return value ^ value >> 31


def joint(*arrays: np.ndarray | np.uint64) -> np.ndarray:
    """Returns one label for several in this order; the arrays broadcast."""
    label: int | np.ndarray = 0
    with np.errstate(over="ignore"):
        for array in arrays:
            # three times what is there: without a factor the order of two labels would not count
            if isinstance(array, np.uint64) and isinstance(label, int):
                label = _mixed_one(3 * label + _mixed_one(int(array)) & _ALL)
                continue
            word: Any = mixed(array) if isinstance(array, np.ndarray) else None
            word = np.uint64(_mixed_one(int(array))) if word is None else word
            before = np.uint64(3 * label & _ALL) if isinstance(label, int) else label * np.uint64(3)
            if isinstance(word, np.ndarray) and np.shape(before) == ():
                word += before
            else:
                word = word + before
            label = _scatter(np.asarray(word))
    return np.asarray(label, np.uint64)


# Which axis of which value an index counts along, where labels along it are left out.
Name = int | tuple[object, ...]


def of_index(name: Name, size: int) -> np.ndarray:
    """Returns what each index along an axis adds to a label: uint64, of ``size``."""
    return joint(tag("index", name), np.arange(1, size + 1, dtype=np.uint64))


def with_words(what: np.uint64, *words: object) -> np.uint64:
    return np.uint64(joint(what, tag(*words))[()])


class Labels(NamedTuple):
    """The labels of a value of ``shape``.

    ``array``: uint64, as many axes, each as long as the value's or 1. Length 1 along a longer axis:
    the labels along it differ by their index, which is left out; ``names`` then says which axis it
    counts along, so that a matrix and its transpose have different labels (an axis that isn't left
    out has any name; empty: the axes' numbers). ``known``: False where an operation was not
    understood: then equal labels still must agree, and of others nothing is said. ``fixed``: of a
    weight, or a part of one, which is the same for every batch.
    """

    shape: tuple[int, ...]
    array: np.ndarray
    known: bool = True
    names: tuple[Name, ...] = ()
    fixed: bool = False

    def name(self, axis: int) -> Name:
        return self.names[axis] if self.names else axis

    def left_name(self, axis: int) -> Name | None:
        """Returns the name of an axis along which labels are left out; None of any other."""
        return self.name(axis) if self.implicit(axis) else None

    def full(self, axes: Sequence[int] | None = None) -> np.ndarray:
        """Returns the labels with nothing left out along ``axes``, None for all."""
        array = self.array
        for axis in range(len(self.shape)) if axes is None else axes:
            size = self.shape[axis]
            if array.shape[axis] == size:
                continue
            index = of_index(self.name(axis), size)
            index = index.reshape(size, *(1,) * (len(self.shape) - axis - 1))
            with np.errstate(over="ignore"):  # a sum: axes may be filled in in any order
                array = np.where(array == ZERO, ZERO, array + index)
        return array

    def implicit(self, axis: int) -> bool:
        """Returns whether labels along this axis are left out."""
        return self.array.shape[axis] != self.shape[axis]


def of_content(bits: np.ndarray) -> Labels:
    """Labels by content: equal where the bits are, zero where the value is. Container bits."""
    plain = np.ascontiguousarray(bits).reshape(np.shape(bits))
    zero = np.asarray(plain == 0)  # both zeros
    if plain.dtype == np.dtype(bool):
        plain = plain.astype(np.uint8)
    if plain.dtype.kind == "c":
        array = joint(*(of_content(half).array for half in (plain.real, plain.imag)))
        return Labels(bits.shape, np.where(zero, ZERO, array))
    if plain.dtype.kind not in "iufV":
        return Labels(bits.shape, np.full(bits.shape, tag(plain.tobytes())))
    # the dtype is part of it, as bits are compared: 1 in float32 is not 1 in float64
    words = plain.view(f"u{plain.dtype.itemsize}")
    return Labels(bits.shape, np.where(zero, ZERO, joint(words, tag(plain.dtype.str))))


def of_digest(shape: tuple[int, ...], digest: str) -> Labels:
    """Labels of something that is the same on both sides: a digest, and the index left out.

    So a weight's labels don't come from its numbers: ``matching.known`` says which weights are
    labelled so, and what either pure way would cost.
    """
    array = np.full((1,) * len(shape), tag(digest))
    return Labels(shape, array if all(shape) else np.zeros(shape, np.uint64))


def of_lines(bits: np.ndarray, axes: Sequence[int]) -> Labels:
    """Labels by content of each index along some axes: of all that stands there together."""
    return Labels(bits.shape, joined_lines(of_content(bits).array, axes))


def joined_lines(labels: np.ndarray, axes: Sequence[int]) -> np.ndarray:
    """Returns a label for each index along some axes, from those of all that stands there; of size
    1 along the others."""
    rest = tuple(axis for axis in range(labels.ndim) if axis not in axes)
    sizes = [size if axis in rest else 1 for axis, size in enumerate(labels.shape)]
    index = np.arange(prod(sizes), dtype=np.uint64).reshape(sizes)
    with np.errstate(over="ignore"):
        lines = joint(labels, index).sum(axis=rest, keepdims=True, dtype=np.uint64)
    return np.where((labels == ZERO).all(axis=rest, keepdims=True), ZERO, lines)


class Selection(NamedTuple):
    """Elements of a left value and of a right one that must agree, pair by pair.

    ``axes``: those along which elements are named; all along the others belong to the selection.
    ``left``, ``right``: flat indices over the sizes of ``axes``, None for all of them. ``flat``:
    the two have other numbers of axes, and elements are named by their place in the flattened
    value. ``again``: further elements of the right value that have a selected one's label: each
    left element is paired with one right element, though several may compute the same.
    """

    axes: tuple[int, ...]
    left: np.ndarray | None
    right: np.ndarray | None
    sizes: tuple[tuple[int, ...], tuple[int, ...]]
    flat: bool = False
    again: np.ndarray | None = None

    @property
    def whole(self) -> bool:
        """Whether all elements of both sides are selected, each with the one at its place."""
        return self.left is None

    @property
    def empty(self) -> bool:
        """Returns whether nothing must agree."""
        return self.left is not None and not len(self.left)

    def count(self, shape: tuple[int, ...]) -> int:
        """Returns how many elements of the left value, of this shape, are selected."""
        if self.left is None:
            return prod(shape)
        rest = [n for a, n in enumerate(shape) if a not in self.axes and not self.flat]
        return len(self.left) * prod(rest)

    def _seen(self, array: np.ndarray, side: int) -> tuple[np.ndarray, Any]:
        """Returns a view of a side's value, and the index of what is selected in it."""
        index = (self.left, self.right)[side]
        assert index is not None
        if self.flat:
            return array.reshape(-1), index
        rest = [axis for axis in range(array.ndim) if axis not in self.axes]
        turned = array.transpose(*self.axes, *rest)
        if self.axes:
            return turned, np.unravel_index(index, self.sizes[side])
        return turned[None], slice(min(len(index), 1))

    def taken(self, array: np.ndarray, side: int) -> np.ndarray:
        """Returns the selected elements of the left (0) or right (1) value: (named, *others)."""
        if self.whole:
            return array
        view, at = self._seen(array, side)
        chosen: np.ndarray = view[at]
        return chosen

    def put(self, array: np.ndarray, values: np.ndarray, side: int) -> np.ndarray:
        """Returns a copy of a side's value with these elements in the places of the selected."""
        if self.whole:
            return values.reshape(array.shape).copy()
        copy = np.array(array, order="C")
        view, at = self._seen(copy, side)
        view[at] = values
        return copy

    def mask(self, shape: tuple[int, ...], side: int) -> np.ndarray:
        """Returns where a side's value of ``shape`` is selected: bool."""
        if self.whole:
            return np.ones(shape, bool)
        every = self.taken(np.ones(shape, bool), side)
        return self.put(np.zeros(shape, bool), every, side)

    def rest(self, shape: tuple[int, ...], side: int) -> np.ndarray:
        """Returns where a side's value need not agree with anything of the other's: bool."""
        free = ~self.mask(shape, side)
        if side == 1 and self.again is not None and len(self.again):
            free &= ~self._replace(left=self.again, right=self.again).mask(shape, 1)
        return free


# No element of either value.
NOTHING = Selection((), np.zeros(0, np.int64), np.zeros(0, np.int64), ((), ()), True)


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
    whole = Selection((), None, None, ((), ()))
    if left.shape == right.shape and np.array_equal(mine, other):
        return whole
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
        return whole
    again = _again(theirs, np.sort(ours[paired]), partner[paired])
    return Selection(axes, paired, partner[paired], (sizes[0], sizes[1]), flat, again)


def _again(labels: np.ndarray, known: np.ndarray, taken: np.ndarray) -> np.ndarray:
    """Returns places of labels, other than ``taken``, that stand in ``known``, which is sorted."""
    if not len(known):
        return taken[:0]
    free = _maybe_among(labels, known)
    free[taken] = False
    candidates = np.flatnonzero(free)
    place = np.searchsorted(known, labels[candidates]).clip(max=len(known) - 1)
    return candidates[known[place] == labels[candidates]]


# Bits of labels by which most of those are left out that the other side has not.
MOST_BITS = 26


def _maybe_among(some: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Returns which labels may be among others: bool, False only where they aren't. No sorting."""
    bits = min(int(others.size).bit_length() + 3, MOST_BITS)
    low = np.uint64((1 << bits) - 1)
    table = np.zeros(1 << bits, bool)
    table[(others & low).astype(np.int64)] = True
    return np.asarray(table[(some & low).astype(np.int64)])
