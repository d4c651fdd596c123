"""Nodes of an ONNX model as models of their own: one node, or a few in a row; blocked layouts.

Weights stay constants of the piece, since ONNX Runtime packs constant weights and runs other
kernels on them. Of an ``If`` the nodes of the branch that runs take its place; ``Loop`` and
``Scan`` stay one node.

ONNX Runtime's optimiser lays channels out in blocks (NCHWc). A value in this layout is declared as
(batch, channels, height, width), and its memory is (batch, channels / block, height, width, block).
Filters have one or two blocks: of filters, and of input channels where there are enough of them.
Recordings have all of them in ONNX's own order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from probe.errors import InputError
from probe.recording.contract import Input
from probe.semantics import Meaning, Reshapes, Step, Steps, Turns


def graphs(node: Any) -> Iterator[Any]:
    """Yields the graphs in a node's attributes: branches and bodies."""
    for one in node.attribute:
        if one.HasField("g"):
            yield one.g
        yield from one.graphs


def captured(node: Any) -> list[str]:
    """Returns names that the graphs in a node read from outside."""
    found: dict[str, None] = {}
    for graph in graphs(node):
        own = {one.name for one in [*graph.input, *graph.initializer]}
        for inner in graph.node:
            found.update(dict.fromkeys(name for name in uses(inner) if name not in own))
            own.update(inner.output)
        found.update(dict.fromkeys(one.name for one in graph.output if one.name not in own))
    return list(found)


def uses(node: Any) -> list[str]:
    """Returns names that a node reads, those that its graphs read among them, each once."""
    return list(dict.fromkeys([name for name in node.input if name] + captured(node)))


def ordered(nodes: Sequence[Any], outputs: Sequence[str]) -> list[Any]:
    """Returns nodes in an order that the graph alone decides: each behind what it reads, first what
    the first output needs. ONNX Runtime saves parallel branches in another order every time."""
    maker = {name: n for n, node in enumerate(nodes) for name in node.output if name}
    done: dict[int, None] = {}
    pending = [maker[name] for name in outputs if name in maker][::-1]
    pending[:0] = range(len(nodes) - 1, -1, -1)  # what no output needs comes last
    while pending:
        n = pending[-1]
        before = [maker[name] for name in uses(nodes[n]) if name in maker]
        missing = [one for one in before if one not in done]
        if n in done or not missing:
            done.setdefault(n)
            pending.pop()
        else:
            pending += missing[::-1]
    return [nodes[n] for n in done]


def branch(
    node: Any, taken: bool, mapped: np.ndarray | None = None
) -> tuple[list[Any], dict[str, Constant]]:
    """Returns the nodes of an If's branch and its constants, with names that are its own.

    What the branch gives has the names of what the If gives.
    """
    (graph,) = (
        one.g for one in node.attribute if one.name == ("then_branch" if taken else "else_branch")
    )
    prefix = f"{node.output[0]}/"
    defined = [one.name for one in graph.initializer]
    defined += [name for inner in graph.node for name in inner.output if name]
    names = {name: prefix + name for name in defined}
    tail = []
    for given, to in zip(graph.output, node.output, strict=True):
        made = given.name in {name for inner in graph.node for name in inner.output}
        if made and names[given.name] == prefix + given.name:
            names[given.name] = to
        else:  # a constant, a value from outside, or one that is given twice
            source = names.get(given.name, given.name)
            tail.append(helper.make_node("Identity", [source], [to], name=f"{prefix}{to}"))
    constants = {}
    for one in graph.initializer:
        constants[names[one.name]] = Constant.of(one, mapped)
    inside = [renamed(inner, names) for inner in graph.node] + tail
    return ordered(inside, node.output), constants


def renamed(node: Any, names: Mapping[str, str]) -> Any:
    """Returns a copy of a node, and of the graphs in it, with other names of values."""
    made = onnx.NodeProto.FromString(node.SerializeToString())
    _rename(made, names)
    return made


def _rename(node: Any, names: Mapping[str, str]) -> None:
    for each in (node.input, node.output):
        each[:] = [names.get(name, name) for name in each]
    for graph in graphs(node):
        for inner in graph.node:
            _rename(inner, names)
        for one in graph.output:
            one.name = names.get(one.name, one.name)


