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

from probe import ulp
from probe.arguments import whole_number
from probe.errors import InputError, ProbeError, TargetError, line_of
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
    contents = sorted({*(one.content for one in sizes), graph.fixed})
    wanted = {"batch": contents}
    if set(graph.along.values()) != {0}:
        batches = {array.shape[0] for array in graph.arrays.values() if array.ndim}
        wanted = {"batch": sorted(batches), "length": contents}
    given = graph.inputs(graph.fixed, graph.fixed)
    try:
        found = _in_mode(graph.opened, model, wanted, given, table)
        found.keeps = True
        for one in sizes:  # each content at its least size and at the full one, and as it is there
            boxes, whole_run = (
                one.at_least.boxes or graph.boxes(one.content),
                graph.whole(one.content),
            )
            for seed in range(SETS):
                short, whole = (
                    calls_in_mode(found, graph.inputs(one.content, size, seed))()
                    for size in (one.least, graph.fixed)
                )
                found.differing += graph.parted(one.content, boxes, short, whole)
                own = graph.run(one.content, graph.fixed, seed)
                same = zip(own, whole, whole_run.outputs, strict=True)
                values = whole_run.values
                found.keeps &= not any(
                    elements_apart(a, b, values[number]) for a, b, number in same
                )
    except Exception as error:
        if isinstance(error, InputError) and error.name in ("table", "sizes"):
            raise
        return _refusal_as_result(error)
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
        found = _in_mode(opened, model, sizes, runs[1])
        found.differing = differing(*(calls_in_mode(found, given)() for given in runs))
    except Exception as error:
        return _refusal_as_result(error)
    _doubt(found, "length" in sizes)
    return found


def _refusal_as_result(error: Exception) -> InvariantResult:
    """Returns what was raised as a result: a library refuses what it likes, by any class."""
    if isinstance(error, InputError):
        return InvariantResult(f"{error.why}; {error.todo}" if error.todo else error.why)
    if isinstance(error, ProbeError):
        return InvariantResult(str(error))
    return InvariantResult(line_of(error, 200))


def _in_mode(
    opened: Any, model: Any, sizes: Mapping[str, list[int]], given: Any, table: Any = None
) -> InvariantResult:
    """Returns the mode of a model, not compared yet; ``given``: its inputs at the full size."""
    taken = _as_accepted(opened, model, given)
    invariant = import_module("probe.stable").invariant
    wrapped = isinstance(opened, FunctionSubject) and taken is not opened.function
    arrays = wrapped and not opened.torch
    example = tuple(given.values())
    if not arrays and callable(taken) and FunctionSubject(taken).torch:  # a module takes tensors
        torch = import_module("torch")
        example = tuple(torch.from_numpy(np.array(one)) for one in example)
    made = invariant(taken, sizes, example=example, table=table)
    return InvariantResult(model=made[0], report=made[1], of_arrays=arrays)


def calls_in_mode(
    found: InvariantResult, given: Mapping[str, np.ndarray]
) -> Callable[[], list[np.ndarray]]:
    """Returns what runs it on inputs by name, again and again."""
    try:
        if found.of_arrays:
            subject: Any = function_recorder(lambda: found.model(*given.values()))
        else:
            subject = FunctionSubject(found.model).recorder(given)
        return subject.plain  # type: ignore[no-any-return]
    except InputError:  # what it gives are NumPy's arrays
        return lambda: [np.asarray(one) for one in nested_leaves(found.model(*given.values()))]


def _as_accepted(opened: Any, model: Any, given: Mapping[str, np.ndarray]) -> Any:
    """Returns what ``stable.invariant`` takes. InputError: the model runs in another process."""
    if hasattr(opened, "side"):
        raise InputError("target", "(own process)", APART, "leave out --target")
    if not isinstance(opened, FunctionSubject):
        inner = getattr(opened, "inner", None)
        own = getattr(inner, "model", None)  # of a .keras file, whose layers are replaced
        return model if own is None else own
    if opened.torch:
        return opened.function
    recorder: Any = opened.recorder(given)
    kind = type(getattr(recorder, "inner", recorder)).__module__
    if kind != "probe.recorders.torch":
        return opened.function
    torch, function = import_module("torch"), opened.function

    class MeasuredFunction(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, *arrays: Any) -> Any:
            return function(*arrays)

    return MeasuredFunction().eval()


