"""Batches at which a target switches, classes of sizes that add alike, and the floor."""

from __future__ import annotations

import json

import numpy as np
import pytest

import probe
from probe.case import Case
from probe.cli import shell
from probe.cli.show import orders as shown
from probe.errors import InputError
from probe.launch import open_session
from probe.order.summation import Rounding, Summation
from probe.order.tree import Tree
from probe.printing import Output
from probe.target import Target
from probe.thresholds import floors, search
from probe.thresholds.recognition import UNKNOWN, Pattern
from probe.thresholds.search import OfSamples

DENSE = Case(op="dense", in_channels=33, filters=2)


def found(target: str, case: Case = DENSE, upto: int = 10, **options):
    with open_session(Target.parse(target), inline=True) as session:
        return search.find(session, case, upto, vary="batch", **options)


def texts(result) -> list[str]:
    return [one.text for one in floors.classes(result)]


@pytest.mark.check
def test_the_classes_of_a_dense_layer_and_its_floor() -> None:
    result = found("reference,length_switch=7,algorithm=pairwise")
    assert texts(result) == ["{1..6}", "{7..10}"] and not result.uncertified
    told = floors.floor(result)
    assert (told.size, told.step, told.certified) == (7, 1, True)
    assert told.text.startswith("floor: 7 rows; below, at 1..6, rows are added one after the other")
    assert "from 7 on pairwise (order)" in told.text and told.text.endswith("; certified")
    assert told.pieces == (1, 6, 1) and "cut into pieces of at most 6, none is needed" in told.text


@pytest.mark.parametrize(
    "case",
    [
        Case("conv2d", "3x2", 2, 2, 3, height=3, padding="same", bias="normal"),
        Case("conv1d", 3, 4, 4, 5, groups=2, stride=2, padding="1:1"),
        Case("matmul", None, 9, 2, 4),
        Case("dense", None, 33, 2, dtype="bfloat16", bias="normal"),
    ],
    ids=lambda case: case.op,
)
def test_what_no_batch_changes_needs_no_floor(case) -> None:
    result = found("reference", case, 4)
    assert texts(result) == ["{1..4}"] and not result.switches and not result.uncertified
    assert floors.floor(result).size == 1
    assert floors.floor(result).text.startswith("no floor is needed: from 1 to 4 all ")


def test_a_switch_far_out_is_found_to_the_row() -> None:
    result = found("reference,length_switch=77", upto=150, scanned=4)
    assert texts(result) == ["{1..76}", "{77..150}"]
    told = floors.floor(result)
    assert told.size == 77 and told.sides and not told.certified
    assert told.text.endswith("; certified at the floor, recognised elsewhere")
    assert len(result.patterns) < 60 and result.uncertified


def test_a_change_of_rounding_alone_is_a_class_of_its_own() -> None:
    result = found("reference,length_switch=3,algorithm=fused", upto=6)
    told = floors.floor(result).text
    assert texts(result) == ["{1..2}", "{3..6}"] and "(rounding)" in told
    assert "every product is rounded, then added (no FMA), from 3 on" in told


@pytest.fixture
def pretend(monkeypatch):
    """pretend(f): f(size) is (kind, tail) of every batch; nothing is run."""
    sums = [Tree.sequential(33), Tree.pairwise(33), Tree.lanes(33, 8)]

    def replace(shown):
        def pattern(self, size: int, budget: int = 0) -> Pattern:
            if not self.summations:
                self.summations += [Summation(tree, Rounding()) for tree in sums]
                self.kinds += [(number,) * 2 for number in range(len(sums))]
            interior, tail = shown(size)
            unsure = "" if budget else "not asked"
            kinds = np.zeros(size, int)
            return Pattern(size, kinds, True, interior, tail, 0, 0, True, unsure)

        monkeypatch.setattr(OfSamples, "pattern", pattern)

    return replace


def test_places_that_add_otherwise_leave_multiples(pretend) -> None:
    """Rows behind the last full packet of four are added in another order."""
    pretend(lambda n: (0 if n >= 4 else 1, ((1, n % 4),) if n >= 4 and n % 4 else ()))
    result = found("reference", upto=100)
    assert texts(result) == ["{4..100 by 4}", "{1..3}"][::-1]
    told = floors.floor(result)
    assert (told.size, told.step) == (4, 4)
    assert "floor: 4 rows, in multiples of 4" in told.text


def test_a_class_between_two_others_is_told_as_pieces(pretend) -> None:
    pretend(lambda n: ((n >= 16) + (n > 128), ()))
    result = found("reference", upto=512)
    assert texts(result) == ["{1..15}", "{16..128}", "{129..512}"]
    told = floors.floor(result)
    assert told.size == 129 and told.pieces == (16, 128, 1)
    assert "8 running sums, added pairwise" in told.text and "at 16..128" in told.text


