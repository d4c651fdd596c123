"""A network as users run it, as one program of the library: short runs against the fixed one.

What was found layer by layer is asked again of the whole: a compiler may fuse over the borders of
layers, and then adds otherwise than any layer does by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from probe import ulp
from probe.network.layerwise import Layerwise
from probe.network.plan import kept
from probe.network.running import Runner, content, padded
from probe.network.safe import SafeLengths

SEED = 5_000
"""Of the content whose length is 0; longer content has the seeds behind."""

Row = dict[str, Any]


def rows(
    lengths: SafeLengths, length: int, safe: int, layerwise: Layerwise | None = None
) -> Iterator[Row]:
    """Rows of ``programs`` for one content, without run, network and target.

    ``safe``: its safe padded length. With ``layerwise`` also its plan, and how the fixed run's bits
    compare with those layer by layer. None where the target has no program. Errors: TargetError.
    """
    geometry, network, runner = lengths.geometry, lengths.network, lengths.runner
    x = content(network, length, SEED + length)
    given = padded(x, geometry.fixed)
    fixed, _ = runner.whole(given)
    if fixed is None:
        return
    other = None
    if layerwise is not None:
        other = len(ulp.differences(fixed, runner.output(given), network.dtype).index)
    runs = {"least": geometry.least(length), "safe": safe}
    for variant, to in runs.items():
        output, _ = runner.whole(padded(x, to))
        if output is not None:
            need = geometry.need(length, to)
            mine, theirs = kept(need, output), fixed[..., need.first : need.kept, :]
            yield _row(network.dtype, length, variant, to, geometry.fixed, mine, theirs, other)
    if layerwise is not None:
        output, _ = Runner(lengths.session, layerwise.plan(length)).whole(x)
        if output is not None:
            theirs = fixed[..., : output.shape[-2], :]
            yield _row(
                *(network.dtype, length, "layerwise", length, geometry.fixed),
                *(output, theirs, other),
            )


def _row(
    dtype: str,
    length: int,
    variant: str,
    to: int,
    fixed: int,
    mine: np.ndarray,
    theirs: np.ndarray,
    other: int | None,
) -> Row:
    found = ulp.differences(np.ascontiguousarray(mine), np.ascontiguousarray(theirs), dtype)
    numbers = found.ulps[found.ulps != ulp.NAN]
    largest = int(np.abs(numbers).max()) if len(numbers) else None
    return {
        "content": length,
        "variant": variant,
        "padded": to,
        "fixed": fixed,
        "compared": mine.size,
        "differing": len(found.index),
        "max_ulp": largest if len(found.index) else 0,
        "other_than_layers": other,
    }
