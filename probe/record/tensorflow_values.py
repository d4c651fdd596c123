"""TensorFlow's tensors as container arrays; its operations by their schema, run alone and written;
its functions, what runs them, and their graphs of nodes; people's names for variables.

What TensorFlow has no public interface for is used in this file alone. Written with TensorFlow
2.21.
"""

from __future__ import annotations

import gc
import inspect
import re
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property, partial
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import xxhash
from tensorflow.python.eager import context, execute
from tensorflow.python.framework import function_def_to_graph, op_callbacks, op_def_registry

from probe.order.semantics import Call, Operand
from probe.record.contract import Isolated, Lines
from probe.record.graphs import Body, Interpreter, Key, Node, ordered_by_needs, repeated

# Types of tensors that are no arrays.
UNREAD = ("resource", "variant", "string")

EAGER = tf.__internal__.EagerTensor
BFLOAT16 = np.dtype(tf.bfloat16.as_numpy_dtype)


def is_unread(tensor: Any) -> bool:
    """Whether a tensor is no array, but a handle, a list or texts."""
    return tensor.dtype.name in UNREAD


def is_whole(tensor: Any) -> bool:
    """Whether it holds integers or bools."""
    return bool(tensor.dtype.is_integer or tensor.dtype.is_bool)


def sizes_of(tensor: Any) -> tuple[int, ...]:
    shape: tuple[int, ...] = tensor._shape_tuple()
    return shape


# What tells an eager tensor, or a variable's handle, from all others of the process.
number_of = attrgetter("_id")


def held_in(handle: Any) -> tuple[tf.TensorShape, tf.DType] | None:
    """Shape and type of the array that a variable holds; None where it isn't one."""
    data = handle._handle_data
    if data is None or not data.is_set or len(data.shape_and_type) != 1:
        return None
    return tf.TensorShape(data.shape_and_type[0].shape), tf.as_dtype(data.shape_and_type[0].dtype)


def arrays(returned: Any) -> list[Any]:
    """Tensors, variables and NumPy's arrays in whatever a function returned, in order; numbers and
    arrays of another library become NumPy's."""
    flat = tf.nest.flatten(returned, expand_composites=True)
    kinds = tf.Tensor | tf.Variable | np.ndarray
    held = [value.value if type(value).__module__.startswith("keras.") else value for value in flat]
    for at, value in enumerate(held):
        number = isinstance(value, complex | float | int)
        if number or (hasattr(value, "__array__") and not isinstance(value, kinds)):
            held[at] = np.array(value)
    return [value for value in held if isinstance(value, kinds)]


def array(tensor: Any) -> np.ndarray:
    """A tensor's bits as a container array: the tensor's own memory where that is possible."""
    plain = np.asarray(tensor._numpy())
    if tensor.dtype == tf.string:  # pointers have no bits of their own: texts are equal or not
        return np.vectorize(xxhash.xxh3_64_intdigest, otypes=[np.uint64])(plain)
    return plain.view(np.uint16) if plain.dtype == BFLOAT16 else plain


def tensor_of(bits: np.ndarray, dtype: Any) -> Any:
    plain = np.ascontiguousarray(bits).reshape(np.shape(bits))
    if dtype == tf.bfloat16:
        plain = plain.view(tf.bfloat16.as_numpy_dtype)
    return tf.constant(plain, dtype)


def run_op(op: str, inputs: Sequence[Any], attributes: Sequence[Any], count: int) -> list[Any]:
    """Runs one operation, or a function by its name, eagerly, past the callbacks."""
    ctx = context.context()
    return list(execute.quick_execute(op, count, list(inputs), tuple(attributes), ctx) or ())


