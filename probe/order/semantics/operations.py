"""Constructors of what operations compute, with arguments in one form for all libraries.

A library's table calls these: two libraries that mean the same can't say it differently, since
names, defaults and numbers are settled here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import isinf
from typing import Any

from probe.order.semantics.contract import (
    Call,
    Contracts,
    Each,
    Frame,
    Meaning,
    Normalises,
    Reduces,
    Same,
    Turns,
    Unknown,
    Windows,
    canonical,
)


def function(word: str, along: int | None = None, **numbers: Any) -> Each:
    """Returns a function of the elements at one place, by any of its names.

    ``along``: as of ``Each``. ``numbers``: arguments that are not arrays, by name.
    """
    return Each(canonical(word), tuple(sorted(numbers.items())), along)


def approximate(word: str) -> Each:
    """Returns a function that the library rounds in a way of its own, where IEEE 754 has one."""
    return replace(function(word), approximate=True)


def several(word: str, count: int) -> Meaning:
    """Returns a function of two arrays taken over ``count`` of them: the sum, the largest."""
    if count != 2:
        return Same() if count == 1 else Each(f"{word}_of_{count}")
    return function(word)


def clip(low: float | None, high: float | None) -> Each:
    """Returns a Clip between two numbers; None: no bound. ReLU and ReLU6 are two of them."""
    low, high = (None if bound is None or isinf(bound) else bound for bound in (low, high))
    if (low, high) in ((0.0, None), (0.0, 6.0)):
        return function("relu" if high is None else "relu6")
    return Each("clip", (low, high))


def gelu(approximate: bool = False) -> Each:
    """Returns GELU by erf, or its approximation by tanh."""
    return function("gelu_tanh" if approximate else "gelu")


def power(exponent: float) -> Meaning:
    """Returns a power with a number as its exponent."""
    if exponent in (1, 2):
        return Same() if exponent == 1 else function("square")
    if exponent == -1:  # where it goes through a logarithm it isn't rounded correctly
        return approximate("reciprocal")
    return function("power")


def cast(before: str, after: str) -> Meaning:
    """Returns a conversion between dtypes, by NumPy's names."""
    return Same() if before == after else function("cast")


def bitcast(before: str, after: str, whole: bool = True) -> Meaning:
    """Returns the bits of one dtype read as another. ``whole``: of the same size, so that the
    places stay."""
    if not whole:
        return Unknown("bits of a different size")
    return Same() if before == after else function("bits")


def reduced(word: str, axes: Iterable[int]) -> Reduces:
    return Reduces(tuple(axes), word)


def normalised(word: str, axes: Iterable[int]) -> Normalises:
    """Returns what normalises rows that lie along ``axes``: softmax, LayerNorm."""
    return Normalises(tuple(axes), word)


def batch_norm(axes: int, training: bool, along: int | None = 1) -> Meaning:
    """Returns a batch norm of so many ``axes``, whose channels lie ``along`` one, None: the last.
    ``training``: by means and variances of what it reads; else by those among its operands."""
    if not training:
        return function("batch_norm", along)
    channels = axes - 1 if along is None else along
    return normalised("batch_norm", (axis for axis in range(axes) if axis != channels))


# sliding windows


# For each axis the number of zeros before and after it; a negative number cuts elements off.
Padding = tuple[tuple[int, int], ...]


def same_padding(
    ins: Sequence[int],
    outs: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    odd_first: bool = False,
) -> Padding:
    """Returns the padding by which ``ins`` give ``outs``; the odd zero behind, or ``odd_first``."""
    pads = []
    for size, out, k, s, d in zip(ins, outs, kernel, stride, dilation, strict=True):
        total = max(0, (out - 1) * s + (k - 1) * d + 1 - size)
        before = total - total // 2 if odd_first else total // 2
        pads.append((before, total - before))
    return tuple(pads)


def _windows(kind: str, frame: Frame, channels_last: bool, lead: int = 2, **more: Any) -> Windows:
    rank = len(frame.kernel)
    first, channels = (1, rank + 1) if channels_last else (lead, lead - 1)
    return Windows(
        *(tuple(range(first, first + rank)), channels, tuple(frame.kernel), tuple(frame.stride)),
        *(tuple(frame.dilation), tuple(frame.padding), kind),
        **more,
    )


def convolution(
    frame: Frame,
    weights: Sequence[int] = (),
    groups: int = 1,
    channels_last: bool = False,
    reads: Sequence[int] = (0, 1),
) -> Windows:
    """Returns a convolution of a batch, with channels second or last; all but these as of
    ``Windows``. ``weights``: their axes in the order (*kernel, in channels, filters)."""
    kind = "transposed" if frame.transposed else "convolution"
    more: dict[str, Any] = {"groups": groups, "reads": tuple(reads), "weights": tuple(weights)}
    return _windows(kind, frame, channels_last, **more)


def pool(
    kind: str,
    frame: Frame,
    channels_last: bool = False,
    counts_padding: bool = False,
    lead: int = 2,
) -> Windows:
    """Returns a pool, ``max`` or ``average``. ``lead``: axes before the spatial ones where channels
    aren't last: 1 without a batch. Others as of ``Windows``."""
    return _windows(kind, frame, channels_last, lead, reads=(0,), counts_padding=counts_padding)


# sums of products


def matmul(
    ranks: tuple[int, int] = (2, 2),
    turned: tuple[bool, bool] = (False, False),
    reads: tuple[int, int] = (0, 1),
) -> Contracts:
    """Returns a product of matrices, batches of them or vectors, as NumPy's matmul; ``turned``:
    which of them are transposed; ``reads``: as of ``Contracts``."""
    first = "k" if ranks[0] == 1 else "...km" if turned[0] else "...mk"
    second = "k" if ranks[1] == 1 else "...nk" if turned[1] else "...kn"
    out = "..." + "m" * (ranks[0] > 1) + "n" * (ranks[1] > 1)
    return Contracts(f"{first},{second}->{out}", reads)


def gemm(call: Call, product: Contracts, added: int, alpha: float, beta: float) -> Meaning:
    """Returns ``alpha product + beta c``, where c is the operand in the slot ``added``, if there is
    one: of a sum that is scaled nothing is known."""
    plain = not call.has(added) or beta == 0
    if alpha != 1 or not (plain or beta == 1):
        return Unknown("it scales a product")
    return product if plain else replace(product, bias=call.at(added))


def dense(reads: tuple[int, int] = (0, 1), bias: int | None = None) -> Contracts:
    """Returns a dense layer whose weights are (units, inputs)."""
    return Contracts("...k,nk->...n", reads, bias)


def einsum(equation: str) -> Meaning:
    """Returns what an einsum of one or two operands computes. ValueError: none that is known."""
    equation = equation.replace(" ", "")
    ins, arrow, out = equation.partition("->")
    texts = ins.split(",")
    if any(len(set(text.replace(".", ""))) < len(text.replace(".", "")) for text in texts):
        raise ValueError("an operand's own diagonal")
    if len(texts) == 2 and arrow:
        return Contracts(equation)
    if len(texts) == 1 and "." not in ins and sorted(ins) == sorted(out):
        return Turns(tuple(ins.index(letter) for letter in out))
    raise ValueError(equation)


def transpose(axes: Sequence[int]) -> Turns:
    """Returns axes in another order: output axis k is input axis ``axes[k]``."""
    return Turns(tuple(axis % len(axes) for axis in axes))
