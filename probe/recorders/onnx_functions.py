"""ONNX's functions and arithmetic, element by element: their words, numbers and zeros."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

from probe.recorders.node import Call
from probe.semantics import (
    Each,
    Meaning,
    Reshapes,
    Same,
    Step,
    Steps,
    Unknown,
    operations,
)

UNARY = """Abs Neg Sqrt Exp Log Erf Tanh Sigmoid Relu Softplus Reciprocal Floor Ceil Round Sin Cos
 Tan Asin Acos Atan Sinh Cosh Asinh Acosh Atanh Sign HardSwish Mish Softsign Not
 BitwiseNot""".split()
"""Operators of one input and no numbers."""

NUMBERED: dict[str, tuple[Callable[..., Meaning], dict[str, float]]] = {
    "LeakyRelu": (operations.leaky_relu, {"alpha": 0.01}),
    "Elu": (operations.elu, {"alpha": 1.0}),
    "Celu": (operations.celu, {"alpha": 1.0}),
    "HardSigmoid": (operations.hard_sigmoid, {"alpha": 0.2, "beta": 0.5}),
    "Selu": (operations.selu, dict(zip(("alpha", "gamma"), operations.SELU, strict=True))),
    "QuickGelu": (operations.swish, {"alpha": 1.702}),
    "Swish": (operations.swish, {"alpha": 1.0}),
    "ThresholdedRelu": (partial(operations.named, "thresholded_relu", "alpha"), {"alpha": 1.0}),
    "Shrink": (
        partial(operations.named, "shrink", "bias", "lambd"),
        {"bias": 0.0, "lambd": 0.5},
    ),
}
"""Functions of one input with attributes that are numbers: constructors, names and defaults."""

BROADCAST = {
    **dict.fromkeys(("Add", "Sum"), "add"),
    **{op: op.lower() for op in ("Mul", "Sub", "Div", "Pow", "PRelu", "Equal", "Less", "Greater")},
    **{op: op.lower() for op in ("And", "Or", "Xor")},
    "LessOrEqual": "less_equal",
    "GreaterOrEqual": "greater_equal",
    "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
    "BitShift": "shift",
    "Max": "maximum",
    "Min": "minimum",
    "Mean": "average",
}
"""Operators whose inputs broadcast, and what they are called."""


def function(op: str, words: dict[str, Any], reads: tuple[int, ...] | None = None) -> Each:
    """Returns what a function of one input means, or the activation that a fused operator names."""
    if op in NUMBERED:
        made, defaults = NUMBERED[op]
        each = made(*(float(words.get(name, value)) for name, value in defaults.items()))
    else:
        each = operations.function(snake(op))
    assert isinstance(each, Each)
    return each if reads is None else replace(each, reads=reads)


def snake(op: str) -> str:
    """Returns an operator's name as a word: ``leaky_relu``."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in op).removeprefix("_")


def _unary(call: Call) -> Meaning:
    return function(call.op, call.words)


def _broadcast(call: Call) -> Meaning:
    word = BROADCAST[call.op]
    if call.op in ("Max", "Min", "Sum", "Mean") and call.count != 2:
        return Same() if call.count == 1 else Each(f"{word}_of_{call.count}")
    return operations.function(word, **(call.words if call.op == "BitShift" else {}))


def _mod(call: Call) -> Meaning:
    return operations.function("truncate_mod" if call.words.get("fmod", 0) else "floor_mod")


def _clip(call: Call) -> Meaning:
    ends = [call.words.get("min"), call.words.get("max")]
    for n in (1, 2):
        if call.has(n):
            ends[n - 1] = float(call.value(n).reshape(-1)[0])
    return clip(*ends)


def clip(low: float | None, high: float | None) -> Each:
    """Returns what a Clip between two numbers means; None: no bound."""
    return operations.clip(low, high, (0,))


def _infinite(call: Call) -> Meaning:
    signs = {
        f"detect_{one}": call.words.get(f"detect_{one}", 1) for one in ("negative", "positive")
    }
    return operations.function("isinf", **{name: one for name, one in signs.items() if one != 1})


def _gelu(call: Call) -> Meaning:
    return operations.gelu(call.words.get("approximate", "none") == "tanh")


def _biased(approximate: bool) -> Callable[[Call], Meaning]:
    """Returns GELU of a sum with a bias, if there is one."""

    def row(call: Call) -> Meaning:
        each = operations.gelu(approximate)
        if not call.has(1):
            return each
        shape = call.gives[0]
        added = Step(operations.function("add"), (call.at(0), call.at(1)), shape)
        return Steps((added, Step(each, (call.count,), shape)))

    return row


NAMES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    16: "bfloat16",
}
"""Dtypes by their numbers in ONNX's format."""

WIDENS = {
    *(("float16", "float32"), ("float16", "float64"), ("float32", "float64")),
    *(("bfloat16", "float32"), ("bfloat16", "float64")),
}
"""Conversions that change no value: ONNX Runtime puts them around kernels that it hasn't."""


def _cast(call: Call) -> Meaning:
    before, to = call.dtype(0), call.words.get("to")
    after = NAMES.get(int(to or 0), str(to))
    if (before, after) in WIDENS:
        return Same()
    return operations.cast(before, after, bool(call.words.get("saturate", 1)), (0,))


def _cast_like(call: Call) -> Meaning:
    if call.dtype(0) == call.dtype(1):
        return Same()
    each = operations.cast(call.dtype(0), call.dtype(1), bool(call.words.get("saturate", 1)))
    return Steps((Step(each, (call.at(0),), call.gives[0]),))


def _same(call: Call) -> Meaning:
    if call.op == "Dropout" and (len(call.gives) > 1 or (call.has(2) and call.value(2).any())):
        return Unknown("a Dropout that drops is random")
    return Same()


def _quantised(call: Call) -> Meaning:
    """Returns a number a tensor, or a number a channel, that scales every element."""
    rank = call.rank(0)
    axis = int(call.words.get("axis", 1))
    if int(call.words.get("block_size", 0)):
        return Unknown("it scales by blocks")
    steps, places = [], []
    for n in (1, 2):
        if call.has(n):
            size = prod(call.shape(n))
            shape = tuple(size if a == axis % max(rank, 1) and size > 1 else 1 for a in range(rank))
            steps.append(Step(Reshapes(), (call.at(n),), shape))
            places.append(call.count + len(steps) - 1)
    each = Each(snake(call.op))
    return Steps((*steps, Step(each, (call.at(0), *places), call.gives[0])))


FUNCTIONS: dict[str, Callable[[Call], Meaning]] = {
    **dict.fromkeys([*UNARY, *NUMBERED], _unary),
    **dict.fromkeys(BROADCAST, _broadcast),
    **dict.fromkeys(("Identity", "Dropout"), _same),
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), _quantised),
    "Where": lambda call: operations.where(),
    "Clip": _clip,
    "Gelu": _gelu,
    "BiasGelu": _biased(False),
    "FastGelu": _biased(True),
    "IsNaN": lambda call: operations.function("isnan"),
    "Mod": _mod,
    "Cast": _cast,
    "IsInf": _infinite,
    "CastLike": _cast_like,
}
"""Rows of operators whose outputs read their own place."""
