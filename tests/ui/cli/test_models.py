"""``probe network`` of two runs, ``probe record`` and ``probe diff``: text, JSON, statuses."""

from __future__ import annotations

import contextlib
import json
import sys
from importlib import import_module
from pathlib import Path

import pytest

import probe
from probe.case.errors import InputError
from probe.ui.answers import first_difference, two_runs
from probe.ui.cli import shell
from tests.record import causes
from tests.record.taped import apart, normal
from tests.ui.cli.commands import ran

TAPES = """
from tests.record.taped import Taped, apart, network, normal
X = normal(6, 32)
left, right = apart(X)
part, other, noisy = network(X[:2]), network(X, seed=3), Taped(lambda tape: tape.noise(X))
W = normal(32, 6, seed=1)
plain, turned = (
    Taped(lambda tape, turn=turn: tape.turn(tape.dense(X, tape.weight(W)), *turn))
    for turn in ((0, 1), (1, 0))
)
"""
X = normal(6, 32)


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tapes.py").write_text(TAPES)
    path = list(sys.path)
    yield
    sys.path[:] = path
    sys.modules.pop("tapes", None)


@pytest.fixture
def planted(monkeypatch):
    return causes.planted(monkeypatch)


def test_record_and_diff_say_what_first_difference_says(capsys, planted):
    for name in ("left", "right"):
        status, out, err = ran(capsys, f"record tapes:{name} --out {name}")
        assert status == 0 and "5 operations" in out and f"wrote {name}" in out, err
    status, out, _ = ran(capsys, "diff left right --json")
    told = json.loads(out)
    live = probe.first_difference(*apart(X)).to_json()
    for one in (*told["operations"], *live["operations"]):
        del one["own"]  # a folder runs nothing, so that is not asked
    assert status == 0 and told["operations"] == live["operations"]
    assert told["outputs"] == live["outputs"] and told["first"] == live["first"] == "block.first"
    assert ran(capsys, "diff left right --fail-on finding")[0] == 1
    assert ran(capsys, "diff left left --fail-on finding")[0] == 0


def test_outputs_that_stand_at_another_index_are_a_finding(capsys):
    for name in ("plain", "turned"):
        assert ran(capsys, f"record tapes:{name} --out {name}")[0] == 0
    status, out, _ = ran(capsys, "diff plain turned --fail-on finding")
    assert status == 1 and "verdict: differs" in out and "30 of 36 outputs differ" in out
    told = json.loads(ran(capsys, "diff plain turned --json")[1])
    assert (told["verdict"], told["outputs"][0]["differing"]) == ("differs", 30)


