"""Knows what a sweep need not measure again: the comparisons that one run of a target has stored.

It is read anew from the files for every target: what is not on the disk is never taken for done.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from probe import schema
from probe.errors import StoreError
from probe.store import parquet

GROUP = ("run_id", "target", "vary", "against")
SUMS = ("compared", "not_compared", "differing", "signed_zero")
_READ = (*GROUP, "case_id", "at", "control", "kept", "max_ulp", "first", *SUMS)
Row = Mapping[str, Any]


class Recalled:
    """Stored comparisons of one run of one target against one value, by case.

    ``rows``: how many there are. ``controlled``: those alone whose shape was run again.
    """

    def __init__(self, folder: Path, group: tuple[str, str, str, int], controlled: bool) -> None:
        found = parquet.steady(lambda: _read(folder, dict(zip(GROUP, group, strict=True))), folder)
        if controlled:
            found = found.filter(pc.is_valid(found["control"]))
        self._found = found.sort_by([("case_id", "ascending"), ("at", "ascending")])
        self.rows = len(found)
        counts = self._found["case_id"].combine_chunks().value_counts()
        sizes = counts.field("counts").to_numpy()
        places = zip((np.cumsum(sizes) - sizes).tolist(), sizes.tolist(), strict=True)
        self._cases = dict(zip(counts.field("values").to_pylist(), places, strict=True))

    def case(self, case_id: str, values: Sequence[int]) -> tuple[set[int], list[Row]]:
        """Returns which of the values of a case are stored, and rows of ``comparisons`` of these.

        One row stands for all those ``rows`` that agree: there may be thousands, and a summary
        counts them alone.
        """
        if case_id not in self._cases:
            return set(), []
        rows = self._found.slice(*self._cases[case_id])
        rows = rows.filter(pc.is_in(rows["at"], pa.array(list(values), pa.int64())))
        # a comparison without a control (control=differing) agrees as well as one that repeated
        done = set(rows["at"].to_pylist())
        fine = pc.fill_null(pc.equal(rows["control"], "equal"), True)
        plain = pc.and_(pc.equal(rows["differing"], 0), fine)
        told: list[Row] = rows.filter(pc.invert(plain)).to_pylist()
        if len(same := rows.filter(plain)):
            sums = {name: pc.sum(same[name]).as_py() or 0 for name in SUMS}
            told.append({"case_id": case_id, "control": "equal", "rows": len(same), **sums})
        return done, told


def _read(folder: Path, group: Row) -> pa.Table:
    stored, kept = parquet.Stored([folder]), 0
    form = schema.arrow_schema("comparisons").remove_metadata()
    pieces = [pa.schema([form.field(name) for name in _READ]).empty_table()]
    for rows in parquet.stream(stored, "comparisons", _READ):
        kept += pc.sum(rows["kept"]).as_py() or 0
        same = [pc.equal(rows[name], value) for name, value in group.items()]
        pieces.append(rows.filter(pc.and_(pc.and_(same[0], same[1]), pc.and_(same[2], same[3]))))
    # else comparisons whose differences are gone would never be measured again
    if why := parquet.unlisted(stored, kept):
        raise StoreError(why)
    return pa.concat_tables(pieces)
