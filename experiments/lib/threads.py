"""Public threads, rebuilt as small inputs, each with the exact values of its outputs.

A thread is a library's own run where this machine's release shows it; else the function that the
library computed, from what its thread says, beside what it should have computed. ``told`` is what
the maintainers made of it: a bug, or rounding. The verdict comes from ``probe``: of cases as
``probe explain`` gives it, of other functions by the same bound on their exact sums.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

import probe
from lib.onnx_files import onnx_file
from probe import Case
from probe.case import floats
from probe.explain.verdict import BUG, ROUNDING, ExactSum

# Outputs of a thread that are held against exact values.
HELD = 64


@dataclass(frozen=True)
class Judged:
    """What was said: ``verdict``; of so many differing ``outputs`` how many are ``beyond``.

    ``ulps``: how far the farthest is from its exact value; ``seen``: from where on it is seen.
    """

    verdict: str
    outputs: int
    beyond: int
    summands: int
    ulps: float
    seen: float


@dataclass(frozen=True)
class Thread:
    """``rebuilt``: the function stands for a release that isn't here; else a library runs."""

    name: str
    told: str
    library: str
    dtype: str
    text: str
    judge: Callable[[], Judged]
    rebuilt: bool = False


THREADS: list[Thread] = []


def thread(
    told: str, name: str, library: str, dtype: str = "float32", rebuilt: bool = False, more: int = 1
) -> Any:
    """Adds a thread to ``THREADS``: a function that yields outputs, each with the terms whose sum
    it should be, or judges them itself. Its docstring is stored. ``more``: as of ``of_sums``."""

    def named(function: Callable[[], Judged | Iterator[Sum]]) -> Callable[[], Judged]:
        def judge() -> Judged:
            given = function()
            if isinstance(given, Judged):
                return given
            # sums of 8-bit integers are exact in float64
            return of_sums(list(given), "float64" if dtype == "int8" else dtype, more)

        text = function.__doc__ or ""
        THREADS.append(Thread(name, told, library, dtype, text, judge, rebuilt))
        return judge

    return named


bug = partial(thread, BUG, rebuilt=True)
rounding = partial(thread, ROUNDING)


def of_case(case: Case, left: str, right: str | None = None, **how: Any) -> Judged:
    """Judges a case as ``probe explain`` does."""
    at, against = how.pop("at", None), how.pop("against", None)
    why = probe.explain(case, left, at, against, against_target=right, **how)
    verdict, found = why.verdict, why.found
    count, sides = len(found.differing), verdict.sides
    beyond = count if verdict.what == BUG else 0
    ulps = max((side.ulps for side in sides or ()), default=0.0)
    seen = max((side.most for side in sides or ()), default=0.0)
    return Judged(verdict.what, count, beyond, case.summands, ulps, seen)


Sum = tuple[float | np.floating, Iterable[Fraction]]


def of_sums(outputs: Sequence[Sum], dtype: str, more: int = 1) -> Judged:
    """Judges outputs, each with the terms whose sum it should be; ``more``: roundings beyond one an
    addition, as of a division."""
    held = []
    for y, given in outputs[:HELD]:
        terms = tuple(given)
        held.append(ExactSum(float(y), terms, dtype, len(terms) + more))
    beyond = sum(not one.within for one in held)
    ulps, seen = max(one.ulps for one in held), float(np.median([one.most for one in held]))
    verdict = BUG if beyond else ROUNDING
    return Judged(verdict, len(held), beyond, max(len(one.terms) for one in held), ulps, seen)


def products(x: np.ndarray, w: np.ndarray) -> list[Fraction]:
    return [
        Fraction(a) * Fraction(b)
        for a, b in zip(x.ravel().tolist(), w.ravel().tolist(), strict=True)
    ]


# ulps that a function may be off, which no standard says
ALLOWED = 16


