"""Why two sides differ, as a report tells it: both trees with their values, and the kernels."""

from __future__ import annotations

from collections.abc import Sequence

from probe import floats
from probe.comparison import Comparison
from probe.explain.evidence import Added, Evidence
from probe.order.tree import BIAS, product
from probe.reproduction.content import Reproduction

MOST_SUMS = 24
"""Partial sums of an output that are written out."""

MOST_PRODUCTS = 12
"""Products of an output that are written out."""


def cause(made: Reproduction) -> str:
    """Returns both sides' orders, and one output in full."""
    return told(made.explanation, made.evidence, not made.not_emulated)


def told(found: Comparison, evidence: Evidence | None, drawn: bool) -> str:
    """The same of any comparison. ``drawn``: there is a picture of both orders."""
    causes = ", ".join(found.causes)
    if evidence is None:
        return f"{causes}."
    proof = f"Replayed in NumPy, bit for bit: {found.replayed} of {found.compared} outputs."
    if "window" in found.causes:
        reads = [
            f"{name} reads x at {_places(side)}"
            for name, side in (("left", evidence.left), ("right", evidence.right))
        ]
        return f"The windows differ: {reads[0]}; {reads[1]} (flat indices, `-` is padding)."
    if evidence.cause == "reach":
        return f"{_reach(evidence)} {proof}"
    if evidence.left.summation is None or evidence.right.summation is None:
        return _no_order(found) or f"{causes}: no order is known."
    words = {
        "order": "the products are added in a different order",
        "rounding": evidence.left.summation.rounded_apart(evidence.right.summation)
        or "products are rounded at different points",
        "precision": "products or sums are kept in a different precision",
        "flush": "one side flushes subnormal numbers to zero that the other keeps",
    }
    why = " and ".join(words.get(word, word) for word in evidence.cause.split("+"))
    sides = [
        f"{name}:\n\n```\n{_products(side)}{_sums(side)}\n```"
        for name, side in (("left", evidence.left), ("right", evidence.right))
    ]
    shown = " `order.png` shows both." * drawn
    left_out = len(evidence.left.products) - len(evidence.left.summation.tree.leaves)
    zeros = " Products that are 0 are left out below: they add nothing." if left_out > 0 else ""
    head = f"{why[0].upper()}{why[1:]}. {proof}{shown}{zeros}"
    return "\n\n".join([head, *sides])


def _reach(evidence: Evidence) -> str:
    """Returns what gets into an output without a weight."""
    left, right = evidence.left, evidence.right
    name, side = ("left", left) if left.reached else ("right", right)
    place = f"out[{', '.join(map(str, side.output))}]"
    alone = side.sums[-1].text.rpartition(" = ")[2] if side.sums else "a number"
    return (
        f"On the {name} {place} adds {side.reached} to the products of its own window: that is "
        "read too, and multiplied by 0. With finite operands it is invisible; 0 * NaN and 0 * inf "
        f"are NaN. Its own products add up to {alone}."
    )


def _no_order(found: Comparison) -> str:
    """Returns what was seen of the sides that are no sums of products."""
    told = [
        f"on the {name}, {side.evidence}"
        for name, side in (("left", found.left), ("right", found.right))
        if side.evidence
    ]
    if not told:
        return ""
    if found.left.case.op.partition("_pool")[1]:
        return (
            "The averages are added in different orders or with different roundings. The orders "
            f"are not revealed, because {found.left.case.op} has no weights."
        )
    return (
        "No order of additions gives these outputs: as with algorithms that do not form the "
        f"products, such as Winograd's or an FFT. Seen {'; '.join(told)}."
    )


def kernels(made: Reproduction) -> str:
    """Returns what the libraries say that they ran, of sources that know it of a side at least."""
    told = made.explanation.kernels
    sources = list(dict.fromkeys(source for side in told.values() for source in side))
    rows = []
    for source in sources:
        cells = [side.get(source, []) for side in told.values()]
        if any(_known(names) for names in cells):
            shown = ["<br>".join(f"`{name}`" for name in _known(names)) for names in cells]
            rows.append(f"| {source} | {' | '.join(cell or 'not told' for cell in shown)} |")
    if not rows:
        return ""
    head = "What the libraries themselves name as each side runs: evidence beside the cause."
    return "\n".join([head, "", "| asked by | left | right |", "| --- | --- | --- |", *rows])


def _known(names: Sequence[str]) -> list[str]:
    """Returns the names, without what stands in brackets: why there are none."""
    return [name for name in names if not name.startswith("(")]


def _places(side: Added) -> str:
    return " ".join("-" if at < 0 else str(at) for at in side.reads or ()) or "nothing"


def _sums(side: Added) -> str:
    """Returns the tree and its partial sums, as text."""
    assert side.summation is not None
    tree, rounding = side.summation
    lines = [f"y = {tree.formula}" if len(tree.formula) <= 200 else f"{len(tree.leaves)} summands"]
    fused = sorted(set(rounding.fused) & set(tree.leaves))
    if fused:
        whole = len(fused) >= len([leaf for leaf in tree.leaves if leaf != BIAS])
        many = len(fused) > MOST_SUMS
        some = f"{len(fused)} products" if many else ", ".join(map(product, fused))
        lines.append(f"fused: {'all' if whole else some}")
    if formats := side.summation.formats(side.dtype):
        lines.append(", ".join(formats))
    if not side.sums:
        lines.append(f"= {floats.text(side.library, side.dtype)}")
    left_out = max(len(side.sums) - MOST_SUMS, 0)
    if left_out:
        lines.append(f"... {left_out} sums")
    mark = "  <- not on the other side"
    lines += [one.text + mark * (one.node in side.own) for one in side.sums[left_out:]]
    return "\n".join(lines)


def _products(side: Added) -> str:
    """Returns the products of a small sum, each with what it multiplies."""
    assert side.summation is not None
    known = {one.leaf: one for one in side.products}
    shown = [known[leaf] for leaf in side.summation.tree.leaves if leaf in known]
    if len(shown) > MOST_PRODUCTS:
        return ""
    lines = [
        f"{product(one.leaf)} = {_plain(one.x, side.dtype)} * {_plain(one.w, side.dtype)}"
        for one in shown
    ]
    if BIAS in side.summation.tree.leaves and side.bias is not None:
        lines.append(f"b = {_plain(side.bias, side.dtype)}")
    return "".join(f"{line}\n" for line in lines)


def _plain(bits: int, dtype: str) -> str:
    return floats.text(bits, dtype).partition(" ")[0]
