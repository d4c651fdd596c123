"""Quick runs of experiments, and notebooks executed on these results."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import nbformat

from probe.ui.cli.housekeeping import execute_notebook

ROOT = Path(__file__).parents[2]


def pictures(name, store, folder):
    """How many pictures ``notebooks/NAME.ipynb`` draws of a store; a copy is run in ``folder``."""
    path = folder / f"{name}.ipynb"
    execute_notebook(ROOT / "notebooks" / path.name, path, str(store))
    cells = nbformat.read(path, as_version=4).cells
    outputs = [one for cell in cells for one in cell.get("outputs", []) if "data" in one]
    return sum("image/png" in one["data"] for one in outputs)


def ran(name, store):
    """A quick run of ``experiments/NAME.py`` in this process."""
    assert not import_module(name).main(["--quick", "--store", str(store)], standalone_mode=False)
