"""The search over sizes, and what it finds of releases and conditions, in few runs.

Each size has a mark, and sizes of equal marks are one class: what a mark is, ``SizeSearch`` doesn't
know. ``thresholds`` gives how the places of a call are added, ``model_fixes`` how far content is
padded, ``search`` whether outputs read behind a size; of releases a size is a place in their list.

Releases: it assumes that what changed between two of them changed once. What it measured is checked
against that: every release before the change must show what the left end shows, every one from it
on what the right end shows; where one shows a third thing, the answer is only the first change it
met.

Conditions: two targets of one library differ in the release, the device, and each switch (threads,
the newest instructions, a library inside the library). Starting from the second target, sets of the
first one's conditions are taken over, the smaller sets first, until the first one's results return.

What is asked in the searches is a function: they know nothing of what is run.
"""

from __future__ import annotations

import hashlib
import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeVar

from probe.case import operands
from probe.case.case import Case
from probe.case.errors import InputError, TargetError
from probe.case.floats import to_bits
from probe.targets import budget, environments, installation
from probe.targets.environments import release_numbers
from probe.targets.installation import RELEASED
from probe.targets.launch import AnySession, open_session
from probe.targets.progress import VOICE, Say, silent
from probe.targets.target import Target

# Sizes that are asked between two whose marks differ, where they change again and again.
MOST_ASKED = 400


