"""Commands about a model: all of it (``probe MODEL``), two runs, a run on disk, padding, and what
keeps the bits."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from probe.case.errors import INTERRUPTED, InputError, NotReproduced
from probe.targets import budget
from probe.targets.budget import within
from probe.targets.progress import Reporter
from probe.ui.cli.options import (
    DEFAULT_TARGET,
    PATH,
    TIME,
    ModelRun,
    OptionsByScope,
    case_of_words,
    case_options,
    fail_on_option,
    on_command_line,
    option,
    output_options,
    parsed_targets,
    refuse_case,
    run_options,
    target_option,
)

if TYPE_CHECKING:
    from probe.sweep.printing import Output
    from probe.ui.answers.examine import Learned
    from probe.ui.answers.first_difference import Walked

REPORT = "Write a verified bug report of the first operation that differs into DIR."
UNKNOWN = "or this is unknown because an operation is not supported"


@contextmanager
def running_model(out: Output, what: str) -> Iterator[Reporter]:
    """Progress, while what a user's model prints goes to stderr."""
    with out.progress(what) as tell, redirect_stdout(sys.stderr):
        yield tell


def give_of_model(answer: Any, out: Output) -> None:
    """Prints an answer; values are asked of the model once more, and what it prints then goes to
    stderr."""
    with redirect_stdout(sys.stderr):
        answer_json, text = answer.report(), "" if out.as_json else answer.shown()
    out.give(answer_json, lambda: text)


WHAT = (
    "What to compare: batch (one sample alone against itself in a batch), padding (alone without "
    "padding against padded), chunks (of --at positions, against the whole) or release (--target "
    "against --against-target); batch if not given."
)
LEFT = (
    "The left size, with --ask chunks that of a chunk. If not given: a batch of 1; for padding the "
    "valid part of the first padded sample."
)
RIGHT = "The right size. If not given: all rows, or the full length."
HEADS = {part: part for part in ("outputs", "fix", "cost", "report")}
HEADS |= {"operation": "which", "cause": "why"}


@click.command(
    cls=OptionsByScope, short_help="Which operation of a model differs, why, the fix, its cost."
)
@click.argument("model", metavar="MODEL")
@option("--ask", "WHAT", WHAT)
@option("--at", "N", LEFT)
@option("--against", "N", RIGHT)
@option("--against-target", "U", "Another release, device or library, for --ask release.")
@run_options()
@option("--report folder", "DIR", "Write a verified bug report into DIR.")
@option("--time", "5m", TIME, default="10m")
@target_option(default=None)
@fail_on_option(finding="outputs differ, or it is unknown whether they do")
@output_options
def examine(
    model: str, ask: str | None, run: ModelRun, folder: Path | None, out: Output, **options: Any
) -> int:
    """Finds the operation of MODEL that differs, explains it, tries and times what keeps the bits.

    \b
      probe model.onnx
      probe module:function --inputs x.npz --ask padding
      probe model.keras --report DIR
      probe module:function --inputs x.npz --against-target torch==2.4.0

    MODEL is an .onnx, .keras, .h5, .tflite, .pt2 or .pt file, a SavedModel folder, or
    module:function, which is called with the inputs in order. Every part is printed as soon as it
    is known: which operation, why, what keeps the bits, what it costs, and where the report is.
    """
    from probe.case.arguments import choice, require_unwritten
    from probe.ui.answers import examine as answers

    require_unwritten("report", folder)
    if ask is not None:
        choice("ask", ask, (*answers.ASK, "chunks"))
    if ask == "chunks":
        if options["at"] is None:
            why = "the size of a chunk is not given"
            raise InputError("at", "(none)", why, "write --at 16")
        two = options | {"vary": "schedule", "at": f"chunks:{options['at']}"}
        return give_compared(model, run, two, folder, out)
    options |= run.arguments()
    stdout = sys.stdout  # of the command: what the model prints meanwhile goes to stderr

    def show(part: Learned) -> None:
        if out.as_json:
            return
        text = f"{part.text} [{part.seconds:.0f} s]"
        columns = max(out.results.width - 8, 32)  # beside the heads
        first, *lines_behind = textwrap.wrap(text, columns, break_long_words=False) or [""]
        lines = [f"{HEADS[part.name]:<8}{first}", *(f"{'':<8}{line}" for line in lines_behind)]
        print("\n".join(lines), file=stdout, flush=True)

    with running_model(out, "examine") as tell:
        how: dict[str, Any] = {"out": folder, "part": show, "progress": tell.say}
        diagnosis = answers.examine(model, ask=ask, **options, **how)
        report = diagnosis.report() if out.as_json else {}
    ended = f"; ended early: {diagnosis.ended}" if diagnosis.ended else ""
    out.give(report, lambda: f"{diagnosis.asked}{ended}")
    if diagnosis.ended == "interrupted":
        return INTERRUPTED
    return out.status(diagnosis.found.finding)


