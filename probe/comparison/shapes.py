"""What is compared: one case at two values of an axis, or one shape with two paddings."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from probe import window
from probe.case import Case
from probe.errors import InputError

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray | None]
Blocks = tuple[tuple[tuple[slice, ...], tuple[slice, ...]], ...]


@dataclass(frozen=True)
class Shapes:
    """The cases ``left`` and ``right`` of a comparison, and which of their outputs must agree.

    ``at`` and ``against`` are the left and the right value of the axis ``vary``; None: the case's
    own, and ``against`` None: both sides have the same shape. ``padding``: the right side's, None
    for the case's own. Raises InputError where there is no such case.
    """

    case: Case
    vary: str
    at: int | None
    against: int | None
    padding: Any
    left: Case = field(init=False)
    right: Case = field(init=False)

    def __post_init__(self) -> None:
        left = self.case if self.at is None else self._at(self.at)
        right = left if self.against is None else self._at(self.against)
        if self.padding is not None:
            right = right.with_(padding=self.padding)
        object.__setattr__(self, "left", left)
        object.__setattr__(self, "right", right)

    def _at(self, value: int) -> Case:
        return window.case_at(self.case, self.vary, value)

    @staticmethod
    def named(
        case: Case,
        vary: str | None = None,
        at: int | None = None,
        against: int | None = None,
        padding: object = None,
    ) -> Shapes:
        """The shapes that ``probe explain`` is asked about with these words. InputError.

        ``vary`` None: the length, of a dense layer the batch. ``at`` None: the case's own.
        """
        vary = window.axis_of(case, vary)
        if at is None and (against is not None or vary == "length"):
            at = window.value_of(case, vary)
        own = case.in_channels
        case = window.case_for(case, vary, [own if n is None else n for n in (at, against)])
        if at is None and against is not None:
            raise InputError("at", None, "the length is open", "give --at N, or --length N")
        other = None if padding is None else case.with_(padding=padding).padding
        return Shapes(case, vary, at, against, other)

    @property
    def paired(self) -> bool:
        """Whether the two sides differ in the axis ``vary``."""
        return self.against is not None

    @property
    def larger(self) -> Case:
        """A case whose operands hold those of both sides."""
        left, right = self.left, self.right
        assert left.length is not None and right.length is not None
        length, batch = max(left.length, right.length), max(left.batch, right.batch)
        wider = left if left.filters >= right.filters else right
        return wider.with_(length=length, batch=batch, split=None)

    def blocks(self, same_place: bool = False) -> Blocks:
        """Blocks of outputs to compare, left and right: slices over (batch, *positions, filters).

        Those whose windows hold the same values; with ``same_place`` all that both sides have.
        """
        if same_place:
            return common(self.left, self.right)
        assert self.at is not None and self.against is not None
        return window.agreement(self.case, self.vary, self.at, self.against).blocks


def common(left: Case, right: Case) -> Blocks:
    """The outputs of the same index that both have, as one block."""
    shapes = left.output_shape(), right.output_shape()
    both = tuple(slice(0, min(sizes)) for sizes in zip(*shapes, strict=True))
    return ((both, both),)
