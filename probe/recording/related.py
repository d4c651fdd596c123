"""What two runs have in common: a model, with the same weights, and its inputs; and what is assumed
to mean the same in both as it is close, though the formulas are different.

Labels pair what is the same formula over the same inputs. Attention in one operation and as two
products, or a normalisation and the weights that it was folded into, have other labels; but their
results agree in half of their digits. Such values are given one label, so that what comes before
them is compared as a group and what follows is paired as usual. A note reports the assumption that
they mean the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from probe import floats
from probe.errors import InputError
from probe.printing import counted
from probe.recording.contract import INPUT, WEIGHT
from probe.recording.difference import NAMES, NEAR, Difference, Pair, compare, judge, near
from probe.recording.matching import align, computes
from probe.recording.recording import Run, Value, digest
from probe.semantics.labels import Selection, agreeing, of_content

SAME_MODEL = "give two runs of the same model, with the same weights"
SAME_INPUTS = "give both sides the same inputs, or one side a part of the other's: rows, a prefix"


@dataclass(frozen=True)
class Related:
    """What two runs have in common.

    ``same_inputs``: False where one side has a part of the other's. ``shared_inputs``: whether they
    have an array in common at least: a mask or a table may be in another form. ``same_weights``:
    False where no weight is the same, or some are not. ``refused``: what is wrong with the weights,
    unless the outputs turn out to be close: they may be folded into other operations.
    """

    same_inputs: bool
    shared_inputs: bool
    same_weights: bool
    refused: InputError | None


Met = list[tuple[Value, Value, str]]
"""Pairs of values that no operation gave, where both runs read them, with the operation's name."""


def related(left: Run, right: Run) -> Related:
    """Returns what two runs have in common.

    InputError: inputs that have nothing in common, other outputs, or the same operations with
    other weights.
    """
    if len(left.outputs) != len(right.outputs):
        counts = f"{len(left.outputs)} and {len(right.outputs)}"
        raise InputError("outputs", counts, "the two sides do not return as many", SAME_MODEL)
    met: dict[tuple[int, int], tuple[Value, Value, str]] = {}
    for mine, other in align(left, right):
        if mine is not None and other is not None:
            one, two = left.operations[mine], right.operations[other]
            for n, m in zip(one.reads, two.reads, strict=False):
                a, b = left.values[n], right.values[m]
                if a.given < 0 and b.given < 0:
                    met.setdefault((n, m), (a, b, one.name))
    refused = _other_weights(left, right, [*met.values()])
    ours, theirs = (Counter(one.op for one in side.operations) for side in (left, right))
    if refused is not None and ours == theirs:
        raise refused
    inputs = _same_inputs(left, right, [*met.values()])
    if refused is not None and not inputs:
        raise refused
    held = _weights(left), _weights(right)
    # where no weight is the same although both sides have some, nothing says it is one model
    same = refused is None and (not all(held) or bool(held[0] & held[1]))
    return Related(inputs, bool(input_bits(left) & input_bits(right)), same, refused)


def inputs_of(run: Run) -> list[int]:
    """Returns the numbers of what a run is given besides weights and constants."""
    return [n for n, v in enumerate(run.values) if v.given < 0 and v.role == INPUT]


def input_bits(run: Run) -> set[str]:
    """Returns digests of inputs that are more than a number."""
    return {run.values[n].digest for n in inputs_of(run) if prod(run.values[n].shape) > 1}


def _weights(run: Run) -> set[str]:
    return {v.digest for v in run.values if v.role == WEIGHT and v.given < 0}


def _other_weights(left: Run, right: Run, met: Met) -> InputError | None:
    """Returns the error of weights of one shape that are read on both sides, each by one side.

    A weight that the other side reads elsewhere is one of branches that ran in another order. A
    single number without axes, as bounds and factors in files are, is an argument.
    """
    held = _weights(left), _weights(right)
    weights = [one for one in met if one[0].role == one[1].role == WEIGHT and one[0].shape]
    other = {(one.shape, one.dtype) for _, one, _ in weights if one.digest not in held[0]}
    for one, _, where in weights:
        if one.digest not in held[1] and (one.shape, one.dtype) in other:
            why = f"{where} has different weights on the two sides, so these are different models"
            return InputError("weights", one.name or where, why, SAME_MODEL)
    return None


