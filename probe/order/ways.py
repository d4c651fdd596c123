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
    "rounded_apart",
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
    kept = tree.restricted(read)
    return kept, Rounding(
        fused=_still_fused(tree, rounding.fused, read),
        products=rounding.products,
        nodes=rounding.nodes,
        narrow=rounding.narrow
        and frozenset({-1}),  # node numbers have changed: only that it is cut
        product_format=rounding.product_format,
        cut=_still_cut(way, kept),
        through=rounding.through,
    )


def _still_cut(way: Way, kept: Tree) -> frozenset[int]:
    """The root, if the result is cut; -1 for a sum before it, whose number may have changed."""
    kind = _cut(way)
    return frozenset([len(kept.nodes) - 1 if kind == "result" else -1] if kind else [])


def _still_fused(tree: Tree, fused: frozenset[int], read: set[int]) -> frozenset[int]:
    """Fused leaves that are read and still have something to be added to: alone they are rounded.

    What is left alone is a product that was fused with a sum of zeros.
    """
    found, there = set(), set(read)
    for node, children in enumerate(tree.nodes):
        left = [child for child in children if child in there]
        if left:
            there.add(~node)
        if len(left) > 1:
            found |= {child for child in left if child in fused}
    return frozenset(found)


def causes(left: Way, right: Way) -> tuple[str, ...]:
    """Which of ``order``, ``rounding`` and ``precision`` differ between two ways; () if none.

    Two ways that both fuse wherever they can, or both nowhere, round alike, whatever their trees:
    the tree then decides which leaves are fused.
    """
    (tree_left, one), (tree_right, other) = left, right
    found = []
    if tree_left != tree_right:
        found.append("order")
    if rounded_apart(left, right):
        found.append("rounding")
    added = bool(tree_left.nodes or tree_right.nodes)  # else there is one product, rounded once
    narrow_differs = (
        added
        and one.narrow != other.narrow
        and (not found or bool(one.narrow) != bool(other.narrow))
    )
    formats = [
        (r.products, *((r.nodes, r.product_format, r.through) if added else ()))
        for r in (one, other)
    ]
    if formats[0] != formats[1] or narrow_differs:
        found.append("precision")
    return tuple(found)


def rounded_apart(left: Way, right: Way) -> str:
    """What sets the ``rounding`` of two ways apart, in words; empty if nothing does."""
    (tree_left, one), (tree_right, other) = left, right
    styles = one.style(tree_left), other.style(tree_right)
    comparable = styles[0] == "some" or tree_left == tree_right
    words = []
    if styles[0] != styles[1] or (comparable and one.fused != other.fused):
        words.append("other products are fused with their addition")
    if _cut(left) != _cut(right):
        words.append("one side cuts off what the other rounds to nearest")
    return ", and ".join(words)


def _cut(way: Way) -> str:
    """What is cut off, not rounded to nearest: nothing, the result, or a sum before it."""
    tree, rounding = way
    return "result" if len(tree.nodes) - 1 in rounding.cut else "sum" if rounding.cut else ""


def rounding_json(rounding: Rounding) -> dict[str, object]:
    """Everything that a replay needs beside the tree, as plain JSON; rare things if there."""
    told: dict[str, object] = {
        "fused": sorted(rounding.fused),
        "products": rounding.products,
        "nodes": rounding.nodes,
        "narrow": sorted(rounding.narrow),
        "product_format": rounding.product_format,
    }
    rare = {"cut": sorted(rounding.cut), "through": rounding.through}
    return told | {name: value for name, value in rare.items() if value}


def rounding_from_json(given: dict[str, object]) -> Rounding:
    """The inverse of ``rounding_json``."""
    plain = dict(given)
    for name in ("fused", "narrow", "cut"):
        plain[name] = frozenset(plain.get(name, ()))  # type: ignore[call-overload]
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
