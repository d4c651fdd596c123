"""Operand bits are fixed for all time; each kind keeps what it promises."""

import hashlib
import itertools

import numpy as np
import pytest

from probe.case import floats, operands
from probe.case.case import Case
from probe.case.operands import mix
from probe.order.replay import replay
from probe.order.summation import Rounding, Summation
from probe.order.tree import Tree
from probe.order.window import columns

KINDS = tuple(operands.KINDS)


def containers(case):
    return [None if a is None else floats.to_container(a, case.dtype) for a in case.operands()]


def digest(case):
    arrays = [a for a in containers(case) if a is not None]
    text = b"".join(np.ascontiguousarray(a.astype(a.dtype.newbyteorder("<"))) for a in arrays)
    return hashlib.sha256(text).hexdigest()[:16]


# Recorded on 2026-11-20, the last three on 2026-11-22, for float16, bfloat16, float32 and float64.
# A change here needs another operands.VERSION.
DTYPES = ("float16", "bfloat16", "float32", "float64")
RECORDED = {
    "normal": "20c5ca144ec35ae9 e06aab1900a7d584 bfaf85bd0ae168a3 8952b2eeb7e5baf5",
    "ramp": "69969aeaef447c75 b6ce756d17c3e6ea c358b60d47254b8b de45cba3471efe95",
    "cancel": "be7c42649a44ff2c 900b652160d3af6e deefb78eabb85a8c 513b6c6ba6dacc0b",
    "integers": "49e1cf4325d7d5cd b68d16e094b677e5 1e88bdfe48153617 a54732c3125742ab",
    "count": "c026ce9ded131cd6 be2be401cc0dadfb 7601022aa6a53bdc 41b52fc3edf7d1a6",
    "image": "65ed0e280b6d0786 d62a74950b0577d4 09b1b722673b7165 ed5b805252e72f26",
    "ones": "c344ff48a2cf4f22 ac050d2a75498c63 557d5448b9735129 45dd89e4d35d1d16",
    "infinite": "9ebf3f9013cc5a0f 4489128a1f6cc803 1c8c8794f3e19cbd 8aefca367fe59dff",
    "nan": "1960819acfdcc75a 2253e4a46a6a76f8 5630622ceceaa16c 6f733305c894132b",
    "tiny": "3875f10190e1286b 7bdfd50c19d292db 818abef0a7baf4b3 48ab7ef9739863b8",
}
GOLDEN = {
    (kind, dtype): bits
    for kind, each in RECORDED.items()
    for dtype, bits in zip(DTYPES, each.split(), strict=True)
}


@pytest.mark.parametrize(("kind", "dtype"), list(GOLDEN))
def test_bits_are_those_recorded(kind, dtype):
    case = Case("conv2d", (2, 5), 8, 4, 9, batch=2, operands=kind, dtype=dtype, bias="normal")
    assert digest(case) == GOLDEN[kind, dtype]


def test_every_kind_has_recorded_bits():
    assert {kind for kind, _ in GOLDEN} == set(KINDS)


def test_the_generator_is_splitmix64():
    # The first outputs of the published generator for seed 1234567 (Vigna, splitmix64.c).
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    golden = np.uint64(0x9E3779B97F4A7C15)
    states = np.uint64(1234567) + golden * np.arange(1, 4, dtype=np.uint64)
    assert mix(states).tolist() == published


def test_a_seed_of_63_bits_changes_everything():
    cases = [Case("conv1d", 3, 4, 4, 30, seed=seed, bias="normal") for seed in (0, 1, 2**63 - 1)]
    for one, other in itertools.combinations(cases, 2):
        for a, b in zip(one.operands(), other.operands(), strict=True):
            assert (a != b).mean() > 0.99


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_smaller_operands_are_prefixes(kind, dtype):
    large = Case("conv2d", (1, 3), 4, 6, 12, batch=3, height=5, operands=kind, dtype=dtype,
                 bias="normal", groups=2)  # fmt: skip
    x, w, b = containers(large)
    for change, part in [
        ({"length": 7}, np.s_[:, :, :7]),
        ({"batch": 2}, np.s_[:2]),
        ({"height": 2}, np.s_[:, :2]),
    ]:
        smaller = containers(large.with_(**change))
        assert [one.tobytes() for one in smaller] == [one.tobytes() for one in (x[part], w, b)]
    smaller = containers(large.with_(filters=2))
    assert [one.tobytes() for one in smaller] == [one.tobytes() for one in (x, w[..., :2], b[:2])]


def test_normal_looks_normal():
    x, w, _ = Case("conv1d", 50, 100, 20, 1000).operands()
    for values in (x.ravel(), w.ravel()):
        assert abs(values.mean()) < 0.01 and abs(values.std() - 1) < 0.01
        assert abs((np.abs(values) < 1).mean() - 0.683) < 0.01
        assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 0.01
    assert len(np.unique(x)) > 0.9 * x.size


