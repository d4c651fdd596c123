"""Findings of the committed length sweep, at random: each becomes a script that confirms it.

``PROBE_SAMPLE=200 pytest -m slow -k reproduction_store`` takes as many as you like.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lib.trials import attempt, draw
from probe import load, machine
from probe.store import Store

STORE = Path(__file__).parents[2] / "results" / "length_sweep"
SAMPLE = int(os.environ.get("PROBE_SAMPLE", "4"))


@pytest.mark.slow
def test_random_findings_of_the_length_sweep_are_confirmed_by_scripts(tmp_path):
    if not (STORE / machine.label()).is_dir():
        pytest.skip(f"{machine.label()}: the length sweep was not measured on this machine")
    with Store.here(tmp_path) as store:
        tried = attempt(draw(STORE, SAMPLE), store, "reproductions", 1)
    found = load(tmp_path)
    if not found.failures.empty:
        pytest.skip("; ".join(found.failures.message))
    measured = load(STORE / machine.label()).runs.library_version
    if set(found.runs.library_version) - set(measured):
        pytest.skip("measured with another release")
    assert tried.found == SAMPLE, tried.failures
    rows = found.reproductions
    assert (rows.replayed == rows.small_compared).all() and (rows.tries <= 300).all()
