"""What a run of any size shares with the full one, derived from recordings at very few sizes.

Of each operation it is known which positions of the padded axis its outputs read. From that follow,
by arithmetic, for every size: how many positions each value has, how many of them are those of the
full run, and which content the outputs read. An operation is looked at where its operands have
other sizes than in the full run, once for every remainder that its stride leaves: there its labels
have to bear out what is derived, else nothing is derived of the model. A size whose remainders were
not met is recorded. So a model of many strides takes a recording for each.

What of an output reads content is a ``Box`` of it, which is looked for in shorter runs by labels.
"""

from __future__ import annotations

import functools
from bisect import bisect_left
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from probe.errors import InputError
from probe.recording.alone import unequal_bits
from probe.recording.matching import labels_of, result_labels
from probe.recording.recording import Run, Value
from probe.semantics.labels import ZERO, Labels, joined_lines, joint, tag

# The lowest position of content that is read by what reads none.
NEVER = np.iinfo(np.int64).max

# Parts of the full size, the first of which that the model takes tells the padded axes.
FAR = (1 / 8, 1 / 4, 1 / 2, 5 / 8, 3 / 4, 7 / 8)

MOST_RECORDINGS = 40

# Recordings of telling sizes before one of the size that is asked about; and sizes among which the
# most telling one is chosen, next to it and all the way to the full one.
MOST_AHEAD, NEAR = 3, 64


class NotDerived(Exception):
    """What a size shares can't be derived: each has to be recorded."""


@dataclass
class PositionedOperation:
    """An operation at one remainder of its operands' sizes: these, and those of its outputs.

    ``aligned``: its outputs read as in the full run, from the first one on. ``absorbs``: where an
    operand ends in zeros, its end is no different from further zeros.
    """

    reads: tuple[int, ...]
    gives: tuple[int, ...]
    aligned: bool
    absorbs: bool


