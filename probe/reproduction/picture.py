"""``order.png``: one differing output as it is added on both sides."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from probe import floats, plots
from probe.explain.evidence import Added, Evidence
from probe.order.summation import Summation
from probe.plots import trees

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
    assert all(side.summation is not None for _, side in sides)
    leaves = max(len(side.summation.tree.leaves) for _, side in sides if side.summation)
    made = Figure(figsize=(min(max(9.0, 1.5 * leaves), 22.0), 4.6), layout="constrained", dpi=120)
    for axes, (name, side), words in zip(made.subplots(1, 2), sides, said, strict=True):
        assert side.summation is not None
        if leaves <= DRAWN:
            texts = {
                one.node: floats.text(one.bits, one.format).partition(" ")[0] for one in side.sums
            }
            trees.draw(axes, side.summation, texts if leaves <= 12 else None, side.own, _kept(side))
        else:
            trees.draw_accumulators(axes, side.summation.tree)
        formats = ", ".join(side.summation.formats(side.dtype))
        title = [f"{name}: {words}", _result(side), *[formats] * bool(formats)]
        axes.set_title("\n".join(title), fontsize=11)
    if leaves <= DRAWN:
        if leaves > 1:
            told = "red: sums that the other side does not have"
            made.suptitle(told, fontsize=9, color=plots.DIFFERS)
        trees.kinds_legend(made, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return made


def summations(shown: Sequence[tuple[Summation, str]]) -> Figure:
    """Summations side by side, each with its title; long sums as the lanes they are kept in."""
    leaves = max(len(each.tree.leaves) for each, _ in shown)
    width = min(max(4.5, 0.5 * leaves), 11.0) * len(shown)
    made = Figure(figsize=(width, 4.6), layout="constrained", dpi=120)
    for axes, (each, title) in zip(
        made.subplots(1, len(shown), squeeze=False)[0], shown, strict=True
    ):
        if len(each.tree.leaves) <= DRAWN:
            trees.draw(axes, each)
        else:
            trees.draw_accumulators(axes, each.tree)
        axes.set_title(title, fontsize=11)
    if leaves <= DRAWN:
        trees.kinds_legend(made, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    return made


def _kept(side: Added) -> str | None:
    """The dtype, where partial sums are wider: those that are rounded to it are marked."""
    assert side.summation is not None
    return side.dtype if side.summation.wider(side.dtype) else None


def _result(side: Added) -> str:
    return f"out{list(side.output)} = {floats.text(side.library, side.dtype)}"
