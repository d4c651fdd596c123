"""TensorFlow's tensors as container arrays, operations run alone, and people's names for them."""

from __future__ import annotations

import gc
import re
import sys
import weakref
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context, execute

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
