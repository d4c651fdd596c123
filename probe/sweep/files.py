"""Says where the files of a store are, writes one of them, and verifies it.

``ROOT/<machine>`` is one machine's store: ``<table>.parquet``, compacted, and parts
``<table>.<n>.parquet``. A later file of :func:`table_files` has the later rows.

Files are written whole or not at all, versioned and sealed; errors name the file. Between the last
page and the footer stand :data:`SEAL` and the SHA-256 of all the rest. Readers of Parquet ignore
it, for a footer says where its pages are; the readers of this module use it to check that every bit
is the one that was written.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Self

import pyarrow as pa
import pyarrow.parquet as pq

from probe.case import schema
from probe.case.arguments import not_waiting
from probe.case.errors import StoreError

# Tables whose id is a hash of the row: the same on every machine, so kept once.
CONTENT = ("cases", "orders", "roundings", "networks")

_FLAT = re.compile(r"([a-z_]+)(?:\.(\d+))?\.parquet")


def table_files(folder: Path, table: str) -> list[Path]:
    """Files of a machine's table: the compacted one, then the parts by number."""
    matches = [_FLAT.fullmatch(path.name) for path in folder.glob(f"{table}*.parquet")]
    parts = sorted(
        (int(match[2] or -1), match[0]) for match in matches if match and match[1] == table
    )
    return [folder / name for _, name in parts]


# The tables of a machine's folder, a line each: a file that was deleted leaves no other trace where
# no row names those that it had.
LIST = "tables.txt"


def list_tables(folder: Path) -> None:
    """Writes which tables a machine's folder has, beside those that it is said to have."""
    known = listed_tables(folder)
    there = known | {table for table in schema.TABLES if table_files(folder, table)}
    if there != known:
        handle, name = tempfile.mkstemp(dir=folder, prefix=".", suffix=".tmp")
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write("".join(f"{table}\n" for table in sorted(there)))
        os.chmod(name, 0o644)
        os.replace(name, folder / LIST)


def listed_tables(folder: Path) -> set[str]:
    """The tables that a machine's folder is said to have; none of older releases."""
    try:
        lines = (folder / LIST).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return set()
    return {line for line in lines if line in schema.TABLES}


def machine_folders(path: Path) -> list[Path]:
    """``path`` and what is under it as folders of one machine each, sorted.

    Errors: StoreError if there's no such path.
    """
    if not path.is_dir():
        there = "it is a file; give its folder"
        why = there if path.exists() else "there is no such folder; check the name"
        raise StoreError(f"path={path}: {why}")
    places = set()
    for up_to, folders, names in os.walk(path):
        # what Git and others keep for themselves is not a store
        folders[:] = [name for name in folders if not name.startswith(".")]
        flat = ((match := _FLAT.fullmatch(name)) and match[1] in schema.TABLES for name in names)
        if LIST in names or any(flat):
            places.add(Path(up_to).resolve())
    return sorted(places)


SEAL = b"PROBE256"
# Rows that are written, and held in memory, together.
ROW_GROUP = 2**17

_COMPACTED = b"probe.compacted"
# Bytes behind the footer: its length and PAR1.
_TAIL = 8
_SEALED = len(SEAL) + 32
_AT_ONCE = 2**20
_REASONS = {
    errno.ENOSPC: ("the disk is full", "free some space"),
    errno.EDQUOT: ("the disk quota is used up", "free some space"),
    errno.EFBIG: ("the limit on the size of a file is reached", "raise it (ulimit -f)"),
    errno.EROFS: ("the file system is read-only", "choose a folder that can be written"),
    errno.EACCES: ("no permission to write there", "choose a folder that can be written"),
    errno.EPERM: ("no permission to write there", "choose a folder that can be written"),
    errno.ENOENT: ("no folder can be made there", "choose a different folder"),
    errno.ENOTDIR: ("a part of the path is a file", "choose a folder"),
    errno.EEXIST: ("there is a file of that name", "choose a folder"),
}


