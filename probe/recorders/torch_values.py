"""Which value a tensor is: by its memory, how often that was changed, and where in it it lies.

Views share memory, and a change through one of them changes all others: each is another value from
then on, put together from what was there and what was written. Addresses are never mistaken for
each other: of every memory that a run meets a weak reference is kept until it has died, and each
has a number of its own.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch

from probe.recorders.torch_tensors import PLAIN, Geometry, Lay, Lays, array, direct, shape
from probe.recording.contract import CONSTANT, INPUT, WEIGHT, Event, Seen, Visit
from probe.semantics import Moves, Shapes, Unknown
from probe.semantics.labels import Labels, joined, tag

STRIDED = torch.strided
MOST = 1 << 22
"""Elements up to which it is worked out which of them a change through a view reached."""

SMALL = 1 << 14
"""Elements up to which that is kept for the next time."""

SWEEP, SWEEP_ALL = 8, 128
"""Memories that are met between two looks for those that have died: among those that the run made,
and among weights and inputs too, of which few ever do."""


EXPIRED, FREE = torch.UntypedStorage._expired, torch.UntypedStorage._free_weak_ref


class Memory:
    """A storage: how often it was changed, and what is known to lie in it.

    ``number``: its own in this run; ``given``: whether the run itself made it. ``values``: keys, of
    this change or before; ``parts``: what was written since ``cover`` last held all of it.
    ``hollow``: some of it has not been written yet. ``places``: of its tensors as they lie, since
    the last change. It holds a weak reference, so that its address stays its own.
    """

    __slots__ = (
        *("changes", "cover", "given", "hollow", "number", "parts", "places", "values", "_held"),
    )

    def __init__(self, storage: torch.UntypedStorage, number: int) -> None:
        self._held = storage._weak_ref()
        self.number, self.changes = number, 0
        self.given = self.hollow = False
        self.values: set[Hashable] = set()
        self.cover: tuple[Hashable, Geometry] | None = None
        self.parts: list[tuple[Hashable, Geometry]] = []
        self.places: dict[Lay, Place] = {}

    def expired(self) -> bool:
        """Returns whether the storage has died."""
        return bool(EXPIRED(self._held))

    def __del__(self, free: Callable[[int], None] = FREE) -> None:
        free(self._held)  # not by a global name, which is gone when Python ends


class _Kept(Memory):
    """A tensor that isn't plain memory, which is rare: it is kept alive, so that its id stays."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: torch.Tensor, number: int) -> None:
        super().__init__(NONE, number)
        self.tensor = tensor

    def expired(self) -> bool:
        """Never."""
        return False


NONE = torch.UntypedStorage(0)


class Place(NamedTuple):
    """What there is to know of a tensor at a moment: its memory, its value's key, and how it
    lies."""

    memory: Memory
    key: tuple[Any, ...]
    lay: Lay


class Named(NamedTuple):
    """A weight, the address of its storage, and its name."""

    tensor: weakref.ref[torch.Tensor]
    address: int
    name: str


def address(tensor: torch.Tensor) -> int:
    """Returns what tells a tensor's memory from others while it lives."""
    if tensor.layout is STRIDED and not tensor.is_nested:
        return int(tensor.untyped_storage()._cdata)
    return -id(tensor)


