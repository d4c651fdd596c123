"""Tests every addition and every fusion of every output of a call.

A summation that replays may be wrong at one addition, and one that was read off other filters may
not be this one's. A certificate asks the operator, at its own shape, about every addition and every
fusion of a summation, and counts the outputs that answered all of it. What is asked:

- ``separation``: that every node of the true tree is a node of this one (below);
- ``Keeping``: that each node of this one is a node of the true tree, and in which format;
- every product, whether it comes in whole (``fusion``);
- the ``rounding.QUESTIONS``: how results are cut, what sums go through;
- what subnormal numbers become: that nothing is flushed (``flush.flushing_outputs``), or that every
  operand, product and sum is flushed as revealed (``flush``, ``flushing_questions``).

Proved against all trees, nodes that add several exactly, and formats of up to ``widest`` digits at
any node, rounded to nearest, for sums of products that add in one order whatever the operands are.
A node that rounds twice, first to a few digits more (float32: up to 10, at the root 22; see
``after``), is refuted too, and one that does so in more digits is not. Taken from one product: that
sums which round twice all do, and when a result counts as subnormal. All filters and positions
answer the same questions at once, so a certificate costs as many calls as one output's would. A
chain of n leaves takes about n / 3 of them in float32.

What ``separation`` asks no other order of additions survives.

The tree T that is claimed is binary; T' is the true one, of any shape: its nodes may add more than
two at once, exactly, and keep their sums in any of the formats up to ``widest``. All questions are
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
asked in ``Keeping``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice

import numpy as np

from probe import floats
from probe.progress import VOICE, Count
from probe.summation import flush, fusion, rounding
from probe.summation.fusion import FusedPairs, FusionPiece, fusion_operands, pairs_in_rows
from probe.summation.masks import ANSWERS_AT_ONCE, MaskQuestion, Masks
from probe.summation.replay import replay
from probe.summation.reveal import RevealedTree
from probe.summation.summation import EVERY, Rounding, Summation
from probe.summation.tree import BIAS, Tree


def widest(dtype: str) -> int:
    """Returns the digits of the widest partial sums that questions about a dtype take into
    account: those of the next wider format."""
    return floats.FORMATS[(*floats.FORMATS[dtype].wider, dtype)[0]].precision


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
        form, width = floats.FORMATS[dtype], 1 << bits
        drop = widest(dtype) + bits + 5  # all that is smaller adds up to 2^(bits + 3) units
        stages = (form.high - form.low - bits - 2) // drop
        if stages < 1 or bits + 1 > form.precision:
            return None
        most = min(2 ** (form.precision - 1), 2 ** (bits + 2))
        return cls(width, span, stages, drop, form.low, most)


def separation(
    tree: Tree, size: int, dtype: str, budget: int
) -> Iterator[tuple[np.ndarray, float]]:
    """Yields the weights (size,) of each call that separates what this tree adds apart, and its
    answer.

    ``size``: leaves of a filter; those of the tree are numbered as masks number them.
    Uncertifiable, before the first: the tree has a node of three summands, the dtype has too few
    binades or digits for it, or there are more than ``budget`` questions.
    """
    if any(len(children) > 2 for children in tree.nodes):
        raise Uncertifiable("some node adds three or more summands at once")
    rounds = list(_rounds(tree))
    largest = max((len(item) for paths in rounds for path in paths for item in path), default=0)
    spans = range(2, 14)  # speed alone: the cheapest of these layouts is taken
    sizes = [(bits, 2**span) for bits in spans for span in range(2, bits + 1)]  # speed alone
    layouts = [_Layout.of(dtype, bits, span) for bits, span in sizes if largest < 2**bits]
    fitting = [layout for layout in layouts if layout]
    if not fitting:
        raise Uncertifiable(f"{dtype} has too few significant bits to mask {largest} leaves")
    layout = min(fitting, key=lambda candidate: _cost(rounds, candidate))
    if (cost := _cost(rounds, layout)) > budget:
        raise Uncertifiable(f"its tree takes {cost} calls, and {budget} are allowed")
    return _laid_out(rounds, layout, size)


def _laid_out(
    rounds: list[list[list[np.ndarray]]], layout: _Layout, size: int
) -> Iterator[tuple[np.ndarray, float]]:
    for paths in rounds:
        # the jobs of paths beside each other share calls; those of branches come when the nodes
        # of the paths are known
        by_step = itertools.zip_longest(*(_path_jobs(path, layout) for path in paths))
        steps = ([job for job in jobs if job] for jobs in by_step)
        branches = []
        for path in paths:
            branch = _Job()
            for item in path[1:]:
                if len(item) > 1:
                    branch.mask(item, 1)
            if branch.parts:
                branch.unit(path[0])
                branches.append(branch)
        every = itertools.chain(steps, [branches])
        for jobs in (call for step in every for call in _calls_of_jobs(step, layout)):
            row = np.zeros(size)
            for leaves, factor, scale in (part for job in jobs for part in job.parts):
                row[leaves] = math.ldexp(factor, layout.unit + scale * layout.drop)
            yield row, math.ldexp(sum(job.units for job in jobs), layout.unit)


def _cost(rounds: list[list[list[np.ndarray]]], layout: _Layout) -> int:
    """Returns how many calls there are, but for those that have too many paths beside each
    other."""
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
    """Yields the paths of the root, then those of all branches, and so on: items of each, lowest
    first."""
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


def _calls_of_jobs(jobs: Sequence[_Job], layout: _Layout) -> Iterator[list[_Job]]:
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
    """Returns the k of the P_k that are asked by themselves, ``span`` leaves apart."""
    rings, count = [1], 0  # P_1 is a leaf
    for k, item in enumerate(items[1:], 1):
        if count and count + len(item) >= layout.span:
            rings.append(k)
            count = 0
        count += len(item)
    return rings


def _path_jobs(items: list[np.ndarray], layout: _Layout) -> Iterator[_Job]:
    """Yields rings of a path one by one, then the P_k between them, one of every ring in a call."""
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


STEP = 3  # binades from one node to the next above it, where nothing should come out


@dataclass(frozen=True)
class Ask:
    """Nodes of one call: ``leaves`` (nodes, 3) are their p, q, r; ``rank``: above how many."""

    nodes: np.ndarray
    leaves: np.ndarray
    rank: np.ndarray


def after(dtype: str) -> int:
    """Returns the binary digits from an ulp to the last one that ``Keeping.rounded`` sets below it.

    A node that rounds twice, first to a format of so many digits less 2 more than the dtype's, is
    told. 12 tells x87's 64 bits from float64's 53; formats of 16 bits have room for 3.
    """
    return 12 if floats.FORMATS[dtype].bits > 16 else 3


class Keeping:
    """In which format each partial sum of a binary tree but its root is kept, many in a call.

    A node A that is added to B is asked by three leaves: p and q, which meet in A, and r of B,
    which takes p away again: s + little - s. Nothing comes out where the sum in A lost the little,
    which is so exactly if A is a sum by itself and its format ends before it. The leaves are next
    to their nodes, so that what waits for its r is in few partial sums: other nodes are asked in
    the same call whose own sums wait elsewhere. What came out of nodes below must not drown in
    those above. Where nothing should come out (``lost``), s falls by three binades from node to
    node upwards; where all should (``kept``, ``rounded``), everything has one scale, and the sum
    counts the nodes.

    In ``lost`` the little is half an ulp, a tie that goes down to an even s, and that one digit
    more would keep. In ``kept`` it is the last digit of the format, and all of a call together are
    lost by a node of the dtype. In ``rounded`` it is half an ulp and some ``after`` digits further
    down one more, which a node that rounds to nearest makes a whole ulp, and one that truncates
    loses; one that rounds to a few digits more first is left with a tie, and loses it too.

    ``size``: leaves of a filter; the tree's are numbered as masks number them.
    """

    def __init__(self, tree: Tree, size: int, dtype: str) -> None:
        self.tree, self.size, self.dtype = tree, size, dtype
        self.nearest: list[int] = []  # how many nodes lie between each and the leaf next to it
        for children in tree.nodes:
            self.nearest.append(1 + min(map(self._distance, children)))

    def lost(self, precision: int, nodes: Iterable[int]) -> Iterator[tuple[np.ndarray, float]]:
        """Yields weights of calls, and 0: these nodes lose what is beyond ``precision`` digits."""
        form = floats.FORMATS[self.dtype]
        top = min(form.big, form.emax - 1)  # of the first s: float16 must not overflow beside it
        ranks = (top - precision - 1 - form.low) // STEP
        for each in self._batches(nodes, ranks, self.size):
            scale = 2.0 ** (top - STEP * each.rank)
            yield self._weights(each, scale, scale * 2.0**-precision), 0.0

    def kept(self, precision: int, nodes: Iterable[int]) -> Iterator[tuple[np.ndarray, float]]:
        """Weights of calls, and what comes out: these nodes keep so many digits, more than the
        dtype."""
        most = {"float16": 2**6, "bfloat16": 2**7}.get(self.dtype, 2**16)
        for each in self._batches(nodes, self.size, most):
            little = 2.0 ** -(precision - 1)
            yield self._weights(each, 1.0, little), len(each.nodes) * little

    def rounded(self, nodes: Iterable[int]) -> Iterator[tuple[np.ndarray, float]]:
        """Yields weights of calls, and what comes out: these nodes round to the dtype's nearest."""
        eps, digits = floats.eps(self.dtype), after(self.dtype)
        # what came out of nodes below is added to the little, and has to fit beside it
        most = 2 ** (floats.FORMATS[self.dtype].precision - digits - 1)
        for each in self._batches(nodes, self.size, most):
            # ties go to even, and what came from below may have made a sum odd: of 1 and 1 + eps
            # one is even with it
            for scale in (1.0, 1.0 + eps):
                yield (
                    self._weights(each, scale, eps / 2 + eps * 2.0**-digits),
                    len(each.nodes) * eps,
                )

    def root(self) -> np.ndarray:
        """Returns weights of a call that asks the root, whose sum is the output, how it rounds.

        One leaf of each side: 1, and half an ulp with as little more as the dtype can say.
        """
        row, eps = np.zeros(self.size), floats.eps(self.dtype)
        first, second = (_leaf_below(self.tree, child) for child in self.tree.nodes[-1])
        row[first], row[second] = 1.0, eps / 2 * (1 + eps)
        return row

    def alone(self, node: int, little: float) -> np.ndarray:
        """Returns weights of a call that asks one node whether it keeps this much beside 1."""
        (each,) = self._batches([node], 1, 1)
        return self._weights(each, 1.0, little)

    def _weights(
        self, ask: Ask, scale: np.ndarray | float, little: np.ndarray | float
    ) -> np.ndarray:
        row = np.zeros(self.size)
        p, q, r = ask.leaves.T
        row[p], row[q], row[r] = scale, little, -np.asarray(scale)
        return row

    def _batches(self, nodes: Iterable[int], ranks: int, most: int) -> Iterator[Ask]:
        """Yields the nodes in sets of at most ``most``, none above ``ranks`` others that are
        asked."""
        waiting = set(nodes)
        while waiting:
            rows: list[tuple[int, ...]] = []
            used: set[int] = set()  # leaves, and nodes (~n) in which something waits for its r
            ranked = [0] * len(self.tree.nodes)  # how many asked nodes follow each other below
            for above, children in enumerate(self.tree.nodes):
                rank = max((ranked[~child] for child in children if child < 0), default=0)
                for child in children:
                    if ~child not in waiting or rank >= ranks or len(rows) == most:
                        continue
                    if (paths := self._paths(child, children, used)) is not None:
                        used.update((child, *itertools.chain(*paths)))
                        rows.append((~child, *(path[-1] for path in paths), rank))
                        rank += 1
                ranked[above] = rank
            waiting.difference_update(row[0] for row in rows)
            table = np.array(rows)
            yield Ask(table[:, 0], table[:, 1:4], table[:, 4])

    def _paths(
        self, child: int, siblings: tuple[int, ...], used: set[int]
    ) -> list[list[int]] | None:
        """From a node's two children, and its sibling, down to leaves; None where others wait."""
        if child in used:
            return None
        (other,) = (sibling for sibling in siblings if sibling != child)
        paths = [self._path(start, used) for start in (*self.tree.nodes[~child], other)]
        return None if None in paths else paths  # type: ignore[return-value]

    def _distance(self, child: int) -> int:
        return 0 if child >= 0 else self.nearest[~child]  # speed alone

    def _path(self, start: int, used: set[int]) -> list[int] | None:
        path = [start]
        while path[-1] not in used:
            if path[-1] >= 0:
                return path
            free = [child for child in self.tree.nodes[~path[-1]] if child not in used]
            if not free:
                break
            # next to the node: what waits for its r then lies in few sums, and many nodes share a
            # call (six of a block of lanes, where any leaf took 71)
            path.append(min(free, key=self._distance))
        return None


