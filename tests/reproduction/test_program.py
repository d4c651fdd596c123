"""Real findings of every library that is here: minimal within the budget, confirmed by scripts."""

from __future__ import annotations

import sys
import time

import pytest

from probe import target
from probe.case import Case
from probe.comparison import Finding
from probe.errors import InputError
from probe.reproduction import folder, proof
from probe.reproduction.failing import failing
from probe.reproduction.proof import verify
from probe.target import Target
from tests.reproduction.test_folder import clean
from tests.runtimes.test_installed import provided

REPORT = {"weights": "-0.7313,-1.1043,1.8492,1.3007,-0.1033", "bias": 0.0401, "operands": "ramp"}


def started(text: str) -> Target:
    where = Target.parse(text)
    if where.version:
        return provided(text, 2)
    if why := target.why_unavailable(where):
        pytest.skip(f"{text}: {why}")
    return where


@pytest.mark.slow
@pytest.mark.parametrize("text", ["tensorflow,onednn=0", "tensorflow,isa=avx2"])
def test_a_large_finding_is_minimal_in_300_calls_and_30_seconds(text):
    case = Case(op="conv1d", kernel=9, in_channels=256, filters=64, operands="cancel")
    with failing(started(text)) as failed:
        finding = Finding.of(case, "length", 9, 600)
        if not failed.by_bits(finding):
            pytest.skip(f"{text}: this machine has no such difference")
        before = time.process_time()
        found = folder.shrunken(failed, finding)
        own = time.process_time() - before
    assert found.ended == "minimal" and found.calls <= 300
    assert own < 30  # of this process; the library's calls take less
    smallest = found.finding.case
    assert smallest.filters <= 2 and smallest.in_channels <= 4


@pytest.mark.slow
def test_the_original_report_becomes_no_larger_than_itself():
    where = started("tensorflow,onednn=0,contraction=0")
    finding = Finding.of(Case(op="conv2d", kernel="1x5", **REPORT), "length", 9, 19)
    try:
        made = folder.reproduce(finding, where)
    except InputError as error:
        pytest.skip(f"this machine: {error}")
    smallest = made.finding
    assert smallest.case.kernel[0] == 1 and smallest.case.kernel[1] <= 5
    assert smallest.at <= 7 and smallest.against <= 8
    assert made.explanation.replayed == made.explanation.compared


FINDINGS = [
    ("tensorflow,onednn=0", Case(op="conv1d", kernel=5, in_channels=64), "length", 5, 40),
    ("tensorflow,xla=1", Case(op="conv1d", kernel=5, in_channels=8), "length", 5, 40),
    ("keras,onednn=0", Case(op="conv1d", kernel=5, in_channels=64, bias=0.5), "length", 5, 40),
    ("torch", Case(op="conv1d", kernel=5, in_channels=3, filters=4), "length", 5, 40),
    ("torch", Case(op="matmul", in_channels=300, filters=40, bias="normal"), "length", 3, 40),
    ("torch", Case(op="conv1d", kernel=5, in_channels=64, filters=64, length=10), "batch", 1, 2),
    (  # one channel is left: its strides must not tell PyTorch another memory format
        "torch,mkldnn=0",
        Case(*("depthwise_conv2d", "3x5"), in_channels=6, filters=12, height=7, operands="cancel"),
        *("length", 6, 40),
    ),
    (
        "litert",
        Case(op="conv1d", kernel=4, in_channels=9, filters=3, length=30, operands="cancel"),
        *("channels", 4, 9),
    ),
    (
        "litert,xnnpack=0",
        Case(op="conv1d", kernel=3, in_channels=16, length=8, operands="cancel"),
        *("filters", 1, 8),
    ),
    ("jax", Case(op="conv1d", kernel=5, in_channels=16, filters=4), "length", 5, 40),
    ("onnxruntime", Case(op="conv1d", kernel=5, in_channels=64, filters=4), "length", 7, 40),
    (
        "onnxruntime,weights=argument",
        Case(op="conv1d", kernel=5, in_channels=64, filters=4, bias="normal"),
        *("length", 7, 40),
    ),
    ("litert,xnnpack=0", Case(op="conv2d", kernel="1x5", in_channels=16), "length", 5, 40),
    ("numpy", Case(op="dot", in_channels=100), "length", 1, 40),
    ("tensorflow==1.2.1", Case(op="conv2d", kernel="1x5", **REPORT), "length", 9, 19),
    ("tensorflow==1.15.0", Case(op="conv2d", kernel="1x5", **REPORT), "length", 5, 19),
]


