"""Reveals which input every output reads, and which it reads without a weight for them.

The first is exact: nothing is rounded. Where there are weights, one of a filter is 1, the others 0,
and every input element is a number that names it: what comes out is the name of the element that
this weight meets, 0 where it meets padding. Filters of one group carry other weights in the same
call; numbers too long for the dtype go in digits. Pooling has no weights, but channels and batch
entries are pooled apart: each has one element set, and the outputs that show it read it.

A kernel may read beyond a window, a neighbouring row or place, and multiply it by a zero of its
own: such inputs *reach* the output. No finite number shows that, for 0 * x is 0; a NaN or an
infinity gets through. So every input is made infinite at once while all weights are positive: a sum
of its products alone is infinite, and one that has 0 * inf among them is NaN. One call so tells
that nothing reaches any output, which is the usual case. Else infinities are put into sets of
elements: an output whose window lies outside of a set is NaN only if something of the set reached
it, and where it is not, nothing of it did. Sets are slabs of one axis (batch entries, places along
a spatial axis, groups of channels), so that a few for each axis ask every output about everything
it does not read: about 2 log2(rows) calls for the rows of a product, twice the window's extent and
4 log2 for an axis of a convolution.

A window's own elements may be read a second time so, which turns its infinities into NaN; they are
found alike. Weights are asked in the same way: those of other filters, and an output's own where
its window meets padding.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from probe.case import floats
from probe.case.case import Case
from probe.case.errors import NotASum
from probe.order.masks import SessionOperator, edit_offsets
from probe.order.window import Geometry
from probe.targets.launch import AnySession

# Digits for operators that round: below this base; as far from a whole number as an answer may be.
#
# A Winograd convolution of such digits is off by less than 0.001 in float32.
SMALL, DOUBT = 4, 1 / 16


def reveal_windows(operator: SessionOperator) -> np.ndarray:
    """Flat index into x that each leaf meets, -1 for padding: int32 (groups, positions, leaves).

    ``positions`` are batch entries times output positions; a leaf is a weight's flat index in its
    filter. All filters of a group are taken to read alike.
    Winograd and FFT convolutions round even these sums: they are asked again in digits so small
    that the nearest whole number is beyond doubt. What clips its results is asked in tiny numbers,
    too. NotASum: the answers are no input's number, so the operator reads more than one element
    there, or they depend on how large the inputs are.
    """
    case: Any = operator.case  # a Case: no windows are read off recorded operations
    if case.pool:
        return as_windows(case, reveal_pool(operator.session, case))
    largest = 1 << (floats.FORMATS[case.dtype].precision - 1)
    tiny = 2.0**-13 if case.dtype == "float16" else 2.0**-60
    predicted = as_predicted(case)
    answers: list[np.ndarray] = []
    refused: NotASum | None = None
    for base, doubt, scale in ((largest, 0.0, 1.0), (largest, 0.0, tiny), (SMALL, DOUBT, 1.0)):
        try:
            answer = _windows_by_names(operator, base, doubt, scale)
        except NotASum as error:
            refused = error
            continue
        if np.array_equal(answer, predicted):
            return answer
        # What is clipped, or rounded to whole numbers, names inputs of its own making: windows
        # that aren't where the padding puts them take two sizes of numbers that agree.
        if any(np.array_equal(answer, other) for other in answers):
            return answer
        answers.append(answer)
    if len(answers) == 1:  # the others were refused: numbers that round
        return answers[0]
    raise refused or NotASum("which input an output shows depends on how large the inputs are")


def as_predicted(case: Case) -> np.ndarray:
    """The windows that the case's padding implies, as ``reveal_windows`` has them.

    Flat indices into x of the products of each output; -1 is padding.
    """
    spatial = Geometry.of(case).reads()[None, :, :, None]
    width = case.in_channels // case.groups
    channel = np.arange(case.in_channels).reshape(case.groups, 1, 1, width)
    entry = np.arange(case.batch)[:, None, None, None, None] * math.prod(case.spatial())
    flat = np.where(spatial < 0, -1, (entry + spatial) * case.in_channels + channel)
    return flat.transpose(1, 0, 2, 3, 4).reshape(case.groups, -1, case.summands).astype(np.int32)


def _windows_by_names(
    operator: SessionOperator, base: int, doubt: float, scale: float
) -> np.ndarray:
    """Reads windows off inputs that hold their own number, digit by digit to ``base`` and times
    ``scale``. An answer may be off a whole number by ``doubt``."""
    case: Any = operator.case  # a Case: no windows are read off recorded operations
    n, width = operator.summands, case.filters // case.groups
    turns = np.full((-(-n // width), width), -1)  # filters of a group take turns with a weight
    turns.reshape(-1)[:n] = np.arange(n)
    leaves = np.tile(turns, (1, case.groups))[:, :, None]
    template = np.zeros(n + int(operator.bias))
    names = np.arange(1, np.prod(case.input_shape()) + 1).reshape(case.input_shape())
    names_met = np.zeros((case.groups, operator.positions, n), np.int64)
    weight = 1
    while weight <= names.size:
        digits = names // weight % base
        answers = operator.run(digits * scale, template, leaves, np.ones(1)) / scale
        # beyond 2^53 every float64 is whole; NaN and infinities are refused alike
        exact = np.abs(answers) < 2.0**53
        if not exact.all() or (np.abs(answers - np.rint(answers)) > doubt).any():
            raise NotASum(
                "a single weight of 1 gives an output that is not an integer, from integer inputs"
            )
        by_filter = answers.reshape(len(turns), operator.positions, case.groups, width)
        by_leaf = by_filter.transpose(2, 1, 0, 3).reshape(case.groups, operator.positions, -1)
        names_met += weight * by_leaf[:, :, :n].round().astype(np.int64)
        weight *= base
    if names_met.min() < 0 or names_met.max() > names.size:
        raise NotASum("a single weight of 1 gives an output that is not an element of the input")
    return (names_met - 1).astype(np.int32)


@dataclass(frozen=True)
class PoolWindows:
    """What ``reveal_pool`` found for every output position of a channel.

    ``reads``: bool (positions, spatial elements). ``counted``: float64 (positions,), what an
    average divides by, 1 for a maximum. ``pad_with``: ``nothing`` or ``zeros``, see ``Case``;
    empty where no window meets padding, so that nothing can be told.
    """

    reads: np.ndarray
    counted: np.ndarray
    pad_with: str


def reveal_pool(session: AnySession, case: Case) -> PoolWindows:
    """Reads off the windows of a pooling case (its length set): elements / lanes + 2 calls.

    All channels are taken to be pooled alike. NotASum: they are not pooled apart.
    """
    size, lanes = math.prod(case.spatial()), case.batch * case.in_channels
    element = np.arange(-(-size // lanes) * lanes).reshape(-1, lanes)
    # channels and batch entries are pooled apart: each of them tests another element in the same
    # call
    entry, channel = np.divmod(np.arange(lanes), case.in_channels)
    flat = (entry * size + element) * case.in_channels + channel
    sets = [row[at] for row, at in zip(flat, element < size, strict=True)]
    answers = _outputs_of_edits(session, case, "inputs", (0.0, 1.0), 1.0, sets)
    shown = answers.reshape(len(flat), case.batch, -1, case.in_channels) != 0
    reads = shown.transpose(2, 0, 1, 3).reshape(shown.shape[2], -1)[:, :size]
    alone = np.arange(size) * case.in_channels  # all of the first channel of the first entry
    sets = [alone, np.arange(size * lanes)]
    first, ones = _outputs_of_edits(session, case, "inputs", (0.0, 1.0), 1.0, sets)
    mixed = first.reshape(case.batch, -1, case.in_channels)
    if (mixed != 0).sum() != (mixed[0, :, 0] != 0).sum():
        raise NotASum("an element of one channel shows in the outputs of another one")
    read, counted, padded = reads.sum(axis=1), np.ones(len(reads)), False
    padding = bool((read != math.prod(case.kernel)).any())
    if case.pool != "max":
        counted = np.rint(read / floats.widen(ones, case.dtype)[0, ..., 0].reshape(-1))
        padded = bool((counted != read).any())
    elif padding:  # a maximum of elements that are all -1 is 0 where padding takes part
        arrays = {
            "x": floats.round_to(np.full(case.input_shape(), -1.0), case.dtype),
            "w": floats.round_to(np.ones(case.weight_shape), case.dtype),
        }
        _, run = session.request({"do": "run", "spec": case.spec()}, arrays)
        padded = bool((floats.widen(run["y"], case.dtype) == 0).any())
    return PoolWindows(reads, counted, ("zeros" if padded else "nothing") if padding else "")


def _outputs_of_edits(
    session: AnySession,
    case: Case,
    mode: str,
    constants: tuple[float, float],
    value: float,
    *sets: Sequence[np.ndarray],
) -> np.ndarray:
    """Container outputs, (calls, *output), for constant x and w of which elements are set.

    ``mode``: ``"inputs"`` or ``"weights"``. ``sets``: flat indices of each call whose elements
    become ``value``; a second one is of the bias, which is 0.
    """
    x, w = constants
    numbers = {"x": np.full(case.input_shape(), x), "w": np.full(case.weight_shape, w)}
    if case.bias is not None:
        numbers["b"] = np.zeros(case.filters)
    arrays: dict[str, np.ndarray] = {}
    for prefix, edited in zip(("", "b_"), sets, strict=False):
        arrays[prefix + "offsets"] = edit_offsets(list(map(len, edited)))
        arrays[prefix + "flat"] = np.concatenate(edited).astype(np.int64)
        numbers[prefix + "values"] = np.full(len(arrays[prefix + "flat"]), value)
    arrays |= {name: floats.round_to(array, case.dtype) for name, array in numbers.items()}
    header = {"do": "masks", "spec": case.spec(), "mode": mode}
    return np.concatenate([answer["outputs"] for _, answer in session.stream(header, arrays)])


def as_windows(case: Case, pool: PoolWindows) -> np.ndarray:
    """Returns the flat index into x that each place of a window holds, -1 for padding, as
    ``reveal_windows``.

    int32 (groups, positions, leaves). Places of a window can't be told apart, so what is read
    stands where the case's padding has it; what is read against it stands in the places left.
    """
    predicted = Geometry.of(case).reads()
    spatial = np.full(predicted.shape, -1, np.int64)
    for position, (row, held) in enumerate(zip(predicted, pool.reads, strict=False)):
        where = (row >= 0) & held[row]
        spatial[position, where] = row[where]
        unplaced = np.setdiff1d(np.flatnonzero(held), row)
        free = np.flatnonzero(~where)[: len(unplaced)]
        spatial[position, free] = unplaced[: len(free)]
    size = math.prod(case.spatial())
    entry = np.arange(case.batch)[:, None, None] * size
    channel = np.arange(case.in_channels)[:, None, None, None]
    flat = (entry + spatial) * case.in_channels + channel
    flat = np.where(spatial < 0, -1, flat)
    return flat.reshape(case.in_channels, -1, len(spatial.T)).astype(np.int32)


# Calls that may be spent on naming the elements that reach outputs.
MOST = 1024

# Elements that are edited in one request: some 50 MB travel.
EDITS = 1 << 22  # speed alone

# Outputs times elements of an axis that are looked through when elements are named.
ROWS = 1 << 22  # speed alone

# Positions times groups, the first ones, of which it is said what reaches them.
NAMED = 512


@dataclass(frozen=True)
class ReachedOutputs:
    """What reaches the outputs at one position of one group of filters with a weight of 0.

    ``position``: batch entries times output positions. ``inputs``: flat indices into x. ``exact``:
    each of them reaches it; else one of them does, and which was not told apart.
    """

    position: int
    group: int
    inputs: np.ndarray
    exact: bool


@dataclass
class Reach:
    """What was asked of a case, and found. Bool arrays are (positions, filters).

    ``inputs``: elements of x reach the output with a weight of 0, besides those that its window
    reads with their own, or these a second time. ``weights``: those of other filters do.
    ``padding``: padded places are multiplied, so that an infinite weight there makes a
    NaN (0 * inf). ``named``: which elements they are, where that was asked. ``calls``: what it
    cost.
    """

    case: Case
    inputs: np.ndarray
    weights: np.ndarray
    padding: np.ndarray
    named: list[ReachedOutputs] = field(default_factory=list)
    calls: int = 0

    @property
    def outputs(self) -> np.ndarray:
        """Outputs that something reaches beyond what they read; padding is not counted."""
        return np.asarray(self.inputs | self.weights)

    @property
    def any(self) -> np.ndarray:
        """Outputs that are reached by anything, their own padding included."""
        return np.asarray(self.outputs | self.padding)

    def to_json(self) -> dict[str, Any]:
        """The key ``reach``: how many outputs are reached, by what; {} where none is."""
        counts = {name: int(getattr(self, name).sum()) for name in ("inputs", "weights", "padding")}
        reached = {name: count for name, count in counts.items() if count}
        return {"reach": reached} if reached else {}


def reveal_reach(session: AnySession, case: Case) -> Reach:
    """Reveals what reaches every output of ``case`` (its length set): which elements of x, and
    weights too.

    Two calls where nothing reaches anything. A pooling case has nothing to ask. Errors:
    TargetError.
    """
    questions = _ReachQuestions(session, case)
    if questions.inputs():
        questions.result.named = _Names(questions).found()
    questions.weights()
    return questions.result


def reached_by(
    session: AnySession, case: Case, x: np.ndarray, w: np.ndarray, b: np.ndarray | None
) -> Reach:
    """Finds outputs that the infinities and NaNs of these container operands reach.

    Infinities are put in their places into finite operands, so that what comes out NaN was made so
    by them. ``named`` has candidates: those that were not shown to be harmless. Errors:
    TargetError.
    """
    odd = [None if a is None else ~floats.is_finite(a, case.dtype) for a in (x, w, b)]
    questions = _ReachQuestions(session, case, odd)
    if questions.inputs():
        questions.result.named = _Names(questions).candidates()
    questions.weights()
    return questions.result


def reach_of_inputs(session: AnySession, case: Case) -> Reach:
    """Finds outputs that inputs without a weight for them reach: one call."""
    questions = _ReachQuestions(session, case)
    questions.inputs()
    return questions.result


@dataclass(frozen=True)
class Axis:
    """An axis of x with what the outputs read along it: int64 (outputs, reads), -1 for padding."""

    size: int
    reads: np.ndarray

    def sets(self) -> Iterator[np.ndarray]:
        """Sets of the axis, bool (size,), that ask every output about all that it doesn't read.

        For every output and every index outside of its window there is a set that has the index
        and nothing of the window. Sets are indices alike modulo twice the extent, then blocks as
        wide as the extent and wider: a window lies in two neighbouring ones of them, and of four in
        turn two are free.
        """
        highest = self.reads.max(axis=1, initial=-1)
        lowest = np.where(self.reads < 0, self.size, self.reads).min(axis=1, initial=self.size)
        extent = max(int((highest - lowest).max(initial=0)) + 1, 1)
        index = np.arange(self.size)
        if self.size == 1 and (highest >= 0).all():  # every output reads it
            return
        near = min(max(2 * extent, 4), self.size)
        for phase in range(near):
            yield index % near == phase
        width = 4 if extent == 1 else extent
        while near < self.size:
            blocks = index // width
            for phase in range(min(4, int(blocks[-1]) + 1)):
                yield blocks % 4 == phase
            if blocks[-1] < 4:
                return
            width *= 4 if extent == 1 else 2

    def apart(self, members: np.ndarray) -> np.ndarray:
        """Outputs that read nothing of a set: bool (outputs,)."""
        inside = (self.reads >= 0) & members[self.reads]
        return np.asarray(~inside.any(axis=1))


Odd = Sequence[np.ndarray | None]
Hit = tuple[int, np.ndarray, np.ndarray, np.ndarray]


class _ReachQuestions:
    """Questions to one case. ``odd``: where x, w and b may be infinite; None: everywhere."""

    def __init__(self, session: AnySession, case: Case, odd: Odd | None = None) -> None:
        self.session, self.case, self.odd = session, case, odd
        shape = case.output_shape()
        self.positions = math.prod(shape[:-1])
        none = np.zeros((self.positions, case.filters), bool)
        self.result = Reach(case, none, none.copy(), none.copy())
        self.geometry = geometry = Geometry.of(case)
        same = [np.arange(size)[:, None] for size in (case.batch, case.groups)]
        spatial = []
        for axis, size in enumerate(geometry.sizes):
            reads = geometry.axis_reads(axis)
            spatial.append(Axis(size, np.where((reads >= 0) & (reads < size), reads, -1)))
        self.axes = [Axis(case.batch, same[0]), *spatial, Axis(case.groups, same[1])]
        self.width = case.filters // case.groups
        self.out = (case.batch, *geometry.outputs, case.groups, self.width)

    def inputs(self) -> bool:
        """Asks about all of x at once: whether anything reaches an output; nothing of a pool."""
        if self.case.pool:
            return False
        elements = np.arange(math.prod(self.case.input_shape()))
        (nan,) = self.ask("x", [elements])
        self.result.inputs |= nan.reshape(self.result.inputs.shape)
        return bool(nan.any())

    def hits(self) -> list[Hit]:
        """Asks about x: (axis, its set, asked outputs, NaN ones), both bool of shape ``out``."""
        count = len(self.axes)
        sets = [(at, members) for at, axis in enumerate(self.axes) for members in axis.sets()]
        chosen = [
            self.elements([members if at == axis else None for at in range(count)])
            for axis, members in sets
        ]
        hits = []
        for (axis, members), nan in zip(sets, self.ask("x", chosen), strict=True):
            shape = [1] * len(self.out)
            shape[axis] = self.out[axis]
            wanted = np.broadcast_to(self.axes[axis].apart(members).reshape(shape), self.out)
            hits.append((axis, members, wanted, nan.reshape(self.out)))
        return hits

    def elements(
        self, members: Sequence[np.ndarray | None], channel: int | None = None
    ) -> np.ndarray:
        """Flat indices of a product of sets, one an axis (None: all); ``channel`` of its group."""
        index = [
            np.arange(axis.size) if chosen is None else np.flatnonzero(chosen)
            for axis, chosen in zip(self.axes, members, strict=True)
        ]
        inner = self.case.group_channels
        channels = np.arange(inner) if channel is None else np.array([channel])
        index[-1] = (index[-1][:, None] * inner + channels).reshape(-1)
        shape = self.case.input_shape()
        return np.ravel_multi_index(np.ix_(*index), shape).reshape(-1)

    def weights(self) -> None:
        """Asks about the weights: all at once, then those at padding and of other filters."""
        case, result = self.case, self.result
        if not case.weighted:
            return
        elements = np.arange(math.prod(case.weight_shape))
        (nan,) = self.ask("w", [elements], [np.arange(case.filters)])
        reached = nan.reshape(self.positions, case.filters)
        if not reached.any():
            return
        # a weight that meets padding may be multiplied with it
        padded = np.tile(self.geometry.reads() < 0, (case.batch, 1))
        places = np.flatnonzero(padded.any(axis=0)).tolist()
        inner = case.group_channels * case.filters
        chosen = [np.arange(place * inner, (place + 1) * inner) for place in places]
        for place, nan in zip(places, self.ask("w", chosen), strict=True):
            result.padding |= nan.reshape(reached.shape) & padded[:, place, None]
        # the weights, and the bias, of other filters
        sets = list(Axis(case.filters, np.arange(case.filters)[:, None]).sets())
        rows = np.arange(case.summands)[:, None] * case.filters
        biased = [np.flatnonzero(members) for members in sets]
        chosen = [(rows + filters).reshape(-1) for filters in biased]
        for members, nan in zip(sets, self.ask("w", chosen, biased), strict=True):
            result.weights |= nan.reshape(reached.shape) & ~members
        result.weights |= reached & ~result.padding

    def ask(
        self, which: str, chosen: Sequence[np.ndarray], biased: Sequence[np.ndarray] | None = None
    ) -> Iterator[np.ndarray]:
        """Puts infinities at each set, and yields where the output is NaN: bool (*output,).

        ``which``: x or w; ``chosen``: flat indices. ``biased``: of the bias beside them, if there
        is one. Sets without anything that may be infinite are not asked.
        """
        case = self.case
        edits = [self.chosen("xwb".index(which), elements) for elements in chosen]
        edits_b = [np.zeros(0, int)] * len(edits)
        if biased is not None and case.bias is not None:
            edits_b = [self.chosen(2, elements) for elements in biased]
        calls = [n for n, elements in enumerate(edits) if len(elements) or len(edits_b[n])]
        mode = "inputs" if which == "x" else "weights"
        # so small that sums of finite products can not overflow into an infinity of their own
        small = 2.0 ** -min(math.ceil(math.log2(case.summands)), 10) if case.weighted else 1.0
        answers: dict[int, np.ndarray] = {}
        for part in _parts_by_edits(calls, list(map(len, edits))):
            sets = [[edits[n] for n in part]]
            if which == "w" and case.bias is not None:
                sets.append([edits_b[n] for n in part])
            outputs = _outputs_of_edits(self.session, case, mode, (1.0, small), np.inf, *sets)
            nan = np.isnan(floats.widen(outputs, case.dtype))
            answers |= zip(part, nan.reshape(len(part), *case.output_shape()), strict=True)
        self.result.calls += len(calls)
        nothing = np.zeros(case.output_shape(), bool)
        for number in range(len(edits)):
            yield answers.get(number, nothing)

    def chosen(self, operand: int, flat: np.ndarray) -> np.ndarray:
        """Leaves elements that may be infinite, of an operand's flat indices."""
        if self.odd is None:
            return flat
        odd = self.odd[operand]
        return flat[:0] if odd is None else flat[odd.reshape(-1)[flat]]


