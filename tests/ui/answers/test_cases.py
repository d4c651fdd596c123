"""Questions on a case: an answer has what was found, and says the same as the command."""

import json

import pytest

import probe
from probe.case.case import Case
from probe.sweep.printing import Output
from probe.ui.answers import cases
from probe.ui.cli import shell

pytestmark = pytest.mark.long


CASE = probe.Case("conv1d", kernel=5, in_channels=3, filters=2)


PAIR = ("reference,algorithm=sequential", "reference,algorithm=pairwise")


def test_an_answer_has_what_was_found():
    found = cases.explain(CASE, PAIR[0], 9, against_target=PAIR[1])
    assert len(repr(found.found).splitlines()) == 3 and "order" in repr(found.found)
    assert found.causes == found.found.causes and found.replayed == found.compared
    with pytest.raises(AttributeError, match="Explained has no attribute|no attribute"):
        _ = found.nonsense


DENSE = Case(op="dense", in_channels=33, filters=2)


def test_the_command_and_the_answer_say_the_same(capsys) -> None:
    words = "--op dense --in-channels 33 --filters 2 --upto 12 --target reference,length_switch=5"
    assert shell.run(["fix", "sizes", *words.split(), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["vary"] == "batch" and told["floor"]["size"] == 5 and told["sets"] == 8
    assert [one["sizes"] for one in told["classes"]] == [[[1, 4, 1]], [[5, 12, 1]]]
    answer = cases.thresholds(DENSE, "reference,length_switch=5", upto=12)
    untimed = {name: one for name, one in told.items() if name != "seconds"}
    assert {name: one for name, one in answer.to_json().items() if name != "seconds"} == untimed
    assert len(repr(answer).splitlines()) == 3 and "floor: 5 rows" in repr(answer)
    assert answer._repr_png_().startswith(b"\x89PNG")
    Output().results.print(answer.shown())
    text = capsys.readouterr().out
    assert "classes of batches at which all rows add alike: {1..4}, {5..12}" in text
    assert "floor: 5 rows; below, at 4, rows are added" in text
