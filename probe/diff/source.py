"""Why the outputs of one operation differ between two runs, though what it reads agrees; and
whether rounding can be why.

It is a region: an operation of either run, or several that together compute the same. It is run by
itself, as it was recorded. Of sums of products the order and the rounding of the outputs that
differ are revealed on both sides and replayed on the recorded operands; functions and integers have
causes of their own (:mod:`probe.diff.causes`). What none of these explains has no class: it is
said, and nothing is guessed.

Both sides' results are held against all that the operands allow (:mod:`probe.explain.enclosure`). A
mean, a pool, a number added to a sum and a bound such as ReLU's have the sum's enclosure, put
through the same steps. No function has one: two results of one that are no more than ``ULPS`` units
in the last place apart are within rounding, and of others it is unknown.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np

from probe.case import floats, ulp
from probe.case.errors import InputError, ProbeError
from probe.case.layout import BOUNDARY
from probe.diff.alone import (
    NOT_ALONE,
    Adds,
    Alone,
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
from probe.diff.causes import Cause, function_cause, saturation_cause
from probe.diff.difference import NAMES, Region
from probe.diff.related import COMMUTES
from probe.diff.sums import OperationSum, first_of
from probe.explain.enclosure import (
    BEYOND,
    UNKNOWN,
    WITHIN,
    Enclosure,
    RoundingVerdict,
    of_operands,
)
from probe.order.arithmetic import Doubles
from probe.order.orders import ContainerOperands
from probe.order.semantics import (
    Contracts,
    Each,
    Meaning,
    Passes,
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
MOST_REVEALED = 2048

NO_SOURCE = ": this is not a source"


def differing_operands(sides: Sides) -> str:
    """What is wrong with the claim that both sides read the same; empty if nothing is.

    Equal parts put into the right side's operands must leave every bit as it is.
    """
    left, right = sides
    left_reads, right_reads = map(_reads_by_number, sides)
    if _transposed(sides):
        return f"an operand has its axes in another order on the right{NO_SOURCE}"
    signed = dict(right_reads)  # the right's, with the left's zeros
    for pair in left.pairs:
        if pair.selection.empty:
            continue
        operand = right_reads[pair.right]
        mixed = pair.selection.with_elements(
            operand, pair.selection.elements(left_reads[pair.left], 0), 1
        )
        signed[pair.right] = mixed.reshape(operand.shape)
        if not equal_bits(operand, signed[pair.right], right.run.values[pair.right].dtype):
            return f"the operands were assumed to agree, but differ{NO_SOURCE}"
    if all(signed[n].tobytes() == right_reads[n].tobytes() for n in right_reads):
        return ""
    # +0 and -0 count as agreeing, and most operations make nothing else of them; atan2 does
    results = right.rerun([signed[n] for n in right.operation.reads])
    if equal_bits(results, right.outputs, right.value.dtype):
        return ""
    return f"its operands have zeros of different signs, which change what it gives{NO_SOURCE}"


def _exchanged_values(sides: Sides, single: bool) -> str:
    """The values that an operation reads on one side alone, though both runs have them, in words:
    as of swapped gates, ``sigmoid(a)`` and ``sigmoid(b)``; or in each other's places, as ``a - b``
    and ``b - a``. Empty if it reads the same. ``single``: it is no group of operations."""
    if len({(side.operation.op, len(side.operation.reads)) for side in sides}) > 1:
        return ""
    paired = {pair.left for pair in sides[0].pairs}, {pair.right for pair in sides[0].pairs}
    read_alone = [
        [(place, n) for place, n in enumerate(side.operation.reads) if n not in numbers]
        for side, numbers in zip(sides, paired, strict=True)
    ]
    if len(read_alone[0]) != len(read_alone[1]):
        return ""
    partners = {pair.left: pair.right for pair in sides[0].pairs}
    both_read = zip(*(side.operation.reads for side in sides), strict=True)
    moved = [n + 1 for n, (a, b) in enumerate(both_read) if a in partners and partners[a] != b]
    commutes = sides[0].operation.meaning.word in COMMUTES
    if not read_alone[0] and len(moved) == 2 and single and not commutes:
        return f"operands {moved[0]} and {moved[1]} exchanged"
    digests_of = [{value.digest for value in side.run.values} for side in sides]
    texts = []
    for (place, left), (_, right) in zip(*read_alone, strict=True):
        values = sides[0].run.values[left], sides[1].run.values[right]
        digests = {value.digest for value in values}
        same = [(value.dtype, value.shape) for value in values]
        if len(digests) < 2 or same[0] != same[1] or not digests <= digests_of[0] & digests_of[1]:
            return ""
        names = value_name(sides[0].run, left), value_name(sides[1].run, right)
        named = all(names) and names[0] != names[1]
        what = f" {names[0]} against {names[1]}" if named else " exchanged with another array"
        texts.append(f"operand {place + 1}{what}")
    return ", ".join(texts)


def _reads_by_number(side: Alone) -> dict[int, np.ndarray]:
    return dict(zip(side.operation.reads, side.reads, strict=True))


def _transposed(sides: Sides) -> bool:
    """Whether one operation reads an operand with its axes in another order on the right, and the
    others as they are: a weight that was transposed by mistake has the same numbers."""
    left, right = (side.operation for side in sides)
    calls = [(op.op, len(op.reads), repr(op.attributes)) for op in (left, right)]
    if calls[0] != calls[1] or not sides[0].pair.selection.all_by_index:
        return False
    left_reads, right_reads = map(_reads_by_number, sides)
    same = {True: 0, False: 0}
    for pair in sides[0].pairs:
        a, b = left_reads[pair.left], right_reads[pair.right]
        if left.reads.index(pair.left) != right.reads.index(pair.right) or a.shape != b.shape:
            return False
        if pair.compared == a.size > 1:
            same[pair.selection.all_by_index or a.tobytes() == b.tobytes()] += 1
    return all(same.values())


def reads_more(sides: Sides) -> str:
    """Which side reads more than was assumed; empty if none does, as far as is known."""
    for side, opposite in (sides, sides[::-1]):
        if side.reads_more(opposite):
            why = "its outputs depend on operands that it was not expected to read"
            return f"on the {NAMES[side.left_or_right]}, {why}{NO_SOURCE}"
    return ""


def _exchanged(sides: Sides) -> tuple[list[int | None], list[int | None], str]:
    """Addresses of either side's operands, those that differ exchanged; and which begin elsewhere,
    in words: empty if none is known to."""
    left, right = sides
    addresses = list(left.addresses), list(right.addresses)
    partners = {pair.left: pair.right for pair in left.pairs}
    places = {n: at for at, n in enumerate(right.operation.reads)}
    texts = []
    for at, number in enumerate(left.operation.reads):
        place = places.get(partners.get(number, -1))
        if place is None:
            continue
        both = addresses[0][at], addresses[1][place]
        if None in both or both[0] == both[1]:
            continue
        name = value_name(left.run, number) or f"operand {at + 1}"
        texts.append(f"{name} at {both[0]} on the left and {both[1]} on the right")
        addresses[1][place], addresses[0][at] = both
    head = f"operands begin at different addresses, in bytes behind a multiple of {BOUNDARY}"
    return *addresses, f"{head}: {', '.join(texts)}" if texts else ""


def find_cause(
    left: Run, right: Run, region: Region, most: int = MOST_REVEALED, known: Known | None = None
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
        single = all(len(members) == 1 for members in region.members)
        region.arguments = region.arguments or _exchanged_values(sides, single)
        cause = _region_cause(sides, region, most, {} if known is None else known)
    if pair is not None:
        cause.compared, cause.differing = pair.compared, pair.differing
    if sides is not None and not cause.refuted:
        if cause.comparison is not None:
            proved, replayed = _proved(cause), 0
        else:
            proved = np.zeros(len(sides[0].outputs), bool)
            replayed = cause.replayed if cause.kind and cause.in_numpy else 0
        cause.rounding = rounding_verdict(sides, proved, replayed)
        if region.arguments:  # the calls differ, whatever the numbers look like
            unknown = cause.rounding.total - cause.rounding.beyond
            cause.rounding = replace(cause.rounding, within=0, explained=0, unknown=unknown)
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
    """A random stream as the cause where both sides draw from one state, or from a key that agrees,
    and get different numbers: PyTorch 2.12 draws float16 otherwise than 2.11."""
    left, right = (side.operation for side in sides)
    states = [op.attributes.get("drawn") for op in (left, right)]
    if left.op != right.op or states[0] != states[1]:
        return None
    if states[0] is None and not (left.reads and DRAWS.fullmatch(left.op)):
        return None
    start = "key" if states[0] is None else "state of the generator"
    why = f"{left.op} draws different numbers from the same {start}: the libraries' streams differ"
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
        untried = (side.run.untried for side in sides)
        return Cause(why=_with_addresses(next(filter(None, untried), CANT_RUN), sides))
    try:
        if cause := doubt(sides):
            return cause
    except NOT_ALONE as error:
        return Cause(why=f"alone, the operation raises {type(error.__cause__ or error).__name__}")
    meaning = sides[0].operation.meaning
    differing = differing_outputs(sides)
    if region.by_value and region.grouped:
        # sums of the same products on both sides are revealed, wherever their factors stand
        sums = all(isinstance(first_of(side.operation.meaning), SUMS) for side in sides)
        cause = _sums_cause(sides, most, known, same_products=True) if sums else Cause()
        if not cause.explained:
            terms = terms_cause(sides, differing)
            near = sides[0].pair.is_near(sides[0].value.dtype)
            cause = terms or _formulas_cause(sides) or Cause(why=CLOSE if near else FIRST_DIGITS)
        cause.alone = True
        return cause
    first = first_of(meaning)
    if saturation := saturation_cause(sides, differing):
        cause = saturation
    elif isinstance(first, SUMS):
        cause = _sums_cause(sides, most, known, same_products=region.grouped)
    elif isinstance(first, Each):
        # of two formulas one may hold the other's results at some place by chance
        formulas = _formulas_cause(sides) if region.grouped else None
        cause = terms_cause(sides, differing) or formulas
        cause = cause or function_cause(sides, differing, first.along)
    else:
        why = meaning.why if isinstance(meaning, Unknown) else "there is no test for it yet"
        cause = Cause(why=f"not explained yet: {why}")
    if region.grouped and not cause.kind:
        cause = terms_cause(sides, differing) or _formulas_cause(sides) or cause
    cause.alone = True
    _add_addresses(cause, sides)
    return cause


def _with_addresses(why: str, sides: Sides) -> str:
    """A reason, and which operands begin at different addresses where any do."""
    addresses = _exchanged(sides)[2]
    return f"{why}; {addresses}" if addresses else why


CLOSE = "not explained yet: different formulas whose results are close"
FIRST_DIGITS = "not explained yet: the results differ in their first digits"
FORMULAS = "two formulas"


def _of_parts(left: Counter[str], right: Counter[str]) -> bool:
    """Whether a side computes what the other does, each step as many times as often: a sample or a
    chunk at a time."""
    few, many = sorted((left, right), key=Counter.total)
    times = many.total() // max(1, few.total())
    return times > 1 and many == Counter({word: times * n for word, n in few.items()})


def _formulas_cause(sides: Sides) -> Cause | None:
    """Two formulas as the cause where both sides, which gave their recorded bits alone, compute
    different things one after the other; None where it isn't known what a step computes, or they
    differ in how they move elements alone."""
    texts, words = [], []
    for side in sides:
        run, end = side.run, side.operation.gives[side.output]
        numbers, _ = operations_between(run, [end], side.operation.reads)
        inside = [run.operations[n] for n in numbers]
        if any(isinstance(op.meaning, Unknown) for op in inside):
            return None
        texts.append(region_text(run, numbers))
        # what gives once more what is read changes nothing
        operands = {(run.values[n].shape, run.values[n].digest) for n in side.operation.reads}
        words.append([word for op in inside for word in _formula_words(op, run, operands)])
    without_formats = [[w for w in formula if w not in floats.FORMATS] for formula in words]
    if words[0] == words[1] or _of_parts(*map(Counter, words)):
        return None
    kind, what = "algorithm", FORMULAS
    if all(re.fullmatch(r"sum|add(_n|_of_\d+)?", word) for word in (*words[0], *words[1])):
        if _same_of_integers(sides):
            kind, what = "order", "the same numbers are added in another order"
    elif without_formats[0] == without_formats[1]:
        # are the results as near as the roughest of these formats lets them be?
        formats = (word for formula in words for word in formula if word in floats.FORMATS)
        dtype, rough = sides[0].value.dtype, floats.eps(max(formats, key=floats.eps))
        near = dtype in floats.FORMATS and sides[0].pair.distance_in_eps * floats.eps(dtype)
        if not near or near > FORMATS_APART * rough:
            return None
        kind, what = "precision", "the same is computed in other formats"
    why = (
        f"{what}: {texts[0]} on the left, {texts[1]} on the right; run alone, each gives its "
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
    """Names the addresses of operands as the cause where each side, run alone on its operands at
    the other's addresses, gives the other's bits. Orders that were revealed stay the proof of what
    each side adds; what else differs between the sides then changes nothing."""
    left_addresses, right_addresses, text = _exchanged(sides)
    if not text:
        return
    left, right = sides
    dtype = left.value.dtype
    moved = left.moved(left_addresses), right.moved(right_addresses)
    if moved[0] is None or moved[1] is None:
        cause.why += f"; {text}"
        return
    differing = unequal_bits(left.outputs, right.outputs, dtype)
    explained = differing & ~unequal_bits(moved[0], right.outputs, dtype)
    explained &= ~unequal_bits(moved[1], left.outputs, dtype)
    count, total = int(explained.sum()), int(differing.sum())
    if count < total:  # none: where they begin changes nothing, and is not mentioned
        cause.why += f"; {text}, which explains {count} of {total}" if count else ""
        return
    if not cause.kind:  # nothing replays what each side does, but exchanged addresses exchange bits
        cause.why, cause.examined, cause.replayed = "", total, total
        cause.in_numpy = False
    exchanged = f"{text}; with the addresses exchanged, each side gives the other's bits"
    cause.kind, cause.causes = "alignment", {"alignment": total}
    cause.why = f"{exchanged}; {cause.why}" if cause.why else exchanged


def _argument_cause(sides: Sides, arguments: str) -> Cause:
    """The class of operations whose arguments differ, though their operands agree.

    It is the arguments that decide where nothing else can: operands of one size that lie alike in
    memory, on one target. Else the difference has to be larger than any rounding.
    """
    count, dtype = sides[0].pair.differing, sides[0].value.dtype
    # it gives its recorded bits alone; or something around the call decides, such as a switch
    repeats, unsteady = False, False
    runnable = all(side.again is not None for side in sides)
    try:
        for side in sides if runnable else ():
            kind, why = side.unsteady()
            if kind == "nondeterministic":
                return Cause(kind, why, causes={kind: count}, alone=repeats)
            repeats, unsteady = not why, bool(why)
            if why:
                break
    except NOT_ALONE as error:
        why = f"alone, the operation raises {type(error.__cause__ or error).__name__}"
        return Cause(why=why, alone=repeats)
    calls = [
        (side.run.target, [array.shape for array in side.reads], getattr(side.again, "lies", None))
        for side in sides
    ]
    if (unsteady or calls[0] != calls[1]) and sides[0].pair.is_near(dtype):
        why = (
            f"its arguments differ ({arguments}), and so does the size of its operands, "
            "how they lie in memory or a switch: it is unknown which of these changes the bits"
        )
        return Cause(why=why, alone=repeats)
    # the same operands on the same target, so nothing but the arguments can decide
    meanings = [side.operation.meaning for side in sides]
    windows = all(isinstance(meaning, Windows) for meaning in meanings)
    kind = "window+argument" if windows and meanings[0] != meanings[1] else "argument"
    replayed = count if repeats else 0
    return Cause(kind, arguments, replayed, replayed, {kind: count}, repeats, in_numpy=False)


def why_no_source(left: Run, right: Run, region: Region) -> str:
    """Why an operation is no source, though its inputs were taken to agree; empty if nothing was
    found against it. It is run alone; what can't be is not refuted."""
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
    if why := differing_operands(sides):
        return Cause(why=_with_addresses(why, sides), refuted=True)
    kind, why = next(filter(any, (side.unsteady() for side in sides)), ("", ""))
    if kind == "other":
        return Cause(why=why, refuted=True)
    if kind:
        return Cause(kind, why, causes={kind: sides[0].pair.differing})
    why = reads_more(sides)
    return Cause(why=why, refuted=True) if why else None


