"""Operations that read whole axes, and updates that are added at places."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from probe.semantics import operations
from probe.semantics.labels import Labels, of_content, of_digest, tag
from probe.semantics.sums import Blends, Contracts, Maximum, Reduces, Scans, Whole
from tests.semantics.formulas import POOL, drawn, known, one_to_one, result, some_sizes

RNG = np.random.default_rng(11)
WHAT = tag("test")
WORDS = ("sum", "mean", "amax", "min", "prod", "var", "std", "l1", "l2", "argmax")


def _reduced(word: str, line: tuple[Any, ...], lengths: tuple[int, ...]) -> Any:
    """The formula of a reduction: of sums without zeros, and a mean is one over its count."""
    some = tuple(sorted(one for one in line if one is not None))
    if word in ("sum", "l1", "l2", "mean"):
        count = len(line) if word == "mean" else 1
        return ("sum" if word == "mean" else word, some, count) if some else None
    every = (*some, line.count(None))
    if word == "argmax":
        return word, line, lengths
    return (word, every) if word in ("amax", "var", "std") else (word, every, lengths)


@pytest.mark.parametrize("digest", ["", "weights"])
def test_a_reduction_reads_what_stands_along_its_axes(digest: str) -> None:
    def found() -> Iterator[tuple[Labels, np.ndarray]]:
        rng = np.random.default_rng(1)
        for _ in range(150):
            shape = some_sizes(rng, 1)
            axes = [axis for axis in range(len(shape)) if rng.integers(2)]
            rest = [axis for axis in range(len(shape)) if axis not in axes]
            named = [axis - len(shape) * int(rng.integers(2)) for axis in axes]
            word, keep = str(rng.choice(WORDS)), bool(rng.integers(2))
            one, formulas = known(drawn(rng, *shape), digest)
            meaning = operations.reduced(word, named, keep, places=word == "argmax")
            if word in ("var", "std"):
                meaning = operations.variance(word, named, keep, 0.5)
            wanted = np.empty([shape[axis] for axis in rest], object)
            lengths = tuple(shape[axis] for axis in axes)
            for at in np.ndindex(*wanted.shape):
                line = formulas.transpose(*rest, *axes)[at]
                wanted[at] = _reduced(word, tuple(line.reshape(-1)) if axes else (line,), lengths)
            to = np.sum(np.ones(shape), axis=tuple(axes), keepdims=keep).shape
            yield result(meaning, one, to=to), wanted.reshape(to)

    one_to_one(found())


def test_further_results_have_labels_of_their_own() -> None:
    """A variance with its mean, the largest with where it is."""
    x, shapes = of_content(RNG.normal(size=(3, 4))), [(3,), (3,)]
    for meaning in (operations.variance("var", (1,), False, 1), Reduces((-1,), "max")):
        assert len(np.unique([one.array for one in meaning.labels([x], shapes, WHAT)])) == 6
    mean = result(Reduces((1,), "mean"), x, to=(3,))
    deviation, beside = operations.variance("std", (1,), True, 1).labels([x], [(3, 1)] * 2, WHAT)
    assert np.array_equal(beside.array[:, 0], mean.array)
    variance = result(operations.variance("var", (1,), True, 1), x, to=(3, 1))
    assert np.array_equal(result(operations.function("sqrt"), variance).array, deviation.array)
    total = Reduces((0,), "sum", zero=True)
    assert [result(total, POOL[n]).array != 0 for n in (0, 1)] == [False, True]


def test_what_is_far_below_a_maximum_could_not_be_it() -> None:
    x = np.array([[1.0, -2000, 1.5], [-5000, 3, 2001], [1, 2, 3]])
    meaning = Maximum((1,), "max")
    far = meaning.noticed([lambda: x], [])
    assert far is not None and (~far).sum(1).tolist() == [2, 1, 3] and far[0, 1]
    for none in (x[2:], x[:, :0], x.astype(int)):
        assert meaning.noticed([lambda none=none: none], []) is None
    (found,) = meaning.labels([of_content(x)], [(3,)], tag("max"), far)
    for label, left in zip(found.array, (x[0, [0, 2]], x[1, 2:], x[2]), strict=True):
        assert label == result(Maximum((0,), "max"), left, to=()).array


def test_of_reductions_sums_and_means_are_sums_and_choices_round_nothing() -> None:
    words = ("sum", "mean", "max", "norm", "argmin")
    assert [Reduces((0,), word).sums for word in words] == [True, True, False, False, False]
    assert [Reduces((0,), word).rounds for word in words] == [None, None, 0, None, 0]
    assert Contracts("ik,kj->ij").sums and Whole(word="sort").rounds == 0


EQUATIONS = ("ik,kj->ij", "ki,jk->ji", "bik,bkj->bij", "i,j->ij", "ik,ik->i", "ij,ij->", "k,k->")
DOTTED = ("...ik,...kj->...ij", "...k,nk->...n", "k,...kn->...n", "...mk,k->...m")


@pytest.mark.parametrize("digest", ["", "weights"])
def test_a_product_of_matrices_adds_products_and_a_bias(digest: str) -> None:
    """As NumPy's einsum has it; of weights that are known by a digest with numbers of their own."""

    def found() -> Iterator[tuple[Labels, np.ndarray]]:
        rng = np.random.default_rng(2)
        for _ in range(120):
            equation = str(rng.choice(DOTTED if rng.integers(2) else EQUATIONS))
            size = {x: int(rng.integers(1 if x in "YZ" else 2, 4)) for x in "YZbijkmn"}
            shapes = []
            for text in equation.split("->")[0].split(","):
                text = text.replace("...", "YZ"[int(rng.integers(3)) :])
                shapes.append([1 if x in "YZ" and rng.integers(3) == 0 else size[x] for x in text])
            one, two = (drawn(rng, *shape) for shape in shapes)
            if digest:
                two = np.random.default_rng(two.shape).normal(size=two.shape)
            wanted = np.einsum(equation, one.astype(float), two)
            numbers = (2.5,) * int(rng.integers(2))
            wanted = wanted * 1.618 if numbers else wanted
            second = of_digest(two.shape, str(two.shape)) if digest else of_content(two)
            reads, bias = [second, of_content(one)], None
            if rng.integers(2) and wanted.ndim:
                extra = drawn(rng, wanted.shape[-1])
                reads, bias, wanted = [*reads, of_content(extra)], 2, wanted + extra * 0.577
            meaning = Contracts(equation, (1, 0), bias, numbers=numbers)
            yield result(meaning, *reads, to=wanted.shape), wanted

    # weights that are left out along one axis and not along another are not compared
    one_to_one(found(), not digest)


