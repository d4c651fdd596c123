"""Scripts are run in fresh processes: what they prove, and what is verified later."""

import json
import shutil

import pytest

from probe.case.errors import InputError, NotReproduced
from probe.report import folder, proof
from probe.report.proof import verify
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
