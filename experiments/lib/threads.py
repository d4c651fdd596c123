"""Public threads, rebuilt as small inputs, each with the exact values of its outputs.

A thread is a library's own run where this machine's release shows it; else the function that the
library computed, from what its thread says, beside what it should have computed. ``told`` is what
the maintainers made of it: a bug, or rounding. The verdict is that of ``probe`` on exact sums.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from probe.case import floats
from probe.explain.verdict import BUG, ROUNDING, ExactSum

# Outputs of a thread that are held against exact values.
HELD = 64


@dataclass(frozen=True)
class Judged:
    """Of so many ``outputs`` how many are ``beyond`` what rounding can do.

    ``ulps``: how far the farthest is from its exact value; ``seen``: from where on it is seen.
    """

    outputs: int
    beyond: int
    summands: int
    ulps: float
    seen: float

    @property
    def verdict(self) -> str:
        return BUG if self.beyond else ROUNDING


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
    told: str, name: str, library: str, dtype: str = "float32", rebuilt: bool = False
) -> Any:
    """Adds a function that judges a thread to ``THREADS``; its docstring is stored."""

    def named(judge: Callable[[], Judged]) -> Callable[[], Judged]:
        text = judge.__doc__ or ""
        THREADS.append(Thread(name, told, library, dtype, text, judge, rebuilt))
        return judge

    return named


bug = partial(thread, BUG, rebuilt=True)
rounding = partial(thread, ROUNDING)


Sums = Sequence[tuple[float | np.floating, Iterable[Fraction]]]


def of_sums(outputs: Sums, dtype: str, more: int = 1) -> Judged:
    """Judges outputs, each with the terms whose sum it should be; ``more``: roundings beyond one an
    addition, as of a division."""
    held = []
    for y, given in outputs[:HELD]:
        terms = tuple(given)
        held.append(ExactSum(float(y), terms, dtype, len(terms) + more))
    beyond = sum(not one.within for one in held)
    ulps, seen = max(one.ulps for one in held), float(np.median([one.most for one in held]))
    return Judged(len(held), beyond, max(len(one.terms) for one in held), ulps, seen)


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
    return Judged(len(outputs), beyond, summands, max(ulps), ALLOWED)


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


@bug("jax#39103", "jax", "float64", rebuilt=False)
def jit_element() -> Judged:
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
    outputs = [(y[n], [Fraction(int(n)) ** 2]) for n in apart for y in (compiled, eager)]
    return of_sums(outputs or [(eager[1], [Fraction(1)])], "float64", 4)


@bug("transformers#46773", "torch")
def mask_skipped() -> Judged:
    """A causal depthwise convolution over left padding that nobody zeroed, at batch 1."""
    x, w = drawn(12, 4), drawn(4, 4, seed=1)
    padding = 5
    outputs = []
    for at in range(padding, padding + 3):
        for channel in range(4):
            taps = range(at - 3, at + 1)
            y = np.float32(sum(x[t, channel] * w[t - at + 3, channel] for t in taps))
            terms = [
                Fraction(float(x[t, channel])) * Fraction(float(w[t - at + 3, channel]))
                for t in taps
                if t >= padding
            ]
            outputs.append((y, terms))
    return of_sums(outputs, "float32")


@bug("onnxruntime#16105", "onnxruntime", "int8")
def saturated_pairs() -> Judged:
    """Products of 8-bit numbers are added in pairs of 16 bits, which saturate."""
    x, w = np.array([210, 198, 234]), np.array([-81, -80, 127])
    pair = np.clip(x[0] * w[0] + x[1] * w[1], -(2**15), 2**15 - 1)
    return of_sums([(float(pair + x[2] * w[2]), products(x, w))], "float64")


@bug("pandas#48950", "pandas", "float64", rebuilt=False)
def rolling_deviation() -> Judged:
    """A rolling standard deviation remembers a row that left its window."""
    import pandas as pd

    tail = [0.1, 0.2, 0.3, 0.4]
    y = pd.Series([100_000.0, *tail]).rolling(3).std().to_numpy()[-2:]
    return of_functions([(y[0], deviation(tail[:3])), (y[1], deviation(tail[1:]))], 53, 3)


@bug("transformers 5.8.1, Mamba2 in chunks", "torch")
def chunks_without_state() -> Judged:
    """A recurrence computed in two chunks forgets what the first one came to."""
    decay, x = np.float32(0.9), drawn(8)
    whole = [Fraction(float(decay)) ** (7 - t) * Fraction(float(x[t])) for t in range(8)]
    state = np.float32(0)
    for value in x[4:]:
        state = np.float32(decay * state + value)
    return of_sums([(state, whole)], "float32", 9)


# rounding


@rounding("pytorch#156154", "torch")
def product_and_convolution() -> Judged:
    """A 1x1 convolution against a linear layer."""
    import torch

    x, w = torch.from_numpy(drawn(8, 64, 1, 1)), torch.from_numpy(drawn(128, 64, seed=1))
    convolved = torch.conv2d(x, w[:, :, None, None]).numpy()
    linear = torch.nn.functional.linear(x.permute(0, 2, 3, 1), w).permute(0, 3, 1, 2).numpy()
    places = np.argwhere(convolved != linear)[: HELD // 2].tolist()
    outputs = [
        (y[n, f, i, j], products(x[n, :, i, j].numpy(), w[f].numpy()))
        for n, f, i, j in places
        for y in (convolved, linear)
    ]
    return of_sums(outputs, "float32")


@rounding("pytorch#24172", "torch")
def constants() -> Judged:
    """A convolution of 62x62 equal numbers with ones, against their sum."""
    import torch

    x = torch.full((1, 1, 62, 62), 0.0039631)
    both = torch.conv2d(x, torch.ones_like(x)).item(), x.sum().item()
    terms = [Fraction(x[0, 0, 0, 0].item())] * 3844
    return of_sums([(y, terms) for y in both], "float32")


@rounding("numpy#8869", "numpy", "float16")
def stagnating() -> Judged:
    """A sum of ones that stops growing: the next one is half an ulp of it."""
    y = np.ones((4096, 2), np.float16).sum(axis=0)[0]  # of float32 it is 16,777,216
    return of_sums([(y, [Fraction(1)] * 4096)], "float16")


@rounding("numpy#25909", "numpy")
def memory_order() -> Judged:
    """Sums of an array that lies in memory by rows and by columns."""
    data = np.array([[-0.16385849, -0.06833044], [0.14264219, -0.06838101]], np.float32)
    x = np.tile(data, (2000, 1))
    terms = [Fraction(value) for value in x[:, 0].tolist()]
    ways = (np.asfortranarray(x), np.ascontiguousarray(x))
    return of_sums([(y.sum(axis=0)[0], terms) for y in ways], "float32")
