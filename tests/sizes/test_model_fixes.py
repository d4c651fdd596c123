"""Remedies along the batch: of cases by order, of models with the invariant mode beside padding."""

from __future__ import annotations

import numpy as np
import pytest

import probe
from probe import Case, Target
from probe.case.errors import InputError
from probe.sizes import fixes as of_cases
from probe.sizes import model_fixes
from probe.sizes.fixes import (
    Measured,
    Remedy,
    RemedyResult,
    RemedySessions,
    advise,
    measured_remedies,
    remedies_report,
)
from probe.sizes.search import Serves
from probe.sweep.printing import Output
from probe.ui.answers.network import remedies
from probe.ui.cli import shell
from tests.sizes.invariant.models import of

DENSE = Case("dense", None, 33, 4)
UNSTABLE = Target.parse("reference,algorithm=pairwise,length_switch=5")


@pytest.fixture(autouse=True)
def short_turns(monkeypatch):
    monkeypatch.setattr(of_cases, "SECONDS", 0.001)
    monkeypatch.setattr(of_cases, "ROUNDS", 2)


@pytest.mark.slow
def test_batches_of_a_case_are_judged_by_order():
    only = ["pad", "chunks=3", "chunks=8", "float64"]
    words = {"chunks": [3, 8], "only": only, "sessions": RemedySessions(inline=True)}
    found = measured_remedies(DENSE, UNSTABLE, [1, 4, 6, 9], **words)
    named = {one.remedy.name: one for one in found.found}
    verdicts = {name: one.verdict for name, one in named.items()}
    unstable = dict.fromkeys(["default", "float64"], "differs")
    assert verdicts == dict.fromkeys(["pad", "chunks=3", "chunks=8"], "exact") | unstable
    assert found.vary == "batch" and named["pad"].sizes == (6, 9)
    assert named["pad"].keeps and named["chunks=8"].keeps and not named["chunks=3"].keeps
    assert "at batch" in advise(found).text and remedies_report(found)["vary"] == "batch"


torch = pytest.importorskip("torch", reason="PyTorch is not installed")


@pytest.mark.slow
def test_an_operation_in_the_invariant_mode_adds_alike_at_every_batch():
    with RemedySessions() as running:
        words = {"vary": "batch", "only": ["invariant"], "sessions": running}
        case = DENSE.with_(bias="normal")
        (_, mode) = measured_remedies(case, Target.parse("torch"), [1, 3, 8], **words).found
    assert mode.remedy.name == "invariant" and mode.verdict == "exact"
    assert mode.compared == 4 * (1 + 3)


def test_the_mode_is_tried_where_the_library_has_it():
    names = {}
    for text in ("reference", "torch"):
        with RemedySessions(inline=True) as running:
            work = of_cases.CaseQuestion(DENSE, "batch", (1, 2), 1, Target.parse(text), running)
            names[text] = [one.name for one in work.candidates()]
    assert "invariant" in names["torch"] and "invariant" not in names["reference"]


# models


def layer():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(12, 8), torch.nn.ReLU()).eval()


INPUTS = {"x": np.random.default_rng(0).standard_normal((6, 12)).astype(np.float32)}
ASKED = {"vary": "batch", "fixed": 6, "inputs": INPUTS}


def ways(found):
    return {one["name"]: one for one in found.to_json()["remedies"]}


def test_a_model_in_the_invariant_mode_is_judged_and_timed(capsys):
    found = remedies(layer(), [1, 4], **ASKED)
    mode = ways(found)["invariant"]
    assert mode["verdict"] == "exact" and mode["keeps_bits"] and mode["ratio"] > 0
    told = found.to_json()
    assert told["invariant"]["complete"] and told["recommended"] in ways(found)
    Output().results.print(found.shown())
    assert "invariant" in capsys.readouterr().out
    with pytest.raises(InputError, match="only=threads=1: there is no such remedy of a model"):
        remedies(layer(), [1], only=["threads=1"], **ASKED)


def fake(monkeypatch, forward, left=()):
    """Puts another mode in place of ``probe.stable.invariant``."""

    class Told:
        def to_json(self):
            return {"operations": [], "left": dict.fromkeys(left, "why"), "notes": []}

    def invariant(model, sizes, example):
        return of(torch, lambda x: forward(model, x)), Told()

    monkeypatch.setattr("probe.stable.invariant", invariant, raising=False)


