"""What is asked of a library about one call, and what a source of evidence answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from probe import floats
from probe.case import Case
from probe.launch import TIME_LIMIT, Session
from probe.target import Target

SEPARATOR = "; "
"""Between the names in ``Kernel.kernel``; no name has it."""

KEY = "case"
"""Under which a question's session has its operands loaded."""


class Kernel(NamedTuple):
    """What one source says ran; the last three columns of the table ``kernels``.

    ``kernel``: names joined by ``SEPARATOR``, None where the source could not say; then ``missing``
    is why, in one line. Neither holds a path, a host or a process number.
    """

    source: str
    kernel: str | None
    missing: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The single names; empty where ``kernel`` is None."""
        return tuple(self.kernel.split(SEPARATOR)) if self.kernel else ()

    @classmethod
    def of(cls, source: str, names: list[str], missing: str) -> Kernel:
        """The names without repetitions, in their order; without any of them, ``missing``."""
        unique = SEPARATOR.join(dict.fromkeys(names))
        return cls(source, unique, None) if unique else cls(source, None, missing)


@dataclass(frozen=True)
class Question:
    """One case on one target. ``seconds``: how long a source that samples may repeat the call."""

    target: Target
    case: Case
    seconds: float = 2.0
    time_limit: float | None = TIME_LIMIT

    @contextmanager
    def session(self, extra: Mapping[str, str] | None = None) -> Iterator[Session]:
        """A process of its own with the operands loaded, never the one that made the results.

        ``extra``: variables that make the library talk. Errors: TargetError.
        """
        with Session(self.target, time_limit=self.time_limit, extra=extra) as session:
            load(session, self.case)
            yield session


def load(session: Session, case: Case) -> None:
    """Has the operands of a case loaded under ``KEY``. Errors: TargetError."""
    operands = zip("xwb", case.operands(), strict=True)
    arrays = {
        name: floats.to_container(array, case.dtype)
        for name, array in operands
        if array is not None
    }
    session.request({"do": "load", "key": KEY, "spec": case.spec()}, arrays)
