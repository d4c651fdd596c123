"""What two runs have in common: a model and its inputs; and outputs of different operations on the
same inputs, which are assumed to mean the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from math import prod

import numpy as np

from probe import floats
from probe.errors import InputError
from probe.printing import counted
from probe.recording import close
from probe.recording.contract import INPUT, WEIGHT
from probe.recording.difference import Difference, Pair, judge
from probe.recording.matching import align, computes
from probe.recording.recording import Operation, Recording, Run, Value, digest
from probe.semantics import MOVED, Joins, Reshapes, Same, Splits, Turns
from probe.semantics.labels import agreeing, of_content

NAMES = ("left", "right")
MOVING = (*MOVED, Turns, Reshapes, Same)
"""What an operation means that moves elements and computes none."""


def all_outputs(left: Run, right: Run, found: Difference, near: bool = False) -> str:
    """Different operations on the same inputs, as of eager and compiled code: all outputs are taken
    to agree, as that is what was asked, but those that are moved or read other inputs.

    ``near``: only those of which labels don't say all, and which are close on both sides. Returns
    what is to be said of it, or nothing: what is not close is not assumed to mean the same.
    """
    ours, theirs = found.left.values, found.right.values
    pairs: dict[int, Pair] = {}
    for place, one in enumerate(found.outputs):
        mine, other = ours[one.left], theirs[one.right]
        alike = mine.shape == other.shape and mine.dtype == other.dtype
        alike &= not (one.moved or one.window)
        size = prod(mine.shape)
        if alike and not one.selection.whole and (not near or one.compared < size):
            pairs[place] = Pair.of_all(one.left, one.right, size)
        elif alike and not near:
            one.known = True
    judge(left, right, list(pairs.values()))
    same = {n: one for n, one in pairs.items() if close.near(one, ours[one.left].dtype)}
    for place, one in (same if near else pairs).items():
        found.outputs[place] = one
    if near or len(same) == len(pairs):
        return SAME_OUTPUTS if same else ""
    return NOT_CLOSE


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


def unlike(found: Difference, same: bool) -> bool:
    """Returns whether labels do not say of all outputs what must agree, as some operations have no
    counterpart, or one that computes something else.

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
    return same or _other_formulas(found)


def _other_formulas(found: Difference) -> bool:
    """Returns whether a side computes something that the other doesn't."""
    return any(
        number is not None and computes(run.operations[number])
        for one in found.operations
        if one.verdict in NAMES
        for run, number in ((found.left, one.left), (found.right, one.right))
    )


def by_closeness(left: Run, right: Run, found: Difference, same: bool) -> Difference:
    """Returns the comparison with close values taken for the same; where not both sides take all of
    the same inputs (``same``) only if all outputs are close then."""
    told = close.paired(left, right, found)
    ours = found.left.values
    near = (one.selection.whole and close.near(one, ours[one.left].dtype) for one in told.outputs)
    return told if same or all(near) else found


MASKS = "; inputs that only one side reads, such as a mask, are assumed to mean the same, too"


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


def part_taken(found: Difference) -> bool:
    """Returns whether both sides take other parts of an input, or one takes it in another order,
    before anything is computed: as in ``model(x[:1])``, ``model(x.flip(0))`` against ``model(x)``.

    Then labels say which outputs must agree. Where nothing is known of an output, that is taken to
    be the difference only if both take a part or the rest runs the same operations: not eager
    against compiled.
    """
    sides = found.left, found.right
    inputs = [set(inputs_of(side)) for side in sides]
    taken, others = False, False
    for one in found.operations:
        alone = one.verdict in NAMES
        for side, number, some in zip(sides, (one.left, one.right), inputs, strict=True):
            if number is None:
                continue
            op = side.operations[number]
            if only_moves(side, op, some):
                some.update(op.gives)
                takes = isinstance(op.meaning, (*MOVED, Joins, Splits))
                taken |= alone and takes
                if takes and any(not pair.selection.whole for pair in one.gives):
                    return True
            else:
                others |= alone
    return taken and (not others or all(one.known for one in found.outputs))


