"""A recording on disk: another machine or release can be compared with it later.

``recording.json`` has the structure, what each operation means, the digests of all values, and
where it was made; every value is a ``.npy`` file named by its digest, so that what occurs twice is
kept once. Beyond a number of bytes digests alone are kept, and it says what was left out. Nothing
is pickled, and a folder from a stranger is data: names of files can't leave it, sizes are checked
before anything is read, and bits against their digests.
"""

from __future__ import annotations

import json
import platform
import re
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from probe import layout, machine, memory
from probe.errors import InputError
from probe.recording import spelling
from probe.recording.recording import (
    Operation,
    Provenance,
    Run,
    Value,
    container,
    digest,
)
from probe.recording.spelling import tupled

FORMAT, READ = 2, (1, 2)
FILE = "recording.json"
MOST = 2 << 30
"""Bytes of values that a recording keeps unless it is told otherwise."""

ANEW = "record it again with this release"
MOST_JSON = 1 << 29
MOST_ELEMENTS = 1 << 36
LABELLED = 32
"""Bytes that an element of a value takes while two recordings are compared."""

NAME = re.compile(r"[0-9a-f]{32,128}\.npy")
CHECKED = np.arange(7, dtype=np.uint8)
"""Its digest says whether digests of a folder are of the kind that this release makes."""


def write(
    run: Run, out: Path, subject: str = "", most: int = MOST, notes: Sequence[str] = ()
) -> None:
    """Keeps a run in the folder ``out``, which must not exist yet, unless it was recorded into it.

    ``subject``: what was recorded, in words. ``most``: bytes of values. InputError: it exists.
    """
    folder = run.store
    if not isinstance(folder, RecordingFolder) or folder.folder != out:
        new(out)
        folder = RecordingFolder(out)
    files = _Files(folder, most)
    for value in run.values:  # first what says which elements must agree
        for array in (value.content, value.zeros):
            if array is not None:
                files.put(array)
    for number, value in enumerate(run.values):
        if not files.met(value.digest) and (array := run.array(number)) is not None:
            files.put(array, value.digest)
    told = {
        "format": FORMAT,
        "digest_of_0_to_6": digest(CHECKED),
        "subject": machine.publishable(subject),
        "target": run.target,
        "note": run.note,
        "notes": [machine.publishable(one) for one in notes],
        "made": made() if run.made is None else dict(run.made.made),
        "values": [_value(one, n in run.unsteady, files) for n, one in enumerate(run.values)],
        "operations": [_operation(one, run, files) for one in run.operations],
        "outputs": list(run.outputs),
        "left_out": {"values": len(files.left_out), "bytes": sum(files.left_out.values())},
    }
    if run.alone is not None:
        told["alone"] = {str(number): why for number, why in run.alone.items()}
    folder.only(files.names)
    (out / FILE).write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


@contextmanager
def begun(out: Path) -> Iterator[RecordingFolder]:
    """Gives the new folder of a recording, to record into: every value is written there once, as it
    comes, and is not held. What is not finished goes again. InputError: it exists already."""
    new(out)
    empty = out.exists()
    try:
        yield RecordingFolder(out)
    except BaseException:
        shutil.rmtree(out, ignore_errors=True)
        if empty:
            out.mkdir(exist_ok=True)
        raise


def new(out: Path) -> None:
    """Raises InputError where a folder is there already, and not empty."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError("out", out, "it exists already", "give the name of a new folder")


class _Files:
    """What a folder is to keep, each array once, up to a number of bytes. ``left_out``: what is
    beyond, by its digest, in bytes."""

    def __init__(self, folder: RecordingFolder, most: int) -> None:
        self.folder, self.most, self.bytes = folder, most, 0
        self.names: set[str] = set()
        self.left_out: dict[str, int] = {}

    def met(self, name: str) -> bool:
        """Returns whether an array with this digest was kept, or left out."""
        return name in self.names or name in self.left_out

    def put(self, array: np.ndarray, name: str = "") -> str | None:
        """Returns the file's name; None where there was no room, or nothing to keep."""
        name = name or digest(array)
        if not array.size or name in self.left_out:
            return None
        if name not in self.names:
            if self.bytes + array.nbytes > self.most:
                self.left_out[name] = array.nbytes
                return None
            self.names.add(self.folder.put(array, name))
            self.bytes += array.nbytes
        return f"{name}.npy"


