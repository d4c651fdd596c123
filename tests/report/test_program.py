"""Real findings of every library that is here: minimal within the budget, confirmed by scripts."""

from __future__ import annotations

import ast
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from probe.case.case import Case
from probe.case.errors import InputError
from probe.explain.runs import Finding
from probe.report import folder, program, proof
from probe.report.folder import failing
from probe.report.proof import verify
from probe.targets import target
from probe.targets.environments import Runtime
from probe.targets.target import Target
from tests.targets.test_installed import provided

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


def reproduced(finding: Finding, *texts: str, times: int = 1) -> folder.Reproduction:
    """The finding on its targets; skips where this machine has no such difference."""
    try:
        return folder.reproduce(finding, *map(started, texts), times=times)
    except InputError as error:
        if "bit for bit" not in error.why:
            raise
        pytest.skip(f"this machine: {error}")


@pytest.mark.slow
def test_the_original_report_becomes_no_larger_than_itself():
    finding = Finding.of(Case(op="conv2d", kernel="1x5", **REPORT), "length", 9, 19)
    made = reproduced(finding, "tensorflow,onednn=0,contraction=0", times=3)
    smallest = made.finding
    assert smallest.case.kernel[0] == 1 and smallest.case.kernel[1] <= 5
    assert smallest.at <= 7 and smallest.against <= 8
    assert made.explanation.replayed == made.explanation.compared


FINDINGS = [
    ("torch", Case(op="matmul", in_channels=300, filters=40, bias="normal"), "length", 3, 40),
    ("torch", Case(op="conv1d", kernel=5, in_channels=64, filters=64, length=10), "batch", 1, 2),
    (  # one channel is left: its strides must not tell PyTorch another memory format
        "torch,mkldnn=0",
        Case(*("depthwise_conv2d", "3x5"), in_channels=6, filters=12, height=7, operands="cancel"),
        *("length", 6, 40),
    ),
    ("litert", Case("conv1d", 4, 9, 3, length=30, operands="cancel"), "channels", 4, 9),
    ("litert,xnnpack=0", Case("conv1d", 3, 16, length=8, operands="cancel"), "filters", 1, 8),
    ("jax", Case(op="conv1d", kernel=5, in_channels=16, filters=4), "length", 5, 40),
    ("onnxruntime", Case(op="conv1d", kernel=5, in_channels=64, filters=4), "length", 7, 40),
    ("numpy", Case(op="dot", in_channels=100), "length", 1, 40),
]


@pytest.mark.slow
@pytest.mark.parametrize(("text", "case", "vary", "at", "against"), FINDINGS)
def test_a_library_s_finding_is_confirmed_by_its_script(text, case, vary, at, against, tmp_path):
    made = reproduced(Finding.of(case, vary, at, against), text)
    assert made.ran.status == 0 and made.shrunk.calls <= 300
    folder.write_folder(made, tmp_path)
    assert clean(tmp_path / "reproduce.py") == ""


@pytest.mark.slow
@pytest.mark.parametrize("old", ["tensorflow==1.2.1", "tensorflow==1.15.0"])
def test_an_old_release_and_todays_each_run_in_their_own_interpreter(old, tmp_path):
    finding = Finding.of(Case(op="conv2d", kernel="1x5", length=9, **REPORT))
    made = reproduced(finding, old, "tensorflow,onednn=0")
    folder.write_folder(made, tmp_path)
    assert verify(tmp_path, 1, trust=True).same_bits and clean(tmp_path / "reproduce.py") == ""
    script = tmp_path / "reproduce.py"
    alone = proof.own_interpreter(script)
    assert alone.status == 2 and "name both interpreters" in alone.said
    wrong = proof.own_interpreter(script, arguments=(shlex.quote(sys.executable),) * 2)
    version = made.targets[0].version
    assert wrong.status == 2 and f"{version} is needed, on the left" in wrong.said


GOLDEN = Path(__file__).parent / "golden.txt"


