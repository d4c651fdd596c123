"""Every row of NumPy's table against NumPy: what is labelled alike is the same number, as of ONNX's
in test_table_onnx.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from probe.recorders.ndarray import Recorder
from probe.recorders.ndarray_table import REDUCTIONS, TABLE, UFUNCS
from tests.recording import spelled
from tests.recording.truth import changed, shares, told

RNG = np.random.default_rng(31)
A, T, V = RNG.standard_normal((4, 6)), RNG.standard_normal((4, 5, 8)), RNG.standard_normal(6)
P = np.abs(A) + 0.5


def written(x: Any) -> Any:
    found = np.copy(x)
    found[:, 1:3] = x[:, 3:5]
    return found


def functions_of(name: str) -> list[tuple[Callable[..., Any], tuple[np.ndarray, ...]]]:
    """Returns a function with operands that it is defined on, also of shapes that broadcast."""
    function = getattr(np, name)
    each = [one.reshape(-1)[:24].reshape(4, 6) for one in spelled.operands(UFUNCS[name])]
    each = [one.astype(float) if one.dtype == np.float32 else one for one in each]
    return [
        (function, tuple(each)),
        *([(function, (each[0], each[1][1]))] if len(each) > 1 else []),
    ]


SAMPLES: dict[str, list[tuple[Callable[..., Any], tuple[np.ndarray, ...]]]] = {
    **{name: functions_of(name) for name in UFUNCS},
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
                    other = changed(other, [0, 1, 2, 3])
                theirs.append(other)
            sides = told(Recorder(function, *arrays), Recorder(function, *theirs))
            met = [(share, known) for op, share, known in shares(sides) if op.op == name]
            assert met and all(known for _, known in met), [op.meaning for op, *_ in shares(sides)]
            assert max(share for share, _ in met) > 0


def test_every_row_of_the_table_is_reached() -> None:
    assert TABLE.keys() == SAMPLES.keys()
