"""What is asked of a worker is what must agree; operands are made once and shared."""

from __future__ import annotations

import math

import pytest

from probe.case.case import Case
from probe.order import window
from probe.sweep.bits import sweep_cases
from probe.sweep.plan import Plan, Plans
from probe.sweep.store import Store
from probe.targets.target import Target

CASES = [
    Case(op="conv1d", kernel=3, stride=2),
    Case(op="conv1d", kernel=3, dilation=4, padding="same"),
    Case(op="conv2d", kernel="2x3", stride=3, padding="same", height=5),
    Case(op="conv3d", kernel=2, padding="1:0", filters=2, batch=2),
    Case(op="depthwise_conv2d", kernel=3, in_channels=2, dilation=2),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_items_are_the_agreement(case):
    values = range(case.shortest_length + 3, case.shortest_length + 20, 3)
    plan = Plan(case, "length", values, values[-1] + 5)
    for value in values:
        sides = (window.Geometry.of(case, length) for length in (value, plan.against))
        expected = window.agreeing_blocks(*sides)
        _, blocks = plan.items[value]
        shape = case.output_shape(value)
        assert plan.shapes[value] == shape
        nothing = (slice(0, 0),) * len(shape)
        for pair, wanted in zip(blocks, expected or (nothing,), strict=True):
            for ranges in (pair[0] or [[0, size, 1] for size in shape], pair[1]):
                assert tuple(slice(*limits[:2]) for limits in ranges) == wanted
        compared = sum(map(window.block_size, expected))
        assert plan.not_compared[value] == math.prod(shape) - compared


def test_a_case_that_is_given_twice_is_one(tmp_path):
    twice = [CASES[0], CASES[0].with_(length=7), CASES[1], CASES[0]]
    assert Plans(twice, "length", [5], 9).cases == [CASES[0], CASES[1]]
    with Store(tmp_path) as store:
        found = sweep_cases(twice, [Target("reference")], [5, 9], store=store)
    assert found.targets["reference"].comparisons == 2
