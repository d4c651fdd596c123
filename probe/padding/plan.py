"""What to pad a model of any graph to, for the user's own code: ``plan.json`` and ``padded.py``.

For every length of content: the padded size, which part of each output to keep, and, of padding
alone, what completes it to the full size. Each size was judged operation by operation, and is
checked on fresh contents by running the model as users do. What was not proved stands in the plan.
Shorter sizes may serve where constants are put in behind operations: see ``Between``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from probe.errors import InputError
from probe.layout import CONTIGUOUS
from probe.padding.computing import in_layout, layouts_of
from probe.padding.positions import At, Box, Linked, NotDerived, box_index
from probe.padding.search import BY_BITS, PaddedModel, SafeSize
from probe.progress import VOICE, Say, silent
from probe.recording.contract import CONSTANT, Operation
from probe.recording.judging import Judged
from probe.recording.recording import Run, Value
from probe.recording.store import ProcessStore, array_digest
from probe.semantics import Joins, Picks, Step, Steps

# Contents, evenly spread, on which a plan is checked with inputs of their own; the first seed.
CHECKS, SEED = 12, 300

OWN_PLACES = (
    "of each output the entries of the valid part are kept: the following ones carry a state on "
    "through the padding"
)
BEHIND = (
    "entries behind the kept ones read content, or inputs that are not padded: complete() refuses, "
    "crop() gives what is kept"
)
OF_CONTIGUOUS = (
    "constants between operations were computed in contiguous memory: in torch.channels_last "
    "memory an input of padding alone gives different bits, so compute them there"
)


@dataclass(frozen=True)
class GraphStretch:
    """Neighbouring contents that are padded to one size, with the same outputs kept.

    ``least``: what the outputs' windows alone ask. ``kept``: for each output what is kept of it,
    None of one that content does not reach. ``by_order``: ``same``, or ``unknown`` where
    ``in_the_way`` was compared differently. ``given``: for which values alone; empty: for all.
    """

    first: int
    last: int
    least: int
    padded: int
    kept: tuple[Box | None, ...]
    by_order: str
    in_the_way: str
    sets: int
    given: str = ""

    def to_json(self) -> dict[str, Any]:
        kept = [None if box is None else [vars(part) for part in box] for box in self.kept]
        fields = vars(self) | {"kept": kept, "in_the_way": self.in_the_way or None}
        fields["valid_for"] = fields.pop("given") or None
        return fields


@dataclass
class GraphPlan:
    """Padded sizes for contents. ``along``: the axis of each input that is padded.

    ``constant``: the outputs of padding alone at the full size. ``completes``: what is not kept of
    a full run's outputs was theirs in all that were checked. ``checked``: contents that were
    run on fresh inputs, ``failed``: those whose outputs differed; a plan with any must not be
    used. ``over``: why the search stopped early, empty if it did not. ``between``: shorter sizes
    that take constants between operations, of some contents.
    """

    model: str
    target: str
    fixed: int
    value: float
    along: dict[str, int]
    stretches: list[GraphStretch]
    constant: list[np.ndarray]
    assumed: list[str] = field(default_factory=list)
    checked: list[int] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    tried: int = 0
    over: str = ""
    between: list[Between] = field(default_factory=list)
    completes: bool = True

    @property
    def sets(self) -> int:
        """On how many fresh sets of operands each order was replayed; 0: none had to be."""
        return min((stretch.sets for stretch in self.stretches if stretch.sets), default=0)

    def to_json(self) -> dict[str, Any]:
        fields = dict(vars(self))
        del fields["constant"]
        fields["stretches"] = [stretch.to_json() for stretch in self.stretches]
        fields["between"] = [short.to_json() for short in self.between]
        return fields | {"sets": self.sets, "over": self.over or None}

    def save(self, folder: Path) -> list[Path]:
        """Writes ``plan.json``, ``constant.npz`` and ``padded.py``; their paths. OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        files = [folder / name for name in ("plan.json", "constant.npz", "padded.py")]
        files[0].write_text(json.dumps(self.to_json()) + "\n", encoding="utf-8")
        arrays = {f"y{n}": array for n, array in enumerate(self.constant)}
        for short in self.between:
            arrays |= {f"content{short.content}.{n}": a for n, a in enumerate(short.constants)}
        np.savez(files[1], allow_pickle=False, **arrays)
        files[2].write_text(SCRIPT, encoding="utf-8")
        return files