def folded(refused: InputError, found: Difference) -> str:
    """Returns what is to be said of other weights behind outputs that are close; raises the error
    of those where not all of them are, or where an operation has a match that reads other
    weights: weights that were folded stand in other operations."""
    if _only_weights(found):
        raise refused
    for one in found.outputs:
        value = found.left.values[one.left]
        whole = one.compared == prod(value.shape)
        if not whole or value.dtype not in floats.FORMATS or not near(one, value.dtype):
            raise refused
    which = refused.why.partition(",")[0]
    return f"{which}; the outputs are close, so these are taken for one model, folded differently"


def _only_weights(found: Difference) -> bool:
    """Returns whether weights differ of one operation that both runs have at the same place, while
    no other operations stand for it: some of its results agree, as those of the same rows do, or
    it belongs to two groups of the same operations."""
    ours, theirs = found.left, found.right
    held = _weights(ours), _weights(theirs)
    groups = [one.inside for one in found.operations if one.assumed and one.joint]
    gives = {(one.left, one.right): one.gives for one in found.operations}
    for mine, other in align(ours, theirs):
        if mine is None or other is None:
            continue
        pairs = zip(ours.operations[mine].reads, theirs.operations[other].reads, strict=False)
        if not any(
            a.role == b.role == WEIGHT
            and (a.shape, a.dtype) == (b.shape, b.dtype)
            and a.digest not in held[1]
            and b.digest not in held[0]
            for a, b in ((ours.values[n], theirs.values[m]) for n, m in pairs)
        ):
            continue
        inside = [one for one in groups if mine in one[0] and other in one[1]]
        for first, second in inside:
            if [ours.operations[n].op for n in first] == [theirs.operations[n].op for n in second]:
                return True
        given = gives.get((mine, other), [])
        if not inside and any(pair.compared and not pair.selection.whole for pair in given):
            return True
    return False


def _same_inputs(left: Run, right: Run, met: Met) -> bool:
    ours, theirs = ([run.values[n] for n in inputs_of(run)] for run in (left, right))
    some = [Counter(v.digest for v in every if prod(v.shape) > 1) for every in (ours, theirs)]
    if some[0] == some[1] and (some[0] or len(ours) == len(theirs)):
        return True
    if all(some):
        # a compiled function keeps arrays as constants that its Python reads each time
        held = (
            {v.digest for v in run.values if v.given < 0 and v.role != INPUT}
            for run in (right, left)
        )
        beside = ((some[0] - some[1]).keys(), (some[1] - some[0]).keys())
        if all(more <= kept for more, kept in zip(beside, held, strict=True)):
            return True
    inputs = [one for one in met if one[0].role == one[1].role == INPUT]
    inputs = inputs or [(a, b, "") for a, b in zip(ours, theirs, strict=False)]
    apart = [one for one in inputs if one[0].digest != one[1].digest]
    shared = len(apart) < len(inputs)
    both = some[0].keys() & some[1].keys()
    for mine, other, where in apart:
        if mine.digest in both or other.digest in both:
            continue  # the other side reads it too, elsewhere
        small = min(prod(mine.shape), prod(other.shape)) <= 1
        if (small or not mine.floating) and (shared or len(apart) > 1):
            continue  # lengths, masks and scales may differ where another input says what is asked
        if mine.content is None or other.content is None or in_common(mine.content, other.content):
            continue
        name = mine.name or other.name or (f"read by {where}" if where else "the first input")
        shapes = f"the two sides have shapes {list(mine.shape)} and {list(other.shape)}"
        why = f"{shapes} and have no row and no beginning in common"
        raise InputError("inputs", name, why, SAME_INPUTS)
    return False


