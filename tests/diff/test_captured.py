"""Arrays that a function holds are found and replaced, and nothing of the function is changed."""

from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from probe.diff.functions import Captured, captured_array

X = np.arange(6, dtype="f4").reshape(2, 3)
Both = namedtuple("Both", "first second")


def named() -> np.ndarray:
    return X + (lambda: X)()


class Model:
    def __init__(self) -> None:
        self.weight = X.copy()

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return x + self.weight


def inside() -> dict[str, Any]:
    y, batch, model = X + 1, {"ids": [X + 2], "more": Both(X + 3, 1)}, Model()

    def helper(z: np.ndarray, *, scale: np.ndarray = X + 4) -> np.ndarray:
        return z + batch["ids"][0] + batch["more"].first + scale

    def again(n: int, z: np.ndarray = X + 5) -> np.ndarray:
        return z if not n else again(n - 1) + y

    return {
        "cells": lambda: y * 1,
        "globals": named,
        "functions, dictionaries, lists, tuples": lambda: helper(y),
        "arguments": partial(helper, y, scale=X + 6),
        "defaults": again,
        "methods": partial(helper, y).__call__,
        "objects": lambda: model(y),
    }


CALLED = {"defaults": (2,)}
COUNTS = {"globals": 1, "functions, dictionaries, lists, tuples": 4, "arguments": 5, "defaults": 2}
COUNTS["objects"] = 2


@pytest.mark.parametrize("name", [name for name in inside() if name != "methods"])
def test_what_a_function_holds_is_replaced_in_another_one(name: str) -> None:
    function, more = inside()[name], CALLED.get(name, ())
    before = function(*more)
    captured = Captured(function)
    assert len(captured.arrays) == COUNTS.get(name, 1)
    same = captured.replaced({key: array.bits for key, array in captured.arrays.items()})
    assert same is not function and np.array_equal(same(*more), before)
    other = captured.replaced({key: array.bits * 0 for key, array in captured.arrays.items()})
    assert np.array_equal(other(*more), X * 0)
    assert np.array_equal(function(*more), before)


def test_a_function_that_holds_no_array_stays() -> None:
    thing = {"list": [1, "a"]}
    function = lambda: thing  # noqa: E731
    captured = Captured(function)
    assert not captured.arrays and captured.replaced({}) is function


@dataclass(frozen=True)
class Settings:
    array: np.ndarray
    more: OrderedDict[str, Any]


def test_objects_of_users_and_dictionaries_of_libraries_are_built_anew() -> None:
    settings = Settings(X + 1, OrderedDict(a=X + 2))
    captured = Captured(lambda: settings)
    assert [*captured.arrays] == ["settings[array]", "settings[more][a]"]
    other = captured.replaced({"settings[more][a]": X * 0})()
    assert type(other) is Settings and other.array is settings.array
    assert type(other.more) is OrderedDict and not other.more["a"].any()
    assert settings.more["a"].any()


def test_compiled_functions_are_compiled_anew() -> None:
    jax = pytest.importorskip("jax")
    x = jax.numpy.asarray(X)
    compiled = jax.jit(lambda: x + 1)
    captured = Captured(compiled)
    other = captured.replaced({"x": X * 0})
    assert type(other) is type(compiled) and float(other().sum()) == 6 < float(compiled().sum())


def test_an_array_keeps_its_place_in_memory_and_its_format() -> None:
    room = np.zeros(100, np.uint8)
    shifted = room[-room.ctypes.data % 64 + 4 :][:24].view("f4").reshape(2, 3)
    for array in (shifted, X.T, np.zeros((2, 3), bool)):
        kept = captured_array(array)
        assert kept is not None and kept.dtype == str(array.dtype)
        other = kept.like(array + np.ones_like(array))
        assert other.dtype == array.dtype and other.strides == array.strides
        assert other.ctypes.data % 64 == array.ctypes.data % 64 or array is not shifted
    assert captured_array(np.array(["a"])) is None and captured_array(3.0) is None


def test_tensors_of_pytorch() -> None:
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.bool):
        tensor = torch.ones(3, 4).to(dtype).t()
        kept = captured_array(tensor)
        assert kept is not None and kept.dtype == str(dtype).removeprefix("torch.")
        other = kept.like(kept.bits[::-1] * 0)
        assert (other.dtype, other.stride(), int(other.sum())) == (dtype, tensor.stride(), 0)
    assert captured_array(torch.nn.Parameter(torch.ones(2))) is None  # a weight
    assert captured_array(torch.ones(2, dtype=torch.complex64)) is None


def test_arrays_of_jax() -> None:
    jnp = pytest.importorskip("jax.numpy")
    array = jnp.asarray(np.ones((2, 3)), jnp.bfloat16)
    kept = captured_array(array)
    assert kept is not None and kept.bits.dtype == np.uint16
    other = kept.like(np.full((2, 3), 2, ml_dtypes.bfloat16).view(np.uint16))
    assert other.dtype == array.dtype and float(other.sum()) == 12


def test_tensors_of_tensorflow() -> None:
    tf = pytest.importorskip("tensorflow")
    y = tf.ones((2, 3))
    compiled = tf.function(lambda: y * 2)
    other = Captured(compiled).replaced({"y": X * 0})
    assert type(other) is type(compiled) and float(tf.reduce_sum(other())) == 0
    kept = captured_array(tf.ones((2, 3)))
    assert kept is not None and float(tf.reduce_sum(kept.like(X))) == 15
    assert captured_array(tf.Variable(1.0)) is None and captured_array(tf.constant("a")) is None
