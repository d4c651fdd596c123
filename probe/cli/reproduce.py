"""Commands ``probe shrink``, ``reproduce``, ``verify`` and ``emulate``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from probe.cli.options import (
    PATH,
    AskedRuns,
    Words,
    axis_value,
    budget_options,
    case_options,
    fail_on_option,
    flag_of,
    number_of_option,
    on_command_line,
    option,
    output_options,
    parsed_targets,
    sides_options,
    sized_case,
    target_option,
)
from probe.errors import INTERRUPTED, InputError
from probe.options import OPTIONS

if TYPE_CHECKING:
    from probe.comparison import Finding
    from probe.printing import Output
    from probe.reproduction.content import FurtherTarget
    from probe.target import Target


KERNELS = f"Which kernels to name in the report. {OPTIONS['kernels'].help}"


@click.command(cls=Words, short_help="Reduce a case to the smallest one that still differs.")
@case_options
@target_option()
@sides_options()
@budget_options
@output_options
def shrink(runs: AskedRuns, by: str, most: str, any_cause: bool, out: Output) -> int:
    """Reduces a failing case until any further step would make the difference disappear.

    The smaller case has the same cause (order, rounding, ...), and the same kernels where the
    library names them. First lengths, kernel, channels, filters, batch, stride, dilation, groups
    and padding become smaller, then the operands simpler. Ctrl-C prints the smallest case so far.
    """
    from probe.answers.reproduce import shrunk_report
    from probe.cli.show import reproductions as show

    finding, targets = runs.finding()
    with out.progress("shrink") as tell:
        tell.limited = True
        report = shrunk_report(
            finding, targets, by, number_of_option("most", most) or 0, any_cause, tell
        )
    out.give(report, lambda: show.shrunk(report, finding.label))
    return INTERRUPTED if report["ended"] == "interrupted" else 0


AVOID = "Don't test which switches and lengths avoid the difference (starts the library for each)."
ALSO = "Test the reduced case on this target too, for the report; may be given several times."


@click.command(cls=Words, short_help="Write a verified folder to attach to a bug report.")
@case_options
@target_option()
@sides_options()
@budget_options
@option("--out folder", "DIR", "The folder to write.", required=True, type=PATH)
@option("--force", None, "Write into DIR even if it has files.", is_flag=True)
@option("--no-avoid avoid", None, AVOID, is_flag=True, default=True, flag_value=False)
@option(
    *("--from store", "STORE", "Take a stored difference: the largest one, or --row N."),
    type=PATH,
)
@option("--row", "N", "With --from: the row of the table `comparisons`, from 0.")
@option("--time limit", "5m", "Reduce no further and try no switch after 5m (90s, 2h, 1h30m).")
@option("--keep", None, "Don't reduce the case and its operands.", is_flag=True)
@option("--form", "NAME", "Whose bug form to fill in; that of the target's project if not given.")
@option("--also", "T", ALSO, multiple=True)
@option(
    *("--times", "N", "How many fresh processes must confirm the script."),
    default="3",
    show_default=True,
)
@option("--kernels", "WHICH", KERNELS, default="all", show_default=True)
@output_options
def reproduce(
    runs: AskedRuns, store: Path | None, folder: Path, limit: str | None, out: Output, **given: Any
) -> None:
    """Reduces a case, explains it, verifies a script in fresh processes, and writes a bug report.

    DIR gets report.md (in the bug form of the library's project, the shortest script first) and its
    attachments: reproduce.py (imports the library and NumPy alone), machine.json, and for sums
    order.png and emulated.py (imports NumPy alone). Nothing is written unless every process
    confirms the script.
    """
    from probe.answers.reproduce import write_reproduced
    from probe.budget import within
    from probe.cli.show import reproductions as show
    from probe.explaining.evidence import checked_kernels
    from probe.reproduction import folder as room
    from probe.reproduction.report import form_of

    for name in ("by", "most", "any_cause") if given["keep"] else ():
        if on_command_line(name):
            todo = f"leave out {flag_of(name)}, or --keep"
            raise InputError(name, given[name], "--keep tries no smaller case", todo)
    form, kernels = given.pop("form"), given.pop("kernels")
    checked_kernels(kernels)
    room.fresh(folder, given.pop("force"))
    given |= {name: number_of_option(name, given[name]) for name in ("most", "times")}
    given["also"] = parsed_targets(given["also"])
    finding, (left, right), others = _finding_to_reproduce(runs, store, given.pop("row"))
    form_of(left, form)
    with within(limit), out.working(f"reproducing {finding.label}") as tell:
        made = room.reproduce(
            *(finding, left, right),
            elsewhere=others,
            tell=tell.say,
            **given,
        )
    with out.working(f"writing {folder}"):
        report = write_reproduced(made, folder, form, kernels).report()
    out.give(report, lambda: show.reproduction(report))


def _finding_to_reproduce(
    runs: AskedRuns, store: Path | None, row: str | None
) -> tuple[Finding, tuple[Target, Target], Sequence[FurtherTarget]]:
    """Returns what is reproduced, and who else has it. Raises InputError, StoreError."""
    from probe.arguments import whole_number

    if store is None:
        if row is not None:
            raise InputError("row", row, "it names a row of a store", "give --from STORE too")
        return (*runs.finding(), ())
    runs.refuse_beside(store)
    from probe.reproduction.content import stored_finding

    found = stored_finding(store, None if row is None else whole_number("row", row, least=0))
    return found.finding, (found.target, found.target), found.elsewhere


@click.command(cls=Words, short_help="Check whether a reported difference still occurs.")
@click.argument("folder", metavar="DIR", type=PATH)
@option("--times", "N", "How many fresh processes run the script.", default="3", show_default=True)
@fail_on_option(there="it still occurs", gone="it no longer occurs")
@output_options
def verify(folder: Path, times: str, out: Output) -> int:
    """Runs a report's script again: the difference still occurs, is gone, or unknown (status 3)."""
    from probe.cli.show import reproductions as show
    from probe.printing import as_json
    from probe.reproduction.proof import CANNOT_TELL
    from probe.reproduction.proof import verify as verified

    count = number_of_option("times", times) or 1
    with out.working(f"running {folder}"):
        found = verified(folder, count)
    told = as_json(found)
    out.give(told, lambda: show.verified(told))
    if found.verdict == CANNOT_TELL:
        return 3
    return out.status(found.verdict.endswith(out.fail_on or ""))


@click.command(cls=Words, short_help="Write a file that replays a run's bits with NumPy alone.")
@case_options
@target_option()
@option("--out file", "FILE", "The Python file to write.", required=True, type=PATH)
@option("--against", "B", "Add the run at this length (or batch, ...) to the file.")
@option("--vary", "AXIS", "What --against varies; length if not given (dense: batch).")
@option("--partial", None, "Leave out outputs whose replay gave different bits.", is_flag=True)
@output_options
def emulate(
    words: dict[str, str],
    target: str,
    file: Path,
    partial: bool,
    out: Output,
    **sides: str | None,
) -> None:
    """Writes a Python file that computes a run's outputs with the same bits on any machine.

    The order and roundings of every output are revealed for this. Give the length with --length.
    With --against the file has both runs, and prints the outputs that must agree but differ.
    """
    from probe.answers.reproduce import emulated_report
    from probe.cli.show import reproductions as show

    case, (where,) = sized_case(words), parsed_targets((target,))
    vary = sides["vary"]
    if vary is not None and sides["against"] is None:
        why = "there is no second run that it could vary"
        raise InputError("vary", vary, why, "give --against B, or leave it out")
    other = axis_value("against", sides["against"], vary)
    with out.working(f"revealing {case.label} on {where.text}"):
        found = emulated_report(case, where, file, other, vary, partial)
    out.give(found, lambda: show.emulated_file(found))
