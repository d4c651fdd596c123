"""Reproductions: scripts that run on their own, proved before they are written, and verified."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from probe import launch, machine
from probe.case import Case
from probe.comparison import Finding
from probe.errors import InputError, Nondeterministic, NotReproduced, StoreError
from probe.reproduction import folder, program, proof, report
from probe.reproduction.failing import failing
from probe.reproduction.proof import verify
from probe.store import Store
from probe.sweeps import sweep_cases
from probe.target import Target
from tests.house.test_publishable import WHERE, private

pytestmark = pytest.mark.long

SWITCHES = Target.parse("reference,algorithm=pairwise,length_switch=8")
GOLDEN = Path(__file__).parent / "golden"
CANCEL = Case(op="conv1d", kernel=5, operands="cancel")


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


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A reproduction of a finding of the reference, and its folder."""
    out = tmp_path_factory.mktemp("reproduction") / "out"
    finding = Finding.of(CANCEL, "length", 6, 20)
    found = folder.reproduce(finding, SWITCHES, times=2, also=[Target.parse("reference")])
    folder.write_folder(found, out)
    return found, out


def test_the_folder_has_what_a_maintainer_needs(made):
    found, out = made
    assert sorted(path.name for path in out.iterdir()) == sorted(found.files)
    assert set(found.files) == {
        *("reproduce.py", "emulated.py", "report.md", "order.png", "machine.json"),
    }
    assert found.explanation.causes == {"order": 1} and found.shrunk.ended == "minimal"
    assert found.finding.label == "conv1d 4, 1 -> 1, length 4 against 11"
    assert [one.said for one in found.elsewhere] == ["does not differ"]


def test_both_programs_run_alone_and_agree(made):
    found, out = made
    ran = proof.run_script(out / "reproduce.py", found.targets)
    assert ran.status == 1 and ran.said.endswith("up to 6 ulp")
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


def test_the_report_has_the_forms_headings_and_both_trees(made):
    found, out = made
    text = (out / "report.md").read_text()
    assert "y = (((p0+p1)+p2)+p3)" in text and "y = ((p0+p1)+(p2+p3))" in text
    assert "s0 = p0 + p1 = " in text and "#0" not in text and "0x3f800006" in text
    assert "nearest case without a difference: conv1d 4, 1 -> 1, length 4 against 10" in text
    assert "| reference |" in text and "Should conv1d of a prefix equal the prefix" in text
    assert (
        text.index("It prints:") < text.index("The finding it came from") < text.index("**Why.**")
    )
    for name, form in report.FORMS.items():
        whole = report.report_text(found, name)
        assert form["tracker"] in whole and len(whole) <= report.LIMIT
        told = [h for h, _ in form.sections if f"{form.level} {h}\n" in whole]
        places = [whole.index(f"{form.level} {heading}\n") for heading in told]
        assert places == sorted(places) and len(told) >= len(form.sections) - 3, name
        assert found.short.text.strip() in whole and found.script.strip() not in whole
        assert "none" not in whole and "not told" not in whole, name
    assert "numerical_accuracy" in report.report_text(found, "torch")
    with pytest.raises(InputError, match="form=bugzilla"):
        folder.write_folder(found, out, "bugzilla")


def test_the_report_names_kernels_that_are_known_of_a_side(made):
    found, _ = made

    assert "Kernels" not in report.report_text(found, "torch")
    found.explanation.kernels = {
        "left": {"backend-choice": ["Slow2d"], "symbols": ["(perf is not installed)"]},
        "right": {"backend-choice": ["(not told)"], "symbols": ["(perf is not installed)"]},
    }
    try:
        for form in ("torch", "onednn"):
            text = report.report_text(found, form)
            assert "| backend-choice | `Slow2d` | not told |" in text and "perf" not in text
            assert text.index("products are added") < text.index("backend-choice")
        assert found.to_json()["kernels"]["left"]["backend-choice"] == ["Slow2d"]
    finally:
        found.explanation.kernels = {}


