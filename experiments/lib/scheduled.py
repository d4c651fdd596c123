"""Models that users run in pieces, mistakes planted into how they are run, and a referee.

Every model is ``f(x, state=None) -> (y, state)`` along axis 1 of x, or has no state and takes
chunks or tiles along its last axes. ``mistake`` plants what users got wrong in public threads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

WIDTH, HEADS, PLACES, WORDS = 32, 4, 96, 50


class Decoder(nn.Module):  # type: ignore[misc]
    """Two layers of causal attention with a feed-forward net, over tokens (batch, n).

    ``rotary``: rotary positions, grouped queries and RMSNorm; else learned positions and LayerNorm.
    ``in_place``: the cache is as long as can be and written in place; else it grows.
    ``fused``: attention is PyTorch's own, in one call.
    """

    def __init__(
        self,
        rotary: bool = False,
        in_place: bool = False,
        dtype: str = "float32",
        mistake: str = "",
        width: int = WIDTH,
        layers: int = 2,
        fused: bool = False,
    ) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.rotary, self.in_place, self.mistake = rotary, in_place, mistake
        self.fused = fused
        self.groups = HEADS // 2 if rotary else HEADS
        self.words, self.places = nn.Embedding(WORDS, width), nn.Embedding(PLACES, width)
        norm: Callable[[int], nn.Module] = nn.RMSNorm if rotary else nn.LayerNorm
        self.layers = nn.ModuleList(
            nn.ModuleDict(
                {
                    "before": norm(width),
                    "q": nn.Linear(width, width),
                    "kv": nn.Linear(width, 2 * self.groups * width // HEADS),
                    "out": nn.Linear(width, width),
                    "behind": norm(width),
                    "up": nn.Linear(width, 4 * width),
                    "down": nn.Linear(4 * width, width),
                }
            )
            for _ in range(layers)
        )
        self.head = nn.Linear(width, WORDS)
        self.to(getattr(torch, dtype)).eval()

    def forward(self, x: Any, cache: Any = None, past: Any = None) -> Any:
        start = 0 if past is None else int(past)
        n, first = x.shape[1], 0 if self.mistake == "positions restarted" else start
        at = torch.arange(first, first + n)
        h = self.words(x)
        h = h if self.rotary else h + self.places(at)
        kept = []
        for number, layer in enumerate(self.layers):
            held = None if cache is None else cache[number]
            mixed, left = self.attended(layer, layer["before"](h), held, start, at)
            h = h + layer["out"](mixed)
            h = h + layer["down"](functional.silu(layer["up"](layer["behind"](h))))
            kept.append(left)
        return self.head(h), torch.stack(kept), torch.tensor(start + n)

    def attended(self, layer: Any, h: Any, held: Any, start: int, at: Any) -> tuple[Any, Any]:
        """What the heads give, and keys and values of all positions up to here."""
        b, n = h.shape[:2]
        q = layer["q"](h).view(b, n, HEADS, -1).transpose(1, 2)
        k, v = layer["kv"](h).view(b, n, 2, self.groups, -1).permute(2, 0, 3, 1, 4)
        if self.rotary:
            q, k = turned(q, at), turned(k, at)
        new = torch.stack([k, v])
        if self.in_place:
            shape = 2, b, self.groups, PLACES, new.shape[-1]
            left = new.new_zeros(shape) if held is None else held
            write = start - 1 if self.mistake == "stale cache" and start else start
            left[:, :, :, write : write + n] = new
            many = start + n
        else:
            if self.mistake == "stale cache" and held is not None:
                held = torch.cat([held[:, :, :, :-1], held[:, :, :, -2:-1]], 3)
            drop = held is None or self.mistake == "state dropped"
            left = new if drop else torch.cat([held, new], 3)
            many = left.shape[3]
        k, v = (each[:, :, :many].repeat_interleave(HEADS // self.groups, 1) for each in left)
        if self.fused:
            seen = None if n in (1, many) else torch.ones(n, many, dtype=torch.bool).tril(start)
            mixed = functional.scaled_dot_product_attention(q, k, v, seen, is_causal=1 < n == many)
        else:
            off = int(self.mistake == "mask off by one" and start > 0)
            late = torch.ones(n, many, dtype=torch.bool).triu(many - n + 1 + off)
            scores = (q @ k.transpose(2, 3)) * (q.shape[-1] ** -0.5)
            mixed = scores.masked_fill(late, float("-inf")).softmax(-1) @ v
        return mixed.transpose(1, 2).reshape(b, n, -1), left


def turned(x: Any, at: Any) -> Any:
    """Rotary positions: pairs of numbers (..., n, width) turned by their position."""
    half = x.shape[-1] // 2
    angle = at[:, None] * 100.0 ** -(torch.arange(half) / half)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    left, right = x[..., :half], x[..., half:]
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)


class Scan(nn.Module):  # type: ignore[misc]
    """A gated state-space block over (1, n, width): h = a h + b x, y = c h, in blocks of 8 by
    matrices of decays, as chunked scans do, and a state between the blocks."""

    def __init__(self, dtype: str = "float32", mistake: str = "") -> None:
        super().__init__()
        torch.manual_seed(6)
        self.mistake = mistake
        self.given, self.decay = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.to(getattr(torch, dtype)).eval()

    def forward(self, x: Any, state: Any = None) -> Any:
        drop = state is None or self.mistake == "state dropped"
        x = x.to(self.out.weight.dtype)
        h = x.new_zeros(1, WIDTH) if drop else state
        b, gate = self.given(x[0]).chunk(2, -1)
        log = -functional.softplus(self.decay(x[0]))
        parts = []
        for block, steps in zip(b.split(8), log.split(8), strict=True):
            total = steps.cumsum(0)
            # of an input at j what is left at i: the decays between them
            left = (total[:, None] - total[None]).masked_fill(
                torch.ones(len(block), len(block), dtype=torch.bool).triu(1)[..., None],
                float("-inf"),
            )
            made = torch.einsum("ijd,jd->id", left.exp(), block) + total.exp() * h
            parts.append(made)
            h = made[-1:]
        if self.mistake == "stale state":
            h = parts[-1][-2:-1] if len(parts[-1]) > 1 else h
        return (self.out(torch.cat(parts) * functional.silu(gate)))[None], h


class Stream(nn.Module):  # type: ignore[misc]
    """Two causal convolutions over (1, n, width), each of which carries its last samples."""

    def __init__(self, dtype: str = "float32", mistake: str = "") -> None:
        super().__init__()
        torch.manual_seed(7)
        self.mistake = mistake
        self.first, self.second = nn.Conv1d(WIDTH, WIDTH, 5), nn.Conv1d(WIDTH, 8, 5)
        self.to(getattr(torch, dtype)).eval()

    def forward(self, x: Any, state: Any = None) -> Any:
        h = x.to(self.first.weight.dtype).transpose(1, 2)
        state = h.new_zeros(2, 1, WIDTH, 4) if state is None else state
        carried = []
        for number, layer in enumerate((self.first, self.second)):
            before = state[number]
            if self.mistake == "state dropped":
                before = torch.zeros_like(before)
            if self.mistake == "wrong padding at the seam":
                before = h[..., :1].expand(1, WIDTH, 4)
            h = torch.cat([before, h], -1)
            carried.append(h[..., -4:])
            if self.mistake == "samples lost" and number == 0:
                h = h[..., 1:]
            h = layer(h)
            h = h.relu() if number == 0 else h
            if self.mistake == "samples doubled" and number:
                h = torch.cat([h[..., :1], h], -1)
        return h.transpose(1, 2), torch.stack(carried)


class Recurrent(nn.Module):  # type: ignore[misc]
    """A GRU over (1, n, width) and a linear layer."""

    def __init__(self, mistake: str = "") -> None:
        super().__init__()
        torch.manual_seed(8)
        self.mistake = mistake
        self.gru, self.out = nn.GRU(WIDTH, WIDTH, batch_first=True), nn.Linear(WIDTH, 8)
        self.eval()

    def forward(self, x: Any, state: Any = None) -> Any:
        y, left = self.gru(x, None if self.mistake == "state dropped" else state)
        if self.mistake == "stale state":
            left = y[:, -2:-1].transpose(0, 1) if y.shape[1] > 1 else left
        return self.out(y), left


class First(nn.Module):  # type: ignore[misc]
    """The first output of a model, as pieces without a state want it."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Any) -> Any:
        return self.model(x)[0]


