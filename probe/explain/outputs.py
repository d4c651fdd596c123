"""The plain answer: the outputs of two runs, as their user runs them, compared by index; and what a
difference does: whether a decision crosses, and how far an output is from the truth.

It comes before every explanation, and no explanation can overrule it: ``equal`` is said only where
all of these bits are. A run of some samples alone is laid beside their rows of the batch.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import comb, prod
from typing import Any

import numpy as np

from probe.case import floats, ulp
from probe.case.floats import rounded_text
from probe.sweep.printing import counted, ranges

SHOWN = 8
"""Samples that a line names; JSON has all."""


@dataclass(frozen=True, eq=False)
class OutputDifference:
    """One returned array of two runs.

    ``shape``, ``other_shape``: the left's and the right's; ``elements``: how many were compared,
    ``apart`` (bool, over these) where bits differ, whatever the reason; ``nan``: numbers against
    NaN; ``signed_zero``: zeros of different signs, which count as equal. ``max_ulp``: None where
    the largest distance has no number; ``max_abs``: of finite values, in the output's own units.
    ``samples``: indices along the first axis at which something differs. ``window``: elements that
    read what the other side lacks, found by running, ``window_apart``: those of them that differ;
    ``not_compared``: elements that could not be laid beside each other, ``why`` says.
    """

    shape: tuple[int, ...]
    other_shape: tuple[int, ...]
    elements: int
    apart: np.ndarray
    nan: int = 0
    signed_zero: int = 0
    max_ulp: int | None = 0
    max_abs: float | None = 0.0
    samples: tuple[int, ...] = ()
    window: int = 0
    window_apart: int = 0
    not_compared: int = 0
    why: str = ""

    @property
    def differing(self) -> int:
        return int(self.apart.sum())

    def to_json(self) -> dict[str, Any]:
        """The fixed words of an entry of ``outputs``."""
        names = (
            "elements",
            "differing",
            "nan",
            "signed_zero",
            "max_ulp",
            "max_abs",
            "not_compared",
        )
        entry = {"shape": list(self.shape)} | {name: getattr(self, name) for name in names}
        return entry | {"samples": list(self.samples)}


def output_difference(
    left: np.ndarray, right: np.ndarray, dtypes: tuple[str, str], start: Sequence[int] = ()
) -> OutputDifference:
    """Compares two outputs by index: container arrays of formats ``dtypes``.

    Where their sizes differ, what both have is compared: along each axis the first entries, or
    those of the right from ``start`` on; what else the smaller one has isn't.
    """
    shapes = left.shape, right.shape
    size = max(left.size, right.size)
    nothing = OutputDifference(*shapes, 0, np.zeros(0, bool))
    if dtypes[0] != dtypes[1]:
        why = f"it is {dtypes[0]} on the left and {dtypes[1]} on the right"
        return replace(nothing, not_compared=size, why=why)
    if left.ndim != right.ndim or (0 in left.shape) != (0 in right.shape):
        why = f"its shape is {list(left.shape)} on the left and {list(right.shape)} on the right"
        return replace(nothing, not_compared=size, why=why)
    right = right[tuple(slice(begin, None) for begin in start)]
    common = tuple(slice(min(pair)) for pair in zip(left.shape, right.shape, strict=True))
    both = np.ascontiguousarray(left[common]), np.ascontiguousarray(right[common])
    both = both[0].reshape(left[common].shape), both[1].reshape(left[common].shape)  # no row of one
    apart = np.zeros(both[0].shape, bool)
    counts: dict[str, Any] = {"not_compared": min(map(prod, shapes)) - apart.size}
    dtype = dtypes[0]
    if dtype in floats.FORMATS:
        differences = ulp.differences(*both, dtype)
        apart.reshape(-1)[differences.index] = True
        counts["nan"] = int((differences.ulps == ulp.NAN).sum())
        counts["max_ulp"] = None if counts["nan"] else ulp.largest_ulp(differences)
        counts["signed_zero"] = ulp.signed_zeros(*both, dtype)
        values = [floats.widen(side.reshape(-1)[differences.index], dtype) for side in both]
    else:
        apart = np.asarray(both[0] != both[1])
        if both[0].dtype.kind in "fc":  # a NaN equals itself
            apart &= ~((both[0] != both[0]) & (both[1] != both[1]))
        counts["max_ulp"] = None if apart.any() else 0
        numbers = both[0].dtype.kind in "biufc" and dtype != "string"  # of texts these are digests
        kind = complex if both[0].dtype.kind == "c" else float
        values = [side[apart].astype(kind) if numbers else np.zeros(0) for side in both]
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.abs(values[0] - values[1])
    finite = distance[np.isfinite(distance)]
    counts["max_abs"] = float(finite.max()) if len(finite) else None if apart.any() else 0.0
    if apart.ndim:
        rows = np.flatnonzero(apart.any(axis=tuple(range(1, apart.ndim)))) + sum(start[:1])
        counts["samples"] = tuple(rows.tolist())
    return replace(nothing, elements=apart.size, apart=apart, **counts)


def paired_difference(
    left: np.ndarray, right: np.ndarray, dtype: str, sizes: tuple[int, int]
) -> OutputDifference:
    """Compares elements that stand at different indices: ``left`` with ``right``, one by one.
    ``sizes``: of both outputs whole; what of the smaller one has no partner is not compared."""
    difference = output_difference(left.reshape(-1), right.reshape(-1), (dtype, dtype))
    return replace(difference, samples=(), not_compared=min(sizes) - difference.elements)


def with_window(found: OutputDifference, reads_more: np.ndarray) -> OutputDifference:
    """Adds which elements read what the other side lacks: ``reads_more``, bool as ``apart``."""
    both = int((reads_more & found.apart).sum())
    return replace(found, window=int(reads_more.sum()), window_apart=both)


def joined(parts: Sequence[OutputDifference]) -> OutputDifference:
    """One output of several pieces of a batch, in their order."""
    first = parts[0]
    if len(parts) == 1 or any(part.why for part in parts):
        return next((part for part in parts if part.why), first)
    distances = [part.max_ulp for part in parts]
    absolute = [part.max_abs for part in parts if part.max_abs is not None]
    sums = ("elements", "nan", "signed_zero", "window", "window_apart", "not_compared")
    merged: dict[str, Any] = {name: sum(getattr(part, name) for part in parts) for name in sums}
    merged["max_ulp"] = None if None in distances else max(filter(None, distances), default=0)
    merged["max_abs"] = max(absolute, default=None)
    merged["samples"] = tuple(row for part in parts for row in part.samples)
    flat = np.concatenate([part.apart.reshape(-1) for part in parts])
    return replace(first, apart=flat, **merged)


def counts_text(outputs: Iterable[OutputDifference], batch: bool = False) -> str:
    """How many of how many differ, and how far: the words that open an answer.

    ``batch``: the first axis are samples, of which those that differ are named.
    """
    compared = list(outputs)
    elements, differing = (
        sum(getattr(o, name) for o in compared) for name in ("elements", "differing")
    )
    if not elements:
        return next((o.why for o in compared if o.why), "the outputs have no elements")
    parts = [f"{differing:,} of {counted(elements, 'output')} differ{'s' * (differing == 1)}"]
    if nan := sum(o.nan for o in compared):
        parts.append(f"{counted(nan, 'number')} against NaN")
    ulps = [o.max_ulp for o in compared if o.differing and o.max_ulp is not None]
    if ulps and not nan:
        parts.append(f"up to {max(ulps):,} ulp")
    absolute = [o.max_abs for o in compared if o.differing and o.max_abs]
    if absolute:
        parts.append(f"by up to {rounded_text(max(absolute))}")
    text = ", ".join(parts)
    if window := sum(o.window for o in compared):
        text += f"; {window:,} read what the other side lacks"
        text += f" ({sum(o.window_apart for o in compared):,} of them differ)" * (differing > 0)
    rows = sorted({row for o in compared for row in o.samples}) if batch else []
    if rows:
        listed = ranges(rows[:SHOWN]) + ", ..." * (len(rows) > SHOWN)
        text += f"; in {counted(len(rows), 'sample')} ({listed})"
    if zeros := sum(o.signed_zero for o in compared):
        text += f" ({zeros:,} are zeros of different signs, which count as equal)"
    return text


def verdict_of(outputs: Sequence[OutputDifference]) -> str:
    """``differs``, ``equal`` or ``unknown``: ``equal`` only where nothing is left over."""
    if any(output.differing for output in outputs):
        return "differs"
    # an output without elements has nothing to compare; one of which a part was left out has
    sized = [o for o in outputs if prod(o.shape) or prod(o.other_shape)]
    if not outputs or any(o.not_compared or not o.elements for o in sized):
        return "unknown"
    return "equal"


@dataclass
class Samples:
    """Every sample of a batch, computed in pieces of ``size``, against the batch of ``count``.

    ``starts``: the first sample of each piece that was run; ``pieces``: its outputs; ``whole``: the
    batch's: container arrays, all of them from runs unwatched. ``reads``: of the batch's outputs,
    which elements read samples that their piece has not, bool; empty: it was not asked.
    """

    size: int
    count: int
    starts: list[int]
    pieces: list[list[np.ndarray]]
    whole: list[np.ndarray]
    reads: list[np.ndarray] = field(default_factory=list)

    @property
    def compared(self) -> int:
        return len({s for start in self.starts for s in range(start, start + self.size)})

    def sample_axes(self, output: int) -> list[int]:
        """Along which axes of an output its samples lie: two, where each is compared with each, and
        none of an output without samples, as of a mean of them all."""
        left, right = self.pieces[0][output], self.whole[output]
        if left.ndim != right.ndim:
            return []
        axes = [axis for axis in range(left.ndim) if left.shape[axis] != right.shape[axis]]
        alike = all(left.shape[a] * self.count == right.shape[a] * self.size for a in axes)
        return axes if alike else []

    def index_of(self, number: int, output: int) -> tuple[slice, ...]:
        """Where a piece's samples are in the batch's output."""
        index = [slice(None)] * self.whole[output].ndim
        for axis in self.sample_axes(output):
            # a sample may have several entries, such as its beams
            entries = self.pieces[0][output].shape[axis] // self.size
            first = self.starts[number] * entries
            index[axis] = slice(first, first + self.size * entries)
        return tuple(index)

    def beside(self, number: int, output: int) -> tuple[np.ndarray, np.ndarray]:
        """One piece's output, and the batch's at the same samples."""
        return self.pieces[number][output], self.whole[output][self.index_of(number, output)]

    def others(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Which samples to change, and which mustn't change with them if they read their own piece
        alone: bool (samples,), a pair for each run of the batch.

        A piece is changed in the runs of its code, and no code has all runs of another: for each
        two pieces there is a run that changes the one and leaves the other (Sperner). Of 8 pieces
        these are 5 runs, of 64 they are 8.
        """
        count = len(self.starts)
        piece = np.full(self.count, -1)
        for number, start in enumerate(self.starts):
            rows = piece[start : start + self.size]
            rows[rows < 0] = number
        runs = next(n for n in itertools.count(1) if comb(n, n // 2) >= count)
        codes = list(itertools.islice(itertools.combinations(range(runs), runs // 2), count))
        last = piece == count - 1
        overlaps = 0 < last.sum() < self.size  # it has samples of the piece before as well
        for run in range(runs if count > 1 else 0):
            changed = np.array([number >= 0 and run in codes[number] for number in piece])
            yield changed, ~changed & ~(last & overlaps)
        if overlaps:
            yield np.arange(self.count) < self.starts[-1], last

    def first_apart(self) -> int | None:
        """The first sample of the first piece that has different bits; None if none has."""
        for number, start in enumerate(self.starts):
            for output in range(min(len(self.whole), len(self.pieces[number]))):
                left, right = self.beside(number, output)
                if left.shape != right.shape or left.tobytes() != right.tobytes():
                    return start
        return None

    def differences(self, dtypes: Sequence[tuple[str, str]]) -> list[OutputDifference]:
        """Compares all of them by index; ``dtypes``: of each output, of both runs."""
        found = []
        for output, both in enumerate(dtypes):
            parts, done = [], 0
            axes = self.sample_axes(output)
            for number, start in enumerate(self.starts):
                left, right = self.beside(number, output)
                reads = (
                    self.reads[output] if self.reads else np.zeros(self.whole[output].shape, bool)
                )
                reads = reads[self.index_of(number, output)]
                # a last piece may begin with samples of the one before
                before = max(done - start, 0)
                entries = left.shape[axes[0]] // self.size if axes else 1
                if axes:
                    sides = (np.moveaxis(array, axes[0], 0) for array in (left, right, reads))
                    left, right, reads = (array[before * entries :] for array in sides)
                part = output_difference(left, right, both)
                if part.apart.shape == reads.shape:
                    part = with_window(part, reads)
                rows = {start + before + row // entries for row in part.samples}
                if not axes:  # one of no sample: a piece that differs, as the one with the largest
                    parts = [replace(part, samples=())]  # number may give the batch's maximum
                    if part.differing:
                        break
                    continue
                parts.append(replace(part, samples=tuple(sorted(rows))))
                done = start + self.size
            found.append(replace(joined(parts), other_shape=self.whole[output].shape))
        return found


def starts_of_pieces(count: int, size: int) -> list[int]:
    """The first samples of pieces of ``size`` that cover a batch; the last ones may overlap."""
    starts = list(range(0, count - size + 1, size))
    return starts + [count - size] * (starts[-1] + size < count)


TOP = 5


# Decisions in words.
NAMED = {"argmax": "the argmax", "top-5": "the set of the five largest", "threshold": "the sign"}


@dataclass(frozen=True)
class Decision:
    """One kind of decision over some outputs.

    ``taken``: how many were; ``crossed``: that the two runs take differently. ``margin``: how near
    the nearest of the full run's is to being taken differently, in eps times the largest output;
    None where infinities and NaNs leave no distance.
    """

    decision: str
    taken: int
    crossed: int
    margin: float | None


def decisions(output: np.ndarray, fixed: np.ndarray, dtype: str) -> Iterator[Decision]:
    """Every kind of decision over outputs (..., channels) of two runs.

    ``argmax`` and ``top-5`` of the channels of a position, where there are enough, and
    ``threshold``: whether each output is above zero.
    """
    left, right = (floats.widen(outputs, dtype) for outputs in (output, fixed))
    largest = np.abs(right).max(initial=0.0, where=np.isfinite(right))
    unit = floats.eps(dtype) * max(largest, 1e-300)

    def nearest(distances: np.ndarray) -> float | None:
        finite = distances[np.isfinite(distances)]
        return float(finite.min() / unit) if finite.size else None

    for count, name in ((1, "argmax"), (TOP, f"top-{TOP}")):
        if left.shape[-1] <= count:
            continue
        # which channels are the largest, as a set
        both = np.argsort(-np.stack([left, right]), axis=-1, kind="stable")[..., :count]
        first, second = np.sort(both, axis=-1)
        crossed = int((first != second).any(axis=-1).sum())
        ranked = -np.sort(-right, axis=-1)
        with np.errstate(invalid="ignore"):  # two infinities of one sign
            margin = nearest(ranked[..., count - 1] - ranked[..., count])
        yield Decision(name, int(np.prod(right.shape[:-1])), crossed, margin)
    crossed = int(((left > 0) != (right > 0)).sum())
    yield Decision("threshold", right.size, crossed, nearest(np.abs(right)))
