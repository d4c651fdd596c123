"""Which elements have equal labels: at their place, else anywhere."""

from __future__ import annotations

import numpy as np
import pytest

from probe.semantics.labels import of_content, of_digest, of_lines
from tests.recorders.labelled import agreeing

RNG = np.random.default_rng(4)


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
            if side == 0:
                assert np.array_equal(chosen.rest(shapes[0], 0), ~np.isin(one, other))
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
        assert not (chosen.mask(sides[1].shape, 1) & ~second).any()
        taken = [chosen.taken(one, n) for n, one in enumerate(sides)]
        assert np.array_equal(*taken)
        back = chosen.put(np.zeros(sides[0].shape), taken[0], 0)
        assert np.array_equal(back, np.where(first, sides[0], 0))