def _sums_cause(sides: Sides, most: int, known: Known, same_products: bool = False) -> Cause:
    """How both sides add, revealed and replayed. ``same_products``: only where these are the same,
    as a sum of different ones is no other order."""
    cause = Cause()
    try:
        adds = [Adds(side) for side in sides]
        comparison = as_comparison(adds)
        count = len(comparison.differing)
        if not count or (same_products and not _same_products(adds, comparison.differing)):
            return cause
        if difference := _difference_behind(adds, comparison.differing):
            return Cause("algorithm", difference, count, count, in_numpy=False)
        examined = reveal_sums(adds, comparison.differing, known, most)
        comparison.left, comparison.right = (side.run for side in adds)
        where = np.isin(comparison.differing, examined)
        counted = Counter(
            name for name, differs in zip(comparison.cause, where, strict=True) if differs
        )
        cause.examined, cause.replayed = len(examined), int(comparison.proved(examined).sum())
        cause.causes, cause.comparison = dict(counted.most_common()), comparison
    except (ProbeError, ValueError, IndexError) as error:
        cause.why = f"not explained yet: {getattr(error, 'why', error)}"
        return cause
    refusals = [side.refusal for side in (comparison.left, comparison.right)]
    evidence = comparison.left.evidence or comparison.right.evidence
    explained = [name for name in cause.causes if name not in ("unexplained", "not-a-sum")]
    products = "the products (Winograd or FFT, for example)"
    if "nondeterministic" in refusals:
        cause.kind, cause.why = "nondeterministic", evidence
    elif refusals.count("not-a-sum") == 1:
        cause.kind, cause.causes = "algorithm", {"algorithm": cause.examined}
        side = NAMES[refusals.index("not-a-sum")]
        cause.why = f"the {side} side does not add {products}, the other side does: {evidence}"
    elif refusals.count("not-a-sum") == 2:
        cause.why = f"neither side adds {products}: {evidence}"
    elif "not-asked" in refusals:
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
        cause.why = f"{SENTENCES.get(cause.kind, cause.kind)} in sums of {summands}; {of}"
    return cause


