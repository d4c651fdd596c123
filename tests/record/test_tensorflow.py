"""TensorFlow watched: what is seen is what ran, what must agree does, files are data."""

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow, pytest.mark.long]

from probe.case.errors import InputError  # noqa: E402
from probe.diff.difference import compare_runs  # noqa: E402
from probe.diff.match import RunningMatch  # noqa: E402
from probe.record.contract import Input  # noqa: E402
from probe.record.recording import array_digest, record_run  # noqa: E402
from probe.record.subject import open_model  # noqa: E402
from probe.record.tensorflow import OpenedTensorFlow, TensorFlowRecorder, opened  # noqa: E402
from tests.record.recorded import held_to_account  # noqa: E402

RANDOM = np.random.default_rng(0)


def normal(*shape):
    return tf.constant(RANDOM.normal(size=shape).astype(np.float32))


WEIGHTS = tf.Variable(normal(3, 3, 4, 6), name="kernel")
BIAS = tf.Variable(normal(6), name="bias")
DENSE = tf.Variable(normal(6, 5), name="dense")


def network(x):
    with tf.name_scope("block"):
        h = tf.nn.relu(tf.nn.conv2d(x, WEIGHTS, 2, "SAME") + BIAS)
    h = tf.concat([h, tf.reverse(h, [1])], 1)
    h = tf.nn.softmax(tf.reduce_mean(h, [1, 2]) @ DENSE)
    return tf.split(h, [2, 3], 1)


def seen(function):
    """The events of a run as (op, path, digests of what it reads and gives)."""
    found = []

    def visit(event):
        bits = [[array_digest(one.array()) for one in some] for some in (event.reads, event.gives)]
        found.append((event, *bits))

    recorder = TensorFlowRecorder(function)
    outputs = recorder.record(visit)
    return found, outputs, recorder


def test_every_eager_operation_is_seen_with_its_path_and_the_bits_are_those_of_an_unwatched_run():
    x = normal(2, 9, 9, 4)
    found, outputs, recorder = seen(lambda: network(x))
    ops = [event.op for event, *_ in found]
    for op in ("Conv2D", "AddV2", "Relu", "ConcatV2", "ReverseV2", "Mean", "MatMul", "Softmax"):
        assert ops.count(op) == 1, ops
    assert [event.path for event, *_ in found if event.op in ("Conv2D", "Relu")] == ["block"] * 2
    plain = recorder.plain()
    assert [array_digest(one.array()) for one in outputs] == [array_digest(one) for one in plain]
    assert not recorder.note


def test_a_variable_that_is_assigned_is_another_value():
    state = tf.Variable([1.0, 2.0])

    def step():
        before = state * 3.0
        state.assign_add([1.0, 1.0])
        after = state * 3.0
        state.assign([1.0, 2.0])
        return before, after

    found, outputs, _ = seen(step)
    reads = [event.reads[0].key for event, *_ in found if event.op == "Mul"]
    assert len(set(reads)) == 2
    assert outputs[1].array().tolist() == [6.0, 9.0]


def test_a_function_is_seen_node_by_node_and_must_agree_with_the_same_eager_operations():
    x = normal(3, 9, 9, 4)
    traced = tf.function(network)
    eager, graph = (record_run(TensorFlowRecorder(lambda f=f: f(x))) for f in (network, traced))
    assert graph.target.endswith("mode=graph")
    assert {"Softmax", "Mean"} <= {one.op for one in graph.operations}
    found = compare_runs(RunningMatch.of(eager, graph))
    assert all(one.compared == 6 or one.compared == 9 for one in found.outputs), found.outputs
    names = " ".join(held_to_account([TensorFlowRecorder(lambda: traced(x))]))
    assert "Conv2D" in names and "Split" in names  # fused, or not, as the processor has it


def test_a_compiled_function_is_one_operation():
    compiled = tf.function(network, jit_compile=True)
    x = normal(4, 9, 9, 4)
    live = record_run(TensorFlowRecorder(lambda: compiled(x)))
    assert live.operations[-1].op.startswith("function ") and "XLA" in live.note


