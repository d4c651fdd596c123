"""Compares a model that is computed in pieces with the same computed whole: chunks, tiles,
prefixes, and steps behind a state.

What the pieces need is asked first, by running: how much beside what they keep, on which grid they
begin, what is lost or given twice at a seam. What differs beyond that by more than rounding is a
mistake; where it comes from, and why the rest rounds differently, says the comparison of the first
piece that differs with the whole.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probe.case.arguments import axes_text, typed, whole_number
from probe.case.errors import Foreign, InputError, Nondeterministic, ProbeError, refuse
from probe.diff.pieces import (
    Arrays,
    ComparedPiece,
    Context,
    InPieces,
    Piece,
    Schedule,
    first_far,
    first_longer,
    placed_pieces,
)
from probe.diff.repeated import independent, unheard
from probe.diff.running import behind_state, by_running
from probe.diff.walk import walk
from probe.explain.outputs import counts_text, joined, verdict_of
from probe.record.contract import Opened, Recorder
from probe.record.inputs import varied_axes
from probe.record.recording import record_run
from probe.record.subject import (
    Stepped,
    Unseen,
    function_recorder,
    nested_leaves,
    run_unwatched,
    stepped,
)
from probe.sweep.printing import counted, ranges
from probe.targets import budget
from probe.targets.budget import within
from probe.targets.progress import VOICE, Say, heard, silent
from probe.targets.target import Target
from probe.ui.answers.answer import Answer
from probe.ui.answers.first_difference import (
    ComparisonQuestion,
    Walked,
    first_difference,
    of_recordings,
    operation_text,
)
from probe.ui.answers.two_runs import GivenModel, Recorded

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from rich.console import RenderableType

FULL, FUNCTIONS = "full", "functions"


@dataclass(repr=False)
class Scheduled(Answer):
    """A model in pieces against the same whole.

    ``found``: the pieces that were run, in order; ``of``: how many there are. ``contexts``: of each
    axis that is cut, what pieces need. ``walked``: the first piece that differs against the whole,
    operation by operation; None: none differs, or it was not asked. ``safe``: of other sizes of
    pieces, ``at``, ``verdict`` and the first ``operation`` that differs. ``stateful``: each piece
    gets what the one before left.
    ``enters``: the first operation of that piece that gives other numbers, by more than rounding.
    ``gaps``: what of the whole no function in ``pieces`` gives, [start, stop) along the axis that
    is cut; ``uncovered``: elements of the whole there.
    """

    found: list[ComparedPiece]
    of: int
    model: str
    schedule: Schedule
    contexts: list[Context]
    stateful: bool
    walked: Walked | None = None
    enters: str = ""
    safe: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    uncovered: int = 0

    @property
    def verdict(self) -> str:
        """``equal``, ``differs`` or ``unknown``: of all that the pieces keep, by index."""
        if any(piece.lost or piece.doubled or piece.between for piece in self.found):
            return "differs"
        verdict = verdict_of([each for piece in self.found for each in piece.differences])
        left_over = len(self.found) < self.of or self.uncovered
        return "unknown" if verdict == "equal" and left_over else verdict

    @property
    def mistakes(self) -> list[str]:
        """What no rounding is, in words: outputs that read other inputs, or stand elsewhere."""
        lines, need = [], "; ".join(dict.fromkeys(context.words for context in self.contexts))
        need = "" if self.stateful else f": {need}"

        def first(name: str) -> str:
            return next(piece.piece.text for piece in self.found if getattr(piece, name))

        between, off = sum(piece.between for piece in self.found), self._off_grid()
        if between:
            misplaced = counted(between, "piece")
            where = f"first that of {first('between')}{need}"
            lines.append(f"grid: {misplaced} begin between two outputs, {where}")
        elif off:
            lines.append(f"grid: pieces begin at {ranges(off)} of the input{need}")
        for name, verb in (("lost", "missing"), ("doubled", "given twice")):
            if count := sum(getattr(piece, name) for piece in self.found):
                seams = counted(sum(bool(getattr(piece, name)) for piece in self.found), "piece")
                verb = f"{'are' if count > 1 else 'is'} {verb}"
                where = f"first that of {first(name)}"
                if name == "lost" and self.gaps:
                    lines.append(f"seams: {self._uncovered_text()}")
                    continue
                lines.append(f"seams: {counted(count, 'output')} {verb} behind {seams}, {where}")
        if window := sum(piece.window for piece in self.found):
            what = OTHER_INPUTS if self.stateful else "read beyond their piece"
            where = f"first in {first('window')}{need}"
            lines.append(f"window: {counted(window, 'output')} {what}, {where}")
        far = sum(piece.far for piece in self.found)
        if far and not (off or between):
            what = "though they read the same inputs"
            if self.walked is not None and self.walked.window:
                what = f"and {OTHER_INPUTS}"
            elif self.schedule.kind == FUNCTIONS:
                what = "than the same ones of the whole"
            apart = f"{counted(far, 'output')} further apart than rounding"
            lines.append(f"{apart} {what}, first in {first('far')}")
        return lines

    def _off_grid(self) -> list[int]:
        beside = set[int]()
        for number, context in enumerate(self.contexts):
            starts = {piece.piece.inputs[number][0] for piece in self.found}
            beside |= {start for start in starts if context.grid and start % context.grid}
        return sorted(beside)

    def report(self) -> dict[str, Any]:
        first = None if self.walked is None else self.walked.found.first
        contexts: list[Any] = [{"before": c.before, "after": c.after} for c in self.contexts]
        contexts, grids = contexts or [None], [c.grid for c in self.contexts] or [None]
        return {
            "verdict": self.verdict,
            "model": self.model,
            "schedule": self.schedule.text,
            "compared": len(self.found),
            "of": self.of,
            "context": contexts[0] if len(contexts) == 1 else contexts,
            "grid": grids[0] if len(grids) == 1 else grids,
            **{
                name: sum(getattr(piece, name) for piece in self.found)
                for name in ("lost", "doubled", "window", "far")
            },
            "uncovered": self.uncovered,
            "mistakes": self.mistakes,
            "enters": self.enters or None,
            "first": None if first is None else first.name,
            "cause": None if first is None else first.cause or None,
            "walk": None if self.walked is None else self.walked.report(),
            "pieces": [piece.to_json() for piece in self.found],
            "safe": self.safe,
            "notes": self.notes,
        }

    def lines(self) -> tuple[str, str, str]:
        by_output = zip(
            *(piece.differences for piece in self.found if piece.differences), strict=True
        )
        outputs = [joined(list(each)) for each in by_output]
        outputs = [replace(each, samples=(), window=0, window_apart=0) for each in outputs]
        text = counts_text(outputs) if outputs else "nothing could be laid beside the whole"
        count = f"compared: {len(self.found):,} of {counted(self.of, 'piece')}"
        schedule = f"{self.model}, " * bool(self.model) + f"{self.schedule.text} against the whole"
        first = f"{schedule}: {text}; {count}"
        uncovered = self._uncovered_text()
        if self.mistakes:
            said = any(uncovered in line for line in self.mistakes)
            return first, "; ".join([*self.mistakes, *([] if said else [uncovered])]), self._mend()
        if self.walked is not None:
            why = self.walked.ending()[0]
            if self.enters and self.walked.found.first is None:
                why = (
                    f"{self.enters} gives other numbers in the piece, and no operation is a source"
                )
            elif self.walked.classes["not explained"]:
                why += "; this does not explain all that differs"
            why += f"; {uncovered}" if uncovered else ""
            return first, why, self._kept()
        if self.verdict == "equal":
            need = [] if self.stateful else [context.words for context in self.contexts]
            same = "equal: all pieces have the bits of the whole"
            return first, "; ".join([same, *dict.fromkeys(need)]), self._kept()
        if uncovered:
            apart = any(each.differing for piece in self.found for each in piece.differences)
            given = "" if apart else "; those that the pieces give have the bits of the whole"
            return first, f"{self.verdict}: {uncovered}{given}", self._kept()
        return first, f"{self.verdict}: no operation was asked", self._kept()

    def _uncovered_text(self) -> str:
        """How much of the whole no function in ``pieces`` gives, in words; empty if they give
        all of it."""
        if not self.uncovered:
            return ""
        spans = ", ".join(f"{start}:{stop}" for start, stop in self.gaps)
        verb = "is" if self.uncovered == 1 else "are"
        return f"{counted(self.uncovered, 'output')} of the whole {verb} in no piece ({spans})"

    def _kept(self) -> str:
        same = [entry["at"] for entry in self.safe if entry["verdict"] == "equal"]
        other: dict[str, list[int]] = {}
        for entry in self.safe:
            if entry["verdict"] == "differs":
                other.setdefault(entry.get("operation") or "", []).append(entry["at"])
        if self.schedule.kind == FUNCTIONS:
            return 'probe.network(model, vary="schedule", at="chunks:8", sizes=...) looks for sizes'
        if not self.safe:
            option = "--sizes 1..64 (in Python sizes=range(1, 65))"
            return f"{option} looks for sizes of pieces that have the bits of the whole"
        text = f"sizes of pieces with the bits of the whole: {ranges(same) or 'none'}"
        apart = [ranges(sizes) + f" ({name})" * bool(name) for name, sizes in other.items()]
        text += f"; with different bits: {', '.join(apart)}" if other else ""
        hidden = [entry["at"] for entry in self.safe if entry["verdict"] == "unknown"]
        text += f"; not known, as the format hides most changes: {ranges(hidden)}" if hidden else ""
        return f"{text} (on these inputs and {OTHERS} others)"

    def _mend(self) -> str:
        """What pieces need, where something is a mistake."""
        parts = list[str]()
        for number, context in enumerate([] if self.stateful else self.contexts):
            along = f" along axis {number} of the pieces" if len(self.contexts) > 1 else ""
            if context.before is None or context.after is None:
                what = "what stands before" if context.after == 0 else "everything"
                parts.append(f"no overlap is enough{along}: outputs read {what}")
                continue
            grid = context.grid or 1
            overlap = ceil(max(context.before, context.after) / grid) * grid
            if self.schedule.overlap < overlap or self._off_grid():
                size = f", pieces of multiples of {grid}" if grid > 1 else ""
                parts.append(f"give {overlap} positions of overlap{along}{size}")
        if not (parts or self.enters or self.walked) and self.schedule.kind == FUNCTIONS:
            parts.append("give pieces that are the whole together, each part of it once")
        if not parts:
            state = "the state that the one before leaves, " * self.stateful
            parts.append(
                f"each piece needs {state}the positions and sizes that it has in the whole"
            )
        if self.enters:
            parts.append(f"it enters at {self.enters}")
        elif self.walked is not None:
            parts.append(self.walked.ending()[0])
        return "; ".join(parts)

    def shown(self) -> RenderableType:
        first, finding, last = self.lines()
        rows = []
        for piece in self.found[:ROWS]:
            apart = sum(each.differing for each in piece.differences)
            elements = sum(each.elements for each in piece.differences)
            words = f"{apart:,} of {elements:,} differ"
            words += f", {piece.window:,} read other inputs" if piece.window else ""
            words += f", {piece.lost:,} are missing" if piece.lost else ""
            words = "begins between two outputs" if piece.between else words
            rows.append(f"  {piece.piece.text}: {words}")
        more = [f"  ... and {len(self.found) - ROWS} more"] if len(self.found) > ROWS else []
        return "\n".join((first, *rows, *more, finding, *self.notes, last))

    def drawn(self) -> Figure | None:
        """A line a piece: the share of its outputs that differ, and of those that read others."""
        if not self.found:
            return None
        import pandas as pd

        names = [piece.piece.text for piece in self.found]
        counts = pd.DataFrame({"read other inputs": [p.window for p in self.found]}, index=names)
        counts["differ"] = [sum(e.differing for e in p.differences) for p in self.found]
        sizes = [max(1, sum(e.elements for e in p.differences)) for p in self.found]
        axes = (100 * counts).div(sizes, axis=0).plot.bar(figsize=(7, 2.6), xlabel="piece")
        axes.set(ylabel="% of its outputs", title=f"{self.schedule.text} against the whole")
        figure: Figure = axes.figure
        return figure


# Other inputs on which a size has to keep the bits. Formats of 16 bits and whole numbers round most
# changes of an order away: nothing is called equal there: random prompts contradicted it.
OTHERS = 24

OTHER_INPUTS = "read other inputs than those of the whole"

# Pieces that a terminal shows.
ROWS = 12


def schedule_axes(
    vary: str, arrays: Arrays, declared: Sequence[Any], count: int
) -> list[list[dict[str, int]]]:
    """The axes that may be cut, the likeliest first: the length, then others behind the batch; of
    tiles two that are next to each other. ``schedule:NAME:AXIS`` or ``schedule:NAME:AXIS,AXIS``
    names them. InputError."""
    _, _, named = vary.partition(":")
    name, array = max(arrays.items(), key=lambda item: item[1].ndim)
    if named:
        input_name, _, numbers = named.rpartition(":")
        axes = [int(word) for word in numbers.split(",") if word.isdecimal()]
        input_name = input_name or name
        if input_name not in arrays or len(axes) != count:
            todo = f"write schedule:{name}:{'2,3' if count > 1 else '2'}, of {', '.join(arrays)}"
            raise InputError("vary", vary, f"it does not name {axes_text(count)}", todo)
        if max(axes) >= arrays[input_name].ndim:
            why = f"{input_name} has {axes_text(arrays[input_name].ndim)}"
            raise InputError("vary", vary, why, "count them from 0")
        return [[{input_name: axis} for axis in axes]]
    behind = range(1, array.ndim)
    if count == 1:
        likely = [dict(varied_axes("length", arrays, declared))]
        others = [{name: axis} for axis in sorted(behind, key=lambda a: -array.shape[a])]
        return [[each] for each in likely + [each for each in others if each not in likely]]
    pairs = [(a, a + 1) for a in behind[:-1]]
    if not pairs:
        why = f"{name} has {axes_text(array.ndim)}, and tiles need a batch and two more"
        raise InputError("vary", vary, why, "use chunks:C")
    pairs.sort(key=lambda pair: -min(array.shape[axis] for axis in pair))
    return [[{name: axis} for axis in pair] for pair in pairs]


def in_pieces(
    model: GivenModel,
    target: str | Target | None,
    two: Mapping[str, Any],
    *,
    explain: bool = True,
    time: str | None = None,
    progress: Say | None = None,
) -> Scheduled:
    """Does as ``probe.network`` with ``vary="schedule"``; ``two``: what it was given besides.
    Errors: as there."""
    elsewhere = {"against_target": two.get("against_target"), "target": target}
    refuse(elsewhere, "pieces are compared with the whole in this process")
    if (against := two.get("against")) not in (None, FULL):
        raise InputError("against", against, "pieces are compared with the whole", "write full")
    at = two.get("at")
    schedule = Schedule.parse("(none)" if at is None else str(at))
    vary, sizes = str(two["vary"]), [whole_number("sizes", n) for n in two.get("sizes") or ()]
    if sizes and schedule.kind not in ("chunks", "tiles", "prefix", "stream"):
        why = f"a size says nothing of {schedule.text}"
        raise InputError("sizes", ranges(sizes), why, "ask for chunks, tiles, prefix or stream")
    with within(time), heard("pieces", progress) as tell:
        tell("opening the model")
        subject = model.opened()
        arrays = dict(model.arrays(subject.inputs, "length"))
        tell("running the whole, at other lengths too")
        both, steps = _whole(subject, arrays, vary, schedule)
        pieces = schedule.pieces(both.sizes)
        answer = Scheduled([], len(pieces), model.name, schedule, [], both.step is not None)
        with budget.Ending():
            tell("running what pieces read")
            answer.contexts = both.context(pieces)
            computed = list[list[np.ndarray]]()
            for piece, outputs in zip(
                VOICE.counting(pieces, "pieces"), both.computed(pieces), strict=True
            ):
                if budget.spent():
                    break
                computed.append(outputs)
                answer.found.append(both.compared(piece, outputs))
            doubtful = any(
                piece.far or (both.step and piece.differing_inside) for piece in answer.found
            )
            if doubtful and not any(piece.between for piece in answer.found):
                tell("asking which inputs the outputs read, one by one")
                apart = both.differing_reads(pieces[: len(computed)])
                if apart is not None:
                    answer.found = [
                        both.compared(piece, outputs, other)
                        for piece, outputs, other in zip(pieces, computed, apart, strict=False)
                    ]
            answer.safe = _safe(steps, both, answer, sizes, tell)
            if not budget.spent():
                answer.walked = _first_piece(steps, both, answer, pieces, tell, explain)
        if not answer.contexts:
            answer.contexts = [Context(None, None, None) for _ in both.along]
            answer.notes.append(f"what pieces need was not asked: {budget.spent()}")
        answer.notes += model.notes
        return answer


def _whole(
    subject: Opened, arrays: Arrays, vary: str, schedule: Schedule
) -> tuple[InPieces, Stepped]:
    """The whole, cut along the first axes that an output follows. InputError."""
    dtypes = {spec.name: spec.dtype for spec in subject.inputs if spec.dtype}
    refused = None
    for along in schedule_axes(vary, arrays, subject.inputs, schedule.axes):
        steps = stepped(subject, arrays, along, schedule.text if schedule.stateful else "")
        formats = _formats(steps.recorder(arrays))
        step = steps.advance if schedule.stateful else None
        try:
            return InPieces(steps.run, arrays, along, step, dtypes, steps.shown(formats)), steps
        except InputError as error:
            refused = refused or error
    assert refused is not None
    raise refused


def _formats(recorder: Recorder) -> list[str]:
    """Of what it gives; as NumPy has it where a function of another library can't be watched."""
    try:
        run = record_run(recorder)
    except Unseen:
        return [str(array.dtype) for array in run_unwatched(recorder)]
    return [run.values[n].dtype for n in run.outputs]


