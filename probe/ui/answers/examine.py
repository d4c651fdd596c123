"""Asks everything of a model: which operation, why, what keeps the bits, the cost, a report.

It is ``probe MODEL``. Each part is given as soon as it is known, the next ones cost more: two runs
compared; the first source explained; what keeps the bits, tried on both runs; its cost, timed in
turns; the verified report. What is known stays where the time is over or somebody interrupts.
"""

from __future__ import annotations

import time as clock
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probe.case.arguments import choice, require_unwritten, typed, whole_number
from probe.case.errors import InputError, NotReproduced, refuse
from probe.case.floats import rounded_text
from probe.diff.alone import layer_of, unequal_bits
from probe.diff.difference import Region
from probe.diff.repeated import is_mask
from probe.diff.source import find_cause
from probe.record.inputs import varied_axes
from probe.record.subject import run_unwatched
from probe.sizes import model_fixes
from probe.sweep.printing import counted, differ
from probe.targets import budget
from probe.targets.budget import within
from probe.targets.progress import VOICE, Say, heard
from probe.targets.target import Target
from probe.ui.answers.answer import Answer
from probe.ui.answers.first_difference import (
    ComparisonQuestion,
    Walked,
)
from probe.ui.answers.two_runs import (
    ADVICE,
    GivenModel,
    TwoSides,
    entries_shown,
    mask_of_padding,
    two_runs,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# What people mean, by the words of ``ask``.
ASK = {
    "batch": "one sample alone against the same sample in a batch",
    "padding": "one sample alone without padding against the same sample padded",
    "release": "this release, device or library against another one",
}

PARTS = ("outputs", "operation", "cause", "fix", "cost", "report")
TIME = "10m"
# Rows of a batch where the inputs don't say how many: as ``--against`` of the examples.
BATCH = 8

# Sources that are explained until the cause of one is known: a refuted source is none.
SOURCES = 3


@dataclass(frozen=True)
class Learned:
    """A part of the answer: its ``name`` in ``PARTS``, the ``text``, what JSON has beside that, and
    the ``seconds`` since the question was put."""

    name: str
    text: str
    told: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(repr=False)
class Diagnosis(Answer):
    """Holds what is known of a model: ``parts`` in the order in which they came.

    ``found``: both runs, as of ``probe.first_difference``. ``ended``: why parts are missing, empty
    if none is.
    """

    found: Walked
    ask: str
    asked: str
    parts: list[Learned]
    ended: str = ""

    def text(self, name: str) -> str:
        """What is known of a part; the last text where it came in several."""
        return next((part.text for part in self.parts[::-1] if part.name == name), "")

    def lines(self) -> tuple[str, str, str]:
        why = "; ".join(filter(None, (self.text("operation"), self.text("cause"))))
        last = [self.text("fix"), self.text("cost"), self.ended]
        after = "; ".join(filter(None, last)) or self.found.outcome()
        return f"{self.asked}: {self.found.counts_text()}", why, after

    def report(self) -> dict[str, Any]:
        return {
            "verdict": self.found.verdict,
            "ask": self.ask,
            "asked": self.asked,
            "parts": [
                {"part": p.name, "text": p.text, "seconds": round(p.seconds, 1)} | p.told
                for p in self.parts
            ],
            "ended": self.ended or None,
            "comparison": self.found.report(),
        }

    def drawn(self) -> Figure | None:
        return self.found.drawn()


@typed
def examine(
    model: Any,
    inputs: Any = None,
    ask: str | None = None,
    *,
    at: int | None = None,
    against: int | None = None,
    against_target: str | Target | None = None,
    target: str | Target | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    out: str | Path | None = None,
    trust: bool = False,
    seed: int = 0,
    time: str | None = TIME,
    part: Callable[[Learned], None] | None = None,
    progress: Say | None = None,
) -> Diagnosis:
    """Says which operation of a model differs, why, what keeps the bits, at what cost; and reports.

    ``model``: a file, a model in memory, a function or ``"module:function"``, as ``probe.network``
    takes it. ``inputs``: arrays or tensors in order or by name, or a .npz file; generated ones of
    ``shapes`` if not given. ``ask``: ``batch`` (a sample alone against in a batch; the default),
    ``padding`` (alone without padding against padded) or ``release`` (``target`` against
    ``against_target``).
    ``at``, ``against``: the sizes; 1 and all rows of a batch, the valid part of the first padded
    sample and its full length, if not given. ``out``: a new folder for the report; none is written
    if it is not given. ``time``: stop after this long. ``part``: called with each ``Learned`` as
    soon as it is known. Ctrl-C returns what is known, if that is anything. Errors: InputError;
    TargetError; Nondeterministic where a run does not repeat.
    """
    ask = choice("ask", ask or ("release" if against_target else "batch"), tuple(ASK))
    if ask != "release":
        release = {"against_target": against_target}
        refuse(release, "it belongs to ask=release", f"leave out ask={ask}")
    elif against_target is None:
        why, todo = "the other release is not given", "give --against-target such as torch==2.4.0"
        raise InputError("against_target", "(none)", why, todo)
    else:
        why = "with ask=release both sides have the same inputs"
        refuse({"at": at, "against": against}, why, "leave it out, or ask for batch or padding")
    require_unwritten("out", None if out is None else Path(out))
    user_model = GivenModel(model, inputs, shapes, trust, seed)
    parts: list[Learned] = []
    begun = clock.monotonic()

    def tell_part(name: str, text: str, details: dict[str, Any] | None = None) -> None:
        parts.append(Learned(name, text, details or {}, clock.monotonic() - begun))
        (part or (lambda learned: None))(parts[-1])

    with (
        within(time),
        heard("examine", progress) as tell,
        # which operation, why, what keeps the bits at what cost, the report
        VOICE.steps(3 + (out is not None), tell) as step,
    ):
        step("opening the model")
        sides: SizedInputs | None = None
        if ask == "release":
            both_sides = TwoSides(against_target=against_target)
            walked = two_runs(user_model, both_sides, target, explain=False, progress=tell)
        else:
            sizes = (at, against)
            walked, sides = _one_sample(user_model, ask, sizes, target, tell, tell_part)
        head = f"{walked.question.model}: {walked.question.left} against {walked.question.right}"
        diagnosis = Diagnosis(walked, ask, head.removeprefix(": "), parts)
        early = [learned.text for learned in parts]
        examination = Examination(model, walked, sides, out, tell, step, tell_part, early)
        with budget.Ending():
            diagnosis.ended = examination.give_parts()
        diagnosis.ended = diagnosis.ended or budget.ended()
        if ask == "padding" and walked.window:
            tell_part("fix", f"{counted(walked.window, 'output')} {READS_PADDING}")
        if out is not None and all(learned.name != "report" for learned in parts):
            why = diagnosis.ended or "no operation differs"
            tell_part("report", f"none was written: {why}")
    return diagnosis


def _one_sample(
    user_model: GivenModel,
    ask: str,
    wanted: tuple[int | None, int | None],
    target: str | Target | None,
    tell: Say,
    tell_part: Callable[..., None],
) -> tuple[Walked, SizedInputs | None]:
    """Compares one sample with the same in a batch, or padded; ``wanted``: the sizes that the user
    gave. The inputs of both: None where the model runs in another process."""
    subject, vary = user_model.opened(), "batch" if ask == "batch" else "length"
    how: dict[str, Any] = {"subject": subject, "explain": False, "progress": tell}
    try:
        arrays, along, size, full = _inputs_and_sizes(user_model, subject, ask, wanted)
        axes = ",".join(f"{name}:{axis}" for name, axis in along.items())
        both = TwoSides("batch" if ask == "batch" else axes, size, full)
        cut = replace(user_model, inputs=arrays)
        walked = two_runs(cut, both, target, **how, early=partial(tell_part, "outputs"))
    except InputError as error:
        if error.name != "vary":
            raise
        # what else can be asked of a model whose inputs have one size
        todo = "ask about the batch: --ask batch"
        if ask == "batch":
            todo = "export it with a batch of any size, or compare targets: --against-target U"
        raise InputError("ask", ask, error.why, todo) from error
    if ask == "padding" and target is None:
        ends = f"length {size}", f"length {full}"
        walked.question = ComparisonQuestion(user_model.name, *ends, ADVICE["length"])
    if walked.inputs is None:
        return walked, None
    left, right = walked.inputs
    filled = {name: filled_up(array, right[name].shape) for name, array in left.items()}
    if walked.found.padded_outputs and walked.found.samples is None:
        # a sample behind its mask: what the mask hides is filled up, with zeros as users do
        vary = "length"
        filled |= {name: array for name, array in right.items() if is_mask(array)}
        both_sizes = [zip(left[n].shape, right[n].shape, strict=True) for n in left]
        size, full = next((a, b) for each in both_sizes for a, b in each if a != b)
        walked.question = replace(walked.question, todo=ADVICE["length"])
    return walked, SizedInputs(subject, vary, (size, full), dict(left), dict(right), filled)


@dataclass
class SizedInputs:
    """Both sides' inputs of a model in this process, and the left's filled up to the right's."""

    opened: Any
    vary: str
    sizes: tuple[int, int]
    left: dict[str, np.ndarray]
    right: dict[str, np.ndarray]
    filled: dict[str, np.ndarray]


def filled_up(array: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """Pads an array to a larger shape by zeros; a batch by its first samples, as zeros may be no
    input at all, such as of a division."""
    width = [(0, full - size) for size, full in zip(array.shape, shape, strict=True)]
    mode = "wrap" if array.shape[1:] == tuple(shape[1:]) else "constant"
    return np.pad(array, width, mode=mode)  # type: ignore[call-overload]


def _valid_lengths(arrays: Mapping[str, np.ndarray], along: Mapping[str, int]) -> np.ndarray:
    """The length of each sample without its padding: up to its last entry that isn't zero."""
    lengths = np.zeros(1, int)
    for name, axis in along.items():
        array = arrays[name]
        if array.ndim < 2 or axis == 0:
            continue
        other_axes = tuple(n for n in range(1, array.ndim) if n != axis)
        nonzero = (array != 0).any(axis=other_axes) if other_axes else array != 0
        # zeros within a sample are data: only those behind its last entry are padding
        last = np.where(nonzero, np.arange(1, nonzero.shape[1] + 1), 0).max(axis=1)
        lengths = np.maximum(lengths, last) if len(lengths) in (1, len(last)) else lengths
    return lengths


def _inputs_and_sizes(
    user_model: GivenModel, subject: Any, ask: str, wanted: tuple[int | None, int | None]
) -> tuple[dict[str, np.ndarray], dict[str, int], int, int]:
    """The inputs, the axis of each along which the sides differ, and both sides' sizes.

    ``wanted``: the sizes that the user gave. To ask about padding one sample is taken, the first
    that has any; its length is the axis along which samples end in zeros, which need not be the
    longest one, as of (batch, channels, length).
    """
    at, against = wanted
    vary = "batch" if ask == "batch" else "length"
    user_model.require_inputs(subject.inputs)
    # generated inputs need a size; given ones have theirs, and 0 asks for nothing
    largest = against or (BATCH if ask == "batch" else 0)
    arrays = user_model.arrays(subject.inputs, vary, largest)
    along = varied_axes(vary, arrays, subject.inputs)
    mask, positions = mask_of_padding(arrays) if ask == "padding" else ("", {})
    if ask == "padding" and arrays:
        first = next(iter(along))
        axes = [along, *({first: axis} for axis in range(1, arrays[first].ndim))]
        valid = [_valid_lengths(arrays, axis_of) for axis_of in axes]
        if mask:  # what is padding is said
            plain = lambda inputs: run_unwatched(subject.recorder(inputs))  # noqa: E731
            shown = entries_shown(plain, arrays, mask)
            axes.insert(0, positions)
            ends_at = np.where(shown, np.arange(1, shown.shape[1] + 1), 0).max(axis=1)
            valid.insert(0, ends_at)
        sizes = [
            min(arrays[name].shape[axis] for name, axis in axis_of.items()) for axis_of in axes
        ]
        ends = [((v > 0) & (v < size)).any() for v, size in zip(valid, sizes, strict=True)]
        chosen = ends.index(True) if any(ends) else 0
        along, lengths = axes[chosen], valid[chosen]
        mask = mask if chosen == 0 else ""
        full = max(arrays[name].shape[axis] for name, axis in along.items())
        short = np.flatnonzero((lengths > 0) & (lengths < full))
        row, samples = int(short[0]) if len(short) else 0, varied_axes("batch", arrays, ())
        arrays = {
            name: np.ascontiguousarray(array[row : row + 1]) if name in samples else array
            for name, array in arrays.items()
        }
    full = min(arrays[name].shape[axis] for name, axis in along.items())
    if not full:
        raise InputError("inputs", ", ".join(along), "they are empty", "give 2 samples or more")
    against = whole_number("against", full if against is None else against)
    if at is None and ask == "padding":
        valid_length = int(lengths[row] if mask else _valid_lengths(arrays, along).max())
        at = valid_length if 0 < valid_length < against else max(1, against // 4)
    at = whole_number("at", 1 if at is None else at)
    if at >= against:
        why = f"the other side has {against}"
        what = "a batch of several samples" if ask == "batch" else "a longer input"
        raise InputError("at", at, why, f"give {what}: --inputs FILE.npz, or --against N")
    return arrays, along, at, against


@dataclass
class Examination:
    """What the parts of an answer are found with. ``sides``: of a model in this process; ``out``:
    where the report goes; ``step``: called as a step begins; ``tell_part``: called with a part's
    name, text and details; ``early``: what it told of the outputs before they were recorded."""

    model: Any
    walked: Walked
    sides: SizedInputs | None
    out: str | Path | None
    tell: Say
    step: Say
    tell_part: Callable[..., None]
    early: Sequence[str] = ()

    def give_parts(self) -> str:
        """Gives one part after the other; returns why it ends early, empty if it doesn't."""
        first = self.walked.found.first
        pair, text = self.walked.question, self.walked.counts_text()
        if text not in self.early:
            which = f"{pair.left} against {pair.right}: " * bool(self.early)  # not what was told
            self.tell_part("outputs", f"{which}{text}")
        self.tell_part("operation", _operation_in_words(self.walked, first))
        if first is None:
            return ""
        self.step("looking for the cause")
        if (explained := _explained_source(self.walked, self.tell)) is not None:
            first, text, details = explained
            if first.op in FUSED and not first.cause:
                text += f"; it is a whole layer, fused: {SWITCH} lets you look into it"
            if first.cause and self.walked.found.has_unexplored_causes(behind=False):
                text += "; this does not explain all that differs"
            self.tell_part("cause", text, details)
        sides = self.sides
        if why := budget.spent():
            return why
        if sides is None:
            todo = self.walked.question.todo or ADVICE["target"]
            bisect_advice = "probe bisect MODEL --between A --and B finds the condition"
            self.tell_part("fix", f"{todo}; {bisect_advice}")
        elif ended := self._try_remedies(sides):
            return ended
        if why := budget.spent():
            return why
        if self.out is None:
            text = "not asked for: --report DIR (Python: out=DIR) writes it, verified"
            self.tell_part("report", text)
            return ""
        self.step("writing the report, proved in fresh processes")
        try:
            written = self.walked.reproduce(self.out, first, progress=self.tell)
            why = written.no_case
            own_script = f" (the operation's own script, no case: {why})" * bool(why)
            self.tell_part("report", f"{written.path}: {', '.join(written.files)}{own_script}")
        except (NotReproduced, InputError) as error:
            self.tell_part("report", f"none was written: {error}")
        return ""

    def differing(
        self, left: int, first_outputs: Sequence[Any], second_outputs: Sequence[Any]
    ) -> int:
        """How many outputs must agree and don't. ``left``: on which side of the comparison
        the first run's outputs stand; the second run's stand on the right."""
        total, right_run = 0, self.walked.found.right
        places = (self.walked.found.left, right_run)[left].outputs
        for output in self.walked.found.outputs:
            number, right = (output.left, output.right)[left], output.right
            if number in places:
                left_elements = output.selection.elements(
                    np.asarray(first_outputs[places.index(number)]), left
                )
                right_elements = output.selection.elements(
                    np.asarray(second_outputs[right_run.outputs.index(right)]), 1
                )
                total += int(
                    unequal_bits(left_elements, right_elements, right_run.values[right].dtype).sum()
                )
        return total

    def _try_remedies(self, sides: SizedInputs) -> str:
        """Tries what keeps the bits, the quick way first, and times it. Why it ended early."""
        (at, against), batches = sides.sizes, sides.vary == "batch"
        self.step("trying one size")
        names = ("left", "right", "filled")
        run = {name: sides.opened.recorder(getattr(sides, name)).plain for name in names}
        exact = not self.differing(1, run["filled"](), run["right"]())
        checked = "has the bits of the other side here" if exact else "still differs here"
        # what fills an input up is other content than what is read on the other side
        if self.walked.window and self.walked.found.samples is not None:
            exact, checked = False, "not the bits of the other side: its samples read each other"
        elif not any(output.compared for output in self.walked.found.outputs):
            exact, checked = False, "not the bits of the other side: all outputs read what fills it"
        remedies: list[dict[str, Any]] = [{"remedy": "one size", "exact": exact}]
        what = f"{'fill each batch up' if batches else 'pad every input'} to {against}"
        text = f"{what}, so that each call has one shape: {checked}"
        self.tell_part("fix", text, {"remedies": [dict(remedies[0])]})
        calls = {"left": run["left"], "one size": run["filled"]}
        if not (ended := budget.spent()):
            self.tell("trying the invariant mode")
            rows = {array.shape[0] for array in sides.right.values() if array.ndim}
            sizes = {"batch": sorted(rows)} | {sides.vary: [at, against]}
            ends, count = (sides.left, sides.right), partial(self.differing, 0)
            mode = model_fixes.of_runs(sides.opened, self.model, sizes, ends, count)
            holds = mode.report is not None and mode.verdict == "exact"
            remedies.append({"remedy": "invariant", "exact": holds, "verdict": mode.verdict})
            remedies[1]["why"] = mode.refusal or None
            exact_words = [f"one {'batch' if batches else 'padded length'} of {against}"] * exact
            exact_words += ["probe.stable.invariant(model)"] * holds
            text = f"exact here: {' or '.join(exact_words) or 'none that was tried'}"
            if holds:
                calls["invariant"] = model_fixes.calls_in_mode(mode, sides.left)
            else:
                why = mode.refusal or f"{mode.differing:,} outputs differ still"
                text += f"; probe.stable.invariant: {mode.verdict} ({why})"
            self.tell_part("fix", text, {"remedies": [dict(remedy) for remedy in remedies]})
        self.tell("timing")
        took = model_fixes.timed_in_turns(calls, min)  # others may be at work here
        timed = [remedy for remedy in remedies if remedy["remedy"] in took]
        for remedy in timed:
            remedy["ratio"] = took[remedy["remedy"]] / took["left"]
        costs = ", ".join(
            f"{remedy['remedy']} {rounded_text(remedy['ratio'])}"
            f"{'' if remedy['exact'] else ' (not exact)'}"
            for remedy in timed
        )
        text, details = f"times {sides.vary} {at} as it is: {costs}", {"remedies": remedies}
        if usable := [remedy for remedy in timed if remedy["exact"]]:
            best = min(usable, key=lambda remedy: float(remedy["ratio"]))["remedy"]
            text, details = f"{text}; recommended: {best}", details | {"recommended": best}
        self.tell_part("cost", text, details)
        return f"the invariant mode was not tried: {ended}" if ended else ""


# PyTorch's operations that are a whole layer: what is within is no operation of this run.
FUSED = ("aten._transformer_encoder_layer_fwd", "aten._native_multi_head_attention")

SWITCH = "torch.backends.mha.set_fastpath_enabled(False)"


def _operation_in_words(walked: Walked, first: Region | None) -> str:
    """The first source in the library's words, and what becomes of it in the outputs."""
    if first is None:
        return "; ".join([walked.ending()[0], walked.outcome()])
    what = layer_of(walked.found, first) or first.op
    where = f"{first.path}: {what}" if first.path else what
    inside = "the outputs agree, the bits inside differ; " * (walked.verdict == "equal")
    text = f"{inside}{where}: {differ(first.differing, first.compared, first.max_ulp)}"
    further = len(walked.differ_by_themselves()) - 1
    text += f"; {counted(further, 'operation')} behind it differ by themselves too" * (further > 0)
    return text


# Said of outputs that read what the short run lacks, however small or large their difference is.
READS_PADDING = (
    "read the padding: a difference there is no rounding, as the padded run reads what earlier "
    "layers made of its padding, the short run the layers' own padding, or nothing; run each "
    "sample at its own length, or mask what lies behind it in each such layer"
)


def _explained_source(walked: Walked, tell: Say) -> tuple[Region, str, dict[str, Any]] | None:
    """Explains the first source, and the next where it turns out to be none."""
    difference, revealed = walked.found, dict[Any, Any]()
    for number, operation in list(enumerate(difference.operations)):
        if operation.verdict != "source" or len(difference.causes) >= SOURCES:
            continue
        tell(f"explaining {operation.name}")
        cause = find_cause(difference.left, difference.right, operation, known=revealed)
        difference.causes[number] = cause
        operation.cause = cause.kind
        if cause.refuted:
            operation.put_in_doubt(cause.why)
            continue
        text = cause.why
        if not cause.kind:
            # what sets two calls of one kernel apart
            reads = []
            for run, op in difference.last_operations(operation):
                shapes = [run.values[n].shape for n in op.reads[:3]]
                reads.append(" and ".join("x".join(map(str, shape)) or "1" for shape in shapes))
            text = f"{cause.why}; the library is called with other sizes: it reads {reads[0]} "
            text += f"against {reads[1]}"
        if difference.rounding.words:
            text = f"{difference.rounding.words}; {text}"
        return operation, text, {"name": operation.name, "explanation": cause.to_json()}
    return None