LIBRARIES = {
    **dict.fromkeys(("torch", "tensorflow", "keras", "jax", "jaxlib", "onnxruntime", "numpy")),
    "cv2": "opencv-python-headless",
    "ai_edge_litert": "ai-edge-litert",
}
"""Modules whose releases are told, and the names of their distributions, where those differ."""


def made() -> dict[str, Any]:
    """Where a recording was made: releases of the loaded libraries, and facts of the machine."""
    from importlib import metadata

    versions = {}
    for module, other in LIBRARIES.items():
        distribution = other or module
        if module in sys.modules:
            try:
                versions[distribution] = metadata.version(distribution)
            except metadata.PackageNotFoundError:
                versions[distribution] = str(getattr(sys.modules[module], "__version__", "unknown"))
    facts = machine.facts()
    known = ("machine", "cpu_vendor", "cpu_model", "cpu_isa", "cores", "os", "probe_version")
    told = {name: facts[name] for name in known}
    return {"python": platform.python_version(), "libraries": versions, **told}


def _value(one: Value, unsteady: bool, files: _Files) -> dict[str, Any]:
    found: dict[str, Any] = {"shape": list(one.shape), "dtype": one.dtype, "digest": one.digest}
    if one.given >= 0:
        found["given"] = one.given
    found |= {name: text for name, text in (("role", one.role), ("name", one.name)) if text}
    if one.address is not None:
        found["address"] = one.address
    if one.content is not None:
        found["content"] = True
    if one.zeros is not None:
        found["zeros"] = {"file": files.put(one.zeros), "shape": list(one.zeros.shape)}
    return found | ({"unsteady": True} if unsteady else {})


def _operation(one: Operation, run: Run, files: _Files) -> dict[str, Any]:
    """Returns an operation as JSON has it, with how a user writes it: lines that compute ``y`` from
    ``x0``, ``x1``, ..."""
    shapes = [[run.values[n].shape for n in numbers] for numbers in (one.reads, one.gives)]
    written: dict[str, Any] = {}
    if one.lines is not None:
        with suppress(Exception):  # no lines for these operands
            lines = one.lines([f"x{n}" for n in range(len(one.reads))], "y")
            written = {"lines": list(lines), "imports": list(one.imports)}
    return {
        "name": one.name,
        "op": one.op,
        "path": one.path,
        "reads": list(one.reads),
        "gives": list(one.gives),
        "attributes": spelling.packed(dict(one.attributes), files),
        "meaning": spelling.spelled(one.meaning, shapes[0], shapes[1], files),
        **written,
    }


UNTRIED = "no code of a recording is run, so no cause was looked for"


def read(folder: str | Path) -> Run:
    """Returns a recording on disk. InputError: the folder is none, or is damaged."""
    return RecordingFolder(Path(folder)).run()


def size(folder: Path) -> int:
    """Returns the bytes of the values in a folder."""
    names = (one for one in folder.iterdir() if NAME.fullmatch(one.name))
    return sum(np.load(one, mmap_mode="r", allow_pickle=False).nbytes for one in names)


