"""Commands about what is here: targets, the machine, environments, stores, experiments."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from probe.cli.options import PATH, Words, fail_on_option, option, output_options
from probe.errors import InputError, TargetError

if TYPE_CHECKING:
    from probe.printing import Output


@click.command(cls=Words)
@output_options
def targets(out: Output) -> None:
    """Lists the targets that can run here, and why the others can't."""
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


@click.command(cls=Words, short_help="Print the facts that are stored with every result.")
@output_options
def machine(out: Output) -> None:
    """Prints the facts that are stored with every result: never a host or user name, nor a path."""
    from probe import backends
    from probe import machine as this
    from probe.cli.show import facts
    from probe.target import installed_version

    libraries = {name: installed_version(backends.get(name)) for name in backends.known_backends()}
    found = dict(this.facts()) | {"libraries": libraries}
    out.give(found, lambda: facts.machine(found))


@click.command(cls=Words, short_help="Check what is installed, what is missing, and what works.")
@option("--time limit", "2m", "Start no further library after 2m (90s, 1h30m).")
@output_options
def doctor(limit: str | None, out: Output) -> int:
    """Examines this machine: Python, libraries, old releases, emulators, memory, disk, variables.

    For every installed library it reveals and replays the order of one small convolution. For each
    missing part it says what the part would add and the command that installs it. Exits with
    status 3 if an installed part does not work.
    """
    from probe.answers.doctor import examine_machine
    from probe.budget import within
    from probe.cli.show import facts

    with within(limit), out.progress("examine") as tell:
        found = examine_machine(tell=tell)
    out.give(found.to_json(), lambda: facts.examined(found))
    return 0 if found.healthy else TargetError.exit_code


@click.command(cls=Words, short_help="Install an old release, or an emulated processor.")
@click.argument("target", required=False)
@option("--list listed", None, "List what is installed, and its size.", is_flag=True)
@option("--remove", None, "Remove TARGET's environment.", is_flag=True)
@option(
    *("--sysroot", "DIR"),
    "For @arm64: an arm64 root folder with usr/bin/python3.N, instead of Debian's packages.",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
)
@output_options
def install(
    target: str | None, listed: bool, remove: bool, sysroot: Path | None, out: Output
) -> None:
    """Installs TARGET, such as tensorflow==1.2.1 or tensorflow@arm64, so that it can run here.

    A release gets its own environment in the user's cache, made with a Python of this machine
    (PATH, pyenv, uv), and must pass a test run. Processors are emulated by qemu's user mode.
    Nothing outside the cache is changed.
    """
    from probe import installation
    from probe.cli.show import facts
    from probe.runtimes.environments import installed_environments
    from probe.target import Target

    if listed:
        there = [one.to_json() for one in installed_environments()]
        return out.give({"installed": there}, lambda: facts.environments(there))
    if target is None:
        todo = "name one such as tensorflow==1.2.1, or give --list"
        raise InputError("target", "(none)", "there is nothing to install", todo)
    where = Target.parse(target)
    if remove:
        gone = installation.remove_installed(where).target
        return out.give({"removed": gone}, lambda: f"{gone} is removed")
    with out.progress("install") as tell:
        found = installation.install_target(where, tell, sysroot).to_json()
    return out.give(found, lambda: facts.installed_target(found))


FOLDERS = click.argument("folders", metavar="DIR...", nargs=-1, required=True, type=PATH)


@click.command(cls=Words, short_help="Summarise stored results, by machine and target.")
@FOLDERS
@option("--sql", "SELECT", "Run this query instead; it sees the tables of the store.")
@fail_on_option(differing="a stored comparison has a difference")
@output_options
def results(folders: tuple[Path, ...], sql: str | None, out: Output) -> int:
    """Summarises stored results of one machine or of several.

    DIR is an experiment's folder, one machine's folder in it, or `results` itself. Damaged files
    are left out and named, lost files of differences are noticed, and the exit status is then 2.

    \b
      probe results results --sql "SELECT target, max(max_ulp) FROM comparisons GROUP BY target"
    """
    from probe.answers import stored
    from probe.cli.show import stored as show
    from probe.store.results import load

    # a summary of what can be read is worth more than none; what was left out decides the status
    there = load(*folders, tolerant=True)
    missing: list[str] = []
    if sql is not None:
        found = stored.query_json(there.answered(sql)[0]) | {
            "left_out": list(there.left_out.values())
        }
        out.give(found, lambda: show.query_answer(found))
    else:
        found = stored.summary_of_stores(there)
        missing = found["missing"]
        out.give(found, lambda: show.stores(found))
    for why in there.left_out.values():
        click.echo(f"probe: {why}; this file is left out", err=True)
    for why in missing:
        click.echo(f"probe: {why}", err=True)
    if there.left_out or missing:
        return InputError.exit_code
    return out.status(sql is None and found["differing"] > 0)


@click.command(cls=Words, short_help="Merge several stores into one.")
@FOLDERS
@option(
    *("--out into", "DIR", "The folder to write."),
    required=True,
    type=PATH,
)
@option(
    "--partitioned",
    None,
    "Make one folder for each table, for DuckDB, polars, pandas.",
    is_flag=True,
)
@output_options
def merge(folders: tuple[Path, ...], into: Path, partitioned: bool, out: Output) -> None:
    """Merges several stores into one.

    The merged store has one folder for each machine. Of two rows with the same key the later one
    is kept. With --partitioned the files are DIR/TABLE/machine=.../target=.../part-0.parquet
    instead, which other tools read in one line. Every probe command reads both layouts.
    """
    from probe.store import merge as merged

    with out.progress("merge") as tell:
        written = [str(folder) for folder in merged(folders, into, partitioned, tell)]
    found = {"out": str(into), "folders": written}
    out.give(found, lambda: "\n".join(f"wrote {folder}" for folder in written))
