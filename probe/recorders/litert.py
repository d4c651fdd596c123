"""LiteRT, watched operator by operator: each as a model of its own, with its constant weights.

The XNNPACK delegate runs many operators as one and shows nothing between them; so each operator of
the file runs alone, under the same delegate or without one, which also keeps memory flat; after the
first recording several in a row run as one model that gives all their results, if these have the
same bits. That the outputs have the bits of an unwatched run is checked at the first recording;
where they don't, the whole model is one operation.

A piece keeps its operators' constants, their options and what the file says of quantisation; what
it reads else are inputs of the shapes that they have in the run. Its schema is an installed
LiteRT's. Models wait on disk, where they take no memory, and an interpreter lives only while its
operators run; small ones stay.
"""

from __future__ import annotations

import base64
import shutil
import tempfile
import weakref
import zlib
from collections.abc import Mapping, Sequence
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from probe.backends.litert_model import aligned_buffer
from probe.errors import InputError
from probe.recorders import graphs
from probe.recorders.graphs import (
    Fed,
    Graph,
    Held,
    Node,
    Nodes,
    Opened,
    Runner,
    refused,
    unreadable,
)
from probe.recorders.litert_table import Scale, meaning, quantised
from probe.recording.contract import Input
from probe.semantics import Meaning
from probe.semantics.call import Call

ENDINGS = (".tflite",)
LONGEST = 1 << 15
"""Characters up to which an operator's model is written into a script."""

NAMES = {n: name for name, n in vars(schema.BuiltinOperator).items() if isinstance(n, int)}
DTYPES = {
    getattr(schema.TensorType, name.upper()): name
    for name in "float16 float32 float64 bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 "
    "complex64 complex128".split()
}
NESTED = ("IF", "WHILE", "CALL_ONCE", "STABLEHLO_COMPOSITE", "STABLEHLO_WHILE", "CALL")
"""Operators that run other subgraphs of the file; these go with them."""


