"""ONNX models as graphs of nodes: constants, bodies, models of one node, blocked layouts.

Weights stay constants of a node alone: ONNX Runtime packs constant weights and runs other kernels
on them.

ONNX Runtime's optimiser lays channels out in blocks (NCHWc). A value in this layout is declared as
(batch, channels, height, width), and its memory is (batch, channels / block, height, width, block).
Filters have one or two blocks: of filters, and of input channels where there are enough of them.
Recordings have all of them in ONNX's own order.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf, prod
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, printer

from probe.case import memory
from probe.case.errors import InputError, printable
from probe.order import semantics as s
from probe.order.semantics import Call
from probe.record.contract import Input
from probe.record.graphs import Body, Fed, Node, in_graph_order


@functools.cache
def dtype_of(kind: int) -> str:
    if kind == onnx.TensorProto.BFLOAT16:
        return "bfloat16"
    return str(helper.tensor_dtype_to_np_dtype(kind))


@functools.cache
def onnx_type(dtype: str) -> int:
    kinds = [n for n in onnx.TensorProto.DataType.values() if n != onnx.TensorProto.UNDEFINED]
    return next(n for n in kinds if dtype_of(n) == dtype)


@dataclass(frozen=True)
class Constant:
    """A constant of a model. ``kind``: ONNX's number of its type; ``array``: its container array.

    ``other``: the tensor itself where its bytes are not the array's: texts, numbers of 4 bits.
    """

    kind: int
    array: np.ndarray
    other: Any = None

    @staticmethod
    def of(tensor: Any) -> Constant:
        bfloat16 = tensor.data_type == onnx.TensorProto.BFLOAT16
        array = numpy_helper.to_array(tensor)
        # NumPy has no bfloat16: containers hold its bits as integers
        array = array.view(np.uint16) if bfloat16 else array
        return Constant(tensor.data_type, array, None if array.dtype.kind in "biufc" else tensor)

    @staticmethod
    def held(node: Any) -> Constant | None:
        """What a Constant node holds; None for any other node."""
        if node.op_type != "Constant" or node.domain not in ("", "ai.onnx"):
            return None
        (attribute,) = node.attribute
        value = helper.get_attribute_value(attribute)
        if attribute.name == "value":
            return Constant.of(value)
        kind = {"f": np.float32, "i": np.int64}.get(attribute.name.removeprefix("value_")[:1])
        return None if kind is None else Constant.of(numpy_helper.from_array(np.array(value, kind)))

    def tensor(self, name: str, array: np.ndarray | None = None) -> Any:
        """A tensor of this type; ``array``: other numbers for it."""
        if self.other is not None:
            copied = onnx.TensorProto.FromString(self.other.SerializeToString())
            copied.name = name
            return copied
        array = self.array if array is None else array
        bits = array.tobytes()
        return onnx.TensorProto(name=name, data_type=self.kind, dims=array.shape, raw_data=bits)


# nodes and their bodies


@dataclass(eq=False)
class OnnxNode(Node):
    """A node of a graph, or of a branch in it; values have the names that they have in ``native``.

    ``fed``: constants that it doesn't hold.
    """

    fed: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """Its name, or that of its first result."""
        return str(self.native.name or self.gives[0])

    def proto(self, called: Mapping[Any, str]) -> Any:
        """It as ONNX has it, with values called by their keys, or as ``called``."""
        proto = onnx.NodeProto()
        proto.CopyFrom(self.native)
        proto.name = "" if called else self.native.name
        rename(proto, called)
        proto.output[:] = [called.get(name, name) for name in proto.output]
        return proto


def node_of(proto: Any) -> OnnxNode:
    slots, gives = [name or None for name in proto.input], [name for name in proto.output if name]
    domain = "" if proto.domain == "ai.onnx" else proto.domain  # the domain without a name, too
    words = words_in(proto)
    return OnnxNode(proto, proto.op_type, slots, gives, captured(proto), words, "", domain)


def graphs(proto: Any) -> Iterator[Any]:
    """The graphs in a node's attributes: branches and bodies."""
    for attribute in proto.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def captured(proto: Any) -> list[str]:
    """Names that the graphs in a node read from outside."""
    return list(dict.fromkeys(name for graph in graphs(proto) for name in read_outside(graph)))


