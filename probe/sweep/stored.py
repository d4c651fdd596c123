"""Reads stores: the rows of a table that count, over all files of one or several machines.

Files are appended to, never changed in place, so a store may hold a row twice (measured again, or
written twice around an interruption): those written later count. :meth:`Stored.sql` is the one
place that says which rows these are; whoever reads a store asks DuckDB for them.

``load`` gives a user ``Results``: one machine's folder, an experiment of many machines, or all of
``results``. SQL of users reads these files alone, and lazily: every table is a view of the rows
that count, of which DuckDB reads the columns and row groups that a query needs. Its access to all
other files is switched off and its configuration locked before a query is looked at, so that none
reads or writes anything else.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa

from probe.case import schema
from probe.case.arguments import typed
from probe.case.errors import InputError, StoreError
from probe.sweep import files
from probe.sweep.files import CONTENT, table_files

if TYPE_CHECKING:
    import pandas

Answer = TypeVar("Answer")

_ATTEMPTS = 20
PAIR = ("run_id", "case_id", "target", "vary", "at", "against")
PLACE = PAIR[:-1]
# Tables whose rows with equal values here were found together: the later set replaces the older as
# a whole, though the two may differ in their keys.
TOGETHER: dict[str, tuple[str, ...]] = {"reveals": PLACE, "causes": PAIR}
# Tables whose rows others name, and the column that does.
IDENTIFIED = {table: key for table in ("runs", *CONTENT) for (key,) in [schema.key_columns(table)]}

_TYPES = {"string": "VARCHAR", "float64": "DOUBLE", "bool": "BOOLEAN", "int64": "BIGINT"}
_TYPES |= {"uint64": "UBIGINT", "timestamp[us, UTC]": "TIMESTAMPTZ", "list<int64>": "BIGINT[]"}
# More than a file has: a row's place is its file's number and its own.
_ROWS = 2**40


def read_table(folder: Path, name: str, columns: Sequence[str] | None = None) -> pa.Table:
    """Reads the rows of a table that count, over all files of one machine; no file: no rows.

    Errors: StoreError for a file that is damaged or of a newer format.
    """
    wanted = schema.column_names(name) if columns is None else columns
    empty = schema.arrow_schema(name).empty_table().select(wanted)
    return steady(
        lambda: pa.concat_tables([empty, *Stored([folder]).rows(name, columns)]), folder
    ).replace_schema_metadata(empty.schema.metadata)


def steady(read: Callable[[], Answer], folder: Path) -> Answer:
    """Calls ``read``, again where another process compacts files meanwhile.

    Errors: StoreError where files that are listed can't be opened.
    """
    gone = FileNotFoundError()
    for _ in range(_ATTEMPTS):
        try:
            return read()
        except FileNotFoundError as error:
            gone = error
    name = Path(gone.filename or folder).name
    raise StoreError(f"store={folder}: {name} can't be opened; fix its links") from gone


class Stored:
    """The files of machines' folders as they are now, the later folder's rows later.

    Folders of one name are one machine's. ``left_out``: files that are not read. Where another
    process replaces a file, what reads it raises FileNotFoundError: see :func:`steady`.
    """

    def __init__(self, folders: Sequence[Path], left_out: frozenset[Path] = frozenset()) -> None:
        self.folders, self.left_out = list(folders), left_out
        self._machines: dict[str, dict[Path, str]] = {}
        self._states: dict[Path, tuple[int, int, int]] = {}

    def files(self, name: str) -> list[Path]:
        """The files of a table, the later rows later."""
        if name == "differences":
            self.files("comparisons")  # first, since writers write it last
        if name not in self._machines:
            shared = name in CONTENT
            self._machines[name] = {
                path: "" if shared else folder.name
                for folder in self.folders
                for path in table_files(folder, name)
                if path not in self.left_out
            }
            self._states |= {path: files.state(path) for path in self._machines[name]}
        return list(self._machines[name])

    def verify(self) -> None:
        # DuckDB checks no page: damage would be read as data
        for path in self._states:
            files.require_unchanged(path)

    def unchanged(self) -> None:
        """Raises FileNotFoundError where a file was replaced since it was listed."""
        for path, before in self._states.items():
            if files.state(path) != before:
                raise FileNotFoundError(2, "it was replaced meanwhile", str(path))

    def settled(self, name: str) -> bool:
        """Whether no row of a table is outdated: one compacted file for each machine."""
        if name == "differences" and not self.settled("comparisons"):
            return False
        paths = self.files(name)
        machines = {self._machines[name][path] for path in paths}
        return len(machines) == len(paths) and all(map(files.is_compacted, paths))

    def sql(self, name: str) -> str:
        """SQL for the rows of a table that count, with the columns of today's schema.

        Columns younger than a file are null. Beside them: ``_folder`` is the machine's folder,
        ``_place`` ascends with time, and ``_file`` is the same for what was written together.
        """
        if self.settled(name):
            return self.every(name)
        last = f"({counting_sql('comparisons', self.every('comparisons'))})"
        return counting_sql(name, self.every(name), last)

    def every(self, name: str) -> str:
        """SQL as :meth:`sql`, for all rows of all files."""
        several = [
            _select_of_file(name, path, self._machines[name][path], number)
            for number, path in enumerate(self.files(name))
        ]
        return " UNION ALL ".join(several or [_select_of_file(name, None)])

    def rows(
        self, name: str, columns: Sequence[str] | None = None, labelled: bool = False
    ) -> Iterator[pa.Table]:
        """The rows that count, a row group or less at a time, in the order of the files.

        ``labelled``: with the name of their folder as ``machine``. Errors: StoreError for a file
        that is damaged or of a newer format, and as the class.
        """
        if not self.files(name):
            return
        form = schema.arrow_schema(name).remove_metadata()
        fields = [form.field(field) for field in (form.names if columns is None else columns)]
        if labelled and "machine" not in form.names:
            fields.append(pa.field("machine", pa.string()))
        texts = [
            "_folder AS machine" if labelled and field.name == "machine" else f'"{field.name}"'
            for field in fields
        ]
        order = "" if self.settled(name) else " ORDER BY _place"
        query = f"SELECT {', '.join(texts)} FROM ({self.sql(name)}){order}"
        for rows in self.query(query):
            yield rows.cast(pa.schema(fields))

    def query(self, sql: str) -> Iterator[pa.Table]:
        """What a query over :meth:`sql` gives, a row group or less at a time."""
        import duckdb  # here: what only writes needs none

        self.verify()
        with _connection().cursor() as cursor:
            try:
                for batch in cursor.sql(sql).to_arrow_reader(files.ROW_GROUP):
                    yield pa.Table.from_batches([batch])
            except (duckdb.Error, pa.ArrowException, OSError, RuntimeError) as error:
                self.unchanged()  # gone: another process has just compacted it away
                named = (path for path in self._states if str(path) in str(error))
                raise files.damaged(next(named, next(iter(self._states))), error) from error
        self.unchanged()

    def number(self, what: str, rows: str) -> int:
        """An aggregate of integers, such as ``sum(kept)``, over SQL of this class."""
        (columns,) = self.query(f"SELECT CAST(coalesce({what}, 0) AS BIGINT) AS n FROM ({rows})")
        return int(columns["n"][0].as_py())

    def lost(self) -> Iterator[str]:
        """Says which rows of one machine are missing, by the rows that name or count them.

        The tables that the folder lists are all there. Of parts of one other tables name rows of
        ``IDENTIFIED`` by their id, comparisons say how many rows of ``differences`` are kept of
        each, and writers write what is named first; so what names is listed first here. Where no
        file says of which library its rows are, they may have been appended alone. What a damaged
        file had, which is left out, is not said to be missing too.
        """
        tables = [name for name in schema.TABLES if name not in IDENTIFIED and self.files(name)]
        tables += [name for name in IDENTIFIED if self.files(name)]
        footers = (files.footer(path).metadata for name in tables for path in self.files(name))
        measured = any(b"probe.library" in metadata for metadata in footers)
        for table, name in IDENTIFIED.items():
            naming = [
                f'SELECT "{name}" FROM ({self.every(source)})'
                for source in tables  # a difference names what its comparison does
                if source not in (table, "differences") and name in schema.column_names(source)
            ]
            damaged = any(path.name.startswith(f"{table}.") for path in self.left_out)
            if naming and measured and not damaged:
                rows_kept = f'SELECT "{name}" FROM ({self.every(table)})'
                named = f'SELECT * FROM ({" UNION ALL ".join(naming)}) WHERE "{name}" IS NOT NULL'
                if count := self.number("count(*)", f"{named} EXCEPT {rows_kept}"):
                    yield (
                        f"store={self.folders[0]}: other tables name {count:,} rows of {table} "
                        f"that aren't there; put the missing files of {table} back, or move the "
                        "store away to measure again"
                    )
        if "comparisons" in tables:
            listed = self.number("sum(kept)", self.sql("comparisons"))
            rows = self.number("count(*)", self.every("differences"))
            if rows < listed:
                yield (
                    f"store={self.folders[0]}: its comparisons list {listed:,} differing outputs, "
                    f"and its differences have {rows:,} rows; put the missing files of differences "
                    "back, or move the store away to measure again"
                )
        for folder in self.folders:
            for table in sorted(files.listed_tables(folder)):
                # once more: a file may be put in place of its parts while they are listed
                if not any(table_files(folder, table) for _ in range(2)):
                    yield (
                        f"store={folder}: its {table} aren't there, which {files.LIST} lists; put "
                        "the missing files back, or move the store away to measure again"
                    )


def files_of(folders: Sequence[Path]) -> list[Path]:
    """The files of all tables of machines' folders, each once."""
    tables = (table_files(folder, name) for folder in folders for name in schema.TABLES)
    return list(dict.fromkeys(chain.from_iterable(tables)))


