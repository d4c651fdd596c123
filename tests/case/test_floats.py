"""Bits, values and the one rounding between formats, against exact rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from probe.case import floats
from tests.exact import awkward, rounded

finite = st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.parametrize("name", floats.FORMATS)
def test_every_pattern_of_a_16_bit_format_and_some_of_the_others_survive(name: str) -> None:
    bits = np.arange(1 << 16, dtype=np.uint64) * np.uint64(1 << (floats.FORMATS[name].bits - 16))
    bits = bits.astype(floats.FORMATS[name].unit)
    array = floats.from_bits(bits, name)
    np.testing.assert_array_equal(floats.to_bits(array, name), bits)
    values = floats.widen(array, name)
    numbers = ~np.isnan(values)
    back = floats.to_bits(floats.round_to(values, name), name)
    np.testing.assert_array_equal(back[numbers], bits[numbers])
    assert np.isnan(floats.widen(floats.from_bits(back[~numbers], name), name)).all()


@pytest.mark.parametrize("name", floats.GRIDS)
@given(value=finite)
def test_rounding_is_the_nearest_with_ties_to_even(name: str, value: float) -> None:
    assert floats.nearest(np.array([value]), name)[0] == rounded(Fraction(value), name)


@pytest.mark.parametrize("name", floats.FORMATS)
@given(value=finite)
def test_cutting_gives_the_largest_that_is_no_larger(name: str, value: float) -> None:
    found = floats.cut_to(np.array([value, -value]), name)
    down, up = floats.widen(found, name)
    assert down == -up and abs(down) <= abs(value) and np.isfinite(down)
    larger = floats.to_bits(found, name)[:1].astype(np.uint64) + np.uint64(1)  # in size
    above = abs(floats.widen(floats.from_bits(larger, name), name)[0])
    assert not above <= abs(value)  # past the largest number is a NaN in float64


def test_bfloat16_rounds_as_ml_dtypes_does() -> None:
    values = awkward("float32", 5000, 2)
    expected = values.astype(ml_dtypes.bfloat16).view(np.uint16)
    np.testing.assert_array_equal(floats.round_float32_to(values, "bfloat16"), expected)
    np.testing.assert_array_equal(floats.round_to(values, "bfloat16"), expected)


def test_nan_stays_nan_and_infinity_infinity() -> None:
    odd = np.array([np.nan, np.inf, -np.inf])
    for name in floats.FORMATS:
        np.testing.assert_array_equal(floats.widen(floats.round_to(odd, name), name), odd)
    payload = np.array([0x7F800001, 0xFFFFFFFF], dtype=np.uint32).view(np.float32)
    assert np.isnan(floats.widen(floats.round_float32_to(payload, "bfloat16"), "bfloat16")).all()


def test_bfloat16_arrays_of_people_are_seen_as_bit_patterns_without_a_copy() -> None:
    public = np.array([1.0, -2.5], dtype=ml_dtypes.bfloat16)
    inside = floats.to_container(public, "bfloat16")
    assert inside.dtype == np.uint16 and np.shares_memory(inside, public)
    assert floats.from_container(inside, "bfloat16").dtype == public.dtype


def test_a_value_is_never_converted_in_silence() -> None:
    with pytest.raises(TypeError, match="dtype=float64: float32 arrays travel as float32"):
        floats.to_container(np.zeros(2), "float32")
    with pytest.raises(ValueError, match="format=float8: there is no such format"):
        floats.eps("float8")
    with pytest.raises(ValueError, match="dtype=tf32: no array has this format"):
        floats.container_of_format("tf32")


def test_text_has_the_shortest_digits_and_the_bits() -> None:
    assert floats.bits_text(0x42C26672, "float32") == "97.20009 (0x42c26672)"
    assert floats.bits_text(0x3F80, "bfloat16") == "1.0 (0x3f80)"
