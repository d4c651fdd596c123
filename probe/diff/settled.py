"""What a comparison of two runs must not claim: that something differs by itself where not all that
it reads could be compared, or where the sizes of the inputs say so."""

from __future__ import annotations

import numpy as np

from probe.case import floats
from probe.diff.alone import NOT_ALONE, isolated_sides, unequal_bits
from probe.diff.difference import (
    Difference,
    Pair,
    Region,
    Runs,
    reads_besides,
    why_not_compared,
)
from probe.diff.pairing import NEAR
from probe.diff.related import NOT_GIVEN, follows_from_sizes
from probe.record.recording import Run

LACKING = "all that it gives depends on inputs that the other run lacks"
SIZED = "what it gives follows from the sizes of its inputs, which differ"
ELSEWHERE = "what it gives reads other elements of the same operands"
BRANCH = "it is not known which of its results belong together: it runs otherwise with other inputs"
SIZES = "it is not known which of its results belong together: the inputs have other sizes"
NOT_COMPARED = "what it reads could not be compared"
DRAWN = "it reads nothing and gives other numbers: they are drawn at random"

# The share of elements up to which those that are far apart are what an operation makes of its
# operands, such as an overflow, and not of their sizes.
FEW = 0.25

# Elements of an operand that are changed to see which results follow, and the share of these that
# must be the same on both sides.
CHANGED, ALIKE = 4, 0.9


def give_reasons(difference: Difference, otherwise: str) -> None:
    """Has nothing be a source whose operands were not all compared; says why others are unknown.
    ``otherwise``: why, where it isn't known of elements whether they must agree."""
    runs = difference.left, difference.right
    for region in difference.operations:
        if region.left is None or region.right is None:
            continue
        ops = [op for _, op in difference.sides(region)]
        missing = any(not pair.known and not pair.hollow for pair in region.reads)
        besides = bool(region.arguments) and bool(reads_besides(region, runs))
        missing |= not region.joint and len(ops[0].reads) != len(ops[1].reads) and not besides
        if missing and region.verdict == "source":
            region.doubted(NOT_COMPARED)
        if region.verdict == "source" and not region.arguments:
            # from one state of a generator, which a recorder has noted, all draw the same
            if not any(op.reads or op.attributes.get("drawn") for op in ops):
                region.doubted(DRAWN)
        elif region.verdict == "unknown" and not region.note:
            known = all(pair.known for pair in region.gives)
            why = otherwise or why_not_compared(region.gives, difference)
            region.note = LACKING if known else why


def leave_out_sizes(difference: Difference) -> None:
    """Takes back what must agree where it follows from sizes: a shape, a divisor, a padding.

    Content changes none of it, so that repetitions don't show it. It differs in many elements by
    more than rounding, though operands agree, where an operation reads nothing, has arguments that
    follow from sizes or gives whole numbers; of operands of other sizes it may give another factor,
    the same of all, or read other elements.
    """
    runs, sized = (difference.left, difference.right), set[int]()
    for region in difference.operations:
        if region.left is None or region.right is None or not region.differing:
            continue
        apart = [
            pair
            for pair in region.gives
            if not pair.equal
            and _far(pair, runs).mean() > (FEW if runs[0].values[pair.left].floating else 0)
        ]
        begins = elsewhere = False
        if apart and not any(_far(pair, runs).any() for pair in region.reads if not pair.equal):
            shapes = [[run.values[n].shape for n in op.reads] for run, op in region.sides(*runs)]
            # some recorders have a shape read nothing
            begins = not any(shapes) or _has_sized_arguments(region, runs)
            if shapes[0] != shapes[1]:  # of several operations one may read its own
                begins |= region.joint or all(_by_a_factor(pair, runs) for pair in apart)
            alike = region.joint or all(pair.selection.whole for pair in region.reads)
            if not begins and (shapes[0] != shapes[1] or not alike or _is_one_text(region)):
                begins = elsewhere = not _follow_alike(region, runs)
        if not begins and not any(pair.left in sized for pair in region.reads):
            continue
        for pair in apart:
            sized.add(pair.left)
            _keep_equal(pair, runs)
        if begins and not any(pair.known for pair in region.gives):
            region.cause, region.note = "window", ELSEWHERE if elsewhere else SIZED


def _is_one_text(region: Region) -> bool:
    """Whether it is the same several operations on both sides."""
    return region.joint and " against " not in region.op


def _has_sized_arguments(region: Region, runs: Runs) -> bool:
    """Whether arguments of an operation differ that are whole numbers or follow from a size."""
    left, right = (op.attributes for _, op in region.sides(*runs))
    sizes = [run.axis_sizes for run in runs]
    for name in dict.fromkeys((*left, *right)):
        both = left.get(name, NOT_GIVEN), right.get(name, NOT_GIVEN)
        if repr(both[0]) != repr(both[1]) and follows_from_sizes(both, sizes):
            return True
    return False


