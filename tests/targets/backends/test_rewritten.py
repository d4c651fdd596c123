"""Specs whose words stand for other steps: two calls, pieces, wider formats."""

from __future__ import annotations

import numpy as np
import pytest

from probe.case import ulp
from probe.case.case import Case
from probe.targets import backends
from probe.targets.backends import conformance, rewritten
from probe.targets.backends.contract import Unsupported
from probe.targets.backends.reference import Reference


def computed(spec, x, w, b=None):
    """The output of a spec on the reference, which adds one product after the other."""
    backend = Reference()
    backend.start({}, "cpu")
    operator = rewritten.spec_operator(backend, spec).at(x.shape)
    given = {"w": w} if b is None else {"w": w, "b": b}
    return np.asarray(operator.output(operator.bind(given)(operator.input(x))))


CASE = Case("conv2d", 3, 6, 4, length=11, height=5, stride=(1, 2), padding="1,2:0", bias="normal")


@pytest.mark.parametrize(
    "remedy",
    [
        {"kind": "chunks", "outputs": 2},
        {"kind": "chunks", "outputs": 3, "axis": 0},
        {"kind": "pad", "outputs": [4, 9]},
        {"kind": "chunks", "outputs": 1, "axis": "batch"},
    ],
)
def test_pieces_and_padding_leave_the_bits_of_an_order_that_no_size_changes(remedy):
    case = CASE.with_(batch=2)
    x, w, b = case.operands()
    found = computed({**case.spec(), "remedy": remedy}, x, w, b)
    assert ulp.equal(found, computed(case.spec(), x, w, b), "float32")


def test_float64_rounds_once_at_the_end():
    x, w, b = CASE.operands()
    wide = [one.astype(np.float64) for one in (x, w, b)]
    found = computed({**CASE.spec(), "remedy": {"kind": "float64"}}, x, w, b)
    once = computed(CASE.with_(dtype="float64").spec(), *wide).astype(np.float32)
    assert ulp.equal(found, once, "float32")
    assert not ulp.equal(found, computed(CASE.spec(), x, w, b), "float32")


def test_two_calls_are_added_with_the_bias_in_the_first():
    x, w, b = CASE.operands()
    first, rest = (CASE.with_(in_channels=n) for n in (2, 4))
    one = computed(first.spec(), x[..., :2].copy(), w[..., :2, :].copy(), b)
    two = computed({**rest.spec(), "bias": False}, x[..., 2:].copy(), w[..., 2:, :].copy(), None)
    found = computed({**CASE.spec(), "split": 2}, x, w, b)
    assert ulp.equal(found, one + two, "float32")


@pytest.mark.parametrize("words", [{"op": "max_pool1d"}, {"split": 1, "in_channels": 2}])
def test_a_stable_operator_of_a_pool_or_of_two_calls_is_refused(words):
    backend = backends.get("tensorflow")().described({}, "cpu", "")
    spec = {**conformance.spec("conv1d", [3]), **words, "remedy": {"kind": "stable"}}
    with pytest.raises(Unsupported, match="remedies are for single convolutions"):
        rewritten.spec_operator(backend, spec)
