"""The end of pytest's run: the lock is written, causes are looked for, reports are made."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from probe.errors import InputError
from probe.lock import reports
from probe.lock.judging import CHANGED, UNKNOWN, Checked
from probe.lock.session import OUT, BitsSession, join, to_json

TESTS = "bits_tests"


def finish(
    config: Any,
    session: BitsSession,
    tests: list[str] | None,
    workeroutput: dict[str, Any] | None,
) -> None:
    """Hands this process's results on (pytest-xdist), or writes the lock. ``tests``: all that there
    are; None: some were left out."""
    if workeroutput is not None and not os.environ.get(OUT):
        workeroutput["bits"] = json.dumps(to_json(session, tests))
        return
    tests = getattr(config, TESTS, tests)
    whole = tests is not None and not _some(config)
    config.bits_unused = session.unused(set(tests or ())) if whole else []
    try:
        session.finish(config.bits_unused if session.update else ())
    except InputError as error:
        config.bits_error = str(error)


def _some(config: Any) -> bool:
    """Returns whether pytest left out files that it was given."""
    options = ("lf", "stepwise", "collectonly", "maxfail")
    return any(config.getoption(name, False) for name in options)


def joined(config: Any, session: BitsSession, told: str) -> None:
    """Takes the results of a process of pytest-xdist."""
    found = json.loads(told)
    join(session, found)
    setattr(config, TESTS, found["tests"])


def summary(reporter: Any, config: Any, session: BitsSession) -> None:
    """Prints counts, every check that is not the same and its cause, and writes reports."""
    if os.environ.get(OUT):
        return
    results: list[Checked] = session.results
    unused: list[str] = getattr(config, "bits_unused", [])
    _explain(results, session, config)
    told = reports.lines(results, session.accepted, unused, session.update)
    if error := getattr(config, "bits_error", ""):
        told.append(error)
    for each in config.getoption("bits_report"):
        form, _, path = each.partition("=")
        out = config.invocation_params.dir / (path or f"bits-report.{reports.ENDINGS[form]}")
        told.append(_written(form, out, results, unused))
    if told:
        reporter.section("bits")
        for line in told:
            reporter.write_line(line)


def _explain(results: list[Checked], session: BitsSession, config: Any) -> None:
    """Looks for causes. Of what is unknown only where that is asked for: it fails nothing, and each
    of a matrix of conditions would pay for it."""
    far = config.getoption("bits_why")
    verdicts = {"no": (), "here": (CHANGED,)}.get(far, (CHANGED, UNKNOWN))
    wrong = [one for one in results if one.verdict in verdicts and one not in session.accepted]
    if not wrong:
        return
    from probe.lock import why

    how = why.Tests(config.rootpath, config.invocation_params.dir, _arguments(config))
    try:
        why.explain(wrong, session.lock, how, session.kept, install=far == "install")
    except Exception as error:  # a mistake of ours, or what a library raises: the verdicts stand
        wrong[0].why = {"notes": [f"{type(error).__name__} while causes were looked for: {error}"]}


def _written(form: str, out: Path, results: list[Checked], unused: list[str]) -> str:
    try:
        out.write_text(reports.FORMS[form](results, unused), encoding="utf-8")
    except OSError as error:
        return f"bits-report={form}: {out.name} can't be written: {error.strerror}"
    return f"{form} report: {out.name}"


def _arguments(config: Any) -> list[str]:
    """Returns the arguments with which pytest runs a test again in a process of its own."""
    given = ["-q", "-p", "no:cacheprovider", f"--rootdir={config.rootpath}"]
    given += [f"-c={config.inipath}"] if config.inipath else []
    plugins = config.pluginmanager
    given += ["-n0"] * plugins.hasplugin("xdist") + ["--no-cov"] * plugins.hasplugin("_cov")
    installed = (dist.metadata["name"] for _, dist in plugins.list_plugin_distinfo())
    if "probe-numerics" not in installed:
        given += ["-p", "probe.lock.plugin"]  # not installed, but named by -p
    return given
