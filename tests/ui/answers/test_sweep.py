"""A case swept in Python: its values, its parts, and layouts."""

import json

import pytest

import probe
from probe.case.errors import InputError
from probe.sweep.plan import Plans, SweepRequest
from probe.ui.answers import sweep as answers

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
