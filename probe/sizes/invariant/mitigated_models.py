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
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from probe.case.errors import Foreign, InputError, ProbeError, TargetError, foreign, line_of
from probe.record.subject import FunctionSubject, function_recorder, nested_leaves
from probe.sizes.invariant.mitigations import DOC, INVARIANT, in_turns, remedies_of
from probe.sizes.marks import CONTENTS, SETS, elements_apart
from probe.sizes.search import PaddedModel, SafeSize, Serves
from probe.targets import budget
from probe.targets.target import Target

# The user's own operands, and scaled ones: other contents are for what reads them.
SEEDS = (0, *range(CONTENTS + 1, SETS))

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

    def to_json(self) -> dict[str, Any] | None:
        return None if self.report is None else self.report.to_json()


def of_graph(
    graph: PaddedModel, sizes: Sequence[SafeSize], model: Any, table: str | Path | None = None
) -> InvariantResult:
    """Makes a model invariant over the contents and the full size, and compares its runs.

    ``model``: as it was given, or a file. ``table``: of classes; it is read where it is there, and
    written afterwards. InputError: it is not a table, or one for other sizes.
    """
    contents = sorted({*(size.content for size in sizes), graph.fixed})
    wanted = {"batch": contents}
    if set(graph.along.values()) != {0}:
        batches = {array.shape[0] for array in graph.arrays.values() if array.ndim}
        wanted = {"batch": sorted(batches), "length": contents}
    inputs = graph.inputs(graph.fixed, graph.fixed)
    try:
        result = _in_mode(graph.opened, model, wanted, inputs, table)
        result.keeps = True
        for sized in sizes:  # each at its least size and at the full one, and as it is there
            content = sized.content
            boxes = sized.at_least.boxes or graph.boxes(content)
            for seed in SEEDS:
                short, whole = (
                    foreign(calls_in_mode(result, graph.inputs(content, size, seed)))
                    for size in (sized.least, graph.fixed)
                )
                result.differing += graph.parted(content, boxes, short, whole)
                unchanged = graph.run(content, graph.fixed, seed)
                result.keeps &= not any(map(elements_apart, unchanged, whole))
    except (Foreign, ProbeError, MemoryError) as error:
        if isinstance(error, InputError) and error.name in ("table", "sizes"):
            raise
        return _refusal_as_result(error)
    _doubt(result, "length" in wanted)
    if table is not None:
        result.report.save(table)
    return result


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
        result = _in_mode(opened, model, sizes, runs[1])
        result.differing = differing(*(foreign(calls_in_mode(result, ins)) for ins in runs))
    except (Foreign, ProbeError, MemoryError) as error:
        return _refusal_as_result(error)
    _doubt(result, "length" in sizes)
    return result


def _refusal_as_result(error: Exception) -> InvariantResult:
    """Returns what was raised as a result: a library refuses what it likes, by any class."""
    if isinstance(error, InputError):
        return InvariantResult(f"{error.why}; {error.todo}" if error.todo else error.why)
    if isinstance(error, ProbeError):
        return InvariantResult(str(error))
    return InvariantResult(line_of(error, 200))


def _in_mode(
    opened: Any, model: Any, sizes: Mapping[str, list[int]], inputs: Any, table: Any = None
) -> InvariantResult:
    """Returns the mode of a model, not compared yet; ``inputs``: its own at the full size."""
    accepted = _as_accepted(opened, model, inputs)
    wrapped = isinstance(opened, FunctionSubject) and accepted is not opened.function
    arrays = wrapped and not opened.torch
    example = tuple(inputs.values())
    if not arrays and callable(accepted) and FunctionSubject(accepted).torch:
        torch = import_module("torch")  # a module takes tensors
        example = tuple(torch.from_numpy(np.array(array)) for array in example)
    invariant = partial(import_module("probe.sizes.stable").invariant, example=example, table=table)
    in_mode, report = foreign(invariant, accepted, sizes)  # which runs the model
    return InvariantResult(model=in_mode, report=report, of_arrays=arrays)


def calls_in_mode(
    result: InvariantResult, inputs: Mapping[str, np.ndarray]
) -> Callable[[], list[np.ndarray]]:
    """Returns what runs it on inputs by name, again and again."""

    def call() -> Any:
        return result.model(*inputs.values())

    try:
        own = result.of_arrays
        recorder = (
            function_recorder(call) if own else FunctionSubject(result.model).recorder(inputs)
        )
        return recorder.plain  # type: ignore[no-any-return]
    except InputError:  # what it gives are NumPy's arrays
        return lambda: [*map(np.asarray, nested_leaves(call()))]


