"""One machine's folder of tables, to be written: rows are buffered, and merged by key.

Appending costs a list append; columns are built when the buffer is written. Read with
:func:`probe.load`.
Rows are checked against the schema when they are appended.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from itertools import chain, groupby
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

import numpy as np
import pyarrow as pa

from probe import machine, schema
from probe.errors import StoreError
from probe.store import parquet
from probe.store.results import machine_folders

if sys.platform != "win32":
    import fcntl

_LAST = ("comparisons", "failures")
"""Written after all others: what these say is done has its other rows on the disk already."""

Rows = Mapping[str, Any] | Iterable[Mapping[str, Any]]
_Chunk: TypeAlias = "pa.Table | list[Mapping[str, Any]]"


class Store:
    """A machine's folder of tables, to be written; a context manager.

    It flushes on leaving (also by Ctrl-C or an error), and by itself after ``flush_rows`` rows or
    ``flush_seconds``: no more than that is lost to a power cut. May be shared by threads. Several
    processes may write to one folder.

    Errors (StoreError, at opening already): read-only, full, damaged or of a newer format.
    """

    def __init__(
        self, path: str | Path, flush_rows: int = 500_000, flush_seconds: float = 10.0
    ) -> None:
        self.path = Path(path)
        self.flush_rows, self.flush_seconds = flush_rows, flush_seconds
        self._chunks: dict[str, list[_Chunk]] = {}
        self._rows = 0
        self._flushed = time.monotonic()
        self._lock = threading.RLock()
        self._open()

    @classmethod
    def here(cls, experiment: str | Path, **options: Any) -> Store:
        """The store of this machine in an experiment's folder: ``results/NAME/<machine>``."""
        return cls(Path(experiment) / machine.label(), **options)

    def _open(self) -> None:
        trial = self.path / ".writable.tmp"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            trial.write_bytes(b"x")
            trial.unlink()
        except OSError as error:
            raise parquet.unwritable(self.path, error) from error
        for table in schema.TABLES:
            for file in parquet.files(self.path, table):
                parquet.footer(file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if kind is None:
            self.compact()
        else:
            self.flush()

    def append(self, table: str, rows: Rows) -> None:
        """Buffer one row (a mapping) or several, found together; absent nullable columns are null.

        Append a comparison after its differences. Values of ``json`` columns may be text or any
        JSON value. Errors: StoreError for an unknown or missing column.
        """
        found = [rows] if isinstance(rows, Mapping) else list(rows)
        for row in found:
            check_names(table, row.keys())
        with self._lock:
            self._buffer(table, found)

    def extend(self, table: str, columns: Mapping[str, Any]) -> None:
        """Buffer rows given by columns: arrays and lists of one length; a scalar is repeated.

        In arrays NaN and ``schema.NULL_INT`` are null where the column may be null. Costs no
        Python object a row, for millions of differences. Errors: as :meth:`append`.
        """
        built = from_columns(table, columns)
        with self._lock:
            self._buffer(table, built)

    def _buffer(self, table: str, chunk: _Chunk) -> None:
        self._chunks.setdefault(table, []).append(chunk)
        self._rows += len(chunk)
        late = time.monotonic() - self._flushed > self.flush_seconds
        # not between a comparison and its differences: others may be merging this folder's files
        if table != "differences" and (late or self._rows >= self.flush_rows):
            self.flush()

    def flush(self) -> None:
        """Write what is buffered as one part file a table.

        Errors: StoreError where the disk is full, ...; all that isn't written stays buffered.
        """
        with self._lock, _alone(self.path):
            self._write_buffered(lambda table: False)

    def _write_buffered(self, compacted: Callable[[str], bool]) -> None:
        self._flushed = time.monotonic()
        for table in sorted(self._chunks, key=lambda name: (name in _LAST, name)):
            rows, whole = self._assemble(table), compacted(table)
            path = parquet.whole(self.path, table) if whole else self._next_part(table)
            if len(rows):
                parquet.write(path, table, rows, compacted=whole)
            del self._chunks[table]
        self._rows = 0

    def _assemble(self, table: str) -> pa.Table:
        chunks = self._chunks[table]
        pieces = []
        for plain, group in groupby(chunks, key=lambda chunk: isinstance(chunk, list)):
            if plain:
                pieces.append(from_rows(table, list(chain.from_iterable(group))))
            else:
                pieces.extend(group)
        rows = pa.concat_tables(pieces)
        if table == "differences":
            return rows
        batches = np.repeat(np.arange(len(chunks)), [len(chunk) for chunk in chunks])
        return parquet.newest(table, rows, batches)

    def _next_part(self, table: str) -> Path:
        taken = parquet.files(self.path, table)
        last = taken[-1].name.split(".")[1] if taken else ""
        number = max(time.time_ns(), int(last) + 1 if last.isdigit() else 0)
        return parquet.part(self.path, table, number)

    def compact(self) -> None:
        """Merge the parts of every table into one file, without the rows that no longer count.

        Safe to interrupt: the merged file is in place before the parts are removed.
        """
        with self._lock, _alone(self.path):
            self._write_buffered(self._is_new)
            for table in sorted(schema.TABLES, key=lambda name: name in _LAST):
                if not parquet.is_whole(self.path, table):
                    _merge_parts(self.path, table)

    def _is_new(self, table: str) -> bool:
        """Whether what is buffered is all there is of a table, each row once."""
        return table != "differences" and not parquet.files(self.path, table)

    def done_keys(self, table: str = "comparisons") -> set[tuple[Any, ...]]:
        """Keys of every row of a table, stored or buffered: tuples as ``schema.keys(table)``."""
        names = schema.keys(table)
        with self._lock:
            pieces = [parquet.read(p, table, names) for p in parquet.files(self.path, table)]
            if table in self._chunks:
                pieces.append(self._assemble(table).select(names))
        columns = [[piece.column(name).to_pylist() for name in names] for piece in pieces]
        return {key for each in columns for key in zip(*each, strict=True)}


def merge(folders: Sequence[str | Path], out: str | Path) -> list[Path]:
    """Merge stores into ``out``, one folder a machine; returns these folders.

    Where two have the same machine and the same row, the one of the later folder counts. The
    sources are not changed. Errors: as :func:`probe.load` and :class:`Store`.
    """
    sources = [found for folder in folders for found in machine_folders(Path(folder))]
    written: dict[str, Path] = {}
    for source in sources:
        target = Path(out) / source.name
        if target.resolve() == source:
            raise StoreError(f"out={out}: is one of the merged folders; choose another folder")
        store = Store(target)
        for table in schema.TABLES:
            store._chunks[table] = [parquet.table(source, table)]
        store.compact()
        written[source.name] = target
    return list(written.values())


def _merge_parts(folder: Path, table: str) -> None:
    target = parquet.whole(folder, table)
    old = [path for path in parquet.files(folder, table) if path != target]
    parquet.write(target, table, parquet.table(folder, table), compacted=True)
    for path in old:
        path.unlink(missing_ok=True)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process at a time writes or merges files of a folder (where the system has locks)."""
    if sys.platform == "win32":
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


_REQUIRED = {
    table: frozenset(column.name for column in columns if column.null is None)
    for table, columns in schema.TABLES.items()
}
_ALLOWED = {table: frozenset(schema.names(table)) for table in schema.TABLES}


def check_names(table: str, names: Set[str]) -> None:
    """StoreError where a column is missing that may not be null, or one is unknown."""
    if not _REQUIRED[table] <= names:
        missing = ", ".join(sorted(_REQUIRED[table] - names))
        raise StoreError(f"{table}: no value for {missing}; these may not be null")
    if not names <= _ALLOWED[table]:
        unknown = ", ".join(sorted(names - _ALLOWED[table]))
        raise StoreError(f"{table}: has no column {unknown}; see probe/schema")


def from_rows(table: str, rows: list[Mapping[str, Any]]) -> pa.Table:
    """Rows given one by one; columns that a row hasn't are null."""
    names = schema.names(table)
    return _build(table, {name: [row.get(name) for row in rows] for name in names}, len(rows))


def from_columns(table: str, columns: Mapping[str, Any]) -> pa.Table:
    """Rows given by columns: arrays and lists of one length; a scalar is repeated.

    In arrays NaN and ``schema.NULL_INT`` are null where the column may be null.
    """
    check_names(table, columns.keys())
    sizes = {len(values) for values in columns.values() if _is_sequence(values)}
    if len(sizes) != 1:
        raise StoreError(f"{table}: columns of {sorted(sizes)} rows; give them one length")
    return _build(table, columns, sizes.pop())


def _build(table: str, columns: Mapping[str, Any], count: int) -> pa.Table:
    arrays = [_array(table, c, columns.get(c.name), count) for c in schema.TABLES[table]]
    return pa.table(arrays, schema=schema.arrow_schema(table).remove_metadata())


def _array(table: str, column: schema.Column, values: Any, count: int) -> pa.Array:
    kind = column.arrow()
    if values is None and column.null is not None:
        return pa.nulls(count, kind)
    try:
        if not _is_sequence(values):
            return pa.repeat(_array(table, column, [values], 1)[0], count)
        mask = _nulls(column, values)
        if schema.TYPES[column.type] == "string" and not isinstance(values, pa.Array):
            values = [_text(column, value) for value in values]
        array = pa.array(values, type=kind, mask=mask)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise StoreError(f"{table}.{column.name}: {error}; its type is {kind}") from error
    if column.null is None and array.null_count:
        raise StoreError(f"{table}.{column.name}=None: this column may not be null")
    return array


def _nulls(column: schema.Column, values: Any) -> np.ndarray | None:
    if column.null is None or not isinstance(values, np.ndarray):
        return None
    if column.type == "float":
        return np.isnan(values)
    return values == schema.NULL_INT if values.dtype == np.int64 else None


def _text(column: schema.Column, value: Any) -> Any:
    if value is None:
        return None
    if column.type == "json" and not isinstance(value, str):
        value = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return machine.publishable(value) if column.foreign else value


def _is_sequence(values: Any) -> bool:
    return isinstance(values, list | tuple | np.ndarray | pa.Array | pa.ChunkedArray)
