"""Runs checks in processes of their own: those of a lock that are no tests, and any check again
under its entry's conditions, to find why its bits changed.

``probe check lock`` adds models and cases, ``probe check`` runs them: ``python -m
probe.ui.lock.runs SPEC`` computes one. SPEC is JSON: ``check``, and ``model`` with ``inputs``,
``shapes``, ``seed``, or ``case``; ``target``; and ``trust``, which the user says, not the lock.

Why bits changed (``explain_changes``): the check runs as things are, for bits that do not repeat
have no cause to find; then under all conditions of the entry that this machine can have, then under
fewer, until its bits return. Variables limit instructions and threads; an old release stands in a
folder of the user's cache, in front of everything else on the path. Where nothing brings the bits
back it is the user's code (or data). Both sides are recorded and compared as by :func:`probe.diff`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 (NumPy then knows bfloat16 by its name)
import numpy as np

from probe.case import floats
from probe.case.case import Case
from probe.case.errors import InputError, NothingKnown, ProbeError, TargetError, one_of
from probe.diff import apart
from probe.diff.apart import RunnableRecording, module_paths
from probe.diff.source import GENERATOR
from probe.explain.outputs import decisions
from probe.record import recording
from probe.record.inputs import shapes_of
from probe.record.store import Bits
from probe.record.subject import is_function, open_model
from probe.sizes.bisection import smallest_sets
from probe.targets import budget, installation
from probe.targets.budget import within
from probe.targets.launch import AnySession, library_variables, open_session
from probe.targets.progress import Say, silent
from probe.targets.target import VERSION, Target
from probe.ui.answers.first_difference import of_stored, operation_text
from probe.ui.answers.same_bits import where_they_differ
from probe.ui.answers.two_runs import GivenModel
from probe.ui.lock import checks, conditions
from probe.ui.lock.checks import (
    CHANGED,
    NEW,
    NO_BITS,
    OUT,
    RECORD,
    SAME,
    UNKNOWN,
    BitsSession,
    Checked,
    LockFile,
    changing,
)
from probe.ui.lock.conditions import (
    CORES_OF,
    FLAGS,
    LIBRARIES,
    THREADS,
    Apart,
    Facts,
    apart_text,
    facts_apart,
)

# Seconds that one run may take.
TIME_LIMIT = 900.0


@dataclass(frozen=True)
class Command:
    """What runs a check: in which folder, with which variables (unset where they are empty), and
    with which folders of old releases before everything else."""

    words: Sequence[str]
    folder: Path
    variables: Mapping[str, str | int] = field(default_factory=dict)
    before: Sequence[Path] = ()

    def under(self, variables: Mapping[str, str | int], before: Sequence[Path]) -> Command:
        """The command under further conditions; its own ones win: they are what is run."""
        variables_of_both = {**variables, **self.variables}
        return Command(self.words, self.folder, variables_of_both, [*self.before, *before])

    def environment(self) -> dict[str, str]:
        # xdist and coverage take a process with their variables for a worker of theirs
        busy = ("PYTEST_XDIST", "COV_CORE")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(busy)}
        environment.pop(RECORD, None)
        for name, value in self.variables.items():
            environment.pop(name, None)
            if value != "" and name != CORES_OF:
                environment[name] = str(value)
        paths = [*map(str, self.before), *filter(None, [environment.get("PYTHONPATH")])]
        return environment | ({"PYTHONPATH": os.pathsep.join(paths)} if paths else {})


@dataclass
class Rerun:
    """What a check had when it was run again: bits by check, the conditions, and ``folder``, where
    its arrays are, and its recording. ``seconds``: how long it took. ``why``: what went wrong.
    ``unrecorded``: why a test has no recording."""

    folder: Path
    checks: dict[str, Bits] = field(default_factory=dict)
    facts: Facts = field(default_factory=dict)
    why: str = ""
    seconds: float = 0.0
    unrecorded: dict[str, str] = field(default_factory=dict)

    def array(self, check: str) -> np.ndarray | None:
        """What a check had, as a container array; None: it isn't kept."""
        try:
            with np.load(self.folder / "arrays.npz", allow_pickle=False) as arrays:
                return np.asarray(arrays[str([*self.checks].index(check))])
        except (OSError, KeyError, ValueError):
            return None

    @property
    def recording(self) -> Path | None:
        folder = self.folder / "recording"
        return folder if folder.is_dir() else None