def test_verify_says_still_there_gone_or_cannot_tell(made, tmp_path):
    _, out = made
    assert verify(out, 1).verdict == "still there" and verify(out, 1).same_bits
    copy = shutil.copytree(out, tmp_path / "copy")
    script = copy / "reproduce.py"
    text = script.read_text()
    script.write_text(text.replace('"length_switch": "8"', '"length_switch": "99"'))
    assert verify(copy, 1).verdict == "gone"
    script.write_text(text.replace("import numpy as np", "import no_such_library as np"))
    assert verify(copy, 2).verdict == "can't tell"
    script.write_text("import os\nos.kill(os.getpid(), 9)\n")
    found = verify(copy, 1)
    assert found.verdict == "can't tell" and "signal 9" in found.why
    script.write_text("raise RuntimeError('broken')\n")  # Python ends with 1 then
    assert verify(copy, 1).verdict == "can't tell"
    script.unlink()
    with pytest.raises(InputError, match="no reproduce.py"):
        verify(copy)
    with pytest.raises(InputError, match="machine.json"):
        verify(tmp_path)


def test_a_target_that_is_not_here_is_tried_with_this_interpreter(made, tmp_path):
    _, out = made
    copy = shutil.copytree(out, tmp_path / "copy")
    about = json.loads((copy / "machine.json").read_text())
    about["targets"] = ["tensorflow==0.0.1"] * 2
    (copy / "machine.json").write_text(json.dumps(about))
    found = verify(copy, 1)
    assert found.interpreter == "own" and found.verdict == "still there"


def test_what_no_fresh_process_confirms_is_refused(made):
    found, _ = made
    pairs = folder.expected_bits(found.explanation)
    with pytest.raises(NotReproduced, match="different bits"):
        proof.prove(found.script, found.targets, [("0", "1")], 1)
    gone = found.script.replace('"length_switch": "8"', '"length_switch": "99"')
    with pytest.raises(NotReproduced, match="not in 1 fresh ones: exit status 0: none of 1"):
        proof.prove(gone, found.targets, pairs, 1)
    broken = found.script.replace("import numpy as np", "import no_such_library as np")
    with pytest.raises(NotReproduced, match="can't run: No module named"):
        proof.prove(broken, found.targets, pairs, 1)
    changing = "import os\nprint(os.getpid())\n"
    with pytest.raises(NotReproduced, match="2 fresh processes said"):
        proof.prove(changing, found.targets, pairs, 2)


def test_what_is_not_there_or_not_the_same_twice_is_refused():
    agreeing = Finding.of(CANCEL, "length", 6, 20)
    with pytest.raises(InputError, match="agree|do, bit for bit"):
        folder.reproduce(agreeing, Target.parse("reference"))
    with pytest.raises(InputError, match="do not show"):
        folder.reproduce(agreeing, Target.parse("reference"), keep=True)
    with pytest.raises((Nondeterministic, InputError)):
        folder.reproduce(agreeing, Target.parse("reference,algorithm=random"), keep=True)


FOUND = [
    (
        "reference",
        "reference,algorithm=fused",
        Case(op="conv2d", kernel=2, length=4, operands="cancel"),
        None,
        {},
    ),
    (
        "reference",
        None,
        Case(op="conv1d", kernel=3, stride=2, padding="same", length=8),
        "caffe",
        {},
    ),
    (
        "reference",
        None,
        Case(op="max_pool1d", kernel=3, stride=2, padding="same", length=8),
        "1",
        {},
    ),
    (
        "reference,algorithm=pairwise,length_switch=4",
        None,
        Case(op="depthwise_conv2d", kernel="1x5", in_channels=2, filters=4, bias=0.5),
        None,
        {"at": 6, "against": 12},
    ),
    (
        "reference,algorithm=pairwise,length_switch=4",
        None,
        Case(op="conv1d", kernel=5, dtype="float16", operands="cancel", batch=2),
        None,
        {"at": 6, "against": 12},
    ),
    (
        "reference,algorithm=pairwise,length_switch=4",
        None,
        Case(
            op="conv1d",
            kernel=5,
            dtype="float64",
            operands="cancel",
            groups=2,
            in_channels=4,
            filters=2,
        ),
        None,
        {"at": 6, "against": 12},
    ),
    ("numpy", None, Case(op="matmul", in_channels=64, filters=3), None, {"at": 1, "against": 40}),
    (
        "reference",
        None,
        Case(op="matmul", in_channels=9, length=2, operands="cancel"),
        None,
        {"vary": "channels", "at": 4, "against": 9},
    ),
]


