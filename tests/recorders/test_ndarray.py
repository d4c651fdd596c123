"""Labels and verdicts on random programs: a planted rounding is named, and nothing else is.

The programs run on NumPy with sums in one fixed order, sample by sample, so that neither batch nor
padding changes a bit; what differs was planted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from probe import layout
from probe.agreement import RunningMatch
from probe.answers.first_difference import first_difference
from probe.errors import InputError
from probe.recorders.ndarray import ArrayRecorder, operation, scope
from probe.recording import source
from probe.recording.difference import Difference, compare_runs
from probe.recording.recording import record_run
from probe.semantics import Chooses, Contracts, Each, Meaning, Reduces, Turns, Windows, operations
from tests.recorders.truth import alone, bits

CASES = 30
CHANNELS = 4


@operation("relu", operations.function("relu"))
def relu(array: np.ndarray) -> np.ndarray:
    """Returns the larger of 0 and each element, as one operation."""
    return np.maximum(array, array.dtype.type(0))


def softmax_meaning(array: Any, axis: int = -1) -> Meaning:
    """What a softmax along an axis computes; what underflows to zero is left out of its sum."""
    return operations.softmax((axis % np.ndim(array),))


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
    "mean": (Reduces((2,), "mean", True), mean),
    "convolution": (WINDOW, convolution),
    "softmax": (softmax_meaning, normalised),
    "where": (Chooses((1, 0, -1), -np.inf), masked),
    "relu": (Each("relu", "stays"), lambda x: np.maximum(x, x.dtype.type(0))),
    "add": (Each("add", "adds"), np.add),
    "multiply": (Each("multiply", "clears"), np.multiply),
    "subtract": (Each("subtract"), np.subtract),
    "tanh": (Each("tanh", "stays"), np.tanh),
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
    program: Sequence[Step], planted: tuple[int, str] | None = None, changed: int | None = None
) -> Callable[..., np.ndarray]:
    """Runs a program; the operation ``planted`` (step, name) rounds one element differently.

    ``changed``: a step that computes something else, under the same names.
    """

    def run(x: np.ndarray, mask: np.ndarray, **weights: np.ndarray) -> np.ndarray:
        values = [x]
        for number, step in enumerate(program):
            x = values[-1]
            y = values[max(len(values) - 1 - step.back, 0)]
            with scope(f"step{number}"):
                made = _Making(planted[1] if planted and planted[0] == number else "")
                given = (y, x) if number == changed else (x, y)
                values.append(step_of(step.kind, made, *given, mask, weights))
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


def compared(
    left: Callable[..., Any],
    right: Callable[..., Any],
    given: dict[str, np.ndarray],
    batch: int,
    behind: int,
) -> Difference:
    """A program alone, against another with the whole batch and masked positions behind."""
    weights = {name: given[name] for name in "wbk"}
    x = given["x"]
    length = x.shape[1]
    padded = np.concatenate([x, np.full_like(x[:, :behind], 0.5)], 1)
    mask = np.arange(length + behind) < length
    return compare_runs(
        RunningMatch.of(
            record_run(ArrayRecorder(left, x[:batch], mask[:length], **weights)),
            record_run(ArrayRecorder(right, padded, mask, **weights)),
        )
    )


def candidates(program: Sequence[Step]) -> list[tuple[int, str]]:
    """The operations of a program in which a rounding can be planted."""
    found: list[tuple[int, str]] = []
    for number, step in enumerate(program):
        made = _Making("")
        given = operands(np.random.default_rng(0), 1, 5)
        mask = np.ones(5, bool)
        step_of(step.kind, made, given["x"], given["x"], mask, given)
        found += [(number, name) for name in made.names if made.names.count(name) == 1]
    return found


@pytest.mark.parametrize("seed", range(CASES))
def test_a_planted_rounding_is_the_only_source(seed: int) -> None:
    """Whatever the batch and the padding, the planted operation is named and no other."""
    random = np.random.default_rng(seed)
    program = a_program(random, 6)
    choices = candidates(program)
    if not choices:
        pytest.skip("a program of movements alone")
    planted = choices[random.integers(len(choices))]
    given = operands(random, 3, 5)
    batch, behind = int(random.choice([1, 2, 3])), int(random.choice([0, 0, 1, 4]))
    if any(one.kind == "convolution" for one in program):
        behind = 0  # it reaches into the padding, and attention spreads that everywhere
    found = compared(function(program), function(program, planted), given, batch, behind)
    sources = [(one.path, one.op) for one in found.sources]
    assert sources == [(f"step{planted[0]}", planted[1])], (program, planted)
    verdicts = [one.verdict for one in found.operations]
    place = verdicts.index("source")
    assert {*verdicts[:place]} <= {"equal"}
    assert {*verdicts[place + 1 :]} <= {"equal", "carried", "healed"}


@pytest.mark.parametrize("seed", range(CASES))
def test_without_a_planted_rounding_everything_that_must_agree_does(seed: int) -> None:
    """And all that both runs have of a batch is compared."""
    random = np.random.default_rng(1000 + seed)
    program = a_program(random, 6)
    given = operands(random, 3, 5)
    batch = int(random.choice([1, 2, 3]))
    found = compared(function(program), function(program), given, batch, 0)
    assert found.agreement == "equal", Counter(one.verdict for one in found.operations)
    for one in found.operations:
        left = found.left.operations[one.left or 0]
        sizes = [int(np.prod(found.left.values[n].shape)) for n in left.gives]
        assert one.compared == sum(sizes), (program, one)


@pytest.mark.parametrize("seed", range(CASES))
def test_padding_behind_a_mask_is_no_difference(seed: int) -> None:
    """Where no convolution reaches into the padding, all of the shorter run is compared."""
    random = np.random.default_rng(2000 + seed)
    program = [one for one in a_program(random, 7) if one.kind != "convolution"]
    given = operands(random, 2, 5)
    behind = int(random.integers(1, 6))
    found = compared(function(program), function(program), given, 2, behind)
    assert not found.sources
    assert all(not one.differing for one in found.operations)
    (output,) = found.outputs
    assert output.compared == given["x"].size, program


@pytest.mark.parametrize("seed", range(CASES))
def test_another_formula_is_never_called_a_difference(seed: int) -> None:
    """A program that computes something else under the same names: labels tell the two apart.

    Channels keep their order: sums of the same products in another order are the same formula.
    """
    random = np.random.default_rng(3000 + seed)
    program = [one for one in a_program(random, 8) if one.kind not in ("shuffle", "joined")]
    changed = int(random.integers(len(program)))
    given = operands(random, 3, 5)
    behind = int(random.choice([0, 3]))
    found = compared(function(program), function(program, None, changed), given, 2, behind)
    assert not found.sources, (program, changed)


@pytest.mark.parametrize("seed", range(10))
def test_other_weights_are_never_called_a_difference(seed: int) -> None:
    """A matrix and its transpose have the same elements, and are not the same weights."""
    random = np.random.default_rng(seed)
    given = operands(random, 2, 5)
    mask = np.ones(5, bool)

    def plain(x: np.ndarray, mask: np.ndarray, w: np.ndarray) -> np.ndarray:
        return operation("matmul", OPERATIONS["matmul"][0])(product)(x, w)

    def turned(x: np.ndarray, mask: np.ndarray, w: np.ndarray) -> np.ndarray:
        return plain(x, mask, operation("turn", Turns((1, 0)))(np.transpose)(w))

    sides = [
        record_run(ArrayRecorder(one, given["x"], mask, w=given["w"])) for one in (plain, turned)
    ]
    assert not compare_runs(RunningMatch.of(*sides)).sources
    assert not compare_runs(RunningMatch.of(*sides)).outputs[0].compared


def test_what_a_movement_moves_is_compared_where_it_went() -> None:
    """A reversed batch: every element is compared with the one that it came from."""
    x = np.random.default_rng(0).normal(size=(4, 6)).astype(np.float32)

    def run(x: np.ndarray) -> np.ndarray:
        return relu(x * x.dtype.type(2))

    found = compare_runs(
        RunningMatch.of(record_run(ArrayRecorder(run, x)), record_run(ArrayRecorder(run, x[::-1])))
    )
    assert found.agreement == "equal"
    assert found.outputs[0].compared == x.size


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
    found = first_difference(function, function, inputs=(x,))
    assert found.agreement == "equal" and found.examined == len(found.operations)
    assert found.left.results[0].tobytes() == wanted.tobytes() and not found.notes
    assert x.tobytes() == kept.tobytes()  # what a function changes is given back


@pytest.mark.parametrize("name", ["where, numbers", "dot", "copy", "in place", "flatten"])
def test_rows_are_compared_through_methods(name: str) -> None:
    function = METHODS[name]
    x = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)
    found = first_difference(lambda x: function(x[:2]), function, inputs=(x,))
    truth = (function(x[:2].copy()) != function(x.copy())[:2]).sum()
    (one,) = found.outputs
    assert one.compared == function(x[:2].copy()).size and one.differing == truth


def test_a_lost_trace_is_refused_with_what_loses_it() -> None:
    x = np.ones((2, 3), np.float32)
    with pytest.raises(InputError, match=r"no recorded call.*np\.asarray\(\)"):
        first_difference(lambda x: np.asarray(x) + 1, lambda x: x + 1, inputs=(x,))


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
