"""Operations over groups of places: attention, and what its masks hide."""

from __future__ import annotations

import numpy as np
import pytest

from probe import floats
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
