"""The least padded size of a model at which no bit of what is kept changes, found by running it.

Content of n entries along an axis (positions of a length, rows of a batch) is padded to a size, as
users do, and run unwatched. The run at the full size is the reference. What of its outputs changes
with the content is kept; a size that has all of that, and reads nothing behind it, is ``least``.
Sizes from there on are tried in order on all sets of operands, until one gives the same bits; that
one alone is asked for the orders of its sums, which tell of other data too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np

from probe.case.errors import (
    Foreign,
    InputError,
    Nondeterministic,
    ProbeError,
    TargetError,
    foreign,
)
from probe.diff.alone import Known
from probe.diff.apart import WholeFile
from probe.diff.difference import Difference
from probe.diff.repeated import Marks, contents, repeated_with_others
from probe.record.contract import Recorder
from probe.record.recording import Run, record_run
from probe.record.subject import run_unwatched
from probe.sizes import orders
from probe.sizes.bisection import SizeSearch
from probe.sizes.orders import (
    CONTENTS,
    SETS,
    Arrays,
    Box,
    KeptPart,
    box_index,
    box_of,
    elements_apart,
    near,
    operand_set,
    placed,
    places_behind,
)
from probe.targets import budget

# Sizes below the full one of which some has to share outputs with it; else the axis is read as a
# whole, or from its other end.
SHORTER = 32

# Seconds after which no further size is tried.
SECONDS = 240.0

# Times eps and the largest number, what sums that are rounded otherwise may be apart.
ROUNDED = 64.0

READS_ALL = "its outputs read the whole padded axis, so they depend on the padded size"
OTHER_VALUES = "outputs of the valid part read different values at this size"


@dataclass(frozen=True)
class Serves:
    """Whether a padded size serves some content. ``name``, ``why``: the operation that stands
    against it, or, where it serves, the first one that no proof is known of.

    ``by_order``: ``same``, ``differs`` or ``unknown``; ``lacking``: outputs read something else
    there, so that no rounding is to blame. ``boxes``: what is kept of each output, None of one
    that no content is read by. ``sets``: of fresh operands that each order was replayed on, 0
    where none had to be.
    """

    serves: bool
    by_order: str = "unknown"
    name: str = ""
    why: str = ""
    sets: int = 0
    lacking: bool = False
    boxes: tuple[Box | None, ...] = ()


@dataclass
class SafeSize:
    """Content of a length: the least size that has its outputs, and the least safe one.

    ``at_least``: what is known of the run at the least size; ``at_safe``: of the safe one, which
    is the full size where no shorter one is; ``over``: why the search stopped early.
    """

    content: int
    least: int
    safe: int
    at_least: Serves
    at_safe: Serves
    over: str = ""


@dataclass
class Kept:
    """Of content: what is kept of each output of the full run. ``shapes``: of its outputs;
    ``outputs``: by set of operands what is kept, None where the model refuses them."""

    boxes: tuple[Box | None, ...]
    shapes: list[tuple[int, ...]]
    outputs: list[list[np.ndarray | None] | None]

    def of(self, seed: int) -> list[np.ndarray | None]:
        """What is kept on a set that the model takes."""
        outputs = self.outputs[seed]
        assert outputs is not None
        return outputs


class PaddedModel:
    """A model with inputs of the full size, padded along axes of them.

    ``opened``: gives recorders of the model (``Opened``), or runs it elsewhere: ``plain(inputs)``,
    and ``side(inputs)``, which records it. ``arrays``: by name, of which ``along`` names the axes
    that are padded, each of the ``fixed`` size. ``value``: what padding holds in floating-point
    inputs; integers and masks are padded with 0. ``doubt``: why what is watched is not what users
    run, empty if it is.
    """

    def __init__(
        self,
        opened: Any,
        arrays: Arrays,
        along: Mapping[str, int],
        fixed: int,
        value: float = 0.0,
        seconds: float = SECONDS,
    ) -> None:
        self.opened, self.arrays, self.along = opened, dict(arrays), dict(along)
        self.fixed, self.value, self.seconds = fixed, value, seconds
        self.revealed: Known = {}
        self.begun: float | None = None
        self.tried, self.doubt, self.asks_orders = set[int](), "", True
        self.sides: dict[tuple[int, int], Run] = {}
        self._sets: dict[int, Arrays] = {}
        self._kept: dict[int, Kept] = {}
        self._reaches: dict[int, int] = {}
        self.safe_sizes: dict[int, SafeSize] = {}
        self._refused: dict[int, str] = {}
        self._unsafe: dict[int, int] = {}  # by size the least content that it does not serve

    def inputs(self, content: int, size: int, seed: int = 0) -> dict[str, np.ndarray]:
        """Inputs with so many entries of content, padded to a size; other numbers by seed."""
        if seed not in self._sets:
            self._sets[seed] = operand_set(self.arrays, self.along, seed)
        inputs = {}
        for name, array in self._sets[seed].items():
            if (axis := self.along.get(name)) is not None:
                array = array[(slice(None),) * axis + (slice(content),)]
                width = [(0, 0)] * array.ndim
                width[axis] = (0, size - array.shape[axis])
                value = self.value if array.dtype.kind == "f" else 0
                array = np.pad(array, width, constant_values=value)
            inputs[name] = np.ascontiguousarray(array)
        return inputs

    @property
    def recorded(self) -> bool:
        """Whether the model's operations can be watched."""
        return not isinstance(self.opened, WholeFile)

    def side(self, content: int, size: int) -> Run:
        """A watched run. InputError where the model does not take the size."""
        key = content, size
        if key not in self.sides:
            # a recording holds all values of its run: few are kept
            for old in list(self.sides)[:-3]:
                del self.sides[old]
            self.sides[key] = refusing(size, self._recorded, self.inputs(content, size))
        return self.sides[key]

    def whole(self, content: int) -> Run:
        return self.side(content, self.fixed)

    def _recorded(self, inputs: Arrays) -> Run:
        elsewhere: Callable[[Arrays], Run] | None = getattr(self.opened, "side", None)
        return elsewhere(inputs) if elsewhere else record_run(self.recorder(inputs))

    def recorder(self, inputs: Arrays) -> Recorder:
        """What records a run with these inputs in this process."""
        recorder: Recorder = getattr(self.opened, "repeated", self.opened.recorder)(inputs)
        return recorder

    def outputs(self, inputs: Arrays) -> list[np.ndarray]:
        """Outputs as users get them: unwatched."""
        elsewhere = getattr(self.opened, "plain", None)
        outputs = elsewhere(inputs) if elsewhere else run_unwatched(self.recorder(inputs))
        return [np.asarray(array) for array in outputs]

    def run(self, content: int, size: int, seed: int = 0) -> list[np.ndarray]:
        """Outputs at a size. InputError where the model does not take it."""
        return refusing(size, self.outputs, self.inputs(content, size, seed))

    def call(self, content: int, size: int) -> Callable[[], list[np.ndarray]]:
        """What runs it unwatched, again and again."""
        inputs, elsewhere = self.inputs(content, size), getattr(self.opened, "plain", None)
        return partial(elsewhere, inputs) if elsewhere else self.recorder(inputs).plain

    @cached_property
    def text(self) -> str:
        """The target that it runs on."""
        session = getattr(self.opened, "session", None)
        return self.whole(self.fixed).target if session is None else str(session.target.text)

    def kept(self, content: int) -> Kept:
        """What of the full run's outputs changes with the content, on all sets of operands."""
        if content not in self._kept:
            for old in list(self._kept)[:-4]:
                del self._kept[old]
            runs: list[list[np.ndarray] | None] = []
            for seed in range(SETS):
                try:
                    runs.append(self.run(content, self.fixed, seed))
                except InputError:  # a model may refuse other numbers, not its user's
                    if not seed:
                        raise
                    runs.append(None)
            first = runs[0]
            assert first is not None
            if sum(map(elements_apart, first, self.run(content, self.fixed))):
                raise Nondeterministic("the model gives different bits each time it is run")
            boxes = list[Box | None]()
            for number, output in enumerate(first):
                changed = np.zeros(output.shape, bool)
                for run in runs[1 : CONTENTS + 1]:
                    if run is not None and run[number].shape == output.shape:
                        changed |= unequal(output, run[number])
                boxes.append(self._of_content(number, box_of(changed), content))
            outputs = [None if run is None else taken(run, boxes) for run in runs]
            self._kept[content] = Kept(tuple(boxes), [a.shape for a in first], outputs)
        return self._kept[content]

    def boxes(self, content: int) -> tuple[Box | None, ...]:
        """What of each output of the full run reads content."""
        return self.kept(content).boxes

    @cached_property
    def carried(self) -> dict[int, int]:
        """The axis of outputs, by number, of which every entry reads the first one of the input,
        so that a state is carried through the padding: of these the content's own entries are
        kept. They have an entry for each of the input's."""
        if self.fixed == 1:
            return {}
        found, first = {}, self.run(1, self.fixed)
        others = [self.run(1, self.fixed, seed) for seed in range(1, CONTENTS + 1)]
        short, size = None, self.fixed
        while short is None and size > max(1, self.fixed - SHORTER):
            size -= 1
            try:
                short = self.run(1, size)
            except InputError:
                continue
        for number, output in enumerate(first):
            changed = sum((unequal(output, other[number]) for other in others), np.zeros((), bool))
            if short is None or short[number].ndim != output.ndim or not np.any(changed):
                continue
            sizes = enumerate(zip(output.shape, short[number].shape, strict=True))
            axes = [axis for axis, both in sizes if both == (self.fixed, size)]
            rest = tuple(axis for axis in range(output.ndim) if axis not in axes)
            if len(axes) == 1 and changed.any(axis=rest).all():
                found[number] = axes[0]
        return found

    def _of_content(self, number: int, box: Box | None, content: int) -> Box | None:
        """A box of an output by number, of one that carries a state the content's own entries."""
        axis = self.carried.get(number)
        if box is None or axis is None:
            return box
        parts = [part for part in box if part.axis != axis]
        parts += [KeptPart(axis, 0, content)] * (content < self.fixed)
        return tuple(sorted(parts, key=lambda part: part.axis))

    def reach(self, content: int) -> int:
        """The least number of the inputs' entries behind which what is kept reads nothing."""
        if content not in self._reaches:
            # what is read by less content is read by more
            low = max([content, *(reach for n, reach in self._reaches.items() if n < content)])
            for which in ((CONTENTS - 1,), range(CONTENTS)):  # one finds it, the others agree
                search = SizeSearch(partial(self._read_behind, content, which))
                if search.mark(low):
                    low = search.first_change(low, self.fixed) or low
            self._reaches[content] = low
        return self._reaches[content]

    def _read_behind(self, content: int, which: Sequence[int], start: int) -> bool:
        """Whether what is kept reads something behind ``start``; ``which``: contents, by number."""
        if start == self.fixed:
            return False
        inputs, kept = self.inputs(content, self.fixed), self.kept(content)
        where = places_behind(inputs, self.along, start)
        for number, changed in enumerate(contents(inputs, where)):
            if number not in which:
                continue
            try:
                outputs = refusing(self.fixed, self.outputs, changed)
            except InputError:  # a model may refuse other numbers
                continue
            if kept_apart(outputs, kept.boxes, kept.of(0), False):
                return True
        return False

    def check(self, content: int) -> None:
        if not 1 <= content <= self.fixed:
            why = f"the full size is {self.fixed}"
            raise InputError("content", content, why, f"use 1 to {self.fixed}, or a larger --fixed")

    def checked(self, content: int) -> None:
        """Raises InputError where content doesn't fit, or where no output reads any."""
        self.check(content)
        if all(box is None for box in self.boxes(content)):
            raise InputError("content", content, "no output reads it", "give more of it")

    def sized(
        self, content: int, start: int = 0, by_order: bool = True, named: bool = True
    ) -> SafeSize:
        """Finds the least size for content, and the least safe one, from ``start`` on.

        ``by_order``: it is asked for its orders, too; ``named``: for the operation that changes
        bits at the least one.
        """
        if content not in self.safe_sizes:
            self.asks_orders = by_order
            self.safe_sizes[content] = self._searched(content, start, by_order and named)
            self.asks_orders = True
        return self.safe_sizes[content]

    def full_run(self, content: int) -> Serves:
        return Serves(True, "same", why="the full-size run itself", boxes=self.boxes(content))

    def _searched(self, content: int, start: int, named: bool) -> SafeSize:
        self.begun = self.begun or time.monotonic()
        self.checked(content)
        least, full_run, over = self.least(content), self.full_run(content), ""
        if least == self.fixed:
            return SafeSize(content, least, least, self.hopeless(content), full_run)
        at_least = self.serves(content, least, named)
        while at_least.lacking and least < self.reach(content):  # close, and yet not the same
            least += 1
            at_least = self.serves(content, least, named)
        if at_least.serves:
            return SafeSize(content, least, least, at_least, at_least)
        for size in range(max(least + 1, start), self.fixed):
            if over := self._over(size):
                break
            # what changes the bits of less content changes those of more
            if self._unsafe.get(size, self.fixed) <= content:
                continue
            serves = self.serves(content, size, named=False)
            if serves.serves:
                return SafeSize(content, least, size, at_least, serves)
            self._unsafe[size] = content
        return SafeSize(content, least, self.fixed, at_least, full_run, over)

    def hopeless(self, content: int) -> Serves:
        """Why no shorter size has the outputs of content."""
        boxes = self.boxes(content)
        if content == self.fixed:
            why = "the valid part fills the full size"
            return Serves(False, lacking=True, why=why, boxes=boxes)
        name, why = "", next(iter(self._refused.values()), OTHER_VALUES)
        if self.recorded and self.reach(content) == self.fixed:
            full = self.whole(content)
            inputs = self.inputs(content, self.fixed)
            marks = self._repeated(full, inputs, self.fixed - 1)
            name, why = orders.reads_everything(full, marks), READS_ALL
        return Serves(False, "unknown", name, why, lacking=True, boxes=boxes)

    def least(self, content: int) -> int:
        """The least size that has all outputs of content; the full one where none shorter has.

        Sizes that have them are found below the full one, whose distance is what alignment asks (a
        stride); between, sizes of that distance have them from one on.
        """
        near = range(self.fixed - 1, max(content, self.fixed - SHORTER) - 1, -1)
        first = next((size for size in near if not self.lacking(content, size)), None)
        if first is None:
            return self.fixed
        step = self.fixed - first
        most = (first - content) // step
        search = SizeSearch(lambda steps: self.lacking(content, first - steps * step))
        changes = search.bisect(0, most)
        least = first - (changes[0][0] if changes else most) * step
        between = range(max(content, least - step + 1), least)
        return next((size for size in between if not self.lacking(content, size)), least)

    def lacking(self, content: int, size: int) -> bool:
        """Whether a size lacks something that the kept outputs read: it does not run, they stand
        nowhere, or they read behind it in the full run and hold other numbers."""
        boxes, outputs = self._placed(content, size)
        if boxes is None:
            return True
        kept = self.kept(content)
        if size >= self.reach(content) or not kept_apart(outputs, boxes, kept.of(0)):
            return False
        for seed in (0, CONTENTS - 1, CONTENTS):  # where padding is read as zeros they are rounded
            wanted = kept.outputs[seed]
            if wanted is None:
                continue
            outputs = outputs if seed == 0 else self.run(content, size, seed)
            for output, box, reference in zip(outputs, boxes, wanted, strict=True):
                if box is None or reference is None:
                    continue
                if not near(output[box_index(box, True, output.ndim)], reference, ROUNDED):
                    return True
        return False

    def _placed(
        self, content: int, size: int
    ) -> tuple[tuple[Box | None, ...] | None, list[np.ndarray]]:
        """Where the kept outputs stand in a run at a size, None where not all do; and its
        outputs."""
        kept = self.kept(content)
        try:
            outputs = self.run(content, size)
        except InputError as error:
            self._refused[size] = error.why
            return None, []
        boxes, wanted = list[Box | None](), kept.of(0)
        for output, box, reference, shape in zip(
            outputs, kept.boxes, wanted, kept.shapes, strict=True
        ):
            place = None
            if box is not None and reference is not None:
                place = placed(output, reference, box, shape)
                if place is None:
                    return None, outputs
            boxes.append(place)
        return tuple(boxes), outputs

    def _over(self, size: int) -> str:
        """Why no size from this one on is tried; empty while there is time."""
        self.begun = self.begun or time.monotonic()
        late = time.monotonic() - self.begun > self.seconds
        why = budget.spent() or f"{self.seconds:.0f} seconds were over" * late
        return f"{why} at size {size:,}" if why else ""

    def serves(self, content: int, size: int, named: bool = True) -> Serves:
        """Judges one padded size. ``named``: of one that changes bits find the operation."""
        if size == self.fixed:
            return self.full_run(content)
        self.tried.add(size)
        boxes, outputs = self._placed(content, size)
        lacking = Serves(
            *(False, "unknown", "", self._refused.get(size, OTHER_VALUES)),
            lacking=True,
            boxes=boxes or (),
        )
        if boxes is None:
            return lacking
        if not self.holds(content, size, boxes, outputs):
            verdict = self._culprit(content, size) if named else None
            if verdict is None:
                return Serves(False, "differs", boxes=boxes)
            if verdict.verdict != "differs" and size < self.reach(content):
                return lacking
            return Serves(False, "differs", verdict.name, verdict.why, boxes=boxes)
        return self._by_order(content, size, boxes)

    def holds(
        self, content: int, size: int, boxes: Sequence[Box | None], first: Sequence[np.ndarray]
    ) -> bool:
        """Whether a size gives the full run's bits on all sets of operands. ``first``: what it
        gives on the first one."""
        kept = self.kept(content)
        for seed in range(SETS):
            if kept.outputs[seed] is None:
                continue
            try:
                outputs = first if seed == 0 else self.run(content, size, seed)
            except InputError:
                return False
            if kept_apart(outputs, boxes, kept.of(seed)):
                return False
        return True

    def difference(self, content: int, size: int) -> Difference:
        """A size against the full one, operation by operation; both are recorded."""
        left, right = self.side(content, size), self.whole(content)
        return orders.compared(left, right, self.marks(content, size))

    def marks(self, content: int, size: int) -> Marks:
        """What of the full run reads behind a size; but for what reads padding there as zeros,
        which stand for it in the short run, too."""
        inputs = self.inputs(content, self.fixed)
        marks = self._repeated(self.whole(content), inputs, size)
        if size < self.reach(content):
            independent = [
                self._recorded(self.inputs(content, to, CONTENTS)) for to in (size, self.fixed)
            ]
            sides = (
                (self.side(content, size), self.whole(content)),
                (independent[0], independent[1]),
            )
            orders.absorb(marks, sides)
        return marks

    def _repeated(self, run: Run, inputs: Arrays, start: int) -> Marks:
        """What of a run of these inputs changes with what stands from ``start`` on."""
        where = places_behind(inputs, self.along, start)
        elsewhere: Callable[..., Marks] | None = getattr(self.opened, "marks", None)
        if elsewhere is not None:
            return elsewhere(run, inputs, where)
        return repeated_with_others(run, self.recorder, inputs, where)

    def _culprit(self, content: int, size: int) -> orders.OrderVerdict:
        """The first operation that changes bits at a size, and how."""
        verdict = orders.OrderVerdict("unknown", why="its bits are different at this size")
        if not self.recorded:
            return verdict
        with budget.Ending():
            difference = self.difference(content, size)
            verdict.name = "" if difference.first is None else difference.first.name
            by_order = orders.by_order(difference, self.revealed)
            if by_order.verdict == "differs":
                return by_order
        return verdict

    def _by_order(self, content: int, size: int, boxes: tuple[Box | None, ...]) -> Serves:
        """What orders say of a size whose bits hold."""
        count = sum(outputs is not None for outputs in self.kept(content).outputs)
        held = f"held on {count} sets of operands"
        why = getattr(self.opened, "untold", "") or self.doubt or budget.spent()
        why = why or "its orders were not asked" * (not self.asks_orders)
        if why or not self.recorded:
            return Serves(True, "unknown", "the whole run", f"{why}: {held}", boxes=boxes)
        verdict = orders.OrderVerdict("unknown", "the whole run", "time was over")
        with budget.Ending():
            difference = self.difference(content, size)
            verdict = orders.by_order(difference, self.revealed)
            if verdict.verdict == "same" and not orders.covers(difference, self.boxes(content)):
                verdict = orders.OrderVerdict("unknown", "the whole run", orders.NOT_FOLLOWED)
        if verdict.verdict == "differs":
            return Serves(False, "differs", verdict.name, verdict.why, boxes=boxes)
        why = f"{verdict.why}; {held}" * (verdict.verdict != "same")
        return Serves(True, verdict.verdict, verdict.name, why, sets=verdict.sets, boxes=boxes)


