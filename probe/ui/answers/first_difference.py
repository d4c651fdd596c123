"""Finds the first operation of two runs whose bits differ although its inputs agree."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib import import_module
from math import isfinite, prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probe.case import floats
from probe.case.arguments import require_unwritten, typed
from probe.case.errors import InputError, ProbeError
from probe.diff import alone
from probe.diff.apart import RunnableRecording, switch_lines
from probe.diff.difference import (
    NOT_SOUGHT,
    NOT_YET,
    Difference,
    Region,
    ValuePair,
    grouped_reasons,
    why_outputs_unknown,
)
from probe.diff.folder import read_recording
from probe.diff.functions import Captured, FunctionSide, by_reading, rows_read
from probe.diff.match import LACKING
from probe.diff.pairing import Selection
from probe.diff.source import FIRST_DIGITS, FORMULAS
from probe.diff.walk import UNCOMPARED, OnDisk, walk
from probe.explain.outputs import (
    NAMED,
    Decision,
    OutputDifference,
    counts_text,
    decisions,
    with_window,
)
from probe.explain.verdict import three_classes
from probe.order.semantics import Unknown
from probe.record.contract import Recorder
from probe.record.inputs import listed_inputs
from probe.record.recording import Provenance, Run
from probe.record.subject import Unseen, function_recorder, nested_leaves, require_arguments
from probe.sweep.printing import counted, differ, ranges
from probe.targets.budget import within
from probe.targets.progress import Say, heard, silent
from probe.targets.target import Target
from probe.ui.answers import views
from probe.ui.answers.answer import Answer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from probe.ui.answers.two_runs import Recorded


def samples_text(outputs: Sequence[OutputDifference], samples: tuple[int, int] | None) -> str:
    """How many of these outputs differ, and of how many ``samples`` of a batch they are."""
    text = counts_text(outputs, batch=samples is not None)
    if samples is not None:
        text += f"; compared: {samples[0]:,} of {counted(samples[1], 'sample')}"
    return text


@dataclass(repr=False)
class Walked(Answer):
    """Compares two runs of a model: ``found`` has both runs, operation by operation."""

    found: Difference
    question: ComparisonQuestion
    """The model and both sides, in words."""
    script: Mapping[str, Any] = field(default_factory=dict)
    """What a report's scripts need besides: ``before``, lines that set each side's switches;
    ``whole``, lines that repeat the comparison."""
    inputs: tuple[Mapping[str, np.ndarray], Mapping[str, np.ndarray]] | None = None
    """Both sides', where the model ran in this process."""

    @property
    def window(self) -> int:
        """How many outputs read other inputs than the right run's at the same index."""
        return sum(output.window for output in self.found.outputs_by_index)

    @property
    def _all_in_window(self) -> bool:
        return self.window in (0, sum(output.elements for output in self.found.outputs_by_index))

    def counts(self) -> dict[str, int]:
        counts = Counter(operation.verdict for operation in self.found.operations)
        return {name: counts[name] for name in VERDICTS if counts[name]}

    def differ_by_themselves(self) -> list[int]:
        """The numbers of operations that differ although their inputs agree, or would."""
        operations = enumerate(self.found.operations)
        return [number for number, op in operations if op.verdict == "source" or op.differing_alone]

    @property
    def classes(self) -> dict[str, int]:
        """How many outputs are equal, how many differ by rounding that is explained, and
        how many otherwise: they are explained where every source is, and nothing else is open."""
        elements, differing = (
            sum(getattr(output, name) for output in self.found.outputs_by_index)
            for name in ("elements", "differing")
        )
        apart = sum(output.window_apart for output in self.found.outputs_by_index)
        rounding = self.found.rounding
        explained = rounding.all_explained
        explained &= not self.found.incomplete and not self.found.enters
        # a factor of 2.5 for 2 behind a product that rounds otherwise was called explained
        # rounding: every source replayed, and what stands behind a source is none
        explained &= not self.found.has_unexplored_causes()
        explained &= all(pair.decided for pair in self.found.outputs)
        for number, region in enumerate(self.found.operations):
            cause = self.found.causes.get(number)
            if region.verdict == "source":
                explained &= region.cause not in NO_ROUNDING
            elif region.differing_alone:
                explained &= cause is not None and cause.rounding.all_explained
        if self.found.samples is not None:
            # which of all samples' outputs read the other samples, as a norm over the batch does,
            # is known of the recorded ones alone
            values = self.found.left.values
            explained &= all(o.compared == prod(values[o.left].shape) for o in self.found.outputs)
        return three_classes(elements, differing, (differing - apart) * explained)

    def report(self) -> dict[str, Any]:
        difference, first = self.found, self.found.first
        samples = difference.samples
        samples_json = samples and {"compared": samples[0], "of": samples[1]}
        total = len(difference.operations)
        operations = [op.to_json() | {"rounding": None} for op in difference.operations]
        for number, cause in difference.causes.items():
            explanation = cause.to_json()
            operations[number] |= {"rounding": explanation.pop("rounding")}
            operations[number]["explanation"] = explanation
        return {
            "verdict": self.verdict,
            "examined": difference.examined,
            "operations_total": total,
            "first": None if first is None else first.name,
            "enters": self.found.enters or None,
            **asdict(self.question),
            "same_inputs": difference.same_inputs,
            "window": self.window,
            "not_compared": sum(output.not_compared for output in difference.outputs_by_index),
            "samples": samples_json,
            "not_whole": difference.incomplete or None,
            "rounding": difference.rounding.to_json(),
            "classes": self.classes,
            "decisions": self.decision_counts(),
            "unknown": [
                {"operations": len(regions), "first": regions[0].name, "why": why}
                for why, regions in grouped_reasons(difference).items()
            ],
            "operations": operations,
            "outputs": [self.report_output(output) for output in difference.outputs],
            "matched": difference.matched,
            "weights": [weight.to_json() for weight in difference.weights],
            "notes": difference.notes,
        }

    def report_output(self, output: ValuePair) -> dict[str, Any]:
        """An entry of ``outputs``."""
        far = output.distance_in_eps
        plain = self.found.outputs_by_index[self.found.outputs.index(output)]
        must_agree = {name: getattr(output, name) for name in ("differing", "max_ulp")}
        return plain.to_json() | {
            "window": plain.window,
            "must_agree": {"compared": output.compared} | must_agree,
            "compared": output.compared,
            "scaled": far if isfinite(far) else None,  # infinity and NaN are no JSON
            "decisions": [asdict(each) for each in self.decisions(output)],
        }

    def decisions(self, output: ValuePair) -> list[Decision]:
        """What an output decides and where the runs decide differently; [] of integers."""
        dtype = self.found.left.values[output.left].dtype
        key = (output.left, output.right)
        answered: dict[tuple[int, int], list[Decision]]
        answered = self.__dict__.setdefault("_decided", {})
        if key not in answered:
            answered[key] = []
            left, right = self.found.left.array(output.left), self.found.right.array(output.right)
            recorded = left is not None and right is not None
            if recorded and output.compared and dtype in floats.FORMATS:
                first, second = _decision_rows(left, right, output.selection)
                answered[key] = [*decisions(first, second, dtype)] if first.size else []
        return answered[key]

    def decision_counts(self) -> dict[str, float | None]:
        """How many decisions the outputs take, how many change, and the smallest margin
        that one has before it would, in units of the largest difference; None: nothing differs."""
        total = changed = 0
        margins = list[float]()
        for output in self.found.outputs:
            for each in self.decisions(output):
                total, changed = total + each.taken, changed + each.crossed
                far = output.distance_in_eps
                if far and isfinite(far) and each.margin is not None:
                    margins.append(each.margin / far)
        return {"total": total, "changed": changed, "margin": min(margins, default=None)}

    def changed_decisions(self) -> list[str]:
        """The decisions that differ between the two runs, in words."""
        lines = []
        for number, output in enumerate(self.found.outputs):
            which = f" of output {number}" if len(self.found.outputs) > 1 else ""
            lines += [
                f"{NAMED[each.decision]}{which} changes in {each.crossed:,} of {each.taken:,}"
                for each in self.decisions(output)
                if each.crossed
            ]
        return lines

    def lines(self) -> tuple[str, str, str]:
        total = len(self.found.operations)
        compared = f"{self.question.left} against {self.question.right}: {self.counts_text()}"
        classes = [(name, n) for name, n in self.classes.items() if n and name != "equal"]
        if len(classes) == 1:
            compared += f": {classes[0][0]}"
        elif classes:
            compared += f": {', '.join(f'{count:,} {name}' for name, count in classes)}"
        name = f"{self.question.model}, " if self.question.model else ""
        first, last = self.ending()
        operations = f"{counted(total, 'operation')}, {self.found.examined:,} compared"
        operations += f", matched {self.found.matched}"
        return f"{name}{compared}", f"{first} ({operations})", last

    def counts_text(self) -> str:
        """How many outputs differ by index, and of how many samples."""
        return samples_text(self.found.outputs_by_index, self.found.samples)

    def ending(self) -> tuple[str, str]:
        """What comes first of a difference in words, and how far it spreads."""
        if self.found.first is not None:
            return self._source_in_words(self.found.first), self.outcome()
        if self.found.enters:
            return FAR.format(self.found.enters), self.outcome()
        return self._without_source(), self.outcome()

    def _source_in_words(self, first: Region) -> str:
        count = f"{first.differing:,} of {first.compared:,} differ"
        count += "" if first.max_ulp is None else f" by up to {first.max_ulp:,} ulp"
        cause = self.found.causes.get(self.found.operations.index(first))
        if "argument" in first.cause:  # first, as lines are cut at their end
            text = f"first: {operation_text(first)}: {first.cause_text}; {count}"
        else:
            causes = self.found.causes.values()
            sought = any(cause.kind or NOT_SOUGHT not in cause.why for cause in causes)
            why = first.cause or (NOT_YET if sought else NOT_SOUGHT)
            if cause is not None and cause.why == FIRST_DIGITS:
                why = cause.why
            elif cause is not None and first.cause == "algorithm" and FORMULAS not in cause.why:
                why = f"algorithm: {cause.why.split(': ')[0]}"
            text = f"first: {operation_text(first)}, {count}: {why}"
            text += f"; the arguments differ: {first.arguments}" if first.arguments else ""
        # what it is in its library's words, of a product or a convolution
        if cause is not None and cause.comparison is not None and cause.kind:
            layer = alone.layer_of(self.found, first)
            text += f" ({layer})" if layer else ""
        before = [self._windows_apart() if first.grouped else "", self.found.different_weights]
        before.append(FAR.format(self.found.enters) if self.found.enters else "")
        before.append(self.found.rounding.words)
        if self.verdict == "equal":
            before.append("the outputs agree, the bits inside differ")
        return "; ".join(filter(None, [*before, text]))

    def _without_source(self) -> str:
        """Why outputs differ where no operation is a source, or what is known instead."""
        difference, verdict = self.found, self.verdict
        differs = verdict == "differs"
        one_library = difference.left.target == difference.right.target
        weights = [str(each) for each in difference.weights]
        if not (differs and one_library):
            weights = [str(each) for each in difference.weights if not each.convention]
        reads = [difference.different_constants if differs else "", self._window_text()]
        why = "; ".join(weights) or difference.different_weights or self._windows_apart()
        if why := why or "; ".join(filter(None, reads)):
            return why
        if difference.differs_unwatched_only:
            return f"{verdict}: {WHOLE_PROGRAM}"
        if verdict == "unknown" and (
            unknown := difference.incomplete or why_outputs_unknown(difference)
        ):
            return f"unknown: {unknown}"
        if verdict == "equal" and not difference.examined:
            return "equal: the outputs agree; no operation could be compared"
        if verdict == "equal":
            return "equal: every compared operation whose inputs agree gives the same bits"
        # the first operation that one side has alone, and how many follow
        apart, counts = [], self.counts()
        for side in filter(counts.get, ("left", "right")):
            first = next(op for op in difference.operations if op.verdict == side)
            more = f" and {counts[side] - 1:,} more" if counts[side] > 1 else ""
            apart.append(f"only {side}: {operation_text(first)}{more}")
        if apart:
            return f"{verdict}: {'; '.join(apart)}; no common operation is a source"
        nothing = "no operation was found whose inputs agree and whose outputs differ"
        ended = (note for note in difference.notes if note.startswith(UNCOMPARED))
        return f"{verdict}: {next(ended, nothing)}"

    def _windows_apart(self) -> str:
        """Where a port to another library reads other inputs than what it was made from."""
        left, right = self.found.left, self.found.right
        if self.verdict != "differs" or left.target == right.target:
            return ""
        return alone.windows_apart(left, right)

    def _window_text(self) -> str:
        """How many outputs read what the other run lacks; or nothing."""
        start = self._first_lacking()
        if self.window:
            total = counted(
                sum(output.elements for output in self.found.outputs_by_index), "output"
            )
            text = f"{self.window:,} of {total} {'reads' if self.window == 1 else 'read'}"
            text += " different inputs"
            start = next((op for op in self.found.operations if op.cause == "window"), start)
        elif start is not None and self.verdict == "differs":
            text = "all outputs depend on what one run lacks"
        else:
            return ""
        return f"window: {text}" + ("" if start is None else f"; from {operation_text(start)} on")

    def _first_lacking(self) -> Region | None:
        """The first operation of which all results depend on what the other run lacks, if
        all outputs do: the scale of a batch that is quantised as it comes, say."""
        outputs = [pair for pair in self.found.outputs if not pair.absent]
        if not outputs or not all(pair.decided and pair.selection.empty for pair in outputs):
            return None
        return next((op for op in self.found.operations if op.note == LACKING), None)

    def unknown(self) -> list[str]:
        """Why nothing is known of operations, in words: how many, from which one on."""
        lines = []
        for why, regions in grouped_reasons(self.found).items():
            first = operation_text(regions[0])
            start = f"from {first} on" if len(regions) > 1 else first
            lines.append(f"unknown: {counted(len(regions), 'operation')}, {start}: {why}")
        return lines

    def outcome(self, how: str = "reproduce('folder')") -> str:
        """How the outputs differ, and what to do. ``how``: what writes a report."""
        outputs, first, todo = self.found.outputs, self.found.first, self.question.todo
        compared = sum(output.compared for output in outputs)
        differing = [output for output in outputs if output.differing]
        if self.found.differs_unwatched_only:
            return todo
        if not compared and self.found.different_weights:
            return todo or "give both sides the same weights"
        if not compared and outputs and all(output.absent for output in outputs):
            return "the outputs have no elements"
        if not compared:
            if self._first_lacking() is None and not (self.window and self._all_in_window):
                return NOT_KNOWN
            nothing = "no output has to agree; " if self._all_in_window else ""
            return f"{nothing}only the same inputs give the same bits"
        if not differing:
            every = f"all {compared:,} outputs that must agree do"
            every = "the one output that must agree does" if compared == 1 else every
            return f"{every}{self._not_judged_text()}" + (f"; {todo}" if first and todo else "")
        ulps = [output.max_ulp for output in differing if output.max_ulp is not None]
        most = max(ulps) if len(ulps) == len(differing) else None
        text = differ(sum(output.differing for output in differing), compared, most)
        text += self._not_judged_text()
        if self.window:
            text = f"{self._window_text()}; of those that must agree {text}"
        parts = [text, "; ".join(self.changed_decisions()) or "no decision changes", todo]
        if first is not None:  # of different arguments the library did what it was asked
            parts.append(DIFFERENT if first.arguments else f"try {how} for a report")
        return "; ".join(filter(None, parts))

    def _not_judged_text(self) -> str:
        """Of how many of several outputs nothing could be compared."""
        outputs = self.found.outputs
        count = sum(not output.compared and not output.absent for output in outputs)
        what = "it is not known what must agree"
        return f"; of {count:,} of the {len(outputs):,} returned arrays {what}" if count else ""

    shown = views.walked

    def drawn(self) -> Figure | None:
        from probe.report import trees

        return trees.draw_two_runs(self.found, self.lines())

    def reproduce(
        self,
        folder: str | Path,
        source: int | str | Region | None = None,
        *,
        case: bool = True,
        progress: Say | None = None,
    ) -> Any:
        """Writes a verified bug report of a source, the first one if none is named.

        ``source``: an operation that differs by itself, its name, or its number among
        ``operations``. A product of weights or a convolution that differs by the same cause as a
        case gets the report of a case, reduced with its cause kept; everything else, and with
        ``case=False`` this too, a script of the operation as it was recorded (``no_case`` of what
        comes back says why). InputError: there is none, the two runs give it different arguments,
        or the folder exists.
        """
        require_unwritten("out", Path(folder))
        operations, sources = self.found.operations, self.differ_by_themselves()
        if not sources:
            why = "no operation differs while its inputs agree, so there is nothing to report"
            raise InputError("source", "(none)", why, "compare two runs that differ")
        wanted = sources[0] if source is None else source
        number = next(
            (n for n in sources if wanted in (n, operations[n].name) or wanted is operations[n]), -1
        )
        if number < 0:
            names = ", ".join(operations[n].name for n in sources[:8])
            why = "this operation is not a source"
            raise InputError("source", source, why, f"use one of {names}")
        operation = operations[number]
        if operation.arguments:
            why = f"{DIFFERENT}: {operation.arguments}"
            raise InputError("source", operation.name, why, "give both runs the same arguments")
        cause = self.found.causes.get(number)
        sides = self.found.left, self.found.right
        why = "its sums were not compared" if case else "it was not asked for"
        if case and cause is not None and cause.comparison is not None and cause.kind:
            try:
                return self._as_case(Path(folder), operation, cause, progress or silent)
            except ProbeError as error:
                why = getattr(error, "why", str(error))
            except (LookupError, ValueError) as error:  # the operation's own script needs no case
                why = f"a mistake of probe's own ({type(error).__name__}: {error})"
        recorded = import_module("probe.report.recorded")
        script = recorded.ModelScript(**self.script)
        written = recorded.write_operation(Path(folder), sides, operation, cause, script)
        written.no_case = why
        return written

    def _as_case(self, folder: Path, operation: Region, cause: Any, tell: Say) -> Any:
        """Writes the report of a case. InputError: it is none; NotReproduced."""
        recorded = import_module("probe.report.recorded")
        model = f"`{self.question.model}`" if self.question.model else "a model"
        place = f" at `{operation.path}`" if operation.path else ""
        layer = alone.layer_of(self.found, operation)
        place += f", `{layer}`" * bool(layer)
        count = f"{operation.differing:,} of {operation.compared:,} outputs differ"
        said = f"In {model}{place}: {count}."
        said += " Alone, on generated operands, the same layer differs by the same cause."
        sides = self.found.left, self.found.right
        written = recorded.write_case(folder, sides, operation, cause, said, tell=tell)
        if whole := self.script.get("whole"):
            text = "\n".join(whole).rstrip() + "\n"
            (folder / "model.py").write_text(text, encoding="utf-8")
            written.files.append("model.py")
        return recorded.WrittenFolder(folder, written.files, written.script, written.ran)


