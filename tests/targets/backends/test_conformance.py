"""The check of backends: exact operands and outputs, and what is wrong is found and told where."""

from __future__ import annotations

import numpy as np
import pytest

from probe.case import floats
from probe.targets.backends import conformance

pytestmark = pytest.mark.long


def test_the_expected_outputs_are_those_of_a_convolution_written_down_by_hand():
    spec = conformance.spec("conv1d", [3], in_channels=2, padding="same", stride=[2], bias=True)
    x = np.array([1, 10, 2, 20, 3, 30, 4, 40]).reshape(1, 4, 2)
    w = np.array([1, 0, 0, 1, 2, 0]).reshape(3, 2, 1)
    # ceil(4 / 2) = 2 outputs, one zero is missing: it goes after the input.
    expected = [[1 + 20 + 2 * 3 + 5], [3 + 40 + 0 + 5]]
    assert conformance.exact_outputs(spec, x, w, np.array([5])).tolist() == [expected]


def test_a_wrong_backend_is_found_out_and_told_where():
    def off_by_one(spec, x, w, b):
        y = conformance.exact_outputs(spec, *conformance.integer_operands(spec, [9], 2)[:2], b)
        y[1, 2, 0] += 1
        return floats.round_to(y.astype(float), "float32")

    spec = conformance.spec("conv1d", [3])
    found = conformance.compare_spec(spec, [9], 2, off_by_one)
    assert found.verdict == "wrong" and "out[1, 2, 0]=" in found.detail
    short = conformance.compare_spec(spec, [9], 2, lambda *given: off_by_one(*given)[:, 1:])
    assert "float32[2, 6, 1], expected float32[2, 7, 1]" in short.detail
