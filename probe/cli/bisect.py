"""``probe bisect``: the first release in which bits, order or stability changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from probe.cli.options import Words, case_of, case_options, output_options

if TYPE_CHECKING:
    from rich.console import RenderableType

    from probe.cli.output import Output

DEFAULT_STORE = Path("results", "bisect")


@click.command(cls=Words, short_help="The first release in which something changed.")
@case_options
@click.option("--between", metavar="T", required=True, help="A release, tensorflow==1.2.1.")
@click.option("--and", "and_", metavar="T", required=True, help="Another one, tensorflow==1.15.0.")
@click.option(
    "--what",
    type=click.Choice(["order", "bits", "stability"]),
    default="order",
    show_default=True,
    help="order: how outputs are added; bits: of all outputs; stability: which lengths differ "
    "from the longest.",
)
@click.option("--lengths", metavar="5..19", help="The kernel's extent and 14 more if not given.")
@click.option("--releases", metavar="1.0,1.1", help="These releases, instead of those known here.")
@click.option("--remove", is_flag=True, help="Take away again what had to be installed.")
@click.option(
    "--store",
    "folder",
    metavar="DIR",
    type=click.Path(path_type=Path),
    default=DEFAULT_STORE,
    show_default=True,
    help="Where every step is kept, in DIR/<machine>.",
)
@output_options
def bisect(
    words: dict[str, str],
    between: str,
    and_: str,
    what: str,
    lengths: str | None,
    releases: str | None,
    remove: bool,
    folder: Path,
    out: Output,
) -> None:
    """Searches the releases between two for the first that shows something else than the first.

    Each release tried is installed if it is missing (see `probe install`). The search assumes that
    what changed changed once, and says where what it met speaks against that.
    """
    from probe.cli import numbers
    from probe.errors import InputError
    from probe.search.bisection import bisect as search
    from probe.store import Store
    from probe.target import Target

    case = case_of(words)
    if not case.spatial_rank:
        raise InputError("op", case.op, "releases are compared by length", "use op=matmul")
    shortest = case.effective_kernel[-1]
    values = numbers.parse("lengths", lengths or f"{shortest}..{shortest + 14}")
    with Store.here(folder) as store:
        found = search(
            *(case, Target.parse(between), Target.parse(and_), values, what, store),
            releases=[one.strip() for one in releases.split(",")] if releases else (),
            keep=not remove,
            tell=out.note,
        )
    report = {"what": what, "case": case.to_json(), "store": str(folder)} | found.to_json()
    out.give(report, lambda: _shown(report))


def _shown(report: dict[str, Any]) -> RenderableType:
    from rich.console import Group

    from probe.cli.show.facts import table

    rows = table("release", "shows", "")
    for step in report["steps"]:
        rows.add_row(step["version"], step["seen"] or "(could not be asked)", _told(step))
    return Group(_answer(report), "", rows)


def _told(step: dict[str, Any]) -> str:
    return str(step["says"] if step["seen"] else step["why"])


def _answer(report: dict[str, Any]) -> str:
    what, count = report["what"], report["installed"]
    if report["first"] is None:
        return f"both ends show the same {what}; what changed in between and back is not seen"
    between = ", or one that could not be asked" if report["skipped"] else ""
    first = f"{what} changed in {report['first']}{between}; {report['last']} is as the first end"
    checked = "what was asked agrees"
    if not report["holds"]:
        checked = "it changed again after that, so search between there and the other end too"
    return f"{first} ({count} installed)\nassumed: {report['assumption']}; {checked}"
