"""A recorder whose operations are NumPy functions: differences are planted in them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from probe.case import layout
from probe.diff.running import by_running
from probe.diff.walk import walk
from probe.order.semantics import Meaning
from probe.record.contract import INPUT, WEIGHT, AlignedCall, Operation, Seen, Visit
from probe.ui.answers.first_difference import ComparisonQuestion, Walked

Function = Callable[..., Any]


@dataclass
class Step:
    """One operation. ``reads``: names of inputs or numbers of steps; ``text``: lines, or none."""

    op: str
    meaning: Meaning
    function: Function
    reads: Sequence[str | int]
    text: str = ""
    again: Function | None = None


class Doubles:
    """Runs its steps on its inputs, one after the other; the last step's output is the run's.

    ``weights``: names of those that belong to the model.
    """

    target, note = "numpy", ""

    def __init__(
        self, inputs: dict[str, np.ndarray], steps: Sequence[Step], weights: Collection[str] = ()
    ) -> None:
        self.inputs, self.steps, self.weights = inputs, steps, weights

    def plain(self) -> list[np.ndarray]:
        """The last output."""
        return [seen.array() for seen in self.record(lambda event: None)]

    def record(self, visit: Visit) -> list[Seen]:
        """Runs all steps."""
        values: dict[str | int, Seen] = {
            name: seen(name, array, WEIGHT if name in self.weights else INPUT, name)
            for name, array in self.inputs.items()
        }
        for number, step in enumerate(self.steps):
            reads = [values[one] for one in step.reads]
            y = np.asarray(step.function(*(one.array() for one in reads)))
            values[number] = seen(number, y)
            visit(
                Operation(
                    step.op,
                    f"layers.{number}",
                    reads,
                    [values[number]],
                    step.meaning,
                    {},
                    AlignedCall(again(step.again or step.function), [one.address for one in reads]),
                    lines(step.text) if step.text else None,
                )
            )
        return [values[len(self.steps) - 1]]


def seen(key: Any, array: np.ndarray, role: str = INPUT, name: str = "") -> Seen:
    """A value of a double."""
    return Seen(
        *(key, array.shape, array.dtype.name, lambda: array, role, name),
        address=layout.bytes_behind_boundary(array),
    )


def again(function: Function) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]]:
    """What runs a step alone."""
    return lambda arrays: [np.asarray(function(*arrays))]


def lines(text: str) -> Callable[[Sequence[str], str], list[str]]:
    """A text with {0}, {1}, ... for what is read and {y} for the result, as lines."""
    return lambda names, result: text.format(*names, y=result).splitlines()


def added(products: np.ndarray, order: Sequence[int]) -> np.ndarray:
    """float32 products (..., k, n) added along k one by one in this order: (..., n)."""
    total = products[..., order[0], :]
    for number in order[1:]:
        total = total + products[..., number, :]
    return total


def either_way(products: np.ndarray, up: bool) -> np.ndarray:
    """Products added one by one, from the first one up or from the last one down."""
    order = range(products.shape[-2])
    return added(products, order if up else order[::-1])


def product(x: np.ndarray, w: np.ndarray, b: np.ndarray | None = None) -> np.ndarray:
    """Rows times weights: one row is added upwards, several downwards."""
    y = either_way(x[..., :, None] * w[..., None, :, :], x.shape[0] == 1)
    return y if b is None else y + b


def walked(left: Doubles, right: Doubles) -> Walked:
    """The comparison of two doubles, one of them given a piece of the other's inputs."""
    again = [lambda arrays, side=side: Doubles(dict(arrays), side.steps) for side in (left, right)]
    match = by_running((again[0], again[1]), (left.inputs, right.inputs))
    return Walked(walk(left, right, match=match), ComparisonQuestion())
