"""Makes operands that repeat along the length or the batch, so that calls hold few windows.

What a summation gives on the distinct windows is what it gives at every length, apart from the
windows that meet padding. The operands are of the kind ``cancel``: others give different bits.
Windows that meet padding have sets of their own, made for the leaves that they read: half a pair
that cancels shows nothing. ``wide`` sets are made for accumulators of more digits than the dtype
has, which lose nothing of the others.

Along the batch (``Repeated``) the same *sample* stands at every place: a row of a dense layer. In
each the values differ by channel alone, so that all windows that read the same leaves are one
window. What a summation gives on it is what every output must give that adds so, in a batch of any
size and wherever its sample stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from probe import floats, operands, window
from probe.case import Case
from probe.operands import cancel_bias, cancel_weights, hashes
from probe.summation.replay import replay
from probe.summation.summation import Summation
from probe.window import Geometry

PERIOD = 61  # a prime: every remainder of a vector's or block's length meets every window
AT_ONCE = 1 << 16  # outputs replayed at once
SEED = 0x5EA5

# Digits of the accumulators that ``wide`` sets are for, and what keeps their weights in range.
SHORT = 32  # summands up to which sums agree by luck, so that more sets are tried

Columns = list[np.ndarray]  # for every group what each leaf meets, (leaves, windows)
Weights = tuple[np.ndarray, np.ndarray | None]
Read = tuple[int, ...]


class Periodic:
    """The input of ``case`` at any length, sets of weights, and summations replayed on them.

    ``windows``: the distinct windows that don't meet padding along the length: for every line (a
    batch entry and the output's other axes) one for each of ``PERIOD`` starts.
    """

    def __init__(self, case: Case) -> None:
        self.case = case
        self.every: Read = tuple(range(case.summands))
        self.block = self._block()
        self.windows = self._windows()
        self._sets: dict[tuple[Read, bool], list[Weights]] = {}
        self.tables: dict[tuple[Summation, Read], list[np.ndarray]] = {}

    def _block(self) -> np.ndarray:
        """Returns what the input repeats."""
        longest = PERIOD + self.case.effective_kernel[-1]
        return operands.generate(self._drawn(longest, 0))[0][..., :PERIOD, :]

    def sets_for(self, read: Read) -> list[Weights]:
        """Returns (w, b or None), container, for windows that read these leaves.

        4 for long sums and 16 for short ones, half as many where padding is met.
        """
        return self._made(read, False)

    def wide_for(self, read: Read) -> list[Weights]:
        """Returns the same for wider accumulators, and an input of ones; none for float64."""
        if not floats.FORMATS[self.case.dtype].wider or not self.case.weighted:
            return []
        return self._made(read, True)

    def _made(self, read: Read, wide: bool) -> list[Weights]:
        """Returns the sets, made when they are first asked for; 8 wide ones for short sums."""
        if (read, wide) not in self._sets:
            count = (8 if wide else 16) if len(read) <= SHORT else 4
            make = self._wide_set if wide else self._set
            numbers = range(count // (1 if read == self.every else 2))
            self._sets[read, wide] = [make(number, read) for number in numbers]
        return self._sets[read, wide]

    def _drawn(self, length: int, number: int) -> Case:
        bias = None if self.case.bias is None else "normal"
        changes = {"operands": "cancel", "weights": None, "bias": bias}
        return self.case.with_(length=length, seed=SEED + number, **changes)

    def _set(self, number: int, read: Read) -> Weights:
        """Returns what cancels over the leaves that are read; in every other set the pairs are
        moved."""
        case, seed = self.case, SEED + number
        if not case.weighted:
            _, w, b = operands.generate(self._drawn(case.shortest_length, number))
            return w, b
        precision = floats.format_of(case.dtype).precision
        drawn = cancel_weights(seed, precision, (len(read), case.filters))
        places = self._moved(read, seed) if number % 2 or len(read) < 8 else list(read)
        return self._placed(places, drawn, cancel_bias(seed, precision, (case.filters,)))

    def _wide_set(self, number: int, read: Read) -> Weights:
        """Returns one pair that cancels, and elsewhere what it swallows in that many digits."""
        seed, filters = SEED + 64 + number, self.case.filters
        form = floats.FORMATS[self.case.dtype]
        precision = floats.FORMATS[form.wider[0]].precision
        scale = 2.0**-8 if form.emax < precision else 1.0  # float16's would overflow
        drawn = cancel_bias(seed, precision, (len(read) + 1, filters)) * scale
        small, bias = drawn[:-1], drawn[-1]
        if len(read) > 1:
            small[:2] = np.array([[1.0], [-1.0]]) * (1 + number / 16) * 2.0 ** (precision - 1)
            small[:2] *= scale
        return self._placed(self._moved(read, seed), small, bias)

    def _moved(self, read: Read, seed: int) -> list[int]:
        return [read[n] for n in np.argsort(hashes(seed, "w", 9, (len(read),)))]

    def _placed(self, places: Sequence[int], drawn: np.ndarray, bias: np.ndarray) -> Weights:
        """Container weights, ``drawn`` at these leaves and 0 elsewhere, and a bias if there is."""
        case = self.case
        flat = np.zeros((case.summands, case.filters))
        flat[list(places)] = drawn
        w = floats.round_to(flat.reshape(case.weight_shape), case.dtype)
        return w, None if case.bias is None else floats.round_to(bias, case.dtype)

    def input(self, length: int) -> np.ndarray:
        """Returns the periodic input of any length, container."""
        return np.take(self.block, np.arange(length) % PERIOD, axis=-2)

    def _windows(self) -> Columns:
        case, extent = self.case, self.case.effective_kernel[-1]
        around = Geometry.of(case, case.shortest_length).around[:-1]
        length = PERIOD + extent - 1
        pads = (*around, (0, 0)) if any(map(any, around)) else "valid"  # products have no pairs
        changes: dict[str, Any] = {"padding": pads, "stride": (*case.stride[:-1], 1)}
        return window.columns(case.with_(length=length, **changes), self.input(length))

    def ones(self, length: int) -> np.ndarray:
        """Returns the input of ``wide`` sets, container."""
        made: np.ndarray = floats.round_to(np.ones(self.case.input_shape(length)), self.case.dtype)
        return made

    def table(self, summation: Summation, read: Read) -> list[np.ndarray]:
        """Returns what a summation gives on ``windows`` of lines that read these leaves; kept.

        Container (windows, filters), for every set of ``sets_for``.
        """
        if (summation, read) not in self.tables:
            self.tables[summation, read] = list(
                self.replayed(summation, self.windows, self.sets_for(read))
            )
        return self.tables[summation, read]

    def wide_table(self, summation: Summation, read: Read) -> Iterator[np.ndarray]:
        """Yields what a summation gives on the one window of ones: container (1, filters), set by
        set."""
        column = np.zeros((self.case.summands, 1))
        column[list(read)] = 1.0
        columns = [floats.round_to(column, self.case.dtype)] * self.case.groups
        return self.replayed(summation, columns, self.wide_for(read))

    def replayed(
        self, summation: Summation, columns: Columns, sets: list[Weights]
    ) -> Iterator[np.ndarray]:
        """Yields a summation's outputs on any windows, container (windows, filters), set by set."""
        for weights in sets:
            case = self.case
            w, b = weights
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
                    parts.append(replay(summation, *pair, case.dtype, adds).reshape(-1, width))
                found.append(np.concatenate(parts))
            yield np.concatenate(found, axis=1)


