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
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from probe.case import layout
from probe.case.errors import InputError, printable
from probe.order import semantics
from probe.order.semantics import Meaning, Moves, Step, Unknown
from probe.record.contract import INPUT
from probe.record.recording import Operation, Provenance, Run, Value, array_digest, container_dtype
from probe.targets import machine

FORMAT = 2
FILE = "recording.json"
# Bytes of values that a recording keeps by default.
MOST_BYTES = 2 << 30

ANEW = "record it again with this release"
MOST_JSON = 1 << 29
MOST_ELEMENTS = 1 << 36

NAME = re.compile(r"[0-9a-f]{32,128}\.npy")
# Its digest says whether digests of a folder are of the kind that this release makes.
CHECKED = np.arange(7, dtype=np.uint8)


def write_recording(
    run: Run, out: Path, subject: str = "", most: int = MOST_BYTES, notes: Sequence[str] = ()
) -> None:
    """Keeps a run in the folder ``out``, which must not exist yet, unless it was recorded into it.

    ``subject``: what was recorded, in words. ``most``: bytes of values. InputError: it exists.
    """
    folder = run.store
    if not isinstance(folder, RecordingFolder) or folder.folder != out:
        check_new_folder(out)
        folder = RecordingFolder(out)
    size, kept, left_out = 0, set[str](), dict[str, int]()
    arrays = [(value.digest, partial(run.array, n)) for n, value in enumerate(run.values)]
    arrays += [(digest, partial(run.store.bits, digest)) for digest in run.plain]
    for digest, read in arrays:
        array = None if digest in kept or digest in left_out else read()
        if array is None or not array.size:
            continue
        if size + array.nbytes > most:  # of what is beyond, digests alone are kept
            left_out[digest] = array.nbytes
        else:
            kept.add(folder.put(array, digest))
            size += array.nbytes
    values = []
    for number, value in enumerate(run.values):
        optional = {
            "given": value.given if value.given >= 0 else None,
            "role": value.role or None,
            "name": value.name or None,
            "address": value.address,
            "unsteady": True if number in run.unsteady else None,
        }
        entry = {"shape": value.shape, "dtype": value.dtype, "digest": value.digest}
        values.append(entry | {k: v for k, v in optional.items() if v is not None})
    document = {
        "format": FORMAT,
        "digest_of_0_to_6": array_digest(CHECKED),
        "subject": machine.publishable(subject),
        "target": run.target,
        "note": run.note,
        "notes": [machine.publishable(note) for note in notes],
        "made": environment_facts() if run.made is None else dict(run.made.made),
        "values": values,
        "operations": [_operation_json(op) for op in run.operations],
        "outputs": list(run.outputs),
        "plain": list(run.plain),
        "left_out": {"values": len(left_out), "bytes": sum(left_out.values())},
    }
    folder.only(kept)
    (out / FILE).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


@contextmanager
def begin_recording(out: Path) -> Iterator[RecordingFolder]:
    """The new folder of a recording, to record into: each value is written there once, as it comes,
    and is not kept in memory. What is not finished is removed. InputError: it exists already."""
    check_new_folder(out)
    empty = out.exists()
    try:
        yield RecordingFolder(out)
    except BaseException:
        shutil.rmtree(out, ignore_errors=True)
        if empty:
            out.mkdir(exist_ok=True)
        raise


