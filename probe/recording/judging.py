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
from probe.semantics import Each, Exact, Meaning, Unknown
from probe.semantics.labels import Labels, joint, tag, told_apart

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
    that were compared. ``sets``: of fresh operands that their orders were replayed on; ``given``:
    for which values alone, where not for all finite ones.
    """

    how: str
    why: str = ""
    apart: list[np.ndarray | None] = field(default_factory=list)
    outputs: int = 0
    sets: int = 0
    given: str = ""

    @property
    def differing(self) -> int:
        """Returns outputs that are computed differently."""
        return sum(int(mask.sum()) for mask in self.apart if mask is not None)


def has_no_choice(meaning: Meaning) -> bool:
    """Returns whether an operation's bits follow from what it reads, wherever it stands."""
    return meaning.rounds is not None


def one_call(region: Region, left: Run, right: Run) -> bool:
    """Returns whether both sides run the very same call, as where no size depends on what is
    varied: then the library computes it in one way, place by place. What operands begin at is a
    part of it, as far as it decides orders: modulo 16 bytes (``address_in_16``)."""
    calls = []
    for side, op in region.sides(left, right):
        values = [side.values[n] for n in (*op.reads, *op.gives)]
        ends = [(v.shape, v.dtype, address_in_16(v.address)) for v in values]
        calls.append((ends, repr(op.attributes)))
    return calls[0] == calls[1] and all(
        some is None or other is None or np.array_equal(some, other)
        for some, other in ((pair.selection.left, pair.selection.right) for pair in region.gives)
    )


def judge_operation(region: Region, left: Run, right: Run, known: Known) -> Judged:
    """Judges an operation of both runs over the pairs of ``region.gives``.

    ``known``: what was revealed of operations like it, which is added to. It costs the operation's
    calls alone where the sides hold its operands.
    """
    assert region.left is not None and region.right is not None
    op, values = left.operations[region.left], left.values
    meaning, why = op.meaning, ""
    # a function that gives integers or truth values, as comparisons do, rounds nothing
    counts = isinstance(meaning, Each) and not any(values[n].floating for n in op.gives)
    if has_no_choice(meaning) or counts or one_call(region, left, right):
        return Judged("exact")
    valid_for = given_of(meaning)
    if valid_for and isinstance(meaning, Each) and _without_subnormals(region, left, right):
        return Judged("exact", given=valid_for)
    if meaning.sums:
        judged = judge_sums(region, left, right, known)
        if judged.how:
            judged.given = valid_for
            return judged
        why = judged.why
    if isinstance(meaning, Each):
        return _over(region, left, right, _by_place, "place", "compared place by place")
    if not why and isinstance(meaning, Unknown):
        why = "it is unknown what it computes" + f" ({meaning.why})" * bool(meaning.why)
    why = why or "there is no test for what it computes"
    return _over(region, left, right, _by_bits, "bits", f"{why}: compared by bits")


# What a choice among numbers is exact for where a library reads subnormal ones as zeros in some
# places and not in others: TensorFlow's ReLU.
NORMAL = "values that are not subnormal"


def given_of(meaning: Meaning) -> str:
    """Returns for which values alone what is exact of an operation is; empty: for all."""
    parts = (meaning, *(meaning.parts() or ()))
    return NORMAL * any(isinstance(part, Each) and part.exact_but_subnormal for part in parts)


def _without_subnormals(region: Region, left: Run, right: Run) -> bool:
    """Returns whether no number that an operation reads or gives was subnormal in either run."""
    for side, op in region.sides(left, right):
        for n in dict.fromkeys((*op.reads, *op.gives)):
            array, dtype = side.array(n), side.values[n].dtype
            if array is None or dtype not in floats.FORMATS:
                return False
            sizes = np.abs(floats.widen(array, dtype))
            if ((sizes > 0) & (sizes < 2.0 ** floats.format_of(dtype).emin)).any():
                return False
    return True


def _runnable_sides(region: Region, left: Run, right: Run, output: int) -> Sides:
    """Both sides alone. ValueError: an operation can't be run so."""
    sides = isolated_sides(left, right, region, output)
    if sides is None or any(side.again is None for side in sides):
        raise ValueError("it can't be run alone")
    return sides


