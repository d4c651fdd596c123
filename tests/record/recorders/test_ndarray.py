"""Verdicts on random programs of NumPy: a planted rounding is named, and nothing else is.

Their sums go in one fixed order; what differs was planted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from probe.case import layout
from probe.diff import source
from probe.diff.difference import compare_runs
from probe.diff.match import RunningMatch
from probe.order.semantics import Contracts, Each, Meaning, Moves, Reduces, Windows, operations
from probe.record.recorders.ndarray import ArrayRecorder, operation
from probe.record.recording import record_run
from probe.ui.answers.first_difference import first_difference
from tests.record.recorders.recorded import alone, bits, events, wrong

CASES = 30
CHANNELS = 4


def softmax_meaning(array: Any, axis: int = -1) -> Meaning:
    """What a softmax along an axis computes."""
    return operations.normalised("softmax", (axis % np.ndim(array),))


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


def attend(weights: np.ndarray, values: np.ndarray) -> np.ndarray:
    """A product of two activations; zeros behind add nothing."""
    found = weights[:, :, :1] * values[:, :1]
    for j in range(1, values.shape[1]):
        found = found + weights[:, :, j, None] * values[:, j, None]
    return found


def mean(x: np.ndarray) -> np.ndarray:
    """The mean over the channels, added from first to last."""
    total = x[..., :1]
    for k in range(1, x.shape[-1]):
        total = total + x[..., k, None]
    return total / x.dtype.type(x.shape[-1])


def convolution(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """A convolution of width 3 along axis 1, padded to keep its length."""
    wide = np.pad(x, ((0, 0), (1, 1), (0, 0)))
    found = np.zeros((*x.shape[:2], w.shape[2]), x.dtype)
    for tap in range(len(w)):
        for channel in range(w.shape[1]):
            found = found + wide[:, tap : tap + x.shape[1], channel, None] * w[tap, channel]
    return found


def normalised(x: np.ndarray) -> np.ndarray:
    """A softmax over the last axis, added from first to last."""
    raised = np.exp(x - x.max(-1, keepdims=True))
    total = raised[..., 0]
    for k in range(1, x.shape[-1]):
        total = total + raised[..., k]
    found: np.ndarray = raised / total[..., None]
    return found


def masked(x: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Scores with -inf where the mask is False."""
    return np.where(mask, x, x.dtype.type(-np.inf))


WINDOW = Windows((1,), 2, (3,), (1,), (1,), ((1, 1),), weights=(0, 1, 2))
OPERATIONS: dict[str, tuple[Any, Callable[..., np.ndarray]]] = {
    "matmul": (Contracts("...mk,kn->...mn"), product),
    "scores": (Contracts("bik,bjk->bij"), lambda x, y: attend(x, y.transpose(0, 2, 1))),
    "attend": (Contracts("bij,bjk->bik"), attend),
    "mean": (Reduces((2,), "mean"), mean),
    "convolution": (WINDOW, convolution),
    "softmax": (softmax_meaning, normalised),
    "where": (Moves(), masked),
    "relu": (Each("relu"), lambda x: np.maximum(x, x.dtype.type(0))),
    "add": (Each("add"), np.add),
    "multiply": (Each("multiply"), np.multiply),
    "subtract": (Each("subtract"), np.subtract),
    "tanh": (Each("tanh"), np.tanh),
}


class Step(NamedTuple):
    """One of a program's steps; ``back``: how far back the second value lies."""

    kind: str
    back: int


def a_program(random: np.random.Generator, size: int) -> list[Step]:
    """Some steps that all keep (batch, length, channels)."""
    kinds = "dense convolution residual product difference relu tanh shuffle joined attention mean"
    names = random.choice(kinds.split(), size)
    return [Step(str(name), int(random.integers(1, 4))) for name in names]


def function(
    program: Sequence[Step], planted: tuple[int, str] | None = None
) -> Callable[..., np.ndarray]:
    """Runs a program; the operation ``planted`` (step, name) rounds one element differently."""

    def run(x: np.ndarray, mask: np.ndarray, **weights: np.ndarray) -> np.ndarray:
        values = [x]
        for number, step in enumerate(program):
            x = values[-1]
            y = values[max(len(values) - 1 - step.back, 0)]
            made = _Making(planted[1] if planted and planted[0] == number else "")
            values.append(step_of(step.kind, made, x, y, mask, weights))
        return values[-1]

    return run


class _Making:
    """Operations of a step, by name; ``planted`` gives the neighbour of one element."""

    def __init__(self, planted: str) -> None:
        self.planted = planted
        self.names: list[str] = []

    def __call__(self, name: str, *arrays: np.ndarray) -> np.ndarray:
        meaning, plain = OPERATIONS[name]
        self.names.append(name)

        def nudged(*given: np.ndarray) -> np.ndarray:
            found = np.array(plain(*given))
            row = found[0, 0]
            place = int(np.argmax(row != 0))
            row[place] = np.nextafter(row[place], np.float32(2))
            return found

        made = operation(name, meaning)(nudged if name == self.planted else plain)
        found: np.ndarray = made(*arrays)
        return found


