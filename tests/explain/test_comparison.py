"""Two sides that were not given the same operands are refused: their difference says nothing."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from probe.case import ulp
from probe.case.case import Case
from probe.case.errors import InputError
from probe.explain.comparison import CAUSES, Comparison, OutputPairs, _numbered_in
from probe.explain.enclosure import BEYOND, UNKNOWN, WITHIN, of_operands
from probe.explain.runs import ComparedShapes, Revealer, run_case
from probe.order.summation import EVERY
from probe.order.tree import BIAS, Tree
from probe.targets.launch import open_session
from probe.targets.target import Target

CASE = Case("conv1d", 3, 4, 4, groups=2, padding="same", stride=2, bias="normal")
SHAPES = ComparedShapes.named(CASE, None, 8, 16)


@pytest.fixture(scope="module")
def session():
    with open_session(Target.parse("reference"), inline=True) as found:
        yield found


FLAGS = "same no_left no_right proved_left proved_right reached_left reached_right gone".split()


@pytest.mark.parametrize("layout", ["contiguous", "offset:4"])
@pytest.mark.parametrize("apart", [False, True])
def test_every_cause_follows_from_what_is_known_of_both_sides(session, apart, layout):
    """All combinations of what may be known of an output, each one at an output of its own."""
    case = Case("matmul", in_channels=5, filters=2, length=128, bias="normal")
    run = run_case(session, case).reveal(session)
    flags = dict(zip(FLAGS, np.indices([2] * 8).reshape(8, 128, 2) > 0, strict=True))
    (plain,) = run.orders.summations
    added = {
        "left": plain,
        "right": plain._replace(tree=Tree.sequential([BIAS, *range(5)])) if apart else plain,
    }

    def side(name):
        known, right = flags[f"reached_{name}"], name == "right"
        orders = replace(
            run.orders,
            summations=[added[name]],
            index=np.where(flags["gone"] & (not right), -1, 0),
            not_a_sum=flags[f"no_{name}"],
            replayed=known,
            sets=17,
        )
        y = run.operands.y + np.float32(right)
        return replace(
            run,
            case=run.case.with_(layout=layout if right else "contiguous"),
            orders=orders,
            replays=flags[f"proved_{name}"],
            reached=known,
            operands=replace(run.operands, y=y),
        )

    def cause(same, no_left, no_right, proved_left, proved_right, left, right, gone):
        if not same:
            return "window"
        if no_left or no_right:
            return "not-a-sum"
        if not (proved_left and proved_right):
            return "unexplained"
        if left != right:
            return "reach"
        sums = "order" if apart and not gone else ""
        return "alignment" if sums and layout != "contiguous" else sums or "unexplained"

    rows = np.argwhere(np.ones((128, 2), bool))
    same = flags["same"].reshape(-1)
    found = Comparison(case, side("left"), side("right"), OutputPairs(rows, rows, same))
    assert found.cause == [
        cause(*one) for one in zip(*(flags[n].reshape(-1) for n in FLAGS), strict=True)
    ]
    assert list(found.causes) == [one for one in CAUSES if one in found.cause]
    known = (flags["reached_left"] & flags["reached_right"]).reshape(-1)
    assert found.sets == 17 and found.unknown == (same & ~known).sum()
    differ = np.flatnonzero(same & known & ~flags["gone"].reshape(-1)).tolist() * apart
    assert {name: some.tolist() for name, some in found.apart.items()} == (
        {"order": differ} if differ else {}
    )
    assert found.by_order == len(differ)
    assert [found.orders(one)[0]["outputs"] for one in (found.left, found.right)] == [128, 256]


def test_flushing_is_a_cause_only_where_bits_do_not_come_out_without_it(session):
    case = Case("matmul", in_channels=5, filters=2, length=30)
    run = run_case(session, case).reveal(session)
    (plain,) = run.orders.summations
    rows = np.argwhere(np.ones((30, 2), bool))
    flushing = replace(plain.rounding, flushed_sums=frozenset([EVERY]))
    other = plain._replace(tree=Tree.pairwise(5), rounding=flushing)
    y = run.operands.replay(other, *rows.T).reshape(30, 2)
    y[::3] += np.float32(1)
    right = replace(
        run, orders=replace(run.orders, summations=[other]), operands=replace(run.operands, y=y)
    )
    found = Comparison(case, run, right, OutputPairs(rows, rows, np.ones(60, bool)))
    changed = rows[found.differing, 0] % 3 == 0
    assert found.cause == ["order+flush" if one else "order" for one in changed]
    assert changed.any() and not changed.all()


@pytest.mark.parametrize(
    ("words", "targets", "channels", "told"),
    [
        (("contiguous", "offset:4"), "aa", (3, 3), True),
        (("offset:0", "offset:4"), "aa", (3, 3), True),
        (("offset:4", "offset:4"), "aa", (3, 3), False),
        (("contiguous", "transposed"), "aa", (3, 3), False),
        (("contiguous", "offset:4"), "ab", (3, 3), False),
        (("contiguous", "offset:4"), "aa", (3, 5), False),
    ],
)
def test_sides_that_differ_in_their_addresses_alone(words, targets, channels, told):
    sides = [
        SimpleNamespace(
            case=Case("sum", in_channels=count, length=4, layout=word),
            target=SimpleNamespace(text=text),
        )
        for word, text, count in zip(words, targets, channels, strict=True)
    ]
    found = SimpleNamespace(left=sides[0], right=sides[1])
    assert Comparison.by_address.fget(found) == told


def test_orders_of_a_side_are_counted_at_its_own_outputs_the_most_frequent_first(session):
    case = Case("matmul", in_channels=5, filters=3, length=20)
    run = run_case(session, case).reveal(session)
    (plain,) = run.orders.summations
    some = [plain, plain._replace(tree=Tree.pairwise(5)), plain._replace(tree=Tree.lanes(5, 2))]
    index = np.arange(60).reshape(20, 3) // 25
    left = replace(run, orders=replace(run.orders, summations=some, index=index))
    rows = np.argwhere(index < 2)
    found = Comparison(case, left, run, OutputPairs(rows[:45], rows[:45][::-1], np.zeros(45, bool)))
    assert [(one["id"], one["outputs"]) for one in found.orders(left)] == [
        (plain.tree.id, 25),
        (some[1].tree.id, 20),
    ]
    other = Comparison(case, run, left, OutputPairs(rows[:40], rows[-40:], np.zeros(40, bool)))
    assert [(one["id"], one["outputs"]) for one in other.orders(left)] == [
        (some[1].tree.id, 25),
        (plain.tree.id, 15),
    ]


def test_operands_rounded_to_two_formats_are_refused(session):
    left, right = (
        run_case(session, SHAPES.left),
        run_case(session, SHAPES.right.with_(dtype="float16")),
    )
    with pytest.raises(InputError, match="dtype=float16: the left side has float32"):
        Comparison(CASE, left, right, OutputPairs.must_agree(SHAPES))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("refusal", ["nondeterministic", "alignment", "not-a-sum"])
def test_what_refuses_a_side_is_the_cause_of_every_difference(session, side, refusal):
    sides = {"left": run_case(session, SHAPES.left), "right": run_case(session, SHAPES.right)}
    operands = sides["right"].operands
    sides["right"] = replace(sides["right"], operands=replace(operands, y=operands.y + 1))
    sides[side] = replace(sides[side], refusal=refusal)
    found = Comparison(CASE, *sides.values(), OutputPairs.must_agree(SHAPES))
    assert found.cause == [refusal] * found.compared and found.causes == {refusal: found.compared}
    assert not found.apart and found.unknown == 0 and not found.sets
    assert found.orders(found.left) == []


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
    assert found.rounded == 0, "nothing of it was replayed"
    assert found.apart == {} and found.unknown == 0, "both sides add alike, whatever they gave"
    assert found.by_order == 0
    assert found.to_json()["max_ulp"] == found.max_ulp


def test_a_verdict_follows_from_what_is_held_of_both_sides(changed):
    found, rng = replace(changed[0]), np.random.default_rng(3)
    count = len(found.differing)
    left, right = rng.choice([WITHIN, BEYOND, UNKNOWN], (2, count))
    explained = rng.random(count) < 0.3
    vars(found)["_held"] = explained, left, right, np.zeros(count, bool)
    words = []
    for known, *two in zip(explained, left, right, strict=True):
        held = "beyond" if BEYOND in two else "within" if {*two} == {WITHIN} else "unknown"
        words.append("explained" if known else held)
    assert found.out_of_bounds.tolist() == [said == "beyond" for said in words]
    counts = found.rounding.to_json()
    assert all(counts[said] == words.count(said) for said in set(words)) and len({*words}) == 4


def test_numbers_of_inputs_in_a_larger_input_name_the_same_element():
    rng = np.random.default_rng(1)
    for shape, larger in (((1, 4, 3), (2, 4, 3)), ((2, 3, 4, 2), (2, 5, 4, 3)), ((2, 3), (2, 3))):
        case = SimpleNamespace(input_shape=lambda shape=shape: shape)
        reads = rng.integers(-1, np.prod(shape), (6, 5))
        reads[0] = np.prod(shape) - 1
        found = _numbered_in(reads, case, np.array(larger))
        for one, other in zip(reads.reshape(-1), found.reshape(-1), strict=True):
            places = [np.unravel_index(n, s) for n, s in ((one, shape), (other, larger)) if n >= 0]
            assert len(places) != 1 and (not places or places[0] == places[1])


def test_windows_of_different_widths_are_different_windows():
    """A layer in groups and one that reads all channels have as many outputs as each other."""
    full = Case("conv1d", 3, 4, 4, 9)
    with open_session(Target("reference")) as session:
        runs = [run_case(session, case, windows=True) for case in (full, full.with_(groups=2))]
    assert not OutputPairs.same_place(*runs).same_window.any()
    assert OutputPairs.same_place(runs[1], runs[1]).same_window.all()
