"""Where long work stands: numbers that whoever works tells, and the lines that say them on stderr.

Where stderr is a terminal, one line of it changes.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from probe.targets import budget
from probe.targets.budget import span

Item = TypeVar("Item")

# ``tell(done, total, what)``: a progress bar; any thread may tell.
Tell = Callable[[int, int, str], None]

# ``say(what)``: what is being done, where nothing can be counted.
Say = Callable[[str], None]


def silent(*_: object) -> None:
    """Drops progress: the default where no callback is given."""


# Seconds to the first line of progress, and between two of them, where stderr is no terminal.
FIRST, EVERY = 3.0, 5.0
# The same where it is one; what a line there begins with, and what clears it.
DRAWN = 0.3
CLEAR = "\r\x1b[K"


# The unit of parts of a work that take unlike times: each is said, and no time left.
STEP = "step"


class Count:
    """How many of something are done, and when the last one was.

    ``unit`` is what is counted, such as ``sizes``; empty where ``what`` of the work says it.
    """

    def __init__(self, unit: str = "") -> None:
        self.unit, self.done, self.total = unit, 0, 0
        self._first, self._start = 0, time.monotonic()
        self._moved = self._start

    def set(self, done: int, total: int) -> None:
        """Notes that ``done`` of ``total`` are done; a total of 0: not known."""
        now = time.monotonic()
        if not self.total and total:  # starting a library is no part of the rate
            self._start = self._moved = now
            self._first = done
        if done != self.done:
            self._moved = now
        self.done, self.total = done, total

    def text(self, most: str = "") -> str:
        """``2 of 4 sizes``, ``step 3 of 6``; empty where nothing is counted."""
        if not self.total:
            return ""
        if self.unit == STEP:
            return f"{STEP} {min(self.done + 1, self.total)} of {self.total}"
        return f"{self.done:,} of {most}{self.total:,} {self.unit}".rstrip()

    def estimate(self, skipped: int = 0) -> tuple[float | None, float | None]:
        """How many are done in a second, and the seconds left; None where not known.

        The mean of those that are done is taken for each that is left. The one at work is taken to
        be nearly done where it has lasted longer than that, and it then counts in the mean.
        ``skipped``: how many of those done took no time.
        """
        new = self.done - max(self._first, skipped)
        seconds = self._moved - self._start
        if new <= 0 or seconds <= 0:
            return None, None
        since, mean, left = time.monotonic() - self._moved, seconds / new, self.total - self.done
        mean = max(mean, (seconds + since) / (new + 1))
        remaining = max(left * mean - since, (left - 1) * mean, 0.0)
        return 1 / mean, remaining if self.total else None


class Reporter:
    """What ``Output.progress`` gives: called as ``tell(done, total, what)``, from any thread.

    The caller counts up ``failures`` so far and
    ``skipped``: what took no time, since it was stored or can't be done. ``whole``: what is counted
    is all the work, so that the time left is known. ``ends``: when time is up, by
    ``time.monotonic``; None: never. ``limited``: the work may end before ``total``. ``counts`` has
    the work's own count, then those of what is counted within it, each within the one before.
    """

    def __init__(self, whole: bool = False) -> None:
        self.failures = self.skipped = 0
        self.ends: float | None = None
        self.whole, self.limited = whole, False
        self.what = ""
        self.doing: list[list[str]] = []
        self.counts = [Count()]
        self._born, self._before = time.monotonic(), VOICE.calls

    def __call__(self, done: int, total: int, what: str) -> None:
        self.counts[0].set(done, total)
        self.what = what
        budget.note(": ".join(filter(None, (self.counts[0].text(), what))))

    def say(self, what: str) -> None:
        """Says what is done now, where it is counted elsewhere or not at all."""
        self.what = what
        budget.note(what)

    @property
    def now(self) -> str:
        """What is done within ``what``: what was begun last of all that is not done yet."""
        return self.doing[-1][0] if self.doing else ""

    def shown(self) -> tuple[Count, float | None, float | None]:
        """The outermost count of several things, its rate and the seconds left.

        Both are the whole work's or None: what is counted in a part of it begins again in the next.
        """
        work = self.counts[0]
        if not work.total:
            counts = [count for count in list(self.counts) if count.total > 1]
            return (counts or self.counts)[0], None, None
        rate, left = work.estimate(self.skipped)
        if left is not None and self.ends is not None:
            left = max(0.0, min(left, self.ends - time.monotonic()))
        return work, rate, left if self.whole else None

    def numbers(self) -> dict[str, Any]:
        """The numbers by name: ``remaining`` in seconds, ``rate`` of what is done in a second.

        ``total``, ``rate`` and ``remaining`` are None where they are not known; ``seconds`` have
        passed since the work began. ``unit``: what is counted, such as ``sizes``; empty where
        ``what`` says it.
        """
        count, rate, left = self.shown()
        return {
            "done": count.done,
            "total": count.total or None,
            "unit": count.unit,
            "rate": None if rate is None else float(f"{rate:.3g}"),
            "remaining": None if left is None else round(left, 1),
            "seconds": round(time.monotonic() - self._born, 1),
            "failures": self.failures,
            "what": self.what,
        }

    def line(self, name: str) -> str:
        now = self.numbers()
        most = "at most " * self.limited
        counts = [self.counts[0], *(count for count in self.counts[1:] if count.total > 1)]
        parts = [", ".join(filter(None, (count.text(most) for count in counts)))]
        parts.append(pace(now["rate"]))
        left, calls = now["remaining"], VOICE.calls - self._before
        parts.append(
            f"{span(now['seconds'])} so far" if left is None else f"{most}{span(left)} left"
        )
        parts.append(f"{calls:,} calls" if left is None and calls > 1 else "")
        parts.append(failed(self.failures))
        words = ", ".join(filter(None, parts))
        # "1 failure: keras" would read as if the target that is running now had failed
        between = "; now at " if self.failures and self.what else ": "
        where = ": ".join(filter(None, (self.what, self.now)))
        return between.join(filter(None, (": ".join(filter(None, (name, words))), where)))


def pace(rate: float | None) -> str:
    """``20 a second``, and ``25 s each`` of what takes longer; nothing for None."""
    if rate is None:
        return ""
    return f"{rate:,g} a second" if rate >= 0.5 else f"{span(1 / rate)} each"


def failed(count: int) -> str:
    """``1 failure``, ``2 failures``, and nothing where there are none."""
    return f"{count:,} failure{'' if count == 1 else 's'}" if count else ""


class Voice:
    """Who tells of this process's work now: the innermost progress, which one thread prints.

    There is one, as stderr is: several would speak at once where progress is within progress.
    ``calls``: what targets were asked so far, a sign that something moves where nothing is counted.
    """

    def __init__(self) -> None:
        self.calls = 0
        self._told: list[tuple[Reporter, str, bool]] = []
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._speaker: threading.Thread | None = None

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """What is done meanwhile, said by whoever does it, however far below the command.

        Within it, or in another thread, something else may be done: the last begun is said.
        """
        with self._lock:
            tell = self._told[-1][0] if self._told else Reporter()
            mine = [what]  # a list of its own: two may say the same
            tell.doing.append(mine)
        before = budget.noted()
        budget.note(": ".join(filter(None, (tell.what, what))))
        try:
            yield
            budget.note(before)
        finally:
            with self._lock:
                tell.doing = [doing for doing in tell.doing if doing is not mine]

    @contextmanager
    def counted(self, unit: str, total: int) -> Iterator[Count]:
        """Counts ``total`` of something, however far below a command: see ``Count.set``.

        ``unit``: what is counted, such as ``sizes``.
        """
        count = Count(unit)
        count.set(0, total)
        with self._lock:
            tell = self._told[-1][0] if self._told else Reporter()
            tell.counts.append(count)
        try:
            yield count
        finally:
            with self._lock:
                tell.counts.remove(count)

    def counting(self, items: Collection[Item], unit: str) -> Iterator[Item]:
        """The items; how many are done is said, as of :meth:`counted`."""
        with self.counted(unit, len(items)) as count:
            for done, item in enumerate(items):
                count.set(done, count.total)
                yield item

    @contextmanager
    def steps(self, total: int, tell: Say) -> Iterator[Say]:
        """Parts of a work that take unlike times: what is yielded is called as each begins."""
        with self.counted(STEP, total) as count:
            begun = itertools.count()

            def step(what: str) -> None:
                count.set(next(begun), total)
                tell(what)

            yield step

    @contextmanager
    def within(self, tell: Reporter, what: str = "", as_json: bool = False) -> Iterator[Reporter]:
        """``tell`` is the innermost progress meanwhile."""
        mine = (tell, what, as_json)
        budget.note(what)
        with self._lock:
            self._told.append(mine)
        try:
            yield tell
        finally:
            with self._lock:
                self._told.remove(mine)

    @contextmanager
    def speaking(self, tell: Reporter, what: str, as_json: bool) -> Iterator[Reporter]:
        """As :meth:`within`, and the innermost progress is said every few seconds."""
        with self.within(tell, what, as_json):
            # one that a TimeOver or Ctrl-C kept from being put away has ended, and prints no more
            if self._speaker is not None and self._speaker.is_alive():
                yield tell
                return
            self._ended.clear()
            self._speaker = threading.Thread(target=self._speak, daemon=True)
            self._speaker.start()
            try:
                yield tell
            finally:
                self.stop()
                self._speaker = None

    def stop(self) -> None:
        """Says nothing more of what is done now: its result is printed."""
        if self._speaker is not None:
            self._ended.set()
            self._speaker.join()

    def clear(self) -> None:
        """Clears the line of a terminal, for another to be printed."""
        if self._speaker is not None and _on_terminal():
            _write(CLEAR)

    def _speak(self) -> None:
        drawn = _on_terminal()
        wait = DRAWN if drawn else min(FIRST, EVERY)
        while not self._ended.wait(wait):
            with self._lock:
                last = self._told[-1] if self._told else None
            wait = DRAWN if drawn else EVERY
            if last is None:
                continue
            tell, what, as_json = last
            if drawn:
                width = shutil.get_terminal_size().columns - 1
                _write(f"\r{tell.line(what)[:width]}\x1b[K")
            elif as_json:
                _write(json.dumps({"progress": {"of": what} | tell.numbers()}) + "\n")
            else:
                _write(f"{tell.line(what)}\n")
        if drawn:
            _write(CLEAR)


def _on_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _write(text: str) -> None:
    with _dropping:
        if _kept is not None:  # a library's stderr is dropped: past that
            os.write(_kept, text.encode())
        elif sys.stderr is not None:
            sys.stderr.write(text)
            sys.stderr.flush()


VOICE = Voice()


@contextmanager
def heard(what: str, progress: Say | None) -> Iterator[Say]:
    """What is called with what is done now: ``progress``; if that is None, what prints a
    line to stderr after three seconds, and then every few seconds."""
    if progress is not None:
        yield progress
        return
    with VOICE.speaking(Reporter(), what, False) as tell:
        yield tell.say


_dropping = threading.Lock()
# Where this process's stderr is while a library's is dropped.
_kept: int | None = None


@contextmanager
def without_stderr() -> Iterator[None]:
    """Drops what a library writes to standard error past Python, as TensorFlow does."""
    global _kept
    before, saved, nowhere = _kept, os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        with _dropping:
            os.dup2(nowhere, 2)
            _kept = saved if before is None else before
        yield
    finally:
        with _dropping:
            _kept = before
            os.dup2(saved, 2)
            os.close(saved)
        os.close(nowhere)
