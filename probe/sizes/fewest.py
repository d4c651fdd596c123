"""The searches for a cause with the fewest runs: over releases, and over sets of conditions.

Nothing here knows what is run: what is asked is a function. Imports no store, so that an
environment without one can look for the cause of changed bits.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from probe.case.errors import InputError
from probe.targets import budget
from probe.targets.runtimes.environments import release_numbers
from probe.targets.target import Target

ASSUMPTION = "only one change happened between the two releases"

T = TypeVar("T")


@dataclass
class ReleaseStep:
    """One release that was run. ``seen`` names what it showed; None: ``why`` it could not run."""

    version: str
    seen: str | None
    says: str = ""
    why: str = ""
    installed: bool = False


@dataclass
class ReleaseChange:
    """Where it changed: ``first`` differs from the left end, ``last`` is the latest that doesn't.

    Both None: the ends show the same. Releases between the two could not be run: ``skipped``.
    ``holds``: everything that was run shows what one of the ends shows, on its side.
    """

    last: str | None
    first: str | None
    steps: list[ReleaseStep]

    @property
    def skipped(self) -> list[str]:
        """Releases that could not be run."""
        return [step.version for step in self.steps if step.seen is None]

    @property
    def holds(self) -> bool:
        """Returns whether no more than the two ends' answers were seen, each on its side."""
        steps = sorted((s for s in self.steps if s.seen), key=lambda s: release_numbers(s.version))
        # what changes back has changed twice
        return sum(step.seen != later.seen for step, later in itertools.pairwise(steps)) <= 1

    def to_json(self) -> dict[str, Any]:
        """Returns what ``probe bisect --json`` prints."""
        steps = sorted(self.steps, key=lambda step: release_numbers(step.version))
        return {
            "first": self.first,
            "last": self.last,
            "skipped": self.skipped,
            "assumption": ASSUMPTION,
            "holds": self.holds,
            "installed": sum(step.installed for step in self.steps),
            "steps": [vars(step) for step in steps],
        }


def releases_in_order(old: str, new: str, known: Iterable[str]) -> list[str]:
    """Returns ``old``, those of the known releases that are between, and ``new``."""
    low, high = sorted(map(release_numbers, (old, new)))
    inner = [release for release in known if low < release_numbers(release) < high]
    order = sorted({old, new, *inner}, key=release_numbers)
    return order if release_numbers(old) == low else order[::-1]


def first_change(releases: Sequence[str], ask: Callable[[str], ReleaseStep]) -> ReleaseChange:
    """Searches ``releases``, ascending, both ends included; ``ask`` is called once for each tried.

    A release that can't be run is replaced by its nearest neighbour. Needs about log2(n) + 2
    questions. InputError: an end can't be run.
    """
    steps: dict[str, ReleaseStep] = {}
    ends = [steps.setdefault(version, ask(version)) for version in (releases[0], releases[-1])]
    for end in ends:
        if end.seen is None:
            raise InputError("release", end.version, end.why, "take a different release")
    if ends[0].seen == ends[1].seen:
        return ReleaseChange(None, None, list(steps.values()))
    low, high = 0, len(releases) - 1
    while left := [at for at in range(low + 1, high) if releases[at] not in steps]:
        # the nearest to the middle that was not tried: a release that can not run has neighbours
        middle = min(left, key=lambda at: abs(2 * at - low - high))
        step = None
        with budget.Ending():  # the change lies between the two releases that enclose it so far
            step = steps.setdefault(releases[middle], ask(releases[middle]))
        if step is None:
            break
        if step.seen is None:
            continue
        low, high = (middle, high) if step.seen == ends[0].seen else (low, middle)
    return ReleaseChange(releases[low], releases[high], list(steps.values()))


def smallest(every: Sequence[T], returns: Callable[[Sequence[T]], bool]) -> list[list[T]]:
    """Returns all sets of the smallest size that bring results back; [] where not even all do.

    ``returns``: whether a set does. Sets of one come first: a cause is one condition mostly.
    """
    for size in range(1, len(every) + 1):
        if sets := [list(some) for some in itertools.combinations(every, size) if returns(some)]:
            return sets
    return []


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
            "skipped": [step.version for step in self.steps if step.seen is None],
            "steps": [
                {"target": step.version, "seen": step.seen, "says": step.says, "why": step.why}
                for step in self.steps
            ],
        }


def conditions_apart(left: Target, right: Target) -> list[Condition]:
    """Returns the conditions of ``left`` that ``right`` lacks. InputError: none, two libraries."""
    if left.name != right.name:
        why = f"{left.text} is a different library, not only under different conditions"
        raise InputError("and", right.text, why, "use one library; probe explain compares two")
    conditions: list[Condition] = []
    if left.version != right.version:
        conditions.append(("version", left.version))
    if left.device != right.device:
        conditions.append(("device", left.device))
    ours, theirs = dict(left.switches), dict(right.switches)
    keys = dict.fromkeys([*ours, *theirs])
    conditions += [(key, ours.get(key)) for key in keys if ours.get(key) != theirs.get(key)]
    if not conditions:
        raise InputError("and", right.text, "both are the same target", "take a different one")
    if len(conditions) > MOST:
        why = f"{len(conditions)} conditions differ, more than {MOST}"
        raise InputError("and", right.text, why, "fix some of them in both targets")
    return conditions


def condition_text(condition: Condition) -> str:
    """Returns a condition as it is printed."""
    name, value = condition
    name = {"version": "release"}.get(name, name)
    return (
        f"{name}={'installed' if name == 'release' else 'default'}"
        if value is None
        else (f"{name}={value}")
    )


def search_conditions(
    left: Target, right: Target, ask: Callable[[Target], ReleaseStep]
) -> Conditions:
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
        # all conditions of the left target together are the left target, which was run
        step = steps[0] if len(some) == len(every) else ask(right.with_(**dict(some)))
        steps.extend([step] * (step is not steps[0]))
        failed.extend([(len(some), step.version)] * (step.seen is None))
        return step.seen == steps[0].seen

    sets = [[condition_text(condition) for condition in some] for some in smallest(every, returns)]
    untested = [text for size, text in failed if size < len(sets[0])]
    return Conditions(left.text, right.text, sets, steps, untested)
