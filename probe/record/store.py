"""Bits: of whatever a user gives (arrays and tensors of every library, numbers, bytes, files), and
the arrays of runs by the digest of theirs, each once, in memory. Those of a recording that is kept
are written by ``folder.RecordingFolder``, and read from there where memory is too small.

The bits are all that counts: ``-0.0`` is not ``0.0``, and NaNs with different payloads or signs
differ. How an array lies in memory (order, strides, byte order) does not count. What has no bits of
its own is refused: arrays of objects, ragged lists, masked arrays.

Two runs that are compared share most of their arrays (weights, what agrees), and so do the runs of
one model at several sizes: an array that any store of this process holds is not copied again.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import xxhash

from probe.case.errors import InputError


def array_digest(array: np.ndarray) -> str:
    """A digest of an array's bits: 32 digits, however it lies in memory.

    XXH3 of 128 bits reads memory as fast as it comes: 10 GB/s, and 38 in the cache, where SHA-1
    reads 1.5 with the processor's own instructions. Nobody chooses arrays that collide.
    """
    return xxhash.xxh3_128_hexdigest(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


# Bytes of a file that are read at once.
FILE_PIECE = 1 << 22


@dataclass(frozen=True)
class Bits:
    """The dtype's name, the shape, and XXH3 (128 bits) of an array's bits in C order."""

    dtype: str
    shape: tuple[int, ...]
    hash: str

    @property
    def text(self) -> str:
        """Returns ``float32 4x8 9c1f...``: the hash's first digits."""
        return f"{self.dtype} {'x'.join(map(str, self.shape)) or 'scalar'} {self.hash[:8]}"


def bits_of(value: Any) -> Bits:
    """The bits of an array, a tensor, a number, text, bytes, or a file by its ``Path``.

    Hashing reads memory once. InputError: it has no bits of its own.
    """
    if not isinstance(value, Path):
        array, dtype = array_of(value)
        return Bits(dtype, array.shape, array_digest(array))
    hasher, size = xxhash.xxh3_128(), 0
    try:
        with value.open("rb") as file:
            while piece := file.read(FILE_PIECE):
                hasher.update(piece)
                size += len(piece)
    except OSError as error:
        why = error.strerror or "it can't be read"
        raise InputError("value", value, why, "give a file that is there") from None
    return Bits("file", (size,), hasher.hexdigest())


def array_of(value: Any) -> tuple[np.ndarray, str]:
    """A container array in this machine's byte order, and its dtype's name. InputError."""
    if isinstance(value, bytes | bytearray | memoryview):
        # a view with steps is no buffer of bytes in a row
        stepped = isinstance(value, memoryview) and not value.c_contiguous
        return np.frombuffer(bytes(value) if stepped else value, np.uint8), "bytes"
    if isinstance(value, np.ma.MaskedArray):
        why = "elements below a mask have no defined bits"
        raise InputError("value", "masked array", why, "check value.filled(0) and value.mask")
    if isinstance(value, str):  # a generated answer, a label; lone surrogates have bits too
        return np.frombuffer(value.encode("utf-8", "surrogatepass"), np.uint8), "text"
    if value is None:
        todo = "give an array, a number, text, bytes, or a file as pathlib.Path"
        raise InputError("value", "None", "it is not an array", todo)
    kind = type(value).__name__
    if _package(value) == "torch" and isinstance(value, sys.modules["torch"].Tensor):
        torch = sys.modules["torch"]
        if value.is_quantized or value.layout != torch.strided or value.is_nested:
            why = "a quantized, sparse or nested tensor is made of several arrays"
            raise InputError("value", kind, why, "check each of them, by name")
        if value.is_meta:
            todo = "give one of a device that computes"
            raise InputError("value", kind, "a meta tensor has no elements", todo)
        plain = value.detach().cpu().resolve_conj().resolve_neg()
        try:
            value = plain.numpy()
        except TypeError:  # formats that NumPy lacks (bfloat16, float8, complex32) are their bytes
            unit = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[value.element_size()]
            held = np.asarray(plain.contiguous().view(unit).numpy())
            return held, str(value.dtype).rpartition(".")[2]
    try:
        # Tensor.numpy() of TensorFlow is what __array__ gives; JAX's arrays and pandas' have it too
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        why = f"it is not one array ({' '.join(str(error).split())[:100]})"
        raise InputError("value", kind, why, "check its parts, by name") from None
    if array.dtype.kind in "OT":  # NumPy's strings of any length are pointers too
        is_array = isinstance(value, np.ndarray)
        why = "an array of objects has no bits of its own" if is_array else "it is not one array"
        raise InputError("value", kind, why, "check arrays of numbers, by name")
    if array.dtype.names is not None:
        why = "the bytes between the fields of a structured array are not defined"
        raise InputError("value", kind, why, "check its fields, by name")
    if array.dtype in (np.longdouble, np.clongdouble) and np.finfo(np.longdouble).nmant == 63:
        why = "6 of 16 bytes of these numbers hold whatever was on the stack"
        raise InputError("value", array.dtype.name, why, "check numbers of float64")
    # the same bits on every machine
    return array.astype(array.dtype.newbyteorder("<"), copy=False), array.dtype.newbyteorder(
        "="
    ).name