def judge_sums(region: Region, left: Run, right: Run, known: Known) -> Judged:
    """Of sums; ``how`` is empty where some outputs have no known summation."""
    judged = Judged("order")
    for output, pair in enumerate(region.gives):
        if not pair.compared:
            judged.apart.append(None)
            continue
        try:
            sides = _runnable_sides(region, left, right, output)
            alone = (unequal_bits(s.rerun(), s.outputs, s.value.dtype) for s in sides)
            if any(apart.any() for apart in alone):
                return Judged("", "alone it gives different bits from in the run")
            apart = np.zeros(pair.compared, bool)
            adds = [Adds(each) for each in sides]
            for each in adds:
                # sums of as many products are added alike at most sizes: those are tried first
                key = each.kind, each.sum.summands, each.sum.bias is None
                revealer = known.setdefault(key, Revealer(kept=None))
                each.reveal(np.arange(len(each.places)), revealer)
            comparison = as_comparison(adds)
            count, orders = len(comparison.pairs), [comparison.left.orders, comparison.right.orders]
            if comparison.unknown or None in orders:
                some = f"of {comparison.unknown or count} of {count} outputs"
                return Judged("", f"{some} the order of additions is unknown")
            for some_apart in comparison.apart.values():
                apart[some_apart] = True
            judged.outputs += count
            judged.sets = min(judged.sets or comparison.sets, comparison.sets)
        except (ProbeError, ValueError, IndexError, KeyError) as error:
            return Judged("", str(getattr(error, "why", error)))
        judged.apart.append(apart)
    return judged


Compare = Callable[[Sides], np.ndarray]


def _over(region: Region, left: Run, right: Run, compare: Compare, how: str, why: str) -> Judged:
    """Judges output by output with ``compare``, which gives what differs."""
    judged = Judged(how, why)
    for output, pair in enumerate(region.gives):
        if not pair.compared:
            judged.apart.append(None)
            continue
        try:
            judged.apart.append(compare(_runnable_sides(region, left, right, output)))
        except Exception as error:  # a library raises what it likes
            said = " ".join(str(getattr(error, "why", error)).split())[:120]
            return Judged("", f"it could not be tested: {said or type(error).__name__}")
    return judged


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
    apart = unequal_bits(left.rerun(), right.rerun(), dtype)
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
        apart |= unequal_bits(left.rerun(ours), right.rerun(theirs), dtype)
    return apart


def _by_place(sides: Sides) -> np.ndarray:
    """Which pairs differ on any number that stands at every place of both sides, or on operands."""
    apart = _by_bits(sides)
    functions = [
        place.PlacedFunction.of(
            side, [n for n in range(len(side.reads)) if not _may_hold_others(side, n)]
        )
        for side in sides
    ]
    # of several magnitudes: each rounds at other places
    pool = normal(place.SEED, "x", (place.POOL,)) * np.resize([0.25, 1.0, 4.0], place.POOL)
    numbers: list[float] = pool[: place.PLAIN].tolist()
    # beside weights each place has its own result
    if not any(function.held for function in functions):
        laid = (function.laid(pool, shift) for function in functions for shift in SHIFTS)
        numbers += pool[place.telling_numbers(laid, len(pool))][: place.TELLING].tolist()
    for number in numbers:  # any, then some that few places answer differently
        left, right = (
            side.taken(function.filled(number))
            for side, function in zip(sides, functions, strict=True)
        )
        apart |= unequal_bits(left, right, sides[0].value.dtype)
    return apart


# After which the next operation of a run is in the way.
SECONDS = 120.0


@dataclass
class OrderVerdict:
    """What was found. ``verdict``: ``same``, ``differs`` or ``unknown``.

    ``name`` and ``why``: the operation that adds differently, or the first that is in the way.
    ``outputs``: of sums that were compared; ``sets``: of fresh operands they were replayed on.
    """

    verdict: str
    name: str = ""
    why: str = ""
    outputs: int = 0
    sets: int = 0


