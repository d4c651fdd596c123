"""Reduces a failing case to a smaller case that still fails; knows no backend.

First the shapes, with operands that show nearly every difference; then the operands. It ends where
no single step keeps the failure: the case is minimal for these steps.

Shapes: features go first (stride, dilation, groups, padding, bias), then sizes. What is not a case
is passed over at no cost. Operands get simpler: fewer that are not 0, fewer significant bits,
friendlier decimals. A product with a 0 leaves every sum as it is, so an operand that the failure
does not need can go.

The search is greedy, after Hypothesis' shrinker (MacIver and Donaldson, "Test-Case Reduction via
Test-Case Generation", ECOOP 2020), and knows nothing about the values: ``consider`` is the only
door to the predicate, what was seen is not asked again, and every step starts with its largest
reduction, so that a step that works saves all smaller ones.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from probe.case import floats
from probe.case.errors import InputError, TimeOver
from probe.case.layout import CONTIGUOUS
from probe.explain.runs import Finding
from probe.targets import budget

# Calls of the predicate; from 256 channels to a minimal case takes some 100.
BUDGET = 300

# Seeds of generated operands that are tried where the start's own don't show the failure.
TRIES = 8


@dataclass
class Shrunk:
    """What ``smallest_finding`` found.

    ``finding`` is the smallest that fails, ``start`` what it was given.

    ``shown``: whether its operands show the difference; always, unless the shapes' predicate needs
    no operands and none were found. ``near``: the candidate nearest to it that does not fail, and
    the step that leads there; None if none was seen. ``calls`` of the predicates. ``ended``:
    ``minimal`` (no step is left that keeps the failure), ``budget`` or ``interrupted``.
    """

    start: Finding
    finding: Finding
    shown: bool
    near: Passed | None
    calls: int
    ended: str


def smallest_finding(
    start: Finding,
    fails: Callable[[Finding], bool],
    *,
    shows: Callable[[Finding], bool] | None = None,
    kinds: tuple[str, ...] = ("cancel",),
    most: int = BUDGET,
    tell: Callable[[int, Finding], None] | None = None,
) -> Shrunk | None:
    """The smallest finding that steps lead to from ``start``; None if ``start`` does not
    fail.

    ``fails``: the predicate for shapes. ``shows``: that for operands, where it differs: a
    changed order is there for all finite operands, and then some are looked for that show it.
    ``kinds``: operands that shapes are asked with, the first that fail at the start; where none
    does, the start's own are cut. ``most``: calls of the predicates, those that ask about ``start``
    included. Ctrl-C ends it with the smallest so far; what the predicate raises is passed on.
    """
    search = Search(start, fails, most, tell)
    shrunk = Shrunk(start, start, False, None, 0, "minimal")
    try:
        drawn = next((kind for kind in kinds if search.ask(start.drawn_as(kind))), None)
        if drawn is None and not search.ask(start):
            return None
        if drawn is not None:
            search.best = start.drawn_as(drawn)
        steps = shape_steps(lambda finding: finding.drawn_as(drawn) if drawn else finding)
        search.exhaust(steps)
        # the same shapes at another size say most: there the library takes another way
        shrunk.near = max(
            search.near(steps),
            key=lambda passed: (passed.step == "pair", passed.value.x.size + passed.value.w.size),
            default=None,
        )
        shrunk.shown = _report_step(search, start, shows, drawn)
        if shrunk.shown:
            search.exhaust(number_steps(search.best.case.weighted))
    except Spent:
        shrunk.ended = "budget"
    except KeyboardInterrupt as error:
        shrunk.ended = "budget" if isinstance(error, TimeOver) else "interrupted"
    shrunk.finding, shrunk.calls = search.best, search.calls
    shrunk.shown = shrunk.shown or (shows is None and search.best is not start)
    return shrunk


def _report_step(
    search: Search,
    start: Finding,
    shows: Callable[[Finding], bool] | None,
    drawn: str | None,
) -> bool:
    """Gives the smallest shape operands that show the failure: the start's own ones if they do."""
    smallest = search.best
    if drawn is None and shows is None:
        return True
    search.fails = shows or search.fails
    same_predicate = shows is None
    redrawn = start.reshaped(**smallest.case.arguments(), at=smallest.at, against=smallest.against)
    options = [
        redrawn,
        *(redrawn.drawn_as(drawn or "cancel", seed) for seed in range(TRIES)),
    ]
    for option in options:
        if (same_predicate and option.key == smallest.key) or search.ask(option):
            search.best = option
            return True
    return False