PLUS, MINUS = 1.5, -1.0


def flushing_questions(tree: Tree, size: int, dtype: str) -> Iterator[tuple[np.ndarray, float]]:
    """Yields weights of calls with an input of ones, and what comes out where every node flushes.

    Leaves hold 1.5 or -1 times the smallest normal number m, or nothing. A node is *asked* by a
    child that gives 1.5 m and one that gives -m: their subnormal sum has to become zero. Other
    nodes *carry* one of the two: one child gives it, and the other one, which is asked in turn,
    gives zero. So the output is zero where the root is asked, and 1.5 m where it carries.

    An asked node that keeps its sum gives m / 2 too much. Beside it stands what its parent carries,
    so that the parent gives too much as well: 2 m, or zero for -m. From there on every sum above is
    larger than it should be by no less than m / 2, and none that is asked is subnormal any more. So
    the output is right exactly if all that were asked became zero.

    ``size``: leaves of a filter; the tree's are numbered as masks number them.
    """
    least = 2.0 ** floats.FORMATS[dtype].emin
    waiting, root, first = set(range(len(tree.nodes))), len(tree.nodes) - 1, True
    fruitless = 0
    while waiting and fruitless < 2:
        wanted = 0.0 if first else PLUS
        row, asked = _flushing_pattern(tree, size, wanted, waiting)
        fruitless = 0 if waiting & asked else fruitless + 1
        if waiting & asked:
            waiting -= asked
            yield row * least, wanted * least
        first = not first
    for node in sorted(waiting - {root}):  # its parent carries by a leaf of the other child
        row = np.zeros(size)
        p, q = (_leaf_below(tree, child) for child in tree.nodes[node])
        parent = tree.nodes[tree.parents[~node]]
        (other,) = (child for child in parent if child != ~node)
        row[[p, q, _leaf_below(tree, other)]] = PLUS, MINUS, PLUS
        yield row * least, PLUS * least


