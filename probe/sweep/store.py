"""Writes one machine's folder of tables: rows are checked, buffered, and merged by key.

Which of two rows of one key counts is decided where they are read, in ``stored``. Appending costs
a list append; columns are built when the buffer is written. Read with :func:`probe.load`. Rows are
checked against the schema when they are appended.

Pieces are compacted and stores merged from file to file, a row group at a time, so that no table
need fit into memory. Files say where their rows come from (experiment, machine,
library, version), found from the runs that the rows name; what is not known is left out.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from probe.case import schema
from probe.case.arguments import require_types, typed
from probe.case.errors import StoreError
from probe.sweep import files, stored
from probe.sweep.stored import Recalled, Stored
from probe.targets import budget, machine

if sys.platform != "win32":
    import fcntl

Rows = Mapping[str, Any] | Iterable[Mapping[str, Any]]
_Chunk: TypeAlias = "pa.Table | list[Mapping[str, Any]]"


# Seconds that must be left of a limit for parts to be put together: two million rows took three.
COMPACTING = 60.0


class Store:
    """Writes the tables of a machine's folder; a context manager.

    It flushes on leaving (also by Ctrl-C or an error), and by itself after ``flush_rows`` rows or
    ``flush_seconds``: no more than that is lost to a power cut. May be shared by threads. Several
    processes may write to one folder.

    Errors (StoreError, at opening already): read-only, full, damaged or of a newer format.
    """

    @typed
    def __init__(
        self, path: str | Path, flush_rows: int = 500_000, flush_seconds: float = 10.0
    ) -> None:
        self.path = Path(path)
        self.flush_rows, self.flush_seconds = flush_rows, flush_seconds
        self._chunks: dict[str, list[_Chunk]] = {}
        self._rows = 0
        self._flushed = time.monotonic()
        self._lock = threading.RLock()
        require_usable(self.path)

    @classmethod
    def here(cls, experiment: str | Path, **options: Any) -> Store:
        """This machine's store in an experiment's folder: ``results/NAME/<machine>``."""
        return cls(Path(experiment) / machine.label(), **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # parts are whole by themselves: putting millions of rows together takes seconds, which
        # whoever waits for an end has not, and the next run does it
        limit = budget.current_budget()
        hurried = budget.interrupted.is_set() or (limit is not None and limit.left < COMPACTING)
        if kind is None and not hurried:
            self.compact()
        else:
            self.flush()

    def append(self, table: str, rows: Rows) -> None:
        """Buffers one row (a mapping) or several, found together; absent nullable columns are null.

        Append a comparison after its differences. Values of ``json`` columns may be text or any
        JSON value. Errors: StoreError for an unknown or missing column.
        """
        several = [rows] if isinstance(rows, Mapping) else list(rows)
        for row in several:
            _require_columns(table, row.keys())
        self._buffer(table, several)

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
        with self._lock, exclusive(self.path):
            self._write_pieces()

    def _write_pieces(self, compacting: bool = False) -> None:
        self._flushed = time.monotonic()
        fresh = self._assemble("runs") if "runs" in self._chunks else None
        origin = Origin([self.path] if self._chunks else [], self.path.name, fresh)
        wrote = False
        for table in sorted(self._chunks, key=_IN_ORDER.index):
            rows = self._assemble(table)
            # what is buffered may be all there is of a table, each row once
            whole = compacting and table != "differences"
            whole = whole and not files.table_files(self.path, table)
            if len(rows):
                flat = files.table_files(self.path, table)
                last = flat[-1].name.split(".")[1] if flat else ""
                # a clock may have been put back: later rows are in parts of larger numbers
                number = max(time.time_ns(), int(last) + 1 if last.isdigit() else 0)
                path = self.path / (f"{table}.parquet" if whole else f"{table}.{number}.parquet")
                # a file says of which runs its rows are; where they name none, of all runs
                named = "run_id" in rows.column_names
                used = rows.column("run_id").unique().to_pylist() if named else None
                files.write_file(path, table, rows, whole, origin.metadata(used))
                wrote = True
            del self._chunks[table]
        self._rows = 0
        if wrote:
            guide(self.path)
            files.list_tables(self.path)

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
        rows = pa.concat_tables(pieces)
        if table == "differences":
            return rows
        batches = np.repeat(np.arange(len(chunks)), [len(chunk) for chunk in chunks])
        return stored.newest(table, rows, batches)

    def compact(self) -> None:
        """Merges the parts of every table, without the rows that no longer count.

        Safe to interrupt: what was merged is in place before the parts are removed.
        """
        with self._lock, exclusive(self.path):
            self._write_pieces(compacting=True)
            compact(self.path)

    def done_keys(self, table: str = "comparisons") -> set[tuple[Any, ...]]:
        """Keys of every row of a table, stored or buffered: tuples of ``schema.key_columns``."""
        names = schema.key_columns(table)
        with self._lock:
            pieces = [stored.read_table(self.path, table, names)]
            if table in self._chunks:
                pieces.append(self._assemble(table).select(names))
        columns = [[piece.column(name).to_pylist() for name in names] for piece in pieces]
        return {key for column in columns for key in zip(*column, strict=True)}

    def recall(
        self, run_id: str, target: str, vary: str, against: int, controlled: bool = False
    ) -> Recalled:
        """What is stored of a sweep's comparisons on one target.

        ``controlled``: only those whose shape was run again. Errors: StoreError.
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
        raise StoreError(f"{table}: has no column {unknown}; see probe/case/schema.py")


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
            if column.type == "json":
                values = [
                    value
                    if value is None or isinstance(value, str)
                    else json.dumps(value, sort_keys=True, separators=(",", ":"))
                    for value in values
                ]
            if column.foreign:
                values = [None if text is None else machine.publishable(text) for text in values]
        array = pa.array(values, type=kind, mask=mask)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise StoreError(f"{table}.{column.name}: {error}; its type is {kind}") from error
    if column.null is None and array.null_count:
        raise StoreError(f"{table}.{column.name}=None: this column may not be null")
    return array


