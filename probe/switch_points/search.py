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

from probe import backends, budget, machine, window
from probe.case import Case
from probe.errors import InputError, TargetError
from probe.launch import AnySession
from probe.printing import counted
from probe.progress import VOICE, Say
from probe.switch_points.recognition import (
    ALL,
    NOTHING,
    SHORT,
    Alike,
    Pattern,
    RecognisedSize,
    Recogniser,
    Repeated,
    some,
)
from probe.target import Target
from probe.window import axis_of


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
    """What ``find_switch_points`` found.

    ``upto``: the longest length run, ``limited`` why it is not the one asked for. ``tails`` maps an
    interior to {remainder: tail}, where lengths with that remainder by ``period`` all have
    this tail, as (kind, rows); ``period`` is None where tails repeat with no period up to 16.
    ``assumed`` and ``checked`` say what stands behind switches found by bisection; ``violations``
    what contradicted it, each looked into unless there were too many. ``vary``: ``length`` or
    ``batch``, whose sizes all of these are then. ``settled``: from this size on all sizes up to the
    end of the scan show the period. ``threads``: how many the library took, None where it doesn't
    say; with a different number all of this can be different.
    """

    case: Case
    target: str
    recogniser: Recogniser
    shortest: int
    upto: int = 0
    period: int | None = None
    switches: list[Switch] = field(default_factory=list)
    tails: dict[int, dict[int, tuple[tuple[int, int], ...]]] = field(default_factory=dict)
    assumed: list[str] = field(default_factory=list)
    checked: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    limited: str = ""
    patterns: dict[int, Pattern] = field(default_factory=dict)
    seconds: float = 0.0
    vary: str = "length"
    settled: int = 1
    threads: int | None = None

    @property
    def threads_text(self) -> str:
        return threads_text(self.threads)

    @property
    def sizes(self) -> str:
        """Returns what is varied, in the plural."""
        return PLURAL[self.vary]

    @property
    def sets(self) -> int:
        """On how many sets of operands a size's orders were replayed; of sums without weights 1."""
        periodic = self.recogniser.periodic
        return len(periodic.sets_for(periodic.every)) if self.case.weighted else 1

    def to_json(self) -> dict[str, Any]:
        """Returns what ``probe thresholds --json`` prints."""
        known = self.recogniser
        elsewhere = {str(n): self.patterns[n].elsewhere for n in sorted(self.patterns)}
        unknown = [length for length, pattern in self.patterns.items() if pattern.unknown]
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
            "unknown": {"lengths": sorted(unknown), "evidence": known.evidence}
            if unknown
            else None,
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

# Samples at either end, in the middle and scattered, where a call has more outputs.
ENDS = 16
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
# Contradictions that are looked into.
MOST_SPLITS = 40


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


