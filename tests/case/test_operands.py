"""Operand bits are fixed for all time; each kind keeps what it promises."""

import hashlib
import itertools

import numpy as np
import pytest

from probe.case import floats, operands
from probe.case.case import Case
from probe.case.operands import mix

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


def test_normal_is_a_prefix_along_the_channels_too():
    large = Case("conv1d", 3, 8, 4, 12)
    (x, w, _), (x_, w_, _) = large.operands(), large.with_(in_channels=3).operands()
    assert (x_ == x[..., :3]).all() and (w_ == w[:, :3]).all()


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


def test_explicit_weights_and_bias_replace_the_generated():
    given = [-0.7313, -1.1043, 1.8492, 1.3007, -0.1033]
    _, w, b = Case("conv2d", (1, 5), weights=given, bias=0.0401, length=7).operands()
    assert w.shape == (1, 5, 1, 1) and w.ravel().tolist() == np.float32(given).tolist()
    assert b.tolist() == np.float32([0.0401]).tolist()


# --- what `integers` and `cancel` promise, with additions written out here ---


def sequential(items, add):
    total = items[0]
    for item in items[1:]:
        total = add(total, item)
    return total


def reverse(items, add):
    return sequential(items[::-1], add)


def pairwise(items, add):
    while len(items) > 1:
        items = [sequential(items[i : i + 2], add) for i in range(0, len(items), 2)]
    return items[0]


def lanes(width, then=pairwise):
    def blocked(items, add):
        return then([sequential(items[i::width], add) for i in range(min(width, len(items)))], add)

    return blocked


def eigen(items, add):
    """Class B of FACTS: groups of 4 as (0+2)+(1+3), then the tail one by one."""
    whole = len(items) // 4 * 4
    a, b, c, d = (sequential(items[i:whole:4], add) for i in range(4))
    return sequential([add(add(a, c), add(b, d)), *items[whole:]], add)


ORDERS = {
    "sequential": sequential,
    "reversed": reverse,
    "pairwise": pairwise,
    "blocked-4": lanes(4),
    "blocked-8": lanes(8),
    "blocked-16": lanes(16),
    "eigen": eigen,
}


def fused_step(total, x, w):
    """total + x * w, rounded once: exact product, sum rounded to odd in float64, then float32."""
    product, total = x.astype(np.float64) * w, total.astype(np.float64)
    high = product + total
    part = high - product
    low = (product - (high - part)) + (total - part)
    odd = high.view(np.int64) & 1 == 1
    toward = np.nextafter(high, np.where(low > 0, np.inf, -np.inf))
    return np.where((low != 0) & ~odd, toward, high).astype(np.float32)


def fused(x, w):
    total = x[0] * w[0]
    for left, right in zip(x[1:], w[1:], strict=True):
        total = fused_step(total, left, right)
    return total


def met(case):
    """x and w of every leaf, (leaves, outputs), cut out with plain slices (VALID, one batch)."""
    x, w, _ = case.operands()
    (kernel,), (outputs,) = case.kernel, case.output_spatial()
    rows = np.stack([x[0, k : k + outputs] for k in range(kernel)])  # (kernel, outputs, channels)
    rows = rows.transpose(0, 2, 1).reshape(case.summands, outputs, 1)
    weights = w.reshape(case.summands, 1, case.filters)
    flat = (case.summands, outputs * case.filters)
    both = np.broadcast_arrays(rows, weights)
    return [array.reshape(flat) for array in both]


def different(orders, n):
    """The orders without those that add in the same tree as one before."""
    nodes, trees = {}, {}
    for name, order in orders.items():
        root = order(
            list(range(n)), lambda a, b: nodes.setdefault(frozenset([a, b]), n + len(nodes))
        )
        trees.setdefault(root, name)
    return {name: orders[name] for name in trees.values()}


def rates(case):
    """{(order, order): share of outputs that differ}, for all that add in different trees."""
    x, w = met(case)
    found = different(ORDERS, case.summands)
    sums = {name: order(list(x * w), np.add) for name, order in found.items()}
    if case.dtype == "float32":
        sums |= {"fused": fused(x, w), "reversed-fused": fused(x[::-1], w[::-1])}
    pairs = itertools.combinations(sums, 2)
    return {(a, b): float((sums[a] != sums[b]).mean()) for a, b in pairs}


def one_channel(n, kind="cancel", dtype="float32"):
    return Case("conv1d", n, 1, 12, length=n + 11, operands=kind, dtype=dtype)


WINDOWS = {4: (4, 1), 5: (5, 1), 12: (3, 4), 48: (3, 16), 320: (5, 64), 1280: (5, 256)}


@pytest.mark.parametrize("n", WINDOWS)
def test_cancel_shows_every_order_and_fusion(n):
    # Measured 2026-11-20: 1.00 for every pair at every one of these sizes; `normal` has 0.26, 0.23,
    # 0.42, 0.38, 0.32 and 0.39 at its worst pairs.
    kernel, channels = WINDOWS[n]
    case = Case("conv1d", kernel, channels, 8, length=kernel + 20, operands="cancel")
    found = rates(case)
    assert len(found) >= 15
    assert {pair: rate for pair, rate in found.items() if rate <= 0.9} == {}


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
    x, w = met(one_channel(n))
    rounded = sequential(list(x * w), np.add)
    assert (fused(x, w) != rounded).mean() > 0.9
    if n == 3:
        assert (reverse(list(x * w), np.add) != rounded).mean() > 0.9


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
