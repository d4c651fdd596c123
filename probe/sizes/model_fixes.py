"""What keeps the bits of a model: ways of padding, and the invariant mode.

``default`` pads each content to the least size that has its outputs, ``pad`` to the least that
changes no bit, ``fixed`` always to the full size, which is the same call for every content.
``invariant`` runs the least size in the mode of ``probe.stable.invariant``, on several sets of
inputs; what is kept of the outputs has to have the bits of the full run. That every size adds alike
rests on what the mode checked itself: see its report.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from probe.case.errors import Foreign, InputError, ProbeError, foreign, line_of
from probe.record.subject import FunctionSubject, function_recorder, nested_leaves
from probe.sizes.fixes import (
    DOC,
    INVARIANT,
    Measured,
    Remedy,
    RemedyResult,
    Timers,
    in_turns,
    judged_and_timed,
)
from probe.sizes.orders import CONTENTS, SETS, elements_apart
from probe.sizes.search import PaddedModel, SafeSize, Serves, kept_apart, taken
from probe.targets.progress import Tell
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


def of_graph(graph: PaddedModel, sizes: Sequence[SafeSize], model: Any) -> InvariantResult:
    """Makes a model, as it was given or a file, invariant over the contents and the full size, and
    compares its runs."""
    contents = sorted({*(size.content for size in sizes), graph.fixed})
    wanted = {"batch": contents}
    if set(graph.along.values()) != {0}:
        batches = {array.shape[0] for array in graph.arrays.values() if array.ndim}
        wanted = {"batch": sorted(batches), "length": contents}

    def compare(result: InvariantResult) -> None:
        result.keeps = True
        for sized in sizes:  # each at its least size and at the full one, and as it is there
            content = sized.content
            boxes = sized.at_least.boxes or graph.boxes(content)
            for seed in SEEDS:
                short, whole = (
                    foreign(calls_in_mode(result, graph.inputs(content, size, seed)))
                    for size in (sized.least, graph.fixed)
                )
                result.differing += kept_apart(short, boxes, taken(whole, boxes))
                unchanged = graph.run(content, graph.fixed, seed)
                result.keeps &= not any(map(elements_apart, unchanged, whole))

    inputs = graph.inputs(graph.fixed, graph.fixed)
    return compared_in_mode(graph.opened, model, wanted, inputs, compare)


def compared_in_mode(
    opened: Any,
    model: Any,
    sizes: Mapping[str, list[int]],
    inputs: Mapping[str, np.ndarray],
    compare: Callable[[InvariantResult], None],
) -> InvariantResult:
    """Makes a model invariant over some sizes, and says what became of it.

    ``inputs``: its own at the full size. ``compare``: fills in what differs. What was raised is a
    refusal: a library refuses what it likes, by any class.
    """
    try:
        accepted = _as_accepted(opened, model, inputs)
        arrays = isinstance(opened, FunctionSubject) and accepted is not opened.function
        arrays = arrays and not opened.torch
        example = tuple(inputs.values())
        if not arrays and callable(accepted) and FunctionSubject(accepted).torch:
            torch = import_module("torch")  # a module takes tensors
            example = tuple(torch.from_numpy(np.array(array)) for array in example)
        make = partial(import_module("probe.sizes.stable").invariant, example=example)
        made, report = foreign(make, accepted, sizes)  # which runs the model
        result = InvariantResult(model=made, report=report, of_arrays=arrays)
        compare(result)
    except (Foreign, ProbeError, MemoryError) as error:
        if isinstance(error, InputError):
            return InvariantResult(f"{error.why}; {error.todo}" if error.todo else error.why)
        return InvariantResult(str(error) if isinstance(error, ProbeError) else line_of(error, 200))
    said = report.to_json()
    kinds = ("left", "limited") if "length" in sizes else ("left",)
    doubts = [f"{name}: {why}" for kind in kinds for name, why in said.get(kind, {}).items()]
    result.refusal = "; ".join(doubts[:2]) + f"; and {len(doubts) - 2} more" * (len(doubts) > 2)
    result.notes = [*map(str, said.get("notes", ()))]
    return result


def of_runs(
    opened: Any,
    model: Any,
    sizes: Mapping[str, list[int]],
    runs: Sequence[Mapping[str, np.ndarray]],
    differing: Callable[[Sequence[np.ndarray], Sequence[np.ndarray]], int],
) -> InvariantResult:
    """As ``compared_in_mode``, of two runs, the larger one second. ``differing``: counts the
    outputs of both that must agree and don't."""

    def compare(result: InvariantResult) -> None:
        result.differing = differing(*(foreign(calls_in_mode(result, ins)) for ins in runs))

    return compared_in_mode(opened, model, sizes, runs[1], compare)


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
        inner = getattr(opened, "inner", None)
        return inner.function if isinstance(inner, FunctionSubject) else model
    function = opened.of_arrays(inputs)
    if opened.torch and function is opened.function:
        return function
    recorder: Any = opened.recorder(inputs)
    kind = type(getattr(recorder, "inner", recorder)).__module__
    if kind != "probe.record.recorders.torch":
        return opened.function
    torch = import_module("torch")

    class MeasuredFunction(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            if opened.torch:  # one that is called by names of its arguments
                self.model = opened.function

        def forward(self, *arrays: Any) -> Any:
            return function(*arrays)

    return MeasuredFunction().eval()


DOCS = {
    "default": "inputs padded to the least size that has all outputs",
    "pad": "inputs padded to the least size that changes no bit",
    "fixed": "inputs always padded to the full size",
}


@dataclass
class ModelQuestion:
    """What could keep a model's bits at the sizes of contents that were searched for.

    ``at``: the content whose costs are told, one of the ``sizes``. ``wanted``: names of remedies;
    none: all. ``invariant``: the run in that mode.
    """

    graph: PaddedModel
    sizes: Sequence[SafeSize]
    at: int
    model: Any = None
    wanted: Sequence[str] = ()
    invariant: InvariantResult | None = None

    @property
    def where(self) -> Target:
        return Target.parse(self.graph.text)

    def measured(self, subject: Any, vary: str, progress: Tell | None = None) -> Measured:
        """All remedies, judged and timed; ``subject``: as of ``Measured``."""
        results = judged_and_timed(self, progress)
        contents = tuple(size.content for size in self.sizes)
        about = contents, self.graph.fixed, self.at, results
        return Measured(subject, self.where, *about, vary=vary)

    def candidates(self) -> list[Remedy]:
        """InputError: a name is none of the target's remedies."""
        known = {name: Remedy(name, self.where, doc, pads=True) for name, doc in DOCS.items()}
        known[INVARIANT] = Remedy(INVARIANT, self.where, DOC)
        usual = [*DOCS, *[INVARIANT] * (self.model is not None)]
        names = ["default", *self.wanted] if self.wanted else usual
        if unknown := [name for name in names if name not in known]:
            why = "there is no such remedy of a model"
            raise InputError("only", unknown[0], why, f"use {', '.join(known)}")
        return [known[name] for name in dict.fromkeys(names)]

    def judged(self, remedy: Remedy) -> Iterator[RemedyResult]:
        graph, sizes, result = self.graph, self.sizes, RemedyResult(remedy)
        result.sizes = tuple(size.least for size in sizes)
        if remedy.name == INVARIANT:
            self.invariant = mode = of_graph(graph, sizes, self.model)
            if mode.report is not None:
                result.compared = len(sizes)
            result.differing, result.keeps, result.refusal = (
                mode.differing,
                mode.keeps,
                mode.refusal,
            )
            if mode.differing:
                result.refusal = f"{mode.differing:,} kept outputs have different bits"
        else:
            serves = {"default": [s.at_least for s in sizes], "pad": [s.at_safe for s in sizes]}
            if remedy.name != "default":
                safe = [graph.fixed if remedy.name == "fixed" else size.safe for size in sizes]
                result.sizes = tuple(safe)
            count_verdicts(result, serves.get(remedy.name, [graph.own(self.at)] * len(sizes)))
            result.keeps = True
        yield result

    def timers(self, results: Sequence[RemedyResult]) -> Timers:
        """Paddings to one size are one call."""
        timers, known = dict[tuple[int, int], Any](), dict[Any, Any]()
        place = [size.content for size in self.sizes].index(self.at)
        for number, result in enumerate(results):
            name, pads = result.remedy.name, result.remedy.pads
            mode = self.invariant if name == INVARIANT else None
            if not pads and (mode is None or mode.report is None):
                continue
            for content, size in ((self.at, result.sizes[place]), (self.graph.fixed,) * 2):
                key = name * (not pads), size
                if key not in known:
                    inputs = self.graph.inputs(self.at, size)
                    call = calls_in_mode(mode, inputs) if mode else self.graph.call(self.at, size)
                    known[key] = partial(_seconds_of_call, call)
                timers[number, content] = known[key]
        return timers


def count_verdicts(result: RemedyResult, serves: Sequence[Serves]) -> None:
    """Counts the contents at whose sizes a remedy changes bits; what is in the way first."""
    verdicts = [_verdict_at_size(served) for served in serves]
    both = zip(serves, verdicts, strict=True)
    doubts = (f"{served.name}: {served.why}" for served, word in both if word != "exact")
    result.compared, result.refusal = len(serves), next(doubts, "")
    result.differing, result.unknown = verdicts.count("differs"), verdicts.count("not known")
    result.sets = min((served.sets for served in serves if served.sets), default=0)


def _verdict_at_size(served: Serves) -> str:
    # lacking: no shorter size has the outputs, so it is the full one
    if served.lacking or (served.serves and served.by_order == "same"):
        return "exact"
    return "differs" if not served.serves and served.by_order == "differs" else "not known"


def _seconds_of_call(run: Callable[[], Any], _: float = 0.0) -> Sequence[float]:
    begun = time.perf_counter()
    run()
    return (time.perf_counter() - begun,)


def timed_in_turns(
    calls: Mapping[Any, Callable[[], Any]], of: Callable[[Any], Any] = np.median
) -> dict[Any, float]:
    """Seconds by name, run in turns: the medians, or what ``of`` makes of each's."""
    took = in_turns({name: partial(_seconds_of_call, run) for name, run in calls.items()})
    return {name: float(of(times)) for name, times in took.items()}
