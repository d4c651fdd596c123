"""Compares two runs of one model, at different batches, lengths or targets; finds which conditions
of a target pin its bits; and keeps a run in a folder, to be compared with one of another machine,
release or target."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from probe.case.arguments import optional_number, typed
from probe.case.errors import Foreign, InputError, ProbeError, TargetError, foreign
from probe.diff.apart import (
    Apart,
    WholeFile,
    is_own_library,
    opened_on,
    own_target,
    switch_lines,
)
from probe.diff.folder import MOST_BYTES, begin_recording, size_of_values, write_recording
from probe.diff.folder import read_recording as read_folder
from probe.diff.repeated import contents, differing, is_mask, other_content
from probe.diff.running import Matches, by_running, watch
from probe.diff.walk import walk
from probe.explain.outputs import (
    OutputDifference,
    Samples,
    counts_text,
    output_difference,
    starts_of_pieces,
)
from probe.record import inputs as given_inputs
from probe.record.contract import Input, Opened
from probe.record.inputs import first_entries, varied_axes
from probe.record.recording import Provenance, Run, array_digest
from probe.record.subject import (
    OR_SHAPE,
    function_recorder,
    is_function,
    model_name,
    open_model,
    run_unwatched,
)
from probe.sizes.bisection import Conditions, search_conditions
from probe.sweep.printing import counted
from probe.targets import budget
from probe.targets.budget import within
from probe.targets.progress import Say, heard, silent
from probe.targets.target import Target, why_unavailable
from probe.ui.answers.answer import Answer, checked_target
from probe.ui.answers.first_difference import (
    ComparisonQuestion,
    Walked,
    samples_text,
)

if TYPE_CHECKING:
    from rich.console import RenderableType

Arrays = Mapping[str, np.ndarray]

ADVICE = {
    "batch": "for equal bits run all batches at one size (fill smaller ones up)",
    "length": "for equal bits pad all inputs to one length",
    "target": "for equal bits use one library, version and set of switches",
}


def refuse_report(
    report: Path, model: str, targets: Iterable[str | Target], vary: str | None = None
) -> None:
    """InputError where no report can be written: of a model in pieces, or where the whole file is
    run on a target, and none of its operations is known. Asked before anything runs."""
    if (vary or "").partition(":")[0] == "schedule":
        raise InputError("report", report, "a report is of two runs of a model", "leave it out")
    for target in targets:
        where = checked_target(target)
        if not (is_own_library(where, model) or why_unavailable(where)):
            why = "the whole file is run there, and its operations can't be asked"
            todo = "leave it out, or give targets of the model's own library"
            raise InputError("report", report, f"none can be written of {where.text}: {why}", todo)


@dataclass(frozen=True)
class TwoSides:
    """What sets two runs of a model apart: sizes of inputs along an axis, targets, or both.

    As ``probe.network`` has them.
    """

    vary: str | None = None
    at: int | None = None
    against: int | None = None
    against_target: str | Target | None = None

    def checked(self) -> TwoSides:
        """The same with whole numbers and an axis. InputError: these are not two runs."""
        at, against = optional_number("at", self.at), optional_number("against", self.against)
        vary = self.vary or (None if at is None and against is None else "length")
        if vary is not None and at is None:
            raise InputError("at", "(none)", "the left run's size is required", "give --at A")
        if vary is not None and at == against and self.against_target is None:
            why = "both sides are the same run"
            raise InputError("against", against, why, "give another value")
        if vary == "batch" and against is not None and at is not None and at > against:
            raise InputError("at", at, f"the other side has {against}", "give the smaller as --at")
        if vary is None and self.against_target is None:
            why = "there is nothing to compare with"
            todo = "give --vary batch --at 1 --against 8, or --against-target U"
            raise InputError("against", "(none)", why, todo)
        return replace(self, vary=vary, at=at, against=against)

    def cut(self, arrays: Arrays, declared: Any) -> tuple[Arrays, Arrays]:
        """Both sides' inputs. InputError: nothing can be cut."""
        if self.vary is None:
            return arrays, arrays
        if not arrays:
            why = f"without inputs there is no {self.vary} to vary"
            raise InputError("inputs", "(none)", why, f"give --inputs FILE.npz, or {OR_SHAPE}")
        along = varied_axes(self.vary, arrays, declared)
        whole = arrays if self.against is None else first_entries(arrays, along, self.against)
        assert self.at is not None
        part = first_entries(arrays, along, self.at, "at")
        if all(part[name].shape == whole[name].shape for name in arrays):
            raise InputError("at", self.at, "both sides are the same run", "give --against B")
        return part, whole

    @contextmanager
    def says_fixed_size(self, plain: Iterable[Plain], both: Iterable[Arrays]) -> Iterator[None]:
        """Says of a model that raises at the left size, and runs at the right one, that its size is
        fixed: the library's own words are of the shapes of some matrix inside."""
        try:
            yield
        except (TargetError, RuntimeError, ValueError, TypeError) as error:
            of_library = not isinstance(error, ProbeError) or getattr(error, "kind", "") == "error"
            if self.at is None or not of_library:
                raise
            runs = []
            for run, inputs in zip(plain, both, strict=True):
                try:
                    runs.append(foreign(run, inputs) is not None)
                except (Foreign, ProbeError):
                    runs.append(False)
            if runs != [False, True]:
                raise
            axis = "length" if ":" in str(self.vary) else self.vary
            raised = getattr(error, "why", f"{type(error).__name__}: {error}")
            text = raised.partition(" (called")[0]
            why = f"the model has a fixed {axis}: it runs as given, and at {self.at} raises {text}"
            raise InputError("vary", self.vary, why, "vary another axis") from error

    def every_sample(
        self, plain: tuple[Plain, Plain], both: tuple[Arrays, Arrays], declared: Any, tell: Say
    ) -> tuple[Samples | None, tuple[Arrays, Arrays]]:
        """Runs every sample of the right side's batch as the left side does, unwatched, as long as
        there is time; returns also both sides' inputs, the left's samples being some that differ.
        None: it is no batch. ``plain``: what runs either side."""
        part, whole = both
        if self.vary != "batch" or self.at is None:
            return None, both
        along = varied_axes("batch", whole, declared)
        count = min(whole[name].shape[axis] for name, axis in along.items())
        alone, together = plain
        tell(f"running {counted(count, 'sample')}, {self.at} at a time")
        samples = Samples(self.at, count, [], [], together(whole))
        for start in starts_of_pieces(count, self.at):
            if samples.starts and budget.spent():
                break
            samples.pieces.append(alone(first_entries(whole, along, self.at, start=start)))
            samples.starts.append(start)
        if start := samples.first_apart() or 0:
            part = first_entries(whole, along, self.at, start=start)
        if samples.first_apart() is not None:
            tell("asking which samples read others")
            samples.reads = _reads_of_others(samples, together, whole, along)
        return samples, (part, whole)

    def question(self, model: str, where: tuple[Target, Target] | None) -> ComparisonQuestion:
        """What is compared, in words; ``where``: of both sides, None for this process."""
        vary, sides = self.vary, []
        for side, size in enumerate((self.at, self.against)):
            words = [] if vary is None else [vary, "of the inputs" if size is None else str(size)]
            if where:
                words += [*["on"] * (vary is not None), where[side].text]
            sides.append(" ".join(words))
        left, right = sides
        return ComparisonQuestion(model, left, right, ADVICE.get(vary or "target", ""))

    def script(self, model: GivenModel, where: tuple[Target, Target] | None) -> dict[str, Any]:
        """Further lines of a report: each side's switches, and the same comparison."""
        script: dict[str, Any] = {} if where is None else {"before": switch_lines(*where)}
        inputs = model.inputs
        if not isinstance(model.model, str | Path) or not isinstance(inputs, str | Path | None):
            return script
        options: dict[str, Any] = {"vary": self.vary, "at": self.at, "against": self.against}
        options["shapes"] = model.shapes or None
        options |= {"inputs": None if inputs is None else Path(inputs).name}
        options |= {"trust": model.trust or None, "seed": model.seed or None}
        if where is not None:
            options |= {"target": where[0].text, "against_target": where[1].text}
        words = "".join(f", {name}={v!r}" for name, v in options.items() if v is not None)
        call = f"found = probe.network({model.name!r}{words})"
        return {**script, "whole": ["import probe", "", call, "print(found)"]}