def _difference_behind(adds: Sequence[Adds], differing: np.ndarray) -> str:
    """How sums are changed before they are given, where the sides do it differently: a mean over
    another number of summands is no other order of these; empty where both do the same."""
    counts, functions, texts = [], [], []
    bounds = {"relu": (0, None), "relu6": (0, 6), "add": "add"}  # a relu may be written as a bound
    for side in adds:
        divisors, ones = side.session.divisors, np.full(len(differing), float(side.sum.scale))
        counts.append(ones if divisors is None else divisors[side.places[differing, 0]])
        functions.append([bounds.get(word, numbers) for word, numbers in side.sum.functions])
        texts.append(" + ".join(word for word, _ in side.sum.functions) or "nothing")
    unequal = np.flatnonzero(counts[0] != counts[1])
    if len(unequal):
        left, right = (divisors[unequal[0]] for divisors in counts)
        first = f"the first that differ by {left:.0f} on the left, {right:.0f} on the right"
        return f"the sums are divided by other counts, {first}"
    if functions[0] != functions[1]:
        return f"behind the sums there is {texts[0]} on the left and {texts[1]} on the right"
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
        summands = floats.widen(x, dtype) * floats.widen(operands.weights[:, filters].T, dtype)
        if operands.b is not None:
            summands = np.column_stack([summands, floats.widen(operands.b[filters], dtype)])
        # padding adds nothing: it may be written out on one side
        summands = np.sort(np.where(summands == 0, 0.0, summands), axis=1)
        products.append([row[row != 0].tolist() for row in summands])
    return products[0] == products[1]


