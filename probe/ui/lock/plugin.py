"""pytest's part: the fixture ``bits``, the flags, and the end of the run, which writes the lock,
looks for causes and makes reports.

pytest imports it at each start, so NumPy and the rest of probe are imported where the first check
needs them. PYTEST_DONT_REWRITE.
"""

from __future__ import annotations

import inspect
import os
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from probe.ui.lock.checks import BitsSession
    from probe.ui.lock.runs import Command

SESSION = pytest.StashKey[Any]()
# All tests that there are; None where some were left out.
TESTS = pytest.StashKey[Any]()

FORMATS = "json", "markdown", "github"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the flags."""
    group = parser.getgroup("bits", "bits.lock: results that must not change a bit")
    text = "Add checks and conditions that bits.lock lacks; remove entries without a test."
    group.addoption("--bits-update", action="store_true", help=text)
    text = "Accept changed bits too; the reason is kept in bits.lock."
    group.addoption("--bits-bless", metavar="REASON", help=text)
    text = f"Write bits-report.FORMAT ({', '.join(FORMATS)}), or FORMAT=FILE."
    report = {"metavar": "FORMAT", "action": "append", "default": []}
    group.addoption("--bits-report", help=text, **report)
    text = "Look for the cause of changed bits with what is here (default), also of unknown ones \
(all), also by installing old releases (install), or not at all (no)."
    choices = "here", "all", "install", "no"
    group.addoption("--bits-why", choices=choices, default="here", help=text)
    group.addoption("--bits-lock", metavar="FILE", help="The lock; rootdir/bits.lock by default.")


def pytest_configure(config: pytest.Config) -> None:
    """UsageError: a flag's value is wrong."""
    reason = config.getoption("bits_bless")
    if reason is not None and not reason.strip():
        raise pytest.UsageError("bits-bless=: a reason is required; write why the bits changed")
    for each in config.getoption("bits_report"):
        if each.partition("=")[0] not in FORMATS:
            formats = ", ".join(FORMATS)
            raise pytest.UsageError(f"bits-report={each}: no such format; use one of {formats}")


def session_of(config: pytest.Config) -> BitsSession | None:
    """The process's session, opened at the first check. None: the lock can't be read, and
    ``config.bits_error`` says why."""
    if SESSION not in config.stash:
        from probe.case.errors import InputError
        from probe.ui.lock.checks import NAME, BitsSession

        cache = getattr(config, "cache", None)
        try:
            config.stash[SESSION] = BitsSession(
                config.rootpath / (config.getoption("bits_lock") or NAME),
                update=config.getoption("bits_update"),
                bless=config.getoption("bits_bless"),
                cache=None if cache is None else config.rootpath / cache.mkdir("bits"),
                root=config.rootpath,
            )
        except InputError as error:
            config.bits_error = str(error)  # type: ignore[attr-defined]
            return None
    return config.stash[SESSION]  # type: ignore[no-any-return]


def name_of_test(item: Any) -> str:
    """A test's name, without the group that pytest-xdist's loadgroup puts behind it."""
    marks = item.iter_markers("xdist_group")
    groups = {str((*mark.args, mark.kwargs.get("name", "default"))[0]) for mark in marks}
    return str(item.nodeid).removesuffix(f"@{'_'.join(sorted(groups))}")


class BitsChanged(AssertionError):
    """A check's bits are not those that the lock accepts."""


class BitsFixture:
    """The fixture ``bits``: ``bits.check(value)`` compares a value's bits with ``bits.lock``."""

    def __init__(self, session: BitsSession, test: str, root: Path) -> None:
        self._session, self._test, self._root = session, test, root
        self._names = defaultdict[str, int](int)
        self._checks = set[str]()
        self._watched: list[Any] | None = None
        self._function_with_inputs: tuple[Callable[..., Any], Sequence[Any]] | None = None

    def check(self, value: Any, name: str | None = None, inputs: Any = None) -> None:
        """Fails unless the bits are those that ``bits.lock`` accepts under these conditions.

        ``value``: an array or tensor of any library, a number, bytes, a file as ``pathlib.Path``;
        these in dictionaries, lists or data frames, each a check of its own; or a function of no
        arguments (or of ``inputs``, an array or a list of them) that returns them. ``name``: tells
        the checks of a test apart; without one they are numbered. Under conditions that no entry
        has, nothing fails: pytest's last lines say how to add them. Costs a read of the arrays.
        """
        __tracebackhide__ = True
        from probe.case.errors import InputError
        from probe.record.inputs import listed_inputs
        from probe.record.store import named_arrays
        from probe.ui.lock.checks import CHANGED, NEW

        if callable(value) and not hasattr(value, "__array__"):
            arguments = listed_inputs(inputs)
            self._function_with_inputs = (value, arguments) if arguments else None
            value = value(*arguments)
        if self._watched is not None:  # the body is run again, watched
            self._watched.append(value)
            return
        if name is not None and name in self._names:
            why = "this test has checked something of this name already"
            raise InputError("name", name, why, "give each check its own name")
        self._names[name or ""] += 1
        count = self._names[name or ""]
        label = name or f"#{count}" * (count > 1)
        frame = sys._getframe(1)
        path = Path(frame.f_code.co_filename)
        below = path.is_relative_to(self._root)
        place = (path.relative_to(self._root).as_posix() if below else path.name), frame.f_lineno
        wrong = []
        for part, array in named_arrays(value):
            check = "::".join(filter(None, (self._test, label, part)))
            if check in self._checks:
                why = "two checks of this test have one name"
                raise InputError("name", check, why, "give each check its own name")
            self._checks.add(check)
            checked = self._session.checked(check, self._test, array, place)
            if checked.verdict in (NEW, CHANGED) and checked not in self._session.accepted:
                wrong.append(checked.message)
        if wrong:
            raise BitsChanged("\n".join(wrong))

    def body_ended(self, item: Any) -> None:
        """Notes that a test's body came to its end. In a process that was started to find the
        cause of changed bits, the body is run again, watched, to record its operations."""
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

        if self._function_with_inputs is not None and sum(self._names.values()) == 1:
            function, inputs = self._function_with_inputs
            session.record(test, lambda: function(*inputs), (function, inputs))
        else:
            session.record(test, body)


