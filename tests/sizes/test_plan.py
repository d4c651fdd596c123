"""What is written down of padded sizes, and does what it says in a user's own code."""

import importlib.util
import json
from itertools import pairwise

import numpy as np
import pytest

import probe
from lib import nine_layers
from probe.sizes import model_fixes
from tests.sizes import graphs
from tests.sizes.graphs import FIXED, X, answered, graph


def imported(folder, name):
    """The plan's own code."""
    spec = importlib.util.spec_from_file_location(name, folder / "padded.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def of_whole(padded, content, y):
    """What is kept of the run at the fixed size."""
    (box,) = padded._stretch(content)["kept"]
    return y[padded.kept_index(box, y.ndim, short=False)]


def test_a_plan_gives_the_fixed_bits_from_its_own_code(tmp_path):
    model = graphs.residual(lambda size: size == 6)
    found = answered(model, lengths=[3], plan=tmp_path / "plan")
    assert found.verdict == "differs" and found.first == "second"
    told = json.loads((tmp_path / "plan" / "plan.json").read_text())
    assert told["sets"] and not told["failed"]
    assert (found.found[0].content, found.found[0].safe) == (3, 7)
    padded = imported(tmp_path / "plan", "padded_residual")
    for content in range(1, 4):
        x = X[:, :content] * np.float32(1.5)
        whole = np.zeros_like(X)
        whole[:, :content] = x
        short = model(padded.pad({"x": x})["x"])
        (y,) = padded.crop([np.asarray(short)], content)
        assert y.tobytes() == of_whole(padded, content, np.asarray(model(whole))).tobytes()
    with pytest.raises(ValueError, match="content=4: the plan has no such length"):
        padded.padded_size(4)


def test_lengths_between_take_the_size_of_the_next_one(monkeypatch):
    monkeypatch.setattr(model_fixes, "LEAST_APART", 2)
    model = graphs.residual()
    made = model_fixes.padding_plan(graph(model), range(1, 17), "residual")
    assert made.failed == [] and made.checked[0] == 1 and made.checked[-1] == 16
    ends = [(one.first, one.last) for one in made.stretches]
    assert ends[0][0] == 1 and ends[-1][1] == 16 and 3 < len(ends) < 16
    assert all(first[1] + 1 == second[0] for first, second in pairwise(ends))
    for one in made.stretches:  # each has what the longest of it needs
        assert one.padded == graph(model).sized(one.last).safe


def test_rows_of_a_batch_have_places_of_their_own():
    rows = np.random.default_rng(1).standard_normal((8, 5)).astype(np.float32)
    model = graph(lambda x: np.asarray(x) * np.float32(3) + x, {"x": rows}, {"x": 0}, 8)
    made = model_fixes.padding_plan(model, range(1, 7), "rows")
    assert [(one.first, one.last, one.kept[0][0].stop) for one in made.stretches] == [
        (n, n, n) for n in range(1, 7)
    ]


def test_a_plan_stops_with_what_is_known(monkeypatch):
    model = graph(graphs.residual(lambda size: size < 20))
    model.seconds = 0.0
    made = model_fixes.padding_plan(model, [3], "residual")
    assert made.stretches[0].padded == FIXED and "seconds were over" in made.over


def programs(kind, tmp_path):
    """A model of a library, what ``probe.network`` is given besides, and how its users call it."""
    words = {"width": 3, "blocks": 2}
    if kind == "keras":
        pytest.importorskip("tensorflow")
        model = nine_layers.keras_model(**words)
        return model, {"fixed": 80}, "x", (1, 1, 80, 1), 2, lambda x: np.asarray(model(x))
    if kind == "torch":
        torch = pytest.importorskip("torch")
        model, shape = nine_layers.torch_module(**words), (1, 1, 1, 80)
        run = lambda x: model(torch.from_numpy(x)).numpy()  # noqa: E731
        return model, {"fixed": 80, "shapes": {"x": shape}}, "x", shape, 3, run
    library = pytest.importorskip("onnxruntime")
    path = nine_layers.onnx_model(tmp_path / "model.onnx", **words)
    session = library.InferenceSession(path)
    run = lambda x: session.run(None, {"x": x})[0]  # noqa: E731
    return str(path), {"fixed": 80, "shapes": {"x": (1, 1, 1, 80)}}, "x", (1, 1, 1, 80), 3, run


@pytest.mark.parametrize("kind", ["keras", "torch", "onnx"])
@pytest.mark.slow_at("keras", "onnx")
def test_a_users_program_has_the_fixed_bits_at_planned_lengths(kind, tmp_path):
    model, words, name, shape, axis, run = programs(kind, tmp_path)
    found = probe.network(model, lengths=[24], plan=tmp_path / "plan", **words)
    assert found.plan.failed == []
    padded = imported(tmp_path / "plan", f"padded_{kind}")
    for content in (1, 7, 24):
        for seed in range(4):
            x = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
            x[(slice(None),) * axis + (slice(content, None),)] = 0
            bare = np.ascontiguousarray(np.take(x, range(content), axis))
            (y,) = padded.crop([run(padded.pad({name: bare})[name])], content)
            assert y.tobytes() == of_whole(padded, content, run(x)).tobytes(), (content, seed)


def test_what_is_kept_has_the_full_bits_though_a_state_is_carried_on_behind_it(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    torch.manual_seed(0)
    inner = torch.nn.GRU(4, 4, batch_first=True).eval()
    x = np.random.default_rng(2).standard_normal((1, 12, 4)).astype("float32")

    def model(x):
        with torch.no_grad():
            return inner(torch.from_numpy(x))[0].numpy()

    class Outputs(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x)[0]

    probe.network(
        Outputs().eval(), inputs={"x": x}, vary="x:1", lengths=[5], plan=tmp_path / "plan"
    )
    padded = imported(tmp_path / "plan", "behind")
    y = model(padded.pad({"x": x[:, :5]})["x"])
    whole = model(np.pad(x[:, :5], ((0, 0), (0, 7), (0, 0))))
    (kept,) = padded.crop([y], 5)
    assert kept.tobytes() == of_whole(padded, 5, whole).tobytes()
