"""Reproductions: scripts that run on their own, proved before they are written, and verified."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from probe.case.arguments import require_unwritten
from probe.case.case import Case
from probe.case.errors import InputError, TargetError
from probe.explain.runs import Finding
from probe.explain.verdict import BUG, bug_or_rounding
from probe.report import folder, proof, report
from probe.report.folder import KeepsCause, effect, failing
from probe.targets import launch, machine
from probe.targets.target import Target
from tests.house.test_publishable import WHERE, private
from tests.report.test_program import clean

pytestmark = pytest.mark.long

SWITCHES = Target.parse("reference,algorithm=pairwise,length_switch=8")


def test_the_folder_has_what_a_maintainer_needs(made):
    found, out = made
    assert sorted(path.name for path in out.iterdir()) == sorted(found.files)
    assert set(found.files) == {
        *("reproduce.py", "emulated.py", "report.md", "order.png", "machine.json")
    }
    assert found.explanation.causes == {"order": 1} and found.shrunk.ended == "minimal"
    assert found.finding.label == "conv1d 4, 1 -> 1, length 4 against 11"


def test_both_programs_run_alone_and_agree(made):
    found, out = made
    ran = proof.run_script(out / "reproduce.py", found.targets)
    assert ran.status == 0 and ran.said.endswith("up to 6 ulp")
    command = [sys.executable, "-I", "-W", "error", "emulated.py"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=out, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for left, right in ran.bits:
        assert left in done.stdout and right in done.stdout


def test_nothing_tells_where_it_was_made(made):
    _, out = made
    variables = set(launch.library_variables(SWITCHES))
    for path in out.iterdir():
        if path.suffix == ".png":
            text = path.read_bytes().decode("latin-1")
            assert str(Path.home()) not in text and str(out) not in text
            continue
        text = re.sub(r'"""\n[A-Za-z0-9+/=\n]+"""', "", path.read_text())  # packed numbers
        assert not private().search(text) and not WHERE.search(text), path.name
        for name in re.findall(r"environ\[\"(\w+)\"\]", text):
            assert name in variables
    about = json.loads((out / "machine.json").read_text())
    assert set(about["machine"]) <= {
        *("os", "architecture", "cpu", "cpu_vendor", "cpu_isa", "cores", "machine", "probe"),
        *("python", "numpy", "emulated", *report.FACTS),
    }
    assert about["machine"]["machine"] == machine.label()


FUSED, SHORT, AT = (
    "reference,algorithm=fused",
    "reference,algorithm=pairwise,length_switch=4",
    {"at": 6, "against": 12},
)
DEEP = {"op": "depthwise_conv2d", "kernel": "1x5", "in_channels": 2, "filters": 4, "bias": 0.5}
TWO = {"dtype": "float64", "operands": "cancel", "groups": 2, "in_channels": 4, "filters": 2}
STRIDED = {"kernel": 3, "stride": 2, "padding": "same", "length": 8}
SPLIT = {"in_channels": 9, "length": 2, "operands": "cancel"}
FOUND = [
    ("reference", FUSED, Case("conv2d", 2, length=4, operands="cancel"), None, {}),
    ("reference", None, Case(op="conv1d", **STRIDED), "caffe", {}),
    (SHORT, None, Case(**DEEP), None, AT),
    (SHORT, None, Case("conv1d", 5, **TWO), None, AT),
    ("numpy", None, Case(op="matmul", in_channels=64, filters=3), None, {"at": 1, "against": 40}),
    ("reference", None, Case("matmul", **SPLIT), None, {"vary": "channels", "at": 4, "against": 9}),
]


@pytest.mark.parametrize(("left", "right", "case", "padding", "pair"), FOUND)
@pytest.mark.slow_at(
    "reference,algorithm=pairwise,length_switch=4-None-case2-None-pair2",
    "reference,algorithm=pairwise,length_switch=4-None-case3-None-pair3",
    "numpy-None-case4-None-pair4",
    "reference-None-case5-None-pair5",
    "reference-reference,algorithm=fused-case0-None-pair0",
)
def test_scripts_of_all_kinds_run_and_are_clean(left, right, case, padding, pair, tmp_path):
    """One is reduced, the others are written as they are."""
    keep = left != "numpy" and case is not FOUND[0][2]
    finding = Finding.of(case, padding=padding, **pair)
    target = Target.parse(left)
    try:
        other = right and Target.parse(right)
        made = folder.reproduce(finding, target, other, times=1, keep=keep, avoid=False, most=30)
    except InputError as error:
        if left == "numpy":
            pytest.skip(f"this machine's BLAS: {error}")
        raise
    folder.write_folder(made, tmp_path)
    assert made.ran.status == 0
    assert clean(tmp_path / "reproduce.py") == ""
    if "window" in made.explanation.causes:
        assert "order.png" not in made.files
        assert "windows differ" in (tmp_path / "report.md").read_text()


def test_products_that_are_0_are_left_out_of_what_is_shown_and_nothing_else():
    case = Case(op="conv1d", kernel=40, length=41, operands="cancel")
    targets = Target.parse("reference"), Target.parse("reference,algorithm=fused")
    finding = Finding.of(case)
    x, w = np.zeros_like(finding.x), np.zeros_like(finding.w)
    x[0, [7, 30], 0], w[[7, 30], 0, 0] = (1.0, 1.0000001), (-8.0, 6.1)
    with failing(*targets, inline=True) as failed:
        found = failed.explained(finding.with_operands(x, w, None))
    assert len(found.differing) and found.replayed == found.compared
    shown = folder.evidence_of(found)
    for side in (shown.left, shown.right):
        assert set(side.summation.tree.leaves) == {7, 30} and len(side.sums) == 1
        assert side.sums[-1].bits == side.library
    assert (
        shown.left.summation.rounding.fused == frozenset()
        and shown.right.summation.rounding.fused == {30}
    )


@pytest.mark.slow
def test_order_and_rounding_stay_order_and_rounding():
    finding = Finding.of(Case("conv1d", 5, in_channels=3, length=9))
    with failing(Target.parse(FUSED), Target.parse("reference,algorithm=pairwise")) as failed:
        condition = KeepsCause(failed, finding)
        found = folder.shrunken(failed, finding, kept=condition)
        after = effect(failed.explained(found.finding), found.finding.label)
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
    require_unwritten("out", tmp_path)
    folder.write_folder(made, tmp_path)
    assert made.sizes["report.md"] == len((tmp_path / "report.md").read_text())
    with pytest.raises(InputError, match="give another folder"):
        require_unwritten("out", tmp_path)
    made.ran = replace(made.ran, printed="x" * 100_000)
    made.short, made.script = None, "y" * 100_000
    whole = report.report_text(made, report.FORMS["tensorflow"])
    assert len(whole) <= report.LIMIT and "attached `reproduce.py`" in whole


def test_the_first_affected_release_is_searched_between_two(monkeypatch):
    """Releases are stood in for: what differs from 1.3 on, of which 1.2 can't be run."""
    since = {"from": "1.3"}

    @contextmanager
    def started(where):
        if where.version == "1.2":
            raise TargetError(where.text, "unavailable", "no wheel")
        differs = float(where.version) >= float(since["from"])
        yield SimpleNamespace(by_bits=lambda finding: differs)

    monkeypatch.setattr(folder, "failing", started)
    monkeypatch.setattr(folder.installation, "install_target", lambda where: None)
    releases = ["1.0", "1.1", "1.2", "1.3", "1.4", "1.5"]
    monkeypatch.setattr(folder, "releases_between", lambda *ends: releases)
    asked = None, Target.parse("torch"), "1.5", Target.parse("torch==1.0"), print
    assert folder.first_affected(*asked) == "1.3; 1.1 agrees; 1.2 could not be run"
    since["from"] = "0.9"
    assert folder.first_affected(*asked).startswith("1.0 or an earlier one")
    since["from"] = "2.0"
    assert folder.first_affected(*asked).startswith("not known")


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
