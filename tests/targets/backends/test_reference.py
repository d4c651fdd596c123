"""The NumPy reference: one rounding an operation, in the order that its name says."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from probe.case import floats, ulp
from probe.targets.backends import conformance
from probe.targets.backends.reference import Arithmetic, fma32
from tests.exact import awkward, rounded
from tests.targets.backends.doubles import Doubles


def started(**switches):
    backend = Doubles()
    backend.start({key: str(value) for key, value in switches.items()}, "cpu")
    return backend


def run(backend, spec, x, w, b=None):
    return conformance.running(backend)(spec, x, w, b)


def report(length, **switches):
    """conv1d with 5 summands, x * w of very different sizes: every order gives different bits."""
    spec = conformance.spec("conv1d", [5])
    x = np.sin(np.arange(1, length + 1, dtype=np.float32) ** 2).reshape(1, length, 1)
    w = np.array([0.9, -1.7, 3.1, -0.6, 1.3], np.float32).reshape(5, 1, 1)
    return run(started(**switches), spec, x, w), x.ravel(), w.ravel()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_every_operation_is_rounded_once(dtype):
    arithmetic, count = Arithmetic(dtype), 3000
    a, b = awkward(dtype, count, 1), awkward(dtype, count, 2)
    wide_a, wide_b = arithmetic.widen(a), arithmetic.widen(b)
    with np.errstate(all="ignore"):
        sums = arithmetic.narrow(arithmetic.add(wide_a, wide_b))
        products = arithmetic.narrow(arithmetic.multiply(wide_a, wide_b))
    left, right = floats.widen(a, dtype), floats.widen(b, dtype)
    pairs = [(Fraction(x), Fraction(y)) for x, y in zip(left, right, strict=True)]
    for found, exact in ((sums, [x + y for x, y in pairs]), (products, [x * y for x, y in pairs])):
        expected = floats.round_to(np.array([rounded(value, dtype) for value in exact]), dtype)
        assert ulp.equal(found, expected, dtype)


def test_fused_multiply_add_is_rounded_once():
    count = 20_000
    a, b, c = (awkward("float32", count, seed) for seed in (1, 2, 3))
    with np.errstate(over="ignore"):
        c[::4] = -(a[::4] * b[::4])  # what remains is the rounding error of the product
    c[~np.isfinite(c)] = 1
    expected = [
        rounded(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)), "float32")
        for x, y, z in zip(a, b, c, strict=True)
    ]
    assert ulp.equal(fma32(a, b, c), np.array(expected).astype(np.float32), "float32")


@pytest.mark.filterwarnings("ignore:overflow")
def test_fused_multiply_add_keeps_infinities_and_nans():
    a = np.array([np.inf, np.inf, 1, np.nan], np.float32)
    c = np.array([1, -np.inf, np.inf, 1], np.float32)
    found = fma32(a, np.ones(4, np.float32), c)
    assert np.array_equal(found, [np.inf, np.nan, np.inf, np.nan], equal_nan=True)


def product(x, w, output):
    return [np.float32(x[output + k] * w[k]) for k in range(5)]


ORDERS = {
    "sequential": lambda p: (((p[0] + p[1]) + p[2]) + p[3]) + p[4],
    "reversed": lambda p: (((p[4] + p[3]) + p[2]) + p[1]) + p[0],
    "pairwise": lambda p: ((p[0] + p[1]) + (p[2] + p[3])) + p[4],
    "blocked": lambda p: ((p[0] + p[4]) + p[1]) + (p[2] + p[3]),
}


@pytest.mark.parametrize("algorithm", ORDERS)
def test_products_are_added_in_the_order_of_the_algorithms_name(algorithm):
    y, x, w = report(40, algorithm=algorithm)
    expected = [ORDERS[algorithm](product(x, w, output)) for output in range(36)]
    assert ulp.equal(y.ravel(), np.array(expected), "float32")


def test_leaves_are_numbered_by_kernel_position_then_channel_and_the_bias_comes_last():
    spec = conformance.spec("conv2d", [1, 2], in_channels=2, filters=1, bias=True)
    x = np.array([1, 2.0**24, -(2.0**24), 1], np.float32).reshape(1, 1, 2, 2)
    ones = np.ones((1, 2, 2, 1), np.float32)
    y = run(started(), spec, x, ones, np.array([2.0**-24], np.float32))
    assert y.item() == 1  # ((1 + 2**24) - 2**24) + 1 = 1, and 2**-24 is half an ulp of it


def test_length_switch_changes_the_order_from_that_output_length_on():
    sequential, pairwise = report(40)[0], report(40, algorithm="pairwise")[0]
    for length in range(5, 41):
        y = report(length, length_switch=20)[0]
        expected = (sequential if length - 4 < 20 else pairwise)[:, : length - 4]
        assert ulp.equal(y, expected, "float32")
    y = report(40, length_switch=20, algorithm="reversed")[0]
    assert ulp.equal(y, report(40, algorithm="reversed")[0], "float32")


@pytest.mark.parametrize(
    "algorithm", ["sequential", "pairwise", "blocked", "reversed", "random", "fused"]
)
@pytest.mark.slow_at("pairwise", "random", "reversed", "sequential")
def test_every_order_conforms(algorithm):
    dtypes = ("float32",) if algorithm == "fused" else conformance.DTYPES
    run_ = conformance.running(started(algorithm=algorithm))
    every_third = list(conformance.specs(dtypes))[::3]
    assert {conformance.compare_spec(*one, run_).verdict for one in every_third} == {"agrees"}
