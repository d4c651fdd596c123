"""``emulated.py`` of a few products: both sides' sums as a few lines of NumPy, read from the top.

Products and fused additions are exact fractions, each rounded once where the library rounds. Wider
accumulators, cut results and large sums need the general evaluator: see ``emulate``.
"""

from __future__ import annotations

from probe import floats
from probe.comparison import Comparison
from probe.explain.evidence import Added, Evidence, example
from probe.order.summation import Rounding
from probe.order.tree import BIAS, product
from probe.reproduction.plainer import without_zeros

PRODUCTS = 8
"""Products of an output up to which its sum is written out."""

OUTPUTS = 4
"""Pairs of outputs that are."""

HEAD = '''"""What reproduce.py computes, added up in the same order and rounded at the same places.

Needs NumPy alone. p0, p1, ... are exact products, s0, s1, ... the partial sums. Exit status: 0 if
the sums have the bits that the library gave, else 1.
"""

import sys
from fractions import Fraction as exact

import numpy as np


def number(text):
    """A {dtype} as an exact fraction."""
    return exact(float(np.{dtype}(text)))


def once(value):
    """An exact value rounded once, to the nearest {dtype}, ties to even."""
    near = np.{dtype}(float(value))
    around = [np.nextafter(near, np.{dtype}(end)) for end in (-np.inf, np.inf)] + [near]
    best = min(around, key=lambda y: (abs(exact(float(y)) - value), int(y.view("u{size}")) & 1))
    return exact(float(best))


def show(name, total, bits):
    """Prints a sum with its bits; whether those are the library's."""
    found = np.{dtype}(float(total))
    print("{{}} = {{}} (0x{{:0{width}x}})".format(name, str(found), int(found.view("u{size}"))))
    return int(found.view("u{size}")) == bits


good = []
'''


def text(found: Comparison) -> str:
    """The program; empty where it would not be a few lines."""
    count = len(found.differing)
    if not 0 < count <= OUTPUTS or found.case.dtype not in ("float32", "float64"):
        return ""
    shown = [example(found, number) for number in range(count)]
    pairs = [without_zeros(one, PRODUCTS // 2) for one in shown if one is not None]
    if not all(_plain(side) for one in pairs for side in (one.left, one.right)):
        return ""
    size = floats.format_of(found.case.dtype).bits // 8
    head = HEAD.format(dtype=found.case.dtype, size=size, width=2 * size)
    return head + "".join(map(_pair, pairs)) + "sys.exit(0 if all(good) else 1)\n"


def _plain(side: Added) -> bool:
    """Whether a sum rounds to its own format alone, and is small."""
    if side.summation is None or side.result != side.library:
        return False
    return side.summation.plain(side.dtype) and len(side.summation.tree.leaves) <= PRODUCTS


def _pair(found: Evidence) -> str:
    """The lines of one output on both sides: the products once, then each side's sums."""
    lines = [""]
    known: dict[str, str] = {}
    for name, side in (("left", found.left), ("right", found.right)):
        made = _products(side)
        lines += [f"{key} = {value}" for key, value in made.items() if known.get(key) != value]
        known |= made
        lines += [f"# {name}: out{list(side.output)}", *_sums(side)]
        last = _last(side)
        lines.append(f'good.append(show("{name}", {last}, 0x{side.library:x}))')
    return "\n".join(lines[1:]) + "\n\n"


def _products(side: Added) -> dict[str, str]:
    """The exact products that a side adds, and its bias."""
    assert side.summation is not None
    leaves = set(side.summation.tree.leaves)
    found = {
        product(one.leaf): f"{_exact(one.x, side.dtype)} * {_exact(one.w, side.dtype)}"
        for one in side.products
        if one.leaf in leaves
    }
    if BIAS in leaves and side.bias is not None:
        found["b"] = _exact(side.bias, side.dtype)
    return found


def _exact(bits: int, dtype: str) -> str:
    """A number as it is written, exact: its shortest decimal, read in its own format."""
    shown = floats.text(bits, dtype).partition(" ")[0]
    return f'number("{shown}")'


def _sums(side: Added) -> list[str]:
    """Every partial sum, rounded once; products that are not fused are rounded before."""
    assert side.summation is not None
    tree, rounding = side.summation
    return [
        f"s{node} = once({' + '.join(_term(child, rounding) for child in children)})"
        for node, children in enumerate(tree.nodes)
    ]


def _term(child: int, rounding: Rounding) -> str:
    if child < 0:
        return f"s{~child}"
    whole = child == BIAS or child in rounding.fused
    return product(child) if whole else f"once({product(child)})"


def _last(side: Added) -> str:
    assert side.summation is not None
    tree = side.summation.tree
    return f"s{len(tree.nodes) - 1}" if tree.nodes else _term(tree.leaves[0], Rounding())
