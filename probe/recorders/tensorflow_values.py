"""TensorFlow's tensors as container arrays, its operations by their schema, run alone and written,
and people's names for variables. What is private in TensorFlow is used here and in
:mod:`probe.recorders.tensorflow_graphs`.
"""

from __future__ import annotations

import gc
import inspect
import re
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context, execute
from tensorflow.python.framework import op_def_registry

UNREAD = ("resource", "variant", "string")
"""Types of tensors that are no arrays."""

EAGER = tf.__internal__.EagerTensor
BFLOAT16 = np.dtype(tf.bfloat16.as_numpy_dtype)


class Kind(NamedTuple):
    """A type of tensors: its name; ``whole``: integers and bools; ``unread``: no arrays."""

    name: str
    floating: bool
    whole: bool
    unread: bool


@cache
def _kind(number: int) -> Kind:
    one = tf.as_dtype(number)
    return Kind(one.name, one.is_floating, one.is_integer or one.is_bool, one.name in UNREAD)


def kind(tensor: Any) -> Kind:
    """An eager tensor's type, in a fifth of the time that TensorFlow's own description takes."""
    return _kind(tensor._datatype_enum())


def sizes(tensor: Any) -> tuple[int, ...]:
    """Returns an eager tensor's shape."""
    shape: tuple[int, ...] = tensor._shape_tuple()
    return shape


def tensors(found: Any) -> list[Any]:
    """The tensors in whatever a function returned, in order; NumPy's arrays become tensors."""
    return [tf.convert_to_tensor(one) for one in arrays(found)]


def arrays(found: Any) -> list[Any]:
    """Tensors, variables and arrays in whatever a function returned."""
    flat = tf.nest.flatten(found, expand_composites=True)
    kinds = tf.Tensor | tf.Variable | np.ndarray
    held = [one.value if type(one).__module__.startswith("keras.") else one for one in flat]
    return [one for one in held if isinstance(one, kinds)]


def array(tensor: Any) -> np.ndarray:
    """A tensor's bits as a container array: the tensor's own memory where that is possible."""
    plain = np.asarray(tensor._numpy())
    return plain.view(np.uint16) if plain.dtype == BFLOAT16 else plain


def tensor_of(bits: np.ndarray, dtype: Any) -> Any:
    """Returns the tensor of a container array."""
    plain = np.ascontiguousarray(bits).reshape(np.shape(bits))
    if dtype == tf.bfloat16:
        plain = plain.view(tf.bfloat16.as_numpy_dtype)
    return tf.constant(plain, dtype)


def run(op: str, inputs: Sequence[Any], attributes: Sequence[Any], count: int) -> list[Any]:
    """Runs one operation eagerly; returns its tensors. No callback is called."""
    ctx = context.context()
    return list(execute.quick_execute(op, count, list(inputs), tuple(attributes), ctx) or ())


SMALL_ARGUMENT = 64
"""Elements of an argument that lines and attributes spell out."""

STRUCTURE = frozenset(
    "reduction_indices dimension axis dim dims perm shape size crop_size input_sizes multiples "
    "begin end strides paddings crops block_shape split_dim size_splits concat_dim shift depth k "
    "num_lower num_upper num_rows num_cols padding_value fft_length num_segments".split()
)
"""Names of inputs that say how an operation works, not on what: shapes, axes, paddings."""

WHOLE = frozenset(
    one.as_datatype_enum for one in (tf.bool, tf.int8, tf.int16, tf.int32, tf.int64, tf.uint8)
)


class Schema(NamedTuple):
    """An operation in TensorFlow's registry.

    ``inputs``: (name, whether it is a list, whether it is structure); ``kinds``: of its attributes
    by name; ``defaults``: theirs, where there are; ``inferred``: those that follow from the inputs.
    """

    inputs: tuple[tuple[str, bool, bool], ...]
    kinds: Mapping[str, str]
    defaults: Mapping[str, Any]
    inferred: frozenset[str]


