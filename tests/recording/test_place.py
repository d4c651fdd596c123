"""Functions whose bits depend on the place: vector loops and their remainders, other formulas."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from probe.recording import source
from probe.recording.difference import compare
from probe.recording.recording import recorded
from probe.semantics import Each, Meaning, Normalises
from tests.recording.doubles import Doubles, Step

RANDOM = np.random.default_rng(1)
WIDTH = 8


def vectorised(x: np.ndarray) -> np.ndarray:
    """exp, in vectors of 8 numbers; what is left over is rounded up."""
    flat = np.exp(x.astype(np.float64)).astype(np.float32).reshape(-1)
    start = flat.size // WIDTH * WIDTH
    flat[start:] = np.nextafter(flat[start:], np.float32(np.inf))
    return flat.reshape(x.shape)


def by_size(x: np.ndarray) -> np.ndarray:
    """exp, rounded up where there are many numbers."""
    y = np.exp(x.astype(np.float64)).astype(np.float32)
    return np.nextafter(y, np.float32(np.inf)) if x.size > 64 else y


def cause(
    function: Callable[[np.ndarray], np.ndarray],
    left: np.ndarray,
    right: np.ndarray,
    meaning: Meaning | None = None,
) -> source.Cause:
    step = Step("exp", meaning or Each("exp"), function, ["x"])
    sides = [recorded(Doubles({"x": one}, [step])) for one in (left, right)]
    found = compare(sides[0], sides[1])
    assert found.first is not None
    return source.explain(sides[0], sides[1], found.first)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.standard_normal(shape).astype(np.float32)


def test_a_remainder_is_a_place() -> None:
    x = normal(5, 13)
    found = cause(vectorised, x[:1], x)
    assert found.kind == "place" and found.explained
    assert "8 to 12" in found.why and "remainder behind a multiple of 8" in found.why


def test_a_call_that_is_all_remainder_is_told_by_a_longer_one() -> None:
    x = normal(24)
    found = cause(vectorised, x[:3], x)
    assert found.kind == "place" and found.explained and "in one call" in found.why


def coarser(x: np.ndarray) -> np.ndarray:
    """Another formula of exp, in the same vectors of 8 numbers."""
    return vectorised(x) * np.float32(1 + 1e-6)


def mostly(x: np.ndarray) -> np.ndarray:
    """The same function, but of another formula for some numbers."""
    return np.where(x.view(np.uint32) % 4 == 0, coarser(x), vectorised(x))


@pytest.mark.parametrize("other", [coarser, mostly])
@pytest.mark.parametrize("rows", [1, 5])
def test_a_border_between_places_is_no_proof_where_the_formula_is_another(
    other: Callable[[np.ndarray], np.ndarray], rows: int
) -> None:
    """Each side gives one number different bits at different places, and these are not the other
    side's."""
    x = normal(5, 13)
    steps = [Step("exp", Each("exp"), one, ["x"]) for one in (vectorised, other)]
    sides = [
        recorded(Doubles({"x": each}, [step]))
        for each, step in zip((x[:rows], x), steps, strict=True)
    ]
    first = compare(sides[0], sides[1]).first
    assert first is not None
    found = source.explain(sides[0], sides[1], first)
    assert found.kind == "algorithm" and found.replayed == found.examined


def test_a_remainder_is_found_for_each_differing_output() -> None:
    """In a call that is all remainder, against one that is none: longer calls show both results."""
    x = normal(40)
    found = cause(vectorised, x[:7], x)
    assert found.kind == "place" and found.examined == found.differing == 7


def test_another_formula_is_never_an_order() -> None:
    x = normal(5, 20)
    found = cause(by_size, x[:1], x)
    assert found.kind == "algorithm" and found.explained


def test_numbers_beside_the_own_place_are_no_place() -> None:
    x = normal(5, 20)
    sides = [
        recorded(
            Doubles(
                {"x": x}, [Step("f", Each("f"), lambda x, n=n: x * np.abs(x[0, :n]).sum(), ["x"])]
            )
        )
        for n in (7, 8)
    ]
    first = compare(sides[0], sides[1]).first
    assert first is not None
    found = source.explain(sides[0], sides[1], first)
    assert found.kind == "" and found.replayed < found.examined


@pytest.mark.parametrize("place", [0, 3])
def test_rows_at_other_places_are_a_place(place: int) -> None:
    x = normal(6, 10)

    def rows(x: np.ndarray) -> np.ndarray:
        y = np.exp(x - x.max(axis=1, keepdims=True))
        y = y / y.sum(axis=1, keepdims=True)
        if len(x) > 1:
            y[place] = np.nextafter(y[place], np.float32(0))
        return y

    found = cause(rows, x[place : place + 1], x, Normalises((1,), "softmax"))
    assert found.kind == "place" and found.explained
