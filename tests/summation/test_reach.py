"""What reaches an output without a weight: every element found, and named as a cause."""

import io
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from probe import floats
from probe.answers.cases import predicted, window
from probe.case import Case
from probe.cli.show import cases as show
from probe.errors import TargetError
from probe.explaining.evidence import differing_example
from probe.launch import open_session
from probe.summation import reach
from probe.summation.reach import NAMED, Axis, reveal_reach
from probe.switch_points import by_order
from probe.target import Target, why_unavailable
from tests.convolutions import explain_case

PLAIN = Target.parse("reference")
NEIGHBOUR = Target.parse("reference,algorithm=neighbour")
BEYOND = Target.parse("reference,algorithm=neighbour,length_switch=8")
"""Reads the place after a window from eight outputs on: a stand-in for kernels that do."""

SHAPES = {
    "matmul": Case("matmul", in_channels=5, filters=3, length=37),
    "dense": Case("dense", in_channels=3, filters=2, batch=9),
    "dilated": Case("conv1d", 3, 2, 2, 23, padding="same", dilation=3, bias="normal"),
    "groups": Case("conv2d", (3, 2), 4, 4, 9, groups=2, batch=2, height=5, stride=2),
    "depthwise": Case("depthwise_conv2d", (2, 2), 3, length=7, height=4, padding="caffe"),
    "sum": Case("sum", in_channels=6, length=11),
}


def one_by_one(session, case):
    """{(position, group): elements of x that make it NaN when they alone are infinite}."""
    small = floats.round_to(np.full(case.weight_shape, 2.0**-8), case.dtype)
    found = {}
    for element in range(int(np.prod(case.input_shape()))):
        x = np.ones(case.input_shape())
        x.reshape(-1)[element] = np.inf
        given = {"x": floats.round_to(x, case.dtype), "w": small}
        if case.bias is not None:
            given["b"] = floats.round_to(np.zeros(case.filters), case.dtype)
        y = session.request({"do": "run", "spec": case.spec()}, given)[1]["y"]
        nan = np.isnan(floats.widen(y, case.dtype)).reshape(
            -1, case.groups, case.filters // case.groups
        )
        for position, group in zip(*np.nonzero(nan.any(axis=2)), strict=True):
            found.setdefault((int(position), int(group)), []).append(element)
    return found


def named(found):
    assert all(one.exact for one in found.named)
    return {(one.position, one.group): one.inputs.tolist() for one in found.named}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("target", [PLAIN, NEIGHBOUR], ids=["plain", "neighbour"])
def test_what_reaches_an_output_is_found_element_by_element(name, target):
    case = SHAPES[name]
    with open_session(target, inline=True) as session:
        found, wanted = reveal_reach(session, case), one_by_one(session, case)
    assert named(found) == wanted and bool(wanted) == (target is NEIGHBOUR)
    assert not found.weights.any()
    if target is PLAIN and not case.bias and case.padding == "valid":
        assert found.calls == 1 + case.weighted  # the usual answer costs no more


def test_a_window_s_own_padding_is_multiplied_or_not():
    with open_session(PLAIN, inline=True) as session:
        found = reveal_reach(session, SHAPES["dilated"])
    padded = (predicted(SHAPES["dilated"])[0] < 0).any(axis=1)
    assert (found.padding == padded[:, None]).all() and not found.outputs.any()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_sets_ask_every_output_about_all_that_it_does_not_read(data):
    size = data.draw(st.integers(1, 70))
    step = data.draw(st.integers(1, 3))
    taps = data.draw(st.lists(st.integers(0, 8), min_size=1, max_size=4, unique=True))
    reads = np.arange(0, size, step)[:, None] + np.array(sorted(taps))
    axis = Axis(size, np.where(reads < size, reads, -1))
    asked = np.zeros((len(reads), size), bool)
    sets = list(axis.sets())
    for members in sets:
        apart = axis.apart(members)
        assert not (apart[:, None] & members & own(axis)).any()
        asked |= apart[:, None] & members
    assert (asked | own(axis)).all() and not (asked & own(axis)).any()
    extent = max(taps) - min(taps) + 1
    assert len(sets) <= max(2 * extent, 4) + 4 * (2 + np.log2(max(size, 2)))


def own(axis):
    found = np.zeros((len(axis.reads), axis.size), bool)
    for row, reads in zip(found, axis.reads, strict=True):
        row[reads[reads >= 0]] = True
    return found


def test_a_nan_that_gets_in_from_elsewhere_has_the_cause_reach():
    case = Case("matmul", in_channels=5, filters=3, operands="ones", put="x[0, 1]=nan")
    found = explain_case(case, BEYOND, 4, 20, inline=True)
    assert found.causes == {"reach": 3} and found.replayed == found.compared
    assert found.to_json()["reached"] == {"left": 0, "right": 3}
    shown = differing_example(found)
    assert shown.cause == "reach" and shown.right.output == (0, 0, 0)
    assert "x[0, 1, 0]=nan" in shown.to_json()["right"]["reached"]
    assert "reached" not in shown.to_json()["left"]


def test_an_infinity_in_the_window_is_no_reach():
    case = Case("matmul", in_channels=5, filters=3, operands="ones", put="x[0, 0]=inf")
    found = explain_case(case, BEYOND, 4, 20, inline=True)
    assert not found.causes and found.replayed == found.compared == 12
    assert "reached" not in found.to_json()


