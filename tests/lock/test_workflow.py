"""Workflows and the action: their steps are run by a shell, as far as goes without the service."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

from probe.cli.shell import commands as main
from probe.errors import InputError
from probe.lock import reports, workflow
from probe.lock.file import Accepted
from probe.lock.judging import CHANGED, SAME, UNKNOWN, Checked
from probe.lock.values import bits_of
from tests.lock.projects import BUSY, Project, plugin

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("service", workflow.SERVICES)
def test_workflows_are_yaml_and_limit_one_runner_to_several_sets(service, tmp_path):
    path = workflow.write(service, tmp_path)
    found = yaml.safe_load(path.read_text())
    job = found["jobs"]["bits"] if service == "github" else found["bits"]
    levels = (
        job["strategy"]["matrix"]["isa"]
        if service == "github"
        else job["parallel"]["matrix"][0]["ISA"]
    )
    assert tuple(levels) == workflow.LEVELS
    with pytest.raises(InputError, match="exists already"):
        workflow.write(service, tmp_path)


def test_unknown_services_and_limits_are_one_line(tmp_path):
    with pytest.raises(InputError, match="use one of github, gitlab"):
        workflow.write("hub", tmp_path)
    with pytest.raises(InputError, match="use one of native, avx2, sse41"):
        workflow.variables("avx9")
    assert workflow.variables("native") == {}
    assert workflow.variables("avx2")["ONEDNN_MAX_CPU_ISA"] == "AVX2"


def filled(text, inputs):
    """A step's text with the expressions that the service would fill in."""
    for name, value in inputs.items():
        text = text.replace(f"${{{{ inputs.{name} }}}}", value)
    return text


@pytest.mark.parametrize("value", ["1.0", "2.0"], ids=["same", "changed"])
def test_the_steps_of_the_action_run(value, tmp_path):
    project = Project(tmp_path)
    text = "import numpy as np\n\ndef test_it(bits):\n    bits.check(np.float32([1, 2]) * {})\n"
    project.write("test_it.py", text.format("1.0"))
    assert project.pytest("--bits-update")[0] == 0
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
    status = 0
    for step in action["runs"]["steps"]:
        assert step["shell"] == "bash"
        more = {name: filled(one, inputs) for name, one in step.get("env", {}).items()}
        command = ["bash", "-eo", "pipefail", "-c", step["run"]]
        done = subprocess.run(command, cwd=tmp_path, env=surroundings | more, check=False)
        status = status or done.returncode
        if (tmp_path / "ENV").exists():
            lines = (tmp_path / "ENV").read_text().splitlines()
            surroundings |= dict(line.partition("=")[::2] for line in lines)
    assert surroundings["OPENBLAS_CORETYPE"] == "Haswell"
    # limited instructions are conditions without an entry: other bits would be unknown
    assert status == 0
    outputs = dict(
        line.partition("=")[::2] for line in (tmp_path / "OUTPUT").read_text().splitlines()
    )
    assert outputs["sarif"] == "bits-report.sarif"
    wanted = "1 of 1 check has the same bits" if value == "1.0" else "0 of 1 check have"
    assert outputs["summary"].startswith(wanted)
    assert wanted in (tmp_path / "STEP_SUMMARY").read_text()
    results = json.loads((tmp_path / "bits-report.sarif").read_text())["runs"][0]["results"]
    assert [one["ruleId"] for one in results] == ["bits-unknown"] * (value != "1.0")


def checked(verdict, name="tests/test_a.py::test_x"):
    one, other = bits_of(1.0), bits_of(2.0)
    found = Checked(name, name, one, {"cores": 2}, verdict, "ab", Accepted(other, "why | so"))
    found.apart = {"release numpy": {"library.numpy": ("2.4.6", "2.5.0")}}
    found.place = ("tests/test_a.py", 7)
    found.why = {
        "cause": "release 2.4.6 -> 2.5.0 of numpy",
        "operation": "sum of 768 numbers",
        "class": "order",
        "kind": "rounding",
        "decisions": {"total": 3, "changed": 0},
    }
    return found


def test_reports_say_what_changed_from_what_and_where():
    results = [checked(CHANGED), *[checked(SAME, f"t::{n}") for n in range(40)]]
    told = reports.headline(results)
    assert told == (
        "1 of 41 checks changed: order, release 2.4.6 -> 2.5.0 of numpy, sum of 768 numbers; "
        "0 decisions (rounding)"
    )
    assert told in reports.markdown(results, ["gone"])
    assert "&lt;" not in reports.as_html(results, ())
    assert reports.as_html([checked(CHANGED, "<b>")], ()).count("<b>") == 0
    assert json.loads(reports.as_json(results, ()))["changed"] == 1


def test_sarif_points_at_the_line_of_the_check():
    """As OASIS' SARIF 2.1.0 requires: version, runs, tool.driver.name, results with a message."""
    found = json.loads(reports.sarif([checked(CHANGED), checked(UNKNOWN), checked(SAME)], ()))
    assert found["version"] == "2.1.0"
    (run,) = found["runs"]
    rules = [one["id"] for one in run["tool"]["driver"]["rules"]]
    assert len(run["results"]) == 2
    for one, level in zip(run["results"], ("error", "note"), strict=True):
        assert rules[one["ruleIndex"]] == one["ruleId"]
        assert one["level"] == level
        assert one["message"]["text"].startswith("check=")
        place = one["locations"][0]["physicalLocation"]
        assert place["artifactLocation"]["uri"] == "tests/test_a.py"
        assert place["region"] == {"startLine": 7}


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
