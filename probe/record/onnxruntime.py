"""ONNX Runtime, watched node by node: the nodes of the model as its optimiser left them.

The optimised model is saved and its nodes run one after the other, without any more optimisation.
Kernels, constant weights, layouts and threads are those of an unwatched run; that the outputs have
its bits is checked at the first recording, and where they don't the whole model is one operation. A
node alone runs as it did in the recording.
Of an ``If`` the branch that runs is recorded; a ``Loop`` and a ``Scan`` are one operation each.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from probe.case import layout
from probe.order.semantics import Call, Meaning, Moves
from probe.record import graphs, onnx_file
from probe.record.contract import AlignedCall, OpenedFile, Operation, address_lines
from probe.record.graphs import Body
from probe.record.onnx_file import BLOCKED, Block, Constant, OnnxNode
from probe.targets.backends.onnxruntime import option_lines

PROVIDERS = ["CPUExecutionProvider"]
BFLOAT16 = np.dtype(helper.tensor_dtype_to_np_dtype(onnx.TensorProto.BFLOAT16))


UNOPTIMISED = (
    "settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL"
)


def settings_lines(switches: Mapping[str, str]) -> list[str]:
    """Lines that make a session's ``settings``: those of the target's switches, and
    ``optimisation``, which may be ``none``."""
    lines = option_lines(switches)
    return [*lines, UNOPTIMISED] if switches.get("optimisation") == "none" else lines


def options(switches: Mapping[str, str]) -> Any:
    names: dict[str, Any] = {"onnxruntime": onnxruntime}
    exec("\n".join(settings_lines(switches)), names)
    return names["settings"]


# What the lines of a node need.
IMPORTS = (
    "import numpy as np",
    "import onnxruntime",
    "import onnx",
    "from onnx import numpy_helper",
)


class Optimised(graphs.Graph):
    """The optimised model's nodes."""

    BY_SHAPE = frozenset(("Shape", "Size"))

    def __init__(
        self,
        model: Any,
        inputs: Mapping[str, np.ndarray],
        switches: Mapping[str, str],
    ) -> None:
        self.model, self.switches = model, {**switches, "optimisation": "none"}
        self.blocks: dict[str, Block] = {}
        self.paths: dict[str, str] = {}
        opsets = (each.version for each in model.opset_import if each.domain in ("", "ai.onnx"))
        self.opset = max(opsets, default=1)
        self.branches: dict[tuple[OnnxNode, str], Body] = {}
        onnx_file.written_once(model.graph)
        body = onnx_file.body(model.graph)
        del model.graph.initializer[:]
        super().__init__(body, self._input_values(inputs, body))
        if any(node.domain == BLOCKED for node in body.nodes):
            self.block = self._block_size()

    def _input_values(self, inputs: Mapping[str, np.ndarray], body: Body) -> dict[str, Any]:
        kinds = {value.name: value.type.tensor_type.elem_type for value in self.model.graph.input}
        return {key: _ort_value(inputs[key], onnx_file.dtype_of(kinds[key])) for key in body.inputs}

    def with_inputs(self, inputs: Mapping[str, np.ndarray]) -> Self:
        """The same nodes, as they were started, with other inputs of the same shapes."""
        other = copy(self)
        other.blocks, other.paths = dict(self.blocks), dict(self.paths)
        other._begin(self.body, self._input_values(inputs, self.body))
        other.ready = self.ready
        return other

    def _block_size(self) -> int:
        """How many channels are in a block on this processor: found by running the node that puts
        them there."""
        array = np.arange(128, dtype=np.float32).reshape(1, 64, 1, 2)
        node = onnx_file.node_of(helper.make_node("ReorderInput", ["x"], ["y"], domain=BLOCKED))
        run = self.started(node, {"x": (array.shape, "float32")}, {})
        (output,) = run([_ort_value(array, "float32")])
        return int(np.argmax(output.numpy().reshape(-1) == 1))

    # values

    def described(self, value: Any) -> graphs.Kind:
        if isinstance(value, Constant):
            return value.array.shape, onnx_file.dtype_of(value.kind)
        return tuple(value.shape()), onnx_file.dtype_of(value.element_type())

    def container(self, key: Any, value: Any) -> np.ndarray:
        bits: np.ndarray = value.array if isinstance(value, Constant) else value.numpy()
        bits = bits.view(np.uint16) if bits.dtype == BFLOAT16 else bits
        return self.blocks[key].turned(bits, back=True) if key in self.blocks else bits

    def value(self, key: Any, array: np.ndarray) -> Any:
        array = self.blocks[key].turned(array) if key in self.blocks else array
        return _ort_value(
            np.ascontiguousarray(array).reshape(array.shape), self.described_at(key)[1]
        )

    def address(self, key: Any) -> int | None:
        value = self.values[key]
        plain = key not in self.blocks and value.is_tensor()
        return value.data_ptr() % layout.BOUNDARY if plain else None

    # nodes

    def started(self, node: OnnxNode, fed: graphs.Fed, replaced: graphs.Replaced) -> graphs.Runner:
        # constants that are inputs of the node's own model
        fed_constants = {key: self.constants[key] for key in node.fed}
        inputs_of = {**fed, **{key: self.described(c) for key, c in fed_constants.items()}}
        keys = [key for key in node.uses if key not in inputs_of and key in self.constants]
        in_blocks = {
            key: self.blocks[key].turned(array) if key in self.blocks else array
            for key, array in replaced.items()
        }
        weights = {key: (self.constants[key], in_blocks.get(key)) for key in keys}
        names = {key: f"v{n}" for n, key in enumerate(dict.fromkeys((*node.uses, *node.gives)))}
        submodel = onnx_file.submodel(node, inputs_of, weights, self.model, names)
        settings = options(self.switches)
        settings.enable_mem_pattern = False
        content = submodel.SerializeToString()
        session = onnxruntime.InferenceSession(content, settings, providers=PROVIDERS)
        inputs = [end.name for end in session.get_inputs()]
        outputs = [end.name for end in session.get_outputs()]
        fed_values = [
            self.value(key, replaced.get(key, constant.array))
            for key, constant in fed_constants.items()
        ]
        return lambda values: session.run_with_ort_values(  # type: ignore[no-any-return]
            outputs, dict(zip(inputs, (*values, *fed_values), strict=True))
        )

    def run_node(self, node: OnnxNode, depth: int) -> None:
        if node.op != "If" or node.domain:
            super().run_node(node, depth)
            return
        # the branch that is taken stands in its place
        taken = "then_branch" if self.array(node.slots[0]).any() else "else_branch"
        if (node, taken) not in self.branches:
            (graph,) = (each.g for each in node.native.attribute if each.name == taken)
            self.branches[node, taken] = onnx_file.branch(graph, node)
        body = self.branches[node, taken]
        self.constants |= body.constants
        for inner in body.nodes if depth else ():
            # of a branch in a branch ONNX Runtime 1.31 packs no constant of the model for its
            # kernels, and runs others
            inner.fed = self.body.constants.keys() & {*inner.uses}
        self.run_body(body, depth + 1)

    # what is said of them

    def note_layout(self, node: OnnxNode) -> None:
        """Settles a node's path, since ONNX Runtime draws the names of nodes that it adds anew in
        every session; and notes which values are in its blocked layout."""
        blocked = node.domain == BLOCKED
        node.path = node.name.removesuffix("_nchwc") if blocked else node.name
        if re.fullmatch(node.op + r"(_token_\d+)?", node.path):
            node.path = f"{self.paths.get(node.slots[0], node.slots[0])}/{node.op}"
        self.paths.update(dict.fromkeys(node.gives, node.path))
        if blocked and node.op == "Conv":
            shape = self.constants[node.slots[1]].array.shape
            # there are blocks of input channels too where these are enough
            self.blocks[node.slots[1]] = Block(self.block, 2 if shape[1] % self.block == 0 else 1)
        if blocked or self.blocks:
            reads = [self.blocks.get(key) for key in node.slots]
            size = getattr(self, "block", 0)
            block = onnx_file.block_of_outputs(node.domain, node.op, reads, size)
            if block is not None:
                self.blocks |= dict.fromkeys(node.gives, block)

    def meaning(self, node: OnnxNode, call: Call) -> Meaning:
        # of data that lies in blocks another shape has its elements in another order
        blocked = node.op == "Reshape" and node.slots[0] in self.blocks
        return Moves() if blocked else onnx_file.meaning(call)

    def event(self, node: OnnxNode) -> Operation:
        """With lines, and run alone on operands where they lay: ONNX Runtime reads them there."""
        self.note_layout(node)
        event = super().event(node)
        addresses = [value.address for value in event.reads]

        def lines(names: Sequence[str], out: str) -> list[str]:
            called = {value.key: name for value, name in zip(event.reads, names, strict=True)}
            return address_lines(names, addresses) + self.lines(node, called, out)

        assert event.again is not None
        again = AlignedCall(event.again, addresses)
        return replace(event, again=again, lines=lines, imports=IMPORTS)

    def lines(self, node: OnnxNode, read: Mapping[Any, str], out: str) -> list[str]:
        """Lines of Python that run a node. ``read``: names of the arrays that it reads; ``out``:
        of its first result; further ones are ``out1`` and so on."""
        outs = {key: f"{out}{n or ''}" for n, key in enumerate(node.gives)}
        code = list[str]()
        for key in filter(self.blocks.__contains__, read):
            code += self.blocks[key].lines(read[key], self.described_at(key)[0])
        held = self.constants.keys() - node.fed
        fed = {key: self.described_at(key) for key in read if key not in held}
        model = onnx_file.submodel(node, fed, {}, self.model, {**read, **outs})
        code += onnx_file.model_lines(model, [(read[k], read[k]) for k in read if k not in fed])
        arrays = ", ".join(f'"{read[key]}": {read[key]}' for key in fed)
        results = ", ".join(outs.values()) if len(outs) > 1 else f"{out},"
        code += [
            *settings_lines(self.switches),
            "session = onnxruntime.InferenceSession(model.SerializeToString(), settings, "
            'providers=["CPUExecutionProvider"])',
            f"{results} = session.run(None, {{{arrays}}})",
        ]
        for key in filter(self.blocks.__contains__, outs):
            code += self.blocks[key].lines(outs[key], self.described_at(key)[0], back=True)
        return code


