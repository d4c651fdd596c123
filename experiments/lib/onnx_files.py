"""ONNX files from text, as ``onnx.parser`` reads them."""

from __future__ import annotations

import numpy as np


def onnx_file(text: str, **weights: np.ndarray) -> bytes:
    """A file such as ``(float[n,3] x) => (float[?,?] y) { y = MatMul(x, w) }``, with constants."""
    import onnx.parser

    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> graph {text}')
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(array, name) for name, array in weights.items()
    )
    found: bytes = model.SerializeToString()
    return found
