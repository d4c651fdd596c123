"""Knows what is measured, by file and case, so that a sweep resumes without reading all rows.

``.manifest.parquet`` in a machine's folder says of every file of ``comparisons`` which values of
the axis it has of every case, and their sums. It names a file by the digest that the file carries
(:func:`probe.store.file.seal`), is written after the files, and is believed of those files alone
that are there with that very digest: what it can't say of a file is read from the file. So it may
be missing, damaged or old at any moment, and never claims what isn't on the disk.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from probe.errors import StoreError
from probe.store import file, layout, parquet

NAME = ".manifest.parquet"
WORTH = 20_000
"""Rows from which on a manifest is kept: fewer are read faster than a file is written."""

GROUP = ("run_id", "target", "vary", "against")
SUMS = ("compared", "not_compared", "signed_zero", "kept")
_READ = (*GROUP, "case_id", "at", "control", "differing", *SUMS)
_FORM = pa.schema(
    [pa.field("seal", pa.string())]
    + [pa.field(name, pa.string()) for name in ("run_id", "target", "vary")]
    + [pa.field("against", pa.int64()), pa.field("case_id", pa.string())]
    + [pa.field("values", pa.list_(pa.int64())), pa.field("rows", pa.int64())]
    + [pa.field("control", pa.string()), pa.field("differing", pa.int64())]
    + [pa.field(name, pa.int64()) for name in SUMS]
)
Row = Mapping[str, Any]


class Manifest:
    """What a machine's folder says of its comparisons, read when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: list[tuple[Path, str | None]] = []
        self._groups = _FORM.empty_table()

    def recall(self, group: tuple[str, str, str, int], controlled: bool) -> Recalled:
        """Returns what is stored of ``GROUP``, the files as they are now. Errors: StoreError."""
        parquet.steady(self._refresh, self.folder)
        # else comparisons whose differences are gone would never be measured again
        if why := parquet.steady(self._unlisted, self.folder):
            raise StoreError(why)
        found = self._groups
        for name, value in zip(GROUP, group, strict=True):
            found = found.filter(pc.equal(found.column(name), value))
        return Recalled(self.folder, dict(zip(GROUP, group, strict=True)), found, controlled)

    def _unlisted(self) -> str:
        stored = parquet.Stored([self.folder])
        kept = int(pc.sum(self._groups.column("kept")).as_py() or 0)
        # rows that were measured again may be in one of the two tables only: then they are read
        return parquet.unlisted(stored) if kept > stored.count("differences") else ""

    def _refresh(self) -> None:
        paths = layout.files(self.folder, "comparisons")
        there = [(path, file.seal(path)) for path in paths]
        if there == self._known:
            return
        known = self._groups if self._known else _stored(self.folder / NAME)
        pieces, new = [], 0
        for path, seal in there:
            mine = known.filter(pc.equal(known.column("seal"), seal or "none"))
            if not len(mine):
                mine = _summed(path, seal)
                new += file.count(path)
            pieces.append(mine)
        self._groups, self._known = pa.concat_tables([_FORM.empty_table(), *pieces]), there
        if new >= WORTH:
            self._save()

    def _save(self) -> None:
        """Keeps it, if that is possible; nothing depends on it."""
        path = self.folder / NAME
        with suppress(OSError, pa.ArrowException):
            scratch = path.with_suffix(f".{os.getpid()}.tmp")
            pq.write_table(self._groups, scratch, compression="zstd", write_page_checksum=True)
            scratch.replace(path)


def _stored(path: Path) -> pa.Table:
    """Returns the manifest of a folder; empty where there is none that can be read."""
    with suppress(OSError, pa.ArrowException, ValueError):
        found = pq.read_table(path, partitioning=None, page_checksum_verification=True)
        if found.schema.remove_metadata().equals(_FORM):
            return found
    return _FORM.empty_table()


def _summed(path: Path, seal: str | None) -> pa.Table:
    """Returns groups of one file: of a case all rows with one control, row group by row group."""
    pieces = [
        _grouped(rows, seal or "") for rows in file.batches(path, "comparisons", _READ) if len(rows)
    ]
    return pa.concat_tables([_FORM.empty_table(), *pieces])


