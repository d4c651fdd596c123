"""Finds which conditions pin the bits: the smallest set that brings one target's back on another.

Two targets of one library differ in conditions: the release, the device, and each switch (threads,
the newest instructions, a library inside the library). Starting from the second target, sets of the
first one's conditions are taken over, the smaller sets first, until the first one's results return.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from probe import installation
from probe.case import Case
from probe.errors import InputError, TargetError
from probe.progress import Say, silent
from probe.switch_points.bisection import WHAT, ReleaseQuestion
from probe.switch_points.fewest import ReleaseStep, smallest
from probe.target import Target

# A switch, ``version`` or ``device``, and its value; None: the default.
Condition = tuple[str, str | None]

# Conditions up to which all sets are tried, 64 at the most.
MOST = 6


@dataclass
class Conditions:
    """What was found. ``sets``: the smallest sets of conditions that bring the results back, each
    as texts such as ``threads=1``; all together are the left target. None where both targets show
    the same. ``steps``: what was run, by the target's text. ``untested``: of the steps the targets
    of smaller sets, which could not be run: one of them may be enough."""

    left: str
    right: str
    sets: list[list[str]] | None
    steps: list[ReleaseStep]
    untested: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        """Returns what ``probe bisect --json`` prints; ``conditions`` is the first set."""
        return {
            "left": self.left,
            "right": self.right,
            "same": self.sets is None,
            "conditions": self.sets[0] if self.sets else None,
            "sets": self.sets or [],
            "minimal": self.sets is not None and not self.untested,
            "skipped": [one.version for one in self.steps if one.seen is None],
            "steps": [
                {"target": one.version, "seen": one.seen, "says": one.says, "why": one.why}
                for one in self.steps
            ],
        }


def conditions_apart(left: Target, right: Target) -> list[Condition]:
    """Returns the conditions of ``left`` in which ``right`` is different. InputError: they are not
    of one library, or not different."""
    if left.name != right.name:
        why = f"{left.text} is a different library, not only under different conditions"
        raise InputError("and", right.text, why, "use one library; probe explain compares two")
    found: list[Condition] = []
    if left.version != right.version:
        found.append(("version", left.version))
    if left.device != right.device:
        found.append(("device", left.device))
    ours, theirs = dict(left.switches), dict(right.switches)
    keys = dict.fromkeys([*ours, *theirs])
    found += [(key, ours.get(key)) for key in keys if ours.get(key) != theirs.get(key)]
    if not found:
        raise InputError("and", right.text, "both are the same target", "take a different one")
    if len(found) > MOST:
        why = f"{len(found)} conditions differ, more than {MOST}"
        raise InputError("and", right.text, why, "fix some of them in both targets")
    return found


def only_releases(left: Target, right: Target) -> bool:
    """Returns whether two targets differ in their releases alone, and name both."""
    both = left.version is not None and right.version is not None
    return both and left.with_(version=None) == right.with_(version=None)


def condition_text(one: Condition) -> str:
    """Returns a condition as it is printed."""
    name, value = one
    name = {"version": "release"}.get(name, name)
    return (
        f"{name}={'installed' if name == 'release' else 'default'}"
        if value is None
        else (f"{name}={value}")
    )


def search(left: Target, right: Target, ask: Callable[[Target], ReleaseStep]) -> Conditions:
    """Searches the sets of conditions by size. ``ask``: what a target shows, or why it can't run.

    All sets of the smallest size that brings the results back are found. InputError: an end can't
    be run.
    """
    every = conditions_apart(left, right)
    steps = [ask(left), ask(right)]
    for end in steps:
        if end.seen is None:
            raise InputError("target", end.version, end.why, "take a different target")
    if steps[0].seen == steps[1].seen:
        return Conditions(left.text, right.text, None, steps)

    failed = list[tuple[int, str]]()

    def returns(some: Sequence[Condition]) -> bool:
        step = steps[0] if len(some) == len(every) else ask(right.with_(**dict(some)))
        steps.extend([step] * (step is not steps[0]))
        failed.extend([(len(some), step.version)] * (step.seen is None))
        return step.seen == steps[0].seen

    found = [[condition_text(one) for one in some] for some in smallest(every, returns)]
    untested = [text for size, text in failed if size < len(found[0])]
    return Conditions(left.text, right.text, found, steps, untested)


def bisect_conditions(
    case: Case,
    left: Target,
    right: Target,
    lengths: Sequence[int],
    what: str = "bits",
    tell: Say = silent,
) -> Conditions:
    """Returns the smallest sets of ``left``'s conditions that bring its results back on ``right``.

    ``what``: as of :class:`probe.switch_points.bisection.ReleaseQuestion`; ``lengths``: two or
    more. Costs a start of the library for each set that is tried. Errors: InputError; StoreError.
    """
    if what not in WHAT:
        raise InputError("what", what, "there is no such choice", f"use {' or '.join(WHAT)}")

    def ask(where: Target) -> ReleaseStep:
        tell(f"measuring {where.text}")
        try:
            if where.version is not None:
                installation.install_target(where)
            return ReleaseStep(
                where.text, *ReleaseQuestion(case, where, lengths, what).measured(where)
            )
        except TargetError as error:
            return ReleaseStep(where.text, None, why=error.why)

    return search(left, right, ask)


def conditions_lines(found: Conditions, what: str) -> Iterator[str]:
    """Yields the answer in lines."""
    if found.sets is None:
        yield f"both show the same {what}"
    for some in found.sets or ():
        brings = "bring" if len(some) > 1 else "brings"
        yield f"{' and '.join(some)} {brings} the {what} of {found.left} back on {found.right}"
    if found.untested:
        missing = ", ".join(found.untested)
        yield f"whether fewer conditions do is not known: {missing} could not be tested"