def by_order(difference: Difference, known: Known) -> OrderVerdict:
    """Reveals the sums of two runs that were compared, and says whether all outputs add alike.

    ``known``: what was revealed of operations like these; it is added to. Stops at the first
    operation that adds differently.
    """
    begun, verdict = time.monotonic(), OrderVerdict("same")
    left, right = difference.left, difference.right
    for region in difference.operations:
        meaning = difference.sides(region)[0][1].meaning
        why = _in_the_way(region, meaning)
        if not why and meaning.sums and region.compared:
            if time.monotonic() - begun > SECONDS:
                why = f"{SECONDS:.0f} seconds were over"
            else:
                judged = judge_sums(region, left, right, known)
                if judged.how and judged.differing:
                    why = f"{judged.differing} of {judged.outputs} outputs are added differently"
                    return OrderVerdict("differs", region.name, why, judged.outputs)
                if judged.how and judged.outputs:
                    verdict.outputs += judged.outputs
                    verdict.sets = min(verdict.sets or judged.sets, judged.sets)
                why = "" if judged.how else judged.why or "its sums could not be asked"
        if why and verdict.verdict == "same":
            verdict.verdict, verdict.name, verdict.why = "unknown", region.name, why
    return verdict


def _in_the_way(region: Region, meaning: Meaning) -> str:
    """Returns why nothing can be said of an operation; empty if something can."""
    if isinstance(meaning, Unknown):
        return "it is unknown what it computes"
    if isinstance(meaning, Exact):
        return ""
    if region.left is None or region.right is None:
        return "it exists in one run only"
    if region.joint:
        return "it is one of several operations that together match several others"
    if not region.compared:
        return "" if all(pair.known for pair in region.gives) else "it is unknown what must agree"
    if meaning.sums or has_no_choice(meaning):
        return ""
    word = meaning.word or region.op
    return f"whether {word} gives the same bits at every position is not proved"


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
    followed = Followed(*labels)
    if judge is None:
        return followed
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
            anew = result_labels(left, op, followed.left)
            for number, label in zip(op.gives, anew, strict=True):
                if left.values[number].content is None:
                    followed.left[number] = label
                    changed.add(number)
        if has_no_choice(op.meaning):
            continue
        if other is None:
            followed.alone.append(op.name)
            for number in op.gives:
                label = followed.left[number]
                followed.left[number] = _masked(label, np.ones(label.shape, bool), mine)
                changed.add(number)
            continue
        two = right.operations[other]
        region = Region(op.name, op.op, op.path, mine, other, inside=((mine,), (other,)))
        for found_pairs, some in (
            (region.reads, zip(op.reads, two.reads, strict=False)),
            (region.gives, zip(op.gives, two.gives, strict=False)),
        ):
            found_pairs += [Pair.of(runs, labels, *both) for both in some]
        judged = Judged("exact")
        if any(pair.compared for pair in region.gives):
            judged = judge(region)
            followed.told.append((region, judged))
        for n, pair in enumerate(region.gives):
            apart = judged.apart[n] if n < len(judged.apart) else None
            label = followed.left[pair.left]
            if strict and not pair.selection.whole:
                # what an operation was not seen to compute as its match
                label = _masked(label, ~pair.selection.mask(label.shape, 0), mine)
            if apart is not None and apart.any():
                label = marked(label, pair, apart, mine)
            if label is not followed.left[pair.left]:
                followed.left[pair.left] = label
                changed.add(pair.left)
    return followed


def marked(labels: Labels, pair: Pair, apart: np.ndarray, number: int) -> Labels:
    """Labels with a mark where an operation computes differently; along axes that are left out, at
    all elements where it does so at one."""
    every = np.arange(int(np.prod(labels.shape, dtype=int))).reshape(labels.shape)
    index = np.asarray(pair.selection.taken(every, 0)).reshape(-1)
    mask = np.zeros(labels.shape, bool)
    mask.reshape(-1)[index[apart]] = True
    return _masked(labels, mask, number)


def _masked(labels: Labels, mask: np.ndarray, number: int) -> Labels:
    out = tuple(axis for axis in range(len(labels.shape)) if labels.implicit(axis))
    mask = np.asarray(mask.any(axis=out, keepdims=True)) if out else mask
    mark = joint(labels.array, tag("computed differently", number))
    return labels._replace(array=np.where(mask, mark, labels.array))


def reads_content(whole: Labels, nothing: Labels) -> np.ndarray:
    """Returns which elements of a value read content: bool, of its shape.

    ``whole``, ``nothing``: labels of the same run with content, and of padding alone. An exact
    zero of padding alone may be another one's: what is told apart reads content.
    """
    axes = told_apart(whole, nothing)
    different: np.ndarray = np.broadcast_to(whole.full(axes) != nothing.full(axes), whole.shape)
    return different