def _reads_of_others(
    samples: Samples, together: Plain, whole: Arrays, along: Mapping[str, int]
) -> list[np.ndarray]:
    """Which elements of a batch's outputs change as samples do that their own piece has not: bool,
    of the outputs' shapes. Empty: the batch doesn't run with other content, or time is over."""
    reads = [np.zeros(output.shape, bool) for output in samples.whole]
    for changed, kept in samples.others():
        where = {name: np.zeros(array.shape, bool) for name, array in whole.items()}
        for name, axis in along.items():
            where[name] |= changed.reshape(-1, *(1,) * (where[name].ndim - axis - 1))
        for other in islice(contents(whole, where), 2):  # large ones of either sign
            try:
                outputs = foreign(together, other)
            except (Foreign, ProbeError):
                return []
            if budget.spent() or [y.shape for y in outputs] != [y.shape for y in samples.whole]:
                return []
            for number, (mark, before) in enumerate(zip(reads, samples.whole, strict=True)):
                apart = differing(before, outputs[number], str(before.dtype))
                for axis in samples.sample_axes(number):
                    each = before.shape[axis] // samples.count
                    apart &= np.repeat(kept, each).reshape(-1, *(1,) * (before.ndim - axis - 1))
                mark |= apart
    return reads


def two_runs(
    model: GivenModel,
    sides: TwoSides,
    target: str | Target | None = None,
    *,
    explain: bool = True,
    time: str | None = None,
    progress: Say | None = None,
    subject: Opened | None = None,
    early: Say = silent,
) -> Walked:
    """Does as ``probe.network`` with ``at`` or ``against_target``. Errors: as there.

    ``subject``: the model, where it was opened before. ``early``: is called with how many outputs
    of a batch differ, as soon as all its samples were run and long before a source is known.
    Processes and recordings of targets stay as long as the answer does: a report uses them again.
    """
    with within(time), heard("network", progress) as tell, ExitStack() as running:
        sides = sides.checked()
        tell("opening the model")
        where = None
        if target is not None or sides.against_target is not None:
            other = None if sides.against_target is None else checked_target(sides.against_target)
            if target is not None:
                left_target = checked_target(target)
            else:
                assert other is not None
                left_target = own_target(other, model.text("against_target"))
            where = left_target, other or left_target
            for side in where:
                if reason := why_unavailable(side):
                    raise TargetError(side.text, "unavailable", reason)
        if where is None:
            ends: list[Any] = [subject or model.opened()] * 2
            declared = ends[0].inputs
        else:
            opened = {side.text: model.opened_on(side) for side in dict.fromkeys(where)}
            there = {text: running.enter_context(side) for text, side in opened.items()}
            ends = [there[side.text] for side in where]
            if isinstance(ends[0], WholeFile):
                declared = model.opened().inputs
            else:  # opened there alone: a library takes seconds to be imported
                ends[0].open()
                declared = ends[0].inputs
        arrays = model.arrays(declared, sides.vary, max(sides.at or 0, sides.against or 0))
        both = sides.cut(arrays, declared)
        plain = [partial(_plain, end) for end in ends]
        running.enter_context(sides.says_fixed_size(plain, both))
        samples, both = sides.every_sample((plain[0], plain[1]), both, declared, tell)
        question, masked = sides.question(model.name, where), list[MaskedSample]()
        if samples is not None:
            dtypes = [str(array.dtype) for array in samples.whole]
            if not {*dtypes} & CONTAINERS:
                plain_outputs = samples.differences([(dtype, dtype) for dtype in dtypes])
                early(samples_text(plain_outputs, (samples.compared, samples.count)))
            if ends[0] is ends[1]:
                masked = masked_samples(plain[0], both[1], declared, tell)
        behind = None
        if samples is not None and samples.first_apart() is None:
            behind = next((sample for sample in masked if sample.apart), None)
        if behind is not None:  # the pair that is recorded is one that differs
            both = behind.inputs
            question = replace(question, left=behind.words[0], right=behind.words[1])
        # of samples that were run the library is known: a call to find it is saved
        recorders = [end.recorder for end in ends]
        if samples is not None:
            recorders = [getattr(end, "repeated", end.recorder) for end in ends]
        left, right = (make(inputs) for make, inputs in zip(recorders, both, strict=True))
        if samples is not None and behind is None:
            # both sides' bits are known: neither need be run unwatched again
            piece = samples.pieces[samples.starts.index(samples.first_apart() or 0)]
            for side, outputs in ((left, piece), (right, samples.whole)):
                inner: Any = getattr(side, "inner", side)
                if getattr(inner, "plain_digests", None) is None:
                    inner.plain_digests = [array_digest(array) for array in outputs]
        difference = walk(left, right, explain, tell, match=repeats(ends, both, declared))
        walked = Walked(difference, question, inputs=both if where is None else None)
        difference.notes += model.notes
        if samples is not None:
            difference.take_samples(samples)
        if masked:
            dtypes = [difference.left.values[pair.left].dtype for pair in difference.outputs]
            difference.padded_outputs = [
                each for sample in masked for each in sample.differences(dtypes)
            ]
            which = f"{counted(len(masked), 'sample')} with padding, each cut to its content"
            difference.notes.append(
                f"{which} against the same padded: {counts_text(difference.padded_outputs)}"
            )
            early(difference.notes[-1])
            if behind is not None:  # what is explained is that sample; the batch is only counted
                difference.notes.append(
                    f"each sample alone against the batch: {walked.counts_text()}"
                )
                difference.outputs_by_index, difference.samples = behind.differences(dtypes), None
        walked.script = sides.script(model, where)
        weakref.finalize(walked, running.pop_all().close)
        return walked


