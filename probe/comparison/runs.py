"""One run: a case at one shape on one target, its bits, and how each output was added."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from probe import operands
from probe.case import Case
from probe.comparison.shapes import Arrays
from probe.errors import Nondeterministic, NotASum
from probe.launch import Answer, AnySession
from probe.order.masks import SessionOperator
from probe.order.orders import Operands, Orders, reveal
from probe.order.summation import Summation
from probe.order.windows import reveal_windows
from probe.target import Target

MOST_KNOWN = 24
"""Summations of other shapes that are tried before any question is asked."""


@dataclass
class Run:
    """One run: a case at one shape on one target, its bits, and how each output was added.

    ``orders`` is None where nothing was revealed, or where the target is nondeterministic or no
    linear operator; ``refusal`` says so, and ``evidence`` what was seen. ``replays`` (positions,
    filters): the replay gave the library's bits on the run's operands. ``windows``: what every
    output reads, as ``read_windows`` gives it, where that was asked.
    """

    target: Target
    case: Case
    control: str
    operands: Operands
    orders: Orders | None = None
    refusal: str = ""
    evidence: str = ""
    replays: np.ndarray = field(default_factory=lambda: np.zeros(0, bool))
    windows: np.ndarray | None = None

    def summation(self, place: Sequence[int] | np.ndarray) -> Summation | None:
        """How the output at (position, filter) is added; None where that is not known."""
        position, filter_ = place
        number = -1 if self.orders is None else int(self.orders.index[position, filter_])
        return None if number < 0 or self.orders is None else self.orders.summations[number]

    def mask(self, places: np.ndarray) -> np.ndarray:
        """Where these places (outputs, 2) are among all: bool (positions, filters)."""
        found = np.zeros(self.replays.shape, bool)
        found[tuple(places.T)] = True
        return found

    def named(self) -> dict[str, Any]:
        """Target, length and batch as the JSON output has them."""
        return {"target": self.target.text, "length": self.case.length, "batch": self.case.batch}

    def reveal(
        self, session: AnySession, known: Sequence[Summation] = (), wanted: np.ndarray | None = None
    ) -> Run:
        """Reveals and replays outputs: ``wanted`` (positions, filters), None for all.

        ``known``: summations to try first. One that is wrong at one addition may pass all checks;
        the case's own bits tell, and then everything is asked.
        """
        if self.refusal:
            return self
        try:
            self.orders = reveal(session, self.case, known, wanted)
        except Nondeterministic as error:
            self.refusal, self.evidence = "nondeterministic", str(error)
        except NotASum as error:
            self.refusal, self.evidence = "not-a-sum", error.evidence
        else:
            self.evidence = self.orders.evidence
            self.replays = replays(self.orders, self.operands)
            if known and ((self.orders.index >= 0) & ~self.replays).any():
                return self.reveal(session, (), wanted)
        return self


def _asked(session: AnySession, case: Case, given: Arrays, control: bool) -> Answer:
    arrays = {name: array for name, array in zip("xwb", given, strict=True) if array is not None}
    return session.request({"do": "run", "spec": case.spec(), "control": control}, arrays)


def outputs(session: AnySession, case: Case, given: Arrays | None = None) -> np.ndarray:
    """The outputs of one call, container, (batch, *positions, filters); ``given`` as of ``run``."""
    given = operands.generate(case) if given is None else given
    y: np.ndarray = _asked(session, case, given, False)[1]["y"]
    return y


def run(session: AnySession, case: Case, given: Arrays | None = None, windows: bool = False) -> Run:
    """Runs ``case`` (its length set) once, and again for control; reveals no order yet.

    ``given``: x, w and b as container arrays of the case's shapes, instead of its own operands.
    ``windows``: also reads which input every output reads.
    """
    x, w, b = operands.generate(case) if given is None else given
    header, found = _asked(session, case, (x, w, b), True)
    y = found["y"].reshape(-1, case.filters)
    made = Run(session.target, case, header["control"], Operands(case, x, w, b, y))
    made.replays = np.zeros(y.shape, bool)
    if made.control != "equal":
        made.refusal, made.evidence = "nondeterministic", "the same shape again gives other bits"
    if windows:
        made.windows = read_windows(session, case)
    return made


def revealed(session: AnySession, case: Case, known: Sequence[Summation] = ()) -> Run:
    """Runs ``case`` (its length set), with controls, and reveals and replays every output."""
    return run(session, case).reveal(session, known)


def read_windows(session: AnySession, case: Case) -> np.ndarray:
    """What every output reads, revealed: int64 (groups, positions, leaves), -1 for padding."""
    return reveal_windows(SessionOperator(session, case))


def replays(orders: Orders, operands: Operands) -> np.ndarray:
    """Where replaying each output's summation gives the library's bits: (positions, filters)."""
    agreed = (orders.index < 0) & orders.replayed  # windows that read nothing: the output is 0
    for number, summation in enumerate(orders.summations):
        positions, filters = np.nonzero(orders.index == number)
        if len(positions):
            agreed[positions, filters] = operands.agrees(summation, positions, filters)
    return agreed


class Revealer:
    """Reveals runs, and tries what was revealed before.

    ``tried``: how many summations of earlier runs are tried before anything is asked; None: all.
    ``kept``: of how many shapes the orders are kept; None: of all. Orders go with the shape,
    whatever the operands are: where a replay of kept ones gives a run's bits, nothing is asked.
    ``small``: up to so many outputs all are revealed, though some are wanted.
    """

    def __init__(
        self, tried: int | None = MOST_KNOWN, kept: int | None = 0, small: int = 0
    ) -> None:
        self.tried, self.kept, self.small = tried, kept, small
        self.summations: list[Summation] = []
        self._orders: dict[Hashable, Orders] = {}

    def reveal(self, one: Run, session: AnySession, wanted: np.ndarray | None = None) -> Run:
        """Adds a run's orders, as ``Run.reveal`` does."""
        if one.refusal:
            return one
        key = one.target.text, str(one.case.to_json()) if self.kept != 0 else ""
        if (known := self._orders.get(key)) is not None:
            one.orders, one.evidence = known, known.evidence
            one.replays = replays(known, one.operands)
            if one.replays[slice(None) if wanted is None else wanted].all():
                return one
        few = wanted is not None and wanted.size <= self.small
        one.reveal(session, self.summations, None if few else wanted)
        if one.orders is not None:
            every = dict.fromkeys([*one.orders.summations, *self.summations])
            self.summations = list(every)[: self.tried]
            self._orders.pop(key, None)
            self._orders[key] = one.orders
            if self.kept is not None and len(self._orders) > self.kept:
                del self._orders[next(iter(self._orders))]
        return one
