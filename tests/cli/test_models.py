"""``probe network`` of two runs, ``probe record`` and ``probe diff``: text, JSON, statuses."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path

import pytest

import probe
from probe.cli import models as commands
from probe.cli import shell
from probe.errors import InputError
from probe.recording import difference
from probe.semantics import Unknown
from tests.cli.commands import ran
from tests.recording import causes
from tests.recording.taped import Taped, apart, network, normal

TAPES = """
from tests.recording.taped import Taped, apart, network, normal
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
    assert status == 1 and "verdict: differs (moved)" in out
    assert "moved: 30 of 36 outputs stand at another index" in out
    assert "by index, 30 of 36 outputs differ; compared with what computes the same, 36" in out
    told = json.loads(ran(capsys, "diff plain turned --json")[1])
    assert (told["verdict"], told["moved"], told["window"]) == ("differs", 30, 0)
    assert told["outputs"][0]["by_index"]["differing"] == 30


def test_the_json_has_the_words_of_the_design(planted):
    told = probe.first_difference(*apart(X)).to_json()
    assert (told["verdict"], told["examined"], told["operations_total"]) == ("differs", 5, 5)
    assert told["first"] == told["operations"][0]["name"]
    keys = {"name", "op", "verdict", "differing", "max_ulp", "cause"}
    assert all(keys <= set(one) for one in told["operations"])
    assert told["operations"][0]["verdict"] == "source"
    assert told["operations"][0]["cause"] == "order"
    assert sum(told["shares"].values()) == pytest.approx(1)
    (output,) = told["outputs"]
    assert output["differing"] and output["growth"] > 0
    assert [one["decision"] for one in output["decisions"]] == ["argmax", "top-5", "threshold"]
    assert json.loads(json.dumps(told, allow_nan=False)) == told


def test_an_answer_is_three_lines_and_a_picture(planted):
    found = probe.first_difference(*apart(X))
    lines = repr(found).splitlines()
    assert len(lines) == 3 and all(0 < len(line) <= 100 for line in (lines[0], lines[2]))
    assert "5 operations" in lines[0] and "Dense at block.first" in lines[1]
    assert "order" in lines[1] and "outputs differ" in lines[2]
    assert found._repr_png_().startswith(b"\x89PNG")
    assert found.operations[0].verdict == "source" and found.first.name == "block.first"
    head, first, *_ = found.table().splitlines()
    assert head.startswith("operation") and first.startswith("block.first") and "order" in first
    page = found._repr_html_()
    assert page.count("<th>") == 6 and "block.first" in page and "data:image/png" in page


def test_equal_runs_say_so(planted):
    found = probe.first_difference(network(X), network(X))
    assert found.verdict == "equal" and not found.finding and not planted
    assert "equal" in repr(found).splitlines()[1]
    with pytest.raises(InputError, match="source=.*nothing to report"):
        found.reproduce("report")


def test_nothing_known_is_unknown_and_a_finding():
    def strange(x):
        return Taped(lambda tape: tape.ran("Odd", Unknown("no word"), lambda a: a + 1, x))

    found = probe.first_difference(strange(X[:2]), strange(X), explain=False)
    assert found.verdict == "unknown" and found.finding
    assert "it is not known which outputs must agree" in repr(found)


def test_the_report_is_of_the_source_that_is_named(planted, monkeypatch):
    from types import SimpleNamespace

    written = []
    folder = SimpleNamespace(no_case="")
    fake = SimpleNamespace(
        write_operation=lambda *given: written.append(given) or folder, ModelScript=dict
    )
    monkeypatch.setitem(sys.modules, "probe.reproduction.recorded", fake)
    found = probe.first_difference(*apart(X))
    found.reproduce("report")
    found.reproduce("report", "block.first")
    assert [str(one[0]) for one in written] == ["report"] * 2
    assert written[0][2] is found.first and written[0][3].kind == "order"
    assert folder.no_case  # no target runs tapes, so that it is no case
    with pytest.raises(InputError, match="source=head: this operation is not a source"):
        found.reproduce("report", "head")


