"""Old releases, one emulated processor and arm64, really installed: the report's bits.

Disk: 0.2 GB for TensorFlow 1.2.1, 0.1 GB for ONNX Runtime 1.10.0, 1.6 GB for arm64. Time, on an
idle machine: one minute, a quarter, two minutes; half a minute for a Haswell, which needs no disk.
What is installed stays in the user's cache, so that only the first run downloads.
"""

from __future__ import annotations

import shutil

import pytest

from probe.case.case import Case
from probe.case.errors import TargetError
from probe.explain.comparison import Comparison, OutputPairs
from probe.explain.runs import ComparedShapes, run_and_reveal, run_case
from probe.targets import environments, installation, target
from probe.targets.launch import Session
from probe.targets.target import Target

pytestmark = pytest.mark.slow

REPORT = Case(
    op="conv2d",
    kernel="1x5",
    weights=(-0.7313, -1.1043, 1.8492, 1.3007, -0.1033),
    bias=0.0401,
    operands="ramp",
)


def provided(text, gigabytes):
    """The target, installed; skips where no interpreter, disk, emulator or package can be had."""
    where = Target.parse(text)
    if target.why_unavailable(where) is None:
        return where
    environments.cache_folder().mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(environments.cache_folder()).free / 1e9
    if free < gigabytes:
        pytest.skip(f"{text} needs {gigabytes} GB of disk, and {free:.1f} are free")
    try:
        installation.install_target(where.with_(onednn=None))
    except TargetError as error:
        if "answer" in error.why or "wrongly" in error.why:
            raise
        pytest.skip(str(error))
    return where


def bits(side):
    return [f"{value:08X}" for value in side.operands.y.reshape(-1).view("u4").tolist()]


@pytest.mark.golden
def test_the_report_comes_out_of_tensorflow_1_2_1_bit_for_bit():
    """As published in 2017; the order changes for outputs 1 and 2, and the replay proves it."""
    if installation.find_python("3.6") is None:
        pytest.skip(installation.python_missing("3.6"))
    with Session(provided("tensorflow==1.2.1", 0.5)) as session:
        left, right = (run_and_reveal(session, REPORT.with_(length=length)) for length in (7, 8))
    assert bits(left) == ["42737AFD", "4291F5D0", "42AA2E22"]
    assert bits(right) == ["42737AFD", "4291F5CF", "42AA2E20", "42C26673"]
    pairs = OutputPairs.must_agree(ComparedShapes(REPORT, "length", 7, 8, None))
    found = Comparison(REPORT, left, right, pairs)
    assert found.causes == {"order": 2} and found.differing.tolist() == [1, 2]
    assert found.replayed == 3 and left.replays.all() and right.replays.all()


@pytest.mark.golden
def test_a_haswell_gives_its_own_bits():
    """TensorFlow 2.21 without AVX-512, T = 5 without the bias: a sum that isn't fused."""
    where = provided("tensorflow@haswell", 0.1)
    if target.installed_version(target.backends.get("tensorflow")) != "2.21.0":
        pytest.skip("these bits are TensorFlow 2.21.0's")
    case = REPORT.with_(bias=None, length=5)
    with Session(where) as session:
        side = run_case(session, case)
    assert bits(side) == ["427351ED"]


@pytest.mark.golden
def test_the_report_is_alive_on_arm64():
    """The third output of T = 7 and of T = 8, without the bias: 42AA1999 and 42AA1998."""
    if environments.emulation_missing("arm64"):
        pytest.skip(str(environments.emulation_missing("arm64")))
    where = provided("tensorflow==2.21.0@arm64,onednn=0", 4.0)
    with Session(where) as session:
        case = REPORT.with_(bias=None)
        one, two = (run_case(session, case.with_(length=length)) for length in (7, 8))
    assert bits(one)[2] == "42AA1999" and bits(two)[2] == "42AA1998"
