"""``probe MODEL``: its parts come in order, as soon as each is known, and stay when it ends early.

Which sizes of a product differ depends on the processor: a size that does is looked for here.
"""

import json
from pathlib import Path

import numpy as np
import pytest

import probe
from probe.case.errors import InputError
from probe.ui.answers import examine as answers
from probe.ui.cli import shell
from tests.targets.test_installed import provided

torch = pytest.importorskip("torch")

ORDER = ("outputs", "operation", "cause", "fix", "cost", "report")
MODULE = """
import torch

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(96, 64), torch.nn.Tanh(), torch.nn.Linear(64, 5)).eval()


def run(x):
    with torch.no_grad():
        return net(torch.as_tensor(x))


def places(ids):
    return torch.as_tensor(ids).float().sum(1)
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "strangers_model.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def head(width=96, rows=40):
    """A layer, inputs, and how many rows of them give different bits by themselves."""
    torch.manual_seed(1)
    for size in (width, 384, 768):
        layer, x = torch.nn.Linear(size, 64).eval(), torch.randn(rows, size)
        with torch.no_grad():
            whole = layer(x)
            for count in (1, 2, 3, 5, 7, 9, 11, 13):
                if not torch.equal(layer(x[:count]), whole[:count]):
                    return layer, x, count
    pytest.skip("this processor adds all rows of these layers alike")


@pytest.mark.slow
def test_the_parts_come_in_order_and_each_is_told_at_once(tmp_path):
    layer, x, count = head()
    told = []
    found = probe.examine(layer, x, at=count, out=tmp_path / "report", part=told.append)
    names = [one.name for one in found.parts]
    assert found.parts == told and sorted(names, key=ORDER.index)[0] == names[0] == "outputs"
    assert set(names) == set(ORDER) and names[:4] == list(ORDER[:4]) and names[-1] == "report"
    assert names.count("outputs") == 1  # told before anything was recorded, and not again
    assert found.verdict == "differs" and not found.ended
    assert f"nn.Linear({x.shape[1]}, 64)" in found.text("operation")
    assert "sums of" in found.text("cause") and "replay on both sides" in found.text("cause")
    assert "one size" in found.text("cost")
    seconds = [one.seconds for one in found.parts]
    assert seconds == sorted(seconds)
    assert json.loads(json.dumps(found.to_json()))["parts"][0]["part"] == "outputs"
    # the report of a model's layer is that of a case, and says where it came from
    assert "order.png" in found.text("report") and "no case" not in found.text("report")
    report = (tmp_path / "report" / "report.md").read_text()
    assert f"nn.Linear({x.shape[1]}, 64)" in report and "on generated operands" in report
    assert "The finding it came from" in report and "documentation says" in report
    told = json.loads((tmp_path / "report" / "machine.json").read_text())
    assert told["case"]["op"] == "dense" and told["bits"] and "model" in told


@pytest.mark.slow
def test_what_is_no_case_gets_the_operations_own_script(tmp_path):
    layer, x, count = head()
    with torch.no_grad():
        found = probe.first_difference(lambda: layer(x[:count]), lambda: layer(x))
    written = found.reproduce(tmp_path / "report", case=False)
    assert written.no_case == "it was not asked for" and "reproduce.py" in written.files


def test_equal_runs_have_one_part():
    found = probe.examine(torch.nn.Tanh(), torch.zeros(4, 8))
    assert [one.name for one in found.parts] == [
        "outputs",
        "operation",
    ] and found.verdict == "equal"
    assert len(repr(found).splitlines()) == 3


def test_outputs_that_read_the_padding_are_counted_and_not_called_rounding():
    """Behind the end the second layer reads its own zeros, or what the first made of padding."""
    torch.manual_seed(0)
    first, last = torch.nn.Conv1d(2, 3, 3, padding=1), torch.nn.Conv1d(3, 4, 5, padding=2)
    first.bias.data.fill_(0.5)
    model = torch.nn.Sequential(first, torch.nn.ReLU(), last).eval()
    x = torch.zeros(1, 2, 16)
    x[:, :, :9] = torch.randn(1, 2, 9)
    found = probe.examine(model, x, "padding", at=9)
    with torch.no_grad():
        apart = (model(x)[..., :9] - model(x[..., :9])).abs()
    away = int((apart > 1e-4).any(dim=(0, 1)).sum())  # the last two positions
    assert away == 2 and found.parts[-1].name == "fix"
    # those at the position before read it too, where it is zero
    said = found.parts[-1].text
    assert said.startswith(f"{(away + 1) * 4} outputs read the padding: a difference there is no")
    assert (
        f"by up to {float(apart.max()):.2g}; 12 read what the other side lacks"
        in found.parts[0].text
    )


def test_what_is_known_stays_where_it_is_interrupted(monkeypatch, tmp_path):
    layer, x, count = head()

    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(answers.Examination, "_try_remedies", interrupt)
    found = probe.examine(layer, x, at=count)
    assert [one.name for one in found.parts] == ["outputs", "operation", "cause"]
    assert found.ended == "interrupted" and "nn.Linear" in repr(found)
    found = probe.examine(layer, x, at=count, out=tmp_path / "report")
    assert found.text("report") == "none was written: interrupted"
    assert not (tmp_path / "report").exists()


def test_the_valid_part_of_a_padded_sample_is_found(tmp_path):
    ids = np.zeros((3, 12), np.int64)
    ids[0], ids[1, :7], ids[2, :4] = 5, 3, 2
    how = {"out": tmp_path / "report"}
    found = probe.examine(lambda x: torch.as_tensor(x).cumsum(1), ids, "padding", **how)
    assert found.asked.endswith("length 7 against length 12") and found.verdict == "equal"
    assert found.text("report") == "none was written: no operation differs"


def test_the_padded_axis_need_not_be_the_longest():
    x = np.ones((3, 48, 20), np.float32)
    x[1, :, 11:] = 0
    found = probe.examine(lambda x: torch.as_tensor(x) * 2, x, "padding")
    assert found.asked.endswith("length 11 against length 20") and found.verdict == "equal"


def ran(capsys, text):
    status = shell.run(text.split())
    return status, *capsys.readouterr()


def test_a_models_name_alone_is_a_command(module, capsys):
    status, out, _ = ran(capsys, "strangers_model:run --shape x=8x96 --time 5m")
    assert status == 0 and out.startswith("outputs ") and "\nwhich " in out
    assert "batch 1 against batch 8" in out
    status, out, _ = ran(capsys, "MODEL strangers_model:run --shape x=8x96 --json")
    told = json.loads(out)
    assert status == 0 and told["ask"] == "batch" and told["parts"][0]["part"] == "outputs"


def test_lines_fit_the_terminal(module, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    _, out, _ = ran(capsys, "strangers_model:run --shape x=8x96")
    assert max(map(len, out.splitlines())) <= 60


def test_no_report_is_written_over_files(tmp_path):
    (tmp_path / "a").write_text("")
    with pytest.raises(InputError, match="out=.*has files"):
        probe.examine(torch.nn.Tanh(), torch.zeros(4, 8), out=tmp_path)
    assert [one.name for one in Path(tmp_path).iterdir()] == ["a"]


WRONG = {
    "a word that is no question": ({"ask": "batches"}, "ask=batches: .*batch"),
    "a release that is not named": ({"ask": "release"}, "against_target=.none.: .*torch=="),
    "a size": ({"against_target": "torch", "at": 2}, "at=2: with ask=release both sides"),
    "two questions": (
        {"ask": "batch", "against_target": "torch"},
        "against_target=torch: it belongs to ask=release",
    ),
    "one row alone": ({"inputs": torch.zeros(1, 8)}, "at=1: the other side has 1; give a batch"),
    "no inputs": ({"inputs": None}, "inputs=.none.: the model does not describe its inputs; give"),
    "a time without a unit": ({"time": "5"}, "time=5: "),
}


@pytest.mark.parametrize("name", WRONG)
def test_mistakes_are_one_line_that_says_what_to_do(name):
    given, message = WRONG[name]
    with pytest.raises(InputError, match=message) as caught:
        probe.examine(torch.nn.Tanh(), **({"inputs": torch.zeros(4, 8)} | given))
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Keras, while it saves
@pytest.mark.slow
def test_the_invariant_mode_gets_the_model_of_a_keras_file(tmp_path):
    """A file of layers is no program: its layers are replaced, as of a model in memory."""
    keras = pytest.importorskip("keras")
    from probe.record.subject import open_model
    from probe.sizes import model_fixes

    layers = [keras.Input((16,), name="x"), keras.layers.Dense(8)]
    path = tmp_path / "dense.keras"
    keras.Sequential(layers).save(path)
    runs = [{"x": np.ones((rows, 16), np.float32)} for rows in (1, 3)]
    opened = open_model(path)
    differing = lambda ours, theirs: int((ours[0] != theirs[0][:1]).sum())  # noqa: E731
    found = model_fixes.of_runs(opened, str(path), {"batch": [1, 3]}, runs, differing)
    assert found.report is not None and not found.refusal
    assert (found.verdict == "exact") is (not found.differing and not found.report.left)


@pytest.mark.slow
def test_two_releases_are_asked_and_reported(tmp_path):
    """The release here against an old one in an environment of its own, end to end."""
    onnx = pytest.importorskip("onnx")
    where = provided("onnxruntime==1.10.0", 0.5)
    make, number = onnx.helper, onnx.TensorProto.FLOAT
    w = np.random.default_rng(0).normal(size=(64, 64, 5)).astype(np.float32)
    graph = make.make_graph(
        [make.make_node("Conv", ["x", "w"], ["y"], name="conv")],
        "one",
        [make.make_tensor_value_info("x", number, ["n", 64, 100])],
        [make.make_tensor_value_info("y", number, None)],
        [onnx.numpy_helper.from_array(w, "w")],
    )
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 13)], ir_version=7)
    onnx.save(model, tmp_path / "conv.onnx")
    out = tmp_path / "report"
    shapes = {"x": (4, 64, 100)}
    found = probe.examine(
        tmp_path / "conv.onnx", ask="release", against_target=where, shapes=shapes, out=out
    )
    assert found.ask == "release" and found.asked.endswith("against onnxruntime==1.10.0")
    parts = {one.name: one.text for one in found.parts}
    if found.found.verdict == "equal":
        assert list(parts) == ["outputs", "operation", "report"] and not out.exists()
        return
    assert "conv" in parts["operation"] and "probe bisect MODEL" in parts["fix"]
    assert found.to_json()["parts"][1]["explanation"]["replayed"] > 0
    about = json.loads((out / "machine.json").read_text())
    assert about["library_versions"][1] == "1.10.0" and "1.10.0" in (out / "report.md").read_text()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_padding_is_where_the_mask_says_whichever_of_its_numbers_hides() -> None:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    inner = torch.nn.TransformerEncoder(layer, 2)

    class Hidden(torch.nn.Module):  # PyTorch's masks are true for padding
        def __init__(self):
            super().__init__()
            self.inner = inner

        def forward(self, src, mask):
            return self.inner(src, src_key_padding_mask=mask)

    class Shown(Hidden):
        def forward(self, src, mask):
            return self.inner(src, src_key_padding_mask=~mask)

    x, hidden = torch.randn(4, 24, 32), torch.arange(24) >= torch.tensor([24, 5, 13, 24])[:, None]
    for model, mask in ((Hidden(), hidden), (Shown(), ~hidden)):
        given = {"src": x.numpy(), "mask": mask.numpy()}
        found = probe.examine(model.eval(), given, ask="padding")
        assert found.asked.endswith("length 5 against length 24")
        assert found.found.window == 0 and found.found.found.outputs[0].compared == 5 * 32
        with torch.no_grad():  # with gradients other kernels run
            alone = model(x[1:2, :5], mask[1:2, :5]).numpy()
            padded = model(x[1:2], mask[1:2]).numpy()[:, :5]
        (output,) = found.found.found.outputs_by_index
        assert output.differing == (alone != padded).sum()
        # the same sample among others: nested tensors of other lengths
        batch = probe.network(model, inputs=given, vary="batch", at=1, against=4, explain=False)
        assert batch.found.examined == len(batch.found.operations)


@pytest.mark.parametrize("shift", [1, 2, 3])
def test_samples_that_read_each_other_are_no_rounding_and_no_size_fixes_them(shift):
    """The first sample's difference was rounding, and all eight were called so."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(3)

    class Neighbours(torch.nn.Linear):
        def forward(self, x):
            y = super().forward(x)
            return torch.tanh(y + torch.roll(y, shift, 0))

    model, x = Neighbours(24, 24).eval(), torch.randn(8, 24)
    found = probe.examine(model, x, time="60s", progress=lambda _: None).to_json()
    assert found["comparison"]["window"] == 192
    assert found["comparison"]["classes"]["explained rounding"] == 0
    (fix, *_) = (part for part in found["parts"] if part["part"] == "fix")
    assert "its samples read each other" in fix["text"]