def _package(value: Any) -> str:
    return type(value).__module__.partition(".")[0]


def named_arrays(value: Any) -> Iterator[tuple[str, Any]]:
    """Yields (name, array) of what may be nested in dictionaries, lists, tuples and frames.

    Names are joined by dots: ``hidden.0``. A list of plain numbers is one array. InputError: two
    arrays have one name; one has no parts.
    """
    names = set[str]()
    for name, array in _named_parts(value, "", 0):
        if name in names:
            todo = "give them other names"
            raise InputError("value", name, "two arrays have this name", todo)
        names.add(name)
        yield name, array


# Lists in lists that are followed: one that holds itself has no end.
DEEPEST = 100


def _named_parts(value: Any, name: str, depth: int) -> Iterator[tuple[str, Any]]:
    parts: Any = None
    if isinstance(value, Mapping):
        parts = [(str(key), part) for key, part in value.items()]
    elif _package(value) in ("pandas", "polars") and hasattr(value, "columns"):
        parts = [(str(key), value[key].to_numpy()) for key in value.columns]
    elif isinstance(value, list | tuple) and not _only_numbers(value):
        fields = getattr(value, "_fields", range(len(value)))
        parts = [(str(key), part) for key, part in zip(fields, value, strict=True)]
    elif isinstance(value, np.ndarray) and value.dtype.names is not None:
        parts = [(key, value[key]) for key in value.dtype.names]
    if parts is None:
        yield name, value
        return
    if depth > DEEPEST:
        why = f"it is nested more than {DEEPEST} deep, or holds itself"
        raise InputError("value", type(value).__name__, why, "give lists of arrays")
    parts = [(key, part) for key, part in parts if part is not None]  # as models leave out a loss
    if not parts:
        todo = "give at least one array (an array without elements is fine)"
        raise InputError("value", name or type(value).__name__, "it holds no arrays", todo)
    for key, part in parts:
        yield from _named_parts(part, f"{name}.{key}" if name else key, depth + 1)


def _only_numbers(value: Any, depth: int = 0) -> bool:
    """Whether a nested list holds plain numbers alone: then it is one array."""
    if isinstance(value, list | tuple):
        shallow = bool(value) and depth <= DEEPEST
        return shallow and all(_only_numbers(part, depth + 1) for part in value)
    return isinstance(value, bool | int | float | complex)


class RunStore(Protocol):
    """Where a run's arrays are kept: in memory, or in a folder."""

    def put(self, array: np.ndarray, name: str = "") -> str:
        """Keeps a copy of an array's bits, and returns their digest; ``name``: if it is known."""

    def bits(self, name: str) -> np.ndarray | None:
        """The bytes of the array with this digest (flat uint8, not to be written to); None
        where it was left out."""

    def has(self, name: str) -> bool:
        """Whether it was kept."""


# Arrays that stores of this process hold, by their digests.
_held: weakref.WeakValueDictionary[str, np.ndarray] = weakref.WeakValueDictionary()


class ProcessStore:
    """A store of this process, in memory. ``behind``: has the arrays that this one hasn't."""

    def __init__(self, behind: RunStore | None = None) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self.behind = behind

    def put(self, array: np.ndarray, name: str = "") -> str:
        name = name or array_digest(array)
        if name not in self.arrays:
            bits = _held.get(name)
            if bits is None:
                bits = np.empty(array.nbytes, np.uint8)
                np.copyto(bits.view(array.dtype).reshape(array.shape), array)
                bits.flags.writeable = False
                _held[name] = bits
            self.arrays[name] = bits
        return name

    def bits(self, name: str) -> np.ndarray | None:
        bits = self.arrays.get(name)
        return self.behind.bits(name) if bits is None and self.behind is not None else bits

    def has(self, name: str) -> bool:
        return name in self.arrays or (self.behind is not None and self.behind.has(name))
