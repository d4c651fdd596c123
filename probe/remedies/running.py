"""The targets that remedies run on, all up at once; what they have in turns is timed fairly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from probe import campaign
from probe.launch import Answer, AnySession, Arrays, open_session
from probe.remedies.candidates import Remedy

ROUNDS = 9
"""Turns in which all remedies are timed, one after the other."""
SECONDS = 0.04
"""Calls of one remedy at one length, in one turn."""

Name = TypeVar("Name")


class Remedied:
    """``session`` with ``remedy``, see ``probe.backends.remedied``, in every spec that it is sent.

    ``convolutions``: in those of convolutions alone, also where a whole network is sent. Everything
    else is the session's own; both may be used in turns.
    """

    def __init__(
        self, session: AnySession, remedy: Mapping[str, Any], convolutions: bool = False
    ) -> None:
        self.session, self.remedy = session, dict(remedy)
        self.convolutions = convolutions

    def __getattr__(self, name: str) -> Any:
        return getattr(self.session, name)

    def request(self, header: Mapping[str, Any], arrays: Arrays | None = None) -> Answer:
        """As ``Session.request``."""
        return self.session.request(self._with(header), arrays)

    def stream(self, header: Mapping[str, Any], arrays: Arrays | None = None) -> Iterator[Answer]:
        """As ``Session.stream``."""
        return self.session.stream(self._with(header), arrays)

    def _with(self, header: Mapping[str, Any]) -> dict[str, Any]:
        asked = dict(header)
        if "spec" in asked:
            asked["spec"] = self._remedied(asked["spec"])
        if "specs" in asked:
            asked["specs"] = [self._remedied(spec) for spec in asked["specs"]]
        return asked

    def _remedied(self, spec: Mapping[str, Any]) -> dict[str, Any]:
        if self.convolutions and "conv" not in spec["op"]:
            return dict(spec)
        return {**spec, "remedy": self.remedy}


class Sessions(campaign.Sessions):
    """Running targets, one process each, for one measurement or several; leaving ends them."""

    def __init__(self, inline: bool = False) -> None:
        super().__init__(lambda where: open_session(where, inline))

    def with_remedy(self, remedy: Remedy, convolutions: bool = False) -> AnySession:
        """The target's, with the remedy in every spec; ``convolutions``: as of ``Remedied``."""
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
