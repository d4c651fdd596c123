"""Measures mitigations of a model: ways of padding, and the invariant mode. Kept bits and cost.

``default`` pads each content to the least size that has its outputs, ``pad`` to the least that
changes no bit, ``fixed`` always to the full size, which is the same call for every content.
``invariant`` runs the least size in the mode of ``probe.stable.invariant``, on several sets of
inputs; what is kept of the outputs has to have the bits of the full run. That every size adds alike
rests on what the mode checked itself: see its report.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from probe.errors import InputError, ProbeError
from probe.invariant.mitigations import DOC, INVARIANT
from probe.padding.kept import apart
from probe.padding.search import SETS, PaddedModel, SafeSize, Serves
from probe.recording.subject import FunctionSubject, leaves, of_function

APART = "the model runs in a process of its own"


@dataclass
class InvariantResult:
    """What became of it. ``refusal``: why there is none, or why its verdict is not known.

    ``report``: the mode's own, None where it could not be made. ``differing``: kept outputs with
    bits that differ from the full run's, over all valid lengths and sets of inputs; ``keeps``:
    whether the full run has the bits of the unchanged model. ``of_arrays``: the model takes NumPy's
    arrays.
    """

    refusal: str = ""
    report: Any = None
    differing: int = 0
    keeps: bool | None = None
    notes: list[str] = field(default_factory=list)
    model: Any = None
    of_arrays: bool = False

    @property
    def verdict(self) -> str:
        """``exact``, ``differs`` or ``not known``."""
        if self.differing:
            return "differs"
        return "not known" if self.refusal or self.report is None else "exact"

    @property
    def certified(self) -> bool:
        """Returns whether every operation was tested for every addition and every fusion."""
        told = [] if self.report is None else self.report.to_json()["operations"]
        return self.verdict == "exact" and all(
            str(one.get("certified", "")).startswith("certified") for one in told
        )

    def to_json(self) -> dict[str, Any] | None:
        """Returns the mode's own report; None where there is none."""
        return None if self.report is None else self.report.to_json()


def of_graph(
    graph: PaddedModel, sizes: Sequence[SafeSize], model: Any, table: str | Path | None = None
) -> InvariantResult:
    """Makes a model invariant over the contents and the full size, and compares its runs.

    ``model``: as it was given, or a file. ``table``: of classes; it is read where it is there, and
    written afterwards. InputError: it is not a table, or one for other sizes.
    """
    wanted, given = _sizes(graph, sizes), graph.inputs(graph.fixed, graph.fixed)
    try:
        found = _made(graph.opened, model, wanted, given, table)
        _compare(found, graph, sizes)
    except InputError as error:
        if error.name in ("table", "sizes"):
            raise
        return InvariantResult(f"{error.why}; {error.todo}" if error.todo else error.why)
    except ProbeError as error:
        return InvariantResult(str(error))
    except Exception as error:  # a library refuses what it likes
        return InvariantResult(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
    _doubt(found, "length" in wanted)
    if table is not None:
        found.report.save(table)
    return found


def of_runs(
    opened: Any,
    model: Any,
    sizes: Mapping[str, list[int]],
    runs: Sequence[Mapping[str, np.ndarray]],
    differing: Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], int],
) -> InvariantResult:
    """Makes a model invariant over some sizes, and compares two runs of it, the larger one second.

    ``differing``: counts the outputs of two runs that must agree and don't.
    """
    try:
        found = _made(opened, model, sizes, runs[1])
        found.differing = differing(*(running(found, given)() for given in runs))
    except InputError as error:
        return InvariantResult(f"{error.why}; {error.todo}" if error.todo else error.why)
    except ProbeError as error:
        return InvariantResult(str(error))
    except Exception as error:  # a library refuses what it likes
        return InvariantResult(f"{type(error).__name__}: {' '.join(str(error).split())[:200]}")
    _doubt(found, "length" in sizes)
    return found


def _made(
    opened: Any, model: Any, sizes: Mapping[str, list[int]], given: Any, table: Any = None
) -> InvariantResult:
    """Returns the mode of a model, not compared yet; ``given``: its inputs at the full size."""
    taken = _taken(opened, model, given)
    invariant = import_module("probe.stable").invariant
    wrapped = isinstance(opened, FunctionSubject) and taken is not opened.function
    arrays = wrapped and not opened.torch
    example = tuple(given.values()) if arrays else _example(taken, given)
    made = invariant(taken, sizes, example=example, table=table)
    return InvariantResult(model=made[0], report=made[1], of_arrays=arrays)


def call(
    found: InvariantResult, graph: PaddedModel, content: int, size: int, seed: int = 0
) -> Callable[[], list[np.ndarray]]:
    """Returns what runs it, again and again; as ``PaddedModel.call``."""
    return running(found, graph.inputs(content, size, seed))


def running(
    found: InvariantResult, given: Mapping[str, np.ndarray]
) -> Callable[[], list[np.ndarray]]:
    """Returns what runs it on inputs by name, again and again."""
    runs: Callable[[], list[np.ndarray]]
    try:
        if found.of_arrays:
            runs = of_function(lambda: found.model(*given.values())).plain
        else:
            runs = FunctionSubject(found.model).recorder(given).plain
        return runs
    except InputError:  # what it gives are NumPy's arrays
        return lambda: [np.asarray(one) for one in leaves(found.model(*given.values()))]


