"""Models under variations: rows of what was compared, and the notebook that draws them."""

from importlib import import_module

import pytest

from lib import answering, models, walking
from lib.frame import Experiment
from lib.models import Model, Variation
from probe import load

pytestmark = pytest.mark.long

EXPERIMENT = "real_models"
real_models = import_module(EXPERIMENT)


def test_a_quick_run_compares_every_operation_and_explains_what_differs(quick):
    walks, sources = load(quick).walks, load(quick).sources
    assert len(walks) == 2 and walks.reason.isna().all()
    assert (walks.examined == walks.operations).all() and (walks.one_side == 0).all()
    assert ((walks.verdict == "differs") == (walks.differing > 0)).all()
    assert len(sources) == (walks.sources + walks.own).sum()
    assert (sources.alone == 1).all() and (sources.replayed == sources.examined).all()


def test_a_model_that_is_not_there_is_a_row_with_the_reason(tmp_path, monkeypatch):
    def sides(_):
        raise ImportError("no such package")

    lost = Model("lost", "numpy", "none", (Variation("batch", "1", "8"),), sides)
    monkeypatch.setattr(walking, "every", lambda: [lost])
    monkeypatch.setattr(answering, "in_process", lambda function, some: function(some))
    done = walking.walk_all(Experiment("real_models", tmp_path), [lost], tmp_path)
    assert list(done.failures.values()) == [["ImportError: no such package"]]
    assert load(tmp_path).walks.reason.tolist() == ["ImportError: no such package"]


def test_every_model_has_a_name_of_its_own_on_its_target():
    names = [(one.name, one.target) for one in models.every()]
    assert len(set(names)) == len(names) > 10
    for one in models.every():
        assert len(set(one.variations)) == len(one.variations)
