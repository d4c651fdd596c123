"""Remedies: the operators they put in, which are exact, what is recommended, how it is told."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import probe
from probe import Case
from probe.case import floats
from probe.case.errors import InputError, TargetError, TimeOver
from probe.case.ulp import equal
from probe.sizes import fixes, orders
from probe.sizes.fixes import (
    ROUNDS,
    CaseQuestion,
    RemediedSession,
    RemedySessions,
    advise,
    exact_sums,
    measured_remedies,
    remedies_of,
    remedies_report,
)
from probe.targets import budget
from probe.targets.launch import InlineSession
from probe.targets.target import Target
from probe.ui.cli import shell
from tests.convolutions import cases

pytestmark = pytest.mark.long

UNSTABLE = "reference,algorithm=pairwise,length_switch=9"
"""Outputs shorter than 9 are added in sequence, longer ones in pairs."""


@pytest.fixture(autouse=True)
def short_turns(monkeypatch):
    monkeypatch.setattr(fixes, "SECONDS", 0.001)


@pytest.fixture(scope="module")
def reference():
    with InlineSession(Target.parse("reference")) as session:
        yield session


@pytest.fixture(scope="module", params=["tensorflow", "torch"])
def library(request, started):
    """A session of a library whose values are tensors."""
    return started(request.param)


def run(session, case, remedy=None):
    x, w, b = case.operands()
    arrays = {"x": x, "w": w} | ({} if b is None else {"b": b})
    asked = session if remedy is None else RemediedSession(session, remedy)
    return asked.request({"do": "run", "spec": case.spec()}, arrays)[1]["y"]


def chunks(size):
    return {"kind": "chunks", "outputs": size}


@settings(max_examples=30, deadline=None)
@given(case=cases(), size=st.integers(1, 9), first=st.booleans())
def test_chunks_and_padding_read_the_same_windows(reference, case, size, first):
    """The reference's bits depend on the window alone, so any slip would show."""
    own, along = run(reference, case), {"axis": 0} if first else {}
    assert equal(run(reference, case, chunks(size) | along), own, case.dtype)
    count = own.shape[1 if first else -2]
    padded = {"kind": "pad", "outputs": [count + size, count + 20]}
    assert equal(run(reference, case, padded | along), own, case.dtype)


REMEDIES = (
    chunks(4),
    {"kind": "pad", "outputs": [40]},
    {"kind": "chunks", "outputs": 3, "axis": 0},
    {"kind": "pad", "outputs": [40], "axis": 0},
    {"kind": "float64"},
    {"kind": "stable", "accumulate": "float64"},
)


@pytest.mark.parametrize("remedy", REMEDIES, ids=lambda remedy: remedy["kind"])
@pytest.mark.parametrize(
    "case",
    [
        Case("conv1d", 5, 6, 4, 23, stride=2, padding="same", bias="normal"),
        Case("conv2d", "3x2", 4, 6, 11, height=5, padding="1:2,0:1", groups=2, batch=2),
        Case("matmul", None, 8, 4, 13),
    ],
    ids=lambda case: case.op,
)
def test_the_librarys_operators_compute_the_case(library, case, remedy):
    """Up to the rounding of a few float32 sums: 8 eps of sum|x*w|."""
    exact, scale = exact_sums(case)
    if remedy["kind"] == "stable" and case.op == "matmul" and library.target.name != "tensorflow":
        with pytest.raises(TargetError, match="unsupported"):
            run(library, case, remedy)
        return
    found = run(library, case, remedy)
    assert found.shape == exact.shape
    assert found.dtype == np.float32
    assert (np.abs(found - exact) <= 8 * floats.eps("float32") * scale).all()


@pytest.mark.parametrize(
    "case",
    [Case("max_pool1d", 2, 3, length=9), Case("conv1d", 3, 4, 2, 9, split=2)],
    ids=["pool", "split"],
)
def test_what_has_no_remedies_is_refused(reference, case):
    with pytest.raises(TargetError, match="remedies are for single convolutions and products"):
        run(reference, case, chunks(4))
    with pytest.raises(InputError, match="remedies are for single convolutions and products"):
        measured_remedies(
            case, Target.parse("reference"), [9, 12], sessions=RemedySessions(inline=True)
        )