def _sizes(graph: PaddedModel, sizes: Sequence[SafeSize]) -> dict[str, list[int]]:
    """Returns the sizes that the mode is made for."""
    contents = sorted({*(one.content for one in sizes), graph.fixed})
    if set(graph.along.values()) == {0}:
        return {"batch": contents}
    batches = {array.shape[0] for array in graph.arrays.values() if array.ndim}
    return {"batch": sorted(batches), "length": contents}


def _taken(opened: Any, model: Any, given: Mapping[str, np.ndarray]) -> Any:
    """Returns what ``stable.invariant`` takes. InputError: the model runs in another process."""
    if hasattr(opened, "side"):
        raise InputError("target", "(own process)", APART, "leave out --target")
    if not isinstance(opened, FunctionSubject):
        return model
    if opened.torch:
        return opened.function
    recorder: Any = opened.recorder(given)
    kind = type(getattr(recorder, "inner", recorder)).__module__
    of_torch = kind == "probe.recorders.torch"
    return _as_module(opened.function) if of_torch else opened.function


def _as_module(function: Callable[..., Any]) -> Any:
    """Returns a PyTorch module that calls a function of arrays."""
    torch = import_module("torch")

    class MeasuredFunction(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, *arrays: Any) -> Any:
            return function(*arrays)

    return MeasuredFunction().eval()


def _example(model: Any, given: Mapping[str, np.ndarray]) -> tuple[Any, ...]:
    """Returns inputs of the full size: tensors for a module of PyTorch that takes some."""
    if not callable(model) or not FunctionSubject(model).torch:
        return tuple(given.values())
    torch = import_module("torch")
    return tuple(torch.from_numpy(np.array(one)) for one in given.values())


def _compare(found: InvariantResult, graph: PaddedModel, sizes: Sequence[SafeSize]) -> None:
    """Runs every content at its least size and at the full one, and the unchanged model there."""
    found.keeps = True
    for one in sizes:
        boxes = one.at_least.boxes or graph.boxes(one.content)
        for seed in range(SETS):
            whole = call(found, graph, one.content, graph.fixed, seed)()
            short = call(found, graph, one.content, one.least, seed)()
            found.differing += graph.parted(one.content, boxes, short, whole)
            own = graph.run(one.content, graph.fixed, seed)
            same = zip(own, whole, graph.whole(one.content).recording.outputs, strict=True)
            values = graph.whole(one.content).recording.values
            found.keeps &= not any(apart(a, b, values[number]) for a, b, number in same)


def _doubt(found: InvariantResult, along_length: bool) -> None:
    """Notes what keeps a verdict from being known, and what did not hold of a table."""
    told = found.report.to_json()
    left, limited = dict(told.get("left", {})), dict(told.get("limited", {}))
    doubts = [f"{name}: {why}" for name, why in left.items()]
    doubts += [f"{name}: {why}" for name, why in limited.items()] if along_length else []
    found.refusal = "; ".join(doubts[:2]) + f"; and {len(doubts) - 2} more" * (len(doubts) > 2)
    found.notes = [str(one) for one in told.get("notes", ())]


TURNS = 7
"""Runs of each way, in turns, whose median is reported."""

DOCS = {
    "default": "inputs padded to the least size that has all outputs",
    "pad": "inputs padded to the least size that changes no bit",
    "fixed": "inputs always padded to the full size",
}


def judged(
    graph: PaddedModel, sizes: Sequence[SafeSize], at: int, invariant: InvariantResult | None = None
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
        calls[INVARIANT] = call(invariant, graph, at, least)
    program = getattr(graph.opened, "end_to_end", None)
    if program is None:
        took = timed(calls)
    else:  # of a recording replayed on a target, what its library takes for all of it in one call
        inputs = {size: graph.inputs(at, size) for size in calls if size != INVARIANT}
        ran = {size: program(given, TURNS)[1] for size, given in inputs.items()}
        took = {size: float(np.median(seconds)) for size, seconds in ran.items() if seconds}
    found = [_way(name, *way) for name, way in ways.items()]
    if invariant is not None:
        found.append(_of_mode(invariant, sizes))
    for one in found:
        mine = took.get(INVARIANT if one["name"] == INVARIANT else one["sizes"][place])
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


def _of_mode(found: InvariantResult, sizes: Sequence[SafeSize]) -> dict[str, Any]:
    """Returns the invariant mode as a way."""
    why = found.refusal
    if found.differing:
        why = f"{found.differing:,} kept outputs have different bits"
    return {
        "name": INVARIANT,
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
    padded = [one for one in exact if one["name"] != INVARIANT]
    best: dict[str, Any] = min(padded, key=lambda one: (sum(one["sizes"]), ways.index(one)))
    for one in exact:
        costs = one["of_fixed"], best["of_fixed"]
        if one["name"] == INVARIANT and best["name"] != "default" and None not in costs:
            best = one if costs[0] < costs[1] else best
    return str(best["name"])


def _verdict(one: Serves) -> str:
    if one.lacking:  # no shorter size has the outputs, so it is the full one
        return "exact"
    if not one.serves:
        return "differs" if one.by_order == "differs" else "not known"
    return "exact" if one.by_order == "same" else "not known"


def timed(calls: Mapping[Any, Callable[[], Any]]) -> dict[Any, float]:
    """Returns medians of seconds by name, run in turns."""
    took: dict[Any, list[float]] = {name: [] for name in calls}
    for run in calls.values():
        run()  # the first one may compile
    for _ in range(TURNS):
        for name, run in calls.items():
            begun = time.perf_counter()
            run()
            took[name].append(time.perf_counter() - begun)
    return {name: float(np.median(times)) for name, times in took.items()}
