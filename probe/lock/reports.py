"""What checks found, as lines for a terminal, JSON, Markdown, HTML, and SARIF for code scanning.

SARIF is OASIS' Static Analysis Results Interchange Format 2.1.0: one result a check that is not the
same, at the line of the check.
"""

from __future__ import annotations

import html
import json
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

from probe import machine
from probe.lock.file import NAME
from probe.lock.judging import CHANGED, NEW, SAME, UNKNOWN, Checked
from probe.printing import counted

ENDINGS = {"json": "json", "markdown": "md", "html": "html", "sarif": "sarif"}
SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
RULES = {
    CHANGED: (
        "bits-changed",
        "The bits of a result are not those that are accepted.",
        "error",
    ),
    UNKNOWN: ("bits-unknown", "No entry of bits.lock is of these conditions.", "note"),
    NEW: ("bits-new", "bits.lock has no entry for a check.", "warning"),
}
"""Verdict -> SARIF's rule, its description, and the level of its results."""


def headline(results: Sequence[Checked]) -> str:
    """Returns ``3 of 41 checks changed: order, numpy 2.4.6 -> 2.5.0, sum of 768 numbers; 0
    decisions``, or how many are the same."""
    count, total = Counter(one.verdict for one in results), counted(len(results), "check")
    rest = [f"{count[name]:,} {name}" for name in (UNKNOWN, NEW) if count[name]]
    more = f" ({', '.join(rest)})" if rest else ""
    if not count[CHANGED]:
        have = "has" if count[SAME] == 1 else "have"
        return f"{count[SAME]:,} of {total} {have} the same bits{more}"
    causes = Counter(because(one) for one in results if one.verdict == CHANGED)
    told = "; ".join(dict.fromkeys(text for text, _ in causes.most_common(3) if text))
    told += "; ..." * (len(causes) > 3)
    return f"{count[CHANGED]:,} of {total} changed{more}{f': {told}' if told else ''}"


def because(one: Checked) -> str:
    """Returns what changed, from what, where, and how many decisions, as far as it is known."""
    why = one.why
    if not why:
        return ""
    decisions = why.get("decisions") or {}
    taken = decisions.get("total")
    told = [why.get("class"), why.get("said") or why.get("cause"), why.get("operation")]
    text = ", ".join(filter(None, told)) or "the cause is unknown"
    text += f"; {decisions['changed']:,} decisions" if taken else ""
    return text + (f" ({why['kind']})" if why.get("kind") else "")


def lines(
    results: Sequence[Checked], accepted: Collection[Checked], unused: Sequence[str], update: bool
) -> list[str]:
    """Returns the end of pytest's run: counts, what is not the same with its cause, what to do."""
    told = [headline(results)] if results else []
    if accepted:
        told.append(f"{NAME}: {counted(len(accepted), 'value')} written")
    for one in results:
        if one.verdict in (CHANGED, UNKNOWN) and one not in accepted:
            told += [one.message, *(f"  {line}" for line in explained(one))]
    if unused:
        done = "removed" if update else "pytest --bits-update removes them"
        what = counted(len(unused), "check")
        told.append(f"{NAME} has {what} that no test uses any more ({done}): {', '.join(unused)}")
    return told


def explained(one: Checked) -> list[str]:
    """Returns the cause, the operation and the kind of a change in lines."""
    why = one.why
    if not why:
        return []
    told = [f"cause: {why.get('said') or why.get('cause') or 'unknown'}"]
    told += [f"where: {why['operation']}"] if why.get("operation") else []
    told += [f"class: {why['class']}"] if why.get("class") else []
    told += [f"kind: {why['kind']}"] if why.get("kind") else []
    if why.get("decisions"):
        told.append("decisions: {changed} of {total} changed".format(**why["decisions"]))
    return told + [f"note: {text}" for text in why.get("notes", [])]