VARY = (
    "What differs between two runs of MODEL: batch, length (the axis whose size is not fixed, else "
    "the longest axis), or NAME:AXIS,... of inputs; length if not given. schedule (or "
    "schedule:NAME:AXIS): MODEL in pieces, against the whole."
)
LEFT_SIZE = (
    "The batch or length of the left run. Of a schedule: chunks:C[+overlap:K], "
    "tiles:HxW[+overlap:K], prefix:P; with a state stream:C, cached:P+1*N, draft:D."
)
SIZES = "Of a schedule, further sizes of pieces: which of them have the bits of the whole?"
TRUST = (
    "Allow what runs code: a model file with code of its own (a pickled PyTorch module, a Keras "
    "Lambda layer, custom Keras classes); of two recordings their operations, which are run again "
    "to find causes. Use it only for files whose origin you trust."
)


@click.command(
    cls=OptionsByScope, short_help="Find the first operation at which two runs of a model differ."
)
@click.argument("left", metavar="MODEL|RUN")
@click.argument("right", metavar="[RUN]", required=False, type=PATH)
@option("--vary", "AXIS", VARY)
@option("--at", "A", LEFT_SIZE)
@option(
    "--against",
    "B",
    "The same of the right run. If not given: all of --inputs; the whole model.",
)
@option("--sizes", "1..8", SIZES)
@run_options(trust=TRUST)
@option("--against-target", "U", "A different target for the right run, in its own process.")
@option("--report", "DIR", REPORT)
@option("--time", "5m", TIME)
@option("--explain/--no-explain", None, "Find causes.", default=True)
@target_option(default=None)
@fail_on_option(
    finding="outputs that must agree differ, stand elsewhere or read different inputs, or this is "
    "unknown"
)
@output_options
def diff(
    left: str, right: Path | None, run: ModelRun, report: Path | None, out: Output, **two: Any
) -> int:
    """Finds the first operation whose inputs agree but whose outputs differ, of two runs.

    \b
      probe diff model.onnx --vary batch --at 1 --against 8
      probe diff model.keras --vary length --at 100 --against 128 --inputs x.npz
      probe diff module:function --vary schedule --at chunks:16+overlap:4 --inputs x.npz
      probe diff model.onnx --target onnxruntime --against-target onnxruntime,threads=1
      probe diff run_a run_b

    MODEL is an .onnx, .keras, .h5, .tflite, .pt2 or .pt file, a SavedModel folder, or
    module:function, which is called with the inputs in order. Without --target it runs in this
    process, with the library's defaults. On a target where it can't be recorded (a release of
    another Python, another processor, another library that reads the file) the whole file is run.

    RUN is a recording of `probe record`, from another machine, release, switch or batch.
    Recordings of different models, weights or inputs are refused, and the message names the first
    difference. No code of a recording is run, and no library is needed; with --trust the
    operations that differ are run again to find the causes.
    """
    from probe.case.arguments import require_unwritten
    from probe.ui.answers.first_difference import of_recordings

    require_unwritten("report", report)
    if right is not None:
        words = ("vary", "at", "against", "sizes", "inputs", "shapes", "seed", "target")
        for name in filter(on_command_line, (*words, "against_target")):
            why = "two recordings hold their own inputs and targets"
            raise InputError(name, "(given)", why, "leave it out")
        with out.progress("diff") as tell:
            how = {name: two[name] for name in ("explain", "time")}
            walked = of_recordings(left, right, run.trust, **how, progress=tell.say)
        return give_two_runs(walked, report, out)
    if (Path(left) / "recording.json").is_file():
        todo = "give a second recording; probe record MODEL --out RUN makes one"
        raise InputError("RUN", "(none)", "there is nothing to compare with", todo)
    return give_compared(left, run, two, report, out)