def _as_accepted(opened: Any, model: Any, inputs: Mapping[str, np.ndarray]) -> Any:
    """Returns what ``stable.invariant`` takes. InputError: the model runs in another process."""
    if hasattr(opened, "side"):
        raise InputError("target", "(own process)", APART, "leave out --target")
    if not isinstance(opened, FunctionSubject):
        # of a .keras file, whose layers are replaced
        own = getattr(getattr(opened, "inner", None), "model", None)
        return model if own is None else own
    if opened.torch:
        return opened.function
    recorder: Any = opened.recorder(inputs)
    kind = type(getattr(recorder, "inner", recorder)).__module__
    if kind != "probe.record.recorders.torch":
        return opened.function
    torch, function = import_module("torch"), opened.function

    class MeasuredFunction(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, *arrays: Any) -> Any:
            return function(*arrays)

    return MeasuredFunction().eval()


def _doubt(result: InvariantResult, along_length: bool) -> None:
    """Notes what keeps a verdict from being known, and what did not hold of a table."""
    report = result.report.to_json()
    kinds = ("left", "limited") if along_length else ("left",)
    doubts = [f"{name}: {why}" for kind in kinds for name, why in report.get(kind, {}).items()]
    result.refusal = "; ".join(doubts[:2]) + f"; and {len(doubts) - 2} more" * (len(doubts) > 2)
    result.notes = [*map(str, report.get("notes", ()))]


# Runs of each way, in turns, whose median is reported.
TURNS = 7

DOCS = {
    "default": "inputs padded to the least size that has all outputs",
    "pad": "inputs padded to the least size that changes no bit",
    "fixed": "inputs always padded to the full size",
}


def judged_ways(
    graph: PaddedModel, sizes: Sequence[SafeSize], at: int, invariant: InvariantResult | None = None
) -> list[dict[str, Any]]:
    """Judges and times every way. ``at``: the content whose costs are told, one of the ``sizes``.

    Each has ``name``, ``doc``, ``verdict`` (``exact``, ``differs``, ``not known``), ``sets``,
    ``refusal`` (what is in the way, or differs), ``sizes``, ``of_fixed``: its time over that of
    the full size, ``ratio``: over that of the least size; both None where it can't run. ``keeps``:
    whether the full size has the unchanged model's bits.
    """
    ways: dict[str, tuple[list[int], list[Serves]]] = {
        "default": ([size.least for size in sizes], [size.at_least for size in sizes]),
        "pad": ([size.safe for size in sizes], [size.at_safe for size in sizes]),
        "fixed": ([graph.fixed] * len(sizes), []),
    }
    place = [size.content for size in sizes].index(at)
    calls: dict[Any, Callable[[], Any]] = {
        size: graph.call(at, size) for size in dict.fromkeys(p[place] for p, _ in ways.values())
    }
    least = sizes[place].least
    if invariant is not None and invariant.report is not None:
        calls[INVARIANT] = calls_in_mode(invariant, graph.inputs(at, least))
    took = dict[Any, float]()
    with budget.Ending():
        budget.require_time()
        took = timed_in_turns(calls)
    rows = list[dict[str, Any]]()
    for name, (padded, serves) in ways.items():
        row = {"name": name, "doc": DOCS[name], **_verdict_of(serves)}
        rows.append(row | {"sizes": padded, "keeps": True})
    if invariant is not None:
        refusal = invariant.refusal or None
        if invariant.differing:
            refusal = f"{invariant.differing:,} kept outputs have different bits"
        mode = {"name": INVARIANT, "doc": DOC, "verdict": invariant.verdict, "sets": 0}
        mode |= {"refusal": refusal, "sizes": [size.least for size in sizes]}
        rows.append(mode | {"keeps": invariant.keeps})
    for row in rows:
        mine = took.get(INVARIANT if row["name"] == INVARIANT else row["sizes"][place])
        for name, size in (("of_fixed", graph.fixed), ("ratio", least)):
            row[name] = None if mine is None or size not in took else mine / took[size]
    return rows


