"""Training steps whose batch is computed in micro-batches, right ones and ones with a mistake."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

ROWS = 64

Step = Callable[[], list[Any]]


def perceptron() -> nn.Module:
    inner = nn.Linear(32, 32), nn.GELU()
    return nn.Sequential(nn.Linear(20, 32), nn.ReLU(), *inner, nn.Linear(32, 5))


def convolutions(norm: Callable[[int], nn.Module] = nn.Identity) -> nn.Module:
    layers = nn.Conv2d(3, 8, 3, padding=1), norm(8), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2)
    return nn.Sequential(*layers, nn.ReLU(), nn.Flatten(), nn.Linear(72, 5))


def normed() -> nn.Module:
    return convolutions(nn.BatchNorm2d)


INPUTS = {perceptron: (20,), convolutions: (3, 8, 8), normed: (3, 8, 8)}

OPTIMIZERS: dict[str, Callable[[Any], Any]] = {
    "SGD": lambda weights: torch.optim.SGD(weights, lr=0.1),
    "momentum": lambda weights: torch.optim.SGD(weights, 0.1, momentum=0.9, weight_decay=0.01),
    "Adam": lambda weights: torch.optim.Adam(weights, lr=0.01),
    "AdamW": lambda weights: torch.optim.AdamW(weights, lr=0.01),
}


@dataclass(frozen=True)
class Trained:
    """A step in ``parts`` micro-batches. ``planted``: what is wrong with it, empty: nothing;
    ``enters``: where that shows."""

    make: Callable[[], nn.Module]
    parts: int
    optimizer: str = "SGD"
    loss: str = "mean"
    dtype: str = "float32"
    planted: str = ""
    enters: str = ""

    @property
    def name(self) -> str:
        return f"{self.make.__name__}, {self.optimizer}, {self.loss}"

    def drawn(self) -> tuple[nn.Module, Any, Any]:
        """The model, its inputs and what it should give."""
        torch.manual_seed(0)
        model, dtype = self.make(), getattr(torch, self.dtype)
        x, y = torch.randn(ROWS, *INPUTS[self.make]).to(dtype), torch.randn(ROWS, 5).to(dtype)
        return model.to(dtype), x, y

    def step(self, parts: int) -> Step:
        """The step; the whole batch's, of one part, has nothing wrong."""
        (model, x, y), wrong = self.drawn(), self.planted if parts > 1 else ""
        classes = torch.randint(0, 5, (ROWS,))

        def run() -> list[Any]:
            trained = copy.deepcopy(model)
            optimizer = OPTIMIZERS[self.optimizer](trained.parameters())
            if wrong == "gradient not zeroed":
                functional.mse_loss(trained(x[:16]), y[:16]).backward()
            elif wrong == "gradient left over":
                for weight in trained.parameters():
                    weight.grad = torch.full_like(weight, 0.01)
            for a, b, c in zip(*(each.chunk(parts) for each in (x, y, classes)), strict=True):
                given = trained(a)
                if self.loss == "cross entropy":
                    loss = functional.cross_entropy(given, c)
                else:
                    reduction = "sum" if self.loss == "sum" else "mean"
                    loss = functional.mse_loss(given, b, reduction=reduction)
                scale = 1 / ROWS if self.loss == "sum" else len(a) / ROWS
                (loss if wrong == "loss averaged per micro-batch" else loss * scale).backward()
            optimizer.step()
            return [*trained.parameters()]

        return run

    def added(self) -> bool:
        """Whether the gradients of micro-batches, each asked of PyTorch apart and added by it one
        after the other, are those that the step accumulates: the referee."""
        model, x, y = self.drawn()
        totals, weights = list[Any](), [*model.parameters()]
        for a, b in zip(x.chunk(self.parts), y.chunk(self.parts), strict=True):
            loss = functional.mse_loss(model(a), b) * (len(a) / ROWS)
            each = torch.autograd.grad(loss, weights)
            totals = [t + g for t, g in zip(totals, each, strict=True)] if totals else [*each]
            (functional.mse_loss(model(a), b) * (len(a) / ROWS)).backward()
        return all(torch.equal(t, w.grad) for t, w in zip(totals, weights, strict=True))


def right() -> Iterator[Trained]:
    """Steps with nothing wrong."""
    for make in (perceptron, convolutions):
        for parts in (2, 4, 8, 64):
            yield Trained(make, parts)
    for parts in (4, 64):
        for optimizer in ("momentum", "Adam", "AdamW"):
            yield Trained(perceptron, parts, optimizer)
        yield Trained(perceptron, parts, loss="sum")
        yield Trained(perceptron, parts, loss="cross entropy")
        yield Trained(perceptron, parts, dtype="bfloat16")
    yield Trained(convolutions, 4, "Adam", "cross entropy")


def wrong() -> Iterator[Trained]:
    """Steps with a mistake."""
    for make in (perceptron, convolutions):
        for parts in (2, 8):
            for planted, enters in (
                ("loss averaged per micro-batch", "aten.mse_loss_backward at backward"),
                ("gradient not zeroed", "aten.add_.Tensor at backward."),
                ("gradient left over", "aten.add_.Tensor at backward."),
            ):
                yield Trained(make, parts, planted=planted, enters=enters)
    for parts in (2, 8):
        planted = "norm over the micro-batch"
        yield Trained(normed, parts, planted=planted, enters="aten.native_batch_norm at 1")