def _plain(end: Any, inputs: Arrays) -> list[np.ndarray]:
    return run_unwatched(end.recorder(inputs))


# Of numbers that NumPy has no dtype for: what they are is known of a recorded run.
CONTAINERS = {"uint8", "uint16"}


def repeats(
    ends: Sequence[Any], inputs: tuple[Arrays, Arrays], declared: Iterable[Input]
) -> Matches | None:
    """What matches two runs by repeating them, each where it ran; None: one can't be."""
    sides = [e if hasattr(e, "marks") else getattr(e, "repeated", e.recorder) for e in ends]
    if any(isinstance(end, WholeFile) for end in ends):
        return None
    dtypes = {spec.name: spec.dtype for spec in declared if spec.dtype}
    return by_running((sides[0], sides[1]), inputs, dtypes)


@dataclass(frozen=True)
class MaskedSample:
    """A sample of a batch, cut to what its mask shows against the same with its padding.

    ``inputs``, ``outputs``: of both, the cut one first; ``begin``: where its content stands along
    an axis of ``sizes``, the numbers of entries of both.
    """

    words: tuple[str, str]
    inputs: tuple[Arrays, Arrays]
    outputs: tuple[list[np.ndarray], list[np.ndarray]]
    begin: int
    sizes: tuple[int, int]

    def differences(self, dtypes: Iterable[str]) -> list[OutputDifference]:
        """Compares the outputs at the places of its content by index."""
        differences = []
        for left, right, dtype in zip(*self.outputs, dtypes, strict=False):
            both = zip(left.shape, right.shape, strict=False)
            start = [self.begin if sizes == self.sizes else 0 for sizes in both]
            differences.append(output_difference(left, right, (dtype, dtype), start))
        return differences

    @property
    def apart(self) -> bool:
        """Whether any has different bits."""
        containers = (str(array.dtype) for array in self.outputs[0])
        return any(each.differing for each in self.differences(containers))


