"""TensorFlow and Keras, watched: every eager operation, and the nodes of the graphs that run.

Operations that run eagerly are seen by TensorFlow's own callbacks, behind the same kernels as
without them. A function (``tf.function``, ``predict``, a saved model) runs once as always, and then
once more, as TensorFlow itself runs it: the graph that is left when Grappler has optimised it,
whose fused operations are nodes like others (``_FusedMatMul``). Its nodes are run one by one, so
that nothing has to be fetched that would break a fusion and no more than a few values are held.
Loops and branches are written out as they run; such a function is taken as it was traced. Either
way the outputs must have the bits that the function itself gave, or it is one operation, as are
functions compiled by XLA and those that change a state. Paths are the name scopes, in which Keras
has the names of its layers.

``.keras`` and ``.h5`` files: :mod:`probe.targets.trust` looks first at every class that they name.
A SavedModel is a program: loading it makes its variables and runs its initialisers, calling it runs
its graph. So its operations are read from ``saved_model.pb`` before TensorFlow loads it, and one
that reads or writes files, calls Python or keeps a state that isn't a variable's is refused, unless
the model is trusted. What TensorFlow itself does with a damaged file is out of reach here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from probe.case.errors import InputError
from probe.order import semantics as s
from probe.order.semantics import Call, Moves, Unknown
from probe.record import graphs
from probe.record.contract import CONSTANT, INPUT, WEIGHT, Input, Operation, Seen, Visit
from probe.record.graphs import Body, Interpreter, Key
from probe.record.recording import array_digest
from probe.record.subject import FunctionSubject
from probe.record.tensorflow_values import (
    CALLS,
    HANDED_ON,
    HARMLESS,
    NOTHING,
    READS,
    SHAPES,
    FunctionNode,
    Names,
    RanOperation,
    array,
    arrays,
    by_xla,
    call_options,
    called_functions,
    held_in,
    is_function,
    is_unread,
    is_whole,
    name_scope,
    number_of,
    optimised_graph,
    run_flow,
    run_op,
    runs_alone,
    schema,
    sizes_of,
    structure,
    tensor_of,
    traced_graph,
    value_of,
    watched_calls,
)
from probe.targets import trust
from probe.targets.progress import without_stderr

# one watched run

# Elements of what is taken for a shape.
SMALL_SHAPE = 16

IMPORTS = ("import tensorflow as tf",)

COMPILED, STATE, BITS = (
    "compiled functions (XLA) are one operation",
    "a function that changes a state, draws random numbers or calls Python is one operation",
    "a function whose nodes, run one by one, give different bits is one operation",
)


class KeptGraphs:
    """What stays from one run to the next.

    ``functions``: by name and inputs the graph by which each is watched, or why it is one
    operation; ``traced``: graphs by their names.
    """

    def __init__(self) -> None:
        self.names = Names()
        self.functions: dict[Hashable, Body | str] = {}
        self.traced: dict[str, Body] = {}


class Watching(Interpreter):
    """One watched run: the keys of its values, and what is known of them.

    ``aliases``: keys of tensors that are another value's, by their numbers; ``variables``: of what
    each holds now; ``lists``: elements of lists of tensors; ``shapes``: tensors that are sizes of
    others; ``given``: keys of what operations gave; ``roles``: (role, name) by key. ``writes``: to
    variables so far; ``graphs``: whether a function ran; ``busy``: the recorder itself runs
    something; ``said``: for the note. ``memory``: variables by where they are in memory, None:
    to be looked for. ``numpy``: keys by what arrays of NumPy show of their values.
    """

    def __init__(self, visit: Visit, kept: KeptGraphs) -> None:
        self.visit, self.kept, self.names = visit, kept, kept.names
        self.aliases: dict[int, Hashable] = {}
        self.variables: dict[int, Hashable] = {}
        self.lists: dict[int, list[Seen | None]] = {}
        self.shapes: set[int] = set()
        self.given: set[Hashable] = set()
        self.roles: dict[Hashable, tuple[str, str]] = {}
        self.writes, self.graphs, self.busy = 0, False, False
        self.said: list[str] = []
        self.memory: dict[tuple[Any, ...], Any] | None = None
        self.numpy: dict[tuple[tuple[int, ...], str, str], Hashable] = {}

    def callback(
        self, op: Any, inputs: Any, attributes: Any, outputs: Any, *more: Any, **words: Any
    ) -> None:
        """Is called behind each operation; those of which a graph is being built are skipped."""
        if self.busy or words.get("graph") is not None or not tf.executing_eagerly():
            return
        name = op.decode() if isinstance(op, bytes) else op
        results = list(outputs) if isinstance(outputs, list | tuple) else []
        self.busy = True
        try:
            if is_function(name):
                self.graphs = True
                self._called(name, list(inputs), results)
                return
            pairs = zip(attributes[::2], attributes[1::2], strict=True) if attributes else ()
            # None stands for TensorFlow's default
            flat = [item for pair in pairs if pair[1] is not None for item in pair]
            self._met(name, list(inputs), flat, results, self._path())
        finally:
            self.busy = False

    def _path(self) -> str:
        return self.names.path(name_scope())

    def outputs(self, result: Any) -> list[Seen]:
        """What a function returned. An array of NumPy's is the last value that had its bits."""
        seen = []
        for value in arrays(result):
            tensor = tf.convert_to_tensor(value)
            if isinstance(value, np.ndarray):
                key = self.numpy.get((value.shape, tensor.dtype.name, array_digest(array(tensor))))
                if key is None:
                    self.said.append("an output was computed outside of TensorFlow, after it")
                else:
                    self.aliases[number_of(tensor)] = key
            seen.append(self.seen(tensor))
        return seen

    # values

    def key(self, tensor: Any) -> Hashable:
        """The key of a tensor; one that is merely handed on keeps that of what it was.

        Where an operation is called with a variable, TensorFlow reads it past the callbacks: then
        the tensor has the variable's own memory.
        """
        if number_of(tensor) not in self.aliases and number_of(tensor) not in self.given:
            handle = self._held(tensor) if tensor.dtype.is_floating else None
            key = number_of(tensor) if handle is None else self._variable(handle, "")
            self.aliases[number_of(tensor)] = key
        return self.aliases.get(number_of(tensor), number_of(tensor))

    def _held(self, tensor: Any) -> Any:
        """The handle of the variable whose memory a tensor has, or None."""
        if self.memory is None:
            self.memory = {
                _memory_of(value): handle for handle, value in self.names.variable_values()
            }
        return self.memory.get(_memory_of(tensor))

    def _variable(self, handle: Any, path: str) -> Hashable:
        """The key of what a variable holds now."""
        key = self.variables.setdefault(number_of(handle), ("variable", number_of(handle), 0))
        self.roles.setdefault(key, (WEIGHT, self.names.variable(number_of(handle)) or path))
        return key

    def seen(self, tensor: Any, path: str = "") -> Seen:
        """A value as the contract has it. A variable's handle stands for what it holds."""
        if tensor.dtype.name == "resource":
            key = self._variable(tensor, path)
            dtype = held[1] if (held := held_in(tensor)) else None
            tensor = value_of(tensor, dtype)
        else:
            key = self.key(tensor)
        role, name = self.roles.get(key, (INPUT, ""))
        return Seen(key, sizes_of(tensor), tensor.dtype.name, lambda: array(tensor), role, name)

    def _gives(self, gives: Sequence[Seen]) -> None:
        self.given.update(value.key for value in gives)
        for value in gives:
            self.numpy[value.shape, value.dtype, array_digest(value.array())] = value.key

    # operations

    def _met(
        self, op: str, inputs: list[Any], attributes: Sequence[Any], outputs: list[Any], path: str
    ) -> None:
        if op == "ReadVariableOp":
            self.aliases[number_of(outputs[0])] = self._variable(inputs[0], path)
            return
        if op in HANDED_ON:
            for old, new in zip(inputs, outputs, strict=True):
                if old.dtype.name != "variant":
                    self.aliases[number_of(new)] = self.key(old)
                elif number_of(old) in self.lists:
                    self.lists[number_of(new)] = self.lists[number_of(old)]
            return
        if op.startswith("TensorList"):
            self._listed(op, inputs, outputs, path)
            return
        if op not in READS:
            self._written(op, inputs)
        read = self._read(op, inputs)
        ends = [n for n, output in enumerate(outputs) if not is_unread(output)]
        if "FusedBatchNorm" in op:
            words = dict(zip(attributes[::2], attributes[1::2], strict=True))
            # of a norm that isn't trained the first alone
            ends = ends if words.get("is_training", True) else [0]
        fixed = op in SHAPES and (op != "Range" or all(is_whole(tensor) for tensor in inputs))
        if fixed or not read or self._of_shapes([inputs[n] for n in read], outputs):
            for tensor in outputs:
                if op in SHAPES or is_whole(tensor):
                    self.shapes.add(number_of(tensor))
                    self.roles[number_of(tensor)] = CONSTANT, op
        elif ends:
            reads = [self.seen(inputs[n], path) for n in read]
            gives = [self.seen(outputs[n], path) for n in ends]
            self._gives(gives)
            ran = RanOperation(op, inputs, attributes, outputs, read, ends)
            means, how = meaning(ran.call()), (ran.again(), ran.lines(), IMPORTS)
            self.visit(Operation(op, path, reads, gives, means, ran.shown(), *how))

    def _read(self, op: str, inputs: list[Any]) -> list[int]:
        """Numbers of the inputs that are arrays."""
        arguments = structure(op, len(inputs))
        return [
            n
            for n, tensor in enumerate(inputs)
            if n not in arguments and (not is_unread(tensor) or (op == "ResourceGather" and n == 0))
        ]

    def _of_shapes(self, inputs: list[Any], outputs: list[Any]) -> bool:
        """Whether an operation only calculates with shapes, or with numbers of the program."""

        def is_shape(tensor: Any) -> bool:
            if number_of(tensor) in self.shapes:
                return True
            return not sizes_of(tensor) and self.key(tensor) not in self.given

        if not all(is_whole(tensor) and is_shape(tensor) for tensor in inputs):
            return False
        return all(is_whole(t) and prod(sizes_of(t)) <= SMALL_SHAPE for t in outputs)

    def _written(self, op: str, inputs: list[Any]) -> None:
        """A variable that is written has another key from now on."""
        for tensor in inputs:
            if tensor.dtype == tf.resource and op != "ResourceGather":
                self.writes += 1
                self.memory = None
                key: Hashable = "variable", number_of(tensor), self.writes
                if op == "AssignVariableOp":
                    key = self.key(inputs[1])
                self.variables[number_of(tensor)] = key

    def _listed(self, op: str, inputs: list[Any], outputs: list[Any], path: str) -> None:
        """A list of tensors, as loops of a graph have it: its elements keep their keys."""
        held = self.lists.get(number_of(inputs[0])) if inputs else None
        if op == "TensorListReserve":
            self.lists[number_of(outputs[0])] = [None] * int(array(inputs[1]))
        elif op == "TensorListFromTensor":
            whole = self.seen(inputs[0], path)
            kind = whole.shape[1:], whole.dtype

            def part(n: int) -> np.ndarray:
                return whole.array()[n]

            parts = [
                Seen(("part", whole.key, n), *kind, partial(part, n)) for n in range(whole.shape[0])
            ]
            self.lists[number_of(outputs[0])] = list(parts)
            again = lambda read: list(read[0])  # noqa: E731
            self.visit(Operation(op, path, [whole], parts, Moves(), again=again))
        elif op == "TensorListGetItem" and held and (element := held[int(array(inputs[1]))]):
            self.aliases[number_of(outputs[0])] = element.key
            self.roles[element.key] = element.role, element.name
        elif op == "TensorListSetItem" and held is not None:
            changed = list(held)
            changed[int(array(inputs[1]))] = self.seen(inputs[2], path)
            self.lists[number_of(outputs[0])] = changed
        elif op == "TensorListStack" and held is not None:
            parts = [element for element in held if element is not None]
            gives = [self.seen(outputs[0], path)]
            self.visit(Operation(op, path, parts, gives, Moves(), again=lambda a: [np.stack(a)]))
        elif op not in ("TensorListLength", "TensorListElementShape"):
            self.said.append(f"{op}: its result is treated as an input")

    # functions

    def _called(self, name: str, inputs: list[Any], outputs: list[Any], path: str = "") -> None:
        """A function has run and given ``outputs``."""
        key = name, tuple((tensor.dtype.name, sizes_of(tensor)) for tensor in inputs)
        if key not in self.kept.functions:
            self.kept.functions[key] = self._opened(name, inputs, outputs)
        graph = self.kept.functions[key]
        if isinstance(graph, str):
            self.said.append(graph)
            self._as_one(name, inputs, outputs, graph, path)
            return
        for output, result in zip(outputs, self.walk(graph, inputs), strict=True):
            self.aliases[number_of(output)] = self.key(result)

    def _opened(self, name: str, inputs: list[Any], outputs: list[Any]) -> Body | str:
        """Finds out how a function can be watched: by running it, and its nodes, once."""
        nodes = [node for definition in called_functions(name) for node in definition.node_def]
        if any(schema(node.op).stateful and node.op not in HARMLESS for node in nodes):
            return STATE
        if by_xla(name):
            return COMPILED
        for make in (optimised_graph, lambda *_: traced_graph(name, self.kept.traced)):
            graph = make(name, inputs)
            if graph is not None and self._same(graph, inputs, outputs):
                return graph
        return BITS

    def _same(self, graph: Body, inputs: list[Any], outputs: list[Any]) -> bool:
        """Whether the nodes, run one by one, give the function's bits."""
        try:
            results = Watching(lambda _: None, self.kept).walk(graph, inputs)
        except (tf.errors.OpError, TypeError, ValueError, KeyError):
            return False
        return len(results) == len(outputs) and all(
            a.dtype == b.dtype and array_digest(array(a)) == array_digest(array(b))
            for a, b in zip(results, outputs, strict=True)
        )

    def constants_of(self, body: Body, inside: Any) -> dict[Key, Any]:
        for (node, _), constant in body.constants.items():
            key = self.aliases.setdefault(number_of(constant), ("constant", number_of(constant)))
            self.roles.setdefault(key, (CONSTANT, node))
        return super().constants_of(body, inside)

    def walk(self, body: Body, arguments: Iterable[Any], inside: Any = None) -> list[Any]:
        """As of ``Interpreter``; what variables hold is known by their memory as it is now."""
        arguments = list(arguments)
        for tensor in arguments:
            if not is_unread(tensor):
                self.key(tensor)
        return super().walk(body, arguments, inside)

    def run_node(self, node: FunctionNode, read: list[Any], inside: Any) -> list[Any]:
        path = self.names.path(node.path.rpartition("/")[0], True)
        if node.op in CALLS and by_xla(node.function):
            results = run_op(node.function, read, call_options(), len(node.gives))
            self._called(node.function, read, results, path)
            return results
        graph = partial(traced_graph, read=self.kept.traced)
        if (flowed := run_flow(self, node, read, graph)) is not None:
            return flowed
        results = run_op(node.op, read, node.native, len(node.gives))
        for tensor in results:  # no variable's memory, where it would be looked for
            self.aliases[number_of(tensor)] = number_of(tensor)
        self._met(node.op, read, node.native, results, path)
        return results

    def _as_one(
        self, name: str, inputs: list[Any], outputs: list[Any], why: str, path: str
    ) -> None:
        path = path or self._path()
        places = [n for n, x in enumerate(inputs) if held_in(x) is not None or not is_unread(x)]
        reads = [self.seen(inputs[n], path) for n in places]
        kinds = [tensor.dtype.name for tensor in outputs]
        ends = [n for n, kind in enumerate(kinds) if kind not in ("resource", "variant")]
        gives = [self.seen(outputs[n], path) for n in ends]
        if gives and reads:
            self._gives(gives)
            again = runs_alone(name, inputs, call_options(), len(outputs), places, ends)
            plain = re.sub(r"^_*(inference_)?|_\d+$", "", name)
            self.visit(Operation(f"function {plain}", path, reads, gives, Unknown(why), {}, again))