def codec(norm: bool = False) -> nn.Module:
    """Halves a signal (1, 8, n), pools it, and brings it back to its length."""
    torch.manual_seed(9)
    middle = [nn.GroupNorm(2, 16)] if norm else []
    end = nn.ConvTranspose1d(16, 8, 4, 4)
    layers = [nn.Conv1d(8, 16, 4, 2, 1), *middle, nn.ELU(), nn.MaxPool1d(2), end]
    return nn.Sequential(*layers).eval()


def picture() -> nn.Module:
    """Convolves a picture (1, 3, h, w), pools it, and brings it back to its size."""
    torch.manual_seed(10)
    inner = [nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, padding=1), nn.Upsample(scale_factor=2)]
    begin, end = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 3, 3, padding=1)
    return nn.Sequential(begin, nn.ReLU(), *inner, end).eval()


@dataclass(frozen=True)
class Question:
    """A model with its input, a schedule, and what is wrong: ``planted``, empty if nothing is.
    ``enters``: where it enters, as PyTorch names the operation."""

    name: str
    model: Callable[[], Any]
    x: np.ndarray
    at: str
    planted: str = ""
    enters: str = ""
    vary: str = "schedule:x:1"


_draw = np.random.default_rng(0)
TOKENS = _draw.integers(0, WORDS, (1, 67))
STEPS = _draw.standard_normal((1, 48, WIDTH)).astype(np.float32)
SIGNAL = _draw.standard_normal((1, 8, 96)).astype(np.float32)
PICTURE = _draw.standard_normal((1, 3, 48, 48)).astype(np.float32)

