"""``probe sweep`` and ``probe bisect``: where bits differ, and since which release."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from probe.cli.options import (
    PATH,
    VARY,
    Words,
    ask_for,
    axis_given,
    case_of,
    case_options,
    fail_on_option,
    has_length,
    number,
    numbers,
    option,
    output_options,
    target_option,
    targets_of,
    zeros_option,
)
from probe.errors import INTERRUPTED, InputError

if TYPE_CHECKING:
    from probe.printing import Output
    from probe.sweep.bits import Summary

BY = (
    "bits: outputs are compared; order: the order and rounding of their sums are revealed and "
    "compared, for all finite operands."
)
VALUES = (
    "Values of the axis: 5..64, 5..64:3, 5,7,9..12. Each is compared with the largest. --length "
    "5..64 says the same. Layouts are words such as transposed,offset:16, each compared with "
    "contiguous; all that the targets keep if not given."
)
KEEP = (
    "Differing outputs stored of each comparison (the first N and the largest); all if not given."
)
CONTROL = (
    "every: each shape runs again, from another alignment too; differing: only those that differ."
)
SHARD = (
    "Ask the I-th of N parts of the values and keep it in a folder of its own, for job arrays and "
    "CI matrices; the folder above reads as one run's."
)
CLUSTER = (
    "Nodes run it: local:2 starts two processes here; tcp://HOST:PORT is a Dask scheduler. What "
    "they find is kept here, by their machines. A target may then say machine=LABEL."
)
TIME = (
    "Ask for 30m (90s, 2h, 1h30m): what is likely to differ first, by other targets, stored "
    "results and neighbouring lengths. Says what was left out; the same command goes on with it."
)
WHAT = (
    "order: how outputs are added; bits: of all outputs; stability: which lengths differ from the "
    "longest."
)
KEPT = "Where results are kept, in DIR/<machine>. What is there is not measured again."
STORE: dict[str, Any] = {"type": PATH, "show_default": True}


@click.command(cls=Words, short_help="Where bits differ along an axis, and by how much.")
@case_options
@option("--lengths --layouts --values values", "5..64", VALUES)
@option("--vary", "AXIS", VARY)
@option("--by", "WHAT", BY, default="bits", show_default=True)
@target_option(several=True)
@option("--store folder", "DIR", KEPT, default=Path("results", "sweep"), **STORE)
@option("--no-store", None, "Keep nothing.", is_flag=True)
@option("--keep", "N", KEEP)
@option("--control", "WHICH", CONTROL, default="every", show_default=True)
@option("--workers", "N", "Targets side by side; as many as there are processors if not given.")
@option("--shard", "I/N", SHARD, default="1/1")
@option("--cluster", "ADDRESS", CLUSTER)
@option("--time", "30m", TIME)
@zeros_option
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
    zeros: str,
    shard: str,
    cluster: str | None,
    time: str | None,
    workers: str | None,
    fail_on: str | None,
    out: Output,
) -> int:
    """Runs a case at many lengths and compares each with the longest, output by output.

    Outputs whose windows hold the same values must agree, to the bit; those that don't are counted
    in ulps. Ctrl-C keeps what was measured, and the same command again goes on from there.
    """
    from probe.answers import sweep as answers
    from probe.cli.show import sweeps
    from probe.window import axis_of

    axis = axis_given(words, vary)
    if values is None and axis == "length":
        values = words.pop("length", None)
    known = axis == "length" or has_length(words)
    asked = values is not None or axis == "layout"
    need = {"length": (known, "--length N"), "lengths": (asked, "--lengths 5..64")}
    ask_for(words, **need)
    if not asked:
        raise InputError("lengths", "(none)", "it is needed", "give --lengths 5..64")
    case = case_of(words)
    wanted: list[int] | list[str] | None = None
    if axis != "layout":
        wanted = numbers("lengths" if axis == "length" else f"{axis} values", values or "")
    elif values is not None:
        wanted = values.split(",")
    vary = axis_of(case, vary)
    if vary == "length" and "length" in words:
        out.note(f"length={words['length']} is not used: --lengths says which lengths are run")
    chosen = targets_of(targets) if cluster is None else targets
    kept, side_by_side = number("keep", keep), number("workers", workers)
    with out.progress("orders" if by == "order" else "sweep") as tell:
        found = answers.sweep(
            *(case, wanted, chosen),
            vary=vary,
            by=by,
            store=None if no_store else folder,
            control=control,
            progress=tell,
            keep=kept,
            workers=side_by_side,
            zeros=zeros,
            shard=shard,
            cluster=cluster,
            time=time,
        )
    report = found.report()
    if isinstance(found, answers.SweptByOrder):
        out.give(report, lambda: sweeps.by_order(found.found.targets, report, found.values))
        return 3 if found.failed else int(bool(fail_on) and report["differing"] > 0)
    for line in found.notes:
        out.note(line)
    summary = found.found
    out.give(report, lambda: sweeps.summary(summary, case, found.values[:-1], out.verbose))
    return _status(summary, fail_on)


def _status(found: Summary, fail_on: str | None) -> int:
    """Returns 130 after Ctrl-C, 3 where a target gave nothing, 1 for a finding, else 0."""
    if found.interrupted:
        return INTERRUPTED
    if any(one.failures and not one.comparisons for one in found.targets.values()):
        return 3
    strange = any(one.nondeterministic for one in found.targets.values())
    return int(bool(fail_on and (found.differing or (fail_on == "finding" and strange))))


@click.command(cls=Words, short_help="The first release in which something changed.")
@case_options
@option("--between", "T", "A release, tensorflow==1.2.1.", required=True)
@option("--and and_", "T", "Another one, tensorflow==1.15.0.", required=True)
@option(
    *("--what", None, WHAT),
    type=click.Choice(["order", "bits", "stability"]),
    default="order",
    show_default=True,
)
@option("--lengths", "5..19", "The kernel's extent and 14 more if not given.")
@option("--releases", "1.0,1.1", "These releases, instead of those known here.")
@option("--remove", None, "Take away again what had to be installed.", is_flag=True)
@option(
    *("--store folder", "DIR", "Where every step is kept, in DIR/<machine>."),
    default=Path("results", "bisect"),
    **STORE,
)
@output_options
def bisect(
    words: dict[str, str],
    between: str,
    and_: str,
    what: str,
    lengths: str | None,
    releases: str | None,
    remove: bool,
    folder: Path,
    out: Output,
) -> None:
    """Searches the releases between two for the first that shows something else than the first.

    Each release tried is installed if it is missing (see `probe install`). The search assumes that
    what changed changed once, and says where what it met speaks against that.
    """
    from probe.cli.show import sweeps
    from probe.store import Store
    from probe.target import Target
    from probe.thresholds.bisection import bisect as search

    case = case_of(words)
    if not case.spatial_rank:
        raise InputError("op", case.op, "releases are compared by length", "use op=matmul")
    shortest = case.effective_kernel[-1]
    values = numbers("lengths", lengths or f"{shortest}..{shortest + 14}")
    with Store.here(folder) as store:
        found = search(
            *(case, Target.parse(between), Target.parse(and_), values, what, store),
            releases=[one.strip() for one in releases.split(",")] if releases else (),
            keep=not remove,
            tell=out.note,
        )
    report = {"what": what, "case": case.to_json(), "store": str(folder)} | found.to_json()
    out.give(report, lambda: sweeps.bisected(report))
