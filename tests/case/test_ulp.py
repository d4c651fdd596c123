"""The one comparison, against integers counted one by one: policy, distances, and places."""

from __future__ import annotations

import numpy as np
import pytest

from probe.case import floats, ulp


def f32(*bits: int) -> np.ndarray:
    return np.array(bits, dtype=np.uint32).view(np.float32)


def edges(name: str) -> list[int]:
    """Bit patterns on both sides of every bound of a format, of both signs."""
    form = floats.FORMATS[name]
    sign, inf = (
        1 << (form.bits - 1),
        ((1 << (form.bits - form.precision)) - 1) << (form.precision - 1),
    )
    smallest, one = (
        1 << (form.precision - 1),
        int(floats.to_bits(floats.round_to(np.ones(1), name), name)[0]),
    )
    found = [0, 1, smallest - 1, smallest, one, one + 1, inf - 1, inf, inf + 1, sign - 1]
    return [*found, *(sign | bits for bits in found)]


def number(bits: int, name: str) -> int | None:
    """A pattern's place in increasing order; None of NaN: by its value alone."""
    form = floats.FORMATS[name]
    value = float(floats.widen(floats.from_bits(np.array([bits]), name), name)[0])
    if value != value:
        return None
    return bits if bits < 1 << (form.bits - 1) else -(bits - (1 << (form.bits - 1)))


def apart(one: int, other: int, name: str) -> int | None:
    """The distance by ``POLICY``; None: of a NaN and a number there is none."""
    first, second = number(one, name), number(other, name)
    if first is None or second is None:
        return 0 if first is second else None
    return second - first


def among(
    pairs: list[tuple[int, int]], name: str
) -> tuple[np.ndarray, np.ndarray, list[int | None]]:
    """Both sides as container arrays, and their distances one by one."""
    unit = floats.FORMATS[name].unit
    sides = (np.array(side, dtype=unit) for side in zip(*pairs, strict=True))
    a, b = (floats.from_bits(side, name) for side in sides)
    return a, b, [apart(*pair, name) for pair in pairs]


def assert_told(a: np.ndarray, b: np.ndarray, far: list[int | None], name: str) -> None:
    """All that is said of two arrays, whose distances (flat) are known."""
    bits = [floats.to_bits(side, name).reshape(-1).tolist() for side in (a, b)]
    sign = 1 << (floats.FORMATS[name].bits - 1)
    zeros = [n for n, pair in enumerate(zip(*bits, strict=True)) if {*pair} == {0, sign}]
    places = [n for n, step in enumerate(far) if step != 0]
    most = 2**63 - 1
    shown = [ulp.NAN if step is None else max(-most, min(most, step)) for step in far]
    for how, wanted in (("equal", places), ("differ", sorted(places + zeros))):
        found = ulp.differences(a, b, name, how)
        assert found.index.dtype == np.int64 and found.index.tolist() == wanted
        assert found.ulps.dtype == np.int64 and found.ulps.tolist() == [shown[n] for n in wanted]
        assert found.bits_a.tolist() == [bits[0][n] for n in wanted]
        assert found.bits_b.tolist() == [bits[1][n] for n in wanted]
        where = ulp.bits_apart(a, b, name, how)
        assert where.shape == a.shape and np.flatnonzero(where).tolist() == wanted
    steps = ulp.distance(a, b, name)
    assert steps.shape == np.shape(a) and steps.reshape(-1).tolist() == [
        ulp.NAN if step is None else step for step in far
    ]
    wide = any(abs(step or 0) > most for step in far)
    if not any(np.isnan(floats.widen(side, name)).any() for side in (a, b)):
        assert steps.dtype == (object if wide else np.int64)
    assert ulp.signed_zeros(a, b, name) == len(zeros)
    assert ulp.equal(a, b, name) == (not places)
    sizes = [abs(step) for step in far if step]
    largest = max(sizes) if sizes else None if places else 0
    assert ulp.max_ulp(a, b, name) == largest
    assert ulp.largest_ulp(found) == largest