class Repeated(Periodic):
    """The same sample at every place of a batch, and summations replayed on its windows."""

    def _block(self) -> np.ndarray:
        """Returns one sample, (1, *spatial, in_channels): container."""
        length = self.case.length or self.case.shortest_length
        found = operands.generate(self._drawn(length, 0).with_(batch=1))[0]
        first = found[(slice(1), *(slice(1) for _ in range(self.case.spatial_rank)))]
        return np.broadcast_to(first, found.shape) if self.case.spatial_rank else found

    def _windows(self) -> Columns:
        """Of each group the one window that meets no padding: (leaves, 1)."""
        case = self.case
        values = self.block.reshape(-1, case.in_channels)[0].reshape(case.groups, -1)
        return [np.tile(each, case.summands // len(each))[:, None] for each in values]

    def input(self, size: int) -> np.ndarray:
        """Returns the input of ``size`` samples, container."""
        return np.ascontiguousarray(np.broadcast_to(self.block, (size, *self.block.shape[1:])))

    def ones(self, size: int) -> np.ndarray:
        """Does as ``Periodic``."""
        shape = self.case.input_shape(batch=size)
        found: np.ndarray = floats.round_to(np.ones(shape), self.case.dtype)
        return found

    def table(self, summation: Summation, read: Read) -> list[np.ndarray]:
        """Returns what a summation gives on the window that reads these leaves: container (1,
        filters)."""
        if (summation, read) not in self.tables:
            columns = [np.zeros_like(each) for each in self.windows]
            for column, each in zip(columns, self.windows, strict=True):
                column[list(read)] = each[list(read)]
            found = list(self.replayed(summation, columns, self.sets_for(read)))
            self.tables[summation, read] = found
        return self.tables[summation, read]
