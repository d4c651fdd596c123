"""ONNX models as exporters and converters write them are read as what they are."""

import numpy as np
import pytest

from probe import Target
from probe import program as programs
from probe.backends.onnxruntime import OnnxRuntime
from probe.backends.source import Shapes
from probe.launch import InlineSession
from probe.network import Network
from probe.network.description import from_json
from probe.network.running import Runner, content

onnx = pytest.importorskip("onnx")
SILU = (("Sigmoid", "v"), ("Mul", "v", 0))
GELU = (("Div", "v", 2**0.5), ("Erf", 0), ("Add", 1, 1.0), ("Mul", 2, "v"), ("Mul", 3, 0.5))


def model(*parts):
    """A convolution, then nodes of (operation, inputs): ``v``, a number, or an earlier node."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    held = {"w": np.ones((2, 3, 4), np.float32)}
    nodes = [helper.make_node("Conv", ["x", "w"], ["v"])]
    for number, (operation, *given) in enumerate(parts):
        names = []
        for one in given:
            if isinstance(one, float):
                held[f"c{number}"] = np.array(one, np.float32)
                names.append(f"c{number}")
            else:
                names.append(one if one == "v" else f"y{one}")
        nodes.append(helper.make_node(operation, names, [f"y{number}"], name=f"n{number}"))
    given = [helper.make_tensor_value_info("x", kind, [1, 3, "n"])]
    gives = [helper.make_tensor_value_info(nodes[-1].output[0], kind, None)]
    constants = [onnx.numpy_helper.from_array(array, name) for name, array in held.items()]
    return helper.make_model(helper.make_graph(nodes, "small", given, gives, constants))


@pytest.mark.parametrize(
    ("parts", "wanted"),
    [
        (SILU, ["silu"]),
        ((SILU[0], ("Mul", 0, "v")), ["silu"]),
        (GELU, ["gelu"]),
        ((*GELU, ("Relu", 4)), ["gelu", "relu"]),
        ((("Sigmoid", "v"), ("Relu", 0)), ["sigmoid", "relu"]),
        ((("Gelu", "v"),), ["gelu"]),
    ],
)
def test_nodes_of_one_activation_are_one_layer(parts, wanted):
    found = Network.load(model(*parts))
    assert [layer.activation for layer in found.layers[1:]] == wanted and found.suffix is None


@pytest.mark.parametrize(
    "parts",
    [
        (("Sigmoid", "v"), ("Mul", 0, 0)),
        (("Tanh", "v"), ("Mul", "v", 0)),
        (("Div", "v", 1.5), *GELU[1:]),
        (("Div", 2**0.5, "v"), *GELU[1:]),
        (*GELU[:4], ("Mul", 3, 0.25)),
        (*SILU, ("Add", 0, 1)),
    ],
)
def test_other_nodes_end_the_chain(parts):
    found = Network.load(model(*parts))
    assert "gelu" not in [layer.activation for layer in found.layers]
    assert found.suffix is not None


def by_hand(nodes, held, shape):
    """A model of nodes (operation, inputs, words): ``y`` is the node before, others are held."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    made, value = [], "x"
    for number, (operation, given, words) in enumerate(nodes):
        names = [value if one == "y" else one for one in given]
        value = f"v{number}"
        made.append(helper.make_node(operation, names, [value], **words))
    given = [helper.make_tensor_value_info("x", kind, shape)]
    gives = [helper.make_tensor_value_info(value, kind, None)]
    constants = [onnx.numpy_helper.from_array(array, name) for name, array in held.items()]
    opset = [helper.make_opsetid("", 13)]
    graph = helper.make_graph(made, "by hand", given, gives, constants)
    return helper.make_model(graph, opset_imports=opset, ir_version=8)


