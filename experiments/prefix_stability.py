"""Repeats the report that started probe: the first outputs change when a value is appended.

A 1x5 convolution over 10 * arange(T), T = 5 to 64, with the report's weights and bias, on every
target of this machine, next to the same sums done by hand; then with SAME padding, and over a
small grid of channels and filters, because the case as it was published is not where today's
defaults show it. Every length is compared with the longest, output by output.

Writes results/prefix_stability/<machine>/*.parquet; notebooks/prefix_stability.ipynb draws them.
Change what you like below and run it again: what is stored already is not measured twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.text import Text

from lib import frame
from lib.frame import REPORT
from probe import Case, Store, Target
from probe.sweep.bits import sweep_cases
from probe.sweep.printing import Output, table
from probe.sweep.summary import DifferingRun, Summary, TargetSummary

SAME = REPORT.with_(padding="same")

GRID = [
    Case(op="conv2d", kernel="1x5", in_channels=channels, filters=filters, operands=kind)
    for kind in ("normal", "cancel")  # what users have; what shows nearly every changed order
    for channels in (1, 16, 64, 256)
    for filters in (1, 8)
]

LENGTHS = range(5, 65)
PUBLISHED = (7, 8, 9)
"""Lengths whose outputs were published: their bits are stored whole."""

TARGETS = """
    tensorflow
    tensorflow,mode=graph
    tensorflow,xla=1
    tensorflow,threads=1
    tensorflow,isa=avx512_core
    tensorflow,isa=avx2
    tensorflow,isa=sse41
    tensorflow,onednn=0
    tensorflow,onednn=0,threads=1
    tensorflow,onednn=0,contraction=0
    tensorflow@gpu:0
    keras
    keras,onednn=0
    torch
    jax
    onnxruntime
    litert
    opencv
    tensorflow,algorithm=elementwise
    reference
""".split()
"""``algorithm=elementwise``: the product and sum by hand, with tf.multiply and tf.add. What this
machine lacks is stored and shown with the reason."""

QUICK = "reference reference,algorithm=pairwise,length_switch=9".split()


@frame.script
def main(store: Path, quick: bool) -> bool:
    """Measures, stores and prints; whether Ctrl-C ended it."""
    cases = [REPORT, SAME, GRID[0], GRID[8]] if quick else [REPORT, SAME, *GRID]
    targets = [Target.parse(text) for text in (QUICK if quick else TARGETS)]
    lengths = range(5, 16) if quick else LENGTHS
    with Store.here(store) as kept, frame.bar("prefix stability") as progress:
        found = sweep_cases(
            cases,
            targets,
            lengths,
            store=kept,
            experiment="prefix_stability",
            progress=progress,
            whole={REPORT: PUBLISHED},
        )
    show(found, lengths)
    return found.interrupted


def show(found: Summary, lengths: Sequence[int]) -> None:
    """A row a target: the report's case, the grid, and from which length on nothing differs."""
    rows = table("target", "the report", "with SAME padding", "other shapes", "stable from")
    for name, one in found.targets.items():
        if not one.comparisons:
            rows.add_row(Text(name, "yellow"), Text(why_not(one), "yellow"))
            continue
        report = [found for found in one.differences if found.case_id == REPORT.id]
        same = [found for found in one.differences if found.case_id == SAME.id]
        grid = [found for found in one.differences if found.case_id not in (REPORT.id, SAME.id)]
        rows.add_row(
            Text(name, "red" if one.differences else "green"),
            described(report),
            described(same),
            of_grid(grid, found.cases - 2),
            stable_from(one.differences, sorted(lengths)),
        )
    out = Output()
    out.results.print(rows)
    out.results.print(
        f"\nEvery length is compared with {found.against}. No difference is no proof: "
        "`probe sweep --by order` compares the orders, independent of the data.",
        style="dim",
    )


def described(differences: Sequence[DifferingRun]) -> Text:
    """Returns how many lengths and outputs of one case differ, and by how many ulps at most."""
    if not differences:
        return Text("no difference", "green")
    outputs = sum(found.outputs for found in differences)
    largest = max(found.max_ulp or 0 for found in differences)
    return Text(f"{len(differences)} lengths\n{outputs:,} outputs, {largest} ulp", "red")


def of_grid(differences: Sequence[DifferingRun], cases: int) -> Text:
    """How many of the cases differ, and in how many outputs; ulps say little after cancellation."""
    if not differences:
        return Text("no difference", "green")
    outputs = sum(found.outputs for found in differences)
    return Text(f"{len({d.case_id for d in differences})} of {cases}\n{outputs:,} outputs", "red")


def stable_from(differences: Sequence[DifferingRun], lengths: Sequence[int]) -> Text:
    """The length from which on nothing differs; the longest has nothing to be compared with."""
    last = max((found.at for found in differences), default=0)
    later = [length for length in lengths[:-1] if length > last]
    return Text(str(later[0]), "green") if later else Text(f"not up to {last}", "red")


def why_not(one: TargetSummary) -> str:
    """Returns why a target has no results."""
    return "; ".join(dict.fromkeys(failure.message for failure in one.failures)) or "not run"


if __name__ == "__main__":
    main()
