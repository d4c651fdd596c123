"""Defines the table of operations.

Convolutions and pools have windows, see :mod:`probe.case.geometry`. A matrix product is a
convolution with a kernel of 1 along its rows: x (batch, length, in_channels), w (1, in_channels,
filters), that is ``length`` rows by ``filters`` columns. ``matmul`` multiplies matrices, a stack of
them where ``batch`` is more than 1; ``dot`` is the same product with one row or one column handed
over as a vector (dot product, matrix times vector). ``sum`` adds up the ``in_channels`` elements of
each of ``length`` rows; its weights are 1 and no library sees them. ``dense``, also called
``linear``, is a fully connected layer: x (batch, in_channels), w (in_channels, filters). It has no
spatial axis: its rows are the batch, and its length is always 1. Pooling is by channel and has no
weights either: ``max_pool2d`` keeps the largest element of a window, ``avg_pool2d`` their mean. A
transposed convolution has the arrays of a plain one: w[k] is what an input adds to the k-th output
from its own place on, as TensorFlow and PyTorch say it.

Targets' interpreters import this (Python 3.6, NumPy 1.11).
"""

from typing import Any, Dict, Mapping, NamedTuple

from probe.case.geometry import TransposedSizes, WindowSizes


class Operation(NamedTuple):
    """What the name of an operation means.

    ``kind``: ``convolution``, ``transposed``, ``product`` or ``pool``. ``spatial_rank``: how many
    spatial axes it has.
    ``weighted``: it has weights, filters and a bias; without them all weights are 1. ``batched``:
    it takes more than one input. ``pool``: ``max``, ``avg`` or empty.
    """

    kind: str
    spatial_rank: int
    depthwise: bool = False
    weighted: bool = False
    batched: bool = True
    pool: str = ""

    @property
    def windows(self) -> bool:
        """Whether it has kernel, stride, dilation, padding and groups."""
        return self.kind in ("convolution", "transposed", "pool")

    @property
    def transposed(self) -> bool:
        return self.kind == "transposed"


OPERATIONS: Dict[str, Operation] = {
    "conv1d": Operation("convolution", 1, weighted=True),
    "conv2d": Operation("convolution", 2, weighted=True),
    "conv3d": Operation("convolution", 3, weighted=True),
    "depthwise_conv2d": Operation("convolution", 2, weighted=True, depthwise=True),
    "conv1d_transpose": Operation("transposed", 1, weighted=True),
    "conv2d_transpose": Operation("transposed", 2, weighted=True),
    "matmul": Operation("product", 1, weighted=True),
    "dot": Operation("product", 1, weighted=True, batched=False),
    "sum": Operation("product", 1),
    "dense": Operation("product", 0, weighted=True),
    "max_pool1d": Operation("pool", 1, depthwise=True, pool="max"),
    "max_pool2d": Operation("pool", 2, depthwise=True, pool="max"),
    "avg_pool1d": Operation("pool", 1, depthwise=True, pool="avg"),
    "avg_pool2d": Operation("pool", 2, depthwise=True, pool="avg"),
}


def operation_of_spec(spec: Mapping[str, Any]) -> Operation:
    """The operation of a worker's spec."""
    return OPERATIONS[spec["op"]]


def windows_of_spec(spec: Mapping[str, Any]) -> WindowSizes:
    """Where the windows of a worker's spec lie."""
    kind = TransposedSizes if operation_of_spec(spec).transposed else WindowSizes
    sizes = spec["kernel"], spec["stride"], spec["dilation"]
    return kind(*sizes, padding=spec["padding"], ceil=spec.get("ceil_mode", False))


def operand_names(layer):
    """The names of the arrays that a layer has beside its inputs."""
    if operation_of_spec(layer).weighted:
        return ("w", "b") if layer["bias"] else ("w",)
    return ()
