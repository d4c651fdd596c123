"""Sets of outputs as people write them: ``out[0, 3..7, *]``."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from probe.cli import numbers

Region = tuple[np.ndarray, ...]


def regions(mask: np.ndarray) -> Iterator[Region]:
    """The True entries of a mask as disjoint products of indices, one index set an axis.

    Slices along the first axis that look alike are taken together, and so on inwards.
    """
    if mask.ndim == 1:
        if mask.any():
            yield (np.flatnonzero(mask),)
        return
    rows = mask.reshape(len(mask), -1)
    _, first, which = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    for number in np.argsort(first):
        members = np.flatnonzero(which.reshape(-1) == number)
        for inner in regions(mask[members[0]]):
            yield (members, *inner)


def outputs(mask: np.ndarray, most: int = 4) -> str:
    """Where a mask of the output's shape is True; at most ``most`` regions are written out.

    Axes of one entry are left out, ``*`` is all of an axis.
    """
    found = list(regions(mask))
    if mask.size == 1:
        return "the output" if found else "none"
    text = "; ".join(_region(region, mask.shape) for region in found[:most])
    more = len(found) - most
    return f"{text}; and {more} more such blocks" if more > 0 else text or "none"


def _region(region: Region, shape: tuple[int, ...]) -> str:
    """Axes with one entry are not written."""
    parts = [
        "*" if len(indices) == size else numbers.text(indices.tolist(), 8)
        for indices, size in zip(region, shape, strict=True)
        if size > 1
    ]
    several = len(parts) > 1
    return f"out[{', '.join(f'({part})' if several and ',' in part else part for part in parts)}]"


def name(index: tuple[int, ...], tensor: str = "out") -> str:
    """One entry with all its indices: ``out[0, 3, 7]``."""
    return f"{tensor}[{', '.join(map(str, index))}]"
