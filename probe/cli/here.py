"""Commands about what is here: targets, the machine, environments, stores, experiments."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from probe.cli.options import PATH, Words, fail_on_option, option, output_options
from probe.errors import INTERRUPTED, InputError, TargetError

if TYPE_CHECKING:
    from probe.printing import Output


@click.command(cls=Words)
@output_options
def targets(out: Output) -> None:
    """What can run here, and why the rest can't."""
    from probe import backends
    from probe.cli.show import facts
    from probe.target import available_targets, installed_version

    rows = [
        {
            "target": choice.target.text,
            "available": choice.why is None,
            "why": choice.why,
            "version": choice.target.version or installed_version(backends.get(choice.target.name)),
            "doc": choice.doc,
        }
        for choice in available_targets()
    ]
    out.give({"targets": rows}, lambda: facts.targets(rows))


@click.command(cls=Words, short_help="The facts that are stored with every result.")
@output_options
def machine(out: Output) -> None:
    """The facts that are stored with every result: never a host or user name, never a path."""
    from probe import backends
    from probe import machine as this
    from probe.cli.show import facts
    from probe.target import installed_version

    libraries = {name: installed_version(backends.get(name)) for name in backends.names()}
    found = dict(this.facts()) | {"libraries": libraries}
    out.give(found, lambda: facts.machine(found))


@click.command(cls=Words, short_help="What is here, what is missing, and whether it works.")
@output_options
def doctor(out: Output) -> int:
    """Examines this machine: Python, libraries, old releases, emulators, memory, disk, variables.

    Every library that is here is asked for the order of one small convolution, which is replayed;
    for what is missing it says what it would add, and the command. Exits with 3 if something that
    is here does not work.
    """
    from probe.answers.doctor import examine
    from probe.cli.show import facts

    with out.progress("examine") as tell:
        found = examine(tell=tell)
    out.give(found.to_json(), lambda: facts.examined(found))
    return 0 if found.healthy else TargetError.exit_code


@click.command(cls=Words, short_help="Provide an old release, or another processor.")
@click.argument("target", required=False)
@option("--list listed", None, "What is installed, and how large it is.", is_flag=True)
@option("--remove", None, "Take TARGET's environment away.", is_flag=True)
@option(
    *("--sysroot", "DIR"),
    "For @arm64: an arm64 root folder with usr/bin/python3.N, instead of Debian's packages.",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
)
@output_options
def install(
    target: str | None, listed: bool, remove: bool, sysroot: Path | None, out: Output
) -> None:
    """Makes TARGET, such as tensorflow==1.2.1 or tensorflow@arm64, run here.

    The release gets an environment of its own in the user's cache, made with a Python that is on
    this machine (PATH, pyenv, uv), and has to answer before it counts. Processors are emulated by
    qemu's user mode. Nothing outside the cache is changed.
    """
    from probe import installation
    from probe.cli.show import facts
    from probe.runtimes.environments import installed
    from probe.target import Target

    if listed:
        there = [one.to_json() for one in installed()]
        return out.give({"installed": there}, lambda: facts.environments(there))
    if target is None:
        todo = "write one such as tensorflow==1.2.1, or --list"
        raise InputError("target", "(none)", "there is nothing to install", todo)
    where = Target.parse(target)
    if remove:
        gone = installation.remove(where).target
        return out.give({"removed": gone}, lambda: f"{gone} is removed")
    with out.progress("install") as tell:
        found = installation.install(where, tell, sysroot).to_json()
    return out.give(found, lambda: facts.installed(found))


FOLDERS = click.argument("folders", metavar="DIR...", nargs=-1, required=True, type=PATH)