def _safe(
    steps: Stepped, both: InPieces, answer: Scheduled, sizes: Iterable[int], tell: Say
) -> list[dict[str, Any]]:
    """Which sizes of pieces have the bits of the whole: run, all of their pieces, on these inputs
    and where they are the same on ``OTHERS`` others too, large ones and random ones; and at which
    operation the others begin to differ."""
    left, differ = sorted({*sizes}), dict[int, Arrays]()
    given = [both.arrays, *both.replaced(lambda _, size: np.ones(size, bool))] if left else []
    while left and len(given) <= OTHERS:
        given.append(independent(both.arrays, both.dtypes, len(given)))
    for number, arrays in enumerate(given):
        whole = both.whole_outputs if not number else both.run(arrays)
        for size in left:
            if size in differ or budget.spent():
                continue
            pieces = answer.schedule.of_size(size).pieces(both.sizes)
            with unheard():
                pairs = zip(pieces, both.computed(pieces, arrays), strict=True)
                if not _has_bits(both, whole, pairs):
                    differ[size] = arrays
    known = left if not budget.spent() else sorted(differ)
    same = "equal" if set(both.formats) <= {"float32", "float64"} else "unknown"
    entries = [{"at": n, "verdict": "differs" if n in differ else same} for n in known]
    operations = dict[int, str]()
    for size in sorted(differ):
        if not budget.spent():
            tell(f"running pieces of {size} operation by operation")
            operations[size] = _forbids(steps, both, answer, size, differ[size])
    return [
        entry | {"operation": operations.get(n)} for n, entry in zip(known, entries, strict=True)
    ]


