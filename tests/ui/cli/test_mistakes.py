"""Mistakes that people make, and the one line that each is answered with.

In Python the line names arguments, on the command line options.
"""

import os
import re

import numpy as np
import pytest

import probe
from probe.case.errors import ProbeError
from probe.ui.cli import shell

CASE = {"op": "conv1d", "kernel": 5}


def case(**more):
    return probe.Case(**{**CASE, **more})


def layer():
    return pytest.importorskip("torch").nn.Linear(3, 2)


def whole_windows():
    torch = pytest.importorskip("torch")
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 2)).eval()


def padded():
    x = np.ones((2, 4, 3), np.float32)
    x[1, 3:] = 0
    return x


PYTHON = {
    "a model for a function": (
        lambda: probe.first_difference(layer(), layer()),
        "function=Linear: it takes input; give a function of no arguments: lambda: model.x.",
    ),
    "a tensor for a function": (
        lambda: probe.first_difference(np.ones(3), np.ones(3)),
        "function=ndarray: it can't be called; give a function of no arguments",
    ),
    "a function that takes something": (
        lambda: probe.first_difference(lambda x: x, lambda x: x),
        "function=<lambda>: it takes x; give a function of no arguments",
    ),
    "one length": (
        lambda: probe.sweep(case(), 40, "numpy"),
        r"lengths=40: one length has nothing.*; write range\(1, 41\) or \[1, 40\]",
    ),
    "another library's word for channels": (
        lambda: case(channels=3),
        "channels=3: there is no such argument of a case; did you mean in_channels",
    ),
    "a case of nothing": (probe.Case, r'op=.none.: it is required; write Case\("conv1d"'),
    "a short name of a format": (
        lambda: case(dtype="fp32"),
        "dtype=fp32: unknown; did you mean float32",
    ),
    "a short name of a library": (
        lambda: probe.order(case(length=9), "tf"),
        "target=tf: there is no such library; did you mean tensorflow",
    ),
    "nothing to compare with": (
        lambda: probe.explain(case(), "numpy"),
        "against=.none.: there is nothing to compare with; give against=B, against_target=U",
    ),
    "a function without how many it adds": (
        lambda: probe.order(sum),
        r"n=.none.: .*write probe.order\(f, 9\)",
    ),
    "a text for a case": (
        lambda: probe.thresholds("conv1d"),
        "case=str: an object of this class is not a probe.Case",
    ),
    "a model without inputs": (
        lambda: probe.network(layer(), vary="batch", at=1, against=8),
        r'inputs=.none.: .*give inputs="FILE.npz", or shapes=\{"": \(8, 64\)\}',
    ),
    "a folder that isn't there": (lambda: probe.load("nowhere"), "path=nowhere: there is no such"),
    "no recording": (
        lambda: probe.diff("a", "b"),
        "recording=a: there is no recording.json in it.*make one with probe record",
    ),
    "nothing for a model": (lambda: probe.examine(None), "model=NoneType: .*give a file"),
    "a name of the hub for a model": (
        lambda: probe.examine("resnet50"),
        "model=resnet50: there is no such file; give a file",
    ),
    "an argument that there isn't": (
        lambda: probe.examine(layer(), np.ones((2, 3)), agianst=2),
        "agianst=2: probe.examine takes no such argument; did you mean against",
    ),
    "arguments the wrong way round": (
        lambda: probe.explain("torch", case(), 5, 9),
        "target=Case: an object of this class is not a target; give a text",
    ),
    "switches in a target's name": (
        lambda: probe.Target("torch,threads=2"),
        r'write probe.Target.parse\("torch,threads=2"\)',
    ),
    "nested lists for an array": (
        lambda: probe.examine(layer(), [[1.0, 2.0, 3.0]] * 4),
        "it takes input, and 4 are given.*a list is several inputs",
    ),
    "text for numbers": (
        lambda: probe.examine(layer(), np.array([["a"] * 3] * 2)),
        "inputs=input: PyTorch has no tensors of <U1",
    ),
    "a batch of none": (
        lambda: probe.examine(layer(), np.ones((0, 3), np.float32)),
        "inputs=input0: they are empty; give 2 samples or more",
    ),
    "padding of a model of one length": (
        lambda: probe.examine(whole_windows(), padded(), ask="padding"),
        "ask=padding: the model has a fixed length: it runs as given, and at 3 raises Runtime.*"
        "cannot be multiplied.*ask about the batch",
    ),
    "no length": (
        lambda: probe.order(case(), "numpy"),
        "length=None: the order depends",
    ),
    "a range that is none": (
        lambda: probe.sweep(case(), "5..x"),
        r"lengths=5..x: '5..x' is not a number or a range",
    ),
    "a padded model of two sizes": (
        lambda: probe.network(sum, vary="batch", at=1, fixed=8),
        "fixed=8: it compares padded",
    ),
    "kernels of no kind": (
        lambda: probe.explain(case(), "numpy", 5, 9, kernels="every"),
        "kernels=every: unknown",
    ),
    "a report of nothing": (
        lambda: probe.reproduce(case(), "numpy", 9, out="x"),
        "against=.none.: there is nothing",
    ),
    "a dictionary for a model": (
        lambda: probe.network({"rank": 1}, "reference"),
        "model=dict: dict is neither a model",
    ),
    "no target": (
        lambda: probe.sweep(case(), [5, 9], None),
        "target=NoneType: .*is not a target",
    ),
    "a model's size for a case": (
        lambda: probe.remedies(case(), [5, 9], "reference", fixed=9),
        "fixed=9: it is for a model",
    ),
    "a model's trust for a case": (
        lambda: probe.remedies(case(), [5, 9], "reference", trust=True),
        "trust=True: it is for a model",
    ),
    "a sum that gives no number": (
        lambda: probe.order(lambda x: None, 9),
        "NoneType, not a number",
    ),
    "a text for how many": (lambda: probe.order(np.sum, "9"), "'9'"),
    "a length that a model has not": (
        lambda: probe.network(whole_windows(), vary="length", at=3, inputs=padded()),
        "vary=length: the model has a fixed length.*at 3 raises RuntimeError",
    ),
}

