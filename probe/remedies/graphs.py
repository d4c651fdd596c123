"""Remedies of a model of any graph: how far to pad, and what each way costs.

``default`` pads each content to the least size that has its outputs, ``pad`` to the least that
changes no bit, ``fixed`` always to the fixed size, which is the same call for every content.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from probe.network.graph import Graph, Serves, Sized

TURNS = 7
"""Runs of each way, in turns, whose median is told."""

DOCS = {
    "default": "inputs padded to the least size that has all outputs",
    "pad": "inputs padded to the least size that changes no bit",
    "fixed": "inputs always padded to the full size",
}


def judged(graph: Graph, sizes: Sequence[Sized], at: int) -> list[dict[str, Any]]:
    """Judges and times every way. ``at``: the content whose costs are told, one of the ``sizes``.

    Each has ``name``, ``doc``, ``verdict`` (``exact``, ``differs``, ``not known``), ``certified``,
    ``refusal`` (what is in the way, or differs), ``sizes`` and ``of_fixed``: its time over that of
    the fixed size.
    """
    ways: dict[str, tuple[list[int], list[Serves]]] = {
        "default": ([one.least for one in sizes], [one.at_least for one in sizes]),
        "pad": ([one.safe for one in sizes], [one.at_safe for one in sizes]),
        "fixed": ([graph.fixed] * len(sizes), []),
    }
    place = [one.content for one in sizes].index(at)
    took = _timed(graph, at, [padded[place] for padded, _ in ways.values()])
    found = []
    for name, (padded, told) in ways.items():
        doubts = [f"{one.name}: {one.why}" for one in told if _verdict(one) != "exact"]
        words = {_verdict(one) for one in told}
        found.append(
            {
                "name": name,
                "doc": DOCS[name],
                "verdict": next((w for w in ("differs", "not known") if w in words), "exact"),
                "certified": all(one.certified for one in told),
                "refusal": doubts[0] if doubts else None,
                "sizes": padded,
                "of_fixed": took[padded[place]] / took[graph.fixed],
            }
        )
    return found


def recommended(ways: Sequence[dict[str, Any]]) -> str:
    """Returns the cheapest way that is exact; of equal sizes the simpler one."""
    exact = [one for one in ways if one["verdict"] == "exact"]
    best: dict[str, Any] = min(exact, key=lambda one: (sum(one["sizes"]), ways.index(one)))
    return str(best["name"])


def _verdict(one: Serves) -> str:
    if one.lacking:  # no shorter size has the outputs, so it is the fixed one
        return "exact"
    if not one.serves:
        return "differs" if one.by_order == "differs" else "not known"
    return "exact" if one.by_order == "same" else "not known"


def _timed(graph: Graph, content: int, sizes: Sequence[int]) -> dict[int, float]:
    """Medians of seconds by size, run in turns."""
    calls: dict[int, Callable[[], Any]] = {size: graph.call(content, size) for size in sizes}
    took: dict[int, list[float]] = {size: [] for size in calls}
    for call in calls.values():
        call()  # the first one may compile
    for _ in range(TURNS):
        for size, call in calls.items():
            begun = time.perf_counter()
            call()
            took[size].append(time.perf_counter() - begun)
    return {size: float(np.median(times)) for size, times in took.items()}
