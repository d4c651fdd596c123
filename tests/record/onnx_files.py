"""Models of ONNX, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest


def onnx_model(
    nodes: Sequence[Any],
    inputs: Mapping[str, Sequence[Any]],
    outputs: Mapping[str, Sequence[Any] | None],
    held: Mapping[str, np.ndarray] | None = None,
    opset: int = 17,
) -> bytes:
    """A model of ONNX: ``inputs`` and ``outputs`` are float32 of these shapes, or the file says
    nothing of an output."""
    onnx = pytest.importorskip("onnx", reason="models are made with onnx")
    make = onnx.helper
    ends = [
        [
            make.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
            if shape is not None
            else onnx.ValueInfoProto(name=name)
            for name, shape in some.items()
        ]
        for some in (inputs, outputs)
    ]
    arrays = [onnx.numpy_helper.from_array(array, name) for name, array in (held or {}).items()]
    graph = make.make_graph(nodes, "graph", *ends, arrays)
    versions = [make.make_opsetid("", opset)]
    found: bytes = make.make_model(graph, opset_imports=versions, ir_version=9).SerializeToString()
    return found
