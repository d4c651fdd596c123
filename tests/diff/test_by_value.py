"""Values of two programs are matched by being close on two inputs, up to the order of axes."""

import numpy as np

from probe.diff.by_value import Candidate, matched

RNG = np.random.default_rng(0)
PICTURES = tuple(RNG.standard_normal((2, 3, 4, 5)) for _ in range(2))


def of(operation: int, *arrays: np.ndarray, moves: bool = False) -> Candidate:
    return Candidate(operation, operation, (), lambda: arrays, "float32", moves)


def test_channels_stand_elsewhere_in_another_library() -> None:
    last = [np.ascontiguousarray(a.transpose(0, 2, 3, 1)) * (1 + 1e-6) for a in PICTURES]
    ((left, right, order),) = matched([of(0, *PICTURES)], [of(4, *last)])
    assert np.allclose(left.arrays()[0], right.arrays()[0].transpose(order), rtol=1e-5)


def test_what_is_close_on_one_input_alone_is_not_the_same() -> None:
    assert not matched([of(0, *PICTURES)], [of(0, PICTURES[0], PICTURES[1] * 2)])


def test_before_and_behind_a_bias_of_zeros_the_last_is_meant() -> None:
    ((_, right, _),) = matched([of(0, *PICTURES)], [of(3, *PICTURES), of(4, *PICTURES)])
    assert right.operation == 4


def test_branches_in_another_order_find_each_other() -> None:
    other = tuple(a * 3 + 1 for a in PICTURES)
    pairs = matched([of(0, *PICTURES), of(1, *other)], [of(0, *other), of(1, *PICTURES)])
    assert [(a.operation, b.operation) for a, b, _ in pairs] == [(0, 1), (1, 0)]


def test_a_result_is_matched_with_what_moves_it_only_where_nothing_computes_it() -> None:
    moved = of(1, *PICTURES, moves=True)
    ((_, right, _),) = matched([of(0, *PICTURES)], [of(0, *PICTURES), moved])
    assert not right.moves
    ((_, right, _),) = matched([of(0, *PICTURES)], [moved])
    assert right.moves


def test_on_one_input_what_is_close_to_several_is_matched_with_none() -> None:
    one = [of(0, *PICTURES)], [of(1, *PICTURES)]
    assert len(matched(*one, alone=True)) == 1
    assert not matched(one[0], [*one[1], of(2, *PICTURES)], alone=True)
    assert not matched([*one[0], of(3, *PICTURES)], one[1], alone=True)


def test_sizes_whose_squares_are_beyond_all_numbers_are_compared() -> None:
    large = [a * 1e300 for a in PICTURES]
    assert len(matched([of(0, *large)], [of(1, *large)])) == 1
