"""Findings of the committed length sweep, at random: each becomes a script that confirms it.

``PROBE_SAMPLE=200 pytest -m slow -k reproduction_store`` takes as many as you like.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from lib.trials import attempt, draw
from probe import load
from probe.case.case import Case
from probe.case.errors import InputError
from probe.explain.comparison import Finding
from probe.report import folder, program, report
from probe.report.forms import FORMS
from probe.sweep.store import Store
from probe.targets import machine
from probe.targets.target import Target

STORE = Path(__file__).parents[2] / "results" / "length_sweep"
SAMPLE = int(os.environ.get("PROBE_SAMPLE", "4"))


@pytest.mark.slow
def test_random_findings_of_the_length_sweep_are_confirmed_by_scripts(tmp_path):
    if not (STORE / machine.label()).is_dir():
        pytest.skip(f"{machine.label()}: the length sweep was not measured on this machine")
    with Store.here(tmp_path) as store:
        tried = attempt(draw(STORE, SAMPLE), store, "reproductions", 1)
    found = load(tmp_path)
    if not found.failures.empty:
        pytest.skip("; ".join(found.failures.message))
    measured = load(STORE / machine.label()).runs.library_version
    if set(found.runs.library_version) - set(measured):
        pytest.skip("measured with another release")
    assert tried.found == SAMPLE, tried.failures
    rows = found.reproductions
    assert (rows.replayed == rows.small_compared).all() and (rows.tries <= 300).all()


SWITCHES = Target.parse("reference,algorithm=pairwise,length_switch=8")


def test_the_report_has_the_forms_headings_and_both_trees(made):
    found, out = made
    text = (out / "report.md").read_text()
    assert "y = (((p0+p1)+p2)+p3)" in text and "y = ((p0+p1)+(p2+p3))" in text
    assert "s0 = p0 + p1 = " in text and "#0" not in text and "0x3f800006" in text
    assert "nearest case without a difference: conv1d 4, 1 -> 1, length 4 against 10" in text
    assert "Should conv1d of a prefix equal the prefix" in text
    assert (
        text.index("It prints:") < text.index("The finding it came from") < text.index("**Why.**")
    )
    for name, form in FORMS.items():
        whole = report.report_text(found, form)
        assert form.tracker in whole and len(whole) <= report.LIMIT
        told = [h for h, _ in form.sections if f"{form.level} {h}\n" in whole]
        places = [whole.index(f"{form.level} {heading}\n") for heading in told]
        assert places == sorted(places) and len(told) >= len(form.sections) - 3, name
        assert whole.index("Verdict: both sides") < whole.index(found.short.text.strip()[:40])
        assert found.short.text.strip() in whole and found.script.strip() not in whole
        assert "none" not in whole and "not told" not in whole, name
    assert "numerical_accuracy" in report.report_text(found, FORMS["torch"])
    with pytest.raises(InputError, match="form=bugzilla"):
        folder.write_folder(found, out, "bugzilla")


def test_the_report_names_kernels_that_are_known_of_a_side(made):
    found, _ = made

    assert "Kernels" not in report.report_text(found, FORMS["torch"])
    found.explanation.kernels = {
        "left": {"backend-choice": ["Slow2d"], "onednn-verbose": ["(it printed nothing)"]},
        "right": {"backend-choice": ["(not told)"], "onednn-verbose": ["(it printed nothing)"]},
    }
    try:
        for form in ("torch", "onednn"):
            text = report.report_text(found, FORMS[form])
            assert "| backend-choice | `Slow2d` | not told |" in text
            assert "onednn-verbose" not in text
            assert text.index("products are added") < text.index("backend-choice")
        assert found.to_json()["kernels"]["left"]["backend-choice"] == ["Slow2d"]
    finally:
        found.explanation.kernels = {}


CASE = Case("conv1d", 5, in_channels=3, length=9)


def test_two_releases_are_told_as_a_change():
    targets = Target.parse("torch==1.0.0"), Target.parse("torch==2.0.0")
    finding = Finding.of(CASE)
    title = program.finding_title(finding, targets, ["PyTorch", "PyTorch"], ("1.0.0", "2.0.0"))
    assert title == "conv1d: the bits changed between PyTorch 1.0.0 and PyTorch 2.0.0."
    told = SimpleNamespace(finding=finding, targets=targets, names=("PyTorch",) * 2)
    told.versions, told.explanation = ("1.0.0", "2.0.0"), SimpleNamespace(causes={"order": 1})
    assert "changed between PyTorch 1.0.0 and PyTorch 2.0.0" in report.question(told)
    told.versions = ("2.0.0", "2.0.0")
    assert report.question(told).startswith("Should conv1d give the same bits with")
