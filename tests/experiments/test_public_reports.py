"""Public reports: every thread has its row; what is asked is answered, explained and made small."""

from __future__ import annotations

import json
from importlib import import_module

import numpy as np
import pytest

from lib.frame import Experiment
from lib.reports import Pair, Report, ask
from probe import Case, Target, load
from probe.targets.launch import open_session

pytestmark = [pytest.mark.slow, pytest.mark.long]

EXPERIMENT = "public_reports"
script = import_module(EXPERIMENT)

SWITCH = "reference,algorithm=pairwise,length_switch=9"


def in_this_process(target):
    return open_session(target, inline=True)


def test_every_thread_has_a_row():
    threads = [report.thread for report in script.REPORTS]
    assert len(set(threads)) == len(threads) > 10


@pytest.mark.parametrize("report", script.REPORTS, ids=lambda report: report.thread)
def test_a_report_asks_something_or_says_why_not(report):
    assert bool(report.questions) == (report.reason is None)
    assert not report.questions or report.home in script.TARGETS
    texts = [question.text for question in report.questions]
    assert len(set(texts)) == len(texts)
    for words in (report.title, report.answer or "-", report.reason or "-"):
        assert 0 < len(words) <= 100
    for question in report.questions:
        assert question.left.length and question.shapes.right.length


def test_a_quick_run_explains_what_differs_and_makes_it_small(quick):
    found = load(quick)
    assert found.reports.thread.tolist() == ["the original report"]
    rows = found.findings
    assert set(found.runs.experiment) == {"public_reports"} and found.failures.empty
    assert not rows[rows.target == "reference"].differing.any()
    differing = rows[rows.differing > 0]
    assert set(differing.target) == {SWITCH}
    assert (differing.explained == differing.replayed).all() and differing.bits_at.notna().all()
    assert set(differing.causes) == {f'{{"order":{n}}}' for n in differing.explained}
    small = [json.loads(text) for text in differing.smallest]
    assert {one["ended"] for one in small} == {"minimal"}
    for one in small:
        assert one["cause"] == "order" and one["left"]["bits"] != one["right"]["bits"]
        assert one["left"]["tree"] != one["right"]["tree"]
        assert Case.from_json(one["case"]).summands <= 4


def test_the_smallest_case_differs_as_it_is_written(quick):
    rows = load(quick).findings
    small = json.loads(rows[rows.question == "length 9 against 19"].smallest.dropna().iloc[0])
    with open_session(Target.parse(SWITCH), inline=True).start() as session:
        for side in (small["left"], small["right"]):
            case = Case.from_json(side["case"])
            x, w = (np.array(list(map(float.fromhex, side[n])), np.float32) for n in "xw")
            arrays = {"x": x.reshape(case.input_shape()), "w": w.reshape(case.weight_shape)}
            _, given = session.request({"do": "run", "spec": case.spec()}, arrays)
            y = given["y"].reshape(-1, case.filters)[tuple(side["place"])]
            assert int(y.view(np.uint32)) == side["bits"]


def asked(report, store, targets="reference"):
    done = ask(Experiment("test", store), [report], targets.split(), in_this_process)
    return done, load(store)


def test_what_a_target_refuses_is_a_failure_and_the_rest_goes_on(tmp_path):
    fused = "reference,algorithm=fused"
    questions = (
        Pair(script.product(4, 1, dtype="float64"), "length", 1, 2),
        Pair(script.product(4, 1), "length", 1, 2, "float32: "),
    )
    done, found = asked(Report("a thread", "a title", None, questions), tmp_path, fused)
    assert found.failures.kind.tolist() == ["unsupported"] and set(done.failures) == {fused}
    assert found.findings.question.tolist() == ["float32: rows 1 against 2"]
