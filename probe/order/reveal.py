"""Reveals the tree in which every output of an operator adds its products.

``fprev`` reads one output. Here the masks are in the weights, so a call answers for all positions;
filters that share an order carry different questions in the same call; and positions are told apart
by their answers as these come in, so that memory grows with the number of different trees and not
with the number of outputs.

A wrong tree may replay by luck, so ``Answers`` asks outputs about the tree that was found for them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from probe.case import operands
from probe.order.fprev import Growth, NoTree
from probe.order.guess import LONG, fits_guess, guessed_tree
from probe.order.masks import ANSWERS_AT_ONCE, Masks, deal_questions
from probe.order.tree import BIAS, Tree

GUESSES = 4  # speed alone: trees guessed of positions that read the same leaves
SIGNATURE_PAIRS = 4  # speed alone: questions that tell filters apart; what they miss is asked again


@dataclass
class _Alike:
    """Positions that have answered alike so far, and the tree that they have in common."""

    positions: np.ndarray
    growth: Growth
    answers: list[np.ndarray] = field(default_factory=list)  # of this round, a row per chunk

    def part(self, positions: np.ndarray) -> _Alike:
        """A group of some of the positions, which is asked by itself from here on."""
        return _Alike(positions, self.growth.copy(), list(self.answers))


@dataclass(frozen=True)
class RevealedTree:
    """One tree and where it was found: filters and positions (batch x spatial, flat)."""

    tree: Tree
    filters: np.ndarray
    positions: np.ndarray


@dataclass(frozen=True)
class RefusedOutputs:
    """Outputs that fit no tree, with the answer that showed it."""

    evidence: str
    filters: np.ndarray
    positions: np.ndarray


def reveal_trees(
    masks: Masks,
    classes: np.ndarray,
    leaves: list[np.ndarray],
    apart: bool = False,
    wanted: np.ndarray | None = None,
) -> tuple[list[RevealedTree], list[RefusedOutputs]]:
    """Finds the summation tree of every wanted output.

    ``classes`` (positions,) is each position's window class and ``leaves[class]`` the leaves that
    such a position reads, ascending, the bias included. ``apart`` takes no two filters to share
    an order. ``wanted`` (positions, filters) restricts the work; None wants all. Outputs that read
    one leaf have the trivial tree, those that read none get none. Filters that are taken to share
    an order are those that answered a few questions alike; the caller checks by replay.
    """
    bias = masks.operator.summands
    if wanted is None:
        wanted = np.ones((masks.operator.positions, masks.operator.filters), bool)
    trees: list[RevealedTree] = []
    refused: list[RefusedOutputs] = []
    teams = [_Team(filters, []) for filters in _teams(masks, leaves, wanted, apart)]
    for team in teams:
        positions = np.flatnonzero(wanted[:, team.filters].any(axis=1))
        for number, read in enumerate(leaves):
            members = positions[classes[positions] == number]
            if len(members) and len(read) > 1:
                team.groups.append(_Alike(members, Growth.of(read)))
            elif len(members) and len(read):
                alone = Tree.sequential([BIAS if read[0] == bias else int(read[0])])
                trees.append(RevealedTree(alone, team.filters, members))
    if masks.size >= LONG:  # speed alone: shorter sums are not guessed
        trees += _regular(masks, teams)
    while any(team.groups for team in teams):
        _round(masks, teams)
        for team in teams:
            groups, team.groups = team.groups, []
            for group in groups:
                answers, group.answers = np.concatenate(group.answers), []
                try:
                    group.growth.grow(answers)
                except NoTree as error:
                    # may be that filters were taken to add alike and do not: the caller asks them
                    # apart
                    refused.append(RefusedOutputs(str(error), team.filters, group.positions))
                    continue
                if group.growth.open:
                    team.groups.append(group)
                else:
                    tree = group.growth.tree(bias)
                    trees.append(RevealedTree(tree, team.filters, group.positions))
    return trees, refused


def _regular(masks: Masks, teams: list[_Team]) -> Iterator[RevealedTree]:
    """Guesses trees of long sums, one position's at a time; the groups keep what must be asked.

    Guesses are over where one leaves anything open: what is asked of all groups shares its calls.
    """
    guesses = GUESSES
    for team in teams:
        groups, team.groups = team.groups, []
        for group in groups:
            left = group.positions
            for _ in range(guesses):
                tree = guessed_tree(masks, team.filters, int(left[0]), group.growth.read)
                if tree is None:
                    break
                fits = fits_guess(masks, team.filters, left, tree)
                if fits.any():
                    yield RevealedTree(tree, team.filters, left[fits])
                left = left[~fits]
                if not len(left) or not fits.any():
                    break
            if len(left):
                team.groups.append(group.part(left))
                guesses = 0


@dataclass
class _Team:
    """Filters that share their orders, and the groups of positions still being worked on."""

    filters: np.ndarray
    groups: list[_Alike]


def _teams(
    masks: Masks, leaves: list[np.ndarray], wanted: np.ndarray, apart: bool
) -> list[np.ndarray]:
    """Filters in sets that answer a few questions alike at all positions where any is wanted."""
    active, positions = np.flatnonzero(wanted.any(axis=0)), np.flatnonzero(wanted.any(axis=1))
    widest = max(leaves, key=len)
    if apart or len(active) < 2 or len(widest) < 3:
        return [np.array([f]) for f in active] if apart else [active] * bool(len(active))
    n = len(widest)
    # speed alone: neighbours tell vector lanes and unrolled loops apart, the middle tells blocks
    picks = [(0, 1), (0, 2), (0, 4), (0, n // 2)]  # speed alone
    picks += [(n // 2, n - 1), (n // 3, 2 * n // 3)]  # speed alone
    pairs = list(dict.fromkeys(p for p in picks if p[0] < p[1] < n))[:SIGNATURE_PAIRS]
    ask = np.full((len(pairs), masks.operator.filters, 2), -1)
    for row, (i, j) in enumerate(pairs):
        ask[row, active] = widest[i], widest[j]
    survivors = masks.survivors(ask)[:, positions[:, None], active]
    answers = np.nan_to_num(survivors, nan=-1, posinf=-2, neginf=-3)
    # answers where a position does not read both leaves are only +-M; signs tell nothing
    signature = np.clip(answers, -4, None).reshape(-1, len(active))  # speed alone
    _, label = np.unique(signature, axis=1, return_inverse=True)
    label = label.reshape(-1)
    return [active[label == value] for value in range(label.max() + 1)]


def _round(masks: Masks, teams: list[_Team]) -> None:
    """Asks what all groups of all teams want to know; splits them as the answers come in.

    A team's questions are the pairs of leaves of its groups, each once.
    """
    wanted = [[_pairs(group, masks.size) for group in team.groups] for team in teams]
    keys = [np.unique(np.concatenate(pairs or [np.zeros(0, int)])) for pairs in wanted]
    queues = [np.stack(np.divmod(numbers, masks.size), axis=1) for numbers in keys]
    for leaves, parts in deal_questions(masks, [team.filters for team in teams], queues):
        survivors = masks.survivors(leaves)
        for part in parts:
            team, table = teams[part.team], part.table(survivors)
            pieces: list[_Alike] = []
            for group in team.groups:
                rows = np.searchsorted(keys[part.team], _pairs(group, masks.size))
                rows = rows[(rows >= part.start) & (rows < part.stop)] - part.start
                pieces += _distribute(group, table, rows)
            team.groups = pieces


def _pairs(group: _Alike, size: int) -> np.ndarray:
    """The group's questions as ascending numbers: first leaf * size + other leaf."""
    pairs = group.growth.pairs()
    return np.asarray(pairs[:, 0] * size + pairs[:, 1])


