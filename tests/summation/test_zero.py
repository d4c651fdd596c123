"""The sign of zero: counted, a difference where that is asked, and replayed."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

from probe import floats, ulp
from probe.case import Case
from probe.cli import shell
from probe.comparison import ComparedShapes, Revealer, compare_shapes
from probe.launch import InlineSession
from probe.summation import zero
from probe.summation.certificate import SummationModel
from probe.summation.masks import Masks
from probe.summation.replay import replay
from probe.summation.summation import Rounding, Summation
from probe.summation.tree import BIAS, Tree
from probe.target import Target
from tests.summation.test_tree import any_tree

CASE = Case("matmul", in_channels=6, filters=4, length=3)


def explained(left, right, dtype="float32", zeros="equal"):
    """Inputs of zero in one row, weights of either sign: filter 0 has negative ones alone."""
    case = CASE.with_(dtype=dtype)

    def given(side):
        x, w, _ = (one if one is None else one.astype(float) for one in CASE.operands())
        x[:, 1], w[..., 0] = 0.0, -np.abs(w[..., 0])
        return floats.round_to(x, dtype), floats.round_to(w, dtype), None

    one, two = (
        InlineSession(Target.parse(f"reference,algorithm={name}")) for name in (left, right)
    )
    with one, two:
        found = compare_shapes(ComparedShapes.named(case, at=3), one, two, given, zeros)
        return found.reveal(one, two, Revealer())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_zeros_of_other_signs_are_counted_or_differ(dtype):
    counted = explained("from_zero", "sequential", dtype)
    assert not len(counted.differing) and counted.to_json()["signed_zero"] == 1
    found = explained("from_zero", "sequential", dtype, "differ")
    assert found.ulps.tolist() == [0] and found.signed_zero == 1 and found.max_ulp == 0
    assert found.causes == {"rounding": 1} and found.replayed == found.compared
    (left,), (right,) = found.left.orders.summations, found.right.orders.summations
    assert (left.rounding.zero, right.rounding.zero) == (zero.ADDED, zero.KEPT)
    assert "-0: kept" in right.formats(dtype)


def test_nothing_is_said_of_signs_that_nobody_asked_for():
    found = explained("from_zero", "sequential")
    (left,), (right,) = found.left.orders.summations, found.right.orders.summations
    assert left == right and "zero" not in left.rounding.to_json()


@pytest.mark.parametrize(
    ("how", "signs"),
    [(None, [1, 1, 1]), (zero.KEPT, [1, 1, 1]), (zero.ADDED, [0, 0, 1]), (zero.FUSED, [0, 1, 1])],
)
def test_how_a_sum_starts_decides_the_sign_of_zero(how, signs):
    x = np.float32([[0, 2.0**-100, 1], [0, 0, 0]])
    w = np.float32([[-1, -(2.0**-100), -1], [-1, -1, -1]])
    for fused in (frozenset(), frozenset([1])):
        rounding = Rounding(fused, zero=how)
        got = replay(Summation(Tree.sequential(2), rounding), x, w, "float32")
        assert np.signbit(got).tolist() == [bool(sign) for sign in signs]
        assert Rounding.from_json(rounding.to_json()) == rounding


def test_what_starts_a_sum_and_what_two_answers_stand_for():
    rng = np.random.default_rng(6)
    for trial in range(60):
        tree = any_tree(rng, 1 + trial % 8)
        fused = {leaf for leaf in tree.leaves if rng.random() < 0.4} - {BIAS}
        lowest = [node for node in tree.nodes if min(node) >= 0 and BIAS not in node]
        first = [next((leaf for leaf in node if leaf not in fused), None) for node in lowest]
        alone = set(tree.leaves) - {BIAS} if not tree.nodes else set()
        assert zero.starts(tree, fused) == {one for one in first if one is not None} | alone
    both = np.array([[[0, 0], [1, 1]], [[0, 1], [0, 1]]])
    words = [[zero.ADDED, zero.FUSED], [zero.KEPT, zero.KEPT]]
    assert [[zero.start_of_answers(both[:, k, n]) for n in (0, 1)] for k in (0, 1)] == words
    masks = SimpleNamespace(zeros=both.astype(np.int8))
    assert zero.starts_of_outputs(masks).tolist() == words


@pytest.mark.parametrize("dtype", floats.FORMATS)
@pytest.mark.parametrize("how", [zero.KEPT, zero.ADDED, zero.FUSED])
def test_the_sign_of_a_sum_of_zeros_is_asked_once(how, dtype):
    for tree in (Tree.sequential([0, 1, 2, BIAS]), Tree.lanes(4, 2)):
        # what is rounded, added to +0, and then followed by fused products answers as if all were
        for fused in {frozenset(), frozenset([1] * (how != zero.ADDED))}:
            summation = Summation(tree, Rounding(fused, zero=how))
            masks = Masks(SummationModel(summation, 4, BIAS in tree.leaves, dtype), signed=True)
            assert zero.starts_of_outputs(masks).tolist() == [[how]]
            assert zero.signs(masks) is masks.zeros and masks.calls == 2


def test_distances_of_zeros():
    a, b = np.float32([0.0, -0.0, 1.0, np.nan]), np.float32([-0.0, -0.0, 1.5, np.nan])
    assert ulp.signed_zeros(a, b, "float32") == 1
    assert ulp.differences(a, b, "float32").index.tolist() == [2]
    found = ulp.differences(a, b, "float32", "differ")
    assert found.index.tolist() == [0, 2] and found.ulps[0] == 0
    b[2] = 1.0
    assert ulp.differences(a, b, "float32", "differ").index.tolist() == [0]


def test_the_command_takes_the_word(capsys):
    words = ["--op", "matmul", "--in-channels", "3", "--filters", "2", "--at", "1"]
    words += ["--weights", "-1,-1,-1,-1,-1,-1", "--target", "reference", "--against", "2"]
    assert shell.run(["explain", *words, "--zeros", "differ", "--kernels", "none", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["signed_zero"] == 0
    assert shell.run(["explain", *words, "--zeros", "other"]) == 2
