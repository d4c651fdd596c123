"""Convolutions in their full generality: what lies between the elements of an input is zero."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from probe.semantics.labels import Labels, of_content, of_digest, tag
from probe.semantics.operations import Frame, convolution, function, pool
from probe.semantics.windows import Convolution, Windows
from tests.semantics.formulas import drawn, known, one_to_one, result

RNG = np.random.default_rng(7)
WHAT = tag("test")


def _labels(x: np.ndarray, w: np.ndarray, shape: tuple[int, ...], **more: object) -> np.ndarray:
    """Labels of a convolution over two axes, channels second, padded by 1."""
    padding = ((1, 1), (1, 1))
    windows = convolution(Frame((2, 2), (1, 1), (1, 1), padding), weights=(2, 3, 1, 0))
    meaning = Convolution(windows, **({"turned": (0, 1, 2, 3), "holes": (1, 1)} | more))
    return result(meaning, x, w, to=shape).full()


@pytest.mark.parametrize("holes", [(1, 1), (2, 2), (1, 3), (3, 1)])
def test_an_input_with_holes_is_one_with_zeros_between(holes: tuple[int, int]) -> None:
    x, w = RNG.normal(size=(2, 3, 4, 3)), RNG.normal(size=(5, 3, 2, 2))
    sizes = [(n - 1) * step + 1 for n, step in zip(x.shape[2:], holes, strict=True)]
    wide = np.zeros((2, 3, *sizes))
    wide[:, :, :: holes[0], :: holes[1]] = x
    shape = (2, 5, *(n + 1 for n in sizes))
    found = _labels(x, w, shape, holes=holes)
    assert found.shape == shape and np.array_equal(found, _labels(wide, w, shape))
    if holes != (1, 1):
        moved = wide.copy()
        moved[:, :, 0, 0], moved[:, :, -1, -1] = wide[:, :, -1, -1], wide[:, :, 0, 0]
        assert not np.array_equal(found, _labels(moved, w, shape))


def test_an_input_in_another_order_of_axes_is_turned_first() -> None:
    x, w = RNG.normal(size=(2, 3, 4, 3)), RNG.normal(size=(5, 3, 2, 2))
    last, shape = np.moveaxis(x, 1, -1), (2, 5, 5, 4)
    found = _labels(np.ascontiguousarray(last), w, shape, turned=(0, 3, 1, 2))
    assert np.array_equal(found, _labels(x, w, shape))


def _frame(rng: np.random.Generator, rank: int, transposed: bool = False) -> Frame:
    kernel, stride, dilation = (tuple(rng.integers(1, 4, rank).tolist()) for _ in range(3))
    pads = tuple((int(a), int(b)) for a, b in rng.integers(0, 3, (rank, 2)))
    return Frame(kernel, stride, dilation, pads, transposed)


Place = tuple[int, ...]


def _read(frame: Frame, at: Place, sizes: Place) -> Iterator[tuple[Place, Place]]:
    """Each tap of an output's window that lies in the input, and what it reads there."""
    for taps in product(*map(range, frame.kernel)):
        steps = np.array(taps) * frame.dilation - np.array(frame.padding)[:, 0]
        place = np.array(at) * frame.stride + steps
        if frame.transposed:
            place, rest = divmod(np.array(at) - steps, frame.stride)
            place = place if not rest.any() else place * 0 - 1
        if ((place >= 0) & (place < sizes)).all():
            yield taps, tuple(place.tolist())


