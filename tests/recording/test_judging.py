"""Whether operations of two runs compute alike: by order, by place, by bits, and of whole runs."""

from __future__ import annotations

import numpy as np
import pytest

import probe
from probe import layout
from probe.recorders.ndarray import operation
from probe.recording import judging
from probe.recording.difference import compare_runs
from probe.recording.recording import record_run
from probe.semantics import Contracts, Each
from tests.recording.doubles import Doubles, Step


def test_a_call_at_another_address_is_not_the_very_same_call() -> None:
    x = np.random.default_rng(0).standard_normal((3, 40)).astype(np.float32)
    step = Step("double", Each("f"), np.tanh, ["x"])
    sides = [record_run(Doubles({"x": layout.copied(x, at)}, [step])) for at in (0, 16, 4)]
    for other, same in ((1, True), (2, False)):
        (one,) = compare_runs(sides[0], sides[other]).operations
        assert judging.one_call(one, sides[0], sides[other]) == same


W = np.random.default_rng(4).standard_normal((24, 6)).astype(np.float32)


def added(x, w):
    """A product with its sums in sequence; in batches of three from the other end."""
    x, w = np.asarray(x), np.asarray(w)
    order = range(w.shape[0])[::-1] if len(x) == 3 else range(w.shape[0])
    y = np.zeros((len(x), w.shape[1]), np.float32)
    for k in order:
        y = y + x[:, k : k + 1] * w[k]
    return y


@pytest.mark.parametrize("last", ["relu", "riddle"])
def test_sizes_are_judged_by_order_and_what_is_in_the_way_is_named(last):
    x = np.random.default_rng(5).integers(-3, 3, (8, 24)).astype(np.float32)  # bits can't tell
    product = operation("product", Contracts("mk,kn->mn"))(added)
    behind = operation(last, Each(last))(lambda y: np.maximum(np.asarray(y), np.float32(0)))
    words = {"vary": "batch", "at": 1, "against": 8, "inputs": {"x": x}, "by": "order"}
    found = probe.network(lambda x: behind(product(x, np.rint(W))), sizes=[2, 3], **words)
    two, three = found.to_json()["sizes"]
    assert two["verdict"] == three["verdict"] == "equal"
    assert (three["by_order"], three["in_the_way"]) == ("differs", "product")
    if last == "riddle":
        assert (two["by_order"], two["in_the_way"]) == ("unknown", "riddle")
    else:
        assert two["by_order"] == "same" and two["sets"] > 10
    assert "3 (product" in found.same_bits()
