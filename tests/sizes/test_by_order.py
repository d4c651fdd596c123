"""Sweeps by order find what operands hide, and what is found fits the store."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import probe
from probe.case.case import Case
from probe.case.errors import InputError, TargetError
from probe.sizes import by_order
from probe.sweep.store import Store, load
from probe.targets.launch import InlineSession, open_session
from probe.targets.target import Target

CASE = Case(op="conv1d", kernel=5, in_channels=2)


def swept(target: str, case: Case, values, vary: str = "length", **how) -> by_order.ByOrder:
    with open_session(Target.parse(target), inline=True) as session:
        return by_order.sweep_by_order(session, case, list(values), vary, **how)


def test_every_output_of_the_other_order_is_found() -> None:
    found = swept("reference,length_switch=5", CASE, range(5, 13))
    by_length = {one.at: one for one in found.values}
    assert [one.at for one in found.values if one.outputs] == [5, 6, 7, 8]
    assert all(by_length[n].outputs == by_length[n].compared == n - 4 for n in range(5, 9))
    assert by_length[6].causes == {"order": 2} and by_length[6].first == 0
    assert found.compared == sum(range(1, 8)) and found.differing == 10
    assert found.to_json()["unknown"] == 0


def test_operands_without_rounding_hide_nothing() -> None:
    found = swept("reference,length_switch=5", CASE.with_(operands="ones"), [6, 12])
    assert found.differing == 2


@pytest.mark.slow
def test_padding_is_no_other_order() -> None:
    case = CASE.with_(padding="same", stride=2, filters=2)
    found = swept("reference,algorithm=pairwise", case, range(3, 16))
    assert found.compared > 0 and found.differing == 0


def test_the_batch_can_be_varied() -> None:
    found = swept("reference", CASE.with_(length=8), [1, 2, 3], "batch")
    assert found.compared == 4 + 8 and found.differing == 0
    assert found.to_json()["vary"] == "batch"


def test_what_has_no_order_is_counted_not_guessed() -> None:
    case = Case(op="conv1d", kernel=3, filters=2)
    found = swept("reference,algorithm=winograd", case, [6, 7, 8])
    assert found.differing == 0
    assert found.compared == sum(one.unknown for one in found.values) or any(
        one.refusal for one in (found.base, *found.values)
    )
    random = swept("reference,algorithm=random", CASE.with_(in_channels=40), [8, 9])
    assert random.to_json()["refused"] == [
        {"length": 8, "why": "nondeterministic"},
        {"length": 9, "why": "nondeterministic"},
    ]


def test_json_and_rows_fit_what_is_fixed(tmp_path: Path) -> None:
    found = swept("reference,length_switch=5", CASE, [6, 9, 12])
    told = json.loads(json.dumps(found.to_json()))
    assert told["lengths"] == [{"length": 6, "outputs": 2, "causes": {"order": 2}, "first": 0}]
    assert (told["compared"], told["differing"], told["against"]) == (7, 2, 12)
    assert [(one["outputs"], one["at"]) for one in told["orders"]] == [(13, [9, 12]), (2, [6])]
    tables = found.rows("0" * 16)
    with Store(tmp_path / "m") as store:
        for name, each in tables.items():
            store.append(name, each)
    assert len(load(tmp_path).arrow("reveals")) == 3
    counted = {name: len(each) for name, each in tables.items()}
    assert counted == {"reveals": 3, "orders": 2, "roundings": 2}
    assert tables["reveals"][0]["ranges"] == [0, 2]
    assert all(row["replayed"] == row["outputs"] for row in tables["reveals"])


def test_known_ways_cost_no_questions_for_long_sums() -> None:
    case = Case(op="conv1d", kernel=5, in_channels=16)
    found = swept("reference,algorithm=blocked", case, [8, 9, 10])
    counted = [one.orders.calls for one in (found.base, *found.values) if one.orders]
    assert counted[0] > 10 * max(counted[1:])


def test_it_says_on_how_many_sets_the_orders_were_replayed() -> None:
    case = Case(op="conv1d", kernel=5, in_channels=8, filters=2, padding="same", bias="normal")
    sure = swept("reference,length_switch=9", case, [5, 8, 12])
    told = json.loads(json.dumps(sure.to_json()))
    assert sure.differing and told["sets"] == min(
        row["sets"] for row in sure.rows("0" * 16)["reveals"]
    )
    assert "certified" not in told and told["sets"] >= 11
    refused = swept("reference,algorithm=winograd", Case(op="conv1d", kernel=3), [8, 9])
    assert refused.to_json()["sets"] == 0


def test_a_failure_is_told_and_the_sweep_goes_on(monkeypatch) -> None:
    plain = InlineSession.request

    def failing(self, header, arrays=None):
        if header["do"] == "run" and arrays is not None and arrays["x"].shape[-2] == 7:
            raise TargetError("reference", "memory", "no room")
        return plain(self, header, arrays)

    monkeypatch.setattr(InlineSession, "request", failing)
    found = swept("reference", CASE, [6, 7, 8])
    assert [one.refusal for one in found.values] == ["", "memory: no room"]


def test_one_value_is_no_sweep() -> None:
    with pytest.raises(InputError, match="two or more"):
        swept("reference", CASE, [6])


@pytest.mark.slow
def test_nothing_is_said_to_add_alike_where_nothing_is_compared_or_known():
    """Windows of SAME with a stride begin between each other; Winograd adds no products."""
    strided = Case("conv1d", 5, in_channels=1, filters=1, stride=2, padding="same")
    found = probe.sweep(strided, [7, 8], "reference", by="order")
    assert found.lines()[2] == "no length has outputs that must agree with those of the longest"
    assert probe.sweep(strided, [7, 8], "reference").lines()[2] == found.lines()[2]
    partly = probe.sweep(strided, [6, 7, 8, 9], "reference").lines()[2]
    said = "every output that must agree with one of the longest does, with these operands"
    assert partly == said
    square = Case("conv2d", 3, in_channels=4, filters=2, height=4)
    found = probe.sweep(square, [4, 5], "reference,algorithm=winograd", by="order")
    assert found.lines()[2] == "none of those that are known is added differently"
