"""Reads the rows of a table that count, over all files of a machine.

Files are appended to, never changed in place, so a store may hold a row twice (measured again, or
written twice around an interruption): those written later count. Which ones do is found from the
columns that identify a row, a part of the rows at a time, so that a table need not fit into memory.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa

from probe import schema
from probe.errors import StoreError
from probe.store import file
from probe.store.layout import files as files

Answer = TypeVar("Answer")

_ATTEMPTS = 20
AT_ONCE = 2**20
"""Rows whose keys are compared with one another at a time, about 100 bytes each."""

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
        apart = len({_domain(path) for path in found}) == len(found)
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


def _domain(path: Path) -> tuple[str, ...]:
    """Returns what no two files may share where each has the last word on its rows."""
    return path.parts[-3:-1] if file.layout.values(path) else ()


def unlisted(stored: Stored) -> str:
    """Returns why a machine's comparisons have lost their differences; empty where they have not.

    A file that was deleted leaves no trace but this: comparisons say how many rows of
    ``differences`` are kept of each, and writers write these first.
    """
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
    settled = stored.settled(name)
    if settled and (name != "differences" or stored.settled("comparisons")):
        return None
    keep = np.zeros(stored.count(name), bool)
    shares = 1 + len(keep) // AT_ONCE
    kept = list(stream(stored, "comparisons", [*PAIR, "kept"])) if name == "differences" else []
    for share in range(shares):
        keys, places, batches = _keys(stored, name, share, shares)
        if not len(keys):
            continue
        if name == "differences":
            comparisons = [_share(rows, PAIR, share, shares)[0] for rows in kept]
            keep[places] = _kept(keys, comparisons)
        else:
            keep[places] = newest(name, keys, batches)
    return keep


def _keys(
    stored: Stored, name: str, share: int, shares: int
) -> tuple[pa.Table, np.ndarray, np.ndarray]:
    """Returns the keys of one share of the rows, where each row is, and which file's it is."""
    columns = PAIR if name == "differences" else schema.keys(name)
    spread = TOGETHER.get(name, columns)
    today, start = schema.arrow_schema(name), 0
    keys = [pa.schema([today.field(column) for column in columns]).empty_table()]
    places, batches = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for number, path in enumerate(stored.files(name)):
        for rows in stored.batches(name, path, columns):
            mine, chosen = _share(rows, spread, share, shares)
            keys.append(mine)
            places.append(chosen + start)
            batches.append(np.full(len(chosen), number))
            start += len(rows)
    return pa.concat_tables(keys), np.concatenate(places), np.concatenate(batches)


def _share(
    rows: pa.Table, columns: Sequence[str], share: int, shares: int
) -> tuple[pa.Table, np.ndarray]:
    """Returns rows of one share, and where they are; rows alike in ``columns`` are of one share."""
    if shares == 1:
        return rows, np.arange(len(rows))
    mixed = np.zeros(len(rows), np.uint64)
    for name in columns:
        coded = rows.column(name).combine_chunks().dictionary_encode(null_encoding="encode")
        coded = coded.chunk(0) if isinstance(coded, pa.ChunkedArray) else coded
        texts = [str(value).encode() for value in coded.dictionary.to_pylist()]
        values = np.array([zlib.crc32(text) for text in texts], np.uint64)
        mixed = mixed * np.uint64(0x9E3779B97F4A7C15) + values[coded.indices.to_numpy()]
    chosen = np.flatnonzero((mixed >> np.uint64(20)) % np.uint64(shares) == share)
    return rows.take(pa.array(chosen)), chosen


def newest(name: str, rows: pa.Table, batches: np.ndarray) -> np.ndarray:
    """Returns a bool array (rows,): False where a later row replaces one.

    batches: int array (rows,), not decreasing: rows of one batch were appended together.
    """
    keep = np.ones(len(rows), bool)
    if not len(rows):
        return keep
    if name in TOGETHER:
        group = codes(rows, TOGETHER[name])
        last = np.zeros(group.max() + 1, batches.dtype)
        np.maximum.at(last, group, batches)
        keep = batches == last[group]
    place = codes(rows, schema.keys(name))
    final = np.full(place.max() + 1, -1)
    final[place] = np.arange(len(rows))  # of equal places the last one stays
    keep &= final[place] == np.arange(len(rows))
    return keep


def _kept(rows: pa.Table, comparisons: Sequence[pa.Table]) -> np.ndarray:
    """Returns whether a row is of the last ``comparisons.kept`` differences of its comparison."""
    counts = np.concatenate([one.column("kept").to_numpy() for one in comparisons] or [np.zeros(0)])
    both = pa.concat_tables([rows.select(PAIR), *(one.select(PAIR) for one in comparisons)])
    group = codes(both, PAIR)
    group, of_comparison = group[: len(rows)], group[len(rows) :]
    kept = np.zeros(max(group.max(), of_comparison.max(initial=0)) + 1, np.int64)
    kept[of_comparison] = counts
    order = np.argsort(group, kind="stable")
    ends = np.cumsum(np.bincount(group))
    from_end = np.empty(len(rows), np.int64)
    from_end[order] = ends[group[order]] - 1 - np.arange(len(rows))
    return np.asarray(from_end < kept[group])


def codes(rows: pa.Table, columns: Sequence[str]) -> np.ndarray:
    """Returns an int64 array (rows,): equal numbers, from 0 up without gaps, where ``columns`` are
    equal."""
    total = np.zeros(len(rows), np.int64)
    for name in columns:
        own = _dense(rows.column(name))
        if own.max(initial=0):
            total = _dense(pa.chunked_array([total * (own.max() + 1) + own]))
    return total


def _dense(column: pa.ChunkedArray) -> np.ndarray:
    coded = column.dictionary_encode(null_encoding="encode").combine_chunks()
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.unify_dictionaries().chunk(0)
    return coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
