"""What is run: found by what it returns or by its ending, refused in one line."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from probe.case.errors import InputError, TargetError
from probe.record import RECORDERS, subject
from probe.record.store import array_digest
from probe.ui.answers.first_difference import first_difference
from tests.record.taped import network, normal

X = normal(2, 8)


def test_a_recorder_is_itself():
    one = network(X)
    assert subject.function_recorder(one) is one and subject.open_model(one).recorder({}) is one


def test_the_library_is_that_of_the_first_array(monkeypatch):
    made = type("Tensor", (), {"__module__": "torch"})
    monkeypatch.setattr(subject, "recorders", Named)
    found = subject.function_recorder(lambda: {"hidden": [None, made()], "loss": 3})
    assert (found.name, found.plain_digests) == ("torch", [array_digest(X)])


class Named:
    """Stands for a library's module, and for its recorders."""

    def __init__(self, name):
        self.name = name

    def RECORDER(self, function):  # noqa: N802
        return Named(self.name)

    def plain(self):
        return [X]


REFUSED = {
    "an argument": (lambda x: x, "it takes x; give a function of no arguments"),
    "numpy": (lambda: X, "function=ndarray: it returns NumPy arrays"),
    "a number": (lambda: 3, "function=int: it returns no array of a library"),
    "nothing": (list, "function=nothing: it returns no array"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_functions_that_cannot_be_watched_are_refused(name):
    function, why = REFUSED[name]
    with pytest.raises(InputError, match=why):
        subject.function_recorder(function)


def test_what_cannot_be_called_is_refused():
    with pytest.raises(InputError, match="it can't be called"):
        subject.function_recorder(3)
    with pytest.raises(InputError, match="is neither a model nor a function nor a file"):
        subject.open_model(3)


def test_files_are_known_by_their_ending(tmp_path):
    (tmp_path / "saved_model.pb").write_bytes(b"")
    assert subject.library_of(tmp_path) == "tensorflow"
    for name, library in (("a.onnx", "onnxruntime"), ("a.KERAS", "tensorflow"), ("a.pt2", "torch")):
        (tmp_path / name).write_bytes(b"")
        assert subject.library_of(tmp_path / name) == library
        assert library in RECORDERS
    (tmp_path / "a.xyz").write_bytes(b"")
    for name, why in (("a.xyz", "unsupported file type .xyz"), ("b.onnx", "there is no such file")):
        with pytest.raises(InputError, match=why):
            subject.library_of(tmp_path / name)


@pytest.fixture
def module(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "given_model.py").write_text(
        "import numpy as np\n"
        "def works(a, b=1): return a\n"
        "def raises(): raise ValueError('line one\\nline two')\n"
        "class Inner:\n    number = 3\n"
    )
    (tmp_path / "broken_model.py").write_text("1 / 0\n")
    path = list(sys.path)
    yield
    sys.path[:] = path
    sys.modules.pop("given_model", None)


def test_functions_are_found_in_the_current_folder(module):
    assert subject.is_function("given_model:works") and not subject.is_function("given_model.py")
    assert subject.open_model("given_model:works").inputs == ()
    with pytest.raises(
        InputError, match="it takes a, b, and 0 are given.*give an array for each.*inputs=.FILE.npz"
    ):
        subject.open_model("given_model:works").recorder({})
    with pytest.raises(InputError, match="returns NumPy arrays"):
        subject.open_model("given_model:works").recorder({"x": np.ones(2)}).record(
            lambda event: None
        )


def test_plain_numpy_is_watched_where_it_takes_its_arrays():
    made = subject.open_model(lambda a: np.maximum(a @ np.ones((8, 3), np.float32), 0)).recorder(
        {"x": X}
    )
    names = []
    made.record(lambda event: names.append(event.op))
    assert len(names) == 2 and made.target == "numpy"


def test_what_a_named_function_raises_is_one_line(module):
    with pytest.raises(TargetError, match="given_model:raises: error: ValueError: line one line"):
        subject.open_model("given_model:raises").recorder({})


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("given_model:nothing", "AttributeError: module 'given_model' has no attribute"),
        ("no_such_model:f", "ModuleNotFoundError: No module named 'no_such_model'"),
        ("broken_model:f", "ZeroDivisionError: division by zero"),
        ("given_model:Inner.number", "int is neither a model nor a function nor a file"),
    ],
)
def test_names_that_lead_nowhere_are_one_line(module, text, why):
    with pytest.raises(InputError, match=why):
        subject.open_model(text)


TWISTED = """
import torch

calls = []


def late(x):
    calls.append(x)
    if len(calls) > 1:
        raise RuntimeError("the second call")
    return torch.as_tensor(x)


def leaves(x):
    raise SystemExit(5)
"""


