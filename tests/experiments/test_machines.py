"""Processors side by side: every comparison that two machines have is counted, and counted once."""

from pathlib import Path

import pytest

from lib import machines

STORE = Path(__file__).parents[2] / "results" / "devices"


@pytest.fixture(scope="module")
def found():
    return machines.by_machine(STORE)


def test_machines_are_told_by_their_processors(found):
    assert len(found) >= 2
    assert not [name for name in found if "(R)" in name or "Processor" in name]


def test_two_copies_of_one_machine_agree_in_everything(found):
    name, one = next(iter(found.items()))
    twice = {name: one, "again": one}
    counts = machines.agreement(twice, (name, "again"))
    assert counts["same bits"].sum() == counts.to_numpy().sum() > 0
    told = machines.summations(twice)
    assert (told["on all"] > 0).any() and not told.drop(columns="on all").to_numpy().any()


def test_what_both_have_is_counted_once(found):
    pair = machines.pairs(found)[0]
    counts = machines.agreement(found, pair)
    questions = [set(map(tuple, one.comparisons[machines.PLACE].values)) for one in found.values()]
    assert counts.to_numpy().sum() <= len(set.intersection(*questions))
    for name in pair:
        mine = found[name].comparisons
        assert counts[f"changes only on {name}"].sum() <= (mine.differing > 0).sum()


def test_a_way_that_one_machine_alone_has_is_its_own(found):
    told = machines.summations(found)
    assert (told.to_numpy() >= 0).all()
    assert told.filter(like="only on ").to_numpy().sum() > 0, "AMX and AVX-512 add otherwise"


def test_verdicts_on_models_are_counted_once_and_by_machine():
    name, one = next(iter(machines.by_machine(STORE.parent / "real_models").items()))
    other = one.walks.copy()
    changed = (other.verdict == "equal").idxmax()
    other.loc[changed, "verdict"] = "differs"
    again = type("Changed", (), {"runs": one.runs, "walks": other})()
    counts = machines.walks({name: one, "again": again}, (name, "again"))
    known = one.walks.verdict.isin(["equal", "differs"]).sum()
    assert counts.to_numpy().sum() == known and counts["differs only on again"].sum() == 1
    assert counts["differs on both"].sum() == (one.walks.verdict == "differs").sum()
    assert not counts[f"differs only on {name}"].any()
