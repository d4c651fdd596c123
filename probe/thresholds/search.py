"""At which lengths a target changes how it adds: all short ones, then bisection between far ones.

What is bisected is the *interior*, the summation of most outputs of a call; the *tail*, what
is left over behind the last full packet, follows the length's remainder and is kept apart. Between
two lengths with the same interior no change is assumed, and between two with different ones only
one; both are checked at random lengths, and what contradicts is reported and looked into.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from probe import backends
from probe.case import Case
from probe.errors import InputError, TargetError
from probe.launch import AnySession
from probe.order.summation import Summation
from probe.thresholds.recognition import ALL, BUDGET, ENDS, Pattern, Recogniser

MEMORY = 6 << 30
"""Bytes that input and output may take in both processes together."""

SCANNED = 64  # short lengths that are all run
CHECKS = 2  # random lengths in every interval of the grid
LONGEST_PERIOD = 16  # of tails
MOST_SPLITS = 40  # contradictions that are looked into


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
    """What ``find`` found.

    ``upto``: the longest length run, ``limited`` why it is not the one asked for. ``tails`` maps an
    interior to {remainder: tail}, where lengths with that remainder by ``period`` all have
    this tail, as (kind, rows); ``period`` is None where tails repeat with no period up to 16.
    ``assumed`` and ``checked`` say what stands behind switches found by bisection; ``violations``
    what contradicted it, each looked into unless there were too many. ``certified``: lengths at
    which every output was asked for every addition and every fusion: both sides of each switch and
    the ends, or all lengths where all were run. At the others, summations were only recognised.
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
    certified: list[int] = field(default_factory=list)
    patterns: dict[int, Pattern] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def uncertified(self) -> str:
        """Which lengths rest on recognised summations, in words; empty if none does."""
        known, every = set(self.certified), self.upto - self.shortest + 1
        missing = every - len(known)
        if not missing or not self.patterns:
            return ""
        deciding = {n for one in self.switches for n in (one.before, one.at)}
        why = [self.patterns[n].uncertified for n in sorted(deciding - known)]
        sure = sum({one.before, one.at} <= known for one in self.switches)
        told = f"{missing:,} of {every:,} lengths were recognised, or not run"
        if self.switches:
            told += f"; certified: both sides of {sure} of {len(self.switches)} switches"
        return told + "".join(f"; {one}" for one in why[:1])

    def to_json(self) -> dict[str, Any]:
        """What ``probe thresholds --json`` prints."""
        known = self.recogniser
        elsewhere = {str(n): self.patterns[n].elsewhere for n in sorted(self.patterns)}
        unknown = [length for length, found in self.patterns.items() if found.unknown]
        return {
            "target": self.target,
            "case": self.case.to_json(),
            "shortest": self.shortest,
            "upto": self.upto,
            "limited": self.limited,
            "switches": [
                {
                    **vars(one),
                    "causes": list(one.causes),
                    "how": "scan" if one.scanned else "bisection",
                    "certified": {one.before, one.at} <= set(self.certified),
                }
                for one in self.switches
            ],
            "period": self.period,
            "tails": {
                str(kind): {str(rest): [list(run) for run in tail] for rest, tail in tails.items()}
                for kind, tails in self.tails.items()
            },
            "elsewhere": {length: rows for length, rows in elsewhere.items() if rows},
            "kinds": [list(kind) if len(set(kind)) > 1 else [kind[0]] for kind in known.kinds],
            "orders": [_told(number, each) for number, each in enumerate(known.summations)],
            "assumed": self.assumed,
            "checked": self.checked,
            "layouts": [self.case.layout],
            "violations": self.violations,
            "failures": self.failures,
            "unknown": {"lengths": sorted(unknown), "evidence": known.evidence}
            if unknown
            else None,
            "certified": not self.uncertified,
            "certified_lengths": self.certified,
            "lengths_run": len(self.patterns),
            "calls": known.calls,
            "seconds": round(self.seconds, 3),
        }


def _told(number: int, summation: Summation) -> dict[str, Any]:
    tree, rounding = summation
    named = {"number": number, "id": tree.id, "tree": tree.text, "fused": summation.fused_text}
    return named | rounding.rare()


