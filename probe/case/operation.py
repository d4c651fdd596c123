"""Defines the table of operations, and layers, which have sizes and options too.

Convolutions and pools have windows, see :mod:`probe.case.geometry`. A matrix product is a
convolution
with a kernel of 1 along its rows: x (batch, length, in_channels), w (1, in_channels, filters), that
is ``length`` rows by ``filters`` columns. ``matmul`` multiplies matrices, a stack of them where
``batch`` is more than 1; ``dot`` is the same product with one row or one column handed over as a
vector (dot product, matrix times vector). ``sum`` adds up the ``in_channels`` elements of each of
``length`` rows; its weights are 1 and no library sees them. ``dense``, also called ``linear``, is a
fully connected layer: x (batch, in_channels), w (in_channels, filters). It has no spatial axis: its
rows are the batch, and its length is always 1. Pooling is by channel and has no weights either:
``max_pool2d`` keeps the largest element of a window, ``avg_pool2d`` their mean. A transposed
convolution has the arrays of a plain one: w[k] is what an input adds to the k-th output from its
own place on, as TensorFlow and PyTorch say it.

Targets' interpreters import this (Python 3.6, NumPy 1.11).
"""

from typing import Any, Dict, Mapping, NamedTuple, Optional, Tuple

from probe.case.geometry import Padding, TransposedSizes, WindowSizes


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
        """Returns whether it has kernel, stride, dilation, padding and groups."""
        return self.kind in ("convolution", "transposed", "pool")

    @property
    def sums(self) -> bool:
        """Whether outputs are sums of products, whose order and rounding can be revealed."""
        return self.kind in ("convolution", "transposed", "product")

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


# Operations that a case can have.
OF_CASES = tuple(OPERATIONS)


def operation_of_spec(spec: Mapping[str, Any]) -> Operation:
    """Returns the operation of a worker's spec."""
    return OPERATIONS[spec["op"]]


def windows_of_spec(spec: Mapping[str, Any]) -> WindowSizes:
    """Returns where the windows of a worker's spec lie."""
    kind = TransposedSizes if operation_of_spec(spec).transposed else WindowSizes
    sizes = spec["kernel"], spec["stride"], spec["dilation"]
    return kind(*sizes, padding=spec["padding"], ceil=spec.get("ceil_mode", False))


class Layer:
    """An operation with its sizes and options: what a case and a layer of a network are.

    ``kernel``, ``stride`` and ``dilation`` are empty where there are no windows. ``bias``: None, or
    something else where there is one. ``split``: the channels of the first of two calls whose
    outputs are added, or None. ``ceil_mode``, ``pad_with``: of pooling, see ``Case``.
    """

    op: str
    in_channels: int
    filters: int
    kernel: Tuple[int, ...]
    stride: Tuple[int, ...]
    dilation: Tuple[int, ...]
    padding: Padding
    groups: int
    ceil_mode: bool
    pad_with: str
    bias: Any
    split: Optional[int] = None

    @property
    def operation(self) -> Operation:
        """Its operation's row."""
        return OPERATIONS[self.op]

    @property
    def weighted(self) -> bool:
        """False: all weights are 1, as in a sum, and the library is not given any."""
        return self.operation.weighted

    @property
    def pool(self) -> str:
        """``max``, ``avg`` or empty."""
        return self.operation.pool

    @property
    def rounds_up(self) -> bool:
        """Returns whether the last window may reach beyond the padded input: pooling alone."""
        return self.ceil_mode or (self.padding == "caffe" and bool(self.pool))

    @property
    def windows(self) -> WindowSizes:
        """Returns where its windows lie, and how many there are."""
        kind = TransposedSizes if self.operation.transposed else WindowSizes
        return kind(self.kernel, self.stride, self.dilation, self.padding, self.rounds_up)

    def spec_in(self, dtype: str) -> Dict[str, Any]:
        """Returns what a worker needs to build it, as plain JSON; shapes are left to the arrays.

        ``padding`` is ``"valid"``, ``"same"``, ``"same_lower"`` or pairs; ``bias`` only says
        whether there is one.
        """
        pads = self.padding
        if pads == "caffe":
            pads = self.windows.pads(self.windows.extents)
        spec: Dict[str, Any] = {
            "op": self.op,
            "kernel": list(self.kernel),
            "stride": list(self.stride),
            "dilation": list(self.dilation),
            "groups": self.groups,
            "padding": pads if isinstance(pads, str) else [list(pair) for pair in pads],
            "dtype": dtype,
            "in_channels": self.in_channels,
            "filters": self.filters,
            "bias": self.bias is not None,
        }
        if self.pool:
            spec.update(ceil_mode=self.rounds_up, pad_with=self.pad_with)
        if self.split is not None:
            spec["split"] = self.split
        return spec


def operand_names(layer):
    """Returns the names of the arrays that a layer has beside its inputs."""
    if operation_of_spec(layer).weighted:
        return ("w", "b") if layer["bias"] else ("w",)
    return ()
