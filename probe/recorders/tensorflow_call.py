"""One call of an operation of TensorFlow, without TensorFlow's own types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Call:
    """One call of an operation.

    ``attributes``: text, numbers, lists of them. ``inputs``: the shapes of all inputs;
    ``arguments``: the values of those that ``STRUCTURE`` names, by number. ``values``: gives the
    value of any other input in this run, None where it comes from floating-point numbers.
    """

    op: str
    attributes: Mapping[str, Any]
    inputs: Sequence[tuple[int, ...]]
    outputs: Sequence[tuple[int, ...]]
    arguments: Mapping[int, np.ndarray]
    values: Callable[[int], np.ndarray | None]

    def get(self, name: str, default: Any) -> Any:
        """An attribute, or TensorFlow's default for it."""
        return self.attributes.get(name, default)


STRUCTURE: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("Mean", "Sum", "Max", "Min", "Prod", "All", "Any", "EuclideanNorm"), (1,)),
    **dict.fromkeys(
        ("Reshape", "Transpose", "ExpandDims", "Tile", "BroadcastTo", "ReverseV2"), (1,)
    ),
    **dict.fromkeys(("Pad", "MirrorPad", "Cumsum", "Cumprod", "ArgMax", "ArgMin", "TopKV2"), (1,)),
    **dict.fromkeys(("PadV2", "ResizeNearestNeighbor", "ResizeBilinear", "ResizeBicubic"), (1,)),
    **dict.fromkeys(("Slice", "SpaceToBatchND", "BatchToSpaceND", "SplitV"), (1, 2)),
    "GatherV2": (2,),
    **dict.fromkeys(("Conv2DBackpropInput", "Fill", "Split", "Conv3DBackpropInputV2"), (0,)),
    "StridedSlice": (1, 2, 3),
    "ConcatV2": (-1,),
    "OneHot": (1,),
    **dict.fromkeys(("Roll", "MatrixBandPart"), (1, 2)),
    **dict.fromkeys(("RFFT", "RFFT2D", "RFFT3D", "IRFFT", "IRFFT2D", "IRFFT3D"), (1,)),
    **dict.fromkeys(("ConjugateTranspose", "ResizeArea", "CumulativeLogsumexp"), (1,)),
    **dict.fromkeys(("ScatterNd", "MatrixSetDiagV3"), (2,)),
    "MatrixDiagV3": (1, 2, 3, 4),
    "MatrixDiagPartV3": (1, 2),
    "CropAndResize": (3,),
}
"""Inputs that say how an operation works, not on what: shapes, axes, paddings. By number."""


def axes_of(call: Call) -> tuple[int, ...]:
    """The axes that the second input names, counted from the front."""
    rank = len(call.inputs[0])
    return tuple(sorted({int(n) % max(rank, 1) for n in call.arguments[1].reshape(-1)}))
