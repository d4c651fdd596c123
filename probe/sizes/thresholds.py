"""Finds at which sizes a target changes how it adds, classes of sizes, and the floor to fill up to.

The size is the length, or the batch (of a dense layer: its rows); what is said here of lengths and
the rows of a call holds of batches and their samples. A row is a place of what is varied: a row of
a dense layer, a sample of a batch, an output position along the length.

All small sizes are run, then sizes are searched (``SizeSearch``) by their *interior*, the summation
of most outputs of a call. Between two lengths with the same interior no change is assumed, and
between two with different ones only one; both are checked at random lengths, and what contradicts
is reported and looked into.

Sizes at which some rows add differently than others are in no class. A class holds the sizes that
were run, and no other: nothing proves a period of a library beyond the sizes that show it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from probe.case import memory
from probe.case.case import Case
from probe.case.errors import InputError, TargetError
from probe.order.summation import Summation
from probe.order.tree import order_name, short_formula
from probe.order.window import axis_of
from probe.sizes.bisection import SizeSearch, doubled
from probe.sizes.recognition import MIXED, SHORT, Pattern, Recogniser
from probe.sweep.printing import counted, ranges
from probe.targets import backends, budget, machine
from probe.targets.launch import AnySession
from probe.targets.progress import VOICE, Say, silent
from probe.targets.target import Target


@dataclass(frozen=True)
class Switch:
    """The interior is ``left`` at length ``before`` and ``right`` at ``at``: numbers of kinds.

    ``at - before`` is 1. ``scanned``: all lengths around were run; else found by bisection.
    """

    before: int
    at: int
    left: int
    right: int
    causes: tuple[str, ...]
    scanned: bool


@dataclass
class Thresholds:
    """What ``find_thresholds`` found.

    ``patterns``: of every size that was run; all of them up to ``scanned``. ``upto``: the largest
    one, ``limited`` why it is not the one asked for. ``period``: of what the upper half of the scan
    shows; None: there is none up to 16. ``assumed`` and ``checked`` say what stands behind switches
    found by bisection; ``violations`` what contradicted it. ``vary``: ``length`` or ``batch``,
    whose sizes all of these are then. ``threads``: how many the library took, None where it doesn't
    say; with a different number all of this can be different.
    """

    case: Case
    target: str
    recogniser: Recogniser
    shortest: int
    vary: str = "length"
    threads: int | None = None
    patterns: dict[int, Pattern] = field(default_factory=dict)
    scanned: int = 0
    upto: int = 0
    limited: str = ""
    period: int | None = None
    switches: list[Switch] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def threads_text(self) -> str:
        return threads_text(self.threads)

    @property
    def sizes(self) -> str:
        """What is varied, in the plural."""
        return PLURAL[self.vary]

    @property
    def sets(self) -> int:
        """On how many sets of operands each mark was made."""
        return len(self.recogniser.operands.sets_for(self.recogniser.operands.all_leaves))

    def to_json(self) -> dict[str, Any]:
        """What ``probe fix sizes --json`` prints."""
        recogniser = self.recogniser
        elsewhere = {str(n): self.patterns[n].elsewhere for n in sorted(self.patterns)}
        unknown = sorted(size for size, pattern in self.patterns.items() if pattern.unknown)
        return {
            "target": self.target,
            "case": self.case.to_json(),
            "threads": self.threads,
            "vary": self.vary,
            "shortest": self.shortest,
            "upto": self.upto,
            "limited": self.limited,
            "switches": [
                {
                    **vars(switch),
                    "causes": list(switch.causes),
                    "how": "scan" if switch.scanned else "bisection",
                }
                for switch in self.switches
            ],
            "period": self.period,
            "elsewhere": {length: rows for length, rows in elsewhere.items() if rows},
            "kinds": [list(kind if len(set(kind)) > 1 else kind[:1]) for kind in recogniser.kinds],
            "orders": [
                {
                    "number": number,
                    "id": each.tree.id,
                    "tree": each.tree.text,
                    "fused": each.fused_text,
                    **each.rounding.rare(),
                }
                for number, each in enumerate(recogniser.summations)
            ],
            "assumed": self.assumed,
            "checked": self.checked,
            "layouts": [self.case.layout],
            "violations": self.violations,
            "failures": self.failures,
            "unknown": {"lengths": unknown, "evidence": recogniser.evidence} if unknown else None,
            "sets": self.sets,
            "lengths_run": len(self.patterns),
            "calls": recogniser.calls,
            "seconds": round(self.seconds, 3),
        }


PLURAL = {"length": "lengths", "batch": "batches"}


def threads_of(facts: Mapping[str, Any], where: Target) -> int | None:
    """How many threads a started target's library takes; None where it doesn't say."""
    threads = facts.get("threads") or dict(where.switches).get("threads")
    return int(threads) if threads else None


def threads_text(threads: int | None) -> str:
    if threads is None:
        return f"the library's own number of threads on {counted(machine.cores(), 'processor')}"
    return counted(threads, "thread")


# Bytes that input and output may take in both processes together, and outputs of a call, all of
# which are looked at.
MEMORY, OUTPUTS = 6 << 30, 1 << 22

# Short lengths that are all run.
SCANNED = 64
# Products up to which more lengths are all run: some seconds. It is no time, so that the same
# lengths are run on a busy machine.
WORK = 10_000_000_000
# Products that take as long as what a call costs besides.
A_CALL = 400_000
# Random lengths in every interval of the grid.
CHECKS = 2
# The longest period that is looked for.
LONGEST_PERIOD = 16
# Times that a period is seen before it is one: 38, 39 and 40 agree where every third size is alike.
PERIODS = 3


def find_thresholds(
    session: AnySession,
    case: Case,
    upto: int = 1_000_000,
    *,
    progress: Say | None = None,
    vary: str | None = None,
    scanned: int | None = None,
) -> Thresholds:
    """The lengths up to ``upto`` at which ``case`` on a started session changes its
    summations.

    ``vary``: ``length``, or ``batch`` (then the case's length is set); None: the length, of a dense
    layer the batch. ``scanned``: that many of the shortest lengths are all run; None: 64, and as
    many more as cost little (``WORK``). Then they double, intervals whose ends differ are bisected,
    and random lengths are run in each. ``progress(text)`` before each run.

    A length costs 9 calls of the operator (25 for sums of up to 32 products), and half as many for
    every way in which windows meet padding; more only where a summation is met that was not known.
    InputError: ``upto`` is shorter than any output needs. TargetError: the target failed at the
    shortest length.
    """
    if (vary := axis_of(case, vary)) not in PLURAL:
        todo = "use length or batch; probe sweep --by order takes all axes"
        raise InputError("vary", vary, "thresholds are not searched along it", todo)
    if vary == "batch":
        if not case.weighted:
            why = "its sums have no weights to ask with"
            raise InputError("op", case.op, why, "take a product or a convolution")
        if case.spatial_rank and case.length is None:
            why = "where the batch is varied, the length is fixed"
            raise InputError("length", None, why, "give --length N")
        if not case.operation.batched:
            raise InputError("op", case.op, "it takes one input", "take matmul or dense")
    first = shortest_size(case, vary)
    if upto < first:
        why = f"the shortest length with a window without padding is {first}"
        raise InputError("upto", upto, why, "raise it")
    memory.require(case.with_(**{vary: first}))
    case = case.with_(**{vary: 1 if vary == "batch" else None})
    recogniser = Recogniser(session, case, vary)
    threads = threads_of(session.facts, session.target)
    result = Thresholds(case, session.target.text, recogniser, first, vary, threads)
    begun = time.monotonic()
    _ThresholdSearch(session, result, progress or silent).upto(upto, scanned)
    result.seconds = time.monotonic() - begun
    return result


def shortest_size(case: Case, vary: str) -> int:
    """The first size: of lengths the one at which a window meets no padding."""
    return 1 if vary == "batch" else max(case.shortest_length, case.effective_kernel[-1])


class _ThresholdSearch:
    """Runs the sizes of a case, and keeps in ``result`` what they show."""

    def __init__(self, session: AnySession, result: Thresholds, progress: Say) -> None:
        self.session, self.result, self.progress = session, result, progress
        self.search = SizeSearch(
            self._pattern, lambda left, right: left.interior == right.interior, result.patterns
        )

    def upto(self, upto: int, scanned: int | None) -> None:
        result, first = self.result, self.result.shortest
        reach = self._fitting(upto)
        result.scanned = self._scan_end(reach, scanned)
        for size in VOICE.counting(range(first, result.scanned + 1), result.sizes):
            self.search.mark(size)
        kinds = [self._kind(size) for size in range(first, result.scanned + 1)]
        # a switch among them need not move at which sizes rows differ
        mixed = [None if kind is None else kind == MIXED for kind in kinds]
        result.period = _period(kinds) or _period(mixed)
        # neighbours of the grid have one remainder by the period, so that they can be alike
        grid = [*doubled(result.scanned, reach, result.period or 1)]
        random = list[int]()
        for low, high in VOICE.counting([*pairwise(grid)], "ranges"):
            if self.search.mark(low) is None or self.search.mark(high) is None:
                break
            random += self._interval(low, high)
        # all sizes from the last switch to twice that, if they cost little: see ``floor``
        last = max((switch.at for switch in self._switches()), default=0)
        if result.scanned < last and 2 * last <= reach and last * self._cost(2 * last) <= WORK:
            for size in VOICE.counting(range(last, 2 * last + 1), result.sizes):
                self.search.mark(size)
        result.upto, result.switches = max(result.patterns), self._switches()
        self._assume(reach)
        self._check(random)

    def _pattern(self, size: int) -> Pattern | None:
        """None if the target failed at a size, or time is up. TargetError: at the first size."""
        result = self.result
        if result.patterns and (why := budget.spent()):
            result.limited = result.limited or why
            return None
        self.progress(f"{result.vary} {size:,}")
        try:
            # without the first size nothing is known
            with budget.Ending(result.patterns):
                return result.recogniser.pattern(size)
        except TargetError as error:
            if not result.patterns:
                raise
            result.failures.append(f"{result.vary} {size}: {error}")
            self.session.revive()
        return None

    def _kind(self, size: int) -> int | None:
        pattern = self.result.patterns.get(size)
        return None if pattern is None else pattern.kind

    def _scan_end(self, reach: int, scanned: int | None) -> int:
        """The last of the short sizes that are all run."""
        first, cost = self.result.shortest, 0
        if scanned is not None:
            return min(reach, first + scanned - 1)
        last = min(reach, first + SCANNED - 1)
        for size in range(first, reach + 1):
            if (cost := cost + self._cost(size)) > WORK:
                break
            last = max(last, size)
        return last

    def _fitting(self, upto: int) -> int:
        """The largest size that is looked at."""
        result = self.result

        def refused(size: int) -> str:
            case = result.case.with_(**{result.vary: size})
            drawn = case.input_shape(), case.weight_shape
            most = memory.need(drawn, [case.output_shape()], case.dtype)
            if most > MEMORY:
                return f"needs more than the {MEMORY >> 20} MiB that are allowed"
            outputs = int(np.prod(case.output_shape(), dtype=object))
            return f"has more than {OUTPUTS:,} outputs" * (outputs > OUTPUTS)

        if not (why := refused(upto)):
            return upto
        result.limited = f"{result.vary} {upto} {why}"
        changes = SizeSearch(lambda size: bool(refused(size))).bisect(result.shortest, upto)
        return changes[0][0] if changes else result.shortest

    def _cost(self, size: int) -> int:
        """What a size costs, in products."""
        case = self.result.case.with_(**{self.result.vary: size})
        calls = 9 if case.summands > SHORT else 25
        return calls * (A_CALL + int(np.prod(case.output_shape(), dtype=object)) * case.summands)

    def _interval(self, low: int, high: int) -> list[int]:
        """Runs random sizes between two of the grid, every other one of the grid's own remainder,
        which it returns; neighbours of that remainder whose interiors differ are bisected."""
        result, search, step = self.result, self.search, self.result.period or 1
        drawn = np.random.default_rng(low).integers(low + 1, max(high, low + 2), CHECKS)
        random = []
        for number, size in enumerate(drawn.tolist()):
            size += 0 if number % 2 else (low - size) % step
            if size not in search.marks and search.mark(size) is not None:
                random.append(size)
        changes = search.bisect(low, high, step)
        for before, after in changes:
            if after - before <= step:  # less than a period apart: all between are run
                for size in range(before + 1, after):
                    search.mark(size)
        if len(changes) > 1:
            result.violations.append(
                f"between {result.sizes} {low} and {high} the interior changes more than once"
            )
        return random

    def _switches(self) -> list[Switch]:
        """Neighbours that were run whose interiors differ."""
        switches, patterns = [], self.result.patterns
        for before, after in self.search.changes(self.result.shortest, max(patterns)):
            if after == before + 1:
                pair = patterns[before].interior, patterns[after].interior
                causes = self.result.recogniser.causes(*pair)
                switches.append(Switch(before, after, *pair, causes, before < self.result.scanned))
        return switches

    def _assume(self, reach: int) -> None:
        result = self.result
        laid = len(backends.get(self.session.target.name).layouts) > 1
        said = [f"operands lie in memory as {result.case.layout}"] * laid
        said.append(
            f"{threads_text(result.threads)}; with a different number the classes can be different"
        )
        said.append("operands are finite; `probe order window` tests what NaN gets into")
        if reach > result.scanned:
            said.append(
                f"beyond {result.vary} {result.scanned} the interior changes at most once between "
                f"those of the doubling grid that differ, and not between those that don't"
            )
        result.assumed += said

    def _check(self, random: Sequence[int]) -> None:
        result = self.result
        if random:
            sizes = f"{len(random)} random {result.sizes}: {', '.join(map(str, random))}"
            result.checked.append(f"the interior at {sizes}")
        result.checked.append(f"the same call again at all {len(result.patterns)} {result.sizes}")
        unsteady = [str(n) for n, pattern in result.patterns.items() if not pattern.steady]
        if unsteady:
            result.violations.append(f"the same call again differs: {', '.join(unsteady)}")


def _period(signs: list[Any]) -> int | None:
    """The smallest period, up to 16, of the second half of what was seen; None: none."""
    half = signs[len(signs) // 2 :]
    if None in half:  # a size that was not run shows nothing
        return None
    for period in range(1, min(LONGEST_PERIOD, len(half) // PERIODS) + 1):
        if all(first == second for first, second in zip(half, half[period:], strict=False)):
            return period
    return None


NOUNS = {"dense": "rows"}
# Characters of an order that has no name.
WRITTEN = 48


@dataclass(frozen=True)
class SizeClass:
    """Sizes that were run, at which every row adds as ``kind`` says."""

    kind: int
    sizes: tuple[int, ...]

    @property
    def spans(self) -> list[tuple[int, int]]:
        """Stretches of neighbours, (first, last)."""
        ends = np.flatnonzero(np.diff(self.sizes) > 1)
        parts = np.split(np.array(self.sizes), ends + 1)
        return [(int(part[0]), int(part[-1])) for part in parts]

    @property
    def text(self) -> str:
        """``{2..15}``, the sizes that were run."""
        return f"{{{ranges(self.sizes, 6)}}}"

    def to_json(self) -> dict[str, Any]:
        spans = [[first, last, 1] for first, last in self.spans]
        return {"kind": self.kind, "sizes": spans, "count": len(self.sizes)}


@dataclass(frozen=True)
class Floor:
    """From ``size`` to ``run_to`` every row adds as at the largest size, at multiples of ``step``.

    All sizes up to ``run_to`` were run, in three periods or more: of sizes beyond it nothing is
    said. ``size`` None: no such size was found. ``text``: the answer in one line, with how rows add
    below and above.
    """

    size: int | None
    step: int
    kind: int
    text: str
    run_to: int

    def to_json(self) -> dict[str, Any]:
        return vars(self)


def classes(points: Thresholds) -> list[SizeClass]:
    """The classes, that of the smallest size first."""
    sizes = dict[int, list[int]]()
    for size in sorted(points.patterns):
        if (kind := points.patterns[size].kind) != MIXED:
            sizes.setdefault(kind, []).append(size)
    return [SizeClass(kind, tuple(run)) for kind, run in sizes.items()]


def floor(points: Thresholds) -> Floor:
    """Which floor keeps every row's sum as at the largest size, and why.

    Where 2, 3 and 4 of six sizes are alike, a search that ends at 40 ends behind three alike ones.
    So a period, 1 for a floor, has to show three times in the upper half of all sizes, all run.
    """
    kind = points.patterns[max(points.patterns)].interior
    first = last = max((switch.at for switch in points.switches), default=points.shortest)
    while first - 1 in points.patterns:
        first -= 1
    while last + 1 in points.patterns:
        last += 1
    sizes = np.arange(first, last + 1)
    alike = np.array([points.patterns[size].kind == kind for size in sizes.tolist()])
    middle = (points.shortest + last) // 2
    half = alike[max(middle - first, 0) :] if first <= middle else alike[:0]
    all_alike = first == points.shortest and alike.all()
    periods = [1] if all_alike else range(1, len(half) // PERIODS + 1)
    period = next((n for n in periods if (half[n:] == half[:-n]).all()), 0)
    steps = (n for n in range(1, period + 1) if period % n == 0)
    ends = sizes[-period:], alike[-period:]
    step = next((n for n in steps if ends[1][ends[0] % n == 0].all()), 0)
    if not step:
        return Floor(None, 1, kind, _no_floor_text(points, sizes, alike), last)
    multiples = sizes % step == 0
    unlike = sizes[multiples & ~alike].tolist()
    size = int(sizes[multiples & (sizes > max(unlike, default=0))][0])
    # the largest size below that was run and adds differently, a multiple if there is one
    below = max(unlike or sizes[~alike & (sizes < size)].tolist(), default=None)
    text = f"{_floor_text(points, (size, step, kind), below, last)}; run up to {last:,}"
    return Floor(size, step, kind, text, last)


def _no_floor_text(points: Thresholds, sizes: np.ndarray, alike: np.ndarray) -> str:
    """What stands against a floor in one line."""
    at, last = int(sizes[~alike][-1]), int(sizes[-1])
    kind = points.patterns[at].kind
    way = f"{_noun(points)} are added {kind_words(points, kind)}"
    text = f"no floor: at {_size_text(points, at)}, {_mixed(points, at) if kind == MIXED else way}"
    if at < last:
        text += f"; alike at {ranges(range(at + 1, last + 1))}, too few to tell a floor"
    return f"{text}; run up to {last:,}"


def _floor_text(points: Thresholds, top: tuple[int, int, int], below: int | None, last: int) -> str:
    size, step, kind = top
    if below is None:
        what = f"no floor, but multiples of {step} are" if step > 1 else "no floor is"
        rows = f"from {size:,} to {last:,}{', at these,' * (step > 1)} all {_noun(points)}"
        return f"{what} needed: {rows} are added {kind_words(points, kind)}"
    by = f", in multiples of {step}" * (step > 1)
    first, below_kind = (
        f"floor: {_size_text(points, size)}{by}; below, at ",
        points.patterns[below].kind,
    )
    if below_kind == MIXED:
        way = _mixed(points, below)
        return f"{first}{below:,}, {way}, from {size:,} on all {kind_words(points, kind)}"
    less, more = _words_apart(points, below_kind, kind)
    causes = "+".join(points.recogniser.causes(below_kind, kind))
    text = f"{first}{below:,}, {_noun(points)} are added {less}"
    return f"{text}, from {size:,} on {more} ({causes})"


def _noun(points: Thresholds) -> str:
    return NOUNS.get(points.case.op, "samples") if points.vary == "batch" else "outputs"


def _size_text(points: Thresholds, size: int) -> str:
    if points.case.op == "dense":
        return f"{size:,} row{'s' * (size > 1)}"
    return f"{points.vary} {size:,}"


def _mixed(points: Thresholds, size: int) -> str:
    """How rows of one call are added differently, in words."""
    pattern = points.patterns[size]
    if not pattern.steady:
        return "the same call again gives different bits"
    if pattern.unknown:
        return f"{pattern.unknown:,} outputs have no known order"
    rows = sum(count for _, count in pattern.tail)
    if not rows:
        return f"{pattern.elsewhere:,} of {len(pattern.kinds):,} are added differently"
    last = "the last one is" if rows == 1 else f"the last {rows:,} are"
    return f"{last} added {_words_apart(points, pattern.tail[0][0], pattern.interior)[0]}"


def _words_apart(points: Thresholds, kind: int, other: int) -> tuple[str, str]:
    """How the outputs that two kinds add differently are mostly added, in words."""
    kinds = points.recogniser.kinds
    pairs = Counter(p for p in zip(kinds[kind], kinds[other], strict=True) if p[0] != p[1])
    ((pair, _),) = pairs.most_common(1)
    words = [_order_words(points, number) for number in pair]
    if words[0] == words[1]:
        words = [_order_words(points, number, rounding=True) for number in pair]
    return words[0], words[1]


def kind_words(points: Thresholds, kind: int) -> str:
    """How most outputs of a kind are added, in words."""
    return _order_words(points, Counter(points.recogniser.kinds[kind]).most_common(1)[0][0])


def _order_words(points: Thresholds, number: int, rounding: bool = False) -> str:
    """The order's name; without one, in how many running sums products are added."""
    if number < 0:
        return "in an order that is not known"
    summation: Summation = points.recogniser.summations[number]
    name = order_name(summation.tree)
    if not name:
        running = 1 + sum(all(child < 0 for child in node) for node in summation.tree.nodes)
        name = f"in {running:,} running sums, as {short_formula(summation.tree, WRITTEN)}"
    phrases = summation.text(points.case.dtype, partial(ranges, most=4)) if rounding else []
    return ", ".join([name, *phrases])
