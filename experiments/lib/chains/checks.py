"""Counts what differs at a padded length."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lib.chains.geometry import Requirement
from lib.chains.running import content, padded
from lib.chains.safe import SafeLengths
from probe import ulp


def differing(
    lengths: SafeLengths,
    length: int,
    to: int,
    seed: int,
    value: float = 0.0,
    run: Callable[[np.ndarray], np.ndarray] | None = None,
) -> int:
    """Counts outputs that read content and differ between a run padded to ``to`` and the full one.

    ``run``: a method of a ``Runner``; layer by layer unless it is given.
    """
    geometry, network, run = lengths.geometry, lengths.network, run or lengths.runner.output
    need = geometry.requirement(length, to)
    x = content(network, length, seed)
    short, whole = run(padded(x, to, value)), run(padded(x, geometry.fixed, value))
    mine, theirs = kept(need, short), whole[..., need.first : need.kept, :]
    shared = mine.shape[-2]
    apart = ulp.apart(mine, theirs[..., :shared, :], network.dtype)
    return int(apart.sum()) + theirs[..., shared:, :].size


def kept(need: Requirement, output: np.ndarray) -> np.ndarray:
    """Returns the outputs of a short run that are kept."""
    return output[..., need.first + need.offset : need.kept + need.offset, :]
