"""Sums of products, reductions over axes, sliding windows, and what normalises rows: all that the
engine of sums and the tests of places must be told to rebuild them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from probe.order.semantics.contract import Meaning


@dataclass(frozen=True)
class Contracts(Meaning):
    """A sum of products of two inputs, in einsum's words: ``...k,kn->...n``; perhaps a bias behind.

    ``reads``: the two inputs; ``bias``: the number of an input that is added, or None. ``weights``:
    which of ``reads`` holds weights, if one does: 1 in a dense layer.
    """

    equation: str
    reads: tuple[int, int] = (0, 1)
    bias: int | None = None
    word: str = "product"

    @property
    def sums(self) -> bool:
        return True

    def spelled(self, left: tuple[int, ...], right: tuple[int, ...]) -> tuple[tuple[str, str], str]:
        """The letters of both inputs and of the output, with the dots written out as capitals."""
        ins, out = self.equation.split("->")
        texts = ins.split(",")
        ends = [*zip(texts, (left, right), strict=True)]
        dots = [("..." in text) * (len(shape) - len(text) + 3) for text, shape in ends]
        names = "ABCDEFGHIJKLMNOP"[: max(dots)]
        first, second = (
            text.replace("...", names[len(names) - n :])
            for text, n in zip(texts, dots, strict=True)
        )
        return (first, second), out.replace("...", names)


@dataclass(frozen=True)
class Reduces(Meaning):
    """A sum, a mean, a norm or a maximum over ``axes``."""

    axes: tuple[int, ...]
    word: str = ""

    @property
    def sums(self) -> bool:
        return self.word in ("sum", "mean")


@dataclass(frozen=True)
class Normalises(Meaning):
    """Every output reads all elements along ``axes``, and is at the place of one: softmax,
    LayerNorm."""

    axes: tuple[int, ...]
    word: str = ""


class Frame(NamedTuple):
    """Sizes of a sliding window, one number a spatial axis; as in ``Windows``."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    transposed: bool = False


def divisors(frame: Frame, sizes: Sequence[int], outputs: Sequence[int]) -> np.ndarray:
    """Returns how many places of the padded input each window of an average covers."""
    covered = np.ones(tuple(outputs), np.uint64)
    for k, (size, count) in enumerate(zip(sizes, outputs, strict=True)):
        starts = np.arange(count) * frame.stride[k]
        ends = np.minimum(starts + frame.kernel[k], size + sum(frame.padding[k]))
        line = (ends - starts).astype(np.uint64)
        covered *= line.reshape([-1 if n == k else 1 for n in range(len(outputs))])
    return covered


@dataclass(frozen=True)
class Windows(Meaning):
    """A convolution or a pool: each output reads a window of its input, channel by channel or all.

    ``spatial``: the input's spatial axes; ``channels``: its channel axis. ``kernel``, ``stride``,
    ``dilation``: one a spatial axis; ``padding``: (before, after) a spatial axis. ``kind``:
    ``convolution``, ``transposed``, ``max``, ``average`` or ``sum``. ``groups``: of a convolution.
    ``reads``: input, weights and bias by number; a pool has its input alone. ``weights``: the axes
    of the weights in the order (*kernel, in channels, filters). ``counts_padding``: an average
    divides by the whole window at the edges too.
    ``flipped``: of a transposed convolution, the weights' last tap comes first, as in JAX.
    """

    spatial: tuple[int, ...]
    channels: int
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    kind: str = "convolution"
    groups: int = 1
    reads: tuple[int, ...] = (0, 1)
    weights: tuple[int, ...] = ()
    counts_padding: bool = False
    word: str = ""
    flipped: bool = False

    @property
    def sums(self) -> bool:
        return self.kind != "max"

    @property
    def pool(self) -> bool:
        """Returns whether each channel is computed from its own alone, without weights."""
        return self.kind in ("max", "average", "sum")

    @property
    def frame(self) -> Frame:
        """Returns where its windows lie."""
        turned = self.kind == "transposed"
        return Frame(self.kernel, self.stride, self.dilation, self.padding, turned)


@dataclass(frozen=True)
class Convolution(Meaning):
    """``conv_general_dilated`` in its full generality, by way of :class:`Windows`.

    ``turned``: axes that put the input into the output's order. ``holes``: elements of the input
    are so far apart, an axis each (``lhs_dilation``). ``batches``: ``batch_group_count``.
    """

    windows: Windows
    turned: tuple[int, ...]
    holes: tuple[int, ...]
    batches: int = 1
    word: str = "convolution"

    @property
    def sums(self) -> bool:
        return True
