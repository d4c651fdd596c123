"""Public threads that this machine's libraries show: outputs, each with the terms whose sum it
should be, exactly.

``told`` is what the maintainers made of a thread: a bug, or rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from probe.case import floats
from probe.explain.verdict import BUG, ROUNDING

# Outputs of a thread that are held against exact values.
HELD = 64

Sums = Sequence[tuple[float | np.floating, Iterable[Fraction]]]


class Thread(NamedTuple):
    """``sums`` runs the library; its docstring is stored. ``more``: roundings beyond one an
    addition, as of a square."""

    name: str
    told: str
    library: str
    dtype: str
    sums: Callable[[], Sums]
    more: int = 1


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return floats.round_to(np.random.default_rng(seed).normal(size=shape), "float32")


def jit_element() -> Sums:
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
    return outputs or [(eager[1], [Fraction(1)])]


def product_and_convolution() -> Sums:
    """A 1x1 convolution against a linear layer."""
    import torch

    x, w = torch.from_numpy(drawn(8, 64, 1, 1)), torch.from_numpy(drawn(128, 64, seed=1))
    convolved = torch.conv2d(x, w[:, :, None, None]).numpy()
    linear = torch.nn.functional.linear(x.permute(0, 2, 3, 1), w).permute(0, 3, 1, 2).numpy()
    outputs = []
    # where this processor shows no difference, any output stands for all
    for n, f, i, j in np.argwhere(convolved != linear)[: HELD // 2].tolist() or [[0, 0, 0, 0]]:
        pairs = zip(x[n, :, i, j].tolist(), w[f].tolist(), strict=True)
        terms = [Fraction(a) * Fraction(b) for a, b in pairs]
        outputs += [(y[n, f, i, j], terms) for y in (convolved, linear)]
    return outputs


def constants() -> Sums:
    """A convolution of 62x62 equal numbers with ones, against their sum."""
    import torch

    x = torch.full((1, 1, 62, 62), 0.0039631)
    both = torch.conv2d(x, torch.ones_like(x)).item(), x.sum().item()
    return [(y, [Fraction(x[0, 0, 0, 0].item())] * 3844) for y in both]


def stagnating() -> Sums:
    """A sum of ones that stops growing: the next one is half an ulp of it."""
    y = np.ones((4096, 2), np.float16).sum(axis=0)[0]  # of float32 it is 16,777,216
    return [(y, [Fraction(1)] * 4096)]


def memory_order() -> Sums:
    """Sums of an array that lies in memory by rows and by columns."""
    data = np.array([[-0.16385849, -0.06833044], [0.14264219, -0.06838101]], np.float32)
    x = np.tile(data, (2000, 1))
    terms = [Fraction(value) for value in x[:, 0].tolist()]
    return [(y.sum(axis=0)[0], terms) for y in (np.asfortranarray(x), np.ascontiguousarray(x))]


THREADS = [
    Thread("jax#39103", BUG, "jax", "float64", jit_element, 4),
    Thread("pytorch#156154", ROUNDING, "torch", "float32", product_and_convolution),
    Thread("pytorch#24172", ROUNDING, "torch", "float32", constants),
    Thread("numpy#8869", ROUNDING, "numpy", "float16", stagnating),
    Thread("numpy#25909", ROUNDING, "numpy", "float32", memory_order),
]
