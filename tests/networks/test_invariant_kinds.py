"""What is done with an operation follows from what it computes: no list names operations."""

from __future__ import annotations

import pytest

from probe import semantics as s
from probe import stable
from probe.invariant.kinds import OperationKind, apart, kind_of
from probe.semantics import operations as o

KINDS = {
    "moves": (o.transpose((1, 0)), OperationKind.EXACT),
    "rounds once": (o.function("add"), OperationKind.EXACT),
    "rounds a product and a sum": (o.function("add", alpha=0.3), OperationKind.PLACE),
    "slope of its own": (o.leaky_relu(0.3), OperationKind.EXACT),
    "quotient and floor": (o.function("divide", rounding_mode="floor"), OperationKind.PLACE),
    "a difference and its square": (o.function("squared_difference"), OperationKind.EXACT),
    "chooses between zeros": (o.function("maximum"), OperationKind.EITHER),
    "the largest of an axis": (o.reduced("amax", (1,)), OperationKind.EITHER),
    "the library chooses how": (o.function("tanh"), OperationKind.PLACE),
    "not as IEEE 754 asks": (o.approximate("sqrt"), OperationKind.PLACE),
    "complex": (s.of_complex(o.function("multiply")), OperationKind.PLACE),
    "adds": (o.reduced("sum", (1,)), OperationKind.SOME),
    "unknown": (s.Unknown("nobody knows"), OperationKind.SOME),
}


@pytest.mark.parametrize("name", KINDS)
def test_what_is_computed_says_what_is_done(name):
    meaning, kind = KINDS[name]
    assert kind_of(meaning) is kind


APART = {
    "a sum of each": (o.reduced("sum", (1,)), (2,), True),
    "a sum of all": (o.reduced("sum", (0, 1)), (2,), False),
    "a sum of the batch": (o.reduced("sum", (0,), True), (2, 3), False),
    "a softmax of rows": (o.softmax((1,)), (2, 3), True),
    "a softmax of the batch": (o.softmax((0,)), (2, 3), False),
    "cumulated along rows": (o.cumulated("cumsum", 1), (2, 3), True),
    "cumulated along the batch": (o.cumulated("cumsum", 0), (2, 3), False),
    "unknown": (s.Unknown("nobody knows"), (2, 3), False),
}


@pytest.mark.parametrize("name", APART)
def test_labels_say_whether_a_sample_reads_another(name):
    meaning, gives, wanted = APART[name]
    assert apart(meaning, [(2, 3)], [gives], (True,)) is wanted


def left(torch, function, *inputs):
    class Model(torch.nn.Module):
        def forward(self, *given):
            return function(*given)

    model, report = stable.invariant(Model().eval())
    for x in inputs:
        model(x)
    return [one.split()[0] for one in report.left], [one.operation for one in report.rows]


@pytest.mark.check
def test_numbers_decide_whether_a_power_is_exact():
    """A square is; a cube is asked by its place, also where a square was met first."""
    torch = pytest.importorskip("torch")
    names, rows = left(torch, lambda x: x**2 + x**3, torch.randn(4, 5))
    assert not names and rows == ["pow 3 by place float32"]


def test_a_function_that_is_exact_at_one_call_is_asked_again_at_another():
    torch = pytest.importorskip("torch")

    def matrices(x):
        return torch.linalg.matrix_power(x, 1) + torch.linalg.matrix_power(x, 3)

    _, rows = left(torch, matrices, torch.randn(4, 3, 3))
    assert rows  # its products
    resized = torch.nn.functional.interpolate
    names, rows = left(
        torch,
        lambda x: resized(x, 8, mode="nearest") + resized(x, 8, mode="linear"),
        torch.randn(4, 2, 5),
    )
    assert not names and [one.split()[0] for one in rows] == ["upsample_linear1d"]


def test_products_of_complex_numbers_inside_are_reported():
    """Real ones were met first, so the function itself is known to be exact of real numbers."""
    torch = pytest.importorskip("torch")

    def turned(x):
        both = torch.view_as_complex((x * 2).reshape(len(x), -1, 2))
        return torch.view_as_real(both * both).flatten(1)

    names, _ = left(torch, turned, *torch.randn(2, 4, 6))
    assert names == ["mul"]


def test_elements_that_are_written_into_one_place_are_reported():
    torch = pytest.importorskip("torch")

    def written(x):
        places = torch.arange(len(x))[:, None].expand_as(x), torch.arange(x.shape[1]) // 2
        return torch.index_put(x.new_zeros(len(x), 4), places, x)

    assert left(torch, written, torch.randn(3, 4))[0] == ["index_put"]


def test_dropout_that_is_never_switched_off_is_reported():
    torch = pytest.importorskip("torch")
    dropout = torch.nn.functional.dropout
    assert left(torch, lambda x: dropout(x, 0.5, True), torch.randn(3, 4))[0]