# Written after all others: what these say is done has its other rows on the disk already.
LAST = ("comparisons", "failures")
# The file with which a store finds out whether it can write.
TRIAL = ".writable.tmp"


_IN_ORDER = sorted(schema.TABLES, key=lambda name: (name in LAST, name not in stored.IDENTIFIED))


def require_usable(folder: Path) -> None:
    """Makes a machine's folder. StoreError: not to be written to, damaged, or rows are lost."""
    trial = folder / TRIAL
    try:
        folder.mkdir(parents=True, exist_ok=True)
        trial.write_bytes(b"x")
        trial.unlink(missing_ok=True)
    except OSError as error:
        raise files.unwritable(folder, error) from error
    # what a lost row named would be taken for done, and never measured again
    stored.steady(partial(stored.require_whole, [folder]), folder)


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Lets one process at a time write or merge files of a folder (where the system has locks)."""
    if sys.platform == "win32":
        yield
        return
    # a lock on the folder itself: no file of a lock is left in the results
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def compact(folder: Path) -> None:
    """Merges the files of every table into one, without the rows that no longer count.

    Safe to interrupt: the merged file is in place before the parts are removed. The caller is
    alone.
    """
    _sweep_up(folder)

    def folded(table: str) -> bool:
        paths = files.table_files(folder, table)
        return not paths or (len(paths) == 1 and files.is_compacted(paths[0]))

    loose = [table for table in _IN_ORDER if not all(map(folded, _deciding(table)))]
    known = Origin([folder] if loose else [], folder.name)
    for table in loose:
        stored.steady(partial(_fold, [folder], table, known), folder)


@typed
def merge(
    folders: Sequence[str | Path],
    out: str | Path,
    progress: Callable[[int, int, str], None] | None = None,
) -> list[Path]:
    """Merges stores into ``out``, one folder a machine; returns these folders.

    Where two have the same machine and the same row, the one of the later folder counts; what
    ``out`` has already is older than all. The sources are not changed, memory stays flat.
    ``progress(done, total, what)`` counts tables of machines. Errors: as :func:`probe.load` and
    :class:`probe.Store`.
    """
    root, machines = Path(out), dict[str, list[Path]]()
    folders = [folders] if isinstance(folders, str | Path) else list(folders)
    for folder in folders:
        require_types({"folders": "str | Path"}, {"folders": folder})
        if not files.machine_folders(Path(folder)):
            raise StoreError(f"path={folder}: there are no stored results; run `probe sweep` first")
    for source in (place for folder in folders for place in files.machine_folders(Path(folder))):
        if (root / source.name).resolve() == source:
            why = "this is one of the merged folders; choose a different folder"
            raise StoreError(f"out={root}: {why}")
        machines.setdefault(source.name, []).append(source)
    done = 0
    for name, sources in machines.items():
        target = root / name
        stored.steady(partial(stored.require_whole, sources), sources[0])
        require_usable(target)
        with exclusive(target):
            _sweep_up(target)
            origin = Origin([target, *sources], name)
            for table in _IN_ORDER:
                if progress:
                    progress(done, len(machines) * len(_IN_ORDER), f"{name}: {table}")
                # other stores' processes may be compacting theirs
                stored.steady(partial(_fold, [target, *sources], table, origin), target)
                done += 1
            guide(target)
            files.list_tables(target)
    return [root / name for name in machines]


def _deciding(table: str) -> tuple[str, ...]:
    """The tables whose rows say which rows of a table count."""
    return ("differences", "comparisons") if table == "differences" else (table,)


def _sweep_up(folder: Path) -> None:
    """Removes what writers that were killed have left: who is alone knows that none is at work."""
    for path in folder.glob(".*.tmp"):
        if path.name != TRIAL:
            with suppress(OSError):
                path.unlink()


def _fold(sources: Sequence[Path], table: str, origin: Origin) -> None:
    """Writes a table of the sources into the first one, and removes its parts."""
    out = sources[0]
    old, whole = files.table_files(out, table), out / f"{table}.parquet"
    rows_there = Stored(sources)
    if rows_there.files(table):
        used: set[Any] | None = None
        if "run_id" in schema.column_names(table):
            runs = rows_there.query(f"SELECT DISTINCT run_id FROM ({rows_there.every(table)})")
            used = {run for rows in runs for run in rows["run_id"].to_pylist()}
        with files.Writer(whole, table, True, out, origin.metadata(used)) as writer:
            for rows in rows_there.rows(table):
                writer.write(rows)
    for path in old:
        if path != whole:
            path.unlink(missing_ok=True)


README = "README.md"
GUIDE = """\
# One machine's results: one Parquet file per table

