"""What the inputs of one run hold that another's lack; other content for it; and which elements of
a run's values change as it is repeated with that.

Four finite contents serve: large of either sign (one of them wakes a unit that the other leaves
dead), random ones, and zeros, which are what a side has that leaves a product out: what saturates
with zeros and with large ones alike is moved by nothing between. NaN would be stricter, but 0 * NaN
hides what stands behind a mask. Of a batch two serve, as a rule: in the second, some samples are
large and others random, and where that reaches no sample that the first has not reached, no more
are asked. A repetition is compared while it runs, value by value, with what is kept of the run, and
leaves marks alone: the values of four runs more would not fit beside a large model's.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from probe.case import floats
from probe.case.errors import Foreign, ProbeError, foreign
from probe.record.contract import WEIGHT, Operation, Recorder, Seen
from probe.record.recording import Run, record_run
from probe.record.store import array_digest
from probe.targets import budget

Arrays = Mapping[str, np.ndarray]

# Which elements of inputs are meant: bool, of the inputs' shapes.
Where = dict[str, np.ndarray]

SEED = 47_000

# Times the largest number of an input: what any sum of the others can't outweigh by chance.
LARGE = 4.0

# What is added to hide is less than this.
HIDES = -1e3

# Elements of an array that say whether all of them may be of two numbers.
BEGIN = 1 << 12


def what_is_lacked(left: Arrays, right: Arrays) -> tuple[Where, Fraction] | None:
    """Where ``right`` holds what ``left`` lacks, and which part of it stands before the left's own:
    0 for a beginning, 3/8 for sample 3 of a batch of 8. A piece may be one along several axes, as a
    sample without its padding is.

    None: the inputs of neither are a piece of the other's, all of them the same one.
    """
    if left.keys() != right.keys():
        return None
    # of each input that is longer on one side: by how much along which axes, and where it may stand
    pieces = dict[str, tuple[dict[int, int], list[tuple[int, ...]]]]()
    for name, array in right.items():
        shape, other = left[name].shape, left[name]
        if other.ndim != array.ndim or other.dtype != array.dtype:
            return None
        sizes = enumerate(zip(shape, array.shape, strict=True))
        longer = {axis: n - m for axis, (n, m) in sizes if n != m}
        if len({size > 0 for size in longer.values()}) > 1:
            return None  # longer along one axis and shorter along another
        if not longer and other.tobytes() != array.tobytes():
            return None
        if longer:
            pieces[name] = longer, places_of_piece(other, array, [*longer])
    where = {name: np.zeros(array.shape, bool) for name, array in right.items()}
    before = Fraction(0)
    for name, (longer, _) in pieces.items():
        # a mask may stand in many places: what it belongs to says where
        alike = [set(places) for sizes, places in pieces.values() if sizes == longer]
        common = set.intersection(*alike)
        if not common:
            return None
        for axis, start in zip(longer, min(common), strict=True):
            if longer[axis] < 0:
                lines = np.arange(right[name].shape[axis]) - start
                outside = (lines < 0) | (lines >= left[name].shape[axis])
                where[name] |= outside.reshape(-1, *(1,) * (where[name].ndim - axis - 1))
                before = max(before, Fraction(start, len(lines)))
    return where, before


def places_of_piece(
    left: np.ndarray, right: np.ndarray, axes: Sequence[int]
) -> list[tuple[int, ...]]:
    """Where the shorter of two arrays stands in the longer one, along these axes."""
    small, large = sorted((left, right), key=lambda array: array.shape[axes[0]])
    content, index, places = small.tobytes(), [slice(None)] * large.ndim, list[tuple[int, ...]]()
    for start in product(*(range(large.shape[k] - small.shape[k] + 1) for k in axes)):
        for axis, begin in zip(axes, start, strict=True):
            index[axis] = slice(begin, begin + small.shape[axis])
        if large[tuple(index)].tobytes() == content:
            places.append(start)
    return places


def contents(
    arrays: Arrays,
    where: Where,
    dtypes: Mapping[str, str] | None = None,
    apart: Collection[str] = (),
) -> Iterator[Arrays]:
    """Yields the inputs with other content in these places, four times; the second of a batch has
    two kinds of it, in turns. Of several inputs every second one is large of the other sign then:
    a product of two that always have the same sign would keep a function saturated.

    ``dtypes``: of inputs whose containers don't say (bfloat16). A mask stays that hides all of what
    is lacked: that is padding, unless both sides have it and other numbers in it (``apart``). Other
    masks, and classes of few numbers, stay in the first two as
    well and change in the others, so that what counts them is seen.
    """
    samples = lacked_samples(arrays, where)
    masks = {n for n, array in arrays.items() if n not in apart and is_mask(array)}
    # what is added to hide may be -10,000 alone, which large numbers outweigh
    behind_mask = any(_hides(arrays[name], where[name]) for name in masks if where[name].any())
    large = 1.0 if behind_mask else LARGE
    for number, kinds in enumerate(KINDS if samples is None else KINDS_OF_BATCH):
        changed, rank = {}, 0
        for order, (name, array) in enumerate(arrays.items()):
            places = where[name]
            if name in masks and places.any():
                # padding of the samples that both have stays hidden; other samples' masks change
                lacked = places.all(axis=tuple(range(1, places.ndim)), keepdims=True)
                padding = places & ~lacked
                if _hides(array, places):
                    places = np.zeros_like(places)
                elif _hides(array, padding):
                    places = places & lacked
            changed[name] = array
            if not places.any():
                continue
            rows = _other_rows(array, places, number)
            if rows is not None:
                changed[name] = rows
                continue
            dtype = (dtypes or {}).get(name, str(array.dtype))
            rank += 1
            for turn, kind in enumerate(kinds):
                if number and rank % 2 == 0 and kind < 2:
                    kind = 1 - kind
                other = other_content(array, dtype, kind, SEED + 101 * order + number, large)
                if samples is not None and len(kinds) > 1:
                    lines = np.cumsum(samples) % len(kinds) == turn
                    places = where[name] & lines.reshape(-1, *(1,) * (array.ndim - 1))
                changed[name] = np.where(places, other, changed[name]).astype(array.dtype)
        yield changed


def _other_rows(mask: np.ndarray, where: np.ndarray, number: int) -> np.ndarray | None:
    """A mask with other samples' rows in the place of those that are lacked: with one that
    begins or ends otherwise than any of them PyTorch's encoder, say, runs other operations. None:
    these rows are alike, or it is no such mask."""
    lines = where.reshape(len(where), -1).all(axis=1)
    whole = mask.ndim == 2 and lines.sum() * mask.shape[1] == where.sum()
    if number < 2 or not whole or not is_mask(mask):
        return None
    rows, changed = mask[lines], mask.copy()
    counts = np.count_nonzero(rows, axis=1)
    # what counts them has to see another number, and what asks for the longest the same length:
    # one row of either kind stays, as ones may show or hide
    ends = np.argmin(counts), np.argmax(counts)
    for row, filler in (ends[::-1], ends):
        replaced = np.where((np.arange(len(rows)) == row)[:, None], rows, rows[filler])
        if (replaced != rows).any():
            changed[lines] = replaced if number == 2 else np.roll(rows, 1, axis=0)
            return changed
    return None


# What each repetition has of ``other_content``'s kinds.
KINDS = (0,), (1,), (2,), (4,)
KINDS_OF_BATCH = (0,), (1, 2), (1,), (3,)


def lacked_samples(arrays: Arrays, where: Where) -> np.ndarray | None:
    """Which samples of a batch are lacked, several of them: bool. None: something else is,
    or a mask with them, which is changed last."""
    lines = list[np.ndarray]()
    for name, samples in where.items():
        if samples.any():
            each = samples.reshape(len(samples), -1)
            lines.append(np.asarray(each.any(axis=1)))
            if is_mask(arrays[name]) or not np.array_equal(lines[-1], each.all(axis=1)):
                return None
    if not lines or not all(np.array_equal(lines[0], line) for line in lines):
        return None
    return lines[0] if 1 < lines[0].sum() < len(lines[0]) else None


def independent(arrays: Arrays, dtypes: Mapping[str, str] | None = None, draw: int = 0) -> Arrays:
    """Other inputs of the same kind: random numbers, the same masks, other tokens."""
    return {
        name: array
        if is_mask(array)
        else other_content(
            array, (dtypes or {}).get(name, str(array.dtype)), 3, SEED - 1 - order - 101 * draw
        )
        for order, (name, array) in enumerate(arrays.items())
    }


def is_mask(array: np.ndarray) -> bool:
    """Whether an input says which elements of others count: two numbers at most, infinities, or
    large numbers below zero beside small ones."""
    if array.dtype.kind == "b":
        return True
    if array.dtype.kind in "iu":
        return bool(np.isin(array, (0, 1)).all()) and len(np.unique(array)) == 2
    if array.dtype.kind != "f" or array.size < 2:
        return False
    begin = array.reshape(-1)[:BEGIN]  # to sort a batch of pictures takes longer than to run some
    if np.isinf(array).any() or (len(np.unique(begin)) <= 2 and len(np.unique(array)) == 2):
        return True
    # what is added hides by large numbers, alone or twice, beside the numbers of a bias
    least = float(np.nanmin(array))
    hides, near = array < least / 10, np.abs(array) < -least / 1000
    return least < HIDES and bool(near.any() and (hides | near).all())


def _hides(mask: np.ndarray, where: np.ndarray) -> bool:
    """Whether a mask has one number in these places, and another one elsewhere."""
    there = np.unique(mask[where])  # none: nothing is hidden
    return len(there) == 1 and bool((mask[~where] != there[0]).any())


def other_content(
    array: np.ndarray, dtype: str, number: int, seed: int, large: float = LARGE
) -> np.ndarray:
    draw = np.random.default_rng(seed)
    if is_mask(array):
        values = np.unique(array) if array.dtype.kind != "b" else np.array([False, True])
        if number < 2:
            return array
        if number == 2 and len(values) == 2:  # each the other one
            return np.where(array == values[0], values[1], values[0]).astype(array.dtype)
        return draw.choice(values, array.shape).astype(array.dtype)
    if dtype not in floats.FORMATS:
        least, most = int(array.min()), int(array.max())
        if least == most:
            most = least + 1  # one number says nothing of the range
        if number < 2:
            return np.full(array.shape, (most, least)[number], array.dtype)
        return draw.integers(least, most + 1, array.shape).astype(array.dtype)
    wide = floats.widen(array, dtype)
    finite = np.abs(wide[np.isfinite(wide)])
    size = float(finite.max(initial=0.0)) or 1.0
    limit = floats.largest_finite(dtype)
    if number in (0, 1, 4):
        fill = np.full(array.shape, min(large * size, limit) * {0: 1, 1: -1, 4: 0}[number])
    else:
        fill = np.clip(draw.standard_normal(array.shape) * size / 2, -limit, limit)
    return floats.round_to(fill, dtype)


# Of eps, the power up to which two results are taken for the same: half of the digits.
HALF_OF_DIGITS = 0.5


@dataclass
class Marks:
    """Of a run's values, by number, where a repetition has different bits."""

    run: Run
    changed: dict[int, np.ndarray] = field(default_factory=dict)
    """Bool, of size 1 along axes along which it is the same: ``[[False], [True]]`` of a value whose
    second row changes."""
    unknown: set[int] = field(default_factory=set)
    """Values that a repetition did not have, or had in another shape: rows of an expert."""
    repetitions: int = 0
    """How many ran: contents that a model refuses say nothing."""
    sample_share: Fraction | None = None
    """Of a batch's samples, those that the other side has: 1/8. While it is given only their lines
    are compared."""
    reached_more: bool = False
    """Whether the present repetition changed anything that no one before it has changed."""

    def of(self, number: int) -> np.ndarray | None:
        """The mark of a value, to be broadcast to its shape; None: nothing is known."""
        if number in self.unknown:
            return None
        nothing = np.zeros((1,) * len(self.run.values[number].shape), bool)
        return self.changed.get(number, nothing)

    def compare(
        self,
        number: int,
        shape: tuple[int, ...],
        dtype: str,
        array: np.ndarray,
        rounded: bool = False,
    ) -> None:
        """Marks where a value of a repetition differs from the run's; where it may be ``rounded``
        in another way, as operations of other sizes round, by more than rounding does."""
        value = self.run.values[number]
        if number in self.unknown:
            return
        if (shape, dtype) != (value.shape, value.dtype):
            self.unknown.add(number)
            return
        # of a batch's second content the other side's samples alone: an eighth of 750 MB of
        # MobileNetV2's values, and of no value the digest
        lines = self._unreached(number)
        if lines is None and array_digest(array) == value.digest:
            return
        before = self.run.array(number)
        if before is None or before.shape != array.shape:
            self.unknown.add(number)
            return
        if lines is not None and not differing(before[lines], array[lines], dtype).any():
            return
        mark = differing(before, np.asarray(array), dtype)
        if rounded and dtype in floats.FORMATS:
            mark &= ~close(np.asarray(array), before, dtype)
        old = self.changed.get(number)
        self.reached_more |= bool((mark if old is None else mark & ~old).any())
        self.changed[number] = compact(mark if old is None else old | mark)

    def _unreached(self, number: int) -> tuple[Any, ...] | None:
        """Where a value's lines stand that don't change, if they are the other side's share
        of them; None: they aren't, or it isn't asked."""
        mark = self.changed.get(number)
        if self.sample_share is None or mark is None:
            return None
        for axis, size in enumerate(mark.shape):
            if size > 1:
                across = tuple(k for k in range(mark.ndim) if k != axis)
                at = np.flatnonzero(~mark.any(axis=across))
                if len(at) == self.sample_share * size:
                    first, behind = int(at[0]), int(at[-1]) + 1
                    inner: Any = slice(first, behind) if behind - first == len(at) else at
                    return (*(slice(None),) * axis, inner)
        return None


