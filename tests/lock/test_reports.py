"""Reports: what changed, from what and where, in each form."""

import pytest

from probe.lock import reports
from probe.lock.checks import CHANGED, SAME, UNKNOWN, Checked
from probe.lock.file import Accepted
from probe.recording.store import bits_of


def checked(verdict, name="tests/test_a.py::test_x"):
    one, other = bits_of(1.0), bits_of(2.0)
    found = Checked(name, name, one, {"cores": 2}, verdict, "ab", Accepted(other, "why | so"))
    found.apart = {"release numpy": {"library.numpy": ("2.4.6", "2.5.0")}}
    found.place = ("tests/test_a.py", 7)
    found.why = {
        "cause": "release 2.4.6 -> 2.5.0 of numpy",
        "operation": "sum of 768 numbers",
        "class": "order",
        "kind": "rounding",
        "decisions": {"total": 3, "changed": 0},
    }
    return found


def test_reports_say_what_changed_from_what_and_where():
    results = [checked(CHANGED), *[checked(SAME, f"t::{n}") for n in range(40)]]
    told = reports.summarised(results)
    assert told == (
        "1 of 41 checks changed: order, release 2.4.6 -> 2.5.0 of numpy, sum of 768 numbers; "
        "0 decisions (rounding)"
    )
    lines = reports.page_report("markdown", results, ["gone"], "").splitlines()
    assert lines[0] == f"### Bits: {told}"
    row = "tests/test_a.py::test_x | changed | release 2.4.6 -> 2.5.0 of numpy"
    assert lines[2:] == [
        "| check | verdict | cause | operation | kind |",
        "| --- | --- | --- | --- | --- |",
        f"| {row} | sum of 768 numbers | rounding |",
        "",
        "Unused entries: `gone`",
    ]
    assert "| a\\|b c |" in reports.page_report("markdown", [checked(CHANGED, "a|b\nc")], (), "")
    assert "&lt;" not in reports.page_report("html", results, (), "")
    assert reports.page_report("html", [checked(CHANGED, "<b>")], (), "").count("<b>") == 0
    assert reports.json_report(results)["changed"] == 1


@pytest.mark.parametrize(
    ("verdicts", "told"),
    [
        ([UNKNOWN], "0 of 1 check has the same bits (1 unknown)"),
        ([UNKNOWN, UNKNOWN], "0 of 2 checks have the same bits (2 unknown)"),
        ([SAME, UNKNOWN], "1 of 2 checks has the same bits (1 unknown)"),
        ([SAME, SAME], "2 of 2 checks have the same bits"),
    ],
)
def test_the_first_line_is_a_sentence(verdicts, told):
    assert reports.summarised([checked(one) for one in verdicts]) == told


def test_sarif_points_at_the_line_of_the_check():
    """As OASIS' SARIF 2.1.0 requires: version, runs, tool.driver.name, results with a message."""
    found = reports.sarif_report([checked(CHANGED), checked(UNKNOWN), checked(SAME)])
    assert found["version"] == "2.1.0"
    (run,) = found["runs"]
    rules = [one["id"] for one in run["tool"]["driver"]["rules"]]
    assert len(run["results"]) == 2
    for one, level in zip(run["results"], ("error", "note"), strict=True):
        assert rules[one["ruleIndex"]] == one["ruleId"]
        assert one["level"] == level
        assert one["message"]["text"].startswith("check=")
        place = one["locations"][0]["physicalLocation"]
        assert place["artifactLocation"]["uri"] == "tests/test_a.py"
        assert place["region"] == {"startLine": 7}
