"""Integers of 8 bits whose products saturate: a sum of two of them that leaves 16 bits.

x86 processors without VNNI multiply unsigned by signed bytes with ``vpmaddubsw``, which adds two
neighbouring products and cuts the sum off at -32,768 and 32,767 (Intel's manual of instructions;
onnxruntime#16105). All that is added behind is exact, so that both sides can be replayed: the sum
of 32 bits on one, with each pair cut off on the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from probe.case.errors import InputError
from probe.diff.alone import Alone, Cause, Sides, evenly
from probe.diff.difference import NAMES
from probe.diff.sums import sum_of
from probe.order import semantics as s
from probe.order import window
from probe.order.semantics import Meaning

LEAST, MOST = -(1 << 15), (1 << 15) - 1

# Products that are replayed for the outputs that differ.
PRODUCTS = 1 << 24

BYTES = (np.dtype("int8"), np.dtype("uint8"))


@dataclass
class Integers:
    """Some outputs of an operation that adds products of bytes.

    ``x``, ``w``: factors of each output, (outputs, products), int64;
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
        both, output = [arrays[n] for n in factors], side.gives[side.output]
        words = side.operation.attributes
        found = _factors(both, output.shape, chosen, words, int(zeros[0][0]))
        if found is None:
            return None
        x, w, filters = found

        def of_filter(each: np.ndarray) -> np.ndarray:
            return each[filters] if each.size > 1 else each

        bias = of_filter(biases[0]) if biases else np.zeros(1, np.int64)
        return cls(
            x,
            w,
            (both[0].dtype == np.int8, both[1].dtype == np.int8),
            (zeros[0][:1], of_filter(zeros[1])),
            [of_filter(each) for each in scales],
            zeros[2][:1],
            bias,
            output.dtype,
        )

    def exact(self) -> np.ndarray | None:
        x, w = (a - zero[:, None] for a, zero in zip((self.x, self.w), self.zeros, strict=True))
        return self._rescaled((x * w).sum(axis=1))

    def saturating(self) -> np.ndarray | None:
        """What they give where pairs of neighbours are cut off, channel by channel through all
        places of the kernel, as ONNX Runtime and FBGEMM lay them."""
        # the instruction takes one factor unsigned and one signed: the other kind is shifted there
        x, w = self.x + 128 * self.signed[0], self.w - 128 * (not self.signed[1])
        zeros = self.zeros[0] + 128 * self.signed[0], self.zeros[1] - 128 * (not self.signed[1])
        count = x.shape[1]
        rest = -zeros[0] * w.sum(axis=1) - zeros[1] * x.sum(axis=1) + zeros[0] * zeros[1] * count
        even = np.pad(x * w, ((0, 0), (0, count % 2)))
        pairs = even.reshape(len(even), -1, 2).sum(axis=2)
        return self._rescaled(np.clip(pairs, LEAST, MOST).sum(axis=1) + rest)

    def _rescaled(self, sums: np.ndarray) -> np.ndarray | None:
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


def _factors(
    arrays: Sequence[np.ndarray], shape: tuple[int, ...], flat: np.ndarray, words: Any, zero: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Factors of outputs, x and w, as (outputs, products), and the filter of each; None: the
    operation is no matrix product and no convolution, whose weights are (filters, channels,
    *kernel). ``zero``: what padding holds."""
    x, w = arrays
    filters = len(shape) - 1
    try:
        if w.ndim > 2 and w.ndim == len(shape):
            last, rank = bool(words.get("channels_last")), w.ndim - 2
            filters = filters if last else 1
            ins, outs = ((a[1:-1] if last else a[2:]) for a in (x.shape, shape))
            strides, steps = (tuple(words.get(n) or [1] * rank) for n in ("strides", "dilations"))
            pads, auto = list(words.get("pads") or [0] * 2 * rank), str(words.get("auto_pad", ""))
            padding = tuple(zip(pads[:rank], pads[rank:], strict=True))
            if auto.startswith("SAME"):
                odd_first = auto != "SAME_UPPER"
                padding = s.same_padding(ins, outs, w.shape[2:], strides, steps, odd_first)
            frame, axes = s.Frame(w.shape[2:], strides, steps, padding), (*range(2, w.ndim), 1, 0)
            meaning: Meaning = s.convolution(frame, axes, int(words.get("group", 1)), last)
        else:
            turned = bool(words.get("transA")), bool(words.get("transB"))
            meaning = s.matmul((x.ndim, w.ndim), turned)
        summed = sum_of(meaning, [x.shape, w.shape], shape, ["float32"] * 3)
        positions, columns = summed.places(flat).T
        # the engine may take either factor for the weights
        parts = summed.x, summed.w
        # in 16 bits: windows of a large picture overlap many times
        values = [part.taken(arrays[part.number].astype(np.int16)) for part in parts if part]
        met = window.columns(summed, values[0] - zero)
    except (InputError, ValueError, IndexError):
        return None
    group = columns // (summed.filters // summed.groups)
    each = zip(group, positions, strict=True)
    rows = np.stack([met[g][:, n] for g, n in each]).astype(np.int64) + zero
    weights = values[1].reshape(-1, summed.filters)[:, columns].T.astype(np.int64)
    both = (rows, weights) if summed.x.number == 0 else (weights, rows)
    return (*both, np.unravel_index(flat, shape)[filters])


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
