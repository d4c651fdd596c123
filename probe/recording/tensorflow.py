"""TensorFlow and Keras, watched: every eager operation, and the nodes of the graphs that run.

Operations that run eagerly are seen by TensorFlow's own callbacks, behind the same kernels as
without them. A ``tf.function`` runs once as always, and then once more, node by node, as it was
optimised (:mod:`probe.recording.tensorflow_graphs`). Paths are the name scopes, in which Keras has
the names of its layers. What an operation computes stands in
:mod:`probe.recording.tensorflow_meanings`.
"""

from __future__ import annotations

import gc
import inspect
import os
import re
import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context, execute
from tensorflow.python.framework import op_callbacks, op_def_registry

from probe.recording.contract import CONSTANT, INPUT, WEIGHT, Event, Seen, Visit
from probe.recording.meaning import Moves
from probe.recording.recording import digest
from probe.recording.tensorflow_meanings import STRUCTURE, Call, meaning

READS = ("ReadVariableOp", "VarIsInitializedOp", "VariableShape")
SHAPES = ("Shape", "ShapeN", "Size", "Rank", "VariableShape", "ZerosLike", "OnesLike", "Range")
"""What they give depends on no element, or on sizes alone: it is a constant of the run."""

SMALL_SHAPE, SMALL_ARGUMENT = 16, 64
"""Elements of a shape, and of an argument that lines and attributes spell out."""

UNREAD = ("resource", "variant", "string")


class Recorder:
    """A function of no arguments that computes with TensorFlow, or with Keras on TensorFlow."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function
        self.target = target()
        self.note = ""
        self.names = Names()
        self.functions: dict[Hashable, Any] = {}
        self.expected: list[np.ndarray] | None = None

    def plain(self) -> list[np.ndarray]:
        """Runs it unwatched."""
        return [array(one) for one in tensors(self.function())]

    def record(self, visit: Visit) -> list[Seen]:
        """Runs it, and calls ``visit`` behind each operation.

        The first time it runs unwatched before, so that layers are built and functions traced.
        """
        if self.expected is None:
            self.expected = self.plain()
        watch = Watching(visit, self.names, self.functions)
        watch.wanted = {one.shape for one in self.expected}
        with watch.watching():
            found = self.function()
        outputs = watch.outputs(found)
        self._notes(watch, [one.array() for one in outputs])
        return outputs

    def _notes(self, watch: Watching, outputs: Sequence[np.ndarray]) -> None:
        """Says what isn't looked into, and whether the watched run gave the bits of the other."""
        if watch.graphs and "mode=" not in self.target:
            self.target += ",mode=graph"
        said = list(watch.said)
        pairs = zip(outputs, self.expected or (), strict=True)
        if not all(digest(one) == digest(two) for one, two in pairs):
            said.append("the watched run gave bits that the run before it did not")
        self.note = "; ".join(dict.fromkeys(said))


def target() -> str:
    """The text of the target that this process is: threads and oneDNN's operators as they are set."""
    text = "tensorflow"
    if (choice := os.environ.get("TF_ENABLE_ONEDNN_OPTS")) in ("0", "1"):
        text += f",onednn={choice}"
    threads = tf.config.threading.get_intra_op_parallelism_threads()
    return text + (f",threads={threads}" if threads else "")


def tensors(found: Any) -> list[Any]:
    """The tensors in whatever a function returned, in order; NumPy's arrays become tensors."""
    return [tf.convert_to_tensor(one) for one in _arrays(found)]


def _arrays(found: Any) -> list[Any]:
    """Tensors, variables and arrays in whatever a function returned."""
    flat = tf.nest.flatten(found, expand_composites=True)
    kinds = tf.Tensor | tf.Variable | np.ndarray
    held = [one.value if type(one).__module__.startswith("keras.") else one for one in flat]
    return [one for one in held if isinstance(one, kinds)]


