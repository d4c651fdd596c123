"""Comparisons of one call with itself and with shorter ones: places, digests, controls."""

from __future__ import annotations

import numpy as np
import pytest

from probe.case import layout
from probe.targets import child, compare


class Addressed:
    """An operator whose bits go with its input's address, or with how often it was called."""

    def __init__(self, period):
        self.period, self.calls = period, 0

    def input(self, x):
        return x

    def output(self, y):
        return y

    def __call__(self, x):
        self.calls += 1
        moved = x.ctypes.data % 64 != 0 if self.period is None else self.calls > self.period
        return x + np.float32(self.calls * moved if self.period else moved)


@pytest.mark.parametrize(
    ("operator", "found"),
    [
        (Addressed(None), "alignment differs"),
        *((Addressed(2), "differs"), (Addressed(1), "differs"), (Addressed(99), "equal")),
    ],
)
def test_a_control_tells_an_address_from_what_does_not_repeat(operator, found):
    x = layout.copied(np.ones((1, 4, 1), np.float32))
    prepared = child.Prepared(operator, x, operator)
    assert compare.repeat_control(prepared, prepared.run()[0], "float32") == found
