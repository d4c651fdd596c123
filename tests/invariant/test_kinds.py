"""What is done with an operation follows from what it computes: no list names operations."""

from __future__ import annotations

import numpy as np
import pytest

from probe import semantics as s
from probe import stable
from probe.invariant.operations import OperationKind, operation_kind, samples_apart
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
    assert operation_kind(meaning) is kind


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
    assert samples_apart(meaning, [(2, 3)], [gives], (True,)) is wanted


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


def several(torch):
    """Functions of several operands, or of complex numbers, and the shapes of what each takes."""
    cdist, fft, weights = torch.cdist, torch.fft, torch.nn.Parameter(torch.randn(30, 33))
    places, bilinear = torch.arange(33) % 5, torch.nn.Bilinear(9, 7, 5)
    return {
        "cdist": (lambda x, y: cdist(x, y), [(9, 33), (7, 33)]),
        "cdist of centres": (lambda x: cdist(x, weights), [(33,)]),
        "cdist by sums": (lambda x: cdist(x, weights, p=1), [(33,)]),
        "Bilinear": (bilinear, [(9,), (7,)]),
        "Bilinear of places": (bilinear, [(3, 9), (3, 7)]),
        "index_add": (lambda x: x.new_zeros(len(x), 5).index_add(1, places, x), [(33,)]),
        "fft": (lambda x: fft.fft(x).imag, [(33,)]),
        "irfft": (lambda x: fft.irfft(fft.rfft(x), n=30), [(4, 33)]),
        "fft2": (lambda x: torch.view_as_real(fft.fft2(x)), [(8, 6)]),
        "hypot": (torch.hypot, [(7,), (7,)]),
        "atan2": (lambda x, y: torch.atan2(x.t(), y.t()).t(), [(7,), (7,)]),
        "pow": (lambda x, y: x.abs() ** (y / 8), [(2, 5), (1, 5)]),
    }


NAMES = (
    *("cdist", "cdist of centres", "cdist by sums", "Bilinear", "Bilinear of places", "index_add"),
    *("fft", "irfft", "fft2", "hypot", "atan2", "pow"),
)


@pytest.mark.parametrize("name", NAMES)
def test_functions_of_several_operands_keep_their_bits(name):
    torch = pytest.importorskip("torch")
    function, shapes = several(torch)[name]
    draw = np.random.default_rng(5)

    class Called(torch.nn.Module):
        def forward(self, *given):
            return function(*given)

    numbers = [draw.normal(size=(40, *shape)) for shape in shapes]
    numbers = [one * np.exp2(draw.integers(-6, 7, one.shape)) for one in numbers]
    given = [torch.from_numpy(one.astype("float32")) for one in numbers]
    model, report = stable.invariant(Called().eval(), (1, 40), example=tuple(given))
    whole = model(*given)
    assert report.complete, report
    with torch.no_grad():
        wanted = function(*given)
    assert torch.allclose(whole, wanted, rtol=1e-3, atol=1e-3 * float(wanted.abs().max()))
    for size in (1, 2, 3, 7, 15, 26, 39):
        for start in (0, 40 - size):
            part = model(*(one[start : start + size] for one in given))
            assert torch.equal(part, whole[start : start + size]), (size, start)


def test_what_is_left_says_what_to_do_instead():
    torch = pytest.importorskip("torch")
    x, places = torch.randn(4, 6), torch.arange(24).view(4, 6) % 3

    def said(function, *given):
        class Called(torch.nn.Module):
            def forward(self, *given):
                return function(*given)

        _, report = stable.invariant(Called().eval(), (1, 4), example=given)
        (why,) = set(report.left.values())
        return why

    def added(x, places):
        return x.new_zeros(len(x), 3).scatter_reduce(1, places, x, "sum")

    assert "one_hot" in said(added, x, places)
    assert "torch.view_as_real" in said(lambda x: torch.fft.rfft(x).abs(), x)
    assert "outside of the model" in said(lambda x: x - x.std(0), x)
