"""What is asked of a worker is what must agree; shards ask every question once."""

from __future__ import annotations

import math
from importlib import import_module

import pytest

import probe
from probe.case.case import Case
from probe.case.errors import InputError
from probe.order import window
from probe.sweep.bits import sweep_cases
from probe.sweep.plan import Plan, Plans, Shard
from probe.sweep.store import Store
from probe.sweep.stored import load
from probe.targets.target import Target

pytestmark = pytest.mark.long

CASES = [
    Case(op="conv1d", kernel=3, stride=2),
    Case(op="conv1d", kernel=3, dilation=4, padding="same"),
    Case(op="conv2d", kernel="2x3", stride=3, padding="same", height=5),
    Case(op="conv3d", kernel=2, padding="1:0", filters=2, batch=2),
    Case(op="depthwise_conv2d", kernel=3, in_channels=2, dilation=2),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_items_are_the_agreement(case):
    values = range(case.shortest_length + 3, case.shortest_length + 20, 3)
    plan = Plan(case, "length", values, values[-1] + 5)
    for value in values:
        sides = (window.Geometry.of(case, length) for length in (value, plan.against))
        expected = window.agreeing_blocks(*sides)
        _, blocks = plan.items[value]
        shape = case.output_shape(value)
        assert plan.shapes[value] == shape
        nothing = (slice(0, 0),) * len(shape)
        for pair, wanted in zip(blocks, expected or (nothing,), strict=True):
            for ranges in (pair[0] or [[0, size, 1] for size in shape], pair[1]):
                assert tuple(slice(*limits[:2]) for limits in ranges) == wanted
        compared = sum(map(window.block_size, expected))
        assert plan.not_compared[value] == math.prod(shape) - compared


def test_a_case_that_is_given_twice_is_one(tmp_path):
    twice = [CASES[0], CASES[0].with_(length=7), CASES[1], CASES[0]]
    assert Plans(twice, "length", [5], 9).cases == [CASES[0], CASES[1]]
    with Store(tmp_path) as store:
        found = sweep_cases(twice, [Target("reference")], [5, 9], store=store)
    assert found.targets["reference"].comparisons == 2


SWITCHING = "reference,algorithm=pairwise,length_switch=9"
CASE = Case("conv1d", 5, 3, 2, operands="cancel")
VARYING = {"seconds", "started", "machine", "path", "git_commit", "git_dirty"}


def rows(folder, *tables):
    """The rows of tables but for times and the state of the checkout, in a fixed order."""
    store, found = load(folder), {}
    for table in tables:
        frame = getattr(store, table)
        frame = frame.drop(columns=[name for name in frame if name in VARYING])
        found[table] = sorted(map(str, frame.to_dict("records")))
    return found


@pytest.mark.parametrize("count", [1, 2, 3, 7, 40])
def test_every_question_is_asked_in_one_part(count):
    questions = list(range(23))
    shards = [Shard(number, count) for number in range(1, count + 1)]
    parts = [shard.part(questions) for shard in shards]
    assert parts == [[one for one in questions if shard.has(one)] for shard in shards]
    assert sorted(one for part in parts for one in part) == questions
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.parametrize(
    "text", ["0/3", "4/3", "1", "1/0", "a/b", "-1/2", "1/2/3", " 1/2", "1.0/2"]
)
def test_what_is_no_part_is_refused_in_one_line(text):
    with pytest.raises(InputError, match=r"shard=.*use i/n"):
        Shard.parse(text)


def test_shards_of_a_sweep_have_the_rows_of_one_run(tmp_path):
    targets = ["reference", SWITCHING]
    whole = probe.sweep(CASE, range(5, 20), targets, store=tmp_path / "whole")
    parts = [
        probe.sweep(CASE, range(5, 20), targets, store=tmp_path / "parts", shard=f"{n}/2")
        for n in (1, 2)
    ]
    one, many = whole.to_json()["targets"], [part.to_json()["targets"] for part in parts]
    for name in targets:
        for what in ("compared", "differing", "comparisons"):
            assert one[name][what] == sum(part[name][what] for part in many)
    assert one[SWITCHING]["differing"] > 0
    tables = "comparisons", "differences", "runs", "cases"
    wanted = rows(tmp_path / "whole", *tables)
    assert rows(tmp_path / "parts", *tables) == wanted
    probe.merge([tmp_path / "parts"], tmp_path / "merged")
    assert rows(tmp_path / "merged", *tables) == wanted


@pytest.mark.parametrize(
    "name", ["prefix_stability", pytest.param("batch_invariance", marks=pytest.mark.slow)]
)
@pytest.mark.slow_at("prefix_stability")
def test_shards_of_an_experiment_have_the_rows_of_one_run(name, tmp_path):
    script = import_module(name).main
    for number in (1, 2, 3):
        words = ["--quick", "--shard", f"{number}/3", "--store", str(tmp_path / "parts")]
        assert not script(words, standalone_mode=False)
    assert not script(["--quick", "--store", str(tmp_path / "whole")], standalone_mode=False)
    tables = "comparisons", "causes", "cases"
    wanted = rows(tmp_path / "whole", *tables)
    assert rows(tmp_path / "parts", *tables) == wanted and len(wanted["comparisons"]) > 5
