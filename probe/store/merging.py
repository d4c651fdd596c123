"""Merges files: pieces are compacted, stores merged, tables partitioned.

Rows go from file to file a row group at a time, so that no table need fit into memory. Files say
where their rows come from (experiment, machine, library, version), found from the runs that the
rows name; what is not known is left out.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from probe import schema
from probe.errors import StoreError
from probe.store import file, layout, parquet

if sys.platform != "win32":
    import fcntl

# Written after all others: what these say is done has its other rows on the disk already.
LAST = ("comparisons", "failures")
# The file with which a store finds out whether it can write.
TRIAL = ".writable.tmp"


_IN_ORDER = sorted(schema.TABLES, key=lambda name: name in LAST)


def require_usable(folder: Path) -> None:
    """Makes a machine's folder. StoreError where it can't be written to, or holds a file that can't
    be read."""
    trial = folder / TRIAL
    try:
        folder.mkdir(parents=True, exist_ok=True)
        trial.write_bytes(b"x")
        trial.unlink(missing_ok=True)
    except OSError as error:
        raise file.unwritable(folder, error) from error
    for path in (path for table in schema.TABLES for path in layout.table_files(folder, table)):
        with suppress(FileNotFoundError):  # another process has just compacted it away
            file.footer(path)


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
    """Merges the files of every table, without the rows that no longer count.

    Into one file, or where the store is partitioned into the partitions that get rows. Safe to
    interrupt: the merged file is in place before the parts are removed. The caller is alone.
    """
    _sweep_up(folder)
    partitioned = layout.is_partitioned(folder.parent)

    def folded(table: str) -> bool:
        found = layout.unpartitioned(folder, table)
        return not found or (not partitioned and len(found) == 1 and file.is_compacted(found[0]))

    loose = [table for table in _IN_ORDER if not all(map(folded, _deciding(table)))]
    known = Origin([folder] if loose else [], folder.name)
    for table in loose:
        parquet.steady(partial(_fold, [folder], table, partitioned, known), folder)


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
    machines. Errors: as :func:`probe.load` and :class:`probe.Store`.
    """
    root, machines = Path(out), dict[str, list[Path]]()
    for source in (one for folder in folders for one in layout.machine_folders(Path(folder))):
        if (root / source.name).resolve() == source:
            why = "this is one of the merged folders; choose a different folder"
            raise StoreError(f"out={root}: {why}")
        machines.setdefault(source.name, []).append(source)
    partitioned, done = partitioned or layout.is_partitioned(root), 0
    for name, sources in machines.items():
        target = root / name
        require_usable(target)
        with exclusive(target):
            _sweep_up(target)
            known = Origin([target, *sources], name)
            for table in _IN_ORDER:
                if progress:
                    progress(done, len(machines) * len(_IN_ORDER), f"{name}: {table}")
                # other stores' processes may be compacting theirs
                fold = partial(_fold, [target, *sources], table, partitioned, known)
                parquet.steady(fold, target)
                done += 1
            guide(root if partitioned else target)
    return [root / name for name in machines]


def _deciding(table: str) -> tuple[str, ...]:
    """Returns the tables whose rows say which rows of a table count."""
    return ("differences", "comparisons") if table == "differences" else (table,)


def _sweep_up(folder: Path) -> None:
    """Removes what writers that were killed have left: who is alone knows that none is at work."""
    for path in folder.glob(".*.tmp"):
        if path.name != TRIAL:
            with suppress(OSError):
                path.unlink()


