"""Operations and programs of them; dense: rows, as the layers of each library do it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from probe.case.case import Case
from probe.case.errors import InputError
from probe.case.operation import operand_names
from probe.order import window
from probe.targets.target import Target
from probe.ui.cli import shell
from tests.convolutions import explain_case

pytestmark = pytest.mark.long

ROWS = Case("dense", in_channels=65, filters=8, bias="normal")
LIBRARIES = "torch tensorflow numpy keras jax onnxruntime litert opencv".split()
SWITCHES = "reference,algorithm=pairwise,length_switch=3"


@pytest.mark.parametrize("name", LIBRARIES)
@pytest.mark.slow_at("jax", "litert", "opencv", "onnxruntime", "keras", "tensorflow", "torch")
def test_rows_are_explained_and_what_is_called_a_cause_replays(started, name):
    """Whether a library differs depends on the processor: that it replays does not."""
    started(name)
    found = explain_case(ROWS, Target.parse(name), 1, 9)
    assert found.compared == 8
    assert found.to_json()["replayed"] == 8
    assert sum(found.to_json()["causes"].values()) == found.to_json()["differing"]


def test_shapes_are_rows_and_linear_is_the_same():
    case = Case("linear", in_channels=6, filters=4, batch=3, bias="normal")
    assert case == Case("dense", in_channels=6, filters=4, batch=3, bias="normal")
    assert [array.shape for array in case.operands()] == [(3, 6), (6, 4), (4,)]
    assert case.output_shape() == (3, 4) and case.summands == 6
    assert case.label == "dense, 6 -> 4, batch 3"
    assert Case.from_json(case.to_json()) == case
    whole = case.with_(batch=7).operands()[0]
    assert (case.operands()[0] == whole[:3]).all()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"length": 5}, "length=5: dense has no length: its rows are its batch"),
        ({"kernel": 3}, "kernel=3: this operation has no spatial axis"),
        ({"stride": 2}, "stride=2: this operation has no spatial axis"),
        ({"padding": "same"}, "padding=same: dense has none"),
        ({"height": 2}, "height=2: this operation has no spatial axis"),
    ],
)
def test_what_rows_do_not_have_is_refused(changed, said):
    with pytest.raises(InputError, match=said):
        Case("dense", in_channels=4, **changed)


def test_the_axis_is_the_batch_unless_another_is_given():
    case = Case("dense", in_channels=4, filters=2)
    assert window.axis_of(case, None) == "batch" and window.axis_of(case, "filters") == "filters"
    assert window.axis_of(Case("matmul", in_channels=4), None) == "length"
    with pytest.raises(InputError, match="vary=length: dense has no length"):
        explain_case(case, Target.parse("reference"), 1, 4, vary="length")


def said(capsys, command, status=0):
    assert shell.run([*command.split(), "--json"]) == status
    return json.loads(capsys.readouterr().out)


CASE = f"--op linear --in-channels 9 --filters 3 --operands cancel --target {SWITCHES}"


@pytest.mark.slow
def test_commands_take_rows(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    swept = said(capsys, f"sweep {CASE} --values 1..5")
    assert [one["batch"] for one in swept["lengths"]] == [1, 2]
    by_order = said(capsys, f"sweep {CASE} --values 1..5 --by order")
    assert by_order["differing"] == 9
    found = said(capsys, f"explain {CASE} --at 1 --against 4")
    assert found["causes"] == {"order": found["differing"]} and found["replayed"] == 3
    read = said(capsys, f"order window {CASE} --batch 2")
    assert read["windows"][1]["output"] == [1]
    assert read["windows"][1]["reads"] == list(range(9, 18))
    assert said(capsys, f"order {CASE} --batch 4")["replayed"] == 12
    small = said(capsys, f"report shrink {CASE} --at 1 --against 5")
    assert small["case"]["op"] == "dense" and small["case"]["filters"] == 1
    assert said(capsys, f"fix sizes {CASE} --upto 12")["floor"]["size"] == 3
    found = said(capsys, f"fix {CASE} --lengths 2,3,4 --only pad")
    assert (found["vary"], found["recommended"]) == ("batch", "pad")


def test_rows_are_emulated(capsys, tmp_path):
    file = tmp_path / "rows.py"
    found = said(capsys, f"report emulate {CASE} --batch 1 --against 4 --out {file}")
    assert found["replayed"] == 15
    ran = subprocess.run([sys.executable, str(file)], capture_output=True, text=True, check=True)
    assert "3 of 3 outputs have the library's bits" in ran.stdout
    assert "12 of 12 outputs have the library's bits" in ran.stdout


def test_operands_are_those_of_a_layer_with_weights():
    conv = Case("conv1d", 3, 2, 2, length=9, bias="normal").spec()
    assert operand_names(conv) == ("w", "b") and operand_names({**conv, "bias": False}) == ("w",)
    assert operand_names({"op": "max_pool1d"}) == ()
