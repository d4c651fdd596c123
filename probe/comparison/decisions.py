"""What a difference does: whether a decision crosses, and how far an output is from the truth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from probe import floats

TOP = 5


@dataclass(frozen=True)
class Decision:
    """One kind of decision over some outputs; columns of the table ``decisions``.

    ``taken``: how many were; ``crossed``: that the two runs take differently. ``margin``: how near
    the nearest of the full run's is to being taken differently, in eps times the largest output.
    """

    decision: str
    taken: int
    crossed: int
    margin: float


def error(output: np.ndarray, truth: np.ndarray, dtype: str) -> float:
    """Returns the largest |output - truth| in eps (of ``dtype``) times the largest |truth|."""
    exact = truth.astype(np.float64)
    largest = np.abs(exact).max(initial=0.0)
    apart = np.abs(floats.widen(output, dtype) - exact).max(initial=0.0)
    return float(apart / (floats.eps(dtype) * largest)) if largest else float(apart > 0)


def decisions(output: np.ndarray, fixed: np.ndarray, dtype: str) -> Iterator[Decision]:
    """Yields every kind of decision over outputs (..., channels) of two runs.

    ``argmax`` and ``top-5`` of the channels of a position, where there are enough, and
    ``threshold``: whether each output is above zero.
    """
    ours, theirs = (floats.widen(outputs, dtype) for outputs in (output, fixed))
    unit = floats.eps(dtype) * max(np.abs(theirs).max(initial=0.0), 1e-300)
    for count, name in ((1, "argmax"), (TOP, f"top-{TOP}")):
        if ours.shape[-1] <= count:
            continue
        crossed = int((~same_decisions(ours, theirs, "float64", name, count)).sum())
        ranked = -np.sort(-theirs, axis=-1)
        margin = float((ranked[..., count - 1] - ranked[..., count]).min(initial=np.inf) / unit)
        yield Decision(name, int(np.prod(theirs.shape[:-1])), crossed, margin)
    crossed = int((~same_decisions(ours, theirs, "float64", "threshold")).sum())
    margin = float(np.abs(theirs).min(initial=np.inf) / unit)
    yield Decision("threshold", theirs.size, crossed, margin)


def same_decisions(
    left: np.ndarray, right: np.ndarray, dtype: str, decision: str, count: int = 1
) -> np.ndarray:
    """Returns which decisions both sides' rows (container) take alike. ``threshold``: whether each
    element is above zero; else which ``count`` channels are the largest."""
    both = [floats.widen(values, dtype) for values in (left, right)]
    if decision == "threshold":
        return np.asarray((both[0] > 0) == (both[1] > 0))
    # which channels are the largest, as a set
    largest = np.argsort(-np.stack(both), axis=-1, kind="stable")[..., :count]
    first, second = np.sort(largest, axis=-1)
    return np.asarray((first == second).all(axis=-1))
