"""Two runs of the same thing, asked in the right order: does each run repeat, is it the same model
on the same inputs, where do the two part, and why."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from probe.diff import alone
from probe.diff.difference import (
    NAMES,
    Difference,
    compare_runs,
    fill_reasons,
    plain_outputs,
)
from probe.diff.folded import enters, folded, small_source
from probe.diff.match import RunningMatch
from probe.diff.related import (
    folded_weights,
    other_numbers,
    permuted,
    reads_other_weights,
    related,
    shares_weights,
)
from probe.diff.source import find_cause, why_no_source
from probe.diff.watched import Elsewhere, watched
from probe.record.contract import Recorder
from probe.record.recording import Run
from probe.record.subject import beside_apart
from probe.targets import budget
from probe.targets.progress import Say, silent, span

# Seconds that explaining may take before the next source is left unexplained.
SECONDS = 120.0


def walk(
    left: Recorder | Elsewhere,
    right: Recorder | Elsewhere,
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
    recorders = left, right

    def watch(number: int) -> tuple[Run, list[str]]:
        what = f"the {NAMES[number]} side"
        tell(f"running {what}")
        return watched(recorders[number], what)

    (ours, said), (theirs, more) = watch(0), watch(1)
    notes = [*said, *(note for note in more if note not in said), *made_apart(ours, theirs)]
    matched = batches = folded(ours, theirs)
    if matched is not None:
        ours, theirs = matched.runs
    with budget.Ending():
        if matched is None and match is not None and not budget.spent():
            matched = match(ours, theirs)
    difference = compare_and_explain(ours, theirs, explain, tell, seconds, notes, matched)
    difference.not_whole = difference.not_whole or beside_apart(left, right)
    # A mistake behind a rounding difference is no source: its inputs differ already. Where all must
    # agree it shows by its size; of a batch or a length, elements that read others may be far too.
    everywhere = all(pair.selection.whole for pair in difference.outputs)
    if batches is not None or (everywhere and small_source(difference)):
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


def made_apart(left: Run, right: Run) -> list[str]:
    """Returns where two recordings were made differently, in words, as far as it decides bits."""
    if left.made is None or right.made is None:
        return []
    mine, other = ({**run.made.made, **run.made.made["libraries"]} for run in (left, right))  # type: ignore[union-attr]
    notes = []
    for name in dict.fromkeys((*mine, *other)):
        if mine.get(name) != other.get(name) and name not in FACTS_BESIDE:
            # libraries that a run did not load have none
            both = ("not recorded" if v is None else v for v in (mine.get(name), other.get(name)))
            notes.append("{}: {} on the left, {} on the right".format(name, *both))
    return notes


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
    if (allowed := budget.current_budget()) is not None:  # the time that was asked for
        seconds = max(seconds, allowed.left)
    same_inputs, other_weights = related(left, right)
    tell("comparing")
    compared = None
    with budget.Ending():
        compared = compare_runs(match)
    # where the time is over the outputs alone
    difference = compared or compare_runs(RunningMatch(match.runs, match.sides))
    whole = same_inputs and match.sides.whole
    same = whole and not other_weights and shares_weights(left, right)
    difference.notes, difference.same_inputs = [*notes], same
    if budget.spent() and not difference.operations:
        difference.notes.append(f"{UNCOMPARED}: {budget.spent()}")
    difference.matched = match.how
    difference.other_weights = other_weights
    difference.plain = plain_outputs(difference)
    if same:  # nothing that one side lacks can be why
        shapes = ((output.shape, output.other_shape) for output in difference.plain)
        for each in (both for both in shapes if both[0] != both[1]):
            difference.not_whole = "an output's shape is {} on the left and {} on the right".format(
                *map(list, each)
            )
    argued = any(region.argued for region in difference.operations)
    difference.notes += [
        f"{region.name}: the arguments differ ({region.arguments}){ARGUED[region.verdict]}"
        for region in difference.operations
        if region.arguments and region.verdict in ARGUED and argued
    ]
    others = [r for r in difference.operations if reads_other_weights(difference, r)]
    if other_weights:
        folded = not others and folded_weights(difference)
        one = "; the outputs are close, so these may be one model, folded differently"
        difference.notes.append(
            other_weights + (one if folded else ", so these are different models")
        )
    difference.other_numbers = other_numbers(difference) or match.sides.unlike
    difference.notes += [difference.other_numbers] * bool(difference.other_numbers)
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

UNCOMPARED = "no operations were compared"

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
