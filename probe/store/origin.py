"""Writes into a file where its rows come from: experiment, machine, library, version.

It is found from the runs that the rows name. What is not known is left out of the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from probe.store import layout

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
