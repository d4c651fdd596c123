"""Runs LiteRT's interpreter on .tflite models such as TensorFlow's converter writes.

A model holds one operation and its weights, and has one shape. Padding is PAD or PADV2
(TensorFlow's SAME and VALID are the operators' own). One spatial axis gets a height of 1, so
``conv1d`` is CONV_2D. ``matmul`` and ``dense`` are FULLY_CONNECTED, and the bias of what has none
is zeros.

A ``LiteRTGraph`` (tensors, constants and operators of LiteRT's schema) is recorded without LiteRT;
its ``LiteRTModel`` is packed once by the schema of an installed one, no TensorFlow is needed, and
arrays are copied into the finished bytes. Buffer 0 of a model is empty by definition; every
constant has its own.
"""

from collections import namedtuple
from operator import itemgetter
from typing import Any

import numpy as np

from probe.case.operation import OPERATIONS, operand_names, operation_of_spec, windows_of_spec
from probe.targets.backends.contract import (
    Key,
    PoolingLibrary,
    Unsupported,
    composed_pool,
    pool_kind,
)
from probe.targets.backends.source import InputShape, Source, Writing

KEYS = {
    "xnnpack": Key(("0", "1"), "1", "the XNNPACK delegate; 0: LiteRT's built-in kernels"),
    "threads": Key(None, "1", "threads of the interpreter"),
}
# Spec's op -> the schema's operator.
OPERATORS = {
    "conv1d": "CONV_2D",
    "conv2d": "CONV_2D",
    "conv3d": "CONV_3D",
    "depthwise_conv2d": "DEPTHWISE_CONV_2D",
    "conv1d_transpose": "TRANSPOSE_CONV",
    "conv2d_transpose": "TRANSPOSE_CONV",
    "matmul": "FULLY_CONNECTED",
    "dense": "FULLY_CONNECTED",
    "max": "MAX_POOL_2D",
    "avg": "AVERAGE_POOL_2D",
}
# Arrays' dtypes -> the schema's.
TYPES = {"float32": "FLOAT32", "float16": "FLOAT16", "int32": "INT32"}
# Operators with options -> the schema's name for these.
OPTIONS = {
    "CONV_2D": "Conv2D",
    "CONV_3D": "Conv3D",
    "DEPTHWISE_CONV_2D": "DepthwiseConv2D",
    "FULLY_CONNECTED": "FullyConnected",
    "TRANSPOSE_CONV": "TransposeConv",
    "MAX_POOL_2D": "Pool2D",
    "AVERAGE_POOL_2D": "Pool2D",
    "PADV2": "PadV2",
    "PAD": "Pad",
    "DIV": "Div",
}
SCHEMA_VERSION = 3
# of a buffer's bytes: the schema's force_align, which the Python packer ignores
ALIGNMENT = 16

# ``inputs``: numbers of tensors, ``output``: one; ``fields``: of the options.
Operation = namedtuple("Operation", "name inputs output fields")


