"""Ends a command: at its ``--time``, at Ctrl-C, or by force; what was found by then stays.

When the time is up ``TimeOver`` is raised in the main thread, wherever that is, as Ctrl-C would be:
both end a part of the work at ``Ending``, and nothing more is begun after it. In a thread, or where
somebody else uses SIGALRM, it is raised at the next question. Read ``within`` and ``Budget``.

Python hears a signal between two of its own steps: a library's call may take minutes before that,
or crash. So a command runs in a child of a process that only waits (``supervised``): it hears
Ctrl-C, SIGTERM and the end of ``--time``, gives the command a moment to print what is known, then
kills it with all that it started, and says in one line what was being done. It says so too where
the command is ended by a signal (a library's crash, memory).
"""

from __future__ import annotations

import json
import mmap
import os
import re
import select
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from probe.case.errors import (
    INTERRUPTED,
    InputError,
    NothingKnown,
    ProbeError,
    TargetError,
    TimeOver,
    ended_by,
)

HOW = "write 90s, 30m, 2h or 1h30m"
LONGEST = 366 * 24 * 3600.0

# Seconds until the alarm rings again: Python ignores what is raised while an object is freed.
RINGS = 1.0

_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0}
_TEXT = re.compile("".join(rf"(?:([0-9]{{1,9}}(?:\.[0-9]{{1,9}})?){unit})?" for unit in _UNITS))


def seconds(text: str) -> float:
    """Reads ``90s``, ``30m``, ``2h``, ``1h30m``. Raises InputError."""
    match = _TEXT.fullmatch(text.strip().lower())
    if not match or not any(match.groups()):
        raise InputError("time", text, "it is not a number with a unit of time", HOW)
    total = sum(
        float(part) * size
        for part, size in zip(match.groups(), _UNITS.values(), strict=True)
        if part
    )
    if not 0 < total <= LONGEST:
        raise InputError("time", text, "it must be more than 0 and at most a year", HOW)
    return total


def span(seconds: float) -> str:
    """``8 s``, ``3:20 min``, ``2:05 h``."""
    rounded = round(seconds)
    if rounded < 60:
        return f"{rounded} s"
    if rounded < 3600:
        return f"{rounded // 60}:{rounded % 60:02} min"
    return f"{rounded // 3600}:{rounded % 3600 // 60:02} h"


class Budget:
    """Seconds from ``begun``, else from now, on; None: no limit.

    ``left_out``: questions that campaigns left out so far.
    ``ended``: why nothing more is begun; empty while there is time and nobody interrupts.
    ``answered``: the answer is complete and being written: the alarm no longer raises TimeOver.
    """

    answered = False

    def __init__(self, seconds: float | None, begun: float | None = None) -> None:
        self.seconds, self.left_out, self.ended = seconds, 0, ""
        begun = time.monotonic() if begun is None else begun
        self._end = float("inf") if seconds is None else begun + seconds

    @property
    def left(self) -> float:
        return max(0.0, self._end - time.monotonic())

    @property
    def over(self) -> bool:
        """Whether the time is up; whoever has heard so ends by itself, and isn't rung."""
        if not self.left:
            self.ended = self.ended or self.why
        return not self.left

    @property
    def why(self) -> str:
        return f"the {span(self.seconds or 0)} of --time were over"

    def _ring(self, *_: object) -> None:
        if not (self.ended or self.answered):
            raise TimeOver(self.why)

    @contextmanager
    def alarmed(self, whole: bool) -> Iterator[None]:
        """Raises TimeOver when the time is up, within this context: see :func:`within`."""
        main = threading.current_thread() is threading.main_thread()
        before = signal.getsignal(signal.SIGALRM) if hasattr(signal, "setitimer") else None
        # an alarm of the user's own stays
        replaceable = before == signal.SIG_DFL or isinstance(
            getattr(before, "__self__", None), Budget
        )
        if self.seconds is None or not (main and replaceable):
            yield
            return
        left = signal.getitimer(signal.ITIMER_REAL)[0]
        outer = time.monotonic() + left if left else float("inf")
        signal.signal(signal.SIGALRM, self._ring)
        hook_before = sys.unraisablehook

        def unheard(ignored: sys.UnraisableHookArgs) -> None:
            if not isinstance(ignored.exc_value, TimeOver):  # which is raised again: RINGS
                hook_before(ignored)

        sys.unraisablehook = unheard
        signal.setitimer(signal.ITIMER_REAL, max(self.left, 1e-3), RINGS)
        board = BOARD if whole else None
        if board is not None and outer > self._end:
            board.write(self.why, 1)
            board.ends = self._end
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            sys.unraisablehook = hook_before
            if board is not None:
                board.ends = outer
            if outer < float("inf"):
                signal.setitimer(signal.ITIMER_REAL, max(outer - time.monotonic(), 1e-3))