def _leaf_below(tree: Tree, child: int) -> int:
    """Returns a leaf below a child, or the child itself."""
    while child < 0:
        child = max(tree.nodes[~child])
    return child


def _flushing_pattern(
    tree: Tree, size: int, wanted: float, waiting: set[int]
) -> tuple[np.ndarray, set[int]]:
    """Weights, in units of m, and the nodes that they ask; ``wanted``: what the root gives."""
    row, asked = np.zeros(size), set[int]()
    stack = [(~(len(tree.nodes) - 1), wanted)]
    while stack:
        child, value = stack.pop()
        if child >= 0:
            row[child] = value
            continue
        one, other = tree.nodes[~child]
        if not value:
            asked.add(~child)
            stack += [(one, MINUS), (other, PLUS)]
        else:  # the child that waits is asked, and the other one carries
            one, other = sorted((one, other), key=lambda each: ~each in waiting)
            stack += [(one, value), (other, 0.0)]
    return row, asked


# Questions to one summation, above which none is asked.
BUDGET = 16384

AT_ONCE = 64  # speed alone: weights of that many calls are made at once
KEPT = 1024  # speed alone: products up to which the questions about a few summations are kept

# Fields of ``Rounding`` that are asked; a summation in which another one is set has no proof.
ASKED = {
    *("fused", "accumulator_format", "rounded", "product_format"),
    *("truncated", "intermediate_format"),
    *("flushed_inputs", "flushed_weights", "flushed_products", "flushed_whole", "flushed_sums"),
    "tininess",
}


