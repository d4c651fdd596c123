"""Writes .tflite models: tensors, constants and operators of LiteRT's schema.

A Graph is recorded without LiteRT; its Model is packed once by the schema of an installed one, no
TensorFlow is needed, and arrays are copied into the finished bytes. Buffer 0 of a model is empty by
definition; every constant has its own.
"""

from collections import namedtuple
from typing import Any

import numpy as np

from probe.backends.contract import Unsupported

#: Arrays' dtypes -> the schema's.
TYPES = {"float32": "FLOAT32", "float16": "FLOAT16", "int32": "INT32", "bool": "BOOL"}
#: Operators with options -> the schema's name for these.
OPTIONS = {
    "BATCH_MATMUL": "BatchMatMul",
    "CONV_2D": "Conv2D",
    "CONV_3D": "Conv3D",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2D",
    "FULLY_CONNECTED": "FullyConnected",
    "MAX_POOL_2D": "Pool2D",
    "AVERAGE_POOL_2D": "Pool2D",
    "PADV2": "PadV2",
    "LEAKY_RELU": "LeakyRelu",
}
_SAME = "ABS ADD CONCATENATION DIV EXP GELU GREATER MUL PAD SELECT SLICE SOFTMAX SUB"
OPTIONS.update((name, name.title()) for name in _SAME.split())
#: Operators that apply an activation themselves, and those activations, as converters fuse them.
FUSING = (
    *("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "MAX_POOL_2D", "AVERAGE_POOL_2D"),
    *("ADD", "SUB", "MUL", "DIV"),
)
FUSED = ("RELU", "RELU6")
#: Options whose values are names of an enumeration of the schema.
NAMED = {"padding": "Padding", "fusedActivationFunction": "ActivationFunctionType"}
SCHEMA_VERSION = 3
ALIGNMENT = 16  # of a buffer's bytes: the schema's force_align, which the Python packer ignores

#: ``content``: an array, f(operands) -> array, or None for what is computed.
Tensor = namedtuple("Tensor", "name shape dtype content")
#: ``inputs``: numbers of tensors, ``output``: one; ``fields``: of the options.
Operation = namedtuple("Operation", "name inputs output fields")


class LiteRTTensor:
    """One tensor of a graph. ``shared``: whether more than one operator reads it."""

    shared = False

    def __init__(self, graph, index, shape):
        self.graph, self.index, self.shape = graph, index, tuple(shape)

    def __truediv__(self, other):
        return self.graph.each("DIV", self, other)


class LiteRTGraph:
    """A model of one input ``x``, as it is recorded. ``dtype``: of what is computed.

    ``shape``: (batch, *spatial, channels); one spatial axis gets a height of 1: ``flat``.
    """

    def __init__(self, dtype, shape):
        self.dtype, self.tensors, self.operations = dtype, [], []
        self.flat = len(shape) == 3
        self.x = self._tensor("x", shape[:1] + (1,) * self.flat + shape[1:], dtype)

    def axis(self, axis):
        """Returns where an axis of (batch, *spatial, channels) is in the model."""
        return axis + (self.flat and axis > 0)

    def constant(self, name, array):
        """Returns a Value whose numbers the model holds."""
        return self._tensor(name, array.shape, str(array.dtype), array)

    def operand(self, name, shape, layout):
        """A Value whose numbers the model holds: ``layout(operands)``, an array of this shape."""
        return self._tensor(name, shape, self.dtype, layout)

    def operator(self, name, inputs, shape, **fields):
        """Returns the Value of one operator's output. ``fields``: of its options."""
        y = self._tensor(name.lower(), shape, "bool" if name == "GREATER" else self.dtype)
        self.operations.append(Operation(name, [one.index for one in inputs], y.index, fields))
        return y

    def each(self, name, x, *others, **fields):
        """The Value of an operator that gives a number for each of x; ``others`` may be numbers.

        RELU and RELU6 are fused into the operator that makes x where that can.
        """
        if name in FUSED and self.operations and not x.shared:
            last = self.operations[-1]
            free = last.name in FUSING and "fusedActivationFunction" not in last.fields
            if free and last.output == x.index:
                last.fields["fusedActivationFunction"] = name
                return x
        inputs = [x] + [
            one if isinstance(one, LiteRTTensor) else self._number(one) for one in others
        ]
        return self.operator(name, inputs, x.shape, **fields)

    def padded(self, x, pairs, value=0.0):
        """x with ``value`` around it; ``pairs`` of its last axes but the channels.

        x itself where they are all 0.
        """
        ahead = len(x.shape) - 1 - len(pairs)
        pairs = np.array([(0, 0)] * ahead + [tuple(pair) for pair in pairs] + [(0, 0)], np.int32)
        if not pairs.any():
            return x
        shape = [size + before + after for size, (before, after) in zip(x.shape, pairs.tolist())]
        inputs = [x, self.constant("pads", pairs)] + ([self._number(value)] if value else [])
        return self.operator("PADV2" if value else "PAD", inputs, shape)

    def _number(self, number):
        return self.constant("number", np.array(number, self.dtype))

    def _tensor(self, name, shape, dtype, content=None):
        self.tensors.append(Tensor(name, [int(size) for size in shape], dtype, content))
        return LiteRTTensor(self, len(self.tensors) - 1, shape)


class LiteRTModel:
    """A graph up to its value ``y``; calling it with operands by name gives ``{"model": bytes}``.

    Raises Unsupported where LiteRT, whose schema packs it, is not installed.
    """

    def __init__(self, graph, y):
        self.graph, self.y, self.places = graph, y, []
        self.packed: Any = None

    def __call__(self, operands):
        if self.packed is None:
            self._pack()
        for place, layout in self.places:
            place[:] = np.ascontiguousarray(layout(operands)).reshape(-1).view(np.uint8)
        return {"model": bytes(self.packed)}

    def _pack(self):
        try:
            from ai_edge_litert import schema_py_generated as schema
        except ImportError:
            raise Unsupported("LiteRT where ai-edge-litert is not installed") from None
        graph, model = schema.SubGraphT(), schema.ModelT()
        operations = self.graph.operations
        codes = list(dict.fromkeys(one.name for one in operations))
        model.operatorCodes = []
        for name in codes:
            made, code = schema.OperatorCodeT(), getattr(schema.BuiltinOperator, name)
            # the older field is a byte: 127 in it says that the newer one counts
            made.builtinCode, made.deprecatedBuiltinCode, made.version = code, min(code, 127), 1
            model.operatorCodes.append(made)
        model.buffers = [aligned_buffer(schema)]
        graph.name, graph.inputs, graph.outputs = "main", [self.graph.x.index], [self.y.index]
        graph.tensors = [_schema_tensor(schema, one, model.buffers) for one in self.graph.tensors]
        graph.operators = [_schema_operator(schema, one, codes) for one in operations]
        model.version, model.subgraphs = SCHEMA_VERSION, [graph]
        builder = schema.flatbuffers.Builder(1024)
        builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
        self.packed = bytearray(builder.Output())
        buffers = schema.Model.GetRootAs(self.packed, 0).Buffers
        for made, one in zip(graph.tensors, self.graph.tensors):
            if callable(one.content):
                self.places.append((buffers(made.buffer).DataAsNumpy(), one.content))


def _schema_tensor(schema, one, buffers):
    """Returns a TensorT of the schema; what it holds gets a buffer."""
    made = schema.TensorT()
    made.name, made.shape, made.buffer = one.name, one.shape, 0
    made.type = getattr(schema.TensorType, TYPES[one.dtype])
    if one.content is not None:
        held = np.zeros(one.shape, one.dtype) if callable(one.content) else one.content
        made.buffer = len(buffers)
        buffers.append(aligned_buffer(schema))
        buffers[-1].data = np.ascontiguousarray(held).reshape(-1).view(np.uint8)
    return made


def _schema_operator(schema, one, codes):
    """Returns an OperatorT of the schema."""
    made = schema.OperatorT()
    made.opcodeIndex, made.inputs, made.outputs = codes.index(one.name), one.inputs, [one.output]
    if one.name in OPTIONS:
        options = OPTIONS[one.name] + "Options"
        made.builtinOptionsType = getattr(schema.BuiltinOptions, options)
        made.builtinOptions = getattr(schema, options + "T")()
        for field, value in one.fields.items():
            value = getattr(getattr(schema, NAMED[field]), value) if field in NAMED else value
            setattr(made.builtinOptions, field, value)
    return made


def aligned_buffer(schema):
    """Returns a BufferT of the schema that packs its bytes at a multiple of ALIGNMENT."""

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
