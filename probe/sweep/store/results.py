"""Reads stores: one machine's folder, an experiment of many machines, or all of ``results``.

SQL of users reads these files alone, and lazily: every table is a view of the rows that count, of
which DuckDB reads the columns and row groups that a query needs. Its access to all other files is
switched off and its configuration locked before a query is looked at, so that none reads or writes
anything else.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pyarrow as pa

from probe.case import schema
from probe.case.arguments import typed
from probe.case.errors import InputError, StoreError
from probe.sweep.store import file, parquet
from probe.sweep.store.file import CONTENT

if TYPE_CHECKING:
    import pandas


class Results:
    """Reads the stored tables of one or more machine folders.

    Every table of ``schema.TABLES`` is an attribute, a pandas frame read when first asked for:
    ``results.comparisons``. Tables other than :data:`CONTENT` have a column ``machine``, the
    name of the folder. A table without a file is an empty frame with the schema's columns.
    Integers that may be null are ``Int64``, so that ulps stay exact. ``left_out``: why files are
    not read, by path; see :func:`load`.
    """

    @typed
    def __init__(self, folders: list[Path], left_out: Mapping[Path, str] | None = None) -> None:
        if not all(isinstance(folder, Path) for folder in folders):
            raise InputError("folders", folders, "they are not all paths", "use probe.load")
        self.folders, self.left_out = folders, dict(left_out or {})
        self._arrow: dict[str, pa.Table] = {}

    def __getattr__(self, name: str) -> pandas.DataFrame:
        if name not in schema.TABLES:
            there = ", ".join(schema.TABLES)
            raise AttributeError(f"table={name}: there is no such table; there are {there}")
        frame = to_pandas(self.arrow(name), name)
        setattr(self, name, frame)
        return frame

    def __repr__(self) -> str:
        return f"Results({', '.join(self.machines)})"

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *schema.TABLES]

    @functools.cached_property
    def machines(self) -> list[str]:
        return list(dict.fromkeys(folder.name for folder in self.folders))

    def arrow(self, name: str) -> pa.Table:
        if name not in self._arrow:
            none = schema.arrow_schema(name).remove_metadata().empty_table()
            labelled = name not in CONTENT
            if labelled and "machine" not in none.column_names:
                none = none.append_column("machine", pa.array([], pa.string()))
            pieces = parquet.steady(
                lambda: list(self.stored().rows(name, labelled=labelled)), self.folders[0]
            )
            self._arrow[name] = pa.concat_tables([none, *pieces])
        return self._arrow[name]

    def stored(self, machine: str | None = None) -> parquet.Stored:
        """Returns files of one machine, whose folders may be shards of one run; None: of all."""
        names = self.machines if machine is None else [machine]
        mine = [folder for name in names for folder in self.folders if folder.name == name]
        return parquet.Stored(mine, frozenset(self.left_out))

    @property
    def tables(self) -> list[str]:
        return [name for name in schema.TABLES if self.stored().files(name)]

    def count(self, name: str) -> int:
        stored = self.stored()
        return stored.number("count(*)", stored.sql(name)) if stored.files(name) else 0

    def query(self, sql: str) -> pandas.DataFrame:
        """Returns the result of a SELECT over the tables, by DuckDB, which reads what it needs.

        Errors: InputError for the query.
        """
        return self.answered(sql)[0].to_pandas()

    def answered(self, *queries: str) -> list[pa.Table]:
        """Returns the results of SELECTs over the tables, each with all machines.

        Errors: StoreError where a file is damaged, InputError for a query.
        """
        return parquet.steady(lambda: self._answered(queries), self.folders[0])

    def _answered(self, queries: Sequence[str]) -> list[pa.Table]:
        import duckdb  # here: what only writes needs none

        answers, words, stored = [], " ".join(queries).lower(), self.stored()
        with (
            TemporaryDirectory(prefix="probe-sql-") as spilled,
            duckdb.connect(":memory:", config={"temp_directory": spilled}) as connection,
        ):
            for name in schema.TABLES:
                if name in words:
                    own = [column for column in schema.column_names(name) if column != "machine"]
                    label = ", _folder AS machine" * (name not in CONTENT)
                    shown = f"SELECT {parquet.sql_names(own)}{label} FROM ({stored.sql(name)})"
                    connection.execute(f"CREATE VIEW {name} AS {shown}")
            stored.verify()
            # DuckDB would show times of the reader's zone
            connection.execute("SET TimeZone = 'UTC'")
            for query in queries:
                try:
                    rows = connection.sql(query).to_arrow_table()
                    # DuckDB sums int64 in 128 bits, which Arrow has as a decimal
                    for place, field in enumerate(rows.schema):
                        if pa.types.is_decimal(field.type) and field.type.scale == 0:
                            with suppress(pa.ArrowInvalid):
                                numbers = rows.column(place).cast(pa.int64())
                                rows = rows.set_column(place, field.name, numbers)
                    answers.append(rows)
                except (duckdb.Error, pa.ArrowException, OSError) as error:
                    stored.unchanged()  # gone: another process has just compacted it away
                    unknown = "Table with name" in str(error)
                    todo = f"use one of {', '.join(schema.TABLES)}" if unknown else "change it"
                    why = " ".join(str(error).split("LINE ")[0].split())[:300]
                    text = " ".join(query.split())
                    raise InputError("sql", text[:60], why, todo) from None
        stored.unchanged()
        return answers


@typed
def load(*paths: str | Path, tolerant: bool = False) -> Results:
    """Returns the stored results under the given folders, which may be of several machines.

    Every file is read once, to see that it is as it was written. ``tolerant``: files that are
    damaged or of a newer format are ``left_out``. Errors (StoreError, one line): no such folder, no
    store in it, else a damaged file (named), a file of a newer format, lost rows. Tables are read
    when they are asked for.
    """
    folders: list[Path] = []
    for path in paths:
        places = file.machine_folders(Path(path))
        if not places:
            raise StoreError(
                f"path={path}: there are no stored results; run `probe sweep` or `probe run` first"
            )
        folders.extend(folder for folder in places if folder not in folders)
    left_out: dict[Path, str] = {}
    if not tolerant:
        results = Results(folders)
        for machine in results.machines:
            mine = results.stored(machine).folders
            parquet.steady(functools.partial(parquet.require_whole, mine), mine[0])
        return results
    files = (file.table_files(folder, name) for folder in folders for name in schema.TABLES)
    for path in dict.fromkeys(chain.from_iterable(files)):
        try:
            file.verify_file(path)
        except FileNotFoundError:
            if path.is_symlink():
                left_out[path] = f"file={path.name}: the link leads to no file; correct it"
            continue  # another process has just compacted it away
        except StoreError as error:
            left_out[path] = str(error)
    return Results(folders, left_out)


def to_pandas(rows: pa.Table, name: str) -> pandas.DataFrame:
    """Returns a pandas frame of ``rows``; nullable integers and flags keep their type."""
    import pandas as pd

    exact = {pa.int64(): pd.Int64Dtype(), pa.uint64(): pd.UInt64Dtype()}
    exact[pa.bool_()] = pd.BooleanDtype()
    nullable = {column.name for column in schema.TABLES[name] if column.null is not None}
    series = {}
    for field in rows.schema:
        mapper = exact.get if field.name in nullable and field.type in exact else None
        series[field.name] = rows.column(field.name).to_pandas(types_mapper=mapper)
    return pd.DataFrame(series)
