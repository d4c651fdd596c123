"""Activations that exporters write as several nodes are read as what they are."""

import numpy as np
import pytest

from probe.network import Network

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
    assert [layer.activation for layer in found.layers[1:]] == wanted and found.beyond is None


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
    assert found.beyond is not None
