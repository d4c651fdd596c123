"""Two runs and their causes, on targets whose order is known."""

from __future__ import annotations

import json

import numpy as np
import pytest

from probe.case import floats
from probe.case.case import Case
from probe.case.errors import InputError
from probe.explain.comparison import compare_shapes
from probe.explain.evidence import differing_example
from probe.explain.runs import ComparedShapes, Revealer, run_case
from probe.targets.target import Target
from tests.convolutions import explain_case
from tests.order.synthetic import planted

REFERENCE = Target.parse("reference")


def other(algorithm):
    return Target.parse(f"reference,algorithm={algorithm}")


def conv(**changes):
    given = {"op": "conv1d", "kernel": 3, "in_channels": 4, "filters": 3, "operands": "cancel"}
    return Case(**(given | changes))


def explained(*args, **kwargs):
    return explain_case(*args, inline=True, **kwargs)


def test_the_reference_is_stable_under_every_axis():
    for vary in ("length", "batch", "filters"):
        case = conv() if vary == "length" else conv(length=12)
        found = explained(case, REFERENCE, 3, 6, vary=vary)
        assert found.replayed == found.compared > 0
        assert not found.causes and found.by_order == 0 and found.max_ulp == 0


@pytest.mark.parametrize(
    ("algorithm", "cause"),
    [
        ("pairwise", "order"),
        ("reversed", "order"),
        ("fused", "rounding"),
        ("winograd", "not-a-sum"),
        ("random", "nondeterministic"),
    ],
)
def test_two_targets_differ_by_their_cause(algorithm, cause):
    found = explained(conv(length=20), REFERENCE, against_target=other(algorithm))
    assert set(found.causes) == {cause} and sum(found.causes.values()) == len(found.differing) > 0
    if cause in ("order", "rounding"):
        assert found.replayed == found.compared == found.by_order


@pytest.mark.parametrize(
    "case",
    [
        {"op": "conv2d", "height": 5},
        {"op": "conv2d", "height": 5, "padding": 1, "groups": 2, "filters": 4},
        {"op": "conv3d", "kernel": 2, "height": (3, 3), "batch": 2},
        {"batch": 2},
    ],
)
def test_two_targets_at_two_lengths_read_the_same_rows_and_samples(case):
    found = explained(conv(**case), REFERENCE, 6, 9, against_target=other("pairwise"))
    assert "order" in found.causes and set(found.causes) <= {"order", "window"}
    width = found.left.case.output_shape()[-2]
    apart = found.pairs.left[~found.pairs.same_window][:, 0]
    # behind the end of the shorter rows, where padding is, the longer rows have inputs
    assert set(apart % width) == ({width - 1} if "padding" in case else set())


def kept_in(form):
    return lambda array: floats.nearest(array.astype(np.float64), form).astype(np.float32)


def cut(array):
    return (array.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


CLIPPED = {
    "relu": lambda y: np.maximum(y, np.float32(0)),
    "relu6": lambda y: np.clip(y, np.float32(0), np.float32(6)),
    "clip": lambda y: np.clip(y, np.float32(-1), np.float32(1)),
    "int8": lambda y: (np.clip(np.rint(y * 8), -128, 127) / 8).astype(np.float32),
    "overflow": lambda y: np.where(np.abs(y) > 4, np.copysign(np.float32(np.inf), y), y),
    "abs": np.abs,
}


@pytest.mark.parametrize(
    ("functions", "cause"),
    [
        *(({side: kept_in(form)}, "precision") for side in ("input", "weights", "output")
          for form in ("bfloat16", "tf32") if (side, form) != ("output", "tf32")),
        ({"input": kept_in("tf32"), "weights": kept_in("tf32")}, "precision"),
        ({"input": cut}, "unexplained"),
        ({"input": kept_in("float16"), "weights": kept_in("float16")}, "unexplained"),
        *(({"output": function}, "not-a-sum") for function in CLIPPED.values()),
    ],
)  # fmt: skip
def test_the_cause_is_the_one_that_was_planted_or_none(functions, cause):
    case = conv(length=6, filters=2, operands="normal")
    sides = planted(), planted(**functions)
    found = compare_shapes(ComparedShapes.named(case, at=6), *sides).reveal(*sides, Revealer())
    assert set(found.causes) == {cause} and len(found.differing)
    assert found.pairs.same_window.all()
    if cause == "precision":
        assert found.replayed == found.compared


def test_sums_that_are_not_replayed_by_luck_at_many_of_their_outputs():
    case = conv(length=30, filters=4)
    double = planted(output=lambda y: y / np.float32(7) * np.float32(7))
    side = run_case(double, case).reveal(double)
    assert side.orders is not None and not side.replays.any()


def test_other_paddings_are_windows_and_not_rounding():
    found = explained(conv(length=20, padding="same", stride=2), REFERENCE, against_padding="caffe")
    assert set(found.causes) == {"window"} and found.to_json()["windows_differ"] == 30
    sides, counts, _ = found.lines()  # the windows differ, so nothing has to agree
    assert counts.startswith("30 of 30 outputs differ")
    assert "padding same on reference against padding caffe on reference" in sides


def test_a_switch_at_a_length_is_found_though_integers_hide_it():
    target = Target.parse("reference,length_switch=10")
    hidden = explained(conv(operands="integers"), target, 6, 30)
    assert len(hidden.differing) == 0
    assert hidden.by_order == hidden.compared > 0


def test_the_json_has_the_keys_of_the_contract():
    found = explained(conv(length=20), REFERENCE, against_target=other("pairwise")).to_json()
    contract = "case left right compared differing max_ulp causes replayed left_orders right_orders"
    assert {*contract.split(), "kernels"} <= set(found)
    assert {"id", "tree", "fused", "outputs"} <= set(found["left_orders"][0])
    assert found["left"] == {"target": "reference", "length": 20, "batch": 1}
    assert json.loads(json.dumps(found)) == found


def test_nothing_to_compare_is_said():
    with pytest.raises(InputError, match="the same run"):
        explained(conv(length=9), REFERENCE, 9, 9)
    with pytest.raises(InputError, match="length"):
        explained(conv(), REFERENCE, against_target=other("pairwise"))


def test_outputs_whose_order_is_not_known_are_counted_though_their_bits_agree():
    case = conv(op="conv2d", kernel=3, in_channels=4, filters=2, height=4)
    found = explained(case, Target.parse("reference,algorithm=winograd"), 4, 5)
    assert not len(found.differing) and found.unknown == found.compared
    assert f"the order of {found.compared} outputs is not known" in found.lines()[2]


def test_the_example_is_the_smallest_that_replays():
    case = Case(op="conv1d", kernel=5, in_channels=2, filters=2, padding="same", operands="cancel")
    target = Target.parse("reference,algorithm=pairwise,length_switch=8")
    found = explained(case, target, 6, 20)
    evidence = differing_example(found)
    assert evidence is not None and evidence.left.output == evidence.right.output
    # the first output reads three of five places, two channels each
    assert len(evidence.left.products) == 6
    assert evidence.left.result == evidence.left.library
    assert evidence.right.result == evidence.right.library
    assert differing_example(explained(case, REFERENCE, 6, 20)) is None
