"""Rows of the store for what was revealed: which outputs, their trees, their roundings."""

from __future__ import annotations

from typing import Any

import numpy as np

from probe.order import ways
from probe.order.orders import Orders, Way

Row = dict[str, Any]


def reveal_rows(
    orders: Orders,
    place: Row,
    wanted: np.ndarray | None = None,
    replayed: np.ndarray | None = None,
) -> list[Row]:
    """Rows of ``reveals`` for a call's outputs, one a way; ``place``: columns that name the call.

    Of shape (positions, filters), bool: ``wanted``, the outputs to tell of; None: all that add
    anything. ``replayed``, those that count as reproduced; None: on the check operands.
    """
    sums = (orders.index >= 0) | ~orders.replayed  # the others read nothing but padding
    wanted = sums if wanted is None else wanted
    replayed = orders.replayed if replayed is None else replayed
    cost: Row = {"calls": orders.calls, "checks": orders.checks, "seconds": orders.seconds}
    found = []
    for number, (tree, rounding) in enumerate(orders.ways):
        mine = wanted & (orders.index == number)
        if mine.any():
            names: Row = {"order_id": tree.id, "rounding_id": ways.rounding_id(rounding)}
            found.append(place | names | cost | _counts(mine, replayed) | {"evidence": None})
    rest = wanted & (orders.index < 0)
    if rest.any():
        nothing = {"order_id": None, "rounding_id": None, "evidence": orders.evidence}
        found.append(place | nothing | cost | _counts(rest, np.zeros_like(rest)))
    return found


def _counts(mine: np.ndarray, replayed: np.ndarray) -> Row:
    counts = {"outputs": int(mine.sum()), "replayed": int((mine & replayed).sum())}
    return counts | {"ranges": ranges(mine)}


def ranges(mask: np.ndarray) -> list[int]:
    """Where a mask is True as start, stop, start, stop, ... of its flat indices."""
    flat = mask.reshape(-1).astype(np.int8)
    edges: list[int] = np.flatnonzero(np.diff(flat, prepend=0, append=0)).tolist()
    return edges


def order_row(way: Way) -> Row:
    """The row of ``orders`` for a tree."""
    tree = way[0]
    return {
        "order_id": tree.id,
        "tree": tree.text,
        "leaves": len(tree.leaves),
        "depth": tree.depth,
        "children_max": max(map(len, tree.nodes), default=0),
    }


def rounding_row(way: Way) -> Row:
    """The row of ``roundings``; its style is told over the tree that it was found with."""
    tree, rounding = way
    fused = np.zeros(max([leaf for leaf in tree.leaves if leaf < ways.BIAS], default=0) + 1, bool)
    fused[list(rounding.fused)] = True
    return {
        "rounding_id": ways.rounding_id(rounding),
        "style": rounding.style(tree),
        "fused": ranges(fused),
        "products": rounding.products,
        "accumulator": rounding.nodes,
        "json": ways.rounding_json(rounding),
    }
