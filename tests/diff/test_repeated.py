"""Marks say which elements change with other content; a repetition's values are not kept."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from probe.diff.repeated import aligned, compact, differing, repeated
from probe.order.semantics import Unknown
from probe.record.recording import record_run
from tests.record.doubles import Doubles, Step

X = np.random.default_rng(0).standard_normal((4, 6)).astype("f4")


def steps(*functions: Callable[..., Any]) -> Sequence[Step]:
    reads = ["x", *range(len(functions) - 1)]
    return [Step(f"op{n}", Unknown(), f, [reads[n]]) for n, f in enumerate(functions)]


def other(rows: slice) -> np.ndarray:
    changed = X.copy()
    changed[rows] *= -3
    return changed


def test_rows_that_change_are_marked_and_a_mark_has_no_size_along_other_axes() -> None:
    program = steps(lambda x: x * 2, lambda y: y.T, lambda y: y.sum())
    run = record_run(Doubles({"x": X}, program))
    marks = repeated(run, [lambda: Doubles({"x": other(slice(1, None))}, program)])
    doubled, turned, total = (marks.of(op.gives[0]) for op in run.operations)
    assert marks.repetitions == 1
    assert doubled.tolist() == [[False], [True], [True], [True]]
    assert turned.tolist() == [[False, True, True, True]]
    assert total.all()


def test_what_another_branch_has_not_is_not_known_and_outputs_are_compared_still() -> None:
    def program(x: np.ndarray) -> Doubles:
        more = [lambda y: y + 1] if x[1, 0] < 0 else []
        chain = steps(lambda x: x * 2, *more, lambda y: y - y)
        chain[-1].op = "last"
        return Doubles({"x": x}, chain)

    base = np.abs(X)
    turned = base.copy()
    turned[1:] *= -1
    run = record_run(program(base))
    marks = repeated(run, [lambda: program(turned)])
    assert not marks.of(run.outputs[0]).any()
    run = record_run(program(turned))
    marks = repeated(run, [lambda: program(base)])
    assert marks.of(run.operations[1].gives[0]) is None


def test_a_repetition_that_fails_says_nothing() -> None:
    def fail(_: np.ndarray) -> np.ndarray:
        raise ValueError("no such token")

    run = record_run(Doubles({"x": X}, steps(np.tanh)))
    marks = repeated(run, [lambda: Doubles({"x": X}, steps(fail))])
    assert marks.repetitions == 0


def test_zeros_of_both_signs_are_alike_and_nan_is_itself() -> None:
    left, right = (np.array(v, "f4") for v in ([0.0, np.nan, 1], [-0.0, np.nan, 2]))
    assert differing(left, right, "float32").tolist() == [False, False, True]
    assert compact(np.zeros((3, 4), bool)).shape == (1, 1)


def test_operations_are_aligned_by_name_and_module() -> None:
    names = [record_run(Doubles({"x": X}, steps(np.tanh, np.sin, np.cos))).operations for _ in "ab"]
    assert aligned(*names) == [(0, 0), (1, 1), (2, 2)]
    assert aligned(names[0], names[1][1:]) == [(1, 0), (2, 1)]
