"""Whether operations of two runs compute alike, output by output, whatever the data are.

Sums are judged by their order and rounding, as the operation itself answers. Operations that move
elements or round once have no choice. A function of an element is asked place by place with the
same numbers; everything else is compared by bits, on several sets of operands that agree wherever
both sides must. The last two can be refuted, and are never proofs: they say so.

``by_order`` asks this of whole runs. Bits that agree on one input prove nothing about the next, so
every sum of both runs is revealed and compared output by output. An operation that is neither a sum
nor moves elements nor rounds once is in the way: of it, and so of the model, it is not known.

``follow`` says which elements of one run another run has too, computed alike all the way from the
inputs. Labels say which elements read the same; where an operation computes an element differently,
its label becomes one that the other run has nowhere, and so does that of whatever reads it. An
output that still has its label at the end is the other run's, bit for bit, as far as the operations
were judged. It works for every graph: chains, residual connections, concatenations.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from probe import floats
from probe.comparison import Revealer
from probe.errors import ProbeError
from probe.operands import normal
from probe.recording import place
from probe.recording.alone import (
    Adds,
    Alone,
    Known,
    Sides,
    address_in_16,
    as_comparison,
    isolated_sides,
    unequal_bits,
)
from probe.recording.contract import CONSTANT, WEIGHT
from probe.recording.difference import Difference, Region
from probe.recording.matching import Match, Pair, align, result_labels
from probe.recording.recording import Run
from probe.recording.sums import first_of
from probe.semantics import Contracts, Convolution, Each, Exact, Meaning, Unknown, Windows
from probe.semantics.labels import Labels, joint, tag, told_apart
from probe.summation.certificate import BUDGET

# Sets of operands on which operations are compared that have no order.
SETS = 6

# How far numbers are moved along a function's places.
SHIFTS = 0, 1, 3, 8, 16

SEED = 31_000


@dataclass
class Judged:
    """How two sides of an operation compare. ``apart``: for each of its outputs, which of the
    pairs that must agree are computed differently (bool, flat), None for none.

    ``how``: ``exact``, ``order``, ``place`` or ``bits``; empty where it could not be asked.
    ``why``: what stands against a proof, empty for ``exact`` and ``order``. ``outputs``: of sums
    that were compared. ``certified``: every addition and every fusion was asked about; ``given``:
    for which values alone, where not for all finite ones.
    """

    how: str
    why: str = ""
    apart: list[np.ndarray | None] = field(default_factory=list)
    outputs: int = 0
    certified: bool = False
    given: str = ""

    @property
    def differing(self) -> int:
        """Returns outputs that are computed differently."""
        return sum(int(one.sum()) for one in self.apart if one is not None)


def has_no_choice(meaning: Meaning) -> bool:
    """Returns whether an operation's bits follow from what it reads, wherever it stands."""
    return meaning.rounds is not None


def one_call(one: Region, left: Run, right: Run) -> bool:
    """Returns whether both sides run the very same call, as where no size depends on what is
    varied: then the library computes it in one way, place by place. What operands begin at is a
    part of it, as far as it decides orders: modulo 16 bytes (``address_in_16``)."""
    assert one.left is not None and one.right is not None
    calls = []
    for side, number in ((left, one.left), (right, one.right)):
        op, values = side.operations[number], side.values
        ends = [values[n] for n in (*op.reads, *op.gives)]
        calls.append(
            ([(v.shape, v.dtype, address_in_16(v.address)) for v in ends], repr(op.attributes))
        )
    return calls[0] == calls[1] and all(
        some is None or other is None or np.array_equal(some, other)
        for some, other in ((pair.selection.left, pair.selection.right) for pair in one.gives)
    )


def judge_operation(one: Region, left: Run, right: Run, known: Known) -> Judged:
    """Judges an operation of both runs over the pairs of ``one.gives``.

    ``known``: what was revealed of operations like it, which is added to. It costs the operation's
    calls alone where the sides hold its operands.
    """
    assert one.left is not None and one.right is not None
    op, values = left.operations[one.left], left.values
    meaning, why = op.meaning, ""
    # a function that gives integers or truth values, as comparisons do, rounds nothing
    counts = isinstance(meaning, Each) and not any(values[n].floating for n in op.gives)
    if has_no_choice(meaning) or counts or one_call(one, left, right):
        return Judged("exact", certified=True)
    given = given_of(meaning)
    if given and isinstance(meaning, Each) and _without_subnormals(one, left, right):
        return Judged("exact", certified=True, given=given)
    if meaning.sums:
        found = judge_sums(one, left, right, known)
        if found.how:
            found.given = given
            return found
        why = found.why
    if isinstance(meaning, Each):
        return _over(one, left, right, _by_place, "place", "compared place by place")
    if not why and isinstance(meaning, Unknown):
        why = "it is unknown what it computes" + f" ({meaning.why})" * bool(meaning.why)
    why = why or "there is no test for what it computes"
    return _over(one, left, right, _by_bits, "bits", f"{why}: compared by bits")


