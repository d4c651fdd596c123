"""Compares two runs of one model, at different batches, lengths or targets."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from probe import budget
from probe.answers.answer import checked_target
from probe.answers.first_difference import ComparisonQuestion, Walked, of_stored
from probe.answers.record import arrays_for, text_of
from probe.arguments import choice, whole_number
from probe.budget import within
from probe.errors import InputError, TargetError
from probe.progress import VOICE, Say, heard
from probe.recording import judging
from probe.recording.alone import Known
from probe.recording.apart import recording_target, switch_lines
from probe.recording.contract import Recorder
from probe.recording.inputs import first_entries, varied_axes
from probe.recording.recording import Run
from probe.recording.replayed import Replayed, TargetRuns
from probe.recording.subject import OR_SHAPE, is_function, model_name, open_model
from probe.recording.walk import NAMES, compare_and_explain, walk, watched
from probe.target import Target, why_unavailable

Arrays = Mapping[str, np.ndarray]

ADVICE = {
    "batch": "for equal bits run all batches at one size (fill smaller ones up)",
    "length": "for equal bits pad all inputs to one length",
    "target": "for equal bits use one library, version and set of switches",
}


def of_two(two: Mapping[str, Any], padding: tuple[Any, ...]) -> bool:
    """Returns whether two runs are asked for, rather than padding; ``padding``: what only that
    takes."""
    if any(name in two for name in ("at", "against", "against_target", "sizes")):
        return True
    return "vary" in two and "inputs" not in two and all(one is None for one in padding)


def two_runs(
    model: Any,
    target: str | Target | None = None,
    *,
    vary: str | None = None,
    at: int | None = None,
    against: int | None = None,
    inputs: Arrays | str | Path | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    against_target: str | Target | None = None,
    sizes: Iterable[int] = (),
    by: str = "bits",
    trust: bool = False,
    seed: int = 0,
    explain: bool = True,
    time: str | None = None,
    progress: Say | None = None,
) -> Walked:
    """Does as ``probe.network`` with ``at`` or ``against_target``. Errors: as there."""
    with within(time), heard("network", progress) as tell:
        if (at is not None or against is not None) and vary is None:
            vary = "length"
        at, against = (
            None if n is None else whole_number(name, n)
            for name, n in (("at", at), ("against", against))
        )
        if vary is not None and at is None:
            raise InputError("at", "(none)", "the left run's size is required", "give --at A")
        if vary is not None and at == against and against_target is None:
            why = "both sides are the same run"
            raise InputError("against", against, why, "give another value")
        if vary is None and against_target is None:
            why = "there is nothing to compare with"
            todo = "give --vary batch --at 1 --against 8, or --against-target U"
            raise InputError("against", "(none)", why, todo)
        wanted = sorted({whole_number("sizes", one) for one in sizes} - {against})
        if wanted and (vary is None or target is not None or against_target is not None):
            why = "several sizes are compared in this process, along one axis"
            raise InputError("sizes", wanted, why, "give --vary, and leave out the targets")
        most = max(at or 0, against or 0)
        options: dict[str, Any] = {"vary": vary, "at": at, "against": against}
        options["shapes"] = shapes or None
        tell("opening the model")
        if target is not None or against_target is not None:
            other = None if against_target is None else checked_target(against_target)
            if target is not None:
                left = checked_target(target)
            else:
                assert other is not None
                text = text_of(model, "against_target")
                left = Target(other.name)
                left = left if is_function(model) else recording_target(other, text)
            where = left, other or left
            for one in where:  # before either side is run
                if reason := why_unavailable(one):
                    raise TargetError(one.text, "unavailable", reason)
            with ExitStack() as running:
                folder = Path(tempfile.mkdtemp(prefix="probe-"))
                running.callback(shutil.rmtree, folder, ignore_errors=True)
                made = TargetRuns(text_of(model, "target"), folder, running, trust)
                made.open(where[0])  # the model is opened where it runs, and only there
                arrays = arrays_for(made, inputs, shapes or {}, seed, vary, most)
                both = _cut_inputs(arrays, made.inputs, vary, at, against)
                asked = _question(model, vary, at, against, where)
                found = _run_on_targets(made, where, both, asked, explain, tell)
                weakref.finalize(found, running.pop_all().close)
            found.script = _report_lines(model, where, options, inputs, trust, seed)
            return found
        subject = open_model(model, trust)
        arrays = arrays_for(subject, inputs, shapes or {}, seed, vary, most)
        both = _cut_inputs(arrays, subject.inputs, vary, at, against)
        for size in wanted:  # refused before anything is run
            _cut_inputs(arrays, subject.inputs, vary, size, against, "sizes")
        asked = _question(model, vary, at, against, None)
        runs = [subject.recorder(one) for one in both]
        found = Walked(walk(runs[0], runs[1], explain, tell), asked)
        known: Known | None = {} if choice("by", by, ("bits", "order")) == "order" else None
        for size in VOICE.counting(wanted, "sizes"):
            if why := budget.spent():
                found.found.notes.append(f"sizes from {size} on were not compared: {why}")
                break
            tell(f"comparing {vary} {size}")
            given = _cut_inputs(arrays, subject.inputs, vary, size, against)[0]
            found.sizes.append(_of_size(size, subject.recorder(given), found.found.right, known))
        found.script = _report_lines(model, None, options, inputs, trust, seed)
        return found


def _of_size(size: int, recorder: Recorder, right: Run, known: Known | None) -> dict[str, Any]:
    """Returns an entry of ``sizes``: a further size against the right side, without causes.

    ``known``: what was revealed of operations, None where sums are not tested.
    """
    left, _ = watched(recorder, f"size {size}")
    told = compare_and_explain(left, right, explain=False)
    first = told.first
    found: dict[str, Any] = {
        "at": size,
        "verdict": told.verdict,
        "first": None if first is None else first.name,
        "differing": sum(one.differing for one in told.outputs),
    }
    if known is not None:
        asked = judging.by_order(told, known)
        found |= {"by_order": asked.verdict, "in_the_way": asked.name or None}
        found |= {"why": asked.why or None, "certified": asked.certified}
    return found


def _report_lines(
    model: Any,
    where: tuple[Target, Target] | None,
    options: dict[str, Any],
    inputs: Any,
    trust: bool,
    seed: int,
) -> dict[str, Any]:
    """Returns further lines of a report: each side's switches, and the same comparison."""
    found: dict[str, Any] = {} if where is None else {"before": switch_lines(*where)}
    if not isinstance(model, str | Path) or not isinstance(inputs, str | Path | None):
        return found
    options |= {"inputs": None if inputs is None else Path(inputs).name, "trust": trust or None}
    options |= {"seed": seed or None}
    if where is not None:
        options |= {"target": where[0].text, "against_target": where[1].text}
    words = "".join(f", {name}={value!r}" for name, value in options.items() if value is not None)
    call = f"found = probe.network({model_name(model)!r}{words})"
    return {**found, "whole": ["import probe", "", call, "print(found)"]}


