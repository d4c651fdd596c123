"""Scripts are run in fresh processes: what they prove, and what is verified later; and saved runs,
whose files stand on their own."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from probe.case import floats
from probe.case.case import Case
from probe.case.errors import InputError, NotReproduced
from probe.explain.comparison import OutputPairs
from probe.explain.runs import CaseRun, ComparedShapes, run_and_reveal
from probe.report import folder, proof
from probe.report.proof import verify
from probe.targets.launch import open_session
from probe.targets.target import Target
from probe.ui.cli.shell import run

pytestmark = pytest.mark.long


def test_verify_says_still_there_gone_or_cannot_tell(made, tmp_path):
    _, out = made
    assert (
        verify(out, 1, trust=True).verdict == "still there" and verify(out, 1, trust=True).same_bits
    )
    copy = shutil.copytree(out, tmp_path / "copy")
    script = copy / "reproduce.py"
    text = script.read_text()
    script.write_text(text.replace('"length_switch": "8"', '"length_switch": "99"'))
    assert verify(copy, 1, trust=True).verdict == "gone"
    script.write_text(text.replace("import numpy as np", "import no_such_library as np"))
    assert verify(copy, 2, trust=True).verdict == "can't tell"
    script.write_text("import os\nos.kill(os.getpid(), 9)\n")
    found = verify(copy, 1, trust=True)
    assert found.verdict == "can't tell" and "signal 9" in found.why
    script.write_text("raise RuntimeError('broken')\n")  # Python ends with 1 then
    assert verify(copy, 1, trust=True).verdict == "can't tell"
    script.unlink()
    with pytest.raises(InputError, match="no reproduce.py"):
        verify(copy, trust=True)
    with pytest.raises(InputError, match="machine.json"):
        verify(tmp_path, trust=True)


def test_a_target_that_is_not_here_is_tried_with_this_interpreter(made, tmp_path):
    _, out = made
    copy = shutil.copytree(out, tmp_path / "copy")
    about = json.loads((copy / "machine.json").read_text())
    about["targets"] = ["tensorflow==0.0.1"] * 2
    (copy / "machine.json").write_text(json.dumps(about))
    found = verify(copy, 1, trust=True)
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


def test_a_folders_script_is_run_for_those_who_trust_it_alone(made, tmp_path, capfd):
    """A bug report comes from a stranger as often as from oneself."""
    copy = shutil.copytree(made[1], tmp_path / "copy")
    (copy / "reproduce.py").write_text(f"import os\nos.mkdir({str(tmp_path / 'made')!r})\n")
    with pytest.raises(InputError, match="is a program, which is run; .*trust=True"):
        verify(copy, 1)
    assert (
        run(["report", "verify", str(copy), "--times", "1"]) == 2
        and "--trust" in capfd.readouterr().err
    )
    assert not (tmp_path / "made").exists()
    assert run(["report", "verify", str(copy), "--times", "1", "--trust"]) == 3
    assert (tmp_path / "made").exists()


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
