"""Calls, steps and tables: what a row is told of an operation, and how steps come together."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from probe.semantics import (
    Accumulates,
    Attends,
    Encodes,
    Moves,
    Recurs,
    Same,
    Scans,
    Unknown,
    contract,
)
from probe.semantics import operations as o
from probe.semantics.contract import Call, Meaning, Operand, Quantised, Step, StepBuilder, Steps
from probe.semantics.labels import Labels, of_content, tag
from probe.semantics.windows import Frame
from tests.semantics.formulas import result

X, Y = (of_content(np.random.default_rng(n).normal(size=(2, 3))) for n in (1, 2))
SIZES = Operand(1, (2,), "int64", lambda: np.array([[4, 5]]))
READS = [Operand(0, (2, 3), "f"), None, SIZES, Operand(-1, (), "g")]
CALL = Call("op", {"b": 2, "a": True}, READS, [(2, 3)])


def _labels(one: Meaning, *reads: Labels) -> list[list[int]]:
    made = one.labels(reads, [(2, 3)], tag(one.word))
    return [labels.full().reshape(-1).tolist() for labels in made]


def _applied(word: str, *reads: Labels) -> Labels:
    return result(o.function(word), *reads)


def test_a_call_knows_its_operands_by_their_slots() -> None:
    assert [CALL.has(n) for n in range(5)] == [True, False, True, True, False]
    assert (CALL.count, CALL.places(0, 1, 2, 7), CALL.at(2), CALL.at(3)) == (2, (0, 1), 1, -1)
    assert (CALL.shape(), CALL.rank(), CALL.dtype()) == ((2, 3), 2, "f")
    assert (CALL.shape(2), CALL.rank(2), CALL.dtype(3)) == ((2,), 1, "g")
    assert (CALL["b"], CALL.get("c"), CALL.get("c", 3), CALL.integers(2)) == (2, None, 3, [4, 5])
    # the operand behind an empty slot would else stand for that of another call
    assert CALL.numbers() == (("a", "True"), ("b", "2"), ("left out", "[1]"))
    assert replace(CALL, reads=CALL.reads[:1]).numbers() == (("a", "True"), ("b", "2"))
    every = "", [None], [3, None], [None, 3, None, 4, None]
    assert [*map(contract.left_out, every)] == [[], [], [], [0, 2]]
    assert CALL.numbers("b", "c") == (("b", "2"), ("c", "None"))
    with pytest.raises(IndexError):
        CALL.operand(1)
    with pytest.raises(contract.NotSettled, match="op reads sizes or indices"):
        CALL.value(0)
    assert contract.positions("axbb", "abb") == [0, -1, 1, 2]
    assert contract.positions("xab", "ac") == [-1, 0, -1]
    assert contract.positions("abx", "ab") == [0, 1, -1]


def test_a_table_says_why_it_does_not_know() -> None:
    table = contract.OperationTable()
    table.row("one two")(lambda _: Same())
    table.row(contract.word_list("ABS POW:power"))(lambda _, word: o.function(word))
    table.row(["index"])(lambda call: call["nothing"])
    table.row("held")(lambda call: o.take(0, call.value(0)))
    found = {name: contract.by_table(table, replace(CALL, op=name)) for name in [*table, "other"]}
    assert found["one"] == found["two"] == Same()
    assert (found["ABS"], found["POW"]) == (o.function("absolute"), o.function("power"))
    why = {name: one.why for name, one in found.items() if isinstance(one, Unknown)}
    assert list(why) == ["index", "held", "other"] and "other is not described" in why["other"]
    assert "attributes" in why["index"] and "floating-point numbers decide" in why["held"]


def test_steps_give_what_their_functions_give_one_after_the_other() -> None:
    build = StepBuilder(2)
    parts = build.add(o.split(0, [(1, 3), (1, 3)]), (1,), (1, 3), (1, 3))
    total = build.add(o.function("subtract"), (0, parts + 1), (2, 3))
    last = build.add(o.function("tanh"), (total,), (2, 3))
    assert (parts, total, last, build.count) == (2, 4, 5, 6)
    row = Y._replace(shape=(1, 3), array=Y.array[1:])
    less = _applied("subtract", X, row)
    wanted = [_applied("tanh", less), less, X, row]
    assert _labels(build.done(), X, Y) == [wanted[0].full().reshape(-1).tolist()]
    every = [one.full().reshape(-1).tolist() for one in wanted]
    assert _labels(build.done(last, total, 0, parts + 1), X, Y) == every
    assert build.done().parts() == [step.meaning for step in build.steps]


def test_steps_round_as_often_as_they_do_together() -> None:
    move, once, open_ = Same(), o.function("sqrt"), o.function("tanh")
    ways = [(move, move), (move, once), (once, move), (once, once), (move, open_), (), (once,)]
    steps = [Steps(tuple(Step(one, (0,), (2, 3)) for one in way)) for way in ways]
    assert [one.rounds for one in steps] == [0, 1, 1, None, None, None, 1]
    assert Unknown().rounds is None and Unknown().exact and not o.matmul().exact
    products = (o.matmul(), once), (once, o.matmul()), ()
    sums = [Steps(tuple(Step(one, (0, 1), (2, 2)) for one in way)).sums for way in products]
    assert sums == [True, False, False]


def test_a_step_is_known_by_its_word_else_its_name_else_its_number() -> None:
    whole = o.own_rows("", (0,))
    steps = [Step(whole, (0,), (2, 3), op=op) for op in ((), (), ("x",), ("x",), ("y",))]
    first, second, x, again, y = _labels(Steps(tuple(steps), (1, 2, 3, 4, 5)), X)
    assert x == again and len({*first, *second, *x, *y}) == 24
    hidden = np.array([[True, False, False]] * 2)
    step = Step(o.function("exp"), (0,), (2, 3))
    found = replace(step, zeros=hidden).labels([X], tag(""))[0].full()
    assert np.array_equal(found == 0, hidden) and step.labels([X], tag(""))[0].full().all()


F = Frame((2,), (1,), (1,), ((0, 1),))
READING: list[tuple[Meaning, list[tuple[int, ...]], list[tuple[int, ...]]]] = [
    *((o.function(word), [(2, 3), (3,)], [(2, 3)]) for word in ("add", "multiply", "maximum")),
    *((o.function(word), [(2, 3), (3,)], [(2, 3)]) for word in ("divide", "power", "subtract")),
    (o.function("squared_difference"), [(2, 3), (2, 1)], [(2, 3)]),
    (o.where(), [(2, 3), (3,), ()], [(2, 3)]), (Accumulates([0, 1]), [(3,), (2,)], [(3,)]),
    (o.matmul(), [(2, 3), (3, 4)], [(2, 4)]), (o.dense(bias=2), [(2, 3), (4, 3), (4,)], [(2, 4)]),
    (o.reduced("sum", (0,)), [(2, 3)], [(3,)]), (o.reduced("mean", (0,)), [(2, 3)], [(3,)]),
    (o.variance("std", (0,), False, 1), [(2, 3)], [(3,)]), (o.softmax((1,)), [(2, 3)], [(2, 3)]),
    (o.norm((1,), 0.5), [(2, 3), (3,), (3,)], [(2, 3)]), (o.lrn(1, 5, 1, 1), [(2, 3)], [(2, 3)]),
    (o.batch_norm_in_training(3, 0.5), [(2, 3, 4), (3,), (3,)], [(2, 3, 4)]),
    (o.batch_norm(0.5, along=1), [(2, 3, 4), *[(3,)] * 4], [(2, 3, 4)]),
    (o.convolution(F, reads=(0, 1, 2)), [(2, 3, 4), (2, 3, 5), (5,)], [(2, 5, 4)]),
    (o.pool("max", F), [(2, 3, 4)], [(2, 3, 4)] * 2),
    (o.own_rows("w", (0,), rows=(1,)), [(2, 3), (2, 4), (5,)], [(2,)]),
    (Scans(0, "s", False, (2,), (), (2,), 1), [(3, 2, 2), (1,), (1, 2, 4)], [(3, 2, 4)] * 2),
    (Attends(), [(2, 4, 3), (2, 5, 3), (2, 5, 2), (4, 5)], [(2, 4, 2), (2, 4)]),
    (Encodes(mask=2), [(2, 3, 2), (1,), (2, 3)], [(2, 3, 2)]),
    (Recurs(reads=(0, 1, 2, 3, 4, 5)), [(3, 2, 2), (4, 2), (4, 4), (4,), (4,), (2, 4)],
     [(3, 2, 4), (2, 4)]),
    (o.concat(0), [(2, 3), (2, 3)], [(4, 3)]), (o.stack(0), [(2, 3), (2, 3)], [(2, 2, 3)]),
    (o.pad(((0, 1),)), [(3,)], [(4,)]), (o.take(0, [2, 0]), [(3,)], [(2,)]),
    (o.transpose((1, 0)), [(2, 3)], [(3, 2)]), (o.expand((3,), (2, 3)), [(3,)], [(2, 3)]),
    (Moves(lambda a, b: np.hstack([b, a])), [(3,), (2,)], [(5,)]),
]  # fmt: skip


def test_what_is_made_of_something_unknown_is_unknown() -> None:
    """Whichever of the operands it is."""
    for meaning, reads, gives in READING:
        labels = [of_content(np.random.default_rng(1).normal(size=shape)) for shape in reads]
        assert all(one.known for one in meaning.labels(labels, gives, tag(meaning.word)))
        for n in range(len(labels)):
            some = [one._replace(known=k != n) for k, one in enumerate(labels)]
            assert not meaning.labels(some, gives, tag(meaning.word))[0].known, (meaning, n)


def test_unknown_and_quantised_results_have_labels_of_their_own() -> None:
    first, second = Unknown().labels([X], [(2, 3)] * 2, tag("u"))
    assert not first.known and len({*first.full().flat, *second.full().flat}) == 12
    add = o.function("add")
    ways = [(None, None), (0.5, None), (0.25, None), (None, 0.5)]
    made = [_labels(Quantised(add, way, (None,)), X, Y)[0] for way in ways]
    made += [_labels(Quantised(add, (None, None), (scale,)), X, Y)[0] for scale in (0.5, 0.25)]
    assert made[0] == _labels(add, X, Y)[0] and len(np.unique(made)) == 36


def test_only_operands_that_count_are_read_and_others_come_behind() -> None:
    call = replace(CALL, reads=[Operand(n, (2, 3), "f") for n in range(3)])
    less = o.function("subtract")
    assert contract.reads_of(replace(call, reads=call.reads[:2]), less, 0, 1) is less
    for slots in ((1, 0), (2, 1), (0, 1)):
        made = contract.reads_of(call, less, *slots)
        reads = [X, Y, _applied("exp", X)]
        assert _labels(made, *reads) == _labels(less, *(reads[n] for n in slots))
    two = contract.reads_of(replace(call, gives=[(1, 3)] * 2), o.split(0, [(1, 3)] * 2), 1)
    assert _labels(two, X, Y, X) == Y.array.tolist()
    assert contract.then(call, less) is less
    assert contract.then(call, Unknown("w"), less) == Unknown("w")
    call = replace(call, reads=call.reads[:2])
    tanh = o.function("tanh")
    one = contract.then(call, less, tanh, (less, 1))
    wanted = _applied("subtract", _applied("tanh", _applied("subtract", X, Y)), Y)
    assert _labels(one, X, Y) == [wanted.full().reshape(-1).tolist()]
    assert _labels(contract.then(call, one, tanh), X, Y) == _labels(tanh, wanted)
    build = StepBuilder(2)
    build.add(o.split(0, [(1, 3)] * 2), (0,), (1, 3), (1, 3))
    call = replace(call, gives=[(1, 3)])
    (found,) = contract.then(call, build.done(), tanh).labels([X, Y], [(1, 3)], tag("t"))
    assert found.full().tolist() == _applied("tanh", X).full()[1:].tolist()