def differing(left: np.ndarray, right: np.ndarray, dtype: str) -> np.ndarray:
    """Where two arrays of one shape have different bits; zeros of either sign are alike."""
    if left.dtype.kind in "cV":
        width = left.dtype.itemsize
        both = (np.ascontiguousarray(a).reshape(*a.shape, 1).view(np.uint8) for a in (left, right))
        first, second = both
        return np.asarray((first != second).reshape(*left.shape, width).any(-1))
    if left.dtype.kind != "f" and dtype not in floats.FORMATS:
        return np.asarray(left != right)
    unit = f"u{left.dtype.itemsize}"
    first, second = (np.ascontiguousarray(a).reshape(a.shape).view(unit) for a in (left, right))
    apart = first != second
    if left.dtype in (np.float32, np.float64):  # NaN apart, numbers have one pattern but for zero
        apart &= left != right
    else:
        apart &= ((first | second) << first.dtype.type(1)) != 0  # not both zero
    return np.asarray(apart)


def close(left: np.ndarray, right: np.ndarray, dtype: str, units: float = 0.0) -> np.ndarray:
    """Which elements of two arrays of one shape and format are the same, but for rounding.
    ``units``: of eps and the largest number, how far they may be apart; else half of the digits."""
    a, b = (floats.widen(array, dtype) for array in (left, right))
    with np.errstate(all="ignore"):
        size = np.abs(b[np.isfinite(b)]).max(initial=0.0)
        far = units * floats.eps(dtype) if units else floats.eps(dtype) ** HALF_OF_DIGITS
        same = np.abs(a - b) <= far * size
    return np.asarray(same | (a == b) | (np.isnan(a) & np.isnan(b)))


