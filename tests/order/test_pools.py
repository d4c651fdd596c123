"""Pooling: its sizes and windows as the case says, and as they are read off every library."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

import probe
from probe.case import floats
from probe.case.case import Case
from probe.case.errors import InputError, TargetError
from probe.order import pools, window
from probe.order.windows import reveal_pool
from probe.targets.target import Target
from tests.convolutions import explain_case

pytestmark = pytest.mark.long

TARGETS = ("reference", "tensorflow", "keras", "torch", "jax", "onnxruntime", "litert", "opencv")


def outputs(case, axis):
    """(what each window of one axis reads, how many elements an average counts), in plain loops."""
    size, stride = case.spatial()[axis], case.stride[axis]
    taps = [k * case.dilation[axis] for k in range(case.kernel[axis])]
    extent = taps[-1] + 1
    before, after = window.Geometry.of(case).around[axis]
    found, start, end = [], -before, -1
    while start + extent <= size + after or (
        case.rounds_up and start < size and end < size + after
    ):
        at = [start + tap for tap in taps]
        inside = [i for i in at if 0 <= i < size]
        padded = [i for i in at if -before <= i < size + after]
        found.append((inside, len(padded if case.pad_with == "zeros" else inside)))
        start, end = start + stride, start + extent
    return found


def expected(case):
    """(reads (positions, elements), counted (positions,)) of all windows, in plain loops."""
    axes = [outputs(case, axis) for axis in range(case.spatial_rank)]
    reads, counted = [], []
    for place in itertools.product(*axes):
        held = np.zeros(case.spatial(), bool)
        held[np.ix_(*[inside for inside, _ in place])] = True
        reads.append(held.ravel())
        counted.append(np.prod([count for _, count in place]))
    return np.array(reads), np.array(counted)


def cases(op, step=1):
    """Windows, strides, paddings and rounding of one operator; of a 2-D one its axes differ."""
    flat = op.endswith("1d")
    pads = ("valid", "same", "same_lower", "caffe", 1, "0:1" if flat else "0:1,1:0")
    grid = itertools.product((2, 3), (1, 2, 3), pads, (False, True), ("nothing", "zeros"))
    for kernel, stride, pad, ceil_mode, pad_with in list(grid)[::step]:
        height = None if flat else 5
        options = {"ceil_mode": ceil_mode, "pad_with": pad_with, "in_channels": 2}
        if not (ceil_mode and str(pad).startswith("same")):
            yield Case(op, kernel, length=7, height=height, stride=stride, padding=pad, **options)


OPS = ("max_pool1d", "avg_pool1d", "max_pool2d", "avg_pool2d")


@pytest.mark.parametrize("op", OPS)
def test_sizes_and_windows_are_those_of_plain_loops(op):
    for case in cases(op):
        reads, _ = expected(case)
        geometry = window.Geometry.of(case)
        assert geometry.positions == len(reads), case.label
        for row, held in zip(geometry.reads(), reads, strict=True):
            assert sorted(row[row >= 0]) == np.flatnonzero(held).tolist(), case.label


def slow(target, op):
    """JAX compiles each case, of one axis by the lines of two; Keras starts for these alone."""
    return target == "keras" or (target == "jax" and op.endswith("1d"))


@pytest.mark.parametrize(
    ("target", "op"),
    [
        pytest.param(target, op, marks=pytest.mark.slow if slow(target, op) else ())
        for target, op in itertools.product(TARGETS, OPS)
    ],
)
@pytest.mark.slow_at(
    "tensorflow-avg_pool1d",
    "tensorflow-avg_pool2d",
    "jax-avg_pool2d",
    "jax-max_pool2d",
    "tensorflow-max_pool1d",
)
def test_every_library_reads_and_counts_what_the_case_says(started, target, op):
    session, ran, kinds = started(target), 0, set()
    for case in cases(op, step=5):
        try:
            found = reveal_pool(session, case)
        except TargetError as error:
            kinds.add(error.kind)
            continue
        reads, counted = expected(case)
        assert (found.reads == reads).all(), case.label
        assert "max" in op or (found.counted == counted).all(), case.label
        assert found.pad_with in ("", "nothing", case.pad_with), case.label
        ran += 1
    assert ran >= 8 and kinds <= {"unsupported"}


def test_pooling_is_by_channel_and_has_no_weights():
    case = Case("avg_pool2d", 3, in_channels=4, length=6)
    assert case.filters == case.groups == 4 and not case.weighted
    assert case.with_(in_channels=2).filters == 2
    assert Case.from_json(case.to_json()) == case and "ceil_mode" not in case.to_json()
    shown = case.with_(ceil_mode="true", pad_with="zeros")
    assert shown.label.endswith("ceil mode, padded with zeros, height 3, length 6")
    assert shown.spec()["ceil_mode"] is True and shown.id != case.id
    for kind in ("cancel", "normal", "integers"):
        assert (case.with_(operands=kind).operands()[1] == 1).all()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"weights": "1"}, "max_pool2d has none"),
        ({"padding": 3}, "a window of 3 would hold padding alone; use 2 or less"),
        ({"padding": "same", "ceil_mode": True}, r"same has ceil\(size / stride\) outputs already"),
        ({"ceil_mode": "perhaps"}, "it is neither true nor false"),
        ({"op": "conv2d", "ceil_mode": True}, "conv2d has none"),
    ],
)
def test_what_pooling_hasnt_is_an_input_error(change, why):
    case = Case("max_pool2d", 3, in_channels=2, height=6, length=6)
    with pytest.raises(InputError, match=why):
        case.with_(**change)


def pools_apart(case, algorithm):
    """The reference against one of its algorithms, at one shape."""
    other = Target.parse(f"reference,algorithm={algorithm}")
    return explain_case(case, Target("reference"), against_target=other, inline=True)


@pytest.mark.parametrize(
    ("op", "algorithm", "operands", "cause"),
    [
        ("avg_pool2d", "reversed", "cancel", "order"),
        ("avg_pool2d", "pairwise", "cancel", "order"),
        ("avg_pool1d", "flush", "tiny", "flush"),
        ("max_pool2d", "flush", "tiny", "flush"),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_cause_of_two_pools_is_the_one_that_was_planted(op, algorithm, operands, cause, dtype):
    options = {"height": None if "1d" in op else 6, "padding": 1, "dtype": dtype}
    case = Case(op, 3, in_channels=4, length=9, stride=2, operands=operands, seed=1, **options)
    found = pools_apart(case, algorithm)
    assert set(found.causes) == {cause} and found.replayed == found.compared
    assert "not-a-sum" not in str(found) and not found.to_json()["sets"]


AVERAGE = pools.Average(pools.orders((2, 3))[0], "float32")
WAYS = {
    "": AVERAGE,
    "order": replace(AVERAGE, tree=pools.orders((2, 3))[1]),
    "rounding": replace(AVERAGE, last=pools.TIMES),
    "precision": replace(AVERAGE, kept="float64"),
    "flush": replace(AVERAGE, flushed="operands and results"),
}


def planted(case, way, operands):
    """What is found of a pool that is this way, run on such operands."""
    x = floats.to_container(case.with_(operands=operands).operands()[0], case.dtype)
    ones = np.ones(case.output_shape())
    reads = (window.Geometry.of(case).reads() >= 0).sum(axis=1).astype(float)

    def ask(given):
        met = pools.PoolAnswers(
            case, given, ones.astype(floats.container_of_format(case.dtype)), reads
        )
        places = np.argwhere(np.ones(met.y.shape, bool))
        return met.outputs(way, places).reshape(case.output_shape())

    return pools.reveal_pooling(case, ask, x, ask(x))


@pytest.mark.parametrize("cause", list(WAYS)[1:])
def test_every_way_of_averaging_is_told_from_every_other(cause):
    case = Case("avg_pool2d", "2x3", in_channels=8, length=9, height=7, padding=1)
    named = set()
    for operands in ("normal", "cancel", "tiny"):
        sides = [planted(case, way, operands) for way in (AVERAGE, WAYS[cause])]
        assert (sides[0].index >= 0).all() and (sides[1].index >= 0).all()
        places = np.argwhere(sides[0].answers.y != sides[1].answers.y)
        named |= set(sides[0].causes(sides[1], places, places))
    assert named == {cause}


def test_a_pool_of_no_known_way_is_unexplained():
    case = Case("avg_pool1d", 3, in_channels=4, length=9)
    x = floats.to_container(case.operands()[0], case.dtype)

    def ask(given):
        return np.median([given[:, n : n + 7] for n in range(3)], axis=0)

    found = pools.reveal_pooling(case, ask, x, ask(x))
    assert (found.index < 0).all() and "no way that was tried" in found.words


def test_a_pool_is_not_asked_about_its_order(tmp_path):
    case = Case("avg_pool1d", 3, in_channels=4)
    swept = probe.sweep(case, range(4, 8), ["reference"], by="order").to_json()
    assert not swept["sets"] and swept["compared"] == 0
    with pytest.raises(InputError, match="has no weights that could show an order"):
        probe.thresholds(case, "reference", upto=9)
    told = probe.order(case.with_(length=9), "reference")
    assert told.to_json()["replayed"] == 28
    assert "divided by the count" in repr(told) and told.tree == "((0+1)+2)"