def array(tensor: Any) -> np.ndarray:
    """A tensor's bits as a container array: the tensor's own memory where that is possible."""
    plain = np.asarray(tensor._numpy())
    return plain.view(np.uint16) if plain.dtype.name == "bfloat16" else plain


def tensor_of(bits: np.ndarray, dtype: Any) -> Any:
    """The tensor of a container array."""
    plain = np.ascontiguousarray(bits).reshape(np.shape(bits))
    if dtype == tf.bfloat16:
        plain = plain.view(tf.bfloat16.as_numpy_dtype)
    return tf.constant(plain, dtype)


def run(op: str, inputs: Sequence[Any], attributes: Sequence[Any], count: int) -> list[Any]:
    """Runs one operation eagerly; returns its tensors. No callback is called."""
    ctx = context.context()
    return list(execute.quick_execute(op, count, list(inputs), tuple(attributes), ctx) or ())


class Watching:
    """One watched run: the keys of its values, and what is known of them."""

    def __init__(
        self, visit: Visit, names: Names, functions: dict[Hashable, Any] | None = None
    ) -> None:
        self.visit, self.names = visit, names
        self.functions: dict[Hashable, Any] = {} if functions is None else functions
        self.aliases: dict[int, Hashable] = {}
        self.variables: dict[int, Hashable] = {}
        self.lists: dict[int, list[Seen | None]] = {}
        self.shapes: set[int] = set()
        self.computed: set[Hashable] = set()
        self.given: set[Hashable] = set()
        self.roles: dict[Hashable, tuple[str, str]] = {}
        self.writes, self.graphs, self.busy = 0, 0, False
        self.said: list[str] = []
        self.wanted: set[tuple[int, ...]] = set()
        self.numpy: dict[tuple[tuple[int, ...], str, str], Hashable] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watches what this thread runs eagerly."""
        op_callbacks.add_op_callback(self.callback)
        try:
            yield
        finally:
            op_callbacks.remove_op_callback(self.callback)

    def outputs(self, found: Any) -> list[Seen]:
        """What a function returned; an array of NumPy's is the last value that had its bits."""
        seen = []
        for one in _arrays(found):
            tensor = tf.convert_to_tensor(one)
            if isinstance(one, np.ndarray):
                made = self.numpy.get((one.shape, tensor.dtype.name, digest(array(tensor))))
                if made is None:
                    self.said.append("an output was computed outside of TensorFlow, after it")
                else:
                    self.aliases[tensor._id] = made
            seen.append(self.seen(tensor))
        return seen

    def callback(
        self, op: Any, inputs: Any, attributes: Any, outputs: Any, *more: Any, **words: Any
    ) -> None:
        """As ``tf.debugging``'s callbacks are called; operations that a graph is built of are skipped."""
        if self.busy or words.get("graph") is not None or not context.executing_eagerly():
            return
        self.busy = True
        try:
            ctx, name = context.context(), op.decode() if isinstance(op, bytes) else op
            given = list(outputs) if isinstance(outputs, list | tuple) else []
            if ctx.has_function(name):
                from probe.recording import tensorflow_graphs

                self.graphs += 1
                tensorflow_graphs.called(self, name, list(inputs), given)
            else:
                path = self.names.path((ctx.scope_name or "").rstrip("/"))
                self.met(name, list(inputs), _set(attributes or ()), given, path)
        finally:
            self.busy = False

    def met(
        self, op: str, inputs: list[Any], attributes: tuple[Any, ...], outputs: list[Any], path: str
    ) -> None:
        """An operation has run."""
        if op in ("Identity", "StopGradient", "Snapshot", "ReadVariableOp") and outputs:
            held = inputs[0]
            if op == "ReadVariableOp":
                self.aliases[outputs[0]._id] = self.variable(held, path)
            elif held.dtype.name == "variant":
                self._same_list(held, outputs[0])
            else:
                self.aliases[outputs[0]._id] = self.key(held)
            return
        if op.startswith("TensorList"):
            self._listed(op, inputs, outputs, path)
            return
        if op not in READS:
            self._written(op, inputs)
        read, given = self._read(op, inputs), _given(op, attributes, outputs)
        shapes = self._of_shapes([inputs[n] for n in read], outputs)
        if self._fixed(op, inputs) or not read or shapes:
            self._constant(op, outputs)
        elif given:
            self._event(op, inputs, attributes, outputs, read, given, path)

    @staticmethod
    def _fixed(op: str, inputs: list[Any]) -> bool:
        return op in SHAPES and (op != "Range" or all(one.dtype.is_integer for one in inputs))

    def _constant(self, op: str, outputs: list[Any]) -> None:
        for one in outputs:
            if op in SHAPES or one.dtype.is_integer or one.dtype.is_bool:
                self.shapes.add(one._id)
                self.roles[one._id] = CONSTANT, op

    def _of_shapes(self, inputs: list[Any], outputs: list[Any]) -> bool:
        """Whether an operation only calculates with shapes, or with numbers of the program."""
        return all(
            (one.dtype.is_integer or one.dtype.is_bool)
            and (one._id in self.shapes or (one.shape.rank == 0 and self.key(one) not in self.given))
            for one in inputs
        ) and all(
            (one.dtype.is_integer or one.dtype.is_bool) and one.shape.num_elements() <= SMALL_SHAPE
            for one in outputs
        )

    def _read(self, op: str, inputs: list[Any]) -> list[int]:
        """The numbers of the inputs that are arrays."""
        arguments = {n % len(inputs) for n in STRUCTURE.get(op, ())} if inputs else set()
        return [
            n
            for n, one in enumerate(inputs)
            if n not in arguments
            and (one.dtype.name not in UNREAD or (op == "ResourceGather" and n == 0))
        ]

    def _written(self, op: str, inputs: list[Any]) -> None:
        """A variable that is written has another key from now on."""
        for one in inputs:
            if one.dtype == tf.resource and op != "ResourceGather":
                self.writes += 1
                assigned = op == "AssignVariableOp"
                key = self.key(inputs[1]) if assigned else ("variable", one._id, self.writes)
                self.variables[one._id] = key

    def variable(self, handle: Any, path: str) -> Hashable:
        """The key of what a variable holds now."""
        key = self.variables.setdefault(handle._id, ("variable", handle._id, 0))
        self.roles.setdefault(key, (WEIGHT, self.names.variable(handle._id) or path))
        return key

    def key(self, tensor: Any) -> Hashable:
        """The key of a tensor; one that is merely handed on keeps that of what it was."""
        return self.aliases.get(tensor._id, tensor._id)

    def seen(self, tensor: Any, path: str = "") -> Seen:
        """What the contract says of a value. A variable's handle stands for what it holds."""
        if tensor.dtype == tf.resource:
            key = self.variable(tensor, path)
            kind = tensor._handle_data.shape_and_type[0].dtype
            tensor = run("ReadVariableOp", [tensor], ("dtype", tf.as_dtype(kind)), 1)[0]
        else:
            key = self.key(tensor)
        role, name = self.roles.get(key, (INPUT, ""))
        shape = tuple(tensor.shape.as_list())
        return Seen(key, shape, tensor.dtype.name, lambda: array(tensor), role, name)

    def _event(
        self,
        op: str,
        inputs: list[Any],
        attributes: tuple[Any, ...],
        outputs: list[Any],
        read: list[int],
        given: list[int],
        path: str,
    ) -> None:
        called = self.call(op, inputs, attributes, outputs)
        reads = [self.seen(inputs[n], path) for n in read]
        gives = [self.seen(outputs[n], path) for n in given]
        self.given.update(one.key for one in gives)
        for one in gives:
            if one.shape in self.wanted:
                self.numpy[one.shape, one.dtype, digest(one.array())] = one.key
        floating = any(one.dtype.is_floating for one in inputs)
        if floating or any(one.key in self.computed for one in reads):
            self.computed.update(one.key for one in gives)
        self.visit(
            Event(
                *(op, path, reads, gives, meaning(called), _shown(called)),
                again=_again(op, inputs, attributes, len(outputs), read, given),
                lines=_lines(called, read, given, len(outputs)),
                imports=("import tensorflow as tf",),
            )
        )

    def call(
        self, op: str, inputs: list[Any], attributes: tuple[Any, ...], outputs: list[Any]
    ) -> Call:
        """An operation's call without TensorFlow's own types."""
        pairs = zip(attributes[::2], attributes[1::2], strict=True)
        kinds = _kinds(op)
        plain = {
            name: tf.as_dtype(value).name if kinds.get(name) == "type" else _plain(value)
            for name, value in pairs
        }
        numbers = {n % len(inputs) for n in STRUCTURE.get(op, ())} if inputs else set()

        def value(number: int) -> np.ndarray | None:
            one = inputs[number]
            if one.dtype.is_floating or self.key(one) in self.computed:
                return None
            return np.array(array(one))

        shapes = [
            tuple(tf.TensorShape(one._handle_data.shape_and_type[0].shape).as_list())
            if one.dtype == tf.resource and one._handle_data is not None
            else tuple(one.shape.as_list())
            for one in inputs
        ]
        given = [tuple(one.shape.as_list()) for one in outputs]
        arguments = {n: np.array(array(inputs[n])) for n in sorted(numbers) if n < len(inputs)}
        return Call(op, plain, shapes, given, arguments, value)

    def _same_list(self, old: Any, new: Any) -> None:
        if old._id in self.lists:
            self.lists[new._id] = self.lists[old._id]

    def _listed(self, op: str, inputs: list[Any], outputs: list[Any], path: str) -> None:
        """A list of tensors, as loops of a graph have it: its elements keep their keys."""
        if op == "TensorListReserve":
            self.lists[outputs[0]._id] = [None] * int(array(inputs[1]))
        elif op == "TensorListFromTensor":
            one = inputs[0]
            parts = [_part(self.seen(one, path), n) for n in range(int(one.shape[0]))]
            self.lists[outputs[0]._id] = list(parts)
            self._moved(op, path, [self.seen(one, path)], parts, lambda a: list(a))
        elif op == "TensorListGetItem" and (held := self._element(inputs)) is not None:
            self.aliases[outputs[0]._id] = held.key
            self.roles[held.key] = held.role, held.name
        elif op == "TensorListSetItem" and inputs[0]._id in self.lists:
            made = list(self.lists[inputs[0]._id])
            made[int(array(inputs[1]))] = self.seen(inputs[2], path)
            self.lists[outputs[0]._id] = made
        elif op == "TensorListStack" and inputs[0]._id in self.lists:
            held = [one for one in self.lists[inputs[0]._id] if one is not None]
            gives = [self.seen(outputs[0], path)]
            self._moved(op, path, held, gives, lambda *every: np.stack(every))
        elif op not in ("TensorListLength", "TensorListElementShape"):
            self.said.append(f"{op}: what it gives is taken as an input")

    def _element(self, inputs: list[Any]) -> Seen | None:
        held = self.lists.get(inputs[0]._id)
        return None if held is None else held[int(array(inputs[1]))]

    def _moved(
        self, op: str, path: str, reads: list[Seen], gives: list[Seen], move: Callable[..., Any]
    ) -> None:
        if any(one.key in self.computed for one in reads):
            self.computed.update(one.key for one in gives)

        def again(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
            found = move(*arrays)
            return found if isinstance(found, list) else [found]

        self.visit(Event(op, path, reads, gives, Moves(move), again=again))


def _set(attributes: Sequence[Any]) -> tuple[Any, ...]:
    """The attributes that were given; None stands for TensorFlow's default."""
    pairs = zip(attributes[::2], attributes[1::2], strict=True)
    return tuple(one for name, value in pairs if value is not None for one in (name, value))


def _part(whole: Seen, number: int) -> Seen:
    """One element along the first axis."""
    key = ("part", whole.key, number)
    return Seen(key, whole.shape[1:], whole.dtype, lambda: whole.array()[number])


def _given(op: str, attributes: tuple[Any, ...], outputs: list[Any]) -> list[int]:
    """The numbers of the outputs that are arrays; statistics of a norm that isn't trained are none."""
    if "FusedBatchNorm" in op:
        words = dict(zip(attributes[::2], attributes[1::2], strict=True))
        if not words.get("is_training", True):
            return [0]
    return [n for n, one in enumerate(outputs) if one.dtype.name not in UNREAD]


class Names:
    """The names of the variables, by their handles, and of Keras' layers: looked for once."""

    def __init__(self) -> None:
        self.variables: dict[int, str] = {}
        self.layers: set[str] = set()
        self.paths: dict[tuple[str, bool], str] = {}
        self.looked = False

    def variable(self, handle: int) -> str:
        """The name of a variable; empty if it isn't known."""
        self._look()
        return self.variables.get(handle, "")

    def path(self, scope: str, graph: bool = False) -> str:
        """The path that a name scope stands for: the layers of Keras in it, if there are any.

        In a ``graph`` a scope that is opened again has a number behind its name.
        """
        if (scope, graph) not in self.paths:
            self._look()
            self.paths[scope, graph] = _path(scope, self.layers, graph)
        return self.paths[scope, graph]

    def _look(self) -> None:
        if self.looked:
            return
        self.looked = True
        from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable

        keras = sys.modules.get("keras")
        theirs = (keras.Variable, keras.Operation) if keras is not None else ()
        kinds: dict[type, bool] = {}
        for one in gc.get_objects():
            kind = type(one)
            if kind not in kinds:
                kinds[kind] = issubclass(kind, (BaseResourceVariable, *theirs))
            if not kinds[kind]:
                continue
            if isinstance(one, BaseResourceVariable):
                self._found(getattr(one, "_handle", None), str(one.name).split(":")[0], False)
            elif hasattr(one, "path") and not hasattr(one, "call"):
                handle = getattr(getattr(one, "_value", None), "_handle", None)
                self._found(handle, str(one.path), True)
            else:
                self.layers.add(str(getattr(one, "name", "")))

    def _found(self, handle: Any, name: str, better: bool) -> None:
        if hasattr(handle, "_id") and (better or handle._id not in self.variables):
            self.variables[handle._id] = name


CALLED = re.compile(r"^(Stateful)?PartitionedCall(_\d+)?$")
OPTIMISERS = ("ArithmeticOptimizer", "ConstantFolding", "LayoutOptimizer", "ConstantFoldingCtrl")


def _path(scope: str, layers: set[str], graph: bool) -> str:
    parts = [one for one in scope.split("/") if one and not CALLED.match(one)]
    parts = [one for one in parts if one not in OPTIMISERS]
    if graph:
        parts = [_plain_scope(one, layers) for one in parts]
    return "/".join([one for one in parts if one in layers] or parts)


def _plain_scope(name: str, layers: set[str]) -> str:
    """A scope's name without the number that a graph has put behind it."""
    stem = re.sub(r"_\d+$", "", name)
    return stem if stem in layers or name not in layers else name


def _plain(value: Any) -> Any:
    """An attribute as JSON has it."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, tf.DType):
        return value.name
    if isinstance(value, tf.TensorShape):
        return value.as_list() if value.rank is not None else None
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _shown(call: Call) -> dict[str, Any]:
    """Attributes as an event has them: none that the arrays' types say, and small arguments."""
    types = _types(call.op)
    shown = {name: value for name, value in call.attributes.items() if name not in types}
    names, small = _slots(call) or [], {}
    for n, one in call.arguments.items():
        if one.size <= SMALL_ARGUMENT and n < len(names):
            small[names[n]] = one.tolist()
    return shown | small


@cache
def _kinds(op: str) -> dict[str, str]:
    """The kind of each attribute of an operation."""
    made = op_def_registry.get(op)
    return {one.name: one.type for one in made.attr} if made is not None else {}


@cache
def _types(op: str) -> set[str]:
    """The attributes that follow from the inputs' types and numbers."""
    made = op_def_registry.get(op)
    if made is None:
        return set()
    every = ((a.type_attr, a.number_attr, a.type_list_attr) for a in made.input_arg)
    return {name for names in every for name in names if name}


def _slots(call: Call) -> list[str] | None:
    """The name of the argument to which each input belongs; a list's inputs share one."""
    made = op_def_registry.get(call.op)
    names: list[str] = []
    for one in made.input_arg if made is not None else ():
        count = 1
        if one.number_attr:
            count = int(call.attributes.get(one.number_attr, 1))
        elif one.type_list_attr:
            count = len(call.attributes.get(one.type_list_attr, ()))
        names += [one.name] * count
    return names if names and len(names) == len(call.inputs) else None


def _again(
    op: str, inputs: list[Any], attributes: tuple[Any, ...], count: int, read: list[int], given: list[int]
) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]] | None:
    if any(one.dtype.name in UNREAD for n, one in enumerate(inputs) if n not in read):
        return None
    kinds = [inputs[n].dtype for n in read]
    if tf.resource in kinds:
        return None

    def again(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        fed = list(inputs)
        for n, bits, kind in zip(read, arrays, kinds, strict=True):
            fed[n] = tensor_of(bits, kind)
        found = run(op, fed, attributes, count)
        return [np.array(array(found[n])) for n in given]

    return again


def _lines(
    call: Call, read: list[int], given: list[int], count: int
) -> Callable[[Sequence[str], str], list[str]] | None:
    """How a user writes the operation alone: ``tf.raw_ops``, None for one that Grappler has fused."""
    function = getattr(tf.raw_ops, call.op, None)
    if function is None or any(one.size > SMALL_ARGUMENT for one in call.arguments.values()):
        return None
    slots, lists, types = _slots(call), _list_slots(call.op), _types(call.op)
    if slots is None:
        return None
    parameters = [name for name in inspect.signature(function).parameters if name != "name"]
    shown = {name: value for name, value in call.attributes.items() if name not in types}
    strange = [slot for slot in dict.fromkeys(slots) if slot not in parameters]
    free = [name for name in parameters if name not in slots and name not in shown]
    renamed = dict(zip(strange, free, strict=False))

    def lines(names: Sequence[str], result: str) -> list[str]:
        words: dict[str, list[str]] = {}
        place = dict(zip(read, names, strict=True))
        for n, slot in enumerate(slots):
            text = place[n] if n in place else repr(call.arguments[n].tolist())
            words.setdefault(slot, []).append(text)
        texts = [
            f"{renamed.get(slot, slot)}={'[' + ', '.join(every) + ']' if slot in lists else every[0]}"
            for slot, every in words.items()
        ]
        texts += [f"{name}={value!r}" for name, value in shown.items() if name in parameters]
        only = f"[{given[0]}]" if count > 1 and len(given) == 1 else ""
        return [f"{result} = tf.raw_ops.{call.op}({', '.join(texts)}){only}"]

    return lines


def _list_slots(op: str) -> set[str]:
    made = op_def_registry.get(op)
    return {a.name for a in made.input_arg if a.number_attr or a.type_list_attr} if made else set()


__all__ = ["Recorder", "Watching", "array", "run", "target", "tensor_of", "tensors"]