def run_again(command: Command, out: Path, record: bool = False) -> Rerun:
    """Runs a command that writes the bits of its checks into the folder ``out``; ``record``: and
    the operations of their test."""
    surroundings = command.environment() | {OUT: str(out)} | ({RECORD: "1"} if record else {})
    words, cores = list(command.words), int(command.variables.get(CORES_OF) or 0)
    if cores and hasattr(os, "sched_setaffinity"):
        # an interpreter that becomes the command: libraries count processors as they are loaded
        allowed = sorted(os.sched_getaffinity(0))
        further = (core for core in range(os.cpu_count() or 1) if core not in allowed)
        chosen = [*allowed, *further][:cores]
        code = f"import os, sys; os.sched_setaffinity(0, {chosen}); "
        words = [sys.executable, "-c", f"{code}os.execvp(sys.argv[1], sys.argv[1:])", *words]
    begun = time.monotonic()
    try:
        done = subprocess.run(
            words,
            cwd=command.folder,
            env=surroundings,
            capture_output=True,
            text=True,
            timeout=TIME_LIMIT,
            check=False,
        )
        report = json.loads((out / "bits.json").read_text())
    except subprocess.TimeoutExpired:
        return Rerun(out, why=f"it took more than {TIME_LIMIT:g} s")
    except (OSError, ValueError):
        text = (done.stderr.strip() or done.stdout.strip() or "nothing was printed").splitlines()
        return Rerun(out, why=f"it did not run ({text[-1][:200]})")
    written = report["checks"].items()
    bits = {name: Bits(dtype, tuple(shape), digest) for name, (dtype, shape, digest) in written}
    seconds = time.monotonic() - begun
    return Rerun(out, bits, report["conditions"], "", seconds, report["unrecorded"])


def overlay(releases: Mapping[str, str], install: bool, tell: Say) -> Path | str:
    """A folder with these releases, by the modules' names; a text: why there is none.

    ``install``: also download what isn't there yet.
    """
    if "none" in releases.values():
        return "it was not installed then"
    # they come from a file, and name a folder whose modules are imported: no ../ in them
    if malformed := next((r for r in releases.values() if not VERSION.fullmatch(r)), ""):
        return f"{malformed[:40]!r} is not a release"
    wanted = {name: f"{distribution_of(name)}=={releases[name]}" for name in sorted(releases)}
    text = ", ".join(wanted.values())
    try:
        folder = installation.in_front(wanted, install, tell)
    except installation.Failed as error:
        return f"{text} can't be installed here: {error}"
    return folder or f"{text} is not installed (--bits-why=install installs it)"


def distribution_of(name: str) -> str:
    """The distribution that brings a module here, else the first that may: ``tensorflow-cpu`` is
    half as large as ``tensorflow``, and the same on a processor."""
    distributions = LIBRARIES.get(name, [name])
    installed = (name for name in distributions if any(metadata.Distribution.discover(name=name)))
    return next(installed, distributions[0])


# Targets whose module has a different name.
MODULES = {"opencv": "cv2", "litert": "ai_edge_litert"}


def _command(
    spec: Mapping[str, str], test: str, folder: Path, install: bool, trust: bool = False
) -> Command:
    """What runs a check. A model on another release has that release before everything
    else on the path, as the model itself has to run on it. InputError: it can't be had."""
    words, before = {**spec, "check": test, "trust": "1" * trust}, list[Path]()
    # a case runs in a session of its own, which finds its release; a model runs in this interpreter
    where = Target.parse(spec["target"]) if spec.get("target") else None
    if where is not None and "model" in spec and where.version and where.device in (None, "cpu"):
        module = MODULES.get(where.name, where.name)
        if module not in LIBRARIES:
            todo = "leave the release out"
            raise InputError("target", where.text, f"no package is known to be {module}", todo)
        releases = dict.fromkeys([module, "jaxlib"][: 1 + (module == "jax")], where.version)
        folder_or_why = overlay(releases, install, silent)
        if not isinstance(folder_or_why, Path):
            raise InputError("target", where.text, folder_or_why, "take a different release")
        before, where = [folder_or_why], where.with_(version=None)
        words["target"] = where.text
    variables: dict[str, Any] = library_variables(where) if where is not None else {}
    run = [sys.executable, "-m", "probe.ui.lock.runs", json.dumps(words)]
    return Command(run, folder, variables, before)


