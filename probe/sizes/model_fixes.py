"""What keeps the bits of a model: ways of padding, and the invariant mode.

``default`` pads each content to the least size that has its outputs, ``pad`` to the least that
changes no bit, ``fixed`` always to the full size, which is the same call for every content.
``invariant`` runs the least size in the mode of ``probe.stable.invariant``, on several sets of
inputs; what is kept of the outputs has to have the bits of the full run. That every size adds alike
rests on what the mode checked itself: see its report.

What to pad to is written down for the user's own code, ``plan.json`` and ``padded.py``: for every
length of content the padded size, and which part of each output to keep. Some lengths are searched
for by running the model (:mod:`probe.sizes.search`); those between take the size of the next longer
one, whose outputs have all of theirs. The plan is checked on fresh contents. What was not proved
stands in it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from probe.case.errors import Foreign, InputError, ProbeError, foreign, line_of
from probe.record.subject import FunctionSubject, function_recorder, nested_leaves
from probe.sizes.bisection import SizeSearch
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
from probe.sizes.orders import CONTENTS, SETS, Box, elements_apart
from probe.sizes.search import PaddedModel, SafeSize, Serves, kept_apart, taken
from probe.targets import budget
from probe.targets.progress import Say, Tell, silent
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
                short, full = (
                    foreign(calls_in_mode(result, graph.inputs(content, size, seed)))
                    for size in (sized.least, graph.fixed)
                )
                result.differing += kept_apart(short, boxes, taken(full, boxes))
                unchanged = graph.run(content, graph.fixed, seed)
                result.keeps &= not any(map(elements_apart, unchanged, full))

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
        invariant, report = foreign(make, accepted, sizes)  # which runs the model
        result = InvariantResult(model=invariant, report=report, of_arrays=arrays)
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
    """What runs it on inputs by name, again and again."""

    def call() -> Any:
        return result.model(*inputs.values())

    try:
        of_arrays = result.of_arrays
        recorder = (
            function_recorder(call) if of_arrays else FunctionSubject(result.model).recorder(inputs)
        )
        return recorder.plain  # type: ignore[no-any-return]
    except InputError:  # what it gives are NumPy's arrays
        return lambda: [*map(np.asarray, nested_leaves(call()))]


def _as_accepted(opened: Any, model: Any, inputs: Mapping[str, np.ndarray]) -> Any:
    """What ``stable.invariant`` takes. InputError: the model runs in another process."""
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
    if kind != "probe.record.torch":
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
        remedies = {name: Remedy(name, self.where, doc, pads=True) for name, doc in DOCS.items()}
        remedies[INVARIANT] = Remedy(INVARIANT, self.where, DOC)
        usual = [*DOCS, *[INVARIANT] * (self.model is not None)]
        names = ["default", *self.wanted] if self.wanted else usual
        if unknown := [name for name in names if name not in remedies]:
            why = "there is no such remedy of a model"
            raise InputError("only", unknown[0], why, f"use {', '.join(remedies)}")
        return [remedies[name] for name in dict.fromkeys(names)]

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
            count_verdicts(result, serves.get(remedy.name, [graph.full_run(self.at)] * len(sizes)))
            result.keeps = True
        yield result

    def timers(self, results: Sequence[RemedyResult]) -> Timers:
        """Paddings to one size are one call."""
        timers, by_size = dict[tuple[int, int], Any](), dict[Any, Any]()
        place = [size.content for size in self.sizes].index(self.at)
        for number, result in enumerate(results):
            name, pads = result.remedy.name, result.remedy.pads
            mode = self.invariant if name == INVARIANT else None
            if not pads and (mode is None or mode.report is None):
                continue
            for content, size in ((self.at, result.sizes[place]), (self.graph.fixed,) * 2):
                key = name * (not pads), size
                if key not in by_size:
                    inputs = self.graph.inputs(self.at, size)
                    call = calls_in_mode(mode, inputs) if mode else self.graph.call(self.at, size)
                    by_size[key] = partial(_seconds_of_call, call)
                timers[number, content] = by_size[key]
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


# The plan of padded sizes.


# Contents, evenly spread, on which a plan is checked with inputs of their own; the first seed.
CHECKS, SEED = 12, 300

# Lengths that are searched for, at most; and how far the sizes of two may be apart, as a part of
# the longer one's and at least, until one between is searched for too.
MOST_SEARCHED, SIZES_APART, LEAST_APART = 64, 1 / 32, 8

# After which further sizes are not asked for their orders.
SECONDS = 20.0

OWN_PLACES = (
    "of each output the entries of the valid part are kept: the following ones carry a state on "
    "through the padding"
)


@dataclass(frozen=True)
class GraphStretch:
    """Neighbouring contents that are padded to one size, with the same outputs kept.

    ``least``: what the outputs' windows alone ask of the last one. ``kept``: for each output what
    is kept of it, None of one that content does not reach. ``by_order``: ``same``, or ``unknown``
    where ``in_the_way`` was compared differently.
    """

    first: int
    last: int
    least: int
    padded: int
    kept: tuple[Box | None, ...]
    by_order: str
    in_the_way: str
    sets: int

    def to_json(self) -> dict[str, Any]:
        kept = [None if box is None else [vars(part) for part in box] for box in self.kept]
        return vars(self) | {"kept": kept, "in_the_way": self.in_the_way or None}


@dataclass
class GraphPlan:
    """Padded sizes for contents. ``along``: the axis of each input that is padded.

    ``checked``: contents that were run on fresh inputs, ``failed``: those whose outputs differed; a
    plan with any must not be used. ``over``: why the search stopped early, empty if it did not.
    """

    model: str
    target: str
    fixed: int
    value: float
    along: dict[str, int]
    stretches: list[GraphStretch]
    assumed: list[str] = field(default_factory=list)
    checked: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    tried: int = 0
    over: str = ""

    @property
    def sets(self) -> int:
        """On how many fresh sets of operands each order was replayed; 0: none had to be."""
        return min((stretch.sets for stretch in self.stretches if stretch.sets), default=0)

    def to_json(self) -> dict[str, Any]:
        stretches = [stretch.to_json() for stretch in self.stretches]
        return vars(self) | {"stretches": stretches, "sets": self.sets, "over": self.over or None}

    def save(self, folder: Path) -> list[Path]:
        """Writes ``plan.json`` and ``padded.py``; their paths. OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        files = [folder / name for name in ("plan.json", "padded.py")]
        files[0].write_text(json.dumps(self.to_json()) + "\n", encoding="utf-8")
        files[1].write_text(SCRIPT, encoding="utf-8")
        return files


