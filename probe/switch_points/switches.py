"""Holds what a search found: where a target switches, and the tails by remainder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from probe import machine
from probe.case import Case
from probe.printing import counted
from probe.switch_points.recognition import Pattern, Recogniser
from probe.target import Target


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
    what contradicted it, each looked into unless there were too many. ``certified``: lengths at
    which every output was tested for every addition and every fusion: both sides of each switch and
    the ends, or all lengths where all were run. At the others, summations were only recognised.
    ``vary``: ``length`` or ``batch``, whose sizes all of these are then. ``settled``: from this
    size on all sizes up to the end of the scan show the period. ``threads``: how many the library
    took, None where it doesn't say; with a different number all of this can be different.
    ``refuted``: kinds that were recognised in rows which tests of every addition then found to add
    differently; sizes that were only recognised as one of them are in no class.
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
    vary: str = "length"
    settled: int = 1
    threads: int | None = None
    refuted: set[int] = field(default_factory=set)

    def doubted(self, seen: Pattern) -> bool:
        """Returns whether a size was only recognised, as a kind that tests refuted elsewhere."""
        return seen.interior in self.refuted and seen.length not in self.certified

    @property
    def threads_text(self) -> str:
        """Returns how many threads all of this holds for, in words."""
        return threads_text(self.threads)

    @property
    def sizes(self) -> str:
        """Returns what is varied, in the plural."""
        return PLURAL[self.vary]

    @property
    def uncertified(self) -> str:
        """Returns which lengths rest on recognised summations, in words; empty if none does."""
        known, every = set(self.certified), self.upto - self.shortest + 1
        missing = every - len(known)
        if not missing or not self.patterns:
            return ""
        deciding = {n for one in self.switches for n in (one.before, one.at)}
        why = [self.patterns[n].uncertified for n in sorted(deciding - known)]
        sure = sum({one.before, one.at} <= known for one in self.switches)
        told = f"{missing:,} of {every:,} {self.sizes} were recognised, or not run"
        if self.switches:
            told += f"; certified: both sides of {sure} of {len(self.switches)} switches"
        return told + "".join(f"; {one}" for one in why[:1])

    def to_json(self) -> dict[str, Any]:
        """Returns what ``probe thresholds --json`` prints."""
        known = self.recogniser
        elsewhere = {str(n): self.patterns[n].elsewhere for n in sorted(self.patterns)}
        unknown = [length for length, found in self.patterns.items() if found.unknown]
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
            "certified": not self.uncertified,
            "certified_lengths": self.certified,
            "lengths_run": len(self.patterns),
            "calls": known.calls,
            "seconds": round(self.seconds, 3),
        }


PLURAL = {"length": "lengths", "batch": "batches"}


def threads_of(facts: Mapping[str, Any], where: Target) -> int | None:
    """Returns how many threads a started target's library takes; None where it doesn't say."""
    told = facts.get("threads") or dict(where.switches).get("threads")
    return int(told) if told else None


def threads_text(threads: int | None) -> str:
    """Returns a number of threads in words."""
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
