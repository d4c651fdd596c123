"""A budget of time: what is likely to differ comes first, it ends in time, nothing is lost."""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import pytest

import probe
from probe import budget, printing, progress
from probe.backends.reference import Reference
from probe.case import Case
from probe.cli import shell
from probe.errors import InputError
from probe.store import Store
from probe.sweeps import sweep_cases
from probe.sweeps.bits import Ranking
from tests.sweeps.test_bits import CASE, REFERENCE, SWITCHING, failures, faulty, inline


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


def limited(count: int, cases, targets, lengths, **options):
    """A sweep whose time is up after so many comparisons."""
    with budget.within("1h") as allowed:

        def tell(done: int, total: int, what: str) -> None:
            if done >= count:
                allowed._end = 0.0

        return sweep_cases(
            cases, targets, lengths, progress=tell, opens=inline, workers=1, **options
        )


def values(found, target) -> set:
    return {one.at for one in found.targets[target].differences}


PLANTED = {
    "the largest": lambda n: n >= 940,
    "an island": lambda n: 600 <= n < 650,
    "tails of packets": lambda n: n % 8 == 5,
    "a tail below a switch": lambda n: n % 16 in (1, 2, 3) and n < 700,
    "two islands": lambda n: 300 <= n < 320 or 877 <= n < 930,
}


@pytest.fixture
def numpy_double(monkeypatch):
    """numpy_double(differs): NumPy's convolution, a few ulps larger at lengths that differ."""
    plain = Reference.operator

    def plant(differs):
        def operator(self, spec):
            made = plain(self, spec)
            call = made.call

            def planted(x, w, b):
                y = np.asarray(call(x, w, b))
                at = y.shape[-1] + 2  # the kernel has 3
                return y * (1 + 2.0**-20) if differs(at) and at < 1012 else y

            made.call = planted
            return made

        monkeypatch.setattr(Reference, "operator", operator)

    return plant


@pytest.mark.parametrize("planted", ["the largest", "tails of packets", "two islands"])
def test_more_differences_are_found_in_the_same_number_of_questions(planted, numpy_double):
    """A real sweep, of which the first values in the plain order are what one had without it."""
    numpy_double(differs := PLANTED[planted])
    case, lengths = Case("conv1d", 3), [*range(10, 1010), 1012]
    found = limited(200, [case], [REFERENCE], lengths, control="differing")
    told = found.targets["reference"]
    assert 200 <= told.comparisons < 300 and told.comparisons + told.unasked == 1000
    assert values(found, "reference") <= set(filter(differs, lengths))
    plain = sum(map(differs, lengths[: told.comparisons]))
    assert len(told.differences) > 1.2 * plain and len(told.differences) > 20


def found_by(differs, count: int, elsewhere=None) -> int:
    """Differing values among the first ``count`` that a ranking asks of 10 to 1009."""
    ranking, asked = Ranking({0: range(10, 1010)}), []
    if elsewhere is not None:
        ranking.elsewhere(0, range(10, 1010), map(elsewhere, range(10, 1010)))
    while len(asked) < count:
        _, some = ranking.next()
        asked += some
        ranking.answered(0, some, map(differs, some))
    return sum(map(differs, asked[:count]))


@pytest.mark.parametrize("planted", PLANTED)
def test_planted_differences_come_first(planted):
    differs = PLANTED[planted]
    total = sum(map(differs, range(10, 1010)))
    plain = sum(map(differs, range(10, 260)))
    alone, told = found_by(differs, 250), found_by(differs, 250, differs)
    assert alone > max(plain, total / 4), "no better than any order"
    assert told == total, "another target's values come first"


def test_a_ranking_that_is_misled_still_finds_what_there_is():
    differs, elsewhere = PLANTED["an island"], PLANTED["tails of packets"]
    assert found_by(differs, 1000, elsewhere) == 50
    assert found_by(differs, 500, elsewhere) > 25


@pytest.mark.parametrize("size", [1, 2, 7, 300])
def test_every_value_of_every_case_is_asked_once(size):
    ranking, random = Ranking({n: range(5, 5 + size) for n in range(3)}), np.random.default_rng(1)
    ranking.leave(2, [5])
    asked = []
    while found := ranking.next():
        case, some = found
        asked += [(case, value) for value in some]
        ranking.answered(case, some, random.random(len(some)) < 0.2)
    wanted = {(case, value) for case in range(3) for value in range(5, 5 + size)} - {(2, 5)}
    assert len(asked) == len(wanted) and set(asked) == wanted


def rows(folder: Path) -> dict:
    frame = probe.load(folder).comparisons.drop(columns=["seconds", "machine"])
    return {(row["target"], row["case_id"], row["at"]): tuple(map(str, row)) for _, row in
            frame.sort_index(axis=1).iterrows()}  # fmt: skip


def test_the_same_again_goes_on_and_gives_the_rows_of_one_run(tmp_path):
    cases, targets, lengths = [CASE, CASE.with_(seed=1)], [REFERENCE, SWITCHING], range(5, 30)
    with Store(tmp_path / "whole") as store:
        sweep_cases(cases, targets, lengths, store=store, opens=inline)
    left, parts = None, 0
    while left != 0:
        with Store(tmp_path / "parts") as store:
            found = limited(20 * (parts + 1), cases, targets, lengths, store=store)
        told = found.targets.values()
        assert all(one.comparisons + one.unasked == 48 for one in told)
        assert left is None or found.left_out < left
        left, parts = found.left_out, parts + 1
    assert parts > 2 and rows(tmp_path / "parts") == rows(tmp_path / "whole")


def test_what_hangs_does_not_hold_it_and_is_no_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(budget, "GRACE", 0.3)
    sessions = faulty(tmp_path / "log", 60.0, any="once hang")
    running = sessions(REFERENCE).start()
    start = time.monotonic()
    with budget.within("0.3s"), Store(tmp_path / "m") as store:
        found = sweep_cases([CASE], [REFERENCE], range(5, 40), store=store, opens=lambda _: running)
    assert time.monotonic() - start < 20 and (tmp_path / "log.once").exists()
    assert found.left_out == 34 and not found.failures and failures(store) == []
    with Store(tmp_path / "m") as store:
        again = sweep_cases([CASE], [REFERENCE], range(5, 40), store=store, opens=sessions)
    assert again.targets["reference"].comparisons == 34 and again.left_out == 0


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
    assert shell.run([*SWEEP.split(), *more.split(), "--no-store"]) == 2
    assert capsys.readouterr().err.startswith("probe: time=")


@pytest.mark.parametrize("as_json", [False, True])
def test_progress_says_rate_remaining_time_and_failures(as_json, capsys, monkeypatch):
    monkeypatch.setattr(progress, "EVERY", 0.05)
    with printing.Output(as_json).progress("sweep") as tell:
        tell(0, 1000, "numpy")
        tell.skipped += 500
        tell.failures += 1
        time.sleep(0.1)
        tell(600, 1000, "numpy")
        time.sleep(0.2)
    out, err = capsys.readouterr()
    assert not out
    last = err.splitlines()[-1]
    if not as_json:
        assert last.startswith("sweep: 600 of 1,000, ") and "a second, " in last
        assert last.endswith("s left, 1 failure; now at numpy")
        return
    told = json.loads(last)["progress"]
    assert (told["done"], told["total"], told["failures"]) == (600, 1000, 1)
    assert 0 < told["rate"] <= 100 / 0.15 and told["remaining"] == pytest.approx(
        400 / told["rate"], rel=0.5
    )
    numbers = ["done", "total", "unit", "rate", "remaining", "seconds", "failures", "what"]
    assert list(told) == ["of", *numbers]
