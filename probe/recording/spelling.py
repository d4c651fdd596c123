"""What an operation means, as JSON has it: for recordings on disk.

Every meaning is a dataclass of plain numbers and words, but those that move elements by a function:
of them a file says where every element comes from. What has no word here is read as unknown.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from probe import semantics as meaning
from probe.errors import InputError
from probe.semantics import Holds, Map, Mapped, Meaning, Moves, Step, Steps, Unknown


class Files(Protocol):
    """Where arrays are kept."""

    def put(self, array: np.ndarray) -> str | None:
        """Keeps an array: the name of its file; None where there is no room for it."""


class Folder(Protocol):
    """Where kept arrays are read."""

    def file(self, name: str) -> np.ndarray:
        """Returns the bytes of a file's array. Raises InputError."""

    def broken(self, why: str) -> InputError:
        """Returns the error for a folder that is not what it should be."""


Shapes = Sequence[tuple[int, ...]]
KIND = re.compile(r"[<>|][biuf][1248]")
VOCABULARY: dict[str, type[Meaning]] = {
    name: each
    for name, each in vars(meaning).items()
    if isinstance(each, type) and issubclass(each, Meaning) and each not in (Meaning, meaning.Exact)
}
"""Meanings that a folder has by name."""

WORDLESS = {"is": "Unknown", "why": "a recording on disk can't describe what it computes"}


def spelled(one: Meaning, reads: Shapes, gives: Shapes, files: Files) -> dict[str, Any]:
    """Returns a meaning as JSON has it. ``Moves`` becomes a file of where every element is from.

    ``reads``, ``gives``: the shapes of what the operation reads and gives.
    """
    one = one.written(reads, gives)
    if type(one) is Moves:
        return _moved(one, reads, gives, files)
    if isinstance(one, Steps):
        return _steps(one, reads, files)
    if isinstance(one, Holds):
        return {"is": "Holds", **_kept(one.content, files)}
    if isinstance(one, Mapped):
        maps = [{"source": _kept(m.source, files), "constants": _few(m, files)} for m in one.maps]
        return {"is": "Mapped", "data": list(one.data), "shapes": one.shapes, "maps": maps}
    if VOCABULARY.get(type(one).__name__) is not type(one):
        return WORDLESS
    found: dict[str, Any] = {"is": type(one).__name__}
    for each in dataclasses.fields(one):  # type: ignore[arg-type]
        value = getattr(one, each.name)
        if value is each.default:
            continue
        if isinstance(value, Meaning) and type(value) is not Moves:
            found[each.name] = spelled(value, reads, gives, files)
        elif callable(value) or isinstance(value, Meaning):
            return WORDLESS
        else:
            found[each.name] = json.loads(json.dumps(value, default=words))
    return found


def _few(one: Map, files: Files) -> dict[str, Any]:
    """Returns constants, as one number where they are the same everywhere."""
    flat = np.ascontiguousarray(one.constants).reshape(-1)
    bits = flat.view(np.uint8).reshape(flat.size, -1)
    alike = flat.size > 0 and bool((bits == bits[:1]).all())
    return _kept(flat[0] if alike else one.constants, files)


def _kept(array: np.ndarray, files: Files) -> dict[str, Any]:
    """Returns an array of a meaning, in a file: its shape and type beside its name."""
    name = files.put(np.ascontiguousarray(array)) if array.size else ""
    return {"file": name, "shape": list(array.shape), "dtype": array.dtype.str}


def _held(told: Mapping[str, Any], stored: Folder) -> np.ndarray | None:
    """Returns the array of ``_kept``; None where there was no room for it. Raises InputError."""
    kind, shape = str(told["dtype"]), tuple(int(n) for n in told["shape"])
    if not KIND.fullmatch(kind):
        raise stored.broken(f"{kind[:40]!r} is not a type of arrays")
    if told["file"] is None:
        return None
    size = int(np.prod(shape, dtype=object)) if all(n >= 0 for n in shape) else -1
    bits = stored.file(str(told["file"])) if told["file"] else np.zeros(0, np.uint8)
    if bits.size != size * np.dtype(kind).itemsize:
        raise stored.broken("an array of a meaning is not as large as it says")
    return bits.view(np.dtype(kind)).reshape(shape)


def _steps(one: Steps, reads: Shapes, files: Files) -> dict[str, Any]:
    shapes, steps = list(reads), []
    for step in one.steps:
        gives = [step.shape, *step.more]
        told: dict[str, Any] = {
            "meaning": spelled(step.meaning, [shapes[n] for n in step.reads], gives, files),
            "reads": list(step.reads),
            "shape": list(step.shape),
        }
        told |= {"more": list(map(list, step.more))} if step.more else {}
        told |= {"op": list(step.op)} if step.op else {}
        told |= {"zeros": _kept(step.zeros, files)} if step.zeros is not None else {}
        steps.append(told)
        shapes += gives
    return {"is": "Steps", "steps": steps, "gives": list(one.gives)}


