"""Every row of NumPy's table: what it says of calls of NumPy is what they give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from probe.order.semantics import Unknown
from probe.record.ndarray import REDUCTIONS, TABLE, UFUNCS, ArrayRecorder
from tests.record.recorded import events, wrong

RNG = np.random.default_rng(31)
A, T, V = RNG.standard_normal((4, 6)), RNG.standard_normal((4, 5, 8)), RNG.standard_normal(6)
P = np.abs(A) + 0.5
WHOLE = (10 * P).astype(np.int64)
INTEGERS = """bitwise_and bitwise_or bitwise_xor bitwise_count invert gcd lcm left_shift right_shift
 ldexp""".split()
"""Functions of elements that take whole numbers, the second operand alone or both."""

Samples = list[tuple[Callable[..., Any], tuple[np.ndarray, ...]]]


def of_elements(name: str) -> Samples:
    function = getattr(np, name)
    if name == "isnat":
        return [(lambda x: np.isnat(x.astype("M8[s]")), (WHOLE,))]
    x = WHOLE if name in INTEGERS and name != "ldexp" else A if name == "sign" else P
    x = np.tanh(P / 4) if name in ("arccos", "arcsin", "arctanh") else x
    x = x + 1 if name == "arccosh" else x
    if function.nin == 1:
        return [(function, (x,))]
    y, line = np.abs(A[::-1]) + 0.1, V
    if name in INTEGERS:
        y, line = (WHOLE[::-1] % 5).copy(), WHOLE[0] % 4
    beside = [(lambda x: function(x, 2), (x,)), (lambda x: function(2, x), (y,))]
    return [(function, (x, y)), (function, (x, line)), *beside]


def written(x: Any) -> Any:
    found = np.copy(x)
    found[:, 1:3] = x[:, 3:5]
    return found


def by_name(names: str, *arrays: np.ndarray, **words: Any) -> dict[str, Samples]:
    return {
        name: [(lambda *x, name=name: getattr(np, name)(*x, **words), arrays)]
        for name in names.split()
    }


SAMPLES: dict[str, Samples] = {
    **{name: of_elements(name) for name in UFUNCS},
    **{name: [(lambda x, name=name, k=k: getattr(np, name)(x, 1, keepdims=k), (T,))
              for k in (False, True)] for name in (*REDUCTIONS, "max", "min", "amax", "amin")},
    "matmul": [(np.matmul, (T, T.transpose(0, 2, 1).copy())), (np.matmul, (A, V))],
    "dot": [(np.dot, (A, A.T.copy())), (lambda x: np.dot(x, V), (A,))],
    "einsum": [(lambda x, y: np.einsum("bij,bkj->bik", x, y), (T, T)),
               (lambda x: np.einsum("bij->bji", x), (T,))],
    "clip": [(lambda x: np.clip(x, -0.5, 0.7), (A,)), (lambda x: np.clip(x, 0, None), (A,))],
    "where": [(lambda x, y: np.where(x > 0, x, y), (A, P))],
    "reshape": [(lambda x: np.reshape(x, (4, 40)), (T,))],
    "squeeze": [(np.squeeze, (T[:, :1],))], "expand_dims": [(lambda x: np.expand_dims(x, 1), (A,))],
    "transpose": [(lambda x: np.transpose(x, (2, 0, 1)), (T,)), (np.transpose, (T,))],
    "swapaxes": [(lambda x: np.swapaxes(x, 1, 2), (T,))],
    "moveaxis": [(lambda x: np.moveaxis(x, -1, 0), (T,))],
    "rollaxis": [(lambda x: np.rollaxis(x, 2, 1), (T,))],
    **{name: [(lambda x, y, name=name: getattr(np, name)([x, y]), (A, P))]
       for name in "concatenate stack".split()},
    "split": [(lambda x: np.split(x, [1, 4], 1), (A,))],
    "take": [(lambda x: np.take(x, [2, -1, 2], 1), (A,)), (lambda x: np.take(x, [2, 0, 14]), (A,))],
    "broadcast_to": [(lambda x: np.broadcast_to(x, (2, 4, 6)), (A,))],
    "pad": [(lambda x, mode=mode: np.pad(x, ((0, 0), (1, 2)), mode), (A,))
            for mode in ("constant", "reflect", "edge", "wrap", "symmetric")],
    **by_name("copy ravel diagonal", A), **by_name("flip argmax", T, axis=1),
    "roll": [(lambda x: np.roll(x, 2, 1), (T,))],
    "repeat": [(lambda x: np.repeat(x, 2, 1), (A,))],
    "tile": [(lambda x: np.tile(x, (1, 2)), (A,))],
    "getitem": [(lambda x: x[:, 1:4], (T,)), (lambda x: x[..., None, 2], (T,)),
                (lambda x: x[:, [3, 0]], (T,)), (lambda x: x[:, ::-2], (T,))],
    "setitem": [(written, (A,))],
    "tril": [(lambda x: np.tril(x, 1), (T,))], "triu": [(lambda x: np.triu(x, -1), (T,))],
}  # fmt: skip


def test_every_row_says_what_numpy_gives() -> None:
    assert {*TABLE} <= {*SAMPLES}
    for name in SAMPLES:
        for function, arrays in SAMPLES[name]:
            every = events(ArrayRecorder(function, *arrays))
            met = [event for event in every if event[0].op == name]
            assert met, name
            for event in met:
                assert not isinstance(event[0].meaning, Unknown), event[0].meaning
                assert not wrong(event), name


@pytest.mark.parametrize(
    "function",
    [
        lambda x: np.pad(x, 1, "mean"),
        lambda x: np.pad(x, 1, mode="linear_ramp"),
        lambda x: np.median(x, 1),  # the mean of two of six
        lambda x: np.pad(x, 1, "reflect", reflect_type="odd"),
        lambda x: np.sum(x, 1, where=np.ones(6, bool)),
        lambda x: np.cumsum(x, 1),
    ],
)
def test_what_computes_otherwise_is_unknown(function: Callable[..., Any]) -> None:
    (event,) = events(ArrayRecorder(function, A))
    assert isinstance(event[0].meaning, Unknown)
