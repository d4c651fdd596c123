"""Operations that are said in different ways are one: what libraries mean alike has one name."""

from __future__ import annotations

import inspect
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from probe.case.geometry import WindowSizes
from probe.order.semantics import Contracts, Frame, Same, Turns, Unknown, Windows
from probe.order.semantics import operations as o
from probe.order.semantics.contract import Call, Operand

ALIKE = {
    "no bound is no clip's bound": (o.clip(-np.inf, 3.0), o.clip(None, 3.0)),
    "both bounds at infinity": (o.clip(-np.inf, np.inf), o.clip(None, None)),
    "a clip at zero": (o.clip(0.0, np.inf), o.function("relu")),
    "a clip from zero to six": (o.clip(0, 6), o.function("relu6")),
    "to the second": (o.power(2), o.function("square")),
    "to the first": (o.power(1), Same()),
    "to the minus first": (o.power(-1), o.approximate("reciprocal")),
    "a cast to its own dtype": (o.cast("float32", "float32"), Same()),
    "the bits of its own dtype": (o.bitcast("int32", "int32"), Same()),
    "one of several": (o.several("add", 1), Same()),
    "two of several": (o.several("add", 2), o.function("add")),
}

APART = {
    "a clip above zero": (o.clip(0.0, 5.0), o.function("relu6")),
    "a clip from another bound": (o.clip(1.0, None), o.function("relu")),
    "to the minus first": (o.power(-1), o.function("reciprocal")),
    "three of several": (o.several("add", 3), o.function("add")),
    "by its own rounding": (o.approximate("divide"), o.function("divide")),
}


@pytest.mark.parametrize(("one", "other"), ALIKE.values(), ids=ALIKE)
def test_two_ways_to_say_it_are_one(one: object, other: object) -> None:
    assert one == other


@pytest.mark.parametrize(("one", "other"), APART.values(), ids=APART)
def test_what_is_something_else_is_not(one: object, other: object) -> None:
    assert one != other


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


F = Frame((2,), (1,), (1,), ((0, 1),))
CHANGED = [
    (o.gelu, (False,), (True,)),
    (o.normalised, ("softmax", (1,)), ("norm", (0,))),
    (o.clip, (-1.0, 1.0), (-2.0, 2.0)),
    (o.reduced, ("sum", (1,)), ("prod", (0,))),
    (o.convolution, (F, (), 1, False, (0, 1)),
     (F._replace(transposed=True), (1, 0), 2, True, (1, 0))),
    (o.pool, ("max", F, False, False, 2), ("sum", F._replace(stride=(2,)), True, True, 1)),
    (o.matmul, ((2, 2), (False, False), (0, 1)), ((1, 2), (True, False), (1, 0))),
    (o.dense, ((0, 1), None), ((1, 0), 2)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("build", "given", "others"), CHANGED, ids=lambda one: getattr(one, "__name__", "")
)
def test_each_argument_counts_and_what_is_left_out_is_the_usual_one(build, given, others) -> None:
    made = [build(*given)]
    for n, other in enumerate(others):
        made.append(build(*given[:n], other, *given[n + 1 :]))
    alike = [(a, b) for a in range(len(made)) for b in range(a) if made[a] == made[b]]
    assert not alike, alike
    plain = inspect.signature(build).parameters.values()
    count = sum(one.default is inspect.Parameter.empty for one in plain)
    assert build(*given[:count]) == made[0]


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True)])
def test_products_are_numpys(turned: tuple[bool, bool]) -> None:
    """Of matrices, batches of them and vectors; with a bias, and unknown if it is scaled."""
    rng = np.random.default_rng(5)
    for ranks in product((1, 2, 3), repeat=2):
        sizes = [rng.normal(size=((2, 3, 3)[-n:])) for n in ranks]
        pairs = zip(sizes, turned, strict=True)
        plain = [np.swapaxes(x, -1, -2) if t and x.ndim > 1 else x for x, t in pairs]
        assert np.allclose(np.einsum(o.matmul(ranks, turned).equation, *sizes), np.matmul(*plain))
    for alpha, beta, slots in product((1.0, 2.0), (1.0, 3.0, 0.0), (2, 3)):
        operands = [Operand(n, (2, 2), "float32") for n in range(slots)]
        meaning = o.gemm(
            Call("gemm", {}, operands, [(2, 2)], ["float32"]), o.matmul(), 2, alpha, beta
        )
        known = alpha == 1 and (slots == 2 or beta in (0, 1))
        assert isinstance(meaning, Contracts if known else Unknown)


def test_an_einsum_is_a_product_or_a_transpose_or_unknown() -> None:
    assert o.einsum("ab, bc -> ac") == Contracts("ab,bc->ac")
    assert o.einsum("abc->cab") == Turns((2, 0, 1))
    for unknown in ("aa,ab->b", "ab->a", "ab,bc", "a,b,c->abc", "...a->a..."):
        with pytest.raises(ValueError, match="."):
            o.einsum(unknown)


def test_axes_count_from_either_end() -> None:
    assert o.transpose((0, -1, 1)) == Turns((0, 2, 1))
    assert isinstance(o.bitcast("float32", "int8", whole=False), Unknown)


def test_what_is_a_sum_says_so() -> None:
    frame = Frame((2,), (1,), (1,), ((0, 1),))
    pools = [o.pool(kind, frame) for kind in ("max", "average", "sum")]
    assert [pool.sums for pool in pools] == [False, True, True] and all(p.pool for p in pools)
    assert o.convolution(frame).sums and not o.convolution(frame).pool
    assert [o.reduced(word, (0,)).sums for word in ("sum", "norm")] == [True, False]


def test_a_frame_says_where_windows_lie() -> None:
    frame = Frame((2, 3), (1, 2), (2, 1), ((0, 1), (1, 0)), True)
    last = o.convolution(frame, channels_last=True)
    assert (last.kernel, last.stride, last.dilation, last.padding) == frame[:4]
    assert (last.kind, last.spatial, last.channels) == ("transposed", (1, 2), 3)
    first = replace(last, spatial=(2, 3), channels=1, kind="convolution")
    assert first == o.convolution(frame._replace(transposed=False))
    alone = o.pool("max", frame._replace(transposed=False), lead=1)
    assert isinstance(alone, Windows) and (alone.spatial, alone.channels) == ((1, 2), 0)
