"""Reads and writes one Parquet file: atomic, versioned, sealed; errors name the file.

Between the last page and the footer of a file stand :data:`SEAL` and the SHA-256 of all the rest.
Readers of Parquet ignore it, for a footer says where its pages are; the readers of this file use it
to check that every bit is the one that was written.
"""

from __future__ import annotations

import errno
import hashlib
import os
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import pyarrow as pa
import pyarrow.parquet as pq

from probe import schema
from probe.errors import StoreError
from probe.store import layout

SEAL = b"PROBE256"
ROW_GROUP = 2**17
"""Rows that are written, and held in memory, together."""

_COMPACTED = b"probe.compacted"
_TAIL = 8  # bytes behind the footer: its length and PAR1
_SEALED = len(SEAL) + 32
_AT_ONCE = 2**20
_REASONS = {
    errno.ENOSPC: ("the disk is full", "free some space"),
    errno.EDQUOT: ("the disk quota is used up", "free some space"),
    errno.EFBIG: ("the limit on the size of a file is reached", "raise it (ulimit -f)"),
    errno.EROFS: ("the file system is read-only", "choose a folder that can be written"),
    errno.EACCES: ("no permission to write there", "choose a folder that can be written"),
    errno.EPERM: ("no permission to write there", "choose a folder that can be written"),
    errno.ENOTDIR: ("a part of the path is a file", "choose a folder"),
    errno.EEXIST: ("there is a file of that name", "choose a folder"),
}


def unwritable(path: Path, error: OSError) -> StoreError:
    """Returns the one-line error for a failed write in the folder ``path``."""
    why, todo = _REASONS.get(error.errno or 0, (error.strerror or str(error), "check the disk"))
    again = "then run the same command again: what was written before is kept"
    return StoreError(f"store={path}: {why}; {todo}, {again}")


