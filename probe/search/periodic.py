"""Operands that repeat along the length, so that calls of any length hold few distinct windows.

What a way of adding gives on the distinct windows is what it gives at every length, apart from the
windows that meet padding. The operands are of the kind ``cancel``: another way gives other bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from probe import operands, window
from probe.case import Case
from probe.order.orders import Way
from probe.order.replay import replay
from probe.window import Geometry

PERIOD = 61  # a prime: every remainder of a vector's or block's length meets every window
AT_ONCE = 1 << 16  # outputs replayed at once
SEED = 0x5EA5

Columns = list[np.ndarray]  # for every group what each leaf meets, (leaves, windows)
Weights = tuple[np.ndarray, np.ndarray | None]


class Periodic:
    """The input of ``case`` at any length, sets of weights, and ways replayed on them.

    ``sets``: (w, b or None), container: 4, or 16 where sums are short and agree more by luck.
    ``windows``: the distinct windows that don't meet padding along the length: for every line (a
    batch entry and the output's other axes) one for each of ``PERIOD`` starts.
    """

    def __init__(self, case: Case) -> None:
        self.case = case
        longest = PERIOD + case.effective_kernel[-1]
        self.block = operands.generate(self._drawn(longest, 0))[0][..., :PERIOD, :]
        count = 16 if case.summands <= 32 else 4
        self.sets: list[Weights] = [self._weights(number) for number in range(count)]
        self.windows = self._windows()
        self.tables: dict[Way, list[np.ndarray]] = {}

    def _drawn(self, length: int, number: int) -> Case:
        bias = None if self.case.bias is None else "normal"
        changes = {"operands": "cancel", "weights": None, "bias": bias}
        return self.case.with_(length=length, seed=SEED + number, **changes)

    def _weights(self, number: int) -> Weights:
        _, w, b = operands.generate(self._drawn(self.case.shortest_length, number))
        return w, b

    def input(self, length: int) -> np.ndarray:
        """The periodic input of any length, container."""
        return np.take(self.block, np.arange(length) % PERIOD, axis=-2)

    def _windows(self) -> Columns:
        case, extent = self.case, self.case.effective_kernel[-1]
        around = Geometry.of(case, case.shortest_length).around[:-1]
        length = PERIOD + extent - 1
        pads = (*around, (0, 0)) if any(map(any, around)) else "valid"  # products have no pairs
        changes: dict[str, Any] = {"padding": pads, "stride": (*case.stride[:-1], 1)}
        return window.columns(case.with_(length=length, **changes), self.input(length))

    def table(self, way: Way) -> list[np.ndarray]:
        """What a way gives on ``windows``: container (windows, filters), for every set; kept."""
        if way not in self.tables:
            self.tables[way] = list(self.replayed(way, self.windows))
        return self.tables[way]

    def replayed(self, way: Way, columns: Columns) -> Iterator[np.ndarray]:
        """A way's outputs on any windows, container (windows, filters), set by set."""
        for weights in self.sets:
            yield _replayed(self.case, way, columns, weights)


def _replayed(case: Case, way: Way, columns: Columns, weights: Weights) -> np.ndarray:
    """Outputs of all windows and filters by one way, (windows, filters) container."""
    (tree, rounding), (w, b) = way, weights
    flat = w.reshape(case.summands, case.groups, -1)
    found = []
    for group, x in enumerate(columns):
        mine, width = flat[:, group], flat.shape[2]
        bias = None if b is None else b.reshape(case.groups, -1)[group]
        parts = []
        for start in range(0, x.shape[1], max(1, AT_ONCE // width)):
            part = x[:, start : start + max(1, AT_ONCE // width)]
            adds = None if bias is None else np.tile(bias, part.shape[1])
            pair = np.repeat(part, width, axis=1), np.tile(mine, part.shape[1])
            parts.append(replay(tree, rounding, *pair, case.dtype, adds).reshape(-1, width))
        found.append(np.concatenate(parts))
    return np.concatenate(found, axis=1)
