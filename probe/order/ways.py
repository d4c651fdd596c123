"""What sets two ways of adding apart: order, rounding, precision, or several of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable

from probe.order.replay import Rounding
from probe.order.tree import BIAS, Tree

Way = tuple[Tree, Rounding]

__all__ = [
    "BIAS",
    "Way",
    "causes",
    "fused_text",
    "restricted",
    "rounding_from_json",
    "rounding_id",
    "rounding_json",
]


def restricted(way: Way, read: Iterable[int]) -> Way:
    """The way over the leaves that a window reads; elsewhere it adds zeros, to no effect."""
    tree, rounding = way
    read = set(read)
    if read.issuperset(tree.leaves):
        return way
    return tree.restricted(read), Rounding(
        fused=frozenset(read & rounding.fused),
        products=rounding.products,
        nodes=rounding.nodes,
        narrow=rounding.narrow
        and frozenset({-1}),  # node numbers have changed: only that it is cut
        product_format=rounding.product_format,
    )


def causes(left: Way, right: Way) -> tuple[str, ...]:
    """Which of ``order``, ``rounding`` and ``precision`` differ between two ways; () if none.

    Two ways that both fuse wherever they can, or both nowhere, round alike, whatever their trees:
    the tree then decides which leaves are fused.
    """
    (tree_left, one), (tree_right, other) = left, right
    found = []
    if tree_left != tree_right:
        found.append("order")
    styles = one.style(tree_left), other.style(tree_right)
    comparable = styles[0] == "some" or tree_left == tree_right
    if styles[0] != styles[1] or (comparable and one.fused != other.fused):
        found.append("rounding")
    narrow_differs = one.narrow != other.narrow and (
        not found or bool(one.narrow) != bool(other.narrow)
    )
    formats = [(r.products, r.nodes, r.product_format) for r in (one, other)]
    if formats[0] != formats[1] or narrow_differs:
        found.append("precision")
    return tuple(found)


def rounding_json(rounding: Rounding) -> dict[str, object]:
    """Everything that a replay needs beside the tree, as plain JSON."""
    return {
        "fused": sorted(rounding.fused),
        "products": rounding.products,
        "nodes": rounding.nodes,
        "narrow": sorted(rounding.narrow),
        "product_format": rounding.product_format,
    }


def rounding_from_json(given: dict[str, object]) -> Rounding:
    """The inverse of ``rounding_json``."""
    plain = dict(given)
    for name in ("fused", "narrow"):
        plain[name] = frozenset(plain[name])  # type: ignore[call-overload]
    return Rounding(**plain)  # type: ignore[arg-type]


def rounding_id(rounding: Rounding) -> str:
    """12 hexadecimal digits that name a rounding."""
    text = json.dumps(rounding_json(rounding), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def fused_text(way: Way) -> str:
    """``none``, ``all`` (every addition of a product is fused) or the fused leaves, ``1 2 5``."""
    tree, rounding = way
    style = rounding.style(tree)
    return style if style != "some" else " ".join(map(str, sorted(rounding.fused)))