WHOLE_PROGRAM = (
    "one by one, all operations agree; what differs is what the library makes of the whole program "
    "(its optimiser, or what it compiles)"
)

VERDICTS = ("source", "carried", "healed", "equal", "left", "right", "unknown")


@dataclass(frozen=True)
class ComparisonQuestion:
    """What was compared: the model, the left and the right side, and what to do about it."""

    model: str = ""
    left: str = "left"
    right: str = "right"
    todo: str = ""


def operation_text(operation: Region) -> str:
    """An operation and its place in the model: ``aten.addmm at encoder.0``."""
    return f"{operation.op} at {operation.path}" if operation.path else operation.op


FAR = "from {} on results are further apart than rounding"

DIFFERENT = "the two runs ask for different things"

NOT_KNOWN = "it is not known which outputs must agree"


def _decision_rows(left: Any, right: Any, selection: Selection) -> list[np.ndarray]:
    """Both sides' elements that must agree as rows of decisions: lines along the last axis
    that isn't cut, of which a largest one is decided, if whole ones are selected, else element by
    element."""
    arrays = left, right
    taken = [selection.elements(array, side) for side, array in enumerate(arrays)]
    rows = [axis for axis in range(left.ndim) if axis not in selection.cut_axes]
    if (
        selection.agreeing is None
        and selection.axis_order is None
        and rows
        and len(selection.cut_axes) > 0
    ):
        # as channels of positions are
        turned = [np.moveaxis(each, rows[-1], -1) for each in taken]
        return [each.reshape(-1, each.shape[-1]) for each in turned]
    width = left.shape[-1] if left.ndim and left.shape[-1:] == right.shape[-1:] else 0
    if not width or taken[0].size % width:
        return [each.reshape(-1, 1) for each in taken]
    for side, array in enumerate(() if selection.all_by_index else arrays):
        numbers = selection.elements(np.arange(array.size).reshape(array.shape), side)
        lines = numbers.reshape(-1, width)
        if (lines != lines[:, :1] + np.arange(width)).any() or (lines[:, 0] % width).any():
            width = 1
            break
    return [each.reshape(-1, width) for each in taken]


