"""A quick run of the experiment: NumPy's checks against two locks."""

from __future__ import annotations

from importlib import import_module

import pytest

import probe

EXPERIMENT = "lock"
script = import_module(EXPERIMENT)

pytestmark = pytest.mark.long


@pytest.mark.slow
def test_a_quick_run_has_no_false_alarm(quick):
    rows = probe.load(quick).measurements
    assert not rows.duplicated(["subject", "variant", "size", "repeat"]).any()
    verdicts = rows[rows.unit == "exit status"]
    assert set(verdicts.value) <= {0, 3}
    own = verdicts.variant.map(lambda text: len(set(text.split(" | "))) == 1)
    assert not verdicts[own].value.any()  # a lock of the same conditions knows them
    assert not verdicts[verdicts.variant.str.startswith("all | ")].value.any()


def test_checks_are_of_seven_libraries_and_every_change_moves_something():
    checks = script.CHECKS
    assert len(checks) == 11
    assert len({name.split()[0] for name in checks}) == 7
    assert all(one.old != one.new or one.edit[0] in script.FUNCTIONS for one in script.CHANGES)
    assert len({one.name for one in script.CHANGES}) == len(script.CHANGES)