@pytest.fixture(scope="module")
def measured():
    case = Case("conv1d", 5, 2, padding="same", operands="cancel")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fixes, "SECONDS", 0.001)
        lengths = [3, 6, 8, 9, 12, 40]
        return measured_remedies(
            case,
            Target.parse(UNSTABLE),
            lengths,
            chunks=[16, 6],
            sessions=RemedySessions(inline=True),
        )


def by_name(measured):
    return {one.remedy.name: one for one in measured.found}


def test_remedies_are_judged_by_order(measured):
    found = by_name(measured)
    assert list(found) == ["default", "pad", "chunks=6", "chunks=16", "float64"]
    verdicts = {name: one.verdict for name, one in found.items()}
    assert verdicts == dict.fromkeys(found, "exact") | dict.fromkeys(
        ["default", "float64"], "differs"
    )
    assert set(found["default"].causes) == {"order"}
    assert found["pad"].sizes == (9, 12, 40)


def test_bits_of_the_longest_run_are_kept_or_not(measured):
    """Calls of 6 outputs are added in sequence, calls of 16 in pairs, as the longest run is."""
    keeps = {name: one.keeps for name, one in by_name(measured).items()}
    assert keeps["default"] and keeps["pad"] and keeps["chunks=16"]
    assert not keeps["chunks=6"] and not keeps["float64"]


def test_all_that_ran_is_timed_at_both_lengths_in_the_same_turns(measured):
    for one in measured.found:
        assert {length: len(turns) for length, turns in one.seconds.items()} == {
            6: ROUNDS,
            40: ROUNDS,
        }
    assert measured.content == 6
    assert measured.ratio(measured.default, 6) == 1


def test_float64_is_nearer_to_the_exact_sum(measured):
    found = by_name(measured)
    assert found["float64"].error_rms < found["default"].error_rms < 2


def test_the_advice_is_the_cheapest_exact_one(measured):
    exact = [one for one in measured.found if one.verdict == "exact"]
    cheapest = min(exact, key=measured.of_fixed)
    advice = advise(measured)
    assert advice.name == cheapest.remedy.name
    assert advice.keeping in ("pad", "chunks=16")
    assert f"times padding everything to {measured.fixed}" in advice.text


def test_a_stable_target_needs_no_remedy():
    case = Case("conv1d", 3, 2, 2)
    found = measured_remedies(
        case, Target.parse("reference"), [4, 9], only=["pad"], sessions=RemedySessions(inline=True)
    )
    advice = advise(found)
    assert (advice.name, advice.keeping) == ("none", "default")
    assert advise_json(found)["recommended"] == "none"


def advise_json(found):
    return json.loads(json.dumps(remedies_report(found)))


def test_a_target_that_no_remedy_mends_is_told():
    case = Case("conv1d", 5, 3, 2)
    words = {"only": ["float64"], "sessions": RemedySessions(inline=True)}
    found = measured_remedies(case, Target.parse(UNSTABLE), [6, 9, 40], **words)
    assert advise(found).name is None
    left = "what is left is one size: each call filled up to 40"
    said = f"no remedy that was tried is exact on this target; {left}"  # padding would be exact
    assert advise_json(found)["advice"] == said


def test_what_the_default_came_to_by_the_end_of_the_time_is_told(monkeypatch):
    """It was "no answer yet" until all lengths of the default had been compared."""
    case, asked = Case("conv1d", 5, 3, 2), []
    before = orders._RevealWork.at

    def at(work, case, value):
        asked.append(value)
        if len(asked) > 2:
            raise TimeOver("the 5 s of --time were over")
        return before(work, case, value)

    monkeypatch.setattr(orders._RevealWork, "at", at)
    words = {"only": ["float64"], "sessions": RemedySessions(inline=True)}
    with budget.within("1h"):
        found = measured_remedies(case, Target.parse(UNSTABLE), [6, 8, 40], **words)
    default, float64 = found.found
    assert default.verdict == "differs" and default.differing == 8 == default.compared
    assert default.refusal == "length 6: not asked: the 5 s of --time were over"
    assert float64.refusal == "not tried: the 5 s of --time were over"
    assert (
        "no remedy that was tried is exact on this target; not known of float64"
        in advise(found).text
    )