def _memory_of(tensor: Any) -> tuple[Any, ...]:
    """Where an array is in memory, its shape and format."""
    memory = plain = array(tensor)
    if not plain.ndim:  # of a single number NumPy gets a copy
        if tensor.dtype == tf.bfloat16:  # which has no buffer to share
            return number_of(tensor), (), ""
        memory = np.asarray(memoryview(tensor))
    return memory.ctypes.data, plain.shape, plain.dtype.str


# what is watched


class TensorFlowRecorder:
    """A function of no arguments that computes with TensorFlow, or with Keras on TensorFlow.

    ``built``: whether it ran unwatched, by which layers were built and functions traced.
    """

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.target = target()
        self.note = ""
        self.kept = KeptGraphs()
        self.built = False
        self.plain_digests: list[str] | None = None

    def plain(self) -> list[np.ndarray]:
        self.built = True
        returned = arrays(self.function())
        return [array(tf.convert_to_tensor(value)) for value in returned]

    def take_over(self, before: TensorFlowRecorder) -> None:
        """Layers are built and functions traced by an earlier recorder at the same shapes."""
        self.kept, self.built = before.kept, True

    def record(self, visit: Visit) -> list[Seen]:
        """As of ``Recorder``. The first time it runs unwatched before, so that layers are built and
        functions traced."""
        if not self.built:
            self.plain_digests = [array_digest(output) for output in self.plain()]
        watch = Watching(visit, self.kept)
        with watched_calls(watch.callback):  # what this thread runs eagerly
            result = self.function()
        outputs = watch.outputs(result)
        if watch.graphs and "mode=" not in self.target:
            self.target += ",mode=graph"
        self.note = "; ".join(dict.fromkeys(watch.said))
        return outputs


