"""Draws costs.svg, the picture of same_bits_torch.md: what the invariant mode costs, by batch.

    python docs/costs.py

Reads results/invariance, every kind of processor in it; nothing is measured.
"""

from __future__ import annotations

import io
from pathlib import Path

import matplotlib
import pandas as pd
from matplotlib.figure import Figure

import probe
from probe.report import plots

NAMES = {"model1-": "AMD Zen 3", "model17-": "AMD Zen 4", "model207-": "Intel Emerald Rapids"}
ROOT = Path(__file__).resolve().parents[1]
SVG = Path(__file__).with_suffix(".svg")


def ratios() -> pd.DataFrame:
    """Time in the mode over the plain call's: the median of PyTorch's layers and models, by size
    (rows) and machine (columns); of repetitions the shortest counts."""
    stored = probe.load(ROOT / "results" / "invariance")
    targets = stored.runs.set_index("run_id").target
    times = stored.measurements
    times = times[times.run_id.map(targets).astype(str).str.startswith("torch")]
    way, keys = times.variant.str.partition(", ")[0], ["machine", "subject", "variant", "size"]
    threads = times.variant.str.extract(r"(\d+)")[0]
    times = times.assign(way=way, variant=threads).groupby([*keys, "way"]).value.min().unstack()
    ratio = (times.invariant / times.plain).dropna().rename("ratio").reset_index()
    ratio = ratio[ratio.variant == ratio.variant.max()]
    return ratio.pivot_table("ratio", "size", "machine", aggfunc="median")


def figure() -> Figure:
    drawn, (axes,) = plots.panels(1, 1, 7.5, 3.0)
    for name, costs in ratios().items():
        costs = costs.dropna()
        label = next((one for part, one in NAMES.items() if part in str(name)), str(name))
        axes.plot(costs.index, costs, "o-", ms=4, lw=1, label=label)
    axes.axhline(1, color="0.5", lw=1)
    axes.set(xscale="log", xlabel="rows, or samples of the batch", ylabel="times the plain call")
    axes.set_title("PyTorch in the invariant mode: the median layer or model, by processor")
    axes.set_ylim(0)
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.legend(fontsize=8)
    return drawn


def svg() -> str:
    with matplotlib.rc_context():
        plots.style()
        matplotlib.rcParams["svg.hashsalt"] = "probe"  # the same picture is the same file
        written = io.StringIO()
        figure().savefig(written, format="svg", metadata={"Date": None})
    return written.getvalue()


if __name__ == "__main__":
    SVG.write_text(svg())
