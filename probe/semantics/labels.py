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
