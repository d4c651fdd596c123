"""Puts constants in behind operations, where only padding would be computed.

A network's receptive field may be much longer than the content: padding the inputs then computes
mostly what padding alone gives. Those entries are constants, known from one run of padding alone at
the full size. So each operation is run by itself on what may read content, with as many constants
behind as it takes to compute the entries that are kept as in the full run; what it gives is cut
there, and gets constants behind it for the operations that read it. Cuts cost calls and save work:
where an operation computes few further entries that are right, it is left to do so. What a plan
says is run operation by operation and has to give the full run's bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from probe.errors import InputError
from probe.layout import CONTIGUOUS
from probe.padding.computing import in_layout, layouts_of
from probe.padding.kept import Box
from probe.padding.positions import At, Linked, NotDerived
from probe.padding.search import PaddedModel
from probe.recording.contract import CONSTANT, Operation
from probe.recording.judging import Judged
from probe.recording.recording import Run, Value
from probe.recording.store import ProcessStore, array_digest
from probe.semantics import Joins, Picks, Step, Steps

# Contents on which a plan is run, the first one as it was recorded.
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

    ``by_order``, ``in_the_way``, ``why``, ``certified``, ``given``: as of ``search.Serves``.
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
    certified: bool = True
    given: str = ""
    proved: int = 0
    contiguous: bool = False
    constants: list[np.ndarray] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Returns plain numbers and texts, without the constants."""
        found = vars(self) | {"certified_for": self.given or None}
        del found["constants"], found["sizes"], found["given"], found["contiguous"]
        found["boxes"] = [None if box is None else [vars(p) for p in box] for box in self.boxes]
        found["kept"] = found.pop("boxes")
        found["splices"] = [
            {name: one for name, one in vars(each).items() if name != "value"}
            for each in self.splices
        ]
        return found


def sought(graph: PaddedModel, content: int, below: int, cut: float = CUT) -> Between | None:
    """Returns a cheap way to run content with constants put in, whose inputs take less than
    ``below``; None: there is none. ``cut``: as of ``CUT``. Errors as of ``PaddedModel``."""
    if graph.positions is None:
        return None
    for each in dict.fromkeys((cut, 0)):  # no saving is worth a cut of small models
        try:
            found = _Sizes(graph, content, each).between()
        except (NotDerived, InputError):
            return None
        if found is not None and found.splices and found.size < below:
            return found if _gives_full_bits(graph, found) else None
    return None