# What a class means of two sums.
SENTENCES = {
    "order": "the products are added in different orders",
    "rounding": "the order is the same, but different products are fused into their additions",
    "order+rounding": "the products are added in different orders and fused differently",
    "precision": "operands or partial sums are kept in different formats",
    "flush": "one side flushes subnormal numbers to zero",
    "reach": "one side reads inputs outside of the window",
}


# Formats in which NumPy adds as a library does. float16 is added in float32 by some.
REPLAYED_FORMATS = ("float32", "float64")

SUMS = (Contracts, Windows, Reduces)

# Products that are listed one by one, to find those of one side on the other.
LISTED = 1 << 22


def _formula_words(op: Operation, run: Run, operands: set[Any]) -> list[str]:
    """What an operation computes, in words; of what only moves or changes nothing, none.
    ``operands``: (shape, digest) of what the formula reads.

    All sums of products have one word, however they are written, a bias is an addition, and a mean
    is divided behind: that a sum is added in another order is no other formula.
    """
    read = operands | {(run.values[n].shape, run.values[n].digest) for n in op.reads}
    if any((run.values[n].shape, run.values[n].digest) in read for n in op.gives):
        return []
    if (format_ := _cast_to(op, run)) is not None:
        return [format_]
    words = []
    for meaning in [step.meaning for step in getattr(op.meaning, "steps", ())] or [op.meaning]:
        if isinstance(meaning, Contracts):
            words += ["sum"] if meaning.bias is None else ["sum", "add"]
        elif isinstance(meaning, Windows) and meaning.kind == "average":
            words += ["sum", "divide"]
        elif isinstance(meaning, Windows) and meaning.kind != "max":
            words += ["sum", "add"] if len(meaning.reads) > 2 else ["sum"]
        elif isinstance(meaning, Reduces) and meaning.word in ("sum", "mean"):
            words += ["sum", "divide"] if meaning.word == "mean" else ["sum"]
        elif isinstance(meaning, Each) or not meaning.exact:
            words.append(meaning.word or op.op)
    return words


