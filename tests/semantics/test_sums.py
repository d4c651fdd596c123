"""Operations that read whole axes, and updates that are added at places."""

from __future__ import annotations

import numpy as np

from probe.semantics.labels import of_content, tag
from probe.semantics.sums import Scans, Whole

RNG = np.random.default_rng(11)
WHAT = tag("test")


def _whole(*given: np.ndarray, **how: object) -> np.ndarray:
    meaning = Whole(kept=((0, 0),), **how)
    (found,) = meaning.labels([of_content(one) for one in given], [(3, 2)], WHAT)
    return found.full()


def _changed(before: np.ndarray, after: np.ndarray) -> list[bool]:
    """Which rows have other labels; each has other ones for all of its elements, or for none."""
    differ = before != after
    assert (differ.all(axis=1) == differ.any(axis=1)).all()
    return differ.any(axis=1).tolist()


def test_a_row_of_the_batch_reads_itself_and_all_of_the_other_inputs() -> None:
    x, other = RNG.normal(size=(3, 4, 2)), RNG.normal(size=(3, 5))
    found = _whole(x, other)
    assert len(np.unique(found)) == 6
    one, turned = x.copy(), x.copy()
    one[1, 2, 0] += 1
    turned[2] = turned[2, ::-1]
    assert _changed(found, _whole(one, other)) == [False, True, False]
    assert _changed(found, _whole(turned, other)) == [False, False, True]
    more = other.copy()
    more[2, 0] += 1
    assert _changed(found, _whole(x, more)) == [True, True, True]
    assert _changed(found, _whole(x, other, numbers=(1,))) == [True, True, True]
    one_column = Whole(kept=((0, 0),)).labels([of_content(x)], [(3, 1)], WHAT)[0].full()
    assert len(np.unique(one_column)) == 3


def test_of_an_input_with_a_row_for_each_it_reads_its_own() -> None:
    x, mask, rest = RNG.normal(size=(3, 4)), RNG.normal(size=(3, 5)), RNG.normal(size=3)
    found = _whole(x, mask, rest, rows=(1,))
    more = mask.copy()
    more[2, 0] += 1
    assert _changed(found, _whole(x, more, rest, rows=(1,))) == [False, False, True]
    assert _changed(found, _whole(x, mask, rest + 1, rows=(1,))) == [True, True, True]


def test_a_cell_reads_its_own_row_of_the_first_states_and_all_steps_up_to_its_own() -> None:
    scan = Scans(0, "cell", mixes=(2,), states=(1,), batch=1)
    x, state = RNG.normal(size=(4, 3, 2)), RNG.normal(size=(1, 3, 5))
    shapes = [(4, 3, 5), (1, 3, 5)]

    def labels(x: np.ndarray, state: np.ndarray) -> list[np.ndarray]:
        return [found.full() for found in scan.labels([*map(of_content, (x, state))], shapes, WHAT)]

    steps, last = labels(x, state)
    assert len(np.unique(steps)) == steps.size and len(np.unique(last)) == 15
    more = state.copy()
    more[0, 1, 4] += 1
    for before, after in zip((steps, last), labels(x, more), strict=True):
        differ = (before != after).all(axis=(0, 2))
        assert differ.tolist() == (before != after).any(axis=(0, 2)).tolist() == [0, 1, 0]
    later = x.copy()
    later[2, 0, 1] += 1
    differ = steps != labels(later, state)[0]
    assert differ.any(axis=2).T.tolist() == [[0, 0, 1, 1], [0] * 4, [0] * 4]
