"""Runs an experiment of a checkout: ``experiments/NAME.py``, then ``notebooks/NAME.ipynb``."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from probe.errors import InputError, ProbeError


def checkout(name: str) -> Path:
    """Returns the folder with ``experiments/NAME.py``.
    InputError says which experiments there are."""
    there: list[str] = []
    for root in _roots():
        folder = root / "experiments"
        if (folder / f"{name}.py").is_file() and Path(name).name == name:
            return root
        own = [file.stem for file in folder.glob("*.py") if not file.stem.startswith("_")]
        there = there or own
    if not there:
        why = "experiments are not part of the installed package, and none are here or above"
        raise InputError("experiment", name, why, "run it in a checkout (git clone) of probe")
    todo = f"run one of {', '.join(sorted(there))}"
    raise InputError("experiment", name, "there is no such experiment", todo)


def _roots() -> Iterator[Path]:
    """This folder, those above it, and the checkout that probe is imported from."""
    here = Path.cwd()
    yield from (here, *here.parents)
    yield Path(__file__).resolve().parents[2]


def run_script(root: Path, name: str, arguments: Sequence[str], quiet: bool) -> int:
    """Runs an experiment's script; its exit status. ``quiet``: what it prints goes to stderr."""
    command = [sys.executable, str(root / "experiments" / f"{name}.py"), *arguments]
    stdout = sys.stderr if quiet else None
    process = subprocess.Popen(command, cwd=root, stdout=stdout, env=os.environ)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue  # the script has it too: it stores what it has and prints its summary


def execute(notebook: Path, to: Path | None = None, store: str | None = None) -> None:
    """Executes a notebook in the folder of ``to`` and saves it there (None: where it is).

    ``store`` replaces the folder that it reads, in the cell with the tag ``parameters``.
    ProbeError: a cell fails; nothing is saved then.
    """
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    book: Any = nbformat.read(notebook, as_version=4)
    to = to or notebook
    if store is not None:
        (cell,) = (one for one in book.cells if "parameters" in one.metadata.get("tags", []))
        cell.source = f"STORE = {store!r}"
        # the copy lies elsewhere, and finds the library of notebooks from there
        lib = os.path.relpath(notebook.parent.parent / "experiments", to.parent)
        for cell in book.cells:
            cell.source = cell.source.replace('"../experiments"', repr(lib))
    client = NotebookClient(
        book,
        timeout=600,
        kernel_name="python3",
        record_timing=False,
        extra_arguments=["--IPKernelApp.log_level=ERROR"],
        resources={"metadata": {"path": str(to.parent)}},
    )
    before = signal.getsignal(signal.SIGINT)
    try:
        client.execute()
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        plain = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
        last = [line for line in plain.splitlines() if line.strip()][-1:]
        told = f"{notebook.name}: a cell fails: {''.join(last)}"
        raise ProbeError(f"notebook={told}; open it and run it cell by cell") from None
    finally:
        signal.signal(signal.SIGINT, before)  # nbclient leaves a handler of its own
    partial = to.with_suffix(".ipynb.tmp")
    nbformat.write(book, partial)
    partial.replace(to)


def from_here(path: Path) -> str:
    """Returns a path as it reads from this folder."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
