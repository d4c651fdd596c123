"""``probe sweep``: runs a case at many values of an axis, compares with the longest, stores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from probe.cli import numbers
from probe.cli.by_order import sweep_by_order
from probe.cli.options import (
    case_of,
    case_options,
    fail_on_option,
    number,
    output_options,
    target_option,
    targets_of,
)
from probe.cli.shell import INTERRUPTED

if TYPE_CHECKING:
    from probe.case import Case
    from probe.cli.output import Output
    from probe.store import Store
    from probe.sweep.summary import Summary

DEFAULT_STORE = Path("results", "sweep")


@click.command(short_help="Where bits differ along an axis, and by how much.")
@case_options
@click.option(
    "--lengths",
    "--values",
    "values",
    metavar="5..64",
    required=True,
    help="Values of the axis: 5..64, 5..64:3, 5,7,9..12. Each is compared with the largest.",
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
    values: str,
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
    from probe import sweep as room
    from probe.cli.show import sweeps
    from probe.window import axis_of

    case = case_of(words)
    vary = axis_of(case, vary)
    wanted = numbers.parse(_named(vary), values)
    if vary == "length" and "length" in words:
        out.note(f"length={words['length']} is not used: --lengths says which lengths are run")
    chosen = targets_of(targets)
    limits = {"keep": number("keep", keep), "workers": number("workers", workers)}
    _check(case, vary, wanted, control, by)
    store = None if no_store else _store(folder)
    if by == "order":
        return sweep_by_order(case, chosen, wanted, vary, store, fail_on, out)
    with out.progress("sweep") as tell:
        found = room.sweep(
            [case],
            chosen,
            wanted,
            vary,
            store,
            control=control,
            workers=limits["workers"],
            keep=limits["keep"],
            progress=lambda now: tell(now.done, now.total, now.target),
        )
    if store is not None and not found.interrupted:
        store.compact()
    report = _report(found, case)
    out.give(report, lambda: sweeps.summary(found, case, wanted[:-1], out.verbose))
    return _status(found, fail_on)


def _named(vary: str) -> str:
    return "lengths" if vary == "length" else f"{vary} values"


def _check(case: Case, vary: str, values: list[int], control: str, by: str) -> None:
    """Says what does not fit before a store is opened."""
    from probe.case.arguments import choice
    from probe.sweep.plan import Plans, axis_values

    choice("control", control, ("every", "differing"))
    choice("by", by, ("bits", "order"))
    shorter, against = axis_values(values, vary)
    Plans([case], vary, shorter, against)


def _store(folder: Path) -> Store:
    from probe.store import Store

    return Store.here(folder)


def _report(found: Summary, case: Case) -> dict[str, Any]:
    """What ``--json`` prints: with several targets, their totals beside them."""
    report = found.to_json()
    if "targets" in report:
        parts = list(report["targets"].values())
        for name in ("compared", "differing", "not_compared", "comparisons", "stored_before"):
            report[name] = sum(part[name] for part in parts)
        ulps = [part["max_ulp"] for part in parts if part["max_ulp"] is not None]
        report["max_ulp"] = max(ulps) if ulps else None
        report["failures"] = [
            {"target": name} | failure
            for name, part in report["targets"].items()
            for failure in part["failures"]
        ]
    return report | {"case": case.to_json()}


def _status(found: Summary, fail_on: str | None) -> int:
    """Ctrl-C; then a target of which nothing could be measured; then a finding."""
    if found.interrupted:
        return INTERRUPTED
    if any(one.failures and not one.comparisons for one in found.targets.values()):
        return 3
    strange = any(one.nondeterministic for one in found.targets.values())
    return int(bool(fail_on and (found.differing or (fail_on == "finding" and strange))))
