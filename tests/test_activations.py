"""The table of activations: every spelling is source, NumPy's is what runs."""

import ast
import warnings

import numpy as np
import pytest

from probe import activations
from probe.activations import ACTIVATIONS, spelling_lines

LIBRARIES = ("numpy", "tensorflow", "torch", "jax", "keras", "litert")


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("alpha", [1.0, 0.25])
def test_every_spelling_is_source_of_the_value_that_it_is_given(name, alpha):
    for library in LIBRARIES:
        for older in (False, True):
            text = "\n".join(spelling_lines(name, library, alpha, "v7", older))
            names = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
            assert "v7" in names and "x" not in names, (library, text)
            assert isinstance(ast.parse(text).body[-1], ast.Expr)
    kind, fields = activations.caffe_layer(name, alpha)
    assert kind and fields.count("{") == fields.count("}") and "{{" not in fields
    nodes = activations.onnx(name, alpha)
    assert all("alpha" not in node.attributes.values() for node in nodes)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_numpy_keeps_the_dtype_and_gives_no_warning(name, dtype):
    x = np.array([[-1e4, -2.5, -0.0, 0.5, 3.0, 1e4]], dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y = activations.numpy_activation(name, 0.25)(x)
    assert y.dtype == x.dtype and y.shape == x.shape


def test_the_ones_that_round_once_are_known():
    assert list(filter(activations.activation_rounds_once, ACTIVATIONS)) == [
        "relu",
        "relu6",
        "leaky_relu",
    ]
