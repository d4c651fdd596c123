"""Calls, steps and tables: what a row is told of an operation, and how steps come together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from probe.order.semantics import Moves, Passes, Reshapes, Same, Turns, Unknown, contract
from probe.order.semantics import operations as o
from probe.order.semantics.contract import Call, Operand, Step, Steps

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
    assert contract.positions("axbb", "abb") == [0, -1, 1, 2]
    assert contract.positions("xab", "ac") == [-1, 0, -1]
    assert contract.positions("abx", "ab") == [0, 1, -1]


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