def _cast_to(op: Operation, run: Run) -> str | None:
    """The format of an operation that is nothing but a cast; None: it does something else."""
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


def terms_cause(sides: Sides, differing: np.ndarray) -> Cause | None:
    """Two orders of the same terms as the cause; None where the sides are no such sums, or NumPy
    does not give all ``differing`` outputs of both."""
    left, right = sides
    # operands by where the left reads them first; what no one there stands for has no tree
    numbers, values = left.operation.reads, left.run.values
    leaves = {n: place for place, n in reversed([*enumerate(numbers)])}
    partners = {
        pair.right: pair.left for pair in left.pairs if pair.equal and pair.selection.all_by_index
    }
    for n in right.operation.reads:
        weight = right.run.values[n]
        if n not in partners and weight.given < 0:
            partners[n] = next((m for m in numbers if values[m].key == weight.key), -1)
    names = (
        [leaves[n] for n in numbers],
        [leaves.get(partners.get(n, -1)) for n in right.operation.reads],
    )
    first, second = (_addition_tree(*both) for both in zip(sides, names, strict=True))
    if first is None or second is None or first == second or first.leaves != second.leaves:
        return None
    for side, tree, terms in zip(sides, (first, second), names, strict=True):
        sums, operands = list[np.ndarray](), dict(zip(terms, side.reads, strict=True))
        with np.errstate(all="ignore"):
            for node in tree.nodes:
                sums.append(np.add(*(sums[~n] if n < 0 else operands[n] for n in node)))
        if sums[-1].shape != side.value.shape:
            return None
        replayed = side.taken(sums[-1])[differing]
        if unequal_bits(replayed, side.outputs[differing], side.value.dtype).any():
            return None
    count = len(differing)
    why = (
        f"{first.formula} on the left, {second.formula} on the right, of the operands as the left "
        f"reads them; all {count} differing outputs replay in NumPy on both sides"
    )
    return Cause("order", why, count, count)