Read one table at a time. The folder as a whole is not a table: tools that try to read it as one
stop at this file instead of mixing rows of different tables.

    pandas.read_parquet("comparisons.parquet")
    polars.read_parquet("comparisons*.parquet")
    duckdb.sql("SELECT * FROM 'comparisons*.parquet'")

`comparisons.<number>.parquet` are pieces that an unfinished run has not merged yet. They may have a
row twice, of which the later one counts; `probe.load(FOLDER)` counts each row once, and `probe
results merge FOLDER --out NEW` writes files without pieces. `pyarrow.parquet.read_schema(FILE)`
shows a file's metadata: experiment, machine, libraries, meaning and unit of each column.
"""


class Origin:
    """The runs of one machine's folders, by which its files say where their rows come from.

    ``fresh``: runs that are not written yet. Files that can't be read say nothing.
    """

    def __init__(
        self, folders: Sequence[Path], machine: str, fresh: pa.Table | None = None
    ) -> None:
        self.machine = machine
        self._runs: dict[str, dict[str, Any]] = {}
        for path in (path for folder in folders for path in files.table_files(folder, "runs")):
            with suppress(OSError, pa.ArrowException, ValueError):
                for row in pq.read_table(path, partitioning=None).to_pylist():
                    self._runs[row["run_id"]] = row
        if fresh is not None:
            self._runs |= {row["run_id"]: row for row in fresh.to_pylist()}

    def metadata(self, used: Iterable[str] | None) -> dict[str, str]:
        """What a file says of where its rows come from, by their runs (None: all)."""
        chosen = self._runs.keys() if used is None else used
        runs = [self._runs[run] for run in chosen if run in self._runs]
        libraries = [
            f"{run['library']} {run.get('library_version') or ''}".strip()
            for run in runs
            if run.get("library")
        ]
        facts: dict[str, list[str | None]] = {
            "probe.machine": [self.machine],
            "probe.experiment": [run.get("experiment") for run in runs],
            "probe.library": [*libraries],
            "probe.version": [run.get("probe_version") for run in runs],
        }
        distinct = {name: sorted({run for run in values if run}) for name, values in facts.items()}
        return {name: ", ".join(values) for name, values in distinct.items() if values}


def guide(folder: Path) -> None:
    """Says in a folder of different tables how to read them; a folder that has a README keeps it.

    pandas and Arrow read all files below a folder as one table, with nulls where columns differ:
    a file that is not parquet stops them.
    """
    with suppress(OSError), (folder / README).open("x", encoding="utf-8") as stream:
        stream.write(GUIDE)
