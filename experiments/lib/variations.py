"""Variations: two runs of a model differ in batch, length, padding, number of threads or mode.

For a variation, a model gives two runs whose results should agree: what makes a function without
arguments (or a recorder) of inputs, and these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

BATCHES, ALL = (1, 2, 3, 5, 6, 7), 8

Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Given:
    """One run. ``make(arrays)``: a function without arguments, or a recorder."""

    make: Callable[[Arrays], Any]
    arrays: Arrays


@dataclass(frozen=True)
class Variation:
    """What sets two runs of a model apart: ``vary`` at ``at`` against ``against``."""

    vary: str
    at: str
    against: str


@dataclass(frozen=True)
class Model:
    """A model on one target. ``weights``: where they come from.

    ``sides(folder)`` gives a function of a variation that gives both runs; it is called once a
    process.
    """

    name: str
    target: str
    weights: str
    variations: tuple[Variation, ...]
    sides: Callable[[Path], Callable[[Variation], tuple[Given, Given]]]


def batches(values: tuple[int, ...] = BATCHES, against: int = ALL) -> tuple[Variation, ...]:
    """Smaller batches against the largest, whose first rows must agree."""
    return tuple(Variation("batch", str(n), str(against)) for n in values)


THREADS = (Variation("threads", "1", "2"),)

PADDING = tuple(Variation("padding", "alone", f"with {n}") for n in (1, 2, 3))


def lengths(against: int, *values: int) -> tuple[Variation, ...]:
    """Shorter inputs against the longest."""
    return tuple(Variation("length", str(n), str(against)) for n in values)


def sides_of(run: Callable[..., Given], one: Variation) -> tuple[Given, Given]:
    """Returns the two runs of a variation by what a model's ``run`` takes."""
    if one.vary == "batch":
        return run(int(one.at), None), run(int(one.against), None)
    if one.vary == "length":
        return run(2, int(one.at)), run(2, int(one.against))
    if one.vary == "threads":
        return run(ALL, None, threads=int(one.at)), run(ALL, None, threads=int(one.against))
    return run(ALL, None), run(ALL, None, compiled=True)


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)
