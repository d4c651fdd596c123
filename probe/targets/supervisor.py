"""A command runs in a child of a process that only waits, and ends what does not end by itself.

Python hears a signal between two of its own steps: a library's call may take minutes before that,
or crash. So the waiting process hears Ctrl-C, SIGTERM and the end of ``--time``, gives the command
a moment to print what is known, then kills it with all that it started, and says in one line what
was being done. It says so too where the command is ended by a signal (a library's crash, memory).
"""

from __future__ import annotations

import json
import mmap
import os
import select
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from probe.case.errors import INTERRUPTED, ProbeError, TargetError, ended_by

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

# Whether somebody interrupted this command, whatever it made of that.
interrupted = threading.Event()


def _interrupt(*_: object) -> None:
    # timeout(1) and systemd send SIGTERM to both too: a second one would end the answer's printing
    if not interrupted.is_set():
        interrupted.set()
        raise KeyboardInterrupt


def supervised(run: Callable[[], int], as_json: bool) -> int:
    """Returns the exit status of ``run()``, which is called in a child that is forked here.

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
    """Ends this process where its supervisor was killed: nobody would hear Ctrl-C any more."""
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
    """Returns all that a process has started: numbers, and when each was started, which a number
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
