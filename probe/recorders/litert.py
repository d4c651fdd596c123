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
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter, OpResolverType

from probe.backends.litert_model import aligned_buffer
from probe.errors import InputError
from probe.recorders import graphs
from probe.recorders.litert_table import Scale, meaning, quantised
from probe.recording.contract import Input
from probe.semantics import Meaning
from probe.semantics.contract import Call

ENDINGS = (".tflite",)
# Characters up to which an operator's model is written into a script.
LONGEST = 1 << 15

NAMES = {n: name for name, n in vars(schema.BuiltinOperator).items() if isinstance(n, int)}
DTYPES = {
    getattr(schema.TensorType, name.upper()): name
    for name in "float16 float32 float64 bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 "
    "complex64 complex128".split()
}
# Operators that run other subgraphs of the file; these go with them.
NESTED = ("IF", "WHILE", "CALL_ONCE", "STABLEHLO_COMPOSITE", "STABLEHLO_WHILE", "CALL")


@dataclass(eq=False)
class LiteRTOperator(graphs.Node):
    """An operator. ``operands``: keys of all that it is given, None where one is left out;
    ``number``: of a WHILE, the iterations behind it; ``goes``: key of whether there is a next."""

    operands: Sequence[graphs.Key] = ()
    number: int = 0
    goes: graphs.Key = None


class LiteRTFile:
    """A model as it is read. ``nodes``: of its first subgraph, in the order in which they run."""

    def __init__(self, content: bytes) -> None:
        root = schema.Model.GetRootAs(content, 0)
        self.model = schema.ModelT.InitFromObj(root)
        self.tensors: dict[graphs.Key, Any] = {}
        self.constants: dict[graphs.Key, np.ndarray] = {}
        graph = self.model.subgraphs[0]
        self.ins = [int(n) for n in graph.inputs]
        self.nodes, self.outs = self.body(0, self.ins)

    def body(
        self, subgraph: int, inputs: Sequence[graphs.Key], ahead: str = ""
    ) -> tuple[list[LiteRTOperator], list[graphs.Key]]:
        """Returns a subgraph's operators and the keys of what it gives. ``inputs``: keys of what it
        is given; ``ahead``: what tells its values from those of the next iteration."""
        graph = self.model.subgraphs[subgraph]
        keys: dict[int, graphs.Key] = dict(zip(map(int, graph.inputs), inputs, strict=True))
        for n, tensor in enumerate(graph.tensors):
            data = self._data(tensor)
            held = n not in keys and data is not None and tensor.type in DTYPES
            keys.setdefault(n, ("" if held else ahead, subgraph, n) if subgraph else n)
            self.tensors.setdefault(keys[n], tensor)
            if held and data is not None:
                shape = () if tensor.shape is None else tuple(tensor.shape)
                self.constants[keys[n]] = data.view(DTYPES[tensor.type]).reshape(shape)
        nodes = [self._node(one, keys, ahead) for one in graph.operators]
        return list(filter(None, nodes)), [keys[int(n)] for n in graph.outputs]

    def _data(self, tensor: Any) -> np.ndarray | None:
        data = self.model.buffers[tensor.buffer].data
        return np.asarray(data, np.uint8) if data is not None and len(data) else None

    def _node(
        self, operator: Any, keys: Mapping[int, graphs.Key], ahead: str
    ) -> LiteRTOperator | None:
        """Returns an operator; None of one that widens a constant, which XNNPACK unpacks as a
        weight: then that is a constant."""
        code = self.model.operatorCodes[operator.opcodeIndex]
        op = NAMES[max(code.builtinCode, code.deprecatedBuiltinCode)]
        if op == "CUSTOM":
            op = str((code.customCode or b"custom").decode(errors="replace"))
        every = ([] if one is None else one for one in (operator.inputs, operator.outputs))
        operands, gives = ([keys.get(int(n)) for n in some] for some in every)
        # variables an operator keeps for itself
        slots = [None if k is None or self.tensors[k].isVariable else k for k in operands]
        half = self.constants.get(slots[0]) if slots else None
        if op == "DEQUANTIZE" and half is not None and half.dtype == np.float16:
            self.constants[gives[0]] = half.astype(np.float32)
            return None
        found = operator.builtinOptions or operator.builtinOptions2
        words = {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in ({} if found is None else vars(found)).items()
        }
        path = ahead + (self.name(gives[0]).removesuffix(":0") if gives else op)
        return LiteRTOperator(operator, op, slots, gives, words=words, path=path, operands=operands)

    def name(self, key: graphs.Key) -> str:
        given = self.tensors[key].name
        return given.decode(errors="replace") if isinstance(given, bytes) else str(given or key)

    def scale(self, key: graphs.Key) -> Scale | None:
        """Returns how a tensor's integers are meant: scales and zero points; None: as they are."""
        found = self.tensors[key].quantization
        if found is None or found.scale is None or not len(found.scale):
            return None
        zeros = () if found.zeroPoint is None else found.zeroPoint
        return tuple(map(float, found.scale)), tuple(map(int, zeros))

    def inputs(self) -> tuple[Input, ...]:
        """Returns the model's inputs; None for the batch, and for sizes that are left open."""
        found = []
        for n in self.ins:
            tensor, name = self.tensors[n], self.name(n)
            if tensor.type not in DTYPES:
                why = "this input is not an array"
                raise InputError("network", name, why, "export it with arrays")
            sizes = tensor.shape if tensor.shapeSignature is None else tensor.shapeSignature
            shape = tuple(None if n < 0 else int(n) for n in ([] if sizes is None else sizes))
            found.append(Input(name, shape, DTYPES[tensor.type]))
        return tuple(found)

    def piece(
        self, nodes: graphs.Nodes, fed: graphs.Fed, shapes: graphs.Fed, held: graphs.Held
    ) -> tuple[bytearray, dict[int, int]]:
        """Returns a model of operators in a row, all of whose results are its outputs, and the
        numbers of its constants' buffers.

        ``fed``: what they read from before; ``shapes``: of values, where they aren't the file's;
        ``held``: other numbers for constants.
        """
        every = dict.fromkeys(n for one in nodes for n in (*one.operands, *one.gives))
        numbers = [n for n in every if n is not None]
        places = {n: place for place, n in enumerate(numbers)}
        # the schema asks for a first buffer that is empty: it is that of all tensors without one
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
            graph.operators[-1].inputs = [places.get(n, -1) for n in one.operands]
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


