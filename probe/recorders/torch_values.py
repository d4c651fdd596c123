"""Which value a tensor is: by its memory, how often that was changed, and where in it it lies.

Views share memory, and a change through one of them changes all others: each is another value from
then on, put together from what was there and what was written. Addresses are never mistaken for
each other: of every memory that a run meets a weak reference is kept until it has died, and each
has a number of its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from probe.errors import InputError
from probe.recording.contract import CONSTANT, INPUT, WEIGHT, Event, Seen, Visit
from probe.recording.labels import Labels, joined, tag
from probe.recording.meaning import Moves, Shapes, Unknown

MOST = 1 << 22
"""Elements up to which it is worked out which of them a change through a view reached."""

SWEEP, SWEEP_ALL = 8, 128
"""Memories that are met between two looks for those that have died: among those that the run made,
and among weights and inputs too, of which few ever do."""

PLACES = 16
"""Elements by which operands of a run alone may be out of step with their allocation (64 bytes)."""


PLAIN = (torch.Tensor, torch.nn.Parameter)
ALIGNMENT = 64
"""Bytes to which PyTorch aligns memory on a CPU: a kernel may choose by them."""

INTEGERS = {
    torch.float16: torch.int16,
    torch.bfloat16: torch.int16,
    torch.float32: torch.int32,
    torch.float64: torch.int64,
}
"""Formats of numbers, and integers of the same size, as which NumPy copies them."""

NUMBERS = "return tensors of a device that computes, such as the CPU"

DIRECT = {torch.float32, torch.float64, torch.float16, torch.int64, torch.int32, torch.bool}
"""Types of numbers that NumPy has as they lie in memory."""


BYTES = {
    kind
    for name in dir(torch)
    if "float8" in name or "float4" in name
    for kind in [getattr(torch, name)]
    if isinstance(kind, torch.dtype)
}
"""Types of numbers that NumPy has not: their bits are compared, as bytes."""


def array(tensor: torch.Tensor) -> np.ndarray:
    """Returns a tensor's bits as a container array, a view of them where there can be one."""
    direct = type(tensor) in PLAIN and tensor.is_cpu and tensor.dtype in DIRECT
    if direct and tensor.layout == torch.strided and not (tensor.is_nested or tensor.is_neg()):
        return tensor.detach().numpy() if tensor.requires_grad else tensor.numpy()
    plain = tensor.detach()
    if plain.is_nested:
        plain = torch.nested.to_padded_tensor(plain, 0.0)
    if plain.layout != torch.strided:
        plain = plain.to_dense()
    if plain.is_meta:
        raise InputError("function", "a meta tensor", "it has a shape and no numbers", NUMBERS)
    plain = plain.cpu().resolve_conj().resolve_neg()
    if plain.is_quantized:
        plain = plain.int_repr()
    if plain.dtype == torch.bfloat16:
        return (
            plain.view(torch.uint16).numpy()
            if plain.dim()
            else plain.reshape(1).view(torch.uint16).numpy().reshape(())
        )
    if plain.dtype in BYTES:
        return plain.contiguous().reshape(-1).view(torch.uint8).numpy().reshape(plain.shape)
    return plain.numpy()


def tensors(found: Any) -> list[torch.Tensor]:
    """Returns the tensors in whatever a function returned: in tuples, in dictionaries by key,
    dataclasses and objects with attributes, such as the outputs of transformers' models."""
    if isinstance(found, torch.Tensor):
        return [found]
    every: list[torch.Tensor] = []
    _gather(found, every, set())
    return every


def _gather(found: Any, every: list[torch.Tensor], met: set[int]) -> None:
    if isinstance(found, torch.Tensor):
        every.append(found)
    elif isinstance(found, dict):
        for name in sorted(found, key=str):  # two runs may put the same names in another order
            _gather(found[name], every, met)
    elif isinstance(found, list | tuple | set | frozenset):
        for one in found:
            _gather(one, every, met)
    elif hasattr(found, "__dict__") and not isinstance(found, torch.nn.Module | type):
        if id(found) in met:
            return
        met.add(id(found))
        _gather(vars(found), every, met)


def shape(tensor: torch.Tensor) -> tuple[int, ...]:
    """Returns a tensor's shape; of sequences of several lengths, packed, that of all, padded."""
    return tuple(array(tensor).shape if tensor.is_nested else tensor.shape)


def dtype(tensor: torch.Tensor) -> str:
    """Returns NumPy's name of a tensor's numbers."""
    return _named(tensor.dtype)


@cache
def _named(kind: torch.dtype) -> str:
    return "uint8" if kind in BYTES else str(kind).removeprefix("torch.")


