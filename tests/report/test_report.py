"""Reports: the headings of a tracker's form, both sums, and what is asked of two releases."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from probe.case.case import Case
from probe.case.errors import InputError
from probe.explain.runs import Finding
from probe.report import folder, program, report
from probe.report.forms import FORMS
from probe.targets.target import Target


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
