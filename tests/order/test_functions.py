"""The order in which any Python function adds: ``probe.order(f, n)``."""

from __future__ import annotations

import math

import numpy as np
import pytest

import probe
from probe.case.errors import InputError
from probe.order import functions


def halves(x):
    if len(x) == 1:
        return x[0]
    return halves(x[: len(x) // 2]) + halves(x[len(x) // 2 :])


def in_sequence(x):
    total = x[0]
    for one in x[1:]:
        total = total + one
    return total


def in_place(x):
    while len(x) > 1:
        x[1] += x[0]
        x = x[1:]
    return x[0]


def neumaier(x):
    total = rest = x.dtype.type(0)
    for one in x:
        both = total + one
        rest += (total - both) + one if abs(total) >= abs(one) else (one - both) + total
        total = both
    return total + rest


@pytest.mark.parametrize(
    ("f", "n", "dtype", "tree"),
    [
        (halves, 5, "float32", "((0+1)+(2+(3+4)))"),
        (in_place, 4, "float64", "(((0+1)+2)+3)"),
        (sum, 4, "bfloat16", "(((0+1)+2)+3)"),
        (lambda x: in_sequence(x[::-1]), 4, "float32", "(0+(1+(2+3)))"),
        (lambda x, w: halves(x * w), 4, "bfloat16", "((0+1)+(2+3))"),
    ],
)
def test_the_tree_is_the_functions_own(f, n, tree, dtype):
    found = probe.order(f, n, dtype=dtype)
    told = found.to_json()
    assert found.tree == tree
    assert told["replayed"] == told["outputs"] == 1 and told["orders"][0]["rounding"] == "none"


@pytest.mark.parametrize(("f", "n"), [(np.sum, 40), (np.dot, 17), (np.sum, 1), (np.mean, 1)])
def test_numpys_own_sums_replay(f, n):
    told = probe.order(f, n).to_json()
    assert told["replayed"] == 1 and len(told["orders"]) == 1


@pytest.mark.parametrize(("n", "dtype"), [(3, "float64"), (9, "float32")])
def test_what_nearly_adds_is_neither_known_nor_called_compensated(n, dtype):
    def mean_times_count(x):  # another bit on about one set in twenty
        return in_sequence(x) / x.dtype.type(n) * x.dtype.type(n)

    found = probe.order(mean_times_count, n, dtype=dtype)
    assert found.to_json()["replayed"] == 0 and found.tree is None
    assert "different bits" in repr(found)
    assert "compensated" not in found.to_json()["evidence"]


@pytest.mark.parametrize(("add", "dtype"), [(np.dot, "float16"), (math.fsum, "float64")])
def test_a_clipped_sum_is_no_plain_sum(add, dtype):
    """Nine products of 10 give 50, and the order says 90: it holds for small numbers alone."""

    def clipped(x, *w):
        return x.dtype.type(np.clip(add(x, *w), -50, 50))

    answer = probe.order(clipped, 9, dtype=dtype, products=add is np.dot)
    assert answer.to_json()["orders"] == [] and "exactly rounded" not in repr(answer)
    assert answer.to_json()["sets"] == 0 and answer.found.evidence


@pytest.mark.parametrize("f", [math.fsum, neumaier])
def test_an_exact_sum_is_no_sum_in_one_order(f):
    found = probe.order(f, 9, dtype="float64")
    told = found.to_json()
    assert told["not_a_sum"] == 1 and not told["orders"] and found.tree is None
    if f is math.fsum:
        assert "exactly rounded" in found.lines()[2]
    assert "not a sum in one order" in repr(found) and found._repr_png_() is None
    assert probe.order(math.fsum, 2, dtype="float64").tree == "(0+1)"


def kahan(x):
    total = lost = x.dtype.type(0)
    for one in x:
        one = one - lost
        both = total + one
        total, lost = both, (both - total) - one
    return total


@pytest.mark.parametrize(("n", "dtype"), [(3, "float64"), (9, "float16"), (40, "float32")])
def test_a_compensated_sum_is_named_and_is_no_plain_one(n, dtype):
    """Of three float64 numbers, too: generated ones have so few bits that any formula adds them."""
    found = probe.order(kahan, n, dtype=dtype)
    assert found.tree is None and found.to_json()["replayed"] == 0
    assert f"the bits of Kahan's sum in {dtype}" in found.to_json()["evidence"]


@pytest.mark.parametrize("f", [np.max, np.prod, lambda x: x[0] * x[1], lambda x: x[0]])
def test_what_is_no_sum_is_said_to_be_none(f):
    told = probe.order(f, 5).to_json()
    assert not told["orders"] and told["not_a_sum"] == 1 and told["evidence"]
    assert "exactly rounded" not in told["evidence"]


def test_what_can_not_be_asked_is_an_input_error():
    wrong = {
        "f=fsum: of 9 float32 numbers it returned .* which is not a float32": (math.fsum, 9),
        "f=cumsum: .* 4 numbers, not one": (np.cumsum, 4),
        "f=str: .* it returned str, not a number": (str, 4),
        "f=<lambda>: .* raises IndexError": (lambda x: x[7], 4),
        "n=0: it is less than 1": (np.sum, 0),
        r"n=\(none\): the number of summands is required": (np.sum,),
        "what=3: int is neither a case nor a function": (3, 4),
    }
    for message, given in wrong.items():
        with pytest.raises(InputError, match=message):
            probe.order(*given)
    with pytest.raises(InputError, match="n=9: a case defines how many products"):
        probe.order(probe.Case("sum", in_channels=4, length=1), "reference", n=9)


def test_compensated_sums_are_told_apart():
    for n in (5, 20):
        case = functions.case_of_function(neumaier, n, "float64")
        assert functions.compensated(neumaier, case) == "Neumaier's sum in float64"
        assert not functions.exactly_rounded(neumaier, case)
    assert functions.compensated(lambda x: kahan(x[::-1]), case) == ""
