"""The workflow: its steps are run by a shell, as far as goes without the service; the skill."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
import yaml

from probe.case.errors import InputError
from probe.targets import machine
from probe.ui.cli.shell import commands as main
from probe.ui.lock import conditions
from tests.ui.lock.projects import BUSY, Project, plugin

ROOT = Path(__file__).parents[3]
SKILL = ROOT / "skills" / "probe" / "SKILL.md"


def test_the_workflow_lies_where_github_looks_and_limits_one_runner_to_several_sets(tmp_path):
    tests = tmp_path / "a repository" / "ci"
    tests.mkdir(parents=True)
    (tests.parent / ".git").mkdir()
    assert main(["check", "setup", "github", "--out", str(tests)], standalone_mode=False) is None
    found = yaml.safe_load((tests.parent / conditions.WORKFLOW).read_text())
    assert tuple(found["jobs"]["bits"]["strategy"]["matrix"]["isa"]) == conditions.LEVELS
    with pytest.raises(InputError, match="exists already"):
        conditions.copy_workflow(tests)
    with pytest.raises(InputError, match="out=nowhere: there is no such folder"):
        conditions.copy_workflow(tests / "nowhere")
    with pytest.raises(InputError, match="use github"):
        main(["check", "setup", "hub"], standalone_mode=False)


@pytest.mark.slow
def test_the_steps_run_in_a_clean_environment(tmp_path):
    """All that a runner runs after its checkout: nothing but Python, pip and this repository."""
    project = Project(tmp_path / "repository")
    text = "import numpy as np\n\ndef test_it(bits):\n    bits.check(np.float32([1, 2]) * {})\n"
    project.write("test_it.py", text.format("1.0"))
    project.says(0, "", "--bits-update")
    found = yaml.safe_load(conditions.copy_workflow(project.folder).read_text())
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "clean"], check=True)
    kept = [name for name in os.environ if name.lower().startswith(("pip_", "http"))]
    kept += [name for name in ("HOME", "LANG") if name in os.environ]
    surroundings = found["env"] | {name: os.environ[name] for name in kept}
    surroundings["PATH"] = f"{tmp_path / 'clean' / 'bin'}:/usr/bin:/bin"
    surroundings |= {f"GITHUB_{one}": str(tmp_path / one) for one in ("ENV", "STEP_SUMMARY")}
    # this checkout as a remote gives it: committed files alone
    commit = machine.git_state()["git_commit"]
    surroundings["PROBE"] = f"git+file://{quote(str(ROOT))}@{commit}#subdirectory=core"
    said = ""
    for step in found["jobs"]["bits"]["steps"]:
        if "run" not in step:
            continue
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", step["run"].replace("${{ matrix.isa }}", "avx2")],
            cwd=project.folder,
            env=surroundings,
            capture_output=True,
            text=True,
            check=False,
        )
        said += done.stdout + done.stderr
        assert done.returncode == 0, said
        if (tmp_path / "ENV").exists():
            lines = (tmp_path / "ENV").read_text().splitlines()
            surroundings |= dict(line.partition("=")[::2] for line in lines)
    assert "1 of 1 check has the same bits" in said
    assert "1 of 1 check has the same bits" in (project.folder / "bits-report.md").read_text()


def test_unknown_limits_are_one_line():
    with pytest.raises(InputError, match="use one of native, avx2, sse41"):
        conditions.limiting_variables("avx9")
    assert conditions.limiting_variables("native") == {}
    assert conditions.limiting_variables("avx2")["ONEDNN_MAX_CPU_ISA"] == "AVX2"


def test_the_skill_is_as_the_specification_says():
    """agentskills.io: a folder of the skill's name, a name of at most 64 small letters, digits and
    hyphens, a description of at most 1,024 characters; less than 500 lines."""
    _, head, text = SKILL.read_text().split("---\n", 2)
    found = yaml.safe_load(head)
    assert set(found) <= {"name", "description", "license", "compatibility", "metadata"}
    assert found["name"] == SKILL.parent.name
    assert 0 < len(found["description"]) <= 1024
    assert len(found["compatibility"]) <= 500
    assert len(text.splitlines()) < 500
    assert len(TYPED) >= 9


# Lines of the skill, as they are typed.
TYPED = [
    line.partition("#")[0].strip()
    for block in re.findall(r"^```bash\n(.*?)^```", SKILL.read_text(), re.M | re.S)
    for line in block.splitlines()
]
# Names in the JSON, by the beginning of a line: what the skill says to read.
READ = {
    "probe targets doctor": "checks",
    "probe targets --json": "targets",
    "probe diff": "verdict outputs first operations decisions",
    "probe check": "checks",
    "probe explain": "causes replayed left_orders right_orders",
    "probe fix": "verdict",
}
QUICK = ("probe targets --json", "probe diff model.onnx --vary batch --at 1 --against 8 --json")
MODEL = """
import numpy as np, onnx
from onnx import TensorProto, helper, numpy_helper
w = np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)
nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
ends = [helper.make_tensor_value_info(*each) for each in (
    ("x", TensorProto.FLOAT, ["batch", 64]), ("y", TensorProto.FLOAT, ["batch", 32]))]
graph = helper.make_graph(nodes, "model", ends[:1], ends[1:], [numpy_helper.from_array(w, "w")])
opset = [helper.make_opsetid("", 17)]
onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), "model.onnx")
np.savez("x.npz", x=np.ones((8, 64), np.float32))
"""
PACKAGE = "import torch\ntorch.manual_seed(0)\nmodel = torch.nn.Linear(64, 32).eval()\n"


@pytest.mark.parametrize(
    "line", [pytest.param(line, marks=[] if line in QUICK else pytest.mark.slow) for line in TYPED]
)
def test_the_skills_commands_run_and_their_json_has_what_it_says_to_read(line, tmp_path):
    for name in ("onnxruntime", "torch"):
        pytest.importorskip(name)
    project = Project(tmp_path)
    (tmp_path / "package.py").write_text(PACKAGE)
    project.write("test_it.py", "def test_it(bits):\n    bits.check(1.5)\n")
    surroundings = {k: v for k, v in os.environ.items() if k not in BUSY}
    surroundings["PYTHONPATH"] = f"{ROOT}{os.pathsep}{tmp_path}"

    def done(*words):
        command = [sys.executable, *words]
        found = subprocess.run(
            command, cwd=tmp_path, env=surroundings, capture_output=True, text=True
        )
        assert found.returncode == 0, f"{words}: {found.stdout}{found.stderr}"
        return found

    done("-c", MODEL)
    words = shlex.split(line)
    if line.startswith("probe check"):
        done("-m", "probe", "check", "lock", "model.onnx", "--shape", "8x64")
    if words[0] == "python":
        for options in (["--bits-update"], words[3:]):
            done(*words[1:3], *plugin(), *options)
        assert json.loads((tmp_path / "bits-report.json").read_text())["checks"]
        return
    found = done("-m", *words)
    if "--report" in words:  # where the processor gives no different bits there is none to file
        assert (tmp_path / "report" / "report.md").is_file() or "operation differs" in found.stderr
        return
    names = next(names for begin, names in READ.items() if line.startswith(begin))
    assert {*names.split()} <= {*json.loads(found.stdout)}
