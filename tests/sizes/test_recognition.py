"""Summations are recognised by bits, and revealed only where they are new."""

from __future__ import annotations

import numpy as np
import pytest

from probe.case.case import Case
from probe.order import window
from probe.order.summation import Rounding, Summation
from probe.order.tree import BIAS, Tree
from probe.sizes.recognition import UNKNOWN, MarkOperands, Recogniser
from probe.targets.launch import InlineSession, open_session
from probe.targets.target import Target

pytestmark = pytest.mark.long

CASE = Case(op="conv1d", kernel=5, in_channels=2)
ROOMY = {"kernel": 3, "in_channels": 4, "filters": 4}


@pytest.fixture
def recogniser():
    """recogniser(target text, case): on a session that ends with the test."""
    sessions = []

    def make(text: str, case: Case) -> Recogniser:
        sessions.append(open_session(Target.parse(text), inline=True).start())
        return Recogniser(sessions[-1], case)

    yield make
    for session in sessions:
        session.close()


def test_another_order_is_another_kind(recogniser) -> None:
    known = recogniser("reference,length_switch=6", CASE)
    short, other, long, longer = (known.pattern(n) for n in (8, 9, 10, 500))
    assert short.interior == other.interior != long.interior == longer.interior
    assert known.causes(short.interior, long.interior) == ("order",)
    assert len(longer.kinds) == 496 and longer.tail == ()


def test_what_is_known_costs_the_sets_and_a_control(recogniser) -> None:
    known = recogniser("reference", CASE)
    known.pattern(8)
    before = known.calls
    known.pattern(99)
    assert known.calls - before == len(known.operands.sets_for(known.operands.all_leaves)) + 1


@pytest.mark.parametrize(
    "case",
    [
        Case(op="conv1d", **ROOMY, padding="same", stride=2, bias="normal"),
        Case(op="conv1d", **ROOMY, padding="4:4", dilation=2, groups=2),
        Case(op="conv2d", **ROOMY, padding="same", height=5, batch=2, dtype="bfloat16"),
        Case(op="depthwise_conv2d", **ROOMY, padding="caffe", height=4, dtype="float16"),
        Case(op="conv1d", **ROOMY, dtype="float64"),
    ],
    ids=lambda case: case.label,
)
@pytest.mark.slow_at(
    "conv2d 3x3, 4 -> 4, same, batch 2, height 5, bfloat16",
    "depthwise_conv2d 3x3, 4 -> 4, caffe, height 4, float16",
)
def test_padding_shows_no_other_kind(recogniser, case: Case) -> None:
    known = recogniser("reference,algorithm=blocked", case)
    for length in (9, 10, 131 if case.op == "conv1d" else 40):
        found = known.pattern(length)
        assert found.unknown == 0 and found.tail == () and found.elsewhere == 0
        assert found.interior == 0


def test_the_same_leaves_as_a_full_reveal(recogniser) -> None:
    known = recogniser("reference,algorithm=pairwise", CASE.with_(bias="normal"))
    known.pattern(9)
    assert [tree.text for tree, _ in known.summations] == [
        "(((((0+1)+(2+3))+((4+5)+(6+7)))+(8+9))+b)"
    ]


def test_no_sum_stays_unknown_and_is_not_asked_for_ever(recogniser) -> None:
    known = recogniser("reference,algorithm=winograd", Case(op="conv1d", kernel=3))
    for length in (8, 9, 10, 11):
        found = known.pattern(length)
        assert found.unknown == length - 2
    assert known.kinds[found.interior] == (UNKNOWN,) and known.evidence
    before = known.calls
    known.pattern(12)
    assert known.calls - before == len(known.operands.sets_for(known.operands.all_leaves)) + 1


def test_other_bits_in_the_same_call_are_not_steady(recogniser) -> None:
    known = recogniser("reference,algorithm=random", CASE.with_(in_channels=40))
    assert not known.pattern(9).steady
    assert "again" in known.evidence and not known.summations


class Apart:
    """A session whose outputs that meet padding are computed by another session."""

    def __init__(self, inside: InlineSession, edge: InlineSession, case: Case) -> None:
        self.inside, self.edge, self.case = inside, edge, case

    def __getattr__(self, name: str):
        return getattr(self.inside, name)

    def stream(self, header, arrays):
        geometry = window.Geometry.of(self.case.with_(length=arrays["x"].shape[-2]))
        padded = (geometry.reads() < 0).any(axis=1)
        padded = np.repeat(np.tile(padded, self.case.batch), self.case.filters)
        padded = padded[arrays["select"]] if "select" in arrays else padded
        both = self.inside.stream(header, arrays), self.edge.stream(header, arrays)
        for (told, mine), (_, other) in zip(*both, strict=True):
            shape = np.shape(mine["outputs"])
            flat = (np.reshape(one["outputs"], (shape[0], -1)) for one in (other, mine))
            yield told, mine | {"outputs": np.where(padded, *flat).reshape(shape)}


EDGES = [
    Case(op="conv1d", kernel=3, padding="same"),
    Case(op="conv1d", kernel=6, padding="same", dilation=2, in_channels=2, bias="normal"),
    Case(op="conv1d", kernel=5, padding="3:1", in_channels=16, filters=3),
    Case(op="conv2d", kernel="3x4", padding="same", height=3, in_channels=3, filters=2),
    Case(op="conv1d", kernel=5, padding="same", in_channels=2, dtype="bfloat16"),
]


@pytest.mark.parametrize(
    ("case", "algorithm"),
    list(zip(EDGES, ["fused", "pairwise", "blocked", "blocked", "pairwise"], strict=True)),
    ids=str,
)
def test_windows_that_meet_padding_have_their_own_order(recogniser, case, algorithm) -> None:
    inside = recogniser("reference", case).session
    edge = recogniser(f"reference,algorithm={algorithm}", case.with_(padding="valid"))
    true = edge.summations[edge.kinds[edge.pattern(40).interior][0]]
    known = Recogniser(Apart(inside, edge.session, case), case)
    found = known.pattern(40)
    reads = window.Geometry.of(case.with_(length=40)).reads() >= 0
    for read, kind in zip(reads, found.kinds, strict=True):
        leaves = np.flatnonzero(np.repeat(read, case.group_channels)).tolist()
        leaves += [BIAS] * (case.bias is not None)
        for number in known.kinds[kind] if not read.all() else ():
            assert number > UNKNOWN
            found = known.summations[number].restricted(leaves)
            assert not found.causes(true.restricted(leaves)), (case.label, leaves)


@pytest.mark.parametrize("summands", [3, 4, 7, 24])
@pytest.mark.parametrize(
    ("dtype", "wide"), [("float32", "float64"), ("float16", "float32"), ("bfloat16", "float32")]
)
def test_orders_show_in_accumulators_of_more_digits(dtype, wide, summands) -> None:
    """The sets that cancel in the dtype lose nothing there: those for more digits do."""
    operands = MarkOperands(Case(op="conv1d", kernel=1, in_channels=summands, dtype=dtype))
    sets = operands.sets_for(operands.all_leaves)
    wide_sets = [each.x is sets[-1].x for each in sets]
    rng = np.random.default_rng(summands)
    rounding = Rounding(accumulator_format=wide)
    trees = {Tree.sequential(rng.permutation(summands).tolist()) for _ in range(8)}
    shown = {
        operands.answers(Summation(tree, rounding), operands.all_leaves)[wide_sets].tobytes()
        for tree in trees
    }
    assert len(shown) == len(trees)
