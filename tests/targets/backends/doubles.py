"""Algorithms for the tools that look for orders and roundings: ``reference`` with more of them.

``tests/conftest.py`` registers it under the name of probe's own, so that
``reference,algorithm=flush`` and the like are targets of the tests, here and in children.
"""

from __future__ import annotations

import random

import numpy as np

from probe.case import floats
from probe.targets.backends.contract import Key, Unsupported
from probe.targets.backends.reference import (
    KEYS,
    SUMS,
    Reference,
    ReferencePool,
    fma32,
    sequential,
    summing,
)


def added_in_order(order):
    """Returns an algorithm that adds products one by one; ``order(n)`` says in which order."""

    def algorithm(n, factors, arithmetic):
        leaves = iter(order(n))
        total = arithmetic.multiply(*factors(next(leaves)))
        for leaf in leaves:
            total = arithmetic.add(total, arithmetic.multiply(*factors(leaf)))
        return total

    return algorithm


def shuffled(n):
    """Another order at every call, on purpose."""
    order = list(range(n))
    random.SystemRandom().shuffle(order)
    return order


def blocked(n, factors, arithmetic):
    """Four accumulators, leaf i goes into number i mod 4; then (0 + 1) + (2 + 3)."""
    one_by_one = added_in_order(range)
    sums = [
        one_by_one(len(range(lane, n, 4)), lambda i, lane=lane: factors(lane + 4 * i), arithmetic)
        for lane in range(min(n, 4))
    ]
    while len(sums) > 1:
        pairs = [arithmetic.add(*pair) for pair in zip(sums[::2], sums[1::2], strict=False)]
        sums = pairs + sums[2 * len(pairs) :]
    return sums[0]


def flushed(array, name):
    """Returns values of a format with zeros of their sign for subnormal ones."""
    small = np.abs(array) < floats.flushed_below(name, "before")
    return np.where(small, np.copysign(np.zeros_like(array), array), array)


def truncated_sum(n, factors, arithmetic):
    """In order, exact products and sums in float32; the result is cut to 16 bits, toward zero."""
    if arithmetic.native:
        raise Unsupported(f"dtype={arithmetic.name}: algorithm=truncated is for 16 bits")
    total = np.zeros(1, np.float32)
    for leaf in range(n):
        x, w = factors(leaf)
        total = fma32(x, w, total)
    return arithmetic.widen(floats.cut_to(total.astype(np.float64), arithmetic.name))


def neighbour(n, factors, arithmetic):
    """In order, then the place after the window, times 0: what a NaN there gets into.

    Of a case without spatial axes it is the next batch entry. The last place has no neighbour.
    """
    total = sequential(n, factors, arithmetic)
    for beyond in behind_windows(factors):
        total = arithmetic.add(total, arithmetic.multiply(beyond, arithmetic.working.type(0)))
    return total


def behind_windows(factors):
    """What each channel has just behind the windows on the last axis, 0 behind the input."""
    x, axis, kernel = factors.x.array, len(factors.x.array.shape) - 1, factors.windows.kernel
    step = factors.windows.dilation[-1] if factors.x.out else 1
    around = [(0, 0)] * axis + [(0, step)]
    x = np.pad(x, around, "constant")
    place = tuple(size - 1 for size in kernel[:-1]) + tuple(kernel[-1:])
    inside = factors.windows.seen(place, factors.x.out) if factors.x.out else (slice(1, None),)
    for channel in range(factors.channels):
        yield x[(slice(None), channel, None, *([slice(None)] * bool(factors.x.out)), *inside)]


def flushing_sum(*what):
    """In order, with zeros for what is subnormal of ``what``, as threads in such a mode do it.

    Results are flushed as x86 does it; products of float64 after they are rounded.
    """

    def algorithm(n, factors, arithmetic):
        if arithmetic.name == "float16":
            raise Unsupported("dtype=float16: algorithm=flush is for wider exponents")
        total = None
        for leaf in range(n):
            x, w = factors(leaf)
            x = flushed(x, arithmetic.name) if "inputs" in what else x
            w = flushed(w, arithmetic.name) if "weights" in what else w
            term = arithmetic.multiply(x, w)
            if "products" in what:
                exact = x.astype(np.float64) * w.astype(np.float64)
                # a product of two float64 numbers is rounded in float64 already
                kind = "before" if arithmetic.name == "float64" else None
                small = np.abs(exact) < floats.flushed_below(arithmetic.name, kind)
                term = np.where(small, np.copysign(np.zeros_like(term), term), term)
            total = term if total is None else arithmetic.add(total, term)
            if "sums" in what and leaf:
                total = flushed(total, arithmetic.name)
        return total

    return algorithm


