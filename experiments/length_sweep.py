"""Which shapes keep their first outputs when the input grows? TensorFlow with its switches.

A grid of one-dimensional convolutions: kernels 1 to 9, up to 256 channels and 64 filters, strides 1
and 2, valid and same padding, lengths to 600. The operands are made to show a changed order
(`cancel`). A quarter of an hour on two processors.

Writes results/length_sweep/<machine>/*.parquet; notebooks/length_sweep.ipynb draws them, by cause
too once `probe explain --from results/length_sweep` has added the causes. Change what you like
below and run it again: what is stored already is not measured twice.
"""

from __future__ import annotations

from pathlib import Path

from rich.text import Text

from lib import frame
from probe import Case, Store, Target
from probe.sweep.bits import TargetSummary, sweep_cases
from probe.sweep.printing import Output, table

KERNELS = (1, 3, 5, 9)
CHANNELS = (1, 3, 16, 64, 256)
FILTERS = (1, 8, 64)
STRIDES = (1, 2)
PADDINGS = ("valid", "same")

LENGTHS = (10, 11, 16, 25, 31, 32, 53, 63, 97, 128, 200, 400, 600)
"""For every kernel K, with K and K + 1 before: tails of packets of 4, 6, 8 and 16, and where a long
trial run saw kernels change. The last one is what the others are compared with."""

TARGETS = """
    tensorflow,threads=1
    tensorflow,threads=2
    tensorflow,isa=avx512_core
    tensorflow,isa=avx2
    tensorflow,isa=sse41
    tensorflow,onednn=0,threads=1
    tensorflow,onednn=0,threads=2
""".split()

COMPILED = "tensorflow,xla=1"
"""XLA compiles every shape anew, so it has a part of the grid: stride 1, valid, up to 8 filters."""

KEEP = 16
"""Differing outputs stored of each comparison; how many there are is counted without limit."""

QUICK = "reference reference,algorithm=pairwise,length_switch=9".split()


def cases(kernel: int) -> list[Case]:
    """Returns the grid at one kernel size."""
    return [
        Case(
            op="conv1d",
            kernel=kernel,
            in_channels=channels,
            filters=filters,
            stride=stride,
            padding=padding,
            operands="cancel",
        )
        for channels in CHANNELS
        for filters in FILTERS
        for stride in STRIDES
        for padding in PADDINGS
    ]


def grid(quick: bool = False) -> list[tuple[list[Case], list[int]]]:
    """Returns the shapes, a kernel size at a time, with their lengths; the last is the longest."""
    if quick:
        small = [case for case in cases(3) if case.in_channels == 3 and case.filters < 64]
        return [(small, [3, 4, 10, 11, 16])]
    return [
        (cases(kernel), sorted({kernel, kernel + 1, *(one for one in LENGTHS if one >= kernel)}))
        for kernel in KERNELS
    ]


def plan(quick: bool) -> list[tuple[list[Case], list[str], list[int]]]:
    """Returns what is swept, a kernel size at a time: cases, targets, lengths."""
    if quick:
        return [(shapes, QUICK, lengths) for shapes, lengths in grid(quick)]
    found = []
    for shapes, lengths in grid():
        plain = [one for one in shapes if one.stride == (1,) and one.padding == "valid"]
        found.append((shapes, TARGETS, lengths))
        found.append(([one for one in plain if one.filters <= 8], [COMPILED], lengths))
    return found


@frame.script
def main(store: Path, quick: bool) -> bool:
    """Measures, stores and prints; whether Ctrl-C ended it."""
    found: dict[str, list[TargetSummary]] = {}
    with Store.here(store) as kept, frame.bar("length sweep") as progress:
        for shapes, texts, lengths in plan(quick):
            part = sweep_cases(
                shapes,
                [Target.parse(text) for text in texts],
                lengths,
                store=kept,
                experiment="length_sweep",
                progress=progress,
                keep=KEEP,
            )
            for name, one in part.targets.items():
                found.setdefault(name, []).append(one)
            if part.interrupted:
                break
    show(found)
    return part.interrupted


def show(found: dict[str, list[TargetSummary]]) -> None:
    """A row a target: how many cases, comparisons and outputs differ."""
    rows = table("target", "cases that differ", "comparisons", "outputs", "failures")
    for name, parts in found.items():
        differences = [one for part in parts for one in part.differences]
        comparisons = sum(part.comparisons for part in parts)
        rows.add_row(
            Text(name, "red" if differences else "green" if comparisons else "yellow"),
            f"{len({one.case_id for one in differences}):,}",
            f"{len(differences):,} of {comparisons:,}",
            f"{sum(one.outputs for one in differences):,}",
            str(sum(len(part.failures) for part in parts)),
        )
    Output().results.print(rows)


if __name__ == "__main__":
    main()
