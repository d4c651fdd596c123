"""What leaves the house: ``probe shrink``, ``reproduce``, ``verify`` and ``emulate``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from probe.cli.options import (
    PATH,
    Sides,
    Words,
    axis_value,
    budget_options,
    case_options,
    fail_on_option,
    finding_of,
    kernels_option,
    number,
    option,
    output_options,
    refuse_beside,
    sides_options,
    sized_case,
    target_option,
    targets_of,
    trust_option,
)
from probe.errors import INTERRUPTED, InputError

if TYPE_CHECKING:
    from probe.comparison import Finding
    from probe.printing import Output
    from probe.reproduction.content import Elsewhere, Reproduction
    from probe.target import Target


@click.command(cls=Words, short_help="The smallest case that still fails.")
@case_options
@target_option()
@sides_options()
@budget_options
@output_options
def shrink(
    words: dict[str, str],
    target: str,
    sides: Sides,
    by: str,
    most: str,
    any_cause: bool,
    out: Output,
) -> int:
    """Reduces a failing case until any further step would make the difference disappear.

    The cause is kept (order, rounding, ...), and the kernels where the library names them. Lengths,
    kernel, channels, filters, batch, stride, dilation, groups and padding become smaller, then the
    operands plainer. Ctrl-C gives the smallest so far.
    """
    from probe.answers.reproduce import shrunk
    from probe.cli.show import reproductions as show

    finding, targets = finding_of(words, target, sides)
    with out.progress("shrink") as tell:
        report = shrunk(finding, targets, by, number("most", most) or 0, any_cause, tell)
    out.give(report, lambda: show.shrunk(report, finding.label))
    return INTERRUPTED if report["ended"] == "interrupted" else 0


AVOID = "Don't try which switches and lengths avoid it; each switch starts the library."
NETWORK = (
    "A network, read as a chain of layers as probe network does, instead of a case: --length N is "
    "its content, --at its padded length (the least if not given), --against the fixed one (the "
    "model's own)."
)
ALSO = "Another target to ask about the smallest case, for the report; may be given again."


@click.command(cls=Words, short_help="The folder to attach to a bug report.")
@case_options
@target_option()
@sides_options()
@budget_options
@option("--out folder", "DIR", "The folder to write; it is made.", required=True, type=PATH)
@option("--force", None, "Write into DIR though it has files.", is_flag=True)
@option("--no-avoid avoid", None, AVOID, is_flag=True, default=True, flag_value=False)
@option(
    *("--from store", "STORE", "Take the finding from a store: the worst one, or --row N."),
    type=PATH,
)
@option("--row", "N", "With --from: the row of `comparisons`, from 0.")
@option("--network", "MODEL", NETWORK)
@trust_option
@option("--keep", None, "No shrinking: the case and its operands as they are.", is_flag=True)
@option("--form", "NAME", "Whose bug form; the target's own if not given.")
@option("--also", "T", ALSO, multiple=True)
@option(
    *("--times", "N", "Fresh processes in which the script must say the same."),
    default="3",
    show_default=True,
)
@kernels_option("all", "Kernels that the report names")
@output_options
def reproduce(
    words: dict[str, str],
    target: str,
    sides: Sides,
    most: str,
    folder: Path,
    force: bool,
    store: Path | None,
    row: str | None,
    network: str | None,
    trust: bool,
    form: str | None,
    also: tuple[str, ...],
    times: str,
    kernels: str,
    out: Output,
    **given: Any,
) -> None:
    """Shrinks a finding, explains it, proves a script of it in fresh processes, and writes it.

    DIR gets report.md (after the upstream's bug form, the shortest script first), and to attach to
    it reproduce.py (the library and NumPy alone), machine.json, and of sums order.png and
    emulated.py (NumPy alone). Nothing is written unless the script says the same every time.
    """
    from probe.answers.reproduce import written
    from probe.cli.show import reproductions as show
    from probe.explain.evidence import checked
    from probe.reproduction import folder as room
    from probe.reproduction.report import form_of

    checked(kernels)
    room.fresh(folder, force)
    count, asked = number("times", times) or 1, targets_of(also) if also else []
    if network is not None:
        made = _network(network, words, target, sides, (count, trust), out)
    else:
        finding, (left, right), others = _finding(words, target, sides, store, row)
        form_of(left, form)
        given |= {"most": number("most", most) or 0, "times": count}
        with out.working(f"reproducing {finding.label}") as tell:
            made = room.reproduce(
                *(finding, left, right),
                elsewhere=others,
                also=asked,
                tell=lambda text: tell(0, 0, text),
                **given,
            )
    report = written(made, folder, form, kernels).report()
    out.give(report, lambda: show.reproduced(report))


def _network(
    model: str,
    words: dict[str, str],
    target: str,
    sides: Sides,
    asked: tuple[int, bool],
    out: Output,
) -> Reproduction:
    """Returns a network's reproduction. Raises InputError for words that a network has none of."""
    from probe.arguments import count, sizes
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
    words: dict[str, str], target: str, sides: Sides, store: Path | None, row: str | None
) -> tuple[Finding, tuple[Target, Target], Sequence[Elsewhere]]:
    """Returns what is reproduced, and who else has it. Raises InputError, StoreError."""
    from probe.arguments import count

    if store is None:
        if row is not None:
            raise InputError("row", row, "a row of which store?", "give --from STORE too")
        return (*finding_of(words, target, sides), ())
    given = any(value is not None for name, value in sides.items() if name != "vary")
    refuse_beside(store, bool(words) or given, "leave out the other options, or --from")
    from probe.reproduction.content import stored_finding

    found = stored_finding(store, None if row is None else count("row", row, least=0))
    return found.finding, (found.target, found.target), found.elsewhere