def test_a_resize_weighs_the_elements_that_it_reads() -> None:
    def found() -> Iterator[tuple[Labels, np.ndarray]]:
        rng = np.random.default_rng(3)
        for _ in range(40):
            wanted = given = drawn(rng, *rng.integers(2, 4, 3)).astype(float)
            taps = []
            for axis in rng.permutation(3)[: rng.integers(1, 3)].tolist():
                index = rng.integers(0, given.shape[axis], (int(rng.integers(1, 4)), 2))
                weights = rng.choice([0.0, 0.2513, 0.7719], index.shape)
                taps.append((axis, index, weights))
                moved = np.moveaxis(wanted, axis, -1)
                wanted = np.moveaxis((moved[..., index] * weights).sum(-1), -1, axis)
            # each axis in turn gives a sum, also of one product
            meaning = Blends(tuple(taps))
            yield result(meaning, given, to=wanted.shape), wanted

    one_to_one(found(), back=False)


def test_what_is_read_whole_is_read_in_its_order() -> None:
    """But of axes that are kept, of which each index reads its own; also turned."""

    def found() -> Iterator[tuple[Labels, np.ndarray]]:
        rng = np.random.default_rng(5)
        for _ in range(120):
            x, beside = drawn(rng, *some_sizes(rng, 1)), drawn(rng, 2)
            ins = rng.permutation(x.ndim)[: rng.integers(0, x.ndim + 1)].tolist()
            inner = [axis for axis in range(x.ndim) if axis not in ins]
            rank = len(ins) + int(rng.integers(2))
            outs = rng.permutation(rank)[: len(ins)].tolist()
            to = rng.integers(0, 3, rank).tolist()
            for a, b in zip(ins, outs, strict=True):
                to[b] = x.shape[a]
            rows, numbers = len(ins) > 0 and bool(rng.integers(2)), (1,) * int(rng.integers(2))
            own = drawn(rng, x.shape[ins[0]], 2) if rows else drawn(rng, 1)
            meaning = Whole(tuple(zip(ins, outs, strict=True)), "w", numbers, (2,) * rows)
            reads = [*map(of_content, (x, beside, own))]
            for number, labels in enumerate(meaning.labels(reads, [tuple(to)] * 2, WHAT)):
                wanted = np.empty(to, object)
                for at in np.ndindex(*to):
                    line = x.transpose(*ins, *inner)[tuple(at[b] for b in outs)]
                    named = [(a - rank, at[a]) for a in range(rank) if a not in outs and to[a] > 1]
                    row = own[at[outs[0]]] if rows else own
                    every = (np.shape(line), line.tolist(), beside.tolist(), row.tolist(), named)
                    wanted[at] = repr((number, numbers, rows, *every))
                yield labels, wanted

    one_to_one(found())


