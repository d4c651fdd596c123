"""The bytes of a .tflite model of one convolution, with LiteRT's own schema and no TensorFlow.

Buffers of the model: 0 is empty by definition, 1 holds the weights, 2 the bias (zeros where the
spec has none, as converters write), 3 the zeros to add where there is a PAD.
"""

import numpy as np

from probe.backends.contract import Unsupported
from probe.backends.reference import zeros_around

#: Spec's dtype -> the schema's. Kernels of other dtypes do not exist.
TYPES = {"float32": "FLOAT32", "float16": "FLOAT16"}
#: Spec's op -> the schema's operator and its options.
OPERATORS = {
    "conv2d": ("CONV_2D", "Conv2DOptions"),
    "conv3d": ("CONV_3D", "Conv3DOptions"),
    "depthwise_conv2d": ("DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions"),
}
SCHEMA_VERSION = 3
ALIGNMENT = 16  # of a buffer's bytes: the schema's force_align, which the Python packer ignores


def weights(spec, w):
    """A container array (*kernel, channels/groups, filters) in the operator's layout, a copy."""
    spec = two_dimensional(spec)
    if spec["op"] == "conv2d":
        w = np.moveaxis(w, -1, 0)
    return np.array(w, order="C").reshape(kernel_shape(spec))


class Model:
    """A finished model for inputs of one shape, into whose bytes weights are copied."""

    description = "convolution"

    def __init__(self, schema, spec, shape):
        """``shape``: the input's; of a conv1d (batch, 1, length, channels).

        Raises Unsupported where no window fits into the input.
        """
        self.schema, self.spec, self.shape = schema, two_dimensional(spec), tuple(shape)
        axes = range(len(shape) - 2)
        around = [zeros_around(self.spec, axis, shape[1 + axis]) for axis in axes]
        self.pads = [(0, 0)] + [pads for pads, _ in around] + [(0, 0)]
        self.sizes = tuple(size for _, size in around)
        if not all(self.sizes):
            raise Unsupported(f"input {list(shape)}: no window fits into it")
        self._packed = self._pack()
        root = schema.Model.GetRootAs(self._packed, 0)
        self._weights, self._bias = (root.Buffers(i).DataAsNumpy() for i in (1, 2))

    def content(self, w, b):
        """The model's bytes with these weights (in the operator's layout) and bias, or None."""
        self._weights[:] = w.reshape(-1).view(np.uint8)
        self._bias[:] = 0 if b is None else b.view(np.uint8)
        return bytes(self._packed)

    def _pack(self):
        """The model with zeros for weights: a bytearray."""
        schema, graph = self.schema, self.schema.SubGraphT()
        codes = self._fill(graph)
        graph.name, graph.inputs, graph.outputs = "main", [0], [len(graph.tensors) - 1]
        model = schema.ModelT()
        model.version, model.subgraphs = SCHEMA_VERSION, [graph]
        model.description = self.description
        model.operatorCodes = [self._operator_code(name) for name in codes]
        model.buffers = self._buffers()
        builder = schema.flatbuffers.Builder(1024)
        builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
        return bytearray(builder.Output())

    def _fill(self, graph):
        """Tensors and operators: PAD where it is needed, the convolution. The operators' names."""
        spec, tensor, source, codes = self.spec, self._tensor, 0, []
        graph.tensors = [tensor("x", self.shape, 0), tensor("w", kernel_shape(spec), 1)]
        graph.tensors.append(tensor("b", (spec["filters"],), 2))
        graph.operators = []
        if spec["padding"] != "same" and any(map(any, self.pads)):
            padded = [size + sum(pads) for size, pads in zip(self.shape, self.pads)]
            graph.tensors.append(tensor("pads", (len(padded), 2), 3, "INT32"))
            graph.tensors.append(tensor("padded", padded, 0))
            graph.operators.append(self._operator(0, [0, 3], 4, "PadOptions"))
            source, codes = 4, ["PAD"]
        y, (name, options) = len(graph.tensors), OPERATORS[spec["op"]]
        graph.tensors.append(tensor("y", self.shape[:1] + self.sizes + (spec["filters"],), 0))
        graph.operators.append(self._operator(len(codes), [source, 1, 2], y, options))
        self._configure(graph.operators[-1].builtinOptions)
        return codes + [name]

    def _configure(self, options):
        """Strides, dilations and padding of the convolution."""
        spec, padding = self.spec, self.schema.Padding
        options.padding = padding.SAME if spec["padding"] == "same" else padding.VALID
        axes = ("D", "H", "W")[-len(spec["kernel"]) :]
        for axis, stride, dilation in zip(axes, spec["stride"], spec["dilation"]):
            setattr(options, "stride" + axis, stride)
            setattr(options, f"dilation{axis}Factor", dilation)
        if spec["op"] == "depthwise_conv2d":
            options.depthMultiplier = spec["filters"] // spec["in_channels"]

    def _tensor(self, name, shape, buffer, kind=None):
        tensor = self.schema.TensorT()
        tensor.name, tensor.shape, tensor.buffer = name, list(shape), buffer
        tensor.type = getattr(self.schema.TensorType, kind or TYPES[self.spec["dtype"]])
        return tensor

    def _operator(self, code, inputs, output, options):
        operator = self.schema.OperatorT()
        operator.opcodeIndex, operator.inputs, operator.outputs = code, inputs, [output]
        operator.builtinOptionsType = getattr(self.schema.BuiltinOptions, options)
        operator.builtinOptions = getattr(self.schema, options + "T")()
        return operator

    def _operator_code(self, name):
        made, code = self.schema.OperatorCodeT(), getattr(self.schema.BuiltinOperator, name)
        made.builtinCode, made.deprecatedBuiltinCode, made.version = code, min(code, 127), 1
        return made

    def _buffers(self):
        spec, width = self.spec, np.dtype(self.spec["dtype"]).itemsize
        made = [aligned_buffer(self.schema) for _ in range(4)]
        made[1].data = np.zeros(int(np.prod(kernel_shape(spec))) * width, np.uint8)
        made[2].data = np.zeros(spec["filters"] * width, np.uint8)
        made[3].data = np.array(self.pads, np.int32).reshape(-1).view(np.uint8)
        return made