def _forbids(steps: Stepped, both: InPieces, answer: Scheduled, size: int, arrays: Arrays) -> str:
    """The first operation at which pieces of a size differ from the whole, in words."""
    here = copy.copy(both)
    here.arrays, here.whole_outputs = arrays, both.run(arrays)
    schedule = answer.schedule.of_size(size)
    pieces, found = schedule.pieces(both.sizes), list[ComparedPiece]()
    for piece, outputs in zip(pieces, here.computed(pieces), strict=True):
        found.append(here.compared(piece, outputs))
        if found[-1].differing_inside or found[-1].window or found[-1].between:
            break
    other = replace(answer, found=found, schedule=schedule, walked=None, notes=[])
    walked = _first_piece(steps, here, other, pieces, silent, False)
    first = None if walked is None else walked.found.first
    return other.enters or ("" if first is None else operation_text(first))


def _has_bits(
    both: InPieces,
    whole: Sequence[np.ndarray],
    computed: Iterable[tuple[Piece, list[np.ndarray]]],
) -> bool:
    for piece, outputs in computed:
        for number, (array, part) in enumerate(zip(whole, outputs, strict=True)):
            kept = both.kept_index(piece, number)
            if kept is None:
                continue
            places = both.common_index(piece, number, part.shape)
            if places is None or array[places[0]].shape != array[kept].shape:
                return False
            if array[places[0]].tobytes() != part[places[1]].tobytes():
                return False
    return True