def ruff(*arguments: str) -> subprocess.CompletedProcess[str]:
    program = shutil.which("ruff", path=str(Path(sys.executable).parent)) or shutil.which("ruff")
    if program is None:
        pytest.skip("ruff is not installed")
    command = [program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def clean(path: Path) -> str:
    """What ruff finds in a script; empty where it is clean and formatted."""
    isolated = ("--isolated", "--line-length", "100")
    one = ruff("check", *isolated, "--select", "E,F,W,I,B", str(path))
    two = ruff("format", *isolated, "--diff", str(path))
    return (one.stdout if one.returncode else "") + two.stdout


ALL = [
    ("tensorflow,onednn=0,contraction=0,threads=2", "2.21.0", Case(op="conv2d", kernel="1x5")),
    ("tensorflow,xla=1", "2.21.0", Case(op="depthwise_conv2d", kernel=3, in_channels=2, padding=1)),
    ("tensorflow,weights=constant", "2.21.0", Case(op="conv3d", kernel=2, bias="normal")),
    ("tensorflow,algorithm=elementwise", "2.21.0", Case(op="conv2d", kernel=2, padding="same")),
    ("tensorflow", "1.2.1", Case(op="conv2d", kernel="1x5", bias=0.5, padding="1:0,0")),
    ("tensorflow", "1.15.0", Case(op="avg_pool2d", kernel=3, height=6, padding=1)),
    ("tensorflow", "1.15.0", Case(op="conv1d", kernel=3, bias=0.5, dtype="bfloat16")),
    ("tensorflow,algorithm=elementwise", "2.21.0", Case("conv2d", 2, 4, 8, groups=2)),
    ("keras", "3.15.1", Case("conv2d", 3, 2, 2, padding=1, bias=0.5, groups=2)),
    ("keras,xla=1", "3.15.1", Case(op="matmul", in_channels=4)),
    ("torch,mkldnn=0,threads=1", "2.13.0", Case(op="conv2d", kernel=3, padding="0:1,1")),
    ("torch", "2.13.0", Case(op="matmul", in_channels=4, filters=2, bias=0.5)),
    ("torch", "2.13.0", Case(op="max_pool2d", kernel=3, padding="caffe")),
    ("jax", "0.10.2", Case(op="conv1d", kernel=5, dilation=2, bias=0.5)),
    ("jax,threads=2", "0.10.2", Case(op="sum", in_channels=4, dtype="float64")),
    ("onnxruntime", "1.31.1", Case(op="conv1d", kernel=5, padding="same", bias=0.5)),
    ("onnxruntime,weights=argument", "1.31.1", Case(op="matmul", in_channels=3, filters=2, bias=1)),
    ("openvino,precision=f32", "2026.4.1", Case(op="conv1d", kernel=5, padding="same", bias=0.5)),
    ("opencv,winograd=0", "4.13.0", Case(op="conv2d", kernel=3, padding="same", stride=2)),
    ("numpy,threads=1", "2.4.6", Case(op="dot", in_channels=4, bias=0.5)),
]


def golden_sections():
    """Imports, setup and body of every script, by the line that says which it is."""
    pieces = GOLDEN.read_text().split("\n\n== ")
    return dict(piece.rstrip("\n").split("\n", 1) for piece in pieces[1:])


@pytest.mark.parametrize(
    ("target", "version", "case"), ALL, ids=lambda one: getattr(one, "label", one)
)
def test_every_librarys_script_is_clean_and_has_the_lines_that_it_had(
    target, version, case, tmp_path
):
    """What is meant to change is taken over from the message."""
    finding = Finding.of(case, "length", 10, 12)
    where = Target.parse(target)
    text = str(program.script_of_finding(finding, (where, where), (version, version), False))
    path = tmp_path / "reproduce.py"
    path.write_text(text)
    assert clean(path) == ""
    compile(text, path.name, "exec")
    library = program.of_case(where, version, finding.right, finding.operands(finding.right))
    lines = "\n".join([*library.imports, "", *library.setup, "", *library.body])
    lines = re.sub(r"'[A-Za-z0-9+/=]{50,}'.*", "(a model)", lines).strip()
    assert golden_sections()[f"{target} {version} {case.label} {case.padding_text}"] == lines


APART = [
    ("tensorflow==1.2.1", "tensorflow", ("1.2.1", "2.21.0")),
    ("tensorflow@haswell", "tensorflow", ("2.21.0", "2.21.0")),
    ("opencv", "onnxruntime", ("4.13.0", "1.31.1")),
]


@pytest.mark.parametrize(("left", "right", "versions"), APART)
def test_scripts_of_two_targets_are_clean_and_say_what_each_side_needs(
    left, right, versions, tmp_path
):
    finding = Finding.of(Case(op="conv2d", kernel="1x5", length=9))
    targets = Target.parse(left), Target.parse(right)
    path = tmp_path / "reproduce.py"
    path.write_text(text := str(program.script_of_finding(finding, targets, versions, True)))
    assert clean(path) == ""
    apart = targets[0].version is not None or targets[0].device != "cpu"
    assert ('require("1.2.1", tf.__version__)' in text) == (targets[0].version is not None)
    assert ("The left one" in text) == apart
    command = [sys.executable, str(path)]
    if apart:  # a run of both sides in one interpreter would say that nothing differs
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 2 and "name both interpreters" in done.stdout


@pytest.mark.slow
def test_interpreters_whose_path_has_a_space_run_both_sides(tmp_path, monkeypatch):
    """The commands of both sides are words of a shell, and one was the bare path."""
    finding = Finding.of(Case(op="matmul", in_channels=3, length=2))
    targets = Target.parse("numpy"), Target.parse("numpy,threads=1")
    path, python = tmp_path / "reproduce.py", tmp_path / "a clone" / "python"
    path.write_text(str(program.script_of_finding(finding, targets, (np.__version__,) * 2, True)))
    python.parent.mkdir()
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    again = f"import runpy, sys; sys.executable = {str(python)!r}; sys.argv = sys.argv[1:]"
    code = f"{again}; runpy.run_path(sys.argv[0], run_name='__main__')"
    ran = proof._run_command([sys.executable, "-c", code, str(path)])
    assert ran.said == "none of 2 outputs differs"

    native = Runtime((str(python),))
    emulated = Runtime(("qemu", *native.command))
    monkeypatch.setattr(proof, "runtime_of", lambda t: emulated if t == targets[1] else native)
    words, _ = proof.command(path, targets)
    assert [shlex.split(side) for side in words[2:]] == [[*native.command], [*emulated.command]]


def test_operands_are_exact_however_they_are_written():
    template = Path(program.__file__).parent / "templates" / "reproduce.py.j2"
    unpacked = re.search(r"def unpacked.*?\n\n", template.read_text(), re.DOTALL)[0]
    rng = np.random.default_rng(0)
    for dtype in ("float16", "float32", "float64"):
        for array in (
            np.array([[True], [False]]),
            np.arange(9, dtype=np.uint16),
            rng.standard_normal((3, 4)).astype(dtype),
            np.where(rng.random((9, 9)) > 0.95, 0.1, 0).astype(dtype),
            rng.standard_normal((40, 40)).astype(dtype),
            np.zeros((2, 2), dtype),
            np.array([np.finfo(dtype).tiny / 4, -0.0, np.finfo(dtype).max], dtype),
        ):
            text = "\n".join(program.assignments("x", array))
            names: dict[str, object] = {"np": np}
            exec(f"import base64, zlib\n{unpacked}\n{text}", names)
            got = names["x"]
            assert isinstance(got, np.ndarray) and got.dtype == array.dtype
            assert got.tobytes() == array.tobytes()


def test_a_text_in_a_docstring_ends_it_nowhere():
    ends = ("", "'", '"', "'" * 3, '"' * 3, "\\", "\n", "\0", "\ud800", "{}", "\\'", "'x'", '"x"')
    for text in (f"{a}print(){b}" for a in ends for b in ends):
        (line,) = ast.parse(f'"""{program.in_docstring(text)}\n"""').body
        assert isinstance(line.value, ast.Constant)


@given(st.sampled_from([16, 32, 64]), st.data())
def test_a_written_number_has_the_same_bits(width, data):
    dtype = f"float{width}"
    value = data.draw(st.floats(width=width, allow_nan=False) | st.sampled_from([-0.0, 3.0]))
    written = program._shortest_decimal(np.dtype(dtype).type(value))
    read = np.dtype(dtype).type(eval(written))
    assert read.tobytes() == np.dtype(dtype).type(value).tobytes(), written
