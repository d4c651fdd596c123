"""Two runs of the same thing, asked in the right order: is each run itself the same twice, does
watching change it, is it the same model on the same inputs, where do the two part, and why.

A run that does not repeat is refused before anything is compared, with the operation that does not
repeat. What is said afterwards is of the watched runs; where those have different bits from the
unwatched ones, a note says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from probe import budget, floats
from probe.agreement.match import RunningMatch
from probe.errors import Misaligned, Nondeterministic, foreign
from probe.layout import BOUNDARY
from probe.progress import Say, silent, span
from probe.recording import alone, related
from probe.recording.contract import Recorder
from probe.recording.difference import (
    NAMES,
    Difference,
    compare_runs,
    fill_reasons,
    plain_outputs,
)
from probe.recording.recording import (
    Operation,
    Run,
    array_digest,
    record_again,
    record_run,
    value_name,
)
from probe.recording.source import find_cause, why_no_source
from probe.recording.store import RunStore
from probe.recording.subject import beside_apart

# Seconds that explaining may take before the next source is left unexplained.
SECONDS = 120.0

CHANGED = "recording changes its outputs"

# What freed memory is filled with before a first and a second run: 3e38 (in float16 NaN), and small
# numbers, 0.01 in float32.
FILLS = (0x7F, 0x3C)

# Sizes of blocks that are filled.
MOST_SIZES = 64


def walk(
    left: Recorder,
    right: Recorder,
    explain: bool = True,
    tell: Say = silent,
    seconds: float = SECONDS,
    match: Callable[[Run, Run], RunningMatch | None] | None = None,
) -> Difference:
    """Watches two runs and compares them.

    ``match``: finds what must agree (:mod:`probe.agreement`) by repeating the runs; None: they
    can't be. ``tell``: is called with what is done now. ``seconds``: after which no further source
    is explained. Errors: Nondeterministic where a side does not repeat.
    """
    recorders = left, right

    def watch(number: int) -> tuple[Run, list[str]]:
        what = f"the {NAMES[number]} side"
        tell(f"running {what}")
        return watched(recorders[number], what)

    sides = [watch(0), watch(1)]
    inner: list[Any] = [getattr(recorder, "inner", recorder) for recorder in recorders]
    gradients = [getattr(recorder, "gradients", None) for recorder in inner]
    if sorted(map(str, gradients)) == ["False", "True"]:  # both run the same kernels, or neither
        number = gradients.index(False)
        inner[number].gradients = True
        sides[number] = watch(number)
    (ours, said), (theirs, more) = sides
    matched = None
    with budget.Ending():
        matched = None if match is None or budget.spent() else match(ours, theirs)
    difference = compare_and_explain(ours, theirs, explain, tell, seconds, [*said, *more], matched)
    difference.not_whole = difference.not_whole or beside_apart(left, right)
    return difference


def watched(recorder: Recorder, what: str, store: RunStore | None = None) -> tuple[Run, list[str]]:
    """Runs it unwatched, watched, and watched once more. Returns the first watched run, and what is
    to be said of it. Raises Nondeterministic. ``store``: where its values are kept.

    Where watching changes the bits it is run unwatched twice more: is that steady by itself?
    """
    run = record_run(recorder, store=store)
    inner: Any = getattr(recorder, "inner", recorder)
    if (plain := getattr(inner, "already", None)) is not None:
        inner.already = None  # it says nothing of runs with gradients, say
    else:
        plain = _plain_digests(recorder, run, FILLS[1])
    _soil(run, FILLS[0])
    again = record_again(recorder, run)
    values = run.values
    some = values_apart(run, again)
    run = replace(run, unsteady=frozenset(some))
    outputs = [values[n].digest for n in run.outputs]
    if some.intersection(run.outputs):
        raise unsteady(run, again, what)
    notes = [f"{what}: {recorder.note}"] if recorder.note else []
    if outputs != plain:
        first, second = (_plain_digests(recorder, run, fill) for fill in FILLS)
        if first != second:
            raise unsteady(run, again if some else record_again(recorder, run), what)
        if outputs != first:
            notes.append(
                f"{what}: {CHANGED} (a fused or compiled part runs differently when recorded), so "
                "the results for single operations hold for the recorded run only"
            )
        plain = first
    return replace(run, plain=tuple(plain)), notes


def _plain_digests(recorder: Recorder, run: Run, fill: int) -> list[str]:
    """Digests of an unwatched run's outputs, after memory of the values' sizes was filled; what is
    not among the run's values is kept with them."""
    _soil(run, fill)
    recorded = {run.values[n].digest for n in run.outputs}
    digests = []
    for array in recorder.plain():
        digests.append(array_digest(array))
        if digests[-1] not in recorded:
            run.store.put(array)
    return digests


