"""Sweeps: what is found and stored, what a failing target leaves, what is never repeated."""

from __future__ import annotations

import json
import signal
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import probe
from probe.case import schema, ulp
from probe.case.case import Case
from probe.case.errors import InputError, StoreError
from probe.case.schema import NULL_INT
from probe.sweep import plan
from probe.sweep.bits import TURN, TargetSummary, sweep_cases
from probe.sweep.printing import Output
from probe.sweep.store import Store
from probe.targets import budget
from probe.targets.launch import Session, open_session
from probe.targets.target import Target
from probe.ui.answers.sweep import Swept
from probe.ui.cli.cases import KEEP

pytestmark = pytest.mark.long

WORKER = Path(__file__).parents[1] / "targets" / "faulty_worker.py"
REFERENCE = Target("reference")
SWITCHING = Target.parse("reference,length_switch=8")
CASE = Case(op="conv1d", kernel=5, in_channels=16, filters=3, operands="cancel")


def inline(target: Target):
    return open_session(target, inline=True)


def faulty(log: Path, time_limit: float = 20.0, **faults: str):
    command = (sys.executable, "-E", "-s", "-u", str(WORKER), json.dumps(faults), str(log))
    return lambda target: Session(target, time_limit, 20.0, command)


def runs(log: Path) -> list[int]:
    """The lengths that were run, the base's included."""
    return [int(line) for line in log.read_text().splitlines() if not line.startswith("pid")]


def failures(folder: Path) -> list[tuple]:
    rows = probe.load(folder).failures
    return [
        (row.kind, None if row["at"] is None or row["at"] != row["at"] else int(row["at"]))
        for _, row in rows.astype(object).where(rows.notna(), None).iterrows()
    ]


@pytest.fixture
def swept(tmp_path):
    """swept(lengths, *targets, ...): a sweep of ``CASE`` into a store, with what is there."""

    def sweep(lengths, *targets, cases=(CASE,), folder="m", opens=inline, **options):
        targets = list(targets) or [REFERENCE]
        with Store(tmp_path / folder) as store:
            return sweep_cases(list(cases), targets, lengths, store=store, opens=opens, **options)

    return sweep


def test_the_reference_never_differs(swept, tmp_path):
    found = swept(range(5, 20)).to_json()
    assert found["differing"] == 0 and found["lengths"] == [] and found["max_ulp"] == 0
    assert found["comparisons"] == 14 and found["compared"] == 3 * sum(range(1, 15))
    assert found["store"] == str(tmp_path / "m") and not found["failures"]


def test_stored_rows_say_what_two_runs_say(swept, tmp_path):
    summary = swept(range(5, 20), SWITCHING)
    tables = probe.load(tmp_path)
    x, w, _ = CASE.with_(length=19).operands()
    with inline(SWITCHING) as session:

        def outputs(length: int) -> np.ndarray:
            request = {"do": "run", "spec": CASE.spec()}
            return session.request(request, {"x": x[:, :length], "w": w})[1]["y"]

        whole = outputs(19)
        for row in tables.comparisons.itertuples():
            own = outputs(row.at)
            expected = ulp.differences(own, whole[:, : own.shape[1]].copy(), "float32")
            rows = tables.differences[tables.differences["at"] == row.at]
            assert row.differing == row.kept == len(expected.index) == len(rows)
            assert rows["index"].tolist() == expected.index.tolist()
            assert rows["bits_at"].tolist() == expected.bits_a.tolist()
            assert rows["bits_against"].tolist() == expected.bits_b.tolist()
            assert rows["ulp"].tolist() == expected.ulps.tolist()
            place = np.unravel_index(expected.index, own.shape)
            assert rows["position"].tolist() == place[1].tolist()
            assert rows["channel"].tolist() == place[2].tolist()
            assert (row.digest_at == row.digest_against) == (row.differing == 0)
    lengths = [run.at for run in summary.targets[SWITCHING.text].differences]
    assert lengths and set(lengths) <= set(range(5, 12))  # outputs shorter than 8


def test_scaled_differences_are_differences_over_eps_times_magnitudes(swept, tmp_path):
    swept([7, 19], SWITCHING, experiment="tests")
    tables = probe.load(tmp_path)
    x, w, _ = CASE.with_(length=19).operands()
    for row in tables.differences.itertuples():
        window = np.abs(x[0, row.position : row.position + 5].astype(float))
        magnitude = (window * np.abs(w[..., row.channel].astype(float))).sum()
        bits = np.array([row.bits_at, row.bits_against], np.uint32).view(np.float32).astype(float)
        assert row.scaled == pytest.approx((bits[1] - bits[0]) / (2**-23 * magnitude), rel=1e-12)
    largest = tables.differences["scaled"].abs().max()
    assert tables.comparisons["max_scaled"].tolist() == [largest]
    # and the columns of the schema
    for name in ("runs", "cases", "comparisons", "differences"):
        rows = getattr(tables, name)
        assert len(rows) and set(schema.column_names(name)) <= set(rows.columns)
    assert Case.from_json(tables.cases["json"][0]) == CASE
    assert tables.runs["experiment"].tolist() == ["tests"]