@dataclass
class SizeSearch:
    """Asks sizes for their marks, each once.

    ``ask``: the mark of a size; None: it has none, as where the library fails or time is over.
    ``alike``: whether two marks are of one class. ``marks``: of the sizes that have one;
    ``unmarked``: those that have none.
    """

    ask: Callable[[int], Any]
    alike: Callable[[Any, Any], bool] = operator.eq
    marks: dict[int, Any] = field(default_factory=dict)
    unmarked: set[int] = field(default_factory=set)

    def mark(self, size: int) -> Any:
        if size not in self.marks and size not in self.unmarked:
            mark = self.ask(size)
            if mark is None:
                self.unmarked.add(size)
            else:
                self.marks[size] = mark
        return self.marks.get(size)

    def changes(self, low: int, high: int, step: int = 1) -> list[tuple[int, int]]:
        """Neighbours among the sizes with marks, every ``step``-th from ``low`` on, that differ."""
        marked = sorted(n for n in self.marks if low <= n <= high and (n - low) % step == 0)
        return [
            (before, after)
            for before, after in pairwise(marked)
            if not self.alike(self.marks[before], self.marks[after])
        ]

    def bisect(
        self, low: int, high: int, step: int = 1, most: int = MOST_ASKED
    ) -> list[tuple[int, int]]:
        """Asks the middle of the widest gap between sizes that differ, until none is left between
        such two, ``most`` were asked or time is over. Returns where marks change.

        A size without a mark is replaced by the nearest one. Between two sizes of one class no
        change is looked for: more than one in the answer contradicts that there is one at most.
        """
        self.mark(low), self.mark(high)
        begun = len(self.marks) + len(self.unmarked)
        while len(self.marks) + len(self.unmarked) - begun < most and not budget.spent():
            gaps = sorted(self.changes(low, high, step), key=lambda gap: gap[0] - gap[1])
            middles = (self._middle(*gap, step) for gap in gaps)
            size = next((middle for middle in middles if middle is not None), None)
            if size is None:
                break
            self.mark(size)
        return self.changes(low, high, step)

    def _middle(self, before: int, after: int, step: int) -> int | None:
        """The size nearest to the middle that was not asked; None: all between were."""
        count = (after - before) // step
        for apart in range(count):
            for number in (count // 2 - apart, count // 2 + apart):
                size = before + number * step
                if before < size < after and size not in self.marks and size not in self.unmarked:
                    return size
        return None

    def first_change(self, low: int, high: int) -> int | None:
        """Doubles sizes from ``low`` on until one differs from it, then bisects: the first one that
        differs. None: none of those that were asked up to ``high`` does."""
        for before, after in pairwise(doubled(low, high)):
            if changes := self.bisect(before, after):
                return changes[0][1]
        return None


def doubled(first: int, upto: int, step: int = 1) -> Iterator[int]:
    """Sizes from ``first`` on, each about twice the one before, by multiples of ``step``."""
    size = first
    yield size
    while size + step <= upto:
        size += max(1, (min(2 * size, upto) - size) // step) * step
        yield size


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
        """Whether no more than the two ends' answers were seen, each on its side."""
        steps = sorted((s for s in self.steps if s.seen), key=lambda s: release_numbers(s.version))
        # what changes back has changed twice
        return sum(step.seen != later.seen for step, later in pairwise(steps)) <= 1

    def to_json(self) -> dict[str, Any]:
        """What ``probe bisect --json`` prints."""
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


def first_change(releases: Sequence[str], ask: Callable[[str], ReleaseStep]) -> ReleaseChange:
    """Searches ``releases``, ascending, both ends included; ``ask`` is called once for each tried.

    A release that can't be run is replaced by its nearest neighbour. Needs about log2(n) + 2
    questions where one thing changed. InputError: an end can't be run.
    """
    steps, last = list[ReleaseStep](), len(releases) - 1

    def seen(place: int) -> str | None:
        step = None
        # the change lies between the two releases that enclose it so far
        with budget.Ending(place not in (0, last)):
            step = ask(releases[place])
            steps.append(step)
        if step is not None and step.seen is None and place in (0, last):
            raise InputError("release", step.version, step.why, "take a different release")
        return None if step is None else step.seen

    search = SizeSearch(seen)
    if search.mark(0) == search.mark(last):
        return ReleaseChange(None, None, steps)
    before, after = search.bisect(0, last)[0]
    return ReleaseChange(releases[before], releases[after], steps)


def smallest_sets(candidates: Sequence[T], returns: Callable[[Sequence[T]], bool]) -> list[list[T]]:
    """All sets of the smallest size that bring results back; [] where not even all candidates do.

    ``returns``: whether a set does. Sets of one come first: mostly one condition is the cause.
    """
    for size in range(1, len(candidates) + 1):
        if sets := [
            list(chosen) for chosen in itertools.combinations(candidates, size) if returns(chosen)
        ]:
            return sets
    return []


# A switch, ``version`` or ``device``, and its value; None: the default.
Condition = tuple[str, str | None]

# Conditions up to which all sets are tried, 64 at the most.
MOST_CONDITIONS = 6


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
        """What ``probe bisect --json`` prints; ``conditions`` is the first set."""
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
    """The conditions of ``left`` that ``right`` lacks. InputError: none, two libraries."""
    if left.name != right.name:
        why = f"{left.text} is a different library, not only under different conditions"
        raise InputError("and", right.text, why, "use one library; probe explain compares two")
    conditions: list[Condition] = []
    if left.version != right.version:
        conditions.append(("version", left.version))
    if left.device != right.device:
        conditions.append(("device", left.device))
    left_switches, right_switches = dict(left.switches), dict(right.switches)
    keys = dict.fromkeys([*left_switches, *right_switches])
    conditions += [
        (key, left_switches.get(key))
        for key in keys
        if left_switches.get(key) != right_switches.get(key)
    ]
    if not conditions:
        raise InputError("and", right.text, "both are the same target", "take a different one")
    if len(conditions) > MOST_CONDITIONS:
        why = f"{len(conditions)} conditions differ, more than {MOST_CONDITIONS}"
        raise InputError("and", right.text, why, "fix some of them in both targets")
    return conditions


def condition_text(condition: Condition) -> str:
    """A condition as it is printed: ``release=2.15.0``, ``threads=default``."""
    name, value = condition
    name = {"version": "release"}.get(name, name)
    default = "installed" if name == "release" else "default"
    return f"{name}={default if value is None else value}"


# What a target shows, as a short name, and in words. TargetError: it can't show it.
Measured = Callable[[Target], tuple[str, str]]


def step_on(
    where: Target, measured: Measured, tell: Say = silent, keep: bool = True
) -> ReleaseStep:
    """What a target shows. A release that is missing is installed, about a minute and 0.5 GB, and
    with ``keep`` it stays."""
    installed = where.version is None or installation.is_there(where)
    doing = f"{'measuring' if installed else 'installing and measuring'} {where.text}"
    tell(doing)
    try:
        with VOICE.doing(doing):
            if where.version is not None:
                installation.install_target(where)
            seen, says = measured(where)
    except TargetError as error:
        return ReleaseStep(where.text, None, why=error.why, installed=not installed)
    finally:
        temporary = not (installed or keep)
        if temporary and environments.find_environment(where.name, str(where.version)):
            installation.remove_installed(where)
    if says:
        tell(f"{where.text}: {says}")  # known also where somebody interrupts the search
    return ReleaseStep(where.text, seen, says, installed=not installed)


def search_conditions(
    left: Target, right: Target, measured: Measured, tell: Say = silent
) -> Conditions:
    """The smallest sets of ``left``'s conditions that bring its results back on ``right``.

    All sets of the smallest size that does are found, at a start of the library for each that is
    tried. InputError: an end can't be run.
    """
    conditions = conditions_apart(left, right)
    steps = [step_on(left, measured, tell), step_on(right, measured, tell)]
    for end in steps:
        if end.seen is None:
            raise InputError("target", end.version, end.why, "take a different target")
    if steps[0].seen == steps[1].seen:
        return Conditions(left.text, right.text, None, steps)

    failed = list[tuple[int, str]]()

    def returns(chosen: Sequence[Condition]) -> bool:
        # all conditions of the left target together are the left target, which was run
        if len(chosen) == len(conditions):
            return True
        step = step_on(right.with_(**dict(chosen)), measured, tell)
        steps.append(step)
        failed.extend([(len(chosen), step.version)] * (step.seen is None))
        return step.seen == steps[0].seen

    sets = [
        [condition_text(condition) for condition in chosen]
        for chosen in smallest_sets(conditions, returns)
    ]
    untested = [text for size, text in failed if size < len(sets[0])]
    return Conditions(left.text, right.text, sets, steps, untested)


# What of a case two releases or targets are compared by.
COMPARED = ("bits", "order")
UNSTEADY = "it does not repeat its own bits"


def releases_between(left: Target, right: Target, named: Sequence[str] = ()) -> list[str]:
    """The releases to search, both ends included. ``named``: these, instead of those that are
    known here.

    InputError: the ends name no release, other targets, or nothing is known of the library.
    """
    for end in (left, right):
        if end.version is None:
            todo = f"write {end.name}==1.2.3"
            raise InputError("target", end.text, "it does not name a release", todo)
    if left.with_(version=None) != right.with_(version=None):
        why = f"{left.text} is a different target, not only a different release"
        raise InputError("and", right.text, why, "use one library, device and set of switches")
    releases = list(named) or RELEASED.get(left.name, ())
    if not releases:
        todo = "name them: --releases 1.0,1.1,1.2"
        raise InputError("target", left.text, f"no list of {left.name}'s releases is kept", todo)
    ends = [str(left.version), str(right.version)]
    if release_numbers(ends[0]) == release_numbers(ends[1]):
        raise InputError("and", right.text, "both are the same release", "take a different one")
    low, high = sorted(map(release_numbers, ends))
    inner = [release for release in releases if low < release_numbers(release) < high]
    order = sorted({*ends, *inner}, key=release_numbers)
    return order if release_numbers(ends[0]) == low else order[::-1]


def search_releases(
    left: Target,
    right: Target,
    measured: Measured,
    tell: Say = silent,
    *,
    releases: Sequence[str] = (),
    keep: bool = True,
) -> ReleaseChange:
    """The first release after ``left`` that shows something else than it.

    ``left`` and ``right``: one target at two releases, in either order. ``releases``, ``keep``: as
    of ``releases_between`` and ``step_on``. Errors: InputError.
    """

    def ask(version: str) -> ReleaseStep:
        step = step_on(left.with_(version=version), measured, tell, keep)
        return replace(step, version=version)

    return first_change(releases_between(left, right, releases), ask)


@dataclass
class ShownByCase:
    """What a case shows on a target: ``bits`` of all outputs at ``lengths``, two or more, or
    ``order``: how each is added there."""

    case: Case
    lengths: Sequence[int]
    what: str

    def __call__(self, where: Target) -> tuple[str, str]:
        session = open_session(where)
        try:
            session.start()
            return self._bits(session) if self.what == "bits" else self._orders(session)
        finally:
            session.close()

    def _orders(self, session: AnySession) -> tuple[str, str]:
        from probe.sizes.orders import sweep_by_order

        sweep = sweep_by_order(session, self.case, self.lengths)
        budget.require_time()  # a part of the lengths is no release's answer
        if any(value.refusal == "nondeterministic" for value in sweep.all_values):
            raise TargetError(session.target.text, "error", UNSTEADY)
        keys = ("at", "order_id", "rounding_id", "ranges")
        shown = sorted(str([row.get(key) for key in keys]) for row in sweep.rows("")["reveals"])
        if not shown:  # no length ran: two targets that show nothing do not show the same
            refused = next((value.refusal for value in sweep.all_values if value.refusal), "")
            why = f"no order is known at any length: {refused}".rstrip(": ")
            raise TargetError(session.target.text, "error", why)
        digest = hashlib.sha256("\n".join(shown).encode()).hexdigest()
        return digest[:12], " and ".join(tree.text for tree, _ in sweep.summations)

    def _bits(self, session: AnySession) -> tuple[str, str]:
        digest, last = hashlib.sha256(), ""
        x, w, b = operands.generate(self.case.with_(length=max(self.lengths)))
        arrays = {"x": x, "w": w} | ({} if b is None else {"b": b})
        session.request({"do": "load", "key": "case", "spec": self.case.spec()}, arrays)
        for length in self.lengths:
            run = {"do": "run", "key": "case", "at": {"length": length}}
            bits, again = (
                to_bits(session.request(run)[1]["y"], self.case.dtype).reshape(-1) for _ in range(2)
            )
            if bits.tobytes() != again.tobytes():
                raise TargetError(session.target.text, "error", UNSTEADY)
            digest.update(bits.tobytes())
            last = f"length {length}: {' '.join(f'{value:#x}' for value in bits[:4].tolist())}"
        return digest.hexdigest()[:12], last


def only_releases(left: Target, right: Target) -> bool:
    """Whether two targets differ in their releases alone, and name both."""
    both = left.version is not None and right.version is not None
    return both and left.with_(version=None) == right.with_(version=None)


def conditions_lines(conditions: Conditions, what: str) -> Iterator[str]:
    if conditions.sets is None:
        yield f"both show the same {what}"
    for names in conditions.sets or ():
        brings = "bring" if len(names) > 1 else "brings"
        together = " and ".join(names)
        yield f"{together} {brings} the {what} of {conditions.left} back on {conditions.right}"
    if conditions.untested:
        missing = ", ".join(conditions.untested)
        yield f"whether fewer conditions do is not known: {missing} could not be tested"
