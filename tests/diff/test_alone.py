"""What differs by itself behind the first source is found, and nothing else is said to."""

import numpy as np
import pytest

from probe.diff import alone
from probe.diff.difference import compare_runs
from probe.diff.match import RunningMatch
from probe.order.semantics import Each
from probe.record.ndarray import ArrayRecorder, operation
from probe.record.recording import record_run

SHAPE = (3, 40)


def planted(*wrong):
    """Four functions in a row, those in ``wrong`` with their last bit turned."""

    def model(x):
        for number, function in enumerate((np.sin, np.exp, np.negative, np.cos)):
            turned = lambda y, f=function: np.nextafter(f(np.asarray(y)), np.float32(9))  # noqa: E731
            run = turned if number in wrong else function
            x = operation(f"step{number}", Each(function.__name__))(run)(x)
        return x

    return model


def compared(x, *wrong, rows=None):
    """The functions on some rows against those with what is wrong on all of them."""
    sides = ArrayRecorder(planted(), x[:rows]), ArrayRecorder(planted(*wrong), x)
    return compare_runs(RunningMatch.of(*map(record_run, sides)))


@pytest.mark.parametrize(
    ("wrong", "expected"), [((0,), []), ((0, 3), ["step3"]), ((0, 1, 3), ["step1", "step3"])]
)
def test_a_second_difference_is_found_behind_the_first(wrong, expected):
    x = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    found = compared(x, *wrong)
    assert found.first.name == f"step{wrong[0]}"
    asked, able = alone.find_own_differences(found)
    assert asked == able == 3 - wrong[0]
    assert [one.name for one in found.operations if one.differing_alone] == expected
    for one in found.operations:
        assert one.differing_alone is None or one.differing_alone in (0, x.size)


def test_as_a_source_it_has_the_differences_of_its_own_alone():
    x = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)
    found = compared(x, 0, 3)
    left, right = found.left, found.right
    alone.find_own_differences(found)
    last = found.operations[-1]
    side, source = alone.as_source(last, left, right)
    assert source.verdict == "source" and source.differing == last.differing_alone == x.size
    assert source.max_ulp == 1 and last.verdict == "carried"
    (read,) = source.reads
    healed = side.arrays({read.right})[read.right]
    assert np.array_equal(healed, left.arrays({read.left})[read.left])
    assert not np.array_equal(healed, right.arrays({read.right})[read.right])


def test_functions_that_lines_begin_with_are_defined_once():
    """A jitted one would be compiled anew for each question; a list as a default counts them."""
    lines = ["def program(a, seen=[]):", "    seen.append(a)", "    return a + len(seen)", ""]
    lines += ["y = program(x0)"]
    given = np.float32([1, 2])
    found = [alone.run_lines((), lines, [given * n], ["float32"])[0].tolist() for n in (1, 2)]
    assert found == [[2, 3], [4, 6]]