@pytest.fixture
def bits(request: pytest.FixtureRequest) -> BitsFixture:
    """``bits.check(value)`` fails unless the bits are those that bits.lock accepts."""
    config: Any = request.config
    if (session := session_of(config)) is None:
        pytest.fail(config.bits_error, pytrace=False)
    return BitsFixture(session, name_of_test(request.node), config.rootpath)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, Any, Any]:
    """Runs a test; what is wrong is one line."""
    if "bits" not in pyfuncitem.funcargs:
        return (yield)
    from probe.case.errors import ProbeError

    result, wrong = None, ""
    try:
        result = yield
        fixture = pyfuncitem.funcargs["bits"]
        if isinstance(fixture, BitsFixture):
            fixture.body_ended(pyfuncitem)
    except (BitsChanged, ProbeError) as error:
        wrong = str(error)
    if wrong:  # outside of the except block: it would be printed as the context
        pytest.fail(wrong, pytrace=False)
    return result


def pytest_deselected(items: list[pytest.Item]) -> None:
    """What is not run says nothing of entries that no test used."""
    if items:
        items[0].config.stash[TESTS] = None


def pytest_collection_finish(session: pytest.Session) -> None:
    """Keeps which tests there are, if all of these files' tests are run."""
    selected = any("::" in argument for argument in session.config.args)
    if not selected and TESTS not in session.config.stash and not session.testsfailed:
        session.config.stash[TESTS] = [name_of_test(item) for item in session.items]


# last: pytest-xdist's own hook ends its workers, whose results come meanwhile
@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hands the results to the process that reports them, or writes the lock."""
    config = session.config
    output = getattr(config, "workeroutput", None)
    if SESSION in config.stash or (output is None and config.getoption("bits_update")):
        if (bits_session := session_of(config)) is None:
            return
        tests = config.stash.get(TESTS, None)
        if output is None or bits_session.out:
            close_session(config, bits_session, tests)
            if getattr(config, "bits_error", "") or bits_session.refused:  # not all was kept
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
        else:
            import pickle

            found = bits_session.results, bits_session.accepted, bits_session.finished, tests
            output["bits"] = pickle.dumps(found)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Takes the results of a process of pytest-xdist."""
    if pickled := getattr(node, "workeroutput", {}).get("bits"):
        import pickle

        if (bits_session := session_of(node.config)) is not None:
            results, accepted, finished, tests = pickle.loads(pickled)
            bits_session.results += results
            bits_session.accepted += accepted
            bits_session.finished |= finished
            node.config.stash[TESTS] = tests


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Says what was the same, what changed and why, and what is unknown."""
    if SESSION in config.stash or config.getoption("bits_report"):
        print_summary(terminalreporter, config, session_of(config))


def close_session(config: Any, session: BitsSession, tests: list[str] | None) -> None:
    """Writes the lock; ``config`` keeps for the summary what is unused, or went wrong."""
    from probe.case.errors import InputError

    # with these pytest leaves tests out and does not call them deselected
    left_out = any(config.getoption(n, False) for n in ("lf", "stepwise", "collectonly", "maxfail"))
    config.bits_unused = [] if tests is None or left_out else session.unused(set(tests))
    try:
        before = {checked.check: checked.bits for checked in session.accepted}
        differing = [*before]
        # accepted checks whose bits differ when their test has a process of its own; it runs
        # twice there: tests may share a state with others of the suite, or nothing repeats
        for _ in range(2):
            if differing:
                from probe.ui.lock.runs import run_again

                with tempfile.TemporaryDirectory(prefix="probe-") as out:
                    again = dict.fromkeys(checked.test for checked in session.accepted)
                    command = _pytest_command(config, *again)
                    checks_there = run_again(command, Path(out)).checks
                rerun_bits = {n: checks_there[n] for n in differing if n in checks_there}
                differing = [n for n, bits in rerun_bits.items() if bits != before.get(n)]
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
    from probe.ui.lock import checks

    results, unused = list[checks.Checked](), getattr(config, "bits_unused", [])
    error, lines = getattr(config, "bits_error", ""), list[str]()
    if session is not None:
        if session.out:
            return
        results, reach = session.results, config.getoption("bits_why")
        explained = checks.EXPLAINED[reach]
        wrong = [c for c in results if c.verdict in explained and c not in session.accepted]
        if wrong:
            from probe.ui.lock.runs import explain_changes

            command = lambda check: _pytest_command(config, check.test)  # noqa: E731
            try:
                explain_changes(wrong, session, command, reach == "install")
            except Exception as failed:  # a mistake of ours, or a library's: the verdicts stand
                failure = f"{type(failed).__name__} while causes were looked for: {failed}"
                wrong[0].why = {"notes": [failure]}
        written = () if error else session.accepted
        update = session.update and not error
        lines = checks.terminal_lines(results, written, unused, update, session.refused)
    lines += [error] * bool(error)
    for each in config.getoption("bits_report"):
        folder = config.invocation_params.dir
        lines.append(checks.write_report(each, folder, results, unused, error))
    if lines:
        reporter.section("bits")
        for line in lines:
            reporter.write_line(line)


def _pytest_command(config: Any, *tests: str) -> Command:
    from probe.ui.lock.runs import Command

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
