"""Does a GPU keep its bits when the input grows, and does it agree with the processor?

Convolutions in float32, bfloat16 and float16 on the processor and on the first GPU of PyTorch and
JAX: with TensorFloat-32 and without, deterministic, and with the algorithm that cuDNN timed best.
Every length is compared with 400, the operands made to show a changed order (`cancel`); then the
cause of every difference, revealed and replayed. Where there is no GPU its targets are stored as
unavailable, with the reason, and the processor's are measured. Ten minutes on two processors.

Writes results/devices/<machine>/*.parquet; notebooks/devices.ipynb draws them. Change what you
like below and run it again: what is stored already is not measured or explained twice.
"""

from __future__ import annotations

from collections.abc import Sequence

from lib import frame
from probe import Case

SHAPES = ((5, 1, 1), (5, 64, 1), (5, 64, 8), (3, 16, 64), (3, 256, 8), (1, 64, 8))
"""Kernel, channels, filters."""

DTYPES = ("float32", "bfloat16", "float16")

LENGTHS = (11, 31, 64, 200, 400)
"""For every kernel K, with K and K + 1 before; the others are compared with the last one."""

TARGETS = """
    torch
    torch@cuda:0
    torch@cuda:0,tf32=0
    torch@cuda:0,deterministic=1
    torch@cuda:0,benchmark=1
    jax
    jax@gpu:0
    jax@gpu:0,tf32=0
    jax@gpu:0,deterministic=1
""".split()

QUICK = [*frame.QUICK, "torch@cuda:999", "jax@gpu:999"]
"""NumPy alone, and GPUs that no machine has."""


def cases(shapes: Sequence[tuple[int, int, int]]) -> list[Case]:
    return [
        Case("conv1d", *shape, dtype=dtype, operands="cancel")
        for shape in shapes
        for dtype in DTYPES
    ]


@frame.script
def main(experiment: frame.Experiment) -> None:
    parts = [(cases([(3, 3, 2)]), [3, 4, 10, 11, 16], "length")]
    if not experiment.quick:
        kernels = sorted({kernel for kernel, _, _ in SHAPES})
        parts = [
            (cases([one for one in SHAPES if one[0] == k]), sorted({k, k + 1, *LENGTHS}), "length")
            for k in kernels
        ]
    experiment.sweep(parts, QUICK if experiment.quick else TARGETS, keep=frame.FEW)
    experiment.explain()


if __name__ == "__main__":
    main()