def _addition_tree(alone: Alone, leaves: Sequence[int | None]) -> Tree | None:
    """How an operation adds what it reads, by the ``leaves`` that its operands are; None where it
    does anything else, or adds one twice."""
    meaning = alone.operation.meaning
    count = len(alone.operation.reads)
    formats = {*alone.dtypes}
    if len(formats) > 1 or not formats <= {*REPLAYED_FORMATS} or None in leaves:
        return None
    steps: Sequence[Step] = [Step(meaning, tuple(range(count)), alone.value.shape)]
    if isinstance(meaning, Steps):
        steps = meaning.steps if not meaning.gives else ()
    nodes, values = list[tuple[Any, Any]](), list[Any](leaves)
    for step in steps:
        word = step.meaning.word
        if step.meaning != Each(word) or not word.startswith("add"):
            return None
        total, *terms = (values[n] for n in step.reads)
        for term in terms:
            nodes.append((total, term))
            total = -len(nodes)
        values.append(total)
    try:
        return Tree.from_nodes(nodes) if nodes else None
    except InputError:
        return None


# Whether rounding can be why

# Products of a side that are enclosed; of outputs beyond that it is unknown.
MOST_ENCLOSED = 1 << 27

# By how many times the smallest normal number results may be off where subnormal steps become zero.
FLUSHED = 16