def _ort_value(array: np.ndarray, dtype: str) -> Any:
    """An array, which must be contiguous, as ONNX Runtime's value, in its own memory."""
    kind = onnxruntime.OrtValue
    if dtype == "bfloat16":
        return kind.ortvalue_from_numpy_with_onnx_type(array, onnx.TensorProto.BFLOAT16)
    return kind.ortvalue_from_numpy(array)


class OnnxRecorder(graphs.GraphRecorder):
    """A model with its inputs.

    ``model``: the file, or its bytes. ``inputs``: container arrays by name. ``switches``:
    ``threads``, ``deterministic`` (0 or 1) and ``optimisation`` (``none``). InputError where ONNX
    Runtime refuses the model or the inputs.
    """

    LIBRARY = "onnxruntime"

    def plain(self) -> list[np.ndarray]:
        session = self._session(options(self.switches))
        arrays = self.inputs_named(wanted.name for wanted in session.get_inputs())
        try:
            outputs = session.run(None, arrays)
        except Exception as error:  # its own classes, one for each status
            raise graphs.refused("ONNX Runtime", arrays, str(error).splitlines()[0]) from None
        return [np.asarray(output) for output in outputs]

    def cuts(self) -> Iterator[Optimised]:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            path, settings = Path(folder, "optimised.onnx"), options(self.switches)
            settings.optimized_model_filepath = str(path)
            self._session(settings)
            model = onnx.load(path)
        yield Optimised(model, self.inputs, self.switches)

    def _session(self, settings: Any) -> Any:
        in_memory = isinstance(self.model, bytes)
        name, model = (
            ("model", self.model) if in_memory else (Path(self.model).name, str(self.model))
        )
        session = partial(onnxruntime.InferenceSession, model, settings, providers=PROVIDERS)
        return graphs.read(name, session)


def opened(
    path: Path, trust: bool = False, switches: Mapping[str, str] | None = None
) -> OpenedFile:
    """Opens an ``.onnx`` file, which runs no code. InputError where it can't be read.

    ``switches``: of the target, such as ``threads``.
    """
    path = Path(path)

    def load() -> Any:
        model = onnx.load(path, load_external_data=False)
        for graph in (*model.functions, model.graph):
            onnx_file.refuse_unbounded(graph)
        return model

    model = graphs.read(path.name, load)
    inputs = onnx_file.graph_inputs(model.graph)
    return OpenedFile(inputs, lambda arrays: OnnxRecorder(path, arrays, switches))
