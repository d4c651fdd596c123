"""Integers of 8 bits whose products saturate: a sum of two of them that leaves 16 bits.

x86 processors without VNNI multiply unsigned by signed bytes with ``vpmaddubsw``, which adds two
neighbouring products and cuts the sum off at -32,768 and 32,767 (Intel's manual of instructions;
onnxruntime#16105). All that is added behind is exact, so that both sides can be replayed: the sum
of 32 bits on one, with each pair cut off on the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from probe.diff.alone import Alone, Cause, Sides, evenly
from probe.diff.difference import NAMES
from probe.diff.sums import sum_of
from probe.order.semantics import operations as o
from probe.order.window import Geometry

LEAST, MOST = -(1 << 15), (1 << 15) - 1

# Products that are replayed for the outputs that differ.
PRODUCTS = 1 << 24

BYTES = (np.dtype("int8"), np.dtype("uint8"))


@dataclass
class Integers:
    """Some outputs of an operation that adds products of bytes.

    ``x``, ``w``: factors of each output, (outputs, places of the kernel, channels), int64;
    ``signed``: of either, whether the bytes are; ``zeros``: what stands for zero in either.
    ``scales``: of x and w, and of the output where that has bytes again; ``zero``: its own;
    ``bias``: of each output.
    """

    x: np.ndarray
    w: np.ndarray
    signed: tuple[bool, bool]
    zeros: tuple[np.ndarray, np.ndarray]
    scales: Sequence[np.ndarray]
    zero: np.ndarray
    bias: np.ndarray
    dtype: np.dtype

    @classmethod
    def of(cls, side: Alone, chosen: np.ndarray) -> Integers | None:
        """Reads an operation's operands by their formats: the first two arrays of bytes are the
        factors, numbers beside them in the order of these and of the output are scales and zeros.
        None: it has no two such factors. ``chosen``: outputs, flat."""
        arrays = side.reads
        factors = [n for n, a in enumerate(arrays) if a.dtype in BYTES and a.ndim > 1][:2]
        if len(factors) < 2:
            return None
        others = [a for n, a in enumerate(arrays) if n not in factors]
        zeros = [a.reshape(-1).astype(np.int64) for a in others if a.dtype in BYTES]
        scales = [a.reshape(-1) for a in others if a.dtype == np.float32]
        biases = [a.reshape(-1).astype(np.int64) for a in others if a.dtype == np.int32]
        zeros += [np.zeros(1, np.int64)] * (3 - len(zeros))
        x, w = (arrays[n] for n in factors)
        output = side.gives[side.output]
        words = side.operation.attributes
        place = np.unravel_index(chosen, output.shape)
        found = (_window_factors if w.ndim > 2 and w.ndim == output.ndim else _row_factors)(
            x, w, output.shape, place, words, int(zeros[0][0])
        )
        if found is None:
            return None
        taken, weights, filters = found

        def of_filter(each: np.ndarray) -> np.ndarray:
            return each[filters] if each.size > 1 else each

        bias = of_filter(biases[0]) if biases else np.zeros(1, np.int64)
        return cls(
            taken.astype(np.int64),
            weights.astype(np.int64),
            (x.dtype == np.int8, w.dtype == np.int8),
            (zeros[0][:1], of_filter(zeros[1])),
            [of_filter(each) for each in scales],
            zeros[2][:1],
            bias,
            output.dtype,
        )

    def exact(self) -> np.ndarray | None:
        """What the sums of 32 bits give."""
        zeros = (zero[:, None, None] for zero in self.zeros)
        x, w = (a - zero for a, zero in zip((self.x, self.w), zeros, strict=True))
        return self._rescaled((x * w).sum(axis=(1, 2)))

    def saturating(self) -> np.ndarray | None:
        """What they give where pairs of neighbours are cut off, channel by channel through all
        places of the kernel, as ONNX Runtime and FBGEMM lay them."""
        # the instruction takes one factor unsigned and one signed: the other kind is shifted there
        x, w = self.x + 128 * self.signed[0], self.w - 128 * (not self.signed[1])
        zeros = self.zeros[0] + 128 * self.signed[0], self.zeros[1] - 128 * (not self.signed[1])
        products = (x * w).reshape(len(x), -1)
        count = prod(x.shape[1:])
        rest = -zeros[0] * w.sum(axis=(1, 2)) - zeros[1] * x.sum(axis=(1, 2))
        rest = rest + zeros[0] * zeros[1] * count
        even = np.pad(products, ((0, 0), (0, count % 2)))
        pairs = even.reshape(len(even), -1, 2).sum(axis=2)
        return self._rescaled(np.clip(pairs, LEAST, MOST).sum(axis=1) + rest)

    def _rescaled(self, sums: np.ndarray) -> np.ndarray | None:
        """What becomes of the sums; None: it isn't known."""
        sums = sums + self.bias
        if self.dtype == np.int32 and not self.scales:
            return sums.astype(np.int32)
        if self.dtype == np.float32 and len(self.scales) == 2:
            return sums.astype(np.float32) * (self.scales[0] * self.scales[1])
        if self.dtype not in BYTES or len(self.scales) != 3:
            return None
        factor = self.scales[0] * self.scales[1] / self.scales[2]
        limits = np.iinfo(self.dtype)
        rounded = np.rint(sums.astype(np.float32) * factor) + self.zero
        return np.clip(rounded, limits.min, limits.max).astype(self.dtype)


