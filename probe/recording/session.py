"""A recorded operation as the target of its case: the engine's questions are put to itself.

The masks, the controls and the replay drive the operation as it was recorded, alone, at its own
shapes and layouts, in this process: whatever the library, its version and the memory order of its
operands are. What it does with a sum before it gives it (a mean's division, a fused ReLU) is taken
into account.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from probe import budget, floats, operands, ulp, window
from probe.backends.contract import Backend, Operator
from probe.case import Case
from probe.errors import InputError
from probe.launch import Answer, InlineSession
from probe.order.functions import Own
from probe.order.orders import Behind
from probe.recording.view import Again, AsCase, Function
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
        self._of = _Operations(view, reads, again)
        self._worker.backend = self._of  # type: ignore[assignment]
        self.view, self.faint = view, 0
        self.behind: Behind | None = None
        self.divisors: np.ndarray | None = None
        if view.divides:
            self.behind = self._divided()
        elif view.functions:
            added = {n: view.filled(reads[n], n) for n in view.added}
            self.behind = _functions(view.functions, view.case.dtype, added)
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
        recorded = self._of.reads
        self._of.reads = [
            np.zeros_like(r) if n in self.view.added else r for n, r in enumerate(recorded)
        ]  # what is added behind answers nothing
        try:
            for answer, found in super().stream(header, given):
                yield answer, found | {"outputs": self._answers(found["outputs"], arrays)}
        finally:
            self._of.reads = recorded

    def _faint(self, array: np.ndarray, power: int) -> np.ndarray:
        dtype = self.view.case.dtype
        return floats.round_to(np.ldexp(floats.widen(array, dtype), power), dtype)

    def _answers(self, found: np.ndarray, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns the sums that were answered: those with few bits are told from their quotient."""
        if self.divisors is None:
            return self._faint(found, self.faint) if self.faint else found
        dtype, filters = self.view.case.dtype, self.view.case.filters
        select = arrays.get("select", np.arange(found[0].size))
        times = self.divisors[select // filters].reshape(found[0].shape)
        digits, power = np.frexp(floats.widen(found, dtype) * times)
        bits = min(KEPT_BITS, floats.format_of(dtype).precision - 2)
        return floats.round_to(np.ldexp(np.rint(np.ldexp(digits, bits)), power - bits), dtype)

    def _divided(self) -> Behind:
        """By what each sum is divided, and how: asked with ones, and with a number in each sum."""
        case = self.view.case
        dtype, shape = case.dtype, case.weight_shape
        ones, w = (floats.round_to(np.ones(s), dtype) for s in (case.input_shape(), shape))
        counts = self._read(window.columns(case, ones), None)
        given = floats.widen(self._outputs(ones, w), dtype).reshape(-1, case.filters)
        self.divisors = np.rint(counts[:, 0] / given[:, 0])
        x = floats.round_to(operands.normal(0, "x", case.input_shape()), dtype)
        leaf = case.summands // 2
        single = np.zeros((case.summands, case.filters))
        single[leaf] = 1
        w = floats.round_to(single.reshape(shape), dtype)
        if not case.weighted:  # what the weights would make of it is put there
            x = floats.round_to(floats.widen(x, dtype) * single[:, 0], dtype)
        sums = self._read(window.columns(case, x), leaf)
        found = self._outputs(x, w).reshape(sums.shape)
        for apply in _divisions(self.divisors, dtype):
            wanted = apply(floats.round_to(sums, dtype), np.arange(len(sums)), np.zeros(1, int))
            if ulp.equal(wanted, found, dtype):
                return Behind(apply, True)
        why = "its sums are divided in a way that is not known"
        raise InputError("count", case.summands, why, "")

    def _outputs(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        request = {"do": "run", "spec": self.view.case.spec()}
        y: np.ndarray = super().request(request, {"x": x, "w": w})[1]["y"]
        return y

    def _read(self, columns: Sequence[np.ndarray], leaf: int | None) -> np.ndarray:
        """Returns what one leaf meets, or all together, as float64 (positions, filters)."""
        case, found = self.view.case, []
        for column in columns:
            values = floats.widen(np.ascontiguousarray(column), case.dtype)
            line = values.sum(axis=0) if leaf is None else values[leaf]
            found += [line] * (case.filters // case.groups)
        return np.stack(found, axis=1)


def _divisions(counts: np.ndarray, dtype: str) -> list[Callable[..., np.ndarray]]:
    """Ways of dividing by counts (positions,): at once, or by their rounded reciprocals."""
    inverse = floats.widen(floats.round_to(1 / counts, dtype), dtype)

    def by(array: np.ndarray, positions: np.ndarray, _: np.ndarray, what: np.ndarray) -> np.ndarray:
        each = what[positions].reshape(-1, *(1,) * (array.ndim - 1))
        return floats.round_to(floats.widen(array, dtype) * each, dtype)

    def divided(array: np.ndarray, positions: np.ndarray, _: np.ndarray) -> np.ndarray:
        each = counts[positions].reshape(-1, *(1,) * (array.ndim - 1))
        return floats.round_to(floats.widen(array, dtype) / each, dtype)

    return [divided, partial(by, what=inverse)]


def _functions(
    functions: Sequence[Function], dtype: str, added: Mapping[int, np.ndarray]
) -> Behind:
    """Functions one after the other: those that round nothing, and additions.

    ``added``: arrays (positions, filters) by the numbers of what is read.
    """
    steps = [numbers if word == "add" else _bounds(word, numbers) for word, numbers in functions]

    def apply(array: np.ndarray, positions: np.ndarray, filters: np.ndarray) -> np.ndarray:
        values = floats.widen(array, dtype)
        for (word, _), numbers in zip(functions, steps, strict=True):
            if word == "add":
                more = floats.widen(added[numbers[0]][positions, filters], dtype)
                values = floats.widen(floats.round_to(values + more, dtype), dtype)
            else:
                values = np.clip(values, *numbers)
        return floats.round_to(values, dtype)

    return Behind(apply)


def _bounds(word: str, numbers: tuple[Any, ...]) -> tuple[float | None, float | None]:
    """Between which numbers a function keeps what it is given. InputError: it does differently."""
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

    def start(self, switches: Any, device: str | None) -> dict[str, Any]:
        """Says nothing of itself: it runs in this process already."""
        return {}

    def operator(self, spec: dict[str, Any]) -> Operator:
        return _Pool(spec, self) if self.view.pooled else _Operation(spec, self)


class _Operation(Operator):
    """The operation; what it reads besides its operands stays as it was recorded."""

    def __init__(self, spec: dict[str, Any], owner: _Operations) -> None:
        super().__init__(spec)
        view, self.y, self.scale = owner.view, owner.view.y, owner.view.scale

        def call(x: np.ndarray, w: np.ndarray, b: np.ndarray | None) -> np.ndarray:
            budget.check()
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


class _Pool(_Operation):
    """A pool with weights: each window is put into the input as what its weights make of it.

    Windows overlap, so that outputs are computed in as many calls as there are sets of windows that
    don't; the rest of the input is 0 then.
    """

    def __init__(self, spec: dict[str, Any], owner: _Operations) -> None:
        super().__init__(spec, owner)
        pool, case = self.call, owner.view.case
        geometry = window.Geometry.of(case)
        reads, dtype = geometry.reads(), case.dtype
        sets = _disjoint(case)

        def call(x: np.ndarray, w: np.ndarray, b: None) -> np.ndarray:
            weights = floats.widen(w, dtype).reshape(-1, case.filters)
            if (weights == 1).all():
                return pool(self.view.x.put(x), w, b)
            flat = x.reshape(case.batch, -1, case.filters)
            found: np.ndarray | None = None
            for chosen in sets:
                rows = reads[chosen]
                inside = rows >= 0
                met = floats.widen(flat[:, rows], dtype) * weights
                given = np.zeros_like(flat)
                given[:, rows[inside]] = floats.round_to(met, dtype)[:, inside]
                y = pool(self.view.x.put(given), w, b)
                lines = self.y.taken(np.asarray(y)).reshape(case.batch, -1, case.filters)
                found = np.zeros_like(lines) if found is None else found
                found[:, chosen] = lines[:, chosen]
            assert found is not None
            return self.y.put(found)

        self.call = call

    def input(self, x: np.ndarray) -> np.ndarray:
        return np.array(x, order="C")


def _disjoint(case: Case) -> list[np.ndarray]:
    """Returns the output positions in sets whose windows have no element in common."""
    number = np.zeros(1, np.int64)
    for outputs, extent, stride in zip(
        case.output_spatial(), case.effective_kernel, case.stride, strict=True
    ):
        every = -(-extent // stride)
        number = (number[:, None] * every + np.arange(outputs) % every).reshape(-1)
    return [np.flatnonzero(number == one) for one in np.unique(number)]


def scaled(array: np.ndarray, scale: int, dtype: str) -> np.ndarray:
    """Returns a container array times a power of two: exact, but for what overflows."""
    if scale == 1:
        return array
    with np.errstate(over="ignore"):
        return floats.round_to(floats.widen(array, dtype) * scale, dtype)
