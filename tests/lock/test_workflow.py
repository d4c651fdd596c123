"""Workflows and the action: their steps are run by a shell, as far as goes without the service."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE
from types import SimpleNamespace
from urllib.parse import quote

import click
import pytest
import yaml

from probe import machine
from probe.cli.shell import commands as main
from probe.errors import InputError
from probe.lock import workflow
from tests.lock.projects import BUSY, Project, plugin

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("service", workflow.SERVICES)
def test_workflows_are_yaml_and_limit_one_runner_to_several_sets(service, tmp_path):
    root, path = workflow.write_workflow(service, tmp_path, "probe")
    assert root == tmp_path and path == tmp_path / workflow.SERVICES[service]
    found = yaml.safe_load(path.read_text())
    job = found["jobs"]["bits"] if service == "github" else found["bits"]
    matrix = job["strategy" if service == "github" else "parallel"]["matrix"]
    levels = matrix["isa"] if service == "github" else matrix[0]["ISA"]
    assert tuple(levels) == workflow.LEVELS
    with pytest.raises(InputError, match="exists already"):
        workflow.write_workflow(service, tmp_path, "probe")


@pytest.mark.parametrize("service", workflow.SERVICES)
def test_a_workflow_lies_where_the_service_looks_and_runs_where_the_tests_are(service, tmp_path):
    """`--out ci` wrote ci/.github, which no service reads, and said to commit it."""
    tests = tmp_path / "a repository" / "ci"
    tests.mkdir(parents=True)
    (tests.parent / ".git").mkdir()
    assert (
        main(
            ["check", "setup", service, "--out", str(tests), "--from", "a; b"],
            standalone_mode=False,
        )
        is None
    )
    text = (tests.parent / workflow.SERVICES[service]).read_text()
    assert not (tests / workflow.SERVICES[service]).exists()
    found = yaml.safe_load(text)
    if service == "github":
        job = found["jobs"]["bits"]
        assert job["defaults"]["run"]["working-directory"] == "ci"
        lines = [step["run"].strip() for step in job["steps"] if "run" in step]
    else:
        lines = [line.strip() for line in found["bits"]["script"]]
        assert lines.pop(0) == 'cd "ci"'
        assert found["bits"]["artifacts"]["paths"] == ["ci/bits-report.md"]
    assert lines[0] == "python -m pip install pytest 'a; b'"  # nothing in ci can be installed
    with pytest.raises(InputError, match="out=nowhere: there is no such folder"):
        workflow.write_workflow(service, tests / "nowhere", "probe")


COMMIT = "0123456789012345678901234567890123456789"


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("https://host.org/a/b.git", "https://host.org/a/b.git"),
        ("https://me:secret@host.org:8443/a/b", "https://host.org:8443/a/b"),
        ("git@host.org:a/b.git", "https://host.org/a/b.git"),
        ("ssh://git@host.org:2222/a/b.git", "https://host.org/a/b.git"),
        ("/somebody/b.git", ""),
        ("../b.git", ""),
        ("file:///somebody/b.git", ""),
        (None, ""),
    ],
)
def test_a_runner_installs_probe_from_where_this_checkout_came_from(
    remote, address, monkeypatch, tmp_path
):
    """The workflow installed a name that no index has; a token in the remote is no one else's."""
    said = {"remote": remote, "branch": "origin/main"}
    monkeypatch.setattr(machine, "git", lambda root, word, *more: said[word])
    monkeypatch.setattr(machine, "git_state", lambda: {"git_commit": COMMIT})
    (tmp_path / ".git").mkdir()
    monkeypatch.setattr(workflow, "CHECKOUT", tmp_path)
    monkeypatch.setattr(workflow, "installed", lambda name: name == "probe-numerics-core")
    assert workflow.public_address(remote or "") == address
    if not address:
        with pytest.raises(InputError, match="no remote that a runner reaches"):
            workflow.own_source()
        return
    wanted = f"git+{address}@{COMMIT}#subdirectory=core"
    assert workflow.own_source() == wanted
    said["branch"] = None
    with pytest.raises(InputError, match="this checkout's commit is on no remote"):
        workflow.own_source()


def test_an_installed_probe_comes_from_where_pip_had_it(monkeypatch, tmp_path):
    noted = {"url": "https://host.org/a/b.git", "vcs_info": {"vcs": "git", "commit_id": COMMIT}}
    monkeypatch.setattr(workflow, "CHECKOUT", tmp_path)
    monkeypatch.setattr(workflow, "installed", lambda name: name == "probe-numerics")
    there = SimpleNamespace(read_text=lambda name: json.dumps(noted))
    monkeypatch.setattr(workflow.metadata, "distribution", lambda name: there)
    assert workflow.own_source() == f"git+https://host.org/a/b.git@{COMMIT}"
    there.read_text = lambda name: None  # from an index, or a wheel
    with pytest.raises(InputError, match="it was not installed from a repository"):
        workflow.own_source()


@pytest.mark.slow
@pytest.mark.parametrize("service", workflow.SERVICES)
def test_the_steps_run_in_a_clean_environment(service, tmp_path):
    """All that a runner runs after its checkout: nothing but Python, pip and this repository."""
    project = Project(tmp_path / "repository")
    text = "import numpy as np\n\ndef test_it(bits):\n    bits.check(np.float32([1, 2]) * {})\n"
    project.write("test_it.py", text.format("1.0"))
    project.says(0, "", "--bits-update")
    # this checkout as a remote gives it: committed files alone
    commit = machine.git_state()["git_commit"]
    source = f"git+file://{quote(str(ROOT))}@{commit}#subdirectory=core"
    _, path = workflow.write_workflow(service, project.folder, source)
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "clean"], check=True)
    kept = (
        "HOME",
        "LANG",
        *(name for name in os.environ if name.lower().startswith(("pip_", "http"))),
    )
    surroundings = {name: os.environ[name] for name in kept if name in os.environ}
    surroundings["PATH"] = f"{tmp_path / 'clean' / 'bin'}:/usr/bin:/bin"
    surroundings |= {f"GITHUB_{one}": str(tmp_path / one) for one in ("ENV", "STEP_SUMMARY")}
    found = yaml.safe_load(path.read_text())
    if service == "github":
        steps = [step["run"] for step in found["jobs"]["bits"]["steps"] if "run" in step]
        steps = [step.replace("${{ matrix.isa }}", "avx2") for step in steps]
    else:
        steps, surroundings["ISA"] = ["\n".join(found["bits"]["script"])], "avx2"
    said = ""
    for step in steps:
        done = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", step],
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


def test_unknown_services_and_limits_are_one_line(tmp_path):
    with pytest.raises(InputError, match="use one of github, gitlab"):
        workflow.write_workflow("hub", tmp_path, "probe")
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