_CURRENT: ContextVar[Budget | None] = ContextVar("budget", default=None)


def current_budget() -> Budget | None:
    """The budget that counts now; None where there is no limit."""
    budget = _CURRENT.get()
    return None if budget is None or budget.seconds is None else budget


def spent() -> str:
    """Why nothing more is begun, in words; empty while there is time."""
    budget = _CURRENT.get()
    return ended() or (budget.why if budget is not None and budget.over else "")


def ended() -> str:
    """Why a part of the work ended early; empty where none did."""
    budget = _CURRENT.get()
    return "" if budget is None else budget.ended


def require_time() -> None:
    """Raises TimeOver where the time is over: called before each question to one operation."""
    if why := spent():
        raise TimeOver(why)


class Ending:
    """Around a part of the work whose answers so far are worth having: where time is up or somebody
    interrupts it ends here, and ``spent`` says why from then on.

    ``answers``: what there is at its end; where that is empty the whole work ends.
    """

    def __init__(self, answers: object = True) -> None:
        self.answers = answers

    def __enter__(self) -> None:
        """Begins the part."""

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> bool:
        budget = _CURRENT.get()
        if not isinstance(error, KeyboardInterrupt) or budget is None or not self.answers:
            return False
        budget.ended = str(error) if isinstance(error, TimeOver) else "interrupted"
        return True


@contextmanager
def within(text: str | None, whole: bool = True) -> Iterator[Budget | None]:
    """Within this context work goes on for that long; None: as long as around it.

    ``whole`` False: it is a part, after which a command goes on, so that its process is not ended
    where it takes some seconds more. InputError. NothingKnown: time was over before anything was
    known; it says what was being done.
    """
    outer = _CURRENT.get() if text is None else None
    board = BOARD if whole else None  # a command's time begins when it does
    begun = None if board is None else board.begun
    budget = outer or Budget(None if text is None else seconds(text), begun)
    token = _CURRENT.set(budget)
    try:
        with budget.alarmed(whole) if outer is None else nullcontext():
            yield current_budget()
    except TimeOver as error:
        if outer is not None:
            raise
        doing = noted()
        raise NothingKnown(f"{error}{doing and f': {doing}'}; no answer yet") from None
    finally:
        _CURRENT.reset(token)


# Seconds that a command has to print what is known, and more where it has begun to print: together
# less than the two seconds in which everything ends.
PATIENCE, PRINTING = 1.5, 0.3

# Bytes of what is being done.
WORDS = 500


