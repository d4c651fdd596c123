"""Why the outputs of one operation differ between two runs, though what it reads agrees.

It is a region: an operation of either run, or several that together compute the same. It is run by
itself, as it was recorded. Sums of products are asked for the order and the rounding of the outputs
that differ, which are revealed on both sides and replayed on the recorded operands. Functions are
asked whether places differ. What none of these explains has no class: it is said, and nothing is
guessed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from probe.case import floats
from probe.case.errors import InputError, ProbeError
from probe.case.layout import BOUNDARY
from probe.diff import place
from probe.diff.alone import (
    NOT_ALONE,
    Adds,
    Alone,
    Cause,
    Known,
    Sides,
    as_comparison,
    differing_outputs,
    equal_bits,
    evenly,
    isolated_sides,
    reveal_sums,
    unequal_bits,
)
from probe.diff.difference import NAMES, Region
from probe.diff.enclosed import rounding_verdict
from probe.diff.saturation import saturation_cause
from probe.diff.sums import first_of
from probe.order.semantics import (
    Contracts,
    Each,
    Reduces,
    Step,
    Steps,
    Unknown,
    Windows,
)
from probe.order.tree import Tree
from probe.record.recording import (
    LeftOut,
    Operation,
    Run,
    operations_between,
    region_text,
    value_name,
)

# Differing outputs that are revealed; of more, that many evenly among them.
ALL = 2048

NO_SOURCE = ": this is not a source"


def other_operands(sides: Sides) -> str:
    """Returns what is wrong with the claim that both sides read the same; empty if nothing is.

    Equal parts put into the right side's operands must leave every bit as it is.
    """
    left, right = sides
    ours, theirs = (dict(zip(side.operation.reads, side.reads, strict=True)) for side in sides)
    if _turned(sides):
        return f"an operand has its axes in another order on the right{NO_SOURCE}"
    signed = dict(theirs)  # the right's, with the left's zeros
    for pair in left.pairs:
        if pair.selection.empty:
            continue
        other = theirs[pair.right]
        mixed = pair.selection.put(other, pair.selection.taken(ours[pair.left], 0), 1)
        signed[pair.right] = mixed.reshape(other.shape)
        if not equal_bits(other, signed[pair.right], right.side.values[pair.right].dtype):
            return f"the operands were assumed to agree, but differ{NO_SOURCE}"
    if all(signed[n].tobytes() == theirs[n].tobytes() for n in theirs):
        return ""
    # +0 and -0 count as agreeing, and most operations make nothing else of them; atan2 does
    results = right.rerun([signed[n] for n in right.operation.reads])
    if equal_bits(results, right.outputs, right.value.dtype):
        return ""
    return f"its operands have zeros of different signs, which change what it gives{NO_SOURCE}"


def _turned(sides: Sides) -> bool:
    """Whether one operation reads an operand with its axes in another order on the right, and the
    rest as it is: a weight that was transposed by mistake has the same numbers."""
    left, right = (side.operation for side in sides)
    asked = [(op.op, len(op.reads), repr(op.attributes)) for op in (left, right)]
    if asked[0] != asked[1] or not sides[0].pair.selection.whole:
        return False
    ours, theirs = (dict(zip(side.operation.reads, side.reads, strict=True)) for side in sides)
    same = {True: 0, False: 0}
    for pair in sides[0].pairs:
        a, b = ours[pair.left], theirs[pair.right]
        if left.reads.index(pair.left) != right.reads.index(pair.right) or a.shape != b.shape:
            return False
        if pair.compared == a.size > 1:
            same[pair.selection.whole or a.tobytes() == b.tobytes()] += 1
    return all(same.values())


def reads_more(sides: Sides) -> str:
    """Returns which side reads more than was said; empty if none does, as far as is known."""
    for side, other in (sides, sides[::-1]):
        if side.reads_more(other):
            why = "its outputs depend on operands that it was not expected to read"
            return f"on the {NAMES[side.place]}, {why}{NO_SOURCE}"
    return ""


def _exchanged(sides: Sides) -> tuple[list[int | None], list[int | None], str]:
    """Returns either side's operands at the other side's addresses, and which begin elsewhere, in
    words; empty if none is known to."""
    left = sides[0]
    ours, theirs = (list(side.addresses) for side in sides)
    pairs = {pair.left: pair.right for pair in left.pairs}
    right = {n: at for at, n in enumerate(sides[1].operation.reads)}
    said = []
    for at, number in enumerate(left.operation.reads):
        other = right.get(pairs.get(number, -1))
        if other is None or None in (ours[at], theirs[other]) or ours[at] == theirs[other]:
            continue
        name = value_name(left.side, number) or f"operand {at + 1}"
        said.append(f"{name} at {ours[at]} on the left and {theirs[other]} on the right")
        ours[at], theirs[other] = theirs[other], ours[at]
    head = f"operands begin at different addresses, in bytes behind a multiple of {BOUNDARY}"
    return ours, theirs, f"{head}: {', '.join(said)}" if said else ""


def find_cause(
    left: Run, right: Run, region: Region, most: int = ALL, known: Known | None = None
) -> Cause:
    """Explains a source. ``most``: differing outputs that are revealed, evenly among all.

    ``known``: what was revealed of operations like it, which is tried first and added to.

    Costs calls of its operations. What one run alone has, or does not differ, has no cause.
    """
    pair = next((result for result in region.gives if not result.equal), None)
    sides, why = None, "there are no outputs on both sides that differ"
    try:
        sides = isolated_sides(left, right, region)
    except LeftOut:
        why = "its operands were left out of the recording"
    if sides is None:
        cause = Cause(why=why)
    else:
        pair = sides[0].pair
        cause = _region_cause(sides, region, most, {} if known is None else known)
    if pair is not None:
        cause.compared, cause.differing = pair.compared, pair.differing
    if sides is not None and not cause.refuted:
        if cause.comparison is not None:
            proved, counted = _proved(cause), 0
        else:
            proved = np.zeros(len(sides[0].outputs), bool)
            counted = cause.replayed if cause.kind and cause.in_numpy else 0
        cause.rounding = rounding_verdict(sides, proved, counted)
        if region.arguments:  # what was asked differs, whatever the numbers look like
            far = replace(cause.rounding, within=0, explained=0)
            cause.rounding = replace(far, unknown=cause.rounding.total - far.beyond)
    return cause


def _proved(cause: Cause) -> np.ndarray:
    """Which outputs a cause of sums explains: bool. A replay of both sides alone is no reason: each
    side may add products of its own, as with a weight that is transposed."""
    assert cause.comparison is not None
    proved = cause.comparison.proved()
    if not cause.kind:
        return np.zeros_like(proved)
    unexplained = np.array(cause.comparison.cause) == "unexplained"
    if not unexplained.all():
        proved[cause.comparison.differing[unexplained]] = False
    return proved


# The cause of numbers that two libraries or releases draw differently from one state.
GENERATOR = "generator"

# Operations that draw from a key that they read, by the names of JAX and TensorFlow.
DRAWS = re.compile(r"random_\w+|rng_bit_generator|threefry2x32|Stateless(Random|Truncated)\w+")


def stream_cause(sides: Sides) -> Cause | None:
    """Names a random stream as the cause where both sides draw from one state, or from a key that
    agrees, and get different numbers: PyTorch 2.12 draws float16 otherwise than 2.11."""
    left, right = (side.operation for side in sides)
    states = [op.attributes.get("drawn") for op in (left, right)]
    if left.op != right.op or states[0] != states[1]:
        return None
    if states[0] is None and not (left.reads and DRAWS.fullmatch(left.op)):
        return None
    begun = "key" if states[0] is None else "state of the generator"
    why = f"{left.op} draws different numbers from the same {begun}: the libraries' streams differ"
    return Cause(GENERATOR, why, causes={GENERATOR: sides[0].pair.differing})


CANT_RUN = "the operation can't be run alone"


def _region_cause(sides: Sides, region: Region, most: int, known: Known) -> Cause:
    if region.arguments and len(sides[0].reads) != len(sides[1].reads):
        return Cause(why=f"not explained yet: {region.arguments}")
    if region.arguments:
        return _argument_cause(sides, region.arguments)
    if cause := stream_cause(sides):
        return cause
    if any(side.again is None for side in sides):
        # of a recording that isn't trusted nothing was tried
        tried = (side.side.untried for side in sides)
        why, elsewhere = next(filter(None, tried), CANT_RUN), _exchanged(sides)[2]
        return Cause(why=why + f"; {elsewhere}" * bool(elsewhere))
    try:
        if cause := doubt(sides):
            return cause
    except NOT_ALONE as error:
        return Cause(why=f"alone, the operation raises {type(error.__cause__ or error).__name__}")
    meaning = sides[0].operation.meaning
    if region.by_value and region.joint:
        # sums of the same products on both sides are asked as such, wherever their factors stand
        sums = all(isinstance(first_of(side.operation.meaning), SUMS) for side in sides)
        cause = _sums_cause(sides, most, known, same_products=True) if sums else Cause()
        if not cause.explained:
            terms = terms_cause(sides, differing_outputs(sides))
            cause = terms or _formulas_cause(sides) or Cause(why=CLOSE)
        cause.alone = True
        return cause
    first, apart = first_of(meaning), differing_outputs(sides)
    if cut_off := saturation_cause(sides, apart):
        cause = cut_off
    elif isinstance(first, SUMS):
        cause = _sums_cause(sides, most, known, same_products=region.joint)
    elif isinstance(first, Each):
        # of two formulas one may hold the other's results at some place by chance
        formulas = _formulas_cause(sides) if region.joint else None
        cause = terms_cause(sides, apart) or formulas
        cause = cause or place.function_cause(sides, apart, first.along)
    else:
        why = meaning.why if isinstance(meaning, Unknown) else "there is no test for it yet"
        cause = Cause(why=f"not explained yet: {why}")
    if region.joint and not cause.kind:
        cause = terms_cause(sides, apart) or _formulas_cause(sides) or cause
    cause.alone = True
    _add_addresses(cause, sides)
    return cause


CLOSE = "not explained yet: different formulas whose results are close"


def _formulas_cause(sides: Sides) -> Cause | None:
    """Names two formulas as the cause where both sides, which gave their recorded bits alone,
    compute different things one after the other; None where it isn't known what a step computes,
    or they differ in how they move elements alone."""
    said, words = [], []
    for side in sides:
        end = side.operation.gives[side.output]
        numbers, _ = operations_between(side.side, [end], side.operation.reads)
        inside = [side.side.operations[n] for n in numbers]
        if any(isinstance(op.meaning, Unknown) for op in inside):
            return None
        said.append(region_text(side.side, numbers))
        values = side.side.values
        # what gives once more what is read changes nothing
        given = {(values[n].shape, values[n].digest) for n in side.operation.reads}
        words.append([word for op in inside for word in _formula_words(op, side.side, given)])
    without = [[word for word in each if word not in floats.FORMATS] for each in words]
    if words[0] == words[1]:
        return None
    kind, what = "algorithm", "two formulas"
    if all(re.fullmatch(r"sum|add(_n|_of_\d+)?", word) for word in (*words[0], *words[1])):
        if _same_of_integers(sides):
            kind, what = "order", "the same numbers are added in another order"
    elif without[0] == without[1]:
        # are the results as near as the roughest of these formats lets them be?
        formats = (word for each in words for word in each if word in floats.FORMATS)
        dtype, rough = sides[0].value.dtype, floats.eps(max(formats, key=floats.eps))
        near = dtype in floats.FORMATS and sides[0].pair.scaled * floats.eps(dtype)
        if not near or near > FORMATS_APART * rough:
            return None
        kind, what = "precision", "the same is computed in other formats"
    why = (
        f"{what}: {said[0]} on the left, {said[1]} on the right; run alone, each gives its "
        "recorded bits"
    )
    count = len(differing_outputs(sides))
    return Cause(kind, why, count, count, in_numpy=False)


# Of the largest result, in eps of the roughest format, how far rounding to it may take others.
FORMATS_APART = 16


def _same_of_integers(sides: Sides) -> bool:
    """Whether both sides give the same of small integers, of which no sum is rounded: they add the
    same then. Equal numbers become equal integers, wherever they stand, and zeros stay."""
    results = []
    for side in sides:
        operands = []
        for array, dtype in zip(side.reads, side.dtypes[:-1], strict=True):
            if dtype in floats.FORMATS:
                wide = floats.widen(array, dtype).astype("f8")
                mixed = (wide.view("u8") >> 29) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(40)
                small = np.where(mixed & 1, -1.0, 1.0) * (1 + mixed // 2 % 3)
                array = floats.round_to(np.where(wide == 0, 0.0, small), dtype)
            operands.append(array)
        results.append(side.rerun(operands))
    return equal_bits(results[0], results[1], sides[0].value.dtype)


def _add_addresses(cause: Cause, sides: Sides) -> None:
    """Names the addresses of operands as the cause where each side, run alone on its own operands
    at the other's addresses, gives the other's bits. Orders that were revealed stay the proof of
    what each side adds; what else differs between the sides then changes nothing."""
    ours, theirs, text = _exchanged(sides)
    if not text:
        return
    left, right = sides
    dtype = left.value.dtype
    moved = left.moved(ours), right.moved(theirs)
    if moved[0] is None or moved[1] is None:
        cause.why += f"; {text}"
        return
    differ = unequal_bits(left.outputs, right.outputs, dtype)
    gone = differ & ~unequal_bits(moved[0], right.outputs, dtype)
    gone &= ~unequal_bits(moved[1], left.outputs, dtype)
    count, every = int(gone.sum()), int(differ.sum())
    if count < every:  # none: where they begin changes nothing, and is not mentioned
        cause.why += f"; {text}, which explains {count} of {every}" * bool(count)
        return
    if not cause.kind:  # nothing replays what each side does, but exchanged addresses exchange bits
        cause.why, cause.examined, cause.replayed = "", every, every
        cause.in_numpy = False
    exchanged = f"{text}; with the addresses exchanged, each side gives the other's bits"
    cause.kind, cause.causes = "alignment", {"alignment": every}
    cause.why = f"{exchanged}; {cause.why}" if cause.why else exchanged


def _argument_cause(sides: Sides, arguments: str) -> Cause:
    """Returns the class of operations whose arguments differ, though their operands agree.

    It is the arguments that decide where nothing else can: operands of one size that lie alike in
    memory, on one target. Else the difference has to be larger than any rounding.
    """
    count, dtype = sides[0].pair.differing, sides[0].value.dtype
    alone, elsewhere = False, False  # whether something around a call decides, such as a switch
    able = all(side.again is not None for side in sides)
    try:
        for side in sides if able else ():
            kind, why = side.unsteady()
            if kind == "nondeterministic":
                return Cause(kind, why, causes={kind: count}, alone=alone)
            alone, elsewhere = not why, bool(why)
            if why:
                break
    except NOT_ALONE as error:
        said = type(error.__cause__ or error).__name__
        return Cause(why=f"alone, the operation raises {said}", alone=alone)
    calls = [
        (side.side.target, [array.shape for array in side.reads], getattr(side.again, "lies", None))
        for side in sides
    ]
    if (elsewhere or calls[0] != calls[1]) and sides[0].pair.is_near(dtype):
        why = (
            f"its arguments differ ({arguments}), and so does the size of its operands, "
            "how they lie in memory or a switch: it is unknown which of these changes the bits"
        )
        return Cause(why=why, alone=alone)
    # the same operands on the same target, so nothing but the arguments can decide
    both = [side.operation.meaning for side in sides]
    windows = all(isinstance(meaning, Windows) for meaning in both)
    kind = "window+argument" if windows and both[0] != both[1] else "argument"
    came = count if alone else 0
    return Cause(kind, arguments, came, came, {kind: count}, alone, in_numpy=False)


def why_no_source(left: Run, right: Run, region: Region) -> str:
    """Returns why an operation is no source, though its inputs were taken to agree; empty if
    nothing was found against it. It is run alone; what can't be is not refuted."""
    try:
        sides = isolated_sides(left, right, region)
        if sides is None or any(side.again is None for side in sides):
            return ""
        cause = doubt(sides)
        return cause.why if cause and cause.refuted else ""
    except NOT_ALONE:
        return ""