def computed_bits(name: str, command: Command) -> list[Checked]:
    """Runs one check; its arrays' bits, not judged yet. InputError and TargetError: it can't be
    run."""
    with tempfile.TemporaryDirectory(prefix="probe-") as out:
        rerun = run_again(command, Path(out))
        if rerun.why:
            error = Path(out, "error.json")
            problem = json.loads(error.read_text()) if error.exists() else {"why": rerun.why}
            if "input" in problem:
                raise InputError(*problem["input"])
            raise TargetError(name, "error", problem["why"])
    return [Checked(check, name, bits, rerun.facts, NEW) for check, bits in rerun.checks.items()]


def lock_run(
    path: Path,
    name: str,
    spec: Mapping[str, str],
    reason: str | None = None,
    tell: Say = silent,
    *,
    trust: bool = False,
) -> list[Checked]:
    """Adds a check to a lock, or its conditions; ``reason``: also replaces what it has; ``trust``:
    the model's file may run code.

    Returns what was found, judged by what the lock had. InputError: the name is another check's;
    the bits changed and there is no reason.
    """
    session = BitsSession(path, update=True, bless=reason)
    if session.lock.runs.get(name, dict(spec)) != dict(spec):
        why_not = "the lock has a different check of this name"
        raise InputError("name", name, why_not, "give another --name")
    tell(f"running {name}")
    todo = "run probe check, or give --bless REASON"
    # a function was named by the user, a moment ago
    trust = trust or is_function(spec.get("model"))
    command = _command(spec, name, path.parent, True, trust)
    computed = computed_bits(name, command)
    for checked in computed:
        judged = checks.judged_check(session.lock, checked.check, name, checked.bits, checked.facts)
        session.results.append(judged)
        if judged.verdict == CHANGED and reason is None:
            raise InputError("check", checked.check, "its bits changed", todo)
        if judged.verdict != SAME:
            session.accepted.append(judged)
    missing = _missing_outputs(session.lock, name, computed)
    if missing and reason is None:
        raise InputError("check", missing[0].check, "this output is gone", todo)
    session.finish([checked.check for checked in missing])
    with changing(path) as lock:
        lock.runs[name] = dict(spec)
    return session.results


def check_runs(
    path: Path,
    names: Sequence[str] = (),
    far: str = "here",
    tell: Say = silent,
    *,
    trust: bool = False,
) -> list[Checked]:
    """Runs the checks of a lock that are no tests, or those of ``names``, and judges them. One that
    can't be run is ``unknown``. ``far``: which causes are looked for, as of pytest's
    ``--bits-why``; ``trust``: functions and models' files that the lock names may run code.
    InputError: there is none."""
    if not path.exists():
        raise InputError("lock", path, "there is no such file", "add a check with probe check lock")
    session = BitsSession(path)
    now, install = session.lock, far == "install"
    for name in names:
        if name not in now.runs:
            there = one_of(name, now.runs) if now.runs else "add one with probe check lock"
            raise InputError("check", name, f"{path.name} has no run of this name", there)
    if not now.runs:
        todo = "add one with probe check lock MODEL; pytest checks those of tests"
        raise InputError("lock", path, "it has tests' checks alone", todo)
    results = list[Checked]()
    for name in names or now.runs:
        tell(f"running {name}")
        computed, problem = None, ""
        with budget.Ending():
            budget.require_time()
            try:
                command = _command(now.runs[name], name, path.parent, install, trust)
                computed = computed_bits(name, command)
            except (InputError, TargetError) as error:
                todo = f"; {error.todo}" if isinstance(error, InputError) else ""
                problem = f"it could not be run: {error.why}{todo}"
        if computed is None:
            accepted = next(iter((now.checks.get(name) or {}).values()), None)
            checked = Checked(name, name, NO_BITS, {}, UNKNOWN, accepted=accepted)
            checked.why = {"cause": None, "said": problem or f"it was not run: {budget.spent()}"}
            results.append(checked)
            continue
        judge = partial(checks.judged_check, now)
        results += [judge(each.check, name, each.bits, each.facts) for each in computed]
        results += _missing_outputs(now, name, computed)
    explained = checks.EXPLAINED[far]
    if wrong := [each for each in results if each.verdict in explained and not each.why]:

        def command_of(check: Checked) -> Command:
            return _command(now.runs[check.test], check.test, path.parent, install, trust)

        with budget.Ending():
            budget.require_time()
            explain_changes(wrong, session, command_of, install, tell)
    return results