def of_functions(outputs: Sequence[tuple[float, Fraction]], digits: int, summands: int) -> Judged:
    """Judges outputs of functions, each with its exact value; ``digits``: of the format."""
    ulps = []
    for y, exact in outputs:
        unit = Fraction(2) ** (math.frexp(float(exact))[1] - digits)
        ulps.append(float(abs(Fraction(float(y)) - exact) / unit))
    beyond = sum(one > ALLOWED for one in ulps)
    verdict = BUG if beyond else ROUNDING
    return Judged(verdict, len(outputs), beyond, summands, max(ulps), ALLOWED)


def deviation(values: Sequence[float]) -> Fraction:
    """The sample's standard deviation, to 60 digits."""
    numbers = [Fraction(value) for value in values]
    mean = sum(numbers) / len(numbers)
    variance = sum((number - mean) ** 2 for number in numbers) / (len(numbers) - 1)
    context = decimal.Context(prec=60)
    quotient = context.divide(*map(decimal.Decimal, variance.as_integer_ratio()))
    return Fraction(context.sqrt(quotient))


def drawn(*shape: int, seed: int = 0, dtype: str = "float32") -> np.ndarray:
    return floats.round_to(np.random.default_rng(seed).normal(size=shape), dtype)


# bugs


@bug("jax#39103", "jax", "float64", rebuilt=False, more=4)
def jit_element() -> Iterator[Sum]:
    """One element of 16,385 sums of three squares is wrong under jit (jaxlib 0.10.2)."""
    import jax
    import jax.numpy as jnp

    def rows(x: Any) -> Any:
        return jax.vmap(lambda row: jnp.sum((matrix @ row) ** 2))(x)

    with jax.enable_x64(True):
        i = jnp.arange(16_385.0)
        x, matrix = jnp.stack((i, 0 * i, 0 * i), axis=1), jnp.eye(3)
        compiled, eager = np.asarray(jax.jit(rows)(x)), np.asarray(rows(x))
    apart = np.flatnonzero(compiled != eager)
    if not len(apart):  # a release that is right
        yield eager[1], [Fraction(1)]
    for n in apart:
        yield from ((y[n], [Fraction(int(n)) ** 2]) for y in (compiled, eager))


def zeros_for_same(case: Case) -> Callable[[], Judged]:
    """A convolution with SAME whose outputs are all zeros."""

    def judge() -> Judged:
        x, w, _ = case.operands()
        (top, _), (left, _) = case.pads()
        height, width = case.spatial()
        outputs = []
        for a, b, f in list(np.ndindex(*case.output_spatial(), case.filters))[:HELD]:
            terms: list[Fraction] = []
            for i, j in np.ndindex(*case.kernel):
                p, q = a * case.stride[0] + i - top, b * case.stride[1] + j - left
                if 0 <= p < height and 0 <= q < width:
                    terms += products(x[0, p, q], w[i, j, :, f])
            outputs.append((0.0, terms))
        return of_sums(outputs, "float32")

    return judge


@bug("pytorch#163347", "torch", "bfloat16")
def first_tap_alone() -> Iterator[Sum]:
    """A 2x2 convolution of ones in bfloat16 gives 1."""
    yield 1.0, [Fraction(1)] * 4


@bug("transformers#46773", "torch")
def mask_skipped() -> Iterator[Sum]:
    """A causal depthwise convolution over left padding that nobody zeroed, at batch 1."""
    x, w = drawn(12, 4), drawn(4, 4, seed=1)
    padding = 5
    for at in range(padding, padding + 3):
        for channel in range(4):
            taps = range(at - 3, at + 1)
            y = np.float32(sum(x[t, channel] * w[t - at + 3, channel] for t in taps))
            terms = [
                Fraction(float(x[t, channel])) * Fraction(float(w[t - at + 3, channel]))
                for t in taps
                if t >= padding
            ]
            yield y, terms


