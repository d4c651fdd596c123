"""Labels: what an index that is left out means, and which elements have equal ones."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from probe.semantics.labels import (
    BLOCK,
    agreeing,
    joint,
    mixed,
    of_content,
    of_digest,
    of_lines,
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


@pytest.mark.parametrize("shape", [(7, 5), (7, 5, 3), (7, 1)])
def test_equal_numbers_of_a_batch_in_another_order_go_where_their_rows_do(shape) -> None:
    """Numbers of which many are equal, and two rows that are: any of these serves for the other.
    What is equal at its own place stays there."""
    for _ in range(20):
        whole = RNG.integers(0, 40, shape).astype(np.float32)
        rows = whole.reshape(7, -1)
        rows[:, 0] = np.arange(100, 107)
        rows[6] = rows[2]
        order = RNG.permutation(7)
        chosen = agreeing(of_content(whole[order]), of_content(whole))
        if chosen.whole:
            continue
        places = np.arange(whole.size).reshape(shape)
        at, to = (np.ravel(chosen.taken(places, side)) for side in (0, 1))
        assert len(at) == whole.size
        at, to = (some[at != to] for some in (at, to))
        inner = rows[0].size
        assert np.array_equal(at % inner, to % inner)
        assert np.array_equal(rows[order][at // inner], rows[to // inner])


def test_values_of_other_ranks_agree_element_by_element() -> None:
    left = RNG.normal(size=(2, 3))
    chosen = agreeing(of_content(left), of_content(left.reshape(6)))
    assert chosen.flat
    assert np.array_equal(chosen.taken(left, 0), chosen.taken(left.reshape(6), 1))


def test_other_sizes_along_an_axis_that_is_left_out() -> None:
    chosen = agreeing(of_digest((3, 4), "w"), of_digest((5, 4), "w"))
    assert chosen.mask((3, 4), 0).all()
    assert chosen.rest((5, 4), 1).all(1).tolist() == [False] * 3 + [True] * 2
    assert agreeing(of_digest((3, 4), "w"), of_digest((3, 4), "v")).empty
    one = of_digest((3, 4), "w")
    for axes in ([0], [1], [0, 1]):  # written out on one side alone
        assert agreeing(one, one._replace(array=one.full(axes))).whole
        assert agreeing(one._replace(array=one.full(axes)), one).whole


def test_equal_labels_are_found_at_the_same_place_first_and_then_anywhere() -> None:
    """Against a search through lists, on sizes and ranks at random."""
    for seed in range(300):
        rng = np.random.default_rng(seed)
        rank = int(rng.integers(1, 4))
        shapes = [tuple(rng.integers(1, 6, rank).tolist()) for _ in range(2)]
        few = int(rng.choice([2, 9, 200]))
        content = [rng.integers(0, few, shape).astype(np.float32) for shape in shapes]
        chosen = agreeing(*map(of_content, content))
        ours, theirs = (one.reshape(-1).tolist() for one in content)
        places = np.full(shapes[1], -1)
        both = tuple(slice(min(sizes)) for sizes in zip(*shapes, strict=True))
        inner = np.arange(len(ours)).reshape(shapes[0])[both]
        places[both] = inner
        there = {at: n for n, at in enumerate(places.reshape(-1).tolist()) if at >= 0}
        wanted = [n for n, value in enumerate(ours) if value in theirs]
        assert chosen.count(shapes[0]) == len(wanted) and chosen.empty == (not wanted)
        for side, (one, other) in enumerate(((content[0], content[1]), (content[1], content[0]))):
            assert np.array_equal(chosen.rest(shapes[side], side), ~np.isin(one, other))
        if chosen.whole:
            assert ours == theirs
        else:
            assert chosen.left.tolist() == wanted
            for n, m in zip(chosen.left.tolist(), chosen.right.tolist(), strict=True):
                here = there.get(n)
                assert theirs[m] == ours[n]
                assert m == here or here is None or theirs[here] != ours[n]


def test_rows_are_selected_whole_where_labels_name_rows_alone() -> None:
    """As along channels that are left out: against rows that are compared one by one."""
    for seed in range(60):
        rng = np.random.default_rng(seed)
        rows = [rng.integers(0, 4, (int(rng.integers(1, 5)), 1)) for _ in range(2)]
        sides = [np.concatenate([one, one * 10 + 5, one], 1) for one in rows]
        axes = int(rng.integers(2))
        sides = [one.T if axes else one for one in sides]
        chosen = agreeing(*(of_lines(np.float32(one), (axes,)) for one in sides))
        hit = np.isin(rows[0], rows[1])
        both = (hit, sides[0]), (np.isin(rows[1], rows[0]), sides[1])
        first, second = (np.broadcast_to(one.T if axes else one, to.shape) for one, to in both)
        assert chosen.axes in ((axes,), ()) and chosen.count(sides[0].shape) == first.sum()
        assert np.array_equal(chosen.mask(sides[0].shape, 0), first)
        assert np.array_equal(chosen.rest(sides[1].shape, 1), ~second)
        taken = [chosen.taken(one, n) for n, one in enumerate(sides)]
        assert np.array_equal(*taken)
        back = chosen.put(np.zeros(sides[0].shape), taken[0], 0)
        assert np.array_equal(back, np.where(first, sides[0], 0))


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
