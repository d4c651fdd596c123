"""What a sweep computes of one case: made once, shared by all targets."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property, lru_cache

import numpy as np

from probe import memory, operands, window
from probe.case import Case
from probe.errors import InputError

CACHED = 4
"""Plans whose operands are kept: targets that run side by side are at about the same case."""

Ranges = list[list[int]]
Item = tuple[int, list[tuple[Ranges | None, Ranges]]]


def axis_values(values: Sequence[int], vary: str) -> tuple[list[int], int]:
    """The sorted values to compare, and the longest, with which they are. Raises InputError."""
    distinct = sorted(set(values))
    shown = ",".join(map(str, distinct[:9])) or "(none)"
    if len(distinct) < 2:
        why = "a sweep compares each value with the longest"
        raise InputError(f"{vary} values", shown, why, "give two or more, such as 5..64")
    if distinct[0] < 1:
        raise InputError(f"{vary} values", shown, "must be 1 or more", "leave out the others")
    return distinct[:-1], distinct[-1]


class Plan:
    """One case of a sweep. Checked when made: a value that does not fit it is an InputError.

    ``case`` is the case as it is stored, with an open length where the length is varied and all
    channels where they are; ``base`` the one at ``against``.
    """

    def __init__(self, case: Case, vary: str, values: Sequence[int], against: int) -> None:
        vary = window.axis_of(case, vary)
        case = case.with_(length=None) if vary == "length" else case
        self.case = window.case_for(case, vary, (against,))
        self.vary, self.values, self.against = vary, values, against
        for value in (values[0], against) if vary == "length" else (*values, against):
            window.case_at(self.case, vary, value)
        self.base = window.case_at(self.case, vary, against)
        memory.require(self.base)  # says so too where the length is neither given nor varied
        self.id = self.case.id

    @cached_property
    def items(self) -> dict[int, Item]:
        """By value: what a ``sweep`` request needs, see ``compare.sweep``."""
        return {value: self._item(value) for value in self.values}

    @cached_property
    def not_compared(self) -> dict[int, int]:
        """By value: outputs without a partner whose window holds the same values."""
        if self._prefixes:
            return dict.fromkeys(self.values, 0)
        return {value: one.not_compared for value, one in self._agreements.items()}

    @cached_property
    def shapes(self) -> dict[int, tuple[int, ...]]:
        """By value: the output's shape."""
        if self.vary == "channels":
            return dict.fromkeys(self.values, self.base.output_shape())
        if self.vary == "filters":
            return {value: (*self.base.output_shape()[:-1], value) for value in self.values}
        return {value: self.case.output_shape(**{self.vary: value}) for value in self.values}

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """x, w and, if there is one, b of the base: container arrays."""
        x, w, b = operands.generate(self.base)
        return {"x": x, "w": w} | ({} if b is None else {"b": b})

    @cached_property
    def scale(self) -> np.ndarray:
        """sum|x*w| of every output of the base, float64; costs a convolution."""
        return window.scale(self.base, **self.arrays)

    @property
    def _prefixes(self) -> bool:
        """Whether every output must agree with the one of its index: the usual case, told quickly.

        Without padding no window reaches past the shorter input.
        """
        return self.vary == "length" and self.case.padding == "valid"

    @cached_property
    def _agreements(self) -> dict[int, window.Agreement]:
        return {
            value: window.agreement(self.case, self.vary, value, self.against)
            for value in self.values
        }

    def _item(self, value: int) -> Item:
        whole = [[0, size, 1] for size in self.shapes[value]]
        if self._prefixes:
            return value, [(None, whole)]
        nothing = [[0, 0, 1] for _ in whole]
        blocks: list[tuple[Ranges | None, Ranges]] = []
        for pair in self._agreements[value].blocks:
            ours, theirs = ([[part.start, part.stop, 1] for part in block] for block in pair)
            blocks.append((None if ours == whole else ours, theirs))
        return value, blocks or [(nothing, nothing)]


class Plans:
    """The plans of a sweep by number; operands of the ones used last are kept. Thread-safe."""

    def __init__(
        self, cases: Sequence[Case], vary: str, values: Sequence[int], against: int
    ) -> None:
        self.cases, self.vary, self.values, self.against = cases, vary, values, against
        self._kept = lru_cache(CACHED)(self._made)
        self._lock = threading.Lock()
        for number in range(len(cases)):
            self[number]

    def __len__(self) -> int:
        return len(self.cases)

    def _made(self, number: int) -> Plan:
        return Plan(self.cases[number], self.vary, self.values, self.against)

    def __getitem__(self, number: int) -> Plan:
        with self._lock:
            return self._kept(number)
