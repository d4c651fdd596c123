"""Rounding or a bug: verdicts, and exact values that anybody can compute again."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import probe
from probe.case import floats
from probe.case.case import Case
from probe.explain.comparison import compare_shapes
from probe.explain.enclosure import RoundingVerdict
from probe.explain.runs import ComparedShapes, Revealer, run_case
from probe.explain.verdict import (
    BUG,
    CONVENTION,
    EQUAL,
    NOT_KNOWN,
    ROUNDING,
    bug_or_rounding,
    exact_output,
    public_threads,
    threads_alike,
    verdict_of_counts,
)
from probe.targets import backends
from probe.targets.launch import open_session
from probe.targets.target import Target


def compared(case, left="reference", right="reference,algorithm=fused", padding=None, spoil=None):
    """Two runs, revealed; ``spoil`` changes the right side's outputs as a bug would."""
    shapes = ComparedShapes.named(case, None, None, None, padding)
    targets = [Target.parse(text) for text in (left, right)]
    with open_session(targets[0], inline=True) as one, open_session(targets[1], inline=True) as two:
        found = compare_shapes(shapes, one, two)
        found.reveal(one, two, Revealer(tried=None))
    if spoil is not None:
        found.right.operands.y[...] = spoil(found.right)
        replays = np.zeros_like(found.right.replays)
        found.right = replace(found.right, replays=replays)
    return found


CASES = [
    Case("conv1d", 3, 4, 2, 9, bias=0.3, padding="same", stride=2, operands="cancel"),
    Case("conv2d", 2, 2, 4, 4, height=5, groups=2, dilation=2, padding=1),
    Case("depthwise_conv2d", 3, 2, 4, 5, padding="0:2,1"),
    Case("dense", in_channels=7, filters=3, batch=2, dtype="float64"),
    Case("matmul", in_channels=9, filters=2, length=3, dtype="float16"),
    Case("sum", in_channels=9, length=2, dtype="bfloat16"),
]


def loop(case, x, w, b, place):
    """The exact value by a loop over Python's own numbers: what the expression is held against."""
    n, *at, f = place
    group = f // (case.filters // case.groups)
    wide = case.in_channels // case.groups
    total = Fraction(0 if b is None else float(b[f]))
    kernel = np.ndindex(*(w.shape[:-2] if case.spatial_rank else ()))
    for taps in kernel:
        where = []
        for axis, tap in enumerate(taps):
            before = case.pads()[axis][0]
            where.append(at[axis] * case.stride[axis] + tap * case.dilation[axis] - before)
        if any(p < 0 or p >= size for p, size in zip(where, case.spatial(), strict=True)):
            continue
        for c in range(wide):
            a = Fraction(float(x[(n, *where, group * wide + c)]))
            total += a * Fraction(float(w[(*taps, c, f)]))
    return total


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_exact_values_are_those_of_a_loop_and_of_the_expression_that_a_script_has(case):
    with open_session(Target.parse("reference"), inline=True) as session:
        side = run_case(session, case)
    x, w, b = (None if a is None else floats.widen(a, case.dtype) for a in case.operands())
    w = np.ones((1, case.in_channels, 1)) if case.op == "sum" else w
    outputs = np.ndindex(*side.replays.shape)
    for place in outputs:
        found = exact_output(side, place)
        names = {"np": np, "x": x, "w": w, "b": b}
        terms = eval(found.source, {"Fraction": Fraction, **names})
        assert sum(terms) == found.exact
        if case.spatial_rank and case.op != "matmul" and case.op != "sum":
            assert found.exact == loop(case, x, w, b, found.place)
        assert found.within and found.y == float(floats.widen(side.operands.y[place], case.dtype))


def test_two_orders_are_rounding_and_one_wrong_number_is_a_bug():
    case = CASES[0]
    verdict = bug_or_rounding(compared(case))
    assert verdict.what == ROUNDING and "closed as intended" in verdict.says and not verdict.fails
    assert sum(verdict.classes.values()) == 10 and verdict.classes["not explained"] == 0
    left, right = verdict.sides
    assert left.terms == right.terms and left.within and right.within

    def wrong(side):
        y = side.operands.y.copy()
        y[1, 0] += y.dtype.type(1000)
        return y

    verdict = bug_or_rounding(compared(case, spoil=wrong))
    assert verdict.what == BUG and verdict.says.startswith("the right side lies outside")
    assert verdict.fails and verdict.sides[0].within and not verdict.sides[1].within
    assert verdict.sides[1].place[-2:] == (1, 0)
    found = verdict.to_json()
    assert found["exact"]["right"]["within"] is False and found["classes"]["not explained"] >= 1


