"""Says where the files of a store are: a folder per machine, or partitioned for other tools.

``ROOT/<machine>`` stands for one machine's store in both layouts:

- ``ROOT/<machine>/<table>.parquet``, compacted, and parts ``<table>.<n>.parquet``, later n later;
- ``ROOT/<table>/machine=<machine>/target=<target>/part-0.parquet``, compacted; those of the two
  columns that a table hasn't are left out of its path.

A partitioned store is written where stores are merged and compacted. New rows are parts in
``ROOT/<machine>`` until then, so both kinds of files together are one machine's rows, and a later
file of :func:`files` has the later rows.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import quote, unquote

from probe import schema
from probe.errors import StoreError

# Tables whose id is a hash of the row: the same on every machine, so kept once.
CONTENT = ("cases", "orders", "roundings", "networks")

_FLAT = re.compile(r"([a-z_]+)(?:\.(\d+))?\.parquet")
_PARTITIONED = re.compile(r"part-\d+\.parquet")
_LONGEST = 255  # bytes in the name of a folder


def table_files(folder: Path, table: str) -> list[Path]:
    """Files of a machine's table: partitioned ones, the compacted one, then the parts by number."""
    return [*partitioned(folder, table), *unpartitioned(folder, table)]


def unpartitioned(folder: Path, table: str) -> list[Path]:
    """Returns files of a table in ``folder`` itself, the compacted one first."""
    found = [_FLAT.fullmatch(path.name) for path in folder.glob(f"{table}*.parquet")]
    parts = sorted((int(one[2] or -1), one[0]) for one in found if one and one[1] == table)
    return [folder / name for _, name in parts]


def partitioned(folder: Path, table: str) -> list[Path]:
    """Returns files of a table among the partitions beside ``folder``."""
    root = folder.parent / table
    if table not in CONTENT:
        root = root / _hive("machine", folder.name)
    pattern = (
        "target=*/part-*.parquet" if "target" in schema.column_names(table) else "part-*.parquet"
    )
    return sorted(path for path in root.glob(pattern) if _PARTITIONED.fullmatch(path.name))


def partition(folder: Path, table: str, target: str | None) -> Path:
    """Returns the file of a machine's partition; ``target`` counts where the table has that column.

    Errors: StoreError for a target text that is too long for the name of a folder.
    """
    place = folder.parent / table
    if table not in CONTENT:
        place = place / _hive("machine", folder.name)
    if target is not None and "target" in schema.column_names(table):
        place = place / _hive("target", target)
    return place / "part-0.parquet"


def columns_of_path(path: Path) -> dict[str, str]:
    """Returns columns that a file's path says, instead of the file: none for unpartitioned ones."""
    if not _PARTITIONED.fullmatch(path.name):
        return {}
    pairs = [folder.split("=", 1) for folder in path.parts[-3:-1] if "=" in folder]
    return {name: unquote(value) for name, value in pairs if name in ("machine", "target")}


def is_partitioned(root: Path) -> bool:
    """Returns whether tables in ``root`` are partitioned by machine."""
    return any(
        next((root / table).glob("machine=*"), None) is not None
        for table in schema.TABLES
        if (root / table).is_dir()
    )


def machine_folders(path: Path) -> list[Path]:
    """Returns ``path`` and what is under it as folders of one machine each, sorted.

    Of partitioned tables the folders need not exist. Errors: StoreError if there's no such path.
    """
    if not path.is_dir() and not is_partitioned(path.parent):
        raise StoreError(f"path={path}: there is no such folder; check the name")
    tables = (table for table in schema.TABLES if table not in CONTENT)
    # the path itself, where it is a machine of a partitioned store
    found = {path} if any(partitioned(path, table) for table in tables) else set()
    for place, folders, names in os.walk(path):
        # what Git and others keep for themselves is not a store
        folders[:] = [name for name in folders if not name.startswith(".")]
        here = Path(place)
        if any((match := _FLAT.fullmatch(name)) and match[1] in schema.TABLES for name in names):
            found.add(here)
        elif any(_PARTITIONED.fullmatch(name) for name in names):
            up = here.parent if here.name.startswith("target=") else here
            if up.name.startswith("machine=") and up.parent.name in schema.TABLES:
                found.add(up.parent.parent / unquote(up.name.removeprefix("machine=")))
    return sorted({folder.resolve() for folder in found})


def _hive(column: str, value: str) -> str:
    """A folder's name as Hive, Arrow, DuckDB and polars read it: all but letters escaped."""
    name = f"{column}={quote(value, safe='')}"
    if len(name) > _LONGEST:
        why = f"as the name of a folder it has {len(name)} bytes, more than {_LONGEST}"
        raise StoreError(f"{column}={value}: {why}; merge without --partitioned")
    return name
