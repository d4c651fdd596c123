"""Enclosures of operations from their semantics: libraries stay inside, wrong results do not."""

from __future__ import annotations

import numpy as np
import pytest

from probe.case import floats
from probe.diff.enclosed import ULPS, Interval, enclosed
from probe.order.semantics import Moves, Step, Steps, Unknown, Windows
from probe.order.semantics import operations as o

torch = pytest.importorskip("torch")
F = torch.nn.functional

X = torch.tensor(np.random.default_rng(0).normal(size=(6, 40)) * 3, dtype=torch.float32)
Y = torch.tensor(np.random.default_rng(1).normal(size=(6, 40)), dtype=torch.float32)
W, B, MEAN = (
    torch.tensor(np.random.default_rng(seed).normal(size=40), dtype=torch.float32)
    for seed in (2, 3, 4)
)
VARIANCE = B.abs() + 0.1
PICTURES = torch.tensor(np.random.default_rng(5).normal(size=(2, 4, 9, 7)), dtype=torch.float32)


def pool(kind, kernel, stride, padding, dilation=(1, 1), counts_padding=False):
    frame = (kernel, stride, dilation, padding)
    return Windows((2, 3), 1, *frame, kind, counts_padding=counts_padding)


OPERATIONS = {
    "matmul": (o.matmul(), [X, Y.T.contiguous()], torch.matmul),
    "dense": (o.dense((0, 1), 2), [X, Y, B[:6].clone()], F.linear),
    "sum": (o.reduced("sum", (1,)), [X], lambda x: x.sum(1)),
    "mean": (o.reduced("mean", (0,)), [X], lambda x: x.mean(0, keepdim=True)),
    "max": (o.reduced("max", (1,)), [X], lambda x: x.amax(1)),
    "clip": (o.clip(-1.0, 2.0), [X], lambda x: x.clamp(-1, 2)),
    **{
        name: (o.function(name), [X], getattr(F, name, None) or getattr(torch, name))
        for name in "exp tanh sigmoid erf relu".split()
    },
    "log1p": (o.function("log1p"), [VARIANCE], torch.log1p),
    "rsqrt": (o.function("rsqrt"), [VARIANCE], torch.rsqrt),
    "add": (o.function("add"), [X, Y], torch.add),
    "multiply": (o.function("multiply"), [X, W], torch.mul),
    "divide": (o.function("divide"), [X, Y], torch.div),
    "transpose": (o.transpose((1, 0)), [X], lambda x: x.T.contiguous()),
    "square": (o.function("square"), [X], torch.square),
    "squared_difference": (o.function("squared_difference"), [X, Y], lambda x, y: (x - y) ** 2),
    "reciprocal": (o.function("reciprocal"), [VARIANCE], torch.reciprocal),
    "max_pool": (
        pool("max", (3, 3), (2, 2), ((1, 1), (1, 1)), (1, 2)),
        [PICTURES],
        lambda x: F.max_pool2d(x, 3, 2, 1, (1, 2)),
    ),
    "avg_pool": (
        pool("average", (3, 2), (2, 1), ((1, 1), (0, 0))),
        [PICTURES],
        lambda x: F.avg_pool2d(x, (3, 2), (2, 1), (1, 0), count_include_pad=False),
    ),
    "avg_pool over padding": (
        pool("average", (3, 2), (2, 1), ((1, 1), (0, 0)), counts_padding=True),
        [PICTURES],
        lambda x: F.avg_pool2d(x, (3, 2), (2, 1), (1, 0)),
    ),
}


def interval(meaning, reads, y, dtype="float32"):
    given = [Interval.of(one.numpy(), dtype) for one in reads]
    return enclosed(meaning, given, [tuple(y.shape)], dtype)


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_library_stays_inside_and_a_wrong_result_does_not(name):
    meaning, reads, run = OPERATIONS[name]
    y = run(*reads).numpy()
    found = interval(meaning, reads, y)
    for right in (y, run(*(one.double() for one in reads)).float().numpy()):
        assert ((found.low <= right) & (right <= found.high)).all()
    # off by a thousandth of the largest result: more than any of these is allowed to be
    far = np.float32(np.abs(y).max() / 1000)
    for wrong in (y + far, y - far):
        assert ((wrong < found.low) | (found.high < wrong)).mean() > 0.95


@pytest.mark.parametrize("name", "exp tanh erf sigmoid".split())
def test_a_function_may_err_by_as_many_units_as_are_stated(name):
    meaning, reads, run = OPERATIONS[name]
    y = run(*(one.double() for one in reads)).numpy()
    found = interval(meaning, reads, y)
    for by in ((ULPS - 1) * sign * floats.eps("float32") for sign in (-1, 1)):
        wrong = (y + by * np.abs(y)).astype(np.float32)
        assert ((found.low <= wrong) & (wrong <= found.high)).all()