@pytest.mark.parametrize("dtype", floats.FORMATS)
def test_tiny_is_around_the_smallest_normal_number(dtype):
    least = 2.0 ** floats.FORMATS[dtype].emin
    for seed, (subnormal_x, subnormal_w) in enumerate([(0, 1), (1, 0), (0, 0)]):
        case = Case("conv1d", 3, 4, 8, 40, operands="tiny", seed=seed, dtype=dtype)
        x, w = (np.abs(floats.widen(one, dtype)) for one in containers(case)[:2])
        assert (x < least).any() == subnormal_x and (w < least).any() == subnormal_w
        products = np.abs(np.longdouble(x.reshape(-1)[:96]) * w.reshape(-1)[:96]) / least
        assert (products < 1).any() and (products > 1).any() and products.max() < 64
    total = Case("sum", in_channels=50, length=2, operands="tiny", dtype=dtype)
    assert (np.abs(floats.widen(containers(total)[0], dtype)) < least).any()


def test_ramp_is_the_report_s():
    x, _, _ = Case("conv2d", (1, 5), 2, length=9, batch=2, height=3, operands="ramp").operands()
    assert (x == (10 * np.arange(9, dtype=np.float32))[:, None]).all()


# --- what `integers` and `cancel` promise, in the orders that libraries have ---


def eigen(n):
    """Class B of FACTS: groups of 4 as (0+2)+(1+3), then the tail one by one."""
    whole = [start + lane for start in range(0, n // 4 * 4, 4) for lane in (0, 2, 1, 3)]
    nodes = list(Tree.lanes(whole, 4).nodes) if whole else []
    for leaf in range(len(whole), n):
        nodes.append((~(len(nodes) - 1), leaf))
    return Tree.from_nodes(nodes)


def orders(n):
    """Names by tree: each order once."""
    trees = {
        "blocked-4": Tree.lanes(n, 4),
        "blocked-8": Tree.lanes(n, 8),
        "blocked-16": Tree.lanes(n, 16),
        "pairwise": Tree.pairwise(n),
        "reversed": Tree.sequential(range(n)[::-1]),
        "sequential": Tree.sequential(n),
    }
    if n >= 4:
        trees = {"eigen": eigen(n)} | trees
    return {tree: name for name, tree in trees.items()}


def met(case):
    """x and w of every leaf, (leaves, outputs)."""
    x, w, _ = case.operands()
    rows = columns(case, x)[0]
    weights = w.reshape(case.summands, case.filters)
    return np.repeat(rows, case.filters, axis=1), np.tile(weights, rows.shape[1])


def sums(case):
    """{order: outputs}; in float32 with fused products too."""
    (x, w), found = met(case), {}
    for tree, name in orders(case.summands).items():
        found[name] = replay(Summation(tree), x, w, case.dtype)
        if case.dtype == "float32" and name in ("sequential", "reversed"):
            fused = Summation(tree, Rounding.fused_everywhere(tree))
            found[f"{name}-fused"] = replay(fused, x, w, case.dtype)
    return found


def rates(case):
    """{(order, order): share of outputs that differ}, for all that add in different trees."""
    found = sums(case)
    pairs = itertools.combinations(found, 2)
    return {(a, b): float((found[a] != found[b]).mean()) for a, b in pairs}


def one_channel(n, kind="cancel", dtype="float32"):
    return Case("conv1d", n, 1, 12, length=n + 11, operands=kind, dtype=dtype)


def test_cancel_shows_them_at_every_size():
    # Measured for 4 to 160 products: at least 0.979 (0.979 at 8, pairwise against class B).
    for n in [*range(4, 36), 49, 64, 75]:
        assert {pair: rate for pair, rate in rates(one_channel(n)).items() if rate <= 0.9} == {}, n


@pytest.mark.parametrize(("dtype", "least"), [("float64", 0.9), ("float16", 0.2)])
def test_cancel_in_other_dtypes(dtype, least):
    for n in (4, 5, 9, 12, 48):
        found = rates(one_channel(n, dtype=dtype))
        assert min(found.values()) > least and np.mean(list(found.values())) > 0.8, n


@pytest.mark.parametrize("n", [2, 3])
def test_cancel_shows_what_two_and_three_products_can(n):
    found = sums(one_channel(n))
    assert (found["sequential-fused"] != found["sequential"]).mean() > 0.9
    if n == 3:
        assert (found["reversed"] != found["sequential"]).mean() > 0.9


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("n", [1, 4, 12, 48, 320])
def test_integers_never_differ(n, dtype):
    case = one_channel(n, "integers", dtype)
    if n >= 4:
        assert set(rates(case).values()) == {0.0}
    x, w = met(case)
    bound = 2 ** floats.FORMATS[dtype].precision
    assert np.abs(x.astype(float) * w).sum(axis=0).max() + 1 <= bound


@pytest.mark.parametrize("n", [1, 100, 256, 1280])
def test_integers_stay_exact_in_bfloat16_at_any_size(n):
    case = one_channel(n, "integers", "bfloat16").with_(bias="normal")
    x, w, b = (array.astype(np.float64) for array in case.operands())
    worst = np.abs(x).max() * np.abs(w).sum(axis=(0, 1)) + np.abs(b)
    assert worst.max() <= 256 and (w != 0).any(axis=(0, 1)).all()
