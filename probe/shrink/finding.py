"""Two runs that must agree, with the operands of both: what is shrunk and reproduced."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from probe import operands
from probe.case import Case
from probe.comparison import Arrays, Shapes
from probe.errors import InputError


@dataclass(frozen=True, eq=False)
class Finding(Shapes):
    """A case at two values of an axis, or at one shape that two targets or paddings compute.

    ``case`` has all shapes; its weights and bias only say whether there are any. ``x`` (batch,
    *spatial, in_channels), ``w`` (*kernel, in_channels/groups, filters) and ``b`` (filters,) or
    None are container arrays of the larger side; the smaller one reads their prefix. ``drawn``
    names the kind and seed of operands that were generated; then they are part of ``key`` by name
    only.
    """

    x: np.ndarray
    w: np.ndarray
    b: np.ndarray | None
    drawn: str = ""

    @classmethod
    def of(
        cls,
        case: Case,
        vary: str | None = None,
        at: int | None = None,
        against: int | None = None,
        padding: object = None,
    ) -> Self:
        """The finding that ``probe explain`` is asked about with the same words. InputError."""
        return cls.drawn_from(Shapes.named(case, vary, at, against, padding))

    @classmethod
    def drawn_from(cls, shapes: Shapes) -> Self:
        """Shapes with the case's own operands. InputError: the length is open."""
        case, vary, at, against = shapes.case, shapes.vary, shapes.at, shapes.against
        if shapes.left.length is None:
            raise InputError("length", None, "the length is open", "give --length N")
        if vary == "length" and at is not None:
            case = case.with_(length=max(at, against or at))
        x, w, b = operands.generate(shapes.larger)
        if case.weighted:  # its numbers are in the arrays
            bias = None if case.bias is None else "normal"
            case = case.with_(weights=None, bias=bias)
        return cls(case, vary, at, against, shapes.padding, x, w, b)

    @property
    def key(self) -> Hashable:
        """Shapes, and the operands by name where they were generated, else by value."""
        shape = (str(self.case.to_json()), self.vary, self.at, self.against, str(self.padding))
        if self.drawn:
            return (*shape, self.drawn)
        return (*shape, *(None if a is None else a.tobytes() for a in (self.x, self.w, self.b)))

    def operands(self, side: Case) -> Arrays:
        """x, w and b of one side: C-contiguous, the prefix of the larger side's."""
        x = self.x[: side.batch]
        if side.spatial_rank:
            x = x[..., : side.length, :]
        b = None if self.b is None else self.b[: side.filters].copy()
        w = self.w[..., : side.filters]
        return np.ascontiguousarray(x), np.ascontiguousarray(w), b

    def reshaped(self, **changes: Any) -> Self:
        """With other arguments of the case, or other ``at`` and ``against``.

        The operands are the old ones' prefix where that is enough for the new shapes, else
        generated. Raises InputError where there is no such case.
        """
        at, against = changes.pop("at", self.at), changes.pop("against", self.against)
        known = self.case.arguments() | changes
        if self.vary == "length" and at is not None:
            known["length"] = max(at, against or at)
        if self.vary == "channels" and at is not None:
            known["in_channels"] = max(at, against or at)
        case = Case(**known)
        largest = Shapes(case, self.vary, at, against, self.padding).larger
        shapes = largest.input_shape(), largest.weight_shape
        x, w = (_prefix(*pair) for pair in zip((self.x, self.w), shapes, strict=True))
        b = None
        if case.bias is not None and self.b is not None:
            b = _prefix(self.b, (largest.filters,))
        if x is None or w is None or (case.bias is not None and b is None):
            x, w, b = operands.generate(largest)
        return type(self)(case, self.vary, at, against, self.padding, x, w, b)

    def drawn_as(self, kind: str, seed: int = 0) -> Self:
        """With generated operands of that kind (see ``probe.operands.KINDS``)."""
        x, w, b = operands.generate(self.larger.with_(operands=kind, seed=seed))
        known = (self.case, self.vary, self.at, self.against, self.padding)
        return type(self)(*known, x, w, b, f"{kind} {seed}")

    def with_operands(self, x: np.ndarray, w: np.ndarray, b: np.ndarray | None) -> Self:
        """With these operands, of the same shapes."""
        return type(self)(self.case, self.vary, self.at, self.against, self.padding, x, w, b)

    @property
    def label(self) -> str:
        """Such as ``conv1d 3, 16 -> 8, length 5 against 6``."""
        case = self.left.with_(operands="normal")
        once = {"length": None, "batch": 1, "filters": self.case.filters, "channels": None}
        if self.paired:  # the axis that sets them apart is told at the end
            field = "split" if self.vary == "channels" else self.vary
            case = case.with_(**{field: once[self.vary]})
        text = case.label
        if self.padding is not None:
            text += f", padding {self.left.padding_text} against {self.right.padding_text}"
        return text + (f", {self.vary} {self.at} against {self.against}" if self.paired else "")

    def to_json(self) -> dict[str, Any]:
        """The shapes, and how many operands are not 0."""
        found = self.case.to_json()
        if self.paired:
            found |= {"vary": self.vary, "at": self.at, "against": self.against}
        if self.padding is not None:
            found["against_padding"] = self.right.padding_text
        counts = {"x": self.x} | ({"w": self.w} if self.case.weighted else {})
        counts |= {} if self.b is None else {"b": self.b}
        return found | {"not_zero": {k: int(np.count_nonzero(v)) for k, v in counts.items()}}


def _prefix(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    """The array cut to ``shape``; None where it is smaller along an axis."""
    if len(shape) != array.ndim or any(a < b for a, b in zip(array.shape, shape, strict=True)):
        return None
    return np.ascontiguousarray(array[tuple(slice(0, size) for size in shape)])