def masked_samples(plain: Plain, arrays: Arrays, declared: Any, tell: Say) -> list[MaskedSample]:
    """Runs the samples of a batch whose mask hides their ends, or beginnings, with and without
    what it hides, one by one, as long as there is time. [] without such a mask."""
    name, axes = mask_of_padding(arrays)
    if not name or budget.spent():
        return []
    along, samples = varied_axes("batch", arrays, declared), list[MaskedSample]()
    axes = {other: axis for other, axis in axes.items() if other in along}
    try:
        shown_entries = entries_shown(plain, arrays, name)
    except (Foreign, ProbeError):
        return []
    for sample, row in enumerate(shown_entries):
        shown = np.flatnonzero(row)
        begin, size = int(shown[:1].sum()), len(shown)
        behind = 0 < size < len(row) and bool(row[begin : begin + size].all())
        if along.get(name) != 0 or not behind or budget.spent():
            continue
        tell(f"running sample {sample} without its padding")
        one = first_entries(arrays, along, 1, start=sample)
        both = first_entries(one, axes, size, start=begin), one
        words = f"sample {sample} cut to {size}", f"padded to {len(row)} behind {name}"
        try:
            outputs = foreign(plain, both[0]), foreign(plain, both[1])
        except (Foreign, ProbeError):  # of a fixed length, or what a model may raise
            return []
        samples.append(MaskedSample(words, both, outputs, begin, (size, len(row))))
    return samples


