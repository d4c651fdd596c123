"""The one search over sizes, of marks that are known: nothing is run."""

from __future__ import annotations

import pytest

from probe.sizes.marks import SizeSearch, doubled


def searched(mark, low, high, **words):
    asked = []

    def ask(size):
        asked.append(size)
        return mark(size)

    search = SizeSearch(ask, **words)
    return search, search.bisect(low, high), asked


@pytest.mark.parametrize("at", [1, 2, 500, 999_999])
def test_a_change_is_found_with_few_questions(at) -> None:
    _, changes, asked = searched(lambda n: n >= at, 0, 1_000_000)
    assert changes == [(at - 1, at)] and len(asked) == len(set(asked)) < 24


def test_several_changes_are_found_and_sizes_without_a_mark_passed_over() -> None:
    _, changes, _ = searched(lambda n: (n > 10) + (n > 70), 0, 100)
    assert changes == [(10, 11), (70, 71)]
    search, changes, _ = searched(lambda n: None if 4 < n < 9 else n > 6, 0, 12)
    assert changes == [(4, 9)] and search.unmarked == {5, 6, 7, 8}


def test_marks_are_compared_as_they_are_told_to_be() -> None:
    _, changes, asked = searched(lambda n: n, 0, 64, alike=lambda one, other: other - one <= 8)
    assert not changes and len(asked) == 9


def test_only_sizes_of_one_remainder_are_asked() -> None:
    search = SizeSearch(lambda n: n > 50)
    assert search.bisect(2, 90, step=4) == [(50, 54)]
    assert all(size % 4 == 2 for size in search.marks)


def test_the_first_change_is_looked_for_by_doubling() -> None:
    asked = []
    search = SizeSearch(lambda n: asked.append(n) or n >= 37)
    assert search.first_change(1, 10**9) == 37 and max(asked) == 64
    assert SizeSearch(lambda n: 0).first_change(1, 100) is None
    assert [*doubled(3, 50, 4)] == [3, 7, 11, 19, 35, 47]