def find_switch_points(
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
    first = shortest_size(case, vary)
    if upto < first:
        why = f"the shortest length with a window without padding is {first}"
        raise InputError("upto", upto, why, "raise it")
    within = SearchLimits(**limits)
    search = _Search(session, case, vary, within.seconds, progress)
    search.reach, needed = upto, _bytes_needed(search.case, vary, upto)
    if needed > within.memory:
        search.reach, high = first, upto
        while high - search.reach > 1:
            middle = (search.reach + high) // 2
            fits = _bytes_needed(search.case, vary, middle) <= within.memory
            search.reach, high = (middle, high) if fits else (search.reach, middle)
        memory = f"{needed >> 20} MiB, and {within.memory >> 20} MiB are allowed"
        search.result.limited = f"{vary} {upto} needs some {memory}"
    search.scan(first, min(search.reach, search.first_scan(first, within.scanned)))
    search.far(within.checks, np.random.default_rng(within.seed))
    search.follow()
    search.conclude()
    return search.result


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
    """Runs lengths, each once, and keeps what was seen."""

    def __init__(
        self,
        session: AnySession,
        case: Case,
        vary: str,
        seconds: float | None,
        progress: Say | None,
    ) -> None:
        self.session, self.vary, self.progress = session, vary, progress
        self.stage = ""
        self.begun, self.limit = time.monotonic(), seconds
        if vary == "batch":
            if not case.weighted:
                why = "its sums have no weights to ask with"
                raise InputError("op", case.op, why, "take a product or a convolution")
            if case.spatial_rank and case.length is None:
                why = "where the batch is varied, the length is fixed"
                raise InputError("length", None, why, "give --length N")
            if not case.operation.batched:
                raise InputError("op", case.op, "it takes one input", "take matmul or dense")
            self.case = case.with_(batch=1)
            self.known: Recogniser = OfSamples(session, self.case)
        else:
            self.case = case.with_(length=None)
            self.known = Recogniser(session, self.case)
        first = shortest_size(case, vary)
        self.result = Thresholds(self.case, session.target.text, self.known, first, vary=vary)
        self.result.threads = threads_of(session.facts, session.target)
        self.seen = self.result.patterns
        self.reach = self.end = first
        self.splits = 0

    def run(self, length: int) -> Pattern | None:
        """Returns what was seen at a length; None if the target failed there or time is up."""
        if length in self.seen:
            return self.seen[length]
        if self.seen and (why := self.late):
            self.result.limited = self.result.limited or why
            return None
        pattern = self._ask(length)
        if pattern is not None:
            self.seen[length] = pattern
        return pattern

    @property
    def late(self) -> str:
        """Returns why no size is begun any more; empty while there is time."""
        if self.limit is not None and time.monotonic() - self.begun > self.limit:
            return f"stopped after {self.limit:g} s"
        return budget.spent()

    def _ask(self, length: int) -> Pattern | None:
        if self.progress:
            self.progress(f"{self.stage}: {self.vary} {length:,}")
        try:
            # without the first size nothing is known
            with budget.Ending(self.seen):
                return self.known.pattern(length)
            return None
        except TargetError as error:
            if not self.seen:
                raise
            self.result.failures.append(f"{self.vary} {length}: {error}")
            self.session.revive()
            return None

    def cost(self, size: int) -> int:
        """Returns what a size costs, in products."""
        case = self.case.with_(**{self.vary: size})
        calls = 9 if case.summands > SHORT else 25
        return calls * (A_CALL + int(np.prod(case.output_shape(), dtype=object)) * case.summands)

    def first_scan(self, first: int, scanned: int | None) -> int:
        """Returns the last of the sizes that are all run."""
        if scanned is not None:
            return first + scanned - 1
        last, cost = first + SCANNED - 1, 0
        for size in range(first, self.reach + 1):
            if (cost := cost + self.cost(size)) > WORK:
                break
            last = max(last, size)
        return last

    def scan(self, first: int, last: int) -> None:
        """All lengths of a range, the switches between them, and the period of what they show."""
        self.stage = f"part 1 of 2, {self.result.sizes} up to {last:,}"
        every = VOICE.counting(range(first, last + 1), self.result.sizes)
        patterns = [self.run(length) for length in every]
        self.end, self.result.settled = last, first + len(patterns) // 2
        for before, after in pairwise(patterns):
            if before and after and before.interior != after.interior:
                self._note(before, after, scanned=True)
        self._see_period()

    def _see_period(self) -> None:
        """Notes the period of what all sizes of the scan show."""
        first, seen = self.result.shortest, self.seen
        # rows before the tail that add differently make a size mixed too, so they count
        patterns = [seen.get(length) for length in range(first, self.end + 1)]
        signs = [
            pattern and (pattern.interior, pattern.tail, pattern.elsewhere > 0)
            for pattern in patterns
        ]
        tails = [sign and sign[1:] for sign in signs]  # which a switch among them need not move
        self.result.period = _period(signs) or _period(tails)

    def far(self, checks: int, rng: np.random.Generator) -> None:
        """Lengths beyond the scan: a grid of doubled ones, bisected where its ends differ."""
        step = self.result.period or 1
        # neighbours of the grid have one remainder by the period, so that their tails can be alike
        grid = [self.end]
        while grid[-1] + step <= self.reach:
            double = min(2 * grid[-1], self.reach)
            grid.append(grid[-1] + max(1, (double - grid[-1]) // step) * step)
        self.stage = f"part 2 of 2, {self.result.sizes} up to {self.reach:,}"
        for low, high in VOICE.counting([*pairwise(grid)], "ranges"):
            if self.run(low) is None or self.run(high) is None:
                break
            self._interval(low, high, step)
            self._check(low, high, checks, rng, step)
        self._assume()

    def follow(self) -> None:
        """All sizes from the last switch to twice that, if they cost little: see ``floors``."""
        first = max((switch.at for switch in self.result.switches), default=0)
        last = 2 * first
        if self.end < first and last <= self.reach and first * self.cost(last) <= WORK:
            for size in VOICE.counting(range(first, last + 1), self.result.sizes):
                self.run(size)

    def _interval(self, low: int, high: int, step: int) -> None:
        """Notes the switches between two lengths, by bisection."""
        waiting, splits = [(low, high)], 0
        while waiting:
            before, after = waiting.pop()
            left, right = self.run(before), self.run(after)
            if left is None or right is None or left.interior == right.interior:
                continue
            if after - before == 1:
                self._note(left, right, scanned=False)
            elif after - before <= step:
                waiting += [(length, length + 1) for length in range(before, after)]
            else:
                # steps of the period keep the remainder; between two sizes less than that apart all
                # are run
                middle = before + max(1, (after - before) // (2 * step)) * step
                between = self.run(middle)
                waiting += [(middle, after), (before, middle)]
                if between and between.interior not in (left.interior, right.interior):
                    splits += 1
            if splits > MOST_SPLITS:
                self.result.violations.append(
                    f"between {self.result.sizes} {low} and {high} the interior changes more than "
                    f"{MOST_SPLITS} times; only those up to {before} were looked for"
                )
                return
        if splits:
            self.result.violations.append(
                f"between {self.result.sizes} {low} and {high} the interior changes more than once"
            )

    def _check(self, low: int, high: int, checks: int, rng: np.random.Generator, step: int) -> None:
        """Random lengths between two of the grid: is the interior as it is around them?

        Around: at the nearest lengths that were run and have the same remainder by ``step``. Every
        other one has the grid's own remainder; the rest are mostly for the tails.
        """
        drawn = rng.integers(low + 1, max(high, low + 2), checks).tolist()
        for number, length in enumerate(drawn):
            length += 0 if number % 2 else (low - length) % step
            alike = [n for n in self.seen if (n - length) % step == 0]
            below, above = [n for n in alike if n < length], [n for n in alike if n > length]
            pattern = None if length in self.seen else self.run(length)
            if pattern is None:
                continue
            self.result.checked.append(str(length))
            if not below or not above:
                continue
            before, after = max(below), min(above)
            expected = {self.seen[before].interior, self.seen[after].interior}
            if pattern.interior not in expected:
                self.splits += 1
                self.result.violations.append(
                    f"{self.vary} {length} is added as kind {pattern.interior}, between {before} "
                    f"and {after} of kind {' and '.join(map(str, sorted(expected)))}"
                )
                if self.splits <= MOST_SPLITS:
                    self._interval(before, length, step)
                    self._interval(length, after, step)

    def _note(self, before: Pattern, after: Pattern, scanned: bool) -> None:
        causes = self.known.causes(before.interior, after.interior)
        pair = before.length, after.length, before.interior, after.interior
        switch = Switch(*pair, causes, scanned)
        if switch not in self.result.switches:
            self.result.switches.append(switch)

    def _assume(self) -> None:
        result = self.result
        if len(backends.get(self.session.target.name).layouts) > 1:
            result.assumed.append(f"operands lie in memory as {self.case.layout}")
        result.assumed.append(
            f"{result.threads_text}; with a different number the classes can be different"
        )
        result.assumed.append("operands are finite; `probe window` tests what NaN gets into")
        if any(not pattern.whole for pattern in self.seen.values()):
            result.assumed.append(
                f"calls of more than {ALL} outputs: rows that were not examined are like the "
                f"{self.known.ends} at either end, in the middle and scattered"
            )
        if self.reach <= self.end:
            return
        result.assumed += [
            f"beyond {self.vary} {self.end} the interior changes at most once between those of the "
            f"doubling grid that differ, and not between those that don't",
            f"{result.sizes} with the same remainder by {result.period} have the same tail there"
            if (result.period or 1) > 1
            else f"all {result.sizes} have the same tail there"
            if result.period
            else f"no period of tails up to {LONGEST_PERIOD} was seen, so none is assumed",
        ]

    def conclude(self) -> None:
        """Puts the tails by remainder into the result, and how many checks there were."""
        self._see_period()
        result, period = self.result, self.result.period
        result.upto = max(self.seen)
        result.switches.sort(key=lambda switch: switch.at)
        for length, pattern in self.seen.items():
            if not period or length < result.settled:
                continue
            rest = length % period
            tail = result.tails.setdefault(pattern.interior, {}).setdefault(rest, pattern.tail)
            if tail != pattern.tail and length > self.end:
                result.violations.append(
                    f"{result.vary} {length} has the tail {_tail_text(pattern.tail)}, others with "
                    f"its remainder {rest} by {period} have {_tail_text(tail)}"
                )
        lengths, result.checked = result.checked, []
        what = "interior and tail" if period else "the interior"
        if lengths:
            where = f"{len(lengths)} random {result.sizes}"
            result.checked = [f"{what} at {where}: {', '.join(lengths)}"]
        unsteady = [str(n) for n, pattern in self.seen.items() if not pattern.steady]
        result.checked.append(f"the same call again at all {len(self.seen)} {result.sizes}")
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


class OfSamples(Recogniser):
    """A recogniser whose sizes are those of the batch; the case's length is set.

    A kind is how one sample adds: the summation of each of its outputs, flat in C order.
    """

    ends = ENDS

    def _operands(self) -> Repeated:
        return Repeated(self.case)

    def _call(self, size: int) -> RecognisedSize:
        return _SearchBatch(self, self.case.with_(batch=size), size)


class _SearchBatch(RecognisedSize):
    """One batch."""

    def _classify(self) -> None:
        """Rows by the leaves that they read: at one place of a sample always the same."""
        classes, leaves = window.read_classes(self.case)
        ranked = sorted(range(len(leaves)), key=lambda number: len(leaves[number]))
        place = np.argsort(ranked)  # the last one reads something: its call is repeated
        self.kind_of = place[classes[self.rows % self.geometry.positions]]
        self.classes, none = [], np.zeros(0, int)
        for number, read in enumerate(leaves[rank] for rank in ranked):
            rows = np.flatnonzero(self.kind_of == number)
            alike = Alike(tuple(read.tolist()), rows, rows, none, np.zeros(len(rows), int))
            self.classes.append(alike)
            if not len(read):
                self.index[rows] = NOTHING
        sizes = np.array([len(alike.read) for alike in self.classes])
        self.full = (sizes == self.case.summands)[self.kind_of]

    def _some(self) -> np.ndarray:
        """Returns all rows of some samples."""
        each = self.geometry.positions
        chosen = some(self.case.batch, ENDS) if self.case.batch > 4 * ENDS else range(self.size)
        return (np.array(chosen)[:, None] * each + np.arange(each)).ravel()

    def pattern(self) -> Pattern:
        """Returns what was found, by samples."""
        index = self.index.reshape(-1, self.geometry.positions * self.filters)
        return self._pattern(index, np.ones(len(index), bool))
