"""What runs an operation alone: on copies at the recorded addresses, or at others; and as lines."""

from __future__ import annotations

import numpy as np
import pytest

from probe.case import layout
from probe.record.contract import AlignedCall, address_lines

X = np.arange(20, dtype=np.float32)


def begins(arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Where operands begin, and what they hold."""
    return [np.array(layout.bytes_behind_boundary(one)) for one in arrays] + list(arrays)


@pytest.mark.parametrize("at", [0, 4, 16, 60])
def test_operands_begin_where_they_did(at: int) -> None:
    laid = AlignedCall(begins, [at, None])
    first, _, *copies = laid([X, X[::2]])
    assert first == at and [one.tolist() for one in copies] == [X.tolist(), X[::2].tolist()]
    assert laid.moved([20, 8])([X, X])[:2] == [20, 8] and laid.addresses == [at, None]
    assert not any(np.shares_memory(one, X) for one in copies)


def test_lines_copy_what_numpy_lays_elsewhere_alone() -> None:
    lines = address_lines(["a", "b", "c"], [20, 16, None])  # NumPy's own are multiples of 16
    names = {"np": np, "a": X.copy(), "b": X, "c": X}
    exec("\n".join(lines), names)
    assert layout.bytes_behind_boundary(names["a"]) == 20 and names["a"].tolist() == X.tolist()
    assert names["b"] is X and names["c"] is X
