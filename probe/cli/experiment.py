"""``probe run``: an experiment's script, then the notebook of its name, executed in place."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from probe.cli.options import Words, output_options
from probe.cli.shell import INTERRUPTED

if TYPE_CHECKING:
    from probe.cli.output import Output


OUT = "Write results and notebook there, and leave the checkout as it is."


@click.command(cls=Words, short_help="Run an experiment and its notebook.")
@click.argument("name")
@click.argument("arguments", nargs=-1)
@click.option("--no-notebook", is_flag=True, help="Run the script only.")
@click.option("--out", "folder", metavar="DIR", type=click.Path(path_type=Path), help=OUT)
@output_options
def run(
    name: str, arguments: tuple[str, ...], no_notebook: bool, folder: Path | None, out: Output
) -> int:
    """Runs experiments/NAME.py, which writes results/NAME, then notebooks/NAME.ipynb in place.

    Looks for the experiments folder here and above, then in probe's own checkout. With --out DIR
    the checkout stays as it is: DIR/NAME gets the results, DIR/NAME.ipynb the executed notebook.
    ARGUMENTS after -- go to the script.
    """
    from probe.cli.show import facts

    root, start = checkout(name), time.monotonic()
    own = root / "notebooks" / f"{name}.ipynb"
    store, notebook = root / "results" / name, own
    if folder is not None:
        store, notebook = folder.resolve() / name, folder.resolve() / own.name
        arguments = ("--store", str(store), *arguments)
    status = _script(root, name, arguments, out)
    ran = own.is_file() and not status and not no_notebook
    if ran:
        with out.working(f"executing {notebook.name}"):
            execute(own, notebook, None if folder is None else name)
    elif not status and not no_notebook:
        out.note(f"there is no notebooks/{name}.ipynb to execute")
    found = {
        "experiment": name,
        "status": status,
        "results": _shown(store),
        "notebook": _shown(notebook) if ran else None,
        "seconds": round(time.monotonic() - start, 1),
    }
    if not status or out.as_json:
        out.give(found, lambda: facts.experiment(found))
    return INTERRUPTED if status in (-2, 128 + 2) else abs(status)


def checkout(name: str) -> Path:
    """The folder with ``experiments/NAME.py``. InputError says which experiments there are."""
    from probe.errors import InputError

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


def _script(root: Path, name: str, arguments: tuple[str, ...], out: Output) -> int:
    """The script's exit status; with ``--json`` what it prints goes to stderr."""
    command = [sys.executable, str(root / "experiments" / f"{name}.py"), *arguments]
    stdout = sys.stderr if out.as_json else None
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

    from probe.errors import ProbeError

    book: Any = nbformat.read(notebook, as_version=4)
    to = to or notebook
    if store is not None:
        (cell,) = (one for one in book.cells if "parameters" in one.metadata.get("tags", []))
        cell.source = f"STORE = {store!r}"
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


def _shown(path: Path) -> str:
    """A path as it reads from here."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