class _Sizes:
    """The sizes of all values for content: see ``between``."""

    def __init__(self, graph: PaddedModel, content: int, cut: float) -> None:
        assert graph.positions is not None
        self.graph, self.content, self.cut = graph, content, cut
        self.positions, self.operations = graph.positions, graph.positions.full.operations
        self.sizes: dict[int, int] = {}
        self.kept = {
            n: int((np.flatnonzero((one < content) & (graph.weights[n] < content))[-1:] + 1).sum())
            for n, one in graph.read.items()
        }
        self.readers: dict[int, list[Linked]] = {}
        for one in self.positions.linked:
            for n in one.operands:
                self.readers.setdefault(n, []).append(one)

    def between(self) -> Between | None:
        """Returns the splices; None where what an operation reads can't be cut."""
        together = self._together()
        for one in reversed(self.positions.linked):  # its readers come before an operation
            for n in (*one.gives, *one.operands):
                if n in self.readers and n not in self.sizes:
                    group = together[n]
                    size = self._size(group)
                    self.sizes.update(dict.fromkeys(group, size))
        made = Between(
            self.content,
            max(self.sizes[n] for n in self.positions.inputs if n in self.sizes),
            [],
            self.graph.boxes(self.content),
        )
        doubts: list[tuple[str, str]] = []
        for one in self.positions.linked:
            right, natural, doubt = self._right(one, [self.sizes[n] for n in one.operands])
            if any(right[n] < self.kept[n] for n in one.gives):
                return None
            for name, told in doubt:
                doubts += [(name, told.why)] * bool(told.why)
                made.certified &= told.certified or told.how == "exact"
                made.given = made.given or f"{told.given} at {name}" * bool(told.given)
            self._splice(made, one, right, natural)
        made.sizes, made.why = self.sizes, self.graph.as_one
        made.certified &= not made.why
        if doubts:
            made.by_order, made.certified = "unknown", False
            made.in_the_way, made.why = doubts[0]
        return made

    def _splice(
        self, made: Between, one: Linked, right: dict[int, int], natural: dict[int, int]
    ) -> None:
        operation = self.operations[one.number]
        for n in one.gives:
            axis, size = self.positions.axis(n), self.sizes.get(n)
            if axis is None or size is None or (natural[n] == size and right[n] >= size):
                continue
            start, output = min(right[n], size), list(operation.gives).index(n)
            made.splices.append(Splice(operation.name, operation.op, output, axis, start, size, n))

    def _together(self) -> dict[int, set[int]]:
        """Returns of each value those that have its size: operands of one operation have, and the
        inputs, which are padded to one."""
        found = {n: {n} for n in self.readers}
        groups = [[n for n in self.positions.inputs if n in found]]
        for one in self.positions.linked:
            if len({self.positions.length(n) for n in one.operands}) > 1:
                raise NotDerived("an operation reads arrays of several lengths")
            groups.append(list(one.operands))
        for some in groups:
            joined = set().union(*(found[n] for n in some))
            found.update(dict.fromkeys(joined, joined))
        return found

    def _size(self, group: set[int]) -> int:
        """Returns the least size at which each operation that reads one of these gives what is kept
        of its results, or, where that saves a cut, all that is read of them."""
        readers = list({one.number: one for n in group for one in self.readers[n]}.values())
        full = self.positions.length(next(iter(group)))
        least = max([1, *(self.kept[n] for n in group)])
        needed = least
        for one in readers:
            own = self._least(one, full, least, dict(self.kept))
            wanted = {n: self.sizes.get(n, self.kept[n]) for n in one.gives}
            more = self._least(one, full, own, self.kept | wanted)
            saved = (more - own) * self._products(one) <= self.cut
            needed = max(needed, more if saved else own)
        for size in range(needed, full):
            if all(self._serves(one, size, self.kept) for one in readers):
                return size
        return full

    def _least(self, one: Linked, full: int, start: int, wanted: dict[int, int]) -> int:
        ends = [0]
        for operand in one.operands:
            for n in one.gives:
                reach = one.reads[operand][n].reach[: wanted[n]]
                ends.append(int(reach[-1]) + 1 if len(reach) else 0)
        sizes = range(max(start, *ends), full)
        return next((size for size in sizes if self._serves(one, size, wanted)), full)

    def _serves(self, one: Linked, size: int, wanted: dict[int, int]) -> bool:
        right, _, _ = self._right(one, [size] * len(one.operands), wanted)
        return all(right[n] >= wanted[n] for n in one.gives)

    def _right(
        self, one: Linked, sizes: Sequence[int], wanted: dict[int, int] | None = None
    ) -> tuple[dict[int, int], dict[int, int], list[tuple[str, Judged]]]:
        """Returns how many of an operation's first results are the full run's where its operands
        are that run's first entries, how many it gives, and what is known of how it computes them.
        ``wanted``: nothing is asked of it where there are fewer anyway."""
        positions = self.positions
        every = {n: positions.length(n) for n in one.gives}
        gives, met = positions.gives(one, sizes)
        if gives is not None and met is None:
            return every, every, []
        if gives is None or min(gives) < 1:
            return dict.fromkeys(one.gives, -1), every, []
        given = dict(zip((*one.operands, *one.gives), (*sizes, *gives), strict=True))
        natural = {n: given[n] for n in one.gives}
        right = positions.leading(one, given)
        if wanted is not None and any(right[n] < wanted[n] for n in one.gives):
            return right, natural, []
        if not any(one is each for each in self.graph.computing.deciding):
            return right, natural, []
        # in each layout that users have: of the sums contiguous memory alone is asked about
        _cut_at(right, self.graph.computing.glance(one, At(given, given)))
        if wanted is not None and any(right[n] < wanted[n] for n in one.gives):
            return right, natural, []
        asked = self.graph.computing.at(one, At(given, given), None)
        if asked is None:
            return right, natural, []
        if not asked.found.how:  # it could not be asked
            return dict.fromkeys(one.gives, -1), natural, []
        _cut_at(right, asked.apart)
        return right, natural, [(asked.name, asked.found)]

    def _products(self, one: Linked) -> float:
        """Returns about how many products an operation takes for one more position."""
        run, operation = self.positions.full, self.operations[one.number]
        axes = self.positions.axes
        weights = [prod(run.values[n].shape) for n in operation.reads if n not in axes]
        given = [prod(run.values[n].shape) / max(self.positions.length(n), 1) for n in one.gives]
        return float(max([*weights, *given]))


def _cut_at(right: dict[int, int], apart: Mapping[int, np.ndarray]) -> None:
    """Lowers the number of right results of each output to that before the first different bits."""
    for n, some in apart.items():
        right[n] = min([right[n], *np.flatnonzero(some)[:1].tolist()])