def make(graph: PaddedModel, contents: Iterable[int], model: str, tell: Say = silent) -> GraphPlan:
    """Seeks the safe size of every content, and checks some. Errors as of ``PaddedModel``."""
    every, sizes = sorted(set(contents)), []
    start = 0
    for content in VOICE.counting(every, "valid sizes"):
        tell(f"safe sizes: {content:,} of {every[-1]:,}")
        sizes.append(graph.sized(content, start))
        start = 0 if sizes[-1].safe == graph.fixed else sizes[-1].safe
    constant = graph.run(0, graph.fixed)
    over = next((size.over for size in sizes if size.over), "")
    target, stretches = graph.nothing.target, list[GraphStretch]()
    for size in sizes:
        at, n = size.at_safe, size.content
        words = (size.least, size.safe, at.boxes, at.by_order, at.name, at.sets, at.given)
        stretch, before = GraphStretch(n, n, *words), stretches[-1] if stretches else None
        # neighbours that differ in their contents alone are one stretch
        if before and before == replace(stretch, first=before.first, last=n - 1):
            stretches[-1] = replace(before, last=n)
        else:
            stretches.append(stretch)
    plan = GraphPlan(model, target, graph.fixed, graph.value, graph.along, stretches, constant)
    plan.assumed, plan.tried, plan.over = assumptions(sizes), graph.tried, over
    if graph.own_places:
        plan.assumed.append(OWN_PLACES)
    spread = np.linspace(0, len(every) - 1, min(CHECKS, len(every))).round().astype(int)
    for seed, number in enumerate(sorted(set(spread.tolist())), SEED):
        size = sizes[number]
        plan.checked.append(size.content)
        short, whole = (graph.run(size.content, to, seed) for to in (size.safe, graph.fixed))
        if graph.parted(size.content, size.at_safe.boxes, short, whole):
            plan.failed.append(size.content)
        for box, full, rest in zip(size.at_safe.boxes, whole, constant, strict=True):
            completed = rest.copy()
            if box is not None:
                kept = box_index(box, False, full.ndim)
                completed[kept] = full[kept]
            plan.completes &= np.array_equal(completed, full, equal_nan=full.dtype.kind == "f")
    plan.assumed += [] if plan.completes else [BEHIND]
    return plan


def assumptions(sizes: list[SafeSize]) -> list[str]:
    """Returns what stands behind a plan beside what was run."""
    assumed = [
        "the library computes a shape in one way for all finite inputs, on this processor, with "
        "this release and as many threads"
    ]
    doubts = {size.at_safe.name: size.at_safe.why for size in sizes if size.at_safe.name}
    given = dict.fromkeys(size.at_safe.given for size in sizes if size.at_safe.given)
    assumed += dict.fromkeys(size.at_safe.why for size in sizes if size.at_safe.why == BY_BITS)
    assumed += [f"what is said holds for {values}" for values in given]
    return assumed + [f"{name}: {why}" for name, why in doubts.items()]