FLUSHING = {name for name in ASKED if name.startswith("flushed_")}
EVERYWHERE = frozenset([EVERY])
# Questions about every node whose answers follow from those of ``Keeping``.
KEEPING = {"shortened"}


def words(refuted: str) -> str:
    """Returns what a promise rests on, in words; ``refuted``: what was not asked, empty if all
    was."""
    if not refuted:
        return "certified: every addition and every fusion was tested"
    return f"not contradicted, but not certified: {refuted}"


@dataclass(frozen=True)
class Certified:
    """What was asked of some outputs: ``holds`` (outputs,), bool; ``why`` nothing was, or empty."""

    holds: np.ndarray
    why: str = ""


class SummationModel:
    """A ``MaskedOperator`` of one output that adds as a summation says: what answers have to be."""

    filters = positions = 1

    def __init__(self, summation: Summation, summands: int, bias: bool, dtype: str) -> None:
        self.summation, self.summands, self.bias, self.dtype = summation, summands, bias, dtype

    def run(
        self, x: float, template: np.ndarray, leaves: np.ndarray, values: np.ndarray
    ) -> np.ndarray:
        """As ``MaskedOperator.run``."""
        w = np.repeat(template[None], len(leaves), axis=0)
        for slot, value in enumerate(values):
            rows = np.flatnonzero(leaves[:, 0, slot] >= 0)
            w[rows, leaves[rows, 0, slot]] = value
        return self.outputs(x, w)[:, None, None]

    def each(self, weights: np.ndarray) -> np.ndarray:
        """As ``MaskedOperator.each``."""
        return self.outputs(1.0, weights)[:, None, None]

    def outputs(self, x: float, w: np.ndarray) -> np.ndarray:
        """Returns the answers to calls with these weights (calls, leaves), as float64."""
        held = floats.round_to(w.T, self.dtype)
        ones = np.broadcast_to(floats.round_to(np.array(x), self.dtype), held.shape)
        bias = held[self.summands] if BIAS in self.summation.tree.leaves else None
        return floats.widen(replay(self.summation, ones, held, self.dtype, bias), self.dtype)