def padding_plan(
    graph: PaddedModel, contents: Iterable[int], model: str, tell: Say = silent
) -> GraphPlan:
    """Seeks safe sizes for all contents, and checks some. Errors as of ``PaddedModel``."""
    lengths = sorted(set(contents))
    sizes = searched(graph, lengths, tell)
    plan = GraphPlan(
        *(model, graph.text, graph.fixed, graph.value, graph.along),
        stretches=stretches(graph, lengths, sizes),
        assumed=assumptions(sizes),
        tried=len(graph.tried),
        over=next((size.over for size in sizes if size.over), ""),
    )
    plan.assumed += [OWN_PLACES] * bool(graph.carried)
    spread = np.linspace(0, len(lengths) - 1, min(CHECKS, len(lengths))).round().astype(int)
    for seed, number in enumerate(sorted(set(spread.tolist())), SEED):
        content = lengths[number]
        stretch = next(s for s in plan.stretches if s.first <= content <= s.last)
        try:
            short, full = (graph.run(content, n, seed) for n in (stretch.padded, graph.fixed))
        except InputError:  # a model may refuse other numbers
            continue
        plan.checked.append(content)
        if kept_apart(short, stretch.kept, taken(full, stretch.kept)):
            plan.failed.append(content)
    return plan


def searched(graph: PaddedModel, lengths: list[int], tell: Say) -> list[SafeSize]:
    """Sizes of some contents, the longest among them, in order: of neighbours that are padded to
    sizes far apart one between is searched for, as long as there is time. The longest content of
    each size is asked for its orders."""
    searched_before = {*graph.safe_sizes}

    def padded(place: int) -> int:
        tell(f"safe sizes: {lengths[place]:,}")
        # what serves more content serves less of it, so that shorter sizes need not be tried
        shorter = (size.safe for n, size in graph.safe_sizes.items() if n < lengths[place])
        start = max((safe for safe in shorter if safe != graph.fixed), default=0)
        return graph.sized(lengths[place], start, by_order=False).safe

    search = SizeSearch(
        padded, lambda less, more: more - less <= max(LEAST_APART, more * SIZES_APART)
    )
    for place, content in enumerate(lengths):
        if content in searched_before or place in (0, len(lengths) - 1):
            search.mark(place)
    search.bisect(0, len(lengths) - 1, most=MOST_SEARCHED)
    sizes = {lengths[place]: graph.safe_sizes[lengths[place]] for place in sorted(search.marks)}
    begun = time.monotonic()
    longest = {size.safe: size for size in sizes.values()}
    for size in longest.values():
        late = time.monotonic() - begun > SECONDS or budget.spent()
        if late or size.content in searched_before or size.safe == graph.fixed:
            continue
        tell(f"orders at size {size.safe:,}")
        del graph.safe_sizes[size.content]
        ordered = graph.sized(size.content, size.safe, named=False)
        if ordered.safe != size.safe:  # less content takes this size, too
            sizes = {n: found for n, found in sizes.items() if found.safe != size.safe}
        sizes[size.content] = ordered
    return [sizes[content] for content in sorted(sizes)]


