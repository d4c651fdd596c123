"""A recorder of NumPy programs, written on a tape: every step is an operation with a meaning.

``Taped(program)``: ``program(tape)`` calls the tape's operations and returns its outputs. What
differs between two of them is planted: ``tape.dense(x, w, blocks=2)`` adds in another order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from probe.order.semantics import Contracts, Each, Meaning, Normalises, Turns
from probe.record.contract import INPUT, WEIGHT, Operation, Seen, Visit


class Tape:
    """Operations of one run; without ``visit`` nothing watches."""

    def __init__(self, visit: Visit | None) -> None:
        self.visit, self.kept, self.path = visit, [], ""
        self.roles: dict[int, tuple[str, str]] = {}

    def weight(self, array: np.ndarray, name: str = "") -> np.ndarray:
        self.roles[id(array)] = (WEIGHT, name)
        self.kept.append(array)
        return array

    def seen(self, array: np.ndarray) -> Seen:
        role, name = self.roles.get(id(array), (INPUT, ""))
        return Seen(id(array), array.shape, str(array.dtype), lambda: array, role, name)

    def ran(
        self,
        op: str,
        meaning: Meaning,
        call: Callable[..., Any],
        *reads: np.ndarray,
        attributes: dict[str, Any] | None = None,
        lines: Callable[[Sequence[str], str], list[str]] | None = None,
    ) -> Any:
        found = call(*reads)
        every = found if isinstance(found, tuple) else (found,)
        self.kept += [*reads, *every]
        if self.visit is not None:

            def again(arrays: Any) -> list[np.ndarray]:
                given = call(*arrays)
                return list(given) if isinstance(given, tuple) else [given]

            ins, outs = [self.seen(one) for one in reads], [self.seen(one) for one in every]
            self.visit(Operation(op, self.path, ins, outs, meaning, attributes or {}, again, lines))
        return found

    def dense(self, x: np.ndarray, w: np.ndarray, blocks: int = 1) -> np.ndarray:
        """x @ w, added in so many blocks, one after the other."""

        def call(a: np.ndarray, b: np.ndarray) -> np.ndarray:
            parts = np.array_split(np.arange(b.shape[0]), blocks)
            found = np.zeros((*a.shape[:-1], b.shape[1]), a.dtype)
            for part in parts:
                inner = np.zeros_like(found)
                for k in part:
                    inner = inner + a[..., k, None] * b[k]
                found = found + inner
            return found

        return self.ran("Dense", Contracts("...k,kn->...n"), call, x, w)

    def relu(self, x: np.ndarray) -> np.ndarray:
        lines = lambda names, out: [f"{out} = np.maximum({names[0]}, 0)"]  # noqa: E731
        return self.ran("Relu", Each("relu"), lambda a: np.maximum(a, 0), x, lines=lines)

    def add(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return self.ran("Add", Each("add"), lambda a, b: a + b, x, y)

    def noise(self, x: np.ndarray) -> np.ndarray:
        call = lambda a: a + np.random.default_rng().normal(size=a.shape).astype(a.dtype)  # noqa: E731
        return self.ran("Dropout", Each("dropout"), call, x)

    def turn(self, x: np.ndarray, *axes: int) -> np.ndarray:
        return self.ran("Transpose", Turns(axes), lambda a: a.transpose(axes), x)

    def softmax(self, x: np.ndarray) -> np.ndarray:
        def call(a: np.ndarray) -> np.ndarray:
            with np.errstate(under="ignore"):
                e = np.exp(a - a.max(-1, keepdims=True))
                return e / e.sum(-1, keepdims=True, dtype=a.dtype)

        return self.ran("Softmax", Normalises((-1,), "softmax"), call, x)


class Taped:
    """A recorder of ``program(tape)``."""

    target = "reference"
    note = ""

    def __init__(self, program: Callable[[Tape], Any]) -> None:
        self.program = program

    def plain(self) -> list[np.ndarray]:
        return self._outputs(self.program(Tape(None)))

    def record(self, visit: Visit) -> list[Seen]:
        tape = Tape(visit)
        return [tape.seen(one) for one in self._outputs(self.program(tape))]

    @staticmethod
    def _outputs(found: Any) -> list[np.ndarray]:
        return list(found) if isinstance(found, tuple | list) else [found]


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    """Seeded float32 numbers."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def network(x: np.ndarray, blocks: int = 1, seed: int = 1) -> Taped:
    """Two dense layers with a residual between; the first adds in so many blocks."""
    w, v = normal(x.shape[-1], 24, seed=seed), normal(24, x.shape[-1], seed=seed + 1)

    def program(tape: Tape) -> np.ndarray:
        a, b = tape.weight(w, "w"), tape.weight(v, "v")
        tape.path = "block.first"
        y = tape.relu(tape.dense(x, a, blocks))
        tape.path = "block.second"
        y = tape.add(tape.dense(y, b), x)
        tape.path = "head"
        return tape.softmax(y)

    return Taped(program)


def sought(of: Callable[[int], Any], differs: Callable[[Any], bool]) -> Any:
    """The first ``of(blocks)`` whose order of additions rounds otherwise on this machine: which two
    round differently is not promised."""
    for blocks in range(2, 9):
        if differs(found := of(blocks)):
            return found
    raise AssertionError("no order of 8 rounds otherwise")


def apart(x: np.ndarray) -> tuple[Taped, Taped]:
    """Two runs of ``network`` of which the first layer adds in different orders, to different
    bits."""
    left = network(x)
    bits = left.plain()[0].tobytes()
    return left, sought(lambda n: network(x, n), lambda one: one.plain()[0].tobytes() != bits)