@click.command(cls=Words, short_help="Whether a written reproduction is still there.")
@click.argument("folder", metavar="DIR", type=PATH)
@option("--times", "N", "Fresh processes.", default="3", show_default=True)
@fail_on_option(there="it is still there", gone="it is gone")
@output_options
def verify(folder: Path, times: str, fail_on: str | None, out: Output) -> int:
    """Runs the script of a reproduction again: still there, gone, or can't tell (status 3)."""
    from probe.cli.show import reproductions as show
    from probe.reproduction.proof import CANNOT_TELL
    from probe.reproduction.proof import verify as verified

    count = number("times", times) or 1
    with out.working(f"running {folder}"):
        found = verified(folder, count)
    out.give(found.to_json(), lambda: show.verified(found.to_json()))
    if found.verdict == CANNOT_TELL:
        return 3
    return int(fail_on is not None and found.verdict.endswith(fail_on))


@click.command(cls=Words, short_help="A run as a file that replays its bits with NumPy alone.")
@case_options
@target_option()
@option("--out file", "FILE", "", required=True, type=PATH)
@option("--against", "B", "Put the run at this value of the axis in too.")
@option("--vary", "AXIS", "Its axis; length if not given (dense: batch).")
@option("--partial", None, "Leave out outputs that do not replay.", is_flag=True)
@output_options
def emulate(
    words: dict[str, str],
    target: str,
    file: Path,
    against: str | None,
    vary: str | None,
    partial: bool,
    out: Output,
) -> None:
    """Reveals a run and writes it as a Python file that gives the same bits on any machine.

    Give the length with --length. With --against the file has both runs, and prints those outputs
    that must agree and don't.
    """
    from probe.answers.reproduce import emulated
    from probe.cli.show import reproductions as show

    case, (where,) = sized_case(words), targets_of((target,))
    other = axis_value("against", against, vary)
    with out.working(f"revealing {case.label} on {where.text}"):
        found = emulated(case, where, file, other, vary, partial)
    out.give(found, lambda: show.emulated(found))
