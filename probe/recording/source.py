"""Why the outputs of one operation differ between two runs, though what it reads agrees.

It is a region: an operation of either run, or several that together compute the same. It is run by
itself, as it was recorded. Sums of products are asked for the order and the rounding of the outputs
that differ, which are revealed on both sides and replayed on the recorded operands. Functions are
asked whether places differ. Where the two sides are written differently, each operation of either
is replayed behind the other. What none of these explains has no class: it is said, and nothing is
guessed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from probe import floats
from probe.comparison import Comparison
from probe.errors import ProbeError
from probe.layout import BOUNDARY
from probe.recording import place
from probe.recording.alone import (
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
from probe.recording.difference import NAMES, Region, is_near
from probe.recording.enclosed import rounding_verdict
from probe.recording.pairs import Pair
from probe.recording.recording import (
    LeftOut,
    Operation,
    Run,
    operations_between,
    region_text,
    value_name,
)
from probe.recording.saturation import saturation_cause
from probe.recording.sums import first_of
from probe.semantics import (
    Contracts,
    Convolution,
    Each,
    Meaning,
    Normalises,
    Reduces,
    Step,
    Steps,
    Unknown,
    Windows,
)
from probe.summation.arithmetic import without_flushing
from probe.summation.summation import Summation
from probe.summation.tree import Tree

# Differing outputs that are revealed; of more, that many evenly among them.
ALL = 2048

NO_SOURCE = ": this is not a source"


def other_operands(sides: Sides) -> str:
    """Returns what is wrong with the claim that both sides read the same; empty if nothing is.

    Equal parts put into the right side's operands must leave every bit as it is.
    """
    left, right = sides
    ours, theirs = (dict(zip(side.operation.reads, side.reads, strict=True)) for side in sides)
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


def reads_more(sides: Sides) -> str:
    """Returns which side reads more than was said; empty if none does, as far as is known."""
    for side in sides:
        if side.reads_more():
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
            proved, counted = cause.comparison.proved(), 0
        else:
            proved = np.zeros(len(sides[0].outputs), bool)
            counted = cause.replayed if cause.kind and cause.in_numpy else 0
        cause.rounding = rounding_verdict(sides, proved, counted)
        if region.arguments:  # what was asked differs, whatever the numbers look like
            far = replace(cause.rounding, within=0, explained=0)
            cause.rounding = replace(far, unknown=cause.rounding.total - far.beyond)
    return cause


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


def _region_cause(sides: Sides, region: Region, most: int, known: Known) -> Cause:
    if region.arguments:
        return _argument_cause(sides, region.arguments)
    if cause := stream_cause(sides):
        return cause
    able = all(side.again is not None for side in sides)
    if able:
        why = other_operands(sides)
    else:  # of a recording that isn't trusted nothing was tried
        tried = (side.side.untried for side in sides)
        why = next(filter(None, tried), "the operation can't be run alone")
    if why:
        elsewhere = _exchanged(sides)[2]
        return Cause(why=why + f"; {elsewhere}" * bool(elsewhere), refuted=able)
    try:  # is a side alone not what was recorded, or does it read more than was said?
        kind, why = next(filter(any, (side.unsteady() for side in sides)), ("", ""))
        why = why or reads_more(sides)
    except NOT_ALONE as error:
        kind, why = "", f"alone, the operation raises {type(error.__cause__ or error).__name__}"
    if why:
        kind = "" if kind == "other" else kind
        causes = {kind: sides[0].pair.differing} if kind else {}
        return Cause(kind, why, causes=causes, refuted=why.endswith(NO_SOURCE))
    meaning = sides[0].operation.meaning
    if region.by_value and region.joint:
        # one sum of the same numbers on both sides is asked as such
        sums = all(isinstance(first_of(side.operation.meaning), SUMS) for side in sides)
        same = sums and _reads_same_numbers(sides)
        cause = _sums_cause(sides, most, known) if same else Cause()
        if not cause.explained:
            cause = _formulas_cause(sides, most, known) or Cause(why=CLOSE)
        cause.alone = True
        return cause
    first, apart = first_of(meaning), differing_outputs(sides)
    if cut_off := saturation_cause(sides, apart):
        cause = cut_off
    elif isinstance(first, SUMS):
        cause = _sums_cause(sides, most, known)
    elif isinstance(first, Each):
        cause = terms_cause(sides, apart) or place.function_cause(sides, apart, first.along)
    elif isinstance(meaning, Normalises):
        cause = place.rows_cause(sides, meaning, apart)
    else:
        why = meaning.why if isinstance(meaning, Unknown) else "there is no test for it yet"
        cause = Cause(why=f"not explained yet: {why}")
    if region.joint and not cause.kind:
        cause = _formulas_cause(sides, most, known) or cause
    cause.alone = True
    return _with_addresses(cause, sides)


def _reads_same_numbers(sides: Sides) -> bool:
    """Whether the operands that are not paired, as weights that are laid out in another way, hold
    the same numbers on both sides: a sum of others is no other order."""
    numbers = []
    for side in sides:
        paired = {(pair.left, pair.right)[side.place] for pair in side.pairs}
        operands = zip(side.operation.reads, side.reads, side.dtypes, strict=False)
        some = [
            floats.to_bits(array, dtype).reshape(-1)
            for number, array, dtype in operands
            if number not in paired and dtype in floats.FORMATS
        ]
        numbers.append(np.sort(np.concatenate(some)) if some else np.zeros(0))
    return bool(np.array_equal(numbers[0], numbers[1]))


CLOSE = "not explained yet: different formulas whose results are close"


def _formulas_cause(sides: Sides, most: int, known: Known) -> Cause | None:
    """Returns what sets the steps of both sides apart; None where one of them isn't known."""
    try:
        apart = differing_outputs(sides)
        return terms_cause(sides, apart) or formulas_cause(sides, apart, known, most)
    except NOT_ALONE:
        return None


