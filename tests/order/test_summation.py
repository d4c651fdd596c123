"""Summations: what is left of one at an edge, what sets two apart, which sums they share."""

from __future__ import annotations

import itertools
from dataclasses import fields, replace

import numpy as np
import pytest

from probe.case import floats, ulp
from probe.order.replay import replay
from probe.order.summation import EVERY, Rounding, Summation, ranges_of_mask
from probe.order.tree import BIAS, Tree
from tests.order.test_tree import any_tree

CHAIN = Tree.sequential([*range(4), BIAS])
ROOT = len(CHAIN.nodes) - 1

# Of every field one value, and what two sums that differ in it alone differ by.
VALUES = {
    "fused": (frozenset([1]), "rounding"),
    "operand_format": ("tf32", "precision"),
    "accumulator_format": ("float64", "precision"),
    "rounded": (frozenset([1]), "precision"),
    "product_format": ("bfloat16", "precision"),
    "truncated": (frozenset([ROOT]), "rounding"),
    "intermediate_format": ("float64", "precision"),
    "shortened": (frozenset([0]), "precision"),
    "short_format": ("bfloat16", "precision"),
    "bias_format": ("bfloat16", "precision"),
    "flushed_inputs": (frozenset([2]), "flush"),
    "flushed_weights": (frozenset([EVERY]), "flush"),
    "flushed_products": (frozenset([0, BIAS]), "flush"),
    "flushed_whole": (frozenset([1]), "flush"),
    "flushed_sums": (frozenset([EVERY]), "flush"),
    "tininess": ("grid", "flush"),
    "zero": ("kept", "rounding"),
    "input_format": ("bfloat16", "precision"),
    "weight_format": ("tf32", "precision"),
}


def drawn(rng: np.random.Generator, tree: Tree) -> Rounding:
    """Any values of any fields, numbers of leaves and nodes as the tree has them."""
    picked = {}
    for name, fact, default in Rounding().facts():
        if rng.random() < 0.6:
            continue
        able = (
            list(tree.leaves if name != "fused" else set(tree.leaves) - {BIAS})
            if fact.leaves
            else list(range(len(tree.nodes)))
        )
        if isinstance(default, frozenset):
            some = [one for one in able if rng.random() < 0.5]
            every = name.startswith("flushed") and rng.random() < 0.3
            picked[name] = frozenset([EVERY] if every else some)
        else:
            picked[name] = VALUES[name][0]
    return Rounding(**picked)


def test_what_sets_two_sums_apart_is_what_was_changed():
    assert [one.name for one in fields(Rounding)] == list(VALUES)
    base = Rounding(frozenset([0]), flushed_products=frozenset([3]), zero="+0 added")
    pairs = Tree.pairwise([*range(4), BIAS])
    for name, (value, cause) in VALUES.items():
        one, other = Summation(CHAIN, base), Summation(CHAIN, replace(base, **{name: value}))
        assert one.causes(one) == other.causes(other) == ()
        assert one.causes(other) == other.causes(one) == (cause,), name
        assert one != other and one.rounding.id != other.rounding.id
        assert not one.plain("float32") and not other.plain("float32")
        told = Summation(CHAIN, Rounding(**{name: value}))
        assert told.plain("float32") == (name == "fused")
        assert told.plain(str(value)) == (name == "fused" or isinstance(value, str))
        assert told.rounding.flushes == (cause == "flush")
        assert told.rounding.by_node == (name in ("rounded", "shortened"))
        moved = Summation(pairs, replace(base, **{name: value}))
        assert moved.causes(moved) == () and moved.causes(one)[0] == one.causes(moved)[0] == "order"
    assert not Rounding(flushed_sums=frozenset([EVERY])).by_node
    assert Rounding(flushed_sums=frozenset([EVERY, 1])).by_node
    unknown = Summation(CHAIN, Rounding(zero="kept")).causes(Summation(CHAIN, Rounding()))
    assert unknown == (), "nothing is known of zeros there"


def causes(one: Rounding, other: Rounding, trees: tuple[Tree, Tree] = (CHAIN, CHAIN)):
    found = {
        Summation(a, b).causes(Summation(c, d))
        for a, b, c, d in ((trees[0], one, trees[1], other), (trees[1], other, trees[0], one))
    }
    assert len(found) == 1
    return found.pop()


