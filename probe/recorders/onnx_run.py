"""The nodes of a model as ONNX Runtime optimised it, run one by one or a few in a row.

Kernels, constant weights, layouts and threads are those of the whole model; nothing is optimised
any more. Every node's event is made once, at the first run.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper
from onnxruntime.capi import onnxruntime_pybind11_state as binding

from probe import layout
from probe.recorders import onnx_pieces
from probe.recorders.onnx_pieces import Block, Constant
from probe.recorders.onnx_table import meaning
from probe.recording.contract import INPUT, WEIGHT, Event, Laid, Seen, Visit, laid
from probe.semantics import Meaning
from probe.semantics.call import Call, Operand, positions

PROVIDERS = ["CPUExecutionProvider"]
BFLOAT16 = np.dtype(helper.tensor_dtype_to_np_dtype(onnx.TensorProto.BFLOAT16))
LEVELS = {
    "none": onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL,
}
"""Values of the option ``optimisation``; a session's own default is ``all``."""

MOST_PIECES, MOST_THREADS, SMALL_PIECE = 48, 512, 1 << 20
"""Pieces into which a model is cut at the most, threads that all of them may have (each has its
own), and bytes of values up to which nodes stay in one piece."""


def options(switches: Mapping[str, str]) -> Any:
    """Returns a session's options: ``threads``, ``deterministic`` and ``optimisation``."""
    found = onnxruntime.SessionOptions()
    found.log_severity_level = 4
    found.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if "threads" in switches:
        found.intra_op_num_threads = int(switches["threads"])
        found.inter_op_num_threads = 1
    if "deterministic" in switches:
        found.use_deterministic_compute = switches["deterministic"] == "1"
    if "optimisation" in switches:
        found.graph_optimization_level = LEVELS[switches["optimisation"]]
    return found


@functools.cache
def share_memory() -> None:
    """Gives all pieces one arena: without it the heap is torn, and takes twice what is alive.

    ONNX Runtime keeps it for the process; only sessions that ask for it use it.
    """
    kind = binding.OrtAllocatorType.ORT_ARENA_ALLOCATOR
    memory = binding.OrtMemoryInfo("Cpu", kind, 0, binding.OrtMemType.DEFAULT)
    as_requested = 1
    try:
        onnxruntime.create_and_register_allocator(
            memory, onnxruntime.OrtArenaCfg(0, as_requested, 1 << 16, -1)
        )
    except Exception:  # the program has registered one: it serves as well
        return