def find(
    session: AnySession,
    case: Case,
    upto: int = 1_000_000,
    *,
    scanned: int = SCANNED,
    checks: int = CHECKS,
    seed: int = 0,
    memory: int = MEMORY,
    seconds: float | None = None,
    progress: Callable[[int], None] | None = None,
) -> Thresholds:
    """The lengths up to ``upto`` at which ``case`` on a started session changes its summations.

    ``scanned``: so many of the shortest lengths are all run. Then lengths double, intervals whose
    ends differ are bisected, and ``checks`` random lengths are run in each. ``memory``: bytes;
    lengths that need more are left out, which the result says. ``seconds``: no length is begun
    after that time; None: no limit. ``progress(length)`` before each run. Calls of more than 4
    million outputs are looked at in some rows only: both ends, the middle and scattered ones.

    A length costs 9 calls of the operator (25 for sums of up to 32 products), and half as many for
    every way in which windows meet padding; more only where a summation is met that was not known,
    and at the lengths that decide: there every output is certified, in some n / 3 calls for n
    products.
    InputError: ``upto`` is shorter than any output needs. TargetError: the target failed at the
    shortest length.
    """
    if not case.spatial_rank:
        todo = "sweep its batch by order: probe sweep --vary batch --by order --values 1..64"
        raise InputError("op", case.op, "it has no length", todo)
    first = max(case.shortest_length, case.effective_kernel[-1])
    if upto < first:
        why = f"the shortest length with a window without padding is {first}"
        raise InputError("upto", upto, why, "raise it")
    search = _Search(session, case, seconds, progress)
    search.result.limited = _fit(search, upto, memory)
    search.scan(first, min(search.reach, first + scanned - 1))
    search.far(checks, np.random.default_rng(seed))
    search.certify()
    search.conclude()
    return search.result


def _fit(search: _Search, upto: int, memory: int) -> str:
    """Sets how far the search may reach; why that is not ``upto``, if it isn't."""
    needed = _bytes(search.case, upto)
    search.reach = upto
    if needed <= memory:
        return ""
    low, high = search.case.shortest_length, upto
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _bytes(search.case, middle) <= memory else (low, middle)
    search.reach = low
    return f"length {upto} needs some {needed >> 20} MiB, and {memory >> 20} MiB are allowed"


def _bytes(case: Case, length: int) -> int:
    """Input here (masks in float64 too), on the way, in the child, in the library; outputs."""
    sizes = (
        np.prod(shape, dtype=object)
        for shape in (case.input_shape(length), case.output_shape(length))
    )
    item = np.dtype({"bfloat16": "uint16"}.get(case.dtype, case.dtype)).itemsize
    inputs, outputs = (int(size) * item for size in sizes)
    return 8 * inputs + 3 * outputs


