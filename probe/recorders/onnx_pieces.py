"""Nodes of an ONNX model as models of their own: one node, or a few in a row.

Weights stay constants of the piece, since ONNX Runtime packs constant weights and runs other
kernels on them. Of an ``If`` the nodes of the branch that runs take its place; ``Loop`` and
``Scan`` stay one node.
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