# Factors of each output, x and w, as (outputs, places of the kernel, channels), and its filter.
Factors = tuple[np.ndarray, np.ndarray, np.ndarray]


def _row_factors(
    x: np.ndarray,
    w: np.ndarray,
    shape: tuple[int, ...],
    place: Sequence[np.ndarray],
    words: Mapping[str, Any],
    _: int,
) -> Factors | None:
    """Of a matrix product: rows of x with columns of w."""
    x = x.swapaxes(-1, -2) if words.get("transA") else x
    w = w.swapaxes(-1, -2) if words.get("transB") else w
    if x.shape[-1] != w.shape[-2] or len(shape) < 2:
        return None
    try:
        x = np.broadcast_to(x, (*shape[:-2], *x.shape[-2:]))
        w = np.broadcast_to(w, (*shape[:-2], *w.shape[-2:]))
    except ValueError:
        return None
    if (x.shape[-2], w.shape[-1]) != shape[-2:]:
        return None
    *batch, row, column = place
    taken = x[(*batch, row)]
    return taken[:, None], w.swapaxes(-1, -2)[(*batch, column)][:, None], column


def _window_factors(
    x: np.ndarray,
    w: np.ndarray,
    shape: tuple[int, ...],
    place: Sequence[np.ndarray],
    words: Mapping[str, Any],
    zero: int,
) -> Factors | None:
    """Of a convolution, whose weights are (filters, channels, *kernel): windows, padded by zero."""
    last, groups = bool(words.get("channels_last")), int(words.get("group", 1))
    ins, outs = ((a[1:-1] if last else a[2:]) for a in (x.shape, shape))
    kernel, rank = w.shape[2:], w.ndim - 2
    channels, each = w.shape[1], len(w) // max(groups, 1)
    if x.ndim != w.ndim or channels * groups != x.shape[-1 if last else 1] or not each:
        return None
    strides, steps = (tuple(words.get(n) or [1] * rank) for n in ("strides", "dilations"))
    pads, auto = list(words.get("pads") or [0] * 2 * rank), str(words.get("auto_pad", "NOTSET"))
    padding = tuple(zip(pads[:rank], pads[rank:], strict=True))
    if auto.startswith("SAME"):
        padding = o.same_padding(ins, outs, kernel, strides, steps, auto != "SAME_UPPER")
    frame = o.Frame(kernel, strides, steps, padding)
    plain = o.convolution(frame, (*range(2, w.ndim), 1, 0), groups, last)
    summed = sum_of(plain, [x.shape, w.shape], shape, ["float32"] * 3)
    places, filters = summed.places(np.ravel_multi_index(place, shape)).T
    reads = Geometry.of(summed).reads()  # -1 is padding
    rows = summed.x.taken(x.astype(np.int64)).reshape(summed.batch, -1, x.shape[-1 if last else 1])
    entries, at = places // len(reads), reads[places % len(reads)]
    taken = np.where(at[..., None] < 0, zero, rows[entries[:, None], at])
    own = (filters // each * channels)[:, None, None] + np.arange(channels)
    taken = np.take_along_axis(taken, np.broadcast_to(own, (*at.shape, channels)), axis=2)
    weights = np.moveaxis(w.reshape(len(w), channels, -1), 1, -1)[filters]
    return taken, weights, filters


def saturation_cause(sides: Sides, apart: np.ndarray) -> Cause | None:
    """Returns that pairs of products saturate on one side alone; None where NumPy doesn't give the
    bits of both sides so. ``apart``: outputs that differ, among those that must agree."""
    count = max(1, PRODUCTS // max(1, *(array.size for array in sides[0].reads)))
    chosen = evenly(apart, count)
    told = [Integers.of(side, side.index[chosen]) for side in sides]
    if told[0] is None or told[1] is None:
        return None
    given = [side.outputs[chosen] for side in sides]
    for place, (cuts, whole) in enumerate(((told[0], told[1]), (told[1], told[0]))):
        replays = whole.exact(), cuts.saturating()
        if replays[0] is None or replays[1] is None:
            continue
        if np.array_equal(replays[0], given[1 - place]) and np.array_equal(
            replays[1], given[place]
        ):
            why = (
                f"on the {NAMES[place]}, sums of two products of bytes are cut off at 16 bits, as "
                "an instruction of processors without VNNI does; on the "
                f"{NAMES[1 - place]} they are whole: {len(chosen)} of {len(chosen)} examined "
                "outputs replay on both sides"
            )
            return Cause("saturation", why, len(chosen), len(chosen))
    return None