def _missing_outputs(lock: LockFile, name: str, computed: Sequence[Checked]) -> list[Checked]:
    """The lock's checks of outputs that a run no longer has: fewer outputs are a change too."""
    present, results = {checked.check for checked in computed}, list[Checked]()
    for check, entries in lock.checks.items():
        output = check.rpartition("::")[0] == name and check not in lock.runs
        if (check == name or output) and check not in present:
            checked = Checked(check, name, NO_BITS, {}, CHANGED)
            checked.accepted = next(iter(entries.values()))
            checked.why = {"cause": None, "said": "there is no such output any more"}
            results.append(checked)
    return results


def exit_status(results: Sequence[Checked]) -> int:
    """0: the same; 1: changed; 3: unknown, or not locked yet."""
    verdicts = {checked.verdict for checked in results}
    return 1 if CHANGED in verdicts else 3 if verdicts - {SAME} else 0


def compute(spec: dict[str, Any]) -> None:
    """Writes a check's bits into the folder that the caller gave by a variable."""
    session = BitsSession(Path("none.lock"))
    assert session.out is not None
    try:
        with ExitStack() as running:
            if "case" in spec:
                where, case = Target.parse(spec["target"]), Case(**json.loads(spec["case"]))
                session_of_case: AnySession = open_session(
                    where, inline=not apart.needs_other_interpreter(where)
                )
                running.enter_context(session_of_case)
                x, w, b = case.operands()
                arrays = {"x": x, "w": w} | ({} if b is None else {"b": b})
                y = session_of_case.request({"do": "run", "spec": case.spec()}, arrays)[1]["y"]
                # formats that NumPy lacks travel as whole numbers
                outputs = [y.view(np.dtype(case.dtype))]
            else:
                outputs = _model_outputs(spec, running, session)
    except ProbeError as error:
        problem: dict[str, Any] = {"why": getattr(error, "why", str(error))}
        if isinstance(error, InputError):
            problem = {"input": [error.name, str(error.value), error.why, error.todo]}
        (session.out / "error.json").write_text(json.dumps(problem))
        raise SystemExit(error.exit_code) from None
    for number, array in enumerate(outputs):
        name = f"{spec['check']}::{number}" if len(outputs) > 1 else spec["check"]
        session.checked(name, spec["check"], array, ("", 0))
    session.finish()


def _model_outputs(
    spec: dict[str, Any], running: ExitStack, session: BitsSession
) -> list[np.ndarray]:
    switches, library = None, None
    if spec.get("target"):
        where = Target.parse(spec["target"])
        switches, library = apart.model_switches(where, spec["model"]), where.name
        running.enter_context(open_session(where, inline=True))
    trust = spec["trust"] == "1"
    if is_function(spec["model"]) and not trust:
        why_not = "importing it runs code, and the lock names it, not you"
        raise InputError("model", spec["model"], why_not, "if you trust the lock, give --trust")
    subject = open_model(spec["model"], trust, switches, library)
    shapes = shapes_of(spec.get("shapes", "").split())
    seed, inputs = int(spec.get("seed", 0)), spec.get("inputs") or None
    user_model = GivenModel(spec["model"], inputs, shapes, seed=seed)
    recorder = subject.recorder(user_model.arrays(subject.inputs))
    outputs: list[np.ndarray] = recorder.plain()
    if any(output.dtype in (np.uint8, np.uint16) for output in outputs):
        # whole numbers, or the bits of a format that NumPy lacks: the library's tensors say which
        run = recording.record_run(recorder, keep=False)
        dtypes = [run.values[n].dtype for n in run.outputs]
        outputs = [output.view(np.dtype(to)) for output, to in zip(outputs, dtypes, strict=True)]
    if session.records:
        session.record(spec["check"], recorder)  # type: ignore[arg-type]
    return outputs