def step_of(
    kind: str, made: _Making, x: np.ndarray, y: np.ndarray, mask: np.ndarray, weights: dict
) -> np.ndarray:
    """What one step gives."""
    if kind == "dense":
        return made("add", made("matmul", x, weights["w"]), weights["b"])
    if kind == "convolution":
        return made("convolution", x, weights["k"])
    if kind in ("residual", "product", "difference"):
        names = {"residual": "add", "product": "multiply", "difference": "subtract"}
        return made("tanh", made(names[kind], x, y))
    if kind == "shuffle":
        parts = x.reshape(*x.shape[:2], 2, CHANNELS // 2)
        return parts.transpose(0, 1, 3, 2).reshape(x.shape)
    if kind == "joined":
        return np.concatenate([x, y], -1)[..., 1::2]
    if kind == "attention":
        weighed = made("softmax", made("where", made("scores", x, y), mask))
        return made("attend", weighed, x)
    if kind == "mean":
        return made("subtract", x, made("mean", x))
    return made(kind, x)


def operands(random: np.random.Generator, batch: int, length: int) -> dict[str, np.ndarray]:
    """Inputs and weights, in float32."""
    sizes = {"x": (batch, length, CHANNELS), "w": (CHANNELS, CHANNELS), "b": (CHANNELS,)}
    sizes["k"] = (3, CHANNELS, CHANNELS)
    return {name: random.normal(size=size).astype(np.float32) for name, size in sizes.items()}


def candidates(program: Sequence[Step]) -> list[tuple[int, str, str]]:
    """The operations of a program in which a rounding can be planted: step, name, and what it is
    called in the recording."""
    found: list[tuple[int, str, str]] = []
    before = Counter[str]()
    for number, step in enumerate(program):
        made = _Making("")
        given = operands(np.random.default_rng(0), 1, 5)
        mask = np.ones(5, bool)
        step_of(step.kind, made, given["x"], given["x"], mask, given)
        found += [
            (number, name, f"{name}#{before[name] + 1}" if before[name] else name)
            for name in made.names
            if made.names.count(name) == 1
        ]
        before.update(made.names)
    return found


@pytest.mark.parametrize("seed", range(CASES))
def test_a_planted_rounding_is_the_only_source(seed: int) -> None:
    """The planted operation is named and no other."""
    random = np.random.default_rng(seed)
    program = a_program(random, 6)
    choices = candidates(program)
    if not choices:
        pytest.skip("a program of movements alone")
    *planted, called = choices[random.integers(len(choices))]
    weights = operands(random, 3, 5)
    given = weights.pop("x"), np.arange(5) < 4
    sides = (ArrayRecorder(one, *given, **weights)
             for one in (function(program), function(program, planted)))  # fmt: skip
    found = compare_runs(RunningMatch.of(*map(record_run, sides)))
    assert [one.name for one in found.sources] == [called], (program, planted)
    verdicts = [one.verdict for one in found.operations]
    place = verdicts.index("source")
    assert {*verdicts[:place]} <= {"equal"}
    assert {*verdicts[place + 1 :]} <= {"equal", "carried", "healed"}


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


def _into(x: np.ndarray) -> np.ndarray:
    return np.dot(x, x.T, out=np.empty((len(x), len(x)), x.dtype))


METHODS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "where, numbers": lambda x: np.where(x > 0, x, 0) * 2,
    "where, two numbers": lambda x: np.where(x > 0, 1.5, 0.25),
    "where, lists": lambda x: np.where([[True] * 6] * len(x), x, 0.5),
    "dot": lambda x: x.dot(np.ones((6, 2), x.dtype)),
    "copy": lambda x: x.copy() + 1,
    "flatten": lambda x: x.flatten().reshape(x.shape).clip(-1, 1),
    "in place": _in_place,
    "into a plain array": _into,
    "into a watched array": lambda x: np.sum(x, axis=1, out=np.zeros_like(x[:, 0])) * 2,
    "concatenate, list": lambda x: np.concatenate([x, [[0.5] * 6]]),
    "sorted in place": lambda x: (y := x.copy(), y.sort(axis=1), y)[2],
    "added at places": lambda x: (y := np.zeros_like(x), np.add.at(y, [0, 0], x[:2]), y)[2],
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
    for more, verdict in ((1, "equal"), (2, "differs")):
        found = first_difference(lambda x: np.asarray(x) + 1, lambda x, n=more: x + n, inputs=(x,))
        assert found.to_json()["verdict"] == verdict
        assert re.search(r"as a whole: .*no recorded call.*np\.asarray\(\)", found.found.notes[0])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.fft.fft(x, axis=0).real,
        lambda x: np.linalg.diagonal(x),
        lambda x: np.linalg.inv(x[:, :, :3]),
    ],
)
def test_functions_of_other_modules_are_written_by_their_own_names(function):
    x, wrong = np.random.default_rng(3).standard_normal((2, 3, 4)), []

    def visit(one):
        if one.lines is not None:
            arrays = [np.array(each.array()) for each in one.reads]
            names = [f"a{n}" for n in range(len(arrays))]
            scope = dict(zip(names, arrays, strict=True))
            exec("\n".join([*one.imports, *one.lines(names, "y")]), scope)
            wrong.extend(
                [one.op] * (np.asarray(scope["y"]).tobytes() != one.gives[0].array().tobytes())
            )

    ArrayRecorder(function, x).record(visit)
    assert not wrong


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
