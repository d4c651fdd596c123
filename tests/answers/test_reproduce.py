"""A finding that is reduced, and a run as a file: what the answers hold."""

from __future__ import annotations

import numpy as np

from probe.answers import reproduce as answers
from probe.case import Case
from probe.comparison import Finding
from probe.progress import silent
from probe.target import Target
from tests.cli.commands import in_this_process

SWITCHES = Target.parse("reference,algorithm=pairwise,length_switch=8")


def test_operands_are_listed_exactly_and_what_is_no_number_as_a_text(monkeypatch):
    """JSON has neither infinities nor NaN; its decimals hold every float32."""
    odd = "x[0, 18, 0]=inf; x[0, 19, 0]=nan"
    finding = Finding.of(Case("conv1d", 5, operands="cancel", put=odd), "length", 6, 20)
    with in_this_process(monkeypatch):
        told = answers.shrunk_report(finding, (SWITCHES, SWITCHES), "bits", 0, False, silent)
    assert told["ended"] == "budget" and told["differing"]
    (x,) = told["operands"]["x"]
    assert [one for (one,) in x[18:]] == ["inf", "nan"]
    assert np.array_equal(np.float32(x[:18]), finding.x[0, :18])
    assert np.array_equal(np.float32(told["operands"]["w"]), finding.w)


def test_a_second_run_is_put_into_the_file_and_its_differing_outputs_counted(monkeypatch, tmp_path):
    case = Case("conv1d", 5, operands="cancel", length=6)
    file = tmp_path / "run.py"
    with in_this_process(monkeypatch):
        one = answers.emulated_report(case, SWITCHES, file, None, None, False)
        alone = file.stat().st_size
        both = answers.emulated_report(case, SWITCHES, file, 20, None, False)
    assert [len(told["runs"]) for told in (one, both)] == [1, 2]
    assert (one["bytes"], both["bytes"]) == (alone, file.stat().st_size)
    assert [run["outputs"] for run in both["runs"]] == [2, 16] and both["replayed"] == 18