DECODERS: dict[str, dict[str, Any]] = {
    "learned positions": {},
    "rotary, grouped": {"rotary": True},
    "cache in place": {"in_place": True},
}

STREAM, CACHED = "streaming convolution", "cached:60+2*3"
CONV, POOL = "aten.convolution", "aten.max_pool2d_with_indices"

NORM, CAT = "aten.native_group_norm", "aten.cat"
SHORT, OFF, DROPPED = "overlap too short", "pool off the grid", "state dropped"


def mistakes() -> list[Question]:
    """Ten kinds, each in the models that can have it. A buffer that is written in place has what
    was dropped."""
    cached = {
        "positions restarted": "aten.arange.start",
        "mask off by one": "aten.triu",
        "stale cache": "aten.cat|aten.slice.Tensor",
        DROPPED: "aten._softmax",
    }
    streamed = [
        *(("scan", Scan, each, CAT) for each in (DROPPED, "stale state")),
        *(("gru", Recurrent, each, "aten.stack") for each in (DROPPED, "stale state")),
        *(
            (STREAM, Stream, each, CONV)
            for each in (DROPPED, "wrong padding at the seam", "samples lost")
        ),
        (STREAM, Stream, "samples doubled", CAT),
    ]
    in_chunks: list[Any] = [
        ("codec", codec, SIGNAL, "chunks:24", SHORT, CONV),
        ("codec", codec, SIGNAL, "chunks:22+overlap:4", OFF, POOL),
        ("codec", partial(codec, True), SIGNAL, "chunks:24+overlap:8", "norm over a piece", NORM),
        ("picture", picture, PICTURE, "tiles:16x16+overlap:4", SHORT, CONV),
        ("picture", picture, PICTURE, "tiles:15x15+overlap:6", OFF, POOL),
    ]
    return [
        Question(name, partial(Decoder, **how, mistake=each), TOKENS, CACHED, each, enters)
        for each, enters in cached.items()
        for name, how in DECODERS.items()
        if each != DROPPED or not how.get("in_place")
    ] + [
        *(Question(n, partial(m, mistake=w), STEPS, "stream:16", w, e) for n, m, w, e in streamed),
        *(Question(n, m, x, at, w, e, vary="schedule") for n, m, x, at, w, e in in_chunks),
    ]