@typed
def first_difference(
    left: Callable[..., Any] | Any,
    right: Callable[..., Any] | Any,
    *,
    inputs: Sequence[Any] | None = None,
    explain: bool = True,
    time: str | None = None,
    progress: Say | None = None,
) -> Walked:
    """Runs two functions that should agree, and finds the first operation where they don't.

    ``left``, ``right``: functions without arguments, such as ``lambda: model(x[:1])`` and ``lambda:
    model(x)``; each is run three times, more often where watching changes bits. They return arrays
    of PyTorch, TensorFlow, Keras or JAX, alone or nested. ``inputs``: arrays that both are called
    with, for functions that take arguments, as those of plain NumPy have to: by name, or one array.
    ``explain``: find the causes. ``time``: stop after this long (``30s``, ``5m``); what is
    found by then is returned, and a note names what is left. ``progress``: is called with what is
    done now; if not given, lines on stderr say it after three seconds. Which outputs must
    agree is found from the operations: the same rows of a batch, what padding doesn't reach, all of
    them if the inputs are the same. Errors: InputError where the sides have different weights or
    inputs; Nondeterministic where one does not repeat.

    >>> import probe
    >>> found = probe.first_difference(lambda: model(x[:1]), lambda: model(x))  # doctest: +SKIP
    >>> found.first, found.verdict  # doctest: +SKIP
    """
    arrays, names = listed_inputs(inputs), []
    for runnable, side in ((left, "left"), (right, "right")):
        if inputs is not None and callable(runnable):
            require_arguments(runnable, arrays)
        # a recorder has a name of its own, the model's
        name = getattr(runnable, "__name__", getattr(runnable, "name", type(runnable).__name__))
        names.append(side if str(name)[:1] in ("", "<") else f"{side} ({name})")

    def recorder(given: tuple[Any, Sequence[Any]], like: Recorder | None = None) -> Recorder:
        function, arguments = given
        as_it_is = inputs is None or not callable(function)
        call = function if as_it_is else lambda: function(*arguments)
        return function_recorder(call, bare=given, like=like)

    def walked(*functions: Any) -> Difference:
        recorders, sides = [], []
        for call in ((function, arrays) for function in functions):
            recorders.append(recorder(call))
            sides.append(FunctionSide(Captured(call), partial(recorder, like=recorders[-1])))
        match = by_reading(*sides)
        return walk(recorders[0], recorders[1], explain, tell, match=match)

    with within(time), heard("first_difference", progress) as tell:
        tell("running both sides once, unwatched")
        try:
            difference = walked(left, right)
        except Unseen as lost:
            if not all(isinstance(array, np.ndarray) for array in arrays) or not arrays:
                raise
            from probe.record import ndarray

            wholes = []
            for function in (left, right):  # as one operation: nothing within it can be watched

                def whole(*args: np.ndarray, function: Any = function) -> list[np.ndarray]:
                    return [np.asarray(value) for value in nested_leaves(function(*args))]

                name = str(getattr(function, "__name__", type(function).__name__)).strip("<>")
                operation = ndarray.operation(name, Unknown("a function as a whole"))
                wholes.append(operation(whole))
            difference = walked(*wholes)
            difference.notes.append(
                f"the functions are compared as a whole: {lost.why}; {lost.todo}"
            )
            tell("asking which inputs the outputs read")
            note_what_is_read(difference, wholes, arrays)
    return Walked(difference, ComparisonQuestion("", *names))


