"""Graphs of NumPy operations, padded: sizes that serve are those that brute force finds."""

import importlib.util
import json
from dataclasses import replace

import numpy as np
import pytest

import probe
from lib import nine_layers
from probe.errors import InputError
from probe.invariant.mitigated_models import judged_ways, recommended_way
from probe.padding import search
from probe.padding.search import PaddedModel
from probe.recorders.ndarray import operation
from probe.recording.replayed import OnTarget
from probe.semantics import Contracts, Each, Reduces, Scans
from tests.padding import graphs
from tests.padding.graphs import BIAS, FIXED, ONE, TWO, WIDE, X, answered, conv, convolved, graph

IN_CALLS = search.in_calls


def brute(model, content):
    """The least size at which all outputs that read content come out, by numbers alone."""

    def run(content, size):
        x = np.zeros((1, size, graphs.CHANNELS), np.float32)
        x[:, :content] = X[:, :content]
        return np.asarray(model(x))

    whole = run(content, FIXED)
    read = np.flatnonzero((whole != run(0, FIXED)).any(axis=(0, 2)))
    for size in range(content, FIXED):
        short = run(content, size)
        if short.shape[1] > read[-1] and np.array_equal(
            short[:, read[0] : read[-1] + 1], whole[:, read[0] : read[-1] + 1]
        ):
            return size
    return FIXED


@pytest.mark.parametrize("content", [5, 23])
def test_the_least_size_of_a_residual_graph_is_that_of_brute_force(content):
    found = graph(graphs.residual()).sized(content)
    assert found.least == found.safe == brute(graphs.residual(), content)
    assert found.at_safe.by_order == "same" and (found.at_safe.sets > 10 or found.safe == FIXED)


def test_a_difference_that_reaches_nothing_that_is_kept_is_none():
    """In the short run the last entry alone is added otherwise, and it reads padding."""

    def tail(x, w):
        y = convolved(x, w)
        if x.shape[1] == 9:
            y[:, -1] = convolved(x, w, lambda size: True)[:, -1]
        return y

    second = operation("second", WIDE)(tail)
    first = conv("first")

    def model(x):
        return second(first(x, ONE), TWO)

    found = graph(model).serves(5, 9)
    assert found.serves and found.boxes[0][0].stop == 7


def test_what_reads_all_of_the_axis_is_named():
    mean = operation("mean", Reduces((1,), "mean", True))(
        lambda y: np.asarray(y).mean(axis=1, keepdims=True)
    )
    found = graph(lambda x: mean(graphs.residual()(x))).sized(4)
    assert (found.least, found.safe) == (FIXED, FIXED)
    assert found.at_least.name == "mean" and "read the whole padded axis" in found.at_least.why


def test_a_state_that_is_carried_keeps_the_places_of_content():
    carried = operation("scan", Scans(1))(lambda x: np.cumsum(np.asarray(x), axis=1))
    one = graph(lambda x: carried(x))
    found = one.sized(4)
    assert one.own_places and (found.least, found.safe) == (4, 4)
    assert (found.at_safe.boxes[0][0].start, found.at_safe.boxes[0][0].stop) == (0, 4)
    assert (found.at_safe.by_order, found.at_safe.name) == ("unknown", "scan")


def test_a_choice_that_reads_subnormal_numbers_as_zeros_serves_for_the_others():
    """TensorFlow's ReLU: exact wherever it stands, but for subnormal numbers."""
    relu = operation("relu", replace(Each("relu", "stays"), approximate=True))(
        lambda x: np.maximum(np.asarray(x), np.float32(0))
    )
    first = conv("first")
    found = graph(lambda x: first(relu(x), ONE)).sized(5).at_safe
    assert found.sets and found.given == "values that are not subnormal at relu"
    told = answered(lambda x: first(relu(x), ONE), lengths=[5])
    assert told.to_json()["valid_for"] == found.given and found.given in told.advice()
    assert any(found.given in one for one in told.plan.assumed)
    small = X.copy()
    small[0, 0, 0] = 1e-40
    found = graph(lambda x: first(relu(x), ONE), {"x": small}).sized(5).at_safe
    assert (found.by_order, found.given, found.name) == ("unknown", "", "relu")


