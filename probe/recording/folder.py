"""A recording on disk: another machine or release can be compared with it later.

``recording.json`` has the structure, what each operation means, the digests of all values, and
where it was made; every value is a ``.npy`` file named by its digest, so that what occurs twice is
kept once. Beyond a number of bytes digests alone are kept, and it says what was left out. Nothing
is pickled, and a folder from a stranger is data: names of files can't leave it, sizes are checked
before anything is read, and bits against their digests.
"""

from __future__ import annotations

import dataclasses
import json
import platform
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from probe import floats, layout, machine, memory
from probe.errors import InputError
from probe.recording import spelling
from probe.recording.contract import Event, Recorder, Seen
from probe.recording.recording import (
    Live,
    Operation,
    Part,
    Recording,
    Value,
    Watch,
    digest,
)
from probe.recording.spelling import tupled, words
from probe.recording.walk import watched

FORMAT = 1
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


@dataclasses.dataclass
class Kept:
    """What was written. ``left_out``: values of which only digests are kept, and their bytes."""

    folder: Path
    side: Live
    bytes: int
    left_out: int
    left_out_bytes: int
    notes: list[str]


def write(
    recorder: Recorder, out: Path, subject: str = "", most: int = MOST, target: str = ""
) -> Kept:
    """Runs something five times and keeps it in the folder ``out``, which must not exist yet.

    ``subject``: what is recorded, in words. ``most``: bytes of values. ``target``: where it runs;
    the recorder's own if not given. Errors: InputError; Nondeterministic where two runs differ.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError("out", out, "it exists already", "give the name of a new folder")
    side, notes = watched(recorder, "the run")
    side.recording.target = target or side.recording.target
    out.mkdir(parents=True, exist_ok=True)
    files = _Files(out, most)
    _structure(files, side.recording)
    unsteady: set[int] = set()

    def met(number: int, seen: Seen, _: int) -> None:
        value, array = side.recording.values[number], seen.array()
        if digest(array) == value.digest:
            files.put(array)
        else:
            unsteady.add(number)

    lines: list[dict[str, Any]] = []
    recorder.record(Watch(met, lambda _, event, *__: lines.append(_written(event))))
    told = _described(side.recording, files, unsteady, subject, notes)
    for one, more in zip(told["operations"], lines, strict=True):
        one.update(more)
    text = json.dumps(told, indent=1)
    (out / FILE).write_text(text + "\n", encoding="utf-8")
    return Kept(out, side, files.bytes, len(files.left_out), sum(files.left_out.values()), notes)


def _written(event: Event) -> dict[str, Any]:
    """Returns how a user writes an operation: lines that compute ``y`` from ``x0``, ``x1``, ..."""
    if event.lines is None:
        return {}
    try:
        found = event.lines([f"x{n}" for n in range(len(event.reads))], "y")
    except Exception:  # no lines for these operands
        return {}
    return {"lines": list(found), "imports": list(event.imports)}


class _Files:
    """The values of a folder, each once, up to a number of bytes."""

    def __init__(self, folder: Path, most: int) -> None:
        self.folder, self.most, self.bytes = folder, most, 0
        self.names: dict[str, str] = {}
        self.left_out: dict[str, int] = {}

    def put(self, array: np.ndarray) -> str | None:
        """Returns the file's name; None where there was no room, or nothing to keep."""
        name = digest(array)
        if not array.size or name in self.left_out:
            return None
        if name not in self.names:
            if self.bytes + array.nbytes > self.most:
                self.left_out[name] = array.nbytes
                return None
            self.names[name] = f"{name}.npy"
            np.save(self.folder / f"{name}.npy", np.ascontiguousarray(array), allow_pickle=False)
            self.bytes += array.nbytes
        return self.names[name]


def _structure(files: _Files, run: Recording) -> None:
    """Inputs, what comes of integers, and where a softmax vanishes: first, they say what agrees."""
    for value in run.values:
        for array in (value.content, value.zeros):
            if array is not None:
                files.put(array)


