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
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from probe import layout, machine, memory, semantics
from probe.errors import InputError
from probe.recording.recording import (
    Operation,
    Provenance,
    Run,
    Value,
    array_digest,
    container_dtype,
)
from probe.semantics import Map, Mapped, Meaning, Moves, Step, Steps, Unknown

FORMAT, READ = 2, (1, 2)
FILE = "recording.json"
# Bytes of values that a recording keeps unless it is told otherwise.
MOST = 2 << 30

ANEW = "record it again with this release"
MOST_JSON = 1 << 29
MOST_ELEMENTS = 1 << 36
# Bytes that an element of a value takes while two recordings are compared.
LABELLED = 32

NAME = re.compile(r"[0-9a-f]{32,128}\.npy")
# Its digest says whether digests of a folder are of the kind that this release makes.
CHECKED = np.arange(7, dtype=np.uint8)


def write_recording(
    run: Run, out: Path, subject: str = "", most: int = MOST, notes: Sequence[str] = ()
) -> None:
    """Keeps a run in the folder ``out``, which must not exist yet, unless it was recorded into it.

    ``subject``: what was recorded, in words. ``most``: bytes of values. InputError: it exists.
    """
    folder = run.store
    if not isinstance(folder, RecordingFolder) or folder.folder != out:
        check_new_folder(out)
        folder = RecordingFolder(out)
    files = _Files(folder, most)
    for value in run.values:  # first what says which elements must agree
        for array in (value.content, value.zeros):
            if array is not None:
                files.put(array)
    for number, value in enumerate(run.values):
        if not files.met(value.digest) and (array := run.array(number)) is not None:
            files.put(array, value.digest)
    values = []
    for number, value in enumerate(run.values):
        entry: dict[str, Any] = {
            "shape": list(value.shape),
            "dtype": value.dtype,
            "digest": value.digest,
        }
        if value.given >= 0:
            entry["given"] = value.given
        entry |= {name: text for name in ("role", "name") if (text := getattr(value, name))}
        if value.address is not None:
            entry["address"] = value.address
        if value.content is not None:
            entry["content"] = True
        if value.zeros is not None:
            entry["zeros"] = {"file": files.put(value.zeros), "shape": list(value.zeros.shape)}
        if number in run.unsteady:
            entry["unsteady"] = True
        values.append(entry)
    told = {
        "format": FORMAT,
        "digest_of_0_to_6": array_digest(CHECKED),
        "subject": machine.publishable(subject),
        "target": run.target,
        "note": run.note,
        "notes": [machine.publishable(one) for one in notes],
        "made": environment_facts() if run.made is None else dict(run.made.made),
        "values": values,
        "operations": [_operation_json(one, run, files) for one in run.operations],
        "outputs": list(run.outputs),
        "left_out": {"values": len(files.left_out), "bytes": sum(files.left_out.values())},
    }
    if run.alone is not None:
        told["alone"] = {str(number): why for number, why in run.alone.items()}
    folder.only(files.names)
    (out / FILE).write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


@contextmanager
def begin_recording(out: Path) -> Iterator[RecordingFolder]:
    """Gives the new folder of a recording, to record into: every value is written there once, as it
    comes, and is not held. What is not finished goes again. InputError: it exists already."""
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
        name = name or array_digest(array)
        if not array.size or name in self.left_out:
            return None
        if name not in self.names:
            if self.bytes + array.nbytes > self.most:
                self.left_out[name] = array.nbytes
                return None
            self.names.add(self.folder.put(array, name))
            self.bytes += array.nbytes
        return f"{name}.npy"


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


def _operation_json(one: Operation, run: Run, files: _Files) -> dict[str, Any]:
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
        "attributes": plain_to_json(dict(one.attributes), files),
        "meaning": meaning_to_json(one.meaning, shapes[0], shapes[1], files),
        **written,
    }


UNTRIED = "no code of a recording is run, so no cause was looked for"


def read_recording(folder: str | Path) -> Run:
    """Returns a recording on disk. InputError: the folder is none, or is damaged."""
    return RecordingFolder(Path(folder)).run()


def size_of_values(folder: Path) -> int:
    """Returns the bytes of the values in a folder."""
    names = (one for one in folder.iterdir() if NAME.fullmatch(one.name))
    return sum(np.load(one, mmap_mode="r", allow_pickle=False).nbytes for one in names)


