"""``probe install``: old releases and other processors, each in an environment of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from probe.cli.options import Words, output_options

if TYPE_CHECKING:
    from rich.console import RenderableType

    from probe.cli.output import Output
    from probe.runtimes.environments import Environment


@click.command(cls=Words, short_help="Provide an old release, or another processor.")
@click.argument("target", required=False)
@click.option("--list", "listed", is_flag=True, help="What is installed, and how large it is.")
@click.option("--remove", is_flag=True, help="Take TARGET's environment away.")
@click.option(
    "--sysroot",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="For @arm64: an arm64 root folder with usr/bin/python3.N, instead of Debian's packages.",
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
    from probe.errors import InputError
    from probe.target import Target

    if listed:
        _list(out)
        return
    if target is None:
        todo = "write one such as tensorflow==1.2.1, or --list"
        raise InputError("target", "(none)", "there is nothing to install", todo)
    where = Target.parse(target)
    if remove:
        from probe.installation import remove as removed

        gone = removed(where)
        out.give({"removed": gone.target}, lambda: f"{gone.target} is removed")
        return
    _install(where, sysroot, out)


def _install(where: Any, sysroot: Path | None, out: Output) -> None:
    from probe.installation import install as installed

    with out.progress("install") as tell:
        found = installed(where, tell, sysroot)
    report = {
        "target": where.text,
        "environment": found.environment.name if found.environment else None,
        "already": found.already,
        "seconds": found.seconds,
        **found.facts,
    }
    library = f"{found.facts['library']} {found.facts['library_version']}"
    said = "was there already" if found.already else f"answers, after {found.seconds:g} s"
    text = f"{where.text} {said}: {library}, Python {found.facts['python_version']}"
    out.give(report, lambda: text)


def _list(out: Output) -> None:
    from probe.runtimes.environments import installed

    rows = [_row(one) for one in installed()]
    out.give({"installed": rows}, lambda: _table(rows))


def _row(one: Environment) -> dict[str, Any]:
    facts = {name: one.facts.get(name) for name in ("python_version", "numpy_version")}
    return {"target": one.target, **facts, "bytes": one.size()}


def _table(rows: list[dict[str, Any]]) -> RenderableType:
    from probe.cli.show.facts import table

    if not rows:
        return "nothing is installed; probe install tensorflow==1.2.1 is one to try"
    found = table("target", "Python", "NumPy", "MB", right=("MB",))
    for row in rows:
        size = f"{row['bytes'] / 1e6:.0f}"
        found.add_row(row["target"], row["python_version"], row["numpy_version"], size)
    return found