SCRIPT = '''\
"""How far to pad inputs, which outputs to keep, and what completes them. NumPy alone.

Made by probe, with plan.json and constant.npz beside it, for one model on one target: see "model",
"target" and "assumed" in plan.json. Paste the functions into your own code, or import this file.

    short = pad({"x": content})              # each input by its name, of the content's own size
    outputs = complete(model(short), length of the content)

The constants are the outputs of padding alone at the fixed size; where the rest of the outputs is
something else ("completes" in plan.json), ``complete`` refuses. ``crop`` gives what reads content
and no more, which is what a batch needs. ``between`` says what to put in behind operations, where a
shorter run is to have the same bits.
"""

import json
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
PLAN = json.loads((HERE / "plan.json").read_text())
with np.load(HERE / "constant.npz") as found:
    ARRAYS = dict(found)
COUNT = sum(name[0] == "y" for name in ARRAYS)
CONSTANT = [ARRAYS["y%d" % n] for n in range(COUNT)]


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


def _index(box, short, ndim):
    index = [slice(None)] * ndim
    for part in box:
        moved = part["offset"] if short else 0
        index[part["axis"]] = slice(part["start"] + moved, part["stop"] + moved)
    return tuple(index)


def crop(outputs, content):
    """Of the outputs of a padded run what reads content; None of an output that reads none."""
    kept = _stretch(content)["kept"]
    return [None if box is None else y[_index(box, True, y.ndim)] for box, y in zip(kept, outputs)]


def complete(outputs, content, constant=CONSTANT):
    """The fixed size's outputs, from those of the padded content and the constant rest.

    ValueError: the rest is not constant.
    """
    if not PLAN["completes"]:
        why = "entries behind the kept ones read content, or inputs that are not padded"
        raise ValueError("content=%d: %s; use crop(outputs, content)" % (content, why))
    found = []
    for box, mine, whole in zip(_stretch(content)["kept"], crop(outputs, content), constant):
        whole = whole.copy()
        if box is not None:
            whole[_index(box, False, whole.ndim)] = mine
        found.append(whole)
    return found


def between(content):
    """What to do behind operations in a run padded to PLAN's "between" size for this content.

    (operation, number of its output, axis, start, constants) for each: keep the output's entries
    before start along the axis, and put the constants behind them. KeyError: the plan has none for
    this content.
    """
    for one in PLAN["between"]:
        if one["content"] == content:
            names = ["content%d.%d" % (content, n) for n in range(len(one["splices"]))]
            return [
                (s["operation"], s["output"], s["axis"], s["start"], ARRAYS[name])
                for s, name in zip(one["splices"], names)
            ]
    raise KeyError(content)
'''


# Constants behind operations, where only padding would be computed.
#
# A network's receptive field may be much longer than the content: padding the inputs then computes
# mostly what padding alone gives. Those entries are constants, known from one run of padding alone
# at the full size. So each operation is run by itself on what may read content, with as many
# constants behind as it takes to compute the entries that are kept as in the full run; what it
# gives is cut there, and gets constants behind it for the operations that read it. Cuts cost calls
# and save work: where an operation computes few further entries that are right, it is left to do
# so. What is planned is run operation by operation and has to give the full run's bits.


# Contents on which it is run, the first one as it was recorded.
SETS = 3

# Products that a cut has to save: it takes two calls of a library, some 30 microseconds.
CUT = 500_000


@dataclass(frozen=True)
class Splice:
    """Behind an ``operation``, in its ``output`` of that number: along ``axis`` its entries up to
    ``start`` are kept, and constants put behind them, up to ``size``. ``value``: its number in the
    full run."""

    operation: str
    op: str
    output: int
    axis: int
    start: int
    size: int
    value: int