# What a choice among numbers is exact for where a library reads subnormal ones as zeros in some
# places and not in others: TensorFlow's ReLU.
NORMAL = "values that are not subnormal"


def given_of(meaning: Meaning) -> str:
    """Returns for which values alone what is exact of an operation is; empty: for all."""
    parts = (meaning, *(meaning.parts() or ()))
    return NORMAL * any(isinstance(one, Each) and one.exact_but_subnormal for one in parts)


def _without_subnormals(one: Region, left: Run, right: Run) -> bool:
    """Returns whether no number that an operation reads or gives was subnormal in either run."""
    for side, number in ((left, one.left), (right, one.right)):
        assert number is not None
        op = side.operations[number]
        for n in dict.fromkeys((*op.reads, *op.gives)):
            array, dtype = side.array(n), side.values[n].dtype
            if array is None or dtype not in floats.FORMATS:
                return False
            sizes = np.abs(floats.widen(array, dtype))
            if ((sizes > 0) & (sizes < 2.0 ** floats.format_of(dtype).emin)).any():
                return False
    return True


def _runnable_sides(one: Region, left: Run, right: Run, output: int) -> Sides:
    """Both sides alone. ValueError: an operation can't be run so."""
    found = isolated_sides(left, right, one, output)
    if found is None or any(side.again is None for side in found):
        raise ValueError("it can't be run alone")
    return found


def weighted(meaning: Meaning) -> bool:
    """Returns whether an operation's sums are of products with weights, so that these can ask."""
    first = first_of(meaning)
    windows = isinstance(first, Windows) and not first.pool
    return windows or isinstance(first, Contracts | Convolution)


def judge_sums(one: Region, left: Run, right: Run, known: Known) -> Judged:
    """Of sums; ``how`` is empty where some outputs have no known summation."""
    assert one.left is not None
    # a mean's division is nothing that certificates ask about
    budget = BUDGET if weighted(left.operations[one.left].meaning) else 0
    made = Judged("order", certified=True)
    for output, pair in enumerate(one.gives):
        if not pair.compared:
            made.apart.append(None)
            continue
        try:
            sides = _runnable_sides(one, left, right, output)
            alone = (unequal_bits(s.given(), s.outputs, s.value.dtype) for s in sides)
            if any(apart.any() for apart in alone):
                return Judged("", "alone it gives different bits from in the run")
            apart = np.zeros(pair.compared, bool)
            adds = [Adds(each) for each in sides]
            for each in adds:
                revealer = known.setdefault(each.key, Revealer(kept=None, budget=budget))
                each.reveal(np.arange(len(each.places)), revealer)
            told = as_comparison(adds)
            if told.unknown or told.left.orders is None or told.right.orders is None:
                some = told.unknown or len(told.pairs)
                why = f"of {some} of {len(told.pairs)} outputs the order of additions is unknown"
                return Judged("", why)
            for some_apart in told.apart.values():
                apart[some_apart] = True
            made.outputs += len(told.pairs)
            made.certified &= bool(told.certified().all())
        except (ProbeError, ValueError, IndexError, KeyError) as error:
            return Judged("", str(getattr(error, "why", error)))
        made.apart.append(apart)
    return made


Compare = Callable[[Sides], np.ndarray]


def _over(one: Region, left: Run, right: Run, compare: Compare, how: str, why: str) -> Judged:
    """Judges output by output with ``compare``, which gives what differs."""
    made = Judged(how, why)
    for output, pair in enumerate(one.gives):
        if not pair.compared:
            made.apart.append(None)
            continue
        try:
            made.apart.append(compare(_runnable_sides(one, left, right, output)))
        except Exception as error:  # a library raises what it likes
            said = " ".join(str(getattr(error, "why", error)).split())[:120]
            return Judged("", f"it could not be tested: {said or type(error).__name__}")
    return made


