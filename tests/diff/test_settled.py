"""What follows from the sizes of the inputs is no source of a difference."""

import numpy as np

from probe.diff.running import by_running
from probe.diff.settled import SIZED
from probe.diff.walk import walk
from probe.targets import budget
from tests.diff.programs import compared, program, sources, tanh

X = np.random.default_rng(0).standard_normal((6, 8)).astype("f4")


def by_length(x: np.ndarray) -> np.ndarray:
    return x / np.float32(x.shape[1])


def sizes(x: np.ndarray) -> np.ndarray:
    return np.array(x.shape)


def test_a_divisor_or_a_shape_that_follows_from_the_length_is_no_source() -> None:
    for step in (by_length, sizes):
        difference = compared(X[:, :5], X, program(tanh, step))
        assert not difference.sources
        assert difference.operations[1].cause == "window"
        assert difference.operations[1].note == SIZED
        assert difference.agreement == "unknown"


def test_what_a_batch_rounds_to_fewer_digits_is_a_source_of_any_share() -> None:
    def shorter(x: np.ndarray) -> np.ndarray:
        y = np.tanh(x)
        return y.astype("f2").astype("f4") if len(x) > 1 else y

    def flushed(x: np.ndarray) -> np.ndarray:
        return np.where(np.abs(x) < (0.7 if len(x) > 1 else 0), np.float32(0), x)

    for step in (shorter, flushed):
        (found,) = compared(X[:1], X, program(tanh, step)).sources
        assert found.op == step.__name__ and found.differing > 2


def flips_a_few(x: np.ndarray) -> np.ndarray:
    y = x * 2
    y[0, 0] *= 1 if len(x) > 1 else -1
    return y


def test_a_few_elements_far_apart_are_a_source_as_an_overflow_is() -> None:
    assert sources(compared(X[:1], X, program(tanh, flips_a_few))) == [("flips_a_few", 1, 8)]


def test_another_library_may_compute_in_a_shorter_format() -> None:
    def shorter(x: np.ndarray) -> np.ndarray:
        bits = np.tanh(x).view(np.uint32) & np.uint32(0xFFFF0000) if len(x) > 1 else None
        return np.tanh(x) if bits is None else bits.view(np.float32)

    one, other = (program(shorter)({"x": x}) for x in (X[:1], X))
    other.target = "another"
    match = by_running(program(shorter), ({"x": X[:1]}, {"x": X}))
    difference = walk(one, other, explain=False, match=match)
    assert [r.op for r in difference.sources] == ["shorter"]


def test_of_outputs_the_answer_is_known_when_no_time_is_left_for_operations() -> None:
    other = X + np.float32(1)
    with budget.within("1h") as limit:
        assert limit is not None
        limit.ended = "the time was over"
        difference = compared(X, other, program(tanh))
    assert difference.verdict == "differs" and not difference.operations
    assert difference.notes[-1] == "no operations were compared: the time was over"
