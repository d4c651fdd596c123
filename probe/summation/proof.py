"""Proves that outputs add in the order of a tree, with few calls about many nodes each.

A node N = A + B whose sum is then added to D is shown by one *triple*: +M at a leaf a of A, -M at a
leaf b of B, one unit at a leaf d of D. The unit survives exactly if d is not among the leaves that
a and b meet over. One triple for every inner node but the root leaves no other tree of the same
leaves: by induction the triples inside of a node tie its leaves together, whatever leaves stand for
A, B and D, and the two sides of the root are tied by nothing, so every tree that answers like this
splits at its root as this one does, and so on downwards (the graph of Aho, Sagiv, Szymanski and
Ullman, 1981). That holds against trees with nodes of three summands too, if these lose a unit
beside an M, as processors' do; a node that adds exactly lets it through, and takes the
certificate's questions. A tree that has such nodes itself is not proved here. What a certificate
asks (``questions.separation``) holds for partial sums of any format within one call too; it takes
2.6 to 12 times as many calls, and can't mask thousands of leaves in float16, so that neither
replaces the other.

Many triples share a call, since a unit that is lost cannot be made up for: the outcome is the sum
of all units or it is not. Triples of disjoint nodes use an M of their own each, lest one pair
cancels the other where the tree is wrong. Triples of nodes within each other use scales: M is
smaller further out, just large enough for its own units and too small for those further in. Then a
leaf that is known to be lost holds a unit as well, which shows that M does swallow it.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from probe import floats, operands
from probe.summation.masks import ANSWERS_AT_ONCE, Masks, Scale
from probe.summation.tree import BIAS, Tree

BATCH = 256  # speed alone: calls whose values are chosen together
WORDS = 4  # leaves of a triple: a, b, d and the one that is lost


@dataclass(frozen=True)
class Format:
    """What one call can tell of triples: ``bits`` of its outcome, ``kept`` of partial sums.

    ``unit``: the least; ``kept`` None: nothing is known of partial sums, and no scales are used.
    """

    dtype: str
    unit: float
    bits: int
    kept: int | None

    @classmethod
    def of(cls, dtype: str, scales: bool) -> Format:
        """Of a dtype; sums of 16 bits are kept in float32 wherever ``scales`` can be used."""
        bits = floats.FORMATS[dtype].precision
        return cls(dtype, Scale.of(dtype).unit, bits, max(bits, 24) if scales else None)

    @property
    def most(self) -> int:
        """Triples of disjoint nodes in one call."""
        return min(2**self.bits, 2**16) - 1

    def levels(self, paths: int) -> int:
        """Returns how many nodes within each other a call can ask about on each of that many
        paths."""
        wide = _log2(paths)
        return 1 if self.kept is None else 1 + max(0, (self.bits - wide - 1) // (3 + wide))

    def units(self, levels: int, paths: int) -> np.ndarray:
        """Returns the units of every level, innermost first."""
        ratio = 8.0 * 2 ** _log2(paths)
        return self.unit * ratio ** np.arange(levels - 1, -1, -1.0)

    def masks(self, levels: int, paths: int) -> np.ndarray:
        """M of every level and path: (levels, paths). All differ where that can be had."""
        steps = 2 ** min(floats.FORMATS[self.dtype].precision - 2, 20)
        chance = operands.hashes(0x9F00F, "w", 0, (2, levels, paths))
        mantissa = 1.25 + (chance[0] % np.uint64(steps)).astype(float) / (2 * steps)
        if levels > 1 and self.kept is not None:
            least = self.units(levels, paths)[:, None] * 2.0 ** (self.kept + 2 + _log2(paths))
            return np.asarray(mantissa * least)
        big = Scale.of(self.dtype).big
        binades = 2 if self.dtype == "float16" else 16
        return np.asarray(mantissa * big * 2.0 ** -(1.0 + (chance[1] % np.uint64(binades))))


def _log2(paths: int) -> int:
    return (paths - 1).bit_length()


def outputs_proved(
    masks: Masks, tree: Tree, wanted: tuple[np.ndarray, ...], scales: bool = True
) -> np.ndarray:
    """Returns which outputs add their products in the order of ``tree``: bool (positions, filters).

    All of the tree's nodes must have two children. ``wanted`` picks, as an index, outputs that read
    the tree's leaves and no others; all others are False. True is a proof, for an operator that
    adds its products in some tree at all, where no node of several summands is exact. ``scales``:
    whether nodes within each other may share a call; False holds for partial sums of any format.
    """
    operator = masks.operator
    form = Format.of(operator.dtype, scales)
    fits = np.zeros((operator.positions, operator.filters), bool)
    if any(len(children) > 2 for children in tree.nodes):
        return fits
    fits[wanted] = True
    chunk = max(1, ANSWERS_AT_ONCE // fits.size)  # speed alone
    calls = schedule(tree, operator.summands, form)
    for (levels, wide), alike in itertools.groupby(calls, lambda call: (call.levels, call.wide)):
        while some := list(itertools.islice(alike, min(chunk, BATCH))):
            triples = [call.triples for call in some]
            fits &= _answer_as_expected(masks, form, levels, 1 << wide, triples)
            if not fits.any():
                return fits
    return fits


def _answer_as_expected(
    masks: Masks, form: Format, levels: int, paths: int, calls: list[list[list[Triple]]]
) -> np.ndarray:
    """Returns which outputs answer all of these calls as they should: bool (positions, filters)."""
    units, big = form.units(levels, paths), form.masks(levels, paths)
    size = np.broadcast_to(units[:, None], big.shape)
    values = np.stack([big, -big, size, size], axis=-1)
    leaves = np.full((len(calls), levels, paths, WORDS), -1)
    expected = np.zeros(len(calls))
    for number, call in enumerate(calls):
        for path, triples in enumerate(call):
            for level, triple in enumerate(triples):
                leaves[number, level, path] = triple
            expected[number] += units[: len(triples)].sum()
    used = (leaves >= 0).any(axis=0)
    ask = np.repeat(leaves[:, used][:, None], masks.operator.filters, axis=1)
    fine: np.ndarray = (masks.run(ask, values[used]) == expected[:, None, None]).all(axis=0)
    return fine


# Leaves a, b and d, and one that a and b meet over, or -1.
Triple = tuple[int, int, int, int]


@dataclass
class _Path:
    """Nodes within each other: the lowest leaf, then what is added to it, one after the other.

    ``stands``: a leaf of every item; ``subtrees``: the items that are sums, and paths of their own.
    ``jobs``: triples that are not asked yet, as (first item, last item, triple).
    """

    stands: list[int]
    subtrees: dict[int, int]
    above: tuple[int, int] | None = None
    jobs: deque[tuple[int, int, Triple]] = field(default_factory=deque)
    open: deque[int] = field(default_factory=deque)
    finished: set[int] = field(default_factory=set)
    waits: bool = False

    def ready(self) -> int:
        """Items below this one have been asked about."""
        while self.open and self.open[0] in self.finished:
            self.open.popleft()
        return self.open[0] if self.open else len(self.stands)

    def take(self, most: int) -> list[Triple]:
        """Triples of items that do not overlap, innermost first; fewer where a subtree is open."""
        limit, last = self.ready(), -1
        taken: list[Triple] = []
        left: list[tuple[int, int, Triple]] = []
        while self.jobs and len(taken) < most and len(left) < WORDS * most:  # speed alone
            job = self.jobs[0]
            if job[1] >= limit:
                break
            self.jobs.popleft()
            if job[0] > last:
                taken.append(job[2])
                last = job[1]
            else:
                left.append(job)
        self.jobs.extendleft(reversed(left))
        return taken


@dataclass(frozen=True)
class PathTriples:
    """Of every path its triples, innermost first: ``levels`` at most, of at most 2^``wide`` paths.

    Calls of the same two numbers can be made together.
    """

    levels: int
    wide: int
    triples: list[list[Triple]]


def schedule(tree: Tree, bias: int, form: Format) -> Iterator[PathTriples]:
    """Calls that ask about every inner node.

    ``bias``: the leaf's number in masks. No triple's leaves are among those that another triple of
    the call loses, and each path is asked from its lowest node upwards.
    """
    paths = _paths(tree, bias, scales=form.kept is not None)
    active = deque(number for number, path in enumerate(paths) if path.ready() > 0)
    while active:
        count = min(len(active), form.most)
        levels = form.levels(count)
        call: list[list[Triple]] = []
        finished: list[int] = []
        for _ in range(count):
            number = active.popleft()
            path = paths[number]
            taken = path.take(levels)
            if taken:
                call.append(taken)
            if not path.jobs:
                finished.append(number)
            elif taken:
                active.append(number)
            else:
                path.waits = True
        if call:
            yield PathTriples(levels, _log2(count), call)
        for number in finished:
            above = paths[number].above
            if above is not None:
                paths[above[0]].finished.add(above[1])
                if paths[above[0]].waits:
                    paths[above[0]].waits = False
                    active.append(above[0])


def _paths(tree: Tree, bias: int, scales: bool) -> list[_Path]:
    """Returns the tree cut into paths, each going on where the most additions are below."""
    height = np.zeros(len(tree.nodes), np.int64)
    for node, children in enumerate(tree.nodes):
        height[node] = 1 + max((height[~c] for c in children if c < 0), default=0)
    heights = height.tolist()
    paths: list[_Path] = []
    tops: list[tuple[int, tuple[int, int] | None]] = [(~(len(tree.nodes) - 1), None)]
    items: list[list[int]] = []
    while tops:
        child, above = tops.pop()
        found: list[int] = []
        while child < 0:
            one, other = sorted(tree.nodes[~child], key=lambda c: heights[~c] if c < 0 else 0)
            found.append(one)
            child = other
        found.append(child)
        found.reverse()
        path = _Path([], {}, above)
        if above is not None:
            paths[above[0]].subtrees[above[1]] = len(paths)
        tops += [(item, (len(paths), place)) for place, item in enumerate(found) if item < 0]
        paths.append(path)
        items.append(found)
    for path, found in zip(reversed(paths), reversed(items), strict=True):
        path.stands = [
            paths[path.subtrees[k]].stands[0] if c < 0 else bias if c == BIAS else c
            for k, c in enumerate(found)
        ]
        path.open = deque(sorted(path.subtrees))
    for path in paths:
        path.jobs = deque(_path_triples(path, paths, scales))
    return paths


def _path_triples(
    path: _Path, paths: Sequence[_Path], scales: bool
) -> Iterator[tuple[int, int, Triple]]:
    """Yields the triples of a path's nodes but the last, and of the sums that are added to it."""
    stands = path.stands
    for place in range(1, len(stands)):
        if place in path.subtrees:
            inner = paths[path.subtrees[place]].stands
            lost = inner[-3] if scales and len(inner) > 2 else -1
            yield place - 1, place, (inner[-2], inner[-1], stands[place - 1], lost)
        if place >= 2:
            wide = scales and place > 2
            first = place - 3 if wide else place - 2
            lost = stands[place - 2] if wide else -1
            yield first, place, (stands[first], stands[place - 1], stands[place], lost)
