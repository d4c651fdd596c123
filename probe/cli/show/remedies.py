"""Remedies as a table: exact or not, what it costs, how far from the exact sum; then the advice."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from probe.case import Case
from probe.cli import numbers
from probe.cli.show.facts import table
from probe.floats import rounded_text
from probe.remedies import Found, Measured, advise

COLOURS = {"exact": "green", "differs": "bold red", "not known": "yellow"}


def summary(measured: Measured) -> RenderableType:
    """A row a remedy, then why some are not known, then what to do."""
    what = "lengths" if isinstance(measured.subject, Case) else "content lengths"
    label = f"{measured.label}: {measured.part}" if measured.part else measured.label
    lines = f"{label}\n{what} {numbers.text(list(measured.lengths))} against "
    lines += f"{measured.fixed} on {measured.target.text}, by order, whatever the operands"
    parts: list[RenderableType] = [Text(lines), "", _table(measured)]
    refused = [one for one in measured.found if one.refusal]
    alone = [one for one in measured.found if measured.verdict(one) != one.verdict]
    if refused or alone:
        parts.append("")
    parts += [Text(f"{one.remedy.name}: {one.refusal}", "yellow") for one in refused]
    if alone:
        names = ", ".join(one.remedy.name for one in alone)
        parts.append(Text(f"exact in this part, not known for the model: {names}", "yellow"))
    parts.append("")
    parts.append(Text(advise(measured).text, "bold"))
    return Group(*parts)


def _table(measured: Measured) -> RenderableType:
    unit = "outputs" if isinstance(measured.subject, Case) else "lengths"
    costs = (f"at {measured.content}", "x default", "of fixed", f"x at {measured.fixed}")
    right = (f"differing {unit}", *costs, "error")
    rows = table("remedy", "verdict", *right, "bits", "what it is", right=right)
    best = advise(measured).name
    for one in measured.found:
        counted = "" if one.compared is None else f"{one.differing:,} of {one.compared:,}"
        rows.add_row(
            Text(one.remedy.name, "bold green" if one.remedy.name == best else ""),
            Text(measured.verdict(one), COLOURS[measured.verdict(one)]),
            counted,
            _seconds(measured, one),
            rounded_text(measured.ratio(one, measured.content)),
            rounded_text(measured.of_fixed(one)),
            rounded_text(measured.ratio(one, measured.fixed)),
            "" if one.error_rms is None else f"{one.error_rms:.2f}",
            {True: "kept", False: "other", None: ""}[one.keeps],
            one.remedy.doc,
        )
    return rows


def _seconds(measured: Measured, one: Found) -> str:
    found = measured.seconds(one, measured.content)
    return "" if found is None else f"{found * 1e3:.3g} ms"
