"""Models that are read in part: every answer says so first, and none calls the model safe."""

import json

import numpy as np
import pytest

import probe
from probe.cli import shell
from probe.errors import InputError
from probe.experiments import networks as pictures
from probe.launch import InlineSession
from probe.network import Network, plan
from probe.network.reading import BRANCHED
from probe.network.report import examine, verdict
from probe.network.safe import SafeLengths
from probe.remedies import measure_network, remedy
from probe.target import Target

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

SWITCHES = "reference,algorithm=pairwise,length_switch=8"
MODELS = (
    "keras-add keras-lstm keras-flat keras-pool torch-add torch-gru torch-flat onnx-add".split()
)
PARTS = {  # layers read, of how many, and where the model stops being a chain
    "keras-add": (4, 7, "add"),
    "keras-lstm": (2, 3, "lstm"),
    "keras-flat": (2, 4, "flatten"),
    "keras-pool": (1, 3, "pool"),
    "torch-add": (4, 7, "add"),
    "torch-gru": (2, 3, "2"),
    "torch-flat": (2, 4, "2"),
    "onnx-add": (3, 5, "sum"),
}


def keras_model(name):
    keras = pytest.importorskip("keras")
    layers = keras.layers
    entry = keras.Input((48, 3))
    first = layers.Conv1D(4, 3, padding="same", activation="relu", name="conv")
    if name == "add":  # a residual network: 7 layers beside the input
        a = first(entry)
        b = layers.BatchNormalization()(a)
        b = layers.Conv1D(4, 3, padding="same")(layers.ReLU()(b))
        y = layers.Add(name="add")([a, b])
        y = layers.Dense(2)(layers.GlobalAveragePooling1D()(y))
        return keras.Model(entry, y)
    rest = {
        "lstm": [layers.Dropout(0.5), layers.LSTM(3, name="lstm")],
        "flat": [layers.MaxPooling1D(2), layers.Flatten(name="flatten"), layers.Dense(2)],
        "pool": [layers.GlobalMaxPooling1D(name="pool"), layers.Dense(2)],
    }
    return keras.Sequential([entry, first, *rest[name]])


def residual():
    torch = pytest.importorskip("torch")

    class Residual(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.one = torch.nn.Conv1d(3, 4, 3, padding=1)
            self.two = torch.nn.Conv1d(4, 4, 3, padding=1)
            self.last = torch.nn.Linear(4, 2)

        def forward(self, x):
            x = torch.relu(self.one(x))
            return self.last((x + torch.relu(self.two(x))).mean(-1))

    return Residual().eval()


def torch_model(name):
    torch = pytest.importorskip("torch")
    if name == "add":
        return residual()
    nn = torch.nn
    rest = {"gru": [nn.GRU(4, 2)], "flat": [nn.Flatten(), nn.Linear(4 * 46, 2)]}
    return nn.Sequential(nn.Conv1d(3, 4, 3), nn.ReLU(), *rest[name]).eval()


def onnx_model():
    pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

    draw = np.random.default_rng(0)
    held = [
        numpy_helper.from_array(draw.normal(size=(4, n, 3)).astype(np.float32), name)
        for name, n in (("w", 3), ("v", 4))
    ]
    steps = [("Conv", ["x", "w"], "a"), ("Relu", ["a"], "b"), ("Conv", ["b", "v"], "c")]
    steps += [("Add", ["b", "c"], "d"), ("GlobalMaxPool", ["d"], "y")]
    nodes = [
        helper.make_node(
            kind,
            given,
            [out],
            name="sum" if kind == "Add" else out,
            **({"pads": [1, 1]} if kind == "Conv" else {}),
        )
        for kind, given, out in steps
    ]
    shapes = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", [1, 3, 48]), ("y", [1, 4, 1]))
    ]
    return helper.make_model(helper.make_graph(nodes, "graph", shapes[:1], shapes[1:], held))


@pytest.fixture(scope="module")
def parts():
    """Every model that was asked for, read once."""
    return {}


def part_of(parts, name):
    if name not in parts:
        library, _, kind = name.partition("-")
        model = {"keras": keras_model, "torch": torch_model}.get(library, lambda _: onnx_model())
        parts[name] = Network.load(model(kind))
    return parts[name]