def test_trees_that_fuse_or_flush_all_or_nothing_differ_in_their_order_alone():
    trees = CHAIN, Tree.pairwise([*range(4), BIAS])
    every = [Rounding.fused_everywhere(tree) for tree in trees]
    none, some = Rounding(), Rounding(frozenset([2]))
    assert causes(every[0], every[1], trees) == causes(none, none, trees) == ("order",)
    for one, other in ((every[0], none), (none, every[1]), (some, none), (some, every[1])):
        assert causes(one, other, trees) == ("order", "rounding")
    assert causes(some, some, trees) == ("order",)
    assert causes(some, Rounding(frozenset([0])), trees) == ("order", "rounding")
    for name in ("flushed_inputs", "flushed_products", "flushed_sums"):
        able = range(4) if name != "flushed_products" else [*range(4), BIAS]
        every, listed, part, nothing = (
            Rounding(**{name: frozenset(given)}) for given in ([EVERY], able, [1], [])
        )
        assert causes(every, listed) == () and causes(every, listed, trees) == ("order",)
        assert causes(part, replace(part, **{name: frozenset([2])})) == ("flush",)
        assert causes(part, replace(part, **{name: frozenset([2])}), trees) == ("order",)
        for one, other in itertools.combinations((every, part, nothing), 2):
            assert causes(one, other) == ("flush",)
            assert causes(one, other, trees) == ("order", "flush")
    sides = [Rounding(flushed_sums=frozenset([EVERY]), tininess=kind) for kind in (None, "grid")]
    assert causes(*sides) == ("flush",) and causes(*sides, trees) == ("order", "flush")
    assert causes(Rounding(), replace(Rounding(), tininess="grid"), trees) == ("order",)
    root, inner = (Rounding(truncated=frozenset([node])) for node in (ROOT, 0))
    assert causes(root, inner) == causes(root, none) == causes(inner, none) == ("rounding",)
    nodes = [Rounding(accumulator_format="float64", rounded=frozenset(n)) for n in ([0], [1], [])]
    assert causes(nodes[0], nodes[1]) == ("precision",)
    assert causes(nodes[0], nodes[1], trees) == ("order",)
    assert causes(nodes[0], nodes[2], trees) == ("order", "precision")


