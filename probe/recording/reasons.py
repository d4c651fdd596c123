"""Why the outputs of an operation differ, or why nothing can be said of it: where in a run that
begins to be unknown, and what is in the way there.

A run is read from its beginning. What an operation of unknown meaning gives is unknown, and so is
whatever is computed from that; integers that are too many to be kept are known by formula alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import Any

from probe.comparison import Comparison
from probe.enclosure import RoundingVerdict
from probe.printing import counted
from probe.recording import recording
from probe.recording.difference import NAMES, Aligned, Difference, Pair
from probe.recording.matching import computes
from probe.recording.recording import Run
from probe.semantics import Meaning, Unknown

NO_FORMULA = "what it computes is known on both sides, and no element has the same formula in both"
PARTLY = "a part of it, or of what it reads, is not described in probe"
ONE_SIDE = "no operation of the other run computes the same"
LEFT_OUT = "a recording has left out its values"


@dataclass(frozen=True)
class Reason:
    """Why operations are unknown. ``side``: ``left``, ``right``, or empty for both; ``name`` and
    ``op``: the operation at which it begins, empty where it is no single one; ``why``: a sentence.
    """

    why: str
    name: str = ""
    op: str = ""
    side: str = ""

    def __str__(self) -> str:
        on = f" on the {self.side}" if self.side else ""
        return f"{self.op}{on}: {self.why}" if self.op else self.why


def fill_reasons(found: Difference) -> None:
    """Fills in ``reason`` of all operations of which nothing could be compared."""
    roots = _unknown_roots(found.left), _unknown_roots(found.right)
    for one in found.operations:
        if one.verdict == "unknown" and one.note:  # said where it was found out
            one.reason = Reason(one.note, one.name, one.op)
        elif one.verdict == "unknown":
            ends = [
                (side, n) for pair in one.gives for side, n in enumerate((pair.left, pair.right))
            ]
            why = _why_not_compared(one.gives[0], found) if one.gives else "it gives nothing"
            one.reason = _common_reason(roots, ends) or Reason(why)
        elif one.verdict in NAMES and not one.compared:
            side = NAMES.index(one.verdict)
            op = (found.left, found.right)[side].operations[(one.left, one.right)[side] or 0]
            if computes(op):
                one.reason = _common_reason(roots, [(side, n) for n in op.gives]) or Reason(
                    ONE_SIDE
                )


def of_outputs(found: Difference) -> Reason | None:
    """Returns why outputs can't be compared; None where all can."""
    some = [one for one in found.outputs if not one.compared and not one.hollow]
    if not some:
        return None
    roots = _unknown_roots(found.left), _unknown_roots(found.right)
    ends = [(side, n) for one in some for side, n in enumerate((one.left, one.right))]
    return _common_reason(roots, ends) or Reason(_why_not_compared(some[0], found))


def grouped_reasons(found: Difference) -> list[tuple[Reason, list[Aligned]]]:
    """Returns all reasons, each with the operations of which nothing is known, in their order."""
    some: dict[Reason, list[Aligned]] = {}
    for one in found.operations:
        if one.verdict == "unknown" and one.reason is not None:
            some.setdefault(one.reason, []).append(one)
    return list(some.items())


def _why_not_compared(pair: Pair, found: Difference) -> str:
    values = found.left.values[pair.left], found.right.values[pair.right]
    if values[0].dtype != values[1].dtype:
        return f"it gives {values[0].dtype} on the left and {values[1].dtype} on the right"
    if not pair.selection.empty:  # it has to agree, and was not compared: its bits are not kept
        return LEFT_OUT
    return NO_FORMULA if pair.known else PARTLY


def _common_reason(
    roots: tuple[dict[int, Reason], ...], ends: list[tuple[int, int]]
) -> Reason | None:
    """Returns the reason behind values (side, number): an unknown meaning before a limit, and of
    both sides where it is the same on both."""
    some = [(side, told) for side, n in ends if (told := roots[side].get(n)) is not None]
    some.sort(key=lambda both: both[1].why.startswith(LIMIT))
    if not some:
        return None
    side, first = some[0]
    both = any(at != side and told.why == first.why and told.op == first.op for at, told in some)
    return Reason(first.why, first.name, first.op, "" if both else NAMES[side])