def give_compared(
    model: str, run: ModelRun, two: dict[str, Any], report: Path | None, out: Output
) -> int:
    """Compares two runs of a model, or one in pieces with the whole, as ``two`` says: the exit
    status."""
    from probe.ui.answers.first_difference import Walked
    from probe.ui.answers.network import compared_runs
    from probe.ui.answers.two_runs import GivenModel, refuse_report

    how = {name: two.pop(name) for name in ("explain", "time") if name in two}
    targets = [two.pop("target"), two["against_target"]]
    if report is not None:
        refuse_report(report, model, filter(None, targets), two["vary"])
    with running_model(out, "diff") as tell:
        subject = GivenModel(model, **run.arguments())
        answer = compared_runs(subject, targets[0], two, progress=tell.say, **how)
    if not isinstance(answer, Walked):
        give_of_model(answer, out)
        return out.status(answer.finding)
    return give_two_runs(answer, report, out)


def give_two_runs(walked: Walked, report: Path | None, out: Output) -> int:
    """Prints what two runs came to, with its report where one is asked for: the exit status."""
    from probe.ui.answers.first_difference import DIFFERENT

    first, failed, why = walked.first, "", ""
    if first is None:
        why = "no operation differs"
    elif first.arguments:  # nothing to report: it did what it was asked
        why = f"{DIFFERENT}: {first.arguments}"
    if report is not None and not why:
        written = None
        # what was found stays true, and is printed
        with within(None), budget.Ending(), running_model(out, f"writing {report}") as tell:
            try:
                written = walked.reproduce(report, progress=tell.say)
            except NotReproduced as error:
                failed = why = str(error)
        if written is None:
            why = why or "interrupted"
        elif written.no_case:
            out.note(f"the operation's own script, no case: {written.no_case}")
    give_of_model(walked, out)
    if report is not None:
        out.note(f"no report was written: {why}" if why else f"wrote {report}")
    return NotReproduced.exit_code if failed else out.status(walked.finding)


MOST = "Megabytes of values to store. What is beyond it is stored as digests."


@click.command(cls=OptionsByScope, short_help="Record a run of a model, operation by operation.")
@click.argument("model", metavar="MODEL")
@option("--out folder", "RUN", "The new folder to write.", required=True)
@run_options()
@option("--most", "N", MOST, default=2048)
@target_option(default=None)
@output_options
def record(
    model: str, run: ModelRun, out: Output, folder: Path, most: int, target: str | None
) -> int:
    """Runs a model and stores the inputs and outputs of every operation, to compare two runs later.

    \b
      probe record model.onnx --inputs x.npz --out run_a
      probe record module:function --target torch,threads=1 --out run_b
      probe diff run_a run_b

    MODEL is module:function, which is called with the inputs in order, or a model file as `probe
    diff` takes it. With --target it runs in a process of its own with this target's switches. It
    runs three times, to check that two runs give the same bits and that recording does not change
    them. The folder has no host name, user name or path, and nothing in it is pickled, so you may
    send it to others.
    """
    from probe.ui.answers import two_runs as answers

    with running_model(out, "record") as tell:
        options = {"most": most << 20, "target": target, **run.arguments()}
        recorded = answers.record(model, folder, progress=tell.say, **options)
    out.give(recorded)
    return 0


PADDED = (
    "What is padded: length (the axis whose size is not fixed, else the longest axis), batch, or "
    "NAME:AXIS,... of inputs; length if not given."
)
FIXED = (
    "The full length, to which inputs are usually padded; every shorter padding is compared with "
    "it; that of --inputs if not given. With --vary batch, the number of rows."
)
CONTENT = (
    "Valid lengths of inputs, before padding, such as 1..64; 1, a tenth and a quarter of the full "
    "length if not given."
)
PLAN = (
    "Write plan.json and padded.py into DIR, for all valid lengths up to the longest of --lengths."
)


