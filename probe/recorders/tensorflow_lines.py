"""One call of an operation of TensorFlow: as its meaning is asked for, run alone, and written."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from probe.recorders.tensorflow_values import UNREAD, array, run, tensor_of


@dataclass(frozen=True)
class Call:
    """One call of an operation.

    ``attributes``: text, numbers, lists of them. ``inputs``: the shapes of all inputs;
    ``arguments``: the values of those that ``STRUCTURE`` names, by number. ``values``: gives the
    value of any other input in this run, None where it comes from floating-point numbers.
    """

    op: str
    attributes: Mapping[str, Any]
    inputs: Sequence[tuple[int, ...]]
    outputs: Sequence[tuple[int, ...]]
    arguments: Mapping[int, np.ndarray]
    values: Callable[[int], np.ndarray | None]

    def get(self, name: str, default: Any) -> Any:
        """Returns an attribute, or TensorFlow's default for it."""
        return self.attributes.get(name, default)


STRUCTURE: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("Mean", "Sum", "Max", "Min", "Prod", "All", "Any", "EuclideanNorm"), (1,)),
    **dict.fromkeys(
        ("Reshape", "Transpose", "ExpandDims", "Tile", "BroadcastTo", "ReverseV2"), (1,)
    ),
    **dict.fromkeys(("Pad", "MirrorPad", "Cumsum", "Cumprod", "ArgMax", "ArgMin", "TopKV2"), (1,)),
    **dict.fromkeys(("PadV2", "ResizeNearestNeighbor", "ResizeBilinear", "ResizeBicubic"), (1,)),
    **dict.fromkeys(("Slice", "SpaceToBatchND", "BatchToSpaceND", "SplitV"), (1, 2)),
    "GatherV2": (2,),
    **dict.fromkeys(("Conv2DBackpropInput", "Fill", "Split", "Conv3DBackpropInputV2"), (0,)),
    "StridedSlice": (1, 2, 3),
    "ConcatV2": (-1,),
    "OneHot": (1,),
    **dict.fromkeys(("Roll", "MatrixBandPart"), (1, 2)),
    **dict.fromkeys(("RFFT", "RFFT2D", "RFFT3D", "IRFFT", "IRFFT2D", "IRFFT3D"), (1,)),
    **dict.fromkeys(("ConjugateTranspose", "ResizeArea", "CumulativeLogsumexp"), (1,)),
    **dict.fromkeys(("ScatterNd", "MatrixSetDiagV3"), (2,)),
    "MatrixDiagV3": (1, 2, 3, 4),
    "MatrixDiagPartV3": (1, 2),
    "CropAndResize": (3,),
}
"""Inputs that say how an operation works, not on what: shapes, axes, paddings. By number."""


def axes_of(call: Call) -> tuple[int, ...]:
    """Returns the axes that the second input names, counted from the front."""
    rank = len(call.inputs[0])
    return tuple(sorted({int(n) % max(rank, 1) for n in call.arguments[1].reshape(-1)}))


SMALL_ARGUMENT = 64
"""Elements of an argument that lines and attributes spell out."""


def plain(value: Any) -> Any:
    """Returns an attribute as JSON has it."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, tf.DType):
        return value.name
    if isinstance(value, tf.TensorShape):
        return value.as_list() if value.rank is not None else None
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def shown(call: Call) -> dict[str, Any]:
    """Attributes as an event has them: none that the arrays' types say, and small arguments."""
    types = _types(call.op)
    shown = {name: value for name, value in call.attributes.items() if name not in types}
    names, small = _slots(call) or [], {}
    for n, one in call.arguments.items():
        if one.size <= SMALL_ARGUMENT and n < len(names):
            small[names[n]] = one.tolist()
    return shown | small


@cache
def kinds(op: str) -> dict[str, str]:
    """Returns the kind of each attribute of an operation."""
    made = op_def_registry.get(op)
    return {one.name: one.type for one in made.attr} if made is not None else {}


@cache
def _types(op: str) -> set[str]:
    """Returns the attributes that follow from the inputs' types and numbers."""
    made = op_def_registry.get(op)
    if made is None:
        return set()
    every = ((a.type_attr, a.number_attr, a.type_list_attr) for a in made.input_arg)
    return {name for names in every for name in names if name}


def _slots(call: Call) -> list[str] | None:
    """Returns the name of the argument to which each input belongs; a list's inputs share one."""
    names: list[str] = []
    for name, number, types in _arguments(call.op):
        count = 1
        if number:
            count = int(call.attributes.get(number, 1))
        elif types:
            count = len(call.attributes.get(types, ()))
        names += [name] * count
    return names if names and len(names) == len(call.inputs) else None


@cache
def _arguments(op: str) -> list[tuple[str, str, str]]:
    """(name, attribute that counts it, attribute with its types) of each argument."""
    made = op_def_registry.get(op)
    every = made.input_arg if made is not None else ()
    return [(one.name, one.number_attr, one.type_list_attr) for one in every]


def alone(
    op: str,
    inputs: list[Any],
    attributes: tuple[Any, ...],
    count: int,
    read: list[int],
    given: list[int],
) -> Callable[[Sequence[np.ndarray]], list[np.ndarray]] | None:
    if any(one.dtype.name in UNREAD for n, one in enumerate(inputs) if n not in read):
        return None
    kinds = [inputs[n].dtype for n in read]
    if tf.resource in kinds:
        return None
    rest = [None if n in read else one for n, one in enumerate(inputs)]  # keeps no operand alive

    def again(arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
        fed = list(rest)
        for n, bits, kind in zip(read, arrays, kinds, strict=True):
            fed[n] = tensor_of(bits, kind)
        found = run(op, fed, attributes, count)
        return [np.array(array(found[n])) for n in given]

    return again


def written(
    call: Call, read: list[int], given: list[int], count: int
) -> Callable[[Sequence[str], str], list[str]] | None:
    """Returns lines of ``tf.raw_ops`` for an operation; None for one that Grappler has fused."""
    function = getattr(tf.raw_ops, call.op, None)
    if function is None or any(one.size > SMALL_ARGUMENT for one in call.arguments.values()):
        return None
    slots, lists, types = _slots(call), _list_slots(call.op), _types(call.op)
    if slots is None:
        return None
    parameters = _parameters(function)
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
            f"{renamed.get(slot, slot)}=" + (f"[{', '.join(every)}]" if slot in lists else every[0])
            for slot, every in words.items()
        ]
        texts += [f"{name}={value!r}" for name, value in shown.items() if name in parameters]
        only = f"[{given[0]}]" if count > 1 and len(given) == 1 else ""
        return [f"{result} = tf.raw_ops.{call.op}({', '.join(texts)}){only}"]

    return lines


@cache
def _parameters(function: Any) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "name"]


@cache
def _list_slots(op: str) -> set[str]:
    made = op_def_registry.get(op)
    return {a.name for a in made.input_arg if a.number_attr or a.type_list_attr} if made else set()
