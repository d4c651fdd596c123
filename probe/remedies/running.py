"""The targets that remedies run on, all up at once; what they have in turns is timed fairly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Self, TypeVar, cast

import numpy as np

from probe.launch import AnySession, open_session
from probe.remedies.candidates import Remedy
from probe.remedies.session import Remedied
from probe.target import Target

ROUNDS = 9
"""Turns in which all remedies are timed, one after the other."""
SECONDS = 0.04
"""Calls of one remedy at one length, in one turn."""

Name = TypeVar("Name")


class Sessions:
    """Running targets, one process each, for one measurement or several; leaving ends them."""

    def __init__(self, inline: bool = False) -> None:
        self.stack, self.inline = ExitStack(), inline
        self._running: dict[Target, AnySession] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()
        self._running.clear()

    def of(self, where: Target) -> AnySession:
        """The target's session, started."""
        if where not in self._running:
            session = open_session(where, self.inline)
            self.stack.enter_context(session)
            self._running[where] = session
        session = self._running[where]
        if not session.alive:
            session.start()
        return session

    def with_remedy(self, remedy: Remedy, convolutions: bool = False) -> AnySession:
        """The same, with the remedy in every spec; ``convolutions``: as of ``Remedied``."""
        session = self.of(remedy.where)
        if remedy.spec is None:
            return session
        return cast(AnySession, Remedied(session, remedy.spec, convolutions))


def in_turns(
    calls: Mapping[Name, Callable[[float], Sequence[float]]], rounds: int = ROUNDS
) -> dict[Name, np.ndarray]:
    """Medians of each turn, float64 (rounds,), of things that are called one after the other.

    A call takes the seconds that it may last and gives those of every repetition. A first turn,
    in which libraries build and compile, is not counted.
    """
    found: dict[Name, list[float]] = {name: [] for name in calls}
    for turn in range(rounds + 1):
        for name, call in calls.items():
            seconds = call(SECONDS if turn else 0.0)
            if turn:
                found[name].append(float(np.median(seconds)))
    return {name: np.array(medians) for name, medians in found.items()}
