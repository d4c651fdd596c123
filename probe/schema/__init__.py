"""The columns of every stored table: name, type, unit, meaning, meaning of null, version.

The store, ``results/README.md`` and the notebooks are derived from or checked against this room.
``case_tables`` says what a column is and lists the tables of single cases, ``model_tables`` those
of networks, models and reports; ``format`` has all of them in one format. Importing costs nothing.
"""

from probe.schema.case_tables import NULL_INT, TYPES, Column
from probe.schema.format import (
    ABOUT,
    HISTORY,
    RUN_IDENTITY,
    TABLES,
    VERSION,
    arrow_schema,
    column_names,
    described_schema,
    key_columns,
    readme,
    run_id,
)

__all__ = ["ABOUT", "HISTORY", "NULL_INT", "RUN_IDENTITY", "TABLES", "TYPES", "VERSION"]
__all__ += [
    "Column",
    "arrow_schema",
    "column_names",
    "described_schema",
    "key_columns",
    "readme",
    "run_id",
]