class Slot(NamedTuple):
    """The place of an operand in a call. ``number``: which of the arrays that are read, None where
    it isn't read, but written or asked for its shape."""

    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    offset: int
    dtype: torch.dtype
    device: torch.device
    number: int | None = None


def slot_of(tensor: torch.Tensor, number: int | None = None) -> Slot:
    """Returns how a tensor lies in memory."""
    plain = tensor.layout == torch.strided and not tensor.is_nested
    strides = tuple(tensor.stride()) if plain else None
    offset = tensor.storage_offset() % PLACES if plain else 0
    shape = tuple(tensor.shape) if not tensor.is_nested else ()
    return Slot(shape, strides, offset, tensor.dtype, tensor.device, number)


def placed(bits: np.ndarray, slot: Slot) -> torch.Tensor:
    """Returns a new tensor of these container bits that lies in memory as ``slot`` did."""
    plain = np.ascontiguousarray(bits).reshape(np.shape(bits))
    if slot.dtype == torch.bfloat16 and plain.dtype == np.uint16:
        values = torch.from_numpy(plain.copy()).view(torch.bfloat16)
    elif slot.dtype in BYTES:
        return torch.from_numpy(plain.copy()).view(slot.dtype).to(slot.device)
    else:
        values = torch.from_numpy(plain.copy()).to(slot.dtype)
    strides = slot.strides
    if strides is None or len(strides) != values.dim():
        return values.to(slot.device)
    if tuple(values.shape) != slot.shape:
        strides = _dense(tuple(values.shape), strides)
    wide = [1 if step == 0 else n for n, step in zip(values.shape, strides, strict=True)]
    for axis, n in enumerate(wide):  # what was broadcast stays so if it still is the same
        first = values.narrow(axis, 0, 1) if values.shape[axis] else values
        if n != values.shape[axis] and not torch.equal(first.expand_as(values), values):
            strides, wide = _dense(tuple(values.shape), strides), list(values.shape)
            break
    size = sum((n - 1) * step for n, step in zip(wide, strides, strict=True)) + 1
    if 0 in values.shape:
        return values.to(slot.device)
    memory = _memory(slot, slot.offset + size)
    view = memory.as_strided(wide, strides, slot.offset)
    part = values[tuple(slice(n) for n in wide)] if wide else values
    if slot.device.type == "cpu" and slot.dtype in INTEGERS:
        as_integers = INTEGERS[slot.dtype]
        np.copyto(view.view(as_integers).numpy(), part.view(as_integers).numpy())
    else:
        view.copy_(part)
    return view.expand(values.shape)