@pytest.mark.parametrize(("left", "right", "case", "padding", "pair"), FOUND)
@pytest.mark.slow_at(
    "numpy-None-case6-None-pair6",
    "reference,algorithm=pairwise,length_switch=4-None-case4-None-pair4",
    "reference,algorithm=pairwise,length_switch=4-None-case5-None-pair5",
    "reference-None-case1-caffe-pair1",
    "reference-None-case7-None-pair7",
    "reference-reference,algorithm=fused-case0-None-pair0",
)
def test_scripts_of_all_kinds_run_and_are_clean(left, right, case, padding, pair, tmp_path):
    """Every other one with the case as it is."""
    keep = left != "numpy" and FOUND.index((left, right, case, padding, pair)) % 2 == 0
    finding = Finding.of(case, padding=padding, **pair)
    target = Target.parse(left)
    try:
        other = right and Target.parse(right)
        made = folder.reproduce(finding, target, other, times=1, keep=keep, avoid=False)
    except InputError as error:
        if left == "numpy":
            pytest.skip(f"this machine's BLAS: {error}")
        raise
    folder.write_folder(made, tmp_path)
    assert made.ran.status == 1
    assert clean(tmp_path / "reproduce.py") == ""
    if "window" in made.explanation.causes:
        assert "order.png" not in made.files
        assert "windows differ" in (tmp_path / "report.md").read_text()


ALL = [
    ("tensorflow", "2.21.0", Case(op="conv1d", kernel=5, in_channels=2, bias=0.5)),
    ("tensorflow,onednn=0,contraction=0,threads=2", "2.21.0", Case(op="conv2d", kernel="1x5")),
    ("tensorflow,xla=1", "2.21.0", Case(op="depthwise_conv2d", kernel=3, in_channels=2, padding=1)),
    ("tensorflow,weights=constant", "2.21.0", Case(op="conv3d", kernel=2, bias="normal")),
    ("tensorflow,algorithm=elementwise", "2.21.0", Case(op="conv2d", kernel=2, padding="same")),
    ("tensorflow,mode=graph", "2.21.0", Case(op="dot", in_channels=9)),
    ("tensorflow", "1.2.1", Case(op="conv2d", kernel="1x5", bias=0.5, padding="1:0,0")),
    ("tensorflow,threads=1", "1.15.0", Case(op="conv1d", kernel=3, padding="same")),
    ("tensorflow", "1.15.0", Case(op="max_pool2d", kernel=2)),
    ("tensorflow", "1.15.0", Case(op="avg_pool2d", kernel=3, height=6, padding=1)),
    ("tensorflow", "1.15.0", Case(op="conv1d", kernel=3, bias=0.5, dtype="bfloat16")),
    (
        "tensorflow,algorithm=elementwise",
        "2.21.0",
        Case(op="conv2d", kernel=2, in_channels=4, filters=8, groups=2),
    ),
    (
        "tensorflow,algorithm=elementwise,mode=graph",
        "2.21.0",
        Case(op="depthwise_conv2d", kernel=2, in_channels=4),
    ),
    ("tensorflow,deterministic=1", "2.21.0", Case(op="avg_pool2d", kernel=3, padding=1)),
    (
        "keras",
        "3.15.1",
        Case(op="conv2d", kernel=3, padding=1, bias=0.5, groups=2, in_channels=2, filters=2),
    ),
    ("keras,xla=1", "3.15.1", Case(op="matmul", in_channels=4)),
    ("torch", "2.13.0", Case(op="conv1d", kernel=5, padding="same", bias=0.5)),
    ("torch,mkldnn=0,threads=1", "2.13.0", Case(op="conv2d", kernel=3, padding="0:1,1")),
    ("torch", "2.13.0", Case(op="matmul", in_channels=4, filters=2, bias=0.5)),
    ("torch", "2.13.0", Case(op="max_pool2d", kernel=3, padding="caffe")),
    ("jax", "0.10.2", Case(op="conv1d", kernel=5, dilation=2, bias=0.5)),
    ("jax,threads=2", "0.10.2", Case(op="sum", in_channels=4, dtype="float64")),
    ("onnxruntime", "1.31.1", Case(op="conv1d", kernel=5, padding="same", bias=0.5)),
    ("onnxruntime,weights=argument", "1.31.1", Case(op="matmul", in_channels=3, filters=2, bias=1)),
    ("onnxruntime", "1.31.1", Case(op="avg_pool1d", kernel=3, padding=1)),
    ("openvino,precision=f32", "2026.4.1", Case(op="conv1d", kernel=5, padding="same", bias=0.5)),
    ("opencv,winograd=0", "4.13.0", Case(op="conv2d", kernel=3, padding="same", stride=2)),
    ("opencv", "4.13.0", Case(op="max_pool1d", kernel=3)),
    ("numpy,threads=1", "2.4.6", Case(op="dot", in_channels=4, bias=0.5)),
]