@pytest.mark.parametrize(
    ("name", "why"), [("late", "RuntimeError: the second call"), ("leaves", "SystemExit: 5")]
)
def test_what_fails_later_or_ends_python_is_one_line(tmp_path, monkeypatch, name, why):
    (tmp_path / "twisted_.py").write_text(TWISTED)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "twisted_", raising=False)
    opened = subject.open_model(f"twisted_:{name}")
    with pytest.raises(TargetError, match=why):
        opened.recorder({"x": np.ones(2, np.float32)}).record(lambda event: None)


@pytest.mark.parametrize(
    ("library", "module", "command"),
    [
        ("litert", "ai_edge_litert", "pip install ai-edge-litert"),
        ("onnxruntime", "onnxruntime", "pip install onnx onnxruntime"),
        ("opencv", "onnx", "pip install onnx"),
        ("torch", "torch", "pip install torch"),
    ],
)
def test_a_library_that_is_missing_is_named_as_pip_knows_it(library, module, command, monkeypatch):
    def lacks(name):
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr(subject, "import_module", lacks)
    with pytest.raises(InputError) as caught:
        subject.recorders(library)
    assert str(caught.value) == f"library={library}: {module} is not installed; run {command}"


def test_what_is_no_file_of_a_model_says_what_it_is(tmp_path):
    with pytest.raises(InputError, match="the folder has no saved_model.pb"):
        subject.library_of(tmp_path)
    (tmp_path / "net.py").touch()
    with pytest.raises(InputError, match="as Python imports it: net:NAME"):
        subject.library_of(tmp_path / "net.py")


def test_a_call_that_fails_says_what_it_was_called_with(tmp_path, monkeypatch):
    text = "def f(x):\n    raise TypeError('must be Tensor, not numpy.ndarray')\n"
    (tmp_path / "of_tensors.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(TargetError) as caught:
        subject.open_model("of_tensors:f").recorder({"x": X.astype(np.float32)})
    assert "called with ndarray float32 [2, 8]; check shape and dtype" in str(caught.value)
    assert "torch.from_numpy(x), or name the module" in str(caught.value)


def test_arrays_are_a_functions_arguments_by_their_names():
    seen = []

    def function(x, y=None, z=None):
        seen.append((x, y, z))
        return np.add(x, z)

    one = subject.FunctionSubject(function).recorder({"z": X + 1, "x": X})
    assert seen[0][0] is X and seen[0][1] is None and np.array_equal(one.plain()[0], X + (X + 1))
    assert one.note == ""
    other = subject.FunctionSubject(function).recorder({"a": X, "b": X, "z": X})
    assert other.note == "of the inputs, a is taken for x, b is taken for y, by their order"


class Looks:
    """A model that looks into a table."""

    def __call__(self, ids, scale):
        return np.multiply(X[ids], scale)


CALLED = {
    "a class": (Looks, {}, "model=Looks: it is a class, not a model; make a model of it"),
    "none taken": (lambda: 1.0, {"x": X}, "it takes none, and 1 are given"),
    "one too few": (Looks(), {"ids": X}, "it takes ids, scale, and 1 are given.*'scale'"),
    "one too many": (lambda x: x, {"x": X, "y": X}, "it takes x, and 2 are given"),
}


@pytest.mark.parametrize("name", CALLED)
def test_what_is_called_wrongly_is_the_users_mistake_in_one_line(name):
    model, arrays, why = CALLED[name]
    with pytest.raises(InputError, match=why):
        subject.open_model(model).recorder(arrays)


@pytest.mark.parametrize(
    ("left", "right", "said"),
    [
        ((X, "a"), (X, "b"), "beside the arrays it returns 'a' on the left and 'b' on the right"),
        ((X,), [X, b"b"], "beside the arrays it returns nothing on the left and b'b' on the right"),
        ({"a": X}, {"b": X}, "the outputs are a on the left and b on the right"),
        (
            {"a": X, "in": {"b": X}},
            {"a": X, "in": {"c": X}},
            "the outputs are a, in.b on the left and a, in.c on the right",
        ),
        ({"a": X}, [X], ""),  # by their order
        ((X, None, "a"), (X, None, "a"), ""),
    ],
)
def test_names_and_texts_beside_arrays_are_never_equal_if_they_differ(left, right, said):
    found = first_difference(
        lambda x: _with(left, x * 2), lambda x: _with(right, x * 2), inputs=(X,)
    )
    assert (found.verdict, found.found.incomplete) == ("unknown" if said else "equal", said)


def _with(value, array):
    """The same nest of returned values with an array that was computed."""
    if isinstance(value, dict):
        return {name: _with(part, array) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_with(part, array) for part in value]
    return array if isinstance(value, np.ndarray) else value
