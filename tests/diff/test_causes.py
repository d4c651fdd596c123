"""Causes of one operation: pairs of products of bytes that leave 16 bits on one side are named, and
of functions by place what the place decides is told from what it doesn't."""

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from probe.diff.alone import Alone
from probe.diff.causes import ByteProducts, PlacedFunction
from probe.diff.difference import Difference
from probe.diff.running import by_running
from probe.diff.walk import walk
from probe.order.semantics import Unknown
from tests.record.doubles import Doubles, Step

RNG = np.random.default_rng(0)
X = RNG.integers(100, 256, (4, 9)).astype(np.uint8)
W = RNG.integers(-127, 128, (9, 3)).astype(np.int8)
SCALES = {"sx": np.float32(0.02), "sw": np.float32(0.01), "sy": np.float32(6)}
ZEROS = {"zx": np.uint8(3), "zw": np.int8(0), "zy": np.uint8(128)}


def total(x: np.ndarray, w: np.ndarray, cut: bool) -> int:
    """Adds products of two rows, by pairs of neighbours that may be cut off at 16 bits."""
    products = [int(a) * int(b) for a, b in zip(x, w, strict=True)]
    pairs = [sum(products[n : n + 2]) for n in range(0, len(products), 2)]
    return sum(max(-32768, min(32767, pair)) if cut else pair for pair in pairs)


def product(x: np.ndarray, w: np.ndarray, zero: int = 0, cut: bool = False) -> np.ndarray:
    rows = itertools.product(x, w.astype(int).T)
    sums = [total(row, column, cut) - zero * int(column.sum()) for row, column in rows]
    return np.array(sums, np.int32).reshape(len(x), -1)


def whole(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return product(x, w)


def saturating(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return product(x, w, cut=True)


def other(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return product(x, w) // 2


def compared(left: Any, right: Any, **more: np.ndarray) -> Difference:
    arrays = {"x": X, "w": W, **more}
    sides = [
        lambda given, f=f: Doubles(dict(given), [Step("product", Unknown(), f, [*arrays])])
        for f in (left, right)
    ]
    match = by_running((sides[0], sides[1]), (arrays, arrays))
    return walk(sides[0](arrays), sides[1](arrays), match=match)


def test_the_side_whose_pairs_leave_16_bits_is_named() -> None:
    for sides in ((whole, saturating), (saturating, whole)):
        difference = compared(*sides)
        (source,), (cause,) = difference.sources, difference.causes.values()
        assert (source.cause, cause.kind) == ("saturation", "saturation")
        assert cause.examined == cause.replayed == source.differing > 0
        assert f"on the {'right' if sides[1] is saturating else 'left'}, sums" in cause.why


def test_what_gives_other_numbers_does_not_saturate() -> None:
    for sides in ((whole, other), (saturating, other)):
        assert "saturation" not in [cause.kind for cause in compared(*sides).causes.values()]


def test_sums_that_become_bytes_again_are_rescaled_as_their_operation_does() -> None:
    def quantised(cut: bool) -> Any:
        def function(x: Any, sx: Any, zx: Any, w: Any, sw: Any, zw: Any, sy: Any, zy: Any) -> Any:
            sums = product(x, w, int(zx), cut)
            rounded = np.rint(sums.astype(np.float32) * (sx * sw / sy)) + int(zy)
            return np.clip(rounded, 0, 255).astype(np.uint8)

        return function

    arrays = {"x": X, "sx": SCALES["sx"], "zx": ZEROS["zx"], "w": W, "sw": SCALES["sw"]}
    arrays |= {"zw": ZEROS["zw"], "sy": SCALES["sy"], "zy": ZEROS["zy"]}
    given = {name: np.asarray(array) for name, array in arrays.items()}
    sides = [
        lambda some, f=f: Doubles(dict(some), [Step("q", Unknown(), f, [*given])])
        for f in (quantised(False), quantised(True))
    ]
    difference = walk(sides[0](given), sides[1](given), match=by_running((*sides,), (given, given)))
    assert [region.cause for region in difference.sources] == ["saturation"]


@pytest.mark.parametrize("last", [False, True])
def test_windows_of_a_convolution_are_taken_as_its_attributes_say(last: bool) -> None:
    x = RNG.integers(100, 256, (2, 4, 6, 5)).astype(np.uint8)
    w = RNG.integers(-127, 128, (6, 2, 3, 2)).astype(np.int8)
    strides, pads, steps, zero = (2, 1), (1, 0, 1, 0), (1, 2), 7
    padded = np.full((2, 4, 8, 5), zero, np.int64)
    padded[:, :, 1:7] = x
    height, width = (8 - 3) // 2 + 1, 5 - 3 + 1
    sums = np.zeros((2, 2, 6, height, width), np.int32)  # whole, and cut off
    for cut, n, f, i, j in itertools.product((0, 1), range(2), range(6), range(3), range(3)):
        window = padded[n, f // 3 * 2 : f // 3 * 2 + 2, 2 * i : 2 * i + 3, j : j + 3 : 2]
        factors = (np.moveaxis(a, 0, -1).reshape(-1) for a in (window, w[f]))
        sums[cut, n, f, i, j] = total(*factors, cut=bool(cut)) - zero * int(w[f].astype(int).sum())
    if last:
        x, sums = np.moveaxis(x, 1, -1), np.moveaxis(sums, 2, -1)
    words = {"strides": strides, "pads": pads, "dilations": steps, "group": 2}
    operation: Any = SimpleNamespace(attributes={**words, "channels_last": int(last)})
    reads = [x, w, np.array(zero, np.uint8)]
    side: Alone = SimpleNamespace(reads=reads, gives=[sums[0]], output=0, operation=operation)  # type: ignore[assignment]
    integers = ByteProducts.of(side, np.arange(sums[0].size))
    assert integers is not None
    assert np.array_equal(integers.exact(), sums[0].reshape(-1))
    assert np.array_equal(integers.saturating(), sums[1].reshape(-1))
    assert (sums[0] != sums[1]).any()


LANES = 8


def vectorised(x: np.ndarray) -> np.ndarray:
    """tanh in lanes of 8; of what is left over one input in 32 is rounded the other way."""
    y, rest = np.tanh(x), x.size - x.size % LANES
    tail, given = y.reshape(-1)[rest:], np.ascontiguousarray(x).reshape(-1)[rest:]
    odd = given.view(np.uint32) % 32 == 5
    tail[odd] = np.nextafter(tail[odd], np.float32(0))
    return y


def test_what_the_place_decides_is_reproduced_and_nothing_else() -> None:
    def neighbours(reads: list[np.ndarray]) -> np.ndarray:
        (x,) = reads
        y = vectorised(x)
        y[..., 4, :] += x[..., 3, :]
        return y

    x = np.random.default_rng(3).normal(size=(1, 9, 3)).astype(np.float32)
    alone: Any = SimpleNamespace(
        reads=[x],
        dtypes=["float32"] * 2,
        gives=[neighbours([x])],
        output=0,
        index=np.arange(27),
        rerun_output=neighbours,
    )
    function = PlacedFunction(alone)
    fourth = np.arange(27) // 3 == 4
    repeats = np.array([function.repeats(number) for number in range(27)])
    assert not repeats[fourth].any() and repeats[~fourth].all()
