"""Revealed and replayed on targets whose order is known: the reference and its test doubles."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest

from probe.case import floats, ulp
from probe.case.case import Case
from probe.case.errors import Nondeterministic, NotASum
from probe.order import orders as orders_room
from probe.order.masks import SessionOperator
from probe.order.orders import ContainerOperands, Orders, _OpenOutputs, replays_agree, reveal
from probe.order.replay import replay
from probe.order.summation import Summation, ranges_of_mask
from probe.order.tree import BIAS, Tree
from probe.targets.launch import InlineSession
from probe.targets.target import Target
from tests.order.synthetic import planted


def session(algorithm="sequential"):
    return InlineSession(Target.parse(f"reference,algorithm={algorithm}")).start()


def conv(op="conv1d", kernel=3, in_channels=4, filters=3, length=9, **more):
    return Case(
        op=op, kernel=kernel, in_channels=in_channels, filters=filters, length=length, **more
    )


@pytest.mark.parametrize(
    ("algorithm", "tree"),
    [
        ("sequential", Tree.sequential),
        ("pairwise", Tree.pairwise),
        ("blocked", lambda n: Tree.lanes(n, 4)),
        ("reversed", lambda n: Tree.sequential(reversed(n))),
        ("fused", Tree.sequential),
    ],
)
def test_a_known_order_is_found_at_every_output(algorithm, tree):
    # the others add in every format as they do in one; the reference fuses in float32 only
    for dtype in floats.FORMATS if algorithm == "pairwise" else ["float32"]:
        case = conv(dtype=dtype)
        orders = reveal(session(algorithm), case)
        assert orders.replayed.all() and not orders.evidence
        (found,) = orders.summations
        assert found.tree == tree(range(case.summands)), dtype
        assert found.style == ("all" if algorithm == "fused" else "none")


@pytest.mark.parametrize(
    ("summands", "dtype", "bias"),
    [(n, dtype, None) for n in (1, 2, 3, 40) for dtype in ("float16", "bfloat16")]
    + [(n, "bfloat16", "normal") for n in (2, 3, 40)],
)
def test_sums_that_are_truncated_before_a_bias_is_added_are_told(summands, dtype, bias):
    case = conv("matmul", kernel=None, in_channels=summands, dtype=dtype, bias=bias)
    orders = reveal(session("truncated"), case)
    assert orders.replayed.all()
    ((tree, rounding),) = orders.summations
    assert rounding.accumulator_format == "float32" and rounding.truncated == {summands - 2}
    assert not bias or tree.nodes[-1] == (~(summands - 2), BIAS)
    nearest = Summation(tree, replace(rounding, truncated=frozenset()))
    assert Summation(tree, rounding).causes(nearest) == ("rounding",)


@pytest.mark.parametrize(
    "case",
    [
        conv(),
        conv(in_channels=1, filters=1),
        conv("conv2d", length=6, height=5),
        conv(bias="normal"),
    ],
    ids=["conv1d", "one-channel", "conv2d", "bias"],
)
def test_a_transform_is_no_sum_and_gets_no_tree(case):
    orders = reveal(session("winograd"), case)
    assert not orders.summations and not orders.replayed.any()
    assert orders.not_a_sum.all() and "product" in orders.evidence


def test_a_random_order_is_nondeterministic():
    with pytest.raises(Nondeterministic, match="the same call again"):
        reveal(session("random"), conv())


class ByFilter(InlineSession):
    """The reference, whose last filter is computed by another algorithm."""

    def __init__(self, algorithm):
        super().__init__(Target.parse("reference"))
        self.last = algorithm
        self.start()

    def stream(self, header, arrays=None):
        others = []
        if header["do"] != "start":
            others = [found for _, found in session(self.last).stream(header, arrays)]
            self.start()  # all sessions of this process share one backend
        for number, (answer, found) in enumerate(super().stream(header, arrays)):
            for name in {"y", "outputs"} & set(found):
                found[name] = found[name].copy()
                found[name][..., -1] = others[number][name][..., -1]
            yield answer, found


@pytest.mark.parametrize("algorithm", ["pairwise", "reversed", "blocked"])
def test_filters_that_look_alike_and_differ_are_revealed_apart(algorithm, monkeypatch):
    monkeypatch.setattr(import_module("probe.order.reveal"), "SIGNATURE_PAIRS", 1)
    orders = reveal(ByFilter(algorithm), conv())
    assert orders.replayed.all() and len(orders.summations) == 2
    assert (orders.index[:, :2] == orders.index[0, 0]).all()
    assert (orders.index[:, 2] == 1 - orders.index[0, 0]).all()


@pytest.mark.parametrize("filters", [1, 3])
def test_a_node_of_three_is_asked_for_however_the_bits_agree(filters, monkeypatch):
    """Filters of two orders that take turns in answering give nodes that none of them has."""
    monkeypatch.setattr(orders_room, "replays_agree", _lucky)
    work = _OpenOutputs(SessionOperator(session(), conv(filters=filters)), None)
    mixed = Tree.from_nodes([[0, 1, 2], [-1, 3], *([-n, n + 2] for n in range(2, 10))])
    assert mixed.leaves == (*range(work.case.summands),)
    work.settle(Summation(mixed), work.open)
    assert work.open.all()
    work.settle(Summation(Tree.sequential(mixed.leaves)), work.open)
    assert not work.open.any()


def test_what_reaches_over_an_edge_is_asked_however_the_bits_agree(monkeypatch):
    """One block that is added otherwise rounds alike on nearly all operands."""
    monkeypatch.setattr(orders_room, "replays_agree", _lucky)
    work = _OpenOutputs(SessionOperator(session(), conv(in_channels=16, padding=1)), None)
    nodes = [[40, 41], [0, 1], *([-n, n] for n in range(2, 40))]
    nodes += [[-1, -40], *([-n + 1, n] for n in range(42, 48))]
    joined = Tree.from_nodes(nodes)
    assert joined.leaves == (*range(work.case.summands),)
    monkeypatch.setattr(work.answers, "like", lambda tree, ours, theirs: np.ones(len(ours), bool))
    work.settle(Summation(joined), work.open)
    assert work.open[0].all() and not work.open[1:-1].any()
    assert not work.open[-1].any()  # reads neither of the two
    work.settle(Summation(Tree.sequential(joined.leaves)), work.open)
    assert not work.open.any()


def _lucky(operands, summation, positions, filters):
    return np.ones(len(positions), bool)


@pytest.mark.parametrize(
    ("change", "mixes"),
    [
        (lambda y: y, False),
        (lambda y: np.nextafter(y, np.float32(np.inf)), False),
        (lambda y: floats.nearest(y, "tf32").astype(np.float32), False),
        (lambda y: floats.nearest(y, "bfloat16").astype(np.float32), False),
        (lambda y: y * np.float32(1 + 2.0**-20), True),
        (lambda y: floats.nearest(y, "bfloat16").astype(np.float32) * np.float32(1.03125), True),
        (lambda y: y[..., ::-1], True),
        (lambda y: np.where(y == 0, np.float32(2.0**-40), y), None),
        (lambda y: y * np.float32(np.nan), True),
    ],
)
def test_one_product_is_told_from_what_no_format_would_make_of_it(change, mixes):
    seen, changes = [], [lambda y: y]
    session = planted(output=lambda y: (seen.append(y), changes[-1](y))[1])
    case = conv(groups=2, in_channels=6, filters=4, batch=2, bias="normal")
    work = _OpenOutputs(SessionOperator(session, case), None)
    changes.append(change)
    for number in range(8):
        found = work._mixes(number)
        zero = seen[-1].reshape(14, 4) == 0  # a product of 0 is one, whatever is done to it
        assert (found == {True: ~zero, False: False, None: zero}[mixes]).mean() > 0.96


def test_a_non_linear_operator_gets_no_tree():
    with pytest.raises(NotASum, match=r"-f\(-x\) gives"):
        reveal(planted(output=lambda y: np.maximum(y, 0)), conv())
    with pytest.raises(NotASum, match=r"2 f\(x/2\) gives"):
        reveal(planted(output=lambda y: y * np.abs(y)), conv())


def test_an_operator_that_saturates_under_the_masks_gets_no_tree():
    orders = reveal(planted(output=lambda y: np.clip(y, -1e9, 1e9)), conv())
    assert not orders.replayed.any() and not orders.summations  # the units still count
    lossy = planted(output=lambda y: np.where(np.abs(y) > 30, np.float32(np.inf) * np.sign(y), y))
    with pytest.raises(NotASum, match="inf"):
        reveal(lossy, conv(in_channels=16))


@pytest.mark.parametrize(
    "case",
    [
        conv(padding="same", stride=2, length=11),
        conv(padding="3:1", dilation=2, length=7),
        conv("conv2d", kernel="2x3", padding="same", height=4, length=5, batch=2),
        conv("depthwise_conv2d", kernel=3, in_channels=4, filters=8, height=5, length=6),
        conv(groups=2, in_channels=6, filters=4),
        conv(in_channels=40, padding="same"),  # long enough to settle edges by replay
        # windows of one leaf in a long kernel
        conv("conv2d", kernel=7, in_channels=1, filters=1, padding="same", length=1, height=1),
    ],
    ids=lambda case: case.label,
)
def test_edges_strides_groups_and_batches_replay_everywhere(case):
    orders = reveal(session(), case)
    assert orders.replayed.all() and not orders.not_a_sum.any()


def test_windows_that_read_only_padding_have_no_way_and_no_fault():
    orders = reveal(session(), conv(kernel=1, padding="2:2", length=3))
    nothing = orders.index[:, 0] < 0
    assert nothing.tolist() == [True, True, False, False, False, True, True]
    assert orders.replayed.all()


RANGES = {
    "clipped": lambda y: np.clip(y, -50, 50),
    "saturated": lambda y: np.nan_to_num(y, posinf=3.4028235e38, neginf=-3.4028235e38),
    "infinite early": lambda y: np.where(np.abs(y) > 1e30, np.copysign(np.float32(np.inf), y), y),
    "zero early": lambda y: np.where(np.abs(y) < 1e-30, np.copysign(np.float32(0), y), y),
    "flushed": lambda y: np.where(np.abs(y) < 2.0**-126, np.copysign(np.float32(0), y), y),
}


@pytest.mark.parametrize("name", RANGES)
def test_what_adds_in_a_part_of_the_range_alone_has_no_order(name):
    """Beyond the operands that were tried it is another number than the order says."""
    orders = reveal(planted(output=RANGES[name]), conv(dtype="float32"))
    # a rounding of its own is asked about, and replays; LiteRT clamps what is not finite
    known = name in ("flushed", "saturated")
    assert orders.replayed.all() == known and bool(orders.summations) == known
    assert known or "scaled through the whole range" in orders.evidence


def test_rows_and_counts_are_of_the_outputs_that_add_so():
    case, rng = conv(length=8), np.random.default_rng(0)
    index = rng.integers(-1, 2, (6, 3))
    replayed = (index >= 0) | (rng.random((6, 3)) < 0.4)
    kinds = [Summation(Tree.sequential(12)), Summation(Tree.pairwise(12))]
    given = {"evidence": "why", "calls": 7, "checks": 3, "seconds": 0.5, "sets": 17}
    found = Orders(case, kinds, index, replayed, ~replayed, **given)
    assert found.shape == (1, 6, 3) and found.counts().tolist() == [
        (index == 0).sum(),
        (index == 1).sum(),
    ]
    some, again = rng.random((6, 3)) < 0.7, rng.random((6, 3)) < 0.5
    for wanted, proved in ((None, None), (some, None), (some, again)):
        rows = found.rows({"at": 1}, wanted, proved)
        mine = (index >= 0) | ~replayed if wanted is None else wanted
        told = replayed if proved is None else proved
        parts = [(n, mine & (index == n)) for n in (0, 1, -1)]
        parts = [(n, part) for n, part in parts if part.any()]
        assert len(rows) == len(parts)
        for row, (number, part) in zip(rows, parts, strict=True):
            assert row["outputs"] == part.sum()
            assert row["replayed"] == ((part & told).sum() if number >= 0 else 0)
            assert row["sets"] == (17 if number >= 0 else None)
            assert row["ranges"] == ranges_of_mask(part)
            assert row["order_id"] == (kinds[number].tree.id if number >= 0 else None)
            assert row["evidence"] == (None if number >= 0 else "why")
            assert (row["at"], row["calls"], row["checks"]) == (1, 7, 3)


@pytest.mark.parametrize("bias", [None, "normal"])
@pytest.mark.parametrize("odd", [False, True])
def test_outputs_replay_over_their_own_windows_filters_and_groups(odd, bias):
    case = conv(in_channels=4, filters=6, groups=2, padding="same", batch=2, bias=bias, length=5)
    rng = np.random.default_rng(1)
    x, w, b = case.operands()
    tree = Tree.pairwise([*range(6), *[BIAS] * (bias is not None)])
    kernels = [w.copy(), (w * 3).astype(np.float32)]
    if odd:
        kernels[1][0, 0, 0] = np.inf
    shape = (10, 6)
    sets = [ContainerOperands(case, x, one, b, np.zeros(shape, np.float32)) for one in kernels]
    rows = np.argwhere(np.ones(shape, bool))[rng.permutation(60)[:40]]
    padded = np.pad(x, ((0, 0), (1, 1), (0, 0)))
    expected = []
    for kernel in kernels:
        side = []
        for position, filt in rows.tolist():
            entry, at = divmod(position, 5)
            reads = padded[entry, at : at + 3, 2 * (filt // 3) : 2 * (filt // 3) + 2].reshape(-1, 1)
            met = kernel[..., filt].copy()
            met[[n for n in range(3) if not 0 <= at + n - 1 < 5]] = 0
            added = None if b is None else b[filt : filt + 1]
            side.append(replay(Summation(tree), reads, met.reshape(-1, 1), "float32", added)[0])
        expected.append(np.array(side))
    found = [one.replay(Summation(tree), *rows.T) for one in sets]
    assert all(ulp.equal(*pair, "float32") for pair in zip(found, expected, strict=True))
    assert [one.finite for one in sets] == [True, not odd]
    for one, side in zip(sets, expected, strict=True):
        one.y[tuple(rows.T)] = side
    assert replays_agree(sets, Summation(tree), *rows.T).all()
    place = tuple(rows[7])
    sets[1].y[place] = np.nextafter(sets[1].y[place], np.float32(0))
    told = replays_agree(sets, Summation(tree), *rows.T)
    assert np.flatnonzero(~told).tolist() == ([] if np.isnan(expected[1][7]) else [7])