def _distribute(group: _Alike, table: np.ndarray, rows: np.ndarray) -> Iterator[_Alike]:
    """Notes the answers of a group; where positions answered differently, it falls into parts."""
    if not len(rows):
        yield group
        return
    answers = table[np.ix_(rows, group.positions)]
    if (answers == answers[:, :1]).all():
        group.answers.append(answers[:, 0].copy())
        yield group
        return
    label = column_labels(answers)
    for value in range(label.max() + 1):
        members = np.flatnonzero(label == value)
        part = group.part(group.positions[members])
        part.answers.append(answers[:, members[0]].copy())
        yield part


def column_labels(table: np.ndarray) -> np.ndarray:
    """Numbers equal columns alike, by a 64-bit hash of their bits."""
    # to sort the columns themselves costs rows times as much; that two of a million different ones
    # get one number has a chance of 3 in 10^8
    bits = np.ascontiguousarray(table, np.float64).view(np.uint64)
    rng = np.random.default_rng(0x5EED)  # speed alone
    factors = rng.integers(1, 2**63, len(bits), np.uint64) * 2 + 1  # speed alone
    mixed = (bits ^ (bits >> np.uint64(29))) * factors[:, None]  # speed alone
    mixed ^= mixed >> np.uint64(32)  # speed alone
    _, label = np.unique(mixed.sum(axis=0), return_inverse=True)
    return label.reshape(-1)


SHORT = 32  # summands up to which every window class is asked, and nothing is settled by replay
ASKED = 8  # questions about the order that a tree that replays has to answer too
NODES = 4  # nodes of three summands or more, of which every filter is asked in addition
EDGES = 96  # questions at most that a tree has to answer at windows that reach over an edge


