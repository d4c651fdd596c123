"""Lists TensorFlow's operations, and reads the attributes of their nodes."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from probe.invariant.telling import spread
from probe.invariant.tensorflow_calls import FORMATS, tensor
from probe.recorders.tensorflow_graphs import CALLS, Node
from probe.recorders.tensorflow_values import array

IN_EIGEN = {
    "Relu": "it is the larger of x and zero: in a vector's tail -0 > 0 may be decided differently",
    "Relu6": "as Relu",
    "Sign": "subnormal numbers are zeros in a vector, and may not be in its tail",
}
"""Functions that round nothing, and whose results depend on the place in a vector all the same."""

CONVERTED = "Cast"
"""To 16 bits it goes by way of float32: it is rounded twice, each time as IEEE 754 asks."""

SOFTMAX = ("LogSoftmax", "Softmax")
CONVOLUTIONS = ("Conv2D", "Conv3D", "DepthwiseConv2dNative")
TRANSPOSED = ("Conv2DBackpropInput", "Conv3DBackpropInputV2")
NORMALISED = ("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
MATRICES = ("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")
"""Operations that have classes of their own here."""


def words_of(node: Node) -> dict[str, Any]:
    return dict(zip(node.attributes[::2], node.attributes[1::2], strict=True))


def known_format(words: dict[str, Any]) -> bool:
    """Returns whether it computes in a floating-point format that is known."""
    return words.get("T") in FORMATS


def channels_last(words: dict[str, Any]) -> bool:
    """Whether channels are last, so that samples and places are where they are looked for."""
    return words.get("data_format", b"NHWC") in (b"NHWC", b"NDHWC", "NHWC", "NDHWC")


TYPES = ("T", "Ta", "Tb", "Tout", "Tin", "U", "N", "Tidx", "f", "config", "config_proto")


def extra_of(node: Node) -> list[Any]:
    """Attributes that decide what is computed, besides types."""
    words = words_of(node)
    return [value for name, value in words.items() if name not in TYPES and value not in ([], b"")]


def plainly(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return "x".join(map(str, value)) if isinstance(value, list) else str(value)


def along_first(labels: tuple[str, str, str], follows: Sequence[bool]) -> bool:
    """Whether the first axis of what depends on the batch is the first one that comes out."""
    first = labels[2][:1]
    each = zip(labels[:2], follows, strict=True)
    return all(part[:1] == first if along else first not in part for part, along in each)


def called_name(node: Node) -> str:
    return str(words_of(node)["f"]) if node.op in CALLS else node.op


def attributes_of(node: Node) -> tuple[Any, ...]:
    if node.op not in CALLS:
        return tuple(node.attributes)
    pairs = context.context().function_call_options.as_attrs().items()
    return tuple(one for pair in pairs for one in pair)


def fits(labels: tuple[str, str, str], read: list[Any]) -> bool:
    """Returns whether each letter has one size, so that nothing is repeated."""
    sizes: dict[str, int] = {}
    for part, one in zip(labels, read, strict=False):
        for letter, size in zip(part, one.shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                return False
    return True


def digest_of(name: str) -> str:
    """Returns what a function does, without the names that TensorFlow gave."""
    made = hashlib.sha256()
    for node in context.context().get_function_def(name).node_def:
        kept = sorted((word, value) for word, value in node.attr.items() if word[0] != "_")
        made.update(f"{node.op} {len(node.input)}".encode())
        for word, value in kept:
            made.update(word.encode() + (b"" if value.func.name else value.SerializeToString()))
    return made.hexdigest()[:8]


AROUND = frozenset("Const ExpandDims Identity NoOp ReadVariableOp Squeeze".split())


def convolves(name: str) -> bool:
    """Whether a function is one convolution, and axes of one are all that it adds or removes."""
    nodes = context.context().get_function_def(name).node_def
    first = (0, -4, -5)  # the samples' axis is never one of these
    moved = any(axis in first for node in nodes for axis in node.attr["squeeze_dims"].list.i)
    kinds = [node.op for node in nodes if node.op not in AROUND]
    return len(kinds) == 1 and kinds[0] in CONVOLUTIONS and not moved


def size_of(one: Any) -> str:
    """Returns what of a parameter decides an operation: of whole numbers their values."""
    if one.dtype == tf.resource:
        held = one._handle_data.shape_and_type[0]
        return "x".join(str(axis.size) for axis in held.shape.dim)
    if one.dtype in FORMATS:
        return "x".join(map(str, one.shape))
    return " ".join(map(str, array(one).reshape(-1).tolist()))


def spread_parameter(one: Any, at: int, positive: bool) -> tuple[Any, Any]:
    """Spread numbers in place of weights, and the variable that holds them, if one does."""
    handle = one.dtype == tf.resource
    held = one._handle_data.shape_and_type[0] if handle else None
    dtype = one.dtype if held is None else tf.as_dtype(held.dtype)
    if dtype not in FORMATS:
        return one, None
    shape = tuple(one.shape) if held is None else tuple(axis.size for axis in held.shape.dim)
    values = spread(7 + at, "w", shape, 2)
    made = tensor(np.abs(values) if positive else values, dtype)
    variable = tf.Variable(made, trainable=False) if handle else None
    return (made if variable is None else variable.handle), variable