def _first_piece(
    steps: Stepped,
    both: InPieces,
    answer: Scheduled,
    pieces: Sequence[Piece],
    tell: Say,
    explain: bool,
) -> Walked | None:
    """Compares the first piece that differs with the whole, operation by operation: of those that
    differ though they read the same, else of those that don't."""
    compared = answer.found
    wrong = (n for n, each in enumerate(compared) if each.window or each.far or each.between)
    rounded = (n for n, each in enumerate(compared) if each.differing_inside)
    number = next(wrong, None)
    number = next(rounded, None) if number is None else number
    if number is None:
        return None
    piece = pieces[number]
    tell(f"comparing the piece {piece.text} with the whole")
    whole, start, stop = both.arrays, *piece.inputs[0]
    question = ComparisonQuestion(answer.model, f"the piece {piece.text}", "the whole", "")

    def part(arrays: Arrays) -> Recorder:
        state = both.states(pieces[: number + 1], arrays)[number]
        return steps.recorder(both.cut(piece.inputs, arrays), state)

    try:
        if both.step is not None and start:
            where = start, stop, both.sizes[0]
            match = behind_state((part, steps.recorder), whole, both.along[0], where, both.dtypes)
        else:
            given = both.cut(piece.inputs), whole
            match = by_running(steps.recorder, given, both.dtypes)
        left, right = part(whole), steps.recorder(whole)
        walked = Walked(walk(left, right, explain, tell, match=match), question)
        if answer.mistakes or walked.found.first is None:
            layout = both.layouts[0][0]
            axis = layout.axis if layout and compared[number].doubled else None
            answer.enters = _enters(walked, piece, both.sizes, both.step is not None, axis)
        if both.step is None:
            walked.inputs = both.cut(piece.inputs), whole
        return walked
    except (Foreign, ProbeError) as error:
        answer.notes.append(f"operations were not compared: {error}")
        return None