class Writer:
    """Writes one file row group by row group; a context manager that leaves all of it or nothing.

    The bytes are on the disk (fsync) before the name is: a reader sees the old file or the new
    one. ``scratch``: the folder of the unfinished file; None: the file's. ``compacted``: no row of
    it is outdated. ``origin``: what the file says of where its rows come from. Errors: StoreError
    where the disk is full or read-only; then ``path`` is as it was before.
    """

    def __init__(
        self,
        path: Path,
        table: str,
        compacted: bool = False,
        scratch: Path | None = None,
        origin: Mapping[str, str] | None = None,
    ) -> None:
        self.path, self.table = path, table
        self.held = 0
        self._pieces: list[pa.Table] = []
        self._level = 9 if compacted else 1
        said, described = layout.values(path), schema.described(table)
        told = dict(described.metadata) | ({_COMPACTED: "1"} if compacted else {})
        told |= origin or {}
        kept = [field for field in described if field.name not in said]
        self._schema = pa.schema(kept, told)
        self._temporary = ""
        self._stream: BinaryIO | None = None
        with self._named():
            path.parent.mkdir(parents=True, exist_ok=True)
            folder = scratch or path.parent
            handle, self._temporary = tempfile.mkstemp(dir=folder, prefix=".", suffix=".tmp")
            self._stream = os.fdopen(handle, "w+b")
            self._parquet = self._started()

    def _started(self) -> pq.ParquetWriter:
        columns = {one.name: schema.TYPES[one.type] for one in schema.TABLES[self.table]}
        return pq.ParquetWriter(
            pa.PythonFile(self._stream, mode="w"),
            self._schema,
            compression="zstd",
            compression_level=self._level,
            use_dictionary=[name for name in self._schema.names if columns[name] == "string"],
            write_statistics=True,
            write_page_checksum=True,
        )

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Yields what fails within it discards the file; a failure of the system names the
        folder."""
        try:
            yield
        except BaseException as error:
            self.discard()
            if isinstance(error, OSError):
                raise unwritable(self.path.parent, error) from error
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if kind is None:
            self.finish()
        else:
            self.discard()

    def write(self, rows: pa.Table) -> None:
        """Adds rows with the columns of the schema; whole row groups are written at once."""
        self._pieces.append(rows.select(self._schema.names))
        self.held += len(rows)
        while self.held >= ROW_GROUP:
            self.drain()

    def drain(self) -> None:
        """Writes what is held as a row group, or as much of it as one takes."""
        if not self.held:
            return
        rows = pa.concat_tables(self._pieces)
        left = rows.slice(ROW_GROUP)
        self._pieces, self.held = [left] if len(left) else [], len(left)
        with self._named():
            rows = rows.slice(0, ROW_GROUP).combine_chunks().replace_schema_metadata(None)
            self._parquet.write_table(rows.cast(self._schema), row_group_size=ROW_GROUP)

    def finish(self) -> None:
        """Puts the file in place."""
        self.drain()
        with self._named():
            self._parquet.close()
            assert self._stream is not None
            _seal(self._stream)
            self._stream.flush()
            os.fsync(self._stream.fileno())
            self._stream.close()
            os.chmod(self._temporary, 0o644)
            os.replace(self._temporary, self.path)
            _sync_folder(self.path.parent)

    def discard(self) -> None:
        """Leaves no trace."""
        # pyarrow closes what it writes to when it goes, which fails again on a full disk
        with suppress(OSError, pa.ArrowException, AttributeError):
            self._parquet.close()
        if self._stream is not None:
            with suppress(OSError):
                self._stream.close()
        with suppress(OSError):
            os.unlink(self._temporary)


def write(
    path: Path,
    table: str,
    rows: pa.Table,
    compacted: bool = False,
    origin: Mapping[str, str] | None = None,
) -> None:
    """Writes ``rows`` (columns as ``schema.arrow_schema(table)``) to ``path``, all or nothing."""
    with Writer(path, table, compacted, origin=origin) as writer:
        writer.write(rows)


def _seal(stream: BinaryIO) -> None:
    """Puts the digest of a finished file before its footer."""
    end = stream.seek(0, os.SEEK_END)
    stream.seek(end - _TAIL)
    tail = stream.read(_TAIL)
    place = end - _TAIL - int.from_bytes(tail[:4], "little")
    stream.seek(place)
    footer = stream.read(end - _TAIL - place)
    digest = _digest(stream, place, footer + tail)
    stream.seek(place)
    stream.write(SEAL + digest + footer + tail)


def _digest(stream: BinaryIO, place: int, rest: bytes) -> bytes:
    """SHA-256 of what stands before ``place``, and of ``rest``."""
    found = hashlib.sha256()
    stream.seek(0)
    while place > 0 and (piece := stream.read(min(_AT_ONCE, place))):
        found.update(piece)
        place -= len(piece)
    found.update(rest)
    return found.digest()


def _sync_folder(folder: Path) -> None:
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sealed(stream: BinaryIO) -> tuple[int, bytes, bytes] | None:
    """Returns where the seal stands, its digest, and what follows it."""
    end = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, end - _TAIL))
    tail = stream.read(_TAIL)
    place = end - _TAIL - int.from_bytes(tail[:4], "little") - _SEALED
    if len(tail) < _TAIL or place < 4:
        return None
    stream.seek(place)
    rest = stream.read(end - place)
    if not rest.startswith(SEAL):
        return None
    return place, rest[len(SEAL) : _SEALED], rest[_SEALED:]


def footer(path: Path) -> pa.Schema:
    """Returns the Arrow schema of a file. StoreError where it is damaged, not ours, or of a newer
    version."""
    try:
        found = pq.read_schema(path)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise damaged(path, error) from error
    version = (found.metadata or {}).get(b"probe.schema_version", b"").decode(errors="replace")
    if not version.isdecimal():
        raise StoreError(f"file={path.name}: not written by probe; move it out of the store")
    if int(version) > schema.VERSION:
        raise StoreError(
            f"schema_version={version}: {path.name} is in a newer format than this probe's "
            f"{schema.VERSION}; update probe to read it"
        )
    return found


def is_compacted(path: Path) -> bool:
    """Returns whether no row of the file is outdated by another one of it."""
    return _COMPACTED in (footer(path).metadata or {})


def verify(path: Path) -> None:
    """Reads a file whole. StoreError where it isn't as it was written, not ours, or newer."""
    if not checked(path):
        try:
            deque(_opened(path).iter_batches(), maxlen=0)
        except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
            raise damaged(path, error) from error
    footer(path)


