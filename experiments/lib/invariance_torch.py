"""PyTorch's layers for the invariance experiment."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from lib import models as zoo
from lib import nine_layers
from lib.invariance import Group, Made, Question, Subject, prefix
from lib.models import packaged_minilm, provide

LARGEST = 4096
SETS = (101, 102, 103)  # seeds of telling operands: not those by which the classes are found
ALL = 1024  # sizes up to here are run with every set, larger ones with one of them in turns
SEED = 18
TIMED = (1, 2, 4, 8, 15, 16, 17, 32, 64, 100, 256, 512, 1024)
MULTIPLY = 6_000  # most products of a sample of a layer that is run at every size
KINDS = {
    "linear": 14,
    "linear, wide": 8,
    "matmul": 5,
    "conv1d": 5,
    "conv2d": 5,
    "conv3d": 3,
    "grouped": 4,
    "depthwise": 3,
    "transposed": 3,
}
"""How many layers of each kind: fifty."""
DTYPES = ("float32", "bfloat16", "float32", "float16")


@dataclass(frozen=True)
class Layer:
    """A layer as drawn. ``weights``: shape in PyTorch; ``words``: of the convolution."""

    kind: str
    dtype: str
    sample: tuple[int, ...]
    weights: tuple[int, ...]
    bias: bool
    words: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        """Says all that decides it."""
        shape, weights = ("x".join(map(str, one)) for one in (self.sample, self.weights))
        said = "".join(f", {name} {value}" for name, value in self.words if name != "transposed")
        with_bias = ", bias" * self.bias
        return f"{self.kind} of {shape} by {weights}{said}{with_bias}, {self.dtype}"

    @property
    def leaves(self) -> int:
        if not self.words:
            return self.weights[1]
        groups = dict(self.words).get("groups", 1)
        inputs = self.weights[0] // groups if self.kind == "transposed" else self.weights[1]
        return inputs * math.prod(self.weights[2:])


def drawn() -> Iterator[Layer]:
    """Fifty layers, the same for all time."""
    draw = random.Random(SEED)
    for kind, count in KINDS.items():
        for number in range(count):
            dtype = DTYPES[number % len(DTYPES)]
            bias = kind != "matmul" and draw.random() < 0.6
            make = _convolution if kind not in ("linear", "linear, wide", "matmul") else _linear
            yield make(draw, kind, dtype, bias)


def _linear(draw: random.Random, kind: str, dtype: str, bias: bool) -> Layer:
    if kind == "linear, wide":
        channels, filters = (draw.choice((384, 512, 700, 768, 1024, 1536)) for _ in range(2))
    else:
        channels = round(math.exp(draw.uniform(math.log(8), math.log(512))))
        filters = draw.randint(1, max(1, min(512, MULTIPLY // channels)))
    return Layer(kind, dtype, (channels,), (filters, channels), bias)


def _convolution(draw: random.Random, kind: str, dtype: str, bias: bool) -> Layer:
    rank = int(kind[4]) if kind.startswith("conv") else draw.choice((1, 2))
    kernel = tuple(draw.choice((1, 2, 3, 5) if rank == 1 else (1, 2, 3)) for _ in range(rank))
    length = {1: (6, 16), 2: (4, 7), 3: (3, 4)}[rank]
    sizes = tuple(draw.randint(max(length[0], *kernel), length[1]) for _ in range(rank))
    groups = draw.choice((2, 4)) if kind == "grouped" else 1
    inputs, filters = (groups * draw.randint(1, 16 // groups) for _ in range(2))
    if kind == "depthwise":
        groups, filters = inputs, inputs
    words: dict[str, Any] = {"stride": draw.choice((1, 1, 2)), "groups": groups}
    words["padding"] = draw.choice((0, max(kernel) // 2))
    said = tuple(sorted(words.items()))
    if kind == "transposed":
        return Layer(kind, dtype, (inputs, *sizes), (inputs, filters, *kernel), bias, said)
    weights = filters, inputs // groups, *kernel
    return Layer(kind, dtype, (inputs, *sizes), weights, bias, said)


def operands(layer: Layer, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One sample, weights and bias whose sums show nearly every order; float64.

    The second set has a bias that takes a product away, the third of a convolution has no two
    windows alike.
    """
    from probe.sizes.invariant.operations import cancelling_products, spread_numbers

    number = SETS.index(seed)
    turned = layer.kind == "transposed"
    groups = dict(layer.words).get("groups", 1)
    filters = layer.weights[1] * groups if turned else layer.weights[0]
    constant = 1.37 if layer.words else None
    x, w, b = cancelling_products(seed, layer.leaves, filters, layer.dtype, number == 1, constant)
    held = w.T.reshape(layer.weights) if not turned else w.reshape(layer.weights)
    if layer.words:
        x = (
            spread_numbers(seed, "x", layer.sample, 4)
            if number == 2
            else np.full(layer.sample, 1.37)
        )
    return x, held, b


