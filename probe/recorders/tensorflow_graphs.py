"""Graphs that TensorFlow runs, node by node: of ``tf.function``, ``predict`` and saved models.

A function is taken as TensorFlow itself runs it: the graph that is left when Grappler has optimised
it, whose fused operations are nodes like others (``_FusedMatMul``). Its nodes are then run one by
one, so that nothing has to be fetched that would break a fusion and no more than a few values are
held. Loops and branches are written out as they run; such a function is taken as it was traced.
Either way the outputs must have the bits that the function itself gave, or it is one operation, as
are functions compiled by XLA and those that change a state. Which outputs of one operation must
agree is then said by the nodes that it was traced from (:mod:`probe.recording.composed`).
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import function_def_to_graph, op_def_registry

from probe.recorders.tensorflow_values import array, attribute, kind, run, sizes, tensor_of
from probe.recorders.tensorflow_watch import Watching
from probe.recording import composed
from probe.recording.contract import CONSTANT, WEIGHT, Event, Seen, Visit
from probe.recording.recording import digest, recorded
from probe.semantics import Meaning, Unknown

CALLS = ("PartitionedCall", "StatefulPartitionedCall")
LOOPS, BRANCHES = ("While", "StatelessWhile"), ("If", "StatelessIf", "Case", "StatelessCase")
FLOW = ("Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond")
HARMLESS = (
    *(*CALLS, *LOOPS, *BRANCHES, "ReadVariableOp", "VarIsInitializedOp", "VariableShape", "NoOp"),
    *("Assert", "ResourceGather", "Placeholder", "CheckNumerics", "EnsureShape"),
    *("LookupTableFindV2", "LookupTableSizeV2", "TensorListReserve"),
)
"""Stateful by TensorFlow's registry, and yet the same however often they run."""

COMPILED, STATE, BITS = (
    "compiled functions (XLA) are one operation",
    "a function that changes a state, draws random numbers or calls Python is one operation",
    "a function whose nodes, run one by one, give different bits is one operation",
)


@dataclass
class Node:
    """An operation of a graph. ``inputs``: (node, output) pairs; ``count``: how many outputs."""

    name: str
    op: str
    inputs: tuple[tuple[str, int], ...]
    attributes: tuple[Any, ...]
    count: int
    path: str
    constant: Any = None
    after: tuple[str, ...] = ()


