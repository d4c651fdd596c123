"""What an operation is follows from running it (NumPy's own are asked); telling products cancel."""

from __future__ import annotations

import math

import numpy as np
import pytest

from probe.case import floats
from probe.sizes.invariant.operations import (
    AskedCall,
    OperationKind,
    cancelling_products,
    operation_kind,
    samples_apart,
)


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


X = np.linspace(-3, 5, 24).reshape(2, 3, 4)
MASK = np.arange(24).reshape(2, 3, 4) % 3 == 0
EXACT, EITHER, PLACE, SOME = OperationKind


def asked(name, function, *operands, dtype="float32", gives=None, **words):
    """A call of a function of float64 values, in a format."""
    kinds = [dtype if a.dtype.kind == "f" else str(a.dtype) for a in operands]
    reads = [floats.to_container(floats.round_to(a, k), k) if "float" in k else a
             for a, k in zip(operands, kinds, strict=True)]  # fmt: skip

    def run(arrays):
        wide = [
            floats.widen(a, k) if "float" in k else a for a, k in zip(arrays, kinds, strict=True)
        ]
        results = function(*wide)
        results = results if isinstance(results, tuple) else (results,)
        return [
            floats.to_container(floats.round_to(y, dtype), dtype) if y.dtype.kind == "f" else y
            for y in map(np.asarray, results)
        ]

    kinds_of_results = [
        dtype if np.asarray(y).dtype.kind in "fu" else str(np.asarray(y).dtype) for y in run(reads)
    ]
    return AskedCall(name, run, reads, kinds, gives or kinds_of_results, **words)


KINDS = {
    "moves": (("", lambda x: x.transpose(2, 0, 1), X), EXACT),
    "pads": (("", lambda x: np.pad(x, 1), X), EXACT),
    "takes by an index": (("", lambda x, n: x[:, n], X, np.array([2, 0])), EXACT),
    "takes by a mask": (("", lambda x, m: np.where(m, x, 7.0), X, MASK), EXACT),
    "the largest of an axis": (("", lambda x: x.max(1), X), EITHER),
    "sorts": (("", lambda x: np.sort(x, 1), X), EITHER),
    "the largest and its place": (("", lambda x: (x.max(1), x.argmax(1)), X), EITHER),
    "a rectifier": (("", lambda x: np.maximum(x, 0.0), X), EITHER),
    "rounds once": (("AddV2", np.add, X, X), EXACT),
    "a bias": (("BiasAdd", np.add, X, X[0, 0]), EXACT),
    "a slope": (("LeakyRelu", lambda x: np.where(x > 0, x, 0.3 * x), X), EXACT),
    "chooses between zeros": (("Maximum", np.maximum, X, X), EITHER),
    "the library chooses how": (("tanh", np.tanh, X), PLACE),
    "without a name": (("", lambda x: 1.1 * x, X), PLACE),
    "two operands": (("", lambda x, y: np.hypot(x, y), X, X[:1, :, :1]), PLACE),
    "adds": (("", lambda x: x.sum(1), X), SOME),
    "cumulates": (("", lambda x: x.cumsum(1), X), SOME),
    "divides by a sum": (("", lambda x: x / np.abs(x).sum(), X), SOME),
    "counts": (("", lambda n: n + 1, np.arange(4)), EXACT),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_running_it_says_what_is_done(dtype):
    for name, (call, kind) in KINDS.items():
        assert operation_kind(asked(*call, dtype=dtype)) is kind, name


def test_numbers_and_the_library_take_away_what_a_name_says():
    assert operation_kind(asked("add", lambda x: x + 0.3 * x, X)) is EXACT
    further = asked("add", lambda x: x + 0.3 * x, X, options=frozenset(("alpha",)))
    assert operation_kind(further) is PLACE
    root = asked("sqrt", lambda x: np.sqrt(np.abs(x)), X, approximate=True)
    assert operation_kind(root) is PLACE


APART = {
    "a sum of each": (lambda x: x.sum((1, 2)), True),
    "a sum of all": (lambda x: x.sum() + np.zeros(2), False),
    "a softmax of rows": (lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True), True),
    "a softmax of the batch": (lambda x: np.exp(x) / np.exp(x).sum(0), False),
    "cumulated along rows": (lambda x: x.cumsum(1), True),
    "cumulated along the batch": (lambda x: x.cumsum(0), False),
    "samples change places": (lambda x: x[::-1], False),
    "a sample's sign turns the others": (lambda x: x * np.sign(x[:1, :1, :1]), False),
}


def test_exchanging_the_others_shows_whether_a_sample_reads_another():
    for name, (function, wanted) in APART.items():
        assert samples_apart(asked("", function, X), (True,)) is wanted, name