def require_whole(folders: Sequence[Path]) -> None:
    """Raises StoreError where a file of a machine is damaged, or its rows have lost others.

    The one check of whoever opens a store to read it or to go on with it.
    """
    paths = (
        path for folder in folders for name in schema.TABLES for path in table_files(folder, name)
    )
    for path in dict.fromkeys(paths):
        files.verify_file(path)
    if why := next(Stored(folders).lost(), ""):
        raise StoreError(why)


def _select_of_file(name: str, path: Path | None, machine: str = "", number: int = 0) -> str:
    """The SELECT of one file's rows; no ``path``: of no row."""
    columns_there = set() if path is None else set(files.footer(path).names)
    columns = []
    for column in schema.TABLES[name]:
        value = f'"{column.name}"' if column.name in columns_there else "NULL"
        columns.append(f'CAST({value} AS {_TYPES[schema.TYPES[column.type]]}) AS "{column.name}"')
    columns += [f"CAST({sql_text(machine)} AS VARCHAR) AS _folder", f"{number} AS _file"]
    if path is None:
        return f"SELECT {', '.join(columns)}, 0 AS _place WHERE false"
    source = (
        f"read_parquet({sql_text(str(path))}, file_row_number = true, hive_partitioning = false)"
    )
    return (
        f"SELECT {', '.join(columns)}, {number * _ROWS} + file_row_number AS _place FROM {source}"
    )


