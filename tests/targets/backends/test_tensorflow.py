"""TensorFlow: exact on integers, what it refuses, and the report's bits.

Bits in the tests marked ``golden`` are facts about TensorFlow 2.21.0 on x86-64 with AVX-512 VNNI
(first seen on an AMD EPYC, Zen 5).
"""

from __future__ import annotations

import numpy as np
import pytest

from probe.sweep.campaign import run_row
from probe.targets import target
from probe.targets.backends import conformance
from probe.targets.backends.contract import Unsupported
from probe.targets.backends.source import InputShape
from probe.targets.backends.tensorflow import TensorFlow, error_line
from tests.targets.backends import conforming

pytestmark = pytest.mark.long


WEIGHTS = [-0.7313, -1.1043, 1.8492, 1.3007, -0.1033]


def refused(findings):
    """What was refused, in one form for each kind of spec."""
    specs = [found.spec for found in findings if found.verdict == "unsupported"]
    return {
        (spec["op"], max(spec["stride"]) > 1, max(spec["dilation"]) > 1, spec["groups"])
        for spec in specs
    }


@pytest.mark.slow
def test_what_tensorflow_refuses_on_a_cpu_is_known(started):
    findings = conformance.check(conforming.asking(started("tensorflow")), ("float32",))
    known = {
        ("conv3d", False, False, 2),  # groups
        ("conv3d", True, True, 1),  # strides and dilations
        ("depthwise_conv2d", True, True, 3),
        ("depthwise_conv2d", True, False, 3),  # unlike strides, where oneDNN is off
    }
    assert refused(findings) <= known


def test_a_refusal_is_one_line_that_says_why(started):
    run = conforming.asking(started("tensorflow"))
    spec = conformance.spec("conv3d", [2, 2, 2], in_channels=4, filters=6, groups=2)
    found = conformance.compare_spec(spec, [3, 3, 5], 1, run)
    assert found.verdict == "unsupported"
    assert "TensorFlow refuses: " in found.detail and "\n" not in found.detail
    assert "{{" not in found.detail and "/" not in found.detail.split("refuses")[1]


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("{{function_node f}} No such stride. [Op:Conv3D] name: ", "No such stride."),
        ("Exception encountered when calling Conv1D.call().\n\n\x1b[1mToo few\x1b[0m", "Too few"),
        ("Graph execution error:\n\nDetected at\nNot here\n\t [[{{node a}}]] [Op:f]", "Not here"),
        ("", "ValueError"),
    ],
)
def test_one_line_of_a_librarys_error(message, line):
    assert error_line(ValueError(message)) == line


def test_what_is_said_of_the_default_is_what_the_library_does(started):
    session = started("tensorflow")
    row = run_row(session.target, session.facts, session.variables)
    assert row["switches"]["onednn"] == str(int(session.facts["onednn"]))
    # of ARM nothing is said
    said = target.defaults_here(session.target)
    assert said.get("onednn", row["switches"]["onednn"]) == row["switches"]["onednn"]


def test_the_environment_says_the_switches():
    switches = {"onednn": "0", "contraction": "0", "isa": "avx512_core", "deterministic": "1"}
    assert TensorFlow.environment(switches, "cpu").items() >= {
        ("TF_ENABLE_ONEDNN_OPTS", "0"),
        ("TENSORFLOW_USE_CUSTOM_CONTRACTION_KERNEL", "0"),
        ("ONEDNN_MAX_CPU_ISA", "AVX512_CORE"),
        ("DNNL_MAX_CPU_ISA", "AVX512_CORE"),
        ("TF_DETERMINISTIC_OPS", "1"),
        ("CUDA_VISIBLE_DEVICES", "-1"),
    }
    defaults = set(TensorFlow.environment({}, "gpu:0"))
    assert defaults == {"TF_CPP_MIN_LOG_LEVEL", "ABSL_MIN_LOG_LEVEL"}


def recorded(started, text):
    """Asks a target where the report's bits were recorded; a processor without skips at once."""
    why = "recorded with TensorFlow 2.21.0 on a CPU with AVX-512 VNNI"
    if not {"avx512f", "avx512_vnni"} <= target.cpu_flags():
        pytest.skip(why)
    run = conforming.asking(started(text))
    if started(text).facts["library_version"] != "2.21.0":
        pytest.skip(why)
    return run


def report(run, length):
    """The report's outputs, as hexadecimal bits: conv2d 1x5, VALID, input 10 * [0, 1, ...]."""
    spec = conformance.spec("conv2d", [1, 5], bias=True)
    x = 10 * np.arange(length, dtype=np.float32).reshape(1, 1, length, 1)
    w = np.array(WEIGHTS, np.float32).reshape(1, 5, 1, 1)
    y = run(spec, x, w, np.array([0.0401], np.float32))
    return " ".join(f"{bits:08X}" for bits in y.ravel().view(np.uint32))


@pytest.mark.golden
@pytest.mark.parametrize(
    ("text", "seven", "fourth"),
    [
        ("tensorflow", "42737AFB 4291F5CF 42AA2E21", "42C26673"),
        ("tensorflow,onednn=0", "42737AFD 4291F5CF 42AA2E20", "42C26673"),
        ("tensorflow,onednn=0,contraction=0", "42737AFD 4291F5D0 42AA2E22", "42C26672"),
    ],
)
@pytest.mark.slow_at("tensorflow,onednn=0,contraction=0-42737AFD 4291F5D0 42AA2E22-42C26672")
def test_the_reports_bits(started, text, seven, fourth):
    run = recorded(started, text)
    assert report(run, 7) == seven
    assert report(run, 8) == f"{seven} {fourth}"


@pytest.mark.golden
def test_the_reports_failure_is_alive_with_eigens_own_contraction(started):
    run = recorded(started, "tensorflow,onednn=0,contraction=0")
    longest = report(run, 19).split()
    changed = [n for n in range(5, 19) if report(run, n).split() != longest[: n - 4]]
    assert changed == [9, 10, 11, 13, 14, 15]


def test_an_operator_refused_by_the_backend_itself_is_unsupported():
    spec = conformance.spec("depthwise_conv2d", [3, 3], in_channels=2, filters=2)
    both = dict(spec, stride=[2, 2], dilation=[2, 2])
    with pytest.raises(Unsupported, match="strides or dilations"):
        TensorFlow().described({}, "cpu", "").emit(both, InputShape(both, (1, 5, 5, 2)))