def unwritable(path: Path, error: OSError) -> StoreError:
    """The one-line error for a failed write in the folder ``path``."""
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
        described = schema.described_schema(table)
        metadata = dict(described.metadata) | ({_COMPACTED: "1"} if compacted else {})
        self._schema = pa.schema(list(described), metadata | dict(origin or {}))
        self._temporary = ""
        self._stream: BinaryIO | None = None
        with self._named():
            path.parent.mkdir(parents=True, exist_ok=True)
            folder = scratch or path.parent
            handle, self._temporary = tempfile.mkstemp(dir=folder, prefix=".", suffix=".tmp")
            self._stream = os.fdopen(handle, "w+b")
            self._parquet = pq.ParquetWriter(
                pa.PythonFile(self._stream, mode="w"),
                self._schema,
                compression="zstd",
                # a part is read once, when it is merged
                compression_level=9 if compacted else 1,
                use_dictionary=[field.name for field in described if field.type == pa.string()],
                write_statistics=True,
                write_page_checksum=True,
            )

    @contextmanager
    def _named(self) -> Iterator[None]:
        """What fails within it discards the file; a failure of the system names the folder."""
        try:
            yield
        except BaseException as error:
            self.discard()
            if isinstance(error, OSError):
                raise unwritable(self.path.parent, error) from error
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
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
        self.drain()
        with self._named():
            self._parquet.close()
            assert self._stream is not None
            # the footer says where each page is, so bytes between the last one and it move nothing
            place, rest = _from_footer(self._stream)
            digest = _sha256(self._stream, place, rest)
            self._stream.seek(place)
            self._stream.write(SEAL + digest + rest)
            self._stream.flush()
            os.fsync(self._stream.fileno())
            self._stream.close()
            os.chmod(self._temporary, 0o644)
            os.replace(self._temporary, self.path)
            if hasattr(os, "O_DIRECTORY"):  # the new name is on the disk when the folder is
                folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)

    def discard(self) -> None:
        # pyarrow closes what it writes to when it goes, which fails again on a full disk
        with suppress(OSError, pa.ArrowException, AttributeError):
            self._parquet.close()
        if self._stream is not None:
            with suppress(OSError):
                self._stream.close()
        with suppress(OSError):
            os.unlink(self._temporary)


def write_file(
    path: Path,
    table: str,
    rows: pa.Table,
    compacted: bool = False,
    origin: Mapping[str, str] | None = None,
) -> None:
    """Writes ``rows`` (columns as ``schema.arrow_schema(table)``) to ``path``, all or nothing."""
    with Writer(path, table, compacted, origin=origin) as writer:
        writer.write(rows)


def _from_footer(stream: BinaryIO, before: int = 0) -> tuple[int, bytes]:
    """Where the footer is, less ``before`` bytes, and all from there; no bytes: nowhere."""
    end = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, end - _TAIL))
    tail = stream.read(_TAIL)
    place = end - _TAIL - int.from_bytes(tail[:4], "little") - before
    if len(tail) < _TAIL or place < len("PAR1"):
        return 0, b""
    stream.seek(place)
    return place, stream.read(end - place)


def _sha256(stream: BinaryIO, place: int, rest: bytes) -> bytes:
    """The digest of what stands before ``place``, and of ``rest``."""
    digest = hashlib.sha256()
    stream.seek(0)
    while place > 0 and (piece := stream.read(min(_AT_ONCE, place))):
        digest.update(piece)
        place -= len(piece)
    digest.update(rest)
    return digest.digest()


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """What fails within it is a StoreError that names the file; but not that it is gone."""
    try:
        yield
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
        raise damaged(path, error) from error


def footer(path: Path) -> pa.Schema:
    """The Arrow schema of a file. StoreError where it is damaged, not ours, or newer."""
    with _reading(path):
        arrow = pq.read_schema(path)
    version = (arrow.metadata or {}).get(b"probe.schema_version", b"").decode(errors="replace")
    if not version.isdecimal():
        raise StoreError(f"file={path.name}: not written by probe; move it out of the store")
    if int(version) > schema.VERSION:
        raise StoreError(
            f"schema_version={version}: {path.name} is in a newer format than this probe's "
            f"{schema.VERSION}; update probe to read it"
        )
    return arrow


def is_compacted(path: Path) -> bool:
    """Whether no row of the file is outdated by another one of it."""
    return _COMPACTED in (footer(path).metadata or {})


def state(path: Path) -> tuple[int, int, int]:
    """What changes where a file is replaced by another one. FileNotFoundError."""
    stat = path.stat()
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def verify_file(path: Path) -> None:
    """Reads a file whole, once. StoreError where it isn't as it was written, not ours, or newer."""
    require_unchanged(path)
    footer(path)


def require_unchanged(path: Path) -> None:
    _verified(path, *state(path))


@lru_cache(4096)
def _verified(path: Path, *_: int) -> None:
    with _reading(path), not_waiting("file", path).open("rb") as stream:
        place, rest = _from_footer(stream, _SEALED)
        if rest.startswith(SEAL):
            if _sha256(stream, place, rest[_SEALED:]) != rest[len(SEAL) : _SEALED]:
                raise ValueError("its bytes have changed since it was written")
        else:  # files of older versions, or that another tool has written anew, carry no seal
            with pq.ParquetFile(path, page_checksum_verification=True) as opened:
                deque(opened.iter_batches(), maxlen=0)


def damaged(path: Path, error: Exception) -> StoreError:
    """The one-line error for a file that can't be read."""
    reason = " ".join(str(error).split("\n")[0].split())[:120].replace(str(path.parent), "...")
    return StoreError(
        f"file={path.name}: damaged, can't be read as parquet ({reason}); restore it, or move it "
        "out of the store and measure again"
    )
