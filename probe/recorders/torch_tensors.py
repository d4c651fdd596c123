"""A tensor's bits as a container array, and how it lies in memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch

from probe.errors import InputError
from probe.layout import BOUNDARY

PLAIN = (torch.Tensor, torch.nn.Parameter)
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
    plain = type(tensor) in PLAIN and tensor.is_cpu and tensor.dtype in DIRECT
    if plain and tensor.layout == torch.strided and not (tensor.is_nested or tensor.is_neg()):
        return direct(tensor)
    return _converted(tensor)


def direct(tensor: torch.Tensor) -> np.ndarray:
    """Returns the bits of a tensor whose numbers NumPy has as they lie: a view of them."""
    return tensor.detach().numpy() if tensor.requires_grad else tensor.numpy()


def _converted(tensor: torch.Tensor) -> np.ndarray:
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


@cache
def dtype(kind: torch.dtype) -> str:
    """Returns NumPy's name of a type of numbers."""
    return "uint8" if kind in BYTES else str(kind).removeprefix("torch.")


class Slot(NamedTuple):
    """The place of an operand in a call. ``address``: as ``begins`` has it. ``number``: which of
    the arrays that are read, None where it isn't read, but written or asked for its shape."""

    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    address: int
    dtype: torch.dtype
    device: torch.device
    number: int | None = None


def begins(tensor: torch.Tensor) -> int:
    """Returns how many bytes behind a multiple of 64 a tensor's memory begins.

    PyTorch allocates at multiples of 64 on a CPU. Views begin anywhere in an allocation, and what
    others have allocated anywhere at all (NumPy, ``torch.frombuffer``, mapped files: safetensors
    puts weights at multiples of 8). MKL's order of additions depends on it.
    """
    try:
        return tensor.data_ptr() % BOUNDARY
    except RuntimeError:  # it has no memory of its own, as where PyTorch traces
        return 0


def slot_of(tensor: torch.Tensor, number: int | None = None) -> Slot:
    """Returns how a tensor lies in memory."""
    plain = tensor.layout == torch.strided and not tensor.is_nested
    strides = tuple(tensor.stride()) if plain else None
    address = begins(tensor) if plain else 0
    shape = tuple(tensor.shape) if not tensor.is_nested else ()
    return Slot(shape, strides, address, tensor.dtype, tensor.device, number)


def placed(bits: np.ndarray, slot: Slot) -> torch.Tensor:
    """Returns a new tensor of these container bits that lies in memory as ``slot`` did, and begins
    as many bytes behind a multiple of 64."""
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
    memory = _memory(slot, size)
    view = memory.as_strided(wide, strides)
    part = values[tuple(slice(n) for n in wide)] if wide else values
    if slot.device.type == "cpu" and slot.dtype in INTEGERS:
        as_integers = INTEGERS[slot.dtype]
        np.copyto(view.view(as_integers).numpy(), part.view(as_integers).numpy())
    else:
        view.copy_(part)
    return view.expand(values.shape)


def laid(tensor: torch.Tensor, address: int) -> torch.Tensor:
    """Returns a copy that lies in memory alike, and begins that many bytes behind a multiple of
    64."""
    return placed(array(tensor), slot_of(tensor)._replace(address=address))


def _memory(slot: Slot, count: int) -> torch.Tensor:
    """Returns zeros for so many numbers, at the slot's address.

    On a CPU NumPy makes them and copies into them: calls are made by the thousand, and PyTorch's
    threads would wait for each other on a processor that has other work.
    """
    if slot.device.type != "cpu":
        start = slot.address // slot.dtype.itemsize
        return torch.zeros(start + count, dtype=slot.dtype, device=slot.device)[start:]
    size = count * slot.dtype.itemsize
    raw = np.zeros(size + 2 * BOUNDARY, np.uint8)
    start = -raw.ctypes.data % BOUNDARY + slot.address
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


class Lay:
    """How tensors of one device, format, shape, strides, offset and address lie: made once for all
    of them, so that two are the same where they are the same object.

    ``geometry`` and its ``number``: the same where only strides of axes of size 1 differ; ``like``:
    the same where operands of a run alone would lie alike. ``address``: as ``begins`` has it, None
    of what is not memory with strides. ``plain``: memory of numbers with
    strides; ``meta``: a shape alone; ``direct``: NumPy has such numbers as they lie; ``halves``:
    they are complex.
    """

    __slots__ = ("address", "direct", "geometry", "halves", "like", "meta", "number", "plain")

    def __init__(self, tensor: torch.Tensor, geometry: Geometry, number: int, like: object) -> None:
        self.geometry, self.number, self.like = geometry, number, like
        self.meta = bool(tensor.is_meta)
        strided = tensor.layout is torch.strided and not tensor.is_nested
        self.plain = strided and not self.meta
        self.address = begins(tensor) if self.plain else None
        self.direct = self.plain and bool(tensor.is_cpu) and tensor.dtype in DIRECT
        self.halves = tensor.dtype.is_complex


class Lays:
    """All ways in which the tensors of a run lie. ``together``: what parts of a memory come to, by
    how they lie."""

    def __init__(self) -> None:
        self.known: dict[tuple[Any, ...], Lay] = {}
        self.numbers: dict[Geometry, int] = {}
        self.likes: dict[Slot, object] = {}
        self.together: dict[tuple[Geometry, ...], Any] = {}

    def of(self, tensor: torch.Tensor) -> Lay:
        """Returns how a tensor lies."""
        if tensor.layout is not torch.strided or tensor.is_nested:
            return self._new(tensor, Geometry((), (), 0, dtype(tensor.dtype)))
        return self.strided(tensor)

    def strided(self, tensor: torch.Tensor) -> Lay:
        """Returns how a tensor with strides lies."""
        shape, strides, offset = tensor.shape, tensor.stride(), tensor.storage_offset()
        device = tensor.is_cpu or tensor.device
        every = (shape, strides, offset, begins(tensor), tensor.dtype, device)
        known = self.known.get(every)
        if known is None:
            if 1 in shape:  # their steps say nothing
                strides = tuple(0 if n == 1 else s for n, s in zip(shape, strides, strict=True))
            geometry = Geometry(tuple(shape), strides, offset, dtype(tensor.dtype))
            known = self.known[every] = self._new(tensor, geometry)
        return known

    def _new(self, tensor: torch.Tensor, geometry: Geometry) -> Lay:
        number = self.numbers.setdefault(geometry, len(self.numbers))
        return Lay(tensor, geometry, number, self.likes.setdefault(slot_of(tensor), object()))
