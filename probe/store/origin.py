"""Writes into a file where its rows come from: experiment, machine, library, version.

It is found from the runs that the rows name. What is not known is left out of the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from probe import schema
from probe.errors import StoreError
from probe.store import parquet

_READ = ("run_id", "target", "experiment", "library", "library_version", "probe_version")
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

    ``fresh``: runs that are not written yet. Folders that can't be read say nothing.
    """

    def __init__(
        self, folders: Sequence[Path], machine: str, fresh: pa.Table | None = None
    ) -> None:
        self.machine = machine
        self._runs: dict[str, dict[str, str | None]] = {}
        for folder in folders:
            with suppress(StoreError):
                self._know(parquet.table(folder, "runs", _READ))
        if fresh is not None:
            self._know(fresh.select(_READ))

    def _know(self, runs: pa.Table) -> None:
        self._runs |= {row["run_id"]: row for row in runs.to_pylist()}

    def told(self, used: Iterable[str] | None, target: str | None = None) -> dict[str, str]:
        """Returns the metadata of a file with rows of these runs; None: of all.
        ``target``: of it alone."""
        chosen = self._runs.keys() if used is None else used
        runs = [self._runs[one] for one in chosen if one in self._runs]
        runs = [one for one in runs if target in (None, one["target"])]
        libraries = [
            f"{one['library']} {one['library_version'] or ''}".strip()
            for one in runs
            if one["library"]
        ]
        found: dict[str, list[str | None]] = {
            "probe.machine": [self.machine],
            "probe.experiment": [one["experiment"] for one in runs],
            "probe.library": [*libraries],
            "probe.version": [one["probe_version"] for one in runs],
        }
        known = {name: sorted({one for one in each if one}) for name, each in found.items()}
        return {name: ", ".join(each) for name, each in known.items() if each}


def used(stored: parquet.Stored, table: str) -> set[str] | None:
    """Returns the runs that the rows of a table name; None where its rows name none."""
    if "run_id" not in schema.names(table):
        return None
    found: set[str] = set()
    for path in stored.files(table):
        for rows in stored.batches(table, path, ["run_id"]):
            found.update(pc.unique(rows.column("run_id")).to_pylist())
    return found


def guide(folder: Path) -> None:
    """Says in a folder of different tables how to read them; a folder that has a README keeps it.

    pandas and Arrow read all files below a folder as one table, with nulls where columns differ:
    a file that is not parquet stops them.
    """
    with suppress(OSError), (folder / README).open("x", encoding="utf-8") as stream:
        stream.write(GUIDE)
