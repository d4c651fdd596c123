"""What both sides' libraries say that they ran: evidence beside the causes, never a cause."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from probe import kernels
from probe.arguments import choice
from probe.explain import Explanation, Side
from probe.kernels import symbols

WHICH = ("said", "all", "none")
"""``said``: what the library reports of itself; ``all``: also symbols, sampled while it runs."""


def checked(which: str) -> str:
    """The word itself. InputError: it is none of ``WHICH``."""
    return choice("kernels", which, WHICH)


def named(found: Explanation, which: str = "said") -> dict[str, dict[str, list[str]]]:
    """``{"left": {source: names}, "right": ...}``; {} where no source applies.

    Costs a start of the target for each source and side. A source without an answer has one entry:
    why, in brackets. InputError: ``which`` is another word.
    """
    if checked(which) == "none":
        return {}
    sources = [name for name in kernels.SOURCES if which == "all" or name != symbols.SOURCE]

    def ask(side: Side) -> dict[str, list[str]]:
        return kernels.by_source(kernels.observe(side.target, side.case, sources=sources))

    with ThreadPoolExecutor(2) as pool:
        left, right = pool.map(ask, (found.left, found.right))
    return {"left": left, "right": right} if left or right else {}
