"""Sums of products and windows: what their words come to, against NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from probe.order.semantics import Contracts, Convolution, Frame, Reduces, Windows
from probe.order.semantics import operations as o
from probe.order.semantics.contract import divisors


@pytest.mark.parametrize(
    ("equation", "left", "right"),
    [
        ("...mk,...kn->...mn", (2, 3), (3, 4)),
        ("...mk,...kn->...mn", (5, 2, 3), (3, 4)),
        ("...mk,...kn->...mn", (2, 3), (6, 5, 3, 4)),
        ("...mk,...kn->...mn", (6, 1, 2, 3), (5, 3, 4)),
        ("...k,nk->...n", (7, 2, 3), (4, 3)),
        ("k,...kn->...n", (3,), (5, 3, 4)),
        ("bij,bkj->bik", (2, 3, 4), (2, 5, 4)),
    ],
)
def test_letters_that_dots_stand_for_are_those_of_einsum(equation, left, right) -> None:
    texts, out = Contracts(equation).spelled(left, right)
    rng = np.random.default_rng(1)
    one, two = rng.normal(size=left), rng.normal(size=right)
    spelled = np.einsum(f"{texts[0]},{texts[1]}->{out}", one, two)
    assert np.allclose(spelled, np.einsum(equation, one, two)) and "." not in "".join(texts) + out
    assert tuple(map(len, texts)) == (len(left), len(right))


def test_divisors_are_the_places_of_the_padded_input_that_a_window_covers() -> None:
    rng = np.random.default_rng(2)
    for _ in range(50):
        kernel, stride = (rng.integers(1, 4, 2).tolist() for _ in range(2))
        sizes, padding = rng.integers(3, 8, 2).tolist(), rng.integers(0, 2, (2, 2)).tolist()
        ends = zip(sizes, padding, kernel, stride, strict=True)
        reach = [(n + sum(pad), k, step) for n, pad, k, step in ends]
        # the last window may reach beyond, if it begins inside
        outs = [min(-(-(n - k) // step), (n - 1) // step) + 1 for n, k, step in reach]
        frame = Frame(*map(tuple, (kernel, stride, (1, 1), map(tuple, padding))))
        ones = np.ones([n + sum(pad) for n, pad in zip(sizes, padding, strict=True)])
        wanted = [
            [ones[a * stride[0] :, b * stride[1] :][: kernel[0], : kernel[1]].sum()
             for b in range(outs[1])] for a in range(outs[0])
        ]  # fmt: skip
        assert np.array_equal(divisors(frame, sizes, outs), wanted)


def test_what_is_a_sum_says_so() -> None:
    frame = Frame((2,), (1,), (1,), ((0, 1),))
    pools = [o.pool(kind, frame) for kind in ("max", "average", "sum")]
    conv = o.convolution(frame)
    assert [pool.sums for pool in pools] == [False, True, True] and all(p.pool for p in pools)
    assert conv.sums and not conv.pool and Contracts("k,k->").sums
    assert Convolution(conv, (0, 1, 2), (1,)).sums
    assert [Reduces((0,), word).sums for word in ("sum", "mean", "norm")] == [True, True, False]


def test_a_frame_says_where_windows_lie() -> None:
    frame = Frame((2, 3), (1, 2), (2, 1), ((0, 1), (1, 0)), True)
    last = o.convolution(frame, channels_last=True)
    assert last.frame == frame and (last.spatial, last.channels) == ((1, 2), 3)
    first = replace(last, spatial=(2, 3), channels=1, kind="convolution", word="convolution")
    assert first == o.convolution(frame._replace(transposed=False))
    alone = o.pool("max", frame._replace(transposed=False), lead=1)
    assert isinstance(alone, Windows) and (alone.spatial, alone.channels) == ((1, 2), 0)