def _doubt(found: InvariantResult, along_length: bool) -> None:
    """Notes what keeps a verdict from being known, and what did not hold of a table."""
    told = found.report.to_json()
    left, limited = dict(told.get("left", {})), dict(told.get("limited", {}))
    doubts = [f"{name}: {why}" for name, why in left.items()]
    doubts += [f"{name}: {why}" for name, why in limited.items()] if along_length else []
    found.refusal = "; ".join(doubts[:2]) + f"; and {len(doubts) - 2} more" * (len(doubts) > 2)
    found.notes = [str(one) for one in told.get("notes", ())]


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
        calls[INVARIANT] = calls_in_mode(invariant, graph.inputs(at, least))
    program = getattr(graph.opened, "end_to_end", None)
    if program is None:
        took = timed_in_turns(calls)
    else:  # of a recording replayed on a target, what its library takes for all of it in one call
        inputs = {size: graph.inputs(at, size) for size in calls if size != INVARIANT}
        ran = {size: program(given, TURNS)[1] for size, given in inputs.items()}
        took = {size: float(np.median(seconds)) for size, seconds in ran.items() if seconds}
    found = list[dict[str, Any]]()
    for name, (padded, told) in ways.items():
        doubts = [f"{one.name}: {one.why}" for one in told if _verdict_at_size(one) != "exact"]
        words = {_verdict_at_size(one) for one in told}
        found.append(
            {
                "name": name,
                "doc": DOCS[name],
                "verdict": next((w for w in ("differs", "not known") if w in words), "exact"),
                "certified": all(one.certified for one in told),
                "certified_for": next((one.given for one in told if one.given), None),
                "refusal": doubts[0] if doubts else None,
                "sizes": padded,
                "keeps": True,
            }
        )
    if invariant is not None:
        mode = _way_row(INVARIANT, DOC, invariant, [one.least for one in sizes])
        if invariant.differing:
            mode["refusal"] = f"{invariant.differing:,} kept outputs have different bits"
        found.append(mode)
    for one in found:
        mine = took.get(INVARIANT if one["name"] == INVARIANT else one["sizes"][place])
        for name, size in (("of_fixed", graph.fixed), ("ratio", least)):
            one[name] = None if mine is None or size not in took else mine / took[size]
    return found


def recommended_way(ways: Sequence[dict[str, Any]]) -> str:
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


def _verdict_at_size(one: Serves) -> str:
    if one.lacking:  # no shorter size has the outputs, so it is the full one
        return "exact"
    if not one.serves:
        return "differs" if one.by_order == "differs" else "not known"
    return "exact" if one.by_order == "same" else "not known"


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
    known = [*(one.name for one in remedies_of(where, chunks)), *NAMES[1:3]]
    for name in names:
        if name not in known:
            todo = f"use {', '.join(known)}"
            raise InputError("only", name, f"there is no such remedy of {where.text}", todo)
    with RemedySessions() as sessions:
        contents = tuple(one.content for one in sizes)
        work = MitigatedGraph(graph, contents, at, sessions, names)
        found = work.measured(chunks, None)
    told = Measured(graph, where, contents, graph.fixed, at, found)  # type: ignore[arg-type]
    return [
        _way_row(one.remedy.name, one.remedy.doc, one, list(one.sizes))
        | {"of_fixed": told.of_fixed(one), "ratio": told.ratio(one, at)}
        for one in found
        if one.remedy.name in names
    ]


