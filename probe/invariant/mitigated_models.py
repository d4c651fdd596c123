"""Measures mitigations of a model: ways of padding, and the invariant mode. Kept bits and cost.

``default`` pads each content to the least size that has its outputs, ``pad`` to the least that
changes no bit, ``fixed`` always to the full size, which is the same call for every content.
``invariant`` runs the least size in the mode of ``probe.stable.invariant``, on several sets of
inputs; what is kept of the outputs has to have the bits of the full run. That every size adds alike
rests on what the mode checked itself: see its report.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from probe import budget, ulp
from probe.arguments import whole_number
from probe.errors import Foreign, InputError, ProbeError, TargetError, foreign, line_of
from probe.invariant.mitigations import (
    DOC,
    INVARIANT,
    NAMES,
    Measured,
    Remedy,
    RemedyResult,
    RemedySessions,
    Timers,
    Work,
    few_in_words,
    in_turns,
    remedies_of,
)
from probe.padding.plan import Between, sought_between, spliced
from probe.padding.positions import box_index, elements_apart
from probe.padding.search import SETS, PaddedModel, SafeSize, Serves
from probe.recording.recording import Run
from probe.recording.replayed import OnTarget, Port, replay_run
from probe.recording.subject import FunctionSubject, function_recorder, nested_leaves
from probe.target import Target

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
            content, run = sized.content, graph.whole(sized.content)
            boxes = sized.at_least.boxes or graph.boxes(content)
            for seed in range(SETS):
                short, whole = (
                    foreign(calls_in_mode(result, graph.inputs(content, size, seed)))
                    for size in (sized.least, graph.fixed)
                )
                result.differing += graph.parted(content, boxes, short, whole)
                same = zip(graph.run(content, graph.fixed, seed), whole, run.outputs, strict=True)
                result.keeps &= not any(
                    elements_apart(own, ours, run.values[number]) for own, ours, number in same
                )
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
    invariant = partial(import_module("probe.stable").invariant, example=example, table=table)
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
    if kind != "probe.recorders.torch":
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
    the full size, ``ratio``: over that of the least size; both None where it can't run, or where a
    target that is not the model's own has no program of the whole. ``keeps``:
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
    program, took = getattr(graph.opened, "end_to_end", None), dict[Any, float]()
    with budget.Ending():
        budget.require_time()
        if program is None:
            took = timed_in_turns(calls)
        else:  # of a recording replayed on a target, what its library takes for it in one call
            ran = {n: program(graph.inputs(at, n), TURNS)[1] for n in calls if n != INVARIANT}
            took = {size: float(np.median(seconds)) for size, seconds in ran.items() if seconds}
    rows = list[dict[str, Any]]()
    for name, (padded, serves) in ways.items():
        verdicts = [_verdict_at_size(served) for served in serves]
        both = zip(serves, verdicts, strict=True)
        doubts = (f"{served.name}: {served.why}" for served, word in both if word != "exact")
        rows.append(
            {
                "name": name,
                "doc": DOCS[name],
                "verdict": next((w for w in ("differs", "not known") if w in verdicts), "exact"),
                "sets": min((served.sets for served in serves if served.sets), default=0),
                "valid_for": next((served.given for served in serves if served.given), None),
                "refusal": next(doubts, None),
                "sizes": padded,
                "keeps": True,
            }
        )
    if invariant is not None:
        mode = _way_row(INVARIANT, DOC, invariant, [size.least for size in sizes])
        if invariant.differing:
            mode["refusal"] = f"{invariant.differing:,} kept outputs have different bits"
        rows.append(mode)
    for row in rows:
        mine = took.get(INVARIANT if row["name"] == INVARIANT else row["sizes"][place])
        for name, size in (("of_fixed", graph.fixed), ("ratio", least)):
            row[name] = None if mine is None or size not in took else mine / took[size]
    return rows


def recommended_way(ways: Sequence[dict[str, Any]]) -> str:
    """Returns the cheapest way that is exact.

    Of two paddings that with the smaller sizes, of equal ones the simpler; the invariant mode where
    it took less time than that.
    """
    exact = [way for way in ways if way["verdict"] == "exact"]
    padded = [way for way in exact if way["name"] != INVARIANT]
    best: dict[str, Any] = min(padded, key=lambda way: (sum(way["sizes"]), ways.index(way)))
    for way in exact:
        costs = way["of_fixed"], best["of_fixed"]
        if way["name"] == INVARIANT and best["name"] != "default" and None not in costs:
            best = way if costs[0] < costs[1] else best
    return str(best["name"])


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


def tried_mitigations(
    graph: PaddedModel,
    sizes: Sequence[SafeSize],
    at: int,
    names: Sequence[str],
) -> list[dict[str, Any]]:
    """Judges and times mitigations by name, as of ``judged_ways``: switches of the target, chunks,
    float64, constants between the operations. The model is recorded and replayed with each.

    InputError: a name is none of the target's.
    """
    where = Target.parse(graph.whole(sizes[0].content).target)
    chunks = [whole_number("chunks", n[7:]) for n in names if n.startswith("chunks=")]
    known = [*(remedy.name for remedy in remedies_of(where, chunks)), *NAMES[1:3]]
    for name in names:
        if name not in known:
            todo = f"use {', '.join(known)}"
            raise InputError("only", name, f"there is no such remedy of {where.text}", todo)
    with RemedySessions() as sessions:
        contents = tuple(size.content for size in sizes)
        work = MitigatedGraph(graph, contents, at, sessions, names)
        results = work.measured(chunks, None)
    measured = Measured(graph, where, contents, graph.fixed, at, results)
    return [
        _way_row(result.remedy.name, result.remedy.doc, result, list(result.sizes))
        | {"of_fixed": measured.of_fixed(result), "ratio": measured.ratio(result, at)}
        for result in results
        if result.remedy.name in names
    ]


def _way_row(name: str, doc: str, result: Any, sizes: list[int]) -> dict[str, Any]:
    """Returns a mitigation that was judged as a way: as of ``judged_ways``, without its costs."""
    judged = {"verdict": result.verdict, "keeps": result.keeps, "sets": getattr(result, "sets", 0)}
    return {"name": name, "doc": doc, **judged, "refusal": result.refusal or None, "sizes": sizes}


class MitigatedGraph(Work):
    """What is done with each mitigation of a model, which is replayed on its target: calls of
    convolutions are changed in its place. ``graph``: of the model; ``at``: the content
    that is timed. ``true``: the full run's outputs in float64, None where they aren't known."""

    def __init__(
        self,
        graph: PaddedModel,
        contents: tuple[int, ...],
        at: int,
        sessions: RemedySessions,
        only: Iterable[str] | None,
        true: np.ndarray | None = None,
    ) -> None:
        run = graph.whole(contents[0])
        super().__init__(where := Target.parse(run.target), sessions, only)
        if self.wants("layerwise,xla=1") and self.wanted is not None:
            self.wanted.add("xla=1")
        self.given, self.contents, self.at, self.true = graph, contents, at, true
        self.dtype = run.values[run.outputs[0]].dtype
        base = graph.opened
        self.base = base.opened if isinstance(base, OnTarget) else base
        self.graphs: dict[str, PaddedModel] = {}
        self.plans: dict[tuple[str, int], Between] = {}
        self.least = tuple(self.of(Remedy("default", where, "")).sized(n).least for n in contents)

    def of(self, remedy: Remedy) -> PaddedModel:
        name = remedy.name.removeprefix("layerwise").strip(",") or "default"
        name = "default" if name == "pad" else name
        if name not in self.graphs:
            opened = OnTarget(self.base, self.sessions.with_remedy(remedy, convolutions=True))
            own = self.given
            words = own.arrays, own.along, own.fixed, own.value, own.seconds
            self.graphs[name] = PaddedModel(opened, *words)
        return self.graphs[name]

    def judged(self, remedy: Remedy, **known: Any) -> RemedyResult:
        return super().judged(remedy, sizes=self.least, **known)

    def judge(self, result: RemedyResult) -> None:
        """Counts the contents that the least padding changes."""
        both = zip(self.contents, self.least, strict=True)
        try:
            graph = self.of(result.remedy)
            self._fill_in(result, [graph.serves(content, size) for content, size in both])
        except InputError as error:
            where = result.remedy.where.text
            raise TargetError(where, "unsupported", f"{error.value}: {error.why}") from None

    def _fill_in(self, result: RemedyResult, serves: Sequence[Serves]) -> None:
        verdicts = [_verdict_at_size(served) for served in serves]
        result.compared, result.differing = len(serves), verdicts.count("differs")
        result.unknown = verdicts.count("not known")
        result.sets = min((served.sets for served in serves if served.sets), default=0)
        if result.unknown:
            served = serves[verdicts.index("not known")]
            result.refusal = f"{served.name}: {served.why}"

    def more(self, result: RemedyResult) -> Iterator[RemedyResult]:
        """Yields padding to safe sizes and between the operations, the latter compiled as well."""
        names = {"default": ("pad", "layerwise"), "xla=1": ("layerwise,xla=1",)}
        for name in names.get(result.remedy.name, ()):
            if result.compared is None or not self.wants(name):
                continue
            graph = self.of(result.remedy)
            sized = [graph.sized(content) for content in self.contents]
            if name == "pad":
                sizes = tuple(size.safe for size in sized)
                doc = f"zeros up to {few_in_words(sizes)} positions"
                padded = RemedyResult(Remedy("pad", self.where, doc), sizes=sizes)
                self._fill_in(padded, [size.at_safe for size in sized])
                yield padded
            else:
                yield self._layerwise(replace(result.remedy, name=name), graph, sized)

    def _layerwise(
        self, remedy: Remedy, graph: PaddedModel, sized: Sequence[SafeSize]
    ) -> RemedyResult:
        doc = "constants inserted behind operations, the input padded as far as they need"
        result = RemedyResult(replace(remedy, doc=doc), compared=len(sized))
        for size in sized:
            plan = sought_between(graph, size.content, size.safe)
            if plan is not None:
                self.plans[remedy.name, size.content] = plan
            result.sizes += (size.safe if plan is None else plan.size,)
            judged = size.at_safe if plan is None else plan
            result.sets = min(result.sets or judged.sets, judged.sets or result.sets)
            if judged.by_order != "same":
                result.unknown += 1
                result.refusal = f"{getattr(judged, 'in_the_way', '') or judged.why}"
        return result

    def exact(self) -> tuple[np.ndarray, float] | None:
        return None if self.true is None else (self.true, float(np.abs(self.true).max()))

    def output(self, remedy: Remedy) -> np.ndarray:
        graph = self.of(remedy)
        return self._as_used(graph, self._run(remedy, graph.fixed, graph.fixed))

    def other_bits(self, result: RemedyResult) -> int:
        """Runs all contents on fresh operands."""
        count, graph = 0, self.of(result.remedy)
        for content, size in zip(self.contents, result.sizes, strict=True):
            box = graph.boxes(content)[0]
            if box is None:
                continue
            short, whole = (
                self._as_used(graph, self._run(result.remedy, content, to, seed=content))
                for to in (size, graph.fixed)
            )
            mine, theirs = (
                np.ascontiguousarray(y[box_index(box, not full, y.ndim)])
                for full, y in enumerate((short, whole))
            )
            count += mine.shape != theirs.shape or not ulp.equal(mine, theirs, self.dtype)
        return count

    def _run(self, remedy: Remedy, content: int, size: int, seed: int = 0) -> Run:
        """Returns what is run for content, by its plan where it has one and is not padded in
        full."""
        graph = self.of(remedy)
        plan = self.plans.get((remedy.name, content)) if size < graph.fixed else None
        inputs = graph.inputs(content, size, seed)
        return graph.opened.base(inputs) if plan is None else spliced(graph, plan, inputs)

    def _as_used(self, graph: PaddedModel, run: Run) -> np.ndarray:
        output, _, _ = graph.opened.port.end_to_end(run)
        if output is None:
            output = replay_run(run, graph.opened.port).results[0]
        assert output is not None
        return output

    def timers(self, ready: Sequence[RemedyResult]) -> Timers:
        """Returns whole programs: content at its padded size, and full runs; where the target has
        no program of the whole, all operations one by one."""
        calls = {}
        for number, result in enumerate(ready):
            graph, size = self.of(result.remedy), result.sizes[self.contents.index(self.at)]
            for key, to in ((self.at, size), (graph.fixed, graph.fixed)):
                run = self._run(result.remedy, self.at, to)
                calls[number, key] = _timed_program(graph.opened.port, run)
        return calls


def _timed_program(port: Port, run: Run) -> Callable[[float], Sequence[float]]:
    took = 0.0

    def call(limit: float) -> Sequence[float]:
        nonlocal took
        times = int(min(max(limit / took, 1), 1000)) if took else 1
        output, seconds, _ = port.end_to_end(run, times)
        if output is None:
            begun = time.perf_counter()
            replay_run(run, port)
            seconds = [time.perf_counter() - begun]
        took = float(np.median(seconds))
        return seconds

    return call
