"""What NumPy's functions compute: a row takes a call, and its arguments as NumPy's function does.

Arrays among them are operands; a row's own signature is the schema, and what it doesn't take is
not described.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from probe.floats import FORMATS
from probe.semantics import Meaning, Same, Unknown, functions
from probe.semantics import operations as o
from probe.semantics.asked import moved
from probe.semantics.call import Call, NotSettled, Operand, named

Row = Callable[..., Meaning]

UFUNCS = {
    found.__name__: name
    for name in functions.FUNCTIONS
    for word in functions.spelled(name)
    if isinstance(found := getattr(np, word, None), np.ufunc)
}
"""NumPy's functions of elements, by their own names: all that ``semantics.functions`` has."""


def _function(c: Call, *args: Any, **_: Any) -> Meaning:
    """A function of elements, with the numbers that stand beside its arrays."""
    each = o.function(UFUNCS[c.op])
    numbers = [(n, one) for n, one in enumerate(args) if not isinstance(one, Operand)]
    if not numbers or any(isinstance(one, tuple | list) for _, one in numbers):
        return each
    ((place, number), *more) = numbers
    if len(args) == 2 and c.dtype() in FORMATS and each.word in functions.FUNCTIONS:
        return o.beside(each.word, place, number, c.dtype())
    either = functions.of(each.word).commutes  # a factor stands on either side
    given = tuple(repr(one) if either else (n, repr(one)) for n, one in [(place, number), *more])
    over = each.word == "divide" and place == 0  # 1 / 0 is no zero
    return replace(each, numbers=given, zero="" if over else each.zero)


def _axes(array: Operand, axis: Any) -> tuple[int, ...]:
    rank = len(array.shape)
    if axis is None:
        return tuple(range(rank))
    return tuple(k % rank for k in (axis if isinstance(axis, tuple | list) else (axis,)))


def _reduced(word: str) -> Row:
    def row(c: Call, a: Operand, axis: Any = None, keepdims: bool = False, **words: Any) -> Meaning:
        if set(words) - {"dtype", "ddof", "correction"}:
            return Unknown(f"{word} with {', '.join(words)}")
        if word in ("variance", "deviation"):
            correction = words.get("correction", words.get("ddof", 0))
            return o.variance(word, _axes(a, axis), keepdims, correction)
        numbers = tuple(f"{name}={value!r}" for name, value in words.items())
        return o.reduced(word, _axes(a, axis), keepdims, numbers)

    return row


def _matmul(c: Call, x1: Any, x2: Any, **_: Any) -> Meaning:
    return o.matmul((c.rank(0), c.rank(1)))


def _dot(c: Call, a: Any, b: Any) -> Meaning:
    if 0 in (ranks := (c.rank(0), c.rank(1))):
        return o.function("multiply")
    return o.matmul(ranks) if ranks[1] <= 2 else Unknown("dot of more than two axes")


def _einsum(c: Call, equation: str, *arrays: Any, **_: Any) -> Meaning:
    if "." in equation or "->" not in equation:
        return Unknown(f"einsum {equation}")
    return o.einsum(equation)


def _clip(c: Call, a: Any, a_min: Any = None, a_max: Any = None, **words: Any) -> Meaning:
    low, high = words.get("min", a_min), words.get("max", a_max)
    if any(isinstance(one, Operand) for one in (low, high)):
        return Unknown("clip with arrays as bounds")
    return o.clip(low, high)


def _cumsum(c: Call, a: Any, axis: Any = None) -> Meaning:
    return Unknown("cumsum of all axes") if axis is None else o.cumulated("cumsum", axis)


def _transpose(c: Call, a: Operand, axes: Any = None) -> Meaning:
    rank = len(a.shape)
    return o.transpose(axes if axes else range(rank)[::-1])


def _swapaxes(c: Call, a: Operand, axis1: int, axis2: int) -> Meaning:
    axes = list(range(len(a.shape)))
    axes[axis1], axes[axis2] = axes[axis2], axes[axis1]
    return o.transpose(axes)


def _moveaxis(c: Call, a: Operand, source: Any, destination: Any) -> Meaning:
    # of an array whose strides count axes NumPy itself says the order
    rank = len(a.shape)
    one = np.moveaxis(np.empty(range(2, rank + 2)), source, destination)
    return o.transpose([size - 2 for size in one.shape])


def _pad(c: Call, a: Operand, width: Any, mode: Any = "constant", **words: Any) -> Meaning:
    if mode != "constant":
        return moved(c)
    value = words.get("constant_values", 0)
    if not np.isscalar(value):
        return moved(c)
    widths = np.broadcast_to(np.asarray(width), (len(a.shape), 2)).tolist()
    return o.pad(widths, value, a.dtype)


def _joined(made: Callable[[int], Meaning]) -> Row:
    def row(c: Call, arrays: Any, axis: Any = 0) -> Meaning:
        return moved(c, *range(c.count)) if axis is None else made(axis)

    return row


def _split(c: Call, a: Operand, sections: Any, axis: int = 0) -> Meaning:
    return o.split(axis, c.gives)


def _take(c: Call, a: Operand, index: Any, axis: Any = None, mode: str = "raise") -> Meaning:
    if axis is None or mode != "raise" or isinstance(index, Operand):
        return moved(c)
    index = np.asarray(index)
    return o.take(axis, np.where(index < 0, index + a.shape[axis], index))


def _moved(c: Call, *_: Any, **__: Any) -> Meaning:
    return moved(c)


def _same_order(c: Call, *_: Any, **__: Any) -> Meaning:
    return o.reshape()


REDUCTIONS = named("sum mean var:variance std:deviation max amax:max min amin:min prod")

TABLE: dict[str, Row] = {
    **dict.fromkeys(UFUNCS, _function),
    **{name: _reduced(word) for name, word in REDUCTIONS.items()},
    "matmul": _matmul,
    "dot": _dot,
    "einsum": _einsum,
    "clip": _clip,
    "cumsum": _cumsum,
    "where": lambda c, *given: o.where() if len(given) == 3 else Unknown("where it is true"),
    "copy": lambda c, *_, **__: Same(),
    **dict.fromkeys(("reshape", "squeeze", "expand_dims", "ravel"), _same_order),
    "transpose": _transpose,
    "swapaxes": _swapaxes,
    "moveaxis": _moveaxis,
    "concatenate": _joined(o.concat),
    "stack": _joined(o.stack),
    "split": _split,
    "take": _take,
    "broadcast_to": lambda c, a, shape, **_: o.expand(a.shape, c.gives[0]),
    "pad": _pad,
    **dict.fromkeys(("flip", "roll", "repeat", "tile", "getitem", "tril", "triu"), _moved),
    "take_along_axis": _moved,
    "setitem": lambda c, *_: moved(c, 0, 1),
}
"""What NumPy's functions compute, by name; ``getitem`` and ``setitem`` are ``a[...]``."""


def meaning(c: Call, args: Sequence[Any], words: dict[str, Any]) -> Meaning:
    """Returns what a call computes; unknown where its row takes no such arguments."""
    row = TABLE.get(c.op)
    if row is None:
        return Unknown(f"{c.op} is not described in probe")
    try:
        return row(c, *args, **words)
    except NotSettled as error:
        return Unknown(str(error))
    except (TypeError, ValueError, IndexError) as error:
        return Unknown(f"it is called in a way that is not described in probe ({error})")