BLOCKS = [ulp._BLOCK, 64, 9]


@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("name", floats.FORMATS)
def test_every_pair_of_bounds_is_as_far_apart_as_counted(name, block, monkeypatch) -> None:
    monkeypatch.setattr(ulp, "_BLOCK", block)
    pairs = [(one, other) for one in edges(name) for other in edges(name)]
    assert_told(*among(pairs, name), name)
    for pair in pairs[:: 3 if block == ulp._BLOCK else 29]:
        assert_told(*among([pair], name), name)
    for some in (
        pairs[:3],
        pairs[5:12],
        pairs[::2],
        [pair for pair in pairs if pair[0] == pair[1]],
    ):
        assert_told(*among(some, name), name)


@pytest.mark.parametrize("block", BLOCKS[1:])
@pytest.mark.parametrize("name", floats.FORMATS)
def test_few_and_many_differences_are_told_alike_in_every_layout(name, block, monkeypatch) -> None:
    monkeypatch.setattr(ulp, "_BLOCK", block)
    rng, form = np.random.default_rng(block), floats.FORMATS[name]
    top = int(np.iinfo(form.unit).max)
    for share, nan in ((0.0, False), (0.01, False), (0.2, False), (0.2, True), (1.0, False)):
        bits = rng.integers(0, top, (2, 3, 3, 17), dtype=form.unit, endpoint=True)
        other = np.full_like(bits[1], top) if nan else bits[1]
        bits[1] = np.where(rng.random(bits[0].shape) < share, other, bits[0])
        sides = floats.from_bits(bits, name)
        cuts = [np.s_[:], np.s_[:, 1:, 2:-1], np.s_[:, :, 2:3, ::3], np.s_[:, 0:0]]
        for cut in [*cuts, np.s_[:, :1], np.s_[:, 1, 2, 1:], np.s_[:, 1, 2, :-1]]:
            a, b = sides[cut]
            flat = (floats.to_bits(side, name).reshape(-1).tolist() for side in (a, b))
            assert_told(a, b, [apart(*pair, name) for pair in zip(*flat, strict=True)], name)


@pytest.mark.parametrize("name", floats.FORMATS)
def test_numbers_count_values_in_increasing_order(name: str) -> None:
    bits = np.array(edges(name), dtype=floats.FORMATS[name].unit)
    counted = [number(one, name) for one in bits.tolist()]
    known = np.array([one is not None for one in counted])
    found = ulp.ordered_number(bits[known], name)
    assert found.tolist() == [one for one in counted if one is not None]
    infinity = max(found.tolist())
    beyond = np.abs(ulp.ordered_number(bits[~known], name))
    assert (beyond > infinity).all()


ONE, INF, NAN = 0x3F800000, 0x7F800000, 0x7FC00000
POLICY = (
    [(ONE, ONE, 0)],
    [(0, 1 << 31, 0)],
    [(NAN, NAN | 1 << 31, 0), (NAN, INF + 1, 0)],
    [(NAN, 0, None), (INF, NAN, None)],
    [(INF, INF, 0)],
    [(INF - 1, INF, 1), (INF, ONE, ONE - INF)],
    [(1 << 31, 1, 1), (1 | 1 << 31, 1, 2)],
)
"""Pairs of float32 bits and their distance, for every row of the policy."""


@pytest.mark.parametrize(("row", "pairs"), [*zip(ulp.POLICY, POLICY, strict=True)])
def test_policy(row, pairs) -> None:
    _, equal, far = row
    assert ulp.NAN == -(2**63)
    for one, other, step in pairs:
        a, b = f32(one), f32(other)
        assert ulp.equal(a, b, "float32") == equal
        assert ulp.distance(a, b, "float32") == (ulp.NAN if step is None else step)
        assert step == far or isinstance(far, str)


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match=r"shapes=\(2,\), \(3,\): only arrays of one shape"):
        ulp.differences(np.zeros(2), np.zeros(3), "float64")
