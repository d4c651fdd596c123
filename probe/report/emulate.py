"""Writes a revealed run as one Python file that gives the library's bits with NumPy.

The file is ``evaluator.py`` with its data at the end: operands, windows, trees, roundings and the
library's own bits as compressed arrays in base64. Of a few products ``brief`` writes both sides'
sums as a few lines, read from the top: products and fused additions are exact fractions, each
rounded once where the library rounds. Wider accumulators, truncated results and large sums need
the general evaluator.
"""

from __future__ import annotations

import base64
import io
import json
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from probe.case import floats
from probe.case.errors import InputError
from probe.explain.comparison import CaseRun, Comparison, OutputPairs
from probe.explain.evidence import Evidence, differing_example, without_zeros
from probe.order.summation import Rounding, Summation
from probe.order.tree import BIAS, leaf_name
from probe.order.window import Geometry
from probe.report.evaluator import NOTHING_READ

# Bytes of operands and outputs that a file may hold. Python reads the file whole.
LARGEST = 1 << 28

TREE_SHOWN = 120


def save(
    sides: CaseRun | Sequence[CaseRun],
    path: str | Path,
    *,
    pairs: OutputPairs | None = None,
    partial: bool = False,
    note: str = "",
) -> Path:
    """Writes a file that replays ``sides`` with NumPy (1.17 or later) and Python (3.8) alone.

    Run, it prints the orders and bits and exits with 0 if all are the library's, else with 1.
    ``pairs``: outputs of the first two sides that must agree; the file prints those that differ.
    ``note``: a line printed first. ``partial``: outputs whose bits the replay did not give are left
    out and counted in what the file prints; without it they are an InputError, as is a side with
    no orders at all. Writes some MB for a large layer: the operands, mostly.
    """
    chosen = [sides] if isinstance(sides, CaseRun) else list(sides)
    return write_text(program_text(chosen, pairs=pairs, partial=partial, note=note), path)


def write_text(program: str, path: str | Path) -> Path:
    """Writes a program's text; InputError where that fails."""
    target = Path(path)
    try:
        target.write_text(program, encoding="utf-8")
    except OSError as error:
        why = error.strerror or "it can't be written"
        raise InputError("out", path, why, "give a file in a folder that exists") from None
    return target


def program_text(
    sides: Sequence[CaseRun],
    *,
    pairs: OutputPairs | None = None,
    partial: bool = False,
    note: str = "",
) -> str:
    about: dict[str, Any] = {"format": 1, "note": note, "runs": []}
    arrays: dict[str, np.ndarray] = {}
    for number, side in enumerate(sides):
        described, own = _data_of_run(side, partial)
        about["runs"].append(described)
        arrays |= {f"{number}.{name}": array for name, array in own.items()}
    if pairs is not None:
        for name, places, side in zip(
            ("left", "right"), (pairs.left, pairs.right), sides, strict=False
        ):
            # the flat number of an output: position times filters, plus filter
            arrays[name] = places @ np.array([side.case.filters, 1])
    size = sum(array.nbytes for array in arrays.values())
    if size > LARGEST:
        why = f"operands and outputs are {size >> 20} MiB, too much for a Python file"
        raise InputError("case", sides[0].case.label, why, "take a shorter length or fewer filters")
    # text as an array: one archive holds all of it, and NumPy alone reads it
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    stored = io.BytesIO()
    np.savez_compressed(stored, **arrays)  # type: ignore[arg-type]
    lines = "\n".join(textwrap.wrap(base64.b64encode(stored.getvalue()).decode(), 96))
    template = Path(__file__).with_name("evaluator.py").read_text(encoding="utf-8")
    head, marker, tail = template.rpartition('\nDATA = ""\n')
    assert marker
    return f'{head}\nDATA = """\n{lines}\n"""\n{tail}'