@cache
def schema(op: str) -> Schema:
    """Returns what is known of an operation; nothing, if it isn't registered."""
    made = op_def_registry.get(op)
    if made is None:
        return Schema((), {}, {}, frozenset())
    allowed = {one.name: set(one.allowed_values.list.type) for one in made.attr}
    inputs = []
    for one in made.input_arg:
        types = {one.type} if one.type else allowed.get(one.type_attr, set())
        how = one.name == "padding_value" or (
            one.name in STRUCTURE and 0 < len(types & WHOLE) == len(types)
        )
        inputs.append((one.name, bool(one.number_attr or one.type_list_attr), how))
    defaults = {
        one.name: plain(attribute(one.default_value), one.type)
        for one in made.attr
        if one.HasField("default_value")
    }
    every = ((one.type_attr, one.number_attr, one.type_list_attr) for one in made.input_arg)
    inferred = frozenset(name for names in every for name in names if name)
    return Schema(tuple(inputs), {one.name: one.type for one in made.attr}, defaults, inferred)


@cache
def slots(op: str, count: int) -> list[tuple[str, bool, bool]]:
    """Returns the argument to which each of ``count`` inputs belongs, as of ``Schema.inputs``.

    A list's inputs share one, and all lists of an operation are taken to be of one length.
    """
    inputs = schema(op).inputs
    lists = sum(several for _, several, _ in inputs)
    length = (count - len(inputs) + lists) // max(lists, 1)
    every = [one for one in inputs for _ in range(length if one[1] else 1)]
    return every if len(every) == count else [("", False, False)] * count


@cache
def structure(op: str, count: int) -> tuple[int, ...]:
    """Returns the numbers of the inputs that say how an operation works."""
    return tuple(n for n, (_, _, how) in enumerate(slots(op, count)) if how)


def attribute(value: Any) -> Any:
    """Returns an attribute of a node as eager operations take it."""
    kind = value.WhichOneof("value")
    if kind == "list":
        field, some = next(((f.name, list(v)) for f, v in value.list.ListFields()), ("", []))
        types: dict[str, Callable[[Any], Any]]
        types = {"type": tf.as_dtype, "shape": tf.TensorShape, "func": lambda one: one.name}
        return [types[field](one) for one in some] if field in types else some
    if kind == "func":
        return value.func.name
    if kind == "type":
        return tf.as_dtype(value.type)
    if kind == "shape":
        return tf.TensorShape(value.shape)
    return getattr(value, kind) if kind else []


