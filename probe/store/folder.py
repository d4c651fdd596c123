"""Writes one machine's folder of tables: rows are checked, buffered, and merged by key.

Appending costs a list append; columns are built when the buffer is written. Read with
:func:`probe.load`. Rows are checked against the schema when they are appended.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from itertools import chain, groupby
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

import numpy as np
import pyarrow as pa

from probe import machine, schema
from probe.errors import StoreError
from probe.store import file, layout, merging, parquet
from probe.store.origin import Origin, guide
from probe.store.recalled import Recalled

Rows = Mapping[str, Any] | Iterable[Mapping[str, Any]]
_Chunk: TypeAlias = "pa.Table | list[Mapping[str, Any]]"


class Store:
    """Writes the tables of a machine's folder; a context manager.

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
        """Returns this machine's store in an experiment's folder: ``results/NAME/<machine>``."""
        return cls(Path(experiment) / machine.label(), **options)

    def _open(self) -> None:
        trial = self.path / merging.TRIAL
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            trial.write_bytes(b"x")
            trial.unlink(missing_ok=True)
        except OSError as error:
            raise file.unwritable(self.path, error) from error
        for table in schema.TABLES:
            for path in layout.files(self.path, table):
                with suppress(FileNotFoundError):  # another process has just compacted it away
                    file.footer(path)

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
        """Buffers one row (a mapping) or several, found together; absent nullable columns are null.

        Append a comparison after its differences. Values of ``json`` columns may be text or any
        JSON value. Errors: StoreError for an unknown or missing column.
        """
        found = [rows] if isinstance(rows, Mapping) else list(rows)
        for row in found:
            check_names(table, row.keys())
        with self._lock:
            self._buffer(table, found)

    def extend(self, table: str, columns: Mapping[str, Any]) -> None:
        """Buffers rows given by columns: arrays and lists of one length; a scalar is repeated.

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
        """Writes what is buffered as one part file a table.

        Errors: StoreError where the disk is full, ...; all that isn't written stays buffered.
        """
        with self._lock, merging.alone(self.path):
            self._write_buffered(lambda table: False)

    def _write_buffered(self, compacted: Callable[[str], bool]) -> None:
        self._flushed = time.monotonic()
        origin, wrote = self._origin(), False
        for table in sorted(self._chunks, key=lambda name: (name in merging.LAST, name)):
            rows, whole = self._assemble(table), compacted(table)
            path = layout.whole(self.path, table) if whole else self._next_part(table)
            if len(rows):
                named = "run_id" in rows.column_names
                used = rows.column("run_id").unique().to_pylist() if named else None
                file.write(path, table, rows, whole, origin.told(used))
                wrote = True
            del self._chunks[table]
        self._rows = 0
        if wrote:
            guide(self.path)

    def _origin(self) -> Origin:
        fresh = self._assemble("runs") if "runs" in self._chunks else None
        return Origin([self.path] if self._chunks else [], self.path.name, fresh)

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
        keep = parquet.newest(table, rows, batches)
        return rows if keep.all() else rows.filter(pa.array(keep))

    def _next_part(self, table: str) -> Path:
        taken = layout.flat(self.path, table)
        last = taken[-1].name.split(".")[1] if taken else ""
        number = max(time.time_ns(), int(last) + 1 if last.isdigit() else 0)
        return layout.part(self.path, table, number)

    def compact(self) -> None:
        """Merges the parts of every table, without the rows that no longer count.

        Safe to interrupt: what was merged is in place before the parts are removed.
        """
        with self._lock, merging.alone(self.path):
            self._write_buffered(self._is_new)
            merging.compact(self.path)

    def _is_new(self, table: str) -> bool:
        """Returns whether what is buffered is all there is of a table, each row once."""
        return table != "differences" and not layout.files(self.path, table)

    def done_keys(self, table: str = "comparisons") -> set[tuple[Any, ...]]:
        """Keys of every row of a table, stored or buffered: tuples as ``schema.keys(table)``."""
        names = schema.keys(table)
        with self._lock:
            pieces = [parquet.table(self.path, table, names)]
            if table in self._chunks:
                pieces.append(self._assemble(table).select(names))
        columns = [[piece.column(name).to_pylist() for name in names] for piece in pieces]
        return {key for each in columns for key in zip(*each, strict=True)}

    def recall(
        self, run_id: str, target: str, vary: str, against: int, controlled: bool = False
    ) -> Recalled:
        """Returns what is stored of a sweep's comparisons on one target.

        ``controlled``: only those whose shape was run again. Errors: StoreError, also where
        comparisons have lost their differences.
        """
        return Recalled(self.path, (run_id, target, vary, against), controlled)


def merge(
    folders: Sequence[str | Path],
    out: str | Path,
    partitioned: bool = False,
    progress: Callable[[int, int, str], None] | None = None,
) -> list[Path]:
    """Merges stores into ``out``, one folder a machine; returns these folders.

    Where two have the same machine and the same row, the one of the later folder counts; what
    ``out`` has already is older than all. ``partitioned``: a folder a table instead, in it one a
    machine and one a target, for other tools (:mod:`probe.store.layout`); ``out`` stays so. The
    sources are not changed, memory stays flat. ``progress(done, total, what)`` counts tables of
    machines. Errors: as :func:`probe.load` and :class:`Store`.
    """
    sources = [found for folder in folders for found in layout.machine_folders(Path(folder))]
    written: list[Path] = []
    machines = merging.of_machines(sources, Path(out))
    each = len(schema.TABLES)

    def tell(done: int, table: str) -> None:
        if progress:
            told = f"{target.name}: {table}"
            progress(len(written) * each + done, len(machines) * each, told)

    for name, found in machines.items():
        target = Path(out) / name
        Store(target)
        merging.merge(found, target, partitioned, tell)
        written.append(target)
    return written


_REQUIRED = {
    table: frozenset(column.name for column in columns if column.null is None)
    for table, columns in schema.TABLES.items()
}
_ALLOWED = {table: frozenset(schema.names(table)) for table in schema.TABLES}


def check_names(table: str, names: Set[str]) -> None:
    """Raises StoreError where a column is missing that may not be null, or one is unknown."""
    if not _REQUIRED[table] <= names:
        missing = ", ".join(sorted(_REQUIRED[table] - names))
        raise StoreError(f"{table}: no value for {missing}; these may not be null")
    if not names <= _ALLOWED[table]:
        unknown = ", ".join(sorted(names - _ALLOWED[table]))
        raise StoreError(f"{table}: has no column {unknown}; see probe/schema")


def from_rows(table: str, rows: list[Mapping[str, Any]]) -> pa.Table:
    """Returns rows given one by one; columns that a row hasn't are null."""
    names = schema.names(table)
    return _build(table, {name: [row.get(name) for row in rows] for name in names}, len(rows))


def from_columns(table: str, columns: Mapping[str, Any]) -> pa.Table:
    """Returns rows given by columns: arrays and lists of one length; a scalar is repeated.

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
        if isinstance(values, pa.ChunkedArray):
            values = pa.concat_arrays([pa.array([], values.type), *values.chunks])
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
