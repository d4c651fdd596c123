"""Trees and how they are written: a tree and its text say the same, and nothing recurses."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from probe.case.errors import InputError
from probe.order.tree import BIAS, Tree, drawing, leaf_name, order_name, short_formula

# A leaf, or what is added in one step.
Nested = "int | tuple[Nested, ...]"


def partitions(items: Sequence[int]) -> Iterator[list[list[int]]]:
    if not items:
        yield []
        return
    for some in partitions(items[1:]):
        yield [[items[0]], *some]
        for at in range(len(some)):
            yield [*some[:at], [items[0], *some[at]], *some[at + 1 :]]


def every_nested(leaves: Sequence[int]) -> Iterator[Nested]:
    """Every way of adding these leaves: 1, 1, 4, 26 and 236 of one to five."""
    if len(leaves) == 1:
        yield leaves[0]
    for parts in partitions(leaves):
        if len(parts) > 1:
            yield from itertools.product(*(list(every_nested(part)) for part in parts))


def as_tree(nested: Nested, rng: np.random.Generator | None = None) -> Tree:
    """The tree, its nodes written in any order that has children before parents."""
    nodes: list[tuple[int, ...]] = []

    def add(part: Nested) -> int:
        if isinstance(part, int):
            return part
        order = range(len(part)) if rng is None else rng.permutation(len(part))
        nodes.append(tuple([add(part[at]) for at in order]))
        return ~(len(nodes) - 1)

    return Tree.from_nodes(nodes, leaf=max(add(nested), 0))


def under(nested: Nested) -> frozenset[int]:
    if isinstance(nested, int):
        return frozenset([nested])
    return frozenset().union(*map(under, nested))


def sums(nested: Nested, depth: int = 0) -> Iterator[tuple[frozenset[int], int]]:
    """The leaves of every node, and how many nodes are above it."""
    if not isinstance(nested, int):
        yield under(nested), depth
        for part in nested:
            yield from sums(part, depth + 1)


def kept(nested: Nested, keep: frozenset[int]) -> Nested | None:
    """What is left of it: sums of one are dropped."""
    if isinstance(nested, int):
        return nested if nested in keep else None
    left = tuple(part for part in (kept(one, keep) for one in nested) if part is not None)
    return left if len(left) > 1 else left[0] if left else None


def any_tree(
    rng: np.random.Generator, n: int, most: int = 4, leaves: Sequence[int] | None = None
) -> Tree:
    """Any tree of so many leaves, the bias maybe among them, with nodes of two to ``most``."""
    able = [*rng.permutation(31)[: n + 3], BIAS] if leaves is None else leaves
    row: list[int] = rng.permutation(able)[:n].tolist()
    nodes, leaf = [], row[0]
    while len(row) > 1:
        row = [row[at] for at in rng.permutation(len(row))]
        count = int(rng.integers(2, min(most, len(row)) + 1))
        nodes.append(tuple(row[:count]))
        row = [~(len(nodes) - 1), *row[count:]]
    return Tree.from_nodes(nodes, leaf=leaf)


@pytest.mark.parametrize(
    "leaves", [[0], [5], [1, 4], [0, 2, BIAS], [0, 1, 2, 3], [0, 2, 3, 7, BIAS]]
)
def test_every_tree_says_of_itself_what_it_was_made_of(leaves: list[int]) -> None:
    rng, texts = np.random.default_rng(0), {}
    for nested in every_nested(leaves):
        tree, places = as_tree(nested, rng), dict(sums(nested))
        assert texts.setdefault(tree.text, nested) is nested and tree.leaves == tuple(leaves)
        for again in (
            as_tree(nested),
            Tree.parse(tree.text),
            Tree.parse(f"{tree.text} ".replace("+", " + ")),
        ):
            assert again == tree and hash(again) == hash(tree) and again.id == tree.id
        found = {leaf: frozenset([leaf]) for leaf in leaves}
        for node, children in enumerate(tree.nodes):
            found[~node] = frozenset().union(*(found[child] for child in children))
            assert [min(found[child]) for child in children] == sorted(
                min(found[c]) for c in children
            )
            assert all(tree.parents[child] == node for child in children)
        assert {found[~node] for node in range(len(tree.nodes))} == set(places)
        levels = tree.schedule()
        assert tree.depth == len(levels) == max(places.values(), default=-1) + 1
        for above, nodes in enumerate(reversed(levels)):
            assert {found[~node] for node in nodes.tolist()} == {
                some for some, depth in places.items() if depth == above
            }
        order = tree.text.replace("(", "").replace(")", "").split("+")
        assert ["b" if leaf == BIAS else str(leaf) for leaf in tree.written] == order
        names = tree.formula.replace("(", "").replace(")", "").split("+")
        assert [leaf_name(leaf) for leaf in tree.written] == names
        for leaf in leaves:
            sizes = [
                min(len(s) for s in [*places, {leaf}] if {leaf, other} <= s) for other in leaves
            ]
            assert tree.lca_sizes(leaf).tolist() == sizes
        assert tree.neighbour_sizes().tolist() == [
            min(len(s) for s in places if {*pair} <= s) for pair in itertools.pairwise(tree.written)
        ]
    assert len(texts) == {1: 1, 2: 1, 3: 4, 4: 26, 5: 236}[len(leaves)]


def test_a_restricted_tree_adds_what_is_left_in_the_same_order() -> None:
    leaves = [0, 2, 3, BIAS]
    for nested, mask in itertools.product(every_nested(leaves), range(1, 16)):
        keep = frozenset(leaf for n, leaf in enumerate(leaves) if mask >> n & 1)
        assert as_tree(nested).restricted([*keep, 9]) == as_tree(kept(nested, keep))


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 9, 16, 23])
def test_builders_add_as_they_say(n: int) -> None:
    leaves = [3 * leaf + 1 for leaf in range(n)]

    def chained(parts: list[Nested]) -> Nested:
        total = parts[0]
        for part in parts[1:]:
            total = (total, part)
        return total

    def halved(parts: list[Nested]) -> Nested:
        while len(parts) > 1:
            last = parts[-1:] if len(parts) % 2 else []
            parts = [(parts[at], parts[at + 1]) for at in range(0, len(parts) - 1, 2)] + last
        return parts[0]

    assert Tree.sequential(leaves[::-1]) == as_tree(chained(leaves[::-1]))
    assert Tree.pairwise(leaves) == as_tree(halved(leaves))
    assert Tree.together(leaves) == as_tree(tuple(leaves) if n > 1 else leaves[0])
    for lanes in (1, 2, 3, 4, 8):
        rows = [chained(leaves[lane::lanes]) for lane in range(min(lanes, n))]
        assert Tree.lanes(leaves, lanes) == as_tree(halved(rows))
        groups = [leaves[at : at + lanes] for at in range(0, n, lanes)]
        parts = [tuple(group) if len(group) > 1 else group[0] for group in groups]
        assert Tree.chain(groups) == as_tree(chained(parts))
    for build in (Tree.sequential, Tree.pairwise, Tree.together):
        assert build(n) == build(range(n))
    assert [leaf_name(leaf) for leaf in (0, 7, BIAS)] == ["p0", "p7", "b"]


def test_the_id_of_a_text_never_changes() -> None:
    assert Tree.pairwise(5).id == "71bf6bd69240"


def test_a_chain_of_thousands_costs_no_stack() -> None:
    chain = Tree.sequential(5000)
    assert Tree.parse(chain.text) == chain
    assert chain.depth == 4999 and hash(chain)
    np.testing.assert_array_equal(chain.lca_sizes(0), [1, *range(2, 5001)])
    assert chain.lca_sizes(4999)[0] == 5000


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("(0+1", "ends too early"),
        ("0+1)", "closes more brackets"),
        ("(0+)", "character 3 can't follow"),
        ("((0+1))", "has 1 children"),
        ("(0+0)", "leaf 0 is added twice"),
    ],
)
def test_what_is_no_tree_says_why(text: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        Tree.parse(text)


def test_nodes_that_form_no_tree_are_refused() -> None:
    with pytest.raises(InputError, match="does not exist"):
        Tree.from_nodes([(0, ~1), (1, 2)])
    with pytest.raises(InputError, match="not added to anything"):
        Tree.from_nodes([(0, 1), (2, 3)])
    with pytest.raises(InputError, match="none is a leaf"):
        Tree.sequential(3).restricted([7])


@pytest.mark.parametrize("leaf", [0, 1, 5, BIAS])
def test_a_leaf_alone_is_a_tree_of_its_number(leaf):
    alone = Tree((leaf,), ())
    assert Tree.parse(alone.text) == alone
    made = [Tree.sequential([leaf]), Tree.pairwise([leaf]), Tree.lanes([leaf], 4)]
    made += [Tree.together([leaf]), Tree.chain([[leaf]]), Tree.from_nodes([], leaf=leaf)]
    assert made == [alone] * 6 and alone.written == [leaf] and alone.depth == 0
    if leaf:
        assert Tree.from_nodes([(0, leaf)]).restricted([leaf]) == alone
    assert Tree.from_nodes([(leaf, 7)]).restricted([leaf]) == alone


def read(text: str) -> Tree:
    """The tree of a short sum: from left to right, what stands in braces in one step."""
    stack: list[list[object]] = [[]]

    def chained(parts: list[object]) -> object:
        total = parts[0]
        for part in parts[1:]:
            total = (total, part)
        return total

    for word in text.replace("+", " ").replace("(", " ( ").replace("{", " { ").replace(
        ")", " ) "
    ).replace("}", " } ").split():  # fmt: skip
        if word in "({":
            stack.append([])
        elif word in ")}":
            parts = stack.pop()
            stack[-1].append(chained(parts) if word == ")" else tuple(parts))
        else:
            stack[-1].append(BIAS if word == "b" else int(word[1:]))
    return as_tree(chained(stack[0]))


@pytest.mark.parametrize("leaves", [[2], [0, 1], [0, 2, BIAS], [0, 1, 2, 3], [1, 2, 4, 5, BIAS]])
def test_a_short_sum_of_few_products_is_read_again(leaves):
    for nested in every_nested(leaves):
        tree = as_tree(nested)
        assert read(short_formula(tree)) == tree, short_formula(tree)


def in_lanes(lanes: Sequence[int]) -> Tree:
    return Tree.sequential([leaf for lane in lanes for leaf in range(lane, 32, 8)])


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        (Tree.sequential(6), "p0+p1+...+p5"),
        (Tree.sequential(5), "p0+p1+p2+p3+p4"),
        (
            Tree.lanes(320, 4),
            "((p0+p4+...+p316)+(p1+p5+...+p317))+((p2+p6+...+p318)+(p3+p7+...+p319))",
        ),
        (Tree.together(8), "{p0+p1+...+p7}"),
        (Tree.sequential([*range(9), BIAS]), "p0+p1+...+p8+b"),
        (Tree.sequential(range(9)[::-1]), "p8+p7+...+p0"),
        (in_lanes(range(8)), "p0+p8+p16+p24+p1+p9+p17+p25+...+p7+p15+p23+p31"),
        (
            in_lanes([0, 1, 2, 3, 5, 6]),
            "p0+p8+p16+p24+p1+p9+p17+p25+...+p3+p11+p19+p27+p5+p13+p21+p29+p6+p14+p22+p30",
        ),
    ],
)
def test_dots_stand_for_what_goes_on_in_the_same_way(tree, text):
    assert short_formula(tree) == short_formula(tree, len(text)) == text
    assert short_formula(tree, len(text) - 1) == f"{text[: len(text) - 5]} ..."


def test_orders_have_the_names_that_programmers_use():
    names = {
        "one after the other": Tree.sequential,
        "all in one step": Tree.together,
        "pairwise": Tree.pairwise,
        "8 running sums, added pairwise": lambda leaves: Tree.lanes(leaves, 8),
        "2 running sums, added pairwise": lambda leaves: Tree.lanes(leaves, 2),
    }
    for (name, build), n in itertools.product(names.items(), (17, 64)):
        assert order_name(build(range(n))) == name
        last = Tree.from_nodes([*build(range(n)).nodes, (-len(build(range(n)).nodes), BIAS)])
        assert order_name(last) == (f"{name}, the bias last" if name != "all in one step" else "")
    assert order_name(Tree.sequential([0, BIAS, *range(1, 9)])).endswith(", the bias first")
    assert order_name(Tree.sequential([0, 1, BIAS, *range(2, 9)])).endswith("the bias in between")
    assert order_name(Tree.sequential(2)) == order_name(Tree.sequential([0, 1, BIAS])) == ""
    assert order_name(as_tree(((0, 1), (2, (3, 4))))) == ""


@pytest.mark.parametrize(
    ("tree", "short", "name"),
    [
        (Tree.parse("((((0+2)+(1+3))+4)+b)"), "((p0+p2)+(p1+p3))+p4+b", ""),
        (Tree.parse("(((b+0)+1)+2)"), "p0+b+p1+p2", "one after the other, the bias first"),
        (Tree.chain([[i, i + 1] for i in range(0, 40, 2)]), "(p0+p1)+(p2+p3)+...+(p38+p39)", ""),
        (Tree.together(4), "{p0+p1+p2+p3}", "all in one step"),
        (
            Tree.sequential([c + 64 * k for c in range(64) for k in range(3)]),
            "p0+p64+p128+p1+p65+p129+...+p63+p127+p191",
            "one after the other",
        ),
    ],
)
def test_trees_as_short_sums(tree, short, name):
    assert short_formula(tree) == short
    assert order_name(tree) == name


def test_lines_of_a_drawing_meet_where_leaves_are_added():
    nodes = [(0, 1), (2, 3), (-1, -2), (-3, 4), (5, 6, BIAS), (-4, -5)]
    assert drawing(Tree.from_nodes(nodes), frozenset([0])) == [
        "p0* ─┐",
        "p1  ─┴─┐",
        "p2  ─┐ │",
        "p3  ─┴─┴─┐",
        "p4  ─────┴─┐",
        "p5  ─┐     │",
        "p6  ─┤     │",
        "b   ─┴─────┴─",
    ]


def test_sums_of_three_within_each_other_end_in_dots():
    """Without an end of the brackets a thousand levels were more than Python's stack has."""
    nodes, leaf = [(0, 1, 2)], 3
    for _ in range(1500):
        nodes.append((leaf, leaf + 1, ~(len(nodes) - 1)))
        leaf += 2
    count = len(nodes)
    moved = [tuple(c + leaf if c >= 0 else c - count for c in node) for node in nodes]
    tree = Tree.from_nodes([*nodes, *moved, (~(count - 1), ~(2 * count - 1))])
    text = short_formula(tree)
    assert text.startswith("{{{{") and "...}" in text