LIMIT = "it has"


def _unknown_roots(run: Run) -> dict[int, Reason]:
    """Returns of each value that is not understood where that begins, by number."""
    found: dict[int, Reason] = {}
    integers: set[int] = set()  # what comes from integers and single numbers alone
    for number, value in enumerate(run.values):
        if value.given < 0 and (not value.floating or value.shape == ()):
            integers.add(number)
            if value.content is None:
                found[number] = _too_many_elements(value.shape, value.name or "an input", "")
    for one in run.operations:
        told = _why_unknown(one.meaning)
        before = [found[n] for n in one.reads if n in found]
        plain = bool(one.reads) and integers.issuperset(one.reads)
        for n in one.gives:
            value = run.values[n]
            if plain and (one.meaning.exact or not value.floating):
                integers.add(n)
            if value.content is not None:
                continue
            if told is not None:
                found[n] = Reason(told, one.name, one.op)
            elif before:
                found[n] = before[0]
            elif n in integers and prod(value.shape) > recording.SMALL:
                found[n] = _too_many_elements(value.shape, one.name, one.op)
    return found


def _too_many_elements(shape: tuple[int, ...], name: str, op: str) -> Reason:
    limits = f"at most {recording.LARGE:,} of a value, and {recording.LARGE_BYTES:,} bytes of all"
    why = f"{LIMIT} {counted(prod(shape), 'element')}; {limits}, are kept"
    return Reason(why, name, op or name)


def _why_unknown(meaning: Meaning) -> str | None:
    """Returns why a meaning, or a step of it, is unknown; None where it isn't."""
    if isinstance(meaning, Unknown):
        return meaning.why or "it is not described in probe"
    told = (_why_unknown(step.meaning) for step in getattr(meaning, "steps", ()))
    return next((one for one in told if one is not None), None)


# of what differs


@dataclass
class Cause:
    """Why an operation's outputs differ.

    ``kind``: ``window``, ``reach``, ``order``, ``rounding``, ``precision``, ``flush`` (of sums,
    several joined by ``+``), ``place``, ``argument``, ``algorithm``, ``alignment``,
    ``nondeterministic``, ``uninitialised``; empty where none of these explains it. ``why``: a
    sentence. ``examined``: differing outputs that were asked about, ``replayed``: those that came
    out again on both sides. ``causes``: examined outputs by cause; if not given those replayed.
    ``alone``: whether the operation alone gave its recorded bits on both sides. ``comparison``: of
    sums, with both sides' summations. ``refuted``: what it reads does not agree, or it reads more
    than was said: it is no source. ``compared`` and ``differing``: of the first output that
    differs; ``rounding``: those that differ by whether rounding can be why.
    """

    kind: str = ""
    why: str = ""
    examined: int = 0
    replayed: int = 0
    causes: dict[str, int] = field(default_factory=dict)
    alone: bool = False
    comparison: Comparison | None = None
    refuted: bool = False
    compared: int = 0
    differing: int = 0
    rounding: RoundingVerdict = field(default_factory=RoundingVerdict)

    def __post_init__(self) -> None:
        """Counts what was replayed under its kind."""
        self.causes = self.causes or ({self.kind: self.replayed} if self.kind else {})

    @property
    def explained(self) -> bool:
        """Returns whether it has a class, and every output that was asked about came out again."""
        return bool(self.kind) and self.replayed == self.examined

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and texts; the comparison's summations as ``probe explain`` has them."""
        found: dict[str, Any] = {"class": self.kind or None, "why": self.why}
        names = ("compared", "differing", "examined", "replayed", "causes", "alone")
        found |= {name: getattr(self, name) for name in names}
        found["rounding"] = self.rounding.to_json()
        if self.comparison is not None:
            told = self.comparison
            found["left_orders"] = told.orders(told.left)
            found["right_orders"] = told.orders(told.right)
        return found
