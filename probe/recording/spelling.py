"""What an operation computes as JSON has it: for recordings on disk, and between processes.

Everything that says it is a frozen dataclass of plain values, of arrays, and of others; one
converter writes them all and reads them again as they were. Where elements are moved by a function,
arrays say where each is from. What a stranger's folder names is data: only classes of
:mod:`probe.semantics` are made of it.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

import numpy as np

from probe import semantics
from probe.errors import InputError
from probe.semantics import Map, Mapped, Meaning, Moves, Step, Steps, Unknown


class Files(Protocol):
    """Where arrays are kept."""

    def put(self, array: np.ndarray) -> str | None:
        """Keeps an array: the name of its file; None where there is no room for it."""


class ArrayFolder(Protocol):
    """Where kept arrays are read."""

    def file(self, name: str) -> np.ndarray:
        """Returns the bytes of a file's array. Raises InputError."""

    def broken(self, why: str) -> InputError:
        """Returns the error for a folder that is not what it should be."""


Shapes = Sequence[tuple[int, ...]]
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


VOCABULARY: dict[str, Any] = {
    each.__name__: each
    for each in (*vars(semantics).values(), Step, Map, Gathers)
    if isinstance(each, type) and (dataclasses.is_dataclass(each) or each is Map)
}
"""Classes that a folder has by name."""


def spelled(one: Meaning, reads: Shapes, gives: Shapes, files: Files) -> dict[str, Any]:
    """Returns what an operation computes as JSON has it. ``reads``, ``gives``: the shapes of what
    it reads and gives."""
    found: dict[str, Any] = packed(_written(one, reads, gives), files)
    return found


def _written(one: Meaning, reads: Shapes, gives: Shapes) -> Meaning:
    """Returns the same without functions: what they are asked for is written down."""
    one = one.written(reads, gives)
    if VOCABULARY.get(type(one).__name__) is not type(one):
        return Unknown("a recording on disk can't describe what it computes")
    if isinstance(one, Steps):
        shapes, steps = list(reads), []
        for step in one.steps:
            given = [step.shape, *step.more]
            inner = _written(step.meaning, [shapes[n] for n in step.reads], given)
            steps.append(dataclasses.replace(step, meaning=inner))
            shapes += given
        return dataclasses.replace(one, steps=tuple(steps))
    found: dict[str, Any] = {}
    for each in dataclasses.fields(one):  # type: ignore[arg-type]
        value = getattr(one, each.name)
        if isinstance(value, Meaning):
            found[each.name] = _written(value, reads, gives)
        elif callable(value) and value is not each.default and not isinstance(value, Gathers):
            assert isinstance(one, Moves)
            found[each.name] = Gathers.of(one, reads, gives)
    return dataclasses.replace(one, **found) if found else one  # type: ignore[type-var]


