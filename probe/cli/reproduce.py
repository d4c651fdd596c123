"""``probe reproduce`` and ``probe verify``: the folder for a bug report, written and run again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from probe.cli.findings import budget_options, finding_of, finding_options
from probe.cli.options import (
    Words,
    case_options,
    fail_on_option,
    number,
    output_options,
    target_option,
    targets_of,
    trust_option,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from probe.cli.output import Output
    from probe.reproduction.content import Elsewhere
    from probe.reproduction.folder import Reproduction
    from probe.shrink import Finding
    from probe.target import Target


@click.command(cls=Words, short_help="The folder to attach to a bug report.")
@case_options
@target_option()
@finding_options
@budget_options
@click.option(
    "--out",
    "folder",
    metavar="DIR",
    required=True,
    type=click.Path(path_type=Path),
    help="The folder to write; it is made.",
)
@click.option("--force", is_flag=True, help="Write into DIR though it has files.")
@click.option(
    "--no-avoid",
    "avoid",
    is_flag=True,
    default=True,
    flag_value=False,
    help="Don't try which switches and lengths avoid it; each switch starts the library.",
)
@click.option(
    "--from",
    "store",
    metavar="STORE",
    type=click.Path(path_type=Path),
    help="Take the finding from a store: the worst one, or --row N.",
)
@click.option("--row", metavar="N", help="With --from: the row of `comparisons`, from 0.")
@click.option(
    "--network",
    metavar="MODEL",
    help="A network, read as a chain of layers as probe network does, instead of a case: "
    "--length N is its content, --at its padded length (the least if not given), --against the "
    "fixed one (the model's own).",
)
@trust_option
@click.option("--keep", is_flag=True, help="No shrinking: the case and its operands as they are.")
@click.option("--form", metavar="NAME", help="Whose bug form; the target's own if not given.")
@click.option(
    "--also",
    metavar="T",
    multiple=True,
    help="Another target to ask about the smallest case, for the report; may be given again.",
)
@click.option(
    "--times",
    metavar="N",
    default="3",
    show_default=True,
    help="Fresh processes in which the script must say the same.",
)
@click.option(
    "--kernels",
    metavar="WHICH",
    default="all",
    show_default=True,
    help="Kernels that the report names. said: what the library reports of itself; all: also "
    "symbols sampled while it runs; none. Each source starts the target again.",
)
@output_options
def reproduce(
    words: dict[str, str],
    target: str,
    sides: dict[str, str | None],
    by: str,
    most: str,
    folder: Path,
    force: bool,
    avoid: bool,
    store: Path | None,
    row: str | None,
    network: str | None,
    trust: bool,
    keep: bool,
    form: str | None,
    also: tuple[str, ...],
    times: str,
    kernels: str,
    any_cause: bool,
    out: Output,
) -> None:
    """Shrinks a finding, explains it, proves a script of it in fresh processes, and writes it.

    DIR gets report.md (after the upstream's bug form, the shortest script first), and to attach to
    it reproduce.py (the library and NumPy alone), machine.json, and of sums order.png and
    emulated.py (NumPy alone). Nothing is written unless the script says the same every time.
    """
    from probe.answers.reproduce import written
    from probe.cli.show import reproductions as show
    from probe.explain.runs import checked
    from probe.reproduction import folder as room
    from probe.reproduction.report import form_of

    checked(kernels)
    room.fresh(folder, force)
    count, asked = number("times", times) or 1, targets_of(also) if also else []
    if network is not None:
        made = _network(network, words, target, sides, (count, trust), out)
        report = written(made, folder, form, kernels).report()
        return out.give(report, lambda: show.reproduced(report))
    finding, (left, right), others = _finding(words, target, sides, store, row)
    form_of(left, form)
    with out.working(f"reproducing {finding.label}"):
        made = room.reproduce(
            finding,
            left,
            right,
            by=by,
            keep=keep,
            any_cause=any_cause,
            avoid=avoid,
            most=number("most", most) or 0,
            times=count,
            elsewhere=others,
            also=asked,
        )
        report = written(made, folder, form, kernels).report()
    return out.give(report, lambda: show.reproduced(report))


def _network(
    model: str,
    words: dict[str, str],
    target: str,
    sides: dict[str, str | None],
    asked: tuple[int, bool],
    out: Output,
) -> Reproduction:
    """A network's reproduction. Raises InputError for words that a network has none of."""
    from probe.arguments import count, sizes
    from probe.errors import InputError
    from probe.network import Network
    from probe.reproduction import networks

    times, trust = asked
    for name, value in {**words, **sides}.items():
        known = ("length", "seed", "height", "at", "against", "vary")
        if value is not None and name not in known:
            raise InputError(name, value, "a network has none", "leave it out, or --network")
    if "length" not in words:
        raise InputError("length", None, "how long is the content?", "give --length N")
    height = words.get("height")
    given = None if height is None else sizes("height", height, height.count("x") + 1)
    (where,) = targets_of((target,))
    with out.working(f"reproducing {model} on {where.text}"):
        return networks.reproduce(
            Network.load(model, given, trust),
            count("length", words["length"]),
            where,
            number("against", sides["against"]),
            number("at", sides["at"]),
            seed=count("seed", words.get("seed", 0), least=0),
            times=times,
        )


def _finding(
    words: dict[str, str],
    target: str,
    sides: dict[str, str | None],
    store: Path | None,
    row: str | None,
) -> tuple[Finding, tuple[Target, Target], Sequence[Elsewhere]]:
    """What is reproduced, and who else has it. Raises InputError, StoreError."""
    from probe.arguments import count
    from probe.errors import InputError

    if store is None:
        if row is not None:
            raise InputError("row", row, "a row of which store?", "give --from STORE too")
        return (*finding_of(words, target, sides), ())
    given = [name for name, value in sides.items() if value is not None and name != "vary"]
    if words or given:
        why = "a store has its own cases, targets and lengths"
        raise InputError("from", store, why, "leave out the other options, or --from")
    from probe.reproduction.stored import finding

    found = finding(store, None if row is None else count("row", row, least=0))
    return found.finding, (found.target, found.target), found.elsewhere


@click.command(cls=Words, short_help="Whether a written reproduction is still there.")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--times", metavar="N", default="3", show_default=True, help="Fresh processes.")
@fail_on_option(there="it is still there", gone="it is gone")
@output_options
def verify(folder: Path, times: str, fail_on: str | None, out: Output) -> int:
    """Runs the script of a reproduction again: still there, gone, or can't tell (status 3)."""
    from probe.cli.show import reproductions as show
    from probe.reproduction.proof import CANNOT_TELL
    from probe.reproduction.verification import verify as verified

    count = number("times", times) or 1
    with out.working(f"running {folder}"):
        found = verified(folder, count)
    out.give(found.to_json(), lambda: show.verified(found.to_json()))
    if found.verdict == CANNOT_TELL:
        return 3
    return int(fail_on is not None and found.verdict.endswith(fail_on))