def target() -> str:
    """The text of this process' target: threads and oneDNN's operators as they are set."""
    text = "tensorflow"
    if (choice := os.environ.get("TF_ENABLE_ONEDNN_OPTS")) in ("0", "1"):
        text += f",onednn={choice}"
    threads = tf.config.threading.get_intra_op_parallelism_threads()
    return text + (f",threads={threads}" if threads else "")


# model files

AGAIN = "save the model again"
# Operations with a state that read no file, write none and call nothing outside of the graph.
PLAIN = (
    *HARMLESS,
    *"VarHandleOp AssignVariableOp AssignAddVariableOp AssignSubVariableOp".split(),
    *"DestroyResourceOp HashTableV2 MutableHashTableV2 LookupTableImportV2 Multinomial".split(),
    *"RandomUniform RandomStandardNormal TruncatedNormal RandomUniformInt".split(),
    *"StatefulUniform StatefulStandardNormalV2".split(),
)

# Parts of the names of operations that do: TensorFlow's registry marks not all of them.
OUTSIDE = ("File", "Python", "PyFunc", "Dataset", "Summary", "Print", "Debug", "ImmutableConst")

# Functions that every SavedModel has to save its variables; nothing in it calls them.
SAVING = ("__inference__traced_save", "__inference__traced_restore")