def _memory(slot: Slot, count: int) -> torch.Tensor:
    """Returns zeros for so many numbers.

    On a CPU NumPy makes them, aligned as PyTorch's own, and copies into them: calls are made by the
    thousand, and PyTorch's threads would wait for each other on a processor that has other work.
    """
    if slot.device.type != "cpu":
        return torch.zeros(count, dtype=slot.dtype, device=slot.device)
    size = count * slot.dtype.itemsize
    raw = np.zeros(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    return torch.from_numpy(raw[start : start + size]).view(slot.dtype)


def _dense(shape: tuple[int, ...], strides: Sequence[int]) -> tuple[int, ...]:
    """Strides without gaps, with the axes in the same order in memory."""
    found, step = [0] * len(shape), 1
    for axis in sorted(range(len(shape)), key=lambda a: (strides[a], -a)):
        found[axis] = step
        step *= max(shape[axis], 1)
    return tuple(found)


class Geometry(NamedTuple):
    """Where in its memory a tensor lies."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: str

    def places(self) -> np.ndarray:
        """Returns each element's place in the memory: int64, of ``shape``."""
        found = np.full(self.shape, self.offset, np.int64)
        for axis, (size, step) in enumerate(zip(self.shape, self.strides, strict=True)):
            found += np.arange(size).reshape(-1, *(1,) * (len(self.shape) - axis - 1)) * step
        return found


@dataclass
class Memory:
    """A storage: how often it was changed, and what is known to lie in it.

    ``number``: its own in this run; ``held``: a weak reference; ``given``: whether the run itself
    made it. ``values``: by key, of this change or before; ``parts``: what was written since
    ``cover`` last held all of it. ``hollow``: some of it has not been written yet.
    """

    held: Any
    number: int
    changes: int = 0
    given: bool = False
    hollow: bool = False
    values: dict[Hashable, Geometry] = field(default_factory=dict)
    cover: tuple[Hashable, Geometry] | None = None
    parts: list[tuple[Hashable, Geometry]] = field(default_factory=list)


class _Kept:
    """A tensor that isn't plain memory, which is rare: it is kept alive, so that its id stays."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def expired(self) -> bool:
        """Never."""
        return False


class Place(NamedTuple):
    """What there is to know of a tensor at a moment: its memory, its value's key, and where it
    lies."""

    memory: Memory
    key: Hashable
    geometry: Geometry


class Values:
    """All values of a run, by tensor."""

    def __init__(self, visit: Visit) -> None:
        self.visit = visit
        self.memories: dict[Hashable, Memory] = {}
        self.weights: dict[Hashable, str] = {}
        self.weighed: set[int] = set()
        self.met = 0

    def weigh(self, tensor: torch.Tensor, name: str) -> None:
        """Says that a tensor is a weight, and its name."""
        number = self._memory(tensor).number
        self.weighed.add(number)
        self.weights.setdefault((number, self._geometry(tensor)), name)

    def place(self, tensor: torch.Tensor) -> Place:
        """Returns which value a tensor is now; its ``key`` tells it from every other."""
        memory, geometry = self._memory(tensor), self._geometry(tensor)
        flags = tensor.is_conj(), tensor.is_neg()
        return Place(memory, (memory.number, memory.changes, geometry, flags), geometry)

    def _memory(self, tensor: torch.Tensor) -> Memory:
        if tensor.layout == torch.strided and not tensor.is_nested:
            storage = tensor.untyped_storage()
            place: Hashable = storage._cdata
            memory = self.memories.get(place)
            if memory is None:
                memory = self.memories[place] = Memory(StorageWeakRef(storage), self._next())
        else:
            place = ("object", id(tensor))
            memory = self.memories.get(place)
            if memory is None:
                memory = self.memories[place] = Memory(_Kept(tensor), self._next())
        return memory

    def _next(self) -> int:
        """Returns the next memory's number. Forgets those that have died: else the little that is
        left of each would lie between what is allocated later, and the process would grow."""
        self.met += 1
        if self.met % SWEEP == 0:
            every = self.met % SWEEP_ALL == 0
            dead = [
                place
                for place, one in self.memories.items()
                if (every or one.given) and one.held.expired()
            ]
            for place in dead:
                del self.memories[place]
        return self.met

    @staticmethod
    def _geometry(tensor: torch.Tensor) -> Geometry:
        if tensor.layout != torch.strided or tensor.is_nested:
            return Geometry((), (), 0, dtype(tensor))
        shape, strides = tuple(tensor.shape), tensor.stride()
        if 1 in shape:  # their steps say nothing
            strides = tuple(0 if n == 1 else s for n, s in zip(shape, strides, strict=True))
        return Geometry(shape, strides, tensor.storage_offset(), dtype(tensor))

    def seen(self, tensor: torch.Tensor, path: str = "", changes: bool = False) -> Seen:
        """Returns a value that is read; ``changes``: this operation is about to change it."""
        place = memory, key, geometry = self.place(tensor)
        if key not in memory.values and memory.given:
            self._renewed(tensor, place, path)
        first = key not in memory.values
        self._note(memory, key, geometry)
        found = self._described(tensor, place)
        if first and changes:
            bits = np.array(array(tensor))
            return Seen(found.key, found.shape, found.dtype, lambda: bits, found.role, found.name)
        return found

    def _described(self, tensor: torch.Tensor, place: Place) -> Seen:
        memory, key, geometry = place
        name = ""
        if memory.number in self.weighed:
            name = self.weights.get((memory.number, geometry), "")
        weight = bool(name) or _parameter(tensor)
        role = WEIGHT if weight else INPUT
        return Seen(key, shape(tensor), geometry.dtype, lambda: array(tensor), role, name)

    @staticmethod
    def _note(memory: Memory, key: Hashable, geometry: Geometry) -> None:
        if key in memory.values:
            return
        memory.values[key] = geometry
        if memory.hollow:
            return
        if memory.cover is None or not memory.changes:
            most = memory.cover[1].shape if memory.cover else ()
            if memory.cover is None or prod(geometry.shape) >= prod(most):
                memory.cover = key, geometry

    def given(self, tensor: torch.Tensor, place: Place) -> Seen:
        """Returns a value that an operation has just given. ``place``: as it is now."""
        memory, key, geometry = place
        memory.given = memory.given or not memory.values
        self._note(memory, key, geometry)
        return self._described(tensor, place)

    def uninitialised(self, every: Sequence[torch.Tensor]) -> None:
        """Notes memory that has been allocated and not written yet."""
        for tensor in every:
            memory = self._memory(tensor)
            memory.given = True
            memory.hollow = tensor.layout == torch.strided and not tensor.is_nested

    def unwritten(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor's memory has not been written, so that looking at it reads no value."""
        memory = self._memory(tensor)
        if not memory.hollow:
            return False
        _, key, geometry = self.place(tensor)
        if key in memory.values:
            return False
        sources = [one for _, one in memory.parts]
        return not sources or isinstance(_together(sources, geometry), Unknown)

    def change(self, tensor: torch.Tensor) -> None:
        """Notes that an operation has changed what lies in a tensor's memory."""
        memory = self._memory(tensor)
        memory.changes += 1
        memory.given = True

    def written(self, tensor: torch.Tensor) -> None:
        """Notes what a change has written; the value has been given."""
        memory, key, geometry = self.place(tensor)
        if memory.hollow:
            self._filled(tensor, memory, key)
            return
        covered = memory.cover is None or int(np.prod(geometry.shape)) >= int(
            np.prod(memory.cover[1].shape)
        )
        if covered:
            memory.cover, memory.parts = (key, geometry), []
        else:
            memory.parts.append((key, geometry))

    def _filled(self, tensor: torch.Tensor, memory: Memory, key: Hashable) -> None:
        """Notes that a part of memory that had not been written now is, or all of it."""
        geometry = self._geometry(tensor)
        size = int(np.prod(geometry.shape)) * tensor.element_size()
        if size >= tensor.untyped_storage().nbytes():
            memory.cover, memory.parts, memory.hollow = (key, geometry), [], False
        else:
            memory.parts.append((key, geometry))

    def _renewed(self, tensor: torch.Tensor, place: Place, path: str) -> None:
        """Puts a value together from what was in its memory and what was written since."""
        memory, key, geometry = place
        sources = [*([memory.cover] if memory.cover else []), *memory.parts]
        if not sources:
            return
        reads = [Seen(k, g.shape, g.dtype, _gone, CONSTANT) for k, g in sources]
        meaning = _together([g for _, g in sources], geometry)
        memory.values[key] = geometry
        gives = [self._described(tensor, place)]
        again = meaning.move if isinstance(meaning, Moves) else None
        call = None if again is None else lambda arrays: [again(*arrays)]
        self.visit(Event("changed through a view", path, reads, gives, meaning, {}, call))
        size = int(np.prod(geometry.shape)) * tensor.element_size()
        if memory.hollow and size >= tensor.untyped_storage().nbytes():
            memory.cover, memory.parts, memory.hollow = (key, geometry), [], False
        elif memory.cover and np.prod(geometry.shape) >= np.prod(memory.cover[1].shape):
            memory.cover, memory.parts = (key, geometry), []


def _parameter(tensor: torch.Tensor) -> bool:
    return type(tensor) is not torch.Tensor and isinstance(tensor, torch.nn.Parameter)


def _gone() -> np.ndarray:
    raise LookupError("the value has been overwritten")


def _together(sources: Sequence[Geometry], to: Geometry) -> Moves | Unknown:
    """How a value comes from parts of the same memory: the last that was written at each place."""
    every = [*sources, to]
    if any(one.dtype != to.dtype for one in every):
        return Unknown("its memory was written as numbers of a different type")
    if sum(int(np.prod(one.shape)) for one in every) > MOST:
        return Unknown("it was changed through a view, and is too large to find out where")
    places = [one.places().reshape(-1) for one in every]
    size = 1 + max((int(one.max()) for one in places if one.size), default=0)
    where = np.full(size, -1)
    start = 0
    for one in places[:-1]:
        where[one] = np.arange(start, start + one.size)
        start += one.size
    index = where[places[-1]].reshape(to.shape)
    if index.size and index.max() < 0:
        return Unknown("its memory was never written")
    if index.size and index.min() < 0:
        return Written(lambda *arrays: _laid(arrays, index), index=index)

    def move(*arrays: np.ndarray) -> np.ndarray:
        flat = np.concatenate([np.asarray(one).reshape(-1) for one in arrays])
        return flat[index]

    return Moves(move)


def _laid(arrays: Sequence[np.ndarray], index: np.ndarray) -> np.ndarray:
    """Returns elements by their number in all arrays together; 0 where none was written."""
    flat = np.concatenate([np.zeros(1, arrays[0].dtype), *(one.reshape(-1) for one in arrays)])
    return np.asarray(flat[index + 1])


NEVER = count()


@dataclass(frozen=True)
class Written(Moves):
    """A value of which a part was never written: each of those elements has a label of its own.

    ``index``: as of ``_laid``.
    """

    index: Any = None

    def labels(self, reads: Sequence[Labels], shapes: Shapes, what: np.uint64) -> list[Labels]:
        (found,) = super().labels(reads, shapes, what)
        mark = joined(tag("never written", next(NEVER)), np.arange(1, self.index.size + 1))
        array = np.where(self.index < 0, mark.reshape(self.index.shape), found.full())
        return [found._replace(array=array)]
