"""Merges files: pieces are compacted, stores merged, tables partitioned.

Rows go from file to file a row group at a time, so that no table need fit into memory.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from probe import schema
from probe.errors import StoreError
from probe.store import file, layout, parquet
from probe.store.origin import Origin, guide, used

if sys.platform != "win32":
    import fcntl

LAST = ("comparisons", "failures")
"""Written after all others: what these say is done has its other rows on the disk already."""
TRIAL = ".writable.tmp"
"""The file with which a store finds out whether it can write."""
_HELD = 2 * file.ROW_GROUP  # rows of all partitions together that wait for their row group


def in_order() -> list[str]:
    """Returns all tables, those that say that something is done at the end."""
    return sorted(schema.TABLES, key=lambda name: name in LAST)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Lets one process at a time write or merge files of a folder (where the system has locks)."""
    if sys.platform == "win32":
        yield
        return
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
    loose = [
        table
        for table in in_order()
        if any(not _is_folded(folder, one, partitioned) for one in _deciding(table))
    ]
    known = Origin([folder] if loose else [], folder.name)
    for table in loose:
        _fold_steadily([folder], folder, table, partitioned, known)


def merge(
    folders: Sequence[Path], out: Path, partitioned: bool, tell: Callable[[int, str], None]
) -> None:
    """Merges one machine's folders into its folder ``out``; those of the later one count.

    ``tell(done, table)`` before each table: that many are done.
    """
    partitioned = partitioned or layout.is_partitioned(out.parent)
    with alone(out):
        _sweep_up(out)
        known = Origin([out, *folders], out.name)
        for done, table in enumerate(in_order()):
            tell(done, table)
            _fold_steadily([out, *folders], out, table, partitioned, known)
        guide(out.parent if partitioned else out)


def _deciding(table: str) -> tuple[str, ...]:
    """Returns the tables whose rows say which rows of a table count."""
    return ("differences", "comparisons") if table == "differences" else (table,)


def _is_folded(folder: Path, table: str, partitioned: bool) -> bool:
    found = layout.flat(folder, table)
    return not found or (not partitioned and len(found) == 1 and file.is_compacted(found[0]))


def _sweep_up(folder: Path) -> None:
    """Removes what writers that were killed have left: who is alone knows that none is at work."""
    for path in folder.glob(".*.tmp"):
        if path.name != TRIAL:
            with suppress(OSError):
                path.unlink()


def _fold_steadily(
    sources: Sequence[Path], out: Path, table: str, partitioned: bool, known: Origin
) -> None:
    """As :func:`_fold`, of files that other stores' processes may be compacting."""
    parquet.steady(lambda: _fold(sources, out, table, partitioned, known), out)


def _fold(sources: Sequence[Path], out: Path, table: str, partitioned: bool, known: Origin) -> None:
    """Writes a table of the sources into ``out``, which is the first, and removes its parts."""
    stored = _Sources(sources, table, partitioned)
    old = layout.flat(out, table)
    if stored.files(table):
        with ExitStack() as stack:
            if partitioned:  # tables that all machines share are written by one of them at a time
                stack.enter_context(alone(out.parent))
            writers = _Writers(out, table, partitioned, known, used(stored, table))
            with writers:
                for rows in parquet.stream(stored, table):
                    writers.write(rows)
            for path in stored.touched & set(layout.partitioned(out, table)) - writers.paths:
                path.unlink()  # no row of it counts any more
    for path in old:
        if partitioned or path != layout.whole(out, table):
            path.unlink(missing_ok=True)


class _Sources(parquet.Stored):
    """The files that are rewritten: of partitions those that get rows."""

    def __init__(self, folders: Sequence[Path], table: str, partitioned: bool) -> None:
        super().__init__(folders)
        self.table, self.touched = table, set[Path]()
        if partitioned:
            self.touched = {
                layout.partition(folders[0], table, target)
                for one in _deciding(table)
                for path in self._new(one)
                for target in _targets(path, one)
            }
        self.partitioned = partitioned

    def _new(self, table: str) -> list[Path]:
        """Returns the files with rows that are not in a partition yet."""
        out, *others = self.folders
        found = [path for folder in others for path in layout.files(folder, table)]
        return [*layout.flat(out, table), *found]

    def files(self, name: str) -> list[Path]:
        found = super().files(name)
        if name != self.table or not self.partitioned:
            return found
        own = set(layout.partitioned(self.folders[0], name)) - self.touched
        return [path for path in found if path not in own]


def _targets(path: Path, table: str) -> set[str | None]:
    """Returns the targets of a file's rows; None where the table has no such column."""
    if "target" not in schema.names(table):
        return {None}
    found: set[str | None] = set()
    for rows in file.batches(path, table, ["target"]):
        found.update(pc.unique(rows.column("target")).to_pylist())
    return found


class _Writers:
    """The new files of a table: one, or one a partition; in place when the context is left."""

    def __init__(
        self, out: Path, table: str, partitioned: bool, known: Origin, used: set[str] | None
    ) -> None:
        self.out, self.table = out, table
        self.known, self.used = known, used
        self.by_target = partitioned and "target" in schema.names(table)
        self.partitioned = partitioned
        self._open: dict[Path, file.Writer] = {}

    def __enter__(self) -> None:
        if not self.partitioned:
            self._writer(layout.whole(self.out, self.table))

    def write(self, rows: pa.Table) -> None:
        """Adds rows to the files that they belong to."""
        for target, part in self._parts(rows):
            path = layout.whole(self.out, self.table)
            if self.partitioned:
                path = layout.partition(self.out, self.table, target)
            self._writer(path, target).write(part)
        while sum(one.held for one in self._open.values()) > _HELD:
            max(self._open.values(), key=lambda one: one.held).drain()

    def _parts(self, rows: pa.Table) -> Iterator[tuple[str | None, pa.Table]]:
        if not self.by_target:
            yield None, rows
            return
        for target in pc.unique(rows.column("target")).to_pylist():
            yield target, rows.filter(pc.equal(rows.column("target"), target))

    @property
    def paths(self) -> set[Path]:
        """Returns the files that were written."""
        return set(self._open)

    def _writer(self, path: Path, target: str | None = None) -> file.Writer:
        shared = self.partitioned and self.table in layout.CONTENT  # by all machines
        if path not in self._open:
            told = {} if shared else self.known.told(self.used, target)
            self._open[path] = file.Writer(path, self.table, True, self.out, told)
        return self._open[path]

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                for writer in self._open.values():
                    writer.finish()
        finally:
            for writer in self._open.values():
                writer.discard()


def of_machines(sources: Sequence[Path], out: Path) -> dict[str, list[Path]]:
    """Returns the folders to be merged by machine. StoreError where ``out`` is one of them."""
    found: dict[str, list[Path]] = {}
    for source in sources:
        if (out / source.name).resolve() == source:
            raise StoreError(
                f"out={out}: this is one of the merged folders; choose a different folder"
            )
        found.setdefault(source.name, []).append(source)
    return found