@pytest.mark.slow
@pytest.mark.parametrize(("text", "case", "vary", "at", "against"), FINDINGS)
def test_a_library_s_finding_is_confirmed_by_its_script(text, case, vary, at, against, tmp_path):
    where = started(text)
    try:
        made = folder.reproduce(Finding.of(case, vary, at, against), where, times=1)
    except InputError as error:
        if "bit for bit" not in error.why:
            raise
        pytest.skip(f"{text}: this machine has no such difference")
    assert made.ran.status == 1 and made.shrunk.calls <= 300
    folder.write_folder(made, tmp_path)
    assert clean(tmp_path / "reproduce.py") == ""


FRAMEWORKS = [
    ("opencv", "torch", Case(op="conv1d", kernel=5, in_channels=3, length=12, operands="cancel")),
    (
        *("opencv", "onnxruntime"),
        Case(op="depthwise_conv2d", kernel=3, in_channels=4, length=9, height=7, operands="cancel"),
    ),
    (
        *("litert,xnnpack=0", "litert"),
        Case(op="depthwise_conv2d", kernel=3, in_channels=5, length=9, height=6, operands="cancel"),
    ),
    ("litert", "jax", Case(op="conv1d", kernel=5, in_channels=4, length=8, operands="cancel")),
    ("litert", "torch", Case(op="avg_pool2d", kernel=3, padding=1, length=9, height=9)),
    (
        *("tensorflow,algorithm=elementwise", "tensorflow"),
        Case(op="conv2d", kernel=3, in_channels=4, filters=4, groups=2, length=8, height=8),
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("left", "right", "case"), FRAMEWORKS)
def test_a_case_that_two_targets_compute_apart_is_confirmed(left, right, case, tmp_path):
    sides = started(left), started(right)
    try:
        made = folder.reproduce(Finding.of(case), *sides, times=1)
    except InputError as error:
        if "bit for bit" not in error.why:
            raise
        pytest.skip(f"this machine: {error}")
    folder.write_folder(made, tmp_path)
    assert verify(tmp_path, 1).same_bits and clean(tmp_path / "reproduce.py") == ""


@pytest.mark.slow
def test_caffe_rounds_a_pool_up_and_a_script_shows_it(tmp_path):
    case = Case(op="max_pool2d", kernel=3, stride=2, length=8, height=8, padding="caffe")
    made = folder.reproduce(Finding.of(case, padding="valid"), started("opencv"), times=1)
    folder.write_folder(made, tmp_path)
    assert set(made.explanation.causes) == {"window"} and verify(tmp_path, 1).same_bits


@pytest.mark.slow
@pytest.mark.parametrize("old", ["tensorflow==1.2.1", "tensorflow==1.15.0"])
def test_an_old_release_and_todays_each_run_in_their_own_interpreter(old, tmp_path):
    sides = started(old), started("tensorflow,onednn=0")
    finding = Finding.of(Case(op="conv2d", kernel="1x5", length=9, **REPORT))
    made = folder.reproduce(finding, *sides, times=1)
    folder.write_folder(made, tmp_path)
    assert verify(tmp_path, 1).same_bits and clean(tmp_path / "reproduce.py") == ""
    script = tmp_path / "reproduce.py"
    alone = proof.own_interpreter(script)
    assert alone.status == 2 and "name both interpreters" in alone.said
    wrong = proof.own_interpreter(script, arguments=(sys.executable, sys.executable))
    assert wrong.status == 2 and f"{sides[0].version} is needed, on the left" in wrong.said


@pytest.mark.slow
def test_two_frameworks_and_two_sets_of_switches_are_compared_in_processes_of_their_own():
    case = Case(op="conv1d", kernel=5, in_channels=8, length=9, operands="cancel")
    for left, right in (("tensorflow", "torch"), ("tensorflow,onednn=0", "tensorflow,onednn=1")):
        sides = started(left), started(right)
        try:
            made = folder.reproduce(Finding.of(case), *sides, times=1)
        except InputError as error:
            pytest.skip(f"this machine: {error}")
        assert made.ran.status == 1 and made.finding.case.in_channels < case.in_channels, left
