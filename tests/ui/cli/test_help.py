"""What the command line tells: help, completion, errors as JSON, tables on narrow terminals."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

import probe
from probe.case import errors
from probe.case.errors import InputError, TargetError
from probe.ui.cli import options, shell
from tests.ui.cli.commands import ran

pytestmark = pytest.mark.long


@pytest.mark.parametrize("name", shell.COMMANDS)
def test_shared_options_stand_last_under_one_heading(name, capsys):
    own, heading, shared = ran(capsys, f"{name} --help")[1].partition(options.SHARED + ":")
    assert heading, name
    flag = re.compile(r"^  (?:-h, )?(--[a-z-]+)", re.M)
    mine, common = set(flag.findall(own)), set(flag.findall(shared))
    assert {"--json", "--verbose", "--help"} <= common and not common & mine
    flags = {"--" + word.replace("_", "-") for word in options.CASE_WORDS}
    of_a_model = {"--seed"} if name in ("MODEL", "diff", "record", "fix padding") else set()
    flags = set() if name == options.LISTS_CASES else flags
    assert mine & (flags | {"--case", "--target"}) == of_a_model


def test_one_help_lists_the_options_of_a_case(capsys):
    out = ran(capsys, "help order")[1]
    assert out == ran(capsys, "order --help")[1]
    assert all(f"--{word.replace('_', '-')} " in out for word in options.CASE_WORDS)
    for command in ("explain", "sweep", "report"):
        told = ran(capsys, f"{command} --help")[1]
        assert "probe order --help" in told and "--dilation" not in told
    assert ran(capsys, "help explian")[0] == 2


def test_names_of_before_run_and_name_the_new_one(capsys):
    status, out, err = ran(capsys, "machine --json")
    assert (status, out) == ran(capsys, "targets machine --json")[:2]
    assert err == "note: probe machine is now probe targets machine\n"
    for old, new in shell.RENAMED.items():
        assert new in shell.COMMANDS, old
    for words, new in {
        "network m:f --vary batch --at 1 --against 8": "diff",
        "examine no.onnx": "MODEL",
    }.items():
        assert f"is now probe {new}\n" in ran(capsys, words)[2]
    listed = ran(capsys, "--help")[1].partition("Commands:")[2]
    assert len(listed.strip().splitlines()) == 14


def test_sweeps_write_nothing_unasked(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert ran(capsys, "sweep --op sum --in-channels 4 --lengths 3,5 --target numpy")[0] == 0
    assert not list(tmp_path.iterdir())


def test_exit_statuses_are_in_the_help(capsys):
    out = ran(capsys, "--help")[1]
    for status in (0, 1, 2, 3, shell.BROKEN, shell.INTERRUPTED):
        assert re.search(rf"^ +{status} +[a-z]", out, re.M), status


ERRORS = {
    "order --op cnov1d --kernel 5 --length 9": ("op", "cnov1d", "unknown", "input", 2),
    "order --op conv1d --kernel 5": ("length", None, "the order depends", "input", 2),
    "explian": ("command", "explian", "there is no such command", "input", 2),
    "targets --colour": ("option", "--colour", "there is no such option", "input", 2),
    "order --op sum --length 9 --target reference==9": (
        *("target", "reference==9", "reference 9 ", "unavailable", 3),
    ),
    "results nowhere": ("path", "nowhere", "there is no such folder", "store", 2),
}


@pytest.mark.parametrize("command", ERRORS)
def test_an_error_is_one_object_too(command, capsys):
    name, value, why, kind, exit_status = ERRORS[command]
    plain, _, line = ran(capsys, command)
    status, out, err = ran(capsys, f"{command} --json")
    assert status == plain == exit_status and err == line and err.count("\n") == 1
    told = json.loads(out)
    assert told["exit"] == status and list(told) == ["error", "exit"]
    error = told["error"]
    assert list(error) == ["name", "value", "why", "todo", "kind"]
    assert (error["name"], error["value"], error["kind"]) == (name, value, kind)
    assert why.strip() in error["why"] or kind == "unavailable"
    assert error["why"] in err and (error["todo"] or "") in err


def test_ctrl_c_and_mistakes_of_ours_are_objects_too(capsys, monkeypatch):
    for raised, kind, expected in (
        (KeyboardInterrupt(), "interrupted", 130),
        (ZeroDivisionError("oh"), "mistake-of-probe", 70),
        (TargetError("reference", "crash", "it ended"), "crash", 3),
        (probe.case.errors.NotASum("mixed"), "not-a-sum", 3),
        (PermissionError(13, "Permission denied", "there"), "file", 2),
    ):

        def fails(*_, raised=raised):
            raise raised

        monkeypatch.setattr("probe.ui.cli.options.case_of_words", fails)
        status, out, _ = ran(capsys, "order --op sum --length 9 --json")
        told = json.loads(out)
        assert (status, told["exit"], told["error"]["kind"]) == (expected, expected, kind)


@pytest.mark.parametrize("op", ["Conv1D", "CONV1D", "conv_1d", "conv1d"])
def test_operations_are_spelled_as_libraries_do(op):
    assert probe.Case(op, kernel=5) == probe.Case("conv1d", kernel=5)
    deep = probe.Case("DepthwiseConv2D", kernel=3, in_channels=4, dtype="Float32")
    assert deep == probe.Case("depthwise_conv2d", kernel=3, in_channels=4)
    with pytest.raises(InputError, match="did you mean conv1d"):
        probe.Case("conv1", kernel=5)


def test_bash_gets_its_script():
    environment = {**os.environ, "_PROBE_COMPLETE": "zsh_source"}
    command = [sys.executable, "-m", "probe"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "_PROBE_COMPLETE=zsh_complete" in done.stdout


@pytest.mark.parametrize(("lacking", "named"), [("jinja2", "jinja2"), ("rich", "pyarrow rich")])
def test_a_package_that_is_not_here_is_named_with_the_rest_that_is_needed(
    lacking, named, monkeypatch, capsys
):
    def lacks():
        raise ModuleNotFoundError(f"No module named '{lacking}'", name=lacking)

    here, away = errors.util.find_spec, ("rich", "pyarrow")
    monkeypatch.setattr(errors.util, "find_spec", lambda one: None if one in away else here(one))
    monkeypatch.setattr("probe.targets.machine.facts", lacks)
    assert shell.run(["targets", "machine"]) == 2
    said = f"probe: package={lacking}: it is not installed; run pip install {named}\n"
    assert capsys.readouterr().err == said


def test_packages_that_every_command_needs_are_named_at_once():
    """``pip install --no-deps`` brings none of them; without click nobody else could say it."""
    code = "import sys; sys.modules |= {'click': None, 'rich': None}; "
    code += "import probe.ui.cli as c; c.main()"
    env = {**os.environ, "PYTHONPATH": os.getcwd()}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    said = "probe: package=click: it is not installed; run pip install click rich\n"
    assert (done.returncode, done.stderr) == (2, said)
