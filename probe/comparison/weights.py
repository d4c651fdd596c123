"""Weights that hold the same numbers in another order on two sides: a port that went wrong, or a
convention of the library. No tolerance tells these from rounding; the numbers themselves do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import combinations, permutations
from typing import Any

import numpy as np

MOST = 1 << 22
"""Elements of a weight up to which it is looked at: sorting 4 million takes 0.4 s."""

BLOCKS = 2, 3, 4
"""Parts that layers join in one weight: gates of a GRU and an LSTM, projections of attention."""


@dataclass(frozen=True)
class PermutedWeight:
    """A weight of the left side, by name, whose numbers the right side has in another order.

    ``axes``: the permutation of axes, () where they stand alike or nothing simpler is known;
    ``how``: what else sets them apart, in words; empty where the axes are all.
    """

    left: str
    right: str
    axes: tuple[int, ...]
    how: str

    @property
    def convention(self) -> bool:
        """Whether axes alone differ, and shapes with them: how another library keeps a kernel."""
        return bool(self.axes) and not self.how

    def __str__(self) -> str:
        names = self.left if self.left == self.right else f"{self.left} and {self.right}"
        parts = [f"axes {self.axes}"] * bool(self.axes) + [self.how] * bool(self.how)
        return f"weights permuted: {names}: {', '.join(parts)}"

    def to_json(self) -> dict[str, Any]:
        """An entry of ``weights``."""
        return {"finding": "weights permuted", **asdict(self)}


def permuted_weights(
    left: Mapping[str, np.ndarray], right: Mapping[str, np.ndarray]
) -> Iterator[PermutedWeight]:
    """Yields weights that one side has in another order than the other; container arrays by name.

    Those that have their very bits on the other side, in one shape, are left out.
    """
    held = [{_key(array) for array in side.values()} for side in (left, right)]
    alone = [
        {n: a for n, a in side.items() if 1 < a.size <= MOST and _key(a) not in other}
        for side, other in ((left, held[1]), (right, held[0]))
    ]
    by_numbers: dict[bytes, list[str]] = {}
    for name, array in alone[1].items():
        by_numbers.setdefault(_numbers(array), []).append(name)
    for name, array in alone[0].items():
        others = by_numbers.get(_numbers(array))
        if others:
            other = others.pop(others.index(name) if name in others else 0)
            axes, how = _order(array, alone[1][other])
            yield PermutedWeight(name, other, axes, how)


def _key(array: np.ndarray) -> tuple[Any, ...]:
    return array.shape, array.dtype.str, np.ascontiguousarray(array).tobytes()


def _numbers(array: np.ndarray) -> bytes:
    return array.dtype.str.encode() + np.sort(_bits(array).reshape(-1)).tobytes()


def _bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def _order(left: np.ndarray, right: np.ndarray) -> tuple[tuple[int, ...], str]:
    """Axes and words that make the left array the right one: the simplest that do."""
    a, b = _bits(left), _bits(right)
    turned = [
        (axes, a.transpose(axes))
        for axes in permutations(range(a.ndim))
        if a.transpose(axes).shape == b.shape
    ]
    same = tuple(range(a.ndim))
    for axes, view in turned:
        if np.array_equal(view, b):
            return axes, ""
    for count in range(1, a.ndim + 1):
        for flipped in combinations(range(a.ndim), count):
            for axes, view in turned:
                if np.array_equal(np.flip(view, flipped), b):
                    return (() if axes == same else axes), f"flipped along axes {flipped}"
    for axes, view in turned:
        for axis in range(a.ndim):
            if (order := _rows(np.moveaxis(view, axis, 0), np.moveaxis(b, axis, 0))) is not None:
                return (() if axes == same else axes), _row_words(order, axis)
    return (), "in another order"


def _rows(left: np.ndarray, right: np.ndarray) -> np.ndarray | None:
    """Which row of ``left`` each row of ``right`` is; None where they are no such rows."""
    places = {row.tobytes(): n for n, row in enumerate(np.ascontiguousarray(left))}
    order = [places.get(row.tobytes(), -1) for row in np.ascontiguousarray(right)]
    return np.array(order) if sorted(order) == list(range(len(left))) else None


def _row_words(order: np.ndarray, axis: int) -> str:
    for count in BLOCKS:
        if len(order) % count == 0:
            blocks = order.reshape(count, -1)
            size = blocks.shape[1]
            if (blocks == blocks[:, :1] + np.arange(size)).all() and (
                blocks[:, 0] % size == 0
            ).all():
                gates = tuple((blocks[:, 0] // size).tolist())
                return f"blocks of {size} along axis {axis} in the order {gates}, as gates are"
    return f"rows along axis {axis} in another order"