# Seconds after which no further check is looked into, unless releases are to be installed.
BUDGET = 120.0

# Libraries whose release follows that of a second library.
TOGETHER = {"jaxlib": "jax", "keras": "tensorflow", "torchvision": "torch"}

# Seconds for which the cause of an operation is looked for at least, and how many runs of the check
# it may take: on a busy machine both take longer, and the order of a long sum takes minutes.
LONGEST, RUNS = 60.0, 20

YOUR_CODE, UNSTEADY, PROCESS, AGAIN = "your code", "nondeterministic", "process", "as it is here"


@dataclass
class CauseSearch:
    """One check that is looked into. ``steps``: what was run, as (conditions, what came out)."""

    one: Checked
    command: Command
    running: ExitStack
    install: bool = False
    tell: Say = silent
    steps: list[tuple[str, str]] = field(default_factory=list)
    missing: dict[str, str] = field(default_factory=dict)
    ran: dict[tuple[str, ...], Rerun] = field(default_factory=dict)

    def run(self, groups: Sequence[str]) -> Rerun:
        """Runs the check once under some of the entry's conditions, the others as they are here."""
        if tuple(groups) not in self.ran:
            missing_before, command = len(self.missing), self.surroundings(groups)
            self.ran[tuple(groups)] = (
                Rerun(Path(), why="it can't be had here")
                if len(self.missing) > missing_before
                else self.run_under(command, self.said(groups) or AGAIN, record=True)
            )
        return self.ran[tuple(groups)]

    def run_under(self, command: Command, said: str, record: bool = False) -> Rerun:
        """Runs the check once by a command; ``said``: under what, in words."""
        self.tell(f"running {self.one.test}: {said}")
        temporary = tempfile.TemporaryDirectory(prefix="probe-", ignore_cleanup_errors=True)
        rerun = run_again(command, Path(self.running.enter_context(temporary)), record)
        bits = rerun.checks.get(self.one.check)
        outcome = rerun.why or (bits.hash[:8] if bits else "it did not reach the check")
        self.steps.append((said, outcome))
        return rerun

    def surroundings(self, groups: Sequence[str]) -> Command:
        """The command under some of the entry's conditions; what can't be brought back is
        kept in ``missing``."""
        values: dict[str, str | int] = {}
        releases: dict[str, str] = {}
        for group in groups:
            facts = self.one.apart[group]
            installed = {n[8:]: str(old) for n, (old, _) in facts.items() if n[:8] == "library."}
            if group.startswith("release ") and installed:
                releases |= installed
            elif restored := conditions.restoring(group, facts):
                values |= restored
            else:
                self.missing[self.said([group])] = "a program sets it, not a variable"
        folder = overlay(releases, self.install, self.tell) if releases else None
        if isinstance(folder, str):
            self.missing[self.said([g for g in groups if g.startswith("release ")])] = folder
        return self.command.under(values, [folder] if isinstance(folder, Path) else [])

    def said(self, groups: Sequence[str]) -> str:
        """The entry's side of some conditions in words."""
        return apart_text({group: self.one.apart[group] for group in groups}, both=False)

    def returns(self, groups: Sequence[str]) -> bool:
        """Whether these conditions bring the accepted bits back."""
        assert self.one.accepted is not None
        return self.run(groups).checks.get(self.one.check) == self.one.accepted.bits

    def smallest_sets(self) -> list[list[str]]:
        """The smallest sets of conditions that bring the bits back. All together come
        first: where these don't, single ones alone are worth a run."""
        groups = list(self.one.apart)
        for group in groups:
            self.surroundings([group])
        possible = [group for group in groups if self.said([group]) not in self.missing]
        if possible and self.returns(possible):
            return smallest_sets(
                possible, lambda chosen: len(chosen) == len(possible) or self.returns(chosen)
            )
        return [[group] for group in possible if len(possible) > 1 and self.returns([group])]

    def named(self, group: str) -> str:
        """A condition as a cause: ``release 2.4.5 -> 2.4.6 of numpy``."""
        kind, _, name = group.partition(" ")
        of = {f"library.{name}": name, f"openblas.{name}": f"{name}'s OpenBLAS"}
        both = {of[fact]: pair for fact, pair in self.one.apart[group].items() if fact in of}
        texts = [f"release {old} -> {new} of {library}" for library, (old, new) in both.items()]
        return " with ".join(texts) if kind == "release" else group


