"""Calls, steps and tables: what a row is told of an operation, and how steps come together."""

from __future__ import annotations

import inspect
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from probe.case.geometry import WindowSizes
from probe.order import semantics as s
from probe.order.semantics import (
    Call,
    Contracts,
    Frame,
    Function,
    Moves,
    Operand,
    Passes,
    Reshapes,
    Same,
    Step,
    Steps,
    Turns,
    Unknown,
    Windows,
    canonical,
    of_complex,
    row_of,
)

SIZES = Operand(1, (2,), "int64", lambda: np.array([[4, 5]]))
READS = [Operand(0, (2, 3), "f"), None, SIZES, Operand(-1, (), "g")]
CALL = Call("op", {"b": 2, "a": True}, READS, [(2, 3)])


def test_a_call_knows_its_operands_by_their_slots() -> None:
    assert [CALL.has(n) for n in range(5)] == [True, False, True, True, False]
    assert (CALL.count, CALL.places(0, 1, 2, 7), CALL.at(2), CALL.at(3)) == (2, (0, 1), 1, -1)
    assert (CALL.shape(), CALL.rank(), CALL.dtype()) == ((2, 3), 2, "f")
    assert (CALL.shape(2), CALL.rank(2), CALL.dtype(3)) == ((2,), 1, "g")
    assert (CALL["b"], CALL.get("c"), CALL.get("c", 3), CALL.integers(2)) == (2, None, 3, [4, 5])
    every = "", [None], [3, None], [None, 3, None, 4, None]
    assert [*map(s.left_out, every)] == [[], [], [], [0, 2]]
    with pytest.raises(IndexError):
        CALL.operand(1)


def test_a_table_says_why_it_does_not_know() -> None:
    table = s.OperationTable()
    table.row("one two")(lambda _: Same())
    table.row(s.word_list("ABS POW:power"))(lambda _, word: s.function(word))
    table.row(["index"])(lambda call: call["nothing"])
    found = {name: s.by_table(table, replace(CALL, op=name)) for name in [*table, "other"]}
    assert found["one"] == found["two"] == Same()
    assert (found["ABS"], found["POW"]) == (s.function("absolute"), s.function("power"))
    why = {name: one.why for name, one in found.items() if isinstance(one, Unknown)}
    assert list(why) == ["index", "other"] and "other is not described" in why["other"]
    assert "attributes" in why["index"]


def test_a_name_that_all_libraries_have_says_what_is_computed() -> None:
    """Of one that adds or rounds in some library it says nothing: outputs would be promised."""
    for name in ("LogicalNot", "LOGICAL_NOT", "logical_not"):
        assert s.by_name(name) == s.function("not")
    assert s.by_name("AddV2") == s.by_name("STABLEHLO_ADD") == s.function("add")
    assert s.by_name("StridedSlice") == s.moved("concat") == Moves()
    rounds = "scatter median range resize pad_mode cumsum softmax inverse".split()
    assert not any(map(s.by_name, rounds))


def test_what_moves_is_exact_and_what_sums_is_not() -> None:
    moves = Moves(), Same(), Reshapes(), Turns((1, 0)), Passes((0,))
    assert all(each.exact and not each.sums for each in moves)
    root, product = (Steps((Step(m, (0, 1), (2, 2)),)) for m in (s.function("sqrt"), s.matmul()))
    assert not any(each.exact for each in (Unknown("w"), s.matmul(), root))
    assert [each.sums for each in (s.matmul(), product, root, Steps(()))] == [
        True,
        True,
        False,
        False,
    ]


def test_what_is_done_behind_comes_as_further_steps() -> None:
    call = replace(CALL, reads=[Operand(n, (2, 3), "f") for n in range(2)])
    less, tanh = s.function("subtract"), s.function("tanh")
    assert s.then(call, less) is less
    assert s.then(call, Unknown("w"), less) == Unknown("w")
    behind = s.then(call, less, tanh, (less, 1))
    assert [step.reads for step in behind.steps] == [(0, 1), (2,), (3, 1)]
    assert s.then(call, behind, tanh).steps[3].reads == (4,)