def read_outside(graph: Any) -> list[str]:
    """Names that a graph reads from outside."""
    names: dict[str, None] = {}
    inside = {value.name for value in [*graph.input, *graph.initializer]}
    for inner in graph.node:
        read = [name for name in inner.input if name] + captured(inner)
        names.update(dict.fromkeys(name for name in read if name not in inside))
        inside.update(inner.output)
    names.update(dict.fromkeys(value.name for value in graph.output if value.name not in inside))
    return list(names)


def written_once(graph: Any) -> None:
    """Takes out of the bodies in a graph the Constant nodes whose result they hold besides, as in
    models that ONNX Runtime has saved: it reads no such body."""
    for inner in [within for node in graph.node for within in graphs(node)]:
        held = {tensor.name for tensor in inner.initializer}
        kept = [n for n in inner.node if n.op_type != "Constant" or n.output[0] not in held]
        del inner.node[:]
        inner.node.extend(kept)
        written_once(inner)


def rename(proto: Any, names: Mapping[str, str]) -> None:
    """Calls what a node and the graphs in it read otherwise."""
    proto.input[:] = [names.get(name, name) for name in proto.input]
    for graph in graphs(proto):
        for inner in graph.node:
            rename(inner, names)
        for output in graph.output:
            output.name = names.get(output.name, output.name)


def body(graph: Any) -> Body:
    """A graph. Its inputs: its own, but for those that the file holds, and what it reads
    from outside."""
    constants = {tensor.name: Constant.of(tensor) for tensor in graph.initializer}
    nodes = []
    for proto in graph.node:
        if (value := Constant.held(proto)) is None:
            nodes.append(node_of(proto))
        else:  # a weight, as ONNX Runtime itself has it
            constants[proto.output[0]] = value
    gives = [output.name for output in graph.output]
    inputs = [value.name for value in graph.input if value.name not in constants]
    inputs += [name for name in read_outside(graph) if name not in inputs]
    return Body(in_graph_order(nodes, gives), inputs, gives, constants)


# Turns of a loop, or of loops in loops: at some microseconds each, minutes.
MOST_TURNS = 1 << 24
# Nodes that give a single number as it is.
PASSING = ("Identity", "Cast", "Squeeze", "Unsqueeze", "Reshape")


def refuse_unbounded(
    graph: Any, outside: Mapping[str, np.ndarray] | None = None, turns: float = 1
) -> None:
    """InputError where a node of a graph, or of one in it, makes an array of more elements than
    bytes are free: a file of a few bytes then takes all memory. Or where a Loop is to turn more
    than ``MOST_TURNS`` times, and no condition can end it before: the library would be gone, and
    heed no Ctrl-C.

    ``outside``: constants around it, by their names; ``turns``: of loops around it.
    """
    held = _constants(graph, outside or {})
    for node in graph.node:
        elements = _least_elements(node, [held.get(name) for name in node.input])
        memory.require_room(elements, node.op_type, elements)
        inner, count = {**held}, turns
        for name in (value.name for each in graphs(node) for value in getattr(each, "input", ())):
            inner.pop(name, None)
        if node.op_type == "Loop":
            (body,), most = graphs(node), node.input[0] if node.input else ""
            goes = _constants(body, {**inner, body.input[1].name: np.array(True)})
            if goes.get(body.output[0].name, np.array(False)).all():
                count *= max(float(held.get(most, np.array(1)).flat[0]) if most else inf, 1)
            if count > MOST_TURNS:
                often = f"{count:,.0f} times" if count < inf else "for ever"
                why = f"a loop of it turns {often}"
                todo = f"give one of at most {MOST_TURNS:,}"
                raise InputError("network", node.name or node.output[0], why, todo)
        for each in graphs(node):
            refuse_unbounded(each, inner, count)


# Nodes that make an array of a size that a file says, with the input that has its axes, or how
# often each is repeated.
GROWING = {"ConstantOfShape": 0, "Expand": 1, "Tile": 1}


