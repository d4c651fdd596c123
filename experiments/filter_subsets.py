"""Does a layer compute the same when it is copied with a subset of its filters?

Convolutions and matrix products with the first 1, 3, 8, 16 and 31 of 64 filters (tensorflow
#61422), the operands made to show a changed order (`cancel`); then the cause of every difference,
revealed and replayed. Ten minutes on two processors.

Writes results/filter_subsets/<machine>/*.parquet; notebooks/filter_subsets.ipynb draws them.
Change what you like below and run it again: what is stored already is not repeated.
"""

from __future__ import annotations

from pathlib import Path

from lib import frame
from probe import Case

NAME = "filter_subsets"

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

KEEP = 2
"""Differing outputs stored of each comparison; how many there are is counted without limit."""

QUICK = "reference reference,algorithm=pairwise".split()


@frame.script
def main(store: Path, quick: bool) -> bool:
    """Measures, explains, stores and prints; whether Ctrl-C ended it."""
    parts = [(CASES[:2] if quick else CASES, FILTERS, "filters")]
    ended = frame.swept(store, NAME, parts, QUICK if quick else TARGETS, keep=KEEP)
    return ended or frame.explained(store, NAME)


if __name__ == "__main__":
    main()
