"""The fuzz draws the same trials again, and its referee agrees with probe, and can disagree."""

import sys
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas
import pytest

from probe import Case, Target, load, operands
from probe.comparison import Shapes
from probe.errors import InputError
from probe.experiments import fuzzing, planted, referee
from probe.experiments.fuzzing import Drawing, Trial, tried
from probe.launch import open_session
from probe.store import Store
from tests.experiments.notebooks import pictures

sys.path.insert(0, str(Path(__file__).parents[2] / "experiments"))
fuzz = import_module("fuzz")

PLAIN = Drawing({"float32": 1, "float64": 1}, {"normal": 1, "cancel": 1}, {"matmul": 1, "sum": 1})


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """The store of a quick run."""
    store = tmp_path_factory.mktemp("fuzz")
    assert not fuzz.main(["--quick", "--store", str(store)], standalone_mode=False)
    return store


def test_a_quick_run_explains_all_that_differs(quick):
    found = load(quick).trials
    assert len(found) == 24 and found.compared.notna().all()
    assert found.differing.sum() > 0 and (found.replayed == found.differing).all()
    assert not found.causes.str.contains("unexplained").any()
    assert found.unrefereed.notna().all(), "the reference has no library to call directly"


def test_a_quick_run_names_no_cause_that_was_not_planted(quick):
    found = load(quick).planted
    assert len(found) == fuzz.QUICK_PLANTED["numpy"] and found.reason.isna().all()
    assert set(found.answer) <= {"right", "unknown"}
    right = found[found.answer == "right"]
    words = {"order", "rounding", "precision", "flush", "place", "algorithm", "argument", "nothing"}
    assert words <= set(right.planted)


def test_a_false_cause_is_called_false():
    """A cause that was not planted, one where nothing was, and differences that no call shows."""
    answer = planted._answer
    assert answer("place", "place", 3, 3) == answer("order+rounding", "order", 3, 3) == "right"
    assert answer("place", "", 3, 3) == answer("place", "", 3, None) == "unknown"
    assert answer("place", "algorithm", 3, 3) == answer("nothing", "argument", 0, 0) == "false"
    assert answer("argument", "argument", 3, 0) == answer("place", "order+place", 3, 3) == "false"


@pytest.mark.parametrize("target", ["numpy"])
def test_planted_doubles_are_the_same_for_a_seed(target):
    count = len(planted.PLANTED[target])
    titles = [[planted.drawn(target, n, seed).title for n in range(count)] for seed in (1, 1, 2)]
    assert titles[0] == titles[1] != titles[2]


def test_a_second_run_tries_nothing_again(quick):
    names = ("trials", "planted")
    before = [getattr(load(quick), name).seconds.tolist() for name in names]
    fuzz.main(["--quick", "--store", str(quick)], standalone_mode=False)
    assert [getattr(load(quick), name).seconds.tolist() for name in names] == before


def test_its_notebook_runs_on_a_quick_run(quick, tmp_path):
    assert pictures("fuzz", quick, tmp_path) > 0


def test_a_longer_draw_begins_with_a_shorter_one():
    drawing = fuzz.TARGETS["tensorflow"]
    short, long = (drawing.trials("tensorflow", count, 3) for count in (20, 40))
    assert long[:20] == short
    assert drawing.trials("tensorflow", 20, 4) != short
    assert len({one.shapes.case.op for one in long}) > 4


@pytest.mark.parametrize("text", fuzz.TARGETS)
def test_every_target_and_kind_that_is_drawn_exists(text):
    try:
        Target.parse(text)
        assert len(fuzz.TARGETS[text].trials(text, 30, 5)) == 30
    except InputError as error:  # pragma: no cover
        pytest.fail(str(error))


@pytest.mark.check
def test_direct_calls_of_numpy_agree(tmp_path):
    with Store.here(tmp_path) as store:
        done = tried({"numpy": PLAIN.trials("numpy", 6, 0)}, store, "fuzz")
    found = load(tmp_path).trials
    assert done.found == 6 and found.refereed.notna().all()
    assert not found[["other", "missed", "false"]].to_numpy().any()


def test_a_referee_that_finds_other_bits_is_heard(monkeypatch):
    case = Case("matmul", in_channels=7, filters=3)
    trial = Trial(0, "numpy", Shapes.named(case, None, 4, 9, None))

    class Wrong:
        def outputs(self, side, given):
            y = referee.called("numpy", {}, side, given).copy()
            if side.length == 4:
                y[0, 0, 0] = np.nextafter(y[0, 0, 0], np.float32(np.inf))
            return y

    with open_session(Target.parse("numpy")) as session:
        sides = fuzzing._Sides(session, open_session)
        monkeypatch.setattr(sides, "_referee", lambda where: Wrong())
        row = sides.judged(trial)
    told = row["differing"]
    assert row["other"] == 1 and row["missed"] + row["false"] == 1
    assert told == 0 or row["false"] <= told


def test_what_has_no_direct_call_says_so():
    case = Case("conv1d", 3, length=9)
    said = pytest.raises(referee.Unrefereed, match="no direct call of numpy is written for")
    with referee.Referee(Target.parse("numpy")) as direct, said:
        direct.outputs(case, operands.generate(case))


def test_a_refused_trial_keeps_its_reason(tmp_path):
    trial = Trial(0, "numpy", Shapes.named(Case("conv1d", 3), None, 4, 9, None))
    with Store.here(tmp_path) as store:
        tried({"numpy": [trial]}, store, "fuzz")
    row = load(tmp_path).trials.iloc[0]
    assert pandas.isna(row.compared) and "unsupported" in row.reason
