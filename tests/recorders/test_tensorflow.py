"""TensorFlow watched: what is seen is what ran, what must agree does, files are data."""

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
from tensorflow.python.eager import context  # noqa: E402

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow, pytest.mark.long]

from probe.agreement import RunningMatch  # noqa: E402
from probe.errors import InputError  # noqa: E402
from probe.recorders.tensorflow import OpenedTensorFlow, TensorFlowRecorder, opened  # noqa: E402
from probe.recording.contract import Input  # noqa: E402
from probe.recording.difference import compare_runs  # noqa: E402
from probe.recording.recording import array_digest, record_run  # noqa: E402
from probe.recording.subject import open_model  # noqa: E402
from probe.semantics import Unknown  # noqa: E402
from tests.recorders.truth import said  # noqa: E402

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
    assert not any(isinstance(one.meaning, Unknown) for one in graph.operations)


def test_a_compiled_function_is_one_operation_whose_rows_must_agree():
    compiled = tf.function(network, jit_compile=True)
    x = normal(4, 9, 9, 4)
    one, all_ = (record_run(TensorFlowRecorder(lambda n=n: compiled(x[:n]))) for n in (1, 4))
    for live in (one, all_):
        operation = live.operations[-1]
        assert operation.op.startswith("function "), operation
        assert "XLA" in live.note
    found = compare_runs(RunningMatch.of(one, all_))
    assert [(pair.compared, pair.known) for pair in found.outputs] == [(2, True), (3, True)]


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


def moved(a):
    b = tf.transpose(tf.reshape(a, [2, 6, 6, 2, 2]), [0, 3, 2, 1, 4])
    return tf.tile(
        tf.pad(b[:, :, 1:-1:2], [[0, 0], [0, 0], [1, 2], [0, 0], [0, 0]]), [1, 1, 1, 1, 2]
    )


def nchw(a, w):
    """No convolution: processors have none of this format."""
    return tf.nn.bias_add(tf.transpose(a, [0, 3, 1, 2]), w(4), data_format="NCHW")


CASES = {
    "same": lambda a, w: tf.nn.conv2d(a, w(3, 3, 4, 2), 2, "SAME"),
    "valid": lambda a, w: tf.nn.conv2d(a, w(2, 3, 4, 2), 1, "VALID", dilations=2),
    "explicit": lambda a, w: tf.nn.conv2d(a, w(3, 3, 4, 2), 2, [[0, 0], [2, 1], [0, 1], [0, 0]]),
    "depthwise": lambda a, w: tf.nn.depthwise_conv2d(a, w(3, 3, 4, 2), [1, 1, 1, 1], "SAME"),
    "transposed": lambda a, w: tf.nn.conv2d_transpose(a, w(3, 3, 2, 4), [2, 12, 12, 2], 2, "SAME"),
    "separable": lambda a, w: tf.nn.separable_conv2d(
        a, w(3, 3, 4, 1), w(1, 1, 4, 3), [1, 2, 2, 1], "VALID"
    ),
    "conv1d": lambda a, w: tf.nn.conv1d(a[:, 2], w(3, 4, 2), 1, "SAME"),
    "conv3d": lambda a, w: tf.nn.conv3d(a[..., None], w(2, 2, 2, 1, 2), [1] * 5, "SAME"),
    "average": lambda a, w: tf.nn.avg_pool2d(a, 2, 2, "VALID") * 4.0,
    "dense": lambda a, w: a @ w(4, 3) + w(3),
    "mean": lambda a, w: tf.reduce_sum(a, [1, 3]),
    "einsum": lambda a, w: tf.einsum("bhwc,cd->bdhw", a, w(4, 3)),
    "moved": lambda a, w: moved(a),
    "nchw": lambda a, w: nchw(a, w),
    "gather": lambda a, w: tf.gather(a, [[3, 0], [1, 1]], axis=2),
    "points": lambda a, w: tf.gather_nd(a, [[0, 1], [1, 2]]),
    "nearest": lambda a, w: tf.image.resize(a, [9, 12], "nearest"),
    "where": lambda a, w: tf.where(tf.range(4) % 2 == 0, a, 0.0),
    "depth": lambda a, w: tf.nn.depth_to_space(tf.nn.space_to_depth(a, 3), 3),
    "batches": lambda a, w: tf.batch_to_space(
        tf.space_to_batch(a, [2, 3], [[1, 1], [0, 0]]), [2, 3], [[1, 0], [0, 0]]
    ),
    "stacked": lambda a, w: tf.stack(tf.unstack(a, axis=3)[:2] + [a[..., 2]], 1),
    "cumulated": lambda a, w: tf.cumsum(a, 1),
    "rolled": lambda a, w: tf.roll(a, [1, -2], [1, 2]),
    "scattered": lambda a, w: tf.scatter_nd([[1], [3], [1], [0], [2], [3]], a[1], [5, 6, 4]),
    "updated": lambda a, w: tf.tensor_scatter_nd_update(a, [[0, 1], [1, 0]], a[1, 2:4]),
    "added": lambda a, w: tf.tensor_scatter_nd_add(a, [[0], [0]], a),
    "band": lambda a, w: tf.linalg.band_part(a, 1, 2),
    "diagonal": lambda a, w: tf.linalg.diag(tf.linalg.diag_part(a[:, :, 1:5])),
    "set": lambda a, w: tf.linalg.set_diag(a[:, :, :4], a[:, :, 2]),
    "reversed": lambda a, w: tf.reverse_sequence(a, [2, 5], seq_axis=1, batch_axis=0),
    "segments": lambda a, w: tf.reduce_sum(tf.math.unsorted_segment_sum(a, [1, 0], 3), 0),
    "same numbers": lambda a, w: tf.identity_n([a, a[0]])[0],
    "norm": lambda a, w: (
        tf.raw_ops.FusedBatchNormV3(
            x=a, scale=w(4), offset=w(4), mean=w(4), variance=w(4), is_training=False
        ).y
    ),
}


