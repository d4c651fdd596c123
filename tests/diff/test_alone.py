"""What differs by itself behind the first source is found, and nothing else is said to."""

import numpy as np
import pytest

import probe
from probe.case.errors import InputError
from probe.diff import alone
from probe.diff.difference import compare_runs
from probe.diff.match import RunningMatch
from probe.order.semantics import Each
from probe.record.recorders.ndarray import ArrayRecorder, operation
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
    assert [one.name for one in found.operations if one.own] == expected
    for one in found.operations:
        assert one.own is None or one.own in (0, x.size)


def test_as_a_source_it_has_the_differences_of_its_own_alone():
    x = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)
    found = compared(x, 0, 3)
    left, right = found.left, found.right
    alone.find_own_differences(found)
    last = found.operations[-1]
    side, source = alone.as_source(last, left, right)
    assert source.verdict == "source" and source.differing == last.own == x.size
    assert source.max_ulp == 1 and last.verdict == "carried"
    (read,) = source.reads
    healed = side.arrays({read.right})[read.right]
    assert np.array_equal(healed, left.arrays({read.left})[read.left])
    assert not np.array_equal(healed, right.arrays({read.right})[read.right])


def halved(x):
    """Half of each number, and a little more in batches of three."""
    y = np.asarray(x) * np.float32(0.5)
    return np.nextafter(y, np.float32(9)) if len(y) == 3 else y


def test_other_sizes_are_said_to_have_the_bits_or_not():
    x = np.random.default_rng(2).standard_normal((8, 5)).astype(np.float32)
    model = operation("half", Each("half"))(halved)
    words = {"vary": "batch", "at": 1, "against": 8, "inputs": {"x": x}}
    found = probe.network(lambda x: model(x), sizes=range(1, 9), **words)
    said = {one["at"]: one["verdict"] for one in found.to_json()["sizes"]}
    assert said == {n: "differs" if n == 3 else "equal" for n in range(1, 8)}
    assert found.to_json()["sets"] == 0 and found.verdict == "equal"
    assert "the bits of batch 8: 1, 2, 4..7; different bits: 3" in found.same_bits()
    with pytest.raises(InputError, match=r"sizes=.*give vary="):
        probe.network("module:function", "numpy", sizes=[2], **words)


def test_functions_that_lines_begin_with_are_defined_once():
    """A jitted one would be compiled anew for each question; a list as a default counts them."""
    lines = ["def program(a, seen=[]):", "    seen.append(a)", "    return a + len(seen)", ""]
    lines += ["y = program(x0)"]
    given = np.float32([1, 2])
    found = [alone.run_lines((), lines, [given * n], ["float32"])[0].tolist() for n in (1, 2)]
    assert found == [[2, 3], [4, 6]]
