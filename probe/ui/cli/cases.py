"""Commands about a case: its windows, orders and differences, sweeps, bisections, reductions and
reports."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from probe.case.errors import INTERRUPTED, InputError
from probe.ui.cli.options import (
    AXES,
    PATH,
    TIME,
    VARIED,
    AskedRuns,
    ModelRun,
    OptionsByScope,
    axis_value,
    budget_options,
    case_of_words,
    case_options,
    fail_on_option,
    flag_of,
    kernels_option,
    on_command_line,
    option,
    output_options,
    parsed_targets,
    refuse_case,
    run_options,
    sides_options,
    sized_case,
    target_option,
    zeros_option,
)

if TYPE_CHECKING:
    from probe.sweep.printing import Output


@click.command(cls=OptionsByScope, short_help="Explain why two runs differ, proved by replay.")
@case_options
@target_option()
@sides_options
@option(
    *("--from store", "STORE"),
    "Explain every difference that a sweep stored there, and store the causes.",
)
@kernels_option("none")
@zeros_option
@option("--workers", "N", "With --from: how many processes; one per processor if not given.")
@fail_on_option(
    differing="an output differs",
    finding="an output differs, is added in a different order or rounding, or is not explained",
)
@output_options
def explain(
    runs: AskedRuns, store: Path | None, workers: int | None, out: Output, **how: Any
) -> int:
    """Finds the cause of every difference between two runs of a case, and proves it by replay.

    It reveals the windows, orders and roundings of both runs. A cause is reported only if its
    replay in NumPy gave the bits of both runs. Distances are in ulp, units in the last place. With
    --against-target alone both runs have the same shape.
    """
    from probe.ui.answers import views

    if store is not None:
        runs.refuse_beside(store, *how)
        from probe.explain.causes import explain_store

        if not Path(store).is_dir():
            why = "it is a file" if Path(store).exists() else "there is no such folder"
            raise InputError("from", store, why, "give the folder of a sweep")
        with out.progress("explain") as tell:
            stored = explain_store(store, workers, tell)
        report = stored.to_json() | {"store": str(store)}
        out.give(report, lambda: views.store_causes(report))
        if stored.interrupted:
            return INTERRUPTED
        if stored.failures and not stored.added:
            return 3
        return out.status(stored.causes.total() > 0)
    if workers is not None:
        why, todo = "one process explains two runs", "leave it out, or give --from STORE"
        raise InputError("workers", workers, why, todo)
    from probe.case.arguments import optional_number
    from probe.order.window import axis_of
    from probe.ui.answers.cases import explain as explained

    case, at = case_of_words(runs.words), runs.sides["at"]
    length = optional_number("length", runs.words.get("length"))
    along = axis_of(case, runs.sides["vary"]) == "length"
    if along and length is not None and at not in (None, length):
        why = f"--length {length} contradicts it: with --vary length both mean the left length"
        raise InputError("at", at, why, "leave one out")
    with out.progress(f"explaining {case.label} on {runs.target}"):
        answer = explained(case, runs.target, **runs.sides, **how)
    out.give(answer)
    refused = bool(answer.found.left.refusal or answer.found.right.refusal)
    if out.fail_on == "finding":
        return int(bool(len(answer.found.differing) or answer.found.by_order or refused))
    return out.status(len(answer.found.differing) > 0)


@click.command(cls=OptionsByScope, short_help="Reveal which inputs every output reads.")
@case_options
@target_option()
@fail_on_option(finding="a window is not where the case's padding puts it")
@output_options
def window(words: dict[str, str], target: str, out: Output) -> int:
    """Reveals which inputs every output reads, and compares that with the case's padding.

    This holds for finite operands. An input outside of the window can still reach an output if it
    is infinite or NaN and the kernel multiplies it by zero; such inputs are reported as `reaches`.

    Give the length with --length. With --json, `reads` has for every product the flat index into x
    (of shape `input_shape`), null where it is padding. Only the first filter of a group is shown,
    since all filters of a group read the same inputs.
    """
    from probe.ui.answers.cases import window as revealed

    case, (where,) = sized_case(words), parsed_targets((target,))
    with out.progress(f"reading windows of {where.text}"):
        windows = revealed(case, where)
    out.give(windows)
    return out.status(not windows.same.all())


@click.command(cls=OptionsByScope, short_help="Reveal in which order every output is added.")
@case_options
@target_option()
@fail_on_option(finding="an output is not a sum of its products, or its order did not replay")
@output_options
def order(words: dict[str, str], target: str, out: Output) -> int:
    """Reveals the order and rounding of every output, and replays them bit for bit.

    Give the length with --length. Products are numbered row by row over (kernel, channels); b is
    the bias.
    """
    from probe.ui.answers.cases import order as ordered

    case, (where,) = sized_case(words), parsed_targets((target,))
    with out.progress(f"revealing {case.label} on {where.text}"):
        answer = ordered(case, where)
    out.give(answer)
    report = answer.report()
    return out.status(report["replayed"] < report["outputs"])


SIZES = (
    "What is varied: length, or batch (the rows of dense). The default is length; for dense, batch."
)
UPTO = "The largest size. If not given: 1000000 for lengths, 1024 for batches."
SCAN = "Run all of the N smallest sizes. If not given: 64, and as many more as take some seconds."


@click.command(
    cls=OptionsByScope,
    short_help="The sizes at which a target switches kernels, and which floor you need.",
)
@case_options
@target_option()
@option("--vary", "length|batch", SIZES)
@option("--upto", "N", UPTO)
@option("--scan", "N", SCAN)
@option("--time limit", "5m", TIME)
@fail_on_option(finding="the order changes with the size, or a result contradicts what was assumed")
@output_options
def sizes(
    words: dict[str, str],
    target: str,
    vary: str | None,
    limit: str | None,
    out: Output,
    **search: int | None,
) -> int:
    """Finds the lengths or batches at which the order or rounding of the outputs changes.

    \b
      probe fix sizes --op conv1d --kernel 5 --in-channels 64
      probe fix sizes --op dense --in-channels 384 --filters 384 --upto 128 --target torch

    Sizes at which every row (sample, output) is summed in the same order form a class. The floor is
    the size up to which calls have to be padded so that none leaves the class of the largest size;
    the line shows the two orders in which rows are added below and above it. Classes hold for the
    number of threads that is printed.

    It runs all small sizes, then doubles the size and bisects intervals whose ends differ. A class
    contains only sizes that were run. The assumptions are printed and checked at random sizes;
    sizes that contradict them are examined.
    """
    from probe.targets.budget import within
    from probe.ui.answers.cases import thresholds as searched

    case, (where,) = case_of_words(words), parsed_targets((target,))
    with within(limit), out.progress("sizes") as tell:
        answer = searched(case, where, vary=vary, progress=tell.say, **search)
    measured = answer.found
    out.give(answer)
    return out.status(bool(measured.switches or measured.violations))


WORDS = ["order", "bits"]
WHAT = "order: the order of additions; bits: the bits of all outputs."
KEPT = (
    "Store the results in DIR/<machine>; stored ones are not measured again. Nothing is stored if "
    "not given; --shard and --cluster need it, as their results come in parts."
)


LENGTHS = (
    "The lengths (or batches, ...) to run: 5..64, 5..64:3, 5,7,9..12. Each is compared with the "
    "largest. Layouts are names such as transposed,offset:16; each is compared with contiguous."
)
BY = (
    "bits: compares outputs; order: reveals and compares the order and rounding of their sums, "
    "which is independent of the operands."
)
KEEP = (
    "How many differing outputs of each comparison are stored (the first N and the largest); "
    "1000000 if not given."
)
CONTROL = (
    "Which shapes are run a second time, with different memory alignment, to check that they "
    "repeat: every shape, or only differing ones."
)
SHARD = (
    "Run only the I-th of N parts, for job arrays and CI matrices. Each part has its own folder in "
    "the store; the store can be read as one."
)
CLUSTER = (
    "Run on a cluster: local:2 starts two processes here; tcp://HOST:PORT is a Dask scheduler. "
    "Results are stored here, in one folder for each machine. A target may then include "
    "machine=LABEL."
)
EVENLY = (
    "Stop after 30m (90s, 2h, 1h30m). What runs lies evenly over the whole range of lengths. The "
    "command reports what was left out and continues with it when it is run again."
)


@click.command(
    cls=OptionsByScope, short_help="Find the lengths, batches, ... at which bits differ."
)
@case_options
@option("--lengths --layouts --values values", "5..64", LENGTHS, type=str)
@option("--vary", AXES, VARIED)
@option("--by", "bits|order", BY, default="bits")
@target_option(several=True)
@option("--store folder", "DIR", KEPT)
@option("--keep", "N", KEEP, least=0)
@option("--control", "every|differing", CONTROL, default="every")
@option("--workers", "N", "How many targets run at once; one per processor if not given.")
@option("--shard", "I/N", SHARD, default="1/1")
@option("--cluster", "ADDRESS", CLUSTER)
@option("--time", "30m", EVENLY)
@zeros_option
@fail_on_option(
    differing="an output differs",
    finding="an output differs, or a shape does not repeat its own bits",
)
@output_options
def sweep(
    words: dict[str, str],
    values: str | None,
    targets: tuple[str, ...],
    folder: Path | None,
    out: Output,
    **options: Any,
) -> int:
    """Runs a case at many lengths and compares each with the longest, output by output.

    Outputs that read the same values must agree to the bit. Differences are counted in ulp (units
    in the last place). With --store, Ctrl-C keeps what was measured, and the same command
    continues from there.
    """
    from probe.ui.answers.sweep import sweep as swept

    by = options["by"]
    if values is None and options["vary"] != "layout":
        raise InputError("lengths", "(none)", "it is required", "give --lengths 5..64")
    parts = {"shard": options["shard"] not in (None, "1/1"), "cluster": options["cluster"]}
    if folder is None and any(parts.values()):
        name = next(name for name in parts if parts[name])
        why = "its results come in parts, which would be lost"
        raise InputError(name, options[name], why, "give --store DIR")
    case = case_of_words(words)
    with out.progress("orders" if by == "order" else "sweep", whole=True) as tell:
        answer: Any = swept(case, values, targets, store=folder, progress=tell, **options)
    if answer.vary == "length" and "length" in words:
        out.note(f"length={words['length']} is not used: --lengths says which lengths are run")
    for line in answer.notes:
        out.note(line)
    out.give(answer)
    if answer.interrupted:
        return INTERRUPTED
    if answer.failed:
        return 3
    finding = answer.strange and out.fail_on == "finding"
    return out.status(answer.report()["differing"] > 0 or finding)


BETWEEN = "The release to start from, such as tensorflow==1.2.1."
RELEASES = "Search these releases instead of all that probe knows."


@click.command(
    cls=OptionsByScope, short_help="Find the release or condition that changed the results."
)
@click.argument("model", required=False)
@case_options
@option("--between left", "T", BETWEEN, required=True)
@option("--and right", "T", "The release to end with, such as tensorflow==1.15.0.", required=True)
@option("--what", None, WHAT, type=click.Choice(WORDS), default="order")
@option("--lengths", "5..19", "The lengths to run; the kernel's and the next 14 if not given.")
@option("--releases", "1.0,1.1", RELEASES)
@option("--remove", None, "Remove the releases that had to be installed.", is_flag=True)
@run_options("Of a model: ", seeded=False)
@output_options
def bisect(
    model: str | None,
    words: dict[str, str],
    run: ModelRun,
    left: str,
    right: str,
    out: Output,
    **options: Any,
) -> None:
    """Finds the first release between two whose results differ from those of the first release.

    Missing releases are installed (see `probe targets install`). The search assumes a single
    change; it reports results that contradict this.

    If the two targets differ in switches or devices (`--between numpy,isa=avx2,threads=1 --and
    numpy`), it finds the smallest set of the first one's conditions that brings its results back.
    It does the same for MODEL, a file or module:function, whose outputs are compared bit by bit.
    """
    from probe.targets.target import Target
    from probe.ui.answers import views

    ends, what = (Target.parse(left), Target.parse(right)), options["what"]
    if model is not None:
        refuse_case(words)
        for name in filter(on_command_line, options):
            why = "it is for a case: of a model the bits of its outputs are compared"
            raise InputError(name, "(given)", why, f"leave out --{name}")
        from probe.ui.answers.two_runs import GivenModel
        from probe.ui.answers.two_runs import bisect as model_conditions
        from probe.ui.cli.models import running_model

        with running_model(out, "bisect"):
            conditions = model_conditions(GivenModel(model, **run.arguments()), *ends, out.note)
        report = {"what": "bits", "model": model} | conditions.to_json()
        return out.give(report, lambda: views.conditioned(conditions, "bits"))
    run.refuse_beside_case()
    from probe.case.case import require_length
    from probe.sizes import bisection

    case = case_of_words(words)
    if not case.spatial_rank:
        raise InputError("op", case.op, "releases are compared by length", "use op=matmul")
    shortest = case.effective_kernel[-1]
    values = options["lengths"] or list(range(shortest, shortest + 15))
    require_length(case.with_(length=max(values)))
    report = {"what": what, "case": case.to_json()}
    shown = bisection.ShownByCase(case, values, what)
    if ends[0].name == ends[1].name and not bisection.only_releases(*ends):
        for name in filter(on_command_line, ("releases", "remove")):
            why = "the targets differ in conditions, which are searched without it"
            raise InputError(name, options[name], why, f"leave out --{name}")
        with out.progress("bisect"):
            conditions = bisection.search_conditions(*ends, shown, out.note)
        return out.give(report | conditions.to_json(), lambda: views.conditioned(conditions, what))
    releases = options["releases"]
    how: dict[str, Any] = {"keep": not options["remove"]}
    how["releases"] = [each.strip() for each in releases.split(",")] if releases else ()
    with out.progress("bisect"):
        change = bisection.search_releases(*ends, shown, out.note, **how)
    report |= change.to_json()
    return out.give(report, lambda: views.bisected(report))


@click.command(
    cls=OptionsByScope, short_help="Reduce a case to the smallest one that still differs."
)
@case_options
@target_option()
@sides_options
@budget_options
@output_options
def shrink(runs: AskedRuns, by: str, most: int, out: Output) -> int:
    """Reduces a failing case until any further step would make the difference disappear.

    The smaller case has the same cause (order, rounding, ...). First lengths, kernel, channels,
    filters, batch, stride, dilation, groups and padding become smaller, then the operands simpler.
    Ctrl-C prints the smallest case so far.
    """
    from probe.ui.answers import views
    from probe.ui.answers.reproduce import asked_finding, shrunk_report

    finding, targets = asked_finding(case_of_words(runs.words), runs.target, **runs.sides)
    with out.progress("shrink") as tell:
        tell.limited = True
        report = shrunk_report(finding, targets, by, most, tell)
    out.give(report, lambda: views.shrunk(report, finding.label))
    return INTERRUPTED if report["ended"] == "interrupted" else 0


AVOID = "Don't test which switches and lengths avoid the difference (starts the library for each)."
FORM = "Whose bug form to fill in, or a form's file (.md, .yml); the project's own if not given."
SINCE = "Search the first affected release from this one on; installs releases (torch==2.4.0)."


@click.command(cls=OptionsByScope, short_help="Write a verified folder to attach to a bug report.")
@case_options
@target_option()
@sides_options
@budget_options
@option("--out folder", "DIR", "The folder to write.", required=True)
@option("--no-avoid avoid", None, AVOID, is_flag=True, default=True, flag_value=False)
@option(
    "--time limit", "5m", "Stop after 5m (90s, 2h, 1h30m); half of that is for reducing the case."
)
@option("--keep", None, "Don't reduce the case and its operands.", is_flag=True)
@option("--form", "NAME|FILE", FORM)
@option("--since", "T", SINCE)
@option("--times", "N", "How many fresh processes must confirm the script.", default=3)
@kernels_option("said")
@output_options
def report(runs: AskedRuns, folder: Path, out: Output, **options: Any) -> None:
    """Reduces a case, explains it, verifies a script in fresh processes, and writes a bug report.

    DIR gets report.md (in the bug form of the library's project, the shortest script first) and its
    attachments: reproduce.py (imports the library and NumPy alone), machine.json, and for sums
    order.png and emulated.py (imports NumPy alone). Nothing is written unless every process
    confirms the script.
    """
    from probe.targets.budget import within
    from probe.ui.answers.reproduce import reproduce

    for name in ("by", "most") if options["keep"] else ():
        if on_command_line(name):
            todo = f"leave out {flag_of(name)}, or --keep"
            raise InputError(name, options[name], "--keep tries no smaller case", todo)
    case, how = case_of_words(runs.words), {**runs.sides, **options}
    with within(how.pop("limit")), out.progress(f"reproducing {case.label}") as tell:
        answer = reproduce(case, runs.target, out=folder, progress=tell.say, **how)
    out.give(answer)
    if "order.png" not in answer.found.files and not find_spec("matplotlib"):
        out.note("order.png is left out: Matplotlib is not installed (pip install matplotlib)")


@click.command(cls=OptionsByScope, short_help="Check whether a reported difference still occurs.")
@click.argument("folder", metavar="DIR", type=PATH)
@option("--times", "N", "How many fresh processes run the script.", default=3)
@option("--trust", None, "Run DIR/reproduce.py: you wrote it, or trust it.", is_flag=True)
@fail_on_option(there="it still occurs", gone="it no longer occurs")
@output_options
def verify(folder: Path, times: int, trust: bool, out: Output) -> int:
    """Runs a report's script again: the difference still occurs, is gone, or unknown (status 3)."""
    from probe.report.proof import CANNOT_TELL
    from probe.report.proof import verify as verified
    from probe.sweep.printing import as_json
    from probe.ui.answers import views

    with out.progress(f"running {folder}"):
        verification = verified(folder, times, trust=trust)
    report = as_json(verification)
    out.give(report, lambda: views.verified(report))
    if verification.verdict == CANNOT_TELL:
        return 3
    return out.status(verification.verdict.endswith(out.fail_on or ""))


@click.command(
    cls=OptionsByScope, short_help="Write a file that replays a run's bits with NumPy alone."
)
@case_options
@target_option()
@option("--out file", "FILE", "The Python file to write.", required=True)
@option("--against", "B", "Add the run at this length (or batch, ...) to the file.")
@option("--vary", "AXIS", "What --against varies; length if not given (dense: batch).")
@output_options
def emulate(
    words: dict[str, str], target: str, file: Path, out: Output, **sides: str | None
) -> None:
    """Writes a Python file that computes a run's outputs with the same bits on any machine.

    The order and roundings of every output are revealed for this. Give the length with --length.
    With --against the file has both runs, and prints the outputs that must agree but differ.
    """
    from probe.ui.answers.reproduce import emulated_report

    case, (where,) = sized_case(words), parsed_targets((target,))
    vary = sides["vary"]
    if vary is not None and sides["against"] is None:
        why = "there is no second run that it could vary"
        raise InputError("vary", vary, why, "give --against B, or leave it out")
    against = axis_value("against", sides["against"], vary)
    with out.progress(f"revealing {case.label} on {where.text}"):
        report = emulated_report(case, where, file, against, vary)
    outputs = sum(run["outputs"] for run in report["runs"])
    text = f"wrote {file}: {report['bytes'] / 1024:,.0f} KiB, "
    text += f"{report['replayed']:,} of {outputs:,} outputs replay\n"
    out.give(report, lambda: f"{text}run it anywhere with NumPy: python {file}")