def _with_addresses(cause: Cause, sides: Sides) -> Cause:
    """Names the addresses of operands as the cause where each side, run alone on its own operands
    at the other's addresses, gives the other's bits. Orders that were revealed stay the proof of
    what each side adds; what else differs between the sides then changes nothing."""
    ours, theirs, text = _exchanged(sides)
    if not text:
        return cause
    left, right = sides
    dtype = left.value.dtype
    moved = left.moved(ours), right.moved(theirs)
    if moved[0] is None or moved[1] is None:
        cause.why += f"; {text}"
        return cause
    differ = unequal_bits(left.outputs, right.outputs, dtype)
    gone = differ & ~unequal_bits(moved[0], right.outputs, dtype)
    gone &= ~unequal_bits(moved[1], left.outputs, dtype)
    count, every = int(gone.sum()), int(differ.sum())
    if count < every:  # none: where they begin changes nothing, and is not mentioned
        cause.why += f"; {text}, which explains {count} of {every}" * bool(count)
        return cause
    if not cause.kind:  # nothing replays what each side does, but exchanged addresses exchange bits
        cause.why, cause.examined, cause.replayed = "", every, every
        cause.in_numpy = False
    exchanged = f"{text}; with the addresses exchanged, each side gives the other's bits"
    cause.kind, cause.causes = "alignment", {"alignment": every}
    cause.why = f"{exchanged}; {cause.why}" if cause.why else exchanged
    return cause


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
            if kind in ("nondeterministic", "uninitialised"):
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
    if (elsewhere or calls[0] != calls[1]) and is_near(sides[0].pair, dtype):
        why = (
            f"its arguments differ ({arguments}), and so does the size of its operands, "
            "how they lie in memory or a switch: it is unknown which of these changes the bits"
        )
        return Cause(why=why, alone=alone)
    # the same operands on the same target, so nothing but the arguments can decide
    both = [side.operation.meaning for side in sides]
    windows = all(isinstance(meaning, Windows | Convolution) for meaning in both)
    kind = "window+argument" if windows and both[0] != both[1] else "argument"
    came = count if alone else 0
    return Cause(kind, arguments, came, came, {kind: count}, alone, in_numpy=False)


