"""Command ``probe run``: ``experiments/NAME.py`` of a checkout, then ``notebooks/NAME.ipynb``."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from probe.cli.options import PATH, Words, option, output_options
from probe.errors import INTERRUPTED, InputError, ProbeError

if TYPE_CHECKING:
    from probe.printing import Output


def checkout(name: str) -> Path:
    """Returns the folder with ``experiments/NAME.py``.
    InputError says which experiments there are."""
    there: list[str] = []
    here = Path.cwd()
    for root in (here, *here.parents, Path(__file__).resolve().parents[2]):
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


def run_experiment(root: Path, name: str, arguments: Sequence[str], quiet: bool) -> int:
    """Runs an experiment's script; its exit status. ``quiet``: what it prints goes to stderr."""
    command = [sys.executable, str(root / "experiments" / f"{name}.py"), *arguments]
    stdout = sys.stderr if quiet else None
    process = subprocess.Popen(command, cwd=root, stdout=stdout, env=os.environ)
    while True:
        try:
            return process.wait()
        except KeyboardInterrupt:
            continue  # the script has it too: it stores what it has and prints its summary


def execute_notebook(notebook: Path, to: Path | None = None, store: str | None = None) -> None:
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
        # IPython colours its tracebacks; a message is one line of plain text
        plain = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
        last = [line for line in plain.splitlines() if line.strip()][-1:]
        told = f"{notebook.name}: a cell fails: {''.join(last)}"
        raise ProbeError(f"notebook={told}; open it and run it cell by cell") from None
    finally:
        signal.signal(signal.SIGINT, before)  # nbclient leaves a handler of its own
    # a notebook that is being written when somebody interrupts stays as it was
    partial = to.with_suffix(".ipynb.tmp")
    nbformat.write(book, partial)
    partial.replace(to)


def from_here(path: Path) -> str:
    """Returns a path as it reads from this folder."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


@click.command(cls=Words, short_help="Run an experiment and its notebook.")
@click.argument("name")
@click.argument("arguments", nargs=-1)
@option("--no-notebook", None, "Run the script only.", is_flag=True)
@option(
    *("--out folder", "DIR", "Write results and notebook into DIR; the checkout is not changed."),
    type=PATH,
)
@output_options
def run(
    name: str, arguments: tuple[str, ...], no_notebook: bool, folder: Path | None, out: Output
) -> int:
    """Runs experiments/NAME.py, which writes results/NAME, then notebooks/NAME.ipynb in place.

    It looks for the folder `experiments` here and in the parent folders, then in probe's own
    checkout. With --out DIR the checkout is not changed: results go to DIR/NAME, the executed
    notebook to DIR/NAME.ipynb. ARGUMENTS after -- go to the script.
    """
    root, start = checkout(name), time.monotonic()
    own = root / "notebooks" / f"{name}.ipynb"
    store, notebook = root / "results" / name, own
    if folder is not None:
        store, notebook = folder.resolve() / name, folder.resolve() / own.name
        arguments = ("--store", str(store), *arguments)
    status = run_experiment(root, name, arguments, quiet=out.as_json)
    if "--help" in arguments:  # the script said what its options are, and measured nothing
        return status
    ran = own.is_file() and not status and not no_notebook
    if ran:
        with out.working(f"executing {notebook.name}"):
            execute_notebook(own, notebook, None if folder is None else name)
    elif not status and not no_notebook:
        out.note(f"notebooks/{name}.ipynb does not exist, so no notebook was executed")
    found = {
        "experiment": name,
        "status": status,
        "results": from_here(store),
        "notebook": from_here(notebook) if ran else None,
        "seconds": round(time.monotonic() - start, 1),
    }
    if not status or out.as_json:
        pictures = f"\npictures in {found['notebook']}" if ran else ""
        out.give(found, lambda: f"results in {found['results']}{pictures}")
    # Popen gives the negative signal, a shell in between 128 and the signal: SIGINT is 2
    return INTERRUPTED if status in (-2, 128 + 2) else abs(status)