class _Search:
    """Runs lengths, each once, and keeps what was seen."""

    def __init__(
        self,
        session: AnySession,
        case: Case,
        seconds: float | None,
        progress: Callable[[int], None] | None,
    ) -> None:
        self.session, self.case, self.progress = session, case.with_(length=None), progress
        self.begun, self.limit = time.monotonic(), seconds
        self.known = Recogniser(session, self.case)
        first = max(case.shortest_length, case.effective_kernel[-1])
        self.result = Thresholds(self.case, session.target.text, self.known, first)
        self.seen = self.result.patterns
        self.reach = self.end = self.settled = first
        self.splits = 0

    def run(self, length: int) -> Pattern | None:
        """What was seen at a length; None if the target failed there or time is up."""
        if length in self.seen:
            return self.seen[length]
        if self.limit is not None and time.monotonic() - self.begun > self.limit and self.seen:
            self.result.limited = self.result.limited or f"stopped after {self.limit:g} s"
            return None
        if self.progress:
            self.progress(length)
        try:
            self.seen[length] = self.known.pattern(length)
        except TargetError as error:
            if not self.seen:
                raise
            self.result.failures.append(f"length {length}: {error}")
            self.session.revive()
            return None
        return self.seen[length]

    def scan(self, first: int, last: int) -> None:
        """All lengths of a range, the switches between them, and the period of what they show."""
        found = [self.run(length) for length in range(first, last + 1)]
        self.end, self.settled = last, first + len(found) // 2
        for before, after in pairwise(found):
            if before and after and before.interior != after.interior:
                self._note(before, after, scanned=True)
        signs = [(one.interior, one.tail) if one else None for one in found]
        self.result.period = _period(signs)

    def far(self, checks: int, rng: np.random.Generator) -> None:
        """Lengths beyond the scan: a grid of doubled ones, bisected where its ends differ."""
        step = self.result.period or 1
        grid = [self.end]
        while grid[-1] + step <= self.reach:
            double = min(2 * grid[-1], self.reach)
            grid.append(grid[-1] + max(1, (double - grid[-1]) // step) * step)
        for low, high in pairwise(grid):
            if self.run(low) is None or self.run(high) is None:
                break
            self._interval(low, high, step)
            self._check(low, high, checks, rng, step)
        self._assume()

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
                waiting += [(one, one + 1) for one in range(before, after)]
            else:
                middle = before + max(1, (after - before) // (2 * step)) * step
                between = self.run(middle)
                waiting += [(middle, after), (before, middle)]
                if between and between.interior not in (left.interior, right.interior):
                    splits += 1
            if splits > MOST_SPLITS:
                self.result.violations.append(
                    f"between lengths {low} and {high} the interior changes more than "
                    f"{MOST_SPLITS} times; only those up to {before} were looked for"
                )
                return
        if splits:
            self.result.violations.append(
                f"between lengths {low} and {high} the interior changes more than once"
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
            found = None if length in self.seen else self.run(length)
            if found is None:
                continue
            self.result.checked.append(str(length))
            if not below or not above:
                continue
            before, after = max(below), min(above)
            expected = {self.seen[before].interior, self.seen[after].interior}
            if found.interior not in expected:
                self.splits += 1
                self.result.violations.append(
                    f"length {length} is added as kind {found.interior}, between lengths {before} "
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
        if self.reach <= self.end:
            return
        result.assumed += [
            f"beyond length {self.end} the interior changes at most once between lengths of the "
            f"doubling grid that differ, and not between those that don't",
            f"lengths with the same remainder by {result.period} have the same tail there"
            if (result.period or 1) > 1
            else "all lengths have the same tail there"
            if result.period
            else f"no period of tails up to {LONGEST_PERIOD} was seen, so none is assumed",
        ]
        result.assumed.append("operands are finite; `probe window` asks what NaN gets into")
        if any(not found.whole for found in self.seen.values()):
            result.assumed.append(
                f"calls of more than {ALL} outputs: rows that were not examined are like the "
                f"{ENDS} at either end, in the middle and scattered"
            )

    def certify(self) -> None:
        """Asks all outputs at the lengths that decide: all, if all were run."""
        first, last = self.result.shortest, max(self.seen)
        deciding = {first, last, *(n for one in self.result.switches for n in (one.before, one.at))}
        if len(self.seen) == last - first + 1:
            deciding = set(self.seen)
        for length in sorted(deciding & set(self.seen)):
            if self.limit is not None and time.monotonic() - self.begun > self.limit:
                return
            before = self.seen[length]
            try:
                found = self.known.pattern(length, BUDGET)
            except TargetError as error:
                self.result.failures.append(f"length {length}: {error}")
                self.session.revive()
                continue
            self.seen[length] = found
            if found.interior != before.interior:
                self.result.violations.append(
                    f"length {length} was recognised as kind {before.interior}, and every output "
                    f"that was asked for all it adds answers as kind {found.interior}"
                )
            if found.certified:
                self.result.certified.append(length)

    def conclude(self) -> None:
        """Puts the tails by remainder into the result, and how many checks there were."""
        result, period = self.result, self.result.period
        result.upto = max(self.seen)
        result.switches.sort(key=lambda one: one.at)
        if period:
            for found in (one for one in self.seen.values() if one.length >= self.settled):
                tails = result.tails.setdefault(found.interior, {})
                tail = tails.setdefault(found.length % period, found.tail)
                if tail != found.tail and found.length > self.end:
                    result.violations.append(
                        f"length {found.length} has the tail {_said(found.tail)}, others with its "
                        f"remainder {found.length % period} by {period} have {_said(tail)}"
                    )
        lengths, result.checked = result.checked, []
        what = "interior and tail" if period else "the interior"
        if lengths:
            result.checked = [f"{what} at {len(lengths)} random lengths: {', '.join(lengths)}"]
        unsteady = [str(n) for n, found in self.seen.items() if not found.steady]
        result.checked.append(f"the same call again at all {len(self.seen)} lengths")
        if unsteady:
            result.violations.append(f"the same call again differs: {', '.join(unsteady)}")
        result.seconds = time.monotonic() - self.begun


def _said(tail: tuple[tuple[int, int], ...]) -> str:
    return ", ".join(f"{rows} of kind {kind}" for kind, rows in tail) or "none"


def _period(signs: list[Any]) -> int | None:
    """The smallest period of the second half of what was seen; None if there is none up to 16."""
    half = signs[len(signs) // 2 :]
    for period in range(1, min(LONGEST_PERIOD, len(half) // 2) + 1):
        if all(one == two for one, two in zip(half, half[period:], strict=False)):
            return period
    return None


def islands(result: Thresholds) -> Iterator[tuple[int, int, int]]:
    """(first length, last length seen, kind) of every stretch between two switches."""
    start, kind = result.shortest, result.patterns[result.shortest].interior
    for switch in result.switches:
        yield start, switch.before, kind
        start, kind = switch.at, switch.right
    yield start, result.upto, kind
