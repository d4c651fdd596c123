"""Operations over groups of places: attention, and what its masks hide."""

from __future__ import annotations

import numpy as np
import pytest

from probe import floats
from probe.semantics import groups
from probe.semantics.groups import Attends, lowest
from probe.semantics.labels import of_content, tag


@pytest.mark.parametrize("dtype", floats.FORMATS)
def test_a_mask_hides_by_minus_infinity_and_by_the_lowest_number(dtype: str) -> None:
    least = floats.largest_finite(dtype)
    held = floats.round_to(np.array([-np.inf, -least, least, np.inf, -least / 2]), dtype)
    hides = np.isin(of_content(held).array, lowest(dtype))
    assert hides.tolist() == [True, True, False, False, False]


def _attended(*given: np.ndarray, **how: object) -> np.ndarray:
    """Labels of what attention gives: queries, keys, values and perhaps a mask."""
    shape = (*given[0].shape[:-1], given[2].shape[-1])
    found = Attends(**how).labels([of_content(one) for one in given], [shape], tag("test"))
    return found[0].full()


def _qkv(queries: int = 4, heads: int = 2) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    sizes = [(2, queries, 3), (heads, 5, 3), (heads, 5, 2)]
    return [rng.normal(size=size).astype(np.float32) for size in sizes]


def test_a_causal_query_sees_the_keys_up_to_its_own_as_masks_of_each_kind_say() -> None:
    given = _qkv()
    seen = np.tril(np.ones((4, 5), bool))
    causal = _attended(*given, causal=True)
    assert np.array_equal(causal, _attended(*given, seen, boolean=True))
    minus = np.where(seen, np.float32(0), np.float32(-np.inf))
    assert np.array_equal(causal, _attended(*given, minus))
    assert not np.isin(causal, _attended(*given)).any()
    for query in range(4):  # what is behind its own key changes nothing, its own key does
        later, own = ([one.copy() for one in given] for _ in range(2))
        later[1][:, query + 1 :], later[2][:, query + 1 :] = 7, 8
        own[1][:, query] = 7
        assert np.array_equal(_attended(*later, causal=True)[:, query], causal[:, query])
        assert not np.isin(_attended(*own, causal=True)[:, query], causal[:, query]).any()


def test_fewer_heads_of_keys_are_shared_by_neighbours() -> None:
    queries, keys, values = _qkv(heads=1)
    repeated = (np.repeat(one, 2, axis=0) for one in (keys, values))
    assert np.array_equal(_attended(queries, keys, values), _attended(queries, *repeated))


@pytest.mark.parametrize("steps", [groups.MOST_STEPS, 1])
def test_a_first_state_is_read_by_its_own_sample_alone(steps, monkeypatch) -> None:
    """Also of layers that are too large to be labelled step by step."""
    monkeypatch.setattr(groups, "MOST_STEPS", steps)
    rng = np.random.default_rng(5)
    sizes = [(3, 2, 2), (4, 2), (4, 4), (2, 4)]
    given = [rng.normal(size=size).astype(np.float32) for size in sizes]

    def labels(*arrays: np.ndarray) -> list[np.ndarray]:
        meaning = groups.Recurs(reads=(0, 1, 2, -1, -1, 3))
        reads = [of_content(one) for one in arrays]
        return [one.full() for one in meaning.labels(reads, [(3, 2, 4), (2, 4)], tag("test"))]

    before = labels(*given)
    state = given[3].copy()
    state[1] += 1
    every, last = (one != two for one, two in zip(before, labels(*given[:3], state), strict=True))
    assert not every[:, 0].any() and every[:, 1].all()
    assert not last[0].any() and last[1].all()
    inputs = given[0].copy()
    inputs[1, 0] += 1
    every, last = (one != two for one, two in zip(before, labels(inputs, *given[1:]), strict=True))
    assert not every[0].any() and every[1:, 0].all() and not every[:, 1].any()
    assert last[0].all() and not last[1].any()
