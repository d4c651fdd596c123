"""ONNX Runtime's blocked layout, NCHWc: a block of channels last, as its optimiser lays them out.

A value in this layout is declared as (batch, channels, height, width), and its memory is (batch,
channels / block, height, width, block). Filters have one or two blocks: of filters, and of input
channels where there are enough of them. Recordings have all of them in ONNX's own order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from probe.recording.meaning import Meaning, Reshapes, Step, Steps, Turns

DOMAIN = "com.microsoft.nchwc"
SPLIT = -1


@dataclass(frozen=True)
class Block:
    """How a value's memory is ordered. ``size``: channels in a block.

    ``inner``: 0 for data; for filters, whether there are blocks of input channels too (2) or not
    (1); SPLIT for data with an axis more, which ONNX Runtime makes of blocked data to broadcast it:
    such a value is recorded as it is.
    """

    size: int
    inner: int = 0

    def opened(self, array: np.ndarray) -> np.ndarray:
        """Returns a blocked array in ONNX's order."""
        if self.inner == SPLIT:
            return array
        first, second, *rest = array.shape
        size = self.size
        if self.inner == 2:
            split = array.reshape(first // size, second // size, *rest, size, size)
            turned = split.transpose(0, 5, 1, 4, 2, 3)
        elif self.inner == 1:
            turned = array.reshape(first // size, second, *rest, size).transpose(0, 4, 1, 2, 3)
        else:
            turned = array.reshape(first, second // size, *rest, size).transpose(0, 1, 4, 2, 3)
        return turned.reshape(array.shape)

    def closed(self, array: np.ndarray) -> np.ndarray:
        """Returns an array in ONNX's order, blocked."""
        if self.inner == SPLIT:
            return array
        first, second, *rest = array.shape
        size = self.size
        if self.inner == 2:
            split = array.reshape(first // size, size, second // size, size, *rest)
            turned = split.transpose(0, 2, 4, 5, 3, 1)
        elif self.inner == 1:
            turned = array.reshape(first // size, size, second, *rest).transpose(0, 2, 3, 4, 1)
        else:
            turned = array.reshape(first, second // size, size, *rest).transpose(0, 1, 3, 4, 2)
        return np.ascontiguousarray(turned).reshape(array.shape)

    def lines(self, name: str, back: bool = False) -> list[str]:
        """Lines of Python that block the array of this name, in ONNX's order; ``back``: undo it."""
        size = self.size
        if self.inner == SPLIT:
            return []
        first, second = (f"n // {size}", f"c // {size}") if self.inner else ("n", f"c // {size}")
        split, axes, inverse = {
            0: (f"{first}, {second}, {size}, *rest", (0, 1, 3, 4, 2), (0, 1, 4, 2, 3)),
            1: (f"{first}, {size}, c, *rest", (0, 2, 3, 4, 1), (0, 4, 1, 2, 3)),
            2: (
                f"{first}, {size}, {second}, {size}, *rest",
                (0, 2, 4, 5, 3, 1),
                (0, 5, 1, 4, 2, 3),
            ),
        }[self.inner]
        found = [f"n, c, *rest = {name}.shape  # blocks of {size} channels, ONNX Runtime's NCHWc"]
        if back:
            split, axes = f"{first}, {second}, *rest, {size}", inverse
        turned = f"{name}.reshape({split}).transpose{axes}"
        return [*found, f"{name} = np.ascontiguousarray({turned}).reshape(n, c, *rest)"]


def size_here(run: Any) -> int:
    """Returns the channels in a block on this processor. ``run(node type, array)``: one node."""
    channels = 64
    found = run(
        "ReorderInput", np.arange(channels * 2, dtype=np.float32).reshape(1, channels, 1, 2)
    )
    flat = found.reshape(-1)
    return int(np.argmax(flat == 1))


def of_filters(shape: tuple[int, ...], size: int) -> Block:
    """Returns how the filters (filters, channels, height, width) of a blocked convolution lie."""
    return Block(size, 2 if shape[1] % size == 0 else 1)


def of_outputs(domain: str, op: str, reads: list[Block | None], size: int) -> Block | None:
    """Returns how a node's output lies. Nodes of ONNX's own keep the layout of what they read."""
    if domain == DOMAIN:
        return None if op == "ReorderOutput" else Block(size)
    first = next((one for one in reads if one is not None and one.inner <= 0), None)
    if op == "Reshape" and first is not None:  # to five axes, and back
        return Block(size, 0 if first.inner == SPLIT else SPLIT)
    return first


def reshaped(size: int, shape: tuple[int, ...], back: bool) -> Meaning:
    """Returns what a Reshape of blocked memory of ``shape``, to five axes or ``back``, does."""
    if back:
        batch, count, high, wide, _ = shape
        turned = Step(Turns((0, 1, 4, 2, 3)), (0,), (batch, count, size, high, wide))
        return Steps((turned, Step(Reshapes(), (2,), (batch, count * size, high, wide))))
    batch, channels, high, wide = shape
    split = Step(Reshapes(), (0,), (batch, channels // size, size, high, wide))
    turned = Step(Turns((0, 1, 3, 4, 2)), (2,), (batch, channels // size, high, wide, size))
    return Steps((split, turned))
