"""The fuzz draws the same trials again, and its referee agrees with probe, and can disagree."""

from importlib import import_module

import numpy as np
import pytest

from lib import fuzzing, planted, promises, referee
from lib.frame import Experiment
from lib.fuzzing import Drawing, Fuzzing, Trial
from probe import Case, Target, load
from probe.case import operands
from probe.case.errors import InputError
from probe.explain.runs import ComparedShapes
from probe.targets.launch import open_session

pytestmark = pytest.mark.slow

EXPERIMENT = "fuzz"
fuzz = import_module(EXPERIMENT)

PLAIN = Drawing({"float32": 1, "float64": 1}, {"normal": 1, "cancel": 1}, {"matmul": 1, "sum": 1})


def test_a_quick_run_explains_all_that_differs(quick):
    found = load(quick).trials
    assert len(found) == 24 and found.compared.notna().all()
    assert found.differing.sum() > 0 and (found.replayed == found.differing).all()
    assert not found.causes.str.contains("unexplained").any()
    assert found.unrefereed.notna().all(), "the reference has no library to call directly"


def test_a_quick_run_names_no_cause_that_was_not_planted(quick):
    found = load(quick).planted
    assert len(found) == fuzz.QUICK_PLANTED["numpy"] and found.reason.isna().all()
    assert set(found.answer) <= {"right", "unknown"}
    right = found[found.answer == "right"]
    # operands of another format are far apart: between runs of other sizes that is unknown
    words = {"order", "rounding", "place", "algorithm", "argument", "nothing"}
    assert words <= set(right.planted)


def test_a_false_cause_is_called_false():
    """A cause that was not planted, one where nothing was, and differences that no call shows."""
    answer = planted._answer
    assert answer("place", "place", 3, 3) == answer("order+rounding", "order", 3, 3) == "right"
    assert answer("place", "", 3, 3) == answer("place", "", 3, None) == "unknown"
    assert answer("place", "algorithm", 3, 3) == answer("nothing", "argument", 0, 0) == "false"
    assert answer("argument", "argument", 3, 0) == answer("place", "order+place", 3, 3) == "false"


@pytest.mark.parametrize("target", ["numpy"])
def test_planted_doubles_are_the_same_for_a_seed(target):
    count = len(planted.PLANTED[target])
    titles = [[planted.drawn(target, n, seed).title for n in range(count)] for seed in (1, 1, 2)]
    assert titles[0] == titles[1] != titles[2]


def test_a_longer_draw_begins_with_a_shorter_one():
    drawing = fuzz.TARGETS["tensorflow"]
    short, long = (drawing.trials("tensorflow", count, 3) for count in (20, 40))
    assert long[:20] == short
    assert drawing.trials("tensorflow", 20, 4) != short
    assert len({one.shapes.case.op for one in long}) > 4


@pytest.mark.parametrize("text", fuzz.TARGETS)
def test_every_target_and_kind_that_is_drawn_exists(text):
    try:
        Target.parse(text)
        assert len(fuzz.TARGETS[text].trials(text, 30, 5)) == 30
    except InputError as error:  # pragma: no cover
        pytest.fail(str(error))


@pytest.mark.check
def test_direct_calls_of_numpy_agree(tmp_path):
    asked = [("numpy", trial) for trial in PLAIN.trials("numpy", 6, 0)]
    done = Experiment("fuzz", tmp_path).ask(Fuzzing, asked, sides={})
    found = load(tmp_path).trials
    assert done.found == 6 and found.refereed.notna().all()
    assert not found[["other", "missed", "false"]].to_numpy().any()


def test_a_referee_that_finds_other_bits_is_heard(monkeypatch):
    case = Case("matmul", in_channels=7, filters=3)
    trial = Trial(0, "numpy", ComparedShapes.named(case, None, 4, 9, None))

    class Wrong:
        def outputs(self, side, given):
            y = referee.called("numpy", {}, side, given).copy()
            if side.length == 4:
                y[0, 0, 0] = np.nextafter(y[0, 0, 0], np.float32(np.inf))
            return y

    with open_session(Target.parse("numpy")) as session:
        sides = fuzzing._Sides(session, open_session)
        monkeypatch.setattr(sides, "_referee", lambda where: Wrong())
        row = sides.judged(trial)
    told = row["differing"]
    assert row["other"] == 1 and row["missed"] + row["false"] == 1
    assert told == 0 or row["false"] <= told