def _grouped(rows: pa.Table, seal: str) -> pa.Table:
    names = (*GROUP, "case_id", "control")
    codes, at = parquet.codes(rows, names), rows.column("at").to_numpy()
    order = np.lexsort((at, codes))
    codes, at = codes[order], at[order]
    first = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]])
    starts = np.flatnonzero(np.r_[True, (codes[1:] != codes[:-1]) | (at[1:] != at[:-1] + 1)])
    stops = np.r_[starts[1:], len(at)]
    ranges = np.stack([at[starts], at[stops - 1] + 1], 1).reshape(-1)
    offsets = 2 * np.searchsorted(starts, np.r_[first, len(at)])
    columns: dict[str, Any] = {
        name: rows.column(name).take(pa.array(order[first])) for name in names
    }
    columns["seal"] = pa.repeat(pa.scalar(seal), len(first))
    columns["values"] = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(ranges))
    columns["rows"] = pa.array(np.diff(np.r_[first, len(at)]))
    for name in ("differing", *SUMS):
        numbers = pc.fill_null(rows.column(name), 0).to_numpy()[order]
        columns[name] = pa.array(np.add.reduceat(numbers, first))
    return pa.table([columns[name] for name in _FORM.names], schema=_FORM)


class Recalled:
    """The comparisons that one run of one target has stored, by case.

    Cases of which no output differs are known by their sums; the rows of the others are read
    together when the first of them is asked for, and all rows only if a case is asked for in part.
    """

    def __init__(
        self, folder: Path, group: Mapping[str, Any], groups: pa.Table, controlled: bool
    ) -> None:
        self.folder, self.group, self.controlled = folder, group, controlled
        self._groups = groups
        self.rows = int(pc.sum(groups.column("rows")).as_py() or 0)

    @cached_property
    def _cases(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for place, case in enumerate(self._groups.column("case_id").to_pylist()):
            found.setdefault(case, []).append(place)
        return found

    def case(self, case_id: str, values: Sequence[int]) -> tuple[set[int], list[Row]]:
        """Returns which of the values of a case are stored, and the rows of these.

        A row stands for ``rows`` comparisons that agree, where it has that; else it is one row of
        the table. Errors: StoreError.
        """
        places, wanted = self._cases.get(case_id, []), set(values)
        if not places:
            return set(), []
        sums = [self._groups.slice(place, 1).to_pylist()[0] for place in places]
        stored = [value for one in sums for value in _values(one)]
        if self._plain(sums) and len(set(stored)) == len(stored) and wanted.issuperset(stored):
            return set(stored), sums
        rows = self._differing.get(case_id)
        if rows is None:
            rows = self._all.get(case_id, {})
        return wanted & rows.keys(), [rows[value] for value in values if value in rows]

    def _plain(self, sums: Sequence[Row]) -> bool:
        """Returns whether nothing is to be said of single rows."""
        fine = ("equal",) if self.controlled else ("equal", None)
        return all(not one["differing"] and one["control"] in fine for one in sums)

    @cached_property
    def _differing(self) -> dict[str, dict[int, Row]]:
        """Returns rows of the cases of which an output differs, or that are in several files."""
        strange = pc.greater(self._groups.column("differing"), 0)
        several = {case for case, places in self._cases.items() if len(places) > 1}
        cases = set(self._groups.filter(strange).column("case_id").to_pylist()) | several
        return self._read(cases) if cases else {}

    @cached_property
    def _all(self) -> dict[str, dict[int, Row]]:
        return self._read(None)

    def _read(self, cases: set[str] | None) -> dict[str, dict[int, Row]]:
        return parquet.steady(lambda: self._rows(cases), self.folder)

    def _rows(self, cases: set[str] | None) -> dict[str, dict[int, Row]]:
        stored, columns = parquet.Stored([self.folder]), [*_READ, "max_ulp", "first"]
        found: dict[str, dict[int, Row]] = {}
        for rows in parquet.stream(stored, "comparisons", columns):
            for name, value in self.group.items():
                rows = rows.filter(pc.equal(rows.column(name), value))
            if cases is not None:
                rows = rows.filter(pc.is_in(rows.column("case_id"), pa.array(sorted(cases))))
            for row in rows.drop_columns(list(GROUP)).to_pylist():
                if row["control"] or not self.controlled:
                    found.setdefault(row["case_id"], {})[row["at"]] = row
        return found


def _values(sums: Row) -> Iterator[int]:
    ends = sums["values"]
    for start, stop in zip(ends[::2], ends[1::2], strict=True):
        yield from range(start, stop)
