"""A .tflite model as it is written: tensors, constants and operators of LiteRT's own schema.

No TensorFlow is needed. Buffer 0 of a model is empty by definition; every constant has its own.
"""

import numpy as np

#: Arrays' dtypes -> the schema's.
TYPES = {"float32": "FLOAT32", "float16": "FLOAT16", "int32": "INT32", "bool": "BOOL"}
#: Operators that apply an activation themselves, and those activations, as converters fuse them.
FUSING = (
    *("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "MAX_POOL_2D", "AVERAGE_POOL_2D"),
    *("ADD", "SUB", "MUL", "DIV"),
)
FUSED = ("RELU", "RELU6")
SCHEMA_VERSION = 3
ALIGNMENT = 16  # of a buffer's bytes: the schema's force_align, which the Python packer ignores


class Value:
    """One tensor of a graph; the quotient of two is another."""

    def __init__(self, graph, index, shape, buffer):
        self.graph, self.index, self.shape, self.buffer = graph, index, tuple(shape), buffer

    def __truediv__(self, other):
        return self.graph.operator("DIV", [self, other], self.shape, "DivOptions")


class Graph:
    """A model of one input ``x``. ``schema``: the module; ``dtype``: of what is computed."""

    def __init__(self, schema, dtype, shape):
        self.schema, self.dtype = schema, dtype
        self.tensors, self.operators, self.names, self.codes = [], [], [], []
        self.buffers = [aligned_buffer(schema)]
        self.x = self._tensor("x", shape, dtype, 0)

    def constant(self, name, array):
        """A Value whose numbers the model holds."""
        buffer = aligned_buffer(self.schema)
        buffer.data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self.buffers.append(buffer)
        return self._tensor(name, array.shape, str(array.dtype), len(self.buffers) - 1)

    def scalar(self, number):
        """A constant of no axes."""
        return self.constant("number", np.array(number, self.dtype))

    def operator(self, name, inputs, shape, options=None, dtype=None, **fields):
        """The Value of one operator's output. ``fields``: of its options."""
        made = self.schema.OperatorT()
        if name not in self.codes:
            self.codes.append(name)
        made.opcodeIndex, made.inputs = self.codes.index(name), [one.index for one in inputs]
        if options:
            made.builtinOptionsType = getattr(self.schema.BuiltinOptions, options)
            made.builtinOptions = getattr(self.schema, options + "T")()
            for field, value in fields.items():
                setattr(made.builtinOptions, field, value)
        y = self._tensor(name.lower(), shape, dtype or self.dtype, 0)
        made.outputs = [y.index]
        self.operators.append(made)
        self.names.append(name)
        return y

    def clamped(self, x, activation):
        """RELU or RELU6 of x: by the operator that makes x where that can, else one of its own."""
        if self.names and self.names[-1] in FUSING and self.operators[-1].outputs == [x.index]:
            options, kinds = self.operators[-1].builtinOptions, self.schema.ActivationFunctionType
            if options.fusedActivationFunction == kinds.NONE:
                options.fusedActivationFunction = getattr(kinds, activation)
                return x
        return self.operator(activation, [x], x.shape)

    def padded(self, x, pairs, value=0.0):
        """x with ``value`` around it; ``pairs`` of all axes. x itself where they are all 0."""
        pairs = np.array(pairs, np.int32)
        if not pairs.any():
            return x
        shape = [size + before + after for size, (before, after) in zip(x.shape, pairs.tolist())]
        pads = self.constant("pads", pairs)
        if not value:
            return self.operator("PAD", [x, pads], shape, "PadOptions")
        return self.operator("PADV2", [x, pads, self.scalar(value)], shape, "PadV2Options")

    def packed(self, y, description):
        """The model's bytes, a bytearray; ``y``: its output."""
        schema, graph, model = self.schema, self.schema.SubGraphT(), self.schema.ModelT()
        graph.name, graph.inputs, graph.outputs = "main", [self.x.index], [y.index]
        graph.tensors, graph.operators = self.tensors, self.operators
        model.version, model.subgraphs, model.buffers = SCHEMA_VERSION, [graph], self.buffers
        model.description = description
        model.operatorCodes = [self._code(name) for name in self.codes]
        builder = schema.flatbuffers.Builder(1024)
        builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
        return bytearray(builder.Output())

    def _tensor(self, name, shape, dtype, buffer):
        tensor = self.schema.TensorT()
        tensor.name, tensor.shape, tensor.buffer = name, [int(size) for size in shape], buffer
        tensor.type = getattr(self.schema.TensorType, TYPES[dtype])
        self.tensors.append(tensor)
        return Value(self, len(self.tensors) - 1, tensor.shape, buffer)

    def _code(self, name):
        made, code = self.schema.OperatorCodeT(), getattr(self.schema.BuiltinOperator, name)
        made.builtinCode, made.deprecatedBuiltinCode, made.version = code, min(code, 127), 1
        return made


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