def packed(value: Any, files: Files) -> Any:
    """Returns any plain value as JSON has it, so that ``unpacked`` gives the same; of what is not
    plain, a text without addresses."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.ndarray) and KIND.fullmatch(value.dtype.str):
        return _array(value, files)
    if isinstance(value, np.generic) and KIND.fullmatch(value.dtype.str):
        return {"number": packed(value.item(), files), "dtype": value.dtype.str}
    name = type(value).__name__
    if VOCABULARY.get(name) is type(value):
        fields = value._asdict() if isinstance(value, Map) else _fields(value)
        return {"is": name} | {key: packed(one, files) for key, one in fields.items()}
    if isinstance(value, int):  # of an enumeration
        return int(value)
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, slice):
        return {"slice": [packed(one, files) for one in (value.start, value.stop, value.step)]}
    if isinstance(value, Mapping):
        return {"dict": [[packed(one, files) for one in pair] for pair in value.items()]}
    if isinstance(value, tuple | list):
        every = [packed(one, files) for one in value]
        return {"tuple": every} if isinstance(value, tuple) else every
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def _fields(value: Any) -> dict[str, Any]:
    """Returns the fields of a dataclass that have not their default."""
    both = ((each, getattr(value, each.name)) for each in dataclasses.fields(value))
    return {each.name: one for each, one in both if one is not each.default}


def _array(array: np.ndarray, files: Files) -> dict[str, Any]:
    """Returns an array by the name of its file, which has one element if all are alike."""
    bits = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    rows = bits.reshape(-1, array.itemsize)
    alike = array.size > 1 and bool((rows == rows[:1]).all())
    name = files.put(array.reshape(-1)[:1] if alike else array) if array.size else ""
    told = {"file": name, "shape": list(array.shape), "dtype": array.dtype.str}
    return told | ({"alike": True} if alike else {})


class _LeftOut(Exception):
    """There was no room for an array."""


def unpacked(told: Any, folder: ArrayFolder) -> Any:
    """Returns a value of ``packed``. InputError, ValueError, TypeError, KeyError: it is none."""
    if isinstance(told, list):
        return [unpacked(one, folder) for one in told]
    if not isinstance(told, Mapping):
        return told
    if "is" in told:
        return _made(told, folder)
    if "file" in told:
        return _held(told, folder)
    (word, value), *more = told.items()
    read = lambda some: [unpacked(one, folder) for one in some]  # noqa: E731
    if word == "number":
        return np.dtype(_kind(more[0][1], folder)).type(unpacked(value, folder))
    ways: dict[str, Callable[[], Any]] = {
        "tuple": lambda: tuple(read(value)),
        "slice": lambda: slice(*read(value)),
        "complex": lambda: complex(*read(value)),
        "dict": lambda: dict(map(read, value)),
    }
    return ways[word]()


def _made(told: Mapping[str, Any], folder: ArrayFolder) -> Any:
    """Returns an object of :mod:`probe.semantics`; ``Unknown`` of what this release lacks."""
    kind = VOCABULARY.get(str(told["is"]))
    if kind is None:
        return Unknown(f"this release does not know {str(told['is'])[:40]!r}")
    names = kind._fields if kind is Map else [each.name for each in dataclasses.fields(kind)]
    try:
        made = kind(**{name: unpacked(told[name], folder) for name in names if name in told})
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


def _kind(dtype: Any, folder: ArrayFolder) -> str:
    if not KIND.fullmatch(str(dtype)):
        raise folder.broken(f"{str(dtype)[:40]!r} is not a type of arrays")
    return str(dtype)


def _held(told: Mapping[str, Any], folder: ArrayFolder) -> np.ndarray:
    """Returns an array of ``_array``."""
    kind, shape = np.dtype(_kind(told["dtype"], folder)), tuple(int(n) for n in told["shape"])
    if told["file"] is None:
        raise _LeftOut
    size = prod(shape) if all(n >= 0 for n in shape) else -1
    bits = folder.file(str(told["file"])) if told["file"] else np.zeros(0, np.uint8)
    if bits.size != (1 if told.get("alike") else size) * kind.itemsize:
        raise folder.broken("an array of a meaning is not as large as it says")
    found = bits.view(kind)
    return np.broadcast_to(found, shape) if told.get("alike") else found.reshape(shape)


def meant(told: Mapping[str, Any], folder: ArrayFolder) -> Meaning:
    """Returns what an operation computes. Raises InputError."""
    found = unpacked(told, folder)
    return found if isinstance(found, Meaning) else Unknown("it does not say what it computes")


def upgraded(told: Any, gives: Shapes) -> Any:
    """Returns the JSON of an operation of format 1 in that of format 2; ``gives``: the shapes of
    what it gives. Format 1 had no word for tuples, and one of its own for each of four classes."""
    if isinstance(told, list):
        return {"tuple": [upgraded(one, gives) for one in told]}
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
            | {k: upgraded(v, [one["shape"], *one.get("more", [])]) for k, v in one.items()}
            for one in told["steps"]
        ]
        return {"is": kind, "steps": {"tuple": steps}, "gives": upgraded(told["gives"], gives)}
    if kind == "Mapped":
        rest["maps"] = [{"is": "Map", **one} for one in told["maps"]]
    if "file" in told:
        return dict(told)
    found = {} if kind is None else {"is": kind}
    return found | {key: upgraded(one, gives) for key, one in rest.items()}


def tupled(value: Any) -> Any:
    """JSON's lists as tuples."""
    return tuple(map(tupled, value)) if isinstance(value, list) else value
