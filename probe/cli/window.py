"""``probe window``: which input every output reads with which weight, read off the target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from probe.cli.options import (
    Words,
    ask_for,
    case_of,
    case_options,
    fail_on_option,
    output_options,
    target_option,
    targets_of,
)

if TYPE_CHECKING:
    import numpy as np

    from probe.case import Case
    from probe.cli.output import Output


@click.command(cls=Words, short_help="Which inputs every output reads.")
@case_options
@target_option()
@fail_on_option(finding="a window is not where the padding says")
@output_options
def window(words: dict[str, str], target: str, fail_on: str | None, out: Output) -> int:
    """Reveals which inputs every output reads, and compares that with the case's padding.

    Give the length with --length. With --json, `reads` has for every product the flat index into x
    (of shape `input_shape`), null where it meets padding; of the filters of a group the first is
    shown, all read alike.
    """
    from probe.cli.show import windows
    from probe.explain.conventions import predicted
    from probe.launch import open_session
    from probe.order.masks import SessionOperator
    from probe.order.orders import require_length
    from probe.order.windows import reveal_windows

    ask_for(words, length=("length" in words or "case_file" in words, "--length N"))
    case = require_length(case_of(words))
    (where,) = targets_of((target,))
    with out.working(f"reading windows of {where.text}"), open_session(where) as session:
        revealed = reveal_windows(SessionOperator(session, case))
    same = (revealed == predicted(case)).all(axis=2)
    found = _report(case, where.text, revealed, same) if out.as_json else {}
    out.give(found, lambda: windows.windows(case, where.text, revealed, same))
    return int(bool(fail_on) and not same.all())


def _report(case: Case, target: str, revealed: np.ndarray, same: np.ndarray) -> dict[str, Any]:
    """What ``--json`` prints: one entry of ``windows`` for every group and output position."""
    import numpy as np

    width, shape = case.filters // case.groups, case.output_shape()[:-1]
    return {
        "case": case.to_json(),
        "target": target,
        "input_shape": list(case.input_shape()),
        "output_shape": list(case.output_shape()),
        "windows_read": int(same.size),
        "as_predicted": int(same.sum()),
        "windows": [
            {
                "filter": group * width,
                "output": [int(i) for i in np.unravel_index(position, shape)],
                "reads": [None if i < 0 else i for i in revealed[group, position].tolist()],
                "as_predicted": bool(same[group, position]),
            }
            for group in range(case.groups)
            for position in range(revealed.shape[1])
        ],
    }
