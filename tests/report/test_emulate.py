"""Saved runs: the evaluator agrees with the replay, and the files stand on their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from probe.case import floats
from probe.case.case import Case
from probe.case.errors import InputError
from probe.explain.comparison import OutputPairs
from probe.explain.runs import CaseRun, ComparedShapes, run_and_reveal
from probe.report import proof
from probe.targets.launch import open_session
from probe.targets.target import Target

pytestmark = pytest.mark.long

ROOMY = {"kernel": 3, "in_channels": 4, "filters": 4, "length": 9, "bias": "normal"}


def side(target: str, case: Case) -> CaseRun:
    with open_session(Target.parse(target), inline=True) as session:
        return run_and_reveal(session, case)


def ran(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a saved file where probe can't be imported."""
    command = [sys.executable, "-I", "-W", "error", path.name, *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=path.parent, check=False)


CASES = [
    ("reference,algorithm=pairwise", Case(op="conv1d", **ROOMY)),
    ("reference,algorithm=fused", Case(op="conv1d", **ROOMY, padding="same", stride=2)),
    ("reference", Case(op="conv1d", **ROOMY, dtype="float64", groups=2, dilation=2)),
    (
        "reference",
        Case(op="conv2d", **ROOMY, dtype="bfloat16", padding="1:2,0:1", height=4, batch=2),
    ),
    ("reference,algorithm=blocked", Case(op="depthwise_conv2d", **ROOMY, dtype="float16")),
    ("reference,algorithm=truncated", Case(op="conv1d", **ROOMY, dtype="bfloat16")),
]


@pytest.mark.parametrize(("target", "case"), CASES, ids=lambda one: getattr(one, "label", one))
@pytest.mark.slow_at("reference-conv2d 3x3, 4 -> 4, 1:2,0:1, batch 2, height 4, length 9, bfloat16")
def test_a_saved_run_gives_its_bits_without_probe(target: str, case: Case, tmp_path) -> None:
    one = side(target, case)
    path = proof.save(one, tmp_path / "run.py", note="a note")
    done = ran(path, "--all")
    assert done.returncode == 0, done.stdout + done.stderr
    count = one.operands.y.size
    assert f"{count} of {count} outputs have the library's bits" in done.stdout
    assert done.stdout.startswith("a note\n") and done.stdout.count("out[") == count
    for bits in floats.to_bits(one.operands.y, case.dtype).reshape(-1)[:3]:
        assert f"{bits:x}" in done.stdout


def test_other_bits_are_told_and_exit_with_1(tmp_path) -> None:
    one = side("reference", Case(op="conv1d", **ROOMY))
    one.operands.y[3, 2] += 1
    done = ran(proof.save(one, tmp_path / "run.py"))
    assert done.returncode == 1
    assert "out[0, 3, 2] = " in done.stdout and "the library gave" in done.stdout
    assert f"{one.operands.y.size - 1} of {one.operands.y.size} outputs" in done.stdout


def test_two_runs_show_where_they_part(tmp_path) -> None:
    case = Case(op="conv1d", kernel=5, in_channels=3, operands="cancel")
    left, right = (side("reference,length_switch=5", case.with_(length=n)) for n in (7, 12))
    pairs = OutputPairs.must_agree(
        ComparedShapes(case, "length", left.case.length, right.case.length, None)
    )
    done = ran(proof.save([left, right], tmp_path / "two.py", pairs=pairs))
    assert done.returncode == 0
    differing = int((left.operands.y[:3] != right.operands.y[:3]).sum())
    assert differing
    assert f"outputs that add the same products in both: 3, differing: {differing}" in done.stdout


def test_what_did_not_replay_is_refused_or_counted(tmp_path) -> None:
    one = side("reference", Case(op="conv1d", **ROOMY))
    one.replays[0] = False
    with pytest.raises(
        InputError,
        match=r"4 of 28 outputs have different bits when they are replayed; give another",
    ):
        proof.save(one, tmp_path / "run.py")
    done = ran(proof.save(one, tmp_path / "run.py", partial=True))
    assert done.returncode == 0
    assert "of 4 outputs no order is known" in done.stdout and "24 of 28" in done.stdout