class RecordingFolder:
    """The folder of a recording: a ``RunStore`` to record into, or one that is read, as data;
    ``run`` is the recording then.

    ``lines``: how operations are written, by number, and what that imports; text, until a user says
    that it is trusted (:class:`probe.recording.replayed.RunnableRecording`).
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
        if told.get("digest_of_0_to_6") != array_digest(CHECKED):
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
        outputs = _value_numbers(told["outputs"], len(values))
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
        for number, op in enumerate(operations):  # each value is given before it is read
            early = all(values[n].given < number for n in op.reads)
            if not early or any(values[n].given != number for n in op.gives):
                raise self.broken(f"operation {op.name!r} reads a value that does not exist yet")
        known = {n for op in operations for n in op.gives}
        if any(v.given >= 0 and n not in known for n, v in enumerate(values)):
            raise self.broken("a value is given by no operation")
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
        reads, gives = (_value_numbers(told[name], len(values)) for name in ("reads", "gives"))
        computed = told["meaning"]
        if form == 1:
            computed = from_format_1(computed, [values[n].shape for n in gives])
        attributes = told["attributes"] if form == 1 else plain_from_json(told["attributes"], self)
        name, op, path = (str(told[word]) for word in ("name", "op", "path"))
        meaning = meaning_from_json(computed, self)
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

    def _value(self, one: Mapping[str, Any]) -> Value:
        shape = tuple(int(n) for n in one["shape"])
        if any(n < 0 for n in shape) or int(np.prod(shape, dtype=object)) > MOST_ELEMENTS:
            raise self.broken(f"a value has the shape {list(shape)}"[:200])
        dtype, name = str(one["dtype"]), str(one["digest"])
        container_dtype(dtype)
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
        if named not in self.checked and array_digest(array) != named:
            raise self.broken(f"{name} has different bits from when it was recorded")
        self.checked.add(named)
        return np.ascontiguousarray(array).reshape(-1).view(np.uint8)

    def bits(self, name: str) -> np.ndarray | None:
        """As of ``RunStore``. InputError: the file isn't what its name says."""
        return self.file(f"{name}.npy") if self.has(name) else None

    def has(self, name: str) -> bool:
        return name in self.checked or (self.folder / f"{name}.npy").exists()


def _value_numbers(given: Sequence[Any], count: int) -> tuple[int, ...]:
    found = tuple(int(n) for n in given)
    if any(not 0 <= n < count for n in found):
        raise ValueError(f"there is no value {max(found)}")
    return found


# What an operation computes as JSON has it: for recordings on disk, and between processes.


Shapes = Sequence[tuple[int, ...]]
# Numbers and truth values alone: objects would be pickles, and fields of structures have names.
KIND = re.compile(r"[<>|][biufc]\d{1,2}")
LEFT_OUT = "what it moves or holds was left out for its size"


@dataclass(frozen=True)
class Gathers:
    """What ``Moves.move`` is on disk: ``sources`` has for each result the element that each of its
    elements is: 1 + its number among all that is read, 0 for a zero. Along ``kept`` axes, which
    they don't have, nothing moves."""

    sources: tuple[np.ndarray, ...]
    kept: tuple[int, ...]

    @classmethod
    def of(cls, one: Moves, reads: Shapes, gives: Shapes) -> Gathers:
        """Asks a function where it moves elements to."""
        start, indices = 1, []
        for shape in reads:
            small = tuple(min(n, 1) if axis in one.kept else n for axis, n in enumerate(shape))
            indices.append(np.arange(start, start + prod(small), dtype=np.uint64).reshape(small))
            start += prod(small)
        moved = one.move(*indices)
        every = moved if isinstance(moved, tuple | list) else (moved,)
        kind, sources = np.uint32 if start < 1 << 32 else np.uint64, []
        for array, shape in zip(every, gives, strict=True):
            small = tuple(n for axis, n in enumerate(shape) if axis not in one.kept)
            plain = np.asarray(array).astype(kind)
            sources.append(plain.reshape(small) if plain.size else np.zeros(small, kind))
        return cls(tuple(sources), one.kept)

    def __call__(self, *reads: np.ndarray) -> list[np.ndarray]:
        last, lines, sizes = tuple(range(-len(self.kept), 0)), [], ()
        for one in reads:
            turned = np.moveaxis(one, self.kept, last)
            sizes = turned.shape[turned.ndim - len(self.kept) :]
            lines.append(turned.reshape(-1, *sizes))
        kind = reads[0].dtype if reads else np.dtype(np.uint64)
        every = np.concatenate([np.zeros((1, *sizes), kind), *lines])
        if any(one.size and int(one.max()) >= len(every) for one in self.sources):
            raise InputError("recording", "", "it says that an element comes from nowhere", "")
        return [np.moveaxis(every[index], last, self.kept) for index in self.sources]