def counting_sql(
    name: str, rows: str, comparisons: str = "", apart: Sequence[str] = ("_folder",)
) -> str:
    """SQL for the rows of a table that count.

    ``rows``: SQL of all of them, see :meth:`Stored.sql`; ``comparisons``: a relation of those that
    count, for differences; ``apart``: columns whose values share no row. SQL takes nulls in keys
    as equal here.
    """
    if name == "differences":  # the last ``kept`` ones of their comparison as it was measured last
        pair = [*PAIR, *apart]
        same = " AND ".join(f'd."{name}" IS NOT DISTINCT FROM c."{name}"' for name in pair)
        return f"""
            SELECT d.* FROM (SELECT *, {_back(pair)} AS _back FROM ({rows})) d
            JOIN {comparisons} c ON {same} WHERE d._back <= c.kept
        """
    query = f"SELECT * FROM ({rows}) QUALIFY {_back([*schema.key_columns(name), *apart])} = 1"
    if name in TOGETHER:
        together = sql_names([*TOGETHER[name], *apart])
        query += f" AND _file = max(_file) OVER (PARTITION BY {together})"
    return query


def _back(columns: Sequence[str]) -> str:
    """SQL for a row's number among those with equal ``columns``, the last one's being 1."""
    return f"row_number() OVER (PARTITION BY {sql_names(columns)} ORDER BY _place DESC)"


