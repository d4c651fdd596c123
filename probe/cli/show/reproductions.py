"""Shows what was reduced, what was reproduced, and whether it still occurs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from probe.cli.show.explanation import causes_table
from probe.printing import counted, differ, up_to
from probe.reproduction.report import LIMIT

ENDED = {
    "minimal": "minimal",
    "budget": "the limit of tries is reached; --most N raises it",
    "interrupted": "interrupted; this is the smallest case so far",
}


def shrunk(found: Mapping[str, Any], start: str) -> RenderableType:
    """Returns the smallest case, from where, in how many tries."""
    head = Text(found["label"], style="bold")
    lines = [f"from {start}"]
    tried = f"{found['calls']} reductions tried, {found['runs']} runs"
    lines.append(f"{tried}; {ENDED[found['ended']]}")
    counts = ", ".join(f"{n} in {name}" for name, n in found["case"]["not_zero"].items())
    lines.append(f"nonzero operands: {counts}")
    if found["near"]:
        lines.append(f"nearest case that agrees: {found['near']['case']}")
    parts: list[RenderableType] = [
        head,
        *map(Text, lines),
        *_what_is_kept(found),
        _difference(found),
    ]
    parts += [causes_table(found["causes"])] if found["causes"] else []
    if not found["shown"]:
        parts.append(Text("no operands were found for which the bits differ", "yellow"))
    values = found["operands"] or {}
    for name, value in values.items():
        flat = _flat_numbers(value)
        if len(flat) <= 32:
            parts.append(Text(f"{name} = {', '.join(f'{one:.9g}' for one in flat)}"))
    return Group(*parts)


def _what_is_kept(found: Mapping[str, Any]) -> list[Text]:
    """Returns what the finding did before it was reduced, and what of it is not kept."""
    before, kept = found["before"], found["kept"]
    if before is None or kept is None:
        return []
    counts = ", ".join(f"{number:,} by {name}" for name, number in before["causes"].items())
    lines = [
        Text(
            f"before: {before['differing']:,} of {counted(before['compared'], 'output')} "
            f"that differ{up_to(before['max_ulp'])}: {counts}"
        )
    ]
    if kept["cause"] is False:
        lines.append(Text("the reduced case has a different cause", "yellow"))
    if kept["kernels"] is False:
        lines.append(Text("different kernels run the reduced case", "yellow"))
    return lines


def _flat_numbers(value: Any) -> list[float]:
    if isinstance(value, list):
        return [one for part in value for one in _flat_numbers(part)]
    return [value]


def _difference(found: Mapping[str, Any]) -> Text:
    return Text(differ(found["differing"], found["compared"], found["max_ulp"]), "red")


def reproduction(found: Mapping[str, Any]) -> RenderableType:
    """Returns what was written, and what it says."""
    head = Text()
    if part := found["case"].get("part"):
        head.append(f"{part}\n", "yellow")
    head.append(found["label"], "bold")
    parts: list[RenderableType] = [head, *_what_is_kept(found), _difference(found)]
    parts.append(causes_table(found["causes"]))
    if found["calls"] is not None:
        parts.append(Text(f"{found['calls']} reductions tried; {ENDED[found['ended']]}"))
    if found["near"]:
        parts.append(Text(f"nearest case that agrees: {found['near']['case']}"))
    parts += [
        Text(f"{one['target']} {one['version']}: {one['said']}") for one in found["elsewhere"]
    ]
    if found["not_emulated"]:
        parts.append(Text(f"emulated.py was not written: {found['not_emulated']}", "yellow"))
    parts += [Text(f"this avoids the difference: {one}") for one in found["avoids"]]
    if found["short"]:
        printed = "\n".join(said for _, said in found["short"]["ways"])
        parts += [Text(found["short"]["text"].rstrip()), Text(printed, "red")]
    attached = [name for name in found["files"] if name != "report.md"]
    size = f"{found['sizes']['report.md']:,} of the {LIMIT:,} characters that GitHub takes"
    parts.append(Text(f"{found['out']}: report.md, {size}", "green"))
    parts.append(Text(f"to attach: {', '.join(attached)}", "green"))
    return Group(*parts)


def verified(found: Mapping[str, Any]) -> RenderableType:
    """Returns the verdict, and why."""
    style = {"still there": "red", "gone": "green"}.get(found["verdict"], "yellow")
    parts = [Text(f"{found['verdict']}: {found['why']}", style)]
    if found["same_bits"] is False:
        parts.append(Text("with bits that differ from those that were reported"))
    if found["interpreter"] == "own":
        targets = " and ".join(dict.fromkeys(found["targets"]))
        parts.append(Text(f"{targets} is not installed here: this Python ran the script", "yellow"))
    return Group(*parts)


def emulated_file(found: Mapping[str, Any]) -> RenderableType:
    """Returns what was written, and how to run it."""
    outputs = sum(run["outputs"] for run in found["runs"])
    head = Text(f"wrote {found['out']}: {found['bytes'] / 1024:,.0f} KiB, ")
    head.append(f"{found['replayed']:,} of {outputs:,} outputs replay", "green")
    return Group(head, Text(f"run it anywhere with NumPy: python {found['out']}"))