def test_a_function_that_changes_a_state_runs_once_and_is_one_operation():
    count = tf.Variable(0.0)

    @tf.function
    def step(x):
        count.assign_add(1.0)
        return x * 2.0

    x = normal(3)
    recorder = TensorFlowRecorder(lambda: step(x))
    recorder.record(lambda event: None)  # a plain run, and a watched one
    assert count.numpy() == 2.0
    assert "state" in recorder.note


def test_a_loop_is_written_out_step_by_step():
    weight = tf.Variable(normal(4, 4))

    @tf.function
    def scan(x):
        state = tf.zeros([2, 4])
        given = tf.TensorArray(tf.float32, 5)
        for n in tf.range(5):
            state = tf.tanh(x[n] + state @ weight)
            given = given.write(n, state)
        return given.stack()

    x = normal(5, 2, 4)
    live = record_run(TensorFlowRecorder(lambda: scan(x)))
    ops = [one.op for one in live.operations]
    assert (ops.count("MatMul"), ops.count("Tanh"), ops.count("TensorListStack")) == (5, 5, 1)
    assert not live.note
    last = live.values[live.outputs[0]]
    assert last.given == len(ops) - 1


def test_a_loop_in_a_branch_in_a_loop_and_a_function_called_twice_give_their_bits():
    """What bodies capture is what they read; a branch of no number is the last one."""
    weight, x = tf.Variable(normal(4, 4)), normal(3, 4)

    @tf.function
    def inner(a):
        return tf.tanh(a @ weight)

    @tf.function
    def nested(a, which):
        def turn(i, state, total):
            def again():
                _, found = tf.while_loop(
                    lambda j, _: j < 2,
                    lambda j, one: (j + 1, one * 2.0 + tf.cast(i, tf.float32)),
                    (0, total),
                )
                return found

            total = tf.cond(i > 0, again, lambda: total + tf.reduce_sum(a))
            return i + 1, inner(inner(state)), total

        _, state, total = tf.while_loop(lambda i, *_: i < 3, turn, (0, a, 1.0))
        chosen = tf.switch_case(which, [lambda: a * 2.0, lambda: inner(a), lambda: tf.exp(a)])
        return state, total, chosen, a

    for which in (1, -1, 7):
        found, outputs, recorder = seen(lambda which=which: nested(x, tf.constant(which)))
        plain = [array_digest(one) for one in recorder.plain()]
        assert [array_digest(one.array()) for one in outputs] == plain
        assert not recorder.note
        ops = [event.op for event, *_ in found]
        assert (ops.count("Tanh"), ops.count("Exp")) == ((7, 0) if which == 1 else (6, 1))


def test_what_numpy_holds_of_a_value_is_that_value_and_what_it_computes_is_said():
    x = normal(3, 4)
    live = record_run(TensorFlowRecorder(lambda: np.asarray(tf.nn.relu(x))))
    assert live.values[live.outputs[0]].given >= 0
    assert "outside" in record_run(TensorFlowRecorder(lambda: tf.nn.relu(x).numpy() + 1)).note


def test_a_saved_model_is_watched_and_one_that_reaches_outside_is_refused(tmp_path):
    class Model(tf.Module):
        def __init__(self):
            self.w = tf.Variable(normal(4, 3))

        @tf.function(input_signature=[tf.TensorSpec([None, 4], tf.float32, name="x")])
        def __call__(self, x):
            return {"y": tf.nn.relu(x @ self.w)}

        @tf.function(input_signature=[tf.TensorSpec([2], tf.float32)])
        def printing(self, x):
            tf.print(x)
            return x + 1.0

    model = Model()
    tf.saved_model.save(model, str(tmp_path / "good"), signatures=model.printing)
    with pytest.raises(InputError, match="PrintV2.*trust"):
        opened(tmp_path / "good")
    assert opened(tmp_path / "good", trust=True).inputs[0].shape == (2,)
    del Model.printing
    model = Model()
    tf.saved_model.save(model, str(tmp_path / "m"), signatures=model.__call__)
    made = opened(tmp_path / "m")
    assert [(one.name, one.shape) for one in made.inputs] == [("x", (None, 4))]
    x = RANDOM.normal(size=(2, 4)).astype(np.float32)
    live = record_run(made.recorder({"x": x}))
    assert array_digest(live.results[0]) == array_digest(tf.nn.relu(x @ model.w).numpy())


