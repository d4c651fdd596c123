"""Windows of one axis, against loops that look where each one starts and what it reads."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from probe.case.geometry import CONVENTIONS, TransposedSizes, WindowSizes, around

AXES = {
    "kernel": st.integers(1, 5),
    "stride": st.integers(1, 4),
    "dilation": st.integers(1, 3),
    "size": st.integers(1, 17),
    "before": st.integers(0, 4),
    "after": st.integers(0, 4),
}


@settings(max_examples=200, deadline=None)
@given(**AXES, ceil=st.booleans())
def test_outputs_are_the_windows_that_fit(kernel, stride, dilation, size, before, after, ceil):
    """With ``ceil`` also one that reads what is left over and beyond, if it starts in the input."""
    windows = WindowSizes([kernel], [stride], [dilation], ((before, after),), ceil)
    extent = (kernel - 1) * dilation + 1
    starts = range(0, size + before + after, stride)
    padded = size + before + after
    fit = [at for at in starts if at + extent <= padded]
    # pooling rounds up from a window that does not fit either, and never reads padding alone
    assume(fit and (not ceil or after < extent))
    if ceil and fit[-1] + extent < padded:
        fit += [at for at in starts if fit[-1] < at < size + before][:1]
    span = windows.span(0, size)
    assert span.outputs == len(fit)
    assert span.beyond == max(fit[-1] + extent - padded, 0)
    taps = [[at - before + k * dilation for k in range(kernel)] for at in fit]
    assert windows.reads(0, size).tolist() == taps
    x = np.arange(padded + span.beyond)
    for (k,) in windows.places():
        seen = x[windows.seen((k,), [len(fit)])]
        assert seen.tolist() == [at + k * dilation for at in fit]


@settings(max_examples=200, deadline=None)
@given(**AXES, more=st.integers(0, 3))
def test_a_transposed_convolution_spreads_its_inputs(
    kernel, stride, dilation, size, before, after, more
):
    extent = (kernel - 1) * dilation + 1
    whole = (size - 1) * stride + extent + more
    after = after - more
    assume(whole - more - before - after > 0)
    windows = TransposedSizes([kernel], [stride], [dilation], ((before, after),))
    scattered = np.full((whole + after + 9, kernel), -1)
    for at, k in itertools.product(range(size), range(kernel)):
        scattered[at * stride + k * dilation, k] = at
    reads = windows.reads(0, size)
    assert len(reads) == windows.span(0, size).outputs == whole - more - before - after
    expected = scattered[before : before + len(reads)]
    assert (np.where((reads < 0) | (reads >= size), -1, reads)[: len(expected)] == expected).all()
    least = windows.shortest(0)
    assert windows.span(0, least).outputs > 0 and (
        least == 1 or windows.span(0, least - 1).outputs < 1
    )


@pytest.mark.parametrize("convention", ["same", "same_lower"])
def test_same_has_an_output_for_every_stride_and_its_odd_zero_on_its_side(convention):
    for size, extent, stride in itertools.product(range(1, 12), range(1, 7), range(1, 4)):
        before, after = around(convention, 0, size, extent, stride)
        outputs = -(-size // stride)
        assert (size + before + after - extent) // stride + 1 == outputs
        assert before + after == max((outputs - 1) * stride + extent - size, 0)
        odd = after - before if convention == "same" else before - after
        assert odd in (0, 1)


def test_caffes_padding_does_not_depend_on_the_size():
    found = {around("caffe", 0, size, 6, stride) for size in (3, 9) for stride in (1, 2)}
    assert found == {(2, 2)} and "caffe" in CONVENTIONS
    assert WindowSizes([3], [1], [1], "valid").span(0, None).outputs is None