def test_without_a_number_a_stated_number_of_differing_outputs_is_kept(
    swept, tmp_path, monkeypatch, capsys
):
    """All of 10^7 took 3 GB; who was not told would take the first million for all there are."""
    assert plan.KEPT == 1_000_000 and str(plan.KEPT) in KEEP
    monkeypatch.setattr(plan, "KEPT", 2)
    for again in range(2):  # the second time it is recalled from the store
        found = swept([9, 10, 11, 19], SWITCHING)
        report = found.to_json()
        assert report["stored_before"] == 3 * again
        kept = probe.load(tmp_path).comparisons["kept"]
        assert report["kept"] == kept.sum() == len(probe.load(tmp_path).differences)
        assert report["kept"] < report["differing"] and kept.max() <= 3
        Output().results.print(Swept(found, CASE, [9, 10, 11, 19]).shown())
        counts = f"of {report['differing']:,} differing outputs {report['kept']:,} are stored"
        assert counts in " ".join(capsys.readouterr().out.split())


def test_controls_name_a_random_target_nondeterministic(swept, tmp_path):
    found = swept(range(20, 24), Target.parse("reference,algorithm=random")).to_json()
    assert found["nondeterministic"] == 3
    assert set(probe.load(tmp_path).comparisons["control"]) <= {"differs", "alignment differs"}


def test_the_same_sweep_again_runs_nothing_and_says_the_same(swept, tmp_path):
    log = tmp_path / "log"
    first = swept(range(5, 20), SWITCHING, opens=faulty(log)).to_json()
    before = log.read_text()
    again = swept(range(5, 20), SWITCHING, opens=faulty(log)).to_json()
    assert log.read_text() == before
    assert again["stored_before"] == 14 and first["differing"] > 0
    for answer in (first, again):
        del answer["seconds"], answer["stored_before"]
    assert again == first


def test_a_longer_sweep_measures_only_what_is_new(swept, tmp_path):
    log = tmp_path / "log"
    for lengths in ([5, 6, 20], [5, 6, 7, 20]):
        swept(lengths, control="differing", opens=faulty(log))
    assert runs(log) == [20, 20, 20, 5, 6] + [20, 20, 20, 7]


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("memory", "memory"),
        ("unsupported", "unsupported"),
        ("SIGSEGV", "crash"),
        ("hang", "timeout"),
        ("exhaust", "memory"),
        ("lacks", "protocol"),
        ("uneven", "protocol"),
        ("lies", "protocol"),
    ],
)
@pytest.mark.slow_at(
    *("memory-memory", "hang-timeout", "exhaust-memory"),
    *("lacks-protocol", "uneven-protocol", "lies-protocol"),
)
def test_a_failing_length_is_a_row_and_the_others_are_measured(swept, tmp_path, fault, kind):
    other = CASE.with_(kernel=3)
    sessions = faulty(tmp_path / "log", 0.6 if fault == "hang" else 20.0, **{"8": fault})
    found = swept(range(6, 12), cases=[CASE, other], opens=sessions)
    assert failures(tmp_path) == [(kind, 8)] * 2
    tables = probe.load(tmp_path)
    for case in (CASE, other):
        rows = tables.comparisons[tables.comparisons["case_id"] == case.id]
        assert sorted(rows["at"]) == [6, 7, 9, 10]
    assert [failure.kind for failure in found.failures] == [kind] * 2
    if fault == "SIGSEGV":
        assert tables.failures["stderr"].str.contains("last words").all()


def test_a_failing_length_is_tried_again_by_the_next_sweep(swept, tmp_path):
    assert swept(range(6, 12), opens=faulty(tmp_path / "log", **{"8": "error"})).failures
    again = swept(range(6, 12))
    assert again.targets["reference"].stored_before == 4 and not again.failures


def test_a_crash_that_does_not_come_back_is_told_apart(swept, tmp_path):
    found = swept(range(6, 12), opens=faulty(tmp_path / "log", **{"8": "once SIGSEGV"}))
    assert failures(tmp_path) == [("crash", None)] and found.targets["reference"].comparisons == 5
    assert "it succeeded when it was run again" in found.failures[0].message


@pytest.mark.parametrize(("fault", "where"), [("11", 11), ("operator", None)])
@pytest.mark.slow_at("11-11")
def test_a_case_that_can_not_be_run_is_left(swept, tmp_path, fault, where):
    for kind, fails in (("error", "error"), ("crash", "SIGSEGV")):
        sessions = faulty(tmp_path / "log", **{fault: fails})
        found = swept(range(6, 12), folder=kind, opens=sessions)
        assert failures(tmp_path / kind) == [(kind, where)]
        assert not found.targets["reference"].comparisons