def check_new_folder(out: Path) -> None:
    """Raises InputError where a folder is there already, and not empty."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError("out", out, "it exists already", "give the name of a new folder")


# Modules whose releases are told, and the names of their distributions, where those differ.
LIBRARIES = {
    **dict.fromkeys(("torch", "tensorflow", "keras", "jax", "jaxlib", "onnxruntime", "numpy")),
    "cv2": "opencv-python-headless",
    "ai_edge_litert": "ai-edge-litert",
}


def environment_facts() -> dict[str, Any]:
    """Where a recording was made: releases of the loaded libraries, and facts of the machine."""
    from importlib import metadata

    versions = {}
    for module in (name for name in LIBRARIES if name in sys.modules):
        distribution = LIBRARIES[module] or module
        try:
            versions[distribution] = metadata.version(distribution)
        except metadata.PackageNotFoundError:
            versions[distribution] = str(getattr(sys.modules[module], "__version__", "unknown"))
    switches = {}
    # its default goes by the processor: two machines with one release may run other kernels
    if port := sys.modules.get("tensorflow.python.util._pywrap_util_port"):
        chosen = "TF_ENABLE_ONEDNN_OPTS" in os.environ
        switches["tensorflow_onednn"] = onednn_text(port.IsMklEnabled(), chosen)
    facts = machine.facts()
    names = ("machine", "cpu_vendor", "cpu_model", "cpu_isa", "cores", "os", "probe_version")
    environment = {"python": platform.python_version(), "libraries": versions}
    return environment | {name: facts[name] for name in names} | switches


def onednn_text(enabled: bool, chosen: bool) -> str:
    """Whether TensorFlow runs oneDNN's operators, and whether a variable or the processor says."""
    by = "TF_ENABLE_ONEDNN_OPTS" if chosen else "the processor's default"
    return f"{'on' if enabled else 'off'} ({by})"


def _operation_json(op: Operation) -> dict[str, Any]:
    """An operation as JSON has it, with how a user writes it: lines that compute ``y`` from ``x0``,
    ``x1``, ..."""
    written: dict[str, Any] = {}
    if op.lines is not None:
        with suppress(Exception):  # no lines for these operands
            lines = op.lines([f"x{n}" for n in range(len(op.reads))], "y")
            written = {"lines": list(lines), "imports": list(op.imports)}
    return {
        "name": op.name,
        "op": op.op,
        "path": op.path,
        "reads": list(op.reads),
        "gives": list(op.gives),
        "attributes": plain_to_json(dict(op.attributes)),
        "meaning": plain_to_json(op.meaning),
        **written,
    }


UNTRIED = "no code of a recording is run, so no cause was looked for"


def read_recording(folder: str | Path) -> Run:
    """A recording on disk. InputError: the folder is none, or is damaged."""
    return RecordingFolder(Path(folder)).run()


def size_of_values(folder: Path) -> int:
    names = (path for path in folder.iterdir() if NAME.fullmatch(path.name))
    return sum(np.load(path, mmap_mode="r", allow_pickle=False).nbytes for path in names)