def as_json(results: Sequence[Checked], unused: Sequence[str]) -> str:
    """Returns the object that ``probe check --json`` prints."""
    return json.dumps(table(results, unused), indent=1) + "\n"


def table(results: Sequence[Checked], unused: Sequence[str]) -> dict[str, Any]:
    """Returns the results as JSON has them."""
    count = Counter(one.verdict for one in results)
    return {
        "summary": headline(results),
        **{name: count[name] for name in (SAME, CHANGED, UNKNOWN, NEW)},
        "checks": [one.to_json() for one in results],
        "unused": list(unused),
    }


def markdown(results: Sequence[Checked], unused: Sequence[str]) -> str:
    """Returns a summary for a pull request or a job's page."""
    told = [f"### Bits: {headline(results)}", ""]
    rows = [one for one in results if one.verdict != SAME]
    if rows:
        told += [
            "| check | verdict | cause | operation | kind |",
            "| --- | --- | --- | --- | --- |",
        ]
        for one in rows:
            cause = one.why.get("said") or one.why.get("cause") or one.conditions * bool(one.apart)
            cells = (one.check, one.verdict, cause, one.why.get("operation"), one.why.get("kind"))
            told.append(f"| {' | '.join(_cell(text) for text in cells)} |")
    if unused:
        told += ["", f"Unused entries: {', '.join(f'`{one}`' for one in unused)}"]
    return "\n".join(told) + "\n"


def _cell(text: Any) -> str:
    return str(text or "").replace("|", "\\|").replace("\n", " ")


def as_html(results: Sequence[Checked], unused: Sequence[str]) -> str:
    """Returns one page, with nothing to load."""
    rows = []
    for one in results:
        more = "<br>".join(html.escape(line) for line in [one.message, *explained(one)] if line)
        cells = (one.check, one.verdict, one.bits.text)
        inside = "".join(f"<td>{html.escape(text)}</td>" for text in cells)
        rows.append(f'<tr class="{one.verdict}">{inside}<td>{more}</td></tr>')
    left = f"<p>Unused entries: {html.escape(', '.join(unused))}</p>" * bool(unused)
    style = (
        "body{font:14px sans-serif;margin:2em}td{border-top:1px solid #ccc;padding:.3em .6em;"
        "vertical-align:top}.changed{background:#fde0dc}.unknown,.new{background:#fff4d6}"
    )
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Bits</title>'
        f"<style>{style}</style><h1>{html.escape(headline(results))}</h1>{left}"
        f"<table><tr><th>check<th>verdict<th>bits<th>what is known</tr>{''.join(rows)}</table>\n"
    )


def sarif(results: Sequence[Checked], unused: Sequence[str]) -> str:
    """Returns SARIF 2.1.0: what changed is an error, what is unknown a note."""
    rules = [
        {"id": rule, "shortDescription": {"text": text}, "defaultConfiguration": {"level": level}}
        for rule, text, level in RULES.values()
    ]
    found = []
    for one in results:
        if one.verdict not in RULES:
            continue
        rule, _, level = RULES[one.verdict]
        path, line = one.place or (NAME, 1)
        place = {"artifactLocation": {"uri": path}, "region": {"startLine": max(line, 1)}}
        text = "\n".join([one.message, *explained(one)])
        entry = {
            "ruleId": rule,
            "ruleIndex": [*RULES].index(one.verdict),
            "level": level,
            "message": {"text": machine.publishable(text)},
            "locations": [{"physicalLocation": place}],
            "partialFingerprints": {"check/v1": one.check},
        }
        found.append(entry)
    driver = {"name": "probe", "version": machine.version(), "rules": rules}
    run = {"tool": {"driver": driver}, "columnKind": "utf16CodeUnits", "results": found}
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


FORMS: dict[str, Callable[[Sequence[Checked], Sequence[str]], str]] = {
    "json": as_json,
    "markdown": markdown,
    "html": as_html,
    "sarif": sarif,
}
