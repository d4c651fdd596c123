"""What is drawn of a tree is the tree: kinds of products, running sums, errors, maps; of two runs
the picture has few rows for many operations, and what differs among them."""

import matplotlib
import numpy as np
import pandas as pd
import pytest

matplotlib.use("agg")

from matplotlib.figure import Figure

from lib import sums
from probe.diff import walk
from probe.order.summation import Rounding, Summation
from probe.order.tree import Tree
from probe.report import trees
from tests.record.taped import Taped, apart, normal

CHAIN, PAIRS = Tree.sequential(5), Tree.pairwise(5)


def test_everything_can_be_drawn():
    summation = Summation(CHAIN, Rounding.fused_everywhere(CHAIN))
    axes = Figure().subplots(5)
    trees.draw(axes[0], summation, sums={0: "0x0"}, marked=[0], dtype="float32")
    trees.draw(axes[1], Summation(Tree.sequential(1)))
    trees.draw_accumulators(axes[2], PAIRS)
    sums.fusion_map(axes[3], [summation, Summation(PAIRS)])
    grid = pd.DataFrame([[0, np.nan], [-1, 1]], index=[5, 8])
    sums.draw_map(axes[4], grid)
    trees.kinds_legend(axes[0])
    assert [text.get_text() for text in axes[0].texts].count("0x0") == 1


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
    rows = trees.rows_of(found)
    assert rows[0].text == "30 equal" and rows[0].verdict == "equal"
    assert rows[1].mark == trees.FIRST_SOURCE and "Dense" in rows[1].text


def test_there_are_few_rows_and_the_first_source_is_among_them(found):
    assert len(found.operations) > 150
    for most in (12, 40):
        rows = trees.rows_of(found, most)
        assert len(rows) <= most + 1 and [row.mark for row in rows].count(trees.FIRST_SOURCE) == 1
        assert any("rows more" in row.text for row in rows)


def test_the_picture_names_what_it_shows(found):
    figure = trees.draw_two_runs(found, ("one", "two", "three"))
    assert isinstance(figure, Figure) and figure.get_suptitle() == "one\ntwo\nthree"
    (axes,) = figure.axes
    labels = [one.get_text() for one in axes.get_yticklabels()]
    assert sum("first source" in label for label in labels) == 1
    assert any("ulp" in one.get_text() for one in axes.texts)
    (legend,) = figure.legends
    words = [one.get_text() for one in legend.get_texts()]
    assert trees.WORDS["source"] in words and trees.WORDS["equal"] in words


def test_the_two_sides_stand_beside_when_their_sums_are_known(monkeypatch):
    both = [Summation(Tree.parse(text)) for text in ("(((0+1)+2)+3)", "((0+1)+(2+3))")]
    one = walk.walk(*apart(X), explain=False)
    sides = [("left", both[0]), ("right", both[1])]
    monkeypatch.setattr(trees, "_sums_of_source", lambda _: sides)
    figure = trees.draw_two_runs(one, ("a", "b", "c"))
    assert [axes.get_title(loc="left") for axes in figure.axes[1:]] == [
        "how the first source adds, left side",
        "how the first source adds, right side",
    ]
