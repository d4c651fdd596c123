"""What two runs have in common: a model, with the same weights, and its inputs."""

from __future__ import annotations

from collections import Counter
from math import prod

import numpy as np

from probe import floats
from probe.comparison.weights import PermutedWeight, permuted_weights
from probe.errors import InputError
from probe.recording.contract import INPUT, WEIGHT
from probe.recording.difference import Difference, Region, is_near
from probe.recording.recording import Run, array_digest
from probe.recording.repeated import aligned

SAME_MODEL = "give two runs of the same model, with the same weights"


# Numbers of values that no operation gave, where both runs read them, with the operation's name.
Met = list[tuple[int, int, str]]


def related(left: Run, right: Run) -> tuple[bool, list[str], str]:
    """Returns whether two runs of a model take all of the same inputs, rather than one a part of
    the other's; and what is to be said of inputs and weights that are different: this explains
    outputs, and never refuses to compare them. InputError: another number of outputs.
    """
    if len(left.outputs) != len(right.outputs):
        counts = f"{len(left.outputs)} and {len(right.outputs)}"
        raise InputError("outputs", counts, "the two sides do not return as many", SAME_MODEL)
    met: dict[tuple[int, int], str] = {}
    for mine, other in aligned(left.operations, right.operations):
        op = left.operations[mine]
        for n, m in zip(op.reads, right.operations[other].reads, strict=False):
            a, b = left.values[n], right.values[m]
            if a.given < 0 and b.given < 0:
                met.setdefault((n, m), op.name)
    held = _weights(left), _weights(right)
    # Weights of one shape that are read on both sides, each by one side. What the other side reads
    # elsewhere is one of branches that ran in another order; a single number without axes, as
    # bounds and factors in files are, is an argument.
    values = [(left.values[n], right.values[m], where) for (n, m), where in met.items()]
    weights = [w for w in values if w[0].role == w[1].role == WEIGHT and w[0].shape]
    other_kinds = {(v.shape, v.dtype) for _, v, _ in weights if v.digest not in held[0]}
    other_weights = ""
    for value, _, where in weights:
        if value.digest not in held[1] and (value.shape, value.dtype) in other_kinds:
            name = f" ({value.name})" if value.name and value.name != where else ""
            other_weights = f"{where} has different weights on the two sides{name}"
            break
    same, said = _same_inputs(left, right, [(*both, where) for both, where in met.items()])
    return same, said, other_weights


def permuted(left: Run, right: Run) -> list[PermutedWeight]:
    """Returns weights whose numbers the two sides have in another order, by name."""
    keys = [{v.key for v in run.values if v.given < 0} for run in (left, right)]
    held: list[dict[str, np.ndarray]] = []
    for run, other in ((left, keys[1]), (right, keys[0])):
        arrays = dict[str, np.ndarray]()
        for op in run.operations:
            for place, n in enumerate(op.reads):
                value = run.values[n]
                alone = value.given < 0 and value.floating and value.key not in other
                if alone and prod(value.shape) > 1 and (array := run.array(n)) is not None:
                    arrays.setdefault(value.name or f"operand {place + 1} of {op.name}", array)
        held.append(arrays)
    return list(permuted_weights(*held))


def shares_weights(left: Run, right: Run) -> bool:
    """Returns whether both have a weight in common, or one has none: else, as no weight is the
    same, nothing says that it is one model."""
    held = _weights(left), _weights(right)
    return not all(held) or bool(held[0] & held[1])


def reads_other_weights(difference: Difference, region: Region) -> bool:
    """Whether a region reads weights on either side that the other lacks, and runs the same
    operations on both or isn't matched by value: folded ones stand in other operations."""
    sides = difference.left, difference.right
    held = _weights(difference.right), _weights(difference.left)
    runs = zip(sides, region.inside, strict=True)
    names = [[run.operations[n].op for n in inside] for run, inside in runs]
    # without elements, or bytes of another sign that stand for the same numbers
    alike = [
        [p.left for p in region.reads if p.hollow],
        [p.right for p in region.reads if p.hollow],
    ]
    return (names[0] == names[1] or not region.by_value) and all(
        any(
            run.values[n].role == WEIGHT and run.values[n].digest not in other and n not in same
            for number in inside
            for n in run.operations[number].reads
        )
        for run, other, inside, same in zip(sides, held, region.inside, alike, strict=True)
    )


def input_values(run: Run) -> list[int]:
    """Returns the numbers of what a run is given besides weights and constants."""
    return [n for n, v in enumerate(run.values) if v.given < 0 and v.role == INPUT]


def _weights(run: Run) -> set[str]:
    return {v.digest for v in run.values if v.role == WEIGHT and v.given < 0}


def folded(difference: Difference) -> bool:
    """Whether weights that one side alone has may be those of the other, folded into other
    operations: all outputs are close then."""
    values = difference.left.values
    return all(
        values[pair.left].dtype in floats.FORMATS
        and pair.compared == prod(values[pair.left].shape)
        and is_near(pair, values[pair.left].dtype)
        for pair in difference.outputs
    )


def _same_inputs(left: Run, right: Run, met: Met) -> tuple[bool, list[str]]:
    numbers = input_values(left), input_values(right)
    ours, theirs = (
        [run.values[n] for n in some] for run, some in zip((left, right), numbers, strict=True)
    )
    some = [Counter(v.digest for v in every if prod(v.shape) > 1) for every in (ours, theirs)]
    if some[0] == some[1] and (some[0] or len(ours) == len(theirs)):
        return True, []
    if all(some):
        # a compiled function keeps arrays as constants that its Python reads each time
        held = (
            {v.digest for v in run.values if v.given < 0 and v.role != INPUT}
            for run in (right, left)
        )
        beside = ((some[0] - some[1]).keys(), (some[1] - some[0]).keys())
        if all(more <= constants for more, constants in zip(beside, held, strict=True)):
            return True, []
    inputs = [read for read in met if read[0] in numbers[0] and read[1] in numbers[1]]
    inputs = inputs or [(n, m, "") for n, m in zip(*numbers, strict=False)]
    apart = [
        (n, m, where) for n, m, where in inputs if left.values[n].digest != right.values[m].digest
    ]
    shared = len(apart) < len(inputs)
    both = some[0].keys() & some[1].keys()
    for n, m, where in apart:
        mine, other = left.values[n], right.values[m]
        if mine.digest in both or other.digest in both:
            continue  # the other side reads it too, elsewhere
        small = min(prod(mine.shape), prod(other.shape)) <= 1
        if (small or not mine.floating) and (shared or len(apart) > 1):
            continue  # lengths, masks and scales may differ where another input says what is asked
        arrays = left.array(n), right.array(m)
        if arrays[0] is None or arrays[1] is None or in_common(arrays[0], arrays[1]):
            continue
        name = mine.name or other.name or (f"read by {where}" if where else "the first input")
        shapes = f"the two sides have shapes {list(mine.shape)} and {list(other.shape)}"
        why = f"{shapes} and have no row and no beginning in common"
        return False, [f"{name}: {why}"]
    return False, []


def in_common(left: np.ndarray, right: np.ndarray) -> bool:
    """Whether two inputs share whole slices along some axis: rows of a batch, a beginning, an end.

    Slices of zeros don't count: they are padding.
    """
    if left.ndim != right.ndim or left.dtype != right.dtype:
        return bool(np.isin(left, right).any())
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
        digests = [
            {array_digest(part) for part in np.moveaxis(side[cut], axis, 0) if part.any()}
            for side in (left, right)
        ]
        if digests[0] & digests[1]:
            return True
    return False
