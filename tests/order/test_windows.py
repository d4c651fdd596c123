"""Revealed windows against what geometry implies, and inputs that get in without a weight."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from probe.case import floats
from probe.case.case import Case
from probe.case.errors import NotASum
from probe.explain.evidence import differing_example
from probe.order import windows
from probe.order.masks import SessionOperator
from probe.order.window import Geometry
from probe.order.windows import (
    PoolWindows,
    as_predicted,
    flat_pool_windows,
    reached_by,
    reveal_reach,
    reveal_windows,
)
from probe.targets.launch import InlineSession, open_session
from probe.targets.target import Target
from tests.convolutions import explain_case
from tests.order.synthetic import planted

CASES = (
    Case("conv1d", 3, 2, 3, 9, padding="same", batch=2),
    Case("conv2d", (2, 3), 4, 4, 5, groups=2, height=4, stride=2, padding=1),
    Case("matmul", in_channels=3, filters=2, length=4, bias="normal"),
)
OUTPUTS = {
    "clipped": lambda y: np.clip(y, np.float32(-6), np.float32(6)),
    "quarters": lambda y: np.rint(y * np.float32(4)) / np.float32(4),
    "off": lambda y: y + np.float32(0.01) * (np.abs(y) > 0.5),
    "long": lambda y: y * np.float32(1.004),
    "plain": lambda y: y,
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.op)
@pytest.mark.parametrize("output", OUTPUTS.values(), ids=OUTPUTS)
def test_windows_are_found_behind_what_clips_or_rounds(case, output):
    found = reveal_windows(SessionOperator(planted(output=output), case))
    assert np.array_equal(found, as_predicted(case)) and found.dtype == np.int32


@pytest.mark.parametrize(
    ("output", "why"),
    [
        (lambda y: y * np.float32(1.25), "not an"),
        (lambda y: np.where(y > 0, np.float32(np.nan), y), "not an integer"),
        (lambda y: y + np.float32(1000), "not an element of the input"),
    ],
)
def test_what_names_no_element_is_no_window(output, why):
    with pytest.raises(NotASum, match=why):
        reveal_windows(SessionOperator(planted(output=output), CASES[0]))


def padded_otherwise(output):
    """An operator of other padding than its case says, and that padding's windows."""
    case, other = (Case("conv1d", 3, 2, 3, 8, padding=pad, stride=2) for pad in ("same", "caffe"))
    assert case.output_shape() == other.output_shape()
    operator = SessionOperator(planted(output=output), other)
    operator.case = case
    operator.run = SessionOperator(operator.session, other).run
    return operator, as_predicted(other)


@pytest.mark.parametrize("output", OUTPUTS.values(), ids=OUTPUTS)
def test_windows_of_other_padding_are_read_off(output):
    operator, windows = padded_otherwise(output)
    found = reveal_windows(operator)
    assert np.array_equal(found, windows) and (found != as_predicted(operator.case)).any()


def test_two_answers_that_differ_are_no_windows():
    operator, _ = padded_otherwise(lambda y: np.clip(y, np.float32(-2), np.float32(2)))
    with pytest.raises(NotASum, match="depends on how large the inputs are"):
        reveal_windows(operator)


def test_names_beyond_the_digits_of_a_format_are_asked_in_parts():
    case = Case("conv1d", 2, 3, 2, 1400, dtype="float16")
    found = reveal_windows(SessionOperator(InlineSession(Target("reference")).start(), case))
    assert np.array_equal(found, as_predicted(case))