def stretches(graph: PaddedModel, lengths: list[int], sizes: list[SafeSize]) -> list[GraphStretch]:
    """What is done for all contents: each takes the size of the next one that was searched for."""
    result, first = list[GraphStretch](), lengths[0]
    own_places = own_entries(sizes, graph.fixed)
    for size in sizes:
        at, last = size.at_safe, size.content
        words = (size.least, size.safe, at.boxes, at.by_order, at.name, at.sets)
        before = result[-1] if result else None
        if own_places:
            for content in range(first, last + 1):
                kept = tuple(
                    box
                    and tuple(
                        replace(part, stop=content) if (number, part.axis) in own_places else part
                        for part in box
                    )
                    for number, box in enumerate(at.boxes)
                )
                result.append(replace(GraphStretch(content, content, *words), kept=kept))
        elif before is not None and before.padded == size.safe:
            result[-1] = GraphStretch(before.first, last, *words)
        else:
            result.append(GraphStretch(first, last, *words))
        first = last + 1
    return result


def own_entries(sizes: list[SafeSize], fixed: int) -> set[tuple[int, int]]:
    """Outputs by number, with the axes of which just the content's own entries are kept at all
    lengths: rows of a batch, positions that read none behind them."""
    by_size = [
        {
            (number, part.axis)
            for number, box in enumerate(size.at_safe.boxes)
            for part in box or ()
            if (part.start, part.stop) == (0, size.content)
        }
        for size in sizes
        if size.content < fixed
    ]
    return set.intersection(*by_size) if by_size else set()


def assumptions(sizes: list[SafeSize]) -> list[str]:
    """What stands behind a plan beside what was run."""
    assumed = [
        "the library computes a shape in one way for all finite inputs, on this processor, with "
        "this release and as many threads; of subnormal numbers nothing is said"
    ]
    doubts = {size.at_safe.name: size.at_safe.why for size in sizes if size.at_safe.name}
    return assumed + [f"{name}: {why}" for name, why in doubts.items()]


SCRIPT = '''\
"""How far to pad inputs, and which outputs to keep. NumPy alone.

Made by probe, with plan.json beside it, for one model on one target: see "model", "target" and
"assumed" in plan.json. Paste the functions into your own code, or import this file.

    short = pad({"x": content})              # each input by its name, of the content's own size
    outputs = crop(model(short), length of the content)

What is kept has the bits of the run at the fixed size, where it stands at "start" to "stop".
"""

import json
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
PLAN = json.loads((HERE / "plan.json").read_text())


def _stretch(content):
    for stretch in PLAN["stretches"]:
        if stretch["first"] <= content <= stretch["last"]:
            return stretch
    raise ValueError(f"content={content}: the plan has no such length")


def padded_size(content):
    """The padded size for content of so many entries. ValueError: the plan has none."""
    return _stretch(content)["padded"]


def pad(inputs):
    """Inputs by name, with the plan's padding behind them along its axes."""
    found = {}
    for name, array in inputs.items():
        axis = PLAN["along"].get(name)
        if axis is not None:
            around = [(0, 0)] * array.ndim
            around[axis] = 0, padded_size(array.shape[axis]) - array.shape[axis]
            value = PLAN["value"] if array.dtype.kind == "f" else 0
            array = np.pad(array, around, constant_values=value)
        found[name] = array
    return found


def kept_index(box, ndim, short=True):
    """Where what is kept of an output stands in a padded run, or in one at the fixed size."""
    index = [slice(None)] * ndim
    for part in box:
        moved = part["offset"] if short else 0
        index[part["axis"]] = slice(part["start"] + moved, part["stop"] + moved)
    return tuple(index)


def crop(outputs, content):
    """Of the outputs of a padded run what may read content; None of an output that reads none."""
    kept = _stretch(content)["kept"]
    return [None if box is None else y[kept_index(box, y.ndim)] for box, y in zip(kept, outputs)]
'''