def _soil(side: Run, fill: int = FILLS[0]) -> None:
    """Fills memory of the values' sizes: what a run reads without having written it then differs
    from run to run."""
    every = (
        floats.container_of_format(v.dtype).itemsize * int(np.prod(v.shape, dtype=int))
        for v in side.values
        if v.dtype in floats.FORMATS
    )
    sizes = {size for size in every if 0 < size <= alone.MOST_BYTES}
    alone.fill_freed_memory(sorted(sizes)[-MOST_SIZES:], fill)


def values_apart(run: Run, again: Run) -> set[int]:
    """Returns the values that have different bits in two runs of one recorder."""
    both = enumerate(zip(run.values, again.values, strict=True))
    return {n for n, (value, repeated) in both if value.digest != repeated.digest}


def unsteady(run: Run, again: Run, what: str) -> Nondeterministic:
    """Finds the first operation that differs between two runs of one recorder."""
    start = f"{what} gives different bits each time it is run"
    apart = values_apart(run, again)
    # the first operation that outputs come from and that differs though its reads agree
    pending, met = [n for n in run.outputs if n in apart], set[int]()
    differing = list[int]()
    while pending:
        number = pending.pop()
        giver = run.values[number].given
        if number not in met and giver >= 0:
            met.add(number)
            before = [n for n in run.operations[giver].reads if n in apart]
            pending += before
            differing += [] if before else [giver]
    changed = [run.values[n] for n in sorted(apart) if run.values[n].given < 0]
    if not differing and changed:
        name = changed[0].name or f"an input of shape {list(changed[0].shape)}"
        return Nondeterministic(f"{start}: it starts from different values ({name}); {FIX}")
    if not differing:
        return Nondeterministic(f"{start}, but not while it is recorded; {FIX}")
    op = run.operations[min(differing)]
    where = f"{op.op} at {op.path}" if op.path else op.op
    place = f"number {op.number + 1} of {len(run.operations)}"
    text = f"{start}: the first operation that does is {where}, {place}"
    if said := _misaligned(run, again, op):
        return Misaligned(f"{text}, {said}; {ALLOCATE}")
    return Nondeterministic(f"{text}; {FIX}")


def _misaligned(run: Run, again: Run, op: Operation) -> str:
    """Returns where an operation's operands begin in two runs, if that alone decides its bits: run
    alone at the addresses of either run, it gives that run's. Empty if it does not, or can't be."""
    ours, theirs = (
        ([values[n].address for n in op.reads], [values[n].digest for n in op.gives])
        for values in (run.values, again.values)
    )
    if ours[0] == theirs[0]:
        return ""
    try:
        moved = getattr(op.again, "moved", None)
        arrays = run.arrays(op.reads)
        if moved is None:
            return ""
        for addresses, wanted in (ours, theirs):
            operands = [np.array(arrays[n]) for n in op.reads]
            results = foreign(lambda at=addresses, given=operands: moved(at)(given))
            if [array_digest(a) for a in results] != wanted:
                return ""
    except alone.NOT_ALONE:
        return ""
    said = [
        f"{value_name(run, n) or f'operand {at + 1}'} at {first}, then at {second}"
        for at, (n, first, second) in enumerate(zip(op.reads, ours[0], theirs[0], strict=True))
        if first != second
    ]
    head = f"whose operands begin at different addresses, in bytes behind a multiple of {BOUNDARY}"
    return f"{head}: {', '.join(said)}"


ALLOCATE = (
    "copy what is not allocated by the library (NumPy's arrays, mapped files, views) once before "
    "the runs, with .clone() for example, so that it begins at the same address in each"
)


FIX = (
    "switch off dropout and random numbers (evaluation mode, or a seed inside the function), and "
    "report it as a bug of the library if there are none: memory that is not initialised"
)