def sql_names(columns: Sequence[str]) -> str:
    return ", ".join(f'"{column}"' for column in columns)


def sql_text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def newest(name: str, rows: pa.Table, batches: np.ndarray) -> pa.Table:
    """Drops rows (not of differences) that a later one replaces.

    batches: int array (rows,), not decreasing: rows of one batch were appended together.
    """
    chosen, together = schema.key_columns(name), TOGETHER.get(name, ())
    places = pa.array(np.arange(len(rows)))
    placed = rows.append_column("_place", places).append_column("_file", pa.array(batches))

    def distinct(*columns: str) -> int:
        return int(placed.select(columns).group_by(list(columns)).aggregate([]).num_rows)

    # the usual buffer has every row once, and importing DuckDB takes longer than seeing that
    if distinct(*chosen) == len(rows) and (
        not together or distinct(*together) == distinct(*together, "_file")
    ):
        return rows
    with _connection().cursor() as cursor:
        cursor.register("placed", placed)
        query = (
            f"SELECT _place FROM ({counting_sql(name, 'FROM placed', apart=())}) ORDER BY _place"
        )
        return rows.take(cursor.sql(query).to_arrow_table().column("_place"))


@functools.cache
def _connection() -> Any:
    """This process's DuckDB: a start takes 20 ms, a cursor of it less than one."""
    import duckdb  # here: what only writes needs none

    spilled = Path(gettempdir(), f"probe-store-{os.getpid()}")  # made where it is needed
    return duckdb.connect(":memory:", config={"temp_directory": str(spilled)})


GROUP = ("run_id", "target", "vary", "against")
SUMS = ("compared", "not_compared", "differing", "signed_zero")


