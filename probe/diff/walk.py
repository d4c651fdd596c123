"""Two runs of the same thing, asked in the right order: does each run repeat, is it the same model
on the same inputs, where do the two part, and why."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from probe.diff import alone
from probe.diff.difference import (
    NAMES,
    Difference,
    Region,
    ValuePair,
    compare_runs,
    fill_reasons,
    plain_outputs,
)
from probe.diff.match import RunningMatch
from probe.diff.micro_batches import fold_micro_batches, trains
from probe.diff.pieces import beyond_rounding
from probe.diff.related import (
    different_constants,
    different_weights,
    folded_weights,
    permuted,
    regions_of_different_weights,
    require_as_many_outputs,
    shares_weights,
    takes_same_inputs,
)
from probe.diff.running import WatchedElsewhere, watch
from probe.diff.source import find_cause, why_no_source
from probe.record.contract import Recorder
from probe.record.recording import Run
from probe.record.subject import beside_apart
from probe.targets import budget
from probe.targets.progress import Say, silent, span

# Seconds that explaining may take before the next source is left unexplained.
SECONDS = 120.0


def walk(
    left: Recorder | WatchedElsewhere,
    right: Recorder | WatchedElsewhere,
    explain: bool = True,
    tell: Say = silent,
    seconds: float = SECONDS,
    match: Callable[[Run, Run], RunningMatch | None] | None = None,
) -> Difference:
    """Watches two runs and compares them: in this process, elsewhere, or as they are on disk.

    ``match``: finds what must agree (:mod:`probe.diff`) by repeating the runs; None: they
    can't be. ``tell``: is called with what is done now. ``seconds``: after which no further source
    is explained. Errors: Nondeterministic where a side does not repeat.
    """
    runs, notes = list[Run](), list[str]()
    for name, recorder in zip(NAMES, (left, right), strict=True):
        tell(f"running the {name} side")
        run, remarks = watch(recorder, f"the {name} side")
        runs.append(run)
        notes += [remark for remark in remarks if remark not in notes]
    notes += provenance_differences(*runs)
    trained = any(map(trains, runs))
    outputs = [[run.values[number].key for number in run.outputs] for run in runs]
    micro_batches = fold_micro_batches(*runs) if trained or outputs[0] != outputs[1] else None
    found = micro_batches if trained else None
    if found is None and match is not None and not budget.spent():
        with budget.Ending():
            found = match(*runs)
    if micro_batches is not None and (found is None or found.outputs_agree):
        found = micro_batches
    found = found or RunningMatch.of(*runs)
    difference = compare_and_explain(found, explain, tell, seconds, notes)
    difference.incomplete = difference.incomplete or beside_apart(left, right)
    # A mistake behind a rounding difference is no source: its inputs differ already. Where all must
    # agree it shows by its size; of a batch or a length, elements that read others may be far too.
    everywhere = all(pair.selection.all_by_index for pair in difference.outputs)
    if found is micro_batches or (everywhere and small_source(difference)):
        difference.enters = enters(difference)
    return difference


@dataclass(frozen=True)
class OnDisk:
    """A recording on disk as a side of ``walk``, which runs nothing."""

    run: Run
    target = ""

    def watched(self, what: str) -> tuple[Run, list[str]]:
        """Returns the run as it was watched, and what was said of it."""
        assert self.run.made is not None
        notes = self.run.made.notes
        if self.run.made.left_out["values"]:
            side = what.replace("side", "recording")
            notes = [*notes, f"{side} left out {self.run.made.left_out_text}"]
        return self.run, notes


# Facts of a recording that decide no bits, or that others say better.
FACTS_BESIDE = ("libraries", "cores", "cpu_vendor", "machine", "probe_version")


def provenance_differences(left: Run, right: Run) -> list[str]:
    """Where two recordings were made differently, in words, as far as it decides bits."""
    if left.made is None or right.made is None:
        return []
    facts = [{**each.made, **each.made["libraries"]} for each in (left.made, right.made)]
    notes = []
    for name in dict.fromkeys((*facts[0], *facts[1])):
        # libraries that a run did not load have none
        both = [each.get(name) for each in facts]
        if both[0] != both[1] and name not in FACTS_BESIDE:
            texts = ("not recorded" if value is None else value for value in both)
            notes.append("{}: {} on the left, {} on the right".format(name, *texts))
    return notes


def compare_and_explain(
    match: RunningMatch,
    explain: bool = True,
    tell: Say = silent,
    seconds: float = SECONDS,
    notes: Sequence[str] = (),
) -> Difference:
    """Compares two runs, live or on disk, and explains the sources. Raises InputError.

    ``match``: what of both must agree."""
    left, right = match.runs
    if (allowed := budget.current_budget()) is not None:  # the time that was asked for
        seconds = max(seconds, allowed.left)
    require_as_many_outputs(left, right)
    weights = different_weights(left, right)
    tell("comparing")
    compared = None
    with budget.Ending():
        compared = compare_runs(match)
    # where the time is over the outputs alone
    difference = compared or compare_runs(RunningMatch(match.runs, match.repetitions))
    difference.notes, difference.matched = [*notes], match.how
    difference.same_inputs = (
        match.repetitions.nothing_lacking
        and not weights
        and takes_same_inputs(left, right)
        and shares_weights(left, right)
    )
    if budget.spent() and not difference.operations:
        difference.notes.append(f"{UNCOMPARED}: {budget.spent()}")
    difference.different_weights = weights
    difference.outputs_by_index = plain_outputs(difference)
    if difference.same_inputs:  # nothing that one side lacks can be why
        for output in difference.outputs_by_index:
            if output.shape != output.other_shape:
                shapes = f"{[*output.shape]} on the left and {[*output.other_shape]} on the right"
                difference.incomplete = f"an output's shape is {shapes}"
    if any(region.call_difference for region in difference.operations):
        difference.notes += [
            f"{region.name}: the arguments differ ({region.arguments}){ARGUED[region.verdict]}"
            for region in difference.operations
            if region.arguments and region.verdict in ARGUED
        ]
    reading_different_weights = regions_of_different_weights(difference)
    if weights:
        folded = not reading_different_weights and folded_weights(difference)
        close = "; the outputs are close, so these may be one model, folded differently"
        difference.notes.append(weights + (close if folded else ", so these are different models"))
    constants = different_constants(difference) or match.repetitions.unlike_cache
    difference.different_constants = constants
    difference.notes += [constants] if constants else []
    difference.weights = permuted(left, right)
    difference.notes += [str(weight) for weight in difference.weights if not weight.convention]
    if explain:
        tell("looking for differences behind the first")
        with budget.Ending():
            alone.find_own_differences(difference, seconds / 2)
    for region in difference.sources:
        # not of what they give besides, which may be memory that nothing reads: a workspace
        apart = [pair for pair in region.gives if not pair.equal]
        if any(p.left in left.unsteady or p.right in right.unsteady for p in apart):
            region.put_in_doubt("gives different bits each time it is run: memory not initialised")
    if explain:
        _explain_sources(difference, tell, seconds)
    with budget.Ending():
        _refute(difference, seconds)
    for region in reading_different_weights:
        if region.verdict == "source":
            region.put_in_doubt(weights)
    for region in difference.orphans:
        region.put_in_doubt(NO_SOURCE)
    fill_reasons(difference)
    return difference


ARGUED = {"equal": "; on these inputs the outputs agree", "carried": ", and so do its inputs"}

UNCOMPARED = "no operations were compared"

NO_SOURCE = "its inputs differ, but no operation before it was found to be a source"


def _refute(difference: Difference, seconds: float) -> None:
    """Takes the verdict from what isn't a source when it is run alone: explaining asks this too, so
    that what it has come to is not asked again."""
    begun, done = time.monotonic(), 0
    for number, region in enumerate(difference.operations):
        if region.verdict != "source" or number in difference.causes:
            continue
        if budget.spent() or (done and time.monotonic() - begun > seconds):
            return
        if why := why_no_source(difference.left, difference.right, region):
            region.put_in_doubt(why)
        done += 1


def _explain_sources(difference: Difference, tell: Callable[[str], None], seconds: float) -> None:
    """Fills in the causes of what differs by itself, sources first, as long as there is time."""
    regions = list(enumerate(difference.operations))
    wanted = [(n, region) for n, region in regions if region.verdict == "source"]
    wanted += [(n, region) for n, region in regions if region.differing_alone]
    begun, done = time.monotonic(), 0
    revealed: dict[Any, Any] = {}
    for number, region in wanted:
        left = seconds - (time.monotonic() - begun)
        if budget.spent() or (left < 0 and done):
            break
        until = f"; the next ones are left out after {span(left)}" if left > 0 else ""
        tell(f"explaining {region.name} ({done + 1} of {len(wanted)}{until})")
        cause = None
        with budget.Ending():
            cause = find_cause(difference.left, difference.right, region, known=revealed)
        if cause is None or budget.spent():  # whoever asked last may have taken no answer for one
            break
        difference.causes[number] = cause
        region.cause = cause.kind
        if cause.refuted and not region.differing_alone:
            region.put_in_doubt(cause.why)
        done += 1
    if done < len(wanted):
        count = f"{done} of the {len(wanted)} operations that differ by themselves"
        why = budget.spent() or f"it took {seconds:.0f} s"
        difference.notes.append(f"{count} were explained: {why}")


def small_source(difference: Difference) -> bool:
    """Whether the first source's results are no further apart than rounding."""
    first = difference.first
    return first is not None and not any(_is_far(difference, pair) for pair in first.gives)


