"""Every row of NumPy's table against NumPy: what is labelled alike is the same number, as of ONNX's
in test_onnx_table.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from probe.recorders.ndarray import REDUCTIONS, TABLE, UFUNCS, ArrayRecorder
from tests.recorders.truth import agreed, shares, told

RNG = np.random.default_rng(31)
A, T, V = RNG.standard_normal((4, 6)), RNG.standard_normal((4, 5, 8)), RNG.standard_normal(6)
P = np.abs(A) + 0.5
SQUARES = np.stack([np.tanh(A[k, :3, None] * A[k, 3:]) + 2 * np.eye(3) for k in range(4)])
WHOLE = (10 * P).astype(np.int64)
INTEGERS = """bitwise_and bitwise_or bitwise_xor bitwise_count invert gcd lcm left_shift right_shift
 ldexp""".split()
"""Functions of elements that take whole numbers, the second operand alone or both."""


def of_elements(name: str) -> list[tuple[Callable[..., Any], tuple[np.ndarray, ...]]]:
    function = getattr(np, name)
    if name == "isnat":
        return [(lambda x: np.isnat(x.astype("M8[s]")), (WHOLE,))]
    one = WHOLE if name in INTEGERS and name != "ldexp" else A if name == "sign" else P
    one = np.tanh(P / 4) if name in ("arccos", "arcsin", "arctanh") else one
    one = one + 1 if name == "arccosh" else one
    if function.nin == 1:
        return [(function, (one,))]
    two, line = np.abs(A[::-1]) + 0.1, V
    if name in INTEGERS:
        two, line = (WHOLE[::-1] % 5).copy(), WHOLE[0] % 4
    return [(function, (one, two)), (function, (one, line))]


def written(x: Any) -> Any:
    found = np.copy(x)
    found[:, 1:3] = x[:, 3:5]
    return found


SAMPLES: dict[str, list[tuple[Callable[..., Any], tuple[np.ndarray, ...]]]] = {
    **{name: of_elements(name) for name in UFUNCS},
    **{name: [(lambda x, name=name, k=k: getattr(np, name)(x, 1, keepdims=k), (T,))
              for k in (False, True)] for name in REDUCTIONS},
    "matmul": [(np.matmul, (T, T.transpose(0, 2, 1).copy())), (np.matmul, (A, V))],
    "dot": [(np.dot, (A, A.T.copy())), (lambda x: np.dot(x, V), (A,))],
    "einsum": [(lambda x, y: np.einsum("bij,bkj->bik", x, y), (T, T)),
               (lambda x: np.einsum("bij->bji", x), (T,))],
    "clip": [(lambda x: np.clip(x, -0.5, 0.7), (A,))],
    "cumsum": [(lambda x: np.cumsum(x, 1), (T,))],
    "where": [(lambda x, y: np.where(x > 0, x, y), (A, P))],
    "copy": [(np.copy, (A,))],
    "reshape": [(lambda x: np.reshape(x, (4, 40)), (T,))],
    "squeeze": [(np.squeeze, (T[:, :1],))], "expand_dims": [(lambda x: np.expand_dims(x, 1), (A,))],
    "ravel": [(np.ravel, (A,))], "transpose": [(lambda x: np.transpose(x, (0, 2, 1)), (T,))],
    "swapaxes": [(lambda x: np.swapaxes(x, 1, 2), (T,))],
    "moveaxis": [(lambda x: np.moveaxis(x, -1, 1), (T,))],
    "concatenate": [(lambda x, y: np.concatenate([x, y], 1), (A, P)),
                    (lambda x, y: np.concatenate([x, y], None), (A, P))],
    "stack": [(lambda x, y: np.stack([x, y], 1), (A, P))],
    "split": [(lambda x: np.split(x, 3, 1), (A,)), (lambda x: np.split(x, [1, 4], 1), (A,))],
    "take": [(lambda x: np.take(x, [2, -1, 2], 1), (A,)), (lambda x: np.take(x, [2, 0, 14]), (A,))],
    "broadcast_to": [(lambda x: np.broadcast_to(x, (2, 4, 6)), (A,))],
    "pad": [(lambda x: np.pad(x, ((0, 0), (1, 2))), (A,)),
            (lambda x: np.pad(x, ((0, 0), (1, 2)), constant_values=1.5), (A,)),
            (lambda x: np.pad(x, ((0, 0), (1, 2)), mode="reflect"), (A,))],
    "flip": [(lambda x: np.flip(x, 1), (T,))], "roll": [(lambda x: np.roll(x, 2, 1), (T,))],
    "repeat": [(lambda x: np.repeat(x, 2, 1), (A,))],
    "tile": [(lambda x: np.tile(x, (1, 2)), (A,))],
    "getitem": [(lambda x: x[:, 1:4], (T,)), (lambda x: x[..., None, 2], (T,)),
                (lambda x: x[:, [3, 0]], (T,)), (lambda x: x[:, ::-2], (T,))],
    "setitem": [(written, (A,))],
    "tril": [(lambda x: np.tril(x, 1), (T,))], "triu": [(lambda x: np.triu(x, -1), (T,))],
    "cumprod": [(lambda x: np.cumprod(x, 1), (T,))],
    "sort": [(lambda x: np.sort(x, 1), (T,)), (np.sort, (T,))],
    "argsort": [(lambda x: np.argsort(x, 1), (T,))],
    **{name: [(getattr(np.linalg, name), (SQUARES,))] for name in ("inv", "det")},
    "cholesky": [(lambda x: np.linalg.cholesky(x @ np.swapaxes(x, 1, 2)), (SQUARES,))],
    "rollaxis": [(lambda x: np.rollaxis(x, 2, 1), (T,))],
    **{name: [(lambda x, y, name=name: getattr(np, name)([x, y]), (A, P))]
       for name in ("hstack", "vstack", "dstack")},
    "append": [(lambda x, y: np.append(x, y, 1), (A, P))],
    **{name: [(lambda x, name=name: getattr(np, name)(x), (A,))] for name in ("fliplr", "flipud")},
    "rot90": [(lambda x: np.rot90(x, 1, (1, 2)), (T,))],
    "diagonal": [(lambda x: np.diagonal(x, 1, 1, 2), (T,))], "diag": [(np.diag, (V,))],
    "delete": [(lambda x: np.delete(x, [0, 2], 1), (T,))],
    "take_along_axis": [(lambda x: np.take_along_axis(x, np.tile([[2, 0]], (4, 1)), 1), (A,))],
}  # fmt: skip
"""Functions and their operands, with the rows of the batch first."""


@pytest.mark.parametrize("name", SAMPLES)
def test_what_is_labelled_alike_is_the_same_number(name: str) -> None:
    for function, arrays in SAMPLES[name]:
        for rows in ([2, 0, 3, 1], [0, 1, 2, 3]):
            theirs = []
            for array in arrays:
                batch = len(array) == 4
                other = array[rows].copy() if batch else array.copy()
                if batch:
                    other.reshape(-1)[other[0].size // 2] += 0.25
                theirs.append(other)
            sides = told(ArrayRecorder(function, *arrays), ArrayRecorder(function, *theirs))
            met = [(share, known) for op, share, known in shares(sides) if op.op == name]
            assert met and all(known for _, known in met), [op.meaning for op, *_ in shares(sides)]
            assert max(share for share, _ in met) > 0


def test_every_row_of_the_table_is_reached() -> None:
    assert TABLE.keys() == SAMPLES.keys()


def test_an_array_with_another_name_gives_other_numbers() -> None:
    """Bounds that are arrays are no row's: what isn't described is known by its arguments."""
    sides = (lambda x, y: np.clip(x, min=y), lambda x, y: np.clip(x, max=y))
    assert agreed(told(*(ArrayRecorder(one, A, V) for one in sides))) == 0
