"""Checks that are no tests: models and cases that ``probe check lock`` adds and ``probe check``
runs.

``python -m probe.ui.lock.runs SPEC`` computes one in a process of its own. SPEC is JSON: ``check``,
and ``model`` with ``inputs``, ``shapes``, ``seed``, or ``case``; ``target``; and ``trust``, which
the user says, not the lock.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401 (NumPy then knows bfloat16 by its name)
import numpy as np

from probe.case.case import Case
from probe.case.errors import InputError, ProbeError, TargetError, one_of
from probe.diff import apart
from probe.record import recording
from probe.record.inputs import shapes_of
from probe.record.subject import is_function, open_model
from probe.targets import budget
from probe.targets.launch import AnySession, library_variables, open_session
from probe.targets.progress import Say, silent
from probe.targets.target import Target
from probe.ui.lock import checks, why
from probe.ui.lock.checks import (
    CHANGED,
    NEW,
    SAME,
    UNKNOWN,
    Bits,
    BitsSession,
    Checked,
    LockFile,
    changing,
)
from probe.ui.lock.conditions import LIBRARIES

# Targets whose module has a different name.
MODULES = {"opencv": "cv2", "litert": "ai_edge_litert"}


def _command(
    spec: Mapping[str, str], test: str, folder: Path, install: bool, trust: bool = False
) -> why.Command:
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
        overlay = why.overlay(releases, install, silent)
        if not isinstance(overlay, Path):
            raise InputError("target", where.text, overlay, "take a different release")
        before, where = [overlay], where.with_(version=None)
        words["target"] = where.text
    variables: dict[str, Any] = library_variables(where) if where is not None else {}
    run = [sys.executable, "-m", "probe.ui.lock.runs", json.dumps(words)]
    return why.Command(run, folder, variables, before)


def computed_bits(name: str, command: why.Command) -> list[Checked]:
    """Runs one check; its arrays' bits, not judged yet. InputError and TargetError: it can't be
    run."""
    with tempfile.TemporaryDirectory(prefix="probe-") as out:
        rerun = why.run_again(command, Path(out))
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
            known = next(iter((now.checks.get(name) or {}).values()), None)
            nothing = known.bits if known else Bits("none", (), "0" * 32)
            checked = Checked(name, name, nothing, {}, UNKNOWN, accepted=known)
            checked.why = {"cause": None, "said": problem or f"it was not run: {budget.spent()}"}
            results.append(checked)
            continue
        judge = partial(checks.judged_check, now)
        results += [judge(each.check, name, each.bits, each.facts) for each in computed]
        results += _missing_outputs(now, name, computed)
    explained = checks.EXPLAINED[far]
    if wrong := [each for each in results if each.verdict in explained and not each.why]:

        def command_of(check: Checked) -> why.Command:
            return _command(now.runs[check.test], check.test, path.parent, install, trust)

        with budget.Ending():
            budget.require_time()
            why.explain_changes(wrong, session, command_of, install, tell)
    return results


def _missing_outputs(lock: LockFile, name: str, computed: Sequence[Checked]) -> list[Checked]:
    """The lock's checks of outputs that a run no longer has: fewer outputs are a change too."""
    present, results = {checked.check for checked in computed}, list[Checked]()
    for check, entries in lock.checks.items():
        output = check.rpartition("::")[0] == name and check not in lock.runs
        if (check == name or output) and check not in present:
            checked = Checked(check, name, Bits("none", (), "0" * 32), {}, CHANGED)
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
    from probe.ui.answers.two_runs import GivenModel

    within, library = None, None
    if spec.get("target"):
        where = Target.parse(spec["target"])
        within, library = apart.model_switches(where, spec["model"]), where.name
        running.enter_context(open_session(where, inline=True))
    trust = spec["trust"] == "1"
    if is_function(spec["model"]) and not trust:
        why_not = "importing it runs code, and the lock names it, not you"
        raise InputError("model", spec["model"], why_not, "if you trust the lock, give --trust")
    subject = open_model(spec["model"], trust, within, library)
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


if __name__ == "__main__":
    compute(json.loads(sys.argv[1]))
