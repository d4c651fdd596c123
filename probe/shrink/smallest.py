"""The smallest finding that steps lead to: shapes first, then operands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from probe.shrink import numbers, shapes
from probe.shrink.finding import Finding
from probe.shrink.search import Passed, Search, Spent

BUDGET = 300
"""Calls of the predicate; from 256 channels to a minimal case takes some 100."""

TRIES = 8
"""Seeds of generated operands that are tried where the start's own don't show the failure."""


@dataclass
class Shrunk:
    """What ``shrink`` found. ``finding`` is the smallest that fails, ``start`` what it was given.

    ``shown``: whether its operands show the difference; always, unless the shapes' predicate needs
    no operands and none were found. ``near``: the candidate nearest to it that does not fail, and
    the step that leads there; None if none was seen. ``calls`` of the predicates. ``ended``:
    ``minimal`` (no step is left that keeps the failure), ``budget`` or ``interrupted``.
    """

    start: Finding
    finding: Finding
    shown: bool
    near: Passed[Finding] | None
    calls: int
    ended: str


def shrink(
    start: Finding,
    fails: Callable[[Finding], bool],
    *,
    shows: Callable[[Finding], bool] | None = None,
    kinds: tuple[str, ...] = ("cancel",),
    most: int = BUDGET,
    tell: Callable[[int, Finding], None] | None = None,
) -> Shrunk | None:
    """The smallest finding that steps lead to from ``start``; None if ``start`` does not fail.

    ``fails``: the predicate for shapes. ``shows``: the one for operands, where it is another: a
    changed order is there whatever the operands are, and then operands are looked for that show it.
    ``kinds``: operands that shapes are asked with, the first that fail at the start; where none
    does, the start's own are cut. ``most``: calls of the predicates, those that ask about ``start``
    included. Ctrl-C ends it with the smallest so far; what the predicate raises is passed on.
    """
    search = Search(start, fails, most, tell)
    found = Shrunk(start, start, False, None, 0, "minimal")
    try:
        drawn = next((kind for kind in kinds if search.ask(start.drawn_as(kind))), None)
        if drawn is None and not search.ask(start):
            return None
        if drawn is not None:
            search.best = start.drawn_as(drawn)
        steps = shapes.steps(lambda one: one.drawn_as(drawn) if drawn else one)
        search.exhaust(steps)
        found.near = _nearest(search.near(steps))
        found.shown = _show(search, start, shows, drawn)
        if found.shown:
            search.exhaust(numbers.steps(search.best.case.weighted))
    except Spent:
        found.ended = "budget"
    except KeyboardInterrupt:
        found.ended = "interrupted"
    found.finding, found.calls = search.best, search.calls
    found.shown = found.shown or (shows is None and search.best is not start)
    return found


def _show(
    search: Search[Finding],
    start: Finding,
    shows: Callable[[Finding], bool] | None,
    drawn: str | None,
) -> bool:
    """Gives the smallest shape operands that show the failure: the start's own ones if they do."""
    smallest = search.best
    if drawn is None and shows is None:
        return True
    search.fails = shows or search.fails
    known = shows is None
    own = start.reshaped(**smallest.case.arguments(), at=smallest.at, against=smallest.against)
    options = [own, *(own.drawn_as(drawn or "cancel", seed) for seed in range(TRIES))]
    for one in options:
        if (known and one.key == smallest.key) or search.ask(one):
            search.best = one
            return True
    return False


def _nearest(passed: list[Passed[Finding]]) -> Passed[Finding] | None:
    """Of what passed beside the smallest case: another value of the axis, else the largest."""
    if not passed:
        return None
    return max(passed, key=lambda one: (one.step == "pair", one.value.x.size + one.value.w.size))
