"""Does a layer compute the same when it is copied with a subset of its filters?

Convolutions and matrix products with the first 1, 3, 8, 16 and 31 of 64 filters (tensorflow
#61422), the operands made to show a changed order (`cancel`); then the cause of every difference,
revealed and replayed. Ten minutes on two processors.

Writes results/filter_subsets/<machine>/*.parquet; notebooks/filter_subsets.ipynb draws them.
Change what you like below and run it again: what is stored already is not repeated.
"""

from __future__ import annotations

from lib import frame
from probe import Case

FILTERS = (1, 3, 8, 16, 31, 64)
"""Each is compared with the last one."""

CASES = [
    *(
        Case("conv1d", kernel, channels, length=length, operands="cancel")
        for kernel, channels, length in (
            (5, 1, 31),
            (3, 16, 31),
            (5, 64, 31),
            (1, 64, 31),
            (5, 16, 5),
        )
    ),
    Case(op="conv2d", kernel=3, in_channels=4, height=8, length=8, operands="cancel"),
    Case(op="matmul", in_channels=64, length=1, operands="cancel"),
    Case(op="matmul", in_channels=64, length=16, operands="cancel"),
]
"""Longer than the kernel and as long, one axis and two, one row and sixteen."""

TARGETS = [*frame.LIBRARIES, "tensorflow,xla=1"]


@frame.script
def main(experiment: frame.Experiment) -> None:
    quick = experiment.quick
    parts = [(CASES[:2] if quick else CASES, FILTERS, "filters")]
    experiment.sweep(parts, frame.QUICK if quick else TARGETS, keep=frame.FEW)
    experiment.explain()


if __name__ == "__main__":
    main()