def _least_elements(node: Any, reads: Sequence[np.ndarray | None]) -> int:
    """How many elements a node gives at least, as far as its constants say."""
    reads = [*reads, *[None] * 4]
    op = node.op_type
    if op == "Range":
        ends = [float(end.reshape(-1)[0]) for end in reads[:3] if end is not None]
        return int((ends[1] - ends[0]) / (ends[2] or 1)) if len(ends) == 3 else 0
    if op == "Pad":
        pads = reads[1] if len(node.input) > 1 else words_in(node).get("pads")
        axes = None if pads is None else np.reshape(pads, (2, -1)).astype(object).sum(0)
    elif op in ("Resize", "Upsample"):
        sizes = reads[1] if op == "Upsample" else reads[2] if reads[3] is None else reads[3]
        axes = None if sizes is None else sizes.reshape(-1)
    else:
        axes = reads[GROWING[op]] if op in GROWING else None
    if axes is None or not len(axes):
        return 0
    least = 1 if op in ("Pad", "Resize", "Upsample") else 0
    return prod(max(int(size), least) for size in np.reshape(axes, -1))


def _constants(graph: Any, outside: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Constants of a graph and around it; single numbers also behind what gives them as they
    are."""
    held = dict(outside)
    for tensor in getattr(graph, "initializer", ()):  # a function has none
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            held[tensor.name] = numpy_helper.to_array(tensor)
    for node in graph.node:
        constant = Constant.held(node)
        if constant is not None:
            held[node.output[0]] = constant.array
        elif node.op_type in PASSING and getattr(held.get(node.input[0]), "size", 0) == 1:
            held[node.output[0]] = held[node.input[0]]
    return held


def branch(graph: Any, node: OnnxNode) -> Body:
    """The branch that an ``If`` takes, to stand in its place: it gives what the node gives,
    and its other values have names of their own in the graph around it."""
    taken = onnx.GraphProto()
    taken.CopyFrom(graph)
    held = [tensor.name for tensor in taken.initializer]
    held += [inner.output[0] for inner in taken.node if Constant.held(inner) is not None]
    inside = [name for inner in taken.node for name in inner.output if name]
    names = {name: f"{node.gives[0]}/{name}" for name in [*held, *inside]}
    copies = []
    for output, name in zip(taken.output, node.native.output, strict=False):
        computed = output.name in inside and output.name not in held
        if name and computed and names[output.name] not in node.gives:
            names[output.name] = name
        elif name:  # a constant, a value from outside, or one that is given twice
            copies.append((output.name, name))
    for inner in taken.node:
        rename(inner, names)
        inner.output[:] = [names.get(name, name) for name in inner.output]
    for tensor in taken.initializer:
        tensor.name = names[tensor.name]
    for source, name in copies:
        taken.node.append(helper.make_node("Identity", [names.get(source, source)], [name]))
    del taken.output[:]
    taken.output.extend(onnx.ValueInfoProto(name=name) for name in node.gives)
    return body(taken)


# a model of one node


def submodel(
    node: OnnxNode,
    fed: Fed,
    weights: Mapping[Any, tuple[Constant, np.ndarray | None]],
    like: Any,
    called: Mapping[Any, str],
) -> Any:
    """A model of a node, whose results are its outputs.

    ``fed``: what is read from before; ``weights``: constants, each with other numbers for it;
    ``like``: the model that has the node; ``called``: names of values, where their keys aren't.
    """
    inputs = [
        helper.make_tensor_value_info(called.get(key, key), onnx_type(dtype), None)
        for key, (_, dtype) in fed.items()
    ]
    outputs = [onnx.ValueInfoProto(name=called.get(k, k)) for k in node.gives]
    held = [
        constant.tensor(called.get(key, key), array) for key, (constant, array) in weights.items()
    ]
    graph = helper.make_graph([node.proto(called)], "piece", inputs, outputs, held)
    return onnx.ModelProto(graph=graph, ir_version=like.ir_version, opset_import=like.opset_import)


def model_lines(model: Any, weights: Iterable[tuple[str, str]]) -> list[str]:
    """Lines of Python that make a model: its bytes, behind its text for a reader.
    ``weights``: names of its constants, with arrays."""
    # names and attributes are a stranger's text: no line of it may end the comment
    text = [f"# {printable(line)}" for line in printer.to_text(model).splitlines()]
    return [
        *text,
        f"model = onnx.load_model_from_string({model.SerializeToString()!r})",
        *(
            f'model.graph.initializer.append(numpy_helper.from_array({array}, "{name}"))'
            for name, array in weights
        ),
    ]


def words_in(proto: Any) -> dict[str, Any]:
    """A node's attributes as numbers, texts and lists; tensors as arrays; graphs left out."""
    kinds = onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS
    return {
        attribute.name: _plain_word(helper.get_attribute_value(attribute))
        for attribute in proto.attribute
        if attribute.type not in kinds
    }


def _plain_word(value: Any) -> Any:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, int | float | str):
        return value
    return [_plain_word(item) for item in value] if isinstance(value, Iterable) else str(value)


