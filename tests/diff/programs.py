"""Chains of NumPy functions of which nothing is known but what they do, run on two inputs."""

from collections.abc import Callable, Mapping

import numpy as np

from probe.diff.difference import Difference
from probe.diff.running import by_running
from probe.diff.walk import walk
from probe.order.semantics import Unknown
from tests.record.doubles import Doubles, Step

Program = Callable[[Mapping[str, np.ndarray]], Doubles]


def program(*functions: Callable[..., np.ndarray]) -> Program:
    """A chain whose operations have no description: nothing is known of them but what they do."""
    reads = ["x", *range(len(functions) - 1)]
    steps = [Step(f.__name__, Unknown(), f, [reads[n]]) for n, f in enumerate(functions)]
    return lambda arrays: Doubles(dict(arrays), steps)


def compared(left: np.ndarray, right: np.ndarray, *programs: Program) -> Difference:
    ours, theirs = programs[0], programs[-1]
    inputs = {"x": left}, {"x": right}
    match = by_running((ours, theirs), inputs)
    return walk(ours(inputs[0]), theirs(inputs[1]), explain=False, match=match)


def tanh(x: np.ndarray) -> np.ndarray:
    return np.tanh(x)


def sources(difference: Difference) -> list[tuple[str, int, int]]:
    return [(r.op, r.differing, r.compared) for r in difference.sources]