@dataclass
class Linked:
    """An operation between values that depend on the padded inputs. ``reads``: by operand
    and output. ``met``: by remainders."""

    number: int
    operands: tuple[int, ...]
    gives: tuple[int, ...]
    reads: dict[int, dict[int, Reads]]
    met: dict[tuple[int, ...], PositionedOperation] = field(default_factory=dict)

    def remainders(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """Returns what tells sizes of the operands that are derived from each other."""
        periods = [self.reads[n][self.gives[0]].period for n in self.operands]
        return tuple(
            size % period if period else size for size, period in zip(sizes, periods, strict=True)
        )


@dataclass(frozen=True)
class At:
    """A run of some size. ``sizes``, ``leading``: of each value that depends on the padded inputs,
    how many positions it has, and how many of the first ones are the full run's."""

    sizes: dict[int, int]
    leading: dict[int, int]


class Positions:
    """A recorded model, padded along one axis of some inputs up to the ``full`` run's size.

    ``record``: gives a recording of another size. ``inputs``: numbers of the padded values of the
    full run, with their axes; ``zeros``: those of them that are padded with zeros. Raises
    NotDerived.
    """

    def __init__(
        self,
        full: Run,
        record: Callable[[int], Run],
        inputs: dict[int, int],
        zeros: Sequence[int],
        size: int,
    ) -> None:
        self.full, self.record, self.inputs, self.size = full, record, inputs, size
        self.recorded: dict[int, Run] = {}
        self.axes: dict[int, int] = dict(inputs)
        self._at: dict[int, At] = {}
        self.refused: dict[int, InputError] = {}
        self.zeros = set(zeros)
        self.linked: list[Linked] = []
        far = self._far()
        self._meet_axes(far)
        labels = labels_of(far, self.full)[1]
        for op in self._needed():
            self.linked.append(self._linked(op, labels))
        self._meet(self.size_of_far)

    def axis(self, number: int) -> int | None:
        """Returns the padded axis of a value; None of one that has none."""
        return self.axes.get(number)

    def length(self, number: int) -> int:
        """Returns how many positions a value has in the full run; one where it has no such axis."""
        axis = self.axis(number)
        return 1 if axis is None else self.full.values[number].shape[axis]

    def _far(self) -> Run:
        for part in FAR:
            self.size_of_far = int(self.size * part)
            with suppress(InputError):
                if self.size_of_far >= 1:
                    return self.recording(self.size_of_far)
        raise NotDerived("the model takes hardly any other size")

    def recording(self, size: int) -> Run:
        """Returns a recording of another size. Errors: as of ``record``; NotDerived."""
        if size not in self.recorded:
            if len(self.recorded) >= MOST_RECORDINGS:
                raise NotDerived(f"{MOST_RECORDINGS} recordings do not tell")
            run = self.record(size)
            mine, other = run.operations, self.full.operations
            shape = [[(o.op, tuple(o.reads), tuple(o.gives)) for o in ops] for ops in (mine, other)]
            if shape[0] != shape[1] or run.outputs != self.full.outputs:
                raise NotDerived("the model runs other operations at another size")
            pairs = zip(run.values, self.full.values, strict=True)
            if any(0 in own.shape and 0 not in full.shape for own, full in pairs):
                raise InputError("size", size, "it leaves nothing of an array", "")
            self.recorded[size] = run
        return self.recorded[size]

    def steady(self, number: int) -> bool:
        """Returns whether an operation is called with the same attributes at every size that was
        recorded, so that it can be run alone at further ones as it was in the full run."""
        every = [run.operations[number] for run in self.recorded.values()]
        own = repr(self.full.operations[number].attributes)
        return all(repr(operation.attributes) == own for operation in every)

    def leading(self, link: Linked, sizes: dict[int, int], zeros: bool = True) -> dict[int, int]:
        """Returns how many of an operation's first outputs read the same as in the full run where
        its operands, of these sizes, are that run's first positions; by output. ``zeros``: behind
        them there are zeros in the full run, where an operand is padded with zeros at all."""
        met = link.met.get(link.remainders([sizes[n] for n in link.operands]))
        if met is None or not (met.aligned or (met.absorbs and zeros)):
            return dict.fromkeys(link.gives, 0)
        free = self.zeros if met.absorbs and zeros else set()
        return {n: self._leading(link, n, sizes, sizes, sizes[n], free) for n in link.gives}

    def _meet_axes(self, far: Run) -> None:
        """Finds what depends on the padded inputs, and the axis along which it goes with them."""
        self.depends = set(self.inputs)
        for op in self.full.operations:
            if self.depends.intersection(op.reads):
                self.depends.update(op.gives)
        for number in set(range(len(self.full.values))) - set(self.inputs):
            mine, other = (r.values[number].shape for r in (far, self.full))
            axes = [a for a, (n, m) in enumerate(zip(mine, other, strict=False)) if n != m]
            if len(axes) > 1 or len(mine) != len(other):
                self.axes[number] = -1  # refused only where it is needed
            elif axes:
                self.axes[number] = axes[0]

    def _needed(self) -> list[int]:
        """Returns the operations on the way from the padded inputs to outputs, in order."""
        wanted, needed = set(self.full.outputs), []
        for op in reversed(self.full.operations):
            if wanted.intersection(op.gives):
                wanted.update(op.reads)
                if self.depends.intersection(op.reads):
                    needed.append(op.number)
        self.wanted = wanted
        for number in wanted:
            if number in self.depends and self.axes.get(number, 0) < 0:
                raise NotDerived("an array has several axes that go with the padded one")
            foreign = self.full.values[number].given < 0 and number not in self.inputs
            if foreign and number in self.axes:
                raise NotDerived("an array that no operation gave goes with the padded axis")
        return needed[::-1]

    def _linked(self, number: int, labels: Sequence[Labels]) -> Linked:
        op = self.full.operations[number]
        gives = tuple(n for n in op.gives if n in self.wanted)
        marked = Marked(self.full, number, labels, self._operand_axis, gives)
        operands = tuple(n for n in dict.fromkeys(op.reads) if n in self.depends)
        if any(n not in self.axes for n in operands):
            raise NotDerived(f"{op.name} reads what was made of the whole padded axis")
        reads = {}
        for n in operands:
            read = positions_read(marked, n)
            if read is None:
                raise NotDerived(f"{op.name} reads the padded axis in no simple pattern")
            if all((part.high < 0).all() for part in read.values()):
                # a table that is looked up at recorded numbers: its labels name the rows themselves
                raise NotDerived(f"what {op.name} reads depends on the numbers of an operand")
            reads[n] = read
        if all(n in self.zeros for n in operands):
            some = {
                n: by_position(self.full, n, self.axes[n], self.length(n) // 2) for n in operands
            }
            for value, line in marked.outputs(some).items():
                same = {self.length(n) for n in operands} == {len(line)}
                ends = np.arange(len(line)) >= len(line) // 2
                if same and np.array_equal(line == ZERO, ends):
                    self.zeros.add(value)
        return Linked(number, operands, gives, reads)

    def _operand_axis(self, number: int) -> int | None:
        return self.axes.get(number) if number in self.depends else None

    def _meet(self, size: int) -> None:
        """Looks at all operations in a recording of another size."""
        short = self.recording(size)
        labels = labels_of(short, self.full)

        def length(number: int) -> int:
            axis = self.axis(number)
            shape, other = short.values[number].shape, self.full.values[number].shape
            apart = [a for a, (n, m) in enumerate(zip(shape, other, strict=True)) if n != m]
            if len(shape) != len(other) or any(a != axis for a in apart):
                raise NotDerived("an array's other axes have other sizes at another size")
            return 1 if axis is None else shape[axis]

        for link in self.linked:
            sizes, gives = tuple(map(length, link.operands)), tuple(map(length, link.gives))
            if sizes == tuple(map(self.length, link.operands)):
                continue
            key = link.remainders(sizes)
            known = link.met.get(key)
            if known is not None and self.sizes_of(link, known, sizes) != gives:
                raise NotDerived("sizes do not follow from each other")
            compared = functools.partial(self._compared, link, short, labels, sizes, gives)
            aligned = compared(None)
            ends = [n for n in link.operands if n in self.zeros]
            count = sizes[link.operands.index(ends[0])] if ends else 0
            absorbs = bool(ends) and all(map(compared, {1, count // 2, count}))
            if known is not None:
                known.aligned &= aligned
                known.absorbs &= absorbs
            else:
                link.met[key] = PositionedOperation(sizes, gives, aligned, absorbs)

    def _compared(
        self,
        link: Linked,
        short: Run,
        labels: tuple[list[Labels], list[Labels]],
        sizes: Sequence[int],
        gives: Sequence[int],
        content: int | None,
    ) -> bool:
        """Returns whether an operation's first outputs are the full run's, as many as are derived.

        ``content``: how much of an operand comes before zeros; None: there are none.
        """
        both = []
        for run, some in zip((short, self.full), labels, strict=True):
            marked = Marked(run, link.number, some, self._operand_axis, link.gives)
            changed = {
                n: by_position(run, n, self.axes[n], content)
                for n in link.operands
                if content is not None and n in self.zeros
            }
            both.append(marked.outputs(changed))
        free = self.zeros if content is not None else set()
        by_operand = dict(zip(link.operands, sizes, strict=True))
        for n, count in zip(link.gives, gives, strict=True):
            leading = self._leading(link, n, by_operand, by_operand, count, free)
            if not np.array_equal(both[0][n][:leading], both[1][n][:leading]):
                return False
        return True

    def _leading(
        self,
        link: Linked,
        output: int,
        sizes: dict[int, int],
        leading: dict[int, int],
        count: int,
        free: set[int],
    ) -> int:
        """Returns how many outputs come first that read nothing but what the full run has too."""
        count = min(count, self.length(output))
        for n in link.operands:
            if n not in free and not sizes[n] == leading[n] == self.length(n):
                count = min(count, int(np.searchsorted(link.reads[n][output].reach, leading[n])))
        return count

    def sizes_of(
        self, link: Linked, met: PositionedOperation, sizes: Sequence[int]
    ) -> tuple[int, ...]:
        """Returns the sizes of an operation's outputs, from those where it was met."""
        further, reads = sizes[0] - met.reads[0], link.reads[link.operands[0]]
        return tuple(
            count
            if self.axis(output) is None
            else count + further // (reads[output].period or 1) * reads[output].moved
            for output, count in zip(link.gives, met.gives, strict=True)
        )

    def gives(
        self, link: Linked, own: Sequence[int]
    ) -> tuple[tuple[int, ...] | None, PositionedOperation | None]:
        """Returns the sizes of an operation's outputs where its operands have these, and where it
        was met at their remainders; None: it is the call of the full run, or it was not met."""
        if list(own) == [self.length(n) for n in link.operands]:
            return tuple(map(self.length, link.gives)), None
        met = link.met.get(link.remainders(own))
        return None if met is None else self.sizes_of(link, met, own), met

    def at(self, size: int) -> At:
        """Returns what a run of some size shares with the full one. Errors: InputError where the
        model does not take it, as far as it was recorded; NotDerived."""
        if size in self.refused:
            raise self.refused[size]
        for attempt in range(MOST_AHEAD + 1):
            if size in self._at or self._follow(size):
                return self._at[size]
            telling = self._telling(size) if attempt < MOST_AHEAD else size
            try:
                self._meet(telling)
            except InputError as error:
                self.refused[telling] = error
                if telling == size:
                    raise
        if not self._follow(size):
            raise NotDerived("a recording does not tell its own sizes")
        return self._at[size]

    def _telling(self, size: int) -> int:
        """Returns the size, this one or a longer one, whose recording would meet most operations at
        remainders that were not met, as far as that can be told before."""
        near = range(size, min(size + NEAR, self.size))
        ahead = np.linspace(size, self.size - 1, NEAR).astype(int).tolist()
        others = [n for n in (*near, *ahead) if n not in self.recorded and n not in self.refused]
        return max([size, *others], key=self._unmet)

    def _unmet(self, size: int) -> int:
        """Counts the operations at remainders that were not met, in a run of about such sizes."""
        sizes, count = dict.fromkeys(self.inputs, size), 0
        for link in self.linked:
            own = [sizes[n] for n in link.operands]
            gives, _ = self.gives(link, own)
            if gives is not None:
                sizes.update(zip(link.gives, gives, strict=True))
            else:
                count += 1
                for n in link.gives:  # as where windows have to fit
                    how, length = link.reads[link.operands[0]][n], self.length(link.operands[0])
                    fewer = -(-(length - own[0]) // (how.period or 1)) * how.moved
                    sizes[n] = self.length(n) - fewer
        return count

    def takes(self, size: int) -> bool:
        """Returns whether the model runs at a size, as far as that is known."""
        with suppress(InputError):
            self.at(size)
            return True
        return False

    @functools.cached_property
    def shortest(self) -> int:
        """Returns a size below which some output shares nothing with the full run, whatever is met
        there: the larger a size, the more there may be."""
        least = bisect_left(range(self.size + 1), True, key=self._may_share)
        return min(least, self.size)

    def _may_share(self, size: int) -> bool:
        """Returns whether each output may have a position that reads as in the full run."""
        sizes = dict.fromkeys(self.inputs, size)
        leading = dict(sizes)
        for link in self.linked:
            own = [sizes[n] for n in link.operands]
            same = own == [self.length(n) for n in link.operands]
            gives = [self.length(n) for n in link.gives] if same else self._at_most(link, own)
            for n, count in zip(link.gives, gives, strict=True):
                sizes[n] = count
                leading[n] = self._leading(link, n, sizes, leading, count, self.zeros)
        return all(leading.get(n, 1) > 0 for n in self.full.outputs)

    def _follow(self, size: int) -> bool:
        """Derives all values' sizes and shared positions; False: an operation was not met."""
        if size < self.shortest:
            nothing = dict.fromkeys(self.wanted & self.depends, 0)
            self._at[size] = At(nothing, nothing)
            return True
        sizes = dict.fromkeys(self.inputs, size)
        leading, known = dict(sizes), True
        for link in self.linked:
            own = [sizes[n] for n in link.operands]
            gives, met = self.gives(link, own)
            aligned = met is None or met.aligned or met.absorbs
            free = self.zeros if met is None or met.absorbs else set()
            if gives is None:  # at most so many, until it is met
                known, gives = False, self._at_most(link, own)
            if min(gives) < 1:
                break
            for n, count in zip(link.gives, gives, strict=True):
                sizes[n] = count
                leading[n] = self._leading(link, n, sizes, leading, count, free) if aligned else 0
        outputs = [n for n in self.full.outputs if n in self.depends]
        if any(leading.get(n, 0) < 1 for n in outputs):  # nor would it have any if it were met
            nothing = dict.fromkeys(self.wanted & self.depends, 0)
            self._at[size] = At(nothing, nothing)
        elif known:
            self._at[size] = At(sizes, leading)
        return size in self._at

    def _at_most(self, link: Linked, sizes: Sequence[int]) -> tuple[int, ...]:
        fewer, reads = self.length(link.operands[0]) - sizes[0], link.reads[link.operands[0]]
        return tuple(
            self.length(n) - (fewer // (reads[n].period or 1) - 1) * reads[n].moved
            for n in link.gives
        )

    def lowest(self) -> dict[int, np.ndarray]:
        """Returns of each value the lowest position of the inputs that each of its own reads."""
        lowest = {n: np.arange(self.size) for n in self.inputs}
        for link in self.linked:
            for n in link.gives:
                least = np.full(self.length(n), NEVER)
                for operand in link.operands:
                    how, numbers = link.reads[operand][n], lowest[operand]
                    read = np.flatnonzero(how.high >= how.low)
                    if (np.diff(numbers) >= 0).all():
                        least[read] = np.minimum(least[read], numbers[how.low[read]])
                        continue
                    for o in read.tolist():
                        least[o] = min(least[o], numbers[how.low[o] : how.high[o] + 1].min())
                lowest[n] = least
        return lowest

    def weights(self, outputs: dict[int, np.ndarray]) -> dict[int, np.ndarray]:
        """Returns of each value, for each position, the least number that an output has which
        reads it. ``outputs``: these numbers, by the outputs' own."""
        weights = {n: np.full(self.length(n), NEVER) for n in self.wanted & self.depends}
        for n, numbers in outputs.items():
            weights[n] = np.minimum(weights[n], numbers)
        for link in reversed(self.linked):
            for n in link.gives:
                for operand in link.operands:
                    how, into, numbers = link.reads[operand][n], weights[operand], weights[n]
                    for o in np.flatnonzero((how.high >= how.low) & (numbers < NEVER)).tolist():
                        part = into[how.low[o] : how.high[o] + 1]
                        np.minimum(part, numbers[o], out=part)
        return weights


# Which positions of the padded axis each output of an operation reads, found by its labels.
#
# An operand is labelled position by position and marked at some of them: the outputs whose labels
# change read those. Few marks tell the pattern, which repeats along the axis (a stride, a factor of
# upsampling); marks of everything before or behind a position then prove it at both edges. Nothing
# is known here of what an operation is called or does.


# Positions up to which every one is marked by itself.
SMALL = 64

# Largest stride that is looked for.
PERIODS = 32

# Places of an operand, beside those at its edges, before and behind which all is marked.
MARKS = 6

# The padded axis of a value, by number; None where it has none.
PADDED = Callable[[int], "int | None"]


@dataclass(frozen=True)
class Reads:
    """What the outputs of an operation read of one operand, in positions of the full run.

    ``low``, ``high``: of each output the first and the last position, ``high`` -1 and ``low`` the
    operand's size where it reads none. ``period``: further ``period`` positions on, all outputs
    are ``moved`` on.
    """

    low: np.ndarray
    high: np.ndarray
    period: int = 1
    moved: int = 1

    @functools.cached_property
    def reach(self) -> np.ndarray:
        """Returns the last position that any of the outputs up to each of them reads."""
        return np.maximum.accumulate(self.high)


def by_position(run: Run, number: int, axis: int, content: int | None = None) -> Labels:
    """Labels that name a value's positions along an axis alone; zeros from ``content`` on."""
    shape = run.values[number].shape
    array = joint(tag("position", number), np.arange(1, shape[axis] + 1, dtype=np.uint64))
    if content is not None:
        array[content:] = ZERO
    lengths = [shape[a] if a == axis else min(n, 1) for a, n in enumerate(shape)]
    return Labels(shape, array.reshape(lengths))


def line_labels(label: Labels, axis: int | None) -> np.ndarray:
    """Returns a label for each position along an axis, or of no axis one of all elements."""
    full = label.full()[None] if axis is None else label.full([axis])
    return joined_lines(full, (axis or 0,)).reshape(-1)


class Marked:
    """One operation of a run whose operands are labelled by position.

    ``labels``: of everything that no padded axis is in. ``axis``: of each value. ``wanted``: the
    outputs that are looked at.
    """

    def __init__(
        self,
        run: Run,
        number: int,
        labels: Sequence[Labels | None],
        axis: PADDED,
        wanted: Container[int],
    ) -> None:
        self.run, self.operation, self.axis = run, run.operations[number], axis
        self.wanted = wanted
        along = [n for n in dict.fromkeys(self.operation.reads) if axis(n) is not None]
        self.found = {n: labels[n] for n in self.operation.reads if axis(n) is None}
        self.found |= {n: by_position(run, n, axis(n) or 0) for n in along}

    def outputs(self, changed: dict[int, Labels] | None = None) -> dict[int, np.ndarray]:
        """Returns a label for each position of each wanted output, with some operands' changed."""
        some = self.found | (changed or {})
        labels = result_labels(self.run, self.operation, some)
        both = zip(self.operation.gives, labels, strict=True)
        return {n: line_labels(label, self.axis(n)) for n, label in both if n in self.wanted}

    def marked(self, number: int, which: np.ndarray) -> Labels:
        """Returns an operand's labels with a mark at positions (bool)."""
        label, axis = self.found[number], self.axis(number) or 0
        assert label is not None
        at = which.reshape([-1 if a == axis else 1 for a in range(len(label.shape))])
        return label._replace(array=np.where(at, joint(label.array, tag("marked")), label.array))


def positions_read(marked: Marked, number: int) -> dict[int, Reads] | None:
    """Returns what each wanted output, by number, reads of an operand; None: in no pattern."""
    shape, axis = marked.run.values[number].shape, marked.axis(number)
    assert axis is not None
    size, plain = shape[axis], marked.outputs()

    def changed(which: np.ndarray) -> dict[int, np.ndarray]:
        lines = marked.outputs({number: marked.marked(number, which)})
        return {n: np.flatnonzero(lines[n] != labels) for n, labels in plain.items()}

    @functools.cache
    def changed_by(position: int) -> dict[int, np.ndarray]:
        return changed(np.arange(size) == position)

    patterns = {}
    for output, labels in plain.items():

        def readers(position: int, output: int = output) -> np.ndarray:
            """Returns the positions of an output that read one of the operand."""
            return changed_by(position)[output]

        for pattern in _patterns(readers, size, len(labels)):
            if _pattern_holds(pattern, lambda which, n=output: changed(which)[n], size):  # type: ignore[misc]
                patterns[output] = pattern
                break
        else:
            return None
    return patterns


Readers = Callable[[int], np.ndarray]


def _patterns(readers: Readers, size: int, outputs: int) -> Iterator[Reads]:
    """Yields the patterns that a few positions allow, the likeliest first."""
    if size <= SMALL:
        ends = _first_and_last([(readers(p), p) for p in range(size)], size, outputs)
        for begin in range(size // 2, size - 1):
            for pattern in _repeated(readers, begin, size, outputs):
                if np.array_equal(pattern.low, ends[0]) and np.array_equal(pattern.high, ends[1]):
                    yield pattern
        yield Reads(*ends, 0, 0)
        return
    middle = next((p for p in range(size // 2, size) if len(readers(p))), None)
    if middle is None:
        yield Reads(np.full(outputs, size), np.full(outputs, -1))
        return
    if len(readers(middle)) == outputs:
        yield Reads(np.zeros(outputs, int), np.full(outputs, size - 1))
    yield from _repeated(readers, middle, size, outputs)


def _repeated(readers: Readers, begin: int, size: int, outputs: int) -> Iterator[Reads]:
    """Yields the patterns in which the readers of some positions are those of all, moved on."""
    first = readers(begin)
    for period in range(1, min(PERIODS, size - begin - 1) + 1):
        other = readers(begin + period)
        if not len(first) or not len(other):
            continue
        moved = int(other[0] - first[0])
        # all up to the last output, as where a state is carried on
        last = first[-1] == other[-1] == outputs - 1
        carried = last and all(at[-1] - at[0] + 1 == len(at) for at in (first, other))
        if moved <= 0 or not (carried or np.array_equal(first + moved, other)):
            continue
        pairs = []
        for phase in range(period):
            at = begin + phase
            steps = np.arange(-(at // period), (size - 1 - at) // period + 1)
            own = readers(at)[:1] if carried else readers(at)
            pairs += [(own + step * moved, at + step * period) for step in steps.tolist()]
        low, high = _first_and_last(pairs, size, outputs)
        if carried:  # each output reads everything before it too
            high = np.maximum.accumulate(high)
            low = np.where(high < 0, size, 0)
        yield Reads(low, high, period, moved)


def _first_and_last(
    pairs: Sequence[tuple[np.ndarray, int]], size: int, outputs: int
) -> tuple[np.ndarray, np.ndarray]:
    low, high = np.full(outputs, size), np.full(outputs, -1)
    for own, position in pairs:
        there = own[(own >= 0) & (own < outputs)]
        low[there] = np.minimum(low[there], position)
        high[there] = np.maximum(high[there], position)
    return low, high


def _pattern_holds(pattern: Reads, changed: Callable[[np.ndarray], np.ndarray], size: int) -> bool:
    """Marks everything before and everything behind a few positions."""
    places = np.arange(size)
    drawn = np.random.default_rng(size).integers(0, size + 1, MARKS).tolist()
    for at in {1, 2, 3, size - 3, size - 2, size - 1, *drawn}:
        if not 0 < at < size:
            continue
        behind, before = changed(places >= at), changed(places < at)
        if not np.array_equal(behind, np.flatnonzero(pattern.high >= at)):
            return False
        if not np.array_equal(before, np.flatnonzero(pattern.low < at)):
            return False
    return True


# What of the full run's outputs is kept, and where shorter runs have it.


@dataclass(frozen=True)
class KeptPart:
    """Along an ``axis`` of an output: [start, stop) of the full run is [start + offset, stop +
    offset) of the short one."""

    axis: int
    start: int
    stop: int
    offset: int = 0


# What of an output is kept; empty: all of it.
Box = tuple[KeptPart, ...]


# How far before or behind its place in the full run something kept is looked for.
MOVED_BY = 8


def where_kept(
    boxes: Sequence[Box | None], labels: Sequence[tuple[Labels, Labels]], near: int
) -> tuple[Box | None, ...] | None:
    """Returns where a short run has what is kept of each output; None where it hasn't all of it.

    ``labels``: of each output of the short run and of the full one. ``near``: see ``MOVED_BY``.
    """
    places: list[Box | None] = []
    for box, (left, right) in zip(boxes, labels, strict=True):
        there = None if box is None else place_of(left, right, box, near)
        if box is not None and there is None:
            return None
        places.append(there)
    return tuple(places)


def box_of(mask: np.ndarray) -> Box | None:
    """Returns the smallest box that has all of a mask, by the axes of which it takes a part."""
    if not mask.any():
        return None
    parts = []
    for axis in range(mask.ndim):
        line = np.flatnonzero(mask.any(axis=tuple(a for a in range(mask.ndim) if a != axis)))
        if len(line) < mask.shape[axis]:
            parts.append(KeptPart(axis, int(line[0]), int(line[-1]) + 1))
    return tuple(parts)


def box_index(box: Box, short: bool, rank: int) -> tuple[slice, ...]:
    """Returns the box as an index into an output: of the short run, or of the full one."""
    index = [slice(None)] * rank
    for part in box:
        moved = part.offset if short else 0
        index[part.axis] = slice(part.start + moved, part.stop + moved)
    return tuple(index)


def place_of(left: Labels, right: Labels, box: Box, near: int = MOVED_BY) -> Box | None:
    """Finds the box, with offsets, in which a short run has the full one's labels; None: nowhere.

    Along an axis that has another size, and that the box takes whole, there is none.
    """
    if len(left.shape) != len(right.shape):
        return None
    named = {part.axis: part for part in box}
    other = [
        axis for axis, (n, m) in enumerate(zip(left.shape, right.shape, strict=True)) if n != m
    ]
    if any(axis not in named for axis in other):
        return None
    axes = [
        axis
        for axis in range(len(right.shape))
        if axis in named
        or not (left.implicit(axis) and right.implicit(axis))
        or left.name(axis) != right.name(axis)
    ]
    mine, theirs = left.full(axes), right.full(axes)
    wanted = theirs[box_index(box, False, theirs.ndim)]
    most = max((right.shape[p.axis] - left.shape[p.axis] for p in box), default=0)
    # where it stands first, then where the sizes before the content may differ
    offsets = [0, *(sign * n for n in range(1, min(most, near) + 1) for sign in (-1, 1))]
    for offset in offsets:
        moved = tuple(
            KeptPart(p.axis, p.start, p.stop, offset if p.axis in other else 0) for p in box
        )
        fits = all(
            p.start + p.offset >= 0 and p.stop + p.offset <= left.shape[p.axis] for p in moved
        )
        if fits and (mine[box_index(moved, True, mine.ndim)] == wanted).all():
            return moved
    return None


def elements_apart(mine: np.ndarray, other: np.ndarray, value: Value) -> int:
    """Returns how many elements have different bits."""
    if mine.shape != other.shape:
        return max(mine.size, other.size)
    return int(unequal_bits(mine, other, value.dtype).sum())