def checked(path: Path) -> bool:
    """Returns whether the bytes are those that were written; False: the file carries no seal.

    Files of older versions, or that another tool has written anew, carry none. StoreError where
    the bytes are not those.
    """
    return _verified(path, *state(path))


def state(path: Path) -> tuple[int, int, int]:
    """Returns what changes where a file is replaced by another one."""
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def same(path: Path, before: tuple[int, int, int]) -> None:
    """Raises FileNotFoundError where the file was replaced since."""
    if state(path) != before:
        raise FileNotFoundError(2, "it was replaced meanwhile", str(path))


@lru_cache(4096)
def _verified(path: Path, *_: int) -> bool:
    """Returns whether the file carries a seal, which fits; False without one. StoreError."""
    try:
        with path.open("rb") as stream:
            if (found := _sealed(stream)) is None:
                return False
            place, digest, rest = found
            if _digest(stream, place, rest) == digest:
                return True
    except FileNotFoundError:
        raise
    except OSError as error:
        raise damaged(path, error) from error
    raise damaged(path, ValueError("its bytes have changed since it was written"))


def _opened(path: Path) -> pq.ParquetFile:
    return pq.ParquetFile(path, page_checksum_verification=True)


def count(path: Path) -> int:
    """Returns rows of a file."""
    try:
        return int(pq.read_metadata(path).num_rows)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise damaged(path, error) from error


def batches(path: Path, table: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Yields rows of one file, a row group or less at a time, with the columns of today's schema.

    Columns younger than the file are null. Errors: StoreError where the file is damaged.
    """
    present = set(footer(path).names)
    checked(path)
    said = layout.values(path)
    wanted = schema.names(table) if columns is None else list(columns)
    stored = [name for name in wanted if name in present and name not in said]
    stored = stored or sorted(present)[:1]  # without any column there are no rows to count
    try:
        with _opened(path) as opened:
            for group in range(opened.num_row_groups):
                # old files have row groups of a million rows
                for batch in opened.iter_batches(ROW_GROUP, row_groups=[group], columns=stored):
                    rows = pa.Table.from_batches([batch])
                    yield _as_today(rows, len(batch), table, wanted, said)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise damaged(path, error) from error


def read(path: Path, table: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Returns all rows of one file, as :func:`batches`."""
    wanted = schema.names(table) if columns is None else list(columns)
    today = schema.arrow_schema(table)
    empty = pa.schema([today.field(name) for name in wanted]).empty_table()
    return pa.concat_tables([empty, *batches(path, table, columns)])


def _as_today(
    rows: pa.Table, count: int, table: str, wanted: Sequence[str], said: dict[str, str]
) -> pa.Table:
    today = schema.arrow_schema(table)
    fields = [today.field(name) for name in wanted]
    arrays = []
    for field in fields:
        if field.name in said:
            arrays.append(pa.repeat(pa.scalar(said[field.name], field.type), count))
        elif field.name in rows.column_names:
            arrays.append(rows.column(field.name).cast(field.type))
        else:
            arrays.append(pa.nulls(count, field.type))
    return pa.table(arrays, schema=pa.schema(fields))


def damaged(path: Path, error: Exception) -> StoreError:
    """Returns the one-line error for a file that can't be read."""
    reason = " ".join(str(error).split("\n")[0].split())[:120].replace(str(path.parent), "...")
    name = path.name if not layout.values(path) else "/".join(path.parts[-4:])
    return StoreError(
        f"file={name}: damaged, can't be read as parquet ({reason}); restore it, or move it "
        "out of the store and measure again"
    )
