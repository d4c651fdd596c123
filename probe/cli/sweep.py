"""``probe sweep``: runs a case at many values of an axis, compares with the longest, stores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from probe.cli import numbers
from probe.cli.options import (
    Words,
    ask_for,
    axis_given,
    case_of,
    case_options,
    fail_on_option,
    has_length,
    number,
    output_options,
    target_option,
    targets_of,
)
from probe.cli.shell import INTERRUPTED

if TYPE_CHECKING:
    from probe.cli.output import Output
    from probe.sweep.summary import Summary

DEFAULT_STORE = Path("results", "sweep")


@click.command(cls=Words, short_help="Where bits differ along an axis, and by how much.")
@case_options
@click.option(
    "--lengths",
    "--values",
    "values",
    metavar="5..64",
    help="Values of the axis: 5..64, 5..64:3, 5,7,9..12. Each is compared with the largest. "
    "--length 5..64 says the same.",
)
@click.option(
    "--vary",
    metavar="AXIS",
    help="The axis: length, batch, filters or channels; length if not given (dense: batch).",
)
@click.option(
    "--by",
    metavar="WHAT",
    default="bits",
    show_default=True,
    help="bits: outputs are compared; order: the order and rounding of their sums are revealed and "
    "compared, whatever the operands.",
)
@target_option(several=True)
@click.option(
    "--store",
    "folder",
    metavar="DIR",
    type=click.Path(path_type=Path),
    default=DEFAULT_STORE,
    show_default=True,
    help="Where results are kept, in DIR/<machine>. What is there is not measured again.",
)
@click.option("--no-store", is_flag=True, help="Keep nothing.")
@click.option(
    "--keep",
    metavar="N",
    help="Differing outputs stored of each comparison (the first N and the largest); "
    "all if not given.",
)
@click.option(
    "--control",
    metavar="WHICH",
    default="every",
    show_default=True,
    help="every: each shape runs again, from another alignment too; differing: only "
    "those that differ.",
)
@click.option(
    "--workers",
    metavar="N",
    help="Targets side by side; as many as there are processors if not given.",
)
@fail_on_option(
    differing="an output differs",
    finding="an output differs, or a shape does not repeat its own bits",
)
@output_options
def sweep(
    words: dict[str, str],
    values: str | None,
    vary: str | None,
    by: str,
    targets: tuple[str, ...],
    folder: Path,
    no_store: bool,
    keep: str | None,
    control: str,
    workers: str | None,
    fail_on: str | None,
    out: Output,
) -> int:
    """Runs a case at many lengths and compares each with the longest, output by output.

    Outputs whose windows hold the same values must agree, to the bit; those that don't are counted
    in ulps. Ctrl-C keeps what was measured, and the same command again goes on from there.
    """
    from probe.answers.sweep import SweptByOrder
    from probe.answers.sweep import sweep as swept
    from probe.cli.show import by_order, sweeps
    from probe.errors import InputError
    from probe.window import axis_of

    axis = axis_given(words, vary)
    if values is None and axis == "length":
        values = words.pop("length", None)
    name, known = _named(axis), axis == "length" or has_length(words)
    need = {"length": (known, "--length N")}
    ask_for(words, **need, lengths=(values is not None, "--lengths 5..64"))
    if values is None:
        raise InputError("lengths", "(none)", "it is needed", "give --lengths 5..64")
    case, wanted = case_of(words), numbers.parse(name, values)
    vary = axis_of(case, vary)
    if vary == "length" and "length" in words:
        out.note(f"length={words['length']} is not used: --lengths says which lengths are run")
    chosen = targets_of(targets)
    kept, side_by_side = number("keep", keep), number("workers", workers)
    with out.progress("orders" if by == "order" else "sweep") as tell:
        found = swept(
            *(case, wanted, chosen),
            vary=vary,
            by=by,
            store=None if no_store else folder,
            control=control,
            progress=tell,
            keep=kept,
            workers=side_by_side,
        )
    report = found.report()
    if isinstance(found, SweptByOrder):
        out.give(report, lambda: by_order.summary(found.found.targets, report, wanted))
        return 3 if found.failed else int(bool(fail_on) and report["differing"] > 0)
    summary = found.found
    out.give(report, lambda: sweeps.summary(summary, case, wanted[:-1], out.verbose))
    return _status(summary, fail_on)


def _named(vary: str) -> str:
    return "lengths" if vary == "length" else f"{vary} values"


def _status(found: Summary, fail_on: str | None) -> int:
    """Ctrl-C; then a target of which nothing could be measured; then a finding."""
    if found.interrupted:
        return INTERRUPTED
    if any(one.failures and not one.comparisons for one in found.targets.values()):
        return 3
    strange = any(one.nondeterministic for one in found.targets.values())
    return int(bool(fail_on and (found.differing or (fail_on == "finding" and strange))))
