"""TensorFlow watched: what is seen is what ran, what must agree does, files are data."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.record.recorded import alone, drawn, held_to_account, inputs

tf = pytest.importorskip("tensorflow")

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.slow, pytest.mark.long]

from tensorflow.python.eager import context, execute  # noqa: E402

from probe.case.errors import InputError  # noqa: E402
from probe.diff.difference import compare_runs  # noqa: E402
from probe.diff.match import RunningMatch  # noqa: E402
from probe.record.contract import Input  # noqa: E402
from probe.record.recording import array_digest, record_run  # noqa: E402
from probe.record.subject import open_model  # noqa: E402
from probe.record.tensorflow import (  # noqa: E402
    APPROXIMATE,
    TABLE,
    OpenedTensorFlow,
    TensorFlowRecorder,
    opened,
)
from probe.record.tensorflow_values import array, tensor_of  # noqa: E402

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


# every row of TensorFlow's table: what it says of calls of TensorFlow is what they give

ROWS, draw = drawn(12)
INPUTS = {
    "a": draw(4, 6), "b": draw(4, 6), "t": draw(4, 5, 8), "p": draw(4, 8, 7, 6),
    "v": draw(4, 5, 6, 4, 2), "q": draw(4, 5, 8), "u": ROWS.random((4, 6), np.float32),
    "i": ROWS.integers(0, 20, (4, 6)).astype(np.int32), "j": ROWS.integers(1, 9, (4, 6), np.int32),
    "k": ROWS.random((4, 6)) < 0.5, "o": ROWS.random((4, 6)) < 0.5,
    "c": (draw(4, 6) + 1j * draw(4, 6)).astype(np.complex64),
}  # fmt: skip
PAIRS = "Pow Maximum SquaredDifference Atan2 FloorMod Less DivNoNan AddV2 NextAfter Mul".split()
WHOLE = "Mod FloorMod FloorDiv TruncateDiv BitwiseXor".split()
UNARY = "Selu LeakyRelu Tanh Neg Square Erf Rint Floor Sigmoid Exp Rsqrt Softplus IsInf".split()
UNARY += APPROXIMATE
GRADIENTS = "ReluGrad SigmoidGrad RsqrtGrad".split()
raw = tf.raw_ops
Given = dict[str, Any]


def called(op: str, *arrays: Any) -> Any:
    """Runs an operation on its first inputs, whatever they are called."""
    function = getattr(raw, op)
    return function(**dict(zip(inspect.signature(function).parameters, arrays, strict=False)))


def elements(x: Given) -> list[Any]:
    a, b, i, j, u = (x[name] for name in "abiju")
    return [
        *(called(op, a) for op in UNARY), *(called(op, a, b) for op in (*PAIRS, *GRADIENTS)),
        *(called(op, i, j) for op in WHOLE),
        *(called(op, i - 9, j) for op in ("Mod", "FloorMod", "TruncateMod")),
        raw.LogicalNot(x=x["k"]), raw.LogicalAnd(x=x["k"], y=x["o"]), raw.Equal(x=i, y=j),
        raw.LeakyRelu(features=a, alpha=0.4),
        *(raw.Cast(x=a, DstT=to) for to in (tf.float16, tf.int32, tf.float64, tf.bfloat16)),
        raw.Cast(x=tf.cast(a, tf.float64), DstT=tf.float16, Truncate=True),
        raw.Bitcast(input=a, type=tf.int32),
        raw.ClipByValue(t=a, clip_value_min=-0.5, clip_value_max=0.5),
        raw.AddN(inputs=[a, b, u]), raw.AddN(inputs=[a, b]), raw.BiasAdd(value=a, bias=row(6)),
        raw.BiasAddV1(value=a, bias=row(6)), raw.BiasAdd(value=x["p"], bias=row(6)),
        raw.Betainc(a=u, b=u, x=u), raw.Igamma(a=u, x=tf.abs(a)), raw.Complex(real=a, imag=b),
        raw.PopulationCount(x=i), raw.Conj(input=x["c"]), raw.Angle(input=x["c"]),
        raw.LeftShift(x=i, y=j),
        raw.ComplexAbs(x=x["c"]), raw.PreventGradient(input=a), raw.GuaranteeConst(input=a),
        raw.CheckNumerics(tensor=a, message=""), raw.CheckNumericsV2(tensor=a, message=""),
        raw.EnsureShape(input=a, shape=[None, 6]),
    ]  # fmt: skip


FLAT, DEEP = ({"strides": [1] * rank, "padding": "SAME"} for rank in (4, 5))
HALF = {"strides": [1, 2, 2, 1]}
ROW = draw(64)


def row(*shape: int) -> Any:
    return tf.constant(np.resize(ROW, shape))


def layers(x: Given) -> list[Any]:
    a, t, p, v = (x[name] for name in "atpv")
    one, pads = {"strides": [1, 2, 1, 1], "padding": "SAME"}, [0, 0, 1, 0, 2, 1, 0, 0]
    norm = {"scale": row(6), "offset": row(6) + 1, "mean": row(6), "variance": tf.abs(row(6))}
    empty = {**norm, "mean": np.zeros(0, np.float32), "variance": np.zeros(0, np.float32)}
    turned = {"input_sizes": [4, 16, 14, 2], "filter": row(3, 3, 2, 6), "out_backprop": p}
    deep = {"input_sizes": [4, 5, 6, 4, 3], "filter": row(2, 2, 2, 3, 2), "out_backprop": v}
    norms = [getattr(raw, f"FusedBatchNorm{kind}") for kind in ("", "V2", "V3")]
    return [
        *(getattr(raw, op)(input=t, axis=axis, keep_dims=keep) for axis, keep in (([1], True),
          ([-1, 1], False)) for op in ("Mean", "Sum", "Max", "Min", "Prod", "EuclideanNorm")),
        raw.Mean(input=t, axis=np.zeros(0, np.int32)),
        *(getattr(raw, op)(input=x["k"], axis=[1]) for op in ("All", "Any")),
        *(getattr(raw, op)(input=t, dimension=1) for op in ("ArgMax", "ArgMin")),
        *raw.TopKV2(input=t, k=2), raw.Softmax(logits=t), raw.LogSoftmax(logits=t),
        raw.MatMul(a=a, b=row(6, 3)), raw.MatMul(a=row(3, 6), b=a, transpose_b=True),
        raw.SparseMatMul(a=a, b=row(3, 6), transpose_b=True),
        raw.BatchMatMul(x=t, y=x["q"], adj_y=True), raw.BatchMatMulV2(x=t, y=row(1, 8, 2)),
        raw.BatchMatMulV3(x=t, y=row(1, 8, 2), Tout=tf.float32),
        raw.Einsum(inputs=[t, row(8, 2)], equation="bij,jk->bki"),
        raw.Einsum(inputs=[t], equation="bij->bji"),
        *(raw.Conv2D(input=p, filter=row(3, 2, n, 2), **HALF, padding="SAME") for n in (6, 3)),
        raw.Conv2D(input=p, filter=row(3, 2, 6, 2), strides=[1] * 4, padding="EXPLICIT",
                   explicit_paddings=pads, dilations=[1, 2, 1, 1]),
        raw.Conv3D(input=v, filter=row(2, 2, 2, 2, 3), **DEEP),
        *(raw.DepthwiseConv2dNative(input=p, filter=row(3, 2, 6, n), **FLAT) for n in (1, 2)),
        raw.Conv2DBackpropInput(**turned, **HALF, padding="SAME"),
        raw.Conv3DBackpropInputV2(**deep, **DEEP), raw.MaxPool(input=p, ksize=[1, 2, 3, 1], **one),
        raw.AvgPool(value=p, ksize=[1, 2, 3, 1], **one),
        raw.AvgPool3D(input=v, ksize=[1, 2, 2, 2, 1], **DEEP),
        raw.MaxPool3D(input=v, ksize=[1, 2, 2, 2, 1], strides=[1] * 5, padding="VALID"),
        *raw.MaxPoolWithArgmax(input=p, ksize=[1, 2, 3, 1], **one),
        *(n(x=p, **norm, epsilon=0.1, is_training=False).y for n in norms),
        *(n(x=p, **empty, epsilon=0.1).y for n in norms),
    ]  # fmt: skip


def moves(x: Given) -> list[Any]:
    a, b, t, p, i = (x[name] for name in "abtpi")
    pads, stitch = [[0, 0], [2, 1]], {"indices": [[0, 2], [1, 2]], "data": [a[:2], a[:2] + 1]}
    where = {"begin": [0, 1, 0], "end": [1, 5, 8], "strides": [1, 2, 1]}
    return [
        raw.Reshape(tensor=t, shape=[-1, 4]), raw.ExpandDims(input=t, axis=1),
        raw.Squeeze(input=t[:, :1]), raw.Transpose(x=t, perm=[2, 0, 1]), t[:, -1:0:-2],
        raw.ConcatV2(values=[t, x["q"]], axis=1), *raw.Split(axis=1, value=a, num_split=3),
        *raw.SplitV(value=a, size_splits=[4, 2], axis=-1, num_split=2),
        raw.Pack(values=[a, b], axis=-1), *raw.Unpack(value=t, num=5, axis=1),
        raw.PadV2(input=a, paddings=pads, constant_values=2.0),
        raw.MirrorPad(input=a, paddings=pads, mode="REFLECT"), raw.ReverseV2(tensor=t, axis=[1]),
        raw.GatherV2(params=t, indices=[3, 1], axis=-1),
        raw.OneHot(indices=[1, 9], depth=4, on_value=a[0, 0], off_value=a[0, 1]),
        raw.ResizeNearestNeighbor(images=p, size=[16, 14], half_pixel_centers=True),
        raw.Select(condition=x["k"], x=a, y=b), raw.SelectV2(condition=x["k"], t=a, e=row(6)),
        raw.SpaceToBatchND(input=p, block_shape=[2, 3], paddings=[[1, 1], [0, 2]]),
        raw.ReverseSequence(input=t, seq_lengths=[4, 1, 5, 2], seq_dim=1),
        raw.MatrixBandPart(input=t, num_lower=1, num_upper=2), raw.DynamicStitch(**stitch),
        raw.TensorStridedSliceUpdate(input=t, **where, value=row(1, 2, 8)),
        raw.Where(condition=x["k"]), *raw.Unique(x=i[0]), *raw.ListDiff(x=i[0], y=i[1]),
    ]  # fmt: skip


def ran(op: str, inputs: list[Any], count: int = 1, **attributes: Any) -> list[Any]:
    """An operation that Python has no name for: what the optimiser of graphs makes of others."""
    words = {"T": tf.float32, **attributes}
    flat = tuple(end for pair in words.items() for end in pair)
    run = execute.execute_with_callbacks
    return list(run(op.encode(), count, inputs, flat, context.context()))


TABLE_OF_ROWS = tf.Variable(np.resize(ROW, (5, 6)))


def fused(x: Given) -> list[Any]:
    a, p, v = (x[name] for name in "apv")
    found = ran("_FusedMatMul", [a, row(6, 3), row(3)], num_args=1, fused_ops=["BiasAdd"])
    found += ran("_FusedMatMul", [a, row(6, 3), row(3)], num_args=1, fused_ops=["BiasAdd", "Relu"])
    conv = {"TArgs": [tf.float32], "num_args": 1, "num_host_args": 0, **HALF, "padding": "SAME"}
    words = {**conv, "fused_ops": ["BiasAdd", "LeakyRelu"], "leakyrelu_alpha": 0.3}
    found += ran("_FusedConv2D", [p, row(3, 2, 6, 2), row(2)], **words)
    depthwise, given = "_FusedDepthwiseConv2dNative", [p, row(3, 2, 6, 1), row(6)]
    found += ran(depthwise, given, num_args=1, **FLAT, fused_ops=["BiasAdd", "Relu6"])
    try:
        given = [v, row(2, 2, 2, 2, 3), row(3)]
        found += ran("_FusedConv3D", given, num_args=1, **DEEP, fused_ops=["BiasAdd", "Relu"])
    except tf.errors.OpError:  # oneDNN's alone
        pass
    norm = [row(6), row(6), row(6), tf.abs(row(6))]
    words = {"U": tf.float32, "is_training": False, "num_side_inputs": 0}
    found += ran("_FusedBatchNormEx", [p, *norm], 6, **words, activation_mode="Relu")[:1]
    found += [tf.gather(TABLE_OF_ROWS, [4, 1, 1, 0])]
    return [*found, *ran("_UnaryOpsComposition", [a], op_names=["Abs", "Sqrt", "Tanh"])]


GROUPS: dict[str, Callable[[Given], list[Any]]] = {
    function.__name__: function for function in (elements, layers, moves, fused)
}


def recorder(name: str) -> TensorFlowRecorder:
    operands = inputs(INPUTS, tf.constant)
    return TensorFlowRecorder(lambda: GROUPS[name](operands))


def test_every_row_says_what_tensorflow_gives() -> None:
    ones = {"_FusedDepthwiseConv2dNative", "_FusedConv3D"}  # of oneDNN alone
    names = held_to_account(map(recorder, GROUPS), 1e-4, ones)
    assert not {*TABLE} - names - ones


@pytest.mark.parametrize("name", [name for name in GROUPS if name != "fused"])
def test_lines_and_operations_alone_give_the_bits_of_the_run(name: str) -> None:
    """Also where Python and TensorFlow's registry have other names for an argument."""
    run, written = alone(recorder(name), tensor_of, array)
    assert run == written and run


@pytest.mark.parametrize(
    ("op", "exact"),
    [
        (lambda a: raw.Reciprocal(x=a), False),
        (lambda a: raw.Inv(x=a), False),
        (lambda a: raw.Sqrt(x=a), False),
        (lambda a: raw.RealDiv(x=a, y=a + 1), True),
        (lambda a: raw.Cast(x=a, DstT=tf.float16), True),
        (lambda a: raw.Cast(x=tf.cast(a, tf.float64), DstT=tf.float16), False),
        # TensorFlow's threads read subnormal numbers as zeros, in a vector or behind it
        *((function, False) for function in (tf.nn.relu, tf.nn.relu6, tf.sign)),
    ],
)
def test_exact_is_what_eigen_rounds_once_on_every_processor(op: Any, exact: bool) -> None:
    events: list[Any] = []
    a = tf.constant(INPUTS["a"])
    TensorFlowRecorder(lambda: op(a)).record(events.append)
    assert events[-1].meaning.exact is exact
