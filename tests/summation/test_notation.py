"""Short sums and drawings say of every small tree what it is."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from probe.summation.notation import drawing, order_name, short_formula
from probe.summation.tree import BIAS, Tree
from tests.summation.test_tree import as_tree, every_nested


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


@pytest.mark.parametrize("leaves", [[3], [0, 1], [0, 1, 2], [0, 1, 2, 3], [0, 2, 4, 5, BIAS]])
def test_lines_of_a_drawing_meet_where_leaves_are_added(leaves):
    """From a leaf to the right, and down where its line ends, the sums that it is in are passed."""
    for nested in every_nested(leaves):
        tree = as_tree(nested)
        lines = drawing(tree, frozenset([leaves[0]]))
        names = ["b" if leaf == BIAS else f"p{leaf}" for leaf in tree.written]
        names = [
            name + "*" * (leaf == leaves[0]) for name, leaf in zip(names, tree.written, strict=True)
        ]
        assert [line.split()[0] for line in lines] == names
        width = max(map(len, names)) + 1
        rows = [line[width:].ljust(2 * len(leaves) + 1) for line in lines]
        assert drawn(rows) == (set() if not tree.nodes else meets(tree))


def drawn(rows: list[str]) -> set[frozenset[int]]:
    """The rows that every vertical line joins, with all rows that its ends come from."""
    below = {(row, 0): {row} for row in range(len(rows))}
    found = set()
    for column in range(1, max(map(len, rows)), 2):
        group: list[int] = []
        for row, text in enumerate(rows):
            mark = text[column] if column < len(text) else " "
            if mark in "┐┤┴│":
                group.append(row)
            if mark == "┴":
                joined = set().union(*(below.pop((r, 0)) for r in group if rows[r][column] != "│"))
                below[(row, 0)] = joined
                found.add(frozenset(joined))
                group = []
    return found


def in_lanes(lanes: Sequence[int]) -> Tree:
    return Tree.sequential([leaf for lane in lanes for leaf in range(lane, 32, 8)])


def meets(tree: Tree) -> set[frozenset[int]]:
    place = {leaf: row for row, leaf in enumerate(tree.written)}
    under: dict[int, frozenset[int]] = {}
    for node, children in enumerate(tree.nodes):
        parts = [under[c] if c < 0 else frozenset([place[c]]) for c in children]
        under[~node] = frozenset().union(*parts)
    return set(under.values())


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        (Tree.sequential(320), "p0+p1+...+p319"),
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
