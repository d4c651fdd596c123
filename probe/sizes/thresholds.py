"""Finds at which sizes a target changes how it adds: all small ones, then bisection.

The size is the length, or the batch (of a dense layer: its rows); what is said here of lengths and
the rows of a call holds of batches and their samples.

What is bisected is the *interior*, the summation of most outputs of a call; the *tail*, what
is left over behind the last full packet, follows the length's remainder and is kept apart. Between
two lengths with the same interior no change is assumed, and between two with different ones only
one; both are checked at random lengths, and what contradicts is reported and looked into.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from probe.case import memory
from probe.case.case import Case
from probe.case.errors import InputError, TargetError
from probe.order.window import axis_of
from probe.sizes.recognition import ALL, ROWS, SAMPLES, SHORT, Pattern, Recogniser
from probe.sweep.printing import counted
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


class SearchLimits(NamedTuple):
    """How much a search may cost.

    ``scanned``: that many of the shortest lengths are all run; None: 64, and as many more as cost
    little (``WORK``). ``checks``: random lengths, by ``seed``, that are run in each interval.
    ``memory``: bytes; lengths that need more are left out, which the result says. ``seconds``: no
    length is begun after that time; None: no limit.
    """

    scanned: int | None = None
    checks: int = CHECKS
    seed: int = 0
    memory: int = MEMORY
    seconds: float | None = None


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

    ``limits``: those of :class:`SearchLimits`. All short lengths are run, then they double,
    intervals whose ends differ are bisected, and random lengths are run in each. ``progress(text)``
    before each run. Calls of more than 4 million outputs are looked at in some rows only: both
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
    return _Search(session, result, SearchLimits(**limits), progress).upto(upto)


def shortest_size(case: Case, vary: str) -> int:
    """Returns the first size: of lengths the one at which a window meets no padding."""
    return 1 if vary == "batch" else max(case.shortest_length, case.effective_kernel[-1])


def _bytes_needed(case: Case, vary: str, size: int) -> int:
    """Input here (masks in float64 too), on the way, in the child, in the library; outputs."""
    named = {vary: size}
    shapes = case.input_shape(**named), case.output_shape(**named)
    sizes = (np.prod(shape, dtype=object) for shape in shapes)
    item = np.dtype({"bfloat16": "uint16"}.get(case.dtype, case.dtype)).itemsize
    inputs, outputs = (int(size) * item for size in sizes)
    return 8 * inputs + 3 * outputs


class _Search:
    """Runs sizes, each once, and keeps what was seen."""

    def __init__(
        self, session: AnySession, result: Thresholds, limits: SearchLimits, progress: Say | None
    ) -> None:
        self.session, self.result, self.limits = session, result, limits
        self.progress, self.stage = progress, ""
        self.begun, self.seen = time.monotonic(), result.patterns
        self.rng, self.checks = np.random.default_rng(limits.seed), limits.checks
        self.random = list[int]()

    def upto(self, upto: int) -> Thresholds:
        """Runs sizes from the first one on, and says what they show."""
        result, first = self.result, self.result.shortest
        reach = self._fitting(upto)
        scanned, cost = self.limits.scanned or SCANNED, 0
        for size in range(first, reach + 1 if self.limits.scanned is None else first):
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
        # all sizes from the last switch to twice that, if they cost little: see ``floors``
        last = max((switch.at for switch in self._switches()), default=0)
        if result.scanned < last and 2 * last <= reach and last * self._cost(2 * last) <= WORK:
            for size in VOICE.counting(range(last, 2 * last + 1), result.sizes):
                self.run(size)
        self._conclude()
        return result

    def _fitting(self, upto: int) -> int:
        """The largest size that memory allows."""
        result, allowed = self.result, self.limits.memory
        needed = _bytes_needed(result.case, result.vary, upto)
        if needed <= allowed:
            return upto
        memory = f"{needed >> 20} MiB, and {allowed >> 20} MiB are allowed"
        result.limited = f"{result.vary} {upto} needs some {memory}"
        low, high = result.shortest, upto
        while high - low > 1:
            middle = (low + high) // 2
            fits = _bytes_needed(result.case, result.vary, middle) <= allowed
            low, high = (middle, high) if fits else (low, middle)
        return low

    def run(self, size: int) -> Pattern | None:
        """What was seen at a size; None if the target failed there or time is up."""
        if size in self.seen:
            return self.seen[size]
        seconds = self.limits.seconds
        late = seconds is not None and time.monotonic() - self.begun > seconds
        if self.seen and (why := f"stopped after {seconds:g} s" if late else budget.spent()):
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
        found, known = [], self.result.recogniser
        for size in sorted(self.seen):
            before, after = self.seen[size], self.seen.get(size + 1)
            if after is not None and before.interior != after.interior:
                causes = known.causes(before.interior, after.interior)
                scanned = size < self.result.scanned
                pair = before.interior, after.interior
                found.append(Switch(size, size + 1, *pair, causes, scanned))
        return found

    def _assume(self, reach: int) -> None:
        result, places = self.result, SAMPLES if self.result.vary == "batch" else ROWS
        if len(backends.get(self.session.target.name).layouts) > 1:
            result.assumed.append(f"operands lie in memory as {result.case.layout}")
        result.assumed.append(
            f"{result.threads_text}; with a different number the classes can be different"
        )
        result.assumed.append("operands are finite; `probe order window` tests what NaN gets into")
        if any(not pattern.whole for pattern in self.seen.values()):
            result.assumed.append(
                f"calls of more than {ALL} outputs: rows that were not examined are like the "
                f"{places} at either end, in the middle and scattered"
            )
        if reach <= result.scanned:
            return
        result.assumed += [
            f"beyond {result.vary} {result.scanned} the interior changes at most once between "
            f"those of the doubling grid that differ, and not between those that don't",
            f"{result.sizes} with the same remainder by {result.period} have the same tail there"
            if (result.period or 1) > 1
            else f"all {result.sizes} have the same tail there"
            if result.period
            else f"no period of tails up to {LONGEST_PERIOD} was seen, so none is assumed",
        ]

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