class LiteRT(Writing):
    """ai_edge_litert's Interpreter, one process a target."""

    name = "litert"
    distributions = ("ai-edge-litert",)
    module = "ai_edge_litert"
    keys = KEYS
    doc = "a .tflite model of one operator; XNNPACK"
    suggestions = (",xnnpack=0", ",threads=2", ",xnnpack=0,threads=2")
    operations = tuple(n for n in OPERATIONS if n in OPERATORS or "pool" in n)
    dtypes = ("float32", "float16")
    undilated = ("max", "avg")
    title = "LiteRT"
    version_text = 'metadata.version("ai-edge-litert")'
    standard = ("from importlib import metadata",)
    modules = ("ai-edge-litert",)
    constant_weights = True

    def described(self, switches, device, version):
        resolver = ", OpResolverType" * (switches.get("xnnpack") == "0")
        self.imports = ("from ai_edge_litert.interpreter import Interpreter" + resolver,)
        return Writing.described(self, switches, device, version)

    def start(self, switches, device):
        from importlib import metadata

        version = metadata.version(self.distributions[0])
        self.refusals = (RuntimeError, ValueError)
        self.opened(switches, device, version)
        return self.facts(threads=int(switches.get("threads", 1)))

    def check(self, layer):
        Writing.check(self, layer)
        if pool_kind(layer) and layer["dtype"] != "float32":
            raise Unsupported("dtype=%s: LiteRT's pooling has float32" % layer["dtype"])
        if operation_of_spec(layer).transposed:
            plain = layer["groups"] == 1 and set(layer["dilation"]) == {1}
            if not plain or layer["padding"] not in ("valid", "same"):
                raise Unsupported("TRANSPOSE_CONV has valid and same, no dilation and no groups")

    def emit(self, layer, shapes):
        graph = LiteRTGraph(layer["dtype"], shapes.shape)
        model = LiteRTModel(graph, operators(graph, layer))
        words = ["model_content=model"]
        if "threads" in self.switches:
            words.append("num_threads=" + self.switches["threads"])
        if self.switches.get("xnnpack") == "0":
            built_in = "OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES"
            words.append("experimental_op_resolver_type=" + built_in)
        return Source(
            enter=("x = x[:, None]",) if graph.flat else (),
            load=(
                "interpreter = Interpreter(%s)" % ", ".join(words),
                "interpreter.allocate_tensors()",
                'source = interpreter.get_input_details()[0]["index"]',
                'sink = interpreter.get_output_details()[0]["index"]',
            ),
            run=(
                "interpreter.set_tensor(source, x)",
                "interpreter.invoke()",
                "y = interpreter.get_tensor(sink)",
            ),
            leave="y[:, 0]" if graph.flat else "y",
            held=("model",),
            hold=model,
        )

    def kernels(self, spec, shapes):
        """The operators that the interpreter runs, each with who runs it."""
        if pool_kind(spec):
            return {}
        source = self.emit(spec, InputShape(spec, shapes["x"]))
        named = dict(shapes, b=(spec["filters"],))
        zeros = {name: np.zeros(named[name], spec["dtype"]) for name in operand_names(spec)}
        names = dict(self.namespace, **source.hold(zeros))
        self.guarded(lambda: exec("\n".join(source.load), names))()
        return {"interpreter": runners(names["interpreter"]._get_ops_details())}


def runners(details):
    """Of the interpreter's list of operators: ``CONV_2D by XNNPACK``, ``PAD built in``, in order.

    Operators that a delegate took stay in the list; the delegate itself stands behind them.
    """
    delegates = [operator for operator in details if operator["op_name"] == "DELEGATE"]
    read = {int(tensor) for delegate in delegates for tensor in delegate["inputs"]}
    written = {int(tensor) for delegate in delegates for tensor in delegate["outputs"]}
    names, delegated = [], False
    for operator in details[::-1]:
        if operator["op_name"] == "DELEGATE":
            continue
        output = int(operator["outputs"][0])
        delegated = output in written or (delegated and output not in read)
        names.append(operator["op_name"] + (" by XNNPACK" if delegated else " built in"))
    return names[::-1]


def operators(graph, spec):
    """The tensor behind an operation of the graph's input. Raises Unsupported."""
    x = graph.x
    if pool_kind(spec):
        return pool_operators(graph, spec, x)
    if OPERATORS[spec["op"]] == "FULLY_CONNECTED":
        shape, keep = x.shape[:-1] + (spec["filters"],), len(x.shape) > 2
        inputs = [x] + weight_operands(graph, spec)
        return graph.operator("FULLY_CONNECTED", inputs, shape, keepNumDims=keep)
    return convolution_operators(graph, spec, x)


def weight_operands(graph, spec):
    """The weights and the bias of a spec; zeros where it has none."""
    dtype, filters = graph.dtype, (spec["filters"],)
    shape, content = kernel_shape(spec), lambda operands: schema_weights(spec, operands["w"])
    bias = itemgetter("b") if spec["bias"] else np.zeros(filters, dtype)
    return [
        LiteRTTensor(graph, "w", shape, dtype, content),
        LiteRTTensor(graph, "b", filters, dtype, bias),
    ]


def ahead(spec, name):
    """Sizes of ``kernel``, ``stride`` or ``dilation``, behind a 1 for the height of a flat spec."""
    return [1] * (len(spec["kernel"]) == 1) + list(spec[name])


