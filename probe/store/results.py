"""Reading stores: one machine's folder, an experiment of many machines, or all of ``results``."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from probe import schema
from probe.errors import StoreError
from probe.store import parquet

if TYPE_CHECKING:
    import pandas

CONTENT = ("cases", "orders", "roundings", "networks")
"""Tables whose id is a hash of the row: the same on every machine, so kept once."""


class Results:
    """The stored tables of one or more machine folders.

    Every table of ``schema.TABLES`` is an attribute, a pandas frame read when first asked for:
    ``results.comparisons``. Tables other than :data:`CONTENT` have a column ``machine``, the
    name of the folder. A table without a file is an empty frame with the schema's columns.
    Integers that may be null are ``Int64``, so that ulps stay exact.
    """

    runs: pandas.DataFrame
    cases: pandas.DataFrame
    comparisons: pandas.DataFrame
    differences: pandas.DataFrame
    outputs: pandas.DataFrame
    windows: pandas.DataFrame
    failures: pandas.DataFrame
    orders: pandas.DataFrame
    roundings: pandas.DataFrame
    reveals: pandas.DataFrame
    causes: pandas.DataFrame
    kernels: pandas.DataFrame
    measurements: pandas.DataFrame
    networks: pandas.DataFrame
    activations: pandas.DataFrame
    padded_lengths: pandas.DataFrame
    programs: pandas.DataFrame
    decisions: pandas.DataFrame
    reports: pandas.DataFrame
    findings: pandas.DataFrame
    remedies: pandas.DataFrame
    reproductions: pandas.DataFrame

    def __init__(self, folders: list[Path]) -> None:
        self.folders = folders
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

    @cached_property
    def machines(self) -> list[str]:
        """Names of the machine folders, each once."""
        return list(dict.fromkeys(folder.name for folder in self.folders))

    def arrow(self, name: str) -> pa.Table:
        """One table as Arrow; errors as :func:`load`."""
        if name not in self._arrow:
            rows = pa.concat_tables(self._by_machine(name))
            if name in CONTENT and len(self.folders) > 1:
                rows = parquet.newest(name, rows, np.zeros(len(rows), int))
            self._arrow[name] = rows
        return self._arrow[name]

    def _by_machine(self, name: str) -> Iterator[pa.Table]:
        """The rows of a table, a machine at a time: its folders may be shards of one run."""
        for machine in self.machines:
            pieces = [_labelled(one, name) for one in self.folders if one.name == machine]
            rows = pa.concat_tables(pieces)
            if len(pieces) > 1 and name != "differences":
                batches = np.repeat(np.arange(len(pieces)), [len(piece) for piece in pieces])
                rows = parquet.newest(name, rows, batches)
            yield rows

    def query(self, sql: str) -> pandas.DataFrame:
        """Result of ``sql`` over the tables, by DuckDB (in the extra ``dev``; else StoreError)."""
        try:
            import duckdb
        except ImportError:
            raise StoreError("query: DuckDB is not installed; pip install duckdb") from None
        with duckdb.connect() as connection:
            for name in schema.TABLES:
                if name in sql:
                    connection.register(name, self.arrow(name))
            return connection.sql(sql).df()


def load(*paths: str | Path) -> Results:
    """Stored results under the given folders, which may be copies from several machines.

    Errors (StoreError, one line): no such folder, no store in it, a damaged file (named), a file
    of a newer format. Tables are read when they are asked for.
    """
    folders: list[Path] = []
    for path in paths:
        found = machine_folders(Path(path))
        if not found:
            raise StoreError(f"path={path}: holds no stored results; `probe sweep` or `run` first")
        folders.extend(folder for folder in found if folder not in folders)
    for folder in folders:
        check(folder)
    return Results(folders)


def machine_folders(path: Path) -> list[Path]:
    """``path`` and the folders under it that hold tables, sorted; StoreError if there's no path."""
    if not path.is_dir():
        raise StoreError(f"path={path}: there is no such folder; check the name")
    tables = [file.parent for file in path.rglob("*.parquet") if _table_of(file) is not None]
    return sorted({folder.resolve() for folder in tables})


def check(folder: Path) -> None:
    """Read every file's footer: StoreError names one that is damaged or of a newer format."""
    for name in schema.TABLES:
        for path in parquet.files(folder, name):
            try:
                parquet.footer(path)
            except FileNotFoundError:
                continue  # another process has just compacted it away


def to_pandas(rows: pa.Table, name: str) -> pandas.DataFrame:
    """A pandas frame of ``rows``; nullable integers and flags keep their type."""
    import pandas as pd

    exact = {pa.int64(): pd.Int64Dtype(), pa.uint64(): pd.UInt64Dtype()}
    exact[pa.bool_()] = pd.BooleanDtype()
    nullable = {column.name for column in schema.TABLES[name] if column.null is not None}
    series = {}
    for field in rows.schema:
        mapper = exact.get if field.name in nullable and field.type in exact else None
        series[field.name] = rows.column(field.name).to_pandas(types_mapper=mapper)
    return pd.DataFrame(series)


def _table_of(file: Path) -> str | None:
    name, _, number = file.name.removesuffix(".parquet").partition(".")
    return name if name in schema.TABLES and (not number or number.isdigit()) else None


def _labelled(folder: Path, name: str) -> pa.Table:
    rows = parquet.table(folder, name)
    if name in CONTENT:
        return rows
    machine = pa.repeat(pa.scalar(folder.name), len(rows))
    if "machine" in rows.column_names:
        return rows.set_column(rows.column_names.index("machine"), "machine", machine)
    return rows.append_column("machine", machine)
