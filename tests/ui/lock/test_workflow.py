"""Workflows and the action: their steps are run by a shell, as far as goes without the service."""

import os
import re
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE
from urllib.parse import quote

import click
import pytest
import yaml

from probe.case.errors import InputError
from probe.targets import machine
from probe.ui.cli.shell import commands as main
from probe.ui.lock import conditions
from tests.ui.lock.projects import BUSY, Project, plugin

ROOT = Path(__file__).parents[3]


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


def filled(text, inputs):
    """A step's text with the expressions that the service would fill in."""
    for name, value in inputs.items():
        text = text.replace(f"${{{{ inputs.{name} }}}}", value)
    return text


@pytest.mark.parametrize("value", ["1.0", "2.0"], ids=["same", "changed"])
@pytest.mark.slow_at("same")
def test_the_steps_of_the_action_run(value, tmp_path):
    project = Project(tmp_path)
    text = "import numpy as np\n\ndef test_it(bits):\n    bits.check(np.float32([1, 2]) * {})\n"
    project.write("test_it.py", text.format("1.0"))
    project.says(0, "", "--bits-update")
    project.write("test_it.py", text.format(value))

    action = yaml.safe_load((ROOT / "action.yml").read_text())
    inputs = {name: one["default"] for name, one in action["inputs"].items()}
    inputs |= {"isa": "avx2", "pytest-args": " ".join([*plugin(), "test_it.py"]), "why": "no"}
    files = {f"GITHUB_{one}": str(tmp_path / one) for one in ("ENV", "OUTPUT", "STEP_SUMMARY")}
    bin_ = tmp_path / "bin"
    bin_.mkdir()
    (bin_ / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (bin_ / "python").chmod(0o755)
    surroundings = {k: v for k, v in os.environ.items() if k not in BUSY} | files
    surroundings["PATH"] = f"{bin_}{os.pathsep}{surroundings['PATH']}"
    surroundings["PYTHONPATH"] = str(ROOT)
    status, printed = 0, ""
    for step in action["runs"]["steps"]:
        assert step["shell"] == "bash"
        more = {name: filled(one, inputs) for name, one in step.get("env", {}).items()}
        command = ["bash", "-eo", "pipefail", "-c", step["run"]]
        done = subprocess.run(
            command, cwd=tmp_path, env=surroundings | more, stdout=PIPE, text=True
        )
        status, printed = status or done.returncode, printed + done.stdout
        if (tmp_path / "ENV").exists():
            lines = (tmp_path / "ENV").read_text().splitlines()
            surroundings |= dict(line.partition("=")[::2] for line in lines)
    assert surroundings["OPENBLAS_CORETYPE"] == "Haswell"
    # limited instructions are conditions without an entry: different bits would be unknown
    assert status == 0
    lines = (tmp_path / "OUTPUT").read_text().splitlines()
    outputs = dict(line.partition("=")[::2] for line in lines)
    wanted = "1 of 1 check has the same bits" if value == "1.0" else "0 of 1 check has"
    assert outputs["summary"].startswith(wanted)
    assert wanted in (tmp_path / "STEP_SUMMARY").read_text()
    annotations = [line for line in printed.splitlines() if line.startswith("::")]
    assert len(annotations) == (value != "1.0")
    assert all(line.startswith("::notice file=test_it.py,line=4::check=") for line in annotations)


def test_the_skill_is_as_the_specification_says_and_its_commands_exist():
    """agentskills.io: a folder of the skill's name, a name of at most 64 small letters, digits and
    hyphens, a description of at most 1,024 characters; less than 500 lines."""
    path = ROOT / "skills" / "probe" / "SKILL.md"
    _, head, text = path.read_text().split("---\n", 2)
    found = yaml.safe_load(head)
    assert set(found) <= {"name", "description", "license", "compatibility", "metadata"}
    assert found["name"] == path.parent.name
    assert 0 < len(found["description"]) <= 1024
    assert len(found["compatibility"]) <= 500
    assert len(text.splitlines()) < 500
    lines = re.findall(r"^probe ([a-z]+)(.*)$", text, re.M)
    assert len(lines) >= 7
    for name, words in lines:
        command = main.get_command(click.Context(main), name)
        assert command is not None, name
        known = {each for one in command.params for each in (*one.opts, *one.secondary_opts)}
        given = set(re.findall(r"(?<![\w-])--[a-z-]+", words.partition("#")[0]))
        assert given <= known, f"probe {name}: {given - known}"
