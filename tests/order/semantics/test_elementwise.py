"""The table of functions: how often each rounds, against NumPy."""

from __future__ import annotations

import numpy as np

from probe.order.semantics import Unknown, contract, of_complex
from probe.order.semantics import operations as o
from probe.order.semantics.contract import Function, canonical, row_of


def test_what_is_said_of_functions_is_so_of_numpys() -> None:
    """In float16: what rounds nothing is exact there, and what rounds once is float64's rounded."""
    rng, tried = np.random.default_rng(8), []
    halves = (rng.normal(size=(2, 300)) * 9).astype(np.float16)
    for name, row in contract.FUNCTIONS.items():
        ufunc = getattr(np, name, None)
        if not isinstance(ufunc, np.ufunc) or ufunc.nin > 2 or name == "nextafter":
            continue
        given = halves.astype(int) if "bitwise" in name or "shift" in name else halves
        given = np.abs(given) if "shift" in name else given
        wide = given.astype("f8" if given.dtype.kind == "f" else int)
        with np.errstate(all="ignore"):
            half, exact = (ufunc(*some[: ufunc.nin]) for some in (given, wide))
            rounded = np.array_equal(half, exact.astype(half.dtype), equal_nan=True)
        same = np.array_equal(half, exact, equal_nan=True)
        assert row.rounds != 0 or same, name
        assert row.rounds != 1 or (not same and rounded), name
        tried.append(row.rounds)
    assert {0, 1, None} <= {*tried} and len(tried) > 40
    one, two = halves
    twice, once = np.square(one - two), np.square(one.astype(float) - two).astype(np.float16)
    assert row_of("squared_difference").rounds == 2 and (twice != once).any()


def test_what_compares_may_give_either_zero() -> None:
    every = contract.FUNCTIONS.items()
    zeros = {"clamp", "max", "min", "maximum", "minimum", "fmax", "fmin"}
    assert {name for name, row in every if row.either} == zeros
    assert {name for name, row in every if row.sloped} == {"leaky_relu"}


def test_a_function_has_one_name_and_an_unknown_one_its_own() -> None:
    assert (canonical("abs"), canonical("rint"), canonical("nonsense")) == (
        *("absolute", "round", "nonsense"),
    )
    assert row_of("nonsense") == Function() and not o.function("nonsense").exact
    assert all(canonical(name) == name for name in contract.FUNCTIONS)


def test_whether_a_function_is_exact_depends_on_its_numbers_and_the_library() -> None:
    every = {
        o.function("add"): True,
        o.function("add", alpha=2): False,  # a further product
        o.function("divide", rounding_mode="floor"): False,
        o.function("round", decimals=1): False,
        o.function("leaky_relu", alpha=0.1): True,  # whose factor is all that it rounds by
        o.approximate("sqrt"): False,
        o.function("multiply", beside=2.5): True,
        o.function("tanh"): False,
        o.clip(-1.0, 2.0): True,
    }
    assert {each: each.exact for each in every} == every


def test_products_and_sizes_of_complex_numbers_are_rounded_in_several_ways() -> None:
    words = "add multiply absolute negative exp cast".split()
    changed = [of_complex(o.function(word)) for word in words]
    called = ["add", "complex multiply", "complex absolute", "negative", "exp", "cast"]
    assert [each.word for each in changed] == called
    assert [each.exact for each in changed] == [True, False, False, True, False, True]
    assert of_complex(Unknown("w")) == Unknown("w")