@click.command(cls=Words, short_help="What stores hold, by machine and target.")
@FOLDERS
@option("--sql", "SELECT", "Answer this query instead: a table of the store is one of the query.")
@fail_on_option(differing="a stored comparison has a difference")
@output_options
def results(folders: tuple[Path, ...], sql: str | None, fail_on: str | None, out: Output) -> int:
    """Sums up stored results, of one machine or of several.

    DIR is an experiment's folder, one machine's folder in it, or results itself. Files that are
    damaged are left out and named; then the exit status is 2.

    \b
      probe results results --sql "SELECT target, max(max_ulp) FROM comparisons GROUP BY target"
    """
    from probe.answers import stored
    from probe.store.results import load
    from probe.store.sql import answered

    there = load(*folders, tolerant=True)
    if sql is not None:
        found = stored.asked(answered(there, sql)) | {"left_out": list(there.left_out.values())}
        out.give(found, lambda: stored.answer(found))
    else:
        found = stored.stored(there)
        out.give(found, lambda: stored.shown(found))
    for why in there.left_out.values():
        click.echo(f"probe: {why}; it is left out here", err=True)
    if there.left_out:
        return InputError.exit_code
    return int(bool(fail_on) and sql is None and found["differing"] > 0)


@click.command(cls=Words, short_help="Make one store of several.")
@FOLDERS
@option(
    *("--out into", "DIR", "The folder to write; it gets a folder for every machine."),
    required=True,
    type=PATH,
)
@option("--partitioned", None, "A folder a table, for DuckDB, polars and pandas.", is_flag=True)
@output_options
def merge(folders: tuple[Path, ...], into: Path, partitioned: bool, out: Output) -> None:
    """Merges stores into one, a folder for every machine; of two equal rows the later counts.

    With --partitioned the rows of a table are DIR/TABLE/machine=.../target=.../part-0.parquet
    instead, which other tools read in one line; every command here reads both.
    """
    from probe.store import merge as merged

    with out.progress("merge") as tell:
        written = [str(folder) for folder in merged(folders, into, partitioned, tell)]
    found = {"out": str(into), "folders": written}
    out.give(found, lambda: "\n".join(f"wrote {folder}" for folder in written))


@click.command(cls=Words, short_help="Run an experiment and its notebook.")
@click.argument("name")
@click.argument("arguments", nargs=-1)
@option("--no-notebook", None, "Run the script only.", is_flag=True)
@option(
    *("--out folder", "DIR", "Write results and notebook there, and leave the checkout as it is."),
    type=PATH,
)
@output_options
def run(
    name: str, arguments: tuple[str, ...], no_notebook: bool, folder: Path | None, out: Output
) -> int:
    """Runs experiments/NAME.py, which writes results/NAME, then notebooks/NAME.ipynb in place.

    Looks for the experiments folder here and above, then in probe's own checkout. With --out DIR
    the checkout stays as it is: DIR/NAME gets the results, DIR/NAME.ipynb the executed notebook.
    ARGUMENTS after -- go to the script.
    """
    from probe.experiments import frame

    root, start = frame.checkout(name), time.monotonic()
    own = root / "notebooks" / f"{name}.ipynb"
    store, notebook = root / "results" / name, own
    if folder is not None:
        store, notebook = folder.resolve() / name, folder.resolve() / own.name
        arguments = ("--store", str(store), *arguments)
    status = frame.run_script(root, name, arguments, quiet=out.as_json)
    ran = own.is_file() and not status and not no_notebook
    if ran:
        with out.working(f"executing {notebook.name}"):
            frame.execute(own, notebook, None if folder is None else name)
    elif not status and not no_notebook:
        out.note(f"there is no notebooks/{name}.ipynb to execute")
    found = {
        "experiment": name,
        "status": status,
        "results": frame.from_here(store),
        "notebook": frame.from_here(notebook) if ran else None,
        "seconds": round(time.monotonic() - start, 1),
    }
    if not status or out.as_json:
        pictures = f"\npictures in {found['notebook']}" if ran else ""
        out.give(found, lambda: f"results in {found['results']}{pictures}")
    return INTERRUPTED if status in (-2, 128 + 2) else abs(status)