def convolution_operators(graph, spec, x):
    """A convolution, behind PAD where its padding is neither SAME nor VALID."""
    same, inputs = spec["padding"] == "same", weight_operands(graph, spec)
    shape, pads = window_outputs(spec, x)
    if operation_of_spec(spec).transposed:
        fields = dict(zip(("strideH", "strideW"), ahead(spec, "stride")))
        sizes = graph.constant("sizes", np.array(shape, np.int32))
        inputs, fields["padding"] = [sizes, inputs[0], x, inputs[1]], spec["padding"].upper()
        return graph.operator("TRANSPOSE_CONV", inputs, shape, **fields)
    if not same:
        x = graph.padded(x, pads)
    fields = {"padding": "SAME" if same else "VALID"}
    steps = zip("WHD", ahead(spec, "stride")[::-1], ahead(spec, "dilation")[::-1])
    for axis, stride, dilation in steps:
        fields["stride" + axis] = stride
        fields[f"dilation{axis}Factor"] = dilation
    if spec["op"] == "depthwise_conv2d":
        fields["depthMultiplier"] = spec["filters"] // spec["in_channels"]
    return graph.operator(OPERATORS[spec["op"]], [x] + inputs, shape, **fields)


def window_outputs(spec, x):
    """The shape of what windows give of x, and their padding. Raises Unsupported: none fits."""
    rank = len(spec["kernel"])
    spans = windows_of_spec(spec).spans(x.shape[-1 - rank : -1])
    if not all(span.outputs for span in spans):
        raise Unsupported(f"input {list(x.shape)}: no window fits into it")
    sizes = x.shape[: -1 - rank] + tuple(span.outputs for span in spans)
    return sizes + (spec["filters"],), [(span.before, span.after) for span in spans]


def pool_operators(graph, spec, x):
    """A pool: a maximum or an average of what is there by LiteRT's SAME, else behind a PAD."""
    (high, wide), (down, along) = ahead(spec, "kernel"), ahead(spec, "stride")
    fields = {"filterHeight": high, "filterWidth": wide, "strideH": down, "strideW": along}
    unpadded = dict(spec, padding="valid", ceil_mode=False)

    def operator(x, padding):
        shape = window_outputs(dict(unpadded, padding=padding), x)[0][:-1] + x.shape[-1:]
        name, words = OPERATORS[pool_kind(spec)], dict(fields, padding=padding.upper())
        return graph.operator(name, [x], shape, **words)

    def native(x, spans):
        by_operator = spec["padding"] == "same" and spec["pad_with"] != "zeros"
        return (
            operator(x, "same") if by_operator and not any(span.beyond for span in spans) else None
        )

    library = PoolingLibrary(
        graph.padded,
        lambda x: operator(x, "valid"),
        lambda x: graph.constant("ones", np.ones((1,) + x.shape[1:-1] + (1,), graph.dtype)),
        native,
    )
    return composed_pool(spec, library, x.shape[-1 - len(spec["kernel"]) : -1], x)


def kernel_shape(spec):
    kernel, filters = tuple(ahead(spec, "kernel")), spec["filters"]
    channels = spec["in_channels"] // spec["groups"]
    if OPERATORS[spec["op"]] == "FULLY_CONNECTED":
        return (filters, channels)
    if spec["op"] == "conv3d":
        return kernel + (channels, filters)
    if spec["op"] == "depthwise_conv2d":
        return (1,) + kernel + (filters,)
    return (filters,) + kernel + (channels,)


def schema_weights(spec, w):
    """A container array (*kernel, channels/groups, filters) in the operator's layout."""
    if OPERATORS[spec["op"]] == "FULLY_CONNECTED":
        w = w.reshape(w.shape[-2:]).T
    if OPERATORS[spec["op"]] in ("CONV_2D", "TRANSPOSE_CONV"):
        w = np.moveaxis(w, -1, 0)
    return w.reshape(kernel_shape(spec))


