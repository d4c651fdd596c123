"""Guesses a tree from a few answers, and proves it before all are asked: long sums are regular.

Asked for every pair of leaves that matters, a tree of n leaves takes n - 1 questions where it is a
chain and n log n where it is many lanes. But what leaf 0 answers beside the others is a few runs,
in steps of the lanes, that rise evenly or stay: their ends are asked, and a few places between. And
branches of as many leaves are nearly always shaped alike: a few answers of each tell.

Nothing here has to be right. A guess that is wrong is not proved, and then everything is asked.
That takes the filters to share what must be asked: the longer a sum and the fewer its filters, the
more a guess saves.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from probe.summation.masks import Masks, Proved, deal_questions
from probe.summation.proof import outputs_proved
from probe.summation.tree import BIAS, Tree

# A wrong guess is not proved and costs calls: these numbers were chosen by calls, speed alone.
FEW = 12  # speed alone: leaves of a branch that are all asked
INSTANCES = 6  # speed alone: branches of as many leaves on a path that are asked, others are alike
SAMPLES = 3  # speed alone: questions that tell whether a branch is shaped as an earlier one
# answers in a row from which the steps of the lanes are read, more where these show none
WINDOWS = (16, 48, 160, 512, 2048, 8192)  # speed alone
PIECE = 4  # speed alone: questions that every end of a run takes, or thereabouts
DEEP = 100  # speed alone: branches within branches, after which a tree is not regular
FIRST = 8  # speed alone: leaves among which one across the root is looked for


class Lost(Exception):
    """The answers are not those of a regular tree, or it would take too many."""


# As ``Tree.nodes``, leaves numbered by their rank within a branch.
Nodes = list[tuple[int, ...]]

SINGLE: Nodes = []
PAIR: Nodes = [(0, 1)]


@dataclass(frozen=True)
class _Shape:
    """A branch that was read: which leaf was asked about, what it answered, and its nodes."""

    at: int
    row: np.ndarray
    nodes: Nodes


class Asker:  # speed alone
    """Asks one output how many leaves its pairs of leaves meet over; ``most`` questions, then Lost.

    ``filters`` are taken to add alike and share the questions. ``read``: the leaves that the output
    at ``position`` reads. ``digits``: counts are read in two calls each, instead of in parts.
    """

    def __init__(
        self,
        masks: Masks,
        filters: np.ndarray,
        position: int,
        read: np.ndarray,
        most: int,
        digits: bool = False,
    ) -> None:
        self.masks, self.filters, self.position = masks, filters, position
        self.read, self.left = read, most
        self.digits = digits
        # a leaf on the other side of the root than each: no mask among the others reaches it
        self.across = np.full(masks.size, -1)
        if self.digits:
            self._find_across()

    def sizes(self, first: int, others: np.ndarray) -> np.ndarray:
        """Leaves under the node where ``first`` meets each of the others; float."""
        self.left -= len(others)
        if self.left < 0:
            raise Lost
        pairs = np.stack([np.full(len(others), first), others], axis=1)
        survive = self._exact(pairs) if self.digits else self._ask(pairs, self.masks.survivors)
        found = len(self.read) - survive
        if not ((found >= 2) & (found <= len(self.read)) & (found == np.rint(found))).all():
            raise Lost
        return found

    def split(self, first: int, others: np.ndarray, sizes: np.ndarray) -> None:
        """Told what ``first`` answers beside all others, where it can be used."""
        if self.digits:
            far = others[sizes == len(self.read)]
            if not len(far):
                raise Lost
            self.across[:] = far[0]
            self.across[far] = first

    def _ask(self, leaves: np.ndarray, question: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Answers at the position, one for every row of ``leaves``."""
        answers = np.empty(len(leaves))
        for ask, parts in deal_questions(self.masks, [self.filters], [leaves]):
            table = question(ask)
            for part in parts:
                answers[part.start : part.stop] = part.table(table)[:, self.position]
        return answers

    def _units(self, leaves: np.ndarray, values: Sequence[float] | np.ndarray) -> np.ndarray:
        """Units that survive, rounded to the dtype: all leaves hold one."""
        template = np.full(self.masks.size, self.masks.scale.unit)
        answers = self._ask(leaves, lambda ask: self.masks.run(ask, values, template=template))
        return answers / self.masks.scale.unit

    def _exact(self, pairs: np.ndarray) -> np.ndarray:
        """Units that survive, in two digits: what the dtype holds, and what is left beside that.

        In the second call a leaf that surely survives takes the first answer away.
        """
        scale = self.masks.scale
        rounded = self._units(pairs, [scale.big, -scale.big])
        found = rounded.copy()
        again = np.flatnonzero(rounded > scale.limit)
        if not np.isfinite(rounded).all():
            raise Lost
        if len(again):
            digits, which = np.unique(rounded[again], return_inverse=True)
            leaves = np.full((len(again), 2 + len(digits)), -1)
            leaves[:, :2] = pairs[again]
            leaves[np.arange(len(again)), 2 + which.reshape(-1)] = self.across[pairs[again, 0]]
            values = np.concatenate([[scale.big, -scale.big], -digits * scale.unit])
            found[again] += self._units(leaves, values) + 1
        return found

    def _find_across(self) -> None:
        """A leaf that meets the first one at the root: beside it nothing survives."""
        first, last = int(self.read[0]), len(self.read) - 1
        places = np.concatenate([np.linspace(1, last, FIRST).astype(int), last - np.arange(FIRST)])
        tried = self.read[np.unique(places[places > 0])]
        pairs = np.stack([np.full(len(tried), first), tried], axis=1)
        self.left -= len(pairs)
        left = self._units(pairs, [self.masks.scale.big, -self.masks.scale.big])
        far = tried[left == 0]
        if not len(far):
            raise Lost
        self.across[:] = far[-1]


