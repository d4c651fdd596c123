"""What ATen's operations compute whose outputs read whole matrices, or pairs of rows."""

from __future__ import annotations

import numpy as np

from probe.recorders.torch_calls import Call
from probe.recorders.torch_rows import row
from probe.recording.meaning import (
    Each,
    Meaning,
    Moves,
    Reduces,
    Reshapes,
    Splits,
    Step,
    Steps,
    Whole,
)


@row("diagonal")
def _diagonal(call: Call) -> Meaning:
    offset, first, second = call["offset"], call["dim1"], call["dim2"]
    return Moves(lambda a: np.diagonal(a, offset, first, second))


@row("_cdist_forward")
def _distances(call: Call) -> Meaning:
    """A norm of the differences of every pair of rows, however it is computed."""
    one, two = call["x1"].shape, call["x2"].shape
    lead = np.broadcast_shapes(one[:-2], two[:-2])
    rows, others, size = one[-2], two[-2], one[-1]
    steps = (
        Step(Reshapes(), (0,), (*one[:-1], 1, size)),
        Step(Reshapes(), (1,), (*two[:-2], 1, others, size)),
        Step(Each("difference"), (2, 3), (*lead, rows, others, size)),
        Step(Reduces((-1,), "cdist", numbers=call.numbers()), (4,), call.shapes[0]),
    )
    return Steps(steps)


@row("bucketize")
def _bucket(call: Call) -> Meaning:
    axes = range(len(call["self"].shape))
    return Whole(tuple((a, a) for a in axes), "bucketize", call.numbers())


@row("glu")
def _gated(call: Call) -> Meaning:
    half = call.shapes[0]
    axis = call["dim"] % len(half)
    halves = Splits(axis, (half[axis], half[axis]))
    return Steps((Step(halves, (0,), half, (half,)), Step(Each("glu"), (1, 2), half)))


@row(
    *("linalg_inv_ex", "_linalg_det", "linalg_cholesky_ex", "_linalg_eigh", "_linalg_svd"),
    *("linalg_qr", "linalg_lu_factor_ex", "_linalg_slogdet", "linalg_eig", "cholesky"),
)
def _matrix(call: Call) -> Meaning:
    """Every output reads all of its own matrix."""
    lead = len(call["A"].shape if "A" in call.bound() else call["self"].shape) - 2
    return Whole(tuple((a, a) for a in range(lead)), call.name, call.numbers())
