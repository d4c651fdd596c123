"""``order.png``: one differing output as it is added on both sides."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from probe import floats, plots
from probe.explain.evidence import Added, Evidence
from probe.order.orders import Way
from probe.plots import trees
from probe.reproduction.emulate import formats_text

DRAWN = 32
"""Summands up to which a tree is drawn; more of them as running sums."""


def draw(evidence: Evidence, said: tuple[str, str], path: Path) -> None:
    """Writes the picture of :func:`figure`."""
    figure(evidence, said).savefig(path, metadata={"Software": None})


def figure(evidence: Evidence, said: tuple[str, str]) -> Figure:
    """The left side's tree with its partial sums, and the right side's.

    ``said``: what each side is, in words.
    """
    sides = (("left", evidence.left), ("right", evidence.right))
    assert all(side.way is not None for _, side in sides)
    leaves = max(len(side.way[0].leaves) for _, side in sides if side.way)
    made = Figure(figsize=(min(max(9.0, 1.5 * leaves), 22.0), 4.6), layout="constrained", dpi=120)
    for axes, (name, side), words in zip(made.subplots(1, 2), sides, said, strict=True):
        assert side.way is not None
        if leaves <= DRAWN:
            texts = {
                one.node: floats.text(one.bits, one.format).partition(" ")[0] for one in side.sums
            }
            trees.draw(axes, side.way, texts if leaves <= 12 else None, side.own, _kept(side))
        else:
            trees.draw_accumulators(axes, side.way[0])
        formats = ", ".join(formats_text(side.way, side.dtype))
        title = [f"{name}: {words}", _result(side), *[formats] * bool(formats)]
        axes.set_title("\n".join(title), fontsize=11)
    if leaves <= DRAWN:
        if leaves > 1:
            told = "red: sums that the other side does not have"
            made.suptitle(told, fontsize=9, color=plots.DIFFERS)
        trees.kinds_legend(made, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return made


def ways(shown: Sequence[tuple[Way, str]]) -> Figure:
    """Ways of adding side by side, each with its title; long sums as the lanes they are kept in."""
    leaves = max(len(way[0].leaves) for way, _ in shown)
    width = min(max(4.5, 0.5 * leaves), 11.0) * len(shown)
    made = Figure(figsize=(width, 4.6), layout="constrained", dpi=120)
    for axes, (way, title) in zip(
        made.subplots(1, len(shown), squeeze=False)[0], shown, strict=True
    ):
        if len(way[0].leaves) <= DRAWN:
            trees.draw(axes, way)
        else:
            trees.draw_accumulators(axes, way[0])
        axes.set_title(title, fontsize=11)
    if leaves <= DRAWN:
        trees.kinds_legend(made, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return made


def _kept(side: Added) -> str | None:
    """The dtype where partial sums are kept wider than it, so that those cut to it are marked."""
    assert side.way is not None
    wider = side.way[1].nodes not in (None, side.dtype)
    return side.dtype if wider else None


def _result(side: Added) -> str:
    return f"out{list(side.output)} = {floats.text(side.library, side.dtype)}"