# Causes of sources that are no rounding.
NO_ROUNDING = ("window", "reach", "argument", "algorithm", "generator")

# Differing elements of which it is asked what they read.
ELEMENTS = 8


def note_what_is_read(
    difference: Difference, functions: Sequence[Callable[..., Any]], arrays: Sequence[np.ndarray]
) -> None:
    """Says which rows of the inputs differing outputs read, where that is not the same on both
    sides: then they need not agree, and the difference is no rounding."""
    inputs = {f"x{number}": array for number, array in enumerate(arrays)}
    for number, output in enumerate(difference.outputs_by_index):
        reads_more = np.zeros(output.apart.shape, bool)
        for element in np.flatnonzero(output.apart)[:ELEMENTS].tolist():
            both = [rows_read(function, inputs, number, element) for function in functions]
            apart = [name for name in inputs if (both[0][name] != both[1][name]).any()]
            if not apart:
                continue
            reads_more.reshape(-1)[element] = True
            said = []
            for side, rows in zip(("left", "right"), both, strict=True):
                each = [f"{n}[{ranges(np.flatnonzero(rows[n]).tolist())}]" for n in apart]
                said.append(f"on the {side} reads rows {', '.join(each)}")
            where = f"element {element} of output {number}"
            difference.notes.append(f"{where} {', '.join(said)}: they need not agree")
        difference.outputs_by_index[number] = with_window(output, reads_more)
        for at, operation in enumerate(difference.operations):
            if reads_more.any() and operation.verdict == "source":
                operation.cause = "window"
                if (cause := difference.causes.get(at)) is not None:
                    cause.kind, cause.why = "window", difference.notes[-1]