def test_text_names_the_source_the_cause_and_the_outputs(capsys, planted):
    for name in ("left", "right"):
        assert ran(capsys, f"record tapes:{name} --out {name}")[0] == 0
    out = " ".join(ran(capsys, "diff left right")[1].split())
    for text in (
        "verdict: differs",
        "block.first (Dense): order: the left side adds in one block",
        "carried",
    ):
        assert text in out, text


REFUSED = {
    "record tapes:noisy --out run": (3, "the run gives different bits each time"),
    "record tapes:nothing --out run": (2, "model=tapes:nothing: AttributeError"),
    "record nowhere.onnx --out run": (2, "there is no such file"),
    "record tapes:left": (2, "out=(none): it is required"),
    "record tapes:left --out run --most lots": (2, "most=lots: it is not a number of bytes"),
    "record tapes:left --out .": (2, "out=.: it exists already"),
    "record tapes:left --out run --shape x": (2, "shape=x: it is not a shape"),
    "record tapes:left --out run --target reference,algorithm=pairwise": (
        *(2, "algorithm=pairwise changes how probe runs single operations"),
    ),
    "record tapes:left --out run --target reference==9": (3, "target=reference==9: unavailable"),
    "diff here there": (2, "recording=here: there is no recording.json in it"),
    "network tapes:left": (2, "there is nothing to compare with; give --vary batch --at 1"),
    "network tapes:left --vary batch": (2, "at=(none): the left run's size is required"),
    "network tapes:left --at 3 --against 3": (2, "both sides are the same run"),
    "network tapes:left --at 1 --against 3": (2, "without inputs there is no length to vary"),
    "network tapes:left --at 1 --against 3 --fixed 9": (2, "fixed=9: it compares padded lengths"),
    "network nine-layers --at 1 --against 3": (2, "there is no such file"),
}


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_wrong_is_one_line(text, capsys):
    status, why = REFUSED[text]
    found, out, err = ran(capsys, text)
    assert (found, out) == (status, "") and err.count("\n") == 1 and why in err


def test_other_models_are_refused(capsys):
    for name in ("left", "other"):
        assert ran(capsys, f"record tapes:{name} --out {name}")[0] == 0
    status, _, err = ran(capsys, "diff left other --json")
    assert status == 2 and "weights=w: block.first has different weights" in err


@pytest.mark.parametrize(("text", "count"), [("2G", 2 << 30), ("500M", 500 << 20), ("1.5k", 1536)])
def test_bytes_are_read(text, count):
    assert commands.bytes_of(text) == count


def test_a_target_runs_in_a_process_of_its_own(capsys, planted):
    command = "network tapes:left --target reference --against-target reference --json"
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

        def record(self, out, arrays, most):
            shapes.append({name: one.shape for name, one in arrays.items()})
            raise InputError("target", "reference", "it is not started here", "")

    monkeypatch.setattr(sys.modules["probe.answers.record"], "Apart", lambda *_: Apart())
    for words in ("", " --shape x=2x3 --shape y=4"):
        assert ran(capsys, f"record tapes:left --out run --target reference{words}")[0] == 2
    assert shapes == [{}, {"x": (2, 3), "y": (4,)}]


def test_an_operation_runs_again_where_it_was_recorded(tmp_path):
    from probe.recording.apart import Apart
    from probe.target import Target

    with Apart("tapes:left", Target("reference")) as process:
        ran_ = process.record(tmp_path / "run", {})
        one = ran_.operations[1]
        call = ran_.again(1)
        arrays = ran_.arrays({*one.reads, *one.gives})
        (found,) = call([arrays[n] for n in one.reads])
        assert found.tobytes() == arrays[one.gives[0]].tobytes()
        (other,) = call([-arrays[n] for n in one.reads])
        assert other.tobytes() != found.tobytes()


def test_models_in_memory_have_no_targets():
    with pytest.raises(InputError, match="a target's switches need a process of their own"):
        probe.network(network(X), against_target="reference")
    with pytest.raises(TypeError, match="unexpected keyword argument 'colour'"):
        probe.network(network(X), colour=3)


def test_a_report_never_overwrites_a_folder_and_says_so_first(tmp_path, capsys):
    (tmp_path / "kept").write_text("mine")
    words = ["network", "module:function", "--vary", "batch", "--at", "1", "--against", "2"]
    for command in (words, ["diff", "left", "right"]):
        assert shell.run([*command, "--report", str(tmp_path)]) == 2
        said = capsys.readouterr().err
        assert "report=" in said and "give another folder" in said and "--force" not in said
    assert (tmp_path / "kept").read_text() == "mine"