def _run_on_targets(
    made: TargetRuns,
    where: tuple[Target, Target],
    both: tuple[Arrays, Arrays],
    asked: ComparisonQuestion,
    explain: bool,
    tell: Say,
) -> Walked:
    """Records both sides, each on its target in a process of its own, or in one if it is the same,
    as both would be in this one; and compares the recordings. On a target that isn't the model's
    own library's, or is of another release or processor, a recording is replayed.

    Processes and recordings stay as long as the answer does: a report uses them again.
    """
    sides, gradients = list[Run](), list[bool | None]()
    for name, one, given in zip(NAMES, where, both, strict=True):
        tell(f"running the {name} side on {one.text}")
        run, had = made.record(one, given, f"the {name} side")
        sides.append(run)
        gradients.append(had)
    if sorted(map(str, gradients)) == ["False", "True"]:  # as of walk.walk
        number = gradients.index(False)
        name, one, given = NAMES[number], where[number], both[number]
        tell(f"running the {name} side on {one.text}")
        sides[number], _ = made.record(one, given, f"the {name} side", gradients=True)
    found = of_stored(sides[0], sides[1], explain, tell, asked)
    replays = [side.said for side in sides if isinstance(side, Replayed)]
    found.found.notes += dict.fromkeys(replays)
    return found


def _cut_inputs(
    arrays: Arrays,
    declared: Any,
    vary: str | None,
    at: int | None,
    against: int | None,
    option: str = "at",
) -> tuple[Arrays, Arrays]:
    """Returns both sides' inputs; ``option`` gave the left size. InputError: nothing can be cut."""
    if vary is None:
        return arrays, arrays
    if not arrays:
        why = f"without inputs there is no {vary} to vary"
        raise InputError("inputs", "(none)", why, f"give --inputs FILE.npz, or {OR_SHAPE}")
    along = varied_axes(vary, arrays, declared)
    whole = arrays if against is None else first_entries(arrays, along, against)
    assert at is not None
    part = first_entries(arrays, along, at, option)
    if all(part[name].shape == whole[name].shape for name in arrays):
        todo = "leave it out" if option == "sizes" else "give --against B"
        raise InputError(option, at, "both sides are the same run", todo)
    return part, whole


def _question(
    model: Any,
    vary: str | None,
    at: int | None,
    against: int | None,
    where: tuple[Target, Target] | None,
) -> ComparisonQuestion:
    sides = []
    for side, size in enumerate((at, against)):
        told = "" if vary is None else f"{vary} {size if size is not None else 'of the inputs'}"
        on = f"{'on ' * (vary is not None)}{where[side].text}" if where else ""
        sides.append(" ".join(filter(None, (told, on))))
    return ComparisonQuestion(
        model_name(model), sides[0], sides[1], ADVICE.get(vary or "target", "")
    )