def mask_of_padding(arrays: Arrays) -> tuple[str, dict[str, int]]:
    """The first mask of (samples, positions), and which axis of each input are positions;
    an empty name where there is none."""
    for name, mask in arrays.items():
        if mask.ndim == 2 and mask.dtype.kind in "bi" and is_mask(mask):
            axes = dict[str, int]()
            for other, array in arrays.items():
                later = [axis for axis in range(1, array.ndim) if array.shape[axis] == len(mask[0])]
                axes |= {other: later[0]} if later else {}
            if len(np.unique(mask)) == 2:
                return name, axes
    return "", {}


def entries_shown(plain: Plain, arrays: Arrays, name: str) -> np.ndarray:
    """Which entries of samples a mask shows: bool.

    Transformers' masks are 1 for what counts, PyTorch's are true for padding: of one of bool it is
    found by running of which kind other content, in one place a sample, changes nothing elsewhere.
    """
    true = arrays[name] != 0
    if arrays[name].dtype.kind != "b":
        return true
    before = plain(arrays)

    # not of all places at once: an output may be zero where its sample is hidden
    def reaches(kind: np.ndarray) -> bool:
        where = kind & (np.cumsum(kind, axis=1) == 1)
        changed = dict(arrays)
        for order, (other, array) in enumerate(arrays.items()):
            if other != name and array.shape[:2] == where.shape:
                content = other_content(array, str(array.dtype), 3, order)
                at = where.reshape(*where.shape, *(1,) * (array.ndim - 2))
                changed[other] = np.where(at, content, array).astype(array.dtype)
        for array, again in zip(before, plain(changed), strict=True):
            inside = array.shape[:2] == where.shape
            elsewhere = [a[~where] if inside else a for a in (array, again)]
            if elsewhere[0].tobytes() != elsewhere[1].tobytes():
                return True
        return False

    return ~true if reaches(~true) and not reaches(true) else true


# Runs a model unwatched: its outputs as container arrays.
Plain = Callable[[Arrays], list[np.ndarray]]


# Runs in the same process: what does not repeat its bits has no condition to find.
RUNS = 3


