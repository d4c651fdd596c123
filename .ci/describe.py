"""Writes the schema's descriptions of tables and columns into the stored files of results/.

After a change of descriptions in probe/case/schema.py: `.venv/bin/python .ci/describe.py`. Rows
stay as they are, which is checked; files whose descriptions are today's are not touched.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from probe.case import schema
from probe.sweep import files, store

RESULTS = Path(__file__).parents[1] / "results"
COMPACTED = "probe.compacted"


def describe(path: Path) -> bool:
    """Gives a file the schema's descriptions; returns whether it lacked some.

    A file whose descriptions are today's keeps the version in which it was written: there is
    nothing to rewrite it for. One that is rewritten is of today's version, with the columns that
    are younger than it, which are null.
    """
    rows = pq.read_table(path, partitioning=None)
    before = dict(rows.schema.metadata)
    table = before[b"probe.table"].decode()
    wanted = schema.described_schema(table)
    same = all(wanted.field(one.name).metadata == one.metadata for one in rows.schema)
    if same and before[b"probe.about"] == wanted.metadata[b"probe.about"]:
        return False
    origins = {k.decode(): v.decode() for k, v in before.items() if k not in wanted.metadata}
    compacted = origins.pop(COMPACTED, None) is not None
    whole = rows
    for field in wanted:
        if field.name not in rows.column_names:
            whole = whole.append_column(field, pa.nulls(len(rows), field.type))
    files.write_file(path, table, whole, compacted, origins)
    if not bits(pq.read_table(path).select(rows.column_names)).equals(bits(rows)):
        raise SystemExit(f"file={path.name}: its rows have changed; restore it with git")
    return True


def bits(rows: pa.Table) -> pa.Table:
    """Returns rows with floats as integers of the same bits: NaN is not equal to NaN."""
    columns = [column.combine_chunks() for column in rows.columns]
    columns = [one.view(pa.uint64()) if one.type == pa.float64() else one for one in columns]
    return pa.table(columns, rows.column_names)


def main() -> int:
    """Rewrites what lacks descriptions, and the guides of the folders; prints how many."""
    paths = sorted(RESULTS.rglob("*.parquet"))
    changed = sum(map(describe, paths))
    for guide in RESULTS.glob(f"*/*/{store.README}"):
        guide.write_text(store.GUIDE)
    (RESULTS / "README.md").write_text(schema.readme())
    print(f"{changed} of {len(paths)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main())