def test_what_is_said_of_functions_is_so_of_numpys() -> None:
    """In float16: what rounds nothing is exact there, and what rounds once is float64's rounded."""
    rng, tried = np.random.default_rng(8), []
    halves = (rng.normal(size=(2, 300)) * 9).astype(np.float16)
    for name, row in s.FUNCTIONS.items():
        ufunc = getattr(np, name, None)
        if not isinstance(ufunc, np.ufunc) or ufunc.nin > 2 or name == "nextafter":
            continue
        given = halves.astype(int) if "bitwise" in name or "shift" in name else halves
        given = np.abs(given) if "shift" in name else given
        wide = given.astype("f8" if given.dtype.kind == "f" else int)
        with np.errstate(all="ignore"):
            half, exact = (ufunc(*some[: ufunc.nin]) for some in (given, wide))
            rounded = np.array_equal(half, exact.astype(half.dtype), equal_nan=True)
        same = np.array_equal(half, exact, equal_nan=True)
        assert row.rounds != 0 or same, name
        assert row.rounds != 1 or (not same and rounded), name
        tried.append(row.rounds)
    assert {0, 1, None} <= {*tried} and len(tried) > 40
    one, two = halves
    twice, once = np.square(one - two), np.square(one.astype(float) - two).astype(np.float16)
    assert row_of("squared_difference").rounds == 2 and (twice != once).any()


def test_what_compares_may_give_either_zero() -> None:
    every = s.FUNCTIONS.items()
    zeros = {"clamp", "max", "min", "maximum", "minimum", "fmax", "fmin"}
    assert {name for name, row in every if row.either} == zeros
    assert {name for name, row in every if row.sloped} == {"leaky_relu"}


def test_a_function_has_one_name_and_an_unknown_one_its_own() -> None:
    assert (canonical("abs"), canonical("rint"), canonical("nonsense")) == (
        *("absolute", "round", "nonsense"),
    )
    assert row_of("nonsense") == Function() and not s.function("nonsense").exact
    assert all(canonical(name) == name for name in s.FUNCTIONS)


def test_whether_a_function_is_exact_depends_on_its_numbers_and_the_library() -> None:
    every = {
        s.function("add"): True,
        s.function("add", alpha=2): False,  # a further product
        s.function("divide", rounding_mode="floor"): False,
        s.function("round", decimals=1): False,
        s.function("leaky_relu", alpha=0.1): True,  # whose factor is all that it rounds by
        s.approximate("sqrt"): False,
        s.function("multiply", beside=2.5): True,
        s.function("tanh"): False,
        s.clip(-1.0, 2.0): True,
    }
    assert {each: each.exact for each in every} == every


def test_products_and_sizes_of_complex_numbers_are_rounded_in_several_ways() -> None:
    words = "add multiply absolute negative exp cast".split()
    changed = [of_complex(s.function(word)) for word in words]
    called = ["add", "complex multiply", "complex absolute", "negative", "exp", "cast"]
    assert [each.word for each in changed] == called
    assert [each.exact for each in changed] == [True, False, False, True, False, True]
    assert of_complex(Unknown("w")) == Unknown("w")


@pytest.mark.parametrize(
    ("equation", "left", "right"),
    [
        ("...mk,...kn->...mn", (2, 3), (3, 4)),
        ("...mk,...kn->...mn", (5, 2, 3), (3, 4)),
        ("...mk,...kn->...mn", (2, 3), (6, 5, 3, 4)),
        ("...mk,...kn->...mn", (6, 1, 2, 3), (5, 3, 4)),
        ("...k,nk->...n", (7, 2, 3), (4, 3)),
        ("k,...kn->...n", (3,), (5, 3, 4)),
        ("bij,bkj->bik", (2, 3, 4), (2, 5, 4)),
    ],
)
def test_letters_that_dots_stand_for_are_those_of_einsum(equation, left, right) -> None:
    texts, out = Contracts(equation).spelled(left, right)
    rng = np.random.default_rng(1)
    one, two = rng.normal(size=left), rng.normal(size=right)
    spelled = np.einsum(f"{texts[0]},{texts[1]}->{out}", one, two)
    assert np.allclose(spelled, np.einsum(equation, one, two)) and "." not in "".join(texts) + out
    assert tuple(map(len, texts)) == (len(left), len(right))