class RecordingFolder:
    """The folder of a recording: a ``Store`` to record into, or one that is read, as data; ``run``
    is the recording then.

    ``lines``: how operations are written, by number, and what that imports; text, until a user says
    that it is trusted (:class:`probe.recording.apart.Trusted`).
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines: dict[int, tuple[list[str], list[str]]] = {}
        self.checked: set[str] = set()  # names of files whose bits are known to be theirs

    def put(self, array: np.ndarray, name: str = "") -> str:
        """As of ``Store``: writes a file, and holds nothing."""
        name = name or digest(array)
        if name not in self.checked and array.size:
            self.folder.mkdir(parents=True, exist_ok=True)
            path = self.folder / f"{name}.npy"
            np.save(path, np.ascontiguousarray(array), allow_pickle=False)
            self.checked.add(name)
        return name

    def only(self, names: Collection[str]) -> None:
        """Removes the files of other arrays: there was no room for them, or no value has them, as
        of a recording that was begun again."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for name in self.checked.difference(names):
            (self.folder / f"{name}.npy").unlink()
        self.checked.intersection_update(names)

    def run(self) -> Run:
        """Returns the run."""
        told = self._read()
        try:
            return self._filled(told)
        except (
            KeyError,
            TypeError,
            ValueError,
            AttributeError,
            IndexError,
            OverflowError,
            RecursionError,
        ) as error:
            why = f"{FILE} does not describe a recording ({type(error).__name__}: {error})"
            raise self.broken(why[:200]) from None

    def _read(self) -> dict[str, Any]:
        path = self.folder / FILE
        if not path.is_file() or path.is_symlink():
            why = f"there is no {FILE} in it, so it is not a recording"
            raise InputError("recording", self.folder, why, "make one with probe record")
        if path.stat().st_size > MOST_JSON:
            raise self.broken(f"{FILE} has {path.stat().st_size:,} bytes")
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise self.broken(f"{FILE} is not JSON ({str(error)[:80]})") from None
        if not isinstance(told, dict) or told.get("format") not in READ:
            found = told.get("format") if isinstance(told, dict) else None
            why = f"its format is {found!r}, this release reads {FORMAT}"
            raise InputError("recording", self.folder, why, ANEW)
        if told.get("digest_of_0_to_6") != digest(CHECKED):
            why = "its digests are of a different kind from this release's"
            raise InputError("recording", self.folder, why, ANEW)
        return told

    def broken(self, why: str) -> InputError:
        """Returns the error for a folder that is not what it should be."""
        return InputError("recording", self.folder, why, "record it again with probe record")

    def _filled(self, told: dict[str, Any]) -> Run:
        facts = dict(told["made"])
        facts["libraries"] = dict(facts["libraries"])
        left_out = {name: int(told["left_out"][name]) for name in ("values", "bytes")}
        notes = [str(one) for one in told["notes"]]
        made = Provenance(self.folder, str(told["subject"]), facts, notes, left_out)
        unsteady = frozenset(n for n, one in enumerate(told["values"]) if one.get("unsteady"))
        values = [self._value(one) for one in told["values"]]
        operations = []
        for number, one in enumerate(told["operations"]):
            operations.append(self._operation(number, one, values, told["format"]))
            if "lines" in one:
                self.lines[number] = list(map(str, one["lines"])), list(map(str, one["imports"]))
        self._fits(values)
        outputs = _numbers(told["outputs"], len(values))
        kept = {v.digest for v in values if not prod(v.shape) or self.has(v.digest)}
        gone = {v.digest for n, v in enumerate(values) if n not in unsteady} - kept
        if len(gone) > left_out["values"]:
            some = f"{len(gone)} of its values are not in the folder"
            notes.append(f"{self.folder.name}: {some}")
        alone = told.get("alone")
        alone = alone and {int(n): str(why) for n, why in alone.items()}
        found = Run(
            *(str(told["target"]), str(told["note"]), values, operations, outputs),
            *(self, unsteady, UNTRIED, made),
            alone=alone,
        )
        self._in_order(found)
        for number, one in enumerate(told["values"]):
            content = found.array(number) if one.get("content") else None
            noticed = one.get("zeros") and one["zeros"]["file"]
            zeros = None if not noticed else self.file(str(noticed)).astype(bool)
            if zeros is not None:
                zeros = zeros.reshape(tupled(one["zeros"]["shape"]))
            values[number] = replace(values[number], content=content, zeros=zeros)
        return found

    def _operation(
        self, number: int, told: Mapping[str, Any], values: Sequence[Value], form: int
    ) -> Operation:
        reads, gives = (_numbers(told[name], len(values)) for name in ("reads", "gives"))
        computed = told["meaning"]
        if form == 1:
            computed = spelling.upgraded(computed, [values[n].shape for n in gives])
        attributes = (
            told["attributes"] if form == 1 else spelling.unpacked(told["attributes"], self)
        )
        name, op, path = (str(told[word]) for word in ("name", "op", "path"))
        meaning = spelling.meant(computed, self)
        return Operation(
            op, path, reads, gives, meaning, dict(attributes), name=name, number=number
        )

    def _fits(self, values: Sequence[Value]) -> None:
        """Refuses values whose labels alone would take more memory than there is: 8 bytes an
        element, held a few times."""
        sizes = [int(np.prod(value.shape, dtype=object)) for value in values]
        left, most = memory.free(), max(sizes, default=0)
        if left is not None and LABELLED * most > left:
            shape = list(values[sizes.index(most)].shape)
            raise self.broken(
                f"a value of shape {shape} needs more memory than the {left:,} bytes free"
            )

    def _in_order(self, run: Run) -> None:
        """Every value is given by the operation that it names, before it is read."""
        for number, one in enumerate(run.operations):
            early = all(run.values[n].given < number for n in one.reads)
            if not early or any(run.values[n].given != number for n in one.gives):
                raise self.broken(f"operation {one.name!r} reads a value that does not exist yet")
        known = {n for one in run.operations for n in one.gives}
        if any(v.given >= 0 and n not in known for n, v in enumerate(run.values)):
            raise self.broken("a value is given by no operation")

    def _value(self, one: Mapping[str, Any]) -> Value:
        shape = tuple(int(n) for n in one["shape"])
        if any(n < 0 for n in shape) or int(np.prod(shape, dtype=object)) > MOST_ELEMENTS:
            raise self.broken(f"a value has the shape {list(shape)}"[:200])
        dtype, name = str(one["dtype"]), str(one["digest"])
        container(dtype)
        if not NAME.fullmatch(f"{name}.npy"):
            raise self.broken(f"{name[:40]!r} is not a digest")
        address = one.get("address")  # folders of earlier releases do not have it
        if address is not None and not 0 <= int(address) < layout.BOUNDARY:
            raise self.broken(f"{address} is not an address modulo {layout.BOUNDARY}")
        return Value(
            *(shape, dtype, name, int(one.get("given", -1))),
            *(str(one.get("role", "")), str(one.get("name", ""))),
            address=None if address is None else int(address),
        )

    def file(self, name: str) -> np.ndarray:
        """Returns the bytes of a file's array. InputError: it is not what its name says."""
        if not NAME.fullmatch(name):
            raise self.broken(f"{name[:80]!r} is not a file of a recording")
        path = self.folder / name
        if path.is_symlink() or not path.is_file():
            raise self.broken(f"{name} is missing, or it is a link")
        try:
            found = np.load(path, mmap_mode="r", allow_pickle=False)
        except Exception as error:  # tokenize's, struct's: whatever is damaged
            raise self.broken(f"{name} is not an array ({str(error)[:80]})") from None
        if not isinstance(found, np.ndarray) or found.nbytes > path.stat().st_size:
            raise self.broken(f"{name} has a different size from the recorded one")
        array, named = np.asarray(found), name.removesuffix(".npy")
        if named not in self.checked and digest(array) != named:
            raise self.broken(f"{name} has different bits from when it was recorded")
        self.checked.add(named)
        return np.ascontiguousarray(array).reshape(-1).view(np.uint8)

    def bits(self, name: str) -> np.ndarray | None:
        """As of ``Store``. InputError: the file isn't what its name says."""
        return self.file(f"{name}.npy") if self.has(name) else None

    def has(self, name: str) -> bool:
        """As of ``Store``."""
        return name in self.checked or (self.folder / f"{name}.npy").exists()


def _numbers(given: Sequence[Any], count: int) -> tuple[int, ...]:
    found = tuple(int(n) for n in given)
    if any(not 0 <= n < count for n in found):
        raise ValueError(f"there is no value {max(found)}")
    return found