def in_common(left: np.ndarray, right: np.ndarray) -> bool:
    """Whether two inputs share whole slices along some axis: rows of a batch, a beginning, an end.

    Slices of zeros don't count: they are padding.
    """
    if left.ndim != right.ndim or left.dtype != right.dtype:
        return not agreeing(of_content(left), of_content(right)).empty
    if not left.any() or not right.any():
        return True
    if left.ndim <= 1:
        ours, theirs = left.reshape(-1), right.reshape(-1)
        count = min(len(ours), len(theirs))
        starts = (ours[:count] == theirs[:count]) & (ours[:count] != 0)
        ends = (ours[-count:] == theirs[-count:]) & (theirs[-count:] != 0)
        return bool(starts[0] or ends[-1] or starts.all())
    for axis in range(left.ndim):
        least = [min(pair) for pair in zip(left.shape, right.shape, strict=True)]
        cut = tuple(slice(None) if n == axis else slice(m) for n, m in enumerate(least))
        found = [
            {digest(one) for one in np.moveaxis(side[cut], axis, 0) if one.any()}
            for side in (left, right)
        ]
        if found[0] & found[1]:
            return True
    return False


# assumed as it is close


SPREAD = 1 / 8
"""Of the standard deviation: what two results may be apart at most. Nearly constant values say
nothing."""

ALIKE = 4
"""Times the least distance that a pair may be apart where another is closer."""

LEAST, SAMPLED, MOST = 32, 1024, 512
"""Elements that a value has at least; those that are looked at; values of a shape on a side."""

NOT_CLOSE = (
    "the two sides compute their outputs differently from the same inputs, and the results are "
    "further apart than rounding takes two formulas: they are compared index by index, but may not "
    "mean the same"
)
ASSUMED = "assumed to mean the same"
SAME_OUTPUTS = (
    "the two sides run different operations on the same inputs; all of their outputs are "
    f"{ASSUMED}, as they are close"
)
MASKS = "; inputs that only one side reads, such as a mask, are assumed to mean the same, too"


def unlike(found: Difference, same: bool) -> bool:
    """Returns whether labels do not say of all outputs what must agree, as some operations have no
    match, or one that computes something else.

    ``same``: whether both sides take all of the same inputs. Else one of them also has to compute
    what the other doesn't: other rows are no other formula.
    """
    met = {one.verdict for one in found.operations}
    if not ("unknown" in met or met.issuperset(NAMES)):
        return False
    sides = found.left.values, found.right.values
    shapes = [
        [(some[n].shape, some[n].dtype) for some, n in zip(sides, ends, strict=True)]
        for ends in ((one.left, one.right) for one in found.outputs)
    ]
    if all(one.selection.whole for one in found.outputs) or all(a != b for a, b in shapes):
        return False
    return same or any(
        number is not None and computes(run.operations[number])
        for one in found.operations
        if one.verdict in NAMES
        for run, number in ((found.left, one.left), (found.right, one.right))
    )


def by_closeness(found: Difference, same: bool) -> Difference:
    """Returns the comparison with close values taken for the same; where not both sides take all of
    the same inputs (``same``) only if all outputs are close then."""
    told = paired(found)
    ours = found.left.values
    close = (one.selection.whole and near(one, ours[one.left].dtype) for one in told.outputs)
    return told if same or all(close) else found


def places(found: Difference, same_inputs: bool) -> str:
    """Returns what is to be said of operations that are taken for the same, or nothing."""
    some = [one for one in found.operations if one.assumed]
    if not some:
        return ""
    apart = [
        pair.scaled * float(floats.eps(dtype))
        for one in some
        for pair in one.gives
        if (dtype := found.left.values[pair.left].dtype) in floats.FORMATS
    ]
    return (
        f"different operations whose results are close are {ASSUMED}, in "
        f"{counted(len(some), 'place')}; they are apart by at most {max(apart, default=0):.1e} of "
        "the largest number" + ("" if same_inputs else MASKS)
    )


def paired(found: Difference) -> Difference:
    """Compares two runs once more, with values that are close taken for the same.

    ``found``: what labels alone came to; it is returned where nothing else is close. Costs a look
    at samples of the values that have no match, and at all of those that are close there.
    """
    every = dict[int, int]()
    ours, theirs = (
        _sampled(run, _loose(found, n)) for n, run in enumerate((found.left, found.right))
    )
    for (shape, dtype), some in ours.items():
        others = theirs.get((shape, dtype), {})
        for n, m in _closest(found, some, others, dtype) if some and others else ():
            one = Pair.of_all(n, m, prod(shape))
            judge(found.left, found.right, [one])  # all of two values, and not their samples alone
            if near(one, dtype):
                every[n] = m
    return compare(found.left, found.right, every) if every else found