@pytest.mark.parametrize("dtype", floats.FORMATS)
@pytest.mark.parametrize(("kind", "algorithm"), [("infinite", "pairwise"), ("nan", "neighbour")])
def test_infinities_and_nan_replay_in_every_format(kind, dtype, algorithm):
    target = Target.parse(f"reference,algorithm={algorithm},length_switch=9")
    case = Case("conv1d", 3, 2, 6, padding="same", operands=kind, dtype=dtype, seed=1)
    found = explain_case(case, target, 7, 80, inline=True)
    assert found.replayed == found.compared > 0 and "unexplained" not in found.causes
    assert not found.right.operands.finite


def test_overflow_in_one_order_alone_is_order():
    largest = "x[0, 0, 0]=3e38; x[0, 0, 1]=3e38; x[0, 0, 2]=-3e38; x[0, 0, 3]=-3e38"
    case = Case("matmul", in_channels=4, filters=1, length=2, operands="ones", put=largest)
    found = explain_case(case, PLAIN, against_target=Target.parse("reference,algorithm=pairwise"))
    left, right = found.values()
    assert np.isinf(left[0]) != np.isinf(right[0]) or np.isnan(left[0]) != np.isnan(right[0])
    assert found.causes == {"order": 1} and found.replayed == found.compared == 2


def test_a_product_that_overflows_before_it_is_added_replays():
    # 1.5 * 3e38 - 1.5 * 2.8e38 is a number, unless the first product is rounded to float32 alone.
    large = "x[0, 0, 0]=3e38; x[0, 0, 1]=-2.8e38; w[0]=1.5"
    case = Case("matmul", in_channels=3, filters=1, length=1, dtype="bfloat16", put=large)
    target = Target.parse("reference,algorithm=truncated")
    found = explain_case(case, target, against_target=PLAIN, inline=True)
    assert np.isinf(floats.widen(found.values()[0], "bfloat16")).all()
    assert found.replayed == found.compared == 1
    assert found.left.summation((0, 0)).rounding.fused < {0, 1, 2}


def test_window_tells_what_reaches_an_output():
    told = window(SHAPES["matmul"], NEIGHBOUR).to_json()
    assert told["reach"] == {"inputs": 36 * 3} and told["windows"][0]["reaches"] == [*range(5, 10)]
    assert "reaches" not in told["windows"][-1]
    quiet = window(SHAPES["matmul"], PLAIN).to_json()
    assert "reach" not in quiet and not any("reaches" in one for one in quiet["windows"])


def test_window_says_it_in_words():
    def text(found):
        console = Console(width=200, record=True, file=io.StringIO())
        console.print(show.windows(found))
        return console.export_text()

    told = text(window(SHAPES["groups"], NEIGHBOUR))
    assert "outputs multiply inputs outside of their window by 0: an infinity there" in told
    assert "out[0, 0, 0], filter 2 is reached by x[0, 2, 2, 2..3]" in told
    assert "infinities and NaN outside of its window reach no output" in text(
        window(SHAPES["sum"], PLAIN)
    )
    pool = Case("max_pool1d", 2, 2, length=6)
    assert "this holds for finite operands" in text(window(pool, PLAIN))


def test_by_order_says_where_infinities_get_in():
    case = Case("matmul", in_channels=5, filters=3)
    with open_session(BEYOND, inline=True) as session:
        found = by_order.sweep_by_order(session, case, [4, 12]).to_json()
    assert found["differing"] == 0 and found["reached"] == [{"length": 12, "outputs": 33}]
    with open_session(PLAIN, inline=True) as session:
        assert "reached" not in by_order.sweep_by_order(session, case, [4, 12]).to_json()


def test_a_request_carries_as_many_edits_as_are_allowed_and_one_set_at_least(monkeypatch):
    monkeypatch.setattr(reach, "EDITS", 10)
    parts = reach._parts_by_edits([0, 2, 3, 4], [4, 99, 6, 1, 30])
    assert list(parts) == [[0, 2], [3], [4]]
    with open_session(NEIGHBOUR, inline=True) as session:
        parted = reveal_reach(session, SHAPES["groups"])
        monkeypatch.undo()
        whole = reveal_reach(session, SHAPES["groups"])
    assert named(parted) == named(whole) and named(whole)
    assert (parted.inputs == whole.inputs).all() and parted.calls == whole.calls


def test_a_step_is_the_smallest_that_keeps_all_that_is_left_of_a_row_apart():
    rng = np.random.default_rng(0)
    for trial in range(120):
        size = 1 + trial % 9
        left = rng.random((1 + trial % 3, size)) < rng.choice([0.0, 0.2, 0.5, 1.0])
        places = [np.flatnonzero(row) for row in left]
        apart = (
            step
            for step in range(1, size + 1)
            if all(len(set(some % step)) == len(some) for some in places)
        )
        assert reach._step(left) == next(apart)


ROWS = [(65, 64, 32), (129, 48, 201), (63, 32, 21), (33, 32, 21)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "cases"),
    [
        ("tensorflow", [Case("matmul", None, c, f, n, dtype="bfloat16") for c, f, n in ROWS]),
        (
            "litert",
            [
                Case("conv2d", "3x2", 32, 32, 5, groups=32, batch=2),
                Case("depthwise_conv2d", "5x2", 33, height=10, length=5),
            ],
        ),
    ],
)
def test_what_libraries_read_without_a_weight(text, cases):
    target = Target.parse(text)
    if why := why_unavailable(target):
        pytest.skip(why)
    reached = 0
    with open_session(target) as session:
        for case in cases:
            try:
                found = reveal_reach(session, case)
            except TargetError as error:
                pytest.skip(str(error))
            reached += int(found.outputs.any())
            if found.named and found.named[0].exact and math.prod(case.input_shape()) < 1200:
                every = one_by_one(session, case)
                assert len(found.named) == min(len(every), NAMED)
                assert all(every[place] == inputs for place, inputs in named(found).items())
    if not reached:
        pytest.skip(f"{text} reads nothing without a weight on this processor")