def _data_of_run(side: CaseRun, partial: bool) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Returns what is told of one side, and its arrays."""
    if side.orders is None:
        what = f"its outputs are {side.refusal}, so" if side.refusal else f"of {side.case.op}"
        why = f"{what} there is no order to replay"
        raise InputError(
            "target", side.target.text, why, "take a different target, or a nearby length"
        )
    case, operands, orders = side.case, side.operands, side.orders
    replayed = side.replays & ~side.reached
    # -1: its replay did not give the library's bits
    index = np.where(replayed, orders.index, -1)
    # a window that reads padding alone has no sum, and gives 0
    index[(orders.index < 0) & orders.replayed] = NOTHING_READ
    missing = int((index == -1).sum())
    if missing and not partial:
        why = f"{missing} of {index.size} outputs have different bits when they are replayed"
        raise InputError("case", case.label, why, "save the others with partial=True (--partial)")
    # most runs have few summations, so that a byte says which one an output has
    arrays = {
        "x": operands.x,
        "w": operands.w,
        "y": operands.y,
        "index": index.astype(np.int8 if index.max(initial=0) < 128 else np.int32),
    }
    arrays |= {} if operands.b is None else {"b": operands.b}
    described = []
    for number, summation in enumerate(orders.summations):
        data, own = _data_of_summation(summation)
        described.append(data)
        arrays |= {f"{number}.{name}": array for name, array in own.items()}
    geometry = Geometry.of(case)
    windows = {name: list(getattr(geometry, name)) for name in ("sizes", "outputs")}
    windows |= {name: list(getattr(case, name)) for name in ("kernel", "stride", "dilation")}
    about = {
        "target": side.target.text,
        "case": case.label,
        "dtype": case.dtype,
        "windows": windows
        | {"before": [before for before, _ in geometry.around], "groups": geometry.groups},
        "summations": described,
    }
    return about, {name: np.ascontiguousarray(array) for name, array in arrays.items()}


def _data_of_summation(summation: Summation) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Returns what the evaluator needs of a summation: text and formats, and lists of numbers."""
    tree, rounding = summation
    shown = tree.formula
    if len(shown) > TREE_SHOWN:
        shown = f"tree {tree.id}, {len(tree.leaves)} summands, {tree.depth} additions deep"

    def shortened(leaves: Sequence[int]) -> str:
        text = " ".join(map(str, leaves))
        return text if len(text) < 60 else f"{len(leaves)} of them"

    described = {
        "tree": shown,
        "text": "; ".join(summation.text("", shortened)),
        "leaf": tree.leaves[0],
        "formats": rounding.formats(),
        "sets": list(rounding.sets()),
    }
    lists: dict[str, Sequence[int]] = {
        "children": [child for node in tree.nodes for child in node],
        "counts": [len(node) for node in tree.nodes],
        **{name: sorted(numbers) for name, numbers in rounding.sets().items()},
    }
    return described, {name: np.array(numbers, np.int32) for name, numbers in lists.items()}


# Products of an output up to which its sum is written out.
PRODUCTS = 8

# Pairs of outputs that are.
OUTPUTS = 4

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


def brief(comparison: Comparison) -> str:
    """Returns the program of a few products; empty where it would not be a few lines."""
    count = len(comparison.differing)
    if not 0 < count <= OUTPUTS or comparison.case.dtype not in ("float32", "float64"):
        return ""
    shown = [differing_example(comparison, number) for number in range(count)]
    pairs = [without_zeros(evidence, PRODUCTS // 2) for evidence in shown if evidence is not None]
    for side in (side for evidence in pairs for side in (evidence.left, evidence.right)):
        if side.summation is None or side.result != side.library:
            return ""
        if len(side.summation.tree.leaves) > PRODUCTS or not side.summation.plain(side.dtype):
            return ""
    size = floats.format_of(comparison.case.dtype).bits // 8
    head = HEAD.format(dtype=comparison.case.dtype, size=size, width=2 * size)
    return head + "".join(map(_lines_of_pair, pairs)) + "sys.exit(0 if all(good) else 1)\n"


def _lines_of_pair(evidence: Evidence) -> str:
    """Returns the lines of one output on both sides: the products once, then each side's sums."""
    lines = [""]
    known: dict[str, str] = {}
    for name, side in (("left", evidence.left), ("right", evidence.right)):
        assert side.summation is not None
        tree, rounding = side.summation
        terms = {}
        for product in side.products:
            if product.leaf in tree.leaves:
                x, w = (_exact_number(bits, side.dtype) for bits in (product.x, product.w))
                terms[leaf_name(product.leaf)] = f"{x} * {w}"
        if BIAS in tree.leaves and side.bias is not None:
            terms["b"] = _exact_number(side.bias, side.dtype)
        lines += [f"{key} = {value}" for key, value in terms.items() if known.get(key) != value]
        known |= terms
        lines.append(f"# {name}: out{list(side.output)}")
        for node, children in enumerate(tree.nodes):
            sums = " + ".join(_term(child, rounding) for child in children)
            lines.append(f"s{node} = once({sums})")
        last = f"s{len(tree.nodes) - 1}" if tree.nodes else _term(tree.leaves[0], Rounding())
        lines.append(f'good.append(show("{name}", {last}, 0x{side.library:x}))')
    return "\n".join(lines[1:]) + "\n\n"


def _exact_number(bits: int, dtype: str) -> str:
    """Returns a number as it is written, exact: its shortest decimal, read in its own format."""
    shown = floats.bits_text(bits, dtype).partition(" ")[0]
    return f'number("{shown}")'


def _term(child: int, rounding: Rounding) -> str:
    """Returns a child of a node as it is added: a product that is not fused is rounded before."""
    if child < 0:
        return f"s{~child}"
    whole = child == BIAS or child in rounding.fused
    return leaf_name(child) if whole else f"once({leaf_name(child)})"
