"""How labels come together: axes split and joined, sums and products of labels, names that meet."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from probe.semantics.labels import (
    Labels,
    agreeing,
    joint,
    of_content,
    of_digest,
    of_lines,
    tag,
)
from probe.semantics.mixing import (
    associated,
    axis_groups,
    broadcast_labels,
    contract,
    met_names,
    reshape_labels,
)
from probe.semantics.operations import arithmetic, function
from tests.semantics.formulas import result

RNG = np.random.default_rng(4)


def test_a_transpose_has_labels_of_its_own() -> None:
    one = of_digest((3, 3), "w")
    turned = one._replace(names=(1, 0))
    assert np.array_equal(one.full().T, turned.full())
    assert agreeing(one, turned).left is not None
    assert agreeing(one, one).whole


def test_an_outer_sum_of_a_value_with_itself_knows_its_sides() -> None:
    one = of_digest((4,), "w")
    column = reshape_labels(one, (4, 1))
    _, arrays, names = broadcast_labels([column, one])
    assert names[0] != names[1]
    found = Labels((4, 4), arrays[0] * np.uint64(3) + arrays[1], True, names).full()
    assert found[1, 2] != found[2, 1]


@pytest.mark.parametrize(
    ("one", "two"),
    [((6, 4), (2, 3, 4)), ((2, 3, 4), (6, 4)), ((24,), (2, 3, 4)), ((2, 12), (2, 3, 4))],
)
def test_splitting_and_merging_keeps_the_elements(one: tuple, two: tuple) -> None:
    labels = of_digest(one, "w")
    there = reshape_labels(labels, two)
    back = reshape_labels(there, one)
    assert np.array_equal(back.full(), labels.full())
    full = labels._replace(array=labels.full())
    assert np.array_equal(reshape_labels(full, two).array.reshape(one), full.array)


def test_a_product_knows_a_matrix_from_its_transpose() -> None:
    rows = of_content(RNG.normal(size=(2, 3)))
    one = of_digest((3, 3), "w")
    turned = one._replace(names=(1, 0))
    found = [contract(rows, w, ("ik", "kj"), "ij", np.uint64(7)).full() for w in (one, turned)]
    assert not np.isin(found[0], found[1]).any()
    other = contract(rows, turned, ("ik", "jk"), "ij", np.uint64(7)).full()
    assert np.array_equal(other, found[0])


def test_axes_that_a_product_splits_again_keep_their_sides() -> None:
    """Of (9, 7) by (7, 5 * 6): the axes of 9 and of 5 are both the second of a weight."""
    one, two = of_digest((7, 9), "w"), reshape_labels(of_digest((6, 5, 7), "v"), (30, 7))
    both = contract(one, two, ("ki", "jk"), "ij", np.uint64(7))
    found = reshape_labels(both, (9, 6, 5)).full()
    assert len(np.unique(found)) == found.size
    heads = [reshape_labels(of_digest((4, 6), name), (4, 2, 3)) for name in "wv"]
    kept = contract(*heads, ("khd", "khd"), "hd", np.uint64(7))
    assert reshape_labels(kept, (6,)).names == (1,)  # parts of one axis are not mistaken


def test_axes_are_split_into_the_smallest_groups_of_equal_products() -> None:
    rng = np.random.default_rng(6)
    for _ in range(200):
        ours = tuple(rng.choice([1, 2, 3, 4, 6], rng.integers(0, 4)).tolist())
        cuts = [prod(ours[:n]) for n in range(len(ours) + 1)]
        sizes = [int(n) for n in rng.permutation(ours)]
        theirs = tuple(sizes) if rng.integers(2) else (prod(ours),)
        found = axis_groups(ours, theirs)
        assert [n for mine, _ in found for n in mine] == list(range(len(ours)))
        assert [n for _, other in found for n in other] == list(range(len(theirs)))
        for mine, other in found:
            assert prod(ours[n] for n in mine) == prod(theirs[n] for n in other)
        both = {*cuts} & {prod(theirs[:n]) for n in range(len(theirs) + 1)}
        assert sum(prod(ours[n] for n in mine) > 1 for mine, _ in found) == len(both) - 1


@pytest.mark.parametrize(
    ("shape", "batch", "to"),
    [((0, 4, 6), 0, (-1, 6)), ((0, 4, 6), 0, (-1, 2, 6)), ((2, 0, 6), 1, (2, -1, 3))]
    + [((2, 4, 0, 6), 2, (2, 4, -1, 3)), ((0, 2, 2, 6), 0, (-1, 12))],
)
def test_a_batch_of_one_has_the_labels_of_a_row_of_a_batch(shape, batch, to) -> None:
    """Also behind a product that reads what was merged with the batch, or split beside it."""
    found = []
    for size in (1, 3):
        given = [size if axis == batch else n for axis, n in enumerate(shape)]
        rows = np.arange(1.0, size + 1).reshape([-1 if n == 0 else 1 for n in shape])
        x = of_lines(rows, (batch,))._replace(shape=tuple(given))
        merged = reshape_labels(x, np.empty(given).reshape(to).shape)
        depth, letters = merged.shape[-1], "abcde"[: len(merged.shape) - 1]
        weights = of_digest((depth, 2), "w")
        made = contract(merged, weights, (f"{letters}x", "xy"), f"{letters}y", np.uint64(7))
        found.append((merged.full(), made.full()))
    for alone, among in zip(*found, strict=True):
        assert np.isin(alone, among).all()


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("word", ["add", "multiply"])
def test_sums_and_products_of_three_have_one_label_in_any_order(word, named):
    """Also where labels are left out."""
    a, b, c = (of_digest((4,), x) if named else of_content(RNG.normal(size=4)) for x in "abc")

    def of(one: Labels, two: Labels) -> Labels:
        return result(function(word), one, two)

    ways = of(of(a, b), c), of(a, of(b, c)), of(of(c, a), b)
    assert all(np.array_equal(ways[0].array, one.array) for one in ways)
    assert not np.isin(of(of(a, b), b).array, ways[0].array).any()
    rest = "multiply" if word == "add" else "add"
    both = result(function(rest), of(a, b), c)
    assert not np.isin(both.array, ways[0].array).any()


def test_labels_of_a_sum_do_not_undo_those_of_what_is_added():
    """``joined`` ends with ``mixed``: were that the function of sums, a + b would have no order."""
    a, b = (of_content(RNG.normal(size=1)).array for _ in range(2))
    first, second = tag("first"), tag("second")
    one = [joint(a, first), joint(b, second)]
    two = [joint(b, first), joint(a, second)]
    found = [associated(*(Labels((1,), x) for x in some), True).array for some in (one, two)]
    assert found[0] != found[1]


def test_a_quotient_of_integers_is_no_product_with_a_reciprocal():
    """3 * (7 / 2) is 9, and 3 * 7 / 2 is 10."""
    a, b, c = (of_content(RNG.normal(size=4)) for _ in range(3))
    for dtype, same in (("float32", True), ("int32", False)):

        def of(word: str, *reads: Labels, dtype: str = dtype) -> Labels:
            return arithmetic(word, dtype).labels(reads, [(4,)], tag(word))[0]

        one, two = of("multiply", a, of("divide", b, c)), of("divide", of("multiply", a, b), c)
        assert np.array_equal(one.array, two.array) == same


PART, OTHER = ("part", "w", (2, 3), 0), ("part", "w", (2, 3), 1)

SPLIT, MERGED = ("part", "w", (3, 2), 0), ("merged", (2, 3), "x", PART)


@pytest.mark.parametrize(
    ("one", "other", "meet"),
    [("w", "w", True), ("w", PART, True), (PART, PART, True), (PART, SPLIT, True)]
    + [(MERGED, "x", True), (MERGED, "w", True), (("part", MERGED, (2, 3), 0), "x", True)]
    + [(PART, OTHER, False), ("w", "v", False), (PART, "v", False), (MERGED, OTHER, False)]
    + [(("part", "w", (2, 3), 0), ("part", "v", (2, 3), 0), False)],
)
def test_axes_keep_their_names_unless_one_may_be_taken_for_another(one, other, meet) -> None:
    """Parts of one axis are apart; a part and its whole aren't, nor are merged axes."""
    for first, second in ((one, other), (other, one)):
        found = met_names([(first, None), (None, second)])
        assert found[0] != found[1] and (found == [first, second]) == (not meet)
        assert not meet or not {first, second} & {*found}
    assert met_names([("u", None), (one, one)]) == ["u", one]


def test_an_outer_product_of_weights_knows_whose_axis_is_whose() -> None:
    """w[i] v[j] is not v[i] w[j]; over an axis that both have, either may come first."""
    w, v, what = of_digest((3,), "w"), of_digest((3,), "v"), np.uint64(7)
    outer = [contract(*both, ("i", "j"), "ij", what).full() for both in ((w, v), (v, w))]
    assert len(np.unique(outer)) == 18
    pair = [contract(*both, ("k", "k"), "", what).array for both in ((w, v), (v, w))]
    assert pair[0] == pair[1]
    each = [contract(*both, ("k", "k"), "k", what).full() for both in ((w, v), (v, w))]
    assert np.array_equal(*each) and len(np.unique(each[0])) == 3
    assert not np.isin(pair[0], contract(w, w, ("k", "k"), "", what).array)