def test_what_a_compiler_may_fuse_is_compared_by_bits(monkeypatch):
    model = graphs.residual()
    one = graph(model)
    whole = lambda arrays, times=1: (np.asarray(model(*arrays.values())), [1.0], "")  # noqa: E731
    one.opened.end_to_end = whole
    assert one.sized(5).at_safe.sets  # a call for each operation: these decide
    monkeypatch.setattr(search, "in_calls", lambda where: False)
    told = one.serves(5, one.sized(5).safe)
    assert (told.by_order, told.why) == ("same", search.BY_BITS)
    names = {"tensorflow": True, "tensorflow,xla=1": False, "tensorflow==1.2.1": False}
    names |= {"torch,threads=1": True, "onnxruntime": False, "jax": False, "litert": False}
    assert {text: IN_CALLS(probe.Target.parse(text)) for text in names} == names


def test_two_inputs_are_padded_together_and_batches_have_safe_sizes():
    def product(x, w):
        x, w = np.asarray(x), np.asarray(w)
        order = range(w.shape[0])[::-1] if len(x) < 4 else range(w.shape[0])
        y = np.zeros((len(x), w.shape[1]), np.float32)
        for k in order:
            y = y + x[:, k : k + 1] * w[k]
        return y

    dense = operation("dense", Contracts("mk,kn->mn"))(product)
    a, b = (graphs.rng.standard_normal((8, 6)).astype(np.float32) for _ in range(2))
    w = graphs.rng.standard_normal((6, 5)).astype(np.float32)
    one = graph(lambda a, b: (dense(a, w) - b[:, :5], b), {"a": a, "b": b}, {"a": 0, "b": 0}, 8)
    found = one.sized(2)
    assert (found.least, found.safe) == (2, 4) and found.at_safe.sets
    assert [box[0].stop for box in found.at_safe.boxes] == [2, 2]


def test_a_plan_gives_the_fixed_bits_from_its_own_code(tmp_path):
    found = answered(graphs.residual(lambda size: size == 6), lengths=[3], plan=tmp_path / "plan")
    assert found.verdict == "differs" and found.first == "second"
    told = json.loads((tmp_path / "plan" / "plan.json").read_text())
    assert told["sets"] and not told["failed"]
    assert (found.found[0].content, found.found[0].safe) == (3, 7)
    spec = importlib.util.spec_from_file_location("padded", tmp_path / "plan" / "padded.py")
    padded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(padded)
    model = graphs.residual(lambda size: size == 6)
    for content in range(1, 4):
        x = X[:, :content] * np.float32(1.5)
        whole = np.zeros_like(X)
        whole[:, :content] = x
        short = model(padded.pad({"x": x})["x"])
        (y,) = padded.complete([np.asarray(short)], content)
        assert y.tobytes() == np.asarray(model(whole)).tobytes()


def test_of_two_operations_that_differ_the_one_in_the_way_is_named():
    """The first differs behind what is kept alone, so that fewer outputs of the second must agree
    than where the second is the only one that differs."""

    def at_its_end(x, w):
        there, turned = convolved(x, w), convolved(x, w, lambda size: True)
        return np.concatenate([there[:, :-2], turned[:, -2:]], 1) if x.shape[1] == 8 else there

    first, second = operation("first", WIDE)(at_its_end), conv("second", lambda size: size == 8)
    model = graph(lambda x: second(first(x, ONE) + BIAS, TWO))
    model.positions = None  # as where every size has to be recorded
    told = model.serves(3, 8)
    assert (told.by_order, told.name) == ("differs", "second")


def test_the_run_of_padding_alone_has_numbers_of_its_own():
    added = operation("added", Each("added"))(lambda x, a, b: np.asarray(x) + a + b)

    def read(x):  # one value more where there is no content
        more = BIAS if np.asarray(x).any() else 2 * BIAS
        return conv("first")(added(x, BIAS, more), ONE)

    model = graph(read)
    model.positions = None  # as where every size has to be recorded
    told = model.serves(5, 5)
    assert told.lacking and told.name == "added"