def test_a_target_that_does_not_start_is_one_row_and_the_others_run(swept, tmp_path):
    def sessions(target: Target):
        fails = target == SWITCHING
        return faulty(tmp_path / "log", start="error")(target) if fails else inline(target)

    absent = Target("tensorflow", "0.0.1")
    found = swept([5, 9], SWITCHING, absent, REFERENCE, opens=sessions)
    assert sorted(failures(tmp_path)) == [("error", None), ("unavailable", None)]
    assert found.targets["reference"].comparisons == 1
    assert found.to_json()["targets"]["tensorflow==0.0.1"]["failures"][0]["kind"] == "unavailable"
    assert len(probe.load(tmp_path).runs) == 3


def test_ctrl_c_keeps_what_was_measured_and_says_so(swept, tmp_path):
    def press(done: int, total: int, text: str) -> None:
        if done >= 3:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    slow = faulty(tmp_path / "log", any="slow")
    found = swept(range(5, 99), progress=press, control="differing", opens=slow)
    stored = probe.load(tmp_path).comparisons
    assert found.interrupted and 3 <= len(stored) < 90
    assert found.targets["reference"].comparisons == len(stored)
    assert not found.failures and not len(probe.load(tmp_path).failures)


def test_a_store_that_fails_ends_the_sweep(tmp_path, monkeypatch):
    def full(self: Store, table: str, rows: object) -> None:
        raise StoreError("store=m: the disk is full")

    with Store(tmp_path / "m") as store:
        monkeypatch.setattr(Store, "append", full)
        with pytest.raises(StoreError, match="the disk is full"):
            sweep_cases([CASE], [REFERENCE, SWITCHING], range(5, 20), store=store)
        monkeypatch.undo()


@pytest.mark.parametrize(
    ("case", "lengths", "vary", "words"),
    [
        (CASE, [4, 9], "length", "length=4: .*shorter than the kernel"),
        (CASE, [9], "length", "give two or more"),
        (CASE, [5, 9], "width", "width"),
        (CASE.with_(length=9, groups=2, filters=4), [3, 4], "filters", "filters=3"),
    ],
)
def test_wrong_input_is_told_before_anything_runs(case, lengths, vary, words):
    def never(target: Target):
        raise AssertionError(f"{target} was started")

    with pytest.raises(InputError, match=words):
        sweep_cases([case], [REFERENCE], lengths, vary, opens=never)


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
    return {run.at for run in found.targets[target].differences}


def test_what_there_is_time_for_lies_evenly_over_cases_and_values():
    """Half of the values differ alike at each remainder, and no case is left for the last."""
    cases, lengths = [Case("conv1d", 3), Case("conv1d", 3, in_channels=2)], [*range(10, 1011)]
    found = limited(400, cases, [REFERENCE], lengths, control="differing")
    summary = found.targets["reference"]
    assert 400 <= summary.comparisons < 400 + TURN
    for unasked in summary.left_out.values():
        asked = np.array([length for length in lengths[:-1] if length not in set(unasked)])
        assert 180 < len(asked) < 240
        assert np.diff(asked, prepend=0, append=1010).max() < 20
        assert np.bincount(asked % 16).min() > 5
    assert values(found, "reference") == set()


CONTROLS = ("equal", None, "differs", "alignment differs")


def columns(seed: int, count: int = 40) -> dict:
    """Rows of ``comparisons`` of one case, some of which agree."""
    rng = np.random.default_rng(seed)
    differing = rng.integers(0, 4, count) * rng.integers(0, 2, count)
    ulps = np.where(rng.integers(0, 4, count) == 0, NULL_INT, rng.integers(1, 99, count))
    return {
        "case_id": "c",
        "at": np.arange(count),
        "compared": rng.integers(1, 9, count),
        "not_compared": rng.integers(0, 3, count),
        "differing": differing,
        "signed_zero": [None if rng.integers(2) else int(rng.integers(3)) for _ in range(count)],
        "first": rng.integers(0, 9, count),
        "max_ulp": np.where(differing > 0, ulps, 0),
        "control": [CONTROLS[rng.integers(len(CONTROLS))] for _ in range(count)],
    }


@pytest.mark.parametrize("seed", range(8))
def test_columns_count_as_their_rows(seed):
    given, at_once, one_by_one = columns(seed), TargetSummary("t"), TargetSummary("t")
    at_once.add_columns(given)
    for n in given["at"]:
        row = {name: "c" if name == "case_id" else each[n] for name, each in given.items()}
        one_by_one.add(row | {"max_ulp": None if row["max_ulp"] == NULL_INT else row["max_ulp"]})
    assert at_once == one_by_one
    known = given["max_ulp"][(given["differing"] > 0) & (given["max_ulp"] != NULL_INT)]
    assert at_once.max_ulp == known.max() and at_once.comparisons == 40
    assert at_once.compared == given["compared"].sum()
    assert [one.at for one in at_once.differences] == np.flatnonzero(given["differing"]).tolist()
