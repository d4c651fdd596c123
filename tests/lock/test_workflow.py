"""Workflows and the action: their steps are run by a shell, as far as goes without the service."""

import os
import re
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import click
import pytest
import yaml

from probe.cli.shell import commands as main
from probe.errors import InputError
from probe.lock import workflow
from tests.lock.projects import BUSY, Project, plugin

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("service", workflow.SERVICES)
def test_workflows_are_yaml_and_limit_one_runner_to_several_sets(service, tmp_path):
    path = workflow.write_workflow(service, tmp_path)
    found = yaml.safe_load(path.read_text())
    job = found["jobs"]["bits"] if service == "github" else found["bits"]
    matrix = job["strategy" if service == "github" else "parallel"]["matrix"]
    levels = matrix["isa"] if service == "github" else matrix[0]["ISA"]
    assert tuple(levels) == workflow.LEVELS
    with pytest.raises(InputError, match="exists already"):
        workflow.write_workflow(service, tmp_path)


def test_unknown_services_and_limits_are_one_line(tmp_path):
    with pytest.raises(InputError, match="use one of github, gitlab"):
        workflow.write_workflow("hub", tmp_path)
    with pytest.raises(InputError, match="use one of native, avx2, sse41"):
        workflow.limiting_variables("avx9")
    assert workflow.limiting_variables("native") == {}
    assert workflow.limiting_variables("avx2")["ONEDNN_MAX_CPU_ISA"] == "AVX2"


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