def _enters(
    walked: Walked, piece: Piece, sizes: Sequence[int], behind: bool, axis: int | None = None
) -> str:
    """The operation at which a mistake enters, in words; empty: not known. ``axis``: along which
    the piece gives too much."""
    runs = walked.found.left, walked.found.right
    number = first_far(runs, piece, sizes, behind)
    if number is None and axis is not None:
        number = first_longer(runs[0], axis)
    if number is None or number < 0:
        return ""
    regions = (each for each in walked.found.operations if each.left == number)
    op = runs[0].operations[number]
    return f"{op.op} at {op.path}" if op.path else next((each.name for each in regions), op.op)


def of_functions(
    pieces: Sequence[Callable[[], Any]],
    whole: Callable[[], Any],
    *,
    explain: bool = True,
    time: str | None = None,
    progress: Say | None = None,
) -> Scheduled:
    """Does as ``probe.diff`` with ``pieces`` and ``whole``. Errors: as there."""
    with within(time), heard("pieces", progress) as tell:
        tell("running the pieces and the whole, unwatched")
        outputs = [_first_output(call) for call in (whole, *pieces, whole)]
        first, again = [array for array, _ in outputs[:-1]], outputs[-1][0]
        if first[0].tobytes() != again.tobytes():
            raise Nondeterministic("the whole does not repeat its own bits")
        watchable = all(each for _, each in outputs)
        form = _formats(function_recorder(whole))[0] if watchable else str(again.dtype)
        text = counted(len(pieces), "piece")
        schedule = Schedule(text, FUNCTIONS, ())
        placed = placed_pieces(first[1:], first[0], form)
        found = placed.pieces
        answer = Scheduled(found, len(pieces), "", schedule, [], True)
        answer.gaps, answer.uncovered = placed.gaps, placed.uncovered
        number = next((n for n, each in enumerate(found) if each.differing_inside), None)
        if explain and number is not None and not watchable:
            answer.notes.append(NUMPY_PIECES)
        elif explain and number is not None:
            answer.walked = first_difference(pieces[number], whole, progress=tell)
            question = ComparisonQuestion(
                "", f"the piece {found[number].piece.text}", "the whole", ""
            )
            answer.walked.question = question
            size = first[0].shape
            axes = [k for k, n in enumerate(first[1 + number].shape) if n != size[k]]
            if answer.mistakes and axes:
                sizes = [size[axes[0]]]
                answer.enters = _enters(answer.walked, found[number].piece, sizes, True)
        return answer


