"""Padding conventions: how many zeros each one puts before and after an axis, and what that leaves.

``valid`` adds none. ``same`` is TensorFlow's: ``ceil(size / stride)`` outputs, and where the zeros
needed are odd in number the extra one goes *after*, so with a stride the padding before depends on
the size. ``same_lower`` is ONNX's SAME_LOWER: as many zeros, the odd one *before*. ``caffe`` is
symmetric, ``(extent - 1) // 2`` on both sides, whatever the size, and its pooling rounds the number
of outputs up. Explicit padding is one ``(before, after)`` pair an axis. Sources: TensorFlow's API
documentation of ``tf.nn.convolution`` ("Notes on padding"), ONNX's of Conv, Caffe's
``conv_layer.cpp`` and ``pooling_layer.cpp``.
"""

from __future__ import annotations

from collections.abc import Sequence

from probe.errors import InputError

Pair = tuple[int, int]
Padding = str | tuple[Pair, ...]

CONVENTIONS = {
    "valid": "no padding: only windows that lie inside the input",
    "same": "TensorFlow's: ceil(size / stride) outputs, the odd zero goes after the input",
    "same_lower": "ONNX's SAME_LOWER: as same, but the odd zero goes before the input",
    "caffe": "(extent - 1) // 2 zeros on both sides",
}
HOW = (
    "use valid, same, same_lower, caffe, N, L:R, "
    "or one of N and L:R for each spatial axis such as 0:1,2:2"
)


def parse(padding: object, rank: int) -> Padding:
    """The normal form of a padding for ``rank`` spatial axes: a convention's name or all pairs.

    Takes a convention, an int, ``"N"``, ``"L:R"``, ``"0:1,2:2"``, or a sequence with an int or a
    pair for each axis; a single entry serves every axis. Raises InputError.
    """
    if isinstance(padding, str) and padding.strip().lower() in CONVENTIONS:
        return padding.strip().lower()
    entries: Sequence[object]
    if isinstance(padding, str):
        entries = [tuple(part.split(":")) if ":" in part else part for part in padding.split(",")]
    elif isinstance(padding, Sequence):
        entries = padding
    else:
        entries = [padding]
    if len(entries) not in (1, rank):
        why = f"{len(entries)} entries for {rank} spatial axes"
        raise InputError("padding", padding, why, HOW)
    pairs = tuple(_pair(entry, padding) for entry in entries)
    return pairs * rank if len(pairs) == 1 else pairs


def _pair(entry: object, padding: object) -> Pair:
    both = tuple(entry) if isinstance(entry, (tuple, list)) else (entry, entry)
    if len(both) != 2:
        raise InputError("padding", padding, f"{entry} is not a pair before:after", HOW)
    try:
        if any(isinstance(side, (bool, float)) for side in both):
            raise ValueError
        before, after = (int(side) for side in both)
    except (TypeError, ValueError):
        raise InputError(
            "padding", padding, f"{entry} is not a whole number or pair", HOW
        ) from None
    if min(before, after) < 0:
        raise InputError("padding", padding, "padding can't be negative", "crop the input instead")
    return before, after


def text(padding: Padding) -> str:
    """The padding as the command line writes it; ``parse`` gives it back."""
    if isinstance(padding, str):
        return padding
    sides = [f"{before}" if before == after else f"{before}:{after}" for before, after in padding]
    return sides[0] if len(set(sides)) == 1 else ",".join(sides)


def around(padding: Padding, axis: int, size: int, extent: int, stride: int) -> Pair:
    """The zeros before and after ``size`` inputs on one axis; ``extent``: of the dilated kernel."""
    if padding == "valid":
        return 0, 0
    if padding in ("same", "same_lower"):
        outputs = -(-size // stride)
        total = max((outputs - 1) * stride + extent - size, 0)
        less, more = total // 2, total - total // 2
        return (less, more) if padding == "same" else (more, less)
    if padding == "caffe":
        return (extent - 1) // 2, (extent - 1) // 2
    if isinstance(padding, str):
        raise InputError("padding", padding, "unknown", HOW)
    return padding[axis]


def check_windows(padding: Padding, extents: Sequence[int]) -> None:
    """InputError where a window may lie in explicit padding alone: no maximum, and no mean."""
    if isinstance(padding, str):
        return
    for pair, extent in zip(padding, extents, strict=True):
        if max(pair) >= extent:
            why = f"a window of {extent} would hold padding alone"
            raise InputError("padding", text(padding), why, f"use {extent - 1} or less")


def output_size(
    padding: Padding, axis: int, size: int, extent: int, stride: int, ceil: bool = False
) -> int:
    """How many outputs one axis has; 0 where not even one window fits.

    ``ceil``: the last window may reach beyond the padded input, as long as it starts in the input
    or in the padding before it (PyTorch's ``ceil_mode``; Caffe's pooling).
    """
    before, after = around(padding, axis, size, extent, stride)
    room = size + before + after - extent
    if not ceil:
        return max(room // stride + 1, 0)
    outputs = -(-room // stride) + 1
    return max(outputs - ((outputs - 1) * stride >= size + before), 0)
