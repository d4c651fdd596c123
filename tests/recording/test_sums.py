"""The sum that an operation of several steps is."""

from __future__ import annotations

import pytest

from probe.errors import InputError
from probe.recording.sums import sum_of
from probe.semantics import Step, Steps
from probe.semantics import operations as o


def test_a_bias_that_is_reshaped_first_is_the_sums_own() -> None:
    """Keras reshapes the bias of a depthwise convolution, TensorFlow's graphs squeeze it again."""
    windows = o.convolution(o.Frame((3,), (1,), (1,), ((1, 1),)), (0, 1, 2), 4, True)
    out = (2, 7, 4)
    squeezed = o.squeeze((1, 1, 4), (0, 1))
    steps = Steps(
        (
            Step(windows, (0, 1), out),
            Step(o.reshape(), (2,), (1, 1, 4)),
            Step(squeezed, (4,), (4,)),
            Step(o.function("add"), (3, 5), out),
            Step(o.function("relu6"), (6,), out),
        )
    )
    shapes = [(2, 7, 4), (3, 1, 4), (4,)]
    found = sum_of(steps, shapes, out, ["float32"] * 4)
    assert found.b is not None and found.b.number == 2
    assert [word for word, _ in found.functions] == ["relu6"]
    turned = Steps((steps.steps[0], Step(o.transpose((1, 0)), (2,), (4, 1)), *steps.steps[2:]))
    with pytest.raises(InputError):
        sum_of(turned, [*shapes[:2], (1, 4)], out, ["float32"] * 4)
