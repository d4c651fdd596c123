"""Two runs of a case, on one target or two: compared and explained, and their kernels named."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from probe import kernels
from probe.arguments import choice
from probe.campaign import Sessions
from probe.case import Case
from probe.comparison import Comparison, Revealer, Run, Shapes, compared
from probe.errors import InputError
from probe.kernels.sources import SYMBOLS
from probe.launch import open_session
from probe.target import Target

WHICH = ("said", "all", "none")
"""``said``: what the library reports of itself; ``all``: also symbols, sampled while it runs."""


def explain(
    case: Case,
    target: Target,
    at: int | None = None,
    against: int | None = None,
    *,
    vary: str | None = None,
    against_target: Target | None = None,
    against_padding: object = None,
    inline: bool = False,
) -> Comparison:
    """Why ``case`` at ``at`` and at ``against`` of the axis ``vary`` differ, output by output.

    ``vary`` None: the length, of a dense layer the batch.
    With ``against_target`` (another library, device or switch) or ``against_padding`` (another
    convention) the two sides may have the same shape: leave ``against`` out. Then the windows are
    read off both sides, and outputs whose windows differ are told apart from rounding. Costs a
    reveal on each side. InputError: there is nothing to compare. TargetError: a target failed.
    """
    shapes = Shapes.named(case, vary, at, against, against_padding)
    other = against_target or target
    if shapes.left == shapes.right and other == target:
        raise InputError("against", against, "both sides are the same run", "give another value")
    for name, side in (("at", shapes.left), ("against", shapes.right)):
        if side.length is None:
            raise InputError(name, None, "the length is open", "give --at N, or --length N")
    with Sessions(lambda where: open_session(where, inline)) as running:
        first, second = running.of(target), running.of(other)
        found = compared(shapes, first, second)
        found.case = shapes.case
        return found.reveal(first, second, Revealer(tried=None))


def checked(which: str) -> str:
    """The word itself. InputError: it is none of ``WHICH``."""
    return choice("kernels", which, WHICH)


def named(found: Comparison, which: str = "said") -> dict[str, dict[str, list[str]]]:
    """What both libraries say that they ran: ``{"left": {source: names}, "right": ...}``.

    {} where no source applies. It is evidence beside the causes, never a cause. Costs a start of
    the target for each source and side. A source without an answer has one entry: why, in brackets.
    InputError: ``which`` is another word.
    """
    if checked(which) == "none":
        return {}
    sources = [name for name in kernels.SOURCES if which == "all" or name != SYMBOLS]

    def ask(side: Run) -> dict[str, list[str]]:
        return kernels.by_source(kernels.observe(side.target, side.case, sources=sources))

    with ThreadPoolExecutor(2) as pool:
        left, right = pool.map(ask, (found.left, found.right))
    return {"left": left, "right": right} if left or right else {}
