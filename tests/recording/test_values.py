"""Bits of arrays, tensors, numbers and files: the same however they lie in memory."""

import ml_dtypes
import numpy as np
import pandas as pd
import pytest

from probe.errors import InputError
from probe.recording.values import array_of, bits_of, named_arrays


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


def test_padding_of_extended_numbers_does_not_count():
    one = np.longdouble([1.5, -2.0, 3.0])
    other = np.frombuffer(bytes(one.nbytes), np.longdouble).copy()
    raw = other.view(np.uint8)
    raw[:] = 0xAB
    other[:] = one
    if np.finfo(np.longdouble).nmant == 63:
        raw.reshape(3, -1)[:, 10:] = 0xCD  # what is no part of the number
    assert bits_of(one) == bits_of(other)
    assert bits_of(one) != bits_of(-one)
    assert bits_of(np.clongdouble(one + 1j)) != bits_of(np.clongdouble(one - 1j))


def test_numbers_bytes_and_files(tmp_path):
    assert bits_of(3.5) == bits_of(np.float64(3.5))
    assert bits_of([1, 2]) == bits_of(np.array([1, 2]))
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
        ([[1], [2, 3]], "not one array"),
        ("text", "not an array"),
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
    assert bits_of(np.zeros((0, 3), np.longdouble)).shape == (0, 3)
    torch = pytest.importorskip("torch")
    half = torch.zeros(2, dtype=torch.complex32)
    assert bits_of(half).dtype == "complex32"
    with pytest.raises(InputError, match="no elements"):
        bits_of(torch.empty(2, device="meta"))