@dataclass(frozen=True)
class OpenedTensorFlow:
    """A SavedModel, as ``contract.Opened`` says. ``call``: runs it on tensors in the order of its
    inputs."""

    inputs: tuple[Input, ...]
    call: Callable[[Sequence[Any]], Any]
    recorders: dict[Any, TensorFlowRecorder] = field(default_factory=dict, compare=False)

    def recorder(self, arrays: Mapping[str, np.ndarray]) -> TensorFlowRecorder:
        """A recorder of the model with these inputs (container arrays, by name); at shapes that
        have run before it need not run unwatched first."""
        operands = [tensor_of(arrays[spec.name], tf.as_dtype(spec.dtype)) for spec in self.inputs]
        shapes = tuple((tuple(tensor.shape), tensor.dtype) for tensor in operands)
        recorder = TensorFlowRecorder(lambda: self.call(operands))
        before = self.recorders.setdefault(shapes, recorder)
        if before is not recorder:
            recorder.take_over(before)
        return recorder


def opened(path: Path, trust: bool = False) -> OpenedTensorFlow | FunctionSubject:
    """Opens a ``.keras`` or ``.h5`` file, or the folder of a SavedModel.

    Errors: InputError where it can't be read, or holds code and is not trusted.
    """
    path = Path(path)
    return _saved_model(path, trust) if path.is_dir() else _keras(path, trust)