# How many units in the last place two results of a function may be apart that IEEE 754 does not
# settle: exp, tanh. Seen beyond it were erf of tiny bfloat16 numbers (PyTorch) and log1p of float64
# at -0.414 (JAX).
ULPS = 16


def rounding_verdict(sides: Sequence[Alone], proved: np.ndarray, replayed: int) -> RoundingVerdict:
    """The differing outputs of an operation by what is proved of them.

    ``proved``: bool, an output each: both sides' bits come out again in NumPy. ``replayed``: how
    many have another cause that was replayed, which is not known output by output: that explains
    why the sides differ, and not that both are right, so what is beyond rounding comes first.
    """
    dtype = sides[0].value.dtype
    differing = differing_outputs((sides[0], sides[1]))
    doubtful = differing[~proved[differing]]
    count = len(doubtful)
    verdicts, near = np.full((2, count), UNKNOWN), np.zeros(count, bool)
    enclosures = [enclosed_outputs(side, doubtful) for side in sides] if count else []
    for number, enclosure in enumerate(enclosures):
        if enclosure is not None:
            first = slice(len(enclosure.low))
            values = sides[number].outputs[doubtful[first]]
            verdicts[number, first], flush = enclosure.judged(values)
            near[first] |= flush
    complete = [each for each in enclosures if each is not None and len(each.low) == count]
    if len(complete) == len(sides):
        # two formulas: each side is right about its own, and no rounding makes one of the other
        formulas = disjoint(complete[0], complete[1], max(map(flush_width, sides)))
        verdicts[1, (verdicts == WITHIN).all(axis=0) & formulas] = BEYOND
    left, right = (side.operation.meaning for side in sides)
    if isinstance(left, Each) and not left.exact and left == right and dtype in floats.FORMATS:
        # one function of the elements at a place, which a library may round in its own way
        steps = ulp.distance(sides[0].outputs[doubtful], sides[1].outputs[doubtful], dtype)
        verdicts[:, (np.abs(steps) <= ULPS) & (steps != ulp.NAN)] = WITHIN
    verdict = RoundingVerdict.of(np.zeros(count, bool), verdicts[0], verdicts[1], near)
    explained = min(replayed, count - verdict.beyond)
    # which of the others were replayed is not known
    unknown = max(0, verdict.unknown - explained)
    within = count - verdict.beyond - explained - unknown
    explained += len(differing) - count
    return replace(verdict, explained=explained, within=within, unknown=unknown)