Tensors = dict[str, np.ndarray]

# Significant bits that a decimal digit counts for: log2 10, rounded up.
DIGIT = 4

# What a power of two away from 1 counts for, in significant bits.
FAR = 0.125


def number_steps(weighted: bool) -> Steps:
    """All steps of operands; an operator without weights of its own keeps its 1s."""
    kinds = {"zeros in": _more_zeros, "plainer": _simpler, "one of": _simpler_number}
    return {
        f"{kind} {name}": partial(candidates, name=name)
        for kind, candidates in kinds.items()
        for name in (("w", "x", "b") if weighted else ("x",))
    }


def _operands_by_name(finding: Finding) -> Tensors:
    operands = {"x": finding.x, "w": finding.w}
    return operands if finding.b is None else operands | {"b": finding.b}


def _with(finding: Finding, name: str, values: np.ndarray) -> Finding:
    tensors = _operands_by_name(finding) | {name: values}
    return finding.with_operands(tensors["x"], tensors["w"], tensors.get("b"))


def _more_zeros(finding: Finding, name: str) -> Iterator[Finding]:
    """Zeros in place of a part: all but a part, halves, quarters, ... single ones (ddmin)."""
    values = _operands_by_name(finding).get(name)
    if values is None:
        return
    left = np.flatnonzero(_as_float64(finding, values))
    parts = 2
    while len(left):
        parts = min(parts, len(left))
        chunks = np.array_split(left, parts)
        if 2 < parts < len(left) or parts == 2 < len(left):
            yield from (
                _with(finding, name, _cleared(values, np.setdiff1d(left, c))) for c in chunks
            )
        yield from (_with(finding, name, _cleared(values, chunk)) for chunk in chunks)
        if parts == len(left):
            return
        parts *= 2


def _cleared(values: np.ndarray, places: np.ndarray) -> np.ndarray:
    cleared = values.copy()
    cleared.reshape(-1)[places] = 0
    return cleared


def _simpler(finding: Finding, name: str) -> Iterator[Finding]:
    """All numbers of a tensor with as few bits or digits, from the fewest up."""
    values = _operands_by_name(finding).get(name)
    if values is None:
        return
    wide = _as_float64(finding, values)
    dtype = finding.case.dtype
    now = sum(complexity(v, dtype) for v in wide.reshape(-1).tolist())
    if wide.size > 4096:  # speed alone: each number is written out in Python, eight times over
        return
    for bits in (1, 2, DIGIT, 6, 2 * DIGIT, 3 * DIGIT, 4 * DIGIT, 5 * DIGIT):
        for form in _forms(bits):
            plain = np.array([form(v) for v in wide.reshape(-1).tolist()]).reshape(wide.shape)
            rounded = floats.round_to(plain, dtype)
            if sum(complexity(v, dtype) for v in _as_float64(finding, rounded).reshape(-1)) < now:
                yield _with(finding, name, rounded)


def _simpler_number(finding: Finding, name: str) -> Iterator[Finding]:
    values = _operands_by_name(finding).get(name)
    if values is None:
        return
    dtype = finding.case.dtype
    wide = _as_float64(finding, values).reshape(-1)
    for place in np.flatnonzero(wide).tolist():
        value = float(wide[place])
        for plain in _plain_values(value, dtype):
            changed = values.copy()
            changed.reshape(-1)[place] = floats.round_to(np.array([plain]), dtype)[0]
            yield _with(finding, name, changed)


def _plain_values(value: float, dtype: str) -> list[float]:
    """Simpler numbers near ``value`` (and 1 of its sign), the simplest first."""
    plainer = {math.copysign(1.0, value)}
    for bits in (1, 2, 3, DIGIT, 6, 2 * DIGIT, 3 * DIGIT, 4 * DIGIT, 5 * DIGIT):
        plainer |= {form(value) for form in _forms(bits)}
    rounded = floats.widen(floats.round_to(np.array(sorted(plainer)), dtype), dtype).tolist()
    now = complexity(value, dtype)
    cost = {v: complexity(v, dtype) for v in rounded if v and math.isfinite(v)}
    return sorted(
        (v for v in cost if cost[v] < now),
        key=lambda v: (cost[v], abs(v - value)),
    )


