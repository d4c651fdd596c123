"""What one operation can do by itself to give different bits: which class its difference has.

A function may treat elements by their place: a vector loop and its remainder. Integers of 8 bits
may saturate where two products are added. Sums of products are in :mod:`probe.diff.alone`, and
which of these classes an operation is asked about in :mod:`probe.diff.source`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from probe.case import floats
from probe.case.errors import InputError
from probe.diff.alone import NOT_ALONE, Alone, Sides, equal_bits, evenly
from probe.diff.difference import NAMES
from probe.diff.sums import sum_of
from probe.explain.comparison import Comparison
from probe.explain.enclosure import RoundingVerdict
from probe.order import semantics as s
from probe.order import window
from probe.order.semantics import Meaning


@dataclass
class Cause:
    """Why an operation's outputs differ."""

    kind: str = ""
    """``window``, ``reach``, ``order``, ``rounding``, ``precision``, ``flush`` (of sums, several
    joined by ``+``), ``saturation`` (of integers), ``place``, ``argument``, ``algorithm``,
    ``alignment``, ``generator``, ``nondeterministic``; empty where none of these explains it."""
    why: str = ""
    """A sentence."""
    examined: int = 0
    """Differing outputs that were tried."""
    replayed: int = 0
    """Those of them that came out again on both sides."""
    causes: dict[str, int] = field(default_factory=dict)
    """Examined outputs by class; if not given those replayed, under ``kind``."""
    alone: bool = False
    """The operation alone gave its recorded bits on both sides."""
    comparison: Comparison | None = None
    """Of sums, with both sides' summations."""
    refuted: bool = False
    """What it reads does not agree, or it reads more than was assumed: it is no source."""
    compared: int = 0
    """Elements of the first output that differs which must agree."""
    differing: int = 0
    """Those of them that don't."""
    rounding: RoundingVerdict = field(default_factory=RoundingVerdict)
    """Differing outputs, by whether rounding can be why."""
    in_numpy: bool = True
    """What came out again was replayed in NumPy; else the library itself gave it, which says why
    the sides differ and not that both are right."""

    def __post_init__(self) -> None:
        """Counts what was replayed under its kind."""
        self.causes = self.causes or ({self.kind: self.replayed} if self.kind else {})

    @property
    def explained(self) -> bool:
        """It has a class, and every examined output came out again."""
        return bool(self.kind) and self.replayed == self.examined

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and texts; the comparison's summations as ``probe explain`` has them."""
        entry: dict[str, Any] = {"class": self.kind or None, "why": self.why}
        names = ("compared", "differing", "examined", "replayed", "causes", "alone")
        entry |= {name: getattr(self, name) for name in names}
        entry["rounding"] = self.rounding.to_json()
        if (sums := self.comparison) is not None:
            entry |= {f"{name}_orders": sums.orders(getattr(sums, name)) for name in NAMES}
        return entry


# Functions by place
#
# The operation itself is run, at its own shapes, with the same number everywhere. Where places then
# differ in their bits, they are computed by different code, and each differing output has to come
# out again on both sides at its own place. That some number has such a border is no proof: two
# formulas may both have one. The place is the cause only if each examined output comes out with the
# opposite side's bits too, from the same number at another place, perhaps of a longer call. Where
# one doesn't, the sides compute by different formulas.
#
# Random numbers show the border between such places by luck alone: a part of all numbers is rounded
# differently on either side of it. So telling numbers are looked for first (``telling_numbers``).

# Differing outputs that are examined, of small arrays and of large ones: a call a side each.
MOST_EXAMINED, LEAST_EXAMINED = 128, 8

# Elements that these calls may compute together.
CALLED_ELEMENTS = 1 << 27

# Further elements along the last axis, one by one, among which a remainder is looked for.
LONGEST_REMAINDER = 33

# How many random numbers are searched for telling ones, and their seed.
SEARCHED, SEARCHED_SEED = 2048, 31_000

# How many numbers every place of a function gets: random ones, and telling ones.
RANDOM_COUNT, TELLING_COUNT = 8, 16


