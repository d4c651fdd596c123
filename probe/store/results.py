"""Reading stores: one machine's folder, an experiment of many machines, or all of ``results``."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from probe import schema
from probe.errors import StoreError
from probe.store import file, layout, parquet
from probe.store.layout import CONTENT as CONTENT
from probe.store.layout import machine_folders as machine_folders

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

    def __init__(self, folders: list[Path], left_out: Mapping[Path, str] | None = None) -> None:
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
        """Returns the names of the machine folders, each once."""
        return list(dict.fromkeys(folder.name for folder in self.folders))

    def arrow(self, name: str) -> pa.Table:
        """Returns one table as Arrow; errors as :func:`load`."""
        if name not in self._arrow:
            if name == "differences" and not self.left_out:
                for one in self.machines:
                    self._require_differences(one)
            none = schema.arrow_schema(name).remove_metadata().empty_table()
            none = none if name in CONTENT else labelled(none, "")
            self._arrow[name] = pa.concat_tables([none, *self._by_machine(name)])
        return self._arrow[name]

    def _require_differences(self, machine: str) -> None:
        where = self.stored(machine).folders[0]
        if why := parquet.steady(lambda: parquet.unlisted(self.stored(machine)), where):
            raise StoreError(why)

    def _by_machine(self, name: str) -> Iterator[pa.Table]:
        """Yields the rows of a table, a machine at a time."""
        for machine in self.owners(name):
            where = self.stored(machine).folders[0]
            yield from parquet.steady(functools.partial(self._listed, name, machine), where)

    def _listed(self, name: str, machine: str | None) -> list[pa.Table]:
        return list(self.stream(name, machine))

    def stream(
        self, name: str, machine: str | None, columns: Sequence[str] | None = None
    ) -> Iterator[pa.Table]:
        """Yields the rows of one of :meth:`owners`, a row group or less at a time."""
        for rows in parquet.stream(self.stored(machine), name, columns):
            yield rows if machine is None else labelled(rows, machine)

    def owners(self, name: str) -> Sequence[str | None]:
        """Whose rows of a table are apart: each machine's; None: all machines' together."""
        return (None,) if name in CONTENT else self.machines

    def stored(self, machine: str | None) -> parquet.Stored:
        """Returns files of one machine, whose folders may be shards of one run; None: of all."""
        names = self.machines if machine is None else [machine]
        mine = [folder for name in names for folder in self.folders if folder.name == name]
        return parquet.Stored(mine, frozenset(self.left_out))

    @property
    def tables(self) -> list[str]:
        """Returns the names of the tables that have a file."""
        return [name for name in schema.TABLES if self.stored(None).files(name)]

    def count(self, name: str) -> int:
        """Returns how many rows of a table count."""
        total = 0
        for machine in self.owners(name):
            keep = parquet.counting(stored := self.stored(machine), name)
            total += stored.count(name) if keep is None else int(keep.sum())
        return total

    def query(self, sql: str) -> pandas.DataFrame:
        """Returns the result of a SELECT over the tables, by DuckDB, which reads what it needs.

        Errors: InputError for the query.
        """
        from probe.store.sql import answered

        return answered(self, sql)[0].to_pandas()


def load(*paths: str | Path, tolerant: bool = False) -> Results:
    """Returns the stored results under the given folders, which may be of several machines.

    ``tolerant``: files that are damaged or of a newer format are ``left_out``, for which every file
    is read once. Errors (StoreError, one line): no such folder, no store in it, else a damaged
    file (named), a file of a newer format. Tables are read when they are asked for.
    """
    folders: list[Path] = []
    for path in paths:
        found = machine_folders(Path(path))
        if not found:
            raise StoreError(
                f"path={path}: there are no stored results; run `probe sweep` or `probe run` first"
            )
        folders.extend(folder for folder in found if folder not in folders)
    left_out: dict[Path, str] = {}
    files = (layout.files(folder, name) for folder in folders for name in schema.TABLES)
    for path in dict.fromkeys(chain.from_iterable(files)):
        try:
            file.verify(path) if tolerant else file.footer(path)
        except FileNotFoundError:
            if tolerant and path.is_symlink():
                left_out[path] = f"file={path.name}: the link leads to no file; correct it"
            continue  # another process has just compacted it away
        except StoreError as error:
            if not tolerant:
                raise
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


def labelled(rows: pa.Table, machine: str) -> pa.Table:
    """Returns rows with the name of their folder as ``machine``."""
    label = pa.repeat(pa.scalar(machine), len(rows))
    if "machine" in rows.column_names:
        return rows.set_column(rows.column_names.index("machine"), "machine", label)
    return rows.append_column("machine", label)
