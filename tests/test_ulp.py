"""The one comparison: the ordered integers, the policy, and places where bits differ."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from probe import floats, ulp

PATTERNS = st.integers(0, 2**32 - 1)


def f32(*bits: int) -> np.ndarray:
    return np.array(bits, dtype=np.uint32).view(np.float32)


@pytest.mark.parametrize("name", floats.FORMATS)
def test_numbers_count_values_in_increasing_order(name: str) -> None:
    one = floats.round_to(np.array([1.0]), name)
    numbers = ulp.ordered_number(floats.to_bits(one, name), name) + np.arange(-40, 41)
    values = floats.widen(floats.from_bits(ulp.from_ordered(numbers, name), name), name)
    assert (np.diff(values) > 0).all()
    np.testing.assert_array_equal(
        ulp.ordered_number(ulp.from_ordered(numbers, name), name), numbers
    )


def test_the_map_of_a_16_bit_format_is_monotone_over_all_values() -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    bits = bits[~ulp.is_nan(bits, "float16")]
    values, numbers = bits.view(np.float16), ulp.ordered_number(bits, "float16")
    order = np.argsort(numbers, kind="stable")
    assert (np.diff(values[order].astype(float)) >= 0).all()
    assert len(np.unique(numbers)) == len(bits) - 1  # the two zeros share one


def test_policy() -> None:
    plus, minus, inf, nan = np.float32(0), np.float32(-0.0), np.float32(np.inf), np.float32(np.nan)
    largest = np.finfo(np.float32).max
    cases = [
        (plus, minus, 0),
        (nan, -nan, 0),
        (nan, f32(0x7F800001)[0], 0),
        (nan, plus, ulp.NAN),
        (inf, nan, ulp.NAN),
        (inf, inf, 0),
        (largest, inf, 1),
        (minus, f32(1)[0], 1),
        (f32(0x80000001)[0], f32(1)[0], 2),
    ]
    for a, b, expected in cases:
        assert ulp.distance(np.array([a]), np.array([b]), "float32")[0] == expected, (a, b)
        assert ulp.equal(np.array([a]), np.array([b]), "float32") == (expected == 0)
    assert {row[0] for row in ulp.POLICY} >= {"+0 against -0", "NaN against a number"}


@given(st.lists(st.tuples(PATTERNS, PATTERNS), min_size=1, max_size=20))
def test_differences_are_the_nonzero_distances(pairs: list[tuple[int, int]]) -> None:
    a, b = (f32(*side) for side in zip(*pairs, strict=True))
    far = ulp.distance(a, b, "float32")
    found = ulp.differences(a, b, "float32")
    np.testing.assert_array_equal(found.index, np.flatnonzero(far))
    np.testing.assert_array_equal(found.ulps, far[far != 0])
    np.testing.assert_array_equal(found.bits_a, a.view(np.uint32)[far != 0])
    np.testing.assert_array_equal(
        ulp.distance(b, a, "float32")[far != ulp.NAN], -far[far != ulp.NAN]
    )


@given(st.integers(-(2**62), 2**62), st.integers(-(2**62), 2**62))
def test_float64_distances_are_exact(first: int, second: int) -> None:
    a, b = (ulp.from_ordered(np.array([n]), "float64").view(float) for n in (first, second))
    if not (np.isnan(a) | np.isnan(b)).any():
        assert ulp.distance(a, b, "float64")[0] == second - first


def test_float64_distances_beyond_int64_are_python_integers_and_stored_at_the_end() -> None:
    largest = np.array([np.finfo(float).max])
    exact = 2 * 0x7FEFFFFFFFFFFFFF
    assert ulp.distance(-largest, largest, "float64").tolist() == [exact]
    assert ulp.max_ulp(largest, -largest, "float64") == exact
    assert ulp.differences(largest, -largest, "float64").ulps.tolist() == [-(2**63 - 1)]


@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (1, 200_000), (3, 70_000), (5, 6, 7)])
def test_places_are_found_in_every_shape(shape: tuple[int, ...]) -> None:
    a = np.ones(shape, dtype=np.float32)
    b = a.copy()
    places = [i for i in (0, a.size // 2, a.size - 1) if a.size]
    b.reshape(-1)[places] = 2
    assert ulp.differences(a, b, "float32").index.tolist() == sorted(set(places))


def test_slices_that_are_not_contiguous_have_their_own_flat_positions() -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((2, 300, 400)).astype(np.float32)
    b = np.where(rng.random(a.shape) < 0.01, a + 1, a).astype(np.float32)
    cut = (slice(None), slice(7, 250, 2), slice(3, -5))
    found = ulp.differences(a[cut], b[cut], "float32")
    np.testing.assert_array_equal(found.index, np.flatnonzero(a[cut] != b[cut]))
    np.testing.assert_array_equal(found.bits_b, b[cut][a[cut] != b[cut]].view(np.uint32))


def test_max_ulp_is_none_where_only_nans_differ() -> None:
    a, b = np.array([1, np.nan]), np.array([np.nan, 1])
    assert ulp.max_ulp(a, b, "float64") is None
    assert ulp.max_ulp(np.append(a, 1), np.append(b, np.nextafter(1, 2)), "float64") == 1
    assert ulp.max_ulp(a, a, "float64") == 0


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match=r"shapes=\(2,\), \(3,\): only arrays of one shape"):
        ulp.differences(np.zeros(2), np.zeros(3), "float64")


@pytest.mark.parametrize("share", [0.0, 0.0005, 0.2, 1.0])
@pytest.mark.parametrize("name", floats.FORMATS)
def test_few_and_many_differences_are_told_alike(name: str, share: float) -> None:
    rng = np.random.default_rng(3)
    unit = floats.FORMATS[name].unit
    largest = int(np.iinfo(unit).max)
    bits = rng.integers(0, largest, 300_001, dtype=unit, endpoint=True)
    other = rng.integers(0, largest, bits.size, dtype=unit, endpoint=True)
    other = np.where(rng.random(bits.size) < share, other, bits)
    for cut in (slice(None), slice(1, None), slice(3, -2), slice(0, None, 3)):
        a, b = (floats.from_bits(side, name)[cut] for side in (bits, other))
        far = ulp.distance(a, b, name)
        found = ulp.differences(a, b, name)
        np.testing.assert_array_equal(found.index, np.flatnonzero(far))
        near = np.abs(found.ulps) < 2**63 - 1
        np.testing.assert_array_equal(found.ulps[near], far[far != 0][near].astype(np.int64))
        sizes = [abs(int(one)) for one in far[far != 0] if one != ulp.NAN]
        assert ulp.max_ulp(a, b, name) == (max(sizes) if sizes else 0)


def test_a_single_difference_is_found_wherever_it_is() -> None:
    a = np.ones(200_000, dtype=np.float32)
    for place in (0, 1, 65_535, 65_536, 199_998, 199_999):
        b = a.copy()
        b[place] = np.nextafter(np.float32(1), np.float32(2))
        assert ulp.differences(a, b, "float32").index.tolist() == [place]
        assert ulp.differences(a[1:], b[1:], "float32").index.tolist() == [place - 1] * (place > 0)
        assert ulp.max_ulp(a, b, "float32") == 1


@pytest.mark.parametrize("name", ["float16", "float32"])
def test_distances_of_many_blocks_and_of_slices(name: str) -> None:
    form = floats.format_of(name)
    random = np.random.default_rng(3)
    sides = random.integers(0, 2**form.bits, (2, 7, 30_011, 2), dtype=form.unit)
    a, b = floats.from_bits(sides, name)[:, :, 1:, 0]
    bits = sides[:, :, 1:, 0]
    first, second = ulp.ordered_number(bits, name)
    nan_a, nan_b = ulp.is_nan(bits, name)
    expected = np.where(nan_a & nan_b, 0, second - first)
    expected[nan_a != nan_b] = ulp.NAN
    assert (ulp.distance(a, b, name) == expected).all()