def _keras(path: Path, trusted: bool) -> FunctionSubject:
    with without_stderr():
        named = trust.check_keras(path, trusted)
    try:
        with without_stderr():
            import keras
    except ImportError:
        raise trust.library_missing("keras") from None
    with without_stderr():
        more = {"custom_objects": trust.imported(named), "safe_mode": not trusted}
        load = partial(keras.models.load_model, path, compile=False, **more)
        model = graphs.read(path.name, load, trust.IN_PYTHON if named else AGAIN)
    if not model.inputs:
        why = "it has not been built, so its inputs are not known"
        raise InputError("network", path.name, why, "give it an Input, or call it once, and save")
    return FunctionSubject(model)


def _saved_model(path: Path, trusted: bool) -> OpenedTensorFlow:
    if not trusted:
        _check_graph(path)
    with without_stderr():
        model = graphs.read(path.name, lambda: tf.saved_model.load(str(path)), AGAIN)
    signatures = dict(model.signatures)
    if not signatures:
        why = "it has no signature, so its inputs are unknown"
        raise InputError("network", path.name, why, "save it with signatures=...")
    function = signatures.get("serving_default") or signatures[min(signatures)]
    specs = function.structured_input_signature[1]
    inputs = tuple(
        Input(name, tuple(spec.shape.as_list()), spec.dtype.name) for name, spec in specs.items()
    )

    def call(operands: Sequence[Any]) -> Any:
        _ = model  # its variables live as long as it does
        for name, tensor in zip(specs, operands, strict=True):
            if not specs[name].shape.is_compatible_with(tensor.shape):  # a kernel may end Python
                why, todo = f"has shape {tuple(tensor.shape)}", f"give {specs[name].shape}"
                raise InputError("inputs", name, why, todo)
        return function(**dict(zip(specs, operands, strict=True)))

    return OpenedTensorFlow(inputs, call)


