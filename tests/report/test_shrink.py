"""Shrinking: the search knows no backend, keeps its budget, and ends where no step helps."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probe.case.case import Case
from probe.explain.runs import Finding
from probe.report.shrink import (
    _plain_values,
    complexity,
    number_steps,
    shape_steps,
    smaller,
    smallest_finding,
)


@given(st.integers(2, 10**6))
def test_numbers_below_come_from_both_ends(number):
    found = list(smaller(number))
    assert found[0] == 1 and number - 1 in found
    assert len(found) == len(set(found)) <= 2 * number.bit_length() + 2
    assert all(1 <= n < number for n in found)


def large() -> Finding:
    case = Case(op="conv1d", kernel=9, in_channels=256, filters=64, bias="normal", batch=2)
    return Finding.of(case, "length", 10, 600)


def kept(finding: Finding) -> bool:
    """A made-up kernel switch: three channels or more, from nine outputs on, short on the left."""
    case = finding.case
    outputs = [side.output_spatial()[-1] for side in (finding.left, finding.right)]
    differing = np.count_nonzero(finding.x) >= 2 and np.count_nonzero(finding.w) >= 2
    return case.in_channels >= 3 and outputs[0] < 9 <= outputs[1] and bool(differing)


@pytest.mark.parametrize("padding", ["0:2", "3:0", "2:5"])
def test_padding_on_one_side_is_shrunk_and_ends(padding):
    start = Finding.of(Case("conv1d", 3, length=4, padding=padding), "batch", 1, 9)
    least = {(before > 0, after > 0) for before, after in start.case.padding}

    def fails(one):
        pairs = [(0, 0)] if isinstance(one.case.padding, str) else one.case.padding
        return {(before > 0, after > 0) for before, after in pairs} == least

    found = smallest_finding(start, fails)
    assert found.ended == "minimal" and found.calls < 100
    assert found.finding.case.padding == tuple((int(a), int(b)) for a, b in least)


def test_a_large_finding_becomes_minimal_within_the_budget():
    calls = []

    def fails(one):
        calls.append(one.key)
        return kept(one)

    found = smallest_finding(large(), fails)
    assert found is not None and found.ended == "minimal" and found.shown
    assert found.calls == len(calls) <= 300
    smallest = found.finding
    assert smallest.label == "conv1d 1, 3 -> 1, length 1 against 9"
    assert np.count_nonzero(smallest.x) == np.count_nonzero(smallest.w) == 2
    assert set(np.unique(smallest.x)) <= {0.0, 1.0, -1.0}
    steps = shape_steps(lambda one: one) | number_steps(True)
    for step, candidates in steps.items():
        for one in candidates(smallest):
            assert one.key == smallest.key or not kept(one), (step, one.label)
    assert found.near is not None and not kept(found.near.value)


def test_what_does_not_fail_is_none_and_an_interrupt_gives_the_smallest_so_far():
    assert smallest_finding(large(), lambda one: False) is None
    calls = []

    def interrupted(one):
        calls.append(one)
        if len(calls) == 20:
            raise KeyboardInterrupt
        return kept(one)

    found = smallest_finding(large(), interrupted)
    assert found.ended == "interrupted" and found.finding.x.size < large().x.size
    spent = smallest_finding(large(), kept, most=5)
    assert spent.ended == "budget" and spent.calls == 5 and kept(spent.finding)


def test_operands_are_looked_for_where_the_shape_alone_fails():
    start = Finding.of(Case(op="conv1d", kernel=3, operands="ones"), "length", 5, 9)
    found = smallest_finding(
        start, lambda one: one.case.kernel[0] > 1, shows=lambda one: one.x.max() > 1
    )
    assert found.shown and found.finding.case.kernel == (2,) and found.finding.x.max() > 1
    hidden = smallest_finding(start, lambda one: one.case.kernel[0] > 1, shows=lambda one: False)
    assert not hidden.shown and hidden.finding.case.kernel == (2,)


CASES = [
    (Case(op="conv1d", kernel=3, length=9), "length", 5, 9),
    (Case(op="conv2d", kernel=3, in_channels=4, groups=2, filters=6, height=7), "length", 4, 8),
    (Case(op="depthwise_conv2d", kernel=3, in_channels=3, filters=6, bias=0.5), "length", 6, 5),
    (Case(op="conv1d", kernel=3, length=9, padding="same", stride=2), "batch", 1, 3),
    (Case(op="conv1d", kernel=3, length=9, weights=list(range(12)), filters=4), "filters", 2, 4),
    (Case(op="matmul", in_channels=8, filters=3, length=4), "channels", 3, 8),
    (Case(op="sum", in_channels=8), "length", 2, 6),
]


@pytest.mark.parametrize(("case", "vary", "at", "against"), CASES)
def test_a_finding_has_the_operands_of_its_case_and_every_candidate_fits(case, vary, at, against):
    finding = Finding.of(case, vary, at, against)
    for side in (finding.left, finding.right):
        x, w, b = finding.operands(side)
        assert x.shape == side.input_shape() and w.shape == side.weight_shape
        assert (b is None) == (side.bias is None)
    larger = finding.right if against > at else finding.left
    own = larger.with_(split=None) if vary == "channels" else larger
    if case.weights is None:
        expected = own.operands()[0]
        assert (finding.operands(larger)[0] == expected).all()
    steps = shape_steps(lambda one: one) | number_steps(case.weighted)
    for step, candidates in steps.items():
        for one in candidates(finding):
            for side in (one.left, one.right):
                x, w, _ = one.operands(side)
                assert x.shape == side.input_shape() and w.shape == side.weight_shape
            assert one.case.in_channels <= finding.case.in_channels
            assert one.x.size <= finding.x.size or step in ("groups", "features", "padding")


@settings(max_examples=60, deadline=None)
@given(st.floats(-1e6, 1e6, width=32))
def test_plainer_numbers_are_plainer(value):
    before = complexity(value, "float32")
    for plain in _plain_values(value, "float32") if value else []:
        assert complexity(plain, "float32") < before
        assert np.float32(plain) == plain
