"""Calls, steps and tables: what a row is told of an operation, and how steps come together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from probe.order.semantics import (
    Contracts,
    Moves,
    Passes,
    Reshapes,
    Same,
    Turns,
    Unknown,
    contract,
    of_complex,
)
from probe.order.semantics import operations as o
from probe.order.semantics.contract import Call, Function, Operand, Step, Steps, canonical, row_of

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
    assert [*map(contract.left_out, every)] == [[], [], [], [0, 2]]
    with pytest.raises(IndexError):
        CALL.operand(1)


def test_a_table_says_why_it_does_not_know() -> None:
    table = contract.OperationTable()
    table.row("one two")(lambda _: Same())
    table.row(contract.word_list("ABS POW:power"))(lambda _, word: o.function(word))
    table.row(["index"])(lambda call: call["nothing"])
    found = {name: contract.by_table(table, replace(CALL, op=name)) for name in [*table, "other"]}
    assert found["one"] == found["two"] == Same()
    assert (found["ABS"], found["POW"]) == (o.function("absolute"), o.function("power"))
    why = {name: one.why for name, one in found.items() if isinstance(one, Unknown)}
    assert list(why) == ["index", "other"] and "other is not described" in why["other"]
    assert "attributes" in why["index"]


def test_a_name_that_all_libraries_have_says_what_is_computed() -> None:
    """Of one that adds or rounds in some library it says nothing: outputs would be promised."""
    for name in ("LogicalNot", "LOGICAL_NOT", "logical_not"):
        assert contract.by_name(name) == o.function("not")
    assert contract.by_name("AddV2") == contract.by_name("STABLEHLO_ADD") == o.function("add")
    assert contract.by_name("StridedSlice") == contract.moved("concat") == Moves()
    rounds = "scatter median range resize pad_mode cumsum softmax inverse".split()
    assert not any(map(contract.by_name, rounds))


def test_what_moves_is_exact_and_what_sums_is_not() -> None:
    moves = Moves(), Same(), Reshapes(), Turns((1, 0)), Passes((0,))
    assert all(each.exact and not each.sums for each in moves)
    root, product = (Steps((Step(m, (0, 1), (2, 2)),)) for m in (o.function("sqrt"), o.matmul()))
    assert not any(each.exact for each in (Unknown("w"), o.matmul(), root))
    assert [each.sums for each in (o.matmul(), product, root, Steps(()))] == [
        True,
        True,
        False,
        False,
    ]


def test_what_is_done_behind_comes_as_further_steps() -> None:
    call = replace(CALL, reads=[Operand(n, (2, 3), "f") for n in range(2)])
    less, tanh = o.function("subtract"), o.function("tanh")
    assert contract.then(call, less) is less
    assert contract.then(call, Unknown("w"), less) == Unknown("w")
    behind = contract.then(call, less, tanh, (less, 1))
    assert [step.reads for step in behind.steps] == [(0, 1), (2,), (3, 1)]
    assert contract.then(call, behind, tanh).steps[3].reads == (4,)


def test_what_is_said_of_functions_is_so_of_numpys() -> None:
    """In float16: what rounds nothing is exact there, and what rounds once is float64's rounded."""
    rng, tried = np.random.default_rng(8), []
    halves = (rng.normal(size=(2, 300)) * 9).astype(np.float16)
    for name, row in contract.FUNCTIONS.items():
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
    every = contract.FUNCTIONS.items()
    zeros = {"clamp", "max", "min", "maximum", "minimum", "fmax", "fmin"}
    assert {name for name, row in every if row.either} == zeros
    assert {name for name, row in every if row.sloped} == {"leaky_relu"}


def test_a_function_has_one_name_and_an_unknown_one_its_own() -> None:
    assert (canonical("abs"), canonical("rint"), canonical("nonsense")) == (
        *("absolute", "round", "nonsense"),
    )
    assert row_of("nonsense") == Function() and not o.function("nonsense").exact
    assert all(canonical(name) == name for name in contract.FUNCTIONS)


def test_whether_a_function_is_exact_depends_on_its_numbers_and_the_library() -> None:
    every = {
        o.function("add"): True,
        o.function("add", alpha=2): False,  # a further product
        o.function("divide", rounding_mode="floor"): False,
        o.function("round", decimals=1): False,
        o.function("leaky_relu", alpha=0.1): True,  # whose factor is all that it rounds by
        o.approximate("sqrt"): False,
        o.function("multiply", beside=2.5): True,
        o.function("tanh"): False,
        o.clip(-1.0, 2.0): True,
    }
    assert {each: each.exact for each in every} == every


def test_products_and_sizes_of_complex_numbers_are_rounded_in_several_ways() -> None:
    words = "add multiply absolute negative exp cast".split()
    changed = [of_complex(o.function(word)) for word in words]
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