class Values:
    """All values of a run, by tensor. ``lays``: how tensors lie, of this run and those before;
    ``named``: weights that may be met, by the address of their storage, and their names."""

    def __init__(self, visit: Visit, lays: Lays) -> None:
        self.visit, self.lays = visit, lays
        self.named: dict[int, list[Named]] = {}
        self.memories: dict[int, Memory] = {}
        self.weights: dict[Hashable, str] = {}
        self.weighed: set[int] = set()
        self.met = 0

    def weigh(self, named: Iterable[Named]) -> None:
        """Names weights: those whose memory has been met, the others as soon as it is."""
        for one in named:
            self.named.setdefault(one.address, []).append(one)
            memory, tensor = self.memories.get(one.address), one.tensor()
            if memory is not None and tensor is not None:
                self._weigh(memory, tensor, one.name)

    def _weigh(self, memory: Memory, tensor: torch.Tensor, name: str) -> None:
        self.weighed.add(memory.number)
        self.weights.setdefault((memory.number, self.lays.of(tensor).number), name)

    def place(self, tensor: torch.Tensor) -> Place:
        """Returns which value a tensor is now; its ``key`` tells it from every other."""
        if tensor.layout is not STRIDED or tensor.is_nested:
            memory, lay = self._memory(tensor), self.lays.of(tensor)
            return Place(memory, (memory.number, memory.changes, lay.number), lay)
        storage = tensor.untyped_storage()
        memory = self.memories.get(storage._cdata) or self._met(storage)
        lay = self.lays.strided(tensor)
        found = memory.places.get(lay)
        if found is None or lay.halves or tensor.is_neg():
            key: tuple[Any, ...] = (memory.number, memory.changes, lay.number)
            if tensor.is_neg() or tensor.is_conj():
                return Place(memory, (*key, tensor.is_conj(), tensor.is_neg()), lay)
            found = memory.places[lay] = Place(memory, key, lay)
        return found

    def _memory(self, tensor: torch.Tensor) -> Memory:
        if tensor.layout is STRIDED and not tensor.is_nested:
            storage = tensor.untyped_storage()
            return self.memories.get(storage._cdata) or self._met(storage)
        known = self.memories.get(-id(tensor))
        if known is None:
            known = self.memories[-id(tensor)] = _Kept(tensor, self._next())
        return known

    def _met(self, storage: torch.UntypedStorage) -> Memory:
        """Returns a memory that is met for the first time."""
        place = storage._cdata
        memory = self.memories[place] = Memory(storage, self._next())
        for one in self.named.get(place, ()):
            weight = one.tensor()
            if weight is not None and address(weight) == place:
                self._weigh(memory, weight, one.name)
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
                if (every or one.given) and one.expired()
            ]
            for place in dead:
                del self.memories[place]
        return self.met

    def seen(self, tensor: torch.Tensor, path: str = "", changes: bool = False) -> Seen:
        """Returns a value that is read; ``changes``: this operation is about to change it."""
        place = self.place(tensor)
        if changes and place.key not in place.memory.values:
            found = self.read(tensor, place, path)
            bits, rest = np.array(array(tensor)), (found.role, found.name, found.address)
            return Seen(found.key, found.shape, found.dtype, lambda: bits, *rest)
        return self.read(tensor, place, path)

    def read(self, tensor: torch.Tensor, place: Place, path: str) -> Seen:
        """Returns a value that is read, and is not about to be changed."""
        memory, key, lay = place
        if key not in memory.values:
            if memory.given:
                self._renewed(tensor, place, path)
            self._note(memory, key, lay.geometry)
        return self._described(tensor, place)

    def _described(self, tensor: torch.Tensor, place: Place) -> Seen:
        memory, key, lay = place
        geometry, kind, name = lay.geometry, type(tensor), ""
        if memory.number in self.weighed:
            name = self.weights.get((memory.number, lay.number), "")
        weight = name or (kind is not torch.Tensor and isinstance(tensor, torch.nn.Parameter))
        rest = WEIGHT if weight else INPUT, name, lay.address
        if lay.direct and kind in PLAIN and len(key) == 3:
            return Seen(key, geometry.shape, geometry.dtype, lambda: direct(tensor), *rest)
        return Seen(key, shape(tensor), geometry.dtype, lambda: array(tensor), *rest)

    @staticmethod
    def _note(memory: Memory, key: Hashable, geometry: Geometry) -> None:
        if key in memory.values:
            return
        memory.values.add(key)
        if memory.hollow:
            return
        if memory.cover is None or not memory.changes:
            most = memory.cover[1].shape if memory.cover else ()
            if memory.cover is None or prod(geometry.shape) >= prod(most):
                memory.cover = key, geometry

    def given(self, tensor: torch.Tensor, place: Place) -> Seen:
        """Returns a value that an operation has just given. ``place``: as it is now."""
        memory, key, lay = place
        memory.given = memory.given or not memory.values
        self._note(memory, key, lay.geometry)
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
        _, key, lay = self.place(tensor)
        if key in memory.values:
            return False
        sources = [one for _, one in memory.parts]
        return not sources or isinstance(self._together(sources, lay.geometry), Unknown)

    def change(self, tensor: torch.Tensor) -> None:
        """Notes that an operation has changed what lies in a tensor's memory."""
        memory = self._memory(tensor)
        memory.changes += 1
        memory.given = True
        memory.places.clear()

    def written(self, tensor: torch.Tensor) -> None:
        """Notes what a change has written; the value has been given."""
        memory, key, lay = self.place(tensor)
        geometry = lay.geometry
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

    def _together(self, sources: Sequence[Geometry], to: Geometry) -> Moves | Unknown:
        """As ``_together``; small ones are worked out once for all runs."""
        every = *sources, to
        known: Moves | Unknown | None = self.lays.together.get(every)
        if known is None:
            known = _together(sources, to)
            if sum(prod(one.shape) for one in every) <= SMALL:
                self.lays.together[every] = known
        return known

    def _filled(self, tensor: torch.Tensor, memory: Memory, key: Hashable) -> None:
        """Notes that a part of memory that had not been written now is, or all of it."""
        geometry = self.lays.of(tensor).geometry
        size = int(np.prod(geometry.shape)) * tensor.element_size()
        if size >= tensor.untyped_storage().nbytes():
            memory.cover, memory.parts, memory.hollow = (key, geometry), [], False
        else:
            memory.parts.append((key, geometry))

    def _renewed(self, tensor: torch.Tensor, place: Place, path: str) -> None:
        """Puts a value together from what was in its memory and what was written since."""
        memory, key, lay = place
        geometry = lay.geometry
        sources = [*([memory.cover] if memory.cover else []), *memory.parts]
        if not sources:
            return
        reads = [Seen(k, g.shape, g.dtype, _gone, CONSTANT) for k, g in sources]
        meaning = self._together([g for _, g in sources], geometry)
        memory.values.add(key)
        gives = [self._described(tensor, place)]
        again = meaning.move if isinstance(meaning, Moves) else None
        call = None if again is None else lambda arrays: [again(*arrays)]
        self.visit(Event("changed through a view", path, reads, gives, meaning, {}, call))
        size = int(np.prod(geometry.shape)) * tensor.element_size()
        if memory.hollow and size >= tensor.untyped_storage().nbytes():
            memory.cover, memory.parts, memory.hollow = (key, geometry), [], False
        elif memory.cover and np.prod(geometry.shape) >= np.prod(memory.cover[1].shape):
            memory.cover, memory.parts = (key, geometry), []


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