def test_pieces_of_a_class_make_up_every_size() -> None:
    """First to last make up all sizes from first on exactly where last >= 2 * first - 1."""
    for first in range(2, 9):
        for last in range(first, 20):
            fits = set()
            for count in range(1, 60):
                fits |= set(range(count * first, count * last + 1))
            every = all(size in fits for size in range(first, 60))
            spans = [floors.SizeClass(0, (floors.Span(first, last),), 0, ())]
            assert (floors._pieces(spans, 1, 100) is not None) == every


def test_where_the_largest_sizes_are_mixed_there_is_no_floor(pretend) -> None:
    pretend(lambda n: (0, ((1, 1),)))
    told = floors.floor(found("reference", upto=20))
    assert told.size is None and not told.certified
    assert told.text == "no floor: at 20 rows the last one is added pairwise"


def test_a_switch_among_the_sizes_that_are_all_run_hides_no_period(pretend) -> None:
    pretend(lambda n: (int(n >= 16), ()))
    result = found("reference", upto=160, scanned=20)
    assert texts(result) == ["{1..15}", "{16..160}"] and result.period == 1


def test_what_is_not_a_sum_or_not_steady_is_in_no_class() -> None:
    random = found("reference,algorithm=random", upto=4)
    assert floors.classes(random) == [] and floors.floor(random).size is None
    assert "the same call again gives different bits" in floors.floor(random).text
    assert "certified" not in floors.floor(random).text


def test_sizes_are_recognised_by_more_than_marks_of_the_interior() -> None:
    """One row of a batch that adds otherwise is seen wherever it stands."""

    class Planted:
        """The last row comes from another target."""

        def __init__(self, inner, other, row):
            self.inner, self.other, self.row = inner, other, row
            self.target, self.alive = inner.target, True

        def stream(self, header, arrays):
            pairs = zip(
                self.inner.stream(header, arrays), self.other.stream(header, arrays), strict=True
            )
            for (head, mine), (_, other) in pairs:
                outputs = mine["outputs"].copy()
                if "select" not in arrays:
                    outputs[:, self.row] = other["outputs"][:, self.row]
                yield head, {**mine, "outputs": outputs}

        def request(self, header, arrays=None):
            return self.inner.request(header, arrays or {})

    texts_ = "reference", "reference,algorithm=pairwise"
    with (
        open_session(Target.parse(texts_[0]), inline=True) as one,
        open_session(Target.parse(texts_[1]), inline=True) as other,
    ):
        for row in (0, 5):
            known = OfSamples(Planted(one, other, row), DENSE)
            known.summations += [Summation(Tree.sequential(33)), Summation(Tree.pairwise(33))]
            known.popular += [0, 1]
            seen = known.pattern(6)
            assert len(set(seen.kinds.tolist())) == 2 and UNKNOWN not in known.kinds[seen.interior]
            assert seen.kinds[row] != seen.interior
            assert sum(count for _, count in seen.tail) + seen.elsewhere == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--op conv1d --kernel 3 --vary batch", "length=None: where the batch is varied"),
        ("--op sum --in-channels 4 --length 3 --vary batch", "op=sum: its sums have no weights"),
        ("--op dense --in-channels 4 --vary filters", "vary=filters: thresholds are not searched"),
        ("--op dense --in-channels 4 --vary length", "vary=length: dense has no length"),
        ("--op dense --in-channels 4 --upto 0", "upto=0"),
    ],
)
def test_wrong_words_are_one_line(capsys, words, said) -> None:
    assert shell.run(["thresholds", *words.split(), "--target", "reference"]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_the_command_and_the_answer_say_the_same(capsys) -> None:
    words = "--op dense --in-channels 33 --filters 2 --upto 6 --target reference,length_switch=5"
    assert shell.run(["thresholds", *words.split(), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["vary"] == "batch" and told["floor"]["size"] == 5 and told["certified"]
    assert [one["sizes"] for one in told["classes"]] == [[[1, 4, 1]], [[5, 6, 1]]]
    answer = probe.thresholds(DENSE, "reference,length_switch=5", upto=6)
    untimed = {name: one for name, one in told.items() if name != "seconds"}
    assert {name: one for name, one in answer.to_json().items() if name != "seconds"} == untimed
    assert len(repr(answer).splitlines()) == 3 and "floor: 5 rows" in repr(answer)
    assert answer._repr_png_().startswith(b"\x89PNG")
    Output().results.print(shown.thresholds(answer.found))
    text = capsys.readouterr().out
    assert "classes of batches at which all rows add alike: {1..4}, {5..6}" in text
    assert "floor: 5 rows; below, at 1..4" in text


def test_lengths_have_classes_and_a_floor_too() -> None:
    case = Case(op="conv1d", kernel=5, in_channels=2)
    with open_session(Target.parse("reference,length_switch=20"), inline=True) as session:
        result = search.find(session, case, 27)
    assert texts(result) == ["{5..23}", "{24..27}"]
    assert floors.floor(result).text.startswith("floor: length 24; below, at 5..23, outputs are")
    with pytest.raises(InputError, match="length"):
        found("reference", case)