def doubt(sides: Sides) -> Cause | None:
    """What is wrong with the claim that both sides, run alone, read the same and give their
    recorded bits: either no source, or what doesn't repeat. None: nothing."""
    if why := other_operands(sides):
        elsewhere = _exchanged(sides)[2]
        return Cause(why=why + f"; {elsewhere}" * bool(elsewhere), refuted=True)
    kind, why = next(filter(any, (side.unsteady() for side in sides)), ("", ""))
    if kind == "other":
        return Cause(why=why, refuted=True)
    if kind:
        return Cause(kind, why, causes={kind: sides[0].pair.differing})
    why = reads_more(sides)
    return Cause(why=why, refuted=True) if why else None


def _sums_cause(sides: Sides, most: int, known: Known, same_products: bool = False) -> Cause:
    """Returns how both sides add, revealed and replayed. ``same_products``: only where these are
    the same, as a sum of others is no other order."""
    cause = Cause()
    try:
        adds = [Adds(side) for side in sides]
        comparison = as_comparison(adds)
        count = len(comparison.differing)
        if not count or (same_products and not _same_products(adds, comparison.differing)):
            return cause
        if behind := _said_behind(adds, comparison.differing):
            return Cause("algorithm", behind, count, count, in_numpy=False)
        examined = reveal_sums(adds, comparison.differing, known, most)
        comparison.left, comparison.right = (side.run for side in adds)
        where = np.isin(comparison.differing, examined)
        counted = Counter(name for name, here in zip(comparison.cause, where, strict=True) if here)
        cause.examined, cause.replayed = len(examined), int(comparison.proved(examined).sum())
        cause.causes, cause.comparison = dict(counted.most_common()), comparison
    except (ProbeError, ValueError, IndexError) as error:
        cause.why = f"not explained yet: {getattr(error, 'why', error)}"
        return cause
    refused = [side.refusal for side in (comparison.left, comparison.right)]
    evidence = comparison.left.evidence or comparison.right.evidence
    explained = [name for name in cause.causes if name not in ("unexplained", "not-a-sum")]
    products = "the products (Winograd or FFT, for example)"
    if "nondeterministic" in refused:
        cause.kind, cause.why = "nondeterministic", evidence
    elif refused.count("not-a-sum") == 1:
        cause.kind, cause.causes = "algorithm", {"algorithm": cause.examined}
        side = ("left", "right")[refused.index("not-a-sum")]
        cause.why = f"the {side} side does not add {products}, the other side does: {evidence}"
    elif refused.count("not-a-sum") == 2:
        cause.why = f"neither side adds {products}: {evidence}"
    elif "not-asked" in refused:
        cause.why = f"not explained yet: {evidence}"
    elif not explained and cause.replayed == cause.examined and _same_products(adds, examined):
        cause.kind, cause.causes = "order", {"order": cause.replayed}
        cause.why = "the same products are added, of operands in another order on the two sides"
    elif not explained and cause.replayed == cause.examined:
        cause.why = "not explained yet: each side's sums replay, but they add different products"
    elif not explained:
        cause.why = "no revealed summation gives the bits of both sides"
        cause.why += f": {evidence}" if evidence else ""
    else:
        cause.kind, summands = explained[0], comparison.left.case.summands
        of = f"{cause.replayed} of {cause.examined} examined outputs replay on both sides"
        cause.why = f"{SAID.get(cause.kind, cause.kind)} in sums of {summands}; {of}"
    return cause


