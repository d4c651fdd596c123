"""One watched run of TensorFlow: every eager operation, and the nodes of the graphs that run.

A function (``tf.function``, ``predict``, a saved model) is taken as TensorFlow itself runs it: the
graph that is left when Grappler has optimised it, whose fused operations are nodes like others
(``_FusedMatMul``). Its nodes are then run one by one, so that nothing has to be fetched that would
break a fusion and no more than a few values are held. Loops and branches are written out as they
run; such a function is taken as it was traced. Either way the outputs must have the bits that the
function itself gave, or it is one operation, as are functions compiled by XLA and those that change
a state. Which outputs of one operation must agree is then said by the nodes that it was traced from
(:mod:`probe.recording.recording`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from probe.recorders.interpreter import (
    Body,
    Interpreter,
    Key,
    Node,
    SaidOnce,
    behind_needs,
    repeated,
)
from probe.recorders.tensorflow_table import meaning
from probe.recorders.tensorflow_values import (
    Names,
    RanOperation,
    array,
    arrays,
    attribute,
    by_xla,
    call_options,
    definition_of,
    graph_of,
    held_in,
    is_function,
    name_scope,
    number_of,
    optimised_graphs,
    run_op,
    schema,
    sizes_of,
    structure,
    tensor_of,
    type_of,
    value_of,
    watched_calls,
)
from probe.recording.contract import CONSTANT, INPUT, WEIGHT, Operation, Said, Seen, Visit
from probe.recording.recording import UncompiledSource, array_digest, steps_of_source
from probe.semantics import Meaning, Unknown
from probe.semantics import operations as o

CALLS = ("PartitionedCall", "StatefulPartitionedCall")
LOOPS, BRANCHES = ("While", "StatelessWhile"), ("If", "StatelessIf", "Case", "StatelessCase")
FLOW = ("Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond")
# Stateful by TensorFlow's registry, and yet the same however often they run.
HARMLESS = (
    *(*CALLS, *LOOPS, *BRANCHES, "ReadVariableOp", "VarIsInitializedOp", "VariableShape", "NoOp"),
    *("Assert", "ResourceGather", "Placeholder", "CheckNumerics", "EnsureShape"),
    *("LookupTableFindV2", "LookupTableSizeV2", "TensorListReserve"),
)

READS = ("ReadVariableOp", "VarIsInitializedOp", "VariableShape")
HANDED_ON = ("Identity", "IdentityN", "StopGradient", "Snapshot")
# What they give depends on no element, or on sizes alone: it is a constant of the run.
SHAPES = ("Shape", "ShapeN", "Size", "Rank", "VariableShape", "ZerosLike", "OnesLike", "Range")

COMMUTE = ("Add", "AddV2", "Mul", "Maximum", "Minimum")
# Elements of what is taken for a shape.
SMALL_SHAPE = 16

IMPORTS = ("import tensorflow as tf",)

COMPILED, STATE, BITS = (
    "compiled functions (XLA) are one operation",
    "a function that changes a state, draws random numbers or calls Python is one operation",
    "a function whose nodes, run one by one, give different bits is one operation",
)


@dataclass(eq=False)
class FunctionNode(Node):
    """An operation of a function: ``own`` its attributes, names and values in turn, ``path`` its
    name; ``after``: nodes that run before it. Keys of values: (node, output)."""

    after: tuple[str, ...] = ()

    @property
    def function(self) -> str:
        """Returns what a node calls that is of ``CALLS``."""
        return str(self.words["f"])


class WatchedFunction(NamedTuple):
    """How a function is watched: as a ``graph``, or as one operation, of ``meaning``."""

    graph: Body | None
    meaning: Meaning
    why: str = ""


class KnownGraphs:
    """What stays from one run to the next.

    ``functions``: how each is watched, by its name and inputs; ``traced``: graphs by their names;
    ``told``: what is said of calls that are alike.
    """

    def __init__(self) -> None:
        self.names = Names()
        self.functions: dict[Hashable, WatchedFunction] = {}
        self.traced: dict[str, Body] = {}
        self.told = SaidOnce()


class Watching(Interpreter):
    """One watched run: the keys of its values, and what is known of them.

    ``wanted``: shapes of outputs, of which NumPy may hold the numbers.
    """

    def __init__(
        self, visit: Visit, known: KnownGraphs, wanted: Iterable[tuple[int, ...]] = ()
    ) -> None:
        self.visit, self.known, self.names = visit, known, known.names
        self.wanted = set(wanted)
        self.aliases: dict[int, Hashable] = {}
        self.variables: dict[int, Hashable] = {}
        self.lists: dict[int, list[Seen | None]] = {}
        self.shapes: set[int] = set()
        self.given: dict[Hashable, int] = {}
        self.roles: dict[Hashable, tuple[str, str]] = {}
        self.writes, self.graphs, self.busy = 0, 0, False
        self.said: list[str] = []
        self.memory: dict[tuple[Any, ...], Any] | None = None
        self.sizes: set[tuple[int, ...]] | None = None
        self.numpy: dict[tuple[tuple[int, ...], str, str], Hashable] = {}

    def watching(self) -> AbstractContextManager[None]:
        """Watches what this thread runs eagerly."""
        return watched_calls(self._callback, self._by_nodes)

    def _by_nodes(self, name: str, inputs: list[Any]) -> list[Any] | None:
        """Runs a function by its nodes, if they are known to give its bits."""
        made = None if self.busy else self.known.functions.get(_signature(name, inputs))
        if made is None or made.graph is None:
            return None
        with self._busy():
            self.graphs += 1
            return self.walk(made.graph, inputs)

    @contextmanager
    def _busy(self) -> Iterator[None]:
        self.busy = True
        try:
            yield
        finally:
            self.busy = False

    def _callback(
        self, op: Any, inputs: Any, attributes: Any, outputs: Any, *more: Any, **words: Any
    ) -> None:
        """Is called behind each operation; those of which a graph is being built are skipped."""
        if self.busy or words.get("graph") is not None or not tf.executing_eagerly():
            return
        with self._busy():
            name = op.decode() if isinstance(op, bytes) else op
            given = list(outputs) if isinstance(outputs, list | tuple) else []
            if is_function(name):
                self.graphs += 1
                self._called(name, list(inputs), given)
                return
            pairs = zip(attributes[::2], attributes[1::2], strict=True) if attributes else ()
            # None stands for TensorFlow's default
            flat = [one for pair in pairs if pair[1] is not None for one in pair]
            self._met(name, list(inputs), flat, given, self._path())

    def _path(self) -> str:
        return self.names.path(name_scope())

    def outputs(self, found: Any) -> list[Seen]:
        """What a function returned; an array of NumPy's is the last value that had its bits."""
        seen = []
        for one in arrays(found):
            tensor = tf.convert_to_tensor(one)
            if isinstance(one, np.ndarray):
                made = self.numpy.get((one.shape, tensor.dtype.name, array_digest(array(tensor))))
                if made is None:
                    self.said.append("an output was computed outside of TensorFlow, after it")
                else:
                    self.aliases[number_of(tensor)] = made
            seen.append(self.seen(tensor))
        return seen

    # values

    def key(self, tensor: Any) -> Hashable:
        """Returns the key of a tensor; one that is merely handed on keeps that of what it was.

        Where an operation is called with a variable, TensorFlow reads it past the callbacks: then
        the tensor has the variable's own memory.
        """
        if number_of(tensor) not in self.aliases and number_of(tensor) not in self.given:
            handle = self._held(tensor) if type_of(tensor).floating else None
            key = number_of(tensor) if handle is None else self._variable(handle, "")
            self.aliases[number_of(tensor)] = key
        return self.aliases.get(number_of(tensor), number_of(tensor))

    def _held(self, tensor: Any) -> Any:
        """Returns the handle of the variable whose memory a tensor has, or None."""
        if self.sizes is None:
            self.sizes = self.names.shapes()
        if sizes_of(tensor) not in self.sizes:
            return None
        if self.memory is None:
            self.memory = {_memory_of(one): handle for handle, one in self.names.held()}
        return self.memory.get(_memory_of(tensor))

    def _variable(self, handle: Any, path: str) -> Hashable:
        """Returns the key of what a variable holds now."""
        key = self.variables.setdefault(number_of(handle), ("variable", number_of(handle), 0))
        self.roles.setdefault(key, (WEIGHT, self.names.variable(number_of(handle)) or path))
        return key

    def seen(self, tensor: Any, path: str = "") -> Seen:
        """Returns what the contract says of a value.
        A variable's handle stands for what it holds."""
        if type_of(tensor).name == "resource":
            key = self._variable(tensor, path)
            dtype = held[1] if (held := held_in(tensor)) else None
            tensor = value_of(tensor, dtype)
        else:
            key = self.key(tensor)
        role, name = self.roles.get(key, (INPUT, ""))
        return Seen(key, sizes_of(tensor), type_of(tensor).name, lambda: array(tensor), role, name)

    def _gives(self, gives: Sequence[Seen]) -> None:
        self.given.update((one.key, len(self.given)) for one in gives)
        for one in gives:
            if one.shape in self.wanted:
                self.numpy[one.shape, one.dtype, array_digest(one.array())] = one.key

    # operations

    def _met(
        self, op: str, inputs: list[Any], attributes: Sequence[Any], outputs: list[Any], path: str
    ) -> None:
        """An operation has run."""
        if op == "ReadVariableOp":
            self.aliases[number_of(outputs[0])] = self._variable(inputs[0], path)
            return
        if op in HANDED_ON:
            for old, new in zip(inputs, outputs, strict=True):
                if type_of(old).name != "variant":
                    self.aliases[number_of(new)] = self.key(old)
                elif number_of(old) in self.lists:
                    self.lists[number_of(new)] = self.lists[number_of(old)]
            return
        if op.startswith("TensorList"):
            self._listed(op, inputs, outputs, path)
            return
        if op not in READS:
            self._written(op, inputs)
        read, given = self._read(op, inputs), _array_ends(op, attributes, outputs)
        fixed = op in SHAPES and (op != "Range" or all(type_of(one).whole for one in inputs))
        if fixed or not read or self._of_shapes([inputs[n] for n in read], outputs):
            for one in outputs:
                if op in SHAPES or type_of(one).whole:
                    self.shapes.add(number_of(one))
                    self.roles[number_of(one)] = CONSTANT, op
        elif given:
            reads = [self.seen(inputs[n], path) for n in read]
            gives = [self.seen(outputs[n], path) for n in given]
            self._gives(gives)
            told = self._told(RanOperation(op, inputs, attributes, outputs, read, given))
            self.visit(Operation(op, path, reads, gives, *told))

    def _told(self, ran: RanOperation) -> Said:
        """Returns what is said of a call."""

        def said(looked: list[int]) -> Said:
            call = ran.call(looked)
            return Said(meaning(call), ran.shown(), call.run, ran.lines(), IMPORTS)

        return self.known.told.of(ran.signature, said)

    def _read(self, op: str, inputs: list[Any]) -> list[int]:
        """Returns the numbers of the inputs that are arrays."""
        arguments = structure(op, len(inputs))
        found = [
            n
            for n, one in enumerate(inputs)
            if n not in arguments
            and (not type_of(one).unread or (op == "ResourceGather" and n == 0))
        ]
        if op in COMMUTE:  # Grappler swaps them: what was given earlier stands first
            found.sort(key=lambda n: self.given.get(self.key(inputs[n]), len(self.given)))
        return found

    def _of_shapes(self, inputs: list[Any], outputs: list[Any]) -> bool:
        """Whether an operation only calculates with shapes, or with numbers of the program."""
        return all(
            type_of(one).whole
            and (
                number_of(one) in self.shapes
                or (not sizes_of(one) and self.key(one) not in self.given)
            )
            for one in inputs
        ) and all(type_of(one).whole and prod(sizes_of(one)) <= SMALL_SHAPE for one in outputs)

    def _written(self, op: str, inputs: list[Any]) -> None:
        """A variable that is written has another key from now on."""
        for one in inputs:
            if one.dtype == tf.resource and op != "ResourceGather":
                self.writes += 1
                self.memory = None
                assigned = op == "AssignVariableOp"
                key = self.key(inputs[1]) if assigned else ("variable", number_of(one), self.writes)
                self.variables[number_of(one)] = key

    def _listed(self, op: str, inputs: list[Any], outputs: list[Any], path: str) -> None:
        """A list of tensors, as loops of a graph have it: its elements keep their keys."""
        held = self.lists.get(number_of(inputs[0])) if inputs else None
        if op == "TensorListReserve":
            self.lists[number_of(outputs[0])] = [None] * int(array(inputs[1]))
        elif op == "TensorListFromTensor":
            whole = self.seen(inputs[0], path)
            parts = [_element(whole, n) for n in range(whole.shape[0])]
            self.lists[number_of(outputs[0])] = list(parts)
            apart = o.unstack(0, len(parts))
            self.visit(Operation(op, path, [whole], parts, apart, again=lambda one: list(one[0])))
        elif op == "TensorListGetItem" and held and (one := held[int(array(inputs[1]))]):
            self.aliases[number_of(outputs[0])] = one.key
            self.roles[one.key] = one.role, one.name
        elif op == "TensorListSetItem" and held is not None:
            made = list(held)
            made[int(array(inputs[1]))] = self.seen(inputs[2], path)
            self.lists[number_of(outputs[0])] = made
        elif op == "TensorListStack" and held is not None:
            every = [one for one in held if one is not None]
            gives = [self.seen(outputs[0], path)]
            self.visit(Operation(op, path, every, gives, o.stack(0), again=lambda a: [np.stack(a)]))
        elif op not in ("TensorListLength", "TensorListElementShape"):
            self.said.append(f"{op}: its result is treated as an input")

    # functions

    def _called(self, name: str, inputs: list[Any], outputs: list[Any], path: str = "") -> None:
        """A function has run and given ``outputs``."""
        key = _signature(name, inputs)
        if key not in self.known.functions:
            self.known.functions[key] = self._opened(name, inputs, outputs)
        made = self.known.functions[key]
        if made.why:
            self.said.append(made.why)
        if made.graph is None:
            self._one(name, inputs, outputs, made.meaning, path)
            return
        for ours, theirs in zip(outputs, self.walk(made.graph, inputs), strict=True):
            self.aliases[number_of(ours)] = self.key(theirs)

    def _opened(self, name: str, inputs: list[Any], outputs: list[Any]) -> WatchedFunction:
        """Finds out how a function can be watched: by running it, and its nodes, once."""
        nodes = [node for one in _called_functions(name) for node in one.node_def]
        if any(schema(node.op).stateful and node.op not in HARMLESS for node in nodes):
            return WatchedFunction(None, Unknown(STATE), STATE)
        if by_xla(name):
            return WatchedFunction(None, self._composed(name, inputs), COMPILED)
        for make in (_optimised, lambda *_: traced_graph(name, self.known.traced)):
            graph = make(name, inputs)
            if graph is not None and self._same(graph, inputs, outputs):
                return WatchedFunction(graph, Unknown())
        return WatchedFunction(None, self._composed(name, inputs), BITS)

    def _same(self, graph: Body, inputs: list[Any], outputs: list[Any]) -> bool:
        """Returns whether the nodes, run one by one, give the function's bits."""
        try:
            found = Watching(lambda _: None, self.known).walk(graph, inputs)
        except (tf.errors.OpError, TypeError, ValueError, KeyError):
            return False
        return len(found) == len(outputs) and all(
            a.dtype == b.dtype and array_digest(array(a)) == array_digest(array(b))
            for a, b in zip(found, outputs, strict=True)
        )

    def constants_of(self, body: Body, inside: Any) -> dict[Key, Any]:
        for (node, _), one in body.constants.items():
            key = self.aliases.setdefault(number_of(one), ("constant", number_of(one)))
            self.roles.setdefault(key, (CONSTANT, node))
        return super().constants_of(body, inside)

    def walk(self, body: Body, given: Iterable[Any], inside: Any = None) -> list[Any]:
        """As of ``Interpreter``; what variables hold is known by their memory as it is now."""
        given = list(given)
        for one in given:
            if not type_of(one).unread:
                self.key(one)
        return super().walk(body, given, inside)

    def run_node(self, node: FunctionNode, read: list[Any], inside: Any) -> list[Any]:
        path = self.names.path(node.path.rpartition("/")[0], True)
        if node.op in CALLS and by_xla(node.function):
            found = run_op(node.function, read, call_options(), len(node.gives))
            self._called(node.function, read, found, path)
            return found
        graph = partial(traced_graph, known=self.known.traced)
        if (given := run_flow(self, node, read, graph)) is not None:
            return given
        found = run_op(node.op, read, node.own, len(node.gives))
        for one in found:  # no variable's memory, where it would be looked for
            self.aliases[number_of(one)] = number_of(one)
        self._met(node.op, read, node.own, found, path)
        return found

    def _one(
        self, name: str, inputs: list[Any], outputs: list[Any], meaning: Meaning, path: str
    ) -> None:
        """A function as one operation."""
        path, places = path or self._path(), self.places(inputs)
        reads = [self.seen(inputs[n], path) for n in places]
        given = [
            n for n, one in enumerate(outputs) if type_of(one).name not in ("resource", "variant")
        ]
        gives = [self.seen(outputs[n], path) for n in given]
        if gives and reads:
            self._gives(gives)
            plain, options = re.sub(r"^_*(inference_)?|_\d+$", "", name), call_options()

            def again(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
                fed = list(inputs)
                for n, bits in zip(places, arrays, strict=True):
                    if inputs[n].dtype != tf.resource:
                        fed[n] = tensor_of(bits, inputs[n].dtype)
                found = run_op(name, fed, options, len(outputs))
                return [np.array(array(found[n])) for n in given]

            self.visit(Operation(f"function {plain}", path, reads, gives, meaning, {}, again))

    def places(self, inputs: list[Any]) -> list[int]:
        """Returns the inputs that a function reads, weights last: the order of the others is the
        program's."""
        holds = [
            not type_of(one).unread if one.dtype != tf.resource else held_in(one) is not None
            for one in inputs
        ]
        places = [n for n, one in enumerate(holds) if one]
        return sorted(places, key=lambda n: self.seen(inputs[n]).role == WEIGHT)

    def _composed(self, name: str, inputs: list[Any]) -> Meaning:
        """Returns what a function computes by the nodes that it was traced from."""
        try:
            made = steps_of_source(_NodeSource(self, traced_graph(name, self.known.traced), inputs))
        except (tf.errors.OpError, TypeError, ValueError, KeyError) as error:
            return Unknown(f"its nodes can't be run one by one ({type(error).__name__})")
        return made or Unknown("one of its nodes has values that labels can't describe")


class _NodeSource(UncompiledSource):
    """The nodes of a function as a recorder of its own."""

    def __init__(self, watch: Watching, graph: Body, inputs: list[Any]) -> None:
        self.outer, self.graph, self.inputs = watch, graph, inputs

    def record(self, visit: Visit) -> list[Seen]:
        watch = Watching(visit, self.outer.known)
        self.keys = [watch.seen(self.inputs[n]).key for n in self.outer.places(self.inputs)]
        return [watch.seen(one) for one in watch.walk(self.graph, self.inputs)]


# graphs


def run_flow(
    runner: Interpreter, node: FunctionNode, read: list[Any], graph: Callable[[str], Body]
) -> list[Any] | None:
    """Runs a call, a loop or a branch by the nodes of what it calls, which ``graph`` gives by a
    function's name. None of any other node."""
    words = node.words
    if node.op in CALLS:
        return runner.walk(graph(node.function), read)
    if node.op in LOOPS:
        cond, body = graph(words["cond"]), graph(words["body"])

        def given(_: int, state: Sequence[Any]) -> Sequence[Any] | None:
            return state if bool(array(runner.walk(cond, state)[0])) else None

        return repeated(lambda _, state: runner.walk(body, state), read, given)[0]
    if node.op in BRANCHES:
        which = int(array(read[0]))
        names = words.get("branches") or [words["else_branch"], words["then_branch"]]
        # any other number is the last one's
        name = names[which if 0 <= which < len(names) else -1]
        return runner.walk(graph(name), read[1:])
    return None


def traced_graph(name: str, known: dict[str, Body]) -> Body:
    """Returns the graph of a function as it was traced, before any optimisation. ``known``: those
    that have been read."""
    if name not in known:
        definition = definition_of(name)
        graph, flat = graph_of(definition)
        inputs = [one.name for one in definition.signature.input_arg]
        nodes = [one for one in graph.node if one.name not in inputs]
        outputs = definition.signature.output_arg
        given = [_end_of(flat[definition.ret[one.name]]) for one in outputs]
        known[name] = _body(nodes, [one.name for one in nodes], inputs, given)
    return known[name]


def _optimised(name: str, inputs: list[Any]) -> Body | None:
    """Returns the graph that TensorFlow runs for these inputs; None where it holds loops."""
    definition = definition_of(name)
    count = len(definition.signature.output_arg)
    graphs = optimised_graphs(lambda: run_op(name, inputs, call_options(), count))
    outputs = ("_Retval", "_DeviceRetval")
    graphs = [one for one in graphs if sum(node.op in outputs for node in one.node) == count]
    if len(graphs) != 1 or any(node.op in FLOW for node in graphs[0].node):
        return None
    # an input that was optimised away keeps a name that no node reads
    fed, given, nodes = [f"unread {n}" for n in range(len(inputs))], {}, []
    for one in graphs[0].node:
        if one.op in ("_Arg", "_DeviceArg"):
            fed[int(one.attr["index"].i)] = one.name
        elif one.op in outputs:
            given[int(one.attr["index"].i)] = _end_of(one.input[0])
        else:
            nodes.append(one)
    order = list(_written_order(definition, ""))
    return _body(nodes, order, fed, [given[n] for n in range(count)])


def _body(
    protos: Sequence[Any], order: Sequence[str], inputs: Sequence[str], given: Sequence[Key]
) -> Body:
    """Returns nodes in the order of the program, each behind what it reads; those that aren't of
    the program (Grappler's) right before their first user."""
    by_name, place = {one.name: one for one in protos}, {name: n for n, name in enumerate(order)}
    first = sorted(by_name, key=lambda name: -place.get(name, len(order)))[::-1]

    def needs(name: str) -> list[str]:
        every = sorted(by_name[name].input, key=lambda text: text[0] == "^")
        return [one for text in every if (one := _end_of(text.removeprefix("^"))[0]) in by_name]

    ordered = [by_name[name] for name in behind_needs(first, needs)]
    constants = {
        (one.name, 0): tf.constant(tf.make_ndarray(one.attr["value"].tensor))
        for one in ordered
        if one.op == "Const"
    }
    nodes = [_function_node(one) for one in ordered if one.op != "Const"]
    return Body(nodes, [(name, 0) for name in inputs], given, constants)


def _function_node(one: Any) -> FunctionNode:
    own = schema(one.op)
    words = {name: attribute(one.attr[name]) for name in own.kinds if name in one.attr}
    count = 0
    for name, types in own.outputs:
        counted = one.attr[name] if name else None
        count += 1 if counted is None else len(counted.list.type) if types else int(counted.i)
    slots = [_end_of(text) for text in one.input if not text.startswith("^")]
    after = tuple(text[1:] for text in one.input if text.startswith("^"))
    attributes = tuple(each for pair in words.items() for each in pair)
    gives = [(one.name, n) for n in range(count)]
    return FunctionNode(attributes, one.op, slots, gives, (), words, one.name, after=after)


def _end_of(text: str) -> tuple[str, int]:
    name, _, number = text.partition(":")
    return name, int(number or 0)


def _written_order(definition: Any, prefix: str) -> Iterator[str]:
    """The names of a function's nodes in the order of the program, those that it calls in place."""
    for node in definition.node_def:
        yield prefix + node.name
        inner = node.attr["f"].func.name if node.op in CALLS else ""
        if inner and is_function(inner):
            yield from _written_order(definition_of(inner), f"{prefix}{node.name}/")


def _called_functions(name: str) -> Iterator[Any]:
    """Yields the definition of a function, and of all that it calls."""
    pending, met = [name], set()
    while pending:
        now = pending.pop()
        if now in met or not is_function(now):
            continue
        met.add(now)
        made = definition_of(now)
        yield made
        for node in made.node_def:
            for value in node.attr.values():
                pending += [one.name for one in (value.func, *value.list.func) if one.name]


def _signature(name: str, inputs: Sequence[Any]) -> Hashable:
    return name, tuple((type_of(one).name, sizes_of(one)) for one in inputs)


# tensors


def _memory_of(tensor: Any) -> tuple[Any, ...]:
    """Returns where an array is in memory, and its kind."""
    plain = array(tensor)
    memory = plain
    if not plain.ndim:  # of a single number NumPy gets a copy
        if tensor.dtype == tf.bfloat16:  # which has no buffer to share
            return number_of(tensor), (), ""
        memory = np.asarray(memoryview(tensor))
    return memory.ctypes.data, plain.shape, plain.dtype.str


def _element(whole: Seen, number: int) -> Seen:
    """Returns one element along the first axis."""
    key = ("part", whole.key, number)
    return Seen(key, whole.shape[1:], whole.dtype, lambda: whole.array()[number])


def _array_ends(op: str, attributes: Sequence[Any], outputs: list[Any]) -> list[int]:
    """The numbers of the outputs that are arrays; of a norm that isn't trained the first alone."""
    if "FusedBatchNorm" in op:
        words = dict(zip(attributes[::2], attributes[1::2], strict=True))
        if not words.get("is_training", True):
            return [0]
    return [n for n, one in enumerate(outputs) if not type_of(one).unread]
