"""ONNX's functions and arithmetic, element by element: their words, numbers and zeros."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from probe.recorders.node import Call
from probe.recording.meaning import (
    Each,
    Meaning,
    Reshapes,
    Same,
    Step,
    Steps,
    Unknown,
)

UNARY = {
    "Abs": "abs",
    "Neg": "negative",
    "Sqrt": "sqrt",
    "Exp": "exp",
    "Log": "log",
    "Erf": "erf",
    "Tanh": "tanh",
    "Sigmoid": "sigmoid",
    "Relu": "relu",
    "Softplus": "softplus",
    "Reciprocal": "reciprocal",
    "Floor": "floor",
    "Ceil": "ceil",
    "Round": "round",
    "Sin": "sin",
    "Cos": "cos",
    "Tan": "tan",
    "Asin": "asin",
    "Acos": "acos",
    "Atan": "atan",
    "Sinh": "sinh",
    "Cosh": "cosh",
    "Asinh": "asinh",
    "Acosh": "acosh",
    "Atanh": "atanh",
    "Sign": "sign",
    "HardSwish": "hard_swish",
    "Mish": "mish",
    "Softsign": "softsign",
    "Not": "not",
    "IsNaN": "isnan",
    "BitwiseNot": "bitwise_not",
}
"""Operators of one input and no numbers, and their words."""

ODD = {"abs", "negative", "sqrt", "erf", "tanh", "relu", "floor", "ceil", "round", "sin", "tan"}
ODD |= {"asin", "atan", "sinh", "asinh", "atanh", "sign", "hard_swish", "softsign", "mish"}
"""Words of functions with f(0) = 0."""

NUMBERED: dict[str, dict[str, float]] = {
    "LeakyRelu": {"alpha": 0.01},
    "Elu": {"alpha": 1.0},
    "Celu": {"alpha": 1.0},
    "ThresholdedRelu": {"alpha": 1.0},
    "HardSigmoid": {"alpha": 0.2, "beta": 0.5},
    "Selu": {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875},
    "QuickGelu": {"alpha": 1.702},
    "Shrink": {"bias": 0.0, "lambd": 0.5},
}
"""Functions of one input with attributes that are numbers, and their defaults."""

BROADCAST = {
    "Add": ("add", "adds"),
    "Mul": ("multiply", "clears"),
    "Sub": ("subtract", ""),
    "Div": ("divide", ""),
    "Pow": ("power", ""),
    "Mod": ("mod", ""),
    "PRelu": ("prelu", ""),
    "Equal": ("equal", ""),
    "Less": ("less", ""),
    "Greater": ("greater", ""),
    "LessOrEqual": ("less_equal", ""),
    "GreaterOrEqual": ("greater_equal", ""),
    "And": ("and", ""),
    "Or": ("or", ""),
    "Xor": ("xor", ""),
    "Where": ("where", ""),
    "BitwiseAnd": ("bitwise_and", ""),
    "BitwiseOr": ("bitwise_or", ""),
    "BitShift": ("shift", ""),
    "BitwiseXor": ("bitwise_xor", ""),
    "Max": ("maximum", ""),
    "Min": ("minimum", ""),
    "Sum": ("add", "adds"),
    "Mean": ("average", ""),
}
"""Operators whose inputs broadcast: their words, and what zeros do."""


def function(op: str, words: dict[str, Any], reads: tuple[int, ...] | None = None) -> Each:
    """Returns what a function of one input means, or the activation that a fused operator names."""
    if op in NUMBERED:
        numbers = tuple((key, float(words.get(key, n))) for key, n in NUMBERED[op].items())
        stays = op not in ("HardSigmoid", "ThresholdedRelu", "Shrink")
        return Each(snake(op), "stays" * stays, numbers, reads)
    word = UNARY[op]
    return Each(word, "stays" * (word in ODD), (), reads)


def snake(op: str) -> str:
    """Returns an operator's name as a word: ``leaky_relu``."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in op).removeprefix("_")


def _unary(call: Call) -> Meaning:
    return function(call.op, call.words)


def _broadcast(call: Call) -> Meaning:
    word, zero = BROADCAST[call.op]
    if call.op in ("Max", "Min", "Sum", "Mean") and call.count != 2:
        return Same() if call.count == 1 else Each(f"{word}_of_{call.count}")
    numbers = tuple(sorted(call.words.items())) if call.op in ("Mod", "BitShift") else ()
    return Each(word, zero, numbers)


def _clip(call: Call) -> Meaning:
    ends = [call.words.get("min"), call.words.get("max")]
    for n in (1, 2):
        if call.has(n):
            ends[n - 1] = float(call.value(n).reshape(-1)[0])
    return clip(*ends)


def clip(low: float | None, high: float | None) -> Each:
    """Returns what a Clip between two numbers means; None: no bound."""
    if (low, high) == (0.0, None):
        return Each("relu", "stays", (), (0,))
    stays = (low is None or low <= 0) and (high is None or high >= 0)
    return Each("clip", "stays" * stays, (low, high), (0,))


def _infinite(call: Call) -> Meaning:
    signs = tuple(int(call.words.get(f"detect_{one}", 1)) for one in ("negative", "positive"))
    return Each("isinf", "stays", () if signs == (1, 1) else signs)


def _gelu(call: Call) -> Meaning:
    approximate = call.words.get("approximate", "none")
    return Each("gelu", "stays", ("tanh",) if approximate == "tanh" else ())


def _biased(word: str, numbers: tuple[Any, ...]) -> Callable[[Call], Meaning]:
    """Returns a function of a sum with a bias, if there is one."""

    def row(call: Call) -> Meaning:
        each = Each(word, "stays", numbers)
        if not call.has(1):
            return each
        shape = call.gives[0]
        added = Step(Each("add", "adds"), (call.at(0), call.at(1)), shape)
        return Steps((added, Step(each, (call.count,), shape)))

    return row


def _cast(call: Call) -> Meaning:
    to = call.words.get("to")
    widens = {(10, 1), (10, 11), (1, 11), (16, 1), (16, 11)}  # float16, bfloat16, float32, float64
    names = {"float16": 10, "bfloat16": 16, "float32": 1, "float64": 11}
    kind = names.get(call.dtype(0))
    if kind == to or (kind, to) in widens:
        return Same()
    return Each("cast", "stays", (to, call.words.get("saturate", 1)), (0,))


def _cast_like(call: Call) -> Meaning:
    if call.dtype(0) == call.dtype(1):
        return Same()
    each = Each("cast", "stays", (call.dtype(1), call.words.get("saturate", 1)))
    return Steps((Step(each, (call.at(0),), call.gives[0]),))


def _swish(call: Call) -> Meaning:
    return Each("silu", "stays", (float(call.words.get("alpha", 1.0)),))


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
    "Clip": _clip,
    "Gelu": _gelu,
    "BiasGelu": _biased("gelu", ()),
    "FastGelu": _biased("gelu", ("tanh",)),
    "Cast": _cast,
    "IsInf": _infinite,
    "CastLike": _cast_like,
    "Swish": _swish,
}
"""Rows of operators whose outputs read their own place."""