def compact(mark: np.ndarray) -> np.ndarray:
    """The same mark, of size 1 along axes along which nothing changes."""
    for axis in range(mark.ndim):
        if mark.shape[axis] > 1:
            lines = np.moveaxis(mark, axis, 0)
            # two lines say of most that they change: all of a large mark take as long as to run it
            if np.array_equal(lines[0], lines[-1]) and (lines == lines[0]).all():
                mark = mark[(slice(None),) * axis + (slice(1),)]
    return np.array(mark)


def aligned(left: Sequence[Operation], right: Sequence[Operation]) -> list[tuple[int, int]]:
    """Pairs operations by name, module and order: the longest common parts."""
    names = [[(op.op, op.path) for op in side] for side in (left, right)]
    if names[0] == names[1]:
        return [(n, n) for n in range(len(left))]
    # layers of one kind are more than 1 % of 200 operations, and no junk
    blocks = SequenceMatcher(None, names[0], names[1], autojunk=False).get_matching_blocks()
    return [(start + n, begin + n) for start, begin, size in blocks for n in range(size)]


class _Watch:
    """Compares a repetition with a run as long as it takes the same operations."""

    def __init__(self, marks: Marks) -> None:
        self.marks, self.operations_met, self.took_another_branch = marks, 0, False
        self.values_met = set[int]()

    def __call__(self, op: Operation) -> None:
        operations = self.marks.run.operations
        before = operations[self.operations_met] if self.operations_met < len(operations) else None
        if (
            self.took_another_branch
            or before is None
            or (op.op, op.path) != (before.op, before.path)
            or (len(op.reads), len(op.gives)) != (len(before.reads), len(before.gives))
        ):
            self.took_another_branch = True
            return
        self.operations_met += 1
        for seen, number in zip(op.reads, before.reads, strict=True):
            if self.marks.run.values[number].given < 0:
                self.compare(seen, number)
        for seen, number in zip(op.gives, before.gives, strict=True):
            self.compare(seen, number)

    def compare(self, seen: Seen, number: int) -> None:
        if number not in self.values_met:
            self.values_met.add(number)
            self.marks.compare(number, seen.shape, seen.dtype, seen.array())


