"""Two sides that were not given the same operands are refused: their difference says nothing."""

from dataclasses import replace

import numpy as np
import pytest

from probe.case import Case
from probe.comparison import (
    ComparedShapes,
    Comparison,
    OutputPairs,
    Revealer,
    compare_shapes,
    run_case,
)
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
