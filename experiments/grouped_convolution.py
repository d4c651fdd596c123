"""Which channels does a filter read? What `groups` does in every library.

Two channels that both hold 1 2 3, a causal kernel of three ones: with a filter for each channel
the outputs are 1 3 6, with filters over both channels 2 6 12. That is no rounding and no
bug: the windows hold other channels.

Writes results/grouped_convolution/<machine>/*.parquet; notebooks/grouped_convolution.ipynb draws
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lib import frame
from lib.conventions import read_windows
from probe import Case

ONES: dict[str, Any] = {"operands": "count", "in_channels": 2, "filters": 2}
FULL = Case("conv1d", 3, length=3, padding="2:0", groups=1, **ONES)
DEPTHWISE = Case("depthwise_conv2d", "1x3", height=1, length=3, padding="0,2:0", **ONES)
"""Weights of 1 (`count` operands have them); ``2:0`` is causal padding: zeros before alone."""

WIDE = [Case("conv2d", "1x3", 4, 4, length=6, height=1, groups=groups) for groups in (1, 2, 4)]
DEEP = Case("depthwise_conv2d", "1x3", 4, 8, length=6, height=1)
SOLID = [Case("conv3d", 2, 4, 4, length=3, height=2, groups=groups) for groups in (1, 2)]
"""Groups in one, two and three dimensions; a depthwise layer with two filters for each channel."""

TARGETS = "tensorflow tensorflow,onednn=0 keras torch jax onnxruntime litert opencv".split()
QUICK = ["reference"]


@frame.script
def main(experiment: frame.Experiment) -> None:
    read_windows(experiment, questions(experiment.quick))


def questions(quick: bool) -> Iterator[tuple[str, Case]]:
    """(target, case): every one a set of windows to read."""
    for text in QUICK if quick else TARGETS:
        for case in (FULL, FULL.with_(groups=2), DEPTHWISE, *WIDE, DEEP, *SOLID):
            yield text, case


if __name__ == "__main__":
    main()
