"""Switches far out are found by bisection, and what contradicts it is found and told.

Batches at which a target switches, classes of sizes that add alike, and the floor.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

import probe
from probe.case.case import Case
from probe.case.errors import InputError
from probe.order.summation import Rounding, Summation
from probe.order.tree import Tree
from probe.sizes import thresholds
from probe.sizes.recognition import UNKNOWN, Pattern, Recogniser
from probe.targets.launch import open_session
from probe.targets.target import Target
from probe.ui.cli import shell

pytestmark = pytest.mark.long

CASE = Case(op="conv1d", kernel=5, in_channels=2)


def found(target: str = "reference", case: Case = CASE, upto: int = 3000, **options):
    with open_session(Target.parse(target), inline=True) as session:
        return thresholds.find_thresholds(session, case, upto, **options)


@pytest.mark.parametrize("switch", [20, 150])
def test_a_real_switch_is_found_to_the_length(switch: int) -> None:
    result = found(f"reference,length_switch={switch}", upto=200, scanned=40)
    (only,) = result.switches
    assert (only.before, only.at) == (switch + 3, switch + 4)
    assert only.causes == ("order",) and only.scanned == (switch == 20)
    assert result.upto == 200 and not result.violations and result.period == 1


def test_an_island_is_told_as_a_violation_and_bounded(pretended, monkeypatch) -> None:
    pretended(lambda n: (int(20_000 < n < 30_000), ()))
    monkeypatch.setattr(thresholds, "CHECKS", 12)
    result = batches("reference", upto=40_000)
    pairs = {(switch.before, switch.at) for switch in result.switches}
    assert result.violations and {(20_000, 20_001), (29_999, 30_000)} <= pairs


def test_memory_and_time_limit_how_far_it_reaches(monkeypatch) -> None:
    monkeypatch.setattr(thresholds, "MEMORY", 2 << 20)
    result = found(upto=10**6, scanned=8)
    assert 10_000 < result.upto < 10**6
    assert "needs more than the 2 MiB that are allowed" in result.limited
    monkeypatch.setattr(thresholds.budget, "spent", lambda: "time was over")
    late = found(upto=1000)
    assert late.limited == "time was over" and late.upto == 5
    monkeypatch.undo()
    monkeypatch.setattr(thresholds, "OUTPUTS", 100)
    assert found(upto=300, scanned=8).upto == 104


def test_what_was_assumed_and_checked_is_said() -> None:
    told = json.loads(json.dumps(found(upto=500, scanned=64).to_json()))
    assert any("at most once" in one for one in told["assumed"])
    assert any("random lengths" in one for one in told["checked"])
    assert told["switches"] == [] and told["unknown"] is None and told["lengths_run"] > 64
    near = json.loads(json.dumps(found(upto=30).to_json()))
    assert [one.split(";")[0] for one in near["assumed"]] == ["1 thread", "operands are finite"]


@pytest.mark.slow
def test_unknown_outputs_and_unsteady_calls_are_told() -> None:
    told = found("reference,algorithm=winograd", Case(op="conv1d", kernel=3), 30).to_json()
    assert told["unknown"]["lengths"] and told["unknown"]["evidence"]
    random = found("reference,algorithm=random", CASE.with_(in_channels=40), 30)
    assert any("same call again" in one for one in random.violations)


def test_too_short_is_the_users_error() -> None:
    with pytest.raises(InputError, match="upto=4: .* is 5"):
        found(upto=4)


DENSE = Case(op="dense", in_channels=33, filters=2)


def batches(target: str, case: Case = DENSE, upto: int = 10, **options):
    with open_session(Target.parse(target), inline=True) as session:
        return thresholds.find_thresholds(session, case, upto, vary="batch", **options)


def texts(result) -> list[str]:
    return [one.text for one in thresholds.classes(result)]


def test_rows_that_read_padding_alone_are_added_as_all_others() -> None:
    case = Case("conv1d", 5, 1, 2, padding=7)
    with open_session(Target.parse("reference,length_switch=17,algorithm=pairwise"), True) as one:
        result = thresholds.find_thresholds(one, case, 16)
    assert texts(result) == ["{5, 6}", "{7..16}"]
    assert (told := thresholds.floor(result)).size == 7 and "not known" not in told.text
    # the shortest call has no window without padding: what most of its rows add is said of it
    patterns = result.patterns.values()
    assert all(max(result.recogniser.kinds[seen.interior]) > UNKNOWN for seen in patterns)


@pytest.mark.check
def test_the_classes_of_a_dense_layer_and_its_floor() -> None:
    result = batches("reference,length_switch=7,algorithm=pairwise", upto=20)
    assert texts(result) == ["{1..6}", "{7..20}"] and result.to_json()["sets"] == 8
    told = thresholds.floor(result)
    assert (told.size, told.step, told.run_to) == (7, 1, 20)
    assert told.text.startswith("floor: 7 rows; below, at 6, rows are added one after the other")
    assert told.text.endswith(", from 7 on pairwise (order); run up to 20")


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
    result = batches("reference", case, 4)
    assert texts(result) == ["{1..4}"] and not result.switches
    assert thresholds.floor(result).size == 1
    assert thresholds.floor(result).text.startswith("no floor is needed: from 1 to 4 all ")
    assert thresholds.floor(result).text.endswith("; run up to 4")


def test_a_switch_far_out_is_found_to_the_row() -> None:
    result = batches("reference,length_switch=77", upto=400, scanned=8)
    below, above = thresholds.classes(result)
    assert {*below.sizes, *above.sizes} == set(result.patterns) and len(below.sizes) < 60
    assert max(below.sizes) == 76 and min(above.sizes) == 77 and max(above.sizes) == 400
    told = thresholds.floor(result)  # what is run behind the switch: as many sizes as before it
    assert (told.size, told.step, told.run_to) == (77, 1, 154) and 155 not in result.patterns
    assert told.text.endswith("; run up to 154")
    assert thresholds.floor(batches("reference,length_switch=77", upto=150, scanned=8)).size is None


def test_a_search_that_ends_within_a_period_names_no_floor(pretended) -> None:
    """Three sizes of six are alike: 38, 39 and 40 end a search, and 41 differs again."""
    pretended(lambda n: (0, (), int(n < 8 or n % 6 not in (2, 3, 4))))
    for upto in range(8, 61):
        result = batches("reference", upto=upto)
        told = thresholds.floor(result)
        assert told.size is None and told.run_to == upto, told.text
        assert told.text.endswith(f"run up to {upto}")
    assert "alike at 38..40, too few" in thresholds.floor(
        batches("reference", upto=10)
    ).text.replace("8..10", "38..40")


def test_a_period_has_its_multiples(pretended) -> None:
    """Of six sizes the first, the third and the fifth: all even ones."""
    pretended(lambda n: (0, (), int(n < 9 or n % 2 or n % 12 == 7)))
    told = thresholds.floor(batches("reference", upto=40))
    assert (told.size, told.step, told.run_to) == (10, 2, 40)


def test_a_change_of_rounding_alone_is_a_class_of_its_own() -> None:
    result = batches("reference,length_switch=3,algorithm=fused", upto=6)
    told = thresholds.floor(result).text
    assert texts(result) == ["{1, 2}", "{3..6}"] and "(rounding)" in told
    assert "every product is rounded, then added (no FMA), from 3 on" in told


@pytest.fixture
def pretended(monkeypatch):
    """pretended(f): f(size) is (kind, tail) of every batch; nothing is run."""
    sums = [Tree.sequential(33), Tree.pairwise(33), Tree.lanes(33, 8)]

    def replace(shown):
        def pattern(self, size: int) -> Pattern:
            if not self.summations:
                self.summations += [Summation(tree, Rounding()) for tree in sums]
                self.kinds += [(number,) * 2 for number in range(len(sums))]
            interior, tail, *elsewhere = shown(size)
            kinds = np.zeros(size, int)
            return Pattern(size, kinds, interior, tail, sum(elsewhere), 0, True)

        monkeypatch.setattr(Recogniser, "pattern", pattern)

    return replace


def test_places_that_add_otherwise_leave_multiples(pretended) -> None:
    """Rows behind the last full packet of four are added in another order."""
    pretended(lambda n: (0 if n >= 4 else 1, ((1, n % 4),) if n >= 4 and n % 4 else ()))
    result = batches("reference", upto=100)
    assert texts(result) == ["{1..3}", "{4, 8, 12, 16, 20, 24, ... (19 more)}"]
    told = thresholds.floor(result)
    assert (told.size, told.step) == (4, 4)
    assert "floor: 4 rows, in multiples of 4" in told.text


def mixed_by(shown, result) -> None:
    """Every promised size is one at which all rows add as one kind, and the same one."""
    for one in thresholds.classes(result):
        assert all(shown(size) == (one.kind, (), 0) for size in one.sizes), one.text
    told = thresholds.floor(result)
    if told.size is not None:
        multiples = range(told.size, told.run_to + 1, told.step)
        assert all(shown(size) == (told.kind, (), 0) for size in multiples), told.text


@pytest.mark.parametrize(("upto", "scanned"), [(100, 20), (300, None), (1100, None), (300, 64)])
@pytest.mark.parametrize(
    "shown",
    [
        lambda n: (0, ((1, n % 4),) if n % 4 else (), 0),
        lambda n: (int(n < 4), ((2, 1),) if n % 4 == 1 else (), int(n % 4 > 1)),
        lambda n: (0, (), int(n % 4 != 1)),
        lambda n: (0, (), int(n % 7 == 3)),
        lambda n: (int(n > 90), ((2, 1),) if n > 70 and n % 3 else (), 0),
        lambda n: (0, ((1, 1),) if n > 80 and n % 16 == 5 else (), 0),
        lambda n: (n * 2654435761 % 3, (), n * 40503 % 2),
    ],
    ids=["tails", "elsewhere", "one of four", "sevenths", "late tails", "far", "none"],
)
def test_a_size_that_was_not_run_is_in_no_class_and_no_floor(
    pretended, shown, upto, scanned
) -> None:
    pretended(shown)
    result = batches("reference", upto=upto, scanned=scanned)
    mixed_by(shown, result)
    for one in thresholds.classes(result):
        assert set(one.sizes) <= set(result.patterns)
    told = thresholds.floor(result)
    assert told.text and (told.size is None or told.run_to <= result.upto)


def test_a_floor_at_multiples_names_a_size_below_it_that_adds_otherwise(pretended) -> None:
    """The size just below the floor may be in the class: no multiple."""
    pretended(lambda n: (0, (), int(n % 2 > 0 and n > 3)))
    told = thresholds.floor(batches("reference", upto=40))
    assert (told.size, told.step) == (2, 2)
    assert told.text.startswith("no floor, but multiples of 2 are needed: from 2 to 40, at these")


def test_remainders_that_are_no_multiples_make_no_floor(pretended) -> None:
    pretended(lambda n: (0, (), int(n % 4 != 1)))
    told = thresholds.floor(batches("reference", upto=40))
    assert told.size is None and told.text.startswith("no floor: at 40 rows, 1 of 40 are added")


def test_threads_are_part_of_the_promise() -> None:
    result = batches("reference")
    assert result.to_json()["threads"] == 1 and "on reference, 1 thread" in str(
        probe.thresholds(DENSE, "reference", upto=3)
    )
    assert any(one.startswith("1 thread; with a different number") for one in result.assumed)


def test_where_the_largest_sizes_are_mixed_there_is_no_floor(pretended) -> None:
    pretended(lambda n: (0, ((1, 1),)))
    told = thresholds.floor(batches("reference", upto=20))
    assert told.size is None
    assert told.text == "no floor: at 20 rows, the last one is added pairwise; run up to 20"


def test_what_is_not_a_sum_or_not_steady_is_in_no_class() -> None:
    random = batches("reference,algorithm=random", DENSE.with_(filters=32), upto=4)
    assert thresholds.classes(random) == [] and thresholds.floor(random).size is None
    assert "the same call again gives different bits" in thresholds.floor(random).text


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
            known = Recogniser(Planted(one, other, row), DENSE, "batch")
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
    assert shell.run(["fix", "sizes", *words.split(), "--target", "reference"]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_lengths_have_classes_and_a_floor_too() -> None:
    case = Case(op="conv1d", kernel=5, in_channels=2)
    with open_session(Target.parse("reference,length_switch=20"), inline=True) as session:
        result = thresholds.find_thresholds(session, case, 50)
    assert texts(result) == ["{5..23}", "{24..50}"]
    assert thresholds.floor(result).text.startswith("floor: length 24; below, at 23, outputs are")
    with pytest.raises(InputError, match="length"):
        batches("reference", case)


def test_a_size_that_is_alike_by_chance_makes_no_step(pretended) -> None:
    pretended(lambda n: (int(n <= 80 and n != 41), ()))
    told = thresholds.floor(batches("reference", upto=170))
    assert (told.size, told.step) == (81, 1)
