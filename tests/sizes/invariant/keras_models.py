"""Keras models and comparisons that the tests of the invariant mode share."""

import numpy as np
import pytest

from probe.case import ulp

pytest.importorskip("tensorflow", reason="TensorFlow is not installed")
keras = pytest.importorskip("keras", reason="Keras is not installed")
if keras.backend.backend() != "tensorflow":
    pytest.skip("Keras computes with another library", allow_module_level=True)
import tensorflow as tf  # noqa: E402, F401

L = keras.layers


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def built(build, *shape, dtype="float32"):
    """A functional model with numbers in every weight."""
    given = keras.Input(shape, dtype=dtype)
    model = keras.Model(given, build(given))
    for at, weight in enumerate(model.weights):
        values = 0.3 * numbers(*weight.shape, seed=at)
        weight.assign(np.abs(values) + 1 if "variance" in weight.path else values)
    return model


def differing(a, b):
    a, b = np.asarray(a), np.asarray(b)
    return int(ulp.bits_apart(a, b, "float32", zeros="differ").sum())


def moved(model, x, counts):
    """How many numbers depend on the batch or the place."""
    whole = np.asarray(model(x))
    found = 0
    for count in counts:
        for start in {0, len(x) - count}:
            part = slice(start, start + count)
            found += differing(model(x[part]), whole[part])
    turned = np.random.default_rng(5).permutation(len(x))
    return found + differing(model(x[turned]), whole[turned])