class File:
    """A model as it is read. ``nodes``: of its first subgraph, in the order in which they run."""

    def __init__(self, content: bytes) -> None:
        root = schema.Model.GetRootAs(content, 0)
        self.model = schema.ModelT.InitFromObj(root)
        self.graph = self.model.subgraphs[0]
        self.tensors = self.graph.tensors
        self.constants: dict[int, np.ndarray] = {}
        for number, tensor in enumerate(self.tensors):
            data = self._data(tensor)
            if data is not None and tensor.type in DTYPES:
                shape = () if tensor.shape is None else tuple(tensor.shape)
                self.constants[number] = data.view(DTYPES[tensor.type]).reshape(shape)
        self.nodes = list(filter(None, map(self._node, self.graph.operators)))

    def _data(self, tensor: Any) -> np.ndarray | None:
        """Returns the bytes of a constant tensor."""
        data = self.model.buffers[tensor.buffer].data
        return np.asarray(data, np.uint8) if data is not None and len(data) else None

    def _node(self, operator: Any) -> Node | None:
        """Returns an operator; None of one that widens a constant, which XNNPACK unpacks as a
        weight: then that is a constant."""
        code = self.model.operatorCodes[operator.opcodeIndex]
        op = NAMES[max(code.builtinCode, code.deprecatedBuiltinCode)]
        if op == "CUSTOM":
            op = str((code.customCode or b"custom").decode(errors="replace"))
        for name in ("inputs", "outputs"):
            given = getattr(operator, name)
            setattr(operator, name, [] if given is None else [int(n) for n in given])
        # variables an operator keeps for itself
        slots = [n if n >= 0 and not self.tensors[n].isVariable else None for n in operator.inputs]
        gives = operator.outputs
        half = self.constants.get(slots[0]) if slots and slots[0] is not None else None
        if op == "DEQUANTIZE" and half is not None and half.dtype == np.float16:
            self.constants[gives[0]] = half.astype(np.float32)
            return None
        found = operator.builtinOptions or operator.builtinOptions2
        words = {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in ({} if found is None else vars(found)).items()
        }
        path = self.name(gives[0]).removesuffix(":0") if gives else op
        return Node(operator, op, slots, gives, words=words, path=path)

    def name(self, number: int) -> str:
        """Returns a tensor's name."""
        given = self.tensors[number].name
        return given.decode(errors="replace") if isinstance(given, bytes) else str(given or number)

    def scale(self, number: int) -> Scale | None:
        """Returns how a tensor's integers are meant: scales and zero points; None: as they are."""
        found = self.tensors[number].quantization
        if found is None or found.scale is None or not len(found.scale):
            return None
        zeros = () if found.zeroPoint is None else found.zeroPoint
        return tuple(map(float, found.scale)), tuple(map(int, zeros))

    def keeps(self, node: Node) -> bool:
        """Returns whether an operator keeps a state, or runs others."""
        return node.op in NESTED or any(
            self.tensors[n].isVariable for n in node.own.inputs if n >= 0
        )

    def inputs(self) -> tuple[Input, ...]:
        """Returns the model's inputs; None for the batch, and for sizes that are left open."""
        found = []
        for n in map(int, self.graph.inputs):
            tensor, name = self.tensors[n], self.name(n)
            if tensor.type not in DTYPES:
                why = "this input is not an array"
                raise InputError("network", name, why, "export it with arrays")
            sizes = tensor.shape if tensor.shapeSignature is None else tensor.shapeSignature
            shape = tuple(None if n < 0 else int(n) for n in ([] if sizes is None else sizes))
            found.append(Input(name, shape, DTYPES[tensor.type]))
        return tuple(found)

    def piece(
        self, nodes: Nodes, fed: Fed, shapes: Fed, held: Held
    ) -> tuple[bytearray, dict[int, int]]:
        """Returns a model of operators in a row, all of whose results are its outputs, and the
        numbers of its constants' buffers.

        ``fed``: what they read from before; ``shapes``: of values, where they aren't the file's;
        ``held``: other numbers for constants.
        """
        every = dict.fromkeys(n for one in nodes for n in (*one.own.inputs, *one.gives))
        numbers = [n for n in every if n >= 0]
        places = {n: place for place, n in enumerate(numbers)}
        made, graph = schema.ModelT(), schema.SubGraphT()
        made.buffers, graph.tensors = [aligned_buffer(schema)], []
        for n in numbers:
            own = {**self.constants, **held}.get(n)
            data = self._data(self.tensors[n]) if own is None else own
            tensor = self._tensor(self.tensors[n], None if n in fed else data, made.buffers)
            tensor.shapeSignature = None
            if n in fed or n in shapes:
                tensor.shape = list((fed.get(n) or shapes[n])[0])
            graph.tensors.append(tensor)
        graph.operators = []
        for one in nodes:
            graph.operators.append(copy(one.own))
            graph.operators[-1].inputs = [places.get(n, -1) for n in one.own.inputs]
            graph.operators[-1].outputs = [places[n] for n in one.gives]
        graph.inputs = [places[n] for n in fed]
        graph.outputs = [n for one in graph.operators for n in one.outputs]
        graph.name = b"main"
        made.operatorCodes, made.version = self.model.operatorCodes, self.model.version
        made.subgraphs = [graph]
        if any(one.op in NESTED for one in nodes):
            made.subgraphs += [self._copied(one, made.buffers) for one in self.model.subgraphs[1:]]
        elif len(nodes) == 1:
            (one,) = graph.operators
            made.operatorCodes, one.opcodeIndex = [made.operatorCodes[one.opcodeIndex]], 0
        size = sum(len(one.data) for one in made.buffers if one.data is not None)
        builder = schema.flatbuffers.Builder(size + 4096)
        builder.Finish(made.Pack(builder), file_identifier=b"TFL3")
        buffers = {n: graph.tensors[places[n]].buffer for n in numbers if n in self.constants}
        return bytearray(builder.Output()), {n: place for n, place in buffers.items() if place}

    @staticmethod
    def _tensor(tensor: Any, data: np.ndarray | None, buffers: list[Any]) -> Any:
        """Returns a tensor with its constant, if it has one, in a buffer of its own."""
        made = copy(tensor)
        made.buffer = 0
        if data is not None:
            made.buffer = len(buffers)
            buffers.append(aligned_buffer(schema))
            buffers[-1].data = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        return made

    def _copied(self, graph: Any, buffers: list[Any]) -> Any:
        made = copy(graph)
        made.tensors = [self._tensor(one, self._data(one), buffers) for one in graph.tensors]
        return made


