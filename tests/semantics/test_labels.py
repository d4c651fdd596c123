"""Labels: what an index that is left out means, and which elements have equal ones."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from probe.semantics.labels import (
    BLOCK,
    joint,
    mixed,
    of_content,
    of_digest,
    premix,
    tag,
    unmix,
)
from probe.semantics.operations import function
from tests.semantics.formulas import result

RNG = np.random.default_rng(4)


def test_axes_are_filled_in_in_any_order() -> None:
    one = of_digest((3, 4), "w")
    first = one._replace(array=one.full([0])).full([1])
    assert np.array_equal(first, one._replace(array=one.full([1])).full([0]))
    assert np.array_equal(first, one.full())
    assert len(np.unique(one.full())) == 12


def test_numbers_are_scattered_as_published() -> None:
    """SplitMix64 from a seed of 0, and MurmurHash3's last step, which is undone by its inverse."""
    golden = 0x9E3779B97F4A7C15
    found = mixed(np.array([0, golden, golden * 2 % 2**64], np.uint64)).tolist()
    assert found == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    some = np.random.default_rng(2).integers(0, 2**64, 3 * BLOCK + 5, np.uint64)
    assert unmix(np.array([0, 1], np.uint64)).tolist() == [0, 0xB456BCFC34C2CB2C]
    assert np.array_equal(premix(unmix(some)), some) and np.array_equal(unmix(premix(some)), some)
    parts = np.concatenate([mixed(part) for part in np.array_split(some, 7)])
    assert np.array_equal(mixed(some), parts)
    scalars = [joint(a, b, b) for a, b in zip(some[:9], some[9:18], strict=True)]
    assert np.array_equal(np.array(scalars), joint(some[:9], some[9:18], some[9:18]))
    assert len(np.unique([joint(a, b) for a, b in product(some[:3], repeat=2)])) == 9
    words = (1,), (1.0,), ("1",), (1, 1), ("a", "bc"), ("ab", "c")
    assert len({int(tag(*some)) for some in words}) == 6


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint8", "float16", "float32", "int64", "complex64"]
)
def test_content_is_labelled_by_its_bits_and_format(dtype: str) -> None:
    array = np.array([[0, 1], [2, 1]]).astype(dtype)
    found = of_content(array).array
    assert found[0, 0] == 0 and found[0, 1] == found[1, 1] != 0
    assert len(np.unique(found)) == (2 if dtype == "bool" else 3)
    assert np.array_equal(of_content(array.T).array, found.T)
    assert not np.isin(found[0, 1], of_content(array.real.astype("int32")).array)
    if dtype == "complex64":
        one, turned, real = of_content(np.complex64([1j, 1, 1 + 1j])).array
        assert len({int(one), int(turned), int(real)}) == 3
    assert len(np.unique(of_content(np.array(["a", "b"])).array)) == 1


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_what_adds_nothing_or_multiplies_by_one_leaves_labels_as_they_are(shape):
    """Converters add biases of zeros, and libraries multiply by a slope of one."""
    one = of_digest((2, 3), "x")
    for word, number in (("add", 0), ("multiply", 1)):
        other = of_content(np.full(shape, number, np.float32))
        for reads in ((one, other), (other, one)):
            found = result(function(word), *reads, to=(2, 3))
            assert np.array_equal(found.full(), one.full()) and found.implicit(1)
        found = result(function(word), one, np.full(shape, 2.0))
        assert not np.array_equal(found.full(), one.full())
