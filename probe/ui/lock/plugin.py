"""pytest's part: the fixture ``bits``, flags, and what is said at the end.
It imports nothing, for pytest imports it at each start. PYTEST_DONT_REWRITE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

    from probe.ui.lock.checks import BitsSession
    from probe.ui.lock.fixture import BitsFixture

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
            known = ", ".join(FORMATS)
            raise pytest.UsageError(f"bits-report={each}: no such format; use one of {known}")


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


@pytest.fixture
def bits(request: pytest.FixtureRequest) -> BitsFixture:
    """``bits.check(value)`` fails unless the bits are those that bits.lock accepts."""
    from probe.ui.lock.fixture import BitsFixture

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
    from probe.ui.lock.fixture import BitsChanged, BitsFixture

    result, wrong = None, ""
    try:
        result = yield
        fixture = pyfuncitem.funcargs["bits"]
        if isinstance(fixture, BitsFixture):
            fixture.passed(pyfuncitem)
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
    some = any("::" in argument for argument in session.config.args)
    if not some and TESTS not in session.config.stash and not session.testsfailed:
        session.config.stash[TESTS] = [name_of_test(item) for item in session.items]


# last: pytest-xdist's own hook ends its workers, whose results come meanwhile
@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Hands the results to the process that reports them, or writes the lock."""
    config = session.config
    output = getattr(config, "workeroutput", None)
    if SESSION in config.stash or (output is None and config.getoption("bits_update")):
        from probe.ui.lock import fixture

        if (bits_session := session_of(config)) is None:
            return
        tests = config.stash.get(TESTS, None)
        if output is None or bits_session.out:
            fixture.close_session(config, bits_session, tests)
            if getattr(config, "bits_error", "") or bits_session.refused:  # not all was kept
                session.exitstatus = pytest.ExitCode.TESTS_FAILED
        else:
            import pickle

            ours = bits_session.results, bits_session.accepted, bits_session.finished, tests
            output["bits"] = pickle.dumps(ours)


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
        from probe.ui.lock import fixture

        fixture.print_summary(terminalreporter, config, session_of(config))