@pytest.mark.parametrize(
    ("target", "there", "absent"),
    [
        ("tensorflow,onednn=0", ["onednn=1", "isa=avx2", "stable,float64,xla=1"], ["onednn=0"]),
        ("tensorflow,mode=eager", ["threads=1", "stable"], ["xla=1", "stable,float64,xla=1"]),
        ("torch", ["mkldnn=0", "stable", "deterministic=1"], ["onednn=0", "xla=1"]),
        ("onnxruntime", ["threads=1", "float64"], ["stable"]),
    ],
)
def test_a_target_has_the_remedies_of_its_switches(target, there, absent):
    names = [one.name for one in remedies_of(Target.parse(target))]
    assert names[0] == "default"
    assert set(there) <= set(names)
    assert not set(absent) & set(names)


def told(capsys, *words):
    status = shell.run(["fix", *words])
    return status, capsys.readouterr()


CONV = ("--op", "conv1d", "--kernel", "5", "--lengths", "6,9,40", "--target", UNSTABLE)


def test_the_recommendation_comes_first_and_three_columns_fit_eighty(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    status, printed = told(capsys, *CONV, "--only", "float64", "--fail-on", "finding")
    lines = printed.out.splitlines()
    assert status == 1 and max(map(len, lines)) <= 80
    at = [n for n, one in enumerate(lines) if one.startswith(("recommended: ", "remedy   exact?"))]
    assert at == sorted(at) and len(at) == 2 and "exact?: whether" in printed.out
    assert "no remedy that was tried is exact on this target" in printed.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*CONV[:-2], "--only", "nonsense"), "only=nonsense: unknown; use one of default"),
        ((*CONV, "--fixed", "9"), "fixed=9: it is for a model: a case has its own sizes"),
        ((*CONV[:5], "9", *CONV[6:]), "lengths=9: a single length has nothing to differ from"),
        (("nine-layers", "--op", "conv1d", "--lengths", "1,2"), "op=conv1d: the model defines"),
    ],
)
def test_wrong_words_are_told_in_one_line(capsys, words, said):
    status, printed = told(capsys, *words)
    assert status == 2
    assert said in printed.err
    assert printed.err.count("\n") == 1


CASE = probe.Case(op="dense", in_channels=12, filters=3)


WHERE = Target.parse("reference,algorithm=pairwise")
TWO = ["float64", "chunks=64"]


def test_what_there_is_no_time_for_is_not_known(monkeypatch):
    judged, over, before = [], "the 1 s of --time were over", CaseQuestion.judged

    def noted(self, remedy):
        yield from before(self, remedy)
        judged.append(remedy.name)

    monkeypatch.setattr(CaseQuestion, "judged", noted)
    monkeypatch.setattr(fixes.budget, "spent", lambda: over if judged else "")
    with budget.within("1h"):
        found = measured_remedies(
            CASE, WHERE, (1, 2, 5), only=TWO, sessions=RemedySessions(inline=True)
        )
    assert judged == ["default"]
    assert {one.refusal for one in found.found[1:]} == {f"not tried: {over}"}
    assert [one.verdict for one in found.found[1:]] == ["not known"] * len(found.found[1:])
    assert not found.found[0].seconds and advise(found).name == "none"  # timing takes time too


def test_what_was_judged_stays_where_somebody_interrupts(monkeypatch):
    judged = CaseQuestion.judged

    def interrupted(self, remedy):
        if remedy.name != "default":
            raise KeyboardInterrupt
        return judged(self, remedy)

    monkeypatch.setattr(CaseQuestion, "judged", interrupted)
    with budget.within(None):
        sessions = RemedySessions(inline=True)
        found = measured_remedies(CASE, WHERE, (1, 2, 5), only=TWO, sessions=sessions)
    assert found.default.verdict == "exact"
    assert {one.refusal for one in found.found[1:]} == {"not tried: interrupted"}
