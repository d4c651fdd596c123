"""Guesses the tree of a long sum from a few answers, and asks whether it is that.

Asked for every pair of leaves that matters, a tree of n leaves takes n - 1 questions where it is a
chain and n log n where it is many lanes: a sum of 100,000 numbers would take minutes. But long sums
are regular. What leaf 0 answers beside the others is a few runs, in steps of the lanes, that rise
evenly or stay: their ends are asked, and a few places between. And branches of as many leaves are
nearly always shaped alike: a few answers of each tell.

No guess has to be right. The answers of leaves that stand beside each other in a tree of two
summands a node leave no other tree of these leaves: the two that meet over two leaves are tied to
each other, and so on upwards, as each node's two sides meet over as many leaves as the node has. So
``fits_guess`` asks these, all of them up to ``NEIGHBOURS`` and beyond that as many, evenly from all
of the tree. What is then taken for the tree has to replay like any other; a guess that is wrong
costs calls, and everything is asked.
"""

from __future__ import annotations

import itertools

import numpy as np

from probe.order.masks import Masks, deal_questions
from probe.order.tree import BIAS, Tree

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
        """Returns nodes of a branch of ``leaves``, ascending; ``start``: which of them is asked."""
        if len(leaves) < 3:
            return [(0, 1)] if len(leaves) == 2 else []
        if depth > DEEP:
            raise Lost
        known = self.shapes.setdefault(len(leaves), [])
        for at, row, nodes in known:
            others = np.delete(leaves, at)
            picks = np.unique(np.linspace(0, len(others) - 1, SAMPLES).astype(int))
            if (self.sizes(int(leaves[at]), others[picks]) == row[picks]).all():
                return nodes
        at = (0, len(leaves) - 1, len(leaves) // 2)[start]
        row = LeafAnswers(self, int(leaves[at]), np.delete(leaves, at)).sizes()
        nodes = self._grow(leaves, at, row, start, depth)
        known.append((at, row, nodes))
        return nodes

    def _grow(self, leaves: np.ndarray, at: int, row: np.ndarray, start: int, depth: int) -> Nodes:
        """Returns the path from leaf ``at`` to the branch's root, and what hangs on it."""
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
            seen = np.unique(np.linspace(0, len(alike) - 1, INSTANCES).astype(int)).tolist()
            some = {
                alike[n]: self.branch(leaves[hanging[alike[n]]], begin, depth + 1) for n in seen
            }
            same = all(nodes is some[alike[0]] for nodes in some.values())
            for number in alike:
                if number not in some:
                    branch = leaves[hanging[number]]
                    some[number] = some[alike[0]] if same else self.branch(branch, begin, depth + 1)
            shapes |= some
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
        """Returns the answers, float (others,). Lost: they follow no steps."""
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
        """Returns the number of interleaved lanes: after so many leaves the pattern repeats."""
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
        """Returns what is not known of a line of places, each gap with the known places on both
        sides."""
        known = np.flatnonzero(~np.isnan(self.found[line]))
        return [line[a : b + 1] for a, b in itertools.pairwise(known) if b - a > 1]

    def _resolve(self, line: np.ndarray) -> list[np.ndarray]:
        """Fills a line that rises evenly as far as it was asked; else the gaps that are left."""
        ends = self.found[line[0]], self.found[line[-1]]
        even = ends[0] + (ends[1] - ends[0]) / (len(line) - 1) * np.arange(len(line))
        seen = ~np.isnan(self.found[line])
        if (even == np.rint(even)).all() and (self.found[line][seen] == even[seen]).all():
            self.found[line] = even
            return []
        return self._gaps(line)