@dataclass
class Between:
    """Content padded to ``size``, with constants put in behind operations.

    ``by_order``, ``in_the_way``, ``why``, ``sets``, ``given``: as of ``search.Serves``.
    ``proved``: contents on which it gave the full run's bits; ``contiguous``: in contiguous memory
    alone, since padding gives other constants in another format. ``constants``: by place in
    ``splices``. ``sizes``: of the values along the padded axis, behind their splices.
    """

    content: int
    size: int
    splices: list[Splice]
    boxes: tuple[Box | None, ...]
    by_order: str = "same"
    in_the_way: str = ""
    why: str = ""
    sets: int = 0
    given: str = ""
    proved: int = 0
    contiguous: bool = False
    constants: list[np.ndarray] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Returns plain numbers and texts, without the constants."""
        found = vars(self) | {"valid_for": self.given or None}
        del found["constants"], found["sizes"], found["given"], found["contiguous"]
        found["boxes"] = [None if box is None else [vars(p) for p in box] for box in self.boxes]
        found["kept"] = found.pop("boxes")
        found["splices"] = [
            {name: one for name, one in vars(each).items() if name != "value"}
            for each in self.splices
        ]
        return found


def sought_between(
    graph: PaddedModel, content: int, below: int, cut: float = CUT
) -> Between | None:
    """Returns a cheap way to run content with constants put in, whose inputs take less than
    ``below``; None: there is none. ``cut``: as of ``CUT``. Errors as of ``PaddedModel``."""
    if graph.positions is None:
        return None
    for each in dict.fromkeys((cut, 0)):  # no saving is worth a cut of small models
        try:
            between = _Sizes(graph, content, each).between()
        except (NotDerived, InputError):
            return None
        if between is not None and between.splices and between.size < below:
            return between if _gives_full_bits(graph, between) else None
    return None


class _Sizes:
    """The sizes of all values for content."""

    def __init__(self, graph: PaddedModel, content: int, cut: float) -> None:
        assert graph.positions is not None
        self.graph, self.content, self.cut = graph, content, cut
        self.positions, self.operations = graph.positions, graph.positions.full.operations
        self.sizes: dict[int, int] = {}
        self.kept = {
            n: int(
                (np.flatnonzero((lowest < content) & (graph.weights[n] < content))[-1:] + 1).sum()
            )
            for n, lowest in graph.read.items()
        }
        self.readers: dict[int, list[Linked]] = {}
        for link in self.positions.linked:
            for n in link.operands:
                self.readers.setdefault(n, []).append(link)

    def between(self) -> Between | None:
        """Returns the splices; None where what an operation reads can't be cut."""
        together = self._together()
        for link in reversed(self.positions.linked):  # its readers come before an operation
            for n in (*link.gives, *link.operands):
                if n in self.readers and n not in self.sizes:
                    group = together[n]
                    size = self._size(group)
                    self.sizes.update(dict.fromkeys(group, size))
        between = Between(
            self.content,
            max(self.sizes[n] for n in self.positions.inputs if n in self.sizes),
            [],
            self.graph.boxes(self.content),
        )
        doubts: list[tuple[str, str]] = []
        for link in self.positions.linked:
            right, natural, doubt = self._right(link, [self.sizes[n] for n in link.operands])
            if any(right[n] < self.kept[n] for n in link.gives):
                return None
            for name, judged in doubt:
                doubts += [(name, judged.why)] * bool(judged.why)
                between.sets = min(between.sets or judged.sets, judged.sets or between.sets)
                between.given = between.given or f"{judged.given} at {name}" * bool(judged.given)
            operation = self.operations[link.number]
            for output, n in enumerate(operation.gives):
                axis, wanted = self.positions.axis(n), self.sizes.get(n)
                if n not in link.gives or axis is None or wanted is None:
                    continue
                if natural[n] != wanted or right[n] < wanted:
                    place = (operation.name, operation.op, output, axis)
                    between.splices.append(Splice(*place, min(right[n], wanted), wanted, n))
        between.sizes, between.why = self.sizes, self.graph.as_one
        if doubts:
            between.by_order = "unknown"
            between.in_the_way, between.why = doubts[0]
        return between

    def _together(self) -> dict[int, set[int]]:
        """Returns of each value those that have its size: operands of one operation have, and the
        inputs, which are padded to one."""
        together = {n: {n} for n in self.readers}
        groups = [[n for n in self.positions.inputs if n in together]]
        for link in self.positions.linked:
            if len({self.positions.length(n) for n in link.operands}) > 1:
                raise NotDerived("an operation reads arrays of several lengths")
            groups.append(list(link.operands))
        for some in groups:
            joined = set().union(*(together[n] for n in some))
            together.update(dict.fromkeys(joined, joined))
        return together

    def _size(self, group: set[int]) -> int:
        """Returns the least size at which each operation that reads one of these gives what is kept
        of its results, or, where that saves a cut, all that is read of them."""
        readers = list({link.number: link for n in group for link in self.readers[n]}.values())
        full = self.positions.length(next(iter(group)))
        least = max([1, *(self.kept[n] for n in group)])
        needed = least
        for link in readers:
            own = self._least(link, full, least, dict(self.kept))
            wanted = {n: self.sizes.get(n, self.kept[n]) for n in link.gives}
            more = self._least(link, full, own, self.kept | wanted)
            saved = (more - own) * self._products(link) <= self.cut
            needed = max(needed, more if saved else own)
        for size in range(needed, full):
            if all(self._serves(link, size, self.kept) for link in readers):
                return size
        return full

    def _least(self, link: Linked, full: int, start: int, wanted: dict[int, int]) -> int:
        ends = [0]
        for operand in link.operands:
            for n in link.gives:
                reach = link.reads[operand][n].reach[: wanted[n]]
                ends.append(int(reach[-1]) + 1 if len(reach) else 0)
        sizes = range(max(start, *ends), full)
        return next((size for size in sizes if self._serves(link, size, wanted)), full)

    def _serves(self, link: Linked, size: int, wanted: dict[int, int]) -> bool:
        right, _, _ = self._right(link, [size] * len(link.operands), wanted)
        return all(right[n] >= wanted[n] for n in link.gives)

    def _right(
        self, link: Linked, sizes: Sequence[int], wanted: dict[int, int] | None = None
    ) -> tuple[dict[int, int], dict[int, int], list[tuple[str, Judged]]]:
        """Returns how many of an operation's first results are the full run's where its operands
        are that run's first entries, how many it gives, and what is known of how it computes them.
        ``wanted``: nothing is asked of it where there are fewer anyway."""
        positions = self.positions
        every = {n: positions.length(n) for n in link.gives}
        gives, met = positions.gives(link, sizes)
        if gives is not None and met is None:
            return every, every, []
        if gives is None or min(gives) < 1:
            return dict.fromkeys(link.gives, -1), every, []
        counts = dict(zip((*link.operands, *link.gives), (*sizes, *gives), strict=True))
        natural = {n: counts[n] for n in link.gives}
        right = positions.leading(link, counts)
        if wanted is not None and any(right[n] < wanted[n] for n in link.gives):
            return right, natural, []
        if not any(link is each for each in self.graph.computing.deciding):
            return right, natural, []
        # in each layout that users have: of the sums contiguous memory alone is asked about
        _cut_at(right, self.graph.computing.glance(link, At(counts, counts)))
        if wanted is not None and any(right[n] < wanted[n] for n in link.gives):
            return right, natural, []
        sized = self.graph.computing.at(link, At(counts, counts), None)
        if sized is None:
            return right, natural, []
        if not sized.found.how:  # it could not be asked
            return dict.fromkeys(link.gives, -1), natural, []
        _cut_at(right, sized.apart)
        return right, natural, [(sized.name, sized.found)]

    def _products(self, link: Linked) -> float:
        """Returns about how many products an operation takes for one more position."""
        run, operation = self.positions.full, self.operations[link.number]
        axes = self.positions.axes
        weights = [prod(run.values[n].shape) for n in operation.reads if n not in axes]
        results = [prod(run.values[n].shape) / max(self.positions.length(n), 1) for n in link.gives]
        return float(max([*weights, *results]))


