"""LiteRT, watched operator by operator: each as a model of its own, with its constant weights.

The XNNPACK delegate runs many operators as one and shows nothing between them; so each operator of
the file runs alone, under the same delegate or without one, which also keeps memory flat. That the
outputs have the bits of an unwatched run is checked at the first recording; where they don't, the
whole model is one operation. No lines are written of an operator: its model is bytes.

A model of an operator keeps its constants, its options and what the file says of quantisation; what
it reads else are inputs of the shapes that they have in the run. Its schema is an installed
LiteRT's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from probe.case.errors import Foreign, InputError, foreign
from probe.order import semantics as s
from probe.order.semantics import Call, Meaning, Moves, Unknown
from probe.record import graphs
from probe.record.contract import Input, OpenedFile
from probe.record.graphs import Body, Key, Node
from probe.targets.backends.litert import aligned_buffer

NAMES = {n: name for name, n in vars(schema.BuiltinOperator).items() if isinstance(n, int)}
DTYPES = {
    getattr(schema.TensorType, name.upper()): name
    for name in "float16 float32 float64 bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 "
    "complex64 complex128".split()
}
QUANTISED = "it computes with integers that stand for other numbers"
# Operators that run other subgraphs of the file, which go with them: each is one operation.
NESTED = ("IF", "WHILE", "CALL_ONCE", "STABLEHLO_COMPOSITE", "STABLEHLO_WHILE", "CALL")


class LiteRTFile:
    """A model as it is read. ``body``: its first subgraph. Keys of values: numbers of that one's
    tensors."""

    def __init__(self, content: bytes) -> None:
        root = schema.Model.GetRootAs(content, 0)
        self.model = schema.ModelT.InitFromObj(root)
        graph = self.model.subgraphs[0]
        self.tensors = graph.tensors
        ins, constants = [*map(int, graph.inputs)], dict[Key, np.ndarray]()
        for n, tensor in enumerate(graph.tensors):
            data = self._data(tensor)
            if n not in ins and data is not None and tensor.type in DTYPES:
                shape = () if tensor.shape is None else tuple(tensor.shape)
                constants[n] = data.view(DTYPES[tensor.type]).reshape(shape)
        nodes = (self._node(operator, constants) for operator in graph.operators)
        outs = [int(n) for n in graph.outputs]
        self.body = Body(list(filter(None, nodes)), ins, outs, constants)

    def _data(self, tensor: Any) -> np.ndarray | None:
        data = self.model.buffers[tensor.buffer].data
        return np.asarray(data, np.uint8) if data is not None and len(data) else None

    def _node(self, operator: Any, constants: dict[Key, np.ndarray]) -> Node | None:
        """An operator; None where it widens a constant, which XNNPACK unpacks as a weight: then its
        result is a constant."""
        code = self.model.operatorCodes[operator.opcodeIndex]
        op = NAMES[max(code.builtinCode, code.deprecatedBuiltinCode)]
        if op == "CUSTOM":
            op = str((code.customCode or b"custom").decode(errors="replace"))
        ends = operator.inputs, operator.outputs
        operands, gives = (
            [None if n < 0 else int(n) for n in (() if end is None else end)] for end in ends
        )
        # variables an operator keeps for itself
        slots = [None if k is None or self.tensors[k].isVariable else k for k in operands]
        half = constants.get(slots[0]) if slots else None
        if op == "DEQUANTIZE" and half is not None and half.dtype == np.float16:
            constants[gives[0]] = half.astype(np.float32)
            return None
        options = operator.builtinOptions or operator.builtinOptions2
        words = {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in ({} if options is None else vars(options)).items()
        }
        path = self.name(gives[0]).removesuffix(":0") if gives else op
        return Node(operator, op, slots, gives, words=words, path=path)

    def name(self, key: Key) -> str:
        text = self.tensors[key].name
        return text.decode(errors="replace") if isinstance(text, bytes) else str(text or key)

    def scaled(self, key: Key) -> bool:
        """Whether a tensor's integers stand for other numbers."""
        quantisation = self.tensors[key].quantization
        scale = None if quantisation is None else quantisation.scale
        return scale is not None and len(scale) > 0

    def inputs(self) -> tuple[Input, ...]:
        """The model's inputs; None for the batch, and for sizes that are left open."""
        inputs = []
        for key in self.body.inputs:
            tensor, name = self.tensors[key], self.name(key)
            if tensor.type not in DTYPES:
                why = "this input is not an array"
                raise InputError("network", name, why, "export it with arrays")
            sizes = tensor.shape if tensor.shapeSignature is None else tensor.shapeSignature
            shape = tuple(None if n < 0 else int(n) for n in ([] if sizes is None else sizes))
            inputs.append(Input(name, shape, DTYPES[tensor.type]))
        return tuple(inputs)

    def model_of(
        self, node: Node, fed: graphs.Fed, shapes: graphs.Fed, constants: graphs.Replaced
    ) -> bytes:
        """A model of an operator, whose results are its outputs. Its tensors have the
        file's numbers; all that it doesn't use are empty.

        ``fed``: what it reads from before; ``shapes``: of values, where they aren't the file's;
        ``constants``: those of the file, or other numbers for them.
        """
        model, graph, empty = schema.ModelT(), schema.SubGraphT(), aligned_buffer(schema)
        # the schema asks for a first buffer that is empty: it is that of all tensors without one
        model.buffers = list(self.model.buffers) if node.op in NESTED else [empty]
        ends = node.native.inputs, node.native.outputs
        used = {int(n) for end in ends if end is not None for n in end}
        graph.tensors = []
        for n, tensor in enumerate(self.tensors):
            graph.tensors.append(copy(tensor) if n in used else schema.TensorT())
            if n not in used:
                continue
            graph.tensors[n].buffer, graph.tensors[n].shapeSignature = 0, None
            if n in fed or n in shapes:
                graph.tensors[n].shape = list((fed.get(n) or shapes[n])[0])
            data = constants[n] if n in constants else self._data(tensor)
            if n not in fed and data is not None:
                graph.tensors[n].buffer = len(model.buffers)
                model.buffers.append(aligned_buffer(schema))
                model.buffers[-1].data = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        graph.operators, graph.name = [node.native], b"main"
        graph.inputs, graph.outputs = list(fed), list(node.gives)
        model.operatorCodes, model.version = self.model.operatorCodes, self.model.version
        model.subgraphs = [graph, *(self.model.subgraphs[1:] if node.op in NESTED else ())]
        size = sum(len(buffer.data) for buffer in model.buffers if buffer.data is not None)
        builder = schema.flatbuffers.Builder(size + 4096)
        builder.Finish(model.Pack(builder), file_identifier=b"TFL3")
        return bytes(builder.Output())