@pytest.fixture
def run(capsys):
    """What ``probe WORDS`` prints: to stdout, or in case of status 2 its one line of error."""

    def running(*words, status=0):
        capsys.readouterr()
        assert shell.run(list(map(str, words))) == status
        out, error = capsys.readouterr()
        return error if status == 2 else out

    return running


@pytest.mark.parametrize("name", PARTS)
def test_a_reader_says_how_much_of_a_model_it_read(parts, name):
    found = part_of(parts, name)
    examined, total, stop = PARTS[name]
    assert (found.examined, found.operations_total) == (examined, total)
    assert found.suffix is not None and found.suffix.name == stop and found.suffix.todo
    assert found.part == f"layer{'s 1 to' if examined > 1 else ''} {examined} of {total}; " + (
        f"the layers from `{stop}` on are not examined"
    )
    if name.endswith("add"):
        assert "joins several branches" in found.suffix.why and found.suffix.todo == BRANCHED


@pytest.mark.slow
@pytest.mark.parametrize("name", PARTS)
def test_every_command_says_first_what_it_did_not_judge(parts, name, tmp_path, run):
    # a description keeps what it is a part of, so that the commands need no library to read it
    path = tmp_path / "model.json"
    part_of(parts, name).save(path)
    again = Network.load(path)
    said = part_of(parts, name).part
    assert again.part == said and again.id == part_of(parts, name).id
    words = [path, "--target", "reference", "--lengths", "4", "--fixed", "20"]
    text = run("network", *words)
    assert said in " ".join(text.split("\n\n")[0].split())
    assert text.startswith("model.json") or said in text.splitlines()[0]
    assert "is safe\n" not in text and "whether the model is safe is unknown" in text
    assert " equal up to " in " ".join(text.split()) and "safe lengths:" not in text

    told = json.loads(run("network", *words, "--json", "--fail-on", "finding", status=1))
    assert (told["verdict"], told["part"]) == ("unknown", said)
    assert (told["examined"], told["operations_total"]) == PARTS[name][:2]
    assert told["targets"]["reference"]["plan"] is None
    assert told["targets"]["reference"]["safe_in_part"]["part"] == said

    error = run("network", *words, "--plan", tmp_path / "plan", status=2)
    assert "a plan is for whole models" in error and said in error and error.count("\n") == 1
    assert not (tmp_path / "plan").exists()

    if name.endswith("add"):
        text = run("remedies", *words, "--only", "pad")
        assert said in " ".join(text.split("\n\n")[0].split())
        assert "no remedy is needed" not in text and "nothing is recommended" in text
    words += ["--only", "pad", "--store", tmp_path / "store", "--fail-on", "finding"]
    told = json.loads(run("remedies", *words, "--json", status=1))
    assert (told["verdict"], told["recommended"], told["keeping"]) == ("unknown", None, None)
    assert said in told["advice"] and told["part"] == said
    assert {one["verdict"] for one in told["remedies"]} == {"not known"}
    stored = probe.load(tmp_path / "store")
    assert stored.networks.part.tolist() == [said]
    assert stored.networks.examined.tolist() == [PARTS[name][0]]
    assert stored.networks.operations_total.tolist() == [PARTS[name][1]]
    assert set(stored.remedies.verdict) == {"not known"} and not stored.remedies.recommended.any()

    asked = ("reproduce", "--network", path, "--length", 4, "--target", "reference")
    error = run(*asked, "--against", 20, "--out", tmp_path / "report", status=2)
    assert "no activation differs" in error and said in error


def test_python_marks_a_part_as_the_commands_do(parts, tmp_path):
    found = part_of(parts, "torch-add")
    with InlineSession(Target.parse("reference")) as session:
        made = plan.make(SafeLengths(session, found.geometry(48)), [4, 9])
    assert made.part == found.part and made.to_json()["part"] == found.part
    assert "is safe" not in made.rule
    with pytest.raises(InputError, match="only a part of this one is supported"):
        made.save(tmp_path)
    measured = measure_network(found, Target.parse("reference"), [4], 48, only=["pad"])
    told = remedy.report(measured)
    assert told["recommended"] is None and told["verdict"] == "unknown"