class Operators(Graph):
    """A file's operators with the model's inputs."""

    BY_SHAPE = frozenset(("SHAPE", "RANK"))
    KEPT = 1 << 22
    IMPORTS = (
        *("import base64", "import zlib"),
        "from ai_edge_litert.interpreter import Interpreter, OpResolverType",
    )

    def __init__(
        self, file: File, inputs: Mapping[str, np.ndarray], switches: Mapping[str, str]
    ) -> None:
        self.file, self.switches = file, switches
        given = {int(n): inputs[file.name(int(n))] for n in file.graph.inputs}
        super().__init__(file.nodes, given, [int(n) for n in file.graph.outputs], file.constants)
        self.folder = Path(tempfile.mkdtemp(prefix="probe"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self.files: dict[Any, Path] = {}

    def started(self, nodes: Nodes, fed: Fed, held: Held, once: bool = False) -> Runner:
        key = tuple(map(id, nodes))
        if key not in self.files:
            content = bytes(self.file.piece(nodes, fed, self.known, held)[0])
            if once and self.pieces:  # the next run will want it too
                self.files[key] = self.folder / f"{len(self.files)}.tflite"
                self.files[key].write_bytes(content)
        made = interpreter(self.files.get(key) or content, self.switches)
        made.allocate_tensors()
        return partial(_invoked, made, once)

    def meaning(self, node: Node, call: Call) -> Meaning:
        scales = ([self.file.scale(n) for n in some] for some in (node.reads, node.gives))
        return quantised(meaning(call), *scales)

    def joins(self, node: Node) -> bool:
        return not self.file.keeps(node)

    def name(self, key: int) -> str:
        return self.file.name(key)

    def lines(self, node: Node, own: Mapping[Any, str], out: str) -> list[str]:
        """Returns a model of this one operator, whose weights are put into its bytes."""
        words = ""
        if "threads" in self.switches:
            words += f", num_threads={int(self.switches['threads'])}"
        if self.switches.get("xnnpack") == "0":
            plain = "OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES"
            words += f", experimental_op_resolver_type={plain}"
        fed = {n: self.described_at(n) for n in own if n not in self.constants}
        empty = {n: np.zeros_like(self.constants[n]) for n in own if n not in fed}
        packed, places = self.file.piece([node], fed, self.known, empty)
        root = schema.Model.GetRootAs(packed, 0)
        begin = np.frombuffer(packed, np.uint8).ctypes.data
        found = ["model = bytearray(zlib.decompress(base64.b85decode(", *_quoted(packed), ")))"]
        for n in places.keys() & empty.keys():
            data = root.Buffers(places[n]).DataAsNumpy()
            start = data.ctypes.data - begin
            span = f"{start}:{start + data.size}"
            found.append(f"model[{span}] = np.ascontiguousarray({own[n]}).tobytes()")
        given = ", ".join(own[n] for n in fed)
        return [
            *found,
            f"one = Interpreter(model_content=bytes(model){words})",
            "one.allocate_tensors()",
            f"for detail, array in zip(one.get_input_details(), [{given}], strict=True):",
            '    one.set_tensor(detail["index"], array)',
            "one.invoke()",
            'results = [one.get_tensor(d["index"]) for d in one.get_output_details()]',
            *(f"{out}{n or ''} = results[{n}]" for n in range(len(node.gives))),
        ]


def _quoted(data: bytes | bytearray) -> list[str]:
    """Returns bytes as lines of text, compressed. ValueError: they are too many for a script."""
    text = base64.b85encode(zlib.compress(data, 9)).decode()
    if len(text) > LONGEST:
        raise ValueError(f"{len(text)} characters")
    return [f"    {text[at : at + 88]!r}" for at in range(0, len(text), 88)]


def _invoked(made: Any, once: bool, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Returns what an interpreter gives of these inputs. ``once``: its own memory, which lives as
    long as they do."""
    for one, array in zip(made.get_input_details(), arrays, strict=True):
        made.set_tensor(one["index"], array)
    made.invoke()
    gives = [one["index"] for one in made.get_output_details()]
    return [made.tensor(n)() if once else made.get_tensor(n) for n in gives]


def interpreter(model: bytes | Path, switches: Mapping[str, str]) -> Any:
    """Returns an interpreter of a model or its file: ``threads``, and ``xnnpack``: 0 for the
    built-in kernels."""
    words: dict[str, Any] = {}
    if "threads" in switches:
        words["num_threads"] = int(switches["threads"])
    if switches.get("xnnpack") == "0":
        words["experimental_op_resolver_type"] = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    if isinstance(model, Path):
        return Interpreter(model_path=str(model), **words)
    return Interpreter(model_content=model, **words)


class Recorder(graphs.Recorder):
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
        """Runs the model unwatched."""
        try:
            made = interpreter(self.model, self.switches)
        except Exception as error:
            raise unreadable(self.name, error, AGAIN) from None
        details = made.get_input_details()
        given = self.given(one["name"] for one in details)
        try:
            for one in details:
                if tuple(one["shape"]) != given[one["name"]].shape:
                    made.resize_tensor_input(one["index"], given[one["name"]].shape)
            made.allocate_tensors()
            for one in details:
                made.set_tensor(one["index"], given[one["name"]])
            made.invoke()
        except Exception as error:
            raise refused("LiteRT", self.inputs, error) from None
        return [made.get_tensor(one["index"]) for one in made.get_output_details()]

    def cut(self, opens: bool) -> Operators:
        """Returns the model's operators."""
        return Operators(File(self.model), self.inputs, self.switches)


AGAIN = "convert or download it again"


def opened(path: Path, trust: bool = False, switches: Mapping[str, str] | None = None) -> Opened:
    """Opens a ``.tflite`` file, which runs no code. InputError where it can't be read.

    ``switches``: of the target, ``threads`` and ``xnnpack``.
    """
    path = Path(path)
    try:
        inputs = File(graphs.content(path)).inputs()
    except InputError:
        raise
    except Exception as error:
        raise unreadable(path.name, error, AGAIN) from None
    return Opened(inputs, lambda arrays: Recorder(path, arrays, switches))