def _described(
    run: Recording, files: _Files, unsteady: set[int], subject: str, notes: Sequence[str]
) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "digest_of_0_to_6": digest(CHECKED),
        "subject": machine.publishable(subject),
        "target": run.target,
        "note": run.note,
        "notes": [machine.publishable(one) for one in notes],
        "made": made(),
        "values": [_value(one, n in unsteady, files) for n, one in enumerate(run.values)],
        "operations": [_operation(one, run, files) for one in run.operations],
        "outputs": list(run.outputs),
        "left_out": {"values": len(files.left_out), "bytes": sum(files.left_out.values())},
    }


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
        name = files.names.get(digest(one.zeros))
        found["zeros"] = {"file": name, "shape": list(one.zeros.shape)}
    return found | ({"unsteady": True} if unsteady else {})


def _operation(one: Operation, run: Recording, files: _Files) -> dict[str, Any]:
    shapes = [[run.values[n].shape for n in numbers] for numbers in (one.reads, one.gives)]
    return {
        "name": one.name,
        "op": one.op,
        "path": one.path,
        "reads": list(one.reads),
        "gives": list(one.gives),
        "attributes": json.loads(json.dumps(dict(one.attributes), default=words)),
        "meaning": spelling.spelled(one.meaning, shapes[0], shapes[1], files),
    }