def built(layer: Layer) -> Any:
    """The module, with whatever weights."""
    import torch

    class Product(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.empty(*layer.weights[::-1]))

        def forward(self, x: Any) -> Any:
            return x @ self.weight

    dtype = getattr(torch, layer.dtype)
    if layer.kind == "matmul":
        return Product().to(dtype).eval()
    if not layer.words:
        filters, channels = layer.weights
        return torch.nn.Linear(channels, filters, layer.bias).to(dtype).eval()
    turned, rank = layer.kind == "transposed", len(layer.weights) - 2
    names = f"Conv{'Transpose' * turned}{rank}d"
    groups = dict(layer.words)["groups"]
    shape = (layer.weights[0], layer.weights[1] * groups)
    shape = shape if turned else shape[::-1]
    kernel = layer.weights[2:]
    module = getattr(torch.nn, names)(*shape, kernel, bias=layer.bias, **dict(layer.words))
    return module.to(dtype).eval()


def of_layer(layer: Layer) -> Subject:
    """The subject of a layer: every size, the same sample at every place."""

    def make(like: str) -> Made:
        import torch

        from probe.sizes import stable

        torch.set_num_threads(THREADS)
        module = built(layer)
        sets = {seed: operands(layer, seed) for seed in SETS}
        load = partial(_loaded, module, sets, layer)
        load(SETS[0])
        model, report = stable.invariant(module, (1, LARGEST), like, strict=True)

        def groups(sample: bool) -> Iterator[Group]:
            few = sample or like != "largest" or "wide" in layer.kind
            every = sampled() if few else range(1, LARGEST + 1)
            for number, seed in enumerate(SETS):
                x = _tensor(sets[seed][0], layer.dtype)
                x = x.expand(LARGEST, *x.shape).contiguous()
                chosen = [size for size in every if size <= ALL or size % len(SETS) == number]
                yield Group((x,), (prefix(x, size) for size in chosen), partial(load, seed))

        def given(size: int) -> tuple[Any]:
            generator = torch.Generator().manual_seed(SEED)
            x = torch.randn(size, *layer.sample, generator=generator)
            return (x.to(getattr(torch, layer.dtype)),)

        plain = torch.no_grad()(module)
        sizes = [size for size in TIMED if size <= 256 or "linear" in layer.kind]
        timed = sizes, given
        axes = {"size": groups}
        return Made(plain, model, report, read, axes, timed, torch.set_num_threads)

    likes = ("largest", "cheapest") if layer.kind.startswith("linear") else ("largest",)
    return Subject(layer.name, "torch", layer.kind, layer.dtype, make, likes)


THREADS = 2


def sampled() -> list[int]:
    """Small sizes, both sides of every power of two, and forty others."""
    draw = random.Random(SEED)
    powers = [1 << power for power in range(13)]
    near = {size + by for size in powers for by in (-1, 0, 1)}
    others = {draw.randint(1, LARGEST) for _ in range(40)}
    return sorted(size for size in {*near, *others, *range(1, 65)} if 0 < size <= LARGEST)


def _tensor(values: np.ndarray, dtype: str) -> Any:
    import torch

    return torch.from_numpy(np.array(values, order="C")).to(getattr(torch, dtype))


def _loaded(module: Any, sets: dict[int, Any], layer: Layer, seed: int) -> None:
    """Puts a set's weights into the module."""
    _, w, b = sets[seed]
    given = {"weight": _tensor(w.T if layer.kind == "matmul" else w, layer.dtype)}
    if layer.bias:
        given["bias"] = _tensor(b, layer.dtype)
    module.load_state_dict(given)


def read(y: Any) -> np.ndarray:
    from probe.sizes.invariant.torch_calls import container

    return container(y)[0]


def batches(x: Any, sizes: Sequence[int]) -> Iterator[Group]:
    """The first samples of a batch, and the last ones: against the whole batch."""
    parts = [
        slice(start, start + size) for size in sizes for start in dict.fromkeys((0, len(x) - size))
    ]
    yield Group((x,), [Question(len(x[part]), (x[part],), itemgetter(part)) for part in parts])


BATCH = 64
EVERY = tuple(range(1, BATCH + 1))
SOME_SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 63, 64)
TIMED_MODELS = (1, 2, 8, 16, 32)
FOLDER = Path(__file__).resolve().parents[2] / "build" / "models"
"""Where the packages of ``lib.models`` are unpacked."""

Build = Callable[[Any], Any]


def pictures(name: str, build: Build, shape: Sequence[int], sizes: Sequence[int]) -> Subject:
    """A model with seeded weights, of samples of one shape."""

    def make(like: str) -> Made:
        import torch

        from probe.sizes import stable

        torch.set_num_threads(THREADS)
        torch.manual_seed(SEED)
        module = build(torch).eval()
        x = torch.randn(BATCH, *shape)
        model, report = stable.invariant(module, EVERY, like)
        plain = torch.no_grad()(module)
        axes = {"batch": lambda sample: batches(x, SOME_SIZES if sample else sizes)}
        timed = TIMED_MODELS, lambda size: (x[:size].clone(),)
        return Made(plain, model, report, read, axes, timed, torch.set_num_threads)

    return Subject(name, "torch", "model", "float32", make)


