"""Compares and explains two runs of a case, with kernels and one differing output in full.

For that output both orders are given, every partial sum, and where the two sides begin to differ.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import numpy as np

from probe.case import floats, ulp
from probe.case.arguments import choice
from probe.case.errors import InputError
from probe.explain import kernels
from probe.explain.comparison import Comparison, classes_of, compare_shapes
from probe.explain.runs import CaseRun, ComparedShapes, Revealer
from probe.order.replay import PartialSum, partial_sums
from probe.order.summation import Summation
from probe.order.tree import BIAS, Tree
from probe.targets.launch import Sessions, open_session
from probe.targets.progress import VOICE
from probe.targets.target import Target

# ``said``: what the library reports of itself.
WHICH = ("said", "none")


def explain_case(
    shapes: ComparedShapes,
    target: Target,
    against_target: Target | None = None,
    *,
    inline: bool = False,
    zeros: str = "equal",
) -> Comparison:
    """Why both sides of ``shapes`` differ, output by output.

    With ``against_target`` (another library, device or switch) or another padding the two sides may
    have the same shape. Then the windows are read off both sides, and outputs whose windows differ
    are told apart from rounding. ``zeros`` ``"differ"``: zeros of different signs are differences
    too, at a distance of 0 ulp. Costs a reveal on each side. InputError: there is nothing to
    compare. TargetError: a target failed.
    """
    choice("zeros", zeros, ulp.ZEROS)
    right_target = against_target or target
    if shapes.left == shapes.right and right_target == target:
        why = "both sides are the same run"
        raise InputError("against", shapes.against, why, "give another value")
    for name, side in (("at", shapes.left), ("against", shapes.right)):
        if side.length is None:
            if shapes.vary != "length":
                raise InputError("length", None, "the length is not given", "give --length N")
            raise InputError(name, None, "the length is not given", "give --at N, or --length N")
    with Sessions(lambda where: open_session(where, inline)) as running:
        first, second = running.of(target), running.of(right_target)
        comparison = compare_shapes(shapes, first, second, zeros=zeros)
        comparison.case = shapes.case
        return comparison.reveal(first, second, Revealer(tried=None))


def checked_kernels(which: str) -> str:
    return choice("kernels", which, WHICH)


def named_kernels(comparison: Comparison, which: str = "said") -> dict[str, dict[str, list[str]]]:
    """What both libraries say that they ran: ``{"left": {source: names}, "right": ...}``.

    {} where no source applies. It is evidence beside the causes, never a cause. Costs a start of
    the target for each side. A source without an answer has one entry: why, in brackets.
    InputError: ``which`` is another word.
    """
    if checked_kernels(which) == "none":
        return {}

    def ask(side: CaseRun) -> dict[str, list[str]]:
        return kernels.by_source(kernels.observe(side.target, side.case))

    with VOICE.doing("asking which kernels run"), ThreadPoolExecutor(2) as pool:
        left, right = pool.map(ask, (comparison.left, comparison.right))
    return {"left": left, "right": right} if left or right else {}


@dataclass(frozen=True)
class LeafProduct:
    """What one leaf meets: bits of the input and of the weight."""

    leaf: int
    x: int
    w: int


@dataclass
class Added:
    """How one side came to its output. Bits are those of ``dtype``, zero-extended.

    ``summation`` is None where the order is not known; then ``sums`` is empty and ``result`` None.
    ``unshared_nodes``: those of the tree that the other side does not have. ``bits_part``: the
    first node that sums what a node of the other side sums, to different bits. ``reads``: the flat
    index into x that each leaf meets, -1 for padding; None where the windows were not read off.
    ``reached``: what made it NaN without a weight in it, in words; empty where nothing did.
    ``pooled``: of a pool, how it comes to its output, in words; empty where that is not known.
    """

    side: CaseRun
    output: tuple[int, ...]
    dtype: str
    library: int
    products: list[LeafProduct] = field(default_factory=list)
    bias: int | None = None
    summation: Summation | None = None
    sums: list[PartialSum] = field(default_factory=list)
    result: int | None = None
    unshared_nodes: frozenset[int] = frozenset()
    bits_part: int | None = None
    reads: list[int] | None = None
    reached: str = ""
    pooled: str = ""

    @property
    def parts_at(self) -> int | None:
        """The first node in the order of evaluation that the other side does not have."""
        return min(self.unshared_nodes, default=None)

    def to_json(self) -> dict[str, Any]:
        """The side as ``probe explain --json`` has it; bits are hexadecimal text."""
        entry = self.side.named() | {
            "output": list(self.output),
            "library": self._value(self.library),
            "replayed": None if self.result is None else self._value(self.result),
            "parts_at": self.parts_at,
            "bits_part_at": self.bits_part,
            "reads": self.reads,
            "products": [
                {"leaf": product.leaf, "x": self._value(product.x), "w": self._value(product.w)}
                for product in self.products
            ],
            "bias": None if self.bias is None else self._value(self.bias),
            "partial_sums": [
                {
                    "node": added.node,
                    "terms": list(added.terms),
                    "text": added.text,
                    "value": floats.bits_text(added.bits, added.format),
                    "own": added.node in self.unshared_nodes,
                }
                for added in self.sums
            ],
        }
        entry |= {"reached": self.reached} if self.reached else {}
        entry |= {"pooled": self.pooled} if self.pooled else {}
        if self.summation is None:
            return entry | {"order": None, "tree": None, "fused": None}
        shown = self.summation.to_json(self.dtype)
        return entry | {"order": shown["id"], "tree": shown["tree"], "fused": shown["fused"]}

    def _value(self, bits: int) -> str:
        return floats.bits_text(bits, self.dtype)


@dataclass
class Evidence:
    """One differing output. ``ulp`` is signed, right minus left; None where it is not a number."""

    cause: str
    ulp: int | None
    left: Added
    right: Added

    def to_json(self) -> dict[str, Any]:
        sides = {"left": self.left.to_json(), "right": self.right.to_json()}
        return {"cause": self.cause, "ulp": self.ulp, **sides}


def differing_example(explanation: Comparison, number: int | None = None) -> Evidence | None:
    """The differing output that is easiest to follow, in full; None if nothing differs.

    ``number``: which of the differing ones. If None: of those that replay on both sides (if any
    does) the one that reads the fewest inputs, then the first. Costs one evaluation of its trees.
    """
    # a listing of a million products helps no reader
    long = "not-asked" in (explanation.left.refusal, explanation.right.refusal)
    if not len(explanation.differing) or long:
        return None
    if number is None:
        places = explanation.pairs.left[explanation.differing]
        classes, leaves = classes_of(explanation.left.case)
        read = np.array([len(below) for below in leaves])[classes[places[:, 0]]]
        flat = places @ np.array([explanation.left.case.filters, 1])
        # last key first: those that replay, of these the fewest inputs, then the output's order
        replayed = explanation.proved(explanation.differing)
        number = int(np.lexsort((flat, read, ~replayed))[0])
    pair = int(explanation.differing[number])
    left_place, right_place = explanation.pairs.left[pair], explanation.pairs.right[pair]
    left = _how_added(explanation.left, (int(left_place[0]), int(left_place[1])))
    right = _how_added(explanation.right, (int(right_place[0]), int(right_place[1])))
    cause = explanation.cause[number]
    if left.summation and right.summation and cause != "window":
        left.unshared_nodes, right.unshared_nodes = left.summation.unshared_nodes(
            right.summation, left.dtype
        )
        right_nodes = {below: node for node, below in enumerate(_leaf_sets(right.summation.tree))}
        for node, below in enumerate(_leaf_sets(left.summation.tree)):
            right_node = right_nodes.get(below)
            if right_node is not None and left.sums[node].value != right.sums[right_node].value:
                left.bits_part, right.bits_part = node, right_node
                break
    distance = int(explanation.ulps[number])
    signed = None if distance == ulp.NAN else distance
    return Evidence(cause, signed, left, right)


def _how_added(side: CaseRun, place: tuple[int, int]) -> Added:
    case, operands = side.case, side.operands
    position, filter_ = place
    index = np.unravel_index(position * case.filters + filter_, case.output_shape())

    def bits_of(value: Any) -> int:
        return int(floats.to_bits(np.asarray(value).reshape(1), case.dtype)[0])

    library = bits_of(operands.y[position, filter_])
    how = Added(side, tuple(map(int, index)), case.dtype, library)
    group = filter_ // (case.filters // case.groups)
    if side.windows is not None:
        how.reads = side.windows[group, position].tolist()
    x = operands.columns[group][:, position].reshape(-1, 1)
    w = operands.weights[:, filter_].reshape(-1, 1)
    classes, leaves = classes_of(case)
    read = leaves[classes[position]].tolist()
    bits = (floats.to_bits(array[read, 0], case.dtype).tolist() for array in (x, w))
    how.products = [LeafProduct(*each) for each in zip(read, *bits, strict=True)]
    bias = None if operands.b is None else operands.b[filter_]
    how.bias = None if bias is None else bits_of(bias)
    if (summation := side.summation(place)) is not None:
        replayed = operands.replay(summation, np.array([position]), np.array([filter_]))
        how.result = bits_of(replayed[0])
        # without the leaves that meet padding: they add nothing
        summed = [*read, BIAS] if bias is not None else read
        how.summation = summation if summation.rounding.by_node else summation.restricted(summed)
        added = None if BIAS not in how.summation.tree.leaves else np.asarray(bias)
        how.sums = partial_sums(how.summation, x, w, case.dtype, added)
    if side.pooled is not None and (way := side.pooled.index[position, filter_]) >= 0:
        how.pooled = side.pooled.ways[way].text
        how.result = how.library  # the ways are those that gave it
    if side.reached[position, filter_]:
        how.reached = _reached_text(side, position, group)
        how.result = how.library  # the sum, and 0 times that
    return how


# Elements that reach an output, of which that many are named.
SOME = 4


def _reached_text(side: CaseRun, position: int, group: int) -> str:
    """What gets into an output without a weight, as far as it was told apart."""
    assert side.reach is not None
    x, shape = side.operands.x.reshape(-1), side.operands.x.shape
    for reaching in side.reach.named:
        if (reaching.position, reaching.group) == (position, group) and len(reaching.inputs):
            named = [
                f"x[{', '.join(str(int(i)) for i in np.unravel_index(at, shape))}]="
                f"{floats.widen(x[at : at + 1], side.case.dtype)[0]}"
                for at in reaching.inputs[:SOME].tolist()
            ]
            more = f" and {len(reaching.inputs) - SOME} more" if len(reaching.inputs) > SOME else ""
            return ("0 * " if reaching.exact else "0 * one of ") + ", ".join(named) + more
    if side.reach.padding[position].any():
        return "0 * a weight at padding"
    weights = side.reach.weights[position].any()
    return "0 * a weight of a different filter" if weights else "0 * an input"


def _leaf_sets(tree: Tree) -> list[int]:
    """A number for every node that stands for the set of its leaves: a random one a leaf, xored.
    64 bits tell thousands of sets apart."""
    numbers: list[int] = []
    for children in tree.nodes:
        number = 0
        for child in children:
            number ^= numbers[~child] if child < 0 else Random(child).getrandbits(64)
        numbers.append(number)
    return numbers


# Summands up to which a sum is shown with all of them.
WHOLE = 12


def without_zeros(evidence: Evidence, whole: int = WHOLE) -> Evidence:
    """The same output with smaller trees, where those still give both sides' bits.

    Else (a narrowed sum, one of up to ``whole`` summands, fewer than two that are left, a zero's
    sign) as it is.
    """
    left, right = (_side_without_zeros(s, whole) for s in (evidence.left, evidence.right))
    if left is None or right is None or left.summation is None or right.summation is None:
        return evidence
    left.unshared_nodes, right.unshared_nodes = left.summation.unshared_nodes(
        right.summation, left.dtype
    )
    left.bits_part = right.bits_part = None
    return replace(evidence, left=left, right=right)


def _side_without_zeros(side: Added, whole: int) -> Added | None:
    """One side over the products that are not 0; None where that is not the same."""
    if side.summation is None or side.summation.rounding.by_node:
        return None
    leaves = side.summation.tree.leaves
    if len(leaves) <= whole:
        return None
    values = {
        product.leaf: (value_of_bits(product.x, side.dtype), value_of_bits(product.w, side.dtype))
        for product in side.products
    }
    nonzero = [leaf for leaf, (x, w) in values.items() if x * w != 0]
    bias = None if side.bias is None else value_of_bits(side.bias, side.dtype)
    if bias is not None:
        nonzero.append(BIAS)
    if len(nonzero) < 2 or len(nonzero) >= len(leaves):
        return None
    summation = side.summation.restricted(nonzero)
    x, w = (
        np.zeros((max(values) + 1, 1), floats.container_of_format(side.dtype)) for _ in range(2)
    )
    for leaf, pair in values.items():
        for array, value in zip((x, w), pair, strict=True):
            array[leaf] = floats.round_to(np.array([value]), side.dtype)
    added = None
    if bias is not None and BIAS in summation.tree.leaves:
        added = floats.round_to(np.array([bias]), side.dtype)[0]
    sums = partial_sums(summation, x, w, side.dtype, added)
    last = floats.from_bits(np.array([sums[-1].bits], _unit(sums[-1].format)), sums[-1].format)
    result = summation.output(floats.widen(last, sums[-1].format), side.dtype)
    if int(floats.to_bits(result, side.dtype)[0]) != side.library:
        return None
    return replace(side, summation=summation, sums=sums, result=side.library)


def value_of_bits(bits: int, dtype: str) -> float:
    number = floats.from_bits(np.array([bits], _unit(dtype)), dtype)
    return float(floats.widen(number, dtype)[0])


def _unit(dtype: str) -> np.dtype:
    return np.dtype(floats.format_of(dtype).unit)
