"""Which stored rows count: of two rows about the same thing, the one written later.

Files are appended to, never changed in place, so a store may hold a row twice (measured again, or
written twice around an interruption). Everything here is on whole Arrow columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from probe import schema
from probe.errors import StoreError
from probe.store import parquet

_ATTEMPTS = 20

PAIR = ("run_id", "case_id", "target", "vary", "at", "against")
PLACE = PAIR[:-1]
TOGETHER: dict[str, tuple[str, ...]] = {"reveals": PLACE, "causes": PAIR}
"""Tables whose rows with equal values here were found together: the later set replaces the older
as a whole, though the two may differ in their keys."""


def table(folder: Path, name: str) -> pa.Table:
    """The rows of a table that count, over all files of one folder; no file: no rows.

    Errors: StoreError for a file that is damaged or of a newer format.
    """
    for _ in range(_ATTEMPTS):
        try:
            return _once(folder, name)
        except FileNotFoundError as error:
            gone = error  # another process has compacted that part: list the files again
    raise StoreError(f"store={folder}: {name} can't be opened; mend its links") from gone


def _once(folder: Path, name: str) -> pa.Table:
    found = parquet.files(folder, name)
    if not found:
        return schema.arrow_schema(name).remove_metadata().empty_table()
    pieces = [parquet.read(path, name) for path in found]
    rows = pa.concat_tables(pieces)
    settled = parquet.is_whole(folder, name)
    if name != "differences":
        batches = np.repeat(np.arange(len(pieces)), [len(piece) for piece in pieces])
        return rows if settled else newest(name, rows, batches)
    if settled and parquet.is_whole(folder, "comparisons"):
        return rows
    return _kept(rows, table(folder, "comparisons"))


def newest(name: str, rows: pa.Table, batches: np.ndarray) -> pa.Table:
    """``rows`` without those that a later row replaces, in their order.

    batches: int array (rows,), not decreasing: rows of one batch were appended together.
    """
    if not len(rows):
        return rows
    keep = np.ones(len(rows), bool)
    if name in TOGETHER:
        group = codes(rows, TOGETHER[name])
        last = np.zeros(group.max() + 1, batches.dtype)
        np.maximum.at(last, group, batches)
        keep = batches == last[group]
    place = codes(rows, schema.keys(name))
    final = np.full(place.max() + 1, -1)
    np.maximum.at(final, place, np.arange(len(rows)))
    keep &= final[place] == np.arange(len(rows))
    return rows if keep.all() else rows.filter(pa.array(keep))


def _kept(rows: pa.Table, comparisons: pa.Table) -> pa.Table:
    """The last ``comparisons.kept`` differences of every comparison; none without one."""
    if not len(rows):
        return rows
    both = pa.concat_tables([rows.select(PAIR), comparisons.select(PAIR)])
    group = codes(both, PAIR)
    group, of_comparison = group[: len(rows)], group[len(rows) :]
    kept = np.zeros(max(group.max(), of_comparison.max(initial=0)) + 1, np.int64)
    kept[of_comparison] = comparisons.column("kept").to_numpy()
    order = np.argsort(group, kind="stable")
    ends = np.cumsum(np.bincount(group))
    from_end = np.empty(len(rows), np.int64)
    from_end[order] = ends[group[order]] - 1 - np.arange(len(rows))
    keep = from_end < kept[group]
    return rows if keep.all() else rows.filter(pa.array(keep))


def codes(rows: pa.Table, columns: Sequence[str]) -> np.ndarray:
    """int64 array (rows,): equal numbers, from 0 up without gaps, where ``columns`` are equal."""
    total = np.zeros(len(rows), np.int64)
    for name in columns:
        own = _dense(rows.column(name))
        total = _dense(pa.chunked_array([total * (own.max(initial=0) + 1) + own]))
    return total


def _dense(column: pa.ChunkedArray) -> np.ndarray:
    coded = column.dictionary_encode(null_encoding="encode").combine_chunks()
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.unify_dictionaries().chunk(0)
    return coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