ALIKE = {
    "no bound is no clip's bound": (s.clip(-np.inf, 3.0), s.clip(None, 3.0)),
    "both bounds at infinity": (s.clip(-np.inf, np.inf), s.clip(None, None)),
    "a clip at zero": (s.clip(0.0, np.inf), s.function("relu")),
    "a clip from zero to six": (s.clip(0, 6), s.function("relu6")),
    "to the second": (s.power(2), s.function("square")),
    "to the first": (s.power(1), Same()),
    "to the minus first": (s.power(-1), s.approximate("reciprocal")),
    "a cast to its own dtype": (s.cast("float32", "float32"), Same()),
    "the bits of its own dtype": (s.bitcast("int32", "int32"), Same()),
    "one of several": (s.several("add", 1), Same()),
    "two of several": (s.several("add", 2), s.function("add")),
}

APART = {
    "a clip above zero": (s.clip(0.0, 5.0), s.function("relu6")),
    "a clip from another bound": (s.clip(1.0, None), s.function("relu")),
    "to the minus first": (s.power(-1), s.function("reciprocal")),
    "three of several": (s.several("add", 3), s.function("add")),
    "by its own rounding": (s.approximate("divide"), s.function("divide")),
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
        found = s.same_padding(ins, outs, kernel, stride, dilation, odd_first)
        assert found == WindowSizes(kernel, stride, dilation, word).pads(ins)


F = Frame((2,), (1,), (1,), ((0, 1),))
CHANGED = [
    (s.gelu, (False,), (True,)),
    (s.normalised, ("softmax", (1,)), ("norm", (0,))),
    (s.clip, (-1.0, 1.0), (-2.0, 2.0)),
    (s.reduced, ("sum", (1,)), ("prod", (0,))),
    (s.convolution, (F, (), 1, False, (0, 1)),
     (F._replace(transposed=True), (1, 0), 2, True, (1, 0))),
    (s.pool, ("max", F, False, False, 2), ("sum", F._replace(stride=(2,)), True, True, 1)),
    (s.matmul, ((2, 2), (False, False), (0, 1)), ((1, 2), (True, False), (1, 0))),
    (s.dense, ((0, 1), None), ((1, 0), 2)),
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
        assert np.allclose(np.einsum(s.matmul(ranks, turned).equation, *sizes), np.matmul(*plain))
    for alpha, beta, slots in product((1.0, 2.0), (1.0, 3.0, 0.0), (2, 3)):
        operands = [Operand(n, (2, 2), "float32") for n in range(slots)]
        meaning = s.gemm(
            Call("gemm", {}, operands, [(2, 2)], ["float32"]), s.matmul(), 2, alpha, beta
        )
        known = alpha == 1 and (slots == 2 or beta in (0, 1))
        assert isinstance(meaning, Contracts if known else Unknown)


def test_an_einsum_is_a_product_or_a_transpose_or_unknown() -> None:
    assert s.einsum("ab, bc -> ac") == Contracts("ab,bc->ac")
    assert s.einsum("abc->cab") == Turns((2, 0, 1))
    for unknown in ("aa,ab->b", "ab->a", "ab,bc", "a,b,c->abc", "...a->a..."):
        with pytest.raises(ValueError, match="."):
            s.einsum(unknown)


def test_axes_count_from_either_end() -> None:
    assert s.transpose((0, -1, 1)) == Turns((0, 2, 1))
    assert isinstance(s.bitcast("float32", "int8", in_place=False), Unknown)


def test_what_is_a_sum_says_so() -> None:
    frame = Frame((2,), (1,), (1,), ((0, 1),))
    pools = [s.pool(kind, frame) for kind in ("max", "average", "sum")]
    assert [pool.sums for pool in pools] == [False, True, True] and all(p.pool for p in pools)
    assert s.convolution(frame).sums and not s.convolution(frame).pool
    assert [s.reduced(word, (0,)).sums for word in ("sum", "norm")] == [True, False]


def test_a_frame_says_where_windows_lie() -> None:
    frame = Frame((2, 3), (1, 2), (2, 1), ((0, 1), (1, 0)), True)
    last = s.convolution(frame, channels_last=True)
    assert (last.kernel, last.stride, last.dilation, last.padding) == frame[:4]
    assert (last.kind, last.spatial, last.channels) == ("transposed", (1, 2), 3)
    first = replace(last, spatial=(2, 3), channels=1, kind="convolution")
    assert first == s.convolution(frame._replace(transposed=False))
    alone = s.pool("max", frame._replace(transposed=False), lead=1)
    assert isinstance(alone, Windows) and (alone.spatial, alone.channels) == ((1, 2), 0)