def _cut_at(right: dict[int, int], apart: Mapping[int, np.ndarray]) -> None:
    """Lowers the number of right results of each output to that before the first different bits."""
    for n, some in apart.items():
        right[n] = min([right[n], *np.flatnonzero(some)[:1].tolist()])


def spliced(
    graph: PaddedModel, between: Between, inputs: Mapping[str, np.ndarray], word: str = CONTIGUOUS
) -> Run:
    """Runs content with the constants put in, operation by operation; what was run, of which each
    splice is an operation. ``inputs``: content padded to the size, by their names. ``word``: how
    the input of an operation lies in memory, where a target's users may have it so. Errors: what an
    operation raises."""
    assert graph.positions is not None
    full, positions = graph.positions.full, graph.positions
    run, store = full, ProcessStore(full.store)
    values, operations = list(run.values), list[Operation]()
    arrays: dict[int, np.ndarray] = {}
    named = {
        array_digest(array): name for name, array in graph.inputs(graph.fixed, graph.fixed).items()
    }
    for n in positions.inputs:
        arrays[n] = inputs[named[run.values[n].digest]]
        values[n] = _valued(run.values[n], arrays[n], store, -1)
    now = {n: n for n in range(len(values))}  # the number that a value has behind its splice
    linked = {link.number: link for link in positions.linked}
    splices = {
        splice.value: (splice, a)
        for splice, a in zip(between.splices, between.constants, strict=True)
    }
    for operation in run.operations:
        own = operation
        reads = tuple(now[n] for n in operation.reads)
        if (link := linked.get(operation.number)) is not None:
            sizes = {n: between.sizes[n] for n in link.operands}
            gives, _ = positions.gives(link, [sizes[n] for n in link.operands])
            assert gives is not None
            wanted = sizes | dict(zip(link.gives, gives, strict=True))
            own = graph.computing.resized(link, wanted)[1]
            before = [arrays[n] if n in arrays else full.array(n) for n in reads]
            if any(array is None for array in before):
                why = "what an operation reads was left out"
                raise InputError("recording", operation.name, why, "")
            again: Any = own.again
            if word in layouts_of(own):
                again = in_layout(again, word)
            with np.errstate(all="ignore"):
                results = again([np.array(array, order="C") for array in before])
            for n, array in zip(operation.gives, results, strict=False):
                arrays[n] = np.ascontiguousarray(array)
                values[n] = _valued(run.values[n], arrays[n], store, len(operations))
        operations.append(replace(own, reads=reads, number=len(operations)))
        for n in operation.gives:
            if n in splices:
                splice, constants = splices[n]
                now[n] = _add_splice(splice, constants, arrays, values, operations, store)
    outputs = tuple(now[n] for n in run.outputs)
    return replace(
        full, values=values, operations=operations, outputs=outputs, store=store, alone=None
    )


