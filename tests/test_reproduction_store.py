"""Findings of the committed length sweep, at random: each becomes a script that confirms it.

``PROBE_SAMPLE=200 pytest -m slow tests/test_reproduction_store.py`` takes as many as you like.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from probe import load, machine, target
from probe.case import Case
from probe.reproduction import folder
from probe.reproduction.failing import failing
from probe.shrink import Finding
from probe.target import Target

STORE = Path(__file__).parent.parent / "results" / "length_sweep"
SAMPLE = int(os.environ.get("PROBE_SAMPLE", "4"))


@pytest.mark.slow
def test_random_findings_of_the_length_sweep_are_confirmed_by_scripts():
    if not (STORE / machine.label()).is_dir():
        pytest.skip(f"{machine.label()}: the length sweep was not measured on this machine")
    stored = load(STORE / machine.label())
    table = stored.comparisons
    chosen = random.Random(1).sample(list(table.index[table["differing"] > 0]), SAMPLE)
    cases = dict(zip(stored.cases["case_id"], stored.cases["json"], strict=True))
    versions = dict(zip(stored.runs["run_id"], stored.runs["library_version"], strict=True))
    confirmed = 0
    for name, group in table.loc[chosen].groupby("target"):
        where = Target.parse(name)
        if why := target.unavailable(where):
            pytest.skip(f"{name}: {why}")
        with failing(where) as failed:
            if failed.first.facts["library_version"] not in set(map(versions.get, group["run_id"])):
                pytest.skip(f"{name}: measured with another release")
            for one in group.to_dict("records"):
                case = Case.from_json(cases[one["case_id"]])
                finding = Finding.of(case, one["vary"], one["at"], one["against"])
                made = folder.proved(failed, finding, times=1)
                assert made.explanation.replayed == len(made.explanation.pairs.left)
                assert made.shrunk.calls <= 300
                confirmed += made.ran.verdict == "still there"
    assert confirmed == SAMPLE
