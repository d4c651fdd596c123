"""Whether rounding can be why two runs differ: both sides' results are held against all that the
semantics and the operands of an operation allow (:mod:`probe.enclosure`); and between which numbers
a whole run's outputs lie, whatever the orders of all its sums."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from math import prod

import numpy as np

from probe import floats, window
from probe.enclosure import BEYOND, UNKNOWN, WITHIN, RoundingVerdict, of_operands
from probe.enclosure.operations import Interval, enclosed, enclosed_einsum
from probe.errors import InputError
from probe.recording.alone import Alone, unequal_bits
from probe.recording.recording import Operation, Run, operations_between
from probe.recording.sums import sum_of
from probe.semantics import Each, Meaning, Passes, Unknown
from probe.summation.orders import ContainerOperands

# Products, or elements times 8, that are worked on for a side; what is beyond that is unknown.
MOST = 1 << 27


# Smallest normal numbers by which results may be off where steps on the way become zero.
FLUSHED = 16


def rounding_verdict(sides: Sequence[Alone], proved: np.ndarray, counted: int) -> RoundingVerdict:
    """Returns the differing outputs of an operation by what is proved of them.

    ``proved``: bool, an output each: both sides' bits come out again in NumPy. ``counted``: how
    many have another cause that the library itself shows, such as the place in a vector: that
    explains why the sides differ, and not that both are right, so what is beyond rounding comes
    first.
    """
    dtype = sides[0].value.dtype
    apart = np.flatnonzero(unequal_bits(sides[0].outputs, sides[1].outputs, dtype))
    known = proved[apart]
    open_ = apart[~known]
    verdicts, near = np.full((2, len(open_)), UNKNOWN), np.zeros(len(open_), bool)
    for number, one in enumerate(sides if len(open_) else ()):
        verdicts[number], flush = enclosure_verdicts(one, open_)
        near |= flush
    if len(open_) and sorted(map(_is_opaque, sides)) == [False, True]:
        number = 0 if _is_opaque(sides[0]) else 1
        verdicts[number], flush = _program_verdicts(sides[number], sides[1 - number], open_)
        near |= flush
    found = RoundingVerdict.of(np.zeros(len(open_), bool), verdicts[0], verdicts[1], near)
    more = min(counted, len(open_) - found.beyond)
    unknown = max(0, found.unknown - more)  # which of the rest were counted is not known
    within = len(open_) - found.beyond - more - unknown
    explained = int(known.sum()) + more
    return replace(found, explained=explained, within=within, unknown=unknown)


def _is_opaque(one: Alone) -> bool:
    """Returns whether what an operation computes is known by its other side alone."""
    return isinstance(one.operation.meaning, Unknown)


# How many times wider an enclosure is taken for what a compiler made of the steps before a result
# is called beyond: it folds factors into weights and writes divisions as products, each of which
# errs about as much as the steps do.
MARGIN = 8.0


def _program_verdicts(one: Alone, said: Alone, some: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Judges a compiled program, whose steps are those that ``said`` (itself, or the other side,
    which reads alike) says: what lies just outside of all that these can give is left unknown."""
    found = _result_intervals(said)
    if found is None:
        return np.full(len(some), UNKNOWN), np.zeros(len(some), bool)
    dtype, by = one.value.dtype, np.full(len(some), _flush_width(said))
    found = found.map(lambda end: said.taken(end)[some])
    verdict, near = _interval_verdicts(found, one.outputs[some], dtype, by)
    wide, _ = _interval_verdicts(_of_compiler(found, dtype), one.outputs[some], dtype, by)
    return np.where((verdict == BEYOND) & (wide != BEYOND), UNKNOWN, verdict), near


def _of_compiler(found: Interval, dtype: str) -> Interval:
    """Returns what a compiler may make of steps that give these intervals."""
    middle, half = found.low / 2 + found.high / 2, (found.high - found.low) / 2
    half = MARGIN * (half + np.abs(middle) * 2.0 ** -floats.format_of(dtype).precision)
    return Interval(middle - half, middle + half)


