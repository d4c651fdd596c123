"""What each of PyTorch's operations is in the invariant mode, by its arguments."""

from __future__ import annotations

import numpy as np
import pytest

from probe.sizes import stable
from tests.sizes.invariant.models import dependent, differing, ends, module, of

FUNCTIONS = {
    "pow": lambda torch, x: 2.0**x,
    "remainder": lambda torch, x: torch.remainder(2.0, x),
    "xlogy": lambda torch, x: torch.xlogy(2.0, x),
    "xlog1py": lambda torch, x: torch.special.xlog1py(2.0, x),
    "zeta": lambda torch, x: torch.special.zeta(2.5, x + 1),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_of_a_number_and_elements_is_that_function(torch, name):
    x = torch.rand(8, 37, generator=torch.Generator().manual_seed(5)) + 0.1
    model, report = stable.invariant(of(torch, lambda x: FUNCTIONS[name](torch, x)), [1, 8])
    torch.testing.assert_close(model(x), FUNCTIONS[name](torch, x), rtol=1e-6, atol=1e-6)
    assert not dependent(model, x, parts=[(3, 1)]) and report.complete, report


CALLS = {
    "linear by name": lambda f, x, w: f.linear(x, weight=w, bias=w[:, 0]),
    "input by name": lambda f, x, w: f.linear(input=x, weight=w),
    "matmul": lambda f, x, w: x @ w.t(),
    "rows of several axes": lambda f, x, w: x.unflatten(1, (3, 11)).matmul(w[:, :11].t()),
    "bmm": lambda f, x, w: (x[:, :, None] @ x[:, None, :7]).flatten(1),
    "conv1d": lambda f, x, w: f.conv1d(x[:, None], w[:4, None, :5], w[:4, 9], padding=2),
    "conv1d, a list": lambda f, x, w: f.conv1d(x[:, None], w[:4, None, :5], stride=[2]),
    "conv1d, same": lambda f, x, w: f.conv1d(x[:, None], w[:4, None, :5], padding="same"),
    "conv2d": lambda f, x, w: f.conv2d(
        x.view(-1, 1, 3, 11), w[:8, :9].view(8, 1, 3, 3), None, (1, 2)
    ),
    "grouped": lambda f, x, w: f.conv1d(x.view(-1, 3, 11), w[:6, None, :3], groups=3, dilation=2),
    "transposed": lambda f, x, w: f.conv_transpose1d(
        x.view(-1, 3, 11), w[:3, :12].view(3, 4, 3), dilation=2
    ),
    "batch_norm": lambda f, x, w: f.batch_norm(x, w[0], w[1].abs(), weight=w[2], eps=1e-3),
    "softmax": lambda f, x, w: f.softmax(x, 1) + x.softmax(dim=-1).log(),
    "elements": lambda f, x, w: f.silu(x, inplace=False) + x.sigmoid().tanh(),
    "in place": lambda f, x, w: f.silu(x.clone(), inplace=True),
    "glu": lambda f, x, w: f.glu(f.prelu(x[:, 1:], w[0, :1])),
    "instance_norm": lambda f, x, w: f.instance_norm(x.view(-1, 3, 11), weight=w[0, :3]).mean(2),
    "powers": lambda f, x, w: 1.37**x + x.abs() ** 1.3,
}


@pytest.mark.parametrize("name", CALLS)
def test_a_function_keeps_its_largest_bits_however_it_is_called(torch, name):
    plain = of(torch, lambda x: CALLS[name](torch.nn.functional, x, plain.w))
    plain.w = torch.nn.Parameter(torch.randn(33, 33))
    model, report = stable.invariant(plain, (1, 48), strict=name != "bmm")
    x = torch.randn(48, 33)
    with torch.no_grad():
        native = plain(x)
    for _ in range(2):  # what is found at the first call is called at once the second time
        whole = model(x)
        assert report.table.notes or differing(torch, whole, native) == 0
        assert not dependent(model, x, parts=[(0, 1), (5, 2), (20, 27)])
        assert differing(torch, model(x.t().clone().t()[3:9]), whole[3:9]) == 0


def test_a_result_that_is_written_elsewhere_is_reported(torch):
    written = of(torch, lambda x: torch.mm(x, x.t(), out=torch.empty(len(x), len(x))))
    _, report = stable.invariant(written, (1, 8), example=torch.randn(8, 3))
    assert any("mm" in name for name in report.left)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_zeros_of_maxima_have_one_sign_at_every_place(torch, dtype):
    def maxima(x):
        low = torch.maximum(x, -x).amax(1)
        return low, torch.minimum(x, -x), torch.clamp(x, -x, x), x.max(1).values

    zeros = torch.tensor([0.0, -0.0], dtype=getattr(torch, dtype))
    x = zeros[torch.randint(2, (41, 19), generator=torch.Generator().manual_seed(2))]
    x[:, 3] = 1
    model, report = stable.invariant(of(torch, maxima), (1, 41), example=x)
    whole = model(x)
    for count in (1, 2, 7, 16, 17, 40):
        for part, all_of in zip(model(x[:count]), whole, strict=True):
            assert torch.equal(torch.signbit(part), torch.signbit(all_of[:count]))
    assert not report.left


def test_sums_into_places_and_complex_numbers_are_not_called_exact(torch):
    def sums(x, add):
        places = torch.arange(len(x))[:, None].expand_as(x), torch.arange(x.shape[1]) % 2
        return torch.index_put(x.new_zeros(len(x), 2), places, x, accumulate=add)

    model, report = stable.invariant(of(torch, sums))
    model(torch.randn(4, 2), False)
    assert report.complete
    model(torch.randn(4, 6), True)
    assert [one.split()[0] for one in report.left] == ["index_put"]
    linear = torch.nn.Linear(3, 4, dtype=torch.complex64).eval()
    model, report = stable.invariant(linear)
    x = torch.randn(2, 3, dtype=torch.complex64)
    assert torch.equal(model(x), linear(x))
    assert [one.partition(" of ")[0] for one in report.left] == ["addmm"]


def test_functions_have_a_class_where_few_samples_are_named(torch):
    """A vector is longer than the samples: it is elements that are counted."""
    model, report = stable.invariant(torch.nn.Sigmoid().eval(), sizes=range(1, 5))
    rows = [(row, 1) for row in range(13)]
    assert not dependent(model, torch.randn(13, 33), parts=rows) and report.complete


def test_an_operation_of_somebody_else_is_not_known_by_its_name(torch):
    with torch.library._scoped_library("probe_mine", "DEF") as library:
        for name in ("gather", "view", "avg_pool2d"):
            library.define(f"{name}(Tensor x, Tensor w) -> Tensor")
            library.impl(name, lambda x, w: torch.mm(x, w), "CPU")
            called = getattr(torch.ops.probe_mine, name)
            for one in (called, called.default):
                plain = module(torch, lambda layer, x, one=one: one(layer(x), x[0, :7, None] * 1))
                _, report = stable.invariant(plain, (1, 8), example=torch.randn(8, 12))
                assert any(f"probe_mine::{name}" in left for left in report.left), report


def left(torch, function, *inputs):
    model, report = stable.invariant(of(torch, function))
    for x in inputs:
        model(x)
    return [one.split()[0] for one in report.left], [one.operation for one in report.rows]


@pytest.mark.check
def test_numbers_decide_whether_a_power_is_exact(torch):
    """A square is; a cube is asked by its place, also where a square was met first."""
    names, rows = left(torch, lambda x: x**2 + x**3, torch.randn(4, 5))
    assert not names and rows == ["pow 3 by place float32"]


def test_a_function_that_is_exact_at_one_call_is_asked_again_at_another(torch):
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


def test_complex_numbers_inside_are_reported(torch):
    """Real ones were met first, so the function itself is known to be exact of real numbers."""

    def turned(x):
        both = torch.view_as_complex((x * 2).reshape(len(x), -1, 2))
        return torch.view_as_real(both * both).flatten(1) + torch.fft.rfft(x).abs()[:, :1]

    names, _ = left(torch, turned, *torch.randn(2, 4, 6))
    assert names == ["mul", "_fft_r2c", "abs"]


def test_elements_that_are_written_into_one_place_are_reported(torch):
    def written(x):
        places = torch.arange(len(x))[:, None].expand_as(x), torch.arange(x.shape[1]) // 2
        return torch.index_put(x.new_zeros(len(x), 4), places, x)

    assert left(torch, written, torch.randn(3, 4))[0] == ["index_put"]


def test_a_write_by_places_is_reported_behind_writes_of_slices(torch):
    """The same function of Python's, an index of two: slices are exact, and a place may be named
    twice."""

    def written(x):
        y = x.new_zeros(len(x), 8)
        y[:, 0:4] = x
        y[:, 4:8] = x
        y[:, torch.tensor([0, 1, 1, 0])] = x
        return y

    names, _ = left(torch, written, torch.randn(3, 4))
    assert [name for name in names if name.startswith("index_put")]


def test_dropout_that_is_never_switched_off_is_reported(torch):
    dropout = torch.nn.functional.dropout
    assert left(torch, lambda x: dropout(x, 0.5, True), torch.randn(3, 4))[0]


def several(torch):
    """Functions of several operands, and the shapes of what each takes."""
    cdist, weights = torch.cdist, torch.nn.Parameter(torch.randn(30, 33))
    places, bilinear = torch.arange(33) % 5, torch.nn.Bilinear(9, 7, 5)
    return {
        "cdist": (lambda x, y: cdist(x, y), [(9, 33), (7, 33)]),
        "cdist of centres": (lambda x: cdist(x, weights), [(33,)]),
        "cdist by sums": (lambda x: cdist(x, weights, p=1), [(33,)]),
        "Bilinear": (bilinear, [(9,), (7,)]),
        "Bilinear of places": (bilinear, [(3, 9), (3, 7)]),
        "index_add": (lambda x: x.new_zeros(len(x), 5).index_add(1, places, x), [(33,)]),
        "hypot": (torch.hypot, [(7,), (7,)]),
        "atan2": (lambda x, y: torch.atan2(x.t(), y.t()).t(), [(7,), (7,)]),
        "pow": (lambda x, y: x.abs() ** (y / 8), [(2, 5), (1, 5)]),
    }


NAMES = (
    *("cdist", "cdist of centres", "cdist by sums", "Bilinear", "Bilinear of places", "index_add"),
    *("hypot", "atan2", "pow"),
)


@pytest.mark.parametrize("name", NAMES)
def test_functions_of_several_operands_keep_their_bits(torch, name):
    function, shapes = several(torch)[name]
    draw = np.random.default_rng(5)

    numbers = [draw.normal(size=(40, *shape)) for shape in shapes]
    numbers = [one * np.exp2(draw.integers(-6, 7, one.shape)) for one in numbers]
    given = [torch.from_numpy(one.astype("float32")) for one in numbers]
    model, report = stable.invariant(of(torch, function), (1, 40), example=tuple(given))
    with torch.no_grad():
        wanted = function(*given)
    assert torch.allclose(model(*given), wanted, rtol=1e-3, atol=1e-3 * float(wanted.abs().max()))
    assert not dependent(model, *given, parts=ends(40, 1, 2, 3, 7, 15, 26, 39))
    assert report.complete, report


def test_a_shape_among_the_arguments_is_that_of_all_samples(torch):
    """Of large tensors two samples are asked about, to which the shape of all can't be given."""
    from probe.sizes.invariant.operations import OperationKind
    from probe.sizes.invariant.torch_operations import LARGE, Kinds

    whole = torch.zeros(9 * 130, 123)  # rows of a GRU, or of a batch of 32 sentences
    kind = Kinds()(torch.ops.aten._unsafe_view.default, (whole, [9, 130, 123]), {})
    assert whole.numel() >= LARGE and kind is OperationKind.EXACT
