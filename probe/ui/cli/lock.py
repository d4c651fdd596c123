"""Commands ``probe check``, what it checks (``lock``, ``setup``), and ``demo``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from probe.case.errors import InputError
from probe.ui.cli.models import running_model
from probe.ui.cli.options import (
    PATH,
    ModelRun,
    Shared,
    Words,
    case_options,
    option,
    output_options,
    run_options,
    sized_case,
)

if TYPE_CHECKING:
    from probe.sweep.printing import Output

LOCK = "The lock; bits.lock in this folder if not given."
WHY = (
    "Causes to look for: here: of changed bits, with what is here (default); all: also of unknown "
    "ones; install: also by installing old releases; no: none."
)
TARGET = "Run it with this target's switches (see `probe targets`); a case: on this target (numpy)."
TRUST = (
    "Run the code that the lock names: functions, which are imported, and models' files that run "
    "code. Use it only for a lock whose origin you trust."
)


@click.command(cls=Words, short_help="Keep the bits of a model or a case in bits.lock.")
@click.argument("model", metavar="[MODEL]", required=False)
@option("--name", "NAME", "The check's name; MODEL, or the case in words, if not given.")
@option("--lock path", "FILE", LOCK, type=PATH, default="bits.lock")
@option("--bless", "REASON", "Replace bits that changed; the reason is kept in the lock.")
@run_options(seeded=False)
@option("--target", "T", TARGET, cls=Shared)
@case_options
@output_options
def lock(
    model: str | None,
    words: dict[str, str],
    run: ModelRun,
    path: Path,
    out: Output,
    **options: str | None,
) -> None:
    """Runs a model or a case, and keeps its bits with the conditions that they have here.

    \b
      probe check lock model.onnx --inputs x.npz
      probe check lock package:function --shape 8x64 --target torch,threads=1
      probe check lock --op matmul --in-channels 768 --filters 64 --length 8
      probe check

    bits.lock has a line for each accepted value, with the conditions: library releases, processor,
    BLAS core, threads, flags. Tests add theirs by `pytest --bits-update`.
    """
    from probe.case.arguments import whole_number
    from probe.ui.answers.answer import command_line
    from probe.ui.lock import checks, runs

    case, bless, seed = None, options["bless"], words.get("seed", "0")
    if model is None and (set(words) - {"seed"}):
        case = sized_case(words)
        run.refuse_beside_case()
    elif set(words) - {"seed"}:
        raise InputError("model", model, "a case is given too", "give one of the two")
    more = {
        "inputs": str(run.inputs or ""),
        "shapes": " ".join(run.shapes),
        "seed": str(whole_number("seed", seed, least=0)) if model else "",
    }
    spec = runs.how_computed(model, case, options["target"], more)
    called = options["name"] or model or (command_line(case) if case is not None else "")
    if bless is not None and not bless.strip():
        raise InputError("bless", bless, "a reason is required", "say why the bits changed")
    with running_model(out, "lock") as tell:
        results = runs.lock_run(path, called, spec, bless, tell.say, trust=run.trust)
    lines = [f"{result.check}: {result.bits.text}: {SAID[result.verdict]}" for result in results]
    out.give(checks.json_report(results), lambda: "\n".join(lines))


SAID = {
    "same": "accepted already",
    "new": "added",
    "unknown": "added for these conditions",
    "changed": "replaced",
}


@click.command(cls=Words, short_help="Check the bits of models and cases against bits.lock.")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@option("--lock path", "FILE", LOCK, type=PATH, default="bits.lock")
@option("--why", "WHICH", WHY, default="here", type=click.Choice(["here", "all", "install", "no"]))
@option(
    *("--report reports", "FORMAT"),
    "Also write bits-report.FORMAT (json, markdown or github: annotations), or FORMAT=FILE.",
    multiple=True,
)
@option("--trust", None, TRUST, is_flag=True)
@output_options
def check(
    names: tuple[str, ...],
    path: Path,
    why: str,
    reports: tuple[str, ...],
    trust: bool,
    out: Output,
) -> int:
    """Runs what `probe check lock` added, and compares its bits with those that are accepted.

    What changed is run again under the entry's conditions, until its bits return: the cause is the
    processor, a release, threads, a flag, or your code. Exits with 0: the same; 1: changed; 3:
    unknown, as no entry is of these conditions.
    """
    from probe.ui.lock import checks, runs

    for each in reports:
        if each.partition("=")[0] not in checks.ENDINGS:
            known = ", ".join(checks.ENDINGS)
            raise InputError("report", each, "there is no such format", f"use one of {known}")
    with running_model(out, "check") as tell:
        try:
            results = runs.check_runs(path, names, why, tell.say, trust=trust)
        except InputError as error:
            for each in reports:
                checks.write_report(each, Path(), (), error=str(error))
            raise
    for each in reports:
        checks.write_report(each, Path(), results)
    lines = checks.terminal_lines(results, (), (), update=False)
    out.give(checks.json_report(results), lambda: "\n".join(lines))
    return runs.exit_status(results)


@click.command(cls=Words)
@output_options
def demo(out: Output) -> None:
    """Shows how one bit moves: a report's outputs, recomputed with NumPy in both orders."""
    from probe.ui.answers import demo as shown

    out.give(shown.demo_json(), shown.demo_text)


@click.command(cls=Words, short_help="Copy a workflow that checks bits.lock in CI.")
@click.argument("service", metavar="github")
@option(
    *("--out folder", "DIR", "The repository, or a folder in it."),
    type=PATH,
    default=".",
)
@output_options
def setup(service: str, out: Output, folder: Path) -> None:
    """Copies a workflow that runs pytest under several instruction sets on one runner.

    It is copied where GitHub looks, at the repository's root, and is yours to edit: what pip
    installs, and the folder of the tests. It prints a Markdown summary and annotates the lines of
    checks that changed.
    """
    from probe.ui.lock import workflow

    if service != "github":
        raise InputError("service", service, "there is no such service", "use github")
    file = workflow.WORKFLOW.as_posix()
    workflow.copy_workflow(folder)
    said = f"{file} was written at the repository's root; edit its PROBE, NEEDS and FOLDER"
    out.give({"file": file}, lambda: f"{said}, and commit it with bits.lock")
