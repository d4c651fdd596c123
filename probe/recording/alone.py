"""One operation of one run, alone, on the operands that it read: does it give the recorded bits?

An operation whose outputs differ between two runs can be explained only if it gives them again by
itself. Where it doesn't, it may not be deterministic, it may read memory that nobody wrote, or it
may depend on what is around it; each is told apart by running it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from probe import floats, ulp
from probe.recording.difference import Pair
from probe.recording.recording import Operation, Side, Value
from probe.recording.view import Again

FILLS = (0xFF, 0x3F)
"""Bytes that freed memory is filled with: NaN, and numbers near 0.75 in most formats."""

AGAIN = 3
"""Runs with each kind of memory where any run gave different bits."""

MOST_BYTES = 1 << 26
"""Bytes of freed memory that are filled at most for an array."""


@dataclass
class Alone:
    """One side's operation. ``output``: which of what it gives is looked at, ``pair`` says where.

    ``reads``, ``gives``: container arrays as they were recorded.
    """

    side: Side
    operation: Operation
    output: int
    pair: Pair
    place: int
    reads: list[np.ndarray]
    gives: list[np.ndarray]
    again: Again | None

    @classmethod
    def of(cls, side: Side, number: int, output: int, pair: Pair, place: int) -> Alone:
        """Fetches the operands and what runs it. ``place``: 0 for the left side, else 1.

        KeyError: a recording on disk has left them out.
        """
        operation = side.recording.operations[number]
        wanted = {*operation.reads, *operation.gives}
        arrays = side.arrays(wanted)
        return cls(
            *(side, operation, output, pair, place),
            [arrays[n] for n in operation.reads],
            [arrays[n] for n in operation.gives],
            side.again(number),
        )

    @property
    def value(self) -> Value:
        """Returns what is known of the output."""
        return self.side.recording.values[self.operation.gives[self.output]]

    @property
    def dtypes(self) -> list[str]:
        """Of what it reads, and last of the output."""
        numbers = [*self.operation.reads, self.operation.gives[self.output]]
        return [self.side.recording.values[n].dtype for n in numbers]

    @property
    def outputs(self) -> np.ndarray:
        """The output's elements that must agree, as they were recorded, in the pairs' order."""
        return self.chosen(self.gives)

    @property
    def index(self) -> np.ndarray:
        """Their flat indices in the output."""
        shape = self.value.shape
        every = np.arange(int(np.prod(shape, dtype=int))).reshape(shape)
        return np.asarray(self.pair.selection.taken(every, self.place)).reshape(-1)

    def chosen(self, gives: list[np.ndarray]) -> np.ndarray:
        """Returns the elements of the output that must agree, flat."""
        taken = self.pair.selection.taken(np.asarray(gives[self.output]), self.place)
        return np.ascontiguousarray(taken).reshape(-1)

    def call(self, reads: list[np.ndarray] | None = None) -> list[np.ndarray]:
        """Runs it alone on copies; on its own operands if there are no others."""
        assert self.again is not None
        given = self.reads if reads is None else reads
        with np.errstate(all="ignore"):
            found = self.again([np.array(one, order="C") for one in given])
        return [np.asarray(one) for one in found]

    def reads_more(self, pairs: Sequence[Pair]) -> bool:
        """Returns whether outputs that must agree follow what need not agree of its operands.

        ``pairs``: of what it reads. All other numbers are made larger by a quarter, but zeros,
        which add nothing: then it computes something else than was said, or reads more. One run.
        """
        given, changed = list(self.reads), False
        known = {(pair.left, pair.right)[self.place]: pair for pair in pairs}
        for number, one in enumerate(self.reads):
            pair = known.get(self.operation.reads[number])
            if pair is None:
                continue  # an input or a weight, whose label says what it holds
            dtype = self.dtypes[number]
            rest = ~pair.selection.mask(one.shape, self.place)
            if dtype in floats.FORMATS and rest.any():
                other = floats.round_to(floats.widen(one, dtype) * 1.25, dtype)
                given[number], changed = np.where(rest, other, one), True
        if not changed:
            return False
        return not _same(self.chosen(self.call(given)), self.outputs, self.value.dtype)

    def unsteady(self) -> tuple[str, str]:
        """(class, why) where it does not give its recorded bits again; two empty texts if it does.

        Five runs where all is well. Filled memory shows what is never written only where the
        library takes its memory from the process' heap; that none is found proves nothing.
        """
        dtype = self.value.dtype
        plain = [self.chosen(self.call()) for _ in range(2)]
        filled = {byte: [self._filled(byte)] for byte in FILLS}
        every = [*plain, *(runs[0] for runs in filled.values())]
        if all(_same(one, self.outputs, dtype) for one in every):
            return "", ""
        for byte, runs in filled.items():
            runs += [self._filled(byte) for _ in range(AGAIN - 1)]
        plain += [self.chosen(self.call()) for _ in range(AGAIN - 2)]
        where = ("left", "right")[self.place]
        steady = [all(_same(runs[0], one, dtype) for one in runs) for runs in filled.values()]
        one, other = (runs[0] for runs in filled.values())
        if all(steady) and not (_same(one, other, dtype) and _same(one, plain[0], dtype)):
            why = "its outputs depend on the contents of freed memory"
            return "uninitialised", f"on the {where}, {why}: it reads memory that was not written"
        if not all(_same(plain[0], one, dtype) for one in plain):
            why = "alone, on the same operands, it gives different bits from run to run"
            return "nondeterministic", f"on the {where}, {why}"
        return "other", f"alone, on its recorded operands, the {where} one gives different bits"

    def _filled(self, byte: int) -> np.ndarray:
        """Returns the outputs where memory that has just been freed holds this byte."""
        sizes = {array.nbytes for array in (*self.reads, *self.gives)}
        for size in sorted(sizes):
            held = [
                np.full(min(max(size, 64) + more, MOST_BYTES), byte, np.uint8)
                for more in (0, 64, 0, 64)
            ]
            del held
        return self.chosen(self.call())


def _same(one: np.ndarray, other: np.ndarray, dtype: str) -> bool:
    """Returns whether all bits agree; of integers all values."""
    if "float" not in dtype:
        return bool(np.array_equal(one, other))
    return one.shape == other.shape and bool(ulp.equal(one, other, dtype))


def same(one: Any, other: Any, dtype: str) -> bool:
    """Returns whether two arrays have the same bits; of integers the same values."""
    return _same(np.asarray(one), np.asarray(other), dtype)
