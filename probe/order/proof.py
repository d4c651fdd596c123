"""Guesses a tree from a few answers, and proves it with few calls about many nodes each.

Long sums are regular. Asked for every pair of leaves that matters, a tree of n leaves takes n - 1
questions where it is a chain and n log n where it is many lanes. But what leaf 0 answers beside the
others is a few runs, in steps of the lanes, that rise evenly or stay: their ends are asked, and a
few places between. And branches of as many leaves are nearly always shaped alike: a few answers of
each tell. No guess has to be right: one that is wrong is not proved, and then everything is asked.
That takes the filters to share what must be asked: the longer a sum and the fewer its filters, the
more a guess saves.

Proved is a tree node by node. A node N = A + B whose sum is then added to D is shown by one
*triple*: +M at a leaf a of A, -M at a leaf b of B, one unit at a leaf d of D. The unit survives
exactly if d is not among the leaves that a and b meet over. One triple for every inner node but the
root leaves no other tree of the same leaves: by induction the triples inside of a node tie its
leaves together, whatever leaves stand for A, B and D, and the two sides of the root are tied by
nothing, so every tree that answers like this splits at its root as this one does, and so on
downwards (the graph of Aho, Sagiv, Szymanski and Ullman, 1981). That holds against trees with nodes
of three summands too, if these lose a unit beside an M, as processors' do; a node that adds exactly
lets it through, and shows in the replay. A tree that has such nodes itself is not proved here.

Many triples share a call, since a unit that is lost cannot be made up for: the outcome is the sum
of all units or it is not. Triples of disjoint nodes use an M of their own each, lest one pair
cancels the other where the tree is wrong. Triples of nodes within each other use scales: M is
smaller further out, just large enough for its own units and too small for those further in. Then a
leaf that is known to be lost holds a unit as well, which shows that M does swallow it.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from probe.case import floats, operands
from probe.order.masks import ANSWERS_AT_ONCE, Masks, Proved, Scale, deal_questions
from probe.order.tree import BIAS, Tree

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
        units, big = form.units(levels, 1 << wide), form.masks(levels, 1 << wide)
        size = np.broadcast_to(units[:, None], big.shape)
        values = np.stack([big, -big, size, size], axis=-1)
        while some := list(itertools.islice(alike, min(chunk, BATCH))):
            leaves = np.full((len(some), *big.shape, WORDS), -1)
            expected = np.zeros(len(some))
            for number, call in enumerate(some):
                for path, triples in enumerate(call.triples):
                    for level, triple in enumerate(triples):
                        leaves[number, level, path] = triple
                    expected[number] += units[: len(triples)].sum()
            used = (leaves >= 0).any(axis=0)
            ask = np.repeat(leaves[:, used][:, None], operator.filters, axis=1)
            fits &= (masks.run(ask, values[used]) == expected[:, None, None]).all(axis=0)
            if not fits.any():
                return fits
    return fits


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
        added: list[int] = []
        while child < 0:
            light, child = sorted(tree.nodes[~child], key=lambda c: heights[~c] if c < 0 else 0)
            added.append(light)
        added = [child, *reversed(added)]
        if above is not None:
            paths[above[0]].subtrees[above[1]] = len(paths)
        tops += [(item, (len(paths), place)) for place, item in enumerate(added) if item < 0]
        paths.append(_Path([], {}, above))
        items.append(added)
    for path, added in zip(reversed(paths), reversed(items), strict=True):
        path.stands = [
            paths[path.subtrees[k]].stands[0] if c < 0 else bias if c == BIAS else c
            for k, c in enumerate(added)
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
        sizes = len(self.read) - survive
        if not ((sizes >= 2) & (sizes <= len(self.read)) & (sizes == np.rint(sizes))).all():
            raise Lost
        return sizes

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
        exact = rounded.copy()
        again = np.flatnonzero(rounded > scale.limit)
        if not np.isfinite(rounded).all():
            raise Lost
        if len(again):
            digits, which = np.unique(rounded[again], return_inverse=True)
            leaves = np.full((len(again), 2 + len(digits)), -1)
            leaves[:, :2] = pairs[again]
            leaves[np.arange(len(again)), 2 + which.reshape(-1)] = self.across[pairs[again, 0]]
            values = np.concatenate([[scale.big, -scale.big], -digits * scale.unit])
            exact[again] += self._units(leaves, values) + 1
        return exact

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
        shapes = {at: self.branch(branches[at], start, depth + 1) for at in seen}
        alike = all(shapes[at] is shapes[0] for at in seen)
        for at in range(len(branches)):
            if at not in shapes:
                shapes[at] = shapes[0] if alike else self.branch(branches[at], start, depth + 1)
        return {int(numbers[at]): nodes for at, nodes in shapes.items()}

    def _alike(self, leaves: np.ndarray, shape: _Shape) -> bool:
        """Returns whether a few answers are those that a branch of this shape gave."""
        others = np.delete(leaves, shape.at)
        picks = np.unique(np.linspace(0, len(others) - 1, SAMPLES).astype(int))
        answers = self.asker.sizes(int(leaves[shape.at]), others[picks])
        return bool((answers == shape.row[picks]).all())

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

            shapes |= self._shapes([leaves[hanging[n]] for n in alike], alike, begin, depth)
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
            places = [line[1 + pick] for line, pick in zip(waiting, picks, strict=True)]
            self._ask(np.concatenate(places))
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
    trees: list[tuple[Tree, np.ndarray]] = []
    left = positions

    def settle(each: Proved) -> None:
        nonlocal left
        fits = each.fits[np.ix_(left, filters)].all(axis=1)
        if fits.any():
            trees.append((each.tree, left[fits]))
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
    return trees, left


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