def watched(function, bits):
    """A run with weights that are small whole numbers: sums of them are exact."""

    def call():
        state = np.random.default_rng(1)
        given = tf.constant(bits)
        return function(given, lambda *s: tf.constant(state.integers(1, 9, s).astype(np.float32)))

    return record_run(TensorFlowRecorder(call))


@pytest.mark.parametrize("name", CASES)
def test_those_outputs_must_agree_that_a_changed_input_does_not_change(name):
    """One element is another number: what changes is what reads it, as nothing is rounded."""
    before = RANDOM.permutation(2 * 6 * 6 * 4).reshape(2, 6, 6, 4).astype(np.float32) + 1
    after = before.copy()
    after[1, 2, 3, 2] += 1000
    left, right = (watched(CASES[name], bits) for bits in (before, after))
    found = compare_runs(RunningMatch.of(left, right))
    assert {one.verdict for one in found.operations} <= {"equal", "healed"}
    (pair,) = found.outputs
    same = left.results[0] == right.results[0]
    assert pair.known
    assert not same.all(), "the case doesn't read the element"
    np.testing.assert_array_equal(pair.selection.mask(same.shape, 0), same)


def test_a_mask_keeps_padding_out_of_a_softmax():
    table = tf.Variable(normal(20, 8))

    def attention(ids):
        x = tf.gather(table, ids)
        mask = tf.cast(ids != 0, tf.float32)[:, None, :]
        weights = tf.nn.softmax(x @ tf.transpose(x, [0, 2, 1]) - (1.0 - mask) * 1e9)
        return weights @ x

    short = tf.constant([[3, 1, 4, 1, 5]])
    long = tf.pad(short, [[0, 0], [0, 3]])
    found = compare_runs(
        RunningMatch.of(
            *(record_run(TensorFlowRecorder(lambda i=i: attention(i))) for i in (short, long))
        )
    )
    (pair,) = found.outputs
    assert (pair.compared, pair.known) == (40, True)


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
    (tmp_path / "empty").mkdir()
    (tmp_path / "m.keras").write_bytes(b"nothing of the kind")
    (tmp_path / "m.onnx").write_bytes(b"")
    for name in ("broken", "empty", "m.keras", "m.onnx", "missing.keras"):
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


