"""Reveals the tree in which every output of an operator adds its products.

``fprev`` reads one output. Here the masks are in the weights, so a call answers for all positions;
filters that share an order carry different questions in the same call; and positions are told apart
by their answers as these come in, so that memory grows with the number of different trees and not
with the number of outputs.

A wrong tree may replay by luck, so ``Answers`` asks outputs about the tree that was found for them.

The trees of long sums are guessed. Asked for every pair of leaves that matters, a tree of n leaves
takes n - 1 questions where it is a chain and n log n where it is many lanes: a sum of 100,000
numbers would take minutes. But long sums are regular. What leaf 0 answers beside the others is a
few runs, in steps of the lanes, that rise evenly or stay: their ends are asked, and a few places
between. And branches of as many leaves are nearly always shaped alike: a few answers of each tell.

No guess has to be right. The answers of leaves that stand beside each other in a tree of two
summands a node leave no other tree of these leaves: the two that meet over two leaves are tied to
each other, and so on upwards, as each node's two sides meet over as many leaves as the node has. So
``fits_guess`` asks these, all of them up to ``NEIGHBOURS`` and beyond that as many, evenly from all
of the tree. What is then taken for the tree has to replay like any other; a guess that is wrong
costs calls, and everything is asked.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from probe.case import operands
from probe.order.fprev import Growth, NoTree
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
    leaves_set = np.full((len(pairs), masks.operator.filters, 2), -1)
    for row, (i, j) in enumerate(pairs):
        leaves_set[row, active] = widest[i], widest[j]
    survivors = masks.survivors(leaves_set)[:, positions[:, None], active]
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


# Neighbours in a tree that are asked about: of a sum of 4,097 products all of them.
NEIGHBOURS = 4096

# A wrong guess costs calls: these numbers were chosen by calls, speed alone.
LONG = 256  # speed alone: leaves for each filter; shorter sums take fewer calls asked for all
FEW = 12  # speed alone: leaves of a branch that are all asked
INSTANCES = 6  # speed alone: branches of as many leaves on a path that are asked, others are alike
SAMPLES = 3  # speed alone: questions that tell whether a branch is shaped as an earlier one
# answers in a row from which the steps of the lanes are read, more where these show none
WINDOWS = (16, 48, 160, 512, 2048, 8192)  # speed alone
PIECE = 4  # speed alone: questions that every end of a run takes, or thereabouts
DEEP = 100  # speed alone: branches within branches, after which a tree is not regular


class Lost(Exception):
    """The answers are not those of a regular tree, or it would take too many."""


# As ``Tree.nodes``, leaves numbered by their rank within a branch.
Nodes = list[tuple[int, ...]]
# Of a branch that was read: which leaf was asked about, what it answered, and the nodes.
Shape = tuple[int, np.ndarray, Nodes]


def guessed_tree(masks: Masks, filters: np.ndarray, position: int, read: np.ndarray) -> Tree | None:
    """The tree that the answers of an output look like; None: like none that is regular.

    ``filters`` are taken to add alike and share the questions; ``read``: the leaves that the output
    at ``position`` reads, too few of which are not worth a guess.
    """
    if len(read) < LONG * len(filters):  # speed alone
        return None
    # no more than half of what lanes cost that are asked for all
    most = len(read) * len(read).bit_length() // 2  # speed alone
    guess = _Guess(masks, filters, position, read, most)
    try:
        nodes = guess.branch(read, 0, 0)  # speed alone: a wrong tree is refuted
    except Lost:
        return None
    names = [BIAS if leaf == masks.operator.summands else int(leaf) for leaf in read]
    return Tree.from_nodes([[c if c < 0 else names[c] for c in node] for node in nodes])


def fits_guess(masks: Masks, filters: np.ndarray, positions: np.ndarray, tree: Tree) -> np.ndarray:
    """Whether outputs answer as this tree would: bool (positions,), of all ``filters`` as one."""
    leaves = [masks.operator.summands if leaf == BIAS else leaf for leaf in tree.written]
    pairs = np.array([*itertools.pairwise(leaves)])
    sizes = tree.neighbour_sizes()
    chosen = np.unique(np.linspace(0, len(pairs) - 1, min(len(pairs), NEIGHBOURS)).astype(int))
    expected = len(leaves) - sizes[chosen]
    fits = np.ones(len(positions), bool)
    for ask, parts in deal_questions(masks, [filters], [pairs[chosen]]):
        survivors = masks.survivors(ask)
        for part in parts:
            wanted = expected[part.start : part.stop, None]
            fits &= (part.table(survivors)[:, positions] == wanted).all(axis=0)
        if not fits.any():  # speed alone
            break
    return fits


class _Guess:  # speed alone
    """Reads branches, and knows again those that are shaped as earlier ones.

    ``most`` questions are asked of the output at ``position``, then it is Lost.
    """

    def __init__(
        self, masks: Masks, filters: np.ndarray, position: int, read: np.ndarray, most: int
    ) -> None:
        self.masks, self.filters, self.position = masks, filters, position
        self.read, self.left = read, most
        self.shapes: dict[int, list[Shape]] = {}

    def sizes(self, first: int, others: np.ndarray) -> np.ndarray:
        """Leaves under the node where ``first`` meets each of the others; float."""
        self.left -= len(others)
        if self.left < 0:
            raise Lost
        pairs = np.stack([np.full(len(others), first), others], axis=1)
        survive = np.empty(len(pairs))
        for ask, parts in deal_questions(self.masks, [self.filters], [pairs]):
            table = self.masks.survivors(ask)
            for part in parts:
                survive[part.start : part.stop] = part.table(table)[:, self.position]
        sizes = len(self.read) - survive
        if not ((sizes >= 2) & (sizes <= len(self.read)) & (sizes == np.rint(sizes))).all():
            raise Lost
        return sizes

    def branch(self, leaves: np.ndarray, start: int, depth: int) -> Nodes:
        """Nodes of a branch of ``leaves``, ascending; ``start``: which of them is asked."""
        if len(leaves) < 3:
            return [(0, 1)] if len(leaves) == 2 else []
        if depth > DEEP:
            raise Lost
        of_size = self.shapes.setdefault(len(leaves), [])
        for at, row, nodes in of_size:
            others = np.delete(leaves, at)
            picks = np.unique(np.linspace(0, len(others) - 1, SAMPLES).astype(int))
            if (self.sizes(int(leaves[at]), others[picks]) == row[picks]).all():
                return nodes
        at = (0, len(leaves) - 1, len(leaves) // 2)[start]
        row = LeafAnswers(self, int(leaves[at]), np.delete(leaves, at)).sizes()
        nodes = self._grow(leaves, at, row, start, depth)
        of_size.append((at, row, nodes))
        return nodes

    def _grow(self, leaves: np.ndarray, at: int, row: np.ndarray, start: int, depth: int) -> Nodes:
        """The path from leaf ``at`` to the branch's root, and what hangs on it."""
        ranks = np.delete(np.arange(len(leaves)), at)
        order = np.argsort(row, kind="stable")
        sizes, first = np.unique(row[order], return_index=True)
        hanging = np.split(ranks[order], first[1:])
        counts = np.array([len(members) for members in hanging])
        if (sizes != np.cumsum(counts) + 1).any():
            raise Lost
        shapes: dict[int, Nodes] = {}
        for count in np.unique(counts).tolist():
            poor = 3 * count > 2 * len(leaves)  # speed alone: as in fprev
            begin = (start + 1) % 3 if poor else 0
            alike = np.flatnonzero(counts == count).tolist()
            # a few branches of as many leaves are read; where these are shaped alike, so are all
            chosen = np.unique(np.linspace(0, len(alike) - 1, INSTANCES).astype(int)).tolist()
            nodes_of = {
                alike[n]: self.branch(leaves[hanging[alike[n]]], begin, depth + 1) for n in chosen
            }
            same = all(nodes is nodes_of[alike[0]] for nodes in nodes_of.values())
            for number in alike:
                if number not in nodes_of:
                    branch = leaves[hanging[number]]
                    nodes_of[number] = (
                        nodes_of[alike[0]] if same else self.branch(branch, begin, depth + 1)
                    )
            shapes |= nodes_of
        nodes: Nodes = []
        current = at
        for number, members in enumerate(hanging):
            moved, names, inner = len(nodes), members.tolist(), shapes[number]
            nodes += [tuple(names[c] if c >= 0 else c - moved for c in node) for node in inner]
            nodes.append((current, ~(len(nodes) - 1) if inner else names[0]))
            current = ~(len(nodes) - 1)
        return nodes


