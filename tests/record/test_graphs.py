"""The interpreter of graphs, on values that are no library's: numbers, names, and what is alive."""

from __future__ import annotations

import gc
import weakref
from typing import Any

from probe.record.graphs import Body, Interpreter, Node, ordered_by_needs, repeated


class Numbers(Interpreter):
    """Adds, and does so again and again: nodes are ``add``, ``call``, ``loop``, ``both``."""

    def run_node(self, node: Node, read: list[Any], inside: Any) -> list[Any]:
        if node.op == "call":
            return self.walk(node.native, read, f"{inside or ''}/{node.path}")
        if node.op == "loop":

            def given(turn: int, state: Any) -> Any:
                return [turn, *state, *read[1:]] if turn < 3 else None

            state, rows = repeated(lambda _, each: self.walk(node.native, each), read[:1], given)
            return [*state, *(sum(column) for column in zip(*rows, strict=True))]
        if node.op == "both":
            return [read[0], -read[0]]
        return [sum(one for one in read if one is not None)]


def add(gives: str, *slots: Any) -> Node:
    return Node(None, "add", slots, [gives])


def test_bodies_are_walked_in_bodies_and_close_over_nothing() -> None:
    inner = Body([add("c", "a", "b", "ten")], ["a", "b"], ["c", "a"], {"ten": 10})
    middle = Body([Node(inner, "call", ["p", "p"], ["q", "p2"], path="x")], ["p"], ["q"])
    outer = Body(
        [
            Node(middle, "call", ["i"], ["c"], path="m"),  # the name that the innermost has too
            Node(middle, "call", ["c"], ["d"], path="m"),
            add("r", "c", "d", None, "c"),
        ],
        ["i"],
        ["r", "i", "c"],
    )
    assert Numbers().walk(outer, [1]) == [12 + 34 + 12, 1, 12]


def test_a_loop_hands_its_state_on_and_keeps_what_each_turn_gives() -> None:
    body = Body([add("s2", "s", "k"), add("row", "s2", "n")], ["n", "s", "k"], ["s2", "row"])
    outer = Body([Node(body, "loop", ["i", "k"], ["end", "rows"])], ["i", "k"], ["end", "rows"])
    # states 5, 6, 7 with turns 0, 1, 2
    assert Numbers().walk(outer, [4, 1]) == [7, 5 + 7 + 9]
    assert repeated(lambda _, read: read, [1], lambda *_: None) == ([1], [])


class Tracked:
    """A value whose end can be seen."""


class Alive(Interpreter):
    """Notes how many values are alive behind each node."""

    def __init__(self) -> None:
        self.every: list[weakref.ref[Tracked]] = []
        self.alive: list[int] = []

    def run_node(self, node: Node, read: list[Any], inside: Any) -> list[Tracked]:
        if node.op == "call":
            return self.walk(node.native, read)
        self.alive.append(sum(one() is not None for one in self.every))
        found = [Tracked() for _ in node.gives]
        self.every += [weakref.ref(one) for one in found]
        return found


def test_a_value_lives_as_long_as_something_is_to_read_it() -> None:
    gc.collect()
    nodes = [add("a", "i"), Node(None, "two", ["a"], ["b", "unread"]), add("c", "b", "b")]
    nodes += [add("d", "c"), add("e", "d")]
    run = Alive()
    found = run.walk(Body(nodes, ["i"], ["e", "b"]), [None])
    # a; then b alone, since nothing reads what stands beside it; b stays, as it is given
    assert run.alive == [0, 1, 1, 2, 2]
    assert len(found) == 2
    within = Body([add("x", "p"), add("y", "x")], ["p"], ["y"])
    run = Alive()
    run.walk(Body([Node(within, "call", ["i"], ["y"]), add("z", "y")], ["i"], ["z"]), [None])
    assert run.alive == [0, 1, 1]


def test_what_is_needed_comes_first_and_else_the_order_stays() -> None:
    needs = {"a": ["c"], "b": [], "c": ["d"], "d": []}
    assert ordered_by_needs("ab", needs.__getitem__) == ["d", "c", "a", "b"]
