"""Public threads that this machine's libraries show, each with the exact values of its outputs.

``told`` is what the maintainers made of it: a bug, or rounding. The verdict is that of ``probe`` on
exact sums.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
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


@dataclass(frozen=True)
class Thread:
    name: str
    told: str
    library: str
    dtype: str
    text: str
    judge: Callable[[], Judged]


THREADS: list[Thread] = []


def thread(told: str, name: str, library: str, dtype: str = "float32") -> Any:
    """Adds a function that judges a thread to ``THREADS``; its docstring is stored."""

    def named(judge: Callable[[], Judged]) -> Callable[[], Judged]:
        THREADS.append(Thread(name, told, library, dtype, judge.__doc__ or "", judge))
        return judge

    return named


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


def drawn(*shape: int, seed: int = 0, dtype: str = "float32") -> np.ndarray:
    return floats.round_to(np.random.default_rng(seed).normal(size=shape), dtype)


# bugs


@thread(BUG, "jax#39103", "jax", "float64")
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


# rounding


@thread(ROUNDING, "pytorch#156154", "torch")
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


@thread(ROUNDING, "pytorch#24172", "torch")
def constants() -> Judged:
    """A convolution of 62x62 equal numbers with ones, against their sum."""
    import torch

    x = torch.full((1, 1, 62, 62), 0.0039631)
    both = torch.conv2d(x, torch.ones_like(x)).item(), x.sum().item()
    terms = [Fraction(x[0, 0, 0, 0].item())] * 3844
    return of_sums([(y, terms) for y in both], "float32")


@thread(ROUNDING, "numpy#8869", "numpy", "float16")
def stagnating() -> Judged:
    """A sum of ones that stops growing: the next one is half an ulp of it."""
    y = np.ones((4096, 2), np.float16).sum(axis=0)[0]  # of float32 it is 16,777,216
    return of_sums([(y, [Fraction(1)] * 4096)], "float16")


@thread(ROUNDING, "numpy#25909", "numpy")
def memory_order() -> Judged:
    """Sums of an array that lies in memory by rows and by columns."""
    data = np.array([[-0.16385849, -0.06833044], [0.14264219, -0.06838101]], np.float32)
    x = np.tile(data, (2000, 1))
    terms = [Fraction(value) for value in x[:, 0].tolist()]
    ways = (np.asfortranarray(x), np.ascontiguousarray(x))
    return of_sums([(y.sum(axis=0)[0], terms) for y in ways], "float32")
