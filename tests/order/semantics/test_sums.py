"""Sums of products and windows: what their words come to, against NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from probe.order.semantics import Contracts, Frame, Windows
from probe.order.semantics import operations as o


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


def test_what_is_a_sum_says_so() -> None:
    frame = Frame((2,), (1,), (1,), ((0, 1),))
    pools = [o.pool(kind, frame) for kind in ("max", "average", "sum")]
    assert [pool.sums for pool in pools] == [False, True, True] and all(p.pool for p in pools)
    assert o.convolution(frame).sums and not o.convolution(frame).pool
    assert [o.reduced(word, (0,)).sums for word in ("sum", "norm")] == [True, False]


def test_a_frame_says_where_windows_lie() -> None:
    frame = Frame((2, 3), (1, 2), (2, 1), ((0, 1), (1, 0)), True)
    last = o.convolution(frame, channels_last=True)
    assert (last.kernel, last.stride, last.dilation, last.padding) == frame[:4]
    assert (last.kind, last.spatial, last.channels) == ("transposed", (1, 2), 3)
    first = replace(last, spatial=(2, 3), channels=1, kind="convolution")
    assert first == o.convolution(frame._replace(transposed=False))
    alone = o.pool("max", frame._replace(transposed=False), lead=1)
    assert isinstance(alone, Windows) and (alone.spatial, alone.channels) == ((1, 2), 0)
