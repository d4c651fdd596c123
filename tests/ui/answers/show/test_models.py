"""What is said of two runs of a model."""

import probe
from probe.sweep.printing import Output
from probe.ui.answers.show import models
from tests.record import causes
from tests.record.taped import apart, normal


def test_text_names_the_source_the_cause_and_the_outputs(capsys, monkeypatch):
    causes.planted(monkeypatch)
    Output().results.print(models.walked(probe.first_difference(*apart(normal(6, 32)))))
    out = " ".join(capsys.readouterr().out.split())
    cause = "block.first (Dense): order: the left side adds in one block"
    assert cause in out and "verdict: differs" in out and "carried" in out