class LiteRTTensor:
    """One tensor of a graph. ``content``: an array, f(operands) -> array, or None for what is
    computed."""

    def __init__(self, graph, name, shape, dtype, content=None):
        self.graph, self.name, self.dtype, self.content = graph, name, dtype, content
        self.shape, self.index = tuple(map(int, shape)), len(graph.tensors)
        graph.tensors.append(self)

    def __truediv__(self, other):
        return self.graph.operator("DIV", [self, other], self.shape)


class LiteRTGraph:
    """A model of one input ``x``, as it is recorded. ``dtype``: of what is computed.

    ``shape``: (batch, *spatial, channels); one spatial axis gets a height of 1: ``flat``.
    """

    def __init__(self, dtype, shape):
        self.dtype, self.tensors, self.operations = dtype, [], []
        self.flat = len(shape) == 3
        self.x = LiteRTTensor(self, "x", shape[:1] + (1,) * self.flat + shape[1:], dtype)

    def constant(self, name, array):
        return LiteRTTensor(self, name, array.shape, str(array.dtype), array)

    def operator(self, name, inputs, shape, **fields):
        y = LiteRTTensor(self, name.lower(), shape, self.dtype)
        numbers = [tensor.index for tensor in inputs]
        self.operations.append(Operation(name, numbers, y.index, fields))
        return y

    def padded(self, x, pairs, value=0.0):
        """x with ``value`` around it; ``pairs`` of its last axes but the channels.

        x itself where they are all 0.
        """
        ahead = len(x.shape) - 1 - len(pairs)
        pairs = np.array([(0, 0)] * ahead + [tuple(pair) for pair in pairs] + [(0, 0)], np.int32)
        if not pairs.any():
            return x
        shape = [size + before + after for size, (before, after) in zip(x.shape, pairs.tolist())]
        inputs = [x, self.constant("pads", pairs)]
        if value:
            inputs.append(self.constant("number", np.array(value, self.dtype)))
        return self.operator("PADV2" if value else "PAD", inputs, shape)


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
        graph, model, codes = schema.SubGraphT(), schema.ModelT(), []
        graph.name, graph.inputs, graph.outputs = "main", [self.graph.x.index], [self.y.index]
        graph.tensors, graph.operators, model.operatorCodes = [], [], []
        model.version, model.subgraphs, model.buffers = SCHEMA_VERSION, [graph], []
        model.buffers.append(aligned_buffer(schema))
        for tensor in self.graph.tensors:
            packed = schema.TensorT()
            packed.name, packed.shape, packed.buffer = tensor.name, list(tensor.shape), 0
            packed.type = getattr(schema.TensorType, TYPES[tensor.dtype])
            graph.tensors.append(packed)
            if tensor.content is not None:
                zeros = callable(tensor.content)
                array = np.zeros(tensor.shape, tensor.dtype) if zeros else tensor.content
                packed.buffer = len(model.buffers)
                model.buffers.append(aligned_buffer(schema))
                model.buffers[-1].data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        for operation in self.graph.operations:
            name, packed = operation.name, schema.OperatorT()
            if name not in codes:
                code, number = schema.OperatorCodeT(), getattr(schema.BuiltinOperator, name)
                # the older field is a byte: 127 in it says that the newer one counts
                code.builtinCode, code.deprecatedBuiltinCode = number, min(number, 127)
                code.version = 1
                codes.append(name)
                model.operatorCodes.append(code)
            packed.opcodeIndex = codes.index(name)
            packed.inputs, packed.outputs = operation.inputs, [operation.output]
            graph.operators.append(packed)
            if name in OPTIONS:
                options = OPTIONS[name] + "Options"
                packed.builtinOptionsType = getattr(schema.BuiltinOptions, options)
                packed.builtinOptions = getattr(schema, options + "T")()
                for field, value in operation.fields.items():
                    if field == "padding":
                        value = getattr(schema.Padding, value)
                    setattr(packed.builtinOptions, field, value)
        builder = schema.flatbuffers.Builder(1024)
        builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
        self.packed = bytearray(builder.Output())
        buffers = schema.Model.GetRootAs(self.packed, 0).Buffers
        # packed once with zeros; each set of operands is copied into these places
        for packed, tensor in zip(graph.tensors, self.graph.tensors):
            if callable(tensor.content):
                self.places.append((buffers(packed.buffer).DataAsNumpy(), tensor.content))


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