@dataclass(frozen=True)
class Constant:
    """A constant of a model. ``kind``: ONNX's number of its type; ``array``: its container array.

    ``other``: the tensor itself where its bytes are not the array's: texts, numbers of 4 bits.
    """

    kind: int
    array: np.ndarray
    other: Any = None

    @staticmethod
    def of(tensor: Any, mapped: np.ndarray | None = None) -> Constant:
        """Returns a tensor of a file as a constant. ``mapped``: the bytes of the file beside it."""
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            assert mapped is not None
            said = {one.key: one.value for one in tensor.external_data}
            start, size = int(said.get("offset", 0)), int(said["length"])
            bfloat16 = tensor.data_type == onnx.TensorProto.BFLOAT16
            dtype = "uint16" if bfloat16 else helper.tensor_dtype_to_np_dtype(tensor.data_type)
            array = mapped[start : start + size].view(dtype).reshape(tuple(tensor.dims))
            return Constant(tensor.data_type, array)
        array = numpy_helper.to_array(tensor)
        if tensor.data_type == onnx.TensorProto.BFLOAT16:
            array = array.view(np.uint16)
        plain = array.dtype.kind in "biufc"
        return Constant(tensor.data_type, array, None if plain else tensor)

    def tensor(self, name: str, array: np.ndarray | None = None) -> Any:
        """Returns a tensor of this type; ``array``: other numbers for it."""
        if self.other is not None:
            made = onnx.TensorProto.FromString(self.other.SerializeToString())
            made.name = name
            return made
        array = self.array if array is None else array
        return onnx.TensorProto(
            name=name, data_type=self.kind, dims=array.shape, raw_data=array.tobytes()
        )


def held(node: Any) -> Constant | None:
    """Returns the array that a Constant node holds; None for any other node."""
    if node.op_type != "Constant" or node.domain not in ("", "ai.onnx"):
        return None
    (one,) = node.attribute
    value = helper.get_attribute_value(one)
    if one.name == "value":
        return Constant.of(value)
    kind = {"f": np.float32, "i": np.int64}.get(one.name.removeprefix("value_")[:1])
    if kind is None:
        return None
    return Constant.of(numpy_helper.from_array(np.array(value, kind)))


def piece(nodes: Sequence[Any], fed: Mapping[str, int], weights: Iterable[Any], like: Any) -> bytes:
    """Returns a model of some nodes in a row, whose outputs are all outputs of the model.

    ``fed``: what is read from before, each with ONNX's number of its type; ``weights``: tensors;
    ``like``: the model that has the nodes.
    """
    inputs = [helper.make_tensor_value_info(name, kind, None) for name, kind in fed.items()]
    outputs = [onnx.ValueInfoProto(name=name) for node in nodes for name in node.output if name]
    graph = helper.make_graph(list(nodes), "piece", inputs, outputs, list(weights))
    made = onnx.ModelProto(graph=graph, ir_version=like.ir_version, opset_import=like.opset_import)
    return made.SerializeToString()


def attributes(node: Any) -> dict[str, Any]:
    """A node's attributes as numbers, texts and lists; tensors as arrays; graphs left out."""
    found = {}
    for one in node.attribute:
        if one.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS):
            continue
        value = helper.get_attribute_value(one)
        if isinstance(value, onnx.TensorProto):
            value = numpy_helper.to_array(value)
        elif isinstance(value, bytes):
            value = value.decode(errors="replace")
        elif not isinstance(value, int | float | str):
            try:
                value = [v.decode() if isinstance(v, bytes) else v for v in value]
            except TypeError:
                value = str(value)
        found[one.name] = value
    return found


def inputs_of(graph: Any) -> tuple[Input, ...]:
    """Returns a graph's inputs that no constant of the file fills. InputError: one is no array."""
    held = {one.name for one in graph.initializer}
    return tuple(_declared(one) for one in graph.input if one.name not in held)


def _declared(one: Any) -> Input:
    kind = one.type.tensor_type
    if one.type.WhichOneof("value") != "tensor_type":
        why = f"its input {one.name} is not an array but a {one.type.WhichOneof('value')}"
        raise InputError("network", one.name, why, "export the model with arrays as inputs")
    shape = tuple(d.dim_value if d.HasField("dim_value") else None for d in kind.shape.dim)
    bfloat16 = kind.elem_type == onnx.TensorProto.BFLOAT16
    dtype = "bfloat16" if bfloat16 else str(helper.tensor_dtype_to_np_dtype(kind.elem_type))
    return Input(one.name, shape, dtype)


BLOCKED = "com.microsoft.nchwc"
"""The domain of operators that work on blocks of channels."""
SPLIT = -1


