"""Padding as people write it: the name of a convention or numbers, checked; see probe.geometry."""

from __future__ import annotations

from collections.abc import Sequence

from probe.errors import InputError
from probe.geometry import CONVENTIONS, Padding, Pair

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


def check_windows(padding: Padding, extents: Sequence[int]) -> None:
    """InputError where a window may lie in explicit padding alone: no maximum, and no mean."""
    if isinstance(padding, str):
        return
    for pair, extent in zip(padding, extents, strict=True):
        if max(pair) >= extent:
            why = f"a window of {extent} would hold padding alone"
            raise InputError("padding", text(padding), why, f"use {extent - 1} or less")