def _may_hold_others(side: Alone, number: int) -> bool:
    """Returns whether one of the operands may hold other numbers: no weights, and nothing that is
    computed from integers alone (masks)."""
    value = side.side.values[side.operation.reads[number]]
    fixed = value.given < 0 and value.role in (WEIGHT, CONSTANT)
    return value.dtype in floats.FORMATS and not fixed and not value.plain


def _by_bits(sides: Sides) -> np.ndarray:
    """Which pairs differ on the recorded operands, or on others that agree where they must."""
    dtype = sides[0].value.dtype
    left, right = sides
    found = unequal_bits(left.given(), right.given(), dtype)
    for seed in range(1, SETS):
        # every number times one between a half and one and a half: zeros, infinities and signs stay
        theirs = list(right.reads)
        for n, array in enumerate(theirs):
            if _may_hold_others(right, n):
                factor = 1 + np.clip(normal(SEED + seed, "x", array.shape) / 6, -0.5, 0.5)
                kind = right.dtypes[n]
                theirs[n] = floats.round_to(floats.widen(array, kind) * factor, kind)
        # where both must agree they get the same new numbers, elsewhere each keeps its own
        ours = list(left.reads)
        for n, pair in enumerate(left.pairs[: len(ours)]):
            if pair.selection.empty or not _may_hold_others(right, n):
                continue
            taken = pair.selection.taken(theirs[n], 1)
            ours[n] = pair.selection.put(ours[n], taken, 0).reshape(ours[n].shape)
        found |= unequal_bits(left.given(ours), right.given(theirs), dtype)
    return found


def _by_place(sides: Sides) -> np.ndarray:
    """Which pairs differ on any number that stands at every place of both sides, or on operands."""
    found = _by_bits(sides)
    functions = [
        place.PlacedFunction.of(
            one, [n for n in range(len(one.reads)) if not _may_hold_others(one, n)]
        )
        for one in sides
    ]
    # of several magnitudes: each rounds at other places
    pool = normal(place.SEED, "x", (place.POOL,)) * np.resize([0.25, 1.0, 4.0], place.POOL)
    numbers: list[float] = pool[: place.PLAIN].tolist()
    if not any(one.held for one in functions):  # beside weights each place has its own result
        laid = (one.laid(pool, shift) for one in functions for shift in SHIFTS)
        numbers += pool[place.telling_numbers(laid, len(pool))][: place.TELLING].tolist()
    for number in numbers:  # any, then some that few places answer differently
        left, right = (
            one.taken(function.filled(number))
            for one, function in zip(sides, functions, strict=True)
        )
        found |= unequal_bits(left, right, sides[0].value.dtype)
    return found


# After which the next operation of a run is in the way.
SECONDS = 120.0


@dataclass
class OrderVerdict:
    """What was found. ``verdict``: ``same``, ``differs`` or ``unknown``.

    ``name`` and ``why``: the operation that adds differently, or the first that is in the way.
    ``outputs``: of sums that were compared; ``certified``: all were tested for every addition.
    """

    verdict: str
    name: str = ""
    why: str = ""
    outputs: int = 0
    certified: bool = False


def by_order(difference: Difference, known: Known) -> OrderVerdict:
    """Reveals the sums of two runs that were compared, and says whether all outputs add alike.

    ``known``: what was revealed of operations like these; it is added to. Stops at the first
    operation that adds differently.
    """
    begun, found = time.monotonic(), OrderVerdict("same", certified=True)
    left, right = difference.left, difference.right
    for one in difference.operations:
        meaning = difference.sides(one)[0][1].meaning
        why = _in_the_way(one, meaning)
        if not why and meaning.sums and one.compared:
            if time.monotonic() - begun > SECONDS:
                why = f"{SECONDS:.0f} seconds were over"
            else:
                told = judge_sums(one, left, right, known)
                if told.how and told.differing:
                    why = f"{told.differing} of {told.outputs} outputs are added differently"
                    return OrderVerdict("differs", one.name, why, told.outputs)
                if told.how:
                    found.outputs += told.outputs
                    found.certified &= told.certified
                why = "" if told.how else told.why or "its sums could not be asked"
        if why and found.verdict == "same":
            found.verdict, found.name, found.why = "unknown", one.name, why
    found.certified &= found.verdict == "same" and found.outputs > 0
    return found