class LiteRTOperators(graphs.Graph):
    """A file's operators with the model's inputs."""

    BY_SHAPE = frozenset(("SHAPE", "RANK"))
    KEPT = 1 << 22
    IMPORTS = (
        *("import base64", "import zlib"),
        "from ai_edge_litert.interpreter import Interpreter, OpResolverType",
    )

    def __init__(
        self,
        file: LiteRTFile,
        inputs: Mapping[str, np.ndarray],
        switches: Mapping[str, str],
        opens: bool = True,
    ) -> None:
        self.file, self.switches = file, switches
        given = {n: inputs[file.name(n)] for n in file.ins}
        super().__init__(file.nodes, given, file.outs, file.constants)
        self.opens = opens
        self.folder = Path(tempfile.mkdtemp(prefix="probe"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self.files: dict[Any, Path] = {}

    def started(
        self, nodes: graphs.Nodes, fed: graphs.Fed, held: graphs.Held, once: bool = False
    ) -> graphs.Runner:
        key = tuple(map(id, nodes)) if once and self.pieces else ()  # wanted again in the next run
        if "passed" in nodes[0].words:
            numbers = {**self.constants, **held}
            return lambda arrays: [
                {**numbers, **dict(zip(fed, arrays, strict=True))}[key] for key in nodes[0].slots
            ]
        model: Any = self.files.get(key)
        if model is None:
            model = bytes(self.file.piece(nodes, fed, self.known, held)[0])
            if key:
                self.files[key] = self.folder / f"{len(self.files)}.tflite"
                self.files[key].write_bytes(model)
        made = interpreter_of(model, self.switches)
        made.allocate_tensors()
        return partial(_invoked, made, once)

    def meaning(self, node: graphs.Node, call: Call) -> Meaning:
        scales = ([self.file.scale(n) for n in some] for some in (node.reads, node.gives))
        return quantised(meaning(call), *scales)

    def joins(self, node: LiteRTOperator) -> bool:
        keeps = any(self.file.tensors[k].isVariable for k in node.operands if k is not None)
        return not (keeps or node.op in NESTED)

    def opened(self, node: LiteRTOperator) -> Sequence[LiteRTOperator] | None:
        if not self.opens or node.op not in ("IF", "WHILE") or "passed" in node.words:
            return None
        state, ahead, turn = node.slots, list[LiteRTOperator](), f"{node.path}[{node.number}]/"
        if node.op == "IF":
            which = "then" if self.array(state[0]).any() else "else"
            number, state, turn = node.words[f"{which}SubgraphIndex"], state[1:], f"{node.path}/"
        elif node.goes is not None and not self.array(node.goes).any():
            return [self._passed(node, state, node.gives)]
        else:
            number = node.words[f"{'cond' if node.goes is None else 'body'}SubgraphIndex"]
        # a body gets its first state as any other: what is constant, operators run otherwise on
        if held := list(dict.fromkeys(key for key in state if key in self.constants)):
            fresh = {key: (turn, "from", key) for key in held}
            self.file.tensors.update((fresh[key], self.file.tensors[key]) for key in held)
            ahead = [self._passed(node, held, [*fresh.values()])]
            state = [fresh.get(key, key) for key in state]
        nodes, gives = self.file.body(number, state, turn)
        if node.op == "IF":
            return [*ahead, *nodes, self._passed(node, gives, node.gives)]
        behind = replace(node, slots=gives, captured=(), goes=None, number=node.number + 1)
        if node.goes is None:  # whether there is a next iteration; then that
            behind = replace(node, slots=state, captured=gives, goes=gives[0])
        return self.counted([*ahead, *nodes, behind])

    @staticmethod
    def _passed(
        node: LiteRTOperator, reads: Sequence[graphs.Key], gives: Sequence[graphs.Key]
    ) -> LiteRTOperator:
        """Returns an operator that only passes values on, which is what is recorded of a node whose
        body is."""
        words = {"passed": len(reads)}
        return replace(node, slots=reads, gives=gives, captured=(), words=words, operands=())

    def name(self, key: graphs.Key) -> str:
        return self.file.name(key)

    def lines(self, node: graphs.Node, own: Mapping[Any, str], out: str) -> list[str]:
        """Returns a model of this one operator, whose weights are put into its bytes."""
        if "passed" in node.words:
            return [f"{out}{n or ''} = {own[key]}" for n, key in enumerate(node.slots)]
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
    made.reset_all_variables()  # states of recurrent operators stay from one run to the next
    made.invoke()
    gives = [one["index"] for one in made.get_output_details()]
    return [made.tensor(n)() if once else made.get_tensor(n) for n in gives]


def interpreter_of(model: bytes | Path, switches: Mapping[str, str]) -> Any:
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
        try:
            made = interpreter_of(self.model, self.switches)
        except Exception as error:
            raise graphs.unreadable(self.name, error, AGAIN) from None
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
            raise graphs.refused("LiteRT", self.inputs, error) from None
        return [made.get_tensor(one["index"]) for one in made.get_output_details()]

    def cut(self, opens: bool) -> LiteRTOperators:
        return LiteRTOperators(LiteRTFile(self.model), self.inputs, self.switches, opens)


AGAIN = "convert or download it again"


def opened(
    path: Path, trust: bool = False, switches: Mapping[str, str] | None = None
) -> graphs.OpenedGraph:
    """Opens a ``.tflite`` file, which runs no code. InputError where it can't be read.

    ``switches``: of the target, ``threads`` and ``xnnpack``.
    """
    path = Path(path)
    try:
        inputs = LiteRTFile(graphs.content(path)).inputs()
    except InputError:
        raise
    except Exception as error:
        raise graphs.unreadable(path.name, error, AGAIN) from None
    return graphs.OpenedGraph(inputs, lambda arrays: LiteRTRecorder(path, arrays, switches))