# Why pieces of NumPy are compared and not explained.
NUMPY_PIECES = (
    "operations were not compared: NumPy's are seen only where its functions take their arrays as "
    "arguments, as in probe.first_difference(f, g, inputs=(x,))"
)


def _first_output(call: Callable[[], Any]) -> tuple[np.ndarray, bool]:
    """The first array that a function returns, in memory of its own: the next piece may write into
    it; and whether its operations can be watched. InputError: it returns no array."""
    try:
        return np.array(run_unwatched(function_recorder(call))[0]), True
    except InputError as error:
        if error.value != "ndarray":
            raise
    return np.array(next(iter(nested_leaves(call())))), False


@typed
def diff(
    left: str | Path | Recorded | None = None,
    right: str | Path | Recorded | None = None,
    *,
    pieces: Sequence[Callable[[], Any]] | None = None,
    whole: Callable[[], Any] | None = None,
    trust: bool = False,
    explain: bool = True,
    time: str | None = None,
    progress: Say | None = None,
) -> Walked | Scheduled:
    """Compares two recordings of ``probe.record`` or ``probe record``, or pieces with the whole.
    Errors: InputError.

    ``pieces``, ``whole``: functions without arguments, such as ``[lambda: model(x[:, :8]), lambda:
    model(x[:, 8:])]`` and ``lambda: model(x)``, each of which returns an array, or several of which
    the first one counts; where each piece lies in the whole is found. A ``Scheduled`` comes back.
    ``left``, ``right``: their folders, or what ``probe.record`` returned. ``explain``: find causes.
    ``time``: stop looking for causes after this long, such as ``5m``.
    ``trust``: explain the sources too, by running the lines of Python that the recordings have for
    their operations, each on its target in a process of its own. Give it for recordings that you
    made, or whose origin you trust. Without it nothing of a recording is run.
    """
    if pieces is not None or whole is not None:
        if left is not None or right is not None or not pieces or whole is None:
            why = "pieces are compared with the whole, and with no recording"
            raise InputError("pieces", len(pieces or ()), why, "give pieces=[...], whole=...")
        return of_functions(pieces, whole, explain=explain, time=time, progress=progress)
    for name, recording in (("left", left), ("right", right)):
        if recording is None:
            todo = "give two recordings, or pieces=[...] and whole=..."
            raise InputError(name, "(none)", "there is nothing to compare", todo)
    assert left is not None and right is not None
    how: dict[str, Any] = {"explain": explain, "time": time, "progress": progress}
    return of_recordings(left, right, trust, **how)
