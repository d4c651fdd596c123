"""Stores measurements: rows are buffered, written atomically, merged by key, read as frames.

``rows`` checks rows, ``folder`` keeps those of one machine, ``merging`` makes one file of many,
``results`` reads the stores of several machines, ``sql`` answers queries. Below them ``layout``
says where files are, ``file`` reads and writes one, ``parquet`` says which of two rows counts,
``recalled`` what is done already.
"""

from probe.store.folder import Store, merge
from probe.store.results import load

__all__ = ["Store", "load", "merge"]
