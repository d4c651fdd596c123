"""Outputs by index: those that labels pair only with elements elsewhere, or not at all.

Labels find elements that compute the same wherever they stand. That is right where a batch is
varied, and an answer to another question where both sides are given the same: ``x.roll(1)`` and
``x.roll(2)`` have the same elements, and no index has the same one. So outputs of one shape are
compared by index too. What stands elsewhere is counted as moved, and what no element of the other
side computes reads other inputs or weights, if all formulas have a match: its window differs.
Where the two sides run different operations on the same inputs, as of eager and compiled code, the
rest is taken to agree by index, as that is what was asked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from math import prod

import numpy as np

from probe.recording.difference import NAMES, Difference, Pair, judge, near
from probe.recording.matching import computes
from probe.recording.recording import Operation, Run
from probe.recording.related import NOT_CLOSE, SAME_OUTPUTS, input_bits, inputs_of
from probe.semantics import (
    MOVED,
    MOVING,
    Broadcasts,
    Contracts,
    Convolution,
    Exact,
    Joins,
    Normalises,
    Pads,
    Reduces,
    Splits,
    Unknown,
    Windows,
)
from probe.semantics.labels import Labels, tag

MOST_ROWS = 1 << 12
"""Rows of a batch up to which those of both sides are compared with each other."""

REORDERED = (
    "the rows of the inputs stand in another order in the two runs, and each output is compared "
    "with that of the same row"
)

PLACES = (Exact, Convolution, Contracts, Normalises, Reduces, Windows)
"""What differs between two operations of the same inputs only by which elements are read."""


def by_index(found: Difference, same_inputs: bool, same: bool) -> list[str]:
    """Fills in what of the outputs is moved or reads other inputs, and compares by index what is
    taken to agree; returns what is to be said.

    ``same_inputs``: whether both sides are given the same. If all of these reach both sides, an
    output is expected at its index; where one takes a part, which is how a length or a batch is
    varied, only what is moved is counted. Rows of a batch may stand in another order, if those of
    an input do. Outputs that are close by index are none of these: they are the same, computed
    differently. ``same``: whether, besides, they are of one model, and neither side takes a part;
    else only outputs that are close by index are taken to agree. Costs a look at both sides of an
    output that is not compared in its place.
    """
    said, whole, placed = dict[str, None](), None, False
    indexed = dict[int, Pair]()  # what is not compared in its place, by index
    for place, one in enumerate(found.outputs):
        mine, theirs = found.left.values[one.left], found.right.values[one.right]
        size = prod(mine.shape)
        if (mine.shape, mine.dtype) != (theirs.shape, theirs.dtype) or one.selection.whole:
            continue
        every = indexed[place] = Pair.of_all(one.left, one.right, size)
        judge(found.left, found.right, [every])
        if near(every, mine.dtype):
            continue
        if whole is None:
            given = same_inputs or _more(found)
            reached = {_reached(run) for run in (found.left, found.right)} if given else {""}
            # two crops are other questions; two ways to leave elements out are two answers to one
            whole = reached == {"all"} or "gaps" in reached
            placed = whole or _indexed(found)
        rows = _rows(found, mine.shape[0] if mine.shape else 0)
        measured = every.first is not None  # else digests alone were kept
        if not mine.floating:
            # integers are labelled by what they hold: an equal number elsewhere says nothing
            if whole and one.known and measured and not rows:
                found.outputs[place] = every
            continue
        at, to = (
            np.asarray(one.selection.taken(np.arange(size).reshape(mine.shape), side)).reshape(-1)
            for side in (0, 1)
        )
        elsewhere = at != to
        if elsewhere.any() and _by_rows(rows, size, at[elsewhere], to[elsewhere]):
            said[REORDERED] = None
            continue
        if not placed:  # what reads padding alone is the same at many places
            elsewhere &= np.bincount(to, minlength=size)[to] == 1
        one.moved = int(elsewhere.sum())
        rest = size - len(at)
        if rest and measured and one.known and (one.moved or whole):
            if not _other_formula(found):
                one.window = rest
            elif whole and not one.moved and not rows:
                found.outputs[place] = every
                said[NOT_CLOSE] = None
                continue
        if one.moved or one.window:
            one.by_index = every
    if any(one.window for one in found.outputs):
        # the first operation that reads the same on both sides, and picks other elements
        for each in found.operations:
            apart = any(not pair.selection.whole for pair in each.gives)
            alike = each.reads and all(pair.selection.whole for pair in each.reads)
            if apart and alike and each.verdict in ("equal", "unknown"):
                each.cause, each.note = "window", "reads different elements of its inputs"
                break
    if same_inputs and any(one.verdict in NAMES for one in found.operations):
        said |= _all_outputs(found, indexed, same)
    return list(said)


def _all_outputs(found: Difference, indexed: Mapping[int, Pair], same: bool) -> dict[str, None]:
    """Different operations on the same inputs: outputs that are neither moved nor read others are
    taken to agree by index; where not ``same`` those that are close, of which labels don't say all.
    """
    settled, close = dict[int, Pair](), dict[int, Pair]()
    for place, one in enumerate(found.outputs):
        every = indexed.get(place)
        if one.selection.whole:
            one.known |= same
        elif every is None or one.moved or one.window:
            continue
        elif same or one.compared < every.compared:
            settled[place] = every
            if near(every, found.left.values[one.left].dtype):
                close[place] = every
    for place, one in (settled if same else close).items():
        found.outputs[place] = one
    if same and len(close) < len(settled):
        return {NOT_CLOSE: None}  # what is not close is not assumed to mean the same
    return {SAME_OUTPUTS: None} if close else {}


def _other_formula(found: Difference) -> bool:
    """Returns whether some operation computes what has no match: then what the outputs read
    can't be told from what is computed of it."""
    for one in found.operations:
        sides = (found.left, one.left), (found.right, one.right)
        ops = [run.operations[number] for run, number in sides if number is not None]
        if len(ops) == 1 and (computes(ops[0]) and not isinstance(ops[0].meaning, Pads)):
            return True
        if any(isinstance(op.meaning, Unknown) for op in ops):
            return True
        same = one.reads and all(pair.selection.whole for pair in one.reads)
        other = any(not pair.selection.whole for pair in one.gives)
        # numbers of its own (a divisor, a factor inside a loop) change a formula too: only of two
        # operations of one kind that have none is another window proved
        alike = len({type(op.meaning) for op in ops}) == 1 and isinstance(ops[0].meaning, PLACES)
        if same and other and not alike:
            return True
    return False