def recommended_way(ways: Sequence[dict[str, Any]]) -> str:
    """Returns the cheapest way that is exact.

    Of two paddings that with the smaller sizes, of equal ones the simpler; the invariant mode where
    it took less time than that. ``one size`` where none is: what is filled up to the full size has
    its bits.
    """
    exact = [way for way in ways if way["verdict"] == "exact"]
    padded = [way for way in exact if way["name"] != INVARIANT]
    if not padded:
        return INVARIANT if exact else "one size"
    best: dict[str, Any] = min(padded, key=lambda way: (sum(way["sizes"]), ways.index(way)))
    for way in exact:
        costs = way["of_fixed"], best["of_fixed"]
        if way["name"] == INVARIANT and best["name"] != "default" and None not in costs:
            best = way if costs[0] < costs[1] else best
    return str(best["name"])


def _verdict_of(serves: Sequence[Serves]) -> dict[str, Any]:
    """What a way comes to that has these sizes: its verdict, and what is in the way."""
    verdicts = [_verdict_at_size(served) for served in serves]
    both = zip(serves, verdicts, strict=True)
    doubts = (f"{served.name}: {served.why}" for served, word in both if word != "exact")
    return {
        "verdict": next((word for word in ("differs", "not known") if word in verdicts), "exact"),
        "sets": min((served.sets for served in serves if served.sets), default=0),
        "valid_for": next((served.given for served in serves if served.given), None),
        "refusal": next(doubts, None),
    }


def _verdict_at_size(served: Serves) -> str:
    # lacking: no shorter size has the outputs, so it is the full one
    if served.lacking or (served.serves and served.by_order == "same"):
        return "exact"
    return "differs" if not served.serves and served.by_order == "differs" else "not known"


def timed_in_turns(
    calls: Mapping[Any, Callable[[], Any]], of: Callable[[Any], Any] = np.median
) -> dict[Any, float]:
    """Returns seconds by name, run in turns: the medians, or what ``of`` makes of each's."""

    def timed(run: Callable[[], Any], _: float) -> Sequence[float]:
        begun = time.perf_counter()
        run()
        return (time.perf_counter() - begun,)

    took = in_turns({name: partial(timed, run) for name, run in calls.items()}, TURNS)
    return {name: float(of(times)) for name, times in took.items()}


def tried_switches(
    graph: PaddedModel,
    sizes: Sequence[SafeSize],
    at: int,
    names: Sequence[str],
    opened_on: Callable[[Target], AbstractContextManager[Any]],
) -> list[dict[str, Any]]:
    """Judges and times switches of the target by name, as of ``judged_ways``: the model is run with
    each, at its least sizes. ``opened_on``: opens it on a target.

    InputError: a name is none of the target's.
    """
    where, rows = Target.parse(graph.text), list[dict[str, Any]]()
    known = {remedy.name: remedy for remedy in remedies_of(where, ()) if remedy.where != where}
    known = {name: remedy for name, remedy in known.items() if remedy.spec is None}
    for name in names:
        if name not in known:
            todo = f"use {', '.join(known)}" if known else "leave it out"
            raise InputError("only", name, f"there is no such remedy of {where.text}", todo)
    for name in names:
        remedy = known[name]
        row: dict[str, Any] = {"name": name, "doc": remedy.doc, "verdict": "not known", "sets": 0}
        row |= {"refusal": None, "sizes": [], "keeps": None, "of_fixed": None, "ratio": None}
        rows.append(row)
        try:
            with opened_on(remedy.where) as opened:
                words = graph.arrays, graph.along, graph.fixed, graph.value, graph.seconds
                switched = PaddedModel(opened, *words)
                row["sizes"] = [switched.least(size.content) for size in sizes]
                both = zip(sizes, row["sizes"], strict=True)
                serves = [switched.serves(size.content, least) for size, least in both]
                row |= _verdict_of(serves)
                whole = graph.run(at, graph.fixed), switched.run(at, graph.fixed)
                row["keeps"] = not sum(map(elements_apart, *whole))
                place = [size.content for size in sizes].index(at)
                took = timed_in_turns(
                    {
                        "fixed": graph.call(at, graph.fixed),
                        "least": graph.call(at, sizes[place].least),
                        "switched": switched.call(at, row["sizes"][place]),
                    }
                )
                row["of_fixed"] = took["switched"] / took["fixed"]
                row["ratio"] = took["switched"] / took["least"]
        except (InputError, TargetError) as error:
            row["refusal"] = error.why
    return rows
