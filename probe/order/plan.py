"""How a tree is evaluated for many outputs at once: levels of nodes, grouped by what they do."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from probe.order.tree import BIAS, Tree

#: Picks rows of an array: a slice where they are evenly spaced, which costs no copy.
Pick = slice | np.ndarray


@dataclass(frozen=True)
class Part:
    """Rows of one operand that come from the same place: ``kind`` node, exact, rounded or bias."""

    kind: str
    rows: Pick
    sources: Pick
    count: int


@dataclass(frozen=True)
class Group:
    """Nodes of a level that are evaluated alike, rows start to end; operands[i] is child i of all.

    ``fused``: how many exact products each node adds. ``narrow``: rows rounded to the dtype too.
    """

    start: int
    end: int
    operands: tuple[tuple[Part, ...], ...]
    fused: int
    narrow: Pick | None


@dataclass(frozen=True)
class Level:
    """Nodes in the order of their rows, and the groups that they are evaluated in."""

    nodes: np.ndarray
    groups: tuple[Group, ...]


@lru_cache(maxsize=64)
def plan(tree: Tree, exact: frozenset[int], narrowed: frozenset[int]) -> tuple[Level, ...]:
    """The levels in order of evaluation; a node's row in its level is where the next one reads.

    ``exact``: leaves whose product enters exactly; ``narrowed``: nodes rounded to the dtype too.
    """
    levels: list[Level] = []
    row_of: dict[int, int] = {}
    for nodes in tree.schedule():
        alike: dict[tuple[int, int], list[tuple[int, list[int]]]] = {}
        for node in nodes.tolist():
            children = sorted(tree.nodes[node], key=lambda child: _rank(child, exact))
            fused = sum(_kind(child, exact) == "exact" for child in children)
            alike.setdefault((len(children), fused), []).append((node, children))
        groups: list[Group] = []
        order: list[int] = []
        for (_, fused), members in alike.items():
            start = len(order)
            order += [node for node, _ in members]
            sides = zip(*(children for _, children in members), strict=True)
            operands = tuple(parts(side, exact, row_of) for side in sides)
            rows = [i for i, (node, _) in enumerate(members) if node in narrowed]
            narrow = _pick(rows) if rows else None
            groups.append(Group(start, len(order), operands, fused, narrow))
        row_of = {node: row for row, node in enumerate(order)}
        levels.append(Level(np.array(order), tuple(groups)))
    return tuple(levels)


def _kind(child: int, exact: frozenset[int]) -> str:
    if child < 0:
        return "node"
    return "bias" if child == BIAS else "exact" if child in exact else "rounded"


def _rank(child: int, exact: frozenset[int]) -> int:
    """Sums first and exact products last: groups then read sums in place and multiply in bulk."""
    return ("node", "rounded", "bias", "exact").index(_kind(child, exact))


def parts(side: tuple[int, ...], exact: frozenset[int], row_of: dict[int, int]) -> tuple[Part, ...]:
    """Where one child of every node of a group is read; ``row_of`` gives the rows of nodes."""
    found: dict[str, tuple[list[int], list[int]]] = {}
    for row, child in enumerate(side):
        rows, sources = found.setdefault(_kind(child, exact), ([], []))
        rows.append(row)
        sources.append(row_of[~child] if child < 0 else 0 if child == BIAS else child)
    return tuple(
        Part(kind, _pick(rows), _pick(sources), len(rows))
        for kind, (rows, sources) in found.items()
    )


def _pick(numbers: list[int]) -> Pick:
    steps = np.diff(numbers)
    if not steps.size:
        return slice(numbers[0], numbers[0] + 1)
    if steps[0] > 0 and (steps == steps[0]).all():
        return slice(numbers[0], numbers[-1] + 1, int(steps[0]))
    return np.array(numbers)
