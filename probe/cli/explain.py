"""``probe explain``: why two runs differ, with replay as proof; or why a whole store does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from probe.cli.options import (
    Words,
    ask_for_runs,
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
    from probe.cli.output import Output
    from probe.comparison import Comparison


@click.command(cls=Words, short_help="Why two runs differ, with replay as proof.")
@case_options
@target_option()
@click.option(
    "--at",
    metavar="A",
    help="The left side's value of the axis; the case's own if "
    "not given (--length A says the same as --at A).",
)
@click.option("--against", metavar="B", help="The right side's value of the axis.")
@click.option(
    "--vary",
    metavar="AXIS",
    help="The axis: length, batch, filters or channels; length if not given (dense: batch).",
)
@click.option("--against-target", metavar="U", help="Another target for the right side.")
@click.option("--against-padding", metavar="P", help="Another padding for the right side.")
@click.option(
    "--from",
    "store",
    metavar="STORE",
    type=click.Path(path_type=Path),
    help="Explain every difference that a sweep stored there, and store the causes.",
)
@click.option(
    "--kernels",
    metavar="WHICH",
    default="said",
    show_default=True,
    help="Kernels to name beside the causes. said: what the library reports of itself; all: also "
    "symbols sampled while it runs; none. Each source starts the target again.",
)
@click.option(
    "--workers",
    metavar="N",
    help="With --from: processes; one a processor if not given.",
)
@fail_on_option(
    differing="an output differs",
    finding="an output differs, is added in another way, or is not explained",
)
@output_options
def explain(
    words: dict[str, str],
    target: str,
    at: str | None,
    against: str | None,
    vary: str | None,
    against_target: str | None,
    against_padding: str | None,
    store: Path | None,
    kernels: str,
    workers: str | None,
    fail_on: str | None,
    out: Output,
) -> int:
    """Finds the cause of every difference between two runs of a case, and proves it by replay.

    Both sides' windows, orders and roundings are revealed; what is called a cause gave both sides'
    bits when it was replayed in NumPy. With --against-target alone both sides have the same shape.
    """
    if store is not None:
        given = (words or None, at, against, against_target, against_padding)
        _refuse_beside(store, any(one is not None for one in given))
        return _explain_store(store, number("workers", workers), fail_on, out)
    from probe.answers.explain import explain as explained
    from probe.cli.show import explanation as show
    from probe.window import axis_of

    others = bool(against_target or against_padding)
    ask_for_runs(words, vary, at, against, others)
    case, sides = case_of(words), targets_of((target, against_target or target))
    vary = axis_of(case, vary)
    left, right = _values(vary, words.get("length"), at, against, others)
    with out.working(f"explaining {case.label} on {' and '.join(map(str, sides))}"):
        found = explained(
            case,
            sides[0],
            left,
            right,
            vary=vary,
            against_target=sides[-1],
            against_padding=against_padding,
            kernels=kernels,
        )
    shown = (found.found, found.evidence, out.results.width)
    out.give(found.report(), lambda: show.explanation(*shown))
    return _status(found.found, fail_on)


def _values(
    vary: str, length: str | None, at: str | None, against: str | None, others: bool
) -> tuple[int | None, int | None]:
    """The two sides' values of the axis; None: the case's own. Raises InputError."""
    from probe.errors import InputError

    left, right = number("at", at), number("against", against)
    if right is None and not others:
        todo = "give --against B, --against-target U or --against-padding P"
        raise InputError("against", "(none)", "there is nothing to compare with", todo)
    if vary == "length" and length is not None and left not in (None, number("length", length)):
        why = f"--length {length} says another one; with --vary length they mean the same"
        raise InputError("at", at, why, "leave one out")
    return left, right


def _status(found: Comparison, fail_on: str | None) -> int:
    refused = bool(found.left.refusal or found.right.refusal)
    if fail_on == "finding":
        return int(bool(len(found.differing) or found.by_order or refused))
    return int(fail_on == "differing" and len(found.differing) > 0)


def _refuse_beside(store: Path, given: bool) -> None:
    if given:
        from probe.errors import InputError

        why = "a store has its own cases, targets and lengths"
        raise InputError("from", store, why, "leave out the other options")


def _explain_store(store: Path, workers: int | None, fail_on: str | None, out: Output) -> int:
    """All differences of a store."""
    from probe.cli.show import causes
    from probe.explain.causes import explain_store

    with out.progress("explain") as tell:
        found = explain_store(store, workers, tell)
    report = found.to_json() | {"store": str(store)}
    out.give(report, lambda: causes.store_causes(report, out.verbose))
    if found.interrupted:
        return INTERRUPTED
    if found.failures and not found.added:
        return 3
    return int(bool(fail_on) and found.causes.total() > 0)