@dataclass
class PlacedFunction:
    """An operation at its own shapes, called with the same number at all places."""

    alone: Alone
    fixed: Sequence[int] = ()
    """Which of its operands keep their numbers, such as weights."""
    along: int | None = None
    """The axis along which operands with one axis lie, the first operand aside."""
    why: str = field(default="", init=False)
    """Why its outputs can't be examined one by one; empty if they can."""
    by_place: bool = field(default=False, init=False)
    """Some call so far had different bits at different places."""

    def __post_init__(self) -> None:
        """Lays the operands at the places of the outputs."""
        self.reads, self.dtypes, self.index = self.alone.reads, self.alone.dtypes, self.alone.index
        self.dtype = self.dtypes[-1]
        self.recorded = np.ascontiguousarray(self.alone.gives[self.alone.output])
        self.shape, rank = self.recorded.shape, self.recorded.ndim
        # each output is looked at twice in a row: does it come out again, and which places give
        # the opposite side's bits
        self.latest: tuple[bytes, np.ndarray | None] = b"", None
        self.operands: list[np.ndarray] = []
        for array in self.reads:
            if self.along is not None and array.ndim == 1 and self.operands:
                array = array.reshape(-1, *(1,) * (rank - self.along % rank - 1))
            try:
                self.operands.append(np.broadcast_to(array, self.shape))
            except ValueError:
                self.why = "its inputs are not at the positions of its outputs"

    def filled(self, number: float | np.ndarray) -> np.ndarray:
        """The output with one number at every place, or one row along the last axis."""
        operands = list(self.reads)
        for n in set(range(len(operands))).difference(self.fixed):
            rounded = floats.round_to(np.asarray(number), self.dtypes[n])
            operands[n] = np.broadcast_to(rounded, operands[n].shape).copy()
        return self.alone.rerun_output(operands)

    def rotated(self, pool: np.ndarray, shift: int) -> tuple[np.ndarray, np.ndarray]:
        """Runs it with the numbers of a pool one after the other at its places, from number
        ``shift`` on, and over again behind the last. Gives for each place of the output which
        number stood there (its index in the pool), and the result (float64), both flat."""
        size, operands = self.recorded.size, []
        index = (np.arange(size) + shift) % len(pool)
        for array, dtype in zip(self.reads, self.dtypes, strict=False):
            chosen = index if array.size == size else np.arange(array.size) % len(pool)
            operands.append(floats.round_to(pool[chosen], dtype).reshape(array.shape))
        return index, floats.widen(self.alone.rerun_output(operands), self.dtype).reshape(-1)

    def bits(self, output: np.ndarray) -> np.ndarray:
        """Bit patterns of floating-point numbers; other numbers as they are."""
        plain = np.ascontiguousarray(output)
        return floats.to_bits(plain, self.dtype) if self.dtype in floats.FORMATS else plain

    def recorded_bits(self, output: int) -> bytes:
        return self.bits(self.recorded).reshape(-1)[self.index[output]].tobytes()

    def repeats(self, place: int) -> bool | None:
        """Whether an output comes out again at its place; None where its call fails."""
        bits, recorded = self.everywhere(place), self.recorded.reshape(-1)[place : place + 1]
        if bits is None:
            return None
        return equal_bits(recorded, bits[place : place + 1].view(recorded.dtype), self.dtype)

    def everywhere(self, place: int) -> np.ndarray | None:
        """The bits of all outputs where each place has the operands of one; None where its call
        fails. The latest are kept."""
        numbers = self._numbers(place)
        key = b"".join(row.tobytes() for row in numbers)
        if key != self.latest[0]:
            both = zip(self.reads, numbers, strict=True)
            output = self._called([np.full(a.shape, value, a.dtype) for a, value in both])
            bits = None
            if output is not None and output.shape == self.shape:
                bits = self.bits(output).reshape(-1)
                self.by_place |= bool((bits != bits[:1]).any())
            self.latest = key, bits
        return self.latest[1]

    def longer(self, place: int, count: int) -> set[bytes] | None:
        """What the operands of one output give at all places of a call that is longer by ``count``;
        None where it has one size, or its call fails."""
        width = self.shape[-1] if self.shape else 0
        if not width:
            return None
        operands = []
        for array, value in zip(self.reads, self._numbers(place), strict=True):
            grows = array.ndim > 0 and array.shape[-1] == width
            shape = (*array.shape[:-1], width + count) if grows else array.shape
            operands.append(np.full(shape, value, array.dtype))
        output = self._called(operands)
        if output is None or output.size <= self.recorded.size:
            return None
        return {bits.tobytes() for bits in np.unique(self.bits(output))}

    def _numbers(self, place: int) -> list[np.ndarray]:
        at = np.unravel_index(place, self.shape)
        return [np.asarray(array[at]) for array in self.operands]

    def _called(self, operands: list[np.ndarray]) -> np.ndarray | None:
        try:
            return self.alone.rerun_output(operands)
        except NOT_ALONE:  # a library says no in many ways
            return None