def repeated_with_others(
    run: Run,
    recorder: Callable[[Arrays], Recorder],
    arrays: Arrays,
    where: Where,
    dtypes: Mapping[str, str] | None = None,
    apart: Collection[str] = (),
) -> Marks:
    """Repeats a run of these inputs with other content in these places."""
    samples = lacked_samples(arrays, where)
    share = None if samples is None else Fraction(int((~samples).sum()), len(samples))
    changed = contents(arrays, where, dtypes, apart)
    return repeated(run, (partial(recorder, other) for other in changed), share)


def repeated(
    run: Run, recorders: Iterable[Callable[[], Recorder]], share: Fraction | None = None
) -> Marks:
    """Repeats a run; each of ``recorders`` gives a recorder of it with other content.

    A repetition that fails, as content of its own may make it do, says nothing and isn't counted.
    One that takes another branch is recorded whole and its operations are aligned. ``share``: of a
    batch, what the other side has of it: no more is asked where the second reaches no more.
    """
    marks = Marks(run)
    for number, make in enumerate(recorders):
        if budget.spent():
            break
        watch = _Watch(marks)
        marks.sample_share = share if number == marks.repetitions == 1 else None
        marks.reached_more = False
        try:
            with unheard():
                recorder = foreign(make)
                outputs = foreign(recorder.record, watch)
        except (Foreign, ProbeError):  # a model may raise what it likes at other numbers
            if not marks.repetitions:
                marks = Marks(run)
            continue
        marks.repetitions += 1
        if not watch.took_another_branch and watch.operations_met == len(run.operations):
            for seen, output in zip(outputs, run.outputs, strict=False):
                watch.compare(seen, output)
            if marks.sample_share is not None and not (marks.reached_more or marks.unknown):
                break
        else:
            _compare_branches(marks, record_run(recorder))
    return marks


@contextmanager
def unheard() -> Iterator[None]:
    """Has nothing warn of what other content makes overflow."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _compare_branches(marks: Marks, other: Run) -> None:
    run, met = marks.run, set[int]()
    pairs = [*zip(run.outputs, other.outputs, strict=False)]
    for first, second in aligned(run.operations, other.operations):
        ops = run.operations[first], other.operations[second]
        reads = zip(ops[0].reads, ops[1].reads, strict=False)
        pairs += [(n, m) for n, m in reads if run.values[n].given < 0]
        pairs += zip(ops[0].gives, ops[1].gives, strict=False)
    for n, m in pairs:
        value, array = other.values[m], other.array(m)
        if n not in met and array is not None:
            met.add(n)
            marks.compare(n, value.shape, value.dtype, array, rounded=True)
    weights = {n for n, value in enumerate(run.values) if value.role == WEIGHT}
    marks.unknown.update(set(range(len(run.values))) - met - weights)