@pytest.mark.parametrize("digest", ["", "weights"])
def test_a_pool_reads_the_taps_of_its_own_channel(digest: str) -> None:
    def found() -> Iterator[tuple[Labels, np.ndarray]]:
        rng = np.random.default_rng(21)
        for _ in range(40):
            kind, rank = str(rng.choice(["max", "average", "sum"])), int(rng.integers(1, 3))
            frame, last, counts = _frame(rng, rank), bool(rng.integers(2)), bool(rng.integers(2))
            sizes, outs = rng.integers(1, 5, (2, rank)).tolist()
            if kind == "average":  # its windows begin within what is padded
                frame = frame._replace(dilation=(1,) * rank)
                inside = zip(sizes, outs, frame.padding, frame.stride, strict=True)
                outs = [min(o, -(-(n + sum(pads)) // step)) for n, o, pads, step in inside]
            meaning = pool(kind, frame, last, counts)
            assert meaning.channels == (rank + 1 if last else 1)
            assert meaning.pool
            assert (meaning.sums, meaning.rounds == 0) == (kind != "max", kind == "max")
            one, formulas = known(drawn(rng, *((2, *sizes, 2) if last else (2, 2, *sizes))), digest)
            planes = formulas if last else np.moveaxis(formulas, 1, -1)
            wanted = np.empty((2, *outs, 2), object)
            for b, *at, c in np.ndindex(*wanted.shape):
                taps = [(tap, planes[b, *place, c]) for tap, place in _read(frame, at, sizes)]
                some = [both for both in taps if both[1] is not None or kind == "max"]
                share = len(taps) if kind == "average" else 0
                if kind == "average" and counts:
                    edges = np.array(sizes) + np.sum(frame.padding, 1)
                    starts = np.array(at) * frame.stride
                    share = int(np.prod(np.minimum(starts + frame.kernel, edges) - starts))
                if some or share or kind == "average":
                    wanted[b, *at, c] = repr((kind, frame.kernel, some, share))
            wanted = wanted if last else np.moveaxis(wanted, -1, 1)
            yield result(meaning, one, to=wanted.shape), wanted

    # in padding alone there is no channel, and one that is left out has an index all the same
    one_to_one(found(), not digest)


@pytest.mark.parametrize("transposed", [False, True])
def test_a_convolution_reads_its_groups_channels_under_its_filters_taps(transposed: bool) -> None:
    """Wherever channels are, and in whatever order the axes of the weights."""

    def found() -> Iterator[tuple[Labels, np.ndarray]]:
        rng = np.random.default_rng(22)
        for _ in range(40):
            rank, groups, last = *rng.integers(1, [3, 4]).tolist(), bool(rng.integers(2))
            depth, each = rng.integers(1, 3, 2).tolist()
            frame = _frame(rng, rank, transposed)
            sizes, outs = rng.integers(1, 5, (2, rank)).tolist()
            own = np.random.default_rng((*frame.kernel, depth, each, groups))
            weights = own.normal(size=(*frame.kernel, depth, each * groups))
            turn = rng.permutation(rank + 2)
            x = drawn(rng, 2, *sizes, depth * groups)
            bias = drawn(rng, each * groups) * bool(rng.integers(2))
            given = x if last else np.ascontiguousarray(np.moveaxis(x, -1, 1))
            reads = [given, weights.transpose(turn), bias][: 3 if bias.any() else 2]
            meaning = convolution(frame, np.argsort(turn).tolist(), groups, last, range(len(reads)))
            assert (meaning.frame, meaning.sums, meaning.rounds) == (frame, True, None)
            # what is no number but which weights are read counts, too
            wanted = np.zeros((2, *outs, each * groups)) + weights[(0,) * (rank + 1)] * 1e3
            for b, *at, f in np.ndindex(*wanted.shape):
                group = slice(f // each * depth, (f // each + 1) * depth)
                for tap, place in _read(frame, at, sizes):
                    wanted[b, *at, f] += weights[*tap, :, f] @ x[b, *place, group]
            wanted = wanted + bias * 0.577
            wanted = wanted if last else np.moveaxis(wanted, -1, 1)
            yield result(meaning, *reads, to=wanted.shape), wanted

    one_to_one(found())


def test_channels_that_are_left_out_are_read_together() -> None:
    """As behind another convolution; and all is known of it alone where it is of all it reads."""
    x, w = of_digest((2, 3, 4), "w"), of_content(RNG.normal(size=(2, 3, 5)))
    meaning = convolution(Frame((2,), (1,), (1,), ((0, 0),)))
    found = result(meaning, x, w, to=(2, 5, 3))
    assert found.implicit(1) and len(np.unique(found.full())) == 30 and found.known
    for other in (of_digest((2, 3, 4), "v"), of_digest((2, 6, 4), "w")):
        apart = result(meaning, other, w, to=(2, 5, 3))
        assert not np.isin(apart.full(), found.full()).any()
    assert not result(meaning, x, w._replace(known=False), to=(2, 5, 3)).known


def test_a_bias_is_an_addition_behind() -> None:
    x, w, b = RNG.normal(size=(2, 3, 4)), RNG.normal(size=(2, 3, 5)), RNG.normal(size=5)
    frame, add = Frame((2,), (1,), (1,), ((0, 0),)), function("add")
    fused = result(convolution(frame, reads=(0, 1, 2)), x, w, b, to=(2, 5, 3))
    for plain in (convolution(frame), Windows((2,), 1, *frame[:4])):
        behind = result(add, result(plain, x, w, to=(2, 5, 3)), b[:, None])
        assert np.array_equal(fused.full(), behind.full())


def test_places_of_the_largest_are_counted_in_the_plane() -> None:
    """So that they depend on all of it, and on each number of the window."""
    x, frame = RNG.normal(size=(1, 2, 4, 4)), Frame((2, 2), (1, 1), (1, 1), ((0, 0), (0, 0)))

    def places(x: np.ndarray, meaning: Windows) -> np.ndarray:
        return meaning.labels([of_content(x)], [(1, 2, 3, 3)] * 2, WHAT)[1].full()

    before, more = places(x, pool("max", frame)), x.copy()
    assert len(np.unique(before)) == 18
    more[0, 1, 3, 3] += 1
    differ = places(more, pool("max", frame)) != before
    assert differ.all(axis=(0, 2, 3)).tolist() == differ.any(axis=(0, 2, 3)).tolist() == [0, 1]
    for other in ({"stride": (2, 2)}, {"dilation": (2, 2)}, {"padding": ((1, 0),) * 2}, {}):
        meaning = pool("max", frame._replace(**other), ceil=not other)
        assert not np.isin(places(x, meaning), before).any()


def test_groups_of_the_batch_have_filters_of_their_own() -> None:
    """Group n of the batch meets the n-th part of the filters."""

    def found() -> Iterator[tuple[Labels, np.ndarray]]:
        rng = np.random.default_rng(23)
        weights = RNG.normal(size=(2, 3, 4))
        windows = convolution(Frame((2,), (1,), (1,), ((0, 1),)))
        for batches, size in ((1, 2), (2, 4), (2, 2), (4, 4)):
            x = drawn(rng, size, 3, 3)
            wanted = np.empty((size // batches, 4, 3), object)
            for b, f, o in np.ndindex(*wanted.shape):
                group, own = divmod(f, 4 // batches)
                taps = x[group * (size // batches) + b, :, o : o + 2]
                taps = np.pad(taps, ((0, 0), (0, 2 - taps.shape[1])))
                wanted[b, f, o] = repr((batches, group, own, taps.tolist()))
            meaning = Convolution(windows, (0, 1, 2), (1,), batches)
            assert meaning.sums
            yield result(meaning, x, weights, to=wanted.shape), wanted

    one_to_one(found(), back=False)
