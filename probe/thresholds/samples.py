"""Which summation every output of a batch has: one sample at every place, so few windows differ.

A *sample* is what stands at one place of the batch, a row of a dense layer. All samples hold the
same values, and in each the values differ by channel alone, so that all windows that read the same
leaves are one window. What a summation gives on it is what every output must give that adds so,
in a batch of any size and wherever its sample stands.
"""

from __future__ import annotations

import numpy as np

from probe import floats, operands, window
from probe.case import Case
from probe.errors import InputError
from probe.order.summation import Summation
from probe.thresholds.periodic import Columns, Periodic, Read
from probe.thresholds.recognition import NOTHING, Alike, Call, Pattern, Recogniser, some

ENDS = 16  # samples at either end, in the middle and scattered, where a call has more outputs


class Repeated(Periodic):
    """The same sample at every place of a batch, and summations replayed on its windows."""

    def _block(self) -> np.ndarray:
        """One sample, (1, *spatial, in_channels): container."""
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
        """The input of ``size`` samples, container."""
        return np.ascontiguousarray(np.broadcast_to(self.block, (size, *self.block.shape[1:])))

    def ones(self, size: int) -> np.ndarray:
        """As of ``Periodic``."""
        shape = self.case.input_shape(batch=size)
        found: np.ndarray = floats.round_to(np.ones(shape), self.case.dtype)
        return found

    def table(self, summation: Summation, read: Read) -> list[np.ndarray]:
        """What a summation gives on the window that reads these leaves: container (1, filters)."""
        if (summation, read) not in self.tables:
            columns = [np.zeros_like(each) for each in self.windows]
            for column, each in zip(columns, self.windows, strict=True):
                column[list(read)] = each[list(read)]
            found = list(self.replayed(summation, columns, self.sets_for(read)))
            self.tables[summation, read] = found
        return self.tables[summation, read]


class OfSamples(Recogniser):
    """A recogniser whose sizes are those of the batch; the case's length is set.

    A kind is how one sample adds: the summation of each of its outputs, flat in C order.
    """

    ends = ENDS

    def _operands(self) -> Repeated:
        return Repeated(self.case)

    def _call(self, size: int) -> Call:
        return _Batch(self, self.case.with_(batch=size), size)


class _Batch(Call):
    """One batch."""

    def _classify(self) -> None:
        """Rows by the leaves that they read: at one place of a sample always the same."""
        classes, leaves = window.read_classes(self.case)
        ranked = sorted(range(len(leaves)), key=lambda number: len(leaves[number]))
        place = np.argsort(ranked)  # the last one reads something: its call is repeated
        self.kind_of = place[classes[self.rows % self.geometry.positions]]
        self.classes, none = [], np.zeros(0, int)
        for number, read in enumerate(leaves[one] for one in ranked):
            rows = np.flatnonzero(self.kind_of == number)
            one = Alike(tuple(read.tolist()), rows, rows, none, np.zeros(len(rows), int))
            self.classes.append(one)
            if not len(read):
                self.index[rows] = NOTHING
        sizes = np.array([len(one.read) for one in self.classes])
        self.full = (sizes == self.case.summands)[self.kind_of]

    def _some(self) -> np.ndarray:
        """All rows of some samples."""
        each = self.geometry.positions
        chosen = some(self.case.batch, ENDS) if self.case.batch > 4 * ENDS else range(self.size)
        return (np.array(chosen)[:, None] * each + np.arange(each)).ravel()

    def pattern(self) -> Pattern:
        """What was found, by samples."""
        index = self.index.reshape(-1, self.geometry.positions * self.filters)
        return self._pattern(index, np.ones(len(index), bool))


def check(case: Case) -> Case:
    """The case itself. InputError: its batch can't be searched."""
    if not case.weighted:
        why = "its sums have no weights to ask with"
        raise InputError("op", case.op, why, "take a product or a convolution")
    if case.spatial_rank and case.length is None:
        why = "where the batch is varied, the length is fixed"
        raise InputError("length", None, why, "give --length N")
    if not case.operation.batched:
        raise InputError("op", case.op, "it takes one input", "take matmul or dense")
    return case