# Classes that a folder has by name.
VOCABULARY: dict[str, Any] = {
    each.__name__: each
    for each in (*vars(semantics).values(), Step, Map, Gathers)
    if isinstance(each, type) and (dataclasses.is_dataclass(each) or each is Map)
}


def meaning_to_json(one: Meaning, reads: Shapes, gives: Shapes, files: _Files) -> dict[str, Any]:
    """Returns what an operation computes as JSON has it. ``reads``, ``gives``: the shapes of what
    it reads and gives."""
    found: dict[str, Any] = plain_to_json(_without_functions(one, reads, gives), files)
    return found


def _without_functions(one: Meaning, reads: Shapes, gives: Shapes) -> Meaning:
    """Returns the same without functions: what they are asked for is written down."""
    one = one.written(reads, gives)
    if VOCABULARY.get(type(one).__name__) is not type(one):
        return Unknown("a recording on disk can't describe what it computes")
    if isinstance(one, Steps):
        shapes, steps = list(reads), []
        for step in one.steps:
            given = [step.shape, *step.more]
            inner = _without_functions(step.meaning, [shapes[n] for n in step.reads], given)
            steps.append(dataclasses.replace(step, meaning=inner))
            shapes += given
        return dataclasses.replace(one, steps=tuple(steps))
    found: dict[str, Any] = {}
    for each in dataclasses.fields(one):  # type: ignore[arg-type]
        value = getattr(one, each.name)
        if isinstance(value, Meaning):
            found[each.name] = _without_functions(value, reads, gives)
        elif callable(value) and value is not each.default and not isinstance(value, Gathers):
            assert isinstance(one, Moves)
            found[each.name] = Gathers.of(one, reads, gives)
    return dataclasses.replace(one, **found) if found else one  # type: ignore[type-var]


def plain_to_json(value: Any, files: _Files) -> Any:
    """Returns any plain value as JSON has it, so that ``plain_from_json`` gives the same; of what
    is not plain, a text without addresses."""
    # by its very type: np.float64 is a float too, and so is a member of an enumeration an int
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.ndarray) and KIND.fullmatch(value.dtype.str):
        # one element if all are alike: masks, weights of ones
        rows = np.ascontiguousarray(value).reshape(-1).view(np.uint8).reshape(-1, value.itemsize)
        alike = value.size > 1 and bool((rows == rows[:1]).all())
        kept = files.put(value.reshape(-1)[:1] if alike else value) if value.size else ""
        told = {"file": kept, "shape": list(value.shape), "dtype": value.dtype.str}
        return told | ({"alike": True} if alike else {})
    if isinstance(value, np.generic) and KIND.fullmatch(value.dtype.str):
        return {"number": plain_to_json(value.item(), files), "dtype": value.dtype.str}
    name = type(value).__name__
    if VOCABULARY.get(name) is type(value):
        fields = value._asdict() if isinstance(value, Map) else _fields(value)
        return {"is": name} | {key: plain_to_json(one, files) for key, one in fields.items()}
    if isinstance(value, int):  # of an enumeration
        return int(value)
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, slice):
        return {
            "slice": [plain_to_json(one, files) for one in (value.start, value.stop, value.step)]
        }
    if isinstance(value, Mapping):
        return {"dict": [[plain_to_json(one, files) for one in pair] for pair in value.items()]}
    if isinstance(value, tuple | list):
        every = [plain_to_json(one, files) for one in value]
        return {"tuple": every} if isinstance(value, tuple) else every
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def _fields(value: Any) -> dict[str, Any]:
    """Returns the fields of a dataclass that have not their default."""
    both = ((each, getattr(value, each.name)) for each in dataclasses.fields(value))
    return {each.name: one for each, one in both if one is not each.default}


class _LeftOut(Exception):
    """There was no room for an array."""