@pytest.mark.parametrize(
    ("target", "version", "case"), ALL, ids=lambda one: getattr(one, "label", one)
)
def test_every_librarys_script_is_clean_and_as_it_was(target, version, case, tmp_path):
    """Golden: the scripts beside this file; after a change that is meant, PROBE_GOLDEN=write."""
    finding = Finding.of(case, "length", 10, 12)
    where = Target.parse(target)
    text = program.script_of_finding(finding, (where, where), (version, version), False)
    name = re.sub(r"\W+", "_", f"{target} {version} {case.op} {case.padding_text}") + ".py"
    path = tmp_path / name
    path.write_text(text)
    assert clean(path) == ""
    compile(text, name, "exec")
    folded, mine = _folded(text)
    golden = GOLDEN / f"{Path(name).stem}.txt"
    if os.environ.get("PROBE_GOLDEN") == "write":
        golden.write_text(folded)
        _keep_once(_kept_once() | mine)
    assert golden.is_file() and golden.read_text() == folded, f"{name}: see this test's text"
    assert mine.items() <= _kept_once().items()


SHARED = "shared.txt"
OWN = re.compile(r' +(print\("(?!\{\}|NumPy \{\}, )|(one|two) = ).*')
"""Lines of ``main`` that say the library, its version, both sides and their calls."""


def _folded(text):
    """A script whose functions that all scripts have are a line each, and these by that line.

    Of ``main`` its own lines stay; of numbers as many as say whether they are the same.
    """
    text = re.sub(r"(?<=numbers\()\n(?:    .*\n)+(?=\))", _digest, text)
    mine, pieces = {}, []
    for piece in text.rstrip("\n").split("\n\n\n"):
        found = re.match(r"def (?!options|compute)(\w+)|if (__name__)", piece)
        if found:
            kept = [one[0] for one in OWN.finditer(piece)] if found[1] == "main" else []
            piece = OWN.sub("    ...", piece) if kept else piece
            digest = hashlib.sha256(piece.encode()).hexdigest()[:6]
            head = f"# {found[1] or found[2]} ({digest}): in {SHARED}"
            mine[head] = piece
            piece = "\n".join([head, *(f"#{one}" for one in kept)])
        pieces.append(piece)
    text = "\n\n\n".join(pieces) + "\n"
    return re.sub(r"(\n#.*)\n\n(?=\n# )", r"\1", text), mine


def _digest(found):
    lines, digest = found[0].count("\n") - 1, hashlib.sha256(found[0].encode()).hexdigest()[:12]
    return f"...{lines} lines, {digest}"


def _kept_once():
    """The functions of ``shared.txt``, by the line that stands for each."""
    there = GOLDEN / SHARED
    text = there.read_text() if there.is_file() else ""
    return dict(one.split("\n", 1) for one in text.rstrip("\n").split("\n\n\n") if one)


def _keep_once(functions):
    blocks = (f"{head}\n{piece}" for head, piece in sorted(functions.items()))
    (GOLDEN / SHARED).write_text("\n\n\n".join(blocks) + "\n")