def test_what_a_pool_reads_stands_where_its_padding_puts_it_or_in_places_left():
    case = Case("max_pool2d", (2, 3), in_channels=2, height=4, length=5, padding=1, batch=2)
    predicted, rng = Geometry.of(case).reads(), np.random.default_rng(0)
    for share in (1.0, 0.7, 0.3):
        reads = np.zeros((len(predicted), 20), bool)
        for held, row in zip(reads, predicted, strict=True):
            own = [place for place in row.tolist() if place >= 0 and rng.random() < share]
            others = rng.permutation([n for n in range(20) if n not in row])
            held[[*own, *others[: int(rng.integers(0, 7 - len(own)))]]] = True
        found = flat_pool_windows(case, PoolWindows(reads, np.ones(len(reads)), ""))
        assert found.shape == (2, 2 * len(reads), 6)
        for channel, entry in np.ndindex(2, 2):
            rows = found[channel, entry * len(reads) : (entry + 1) * len(reads)]
            for row, plain, held in zip(rows.tolist(), predicted.tolist(), reads, strict=True):
                places = [-1 if one < 0 else (one - channel) // 2 - entry * 20 for one in row]
                assert sorted(one for one in places if one >= 0) == np.flatnonzero(held).tolist()
                assert all(
                    places[n] == one for n, one in enumerate(plain) if one >= 0 and held[one]
                )
                assert all(one < 0 or one % 2 == channel for one in row)


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


@pytest.mark.parametrize("case", [SHAPES["groups"], SHAPES["dilated"].with_(filters=3)])
def test_weights_of_another_filter_that_get_in_are_found_at_the_filter_that_reads_them(case):
    padded = np.tile((Geometry.of(case).reads() < 0).any(axis=1), case.batch)[:, None]
    for reader, read in itertools.permutations(range(case.filters), 2):

        def weights(w, reader=reader, read=read):
            w = w.copy()
            with np.errstate(invalid="ignore"):
                w[..., reader] += 0 * w[..., read]
            return w

        found = reveal_reach(planted(weights=weights), case)
        assert (found.weights == (np.arange(case.filters) == reader)).all()
        assert not found.inputs.any() and (found.padding == padded).all()


def test_of_given_infinities_those_are_named_that_may_reach_an_output():
    rng = np.random.default_rng(0)
    for name in ("matmul", "dilated", "groups", "depthwise", "sum"):
        case = SHAPES[name]
        arrays = [np.ones(case.input_shape()), np.ones(case.weight_shape)]
        x, w = (floats.round_to(one, case.dtype) for one in arrays)
        b = None if case.bias is None else floats.round_to(np.ones(case.filters), case.dtype)
        with open_session(NEIGHBOUR, inline=True) as session:
            every = one_by_one(session, case)
            for count in (1, 1, 2, 5):
                odd = set(rng.choice(x.size, count, replace=False).tolist())
                given = x.copy()
                given.reshape(-1)[list(odd)] = np.inf
                found = reached_by(session, case, given, w, b)
                reaching = {place: odd.intersection(some) for place, some in every.items()}
                wanted = {place: some for place, some in reaching.items() if some}
                assert {(one.position, one.group) for one in found.named} == set(wanted)
                for one in found.named:
                    inputs = set(one.inputs.tolist())
                    assert wanted[one.position, one.group] == inputs and one.exact


@pytest.mark.parametrize("name", SHAPES)
def test_of_many_elements_blocks_and_places_within_them_are_asked(name, monkeypatch):
    """What reaches an output is among what is named, and all of it where that is said."""
    case = SHAPES[name]
    size = math.prod(case.input_shape())
    with open_session(NEIGHBOUR, inline=True) as session:
        every = one_by_one(session, case)
        monkeypatch.setattr(windows, "MOST", size - 1)
        found = reveal_reach(session, case)
    assert {(one.position, one.group) for one in found.named} == set(every)
    for one in found.named:
        inputs = set(one.inputs.tolist())
        assert inputs >= set(every[one.position, one.group])
        assert not one.exact or inputs == set(every[one.position, one.group])
    assert found.calls <= 2 * math.sqrt(size) + 30 and any(one.exact for one in found.named)


def test_a_nan_that_gets_in_from_elsewhere_has_the_cause_reach():
    case = Case("matmul", in_channels=5, filters=3, operands="ones", put="x[0, 1]=nan")
    found = explain_case(case, BEYOND, 4, 20, inline=True)
    assert found.causes == {"reach": 3} and found.replayed == found.compared
    assert found.to_json()["reached"] == {"left": 0, "right": 3}
    shown = differing_example(found)
    assert shown.cause == "reach" and shown.right.output == (0, 0, 0)
    assert "x[0, 1, 0]=nan" in shown.to_json()["right"]["reached"]
    assert "reached" not in shown.to_json()["left"]


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
