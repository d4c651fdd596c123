"""Finds at which sizes a target changes how it adds, classes of sizes, and the floor to fill up to.

The size is the length, or the batch (of a dense layer: its rows); what is said here of lengths and
the rows of a call holds of batches and their samples. A row is a place of what is varied: a row of
a dense layer, a sample of a batch, an output position along the length.

All small sizes are run, then sizes are bisected by their *interior*, the summation of most outputs
of a call; the *tail*, what is left over behind the last full packet, follows the length's remainder
and is kept apart. Between two lengths with the same interior no change is assumed, and between two
with different ones only one; both are checked at random lengths, and what contradicts is reported
and looked into.

Sizes at which some rows add differently than others are in no class. A class holds the sizes that
were run, and no other: nothing proves a period of a library beyond the sizes that show it. Sizes
between two that were run, with the same remainder by that period, are listed apart, as expected.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from probe.case import memory
from probe.case.case import Case
from probe.case.errors import InputError, TargetError
from probe.order.summation import Summation
from probe.order.tree import order_name, short_formula
from probe.order.window import axis_of
from probe.sizes.recognition import ALL, MIXED, ROWS, SAMPLES, SHORT, UNKNOWN, Pattern, Recogniser
from probe.sweep.printing import counted, ranges
from probe.targets import backends, budget, machine
from probe.targets.launch import AnySession
from probe.targets.progress import VOICE, Say
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
    one, ``limited`` why it is not the one asked for. ``period``: of what all sizes of the scan show
    from ``settled`` on; None: there is none up to 16. ``tails`` maps an interior to {remainder:
    tail}, where lengths with that remainder by ``period`` all have this tail, as (kind, rows).
    ``assumed`` and ``checked`` say what stands behind switches found by bisection; ``violations``
    what contradicted it. ``vary``: ``length`` or ``batch``, whose sizes all of these are then.
    ``threads``: how many the library took, None where it doesn't say; with a different number all
    of this can be different.
    """

    case: Case
    target: str
    recogniser: Recogniser
    shortest: int
    vary: str = "length"
    threads: int | None = None
    patterns: dict[int, Pattern] = field(default_factory=dict)
    scanned: int = 0
    settled: int = 1
    upto: int = 0
    limited: str = ""
    period: int | None = None
    switches: list[Switch] = field(default_factory=list)
    tails: dict[int, dict[int, tuple[tuple[int, int], ...]]] = field(default_factory=dict)
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
        """Returns what is varied, in the plural."""
        return PLURAL[self.vary]

    @property
    def sets(self) -> int:
        """On how many sets of operands each mark was made."""
        return len(self.recogniser.operands.sets_for(self.recogniser.operands.every))

    def to_json(self) -> dict[str, Any]:
        """Returns what ``probe fix sizes --json`` prints."""
        known = self.recogniser
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
            "tails": {
                str(kind): {str(rest): [list(run) for run in tail] for rest, tail in tails.items()}
                for kind, tails in self.tails.items()
            },
            "elsewhere": {length: rows for length, rows in elsewhere.items() if rows},
            "kinds": [list(kind if len(set(kind)) > 1 else kind[:1]) for kind in known.kinds],
            "orders": [
                {
                    "number": number,
                    "id": each.tree.id,
                    "tree": each.tree.text,
                    "fused": each.fused_text,
                    **each.rounding.rare(),
                }
                for number, each in enumerate(known.summations)
            ],
            "assumed": self.assumed,
            "checked": self.checked,
            "layouts": [self.case.layout],
            "violations": self.violations,
            "failures": self.failures,
            "unknown": {"lengths": unknown, "evidence": known.evidence} if unknown else None,
            "sets": self.sets,
            "lengths_run": len(self.patterns),
            "calls": known.calls,
            "seconds": round(self.seconds, 3),
        }


PLURAL = {"length": "lengths", "batch": "batches"}


def threads_of(facts: Mapping[str, Any], where: Target) -> int | None:
    """Returns how many threads a started target's library takes; None where it doesn't say."""
    threads = facts.get("threads") or dict(where.switches).get("threads")
    return int(threads) if threads else None


def threads_text(threads: int | None) -> str:
    if threads is None:
        return f"the library's own number of threads on {counted(machine.cores(), 'processor')}"
    return counted(threads, "thread")


