"""A run is watched and has to repeat; two runs are repeated: what must agree, and what differs."""

import numpy as np

from probe.diff.running import InProcess, by_running, watch
from probe.diff.walk import walk
from tests.diff.programs import Program, compared, program, sources, tanh
from tests.record.taped import Taped, network, normal

RNG = np.random.default_rng(0)
X = RNG.standard_normal((6, 8)).astype("f4")
W = RNG.standard_normal((8, 5)).astype("f4")


def product(x: np.ndarray) -> np.ndarray:
    """Adds in another order where there is one row: the difference that is planted."""
    if len(x) > 1:
        return (x[:, :, None] * W).sum(axis=1, dtype="f4")
    halves = [(x[:, s, None] * W[s]).sum(axis=1, dtype="f4") for s in (slice(4), slice(4, 8))]
    return halves[0] + halves[1] + np.float32(2**-18)


def test_one_sample_against_a_batch_of_operations_that_nobody_described() -> None:
    difference = compared(X[2:3], X, program(tanh, product, tanh))
    assert [name for name, _, _ in sources(difference)] == ["product"]
    assert difference.outputs[0].compared == 5
    assert difference.examined == 3
    turned = compared(X, X[2:3], program(tanh, product, tanh))  # whichever side has more
    assert sources(turned) == sources(difference)


def over_batch(x: np.ndarray) -> np.ndarray:
    return x - x.mean(axis=0, keepdims=True)


def test_what_reads_the_other_samples_need_not_agree() -> None:
    difference = compared(X[:1], X, program(tanh, over_batch))
    assert not difference.sources
    assert difference.outputs[0].selection.empty
    assert difference.agreement == "unknown"


def running_sum(x: np.ndarray) -> np.ndarray:
    return np.cumsum(x, axis=1, dtype="f4")


def look_ahead(x: np.ndarray) -> np.ndarray:
    return x + np.pad(x[:, 1:], ((0, 0), (0, 1)))


def test_of_a_prefix_all_agree_but_what_reads_on() -> None:
    difference = compared(X[:, :5], X, program(running_sum, look_ahead))
    assert not difference.sources
    assert difference.outputs[0].compared == 6 * 4  # the fifth position reads the sixth
    assert difference.agreement == "equal" and difference.verdict == "differs"
    (output,) = difference.outputs_by_index
    assert (output.elements, output.differing, output.window, output.window_apart) == (30, 6, 6, 6)


def test_two_functions_of_one_input_are_compared_by_index() -> None:
    def band(width: int) -> Program:
        def masked(x: np.ndarray) -> np.ndarray:
            return np.where(np.arange(8) < width, x, np.float32(0))

        return program(tanh, masked)

    difference = compared(X[:1], X[:1], band(5), band(6))  # a mask that is off by one
    assert sources(difference) == [("masked", 1, 8)]


def test_inputs_without_a_common_piece_are_left_to_labels() -> None:
    inputs = {"x": X[:1]}, {"x": X + 1}
    recorders = [program(tanh)(arrays) for arrays in inputs]
    match = by_running(program(tanh), inputs)
    runs = [walk(r, r, explain=False).left for r in recorders]
    assert match(*runs) is None


def test_a_side_is_repeated_where_it_ran() -> None:
    model, asked = program(tanh, product), list[str]()

    class There:
        def marks(self, run, arrays, where):
            asked.append("marks")
            return InProcess(model).marks(run, arrays, where)

        def run(self, arrays):
            asked.append("run")
            return InProcess(model).run(arrays)

    inputs = {"x": X[2:3]}, {"x": X}
    match = by_running((There(), There()), inputs)
    difference = walk(*map(model, inputs), explain=False, match=match)
    assert [name for name, _, _ in sources(difference)] == ["product"]
    assert asked == ["marks"]  # one sample lacks nothing, and no value had to be asked for


TAPED = normal(6, 32)


class Watched(Taped):
    """Watching changes what is computed, as it changes a fusion."""

    def __init__(self, program):
        super().__init__(program)
        self.fused = True

    def plain(self):
        return [one + np.float32(1) for one in super().plain()]


def test_watching_that_changes_the_bits_is_said():
    run, notes = watch(Watched(network(TAPED).program), "the left side")
    assert len(notes) == 1 and "the left side: recording changes" in notes[0]
    assert run.plain_results[0].tobytes() != run.results[0].tobytes()
    assert watch(network(TAPED), "it")[1] == []