def why_no_source(left: Run, right: Run, region: Region) -> str:
    """Returns why an operation is no source, though its inputs were taken to agree; empty if
    nothing was found against it. It is run alone once a side; what can't be is not refuted."""
    try:
        sides = isolated_sides(left, right, region)
        if sides is None or any(side.again is None for side in sides):
            return ""
        return other_operands(sides) or reads_more(sides)
    except NOT_ALONE:
        return ""


def _sums_cause(sides: Sides, most: int, known: Known) -> Cause:
    """Returns how both sides add, revealed and replayed."""
    cause = Cause()
    try:
        adds = [Adds(side) for side in sides]
        comparison = as_comparison(adds)
        if not len(comparison.differing):
            return cause
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
    elif comparison.sampled:
        cause.why = f"not explained yet: {evidence}; {comparison.sampled}"
    elif not explained and (kind := _of_permuted_products(adds, examined, comparison)):
        cause.kind, cause.causes = kind, {kind: cause.replayed}
        cause.why = "the same products are added, of operands in another order on the two sides"
    elif not explained:
        cause.why = "no revealed summation gives the bits of both sides"
        cause.why += f": {evidence}" if evidence else ""
    else:
        cause.kind, summands = explained[0], comparison.left.case.summands
        of = f"{cause.replayed} of {cause.examined} examined outputs replay on both sides"
        cause.why = f"{SAID.get(cause.kind, cause.kind)} in sums of {summands}; {of}"
    return cause


