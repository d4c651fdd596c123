"""One call for all channels against two calls whose outputs are added."""

from __future__ import annotations

import numpy as np
import pytest

import probe
from probe import floats, window
from probe.case import Case
from probe.errors import InputError
from probe.launch import InlineSession, open_session
from probe.store import Store
from probe.summation.orders import reveal
from probe.summation.tree import Tree
from probe.sweeps import sweep_cases
from probe.switch_points import by_order
from probe.target import Target
from tests.backends import conforming
from tests.convolutions import explain_case

pytestmark = pytest.mark.long

REFERENCE = Target.parse("reference")
CASE = Case("conv1d", 3, in_channels=6, filters=2, length=9, operands="cancel", padding="same")


def inline(target):
    return open_session(target, inline=True)


def run(case, session=None):
    x, w, b = (None if a is None else floats.to_container(a, case.dtype) for a in case.operands())
    session = session or InlineSession(REFERENCE).start()
    return conforming.run(session, case.spec(), x, w, b)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_a_split_case_is_the_sum_of_two_calls(dtype):
    case = CASE.with_(dtype=dtype, bias="normal", operands="normal")
    x, w, b = case.operands()
    first, second = case.with_(in_channels=2), case.with_(in_channels=4, bias=None)
    session, parts = InlineSession(REFERENCE).start(), []
    for part, channels in ((first, slice(0, 2)), (second, slice(2, 6))):
        arrays = (floats.to_container(a, dtype) for a in (x[..., channels], w[:, channels]))
        bias = floats.to_container(b, dtype) if part.bias else None
        y = conforming.run(session, part.spec(), *map(np.ascontiguousarray, arrays), bias)
        parts.append(floats.from_container(y, dtype))
    assert (floats.from_container(run(case.with_(split=2)), dtype) == parts[0] + parts[1]).all()


def test_its_tree_is_the_sum_of_the_trees_of_both():
    case = Case("matmul", in_channels=7, filters=2, length=3, split=3, bias="normal")
    ((tree, _),) = reveal(InlineSession(REFERENCE).start(), case).summations
    assert tree == Tree.parse("((((0+1)+2)+b)+(((3+4)+5)+6))")
    ((tree, _),) = reveal(
        InlineSession(REFERENCE).start(), Case("sum", None, 7, 1, 2, split=2)
    ).summations
    assert tree == Tree.parse("((0+1)+((((2+3)+4)+5)+6))")


@pytest.mark.slow
def test_both_halves_are_cut_to_16_bits_before_they_are_added(started):
    case = Case("matmul", in_channels=20, filters=3, length=2, split=9, dtype="float16")
    assert reveal(started("tensorflow"), case).replayed.all()


@pytest.mark.parametrize("at", [1, 3, 5])
def test_every_difference_is_explained_by_the_order(at):
    found = explain_case(CASE, REFERENCE, at, 6, vary="channels", inline=True)
    assert found.compared == found.replayed == found.by_order == 18
    assert set(found.causes) == {"order"} and len(found.differing) > 0
    assert (found.left.case.split, found.right.case.split) == (at, None)


def test_the_larger_value_says_how_many_channels_there_are():
    found = explain_case(CASE.with_(in_channels=1), REFERENCE, 8, 4, vary="channels", inline=True)
    assert found.left.case.in_channels == found.right.case.in_channels == 8
    assert (found.left.case.split, found.right.case.split) == (None, 4)


def test_explicit_weights_are_those_of_the_first_channels():
    case = Case("conv1d", 2, in_channels=3, length=4, weights=[1, 2, 3, 4, 5, 6])
    assert window.case_for(case, "channels", (2,)).weights == (1, 2, 4, 5)
    with pytest.raises(InputError, match="channels=4: weights are given for 3 channels only"):
        window.case_for(case, "channels", (4,))


def test_an_axis_says_its_value_and_its_limits():
    assert window.value_on_axis(window.case_at(CASE, "channels", 2), "channels") == 2
    assert window.value_on_axis(CASE, "channels") == 6
    assert window.value_on_axis(CASE.with_(length=None), "length") is None
    with pytest.raises(InputError, match="channels=7: the case has 6 channels to split"):
        window.case_at(CASE, "channels", 7)
    with pytest.raises(InputError, match="split=1: the channels of 2 groups"):
        window.case_at(CASE.with_(groups=2), "channels", 1)


def test_all_outputs_must_agree():
    found = window.agreement(CASE, "channels", 2, 6)
    assert found.compared == 18 and found.not_compared == 0 and not found.reason


def test_a_sweep_over_channels_stores_what_differs(tmp_path):
    with Store(tmp_path) as store:
        found = sweep_cases([CASE], [REFERENCE], range(1, 7), "channels", store, opens=inline)
    stored = probe.load(tmp_path)
    assert sorted(stored.comparisons["at"]) == [1, 2, 3, 4, 5]
    assert set(stored.comparisons["vary"]) == {"channels"}
    assert set(stored.comparisons["compared"]) == {18}
    assert (stored.comparisons["differing"] > 0).all()
    assert found.targets["reference"].differing == stored.comparisons["differing"].sum()
    half = run(CASE.with_(split=3)).ravel()
    rows = stored.differences[stored.differences["at"] == 3]
    assert (half.view(np.uint32)[rows["index"]] == rows["bits_at"]).all()


def test_a_sweep_by_order_finds_every_output():
    with inline(REFERENCE) as session:
        found = by_order.sweep_by_order(session, CASE.with_(operands="ones"), [2, 4, 6], "channels")
    assert found.differing == found.compared == 36
