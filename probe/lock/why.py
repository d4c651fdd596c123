"""Why a check's bits changed: it is run again under the entry's conditions until they return.

First as things are: bits that do not repeat have no cause to find. Then under all conditions of the
entry that this machine can have, then under fewer, as :mod:`probe.switch_points` searches. Where
nothing brings the bits back it is the user's code (or data). Both sides are recorded, and
:func:`probe.diff` names the first operation that differs, its cause, and the kind of change.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from probe import floats
from probe.answers.first_difference import of_stored, operation_text
from probe.budget import within
from probe.comparison import decisions
from probe.errors import ProbeError
from probe.lock import reruns
from probe.lock.assertions import described
from probe.lock.conditions import Apart, apart, restoring
from probe.lock.file import LockFile
from probe.lock.judging import CHANGED, Checked
from probe.lock.operations import first_changed
from probe.lock.reruns import Rerun
from probe.progress import Say, silent
from probe.recording.apart import module_paths
from probe.recording.replayed import RunnableRecording
from probe.switch_points.conditions import smallest

BUDGET = 120.0
"""Seconds after which no further check is looked into, unless releases are to be installed."""

TOGETHER = {"jaxlib": "jax", "keras": "tensorflow", "torchvision": "torch"}
"""Libraries whose release follows that of another one."""

LONGEST = "60s"
"""How long the cause of one operation is looked for: orders of long sums take minutes."""

YOUR_CODE = "your code"
UNSTEADY = "nondeterministic"
PROCESS = "process"


class Subject(Protocol):
    """How a check is run again, in a process of its own."""

    @property
    def folder(self) -> Path:
        """Returns the folder in which the command runs."""

    def command(self, one: Checked) -> list[str]:
        """Returns the command that runs a check."""


@dataclass(frozen=True)
class Tests:
    """Tests that pytest runs again, one at a time. ``root``: its rootdir."""

    root: Path
    folder: Path
    arguments: Sequence[str]

    def command(self, one: Checked) -> list[str]:
        """As of ``Subject``."""
        path, _, rest = one.test.partition("::")
        node = f"{self.root / path}::{rest}"
        return [sys.executable, "-m", "pytest", *self.arguments, node]


@dataclass
class CauseSearch:
    """One check that is looked into. ``steps``: what was run, as (conditions, what came out)."""

    one: Checked
    how: Subject
    running: ExitStack
    install: bool = False
    tell: Say = silent
    steps: list[tuple[str, str]] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    ran: dict[tuple[str, ...], Rerun] = field(default_factory=dict)

    def run(self, groups: Sequence[str], again: bool = False) -> Rerun:
        """Runs the check once under some of the entry's conditions, the others as they are here."""
        if tuple(groups) in self.ran and not again:
            return self.ran[tuple(groups)]
        values, before = self.surroundings(groups)
        self.tell(f"running {self.one.test} with {self.said(groups) or 'nothing changed'}")
        into = Path(self.running.enter_context(_folder()))
        found = reruns.run(
            self.how.command(self.one),
            values,
            before,
            folder=self.how.folder,
            record=not again,
            into=into,
        )
        bits = found.checks.get(self.one.check)
        told = found.why or (bits.hash[:8] if bits else "it did not reach the check")
        self.steps.append((self.said(groups) or "as it is here", told))
        self.ran.setdefault(tuple(groups), found)
        return found

    def surroundings(self, groups: Sequence[str]) -> tuple[dict[str, str | int], list[Path]]:
        """Returns the variables and the folders that bring conditions back; what can't is kept in
        ``missing``."""
        values: dict[str, str | int] = {}
        before: list[Path] = []
        releases: dict[str, str] = {}
        for group in groups:
            facts = self.one.apart[group]
            if group.startswith("release "):
                releases |= {n.partition(".")[2]: str(old) for n, (old, _) in facts.items()}
            elif found := restoring(group, facts):
                values |= found
            else:
                self.missing[self.said([group])] = "a program sets it, not a variable"
        if releases:
            folder = reruns.overlay(releases, self.install, self.tell)
            if isinstance(folder, Path):
                before.append(folder)
            else:
                self.missing[self.said([g for g in groups if g.startswith("release ")])] = folder
        return values, before

    def said(self, groups: Sequence[str]) -> str:
        """Returns the entry's side of some conditions in words."""
        told = []
        for group in groups:
            each = [
                f"{name} {'unset' if old is None else old}"
                for name, (old, _) in self.one.apart[group].items()
            ]
            told.append(", ".join(each).replace("library.", ""))
        return "; ".join(told)

    def returns(self, groups: Sequence[str]) -> bool:
        """Returns whether these conditions bring the accepted bits back."""
        assert self.one.accepted is not None
        known = len(self.missing)
        self.surroundings(groups)
        if len(self.missing) > known:
            return False
        return self.run(groups).checks.get(self.one.check) == self.one.accepted.bits


