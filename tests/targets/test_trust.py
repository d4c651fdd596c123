"""Model files of strangers: what runs code of its own is refused unless it is trusted."""

import json
import os
import pickle
import sys
import zipfile

import pytest

from probe.case import memory
from probe.case.errors import InputError
from probe.record.inputs import read_inputs
from probe.record.subject import open_model
from probe.targets import trust as files
from probe.ui.cli import shell

pytestmark = [pytest.mark.filterwarnings("ignore::DeprecationWarning"), pytest.mark.long]

COMMANDS = {
    "network": ["fix", "padding", "{model}", "--fixed", "32", "--lengths", "4"],
    "remedies": ["fix", "{model}", "--fixed", "32", "--lengths", "4"],
}


class Creates:
    """What a pickle of it does when it is read: it makes a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def refusal(source, **more):
    with pytest.raises(InputError) as caught:
        open_model(source, **more)
    assert "\n" not in str(caught.value) and str(caught.value).startswith(f"network={source}: ")
    return str(caught.value)


def run(words, capsys):
    status = shell.run(words)
    return status, capsys.readouterr().err


def malicious(folder, kind):
    """A file that makes ``folder / "made"`` when it is read, and what of it is told."""
    marker, path = folder / "made", folder / "model.pt"
    torch = pytest.importorskip("torch")
    if kind == "plain":
        path.write_bytes(pickle.dumps(Creates(marker), protocol=2))
    elif kind == "protocol 4":
        path.write_bytes(pickle.dumps({"weights": Creates(marker)}, protocol=4))
    else:
        zipped = kind == "zip"
        torch.save([Creates(marker)], path, _use_new_zipfile_serialization=zipped)
    return path, marker


@pytest.mark.parametrize("kind", ["plain", "protocol 4", "zip", "before 1.6"])
def test_a_malicious_pickle_does_nothing_without_trust(tmp_path, kind):
    path, marker = malicious(tmp_path, kind)
    said = refusal(path)
    assert "mkdir" in said and "runs code" in said and "trust=True" in said
    assert not marker.exists()
    refusal(path, trust=True)  # it holds no model; but now its code has run
    assert marker.exists()


@pytest.mark.parametrize("trusted", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_every_command_needs_trust_for_a_pickled_module(tmp_path, trusted, capsys):
    torch = pytest.importorskip("torch")
    path = tmp_path / "model.pt"
    torch.save(torch.nn.Sequential(torch.nn.Conv1d(2, 3, 3)), path)
    for command in COMMANDS.values():
        words = [word.format(model=path) for word in command]
        words += ["--target", "torch", "--shape", "input=1x2x32", *["--trust"] * trusted]
        status, error = run(words, capsys)
        if trusted:
            assert status == 0, error
        else:
            assert status == 2 and error.count("\n") == 1
            assert "torch.nn.modules.container.Sequential" in error and "--trust" in error


def test_weights_torchscript_and_exported_programs_are_refused_for_what_they_are(tmp_path):
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Conv1d(2, 3, 3), torch.nn.BatchNorm1d(3)).eval()
    path = tmp_path / "model.pt"
    for held in (module.state_dict(), {"model": module.half().state_dict(), "epoch": 3}):
        for zipped in (True, False):
            torch.save(held, path, _use_new_zipfile_serialization=zipped)
            for trust in (True, False):
                assert "weights alone do not define an architecture" in refusal(path, trust=trust)
    module = module.float()
    torch.jit.save(torch.jit.trace(module, torch.zeros(1, 2, 9)), path)
    assert "TorchScript" in refusal(path)
    program = torch.export.export(module, (torch.zeros(1, 2, 9),))
    torch.export.save(program, tmp_path / "model.pt2")
    (tmp_path / "renamed.pt").write_bytes((tmp_path / "model.pt2").read_bytes())
    for name in ("model.pt2", "renamed.pt"):
        assert "evaluates expressions that the file holds" in refusal(tmp_path / name)
        assert open_model(tmp_path / name, trust=True).inputs


def test_what_a_pickle_names_is_looked_up_nowhere(tmp_path, monkeypatch):
    path = tmp_path / "model.pt"
    path.write_bytes(b"cno_such_package.sub\nNet\n(tR.")
    assert "no_such_package.sub.Net" in refusal(path)
    path.write_bytes(b"c\x1b[31mred\nNet\n(tR.")  # no escape sequences on the user's screen
    assert "\x1b" not in refusal(path)


def own_loss(wanted, given):
    return wanted - given


def lambda_model(layers, keras):
    twice = layers.Lambda(lambda x: 2 * x, name="twice")
    return keras.Sequential([keras.Input((32, 2)), layers.Conv1D(3, 3), twice])


@pytest.mark.parametrize("ending", ["keras", pytest.param("h5", marks=pytest.mark.slow)])
def test_a_lambda_layer_needs_trust(tmp_path, ending, capsys):
    keras = pytest.importorskip("keras")
    path = tmp_path / f"model.{ending}"
    lambda_model(keras.layers, keras).save(path)
    said = refusal(path)
    assert "layer twice is a " in said and "Lambda" in said and "trust=True" in said
    for words in COMMANDS.values():
        words = [word.format(model=path) for word in words] + ["--target", "reference"]
        status, error = run(words, capsys)
        assert status == 2 and "layer twice" in error and error.count("\n") == 1
    assert open_model(path, trust=True).inputs[0].shape == (None, 32, 2)


def test_classes_of_the_users_need_trust_and_are_imported_with_it(tmp_path, monkeypatch):
    keras = pytest.importorskip("keras")
    (tmp_path / "of_mine.py").write_text(
        "import keras, pathlib\n"
        f"pathlib.Path({str(tmp_path / 'made')!r}).touch()\n"
        "@keras.saving.register_keras_serializable('Mine')\n"
        "class Own(keras.layers.Layer):\n"
        "    def call(self, x):\n"
        "        return x\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    import of_mine

    parts = [keras.Input((32, 2)), keras.layers.Conv1D(3, 3), of_mine.Own(name="own")]
    model = keras.Sequential(parts)
    for ending in ("keras", "h5"):
        model.save(tmp_path / f"model.{ending}")
    monkeypatch.delitem(sys.modules, "of_mine")
    keras.saving.get_custom_objects().clear()
    (tmp_path / "made").unlink()
    for ending in ("keras", "h5"):
        assert "layer own is a " in refusal(tmp_path / f"model.{ending}")
    assert not (tmp_path / "made").exists()  # the module that the file names was not imported
    assert open_model(tmp_path / "model.keras", trust=True).inputs
    assert (tmp_path / "made").exists()


def test_keras_files_of_keras_own_layers_need_no_trust(tmp_path):
    keras = pytest.importorskip("keras")
    layers = keras.layers
    entry = keras.Input((32, 2))
    x = layers.Conv1D(3, 3, activation="relu", kernel_regularizer="l2")(entry)
    x = layers.BatchNormalization(gamma_initializer="ones")(x)
    x = keras.Sequential([layers.Dense(4, activation=keras.ops.tanh)], name="inner")(x)
    model = keras.Model(entry, layers.Add()([x, layers.Activation("gelu")(x)]))
    model.compile("adam", loss=own_loss)  # for training, which is not read
    for ending in ("keras", "h5"):
        model.save(tmp_path / f"model.{ending}")
        assert open_model(tmp_path / f"model.{ending}").inputs[0].shape == (None, 32, 2)


def test_a_class_is_looked_at_wherever_a_file_hides_it():
    inner = {"class_name": "system", "module": "os", "config": "x", "registered_name": None}
    layer = {"class_name": "Dense", "module": "keras.layers", "config": {"name": "d"}}
    layer["config"]["activation"] = [inner]
    config = {"class_name": "Sequential", "module": "keras", "config": {"layers": [layer]}}
    found = [one for one in files._named_classes(config, "") if one.holds_code]
    assert [(one.layer, one.module, one.name) for one in found] == [("d", "os", "system")]
    weird = {"class_name": "f", "module": "kerasx.layers", "config": {}}
    assert files.NamedClass("", "f", weird["module"], "").holds_code


ENDINGS = ("keras", "h5", "hdf5", "pt", "pth", "onnx", "json")
GARBAGE = {
    "empty": b"",
    "text": b"this is no model",
    "zeros": bytes(300),
    "zip": None,
    "json": b'{"class_name": 3, "layers": [1]}',
    "list": b"[[[]]]",
    "pickled list": pickle.dumps([1, 2]),
}


def refused_in_one_line(path, what, capsys):
    for more in ([], ["--trust"]):
        words = ["fix", "padding", str(path), "--fixed", "9", "--target", "reference", *more]
        status, error = run(words, capsys)
        assert (status, error.count("\n")) == (2, 1), (path.name, what, more, error)
        assert "File not found" not in error and "mistake of probe's" not in error


@pytest.mark.parametrize("ending", ENDINGS)
def test_odd_files_are_one_line_whatever_their_ending(tmp_path, ending, capsys):
    if ending in ("keras", "h5", "hdf5"):
        pytest.importorskip("keras")
    library = {"onnx": "onnx", "pt": "torch", "pth": "torch"}.get(ending)
    if library:
        pytest.importorskip(library)
    for name, content in GARBAGE.items():
        path = tmp_path / f"model.{ending}"
        if content is None:
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("config.json", json.dumps({"a": [{"class_name": None}]}))
                archive.writestr("archive/data.pkl", b"\x80\x02(")
        else:
            path.write_bytes(content)
        refused_in_one_line(path, name, capsys)


@pytest.mark.parametrize(
    "body",
    [
        b"\x8c\x02os0\x8c\x05torch\x8c\x04Size\x93.",  # what is popped before names is not on top
        b"\x8c\x05torch\x8c\x04Size2\x93.",  # the top one twice
        b"\x8c\x02os\x94\x8c\x06system\x94h\x00h\x01\x93.",  # out of the memo
        b"\x82\x01.",  # registered for copyreg
        b"(ios\nsystem\n.",
    ],
)
def test_a_name_that_is_hidden_needs_trust(tmp_path, body):
    path = tmp_path / "model.pt"
    path.write_bytes(b"\x80\x04" + body)
    (named,) = files._pickled_names(path)
    assert named == "torch.Size" if b"os0" in body else named in (files.COMPUTED, "os.system")
    assert "os0" in str(body) or "runs code that it names" in refusal(path)


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        ({"units": 1 << 50}, "units=1125899906842624: it needs 1024 TiB"),
        ({"padding": [[0, 1 << 20], [1 << 29, 1 << 29]]}, "padding=.*: it needs 1024 TiB"),
        ({"size": [1 << 20, 1 << 30], "padding": "same"}, "size=.*: it needs 1024 TiB"),
    ],
    ids=["units", "padding", "size"],
)
def test_a_layer_that_no_memory_holds_is_refused_before_it_is_made(tmp_path, layer, said):
    config = {"class_name": "Sequential", "config": {"layers": [{"config": layer}]}}
    with zipfile.ZipFile(tmp_path / "m.keras", "w") as archive:
        archive.writestr("config.json", json.dumps(config))
    with pytest.raises(InputError, match=said):
        files.check_keras(tmp_path / "m.keras", trust=True)


def test_archives_that_unpack_to_gigabytes_are_not_read(tmp_path, monkeypatch):
    """Eight gigabytes of spaces take eight megabytes: reading them took the machine's memory."""
    monkeypatch.setattr(memory, "UNPACKED", 1 << 20)
    members = {"m.keras": "config.json", "m.pt": "m/data.pkl", "x.npz": "x.npy"}
    for name, member in members.items():
        with zipfile.ZipFile(tmp_path / name, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(member, b" " * (1 << 22))
        path = tmp_path / name
        opens = read_inputs if path.suffix == ".npz" else open_model
        with pytest.raises(InputError, match=r"it unpacks to 4.0 MiB, [0-9,]+ times its size"):
            opens(path)
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "m.h5", "w") as file:
        file.create_dataset("w", (1 << 20,), "f4", compression="gzip", fillvalue=0)
    with pytest.raises(InputError, match="it unpacks to 4.0 MiB"):
        open_model(tmp_path / "m.h5")
    with zipfile.ZipFile(tmp_path / "w.keras", "w") as archive:
        archive.writestr("config.json", "{}")
        archive.write(tmp_path / "m.h5", "model.weights.h5")
    with pytest.raises(InputError, match="it unpacks to 4.0 MiB"):
        open_model(tmp_path / "w.keras")