def _forms(bits: int) -> list[Callable[[float], float]]:
    """Functions that round a number to that many significant bits, or to digits worth as many."""

    def short(value: float) -> float:
        if value == 0 or not math.isfinite(value):
            return value
        mantissa, exponent = math.frexp(value)
        return math.ldexp(round(math.ldexp(mantissa, bits)), exponent - bits)

    forms: list[Callable[[float], float]] = [short]
    if bits % DIGIT == 0:
        forms.append(lambda v: float(f"{v:.{bits // DIGIT}g}"))
    return forms


def complexity(value: float, dtype: str) -> float:
    """The bits that a reader of a number of ``dtype`` has to take in: 0 for 0, 1 for 1, 4 for 0.3.

    Its significant bits or those of its shortest decimal, whichever are fewer, and a little for
    every power of two away from 1.
    """
    if value == 0 or not math.isfinite(value):
        return 0.0
    exact = Fraction(value)
    numerator, power = abs(exact.numerator), exact.denominator.bit_length() - 1
    tail = (numerator & -numerator).bit_length() - 1
    form = np.float16 if dtype == "float16" else np.float32
    shortest = repr(value)
    if dtype != "float64":
        shortest = np.format_float_scientific(form(value), unique=True)
    digits = len(shortest.partition("e")[0].replace(".", "").strip("0-")) or 1
    far = abs(numerator.bit_length() - 1 - power)
    return min(numerator.bit_length() - tail, DIGIT * digits) + FAR * far


def _as_float64(finding: Finding, values: np.ndarray) -> np.ndarray:
    return np.asarray(floats.widen(values, finding.case.dtype))


Changes = Iterator[dict[str, Any]]


def _smallest_case(finding: Finding) -> Changes:
    """All at its least at once: with the kernel as it is, and with channels too."""
    least: dict[str, Any] = {"stride": 1, "dilation": 1, "height": None}
    least |= {} if finding.vary == "batch" else {"batch": 1}
    least |= {} if finding.padding is not None else {"padding": "valid"}
    least |= {"bias": None} if finding.case.weighted else {}
    least |= _per_group(finding, "filters", 1)
    single = _per_group(finding, "in_channels", 1)
    # the pair moved together, the smaller value kept or at its least
    pairs: list[dict[str, Any]] = [{}]
    if finding.paired and finding.vary != "layout":
        low, high = _pair_in_order(finding)
        pairs = [
            _as_pair(finding, small, small + apart)
            for small in dict.fromkeys((_least_value(finding), low))
            for apart in (1, 2, 4, 8)  # neighbours, or lanes of a vector and its halves
            if apart <= high - low
        ]
    for changes in (least | single, least):
        for pair in pairs:
            yield changes | pair


def _smaller_pairs(finding: Finding) -> Changes:
    """The two values of the axis: closer together, the smaller one smaller, both smaller."""
    if not finding.paired or finding.vary == "layout":
        return
    (low, high), least = _pair_in_order(finding), _least_value(finding)
    for apart in smaller(high - low):
        yield _as_pair(finding, low, low + apart)
    for small in smaller(low, least):
        yield _as_pair(finding, small, small + 1)
        yield _as_pair(finding, small, small + high - low)
    for small in smaller(low, least):
        yield _as_pair(finding, small, high)


def _pair_in_order(finding: Finding) -> tuple[int, int]:
    assert finding.at is not None and finding.against is not None
    low, high = sorted((finding.at, finding.against))
    return low, high


def _least_value(finding: Finding) -> int:
    if finding.vary == "length":
        return max(finding.left.shortest_length, finding.right.shortest_length)
    return finding.case.groups if finding.vary == "filters" else 1


def _as_pair(finding: Finding, low: int, high: int) -> dict[str, Any]:
    assert finding.at is not None and finding.against is not None
    upwards = finding.at < finding.against
    return {"at": low, "against": high} if upwards else {"at": high, "against": low}


