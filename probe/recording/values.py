"""What a check is given, as bits: arrays and tensors of every library, numbers, bytes, files.

The bits are all that counts: ``-0.0`` is not ``0.0``, and NaNs with different payloads or signs
differ. How an array lies in memory (order, strides, byte order) does not count. What has no bits of
its own is refused: arrays of objects, ragged lists, masked arrays.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from probe.errors import InputError
from probe.recording.store import array_digest

# Bytes of a file that are read at once.
PIECE = 1 << 22


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
    """Returns the bits of an array, a tensor, a number, bytes, or a file by its ``Path``.

    Hashing reads memory once. InputError: it has no bits of its own.
    """
    if not isinstance(value, Path):
        array, dtype = array_of(value)
        return Bits(dtype, array.shape, array_digest(array))
    found, size = xxhash.xxh3_128(), 0
    try:
        with value.open("rb") as file:
            while piece := file.read(PIECE):
                found.update(piece)
                size += len(piece)
    except OSError as error:
        why = error.strerror or "it can't be read"
        raise InputError("value", value, why, "give a file that is there") from None
    return Bits("file", (size,), found.hexdigest())


def array_of(value: Any) -> tuple[np.ndarray, str]:
    """Returns a container array in this machine's byte order, and its dtype's name. InputError."""
    if isinstance(value, bytes | bytearray | memoryview):
        # a view with steps is no buffer of bytes in a row
        stepped = isinstance(value, memoryview) and not value.c_contiguous
        return np.frombuffer(bytes(value) if stepped else value, np.uint8), "bytes"
    if isinstance(value, np.ma.MaskedArray):
        why = "elements below a mask have no defined bits"
        raise InputError("value", "masked array", why, "check value.filled(0) and value.mask")
    if isinstance(value, str) or value is None:
        todo = "give an array, a number, bytes, or a file as pathlib.Path"
        raise InputError("value", repr(value)[:40], "it is not an array", todo)
    kind = type(value).__name__
    if _package(value) == "torch" and isinstance(value, sys.modules["torch"].Tensor):
        found = _torch_bits(value)
        if isinstance(found, tuple):
            return found
        value = found
    try:
        # Tensor.numpy() of TensorFlow is what __array__ gives; JAX's arrays and pandas' have it too
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        why = f"it is not one array ({' '.join(str(error).split())[:100]})"
        raise InputError("value", kind, why, "check its parts, by name") from None
    if array.dtype.kind in "OT":  # NumPy's strings of any length are pointers too
        given = isinstance(value, np.ndarray)
        why = "an array of objects has no bits of its own" if given else "it is not one array"
        raise InputError("value", kind, why, "check arrays of numbers, by name")
    if array.dtype.names is not None:
        why = "the bytes between the fields of a structured array are not defined"
        raise InputError("value", kind, why, "check its fields, by name")
    return _portable(array), array.dtype.newbyteorder("=").name


def _package(value: Any) -> str:
    return type(value).__module__.partition(".")[0]


def _torch_bits(value: Any) -> np.ndarray | tuple[np.ndarray, str]:
    """Returns a tensor's array; formats that NumPy lacks as their bytes, with their name."""
    torch = sys.modules["torch"]
    if value.is_quantized or value.layout != torch.strided or value.is_nested:
        why = "a quantized, sparse or nested tensor is made of several arrays"
        raise InputError("value", type(value).__name__, why, "check each of them, by name")
    if value.is_meta:
        todo = "give one of a device that computes"
        raise InputError("value", type(value).__name__, "a meta tensor has no elements", todo)
    plain = value.detach().cpu().resolve_conj().resolve_neg()
    try:
        return np.asarray(plain.numpy())
    except TypeError:  # bfloat16, float8, complex32
        name = str(value.dtype).rpartition(".")[2]
        unit = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[value.element_size()]
        return np.asarray(plain.contiguous().view(unit).numpy()), name


def _portable(array: np.ndarray) -> np.ndarray:
    """Returns the same bits on every machine: little-endian, without the padding of x87 numbers."""
    kind = array.dtype
    if kind in (np.longdouble, np.clongdouble) and np.finfo(np.longdouble).nmant == 63:
        # 10 bytes of 16 are the number; whatever was on the stack stands in the others
        parts = np.ascontiguousarray(array).view(np.longdouble).reshape(-1)
        size = kind.itemsize // (1 + (kind.kind == "c"))
        bare = np.ascontiguousarray(parts.view(np.uint8).reshape(len(parts), size)[:, :10])
        per = 10 * (1 + (kind.kind == "c"))
        return bare.reshape(array.size, per).view(f"V{per}").reshape(array.shape)
    if kind.byteorder == ">" or (sys.byteorder == "big" and kind.byteorder == "="):
        return array.astype(kind.newbyteorder("<"))
    return array


def named_arrays(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yields (name, array) of what may be nested in dictionaries, lists, tuples and frames.

    Names are joined by dots: ``hidden.0``. A list of plain numbers is one array. InputError: two
    arrays have one name; one has no parts.
    """
    names = set[str]()
    for own, one in _named_parts(value, name):
        if own in names:
            todo = "give them other names"
            raise InputError("value", own, "two arrays have this name", todo)
        names.add(own)
        yield own, one


def _named_parts(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    parts: Any = None
    if isinstance(value, Mapping):
        parts = [(str(key), one) for key, one in value.items()]
    elif _package(value) in ("pandas", "polars") and hasattr(value, "columns"):
        parts = [(str(key), value[key].to_numpy()) for key in value.columns]
    elif isinstance(value, list | tuple) and not _only_numbers(value):
        fields = getattr(value, "_fields", range(len(value)))
        parts = [(str(key), one) for key, one in zip(fields, value, strict=True)]
    elif isinstance(value, np.ndarray) and value.dtype.names is not None:
        parts = [(key, value[key]) for key in value.dtype.names]
    if parts is None:
        yield name, value
        return
    if not parts:
        todo = "give at least one array (an array without elements is fine)"
        raise InputError("value", name or type(value).__name__, "it holds no arrays", todo)
    for key, one in parts:
        yield from _named_parts(one, f"{name}.{key}" if name else key)


def _only_numbers(value: Any) -> bool:
    """Returns whether a nested list holds plain numbers alone: then it is one array."""
    if isinstance(value, list | tuple):
        return bool(value) and all(map(_only_numbers, value))
    return isinstance(value, bool | int | float | complex)