class LiteRTOperators(graphs.Graph):
    """A file's operators with the model's inputs."""

    BY_SHAPE = frozenset(("SHAPE", "RANK"))

    def __init__(
        self,
        file: LiteRTFile,
        inputs: Mapping[str, np.ndarray],
        switches: Mapping[str, str],
    ) -> None:
        self.file, self.switches = file, switches
        super().__init__(file.body, {n: inputs[file.name(n)] for n in file.body.inputs})

    def started(self, node: Node, fed: graphs.Fed, replaced: graphs.Replaced) -> graphs.Runner:
        numbers = {**self.constants, **replaced}
        model = self.file.model_of(node, fed, self.kinds, numbers)
        interpreter = interpreter_of(model, self.switches)
        interpreter.allocate_tensors()

        def run(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
            for detail, array in zip(interpreter.get_input_details(), arrays, strict=True):
                interpreter.set_tensor(detail["index"], array)
            # states of recurrent operators stay from one run to the next
            interpreter.reset_all_variables()
            interpreter.invoke()
            gives = [detail["index"] for detail in interpreter.get_output_details()]
            return [interpreter.get_tensor(n) for n in gives]

        return run

    def meaning(self, node: Node, call: Call) -> Meaning:
        scaled = any(self.file.scaled(key) for key in (*node.reads, *node.gives))
        means = meaning(call)
        return means if isinstance(means, Moves) or not scaled else Unknown(QUANTISED)

    def name(self, key: Key) -> str:
        return self.file.name(key)


def interpreter_of(model: bytes, switches: Mapping[str, str]) -> Any:
    """An interpreter of a model: ``threads``, and ``xnnpack``: 0 for the built-in kernels."""
    words: dict[str, Any] = {}
    if "threads" in switches:
        words["num_threads"] = int(switches["threads"])
    if switches.get("xnnpack") == "0":
        words["experimental_op_resolver_type"] = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    return Interpreter(model_content=model, **words)


class LiteRTRecorder(graphs.GraphRecorder):
    """A model with its inputs.

    ``model``: the file, or its bytes. ``inputs``: arrays by the names of the model's inputs.
    ``switches``: ``threads`` and ``xnnpack`` (0: LiteRT's built-in kernels). InputError where
    LiteRT refuses the model or the inputs.
    """

    LIBRARY = "litert"

    def __init__(
        self,
        model: Path | str | bytes,
        inputs: Mapping[str, np.ndarray],
        switches: Mapping[str, str] | None = None,
    ) -> None:
        self.name = "model" if isinstance(model, bytes) else Path(model).name
        content = model if isinstance(model, bytes) else graphs.content(Path(model))
        super().__init__(content, inputs, switches)

    def plain(self) -> list[np.ndarray]:
        opening = partial(interpreter_of, self.model, self.switches)
        interpreter = graphs.read(self.name, opening, AGAIN)
        details = interpreter.get_input_details()
        arrays = self.inputs_named(detail["name"] for detail in details)

        def invoke() -> None:
            for detail in details:
                if tuple(detail["shape"]) != arrays[detail["name"]].shape:
                    interpreter.resize_tensor_input(detail["index"], arrays[detail["name"]].shape)
            interpreter.allocate_tensors()
            for detail in details:
                interpreter.set_tensor(detail["index"], arrays[detail["name"]])
            interpreter.invoke()

        try:
            foreign(invoke)
        except Foreign as error:
            raise graphs.refused("LiteRT", self.inputs, error.__cause__) from None
        ends = interpreter.get_output_details()
        return [interpreter.get_tensor(detail["index"]) for detail in ends]

    def cuts(self) -> Iterator[LiteRTOperators]:
        yield LiteRTOperators(LiteRTFile(self.model), self.inputs, self.switches)


AGAIN = "convert or download it again"


def opened(
    path: Path, trust: bool = False, switches: Mapping[str, str] | None = None
) -> OpenedFile:
    """Opens a ``.tflite`` file, which runs no code. InputError where it can't be read.

    ``switches``: of the target, ``threads`` and ``xnnpack``.
    """
    path = Path(path)
    file = graphs.read(path.name, lambda: LiteRTFile(graphs.content(path)), AGAIN)
    inputs = graphs.read(path.name, file.inputs, AGAIN)
    return OpenedFile(inputs, lambda arrays: LiteRTRecorder(path, arrays, switches))


# what operators compute

# What each operator computes.
TABLE = s.OperationTable()

REDUCES = s.word_list("MEAN SUM REDUCE_PROD:prod")

# Activations that an operator applies, by their number in the schema.
FUSED = {
    1: s.clip(0, None),
    2: s.clip(-1, 1),
    3: s.clip(0, 6),
    4: s.function("tanh"),
    5: s.function("sign_bit"),
}


def _strides_and_dilations(c: Call) -> tuple[tuple[int, ...], tuple[int, ...]]:
    dilations = (int(c.get(f"dilation{axis}Factor", 1) or 1) for axis in "HW")
    return (int(c["strideH"]), int(c["strideW"])), tuple(dilations)


def _lite_padding(
    c: Call, ins: Sequence[int], outs: Sequence[int], *window: Sequence[int]
) -> s.Padding:
    kernel, stride, dilation = window
    if c["padding"] == 1:
        return ((0, 0),) * len(kernel)
    return s.same_padding(ins[1:-1], outs[1:-1], kernel, stride, dilation)


@TABLE.row("CONV_2D DEPTHWISE_CONV_2D")
def _lite_conv(c: Call) -> s.Meaning:
    kernel, depthwise = c.shape(1)[1:3], c.op != "CONV_2D"
    weights, inner = ((1, 2, 0, 3), 1) if depthwise else ((1, 2, 3, 0), c.shape(1)[-1])
    window = (kernel, *_strides_and_dilations(c))
    padding = _lite_padding(c, c.shape(0), c.gives[0], *window)
    groups, reads = c.shape(0)[-1] // inner, c.places(0, 1, 2)
    return s.convolution(s.Frame(*window, padding), weights, groups, True, reads)


@TABLE.row("TRANSPOSE_CONV")
def _lite_back(c: Call) -> s.Meaning:
    window = (c.shape(1)[1:3], *_strides_and_dilations(c))
    padding = _lite_padding(c, c.gives[0], c.shape(2), *window)  # of the convolution it turns round
    weights, reads = (1, 2, 3, 0), c.places(2, 1, 3)
    return s.convolution(s.Frame(*window, padding, True), weights, 1, True, reads)


@TABLE.row({"MAX_POOL_2D": "max", "AVERAGE_POOL_2D": "average"})
def _lite_pool(c: Call, kind: str) -> s.Meaning:
    kernel = int(c["filterHeight"]), int(c["filterWidth"])
    stride = _strides_and_dilations(c)[0]
    padding = _lite_padding(c, c.shape(0), c.gives[0], kernel, stride, (1, 1))
    return s.pool(kind, s.Frame(kernel, stride, (1, 1), padding), channels_last=True)


@TABLE.row("FULLY_CONNECTED")
def _lite_dense(c: Call) -> s.Meaning:
    inner = c.shape(1)[1]
    reads, bias, out = (c.at(0), c.at(1)), c.at(2) if c.has(2) else None, c.gives[0]
    if c.shape(0)[-1] == inner and out[:-1] == c.shape(0)[:-1]:
        return s.dense(reads, bias)
    return s.Unknown("all axes but the last are merged")


TABLE |= {
    **s.rows_for(REDUCES, lambda c, word: s.reduced(word, c.integers(1))),
    "SQRT": lambda c: s.approximate("sqrt"),  # XNNPACK's; the built-in kernel's is exact
    "BATCH_MATMUL": lambda c: s.matmul(turned=(bool(c.get("adjX")), bool(c.get("adjY")))),
    "ADD_N": lambda c: s.several("add", c.count),
    # the operator's own types may be left out; those of its tensors are always there
    "CAST": lambda c: s.cast(c.dtype(0), c.dtypes[0]),
    "GELU": lambda c: s.gelu(bool(c.get("approximate"))),
    "RELU6": lambda c: FUSED[3],
    "RELU_N1_TO_1": lambda c: FUSED[2],
    "RELU_0_TO_1": lambda c: s.clip(0, 1),
    **s.rows_for("SOFTMAX LOG_SOFTMAX", lambda c: s.normalised(c.op.lower(), (-1,))),
    **s.rows_for("RESHAPE EXPAND_DIMS SQUEEZE", lambda c: s.Reshapes()),
    "TRANSPOSE": lambda c: s.transpose(c.integers(1)),
    **s.rows_for("IF WHILE", lambda c: s.Unknown("what it runs inside is one operation")),
}


def meaning(c: Call) -> s.Meaning:
    """What an operator computes, with the activation that it applies behind."""
    number = int(c.get("fusedActivationFunction") or 0)
    means = s.by_table(TABLE, c)
    return s.then(c, means, FUSED[number]) if number else means
