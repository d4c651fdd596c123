"""Enclosures of operations from their semantics: libraries stay inside, wrong results do not."""

from __future__ import annotations

import numpy as np
import pytest

from probe import floats
from probe.enclosure.operations import ULPS, Interval, enclosed
from probe.semantics import Moves, Step, Steps, Unknown, Windows
from probe.semantics import operations as o

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
    "softmax": (o.softmax((1,)), [X], lambda x: F.softmax(x, 1)),
    "log_softmax": (o.log_softmax((1,)), [X], lambda x: F.log_softmax(x, 1)),
    "layer_norm": (o.norm((1,), 1e-5), [X, W, B], lambda x, w, b: F.layer_norm(x, (40,), w, b)),
    "rms_norm": (
        o.norm((1,), 1e-5, True, False, "rms_norm"),
        [X, W],
        lambda x, w: F.rms_norm(x, (40,), w, 1e-5),
    ),
    "batch_norm": (
        o.batch_norm(1e-5, along=1),
        [X, W, B, MEAN, VARIANCE],
        lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b, False, 0, 1e-5),
    ),
    "matmul": (o.matmul(), [X, Y.T.contiguous()], torch.matmul),
    "dense": (o.dense((0, 1), 2), [X, Y, B[:6].clone()], F.linear),
    "sum": (o.reduced("sum", (1,)), [X], lambda x: x.sum(1)),
    "mean": (o.reduced("mean", (0,), True), [X], lambda x: x.mean(0, keepdim=True)),
    "max": (o.reduced("max", (1,)), [X], lambda x: x.amax(1)),
    "elu": (o.elu(), [X], F.elu),
    "hard_swish": (o.function("hard_swish"), [X], F.hardswish),
    "leaky_relu": (o.leaky_relu(0.1), [X], lambda x: F.leaky_relu(x, 0.1)),
    "clip": (o.clip(-1.0, 2.0), [X], lambda x: x.clamp(-1, 2)),
    **{
        name: (o.function(name), [X], getattr(F, name, None) or getattr(torch, name))
        for name in "exp tanh sigmoid silu gelu erf sin cos softplus mish relu".split()
    },
    "log1p": (o.function("log1p"), [VARIANCE], torch.log1p),
    "rsqrt": (o.function("rsqrt"), [VARIANCE], torch.rsqrt),
    "add": (o.function("add"), [X, Y], torch.add),
    "multiply": (o.function("multiply"), [X, W], torch.mul),
    "divide": (o.function("divide"), [X, Y], torch.div),
    "transpose": (o.transpose((1, 0)), [X], lambda x: x.T.contiguous()),
    "group_norm": (
        o.norm((1, 2, 3), 1e-5, groups=(1, 2), word="group_norm"),
        [PICTURES, W[:4].clone(), B[:4].clone()],
        lambda x, w, b: F.group_norm(x, 2, w, b, 1e-5),
    ),
    "instance_norm": (o.instance_norm(4, 1e-5, False, False), [PICTURES], F.instance_norm),
    "batch_norm_in_training": (
        o.batch_norm_in_training(2, 1e-5),
        [X, W, B],
        lambda x, w, b: F.batch_norm(x, None, None, w, b, True, 0, 1e-5),
    ),
    "variance": (o.variance("var", (1,), False, 1), [X], lambda x: x.var(1)),
    "deviation": (o.variance("std", (1,), True, 0), [X], lambda x: x.std(1, False, keepdim=True)),
    "norm": (o.vector_norm((1,)), [X], lambda x: torch.linalg.vector_norm(x, 2, 1)),
    "norm of order 1": (o.vector_norm((1,), 1), [X], lambda x: torch.linalg.vector_norm(x, 1, 1)),
    "logsumexp": (o.reduced("logsumexp", (1,)), [X], lambda x: torch.logsumexp(x, 1)),
    "square": (o.function("square"), [X], torch.square),
    "power": (o.power(3.0), [X], lambda x: x**3),
    "root": (o.power(1.5), [VARIANCE], lambda x: x**1.5),
    "squared_difference": (o.function("squared_difference"), [X, Y], lambda x, y: (x - y) ** 2),
    "reciprocal": (o.function("reciprocal"), [VARIANCE], torch.reciprocal),
    "cosh": (o.function("cosh"), [X], torch.cosh),
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


