"""Command ``probe examine``, which is also ``probe MODEL``."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from probe.cli.network import refuse_written_folder, users_output_to_stderr
from probe.cli.options import (
    PATH,
    ModelRun,
    Words,
    fail_on_option,
    number_of_option,
    option,
    output_options,
    run_options,
    target_option,
)
from probe.errors import INTERRUPTED

if TYPE_CHECKING:
    from probe.answers.examine import Learned
    from probe.printing import Output

WHAT = (
    "What you mean: batch (one sample alone against in a batch), padding (alone without padding "
    "against padded), release (--target against --against-target) or machine (against a "
    "--recording). On a terminal you are asked; else it is batch."
)
RECORDING = "A folder that `probe record MODEL --out RUN` made on the other machine."
REPORT = "Write a verified bug report into DIR."
TIME = "Stop after 5m (90s, 2h, 1h30m); what is known by then stays."
HEADS = {"operation": "which", "cause": "why", "fix": "fix", "cost": "cost", "report": "report"}


@click.command(cls=Words, short_help="Which operation of a model differs, why, the fix, its cost.")
@click.argument("model", metavar="MODEL")
@option("--ask", "WHAT", WHAT)
@option("--at", "A", "The left size; 1 of batches, the valid part of the first padded sample.")
@option("--against", "B", "The right size; all rows, or the full length, if not given.")
@option("--against-target", "U", "Another release, device or library, for --ask release.")
@option("--recording", "RUN", RECORDING, type=PATH)
@run_options()
@option("--report folder", "DIR", REPORT, type=PATH)
@option("--time", "5m", TIME, default="10m", show_default=True)
@target_option()
@fail_on_option(finding="outputs differ, or it is unknown whether they do")
@output_options
def examine(
    model: str,
    ask: str | None,
    target: str,
    run: ModelRun,
    folder: Path | None,
    out: Output,
    **given: Any,
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
    from probe.answers import examine as answers

    own = click.get_current_context().get_parameter_source("target")
    refuse_written_folder(folder)
    given |= {name: number_of_option(name, given[name]) for name in ("at", "against")}
    given |= run.arguments()
    if ask is None and not given["against_target"] and not given["recording"]:
        ask = _question_on_terminal(out)

    stdout = sys.stdout  # what a model prints meanwhile goes to stderr

    def show(one: Learned) -> None:
        if out.as_json:
            return
        columns = max(out.results.width - 8, 32)  # beside the heads
        text = f"{one.text} [{one.seconds:.0f} s]"
        first, *more = textwrap.wrap(text, columns, break_long_words=False) or [""]
        lines = [f"{HEADS[one.name]:<8}{first}", *(f"{'':<8}{line}" for line in more)]
        print("\n".join(lines), file=stdout, flush=True)

    with out.progress("examine") as tell, users_output_to_stderr():
        found = answers.examine(
            *(model, given.pop("inputs"), ask),
            **given,
            target=None if own is click.core.ParameterSource.DEFAULT else target,
            out=folder,
            part=show,
            progress=tell.say,
        )
    with users_output_to_stderr():
        report = found.report() if out.as_json else {}
    out.give(report, lambda: f"{found.asked}{f'; ended early: {found.ended}' * bool(found.ended)}")
    if found.ended == "interrupted":
        return INTERRUPTED
    return out.status(found.found.finding)


def _question_on_terminal(out: Output) -> str | None:
    """Asks on a terminal which question is meant; None where there is no terminal."""
    from probe.answers.examine import ASK

    if out.as_json or not (sys.stdin.isatty() and out.notes.is_terminal):
        return None
    some = [word for word in ASK if word in ("batch", "padding")]
    for at, word in enumerate(some, 1):
        click.echo(f"  {at}  {word}: {ASK[word]}", err=True)
    click.echo("  (release: give --against-target; machine: give --recording)", err=True)
    numbers = click.Choice([str(at) for at in range(1, len(some) + 1)])
    return some[int(click.prompt("What is compared?", "1", type=numbers, err=True)) - 1]