def enters(difference: Difference) -> str:
    """The operation at which outputs begin to be further apart than rounding: what it gives is, and
    what it reads isn't, or one side alone has it. Empty: no output is."""
    runs = difference.left, difference.right
    by_end = [{region.ends[side]: region for region in difference.operations} for side in (0, 1)]
    pairs, met = difference.outputs, list[Region]()
    while far := [pair for pair in pairs if _is_far(difference, pair)]:
        ends = zip(by_end, runs, (far[0].left, far[0].right), strict=True)
        givers = [regions.get(run.values[n].given) for regions, run, n in ends]
        # what one side alone computes has nothing beside it
        of_one_side = (each for each in givers if each and None in each.ends)
        region = next(of_one_side, None) or givers[0]
        if region is None or any(region is each for each in met):
            break
        met.append(region)
        pairs = region.reads
    if not met:
        return ""
    region = met[-1]
    _, op = region.last_operations(*runs)[0]
    names = [
        [(run.operations[n].op, run.operations[n].path) for n in numbers]
        for run, numbers in zip(runs, region.members, strict=True)
    ]
    for side, run in enumerate(runs):  # of several operations, the last that one side alone has
        both = zip(region.members[side], names[side], strict=True)
        alone_there = [n for n, name in both if name not in names[1 - side]]
        if alone_there and None not in region.ends:
            op = run.operations[alone_there[-1]]
            break
    return f"{op.op} at {op.path}" if op.path else op.op


def _is_far(difference: Difference, pair: ValuePair) -> bool:
    left, right = difference.left.array(pair.left), difference.right.array(pair.right)
    if left is None or right is None or left.shape != right.shape or pair.equal:
        return False
    return bool(np.any(beyond_rounding(left, right, difference.left.values[pair.left].dtype)))
