"""Shows since which release, or under which conditions, results are others (``probe bisect``)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType

from probe.printing import table
from probe.switch_points import conditions
from probe.switch_points.conditions import Conditions


def bisected(report: Mapping[str, Any]) -> RenderableType:
    """Returns what changed and when, then a row a release that was tried."""
    rows = table("release", "shows", "")
    for step in report["steps"]:
        told = str(step["says"] if step["seen"] else step["why"])
        rows.add_row(step["version"], step["seen"] or "(could not be tested)", told)
    return Group(_answer(report), "", rows)


def conditioned(found: Conditions, what: str) -> RenderableType:
    """Returns which conditions bring the results back, then a row a target that was tried."""
    rows = table("target", "shows", "")
    for step in found.steps:
        told = step.says if step.seen else step.why
        rows.add_row(step.version, step.seen or "(could not be tested)", told)
    return Group(*conditions.conditions_lines(found, what), "", rows)


def _answer(report: Mapping[str, Any]) -> str:
    what, count = report["what"], report["installed"]
    if report["first"] is None:
        return f"both ends show the same {what}; what changed in between and back is not seen"
    between = ", or a release that could not be tested" if report["skipped"] else ""
    first = f"{what} changed in {report['first']}{between}; {report['last']} is as the first end"
    checked = "all tests agree"
    if not report["holds"]:
        checked = "it changed again after that, so search between there and the other end too"
    return f"{first} ({count} installed)\nassumed: {report['assumption']}; {checked}"