class Optimised:
    """The optimised model's nodes, and the pieces in which they run.

    At the first run every node is a piece; from then on nodes in a row are one as long as their
    values stay small beside what is alive at once in any case. ``mapped``: the bytes of large
    weights.
    """

    def __init__(
        self, model: Any, switches: Mapping[str, str], mapped: np.ndarray | None = None
    ) -> None:
        share_memory()
        self.model, self.switches = model, {**switches, "optimisation": "none"}
        self.mapped = mapped
        self.weights = {one.name: Constant.of(one, mapped) for one in model.graph.initializer}
        del model.graph.initializer[:]
        self.given = [one.name for one in model.graph.input if one.name not in self.weights]
        self.outputs = [one.name for one in model.graph.output]
        nodes = onnx_pieces.ordered(list(model.graph.node), self.outputs)
        self.nodes = self._without_constants(nodes)
        self.events: list[Event] = []
        self.pieces: list[list[Any]] = []
        self.sessions: list[tuple[Any, list[str], list[str]]] = []
        self.touched: list[tuple[list[str], list[str]]] = []
        self.counts: Counter[str] = Counter()
        self.kinds: dict[str, int] = {}
        self.values: dict[str, Any] = {}
        self.left: Counter[str] = Counter()
        self.blocks: dict[str, Block] = {}
        self.made: dict[str, str] = {}
        self.settled: set[str] = set()
        self.opset = max(
            (one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), default=1
        )
        if any(node.domain == onnx_pieces.BLOCKED for node in self.nodes):
            self.block = onnx_pieces.block_size(self._one_node)

    def _without_constants(self, nodes: Iterable[Any]) -> list[Any]:
        """Keeps what nodes hold as weights, as ONNX Runtime itself does, and returns the rest."""
        found = []
        for node in nodes:
            value = onnx_pieces.held(node)
            if value is None:
                found.append(node)
            else:
                self.weights[node.output[0]] = value
        return found

    def _one_node(self, op: str, array: np.ndarray) -> np.ndarray:
        """Runs a node of the blocked layout's domain on an array."""
        node = helper.make_node(op, ["x"], ["y"], domain=onnx_pieces.BLOCKED)
        self.kinds = {"x": onnx.TensorProto.FLOAT}
        found: np.ndarray = self.session([node]).run(None, {"x": array})[0]
        return found

    def session(self, nodes: Sequence[Any]) -> Any:
        """Returns a session of nodes, which runs them as they are."""
        made = {name for node in nodes for name in node.output}
        names = dict.fromkeys(name for node in nodes for name in onnx_pieces.uses(node))
        fed = {k: self.kinds[k] for k in names if k in self.kinds and k not in made}
        held = [self.weights[name].tensor(name) for name in names if name in self.weights]
        return self.started(onnx_pieces.piece(nodes, fed, held, self.model))

    def started(self, content: bytes) -> Any:
        """Returns a session of a piece, which runs it as it is."""
        made = options(self.switches)
        made.enable_mem_pattern = False
        made.add_session_config_entry("session.use_env_allocators", "1")
        return onnxruntime.InferenceSession(content, made, providers=PROVIDERS)

    def run(self, inputs: Mapping[str, np.ndarray], visit: Visit) -> list[Seen]:
        """Runs all nodes, and returns the outputs."""
        self.values = {
            name: onnxruntime.OrtValue.ortvalue_from_numpy(inputs[name]) for name in self.given
        }
        self.left = Counter(self.outputs)
        if not self.pieces:
            self._first(visit)
            return [self.seen(name) for name in self.outputs]
        self.left.update(self.counts)
        described = iter(zip(self.events, self.touched, strict=True))
        for nodes, session in zip(self.pieces, self.sessions, strict=True):
            self._compute(nodes, *session)
            for _ in nodes:
                event, touched = next(described)
                visit(event)
                self._forget(*touched)
        return [self.seen(name) for name in self.outputs]

    def _first(self, visit: Visit) -> None:
        """Runs nodes one by one, those of the branches that are taken among them."""
        pending, done = list(self.nodes), []
        sizes, alive = [], 0
        self.kinds = {name: one.element_type() for name, one in self.values.items()}
        self.settled = {n for n, one in self.values.items() if "float" not in one.data_type()}
        self._expect(pending)
        while pending:
            node = pending.pop(0)
            if node.op_type == "If" and not node.domain:
                taken = bool(self.array(node.input[0]).any())
                inner, constants = onnx_pieces.branch(node, taken, self.mapped)
                self.weights |= constants
                self._expect(inner)
                self._forget(*_touched(node))
                pending[:0] = self._without_constants(inner)
                continue
            done.append(node)
            sizes.append(self._compute([node], *_named(self.session([node]))))
            self.kinds.update((k, self.values[k].element_type()) for k in node.output if k)
            alive = max(alive, sum(one.numpy().nbytes for one in self.values.values()))
            self.events.append(self._event(node))
            visit(self.events[-1])
            self._forget(*_touched(node))
        threads = int(self.switches.get("threads", 0)) or os.cpu_count() or 1
        self.nodes, self.pieces = done, _cut(done, sizes, alive, threads)
        values, self.values = self.values, {}
        self.values = {name: values[name] for name in self.outputs if name in values}
        del values  # sessions are made while little is alive: between values they tear the heap
        self.sessions = [_named(self.session(nodes)) for nodes in self.pieces]
        self.touched = [_touched(node) for node in done]
        self.counts = Counter(name for uses, _ in self.touched for name in uses)

    def _expect(self, nodes: Iterable[Any]) -> None:
        """Counts what the nodes read."""
        for node in nodes:
            self.left.update(onnx_pieces.uses(node))

    def _forget(self, uses: Sequence[str], every: Sequence[str]) -> None:
        """Forgets what a node was the last to read, or gave in vain."""
        for name in uses:
            self.left[name] -= 1
        for name in every:
            if self.left[name] <= 0:
                self.values.pop(name, None)

    def _compute(
        self, nodes: Sequence[Any], session: Any, reads: Sequence[str], gives: Sequence[str]
    ) -> int:
        """Runs nodes in a row; returns the bytes of what a single one gives."""
        found = session.run_with_ort_values(gives, {name: self.values[name] for name in reads})
        self.values.update(zip(gives, found, strict=True))
        return sum(one.numpy().nbytes for one in found) if len(nodes) == 1 else 0

    def array(self, name: str) -> np.ndarray:
        """Returns a value's bits as a container array, in ONNX's own order."""
        held = name not in self.values
        found: np.ndarray = self.weights[name].array if held else self.values[name].numpy()
        if found.dtype == BFLOAT16:
            found = found.view(np.uint16)
        return self.blocks[name].opened(found) if name in self.blocks else found

    def _event(self, node: Any) -> Event:
        self._order(node)
        names = [] if node.op_type in ("Shape", "Size") and not node.domain else node.input
        reads = [name for name in names if name]
        reads += [name for name in onnx_pieces.captured(node) if name not in reads]
        gives = [name for name in node.output if name]
        if all(name in self.settled or name in self.weights for name in reads):
            self.settled.update(gives)
        words = onnx_pieces.attributes(node)
        places = positions(node.input, reads)
        operands = [self._operand(*both) for both in zip(node.input, places, strict=True)]
        said = {name: _said(value) for name, value in words.items()}
        if node.domain not in ("", "ai.onnx"):
            said["domain"] = node.domain
        given, seen = ([self.seen(name) for name in names] for names in (gives, reads))
        addresses = [one.address for one in seen]
        again = Laid(self._again(node, reads), addresses)
        return Event(
            *(node.op_type, self._path(node, gives)),
            *(seen, given),
            self._meaning(node, words, operands, given, again),
            said,
            *(again, self._lines(node, reads, gives, addresses)),
            ("import onnxruntime", "from onnx import TensorProto, helper, numpy_helper"),
        )

    def _path(self, node: Any, gives: list[str]) -> str:
        """Returns a node's name.
        ONNX Runtime draws those of nodes that it adds anew in every session."""
        path = node.name or gives[0]
        if node.domain == onnx_pieces.BLOCKED:
            path = path.removesuffix("_nchwc")
        if re.fullmatch(node.op_type + r"(_token_\d+)?", path):
            path = f"{self.made.get(node.input[0], node.input[0])}/{node.op_type}"
        self.made.update(dict.fromkeys(gives, path))
        return str(path)

    def _order(self, node: Any) -> None:
        """Notes which values are in ONNX Runtime's blocked layout."""
        blocked = node.domain == onnx_pieces.BLOCKED
        if blocked and node.op_type == "Conv":
            shape = self.weights[node.input[1]].array.shape
            self.blocks[node.input[1]] = onnx_pieces.block_of_filters(shape, self.block)
        if blocked or self.blocks:
            reads = [self.blocks.get(name) for name in node.input]
            size = getattr(self, "block", 0)
            found = onnx_pieces.block_of_outputs(node.domain, node.op_type, reads, size)
            if found is not None:
                self.blocks |= dict.fromkeys((name for name in node.output if name), found)

    def _meaning(
        self,
        node: Any,
        words: dict[str, Any],
        operands: list[Operand | None],
        gives: list[Seen],
        again: Laid,
    ) -> Meaning:
        block = self.blocks.get(node.input[0]) if len(node.input) else None
        if node.op_type == "Reshape" and block is not None and operands[0] is not None:
            back = block.inner == onnx_pieces.SPLIT
            return onnx_pieces.reshaped_block(block.size, operands[0].shape, back)
        shapes, dtypes = [one.shape for one in gives], [one.dtype for one in gives]
        ends = node.domain, self.opset, again
        return meaning(Call(node.op_type, words, operands, shapes, dtypes, *ends))

    def _operand(self, name: str, at: int) -> Operand | None:
        if not name:
            return None
        settled = name in self.weights or name in self.settled
        seen = self.seen(name)
        content = (lambda: self.array(name)) if settled else None
        return Operand(at, seen.shape, seen.dtype, content)

    def seen(self, name: str) -> Seen:
        """Returns a value as it is met."""
        held = name not in self.values
        kind = self.weights[name].kind if held else self.values[name].element_type()
        shape = self.weights[name].array.shape if held else tuple(self.values[name].shape())
        known = name if held or name in self.given else ""
        role = WEIGHT if held else INPUT
        plain = not held and name not in self.blocks and self.values[name].is_tensor()
        address = self.values[name].data_ptr() % layout.BOUNDARY if plain else None
        return Seen(name, shape, _dtype(kind), lambda: self.array(name), role, known, address)

    def _again(
        self, node: Any, reads: list[str]
    ) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]]:
        of, weights = self, self.weights
        kinds = {name: self.values[name].element_type() for name in reads if name in self.values}
        blocks = dict(of.blocks)
        sessions: list[Any] = []

        def again(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
            given = {}
            for name, array in zip(reads, arrays, strict=True):
                given[name] = np.ascontiguousarray(
                    blocks[name].closed(array) if name in blocks else array
                ).reshape(array.shape)
            fed = {name: array for name, array in given.items() if name not in weights}
            held = [
                weights[name].tensor(name, one) for name, one in given.items() if name not in fed
            ]
            content = onnx_pieces.piece([node], kinds, held, of.model)
            if not sessions or sessions[0] != content:
                sessions[:] = [content, of.started(content)]
            names = [name for name in node.output if name]
            found = sessions[1].run(names, fed)
            return [
                blocks[name].opened(one) if name in blocks else one
                for name, one in zip(names, found, strict=True)
            ]

        return again

    def _lines(
        self,
        node: Any,
        reads: list[str],
        gives: list[str],
        addresses: list[int | None],
    ) -> Callable[[Sequence[str], str], list[str]]:
        of = self
        kinds = {name: self.values[name].element_type() for name in reads if name in self.values}
        blocks = {name: of.blocks[name] for name in reads if name in of.blocks}
        words = {
            name: value
            for name, value in onnx_pieces.attributes(node).items()
            if not isinstance(value, np.ndarray)
        }

        def lines(names: Sequence[str], out: str) -> list[str]:
            own = dict(zip(reads, names, strict=True))
            found = laid(names, addresses)
            found += [line for name in blocks for line in blocks[name].lines(own[name])]
            inputs = [own.get(name, "") for name in node.input]
            outputs = [f"{out}{n or ''}" if name else "" for n, name in enumerate(node.output)]
            said = "".join(f", {key}={json.dumps(value)}" for key, value in words.items())
            said += f', domain="{node.domain}"' * bool(node.domain)
            fed = [
                f'helper.make_tensor_value_info("{own[name]}", {kind}, None)'
                for name, kind in kinds.items()
            ]
            held = [
                f'numpy_helper.from_array({own[name]}, "{own[name]}")'
                for name in reads
                if name not in kinds
            ]
            opsets = [
                f'helper.make_opsetid("{one.domain}", {one.version})'
                for one in of.model.opset_import
                if one.domain in ("", node.domain)
            ]
            found += [
                f'node = helper.make_node("{node.op_type}", {inputs}, {outputs}{said})',
                f"inputs, constants = [{', '.join(fed)}], [{', '.join(held)}]",
                f"outputs = [helper.make_empty_tensor_value_info(y) for y in {outputs} if y]",
                'graph = helper.make_graph([node], "one", inputs, outputs, constants)',
                f"model = helper.make_model(graph, opset_imports=[{', '.join(opsets)}], "
                f"ir_version={of.model.ir_version})",
                "options = onnxruntime.SessionOptions()",
            ]
            if "threads" in of.switches:
                found.append(f"options.intra_op_num_threads = {of.switches['threads']}")
            if "deterministic" in of.switches:
                on = of.switches["deterministic"] == "1"
                found.append(f"options.use_deterministic_compute = {on}")
            given = ", ".join(f'"{own[name]}": {own[name]}' for name in kinds)
            found += [
                "options.graph_optimization_level = "
                "onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL",
                "session = onnxruntime.InferenceSession(model.SerializeToString(), options, "
                'providers=["CPUExecutionProvider"])',
                f"{out} = session.run(None, {{{given}}})[0]",
            ]
            if gives[0] in of.blocks:
                found += of.blocks[gives[0]].lines(out, back=True)
            return found

        return lines


def _named(session: Any) -> tuple[Any, list[str], list[str]]:
    """A session with the names of its inputs and outputs, which it makes anew when asked."""
    inputs, outputs = session.get_inputs(), session.get_outputs()
    return session, [one.name for one in inputs], [one.name for one in outputs]


def _touched(node: Any) -> tuple[list[str], list[str]]:
    """Returns what a node reads, and that with what it gives."""
    uses = onnx_pieces.uses(node)
    return uses, [*uses, *node.output]


@functools.cache
def _dtype(kind: int) -> str:
    """Returns the name of a type that ONNX gives a number."""
    if kind == onnx.TensorProto.BFLOAT16:
        return "bfloat16"
    return str(helper.tensor_dtype_to_np_dtype(kind))


def _cut(nodes: list[Any], sizes: list[int], alive: int, threads: int) -> list[list[Any]]:
    """Nodes in a row that are one piece: each gives about a quarter of what is alive at once."""
    pieces = max(2, min(MOST_PIECES, MOST_THREADS // max(threads, 1)))
    most = max(SMALL_PIECE, alive // 4, sum(sizes) // pieces)
    found: list[list[Any]] = []
    size = 0
    for node, one in zip(nodes, sizes, strict=True):
        if not found or size + one > most:
            found.append([])
            size = 0
        found[-1].append(node)
        size += one
    return found


def _said(value: Any) -> Any:
    """Returns an attribute plain enough for JSON."""
    return value.tolist() if isinstance(value, np.ndarray) else value
