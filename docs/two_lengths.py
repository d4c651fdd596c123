"""Draws two_lengths.svg, the README's picture: one convolution at two lengths.

    python docs/two_lengths.py

Asks TensorFlow on this machine: both runs' outputs, the order in which one that differs is added at
either length, and every partial sum.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import probe
from probe.explain.evidence import Added
from probe.explain.runs import CaseRun
from probe.report import plots, trees
from probe.report.plots import DIFFERS

TARGET = "tensorflow,onednn=0,contraction=0"
SHORT, LONG = 9, 19
CASE = probe.Case(
    op="conv2d",
    kernel=(1, 5),
    weights=(-0.7313, -1.1043, 1.8492, 1.3007, -0.1033),
    bias=(0.0401,),
    operands="ramp",
)


def main() -> None:
    """Asks, draws and saves."""
    matplotlib.rcParams["svg.hashsalt"] = "probe"
    plots.style()
    found = probe.explain(CASE, TARGET, SHORT, LONG, kernels="none")
    evidence = found.evidence
    assert evidence is not None, f"{TARGET} gives both lengths the same bits on this machine"
    figure = Figure(figsize=(10, 5.6), layout="constrained")
    above, below = figure.subfigures(2, 1, height_ratios=(1, 2.7))
    strip(above.subplots(), outputs(found.found.left), outputs(found.found.right))
    said = (f"length {SHORT}: one after the other", f"length {LONG}: in pairs")
    for axes, side, words in zip(
        below.subplots(1, 2), (evidence.left, evidence.right), said, strict=True
    ):
        draw(axes, side, words)
    key = "red: partial sums that the other length does not have"
    place = {"loc": "outside lower center", "ncols": 3, "fontsize": 9, "title_fontsize": 10}
    trees.kinds_legend(below, title=key, **place)
    below.legends[0].get_title().set_color(DIFFERS)
    figure.savefig(Path(__file__).with_suffix(".svg"), metadata={"Date": None})


def strip(axes: Axes, short: list[float], long: list[float]) -> None:
    """Draws both runs' outputs, one above the other; those that differ are marked."""
    for row, (values, words) in enumerate(((short, f"length {SHORT}"), (long, f"length {LONG}"))):
        axes.text(-0.6, -row, words, ha="right", va="center")
        for place, value in enumerate(values[: len(short) + 2]):
            there = place < len(short)
            moved = there and short[place] != long[place]
            axes.text(
                *(place, -row, f"{value:.9g}" if there else "..."),
                ha="center",
                va="center",
                color=DIFFERS if moved else "black" if there else "#868e96",
                weight="bold" if moved else "normal",
            )
    axes.set(xlim=(-1.6, len(short) + 0.6), ylim=(-1.6, 0.8))
    axes.set_axis_off()
    axes.set_title(
        "The same inputs, the same weights: one output changes when ten more values are appended"
    )


def draw(axes: Axes, side: Added, words: str) -> None:
    """Draws one side's tree with its partial sums; its result with the last bits."""
    assert side.summation is not None
    texts = {one.node: f"{value(one.bits):.9g}" for one in side.sums}
    trees.draw(axes, side.summation, texts, side.unshared_nodes)
    result = f"{value(side.library):.9g}, which ends in the bits {side.library % 256:08b}"
    axes.set_title(f"{words}\n{result}", fontsize=11)


def value(bits: int) -> float:
    """Returns the float32 number of a bit pattern."""
    return float(np.uint32(bits).view(np.float32))


def outputs(run: CaseRun) -> list[float]:
    """Returns a run's outputs, as TensorFlow gave them."""
    return [float(value) for value in run.operands.y.reshape(-1)]


if __name__ == "__main__":
    main()