@dataclass
class Graph:
    """The nodes of a function in an order in which they can run.

    ``fed``: the node of each input; ``given``: the (node, output) of each output of the function.
    ``last``: the nodes that are read for the last time by a node, by its place.
    """

    nodes: list[Node]
    fed: dict[int, str]
    given: list[tuple[str, int]]
    last: dict[int, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        users: dict[str, int] = {}
        for place, node in enumerate(self.nodes):
            for name, _ in node.inputs:
                users[name] = place
        held = {name for name, _ in self.given}
        for name, place in users.items():
            if name not in held:
                self.last.setdefault(place, []).append(name)


@dataclass
class Function:
    """How a function is watched: as a ``graph``, or as one operation, of ``meaning``."""

    graph: Graph | None
    meaning: Meaning
    why: str = ""


def called(
    watch: Watching, name: str, inputs: list[Any], outputs: list[Any], path: str = ""
) -> None:
    """A function has run and given ``outputs``."""
    key = _signature(name, inputs)
    if key not in watch.functions:
        watch.functions[key] = opened(watch, name, inputs, outputs)
    made: Function = watch.functions[key]
    if made.why:
        watch.said.append(made.why)
    if made.graph is None:
        _one(watch, name, inputs, outputs, made.meaning, path)
        return
    found = walk(watch, made.graph, inputs)
    for ours, theirs in zip(outputs, found, strict=True):
        watch.aliases[ours._id] = watch.key(theirs)


def instead(watch: Watching, name: str, inputs: list[Any]) -> list[Any] | None:
    """Returns what a function gives, computed by its nodes; None where they have not been found to
    give its bits before. It need not run beside them then."""
    made = watch.functions.get(_signature(name, inputs))
    if made is None or made.graph is None:
        return None
    return walk(watch, made.graph, inputs)


def _signature(name: str, inputs: Sequence[Any]) -> Hashable:
    return name, tuple((kind(one).name, sizes(one)) for one in inputs)


def opened(watch: Watching, name: str, inputs: list[Any], outputs: list[Any]) -> Function:
    """Finds out how a function can be watched: by running it, and its nodes, once."""
    definitions = list(_reached(name))
    if any(_stateful(node) for one in definitions for node in one.node_def):
        return Function(None, Unknown(STATE), STATE)
    if any(_compiled(one) for one in definitions[:1]):
        return Function(None, _composed(watch, name, inputs), COMPILED)
    for make in (_optimised, traced):
        graph = make(watch, name, inputs)
        if graph is not None and _same(watch, graph, inputs, outputs):
            return Function(graph, Unknown())
    return Function(None, _composed(watch, name, inputs), BITS)


def _same(watch: Watching, graph: Graph, inputs: list[Any], outputs: list[Any]) -> bool:
    """Returns whether the nodes, run one by one, give the function's bits."""
    quiet = Watching(lambda _: None, watch.names, watch.functions)
    try:
        found = walk(quiet, graph, inputs)
    except (tf.errors.OpError, TypeError, ValueError, KeyError):
        return False
    return len(found) == len(outputs) and all(
        a.dtype == b.dtype and digest(array(a)) == digest(array(b))
        for a, b in zip(found, outputs, strict=True)
    )


def walk(watch: Watching, graph: Graph, inputs: Sequence[Any]) -> list[Any]:
    """Runs the nodes, and lets ``watch`` see each. Returns the outputs' tensors."""
    for one in inputs:
        if not kind(one).unread:
            watch.key(one)
    made: dict[str, list[Any]] = {
        graph.fed[n]: [one] for n, one in enumerate(inputs) if n in graph.fed
    }
    for place, node in enumerate(graph.nodes):
        if node.constant is not None:
            made[node.name] = [node.constant]
            key = watch.aliases.setdefault(node.constant._id, ("constant", node.constant._id))
            watch.roles.setdefault(key, (CONSTANT, node.name))
        elif node.name not in made:
            read = [made[name][k] for name, k in node.inputs]
            made[node.name] = _ran(watch, node, read)
        for name in graph.last.get(place, ()):
            made.pop(name, None)
    return [made[name][k] for name, k in graph.given]


def _ran(watch: Watching, node: Node, read: list[Any]) -> list[Any]:
    words = dict(zip(node.attributes[::2], node.attributes[1::2], strict=True))
    if node.op in CALLS:
        if not _compiled(context.context().get_function_def(words["f"])):
            return _inside(watch, words["f"], read)
        found = run(words["f"], read, _options(), node.count)
        called(watch, words["f"], read, found, node.path)
        return found
    if node.op in LOOPS:
        while bool(array(_inside(watch, words["cond"], read)[0])):
            read = _inside(watch, words["body"], read)
        return read
    if node.op in BRANCHES:
        which = int(array(read[0]))
        names = (
            words["branches"] if "Case" in node.op else [words["else_branch"], words["then_branch"]]
        )
        return _inside(watch, names[min(max(which, 0), len(names) - 1)], read[1:])
    found = run(node.op, read, node.attributes, node.count)
    for one in found:  # no variable's memory, where it would be looked for
        watch.aliases[one._id] = one._id
    watch.met(node.op, read, node.attributes, found, node.path)
    return found


def _inside(watch: Watching, name: str, read: list[Any]) -> list[Any]:
    return walk(watch, traced(watch, name), read)


def _reached(name: str) -> Iterator[Any]:
    """Yields the definition of a function, and of all that it calls."""
    ctx, pending, met = context.context(), [name], set()
    while pending:
        now = pending.pop()
        if now in met or not ctx.has_function(now):
            continue
        met.add(now)
        made = ctx.get_function_def(now)
        yield made
        for node in made.node_def:
            for value in node.attr.values():
                every = [value.func, *value.list.func]
                pending += [one.name for one in every if one.name]


def _stateful(node: Any) -> bool:
    made = op_def_registry.get(node.op)
    return made is not None and made.is_stateful and node.op not in HARMLESS


def _compiled(definition: Any) -> bool:
    return (
        bool(definition.attr["_XlaMustCompile"].b)
        if "_XlaMustCompile" in definition.attr
        else False
    )


def _optimised(watch: Watching, name: str, inputs: list[Any]) -> Graph | None:
    """Returns the graph that TensorFlow runs for these inputs; None where it holds loops."""
    ctx = context.context()
    definition = ctx.get_function_def(name)
    attributes = _options()
    ctx.clear_kernel_cache()
    ctx.enable_graph_collection()
    try:
        run(name, inputs, attributes, len(definition.signature.output_arg))
        graphs = list(ctx.export_run_metadata().function_graphs)
    finally:
        ctx.disable_graph_collection()
    count = len(definition.signature.output_arg)
    fitting = [one for one in graphs if _returns(one.post_optimization_graph) == count]
    if len(fitting) != 1:
        return None
    after = fitting[0].post_optimization_graph
    if any(node.op in FLOW for node in after.node):
        return None
    order = {one: n for n, one in enumerate(_written_order(definition, ""))}
    fed, given, nodes = {}, {}, []
    for one in after.node:
        if one.op in ("_Arg", "_DeviceArg"):
            fed[int(one.attr["index"].i)] = one.name
        elif one.op in ("_Retval", "_DeviceRetval"):
            given[int(one.attr["index"].i)] = _place(next(iter(one.input)))
        else:
            nodes.append(_node(watch, one))
    return Graph(_sorted(nodes, order), fed, [given[n] for n in range(count)])


def _written_order(definition: Any, prefix: str) -> Iterator[str]:
    """The names of a function's nodes in the order of the program, those that it calls in place."""
    ctx = context.context()
    for node in definition.node_def:
        yield prefix + node.name
        inner = node.attr["f"].func.name if node.op in CALLS else ""
        if inner and ctx.has_function(inner):
            yield from _written_order(ctx.get_function_def(inner), f"{prefix}{node.name}/")


def _returns(graph: Any) -> int:
    return sum(node.op in ("_Retval", "_DeviceRetval") for node in graph.node)


def _sorted(nodes: list[Node], order: dict[str, int]) -> list[Node]:
    """Nodes in the order of the program, each behind what it reads."""
    by_name = {node.name: node for node in nodes}
    needs = {
        node.name: {name for name in (*(n for n, _ in node.inputs), *node.after) if name in by_name}
        for node in nodes
    }
    users: dict[str, list[str]] = {}
    for name, read in needs.items():
        for one in read:
            users.setdefault(one, []).append(name)
    at = {name: order.get(name, -1) for name in by_name}
    ready = [(at[name], name) for name, read in needs.items() if not read]
    heapq.heapify(ready)
    found = []
    while ready:
        place, name = heapq.heappop(ready)
        found.append(by_name[name])
        for user in users.get(name, ()):
            needs[user].discard(name)
            if at[user] < 0:  # new: right behind what it reads
                at[user] = place
            if not needs[user]:
                heapq.heappush(ready, (at[user], user))
    return found


def traced(watch: Watching, name: str, _: Any = None) -> Graph:
    """Returns the graph of a function as it was traced, before any optimisation."""
    if (known := watch.functions.get(name)) is not None:
        return known
    definition = context.context().get_function_def(name)
    graph, flat = function_def_to_graph.function_def_to_graph_def(definition)
    signature = definition.signature
    fed = {n: one.name for n, one in enumerate(signature.input_arg)}
    inputs = set(fed.values())
    nodes = [_node(watch, one) for one in graph.node if one.name not in inputs]
    given = [_place(flat[definition.ret[one.name]]) for one in signature.output_arg]
    made = Graph(_sorted(nodes, {n.name: k for k, n in enumerate(nodes)}), fed, given)
    watch.functions[name] = made
    return made


def _place(text: str) -> tuple[str, int]:
    name, _, number = text.partition(":")
    return name, int(number or 0)


def _node(watch: Watching, one: Any) -> Node:
    made = op_def_registry.get(one.op)
    attributes: list[Any] = []
    for each in made.attr if made is not None else ():
        if each.name in one.attr and one.op != "Const":
            attributes += [each.name, attribute(one.attr[each.name])]
    count = 0
    for each in made.output_arg if made is not None else ():
        if each.number_attr:
            count += int(one.attr[each.number_attr].i)
        else:
            count += len(one.attr[each.type_list_attr].list.type) if each.type_list_attr else 1
    constant = None
    if one.op == "Const":
        constant = tf.constant(tf.make_ndarray(one.attr["value"].tensor))
    inputs = tuple(_place(text) for text in one.input if not text.startswith("^"))
    after = tuple(text[1:] for text in one.input if text.startswith("^"))
    path = watch.names.path(one.name.rpartition("/")[0], True)
    return Node(one.name, one.op, inputs, tuple(attributes), count, path, constant, after)


def _one(
    watch: Watching, name: str, inputs: list[Any], outputs: list[Any], meaning: Meaning, path: str
) -> None:
    """A function as one operation."""
    path = path or watch.names.path((context.context().scope_name or "").rstrip("/"))
    places = _places(watch, inputs)
    reads = [watch.seen(inputs[n], path) for n in places]
    gives = [
        watch.seen(one, path) for one in outputs if one.dtype.name not in ("resource", "variant")
    ]
    plain = re.sub(r"^_*(inference_)?|_\d+$", "", name)
    attributes = _options()

    def again(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        fed = list(inputs)
        for n, bits in zip(places, arrays, strict=True):
            if inputs[n].dtype != tf.resource:
                fed[n] = tensor_of(bits, inputs[n].dtype)
        return [np.array(array(one)) for one in run(name, fed, attributes, len(outputs))]

    if gives and reads:
        for one in gives:
            if one.shape in watch.wanted:
                watch.numpy[one.shape, one.dtype, digest(one.array())] = one.key
        watch.visit(Event(f"function {plain}", path, reads, gives, meaning, {}, again))


def _options() -> tuple[Any, ...]:
    """Returns the attributes with which TensorFlow calls a function."""
    pairs = context.context().function_call_options.as_attrs().items()
    return tuple(one for pair in pairs for one in pair)


def _readable(one: Any) -> bool:
    """Returns whether it is an array, or a variable that holds one."""
    if one.dtype == tf.resource:
        data = one._handle_data
        return data is not None and bool(data.is_set) and len(data.shape_and_type) == 1
    return one.dtype.name not in ("variant", "string")


def _places(watch: Watching, inputs: list[Any]) -> list[int]:
    """Returns the inputs that are read, weights last: the order of the others is the program's."""
    places = [n for n, one in enumerate(inputs) if _readable(one)]
    return sorted(places, key=lambda n: watch.seen(inputs[n]).role == WEIGHT)


class _Inside:
    """The nodes of a function as a recorder of its own."""

    target = note = ""

    def __init__(self, watch: Watching, graph: Graph, inputs: list[Any]) -> None:
        self.outer, self.graph, self.inputs = watch, graph, inputs
        self.places = _places(watch, inputs)
        self.keys: list[Any] = []

    def plain(self) -> list[np.ndarray]:
        """Isn't asked for."""
        return []

    def record(self, visit: Visit) -> list[Seen]:
        """Runs the nodes one by one."""
        watch = Watching(visit, self.outer.names, self.outer.functions)
        self.keys = [watch.seen(self.inputs[n]).key for n in self.places]
        found = walk(watch, self.graph, self.inputs)
        return [watch.seen(one) for one in found]


def _composed(watch: Watching, name: str, inputs: list[Any]) -> Meaning:
    try:
        inner = _Inside(watch, traced(watch, name), inputs)
        live = recorded(inner, keep=False)
    except (tf.errors.OpError, TypeError, ValueError, KeyError) as error:
        return Unknown(f"its nodes can't be run one by one ({type(error).__name__})")
    plain = live.recording
    operands = dict[int, int]()
    for number, key in enumerate(inner.keys):
        if key in live.keys:
            operands.setdefault(live.keys[key], number)
    made = composed.steps(plain, operands, len(inner.keys), plain.outputs)
    return made or Unknown("one of its nodes has values that labels can't describe")