def spliced(
    graph: PaddedModel, found: Between, given: Mapping[str, np.ndarray], word: str = CONTIGUOUS
) -> Run:
    """Runs content with the constants put in, operation by operation; what was run, of which each
    splice is an operation. ``given``: content padded to the size, by inputs' names. ``word``: how
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
        arrays[n] = given[named[run.values[n].digest]]
        values[n] = _valued(run.values[n], arrays[n], store, -1)
    now = {n: n for n in range(len(values))}  # the number that a value has behind its splice
    linked = {one.number: one for one in positions.linked}
    splices = {one.value: (one, a) for one, a in zip(found.splices, found.constants, strict=True)}
    for operation in run.operations:
        own = operation
        reads = tuple(now[n] for n in operation.reads)
        if (one := linked.get(operation.number)) is not None:
            sizes = {n: found.sizes[n] for n in one.operands}
            gives, _ = positions.gives(one, [sizes[n] for n in one.operands])
            assert gives is not None
            wanted = sizes | dict(zip(one.gives, gives, strict=True))
            own = graph.computing.resized(one, wanted)[1]
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
                made, constants = splices[n]
                now[n] = _add_splice(made, constants, arrays, values, operations, store)
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
    one: Splice,
    constants: np.ndarray,
    arrays: dict[int, np.ndarray],
    values: list[Value],
    operations: list[Operation],
    store: ProcessStore,
) -> int:
    """Adds a splice as an operation that reads the value and the constants; the result's number."""
    before, axis = arrays[one.value], one.axis
    picks, joins = Picks(axis=axis, index=np.arange(one.start)), Joins(axis)
    kept = (*before.shape[:axis], one.start, *before.shape[axis + 1 :])
    whole = np.concatenate([np.take(before, range(one.start), axis), constants], axis)
    meaning = Steps((Step(picks, (0,), kept), Step(joins, (2, 1), whole.shape)))
    tail, number, start = len(values), len(values) + 1, one.start

    def again(reads: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [np.concatenate([np.take(reads[0], range(start), axis), reads[1]], axis)]

    values.append(replace(_valued(values[one.value], constants, store, -1), role=CONSTANT))
    values.append(_valued(values[one.value], whole, store, len(operations)))
    arrays[number], name = whole, f"splice behind {one.operation}"
    operations.append(
        Operation(
            *("splice", "", (one.value, tail), (number,), meaning),
            again=again,
            name=name,
            number=len(operations),
        )
    )
    return number


def _gives_full_bits(graph: PaddedModel, found: Between) -> bool:
    """Runs it on several contents: whether each gives the full run's bits. In another memory format
    that users have, with the constants that padding alone gives there."""
    assert graph.positions is not None
    numbers = [one.value for one in found.splices]
    found.constants = _constants(found, graph.nothing.arrays(numbers))
    lengths = {n: graph.positions.length(n) for n in found.sizes}
    plain = replace(found, splices=[], constants=[], sizes=lengths)
    every = map(layouts_of, graph.positions.full.operations)
    try:
        for word in {word for each in every for word in each} - {CONTIGUOUS}:
            padding = spliced(graph, plain, graph.inputs(0, graph.fixed), word)
            turned = replace(found, constants=_constants(found, padding.arrays(numbers)))
            both = zip(found.constants, turned.constants, strict=True)
            found.contiguous |= any(a.tobytes() != b.tobytes() for a, b in both)
            for seed in range(SETS):  # no user runs the whole model here: it is run without cuts
                content = graph.inputs(found.content, graph.fixed, seed)
                full = spliced(graph, plain, content, word)
                if not _agrees(graph, turned, seed, word, full.results):
                    return False
        for seed in range(SETS):
            whole = graph.run(found.content, graph.fixed, seed)
            if not _agrees(graph, found, seed, CONTIGUOUS, whole):
                return False
            found.proved += 1
    except Exception:  # a library says no as it likes
        return False
    return True


def _constants(found: Between, padding: Mapping[int, Any]) -> list[np.ndarray]:
    """Returns the constants of all splices; ``padding``: arrays of a run of padding alone."""
    return [
        np.take(padding[one.value], range(one.start, one.size), one.axis) for one in found.splices
    ]


def _agrees(graph: PaddedModel, found: Between, seed: int, word: str, whole: Sequence[Any]) -> bool:
    """Returns whether the constants put in give the bits of a full run."""
    run = spliced(graph, found, graph.inputs(found.content, found.size, seed), word)
    both = ([np.asarray(one) for one in each] for each in (run.results, whole))
    return not graph.parted(found.content, found.boxes, *both)
