"""Operands that no other order of additions survives: a certificate's questions about a tree.

The tree T that is claimed is binary; T' is the true one, of any shape: its nodes may add more than
two at once, exactly, and keep their sums in any of the formats up to ``WIDEST``. All questions are
weights for a call with an input of ones.

*A mask.* Leaves of a set get +1 each (times a large scale) and one of them minus all that: the sum
of the whole set is zero, that of any part of it is not. A unit, so small that even the widest
format loses it beside one mask, comes out of T' exactly if every node above it holds the set whole
or not at all. Where all units come out, the leaves that carry them are *separated* from the set.

*Along a path* from a node down its larger children, T adds the items H_0 (a leaf), H_1, ..., and
P_k is the sum of the first k. P_k is masked, H_k carries the units. Then every node of T' that
holds leaves of H_k and of P_k holds P_k. Some P_k, the *rings*, are asked one by one, with units on
all that comes later: from then on one leaf stands for all of a ring, since it is met whole. So
between rings one P_k each is asked in the same call: what survives in one ring is the ring's share
in the mask of the next, whose scale it has, and scales fall from ring to ring. If a unit is lost
within a ring, the next mask does not add up to zero, and that is larger than what should come out.

*Branches.* All H_k get masks of one scale, the leaf H_0 a unit: nodes of T' above H_0 are P_k and a
part of H_k, by what was asked before, so the unit comes out exactly if that part is all of H_k.

Together: a node C of T' whose smallest node of T is N = A + B holds leaves of both, so it holds all
of A by the first question and all of B by the second: C is N. All nodes of T' are nodes of T.
Branches are paths in turn. Paths beside each other lie in different nodes, which other leaves meet
whole, so that they are asked at once. Which nodes of T are nodes of T', and in which format, is
asked in ``keeping``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from probe import floats
from probe.order.tree import Tree

WIDEST = {"float64": 53, "float32": 53, "float16": 24, "bfloat16": 24}
"""Digits of the widest partial sums that questions about a dtype take into account."""

EXPONENTS = {
    "float64": (1000, -1000),
    "float32": (124, -116),
    "float16": (15, -24),
    "bfloat16": (124, -116),
}
"""Binary exponents that masks stay below, and the unit's: normal numbers, but for float16's."""


class Uncertifiable(Exception):
    """No questions are known that would prove this summation; says why."""


@dataclass
class _Job:
    """A path's share in a call: (leaves, factor, scales above the unit's), and its units."""

    parts: list[tuple[np.ndarray, float, int]] = field(default_factory=list)
    units: int = 0

    def mask(self, leaves: np.ndarray, scale: int, share: int = 0) -> None:
        """A mask over these leaves, the last one minus the others and ``share`` more."""
        self.parts.append((leaves[:-1], 1.0, scale))
        self.parts.append((leaves[-1:], -float(len(leaves) - 1 + share), scale))

    def unit(self, leaves: np.ndarray) -> None:
        self.parts.append((leaves, 1.0, 0))
        self.units += len(leaves)


@dataclass(frozen=True)
class _Layout:
    """Masks of up to ``2 * width`` leaves; ``stages`` of them in a call, ``drop`` binades apart.

    ``span``: leaves from one ring to the next, at most ``width``, where an item is no larger.
    """

    width: int
    span: int
    stages: int
    drop: int
    unit: int
    most: int  # units in a call

    @classmethod
    def of(cls, dtype: str, bits: int, span: int) -> _Layout | None:
        """For widths of ``2^bits`` leaves; None where the dtype has no room for them."""
        highest, lowest = EXPONENTS[dtype]
        precision, width = floats.FORMATS[dtype].precision, 1 << bits
        drop = WIDEST[dtype] + 2 + bits + 3  # all that is smaller adds up to 2^(bits + 3) units
        stages = (highest - lowest - bits - 2) // drop
        if stages < 1 or bits + 1 > precision:
            return None
        most = min(2 ** (precision - 1), 2 ** (bits + 2))
        return cls(width, span, stages, drop, lowest, most)


def questions(tree: Tree, size: int, dtype: str, budget: int) -> Iterator[tuple[np.ndarray, float]]:
    """The weights (size,) of each call that separates what this tree adds apart, and its answer.

    ``size``: leaves of a filter; those of the tree are numbered as masks number them.
    Uncertifiable, before the first: the tree has a node of three summands, the dtype has too few
    binades or digits for it, or there are more than ``budget`` questions.
    """
    if any(len(children) > 2 for children in tree.nodes):
        raise Uncertifiable("some node adds three or more summands at once")
    rounds = list(_rounds(tree))
    largest = max((len(item) for paths in rounds for path in paths for item in path), default=0)
    sizes = [(bits, 2**span) for bits in range(2, 14) for span in range(2, bits + 1)]
    layouts = [_Layout.of(dtype, bits, span) for bits, span in sizes if largest < 2**bits]
    fitting = [layout for layout in layouts if layout]
    if not fitting:
        raise Uncertifiable(f"{dtype} has too few significant bits to mask {largest} leaves")
    layout = min(fitting, key=lambda one: _cost(rounds, one))
    if (cost := _cost(rounds, layout)) > budget:
        raise Uncertifiable(f"its tree takes {cost} calls, and {budget} are allowed")
    return _laid_out(rounds, layout, size)


def _laid_out(
    rounds: list[list[list[np.ndarray]]], layout: _Layout, size: int
) -> Iterator[tuple[np.ndarray, float]]:
    for jobs in (call for paths in rounds for call in _calls(paths, layout)):
        row = np.zeros(size)
        for leaves, factor, scale in (part for job in jobs for part in job.parts):
            row[leaves] = math.ldexp(factor, layout.unit + scale * layout.drop)
        yield row, math.ldexp(sum(job.units for job in jobs), layout.unit)


def _cost(rounds: list[list[list[np.ndarray]]], layout: _Layout) -> int:
    """How many calls there are, but for those that have too many paths beside each other."""
    total = 0
    for paths in rounds:
        counts = []
        for items in paths:
            rings = _rings(items, layout)
            outside = sum(map(len, items))
            bounds = np.diff([*rings, len(items)])
            groups = range(0, len(rings), layout.stages)
            inner = sum(int(bounds[at : at + layout.stages].max()) - 1 for at in groups)
            counts.append(inner + sum(-(-outside // layout.most) for _ in rings[1:]))
        total += max(counts) + any(len(item) > 1 for items in paths for item in items)
    return total


def _rounds(tree: Tree) -> Iterator[list[list[np.ndarray]]]:
    """The paths of the root, then those of all branches, and so on: items of each, lowest first."""
    written, starts, ends = tree._spans
    tops = [len(tree.nodes) - 1] if tree.nodes else []
    while tops:
        paths, branches = [], []
        for top in tops:
            items, node = [], top
            while node >= 0:
                children = tree.nodes[node]
                sizes = [1 if c >= 0 else int(ends[~c] - starts[~c]) for c in children]
                heavy = children[int(np.argmax(sizes))]
                for child in children:
                    if child == heavy:
                        continue
                    items.append(
                        np.array([child]) if child >= 0 else written[starts[~child] : ends[~child]]
                    )
                    if child < 0 and len(items[-1]) > 1:
                        branches.append(~child)
                node = ~heavy if heavy < 0 else -1
            items.append(np.array([heavy]))
            paths.append(items[::-1])
        yield paths
        tops = branches


def _calls(paths: list[list[np.ndarray]], layout: _Layout) -> Iterator[list[_Job]]:
    """The calls of one round: the paths' jobs side by side, as many units as can be counted."""
    for jobs in itertools.zip_longest(*(_path_jobs(path, layout) for path in paths)):
        yield from _together([job for job in jobs if job], layout)
    yield from _together([job for path in paths for job in _branch_jobs(path)], layout)


