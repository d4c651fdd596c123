"""Repeats the report that started probe: the first outputs change when a value is appended.

A 1x5 convolution over 10 * arange(T), T = 5 to 64, with the report's weights and bias, on every
target of this machine, next to the same sums done by hand; then with SAME padding, and over a
small grid of channels and filters, because the case as it was published is not where today's
defaults show it. Every length is compared with the longest, output by output.

Writes results/prefix_stability/<machine>/*.parquet; notebooks/prefix_stability.ipynb draws them.
Change what you like below and run it again: what is stored already is not measured twice.
"""

from __future__ import annotations

from lib import frame
from lib.frame import REPORT
from probe import Case

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


@frame.script
def main(experiment: frame.Experiment) -> None:
    quick = experiment.quick
    cases = [REPORT, SAME, GRID[0], GRID[8]] if quick else [REPORT, SAME, *GRID]
    parts = [(cases, range(5, 16) if quick else LENGTHS, "length")]
    experiment.sweep(parts, frame.QUICK if quick else TARGETS, whole={REPORT: PUBLISHED})
    experiment.sum_up()


if __name__ == "__main__":
    main()