def test_a_model_with_channels_last_is_read_as_converters_write_it():
    runtime = pytest.importorskip("onnxruntime")
    drawn = np.random.default_rng(2).normal
    held = {
        "w": drawn(size=(4, 3, 1, 5)),
        "b": drawn(size=4),
        "scale": drawn(size=(4, 1, 1)),
        "shift": drawn(size=(1, 4, 1, 1)),
        "d": drawn(size=(4, 2)),
        "e": drawn(size=2),
    }
    held = {name: array.astype(np.float32) for name, array in held.items()}
    held["pads"] = np.array([0, 0, 2, 0, 0, 0, 1, 0])
    held["half"] = np.array(0.5, np.float32)
    first, last = {"perm": [0, 3, 1, 2]}, {"perm": [0, 2, 3, 1]}
    nodes = [
        ("Pad", ["y", "pads", "half"], {}),
        ("Transpose", ["y"], first),
        ("Conv", ["y", "w", "b"], {}),
        ("Mul", ["scale", "y"], {}),
        ("Add", ["y", "shift"], {}),
        ("Relu", ["y"], {}),
        ("MaxPool", ["y"], {"kernel_shape": [1, 2], "strides": [1, 2]}),
        ("Transpose", ["y"], last),
        ("MatMul", ["y", "d"], {}),
        ("Add", ["y", "e"], {}),
        ("Softmax", ["y"], {"axis": -1}),
    ]
    model = by_hand(nodes, held, [1, 1, "n", 3])
    found = Network.load(model)
    words = "pad conv2d normalisation activation max_pool2d dense bias activation"
    assert [layer.op for layer in found.layers] == words.split() and found.suffix is None
    x = content(found, 30)
    theirs = runtime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    ).run(None, {"x": x})[0]
    with InlineSession(Target.parse("reference")) as session:
        ours = Runner(session, found).output(x)
    assert np.allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("rank", [1, 2])
def test_the_model_that_a_network_runs_as_is_read_as_the_network(rank):
    runtime = pytest.importorskip("onnxruntime")
    layers = [
        {"op": f"conv{rank}d", "kernel": (1, 3)[-rank:], "filters": 4, "bias": True},
        {"op": "normalisation"},
        {"op": "dense", "filters": 3, "bias": True},
        {"op": "activation", "activation": "gelu"},
        {"op": f"max_pool{rank}d", "kernel": (1, 2)[-rank:]},
        {"op": "pad", "padding": ((0, 0), (1, 2))[-rank:], "parameters": {"value": 0.25}},
        {"op": f"conv{rank}d", "kernel": (1, 2)[-rank:], "filters": 2},
    ]
    network = from_json({"rank": rank, "in_channels": 2, "layers": layers})
    backend = OnnxRuntime()
    backend.start({}, "cpu")
    assert runtime
    program = programs.chain([one.spec("float32") for one in network.layers])
    names = {
        f"{name}{number}": array
        for number, one in enumerate(network.layers)
        for name, array in one.operands("float32").items()
    }
    lines = backend.emit(program, Shapes(program, (1, *(1,) * (rank - 1), 25, 2))).load
    exec("\n".join(lines), names := {**backend.namespace, **names})
    model = names["model"]
    found = Network.load(model, height=(1,) * (rank - 1))
    told = [layer.op for layer in found.layers]
    assert told == [*(one.op for one in network.layers[:3]), "bias", *told[4:]]
    assert told[4:] == [one.op for one in network.layers[3:]]
    x = content(network, 25)
    with InlineSession(Target.parse("reference")) as session:
        ours, read = (Runner(session, one).output(x) for one in (network, found))
    assert np.allclose(ours, read, atol=1e-6)


@pytest.mark.parametrize(
    ("node", "why"),
    [
        (("Transpose", ["y"], {"perm": [0, 2, 1, 3]}), "other axes"),
        (("MatMul", ["y", "d"], {}), "unknown"),
        (("Pad", ["y", "pads"], {}), "channels"),
        (("Pad", ["y", "crops"], {}), "crops"),
        (("Mul", ["y", "wide"], {}), "unknown"),
    ],
)
def test_what_is_no_layer_of_ours_ends_the_chain_with_the_reason(node, why):
    held = {
        "w": np.ones((4, 3, 1, 5), np.float32),
        "d": np.ones((4, 4), np.float32),
        "wide": np.ones((1, 1, 1, 4), np.float32),
        "pads": np.array([0, 1, 0, 0, 0, 0, 0, 0]),
        "crops": np.array([0, 0, 0, -1, 0, 0, 0, 0]),
    }
    found = Network.load(by_hand([("Conv", ["y", "w"], {}), node], held, [1, 3, 1, "n"]))
    assert len(found.layers) == 1 and why in found.suffix.why
