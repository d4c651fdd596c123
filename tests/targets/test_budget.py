"""A budget of time: it ends in time, what was left out is said, and nothing is lost."""

from __future__ import annotations

import json

import pytest

from probe.case.errors import InputError
from probe.targets import budget
from probe.ui.cli import shell


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("30m", 1800), ("2h", 7200), ("1h30m", 5400), (" 0.5S ", 0.5)],
)
def test_times_are_read_with_their_units(text, seconds):
    assert budget.seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "m", "-3m", "0s", "1e9h", "3d", "nan", "9" * 8 + "h"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(InputError, match="time=.*90s, 30m"):
        budget.seconds(text)


SWEEP = "sweep --op sum --in-channels 9 --lengths 1..40 --target numpy --target reference --time"


def test_the_command_says_what_was_left_out(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(budget.Budget, "over", True)
    words = [*SWEEP.split(), "1s", "--store", str(tmp_path)]
    assert shell.run([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["time"] == 1 and found["left_out"] == {"comparisons": 78}
    for name in ("numpy", "reference"):
        one = found["targets"][name]
        assert one["left_out"] == {"comparisons": 39, "lengths": "1..39"} and not one["failures"]
    assert shell.run(words) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "78 of 78 comparisons were left out" in out and "not run" in out
    monkeypatch.undo()
    assert shell.run([*words[:-3], "10m", "--store", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["left_out"] == {"comparisons": 0} and found["comparisons"] == 78


@pytest.mark.parametrize("more", ["30x", "1m --by order"])
def test_a_time_that_cannot_be_is_one_line(more, capsys):
    assert shell.run([*SWEEP.split(), *more.split()]) == 2
    assert capsys.readouterr().err.startswith("probe: time=")
