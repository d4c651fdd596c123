"""NumPy's functions recorded: what runs alone, what keeps the trace, and what loses it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from probe.case import layout
from probe.diff import source
from probe.diff.difference import compare_runs
from probe.diff.match import RunningMatch
from probe.order.semantics import Contracts, Meaning, normalised
from probe.record.ndarray import ArrayRecorder, operation
from probe.record.recording import record_run
from probe.ui.answers.first_difference import first_difference
from tests.record.recorded import alone, bits, events, wrong


def softmax_meaning(array: Any, axis: int = -1) -> Meaning:
    """What a softmax along an axis computes."""
    return normalised("softmax", (axis % np.ndim(array),))


@operation("softmax", softmax_meaning)
def softmax(array: np.ndarray, axis: int = -1) -> np.ndarray:
    """Returns the softmax along an axis, as one operation."""
    with np.errstate(invalid="ignore"):
        raised = np.exp(array - array.max(axis, keepdims=True))
    found: np.ndarray = raised / raised.sum(axis, keepdims=True)
    return found


def product(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """A product whose sums go from the first to the last."""
    found = x[..., :1] * w[0]
    for k in range(1, len(w)):
        found = found + x[..., k, None] * w[k]
    return found


def test_operations_run_alone_give_what_was_recorded() -> None:
    """``again`` on the recorded operands, and the lines that a user writes."""
    x = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)

    def run(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        y = softmax(np.tanh(x @ w).reshape(2, 2, 6).transpose(1, 0, 2))
        y[:, 0] = 1
        y += 1
        return np.concatenate([y, np.pad(y, ((0, 0), (0, 1), (0, 0)))], 1).sum((1, 2))

    recorder = ArrayRecorder(run, x, w=x[:, :6].T @ x)
    assert len(alone(recorder)[1]) > 4
    assert bits(record_run(recorder).results) == bits(recorder.plain())


@pytest.mark.parametrize("offset", [4, 8, 20])
def test_an_operand_that_is_a_view_begins_where_it_began(offset: int) -> None:
    x = np.random.default_rng(0).normal(size=(3, 50)).astype(np.float32)
    w = np.random.default_rng(1).normal(size=(50, 8)).astype(np.float32)

    def added(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return product(x, w) if w.ctypes.data % 16 == 0 else product(x[:, ::-1], w[::-1])

    made = operation("matmul", Contracts("mk,kn->mn"))(added)
    run = lambda x, w: made(x, w)  # noqa: E731
    sides = [record_run(ArrayRecorder(run, x, w=layout.copied(w, at))) for at in (0, offset)]
    first = compare_runs(RunningMatch.of(*sides)).first
    assert first is not None and sides[1].values[1].address == offset
    (one,) = sides[1].operations
    arrays = sides[1].arrays({*one.reads, *one.gives})
    (found,) = sides[1].operations[0].again([arrays[n] for n in one.reads])
    assert found.tobytes() == arrays[one.gives[0]].tobytes()
    cause = source.find_cause(*sides, first)
    assert cause.kind == "alignment" and cause.replayed == cause.differing > 0
    space: dict[str, Any] = {"np": np, "x0": x, "x1": w}
    lines = sides[1].operations[0].lines
    assert lines is not None
    exec("\n".join(lines(["x0", "x1"], "y")), space)
    assert space["x1"].ctypes.data % 64 == offset and (space["x1"] == w).all()


def _in_place(x: np.ndarray) -> np.ndarray:
    x += 1
    y = x.copy()
    y -= y.max(axis=1, keepdims=True)
    np.exp(y, out=y)
    return y


METHODS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "where, numbers": lambda x: np.where(x > 0, x, 0) * 2,
    "where, lists": lambda x: np.where([[True] * 6] * len(x), x, 0.5),
    "dot": lambda x: x.dot(np.ones((6, 2), x.dtype)),
    "copy": lambda x: x.copy() + 1,
    "flatten": lambda x: x.flatten().reshape(x.shape).clip(-1, 1),
    "in place": _in_place,
    "into a watched array": lambda x: np.sum(x, axis=1, out=np.zeros_like(x[:, 0])) * 2,
    "concatenate, list": lambda x: np.concatenate([x, [[0.5] * 6]]),
}


@pytest.mark.parametrize("name", METHODS)
def test_methods_and_written_results_keep_the_trace_and_the_bits(name: str) -> None:
    function = METHODS[name]
    x = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)
    kept, wanted = x.copy(), function(x.copy())
    assert not [why for event in events(ArrayRecorder(function, x)) if (why := wrong(event))]
    assert record_run(ArrayRecorder(function, x)).results[0].tobytes() == wanted.tobytes()
    assert x.tobytes() == kept.tobytes()  # what a function changes is given back


def test_functions_that_lose_the_trace_are_compared_whole_and_it_is_said_what_loses_it() -> None:
    x = np.ones((2, 3), np.float32)
    for lost, more, verdict in (
        (lambda x: np.asarray(x) + 1, 1, "equal"),
        (lambda x: np.asarray(x) + 1, 2, "differs"),
        (lambda x: (y := x + 1, y.sort())[0], 2, "differs"),
        (lambda x: np.add(x, 1, out=np.empty_like(np.asarray(x))), 2, "differs"),
    ):
        found = first_difference(lost, lambda x, n=more: x + n, inputs=(x,))
        assert found.to_json()["verdict"] == verdict
        assert re.search(r"as a whole: .*no recorded call.*np\.asarray\(\)", found.found.notes[0])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.fft.fft(x, axis=0),
        lambda x: np.linalg.diagonal(x),
        lambda x: np.linalg.inv(x[:, :, :3]),
    ],
)
def test_functions_of_other_modules_are_written_by_their_own_names(function):
    x = np.random.default_rng(3).standard_normal((2, 3, 4))
    assert alone(ArrayRecorder(function, x))[1]


def test_numbers_in_the_other_order_of_bytes_are_the_same_numbers() -> None:
    x = np.arange(5, dtype=">i8")
    run = record_run(ArrayRecorder(lambda a: a[1:] + 1, x))
    assert [run.array(n).tolist() for n in run.outputs] == [[2, 3, 4, 5]]
    assert all(value.dtype == "int64" for value in run.values)
    pair = (lambda a: a + 1, lambda a: a + 2)
    (output,) = first_difference(*pair, inputs=(x,), explain=False).found.plain
    assert (output.differing, output.max_abs) == (5, 1.0)


def test_a_transposed_array_is_copied_as_its_method_copies_it() -> None:
    x = np.random.default_rng(9).standard_normal((6, 40)).astype("f4")
    answer = first_difference(
        lambda x: x.sum(1), lambda x: x.T.copy().sum(0), inputs=[x], explain=False
    )
    count = int((x.sum(1) != x.T.copy().sum(0)).sum())
    assert answer.to_json()["outputs"][0]["differing"] == count > 0
    assert answer.first is not None and not answer.found.notes