def unequal(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Which elements of two arrays of one shape have different bits."""
    first, second = np.ascontiguousarray(left), np.ascontiguousarray(right)
    return orders.unequal_bits(first, second, str(left.dtype)).reshape(left.shape)


def taken(outputs: Sequence[np.ndarray], boxes: Sequence[Box | None]) -> list[np.ndarray | None]:
    """Copies of what is kept of a full run, so that its outputs need not be."""
    return [
        None if box is None else np.array(array[box_index(box, False, array.ndim)])
        for array, box in zip(outputs, boxes, strict=True)
    ]


def kept_apart(
    outputs: Sequence[np.ndarray],
    boxes: Sequence[Box | None],
    wanted: Sequence[np.ndarray | None],
    short: bool = True,
) -> int:
    """Counts kept elements of a run, a ``short`` or a full one, whose bits differ from these."""
    return sum(
        elements_apart(output[box_index(box, short, output.ndim)], reference)
        for output, box, reference in zip(outputs, boxes, wanted, strict=True)
        if box is not None and reference is not None
    )


Result = TypeVar("Result")


def refusing(size: int, call: Callable[..., Result], *arguments: Any) -> Result:
    """Calls a library, which refuses a size as it likes: here that is an InputError."""
    try:
        return foreign(call, *arguments)
    except Nondeterministic:  # says nothing of the size
        raise
    except (Foreign, ProbeError) as error:
        if isinstance(error, TargetError) and error.kind == "unavailable":
            raise
        why = " ".join(str(getattr(error, "why", error.__cause__ or error)).split())[:200]
        raise InputError("size", size, f"the model does not run at it: {why}", "") from None
