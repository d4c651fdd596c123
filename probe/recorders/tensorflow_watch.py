"""One watched run of TensorFlow: which values are the same, which are constants, and the events."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context
from tensorflow.python.framework import op_callbacks

from probe.recorders.tensorflow_table import meaning
from probe.recorders.tensorflow_values import (
    Names,
    alone,
    array,
    arrays,
    kind,
    plain,
    run,
    schema,
    shown,
    sizes,
    structure,
    written,
)
from probe.recording.contract import CONSTANT, INPUT, WEIGHT, Event, Seen, Visit
from probe.recording.recording import digest
from probe.semantics import Meaning, operations
from probe.semantics.call import Call, Operand

READS = ("ReadVariableOp", "VarIsInitializedOp", "VariableShape")
SHAPES = ("Shape", "ShapeN", "Size", "Rank", "VariableShape", "ZerosLike", "OnesLike", "Range")
"""What they give depends on no element, or on sizes alone: it is a constant of the run."""

COMMUTE = ("Add", "AddV2", "Mul", "Maximum", "Minimum")
SMALL_SHAPE = 16
"""Elements of what is taken for a shape."""


IMPORTS = ("import tensorflow as tf",)


class Told(NamedTuple):
    """What is said of an operation besides its arrays and its place."""

    meaning: Meaning
    attributes: dict[str, Any]
    again: Callable[[Sequence[np.ndarray]], list[np.ndarray]] | None
    lines: Callable[[Sequence[str], str], list[str]] | None


class Watching:
    """One watched run: the keys of its values, and what is known of them."""

    def __init__(
        self,
        visit: Visit,
        names: Names,
        functions: dict[Hashable, Any] | None = None,
        called: Callable[[Watching, str, list[Any], list[Any]], None] | None = None,
        told: dict[Hashable, Told] | None = None,
        instead: Callable[[Watching, str, list[Any]], list[Any] | None] | None = None,
    ) -> None:
        self.visit, self.names, self.called, self.instead = visit, names, called, instead
        self.told: dict[Hashable, Told] = {} if told is None else told
        self.functions: dict[Hashable, Any] = {} if functions is None else functions
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
        self.wanted: set[tuple[int, ...]] = set()
        self.numpy: dict[tuple[tuple[int, ...], str, str], Hashable] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watches what this thread runs eagerly."""
        ctx, thread = context.context(), threading.get_ident()
        plain = ctx.call_function

        def call(name: Any, inputs: list[Any], count: int) -> Any:
            """A function is called: by its nodes, if that is known to give the same."""
            found = None
            if not self.busy and threading.get_ident() == thread:
                found = self._by_nodes(name.decode(), list(inputs))
            return plain(name, inputs, count) if found is None else found or None

        op_callbacks.add_op_callback(self.callback)
        ctx.call_function = call
        try:
            yield
        finally:
            ctx.call_function = plain
            op_callbacks.remove_op_callback(self.callback)

    def _by_nodes(self, name: str, inputs: list[Any]) -> list[Any] | None:
        if self.instead is None:
            return None
        self.busy = True
        try:
            found = self.instead(self, name, inputs)
        finally:
            self.busy = False
        self.graphs += found is not None
        return found

    def outputs(self, found: Any) -> list[Seen]:
        """What a function returned; an array of NumPy's is the last value that had its bits."""
        seen = []
        for one in arrays(found):
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
        """Is called behind each operation; those of which a graph is being built are skipped."""
        if self.busy or words.get("graph") is not None or not context.executing_eagerly():
            return
        self.busy = True
        try:
            ctx, name = context.context(), op.decode() if isinstance(op, bytes) else op
            given = list(outputs) if isinstance(outputs, list | tuple) else []
            if ctx.has_function(name) and self.called is not None:
                self.graphs += 1
                self.called(self, name, list(inputs), given)
            else:
                path = self.names.path((ctx.scope_name or "").rstrip("/"))
                self.met(name, list(inputs), _set(attributes or ()), given, path)
        finally:
            self.busy = False

    def met(
        self, op: str, inputs: list[Any], attributes: tuple[Any, ...], outputs: list[Any], path: str
    ) -> None:
        """An operation has run."""
        if op == "ReadVariableOp":
            self.aliases[outputs[0]._id] = self.variable(inputs[0], path)
            return
        if op in ("Identity", "IdentityN", "StopGradient", "Snapshot"):
            for held, given in zip(inputs, outputs, strict=True):
                self._handed_on(held, given)
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
        return op in SHAPES and (op != "Range" or all(kind(one).whole for one in inputs))

    def _constant(self, op: str, outputs: list[Any]) -> None:
        for one in outputs:
            if op in SHAPES or kind(one).whole:
                self.shapes.add(one._id)
                self.roles[one._id] = CONSTANT, op

    def _of_shapes(self, inputs: list[Any], outputs: list[Any]) -> bool:
        """Whether an operation only calculates with shapes, or with numbers of the program."""
        return all(
            kind(one).whole
            and (one._id in self.shapes or (not sizes(one) and self.key(one) not in self.given))
            for one in inputs
        ) and all(kind(one).whole and prod(sizes(one)) <= SMALL_SHAPE for one in outputs)

    def _read(self, op: str, inputs: list[Any]) -> list[int]:
        """Returns the numbers of the inputs that are arrays."""
        arguments = structure(op, len(inputs))
        found = [
            n
            for n, one in enumerate(inputs)
            if n not in arguments and (not kind(one).unread or (op == "ResourceGather" and n == 0))
        ]
        if op in COMMUTE:  # Grappler swaps them: what was given earlier stands first
            found.sort(key=lambda n: self._age(inputs[n]))
        return found

    def _age(self, tensor: Any) -> int:
        return self.given.get(self.key(tensor), len(self.given))

    def _written(self, op: str, inputs: list[Any]) -> None:
        """A variable that is written has another key from now on."""
        for one in inputs:
            if one.dtype == tf.resource and op != "ResourceGather":
                self.writes += 1
                self.memory = None
                assigned = op == "AssignVariableOp"
                key = self.key(inputs[1]) if assigned else ("variable", one._id, self.writes)
                self.variables[one._id] = key

    def variable(self, handle: Any, path: str) -> Hashable:
        """Returns the key of what a variable holds now."""
        key = self.variables.setdefault(handle._id, ("variable", handle._id, 0))
        self.roles.setdefault(key, (WEIGHT, self.names.variable(handle._id) or path))
        return key

    def key(self, tensor: Any) -> Hashable:
        """Returns the key of a tensor; one that is merely handed on keeps that of what it was.

        Where an operation is called with a variable, TensorFlow reads it past the callbacks: then
        the tensor has the variable's own memory.
        """
        if tensor._id not in self.aliases and tensor._id not in self.given:
            handle = self._held(tensor) if kind(tensor).floating else None
            key = tensor._id if handle is None else self.variable(handle, "")
            self.aliases[tensor._id] = key
        return self.aliases.get(tensor._id, tensor._id)

    def _held(self, tensor: Any) -> Any:
        """Returns the handle of the variable whose memory a tensor has, or None."""
        if self.sizes is None:
            self.sizes = self.names.shapes()
        if sizes(tensor) not in self.sizes:
            return None
        if self.memory is None:
            self.memory = {_place(one): handle for handle, one in self.names.held()}
        return self.memory.get(_place(tensor))

    def seen(self, tensor: Any, path: str = "") -> Seen:
        """Returns what the contract says of a value.
        A variable's handle stands for what it holds."""
        if kind(tensor).name == "resource":
            key = self.variable(tensor, path)
            held = tensor._handle_data.shape_and_type[0].dtype
            tensor = run("ReadVariableOp", [tensor], ("dtype", tf.as_dtype(held)), 1)[0]
        else:
            key = self.key(tensor)
        role, name = self.roles.get(key, (INPUT, ""))
        return Seen(key, sizes(tensor), kind(tensor).name, lambda: array(tensor), role, name)

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
        reads = [self.seen(inputs[n], path) for n in read]
        gives = [self.seen(outputs[n], path) for n in given]
        self.given.update((one.key, len(self.given)) for one in gives)
        for one in gives:
            if one.shape in self.wanted:
                self.numpy[one.shape, one.dtype, digest(one.array())] = one.key
        told = self._told(op, inputs, attributes, outputs, read, given)
        self.visit(
            Event(
                *(op, path, reads, gives, told.meaning, told.attributes),
                *(told.again, told.lines, IMPORTS),
            )
        )

    def _told(
        self,
        op: str,
        inputs: list[Any],
        attributes: tuple[Any, ...],
        outputs: list[Any],
        read: list[int],
        given: list[int],
    ) -> Told:
        """Returns what is said of a call. It is the same for all that are alike, unless the meaning
        looks into what is read."""
        same: Hashable = None
        try:
            same = (op, *_signed(op, inputs, attributes, outputs), tuple(read), tuple(given))
            known = self.told.get(same)
        except TypeError:  # an attribute without a hash
            same, known = None, None
        if known is not None:
            return known
        again = alone(op, inputs, attributes, len(outputs), read, given)
        words = {
            name: plain(value, schema(op).kinds.get(name, ""))
            for name, value in zip(attributes[::2], attributes[1::2], strict=True)
        }
        looked: list[int] = []
        reads = [
            self._operand(one, read.index(n) if n in read else -1, looked)
            for n, one in enumerate(inputs)
        ]
        shapes = [sizes(outputs[n]) for n in given]
        dtypes = [kind(outputs[n]).name for n in given]
        call = Call(op, {**schema(op).defaults, **words}, reads, shapes, dtypes, run=again)
        lines = written(op, words, inputs, read, given, len(outputs))
        told = Told(meaning(call), shown(op, words, inputs), again, lines)
        if same is not None and not looked:
            self.told[same] = told
        return told

    @staticmethod
    def _operand(tensor: Any, at: int, looked: list[int]) -> Operand:
        """``at``: as of ``Operand``; ``looked``: gets those of the arrays into which a row looks,
        so that not all calls that are alike mean the same."""
        shape, dtype, held = (), kind(tensor).name, tensor
        if dtype == "resource":
            data = tensor._handle_data
            if data is not None and data.is_set:
                own = data.shape_and_type[0]
                shape, dtype = (
                    tuple(tf.TensorShape(own.shape).as_list()),
                    tf.as_dtype(own.dtype).name,
                )
            return Operand(at, shape, dtype)

        def content() -> np.ndarray:
            if at >= 0:
                looked.append(at)
            return np.array(array(held))

        known = kind(tensor).whole or at < 0
        return Operand(at, sizes(tensor), dtype, content if known else None)

    def _handed_on(self, old: Any, new: Any) -> None:
        """A value, or a list of them, under another name."""
        if old.dtype.name != "variant":
            self.aliases[new._id] = self.key(old)
        elif old._id in self.lists:
            self.lists[new._id] = self.lists[old._id]

    def _listed(self, op: str, inputs: list[Any], outputs: list[Any], path: str) -> None:
        """A list of tensors, as loops of a graph have it: its elements keep their keys."""
        if op == "TensorListReserve":
            self.lists[outputs[0]._id] = [None] * int(array(inputs[1]))
        elif op == "TensorListFromTensor":
            one = inputs[0]
            parts = [_part(self.seen(one, path), n) for n in range(int(one.shape[0]))]
            self.lists[outputs[0]._id] = list(parts)
            apart = operations.unstack(0, len(parts))
            self._moved(op, path, [self.seen(one, path)], parts, lambda some: list(some[0]), apart)
        elif op == "TensorListGetItem" and (held := self._element(inputs)) is not None:
            self.aliases[outputs[0]._id] = held.key
            self.roles[held.key] = held.role, held.name
        elif op == "TensorListSetItem" and inputs[0]._id in self.lists:
            made = list(self.lists[inputs[0]._id])
            made[int(array(inputs[1]))] = self.seen(inputs[2], path)
            self.lists[outputs[0]._id] = made
        elif op == "TensorListStack" and inputs[0]._id in self.lists:
            every = [one for one in self.lists[inputs[0]._id] if one is not None]
            gives = [self.seen(outputs[0], path)]
            together = operations.stack(0)
            self._moved(op, path, every, gives, lambda some: [np.stack(some)], together)
        elif op not in ("TensorListLength", "TensorListElementShape"):
            self.said.append(f"{op}: its result is treated as an input")

    def _element(self, inputs: list[Any]) -> Seen | None:
        held = self.lists.get(inputs[0]._id)
        return None if held is None else held[int(array(inputs[1]))]

    def _moved(
        self,
        op: str,
        path: str,
        reads: list[Seen],
        gives: list[Seen],
        move: Callable[[Sequence[np.ndarray]], list[np.ndarray]],
        meaning: Meaning,
    ) -> None:
        self.visit(Event(op, path, reads, gives, meaning, again=move))


