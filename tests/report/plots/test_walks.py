"""The picture of two runs: few rows for many operations, what differs among them."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

from probe.diff import walk
from probe.report import trees as walks
from tests.record.taped import Taped, apart, network, normal

X = normal(6, 32)


def chained(blocks, before=30, behind=80):
    """Many additions, a dense layer in so many blocks, and as many functions of its result."""
    w = normal(32, 24)

    def program(tape):
        x = X
        for _ in range(before):
            x = tape.relu(x)
        y = tape.dense(x, tape.weight(w), blocks)
        for _ in range(behind):
            y = tape.turn(tape.add(y, np.ones(1, np.float32)), 0, 1)
        return y

    return Taped(program)


@pytest.fixture(scope="module")
def found():
    for blocks in range(2, 9):
        one = walk.walk(chained(1), chained(blocks), explain=False)
        if one.first is not None:
            return one
    raise AssertionError("no order of 8 rounds otherwise")


def test_equal_operations_are_one_row(found):
    rows = walks.rows_of(found)
    assert rows[0].text == "30 equal" and rows[0].verdict == "equal"
    assert rows[1].mark == walks.FIRST_SOURCE and "Dense" in rows[1].text


def test_there_are_few_rows_and_the_first_source_is_among_them(found):
    assert len(found.operations) > 150
    for most in (12, 40):
        rows = walks.rows_of(found, most)
        assert len(rows) <= most + 1 and [row.mark for row in rows].count(walks.FIRST_SOURCE) == 1
        assert any("rows more" in row.text for row in rows)


def test_moves_have_no_rows(found):
    assert not any("Transpose" in row.text for row in walks.rows_of(found, 1000))


def test_the_picture_names_what_it_shows(found):
    figure = walks.walked(found, ("one", "two", "three"))
    assert isinstance(figure, Figure) and figure.get_suptitle() == "one\ntwo\nthree"
    (axes,) = figure.axes
    labels = [one.get_text() for one in axes.get_yticklabels()]
    assert sum("first source" in label for label in labels) == 1
    assert any("ulp" in one.get_text() for one in axes.texts)
    (legend,) = figure.legends
    words = [one.get_text() for one in legend.get_texts()]
    assert walks.WORDS["source"] in words and walks.WORDS["equal"] in words


def test_equal_runs_have_a_picture_too():
    same = walk.walk(network(X), network(X), explain=False)
    figure = walks.walked(same, ("a", "b", "c"))
    assert len(walks.rows_of(same)) == 1 and figure.axes


def test_long_names_are_cut_in_the_middle():
    assert walks._without_middle("a" * 30 + "b" * 30).startswith("a" * 20)
    assert len(walks._without_middle("a" * 100)) <= 44


def test_the_two_sides_stand_beside_when_their_sums_are_known(monkeypatch):
    from probe.order.summation import Summation
    from probe.order.tree import Tree

    trees = [Summation(Tree.parse(text)) for text in ("(((0+1)+2)+3)", "((0+1)+(2+3))")]
    one = walk.walk(*apart(X), explain=False)
    sums = [("left", trees[0]), ("right", trees[1])]
    monkeypatch.setattr(walks, "_sums_of_source", lambda _: sums)
    figure = walks.walked(one, ("a", "b", "c"))
    assert [axes.get_title(loc="left") for axes in figure.axes[1:]] == [
        "how the first source adds, left side",
        "how the first source adds, right side",
    ]