class Recalled:
    """What a sweep need not measure again: stored comparisons of one run of one target, by case.

    They are read anew from the files for every target: what is not on the disk is never taken for
    done. ``group``: values of ``GROUP``. ``rows``: how many there are. ``controlled``: those alone
    whose shape was run again. Errors: StoreError.
    """

    def __init__(self, folder: Path, group: tuple[str, str, str, int], controlled: bool) -> None:
        def read() -> list[pa.Table]:
            stored = Stored([folder])
            same = [f'"{k}" = {sql_text(str(v))}' for k, v in zip(GROUP, group, strict=True)]
            same += ["control IS NOT NULL"] * controlled
            # a comparison without a control (control=differing) agrees as well as one that repeated
            agrees = "differing = 0 AND coalesce(control, 'equal') = 'equal'"
            columns = sql_names(("case_id", "at", "control", "max_ulp", "first", "kept", *SUMS))
            return list(
                stored.query(
                    f"SELECT {columns}, {agrees} AS agrees FROM ({stored.sql('comparisons')}) "
                    f'WHERE {" AND ".join(same)} ORDER BY case_id, "at"'
                )
            )

        pieces = steady(read, folder)
        self._cases: dict[str, tuple[int, int]] = {}
        self.rows = sum(map(len, pieces))
        if not self.rows:
            return
        self._found = pa.concat_tables(pieces).combine_chunks()
        self._sums = {name: self._found[name].fill_null(0).to_numpy() for name in SUMS}
        self._at, self._agrees = (self._found[name].to_numpy() for name in ("at", "agrees"))
        counts = self._found["case_id"].combine_chunks().value_counts()
        ends = np.cumsum(counts.field("counts").to_numpy()).tolist()
        places = zip([0, *ends], ends, strict=False)
        self._cases = dict(zip(counts.field("values").to_pylist(), places, strict=True))

    def case(self, case_id: str, values: Sequence[int]) -> tuple[set[int], list[Mapping[str, Any]]]:
        """Which of the values of a case are stored, and rows of ``comparisons`` of these.

        One row stands for all those ``rows`` that agree: there may be thousands, and a summary
        counts them alone.
        """
        if case_id not in self._cases:
            return set(), []
        start, end = self._cases[case_id]
        wanted = np.isin(self._at[start:end], list(values))
        agree = wanted & self._agrees[start:end]
        apart = self._found.slice(start, end - start).filter(pa.array(wanted & ~agree))
        differing: list[Mapping[str, Any]] = apart.to_pylist()
        if count := int(agree.sum()):
            sums = {
                name: int(counts[start:end][agree].sum()) for name, counts in self._sums.items()
            }
            differing.append({"case_id": case_id, "control": "equal", "rows": count, **sums})
        return set(self._at[start:end][wanted].tolist()), differing


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
            pieces = steady(
                lambda: list(self.stored().rows(name, labelled=labelled)), self.folders[0]
            )
            self._arrow[name] = pa.concat_tables([none, *pieces])
        return self._arrow[name]

    def stored(self, machine: str | None = None) -> Stored:
        """Files of one machine, whose folders may be shards of one run; None: of all."""
        names = self.machines if machine is None else [machine]
        named_folders = [folder for name in names for folder in self.folders if folder.name == name]
        return Stored(named_folders, frozenset(self.left_out))

    @property
    def tables(self) -> list[str]:
        return [name for name in schema.TABLES if self.stored().files(name)]

    def count(self, name: str) -> int:
        stored = self.stored()
        return stored.number("count(*)", stored.sql(name)) if stored.files(name) else 0

    def query(self, sql: str) -> pandas.DataFrame:
        """The result of a SELECT over the tables, by DuckDB, which reads what it needs.

        Errors: InputError for the query.
        """
        return self.answered(sql)[0].to_pandas()

    def answered(self, *queries: str) -> list[pa.Table]:
        """The results of SELECTs over the tables, each with all machines.

        Errors: StoreError where a file is damaged, InputError for a query.
        """
        return steady(lambda: self._answered(queries), self.folders[0])

    def _answered(self, queries: Sequence[str]) -> list[pa.Table]:
        import duckdb  # here: what only writes needs none

        answers, words, stored = [], " ".join(queries).lower(), self.stored()
        with (
            TemporaryDirectory(prefix="probe-sql-") as spilled,
            duckdb.connect(":memory:", config={"temp_directory": spilled}) as connection,
        ):
            for name in schema.TABLES:
                if name in words:
                    columns = [
                        column for column in schema.column_names(name) if column != "machine"
                    ]
                    label = ", _folder AS machine" * (name not in CONTENT)
                    shown = f"SELECT {sql_names(columns)}{label} FROM ({stored.sql(name)})"
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
    """The stored results under the given folders, which may be of several machines.

    Every file is read once, to see that it is as it was written. ``tolerant``: files that are
    damaged or of a newer format are ``left_out``. Errors (StoreError, one line): no such folder, no
    store in it, else a damaged file (named), a file of a newer format, lost rows. Tables are read
    when they are asked for.
    """
    folders: list[Path] = []
    for path in paths:
        places = files.machine_folders(Path(path))
        if not places:
            raise StoreError(
                f"path={path}: there are no stored results; run `probe sweep` or `probe run` first"
            )
        folders.extend(folder for folder in places if folder not in folders)
    left_out: dict[Path, str] = {}
    if not tolerant:
        results = Results(folders)
        for machine in results.machines:
            machine_folders = results.stored(machine).folders
            steady(functools.partial(require_whole, machine_folders), machine_folders[0])
        return results
    for path in files_of(folders):
        try:
            files.verify_file(path)
        except FileNotFoundError:
            if path.is_symlink():
                left_out[path] = f"file={path.name}: the link leads to no file; correct it"
            continue  # another process has just compacted it away
        except StoreError as error:
            left_out[path] = str(error)
    return Results(folders, left_out)


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
