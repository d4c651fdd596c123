"""A case swept in Python: its values, its parts, and layouts."""

import json

import pytest

import probe
from probe.case.errors import InputError
from probe.sweep.bits import sweep_cases
from probe.sweep.plan import Plans, SweepRequest
from probe.sweep.printing import Output
from probe.sweep.store import Store
from probe.targets.target import Target
from probe.ui.answers import sweep as answers
from tests.sweep.test_bits import faulty

CASE = probe.Case("conv1d", kernel=5, in_channels=3, filters=2)


def test_python_takes_lengths_as_a_command_line_has_them():
    given = "5..7,9", [5, 6, 7, 9]
    one, other = (answers.sweep(CASE, lengths, "reference") for lengths in given)
    assert one.values == other.values == [5, 6, 7, 9]
    assert one.to_json()["compared"] == other.to_json()["compared"] > 0


def test_words_and_counts_are_checked_alike_wherever_they_come_from():
    for message, given in {
        "by=bytes: unknown": {"by": "bytes"},
        "workers=0: it is less than 1": {"workers": 0},
        "keep=some: it is not a whole number": {"keep": "some"},
    }.items():
        with pytest.raises(InputError, match=message):
            probe.sweep(CASE, [5, 9], "reference", **given)
    with pytest.raises(InputError, match="control=some: unknown"):
        SweepRequest(Plans.of([CASE], [5, 9]), control="some")


def test_a_request_reads_the_same_on_a_node():
    sent = SweepRequest(Plans.of([CASE], range(5, 12)), "differing", 3, "differ", only=(6, 8))
    text = json.dumps(sent.to_json(sent.values) | {"target": "reference"})
    read = SweepRequest.from_json(json.loads(text))
    assert list(read.values) == [6, 8] and read.plans.against == 11
    assert (read.control, read.keep, read.zeros) == ("differing", 3, "differ")
    assert read.plans[0].id == sent.plans[0].id


@pytest.mark.long
def test_where_a_value_failed_nothing_is_promised_of_it(tmp_path, capsys):
    case = probe.Case("conv1d", kernel=5, in_channels=16, filters=3, operands="cancel")
    sessions = faulty(tmp_path / "log", **{"8": "SIGKILL"})
    with Store(tmp_path / "m") as store:
        found = sweep_cases(
            [case], [Target("reference")], range(6, 12), store=store, opens=sessions
        )
    assert not found.differing and found.failures
    Output().results.print(answers.Swept(found, case, range(6, 12)).shown())
    assert "what failed is not known" in (out := capsys.readouterr().out)
    assert "with these operands" not in out and "--by order" not in out