def test_steps_are_enclosed_whether_rounded_between_or_not():
    """A product, a bias and a ReLU: fused, or one after the other."""
    x, w, b = X, Y, B[:6].clone()
    parts = (o.dense((0, 1)), (0, 1)), (o.function("add"), (3, 2)), (o.function("relu"), (4,))
    steps = Steps(tuple(Step(one, reads, (6, 6)) for one, reads in parts))
    wide = F.linear(x.double(), w.double(), b.double()).float()
    for y in map(F.relu, (F.linear(x, w, b), F.linear(x, w) + b, wide)):
        found = interval(steps, [x, w, b], y)
        assert ((found.low <= y.numpy()) & (y.numpy() <= found.high)).all()


def test_what_is_not_known_is_not_enclosed():
    assert interval(Unknown(), [X], X) is None
    assert interval(o.function("lgamma"), [X], X) is None
    assert interval(Moves(), [X], X) is None
    assert np.isnan(interval(o.function("divide"), [X, torch.zeros_like(X)], X).low).all()
    for meaning in (
        o.function("gelu"),
        o.normalised("softmax", (1,)),
        o.function("elu"),
        o.power(3.0),
    ):
        assert interval(meaning, [X], X) is None


@pytest.mark.parametrize("name", "square absolute negative".split())
def test_functions_that_rise_and_fall_stay_inside_of_wide_intervals(name):
    given = np.linspace(-8, 8, 4001)
    low, high = given[:-40], given[40:]
    found = enclosed(o.function(name), [Interval(low, high)], [low.shape], "float32")
    for at in range(0, 41, 4):
        point = given[at : at + len(low)]
        exact = enclosed(o.function(name), [Interval(point, point)], [low.shape], "float64")
        middle = floats.nearest((exact.low + exact.high) / 2, "float32")
        assert ((found.low <= middle) & (middle <= found.high)).all()


@pytest.mark.parametrize("number", [0.1, float(np.float32(0.1))])
def test_numbers_are_taken_as_they_were_written_and_as_float32_has_them(number):
    x = np.linspace(-3, 3, 50)
    for meaning, y in ((o.clip(-0.1, 0.1), np.clip(x, -number, number)),):
        found = enclosed(meaning, [Interval(x, x)], [x.shape], "float64")
        assert ((found.low <= y) & (y <= found.high)).all()
        assert (found.high - found.low < 3e-6).all()


def test_a_mean_of_one_number_is_enclosed_as_it_is():
    held = np.array([1.75, -0.1])
    mean = enclosed(o.reduced("mean", (1,)), [Interval(*[held[:, None]] * 2)], [(2,)], "float32")
    assert ((mean.low <= held) & (held <= mean.high) & (mean.high - mean.low < 1e-5)).all()


def test_what_may_be_nan_or_infinite_has_ends_that_say_so():
    inf = np.inf
    ends = [(-inf, -inf), (inf, inf), (-inf, inf), (1.0, 2.0), (0.0, 2.0), (-2.0, 0.0), (-1.0, 2.0)]
    minus, plus, any_, one, above, below, around = (Interval(*np.array([both]).T) for both in ends)

    def found(word, *reads):
        result = enclosed(o.function(word), reads, [(1,)], "float32")
        return result.low[0], result.high[0]

    assert found("add", minus, one) == (-inf, -inf) and found("add", plus, one) == (inf, inf)
    assert np.isnan(found("add", any_, one)).all()
    for pole in (above, below, around):
        assert np.isnan(found("divide", one, pole)).all()
    assert found("divide", one, one) == (0.5, 2)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_formats_are_enclosed(dtype):
    kind = getattr(torch, dtype)
    x, y = X.to(kind), Y.T.contiguous().to(kind)

    def bits(one):
        return one.view(torch.uint16).numpy() if dtype == "bfloat16" else one.numpy()

    for meaning, reads, made in (
        (o.matmul(), [x, y], x @ y),
        (o.function("tanh"), [x], torch.tanh(x)),
    ):
        given = [Interval.of(bits(one), dtype) for one in reads]
        found = enclosed(meaning, given, [tuple(made.shape)], dtype)
        values = floats.widen(bits(made), dtype)
        assert ((found.low <= values) & (values <= found.high)).all()


def test_casts_by_way_of_float32_are_enclosed():
    for dtype in ("float16", "bfloat16"):  # so do PyTorch, JAX, TensorFlow and ml_dtypes
        x = np.array([1 + floats.eps(dtype) / 2 + 2.0**-40])
        found = enclosed(o.function("cast"), [Interval(x, x)], [(1,)], dtype)
        assert (found.low, found.high) == (1, 1 + floats.eps(dtype))
