"""One parquet file in and out: atomic, versioned, and with errors that name the file.

A table of a store is ``<table>.parquet`` and parts ``<table>.<n>.parquet``, later ``n`` later.
Files are appended to, never changed in place, so a store may hold a row twice (measured again, or
written twice around an interruption): ``table`` gives the rows that count, those written later.
"""

from __future__ import annotations

import errno
import os
import re
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from probe import schema
from probe.errors import StoreError

_COMPACTED = "probe.compacted"
_REASONS = {
    errno.ENOSPC: ("the disk is full", "free some space"),
    errno.EDQUOT: ("the disk quota is used up", "free some space"),
    errno.EROFS: ("the file system is read-only", "choose a folder that can be written"),
    errno.EACCES: ("no permission to write there", "choose a folder that can be written"),
    errno.EPERM: ("no permission to write there", "choose a folder that can be written"),
    errno.ENOTDIR: ("a part of the path is a file", "choose a folder"),
    errno.EEXIST: ("there is a file of that name", "choose a folder"),
}


def unwritable(path: Path, error: OSError) -> StoreError:
    """The one-line error for a failed write in the folder ``path``."""
    why, todo = _REASONS.get(error.errno or 0, (error.strerror or str(error), "check the disk"))
    again = "then run the same command again: what was written before is kept"
    return StoreError(f"store={path}: {why}; {todo}, {again}")


def files(folder: Path, table: str) -> list[Path]:
    """Files of a table in ``folder``, the compacted one first, then the parts by number."""
    numbered = []
    for path in folder.glob(f"{table}*.parquet"):
        match = re.fullmatch(re.escape(table) + r"(?:\.(\d+))?\.parquet", path.name)
        if match:
            numbered.append((int(match[1] or -1), path))
    return [path for _, path in sorted(numbered)]


def part(folder: Path, table: str, number: int) -> Path:
    """Path of part ``number`` of a table."""
    return folder / f"{table}.{number}.parquet"


def whole(folder: Path, table: str) -> Path:
    """Path of the compacted file of a table."""
    return folder / f"{table}.parquet"


def is_whole(folder: Path, table: str) -> bool:
    """Whether the table is one compacted file, or absent, so that no row of it is outdated."""
    found = files(folder, table)
    if not found:
        return True
    return len(found) == 1 and _COMPACTED.encode() in (footer(found[0]).metadata or {})


def write(path: Path, table: str, rows: pa.Table, compacted: bool = False) -> None:
    """Write ``rows`` (columns as ``schema.arrow_schema(table)``) to ``path``, all or nothing.

    The bytes are on the disk (fsync) before the name is: a reader sees the old file or the new
    one. Errors: StoreError where the disk is full or read-only; then ``path`` is as before.
    """
    metadata = dict(schema.arrow_schema(table).metadata)
    if compacted:
        metadata[_COMPACTED] = "1"
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
        with os.fdopen(handle, "wb") as stream:
            _encode(rows.replace_schema_metadata(metadata), table, stream, compacted)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
        _sync_folder(path.parent)
    except BaseException as error:
        with suppress(OSError):
            os.unlink(temporary)
        if isinstance(error, OSError):
            raise unwritable(path.parent, error) from error
        raise


def _encode(rows: pa.Table, table: str, stream: object, compacted: bool) -> None:
    columns = schema.TABLES[table]
    text = [column.name for column in columns if schema.TYPES[column.type] == "string"]
    pq.write_table(
        rows,
        stream,
        compression="zstd",
        compression_level=9 if compacted else 1,
        use_dictionary=text,
        write_statistics=True,
    )


def _sync_folder(folder: Path) -> None:
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def footer(path: Path) -> pa.Schema:
    """Arrow schema of a file. StoreError where it is damaged, not ours, or of a newer version."""
    try:
        found = pq.read_schema(path)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from error
    version = (found.metadata or {}).get(b"probe.schema_version", b"").decode()
    if not version.isdigit():
        raise StoreError(f"file={path.name}: not written by probe; move it out of the store")
    if int(version) > schema.VERSION:
        raise StoreError(
            f"schema_version={version}: {path.name} is of a newer format than this probe's "
            f"{schema.VERSION}; update probe to read it"
        )
    return found


def read(path: Path, table: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Rows of one file with the columns of today's schema; younger columns than the file: null."""
    present = set(footer(path).names)
    wanted = schema.names(table) if columns is None else list(columns)
    try:
        # partitioning is off: a folder called `a=b` must not become a column
        rows = pq.read_table(path, columns=[n for n in wanted if n in present], partitioning=None)
    except FileNotFoundError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from error
    return _as_today(rows, table, wanted, path)


def _as_today(rows: pa.Table, table: str, wanted: list[str], path: Path) -> pa.Table:
    today = schema.arrow_schema(table)
    fields = [pa.field(name, today.field(name).type) for name in wanted]
    arrays = []
    for field in fields:
        if field.name not in rows.column_names:
            arrays.append(pa.nulls(len(rows), field.type))
            continue
        try:
            arrays.append(rows.column(field.name).cast(field.type))
        except pa.ArrowException as error:
            raise _damaged(path, error) from error
    return pa.table(arrays, schema=pa.schema(fields))


def _damaged(path: Path, error: Exception) -> StoreError:
    reason = " ".join(str(error).split("\n")[0].split())[:120].replace(str(path.parent), "...")
    return StoreError(
        f"file={path.name}: damaged, can't be read as parquet ({reason}); restore it, or move it "
        "out of the store and measure again"
    )


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
    raise StoreError(f"store={folder}: {name} can't be opened; fix its links") from gone


def _once(folder: Path, name: str) -> pa.Table:
    found = files(folder, name)
    if not found:
        return schema.arrow_schema(name).remove_metadata().empty_table()
    pieces = [read(path, name) for path in found]
    rows = pa.concat_tables(pieces)
    settled = is_whole(folder, name)
    if name != "differences":
        batches = np.repeat(np.arange(len(pieces)), [len(piece) for piece in pieces])
        return rows if settled else newest(name, rows, batches)
    if settled and is_whole(folder, "comparisons"):
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
