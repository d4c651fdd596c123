"""Telling operands: products that cancel, and biases that do not hide what they leave."""

from __future__ import annotations

import math

import numpy as np
import pytest

from probe.case import floats
from probe.sizes.invariant.operations import cancelling_products


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("leaves", [2, 3, 8, 33])
def test_telling_products_cancel(dtype, leaves):
    x, w, _ = cancelling_products(3, leaves, 7, dtype)
    assert (floats.nearest(w, dtype) == w).all() and w.any()
    assert all(math.fsum(each) == 0 for each in (x[:, None] * w).T)
    x, w, b = cancelling_products(3, leaves, 7, dtype, of_bias=True)
    left = np.abs(
        [math.fsum([*each, last]) for each, last in zip((x[:, None] * w).T, b, strict=True)]
    )
    assert (left <= floats.eps(dtype) * np.abs(b)).all() and left.any()