@click.command(cls=OptionsByScope, short_help="Find how far a model's inputs must be padded.")
@click.argument("model", metavar="MODEL")
@option("--vary", "AXIS", PADDED)
@option("--fixed", "N", FIXED)
@option("--lengths", "1..64", CONTENT)
@option("--value", None, "Value of the padding.", type=float, default=0.0)
@option("--plan", "DIR", PLAN)
@run_options()
@option("--time", "5m", TIME)
@target_option(default=None)
@fail_on_option(finding=f"outputs that read valid data differ or are missing, {UNKNOWN}")
@output_options
def padding(model: str, run: ModelRun, target: str | None, out: Output, **pads: Any) -> int:
    """Finds the shortest padded lengths (or numbers of rows) at which a model keeps its bits.

    \b
      probe fix padding model.onnx --fixed 512 --lengths 1..64 --plan DIR
      probe fix padding model.onnx --vary batch --fixed 32 --lengths 1..8

    For every valid length it finds the shortest padded length that works at all, and the shortest
    one that gives all bits of the full length, on several sets of operands. That one is asked for
    the orders of its sums; an operation that prevents a proof, or every shorter length, is named.
    With --target of a different library, release or processor the whole file is run there.
    """
    from probe.ui.answers import network as answers

    if not (pads["fixed"] or pads["lengths"] or pads["plan"] or run.inputs):
        why, todo = "the size to compare with is not given", "give --fixed N, or --inputs FILE.npz"
        raise InputError("fixed", "(none)", why, todo)
    pads |= run.arguments()
    with running_model(out, "padding") as tell:
        where = target or answers.DEFAULT_TARGET
        answer = answers.network(model, where, progress=tell.say, **pads)
    give_of_model(answer, out)
    return out.status(answer.finding)


LENGTHS = "Of a case: lengths, each compared with the largest. Of a model: valid lengths of inputs."
OF_MODEL = "Of a model: the full length, to which inputs are usually padded."
PADS = (
    "What the numbers of --lengths are: length, or batch (the rows of dense); of a model also "
    "NAME:AXIS. The default is length; for dense, batch."
)
CONTENT_AT = "The valid length at which costs are measured; if not given, a tenth of the largest."


@click.command(
    cls=OptionsByScope, short_help="Measure what keeps the bits at every length, and its cost."
)
@click.argument("model", required=False)
@case_options
@option("--lengths", "5..40,512", LENGTHS)
@option("--fixed", "N", OF_MODEL)
@option("--content", "N", CONTENT_AT)
@option("--only", "pad,stable", "Try only these remedies: their names, or chunks=64.")
@option("--vary", "AXIS", PADS)
@run_options("Of a model: ", seeded=False)
@option("--time", "5m", TIME)
@target_option(default=None)
@fail_on_option(
    finding=f"the order of additions changes with the length and no remedy is exact, {UNKNOWN}"
)
@output_options
def fix(
    model: str | None,
    words: dict[str, str],
    run: ModelRun,
    lengths: list[int] | None,
    target: str | None,
    out: Output,
    **options: Any,
) -> int:
    """Tests and times every remedy that could keep the bits of a case, or of MODEL.

    A remedy is exact if every output is added in the same order and with the same roundings at all
    of the lengths; this does not depend on the operands. It times, in turns, padding to a safe
    length, chunks of one size, float64, one thread, the library's switches and probe.sizes.stable.
    For MODEL (see `probe diff`) it times padding and probe.stable.invariant. A case runs on
    tensorflow if no --target is given, a model on its own library.

    \b
      probe fix --op dense --in-channels 384 --filters 384 --lengths 1..33 --target torch
      probe fix module:function --vary batch --lengths 1,2,5 --fixed 32 --shape x=32x384
    """
    from probe.ui.answers.network import Remedied
    from probe.ui.answers.network import remedies as remedied

    if lengths is None:
        raise InputError("lengths", "(none)", "it is required", "give --lengths 5..40,512")
    (where,) = parsed_targets((target or DEFAULT_TARGET,))
    # some names of remedies hold a comma, and so need spaces around them
    if (only := options["only"]) is not None:
        options["only"] = (only if " " in only.strip() else only.replace(",", " ")).split()
    options |= run.arguments()
    if model is not None:
        refuse_case(words)

    with running_model(out, "fix") as tell:
        subject = case_of_words(words) if model is None else model
        on = where if model is None or target is not None else DEFAULT_TARGET
        answer = remedied(subject, lengths, on, progress=tell, **options)
    if not isinstance(answer, Remedied):
        give_of_model(answer, out)
        return 0  # --fail-on names what remedies find
    out.give(answer)
    return out.status(answer.report()["recommended"] is None)