def runs_alone(
    op: str,
    inputs: Sequence[Any],
    attributes: Sequence[Any],
    count: int,
    read: Sequence[int],
    ends: Sequence[int],
) -> Isolated:
    """What runs an operation or a function on other arrays, in the place of the inputs numbered
    ``read``, and gives those of its ``count`` results that are numbered ``ends``. A variable's
    handle stays; no operand is kept alive."""
    kinds = {n: inputs[n].dtype for n in read if inputs[n].dtype != tf.resource}
    held = [None if n in kinds else tensor for n, tensor in enumerate(inputs)]

    def again(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        fed = list(held)
        for n, bits in zip(read, arrays, strict=True):
            if n in kinds:
                fed[n] = tensor_of(bits, kinds[n])
        results = run_op(op, fed, attributes, count)
        return [np.array(array(results[n])) for n in ends]

    return again


def value_of(handle: Any, dtype: Any) -> Any:
    """What a variable holds now, in its own memory."""
    return run_op("ReadVariableOp", [handle], ("dtype", dtype), 1)[0]


# functions, and what runs


@contextmanager
def watched_calls(behind: Callable[..., None]) -> Iterator[None]:
    """Calls ``behind(op, inputs, attributes, outputs, ...)`` behind each operation, while
    entered."""
    op_callbacks.add_op_callback(behind)
    try:
        yield
    finally:
        op_callbacks.remove_op_callback(behind)


def name_scope() -> str:
    return (context.context().scope_name or "").rstrip("/")


def is_function(name: str) -> bool:
    """Whether it is the name of a function, rather than of an operation."""
    return bool(context.context().has_function(name))


def definition_of(name: str) -> Any:
    return context.context().get_function_def(name)


def by_xla(name: str) -> bool:
    """Whether a function is compiled by XLA, as ``jit_compile=True`` asks."""
    words = definition_of(name).attr
    return "_XlaMustCompile" in words and bool(words["_XlaMustCompile"].b)


def call_options() -> tuple[Any, ...]:
    """The attributes with which TensorFlow calls a function, names and values in turn."""
    pairs = context.context().function_call_options.as_attrs().items()
    return tuple(item for pair in pairs for item in pair)


# operations by their schema

# Elements of an argument that lines and attributes spell out.
SMALL_ARGUMENT = 64

# Names of inputs that say how an operation works, not on what: shapes, axes, paddings.
STRUCTURE = frozenset(
    "reduction_indices dimension axis dim dims perm shape size crop_size input_sizes filter_sizes "
    "orig_input_shape multiples begin end strides paddings crops block_shape split_dim size_splits "
    "concat_dim shift depth k num_lower num_upper num_rows num_cols padding_value fft_length "
    "num_segments".split()
)

INTEGERS = frozenset(
    dtype.as_datatype_enum for dtype in (tf.bool, tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8)
)


class Schema(NamedTuple):
    """An operation in TensorFlow's registry.

    ``inputs``: (name, whether it is a list, whether it is structure); ``outputs``: of each the
    attribute that counts it, empty if there is one, and whether that has its types; ``kinds``: of
    its attributes by name; ``defaults``: theirs, where there are; ``inferred``: those that follow
    from the inputs; ``stateful``: whether it has or changes a state.
    """

    inputs: tuple[tuple[str, bool, bool], ...]
    outputs: tuple[tuple[str, bool], ...]
    kinds: Mapping[str, str]
    defaults: Mapping[str, Any]
    inferred: frozenset[str]
    stateful: bool = False


# What is known of an operation that isn't registered.
NOTHING = Schema((), (), {}, {}, frozenset())


@cache
def schema(op: str) -> Schema:
    definition = op_def_registry.get(op)
    if definition is None:
        return NOTHING
    allowed = {attr.name: set(attr.allowed_values.list.type) for attr in definition.attr}
    inputs = []
    for arg in definition.input_arg:
        types = {arg.type} if arg.type else allowed.get(arg.type_attr, set())
        integers = bool(types) and types <= INTEGERS
        how = (integers and arg.name in STRUCTURE) or arg.name == "padding_value"
        inputs.append((arg.name, bool(arg.number_attr or arg.type_list_attr), how))
    counts = [(arg.number_attr, arg.type_list_attr) for arg in definition.output_arg]
    outputs = [(number or types, not number) for number, types in counts]
    defaults = {
        attr.name: plain_word(attribute(attr.default_value), attr.type)
        for attr in definition.attr
        if attr.HasField("default_value")
    }
    inferred = frozenset(
        name
        for arg in definition.input_arg
        for name in (arg.type_attr, arg.number_attr, arg.type_list_attr)
        if name
    )
    kinds = {attr.name: attr.type for attr in definition.attr}
    return Schema(tuple(inputs), tuple(outputs), kinds, defaults, inferred, definition.is_stateful)


@cache
def slots(op: str, count: int) -> list[tuple[str, bool, bool]]:
    """The argument to which each of ``count`` inputs belongs, as of ``Schema.inputs``.

    A list's inputs share one, and all lists of an operation are taken to be of one length.
    """
    inputs = schema(op).inputs
    lists = sum(several for _, several, _ in inputs)
    length = (count - len(inputs) + lists) // max(lists, 1)
    slots = [slot for slot in inputs for _ in range(length if slot[1] else 1)]
    return slots if len(slots) == count else [("", False, False)] * count


@cache
def structure(op: str, count: int) -> tuple[int, ...]:
    """Numbers of the inputs that say how an operation works, not on what."""
    return tuple(n for n, (_, _, how) in enumerate(slots(op, count)) if how)


# Kinds of attributes that eager operations take in another form than a node has them.
TAKEN: dict[str, Callable[[Any], Any]] = {
    "type": tf.as_dtype, "shape": tf.TensorShape, "func": attrgetter("name"),
}  # fmt: skip


def attribute(value: Any) -> Any:
    """An attribute of a node as eager operations take it."""
    kind = value.WhichOneof("value")
    if kind == "list":
        fields = [(field.name, list(items)) for field, items in value.list.ListFields()]
        kind, items = fields[0] if fields else ("", [])
        return [TAKEN[kind](item) for item in items] if kind in TAKEN else items
    word = getattr(value, kind) if kind else []
    return TAKEN[kind](word) if kind in TAKEN else word


def plain_word(value: Any, kind: str = "") -> Any:
    """An attribute as JSON has it."""
    if kind == "type" or isinstance(value, tf.DType):
        return tf.as_dtype(value).name
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, tf.TensorShape):
        return value.as_list() if value.rank is not None else None
    if isinstance(value, list | tuple):
        return [plain_word(item) for item in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


@dataclass(eq=False)
class RanOperation:
    """An operation that has run. ``attributes``: names and values in turn; ``read``, ``given``:
    numbers of the inputs and outputs that are arrays."""

    op: str
    inputs: Sequence[Any]
    attributes: Sequence[Any]
    outputs: Sequence[Any]
    read: list[int]
    given: list[int]

    def __post_init__(self) -> None:
        self.schema, self.slots = schema(self.op), slots(self.op, len(self.inputs))
        self.structure = structure(self.op, len(self.inputs))

    def words(self) -> dict[str, Any]:
        """Its attributes, plain enough for JSON."""
        both = zip(self.attributes[::2], self.attributes[1::2], strict=True)
        return {name: plain_word(value, self.schema.kinds.get(name, "")) for name, value in both}

    def shown(self) -> dict[str, Any]:
        """Attributes as an operation has them: none that the arrays' types say, and small
        arguments."""
        arguments = {self.slots[n][0]: array(self.inputs[n]) for n in self.structure}
        words = self.words().items()
        return {name: value for name, value in words if name not in self.schema.inferred} | {
            name: held.tolist() for name, held in arguments.items() if held.size <= SMALL_ARGUMENT
        }

    def call(self) -> Call:
        """The call as a table is asked, which may look into what is no operand."""

        def operand(n: int, tensor: Any) -> Operand:
            at = self.read.index(n) if n in self.read else -1
            dtype = tensor.dtype.name
            if dtype == "resource":
                held = held_in(tensor)
                shape, dtype = (tuple(held[0].as_list()), held[1].name) if held else ((), dtype)
                return Operand(at, shape, dtype)
            return Operand(at, sizes_of(tensor), dtype, partial(array, tensor))

        reads = [operand(n, tensor) for n, tensor in enumerate(self.inputs)]
        gives = [self.outputs[n] for n in self.given]
        shapes, dtypes = [*map(sizes_of, gives)], [tensor.dtype.name for tensor in gives]
        return Call(self.op, {**self.schema.defaults, **self.words()}, reads, shapes, dtypes)

    def again(self) -> Isolated | None:
        """What runs it alone; None where it reads what is no array."""
        if any(map(is_unread, self.inputs)):
            return None
        ends = len(self.outputs), self.read, self.given
        return runs_alone(self.op, self.inputs, self.attributes, *ends)

    def lines(self) -> Lines | None:
        """Lines of ``tf.raw_ops`` for it; None for an operation that Grappler has fused."""
        op, inputs, slots, read = self.op, self.schema.inputs, self.slots, self.read
        arguments = {n: array(self.inputs[n]) for n in self.structure}
        function = getattr(tf.raw_ops, op, None)
        if (
            function is None
            or any(argument.size > SMALL_ARGUMENT for argument in arguments.values())
            or not all(name for name, *_ in slots)
        ):
            return None
        # Python has other names for some, in the same order
        parameters = [name for name in inspect.signature(function).parameters if name != "name"]
        names = [name for name, *_ in inputs]
        names += [name for name in self.schema.kinds if name not in self.schema.inferred]
        free = [name for name in parameters if name not in names]
        strange = [name for name in names if name not in parameters]
        spelled = {name: name for name in names} | dict(zip(strange, free, strict=False))
        words = [
            f"{spelled[name]}={value!r}"
            for name, value in self.words().items()
            if spelled.get(name) in parameters
        ]
        texts = {n: repr(argument.tolist()) for n, argument in arguments.items()}
        only = f"[{self.given[0]}]" if len(self.outputs) > len(self.given) == 1 else ""

        def lines(names: Sequence[str], result: str) -> list[str]:
            operand_texts = texts | dict(zip(read, names, strict=True))
            operands = []
            for slot, several, _ in inputs:
                found = [operand_texts[n] for n, (name, *_) in enumerate(slots) if name == slot]
                text = f"[{', '.join(found)}]" if several else found[0]
                operands.append(f"{spelled[slot]}={text}")
            return [f"{result} = tf.raw_ops.{op}({', '.join([*operands, *words])}){only}"]

        return lines


# functions as graphs

CALLS = ("PartitionedCall", "StatefulPartitionedCall")
LOOPS, BRANCHES = ("While", "StatelessWhile"), ("If", "StatelessIf", "Case", "StatelessCase")
FLOW = ("Switch", "Merge", "Enter", "Exit", "NextIteration", "LoopCond")
# Stateful by TensorFlow's registry, and yet the same however often they run.
HARMLESS = (
    *CALLS,
    *LOOPS,
    *BRANCHES,
    *"ReadVariableOp VarIsInitializedOp VariableShape NoOp Assert ResourceGather".split(),
    *"Placeholder CheckNumerics EnsureShape LookupTableFindV2 LookupTableSizeV2".split(),
    "TensorListReserve",
)

READS = ("ReadVariableOp", "VarIsInitializedOp", "VariableShape")
HANDED_ON = ("Identity", "IdentityN", "StopGradient", "Snapshot")
# What they give depends on no element, or on sizes alone: it is a constant of the run.
SHAPES = ("Shape", "ShapeN", "Size", "Rank", "VariableShape", "ZerosLike", "OnesLike", "Range")


@dataclass(eq=False)
class FunctionNode(Node):
    """An operation of a function: ``native`` its attributes, names and values in turn, ``path`` its
    name; ``after``: nodes that run before it. Keys of values: (node, output)."""

    after: tuple[str, ...] = ()

    @property
    def function(self) -> str:
        """What a node calls that is of ``CALLS``."""
        return str(self.words["f"])


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

        def next_state(_: int, state: Sequence[Any]) -> Sequence[Any] | None:
            return state if bool(array(runner.walk(cond, state)[0])) else None

        return repeated(lambda _, state: runner.walk(body, state), read, next_state)[0]
    if node.op in BRANCHES:
        which = int(array(read[0]))
        names = words.get("branches") or [words["else_branch"], words["then_branch"]]
        # any other number is the last one's
        name = names[which if 0 <= which < len(names) else -1]
        return runner.walk(graph(name), read[1:])
    return None


def traced_graph(name: str, read: dict[str, Body]) -> Body:
    """The graph of a function as it was traced, before any optimisation. ``read``: those that have
    been read."""
    if name not in read:
        definition = definition_of(name)
        # the graph, and the name of each value by that in the definition
        graph, flat = function_def_to_graph.function_def_to_graph_def(definition)
        inputs = [arg.name for arg in definition.signature.input_arg]
        nodes = [node for node in graph.node if node.name not in inputs]
        outputs = definition.signature.output_arg
        ends = [_end_of(flat[definition.ret[output.name]]) for output in outputs]
        read[name] = _body(nodes, [node.name for node in nodes], inputs, ends)
    return read[name]


def optimised_graph(name: str, inputs: list[Any]) -> Body | None:
    """The graph that TensorFlow runs for these inputs; None where it holds loops."""
    definition, ctx = definition_of(name), context.context()
    count = len(definition.signature.output_arg)
    # Grappler optimises a function when a kernel of it is made: those that there are have to go, so
    # that its graph is collected
    ctx.clear_kernel_cache()
    ctx.enable_graph_collection()
    try:
        run_op(name, inputs, call_options(), count)
        collected = ctx.export_run_metadata().function_graphs
    finally:
        ctx.disable_graph_collection()
    outputs = ("_Retval", "_DeviceRetval")
    graphs = [each.post_optimization_graph for each in collected]
    graphs = [graph for graph in graphs if sum(node.op in outputs for node in graph.node) == count]
    if len(graphs) != 1 or any(node.op in FLOW for node in graphs[0].node):
        return None
    # an input that was optimised away keeps a name that no node reads
    fed, ends, nodes = [f"unread {n}" for n in range(len(inputs))], {}, []
    for node in graphs[0].node:
        if node.op in ("_Arg", "_DeviceArg"):
            fed[int(node.attr["index"].i)] = node.name
        elif node.op in outputs:
            ends[int(node.attr["index"].i)] = _end_of(node.input[0])
        else:
            nodes.append(node)
    order = list(_written_order(definition, ""))
    return _body(nodes, order, fed, [ends[n] for n in range(count)])


def _body(
    protos: Sequence[Any], order: Sequence[str], inputs: Sequence[str], ends: Sequence[Key]
) -> Body:
    """Nodes in the order of the program, each behind what it reads; those that aren't of the
    program (Grappler's) right before their first user."""
    by_name, place = {node.name: node for node in protos}, {name: n for n, name in enumerate(order)}
    first = sorted(by_name, key=lambda name: -place.get(name, len(order)))[::-1]

    def needs(name: str) -> list[str]:
        texts = sorted(by_name[name].input, key=lambda text: text[0] == "^")
        sources = (_end_of(text.removeprefix("^"))[0] for text in texts)
        return [source for source in sources if source in by_name]

    ordered = [by_name[name] for name in ordered_by_needs(first, needs)]
    constants = {
        (node.name, 0): tf.constant(tf.make_ndarray(node.attr["value"].tensor))
        for node in ordered
        if node.op == "Const"
    }
    nodes = [_function_node(node) for node in ordered if node.op != "Const"]
    return Body(nodes, [(name, 0) for name in inputs], ends, constants)


def _function_node(proto: Any) -> FunctionNode:
    registered = schema(proto.op)
    words = {name: attribute(proto.attr[name]) for name in registered.kinds if name in proto.attr}
    count = 0
    for name, types in registered.outputs:
        counted = proto.attr[name] if name else None
        count += 1 if counted is None else len(counted.list.type) if types else int(counted.i)
    slots = [_end_of(text) for text in proto.input if not text.startswith("^")]
    after = tuple(text[1:] for text in proto.input if text.startswith("^"))
    attributes = tuple(each for pair in words.items() for each in pair)
    gives = [(proto.name, n) for n in range(count)]
    return FunctionNode(attributes, proto.op, slots, gives, (), words, proto.name, after=after)


def _end_of(text: str) -> tuple[str, int]:
    name, _, number = text.partition(":")
    return name, int(number or 0)


def _written_order(definition: Any, prefix: str) -> Iterator[str]:
    """Names of a function's nodes in the order of the program, those that it calls in place."""
    for node in definition.node_def:
        yield prefix + node.name
        inner = node.attr["f"].func.name if node.op in CALLS else ""
        if inner and is_function(inner):
            yield from _written_order(definition_of(inner), f"{prefix}{node.name}/")


def called_functions(name: str) -> Iterator[Any]:
    """The definition of a function, and of all that it calls."""
    pending, met = [name], set()
    while pending:
        now = pending.pop()
        if now in met or not is_function(now):
            continue
        met.add(now)
        definition = definition_of(now)
        yield definition
        for node in definition.node_def:
            for value in node.attr.values():
                pending += [func.name for func in (value.func, *value.list.func) if func.name]


# Name scopes that TensorFlow opens by itself, and its optimisers of graphs.
NO_LAYER = re.compile(
    r"((Stateful)?PartitionedCall(_\d+)?|ArithmeticOptimizer|ConstantFolding(Ctrl)?|LayoutOptimizer)$"
)


class Names:
    """The variables that there are in a process, and the names of them and of Keras' layers: looked
    for once, among all objects, when something is asked for the first time."""

    def variable(self, handle: int) -> str:
        return self._found[0].get(handle, "")

    def path(self, scope: str, graph: bool = False) -> str:
        """The layers of Keras in a name scope, if there are any, else all its parts. In a ``graph``
        a scope that is opened again has a number behind its name."""
        layers = self._found[2]
        parts = [part for part in scope.split("/") if part and not NO_LAYER.match(part)]
        if graph:
            both = [(part, re.sub(r"_\d+$", "", part)) for part in parts]
            parts = [a if a in layers and b not in layers else b for a, b in both]
        return "/".join([part for part in parts if part in layers] or parts)

    def variable_values(self) -> Iterator[tuple[Any, Any]]:
        """The handle of each floating-point variable, and what it holds now."""
        for variable in (reference() for reference in self._found[1]):
            if variable is None:  # it is gone
                continue
            handle = getattr(variable, "_handle", None)
            # it is seen before it has a format
            if isinstance(handle, EAGER) and getattr(variable, "_dtype", tf.int32).is_floating:
                try:
                    yield handle, value_of(handle, variable.dtype)
                except tf.errors.OpError:  # not initialised
                    continue

    @cached_property
    def _found(self) -> tuple[dict[int, str], list[weakref.ref[Any]], set[str]]:
        """Names of variables by their handles, the variables, and names of layers."""
        from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable

        keras = sys.modules.get("keras")
        names, variables, layers = dict[int, str](), list[weakref.ref[Any]](), set[str]()
        # Keras 2, beside TensorFlow up to 2.15, has no variables but TensorFlow's
        wanted: tuple[type, ...] = (BaseResourceVariable,)
        if keras is not None and hasattr(keras, "Variable"):
            wanted += (keras.Variable, keras.Operation)
        kinds: dict[type, bool] = {}
        gc.unfreeze()  # objects that a session in this process froze are not listed
        for item in gc.get_objects():
            kind = type(item)
            if kind not in kinds:
                kinds[kind] = issubclass(kind, wanted)
            if not kinds[kind]:
                continue
            if isinstance(item, BaseResourceVariable):
                variables.append(weakref.ref(item))
                handle = getattr(item, "_handle", None)
                if isinstance(handle, EAGER):
                    names.setdefault(number_of(handle), str(item.name).split(":")[0])
            elif hasattr(item, "path") and not hasattr(item, "call"):
                handle = getattr(getattr(item, "_value", None), "_handle", None)
                if isinstance(handle, EAGER):
                    names[number_of(handle)] = str(item.path)
            else:
                layers.add(str(getattr(item, "name", "")))
        return names, variables, layers