def plain_from_json(told: Any, folder: RecordingFolder) -> Any:
    """Returns a value of ``plain_to_json``. InputError, ValueError, TypeError, KeyError: it is
    none."""
    if isinstance(told, list):
        return [plain_from_json(one, folder) for one in told]
    if not isinstance(told, Mapping):
        return told
    if "is" in told:
        return _vocabulary_object(told, folder)
    if "file" in told:
        kind, shape = (
            np.dtype(_checked_dtype(told["dtype"], folder)),
            tuple(map(int, told["shape"])),
        )
        if told["file"] is None:
            raise _LeftOut
        size = prod(shape) if all(n >= 0 for n in shape) else -1
        bits = folder.file(str(told["file"])) if told["file"] else np.zeros(0, np.uint8)
        if bits.size != (1 if told.get("alike") else size) * kind.itemsize:
            raise folder.broken("an array of a meaning is not as large as it says")
        found = bits.view(kind)
        return np.broadcast_to(found, shape) if told.get("alike") else found.reshape(shape)
    (word, value), *more = told.items()
    read = lambda some: [plain_from_json(one, folder) for one in some]  # noqa: E731
    if word == "number":
        return np.dtype(_checked_dtype(more[0][1], folder)).type(plain_from_json(value, folder))
    ways: dict[str, Callable[[], Any]] = {
        "tuple": lambda: tuple(read(value)),
        "slice": lambda: slice(*read(value)),
        "complex": lambda: complex(*read(value)),
        "dict": lambda: dict(map(read, value)),
    }
    return ways[word]()


def _vocabulary_object(told: Mapping[str, Any], folder: RecordingFolder) -> Any:
    """Returns an object of :mod:`probe.semantics`; ``Unknown`` of what this release lacks."""
    kind = VOCABULARY.get(str(told["is"]))
    if kind is None:
        return Unknown(f"this release does not know {str(told['is'])[:40]!r}")
    names = kind._fields if kind is Map else [each.name for each in dataclasses.fields(kind)]
    try:
        made = kind(**{name: plain_from_json(told[name], folder) for name in names if name in told})
    except _LeftOut:
        if not issubclass(kind, Meaning):
            raise
        return Unknown(LEFT_OUT)
    if isinstance(made, Map):
        return made._replace(constants=np.broadcast_to(made.constants, made.source.shape))
    if isinstance(made, Mapped):
        moved = sum(map(prod, made.shapes))
        for one in made.maps:
            if one.source.size and not -1 <= int(one.source.min()) <= one.source.max() < moved:
                raise folder.broken("a movement says that an element comes from nowhere")
    return made


def _checked_dtype(dtype: Any, folder: RecordingFolder) -> str:
    if not KIND.fullmatch(str(dtype)):
        raise folder.broken(f"{str(dtype)[:40]!r} is not a type of arrays")
    return str(dtype)


def meaning_from_json(told: Mapping[str, Any], folder: RecordingFolder) -> Meaning:
    """Returns what an operation computes. Raises InputError."""
    found = plain_from_json(told, folder)
    return found if isinstance(found, Meaning) else Unknown("it does not say what it computes")


def from_format_1(told: Any, gives: Shapes) -> Any:
    """Returns an operation's JSON of format 1 in format 2; ``gives``: the shapes of its results.

    Format 1 wrote tuples as lists, and had its own keys for each of four classes.
    """
    if isinstance(told, list):
        return {"tuple": [from_format_1(one, gives) for one in told]}
    if not isinstance(told, Mapping):
        return told
    kind, rest = told.get("is"), {k: v for k, v in told.items() if k != "is"}
    if kind == "Moves":
        kept = told["kept"]
        arrays = [
            {
                "file": one["file"],
                "shape": [n for axis, n in enumerate(shape) if axis not in kept],
                "dtype": f"<u{int(one['bits']) // 8}",
            }
            for one, shape in zip(told["from"], gives, strict=True)
        ]
        move = {"is": "Gathers", "sources": {"tuple": arrays}, "kept": {"tuple": kept}}
        return {"is": kind, "move": move, "kept": {"tuple": kept}}
    if kind == "Holds":
        return {"is": kind, "content": rest}
    if kind == "Steps":
        steps = [
            {"is": "Step"}
            | {k: from_format_1(v, [one["shape"], *one.get("more", [])]) for k, v in one.items()}
            for one in told["steps"]
        ]
        return {"is": kind, "steps": {"tuple": steps}, "gives": from_format_1(told["gives"], gives)}
    if kind == "Mapped":
        rest["maps"] = [{"is": "Map", **one} for one in told["maps"]]
    if "file" in told:
        return dict(told)
    found = {} if kind is None else {"is": kind}
    return found | {key: from_format_1(one, gives) for key, one in rest.items()}


def tupled(value: Any) -> Any:
    """JSON's lists as tuples."""
    return tuple(map(tupled, value)) if isinstance(value, list) else value
