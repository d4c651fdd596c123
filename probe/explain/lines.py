"""An explanation in three lines, as Python prints it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from probe.explain import Explanation, Side


def told(found: Explanation) -> tuple[str, str, str]:
    """An explanation in three lines: the runs, what differs, why."""
    sides = " against ".join(side_of(found, side) for side in (found.left, found.right))
    far = "" if found.max_ulp is None else f", up to {found.max_ulp:,} ulp"
    differing = len(found.differing)
    counts = f"{differing:,} of {found.compared:,} outputs that must agree differ"
    why = ", ".join(f"{cause}: {count:,}" for cause, count in found.causes.items())
    if not differing:
        why = (
            f"added in another way: {found.by_order:,}" if found.by_order else "nothing to explain"
        )
    refused = {side.refusal for side in (found.left, found.right)} - {""}
    why += "".join(f"; {one}" for one in sorted(refused))
    return (
        f"{found.case.with_(length=None).label}: {sides}",
        counts + far * bool(differing),
        f"{why}; replayed {found.replayed:,} of {found.compared:,}",
    )


def side_of(found: Explanation, side: Side) -> str:
    """One side in words: its target, and what sets its shape apart."""
    other = found.right if side is found.left else found.left
    shapes = [("length", "length"), ("batch", "batch"), ("filters", "filters")]
    apart = [
        f"{word} {getattr(side.case, name):,}"
        for name, word in shapes
        if getattr(side.case, name) != getattr(other.case, name)
    ]
    if not apart and side.case.length is not None:
        apart = [f"length {side.case.length:,}"]
    return f"{', '.join(apart)} on {side.target.text}"