def _smaller_lengths(finding: Finding) -> Changes:
    """The length of both sides, where it is not what sets them apart."""
    if finding.paired and finding.vary == "length":
        return
    assert finding.left.length is not None
    least = max(finding.left.shortest_length, finding.right.shortest_length)
    for length in smaller(finding.left.length, least):
        at = {"at": length} if finding.vary == "length" else {}
        yield {"length": length, **at}


def _groups(finding: Finding) -> Changes:
    """A single group, with one group's channels or with all of them, and fewer groups."""
    case = finding.case
    if case.groups == 1 or case.operation.depthwise:
        return
    filters = case.filters // case.groups
    for groups in smaller(case.groups):
        channels = {"in_channels": case.group_channels * groups, "filters": filters * groups}
        yield {"groups": groups, **channels}
    yield {"groups": 1}


def _features(finding: Finding) -> Changes:
    """Stride, dilation, bias and the modes of pooling: left out, or the numbers smaller."""
    case = finding.case
    for name in ("stride", "dilation"):
        yield from _smaller_axes(name, getattr(case, name), 1)
    if case.bias is not None:
        yield {"bias": None}
    if case.split is not None:
        yield {"split": None}
    if case.ceil_mode:
        yield {"ceil_mode": False}
    if case.pad_with != "nothing":
        yield {"pad_with": "nothing"}
    if case.layout != CONTIGUOUS and finding.vary != "layout":
        yield {"layout": CONTIGUOUS}


def _less_padding(finding: Finding) -> Changes:
    """No padding, or less of it; as it is where two paddings are compared."""
    padding = finding.case.padding
    if finding.padding is not None or padding == "valid":
        return
    yield {"padding": "valid"}
    if isinstance(padding, str):
        return
    for axis, (before, after) in enumerate(padding):
        fewer = [(0, after), (before, 0), *((n, after) for n in smaller(before))]
        for pair in [*fewer, *((before, n) for n in smaller(after))]:
            if pair != (before, after):
                yield {"padding": (*padding[:axis], pair, *padding[axis + 1 :])}


def _smaller_axes(name: str, sizes: tuple[int, ...], least: int) -> Changes:
    if set(sizes) != {least}:
        yield {name: least}
    for axis, size in enumerate(sizes):
        for less in smaller(size, least):
            yield {name: (*sizes[:axis], less, *sizes[axis + 1 :])}


def _height(finding: Finding) -> Changes:
    case = finding.case
    if case.height is None:
        return
    yield {"height": None}
    for axis, size in enumerate(case.height):
        for less in smaller(size):
            yield {"height": (*case.height[:axis], less, *case.height[axis + 1 :])}


