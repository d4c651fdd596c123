"""Remedies end: where time is over or somebody interrupts, what was judged stays."""

import pytest

import probe
from probe.cli import shell
from probe.invariant import mitigations
from probe.invariant.mitigations import advise, measured_remedies
from probe.target import Target

CASE = probe.Case(op="dense", in_channels=12, filters=3)
WHERE = Target.parse("reference,algorithm=pairwise")


def test_what_there_is_no_time_for_is_not_known(monkeypatch):
    told = []
    over = "the 1 s of --time were over"
    monkeypatch.setattr(mitigations.budget, "spent", lambda: over if told else "")
    found = measured_remedies(
        CASE, WHERE, (1, 2, 5), only=["float64", "chunks=64"], each=told.append
    )
    assert [one.remedy.name for one in told] == ["default"]
    assert {one.refusal for one in found.found[1:]} == {f"not tried: {over}"}
    assert [one.verdict for one in found.found[1:]] == ["not known"] * len(found.found[1:])
    assert found.found[0].seconds and advise(found).name == "none"  # what was judged is timed


def test_what_was_judged_stays_where_somebody_interrupts(monkeypatch):
    judge = mitigations._OfCase.judge

    def interrupted(self, found):
        if found.remedy.name != "default":
            raise KeyboardInterrupt
        judge(self, found)

    monkeypatch.setattr(mitigations._OfCase, "judge", interrupted)
    found = measured_remedies(CASE, WHERE, (1, 2, 5), only=["float64", "chunks=64"])
    assert found.default.verdict == "exact"
    assert {one.refusal for one in found.found[1:]} == {"not tried: interrupted"}


def test_an_interrupt_before_anything_is_known_ends_it(monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(mitigations._OfCase, "judge", interrupted)
    with pytest.raises(KeyboardInterrupt):
        measured_remedies(CASE, WHERE, (1, 2, 5))


@pytest.mark.slow
def test_the_recommendation_comes_first_and_three_columns_fit_eighty(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    words = "remedies --op dense --in-channels 12 --filters 3 --lengths 1,2,5 --only float64"
    assert shell.run([*words.split(), "--target", WHERE.text]) == 0
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    first = next(n for n, line in enumerate(lines) if line.startswith("recommended: "))
    assert lines.index("remedy   exact?  cost") > first and "exact?: whether" in out
    assert shell.run([*words.split(), "--verbose", "--target", WHERE.text]) == 0
    assert "what it is" in capsys.readouterr().out.replace("\n", " ")
