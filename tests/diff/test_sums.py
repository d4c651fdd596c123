"""The sum that an operation of several steps is."""

from __future__ import annotations

import pytest

from probe.case.errors import InputError
from probe.diff.sums import sum_of
from probe.order import semantics as s
from probe.order.semantics import Contracts, Reshapes, Step, Steps


def test_a_bias_that_is_reshaped_first_is_the_sums_own() -> None:
    """Keras reshapes the bias of a depthwise convolution, TensorFlow's graphs squeeze it again."""
    windows = s.convolution(s.Frame((3,), (1,), (1,), ((1, 1),)), (0, 1, 2), 4, True)
    out = (2, 7, 4)
    squeezed = Reshapes()
    steps = Steps(
        (
            Step(windows, (0, 1), out),
            Step(Reshapes(), (2,), (1, 1, 4)),
            Step(squeezed, (4,), (4,)),
            Step(s.function("add"), (3, 5), out),
            Step(s.function("relu6"), (6,), out),
        )
    )
    shapes = [(2, 7, 4), (3, 1, 4), (4,)]
    found = sum_of(steps, shapes, out, ["float32"] * 4)
    assert found.b is not None and found.b.number == 2
    assert found.functions == (("clip", (0.0, 6.0)),)
    turned = Steps((steps.steps[0], Step(s.transpose((1, 0)), (2,), (4, 1)), *steps.steps[2:]))
    with pytest.raises(InputError):
        sum_of(turned, [*shapes[:2], (1, 4)], out, ["float32"] * 4)


def test_a_number_that_is_added_behind_is_not_taken_for_an_operand() -> None:
    """`F.linear(x, w, b) + 1.5` ended in a mistake of probe's; a factor would have been lost."""
    shapes = [(4, 16), (16, 8), (8,)]
    product = Step(Contracts("...mk,...kn->...mn", (0, 1), 2), (0, 1, 2), (4, 8))
    for word in ("add", "multiply"):
        behind = Step(s.function(word, beside=1.5), (3,), (4, 8))
        with pytest.raises(InputError, match="computed after the sum"):
            sum_of(Steps((product, behind)), shapes, (4, 8), ["float32"] * 4)


def test_sums_of_other_formats_say_which_have_orders() -> None:
    """The reason of an unknown was "no array has this format", of arrays that had it."""
    product = Contracts("...mk,...kn->...mn", (0, 1))
    with pytest.raises(InputError, match="dtype=complex64: orders are revealed of sums of"):
        sum_of(product, [(4, 16), (16, 8)], (4, 8), ["complex64"] * 3)
