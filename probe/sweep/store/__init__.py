"""Stores measurements: rows are buffered, written atomically, merged by key, read as frames.

``folder`` checks rows, writes those of one machine in pieces, and from them a table's one file
(``differences.parquet``); ``results`` reads the stores of several machines and answers SQL. Below
them ``file`` says where files are and writes one, ``parquet`` says which of two rows counts and
what is done already.
"""

from typing import TYPE_CHECKING, Any

from probe.sweep.store.folder import Store, merge

if TYPE_CHECKING:
    from probe.sweep.store.results import load as load

__all__ = ["Store", "load", "merge"]


def __getattr__(name: str) -> Any:
    if name == "load":  # late: what measures reads no frames
        from probe.sweep.store.results import load

        return load
    raise AttributeError(f"probe.sweep.store.{name}: there is no such name")