def _more(found: Difference) -> bool:
    """Returns whether one side is given all that the other is, and more: a mask, an index."""
    ours, theirs = input_bits(found.left), input_bits(found.right)
    return bool(ours & theirs) and (ours <= theirs or theirs <= ours)


def _indexed(found: Difference) -> bool:
    """Returns whether both sides read all of the same inputs, and one has integers besides that
    the other has not: such as a permutation, which says where elements are to stand."""
    runs = found.left, found.right
    more = input_bits(found.left) ^ input_bits(found.right)
    values = [run.values[n] for run in runs for n in inputs_of(run)]
    if not more or not _more(found) or any(v.floating for v in values if v.digest in more):
        return False
    return {_reached(run) for run in runs} == {"all"}


def part_taken(found: Difference) -> bool:
    """Returns whether both sides take other parts of an input, or one takes it in another order,
    before anything is computed: as in ``model(x[:1])``, ``model(x.flip(0))`` against ``model(x)``.

    Then labels say which outputs must agree. Where nothing is known of an output, that is taken to
    be the difference only if both take a part or the rest runs the same operations: not eager
    against compiled.
    """
    sides = found.left, found.right
    inputs = [set(inputs_of(side)) for side in sides]
    taken, others = False, False
    for one in found.operations:
        alone = one.verdict in NAMES
        for side, number, some in zip(sides, (one.left, one.right), inputs, strict=True):
            if number is None:
                continue
            op = side.operations[number]
            if _only_moves(side, op, some):
                some.update(op.gives)
                takes = isinstance(op.meaning, (*MOVED, Joins, Splits))
                taken |= alone and takes
                if takes and any(not pair.selection.whole for pair in one.gives):
                    return True
            else:
                others |= alone
    return taken and (not others or all(one.known for one in found.outputs))


def _only_moves(run: Run, op: Operation, inputs: Collection[int]) -> bool:
    """Returns whether an operation puts elements of these values in other places, and computes
    nothing; it may read which ones besides, as known integers."""
    moves = isinstance(op.meaning, (*MOVING, Joins, Splits)) or op.meaning.word == "cast"
    some = any(n in inputs for n in op.reads)
    return moves and some and all(n in inputs or run.values[n].plain for n in op.reads)