def graph_inputs(graph: Any) -> tuple[Input, ...]:
    """A graph's inputs that no constant of the file fills. InputError: one is no array."""
    held, inputs = {tensor.name for tensor in graph.initializer}, []
    for value in graph.input:
        kind = value.type.tensor_type
        if value.name in held:
            continue
        if value.type.WhichOneof("value") != "tensor_type":
            why = f"its input {value.name} is not an array but a {value.type.WhichOneof('value')}"
            raise InputError("network", value.name, why, "export the model with arrays as inputs")
        shape = tuple(d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim)
        inputs.append(Input(value.name, shape, dtype_of(kind.elem_type)))
    return tuple(inputs)


# ONNX Runtime's blocked layout


# The domain of operators that work on blocks of channels.
BLOCKED = "com.microsoft.nchwc"
SPLIT = -1

# Of data, of filters with one and with two blocks, which are axes of their own: how they lie in
# memory, and the order back.
ORDERS = {
    0: ((0, 1, 3, 4, 2), (0, 1, 4, 2, 3)),
    1: ((0, 2, 3, 4, 1), (0, 4, 1, 2, 3)),
    2: ((0, 2, 4, 5, 3, 1), (0, 5, 1, 4, 2, 3)),
}


@dataclass(frozen=True)
class Block:
    """How a value's memory is ordered. ``size``: channels in a block.

    ``inner``: 0 for data; for filters, whether there are blocks of input channels too (2) or not
    (1); SPLIT for data with an axis more, which ONNX Runtime makes of blocked data to broadcast it:
    such a value is recorded as it is.
    """

    size: int
    inner: int = 0

    def _steps(self, shape: Sequence[int], back: bool) -> tuple[list[int], tuple[int, ...]]:
        """The shape with blocks as axes, and the order in which these are wanted."""
        n, c, *window = shape
        first = [n // self.size, self.size] if self.inner else [n]
        second = [c] if self.inner == 1 else [c // self.size, self.size]
        split, (order, inverse) = [*first, *second, *window], ORDERS[self.inner]
        return ([split[a] for a in order], inverse) if back else (split, order)

    def turned(self, array: np.ndarray, back: bool = False) -> np.ndarray:
        """An array in ONNX's order, blocked; ``back``: a blocked one in ONNX's order."""
        if self.inner == SPLIT:
            return array
        split, order = self._steps(array.shape, back)
        return np.ascontiguousarray(array.reshape(split).transpose(order)).reshape(array.shape)

    def lines(self, name: str, shape: tuple[int, ...], back: bool = False) -> list[str]:
        """Lines of Python that do the same with the array of this name."""
        if self.inner == SPLIT:
            return []
        split, order = self._steps(shape, back)
        turned = f"np.ascontiguousarray({name}.reshape({split}).transpose({order}))"
        return [
            f"# blocks of {self.size} channels, ONNX Runtime's NCHWc",
            f"{name} = {turned}.reshape({shape})",
        ]


def block_of_outputs(domain: str, op: str, reads: list[Block | None], size: int) -> Block | None:
    """How a node's output lies. Nodes of ONNX's own keep the layout of what they read."""
    if domain == BLOCKED:
        return None if op == "ReorderOutput" else Block(size)
    first = next((block for block in reads if block is not None and block.inner <= 0), None)
    if op == "Reshape" and first is not None:  # to five axes, and back
        return Block(size, 0 if first.inner == SPLIT else SPLIT)
    return first


# what operators compute

# What each operator computes.
TABLE = s.OperationTable()

VARIADIC = s.word_list("Sum:add Max:maximum Min:minimum Mean:average")
REDUCES = s.word_list(
    "ReduceSum:sum ReduceMean:mean ReduceProd:prod ReduceL1:l1 "
    "ReduceL2:l2 ReduceLogSum:log_sum ReduceLogSumExp:logsumexp ReduceSumSquare:sum_square"
)
# Conversions that change no value: ONNX Runtime puts them around kernels that it hasn't.
WIDENS = {
    ("float16", "float32"),
    ("float16", "float64"),
    ("float32", "float64"),
    ("bfloat16", "float32"),
    ("bfloat16", "float64"),
}


def _on(c: Call, name: str, otherwise: int = 0) -> bool:
    return bool(c.get(name, otherwise))


# element by element


def _fused_function(c: Call) -> tuple[s.Meaning, ...]:
    """The activation that a fused operator applies behind, if there is one."""
    name, numbers = c.get("activation"), list(c.get("activation_params", []))
    if not name:
        return ()
    if name == "Clip":
        low, high = (float(number) for number in numbers)
        return (s.clip(low, high),)
    means = s.by_name(name)
    if means is None:
        raise KeyError(name)
    return (means,)


@TABLE.row("Clip")
def _onnx_clip(c: Call) -> s.Meaning:
    low, high = (
        float(c.value(slot).reshape(-1)[0]) if c.has(slot) else c.get(name)
        for slot, name in ((1, "min"), (2, "max"))
    )
    return s.clip(low, high)


@TABLE.row("BiasGelu FastGelu")
def _biased_gelu(c: Call) -> s.Meaning:
    each = s.gelu(approximate=c.op == "FastGelu")
    return s.then(c, s.function("add"), each) if c.has(1) else each


@TABLE.row("Cast CastLike")
def _onnx_cast(c: Call) -> s.Meaning:
    both = c.dtype(), c.dtypes[0]
    return s.Same() if both in WIDENS else s.cast(*both)


# products and windows


@TABLE.row("MatMul FusedMatMul Gemm FusedGemm")
def _onnx_matmul(c: Call) -> s.Meaning:
    if _on(c, "transBatchA") or _on(c, "transBatchB"):
        return s.Unknown("its batch axes are permuted")
    turned = _on(c, "transA"), _on(c, "transB")
    product = s.matmul((c.rank(0), c.rank(1)), turned, (c.at(0), c.at(1)))
    added = s.gemm(c, product, 2, float(c.get("alpha", 1.0)), float(c.get("beta", 1.0)))
    return s.then(c, added, *_fused_function(c))


def _onnx_window(c: Call, kernel: Sequence[int], transposed: bool = False) -> s.Frame:
    rank = len(kernel)
    stride, dilation = c.get("strides", [1] * rank), c.get("dilations", [1] * rank)
    auto, pads = c.get("auto_pad", "NOTSET"), c.get("pads", [0] * 2 * rank)
    if auto in ("NOTSET", "") and not c.get("output_shape"):
        padding = tuple(zip(pads[:rank], pads[rank:], strict=True))
    elif auto == "VALID":
        padding = ((0, 0),) * rank
    else:
        sizes = c.shape()[2:], c.gives[0][2:]
        ins, outs = sizes[::-1] if transposed else sizes
        extra = c.get("output_padding", [0] * rank) if transposed else [0] * rank
        ins = tuple(size - more for size, more in zip(ins, extra, strict=True))
        # SAME_LOWER has the odd zero in front
        padding = s.same_padding(ins, outs, kernel, stride, dilation, auto != "SAME_UPPER")
        if transposed and any(a != b for a, b in padding):
            raise ValueError("where its odd padding goes differs between versions of ONNX")
    return s.Frame(tuple(kernel), tuple(stride), tuple(dilation), padding, transposed)


@TABLE.row("Conv ConvTranspose FusedConv")
def _onnx_conv(c: Call) -> s.Meaning:
    kernel, transposed = c.shape(1)[2:], c.op == "ConvTranspose"
    groups, axes = int(c.get("group", 1)), tuple(range(2, c.rank(1)))
    if c.shape()[1] % groups or c.gives[0][1] % groups:
        return s.Unknown("its groups do not divide its channels")
    # a transposed convolution's weights have the input's channels first
    weights = (*axes, 0, 1) if transposed else (*axes, 1, 0)
    frame = _onnx_window(c, kernel, transposed)
    first = s.convolution(frame, weights, groups, reads=c.places(0, 1, 2))
    added = [(s.function("add"), 3)] if c.has(3) else []
    return s.then(c, first, *added, *_fused_function(c))


@TABLE.row({"MaxPool": "max", "AveragePool": "average"})
def _onnx_pool(c: Call, kind: str) -> s.Meaning:
    if len(c.gives) > 1:
        return s.Unknown("indices count from the first batch row")
    frame = _onnx_window(c, c["kernel_shape"])
    return s.pool(kind, frame, counts_padding=_on(c, "count_include_pad"))


# whole axes


@TABLE.row(REDUCES)
def _onnx_reduce(c: Call, word: str) -> s.Meaning:
    # an input in newer versions
    axes = c.integers(1) if c.has(1) else c.get("axes")
    if not axes and _on(c, "noop_with_empty_axes"):
        return s.Unknown("it reduces no axis") if c.op != "ReduceSum" else s.Same()
    return s.reduced(word, axes or range(c.rank()))


@TABLE.row("Softmax LogSoftmax")
def _onnx_softmax(c: Call) -> s.Meaning:
    # before version 13 a softmax went over all axes from this one on together
    early = c.version < 13
    axis = int(c.get("axis", 1 if early else -1)) % c.rank()
    axes = tuple(range(axis, c.rank())) if early else (axis,)
    return s.normalised("softmax" if c.op == "Softmax" else "log_softmax", axes)


@TABLE.row("BatchNormalization")
def _onnx_bn(c: Call) -> s.Meaning:
    if _on(c, "training_mode") or len(c.gives) > 1:
        return s.Unknown("it is in its training mode")
    return s.batch_norm(c.rank(), False)


TABLE |= {
    "Identity": lambda c: s.Same(),
    **s.rows_for(VARIADIC, lambda c, word: s.several(word, c.count)),
    "Gelu": lambda c: s.gelu(c.get("approximate", "none") == "tanh"),
    **s.rows_for(
        s.word_list("QuantizeLinear:quantize DequantizeLinear:dequantize"),
        lambda c, word: s.function(word, along=int(c.get("axis", 1)) if c.rank() else None),
    ),
    "GlobalAveragePool": lambda c: s.reduced("mean", range(2, c.rank())),
    "Einsum": lambda c: s.einsum(str(c["equation"])),
    "InstanceNormalization": lambda c: s.normalised("instance_norm", range(2, c.rank())),
    **s.rows_for(
        "LayerNormalization SimplifiedLayerNormalization RMSNormalization",
        lambda c: s.normalised(
            "layer_norm" if c.op[0] == "L" else "rms_norm",
            range(int(c.get("axis", -1)) % c.rank(), c.rank()),
        ),
    ),
    **s.rows_for("Loop Scan", lambda c: s.Unknown("its iterations are one operation")),
    "GlobalMaxPool": lambda c: s.Moves(),
    # channels put into blocks, with zeros up to whole blocks, or taken out of them
    **s.rows_for(
        "ReorderInput ReorderOutput",
        lambda c: s.Moves() if _on(c, "channels_last") or c.shape() != c.gives[0] else s.Same(),
    ),
    **s.rows_for("Reshape Flatten Unsqueeze Squeeze", lambda c: s.Reshapes()),
    "Transpose": lambda c: s.transpose(c.get("perm") or range(c.rank())[::-1]),
}

# Domains in which an operator's name means what it does here.
DOMAINS = ("", "com.microsoft", "com.microsoft.nchwc")


def meaning(c: Call) -> s.Meaning:
    if c.domain not in DOMAINS:
        return s.Unknown(f"{c.op} is not described in probe")
    return s.by_table(TABLE, c)
