"""A finding that is reduced, and a run as a file: what the answers hold."""

import numpy as np

from probe.case.case import Case
from probe.explain.runs import Finding
from probe.targets.progress import silent
from probe.targets.target import Target
from probe.ui.answers import reproduce as answers
from tests.ui.cli.commands import in_this_process

SWITCHES = Target.parse("reference,algorithm=pairwise,length_switch=8")


def test_operands_are_listed_exactly_and_what_is_no_number_as_a_text(monkeypatch):
    """JSON has neither infinities nor NaN; its decimals hold every float32."""
    odd = "x[0, 18, 0]=inf; x[0, 19, 0]=nan"
    finding = Finding.of(Case("conv1d", 5, operands="cancel", put=odd), "length", 6, 20)
    with in_this_process(monkeypatch):
        told = answers.shrunk_report(finding, (SWITCHES, SWITCHES), "bits", 0, silent)
    assert told["ended"] == "budget" and told["differing"]
    (x,) = told["operands"]["x"]
    assert [one for (one,) in x[18:]] == ["inf", "nan"]
    assert np.array_equal(np.float32(x[:18]), finding.x[0, :18])
    assert np.array_equal(np.float32(told["operands"]["w"]), finding.w)