class Board:
    """Memory that a command and its supervisor share: what to say where the command can't.

    ``begun``: when the command was, by ``time.monotonic``. ``ends``: when ``--time`` is over;
    infinity: never. ``printing``: the answer is being printed. ``status``: the exit status of a
    command that is done, though libraries may still be putting away what they have; else None.
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 16 + 2 * WORDS)
        self.begun, self.ends = time.monotonic(), float("inf")

    @property
    def ends(self) -> float:
        return float(struct.unpack_from("d", self._memory)[0])

    @ends.setter
    def ends(self, when: float) -> None:
        struct.pack_into("d", self._memory, 0, when)

    @property
    def printing(self) -> bool:
        return bool(self._memory[8])

    @printing.setter
    def printing(self, begun: bool) -> None:
        self._memory[8] = begun

    @property
    def status(self) -> int | None:
        return self._memory[10] if self._memory[9] else None

    @status.setter
    def status(self, status: int) -> None:
        self._memory[9:11] = bytes((1, status))

    def write(self, what: str, place: int = 0) -> None:
        """Notes what is being done (``place`` 0), or why time is over (1)."""
        text = what.encode("utf-8", "replace")[:WORDS]
        start = 16 + place * WORDS
        self._memory[start : start + WORDS] = text.ljust(WORDS, b"\0")

    def read(self, place: int = 0) -> str:
        start = 16 + place * WORDS
        return self._memory[start : start + WORDS].rstrip(b"\0").decode("utf-8", "ignore")


# This process's, where it runs a command; None in somebody's Python.
BOARD: Board | None = None

_DOING = ""


def note(what: str) -> None:
    """Notes what is done now, to be said where time ends or the process does."""
    global _DOING
    _DOING = what
    if BOARD is not None:
        BOARD.write(what)


def noted() -> str:
    """What was noted last: also after whoever noted it has ended by an error."""
    return _DOING


# Whether somebody interrupted this command, whatever it made of that.
interrupted = threading.Event()


def _interrupt(*_: object) -> None:
    # timeout(1) and systemd send SIGTERM to both too: a second one would end the answer's printing
    if not interrupted.is_set():
        interrupted.set()
        raise KeyboardInterrupt


def supervised(run: Callable[[], int], as_json: bool) -> int:
    """The exit status of ``run()``, which is called in a child that is forked here.

    ``as_json``: where the child can't print its answer, an error object is printed on stdout.
    """
    global BOARD
    if not hasattr(os, "fork"):
        return run()
    board = Board()
    leave, stay = os.pipe()
    child = os.fork()
    if child == 0:
        BOARD = board
        os.close(stay)
        # a terminal sends Ctrl-C to both: the supervisor passes it on, once. Python's own handler,
        # as what is ignored would stay ignored in whatever the command starts
        signal.signal(signal.SIGINT, lambda *_: None)
        signal.signal(signal.SIGTERM, _interrupt)
        threading.Thread(target=_leave_with, args=(leave,), daemon=True).start()
        board.status = status = run()
        return status
    os.close(leave)
    signals, late = _Signals(), False
    stop = float("inf")
    family: dict[int, str] = {}
    while not (gone := os.waitpid(child, os.WNOHANG))[0]:
        now = time.monotonic()
        if signals.heard and stop > now + PATIENCE:
            os.kill(child, signal.SIGTERM)
            stop, family = now + PATIENCE, descendants(child)
        elif now >= board.ends and stop > board.ends + PATIENCE:
            stop, family, late = board.ends + PATIENCE, descendants(child), True
        # a limit within the command's work that was taken away again in time
        if late and not signals.heard and board.ends > now:
            stop, late = float("inf"), False
        if now >= stop + PRINTING * board.printing:
            family = {**descendants(child), **family}
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            _kill(family)
            if board.status is not None:
                return board.status
            if signals.heard:
                return _last_words(board, "interrupted", "interrupted", INTERRUPTED, as_json)
            return _last_words(board, board.read(1), "time", TargetError.exit_code, as_json)
        signals.wait(min(stop + PRINTING * board.printing, board.ends) - now)
    _kill(family)  # what a command that was interrupted has left behind
    status = os.waitstatus_to_exitcode(gone[1])
    if status >= 0:
        return status
    if signals.heard:
        return _last_words(board, "interrupted", "interrupted", INTERRUPTED, as_json)
    kind, why = ended_by(-status, "")
    status = ProbeError.exit_code if kind == "memory" else TargetError.exit_code
    return _last_words(board, why, kind, status, as_json)


class _Signals:
    """What a supervisor hears while it waits: Ctrl-C, SIGTERM, and that its child has ended."""

    def __init__(self) -> None:
        self.heard = False
        self._wake, source = os.pipe()
        for end in (self._wake, source):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(source, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._hear)

    def _hear(self, *_: object) -> None:
        self.heard = True

    def wait(self, seconds: float) -> None:
        """Waits for a signal, never longer than 0.2 s: a child may set its limit at any time."""
        if select.select([self._wake], [], [], min(max(seconds, 0.01), 0.2))[0]:
            os.read(self._wake, 512)


def _last_words(board: Board, why: str, kind: str, status: int, as_json: bool) -> int:
    """Says in one line why a command ended that could not say it; returns the exit status."""
    doing = board.read()
    line = f"{why} after {time.monotonic() - board.begun:.0f} s" + (f": {doing}" if doing else "")
    print(f"probe: {line}", file=sys.stderr, flush=True)
    if as_json and not board.printing:
        error = {"name": None, "value": None, "why": line, "todo": None, "kind": kind}
        print(json.dumps({"error": error, "exit": status}), flush=True)
    return status


def _leave_with(pipe: int) -> None:
    """Ends this process where its supervisor was killed: Ctrl-C would end nothing any more."""
    os.read(pipe, 1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(PATIENCE)
    os._exit(INTERRUPTED)


def _stat(process: Path) -> list[str]:
    """Fields of /proc/PID/stat behind the name: state, parent, ...; empty where it is gone."""
    try:
        return (process / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def descendants(root: int) -> dict[int, str]:
    """All that a process has started: numbers, and when each was started, which a number
    that is given anew does not share. Empty where there is no /proc."""
    stats = {int(p.name): _stat(p) for p in Path("/proc").glob("[0-9]*")}
    parents = {number: int(fields[1]) for number, fields in stats.items() if fields}
    family, grown = {root}, 0
    while grown != len(family):
        grown = len(family)
        family |= {number for number, parent in parents.items() if parent in family}
    return {number: stats[number][19] for number in family - {root}}


def _kill(family: dict[int, str]) -> None:
    for number, started in family.items():
        fields: list[Any] = _stat(Path(f"/proc/{number}"))
        if fields and fields[19] == started:
            try:
                os.kill(number, signal.SIGKILL)
            except OSError:  # it has just ended, or is another user's
                continue
