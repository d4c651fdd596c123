"""Runs of a case: executed, revealed and replayed, each a new value; what a revealer keeps."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

import probe
from probe.case import floats
from probe.case.case import Case
from probe.case.errors import InputError
from probe.explain import runs
from probe.explain.runs import Finding, Revealer, outputs_of_call, run_case
from probe.order import window
from probe.order.orders import reveal
from probe.order.tree import Tree
from probe.sweep.bits import sweep_cases
from probe.sweep.store import Store
from probe.targets.launch import open_session
from probe.targets.target import Target
from tests.convolutions import explain_case

CASE = Case("matmul", in_channels=5, filters=3, length=12)


@pytest.fixture(scope="module")
def session():
    with open_session(Target.parse("reference"), inline=True) as found:
        yield found


@pytest.fixture(scope="module")
def neighbour():
    with open_session(Target.parse("reference,algorithm=neighbour"), inline=True) as found:
        yield found


def test_a_run_is_a_value_and_what_is_found_out_makes_another_one(session):
    run = run_case(session, CASE)
    found = run.reveal(session)
    assert run.orders is None and run.summation((0, 0)) is None and not run.replays.any()
    assert found.summation((11, 2)).tree == Tree.sequential(5) and found.replays.all()
    assert found.operands is run.operands and run.windows is None
    assert found.orders.sets == runs.run_and_reveal(session, CASE).orders.sets > 12
    with pytest.raises(FrozenInstanceError):
        run.orders = found.orders
    with pytest.raises(FrozenInstanceError):
        found.orders.calls = 0


def test_what_infinities_reach_is_asked_once(neighbour):
    run = run_case(neighbour, CASE.with_(put="x[0, 3, 1]=nan"))
    assert run.reach is None
    found = run.reveal(neighbour)
    assert found.reached[2].all() and not found.reached[[0, 1, 3, 4]].any()
    assert found.replays.all()
    again = found.with_orders(neighbour, found.orders)
    assert again.reach is found.reach and (again.reached == found.reached).all()
    assert run_case(neighbour, CASE).reveal(neighbour).reach is None


def test_an_output_that_something_reaches_is_nan_by_itself_where_its_own_sum_is(neighbour):
    """Two orders of which one overflows to infinity less infinity, in a row beside a NaN."""
    large = "; ".join(
        f"x[0, 2, {n}]={number}" for n, number in enumerate((3e38, 3e38, -3e38, -3e38))
    )
    case = CASE.with_(in_channels=4, operands="ones", put=f"{large}; x[0, 3, 1]=nan")
    run = run_case(neighbour, case).reveal(neighbour)
    chain, pairs = (
        run.orders.summations[0]._replace(tree=t(4)) for t in (Tree.sequential, Tree.pairwise)
    )
    for summations in ([chain, pairs], [pairs, chain]):
        for number in (0, 1):
            index = np.full_like(run.orders.index, number)
            orders = replace(run.orders, summations=summations, index=index)
            found = run.with_orders(neighbour, orders)
            assert (found.reached[2] == (summations[number] is chain)).all()


def test_an_output_that_reads_nothing_replays_where_it_is_0(session, neighbour):
    run = run_case(neighbour, CASE.with_(put="x[0, 3, 1]=nan")).reveal(neighbour)
    index, even = run.orders.index.copy(), np.arange(12)[:, None] % 2 == np.zeros(3)
    index[:6] = -1
    y = run.operands.y.copy()
    y[4] = 0
    some = replace(run, operands=replace(run.operands, y=y))
    for replayed, rows in ((even, [2, 4]), (~even, [])):  # row 2 is NaN by what reaches it
        orders = replace(run.orders, index=index, replayed=replayed)
        found = some.with_orders(neighbour, orders)
        assert found.replays.all(axis=1).nonzero()[0].tolist() == [*rows, *range(6, 12)]
        assert found.replays.any(axis=1).sum() == len(rows) + 6
    plain = run_case(session, CASE)  # of finite operands it can be nothing else
    assert (plain.with_orders(session, replace(orders, index=index)).replays[:6] == ~even[:6]).all()


@pytest.mark.parametrize(
    ("layout", "control", "same"),
    [
        ("contiguous", "equal", True),
        ("contiguous", "equal", False),
        ("contiguous", runs.ALIGNMENT, True),
        ("transposed", "equal", True),
    ],
)
def test_bits_that_go_with_the_address_are_asked_at_a_fixed_one_that_gives_them(
    session, layout, control, same
):
    def request(header, arrays):
        spec = dict(header["spec"])
        pinned = spec.pop("layout", "") == runs.PINNED
        told, found = session.request(header | {"spec": spec}, arrays)
        told |= {"control": control if pinned else runs.ALIGNMENT}
        return told, {"y": found["y"] + np.float32(pinned and not same)}

    fake = SimpleNamespace(target=Target.parse("numpy"), request=request)
    run = run_case(fake, CASE.with_(layout=layout))
    found = run.case.layout, run.control, run.refusal
    if layout == "contiguous" and control == "equal" and same:
        assert found == (runs.PINNED, "equal", "")
    else:
        assert found == (layout, runs.ALIGNMENT, "alignment")


def test_known_summations_that_do_not_give_the_bits_are_given_up(session, monkeypatch):
    run = run_case(session, CASE)
    right = run.reveal(session).orders
    wrong = replace(right, summations=[right.summations[0]._replace(tree=Tree.pairwise(5))])
    for answer, wanted in ((right, [1]), (wrong, [1, 0])):
        asked = []

        def reveal(session, case, known, *more, answer=answer, asked=asked):
            asked.append(len(known))
            return answer if known else right

        monkeypatch.setattr(runs, "reveal", reveal)
        found = run.reveal(session, right.summations)
        assert found.orders is right and found.replays.all() and asked == wanted
    revealer = Revealer(kept=1)
    odd = replace(run, operands=replace(run.operands, y=run.operands.y + 1))
    for one, count in ((run, 1), (run, 0), (odd, 2)):  # kept orders are asked anew if they fail
        asked.clear()
        revealer.reveal(one, session)
        assert len(asked) == count


SOME = np.arange(36).reshape(12, 3) == 7


@pytest.mark.parametrize("wanted", [None, SOME], ids=["all", "one"])
@pytest.mark.parametrize("kept", [0, 1, 2, None])
def test_a_revealer_keeps_the_orders_of_so_many_shapes(session, kept, wanted):
    revealer, calls = Revealer(kept=kept) if kept != 0 else Revealer(), []
    request = session.stream

    def counted(header, arrays):
        calls.extend(["masks"] * (header["do"] == "masks"))
        return request(header, arrays)

    cases = [CASE.with_(length=length) for length in (3, 4, 3, 4)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "stream", counted)
        asked = []
        for case in cases:
            before = len(calls)
            run, some = run_case(session, case), None if wanted is None else wanted[: case.length]
            found = revealer.reveal(run, session, some)
            asked.append(len(calls) > before)
            assert (found.replays == (True if some is None else some)).all()
            refused = replace(run, refusal="nondeterministic")
            assert revealer.recall(refused, session) is None
            assert (revealer.recall(run, session) is None) == (kept == 0)
    assert asked == [True, True, *[kept in (0, 1)] * 2]
    assert revealer.recall(run_case(session, CASE), session) is None
    assert revealer.summations == found.orders.summations


@pytest.mark.parametrize(("small", "all_"), [(36, True), (35, False)])
def test_of_few_outputs_all_are_revealed(session, small, all_):
    found = Revealer(small=small).reveal(run_case(session, CASE), session, SOME)
    assert found.replays[2, 1] and found.replays.all() == all_


def test_a_finding_gives_each_side_the_prefix_of_its_operands():
    case = Case("conv1d", 3, 2, 4, bias="normal")
    found = Finding.of(case, "length", 5, 9)
    assert [found.operands(side)[0].shape for side in (found.left, found.right)] == [
        (1, 5, 2),
        (1, 9, 2),
    ]
    assert (found.operands(found.left)[0] == found.x[:, :5]).all()
    sides = (window.Geometry.of(side) for side in (found.left, found.right))
    assert found.blocks() == window.agreeing_blocks(*sides)
    assert found.blocks(True) == (tuple(slice(0, n) for n in found.left.output_shape()),)
    assert found.case.length == 9 and found.case.bias == "normal"
    batch = Finding.of(case.with_(length=6), "batch", 2, 3)
    shapes = [batch.operands(side)[0].shape for side in (batch.left, batch.right)]
    assert shapes == [(2, 6, 2), (3, 6, 2)] and batch.reshaped(against=4).x.shape == (4, 6, 2)
    parts = Finding.of(case.with_(length=6), "channels", 1, 2).reshaped(against=5)
    assert (parts.case.in_channels, parts.left.split, parts.x.shape) == (5, 1, (1, 6, 5))
    few = Finding.of(case.with_(length=6), "filters", 1, 4)
    x, w, b = few.operands(few.left)
    assert w.shape == (3, 2, 1) and b.shape == (1,) and x.shape == (1, 6, 2)
    assert (w == few.w[..., :1]).all() and (b == few.b[:1]).all()
    with pytest.raises(InputError, match="length=None: the length is not given"):
        Finding.of(case, "batch", 1, 2)


def test_a_reshaped_finding_keeps_its_operands_where_they_are_enough():
    case = Case("conv1d", 3, 2, 4, bias="normal")
    found = Finding.of(case, "length", 5, 9)
    own = found.with_operands(found.x + np.float32(1), found.w, found.b)
    assert (own.reshaped(at=4, against=8).x == own.x[:, :8]).all(), "given, not drawn"
    none = replace(own, case=case.with_(bias=None), b=None)
    assert (none.reshaped(at=4, against=8).x == own.x[:, :8]).all()
    less = found.reshaped(at=4, against=8, filters=2)
    assert (less.left.length, less.right.length, less.w.shape) == (4, 8, (3, 2, 2))
    assert (less.x == found.x[:, :8]).all() and (less.w == found.w[..., :2]).all()
    assert (less.b == found.b[:2]).all()
    assert none.reshaped(bias="normal").b.shape == (4,)
    more = found.reshaped(against=10)
    assert (
        more.case.length == 10 and more.x.shape == (1, 10, 2) and (more.x[:, :9] == found.x).all()
    )
    plain = found.reshaped(bias=None)
    assert plain.b is None and plain.key != found.key
    zeros = found.with_operands(np.zeros_like(found.x), found.w, found.b)
    assert zeros.to_json()["not_zero"] == {"x": 0, "w": 24, "b": 4}
    assert zeros.key != found.key and found.drawn_as("cancel", 3).key[-1] == "cancel 3"
    assert found.drawn_as("cancel").key[-1] == "cancel 0"


# One call for all channels against two calls whose outputs are added.

REFERENCE = Target.parse("reference")
SPLIT = Case("conv1d", 3, in_channels=6, filters=2, length=9, operands="cancel", padding="same")


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_a_split_case_is_the_sum_of_two_calls(session, dtype):
    case = SPLIT.with_(dtype=dtype, bias="normal", operands="normal")
    x, w, b = (floats.to_container(one, dtype) for one in case.operands())
    whole, parts = outputs_of_call(session, case.with_(split=2), (x, w, b)), []
    for n, bias, channels in ((2, b, slice(0, 2)), (4, None, slice(2, 6))):
        part = case.with_(in_channels=n, bias=None if bias is None else "normal")
        given = map(np.ascontiguousarray, (x[..., channels], w[:, channels]))
        parts.append(floats.from_container(outputs_of_call(session, part, (*given, bias)), dtype))
    assert (floats.from_container(whole, dtype) == parts[0] + parts[1]).all()


def test_its_tree_is_the_sum_of_the_trees_of_both(session):
    case = Case("matmul", in_channels=7, filters=2, length=3, split=3, bias="normal")
    ((tree, _),) = reveal(session, case).summations
    assert tree == Tree.parse("((((0+1)+2)+b)+(((3+4)+5)+6))")
    ((tree, _),) = reveal(session, Case("sum", None, 7, 1, 2, split=2)).summations
    assert tree == Tree.parse("((0+1)+((((2+3)+4)+5)+6))")


@pytest.mark.slow
def test_both_halves_are_cut_to_16_bits_before_they_are_added(started):
    case = Case("matmul", in_channels=20, filters=3, length=2, split=9, dtype="float16")
    assert reveal(started("tensorflow"), case).replayed.all()


@pytest.mark.parametrize("at", [1, 3, 5])
def test_every_difference_is_explained_by_the_order(at):
    found = explain_case(SPLIT, REFERENCE, at, 6, vary="channels", inline=True)
    assert found.compared == found.replayed == found.by_order == 18
    assert set(found.causes) == {"order"} and len(found.differing) > 0
    assert (found.left.case.split, found.right.case.split) == (at, None)


@pytest.mark.long
def test_a_sweep_over_channels_stores_what_differs(session, tmp_path):
    opens = partial(open_session, inline=True)
    with Store(tmp_path) as store:
        found = sweep_cases([SPLIT], [REFERENCE], range(1, 7), "channels", store, opens=opens)
    stored = probe.load(tmp_path)
    assert sorted(stored.comparisons["at"]) == [1, 2, 3, 4, 5]
    assert set(stored.comparisons["vary"]) == {"channels"}
    assert set(stored.comparisons["compared"]) == {18}
    assert (stored.comparisons["differing"] > 0).all()
    assert found.targets["reference"].differing == stored.comparisons["differing"].sum()
    half = outputs_of_call(session, SPLIT.with_(split=3)).ravel()
    rows = stored.differences[stored.differences["at"] == 3]
    assert (half.view(np.uint32)[rows["index"]] == rows["bits_at"]).all()