def _fold(sources: Sequence[Path], table: str, partitioned: bool, known: Origin) -> None:
    """Writes a table of the sources into the first one, and removes its parts.

    Of partitions those are written anew that get rows.
    """
    out, others = sources[0], sources[1:]
    old, whole = layout.unpartitioned(out, table), out / f"{table}.parquet"
    by_target = partitioned and "target" in schema.column_names(table)
    touched: set[Path] = set()
    if partitioned:
        for one in _deciding(table):
            folded = frozenset(layout.partitioned(out, one))
            new = parquet.Stored([out, *others], folded)
            if new.files(one):
                touched |= {layout.partition(out, table, t) for t in _distinct(new, one, "target")}
    stored = parquet.Stored(sources, frozenset(layout.partitioned(out, table)) - touched)
    if stored.files(table):
        named = "run_id" in schema.column_names(table)
        used = _distinct(stored, table, "run_id") if named else None
        origin: dict[str, str] | None = None
        if partitioned and table in layout.CONTENT:
            origin = {}  # of all machines
        written: dict[Path, file.Writer] = {}
        with ExitStack() as stack:
            if partitioned:  # tables that all machines share are written by one of them at a time
                stack.enter_context(exclusive(out.parent))

            def write(path: Path, target: str | None, rows: pa.Table) -> None:
                if path not in written:
                    told = known.metadata(used, target) if origin is None else origin
                    writer = file.Writer(path, table, True, out, told)
                    written[path] = stack.enter_context(writer)
                written[path].write(rows)
                while sum(one.held for one in written.values()) > 2 * file.ROW_GROUP:
                    max(written.values(), key=lambda one: one.held).drain()

            if not partitioned:
                write(whole, None, schema.arrow_schema(table).empty_table())
            for rows in stored.rows(table):
                for target in pc.unique(rows["target"]).to_pylist() if by_target else [None]:
                    part = rows.filter(pc.equal(rows["target"], target)) if by_target else rows
                    path = layout.partition(out, table, target) if partitioned else whole
                    write(path, target, part)
        for path in touched & set(layout.partitioned(out, table)) - written.keys():
            path.unlink()  # no row of it counts any more
    for path in old:
        if partitioned or path != whole:
            path.unlink(missing_ok=True)


def _distinct(stored: parquet.Stored, table: str, column: str) -> set[Any]:
    """Returns the values of a column; None alone where the table has none."""
    if column not in schema.column_names(table):
        return {None}
    found = stored.query(f'SELECT DISTINCT "{column}" AS value FROM ({stored.every(table)})')
    return {value for rows in found for value in rows["value"].to_pylist()}


README = "README.md"
GUIDE = """\
# One machine's results: one Parquet file per table

Read one table at a time. The folder as a whole is not a table: tools that try to read it as one
stop at this file instead of mixing rows of different tables.

    pandas.read_parquet("comparisons.parquet")
    polars.read_parquet("comparisons*.parquet")
    duckdb.sql("SELECT * FROM 'comparisons*.parquet'")

`comparisons.<number>.parquet` are pieces that an unfinished run has not merged yet. They may have a
row twice, of which the later one counts; `probe.load(FOLDER)` counts each row once, and
`probe merge FOLDER --out NEW` writes files without pieces. `pyarrow.parquet.read_schema(FILE)`
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
        for path in (path for folder in folders for path in layout.table_files(folder, "runs")):
            with suppress(OSError, pa.ArrowException, ValueError):
                for row in pq.read_table(path, partitioning=None).to_pylist():
                    self._runs[row["run_id"]] = row | layout.columns_of_path(path)
        if fresh is not None:
            self._runs |= {row["run_id"]: row for row in fresh.to_pylist()}

    def metadata(self, used: Iterable[str] | None, target: str | None = None) -> dict[str, str]:
        """Returns the metadata of a file with rows of these runs; None: of all.
        ``target``: of it alone."""
        chosen = self._runs.keys() if used is None else used
        runs = [self._runs[one] for one in chosen if one in self._runs]
        runs = [one for one in runs if target in (None, one["target"])]
        libraries = [
            f"{one['library']} {one.get('library_version') or ''}".strip()
            for one in runs
            if one.get("library")
        ]
        found: dict[str, list[str | None]] = {
            "probe.machine": [self.machine],
            "probe.experiment": [one.get("experiment") for one in runs],
            "probe.library": [*libraries],
            "probe.version": [one.get("probe_version") for one in runs],
        }
        known = {name: sorted({one for one in each if one}) for name, each in found.items()}
        return {name: ", ".join(each) for name, each in known.items() if each}


def guide(folder: Path) -> None:
    """Says in a folder of different tables how to read them; a folder that has a README keeps it.

    pandas and Arrow read all files below a folder as one table, with nulls where columns differ:
    a file that is not parquet stops them.
    """
    with suppress(OSError), (folder / README).open("x", encoding="utf-8") as stream:
        stream.write(GUIDE)