def test_a_difference_inside_the_part_is_still_a_finding(tmp_path, run):
    layers = [{"op": "conv1d", "kernel": 5, "filters": 2, "name": "conv"}]
    whole = {"rank": 1, "in_channels": 8, "fixed": 40, "layers": layers}
    stop = {"name": "add", "kind": "Add", "why": "joins several branches"}
    part = Network.load(whole | {"part": stop | {"examined": 1, "operations_total": 3}})
    assert part.id != Network.load(whole).id
    with InlineSession(Target.parse(SWITCHES)) as session:
        report = examine(session, part.geometry(40), [2], safe=[2])
    assert report.verdict == verdict([report]) == "unknown" and report.finding
    assert report.to_json()["verdict_of_part"] == report.of_part == "differs"
    assert report.to_json()["comparisons"][0]["first"] == "conv"
    part.save(tmp_path / "part.json")
    words = ["--network", tmp_path / "part.json", "--length", 2, "--target", SWITCHES, "--times", 1]
    text = run("reproduce", *words, "--kernels", "none", "--out", tmp_path / "report")
    assert text.splitlines()[0].startswith("layer 1 of 3; the layers from `add` on")
    text = run("network", tmp_path / "part.json", "--lengths", 2, "--target", SWITCHES)
    assert text.startswith("network: layer 1 of 3; the layers from `add` on are not examined")
    assert "whether the outputs of the whole model differ is unknown" in " ".join(text.split())


def test_the_pictures_name_a_part():
    import matplotlib.pyplot as plt
    import pandas as pd

    figure, axes = plt.subplots()
    rows = pd.DataFrame({"content": [1, 2], "least": [3, 4], "safe": [3, 5]})
    pictures.padding_steps(axes, rows, part="layers 1 to 3 of 7; what follows is not judged")
    assert "part of a model: layers 1 to 3 of 7" in axes.get_title(loc="left")
    pictures.padding_steps(axes, rows, part=float("nan"))  # null in a stored table
    plt.close(figure)


@pytest.mark.slow
def test_a_chain_that_is_the_whole_model_is_judged_as_before(tmp_path, run):
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Conv1d(3, 4, 3), torch.nn.Dropout(), torch.nn.ReLU())
    found = Network.load(module.eval())
    assert (found.part, found.examined, found.operations_total) == ("", 3, 3)
    found.save(tmp_path / "model.json")
    words = [tmp_path / "model.json", "--target", "reference", "--lengths", "4", "--fixed", "48"]
    told = json.loads(run("network", *words, "--json", "--fail-on", "finding"))
    assert told["verdict"] == "equal" and told["targets"]["reference"]["plan"]["stretches"]
    assert "no remedy is needed" in run("remedies", *words, "--only", "pad", "--fail-on", "finding")


def test_outputs_and_names_do_not_deceive_a_reader():
    torch = pytest.importorskip("torch")
    nn = torch.nn

    class Conv1d(nn.Conv1d):  # PyTorch's name, and another computation
        def forward(self, x):
            return super().forward(x - x.mean())

    class Doubled(nn.Sequential):
        def forward(self, x):
            return 2 * super().forward(x)

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv1d(3, 4, 3)

        def forward(self, x):
            y = torch.relu(self.conv(x))
            return y, self.conv.weight

    class Drops(Two):
        def forward(self, x):
            return torch.nn.functional.dropout(self.conv(x), 0.5)

    conv = nn.Conv1d(3, 4, 3)
    hooked = nn.Conv1d(4, 4, 3)
    hooked.register_forward_hook(lambda module, given, out: 2 * out)
    for model, stop, examined in (
        (nn.Sequential(conv, Conv1d(4, 4, 3)), "1", 1),
        (nn.Sequential(conv, Doubled(nn.Conv1d(4, 4, 3))), "1.mul", 2),
        (nn.Sequential(conv, hooked), "1", 1),
        (Two(), "output", 2),
        (Drops(), "dropout", 1),
    ):
        found = Network.load(model.eval())
        assert found.suffix is not None, stop
        assert (found.suffix.name, found.examined) == (stop, examined)