def explain(
    wrong: Sequence[Checked],
    lock: LockFile,
    how: Subject,
    kept: Callable[[Checked], Any] = lambda _: None,
    install: bool = False,
    tell: Say = silent,
) -> None:
    """Finds the cause of each check that is not the same, and keeps it in its ``why``.

    Of the checks of one test whose conditions differ alike, the first is looked into. One that was
    unknown has changed where nothing but the code is left. ``kept``: returns a check's accepted
    array, or None. Costs some runs of the test each.
    """
    started, known = time.monotonic(), dict[tuple[str, str], Checked]()
    for one in wrong:
        same = known.get((one.test, one.nearest))
        if same is not None:
            one.why = {k: v for k, v in same.why.items() if k not in OF_ARRAYS}
        elif time.monotonic() - started > BUDGET and not install:
            one.why = {"notes": [f"no cause was looked for after {BUDGET:g} s"]}
            continue
        else:
            with ExitStack() as running:
                one.apart = grouped(one.apart)
                one.why = _searched(CauseSearch(one, how, running, install, tell), lock, kept)
            known[one.test, one.nearest] = one
        if one.why.get("cause") == YOUR_CODE:
            one.verdict = CHANGED


OF_ARRAYS = ("difference",)


def grouped(differences: Apart) -> Apart:
    """Returns differences in which a library's companions go with it."""
    found: Apart = {}
    for group, facts in differences.items():
        main = f"release {TOGETHER.get(group.partition(' ')[2], '')}"
        found.setdefault(main if main in differences else group, {}).update(facts)
    return found


def _searched(
    search: CauseSearch, lock: LockFile, kept: Callable[[Checked], Any]
) -> dict[str, Any]:
    one = search.one
    assert one.accepted is not None
    here = search.run(())
    now = here.checks.get(one.check)
    if now is None:
        return {"cause": None, "notes": [f"it could not be run again: {here.why or 'no check'}"]}
    if now == one.accepted.bits:
        said = "what ran before it in this process: alone, it has the accepted bits"
        return {"cause": PROCESS, "said": said, "steps": search.steps}
    if now != one.bits:
        # a process of its own may differ from the suite's: only what repeats there is compared
        again = search.run((), again=True).checks.get(one.check)
        if again != now:
            said = "its bits do not repeat under the same conditions"
            return {"cause": UNSTEADY, "said": said, "steps": search.steps}
    groups, sets = list(one.apart), list[list[str]]()
    if groups:
        sets = _sets(search, groups)
    found: dict[str, Any] = {"cause": None, "said": "", "steps": search.steps, "notes": []}
    if sets:
        found["cause"] = " and ".join(_cause(group, one) for group in sets[0])
        found["brings_back"] = sets
        found["said"] = found["cause"]
        if len(sets) > 1:
            others = "; ".join(" and ".join(_cause(g, one) for g in some) for some in sets[1:])
            found["notes"].append(f"so does: {others}")
        found |= _compared(search, search.run(sets[0]), sets[0])
        return found
    exact = not search.missing and _holds(search, groups, lock)
    if not groups or exact:
        found["cause"], found["said"] = YOUR_CODE, "your code (or its data): "
        found["said"] += "no condition brings the accepted bits back"
        old, new = kept(one), here.array(one.check)
        found |= {} if old is None or new is None else _of_arrays(old, new, one)
        found |= _own_code(search, lock)
        return found
    told = [f"{name}: {why}" for name, why in search.missing.items()]
    told = told or ["this machine can't have all conditions of the entry"]
    found["notes"] += [f"not known: {text}" for text in dict.fromkeys(told)]
    return found


def _sets(search: CauseSearch, groups: list[str]) -> list[list[str]]:
    """Returns the smallest sets of conditions that bring the bits back. All together come first:
    where these don't, single ones alone are worth a run."""
    for group in groups:
        search.surroundings([group])
    there = [group for group in groups if search.said([group]) not in search.missing]
    if not there:
        return []
    if search.returns(there):
        return smallest(there, lambda some: len(some) == len(there) or search.returns(some))
    return [[one] for one in there if len(there) > 1 and search.returns([one])]