def enclosure_verdicts(one: Alone, some: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns what can be said of a side's outputs, by number, and where flushing may be why.

    As ``Enclosure.judged``; all unknown where no enclosure of the operation is known.
    """
    nothing = np.full(len(some), UNKNOWN), np.zeros(len(some), bool)
    dtype = one.value.dtype
    if dtype not in floats.FORMATS or one.output:
        return nothing
    if _program_around(one):
        return _program_verdicts(one, one, some)
    with suppress(InputError):  # it is no sum
        return _sum_verdicts(one, some)
    if one.operation.meaning is not _written_meaning(one):
        return _program_verdicts(one, one, some)
    found = _result_intervals(one)
    if found is None:
        return nothing
    found = found.map(lambda end: one.taken(end)[some])
    return _interval_verdicts(
        found, one.outputs[some], dtype, np.full(len(some), _flush_width(one))
    )


def _result_intervals(one: Alone) -> Interval | None:
    """Returns the intervals of what a side's operation gives; None where they aren't known."""
    if one.value.dtype not in floats.FORMATS or one.output:
        return None
    if 8 * max(prod(array.shape) for array in (*one.reads, *one.gives)) > MOST:
        return None
    run, ends = one.side, _program_around(one)
    reads = [] if ends else _operand_intervals(one)
    if ends:
        # a compiled program fuses steps of the elements at one place: what is inside of it does not
        # read then what was seen of the steps before
        for number, value in enumerate(run.values):
            step = run.operations[value.given].meaning
            if value.given < 0 or not value.floating or not (isinstance(step, Each) or step.exact):
                ends.add(number)
        steps, given = operations_between(run, one.operation.reads, ends)
        arrays = run.arrays(given)
        found = {n: Interval.of(array, run.values[n].dtype) for n, array in arrays.items()}
        _add_results(run, [run.operations[n] for n in steps], found)
        if not found.keys() >= {*one.operation.reads}:
            return None
        reads = [found[n] for n in one.operation.reads]
    shapes = [run.values[n].shape for n in one.operation.gives]
    return enclosed(_written_meaning(one), reads, shapes, one.value.dtype) or _convolution_interval(
        one.operation, reads, shapes, one.dtypes
    )


def _program_around(one: Alone) -> set[int]:
    """Returns what the compiled program reads that an operation was seen in; empty if in none."""
    run, number = one.side, one.value.given
    for program in run.operations[:number:-1] if one.again is None else ():
        if isinstance(program.meaning, Passes):
            results = {program.reads[n] for n in program.meaning.numbers}
            reads = {*program.reads} - results
            if reads and number in operations_between(run, results, reads)[0]:
                return reads
    return set()


def _written_meaning(one: Alone) -> Meaning:
    """Returns an operation's meaning; of a compiled program the steps that its source has."""
    values = one.side.values
    reads, gives = (
        [values[n].shape for n in some] for some in (one.operation.reads, one.operation.gives)
    )
    return one.operation.meaning.written(reads, gives)


def _operand_intervals(one: Alone) -> list[Interval]:
    both = zip(one.reads, one.dtypes[:-1], strict=True)
    return [Interval.of(array, kind) for array, kind in both]


def _flush_width(one: Alone) -> float:
    """Returns how far off what a side gives may be where subnormal numbers become zero: what reads
    some may give anything that follows from that."""
    tiny = floats.flushed_below(one.value.dtype)
    every = (end for each in _operand_intervals(one) for end in each)
    subnormal = any(((end != 0) & (np.abs(end) < tiny)).any() for end in every)
    return float(np.inf if subnormal else FLUSHED * tiny)


def _interval_verdicts(
    found: Interval, values: np.ndarray, dtype: str, flushed: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Judges results. ``flushed``: how far off subnormal numbers that become zero may take them."""
    y = floats.widen(values, dtype)
    with np.errstate(invalid="ignore"):
        inside = (found.low <= y) & (y <= found.high)
        near = (found.low - flushed <= y) & (y <= found.high + flushed) & ~inside
    finite = np.isfinite(y) & np.isfinite(found.low) & np.isfinite(found.high)
    verdict = np.where(finite, np.where(inside, WITHIN, BEYOND), UNKNOWN)
    return np.where(near, UNKNOWN, verdict), near & finite


def _sum_verdicts(one: Alone, some: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same of sums of products, and of what is computed behind them. InputError: it is none."""
    asked, dtype = one.asked, one.value.dtype
    if asked.divides or asked.pooled:
        raise InputError("operation", one.operation.op, "a pool is no plain sum", "")
    first = some[: max(1, MOST // max(1, asked.summands))]
    verdict, flush = np.full(len(some), UNKNOWN), np.zeros(len(some), bool)
    places = asked.places(one.index[first])
    given = ContainerOperands(asked, *asked.of(one.reads), np.zeros(1))  # type: ignore[arg-type]
    found = of_operands(given, *places.T)
    if found is None:
        return verdict, flush
    values = one.outputs[first]
    if not asked.functions:
        # a mean of 2^n numbers: its sums are exactly that much larger
        sums = floats.round_to(floats.widen(values, dtype) * asked.scale, dtype)
        verdict[: len(first)], flush[: len(first)] = found.judged(sums)
        return verdict, flush
    if found.sure.any() or found.overflow.any():
        return verdict, flush
    behind = Interval(found.low, found.high)
    for word, numbers in asked.functions:
        reads = [behind]
        if word == "add":
            more = asked.filled(one.reads[numbers[0]], numbers[0])[tuple(places.T)]
            reads.append(Interval.of(more, dtype))
        each = Each(word, numbers=() if word == "add" else numbers)
        made = enclosed(each, reads, [behind.shape], dtype)
        if made is None:
            return verdict, flush
        behind = made
    both = _interval_verdicts(
        behind, values, dtype, FLUSHED * (found.flushed + floats.flushed_below(dtype))
    )
    verdict[: len(first)], flush[: len(first)] = both
    return verdict, flush


# Products of a run up to which all its values are enclosed: about a second.
MOST_PRODUCTS = 1 << 28


def output_intervals(run: Run) -> dict[int, Interval]:
    """Returns the intervals of a run's outputs, by the number of the value, of those that have one.

    Every operation may add in any order, fuse and keep wider formats as it likes: an interval holds
    what any library can give that runs these operations on these inputs and weights. Intervals grow
    from operation to operation, so that deep networks have wide ones. Empty where it is not sure
    that the operations are the same in all orders.
    """
    products = 0.0
    for one in run.operations:
        reads, gives = (
            [prod(run.values[n].shape) for n in some] for some in (one.reads, one.gives)
        )
        products += max((*reads, *gives), default=0)
        if len(reads) > 1 and gives:  # (m, k) times (k, n) gives (m, n): m * k * n, if it is one
            first, second = sorted(reads)[-2:]
            products += max(0.0, (first * second * gives[0]) ** 0.5 - max(*reads, *gives))
    if products > MOST_PRODUCTS:
        return {}
    wanted, settled = run.needed, {n for n, one in enumerate(run.values) if one.given < 0}
    for one in run.operations:
        if one.meaning.rounds is not None and settled.issuperset(one.reads):
            settled.update(one.gives)
        elif not wanted.intersection(one.gives):
            return {}  # Python itself may have read it, and decided by it what runs next
    given = {n for n in wanted if run.values[n].given < 0 or run.values[n].content is not None}
    arrays = run.arrays(given)
    found = {n: Interval.of(array, run.values[n].dtype) for n, array in arrays.items()}
    _add_results(run, [one for one in run.operations if one.gives[0] in wanted], found)
    return {n: found[n] for n in run.outputs if n in found}


def _add_results(run: Run, operations: Sequence[Operation], found: dict[int, Interval]) -> None:
    """Adds the intervals of what operations give to ``found``, of those that are known."""
    for one in operations:
        shapes, dtype = [run.values[n].shape for n in one.gives], run.values[one.gives[0]].dtype
        known = all(n in found for n in one.reads)
        if not known or one.gives[0] in found or dtype not in floats.FORMATS:
            continue
        reads = [found[n] for n in one.reads]
        dtypes = [*(run.values[n].dtype for n in one.reads), dtype]
        meaning = one.meaning.written([read.shape for read in reads], shapes)
        # not rounded: a compiler may fuse a product and the addition behind it
        made = enclosed(meaning, reads, shapes, dtype, rounded=False)
        made = made or _convolution_interval(one, reads, shapes, dtypes)
        if made is not None and meaning is not one.meaning:
            made = _of_compiler(made, dtype)
        elif made is not None and meaning.rounds != 0:  # or multiply by a reciprocal
            by = made.size * floats.eps(dtype)
            made = Interval(made.low - by, made.high + by)
        if made is not None:
            found[one.gives[0]] = made


def _convolution_interval(
    one: Operation, reads: Sequence[Interval], shapes: Sequence[tuple[int, ...]], dtypes: list[str]
) -> Interval | None:
    """Returns what a convolution gives; None where it is none, or has something behind it."""
    try:
        asked = sum_of(one.meaning, [read.shape for read in reads], shapes[0], dtypes)
    except InputError:
        return None
    if asked.divides or asked.pooled or asked.functions or asked.w is None or asked.scale != 1:
        return None
    x, w = reads[asked.x.number], reads[asked.w.number].map(asked.w.taken)
    if not np.array_equal(w.low, w.high):
        return None
    weights = w.low.reshape(asked.summands, asked.filters)
    width, ends = asked.filters // asked.groups, []
    low, high = (window.columns(asked, asked.x.taken(end)) for end in x)
    for group in range(asked.groups):
        part = weights[:, group * width : (group + 1) * width]
        columns = Interval(low[group].T, high[group].T)
        ends.append(enclosed_einsum(columns, Interval(part, part), asked.summands, dtypes[-1]))
    made = Interval(*(np.concatenate(some, axis=1) for some in zip(*ends, strict=True)))
    if asked.b is not None:
        bias = reads[asked.b.number].map(asked.b.taken)
        added = enclosed(Each("add"), [made, bias], [made.shape], dtypes[-1])
        if added is None:
            return None
        made = added
    return made.map(lambda end: asked.y.put(end.reshape(asked.output_shape())))
