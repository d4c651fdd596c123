"""Bits of arrays, tensors, numbers and files, the same however they lie in memory; what stores of
runs share; and how often a user's function is run: watched twice, plain once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pandas as pd
import pytest

import probe
from probe.case.errors import InputError
from probe.record import store
from probe.record.store import ProcessStore, array_of, bits_of, named_arrays
from tests.record.onnx_files import onnx_model

X = np.random.default_rng(0).standard_normal((64, 257)).astype(np.float32)
W = np.random.default_rng(1).standard_normal((257, 65)).astype(np.float32)
MOST = 3  # of a model; of a function which rows it reads is asked by running it, too
ASKED = 30


def test_a_function_is_run_some_times_a_side() -> None:
    runs = {1: 0, 64: 0}

    def side(rows: int) -> Callable[..., Any]:
        def run(x: Any, w: Any) -> Any:
            runs[rows] += 1
            return np.maximum(x[:rows] @ w, 0).sum(1)

        return run

    probe.first_difference(side(1), side(64), inputs=(X, W))
    assert max(runs.values()) <= ASKED, runs


def test_a_model_of_onnx_is_run_three_times_a_side(tmp_path: Any, monkeypatch: Any) -> None:
    pytest.importorskip("onnxruntime")
    node = pytest.importorskip("onnx").helper.make_node
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Relu", ["p"], ["y"])]
    path = tmp_path / "model.onnx"
    path.write_bytes(onnx_model(nodes, {"x": ["n", 257]}, {"y": ["n", 65]}, {"w": W}))
    from probe.record.onnxruntime import OnnxRecorder

    runs: dict[int, int] = {}
    for name in ("plain", "record"):
        whole = getattr(OnnxRecorder, name)

        def counted(self: Any, *given: Any, whole: Any = whole) -> Any:
            runs[id(self)] = runs.get(id(self), 0) + 1
            return whole(self, *given)

        monkeypatch.setattr(OnnxRecorder, name, counted)
    probe.network(path, vary="batch", at=1, against=64, inputs={"x": X})
    # all samples alone once, unwatched, and the batch; both sides of the recorded pair, and the
    # batch with four other contents, each also unwatched
    assert sum(runs.values()) <= 64 + 1 + 2 * MOST + 4 * 2, runs


def test_arrays_are_kept_once_and_given_up_with_the_last_run_that_holds_them() -> None:
    one, other, array = ProcessStore(), ProcessStore(), X + np.float32(1)
    name = one.put(array)
    assert other.put(np.asfortranarray(array)) == name and one.bits(name) is other.bits(name)
    bits = one.bits(name)
    assert bits is not None and bits.tobytes() == array.tobytes()
    with pytest.raises(ValueError, match="read-only"):
        bits[0] = 1
    del one, other, bits
    assert name not in store._held


@pytest.fixture
def x():
    return np.random.default_rng(0).normal(size=(3, 4, 5)).astype(np.float32)


def test_memory_layout_and_byte_order_do_not_count(x):
    wanted = bits_of(x)
    assert bits_of(np.asfortranarray(x)) == wanted
    assert bits_of(x.astype(">f4")) == wanted
    assert bits_of(np.stack([x, x], -1)[..., 0]) == wanted
    large = np.zeros((2048, 300, 2), np.float32)
    large[..., 0] = np.arange(300)
    assert bits_of(large[..., 0]) == bits_of(large[..., 0].copy())


def test_bits_dtype_and_shape_count(x):
    assert bits_of(np.float32([0.0])) != bits_of(np.float32([-0.0]))
    one, other = np.float32([np.nan]), np.uint32([0x7FC00001]).view(np.float32)
    assert np.isnan(other).all()
    assert bits_of(one) != bits_of(other)
    assert bits_of(x) != bits_of(x.reshape(-1))
    assert bits_of(x) != bits_of(x.view(np.int32))
    assert bits_of(np.zeros((0, 3))) != bits_of(np.zeros((3, 0)))
    flipped = x.copy()
    flipped.view(np.uint32)[1, 2, 3] ^= 1
    assert bits_of(flipped) != bits_of(x)


def test_tensors_of_libraries_have_the_bits_of_their_arrays(x):
    torch = pytest.importorskip("torch")
    assert bits_of(torch.from_numpy(x)) == bits_of(x)
    assert bits_of(torch.from_numpy(x).permute(2, 0, 1)) == bits_of(x.transpose(2, 0, 1))
    assert bits_of(torch.from_numpy(x).requires_grad_()) == bits_of(x)
    half = torch.from_numpy(x).to(torch.bfloat16)
    assert bits_of(half) == bits_of(x.astype(ml_dtypes.bfloat16))
    assert bits_of(half).dtype == "bfloat16"
    complex_ = torch.complex(torch.from_numpy(x), torch.from_numpy(-x))
    assert bits_of(complex_.conj()) == bits_of(np.conj(complex_.numpy()))


def test_jax_arrays_have_the_bits_of_their_arrays(x):
    jnp = pytest.importorskip("jax.numpy")
    assert bits_of(jnp.asarray(x)) == bits_of(x)
    assert bits_of(jnp.asarray(x, jnp.bfloat16)).dtype == "bfloat16"


def test_numbers_bytes_and_files(tmp_path):
    assert bits_of(3.5) == bits_of(np.float64(3.5))
    assert bits_of([1, 2]) == bits_of(np.array([1, 2]))
    assert bits_of("né") == bits_of(np.str_("né")) != bits_of("né".encode())
    assert bits_of("\udcff") != bits_of("?")
    path = tmp_path / "out.bin"
    path.write_bytes(b"abc" * 3_000_000)
    assert bits_of(path).shape == (9_000_000,)
    path.write_bytes(b"abc" * 2_999_999 + b"abd")
    assert bits_of(path) != bits_of(b"abc" * 3_000_000)
    with pytest.raises(InputError, match="No such file"):
        bits_of(tmp_path / "none")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (np.array([1, "a", None], object), "objects"),
        (np.zeros((0, 3), np.longdouble), "whatever was on the stack"),
        ([[1], [2, 3]], "not one array"),
        (None, "not an array"),
        (object(), "not one array"),
        (np.ma.array([1, 2], mask=[0, 1]), "mask"),
        (np.zeros(2, [("a", "f4"), ("b", "f8")]), "structured"),
        (np.array(["a", "bc"], np.dtypes.StringDType()), "objects"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_has_no_bits_is_refused_in_one_line(value, why):
    with pytest.raises(InputError, match=why) as error:
        array_of(value)
    assert "\n" not in str(error.value)


def test_nested_values_have_names():
    given = {"a": np.zeros(2), "b": [np.ones(1), (np.ones(2), 3.0)], "c": [1, 2]}
    assert [name for name, _ in named_arrays(given)] == ["a", "b.0", "b.1.0", "b.1.1", "c"]
    assert [n for n, _ in named_arrays(pd.DataFrame({"x": [1.0], "y": [2]}))] == ["x", "y"]
    assert [n for n, _ in named_arrays(np.zeros(2, [("a", "f4"), ("b", "f8")]))] == ["a", "b"]
    with pytest.raises(InputError, match="no arrays"):
        list(named_arrays({}))


@pytest.mark.parametrize("value", [{"a": {"b": 1.0}, "a.b": 2.0}, {1: 1.0, "1": 2.0}])
def test_two_arrays_of_one_name_are_refused(value):
    with pytest.raises(InputError, match="two arrays have this name"):
        list(named_arrays(value))


@pytest.mark.parametrize("name", ["bfloat16", "float8_e5m2", "float8_e4m3fn", "int4"])
def test_formats_that_numpy_lacks_have_the_bits_of_their_containers(name):
    array = np.arange(6).reshape(2, 3).astype(np.dtype(name))
    unit = np.uint16 if name == "bfloat16" else np.uint8
    assert bits_of(array).dtype == name
    assert bits_of(array).hash == bits_of(array.view(unit)).hash
    assert bits_of(array.T).hash == bits_of(np.ascontiguousarray(array.T).view(unit)).hash


@pytest.mark.filterwarnings("ignore:ComplexHalf")
def test_rare_values_have_bits_or_are_refused():
    assert bits_of(memoryview(b"abcdef")[::2]) == bits_of(b"ace")
    torch = pytest.importorskip("torch")
    half = torch.zeros(2, dtype=torch.complex32)
    assert bits_of(half).dtype == "complex32"
    with pytest.raises(InputError, match="no elements"):
        bits_of(torch.empty(2, device="meta"))
