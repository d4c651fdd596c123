"""A file that hears a signal piece by piece, as voice detectors do, and a referee by ONNX Runtime.

A linear layer, an LSTM whose two states are inputs and outputs of the file, and a layer behind it:
along axis 0 of x (n, 1, 40). The referee makes every value of the file an output, and compares them
piece by piece; it knows nothing of ``probe``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from lib.onnx_files import onnx_file

CHANNELS, WIDTH, GATES = 40, 21, 4
POSITIONS = 48
SCHEDULES = ("stream:1", "stream:3", "stream:8", "stream:16", "cached:40+1*4", "draft:4")


def inputs() -> dict[str, np.ndarray]:
    """A signal, and states of zeros."""
    x = np.random.default_rng(3).standard_normal((POSITIONS, 1, CHANNELS))
    zeros = np.zeros((1, 1, WIDTH), np.float32)
    return {"x": x.astype(np.float32), "h": zeros, "c": zeros}


def detector(path: Path, mistake: str = "") -> Path:
    """Writes the file. ``mistake``: ``state dropped``, that of the cell."""
    draw = np.random.default_rng(4)
    shapes = {
        "given": (CHANNELS, WIDTH),
        "w": (1, GATES * WIDTH, WIDTH),
        "r": (1, GATES * WIDTH, WIDTH),
        "out": (WIDTH, 1),
    }
    weights = {n: draw.standard_normal(shape).astype(np.float32) / 4 for n, shape in shapes.items()}
    # what was dropped is still an input: it is added to what is left, times nothing
    weights |= {"nothing": np.zeros(1, np.float32), "direction": np.array([1])}
    cell, state = "" if mistake == "state dropped" else "c", f"float[1,1,{WIDTH}]"
    layers = f"""
        heard = MatMul(x, given)
        bent = Elu(heard)
        all, h_last, c_last = LSTM <hidden_size={WIDTH}> (bent, w, r, , , h, {cell})
        states = Squeeze(all, direction)
        score = MatMul(states, out)
        y = Sigmoid(score)
        h_end = Identity(h_last)
        before = Mul(c, nothing)
        c_end = Add(c_last, before)
    """
    given = f"float[n,1,{CHANNELS}] x, {state} h, {state} c"
    gives = f"float[n,1,1] y, {state} h_end, {state} c_end"
    path.write_bytes(onnx_file(f"({given}) => ({gives}) {{ {layers} }}", **weights))
    return path


def file_referee(path: Path, spans: Sequence[tuple[int, int]]) -> tuple[str, int]:
    """The first operation of a piece of ``spans`` whose results differ from the same positions of
    the whole's, and how many numbers do; none: empty, 0."""
    model = onnx.load(path)
    names = [
        (node.op_type, name)
        for node in model.graph.node
        for name in node.output
        if name in ("heard", "bent", "all", "states", "score", "y")
    ]
    model.graph.output.extend(
        onnx.ValueInfoProto(name=name) for _, name in names if name != "y"
    )  # fmt: skip
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    every, fed = [name for _, name in names], inputs()
    whole = session.run(every, fed)
    state = {"h": fed["h"], "c": fed["c"]}
    for start, stop in spans:
        given = {"x": fed["x"][start:stop], **state}
        *found, h, c = session.run([*every, "h_end", "c_end"], given)
        state = {"h": h, "c": c}
        for (operation, _), part, all_ in zip(names, found, whole, strict=True):
            if count := int((part != all_[start:stop]).sum()):
                return operation, count
    return "", 0
