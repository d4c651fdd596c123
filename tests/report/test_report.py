"""Reports: the headings of a tracker's form, or of a user's own; both sums; the question to ask of
two releases."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from probe.case.case import Case
from probe.case.errors import InputError
from probe.explain.runs import Finding
from probe.report import folder, program, report
from probe.report.report import FORMS, form_of
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


TORCH, REFERENCE = Target.parse("torch"), Target.parse("reference")

YML = """\
name: Bug
body:
  - type: markdown
    attributes:
      value: |
        label: not a field
  - type: dropdown
    id: kind
    attributes:
      label: Issue Type
      options:
        - Feature
        - "Bug"
  - type: input
    attributes:
      label: "Tensorflow Version"
  - type: textarea
    attributes:
      label: Current Behaviour?
  - type: textarea
    attributes:
      label: Standalone code to reproduce the issue
  - type: checkboxes
    attributes:
      label: I agree
      options:
        - label: yes
"""

MARKDOWN = """\
---
name: bug
---
<!-- ## hidden -->
## Describe the bug
text
**Environment**
# Steps to reproduce:
## Shoe size
"""


def test_a_forms_file_is_filled_in_its_own_order(made, tmp_path):
    found, _ = made
    (tmp_path / "bug.yml").write_text(YML)
    form = form_of(TORCH, str(tmp_path / "bug.yml"))
    assert [heading for heading, _ in form.sections] == [
        *("Issue Type", "Tensorflow Version", "Current Behaviour?"),
        "Standalone code to reproduce the issue",
    ]
    text = report.report_text(found, form)
    assert "### Issue Type\n\nBug\n" in text
    assert text.index("### Current Behaviour?") < text.index("**Verdict: both sides are")
    code = text.partition("### Standalone code")[2]
    assert found.short.text.strip() in code and "I agree" not in text and "not a field" not in text
    (tmp_path / "bug.md").write_text(MARKDOWN)
    form = form_of(REFERENCE, str(tmp_path / "bug.md"))
    assert form.sections == [
        ("Describe the bug", "description"),
        ("Environment", "versions"),
        ("Steps to reproduce", "script_and_output"),
        ("Shoe size", "[(left open: probe can't answer this)]"),
    ]
    assert "left open" in report.report_text(found, form)


def test_the_targets_own_form_is_the_default_and_others_are_refused(tmp_path):
    assert form_of(TORCH) is FORMS["torch"] and form_of(Target.parse("scipy")).name == "other"
    assert form_of(TORCH, "onednn") is FORMS["onednn"]
    (tmp_path / "empty.yml").write_text("body: []\n")
    for name, why in (
        ("bugzilla", "no such form"),
        (str(tmp_path / "none.md"), "form="),
        (str(tmp_path / "empty.yml"), "no headings"),
    ):
        with pytest.raises(InputError, match=why):
            form_of(TORCH, name)