def disjoint(left: Enclosure, right: Enclosure, by: float) -> np.ndarray:
    """Which outputs have enclosures on the two sides that nothing lies in both of, though subnormal
    numbers that become zero take each ``by`` further: bool."""
    with np.errstate(invalid="ignore"):
        return (left.high + by < right.low - by) | (right.high + by < left.low - by)


def flush_width(side: Alone) -> float:
    """How far off what an operation gives may be where subnormal numbers become zero: what reads
    some may give anything that follows from that."""
    tiny = floats.flushed_below(side.value.dtype)
    for array, dtype in zip(side.reads, side.dtypes[:-1], strict=True):
        wide = floats.widen(array, dtype) if dtype in floats.FORMATS else array.astype(np.float64)
        if ((wide != 0) & (np.abs(wide) < tiny)).any():
            return float(np.inf)
    return FLUSHED * tiny


def enclosed_outputs(alone: Alone, outputs: np.ndarray) -> Enclosure | None:
    """The enclosure of outputs, by index: of the first ones, as many as ``MOST_ENCLOSED`` products
    allow. None: no enclosure is known of what the operation computes."""
    run, dtype = alone.run, alone.value.dtype
    if dtype not in floats.FORMATS or alone.output:
        return None
    # seen inside a compiled program, which fuses its steps as it likes
    if alone.again is None and any(isinstance(op.meaning, Passes) for op in run.operations):
        return None
    try:
        summed = alone.summed
        first = outputs[: max(1, MOST_ENCLOSED // max(1, summed.summands))]
        places = summed.places(alone.index[first])
        operands = ContainerOperands(summed, *summed.of(alone.reads), np.zeros(1))  # type: ignore[arg-type]
        sums = of_operands(operands, *places.T)
        # a mean of 2^n numbers is exactly that much smaller than its sum
        if sums is not None and summed.scale > 1:
            sums = sums.after_monotone(partial(np.multiply, 1 / summed.scale))
        if sums is None or not (summed.divides or summed.functions):
            return sums
        if sums.settled.any() or sums.overflow.any():
            return None
        if summed.divides:
            counts = divisors_of(alone.operation.meaning, summed)[places[:, 0]]
            # divided, or multiplied by a rounded reciprocal
            unit = 2.0 ** (2 - floats.format_of(dtype).precision)
            sums = sums.after_monotone(partial(np.multiply, 1 / counts), unit)
        for word, numbers in summed.functions:
            if word == "add":
                term = summed.filled(alone.reads[numbers[0]], numbers[0])[tuple(places.T)]
                sums = sums.after_monotone(partial(np.add, floats.widen(term, dtype)))
            else:
                sums = sums.cut_off(numbers)
    # it is no sum, what is added behind is broadcast, or its steps have other axes
    except (InputError, ValueError, IndexError):
        return None
    if not (np.isfinite(sums.low) & np.isfinite(sums.high)).all():
        return None
    flushed = FLUSHED * (sums.flushed + floats.flushed_below(dtype))
    low, high = floats.nearest(sums.low, dtype), floats.nearest(sums.high, dtype)
    return replace(sums, low=low, high=high, flushed=flushed)


def divisors_of(meaning: Meaning, summed: OperationSum) -> Doubles:
    """By how many elements each sum is divided: float64 (positions,)."""
    first = first_of(meaning)
    if not isinstance(first, Windows):
        return np.full(prod(summed.sizes), float(summed.summands))
    counts = np.ones(tuple(map(len, summed.index)))
    for axis, places in enumerate(summed.index):
        line = (places >= 0).sum(axis=1)
        if first.counts_padding:  # but not what is behind it, where sizes are rounded up
            starts = np.arange(len(places)) * first.stride[axis]
            end = summed.sizes[axis] + sum(first.padding[axis])
            line = np.minimum(first.kernel[axis], end - starts)
        counts *= line.reshape([-1 if n == axis else 1 for n in range(counts.ndim)])
    return np.tile(counts.reshape(-1), summed.batch)
