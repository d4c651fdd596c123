"""A change between releases is found with few questions, whatever is asked."""

from __future__ import annotations

import math

import pytest

from probe.case.errors import InputError
from probe.sizes.fewest import ReleaseStep, first_change


def answers(seen):
    """An ``ask`` that gives a letter a release, and the list of what was asked; None: it can't."""
    asked = []

    def ask(version):
        asked.append(version)
        letter = seen[int(version)]
        return ReleaseStep(version, None if letter == "?" else letter, why="no wheel")

    return ask, asked


def search(seen):
    ask, asked = answers(seen)
    found = first_change([str(n) for n in range(len(seen))], ask)
    assert len(asked) == len(set(asked)), "no release is asked twice"
    return found, asked


@pytest.mark.parametrize("size", [2, 3, 7, 30])
def test_every_place_of_a_change_is_found_with_few_questions(size):
    for place in range(1, size):
        found, asked = search("A" * place + "B" * (size - place))
        assert (found.last, found.first) == (str(place - 1), str(place))
        assert found.holds and len(asked) <= 2 + math.ceil(math.log2(size))


def test_equal_ends_end_the_search():
    found, asked = search("AABA")
    assert found.first is None and asked == ["0", "3"]


def test_a_third_answer_speaks_against_the_assumption():
    found, _ = search("AABBBCCC")
    assert found.first == "2" and not found.holds


def test_releases_that_cannot_be_asked_are_passed_over():
    found, _ = search("AA??BB")
    assert (found.last, found.first, found.skipped) == ("1", "4", ["2", "3"])
    assert found.holds


def test_an_end_that_cannot_be_asked():
    with pytest.raises(InputError, match="release=3: no wheel; take a different release"):
        search("AAB?")
