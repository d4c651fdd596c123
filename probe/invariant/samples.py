"""Makes the samples with which a whole program is checked.

Of a whole program the weights are what they are, so no sum can be made to cancel. Instead there are
several samples with numbers that fill their digits: normal ones, some over several binades, some
that are each followed by themselves with the sign turned, at several scales around that of the
numbers that the program was called with. A program may hide what happens inside of it: behind a
softmax whose inputs are large, or nearly alike, nothing shows. So candidates are drawn, and those
are taken whose answers show most where their inputs are moved by one unit in the last place.

Integers (tokens, pixels, masks) and floating-point inputs of few different values are the caller's
own, in another order. What the samples are made from is kept as a recipe in the table, so that
another call checks with the same ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from probe import floats, operands
from probe.invariant.telling import spread

FEW, MANY = 5, 31
"""Samples of a program: few where an answer has many numbers, more where it has a few."""

CANDIDATES = 4  # times as many are drawn
SCALES = (1.0, 2.0**4, 2.0**-4, 2.0**8)

ENOUGH = 160  # numbers in all answers together
MOST, PLENTY = 512, 2048
"""The same with those that stand at one place alone, of a quick program: see ``Whole._more``."""

CANDIDATES = 4  # times as many are drawn
SCALES = (1.0, 2.0**4, 2.0**-4, 2.0**8)

ENOUGH = 160  # numbers in all answers together
MOST, PLENTY = 512, 2048
"""The same of a quick program: a size may round differently in one of several hundred numbers."""

DISTINCT = 16  # values of a floating-point input that is a mask or a code rather than a quantity
KEPT = 4096  # values of a recipe


def how_many(numbers: int) -> int:
    """Samples of a program whose answer for one sample has that many numbers."""
    return min(MANY, max(FEW, math.ceil(ENOUGH / max(numbers, 1))))


def recipe(rows: np.ndarray, dtype: str) -> dict[str, Any]:
    """Returns what samples of an input are made from; ``rows``: container array, a sample a row."""
    if dtype in floats.FORMATS:
        values = floats.widen(rows, dtype).astype(np.float64).reshape(-1)
        found = values[np.isfinite(values)]
        if not 2 <= len(np.unique(values[:KEPT])) <= DISTINCT:  # one value: a state of zeros
            size = float(np.sqrt(np.mean(found**2))) if found.size else 1.0
            scale = 2.0 ** round(math.log2(size)) if size else 1.0
            return {"scale": scale, "positive": bool((found >= 0).all())}
        return {"values": [float(one) for one in values[:KEPT]]}
    return {"values": rows.reshape(-1)[:KEPT].tolist()}


def made(
    told: dict[str, Any], shape: tuple[int, ...], dtype: str, numbers: Sequence[int], at: int
) -> np.ndarray:
    """Samples (len(numbers), *shape) as a container array; ``at``: of the input among others."""
    size = math.prod(shape)
    if "values" in told:
        values = np.array(told["values"])
        kept = np.resize(values, size) if values.size else np.zeros(size)
        every = np.stack([kept[_order(number, at, size)] for number in numbers])
        rounded = floats.round_to(every, dtype) if dtype in floats.FORMATS else every.astype(dtype)
        return rounded.reshape(len(numbers), *shape)
    drawn = np.stack([_drawn(number, at, size) for number in numbers]) * told["scale"]
    if told["positive"]:
        drawn = np.abs(drawn)
    return floats.round_to(drawn, dtype).reshape(len(numbers), *shape)


def _order(sample: int, number: int, size: int) -> np.ndarray:
    """Another order of the values for each sample but the first."""
    if not sample:
        return np.arange(size)
    return np.argsort(operands.hashes(sample, "x", number, (size,)), kind="stable")


def _drawn(sample: int, at: int, size: int) -> np.ndarray:
    """Returns numbers of one sample, of the kinds and scales that the module names, in turn."""
    seed, kind = 1_000 * (at + 1) + sample, sample % 3
    scale = SCALES[sample // 3 % len(SCALES)]
    if not kind:
        return operands.normal(seed, "x", (size,)) * scale
    found = spread(seed, "x", (size,), 8 if kind == 1 else 4)
    if kind == 2:
        found[1::2] = -found[: size // 2 * 2 : 2]
    return found * scale


LARGE, SMALL = 2.0**12, 2.0**-12
"""By what a sample is multiplied that stands beside others, to show whether they read it."""


def altered(
    every: np.ndarray, one: np.ndarray, dtype: str, name: str, fixed: bool = False
) -> np.ndarray:
    """Returns a sample made from another: container arrays.

    ``every``: all samples of the call. ``name``: ``large``, ``small`` or ``turned`` (of opposite
    sign where there are both), each with its numbers in the opposite order, or ``nan``. Of tokens,
    masks and codes those of the call, elsewhere; ``fixed``: they stay as they are.
    """
    if not one.size:
        return one
    wide = floats.widen(every, dtype) if dtype in floats.FORMATS else every
    distinct = len(np.unique(wide.reshape(-1)[:KEPT]))
    if dtype not in floats.FORMATS or 1 < distinct <= DISTINCT < wide.size:
        if fixed:
            return one
        flat = every.reshape(-1)
        if name in ("large", "small"):
            order = np.argsort(wide.reshape(-1), kind="stable")
            return np.full_like(one, flat[order[-1 if name == "large" else 0]])
        start = 1 if name == "turned" else flat.size // 2
        return np.resize(np.roll(flat, start), one.shape)
    if name == "nan":
        return floats.round_to(np.full(one.shape, np.nan), dtype)
    values = floats.widen(one, dtype).astype(np.float64).reshape(-1)[::-1].reshape(one.shape)
    values = np.where(np.isfinite(values) & (values != 0), values, 1.0)
    sign = 1.0 if (values >= 0).all() else -1.0
    scale = {"large": LARGE, "small": SMALL, "turned": 1.0}[name]
    with np.errstate(over="ignore"):  # beyond a narrow format: infinite, as good as any
        return floats.round_to(sign * scale * values, dtype)


def whole(rows: np.ndarray, dtype: str) -> bool:
    """Returns whether all numbers are whole or infinite, as in masks and tokens."""
    values = floats.widen(rows, dtype) if dtype in floats.FORMATS else rows
    return bool(np.all((values == np.rint(values)) | np.isinf(values)))


def nudged(rows: np.ndarray, dtype: str) -> np.ndarray:
    """The same with every finite number other than zero moved by one unit in the last place.

    Up and down in turn: a program that normalises would not see them all grow.
    """
    if dtype not in floats.FORMATS:
        return rows
    bits = floats.to_bits(rows, dtype).copy()
    moved = floats.is_finite(rows, dtype) & (floats.widen(rows, dtype) != 0)
    up = (np.arange(bits.size) % 2 == 0).reshape(bits.shape)
    one = np.array(1, bits.dtype)
    bits[moved & up] += one
    bits[moved & ~up] -= one
    return floats.from_bits(bits, dtype)


def fits(told: Any, carries: Sequence[bool]) -> bool:
    """Returns whether a recipe that was read is one; ``carries``: which inputs have samples."""
    if not isinstance(told, dict) or len(told.get("inputs", ())) != len(carries):
        return False
    chosen, every = told.get("chosen"), zip(told["inputs"], carries, strict=True)
    if not isinstance(chosen, list) or not 1 <= len(chosen) <= MOST:
        return False
    if any(type(one) is not int or not 0 <= one < MOST * CANDIDATES for one in chosen):
        return False
    return all(_of_input(one) if carried else one is None for one, carried in every)


def _of_input(told: Any) -> bool:
    if not isinstance(told, dict) or set(told) not in ({"values"}, {"scale", "positive"}):
        return False
    values = told.get("values", [told.get("scale")])
    if not isinstance(values, list) or not 0 < len(values) <= KEPT:
        return False
    return all(isinstance(one, int | float) for one in values)