def _holds(search: CauseSearch, groups: Sequence[str], lock: LockFile) -> bool:
    """Returns whether all of the entry's conditions held when it was run under them: then nothing
    but the code is left. A processor's are never all there: caches, and instructions beyond."""
    if "processor" in groups:
        return False
    facts = search.run(groups).facts
    return not apart(lock.conditions[search.one.nearest], facts)


def _cause(group: str, one: Checked) -> str:
    kind, _, name = group.partition(" ")
    if kind != "release":
        return group
    old, new = one.apart[group][f"library.{name}"]
    return f"release {old} -> {new} of {name}"


def _compared(search: CauseSearch, old: Rerun, groups: Sequence[str]) -> dict[str, Any]:
    """Returns what differs between a run under the entry's conditions and one as it is here."""
    new, found = search.run(()), dict[str, Any]()
    ours, theirs = old.array(search.one.check), new.array(search.one.check)
    if ours is not None and theirs is not None:
        found |= _of_arrays(ours, theirs, search.one)
    if old.recording is None or new.recording is None:
        _, why = old.operations() if old.recording is None else new.operations()
        return found | {"recorded": why}
    with suppress(ProbeError):
        kind = found.get("kind")
        found |= _walked(search, old.recording, new.recording, groups)
        found |= {"kind": kind} if kind else {}  # a decision changed, whatever the operation did
    return found


def _of_arrays(old: Any, new: Any, one: Checked) -> dict[str, Any]:
    dtype, found = one.bits.dtype, dict[str, Any]()
    if old.shape != new.shape or old.dtype != new.dtype:
        return {"kind": "answers"}
    found["difference"] = described(old, new, "out", dtype, 1).partition(": ")[2]
    if dtype in floats.FORMATS and old.ndim:
        kind = floats.container_of_format(dtype)
        every = list(decisions.decisions(new.view(kind), old.view(kind), dtype))
        found["decisions"] = {
            "total": sum(each.taken for each in every),
            "changed": sum(each.crossed for each in every),
        }
        if found["decisions"]["changed"]:
            found["kind"] = "answers"
    return found


def _walked(search: CauseSearch, old: Path, new: Path, groups: Sequence[str]) -> dict[str, Any]:
    """Compares two recordings; operations run again where each was recorded."""
    with ExitStack() as running:
        sides = []
        for folder, some in ((old, groups), (new, ())):
            values, before = search.surroundings(some)
            extra = module_paths() | {
                name: str(value)
                for name, value in ({**_flags(), **values}).items()
                if value != "" and not name.startswith("PROBE_")
            }
            paths = [*map(str, before), extra["PYTHONPATH"]]
            extra["PYTHONPATH"] = os.pathsep.join(paths)
            sides.append(running.enter_context(RunnableRecording(folder, extra)))
        with within(LONGEST):
            walk = of_stored(sides[0], sides[1], True, search.tell)
        first, rounding = walk.found.first, walk.found.rounding.to_json()
        counts, ending = walk.decided(), walk.ending()
    found: dict[str, Any] = {"rounding": rounding, "decisions": counts}
    if first is not None:
        found["operation"] = operation_text(first)
        found["class"] = first.cause or None
    else:
        found["operation"] = ending[0] if walk.verdict == "differs" else None
    if counts["changed"] or rounding.get("beyond"):
        found["kind"] = "answers"
    elif not rounding["unknown"] and (rounding["explained"] or rounding["within"]):
        found["kind"] = "rounding"  # all are replayed, or within what rounding can give
    return found


def _flags() -> Mapping[str, str]:
    from probe.lock.conditions import FLAGS, THREADS

    return {name: os.environ[name] for name in (*FLAGS, *THREADS) if name in os.environ}


def _own_code(search: CauseSearch, lock: LockFile) -> dict[str, Any]:
    """Returns the first operation that changed since the lock was made, from its digests."""
    old = lock.operations.get(search.one.test, {}).get(search.one.nearest, [])
    if not old:
        return {"notes": ["the lock has no digests of its operations"]}
    new, why = search.run(()).operations()
    if not new:
        return {"notes": [f"its operations could not be recorded: {why}"]}
    first = first_changed(old, new)
    told = first or "all operations agree: what changed is done outside of the library, or after it"
    return {"operation": told}


def _folder() -> Any:
    return tempfile.TemporaryDirectory(prefix="probe-", ignore_cleanup_errors=True)