def explain_changes(
    wrong: Sequence[Checked],
    session: BitsSession,
    command: Callable[[Checked], Command],
    install: bool = False,
    tell: Say = silent,
) -> None:
    """Finds the cause of each check that is not the same, and keeps it in its ``why``.

    Of the checks of one test whose conditions differ alike, the first is looked into, by some runs
    of ``command``. One that was unknown has changed where nothing but the code is left.
    """
    started, explained = time.monotonic(), dict[tuple[str, str], Checked]()
    for checked in wrong:
        if (same := explained.get((checked.test, checked.nearest))) is not None:
            checked.why = {k: v for k, v in same.why.items() if k != "difference"}
        elif time.monotonic() - started > BUDGET and not install:
            checked.why = {"notes": [f"no cause was looked for after {BUDGET:g} s"]}
            continue
        else:
            with ExitStack() as running:
                checked.apart = with_companions(checked.apart)
                search = CauseSearch(checked, command(checked), running, install, tell)
                checked.why = _searched_cause(search, session)
            explained[checked.test, checked.nearest] = checked
        if checked.why.get("cause") == YOUR_CODE:
            checked.verdict = CHANGED


def with_companions(differences: Apart) -> Apart:
    """Differences in which a library's companions go with it."""
    merged: Apart = {}
    for group, facts in differences.items():
        main = f"release {TOGETHER.get(group.partition(' ')[2], '')}"
        merged.setdefault(main if main in differences else group, {}).update(facts)
    return merged


def _searched_cause(search: CauseSearch, session: BitsSession) -> dict[str, Any]:
    checked = search.one
    assert checked.accepted is not None
    as_here = search.run(())
    now = as_here.checks.get(checked.check)
    finding: dict[str, Any] = {"cause": None, "said": "", "steps": search.steps, "notes": []}
    if now is None:
        return finding | {"notes": [f"it could not be run again: {as_here.why or 'no check'}"]}
    if now == checked.accepted.bits:
        said = "what ran before it in this process: alone, it has the accepted bits"
        return finding | {"cause": PROCESS, "said": said}
    # a process of its own may differ from the suite's: only what repeats there is compared
    if now != checked.bits:
        again = search.run_under(search.command, AGAIN)
        if now != again.checks.get(checked.check):
            said = "its bits do not repeat under the same conditions"
            return finding | {"cause": UNSTEADY, "said": said}
    if sets := search.smallest_sets():
        causes = [" and ".join(map(search.named, groups)) for groups in sets]
        finding |= {"cause": causes[0], "said": causes[0], "brings_back": sets}
        finding["notes"] += [f"so does: {'; '.join(causes[1:])}"] * (len(sets) > 1)
        # what differs between a run under the entry's conditions and a run as things are here
        back = search.run(sets[0])
        array_back, array_here = back.array(checked.check), as_here.array(checked.check)
        if array_back is not None and array_here is not None:
            finding |= _of_arrays(array_back, array_here, checked)
        if missing := [ran for ran in (back, as_here) if ran.recording is None]:
            why = missing[0].unrecorded.get(checked.test, "it was not recorded")
            return finding | {"recorded": why}
        with suppress(ProbeError):
            # a decision that changed says the kind, whatever the operation did
            kind = {"kind": finding["kind"]} if "kind" in finding else {}
            finding |= _walked_operations(search, back, as_here, sets[0]) | kind
        if finding.get("class") == GENERATOR:
            said = f"a random stream that is drawn differently: {finding['said']}"
            finding |= {"cause": GENERATOR, "said": said, "kind": "answers"}
        return finding
    held = False  # a processor's conditions are never all there: caches, instructions beyond
    if "processor" not in checked.apart and not search.missing and checked.apart:
        ran = search.run(list(checked.apart))
        # one that did not come to the check says nothing, and has no facts in which to differ
        held = checked.check in ran.checks
        held = held and not facts_apart(session.lock.conditions[checked.nearest], ran.facts)
    if checked.apart and not held:
        reasons = [f"{name}: {why}" for name, why in search.missing.items()]
        reasons = reasons or ["this machine can't have all conditions of the entry"]
        finding["notes"] += [f"not known: {text}" for text in dict.fromkeys(reasons)]
        return finding
    if (
        now != checked.bits
    ):  # another test's state may be why, and where the accepted bits came from
        said = "alone it has different bits from those in this run: what runs before it counts"
        return finding | {"notes": [f"not known: {said}"]}
    finding["cause"] = YOUR_CODE
    finding["said"] = "your code (or its data): no condition brings the accepted bits back"
    old, new = session.kept(checked), as_here.array(checked.check)
    return finding if old is None or new is None else finding | _of_arrays(old, new, checked)