def _check_graph(path: Path) -> None:
    """InputError where a SavedModel holds an operation that reaches beyond its graph."""
    saved = saved_model_pb2.SavedModel()
    content = (path / "saved_model.pb").read_bytes()
    graphs.read(path.name, lambda: saved.ParseFromString(content), AGAIN)
    todo = "if you trust where it comes from, give --trust"
    for graph in saved.meta_graphs:
        if not graph.HasField("object_graph_def"):
            why = "it was saved by TensorFlow 1, and loading it runs operations on files"
            raise InputError("network", path.name, why, todo)
        functions = graph.graph_def.library.function
        defined = {function.signature.name for function in functions}
        saving = {name for name in defined if name.startswith(SAVING)}  # a call of these is refused
        called = (function for function in functions if function.signature.name not in saving)
        for node in (node for function in called for node in function.node_def):
            words, registered = [*node.attr.values()], schema(node.op)
            reached = {value.func.name for value in words}
            reached |= {func.name for value in words for func in value.list.func}
            beyond = registered is NOTHING or any(part in node.op for part in OUTSIDE)
            beyond |= registered.stateful and node.op not in PLAIN
            if saves := reached & saving:
                op = f"a call of {min(saves)}"
            elif beyond and node.op not in defined:
                op = node.op
            else:
                continue
            name = "".join(sign if sign.isprintable() else "?" for sign in op)[:100]
            why = f"its graph holds {name}, which may read or write files or run code"
            raise InputError("network", path.name, why, todo)


# What watches a function of this library, see ``probe.record.subject``.
RECORDER = TensorFlowRecorder


# what operations compute: operands and attributes are those of TensorFlow's op registry, defaults
# among them; what is only handed on (``Identity``, lists of tensors) the recorder knows by itself

# What each operation computes.
TABLE = s.OperationTable()