def _places(run: Run, op: Operation, inputs: Collection[int]) -> bool:
    """Returns whether an operation moves or repeats elements of these values, or pads them."""
    more = isinstance(op.meaning, Pads | Broadcasts) and op.reads[0] in inputs
    return more or _only_moves(run, op, inputs)


def _reached(run: Run) -> str:
    """Returns how much of the inputs is computed with: ``all``, a ``part`` of some that has no gap,
    such as the first rows, a crop, or any rows of a batch; or what has ``gaps``.

    The inputs' elements are numbered, and moved as the run moves them.
    """
    names: dict[int, np.ndarray] = {}
    start = 1
    for n in inputs_of(run):
        size = prod(run.values[n].shape)
        names[n] = np.arange(start, start + size, dtype=np.uint64).reshape(run.values[n].shape)
        start += size
    used = np.zeros(start, bool)
    inputs = {n: one.astype(np.int64) for n, one in names.items()}
    computed = list(run.outputs)  # and what else is not only moved
    for op in run.operations:
        if not _places(run, op, names):
            computed += op.reads
        elif op.meaning.word == "cast":
            names.update(dict.fromkeys(op.gives, names[op.reads[0]]))
        else:
            shapes = [[run.values[n].shape for n in some] for some in (op.reads, op.gives)]
            labels = [
                Labels(shape, names.get(n, np.zeros(shape, np.uint64)))
                for n, shape in zip(op.reads, shapes[0], strict=True)
            ]
            given = op.meaning.labels(labels, shapes[1], tag(op.op))
            names.update((n, one.full()) for n, one in zip(op.gives, given, strict=True))
    for value in names.keys() & {*computed}:
        some = names[value].reshape(-1)
        used[some[some < start].astype(np.int64)] = True
    found = "all"
    for index in inputs.values():
        mask = used[index]
        if mask.all() or not mask.any():  # all of it, or it only says which elements
            continue
        if not _box(mask):
            return "gaps"
        found = "part"
    return found


def _box(mask: np.ndarray) -> bool:
    """Returns whether a mask is a part without gaps; along the first of several axes, of a batch,
    there may be some."""
    count = 1
    for axis in range(mask.ndim):
        along = np.flatnonzero(mask.any(tuple(n for n in range(mask.ndim) if n != axis)))
        if (axis or mask.ndim == 1) and along[-1] - along[0] + 1 != len(along):
            return False
        count *= len(along)
    return bool(mask.sum() == count)


def _rows(found: Difference, count: int) -> list[list[np.ndarray]]:
    """Returns numbers for the rows of inputs that are not the same in place on both sides, though
    they have some rows in common: (left's, right's), equal where the rows' bits are."""
    every = []
    for n, m in dict.fromkeys(_given(found)):
        mine, other = found.left.values[n], found.right.values[m]
        same = len(mine.shape) > 1 and mine.shape == other.shape and mine.dtype == other.dtype
        if not same or mine.digest == other.digest or not 1 < mine.shape[0] == count <= MOST_ROWS:
            continue
        arrays = found.left.array(n), found.right.array(m)
        if arrays[0] is None or arrays[1] is None:
            continue
        rows = [[row.tobytes() for row in np.asarray(one)] for one in arrays]
        numbers = {row: k for k, row in enumerate(dict.fromkeys((*rows[0], *rows[1])))}
        if {*rows[0]} & {*rows[1]}:
            every.append([np.array([numbers[row] for row in some]) for some in rows])
    return every


def _by_rows(rows: list[list[np.ndarray]], size: int, at: np.ndarray, to: np.ndarray) -> bool:
    """Returns whether elements stand where the same row of some input stands; ``at``, ``to``: flat
    indices on the left and on the right, of values of so many elements."""
    for ours, theirs in rows:
        inner = size // len(ours)
        stay = at % inner == to % inner
        if stay.all() and (ours[at // inner] == theirs[to // inner]).all():
            return True
    return False


def _given(found: Difference) -> Iterator[tuple[int, int]]:
    """Yields pairs of values that are inputs, or inputs whose elements were moved."""
    sides = found.left, found.right
    yield from zip(*map(inputs_of, sides), strict=False)
    moved = [set(inputs_of(run)) for run in sides]
    for run, some in zip(sides, moved, strict=True):
        for op in run.operations:
            some.update(op.gives if _places(run, op, some) else ())
    for one in found.operations:
        for pair in one.reads:
            if pair.left in moved[0] and pair.right in moved[1]:
                yield pair.left, pair.right