def _of_arrays(old: Any, new: Any, checked: Checked) -> dict[str, Any]:
    """Where two arrays differ, how many decisions change, and the kind of the change."""
    dtype, report = checked.bits.dtype, dict[str, Any]()
    if old.shape != new.shape or old.dtype != new.dtype:
        return {"kind": "answers"}
    report["difference"] = where_they_differ(old, new, "out", dtype, 1).partition(": ")[2]
    if dtype in floats.FORMATS and old.ndim:
        kind = floats.container_of_format(dtype)
        taken = list(decisions(new.view(kind), old.view(kind), dtype))
        changed = sum(each.crossed for each in taken)
        total = sum(each.taken for each in taken)
        report["decisions"] = {"total": total, "changed": changed}
        report |= {"kind": "answers"} if changed else {}
    return report


def _walked_operations(
    search: CauseSearch, old: Rerun, new: Rerun, groups: Sequence[str]
) -> dict[str, Any]:
    """Compares two recordings; operations run again where each was recorded."""
    set_here = {n: os.environ[n] for n in (*FLAGS, *THREADS, "LD_PRELOAD") if n in os.environ}
    with ExitStack() as running:
        sides = []
        for ran, changed_groups in ((old, groups), (new, ())):
            command, extra = search.surroundings(changed_groups), module_paths()
            variables = {**set_here, **command.variables}
            variables.pop(CORES_OF, None)
            extra |= {name: str(value) for name, value in variables.items() if value != ""}
            extra["PYTHONPATH"] = os.pathsep.join([*map(str, command.before), extra["PYTHONPATH"]])
            assert ran.recording is not None
            sides.append(running.enter_context(RunnableRecording(ran.recording, extra)))
        limit = f"{max(LONGEST, RUNS * search.run(()).seconds):.0f}s"
        try:
            with within(limit, whole=False):
                walk = of_stored(sides[0], sides[1], True, search.tell)
        except NothingKnown:
            return {}
        first, rounding = walk.found.first, walk.found.rounding.to_json()
        counts, ending = walk.decision_counts(), walk.ending()
    report: dict[str, Any] = {"rounding": rounding, "decisions": counts}
    report["operation"] = ending[0] if walk.verdict == "differs" else None
    if first is not None:
        report |= {"operation": operation_text(first), "class": first.cause or None}
    if counts["changed"] or rounding.get("beyond"):
        report["kind"] = "answers"
    elif not rounding["unknown"] and (rounding["explained"] or rounding["within"]):
        report["kind"] = "rounding"  # all are replayed, or within what rounding can give
    return report


if __name__ == "__main__":
    compute(json.loads(sys.argv[1]))
