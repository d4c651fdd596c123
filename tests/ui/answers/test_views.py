"""What a terminal shows of answers: sets of outputs, and two runs of a model."""

import io

import numpy as np
from rich.console import Console

import probe
from probe import Case
from probe.sweep.printing import Output
from probe.ui.answers import views
from tests.record import causes
from tests.record.taped import apart, normal


def test_outputs_are_named_by_their_axes():
    mask = np.zeros((1, 9, 4), bool)
    mask[0, 2:7] = True
    assert views.where_true(mask) == "out[2..6, *]"
    mask[0, 8] = True
    assert views.where_true(mask) == "out[(2..6, 8), *]"
    assert views.where_true(np.ones((1, 1, 1), bool)) == "the output"
    assert views.where_true(np.ones((1, 5, 1), bool)) == "out[*]"
    odd = np.zeros((1, 12, 2), bool)
    odd[0, np.arange(12), np.arange(12) % 2] = True
    assert views.where_true(odd) == "part of out[*, *]"
    assert views.where_true(np.zeros((1, 5, 1), bool)) == "none"


def test_sums_without_weights_are_not_said_to_be_scaled():
    """Their sets were said to go through the whole range."""
    plain = "replayed on 16 sets of operands, of the usual size alone"
    for case, wanted in ((Case("sum", in_channels=3), plain), (Case("conv1d", 3), "whole range")):
        shown = io.StringIO()
        found = probe.thresholds(case, "reference", upto=6)
        Console(file=shown, width=200).print(found.shown())
        assert wanted in shown.getvalue()


def test_text_names_the_source_the_cause_and_the_outputs(capsys, monkeypatch):
    causes.planted(monkeypatch)
    Output().results.print(views.walked(probe.first_difference(*apart(normal(6, 32)))))
    out = " ".join(capsys.readouterr().out.split())
    cause = "block.first (Dense): order: the left side adds in one block"
    assert cause in out and "verdict: differs" in out and "carried" in out