REFUSED = {
    "record tapes:noisy --out run": (3, "the run gives different bits each time"),
    "record tapes:nothing --out run": (2, "model=tapes:nothing: AttributeError"),
    "record nowhere.onnx --out run": (2, "there is no such file"),
    "record tapes:left": (2, "out=(none): it is required"),
    "record tapes:left --out run --most lots": (2, "most=lots: it is not a whole number"),
    "record tapes:left --out .": (2, "out=.: it exists already"),
    "record tapes:left --out run --shape x": (2, "shape=x: it is not a shape"),
    "record tapes:left --out run --target reference,algorithm=pairwise": (
        *(2, "algorithm=pairwise changes how probe runs single operations"),
    ),
    "record tapes:left --out run --target reference==9": (3, "target=reference==9: unavailable"),
    "diff here there": (2, "recording=here: there is no recording.json in it"),
    "diff tapes:left": (2, "there is nothing to compare with; give --vary batch --at 1"),
    "diff tapes:left --vary batch": (2, "at=(none): the left run's size is required"),
    "tapes:left --vary batch": (2, "at=(none): the left run's size is required"),
    "diff tapes:left --at 3 --against 3": (2, "both sides are the same run"),
    "diff tapes:left --at 1 --against 3": (2, "without inputs there is no length to vary"),
    "fix padding tapes:left --vary batch": (2, "fixed=(none): the size to compare with is not"),
    "diff nine-layers --at 1 --against 3": (2, "there is no such file"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_wrong_is_one_line(text, capsys):
    status, why = REFUSED[text]
    found, out, err = ran(capsys, text)
    assert (found, out) == (status, "") and err.count("\n") == 1 and why in err


def test_other_models_are_compared_and_their_weights_named(capsys):
    for name in ("left", "other"):
        assert ran(capsys, f"record tapes:{name} --out {name}")[0] == 0
    status, out, _ = ran(capsys, "diff left other --json")
    told = json.loads(out)
    assert status == 0 and told["verdict"] == "differs" and told["outputs"][0]["differing"]
    assert any("block.first has different weights" in note for note in told["notes"])


def test_a_target_runs_in_a_process_of_its_own(capsys, planted):
    command = "diff tapes:left --target reference --against-target reference --json"
    status, out, err = ran(capsys, command)
    assert status == 0, err
    told = json.loads(out)
    assert told["verdict"] == "equal" and told["right"] == "reference"
    assert "tapes" not in sys.modules  # it was imported there alone


def test_a_function_on_a_target_is_given_the_arrays_that_were_asked_for(capsys, monkeypatch):
    shapes = []

    class Apart(contextlib.nullcontext):
        inputs = ()

        def __enter__(self):
            return self

        def open(self):
            """A function says nothing of its inputs."""

        def record(self, out, arrays, most, notes):
            shapes.append({name: one.shape for name, one in arrays.items()})
            raise InputError("target", "reference", "it is not started here", "")

    monkeypatch.setattr(import_module("probe.ui.answers.two_runs"), "Apart", lambda *_: Apart())
    for words in ("", " --shape x=2x3 --shape y=4"):
        assert ran(capsys, f"record tapes:left --out run --target reference{words}")[0] == 2
    assert shapes == [{}, {"x": (2, 3), "y": (4,)}]


def test_a_report_never_overwrites_a_folder_and_says_so_first(tmp_path, capsys):
    (tmp_path / "kept").write_text("mine")
    words = ["diff", "module:function", "--vary", "batch", "--at", "1", "--against", "2"]
    for command in (words, ["diff", "left", "right"]):
        assert shell.run([*command, "--report", str(tmp_path)]) == 2
        said = capsys.readouterr().err
        assert "report=" in said and "give another folder" in said and "--force" not in said
    assert (tmp_path / "kept").read_text() == "mine"


def test_a_report_that_no_lines_can_make_is_refused_before_the_work(tmp_path, capsys, monkeypatch):
    """It was said after minutes of comparing."""
    pytest.importorskip("ai_edge_litert")
    monkeypatch.setattr(two_runs.GivenModel, "opened_on", lambda *_: pytest.fail("it began"))
    (tmp_path / "m.onnx").touch()
    words = ["diff", str(tmp_path / "m.onnx"), "--target", "onnxruntime"]
    report = ["--report", str(tmp_path / "report")]
    assert shell.run([*words, "--against-target", "litert", *report]) == 2
    assert "none can be written of litert: the whole file is run there" in capsys.readouterr().err


def test_an_interrupted_report_leaves_the_answer(capsys, planted, monkeypatch):
    for name in ("left", "right"):
        assert ran(capsys, f"record tapes:{name} --out {name}")[0] == 0

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(first_difference.Walked, "reproduce", interrupted)
    status, said, err = ran(capsys, "diff left right --report report")
    assert status == 0 and "verdict: differs" in said, (status, said, err)
    assert "no report was written: interrupted" in err


def test_what_one_recording_has_not_is_not_none(capsys, planted):
    for name in ("left", "right"):
        assert ran(capsys, f"record tapes:{name} --out {name}")[0] == 0
    path = Path("left/recording.json")
    told = json.loads(path.read_text())
    told["made"]["libraries"]["numpy"] = "1.0"
    told["made"]["libraries"]["other"] = "2.0"
    # of two machines with one release; this one's, where TensorFlow is loaded, is neither
    told["made"]["tensorflow_onednn"] = "elsewhere"
    path.write_text(json.dumps(told))
    out = " ".join(ran(capsys, "diff left right")[1].split())
    assert "other: 2.0 on the left, not recorded on the right" in out and "None on the" not in out
    assert "tensorflow_onednn: elsewhere on the left, " in out


def test_a_recording_that_runs_nothing_does_not_say_it_tried(capsys):
    for name in ("left", "right"):
        assert ran(capsys, f"record tapes:{name} --out {name}")[0] == 0
    out = " ".join(ran(capsys, "diff left right --time 5m")[1].split())
    assert "can't be run alone" not in out and "not explained yet" not in out
    assert "no code of a recording is run, so no cause was looked for" in out


def test_chunks_are_asked_for_as_two_runs_are(capsys, tmp_path):
    pytest.importorskip("torch")
    text = "from torch import nn\nlayer = nn.Conv1d(3, 2, 3, padding=1)\n"
    (tmp_path / "tapes.py").write_text(text)
    words = "tapes:layer --ask chunks --shape 1x3x16"
    status, out, _ = ran(capsys, f"{words} --at 8 --json --fail-on finding")
    report = json.loads(out)
    assert status == 1 and report["schedule"] == "chunks:8" and report["window"] == 4
    assert report["enters"] == "aten.convolution"
    status, _, err = ran(capsys, words)
    assert status == 2 and err.splitlines()[-1].startswith("probe: at=")
