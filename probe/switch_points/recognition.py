"""Recognises the summation of every output of a call by its bits, in a few calls.

The input repeats every ``PERIOD`` elements along the length, so the outputs of a call of any length
are those of few distinct windows: each known summation is replayed on these once, and then any
length costs its own calls and a comparison. Only outputs that have no known summation are revealed,
a few rows of them at the length where they were met.

The operands are of the kind ``cancel``: others give different bits. Windows that meet padding have
sets of their own, made for the leaves that they read: half a pair that cancels shows nothing.
``wide`` sets are made for accumulators of more digits than the dtype has, which lose nothing of the
others. Sets are scaled by powers of two, so that what saturates or flushes shows.

Along the batch (``Repeated``) the same *sample* stands at every place: a row of a dense layer. In
each the values differ by channel alone, so that all windows that read the same leaves are one
window. What a summation gives on it is what every output must give that adds so, in a batch of any
size and wherever its sample stands.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from probe import floats, operands, ulp, window
from probe.case import Case
from probe.launch import AnySession
from probe.operands import cancel_bias, cancel_weights, hashes
from probe.summation.masks import Masks, SessionOperator
from probe.summation.replay import replay
from probe.summation.reveal import column_labels, reveal_trees
from probe.summation.rounding import reveal_roundings
from probe.summation.summation import Summation
from probe.window import Geometry

# A prime: every remainder of a vector's or block's length meets every window.
PERIOD = 61
# Outputs replayed at once.
AT_ONCE = 1 << 16
SEED = 0x5EA5

# Summands up to which sums agree by luck, so that more sets are tried.
SHORT = 32

# For every group what each leaf meets, (leaves, windows).
Columns = list[np.ndarray]
Weights = tuple[np.ndarray, np.ndarray | None]
Read = tuple[int, ...]


class Periodic:
    """The input of ``case`` at any length, sets of weights, and summations replayed on them.

    ``windows``: the distinct windows that don't meet padding along the length: for every line (a
    batch entry and the output's other axes) one for each of ``PERIOD`` starts.
    """

    def __init__(self, case: Case) -> None:
        self.case = case
        self.every: Read = tuple(range(case.summands))
        self.block = self._block()
        self.windows = self._windows()
        self._sets: dict[tuple[Read, bool], list[Weights]] = {}
        self.tables: dict[tuple[Summation, Read], list[np.ndarray]] = {}

    def _block(self) -> np.ndarray:
        """Returns what the input repeats."""
        longest = PERIOD + self.case.effective_kernel[-1]
        return operands.generate(self._drawn(longest, 0))[0][..., :PERIOD, :]

    def sets_for(self, read: Read) -> list[Weights]:
        """Returns (w, b or None), container, for windows that read these leaves.

        4 for long sums and 16 for short ones, half as many where padding is met: of the usual size,
        near the largest number, among the subnormal ones.
        """
        return self._made(read, False)

    def wide_for(self, read: Read) -> list[Weights]:
        """Returns the same for wider accumulators, and an input of ones; none for float64."""
        if not floats.FORMATS[self.case.dtype].wider or not self.case.weighted:
            return []
        return self._made(read, True)

    def _made(self, read: Read, wide: bool) -> list[Weights]:
        """Returns the sets, made when they are first asked for; 8 wide ones for short sums."""
        if (read, wide) not in self._sets:
            count = (8 if wide else 16) if len(read) <= SHORT else 4
            make = self._wide_set if wide else self._set
            numbers = range(count // (1 if read == self.every else 2))
            self._sets[read, wide] = [make(number, read) for number in numbers]
        return self._sets[read, wide]

    def _drawn(self, length: int, number: int) -> Case:
        bias = None if self.case.bias is None else "normal"
        changes = {"operands": "cancel", "weights": None, "bias": bias}
        return self.case.with_(length=length, seed=SEED + number, **changes)

    def _set(self, number: int, read: Read) -> Weights:
        """Returns what cancels over the leaves that are read, with other pairs in every set."""
        case, seed = self.case, SEED + number
        if not case.weighted:
            _, w, b = operands.generate(self._drawn(case.shortest_length, number))
            return w, b
        form = floats.FORMATS[case.dtype]
        precision, digits = form.precision, form.precision + 2
        drawn = cancel_weights(seed, precision, (len(read), case.filters))
        places = self._moved(read, seed) if number % 2 or len(read) < 8 else list(read)
        scale = 2.0 ** (0, form.emax - digits, form.emin, 0)[number % 4]
        bias = cancel_bias(seed, precision, (case.filters,))
        return self._placed(places, drawn * scale, bias * scale)

    def _wide_set(self, number: int, read: Read) -> Weights:
        """Returns one pair that cancels, and elsewhere what it swallows in that many digits."""
        seed, filters = SEED + 64 + number, self.case.filters
        form = floats.FORMATS[self.case.dtype]
        precision = floats.FORMATS[form.wider[0]].precision
        scale = 2.0**-8 if form.emax < precision else 1.0  # float16's would overflow
        drawn = cancel_bias(seed, precision, (len(read) + 1, filters)) * scale
        small, bias = drawn[:-1], drawn[-1]
        if len(read) > 1:
            small[:2] = np.array([[1.0], [-1.0]]) * (1 + number / 16) * 2.0 ** (precision - 1)
            small[:2] *= scale
        return self._placed(self._moved(read, seed), small, bias)

    def _moved(self, read: Read, seed: int) -> list[int]:
        return [read[n] for n in np.argsort(hashes(seed, "w", 9, (len(read),)))]

    def _placed(self, places: Sequence[int], drawn: np.ndarray, bias: np.ndarray) -> Weights:
        """Container weights, ``drawn`` at these leaves and 0 elsewhere, and a bias if there is."""
        case = self.case
        flat = np.zeros((case.summands, case.filters))
        flat[list(places)] = drawn
        w = floats.round_to(flat.reshape(case.weight_shape), case.dtype)
        return w, None if case.bias is None else floats.round_to(bias, case.dtype)

    def input(self, length: int) -> np.ndarray:
        """Returns the periodic input of any length, container."""
        return np.take(self.block, np.arange(length) % PERIOD, axis=-2)

    def _windows(self) -> Columns:
        case, extent = self.case, self.case.effective_kernel[-1]
        around = Geometry.of(case, case.shortest_length).around[:-1]
        length = PERIOD + extent - 1
        pads = (*around, (0, 0)) if any(map(any, around)) else "valid"  # products have no pairs
        changes: dict[str, Any] = {"padding": pads, "stride": (*case.stride[:-1], 1)}
        return window.columns(case.with_(length=length, **changes), self.input(length))

    def ones(self, length: int) -> np.ndarray:
        """Returns the input of ``wide`` sets, container."""
        ones: np.ndarray = floats.round_to(np.ones(self.case.input_shape(length)), self.case.dtype)
        return ones

    def table(self, summation: Summation, read: Read) -> list[np.ndarray]:
        """Returns what a summation gives on ``windows`` of lines that read these leaves; kept.

        Container (windows, filters), for every set of ``sets_for``.
        """
        if (summation, read) not in self.tables:
            outputs = self.replayed(summation, self._met(read), self.sets_for(read))
            self.tables[summation, read] = list(outputs)
        return self.tables[summation, read]

    def _met(self, read: Read) -> Columns:
        """Returns what the leaves meet in ``windows`` that read these ones."""
        return self.windows

    def wide_table(self, summation: Summation, read: Read) -> Iterator[np.ndarray]:
        """Yields a summation's outputs on the window of ones, container (1, filters), by set."""
        column = np.zeros((self.case.summands, 1))
        column[list(read)] = 1.0
        columns = [floats.round_to(column, self.case.dtype)] * self.case.groups
        return self.replayed(summation, columns, self.wide_for(read))

    def replayed(
        self, summation: Summation, columns: Columns, sets: list[Weights]
    ) -> Iterator[np.ndarray]:
        """Yields a summation's outputs on any windows, container (windows, filters), set by set."""
        case = self.case
        for w, b in sets:
            flat, by_group = w.reshape(case.summands, case.groups, -1), []
            for group, x in enumerate(columns):
                mine, width = flat[:, group], flat.shape[2]
                bias = None if b is None else b.reshape(case.groups, -1)[group]
                parts = []
                for start in range(0, x.shape[1], max(1, AT_ONCE // width)):
                    part = x[:, start : start + max(1, AT_ONCE // width)]
                    adds = None if bias is None else np.tile(bias, part.shape[1])
                    pair = np.repeat(part, width, axis=1), np.tile(mine, part.shape[1])
                    parts.append(replay(summation, *pair, case.dtype, adds).reshape(-1, width))
                by_group.append(np.concatenate(parts))
            yield np.concatenate(by_group, axis=1)


class Repeated(Periodic):
    """The same sample at every place of a batch, and summations replayed on its windows."""

    def _block(self) -> np.ndarray:
        """Returns one sample, (1, *spatial, in_channels): container."""
        length = self.case.length or self.case.shortest_length
        block = operands.generate(self._drawn(length, 0).with_(batch=1))[0]
        first = block[(slice(1), *(slice(1) for _ in range(self.case.spatial_rank)))]
        return np.broadcast_to(first, block.shape) if self.case.spatial_rank else block

    def _windows(self) -> Columns:
        """Of each group the one window that meets no padding: (leaves, 1)."""
        case = self.case
        values = self.block.reshape(-1, case.in_channels)[0].reshape(case.groups, -1)
        return [np.tile(each, case.summands // len(each))[:, None] for each in values]

    def input(self, size: int) -> np.ndarray:
        """Returns the input of ``size`` samples, container."""
        return np.ascontiguousarray(np.broadcast_to(self.block, (size, *self.block.shape[1:])))

    def ones(self, size: int) -> np.ndarray:
        shape = self.case.input_shape(batch=size)
        ones: np.ndarray = floats.round_to(np.ones(shape), self.case.dtype)
        return ones

    def _met(self, read: Read) -> Columns:
        columns = [np.zeros_like(each) for each in self.windows]
        for column, each in zip(columns, self.windows, strict=True):
            column[list(read)] = each[list(read)]
        return columns


# Outputs up to which all of a call are looked at.
ALL = 1 << 22
# Rows at either end, in the middle and scattered, where a call has more outputs.
ENDS = 256
# Rows that are revealed at once.
REVEALED = 8
# Lengths in a row at which nothing could be revealed, before it isn't tried again.
TRIES = 3

UNKNOWN = -1
# A window that reads padding only: there is nothing to add.
NOTHING = -2

Kind = tuple[int, ...]


@dataclass(frozen=True)
class Pattern:
    """How the rows of one call are added up. A row is a batch entry and an output position.

    ``length``: the size of the call. Where the batch is varied, that is it, and rows are samples.

    ``kinds``: numbers of the rows' kinds (see ``Recogniser.kinds``) for the rows that were looked
    at, all or (``whole`` False) those at both ends, in the middle and scattered between.
    ``interior``: the kind of most of those that read all leaves (of all, if none does). ``tail``:
    (kind, rows) one after the other, behind the last row of that kind. ``elsewhere``: rows before
    the tail of other kinds; rows that read padding alone are in neither. ``unknown``: outputs that
    have no known summation. ``steady``: the same call gave the same bits again.
    """

    length: int
    kinds: np.ndarray
    whole: bool
    interior: int
    tail: tuple[tuple[int, int], ...]
    elsewhere: int
    unknown: int
    steady: bool


@dataclass
class Recogniser:
    """Knows summations of one case on one target, and learns new ones where it meets them.

    ``case``: its length may be open. ``summations``: all that were met so far. ``kinds``: the
    distinct rows, each the number of every filter's summation, ``UNKNOWN`` for none. ``calls``:
    runs of the operator. ``evidence``: why some outputs have none.
    """

    session: AnySession
    case: Case
    summations: list[Summation] = field(default_factory=list)
    kinds: list[Kind] = field(default_factory=list)
    calls: int = 0
    evidence: str = ""
    ends = ENDS

    def __post_init__(self) -> None:
        self.periodic = self._operands()
        self.popular = list(range(len(self.summations)))
        self.failed = 0

    def _operands(self) -> Periodic:
        return Periodic(self.case)

    def _call(self, size: int) -> RecognisedSize:
        return RecognisedSize(self, self.case.with_(length=size), size)

    def pattern(self, length: int) -> Pattern:
        """Returns how the call at ``length`` adds up; reveals what is not known so far.

        Costs one more call of the operator than there are sets of weights, where everything is
        known: see ``Periodic``. Raises TargetError.
        """
        call = self._call(length)
        if not call.steady:
            self.evidence = self.evidence or "the same call again gave different bits"
            return call.pattern()
        call.recognise(self.popular)
        apart, before = False, len(self.summations)
        while call.open.any() and self.failed < TRIES:
            recognised = call.recognise(call.reveal(apart))
            if not recognised and apart:
                break
            apart = not recognised
        if len(self.summations) > before:
            # a short window at an edge fits orders of other sizes: that of its call comes first
            call.index[~call.full] = np.minimum(call.index[~call.full], UNKNOWN)
            call.recognise(self.popular)
        if call.open.any():
            self.failed += 1
            self.evidence = (
                self.evidence or "the results agree with a tree whose replay gives different bits"
            )
        else:
            self.failed = 0
        self.popular.sort(key=lambda number: -call.count_of(number))
        return call.pattern()

    def learn(self, summation: Summation) -> int:
        """Returns the number of a summation, a new one if it was not known."""
        number = _place_in(self.summations, summation)
        if number not in self.popular:
            self.popular.append(number)
        return number

    def causes(self, kind: int, other: int) -> tuple[str, ...]:
        """Returns why two kinds differ: ``order``, ``rounding``, ``precision``, ``unknown``."""
        causes: set[str] = set()
        for left, right in set(zip(self.kinds[kind], self.kinds[other], strict=True)):
            if left != right:
                known = min(left, right) > UNKNOWN
                apart = self.summations[left].causes(self.summations[right]) if known else ()
                causes |= {*apart} if known else {"unknown"}
        return tuple(sorted(causes))


@dataclass
class Alike:
    """Rows that read the same leaves, and what came out of them.

    ``inner``, ``edge``: places among the rows of the call, those whose windows meet no padding
    along the length and those whose windows do; ``window``: which of the distinct windows each
    inner row holds. ``outputs`` and ``wide``: set by set, (rows, filters), of ``rows``.
    """

    read: Read
    rows: np.ndarray
    inner: np.ndarray
    edge: np.ndarray
    window: np.ndarray
    edges: Columns = field(default_factory=list)
    outputs: list[np.ndarray] = field(default_factory=list)
    wide: list[np.ndarray] = field(default_factory=list)


class RecognisedSize:
    """One size: the rows that are looked at, their bits, and the summations found for them."""

    def __init__(self, known: Recogniser, case: Case, size: int) -> None:
        self.known, self.case, self.size = known, case, size
        self.filters = self.case.filters
        self.geometry = Geometry.of(self.case)
        self.x, self.ones = known.periodic.input(size), known.periodic.ones(size)
        self.count = self.case.batch * self.geometry.positions
        self.whole = self.count * self.filters <= ALL
        self.rows = np.arange(self.count) if self.whole else self._some()
        self.index = np.full((len(self.rows), self.filters), UNKNOWN)
        self.steady = True
        self._classify()
        for alike in self.classes:
            self._run(alike)

    def _some(self) -> np.ndarray:
        """Returns the rows that are looked at, where not all are."""
        return some(self.count, ENDS)

    @property
    def open(self) -> np.ndarray:
        """Returns outputs without a summation, bool (rows, filters)."""
        return self.index == UNKNOWN

    def _classify(self) -> None:
        """Rows by the leaves that they read: inside of a line all read alike."""
        width = self.geometry.outputs[-1]
        lines, along = np.divmod(self.rows, width)
        starts = along * self.case.stride[-1] - self.case.pads()[-1][0]
        inside = (starts >= 0) & (
            starts + self.case.effective_kernel[-1] <= self.geometry.sizes[-1]
        )
        inner, edge = np.flatnonzero(inside), np.flatnonzero(~inside)
        _, first, line = np.unique(lines[inner], return_index=True, return_inverse=True)
        chosen = np.concatenate([inner[first], edge])
        read = self.geometry.reads(self.rows[chosen] % self.geometry.positions) >= 0
        patterns, classes = np.unique(read, axis=0, return_inverse=True)
        classes = classes.reshape(-1)
        self.kind_of = np.empty(len(self.rows), int)
        self.kind_of[inner] = classes[: len(first)][line]
        self.kind_of[edge] = classes[len(first) :]
        window = lines * PERIOD + starts % PERIOD
        self.classes = []
        for number, pattern in enumerate(patterns):
            leaves = np.flatnonzero(np.repeat(pattern, self.case.group_channels))
            rows = np.flatnonzero(self.kind_of == number)
            mine, others = rows[inside[rows]], rows[~inside[rows]]
            self.classes.append(Alike(tuple(leaves.tolist()), rows, mine, others, window[mine]))
            if not len(leaves):
                self.index[rows] = NOTHING
        sizes = np.array([len(alike.read) for alike in self.classes])
        self.full = (sizes == self.case.summands)[self.kind_of]

    def _run(self, alike: Alike) -> None:
        """The outputs of a class's rows for its sets; the first set of all is run once more."""
        if not alike.read:
            return
        periodic = self.known.periodic
        sets, again = periodic.sets_for(alike.read), alike is self.classes[-1]
        alike.outputs = self._outputs(alike, self.x, [*sets, sets[0]] if again else sets)
        if again:
            self.steady = ulp.equal(alike.outputs[0], alike.outputs.pop(), self.case.dtype)
        if wide := periodic.wide_for(alike.read):
            alike.wide = self._outputs(alike, self.ones, wide)
        if len(alike.edge):
            alike.edges = self._columns(alike.edge)

    def _outputs(self, alike: Alike, x: np.ndarray, sets: list[Weights]) -> list[np.ndarray]:
        arrays = {"x": x, "w": sets[0][0]}
        arrays |= _edits("", [w.reshape(-1) for w, _ in sets], sets[0][0].size)
        if sets[0][1] is not None:
            biases = [b for _, b in sets if b is not None]
            arrays |= {"b": biases[0]} | _edits("b_", biases, self.filters)
        if len(alike.rows) < self.count:
            flat = self.rows[alike.rows][:, None] * self.filters + np.arange(self.filters)
            arrays["select"] = flat.ravel()
        header = {"do": "masks", "spec": self.case.spec(), "mode": "weights"}
        outputs = [
            output.reshape(len(alike.rows), self.filters)
            for _, answer in self.known.session.stream(header, arrays)
            for output in answer["outputs"]
        ]
        self.known.calls += len(outputs)
        return outputs

    def _columns(self, rows: np.ndarray) -> Columns:
        """Returns what windows that meet padding along the length hold."""
        per_group = self.filters // self.case.groups
        w = self.known.periodic.sets_for(self.known.periodic.every)[0][0]
        first = self.rows[rows] * self.filters
        groups = range(self.case.groups)
        return [window.gather(self.case, self.x, w, first + g * per_group)[0] for g in groups]

    def count_of(self, number: int) -> int:
        """Returns outputs that have a summation."""
        return int((self.index == number).sum())

    def recognise(self, numbers: list[int]) -> int:
        """Gives open outputs a summation that fits all sets; how many got one.

        Windows that meet padding may fit several: that of their filter's other outputs is tried
        first, then those that most outputs have.
        """
        before = int(self.open.sum())
        for number in numbers:
            self._try(number, self.open & self.full[:, None])
        every = sorted({*numbers, *self.known.popular}, key=lambda number: -self.count_of(number))
        counts = np.array([(self.index == number).sum(axis=0) for number in every])
        usual = np.array(every)[counts.argmax(axis=0)] if every else np.zeros(self.filters, int)
        for number in every:
            self._try(number, self.open & ~self.full[:, None] & (usual == number))
        for number in every:
            self._try(number, self.open & ~self.full[:, None])
        return before - int(self.open.sum())

    def _try(self, number: int, wanted: np.ndarray) -> None:
        """Notes the summation where its replay of every set has the outputs' bits."""
        summation = self.known.summations[number]
        leaves = set(summation.tree.leaves)
        for alike in self.classes:
            open_ = wanted[alike.rows]
            if alike.read and leaves.issuperset(alike.read) and open_.any():
                self.index[alike.rows] = np.where(
                    self._agrees(alike, summation, open_), number, self.index[alike.rows]
                )

    def _agrees(self, alike: Alike, summation: Summation, wanted: np.ndarray) -> np.ndarray:
        """Of a class's wanted outputs those that a summation gives: bool (rows, filters)."""
        periodic, agree = self.known.periodic, wanted.copy()
        first = np.zeros(len(alike.rows), int)
        self._compare(
            agree, alike.wide, periodic.wide_table(summation, alike.read), slice(None), first
        )
        inner, edge = (np.searchsorted(alike.rows, rows) for rows in (alike.inner, alike.edge))
        if agree[inner].any():
            table = periodic.table(summation, alike.read)
            self._compare(agree, alike.outputs, table, inner, alike.window)
        if agree[edge].any():
            edges = periodic.replayed(summation, alike.edges, periodic.sets_for(alike.read))
            self._compare(agree, alike.outputs, edges, edge, np.arange(len(edge)))
        return agree

    def _compare(
        self,
        agree: np.ndarray,
        outputs: list[np.ndarray],
        replayed: Iterable[np.ndarray],
        rows: Any,
        place: np.ndarray,
    ) -> None:
        """Takes back what is not the row's own place of the replay, set by set."""
        at, filters = np.nonzero(agree[rows])
        for expected, got in zip(replayed, outputs, strict=False):
            if not len(at):
                break
            pair = expected[place[at], filters], got[rows][at, filters]
            agrees = ~ulp.bits_apart(*pair, self.case.dtype)
            at, filters = at[agrees], filters[agrees]
        agreeing = np.zeros_like(agree[rows])
        agreeing[at, filters] = True
        agree[rows] = agreeing

    def reveal(self, apart: bool) -> list[int]:
        """Reveals a few of the rows with open outputs; the numbers of the summations found."""
        waiting = np.flatnonzero(self.open.any(axis=1))
        pick = waiting[np.unique(np.linspace(0, len(waiting) - 1, REVEALED).astype(int))]
        flat = (self.rows[pick][:, None] * self.filters + np.arange(self.filters)).ravel()
        operator = SessionOperator(self.known.session, self.case, flat)
        masks = Masks(operator)
        bias = [self.case.summands] if operator.bias else []
        leaves = [np.array([*alike.read, *bias], int) for alike in self.classes]
        trees, refused = reveal_trees(masks, self.kind_of[pick], leaves, apart, self.open[pick])
        orders = reveal_roundings(masks, trees)
        numbers = [self.known.learn(each.summation) for each in orders]
        self.known.calls += masks.calls
        if refused:
            self.known.evidence = self.known.evidence or refused[0].evidence
        return numbers

    def pattern(self) -> Pattern:
        """Returns what was found, by rows."""
        return self._pattern(self.index, self.full)

    def _pattern(self, index: np.ndarray, full: np.ndarray) -> Pattern:
        """``index`` (rows, outputs): summations by row; ``full``: rows that read all leaves."""
        labels = column_labels(index.T)
        _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
        numbers = [_place_in(self.known.kinds, tuple(row)) for row in index[first].tolist()]
        kinds = np.array(numbers)[inverse.reshape(-1)]
        adds = (index != NOTHING).any(axis=1)  # rows of padding alone are added in any order
        typical = kinds[full] if full.any() else kinds[adds] if adds.any() else kinds
        interior = int(np.bincount(typical).argmax())
        last = int(np.flatnonzero(kinds == interior)[-1])
        other, unknown = adds & (kinds != interior), int(self.open.sum())
        tail = itertools.groupby(kinds[last + 1 :][other[last + 1 :]].tolist())
        return Pattern(
            length=self.size,
            kinds=kinds.astype(np.int16),
            whole=self.whole,
            interior=interior,
            tail=tuple((kind, len(list(rows))) for kind, rows in tail),
            elsewhere=int(other[: last + 1].sum()),
            unknown=unknown,
            steady=self.steady,
        )


def _place_in(known: list[Any], summation: Any) -> int:
    """Returns the place of an item in a list; appends it if it isn't there."""
    if summation not in known:
        known.append(summation)
    return known.index(summation)


def _edits(prefix: str, rows: list[np.ndarray], size: int) -> dict[str, np.ndarray]:
    """Edits that set every element of an operand in each call."""
    return {
        prefix + "offsets": np.arange(len(rows) + 1) * size,
        prefix + "flat": np.tile(np.arange(size), len(rows)),
        prefix + "values": np.concatenate(rows),
    }


def some(count: int, each: int) -> np.ndarray:
    """Numbers below ``count``: ``each`` at both ends, in the middle, and scattered between them."""
    middle = count // 2 - each // 2
    ends = (np.arange(each), np.arange(middle, middle + each), np.arange(count - each, count))
    scattered = np.random.default_rng(SEED).integers(0, count, each)
    return np.unique(np.clip(np.concatenate([*ends, scattered]), 0, count - 1))