@pytest.mark.parametrize("name", "exp tanh erf sigmoid silu gelu softplus mish logsumexp".split())
def test_a_function_may_err_by_as_many_units_as_are_stated(name):
    meaning, reads, run = OPERATIONS[name]
    y = run(*(one.double() for one in reads)).numpy()
    found, least = interval(meaning, reads, y), 0 if name in ("exp", "tanh", "erf") else 1
    for by in ((ULPS - 1) * sign * floats.eps("float32") for sign in (-1, 1)):
        wrong = (y + by * np.maximum(np.abs(y), least)).astype(np.float32)
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
    wide = Interval(-np.ones((6, 40)), np.ones((6, 40)))
    # by a negative slope a function falls that is taken to rise
    for meaning in (o.function("tan"), o.leaky_relu(-0.5), o.elu(-1.0)):
        assert enclosed(meaning, [wide], [(6, 40)], "float32") is None


@pytest.mark.parametrize(
    "name", "gelu gelu_tanh silu mish hard_swish sin cos erfc square cosh absolute".split()
)
def test_functions_that_rise_and_fall_stay_inside_of_wide_intervals(name):
    given = np.linspace(-8, 8, 4001)
    low, high = given[:-40], given[40:]
    found = enclosed(o.function(name), [Interval(low, high)], [low.shape], "float32")
    for at in range(0, 41, 4):
        point = given[at : at + len(low)]
        exact = enclosed(o.function(name), [Interval(point, point)], [low.shape], "float64")
        middle = floats.nearest((exact.low + exact.high) / 2, "float32")
        assert ((found.low <= middle) & (middle <= found.high)).all()


@pytest.mark.parametrize(("beta", "threshold"), [(1.0, 20.0), (0.125, 2.0), (8.0, 2.0)])
def test_a_softplus_that_is_its_operand_above_a_threshold_is_enclosed(beta, threshold):
    x = torch.tensor([0.98, 1.02, 1.25], dtype=torch.float64) * threshold / beta
    meaning, y = o.softplus(beta, threshold), F.softplus(x, beta, threshold).numpy()
    found = enclosed(meaning, [Interval.of(x.numpy(), "float64")], [(3,)], "float64")
    assert y[1] == x[1] and (found.low <= y).all() and (y <= found.high).all()
    assert (found.high - found.low < 3 * np.exp(-threshold) / beta).all()


@pytest.mark.parametrize("number", [0.1, float(np.float32(0.1))])
def test_numbers_are_taken_as_they_were_written_and_as_float32_has_them(number):
    x = np.linspace(-3, 3, 50)
    below = np.minimum(x, 0)
    for meaning, y in (
        (o.clip(-0.1, 0.1), np.clip(x, -number, number)),
        (o.leaky_relu(0.1), np.where(x > 0, x, number * x)),
        (o.elu(0.1), np.where(x > 0, x, number * np.expm1(below))),
    ):
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
        (o.softmax((1,)), [x], F.softmax(x, 1)),
        (o.function("gelu"), [x], F.gelu(x)),
    ):
        given = [Interval.of(bits(one), dtype) for one in reads]
        found = enclosed(meaning, given, [tuple(made.shape)], dtype)
        values = floats.widen(bits(made), dtype)
        assert ((found.low <= values) & (values <= found.high)).all()


def test_casts_by_way_of_float32_and_powers_by_multiplication_are_enclosed():
    for dtype in ("float16", "bfloat16"):  # so do PyTorch, JAX, TensorFlow and ml_dtypes
        x = np.array([1 + floats.eps(dtype) / 2 + 2.0**-40])
        found = enclosed(o.function("cast"), [Interval(x, x)], [(1,)], dtype)
        assert (found.low, found.high) == (1, 1 + floats.eps(dtype))
    x = np.linspace(0.8, 1.2, 4001, dtype=np.float32)
    found = enclosed(o.power(100), [Interval.of(x, "float32")], [x.shape], "float32")
    product = np.multiply.reduce([x] * 100)
    assert ((found.low <= product) & (product <= found.high)).all()


@pytest.mark.parametrize("numbers", [{"self": 10000.0}, {"exponent": 2.0, "scale": 3.0}])
def test_a_function_with_numbers_that_its_enclosure_does_not_take_has_none(numbers):
    """A number to the power of x, as in rotary embeddings, ended in a mistake of probe's."""
    x = Interval.of(X.numpy(), "float32")
    assert enclosed(o.function("power", **numbers), [x], [X.shape], "float32") is None
    assert enclosed(o.power(2.0), [x], [X.shape], "float32") is not None