class RecordingFolder:
    """The folder of a recording: a ``RunStore`` to record into, or one that is read, as data;
    ``run`` is the recording then.

    ``lines``: how operations are written, by number, and what that imports; text, until a user says
    that it is trusted (:class:`probe.diff.apart.RunnableRecording`).
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines: dict[int, tuple[list[str], list[str]]] = {}
        self.checked: set[str] = set()  # names of files whose bits are known to be theirs

    def put(self, array: np.ndarray, name: str = "") -> str:
        """As of ``RunStore``: writes a file, and holds nothing."""
        name = name or array_digest(array)
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
        document = self._read()
        try:
            return self._filled(document)
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
            document = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise self.broken(f"{FILE} is not JSON ({str(error)[:80]})") from None
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            form = document.get("format") if isinstance(document, dict) else None
            why = f"its format is {form!r}, this release reads {FORMAT}"
            raise InputError("recording", self.folder, why, ANEW)
        if document.get("digest_of_0_to_6") != array_digest(CHECKED):
            why = "its digests are of a different kind from this release's"
            raise InputError("recording", self.folder, why, ANEW)
        return document

    def broken(self, why: str) -> InputError:
        """The error for a folder that is not what it should be."""
        return InputError("recording", self.folder, why, "record it again with probe record")

    def _filled(self, document: dict[str, Any]) -> Run:
        facts = dict(document["made"])
        facts["libraries"] = dict(facts["libraries"])
        left_out = {name: int(document["left_out"][name]) for name in ("values", "bytes")}
        notes = [str(note) for note in document["notes"]]
        provenance = Provenance(self.folder, str(document["subject"]), facts, notes, left_out)
        entries = document["values"]
        unsteady = frozenset(n for n, entry in enumerate(entries) if entry.get("unsteady"))
        values, operations = [self._value(entry) for entry in entries], []
        for number, entry in enumerate(document["operations"]):
            operations.append(self._operation(number, entry, values))
            if "lines" in entry:
                lines, imports = (list(map(str, entry[key])) for key in ("lines", "imports"))
                self.lines[number] = lines, imports
        outputs = _value_numbers(document["outputs"], len(values))
        stored = {v.digest for v in values if not prod(v.shape) or self.has(v.digest)}
        missing = {v.digest for n, v in enumerate(values) if n not in unsteady} - stored
        if len(missing) > left_out["values"]:
            notes.append(f"{self.folder.name}: {len(missing)} of its values are not in the folder")
        plain = tuple(map(str, document.get("plain", ())))  # earlier releases do not have it
        if any(not NAME.fullmatch(f"{name}.npy") for name in plain):
            raise self.broken(f"{plain} are not digests"[:200])
        run = Run(
            *(str(document["target"]), str(document["note"]), values, operations, outputs),
            *(self, unsteady, UNTRIED, provenance),
            plain=plain,
        )
        for number, op in enumerate(operations):  # each value is given before it is read
            early = all(values[n].given < number for n in op.reads)
            if not early or any(values[n].given != number for n in op.gives):
                raise self.broken(f"operation {op.name!r} reads a value that does not exist yet")
        results = {n for op in operations for n in op.gives}
        if any(v.given >= 0 and n not in results for n, v in enumerate(values)):
            raise self.broken("a value is given by no operation")
        for number, value in enumerate(values):
            if value.role == INPUT:  # what is damaged is told before anything is compared
                run.array(number)
        return run

    def _operation(
        self, number: int, entry: Mapping[str, Any], values: Sequence[Value]
    ) -> Operation:
        reads, gives = (_value_numbers(entry[name], len(values)) for name in ("reads", "gives"))
        name, op, path = (printable(str(entry[word])) for word in ("name", "op", "path"))
        meaning, attributes = (plain_from_json(entry[word]) for word in ("meaning", "attributes"))
        if not isinstance(meaning, Meaning):
            meaning = Unknown("it does not say what it computes")
        return Operation(
            op, path, reads, gives, meaning, dict(attributes), name=name, number=number
        )

    def _value(self, entry: Mapping[str, Any]) -> Value:
        shape = tuple(int(n) for n in entry["shape"])
        if any(n < 0 for n in shape) or int(np.prod(shape, dtype=object)) > MOST_ELEMENTS:
            raise self.broken(f"a value has the shape {list(shape)}"[:200])
        dtype, name = str(entry["dtype"]), str(entry["digest"])
        container_dtype(dtype)
        if not NAME.fullmatch(f"{name}.npy"):
            raise self.broken(f"{name[:40]!r} is not a digest")
        address = entry.get("address")  # folders of earlier releases do not have it
        if address is not None and not 0 <= int(address) < layout.BOUNDARY:
            raise self.broken(f"{address} is not an address modulo {layout.BOUNDARY}")
        return Value(
            *(shape, dtype, name, int(entry.get("given", -1))),
            *(str(entry.get("role", "")), printable(str(entry.get("name", "")))),
            address=None if address is None else int(address),
        )

    def file(self, name: str) -> np.ndarray:
        """The bytes of a file's array. InputError: it is not what its name says."""
        if not NAME.fullmatch(name):
            raise self.broken(f"{name[:80]!r} is not a file of a recording")
        path = self.folder / name
        if path.is_symlink() or not path.is_file():
            raise self.broken(f"{name} is missing, or it is a link")
        try:
            loaded = np.load(path, mmap_mode="r", allow_pickle=False)
        except Exception as error:  # tokenize's, struct's: whatever is damaged
            raise self.broken(f"{name} is not an array ({str(error)[:80]})") from None
        if not isinstance(loaded, np.ndarray) or loaded.nbytes > path.stat().st_size:
            raise self.broken(f"{name} has a different size from the recorded one")
        array, digest = np.asarray(loaded), name.removesuffix(".npy")
        if digest not in self.checked and array_digest(array) != digest:
            raise self.broken(f"{name} has different bits from when it was recorded")
        self.checked.add(digest)
        return np.ascontiguousarray(array).reshape(-1).view(np.uint8)

    def bits(self, name: str) -> np.ndarray | None:
        """As of ``RunStore``. InputError: the file isn't what its name says."""
        return self.file(f"{name}.npy") if self.has(name) else None

    def has(self, name: str) -> bool:
        return name in self.checked or (self.folder / f"{name}.npy").exists()


