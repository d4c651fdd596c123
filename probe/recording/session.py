"""A recorded operation as the target of its case: the engine's questions are put to itself.

The masks, the controls and the replay drive the operation as it was recorded, alone, at its own
shapes and layouts, in this process: whatever the library, its version and the memory order of its
operands are. What it does with a sum before it gives it (a mean's division, a fused ReLU) is taken
into account.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from probe import floats, operands, ulp
from probe.backends.contract import Backend, Operator
from probe.errors import InputError
from probe.launch import Answer, InlineSession
from probe.order.functions import Own
from probe.order.orders import Behind
from probe.recording.cases import Again, AsCase, Function
from probe.worker import child

FAINT = 30
"""Questions behind a function with an upper bound are asked in units of 2 to the minus this."""

KEPT_BITS = 20
"""Significant bits of an answer that is told from its quotient by a divisor."""


class Session(InlineSession):
    """A recorded operation as a started target of its case. InputError: its last step is not known.

    ``behind``: what becomes of each sum before it is given; None: nothing.
    """

    def __init__(self, name: str, view: AsCase, reads: Sequence[np.ndarray], again: Again) -> None:
        self.target = Own(name)  # type: ignore[assignment]
        self.variables, self.facts = {}, {}
        self._worker, self.alive = child.Worker(), True
        self._worker.backend = _Operations(view, reads, again)  # type: ignore[assignment]
        self.view, self.faint = view, 0
        self.behind: Behind | None = None
        if view.divisor > 1:
            self.behind = self._divided()
        elif view.functions:
            self.behind = _functions(view.functions, view.case.dtype)
            bounded = any(word in ("relu6", "clip") for word, _ in view.functions)
            self.faint = FAINT * (bounded and view.case.dtype != "float16")

    def stream(self, header: Mapping[str, Any], arrays: Any = None) -> Iterator[Answer]:
        """As ``InlineSession.stream``; questions are put so that answers get through ``behind``."""
        asks = header["do"] == "masks" and self.behind is not None
        if not asks:
            yield from super().stream(header, arrays)
            return
        names = ("x", "b", "b_values") if header["mode"] == "weights" else ()
        given = {k: self._faint(v, -self.faint) if k in names else v for k, v in arrays.items()}
        for answer, found in super().stream(header, given):
            yield answer, found | {"outputs": self._answers(found["outputs"])}

    def _faint(self, array: np.ndarray, power: int) -> np.ndarray:
        dtype = self.view.case.dtype
        return floats.round_to(np.ldexp(floats.widen(array, dtype), power), dtype)

    def _answers(self, found: np.ndarray) -> np.ndarray:
        """The sums that were answered: those with few bits are told from their quotient."""
        if self.view.divisor == 1:
            return self._faint(found, self.faint) if self.faint else found
        dtype = self.view.case.dtype
        digits, power = np.frexp(floats.widen(found, dtype) * self.view.divisor)
        bits = min(KEPT_BITS, floats.format_of(dtype).precision - 2)
        return floats.round_to(np.ldexp(np.rint(np.ldexp(digits, bits)), power - bits), dtype)

    def _divided(self) -> Behind:
        """How the sum is divided: asked with a single number in each of them."""
        case, count = self.view.case, self.view.divisor
        x = np.zeros(case.input_shape())
        x[..., 0] = operands.normal(0, "x", x.shape[:-1])
        dtype = case.dtype
        alone = floats.round_to(x, dtype)
        arrays = {"x": alone, "w": floats.round_to(np.ones(case.weight_shape), dtype)}
        _, found = super().request({"do": "run", "spec": case.spec()}, arrays)
        for apply in _divisions(count, dtype):
            if ulp.equal(apply(alone[..., :1]), found["y"], dtype):
                return Behind(apply, True)
        why = "its sums are divided in a way that is not known"
        raise InputError("count", count, why, "")


def _divisions(count: int, dtype: str) -> list[Callable[[np.ndarray], np.ndarray]]:
    """Ways of dividing by a count: at once, or by its rounded reciprocal."""
    inverse = floats.widen(floats.round_to(np.array([1 / count]), dtype), dtype)[0]
    return [
        lambda array: floats.round_to(floats.widen(array, dtype) / count, dtype),
        lambda array: floats.round_to(floats.widen(array, dtype) * inverse, dtype),
    ]


def _functions(functions: Sequence[Function], dtype: str) -> Behind:
    """Functions that round nothing, one after the other."""
    ends = [_bounds(word, numbers) for word, numbers in functions]

    def apply(array: np.ndarray) -> np.ndarray:
        values = floats.widen(array, dtype)
        for low, high in ends:
            values = np.clip(values, low, high)
        return floats.round_to(values, dtype)

    return Behind(apply)


def _bounds(word: str, numbers: tuple[Any, ...]) -> tuple[float | None, float | None]:
    """Between which numbers a function keeps what it is given. InputError: it does otherwise."""
    if word == "relu":
        return 0.0, None
    if word == "relu6":
        return 0.0, 6.0
    if word == "clip" and len(numbers) == 2:
        low, high = (None if one is None else float(one) for one in numbers)
        if (low is None or low <= 0) and (high is None or high > 0):
            return low, high
    raise InputError("operation", word, "it is computed behind the sum in the same operation", "")


class _Operations(Backend):
    """The library that has this one operation."""

    name = "recorded"

    def __init__(self, view: AsCase, reads: Sequence[np.ndarray], again: Again) -> None:
        self.view, self.reads, self.again = view, reads, again

    def operator(self, spec: dict[str, Any]) -> Operator:
        return _Operation(spec, self)


class _Operation(Operator):
    """The operation; what it reads besides its operands stays as it was recorded."""

    def __init__(self, spec: dict[str, Any], owner: _Operations) -> None:
        super().__init__(spec)
        view, self.y, self.scale = owner.view, owner.view.y, owner.view.scale

        def call(x: np.ndarray, w: np.ndarray, b: np.ndarray | None) -> np.ndarray:
            reads = list(owner.reads)
            reads[view.x.number] = x
            if view.w is not None:
                reads[view.w.number] = w
            if view.b is not None and b is not None:
                reads[view.b.number] = b
            with np.errstate(all="ignore"):
                return owner.again(reads)[view.y.number]

        self.call, self.view = call, view

    def input(self, x: np.ndarray) -> np.ndarray:
        return self.view.x.put(x)

    def weights(self, w: np.ndarray) -> np.ndarray:
        return w if self.view.w is None else self.view.w.put(w)

    def bias(self, b: np.ndarray | None) -> np.ndarray | None:
        return None if b is None or self.view.b is None else self.view.b.put(b)

    def output(self, y: np.ndarray) -> np.ndarray:
        found = self.y.taken(np.asarray(y))
        return scaled(found, self.scale, self.spec["dtype"])


def scaled(array: np.ndarray, scale: int, dtype: str) -> np.ndarray:
    """Returns a container array times a power of two: exact, but for what overflows."""
    if scale == 1:
        return array
    with np.errstate(over="ignore"):
        return floats.round_to(floats.widen(array, dtype) * scale, dtype)