def only_moves(run: Recording, op: Operation, inputs: Collection[int]) -> bool:
    """Returns whether an operation puts elements of these values in other places, and computes
    nothing; it may read which ones besides, as known integers."""
    moves = isinstance(op.meaning, (*MOVING, Joins, Splits)) or op.meaning.word == "cast"
    some = any(n in inputs for n in op.reads)
    return moves and some and all(n in inputs or run.values[n].plain for n in op.reads)


@dataclass
class Asked:
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


def asked(left: Recording, right: Recording) -> Asked:
    """Returns what two runs have in common.

    InputError: inputs that have nothing in common, other outputs, or the same operations with
    other weights.
    """
    if len(left.outputs) != len(right.outputs):
        counts = f"{len(left.outputs)} and {len(right.outputs)}"
        raise InputError("outputs", counts, "the two sides do not return as many", SAME_MODEL)
    pairs = _met(left, right)
    refused = _other_weights(left, right, pairs)
    ours, theirs = (Counter(one.op for one in side.operations) for side in (left, right))
    if refused is not None and ours == theirs:
        raise refused
    held = _weights(left), _weights(right)
    # where no weight is the same although both sides have some, nothing says it is one model
    same = refused is None and (not all(held) or bool(held[0] & held[1]))
    inputs = _same_inputs(left, right, pairs)
    if refused is not None and not inputs:
        raise refused
    return Asked(inputs, bool(input_bits(left) & input_bits(right)), same, refused)


def inputs_of(run: Recording) -> list[int]:
    """Returns the numbers of what a run is given besides weights and constants."""
    return [n for n, v in enumerate(run.values) if v.given < 0 and v.role == INPUT]


def input_bits(run: Recording) -> set[str]:
    """Returns digests of inputs that are more than a number."""
    return {run.values[n].digest for n in inputs_of(run) if prod(run.values[n].shape) > 1}


def _weights(run: Recording) -> set[str]:
    return {v.digest for v in run.values if v.role == WEIGHT and v.given < 0}


def _other_weights(
    left: Recording, right: Recording, pairs: list[tuple[Value, Value, str]]
) -> InputError | None:
    """Returns the error of weights of one shape that are read on both sides, each by one side.

    A weight that the other side reads elsewhere is one of branches that ran in another order. A
    single number without axes, as bounds and factors in files are, is an argument.
    """
    held = _weights(left), _weights(right)
    weights = [one for one in pairs if one[0].role == one[1].role == WEIGHT and one[0].shape]
    own = [(one, where) for one, _, where in weights if one.digest not in held[1]]
    other = {(one.shape, one.dtype) for _, one, _ in weights if one.digest not in held[0]}
    for one, where in own:
        if (one.shape, one.dtype) in other:
            why = f"{where} has different weights on the two sides, so these are different models"
            return InputError("weights", one.name or where, why, SAME_MODEL)
    return None


SAME_MODEL = "give two runs of the same model, with the same weights"
SAME_INPUTS = "give both sides the same inputs, or one side a part of the other's: rows, a prefix"


