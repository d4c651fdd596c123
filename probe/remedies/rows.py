"""What was measured of remedies as rows of the store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from probe.campaign import case_row, run_row
from probe.case import Case
from probe.network.report import network_row
from probe.remedies.advice import advise
from probe.remedies.found import Found, Measured

Row = dict[str, Any]


def rows(measured: Measured, experiment: str | None = None) -> dict[str, list[Row]]:
    """Rows of ``runs``, ``cases`` or ``networks``, ``remedies`` and every turn in
    ``measurements``."""
    run = run_row(measured.target, measured.facts, measured.variables, experiment)
    case = measured.subject if isinstance(measured.subject, Case) else None
    place = {
        "run_id": run["run_id"],
        "case_id": None if case is None else case.id,
        "network_id": None if case is not None else measured.subject.id,
        "target": measured.target.text,
        "content": measured.content,
        "fixed": measured.fixed,
        "lengths": len(measured.lengths),
    }
    best = advise(measured).name
    told = [place | _told(measured, one, one.remedy.name == best) for one in measured.found]
    return {
        "runs": [run],
        "cases": [] if case is None else [case_row(case)],
        "networks": []
        if isinstance(measured.subject, Case)
        else [network_row(measured.subject, measured.fixed)],
        "remedies": told,
        "measurements": list(_turns(measured, run["run_id"])),
    }


def _told(measured: Measured, one: Found, recommended: bool) -> Row:
    found = to_json(measured, one)
    named = {"remedy": "name", "about": "about", "place": "target", "keeps": "keeps_bits"}
    return {column: found[name] for column, name in named.items()} | {
        "verdict": measured.verdict(one),
        "compared": one.compared or 0,
        "differing": one.differing,
        "unknown": one.unknown,
        "refusal": measured.refusal(one) or None,
        "seconds": found["seconds"],
        "seconds_fixed": found["seconds_fixed"],
        "ratio": found["ratio"],
        "of_fixed": found["of_fixed"],
        "ratio_fixed": found["ratio_fixed"],
        "error_rms": one.error_rms,
        "error_max": one.error_max,
        "recommended": recommended,
    }


def _turns(measured: Measured, run_id: str) -> Iterator[Row]:
    for one in measured.found:
        for length, medians in one.seconds.items():
            for number, value in enumerate(medians.tolist()):
                yield {
                    "run_id": run_id,
                    "subject": f"{measured.label}, fixed at {measured.fixed}",
                    "variant": one.remedy.name,
                    "size": length,
                    "repeat": number,
                    "value": value,
                    "unit": "s",
                }


def to_json(measured: Measured, one: Found) -> Row:
    """One remedy as ``probe remedies --json`` prints it."""
    return {
        "name": one.remedy.name,
        "about": one.remedy.doc,
        "target": one.remedy.where.text,
        "verdict": measured.verdict(one),
        "compared": one.compared,
        "differing": one.differing,
        "unknown": one.unknown,
        "causes": dict(sorted(one.causes.items())),
        "refusal": measured.refusal(one) or None,
        "seconds": measured.seconds(one, measured.content),
        "seconds_fixed": measured.seconds(one, measured.fixed),
        "ratio": measured.ratio(one, measured.content),
        "of_fixed": measured.of_fixed(one),
        "ratio_fixed": measured.ratio(one, measured.fixed),
        "error_rms": one.error_rms,
        "error_max": one.error_max,
        "keeps_bits": one.keeps,
        "sizes": list(one.sizes),
    }


def report(measured: Measured) -> Row:
    """The object that ``probe remedies --json`` prints, ``store`` aside.

    ``verdict``: of the default at these lengths, ``equal``, ``differs`` or ``unknown``.
    """
    subject, advice = measured.subject, advise(measured)
    words = {"exact": "equal", "differs": "differs", "not known": "unknown"}
    told: Row = {"verdict": words[measured.verdict(measured.default)]}
    if isinstance(subject, Case):
        told["case"] = subject.to_json()
    else:
        told |= {"network": subject.name, "part": subject.part or None}
        told |= {"examined": subject.examined, "operations_total": subject.operations_total}
    return told | {
        "target": measured.target.text,
        "lengths": list(measured.lengths),
        "fixed": measured.fixed,
        "content": measured.content,
        "remedies": [to_json(measured, one) for one in measured.found],
        "recommended": advice.name,
        "ratio": advice.ratio,
        "of_fixed": advice.of_fixed,
        "keeping": advice.keeping,
        "advice": advice.text,
    }
