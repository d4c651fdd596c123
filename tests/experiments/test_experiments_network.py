"""The experiment on a padded network, tried out on NumPy, and its notebook on what that stored."""

import runpy
from pathlib import Path

import pytest

from probe import load
from tests.experiments.notebooks import pictures

pytestmark = [pytest.mark.long, pytest.mark.slow]

SCRIPT = Path(__file__).parents[2] / "experiments" / "padded_network.py"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """The results of a quick run."""
    folder = tmp_path_factory.mktemp("padded_network")
    script = runpy.run_path(str(SCRIPT))
    assert not script["main"](["--quick", "--store", str(folder)], standalone_mode=False)
    return folder


def test_the_layer_that_switches_is_found_and_the_plan_avoids_it(store):
    found = load(store)
    own = found.activations[found.activations.own > 0]
    assert set(own.target) == {"reference,algorithm=pairwise,length_switch=9"}
    assert set(own.name) == {"conv4"} and set(own.cause) == {"order"}
    assert (own.replayed == own.own).all()
    lengths = found.padded_lengths
    assert (lengths.safe > lengths.least).any() and not lengths.differing_safe.any()
    exact = found.decisions[found.decisions.variant != "least"]
    assert not exact.differing.any() and not exact.crossed.any()


def test_the_notebook_draws_any_store(store, tmp_path):
    assert pictures("padded_network", store, tmp_path) >= 5


def test_what_is_stored_is_not_measured_twice(store, capsys):
    script = runpy.run_path(str(SCRIPT))
    script["main"](["--quick", "--store", str(store)], standalone_mode=False)
    assert "0 networks on targets measured, 2 were stored before" in capsys.readouterr().out
