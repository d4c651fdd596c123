"""``probe targets`` and ``probe machine``: what there is here."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from probe.cli.options import Words, output_options

if TYPE_CHECKING:
    from probe.cli.output import Output


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