def islands(result: Thresholds) -> Iterator[tuple[int, int, int]]:
    """Returns (first length, last length seen, kind) of every stretch between two switches."""
    start, kind = result.shortest, result.patterns[result.shortest].interior
    for switch in result.switches:
        yield start, switch.before, kind
        start, kind = switch.at, switch.right
    yield start, result.upto, kind


# Bytes that input and output may take in both processes together.
MEMORY = 6 << 30

# Short lengths that are all run.
SCANNED = 64
# Products up to which more lengths are all run: some seconds. It is no time, so that the same
# lengths are run on a busy machine.
WORK = 10_000_000_000
# Products that take as long as what a call costs besides.
A_CALL = 400_000
# Random lengths in every interval of the grid.
CHECKS = 2
# The longest period of tails that is looked for.
LONGEST_PERIOD = 16
# Times that a period is seen before it is one: 38, 39 and 40 agree where every third size is alike.
PERIODS = 3
# Sizes of one interval of the grid that are run where its interior changes again and again.
MOST_RUN = 400


def find_thresholds(
    session: AnySession,
    case: Case,
    upto: int = 1_000_000,
    *,
    progress: Say | None = None,
    vary: str | None = None,
    **limits: Any,
) -> Thresholds:
    """Returns the lengths up to ``upto`` at which ``case`` on a started session changes its
    summations.

    ``vary``: ``length``, or ``batch`` (then the case's length is set); None: the length, of a dense
    layer the batch.

    ``limits``: see :class:`_Search`. All short lengths are run, then they double, intervals whose
    ends differ are bisected, and random lengths are run in each. ``progress(text)`` before each
    run. Calls of more than 4 million outputs are looked at in some rows only: both
    ends, the middle and scattered ones.

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
    known = Recogniser(session, case, vary)
    threads = threads_of(session.facts, session.target)
    result = Thresholds(case, session.target.text, known, first, vary, threads)
    return _Search(session, result, progress, **limits).upto(upto)


def shortest_size(case: Case, vary: str) -> int:
    """Returns the first size: of lengths the one at which a window meets no padding."""
    return 1 if vary == "batch" else max(case.shortest_length, case.effective_kernel[-1])


@dataclass
class _Search:
    """Runs sizes, each once, and keeps what was seen.

    ``scanned``: that many of the shortest lengths are all run; None: 64, and as many more as cost
    little (``WORK``). ``checks``: random lengths, by ``seed``, that are run in each interval.
    ``room``: bytes; lengths that need more are left out, which the result says. ``seconds``: no
    length is begun after that time; None: no limit.
    """

    session: AnySession
    result: Thresholds
    progress: Say | None
    scanned: int | None = None
    checks: int = CHECKS
    seed: int = 0
    room: int = MEMORY
    seconds: float | None = None

    def __post_init__(self) -> None:
        self.begun, self.seen, self.stage = time.monotonic(), self.result.patterns, ""
        self.rng, self.random = np.random.default_rng(self.seed), list[int]()

    def upto(self, upto: int) -> Thresholds:
        """Runs sizes from the first one on, and says what they show."""
        result, first = self.result, self.result.shortest
        reach = self._fitting(upto)
        scanned, cost = self.scanned or SCANNED, 0
        for size in range(first, reach + 1 if self.scanned is None else first):
            if (cost := cost + self._cost(size)) > WORK:
                break
            scanned = max(scanned, size - first + 1)
        result.scanned = min(reach, first + scanned - 1)
        every = range(first, result.scanned + 1)
        self.stage = f"part 1 of 2, {result.sizes} up to {result.scanned:,}"
        for size in VOICE.counting(every, result.sizes):
            self.run(size)
        result.settled = first + len(every) // 2
        # rows before the tail that add differently make a size mixed too, so they count
        patterns = [self.seen.get(size) for size in every]
        signs = [each and (each.interior, each.tail, each.elsewhere > 0) for each in patterns]
        tails = [sign and sign[1:] for sign in signs]  # which a switch among them need not move
        result.period = _period(signs) or _period(tails)
        step = result.period or 1
        # neighbours of the grid have one remainder by the period, so that their tails can be alike
        grid = [result.scanned]
        while grid[-1] + step <= reach:
            double = min(2 * grid[-1], reach)
            grid.append(grid[-1] + max(1, (double - grid[-1]) // step) * step)
        self.stage = f"part 2 of 2, {result.sizes} up to {reach:,}"
        for low, high in VOICE.counting([*pairwise(grid)], "ranges"):
            if self.run(low) is None or self.run(high) is None:
                break
            self._interval(low, high, step)
        self._assume(reach)
        # all sizes from the last switch to twice that, if they cost little: see ``floor``
        last = max((switch.at for switch in self._switches()), default=0)
        if result.scanned < last and 2 * last <= reach and last * self._cost(2 * last) <= WORK:
            for size in VOICE.counting(range(last, 2 * last + 1), result.sizes):
                self.run(size)
        self._conclude()
        return result

    def _fitting(self, upto: int) -> int:
        """The largest size that memory allows."""
        result, allowed = self.result, self.room

        def needed(size: int) -> int:
            case = result.case.with_(**{result.vary: size})
            drawn = case.input_shape(), case.weight_shape
            return memory.need(drawn, [case.output_shape()], case.dtype)

        if (most := needed(upto)) <= allowed:
            return upto
        why = f"needs some {most >> 20} MiB, and {allowed >> 20} MiB are allowed"
        result.limited = f"{result.vary} {upto} {why}"
        low, high = result.shortest, upto
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if needed(middle) <= allowed else (low, middle)
        return low

    def run(self, size: int) -> Pattern | None:
        """What was seen at a size; None if the target failed there or time is up."""
        if size in self.seen:
            return self.seen[size]
        late = self.seconds is not None and time.monotonic() - self.begun > self.seconds
        if self.seen and (why := f"stopped after {self.seconds:g} s" if late else budget.spent()):
            self.result.limited = self.result.limited or why
            return None
        if self.progress:
            self.progress(f"{self.stage}: {self.result.vary} {size:,}")
        try:
            # without the first size nothing is known
            with budget.Ending(self.seen):
                self.seen[size] = self.result.recogniser.pattern(size)
        except TargetError as error:
            if not self.seen:
                raise
            self.result.failures.append(f"{self.result.vary} {size}: {error}")
            self.session.revive()
        return self.seen.get(size)

    def _cost(self, size: int) -> int:
        """What a size costs, in products."""
        case = self.result.case.with_(**{self.result.vary: size})
        calls = 9 if case.summands > SHORT else 25
        return calls * (A_CALL + int(np.prod(case.output_shape(), dtype=object)) * case.summands)

    def _interval(self, low: int, high: int, step: int) -> None:
        """Runs random sizes between two of the grid, every other one of the grid's own remainder;
        neighbours of that remainder whose interiors differ are bisected."""
        result, drawn = self.result, self.rng.integers(low + 1, max(high, low + 2), self.checks)
        for number, size in enumerate(drawn.tolist()):
            size += 0 if number % 2 else (low - size) % step
            if size not in self.seen and self.run(size) is not None:
                self.random.append(size)

        def changes() -> list[tuple[int, int]]:
            alike = sorted(n for n in self.seen if low <= n <= high and (n - low) % step == 0)
            return [
                (before, after)
                for before, after in pairwise(alike)
                if self.seen[before].interior != self.seen[after].interior
            ]

        waiting, run = changes()[::-1], len(self.seen)
        while waiting and len(self.seen) - run <= MOST_RUN:
            before, after = waiting.pop()
            if after - before <= step:  # less than a period apart: all between are run
                for size in range(before + 1, after):
                    self.run(size)
                continue
            # steps of the period keep the remainder
            middle = before + max(1, (after - before) // (2 * step)) * step
            if (between := self.run(middle)) is None:
                continue
            for end, pair in ((after, (middle, after)), (before, (before, middle))):
                if between.interior != self.seen[end].interior:
                    waiting.append(pair)
        if len(changes()) > 1:
            more = f"; {MOST_RUN} sizes of it were run, more may change" * bool(waiting)
            result.violations.append(
                f"between {result.sizes} {low} and {high} the interior changes more than once{more}"
            )

    def _switches(self) -> list[Switch]:
        """Neighbours that were run whose interiors differ."""
        switches, known = [], self.result.recogniser
        for size in sorted(self.seen):
            before, after = self.seen[size], self.seen.get(size + 1)
            if after is not None and before.interior != after.interior:
                causes = known.causes(before.interior, after.interior)
                scanned = size < self.result.scanned
                pair = before.interior, after.interior
                switches.append(Switch(size, size + 1, *pair, causes, scanned))
        return switches

    def _assume(self, reach: int) -> None:
        result, places = self.result, SAMPLES if self.result.vary == "batch" else ROWS
        laid = len(backends.get(self.session.target.name).layouts) > 1
        said = [f"operands lie in memory as {result.case.layout}"] * laid
        said.append(f"{result.threads_text}; with a different number the classes can be different")
        said.append("operands are finite; `probe order window` tests what NaN gets into")
        if any(not pattern.whole for pattern in self.seen.values()):
            said.append(
                f"calls of more than {ALL} outputs: rows that were not examined are like the "
                f"{places} at either end, in the middle and scattered"
            )
        if reach > result.scanned:
            said.append(
                f"beyond {result.vary} {result.scanned} the interior changes at most once between "
                f"those of the doubling grid that differ, and not between those that don't"
            )
            alike = f"{result.sizes} with the same remainder by {result.period} have"
            alike = f"all {result.sizes} have" if result.period == 1 else alike
            none = f"no period of tails up to {LONGEST_PERIOD} was seen, so none is assumed"
            said.append(f"{alike} the same tail there" if result.period else none)
        result.assumed += said

    def _conclude(self) -> None:
        """Puts switches, tails by remainder, and the checks into the result."""
        result, period = self.result, self.result.period
        result.upto, result.switches = max(self.seen), self._switches()
        for size, pattern in self.seen.items():
            if not period or size < result.settled:
                continue
            rest = size % period
            tail = result.tails.setdefault(pattern.interior, {}).setdefault(rest, pattern.tail)
            if tail != pattern.tail and size > result.scanned:
                result.violations.append(
                    f"{result.vary} {size} has the tail {_tail_text(pattern.tail)}, others with "
                    f"its remainder {rest} by {period} have {_tail_text(tail)}"
                )
        if self.random:
            what = "interior and tail" if period else "the interior"
            sizes = f"{len(self.random)} random {result.sizes}: {', '.join(map(str, self.random))}"
            result.checked.append(f"{what} at {sizes}")
        result.checked.append(f"the same call again at all {len(self.seen)} {result.sizes}")
        unsteady = [str(n) for n, pattern in self.seen.items() if not pattern.steady]
        if unsteady:
            result.violations.append(f"the same call again differs: {', '.join(unsteady)}")
        result.seconds = time.monotonic() - self.begun


def _tail_text(tail: tuple[tuple[int, int], ...]) -> str:
    return ", ".join(f"{rows} of kind {kind}" for kind, rows in tail) or "none"


def _period(signs: list[Any]) -> int | None:
    """Returns the smallest period, up to 16, of the second half of what was seen; None: none."""
    half = signs[len(signs) // 2 :]
    if None in half:  # a size that was not run shows nothing
        return None
    for period in range(1, min(LONGEST_PERIOD, len(half) // PERIODS) + 1):
        if all(first == second for first, second in zip(half, half[period:], strict=False)):
            return period
    return None


# In the place of the kind of a size that was not run, which is 0 or more, or MIXED.
NOT_RUN = -2
NOUNS = {"dense": "rows"}
# Characters of an order that has no name.
WRITTEN = 48


class SizeRange(NamedTuple):
    """Sizes from ``first`` to ``last``, every ``step``-th."""

    first: int
    last: int
    step: int = 1

    @property
    def text(self) -> str:
        if self.first == self.last:
            return f"{self.first:,}"
        by = f" by {self.step}" * (self.step > 1)
        return f"{self.first:,}..{self.last:,}{by}"

    @property
    def drawn(self) -> list[tuple[int, int]]:
        """Returns stretches of neighbours, (first, last)."""
        if self.step == 1:
            return [(self.first, self.last)]
        return [(size, size) for size in range(self.first, self.last + 1, self.step)]


@dataclass(frozen=True)
class SizeClass:
    """Sizes at which every row adds as ``kind`` says.

    ``spans``: those that were run. ``expected``: sizes that were not run, and that the period of
    what was run gives to the class: no promise.
    """

    kind: int
    spans: tuple[SizeRange, ...]
    expected: tuple[SizeRange, ...] = ()

    @property
    def floor(self) -> int:
        """Returns the smallest size that was run."""
        return min(span.first for span in self.spans)

    @property
    def text(self) -> str:
        """``{2..15}``, the sizes that were run; behind them what is expected."""
        expected = f" (expected: {_first_spans(self.expected)})" if self.expected else ""
        return f"{{{_first_spans(self.spans)}}}{expected}"

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "sizes": [list(span) for span in self.spans],
            "count": _count_sizes(self.spans),
            "expected": [list(span) for span in self.expected],
            "expected_count": _count_sizes(self.expected),
        }


def _count_sizes(spans: Sequence[SizeRange]) -> int:
    return sum((span.last - span.first) // span.step + 1 for span in spans)


def _first_spans(spans: Sequence[SizeRange]) -> str:
    return ", ".join(span.text for span in spans[:6]) + ", ..." * (len(spans) > 6)


@dataclass(frozen=True)
class Floor:
    """From ``size`` to ``run_to`` every row adds as at the largest size, at multiples of ``step``.

    All sizes up to ``run_to`` were run, in three periods or more: of sizes beyond it nothing is
    said. ``size`` None: no such size was found. ``modulo``, ``remainders``, ``since``: sizes from
    ``since`` on that have one of these remainders add so, the others don't; None without a period.
    ``pieces``: a smaller floor with the largest size of pieces that calls are then cut into, all of
    which were run. ``text``: the answer in one line, with how rows add below and above.
    """

    size: int | None
    step: int
    kind: int
    text: str
    run_to: int
    pieces: SizeRange | None = None
    modulo: int | None = None
    remainders: tuple[int, ...] = ()
    since: int | None = None

    def to_json(self) -> dict[str, Any]:
        pieces = None if self.pieces is None else list(self.pieces[:2])
        return {**vars(self), "pieces": pieces, "remainders": list(self.remainders)}


def kinds_run(points: Thresholds) -> np.ndarray:
    """Returns the kind of every size that was run, ``MIXED`` for several; ``NOT_RUN`` elsewhere."""
    kinds = np.full(points.upto - points.shortest + 1, NOT_RUN)
    for size, pattern in points.patterns.items():
        kinds[size - points.shortest] = pattern.kind
    return kinds


def kinds_expected(points: Thresholds) -> np.ndarray:
    """Returns the same, with the kinds that the period gives to sizes that were not run.

    A size gets one where the nearest sizes of its remainder that were run, on both sides, have it.
    Remainders of which one interior is mixed at some sizes and not at others have no period.
    """
    kinds, step = kinds_run(points), points.period or 0
    for rest in range(step):
        # the period was seen in the upper half of the sizes that were all run: those below it may
        # be mixed for a reason of their own
        sizes = [n for n in sorted(points.patterns) if n >= points.settled and n % step == rest]
        refuted = {p.interior for n in sizes if (p := points.patterns[n]).kind == MIXED}
        for low, high in pairwise(sizes):
            kind_low, kind_high = kinds[low - points.shortest], kinds[high - points.shortest]
            if kind_low == kind_high and kind_low not in refuted:
                kinds[low - points.shortest : high - points.shortest : step] = kind_low
    return kinds


def classes(points: Thresholds) -> list[SizeClass]:
    """Returns the classes, that of the smallest size first."""
    run, filled = kinds_run(points), kinds_expected(points)
    filled[run != NOT_RUN] = NOT_RUN
    classes = []
    for kind in sorted(set(run[run >= 0].tolist())):
        sizes = [points.shortest + np.flatnonzero(kinds == kind) for kinds in (run, filled)]
        classes.append(SizeClass(kind, *(_spans_of(part, points.period or 1) for part in sizes)))
    return sorted(classes, key=lambda size_class: size_class.floor)


def _spans_of(sizes: np.ndarray, period: int) -> tuple[SizeRange, ...]:
    """Returns sizes as spans: from the smallest on the longest of neighbours, or by the period."""
    if not len(sizes):
        return ()
    # behind the last size every span has ended
    gone = np.ones(int(sizes[-1]) + period + 1, bool)
    gone[sizes] = False
    spans = []
    for size in sizes.tolist():
        if gone[size]:
            continue
        lengths = {step: int(gone[size::step].argmax()) for step in (period, 1)}
        step = max((1, period), key=lengths.__getitem__)
        last = size + (lengths[step] - 1) * step
        gone[size : last + 1 : step] = True
        spans.append(SizeRange(size, last, step if last > size else 1))
    return tuple(spans)


def floor(points: Thresholds) -> Floor:
    """Returns which floor keeps every row's sum as at the largest size, and why.

    Where 2, 3 and 4 of six sizes are alike, a search that ends at 40 ends behind three alike ones.
    So a period, 1 for a floor, has to show three times in the upper half of all sizes, all run.
    """
    kind = points.patterns[max(points.patterns)].interior
    first = last = max((switch.at for switch in points.switches), default=points.shortest)
    while first - 1 in points.patterns:
        first -= 1
    while last + 1 in points.patterns:
        last += 1
    sizes, kinds = np.arange(first, last + 1), kinds_run(points)
    alike = kinds[sizes - points.shortest] == kind
    middle = (points.shortest + last) // 2
    half = alike[max(middle - first, 0) :] if first <= middle else alike[:0]
    whole = first == points.shortest and alike.all()
    periods = [1] if whole else range(1, len(half) // PERIODS + 1)
    modulo = next((n for n in periods if (half[n:] == half[:-n]).all()), 0)
    remainders = tuple(sorted((sizes[-modulo:][alike[-modulo:]] % (modulo or 1)).tolist()))
    if not modulo or not remainders:
        return Floor(None, 1, kind, _no_floor_text(points, kind, sizes, alike), last)
    broken = np.flatnonzero(alike[modulo:] != alike[:-modulo])
    since = int(sizes[alike & (sizes > first + broken[-1:].sum() - (not len(broken)))][0])
    period = f"{points.sizes} {', '.join(map(str, remainders))} modulo {modulo} are added alike"
    period = f"; {period}, from {since:,} on" if modulo > 1 else ""
    step = next((n for n in range(1, modulo + 1) if {*range(0, modulo, n)} <= {*remainders}), None)
    if step is None or modulo % step:
        text = _no_floor_text(points, kind, sizes, alike, period)
        return Floor(None, 1, kind, text, last, None, modulo, remainders, since)
    multiples = sizes % step == 0
    unlike = sizes[multiples & ~alike].tolist()
    size = int(sizes[multiples & (sizes > max(unlike, default=0))][0])
    # the largest size below that was run and adds differently, a multiple if there is one
    below = max(unlike or sizes[~alike & (sizes < size)].tolist(), default=None)
    pieces = _pieces(classes(points), kind, size)
    text = _floor_text(points, (size, step, kind), below, last, pieces) + period
    text += f"; run up to {last:,}"
    return Floor(size, step, kind, text, last, pieces, modulo, remainders, since)


def _no_floor_text(
    points: Thresholds, kind: int, sizes: np.ndarray, alike: np.ndarray, period: str = ""
) -> str:
    """Returns what stands against a floor in one line."""
    at, last = int(sizes[~alike][-1]), int(sizes[-1])
    pattern = points.patterns[at]
    how = _mixed(points, at)
    if pattern.kind != MIXED:
        how = f"outputs are added {kind_words(points, pattern.interior)}"
    text = f"no floor: at {_size_text(points, at)}, {how}{period}"
    if at < last and not period:
        text += f"; alike at {SizeRange(at + 1, last).text}, too few to tell a floor"
    return f"{text}; run up to {last:,}"


def _pieces(sized: list[SizeClass], kind: int, size: int) -> SizeRange | None:
    """Returns a smaller floor, with which calls of any size are made of pieces of one other class.

    Of several the one with the largest pieces. Pieces of first..last make up all sizes from
    ``first`` on where last is 2 * first - 1 or more.
    """
    spans = [span for other in sized if other.kind != kind for span in other.spans]
    fit = [s for s in spans if s.step == 1 and s.first < size and s.last >= max(2, 2 * s.first - 1)]
    return max(fit, key=lambda span: span.last, default=None)


def _floor_text(
    points: Thresholds,
    top: tuple[int, int, int],
    below: int | None,
    last: int,
    pieces: SizeRange | None,
) -> str:
    """Returns the floor in one line."""
    (size, step, kind), kinds = top, kinds_run(points)
    noun = NOUNS.get(points.case.op, "samples") if points.vary == "batch" else "outputs"
    by = f", in multiples of {step}" * (step > 1)
    if below is None:
        what = f"no floor, but multiples of {step} are" if step > 1 else "no floor is"
        every = f"from {size:,} to {last:,}{', at these,' * (step > 1)} all {noun}"
        return f"{what} needed: {every} are added {kind_words(points, kind)}"
    first = f"floor: {_size_text(points, size)}{by}; below, at "
    if kinds[below - points.shortest] == MIXED:
        text = f"{first}{below:,}, {_mixed(points, below)}"
        text += f", from {size:,} on all {kind_words(points, kind)}"
    else:
        below_sum, above_sum, share = _most_frequent_pair(
            points, other := int(kinds[below - points.shortest]), kind
        )
        among = f" ({share:.0%} of the outputs)" * (share < 1)
        unlike = np.flatnonzero(kinds[: below - points.shortest + 1] != other)
        first_alike = points.shortest + (int(unlike[-1]) + 1 if len(unlike) else 0)
        sizes = SizeRange(first_alike, below).text
        text = f"{first}{sizes}, {noun} are added {_order_text(points, below_sum, above_sum)}"
        text += f"{among}, from {size:,} on {_order_text(points, above_sum, below_sum)}"
        text += f" ({'+'.join(points.recogniser.causes(other, kind))})"
    if pieces is not None:
        less = (
            f"{_size_text(points, pieces.first)} will do" if pieces.first > 1 else "none is needed"
        )
        text += f"; cut into pieces of at most {pieces.last:,}, {less}"
    return text


def _size_text(points: Thresholds, size: int) -> str:
    """Returns a size with what it is of."""
    if points.case.op == "dense":
        return f"{size:,} row{'s' * (size > 1)}"
    return f"{points.vary} {size:,}"


def _mixed(points: Thresholds, size: int) -> str:
    """Returns how rows of one call add differently."""
    pattern = points.patterns[size]
    if not pattern.steady:
        return "the same call again gives different bits"
    if pattern.unknown:
        return f"{pattern.unknown:,} outputs have no known order"
    if not pattern.whole:
        return "not every output was looked at"
    rows = sum(count for _, count in pattern.tail)
    if not rows:
        return f"{pattern.elsewhere:,} of {len(pattern.kinds):,} are added differently"
    tail_sum, own_sum, _ = _most_frequent_pair(points, pattern.tail[0][0], pattern.interior)
    last = "the last one is" if rows == 1 else f"the last {rows:,} are"
    return f"{last} added {_order_text(points, tail_sum, own_sum)}"


def _most_frequent_pair(points: Thresholds, kind: int, other: int) -> tuple[int, int, float]:
    """Returns summations that most outputs have that two kinds add differently, and their share."""
    kinds = points.recogniser.kinds
    pairs = Counter(p for p in zip(kinds[kind], kinds[other], strict=True) if p[0] != p[1])
    known = [p for p in pairs if min(p) > UNKNOWN]
    pair = max(known or list(pairs), key=lambda each: pairs[each])
    return *pair, pairs[pair] / len(kinds[kind])


def _order_text(points: Thresholds, number: int, beside: int = UNKNOWN) -> str:
    """Returns how a summation adds, in words; so that it can be told from the one ``beside`` it."""
    if number < 0:
        return "in an order that is not known"
    sums, dtype = points.recogniser.summations, points.case.dtype
    summation, other = sums[number], sums[max(beside, 0)]
    name = _order_name(summation)
    if beside < 0 or name != _order_name(other):
        return name
    if summation.tree != other.tree:
        lengths = WRITTEN, 2 * WRITTEN, 300
        pairs = [[short_formula(each.tree, n) for each in (summation, other)] for n in lengths]
        return f"as {next((mine for mine, its in pairs if mine != its), pairs[-1][0])}"
    phrases = summation.text(dtype, _few), other.text(dtype, _few)
    return ", ".join([name, *(phrase for phrase in phrases[0] if phrase not in phrases[1])])


def _few(leaves: Sequence[int]) -> str:
    return ranges(leaves, 4)


def _order_name(summation: Summation) -> str:
    """Returns the order's name; without one, in how many running sums products are added."""
    if name := order_name(summation.tree):
        return name
    running = 1 + sum(all(child < 0 for child in node) for node in summation.tree.nodes)
    return f"in {running:,} running sums, as {short_formula(summation.tree, WRITTEN)}"


def kind_words(points: Thresholds, kind: int) -> str:
    """Returns how most outputs of a kind add, in words."""
    most = Counter(points.recogniser.kinds[kind]).most_common(1)[0][0]
    return _order_text(points, most)