# By their place. TensorFlow's threads read subnormal numbers as zeros, which Eigen's vectors and
# what is left over of them don't do alike where a function is a choice and no arithmetic: the ReLU
# of 15 times 1e-40 is 0 in some places and 1e-40 in others. Eigen refines the processor's estimate
# (``rcpps``, ``vrcp14ps``, ``vrsqrt14ps``) by Newton steps: up to 2 ulp off, and different on
# another processor. Roots only where it is built for AVX-512; quotients are the processor's own
# everywhere, and so correctly rounded.
APPROXIMATE = s.word_list("Reciprocal Inv:reciprocal Sqrt Relu Relu6 Sign")

NARROW = ("float16", "bfloat16")
# Eigen converts to narrow formats by way of float32, and so rounds these twice.
WIDE = ("float64", "int32", "uint32", "int64", "uint64")

REDUCES = s.word_list("Mean Sum Prod EuclideanNorm:euclidean_norm")


@TABLE.row("Cast")
def _tf_cast(c: Call) -> s.Meaning:
    before, after = c.dtype(), c.dtypes[0]
    if c["Truncate"] and before != after:
        return s.function("truncating cast")
    means = s.cast(before, after)
    if isinstance(means, s.Each) and before in WIDE and after in NARROW:
        return replace(means, approximate=True)
    return means


def _tf_function(name: str) -> s.Meaning:
    """What an operation applies behind. KeyError: there is none of this name."""
    if name in ("GeluExact", "GeluApproximate"):
        return s.gelu(name == "GeluApproximate")
    means = s.approximate(APPROXIMATE[name]) if name in APPROXIMATE else s.by_name(name)
    if means is None:
        raise KeyError(name)
    return means


def _channels_last(c: Call) -> bool:
    return c.get("data_format", "NHWC") in ("NHWC", "NDHWC")


@TABLE.row("BiasAdd BiasAddV1")
def _bias_add(c: Call) -> s.Each:
    return s.function("add", along=None if _channels_last(c) else 1)


def _epilogue(c: Call, first: s.Meaning) -> s.Meaning:
    """What Grappler's remapper made of several operations, in their order."""
    behind: list[s.Meaning | tuple[s.Meaning, int]] = []
    names, slot = list(map(str, c.get("fused_ops") or ())), 2
    for name in names:
        if name in ("BiasAdd", "Add"):
            behind.append((_bias_add(c) if name == "BiasAdd" else s.function("add"), slot))
            slot += 1
        else:
            behind.append(_tf_function(name))
    if isinstance(first, s.Contracts) and len(names) == 1 and slot == 3:
        return replace(first, bias=c.at(2))
    return s.then(c, first, *behind)


@TABLE.row("FusedBatchNormV3 FusedBatchNormV2 FusedBatchNorm _FusedBatchNormEx")
def _tf_bn(c: Call) -> s.Meaning:
    """Also with an addition and an activation behind it, ``_FusedBatchNormEx``."""
    along, mode = None if _channels_last(c) else 1, str(c.get("activation_mode", "Identity"))
    norm = s.batch_norm(c.rank(), bool(c["is_training"]), along)
    if c["is_training"]:
        alone = mode == "Identity" and c.get("exponential_avg_factor", 1.0) == 1
        return norm if alone else s.Unknown("it mixes means of the batch with others")
    added = [(s.function("add"), 5)] if c.get("num_side_inputs") else []
    return s.then(c, norm, *added, *([] if mode == "Identity" else [_tf_function(mode)]))


def _tf_matmul(c: Call, left: str, right: str) -> s.Meaning:
    turned = bool(c[left]), bool(c[right])
    if any(turned) and left == "adj_x" and c.dtype().startswith("complex"):
        return s.Unknown("it conjugates a matrix")
    return _epilogue(c, s.matmul(turned=turned))


def _spatial_ends(c: Call, ends: Sequence[Any]) -> tuple[Any, ...]:
    """What has one entry an axis, of the spatial axes alone."""
    return tuple(ends[1:-1] if _channels_last(c) else ends[2:])


def _tf_padding(
    c: Call, ins: Sequence[int], outs: Sequence[int], *window: Sequence[int]
) -> s.Padding:
    kernel, stride, dilation = window
    if c["padding"] == "EXPLICIT":
        flat = c["explicit_paddings"]
        return _spatial_ends(c, list(zip(flat[::2], flat[1::2], strict=True)))
    if c["padding"] == "VALID":
        return ((0, 0),) * len(kernel)
    return s.same_padding(_spatial_ends(c, ins), _spatial_ends(c, outs), kernel, stride, dilation)