def bisect(model: GivenModel, left: Target, right: Target, tell: Say = silent) -> Conditions:
    """The smallest sets of ``left``'s conditions that bring its outputs back on ``right``.

    ``model``: a file, or ``"module:function"``, which each set of conditions runs in a process of
    its own, on the same inputs; what is compared are the bits of all outputs, with their shapes and
    dtypes. What can't be run whole under some conditions is not known there: its operations one by
    one would be another program. Errors: InputError, also where the function does not repeat its
    own bits at an end.
    """
    text = model.text("between")
    # a function is not imported in this process: it declares no inputs
    arrays = model.arrays(() if is_function(text) else model.opened().inputs)

    def bits_on(where: Target) -> tuple[str, str]:
        digests = list[str]()
        with ExitStack() as running:
            try:
                plain = running.enter_context(model.opened_on(where)).plain
                for _ in range(RUNS):
                    digest = hashlib.sha256()
                    for output in plain(arrays):
                        array = np.ascontiguousarray(output)
                        digest.update(f"{array.dtype} {array.shape}".encode())
                        digest.update(array.tobytes())
                    digests.append(digest.hexdigest()[:12])
            except InputError as error:
                if error.name not in ("target", "model"):
                    raise
                raise TargetError(where.text, "error", error.why) from error
        if (different := len({*digests})) > 1:
            why = f"it does not repeat its bits: {different} results in {RUNS} runs"
            raise TargetError(where.text, "error", why)
        return digests[0], ""

    return search_conditions(left, right, bits_on, tell)


@dataclass(repr=False)
class Recorded(Answer):
    """Holds a recording on disk: ``found`` is read from its folder."""

    found: Run
    bytes: int

    @property
    def made(self) -> Provenance:
        """Where and of what it was made."""
        assert self.found.made is not None
        return self.found.made

    def report(self) -> dict[str, Any]:
        run, provenance = self.found, self.made
        return {
            "folder": str(provenance.folder),
            "subject": provenance.subject,
            "target": run.target,
            "operations_total": len(run.operations),
            "values": len(run.values),
            "bytes": self.bytes,
            "left_out": provenance.left_out,
            "made": provenance.made,
            "notes": [*provenance.notes],
        }

    def lines(self) -> tuple[str, str, str]:
        run, provenance = self.found, self.made
        libraries = provenance.made["libraries"]
        where = ", ".join(f"{name} {version}" for name, version in libraries.items())
        size = f"{counted(len(run.values), 'value')}, {self.bytes:,} bytes"
        size += f"; left out: {provenance.left_out_text}" if provenance.left_out["values"] else ""
        subject = f"{provenance.subject}: " if provenance.subject else ""
        return (
            f"{subject}{counted(len(run.operations), 'operation')} on {run.target} ({where})",
            size,
            "; ".join(provenance.notes) or f"compare: probe diff {provenance.folder} OTHER",
        )

    def shown(self) -> RenderableType:
        return "\n".join((*self.lines(), f"wrote {self.made.folder}"))