def _moved(one: Moves, reads: Shapes, gives: Shapes, files: Files) -> dict[str, Any]:
    """Returns the element that each output is: 1 + its number among all that is read, 0 for a zero.

    Along ``kept`` axes nothing moves, and they are left out.
    """
    start, indices = 1, []
    for shape in reads:
        small = _without(shape, one.kept)
        size = int(np.prod(small, dtype=int))
        indices.append(np.arange(start, start + size, dtype=np.uint64).reshape(small))
        start += size
    moved = one.move(*indices)
    every = moved if isinstance(moved, tuple | list) else (moved,)
    kind = np.uint32 if start < 1 << 32 else np.uint64
    names = []
    for array, shape in zip(every, gives, strict=True):
        small = _without(shape, one.kept)
        plain = np.broadcast_to(np.asarray(array).reshape(small), small).astype(kind)
        names.append({"file": files.put(plain) if plain.size else "", "bits": kind(0).itemsize * 8})
    if any(name["file"] is None for name in names):
        return {"is": "Unknown", "why": "where its elements come from was left out for its size"}
    return {"is": "Moves", "from": names, "kept": list(one.kept)}


def _without(shape: tuple[int, ...], kept: Sequence[int]) -> tuple[int, ...]:
    return tuple(min(n, 1) if axis in kept else n for axis, n in enumerate(shape))


def meant(told: Mapping[str, Any], shapes: Shapes, stored: Folder) -> Meaning:
    """Returns the meaning of an operation that gives values of these shapes. Raises InputError."""
    kind = str(told["is"])
    if kind == "Moves":
        return Moves(_From(stored, told, shapes), tupled(told["kept"]))
    if kind == "Steps":
        steps = tuple(_step(one, stored) for one in told["steps"])
        return Steps(steps, tupled(told["gives"]))
    if kind == "Mapped":
        return _mapped(told, stored)
    if kind == "Holds":
        content = _held(told, stored)
        return (
            Unknown("its content was left out for its size") if content is None else Holds(content)
        )
    found = VOCABULARY.get(kind)
    if found is None:
        return Unknown(f"this release does not know {kind[:40]!r}")
    known = {each.name for each in dataclasses.fields(found)}  # type: ignore[arg-type]
    return found(**{k: _field(v, shapes, stored) for k, v in told.items() if k in known - {"move"}})


def _mapped(told: Mapping[str, Any], stored: Folder) -> Meaning:
    maps, moved = [], sum(int(np.prod(one, dtype=object)) for one in told["shapes"])
    for one in told["maps"]:
        index, constants = _held(one["source"], stored), _held(one["constants"], stored)
        if index is None or constants is None:
            return Unknown("where its elements come from was left out for its size")
        if index.size and not -1 <= int(index.min()) <= int(index.max()) < moved:
            raise stored.broken("a movement says that an element comes from nowhere")
        maps.append(Map(index, np.broadcast_to(constants, index.shape)))
    return Mapped(tupled(told["data"]), tupled(told["shapes"]), tuple(maps))


def _field(value: Any, shapes: Shapes, stored: Folder) -> Any:
    """Returns a field of a meaning, which may be a meaning itself."""
    if isinstance(value, Mapping):
        return meant(value, shapes, stored)
    return tupled(value)


def _step(told: Mapping[str, Any], stored: Folder) -> Step:
    shape, *more = (tuple(map(int, one)) for one in (told["shape"], *told.get("more", ())))
    made = meant(told["meaning"], [shape, *more], stored)
    zeros = _held(told["zeros"], stored) if "zeros" in told else None
    op = tuple(map(str, told.get("op", ())))
    return Step(made, tupled(told["reads"]), shape, tuple(more), op, zeros)


class _From:
    """Moves elements as a recording says: what ``Moves.move`` is on disk."""

    def __init__(self, stored: Folder, told: Mapping[str, Any], shapes: Shapes) -> None:
        self.stored, self.shapes = stored, shapes
        self.kept = tupled(told["kept"])
        self.names = [(str(one["file"]), int(one["bits"])) for one in told["from"]]
        if len(self.names) != len(shapes) or any(bits not in (32, 64) for _, bits in self.names):
            raise stored.broken("a move has not as many files as outputs")

    def __call__(self, *reads: np.ndarray) -> list[np.ndarray]:
        last = tuple(range(-len(self.kept), 0))
        lines, sizes = [], ()
        for one in reads:
            turned = np.moveaxis(one, self.kept, last)
            sizes = turned.shape[turned.ndim - len(self.kept) :]
            lines.append(turned.reshape(-1, *sizes))
        kind = reads[0].dtype if reads else np.dtype(np.uint64)
        every = np.concatenate([np.zeros((1, *sizes), kind), *lines])
        found = []
        for (name, bits), shape in zip(self.names, self.shapes, strict=True):
            small = tuple(n for axis, n in enumerate(shape) if axis not in self.kept)
            index = self._index(name, bits).reshape(small)
            if index.size and int(index.max()) >= len(every):
                raise self.stored.broken(f"{name} says that an element comes from nowhere")
            found.append(np.moveaxis(every[index], last, self.kept))
        return found

    def _index(self, name: str, bits: int) -> np.ndarray:
        if not name:
            return np.zeros(0, np.uint32)
        return self.stored.file(name).view(np.uint32 if bits == 32 else np.uint64)


def words(value: object) -> object:
    """What JSON has no word for: NumPy's numbers and arrays, else a text without addresses."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))


def tupled(value: Any) -> Any:
    """JSON's lists as tuples."""
    return tuple(map(tupled, value)) if isinstance(value, list) else value
