"""What waits for a child: its two pipes as one stream with a time limit, and futures."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any

PATIENCE = 0.2  # seconds


class Pipes:
    """A child's stdin and stdout as a stream for ``protocol``, with a time limit.

    TimeoutError when the limit set by ``limit`` has passed.
    """

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._process, self._stdin, self._stdout = process, process.stdin, process.stdout
        self._deadline: float | None = None
        os.set_blocking(self._stdin.fileno(), False)
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(self._stdout.fileno(), select.POLLIN)
        self._writable.register(self._stdin.fileno(), select.POLLOUT)

    def limit(self, seconds: float | None) -> None:
        """From now on, ``seconds`` until TimeoutError; None: for ever."""
        self._deadline = None if seconds is None else time.monotonic() + seconds

    def readinto(self, view: memoryview) -> int:
        """As the method of raw streams."""
        self._wait(self._readable)
        return os.readv(self._stdout.fileno(), [view])

    def write(self, view: memoryview) -> int:
        """As the method of raw streams."""
        try:
            return os.write(self._stdin.fileno(), view)
        except BlockingIOError:
            self._wait(self._writable)
            return 0

    def _wait(self, poll: select.poll) -> None:
        left = None if self._deadline is None else (self._deadline - time.monotonic()) * 1000
        if (left is not None and left <= 0) or not poll.poll(left):
            raise TimeoutError

    def status(self) -> int | None:
        """The exit status, negative for a signal; None if the child lives on for a second."""
        try:
            return self._process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            return None

    def close(self) -> None:
        """Closes both."""
        self._stdin.close()
        self._stdout.close()


def by_signal(number: int, stderr: str) -> tuple[str, str]:
    """Kind and sentence of a ``TargetError`` for a child that a signal ended.

    ``stderr`` is the tail of what it printed. That SIGKILL means lack of memory is a guess.
    """
    try:
        name = signal.Signals(number).name
    except ValueError:
        name = f"signal {number}"
    if number == signal.SIGKILL:
        return "memory", "its process was killed (SIGKILL): most likely the memory ran out"
    if number == signal.SIGABRT and ("bad_alloc" in stderr or "llocate memory" in stderr):
        return "memory", "its library could not allocate and gave up (SIGABRT)"
    why = ": the library uses instructions that the processor lacks" if name == "SIGILL" else ""
    return "crash", f"its process died of {name}{why}"


def completed(futures: Iterable[Future[Any]]) -> Iterator[Future[Any]]:
    """Yields futures in the order in which they end, so that Ctrl-C is heard at once.

    A library that installs its own handler of SIGINT with SA_RESTART (polars does) keeps a thread
    that waits for a lock from noticing it: the wait goes on. So nothing here waits long.
    """
    pending = set(futures)
    while pending:
        done, pending = wait(pending, PATIENCE, FIRST_COMPLETED)
        yield from done
