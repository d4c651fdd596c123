"""Operations that are said in different ways are one: what libraries mean alike has one name."""

from __future__ import annotations

import numpy as np
import pytest

from probe.geometry import WindowSizes
from probe.semantics import Same, Unknown
from probe.semantics import operations as o

ALIKE = {
    "the largest, as they come": (o.top_k(2, 3), o.along("top_k", 2, (-1,), (3,))),
    "the smallest, in any order": (
        o.top_k(2, 3, 0, False, False),
        o.along("top_k", 2, (0,), (3, "smallest", "any order")),
    ),
    "no bound is no clip's bound": (o.clip(-np.inf, 3.0), o.clip(None, 3.0)),
    "both bounds at infinity": (o.clip(-np.inf, np.inf), o.clip(None, None)),
    "a clip at zero": (o.clip(0.0, np.inf), o.function("relu")),
    "a clip from zero to six": (o.clip(0, 6), o.function("relu6")),
    "a slope of zero": (o.leaky_relu(0.0), o.function("relu")),
    "ELU with SELU's numbers": (o.elu(*o.SELU), o.function("selu")),
    "SELU with its own": (o.selu(), o.function("selu")),
    "CELU of one": (o.celu(1.0), o.elu(1.0)),
    "ELU with CELU's numbers": (o.elu(2.0, 1.0, 0.5), o.celu(2.0)),
    "a swish of one": (o.swish(1.0), o.function("silu")),
    "softplus as PyTorch has it": (o.softplus(1.0, 20.0), o.function("softplus")),
    "to the second": (o.power(2), o.function("square")),
    "to the first": (o.power(1), Same()),
    "a cast to its own dtype": (o.cast("float32", "float32"), Same()),
    "the bits of its own dtype": (o.bitcast("int32", "int32"), Same()),
    "one of several": (o.several("add", 1), Same()),
    "two of several": (o.several("add", 2), o.function("add")),
    "a quotient of floats": (o.arithmetic("divide", "float32"), o.function("divide")),
    "the first norm": (o.reduced("l1", (1,)), o.vector_norm((1,), 1)),
    "the second norm": (o.reduced("euclidean_norm", (1,), True), o.vector_norm((1,), 2, True)),
    "the largest by another name": (o.reduced("amax", (0,)), o.reduced("max", (0,))),
    "a softmax of its input": (o.softmax((1,), 1.0), o.softmax((1,))),
}

APART = {
    "a clip above zero": (o.clip(0.0, 5.0), o.function("relu6")),
    "a clip from another bound": (o.clip(1.0, None), o.function("relu")),
    "a slope": (o.leaky_relu(0.5), o.function("relu")),
    "ELU times a scale": (o.elu(1.0, 2.0), o.elu(1.0)),
    "ELU with an inner scale of its own": (o.elu(2.0, 1.0, 0.25), o.celu(2.0)),
    "a swish": (o.swish(2.0), o.function("silu")),
    "another threshold": (o.softplus(1.0, 21.0), o.function("softplus")),
    "to the minus first": (o.power(-1), o.function("reciprocal")),
    "another cast": (o.cast("float32", "float16"), o.cast("float32", "float16", saturates=False)),
    "three of several": (o.several("add", 3), o.function("add")),
    "a quotient of integers": (o.arithmetic("divide", "int32"), o.function("divide")),
    "places of the largest": (o.reduced("max", (0,), places=True), o.reduced("max", (0,))),
    "a softmax of twice": (o.softmax((1,), 2.0), o.softmax((1,))),
    "by its own rounding": (o.approximate("divide"), o.function("divide")),
}


@pytest.mark.parametrize(("one", "other"), ALIKE.values(), ids=ALIKE)
def test_two_ways_to_say_it_are_one(one: object, other: object) -> None:
    assert one == other


@pytest.mark.parametrize(("one", "other"), APART.values(), ids=APART)
def test_what_is_something_else_is_not(one: object, other: object) -> None:
    assert one != other


@pytest.mark.parametrize(
    ("low", "high", "zero"),
    [(-1, 1, "stays"), (None, 1, "stays"), (0, 1, "stays"), (-1, 0, "stays"), (0.5, 1, "")]
    + [(-2, -1, ""), (None, -1, ""), (1, None, "")],
)
def test_a_clip_keeps_zero_where_it_lies_between_its_bounds(low, high, zero) -> None:
    assert o.clip(low, high).zero == zero


def test_zero_to_a_power_stays_where_the_exponent_is_positive() -> None:
    assert [o.power(n).zero for n in (0.5, 3, -0.5)] == ["stays", "stays", ""]
    assert isinstance(o.bitcast("float32", "int8", whole=False), Unknown)


@pytest.mark.parametrize("odd_first", [False, True])
def test_padding_that_keeps_sizes_is_as_conventions_have_it(odd_first: bool) -> None:
    rng = np.random.default_rng(4)
    word = "same_lower" if odd_first else "same"
    for _ in range(200):
        kernel, stride, dilation = (rng.integers(1, 5, 2).tolist() for _ in range(3))
        ins = rng.integers(1, 12, 2).tolist()
        outs = [-(-size // step) for size, step in zip(ins, stride, strict=True)]
        found = o.same_padding(ins, outs, kernel, stride, dilation, odd_first)
        assert found == WindowSizes(kernel, stride, dilation, word).pads(ins)


def test_norms_leave_out_the_batch_and_channels_that_they_say() -> None:
    assert o.instance_norm(4, 1e-5).axes == (2, 3) and o.instance_norm(4, 1e-5).along == 1
    assert o.batch_norm_in_training(4, 1e-5).axes == (0, 2, 3)
    assert o.batch_norm_in_training(4, 1e-5, along=3).axes == (0, 1, 2)
    scale, shift = (o.norm((1,), 1e-5, *flags) for flags in ((True, False), (False, True)))
    assert scale != shift


def test_zeros_change_a_sum_by_nothing_and_a_mean_or_a_minimum_by_something() -> None:
    words = ("sum", "mean", "min", "prod", "euclidean_norm")
    assert [o.reduced(word, (1,)).zero for word in words] == [True, False, False, False, True]