def test_a_step_reads_those_up_to_its_own_in_their_order() -> None:
    """Of a cell all features, each in its place; with weights and numbers besides."""

    def found() -> Iterator[tuple[Labels, np.ndarray]]:
        rng = np.random.default_rng(6)
        for _ in range(100):
            x, beside = drawn(rng, *some_sizes(rng, 1, 3), 2), drawn(rng, 1)
            axis, numbers = int(rng.integers(x.ndim - 1)), (1,) * int(rng.integers(2))
            mixes, reverse = (-1,) * int(rng.integers(2)), bool(rng.integers(2))
            scan = Scans(axis - x.ndim * int(rng.integers(2)), "s", reverse, mixes, numbers)
            wanted = np.empty(x.shape, object)
            for at in np.ndindex(*x.shape):
                rest = (*at[:axis], *at[axis + 1 :])
                line = np.moveaxis(x, axis, 0)[:, *rest[: -1 if mixes else None]]
                line = line[at[axis] :][::-1] if reverse else line[: at[axis] + 1]
                feature = (x.ndim, at[-1]) if mixes else ()
                wanted[at] = repr((numbers, mixes, line.tolist(), beside, feature))
            yield result(scan, x, beside), wanted

    one_to_one(found())


def test_a_cell_without_a_batch_gives_its_last_step_of_all_that_it_read() -> None:
    x, scan = RNG.normal(size=(3, 2, 2)), Scans(0, "s", mixes=(2,))

    def last(x: np.ndarray) -> np.ndarray:
        found = scan.labels([of_content(x)], [(3, 2, 4), (2, 4), (3,)], WHAT)[1:]
        return np.concatenate([one.full().reshape(-1) for one in found])

    assert len(np.unique(last(x))) == 11
    reads = [of_content(x)]
    values, places = (one.full() for one in Scans(0, "c").labels(reads, [x.shape] * 2, WHAT))
    assert len(np.unique([values, places])) == 24  # as a cumulative maximum gives both
    shorter = Scans(0, "c").labels([of_content(x[:2])], [(2, 2, 2)] * 2, WHAT)[1].full()
    assert np.array_equal(shorter, places[:2])
    for at in np.ndindex(*x.shape):
        more = x.copy()
        more[at] += 1
        assert not np.isin(last(more), last(x)).any()


def test_a_cell_reads_its_own_row_of_the_first_states_and_all_steps_up_to_its_own() -> None:
    scan = Scans(0, "cell", mixes=(2,), states=(1,), batch=1)
    x, state = RNG.normal(size=(4, 3, 2)), RNG.normal(size=(1, 3, 5))
    shapes = [(4, 3, 5), (1, 3, 5)]

    def labels(x: np.ndarray, state: np.ndarray) -> list[np.ndarray]:
        return [found.full() for found in scan.labels([*map(of_content, (x, state))], shapes, WHAT)]

    steps, last = labels(x, state)
    assert len(np.unique(steps)) == steps.size and len(np.unique(last)) == 15
    more = state.copy()
    more[0, 1, 4] += 1
    for before, after in zip((steps, last), labels(x, more), strict=True):
        differ = (before != after).all(axis=(0, 2))
        assert differ.tolist() == (before != after).any(axis=(0, 2)).tolist() == [0, 1, 0]
    later = x.copy()
    later[2, 0, 1] += 1
    differ = steps != labels(later, state)[0]
    assert differ.any(axis=2).T.tolist() == [[0, 0, 1, 1], [0] * 4, [0] * 4]
