"""Forms of trackers, and forms that a user brings."""

from __future__ import annotations

import pytest

from probe.case.errors import InputError
from probe.report import report
from probe.report.forms import FORMS, form_of
from probe.targets.target import Target

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