def telling_numbers(calls: Iterable[tuple[np.ndarray, np.ndarray]], count: int) -> np.ndarray:
    """Which of ``count`` numbers gave different finite results at some places: bool.

    ``calls``: as ``PlacedFunction.rotated`` gives it, of any functions and shifts.
    """
    least, most = np.full(count, np.inf), np.full(count, -np.inf)
    for index, results in calls:
        with np.errstate(invalid="ignore"):  # of numbers that it has no result for
            np.minimum.at(least, index, results)
            np.maximum.at(most, index, results)
    return np.asarray((least != most) & np.isfinite(least) & np.isfinite(most))


def function_cause(sides: Sides, differing: np.ndarray, along: int | None) -> Cause:
    """Why a function of each element differs. ``differing``: indices among the compared outputs.

    ``along``: the axis along which operands with one axis lie, the first aside; None: the last.
    """
    functions = [PlacedFunction(side, along=along) for side in sides]
    if why := functions[0].why or functions[1].why:
        return Cause(why=why)
    # evenly among all: the first ones may all lie in one vector
    size = max(function.recorded.size for function in functions)
    most = min(max(CALLED_ELEMENTS // max(size, 1), LEAST_EXAMINED), MOST_EXAMINED)
    examined, replayed, unexplained = evenly(differing, most).tolist(), 0, list[int]()
    for output in examined:
        repeats = [function.repeats(int(function.index[output])) for function in functions]
        if None in repeats:
            return Cause(why="it can't be run on other operands of its shape")
        replayed += all(repeats)
        if not any(
            _gives_elsewhere(function, output, opposite)
            for function, opposite in zip(functions, functions[::-1], strict=True)
        ):
            unexplained.append(output)
    by_place = any(function.by_place for function in functions)
    if replayed < len(examined):
        kind, why = "", "its outputs depend on more than their own input and position"
    elif by_place and not unexplained:
        kind, why = "place", "the same number gives different bits at different places"
    else:
        kind, why = _longer_call_cause(functions, unexplained, by_place)
    return Cause(kind, why, len(examined), replayed, in_numpy=False)


def _gives_elsewhere(function: PlacedFunction, output: int, opposite: PlacedFunction) -> bool:
    """Whether some place of a function gives the opposite side's bits from an output's operands."""
    bits = function.everywhere(int(function.index[output]))
    assert bits is not None
    return bool((bits == np.frombuffer(opposite.recorded_bits(output), bits.dtype)).any())


def _longer_call_cause(
    functions: Sequence[PlacedFunction], unexplained: Sequence[int], by_place: bool
) -> tuple[str, str]:
    """(class, why) of outputs for which no place gives the opposite side's bits: does some place of
    a longer call?"""
    longer_by = 0  # what another output needed is tried first
    for output in unexplained:
        bits = [function.recorded_bits(output) for function in functions]
        sizes, runs = [*([longer_by] if longer_by else []), *range(1, LONGEST_REMAINDER)], False
        enough = 0
        for function in functions:
            for size in sizes:
                results = function.longer(int(function.index[output]), size)
                if results is None:
                    break
                runs = True
                if results.issuperset(bits):
                    enough = size
                    break
            if enough:
                break
        if not runs:
            return "", "it can't be run at other sizes, so it is unknown whether places differ"
        if not enough and output == unexplained[0] and not by_place:
            why = "each side gives one result at all places, and the sides' results are different"
            return "algorithm", why
        if not enough:
            why = "different formulas: the same number gives the other side's result at no place"
            return "algorithm", why
        longer_by = enough
    return "place", (
        "with a few more elements in one call the same number gives both results, by place: a "
        "vector loop and its remainder"
    )


# Integers of 8 bits that saturate
#
# x86 processors without VNNI multiply unsigned by signed bytes with ``vpmaddubsw``, which adds two
# neighbouring products and cuts the sum off at -32,768 and 32,767 (Intel's manual of instructions;
# onnxruntime#16105). All that is added behind is exact, so that both sides can be replayed: the sum
# of 32 bits on one, with each pair saturated on the other.

LEAST_16_BITS, MOST_16_BITS = -(1 << 15), (1 << 15) - 1

# Products that are replayed for the outputs that differ.
REPLAYED_PRODUCTS = 1 << 24

BYTES = (np.dtype("int8"), np.dtype("uint8"))


@dataclass
class ByteProducts:
    """Some outputs of an operation that adds products of bytes."""

    x: np.ndarray
    """Left factors of each output: int64, (outputs, products)."""
    w: np.ndarray
    """Right factors, alike."""
    signed: tuple[bool, bool]
    """The bytes of x, of w are signed."""
    zeros: tuple[np.ndarray, np.ndarray]
    """The bytes that stand for zero in x and in w."""
    scales: Sequence[np.ndarray]
    """Of x and w, and of the output where that has bytes again."""
    output_zero: np.ndarray
    """The byte that stands for zero in the output."""
    bias: np.ndarray
    """Of each output."""
    dtype: np.dtype
    """Of the output."""

    @classmethod
    def of(cls, side: Alone, outputs: np.ndarray) -> ByteProducts | None:
        """Reads an operation's operands by their formats: the first two arrays of bytes are the
        factors, numbers beside them in the order of these and of the output are scales and zeros.
        None: it has no two such factors. ``outputs``: flat indices."""
        arrays = side.reads
        factors = [n for n, a in enumerate(arrays) if a.dtype in BYTES and a.ndim > 1][:2]
        if len(factors) < 2:
            return None
        quantisers = [a for n, a in enumerate(arrays) if n not in factors]
        zeros = [a.reshape(-1).astype(np.int64) for a in quantisers if a.dtype in BYTES]
        scales = [a.reshape(-1) for a in quantisers if a.dtype == np.float32]
        biases = [a.reshape(-1).astype(np.int64) for a in quantisers if a.dtype == np.int32]
        zeros += [np.zeros(1, np.int64)] * (3 - len(zeros))
        both, output = [arrays[n] for n in factors], side.gives[side.output]
        attributes = side.operation.attributes
        byte_factors = _byte_factors(both, output.shape, outputs, attributes, int(zeros[0][0]))
        if byte_factors is None:
            return None
        x, w, filters = byte_factors

        def of_filter(numbers: np.ndarray) -> np.ndarray:
            return numbers[filters] if numbers.size > 1 else numbers

        return cls(
            x,
            w,
            (both[0].dtype == np.int8, both[1].dtype == np.int8),
            (zeros[0][:1], of_filter(zeros[1])),
            [of_filter(scale) for scale in scales],
            zeros[2][:1],
            of_filter(biases[0]) if biases else np.zeros(1, np.int64),
            output.dtype,
        )

    def exact(self) -> np.ndarray | None:
        """The outputs where products are added in 32 bits; None: of formats that aren't known."""
        x, w = (a - zero[:, None] for a, zero in zip((self.x, self.w), self.zeros, strict=True))
        return self._rescaled((x * w).sum(axis=1))

    def saturating(self) -> np.ndarray | None:
        """The outputs where sums of two neighbours saturate, channel by channel through all places
        of the kernel, as ONNX Runtime and FBGEMM lay them."""
        # the instruction takes one factor unsigned and one signed: the other kind is shifted there
        x, w = self.x + 128 * self.signed[0], self.w - 128 * (not self.signed[1])
        zeros = self.zeros[0] + 128 * self.signed[0], self.zeros[1] - 128 * (not self.signed[1])
        count = x.shape[1]
        constant = zeros[0] * zeros[1] * count - zeros[0] * w.sum(axis=1) - zeros[1] * x.sum(axis=1)
        products = np.pad(x * w, ((0, 0), (0, count % 2)))  # to an even number of them
        pairs = products.reshape(len(products), -1, 2).sum(axis=2)
        return self._rescaled(np.clip(pairs, LEAST_16_BITS, MOST_16_BITS).sum(axis=1) + constant)

    def _rescaled(self, sums: np.ndarray) -> np.ndarray | None:
        """Sums with the bias, in the output's format: as they are, or scaled, or bytes again."""
        sums = sums + self.bias
        if self.dtype == np.int32 and not self.scales:
            return sums.astype(np.int32)
        if self.dtype == np.float32 and len(self.scales) == 2:
            return sums.astype(np.float32) * (self.scales[0] * self.scales[1])
        if self.dtype not in BYTES or len(self.scales) != 3:
            return None
        factor = self.scales[0] * self.scales[1] / self.scales[2]
        limits = np.iinfo(self.dtype)
        rounded = np.rint(sums.astype(np.float32) * factor) + self.output_zero
        return np.clip(rounded, limits.min, limits.max).astype(self.dtype)


def _byte_factors(
    arrays: Sequence[np.ndarray],
    shape: tuple[int, ...],
    outputs: np.ndarray,
    attributes: Mapping[str, Any],
    zero: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Factors of outputs, x and w, as (outputs, products), and the filter of each; None: the
    operation is no matrix product and no convolution, whose weights are (filters, channels,
    *kernel). ``zero``: what padding holds."""
    x, w = arrays
    filter_axis = len(shape) - 1
    try:
        if w.ndim > 2 and w.ndim == len(shape):
            channels_last, rank = bool(attributes.get("channels_last")), w.ndim - 2
            filter_axis = filter_axis if channels_last else 1
            ins, outs = ((a[1:-1] if channels_last else a[2:]) for a in (x.shape, shape))
            strides, dilations = (
                tuple(attributes.get(name) or [1] * rank) for name in ("strides", "dilations")
            )
            pads = list(attributes.get("pads") or [0] * 2 * rank)
            auto_pad = str(attributes.get("auto_pad", ""))
            padding = tuple(zip(pads[:rank], pads[rank:], strict=True))
            if auto_pad.startswith("SAME"):
                odd_first = auto_pad != "SAME_UPPER"
                padding = s.same_padding(ins, outs, w.shape[2:], strides, dilations, odd_first)
            frame = s.Frame(w.shape[2:], strides, dilations, padding)
            axes, groups = (*range(2, w.ndim), 1, 0), int(attributes.get("group", 1))
            meaning: Meaning = s.convolution(frame, axes, groups, channels_last)
        else:
            turned = bool(attributes.get("transA")), bool(attributes.get("transB"))
            meaning = s.matmul((x.ndim, w.ndim), turned)
        summed = sum_of(meaning, [x.shape, w.shape], shape, ["float32"] * 3)
        positions, columns = summed.places(outputs).T
        # the engine may take either factor for the weights
        parts = summed.x, summed.w
        # in 16 bits: windows of a large picture overlap many times
        values = [part.taken(arrays[part.number].astype(np.int16)) for part in parts if part]
        windows = window.columns(summed, values[0] - zero)
    except (InputError, ValueError, IndexError):
        return None
    group = columns // (summed.filters // summed.groups)
    both = zip(group, positions, strict=True)
    rows = np.stack([windows[g][:, n] for g, n in both]).astype(np.int64) + zero
    weights = values[1].reshape(-1, summed.filters)[:, columns].T.astype(np.int64)
    factors = (rows, weights) if summed.x.number == 0 else (weights, rows)
    return (*factors, np.unravel_index(outputs, shape)[filter_axis])


def saturation_cause(sides: Sides, differing: np.ndarray) -> Cause | None:
    """The cause where pairs of products saturate on one side alone; None where NumPy doesn't give
    the bits of both sides so. ``differing``: indices among the compared outputs."""
    count = max(1, REPLAYED_PRODUCTS // max(1, *(array.size for array in sides[0].reads)))
    chosen = evenly(differing, count)
    left, right = (ByteProducts.of(side, side.index[chosen]) for side in sides)
    if left is None or right is None:
        return None
    recorded = [side.outputs[chosen] for side in sides]
    for place, (saturating, exact) in enumerate(((left, right), (right, left))):
        replays = saturating.saturating(), exact.exact()
        if replays[0] is None or replays[1] is None:
            continue
        if np.array_equal(replays[0], recorded[place]) and np.array_equal(
            replays[1], recorded[1 - place]
        ):
            why = (
                f"on the {NAMES[place]}, sums of two products of bytes saturate at 16 bits, as "
                "an instruction of processors without VNNI does; on the "
                f"{NAMES[1 - place]} they are whole: {len(chosen)} of {len(chosen)} examined "
                "outputs replay on both sides"
            )
            return Cause("saturation", why, len(chosen), len(chosen))
    return None