def test_two_paddings_are_a_convention_and_equal_ones_nothing():
    case = Case("conv1d", 3, 1, 1, 8, stride=2, padding="same")
    verdict = bug_or_rounding(compared(case, right="reference", padding=((1, 0),)))
    assert verdict.what == CONVENTION and verdict.classes["explained rounding"] == 0
    assert verdict.sides[0].terms != verdict.sides[1].terms and not verdict.fails
    assert bug_or_rounding(compared(case, right="reference", padding=((0, 1),))).what == EQUAL


def test_another_convention_says_what_the_other_library_must_be_told():
    torch = pytest.importorskip("torch")
    case = Case("conv2d", 3, 2, 3, length=8, height=8, stride=2, padding="same")
    why = probe.explain(case, "torch", against_padding=1)
    assert why.verdict.what == CONVENTION and "F.pad(x, (0, 1, 0, 1))" in why.verdict.port
    x, w, _ = case.operands()
    names = {"F": torch.nn.functional, "torch": torch}
    names |= {"x": torch.from_numpy(x.transpose(0, 3, 1, 2).copy())}
    names |= {"w": torch.from_numpy(w.transpose(3, 2, 0, 1).copy())}
    exec(why.verdict.port, names)
    left = why.found.left.operands.y.reshape(case.output_shape())
    assert np.array_equal(names["y"].numpy().transpose(0, 2, 3, 1), left)
    caffe = Case("max_pool2d", 3, length=8, height=8, stride=2, padding="caffe")
    assert "ceil_mode=True" in probe.explain(caffe, "torch", against_padding=0).verdict.port


@pytest.mark.parametrize("op", ["max_pool1d", "avg_pool1d"])
def test_pools_have_exact_values_too(op):
    case = Case(op, 3, in_channels=2, length=8, stride=2, padding="same")
    verdict = bug_or_rounding(compared(case, right="reference", padding=((1, 0),)))
    assert verdict.what == CONVENTION and all(side.within for side in verdict.sides)
    x = case.operands()[0]
    for side in verdict.sides:
        assert sum(eval(side.source, {"Fraction": Fraction, "x": x})) == side.exact


def test_shorter_operands_are_rounding_to_fewer_digits():
    case = Case("matmul", in_channels=40, filters=3, length=4)
    found = compared(case, right="reference,algorithm=short")
    verdict = bug_or_rounding(found)
    assert "precision" in next(iter(found.causes)) and verdict.what == ROUNDING
    assert verdict.sides[1].shorter in (0, 11) and all(side.within for side in verdict.sides)


def test_counts_alone_give_a_verdict_without_exact_values():
    assert verdict_of_counts(RoundingVerdict(explained=3), 9, 3).what == ROUNDING
    assert verdict_of_counts(RoundingVerdict(beyond=1, right=1, within=2), 9, 3).what == BUG
    assert verdict_of_counts(RoundingVerdict(unknown=1, explained=2), 9, 3).what == NOT_KNOWN
    assert verdict_of_counts(RoundingVerdict(), 9, 0).what == EQUAL
    assert verdict_of_counts(RoundingVerdict(explained=3), 9, 3).classes["equal"] == 6


def test_every_thread_says_what_it_is_about_in_known_words():
    for thread in public_threads():
        assert set(thread) <= {
            "name",
            "library",
            "verdict",
            "causes",
            "ops",
            "dtypes",
            "vary",
            "said",
        }
        assert thread["library"] in {*backends.known_backends(), "*"}, thread["name"]
        assert thread["verdict"] in (ROUNDING, BUG, CONVENTION)
        assert "#" in thread["name"] and thread["said"] and thread["causes"]
    names = [thread["name"] for thread in public_threads()]
    assert len(names) == len(set(names))


def test_those_of_the_library_cause_and_axis_are_named():
    order = ("torch", "rounding", {"order"})
    text = threads_alike(*order, "dense", "float32", "batch")
    assert text.startswith("as in pytorch#136338: closed")
    assert "pytorch#134908" in threads_alike(*order, "conv2d", "float32", "batch")
    assert threads_alike(*order, "conv2d", "float32", "layout") == ""
    assert threads_alike("torch", "bug", {"order"}, "conv2d", "bfloat16", None)
    assert threads_alike("torch", "bug", {"order"}, "dense", "float32", None) == ""
    pool = ("avg_pool2d", "float32", None)
    assert "torch/nn#116" in threads_alike("keras", "convention", {"window"}, *pool)
