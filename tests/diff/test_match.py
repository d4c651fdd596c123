"""Operations that belong together have one name, or values that are close."""

from collections.abc import Callable

import numpy as np

from probe.case.errors import TimeOver
from probe.diff.match import SIZED, Repetitions, RunningMatch
from probe.diff.running import by_running
from probe.diff.walk import walk
from probe.order.semantics import Unknown
from probe.record.recording import Run, record_run
from probe.targets import budget
from tests.diff.programs import Program, compared, program, sources, tanh
from tests.record.doubles import Doubles, Step

X = np.random.default_rng(0).standard_normal((6, 8)).astype("f4")


def test_branches_in_another_order_are_matched_by_their_values() -> None:
    def branches(*order: int) -> Program:
        steps = [Step("branch", Unknown(), FUNCTIONS[n], ["x"]) for n in order]
        last = Step("sum", Unknown(), lambda a, b: a + b, [order.index(0), order.index(1)])
        return lambda arrays: Doubles(dict(arrays), [*steps, last])

    difference = compared(X, X, branches(0, 1), branches(1, 0))
    assert not difference.sources
    assert {r.verdict for r in difference.operations} == {"equal"}


FUNCTIONS = (np.tanh, lambda x: np.exp(x) / 2)


def test_several_operations_against_one_are_a_region_between_values_that_are_matched() -> None:
    def silu(x: np.ndarray) -> np.ndarray:
        return x / (1 + np.exp(-x))

    def chain(*steps: tuple[str, object, list]) -> Program:
        every = [Step(name, Unknown(), function, reads) for name, function, reads in steps]
        return lambda arrays: Doubles(dict(arrays), every)

    one = chain(("twice", lambda x: x * 2, ["x"]), ("silu", silu, [0]))
    two = chain(
        ("twice", lambda x: x * 2, ["x"]),
        ("sigmoid", lambda x: 1 / (1 + np.exp(-x)), [0]),
        ("product", lambda x, y: x * y, [0, 1]),
    )
    difference = compared(X, X, one, two)
    (region,) = (region for region in difference.operations if region.grouped)
    assert region.members == ((1,), (1, 2))
    assert [pair.equal for pair in region.reads] == [True]
    assert region.verdict == "source"


def test_bytes_of_another_sign_that_stand_for_the_same_weights_are_read_alike() -> None:
    weights = np.random.default_rng(0).integers(-128, 128, (8, 5)).astype(np.int8)
    unsigned = (weights.astype(int) + 128).astype(np.uint8)

    def program(w: np.ndarray, off: int, more: int = 0) -> Program:
        def product(x: np.ndarray, w: np.ndarray) -> np.ndarray:
            return x @ (w.astype("f4") - off) + more

        return lambda arrays: Doubles(
            {**arrays, "w": w}, [Step("product", Unknown(), product, ["x", "w"])]
        )

    for more, verdict in ((0, "equal"), (1, "source")):
        difference = compared(X, X, program(weights, 0), program(unsigned, 128, more))
        assert [region.verdict for region in difference.operations] == [verdict]
    difference = compared(X, X, program(weights, 0), program(unsigned[::-1], 128, 1))
    assert [region.verdict for region in difference.operations] == ["unknown"]


def chain(*functions: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], Run]:
    steps = [
        Step(function.__name__, Unknown(), function, ["x" if n == 0 else n - 1])
        for n, function in enumerate(functions)
    ]
    return lambda x: record_run(Doubles({"x": x}, steps))


def doubled(x: np.ndarray) -> np.ndarray:
    return x * 2


def added(x: np.ndarray) -> np.ndarray:
    return x + x


def nearly(x: np.ndarray) -> np.ndarray:
    return x * 2 * (1 + np.float32(2**-22))


def test_what_can_not_be_repeated_belongs_together_by_index() -> None:
    run = chain(np.tanh, doubled)(X)
    match = RunningMatch.of(run, chain(np.tanh, nearly)(X))
    assert match.operation_pairs == [(0, 0), (1, 1)]
    assert match.pair(*(r.outputs[0] for r in match.runs)).selection.all_by_index
    assert RunningMatch.of(run, run).how == "by name and index"


def test_rows_of_a_larger_batch_that_can_not_be_repeated_are_found_by_their_numbers() -> None:
    model = chain(np.tanh, doubled)
    match = RunningMatch.of(model(X[2:4]), model(X))
    pair = match.pair(*(run.outputs[0] for run in match.runs))
    assert pair.selection.elements(np.arange(len(X)), 1).tolist() == [2, 3]
    mixed = chain(lambda x: x - x.mean(axis=0))
    match = RunningMatch.of(mixed(X[2:4]), mixed(X))
    assert not match.pair(*(run.outputs[0] for run in match.runs)).decided


def test_on_one_input_values_are_matched_where_no_other_is_as_close() -> None:
    one = RunningMatch.of(chain(np.tanh, doubled)(X), chain(np.tanh, added)(X))
    assert one.operation_pairs[-1] == (1, 1)
    assert one.how == "by value on one input"


def test_where_time_ends_while_both_run_again_one_input_has_to_do() -> None:
    def again() -> None:
        raise TimeOver("the time was over")

    runs = chain(np.tanh, doubled)(X), chain(np.tanh, added)(X)
    with budget.within("1h"):
        match = RunningMatch(runs, Repetitions(record_others=again))
        assert match.operation_pairs == [(0, 0), (1, 1)]
        assert budget.spent()
    assert match.how == "by value on one input"


# what follows from the sizes of the inputs is no source of a difference


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