def kernel_shape(spec):
    """The shape of the operator's weights, for any spec but a conv1d."""
    kernel, filters = tuple(spec["kernel"]), spec["filters"]
    channels = spec["in_channels"] // spec["groups"]
    if spec["op"] == "conv3d":
        return kernel + (channels, filters)
    if spec["op"] == "depthwise_conv2d":
        return (1,) + kernel + (filters,)
    return (filters,) + kernel + (channels,)


def two_dimensional(spec):
    """The spec itself, or for ``conv1d`` that of a conv2d of height 1."""
    if spec["op"] != "conv1d":
        return spec
    changed = {key: [1] + list(spec[key]) for key in ("kernel", "stride", "dilation")}
    padding = spec["padding"]
    if not isinstance(padding, str):
        changed["padding"] = [[0, 0]] + list(padding)
    return dict(spec, op="conv2d", **changed)


def aligned_buffer(schema):
    """A BufferT of the schema that packs its bytes at a multiple of ALIGNMENT."""

    def pack(self, builder):
        data = None
        if self.data is not None:
            size = len(self.data)
            builder.StartVector(1, size, ALIGNMENT)
            builder.head -= size
            builder.Bytes[builder.head : builder.head + size] = self.data.tobytes()
            data = builder.EndVector()
        schema.BufferStart(builder)
        if data is not None:
            schema.BufferAddData(builder, data)
        return schema.BufferEnd(builder)

    return type("AlignedBuffer", (schema.BufferT,), {"Pack": pack})()
