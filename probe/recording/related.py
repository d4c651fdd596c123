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
from collections.abc import Collection, Iterator, Mapping, Sequence
from math import prod

import numpy as np

from probe import floats
from probe.comparison.weights import PermutedWeight, permuted_weights
from probe.errors import InputError
from probe.printing import counted
from probe.recording.contract import INPUT, WEIGHT
from probe.recording.difference import (
    NAMES,
    NEAR,
    Difference,
    Region,
    compare_runs,
    is_near,
    measure_pairs,
)
from probe.recording.matching import Pair, align
from probe.recording.recording import Operation, Run, Value, array_digest, computes
from probe.semantics import (
    MOVED,
    MOVING,
    Broadcasts,
    Contracts,
    Convolution,
    Exact,
    Joins,
    Normalises,
    Pads,
    Reduces,
    Splits,
    Unknown,
    Windows,
)
from probe.semantics.labels import Labels, Selection, agreeing, of_content, tag

SAME_MODEL = "give two runs of the same model, with the same weights"


# Pairs of values that no operation gave, where both runs read them, with the operation's name.
Met = list[tuple[Value, Value, str]]


def related(left: Run, right: Run) -> tuple[bool, list[str], str]:
    """Returns whether two runs of a model take all of the same inputs, rather than one a part of
    the other's; and what is to be said of inputs and weights that are different: this explains
    outputs, and never refuses to compare them. InputError: another number of outputs.
    """
    if len(left.outputs) != len(right.outputs):
        counts = f"{len(left.outputs)} and {len(right.outputs)}"
        raise InputError("outputs", counts, "the two sides do not return as many", SAME_MODEL)
    met: dict[tuple[int, int], tuple[Value, Value, str]] = {}
    for mine, other in align(left, right):
        if mine is not None and other is not None:
            op = left.operations[mine]
            for n, m in zip(op.reads, right.operations[other].reads, strict=False):
                a, b = left.values[n], right.values[m]
                if a.given < 0 and b.given < 0:
                    met.setdefault((n, m), (a, b, op.name))
    held = _weights(left), _weights(right)
    # Weights of one shape that are read on both sides, each by one side. What the other side reads
    # elsewhere is one of branches that ran in another order; a single number without axes, as
    # bounds and factors in files are, is an argument.
    weights = [w for w in met.values() if w[0].role == w[1].role == WEIGHT and w[0].shape]
    other_kinds = {(v.shape, v.dtype) for _, v, _ in weights if v.digest not in held[0]}
    other_weights = ""
    for value, _, where in weights:
        if value.digest not in held[1] and (value.shape, value.dtype) in other_kinds:
            name = f" ({value.name})" if value.name and value.name != where else ""
            other_weights = f"{where} has different weights on the two sides{name}"
            break
    same, said = _same_inputs(left, right, [*met.values()])
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
    """Whether a region runs the same operations on both sides, and reads weights on either that the
    other lacks: these are no folded ones, which stand in other operations."""
    sides = difference.left, difference.right
    held = _weights(difference.right), _weights(difference.left)
    runs = zip(sides, region.inside, strict=True)
    names = [[run.operations[n].op for n in inside] for run, inside in runs]
    # without elements, or bytes of another sign that stand for the same numbers
    alike = [
        [p.left for p in region.reads if p.hollow],
        [p.right for p in region.reads if p.hollow],
    ]
    return names[0] == names[1] and all(
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


def input_bits(run: Run) -> set[str]:
    """Returns digests of inputs that are more than a number."""
    return {run.values[n].digest for n in input_values(run) if prod(run.values[n].shape) > 1}


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
    ours, theirs = ([run.values[n] for n in input_values(run)] for run in (left, right))
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
    inputs = [read for read in met if read[0].role == read[1].role == INPUT]
    inputs = inputs or [(a, b, "") for a, b in zip(ours, theirs, strict=False)]
    apart = [read for read in inputs if read[0].digest != read[1].digest]
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
        return False, [f"{name}: {why}"]
    return False, []


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
        digests = [
            {array_digest(part) for part in np.moveaxis(side[cut], axis, 0) if part.any()}
            for side in (left, right)
        ]
        if digests[0] & digests[1]:
            return True
    return False


# Of the standard deviation: what two results may be apart at most. Nearly constant values say
# nothing.
SPREAD = 1 / 8

# Times the least distance that a pair may be apart where another is closer.
ALIKE = 4

# Elements that a value has at least; those that are looked at; values of a shape on a side.
LEAST, SAMPLED, MOST = 32, 1024, 512

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


def unlike(difference: Difference, same: bool) -> bool:
    """Returns whether labels do not say of all outputs what must agree, as some operations have no
    match, or one that computes something else.

    ``same``: whether both sides take all of the same inputs. Else one of them also has to compute
    what the other doesn't: other rows are no other formula.
    """
    met = {region.verdict for region in difference.operations}
    if not ("unknown" in met or met.issuperset(NAMES)):
        return False
    sides = difference.left.values, difference.right.values
    shapes = [
        [(some[n].shape, some[n].dtype) for some, n in zip(sides, ends, strict=True)]
        for ends in ((pair.left, pair.right) for pair in difference.outputs)
    ]
    if all(pair.selection.whole for pair in difference.outputs) or all(a != b for a, b in shapes):
        return False
    alone = (region for region in difference.operations if region.verdict in NAMES)
    return same or any(computes(op) for region in alone for _, op in difference.sides(region))


def by_closeness(difference: Difference, same: bool) -> Difference:
    """Returns the comparison with close values taken for the same; where not both sides take all of
    the same inputs (``same``) only if all outputs are close then."""
    paired = pair_close_values(difference)
    ours = difference.left.values
    near = [is_near(pair, ours[pair.left].dtype) for pair in paired.outputs]
    close = all(near) and all(pair.selection.whole for pair in paired.outputs)
    return paired if same or close else difference


def note_of_assumed(difference: Difference, same_inputs: bool) -> str:
    """Returns what is to be said of operations that are taken for the same, or nothing."""
    some = [region for region in difference.operations if region.assumed]
    if not some:
        return ""
    apart = [
        pair.scaled * float(floats.eps(dtype))
        for region in some
        for pair in region.gives
        if (dtype := difference.left.values[pair.left].dtype) in floats.FORMATS
    ]
    return (
        f"different operations whose results are close are {ASSUMED}, in "
        f"{counted(len(some), 'place')}; they are apart by at most {max(apart, default=0):.1e} of "
        "the largest number" + ("" if same_inputs else MASKS)
    )


def pair_close_values(difference: Difference) -> Difference:
    """Compares two runs once more, with values that are close taken for the same.

    ``difference``: what labels alone came to; it is returned where nothing else is close. Costs a
    look at samples of the values that have no match, and at all of those that are close there.
    """
    every = dict[int, int]()
    ours, theirs = (_value_samples(difference, side) for side in (0, 1))
    for (shape, dtype), some in ours.items():
        others = theirs.get((shape, dtype), {})
        for n, m in _closest(difference, some, others, dtype) if some and others else ():
            # all of two values, and not their samples alone
            pair = Pair.of_all(n, m, prod(shape))
            measure_pairs(difference.left, difference.right, [pair])
            if is_near(pair, dtype):
                every[n] = m
    return compare_runs(difference.left, difference.right, every) if every else difference


# Some elements of values, by their numbers.
Samples = dict[int, np.ndarray]


def _value_samples(difference: Difference, side: int) -> dict[tuple[tuple[int, ...], str], Samples]:
    """Returns some elements, evenly among all, of a side's values that are not compared with
    anything, and that something reads; by the values' shape and format.

    The mean that a fused norm gives besides is close to the one by hand, which leads to the result.
    """
    run = (difference.left, difference.right)[side]
    used = {*run.outputs, *(n for op in run.operations for n in op.reads)}
    regions = (region for region in difference.operations if region.verdict in (*NAMES, "unknown"))
    numbers = (region.ends[side] for region in regions)
    results = (n for number in numbers if number is not None for n in run.operations[number].gives)
    samples: dict[tuple[tuple[int, ...], str], Samples] = {}
    for n in sorted(used.intersection(results)):
        value = run.values[n]
        size = prod(value.shape)
        if value.content is not None or value.dtype not in floats.FORMATS or size < LEAST:
            continue
        some = samples.setdefault((value.shape, value.dtype), {})
        if len(some) < MOST:
            index = np.unique(np.linspace(0, size - 1, min(size, SAMPLED)).astype(int))
            part = Selection((), index, index, ((), ()), True)
            (taken,) = run.parts([(n, part)], 0)
            if taken is not None:
                some[n] = floats.widen(taken, value.dtype).astype(np.float64)
    return samples


def _closest(
    difference: Difference, ours: Samples, theirs: Samples, dtype: str
) -> Iterator[tuple[int, int]]:
    """Yields pairs of values that are about the closest to each other.

    A scale of ones and a bias of zeros leave values as they are, so several may be as close: those
    of equal operations come first, then the last computed ones, as what follows reads them; of
    those that are moved alone the first ones, as others may be copies.
    """
    # how far samples are apart, at most over all elements; infinite where not close
    many, limit = np.stack(list(theirs.values())), float(floats.eps(dtype)) ** NEAR
    apart = np.full((len(ours), len(many)), np.inf)
    for n, sample in enumerate(ours.values()):
        finite = np.isfinite(sample)
        if finite.sum() < LEAST:
            continue
        same = (np.isfinite(many) == finite).all(1)
        far = np.abs(many[:, finite] - sample[finite]).max(1, initial=0, where=same[:, None])
        same &= far <= min(limit * np.abs(sample[finite]).max(), SPREAD * sample[finite].std())
        apart[n, same] = far[same]
    least = np.minimum(apart.min(1)[:, None], apart.min(0)[None])
    fair = np.isfinite(apart) & (apart <= ALIKE * least)
    names = [*ours], [*theirs]
    givers = [
        [run.operations[run.values[n].given] for n in some]
        for run, some in zip((difference.left, difference.right), names, strict=True)
    ]
    computed = [[computes(op) for op in some] for some in givers]

    def rank(both: tuple[int, int]) -> tuple[bool, bool, bool, float, int]:
        first, second = givers[0][both[0]], givers[1][both[1]]
        computing = computed[0][both[0]], computed[1][both[1]]
        return (
            computing[0] != computing[1],
            first.op != second.op,
            first.op == second.op and first.path != second.path,
            float(apart[both]),
            (first.number + second.number) * (-1 if all(computing) else 1),
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


# Rows of a batch up to which those of both sides are compared with each other.
MOST_ROWS = 1 << 12

REORDERED = (
    "the rows of the inputs stand in another order in the two runs, and each output is compared "
    "with that of the same row"
)

# What differs between two operations of the same inputs only by which elements are read.
PLACES = (Exact, Convolution, Contracts, Normalises, Reduces, Windows)


def compare_by_index(difference: Difference, same_inputs: bool, same: bool) -> list[str]:
    """Fills in what of the outputs is moved or reads other inputs, and compares by index what is
    taken to agree; returns what is to be said.

    ``same_inputs``: whether both sides are given the same. If all of these reach both sides, an
    output is expected at its index; where one takes a part, which is how a length or a batch is
    varied, only what is moved is counted. Rows of a batch may stand in another order, if those of
    an input do. Outputs that are close by index are none of these: they are the same, computed
    differently. ``same``: whether, besides, they are of one model, and neither side takes a part;
    else only outputs that are close by index are taken to agree. Costs a look at both sides of an
    output that is not compared in its place.
    """
    said, whole, placed = dict[str, None](), None, False
    sides = difference.left, difference.right
    indexed = dict[int, Pair]()  # what is not compared in its place, by index
    for place, pair in enumerate(difference.outputs):
        mine, theirs = difference.left.values[pair.left], difference.right.values[pair.right]
        size = prod(mine.shape)
        if (mine.shape, mine.dtype) != (theirs.shape, theirs.dtype) or pair.selection.whole:
            continue
        every = indexed[place] = Pair.of_all(pair.left, pair.right, size)
        measure_pairs(difference.left, difference.right, [every])
        if is_near(every, mine.dtype):
            continue
        if whole is None:
            all_given = same_inputs or _one_side_has_more(difference)
            reached = {_part_computed_with(run) for run in sides} if all_given else {""}
            # two crops are other questions; two ways to leave elements out are two answers to one
            whole = reached == {"all"} or "gaps" in reached
            # one side has integers besides, such as a permutation: they say where elements stand
            bits = input_bits(difference.left), input_bits(difference.right)
            values = [run.values[n] for run in sides for n in input_values(run)]
            whole_numbers = not any(v.floating for v in values if v.digest in bits[0] ^ bits[1])
            more = bits[0] != bits[1] and whole_numbers and _one_side_has_more(difference)
            placed = whole or (more and {_part_computed_with(run) for run in sides} == {"all"})
        rows = _rows_in_common(difference, mine.shape[0] if mine.shape else 0)
        measured = every.first is not None  # else digests alone were kept
        if not mine.floating:
            # integers are labelled by what they hold: an equal number elsewhere says nothing
            if whole and pair.known and measured and not rows:
                difference.outputs[place] = every
            continue
        at, to = (
            np.asarray(pair.selection.taken(np.arange(size).reshape(mine.shape), side)).reshape(-1)
            for side in (0, 1)
        )
        elsewhere = at != to
        if elsewhere.any() and any(
            (at % (inner := size // len(ours)) == to % inner)[elsewhere].all()
            and (ours[at // inner] == others[to // inner])[elsewhere].all()
            for ours, others in rows
        ):
            said[REORDERED] = None
            continue
        if not placed:  # what reads padding alone is the same at many places
            elsewhere &= np.bincount(to, minlength=size)[to] == 1
        pair.moved = int(elsewhere.sum())
        rest = size - len(at)
        same_weights = not difference.other_weights
        if rest and measured and same_weights and pair.known and (pair.moved or whole):
            if not _other_formula(difference):
                pair.window = rest
            elif whole and not pair.moved and not rows:
                difference.outputs[place] = every
                said[NOT_CLOSE] = None
                continue
        if pair.moved or pair.window:
            pair.by_index = every
    if any(pair.window for pair in difference.outputs):
        # the first operation that reads the same on both sides, and picks other elements
        for each in difference.operations:
            apart = any(not pair.selection.whole for pair in each.gives)
            alike = each.reads and all(pair.selection.whole for pair in each.reads)
            if apart and alike and each.verdict in ("equal", "unknown"):
                each.cause, each.note = "window", "reads different elements of its inputs"
                break
    if same_inputs and any(region.verdict in NAMES for region in difference.operations):
        said.update(dict.fromkeys(_all_outputs(difference, indexed, same)))
    return list(said)


def _all_outputs(difference: Difference, indexed: Mapping[int, Pair], same: bool) -> Sequence[str]:
    """Different operations on the same inputs: outputs that are neither moved nor read others are
    taken to agree by index; where not ``same`` those that are close, of which labels don't say all.
    """
    settled, close = dict[int, Pair](), dict[int, Pair]()
    for place, pair in enumerate(difference.outputs):
        every = indexed.get(place)
        if pair.selection.whole:
            pair.known |= same
        elif every is None or pair.moved or pair.window:
            continue
        elif same or pair.compared < every.compared:
            settled[place] = every
            if is_near(every, difference.left.values[pair.left].dtype):
                close[place] = every
    for place, pair in (settled if same else close).items():
        difference.outputs[place] = pair
    if same and len(close) < len(settled):
        return [NOT_CLOSE]  # what is not close is not assumed to mean the same
    return [SAME_OUTPUTS] if close else []


def _other_formula(difference: Difference) -> bool:
    """Returns whether some operation computes what has no match: then what the outputs read
    can't be told from what is computed of it."""
    for region in difference.operations:
        ops = [op for _, op in difference.sides(region)]
        if len(ops) == 1 and (computes(ops[0]) and not isinstance(ops[0].meaning, Pads)):
            return True
        if any(isinstance(op.meaning, Unknown) for op in ops):
            return True
        same = region.reads and all(pair.selection.whole for pair in region.reads)
        other = any(not pair.selection.whole for pair in region.gives)
        # numbers of its own (a divisor, a factor inside a loop) change a formula too: only of two
        # operations of one kind that have none is another window proved
        alike = len({type(op.meaning) for op in ops}) == 1 and isinstance(ops[0].meaning, PLACES)
        if same and other and not alike:
            return True
    return False


def _one_side_has_more(difference: Difference) -> bool:
    """Returns whether one side is given all that the other is, and more: a mask, an index."""
    ours, theirs = input_bits(difference.left), input_bits(difference.right)
    return bool(ours & theirs) and (ours <= theirs or theirs <= ours)


def part_taken(difference: Difference) -> bool:
    """Returns whether both sides take other parts of an input, or one takes it in another order,
    before anything is computed: as in ``model(x[:1])``, ``model(x.flip(0))`` against ``model(x)``.

    Then labels say which outputs must agree. Where nothing is known of an output, that is taken to
    be the difference only if both take a part or the rest runs the same operations: not eager
    against compiled.
    """
    sides = difference.left, difference.right
    inputs = [set(input_values(side)) for side in sides]
    taken, others = False, False
    for region in difference.operations:
        alone = region.verdict in NAMES
        for side, number, some in zip(sides, region.ends, inputs, strict=True):
            if number is None:
                continue
            op = side.operations[number]
            if _only_moves(side, op, some):
                some.update(op.gives)
                takes = isinstance(op.meaning, (*MOVED, Joins, Splits))
                taken |= alone and takes
                if takes and any(not pair.selection.whole for pair in region.gives):
                    return True
            else:
                others |= alone
    return taken and (not others or all(pair.known for pair in difference.outputs))


def chosen_by_content(difference: Difference) -> bool:
    """Whether a side keeps elements of an input that an array of indices or of truths chooses: how
    many these are follows from numbers, and two sides that keep other ones are not the same."""
    for side in (difference.left, difference.right):
        inputs = set(input_values(side))
        for op in side.operations:
            indices = [n for n in op.reads if not side.values[n].floating]
            whole = [n for n in op.reads if n in inputs and n not in indices]
            some = any(prod(side.values[n].shape) > 1 for n in indices)
            if some and whole and all(n in inputs or n in indices for n in op.reads):
                sizes = [prod(side.values[n].shape) for n in (whole[0], *op.gives)]
                if len(op.gives) == 1 and sizes[0] != sizes[1]:
                    return True
    return False


def _only_moves(run: Run, op: Operation, inputs: Collection[int]) -> bool:
    """Returns whether an operation puts elements of these values in other places, and computes
    nothing; it may read which ones besides, as known integers."""
    moves = isinstance(op.meaning, (*MOVING, Joins, Splits)) or op.meaning.word == "cast"
    some = any(n in inputs for n in op.reads)
    return moves and some and all(n in inputs or run.values[n].plain for n in op.reads)


def _moves_or_repeats(run: Run, op: Operation, inputs: Collection[int]) -> bool:
    """Returns whether an operation moves or repeats elements of these values, or pads them."""
    more = isinstance(op.meaning, Pads | Broadcasts) and op.reads[0] in inputs
    return more or _only_moves(run, op, inputs)


def _part_computed_with(run: Run) -> str:
    """Returns how much of the inputs is computed with: ``all``, a ``part`` of some that has no gap,
    such as the first rows, a crop, or any rows of a batch; or what has ``gaps``.

    The inputs' elements are numbered, and moved as the run moves them.
    """
    names: dict[int, np.ndarray] = {}
    start = 1
    for n in input_values(run):
        size = prod(run.values[n].shape)
        names[n] = np.arange(start, start + size, dtype=np.uint64).reshape(run.values[n].shape)
        start += size
    used = np.zeros(start, bool)
    inputs = {n: array.astype(np.int64) for n, array in names.items()}
    computed = list(run.outputs)  # and what else is not only moved
    for op in run.operations:
        if not _moves_or_repeats(run, op, names):
            computed += op.reads
        elif op.meaning.word == "cast":
            names.update(dict.fromkeys(op.gives, names[op.reads[0]]))
        else:
            shapes = [[run.values[n].shape for n in some] for some in (op.reads, op.gives)]
            labels = [
                Labels(shape, names.get(n, np.zeros(shape, np.uint64)))
                for n, shape in zip(op.reads, shapes[0], strict=True)
            ]
            results = op.meaning.labels(labels, shapes[1], tag(op.op))
            names.update((n, label.full()) for n, label in zip(op.gives, results, strict=True))
    for value in names.keys() & {*computed}:
        some = names[value].reshape(-1)
        used[some[some < start].astype(np.int64)] = True
    extent = "all"
    for index in inputs.values():
        mask = used[index]
        if mask.all() or not mask.any():  # all of it, or it only says which elements
            continue
        if not _has_no_gaps(mask):
            return "gaps"
        extent = "part"
    return extent


def _has_no_gaps(mask: np.ndarray) -> bool:
    """Returns whether a mask is a part without gaps; along the first of several axes, of a batch,
    there may be some."""
    count = 1
    for axis in range(mask.ndim):
        along = np.flatnonzero(mask.any(tuple(n for n in range(mask.ndim) if n != axis)))
        if (axis or mask.ndim == 1) and along[-1] - along[0] + 1 != len(along):
            return False
        count *= len(along)
    return bool(mask.sum() == count)


def _rows_in_common(difference: Difference, count: int) -> list[list[np.ndarray]]:
    """Returns numbers for the rows of inputs that are not the same in place on both sides, though
    they have some rows in common: (left's, right's), equal where the rows' bits are."""
    # pairs of values that are inputs, or inputs whose elements were moved
    sides = difference.left, difference.right
    pairs = dict.fromkeys(zip(*map(input_values, sides), strict=False))
    moved = [set(input_values(run)) for run in sides]
    for run, some in zip(sides, moved, strict=True):
        for op in run.operations:
            some.update(op.gives if _moves_or_repeats(run, op, some) else ())
    for region in difference.operations:
        both = ((pair.left, pair.right) for pair in region.reads)
        pairs.update({(n, m): None for n, m in both if n in moved[0] and m in moved[1]})
    every = []
    for n, m in pairs:
        mine, other = difference.left.values[n], difference.right.values[m]
        same = len(mine.shape) > 1 and mine.shape == other.shape and mine.dtype == other.dtype
        if not same or mine.digest == other.digest or not 1 < mine.shape[0] == count <= MOST_ROWS:
            continue
        arrays = difference.left.array(n), difference.right.array(m)
        if arrays[0] is None or arrays[1] is None:
            continue
        rows = [[row.tobytes() for row in np.asarray(array)] for array in arrays]
        numbers = {row: k for k, row in enumerate(dict.fromkeys((*rows[0], *rows[1])))}
        if {*rows[0]} & {*rows[1]}:
            every.append([np.array([numbers[row] for row in some]) for some in rows])
    return every
