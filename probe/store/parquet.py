"""Reads the rows of a table that count, over all files of a machine.

Files are appended to, never changed in place, so a store may hold a row twice (measured again, or
written twice around an interruption): those written later count. DuckDB says which ones do, of the
columns that identify a row alone, so that a table need not fit into memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import gettempdir
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from probe import schema
from probe.errors import StoreError
from probe.store import file
from probe.store.layout import files as files

Answer = TypeVar("Answer")
Numbered: TypeAlias = "tuple[pa.Schema, Iterable[pa.RecordBatch]]"

_ATTEMPTS = 20
PAIR = ("run_id", "case_id", "target", "vary", "at", "against")
PLACE = PAIR[:-1]
TOGETHER: dict[str, tuple[str, ...]] = {"reveals": PLACE, "causes": PAIR}
"""Tables whose rows with equal values here were found together: the later set replaces the older
as a whole, though the two may differ in their keys."""


def table(folder: Path, name: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Returns the rows of a table that count, over all files of one machine; no file: no rows.

    Errors: StoreError for a file that is damaged or of a newer format.
    """
    wanted = schema.names(name) if columns is None else list(columns)
    today = schema.arrow_schema(name)
    empty = pa.schema([today.field(column) for column in wanted]).empty_table()
    return steady(
        lambda: pa.concat_tables([empty, *stream(Stored([folder]), name, columns)]), folder
    )


def steady(read: Callable[[], Answer], folder: Path) -> Answer:
    """Returns what ``read`` gives, which starts anew where another process compacts files
    meanwhile.

    Errors: StoreError where files that are listed can't be opened.
    """
    gone = FileNotFoundError()
    for _ in range(_ATTEMPTS):
        try:
            return read()
        except FileNotFoundError as error:
            gone = error
    name = Path(gone.filename or folder).name
    raise StoreError(f"store={folder}: {name} can't be opened; fix its links") from gone


class Stored:
    """The files of one machine's folders as they are now, the later folder's rows later.

    ``left_out``: files that are not read. Where another process replaces a file, what reads it
    raises FileNotFoundError: see :func:`steady`.
    """

    def __init__(self, folders: Sequence[Path], left_out: frozenset[Path] = frozenset()) -> None:
        self.folders, self.left_out = list(folders), left_out
        self._listed: dict[str, dict[Path, tuple[int, int, int]]] = {}

    def files(self, name: str) -> list[Path]:
        """Returns the files of a table, the later rows later."""
        if name == "differences":
            self.files("comparisons")  # first, since writers write it last
        if name not in self._listed:
            found = [path for folder in self.folders for path in files(folder, name)]
            mine = [path for path in dict.fromkeys(found) if path not in self.left_out]
            self._listed[name] = {path: file.state(path) for path in mine}
        return list(self._listed[name])

    def settled(self, name: str) -> bool:
        """Returns whether no row of a table is outdated: every file is compacted, and of its own
        part."""
        found = self.files(name)
        # a partition and the files of a folder each have the last word on their rows alone
        domains = {path.parts[-3:-1] if file.layout.values(path) else () for path in found}
        apart = len(domains) == len(found)
        return apart and all(file.is_compacted(path) for path in found)

    def count(self, name: str) -> int:
        """Returns rows of all files of a table."""
        total = sum(map(file.count, self.files(name)))
        for path, before in self._listed[name].items():
            file.same(path, before)
        return total

    def batches(
        self, name: str, path: Path, columns: Sequence[str] | None = None
    ) -> Iterator[pa.Table]:
        """Yields the rows of one file, as :func:`probe.store.file.batches`."""
        before = self._listed[name][path]
        file.same(path, before)
        yield from file.batches(path, name, columns)
        file.same(path, before)


def unlisted(stored: Stored, kept: int | None = None) -> str:
    """Returns why a machine's comparisons have lost their differences; empty where they have not.

    A file that was deleted leaves no trace but this: comparisons say how many rows of
    ``differences`` are kept of each (``kept``: of all, if that is known), and writers write these
    first.
    """
    if kept is None:
        columns = stream(stored, "comparisons", ["kept"])
        kept = sum(int(rows.column("kept").to_numpy().sum()) for rows in columns)
    there = stored.count("differences")
    if there >= kept:
        return ""
    return (
        f"store={stored.folders[0]}: its comparisons list {kept:,} differing outputs, and its "
        f"differences have {there:,} rows; put the missing files of differences back, or move "
        "those of comparisons away to measure again"
    )