@TABLE.row("Conv2D Conv3D DepthwiseConv2dNative")
@TABLE.row("_FusedConv2D _FusedConv3D _FusedDepthwiseConv2dNative")
def _tf_conv(c: Call) -> s.Meaning:
    *kernel, inner, _ = c.shape(1)
    window = tuple(kernel), _spatial_ends(c, c["strides"]), _spatial_ends(c, c["dilations"])
    padding, rank = _tf_padding(c, c.shape(), c.gives[0], *window), len(kernel)
    channels, weights = c.shape()[-1 if _channels_last(c) else 1], tuple(range(rank + 2))
    if "Depthwise" in c.op:
        inner = 1  # (height, width, channels, filters a channel): filters in their order
    frame = s.Frame(*window, padding)
    return _epilogue(c, s.convolution(frame, weights, channels // inner, _channels_last(c)))


@TABLE.row("Conv2DBackpropInput Conv3DBackpropInputV2")
def _tf_back(c: Call) -> s.Meaning:
    *kernel, inner, _ = c.shape(1)
    window = tuple(kernel), _spatial_ends(c, c["strides"]), _spatial_ends(c, c["dilations"])
    padding = _tf_padding(c, c.gives[0], c.shape(2), *window)  # of the convolution it turns round
    groups, rank = c.gives[0][-1 if _channels_last(c) else 1] // inner, len(kernel)
    weights, reads = (*range(rank), rank + 1, rank), c.places(2, 1)
    return s.convolution(s.Frame(*window, padding, True), weights, groups, _channels_last(c), reads)


@TABLE.row(s.word_list("MaxPool:max MaxPool3D:max AvgPool:average AvgPool3D:average"))
def _tf_pool(c: Call, kind: str) -> s.Meaning:
    kernel, stride = _spatial_ends(c, c["ksize"]), _spatial_ends(c, c["strides"])
    if sum(c["ksize"]) > sum(kernel) + 2:
        return s.Unknown("it pools over channels or the batch")
    window = kernel, stride, (1,) * len(kernel)
    frame = s.Frame(*window, _tf_padding(c, c.shape(), c.gives[0], *window))
    return s.pool(kind, frame, _channels_last(c))


@TABLE.row(REDUCES)
def _tf_reduce(c: Call, word: str) -> s.Meaning:
    axes = sorted({axis % max(c.rank(), 1) for axis in c.integers(1)})
    return s.reduced(word, axes) if axes else s.Same()


TABLE |= {
    **s.rows_for(APPROXIMATE, lambda c, word: s.approximate(word)),
    **s.rows_for("Max Min MaxPoolWithArgmax", lambda c: s.Moves()),
    "Mod": lambda c: s.function("truncate_mod"),
    # functions that Grappler has put in one kernel
    "_UnaryOpsComposition": lambda c: s.Each(" ".join(map(str, c["op_names"]))),
    "AddN": lambda c: s.several("add", c.count),
    # products and windows
    **s.rows_for(
        "MatMul SparseMatMul _FusedMatMul", lambda c: _tf_matmul(c, "transpose_a", "transpose_b")
    ),
    **s.rows_for(
        "BatchMatMul BatchMatMulV2 BatchMatMulV3", lambda c: _tf_matmul(c, "adj_x", "adj_y")
    ),
    "Einsum": lambda c: s.einsum(c["equation"]),
    # groups of elements
    "Softmax": lambda c: s.normalised("softmax", (-1,)),
    "LogSoftmax": lambda c: s.normalised("log_softmax", (-1,)),
    "Bitcast": lambda c: s.bitcast(c.dtype(), c.dtypes[0], c.gives[0] == c.shape()),
    **s.rows_for("Reshape ExpandDims Squeeze", lambda c: s.Reshapes()),
    "Transpose": lambda c: s.transpose(c.integers(1)),
}


def meaning(c: Call) -> s.Meaning:
    return s.by_table(TABLE, c)
