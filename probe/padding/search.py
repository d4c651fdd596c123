"""Finds the padded sizes of a model of any graph that change no bit, and why others do.

Content of n entries along the axis (positions of a length, rows of a batch) is padded to a size.
The run at the full size is the reference: its outputs that read content, told from those of
padding alone, are to come out of a shorter run bit for bit. A size serves where these outputs read
the same there, and where every operation on the way computes them alike: sums by order, functions
place by place, the rest by bits (:mod:`probe.recording.judging`). Whole runs on several contents
have to agree too. What is in the way is named.

Where every operation reads a pattern of positions, a size takes no recording: what it shares with
the full run is arithmetic (:mod:`probe.padding.positions`), and of the operations the last ones are
asked first (:mod:`probe.padding.computing`), whose few sizes many sizes of the model share. Other
graphs, such as attention behind a mask, whose zeros decide what is read, are recorded at every size
and for every content, and followed by their labels.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from typing import Any

import numpy as np

from probe import budget, floats
from probe.errors import InputError, Nondeterministic
from probe.operands import normal
from probe.padding.computing import Computing, SizedOperation
from probe.padding.positions import (
    MOVED_BY,
    NEVER,
    At,
    Box,
    KeptPart,
    Linked,
    NotDerived,
    Positions,
    box_index,
    box_of,
    elements_apart,
    place_of,
    where_kept,
)
from probe.printing import counted
from probe.recording.alone import Known, unequal_bits
from probe.recording.difference import Region
from probe.recording.judging import Followed, Judged, follow, judge_operation, reads_content
from probe.recording.matching import labels_of
from probe.recording.recording import Run, record_run
from probe.recording.store import array_digest
from probe.semantics import MOVED, Joins, Meaning, Pads, Reshapes, Same, Splits, Turns, Windows
from probe.target import Target

# Fresh contents on which whole runs are compared before anything is asked of operations.
SETS = 4

SEED = 52_000

# Sizes below the full one of which some has to share outputs with it; else the axis is read as a
# whole, or from its other end.
SHORTER = 32

# Seconds after which no further size is asked about.
SECONDS = 240.0

# What an operation means whose outputs may be had from a longer input, though not from this.
SLIDING = (*MOVED, Windows, Pads, Joins, Splits, Turns, Reshapes, Same)


@dataclass(frozen=True)
class Serves:
    """Whether a padded size serves some content. ``name``, ``why``: the operation that stands
    against it, or, where it serves, the first one that no proof is known of.

    ``by_order``: ``same``, ``differs`` or ``unknown``; ``lacking``: outputs read something else
    there, so that no rounding is to blame. ``boxes``: what is kept of each output, None of one
    that no content is read by. ``sets``: of fresh operands that each order was replayed on, 0
    where none had to be; ``given``: for which values alone it serves; empty: for all.
    """

    serves: bool
    by_order: str = "unknown"
    name: str = ""
    why: str = ""
    sets: int = 0
    lacking: bool = False
    boxes: tuple[Box | None, ...] = ()
    given: str = ""


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


BY_BITS = "the library's program of all operations was compared by bits"

# Targets that run a model as one call for each operation, unless it is compiled.
LAYER_BY_LAYER = ("torch", "tensorflow", "reference", "numpy")

# Switches that compile one.
COMPILED = {("mode", "graph"), ("xla", "1"), ("weights", "constant")}


def in_calls(where: Target) -> bool:
    """Returns whether a target runs a model as one call for each operation: then these decide."""
    eager = not (where.version or "").startswith("1.") and not COMPILED.intersection(where.switches)
    return where.name in LAYER_BY_LAYER and eager


class PaddedModel:
    """A model with inputs of the full size, padded along axes of them.

    ``opened``: gives recorders of the model with inputs (``Opened``). ``arrays``: by name, of
    which ``along`` names the axes that are padded, each of the ``fixed`` size. ``value``: what
    padding holds in floating-point inputs; integers and masks are padded with 0. ``own_places``:
    outputs read content all the way to the full size (a state is carried through the padding), so
    that those at the places of content alone are kept. ``doubt``: why what is watched is not what
    users run, empty if it is.
    """

    def __init__(
        self,
        opened: Any,
        arrays: Mapping[str, np.ndarray],
        along: Mapping[str, int],
        fixed: int,
        value: float = 0.0,
        seconds: float = SECONDS,
    ) -> None:
        self.opened, self.arrays, self.along = opened, dict(arrays), dict(along)
        self.fixed, self.value, self.seconds = fixed, value, seconds
        self.known: Known = {}
        self.begun: float | None = None
        self.tried = 0
        self.own_places = False
        self.doubt = ""
        self.near = MOVED_BY
        self.sides: dict[tuple[int, int], Run | InputError] = {}
        self._followed: dict[tuple[int, int], Followed] = {}
        self._boxes: dict[int, tuple[Box | None, ...]] = {}
        self._sized: dict[int, SafeSize] = {}
        self._capacities: dict[int, int] = {}
        self._agreed: dict[int, int] = {}
        self._told: set[int] = set()
        self.no_program = ""

    def inputs(self, content: int, size: int, seed: int = 0) -> dict[str, np.ndarray]:
        """Makes inputs with so many entries of content, padded to a size; other numbers by seed."""
        inputs = {}
        for number, (name, array) in enumerate(self.arrays.items()):
            if seed and str(array.dtype) in floats.FORMATS and array.dtype != np.uint16:
                factor = 1 + normal(SEED + 101 * seed + number, "x", array.shape) / 4
                array = (array * factor).astype(array.dtype)
            if (axis := self.along.get(name)) is not None:
                content_part = (slice(None),) * axis + (slice(content),)
                array = array[content_part]
                width = [(0, 0)] * array.ndim
                width[axis] = (0, size - array.shape[axis])
                value = self.value if array.dtype.kind == "f" else 0
                array = np.pad(array, width, constant_values=value)
            inputs[name] = np.ascontiguousarray(array)
        return inputs

    def side(self, content: int, size: int) -> Run:
        """Returns a watched run. InputError where the model does not take the size."""
        key = content, size
        if key not in self.sides:
            # a recording holds all values of its run: few are kept
            for old in list(self.sides)[:-6]:
                del self.sides[old]
            # in this process, or where the model is opened in another one, there
            elsewhere = getattr(self.opened, "side", None)
            try:
                with _refusing(size):
                    inputs = self.inputs(content, size)
                    self.sides[key] = (
                        elsewhere(inputs) if elsewhere else record_run(self.opened.recorder(inputs))
                    )
            except InputError as error:
                self.sides[key] = error
        run = self.sides[key]
        if isinstance(run, InputError):
            raise run
        return run

    def whole(self, content: int) -> Run:
        return self.side(content, self.fixed)

    def run(self, content: int, size: int, seed: int = 0) -> list[np.ndarray]:
        """Returns outputs as users get them: unwatched."""
        return self.call(content, size, seed)()

    def call(self, content: int, size: int, seed: int = 0) -> Callable[[], list[np.ndarray]]:
        """Returns what runs it unwatched, again and again."""
        inputs = self.inputs(content, size, seed)
        elsewhere = getattr(self.opened, "plain", None)
        call: Callable[[], list[np.ndarray]]
        call = partial(elsewhere, inputs) if elsewhere else self.opened.recorder(inputs).plain
        return call

    @cached_property
    def positions(self) -> Positions | None:
        """Returns what sizes share with the full run; None: not derived, or read whole."""
        full = self.side(self.fixed, self.fixed)
        values, inputs = full.values, dict[int, int]()
        for name, axis in self.along.items():
            digests = {array_digest(self.inputs(self.fixed, self.fixed)[name])}
            inputs |= {
                n: axis
                for n, value in enumerate(values)
                if value.given < 0
                and value.digest in digests
                and value.shape == self.arrays[name].shape
            }
        floating = [n for n in inputs if values[n].floating]
        zeros = inputs if not self.value else [n for n in inputs if n not in floating]
        try:
            positions = Positions(full, self._labelled, inputs, list(zeros), self.fixed)
            outputs = [n for n in dict.fromkeys(positions.full.outputs) if n in positions.depends]
            sizes = (positions.size_of_far, *range(self.fixed - 1, 0, -1)[:SHORTER])
            some = (positions.at(size).leading for size in sizes if positions.takes(size))
            shared = any(all(leading[n] for n in outputs) for leading in some)
        except (NotDerived, InputError):
            return None
        return positions if outputs and shared and not self._unseen(positions) else None

    def _unseen(self, positions: Positions) -> bool:
        """Returns whether content gets into the run past what was recorded: then what is given it
        besides has other numbers where there is padding alone."""
        ours, theirs = positions.full, self.nothing
        if len(ours.values) != len(theirs.values):
            return True
        needed = (n for n in positions.wanted if n not in positions.inputs)
        return any(
            ours.values[n].given < 0 and ours.values[n].digest != theirs.values[n].digest
            for n in needed
        )

    def _labelled(self, size: int) -> Run:
        """Returns a recording of content of a size, whose labels tell what it shares with others:
        of a model on a target its own library's, since the numbers don't matter."""
        base = getattr(self.opened, "base", None)
        if base is None:
            return self.side(size, size)
        with _refusing(size):
            run: Run = base(self.inputs(size, size))
        return run

    @cached_property
    def read(self) -> dict[int, np.ndarray]:
        """Returns of each value the lowest position of the inputs that each of its own reads."""
        assert self.positions is not None
        return self.positions.lowest()

    @cached_property
    def wanted(self) -> dict[int, np.ndarray]:
        """Returns of each output, by its value's number, how much content its positions read at
        least: those are kept for which there is more."""
        assert self.positions is not None
        read, wanted = self.read, {}
        for n in dict.fromkeys(self.positions.full.outputs):
            if n in read:
                wanted[n] = read[n]
                if len(read[n]) == self.fixed > 1 and (read[n] == 0).all():
                    self.own_places = True
                    wanted[n] = np.arange(self.fixed)
        return wanted

    @cached_property
    def weights(self) -> dict[int, np.ndarray]:
        """Returns of all values the least content of which what is kept reads a position."""
        assert self.positions is not None
        return self.positions.weights(self.wanted)

    def capacity(self, size: int) -> int:
        """Returns the longest content whose outputs read the same in a run of a size; 0: none."""
        assert self.positions is not None
        if size not in self._capacities:
            leading = self.positions.at(size).leading
            lacking = [least[leading[n] :].min(initial=NEVER) for n, least in self.wanted.items()]
            self._capacities[size] = int(min(size, *lacking))
        return self._capacities[size]

    def _agreeing(self, size: int) -> int:
        """Returns the longest content whose outputs whole runs have with the full run's bits; on
        another library's target also as one program, which may fuse what operations compute."""
        if size not in self._agreed:
            alike = size
            for seed, program in product(range(SETS), (False, True)):
                try:
                    with _refusing(size):
                        runs = [self._whole(size, to, seed, program) for to in (size, self.fixed)]
                except InputError:
                    alike = 0
                    break
                if runs[0] is not None and runs[1] is not None:
                    alike = min(alike, self._alike_up_to(size, runs[0], runs[1]))
            self._agreed[size] = alike
        return self._agreed[size]

    @property
    def as_one(self) -> str:
        """Returns why what operations do by themselves is not proved of what users run: another
        library's target compiles them to one program, which may fuse them. Empty: it doesn't."""
        compiled = hasattr(self.opened, "end_to_end") and not in_calls(Target.parse(self.text))
        return BY_BITS if compiled and not self.no_program else ""

    @cached_property
    def text(self) -> str:
        return self.nothing.target

    def _whole(self, size: int, to: int, seed: int, program: bool) -> list[np.ndarray] | None:
        """Returns the outputs of content of a size, padded; None where there is no program."""
        if not program:
            return self.run(size, to, seed)
        run = getattr(self.opened, "end_to_end", None)
        if run is None or self.no_program:
            return None
        output, _, self.no_program = run(self.inputs(size, to, seed))
        return None if output is None else [output]

    def _alike_up_to(
        self, size: int, short: Sequence[np.ndarray], full: Sequence[np.ndarray]
    ) -> int:
        """Returns the longest content whose outputs two whole runs have alike."""
        assert self.positions is not None
        leading, alike = self.positions.at(size).leading, size
        for place, n in enumerate(self.positions.full.outputs):
            if n not in self.wanted:
                continue
            axis = self.positions.axis(n)
            assert axis is not None
            mine, whole = (np.moveaxis(outputs[place], axis, 0) for outputs in (short, full))
            count = leading[n]
            if mine.shape[1:] != whole.shape[1:] or len(mine) < count:
                return 0
            value = self.positions.full.values[n]
            bad = unequal_bits(mine[:count], whole[:count], value.dtype)
            bad = np.asarray(bad.reshape(count, -1).any(axis=1))
            alike = int(min(alike, self.wanted[n][:count][bad].min(initial=alike)))
        return alike

    @cached_property
    def computing(self) -> Computing:
        assert self.positions is not None
        return Computing(self.positions, self.known, lambda size: self.side(size, size))

    @cached_property
    def nothing(self) -> Run:
        """Returns the run of padding alone, at the full size."""
        return self.side(0, self.fixed)

    def boxes(self, content: int) -> tuple[Box | None, ...]:
        """Returns what of each output of the full run reads content."""
        if content not in self._boxes and self.positions is not None:
            self._boxes[content] = tuple(self._box(n, content) for n in self.positions.full.outputs)
        if content not in self._boxes:
            whole, nothing = self.whole(content), self.nothing
            ours, theirs = labels_of(whole, nothing)
            outputs = zip(whole.outputs, nothing.outputs, strict=True)
            boxes = tuple(box_of(reads_content(ours[n], theirs[m])) for n, m in outputs)
            self._boxes[content] = self._own_places(content, boxes) if self.own_places else boxes
        return self._boxes[content]

    def _box(self, number: int, content: int) -> Box | None:
        """Returns what of an output reads content, by what its positions read."""
        assert self.positions is not None
        reading = np.flatnonzero(self.wanted.get(number, np.zeros(0, int)) < content)
        if number not in self.wanted or not len(reading):
            return None
        start, stop = int(reading[0]), int(reading[-1]) + 1
        whole = (start, stop) == (0, len(self.wanted[number]))
        return () if whole else (KeptPart(self.positions.axes[number], start, stop),)

    def _own_places(self, content: int, boxes: Sequence[Box | None]) -> tuple[Box | None, ...]:
        """Of outputs that have an entry for each of the input's, those of content alone."""
        whole, short = (self.side(content, size) for size in (self.fixed, self.fixed - 1))
        own = []
        for number, other, box in zip(whole.outputs, short.outputs, boxes, strict=True):
            sizes = whole.values[number].shape, short.values[other].shape
            both = (self.fixed, self.fixed - 1)
            axes = [n for n, each in enumerate(zip(*sizes, strict=False)) if each == both]
            named = {part.axis for part in box or ()}
            if box is not None and len(axes) == 1 and axes[0] not in named:
                box = tuple(sorted((*box, KeptPart(axes[0], 0, content)), key=lambda p: p.axis))
            own.append(box)
        return tuple(own)

    def check(self, content: int) -> None:
        if not 1 <= content <= self.fixed:
            why = f"the full size is {self.fixed}"
            raise InputError("content", content, why, f"use 1 to {self.fixed}, or a larger --fixed")

    def checked(self, content: int) -> None:
        """Raises InputError where content doesn't fit, or where no output reads any."""
        self.check(content)
        if all(box is None for box in self.boxes(content)):
            raise InputError("content", content, "no output reads it", "give more of it")

    def sized(self, content: int, start: int = 0) -> SafeSize:
        """Finds the least size for content, and the least safe one, from ``start`` on."""
        if content not in self._sized:
            self._sized[content] = self._searched(content, start)
        return self._sized[content]

    def _searched(self, content: int, start: int) -> SafeSize:
        self.begun = self.begun or time.monotonic()
        self.checked(content)
        if self.positions is not None:
            try:
                return self._searched_derived(content)
            except NotDerived:  # what was met so far did not tell some size
                self._record_all()
        least, over, at_least = 0, "", None
        if why := self.hopeless(content):
            return SafeSize(content, self.fixed, self.fixed, why, self.own(content))
        for size in range(max(content, start), self.fixed):
            if over := self._over(size):
                break
            serves = self.serves(content, size, named=at_least is None)
            if serves.lacking:
                continue
            if at_least is None:
                least, at_least = size, serves
            if serves.serves:
                return SafeSize(content, least, size, at_least, serves)
        own = self.own(content)
        return SafeSize(content, least or self.fixed, self.fixed, at_least or own, own, over)

    def _searched_derived(self, content: int) -> SafeSize:
        """Does as ``_searched``, from where the next shorter content has its sizes: longer content
        has no shorter ones. Raises NotDerived."""
        before = [n for n in self._sized if n < content]
        known = self._sized[max(before)] if before else None
        assert self.positions is not None
        # of shorter runs some output shares nothing, whatever is met there
        start = max(content, known.least if known else 0, self.positions.shortest)
        sizes = (size for size in range(start, self.fixed) if self._capacity(size) >= content)
        least = next(sizes, self.fixed)
        start = max(least, known.safe if known and not known.over else 0)
        own, over = self.own(content), ""
        at_least = own if least == self.fixed else self._derived(content, least, named=True)
        if at_least.serves:
            return SafeSize(content, least, least, at_least, at_least)
        for size in range(start, self.fixed):
            if self._capacity(size) < content:
                continue
            if over := self._over(size):
                break
            serves = self._derived(content, size, named=False)
            if serves.serves:
                return SafeSize(content, least, size, at_least, serves)
        return SafeSize(content, least, self.fixed, at_least, own, over)

    def _record_all(self) -> None:
        """Goes on without what is derived: every size is recorded."""
        self.positions = None
        self._boxes.clear()
        self._sized.clear()

    def _capacity(self, size: int) -> int:
        """Does as ``capacity``; 0 where the model does not run."""
        try:
            return self.capacity(size)
        except InputError:
            return 0

    def _over(self, size: int) -> str:
        """Returns why no size from this one on is asked about; empty while there is time."""
        self.begun = self.begun or time.monotonic()
        late = time.monotonic() - self.begun > self.seconds
        why = budget.spent() or f"{self.seconds:.0f} seconds were over" * late
        return f"{why} at size {size:,}" if why else ""

    def own(self, content: int) -> Serves:
        why = "the full-size run itself"
        return Serves(True, "same", why=why, boxes=self.boxes(content))

    def hopeless(self, content: int) -> Serves | None:
        """Says why no shorter size has the outputs of content; None where one may.

        That is so where one entry less is lacking by an operation that reads all of the axis.
        """
        size = self.fixed - 1
        if size < content:
            return Serves(False, lacking=True, why="the valid part fills the full size")
        try:
            side = self.side(content, size)
        except InputError:
            return None
        followed = self._follow(content, size)
        if self._kept(content, side, followed) is not None:
            return None
        if not self.own_places and self._carried(content, side):
            self.own_places = True
            self._boxes.clear()
            if self._kept(content, side, followed) is not None:
                return None
            self.own_places = False
            self._boxes.clear()
        name, meaning = self._lost(content, size, followed)
        first = getattr(meaning, "steps", ())
        inner = first[0].meaning if first else getattr(meaning, "first", meaning)
        if isinstance(inner, SLIDING) or (not name and not self._carried(content, side)):
            return None
        why = "its outputs read the whole padded axis, so they depend on the padded size"
        return Serves(False, "unknown", name, why, lacking=True)

    def _carried(self, content: int, side: Run) -> bool:
        """Whether an output that has fewer entries in the short run reads content in all."""
        run = self.whole(content)
        both = zip(side.outputs, run.outputs, self.boxes(content), strict=True)
        for mine, other, box in both:
            shapes = side.values[mine].shape, run.values[other].shape
            named = {part.axis for part in box or ()}
            if box is not None and len(shapes[0]) == len(shapes[1]):
                sizes = enumerate(zip(*shapes, strict=True))
                if any(n != m and axis not in named for axis, (n, m) in sizes):
                    return True
        return False

    def serves(self, content: int, size: int, named: bool = True) -> Serves:
        """Judges one padded size. What is known of operations is kept for the next one.

        ``named``: of a size at which whole runs differ, find the operation.
        """
        if size == self.fixed:
            return self.own(content)
        if self.positions is not None:
            try:
                return self._derived(content, size, named)
            except NotDerived:  # what was met so far did not tell this size
                self._record_all()
        self.tried += 1
        try:
            side = self.side(content, size)
        except InputError as error:
            return Serves(False, name="", why=error.why, lacking=True)
        followed = self._follow(content, size)
        boxes = self._kept(content, side, followed)
        if boxes is None:
            name, _ = self._lost(content, size, followed)
            why = "outputs of the valid part read different values at this size"
            return Serves(False, "unknown", name, why, lacking=True)
        alike = not any(self.differing(content, size, boxes, seed) for seed in range(SETS))
        if not alike and not named:
            return Serves(False, "differs", boxes=boxes)
        whole = self.whole(content)
        followed = follow(side, whole, lambda r: judge_operation(r, side, whole, self.known))
        if self._kept(content, side, followed) is None:
            name, why, order = self._culprit(content, side, followed.told)
            return Serves(False, order, name, why, boxes=boxes)
        if not alike:
            why = "each operation by itself agrees, but the runs have different bits"
            return Serves(False, "unknown", "", why, boxes=boxes)
        judged = [(region.name, how) for region, how in followed.told]
        return self._serving(judged, boxes, followed.alone)

    def _derived(self, content: int, size: int, named: bool) -> Serves:
        """Judges a size by what it shares with the full run. Raises NotDerived."""
        assert self.positions is not None
        try:
            at, capacity = self.positions.at(size), self.capacity(size)
        except InputError as error:
            return Serves(False, why=error.why, lacking=True)
        if capacity < content:
            lost = (
                link
                for link in self.positions.linked
                if any((self.weights[n][at.leading[n] :] < content).any() for n in link.gives)
            )
            name = next((self.positions.full.operations[link.number].name for link in lost), "")
            why = "outputs of the valid part read different values at this size"
            return Serves(False, "unknown", name, why, lacking=True)
        boxes = self.boxes(content)
        self.tried += size not in self._told
        self._told.add(size)
        if suspects := self._suspects(at, content, named):
            if not named:
                return Serves(False, "differs", boxes=boxes)
            sized = self.computing.at(suspects[-1], at, size)
            assert sized is not None
            why = _in_words(sized.found) if sized.apart else "its bits are different at this size"
            key = sized.linked.number, tuple(at.sizes[n] for n in sized.linked.operands)
            why += " in channels-last memory" * (key in self.computing.turned)
            return Serves(False, "differs", sized.name, why, boxes=boxes)
        guilty: SizedOperation | None = None
        known = []
        for link in reversed(self.computing.deciding):
            sized = self.computing.at(link, at, size)
            if sized is None:
                continue
            known.append(sized)
            if any((self.weights[n][: len(m)][m] < content).any() for n, m in sized.apart.items()):
                guilty = sized
                if not named:
                    return Serves(False, "differs", boxes=boxes)
        if guilty is not None:
            return Serves(False, "differs", guilty.name, _in_words(guilty.found), boxes=boxes)
        if self._agreeing(size) < content:
            why = "each operation by itself agrees, but the runs have different bits"
            return Serves(False, "unknown", "", why, boxes=boxes)
        return self._serving([(sized.name, sized.found) for sized in reversed(known)], boxes)

    def _serving(
        self,
        judged: Sequence[tuple[str, Judged]],
        boxes: tuple[Box | None, ...],
        alone: Sequence[str] = (),
    ) -> Serves:
        """Returns a size that serves, with what is known of operations by name; ``alone``: of those
        that run at one of the sizes only."""
        doubts = [(name, how.why) for name, how in judged if how.why]
        doubts += [(name, "it runs at only one of the sizes") for name in alone]
        doubts += [("the whole run", self.doubt)] * bool(self.doubt)
        given = {name: how.given for name, how in judged if how.given}
        only_for = ""  # for which values alone operations compute alike
        if given:
            more = f" and {counted(len(given) - 1, 'more operation')}" * (len(given) > 1)
            only_for = f"{next(iter(given.values()))} at {next(iter(given))}{more}"
        if doubts:
            return Serves(True, "unknown", *doubts[0], boxes=boxes, given=only_for)
        sets = min((how.sets for _, how in judged if how.sets), default=0)
        return Serves(True, "same", "", self.as_one, sets, boxes=boxes, given=only_for)

    def _suspects(self, at: At, content: int, every: bool) -> list[Linked]:
        """Returns the operations, from the last one, at whose sizes bits that content reads are
        different, or one of them: few calls tell, so that every addition is asked about at few
        sizes alone."""
        assert self.positions is not None
        suspects = []
        for link in reversed(self.computing.deciding):
            sizes = [at.sizes[n] for n in link.operands]
            if sizes == [self.positions.length(n) for n in link.operands]:
                continue
            seen = self.computing.glance(link, at).items()
            if any((self.weights[n][: len(m)][m] < content).any() for n, m in seen):
                suspects.append(link)
                if not every:
                    break
        return suspects

    def _follow(self, content: int, size: int) -> Followed:
        key = content, size
        if key not in self._followed:
            for old in list(self._followed)[:-4]:
                del self._followed[old]
            self._followed[key] = follow(self.side(content, size), self.whole(content))
        return self._followed[key]

    def _kept(self, content: int, side: Run, followed: Followed) -> tuple[Box | None, ...] | None:
        """Returns where the short run has what is kept of each output; None where it hasn't all."""
        both = side.outputs, self.whole(content).outputs
        labels = [(followed.left[n], followed.right[m]) for n, m in zip(*both, strict=True)]
        return where_kept(self.boxes(content), labels, self.near)

    def differing(self, content: int, size: int, boxes: Sequence[Box | None], seed: int) -> int:
        """Counts kept outputs whose bits differ from the full run's, as users run both."""
        short, whole = self.run(content, size, seed), self.run(content, self.fixed, seed)
        return self.parted(content, boxes, short, whole)

    def parted(
        self,
        content: int,
        boxes: Sequence[Box | None],
        short: Sequence[np.ndarray],
        whole: Sequence[np.ndarray],
    ) -> int:
        """Counts the kept outputs of a short run whose bits differ from a full one's."""
        # of a full run only the formats are needed: one that is there already has them
        count, values = 0, self.positions.full if self.positions else self.whole(content)
        for number, box in enumerate(boxes):
            if box is None:
                continue
            mine = short[number][box_index(box, True, short[number].ndim)]
            other = whole[number][box_index(box, False, whole[number].ndim)]
            count += elements_apart(mine, other, values.values[values.outputs[number]])
        return count

    def _culprit(
        self, content: int, side: Run, judged: Sequence[tuple[Region, Judged]]
    ) -> tuple[str, str, str]:
        """The first operation that, were it alone to compute differently, loses what is kept."""
        for region, how in judged:
            if not how.differing:
                continue

            def alone(other: Region, ends: Any = region.ends) -> Judged:
                if other.ends != ends:
                    return Judged("exact")
                # anew: where those before it compute alike, more of its outputs must agree
                return judge_operation(other, side, self.whole(content), self.known)

            name, words = region.name, _in_words(how)
            if self._kept(content, side, follow(side, self.whole(content), alone)) is None:
                break
        return name, words, "differs"

    def _lost(self, content: int, size: int, followed: Followed) -> tuple[str, Meaning | None]:
        """The first operation some of whose outputs that read content the short run hasn't."""
        runs = self.side(content, size), self.whole(content), self.nothing
        ours, theirs = labels_of(runs[1], runs[2])
        if len({len(run.operations) for run in runs}) > 1:
            return "", None
        for mine, *others in zip(*(run.operations for run in runs), strict=True):
            for n, m, none in zip(
                mine.gives, *(operation.gives for operation in others), strict=False
            ):
                # each run numbers its values on its own
                if runs[1].values[m].shape != runs[2].values[none].shape:
                    return "", None
                box = box_of(reads_content(ours[m], theirs[none]))
                if box is not None and place_of(followed.left[n], followed.right[m], box) is None:
                    return mine.name, mine.meaning
        return "", None


@contextmanager
def _refusing(size: int) -> Iterator[None]:
    """A library refuses a size as it likes; here that is an InputError."""
    try:
        yield
    except (Nondeterministic, MemoryError):  # say nothing of the size
        raise
    except Exception as error:
        why = " ".join(str(getattr(error, "why", error)).split())[:200]
        raise InputError("size", size, f"the model does not run at it: {why}", "") from None


def _in_words(judged: Judged) -> str:
    """Returns how many outputs an operation computes differently, in words."""
    what = {
        "order": "outputs are added differently",
        "place": "outputs are computed differently at their positions",
    }.get(judged.how, "outputs have different bits")
    return f"{judged.differing:,} {what}"
