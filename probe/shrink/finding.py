"""Two runs that ought to agree, with the operands of both: what is shrunk and reproduced."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from probe import operands, window
from probe.case import Case
from probe.errors import InputError

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray | None]
Blocks = tuple[tuple[tuple[slice, ...], tuple[slice, ...]], ...]


@dataclass(frozen=True, eq=False)
class Finding:
    """A case at two values of an axis, or at one shape that two targets or paddings compute.

    ``case`` has all shapes; its weights and bias only say whether there are any. ``at`` and
    ``against`` are the left and the right value of ``vary``; ``against`` None: both sides have the
    same shape. ``padding``: the right side's, None for the case's own. ``x`` (batch, *spatial,
    in_channels), ``w`` (*kernel, in_channels/groups, filters) and ``b`` (filters,) or None are
    container arrays of the larger side; the smaller one reads their prefix. ``drawn`` names the
    kind and seed of operands that were generated; then they are part of ``key`` by name only.
    """

    case: Case
    vary: str
    at: int | None
    against: int | None
    padding: Any
    x: np.ndarray
    w: np.ndarray
    b: np.ndarray | None
    drawn: str = ""
    left: Case = field(init=False)
    right: Case = field(init=False)

    def __post_init__(self) -> None:
        left, right = sides(self.case, self.vary, self.at, self.against, self.padding)
        object.__setattr__(self, "left", left)
        object.__setattr__(self, "right", right)

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
        vary = window.axis_of(case, vary)
        if at is None and vary != "length":
            at = window.value_of(case, vary) if against is not None else None
        case = window.case_for(case, vary, [n for n in (at, against) if n is not None] or [1])
        if vary == "length" and at is None:
            at = case.length
        if at is None and against is not None:
            raise InputError("at", None, "the length is open", "give --at N, or --length N")
        if vary == "length":
            if at is None:
                raise InputError("length", None, "the length is open", "give --length N")
            case = case.with_(length=max(at, against or at))
        left, right = sides(case, vary, at, against, padding)
        x, w, b = operands.generate(_larger(left, right))
        return cls(_structure(case), vary, at, against, right_padding(case, padding), x, w, b)

    @property
    def key(self) -> Hashable:
        """Shapes, and the operands by name where they were generated, else by value."""
        shape = (str(self.case.to_json()), self.vary, self.at, self.against, str(self.padding))
        if self.drawn:
            return (*shape, self.drawn)
        return (*shape, *(None if a is None else a.tobytes() for a in (self.x, self.w, self.b)))

    @property
    def paired(self) -> bool:
        """Whether the two sides differ in the axis ``vary``."""
        return self.against is not None

    def operands(self, side: Case) -> Arrays:
        """x, w and b of one side: C-contiguous, the prefix of the larger side's."""
        x = self.x[: side.batch]
        if side.spatial_rank:
            x = x[..., : side.length, :]
        b = None if self.b is None else self.b[: side.filters].copy()
        w = self.w[..., : side.filters]
        return np.ascontiguousarray(x), np.ascontiguousarray(w), b

    def compared(self, same_place: bool) -> Blocks:
        """Blocks of outputs to compare, left and right: slices over (batch, *positions, filters).

        Those whose windows hold the same values; with ``same_place`` all that both sides have.
        """
        if same_place:
            shapes = self.left.output_shape(), self.right.output_shape()
            common = tuple(slice(0, min(sizes)) for sizes in zip(*shapes, strict=True))
            return ((common, common),)
        assert self.at is not None and self.against is not None
        return window.agreement(self.case, self.vary, self.at, self.against).blocks

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
        largest = _larger(*sides(case, self.vary, at, against, self.padding))
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
        largest = _larger(self.left, self.right).with_(operands=kind, seed=seed)
        x, w, b = operands.generate(largest)
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


def sides(
    case: Case, vary: str, at: int | None, against: int | None, padding: Any
) -> tuple[Case, Case]:
    """The cases of the left and the right side."""
    left = case if at is None else window.case_at(case, vary, at)
    right = left if against is None else window.case_at(case, vary, against)
    return left, right if padding is None else right.with_(padding=padding)


def right_padding(case: Case, padding: object) -> Any:
    """The right side's padding in its normal form; None where it is not another one."""
    return None if padding is None else case.with_(padding=padding).padding


def _larger(left: Case, right: Case) -> Case:
    """A case whose operands hold those of both."""
    assert left.length is not None and right.length is not None
    bigger = {name: max(getattr(left, name), getattr(right, name)) for name in ("length", "batch")}
    wider = left if left.filters >= right.filters else right
    return wider.with_(**bigger, split=None)


def _structure(case: Case) -> Case:
    """The case without numbers: they are in the arrays."""
    bias = None if case.bias is None else "normal"
    return case.with_(weights=None, bias=bias) if case.weighted else case


def _prefix(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    """The array cut to ``shape``; None where it is smaller along an axis."""
    if len(shape) != array.ndim or any(a < b for a, b in zip(array.shape, shape, strict=True)):
        return None
    return np.ascontiguousarray(array[tuple(slice(0, size) for size in shape)])