def _said_behind(adds: Sequence[Adds], apart: np.ndarray) -> str:
    """Returns how sums are changed before they are given, where the sides do it differently: a mean
    over another number of summands is no other order of these; empty where both do the same."""
    counts, functions, words = [], [], []
    bounds = {"relu": (0, None), "relu6": (0, 6), "add": "add"}  # a relu may be written as a bound
    for side in adds:
        divisors, ones = side.session.divisors, np.full(len(apart), float(side.sum.scale))
        counts.append(ones if divisors is None else divisors[side.places[apart, 0]])
        functions.append([bounds.get(word, numbers) for word, numbers in side.sum.functions])
        words.append(" + ".join(word for word, _ in side.sum.functions) or "nothing")
    differ = np.flatnonzero(counts[0] != counts[1])
    if len(differ):
        left, right = (each[differ[0]] for each in counts)
        first = f"the first that differ by {left:.0f} on the left, {right:.0f} on the right"
        return f"the sums are divided by other counts, {first}"
    if functions[0] != functions[1]:
        return f"behind the sums there is {words[0]} on the left and {words[1]} on the right"
    return ""


def _same_products(adds: Sequence[Adds], examined: np.ndarray) -> bool:
    """Whether outputs of both sides are sums of the same products, in whatever order."""
    listed = evenly(examined, max(1, LISTED // max(adds[0].sum.summands, 1)))
    products = []
    for side in adds:
        positions, filters = side.places[listed].T
        group, dtype = filters // (side.sum.filters // side.sum.groups), side.sum.dtype
        operands = side.run.operands
        x = np.stack([operands.columns[g][:, n] for g, n in zip(group, positions, strict=True)])
        w = operands.weights[:, filters].T
        every = floats.widen(x, dtype) * floats.widen(w, dtype)
        if operands.b is not None:
            every = np.column_stack([every, floats.widen(operands.b[filters], dtype)])
        # padding adds nothing: it may be written out on one side
        every = np.sort(np.where(every == 0, 0.0, every), axis=1)
        products.append([row[row != 0].tolist() for row in every])
    return products[0] == products[1]


# What a class says of two sums.
SAID = {
    "order": "the products are added in different orders",
    "rounding": "the order is the same, but different products are fused into their additions",
    "order+rounding": "the products are added in different orders and fused differently",
    "precision": "operands or partial sums are kept in different formats",
    "flush": "one side flushes subnormal numbers to zero",
    "reach": "one side reads inputs outside of the window",
}


# Of which NumPy rounds as a library does. float16 is added in float32 by some.
STEPPED = ("float32", "float64")

SUMS = (Contracts, Windows, Reduces)

# Products that are listed one by one, to find those of one side on the other.
LISTED = 1 << 22


def _formula_words(op: Operation, run: Run, given: set[Any]) -> list[str]:
    """Returns what an operation computes, in words; of what only moves or changes nothing, none.

    All sums of products have one word, however they are written, a bias is an addition, and a mean
    is divided behind: that a sum is added in another order is no other formula.
    """
    shown = given | {(run.values[n].shape, run.values[n].digest) for n in op.reads}
    if any((run.values[n].shape, run.values[n].digest) in shown for n in op.gives):
        return []
    if (format_ := _cast_to(op, run)) is not None:
        return [format_]
    words = []
    for each in [step.meaning for step in getattr(op.meaning, "steps", ())] or [op.meaning]:
        if isinstance(each, Contracts):
            words += ["sum"] if each.bias is None else ["sum", "add"]
        elif isinstance(each, Windows) and each.kind != "max":
            behind = "divide" if each.kind == "average" else "add"
            words += ["sum", behind] if len(each.reads) > 2 or each.kind == "average" else ["sum"]
        elif isinstance(each, Reduces) and each.word in ("sum", "mean"):
            words += ["sum", *["divide"] * (each.word == "mean")]
        elif isinstance(each, Each) or not each.exact:
            words.append(each.word or op.op)
    return words


def _cast_to(op: Operation, run: Run) -> str | None:
    """Returns the format that an operation brings numbers into and does nothing else; None: it
    does something else."""
    if len(op.reads) != 1 or len(op.gives) != 1:
        return None
    dtypes = [run.values[n].dtype for n in (*op.reads, *op.gives)]
    arrays = [run.array(n) for n in (*op.reads, *op.gives)]
    if dtypes[0] == dtypes[1] or not {*dtypes} <= {*floats.FORMATS}:
        return None
    if arrays[0] is None or arrays[1] is None or arrays[0].shape != arrays[1].shape:
        return None
    rounded = floats.round_to(floats.widen(arrays[0], dtypes[0]), dtypes[1])
    return dtypes[1] if equal_bits(rounded, arrays[1], dtypes[1]) else None


def terms_cause(sides: Sides, apart: np.ndarray) -> Cause | None:
    """Returns why two sums of the same terms differ: their order; None where they are no such sums,
    or NumPy does not give all differing outputs ``apart`` of both sides."""
    left, right = sides
    # operands by where the left reads them first; what no one there stands for has no tree
    numbers, values = left.operation.reads, left.side.values
    leaves = {n: place for place, n in reversed([*enumerate(numbers)])}
    same = {pair.right: pair.left for pair in left.pairs if pair.equal and pair.selection.whole}
    for n in right.operation.reads:
        weight = right.side.values[n]
        if n not in same and weight.given < 0:
            same[n] = next((m for m in numbers if values[m].key == weight.key), -1)
    named = (
        [leaves[n] for n in numbers],
        [leaves.get(same.get(n, -1)) for n in right.operation.reads],
    )
    trees = [_addition_tree(side, names) for side, names in zip(sides, named, strict=True)]
    ours, theirs = trees
    if ours is None or theirs is None or ours == theirs or ours.leaves != theirs.leaves:
        return None
    for side, tree, names in zip(sides, (ours, theirs), named, strict=True):
        sums, operands = list[np.ndarray](), dict(zip(names, side.reads, strict=True))
        with np.errstate(all="ignore"):
            for first, second in tree.nodes:
                pair = (sums[~n] if n < 0 else operands[n] for n in (first, second))
                sums.append(np.add(*pair))
        if sums[-1].shape != side.value.shape:
            return None
        if unequal_bits(side.taken(sums[-1])[apart], side.outputs[apart], side.value.dtype).any():
            return None
    why = (
        f"{ours.formula} on the left, {theirs.formula} on the right, of the operands as the left "
        f"reads them; all {len(apart)} differing outputs replay in NumPy on both sides"
    )
    return Cause("order", why, len(apart), len(apart))


def _addition_tree(alone: Alone, leaves: Sequence[int | None]) -> Tree | None:
    """Returns how an operation adds what it reads, by the ``leaves`` that these are; None where it
    does anything else, or adds one twice."""
    meaning = alone.operation.meaning
    count = len(alone.operation.reads)
    if set(alone.dtypes) - {alone.dtypes[-1]} or alone.dtypes[-1] not in STEPPED or None in leaves:
        return None
    steps: Sequence[Step] = [Step(meaning, tuple(range(count)), alone.value.shape)]
    if isinstance(meaning, Steps):
        steps = meaning.steps if not meaning.gives else ()
    nodes, values = list[tuple[Any, Any]](), list[Any](leaves)
    for step in steps:
        what = step.meaning
        if what != Each(what.word) or not what.word.startswith("add"):
            return None
        total, *rest = (values[n] for n in step.reads)
        for each in rest:
            nodes.append((total, each))
            total = -len(nodes)
        values.append(total)
    try:
        return Tree.from_nodes(nodes) if nodes else None
    except InputError:
        return None
