"""Model files of PyTorch: exported programs, TorchScript, pickled modules. All of them are code.

A pickle calls whatever it names. Reading an exported program evaluates its expressions of sizes
(SymPy's ``sympify``, which is Python's ``eval``: a file that makes a folder when it is read takes
one edited line), and falls back to plain pickles for what it holds besides. TorchScript can open
and write files (``torch.from_file``). PyTorch's documentation says of each: never from a stranger.
So none is opened without ``trust``. Seen with PyTorch 2.13.
"""

from __future__ import annotations

import copy
import inspect
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from probe.errors import InputError
from probe.recorders.torch_tensors import array, tensors
from probe.recording.contract import Input

Make = Callable[[Callable[[], Any]], Any]
ENDINGS = (".pt2", ".pt", ".pth", ".jit", ".ts")
STATE = "every run starts with a fresh copy of the model, which keeps a state"
TRUST = "if you trust where it comes from, give --trust (Python: trust=True)"
AGAIN = "save the model again, with torch.export.save, torch.jit.save or torch.save(module)"


class Opened:
    """A model of a file. ``inputs``: by name; TorchScript and a pickled module say nothing of
    shapes and formats: then ``shape`` is empty and ``dtype`` is ``""``.
    """

    def __init__(self, path: Path, model: Callable[..., Any], inputs: tuple[Input, ...]) -> None:
        self.path, self.model, self.inputs = path, model, inputs
        self.make: Make
        self.needed = {one.name for one in inputs}
        self.scalars: dict[str, type] = {}

    def recorder(self, arrays: Mapping[str, np.ndarray]) -> Any:
        """Returns a recorder of the model with these inputs. InputError where they don't fit."""
        self._check(arrays)
        names = [one.name for one in self.inputs if one.name in arrays]
        given = {name: self._argument(name, arrays[name]) for name in names}
        stateful = self._stateful(given)

        def run() -> Any:
            model = copy.deepcopy(self.model) if stateful else self.model
            return model(**given) if len(given) > 1 or not names else model(*given.values())

        recorder = self.make(run)
        recorder.note = STATE if stateful else ""
        return recorder

    def _check(self, arrays: Mapping[str, np.ndarray]) -> None:
        known = {one.name: one for one in self.inputs}
        for name in arrays:
            if name not in known:
                todo = f"its inputs are {', '.join(known)}"
                raise InputError("inputs", name, f"{self.path.name} has no such input", todo)
        for name in self.needed - set(arrays):
            raise InputError("inputs", name, "the model needs it", "give an array of that name")
        for name, one in arrays.items():
            wanted = known[name].shape
            fits = len(wanted) == one.ndim and all(
                n in (None, m) for n, m in zip(wanted, one.shape, strict=False)
            )
            if known[name].dtype and not fits:
                shape = ", ".join("any" if n is None else str(n) for n in wanted)
                raise InputError("inputs", name, f"has shape {one.shape}", f"give ({shape})")

    def _argument(self, name: str, one: np.ndarray) -> Any:
        if name in self.scalars:
            return self.scalars[name](np.asarray(one).item())
        wanted = next(each.dtype for each in self.inputs if each.name == name)
        plain = torch.from_numpy(np.array(one))
        if wanted == "bfloat16" and plain.dtype == torch.uint16:
            return plain.view(torch.bfloat16)
        return plain

    def _stateful(self, given: Mapping[str, Any]) -> bool:
        """Whether a second run of the same model gives something else; it also warms it up."""
        model = copy.deepcopy(self.model)
        found = []
        for _ in range(3):  # TorchScript watches two runs before it compiles
            with torch.no_grad():
                out = model(**given) if len(given) > 1 else model(*given.values())
            found.append([array(one).tobytes() for one in tensors(out)])
        return any(one != found[0] for one in found)


def read(path: Path, trust: bool, make: Make) -> Opened:
    """Opens a model file; ``make`` makes a recorder of a function. InputError as of ``opened``."""
    kind = _kind(path)
    if not trust:
        why = {
            "exported": "reading an exported program evaluates expressions that the file holds",
            "script": "TorchScript is a program, which can read and write files",
            "pickle": "it is a pickle, and reading it runs code that it names",
        }[kind]
        raise InputError("network", path, why, TRUST)
    try:
        found = {"exported": _exported, "script": _script, "pickle": _pickled}[kind](path)
    except InputError:
        raise
    except Exception as error:
        why = f"PyTorch can't read it ({' '.join(str(error).split())[:100]})"
        raise InputError("network", path, why, AGAIN) from None
    found.make = make
    return found


def _kind(path: Path) -> str:
    if not path.is_file():
        raise InputError("network", path, "there is no such file", "give the path of a model")
    if not zipfile.is_zipfile(path):
        return "pickle"
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.namelist()
    except zipfile.BadZipFile:
        raise InputError("network", path, "it is a damaged archive", AGAIN) from None
    last = {name.rpartition("/")[2] for name in members}
    if "archive_format" in last or "serialized_exported_program.json" in last:
        return "exported"
    if any("/code/" in f"/{name}" for name in members) and "constants.pkl" in last:
        return "script"
    return "pickle"


def _exported(path: Path) -> Opened:
    program = torch.export.load(str(path))
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    found = []
    for name in program.graph_signature.user_inputs:
        value = values.get(str(name))
        if isinstance(value, torch.Tensor):
            shape = tuple(n if isinstance(n, int) else None for n in value.shape)
            found.append(Input(str(name), shape, str(value.dtype).removeprefix("torch.")))
        elif name is not None:
            why = f"its input {name} is not an array"
            raise InputError("network", path, why, "export it with arrays as inputs alone")
    model = program.module()
    names = [one.name for one in found]
    return Opened(path, _Positional(model, names), tuple(found))


class _Positional:
    """A program that takes its inputs by the names that its graph has, whatever its own are."""

    def __init__(self, model: Callable[..., Any], names: list[str]) -> None:
        self.model, self.names = model, names

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self.model(*args, *(named[name] for name in self.names if name in named))


SCALARS = {"int": int, "float": float, "bool": bool}


def _script(path: Path) -> Opened:
    model = torch.jit.load(str(path), map_location="cpu").eval()
    arguments = model.forward.schema.arguments[1:]
    found = Opened(path, model, tuple(Input(one.name, (), "") for one in arguments))
    found.scalars = {a.name: SCALARS[str(a.type)] for a in arguments if str(a.type) in SCALARS}
    found.needed = {one.name for one in arguments if not one.has_default_value()}
    return found


def _pickled(path: Path) -> Opened:
    model = torch.load(str(path), map_location="cpu", weights_only=False)
    if not isinstance(model, torch.nn.Module):
        why = f"it holds a {type(model).__name__}, and weights alone do not define an architecture"
        raise InputError("network", path, why, "save the module itself: torch.save(module, path)")
    parameters = inspect.signature(model.forward).parameters.values()
    plain = [one for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    found = Opened(path, model.eval(), tuple(Input(one.name, (), "") for one in plain))
    found.needed = {one.name for one in plain if one.default is one.empty}
    return found