def plain(value: Any, kind: str = "") -> Any:
    """Returns an attribute as JSON has it."""
    if kind == "type" or isinstance(value, tf.DType):
        return tf.as_dtype(value).name
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, tf.TensorShape):
        return value.as_list() if value.rank is not None else None
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def alone(
    op: str,
    inputs: Sequence[Any],
    attributes: Sequence[Any],
    count: int,
    read: Sequence[int],
    given: Sequence[int],
) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]] | None:
    """Returns a function that runs an operation on other arrays for the inputs that are ``read``;
    None where there is no such thing."""
    kinds = [inputs[n].dtype for n in read]
    if tf.resource in kinds or any(
        kind(one).unread for n, one in enumerate(inputs) if n not in read
    ):
        return None
    rest = [None if n in read else one for n, one in enumerate(inputs)]  # keeps no operand alive

    def again(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        fed = list(rest)
        for n, bits, dtype in zip(read, arrays, kinds, strict=True):
            fed[n] = tensor_of(bits, dtype)
        found = run(op, fed, attributes, count)
        return [np.array(array(found[n])) for n in given]

    return again


def shown(op: str, attributes: Mapping[str, Any], inputs: Sequence[Any]) -> dict[str, Any]:
    """Attributes as an event has them: none that the arrays' types say, and small arguments."""
    names, inferred = slots(op, len(inputs)), schema(op).inferred
    every = [(names[n][0], array(inputs[n])) for n in structure(op, len(inputs))]
    small = {name: one.tolist() for name, one in every if one.size <= SMALL_ARGUMENT}
    return {name: one for name, one in attributes.items() if name not in inferred} | small


def written(
    op: str,
    attributes: Mapping[str, Any],
    inputs: Sequence[Any],
    read: Sequence[int],
    given: Sequence[int],
    count: int,
) -> Callable[[Sequence[str], str], list[str]] | None:
    """Returns lines of ``tf.raw_ops`` for an operation; None for one that Grappler has fused."""
    function, own = getattr(tf.raw_ops, op, None), schema(op)
    held = {n: array(inputs[n]).tolist() for n in structure(op, len(inputs))}
    if function is None or any(np.size(one) > SMALL_ARGUMENT for one in held.values()):
        return None
    every = slots(op, len(inputs))
    if not all(name for name, *_ in every):
        return None
    # Python has other names for some, in the same order
    parameters = [name for name in inspect.signature(function).parameters if name != "name"]
    names = [name for name, *_ in own.inputs]
    names += [name for name in own.kinds if name not in own.inferred]
    free = [name for name in parameters if name not in names]
    strange = [name for name in names if name not in parameters]
    renamed = dict(zip(strange, free, strict=False))
    words = [
        f"{renamed.get(name, name)}={one!r}"
        for name, one in attributes.items()
        if name not in own.inferred and renamed.get(name, name) in parameters
    ]

    def lines(names: Sequence[str], result: str) -> list[str]:
        place = dict(zip(read, names, strict=True))
        texts: dict[str, list[str]] = {name: [] for name, *_ in own.inputs}
        for n, (name, *_) in enumerate(every):
            texts[name].append(place[n] if n in place else repr(held[n]))
        operands = [
            f"{renamed.get(name, name)}="
            + (f"[{', '.join(texts[name])}]" if several else texts[name][0])
            for name, several, _ in own.inputs
        ]
        only = f"[{given[0]}]" if count > 1 and len(given) == 1 else ""
        return [f"{result} = tf.raw_ops.{op}({', '.join([*operands, *words])}){only}"]

    return lines


class Names:
    """The names of the variables, by their handles, and of Keras' layers: looked for once."""

    def __init__(self) -> None:
        self.variables: dict[int, str] = {}
        self.objects: list[weakref.ref[Any]] = []
        self.layers: set[str] = set()
        self.paths: dict[tuple[str, bool], str] = {}
        self.looked = False

    def variable(self, handle: int) -> str:
        """Returns the name of a variable; empty if it isn't known."""
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

    def shapes(self) -> set[tuple[int, ...]]:
        """Returns the shapes of all floating-point variables that there are."""
        self._look()
        every = (one() for one in self.objects)
        some = (one for one in every if one is not None and one.dtype.is_floating)
        return {tuple(one.shape.as_list()) for one in some if one.shape.rank is not None}

    def held(self) -> Iterator[tuple[Any, Any]]:
        """Yields the handle of each variable that there is, and what it holds now."""
        self._look()
        for one in self.objects:
            variable = one()
            handle = getattr(variable, "_handle", None)
            if variable is not None and isinstance(handle, EAGER) and variable.dtype.is_floating:
                try:
                    found = run("ReadVariableOp", [handle], ("dtype", variable.dtype), 1)[0]
                except tf.errors.OpError:  # not initialised
                    continue
                yield handle, found

    def _look(self) -> None:
        if self.looked:
            return
        self.looked = True
        from tensorflow.python.ops.resource_variable_ops import BaseResourceVariable

        keras = sys.modules.get("keras")
        theirs = (keras.Variable, keras.Operation) if keras is not None else ()
        kinds: dict[type, bool] = {}
        gc.unfreeze()  # objects that a session in this process froze are not listed
        for one in gc.get_objects():
            kind = type(one)
            if kind not in kinds:
                kinds[kind] = issubclass(kind, (BaseResourceVariable, *theirs))
            if not kinds[kind]:
                continue
            if isinstance(one, BaseResourceVariable):
                self.objects.append(weakref.ref(one))
                self._found(getattr(one, "_handle", None), str(one.name).split(":")[0], False)
            elif hasattr(one, "path") and not hasattr(one, "call"):
                handle = getattr(getattr(one, "_value", None), "_handle", None)
                self._found(handle, str(one.path), True)
            else:
                self.layers.add(str(getattr(one, "name", "")))

    def _found(self, handle: Any, name: str, better: bool) -> None:
        if isinstance(handle, EAGER) and (better or handle._id not in self.variables):
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
    """Returns a scope's name without the number that a graph has put behind it."""
    stem = re.sub(r"_\d+$", "", name)
    return stem if stem in layers or name not in layers else name
