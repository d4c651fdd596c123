"""What two runs have in common: a model, with the same weights, and its inputs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import prod

import numpy as np

from probe import floats
from probe.errors import InputError
from probe.recording.contract import INPUT, WEIGHT
from probe.recording.difference import Difference, near
from probe.recording.matching import align
from probe.recording.recording import Run, Value, digest
from probe.semantics.labels import agreeing, of_content

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
    of those where not all of them are, or where an operation has a counterpart that reads other
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
