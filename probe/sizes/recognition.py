"""Recognises the summation of every output of a call by its mark, in a few calls.

Every place of a call holds the same values, which differ by channel alone: all windows that read
the same leaves are one window, in a call of any size and wherever they stand. What comes out of
them on all sets of operands is their mark, and windows of one mark add alike. A mark is compared
with what the known summations give; only one that none of them gives is revealed.

The operands are of the kind ``cancel``: other orders give different bits. Windows that meet padding
have sets of their own, made for the leaves that they read: half a pair that cancels shows nothing.
The last sets are for accumulators of more digits than the dtype has, which lose nothing of the
others. Sets are scaled by powers of two, so that what saturates or flushes shows.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from probe.case import floats, operands, ulp
from probe.case.case import Case
from probe.case.operands import cancel_bias, cancel_weights, hashes
from probe.order import window
from probe.order.masks import Masks, SessionOperator
from probe.order.replay import replay
from probe.order.reveal import column_labels, reveal_trees
from probe.order.rounding import reveal_roundings
from probe.order.summation import Summation
from probe.order.window import Geometry
from probe.targets.launch import AnySession

SEED = 0x5EA5

# Summands up to which sums agree by luck, so that more sets are tried.
SHORT = 32

Read = tuple[int, ...]


class OperandSet(NamedTuple):
    """Container arrays. ``x``: what every place holds, (in_channels,); ``w``, ``b`` (None without a
    bias) as of the case."""

    x: np.ndarray
    w: np.ndarray
    b: np.ndarray | None


class MarkOperands:
    """The sets of operands of a case, and what summations give on them."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.all_leaves: Read = tuple(range(case.summands))
        self._sets: dict[Read, list[OperandSet]] = {}
        self._answers: dict[tuple[Summation, Read], np.ndarray] = {}

    def sets_for(self, read: Read) -> list[OperandSet]:
        """Sets for windows that read these leaves, those for wider accumulators last: 4 and 4 for
        long sums, 16 and 8 for short ones, half as many where padding is met. float64 has no wider
        one, and a sum without weights is not asked for it."""
        if read not in self._sets:
            share = 1 if read == self.all_leaves else 2
            usual, wide = (16, 8) if len(read) <= SHORT else (4, 4)
            self._sets[read] = [self._usual(number, read) for number in range(usual // share)]
            if self.case.weighted and floats.FORMATS[self.case.dtype].wider:
                self._sets[read] += [self._wide(number, read) for number in range(wide // share)]
        return self._sets[read]

    def _drawn(self, number: int) -> OperandSet:
        """What is drawn of the kind ``cancel``."""
        length = self.case.length or self.case.shortest_length
        bias = None if self.case.bias is None else "normal"
        changes = {"operands": "cancel", "weights": None, "bias": bias, "batch": 1}
        x, w, b = operands.generate(self.case.with_(length=length, seed=SEED + number, **changes))
        return OperandSet(x.reshape(-1, self.case.in_channels)[0], w, b)

    @cached_property
    def _places(self) -> tuple[np.ndarray, np.ndarray]:
        """What places hold: the same in all usual sets, so that one call asks with several; and
        ones, for wider accumulators."""
        ones = floats.round_to(np.ones(self.case.in_channels), self.case.dtype)
        return self._drawn(0).x, ones

    def _usual(self, number: int, read: Read) -> OperandSet:
        """What cancels over the leaves that are read, with other pairs in every set: of the usual
        size, near the largest number, among the subnormal ones."""
        case, seed = self.case, SEED + number
        if not case.weighted:
            return self._drawn(number)
        form = floats.FORMATS[case.dtype]
        precision, digits = form.precision, form.precision + 2
        drawn = cancel_weights(seed, precision, (len(read), case.filters))
        places = self._moved(read, seed) if number % 2 or len(read) < 8 else list(read)
        scale = 2.0 ** (0, form.emax - digits, form.emin, 0)[number % 4]
        bias = cancel_bias(seed, precision, (case.filters,))
        return self._placed(0, places, drawn * scale, bias * scale)

    def _wide(self, number: int, read: Read) -> OperandSet:
        """One pair that cancels, and elsewhere what it swallows in that many digits."""
        seed, filters = SEED + 64 + number, self.case.filters
        form = floats.FORMATS[self.case.dtype]
        precision = floats.FORMATS[form.wider[0]].precision
        scale = 2.0**-8 if form.emax < precision else 1.0  # float16's would overflow
        drawn = cancel_bias(seed, precision, (len(read) + 1, filters)) * scale
        small, bias = drawn[:-1], drawn[-1]
        if len(read) > 1:
            small[:2] = np.array([[1.0], [-1.0]]) * (1 + number / 16) * 2.0 ** (precision - 1)
            small[:2] *= scale
        return self._placed(1, self._moved(read, seed), small, bias)

    def _moved(self, read: Read, seed: int) -> list[int]:
        return [read[n] for n in np.argsort(hashes(seed, "w", 9, (len(read),)))]

    def _placed(
        self, which: int, places: Sequence[int], drawn: np.ndarray, bias: np.ndarray
    ) -> OperandSet:
        """Weights, ``drawn`` at these leaves and 0 elsewhere, and a bias if there is."""
        case = self.case
        flat = np.zeros((case.summands, case.filters))
        flat[list(places)] = drawn
        w = floats.round_to(flat.reshape(case.weight_shape), case.dtype)
        b = None if case.bias is None else floats.round_to(bias, case.dtype)
        return OperandSet(self._places[which], w, b)

    def answers(self, summation: Summation, read: Read) -> np.ndarray:
        """The replay of a summation on all sets of operands, where these leaves are read: container
        (sets, filters). Outputs of the library are recognised by it, so it is kept."""
        if (summation, read) not in self._answers:
            case, rows = self.case, []
            reads = np.isin(np.arange(case.summands), read)[:, None]
            for x, w, b in self.sets_for(read):
                # of each group's channels, tap by tap
                by_group = x.reshape(case.groups, -1).T
                met = np.tile(by_group, (case.summands // len(by_group), 1))
                met = np.repeat(met, case.filters // case.groups, axis=1)
                pair = np.where(reads, met, 0).astype(x.dtype), w.reshape(case.summands, -1)
                rows.append(replay(summation, *pair, case.dtype, b))
            self._answers[summation, read] = np.stack(rows)
        return self._answers[summation, read]


# Rows that are revealed at once.
REVEALED = 8
# Sizes in a row at which nothing could be revealed, before it isn't tried again.
TRIES = 3

UNKNOWN = -1
# A window that reads padding only: there is nothing to add.
NOTHING = -2
# A call whose places are of several kinds.
MIXED = -1

Kind = tuple[int, ...]


@dataclass(frozen=True)
class Pattern:
    """How the places of one call of a ``size`` are added up: samples where the batch is varied,
    else rows, which are a batch entry and an output position.

    ``kinds``: numbers of the places' kinds (see ``Recogniser.kinds``).
    ``interior``: the kind of most of those that read all leaves (of all, if none does). ``tail``:
    (kind, places) one after the other, behind the last place of that kind. ``elsewhere``: places
    before the tail of other kinds; those that read padding alone are in neither. ``unknown``:
    outputs that have no known summation. ``steady``: the same call gave the same bits again.
    """

    size: int
    kinds: np.ndarray
    interior: int
    tail: tuple[tuple[int, int], ...]
    elsewhere: int
    unknown: int
    steady: bool

    @property
    def kind(self) -> int:
        """That of all places; else ``MIXED``."""
        several = self.tail or self.elsewhere or self.unknown or not self.steady
        return MIXED if several else self.interior


@dataclass
class Recogniser:
    """Knows summations of one case on one target, and learns new ones where it meets them.

    ``case``: what is varied of it, ``length`` or ``batch``, is open. ``summations``: all that were
    met so far. ``kinds``: the distinct places, each the number of every filter's summation,
    ``UNKNOWN`` for none; of samples one output behind the other. ``calls``: runs of the operator.
    ``evidence``: why some outputs have none.
    """

    session: AnySession
    case: Case
    vary: str = "length"
    summations: list[Summation] = field(default_factory=list)
    kinds: list[Kind] = field(default_factory=list)
    calls: int = 0
    evidence: str = ""

    def __post_init__(self) -> None:
        self.operands = MarkOperands(self.case)
        self.popular = list(range(len(self.summations)))
        self.failed = 0

    def pattern(self, size: int) -> Pattern:
        """How the call of a size adds up; reveals what is not known so far.

        Costs one more call of the operator than there are sets of operands, where everything is
        known. Raises TargetError.
        """
        call = MarkedCall(self, size)
        if not call.steady:
            self.evidence = self.evidence or "the same call again gave different bits"
            return call.pattern()
        # a short window at an edge fits several orders: those of its call are known first
        for whole in (True, False):
            windows = [w for w in call.windows if (len(w.read) == self.case.summands) == whole]
            call.recognise(windows, self.popular)
            apart = False
            while call.count_of(UNKNOWN, windows) and self.failed < TRIES:
                recognised = call.recognise(windows, call.reveal(windows, apart))
                if not recognised and apart:
                    break
                apart = not recognised
        self.failed = self.failed + 1 if call.open else 0
        if call.open:
            why = "the results agree with a tree whose replay gives different bits"
            self.evidence = self.evidence or why
        self.popular.sort(key=lambda number: -call.count_of(number, call.windows))
        return call.pattern()

    def learn(self, summation: Summation) -> int:
        """The number of a summation, a new one if it was not known."""
        number = _place_in(self.summations, summation)
        if number not in self.popular:
            self.popular.append(number)
        return number

    def causes(self, kind: int, other: int) -> tuple[str, ...]:
        """Why two kinds differ: ``order``, ``rounding``, ``precision``, ``unknown``."""
        causes: set[str] = set()
        for left, right in set(zip(self.kinds[kind], self.kinds[other], strict=True)):
            if left != right:
                if min(left, right) > UNKNOWN:
                    causes |= {*self.summations[left].causes(self.summations[right])}
                else:
                    causes.add("unknown")
        return tuple(sorted(causes))


@dataclass
class MarkedWindows:
    """Rows of a call that read the same leaves, by their marks.

    ``rows``: their places; ``mark``: of each the number of its mark;
    ``first``: of each mark its first row; ``outputs``: what that gives, container (sets, marks,
    filters); ``summations``: numbers, (marks, filters).
    """

    read: Read
    rows: np.ndarray
    mark: np.ndarray
    first: np.ndarray
    outputs: np.ndarray
    summations: np.ndarray

    @property
    def counts(self) -> np.ndarray:
        """Of each mark the number of its rows, (marks, 1)."""
        return np.bincount(self.mark)[:, None]


class MarkedCall:
    """The call of one size: the marks of its rows, and the summations found."""

    def __init__(self, recogniser: Recogniser, size: int) -> None:
        self.recogniser, self.size = recogniser, size
        self.case = recogniser.case.with_(**{recogniser.vary: size})
        case, batch = self.case, recogniser.vary == "batch"
        self.filters, positions = case.filters, Geometry.of(case).positions
        # a place is a row, or all rows of a sample
        self.each, self.count = positions if batch else 1, case.batch * positions
        classes, leaves = window.read_classes(case)
        class_of_row = classes[np.arange(self.count) % positions]
        self.windows, self.steady = list[MarkedWindows](), True
        most = max(map(len, leaves))
        for number, read in enumerate(leaves):
            rows = np.flatnonzero(class_of_row == number)
            if len(rows):
                # a control, once a call: the same operands again
                control = len(read) == most and not any(len(w.read) == most for w in self.windows)
                self.windows.append(self._marked(tuple(read.tolist()), rows, control))

    def _marked(self, read: Read, rows: np.ndarray, control: bool) -> MarkedWindows:
        if not read:
            nothing = np.full((1, self.filters), NOTHING)
            none = np.zeros((0, 1, self.filters))
            return MarkedWindows(read, rows, np.zeros(len(rows), int), rows[:1], none, nothing)
        sets = self.recogniser.operands.sets_for(read)
        outputs = list[np.ndarray]()
        # one request asks with all weights that meet the same input
        for _, alike in itertools.groupby(sets, key=lambda each: id(each.x)):
            outputs += self._outputs(rows, list(alike))
        if control:
            (again,) = self._outputs(rows, sets[:1])
            self.steady = ulp.equal(outputs[0], again, self.case.dtype)
        marks = np.zeros((len(rows), self.filters), np.uint64)
        for output in outputs:
            bits = floats.to_bits(output, self.case.dtype)
            marks = operands.mix(marks + bits.astype(np.uint64))
        _, first, mark = np.unique(
            operands.mix(marks + np.arange(self.filters, dtype=np.uint64)).sum(axis=1),
            return_index=True,
            return_inverse=True,
        )
        outputs_of_marks = np.stack([output[first] for output in outputs])
        unknown = np.full((len(first), self.filters), UNKNOWN)
        return MarkedWindows(read, rows, mark.reshape(-1), rows[first], outputs_of_marks, unknown)

    def _outputs(self, rows: np.ndarray, sets: Sequence[OperandSet]) -> list[np.ndarray]:
        """Outputs of some rows for sets that share their input: container (rows, filters) each."""
        x, w, b = sets[0]
        every_x = np.ascontiguousarray(np.broadcast_to(x, self.case.input_shape()))
        arrays = {"x": every_x, "w": w} | _edits("", [each.w.reshape(-1) for each in sets])
        if b is not None:
            arrays |= {"b": b} | _edits("b_", [each.b for each in sets if each.b is not None])
        if len(rows) < self.count:
            flat = rows[:, None] * self.filters + np.arange(self.filters)
            arrays["select"] = flat.ravel()
        header = {"do": "masks", "spec": self.case.spec(), "mode": "weights"}
        outputs = [
            output.reshape(len(rows), self.filters)
            for _, answer in self.recogniser.session.stream(header, arrays)
            for output in answer["outputs"]
        ]
        self.recogniser.calls += len(outputs)
        return outputs

    @property
    def open(self) -> int:
        """How many outputs have no summation."""
        return self.count_of(UNKNOWN, self.windows)

    def counts_of(self, number: int, windows: Sequence[MarkedWindows]) -> np.ndarray:
        """How many outputs of each filter have a summation."""
        counts = [((w.summations == number) * w.counts).sum(axis=0) for w in windows]
        return np.sum([np.zeros(self.filters, int), *counts], axis=0)  # type: ignore[no-any-return]

    def count_of(self, number: int, windows: Sequence[MarkedWindows]) -> int:
        return int(self.counts_of(number, windows).sum())

    def recognise(self, windows: Sequence[MarkedWindows], numbers: list[int]) -> int:
        """Gives open outputs a summation that fits all sets; how many got one.

        Windows that meet padding may fit several: that of their filter's other outputs is tried
        first, then those that most outputs have.
        """
        before = self.count_of(UNKNOWN, windows)
        counts = {number: self.counts_of(number, self.windows) for number in numbers}
        usual = np.stack([*counts.values(), np.zeros(self.filters, int)]).max(axis=0)
        tried = sorted(numbers, key=lambda number: -counts[number].sum())
        for alike in windows:
            for number in tried:
                self._try(alike, number, counts[number] == usual)
            for number in tried:
                self._try(alike, number)
        return before - self.count_of(UNKNOWN, windows)

    def _try(self, alike: MarkedWindows, number: int, wanted: np.ndarray | bool = True) -> None:
        """Notes a summation where what it gives on every set has the outputs' bits."""
        summation = self.recogniser.summations[number]
        fits = (alike.summations == UNKNOWN) & wanted
        if not fits.any() or not set(summation.tree.leaves).issuperset(alike.read):
            return
        answers = self.recogniser.operands.answers(summation, alike.read)[:, None]
        replayed = np.broadcast_to(answers, alike.outputs.shape)
        fits &= ~ulp.bits_apart(replayed, alike.outputs, self.case.dtype).any(axis=0)
        alike.summations[fits] = number

    def reveal(self, windows: Sequence[MarkedWindows], apart: bool) -> list[int]:
        """Reveals a few of the rows with open outputs; the numbers of the summations found."""
        waiting = [
            (int(row), number, unknown)
            for number, alike in enumerate(windows)
            for row, unknown in zip(alike.first, alike.summations == UNKNOWN, strict=True)
            if unknown.any()
        ]
        picked = np.unique(np.linspace(0, len(waiting) - 1, REVEALED).astype(int))
        rows, classes, wanted = map(np.array, zip(*(waiting[n] for n in picked), strict=True))
        flat = (rows[:, None] * self.filters + np.arange(self.filters)).ravel()
        operator = SessionOperator(self.recogniser.session, self.case, flat)
        masks = Masks(operator)
        bias = [self.case.summands] if operator.bias else []
        leaves = [np.array([*alike.read, *bias], int) for alike in windows]
        trees, refused = reveal_trees(masks, classes, leaves, apart, wanted)
        numbers = [self.recogniser.learn(each.summation) for each in reveal_roundings(masks, trees)]
        self.recogniser.calls += masks.calls
        if refused:
            self.recogniser.evidence = self.recogniser.evidence or refused[0].evidence
        return numbers

    def pattern(self) -> Pattern:
        index = np.zeros((self.count, self.filters), int)
        full = np.zeros(self.count, bool)
        for alike in self.windows:
            index[alike.rows] = alike.summations[alike.mark]
            full[alike.rows] = len(alike.read) == self.case.summands
        index = index.reshape(-1, self.each * self.filters)
        complete = full.reshape(-1, self.each).all(axis=1)
        _, first, inverse = np.unique(
            column_labels(index.T), return_index=True, return_inverse=True
        )
        numbers = [_place_in(self.recogniser.kinds, tuple(row)) for row in index[first].tolist()]
        kinds = np.array(numbers)[inverse.reshape(-1)]
        adds = (index != NOTHING).any(axis=1)  # rows of padding alone are added in any order
        typical = kinds[complete] if complete.any() else kinds[adds] if adds.any() else kinds
        interior = int(np.bincount(typical).argmax())
        last = int(np.flatnonzero(kinds == interior)[-1])
        unusual = adds & (kinds != interior)
        tail = itertools.groupby(kinds[last + 1 :][unusual[last + 1 :]].tolist())
        return Pattern(
            size=self.size,
            kinds=kinds.astype(np.int16),
            interior=interior,
            tail=tuple((kind, len(list(places))) for kind, places in tail),
            elsewhere=int(unusual[: last + 1].sum()),
            unknown=self.open,
            steady=self.steady,
        )


def _place_in(items: list[Any], item: Any) -> int:
    """The place of an item in a list; appends it if it isn't there."""
    if item not in items:
        items.append(item)
    return items.index(item)


def _edits(prefix: str, rows: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Edits that set every element of an operand in each call."""
    size = rows[0].size
    return {
        prefix + "offsets": np.arange(len(rows) + 1) * size,
        prefix + "flat": np.tile(np.arange(size), len(rows)),
        prefix + "values": np.concatenate(rows),
    }