def shifted(left: np.ndarray | None, right: np.ndarray | None) -> bool:
    """Whether bytes of either sign stand for the same numbers, 128 apart."""
    if left is None or right is None or left.shape != right.shape:
        return False
    apart = left.astype(int) - right.astype(int)
    return bool((apart == (128 if left.dtype == np.uint8 else -128)).all())


def numbers(run: Run, number: int) -> np.ndarray | None:
    """Returns a value's numbers; None: they were left out of a recording."""
    array, dtype = run.array(number), run.values[number].dtype
    return floats.widen(array, dtype) if array is not None and dtype == "bfloat16" else array


def agreeing_elements(pair: Pair, runs: Runs) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns the elements of both values that must agree; None: some were left out."""
    left, right = numbers(runs[0], pair.left), numbers(runs[1], pair.right)
    if left is None or right is None:
        return None
    return pair.selection.taken(left, 0), pair.selection.taken(right, 1)


def equal(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Where numbers are equal, NaN among them."""
    same = np.asarray(left == right)
    return same | (np.isnan(left) & np.isnan(right)) if left.dtype.kind in "fc" else same


def _far(pair: Pair, runs: Runs) -> np.ndarray:
    """Where paired elements are apart by more than rounding; integers wherever they differ."""
    both = agreeing_elements(pair, runs)
    if both is None:
        return np.zeros(1, bool)
    left, right = both
    near, dtype = equal(left, right), runs[0].values[pair.left].dtype
    if dtype in floats.FORMATS:
        libraries = {run.target.partition(",")[0] for run in runs}
        with np.errstate(all="ignore"):
            size = np.maximum(np.abs(left), np.abs(right))
            limit = floats.eps(dtype) ** 0.5 * size
            if len(libraries) > 1:  # one of which may compute in a shorter format
                limit = NEAR * size[np.isfinite(size)].max(initial=0.0)
            near |= np.abs(left - right) <= limit
            near |= size <= floats.flushed_below(dtype)  # what one side makes zero
    return np.asarray(~near.reshape(-1))


def _by_a_factor(pair: Pair, runs: Runs) -> bool:
    """Whether paired elements are apart by one factor, or are whole numbers."""
    both = agreeing_elements(pair, runs)
    dtype = runs[0].values[pair.left].dtype
    if both is None or dtype not in floats.FORMATS:
        return True
    with np.errstate(all="ignore"):
        factors = both[0] / both[1]
    factors = factors[np.isfinite(factors)]
    return bool(len(factors)) and bool(np.ptp(factors) < NEAR * abs(np.median(factors) - 1))


def _follow_alike(region: Region, runs: Runs) -> bool:
    """Whether paired results follow the same elements of operands of other sizes, unlike those of a
    convolution that begins one further on: some are changed on both sides, one after the other."""
    every, alike, draw = 0, 0, np.random.default_rng(0)
    try:
        sides = isolated_sides(*runs, region)
        if sides is None or any(side.again is None for side in sides):
            return False
        left, right = sides
        for pair in left.pairs:
            at = left.operation.reads.index(pair.left), right.operation.reads.index(pair.right)
            arrays, dtype = (left.reads[at[0]], right.reads[at[1]]), left.dtypes[at[0]]
            if pair.selection.empty or dtype not in floats.FORMATS:
                continue
            if arrays[0].shape == arrays[1].shape and pair.selection.whole and not region.joint:
                continue
            wide = floats.widen(pair.selection.taken(arrays[0], 0), dtype)
            for place in draw.integers(wide.size, size=CHANGED):
                other = wide.copy()
                other.reshape(-1)[place] = 3 * np.abs(wide[np.isfinite(wide)]).max(initial=1.0)
                follows = []
                for k, side in enumerate(sides):
                    operands = list(side.reads)
                    bits = floats.round_to(other, dtype)
                    operands[at[k]] = pair.selection.put(arrays[k], bits, k)
                    follows.append(
                        unequal_bits(side.rerun(operands), side.outputs, side.value.dtype)
                    )
                every += int((follows[0] | follows[1]).sum())
                alike += int((follows[0] & follows[1]).sum())
    except NOT_ALONE:
        return False
    return every > 0 and alike >= ALIKE * every


def _keep_equal(pair: Pair, runs: Runs) -> None:
    """Has nothing of a pair differ, and nothing be known of what does."""
    both = agreeing_elements(pair, runs)
    assert both is not None
    same, shape = equal(*both), runs[0].values[pair.left].shape
    pair.laid, pair.selection = pair.selection, pair.selection.only(same, shape)
    pair.known, pair.compared, pair.equal, pair.differing = False, int(same.sum()), True, 0
    pair.max_ulp, pair.scaled, pair.first = 0, 0.0, None