def _fewer(finding: Finding, axis: str) -> Changes:
    """A smaller batch, or fewer channels or filters of a group; but of the axis that sets the sides
    apart, which the pair makes smaller."""
    case = finding.case
    if finding.paired and finding.vary == axis:
        return
    if axis == "batch":
        yield from ({"batch": batch} for batch in smaller(case.batch))
    elif axis == "channels":
        channels = case.in_channels if case.operation.depthwise else case.group_channels
        yield from (_per_group(finding, "in_channels", size) for size in smaller(channels))
    else:
        filters = smaller(case.filters // case.groups)
        yield from (_per_group(finding, "filters", size) for size in filters)


def _per_group(finding: Finding, name: str, size: int) -> dict[str, Any]:
    """Channels or filters of a group; {} for the axis that sets the sides apart, or without any."""
    case = finding.case
    what = case.operation
    if name == "filters":
        fixed = not what.weighted or (finding.paired and finding.vary == "filters")
        return {} if fixed else {"filters": size * case.groups}
    if finding.paired and finding.vary == "channels":
        return {}
    if not what.depthwise:
        return {"in_channels": size * case.groups}
    return {"in_channels": size, "groups": None, "filters": case.filters // case.groups * size}


def _kernel(finding: Finding) -> Changes:
    case = finding.case
    if not case.operation.windows:
        return
    names = ("at", "against") if finding.paired and finding.vary == "length" else ("length",)
    sizes = case.arguments() | {"at": finding.at, "against": finding.against}
    for changes in _smaller_axes("kernel", case.kernel, 1):
        # first at the lengths that give as many outputs: their number may decide
        kernel = changes["kernel"]
        last = kernel if isinstance(kernel, int) else kernel[-1]
        less = (case.kernel[-1] - last) * case.dilation[-1]
        same = {name: sizes[name] - less for name in names if sizes[name] is not None and less}
        yield changes | same
        yield changes


# What each step proposes, in the order in which they are taken.
PROPOSALS: dict[str, Callable[[Finding], Changes]] = {
    "everything": _smallest_case,
    "pair": _smaller_pairs,
    "length": _smaller_lengths,
    "groups": _groups,
    "features": _features,
    "padding": _less_padding,
    "batch": partial(_fewer, axis="batch"),
    "height": _height,
    "channels": partial(_fewer, axis="channels"),
    "filters": partial(_fewer, axis="filters"),
    "kernel": _kernel,
}


def shape_steps(draw: Callable[[Finding], Finding]) -> Steps:
    """All steps of shapes. ``draw`` gives a candidate the operands with which it is asked."""

    def candidates(propose: Callable[[Finding], Changes], finding: Finding) -> Iterator[Finding]:
        for changes in propose(finding):
            with suppress(InputError):  # not a case
                yield draw(finding.reshaped(**changes))

    return {name: partial(candidates, propose) for name, propose in PROPOSALS.items()}


# Ways of making a value smaller, by name: each gives candidates from the smallest one up, smaller
# than the value in some respect and larger in none, so that every sequence of steps ends. Values
# have a ``key``: those with equal keys need not both be asked.
Steps = Mapping[str, Callable[[Any], Iterable[Any]]]


class Passed(NamedTuple):
    """A candidate that did not fail, and the step that made it."""

    step: str
    value: Any


class Spent(Exception):
    """The budget of calls is used up."""


class Search:
    """A failing value, reduced until no single step keeps the failure.

    ``fails(value)``: the predicate, which may be exchanged between steps. ``most``: how often it
    may be called. ``tell(calls, best)`` hears of every call. ``calls`` and ``best`` are true at all
    times, also where an exception ends a step.
    """

    def __init__(
        self,
        start: Any,
        fails: Callable[[Any], bool],
        most: int,
        tell: Callable[[int, Any], None] | None = None,
    ) -> None:
        self.best, self.fails, self.most, self.calls = start, fails, most, 0
        # what was reduced is explained and proved afterwards, which takes time too
        limit = budget.current_budget()
        self._ends = float("inf") if limit is None else time.monotonic() + limit.left / 2
        self._tell = tell
        self._seen: set[Hashable] = {start.key}
        self._passed: set[Hashable] = set()

    def ask(self, value: Any) -> bool:
        """The predicate's answer. Raises Spent where no call or no time is left."""
        late = time.monotonic() > self._ends or bool(budget.spent())
        if self.calls >= self.most or (self.calls and late):
            raise Spent
        self.calls += 1
        failed = self.fails(value)
        if self._tell is not None:
            self._tell(self.calls, self.best)
        return failed

    def consider(self, candidate: Any) -> bool:
        """Whether a candidate fails; it is the best then. Seen before: False, no cost."""
        if candidate.key in self._seen:
            return False
        failed = self.ask(candidate)
        self._seen.add(candidate.key)
        if failed:
            self.best = candidate
        else:
            self._passed.add(candidate.key)
        return failed

    def exhaust(self, steps: Steps) -> None:
        """Takes every step as often as it helps, until none of them does. Raises Spent."""
        changed = True
        while changed:
            changed = False
            for candidates in steps.values():
                while any(self.consider(candidate) for candidate in candidates(self.best)):
                    changed = True

    def near(self, steps: Steps) -> list[Passed]:
        """Candidates one step from the best that were asked and did not fail. Asks nothing."""
        return [
            Passed(name, candidate)
            for name, candidates in steps.items()
            for candidate in candidates(self.best)
            if candidate.key in self._passed
        ]


def smaller(number: int, least: int = 1) -> Iterator[int]:
    """Numbers from ``least`` up to below ``number``: doubling distances from below, then from it.

    Some 2 log2(number - least) of them, ``least`` first and ``number - 1`` last; none where
    ``number`` is ``least`` or below it.
    """
    if number <= least:
        return
    yield least
    numbers, step = {least}, 1
    while least + step < number:
        yield least + step
        numbers.add(least + step)
        step *= 2
    step = (number - least) // 4
    while step:
        if number - step not in numbers:
            yield number - step
        step //= 2
