"""The sizes of an operation fall into classes, and calls are cut and padded to the chosen one."""

from __future__ import annotations

import json

import numpy as np
import pytest

from probe.case import ulp
from probe.case.errors import InputError
from probe.sizes.invariant.classes import (
    Buckets,
    Entry,
    Sizes,
    Table,
    ladder,
    mark_of_answers,
)
from probe.sizes.invariant.operations import cancelling_products


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


class Timed:
    """A program with this mark at each size."""

    key, refused = "timed", {}

    telling = ()

    def __init__(self, marks):
        self.marks = marks

    def mark(self, size):
        return self.marks[size]


@pytest.mark.parametrize(("wanted", "expected"), [([1, 2], [1, 2]), ([16, 64], [16])])
def test_the_cheapest_buckets_are_those_of_the_sizes_that_count(wanted, expected):
    made = Buckets(Timed({1: "small", 2: "small", 16: "large"}), Entry(), 1, (1, 2, 16))
    made._seconds = {1: 1.0, 2: 1.1, 16: 2.0}
    made.choose(16, "cheapest", wanted)
    assert made.used == expected
    made.choose(16, "largest", wanted)
    assert made.used == [16]


def test_many_sizes_become_powers_of_two():
    assert ladder(range(1, 65)) == (1, 2, 4, 8, 16, 32, 64)
    assert ladder(range(20, 51)) == (16, 32, 50)
    assert ladder([3, 1, 7]) == (1, 3, 7) and ladder(range(99), fixed=8) == (8,)


def test_the_plan_of_least_time_holds_every_sample_once():
    for seconds in ({1: 1, 4: 2, 16: 3}, {1: 1, 4: 9, 16: 99}):
        made = Buckets(Timed(dict.fromkeys((1, 4, 16), "alike")), Entry("alike"), 1, (1, 4, 16))
        made._seconds = dict(seconds)
        for count in range(1, 70):
            plan = made.plan(count)
            assert [one.start for one in plan] == [
                sum(one.places for one in plan[:n]) for n in range(len(plan))
            ]
            assert sum(one.places for one in plan) == count
            assert all(one.places == one.size for one in plan[:-1])
        assert {one.size for one in made.plan(15)} == ({16} if seconds[16] == 3 else {1})


def test_a_plan_of_single_samples_has_as_many_as_there_are():
    made = Buckets(Timed(dict.fromkeys((1, 2000), "alike")), Entry("alike"), 1, (1, 2000))
    made._seconds = {1: 1.0, 2000: 1e6}
    assert len(made.plan(1999)) == 1999


LARGEST = 200


COUNTS = (*range(1, 40), 64, 99, 100, 130, 199, 200, 333)


def kept(path, planted):
    """The table of a planted library, as JSON."""
    sizes = chosen(planted, LARGEST)
    Table(
        "largest", {"batch": (1, LARGEST)}, 1, {"library": "torch"}, {"planted": sizes.entry}
    ).save(path)
    return json.loads(path.read_text())


def opened(path, told, planted, home=True):
    """The sizes of a table as a model gets them, and the table; ``home``: it was made here."""
    path.write_text(json.dumps(told))
    table = Table.read(path, {"library": "torch"})
    table.trusted = home
    table.notes.clear()
    sizes = Sizes(planted, table.entries["planted"], 1)
    sizes.keep(LARGEST, "largest", (), table)
    return sizes, table


def right(planted, sizes):
    """Whether every count at every place has the bits of the largest size."""
    truth = planted.added(planted.turn <= LARGEST)
    calls = [computed(planted, sizes, count) for count in COUNTS]
    return all(ulp.equal(y, np.broadcast_to(truth, y.shape), "float32") for y in calls)


@pytest.mark.check
def test_a_table_keeps_its_class_and_every_size_that_is_run_is_asked(tmp_path):
    told = kept(path := tmp_path / "table.json", Planted())
    assert set(told["operations"]["planted"]) == {"chosen", "like", "largest"}
    again = Planted()
    sizes, table = opened(path, told, again)
    assert right(again, sizes) and not table.notes
    assert sizes.entry.chosen == told["operations"]["planted"]["chosen"]
    used = {piece.size for count in COUNTS for piece in sizes.plan(count)}
    assert used <= set(again.asked)  # a table's word alone runs nothing


def test_another_class_than_that_of_the_largest_size_is_not_taken(tmp_path):
    told = kept(path := tmp_path / "table.json", Planted())
    planted = Planted()
    told["operations"]["planted"]["chosen"] = planted.mark(1)
    sizes, table = opened(path, told, planted)
    assert any("not that of the largest size: chosen anew" in note for note in table.notes)
    assert right(planted, sizes)


def test_elsewhere_every_size_is_asked_anew_and_the_bits_stay(tmp_path):
    """There the library turns at 24 rows, and the largest size adds the same."""
    told = kept(path := tmp_path / "table.json", Planted(16))
    there = Planted(24)
    sizes, table = opened(path, told, there, home=False)
    assert right(there, sizes) and not any("chosen anew" in note for note in table.notes)
    gone = Planted(10**6)  # no size that is tried gives the bits of the table
    sizes, table = opened(path, told, gone, home=False)
    assert right(gone, sizes) and any("chosen anew" in note for note in table.notes)


def with_(told, *place, to):
    """A copy with another value somewhere."""
    told = json.loads(json.dumps(told))
    at = told
    for name in place[:-1]:
        at = at[name]
    at[place[-1]] = to
    return told


HOSTILE = {
    "too deep": "[" * 100_000,
    "huge number": '{"format": 1e999}',
    "a list": "[1, 2]",
    "not text": "\udcff",
    "threads": ("threads", 10**9),
    "no threads": ("threads", 0),
    "infinite threads": ("threads", float("inf")),
    "sizes of text": ("sizes", {"batch": "12"}),
    "fractions": ("sizes", {"batch": [1.0, 200.0]}),
    "nothing": ("sizes", {"batch": [0]}),
    "no entry": ("operations", "planted", None),
    "infinite largest": ("operations", "planted", "largest", float("inf")),
    "operations": ("operations", [1]),
    "environment": ("environment", 7),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_one_line(name, tmp_path):
    given, path = HOSTILE[name], tmp_path / "table.json"
    told = kept(path, Planted())
    if isinstance(given, str):
        path.write_text(given, errors="surrogateescape")
    else:
        path.write_text(json.dumps(with_(told, *given[:-1], to=given[-1])))
    with pytest.raises(InputError) as caught:
        Table.read(path, {"library": "torch"})
    assert str(caught.value).startswith("table=table.json: ") and "\n" not in str(caught.value)
