"""Measurements on disk: rows are buffered, written atomically, merged by key and read as frames.

``folder`` writes the tables of one machine, ``results`` reads those of several, ``latest`` says
which of two rows counts, ``rows`` checks rows against the schema, ``parquet`` is one file.
"""

from probe.store.folder import Store, merge
from probe.store.results import load

__all__ = ["Store", "load", "merge"]