def test_a_product_alone_has_no_sum_that_rounds():
    alone = Tree.sequential([3]), Tree.sequential([3])
    sums = "accumulator_format product_format intermediate_format rounded shortened zero"
    for name, (value, cause) in VALUES.items():
        said = Rounding(**{name: value})
        if name in sums.split():
            assert causes(said, Rounding(), alone) == (), name
        elif not name.startswith(("fused", "flushed", "truncated")):
            assert causes(said, Rounding(), alone) == (cause,), name
    assert causes(Rounding(truncated=frozenset([-1])), Rounding(), alone) == ("rounding",)
    cut = Rounding(flushed_products=frozenset([3])), Rounding(flushed_products=frozenset([EVERY]))
    assert causes(*cut, alone) == () and causes(cut[0], Rounding(), alone) == ("flush",)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_what_is_left_of_a_sum_adds_what_is_read_and_elsewhere_zeros(dtype):
    """By bits: over all leaves with zeros where nothing is read, and over those read alone."""
    rng, form = np.random.default_rng(2), floats.FORMATS[dtype]
    fields = ("fused", "operand_format", "accumulator_format", "bias_format", "input_format")
    fields += ("flushed_inputs", "flushed_weights", "flushed_whole")
    for _ in range(40):
        tree = any_tree(rng, int(rng.integers(2, 8)))
        given = drawn(rng, tree)
        rounding = Rounding(**{name: getattr(given, name) for name in fields})
        root, every = len(tree.nodes) - 1, frozenset([EVERY] * int(rng.integers(2)))
        rounding = replace(rounding, truncated=frozenset([root] * int(rng.integers(2))))
        rounding = replace(rounding, flushed_sums=every, flushed_products=every)
        read = [leaf for leaf in tree.leaves if rng.random() < 0.6] or [tree.leaves[0]]
        shape = (31, 30)
        x, w = rng.standard_normal((2, *shape)) * 2.0 ** rng.integers(form.emin // 2 - 1, 3, shape)
        x[[leaf for leaf in range(31) if leaf not in read]] = 0
        bias = rng.standard_normal(30) * 2.0 ** rng.integers(form.emin - 2, 3, 30)
        bias = bias if BIAS in read else 0 * bias
        given = [floats.round_to(one, dtype) for one in (x, w, bias)]
        whole = Summation(tree, rounding)
        left = whole.restricted(read)
        assert left.tree.leaves == tuple(read) and whole.restricted(tree.leaves) is whole
        outputs = [
            replay(one, *given[:2], dtype, given[2] if BIAS in one.tree.leaves else None)
            for one in (whole, left)
        ]
        assert ulp.equal(*outputs, dtype), (tree.text, read, rounding)


def named(summation: Summation, dtype: str) -> list[object]:
    """Of every node all that it adds and how, as nested sets."""
    tree, rounding = summation
    facts = [(fact, value) for _, fact, value in rounding.facts()]

    def in_sets(number: int, leaves: bool) -> tuple[bool, ...]:
        return tuple(
            number in value or EVERY in value
            for fact, value in facts
            if isinstance(value, frozenset) and fact.leaves == leaves
        )

    formats = rounding.formats() | {"nodes": rounding.accumulator_format or dtype}
    found: list[object] = []
    for node, children in enumerate(tree.nodes):
        terms = [found[~c] if c < 0 else (c, in_sets(c, True)) for c in children]
        found.append((tuple(formats.values()), in_sets(node, False), frozenset(terms)))
    return found


def test_nodes_of_two_sums_are_shared_where_all_below_is_alike():
    rng, shared = np.random.default_rng(1), 0
    for _ in range(60):
        n = int(rng.integers(2, 7))
        trees = [any_tree(rng, n) for _ in range(2)]
        kinds = [drawn(rng, trees[0]), Rounding(accumulator_format="float32"), Rounding()]
        sides = [Summation(tree, kinds[int(rng.integers(3))]) for tree in trees]
        if rng.random() < 0.3:
            sides[1] = Summation(trees[0], replace(sides[0].rounding, fused=frozenset([1])))
        names = [named(one, "float32") for one in sides]
        mine, theirs = sides[0].unshared_nodes(sides[1], "float32")
        both = set(names[0]) & set(names[1])
        for own, some in zip((mine, theirs), names, strict=True):
            assert own == {node for node, name in enumerate(some) if name not in both}
        shared += len(both)
    assert shared > 20


def test_a_style_says_whether_every_node_with_a_product_fuses_one():
    rng = np.random.default_rng(3)
    for _ in range(200):
        tree = any_tree(rng, int(rng.integers(1, 7)))
        fused = frozenset(leaf for leaf in (*tree.leaves, 40) if rng.random() < 0.7) - {BIAS}
        able = [[c for c in node if 0 <= c < BIAS] for node in tree.nodes]
        able = [(some, len(node)) for some, node in zip(able, tree.nodes, strict=True) if some]
        every = all(fused & set(some) if count == 2 else fused >= set(some) for some, count in able)
        style = "all" if every else "some"
        assert Summation(tree, Rounding(fused)).style == (
            style if fused & set(tree.leaves) else "none"
        )
        everywhere = Summation(tree, Rounding.fused_everywhere(tree, "float64"))
        assert everywhere.style == ("all" if able else "none")
        assert everywhere.rounding.accumulator_format == "float64"
        pairs = [node for node in tree.nodes if len(node) == 2 and min(node) >= 0]
        fused = everywhere.rounding.fused
        assert all(len(fused & {*node}) == 1 for node in pairs if max(node) < BIAS)
        one = Summation(tree, Rounding(frozenset(tree.leaves[:1]) - {BIAS}))
        assert one.fused_text == {"some": str(tree.leaves[0])}.get(one.style, one.style)


def test_what_a_rounding_is_written_as_is_read_again():
    rng, ids = np.random.default_rng(4), {}
    for _ in range(200):
        rounding = drawn(rng, CHAIN)
        written = rounding.to_json()
        assert Rounding.from_json(written) == rounding
        assert ids.setdefault(rounding.id, rounding) == rounding
        assert set(rounding.sets()) | set(rounding.formats()) == {
            fact.key for _, fact, _ in rounding.facts()
        }
        told = Summation(CHAIN, rounding).to_json("float32")
        assert told["fused"] == sorted(rounding.fused) and told["depth"] == 4
        assert told["accumulator"] == (rounding.accumulator_format or "float32")
        row = Summation(CHAIN, rounding).rounding_row()
        marks = np.zeros(max([5, *rounding.fused - {BIAS}]), bool)
        for start, stop in _pairs(row["fused"]):
            marks[start:stop] = True
        assert np.flatnonzero(marks).tolist() == sorted(rounding.fused - {BIAS})
    plain = {"fused": [], "products": None, "nodes": None, "narrow": [], "product_format": None}
    assert Rounding().to_json() == plain and Rounding().rare() == {"cut": [], "through": None}
    assert Rounding().id == "d60fc6927905", "ids are stored"
    for name, fact, _ in Rounding().facts():
        value = VALUES[name][0]
        shown = value if not isinstance(value, frozenset) else sorted(value)
        shown = "all" if value == frozenset([EVERY]) else shown
        some = Rounding(**{name: value})
        assert some.to_json() == plain | {fact.key: shown}
        assert some.rare() == Rounding().rare() | ({fact.key: shown} if fact.rare else {})
    with pytest.raises(ValueError, match=r"rounding=\['other'\]: unknown"):
        Rounding.from_json({"other": 1})
    for tree in (any_tree(rng, 1 + n % 8) for n in range(24)):
        widest = max([0, *map(len, tree.nodes)])
        row = {"order_id": tree.id, "tree": tree.text, "children_max": widest}
        row |= {"leaves": len(tree.leaves), "depth": tree.depth}
        assert Summation(tree).order_row() == row


def _pairs(edges: list[int]) -> list[tuple[int, int]]:
    return list(zip(edges[::2], edges[1::2], strict=True))


def test_ranges_of_a_mask_are_where_it_is_true():
    for size in range(7):
        for mask in itertools.product([False, True], repeat=size):
            edges = ranges_of_mask(np.array(mask, bool))
            inside = [n for start, stop in _pairs(edges) for n in range(start, stop)]
            assert inside == [n for n, one in enumerate(mask) if one]
            assert edges == sorted(set(edges))
    assert ranges_of_mask(np.array([[True, True, False], [False, True, True]])) == [0, 2, 4, 6]


def test_it_is_said_in_words():
    def said(tree=CHAIN, dtype="float32", **values):
        return Summation(tree, Rounding(**values)).text(dtype)

    assert said() == ["every product is rounded, then added (no FMA)"]
    assert said(Tree.sequential(1)) == ["one product, added to nothing, rounded once"]
    assert said(fused=frozenset([1, 2, 3])) == ["every product is fused into its addition (FMA)"]
    assert said(fused=frozenset([1, 3])) == [
        "fused (FMA): products 1 3; the others are rounded first"
    ]
    wide = {"accumulator_format": "float64", "operand_format": "tf32"}
    assert said(**wide)[1:] == ["operands rounded to tf32", "partial sums in float64"]
    assert said(Tree.sequential(1), **wide)[1:] == ["operands rounded to tf32"]
    assert said(dtype="float64", **wide)[1:] == ["operands rounded to tf32"]
    for node, name in ((ROOT, "the result"), (0, "the sum of products")):
        assert said(truncated=frozenset([node]))[1:] == [f"{name} truncated (toward zero)"]
    kinds = {"flushed_inputs": frozenset([EVERY]), "flushed_weights": frozenset([EVERY])}
    kinds |= {"flushed_sums": frozenset([1])}
    assert said(**kinds)[1:] == ["subnormal operands and 1 of 4 sums become zero"]
    assert said(flushed_whole=frozenset([1, 2]))[1:] == [
        "subnormal 2 of 5 fused products become zero"
    ]
    assert Summation(CHAIN, Rounding(accumulator_format="float64")).wider("float32")
    assert not Summation(CHAIN, Rounding(accumulator_format="float32")).wider("float32")
    assert not Summation(CHAIN).wider("float32")