def stream(stored: Stored, name: str, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Yields the rows that count, a row group or less at a time, in the order of the files.

    Errors: as :func:`table`, and FileNotFoundError where another process compacts meanwhile.
    """
    keep = counting(stored, name)
    start = 0
    for path in stored.files(name):
        for rows in stored.batches(name, path, columns):
            part = None if keep is None else keep[start : start + len(rows)]
            start += len(rows)
            yield rows if part is None or part.all() else rows.filter(pa.array(part))


def counting(stored: Stored, name: str) -> np.ndarray | None:
    """Returns a bool array over the rows of all files: whether a row counts. None: all do."""
    differences = name == "differences"
    if stored.settled(name) and (not differences or stored.settled("comparisons")):
        return None
    keep = np.zeros(stored.count(name), bool)
    if len(keep):
        tables = {"found": _numbered(stored, name, PAIR if differences else schema.keys(name))}
        if differences:
            tables["stated"] = _numbered(stored, "comparisons", (*PAIR, "kept"))
        last = f"({kept('comparisons', 'stated', '')})"
        keep[_asked(kept(name, "found", last), tables)] = True
    return keep


def newest(name: str, rows: pa.Table, batches: np.ndarray) -> np.ndarray:
    """Returns a bool array (rows,): False where a later row replaces one.

    batches: int array (rows,), not decreasing: rows of one batch were appended together.
    """
    keep, chosen = np.ones(len(rows), bool), schema.keys(name)
    apart = TOGETHER.get(name, ())
    rows = _with_places(rows.select(chosen), batches, 0)
    # the usual buffer has every row once, and importing DuckDB takes longer than seeing that
    if _distinct(rows, chosen) == len(rows) and (
        not apart or _distinct(rows, apart) == _distinct(rows, (*apart, "batch"))
    ):
        return keep
    keep[:] = False
    keep[_asked(kept(name, "found", ""), {"found": (rows.schema, rows.to_batches())})] = True
    return keep


def kept(name: str, rows: str, comparisons: str, machine: Sequence[str] = ()) -> str:
    """Returns SQL for the rows of a table that count.

    ``rows``: the relation with all of them, in which ``place`` ascends with time and ``batch`` is
    the same for those that were written together; ``comparisons``: that of differences' owners.
    ``machine``: a further column whose values share no row. SQL takes nulls in keys as equal here.
    """
    if name == "differences":  # the last ``kept`` ones of their comparison as it was measured last
        pair = [*PAIR, *machine]
        same = " AND ".join(f'd."{one}" IS NOT DISTINCT FROM c."{one}"' for one in pair)
        return f"""
            SELECT d.* FROM (SELECT *, {_back(pair)} AS back FROM {rows}) d
            JOIN {comparisons} c ON {same} WHERE d.back <= c.kept
        """
    query = f"SELECT * FROM {rows} QUALIFY {_back([*schema.keys(name), *machine])} = 1"
    if name in TOGETHER:
        apart = quoted([*TOGETHER[name], *machine])
        query += f" AND batch = max(batch) OVER (PARTITION BY {apart})"
    return query


def _back(columns: Sequence[str]) -> str:
    """Returns SQL for a row's number among those with equal ``columns``, the last one's being 1."""
    return f"row_number() OVER (PARTITION BY {quoted(columns)} ORDER BY place DESC)"


def quoted(columns: Sequence[str]) -> str:
    """Returns names of columns as SQL has them."""
    return ", ".join(f'"{one}"' for one in columns)


def _asked(query: str, tables: Mapping[str, Numbered]) -> np.ndarray:
    """Returns the places, an int64 array, that a query gives; DuckDB spills what memory lacks."""
    failed: list[Exception] = []

    def watched(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        try:
            yield from batches
        except Exception as error:
            failed.append(error)  # DuckDB raises its own, with ours as a text
            raise

    with _connection().cursor() as cursor:
        for name, (form, batches) in tables.items():
            reader = pa.RecordBatchReader.from_batches(form, watched(batches))
            cursor.register(name, reader)
        try:
            found = cursor.sql(f"SELECT place FROM ({query})").to_arrow_table().column("place")
        except Exception as error:
            raise (failed or [error])[0] from None
        return np.asarray(found.to_numpy().astype(np.int64))


@cache
def _connection() -> Any:
    """Returns this process's DuckDB: a start takes 20 ms, a cursor of it less than one."""
    import duckdb  # here, since most stores are compacted and need no query

    spilled = Path(gettempdir(), f"probe-store-{os.getpid()}")  # made where it is needed
    return duckdb.connect(":memory:", config={"temp_directory": str(spilled)})


def _numbered(stored: Stored, name: str, columns: Sequence[str]) -> Numbered:
    """Returns all rows of a table with their ``place`` and their file's ``batch``."""
    today = schema.arrow_schema(name)
    form = pa.schema([*map(today.field, columns), ("place", pa.int64()), ("batch", pa.int64())])

    def numbered() -> Iterator[pa.RecordBatch]:
        start = 0
        for number, path in enumerate(stored.files(name)):
            for rows in stored.batches(name, path, columns):
                whole = _with_places(rows, np.full(len(rows), number), start)
                yield from whole.cast(form).to_batches()
                start += len(rows)

    return form, numbered()


def _with_places(rows: pa.Table, batches: np.ndarray, start: int) -> pa.Table:
    places = np.arange(start, start + len(rows))
    return rows.append_column("place", pa.array(places)).append_column("batch", pa.array(batches))


def _distinct(rows: pa.Table, columns: Sequence[str]) -> int:
    return int(rows.select(columns).group_by(list(columns)).aggregate([]).num_rows)
