"""Digests say what an array holds and not how it lies; a verdict costs the same few runs."""

import numpy as np
import pytest

from probe.diff import difference
from probe.diff.difference import measure_pairs
from probe.diff.walk import walk
from probe.record.ndarray import ArrayRecorder
from probe.record.recording import array_digest, record_run
from tests.diff.test_alone import SHAPE, compared, planted
from tests.record.taped import Taped, normal

X = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)


@pytest.mark.parametrize("shape", [(), (0, 3), (7,), (3, 5), (700, 3, 333)])
def test_a_digest_is_of_the_bits_and_not_of_their_place(shape):
    array = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    turned = np.array(array.T, order="C").T
    assert array_digest(array) == array_digest(turned) and len(array_digest(array)) == 32
    if array.size:
        other = np.array(turned, order="K")
        other[(-1,) * other.ndim] *= -1  # the last element's sign alone
        assert array_digest(other) != array_digest(array)
        assert array_digest(-0.0 * np.abs(array)) != array_digest(0.0 * np.abs(array))


class Counted(ArrayRecorder):
    """Counts the watched runs."""

    runs = 0

    def record(self, visit):
        self.runs += 1
        return super().record(visit)


def runs(*wrong):
    """Watched runs of both sides for a verdict, and the names of what differs by itself."""
    left, right = Counted(planted(), X), Counted(planted(*wrong), X)
    found = walk(left, right)
    names = [one.name for one in found.operations if one.differing_alone or one.verdict == "source"]
    return (left.runs, right.runs), names


def test_more_sources_cost_no_more_runs():
    two, three = runs(0, 3), runs(0, 1, 3)
    assert two[1] == ["step0", "step3"] and three[1] == ["step0", "step1", "step3"]
    assert two[0] == three[0] == (2, 2)  # and one unwatched


def test_a_value_that_is_paired_twice_is_compared_as_each_pair_says():
    found = compared(X, 0, rows=1)
    (one,) = (one for one in found.operations if one.verdict == "source")
    pair = one.gives[0]
    rest = pair.selection.restricted_to(np.array(False), found.left.values[pair.left].shape)
    twice = [
        difference.ValuePair(pair.left, pair.right, chosen, True)
        for chosen in (pair.selection, rest)
    ]
    for each, count in zip(twice, (pair.compared, 1), strict=True):
        each.compared = count
    measure_pairs(found.left, found.right, twice)
    assert [each.differing for each in twice] == [pair.differing, 0]


def test_names_of_a_model_can_not_steer_a_terminal():
    """A line end in a node's name began a line of its own in all that is printed."""

    def program(tape):
        tape.path = "block\n\x1b[31mred"
        return tape.dense(X, tape.weight(normal(6, 4, seed=1), "w\r\u202e"))

    run = record_run(Taped(program))
    assert run.operations[0].path == run.operations[0].name == "block\\n\\x1b[31mred"
    assert "w\\r\\u202e" in [value.name for value in run.values]
