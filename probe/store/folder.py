"""Writes one machine's folder of tables: rows are checked, buffered, and merged by key.

Appending costs a list append; columns are built when the buffer is written. Read with
:func:`probe.load`. Rows are checked against the schema when they are appended.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Mapping, Set
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
import pyarrow as pa

from probe import machine, schema
from probe.errors import StoreError
from probe.store import file, layout, merging, parquet
from probe.store.merging import Origin, guide
from probe.store.parquet import Recalled

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
        merging.require_usable(self.path)

    @classmethod
    def here(cls, experiment: str | Path, **options: Any) -> Store:
        """Returns this machine's store in an experiment's folder: ``results/NAME/<machine>``."""
        return cls(Path(experiment) / machine.label(), **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
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
            _require_columns(table, row.keys())
        self._buffer(table, found)

    def extend(self, table: str, columns: Mapping[str, Any]) -> None:
        """Buffers rows given by columns: arrays and lists of one length; a scalar is repeated.

        In arrays NaN and ``schema.NULL_INT`` are null where the column may be null. Costs no
        Python object a row, for millions of differences. Errors: as :meth:`append`.
        """
        _require_columns(table, columns.keys())
        sizes = {len(values) for values in columns.values() if isinstance(values, _SEQUENCES)}
        if len(sizes) != 1:
            raise StoreError(f"{table}: columns of {sorted(sizes)} rows; give them one length")
        self._buffer(table, _table(table, columns, sizes.pop()))

    def _buffer(self, table: str, chunk: _Chunk) -> None:
        with self._lock:
            self._chunks.setdefault(table, []).append(chunk)
            self._rows += len(chunk)
            late = time.monotonic() - self._flushed > self.flush_seconds
            # not between a comparison and its differences: others may be merging these files
            if table != "differences" and (late or self._rows >= self.flush_rows):
                self.flush()

    def flush(self) -> None:
        """Writes what is buffered as one part file a table.

        Errors: StoreError where the disk is full, ...; all that isn't written stays buffered.
        """
        with self._lock, merging.exclusive(self.path):
            self._write_pieces()

    def _write_pieces(self, compacting: bool = False) -> None:
        self._flushed = time.monotonic()
        fresh = self._assemble("runs") if "runs" in self._chunks else None
        origin = Origin([self.path] if self._chunks else [], self.path.name, fresh)
        wrote = False
        for table in sorted(self._chunks, key=lambda name: (name in merging.LAST, name)):
            rows = self._assemble(table)
            # what is buffered may be all there is of a table, each row once
            whole = compacting and table != "differences"
            whole = whole and not layout.table_files(self.path, table)
            if len(rows):
                flat = layout.unpartitioned(self.path, table)
                last = flat[-1].name.split(".")[1] if flat else ""
                # a clock may have been put back: later rows are in parts of larger numbers
                number = max(time.time_ns(), int(last) + 1 if last.isdigit() else 0)
                path = self.path / (f"{table}.parquet" if whole else f"{table}.{number}.parquet")
                # a file says of which runs its rows are; where they name none, of all runs
                named = "run_id" in rows.column_names
                used = rows.column("run_id").unique().to_pylist() if named else None
                file.write_file(path, table, rows, whole, origin.metadata(used))
                wrote = True
            del self._chunks[table]
        self._rows = 0
        if wrote:
            guide(self.path)

    def _assemble(self, table: str) -> pa.Table:
        chunks = self._chunks[table]
        pieces = []
        for plain, group in groupby(chunks, key=lambda chunk: isinstance(chunk, list)):
            if plain:
                rows = list(chain.from_iterable(group))
                columns = {
                    name: [row.get(name) for row in rows] for name in schema.column_names(table)
                }
                pieces.append(_table(table, columns, len(rows)))
            else:
                pieces.extend(group)
        found = pa.concat_tables(pieces)
        if table == "differences":
            return found
        batches = np.repeat(np.arange(len(chunks)), [len(chunk) for chunk in chunks])
        return parquet.newest(table, found, batches)

    def compact(self) -> None:
        """Merges the parts of every table, without the rows that no longer count.

        Safe to interrupt: what was merged is in place before the parts are removed.
        """
        with self._lock, merging.exclusive(self.path):
            self._write_pieces(compacting=True)
            merging.compact(self.path)

    def done_keys(self, table: str = "comparisons") -> set[tuple[Any, ...]]:
        """Keys of every row of a table, stored or buffered: tuples of ``schema.key_columns``."""
        names = schema.key_columns(table)
        with self._lock:
            pieces = [parquet.read_table(self.path, table, names)]
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


_REQUIRED = {
    table: frozenset(column.name for column in columns if column.null is None)
    for table, columns in schema.TABLES.items()
}
_ALLOWED = {table: frozenset(schema.column_names(table)) for table in schema.TABLES}


def _require_columns(table: str, names: Set[str]) -> None:
    if not _REQUIRED[table] <= names:
        missing = ", ".join(sorted(_REQUIRED[table] - names))
        raise StoreError(f"{table}: no value for {missing}; these may not be null")
    if not names <= _ALLOWED[table]:
        unknown = ", ".join(sorted(names - _ALLOWED[table]))
        raise StoreError(f"{table}: has no column {unknown}; see probe/schema")


_SEQUENCES = (list, tuple, np.ndarray, pa.Array, pa.ChunkedArray)


def _table(table: str, columns: Mapping[str, Any], count: int) -> pa.Table:
    arrays = [_column(table, c, columns.get(c.name), count) for c in schema.TABLES[table]]
    return pa.table(arrays, schema=schema.arrow_schema(table).remove_metadata())


def _column(table: str, column: schema.Column, values: Any, count: int) -> pa.Array:
    kind, mask = column.arrow(), None
    if values is None and column.null is not None:
        return pa.nulls(count, kind)
    try:
        if not isinstance(values, _SEQUENCES):
            return pa.repeat(_column(table, column, [values], 1)[0], count)
        if isinstance(values, pa.ChunkedArray):
            values = pa.concat_arrays([pa.array([], values.type), *values.chunks])
        if column.null is not None and isinstance(values, np.ndarray):
            if column.type == "float":
                mask = np.isnan(values)
            elif values.dtype == np.int64:
                mask = values == schema.NULL_INT
        if schema.TYPES[column.type] == "string" and not isinstance(values, pa.Array):
            values = [None if one is None else _stored_text(column, one) for one in values]
        array = pa.array(values, type=kind, mask=mask)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise StoreError(f"{table}.{column.name}: {error}; its type is {kind}") from error
    if column.null is None and array.null_count:
        raise StoreError(f"{table}.{column.name}=None: this column may not be null")
    return array


def _stored_text(column: schema.Column, value: Any) -> Any:
    if column.type == "json" and not isinstance(value, str):
        value = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return machine.publishable(value) if column.foreign else value
