"""Masks: what they swallow, which questions share a call, and which filter answers which."""

from __future__ import annotations

import numpy as np
import pytest

from probe.case import floats
from probe.case.case import Case
from probe.case.errors import InputError, NotAsked
from probe.explain.evidence import differing_example
from probe.order import masks as masks_room
from probe.order.masks import Masks, Scale, SessionOperator, deal_questions
from probe.order.orders import reveal
from probe.order.summation import Summation
from probe.order.tree import BIAS, Tree
from probe.targets.launch import InlineSession
from probe.targets.target import Target
from tests.convolutions import explain_case
from tests.order.synthetic import Kernel
from tests.order.test_reveal import Known, everywhere


@pytest.mark.parametrize("dtype", floats.FORMATS)
def test_a_mask_swallows_as_many_units_as_count_exactly(dtype):
    scale = Scale.of(dtype)

    def rounded(value):
        return float(floats.nearest(np.array(value), dtype))

    for units in (1, scale.limit - 1, scale.limit):
        assert rounded(scale.big + units * scale.unit) == scale.big
        assert rounded(units * scale.unit) == units * scale.unit
        assert rounded((units - 1) * scale.unit) + scale.unit == units * scale.unit
    assert np.isfinite(floats.widen(floats.round_to(np.array([scale.big]), dtype), dtype)).all()


def test_smaller_masks_and_counts_are_taken_once():
    masks = Masks(Known(everywhere(Tree.sequential(300)), 300))
    assert masks.scale == Scale.of("float32")
    assert masks.count_fewer() and masks.scale.limit == Scale.of("bfloat16").limit
    assert not masks.count_fewer()
    assert masks.mask_smaller() and masks.scale == Scale.of("float16")
    assert not masks.mask_smaller()
    few = Masks(Known(everywhere(Tree.sequential(128)), 128))
    assert not few.count_fewer(), "bfloat16 counts as many at once"
    assert Masks(Known(everywhere(Tree.sequential(129)), 129)).count_fewer()
    operator = Known(everywhere(Tree.sequential(300)), 300)
    operator.dtype = "bfloat16"
    assert not Masks(operator).count_fewer(), "it counts so few anyway"
    operator.dtype = "float8"
    with pytest.raises(InputError, match="dtype=float8: no masks are known for it"):
        Masks(operator)


def test_counts_in_parts_are_whole_and_cost_a_call_each():
    masks = Masks(Known(everywhere(Tree.sequential(300), 2, 2), 300))
    assert masks.summands().tolist() == [[300, 300], [300, 300]] and masks.calls == 1
    assert masks.summands() is masks.summands() and masks.calls == 1
    assert masks.count_fewer()
    assert masks.summands().tolist() == [[300, 300], [300, 300]] and masks.calls == 1 + 3


@pytest.mark.parametrize("at_once", [1, 12, 1 << 23])
def test_every_question_goes_to_one_filter_of_its_team(at_once, monkeypatch):
    monkeypatch.setattr(masks_room, "ANSWERS_AT_ONCE", at_once)
    masks = Masks(Known(everywhere(Tree.sequential(9), 2, 5), 9))
    teams = [np.array([0, 3, 4]), np.array([1]), np.array([2])]
    queues = [np.array([[k, k + 1] for k in range(7)]), np.array([[5, 2]]), np.zeros((0, 2), int)]
    asked = [np.full(len(queue), -1) for queue in queues]
    calls = 0
    for leaves, parts in deal_questions(masks, teams, queues):
        assert leaves.shape[1:] == (5, 2) and len(leaves) <= max(1, at_once // 10)
        told = np.zeros(leaves.shape[:2], bool)
        for part in parts:
            rows = queues[part.team][part.start : part.stop]
            assert (leaves[part.calls, part.filters] == rows).all()
            assert np.isin(part.filters, teams[part.team]).all()
            assert not told[part.calls, part.filters].any()
            told[part.calls, part.filters] = True
            asked[part.team][part.start : part.stop] += 1
        assert (leaves[~told] == -1).all()
        calls += len(leaves)
    assert calls == 3 and all((count == 0).all() for count in asked)


@pytest.mark.parametrize(
    ("case", "tree"),
    [
        (Case("matmul", in_channels=5, filters=3, length=4, bias="normal"), [*range(5), BIAS]),
        (Case("conv1d", 3, 2, 4, 3, groups=2), range(3)),
        (Case("sum", in_channels=6, length=3), range(6)),
    ],
    ids=lambda one: getattr(one, "op", ""),
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_library_is_asked_what_a_kernel_is(case, tree, dtype):
    """Numbers so small that they add exactly, where a filter, a call and a leaf have their own."""
    case, rng = case.with_(dtype=dtype), np.random.default_rng(1)
    operator = SessionOperator(InlineSession(Target("reference")).start(), case)
    biased = BIAS in tree
    truth = np.zeros((operator.positions, operator.filters), int)
    chain = Summation(Tree.sequential(tree))
    kernel = Kernel([chain], truth, case.summands, bias=biased, dtype=dtype)
    size = case.summands + biased
    if not case.weighted:  # which has weights all the same, where a product alone is asked for
        x, line = (rng.integers(-4, 5, shape) / 4 for shape in (case.input_shape(), size))
        w = floats.round_to(line.reshape(case.weight_shape), dtype)
        y = floats.widen(operator.apply(floats.round_to(x, dtype), w, None), dtype)
        assert (y[:, 0] == x.reshape(-1, size) @ line).all()
    for calls, slots, x in ((1, 1, 1.0), (4, 3, 0.5), (3, 2, 2.0)):
        leaves = np.array(
            [[rng.permutation(size)[:slots] for _ in range(case.filters)] for _ in range(calls)]
        )
        leaves[rng.random(leaves.shape) < 0.3] = -1
        template, values = rng.integers(-2, 3, size) / 4, rng.integers(1, 5, slots) / 2
        found = operator.run(x, template, leaves, values)
        assert found.shape == (calls, operator.positions, case.filters)
        assert (found == kernel.run(x, template, leaves, values)).all()
        weights = rng.integers(-3, 4, (calls, size)) / 4 * (rng.random((calls, size)) < 0.6)
        assert (operator.each(weights) == kernel.each(weights)).all()
        own = rng.integers(1, 5, leaves.shape) / 2  # of each call, filter and slot its own
        for slot in range(slots):
            alone = own[..., slot : slot + 1]
            found = operator.run(x, template, leaves[..., slot : slot + 1], alone)
            for call, filt in np.ndindex(calls, case.filters):
                given = leaves[call : call + 1, :, slot : slot + 1]
                expected = kernel.run(x, template, given, alone[call, filt])
                assert (found[call, :, filt] == expected[0, :, filt]).all()


def test_a_sum_beyond_the_longest_is_not_asked_whole(monkeypatch):
    """It took hours, and --time did not end it."""
    monkeypatch.setattr(masks_room, "LONGEST", 100)
    pairs, chain = (Target.parse(f"reference,algorithm={n}") for n in ("pairwise", "sequential"))
    with InlineSession(pairs) as session, pytest.raises(NotAsked, match="not asked beyond 100"):
        reveal(session, Case("sum", in_channels=101, length=1))
    with InlineSession(pairs) as session:
        assert reveal(session, Case("sum", in_channels=100, length=1)).replayed.all()
    case = Case("sum", in_channels=640, length=40)
    found = explain_case(case, pairs, against_target=chain, inline=True)
    assert set(found.causes) == {"unexplained"} and not found.replayed
    assert "not asked beyond 100" in found.left.evidence and found.left.refusal == "not-asked"
    assert len(found.differing) and differing_example(found) is None