def guess(asker: Asker, bias: int) -> Tree:  # speed alone
    """Returns the tree that the answers of an output look like. Lost: like none that is regular."""
    read = asker.read
    nodes = _Reader(asker).branch(read, 0, 0)
    names = [BIAS if leaf == bias else int(leaf) for leaf in read]
    return Tree.from_nodes([[c if c < 0 else names[c] for c in node] for node in nodes])


class _Reader:  # speed alone
    """Reads branches, and knows again those that are shaped as earlier ones."""

    def __init__(self, asker: Asker) -> None:
        self.asker = asker
        self.known: dict[int, list[_Shape]] = {}

    def branch(self, leaves: np.ndarray, start: int, depth: int) -> Nodes:
        """Returns nodes of a branch of ``leaves``, ascending; ``start``: which of them is asked."""
        if len(leaves) < 3:
            return [[], SINGLE, PAIR][len(leaves)]
        if depth > DEEP:
            raise Lost
        shapes = self.known.setdefault(len(leaves), [])
        for shape in shapes:
            if self._alike(leaves, shape):
                return shape.nodes
        at = (0, len(leaves) - 1, len(leaves) // 2)[start]
        others = np.delete(leaves, at)
        row = LeafAnswers(self.asker, int(leaves[at]), others).sizes()
        if len(leaves) == len(self.asker.read):
            self.asker.split(int(leaves[at]), others, row)
        nodes = self._grow(leaves, at, row, start, depth)
        shapes.append(_Shape(at, row, nodes))
        return nodes

    def _shapes(
        self, branches: list[np.ndarray], numbers: np.ndarray, start: int, depth: int
    ) -> dict[int, Nodes]:
        """Returns the nodes of branches of as many leaves, by their ``numbers``; not all of them
        are asked.

        A few along the path are; where these are shaped alike, so are the others.
        """
        seen = np.unique(np.linspace(0, len(branches) - 1, INSTANCES).astype(int)).tolist()
        found = {one: self.branch(branches[one], start, depth + 1) for one in seen}
        alike = all(found[one] is found[0] for one in seen)
        for one in range(len(branches)):
            if one not in found:
                found[one] = found[0] if alike else self.branch(branches[one], start, depth + 1)
        return {int(numbers[one]): nodes for one, nodes in found.items()}

    def _alike(self, leaves: np.ndarray, shape: _Shape) -> bool:
        """Returns whether a few answers are those that a branch of this shape gave."""
        others = np.delete(leaves, shape.at)
        picks = np.unique(np.linspace(0, len(others) - 1, SAMPLES).astype(int))
        asked = self.asker.sizes(int(leaves[shape.at]), others[picks])
        return bool((asked == shape.row[picks]).all())

    def _grow(self, leaves: np.ndarray, at: int, row: np.ndarray, start: int, depth: int) -> Nodes:
        """Returns the path from leaf ``at`` to the branch's root, and what hangs on it."""
        nodes: Nodes = []
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
            alike = np.flatnonzero(counts == count)
            begin = (start + 1) % 3 if poor else 0

            shapes |= self._shapes([leaves[hanging[one]] for one in alike], alike, begin, depth)
        current = at
        for number, members in enumerate(hanging):
            moved, names = len(nodes), members.tolist()
            inner = shapes[number]
            nodes += [tuple(names[c] if c >= 0 else c - moved for c in n) for n in inner]
            nodes.append((current, ~(len(nodes) - 1) if inner else names[0]))
            current = ~(len(nodes) - 1)
        return nodes


class LeafAnswers:  # speed alone
    """What one leaf answers beside all others of its branch, of which only some are asked."""

    def __init__(self, asker: Asker, first: int, others: np.ndarray) -> None:
        self.asker, self.first, self.others = asker, first, others
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
            asked = [line[1 + pick] for line, pick in zip(waiting, picks, strict=True)]
            self._ask(np.concatenate(asked))
            waiting = [part for line in waiting for part in self._resolve(line)]
        return self.found

    def _ask(self, places: np.ndarray) -> None:
        places = np.unique(places)
        places = places[np.isnan(self.found[places])]
        if len(places):
            self.found[places] = self.asker.sizes(self.first, self.others[places])

    def _step(self) -> int:
        """After how many leaves the answers go on as before."""
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
            step = min(costs, key=lambda one: (costs[one], one))
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


LONG = 40  # speed alone: leaves for each filter, from which on guess and proof take fewer calls
GUESSES = 4  # speed alone: trees guessed of positions that read the same leaves


def proved_trees(
    masks: Masks, filters: np.ndarray, positions: np.ndarray, read: np.ndarray, guesses: int
) -> tuple[list[tuple[Tree, np.ndarray]], np.ndarray]:
    """Returns the trees that were proved with their positions, and the positions that are left.

    ``filters`` are taken to add alike, and a tree counts where it is proved of all of them; the
    ``positions`` read the leaves ``read``. A guess is that of one position; where others add
    differently, one of them is asked next, up to ``guesses`` times. What was proved of an output
    before is not asked again.
    """
    found: list[tuple[Tree, np.ndarray]] = []
    left = positions

    def settle(each: Proved) -> None:
        nonlocal left
        fits = each.fits[np.ix_(left, filters)].all(axis=1)
        if fits.any():
            found.append((each.tree, left[fits]))
            left = left[~fits]

    for each in masks.proved:
        if np.array_equal(each.read, read):
            settle(each)
    for _ in range(guesses if len(read) >= LONG * len(filters) else 0):  # speed alone
        tree = _guess(masks, filters, int(left[0]), read) if len(left) else None
        if tree is None:
            break
        place = np.ix_(left, filters)
        fits = outputs_proved(masks, tree, place)
        if not fits[place][0].all():
            fits |= outputs_proved(masks, tree, place, scales=False)
        # outputs that do not replay come back here, and what is proved is not asked again
        masks.proved.append(Proved(tree, read, fits))
        before = len(left)
        settle(masks.proved[-1])
        if len(left) == before:
            break
    return found, left


def _guess(  # speed alone
    masks: Masks, filters: np.ndarray, position: int, read: np.ndarray
) -> Tree | None:
    """Returns what the tree of an output looks like; None: like no regular one.

    Counts that the dtype does not hold are first read in digits, which partial sums of 16 bits
    garble, then in parts.
    """
    # no more than half of what lanes cost that are asked for all
    most = len(read) * len(read).bit_length() // 2
    # a digit more a question is cheaper than a call for every part of the leaves
    for digits in [True, False] if masks.size > masks.scale.limit else [False]:
        try:
            asker = Asker(masks, filters, position, read, most, digits)
            return guess(asker, masks.operator.summands)
        except Lost:
            continue
    return None
