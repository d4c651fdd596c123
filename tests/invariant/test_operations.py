"""What is done with an operation follows from what it computes: no list names operations."""

from __future__ import annotations

import math

import numpy as np
import pytest

from probe import floats
from probe import semantics as s
from probe.invariant.operations import (
    OperationKind,
    cancelling_products,
    operation_kind,
    samples_apart,
)
from probe.semantics import operations as o

KINDS = {
    "moves": (o.transpose((1, 0)), OperationKind.EXACT),
    "rounds once": (o.function("add"), OperationKind.EXACT),
    "rounds a product and a sum": (o.function("add", alpha=0.3), OperationKind.PLACE),
    "slope of its own": (o.leaky_relu(0.3), OperationKind.EXACT),
    "quotient and floor": (o.function("divide", rounding_mode="floor"), OperationKind.PLACE),
    "a difference and its square": (o.function("squared_difference"), OperationKind.EXACT),
    "chooses between zeros": (o.function("maximum"), OperationKind.EITHER),
    "the largest of an axis": (o.reduced("amax", (1,)), OperationKind.EITHER),
    "the library chooses how": (o.function("tanh"), OperationKind.PLACE),
    "not as IEEE 754 asks": (o.approximate("sqrt"), OperationKind.PLACE),
    "complex": (s.of_complex(o.function("multiply")), OperationKind.PLACE),
    "adds": (o.reduced("sum", (1,)), OperationKind.SOME),
    "unknown": (s.Unknown("not described"), OperationKind.SOME),
}


@pytest.mark.parametrize("name", KINDS)
def test_what_is_computed_says_what_is_done(name):
    meaning, kind = KINDS[name]
    assert operation_kind(meaning) is kind


APART = {
    "a sum of each": (o.reduced("sum", (1,)), (2,), True),
    "a sum of all": (o.reduced("sum", (0, 1)), (2,), False),
    "a sum of the batch": (o.reduced("sum", (0,), True), (2, 3), False),
    "a softmax of rows": (o.softmax((1,)), (2, 3), True),
    "a softmax of the batch": (o.softmax((0,)), (2, 3), False),
    "cumulated along rows": (o.cumulated("cumsum", 1), (2, 3), True),
    "cumulated along the batch": (o.cumulated("cumsum", 0), (2, 3), False),
    "unknown": (s.Unknown("not described"), (2, 3), False),
}


@pytest.mark.parametrize("name", APART)
def test_labels_say_whether_a_sample_reads_another(name):
    meaning, gives, wanted = APART[name]
    assert samples_apart(meaning, [(2, 3)], [gives], (True,)) is wanted


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