@dataclass(frozen=True)
class Block:
    """How a value's memory is ordered. ``size``: channels in a block.

    ``inner``: 0 for data; for filters, whether there are blocks of input channels too (2) or not
    (1); SPLIT for data with an axis more, which ONNX Runtime makes of blocked data to broadcast it:
    such a value is recorded as it is.
    """

    size: int
    inner: int = 0

    def opened(self, array: np.ndarray) -> np.ndarray:
        """Returns a blocked array in ONNX's order."""
        if self.inner == SPLIT:
            return array
        first, second, *rest = array.shape
        size = self.size
        if self.inner == 2:
            split = array.reshape(first // size, second // size, *rest, size, size)
            turned = split.transpose(0, 5, 1, 4, 2, 3)
        elif self.inner == 1:
            turned = array.reshape(first // size, second, *rest, size).transpose(0, 4, 1, 2, 3)
        else:
            turned = array.reshape(first, second // size, *rest, size).transpose(0, 1, 4, 2, 3)
        return turned.reshape(array.shape)

    def closed(self, array: np.ndarray) -> np.ndarray:
        """Returns an array in ONNX's order, blocked."""
        if self.inner == SPLIT:
            return array
        first, second, *rest = array.shape
        size = self.size
        if self.inner == 2:
            split = array.reshape(first // size, size, second // size, size, *rest)
            turned = split.transpose(0, 2, 4, 5, 3, 1)
        elif self.inner == 1:
            turned = array.reshape(first // size, size, second, *rest).transpose(0, 2, 3, 4, 1)
        else:
            turned = array.reshape(first, second // size, size, *rest).transpose(0, 1, 3, 4, 2)
        return np.ascontiguousarray(turned).reshape(array.shape)

    def lines(self, name: str, back: bool = False) -> list[str]:
        """Lines of Python that block the array of this name, in ONNX's order; ``back``: undo it."""
        size = self.size
        if self.inner == SPLIT:
            return []
        first, second = (f"n // {size}", f"c // {size}") if self.inner else ("n", f"c // {size}")
        split, axes, inverse = {
            0: (f"{first}, {second}, {size}, *rest", (0, 1, 3, 4, 2), (0, 1, 4, 2, 3)),
            1: (f"{first}, {size}, c, *rest", (0, 2, 3, 4, 1), (0, 4, 1, 2, 3)),
            2: (
                f"{first}, {size}, {second}, {size}, *rest",
                (0, 2, 4, 5, 3, 1),
                (0, 5, 1, 4, 2, 3),
            ),
        }[self.inner]
        found = [f"n, c, *rest = {name}.shape  # blocks of {size} channels, ONNX Runtime's NCHWc"]
        if back:
            split, axes = f"{first}, {second}, *rest, {size}", inverse
        turned = f"{name}.reshape({split}).transpose{axes}"
        return [*found, f"{name} = np.ascontiguousarray({turned}).reshape(n, c, *rest)"]


def block_size(run: Any) -> int:
    """Returns the channels in a block on this processor. ``run(node type, array)``: one node."""
    channels = 64
    found = run(
        "ReorderInput", np.arange(channels * 2, dtype=np.float32).reshape(1, channels, 1, 2)
    )
    flat = found.reshape(-1)
    return int(np.argmax(flat == 1))


def block_of_filters(shape: tuple[int, ...], size: int) -> Block:
    """Returns how the filters (filters, channels, height, width) of a blocked convolution lie."""
    return Block(size, 2 if shape[1] % size == 0 else 1)


def block_of_outputs(domain: str, op: str, reads: list[Block | None], size: int) -> Block | None:
    """Returns how a node's output lies. Nodes of ONNX's own keep the layout of what they read."""
    if domain == BLOCKED:
        return None if op == "ReorderOutput" else Block(size)
    first = next((one for one in reads if one is not None and one.inner <= 0), None)
    if op == "Reshape" and first is not None:  # to five axes, and back
        return Block(size, 0 if first.inner == SPLIT else SPLIT)
    return first


def reshaped_block(size: int, shape: tuple[int, ...], back: bool) -> Meaning:
    """Returns what a Reshape of blocked memory of ``shape``, to five axes or ``back``, does."""
    if back:
        batch, count, high, wide, _ = shape
        turned = Step(Turns((0, 1, 4, 2, 3)), (0,), (batch, count, size, high, wide))
        return Steps((turned, Step(Reshapes(), (2,), (batch, count * size, high, wide))))
    batch, channels, high, wide = shape
    split = Step(Reshapes(), (0,), (batch, channels // size, size, high, wide))
    turned = Step(Turns((0, 1, 3, 4, 2)), (2,), (batch, channels // size, high, wide, size))
    return Steps((split, turned))