def _set(attributes: Sequence[Any]) -> tuple[Any, ...]:
    """Returns the attributes that were given; None stands for TensorFlow's default."""
    pairs = zip(attributes[::2], attributes[1::2], strict=True)
    return tuple(one for name, value in pairs if value is not None for one in (name, value))


def _place(tensor: Any) -> tuple[Any, ...]:
    """Returns where an array is in memory, and its kind."""
    plain = array(tensor)
    memory = plain
    if not plain.ndim:  # of a single number NumPy gets a copy
        if tensor.dtype == tf.bfloat16:  # which has no buffer to share
            return tensor._id, (), ""
        memory = np.asarray(memoryview(tensor))
    return memory.ctypes.data, plain.shape, plain.dtype.str


def _part(whole: Seen, number: int) -> Seen:
    """Returns one element along the first axis."""
    key = ("part", whole.key, number)
    return Seen(key, whole.shape[1:], whole.dtype, lambda: whole.array()[number])


def _given(op: str, attributes: tuple[Any, ...], outputs: list[Any]) -> list[int]:
    """The numbers of the outputs that are arrays; of a norm that isn't trained the first alone."""
    if "FusedBatchNorm" in op:
        words = dict(zip(attributes[::2], attributes[1::2], strict=True))
        if not words.get("is_training", True):
            return [0]
    return [n for n, one in enumerate(outputs) if not kind(one).unread]


def _signed(
    op: str, inputs: list[Any], attributes: tuple[Any, ...], outputs: list[Any]
) -> tuple[Hashable, ...]:
    """Returns what tells a call from others, but for the contents of arrays that it works on.
    TypeError: there is no telling."""
    every = [(one._datatype_enum(), one._shape_tuple()) for one in inputs]
    if any(kind(one).unread for one in inputs):
        raise TypeError(op)
    says = [array(inputs[n]).tobytes() for n in structure(op, len(inputs))]
    words = [
        tuple(one) if isinstance(one, list) else repr(one) if isinstance(one, float) else one
        for one in attributes
    ]
    gives = [one._shape_tuple() for one in outputs]
    return tuple(every), tuple(gives), tuple(says), tuple(words)
