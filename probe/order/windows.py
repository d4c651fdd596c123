"""Reveals which input every output reads, and which it reads without a weight for them.

The first is exact: nothing is rounded. Where there are weights, one of a filter is 1, the others 0,
and every input element is a number that names it: what comes out is the name of the element that
this weight meets, 0 where it meets padding. Filters of one group carry other weights in the same
call; numbers too long for the dtype go in digits. Pooling has no weights, but channels and batch
entries are pooled apart: each has one element set, and the outputs that show it read it.

A kernel may read beyond a window, a neighbouring row or place, and multiply it by a zero of its
own: such inputs *reach* the output. No finite number shows that, for 0 * x is 0; a NaN or an
infinity gets through. So inputs are made infinite while all weights are positive: a sum of its
products alone is infinite then, and one that has 0 * inf among them is NaN, as is one that reads an
element of its own a second time so. All at once comes first: one call tells that nothing reaches
any output, which is the usual case. Else elements are asked one by one; of many in two digits of
their number, blocks of them and places within all blocks.

Weights are asked in the same way: those of other filters, and an output's own where its window
meets padding.
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
        return flat_pool_windows(case, reveal_pool(operator.session, case))
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


def flat_pool_windows(case: Case, pool: PoolWindows) -> np.ndarray:
    """The flat index into x that each place of a window holds, -1 for padding, as
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


# Elements up to which each is asked by itself.
MOST = 1024

# Elements that are edited in one request: some 50 MB travel.
EDITS = 1 << 22  # speed alone

# Positions times groups, the first ones, of which it is said what reaches them; fewer where these
# times the elements are more.
NAMED, ROWS = 512, 1 << 26


@dataclass(frozen=True)
class ReachedOutputs:
    """What reaches the outputs at one position of one group of filters with a weight of 0.

    ``position``: batch entries times output positions. ``inputs``: flat indices into x. ``exact``:
    each of them reaches it; else some of them do, and which was not told apart.
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
    return _reach(_ReachQuestions(session, case))


def reached_by(
    session: AnySession, case: Case, x: np.ndarray, w: np.ndarray, b: np.ndarray | None
) -> Reach:
    """Finds outputs that the infinities and NaNs of these container operands reach.

    Infinities are put in their places into finite operands, so that what comes out NaN was made so
    by them. Errors: TargetError.
    """
    odd = [None if a is None else ~floats.is_finite(a, case.dtype) for a in (x, w, b)]
    return _reach(_ReachQuestions(session, case, odd))


def _reach(questions: _ReachQuestions) -> Reach:
    if questions.inputs():
        questions.name_inputs()
    questions.weights()
    return questions.result


class _ReachQuestions:
    """Questions to one case. ``odd``: where x, w and b may be infinite; None: everywhere."""

    def __init__(
        self, session: AnySession, case: Case, odd: Sequence[np.ndarray | None] | None = None
    ) -> None:
        self.session, self.case, self.odd = session, case, odd
        self.shape = math.prod(case.output_shape()[:-1]), case.filters
        none = np.zeros(self.shape, bool)
        self.result = Reach(case, none, none.copy(), none.copy())

    def inputs(self) -> bool:
        """Asks about all of x at once: whether anything reaches an output; nothing of a pool."""
        if self.case.pool:
            return False
        (nan,) = self.ask("x", [np.arange(math.prod(self.case.input_shape()))])
        self.result.inputs |= nan
        return bool(nan.any())

    def name_inputs(self) -> None:
        """Names what reaches the first ``NAMED`` positions and groups of filters."""
        groups = self.shape[0], self.case.groups, -1
        elements = self.chosen(0, np.arange(math.prod(self.case.input_shape())))
        most = max(1, min(NAMED, ROWS // len(elements)))
        rows = np.argwhere(self.result.inputs.reshape(groups).any(axis=2))[:most]
        block = 1 if len(elements) <= MOST else math.isqrt(len(elements))
        digits = [[elements[start : start + block] for start in range(0, len(elements), block)]]
        digits += [[elements[start::block] for start in range(block)]] * (block > 1)
        number = np.arange(len(elements))
        left = np.ones((len(rows), len(elements)), bool)
        single = np.full(len(rows), block == 1)  # one number of a digit: the others are told apart
        for digit, sets in zip((number // block, number % block), digits, strict=False):
            nan = [np.asarray(y.reshape(groups).any(axis=2)) for y in self.ask("x", sets)]
            hit = np.stack([answer[tuple(rows.T)] for answer in nan], axis=1)
            left &= hit[:, digit]
            single |= hit.sum(axis=1) == 1
        for (position, group), held, exact in zip(rows.tolist(), left, single, strict=True):
            named = ReachedOutputs(position, group, elements[held], bool(exact))
            self.result.named.append(named)

    def weights(self) -> None:
        """Asks about the weights: all at once, then those at padding and of other filters."""
        case, result = self.case, self.result
        if not case.weighted:
            return
        elements = np.arange(math.prod(case.weight_shape))
        (reached,) = self.ask("w", [elements], [np.arange(case.filters)])
        if not reached.any():
            return
        # a weight that meets padding may be multiplied with it
        padded = np.tile(Geometry.of(case).reads() < 0, (case.batch, 1))
        places = np.flatnonzero(padded.any(axis=0)).tolist()
        inner = case.group_channels * case.filters
        chosen = [np.arange(place * inner, (place + 1) * inner) for place in places]
        for place, nan in zip(places, self.ask("w", chosen), strict=True):
            result.padding |= nan & padded[:, place, None]
        # the weights, and the bias, of other filters
        rows = np.arange(case.summands) * case.filters
        filters = np.arange(case.filters)
        chosen, biased = [rows + filter_ for filter_ in filters], [*filters[:, None]]
        for filter_, nan in zip(filters, self.ask("w", chosen, biased), strict=True):
            result.weights |= nan & (filters != filter_)
        result.weights |= reached & ~result.padding

    def ask(
        self, which: str, chosen: Sequence[np.ndarray], biased: Sequence[np.ndarray] | None = None
    ) -> Iterator[np.ndarray]:
        """Puts infinities at each set, and yields where outputs are NaN: bool (positions, filters).

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
        self.result.calls += len(calls)
        yielded = 0
        for part in _parts_by_edits(calls, list(map(len, edits))):
            sets = [[edits[n] for n in part]]
            if which == "w" and case.bias is not None:
                sets.append([edits_b[n] for n in part])
            outputs = _outputs_of_edits(self.session, case, mode, (1.0, small), np.inf, *sets)
            nan = np.isnan(floats.widen(outputs, case.dtype)).reshape(len(part), *self.shape)
            for number, answer in zip(part, nan, strict=True):
                yield from [np.zeros(self.shape, bool)] * (number - yielded)
                yield answer
                yielded = number + 1
        yield from [np.zeros(self.shape, bool)] * (len(edits) - yielded)

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
