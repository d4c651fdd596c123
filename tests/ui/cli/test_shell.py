"""The frame of the command line: help, completion, exit statuses, one-line errors, JSON."""

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

CONV = "--op conv1d --kernel 5".split()


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    """Commands write below the current folder unless told otherwise."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)


OF_REFERENCE = "--op conv1d --kernel 5 --operands cancel --at 6 --against 20 --target reference"
BAD = {
    "sweep --op conv1d --kernel 5 --lengths 3..9": "length=3: shorter than the kernel",
    "sweep --op conv1d --kernel 5 --in-channels 3 --groups 2 --lengths 5..9": "in_channels=3: not",
    "sweep --op conv1d --kernel 5 --lengths 5..9 --target nonsense": "target=nonsense: ",
    "sweep --op conv1d --kernel 5 --lengths 5..9 --target tensorflow,foo=1": "no switch 'foo'; use",
    "sweep --op conv1d --kernel 5 --lengths 5..9 --target tensorflow@mars": "no device 'mars'",
    "sweep --op conv1d --kernel 5 --lengths -5..9": "lengths=-5..9: -5 is less than 1",
    "sweep --op conv1d --kernel 5 --lengths 9..5": "lengths=9..5: 9..5 runs backwards",
    "sweep --op conv1d --kernel 5 --lengths 5": "compares each value with the longest",
    "sweep --op conv1d --kernel 5 --lengths 5..9 --padding -1": "padding=-1: ",
    "sweep --op conv1d --kernel 5 --lengths 5..9 --weights -0.7,1": "weights=",
    "sweep --op conv1d --kernel 5 --lengths 5..9 --keep -2": "keep=-2: it is less than 0",
    "sweep --op conv1d --kernel 5 --lengths 5..9 --vary colour": "vary=colour: unknown",
    "sweep --op conv1d --kernel 5 --lengths 5..9 --dtype int8": "dtype=int8: unknown; use one of",
    "sweep --op conv1d --kernel 5 --lengths 5..9 extra": "argument=extra: it is not expected",
    "sweep --op conv1d --kernel 5 --lenghts 5..9": "option=--lenghts: there is no such option; did",
    "sweep --op conv1d --kernel 5": "lengths=(none): it is required",
    "sweep --lengths 5..9": "op=(none): it is required; give --op conv1d, or --case FILE",
    "explain --op conv1d --against 9": "kernel=None: it is required",
    "explain --op matmul": "against=(none): there is nothing to compare with",
    "fix --op conv1d": "lengths=(none): it is required; give --lengths",
    "order --op cnov1d --kernel 5 --length 9": "op=cnov1d: unknown; did you mean conv1d",
    "explain conv1d --kernel 5": "argument=conv1d: it is not expected; write --op conv1d",
    "explain net.onnx --at 1": "another command: probe net.onnx, or probe diff",
    "--target torch order --op sum": "option=--target: it precedes the command; options follow",
    "order --op sum --length": "length=(none): it needs a value; see probe order --help",
    "report emulate --op sum --length 9": "out=(none): it is required; give --out FILE",
    "explain --op conv1d --kernel 5 --vary batch --at 1 --against 8": "length=None: the length",
    "order --op sum --length 9 --dtype flaot32": "unknown; did you mean float32",
    "order --op sum --length 9 --target tensorflw": "library; did you mean tensorflow? use one of",
    "order --op sum --length 9 --target tensorflow@haswel": "did you mean haswell? use one of",
    "order --op sum --length 9 --target torch,thread=2": "did you mean threads? use mkldnn",
    "order --op sum --length 9 --fail-on fnding": "fail_on=fnding: unknown; did you mean finding?",
    "explian": "there is no such command; did you mean explain? use one of",
    "sweep --case none.json --lengths 5..9": "case=none.json: No such file",
    "explain --op conv1d --kernel 5 --at 5 --against 5": "against=5: both sides are the same run",
    "explain --op conv1d --kernel 5 --against 5": "at=None: the length is not given",
    "explain --op conv1d --kernel 5 --length 6 --at 5 --against 9": "at=5: --length 6 contradicts",
    "explain --op conv1d --kernel 5 --at 5 --against 9 --workers 2": "workers=2: one process",
    "fix --op conv1d --kernel 3 --lengths 3..5 --content 9": "content=9: the largest size is",
    "fix --op conv1d --kernel 3 --lengths 3..5 --content 2": "length=2: shorter than the",
    "bisect --op conv1d --kernel 3 --between numpy,threads=1 --and numpy --remove": "remove=",
    "bisect a:f --between numpy,threads=1 --and numpy --what bits": "of a model the bits of its",
    "bisect a:f --between numpy,threads=1 --and numpy --in-channels 5": "leave out --in-channels",
    "fix a:f --lengths 1,2 --case x.json": "defines what is computed; leave out --case",
    "bisect --op matmul --between numpy,threads=1 --and numpy --shape x=3": "a case generates",
    "diff a:f --vary batch --at 1 --sizes 2": "sizes=[2]: it is for a model in pieces",
    "check lock a:f --shape 8x3 --seed x": "seed=x: ",
    "report --op sum --at 5 --against 9 --out x --keep --most 5": "most=5: --keep tries no",
    "report emulate --op sum --length 9 --out x.py --vary batch": "vary=batch: there is no second",
    "sweep --op sum --lengths 5..9 --by order --workers 2": "workers=2: a sweep by order has",
    "explain --from x --target torch --vary batch": "leave out --vary, --target, or",
    "explain --from nowhere": "from=nowhere: there is no such folder",
    "explain --from /dev/null": "it is a file; give the folder of a sweep",
    "explain --from .": "from=.: it has no results; give the folder of a sweep",
    "explain --from nowhere --at 5": "from=nowhere: the store defines the cases",
    "order --op conv1d --kernel 5": "length=None: the order depends on the shape",
    "results nowhere": "path=nowhere: there is no such folder",
    "results merge": "DIR...=(none): it is required",
    f"report shrink {OF_REFERENCE}": "bit for bit",
    f"report shrink {OF_REFERENCE} --by luck": "by=luck",
    f"report {OF_REFERENCE} --form none --out out": "form=none",
    f"report {OF_REFERENCE} --since torch==2.4.0 --out out": "since=torch==2.4.0: it is no release",
    f"report {OF_REFERENCE} --since reference --out out": "since=reference: it does not name a",
    "report verify .": "machine.json",
    "check": "there is no such file",
    "check lock": "there is nothing to run",
    "check lock none.onnx": "there is no such file",
    "check lock m:f --op dense": "a case is given too",
    "check lock --op sum --length 9 --bless=": "a reason is required",
    "check lock --op sum --length 9 --shape 3x4": "a case generates its own operands",
    "check setup hub": "there is no such service",
    "run nonsense": "experiment=nonsense: there is no",
    "run ../x": "experiment=../x: there is no",
    "nonsense": "command=nonsense: there is no such command; use one of MODEL",
}


@pytest.mark.parametrize("command", BAD)
def test_wrong_input_is_one_line_and_status_2(command, capsys, tmp_path):
    status, out, err = ran(capsys, command)
    assert (status, out) == (2, "")
    assert err.startswith("probe: ") and err.count("\n") == 1 and BAD[command] in err
    assert list(tmp_path.iterdir()) == []


def test_a_case_file_with_an_unknown_key_is_named(capsys, tmp_path):
    (tmp_path / "case.json").write_text('{"op": "conv1d", "kernel": 5, "colour": "red"}')
    status, _, err = ran(capsys, "sweep --case case.json --lengths 5..9")
    assert status == 2 and err.startswith(
        "probe: colour=red: there is no such argument of a case; use one of op"
    )
    (tmp_path / "case.json").write_text('{"op": "conv1d"')
    status, _, err = ran(capsys, "sweep --case case.json --lengths 5..9")
    assert status == 2 and err.count("\n") == 1 and "not JSON" in err


def test_what_a_failing_target_printed_is_shown_when_asked_for(capsys, monkeypatch):
    def fails(*_):
        raise TargetError("reference", "crash", "it\nended", "line 1\nline 2")

    monkeypatch.setattr(probe.targets.launch.Session, "start", fails)
    command = "order --op conv1d --kernel 5 --length 9 --target reference"
    assert ran(capsys, command)[2] == (
        "probe: target=reference: crash: it ended; --verbose shows what it printed\n"
    )
    status, _, err = ran(capsys, command, "--verbose")
    assert status == 3 and err.endswith("line 1\nline 2\n")


def test_a_mistake_of_ours_is_one_line_too(capsys, monkeypatch):
    monkeypatch.setattr(options, "case_of_words", lambda _: 1 / 0)
    status, out, err = ran(capsys, "order --op conv1d --kernel 5 --length 9")
    assert (status, out) == (shell.BROKEN, "") and err.count("\n") == 1
    assert "ZeroDivisionError" in err
    assert "Traceback" in ran(capsys, "order --op conv1d --kernel 5 --length 9 --verbose")[2]


def test_the_default_target_is_not_all_there_is(monkeypatch, capsys):
    lacks = lambda where: "it is not here" if where.name == "tensorflow" else None  # noqa: E731
    monkeypatch.setattr("probe.targets.target.why_unavailable", lacks)
    command = "order --op sum --length 9".split()
    assert shell.run(command) == 3
    said = capsys.readouterr().err
    assert "it is not here, or give --target with a library that is here: keras, torch" in said
    assert shell.run([*command, "--target", "tensorflow"]) == 3
    assert "or give --target" not in capsys.readouterr().err


@pytest.mark.parametrize("command", ["targets", "targets machine"])
def test_facts_are_text_or_one_object(command, capsys):
    status, out, err = ran(capsys, f"{command} --json")
    assert status == 0 and not err and json.loads(out)
    status, out, err = ran(capsys, command)
    assert status == 0 and not err and "reference" in out and "\x1b" not in out
    assert all(line == line.rstrip() for line in out.splitlines())


def test_targets_say_why_not(capsys):
    rows = json.loads(ran(capsys, "targets --json")[1])["targets"]
    by_name = {row["target"]: row for row in rows}
    assert by_name["reference"]["available"] and by_name["reference"]["why"] is None
    assert all(row["why"] for row in rows if not row["available"])


def test_help_lists_every_command(capsys):
    for words in ("", "--help"):
        status, out, _ = ran(capsys, words)
        assert status == 0 and all(
            f"  {name} " in out for name in shell.COMMANDS if " " not in name
        )
    assert ran(capsys, "--version")[1].startswith("probe ")


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


def test_sweeps_write_nothing_unasked(capsys, tmp_path):
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


def test_a_shell_gets_its_script():
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
    """``pip install --no-deps`` brings none of them; without click no other code could say it."""
    code = "import sys; sys.modules |= {'click': None, 'rich': None}; "
    code += "import probe.ui.cli as c; c.main()"
    env = {**os.environ, "PYTHONPATH": os.getcwd()}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    said = "probe: package=click: it is not installed; run pip install click rich\n"
    assert (done.returncode, done.stderr) == (2, said)


@pytest.mark.parametrize("heavy", ["numpy", "pandas", "pyarrow", "tensorflow", "rich"])
def test_help_imports_nothing_heavy(heavy):
    code = (
        "import sys; from probe.ui.cli import shell; shell.run(['--help']); "
        f"sys.exit({heavy!r} in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0, heavy


def test_a_reader_that_leaves_is_no_error():
    command = f'"{sys.executable}" -m probe targets | head -1'
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    said = [line for line in done.stderr.splitlines() if not line.endswith("s so far")]
    assert done.returncode == 0 and not said and done.stdout.count("\n") == 1


@pytest.mark.parametrize(("words", "status"), [("--json", 0), ("--against 3 --json", 2)])
def test_a_reader_that_left_before_anything_was_printed_is_no_error(words, status):
    """It was status 1, which says that something was found; and a traceback behind an error."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "probe", "targets", *words.split()]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert done.returncode == status and "Traceback" not in done.stderr


def test_numbers_that_start_with_a_dash_are_values(capsys):
    given = "--weights -0.7313,-1.1043,1.8492,1.3007,-0.1033 --bias -0.0401".split()
    words = [*CONV, *given, "--lengths", "5..7", "--target", "reference", "--json"]
    status, out, err = ran(capsys, "sweep", *words)
    assert status == 0 and not err
    case = json.loads(out)["case"]
    assert case["weights"] == [-0.7313, -1.1043, 1.8492, 1.3007, -0.1033]
    assert case["bias"] == -0.0401
    joined = [f"{name}={value}" for name, value in zip(given[::2], given[1::2], strict=True)]
    status, out, _ = ran(capsys, "sweep", *CONV, *joined, *words[8:])
    assert status == 0 and json.loads(out)["case"] == case