class Answers:
    """Asks one call's outputs about trees found for some of them.

    ``classes`` (positions,) and ``leaves`` as ``reveal_trees`` has them. What is asked about all
    trees alike is asked once. ``positions`` and ``filters`` of the methods name outputs, in pairs.
    """

    def __init__(self, masks: Masks, classes: np.ndarray, leaves: list[np.ndarray]) -> None:
        self.masks, self.classes, self.leaves = masks, classes, leaves
        self.operator = masks.operator
        self.sizes = np.array([len(read) for read in leaves])
        self._asked: tuple[list[tuple[int, int]], np.ndarray] | None = None

    def like(self, tree: Tree, positions: np.ndarray, filters: np.ndarray) -> np.ndarray:
        """Whether outputs answer a few questions about their order as this tree would: bool each.

        Long sums in other orders may round alike on all check operands, at some outputs. The
        questions are the same for every tree, so they are put to the operator once. Short sums
        were asked for every leaf; but where filters of two orders took turns in answering, a node
        of three summands may come out that neither has, and rounds much like both.
        """
        fits = np.ones(len(positions), bool)
        # long sums of two orders agreed on all check operands at some outputs; short ones were
        # asked for every leaf
        answers = [self._everywhere()] if self.operator.summands > SHORT else []
        if len(positions) and (pairs := self._within_nodes(tree)):
            answers.append(self._ask(pairs))
        for answer in answers:
            fits &= self._match(tree, *answer, positions, filters)
        return fits

    def edges_like(self, tree: Tree, positions: np.ndarray, filters: np.ndarray) -> np.ndarray:
        """Whether outputs whose window reaches over an edge answer as this tree would.

        They are shorter sums and read few of the leaves that all are asked about, so that one block
        added differently agrees by luck at some. What neighbours in a tree answer determines it.
        """
        fits = np.ones(len(positions), bool)
        classes = self.classes[positions]
        edge = np.flatnonzero(self.sizes[classes] < self.sizes.max())
        if self.operator.summands <= SHORT or not len(edge):
            return fits
        row = np.array([self._number(leaf) for leaf in tree.written])
        reads = [row[np.isin(row, self.leaves[n])].tolist() for n in np.unique(classes[edge])]
        pairs = sorted({pair for read in reads for pair in itertools.pairwise(read)})
        # evenly from all of the tree: a block that is added differently may stand anywhere
        pairs = pairs[:: -(-len(pairs) // EDGES) or 1]
        size = self.operator.positions * self.operator.filters  # speed alone
        chunk = max(1, ANSWERS_AT_ONCE // size)  # speed alone
        for first in range(0, len(pairs), chunk):
            answers = self._ask(pairs[first : first + chunk])
            fits[edge] &= self._match(tree, *answers, positions[edge], filters[edge])
        return fits

    def _match(
        self,
        tree: Tree,
        pairs: list[tuple[int, int]],
        answers: np.ndarray,
        positions: np.ndarray,
        filters: np.ndarray,
    ) -> np.ndarray:
        """Whether outputs gave the answers of this tree; leaves that are not read tell nothing."""
        fits = np.ones(len(positions), bool)
        numbers = np.array([self._number(leaf) for leaf in tree.leaves])
        place = {number: at for at, number in enumerate(numbers.tolist())}
        classes = self.classes[positions]
        kinds = [
            (np.isin(numbers, self.leaves[kind]), np.flatnonzero(classes == kind))
            for kind in np.unique(classes)
        ]
        for (i, j), survivors in zip(pairs, answers, strict=True):
            if i not in place or j not in place:
                continue
            sizes = tree.lca_sizes(tree.leaves[place[i]])
            above = sizes > sizes[place[j]]
            for read, members in kinds:
                if read[place[i]] and read[place[j]]:
                    left = survivors[positions[members], filters[members]]
                    fits[members] &= left == (read & above).sum()
        return fits

    def _number(self, leaf: int) -> int:
        """The leaf as masks number it: the bias is the last."""
        return self.operator.summands if leaf == BIAS else leaf

    def _everywhere(self) -> tuple[list[tuple[int, int]], np.ndarray]:
        """Pairs of leaves, and the units that survive each: (pairs, positions, filters)."""
        if self._asked is None:
            widest = max(self.leaves, key=len)
            picks = operands.hashes(0, "w", 0, (ASKED, 2)) % np.uint64(len(widest))
            self._asked = self._ask([(int(widest[a]), int(widest[b])) for a, b in picks if a != b])
        return self._asked

    def _ask(self, pairs: list[tuple[int, int]]) -> tuple[list[tuple[int, int]], np.ndarray]:
        """The same pairs of leaves in every filter; what survives: (pairs, positions, filters)."""
        if not pairs:  # windows of one leaf have nothing to ask about
            return pairs, np.zeros((0, self.operator.positions, self.operator.filters))
        ask = np.broadcast_to(np.array(pairs)[:, None, :], (len(pairs), self.operator.filters, 2))
        return pairs, self.masks.survivors(ask)

    def _within_nodes(self, tree: Tree) -> list[tuple[int, int]]:
        """Pairs of leaves that meet in nodes of three summands or more, of the first such nodes."""
        lowest: list[int] = []
        pairs: list[tuple[int, int]] = []
        for children in tree.nodes:
            firsts = [lowest[~child] if child < 0 else child for child in children]
            lowest.append(firsts[0])
            # filters of two orders that took turns in answering leave nodes of three that neither
            # has
            if len(firsts) > 2 and len(pairs) < 3 * NODES:
                pairs += itertools.combinations(map(self._number, firsts[:3]), 2)
        return pairs