class LeafAnswers:  # speed alone
    """What one leaf answers beside all others of its branch, of which only some are asked."""

    def __init__(self, guess: _Guess, first: int, others: np.ndarray) -> None:
        self.guess, self.first, self.others = guess, first, others
        self.found = np.full(len(others), np.nan)

    def sizes(self) -> np.ndarray:
        """The answers, float (others,). Lost: they follow no steps."""
        if len(self.others) <= FEW:
            self._ask(np.arange(len(self.others)))
            return self.found
        step = self._step()
        lines = [np.arange(k, len(self.others), step) for k in range(step)]
        self._ask(np.array([line[-1] for line in lines]))
        waiting = [part for line in lines for part in self._gaps(line)]
        while waiting:
            # of each gap the middle, and two places more: at even distances they could all lie on
            # a line by chance
            inner = [len(line) - 2 for line in waiting]
            picks = [np.unique([n // 2, n * 5 // 7, n // 5]) for n in inner]
            places = [line[1 + pick] for line, pick in zip(waiting, picks, strict=True)]
            self._ask(np.concatenate(places))
            waiting = [part for line in waiting for part in self._resolve(line)]
        return self.found

    def _ask(self, places: np.ndarray) -> None:
        places = np.unique(places)
        places = places[np.isnan(self.found[places])]
        if len(places):
            self.found[places] = self.guess.sizes(self.first, self.others[places])

    def _step(self) -> int:
        """The number of interleaved lanes: after so many leaves the pattern repeats."""
        count, step, costs = len(self.others), 0, {0: float(len(self.others))}
        for window in WINDOWS:
            if 2 * window > count:
                break
            self._ask(np.arange(window))
            row = self.found[:window]
            costs = {}
            for step in range(1, window // 4 + 1):
                rises = row[step:] - row[:-step]
                breaks = (rises[step:] != rises[:-step])[window // 2 - step :]
                # a lane costs its ends; each place where its answers stop rising evenly, as counted
                # in the second half of the window, costs some more
                costs[step] = 4 * step + PIECE * breaks.mean() * count  # speed alone
            step = min(costs, key=lambda lanes: (costs[lanes], lanes))
            if costs[step] <= 2 * window:
                return step
        if costs[step] < count // 2:  # speed alone
            return step
        if count > 2 * WINDOWS[-1]:
            raise Lost
        self._ask(np.arange(count))
        return 1

    def _gaps(self, line: np.ndarray) -> list[np.ndarray]:
        """What is not known of a line of places, each gap with the known places on both sides."""
        answered = np.flatnonzero(~np.isnan(self.found[line]))
        return [line[a : b + 1] for a, b in itertools.pairwise(answered) if b - a > 1]

    def _resolve(self, line: np.ndarray) -> list[np.ndarray]:
        """Fills a line that rises evenly as far as it was asked; else the gaps that are left."""
        ends = self.found[line[0]], self.found[line[-1]]
        even = ends[0] + (ends[1] - ends[0]) / (len(line) - 1) * np.arange(len(line))
        seen = ~np.isnan(self.found[line])
        if (even == np.rint(even)).all() and (self.found[line][seen] == even[seen]).all():
            self.found[line] = even
            return []
        return self._gaps(line)