def _value_numbers(entries: Sequence[Any], count: int) -> tuple[int, ...]:
    numbers = tuple(int(n) for n in entries)
    if any(not 0 <= n < count for n in numbers):
        raise ValueError(f"there is no value {max(numbers)}")
    return numbers


# What an operation computes, and its arguments, as JSON has them.


# Numbers and truth values alone: objects would be pickles, and fields of structures have names.
KIND = re.compile(r"[<>|][biuf]\d{1,2}")


# Classes that a folder has by name.
VOCABULARY: dict[str, Any] = {
    each.__name__: each
    for each in (*vars(semantics).values(), Step)
    if isinstance(each, type) and dataclasses.is_dataclass(each)
}


def plain_to_json(value: Any) -> Any:
    """Any plain value as JSON has it, so that ``plain_from_json`` gives the same; of what is not
    plain, a text without addresses."""
    # by its very type: np.float64 is a float too, and so is a member of an enumeration an int
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.ndarray | np.generic) and KIND.fullmatch(value.dtype.str):
        word = "array" if isinstance(value, np.ndarray) else "number"
        return {word: value.tolist(), "dtype": value.dtype.str, "shape": list(value.shape)}
    name = type(value).__name__
    if VOCABULARY.get(name) is type(value):
        # those that have not their default
        pairs = ((field, getattr(value, field.name)) for field in dataclasses.fields(value))
        fields = {field.name: content for field, content in pairs if content is not field.default}
        return {"is": name} | {key: plain_to_json(item) for key, item in fields.items()}
    if isinstance(value, Meaning):  # a library's own, with functions
        why = "a recording on disk can't describe what it computes"
        return plain_to_json(Moves() if isinstance(value, Moves) else Unknown(why))
    if isinstance(value, int):  # of an enumeration
        return int(value)
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, slice):
        return {"slice": list(map(plain_to_json, (value.start, value.stop, value.step)))}
    if isinstance(value, Mapping):
        return {"dict": [list(map(plain_to_json, pair)) for pair in value.items()]}
    if isinstance(value, tuple | list):
        items = list(map(plain_to_json, value))
        return {"tuple": items} if isinstance(value, tuple) else items
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def plain_from_json(entry: Any) -> Any:
    """A value of ``plain_to_json``. ValueError, TypeError, KeyError: it is none."""
    if isinstance(entry, list):
        return list(map(plain_from_json, entry))
    if not isinstance(entry, Mapping):
        return entry
    if "is" in entry:
        kind = VOCABULARY.get(str(entry["is"]))
        if kind is None:
            return Unknown(f"this release does not know {str(entry['is'])[:40]!r}")
        names = [field.name for field in dataclasses.fields(kind)]
        return kind(**{name: plain_from_json(entry[name]) for name in names if name in entry})
    word, value = next(iter(entry.items()))
    if word in ("array", "number"):
        if not KIND.fullmatch(str(entry["dtype"])):
            raise ValueError(f"{str(entry['dtype'])[:40]!r} is not a type of arrays")
        array = np.array(value, entry["dtype"]).reshape(tuple(map(int, entry["shape"])))
        return array if word == "array" else array[()]
    builders: dict[str, Callable[[Any], Any]] = {
        "tuple": tuple,
        "slice": lambda ends: slice(*ends),
        "complex": lambda parts: complex(*parts),
        "dict": dict,
    }
    return builders[word](plain_from_json(value))