def test_constants_between_operations_make_shorter_sizes_serve():
    first, second, third = conv("first"), conv("second"), conv("third")

    def model(x):
        y = np.maximum(first(x, ONE) + BIAS, np.float32(0))
        z = np.maximum(second(y, TWO) + BIAS, np.float32(0)) + y
        return third(z, ONE) + BIAS

    found = answered(model, lengths=[5])
    (one,) = found.plan.between
    assert one.size < found.found[0].safe and one.proved == 3 and one.sets
    behind = {splice.operation.partition("#")[0] for splice in one.splices}
    assert behind <= {"first", "second", "third", "add", "maximum"}
    assert any(each.operation == "second" for each in one.splices)


def test_answers_say_the_same_in_lines_json_and_the_command(tmp_path, capsys, monkeypatch):
    found = answered(graphs.residual(), lengths=[1], safe=False)
    told = found.to_json()
    assert told["verdict"] == "equal" and told["examined"] == told["operations_total"]
    assert [one["least"] for one in told["contents"]] == [brute(graphs.residual(), 1)]
    assert "sets of operands" in repr(found) and found.picture() is not None
    given = {"inputs": {"x": X, "z": np.concatenate([X, X], 1)}, "vary": "x:1,z:1"}
    with pytest.raises(InputError, match="x has 24, z has 48 entries.*name one of these axes: x:1"):
        probe.network(lambda x, z: (x + BIAS, z + BIAS), lengths=[3], **given)
    with pytest.raises(InputError, match="content=25: the full size is 24"):
        answered(graphs.residual(), lengths=[25])
    with pytest.raises(InputError, match=r"padded=3: the content has 5 entries"):
        answered(graphs.residual(), lengths=[5], padded=3)


def test_ways_of_padding_are_judged_and_timed():
    rows = np.random.default_rng(3).standard_normal((1, 12, 2)).astype(np.float32)

    def tripled(x, w):
        y = convolved(x, w)
        return np.nextafter(y, np.float32(9)) if x.shape[1] == 5 else y

    wide = operation("conv", WIDE)(tripled)
    w = np.random.default_rng(4).standard_normal((3, 2, 2)).astype(np.float32)
    one = PaddedModel(graphs.Opened(lambda x: wide(x, w)), {"x": rows}, {"x": 1}, 12)
    ways = {each["name"]: each for each in judged_ways(one, [one.sized(4)], 4)}
    assert ways["default"]["verdict"] != "exact" and ways["default"]["sizes"] == [5]
    assert ways["pad"]["verdict"] == "exact" and ways["pad"]["sizes"] == [6]
    assert recommended_way(list(ways.values())) == "pad"
    assert ways["fixed"]["of_fixed"] == 1


@pytest.mark.slow
def test_a_graph_runs_on_a_target_in_a_process_of_its_own(tmp_path):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    from onnx import TensorProto, helper, numpy_helper

    w = np.random.default_rng(1).standard_normal((4, 4, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1], kernel_shape=[3]),
        helper.make_node("Add", ["x", "y"], ["z"]),
    ]
    shape = [1, 4, "t"]
    made = helper.make_graph(
        nodes,
        "residual",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(w, "w")],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, tmp_path / "model.onnx")
    path = str(tmp_path / "model.onnx")
    here = probe.network(path, fixed=16, lengths=[3])
    there = probe.network(path, "onnxruntime,threads=1", vary="length", fixed=16, lengths=[3])
    assert there.graph.nothing.target.startswith("onnxruntime")
    assert [one.least for one in here.found] == [one.least for one in there.found] == [4]
    assert here.plan.failed == there.plan.failed == []


def switching(tmp_path, **words):
    """Nine layers in small as an ONNX file, and a target that adds short rows otherwise."""
    pytest.importorskip("onnxruntime")
    path = nine_layers.onnx_model(tmp_path / "small.onnx", width=3, blocks=2, **words)
    shape = {"x": (1, 1, 1, 80)}
    return str(path), "reference,algorithm=pairwise,length_switch=9", {"shapes": shape, "fixed": 80}


