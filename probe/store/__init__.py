"""Stores measurements: rows are buffered, written atomically, merged by key, read as frames.

``folder`` checks rows and keeps those of one machine, ``merging`` makes one file of many,
``results`` reads the stores of several machines and answers SQL. Below them ``layout`` says where
files are, ``file`` writes one, ``parquet`` says which of two rows counts and what is done already.
"""

from probe.store.folder import Store
from probe.store.merging import merge
from probe.store.results import load

__all__ = ["Store", "load", "merge"]
