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
from probe.order.semantics import Contracts, Meaning, Unknown, normalised
from probe.record.ndarray import REDUCTIONS, TABLE, UFUNCS, ArrayRecorder, operation
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
    (output,) = first_difference(*pair, inputs=(x,), explain=False).found.outputs_by_index
    assert (output.differing, output.max_abs) == (5, 1.0)


def test_a_transposed_array_is_copied_as_its_method_copies_it() -> None:
    x = np.random.default_rng(9).standard_normal((6, 40)).astype("f4")
    answer = first_difference(
        lambda x: x.sum(1), lambda x: x.T.copy().sum(0), inputs=[x], explain=False
    )
    count = int((x.sum(1) != x.T.copy().sum(0)).sum())
    assert answer.to_json()["outputs"][0]["differing"] == count > 0
    assert answer.first is not None and not answer.found.notes


# every row of NumPy's table: what it says of calls of NumPy is what they give

RNG = np.random.default_rng(31)
A, T, V = RNG.standard_normal((4, 6)), RNG.standard_normal((4, 5, 8)), RNG.standard_normal(6)
P = np.abs(A) + 0.5
WHOLE = (10 * P).astype(np.int64)
INTEGERS = """bitwise_and bitwise_or bitwise_xor bitwise_count invert gcd lcm left_shift right_shift
 ldexp""".split()
"""Functions of elements that take whole numbers, the second operand alone or both."""

Samples = list[tuple[Callable[..., Any], tuple[np.ndarray, ...]]]


def of_elements(name: str) -> Samples:
    function = getattr(np, name)
    if name == "isnat":
        return [(lambda x: np.isnat(x.astype("M8[s]")), (WHOLE,))]
    x = WHOLE if name in INTEGERS and name != "ldexp" else A if name == "sign" else P
    x = np.tanh(P / 4) if name in ("arccos", "arcsin", "arctanh") else x
    x = x + 1 if name == "arccosh" else x
    if function.nin == 1:
        return [(function, (x,))]
    y, line = np.abs(A[::-1]) + 0.1, V
    if name in INTEGERS:
        y, line = (WHOLE[::-1] % 5).copy(), WHOLE[0] % 4
    beside = [(lambda x: function(x, 2), (x,)), (lambda x: function(2, x), (y,))]
    return [(function, (x, y)), (function, (x, line)), *beside]


def written(x: Any) -> Any:
    found = np.copy(x)
    found[:, 1:3] = x[:, 3:5]
    return found


def by_name(names: str, *arrays: np.ndarray, **words: Any) -> dict[str, Samples]:
    return {
        name: [(lambda *x, name=name: getattr(np, name)(*x, **words), arrays)]
        for name in names.split()
    }


SAMPLES: dict[str, Samples] = {
    **{name: of_elements(name) for name in UFUNCS},
    **{name: [(lambda x, name=name, k=k: getattr(np, name)(x, 1, keepdims=k), (T,))
              for k in (False, True)] for name in (*REDUCTIONS, "max", "min", "amax", "amin")},
    "matmul": [(np.matmul, (T, T.transpose(0, 2, 1).copy())), (np.matmul, (A, V))],
    "dot": [(np.dot, (A, A.T.copy())), (lambda x: np.dot(x, V), (A,))],
    "einsum": [(lambda x, y: np.einsum("bij,bkj->bik", x, y), (T, T)),
               (lambda x: np.einsum("bij->bji", x), (T,))],
    "clip": [(lambda x: np.clip(x, -0.5, 0.7), (A,)), (lambda x: np.clip(x, 0, None), (A,))],
    "where": [(lambda x, y: np.where(x > 0, x, y), (A, P))],
    "reshape": [(lambda x: np.reshape(x, (4, 40)), (T,))],
    "squeeze": [(np.squeeze, (T[:, :1],))], "expand_dims": [(lambda x: np.expand_dims(x, 1), (A,))],
    "transpose": [(lambda x: np.transpose(x, (2, 0, 1)), (T,)), (np.transpose, (T,))],
    "swapaxes": [(lambda x: np.swapaxes(x, 1, 2), (T,))],
    "moveaxis": [(lambda x: np.moveaxis(x, -1, 0), (T,))],
    "rollaxis": [(lambda x: np.rollaxis(x, 2, 1), (T,))],
    **{name: [(lambda x, y, name=name: getattr(np, name)([x, y]), (A, P))]
       for name in "concatenate stack".split()},
    "split": [(lambda x: np.split(x, [1, 4], 1), (A,))],
    "take": [(lambda x: np.take(x, [2, -1, 2], 1), (A,)), (lambda x: np.take(x, [2, 0, 14]), (A,))],
    "broadcast_to": [(lambda x: np.broadcast_to(x, (2, 4, 6)), (A,))],
    "pad": [(lambda x, mode=mode: np.pad(x, ((0, 0), (1, 2)), mode), (A,))
            for mode in ("constant", "reflect", "edge", "wrap", "symmetric")],
    **by_name("copy ravel diagonal", A), **by_name("flip argmax", T, axis=1),
    "roll": [(lambda x: np.roll(x, 2, 1), (T,))],
    "repeat": [(lambda x: np.repeat(x, 2, 1), (A,))],
    "tile": [(lambda x: np.tile(x, (1, 2)), (A,))],
    "getitem": [(lambda x: x[:, 1:4], (T,)), (lambda x: x[..., None, 2], (T,)),
                (lambda x: x[:, [3, 0]], (T,)), (lambda x: x[:, ::-2], (T,))],
    "setitem": [(written, (A,))],
    "tril": [(lambda x: np.tril(x, 1), (T,))], "triu": [(lambda x: np.triu(x, -1), (T,))],
}  # fmt: skip


def test_every_row_says_what_numpy_gives() -> None:
    assert {*TABLE} <= {*SAMPLES}
    for name in SAMPLES:
        for function, arrays in SAMPLES[name]:
            every = events(ArrayRecorder(function, *arrays))
            met = [event for event in every if event[0].op == name]
            assert met, name
            for event in met:
                assert not isinstance(event[0].meaning, Unknown), event[0].meaning
                assert not wrong(event), name


@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.pad(x, 1, "mean"),
        lambda x: np.pad(x, 1, mode="linear_ramp"),
        lambda x: np.median(x, 1),  # the mean of two of six
        lambda x: np.pad(x, 1, "reflect", reflect_type="odd"),
        lambda x: np.sum(x, 1, where=np.ones(6, bool)),
        lambda x: np.cumsum(x, 1),
    ],
)
def test_what_computes_otherwise_is_unknown(function: Callable[..., Any]) -> None:
    (event,) = events(ArrayRecorder(function, A))
    assert isinstance(event[0].meaning, Unknown)
