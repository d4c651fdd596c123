"""The fixture ``bits``, and the end of pytest's run: the lock is written, causes are looked for,
reports are made."""

from __future__ import annotations

import inspect
import os
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from probe.case.errors import InputError
from probe.record.inputs import listed_inputs
from probe.record.store import named_arrays
from probe.ui.lock import checks
from probe.ui.lock.checks import CHANGED, NEW, BitsSession, Checked

if TYPE_CHECKING:
    from probe.ui.lock.why import Command


class BitsChanged(AssertionError):
    """A check's bits are not those that the lock accepts."""


class BitsFixture:
    """The fixture ``bits``: ``bits.check(value)`` compares a value's bits with ``bits.lock``."""

    def __init__(self, session: BitsSession, test: str, root: Path) -> None:
        self._session, self._test, self._root = session, test, root
        self._names = defaultdict[str, int](int)
        self._checks = set[str]()
        self._watched: list[Any] | None = None
        self._bare: tuple[Callable[..., Any], Sequence[Any]] | None = None

    def check(self, value: Any, name: str | None = None, inputs: Any = None) -> None:
        """Fails unless the bits are those that ``bits.lock`` accepts under these conditions.

        ``value``: an array or tensor of any library, a number, bytes, a file as ``pathlib.Path``;
        these in dictionaries, lists or data frames, each a check of its own; or a function of no
        arguments (or of ``inputs``, an array or a list of them) that returns them. ``name``: tells
        the checks of a test apart; without one they are numbered. Under conditions that no entry
        has, nothing fails: pytest's last lines say how to add them. Costs a read of the arrays.
        """
        __tracebackhide__ = True
        if callable(value) and not hasattr(value, "__array__"):
            arguments = listed_inputs(inputs)
            self._bare = (value, arguments) if arguments else None
            value = value(*arguments)
        if self._watched is not None:  # the body is run again, watched
            self._watched.append(value)
            return
        if name is not None and name in self._names:
            why = "this test has checked something of this name already"
            raise InputError("name", name, why, "give each check its own name")
        self._names[name or ""] += 1
        count = self._names[name or ""]
        own = name or f"#{count}" * (count > 1)
        frame = sys._getframe(1)
        path = Path(frame.f_code.co_filename)
        below = path.is_relative_to(self._root)
        place = (path.relative_to(self._root).as_posix() if below else path.name), frame.f_lineno
        wrong = []
        for part, array in named_arrays(value):
            check = "::".join(filter(None, (self._test, own, part)))
            if check in self._checks:
                why = "two checks of this test have one name"
                raise InputError("name", check, why, "give each check its own name")
            self._checks.add(check)
            checked = self._session.checked(check, self._test, array, place)
            if checked.verdict in (NEW, CHANGED) and checked not in self._session.accepted:
                wrong.append(checked.message)
        if wrong:
            raise BitsChanged("\n".join(wrong))

    def passed(self, item: Any) -> None:
        """Notes that a test's body came to its end. In a process that was begun to know operations
        it is run again, watched."""
        session, test = self._session, self._test
        session.finished.add(test)
        if not session.records or inspect.iscoroutinefunction(item.obj):
            return  # a coroutine needs its plugin's loop

        def body() -> list[Any]:
            self._watched = values = list[Any]()
            try:
                item.obj(**{name: item.funcargs[name] for name in item._fixtureinfo.argnames})
            finally:
                self._watched = None
            return values

        if self._bare is not None and sum(self._names.values()) == 1:
            function, inputs = self._bare
            session.record(test, lambda: function(*inputs), self._bare)
        else:
            session.record(test, body)


def close_session(config: Any, session: BitsSession, tests: list[str] | None) -> None:
    """Writes the lock; ``config`` keeps for the summary what is unused, or went wrong."""
    # with these pytest leaves tests out and does not call them deselected
    some = any(config.getoption(n, False) for n in ("lf", "stepwise", "collectonly", "maxfail"))
    config.bits_unused = [] if tests is None or some else session.unused(set(tests))
    try:
        before = {checked.check: checked.bits for checked in session.accepted}
        differing = [*before]
        # accepted checks whose bits differ when their test has a process of its own; it runs
        # twice there: tests may share a state with others of the suite, or nothing repeats
        for _ in range(2):
            if differing:
                from probe.ui.lock.why import run_again

                with tempfile.TemporaryDirectory(prefix="probe-") as out:
                    again = dict.fromkeys(checked.test for checked in session.accepted)
                    command = _pytest_command(config, *again)
                    checks_there = run_again(command, Path(out)).checks
                there = {n: checks_there[n] for n in differing if n in checks_there}
                differing = [n for n, bits in there.items() if bits != before.get(n)]
                before = checks_there
        session.leave_out(differing)
    finally:  # also where it is interrupted: what was accepted is kept
        try:
            session.finish(config.bits_unused if session.update else ())
        except InputError as error:
            config.bits_error = str(error)


def print_summary(reporter: Any, config: Any, session: BitsSession | None) -> None:
    """Prints counts, every check that is not the same and its cause, and writes checks.
    ``session``: None where the lock can't be read."""
    results, unused = list[Checked](), getattr(config, "bits_unused", [])
    error, lines = getattr(config, "bits_error", ""), list[str]()
    if session is not None:
        if session.out:
            return
        results, far = session.results, config.getoption("bits_why")
        explained = checks.EXPLAINED[far]
        wrong = [c for c in results if c.verdict in explained and c not in session.accepted]
        if wrong:
            from probe.ui.lock import why

            command = lambda check: _pytest_command(config, check.test)  # noqa: E731
            try:
                why.explain_changes(wrong, session, command, far == "install")
            except Exception as failed:  # a mistake of ours, or a library's: the verdicts stand
                said = f"{type(failed).__name__} while causes were looked for: {failed}"
                wrong[0].why = {"notes": [said]}
        written = () if error else session.accepted
        kept = session.refused
        lines = checks.terminal_lines(results, written, unused, session.update and not error, kept)
    lines += [error] * bool(error)
    for each in config.getoption("bits_report"):
        folder = config.invocation_params.dir
        lines.append(checks.write_report(each, folder, results, unused, error))
    if lines:
        reporter.section("bits")
        for line in lines:
            reporter.write_line(line)


def _pytest_command(config: Any, *tests: str) -> Command:
    from probe.ui.lock.why import Command

    plugins = config.pluginmanager
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    words += [f"--rootdir={config.rootpath}"] + [f"-c={config.inipath}"] * bool(config.inipath)
    words += ["-n0"] * plugins.hasplugin("xdist") + ["--no-cov"] * plugins.hasplugin("_cov")
    installed = {dist.metadata["name"] for _, dist in plugins.list_plugin_distinfo()}
    if not installed & {"probe-numerics", "probe-numerics-core"}:
        words += ["-p", "probe.ui.lock.plugin"]  # not installed, but named by -p
    # pytest takes a path with brackets for a test's parameters: none of the folders above is named
    below = os.path.relpath(config.rootpath, folder := config.invocation_params.dir)
    words += [f"{below}/{test}" for test in tests]
    return Command(words, folder)
