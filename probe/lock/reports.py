"""What checks found: lines for a terminal, JSON, Markdown, HTML, and OASIS' SARIF for scanning of
code, with a result at the line of each check that is not the same."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from probe import machine
from probe.lock.checks import CHANGED, NEW, SAME, UNKNOWN, Checked
from probe.lock.file import NAME
from probe.printing import counted

ENDINGS = {"json": "json", "markdown": "md", "html": "html", "sarif": "sarif"}
TEMPLATES = Path(__file__).with_name("templates")


def summarised(results: Sequence[Checked]) -> str:
    """Returns ``3 of 41 checks changed: order, numpy 2.4.6 -> 2.5.0, sum of 768 numbers; 0
    decisions``, or how many are the same."""
    count, total = Counter(one.verdict for one in results), counted(len(results), "check")
    rest = [f"{count[name]:,} {name}" for name in (UNKNOWN, NEW) if count[name]]
    more = f" ({', '.join(rest)})" if rest else ""
    if not count[CHANGED]:
        have = "has" if 1 in (count[SAME], len(results)) else "have"
        return f"{count[SAME]:,} of {total} {have} the same bits{more}"
    causes = Counter[str]()
    for why in (one.why for one in results if one.verdict == CHANGED and one.why):
        # what changed, from what, where, and how many decisions, as far as it is known
        words = [why.get("class"), why.get("said") or why.get("cause"), why.get("operation")]
        text = ", ".join(filter(None, words)) or "the cause is unknown"
        if (taken := why.get("decisions") or {}).get("total"):
            text += f"; {taken['changed']:,} decisions"
        causes[text + (f" ({why['kind']})" if why.get("kind") else "")] += 1
    told = "; ".join(text for text, _ in causes.most_common(3)) + "; ..." * (len(causes) > 3)
    return f"{count[CHANGED]:,} of {total} changed{more}{f': {told}' if told else ''}"


def terminal_lines(
    results: Sequence[Checked], accepted: Collection[Checked], unused: Sequence[str], update: bool
) -> list[str]:
    """Returns the end of pytest's run: counts, what is not the same with its cause, what to do."""
    told = [summarised(results)] if results else []
    if accepted:
        told.append(f"{NAME}: {counted(len(accepted), 'value')} written")
    for one in results:
        if one.verdict in (CHANGED, UNKNOWN) and one not in accepted:
            told += [one.message, *(f"  {line}" for line in why_in_lines(one.why))]
    if unused:
        done = "removed" if update else "pytest --bits-update removes them"
        what = counted(len(unused), "check")
        told.append(f"{NAME} has {what} that no test uses any more ({done}): {', '.join(unused)}")
    return told


def why_in_lines(why: dict[str, Any]) -> list[str]:
    """Returns the cause, the operation and the kind of a change in lines."""
    if not why:
        return []
    told = [f"cause: {why.get('said') or why.get('cause') or 'unknown'}"]
    for word, name in (("where", "operation"), ("class", "class"), ("kind", "kind")):
        told += [f"{word}: {why[name]}"] if why.get(name) else []
    if why.get("decisions"):
        told.append("decisions: {changed} of {total} changed".format(**why["decisions"]))
    return told + [f"note: {text}" for text in why.get("notes", [])]


def json_report(
    results: Sequence[Checked], unused: Sequence[str] = (), error: str = ""
) -> dict[str, Any]:
    """Returns the object that ``probe check --json`` prints. ``error``: of a lock that can't be
    read or written."""
    count = Counter(one.verdict for one in results)
    return {
        "summary": error or summarised(results),
        "error": error or None,
        **{name: count[name] for name in (SAME, CHANGED, UNKNOWN, NEW)},
        "checks": [one.to_json() for one in results],
        "unused": list(unused),
    }


def page_report(form: str, results: Sequence[Checked], unused: Sequence[str], error: str) -> str:
    """Returns ``markdown`` for a pull request or a job's page, or one page of ``html`` with nothing
    to load."""
    from jinja2 import Template

    text = (TEMPLATES / f"report.{ENDINGS[form]}.j2").read_text()
    page = Template(text, autoescape=form == "html", keep_trailing_newline=True)
    rows = [(one, [*filter(None, [one.message]), *why_in_lines(one.why)]) for one in results]
    return page.render(headline=error or summarised(results), rows=rows, unused=unused)


def sarif_report(results: Sequence[Checked], error: str = "") -> dict[str, Any]:
    """Returns SARIF 2.1.0: what changed is an error, what is unknown a note."""
    report: dict[str, Any] = json.loads((TEMPLATES / "report.sarif").read_text())
    (run,) = report["runs"]
    driver = run["tool"]["driver"]
    driver["version"] = machine.version()
    rules = {one["id"]: one["defaultConfiguration"] for one in driver["rules"]}
    run["results"] = []
    for one in (one for one in results if one.verdict != SAME):
        rule, (path, line) = f"bits-{one.verdict}", one.place or (NAME, 1)
        text = machine.publishable("\n".join([one.message, *why_in_lines(one.why)]))
        place = {"artifactLocation": {"uri": quote(path)}, "region": {"startLine": max(line, 1)}}
        told = {"ruleId": rule, "ruleIndex": [*rules].index(rule), **rules[rule]}
        told |= {"message": {"text": text}, "locations": [{"physicalLocation": place}]}
        # lines move: by this the service knows a result of another commit again
        run["results"].append(told | {"partialFingerprints": {"check/v1": one.check}})
    if error:
        failed = {"level": "error", "message": {"text": machine.publishable(error)}}
        done = {"executionSuccessful": False, "toolExecutionNotifications": [failed]}
        run["invocations"] = [done]
    return report


def write_report(
    asked: str,
    folder: Path,
    results: Sequence[Checked],
    unused: Sequence[str] = (),
    error: str = "",
) -> str:
    """Writes what ``FORMAT`` or ``FORMAT=FILE`` asks for; returns what to say of it."""
    form, _, path = asked.partition("=")
    out = folder / (path or f"bits-report.{ENDINGS[form]}")
    if form in ("html", "markdown"):
        text = page_report(form, results, unused, error)
    else:
        json_ = json_report(results, unused, error)
        told = sarif_report(results, error) if form == "sarif" else json_
        text = json.dumps(told, indent=1) + "\n"
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as why:
        return f"bits-report={form}: {out.name} can't be written: {why.strerror}"
    return f"{form} report: {out.name}"
