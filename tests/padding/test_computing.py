"""Operations asked alone: whether they compute at a shorter size as in the full run."""

from dataclasses import replace

import numpy as np
import pytest

from probe.padding import computing
from probe.padding.search import PaddedModel
from probe.recorders.ndarray import operation
from probe.semantics import Each, Unknown
from tests.padding.graphs import BIAS, FIXED, ONE, TWO, WIDE, Opened, X, conv, graph

BIASED = replace(WIDE, reads=(0, 1, 2))


def biased(first):
    """A convolution with its bias added last, or first of all at some sizes."""

    def run(x, w, b):
        x, w = np.asarray(x), np.asarray(w)
        size, padded = x.shape[1], np.pad(x, ((0, 0), (1, 1), (0, 0)))
        y = np.zeros((*x.shape[:2], w.shape[2]), np.float32)
        y = y + b if first(size) else y
        for k in range(w.shape[0]):
            for c in range(w.shape[1]):
                y = y + padded[:, k : k + size, c : c + 1] * w[k, c]
        return y if first(size) else y + b

    return operation("biased", BIASED)(run)


@pytest.mark.parametrize("sizes", [(), (7, 8)])
def test_a_bias_that_is_added_elsewhere_at_a_size_is_seen_though_the_bits_agree(sizes):
    rounded, one = np.round(X * 2), biased(lambda size: size in sizes)
    model = PaddedModel(
        Opened(lambda x: one(x, np.rint(ONE), BIAS)), {"x": rounded}, {"x": 1}, FIXED
    )
    model.inputs = lambda content, size, seed=0: PaddedModel.inputs(model, content, size)
    found = model.sized(6)
    assert (found.least, found.safe) == ((7, 9) if sizes else (7, 7))
    assert found.at_safe.sets


@pytest.mark.parametrize("glances", [computing.GLANCES, 0])
def test_sizes_that_add_otherwise_are_refused_though_the_bits_agree(glances, monkeypatch):
    """By bits on other numbers, or by asking about every addition."""
    monkeypatch.setattr(computing, "GLANCES", glances)
    rounded = np.round(X * 2)  # sums of small whole numbers have the same bits in any order
    first, second = conv("first"), conv("second", lambda size: size in (9, 10))

    def model(x):
        return second(np.maximum(first(x, np.rint(ONE)), np.float32(0)), np.rint(TWO))

    one = PaddedModel(Opened(model), {"x": rounded}, {"x": 1}, FIXED)
    one.inputs = lambda content, size, seed=0: PaddedModel.inputs(
        one, content, size
    )  # no other numbers
    found = one.sized(6)
    assert (found.least, found.safe) == (9, 11)
    assert (found.at_least.name, found.at_least.by_order) == ("second", "differs")
    assert "added differently" in found.at_least.why


def vector_loop(x):
    """A function whose last odd elements come out of other code."""
    y = np.tanh(np.asarray(x, np.float32))
    flat = y.reshape(-1)
    odd = len(flat) % 4
    if odd:
        flat[-odd:] = np.nextafter(flat[-odd:], np.float32(2))
    return y


def test_functions_are_compared_place_by_place():
    function = operation("tanh", Each("tanh"))(vector_loop)
    one = graph(lambda x: function(x), {"x": X[..., :1]})
    found = one.sized(5)  # of 5 to 7 elements the last ones are a remainder, of which one is kept
    assert (found.least, found.safe) == (5, 8)
    assert found.at_least.by_order == "differs" and found.at_least.name == "tanh"
    assert found.at_safe.by_order == "unknown" and "place by place" in found.at_safe.why


def test_what_is_not_understood_is_compared_by_bits_and_in_the_way():
    riddle = operation("riddle", Unknown("nobody said"))(lambda x: np.asarray(x) * np.float32(0.3))
    found = graph(lambda x: riddle(x)).sized(5)
    assert (found.least, found.safe) == (FIXED, FIXED)
    rows = np.random.default_rng(3).standard_normal((8, 4)).astype(np.float32)
    halved = operation("halved", Each("halved"))(
        lambda x: np.nextafter(np.asarray(x), np.float32(9)) if len(x) == 3 else np.asarray(x)
    )
    found = graph(lambda x: halved(x), {"x": rows}, {"x": 0}, 8).sized(3)
    assert (found.least, found.safe, found.at_safe.name) == (3, 4, "halved")