class Stored:
    """A recording on disk as one of two sides. InputError: the folder is none, or is damaged.

    ``untried``: why its operations are not run, empty where they can be.
    """

    untried = "no code of a recording is run, so no cause was looked for"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        told = self._read()
        try:
            self._fill(told)
        except (
            KeyError,
            TypeError,
            ValueError,
            AttributeError,
            IndexError,
            OverflowError,
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
        if not isinstance(told, dict) or told.get("format") != FORMAT:
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

    def _fill(self, told: dict[str, Any]) -> None:
        self.subject, self.made = str(told["subject"]), dict(told["made"])
        self.made["libraries"] = dict(self.made["libraries"])
        self.notes = [str(one) for one in told["notes"]]
        self.left_out = {name: int(told["left_out"][name]) for name in ("values", "bytes")}
        run = self.recording = Recording(str(told["target"]), str(told["note"]))
        self.unsteady = {n for n, one in enumerate(told["values"]) if one.get("unsteady")}
        run.values = [self._value(one) for one in told["values"]]
        count = len(run.values)
        for number, one in enumerate(told["operations"]):
            reads, gives = (_numbers(one[name], count) for name in ("reads", "gives"))
            run.operations.append(
                Operation(
                    *(number, str(one["name"]), str(one["op"]), str(one["path"]), reads, gives),
                    dict(one["attributes"]),
                    spelling.meant(one["meaning"], [run.values[n].shape for n in gives], self),
                )
            )
        self._fits(run)
        run.outputs = _numbers(told["outputs"], count)
        self._in_order(run)
        kept = {v.digest for v in run.values if self.has(v)}
        gone = {v.digest for n, v in enumerate(run.values) if n not in self.unsteady} - kept
        if len(gone) > self.left_out["values"]:
            self.notes.append(
                f"{self.folder.name}: {len(gone)} of its values are not in the folder"
            )
        self.lines = {
            n: (list(map(str, one["lines"])), list(map(str, one["imports"])))
            for n, one in enumerate(told["operations"])
            if "lines" in one
        }
        for value, one in zip(run.values, told["values"], strict=True):
            value.content = self._array(value) if one.get("content") else None
            if one.get("zeros") and one["zeros"]["file"]:
                noticed = self.bits(str(one["zeros"]["file"])).astype(bool)
                value.zeros = noticed.reshape(tupled(one["zeros"]["shape"]))

    def _fits(self, run: Recording) -> None:
        """Refuses values whose labels alone would take more memory than there is: 8 bytes an
        element, held a few times."""
        sizes = [int(np.prod(value.shape, dtype=object)) for value in run.values]
        left, most = memory.free(), max(sizes, default=0)
        if left is not None and LABELLED * most > left:
            shape = list(run.values[sizes.index(most)].shape)
            raise self.broken(
                f"a value of shape {shape} needs more memory than the {left:,} bytes free"
            )

    def _in_order(self, run: Recording) -> None:
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
        given, role = int(one.get("given", -1)), str(one.get("role", ""))
        found = Value(shape, dtype, name, given, role, str(one.get("name", "")))
        if one.get("address") is not None:  # folders of earlier releases do not have it
            found.address = int(one["address"])
            if not 0 <= found.address < layout.BOUNDARY:
                raise self.broken(f"{found.address} is not an address modulo {layout.BOUNDARY}")
        return found

    def file(self, name: str) -> np.ndarray:
        """Returns the array of a file of the folder. InputError: it is not what its name says."""
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
        array = np.asarray(found)
        if digest(array) != name.removesuffix(".npy"):
            raise self.broken(f"{name} has different bits from when it was recorded")
        return array

    def bits(self, name: str) -> np.ndarray:
        """Returns the bytes of a file's array: uint8."""
        return np.ascontiguousarray(self.file(name)).reshape(-1).view(np.uint8)

    def has(self, value: Value) -> bool:
        """Returns whether the bits of a value were kept."""
        return not np.prod(value.shape, dtype=int) or (self.folder / f"{value.digest}.npy").exists()

    def _array(self, value: Value) -> np.ndarray | None:
        if not self.has(value):
            return None
        kind = container(value.dtype)
        if not np.prod(value.shape, dtype=int):
            return np.zeros(value.shape, kind)
        array = self.bits(f"{value.digest}.npy")
        if array.nbytes != int(np.prod(value.shape, dtype=int)) * kind.itemsize:
            raise self.broken(f"{value.digest}.npy has a different size from its value")
        return array.view(kind).reshape(value.shape)

    def digests(self, wanted: Sequence[Part], side: int) -> list[str | None]:
        """As of ``Side``."""
        return [None if one is None else digest(one) for one in self._parts(wanted, side)]

    def parts(self, wanted: Sequence[Part], side: int) -> list[np.ndarray | None]:
        """As of ``Side``."""
        return [None if one is None else np.array(one) for one in self._parts(wanted, side)]

    def _parts(self, wanted: Sequence[Part], side: int) -> Iterator[np.ndarray | None]:
        for number, selection in wanted:
            array = self._array(self.recording.values[number])
            yield None if array is None else selection.taken(array, side)

    def arrays(self, wanted: set[int]) -> dict[int, np.ndarray]:
        """As of ``Side``; values that were left out are left out."""
        arrays = {n: self._array(self.recording.values[n]) for n in sorted(wanted)}
        return {n: np.array(array) for n, array in arrays.items() if array is not None}

    def hold(self, values: set[int], operations: set[int]) -> None:
        """Nothing: all values are on disk."""

    def again(self, number: int) -> Callable[[list[np.ndarray]], list[np.ndarray]] | None:
        """None: a folder says what was computed, and runs nothing."""
        return None

    def agains(
        self, wanted: set[int]
    ) -> dict[int, Callable[[list[np.ndarray]], list[np.ndarray]] | None]:
        """None of each."""
        return dict.fromkeys(wanted)

    def suspect(self, numbers: Sequence[int]) -> None:
        """Nothing: ``repeats`` is known."""

    def repeats(self, numbers: Sequence[int]) -> bool:
        """Returns whether these values had the same bits each time while they were recorded."""
        return not self.unsteady & set(numbers)


def _numbers(given: Sequence[Any], count: int) -> tuple[int, ...]:
    found = tuple(int(n) for n in given)
    if any(not 0 <= n < count for n in found):
        raise ValueError(f"there is no value {max(found)}")
    return found


def container(dtype: str) -> np.dtype:
    """Returns the NumPy dtype that holds values of a dtype. ValueError where it isn't known."""
    if dtype in floats.FORMATS:
        return floats.container(dtype)
    found = np.dtype(dtype)
    if found.kind not in "biufc":
        raise ValueError(f"there is no dtype {dtype[:40]!r}")
    return found
