"""Operations that are said in different ways are one: what libraries mean alike has one name."""

from __future__ import annotations

import inspect
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from probe.geometry import WindowSizes
from probe.semantics import Contracts, Holds, Made, Same, Turns, Unknown
from probe.semantics import operations as o
from probe.semantics.contract import Call, Operand
from probe.semantics.labels import of_content, tag
from probe.semantics.windows import Frame
from tests.semantics.formulas import result

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
    "to the minus first": (o.power(-1), o.approximate("reciprocal")),
    "a cast to its own dtype": (o.cast("float32", "float32"), Same()),
    "the bits of its own dtype": (o.bitcast("int32", "int32"), Same()),
    "one of several": (o.several("add", 1), Same()),
    "two of several": (o.several("add", 2), o.function("add")),
    "a quotient of floats": (o.arithmetic("divide", "float32"), o.function("divide")),
    "the first norm": (o.reduced("l1", (1,)), o.vector_norm((1,), 1)),
    "the second norm": (o.reduced("euclidean_norm", (1,), True), o.vector_norm((1,), 2, True)),
    "the largest by another name": (o.reduced("amax", (0,)), o.reduced("max", (0,))),
}

APART = {
    "a clip above zero": (o.clip(0.0, 5.0), o.function("relu6")),
    "a clip from another bound": (o.clip(1.0, None), o.function("relu")),
    "ELU with an inner scale of its own": (o.elu(2.0, 1.0, 0.25), o.celu(2.0)),
    "to the minus first": (o.power(-1), o.function("reciprocal")),
    "three of several": (o.several("add", 3), o.function("add")),
    "a quotient of integers": (o.arithmetic("divide", "int32"), o.function("divide")),
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


def test_axes_count_from_either_end_and_a_number_has_none() -> None:
    ways = o.along("sort", 1, (-1,)), o.along("sort", 0, (0,)), o.along("sort", 3, (-2,))
    assert [one.kept for one in ways] == [(), (), ((0, 0), (2, 2))]
    assert o.along("sort", 3, (1,), keep=False).kept == ((0, 0), (2, 1))


F = Frame((2,), (1,), (1,), ((0, 1),))
CHANGED = [
    (o.batch_norm, (1e-5, True, True, None, None), (1e-4, False, False, 1, (1, 0))),
    (o.batch_norm_in_training, (3, 1e-5, True, True, 1), (4, 1e-4, False, False, 2)),
    (o.norm, ((1,), 1e-5, True, True, "layer_norm", None),
     ((2,), 1e-4, False, False, "rms_norm", (1, 2))),
    (o.instance_norm, (3, 1e-5, True, True), (4, 1e-4, False, False)),
    (o.softmax, ((1,), 1.0), ((0,), 2.0)), (o.log_softmax, ((1,),), ((0,),)),
    (o.elu, (1.0, 1.0, 1.0), (0.5, 2.0, 3.0)),
    (o.selu, o.SELU, (1.0, 1.5)), (o.celu, (1.0,), (2.0,)),
    (o.leaky_relu, (0.1,), (0.2,)), (o.gelu, (False,), (True,)),
    (o.swish, (1.0,), (2.0,)), (o.power, (3.0,), (-3.0,)),
    (o.hard_sigmoid, (1 / 6, 0.5), (0.2, 1.0)), (o.softplus, (1.0, 20.0), (2.0, 19.0)),
    (o.cast, ("float32", "int8", True), ("int8", "float16", False)),
    (o.clip, (-1.0, 1.0, None), (-2.0, 2.0, (1,))),
    (o.vector_norm, ((1,), 2, False), ((0,), 0, True)),
    (o.reduced, ("min", (1,), False, (), False), ("prod", (0,), True, (1,), True)),
    (o.variance, ("var", (1,), False, 1.0), ("std", (0,), True, 0.0)),
    (o.convolution, (F, (), 1, False, (0, 1)),
     (F._replace(transposed=True), (1, 0), 2, True, (1, 0))),
    (o.pool, ("max", F, False, False, False, 2),
     ("sum", F._replace(stride=(2,)), True, True, True, 1)),
    (o.matmul, ((2, 2), (False, False), (0, 1)), ((1, 2), (True, False), (1, 0))),
    (o.dense, ((0, 1), None), ((1, 0), 2)),
    (o.top_k, (3, 2, -1, True, True), (4, 1, 0, False, False)),
    (o.sort, (3, 1, False), (4, 0, True)), (o.bucketize, (2, False), (3, True)),
    (o.lrn, (1, 5, 0.1, 0.75, 1.0), (2, 3, 0.2, 0.5, 2.0)),
    (o.fourier, ("complex", 3, (1,), 8, 0), ("real", 4, (2,), 9, 1)),
    (o.fake_quantised, (0.0, 1.0, 8, False), (-1.0, 2.0, 4, True)),
    (o.affine_grid, ((2, 3), False), ((3, 2), True)),
    (o.grid_sample, ("nearest", "zeros", False), ("bilinear", "border", True)),
    (o.cumulated, ("cumsum", 1, False, False), ("cumprod", 0, True, True)),
    (o.along, ("sort", 3, (1,), (), True), ("top_k", 4, (0,), (1,), False)),
    (o.own_rows, ("w", (0,), (), ()), ("v", (1,), (1,), (1,))),
    (o.matrices, ("det", 3), ("inverse", 4)),
    (o.beside, ("add", 0, 1.5, "float32"), ("power", 1, 2.5, "float16")),
    (o.pad, (((0, 1),), 0.0, "float32"), (((1, 0),), 1.0, "float16")),
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


def _found(meaning: Any, *given: np.ndarray, to: tuple[int, ...] = ()) -> np.ndarray:
    return result(meaning, *given, to=to).full()


@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True)])
def test_products_are_numpys(turned: tuple[bool, bool]) -> None:
    """By the labels of the same product of what is turned; scaled, and with a bias."""
    rng = np.random.default_rng(5)
    for ranks in product((1, 2, 3), repeat=2):
        sizes = [rng.normal(size=((2, 3, 3)[-n:])) for n in ranks]
        pairs = zip(sizes, turned, strict=True)
        plain = [np.swapaxes(one, -1, -2) if t and one.ndim > 1 else one for one, t in pairs]
        to = np.matmul(*plain).shape
        found = _found(o.matmul(ranks, turned), *sizes, to=to)
        assert np.array_equal(found, _found(o.matmul(ranks), *plain, to=to))
    a, b, c = rng.normal(size=(3, 2, 2))
    made = {}
    for alpha, beta, slots in product((1.0, 2.0), (1.0, 3.0, 0.0), (2, 3)):
        operands = [Operand(n, (2, 2), "float32") for n in range(slots)]
        call = Call("gemm", {}, operands, [(2, 2)])
        meaning = o.gemm(call, turned, alpha, beta)
        assert (alpha, beta) != (1, 1) or o.gemm(call, turned) == meaning
        given = _found(meaning, *(a, b, c)[:slots], to=(2, 2)).tobytes()
        made.setdefault((alpha, beta if slots == 3 else 0.0), set()).add(given)
    assert [len(one) for one in made.values()] == [1] * 6 and len(set.union(*made.values())) == 6
    plain = o.matmul((2, 2), turned)
    assert made[1.0, 1.0] == {_found(replace(plain, bias=2), a, b, c, to=(2, 2)).tobytes()}
    assert made[1.0, 0.0] == {_found(plain, a, b, to=(2, 2)).tobytes()}


