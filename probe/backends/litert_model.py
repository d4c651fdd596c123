"""A .tflite model of one convolution or matrix product, and these as parts of larger models.

The bias is zeros where the spec has none, as converters write it. What an operator can't pad itself
goes through PAD first. ``matmul`` is FULLY_CONNECTED over the last axis, and so is ``dense``.
"""

import numpy as np

from probe.backends.contract import Unsupported
from probe.backends.litert_graph import Graph
from probe.geometry import Windows

#: Dtypes that LiteRT's kernels have.
DTYPES = ("float32", "float16")
#: Spec's op -> the schema's operator and its options.
OPERATORS = {
    "conv2d": ("CONV_2D", "Conv2DOptions"),
    "conv3d": ("CONV_3D", "Conv3DOptions"),
    "depthwise_conv2d": ("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions"),
    "matmul": ("FULLY_CONNECTED", "FullyConnectedOptions"),
    "dense": ("FULLY_CONNECTED", "FullyConnectedOptions"),
}
PRODUCTS = ("matmul", "dense")


def supported(spec):
    """Raises Unsupported where no model is built for the spec."""
    if two_dimensional(spec)["op"] not in OPERATORS:
        raise Unsupported(f"op={spec['op']}: no LiteRT model is built for it here")
    if spec["dtype"] not in DTYPES:
        raise Unsupported(f"dtype={spec['dtype']}: LiteRT's kernels have {', '.join(DTYPES)}")


def weights(spec, w):
    """A container array (*kernel, channels/groups, filters) in the operator's layout, a copy."""
    spec = two_dimensional(spec)
    if spec["op"] in PRODUCTS:
        w = w.reshape(w.shape[-2:]).T
    if spec["op"] == "conv2d":
        w = np.moveaxis(w, -1, 0)
    return np.array(w, order="C").reshape(kernel_shape(spec))


class Model:
    """A finished model for inputs of one shape, into whose bytes weights are copied."""

    def __init__(self, schema, spec, shape):
        """``shape``: the input's; of a conv1d and a matmul (batch, 1, length, channels).

        Raises Unsupported where no window fits into the input.
        """
        supported(spec)
        graph = Graph(schema, spec["dtype"], shape)
        w = np.zeros(kernel_shape(two_dimensional(spec)), spec["dtype"])
        b = np.zeros(spec["filters"], spec["dtype"])
        w, b = graph.constant("w", w), graph.constant("b", b)
        self._packed = graph.packed(operator(graph, spec, graph.x, w, b), "convolution")
        root = schema.Model.GetRootAs(self._packed, 0)
        self._weights, self._bias = (root.Buffers(one.buffer).DataAsNumpy() for one in (w, b))

    def content(self, w, b):
        """The model's bytes with these weights (in the operator's layout) and bias, or None."""
        self._weights[:] = w.reshape(-1).view(np.uint8)
        self._bias[:] = 0 if b is None else b.view(np.uint8)
        return bytes(self._packed)


def operator(graph, spec, x, w, b):
    """The Value of a spec's output for the Values x, w and b. Raises Unsupported: no window fits.

    x has the shape that ``Model`` takes; that of a matmul may have any number of axes.
    """
    spec = two_dimensional(spec)
    if spec["op"] in PRODUCTS:
        shape, keep = x.shape[:-1] + (spec["filters"],), len(x.shape) > 2
        options = "FullyConnectedOptions"
        return graph.operator("FULLY_CONNECTED", [x, w, b], shape, options, keepNumDims=keep)
    spans = Windows.of(spec).spans(x.shape[1:-1])
    sizes = tuple(one.outputs for one in spans)
    if not all(sizes):
        raise Unsupported(f"input {list(x.shape)}: no window fits into it")
    if spec["padding"] != "same":
        pads = [(one.before, one.after) for one in spans]
        x = graph.padded(x, [(0, 0)] + pads + [(0, 0)])
    name, options = OPERATORS[spec["op"]]
    shape, fields = x.shape[:1] + sizes + (spec["filters"],), _fields(graph.schema, spec)
    return graph.operator(name, [x, w, b], shape, options, **fields)


def _fields(schema, spec):
    """Strides, dilations and padding of a convolution."""
    same = spec["padding"] == "same"
    found = {"padding": schema.Padding.SAME if same else schema.Padding.VALID}
    axes = ("D", "H", "W")[-len(spec["kernel"]) :]
    for axis, stride, dilation in zip(axes, spec["stride"], spec["dilation"]):
        found["stride" + axis] = stride
        found[f"dilation{axis}Factor"] = dilation
    if spec["op"] == "depthwise_conv2d":
        found["depthMultiplier"] = spec["filters"] // spec["in_channels"]
    return found


def kernel_shape(spec):
    """The shape of the operator's weights, for any spec but a conv1d."""
    kernel, filters = tuple(spec["kernel"]), spec["filters"]
    channels = spec["in_channels"] // spec["groups"]
    if spec["op"] in PRODUCTS:
        return (filters, channels)
    if spec["op"] == "conv3d":
        return kernel + (channels, filters)
    if spec["op"] == "depthwise_conv2d":
        return (1,) + kernel + (filters,)
    return (filters,) + kernel + (channels,)


def flat(spec):
    """Whether a spec of one spatial axis gets one of size 1 before it."""
    return len(spec["kernel"]) == 1


def two_dimensional(spec):
    """The spec itself, or for ``conv1d`` that of a conv2d of height 1."""
    if spec["op"] != "conv1d":
        return spec
    changed = {key: [1] + list(spec[key]) for key in ("kernel", "stride", "dilation")}
    padding = spec["padding"]
    if not isinstance(padding, str):
        changed["padding"] = [[0, 0]] + list(padding)
    return dict(spec, op="conv2d", **changed)