def _together(jobs: Sequence[_Job], layout: _Layout) -> Iterator[list[_Job]]:
    """Jobs of different paths in one call, or several where the units would not be counted."""
    call: list[_Job] = []
    for job in jobs:
        if call and sum(one.units for one in call) + job.units > layout.most:
            yield call
            call = []
        call.append(job)
    if call:
        yield call


def _rings(items: list[np.ndarray], layout: _Layout) -> list[int]:
    """The k of the P_k that are asked by themselves, ``span`` leaves apart."""
    rings, count = [1], 0  # P_1 is a leaf
    for k, item in enumerate(items[1:], 1):
        if count and count + len(item) >= layout.span:
            rings.append(k)
            count = 0
        count += len(item)
    return rings


def _path_jobs(items: list[np.ndarray], layout: _Layout) -> Iterator[_Job]:
    """The rings of a path one by one, then the P_k between them, one of every ring in a call."""
    rings = _rings(items, layout)
    for start, stop in itertools.pairwise(rings):
        outside = np.concatenate(items[stop:])
        for part in np.array_split(outside, -(-len(outside) // layout.most)):
            job = _Job()
            job.mask(np.concatenate([items[0], *items[start:stop]]), 1)
            job.unit(part)
            yield job
    bounds = [*rings, len(items)]
    for first in range(0, len(rings), layout.stages):
        group = range(first, min(first + layout.stages, len(rings)))
        for offset in range(1, max(bounds[n + 1] - bounds[n] for n in group)):
            inside = [n for n in group if bounds[n] + offset < bounds[n + 1]]
            job, share = _Job(), items[0]
            for place, n in enumerate(inside):
                start, k, scale = bounds[n], bounds[n] + offset, len(inside) - place
                leaves = np.concatenate(items[start:k])
                if place:  # the units of the ring before are this one's share
                    job.parts.append((share, 1.0, scale))
                    job.mask(leaves, scale, share=len(share))
                else:
                    job.mask(np.concatenate([share, leaves]), scale)
                share = items[k]
            job.unit(share)
            yield job


def _branch_jobs(items: list[np.ndarray]) -> Iterator[_Job]:
    """All branches of a path at once."""
    job = _Job()
    for item in items[1:]:
        if len(item) > 1:
            job.mask(item, 1)
    if job.parts:
        job.unit(items[0])
        yield job