def test_an_einsum_is_a_product_or_a_transpose_or_unknown() -> None:
    assert o.einsum("ab, bc -> ac") == Contracts("ab,bc->ac")
    assert o.einsum("abc->cab") == Turns((2, 0, 1))
    for unknown in ("aa,ab->b", "ab->a", "ab,bc", "a,b,c->abc", "...a->a..."):
        with pytest.raises(ValueError, match="."):
            o.einsum(unknown)


def test_ranges_and_sizes_are_known_by_their_numbers() -> None:
    whole, part = (o.arange(1, step, 3, "float32") for step in (2, 0.5))
    assert isinstance(whole, Holds) and whole.content.dtype == "f4"
    assert whole.content.tolist() == [1, 3, 5]
    for one in (part, o.arange(200, 100, 3, "int8"), o.arange(2.0**24, 1, 2, "float32")):
        assert isinstance(one, Made) and one.places
    assert part.value == ("range", 1.0, 0.5) != o.arange(0.5, 0.5, 3, "float32").value
    operands = [Operand(-1, (), "float32", lambda n=n: np.array([n])) for n in (4.0, 9.0, 2.0)]
    ranged = o.ranged(Call("range", {}, operands, [(3,)], ["float32"]))
    assert ranged.content.tolist() == [4, 6, 8]
    assert o.known_sizes((2, 3)).content.tolist() == [2, 3] and o.known_sizes(4).content.shape == ()


