"""Rows checked against the schema, as Arrow tables of its columns."""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from typing import Any

import numpy as np
import pyarrow as pa

from probe import machine, schema
from probe.errors import StoreError

_REQUIRED = {
    table: frozenset(column.name for column in columns if column.null is None)
    for table, columns in schema.TABLES.items()
}
_ALLOWED = {table: frozenset(schema.names(table)) for table in schema.TABLES}


def check_names(table: str, names: Set[str]) -> None:
    """StoreError where a column is missing that may not be null, or one is unknown."""
    if not _REQUIRED[table] <= names:
        missing = ", ".join(sorted(_REQUIRED[table] - names))
        raise StoreError(f"{table}: no value for {missing}; these may not be null")
    if not names <= _ALLOWED[table]:
        unknown = ", ".join(sorted(names - _ALLOWED[table]))
        raise StoreError(f"{table}: has no column {unknown}; see probe/schema")


def from_rows(table: str, rows: list[Mapping[str, Any]]) -> pa.Table:
    """Rows given one by one; columns that a row hasn't are null."""
    names = schema.names(table)
    return _build(table, {name: [row.get(name) for row in rows] for name in names}, len(rows))


def from_columns(table: str, columns: Mapping[str, Any]) -> pa.Table:
    """Rows given by columns: arrays and lists of one length; a scalar is repeated.

    In arrays NaN and ``schema.NULL_INT`` are null where the column may be null.
    """
    check_names(table, columns.keys())
    sizes = {len(values) for values in columns.values() if _is_sequence(values)}
    if len(sizes) != 1:
        raise StoreError(f"{table}: columns of {sorted(sizes)} rows; give them one length")
    return _build(table, columns, sizes.pop())


def _build(table: str, columns: Mapping[str, Any], count: int) -> pa.Table:
    arrays = [_array(table, c, columns.get(c.name), count) for c in schema.TABLES[table]]
    return pa.table(arrays, schema=schema.arrow_schema(table).remove_metadata())


def _array(table: str, column: schema.Column, values: Any, count: int) -> pa.Array:
    kind = column.arrow()
    if values is None and column.null is not None:
        return pa.nulls(count, kind)
    try:
        if not _is_sequence(values):
            return pa.repeat(_array(table, column, [values], 1)[0], count)
        mask = _nulls(column, values)
        if schema.TYPES[column.type] == "string" and not isinstance(values, pa.Array):
            values = [_text(column, value) for value in values]
        array = pa.array(values, type=kind, mask=mask)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise StoreError(f"{table}.{column.name}: {error}; its type is {kind}") from error
    if column.null is None and array.null_count:
        raise StoreError(f"{table}.{column.name}=None: this column may not be null")
    return array


def _nulls(column: schema.Column, values: Any) -> np.ndarray | None:
    if column.null is None or not isinstance(values, np.ndarray):
        return None
    if column.type == "float":
        return np.isnan(values)
    return values == schema.NULL_INT if values.dtype == np.int64 else None


def _text(column: schema.Column, value: Any) -> Any:
    if value is None:
        return None
    if column.type == "json" and not isinstance(value, str):
        value = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return machine.publishable(value) if column.foreign else value


def _is_sequence(values: Any) -> bool:
    return isinstance(values, list | tuple | np.ndarray | pa.Array | pa.ChunkedArray)
