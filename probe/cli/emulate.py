"""``probe emulate``: a run as one Python file that gives its bits again with NumPy alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from probe.cli.options import (
    Words,
    ask_for,
    case_of,
    case_options,
    number,
    output_options,
    target_option,
    targets_of,
)

if TYPE_CHECKING:
    from probe.case import Case
    from probe.cli.output import Output
    from probe.comparison import Pairs, Run
    from probe.target import Target


@click.command(cls=Words, short_help="A run as a file that replays its bits with NumPy alone.")
@case_options
@target_option()
@click.option("--out", "file", metavar="FILE", required=True, type=click.Path(path_type=Path))
@click.option("--against", metavar="B", help="Put the run at this value of the axis in too.")
@click.option("--vary", metavar="AXIS", help="Its axis; length if not given (dense: batch).")
@click.option("--partial", is_flag=True, help="Leave out outputs that do not replay.")
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
    from probe.cli.show import facts
    from probe.reproduction import emulate as room

    ask_for(words, length=("length" in words or "case_file" in words, "--length N"))
    case, (where,) = case_of(words), targets_of((target,))
    other = number("against", against)
    with out.working(f"revealing {case.label} on {where.text}"):
        sides, pairs = _runs(case, where, other, vary)
    room.save(sides, file, pairs=pairs, partial=partial, note=f"{case.label} on {where.text}")
    found: dict[str, Any] = {
        "out": str(file),
        "bytes": file.stat().st_size,
        "runs": [side.named() | {"outputs": side.replays.size} for side in sides],
        "replayed": sum(int(side.replays.sum()) for side in sides),
    }
    out.give(found, lambda: facts.emulated(found))


def _runs(
    case: Case, target: Target, against: int | None, vary: str | None
) -> tuple[list[Run], Pairs | None]:
    """One run, or two with the outputs of theirs that must agree."""
    from probe.comparison import revealed
    from probe.explain import explain
    from probe.launch import open_session
    from probe.order.orders import require_length

    if against is not None:
        found = explain(case, target, None, against, vary=vary)
        return [found.left, found.right], found.pairs
    with open_session(target) as session:
        return [revealed(session, require_length(case))], None