def folded(refused: InputError, left: Recording, found: Difference) -> str:
    """Returns what is to be said of other weights behind outputs that are close; raises the error
    of those where not all of them are, or where an operation has a counterpart that reads other
    weights: weights that were folded stand in other operations."""
    if _only_weights(found):
        raise refused
    for one in found.outputs:
        value = left.values[one.left]
        whole = one.compared == prod(value.shape)
        if not whole or value.dtype not in floats.FORMATS or not close.near(one, value.dtype):
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
    for mine, other in align(ours, theirs):
        if mine is None or other is None:
            continue
        pairs = zip(ours.operations[mine].reads, theirs.operations[other].reads, strict=False)
        both = [(ours.values[n], theirs.values[m]) for n, m in pairs]
        if not any(
            a.role == b.role == WEIGHT
            and (a.shape, a.dtype) == (b.shape, b.dtype)
            and a.digest not in held[1]
            and b.digest not in held[0]
            for a, b in both
        ):
            continue
        inside = [one for one in groups if mine in one[0] and other in one[1]]
        for one in inside:
            sides = zip((ours, theirs), one, strict=True)
            first, second = ([run.operations[n].op for n in some] for run, some in sides)
            if first == second:
                return True
        given = [
            pair
            for one in found.operations
            if (one.left, one.right) == (mine, other)
            for pair in one.gives
        ]
        if not inside and any(pair.compared and not pair.selection.whole for pair in given):
            return True
    return False


def _met(left: Recording, right: Recording) -> list[tuple[Value, Value, str]]:
    """Pairs of values that no operation gave, where they are read, with the operation's name."""
    found, seen = [], set()
    for mine, other in align(left, right):
        if mine is None or other is None:
            continue
        one, two = left.operations[mine], right.operations[other]
        for n, m in zip(one.reads, two.reads, strict=False):
            a, b = left.values[n], right.values[m]
            if (n, m) not in seen and a.given < 0 and b.given < 0:
                seen.add((n, m))
                found.append((a, b, one.name))
    return found


def _same_inputs(left: Recording, right: Recording, pairs: list[tuple[Value, Value, str]]) -> bool:
    ours, theirs = ([run.values[n] for n in inputs_of(run)] for run in (left, right))
    some = [Counter(v.digest for v in every if prod(v.shape) > 1) for every in (ours, theirs)]
    if some[0] == some[1] and (some[0] or len(ours) == len(theirs)):
        return True
    if some[0] and some[1] and not _elsewhere(some, left, right):
        return True
    inputs = [one for one in pairs if one[0].role == one[1].role == INPUT]
    inputs = inputs or [(a, b, "") for a, b in zip(ours, theirs, strict=False)]
    apart = [one for one in inputs if one[0].digest != one[1].digest]
    shared = [one for one in inputs if one[0].digest == one[1].digest]
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


def _elsewhere(some: list[Counter[str]], left: Recording, right: Recording) -> bool:
    """Whether a side has inputs that the other has not, neither as input nor as constant: a
    compiled function keeps arrays as constants that its Python reads each time."""
    for mine, other, run in zip(some, some[::-1], (right, left), strict=True):
        held = {v.digest for v in run.values if v.given < 0 and v.role != INPUT}
        if (mine - other).keys() - held:
            return True
    return False


def in_common(left: np.ndarray, right: np.ndarray) -> bool:
    """Whether two inputs share whole slices along some axis: rows of a batch, a beginning, an end.

    Slices of zeros don't count: they are padding.
    """
    if left.ndim != right.ndim or left.dtype != right.dtype:
        return not agreeing(of_content(left), of_content(right)).empty
    if left.ndim <= 1:
        return _line(left.reshape(-1), right.reshape(-1))
    for axis in range(left.ndim):
        least = [min(pair) for pair in zip(left.shape, right.shape, strict=True)]
        cut = tuple(slice(None) if n == axis else slice(m) for n, m in enumerate(least))
        found = [
            {digest(one) for one in np.moveaxis(side[cut], axis, 0) if one.any()}
            for side in (left, right)
        ]
        if found[0] & found[1]:
            return True
    return not left.any() or not right.any()


def _line(left: np.ndarray, right: np.ndarray) -> bool:
    count = min(len(left), len(right))
    if not count:
        return True
    same = (left[:count] == right[:count]) & (left[:count] != 0)
    ends = (left[len(left) - count :] == right[len(right) - count :]) & (right[-count:] != 0)
    return bool(same[0] or ends[-1] or same.all() or not left.any() or not right.any())
