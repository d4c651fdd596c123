"""The sizes of an operation fall into classes, and calls are cut and padded to the chosen one."""

import numpy as np
import pytest

from probe import ulp
from probe.invariant.classes import Entry, Sizes, mark_of_answers
from probe.invariant.operations import cancelling_products


class Planted:
    """A library that adds backwards below ``turn`` rows, and in odd last rows of ``tails``."""

    pieces = (64, 32)

    def __init__(self, turn=16, tails=()):
        self.key, self.turn, self.tails = "planted", turn, tails
        self.x, self.w, _ = cancelling_products(0, 33, 4, "float32")
        self.asked = []

    def rows(self, size):
        y = np.repeat(self.added(size >= self.turn)[None], size, axis=0)
        if size in self.tails:
            y[-1] = self.added(False)
        return y

    def added(self, forwards):
        order = slice(None) if forwards else slice(None, None, -1)
        each = (self.x[:, None] * self.w).astype(np.float32)[order]
        return np.add.accumulate(each, dtype=np.float32)[-1]

    def mark(self, size):
        self.asked.append(size)
        return mark_of_answers([(self.rows(size), "float32")])

    def ready(self, size):
        return lambda: [self.added(True) for _ in range(size)]


def chosen(operation, largest, like="largest", wanted=()):
    sizes = Sizes(operation, Entry(), 1)
    sizes.choose(largest, like, wanted)
    return sizes


def computed(operation, sizes, count):
    """All rows of a call, by its plan."""
    plan = sizes.plan(count)
    assert [piece.start for piece in plan] == np.cumsum([0, *[p.places for p in plan]])[
        :-1
    ].tolist()
    return np.concatenate([operation.rows(piece.size)[: piece.places] for piece in plan])


@pytest.mark.check
def test_every_size_and_place_has_the_bits_of_the_largest():
    planted = Planted(16, tails=(17, 40, 41, 50))
    truth = planted.added(True)
    assert not ulp.equal(truth, planted.added(False), "float32")
    sizes = chosen(planted, 200)
    for count in range(1, 200):
        y = computed(planted, sizes, count)
        assert len(y) == count and ulp.equal(y, np.broadcast_to(truth, y.shape), "float32")


BY_SIX = [size for size in range(300) if size % 6 in (1, 2, 3)]
"""Where a kernel of AVX2 takes 6 rows at a time, and the last 1, 2 or 3 are added differently."""


@pytest.mark.parametrize(
    ("tails", "largest", "there"), [(range(3, 300, 2), 99, 98), (BY_SIX, 32, 30)]
)
def test_a_size_whose_places_differ_is_never_run(tails, largest, there):
    planted = Planted(1, tails)
    sizes = chosen(planted, largest)
    used = {piece.size for count in range(1, 150) for piece in sizes.plan(count)}
    assert used and not used & set(planted.tails)
    assert f"size {largest} " in sizes.doubts and f"size {there} " in sizes.doubts


def test_where_all_large_sizes_have_places_that_differ_calls_are_cut():
    """As TensorFlow's softmax where two threads share the rows, at no whole number of vectors."""
    planted = Planted(1, tails=range(65, 1 << 17))
    planted.pieces = (1 << 14,)
    sizes = chosen(planted, 1000)
    assert "size 64 " in sizes.doubts
    for count in (1, 64, 65, 300, 1000):
        y = computed(planted, sizes, count)
        assert len(y) == count and mark_of_answers([(y, "float32")]) == sizes.entry.chosen
    assert max(planted.asked) < 1 << 17


def test_no_size_is_run_that_was_not_asked():
    planted = Planted(10)
    sizes = chosen(planted, 100)
    used = {piece.size for count in range(1, 300) for piece in sizes.plan(count)}
    assert used <= set(planted.asked)
    assert len(planted.asked) == len(set(planted.asked))


def test_the_cheapest_class_is_that_of_the_sizes_that_count():
    small, large = Planted(1000).added(False), Planted().added(True)
    cheap = chosen(Planted(1000), 1024, "cheapest", range(1, 20))
    assert cheap.entry.chosen == mark_of_answers([(np.stack([small, small]), "float32")])
    assert chosen(Planted(1000), 1024).entry.chosen == mark_of_answers([(large[None], "float32")])


def test_where_no_size_is_alike_there_is_no_plan():
    sizes = chosen(Planted(1, tails=range(2, 5000)), 64)
    sizes.entry.chosen = "none of them"
    assert sizes.plan(3) is None