def short_sum(n, factors, arithmetic):
    """In order, in float32; the result is rounded to bfloat16, as where that is computed in it."""
    if arithmetic.name != "float32":
        raise Unsupported(f"dtype={arithmetic.name}: algorithm=short is float32 alone")
    total = sequential(n, factors, arithmetic)
    short = floats.widen(floats.round_float32_to(total, "bfloat16"), "bfloat16")
    return short.astype(np.float32)


def short_sums(n, factors, arithmetic):
    """In order, in float32; every second sum is rounded to float16."""
    if arithmetic.name != "float32":
        raise Unsupported(f"dtype={arithmetic.name}: algorithm=short_sums is float32 alone")
    total = arithmetic.multiply(*factors(0))
    for leaf in range(1, n):
        total = arithmetic.add(total, arithmetic.multiply(*factors(leaf)))
        if leaf % 2 == 0:
            total = floats.round_to(total, "float16").astype(np.float32)
    return total


def from_zero(n, factors, arithmetic):
    """In order, onto +0: a sum of negative zeros is +0."""
    total = np.zeros(1, arithmetic.working)
    for leaf in range(n):
        total = arithmetic.add(total, arithmetic.multiply(*factors(leaf)))
    return total


def off(n, factors, arithmetic):
    """In order, and a thousandth too much: a mistake in small sums, rounding in large ones."""
    return arithmetic.add(sequential(n, factors, arithmetic), arithmetic.working.type(0.001))


def winograd(n, factors, arithmetic):
    """Two products in one, which is no sum of products.

    x0 w0 + x1 w1 = (x0 + x1) (w0 + w1) - x0 w1 - x1 w0: as Karatsuba multiplies, and Winograd's
    F(2,3) transforms. For windows of 3 that lie side by side.
    """
    windows = factors.windows
    if not arithmetic.native or set(windows.kernel) != {3}:
        raise Unsupported("algorithm=winograd is for kernels of 3 in float32 and float64")
    if set(windows.stride) | set(windows.dilation) != {1}:
        raise Unsupported("algorithm=winograd has stride 1 and dilation 1")
    total = np.zeros(1, arithmetic.working)
    for leaf in range(0, n - 1, 2):
        (x0, w0), (x1, w1) = factors(leaf), factors(leaf + 1)
        total = total + ((x0 + x1) * (w0 + w1) - x0 * w1 - x1 * w0)
    return total + arithmetic.multiply(*factors(n - 1)) if n % 2 else total


DOUBLES = {
    "blocked": blocked,
    "reversed": added_in_order(lambda n: range(n - 1, -1, -1)),
    "truncated": truncated_sum,
    "neighbour": neighbour,
    "flush": flushing_sum("inputs", "weights", "products", "sums"),
    "flush_inputs": flushing_sum("inputs"),
    "flush_weights": flushing_sum("weights"),
    "flush_products": flushing_sum("products"),
    "flush_sums": flushing_sum("sums"),
    "from_zero": from_zero,
    "off": off,
    "short": short_sum,
    "short_sums": short_sums,
    "winograd": winograd,
    "random": added_in_order(shuffled),
}


class PoolDouble(ReferencePool):
    """Pools that add in the reversed order, or flush subnormal numbers."""

    def flushed(self, array):
        return flushed(array, self.arithmetic.name) if self.algorithm == "flush" else array

    def input(self, x):
        return self.flushed(super().input(x))

    def mean(self, x):
        return self.flushed(super().mean(x))

    def total(self, taps):
        if self.algorithm == "flush":
            total = taps[0]
            for tap in taps[1:]:
                total = self.flushed(self.arithmetic.add(total, tap))
            return total
        return super().total(taps[::-1] if self.algorithm == "reversed" else taps)


class Doubles(Reference):
    """probe's reference, and algorithms that a library may have."""

    keys = KEYS | {"algorithm": Key((*SUMS, *DOUBLES), "sequential", "of the tests")}

    def pool(self, spec, arithmetic):
        return PoolDouble(spec, arithmetic, self.algorithm)

    def computed(self, spec, arithmetic):
        return summing(spec, {**SUMS, **DOUBLES}[self.algorithm], arithmetic)
