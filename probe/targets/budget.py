"""Limits how long a command may run; what was found by then stays.

When the time is up ``TimeOver`` is raised in the main thread, wherever that is, as Ctrl-C would be:
both end a part of the work at ``Ending``, and nothing more is begun after it. In a thread, or where
somebody else uses SIGALRM, it is raised at the next question.
"""

from __future__ import annotations

import re
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar

from probe.case.errors import InputError, NothingKnown, TimeOver
from probe.targets import supervisor
from probe.targets.progress import VOICE, span

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
        """Returns whether the time is up; whoever has heard so ends by itself, and isn't rung."""
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
        ours = before == signal.SIG_DFL or isinstance(getattr(before, "__self__", None), Budget)
        if self.seconds is None or not (main and ours):
            yield
            return
        left = signal.getitimer(signal.ITIMER_REAL)[0]
        outer = time.monotonic() + left if left else float("inf")
        signal.signal(signal.SIGALRM, self._ring)
        told = sys.unraisablehook

        def unheard(ignored: sys.UnraisableHookArgs) -> None:
            if not isinstance(ignored.exc_value, TimeOver):  # which is raised again: RINGS
                told(ignored)

        sys.unraisablehook = unheard
        signal.setitimer(signal.ITIMER_REAL, max(self.left, 1e-3), RINGS)
        board = supervisor.BOARD if whole else None
        if board is not None and outer > self._end:
            board.write(self.why, 1)
            board.ends = self._end
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
            sys.unraisablehook = told
            if board is not None:
                board.ends = outer
            if outer < float("inf"):
                signal.setitimer(signal.ITIMER_REAL, max(outer - time.monotonic(), 1e-3))


_CURRENT: ContextVar[Budget | None] = ContextVar("budget", default=None)


def current_budget() -> Budget | None:
    """Returns the budget that counts now; None where there is no limit."""
    budget = _CURRENT.get()
    return None if budget is None or budget.seconds is None else budget


def spent() -> str:
    """Returns why nothing more is begun, in words; empty while there is time."""
    budget = _CURRENT.get()
    return ended() or (budget.why if budget is not None and budget.over else "")


def ended() -> str:
    """Returns why a part of the work ended early; empty where none did."""
    budget = _CURRENT.get()
    return "" if budget is None else budget.ended


def require_time() -> None:
    """Raises TimeOver where the time is over: called before each question to one operation."""
    if why := spent():
        raise TimeOver(why)


class Ending:
    """Around a part of the work whose answers so far are worth having: where time is up or somebody
    interrupts it ends here, and ``spent`` says why from then on.

    ``known``: what is known, at its end; where that is empty the whole work ends.
    """

    def __init__(self, known: object = True) -> None:
        self.known = known

    def __enter__(self) -> None:
        """Begins the part."""

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> bool:
        budget = _CURRENT.get()
        if not isinstance(error, KeyboardInterrupt) or budget is None or not self.known:
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
    board = supervisor.BOARD if whole else None  # a command's time begins when it does
    begun = None if board is None else board.begun
    budget = outer or Budget(None if text is None else seconds(text), begun)
    token = _CURRENT.set(budget)
    try:
        with budget.alarmed(whole) if outer is None else nullcontext():
            yield current_budget()
    except TimeOver as error:
        if outer is not None:
            raise
        doing = VOICE.last()
        raise NothingKnown(f"{error}{doing and f': {doing}'}; no answer yet") from None
    finally:
        _CURRENT.reset(token)