def _parts_by_edits(calls: Sequence[int], sizes: Sequence[int]) -> Iterator[list[int]]:
    """Calls in parts of up to ``EDITS`` edits, one call at least."""
    part: list[int] = []
    total = 0
    for call in calls:
        if part and total + sizes[call] > EDITS:
            yield part
            part, total = [], 0
        part.append(call)
        total += sizes[call]
    if part:
        yield part


class _Names:
    """Which elements reach outputs: what was not shown to be harmless, then asked one by one.

    A row is a position and a group of filters. Every set is a slab of an axis, so what is left for
    a row is a product of sets, one an axis.
    """

    def __init__(self, questions: _ReachQuestions) -> None:
        self.asked = questions
        case, out = questions.case, questions.out
        rows = np.argwhere(questions.result.inputs.reshape(out).any(axis=-1))
        most = ROWS // sum(axis.size for axis in questions.axes)
        self.rows = rows[: min(max(1, most), NAMED)]
        at = tuple(self.rows.T)
        self.left = [np.ones((len(self.rows), axis.size), bool) for axis in questions.axes]
        for axis, members, wanted, nan in questions.hits():
            # an output that was asked and is a number shows that nothing of the set reaches it
            clean = np.asarray(wanted.any(axis=-1) & ~nan.any(axis=-1))[at]
            self.left[axis][clean] &= ~members
        self.group = self.rows[:, -1]
        position = self.rows[:, :-1]
        self.position = np.ravel_multi_index(tuple(position.T), out[:-2])
        self.inner = case.group_channels

    def candidates(self) -> list[ReachedOutputs]:
        """Elements that were not shown to be harmless, without more questions."""
        left = [self.asked.chosen(0, self._elements(row, None)) for row in range(len(self.rows))]
        return [self._named(row, inputs, len(inputs) == 1) for row, inputs in enumerate(left)]

    def found(self) -> list[ReachedOutputs]:
        """Names what reaches each row. It is asked in colours: sets of which a row has one element
        left."""
        steps = [_step(left) for left in self.left]
        colours = math.prod(steps)
        if colours > MOST:
            return self.candidates()
        channels: Sequence[int | None] = [None]
        if colours * self.inner <= MOST:
            channels = range(self.inner)
        exact = channels[0] is not None or self.inner == 1
        inputs: list[list[np.ndarray]] = [[] for _ in self.rows]
        sets, about = [], []
        for colour in np.ndindex(*steps):
            members = [
                np.arange(axis.size) % step == phase
                for axis, step, phase in zip(self.asked.axes, steps, colour, strict=True)
            ]
            for channel in channels:
                sets.append(self.asked.elements(members, channel))
                about.append((members, channel))
        for (members, channel), nan in zip(about, self.asked.ask("x", sets), strict=True):
            shown = np.asarray(nan.reshape(self.asked.out).any(axis=-1))[tuple(self.rows.T)]
            for row in np.flatnonzero(shown).tolist():
                inputs[row].append(self._elements(row, members, channel))
        return [
            self._named(row, np.unique(np.concatenate(elements)), exact)
            for row, elements in enumerate(inputs)
            if elements and sum(map(len, elements))
        ]

    def _elements(
        self, row: int, members: Sequence[np.ndarray] | None, channel: int | None = None
    ) -> np.ndarray:
        """Flat indices that are left for a row, within these sets."""
        left = [sets[row] for sets in self.left]
        if members is not None:
            left = [sets & chosen for sets, chosen in zip(left, members, strict=True)]
        return self.asked.elements(left, channel)

    def _named(self, row: int, inputs: np.ndarray, exact: bool) -> ReachedOutputs:
        return ReachedOutputs(int(self.position[row]), int(self.group[row]), inputs, exact)


def _step(left: np.ndarray) -> int:
    """The smallest step modulo which no two elements left of a row meet: 1 up to the axis."""
    size = left.shape[1]
    for step in range(int(left.sum(axis=1).max(initial=1)), size):
        padded = np.pad(left, ((0, 0), (0, -size % step)))
        if padded.reshape(len(left), -1, step).sum(axis=1).max(initial=0) <= 1:
            return step
    return size