def of_recordings(
    left: str | Path | Recorded,
    right: str | Path | Recorded,
    trust: bool = False,
    *,
    explain: bool = True,
    time: str | None = None,
    progress: Say | None = None,
) -> Walked:
    """Does as ``probe.diff`` with two recordings. Errors: as there."""
    folders = list[Path]()
    # a path, or an answer that has one
    for recording in (left, right):
        provenance = getattr(getattr(recording, "found", None), "made", None)
        folders.append(provenance.folder if isinstance(provenance, Provenance) else Path(recording))  # type: ignore[arg-type]
    with within(time), heard("diff", progress) as tell, ExitStack() as running:
        if trust:
            runs = [running.enter_context(RunnableRecording(folder)) for folder in folders]
        else:
            runs = [read_recording(folder) for folder in folders]
        walked = of_stored(runs[0], runs[1], explain, tell)
        if not trust and walked.found.first is not None and not walked.found.first.cause:
            walked.found.notes.append(UNTRUSTED)
        # a report runs operations of the recordings again: they stay as long as the answer does
        weakref.finalize(walked, running.pop_all().close)
    return walked


UNTRUSTED = (
    "no cause was looked for, because no code of a recording is run; --trust (Python: trust=True) "
    "runs its operations, for recordings whose origin you trust"
)


def of_stored(left: Run, right: Run, explain: bool = True, progress: Say | None = None) -> Walked:
    """Compares two recordings on disk. Errors: InputError, where one contradicts itself too."""
    assert left.made is not None
    assert right.made is not None
    try:
        difference = walk(OnDisk(left), OnDisk(right), explain, progress or silent)
    except (LookupError, TypeError, ValueError, AttributeError, AssertionError) as error:
        why = f"a recording contradicts itself ({type(error).__name__}: {str(error)[:120]})"
        where = f"{left.made.folder} and {right.made.folder}"
        raise InputError("recording", where, why, "record again with probe record") from None
    subjects = dict.fromkeys((left.made.subject, right.made.subject))
    names = (f"{run.made.folder.name} ({run.target})" for run in (left, right) if run.made)
    question = ComparisonQuestion(" and ".join(filter(None, subjects)), *names)
    try:
        lines = switch_lines(Target.parse(left.target), Target.parse(right.target))
    except InputError:  # it was recorded on no target
        lines = (), ()
    return Walked(difference, question, {"before": lines})
