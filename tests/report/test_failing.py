"""A smaller case keeps the cause of what was found, unless it is given up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from probe.case.case import Case
from probe.case.errors import InputError
from probe.explain.runs import Finding
from probe.explain.verdict import BUG, bug_or_rounding
from probe.report import folder, report
from probe.report.failing import KeepsCause, effect, failing
from probe.report.forms import FORMS
from probe.targets.target import Target

pytestmark = pytest.mark.long

FUSED = Target.parse("reference,algorithm=fused")
PAIRS = Target.parse("reference,algorithm=pairwise")
SWITCHES = Target.parse("reference,algorithm=pairwise,length_switch=8")
CASE = Case("conv1d", 5, in_channels=3, length=9)


def shrunken():
    """Two algorithms that differ in order and rounding, made smaller."""
    finding = Finding.of(CASE)
    with failing(FUSED, PAIRS) as failed:
        condition = KeepsCause(failed, finding)
        found = folder.shrunken(failed, finding, kept=condition)
        explanation = failed.explained(found.finding)
        return condition, found, effect(explanation, found.finding.label)


@pytest.mark.slow
def test_order_and_rounding_stay_order_and_rounding():
    condition, found, after = shrunken()
    assert condition.before.cause == after.cause == "order+rounding" and found.ended == "minimal"
    assert condition.told(after) == {"cause": True, "kernels": None}
    products = found.finding.x.size and np.count_nonzero(found.finding.w)
    assert products >= 3  # two products have one order
    assert found.calls <= 300


@pytest.mark.slow
def test_the_short_script_and_the_replay_print_the_measured_numbers(tmp_path):
    finding = Finding.of(Case("conv1d", 5, operands="cancel"), "length", 6, 20)
    made = folder.reproduce(finding, SWITCHES, times=1)
    assert made.short is not None and made.short.text.count("\n") <= 50
    left, right = made.evidence.left.library, made.evidence.right.library
    said = [int(np.float32(word).view("u4")) for word in made.short.printed.split()]
    assert said == [left, right]
    assert made.emulated and made.shown is True
    assert made.to_json()["short"]["ways"] and made.to_json()["kept"]["cause"] is True
    assert made.avoids == [] or "tried" in made.avoids[0]
    folder.fresh(tmp_path)
    folder.write_folder(made, tmp_path)
    assert made.sizes["report.md"] == len((tmp_path / "report.md").read_text())
    with pytest.raises(InputError, match="give another folder"):
        folder.fresh(tmp_path)
    made.ran = replace(made.ran, printed="x" * 100_000)
    made.short, made.script = None, "y" * 100_000
    whole = report.report_text(made, FORMS["tensorflow"])
    assert len(whole) <= report.LIMIT and "attached `reproduce.py`" in whole


def test_the_first_affected_release_is_searched_between_two(monkeypatch):
    """Releases are stood in for: what differs from 1.3 on, of which 1.2 can't be run."""
    from contextlib import contextmanager
    from types import SimpleNamespace

    from probe.case.errors import TargetError
    from probe.report import failing as module
    from probe.sizes import bisection

    since = {"from": "1.3"}

    @contextmanager
    def started(where):
        if where.version == "1.2":
            raise TargetError(where.text, "unavailable", "no wheel")
        differs = float(where.version) >= float(since["from"])
        yield SimpleNamespace(by_bits=lambda finding: differs)

    monkeypatch.setattr(module, "failing", started)
    monkeypatch.setattr(module.installation, "install_target", lambda where: None)
    releases = ["1.0", "1.1", "1.2", "1.3", "1.4", "1.5"]
    monkeypatch.setattr(bisection, "releases_between", lambda *ends: releases)
    asked = None, Target.parse("torch"), "1.5", Target.parse("torch==1.0"), print
    assert module.first_affected(*asked) == "1.3; 1.1 agrees; 1.2 could not be run"
    since["from"] = "0.9"
    assert module.first_affected(*asked).startswith("1.0 or an earlier one")
    since["from"] = "2.0"
    assert module.first_affected(*asked).startswith("not known")


def test_the_smallest_case_of_a_bug_is_one():
    """A thousandth is a mistake in small sums, and in large ones rounding."""
    x = np.full((1, 40, 1), 1.0, np.float32)
    x[0, 30:] = 1e12
    finding = Finding.of(Case("conv1d", 3, length=40))
    w = np.ones_like(finding.w)
    finding = finding.with_operands(x, w, finding.b)
    with failing(Target.parse("reference"), Target.parse("reference,algorithm=off")) as failed:
        condition = KeepsCause(failed, finding)
        found = folder.shrunken(failed, finding, most=40, kept=condition).finding
        assert bug_or_rounding(failed.explained(found)).what == BUG
    assert found.x.size < finding.x.size