@bug("FlagGems#4984", "torch", more=3)
def next_group_in_the_mean() -> Iterator[Sum]:
    """Means over groups of three channels, which read a fourth: a block of a power of two."""
    x = drawn(48, 64)
    for group in range(15):
        inside, block = x[3 * group : 3 * group + 3], x[3 * group : 3 * group + 4]
        y = np.float32(block.sum(dtype=np.float64) / inside.size)
        yield y, [Fraction(value) / inside.size for value in inside.ravel().tolist()]


@bug("onnxruntime#16105", "onnxruntime", "int8")
def saturated_pairs() -> Iterator[Sum]:
    """Products of 8-bit numbers are added in pairs of 16 bits, which saturate."""
    x, w = np.array([210, 198, 234]), np.array([-81, -80, 127])
    pair = np.clip(x[0] * w[0] + x[1] * w[1], -(2**15), 2**15 - 1)
    yield float(pair + x[2] * w[2]), products(x, w)


@bug("oneDNN#1354", "onednn", "int8")
def saturated_convolution() -> Iterator[Sum]:
    """An 8-bit convolution of 255 by 127: pairs leave 16 bits."""
    x, w = np.full(4, 255), np.full(4, 127)
    y = sum(min(int(x[n] * w[n] + x[n + 1] * w[n + 1]), 2**15 - 1) for n in (0, 2))
    yield float(y), products(x, w)


@bug("onnxruntime#27845", "onnxruntime")
def negatives_lost() -> Iterator[Sum]:
    """Weights of 8 bits go through unsigned ones: all that were negative become zero."""
    q, scale = np.array([-30, 25, -128, 127, 0]), np.float32(0.01)
    for value, y in zip(q, np.clip(q, 0, 255).astype(np.float32) * scale, strict=True):
        yield y, [Fraction(int(value)) * Fraction(float(scale))]


@bug("pandas#48950", "pandas", "float64", rebuilt=False)
def rolling_deviation() -> Judged:
    """A rolling standard deviation remembers a row that left its window."""
    import pandas as pd

    tail = [0.1, 0.2, 0.3, 0.4]
    y = pd.Series([100_000.0, *tail]).rolling(3).std().to_numpy()[-2:]
    return of_functions([(y[0], deviation(tail[:3])), (y[1], deviation(tail[1:]))], 53, 3)


@bug("pytorch#18948", "torch")
def strides_ignored() -> Iterator[Sum]:
    """A convolution reads a column of its weights as if it were a row."""
    w = np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 3.0], [0.0, 3.0, 1.0]], np.float32)
    x, column = np.array([2.0, 1.0, 0.0], np.float32), w[:, 2]
    yield float(x @ w.ravel()[2:5]), products(x, column)  # from the column's first element on


@bug("pytorch#19912", "torch")
def groups_lost() -> Iterator[Sum]:
    """A grouped 1x1 convolution gives zeros for the second group."""
    yield from [(0.0, [Fraction(0), Fraction(1)])] * 8


@bug("OpenBLAS#2914", "openblas")
def not_cleared() -> Iterator[Sum]:
    """A product of no elements gives what was in memory."""
    yield 0.266733, []


@bug("transformers 5.8.1, Mamba2 in chunks", "torch", more=9)
def chunks_without_state() -> Iterator[Sum]:
    """A recurrence computed in two chunks forgets what the first one came to."""
    decay, x = np.float32(0.9), drawn(8)
    whole = [Fraction(float(decay)) ** (7 - t) * Fraction(float(x[t])) for t in range(8)]
    state = np.float32(0)
    for value in x[4:]:
        state = np.float32(decay * state + value)
    yield state, whole


# rounding


