"""Differences of what is no sum of products, so that there is no order to be revealed.

A scaled and shifted activation is rounded twice, or once where both are fused. A function of one
element may be computed otherwise in the remainder of a vectorised loop.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from probe import ulp
from probe.network.geometry import Shared
from probe.network.layers import Layer
from probe.network.places import Places
from probe.network.running import Run, Runner
from probe.order.replay import replay
from probe.order.summation import Rounding, Summation
from probe.order.tree import Tree

MOST = 1024
"""Differences of one activation that are asked for."""


def differences(
    runner: Runner, number: int, x: np.ndarray, fixed: Run, behind: Shared
) -> tuple[int, int, dict[str, int]]:
    """Of a layer fed ``x``, against the fixed run: how many, how many reproduced, and the causes.

    ``behind``: what both share behind the layer. Causes: ``rounding``, ``place``, ``not-a-sum``.
    Errors: TargetError.
    """
    layer, dtype = runner.network.layers[number], runner.network.dtype
    y = runner.layer(number, x)
    mine, other = behind.pairs(y, fixed.activations[number + 1])
    apart = ulp.differences(mine, other, dtype).index
    replayed, cause = 0, ""
    if len(apart) and layer.op == "normalisation":
        ours, theirs = behind.pairs(x, fixed.activations[number])
        known = scaled(layer, ours, dtype, mine) & scaled(layer, theirs, dtype, other)
        replayed, cause = int(known[apart].sum()), "rounding"
    if len(apart) and layer.op == "activation":
        replayed, cause = placed(runner, number, x, y, fixed, behind, apart[:MOST]), "place"
    counts = {cause: replayed, "not-a-sum": len(apart) - replayed}
    return len(apart), replayed, {name: count for name, count in counts.items() if count}


def scaled(layer: Layer, x: np.ndarray, dtype: str, y: np.ndarray) -> np.ndarray:
    """Where y is x times the layer's scale plus its shift, rounded twice or, fused, once; flat."""
    assert layer.scale is not None and layer.shift is not None
    met = [np.broadcast_to(each, x.shape).reshape(1, -1) for each in (x, layer.scale, layer.shift)]
    apart = np.zeros((2, y.size), bool)
    for one, fused in zip(apart, (frozenset[int](), frozenset([0])), strict=True):
        summation = Summation(Tree.parse("0+b"), Rounding(fused))
        expected = replay(summation, met[0], met[1], dtype, met[2][0])
        one[ulp.differences(expected, y.reshape(-1), dtype).index] = True
    return np.asarray(~apart.all(axis=0))


def placed(
    runner: Runner,
    number: int,
    x: np.ndarray,
    y: np.ndarray,
    fixed: Run,
    behind: Shared,
    apart: np.ndarray,
) -> int:
    """Of an activation's differences, those that the input and its place decide."""
    layer, heights, dtype = runner.network.layers[number], x.shape[1:-2], runner.network.dtype
    places = Places(partial(runner.layer, number), layer, heights, dtype)
    inputs, outputs = fixed.activations[number : number + 2]
    indices = [np.arange(one.size).reshape(one.shape) for one in (y, outputs)]
    mine, theirs = (one.reshape(-1)[apart] for one in behind.pairs(indices[0], indices[1]))
    ours = places.reproduced(x, y, mine)
    return int((ours & places.reproduced(inputs, outputs, theirs)).sum())