def test_a_function_that_golden_scripts_share_is_of_one_of_them():
    used = "".join(one.read_text() for one in GOLDEN.glob("*.txt") if one.name != SHARED)
    if os.environ.get("PROBE_GOLDEN") == "write":
        _keep_once({head: one for head, one in _kept_once().items() if head in used})
    for head, piece in _kept_once().items():
        assert _folded(piece) == (head + "\n", {head: piece}) and head in used


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
    path.write_text(text := program.script_of_finding(finding, targets, versions, True))
    assert clean(path) == ""
    apart = targets[0].version is not None or targets[0].device != "cpu"
    assert ('require("1.2.1", tf.__version__)' in text) == (targets[0].version is not None)
    assert ("The left one" in text) == apart
    command = [sys.executable, str(path)]
    if apart:  # a run of both sides in one interpreter would say that nothing differs
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 2 and "name both interpreters" in done.stdout


def test_a_side_with_another_release_than_its_own_cannot_run(tmp_path):
    finding = Finding.of(Case(op="matmul", in_channels=3, length=2))
    targets = Target.parse("numpy"), Target.parse("numpy,threads=1")
    text = program.script_of_finding(finding, targets, (np.__version__,) * 2, True)
    path = tmp_path / "reproduce.py"
    path.write_text(text)
    ran = proof.own_interpreter(path)
    assert ran.status == 0 and ran.said == "none of 2 outputs differs"
    path.write_text(text.replace("import json", "import no_such_module\nimport json"))
    assert proof.own_interpreter(path).verdict == "can't tell"
    path.write_text(text.replace("    y = compute(x, w)", "    raise ValueError(0)"))
    ran = proof.own_interpreter(path)
    assert ran.status == 2 and ran.said == "can't run: ValueError: 0, on the left"


def test_operands_are_exact_however_they_are_written():
    rng = np.random.default_rng(0)
    for dtype in ("float16", "float32", "float64"):
        for array in (
            rng.standard_normal((3, 4)).astype(dtype),
            np.where(rng.random((9, 9)) > 0.95, 0.1, 0).astype(dtype),
            rng.standard_normal((40, 40)).astype(dtype),
            np.zeros((2, 2), dtype),
            np.array([np.finfo(dtype).tiny / 4, -0.0, np.finfo(dtype).max], dtype),
        ):
            text = "\n".join(program.assignments("x", array))
            little = {"float16": "<f2", "float32": "<f4", "float64": "<f8"}[dtype]
            names: dict[str, object] = {"np": np}
            readers = "".join(program.READERS.values()).format(dtype=dtype, little=little)
            exec(f"import base64, zlib\n{readers}\n{text}", names)
            got = names["x"]
            assert isinstance(got, np.ndarray) and got.dtype == array.dtype
            assert got.tobytes() == array.tobytes() or ((array == 0).any() and (got == array).all())


def test_long_lines_are_broken_at_their_brackets():
    line = f"y = f({', '.join(f'argument_number_{n}' for n in range(9))})"
    for broken in (program.wrapped_statement(line), program.wrapped_statement(line, 8)):
        assert all(len(one) <= 100 for one in broken) and len(broken) > 1
    assert program.wrapped_statement("y = 1") == ["y = 1"]
    assert program.literal(["a", 1]) == '["a", 1]'


def test_findings_come_from_a_store(tmp_path):
    cases = [Case(op="conv1d", kernel=k, operands="cancel") for k in (3, 5)]
    targets = [SWITCHES, Target.parse("reference")]
    with Store.here(tmp_path) as store:
        sweep_cases(cases, targets, [5, 6, 20], store=store)
    worst = report.stored_finding(tmp_path)
    assert worst.target == SWITCHES and worst.finding.against == 20
    assert {one.said for one in worst.elsewhere} == {"does not differ"}
    again = report.stored_finding(tmp_path, worst.row)
    assert again.finding.key == worst.finding.key
    with failing(worst.target, inline=True) as failed:
        assert failed.by_bits(worst.finding)
    with pytest.raises(InputError, match="row=999"):
        report.stored_finding(tmp_path, 999)
    with pytest.raises((StoreError, InputError)):
        report.stored_finding(tmp_path / "nowhere")


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
