"""Limits how long a command may run questions, and ends those in flight when the time is up.

Until the time is up a campaign runs as always. Then it starts nothing more: a question in flight
may finish within ``grace`` seconds; what takes longer is ended with its process, and counts as left
out, since it is unknown whether it would have ended.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from probe.errors import InputError, TimeOver
from probe.progress import span

HOW = "write 90s, 30m, 2h or 1h30m"
LONGEST = 366 * 24 * 3600.0
# Seconds that a question in flight gets at least.
GRACE = 2.0

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


class Budget:
    """Seconds from now on. ``left_out``: questions that campaigns had to leave out so far."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.left_out = seconds, 0
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Returns seconds that are left, 0 where the time is up."""
        return max(0.0, self._end - time.monotonic())

    @property
    def over(self) -> bool:
        return not self.left

    @property
    def grace(self) -> float:
        """Returns seconds that a question in flight gets: a tenth of all, between 2 and 60."""
        return min(60.0, max(GRACE, self.seconds / 10))

    @contextmanager
    def watched(self, end: Callable[[], None]) -> Iterator[None]:
        """Calls ``end`` when the time is up and the grace too, in a thread."""
        done = threading.Event()

        def watch() -> None:
            while not done.wait(self.left + self.grace):
                end()  # again: a process may have been started since

        watcher = threading.Thread(target=watch, name="budget", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()


_CURRENT: ContextVar[Budget | None] = ContextVar("budget", default=None)


def current_budget() -> Budget | None:
    """Returns the budget that counts now; None where there is no limit."""
    return _CURRENT.get()


def spent() -> str:
    """Returns that the time of the budget that counts now is over, in words; empty if it isn't."""
    budget = current_budget()
    over = budget is not None and budget.over
    return f"the {span(budget.seconds)} of --time were over" if budget and over else ""


def require_time() -> None:
    """Raises TimeOver where the time is over: called before each question to one operation."""
    if why := spent():
        raise TimeOver(why)


@contextmanager
def within(text: str | None) -> Iterator[Budget | None]:
    """Within this context campaigns run for that long; None: without a limit. InputError."""
    token = _CURRENT.set(None if text is None else Budget(seconds(text)))
    try:
        yield _CURRENT.get()
    finally:
        _CURRENT.reset(token)
