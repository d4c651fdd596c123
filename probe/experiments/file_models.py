"""Model files out of packages, in ONNX Runtime and in OpenCV; and numbers alone, in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from probe.experiments.variations import ALL, normal, sides_of


def onnx(*path: str, inputs: Callable[[int, int | None], dict[str, np.ndarray]]) -> Any:
    """A packaged ONNX file; ``inputs(batch, length)`` gives its inputs by name."""

    def sides(folder: Path) -> Any:
        from probe.recorders.onnxruntime import Recorder

        file = folder.joinpath(*path)

        def run(batch: int | None, length: int | None, threads: int = 2) -> Any:
            return Recorder(file, inputs(batch or ALL, length), {"threads": str(threads)})

        return lambda one: sides_of(run, one)

    return sides


def opencv(*path: str, inputs: Callable[[int, int | None], dict[str, np.ndarray]]) -> Any:
    """The same file as OpenCV's ``cv2.dnn`` reads it."""

    def sides(folder: Path) -> Any:
        from probe.recorders.opencv import opened

        file = folder.joinpath(*path)

        def run(batch: int | None, length: int | None, threads: int = 2) -> Any:
            model = opened(file, switches={"threads": str(threads)})
            return model.recorder(inputs(batch or ALL, length))

        return lambda one: sides_of(run, one)

    return sides


def picture(height: int, width: int) -> Callable[[int, int | None], dict[str, np.ndarray]]:
    """Inputs of a model of pictures, channels first; a length is the width that is left."""

    def inputs(batch: int, length: int | None) -> dict[str, np.ndarray]:
        x = normal(ALL, 3, height, width)[:batch, ..., : length or width]
        return {"x": np.ascontiguousarray(x)}

    return inputs


def audio(batch: int, _: int | None) -> dict[str, np.ndarray]:
    """Inputs of the voice detector: 512 samples behind 64 of context, and its state."""
    state = np.zeros((2, batch, 128), np.float32)
    return {"input": normal(ALL, 576)[:batch], "state": state, "sr": np.array(16000, np.int64)}


def numbers(_: Path) -> Any:
    """Two products with a function between them, in NumPy: what a quick run has."""
    from probe.recorders.ndarray import Recorder

    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal(n).astype(np.float32) for name, n in LAYERS.items()}
    x = normal(ALL, 96)

    def model(x: Any, first: Any, second: Any) -> Any:
        return np.maximum(x @ first, np.float32(0)) @ second

    def run(batch: int | None, _: int | None) -> Any:
        return Recorder(model, np.array(x[: batch or ALL]), **weights)

    return lambda one: sides_of(run, one)


LAYERS = {"first": (96, 40), "second": (40, 5)}

OCR = {
    "rapidocr detection": ("ch_PP-OCRv4_det_infer.onnx", (96, 160)),
    "rapidocr recognition": ("ch_PP-OCRv4_rec_infer.onnx", (48, 160)),
    "rapidocr classification": ("ch_ppocr_mobile_v2.0_cls_infer.onnx", (48, 192)),
}
"""Files of rapidocr-onnxruntime, and height and width of the pictures."""
