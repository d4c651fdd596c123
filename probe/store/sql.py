"""SQL over stores, by DuckDB: reading alone, of these files alone, and lazily.

Every table is a view of its files that has the rows that count, of which DuckDB reads the columns
and row groups that a query needs. Its access to all other files is switched off and its
configuration locked before a query is looked at, so that none reads or writes anything else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from probe import schema
from probe.errors import InputError
from probe.store import file, layout, parquet
from probe.store.layout import CONTENT

if TYPE_CHECKING:
    from probe.store.results import Results

_SAFE = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
_LOCKS = (
    "SET TimeZone = 'UTC'",
    "SET python_enable_replacements = false",
    "SET enable_external_access = false",
    "SET lock_configuration = true",
)
_TYPES = {"string": "VARCHAR", "float64": "DOUBLE", "bool": "BOOLEAN", "int64": "BIGINT"}
_TYPES |= {"uint64": "UBIGINT", "timestamp[us, UTC]": "TIMESTAMPTZ", "list<int64>": "BIGINT[]"}
_ROWS = 2**40  # more than a file has: a row's place is its file's number and its own


def answered(found: Results, *queries: str) -> list[pa.Table]:
    """Returns the results of SELECTs over the tables of ``found``, each with all of its machines.

    Errors: StoreError where a file is damaged, InputError for a query.
    """
    import duckdb

    for query in queries:
        _check(duckdb, query)
    return parquet.steady(lambda: _answered(duckdb, found, queries), found.folders[0])


def _answered(duckdb: Any, found: Results, queries: Sequence[str]) -> list[pa.Table]:
    answers, words, paths = [], " ".join(queries).lower(), set[Path]()
    with (
        TemporaryDirectory(prefix="probe-sql-") as spilled,
        duckdb.connect(":memory:", config=_SAFE | {"temp_directory": spilled}) as connection,
    ):
        for name in schema.TABLES:
            if name in words or (name == "comparisons" and "differences" in words):
                for statement in _views(found, name, paths):
                    connection.execute(statement)
        for path in paths:
            file.checked(path)  # DuckDB checks no page: damage would be answered as data
        allowed = ", ".join(_text(str(path)) for path in sorted(paths))
        for lock in (f"SET allowed_paths = [{allowed}]", *_LOCKS):
            connection.execute(lock)
        for query in queries:
            try:
                answers.append(_exact(connection.sql(query).to_arrow_table()))
            except (duckdb.Error, pa.ArrowException, OSError) as error:
                for path in paths:
                    file.state(path)  # gone: another process has just compacted it away
                raise _wrong(query, error) from None
    return answers


def _views(found: Results, name: str, paths: set[Path]) -> Iterator[str]:
    """Yields the statements that make a view of a table; its files are added to ``paths``."""
    own = [column for column in schema.names(name) if column != "machine"]
    machine = [] if name in CONTENT else ["machine"]
    pieces, settled = [_selected(name, own, machine)], True
    for owner in found.owners(name):
        stored = found.stored(owner)
        settled &= stored.settled(name)
        settled &= name != "differences" or stored.settled("comparisons")
        for number, path in enumerate(stored.files(name)):
            pieces.append(_selected(name, own, machine, owner, path, number))
            paths.add(path)
    whole = " UNION ALL ".join(pieces)
    shown = f"{parquet.quoted([*own, *machine])} FROM"
    if settled:
        yield f"CREATE VIEW {name} AS SELECT {shown} ({whole})"
        return
    yield f"CREATE VIEW all_{name} AS {whole}"
    kept = parquet.kept(name, f"all_{name}", "comparisons", machine)
    yield f"CREATE VIEW {name} AS SELECT {shown} ({kept})"


def _selected(
    name: str,
    own: Sequence[str],
    machine: Sequence[str],
    owner: str | None = None,
    path: Path | None = None,
    number: int = 0,
) -> str:
    """Returns the SELECT of one file's rows, with today's columns; no ``path``: of no row."""
    said = {} if path is None else layout.values(path)
    there = set() if path is None else set(file.footer(path).names)
    kinds = {column.name: _TYPES[schema.TYPES[column.type]] for column in schema.TABLES[name]}
    columns = [
        f"CAST({_text(said[one]) if one in said else _name(one) if one in there else 'NULL'}"
        f" AS {kinds[one]}) AS {_name(one)}"
        for one in own
    ]
    columns += [f"CAST({_text(owner or '')} AS VARCHAR) AS machine"] * len(machine)
    if path is None:
        return f"SELECT {', '.join(columns)}, 0 AS batch, 0 AS place WHERE false"
    place = f"{number * _ROWS} + file_row_number AS place"
    options = "file_row_number = true, hive_partitioning = false"
    source = f"read_parquet({_text(str(path))}, {options})"
    return f"SELECT {', '.join(columns)}, {number} AS batch, {place} FROM {source}"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _name(column: str) -> str:
    return f'"{column}"'


def _exact(rows: pa.Table) -> pa.Table:
    """Sums of integers are decimals of DuckDB's: as int64 where all fit."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_decimal(field.type) and field.type.scale == 0:
            with suppress(pa.ArrowInvalid):
                numbers = rows.column(place).cast(pa.int64())
                rows = rows.set_column(place, field.name, numbers)
    return rows


def _check(duckdb: Any, sql: str) -> None:
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
    why = " ".join(str(error).split("LINE ")[0].split())[:300]
    return InputError("sql", _short(sql), why, todo)


def _short(sql: str) -> str:
    text = " ".join(sql.split())
    return text if len(text) <= 60 else f"{text[:57]}..."
