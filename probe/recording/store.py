"""Arrays by the digest of their bits, each once: in memory, or in nameless files beyond a bound.

Those of a recording that is kept are written by ``folder.RecordingFolder``.

Two runs that are compared share most of their arrays (weights, what agrees), and so do the runs of
one model at several sizes: an array that any store of this process holds is not copied again.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Callable
from typing import IO, Protocol

import numpy as np
import xxhash

from probe import memory

# Bytes of arrays that all stores together hold in memory: a part of what is free, in bounds. What
# is beyond stays in the system's cache of files as long as there is room, and costs a copy more:
# MobileNetV2's 800 MB at batch 8 take 0.32 s to record, 0.26 s to run.
SURE, MOST, PART = 1 << 25, 1 << 27, 64

# Bytes of a file for what is beyond; a larger array has one of its own.
SEGMENT = 1 << 28

# Libraries choose kernels by where operands begin: what is mapped begins as what is allocated.
ALIGNED = 64

# Bytes from which on an array that isn't contiguous is copied a few rows at a time.
PIECE = 1 << 20


def array_digest(array: np.ndarray) -> str:
    """Returns a digest of an array's bits, row by row: 32 digits, however it lies in memory.

    XXH3 of 128 bits reads memory as fast as it comes: 10 GB/s, and 38 in the cache, where SHA-1
    reads 1.5 with the processor's own instructions. Nobody chooses arrays that collide.
    """
    # a type of ml_dtypes may have the kind f, and gives no buffer
    if array.flags.c_contiguous and array.dtype.kind in "fiub" and array.dtype.isbuiltin == 1:
        return xxhash.xxh3_128_hexdigest(array.data)
    if array.flags.c_contiguous or array.nbytes < PIECE:
        return xxhash.xxh3_128_hexdigest(_flat_bytes(array).data)
    found = xxhash.xxh3_128()
    rows = max(1, PIECE * len(array) // array.nbytes)
    for at in range(0, len(array), rows):
        found.update(_flat_bytes(array[at : at + rows]).data)
    return found.hexdigest()


def _flat_bytes(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


class RunStore(Protocol):
    """Where a run's arrays are kept: in memory, or in a folder."""

    def put(self, array: np.ndarray, name: str = "") -> str:
        """Keeps a copy of an array's bits, and returns their digest; ``name``: if it is known."""

    def bits(self, name: str) -> np.ndarray | None:
        """Returns the bytes of the array with this digest (flat uint8, not to be written to); None
        where it was left out."""

    def has(self, name: str) -> bool:
        """Returns whether it was kept."""


def memory_room() -> int:
    """Returns bytes of arrays that may be held in memory at once: a part of what is free."""
    free = memory.free()
    return MOST if free is None else min(max(free // PART, SURE), MOST)


class ProcessStore:
    """A store of this process, beyond ``memory_room()`` in files that go with it, whatever ends it.

    ``behind``: has the arrays that this one hasn't.
    """

    def __init__(self, behind: RunStore | None = None) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self.behind = behind

    def put(self, array: np.ndarray, name: str = "") -> str:
        name = name or array_digest(array)
        if name not in self.arrays:
            self.arrays[name] = _everywhere.get(name, array)
        return name

    def bits(self, name: str) -> np.ndarray | None:
        found = self.arrays.get(name)
        return self.behind.bits(name) if found is None and self.behind is not None else found

    def has(self, name: str) -> bool:
        return name in self.arrays or (self.behind is not None and self.behind.has(name))


class _Everywhere:
    """Arrays that stores of this process hold. ``size``: bytes of those in memory."""

    def __init__(self) -> None:
        self.arrays: weakref.WeakValueDictionary[str, np.ndarray] = weakref.WeakValueDictionary()
        self.size = 0
        self.file: IO[bytes] | None = None
        self.segment: Callable[[], np.ndarray | None] = lambda: None
        self.taken = 0

    def get(self, name: str, array: np.ndarray) -> np.ndarray:
        """Returns an array's bytes, held already or copied; beyond ``memory_room()`` on disk."""
        found = self.arrays.get(name)
        if found is None:
            size = self.size + array.nbytes
            # below SURE free memory is not read, which takes half a ms: most runs of small models
            # stay far below it
            inside = size <= SURE or (size <= MOST and size <= memory_room())
            found = None if inside else self._on_disk(array)
            if found is None:
                found = np.empty(array.nbytes, np.uint8)
                np.copyto(found.view(array.dtype).reshape(array.shape), array)
                found.flags.writeable = False
                self.size += found.nbytes
                weakref.finalize(found, self._gone, found.nbytes).atexit = False
            self.arrays[name] = found
        return found

    def _gone(self, size: int) -> None:
        self.size -= size

    def _on_disk(self, array: np.ndarray) -> np.ndarray | None:
        """Returns an array's bytes, mapped from a file; None where there is no room for it."""
        segment, size = self.segment(), array.nbytes
        if segment is None or self.taken + size > len(segment):
            try:
                self.file, segment = _segment(max(size, SEGMENT))
            except OSError:
                return None
            self.segment, self.taken = weakref.ref(segment), 0  # goes with the last array in it
        assert self.file is not None
        self.file.seek(self.taken)
        rest = _flat_bytes(array).data
        try:
            while len(rest):  # Linux writes 2 GB at once; through the map it would take memory too
                rest = rest[self.file.write(rest) :]
        except OSError:  # through the map a full disk would end the process
            return None
        found = segment[self.taken : self.taken + size]
        self.taken += -(-size // ALIGNED) * ALIGNED
        return found


def _segment(size: int) -> tuple[IO[bytes], np.ndarray]:
    """Returns a file without a name, which the system removes when nothing has it open, and its
    bytes, mapped. OSError: there is no room for it."""
    file = tempfile.TemporaryFile(prefix="probe-", buffering=0)  # noqa: SIM115
    try:
        # not posix_fallocate: on ext4 what is written then takes four times as long
        os.ftruncate(file.fileno(), size)
        segment = np.frombuffer(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ), np.uint8)
    except OSError:
        file.close()
        raise
    weakref.finalize(segment, file.close)
    return file, segment


_everywhere = _Everywhere()