@rounding("pytorch#156154", "torch")
def product_and_convolution() -> Iterator[Sum]:
    """A 1x1 convolution against a linear layer."""
    import torch

    x, w = torch.from_numpy(drawn(8, 64, 1, 1)), torch.from_numpy(drawn(128, 64, seed=1))
    convolved = torch.conv2d(x, w[:, :, None, None]).numpy()
    linear = torch.nn.functional.linear(x.permute(0, 2, 3, 1), w).permute(0, 3, 1, 2).numpy()
    for n, f, i, j in np.argwhere(convolved != linear)[: HELD // 2].tolist():
        terms = products(x[n, :, i, j].numpy(), w[f].numpy())
        yield from ((y[n, f, i, j], terms) for y in (convolved, linear))


@rounding("pytorch#24172", "torch")
def constants() -> Iterator[Sum]:
    """A convolution of 62x62 equal numbers with ones, against their sum."""
    import torch

    x = torch.full((1, 1, 62, 62), 0.0039631)
    both = torch.conv2d(x, torch.ones_like(x)).item(), x.sum().item()
    yield from ((y, [Fraction(x[0, 0, 0, 0].item())] * 3844) for y in both)


@rounding("pytorch#51276", "torch", "float64")
def ones_by_matrix() -> Iterator[Sum]:
    """One row of ones times a matrix, alone and in two rows, in float64."""
    import torch

    q = torch.from_numpy(drawn(128, 90, dtype="float64"))
    one, two = (torch.ones(n, 90, dtype=torch.float64) @ q.T for n in (1, 2))
    for n in range(HELD // 2):
        yield from ((y[0, n].item(), map(Fraction, q[n].tolist())) for y in (one, two))


@rounding("numpy#13734", "numpy")
def columns_of_sums() -> Iterator[Sum]:
    """Sums over the first axis, of all columns and of one."""
    a = np.random.default_rng(0).uniform(0, 100, (30_000, 3)).astype(np.float32)
    for y in (a.sum(axis=0)[0], a[:, 0].sum()):
        yield y, map(Fraction, a[:, 0].tolist())


@rounding("numpy#8869", "numpy", "float16")
def stagnating() -> Iterator[Sum]:
    """A sum of ones that stops growing: the next one is half an ulp of it."""
    y = np.ones((4096, 2), np.float16).sum(axis=0)[0]  # of float32 it is 16,777,216
    yield y, [Fraction(1)] * 4096


@rounding("numpy#8116", "numpy", "float64", more=3)
def rows_of_means() -> Iterator[Sum]:
    """The mean of a row, of all rows at once and of one."""
    x = drawn(200, 54, dtype="float64")
    for row, y in zip(x, x.mean(axis=1), strict=True):
        terms = [Fraction(value) / 54 for value in row.tolist()]
        yield from ((y, terms), (row.mean(), terms))


@rounding("numpy#25909", "numpy")
def memory_order() -> Iterator[Sum]:
    """Sums of an array that lies in memory by rows and by columns."""
    data = np.array([[-0.16385849, -0.06833044], [0.14264219, -0.06838101]], np.float32)
    x = np.tile(data, (2000, 1))
    for laid in (np.asfortranarray(x), np.ascontiguousarray(x)):
        yield laid.sum(axis=0)[0], map(Fraction, x[:, 0].tolist())


@rounding("onnxruntime#10058", "onnxruntime")
def logarithms() -> Judged:
    """Logarithms of rows alone and together: a vector's body and its tail."""
    import onnxruntime

    file = onnx_file("(float[n,3] x) => (float[n,3] y) { y = Log(x) }")
    session = onnxruntime.InferenceSession(file)
    x = np.abs(drawn(512, 3)) + np.float32(0.01)
    whole = session.run(None, {"x": x})[0]
    alone = np.concatenate([session.run(None, {"x": x[n : n + 1]})[0] for n in range(len(x))])
    places = np.argwhere(whole != alone)[:HELD].tolist() or [[0, 0]]
    outputs = []
    context = decimal.Context(prec=60)
    for i, j in places:
        exact = Fraction(context.ln(decimal.Decimal(float(x[i, j]))))
        outputs += [(whole[i, j], exact), (alone[i, j], exact)]
    return of_functions(outputs, 24, 1)


@rounding("tensorflow#105829", "tensorflow", rebuilt=True)
def chain_against_blocks() -> Iterator[Sum]:
    """One long chain of fused additions against blocks of K, as two kernels do it."""
    x, w = drawn(4096), drawn(4096, seed=1)
    chain = np.float32(0)
    for a, b in zip(x, w, strict=True):
        chain = np.float32(float(a) * float(b) + float(chain))
    blocks = [np.float32(0)] * 16
    for n, (a, b) in enumerate(zip(x, w, strict=True)):
        blocks[n // 256] = np.float32(blocks[n // 256] + a * b)
    yield from ((y, products(x, w)) for y in (chain, np.sum(blocks, dtype=np.float32)))


@rounding("a transposed convolution, two libraries", "torch")
def transposed() -> Iterator[Sum]:
    """A transposed convolution of PyTorch and of JAX."""
    import jax
    import torch

    x, w = drawn(1, 4, 9), drawn(4, 3, 5, seed=1)
    left = torch.nn.functional.conv_transpose1d(torch.from_numpy(x), torch.from_numpy(w), stride=2)
    right = jax.lax.conv_transpose(
        *(x, w[:, :, ::-1], (2,), "VALID"),
        dimension_numbers=("NCH", "IOH", "NCH"),
    )
    for f, at in np.argwhere(left.numpy()[0] != np.asarray(right)[0])[: HELD // 2].tolist():
        terms = []
        for tap in range(5):
            place, rest = divmod(at - tap, 2)
            if rest == 0 and 0 <= place < 9:
                terms += products(x[0, :, place], w[:, f, tap])
        yield from ((float(y[0, f, at]), terms) for y in (left, right))


SAME = {"padding": "same", "length": 18, "height": 17}
TEN = Case("conv2d", 3, 7, 16, stride=10, **SAME)  # type: ignore[arg-type]
UNEVEN = Case("conv2d", 3, 2, 3, stride=(3, 4), **SAME)  # type: ignore[arg-type]
CANCEL = {"operands": "cancel"}

ROWS = Case("conv2d", 3, 4, 3, length=6, height=8, **CANCEL)  # type: ignore[arg-type]
PADDED = Case("conv1d", 5, 256, 256, length=10, padding=2)
CROPPED = Case("conv1d", 1, 96, 96)
SUBSET = Case("conv2d", 3, 4, 6, length=8, height=8, bias="normal", **CANCEL)  # type: ignore[arg-type]
DENSE = Case("dense", in_channels=384, filters=64)
UNITS = Case("dense", in_channels=3286, filters=65)

ZEROS = "SAME with this stride gives zeros."
THREADS += [
    Thread("LiteRT#4847", BUG, "litert", "float32", ZEROS, zeros_for_same(TEN), True),
    Thread("LiteRT#9256", BUG, "litert", "float32", ZEROS, zeros_for_same(UNEVEN), True),
]


def pair(name: str, target: str, text: str, case: Case, at: int, against: int, **how: Any) -> None:
    """Adds a thread about one case at two sizes, as probe judges it."""
    judge = partial(of_case, case, target, at=at, against=against, **how)
    library = target.partition(",")[0]
    THREADS.append(Thread(name, ROUNDING, library, "float32", text, judge))


pair("pytorch#134908", "torch", "Batch 1 against 2.", ROWS, 1, 2, vary="batch")
pair("pytorch#81694", "torch", "Batch 1 against 2.", PADDED, 1, 2, vary="batch")
pair("pytorch#116373", "torch", "A crop of a signal.", CROPPED, 5, 201)
EIGEN = "tensorflow,onednn=0"
pair("tensorflow#61422", EIGEN, "Some of the filters.", SUBSET, 1, 6, vary="filters")
pair("onnxruntime#7642", "onnxruntime,weights=argument", "Rows alone and together.", DENSE, 1, 8)
pair("tensorflow#46770", EIGEN, "Rows alone and together.", UNITS, 1, 93)