def _of_permuted_products(
    adds: Sequence[Adds], examined: np.ndarray, comparison: Comparison
) -> str:
    """Returns what sets sums apart that replay on both sides, with their products in another order,
    as of permuted features; empty where they are no such sums."""
    if not comparison.proved(examined).all():
        return ""
    listed = evenly(examined, max(1, LISTED // max(adds[0].sum.summands, 1)))
    every = np.arange(len(comparison.pairs))
    told = [_Told(np.full(len(every), GOOD), [(side, every)], True) for side in adds]
    return _of_one_sum(told, listed)


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

# Names of what is added, in the order of the left side's operands; no longer sums are named.
LETTERS = "abcdefgh"

SUMS = (Contracts, Windows, Convolution, Reduces)

# Products that are listed one by one, to find those of one side on the other.
LISTED = 1 << 22

# An element that did not come out again, was not asked about, came out: the least of all that
# something is computed from is its own.
BAD, OPEN, GOOD = 0, 1, 2


@dataclass
class _Told:
    """What a side's steps came to, for each output that was asked about. ``states``: of these;
    ``sums``: those that are steps, with where each output comes from in what such a sum gives: flat
    indices, -1 for what isn't known. ``in_numpy``: of all steps, as of ``Cause``."""

    states: np.ndarray
    sums: list[tuple[Adds, np.ndarray]]
    in_numpy: bool


def formulas_cause(sides: Sides, apart: np.ndarray, known: Known, most: int) -> Cause | None:
    """Returns what sets two formulas apart: they are two, or one whose sums are written and added
    in different ways. None where a step of either is not known.

    ``apart``: which of the outputs that must agree differ, of which ``most`` are asked about.
    """
    inside = list[list[Operation]]()
    for side in sides:
        end = side.operation.gives[side.output]
        numbers, _ = operations_between(side.side, [end], side.operation.reads)
        inside.append([side.side.operations[n] for n in numbers])
    for op in (*inside[0], *inside[1]):  # is it of a kind that may be known by itself?
        if not (
            op.meaning.exact or isinstance(first_of(op.meaning), SUMS) or _at_places(op.meaning)
        ):
            return None
    pairs = list(zip(sides, inside, strict=True))
    words = [[word for op in some for word in _formula_words(op, s.side)] for s, some in pairs]
    # both sides are asked about the same outputs: a step that is known on one side alone proves
    # nothing
    chosen, replays = evenly(apart, most), []
    for side, some in pairs:
        steps = _replay_steps(side, some, side.index[chosen], known, most)
        if steps is None:
            return None
        replays.append(steps)
    least = np.minimum(replays[0].states, replays[1].states)
    examined = (replays[0].states != OPEN) & (replays[1].states != OPEN)
    count, came = int(examined.sum()), int((least == GOOD).sum())
    if not count or came < count:
        return None
    cost = sum(adds.sum.summands for steps in replays for adds, _ in steps.sums)
    listed = max(1, LISTED // max(cost, 1))
    said = [region_text(side.side, [n.number for n in some]) for side, some in pairs]
    against = f"{said[0]} on the left, {said[1]} on the right"
    additions = {*words[0], *words[1]} <= {"sum", "add"} and _same_of_integers(sides)
    if words[0] != words[1] and not additions:
        kind, what = "algorithm", f"two formulas: {against}"
    elif kind := _of_one_sum(replays, which := evenly(np.flatnonzero(examined), listed)):
        count = came = len(which)
        what = f"the same products are added in different ways: {against}"
    elif words[0] != words[1]:
        kind, what = "order", f"the same numbers are added in another order: {against}"
    else:
        return None
    all_of = f"replayed step by step, {came} of {count} examined outputs come out on both sides"
    in_numpy = all(steps.in_numpy for steps in replays)
    return Cause(kind, f"{what}; {all_of}", count, came, in_numpy=in_numpy)


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


def _of_one_sum(replays: Sequence[_Told], which: np.ndarray) -> str:
    """Returns what sets two sums of the same products apart, where each of these outputs is one on
    both sides; empty where it isn't, or it can't be seen which product is which."""
    if any(len(replay.sums) != 1 or (replay.sums[0][1][which] < 0).any() for replay in replays):
        return ""
    kinds = set[str]()
    for n in which.tolist():
        left, right = (_by_product(*replay.sums[0], n) for replay in replays)
        if left is None or right is None or left[1].keys() != right[1].keys():
            return ""
        names = {leaf: left[1][key] for key, leaf in right[1].items()}
        ours, theirs = (added.restricted(leaves.values()) for added, leaves in (left, right))
        # the right side's, its leaves with the left's numbers
        nodes = [[names.get(child, child) for child in node] for node in theirs.tree.nodes]
        changed = {
            name: frozenset(names.get(n, n) for n in value)
            for name, fact, value in theirs.rounding.facts()
            if isinstance(value, frozenset) and fact.leaves
        }
        rounding = replace(theirs.rounding, **changed)  # type: ignore[arg-type]
        leaf = names.get(theirs.tree.leaves[0], 0)
        apart = ours.causes(Summation(Tree.from_nodes(nodes, leaf=leaf), rounding))
        if "flush" in apart and all(_flushes_nothing(*replay.sums[0], n) for replay in replays):
            apart = tuple(name for name in apart if name != "flush")
        kinds.update(apart or ("order",))  # alone a bias is added elsewhere
    return "+".join(sorted(kinds))


def _flushes_nothing(adds: Adds, origin: np.ndarray, n: int) -> bool:
    """Whether an output's bits come out too if no subnormal number becomes zero."""
    position, filter_ = adds.places[origin[n]]
    summation = adds.run.summation((int(position), int(filter_)))
    if summation is None:
        return False
    plain, at = without_flushing(summation), (np.array([position]), np.array([filter_]))
    return bool(adds.run.operands.agrees(plain, *at).all())


def _by_product(
    adds: Adds, origin: np.ndarray, n: int
) -> tuple[Summation, dict[tuple[float, ...], int]] | None:
    """Returns how an output is added, and its leaves by what they multiply, but for products of
    zero; None where two have the same factors, or nothing is known."""
    position, filter_ = adds.places[origin[n]].tolist()
    summation, operands, dtype = (
        adds.run.summation((position, filter_)),
        adds.run.operands,
        adds.sum.dtype,
    )
    group = filter_ // (adds.sum.filters // adds.sum.groups)
    x, w = operands.columns[group][:, position], operands.weights[:, filter_]
    pairs = zip(floats.widen(x, dtype).tolist(), floats.widen(w, dtype).tolist(), strict=True)
    leaves = [(tuple(sorted(pair)), leaf) for leaf, pair in enumerate(pairs) if all(pair)]
    numbers = dict(leaves)
    known = summation is not None and {*numbers.values()} <= {*summation.tree.leaves}
    return (summation, numbers) if known and len(numbers) == len(leaves) else None  # type: ignore[return-value]


def _formula_words(op: Operation, run: Run) -> list[str]:
    """Returns what an operation computes, in words; of what only moves or changes nothing, none.

    All sums of products have one word, however they are written, a bias is an addition, and a mean
    is divided behind: that a sum is added in another order is no other formula.
    """
    shown = [(run.values[n].shape, run.values[n].digest) for n in op.reads]
    if any((run.values[n].shape, run.values[n].digest) in shown for n in op.gives):
        return []
    words = []
    for each in [step.meaning for step in getattr(op.meaning, "steps", ())] or [op.meaning]:
        first = getattr(each, "windows", each)
        if isinstance(first, Contracts | Windows) and getattr(first, "kind", "") != "max":
            pool = isinstance(first, Windows) and first.pool
            biased = getattr(first, "bias", None) is not None or (not pool and len(first.reads) > 2)
            divided = getattr(first, "kind", "") == "average"
            words += ["sum", *["add"] * biased, *["divide"] * divided]
        elif isinstance(each, Reduces) and each.word in ("sum", "mean"):
            words += ["sum", *["divide"] * (each.word == "mean")]
        elif isinstance(each, Each) or not each.exact:
            words.append(each.word or op.op)
    return words


def _replay_steps(
    alone: Alone, inside: Sequence[Operation], wanted: np.ndarray, known: Known, most: int
) -> _Told | None:
    """Returns what a side's outputs ``wanted`` (flat indices) come to after all of its steps; None
    where a step is not known."""
    values, side, last = alone.side.values, alone.side, alone.operation.gives[alone.output]
    used = {last, *(n for each in inside for n in each.reads)}
    ends = [[n for n in each.gives if n in used] for each in inside]
    if any(len(some) != 1 for some in ends):
        return None
    outs = [some[0] for some in ends]
    needs = {out: np.zeros(values[out].shape, bool) for out in outs}
    needs[last].reshape(-1)[wanted] = True
    for each, out in zip(reversed(inside), reversed(outs), strict=True):
        for n, number in enumerate(each.reads):
            if number not in needs:
                continue
            shape, need = values[number].shape, needs[out]
            if lifted := _lifted(shape, need.ndim, _at_places(each.meaning), n):
                pairs = enumerate(zip(lifted, need.shape, strict=True))
                axes = tuple(k for k, (a, b) in pairs if a != b)
                needs[number] |= need.any(axis=axes, keepdims=True).reshape(shape)
            else:
                needs[number] |= need.any()
    states: dict[int, np.ndarray] = {}
    sums: list[tuple[Adds, dict[int, np.ndarray]]] = []
    for each, out in zip(inside, outs, strict=True):
        pair = Pair.of_all(out, out, needs[out].size)
        step = Alone.of(side, each.number, each.gives.index(out), pair, alone.place)
        if step.again is None or not equal_bits(step.rerun(), step.outputs, step.value.dtype):
            return None
        try:
            adds = Adds(step) if isinstance(first_of(each.meaning), SUMS) else None
        except (ProbeError, LookupError, ValueError):
            return None
        own = _of_step(step, adds, needs[out], known, most)
        if own is None:
            return None
        for n, number in enumerate(each.reads):
            if number in states:
                moved = _follow_elements(GOOD - states[number], step, n)  # what is padded is good
                least = states[number].min(initial=GOOD)
                own = np.minimum(own, least if moved is None else GOOD - moved)
            for _, origins in sums:
                if number in origins:
                    moved = _follow_elements(origins[number] + 1, step, n)
                    origins[out] = np.full(own.shape, -1) if moved is None else moved - 1
        states[out] = own
        if adds is not None:
            sums.append((adds, {out: np.arange(own.size).reshape(own.shape)}))
    places = [(adds, at[last].reshape(-1)[wanted]) for adds, at in sums if last in at]
    in_numpy = all(op.meaning.exact or isinstance(first_of(op.meaning), SUMS) for op in inside)
    return _Told(states[last].reshape(-1)[wanted], places, in_numpy)


def _at_places(meaning: Meaning) -> Each | None:
    """Returns the first function of an operation that computes nothing but functions of the
    elements at each place; None of all else."""
    steps = [step.meaning for step in getattr(meaning, "steps", ())] or [meaning]
    return steps[0] if all(isinstance(inner, Each) for inner in steps) else None  # type: ignore[return-value]


def _lifted(shape: tuple[int, ...], rank: int, each: Each | None, read: int) -> tuple[int, ...]:
    """Returns the shape of an operand of a function, with as many axes as its result; empty where
    its elements are not at the places of the results."""
    if each is None or len(shape) > rank:
        return ()
    if each.along is not None and len(shape) == 1 and read:
        k = each.along % rank
        return (1,) * k + shape + (1,) * (rank - k - 1)
    return (1,) * (rank - len(shape)) + shape


def _follow_elements(array: np.ndarray, step: Alone, read: int) -> np.ndarray | None:
    """Returns whole numbers that are at the elements of an operand, at those of the result; None
    where results are computed from several elements."""
    shape, meaning = step.value.shape, step.operation.meaning
    if lifted := _lifted(array.shape, len(shape), _at_places(meaning), read):
        return np.broadcast_to(array.reshape(lifted), shape)
    dtype = step.reads[read].dtype
    exact = dtype.kind == "f" and array.size < 1 << np.finfo(dtype).nmant
    if not exact or not meaning.exact or len(step.reads) > 1:
        return None
    return step.rerun_output([array.astype(dtype)]).astype(np.int64).reshape(shape)


def _of_step(
    step: Alone, adds: Adds | None, need: np.ndarray, known: Known, most: int
) -> np.ndarray | None:
    """Returns the states of what a step gives, given what it reads; None where it is not known.
    ``adds``: of a sum."""
    meaning, flat = step.operation.meaning, np.flatnonzero(need)
    state = np.full(need.size, OPEN, np.int8)
    if adds is not None:
        examined = reveal_sums([adds], flat, known, most)
        state[examined] = np.where(adds.came(examined), GOOD, BAD)
    elif (settled := _in_numpy(step, meaning)) is not None:
        apart = unequal_bits(settled.reshape(-1), step.outputs, step.value.dtype)
        state = np.where(apart, BAD, GOOD).astype(np.int8)
    elif meaning.exact:
        state[:] = GOOD  # it gave its recorded bits, and these follow from what it reads
    else:
        each = _at_places(meaning)
        assert each is not None
        chosen = evenly(flat, place.affordable(need.size))
        came = place.repeated_by_number(place.PlacedFunction.of(step), chosen, each.along)
        if came is None:
            return None
        state[chosen] = np.where(came, GOOD, BAD)
    return state.reshape(need.shape)


def _in_numpy(step: Alone, meaning: Meaning) -> np.ndarray | None:
    """Returns what NumPy makes of a function that IEEE 754 settles; None where it has none: the
    table of functions has NumPy's names."""
    plain = isinstance(meaning, Each) and not meaning.numbers and meaning.along is None
    function = getattr(np, meaning.word, None)
    if not plain or not meaning.exact or not isinstance(function, np.ufunc):
        return None
    assert isinstance(meaning, Each)
    used = step.reads if meaning.reads is None else [step.reads[n] for n in meaning.reads]
    for at, value, dtype in meaning.beside:
        used = [*used[:at], np.array(value, dtype), *used[at:]]
    dtype = step.value.dtype
    if dtype not in STEPPED or set(step.dtypes) != {dtype} or len(used) != function.nin:
        return None
    with np.errstate(all="ignore"):
        result = np.asarray(function(*used))
    return result if result.shape == step.value.shape else None


def terms_cause(sides: Sides, apart: np.ndarray) -> Cause | None:
    """Returns why two sums of the same terms differ: their order; None where they are no such sums,
    or NumPy does not give all differing outputs ``apart`` of both sides."""
    left, right = sides
    ours, theirs = _addition_tree(left), _addition_tree(right)
    if ours is None or theirs is None:
        return None
    # both sides' operands by name; of the right side None where it is no one's
    numbers, values = left.operation.reads, left.side.values
    letters = dict(zip(dict.fromkeys(numbers), LETTERS, strict=False))
    same = {pair.right: pair.left for pair in left.pairs if pair.equal and pair.selection.whole}
    for n in right.operation.reads:
        weight = right.side.values[n]
        if n not in same and weight.given < 0:
            same[n] = next((m for m in numbers if values[m].key == weight.key), -1)
    names = [letters.get(n) for n in numbers]
    others = [letters.get(same.get(n, -1)) for n in right.operation.reads]
    said = _terms_text(ours, names), _terms_text(theirs, others)
    terms = [sorted(re.findall(r"\w+", text)) for text in said]
    if terms[0] != terms[1] or str(None) in terms[0] or said[0] == said[1]:
        return None
    for side, tree in ((left, ours), (right, theirs)):
        total = _add_terms(tree, side.reads)
        if total.shape != side.value.shape:
            return None
        if unequal_bits(side.taken(total)[apart], side.outputs[apart], side.value.dtype).any():
            return None
    why = (
        f"{said[0]} on the left, {said[1]} on the right, of the operands as the left reads them; "
        f"all {len(apart)} differing outputs replay in NumPy on both sides"
    )
    return Cause("order", why, len(apart), len(apart))


# An operand's number, or two of these that are added.
Terms = int | tuple["Terms", "Terms"]


def _addition_tree(alone: Alone) -> Terms | None:
    """Returns how an operation adds what it reads; None where it does anything else."""
    meaning = alone.operation.meaning
    count = len(alone.operation.reads)
    if set(alone.dtypes) - {alone.dtypes[-1]} or alone.dtypes[-1] not in STEPPED:
        return None
    steps: Sequence[Step] = [Step(meaning, tuple(range(count)), alone.value.shape)]
    if isinstance(meaning, Steps):
        steps = meaning.steps if not meaning.gives else ()
    values: list[Terms] = list(range(count))
    for step in steps:
        what = step.meaning
        if what != Each(what.word) or not what.word.startswith("add"):
            return None
        total, *rest = (values[n] for n in step.reads)
        for each in rest:
            total = total, each
        values.append(total)
    return values[-1] if steps else None


def _terms_text(tree: Terms, names: Sequence[str | None]) -> str:
    """Returns the sum in words; the two sides of one addition have no order."""
    if isinstance(tree, int):
        return str(names[tree])
    both = sorted((_terms_text(part, names) for part in tree), key=lambda part: (-len(part), part))
    return " + ".join(f"({one})" if len(one) > 1 else one for one in both)


def _add_terms(tree: Terms, reads: Sequence[np.ndarray]) -> np.ndarray:
    if isinstance(tree, int):
        return reads[tree]
    with np.errstate(all="ignore"):
        return np.asarray(_add_terms(tree[0], reads) + _add_terms(tree[1], reads))