def programs(kind, tmp_path):
    """A model of a library, what ``probe.network`` is given besides, and how its users call it."""
    words = {"width": 3, "blocks": 2}
    if kind == "keras":
        pytest.importorskip("tensorflow")
        model = nine_layers.keras_model(**words)
        return model, {"fixed": 80}, "x", (1, 1, 80, 1), 2, lambda x: np.asarray(model(x))
    if kind == "torch":
        torch = pytest.importorskip("torch")
        model, shape = nine_layers.torch_module(**words), (1, 1, 1, 80)
        run = lambda x: model(torch.from_numpy(x)).numpy()  # noqa: E731
        return model, {"fixed": 80, "shapes": {"x": shape}}, "x", shape, 3, run
    library = pytest.importorskip("onnxruntime")
    path = nine_layers.onnx_model(tmp_path / "model.onnx", **words)
    session = library.InferenceSession(path)
    run = lambda x: session.run(None, {"x": x})[0]  # noqa: E731
    return str(path), {"fixed": 80, "shapes": {"x": (1, 1, 1, 80)}}, "x", (1, 1, 1, 80), 3, run


@pytest.mark.parametrize("kind", ["keras", "torch", "onnx"])
@pytest.mark.slow_at("keras", "onnx")
def test_a_users_program_has_the_fixed_bits_at_planned_lengths(kind, tmp_path):
    model, words, name, shape, axis, run = programs(kind, tmp_path)
    found = probe.network(model, lengths=[24], plan=tmp_path / "plan", **words)
    assert found.plan.failed == [] and found.graph.positions is not None
    spec = importlib.util.spec_from_file_location(f"padded_{kind}", tmp_path / "plan" / "padded.py")
    padded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(padded)
    for content in (1, 7, 24):
        for seed in range(4):
            x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
            x[(slice(None),) * axis + (slice(content, None),)] = 0
            bare = np.ascontiguousarray(np.take(x, range(content), axis))
            (y,) = padded.complete([run(padded.pad({name: bare})[name])], content)
            assert y.tobytes() == run(x).tobytes(), (content, seed)


@pytest.mark.slow
def test_sizes_at_which_the_program_computes_otherwise_are_not_safe(tmp_path, monkeypatch):
    # a double of a compiler: as one program, inputs below 70 positions give other outputs
    path, target, words = switching(tmp_path)

    def whole(self, arrays, times=1):
        (x,) = arrays.values()
        (y,) = self.plain(arrays)
        return (y if x.shape[-1] >= 70 else np.nextafter(y, np.float32(9))), [1.0], ""

    monkeypatch.setattr(OnTarget, "end_to_end", whole)
    found = probe.network(path, target, lengths=[1], explain=False, **words)
    assert found.found[0].safe == 70  # 64 operation by operation


def behind_content(torch, name):
    """Models whose outputs behind the kept ones read content, or what isn't padded; the inputs."""
    nn = torch.nn
    draw = np.random.default_rng(2).standard_normal

    class Causal(nn.Module):
        def forward(self, x):
            q = x[:, None]
            attended = nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)
            return attended[:, 0]

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.GRU(4, 4, batch_first=True)

        def forward(self, x):
            return self.inner(x)[0]

    class Beside(nn.Module):
        def forward(self, x, other):
            return x * 2 + other

    torch.manual_seed(0)
    x = {"x": draw((1, 12, 4)).astype("float32")}
    beside = x | {"other": draw((1, 1, 4)).astype("float32")}
    return {"causal": (Causal(), x), "gru": (Recurrent(), x), "beside": (Beside(), beside)}[name]


@pytest.mark.parametrize("name", ["causal", "gru", "beside"])
def test_what_is_behind_the_kept_outputs_is_completed_only_if_it_is_constant(name, tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    model, inputs = behind_content(torch, name)
    probe.network(model.eval(), inputs=inputs, vary="x:1", lengths=[5], plan=tmp_path / "plan")
    spec = importlib.util.spec_from_file_location(f"behind_{name}", tmp_path / "plan" / "padded.py")
    padded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(padded)
    assert not padded.PLAN["completes"]
    short = padded.pad({**inputs, "x": inputs["x"][:, :5]})
    with torch.no_grad():
        y = model(*map(torch.from_numpy, short.values())).numpy()
    with pytest.raises(ValueError, match="content=5: .*; use crop") as caught:
        padded.complete([y], 5)
    assert "\n" not in str(caught.value)
    (kept,) = padded.crop([y], 5)
    assert kept.tobytes() == y[:, : kept.shape[1]].tobytes()
