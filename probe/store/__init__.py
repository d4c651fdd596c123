"""Measurements on disk: rows are buffered, written atomically, merged by key and read as frames.

``folder`` checks rows and writes the tables of one machine, ``results`` reads those of several,
``parquet`` reads and writes files and says which of two rows counts.
"""

from probe.store.folder import Store, merge
from probe.store.results import load

__all__ = ["Store", "load", "merge"]
