"""The searches for a cause with the fewest runs: over releases, and over sets of conditions.

Nothing here knows what is run: what is asked is a function. Imports no store, so that an
environment without one can look for the cause of changed bits.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from probe.errors import InputError
from probe.runtimes.environments import release_numbers

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
        asked = sorted((s for s in self.steps if s.seen), key=lambda s: release_numbers(s.version))
        return sum(one.seen != two.seen for one, two in itertools.pairwise(asked)) <= 1

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
    inner = [one for one in known if low < release_numbers(one) < high]
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
        step = steps.setdefault(releases[middle], ask(releases[middle]))
        if step.seen is None:
            continue
        low, high = (middle, high) if step.seen == ends[0].seen else (low, middle)
    return ReleaseChange(releases[low], releases[high], list(steps.values()))


def smallest(every: Sequence[T], returns: Callable[[Sequence[T]], bool]) -> list[list[T]]:
    """Returns all sets of the smallest size that bring results back; [] where not even all do.

    ``returns``: whether a set does. Sets of one come first: a cause is one condition mostly.
    """
    for size in range(1, len(every) + 1):
        if found := [list(some) for some in itertools.combinations(every, size) if returns(some)]:
            return found
    return []