def test_files_that_are_no_models_are_refused_in_one_line(tmp_path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "saved_model.pb").write_bytes(b"nothing of the kind")
    (tmp_path / "m.keras").write_bytes(b"nothing of the kind")
    for name in ("broken", "m.keras"):
        with pytest.raises(InputError) as caught:
            opened(tmp_path / name)
        assert "\n" not in str(caught.value), name


def test_a_keras_file_is_watched_and_one_with_code_is_refused(tmp_path):
    keras = pytest.importorskip("keras")
    layers = keras.layers
    model = keras.Sequential([keras.Input((4,), name="x"), layers.Dense(3, "relu", name="dense")])
    model.save(tmp_path / "m.keras")
    made = opened(tmp_path / "m.keras")
    assert [(one.name, one.shape) for one in made.inputs] == [("x", (None, 4))]
    x = RANDOM.normal(size=(2, 4)).astype(np.float32)
    live = record_run(made.recorder({"x": x}))
    assert array_digest(live.results[0]) == array_digest(model(x).numpy())
    assert all(one.path.endswith("dense") for one in live.operations)
    keras.Sequential([keras.Input((4,)), layers.Lambda(lambda v: v * 2)]).save(tmp_path / "l.keras")
    with pytest.raises(InputError, match="Lambda"):
        opened(tmp_path / "l.keras")


def test_a_keras_model_in_memory_is_called_with_all_its_inputs():
    keras = pytest.importorskip("keras", reason="Keras is not installed")
    entries = [keras.Input((None, 3), name="x"), keras.Input((3,), name="gate")]
    model = keras.Model(entries, keras.layers.Multiply()(entries))
    x, gate = np.ones((2, 4, 3), np.float32), np.full((2, 3), 2.5, np.float32)
    (y,) = open_model(model).recorder({"x": x[:1], "gate": gate[:1]}).plain()
    assert np.array_equal(np.asarray(y), np.asarray(model([x[:1], gate[:1]])))


def test_a_variable_that_is_not_yet_made_is_passed_over():
    """One of another thread or a traced function has no type yet: AttributeError in an answer."""
    half = object.__new__(type(DENSE))
    run = record_run(TensorFlowRecorder(lambda: tf.Variable(DENSE) * 2))
    assert np.array_equal(run.results[0], (DENSE * 2).numpy())
    del half


def test_numbers_beside_tensors_are_outputs():
    run = TensorFlowRecorder(lambda: (DENSE * 2, 1.0000001, np.float32([3]), None))
    assert [each.dtype.name for each in run.plain()] == ["float32", "float64", "float32"]


def test_texts_are_outputs_that_agree_or_not():
    """A SavedModel that returns the names of classes ended in a mistake of probe's."""
    names = tf.constant([["cat", "dog"], ["", "a longer name"]])
    run = record_run(TensorFlowRecorder(lambda: {"scores": tf.constant([1.5]), "names": names}))
    outputs = [run.array(number) for number in run.outputs]
    (texts,) = [each for each in outputs if each.shape == (2, 2)]
    assert len(set(texts.ravel().tolist())) == 4
    again = TensorFlowRecorder(lambda: tf.constant([["cat", "dog"], ["", "another"]])).plain()[0]
    assert (again == texts).tolist() == [[True, True], [True, False]]


def test_a_file_that_has_run_at_these_shapes_is_watched_at_once() -> None:
    calls = list[int]()

    def call(operands):
        calls.append(1)
        return operands[0] * 2

    file = OpenedTensorFlow((Input("x", (None, 2), "float32"),), call)
    x = np.ones((3, 2), np.float32)
    file.recorder({"x": x}).plain()
    recorder = file.recorder({"x": x + 1})
    run = record_run(recorder)
    assert (len(calls), recorder.note) == (2, "")
    assert [run.array(n).tolist() for n in run.outputs] == [[[4, 4]] * 3]
    record_run(file.recorder({"x": x[:2]}))  # other shapes: functions are traced once more
    assert len(calls) == 4