# what is padded behind a mask


def sentences(
    name: str, build: Callable[[Any], tuple[Any, Callable[..., Any], list[Any]]], longest: int
) -> Subject:
    """A model of padded sequences: ``build`` gives its module, a call of it, and its sentences.

    Compared are the rows that stand before the padding.
    """

    def make(like: str) -> Made:
        import torch

        from probe.sizes import stable

        torch.set_num_threads(THREADS)
        torch.manual_seed(SEED)
        module, called, told = build(torch)
        sizes = {"batch": EVERY, "length": range(1, longest + 1)}
        model, report = stable.invariant(module.eval(), sizes, like, strict=True)

        def calling(model: Any) -> Callable[..., Any]:
            def call(rows: Sequence[Any], length: int) -> Any:
                with torch.no_grad():
                    return called(model, rows, length)

            return call

        def given(size: int) -> tuple[Any, int]:
            rows = (told * size)[:size]
            return rows, max(map(len, rows))

        axes = {
            "batch": lambda sample: _batches(told, longest),
            "padding": lambda sample: _padded(told, longest),
        }
        functions = calling(module), calling(model)
        return Made(*functions, report, read, axes, ((1, 8, 32), given), torch.set_num_threads)

    return Subject(name, "torch", "model", "float32", make)


def _question(told: Sequence[Any], chosen: Sequence[int], length: int, size: int) -> Question:
    """Some sentences, padded: of an answer to all of them their rows are wanted."""
    ends = np.cumsum([0, *map(len, told)])
    index = np.concatenate([np.arange(ends[n], ends[n + 1]) for n in chosen])
    return Question(size, ([told[n] for n in chosen], length), itemgetter(index))


def _batches(told: Sequence[Any], longest: int) -> Iterator[Group]:
    sizes = [size for size in SOME_SIZES if size <= len(told)]
    chosen = [range(start, start + size) for size in sizes for start in (0, len(told) - size)]
    questions = [
        _question(told, some, max(len(told[n]) for n in some), len(some)) for some in chosen
    ]
    yield Group((told, longest), questions)


def _padded(told: Sequence[Any], longest: int) -> Iterator[Group]:
    """Every sentence alone, with no padding and with more of it."""
    questions = [
        _question(told, [number], length, length)
        for number, n in enumerate(map(len, told))
        for length in sorted({n, min(n + 1, longest), (n + longest) // 2, longest})
    ]
    yield Group((told, longest), questions)


def encoder(torch: Any) -> tuple[Any, Callable[..., Any], list[Any]]:
    """``TransformerEncoderLayer`` of 256 features; sequences of 3 to 48 positions."""
    module = zoo.encoder(torch)[0]
    draw = random.Random(SEED)
    told = [torch.randn(draw.randint(3, 48), 256) for _ in range(BATCH)]

    def called(model: Any, rows: Sequence[Any], length: int) -> Any:
        x = torch.zeros(len(rows), length, 256)
        hidden = torch.ones(len(rows), length, dtype=torch.bool)
        for number, row in enumerate(rows):
            x[number, : len(row)], hidden[number, : len(row)] = row, False
        return model(x, hidden)[~hidden]

    return module, called, told


def minilm(torch: Any) -> tuple[Any, Callable[..., Any], list[Any]]:
    """The packaged sentence transformer, its last hidden states."""
    module, tokenizer = packaged_minilm(provide(FOLDER))
    draw, words = random.Random(SEED), " ".join(zoo.SENTENCES).split()
    texts = [*zoo.SENTENCES]
    texts += [" ".join(draw.choices(words, k=draw.randint(1, 30))) for _ in range(BATCH - 4)]
    told = [tokenizer.encode(text).ids for text in texts]

    def called(model: Any, rows: Sequence[Any], length: int) -> Any:
        tokens, mask = map(torch.from_numpy, zoo.padded(rows, length))
        return model(input_ids=tokens, attention_mask=mask).last_hidden_state[mask.bool()]

    return module, called, told


def subjects() -> Iterator[Subject]:
    """Small models, layers, then the packaged model."""
    yield pictures("nine-layers", lambda torch: nine_layers.torch_module(), (1, 1, 2560), EVERY)
    residual = lambda torch: zoo.residual(torch)[0]  # noqa: E731
    yield pictures("residual, LayerNorm", residual, (3, 32, 32), EVERY)
    yield sentences("TransformerEncoderLayer", encoder, 48)
    yield from map(of_layer, drawn())
    yield sentences("MiniLM", minilm, 128)