def test_axes_that_go_come_or_are_picked_are_as_numpy_has_them() -> None:
    x = np.random.default_rng(1).normal(size=(1, 3, 1, 2))
    picked = [(1, np.array([[2, 0]])), (3, np.array(0))]
    moves = [
        *((o.squeeze(x.shape), x.squeeze()), (o.squeeze(x.shape, (-2,)), x.squeeze(2))),
        *((o.squeeze(x.shape, (1,)), x), (o.transpose((0, -1, 1, 2)), x.transpose(0, 3, 1, 2))),
        (o.expand(x.shape, (2, 1, 3, 4, 2)), np.broadcast_to(x, (2, 1, 3, 4, 2))),
        (o.in_turn(picked, x.shape), x[:, [[2, 0]]][:, :, :, 0]),
        *((o.take(-1, [1, 1, 0]), x[..., [1, 1, 0]]), (o.reshape(), x.reshape(2, 3))),
    ]
    for meaning, wanted in moves:
        assert np.array_equal(_found(meaning, x, to=wanted.shape), of_content(wanted).array)
    for meaning, function in ((o.stack(-1), np.stack), (o.concat(-1), np.concatenate)):
        wanted = function([x, 2 * x], -1)
        found = _found(meaning, x, 2 * x, to=wanted.shape)
        assert np.array_equal(found, of_content(wanted).array)
    sizes = [(1, 1, 1, 2), (1, 2, 1, 2)]
    parts = o.split(-3, sizes).labels([of_content(x)], sizes, tag(""))
    assert np.array_equal(parts[1].full(), of_content(x[:, 1:]).array)
    first, second = o.unstack(3, 2).labels([of_content(x)], [(1, 3, 1)] * 2, tag(""))
    assert np.array_equal(second.full(), of_content(x[..., 1]).array)
    assert not np.isin(first.full(), second.full()).any()


def test_a_system_reads_its_own_matrix_and_its_own_right_sides() -> None:
    """Of a stack to which a matrix alone broadcasts; a result of no system reads all."""
    rng = np.random.default_rng(3)
    one, many, right = (rng.normal(size=n) for n in ((2, 2), (3, 2, 2), (3, 2, 1)))

    def labels(matrix: np.ndarray, right: np.ndarray, how: int = 0) -> list[np.ndarray]:
        reads = [Operand(n, x.shape, "float32") for n, x in enumerate((matrix, right))]
        call = Call("solve", {}, reads, [right.shape, (4,)])
        meaning = o.solved("solve", call, {0: 2, 1: 2}, (3,), (how,))
        found = meaning.labels([of_content(matrix), of_content(right)], [], tag("solve"))
        return [each.full() for each in found]

    before = labels(many, right)
    assert len(np.unique(before[0])) == 6
    for place in range(2):
        given = [many.copy(), right.copy()]
        given[place][1, 1, 0] += 1
        own, every = (a != b for a, b in zip(before, labels(*given), strict=True))
        assert own.all((1, 2)).tolist() == own.any((1, 2)).tolist() == [False, True, False]
        assert every.all()
    assert np.array_equal(labels(one, right)[0], labels(np.stack([one] * 3), right)[0])
    assert not np.isin(labels(many, right, 1)[0], before[0]).any()
    reads = [Operand(n, x.shape, "float32") for n, x in enumerate((many, right))]
    call = Call("t", {}, reads, [right.shape])
    ways = [o.triangular_solve(call, (0, 1), how) for how in ((0, 1), (1, 1))]
    assert len(np.unique([_found(way, many, right) for way in ways])) == 12
    edges = o.bucketized(Call("b", {}, [Operand(0, (3,), "float32")], [(3,)]), [1, 2])
    wanted = _found(o.bucketize(1, True), right[:, 0, 0], np.float32([1, 2]), to=(3,))
    assert np.array_equal(_found(edges, right[:, 0, 0]), wanted)