def certify(
    masks: Masks, summation: Summation, places: tuple[np.ndarray, ...], budget: int = BUDGET
) -> Certified:
    """Returns which outputs, ``places`` (positions, filters), answer all as this summation would.

    Its leaves are all that these outputs read: see ``Summation.restricted``. ``budget``: the most
    questions to ask. TargetError.
    """
    positions, filters = places
    operator, holds = masks.operator, np.ones(len(positions), bool)
    make = _kept if operator.summands <= KEPT else _Questions
    try:
        questions = make(summation, operator.summands, operator.bias, operator.dtype, budget)
    except Uncertifiable as error:
        return Certified(np.zeros(len(positions), bool), str(error))
    chunk = max(1, ANSWERS_AT_ONCE // (operator.positions * operator.filters))  # speed alone

    def fits(answers: np.ndarray, expected: np.ndarray) -> np.ndarray:
        return np.asarray((answers[:, positions, filters] == expected[:, None]).all(axis=0))

    if not questions.flushes:
        holds &= ~flush.flushing_outputs(masks)[:, positions, filters].any(axis=0)
    with VOICE.counted("questions", questions.count) as count:
        for question, rows, expected in questions.rows:
            for part in _counted_chunks(len(rows), chunk, count):
                leaves = np.repeat(rows[part, None], operator.filters, axis=1)
                holds &= fits(question(masks, leaves), expected[part])
        for weights, ideal in questions.weighted:
            for part in _counted_chunks(len(weights), chunk, count):
                # once every output is refuted the rest of the questions tells nothing
                if holds.any():
                    holds &= fits(masks.each(weights[part]), ideal[part])
    return Certified(holds)


def _counted_chunks(rows: int, chunk: int, count: Count) -> Iterator[slice]:
    """Yields the rows, ``chunk`` at a time, and counts those that are done."""
    for at in range(0, rows, chunk):
        yield slice(at, at + chunk)
        count.set(count.done + min(chunk, rows - at), count.total)


# Weights of calls, (calls, leaves), and what has to come out of each.
Weighted = tuple[np.ndarray, np.ndarray]


# A question, the rows of leaves that it is put to, and the summation's own answers.
LeafRows = tuple[MaskQuestion, np.ndarray, np.ndarray]


class _Questions:
    """All questions about one summation, for any operator. Uncertifiable: no proof is known."""

    def __init__(
        self, summation: Summation, summands: int, bias: bool, dtype: str, budget: int
    ) -> None:
        self.summation, self.dtype, self.left = summation, dtype, budget
        self.model = SummationModel(summation, summands, bias, dtype)
        self.size, self.bias = summands + bias, summands if bias else -1
        plain, facts = Rounding(), summation.rounding.facts()
        given = {name for name, _, value in facts if value != getattr(plain, name)}
        if unknown := given - ASKED:
            raise Uncertifiable(f"no test is known for {', '.join(sorted(unknown))}")
        if any(len(children) > 2 for children in summation.tree.nodes):
            raise Uncertifiable("some node adds three or more summands at once")
        self.flushes = bool(given & FLUSHING)
        if self.flushes and summation.rounding.flushed_sums != EVERYWHERE and summation.tree.nodes:
            raise Uncertifiable("only some subnormal sums become zero, and not each was tested")
        # the questions number the bias as masks do: behind the weights
        nodes = [
            tuple(summands if child == BIAS else child for child in node)
            for node in summation.tree.nodes
        ]
        leaves = [summands if leaf == BIAS else leaf for leaf in summation.tree.leaves]
        self.tree = Tree(tuple(leaves), tuple(nodes))
        self.rows = [each for each in self._of_products() if len(each[1])]
        self.weighted = list(self._of_sums())
        self.count = sum(len(rows) for _, rows, _ in self.rows)
        self.count += sum(len(weights) for weights, _ in self.weighted)

    def _of_sums(self) -> Iterator[Weighted]:
        """Yields what is asked with weights: cheap ones first."""
        calls = itertools.chain(
            self._keeping(),
            flushing_questions(self.tree, self.size, self.dtype) if self.flushes else (),
            separation(self.tree, self.size, self.dtype, self.left),
        )
        while some := list(islice(calls, AT_ONCE)):
            weights, ideal = map(np.array, zip(*some, strict=True))
            if (self.model.outputs(1.0, weights) != ideal).any():
                raise Uncertifiable("its partial sums would not show it")
            self._spend(len(some))
            yield weights, ideal

    def _keeping(self) -> Iterator[tuple[np.ndarray, float]]:
        """Yields the format of every node, and of the root how it is rounded to the output."""
        claimed, nodes = self.summation.rounding, range(len(self.tree.nodes) - 1)
        keeping = Keeping(self.tree, self.size, self.dtype)
        if self.tree.nodes:
            row = keeping.root()
            yield row, float(self.model.outputs(1.0, row[None])[0])
        if not self.summation.wider(self.dtype):
            yield from keeping.lost(floats.FORMATS[self.dtype].precision, nodes)
            yield from keeping.rounded(nodes)
            return
        precision = floats.format_of(str(claimed.accumulator_format)).precision
        if precision > widest(self.dtype):
            raise Uncertifiable(f"sums of {claimed.accumulator_format} are too wide to be tested")
        if not claimed.rounded:
            yield from keeping.kept(precision, nodes)
            yield from keeping.lost(precision, nodes)
            return
        if not claimed.rounded.issubset(range(len(self.tree.nodes))):
            raise Uncertifiable("it is unknown which of its partial sums are rounded")
        eps = floats.eps(self.dtype)
        for node in nodes:  # one by one: what comes out of a node would be lost in another
            if node in claimed.rounded:
                yield keeping.alone(node, eps / 2), 0.0
                yield keeping.alone(node, eps / 2 * (1 + eps)), eps
            else:
                last = 2.0 ** -(precision - 1)
                yield keeping.alone(node, last), last
                yield keeping.alone(node, last / 2), 0.0

    def _of_products(self) -> Iterator[LeafRows]:
        """Yields which products are fused, and the questions to few leaves of a tree."""
        fused = self.summation.rounding.fused
        pairs = FusedPairs(self.summation.tree, self.bias, fusion_operands(self.dtype).most)
        parts = [
            [pair for pair in batch if (pair[0] in fused) == whole]
            for batch in pairs.batches
            for whole in (True, False)
        ]
        parts = [part for part in parts if part]
        whole = np.array([len(part) * (part[0][0] in fused) for part in parts], int)
        rows = pairs_in_rows(parts, max(map(len, parts), default=1))
        yield self._row(fusion.count_fused, rows, whole)
        behind = np.isin(pairs.behind_bias[:, 0], list(fused)).astype(int)
        yield self._row(fusion.count_fused_behind_bias, pairs.behind_bias, behind)
        output = RevealedTree(self.summation.tree, np.zeros(1, int), np.zeros(1, int))
        piece = FusionPiece(output, pairs, True, wide=self.summation.wider(self.dtype))
        piece.parts = [(part, np.array([count])) for part, count in zip(parts, whole, strict=True)]
        piece.answers["behind"] = behind[:, None]
        for each in rounding.QUESTIONS:
            if each.asked(self.dtype, piece.wide, True) and each.name not in KEEPING:
                yield self._row(each.question, each.leaves(piece))
        if self.flushes:
            for _, ask, sets_of in flush.QUESTIONS:
                yield self._row(ask, flush.sets_in_rows(sets_of(Masks(self.model), piece)))

    def _row(
        self, question: MaskQuestion, rows: np.ndarray, ideal: np.ndarray | None = None
    ) -> LeafRows:
        """``ideal``: the answers that would tell; None: whatever the summation itself answers."""
        model = Masks(self.model)
        expected = question(model, rows[:, None])[:, 0, 0] if len(rows) else np.zeros(0, int)
        if ideal is not None and (expected != ideal).any():
            raise Uncertifiable("its results would not show fusion")
        self._spend(model.calls)
        return question, rows, expected

    def _spend(self, calls: int) -> None:
        self.left -= calls
        if self.left < 0:
            raise Uncertifiable("it takes more calls than are allowed")


_kept = lru_cache(maxsize=32)(_Questions)
