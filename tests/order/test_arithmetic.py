"""One rounding each: every format against exact arithmetic, on operands that provoke two."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from probe.case import floats, ulp
from probe.order import arithmetic
from probe.order.replay import replay
from probe.order.summation import Rounding, Summation
from probe.order.tree import Tree
from tests.exact import awkward, rounded


def multiply_add(a: np.ndarray, b: np.ndarray, c: np.ndarray, name: str) -> np.ndarray:
    """a * b + c rounded once."""
    fused = Summation(Tree.parse("(0+b)"), Rounding(fused=frozenset([0])))
    return replay(fused, a[None], b[None], name, c)


def multiply(a: np.ndarray, b: np.ndarray, name: str) -> np.ndarray:
    return replay(Summation(Tree.parse("0")), a[None], b[None], name)


def exact(name: str, *terms: tuple[np.ndarray, ...]) -> np.ndarray:
    """The sum of the products of the given arrays, rounded once, element by element."""
    columns = [[floats.widen(factor, name).tolist() for factor in term] for term in terms]
    results = []
    for i in range(len(terms[0][0])):
        total = Fraction(0)
        for term in columns:
            product = Fraction(1)
            for factor in term:
                product *= Fraction(factor[i])
            total += product
        results.append(rounded(total, name))
    return floats.round_to(np.array(results), name)


def assert_equal(got: np.ndarray, expected: np.ndarray, name: str) -> None:
    found = ulp.differences(got, expected, name)
    assert not found.index.size, f"{found.index.size} differ, first: {[f[0] for f in found]}"


@pytest.mark.parametrize("name", floats.FORMATS)
def test_awkward_operands(name: str) -> None:
    a, b, c = (awkward(name, 1000, seed) for seed in (1, 2, 3))
    assert_equal(multiply_add(a, b, c, name), exact(name, (a, b), (c,)), name)
    one = np.broadcast_to(floats.round_to(np.ones(1), name), a.shape)
    assert_equal(multiply_add(a, one, c, name), exact(name, (a,), (c,)), name)
    assert_equal(multiply(a, b, name), exact(name, (a, b)), name)


def test_float64_sums_of_products_of_any_size_are_rounded_once() -> None:
    """Sizes all over, and on both sides of where the error-free steps could over- or underflow."""
    rng, count = np.random.default_rng(6), 500
    bounds = np.array([-1074, -1022, -960, 0, 900, 990, 1000, 1010, 1023])
    powers = np.clip(
        bounds[rng.integers(0, 9, (6, count))] + rng.integers(-3, 3, (6, count)), -1074, 1023
    )
    sizes = powers[0] - powers[1] * (rng.random(count) < 0.9)  # their product has such a size
    sizes = np.clip(sizes, -1074, 1023)
    a, b, x, w, c, d = np.ldexp(rng.uniform(-2, 2, (6, count)), [sizes, *powers[1:]]) / 2
    with np.errstate(all="ignore"):
        c = np.where(rng.random(count) < 0.5, np.clip(-a * b, -1e308, 1e308), c)
        d = np.where(rng.random(count) < 0.5, np.nextafter(-c, 0), d)
        got = multiply_add(a, b, c, "float64")
        assert_equal(got, exact("float64", (a, b), (c,)), "float64")
        terms = (
            ([(a, b)], [c]),
            ([(a, b), (x, w)], [c]),
            ([(a, b), (x, w)], [c, d]),
            ([(a, b)], [c, d]),
        )
        for factors, some in terms:
            got = arithmetic.sum_of_products(factors, some)
            assert_equal(got, exact("float64", *factors, *((one,) for one in some)), "float64")
    odd = np.array([np.inf, 1.0, np.nan, -np.inf, 2.0**1000, 2.0**1000])
    with np.errstate(all="ignore"):
        found = arithmetic.sum_of_products([(odd, np.full(6, 2.0**1000))], [-odd])
    np.testing.assert_array_equal(found, [np.nan, 2.0**1000 - 1, np.nan, np.nan, np.inf, np.inf])


@pytest.mark.parametrize("tiny", [True, False])
@pytest.mark.parametrize("name", [*floats.FORMATS, "tf32"])
def test_sums_of_two_exact_terms_are_rounded_once(name: str, tiny: bool) -> None:
    """Around midpoints, with a tail that float64 loses; with ``tiny`` below normal numbers too."""
    form, rng, count = floats.format_of(name), np.random.default_rng(7), 300
    digits = form.precision
    grid = rng.integers(2 ** (digits - 1), 2**digits, count) * 2.0 ** (1 - digits)
    half = rng.integers(-3, 4, count) * 2.0**-digits
    tail = rng.choice([0, 1, -1], count) * 2.0 ** -rng.integers(digits + 1, 100, count)
    power = rng.integers(-4, 4, count).astype(float)
    if tiny and name != "float64":
        below = form.emin + rng.integers(-digits, 2, count)
        power = np.where(rng.random(count) < 0.5, below, power)
        on_grid = np.rint(grid * 2.0 ** (power - form.emin + digits - 1)) * 2.0 ** (
            form.emin - digits + 1
        )
        grid, half = (
            on_grid * 2.0**-power,
            np.where(power < 0, 2.0 ** (form.emin - digits - power), half),
        )
    first = (grid + half) * 2.0**power if name != "float64" else grid
    second = tail * 2.0**power
    rounder, out = arithmetic.Rounder(name, count, tiny), np.empty(count)
    rounder.settle(rounder.total(first, second, out))
    pairs = zip(first.tolist(), second.tolist(), strict=True)
    expected = [rounded(Fraction(one) + Fraction(other), name) for one, other in pairs]
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("kind", [None, "before", "grid"])
def test_what_counts_as_subnormal_in_float64_is_told_by_the_exact_sum(kind: str | None) -> None:
    """2^-1022 less k units of the grid, and m / 64 of one more, of either sign."""
    least, unit = Fraction(2) ** -1022, Fraction(2) ** -1074
    limit = {None: least - unit / 4, "before": least, "grid": least - unit / 2}[kind]
    table = [(k, m, sign) for k in (-1, 0, 1, 2) for m in range(-70, 71) for sign in (1, -1)]
    k, m, sign = (np.array(side, float) for side in zip(*table, strict=True))
    x, w = sign * m * 2.0**-540, np.full(len(k), 2.0**-540)
    terms = [sign * 2.0**-1022, -sign * k * 2.0**-1074]
    total = [least - a * unit + b * unit / 64 for a, b, _ in table]
    once = np.array(
        [rounded(one * int(c), "float64") for one, (_, _, c) in zip(total, table, strict=True)]
    )
    found = arithmetic.tiny_doubles([(x, w)], terms, once, kind)
    # the tie between the two numbers of the grid goes to the even one, 2^-1022
    assert found.tolist() == [one < limit for one in total]


@pytest.mark.parametrize("name", floats.FORMATS)
def test_infinities_nan_and_zeros(name: str) -> None:
    inf, nan, big = np.inf, np.nan, floats.largest_finite(name)
    table = [
        (inf, 1, -inf, nan),
        (inf, 0, 1, nan),
        (nan, 1, 1, nan),
        (1, 1, nan, nan),
        (big, 2, -inf, -inf),
        (big, big, inf, inf),
        (big, 1, big, inf),
        (big, 2, -big, big),
        (0, 5, -0.0, 0),
        (-0.0, 5, -0.0, -0.0),
        (1, -1, 1, 0),
    ]
    a, b, c, expected = (floats.round_to(np.array(side), name) for side in zip(*table, strict=True))
    got = floats.widen(multiply_add(a, b, c, name), name)
    np.testing.assert_array_equal(got, floats.widen(expected, name))
    zero = got == 0
    np.testing.assert_array_equal(np.signbit(got[zero]), [False, True, False])


@pytest.mark.parametrize("spread", [3, 60, 500])
def test_exact_total_of_many_terms_is_rounded_once(spread: int) -> None:
    rng = np.random.default_rng(8)
    for count in (1, 2, 3, 7):
        shape = (count, 60)
        terms = list(rng.standard_normal(shape) * 2.0 ** rng.integers(-spread, spread, shape))
        terms += [-terms[0] * (1 + rng.integers(-1, 2, 60) * 2.0**-52), terms[-1] * 2.0**-70]
        total, error = arithmetic.exact_total(terms)
        for i in range(60):
            true = sum((Fraction(float(term[i])) for term in terms), Fraction(0))
            assert total[i] == rounded(true, "float64")
            assert np.sign(error[i]) == (true > Fraction(total[i])) - (true < Fraction(total[i]))


def test_exact_total_follows_infinities_and_overflow_on_the_way() -> None:
    big = np.finfo(float).max
    terms = [np.array([np.inf, np.inf, big]), np.array([1, -np.inf, big]), np.array([1, 1, -big])]
    np.testing.assert_array_equal(arithmetic.exact_total(terms)[0], [np.inf, np.nan, big])