COMMANDS = {
    "a Python file": (
        "thing.py",
        "command=thing.py: .*named as Python imports it: probe thing:NAME",
    ),
    "a module": ("thing", "command=thing: .*probe thing:NAME"),
    "a model that isn't there": ("no.onnx", "model=no.onnx: there is no such file; give a file"),
    "a function that isn't there": ("thing:no", "model=thing:no: .*as Python imports it"),
    "one recording": ("diff run", "against=.none.: there is nothing to compare with; give --vary"),
    "no inputs": ("thing:f", "inputs=.none.: .*give --inputs FILE.npz, or --shape 8x64"),
    "a value put beyond both lengths": (
        "explain --op conv1d --kernel 3 --at 8 --against 12 --put x[0,50]=nan --target numpy",
        r"put=x\[0, 50\]=nan: x\[0, 50\] is beyond x, whose shape is \[1, 12, 1\]; indices begin",
    ),
    "a length of rows": (
        "explain --op dense --in-channels 8 --length 5 --against 9",
        "length=5: dense has no length",
    ),
    "a time without a unit": ("thing:f --shape 4x3 --time 5", "time=5: .*write 90s, 30m"),
    "a dot for a colon": ("thing.f", "Python imports it: probe thing:f"),
    "a folder": (
        "folder",
        "command=folder: it is a folder without saved_model.pb; use",
    ),
    "a file of another kind": ("notes.txt", "it is a file of no known model format; use one of"),
    "a shape with commas": ("thing:f --shape 4,3", "shape=4,3: it is not a shape; write 8x64"),
    "sizes reversed": (
        "diff thing:f --shape 4x3 --vary batch --at 4 --against 1",
        "at=4: the other side has 1; give the smaller as --at",
    ),
    "a file for a folder": ("thing:f --shape 4x3 --report notes.txt", "report=notes.txt: it is a"),
    "no store": ("results merge folder --out x", "path=folder: there are no stored results"),
    "any file for inputs": ("thing:f --inputs notes.txt", "it is not a file of NumPy's"),
    "a question that isn't one": ("thing:f --shape 4x3 --ask rows", "ask=rows: .*batch"),
}


@pytest.mark.parametrize("name", PYTHON)
def test_a_mistake_in_python_is_one_line_in_its_words(name):
    ask, message = PYTHON[name]
    with pytest.raises(ProbeError, match=message) as caught:
        ask()
    told = str(caught.value)
    assert "\n" not in told and " --" not in told


@pytest.mark.parametrize("name", COMMANDS)
def test_a_mistake_on_the_command_line_is_one_line_in_its_words(
    name, capsys, tmp_path, monkeypatch
):
    words, message = COMMANDS[name]
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(os.fspath(tmp_path))
    (tmp_path / "folder").mkdir()
    (tmp_path / "notes.txt").write_text("none")
    (tmp_path / "thing.py").write_text("def f(x):\n    return x\n")
    assert shell.run(words.split()) in (2, 3)
    out, err = capsys.readouterr()
    said = [line for line in err.splitlines() if line.startswith("probe: ")]
    assert len(said) == 1 and not out
    assert re.search(message, said[0]), said[0]