def test_a_keras_model_with_two_outputs_or_layers_of_the_users_is_read_in_part():
    keras = pytest.importorskip("keras")
    layers = keras.layers

    class Conv1D(layers.Conv1D):
        def call(self, x):
            return 2 * super().call(x)

    entry = keras.Input((48, 3))
    a = layers.Conv1D(4, 3, name="a")(entry)
    b = layers.Conv1D(4, 3, name="b")(a)
    found = Network.load(keras.Model(entry, [a, b]))
    assert found.suffix.name == "a" and "a second output" in found.part
    found = Network.load(keras.Model(entry, Conv1D(2, 3, name="own")(a)))
    assert found.suffix.name == "own" and "custom class" in found.suffix.why


def test_what_keras_computes_beside_its_layers_ends_the_chain():
    """``model.layers`` is silent about operations on tensors: a model that ended in one was called
    safe without it, and of a model with two outputs inside another the last one was taken."""
    keras = pytest.importorskip("keras")
    layers = keras.layers
    entry = keras.Input((48, 3))
    a = layers.Conv1D(4, 3, name="a")(entry)
    inner = keras.Model(entry, [a, layers.Conv1D(4, 3, name="b")(a)])
    other = keras.Input((48, 3))
    scaled = keras.Model(entry, a - keras.ops.mean(a, axis=1, keepdims=True))
    normal = layers.BatchNormalization(name="norm")(a, training=True)

    def relu(x):
        return 2 * x

    for model, why, examined in (
        (keras.Model(entry, a * 2.0), "is not supported", 1),
        (scaled, "is not supported", 1),
        (keras.Model(other, keras.Model(entry, a * 2.0)(other)), "is not supported", 1),
        (keras.Model(other, layers.ReLU()(inner(other)[0])), "a second output", 2),
        (keras.Model(entry, normal), "training=True", 1),
        (keras.Sequential([entry, layers.Conv1D(4, 3, activation=relu)]), "custom function", 0),
    ):
        found = Network.load(model)
        assert found.suffix is not None and why in found.suffix.why, why
        assert found.examined == examined
        assert found.operations_total > examined or why == "a second output"


def test_names_that_mean_something_else_end_a_chain():
    pytest.importorskip("onnx")
    torch = pytest.importorskip("torch")
    from onnx import TensorProto, helper, numpy_helper

    def model(opset, kind, domain="", **words):
        given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 48])
        gives = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 46])
        weights = numpy_helper.from_array(np.ones((4, 3, 3), np.float32), "w")
        last = helper.make_node(kind, ["h"], ["y"], name="last", domain=domain, **words)
        nodes = [helper.make_node("Conv", ["x", "w"], ["h"]), last]
        graph = helper.make_graph(nodes, "g", [given], [gives], [weights])
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])

    assert Network.load(model(17, "Relu")).suffix is None
    assert "custom class" in Network.load(model(17, "Relu", domain="mine")).suffix.why
    assert Network.load(model(17, "Softmax", axis=1)).suffix is None
    for words in ({"axis": 1}, {}):  # all axes from this one on
        assert Network.load(model(11, "Softmax", **words)).suffix.name == "last"
    patched = torch.nn.Conv1d(4, 4, 3)
    patched.forward = lambda x: 2 * x
    found = Network.load(torch.nn.Sequential(torch.nn.Conv1d(3, 4, 3), patched))
    assert found.suffix.name == "1"


def test_three_lines_in_python_do_not_call_a_part_exact_or_equal():
    model = onnx_model()
    examined = probe.network(model, SWITCHES, fixed=24, lengths=[2], safe=False)
    assert "; the layers from `sum` on are not examined" in repr(examined).splitlines()[0]
    assert f"{SWITCHES}: unknown; in the part:" in repr(examined).splitlines()[1]
    found = repr(probe.remedies(model, [2], SWITCHES, fixed=24, only=["pad"])).splitlines()
    assert "are not examined" in found[0] and "exact" not in found[1]
