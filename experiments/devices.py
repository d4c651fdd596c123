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

from pathlib import Path

from lib import frame
from probe import Case

NAME = "devices"

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

KEEP = 2
"""Differing outputs stored of each comparison; how many there are is counted without limit."""

QUICK = [
    *("reference", "reference,algorithm=pairwise,length_switch=9"),
    *("torch@cuda:999", "jax@gpu:999"),
]
"""NumPy alone, and GPUs that no machine has."""


def cases(kernel: int, quick: bool) -> list[Case]:
    """Returns what is computed at one kernel size."""
    return [
        Case("conv1d", *shape, dtype=dtype, operands="cancel")
        for shape in ([(3, 3, 2)] if quick else SHAPES)
        for dtype in DTYPES
        if shape[0] == kernel
    ]


def plan(quick: bool) -> list[tuple[list[Case], list[int], str]]:
    """Returns what is swept, a kernel size at a time: cases, values, axis."""
    if quick:
        return [(cases(3, quick), [3, 4, 10, 11, 16], "length")]
    kernels = sorted({kernel for kernel, _, _ in SHAPES})
    return [(cases(k, quick), sorted({k, k + 1, *LENGTHS}), "length") for k in kernels]


@frame.script
def main(store: Path, quick: bool) -> bool:
    """Measures, explains, stores and prints; whether Ctrl-C ended it."""
    ended = frame.swept(store, NAME, plan(quick), QUICK if quick else TARGETS, keep=KEEP)
    return ended or frame.explained(store, NAME)


if __name__ == "__main__":
    main()