@dataclass(frozen=True)
class GivenModel:
    """A model as a user gave it, and what it is run on.

    ``model``: a file, one in memory, a function, or ``"module:function"``. ``inputs``: arrays by
    name or in order, or a .npz file; None: generated from ``seed``, in the model's own shapes, and
    in ``shapes`` where it leaves them open. ``trust``: read a file that runs code of its own.
    """

    model: Any
    inputs: Any = None
    shapes: Mapping[str, tuple[int, ...]] | None = None
    trust: bool = False
    seed: int = 0
    notes: list[str] = field(default_factory=list, compare=False)
    """What ``arrays`` took for what, where names don't say it."""

    def opened(self) -> Opened:
        """What has its inputs and recorders. InputError."""
        return open_model(self.model, self.trust)

    def opened_on(self, where: Target) -> AbstractContextManager[Apart | WholeFile]:
        """What has these in a process of its own, on a target. InputError, TargetError."""
        return opened_on(where, self.text("target"), self.trust)

    @property
    def name(self) -> str:
        return model_name(self.model)

    def text(self, option: str) -> str:
        """The model as another process finds it. InputError: it is in this one alone."""
        model = self.model
        if isinstance(model, str | Path):
            return str(model) if is_function(model) else str(Path(model).resolve())
        why = "a target's switches need a process of their own, and this model is in this one alone"
        todo = "save it as a file, or give module:function"
        raise InputError(option, type(model).__name__, why, todo)

    def require_inputs(self, declared: Sequence[Input], more: str = "") -> None:
        """Refuses a model of whose inputs nothing is known; ``more``: of what size they are."""
        if self.inputs is None and not self.shapes and not declared:
            why = "the model does not describe its inputs"
            todo = f"give --inputs FILE.npz, or --shape 8x64 (generated float32 numbers){more}"
            raise InputError("inputs", "(none)", why, todo)

    def arrays(
        self, declared: Sequence[Input], vary: str | None = None, most: int = 0
    ) -> dict[str, np.ndarray]:
        """The inputs of a model that declares some: given ones, or seeded ones of its own
        shapes, with ``most`` entries where it leaves the axis that is varied open."""
        if self.inputs is None:
            shapes = self.shapes or {}
            return given_inputs.generated_inputs(declared, vary, most, shapes, self.seed)
        if isinstance(self.inputs, str | Path):
            arrays = given_inputs.read_inputs(Path(self.inputs))
        elif isinstance(self.inputs, Mapping):
            arrays = {str(name): array for name, array in self.inputs.items()}
        else:
            several = self.inputs if isinstance(self.inputs, list | tuple) else [self.inputs]
            arrays = {f"input{n}": array for n, array in enumerate(several)}
        arrays = {name: given_inputs.one_array(name, array) for name, array in arrays.items()}
        return given_inputs.in_declared_order(declared, arrays, self.notes)


@typed
def record(
    model: Any,
    out: str | Path,
    *,
    inputs: Mapping[str, np.ndarray] | Sequence[Any] | str | Path | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    target: str | Target | None = None,
    trust: bool = False,
    most: int = MOST_BYTES,
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
) -> Recorded:
    """Runs a model or a function, and keeps every operation's bits in the new folder ``out``.

    ``model``: a function without arguments, ``"module:function"``, or a model file. ``inputs``:
    arrays by name, or a .npz file; generated from ``seed`` where a model file says its inputs'
    shapes, with ``shapes`` for what it leaves open. ``target``: run it in a process of its own with
    this target's switches; ``model`` is a file or ``"module:function"`` then. ``most``: bytes of
    values; of what is beyond them digests are kept. ``trust``: read a file that runs code of its
    own. It is run three times. Errors: InputError; TargetError; Nondeterministic where two runs of
    it differ.
    """
    folder, user_model = Path(out), GivenModel(model, inputs, shapes, trust, seed)
    if progress:
        progress("running it")
    if target is None:
        subject = user_model.opened()
        arrays = user_model.arrays(subject.inputs)
        named = Path(model).name if isinstance(model, str | Path) else ""
        named = str(model) if is_function(model) else named
        with begin_recording(folder) as store:
            run, notes = watch(subject.recorder(arrays), "the run", store)
            write_recording(run, folder, named, most, [*notes, *user_model.notes])
    else:
        with Apart(user_model.text("target"), checked_target(target), trust) as process:
            process.open()
            arrays = user_model.arrays(process.inputs)
            process.record(folder, arrays, most, notes=user_model.notes)
    return Recorded(read_folder(folder), size_of_values(folder))


def record_function(
    function: Callable[[], Any],
    folder: Path,
    bare: tuple[Callable[..., Any], Sequence[Any]] | None = None,
) -> str:
    """Runs a function a few times, watched, and keeps the recording in a new folder. Why there is
    none; empty: there is one.

    ``bare``: as ``function_recorder`` takes it: plain NumPy is watched by the arrays that it is
    called with alone.
    """
    try:
        recorder = function_recorder(function, bare=bare)
        with begin_recording(folder) as store:
            run, notes = foreign(watch, recorder, "the run", store)
            write_recording(run, folder, notes=notes)
        return ""
    except (Foreign, ProbeError) as error:  # what the user's test raises when it is run again, say
        return " ".join(str(error).split())
