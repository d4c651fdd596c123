"""SQL over stores, by DuckDB: reading alone, of these files alone, and lazily.

DuckDB gets no files but the tables as Arrow datasets, of which it reads the columns and the row
groups that a query needs. Then its access to the system is switched off and its configuration
locked, so that no query reads or writes anything else.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow.fs import LocalFileSystem

from probe import schema
from probe.errors import InputError, StoreError
from probe.store import file, layout, parquet
from probe.store.layout import CONTENT

if TYPE_CHECKING:
    from probe.store.results import Results

MISSING = "DuckDB is not installed; pip install duckdb"
_SAFE = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
_LOCKS = (
    "SET python_enable_replacements = false",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)


def answered(found: Results, sql: str) -> pa.Table:
    """Returns the result of one SELECT over the tables of ``found``, each with all of its machines.

    Errors: StoreError where DuckDB is missing or a file is damaged, InputError for the query.
    """
    try:
        import duckdb
    except ImportError:
        raise StoreError(f"sql: {MISSING}") from None
    _checked(duckdb, sql)
    return parquet.steady(lambda: _exact(_answered(duckdb, found, sql)), found.folders[0])


def _answered(duckdb: Any, found: Results, sql: str) -> pa.Table:
    words, datasets = sql.lower(), []
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(TemporaryDirectory(prefix="probe-sql-")))
        settings = _SAFE | {"temp_directory": str(scratch / "spilled")}
        connection = stack.enter_context(duckdb.connect(":memory:", config=settings))
        for name in schema.TABLES:
            if name in words:
                datasets.append(_dataset(found, name, scratch))
                connection.register(name, datasets[-1])
        for lock in _LOCKS:
            connection.execute(lock)
        try:
            answer: pa.Table = connection.sql(sql).to_arrow_table()
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            for one in datasets:
                for path in one.files:
                    file.state(Path(path))  # gone: another process has just compacted it away
            raise _wrong(sql, error) from None
    return answer


def _exact(rows: pa.Table) -> pa.Table:
    """Sums of integers are decimals of DuckDB's: as int64 where all fit."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_decimal(field.type) and field.type.scale == 0:
            with suppress(pa.ArrowInvalid):
                numbers = rows.column(place).cast(pa.int64())
                rows = rows.set_column(place, field.name, numbers)
    return rows


def _checked(duckdb: Any, sql: str) -> None:
    """InputError unless the text is one SELECT."""
    try:
        statements = duckdb.extract_statements(sql)
    except duckdb.Error as error:
        raise _wrong(sql, error) from None
    if [one.type for one in statements] != [duckdb.StatementType.SELECT]:
        raise InputError(
            "sql", _short(sql), "it is not a single query that only reads", "write one SELECT"
        )


def _wrong(sql: str, error: Exception) -> InputError:
    unknown = "Table with name" in str(error)
    todo = f"use one of {', '.join(schema.TABLES)}" if unknown else "change the query"
    return InputError("sql", _short(sql), _line(error), todo)


def _line(error: Exception) -> str:
    return " ".join(str(error).split("LINE ")[0].split())[:300]


def _short(sql: str) -> str:
    text = " ".join(sql.split())
    return text if len(text) <= 60 else f"{text[:57]}..."


def _dataset(found: Results, name: str, scratch: Path) -> ds.Dataset:
    """One table of all machines; where rows are outdated, a copy without them is read instead."""
    columns = list(schema.arrow_schema(name).remove_metadata())
    if name not in CONTENT and "machine" not in schema.names(name):
        columns.append(pa.field("machine", pa.string()))
    paths: dict[str, ds.Expression] = {}
    for place, machine in enumerate(found.owners(name)):
        stored = found.stored(machine)
        mine = stored.files(name)
        if parquet.counting(stored, name) is not None:
            mine = [_copied(stored, name, scratch / f"{place}.{name}.parquet")]
        for path in mine:
            file.checked(path)
            paths[str(path)] = _said(machine, path)
    return ds.FileSystemDataset.from_paths(
        list(paths),
        schema=pa.schema(columns),
        format=ds.ParquetFileFormat(),
        filesystem=LocalFileSystem(),
        partitions=list(paths.values()),
    )


def _copied(stored: parquet.Stored, name: str, path: Path) -> Path:
    with file.Writer(path, name) as writer:
        for rows in parquet.stream(stored, name):
            writer.write(rows)
    return path


def _said(machine: str | None, path: Path) -> ds.Expression:
    """Returns what holds for every row of a file."""
    said = ds.scalar(True) if machine is None else ds.field("machine") == machine
    if target := layout.values(path).get("target"):
        said = said & (ds.field("target") == target)
    return said
