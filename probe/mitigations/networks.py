"""Judges and times the ways of padding a model, and the invariant mode.

``default`` pads each content to the least size that has its outputs, ``pad`` to the least that
changes no bit, ``fixed`` always to the full size, which is the same call for every content.
``invariant`` runs the least size in the invariant mode: see ``invariants``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from probe.mitigations.invariants import DOC, NAME, Invariant, call
from probe.padding.search import Graph, Serves, Sized

TURNS = 7
"""Runs of each way, in turns, whose median is reported."""

DOCS = {
    "default": "inputs padded to the least size that has all outputs",
    "pad": "inputs padded to the least size that changes no bit",
    "fixed": "inputs always padded to the full size",
}


def judged(
    graph: Graph, sizes: Sequence[Sized], at: int, invariant: Invariant | None = None
) -> list[dict[str, Any]]:
    """Judges and times every way. ``at``: the content whose costs are told, one of the ``sizes``.

    Each has ``name``, ``doc``, ``verdict`` (``exact``, ``differs``, ``not known``), ``certified``,
    ``refusal`` (what is in the way, or differs), ``sizes``, ``of_fixed``: its time over that of
    the full size, ``ratio``: over that of the least size; both None where it can't run, or where a
    target that is not the model's own has no program of the whole. ``keeps``:
    whether the full size has the unchanged model's bits.
    """
    ways: dict[str, tuple[list[int], list[Serves]]] = {
        "default": ([one.least for one in sizes], [one.at_least for one in sizes]),
        "pad": ([one.safe for one in sizes], [one.at_safe for one in sizes]),
        "fixed": ([graph.fixed] * len(sizes), []),
    }
    place = [one.content for one in sizes].index(at)
    calls: dict[Any, Callable[[], Any]] = {
        size: graph.call(at, size) for size in dict.fromkeys(p[place] for p, _ in ways.values())
    }
    least = sizes[place].least
    if invariant is not None and invariant.report is not None:
        calls[NAME] = call(invariant, graph, at, least)
    program = getattr(graph.opened, "end_to_end", None)
    if program is None:
        took = _timed(calls)
    else:  # of a recording replayed on a target, what its library takes for all of it in one call
        inputs = {size: graph.inputs(at, size) for size in calls if size != NAME}
        ran = {size: program(given, TURNS)[1] for size, given in inputs.items()}
        took = {size: float(np.median(seconds)) for size, seconds in ran.items() if seconds}
    found = [_way(name, *way) for name, way in ways.items()]
    if invariant is not None:
        found.append(_of_mode(invariant, sizes))
    for one in found:
        mine = took.get(NAME if one["name"] == NAME else one["sizes"][place])
        for name, size in (("of_fixed", graph.fixed), ("ratio", least)):
            one[name] = None if mine is None or size not in took else mine / took[size]
    return found


def _way(name: str, padded: list[int], told: list[Serves]) -> dict[str, Any]:
    """Returns a way of padding, by what is known of its sizes."""
    doubts = [f"{one.name}: {one.why}" for one in told if _verdict(one) != "exact"]
    words = {_verdict(one) for one in told}
    return {
        "name": name,
        "doc": DOCS[name],
        "verdict": next((w for w in ("differs", "not known") if w in words), "exact"),
        "certified": all(one.certified for one in told),
        "refusal": doubts[0] if doubts else None,
        "sizes": padded,
        "keeps": True,
    }


def _of_mode(found: Invariant, sizes: Sequence[Sized]) -> dict[str, Any]:
    """Returns the invariant mode as a way."""
    why = found.refusal
    if found.differing:
        why = f"{found.differing:,} kept outputs have different bits"
    return {
        "name": NAME,
        "doc": DOC,
        "verdict": found.verdict,
        "certified": found.certified,
        "refusal": why or None,
        "sizes": [one.least for one in sizes],
        "keeps": found.keeps,
    }


def recommended(ways: Sequence[dict[str, Any]]) -> str:
    """Returns the cheapest way that is exact.

    Of two paddings that with the smaller sizes, of equal ones the simpler; the invariant mode where
    it took less time than that.
    """
    exact = [one for one in ways if one["verdict"] == "exact"]
    padded = [one for one in exact if one["name"] != NAME]
    best: dict[str, Any] = min(padded, key=lambda one: (sum(one["sizes"]), ways.index(one)))
    for one in exact:
        costs = one["of_fixed"], best["of_fixed"]
        if one["name"] == NAME and best["name"] != "default" and None not in costs:
            best = one if costs[0] < costs[1] else best
    return str(best["name"])


def _verdict(one: Serves) -> str:
    if one.lacking:  # no shorter size has the outputs, so it is the full one
        return "exact"
    if not one.serves:
        return "differs" if one.by_order == "differs" else "not known"
    return "exact" if one.by_order == "same" else "not known"


def _timed(calls: Mapping[Any, Callable[[], Any]]) -> dict[Any, float]:
    """Medians of seconds by name, run in turns."""
    took: dict[Any, list[float]] = {name: [] for name in calls}
    for run in calls.values():
        run()  # the first one may compile
    for _ in range(TURNS):
        for name, run in calls.items():
            begun = time.perf_counter()
            run()
            took[name].append(time.perf_counter() - begun)
    return {name: float(np.median(times)) for name, times in took.items()}