def test_what_has_no_direct_call_says_so():
    case = Case("conv1d", 3, length=9)
    said = pytest.raises(referee.Unrefereed, match="no direct call of numpy is written for")
    with referee.Referee(Target.parse("numpy")) as direct, said:
        direct.outputs(case, operands.generate(case))


def test_a_quick_run_holds_promises_against_direct_calls(quick):
    found = load(quick).promises
    assert len(found) == 3 and found.reason.isna().all()
    assert (found.compared > 0).all() and (found.sizes > 0).all()
    assert not found["false"].any()


def test_a_longer_draw_of_promises_begins_with_a_shorter_one():
    drawing = fuzz.TARGETS["torch"]
    short, long = (promises.drawn(drawing, "torch", count, 3) for count in (10, 30))
    assert long[:10] == short and {one.vary for one in long} == {"length", "batch"}
    assert {one.scan for one in long} > {None}


class Switching:
    """Direct calls of a library that adds pairwise from a size on, and in the last row of some."""

    def __init__(self, switch=9, tail=4):
        self.switch, self.tail = switch, tail

    def outputs(self, case, given):
        x, w, _ = given
        products = x.reshape(-1, case.in_channels, 1) * w.reshape(1, case.in_channels, -1)
        forwards = np.cumsum(products, 1, dtype=np.float32)[:, -1]
        backwards = np.cumsum(products[:, ::-1], 1, dtype=np.float32)[:, -1]
        y = forwards if len(x) < self.switch else backwards
        if len(x) % self.tail == 3:
            y[-1] = forwards[-1] if len(x) >= self.switch else backwards[-1]
        return y.reshape(case.output_shape())


@pytest.mark.check
@pytest.mark.parametrize(
    ("alike", "wrong"),
    [
        ({1, 2, 4, 5, 6, 8}, set()),
        ({9, 10, 12, 13, 14}, set()),
        ({9, 10, 11, 12}, {11}),
        ({8, 9, 10, 12}, {8}),
        ({15}, {15}),
    ],
)
def test_a_promise_that_direct_calls_contradict_is_counted(alike, wrong):
    """At 3, 7, 11 and 15 the last row is added the other way round; from 9 on all others are."""
    asked = promises.Asked(0, "numpy", Case("dense", in_channels=40, filters=3), "batch", 15)
    broken, compared = promises.contradicted(asked, [alike, {1}], Switching())
    assert broken == [wrong, set()] and compared > 0


def test_what_is_promised_is_read_as_the_command_tells_it():
    told = {
        "classes": [{"sizes": [[1, 3, 1]]}, {"sizes": [[4, 8, 4]]}],
        "floor": {"size": 4, "step": 4, "run_to": 8},
    }
    assert promises.promises(told) == [{1, 2, 3}, {4, 8}, {4, 8}]


def test_windows_that_hold_the_same_have_one_label():
    """Of a repeated input, by what it holds: strides, dilation, padding on both sides."""
    for words in ({"padding": "same", "stride": 2}, {"dilation": 2}, {"padding": "2:1"}):
        case = Case("conv1d", 3, 2, 1, **words)
        asked = promises.Asked(0, "reference", case, "length", 23)
        given = promises.repeated(asked, "normal", 0)
        seen: dict[int, bytes] = {}
        for length in (11, 16, 23):
            at = asked.at(length)
            x = given(length)[0][0]
            before, after = at.pads()[-1]
            wide = np.pad(x, ((before, after), (0, 0)))
            taps = np.arange(at.output_spatial()[-1])[:, None] * at.stride[0]
            windows = wide[taps + np.arange(3) * at.dilation[0]]
            for label, window in zip(promises.labels(at, "length"), windows, strict=True):
                assert seen.setdefault(int(label), window.tobytes()) == window.tobytes()
        assert len(seen) >= 5