def compare_and_explain(
    left: Run,
    right: Run,
    explain: bool = True,
    tell: Say = silent,
    seconds: float = SECONDS,
    notes: Sequence[str] = (),
    match: RunningMatch | None = None,
) -> Difference:
    """Compares two runs, live or on disk, and explains the sources. Raises InputError.

    ``match``: what of both must agree, found by running; None: neither can be repeated."""
    match = RunningMatch.of(left, right) if match is None else match
    same_inputs, said, other_weights = related.related(left, right)
    tell("comparing")
    difference = compare_runs(match)
    whole = same_inputs and match.sides.whole
    same = whole and not other_weights and related.shares_weights(left, right)
    difference.notes, difference.same_inputs = [*notes, *said], same
    difference.matched = match.how
    difference.other_weights = other_weights
    difference.plain = plain_outputs(difference)
    if same:  # nothing that one side lacks can be why
        shapes = ((output.shape, output.other_shape) for output in difference.plain)
        for each in (both for both in shapes if both[0] != both[1]):
            difference.not_whole = "an output's shape is {} on the left and {} on the right".format(
                *map(list, each)
            )
    for run in (left, right):
        if run.alone is not None and not run.plain:
            why = "it does not run this model, its operations were computed there one by one"
            difference.not_whole = f"{run.target}: {why}"
    difference.notes += [
        f"{region.name}: the arguments differ ({region.arguments}){ARGUED[region.verdict]}"
        for region in difference.operations
        if region.arguments and region.verdict in ARGUED and difference.argued
    ]
    others = [r for r in difference.operations if related.reads_other_weights(difference, r)]
    if other_weights:
        folded = not others and related.folded(difference)
        one = "; the outputs are close, so these may be one model, folded differently"
        difference.notes.append(
            other_weights + (one if folded else ", so these are different models")
        )
    difference.weights = related.permuted(left, right)
    difference.notes += [str(weight) for weight in difference.weights if not weight.convention]
    if explain:
        tell("looking for differences behind the first")
        with budget.Ending():
            alone.find_own_differences(difference, seconds / 2)
    for region in difference.operations:
        for side, op in difference.sides(region):
            if side.alone is None or op.number not in side.alone:
                continue
            region.own = None  # nothing is said of what did not run on the target that a side is of
            if region.verdict in ("source", "equal", "healed"):
                why = f"it ran in the model's own library, not on {side.target}"
                region.doubted(f"{why}: {side.alone[op.number]}")
    for region in difference.sources:
        # not of what they give besides, which may be memory that nothing reads: a workspace
        apart = [pair for pair in region.gives if not pair.equal]
        if any(p.left in left.unsteady or p.right in right.unsteady for p in apart):
            region.doubted("gives different bits each time it is run: memory not initialised")
    if explain:
        _explain_sources(difference, tell, seconds)
    with budget.Ending():
        _refute(difference, seconds)
    for region in others:
        if region.verdict == "source":
            region.doubted(other_weights)
    for region in difference.orphans:
        region.doubted(NO_SOURCE)
    fill_reasons(difference)
    return difference


ARGUED = {"equal": "; on these inputs the outputs agree", "carried": ", and so do its inputs"}

NO_SOURCE = "its inputs differ, but no operation before it was found to be a source"


def _refute(difference: Difference, seconds: float) -> None:
    """Takes the verdict from what isn't a source when it is run alone: explaining asks this too, so
    that what it has come to is not asked again."""
    every = enumerate(difference.operations)
    known = difference.causes
    sources = [region for n, region in every if region.verdict == "source" and n not in known]
    begun = time.monotonic()
    for done, region in enumerate(sources):
        if budget.spent() or (done and time.monotonic() - begun > seconds):
            return
        if why := why_no_source(difference.left, difference.right, region):
            region.doubted(why)


def _explain_sources(difference: Difference, tell: Callable[[str], None], seconds: float) -> None:
    """Fills in the causes of what differs by itself, sources first, as long as there is time."""
    every = list(enumerate(difference.operations))
    sources = [(n, region) for n, region in every if region.verdict == "source"]
    behind = [(n, region) for n, region in every if region.own]
    begun, done = time.monotonic(), 0
    known: dict[Any, Any] = {}
    for number, region in sources + behind:
        if budget.spent() or (time.monotonic() - begun > seconds and done):
            break
        left = seconds - (time.monotonic() - begun)
        until = f"; the next ones are left out after {span(left)}" if left > 0 else ""
        tell(f"explaining {region.name} ({done + 1} of {len(sources) + len(behind)}{until})")
        cause = None
        with budget.Ending():
            cause = find_cause(difference.left, difference.right, region, known=known)
        if cause is None or budget.spent():  # whoever asked last may have taken no answer for one
            break
        difference.causes[number] = cause
        region.cause = cause.kind
        if cause.refuted and not region.own:
            region.doubted(cause.why)
        done += 1
    if done < len(sources) + len(behind):
        some = f"{done} of the {len(sources) + len(behind)} operations that differ by themselves"
        why = budget.spent() or f"it took {seconds:.0f} s"
        difference.notes.append(f"{some} were explained: {why}")
