"""Comparisons of one call with itself and with shorter ones: places, digests, controls."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from probe.case import layout
from probe.targets.backends import contract
from probe.targets.worker import child, compare


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


class Lucky(Addressed):
    """It goes by the address a few times by luck, and does not repeat."""

    def __call__(self, x):
        self.calls += 1
        return x + np.float32(x.ctypes.data % 64 != 0 if self.calls < 20 else self.calls)


@pytest.mark.parametrize(
    ("operator", "found"),
    [
        (Addressed(None), "alignment differs"),
        *((Addressed(2), "differs"), (Addressed(1), "differs"), (Addressed(99), "equal")),
        (Lucky(None), "differs"),
    ],
)
def test_a_control_tells_an_address_from_what_does_not_repeat(operator, found):
    x = layout.copied(np.ones((1, 4, 1), np.float32))
    prepared = child.Prepared(operator, x, operator)
    assert compare.repeat_control(prepared, prepared.run()[0], "float32") == found


class Shifting(contract.Operator):
    """An operator whose outputs depend on the length: every third of a shorter one is larger."""

    whole = 20

    def input(self, x):
        return x

    weights = bias = output = input

    def call(self, x, w, b):
        y = x.copy()
        if x.shape[-2] < self.whole:
            flat = y.reshape(-1)
            flat[2::3] = np.nextafter(flat[2::3], np.float32(9))
        return y


def shifting(batch: int) -> child.CaseCall:
    x = np.linspace(1, 2, batch * 20 * 2, dtype=np.float32).reshape(batch, 20, 2)
    return child.CaseCall(Shifting, {"dtype": "float32"}, x, np.ones((1, 2, 2), np.float32), None)


def compared(made: child.CaseCall, *items, **more):
    """The one answer of a sweep against length 20."""
    request = {"vary": "length", "against": 20, "items": items, **more}
    (answer,) = compare.compare_items(made, request, child.describe)
    return answer


@pytest.mark.parametrize("batch", [1, 2])
def test_places_digests_and_ulps_of_differences(batch):
    made, part = shifting(batch), [[0, batch, 1], [1, 9, 1], [0, 2, 1]]
    header, found = compared(made, [10, [[part, part]]])
    index = [i for i in range(2, batch * 20, 3) if 1 <= i // 2 % 10 < 9]
    assert found["index"].tolist() == index and found["first"].tolist() == index[:1]
    assert set(found["ulps"].tolist()) == {-1} and found["max_ulp"].tolist() == [1]
    place = np.unravel_index(index, (batch, 10, 2))
    assert found["index_against"].tolist() == np.ravel_multi_index(place, (batch, 20, 2)).tolist()
    values = found["bits_against"].view(np.float32)
    assert (values == made.x[place]).all()
    against = hashlib.sha256(made.x[:, 1:9].tobytes()).hexdigest()[:32]
    assert list(header["digest_against"]) == [against] != list(header["digest_at"])


def test_several_blocks_are_one_comparison():
    made = shifting(1)
    parts = [[[0, 1, 1], [6, 9, 1], [0, 2, 1]], [[0, 1, 1], [0, 2, 1], [0, 2, 1]]]
    _, found = compared(made, [10, [[part, part] for part in parts]])
    assert found["compared"].tolist() == [10]
    assert found["index"].tolist() == [2, 14, 17] and found["first"].tolist() == [2]


def test_nothing_in_common_is_a_comparison_of_nothing():
    none = [[0, 0, 1]] * 3
    _, found = compared(shifting(1), [10, [[none, none]]])
    assert found["compared"].tolist() == [0] and found["first"].tolist() == [-1]


def test_controls_only_where_it_differs():
    items = [[n, [[None, [[0, 1, 1], [0, n, 1], [0, 2, 1]]]]] for n in (10, 20)]
    header, _ = compared(shifting(1), *items, control="differing")
    assert list(header["control"]) == ["equal", None]