def _loose(found: Difference, side: int) -> set[int]:
    """Returns values of a side that are not compared with anything, and that something reads.

    The mean that a fused norm gives besides is close to the one by hand, which leads to the result.
    """
    run = (found.left, found.right)[side]
    used = {*run.outputs, *(n for one in run.operations for n in one.reads)}
    given = (
        n
        for one in found.operations
        if one.verdict in (*NAMES, "unknown")
        if (number := (one.left, one.right)[side]) is not None
        for n in run.operations[number].gives
    )
    return {
        n
        for n in used.intersection(given)
        for value in [run.values[n]]
        if value.content is None and value.dtype in floats.FORMATS and prod(value.shape) >= LEAST
    }


Samples = dict[int, np.ndarray]
"""Some elements of values, by their numbers."""


def _sampled(side: Run, wanted: set[int]) -> dict[tuple[tuple[int, ...], str], Samples]:
    """Returns some elements of values, evenly among all, by the values' shape and format."""
    found: dict[tuple[tuple[int, ...], str], Samples] = {}
    for n in sorted(wanted):
        value = side.values[n]
        some = found.setdefault((value.shape, value.dtype), {})
        if len(some) < MOST:
            size = prod(value.shape)
            index = np.unique(np.linspace(0, size - 1, min(size, SAMPLED)).astype(int))
            part = Selection((), index, index, ((), ()), True)
            (taken,) = side.parts([(n, part)], 0)
            if taken is not None:
                some[n] = floats.widen(taken, value.dtype).astype(np.float64)
    return found


def _closest(
    found: Difference, ours: Samples, theirs: Samples, dtype: str
) -> Iterator[tuple[int, int]]:
    """Yields pairs of values that are about the closest to each other.

    A scale of ones and a bias of zeros leave values as they are, so several may be as close: those
    of equal operations come first, then the last computed ones, as what follows reads them; of
    those that are moved alone the first ones, as others may be copies.
    """
    apart = _distances(ours, theirs, dtype)
    least = np.minimum(apart.min(1)[:, None], apart.min(0)[None])
    fair = np.isfinite(apart) & (apart <= ALIKE * least)
    names = [*ours], [*theirs]
    given = [
        [run.operations[run.values[n].given] for n in some]
        for run, some in zip((found.left, found.right), names, strict=True)
    ]
    computed = [[computes(one) for one in some] for some in given]

    def rank(both: tuple[int, int]) -> tuple[bool, bool, bool, float, int]:
        one, two = given[0][both[0]], given[1][both[1]]
        made = computed[0][both[0]], computed[1][both[1]]
        return (
            made[0] != made[1],
            one.op != two.op,
            one.op == two.op and one.path != two.path,
            float(apart[both]),
            (one.number + two.number) * (-1 if all(made) else 1),
        )

    taken: tuple[set[int], set[int]] = set(), set()
    for n, m in sorted(zip(*(some.tolist() for some in fair.nonzero()), strict=True), key=rank):
        mixed = computed[0][n] != computed[1][m]
        if mixed and (taken[0] & {*fair[:, m].nonzero()[0]} or taken[1] & {*fair[n].nonzero()[0]}):
            continue
        if n not in taken[0] and m not in taken[1]:
            taken[0].add(n)
            taken[1].add(m)
            yield names[0][n], names[1][m]


def _distances(
    ours: Mapping[int, np.ndarray], theirs: Mapping[int, np.ndarray], dtype: str
) -> np.ndarray:
    """Returns how far samples are apart, at most over all elements; infinite where not close."""
    many = np.stack(list(theirs.values()))
    found = np.full((len(ours), len(many)), np.inf)
    limit = float(floats.eps(dtype)) ** NEAR
    for n, one in enumerate(ours.values()):
        kept = np.isfinite(one)
        if kept.sum() < LEAST:
            continue
        same = (np.isfinite(many) == kept).all(1)
        apart = np.abs(many[:, kept] - one[kept]).max(1, initial=0, where=same[:, None])
        most = min(limit * np.abs(one[kept]).max(), SPREAD * one[kept].std())
        found[n, same & (apart <= most)] = apart[same & (apart <= most)]
    return found
