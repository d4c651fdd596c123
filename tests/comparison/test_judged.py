"""Two sides that were not given the same operands are refused: their difference says nothing."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from probe import schema, ulp
from probe.case import Case
from probe.comparison import (
    ComparedShapes,
    Comparison,
    OutputPairs,
    Revealer,
    compare_shapes,
    judged,
    run_case,
)
from probe.enclosure import BEYOND, of_operands
from probe.errors import InputError
from probe.launch import open_session
from probe.target import Target

CASE = Case("conv1d", 3, 4, 4, groups=2, padding="same", stride=2, bias="normal")
SHAPES = ComparedShapes.named(CASE, None, 8, 16)


@pytest.fixture(scope="module")
def session():
    with open_session(Target.parse("reference"), inline=True) as found:
        yield found


def test_the_same_operands_are_compared(session):
    assert compare_shapes(SHAPES, session, session).compared > 0


@pytest.mark.parametrize("name", ["x", "w", "b"])
def test_one_other_bit_is_told(session, name):
    left, right = run_case(session, SHAPES.left), run_case(session, SHAPES.right)
    given = dict(zip("xwb", (right.operands.x, right.operands.w, right.operands.b), strict=True))
    changed = given[name].copy()
    changed.reshape(-1)[0] = np.nextafter(changed.reshape(-1)[0], np.float32(9))
    right = run_case(session, SHAPES.right, tuple((given | {name: changed}).values()))
    with pytest.raises(InputError) as told:
        Comparison(CASE, left, right, OutputPairs.must_agree(SHAPES))
    assert str(told.value).startswith(f"{name}=") and "other side" in str(told.value)


def test_what_only_one_side_reads_may_differ(session):
    left, right = run_case(session, SHAPES.left), run_case(session, SHAPES.right)
    x = right.operands.x.copy()
    x[:, -1] = 7
    right = run_case(session, SHAPES.right, (x, right.operands.w, right.operands.b))
    assert Comparison(CASE, left, right, OutputPairs.must_agree(SHAPES)).compared > 0


def test_operands_rounded_to_two_formats_are_refused(session):
    left, right = (
        run_case(session, SHAPES.left),
        run_case(session, SHAPES.right.with_(dtype="float16")),
    )
    with pytest.raises(InputError, match="dtype=float16: the left side has float32"):
        Comparison(CASE, left, right, OutputPairs.must_agree(SHAPES))


def test_a_pool_whose_way_is_unknown_on_one_side_is_counted_and_has_no_cause(session):
    case = Case("avg_pool1d", 2, 1, length=6)
    known = compare_shapes(ComparedShapes.named(case, None, 4, 6), session, session)
    known = known.reveal(session, session, Revealer())
    assert known.unknown == 0 and not known.apart
    for name in ("left", "right"):
        sides = {"left": known.left, "right": known.right}
        pooled = sides[name].pooled
        index = pooled.index.copy()
        index[0] = -1
        sides[name] = replace(sides[name], pooled=replace(pooled, index=index))
        found = Comparison(case, sides["left"], sides["right"], known.pairs)
        assert found.unknown == 1 and not found.apart


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("refusal", ["nondeterministic", "alignment", "not-a-sum"])
def test_what_refuses_a_side_is_the_cause_of_every_difference(session, side, refusal):
    sides = {"left": run_case(session, SHAPES.left), "right": run_case(session, SHAPES.right)}
    operands = sides["right"].operands
    sides["right"] = replace(sides["right"], operands=replace(operands, y=operands.y + 1))
    sides[side] = replace(sides[side], refusal=refusal)
    found = Comparison(CASE, *sides.values(), OutputPairs.must_agree(SHAPES))
    assert found.cause == [refusal] * found.compared and found.causes == {refusal: found.compared}
    assert not found.apart and found.unknown == 0


@pytest.fixture(scope="module")
def changed(session):
    """Sides of which outputs are changed by an ulp or by far more, and where."""
    case = Case("matmul", in_channels=5, filters=3, length=40, operands="normal")
    run = run_case(session, case)
    rng = np.random.default_rng(0)
    near, far = (rng.random((2, *run.operands.y.shape)) < share for share in (0.2, 0.1))
    sides = []
    for some, more in zip(near, far, strict=True):
        y = np.where(some, np.nextafter(run.operands.y, np.float32(9)), run.operands.y)
        y = np.where(more, run.operands.y + np.float32(1), y)
        sides.append(replace(run, operands=replace(run.operands, y=y)))
    rows = np.argwhere(np.ones(near[0].shape, bool))
    pairs = OutputPairs(rows, rows.copy(), rows[:, 0] % 7 > 0)
    found = Comparison(case, *sides, pairs).reveal(session, session, Revealer())
    return found, near & ~far, far, pairs


def test_what_rounding_can_not_give_is_counted_on_its_side_and_shown(changed):
    found, near, far, pairs = changed
    values = [side.operands.y for side in (found.left, found.right)]
    differs = (values[0] != values[1]).reshape(-1)
    assert found.differing.tolist() == np.flatnonzero(differs).tolist()
    assert found.max_ulp == ulp.max_ulp(*values, "float32") > 1 and found.ulps.tolist() == (
        ulp.distance(*values, "float32").reshape(-1)[differs].tolist()
    )
    odd = (near | far).reshape(2, -1).any(axis=0)
    assert found.proved().tolist() == (~odd).tolist() and found.replayed == (~odd).sum()
    same = pairs.same_window
    causes = ["unexplained" if one else "window" for one in same[differs]]
    assert found.cause == causes and found.causes == {
        "window": causes.count("window"),
        "unexplained": causes.count("unexplained"),
    }
    sums = of_operands(found.left.operands, *pairs.left.T)
    held = np.array([sums.judged(one.reshape(-1))[0] == BEYOND for one in values])[:, differs]
    assert (held >= far.reshape(2, -1)[:, differs]).all() and not held.all()
    held &= same[differs]
    told, read = found.rounding, int(same[differs].sum())
    assert (told.left, told.right) == tuple(held.sum(axis=1).tolist())
    assert (told.explained, told.beyond) == (0, int(held.any(axis=0).sum()))
    assert (told.within, told.unknown) == (read - told.beyond, len(causes) - read)
    assert found.out_of_bounds.tolist() == held.any(axis=0).tolist()
    side, place = found.beyond()
    first = found.differing[np.flatnonzero(held[0])[0]]
    assert side is found.left and place.tolist() == pairs.left[first].tolist()
    assert found.apart == {} and found.unknown == 0, "both sides add alike, whatever they gave"
    assert not found.certified().any() and found.by_order == 0


def test_columns_of_accuracies_are_those_of_pairs_with_one_exact_result(changed):
    found, _, _, pairs = changed
    which = np.flatnonzero(pairs.same_window[found.differing])
    for most in (10**6, len(which), len(which) - 1, 5, 1, 0):
        some = found.of_exact(most)
        assert len(some) == min(max(most, 1), len(which)) and set(some) <= set(which)
        assert some.tolist() == sorted(set(some.tolist()))
    columns = found.accuracies(10**6)
    rows = found.differing[which]
    assert columns["index"].tolist() == rows.tolist()
    beyond = found.out_of_bounds[which]
    assert (columns["verdict"] == np.where(beyond, "beyond", "within")).all()
    for name, side in (("at", found.left), ("against", found.right)):
        y = side.operands.y.reshape(-1)[rows].astype(float)
        unit = np.spacing(np.abs(columns["exact"]).astype(np.float32)).astype(float)
        far = np.abs(y - columns["exact"]) / unit
        np.testing.assert_allclose(np.abs(columns[f"error_{name}"]), far, rtol=1e-6)
        assert set(columns[f"depth_{name}"]) <= {4, schema.NULL_INT}
    assert found.accuracy.counted == len(which)


def test_numbers_of_inputs_in_a_larger_input_name_the_same_element():
    rng = np.random.default_rng(1)
    for shape, larger in (((1, 4, 3), (2, 4, 3)), ((2, 3, 4, 2), (2, 5, 4, 3)), ((2, 3), (2, 3))):
        case = SimpleNamespace(input_shape=lambda shape=shape: shape)
        reads = rng.integers(-1, np.prod(shape), (6, 5))
        reads[0] = np.prod(shape) - 1
        found = judged._numbered_in(reads, case, np.array(larger))
        for one, other in zip(reads.reshape(-1), found.reshape(-1), strict=True):
            places = [np.unravel_index(n, s) for n, s in ((one, shape), (other, larger)) if n >= 0]
            assert len(places) != 1 and (not places or places[0] == places[1])


def test_blocks_name_the_outputs_in_them_row_by_row():
    case = Case("conv1d", 3, 2, 4, length=9, batch=2)
    block = (slice(1, 2), slice(2, 5), slice(0, 4, 2))
    wanted = [[7 + position, filt] for position in (2, 3, 4) for filt in (0, 2)]
    assert judged._places_of_block(case, block).tolist() == wanted
    classes, leaves = judged.classes_of(case.with_(padding="same"))
    assert len(classes) == 18 and classes[:9].tolist() == classes[9:].tolist()
    assert [len(leaves[n]) for n in classes[:3]] == [4, 6, 6]


def test_pairs_of_numbers_are_found_each_once():
    mine, theirs = np.array([3, 0, 3, 1]), np.array([0, 2, 0, 1])
    assert judged._pairs_that_occur(mine, theirs, 4, 3).T.tolist() == [[0, 2], [1, 1], [3, 0]]
