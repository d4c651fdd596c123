"""What a file of PyTorch holds, found out without running anything in it.

``torch.save`` writes a pickle, and a pickle is a program: reading it calls whatever functions it
names. So its instructions are followed here with every name replaced by a stand-in that does
nothing: nothing is imported, nothing called, and PyTorch is not asked.
"""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

from probe.errors import InputError
from probe.network.readers import EXPORTED, TO_ONNX

WHOLE_MODULE = f"save the module itself, torch.save(module, path), or {TO_ONNX}"
TENSORS = ("torch._utils._rebuild", "torch.storage.", "torch._tensor.", "torch.serialization.")
PLAIN = {
    *("collections.OrderedDict", "torch.Size", "torch.device", "torch.nn.parameter.Parameter"),
    *("__builtin__.set", "builtins.set"),
}
"""Names, and beginnings of names, that a state dictionary of tensors has."""

STREAMS = 4
"""Pickles in a file before PyTorch 1.6: three about the format, then the object."""


def check(path: Path, trust: bool) -> None:
    """InputError where the file is no pickled module, or where it is and is not trusted."""
    try:
        named = _named(path)
    except (OSError, zipfile.BadZipFile, RuntimeError, EOFError, NotImplementedError) as error:
        raise _broken(path, error) from None
    if named is None:
        raise _broken(path, None)
    strange = [name for name in named if not _of_tensors(name)]
    if not strange:
        why = "it holds tensors alone, and weights alone say no architecture"
        raise InputError("network", path, why, WHOLE_MODULE)
    if not trust:
        name = next((one for one in strange if not one.startswith("torch.")), strange[0])
        why = f"it is a pickle, and reading it runs code that it names: {_printable(name)}"
        todo = f"if you trust where it comes from, give --trust (Python: trust=True), or {TO_ONNX}"
        raise InputError("network", path, why, todo)


def _broken(path: Path, error: Exception | None) -> InputError:
    said = "" if error is None else f" ({' '.join(str(error).split())[:80]})"
    why = f"can't be read: it is no file of torch.save, or a broken one{said}"
    return InputError("network", path, why, "save the model again")


def _of_tensors(name: str) -> bool:
    last = name.rpartition(".")[2]
    storage = name.startswith("torch.") and name.count(".") == 1
    return name in PLAIN or name.startswith(TENSORS) or (storage and _is_storage(last))


def _is_storage(last: str) -> bool:
    """``FloatStorage``, and dtypes such as ``float32``."""
    kinds = ("float", "bfloat", "int", "uint", "bool", "complex")
    return last.endswith("Storage") or last.startswith(kinds)


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text)[:100]


def _named(path: Path) -> list[str] | None:
    """Names that the file's pickle looks up, in order; None where there is no whole pickle.

    Raises InputError for TorchScript and for exported programs, whatever their ending.
    """
    if not zipfile.is_zipfile(path):
        with path.open("rb") as file:
            return _followed(file)
    with zipfile.ZipFile(path) as archive:
        members = archive.namelist()
        last = {name.rpartition("/")[2] for name in members}
        if any("/code/" in f"/{name}" for name in members) and "constants.pkl" in last:
            why = "it holds TorchScript, whose layers are no modules any more, so it is not loaded"
            todo = f"save the module that was scripted, or {TO_ONNX}"
            raise InputError("network", path, why, todo)
        if "archive_format" in last or "serialized_exported_program.json" in last:
            raise InputError("network", path, EXPORTED, TO_ONNX)
        inside = [name for name in members if name.rpartition("/")[2] == "data.pkl"]
        if not inside:
            return None
        return _followed(io.BytesIO(archive.read(inside[0])))


def _followed(file: BinaryIO) -> list[str] | None:
    """What the pickles of a file look up. Names found before a mistake in it count too."""
    found: list[str] = []
    for number in range(STREAMS):
        reader = _Follower(file, found)
        try:
            made = reader.load()
        except Exception:
            return found or None
        if number == 0 and made != MAGIC:
            break
    return found


MAGIC = 0x1950A86A20F9469CFC6C
"""The first number in files before PyTorch 1.6."""


class _Follower(pickle.Unpickler):
    """Notes the names that a pickle looks up, and gives it a stand-in for each."""

    def __init__(self, file: BinaryIO, found: list[str]) -> None:
        super().__init__(file, encoding="latin-1")
        self.found = found

    def find_class(self, module: str, name: str) -> Any:
        self.found.append(f"{module}.{name}")
        return _Nothing

    def persistent_load(self, pid: Any) -> Any:
        return _Nothing()


class _Nothing:
    """Takes what is done to it, and does nothing."""

    def __new__(cls, *args: Any, **words: Any) -> _Nothing:
        return super().__new__(cls)

    def __init__(self, *args: Any, **words: Any) -> None:
        pass

    def __call__(self, *args: Any, **words: Any) -> _Nothing:
        return self

    def __setstate__(self, state: Any) -> None:
        pass

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def append(self, value: Any) -> None:
        """As of a list."""

    def extend(self, values: Any) -> None:
        """As of a list."""

    def add(self, value: Any) -> None:
        """As of a set."""
