"""The options by which commands are told which two runs ought to agree."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from probe.cli.options import Command, ask_for_runs, case_of, number, targets_of

if TYPE_CHECKING:
    from probe.shrink import Finding
    from probe.target import Target


def finding_options(command: Command) -> Command:
    """Adds ``--at``, ``--against``, ``--vary``, ``--against-target``, ``--against-padding``.

    The command gets them as ``sides``, for ``finding_of``.
    """

    @functools.wraps(command)
    def wrapped(**given: Any) -> Any:
        names = ("at", "against", "vary", "against_target", "against_padding")
        return command(sides={name: given.pop(name) for name in names}, **given)

    options: tuple[Callable[[Command], Command], ...] = (
        click.option(
            "--at",
            metavar="A",
            help="The left side's value of the axis; the case's own if not given.",
        ),
        click.option("--against", metavar="B", help="The right side's value of the axis."),
        click.option(
            "--vary",
            metavar="AXIS",
            help="The axis: length, batch, filters or channels; length if not given (dense: "
            "batch).",
        ),
        click.option("--against-target", metavar="U", help="Another target for the right side."),
        click.option("--against-padding", metavar="P", help="Another padding for the right side."),
    )
    found: Command = wrapped
    for option in reversed(options):
        found = option(found)
    return found


def budget_options(command: Command) -> Command:
    """Adds ``--by``, ``--most`` and ``--any-cause``."""
    by = click.option(
        "--by",
        metavar="WHAT",
        default="bits",
        show_default=True,
        help="What a smaller case has to keep: bits that differ, or the order (or rounding) in "
        "which outputs are added, whatever the operands are.",
    )
    most = click.option(
        "--most", metavar="N", default="300", show_default=True, help="Smaller cases to try."
    )
    anything = click.option(
        "--any-cause",
        is_flag=True,
        help="A smaller case may differ by another cause, or in other kernels; the result says so.",
    )
    return by(most(anything(command)))


def finding_of(
    words: Mapping[str, str], target: str, sides: Mapping[str, str | None]
) -> tuple[Finding, tuple[Target, Target]]:
    """The finding and both sides' targets. Raises InputError."""
    from probe.errors import InputError
    from probe.shrink import Finding

    others = bool(sides["against_target"] or sides["against_padding"])
    ask_for_runs(words, sides["vary"], sides["at"], sides["against"], others)
    given = targets_of((target, sides["against_target"] or target))
    at, against = number("at", sides["at"]), number("against", sides["against"])
    if against is None and not (sides["against_target"] or sides["against_padding"]):
        todo = "give --against B, --against-target U or --against-padding P"
        raise InputError("against", "(none)", "there is nothing to compare with", todo)
    if at is not None and at == against and len(given) == 1 and not sides["against_padding"]:
        raise InputError("against", against, "both sides are the same run", "give another value")
    found = Finding.of(case_of(words), sides["vary"], at, against, sides["against_padding"])
    return found, (given[0], given[-1])