def _valued(value: Value, array: np.ndarray, store: ProcessStore, given: int) -> Value:
    return replace(
        value,
        shape=array.shape,
        digest=store.put(np.ascontiguousarray(array)),
        given=given,
        content=None,
        zeros=None,
        address=None,
    )


def _add_splice(
    splice: Splice,
    constants: np.ndarray,
    arrays: dict[int, np.ndarray],
    values: list[Value],
    operations: list[Operation],
    store: ProcessStore,
) -> int:
    """Adds a splice as an operation that reads the value and the constants; the result's number."""
    before, axis = arrays[splice.value], splice.axis
    picks, joins = Picks(axis=axis, index=np.arange(splice.start)), Joins(axis)
    kept = (*before.shape[:axis], splice.start, *before.shape[axis + 1 :])
    whole = np.concatenate([np.take(before, range(splice.start), axis), constants], axis)
    meaning = Steps((Step(picks, (0,), kept), Step(joins, (2, 1), whole.shape)))
    tail, number, start = len(values), len(values) + 1, splice.start

    def again(reads: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [np.concatenate([np.take(reads[0], range(start), axis), reads[1]], axis)]

    values.append(replace(_valued(values[splice.value], constants, store, -1), role=CONSTANT))
    values.append(_valued(values[splice.value], whole, store, len(operations)))
    arrays[number], name = whole, f"splice behind {splice.operation}"
    operations.append(
        Operation(
            *("splice", "", (splice.value, tail), (number,), meaning),
            again=again,
            name=name,
            number=len(operations),
        )
    )
    return number


def _gives_full_bits(graph: PaddedModel, between: Between) -> bool:
    """Runs it on several contents: whether each gives the full run's bits. In another memory format
    that users have, with the constants that padding alone gives there."""
    assert graph.positions is not None
    numbers = [splice.value for splice in between.splices]
    between.constants = _constants(between, graph.nothing.arrays(numbers))
    lengths = {n: graph.positions.length(n) for n in between.sizes}
    plain = replace(between, splices=[], constants=[], sizes=lengths)
    every = map(layouts_of, graph.positions.full.operations)
    try:
        for word in {word for each in every for word in each} - {CONTIGUOUS}:
            padding = spliced(graph, plain, graph.inputs(0, graph.fixed), word)
            turned = replace(between, constants=_constants(between, padding.arrays(numbers)))
            both = zip(between.constants, turned.constants, strict=True)
            between.contiguous |= any(a.tobytes() != b.tobytes() for a, b in both)
            for seed in range(SETS):  # no user runs the whole model here: it is run without cuts
                content = graph.inputs(between.content, graph.fixed, seed)
                full = spliced(graph, plain, content, word)
                if not _agrees(graph, turned, seed, word, full.results):
                    return False
        for seed in range(SETS):
            whole = graph.run(between.content, graph.fixed, seed)
            if not _agrees(graph, between, seed, CONTIGUOUS, whole):
                return False
            between.proved += 1
    except Exception:  # a library says no as it likes
        return False
    return True


def _constants(between: Between, padding: Mapping[int, Any]) -> list[np.ndarray]:
    """Returns the constants of all splices; ``padding``: arrays of a run of padding alone."""
    return [
        np.take(padding[splice.value], range(splice.start, splice.size), splice.axis)
        for splice in between.splices
    ]


def _agrees(
    graph: PaddedModel, between: Between, seed: int, word: str, whole: Sequence[Any]
) -> bool:
    """Returns whether the constants put in give the bits of a full run."""
    run = spliced(graph, between, graph.inputs(between.content, between.size, seed), word)
    both = ([np.asarray(array) for array in each] for each in (run.results, whole))
    return not graph.parted(between.content, between.boxes, *both)
