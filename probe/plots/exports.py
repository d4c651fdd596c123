"""Writes summation trees for other programs: nested JSON, Graphviz, and HTML that folds.

A tree may be a chain of thousands of additions, and nested JSON that deep can't be read: parsers,
Python's too, give up at some hundred levels. So what is added to one running sum, one after the
other, is a list. The longest running sum of a tree is written first and everything that joins it
stands within, so that n products nest at most log2 n deep (as in heavy paths: Sleator and Tarjan,
"A data structure for dynamic trees", 1983).
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import Any, TypeAlias

from probe.summation.summation import Summation
from probe.summation.tree import BIAS, Tree, leaf_name

Nested: TypeAlias = "int | str | dict[str, Any]"

# Additions of one running sum that HTML shows unfolded; more of them fold, so many in a part.
AT_ONCE = 32


def nested(tree: Tree) -> Nested:
    """Returns the tree as plain Python: a product's number, ``"b"`` for the bias, or a running sum
    ``{"products": n, "adds": [...]}``.

    Each entry of ``adds`` lists what is added at once, rounded once: the first one what the sum
    starts from, each of the others what joins it. ``{"products": 4, "adds": [[0, 1], [2], [3]]}``
    is ``((0+1)+2)+3``.
    """
    found: list[dict[str, Any]] = []  # of every node; a running sum goes on in its own list
    for children in tree.nodes:
        inner = [found[~child] for child in children if child < 0]
        start: dict[str, Any] = {"products": 0, "adds": []}
        # the heavy path: the longest running sum goes on, and the others stand within it
        total = max(inner, key=lambda one: one["products"], default=start)
        others: list[Nested] = [
            _leaf_in_json(child) if child >= 0 else found[~child]
            for child in children
            if child >= 0 or found[~child] is not total
        ]
        size = total["products"] + sum(
            one["products"] if isinstance(one, dict) else 1 for one in others
        )
        total["adds"].append(others)
        total["products"] = size
        found.append(total)
    return found[-1] if found else _leaf_in_json(tree.leaves[0])


def _leaf_in_json(leaf: int) -> int | str:
    return "b" if leaf == BIAS else leaf


def nested_json(summation: Summation, dtype: str) -> dict[str, Any]:
    """Returns a summation with its tree nested: what ``Summation.to_json`` says, and ``nested``."""
    return summation.to_json(dtype) | {"nested": nested(summation.tree)}


def dot(summation: Summation) -> str:
    """Returns the tree for Graphviz (``dot -Tpdf``): boxes are products, circles additions.

    A dashed edge is a product that enters its addition exactly (FMA).
    """
    tree, fused = summation.tree, summation.rounding.fused
    lines = ["digraph sum {", "  rankdir=BT;", "  node [fontname=Helvetica];"]
    lines += [f'  "{leaf_name(leaf)}" [shape=box];' for leaf in tree.leaves]
    for node, children in enumerate(tree.nodes):
        root = node == len(tree.nodes) - 1
        lines.append(f'  s{node} [label="{"y" if root else "+"}", shape=circle];')
        for child in children:
            name = f"s{~child}" if child < 0 else f'"{leaf_name(child)}"'
            style = " [style=dashed, label=fma]" if child in fused else ""
            lines.append(f"  {name} -> s{node}{style};")
    return "\n".join([*lines, "}", ""])


STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2em;max-width:60em}"
    "details{margin-left:1.2em}summary{cursor:pointer}code{background:#f1f3f5;padding:0 .2em}"
)


def html(summation: Summation, title: str) -> str:
    """Returns a page of its own, without scripts: every running sum folds."""
    fused = summation.rounding.fused
    head = f"<!doctype html><meta charset=utf-8><title>{escape(title)}</title>"
    told = "the sum of a line and of those above it in the same sum is rounded once a line"
    note = f"<p>p0, p1, ...: products; b: the bias; {told}; <code>fma</code>: the product "
    note += "enters exactly.</p>"
    body = "".join(_folded_html(nested(summation.tree), fused, "y", open_=True))
    return f"{head}<style>{STYLE}</style><h1>{escape(title)}</h1>{note}{body}\n"


def _folded_html(
    one: Nested, fused: frozenset[int], name: str, open_: bool = False
) -> Iterator[str]:
    """Yields a product or a running sum as HTML."""
    if not isinstance(one, dict):
        yield f"<div><code>{_product_in_html(one, fused)}</code></div>"
        return
    adds = one["adds"]
    text = f"{name}: {one['products']:,} summands, {len(adds):,} steps"
    yield f"<details{' open' * open_}><summary>{text}</summary>"
    parts = range(0, len(adds), AT_ONCE)
    for start in parts:
        last = min(start + AT_ONCE, len(adds))
        if len(parts) > 1:
            yield f"<details{' open' * (start == 0)}><summary>steps {start + 1} to {last}</summary>"
        for step in adds[start:last]:
            yield "<div>+ " if step is not adds[0] else "<div>"
            plain = [_product_in_html(each, fused) for each in step if not isinstance(each, dict)]
            yield " + ".join(f"<code>{each}</code>" for each in plain)
            for each in step:
                if isinstance(each, dict):
                    yield from _folded_html(each, fused, "a sum")
            yield "</div>"
        if len(parts) > 1:
            yield "</details>"
    yield "</details>"


def _product_in_html(leaf: int | str, fused: frozenset[int]) -> str:
    return "b" if leaf == "b" else f"p{leaf}{' fma' if leaf in fused else ''}"
