"""Which shapes keep their first outputs when the input grows? TensorFlow with its switches.

A grid of one-dimensional convolutions: kernels 1 to 9, up to 256 channels and 64 filters, strides 1
and 2, valid and same padding, lengths to 600. The operands are made to show a changed order
(`cancel`). A quarter of an hour on two processors.

Writes results/length_sweep/<machine>/*.parquet; notebooks/length_sweep.ipynb draws them, by cause
too once `probe explain --from results/length_sweep` has added the causes. Change what you like
below and run it again: what is stored already is not measured twice.
"""

from __future__ import annotations

from itertools import product

from lib import frame
from lib.frame import Part
from probe import Case

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


def cases(kernel: int) -> list[Case]:
    return [
        Case("conv1d", kernel, *shape, stride=stride, padding=padding, operands="cancel")
        for shape in product(CHANNELS, FILTERS)
        for stride, padding in product(STRIDES, PADDINGS)
    ]


def grid(quick: bool = False) -> list[Part]:
    """A kernel size at a time: cases, their lengths up to the longest, and the axis."""
    if quick:
        small = [case for case in cases(3) if case.in_channels == 3 and case.filters < 64]
        return [(small, [3, 4, 10, 11, 16], "length")]
    return [(cases(k), sorted({k, k + 1, *LENGTHS}), "length") for k in KERNELS]


@frame.script
def main(experiment: frame.Experiment) -> None:
    parts = grid(experiment.quick)
    experiment.sweep(parts, frame.QUICK if experiment.quick else TARGETS, keep=KEEP)
    if not experiment.quick:
        few = [(list(filter(compiled, shapes)), lengths, vary) for shapes, lengths, vary in parts]
        experiment.sweep(few, [COMPILED], keep=KEEP)
    experiment.sum_up()


def compiled(case: Case) -> bool:
    return case.stride == (1,) and case.padding == "valid" and case.filters <= 8


if __name__ == "__main__":
    main()