def _way_row(name: str, doc: str, found: Any, sizes: list[int]) -> dict[str, Any]:
    """Returns a mitigation that was judged as a way: as of ``judged_ways``, without its costs."""
    told = {one: getattr(found, one) for one in ("verdict", "certified", "keeps")}
    return {"name": name, "doc": doc, **told, "refusal": found.refusal or None, "sizes": sizes}


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
        """Returns the model with a mitigation."""
        name = remedy.name.removeprefix("layerwise").strip(",") or "default"
        name = "default" if name == "pad" else name
        if name not in self.graphs:
            session = self.sessions.with_remedy(remedy, convolutions=True)
            one = self.given
            words = one.arrays, one.along, one.fixed, one.value, one.seconds
            self.graphs[name] = PaddedModel(OnTarget(self.base, session), *words)
        return self.graphs[name]

    def judged(self, remedy: Remedy, **known: Any) -> RemedyResult:
        """Returns one remedy at the least padded sizes."""
        return super().judged(remedy, sizes=self.least, **known)

    def judge(self, found: RemedyResult) -> None:
        """Counts the contents that the least padding changes."""
        both = zip(self.contents, self.least, strict=True)
        try:
            graph = self.of(found.remedy)
            self._told(found, [graph.serves(content, size) for content, size in both])
        except InputError as error:
            where = found.remedy.where.text
            raise TargetError(where, "unsupported", f"{error.value}: {error.why}") from None

    def _told(self, found: RemedyResult, told: Sequence[Serves]) -> None:
        words = [_verdict_at_size(one) for one in told]
        found.compared, found.differing = len(told), words.count("differs")
        found.unknown = words.count("not known")
        found.certified = all(one.certified for one in told)
        doubts = [f"{one.name}: {one.why}" for one in told if _verdict_at_size(one) == "not known"]
        found.refusal = doubts[0] if doubts else ""

    def more(self, found: RemedyResult) -> Iterator[RemedyResult]:
        """Yields padding to safe sizes and between the operations, the latter compiled as well."""
        names = {"default": ("pad", "layerwise"), "xla=1": ("layerwise,xla=1",)}
        for name in names.get(found.remedy.name, ()):
            if found.compared is None or not self.wants(name):
                continue
            graph = self.of(found.remedy)
            sized = [graph.sized(one) for one in self.contents]
            sizes = tuple(one.safe for one in sized)
            doc = f"zeros up to {few_in_words(sizes)} positions"
            if name == "pad":
                made = RemedyResult(Remedy("pad", self.where, doc), sizes=sizes)
                self._told(made, [one.at_safe for one in sized])
            else:
                made = self._layerwise(replace(found.remedy, name=name), graph, sized)
            yield made

    def _layerwise(
        self, remedy: Remedy, graph: PaddedModel, sized: Sequence[SafeSize]
    ) -> RemedyResult:
        doc = "constants inserted behind operations, the input padded as far as they need"
        made = RemedyResult(replace(remedy, doc=doc), certified=True, compared=len(sized))
        sizes = []
        for one in sized:
            plan = sought_between(graph, one.content, one.safe)
            sizes.append(one.safe if plan is None else plan.size)
            told = one.at_safe if plan is None else plan
            made.certified &= told.certified
            if told.by_order != "same":
                made.unknown += 1
                made.refusal = f"{getattr(told, 'in_the_way', '') or told.why}"
            if plan is not None:
                self.plans[remedy.name, one.content] = plan
        made.sizes = tuple(sizes)
        return made

    def exact(self) -> tuple[np.ndarray, float] | None:
        """Returns the true outputs and the largest, where they are known."""
        return None if self.true is None else (self.true, float(np.abs(self.true).max()))

    def output(self, remedy: Remedy) -> np.ndarray:
        graph = self.of(remedy)
        return self._as_used(graph, self._run(remedy, graph.fixed, graph.fixed))

    def other_bits(self, found: RemedyResult) -> int:
        """Runs all contents on fresh operands."""
        count = 0
        for one, size in zip(self.contents, found.sizes, strict=True):
            graph = self.of(found.remedy)
            box = graph.boxes(one)[0]
            if box is None:
                continue
            short, whole = (
                self._as_used(graph, self._run(found.remedy, one, to, one))
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
        given = graph.inputs(content, size, seed)
        return graph.opened.base(given) if plan is None else spliced(graph, plan, given)

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
        for number, one in enumerate(ready):
            graph, size = self.of(one.remedy), one.sizes[self.contents.index(self.at)]
            for key, to in ((self.at, size), (graph.fixed, graph.fixed)):
                run = self._run(one.remedy, self.at, to)
                calls[number, key] = _timed_program(graph.opened.port, run)
        return calls


def _timed_program(port: Port, run: Run) -> Callable[[float], Sequence[float]]:
    """Returns calls of a program, as of ``in_turns``."""
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