def test_all_outputs_are_counted_not_only_the_worst(planted):
    one, other = normal(32, 24), normal(32, 24, seed=5)

    def run(blocks):
        return Taped(lambda t: (t.dense(X, t.weight(one), blocks), t.dense(X, t.weight(other), 2)))

    def both(blocks):
        return Taped(lambda t: tuple(t.dense(X, t.weight(w), blocks) for w in (one, other)))

    found = probe.first_difference(both(1), both(5))
    total = sum(one.differing for one in found.outputs)
    assert all(one.differing for one in found.outputs)
    most = max(one.max_ulp for one in found.outputs)
    assert f"{total} of 288 outputs differ, up to {most:,} ulp" in found.outcome()
    half = probe.first_difference(run(2), run(5))  # one of the two differs
    assert "of 288 outputs differ" in half.outcome()


def test_the_reason_of_an_unknown_is_told(capsys):
    def strange(x):
        def program(tape):
            y = tape.ran("Odd", Unknown("it has 9 elements, and 8 are read"), lambda a: a + 1, x)
            return tape.relu(tape.relu(y))

        return Taped(program)

    found = probe.first_difference(strange(X[:2]), strange(X), explain=False)
    told = found.to_json()
    why = "Odd: it has 9 elements, and 8 are read"
    assert [one["reason"] for one in told["operations"]] == [why] * 3
    (group,) = told["unknown"]
    assert (group["operations"], group["name"], group["side"]) == (3, "Odd", "")
    assert found.lines()[1] == f"unknown: {why}"  # the picture of a notebook has these lines too
    (line,) = found.unknown()
    assert line == "unknown: 3 operations, from Odd on: it has 9 elements, and 8 are read"


def test_no_report_is_offered_where_none_can_be_written(planted):
    found = probe.first_difference(*apart(X))
    assert found.first.op == "Dense" and "report" not in found.outcome()  # it has no lines
    for side in (found.found.left, found.found.right):
        side.operations[0].lines = lambda names, out: []
    assert "try reproduce('folder') for a report" in found.outcome()
    found.found.causes = {0: causes.Cause(alone=False)}
    assert "report" not in found.outcome()


def test_time_is_a_limit_and_says_what_is_left():
    left, right = apart(X)
    found = probe.first_difference(left, right, time="0.001s")
    assert found.verdict == "differs" and not found.found.causes
    assert any("0 of the 1 operations" in one and "--time" in one for one in found.notes)
    with pytest.raises(InputError, match="time=soon"):
        probe.first_difference(left, right, time="soon")
    assert probe.first_difference(left, right, time="5m").found.causes


def test_work_is_told_after_a_while(capsys, monkeypatch, planted):
    monkeypatch.setattr("probe.progress.FIRST", 0.01)
    monkeypatch.setattr("probe.recording.walk.compare_runs", _slowly)
    probe.first_difference(network(X), network(X), explain=False)
    assert "first_difference: 0 s so far: comparing" in capsys.readouterr().err


def _slowly(*given):
    time.sleep(0.3)
    return difference.compare_runs(*given)


def test_what_one_recording_has_not_is_not_none(capsys, planted):
    for name in ("left", "right"):
        assert ran(capsys, f"record tapes:{name} --out {name}")[0] == 0
    path = Path("left/recording.json")
    told = json.loads(path.read_text())
    told["made"]["libraries"]["numpy"] = "1.0"
    told["made"]["libraries"]["other"] = "2.0"
    path.write_text(json.dumps(told))
    out = " ".join(ran(capsys, "diff left right")[1].split())
    assert "other: 2.0 on the left, not recorded on the right" in out and "None on the" not in out


def test_a_recording_that_runs_nothing_does_not_say_it_tried(capsys):
    for name in ("left", "right"):
        assert ran(capsys, f"record tapes:{name} --out {name}")[0] == 0
    out = " ".join(ran(capsys, "diff left right --time 5m")[1].split())
    assert "can't be run alone" not in out and "not explained yet" not in out
    assert "no code of a recording is run, so no cause was looked for" in out