@pytest.mark.parametrize(
    ("forward", "left", "verdict", "keeps"),
    [
        (lambda model, x: model(x) * (1.5 if len(x) > 2 else 1), (), "differs", False),
        (lambda model, x: model(x[:1]).expand(len(x), 8), (), "exact", False),
        (lambda model, x: model(x[:1]).expand(len(x), 8), ("fft",), "not known", False),
    ],
    ids=["differs", "different bits", "left"],
)
def test_what_a_mode_does_is_found_out(monkeypatch, forward, left, verdict, keeps):
    fake(monkeypatch, forward, left)
    found = remedies(layer(), [1], **ASKED)
    mode = ways(found)["invariant"]
    assert (mode["verdict"], mode["keeps_bits"]) == (verdict, keeps)
    assert bool(mode["refusal"]) == (verdict != "exact")
    if verdict != "exact":
        assert advise(found.remedies).name != "invariant"
        said = "fft: why" if left else f"{mode['differing']:,} kept outputs have different bits"
        assert f"invariant is {verdict}: {said}" in advise(found.remedies).text


@pytest.mark.slow
def test_a_function_of_arrays_runs_in_the_mode_and_another_library_is_refused():
    model = layer()
    found = remedies(lambda x: model(torch.from_numpy(x)), [1, 4], **ASKED)
    assert ways(found)["invariant"]["verdict"] == "exact"
    made = remedies(lambda x: np.maximum(x @ np.ones((12, 2), "float32"), 0), [2], **ASKED)
    mode = ways(made)["invariant"]
    if made.invariant.report is None:  # no mode for plain NumPy so far
        assert mode["verdict"] == "not known" and mode["of_fixed"] is None and mode["refusal"]
        assert advise(made.remedies).name != "invariant"


def test_a_size_that_serves_unproved_is_not_known_and_says_what_is_in_the_way():
    proved, lacking = Serves(True, "same", sets=11), Serves(False, lacking=True)
    result = RemedyResult(Remedy("pad", UNSTABLE, "", pads=True))
    model_fixes.count_verdicts(result, [proved, lacking])
    assert result.verdict == "exact" and result.sets == 11
    model_fixes.count_verdicts(result, [proved, Serves(True, "unknown", "gelu", "not proved")])
    assert result.verdict == "not known" and result.refusal == "gelu: not proved"
    model_fixes.count_verdicts(result, [Serves(False, "differs", "linear", "another order")])
    assert result.verdict == "differs" and result.refusal == "linear: another order"


def test_the_cheapest_exact_way_is_recommended():
    def way(name, verdict, size, took):
        seconds = {3: np.array([took]), 9: np.array([1.0])}
        remedy = Remedy(name, UNSTABLE, "", pads=name != "invariant")
        unknown = int(verdict == "not known")
        words = {"differing": int(verdict == "differs"), "unknown": unknown, "sizes": (size,)}
        return RemedyResult(remedy, compared=1, seconds=seconds, **words)

    def best(*found):
        return advise(Measured("model", UNSTABLE, (3,), 9, 3, list(found))).name

    fixed = way("fixed", "exact", 9, 1.0)
    default, pad = way("default", "differs", 1, 0.1), way("pad", "exact", 4, 0.5)
    quick, slow = way("invariant", "exact", 1, 0.3), way("invariant", "exact", 1, 0.7)
    assert best(default, pad, fixed, quick) == "invariant"
    assert best(default, pad, fixed, slow) == "pad"
    assert best(default, way("pad", "differs", 4, 0.5), fixed, slow) == "invariant"
    assert best(default, pad, fixed, way("invariant", "not known", 1, 0.1)) == "pad"
    assert best(way("default", "exact", 1, 0.4), pad, fixed, quick) == "default"
    assert best(default) == "one size"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--op conv1d --kernel 3 --vary batch", "length=None: the length is fixed"),
        ("--op dense --in-channels 4 --vary filters", "vary=filters: remedies are not measured"),
    ],
)
def test_wrong_words_are_one_line(capsys, words, said):
    assert shell.run(["fix", *words.split(), "--lengths", "1,2"]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_probe_remedies_takes_the_axis():
    found = probe.remedies(DENSE, [1, 2], "reference", vary="batch", only=["pad"])
    assert found.to_json()["vary"] == "batch" and "batches against 2" in repr(found)