def right() -> list[Question]:
    """Ten schedules of the same models, with nothing wrong."""
    return [
        *(Question(n, partial(Decoder, **how), TOKENS, CACHED) for n, how in DECODERS.items()),
        Question("rotary, grouped", partial(Decoder, rotary=True), TOKENS, "stream:16"),
        Question("scan", Scan, STEPS, "stream:16"),
        Question("gru", Recurrent, STEPS, "stream:16"),
        Question(STREAM, Stream, STEPS, "stream:16"),
        Question(STREAM, lambda: First(Stream()), STEPS, "prefix:24"),
        Question("codec", codec, SIGNAL, "chunks:24+overlap:4", vary="schedule"),
        Question("picture", picture, PICTURE, "tiles:16x16+overlap:6", vary="schedule"),
    ]


SCHEDULES = (
    *(f"prefix:{size}" for size in (1, 2, 3, 5, 8, 16, 24, 32)),
    *("cached:40+1*4", "cached:32+2*4", "cached:16+4*4", "cached:1+1*8", "cached:8+8*4"),
    "cached:44+1*1",
    *(f"stream:{size}" for size in (1, 3, 8, 13, 16, 24)),
    *(f"draft:{size}" for size in (1, 2, 3, 4, 5, 6, 7, 8)),
)


def models() -> list[tuple[str, Callable[..., Any], np.ndarray]]:
    """Models, by their ``dtype``, with an input of 48 positions or tokens."""
    return [
        *((name, partial(Decoder, **how), TOKENS[:, :48]) for name, how in DECODERS.items()),
        *((name, kind, STEPS) for name, kind in (("scan", Scan), (STREAM, Stream))),
    ]


def parts(model: Any, x: torch.Tensor, stops: Iterable[int]) -> torch.Tensor:
    """What pieces that end there give, called directly, each with the state of the one before."""
    outputs, state = list[Any](), list[Any]()
    for start, stop in pairwise([0, *stops]):
        piece, *state = model(x[:, start:stop], *state)
        outputs.append(piece)
    return torch.cat(outputs, 1)


# ---- the referee: it runs the operations itself, and knows nothing of ``probe`` ----


class _Calls(TorchDispatchMode):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.made: list[tuple[str, list[torch.Tensor]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        made = out if isinstance(out, tuple | list) else [out]
        kept = [t.detach().clone() for t in made if isinstance(t, torch.Tensor)]
        self.made.append((str(func), kept))
        return out


def _calls(model: Any, *given: torch.Tensor) -> tuple[list[tuple[str, list[torch.Tensor]]], Any]:
    with torch.no_grad(), _Calls() as calls:
        returned = model(*given)
    return calls.made, returned


def referee(
    model: Any, x: np.ndarray, spans: Sequence[tuple[int, int]], stateful: bool
) -> tuple[str, int]:
    """The first operation of a piece of ``spans`` whose results differ from the same elements of
    the whole's, and how many do; the pieces before it hand it their state. Elements are the same by
    position: rows of the piece's own, columns of all up to its end."""
    tensor = torch.from_numpy(x)
    (whole, _), state = _calls(model, tensor), tuple[Any, ...]()
    for start, stop in spans:
        # a cache that is written in place is handed over as a copy
        calls, returned = _calls(model, tensor[:, start:stop], *(part.clone() for part in state))
        state = tuple(returned[1:]) if stateful else ()
        names = [name for name, _ in calls], [name for name, _ in whole]
        matcher = SequenceMatcher(None, *names, autojunk=False)
        for begin, other, size in matcher.get_matching_blocks():
            for n in range(size):
                pairs = zip(calls[begin + n][1], whole[other + n][1], strict=False)
                count = sum(_apart(a, b, start, stop, x.shape[1]) for a, b in pairs)
                if count:
                    return calls[begin + n][0], count
    return "", 0


def _apart(part: torch.Tensor, whole: torch.Tensor, start: int, stop: int, total: int) -> int:
    floating = part.ndim == whole.ndim and part.dtype == whole.dtype and part.is_floating_point()
    # blocks and buffers have no axis of all positions: which of theirs are the same isn't known
    if not floating or total not in whole.shape:
        return 0
    for axis, (n, m) in enumerate(zip(part.shape, whole.shape, strict=True)):
        if n != m:
            begin = {stop - start: start, stop: 0}.get(n)
            if m != total or begin is None:
                return 0
            whole = whole.narrow(axis, begin, n)
    return int((part != whole).sum())
