"""The experiment on a padded network, tried out on NumPy, and its notebook on what that stored."""

import pytest

from probe import load
from tests.experiments.notebooks import pictures, ran

pytestmark = [pytest.mark.long, pytest.mark.slow]

EXPERIMENT = "padded_network"


def test_the_layer_that_switches_is_found_and_the_plan_avoids_it(quick):
    found = load(quick)
    own = found.activations[found.activations.own > 0]
    assert set(own.target) == {"reference,algorithm=pairwise,length_switch=9"}
    assert set(own.name) == {"conv4"} and set(own.cause) == {"order"}
    assert (own.replayed == own.own).all()
    lengths = found.padded_lengths
    assert (lengths.safe > lengths.least).any() and not lengths.differing_safe.any()
    exact = found.decisions[found.decisions.variant != "least"]
    assert not exact.differing.any() and not exact.crossed.any()


def test_the_notebook_draws_any_store(quick, tmp_path):
    assert pictures(EXPERIMENT, quick, tmp_path) >= 5


def test_what_is_stored_is_not_measured_twice(quick, capsys):
    ran(EXPERIMENT, quick)
    assert "0 networks on targets measured, 2 were stored before" in capsys.readouterr().out
