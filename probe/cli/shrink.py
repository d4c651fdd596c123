"""``probe shrink``: the smallest case that still fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from probe.cli.findings import budget_options, finding_of, finding_options
from probe.cli.options import Words, case_options, number, output_options, target_option
from probe.cli.shell import INTERRUPTED

if TYPE_CHECKING:
    from probe.cli.output import Output


@click.command(cls=Words, short_help="The smallest case that still fails.")
@case_options
@target_option()
@finding_options
@budget_options
@output_options
def shrink(
    words: dict[str, str],
    target: str,
    sides: dict[str, str | None],
    by: str,
    most: str,
    any_cause: bool,
    out: Output,
) -> int:
    """Makes a failing case smaller until no single step keeps the failure.

    The cause is kept (order, rounding, ...), and the kernels where the library names them. Lengths,
    kernel, channels, filters, batch, stride, dilation, groups and padding become smaller, then the
    operands plainer. Ctrl-C gives the smallest so far.
    """
    from probe.cli.show import reproductions as show
    from probe.reproduction.failing import failing
    from probe.reproduction.folder import effects_json, near_json, shrunken
    from probe.reproduction.kept import Kept

    finding, (left, right) = finding_of(words, target, sides)
    budget = number("most", most) or 0
    with failing(left, right) as failed, out.progress("shrink") as tell:

        def told(calls: int, best: Any) -> None:
            tell(calls, budget, best.label)

        kept = Kept(failed, finding, any_cause)
        found = shrunken(failed, finding, by, budget, told, kept)
        explanation = failed.explained(found.finding)
        after = kept.after(explanation, found.finding)
        runs = failed.runs
    smallest = found.finding
    report = {
        "targets": [left.text, right.text],
        "case": smallest.to_json(),
        "label": smallest.label,
        "operands": show.operands(smallest),
        "shown": found.shown,
        "calls": found.calls,
        "runs": runs,
        "ended": found.ended,
        "near": near_json(found),
        **effects_json(kept.before, after, kept.told(after)),
        "compared": explanation.compared,
        "differing": len(explanation.differing),
        "max_ulp": explanation.max_ulp,
        "by_order": explanation.by_order,
        "causes": explanation.causes,
    }
    out.give(report, lambda: show.shrunk(report, found.start.label))
    return INTERRUPTED if found.ended == "interrupted" else 0