@pytest.mark.slow
def test_mobilenet_is_compared_in_less_than_a_minute_and_nothing_of_it_is_unknown():
    keras = pytest.importorskip("keras")
    keras.utils.set_random_seed(0)
    model = keras.applications.MobileNetV2(weights=None)
    x = normal(8, 224, 224, 3)
    one, all_ = (
        record_run(TensorFlowRecorder(lambda n=n: model(x[:n], training=False))) for n in (1, 8)
    )
    found = compare_runs(RunningMatch.of(one, all_))
    assert not any(isinstance(op.meaning, Unknown) for op in all_.operations)
    assert (found.examined, found.outputs[0].compared) == (len(found.operations), 1000)


def test_a_function_known_by_its_nodes_does_not_run_beside_them_and_says_the_same():
    factor = tf.Variable(2.0)
    x = normal(2, 9, 9, 4)
    function = tf.function(lambda x: [one * factor for one in network(x)])
    kept = TensorFlowRecorder(lambda: function(x))
    record_run(kept)
    factor.assign(-3.0)
    ctx, ran = context.context(), []
    plain = ctx.call_function
    ctx.call_function = lambda *given: ran.append(given) or plain(*given)
    try:
        again = record_run(kept)
        inside = ctx.call_function
    finally:
        ctx.call_function = plain
    assert not ran
    assert inside is not plain  # the recording put back what it found
    fresh = record_run(TensorFlowRecorder(lambda: function(x)))
    assert [one.tobytes() for one in again.results] == [one.tobytes() for one in fresh.results]
    assert said(again) == said(fresh)


def test_a_keras_model_in_memory_is_called_with_all_its_inputs():
    keras = pytest.importorskip("keras", reason="Keras is not installed")
    entries = [keras.Input((None, 3), name="x"), keras.Input((3,), name="gate")]
    model = keras.Model(entries, keras.layers.Multiply()(entries))
    x, gate = np.ones((2, 4, 3), np.float32), np.full((2, 3), 2.5, np.float32)
    (y,) = open_model(model).recorder({"x": x[:1], "gate": gate[:1]}).plain()
    assert np.array_equal(np.asarray(y), np.asarray(model([x[:1], gate[:1]])))


def test_an_addition_that_keras_squeezes_at_batch_one_is_that_of_a_larger_batch():
    """``keras.ops.add`` of (1, n) to (1, n) is a BiasAdd of n numbers there: in recurrent cells."""
    keras = pytest.importorskip("keras", reason="Keras is not installed")
    keras.utils.set_random_seed(0)
    cell = keras.layers.LSTM(4)
    x = normal(3, 3, 5)
    cell(x)
    sides = [record_run(TensorFlowRecorder(lambda n=n: cell(tf.constant(x[:n])))) for n in (1, 3)]
    found = compare_runs(RunningMatch.of(*sides))
    assert not [one.op for one in found.operations if one.verdict == "unknown"]
    assert found.outputs[0].compared == 4


def test_arguments_of_layers_whose_names_differ_are_compared():
    """Keras numbers its layers, so nothing of two models has the same name."""
    keras = pytest.importorskip("keras")
    if keras.backend.backend() != "tensorflow":
        pytest.skip("another backend of Keras")
    x = normal(6, 20)
    layers = [keras.layers.LayerNormalization(epsilon=one) for one in (1e-3, 1e-5)]
    for one in layers:
        one(x)
    sides = [record_run(TensorFlowRecorder(lambda one=one: one(x))) for one in layers]
    (first,) = compare_runs(RunningMatch.of(*sides)).sources
    assert first.arguments == "operand 2 0.001 against 1e-05"
    (first,) = compare_runs(
        RunningMatch.of(
            *(
                record_run(TensorFlowRecorder(lambda a=a: tf.nn.leaky_relu(x, a)))
                for a in (0.1, 0.2)
            )
        )
    ).sources
    assert first.arguments == "alpha 0.1 against 0.2"


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