def _in_the_way(one: Region, meaning: Meaning) -> str:
    """Returns why nothing can be said of an operation; empty if something can."""
    if isinstance(meaning, Unknown):
        return "it is unknown what it computes"
    if isinstance(meaning, Exact):
        return ""
    if one.left is None or one.right is None:
        return "it exists in one run only"
    if one.joint:
        return "it is one of several operations that together match several others"
    if not one.compared:
        return "" if all(pair.known for pair in one.gives) else "it is unknown what must agree"
    if meaning.sums or has_no_choice(meaning):
        return ""
    return f"whether {meaning.word or one.op} gives the same bits at every position is not proved"


# followed through a graph


Judge = Callable[[Region], Judged]


@dataclass
class Followed:
    """Labels of two runs; ``left`` has those of its own where something was computed differently.

    ``told``: operations that were judged, but for those that have no choice. ``alone``: operations
    of one run that compute something.
    """

    left: list[Labels]
    right: list[Labels]
    told: list[tuple[Region, Judged]] = field(default_factory=list)
    alone: list[str] = field(default_factory=list)


def follow(left: Run, right: Run, judge: Judge | None = None) -> Followed:
    """Follows two runs. ``judge``: says how an operation compares, given the pairs of its outputs
    that read the same and were computed alike before; None: what is read decides alone."""
    match = Match((left, right))
    runs, labels = match.runs, match.labels
    found = Followed(*labels)
    if judge is None:
        return found
    changed: set[int] = set()
    pairs = align(*runs)
    if strict := any(mine != other for mine, other in pairs):
        # a loop that is run step by step: what is not told to compute as its match is different
        pairs = match.operations
    for mine, other in pairs:
        if mine is None:
            continue
        op = left.operations[mine]
        if changed.intersection(op.reads):  # what reads another label gives another one
            given = result_labels(left, op, found.left)
            for number, label in zip(op.gives, given, strict=True):
                if left.values[number].content is None:
                    found.left[number] = label
                    changed.add(number)
        if has_no_choice(op.meaning):
            continue
        if other is None:
            found.alone.append(op.name)
            for number in op.gives:
                label = found.left[number]
                found.left[number] = _masked(label, np.ones(label.shape, bool), mine)
                changed.add(number)
            continue
        two = right.operations[other]
        one = Region(op.name, op.op, op.path, mine, other, inside=((mine,), (other,)))
        for found_pairs, some in (
            (one.reads, zip(op.reads, two.reads, strict=False)),
            (one.gives, zip(op.gives, two.gives, strict=False)),
        ):
            found_pairs += [Pair.of(runs, labels, *both) for both in some]
        told = Judged("exact", certified=True)
        if any(pair.compared for pair in one.gives):
            told = judge(one)
            found.told.append((one, told))
        for n, pair in enumerate(one.gives):
            apart = told.apart[n] if n < len(told.apart) else None
            if strict and not pair.selection.whole:
                # what an operation was not seen to compute as its match
                label = found.left[pair.left]
                label = _masked(label, ~pair.selection.mask(label.shape, 0), mine)
                if apart is not None and apart.any():
                    label = marked(label, pair, apart, mine)
                found.left[pair.left] = label
                changed.add(pair.left)
            elif apart is not None and apart.any():
                found.left[pair.left] = marked(found.left[pair.left], pair, apart, mine)
                changed.add(pair.left)
    return found


def marked(one: Labels, pair: Pair, apart: np.ndarray, number: int) -> Labels:
    """Labels with a mark where an operation computes differently; along axes that are left out, at
    all elements where it does so at one."""
    every = np.arange(int(np.prod(one.shape, dtype=int))).reshape(one.shape)
    index = np.asarray(pair.selection.taken(every, 0)).reshape(-1)
    mask = np.zeros(one.shape, bool)
    mask.reshape(-1)[index[apart]] = True
    return _masked(one, mask, number)


def _masked(one: Labels, mask: np.ndarray, number: int) -> Labels:
    out = tuple(axis for axis in range(len(one.shape)) if one.implicit(axis))
    mask = np.asarray(mask.any(axis=out, keepdims=True)) if out else mask
    mark = joint(one.array, tag("computed differently", number))
    return one._replace(array=np.where(mask, mark, one.array))


def reads_content(whole: Labels, nothing: Labels) -> np.ndarray:
    """Returns which elements of a value read content: bool, of its shape.

    ``whole``, ``nothing``: labels of the same run with content, and of padding alone. An exact
    zero of padding alone may be another one's: what is told apart reads content.
    """
    axes = told_apart(whole, nothing)
    found: np.ndarray = np.broadcast_to(whole.full(axes) != nothing.full(axes), whole.shape)
    return found
