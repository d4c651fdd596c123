"""What is said of two runs of a model."""

import probe
from probe.cli.show import models
from probe.printing import Output
from tests.recording import causes
from tests.recording.taped import apart, normal

X = normal(6, 32)


def test_text_names_the_source_the_cause_and_the_outputs(capsys, monkeypatch):
    causes.planted(monkeypatch)
    Output().results.print(models.walked(probe.first_difference(*apart(X))))
    out = " ".join(capsys.readouterr().out.split())
    for text in (
        "verdict: differs",
        "block.first (Dense): order: the left side adds in one block",
        "carried",
    ):
        assert text in out, text
