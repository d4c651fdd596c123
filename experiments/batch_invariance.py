"""Does the first entry of a batch keep its bits when the batch grows? On every target.

Convolutions (those of public reports among them, see `REPORTS`) by batch size, and matrix products
by rows, which are the batch of a dense layer: 1, 2, 3, 4, 8 and 16 against 32, the operands made to
show a changed order (`cancel`). Then the cause of every difference, revealed and replayed.
Ten minutes on two processors.

Writes results/batch_invariance/<machine>/*.parquet; notebooks/batch_invariance.ipynb draws them.
Change what you like below and run it again: what is stored already is not repeated.
"""

from __future__ import annotations

from lib import frame
from probe import Case

BATCHES = (1, 2, 3, 4, 8, 16, 32)
"""Each is compared with the last one."""

REPORTS = {
    "pytorch #134908": Case("conv2d", 3, 4, 3, 6, height=8, operands="cancel"),
    "pytorch #81694": Case("conv1d", 5, 256, 8, 10, padding=2, operands="cancel"),
    "pytorch #91612": Case("conv1d", 3, 256, 8, 25, operands="cancel"),
}
"""Convolutions that were reported, with 8 filters where the reports have 256 and 1024."""

SHAPES = [
    Case("conv1d", *shape, operands="cancel")
    for shape in (
        *((5, 1, 1, 31), (5, 16, 1, 31), (3, 16, 8, 31), (5, 64, 8, 31)),
        *((1, 64, 8, 16), (3, 64, 8, 3)),
    )
]
"""Kernel, channels, filters, length: from one product a window up, and an input of one window."""

DEPTHWISE = Case("depthwise_conv2d", 3, 8, height=8, length=8, operands="cancel")

PRODUCTS = [
    Case(op="matmul", in_channels=channels, filters=filters, operands="cancel")
    for channels, filters in ((16, 1), (64, 1), (16, 8), (256, 8))
]
"""pytorch #51276 and #124025, tensorflow #8670: one row against many in a matrix product."""


@frame.script
def main(experiment: frame.Experiment) -> None:
    quick = experiment.quick
    shapes = [*REPORTS.values(), *SHAPES, DEPTHWISE]
    parts = [
        (shapes[:1] if quick else shapes, BATCHES, "batch"),
        (PRODUCTS[: 1 if quick else 4], BATCHES, "length"),
    ]
    experiment.sweep(parts, frame.QUICK if quick else frame.LIBRARIES, keep=frame.FEW)
    experiment.explain()


if __name__ == "__main__":
    main()
