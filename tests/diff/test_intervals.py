"""Enclosures of sums and what stands behind them: libraries stay inside, wrong results do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from probe.case import floats
from probe.diff.alone import Alone
from probe.diff.difference import ValuePair
from probe.diff.source import enclosed_outputs
from probe.explain.enclosure import BEYOND, UNKNOWN, WITHIN
from probe.order import semantics as s
from probe.order.semantics import Each, Moves, Step, Steps, Unknown, Windows
from probe.record.recording import record_run
from tests.record import doubles

torch = pytest.importorskip("torch")
F = torch.nn.functional
DRAW = np.random.default_rng(0)


def normal(*shape):
    return torch.tensor(DRAW.normal(size=shape), dtype=torch.float32)


X, Y, B, PICTURES = normal(6, 40), normal(6, 40), normal(6), normal(2, 4, 9, 7)


def pool(kind, kernel, stride, padding, counts_padding=False):
    frame = (kernel, stride, (1, 1), padding)
    return Windows((2, 3), 1, *frame, kind, reads=(0,), counts_padding=counts_padding)


def steps(*behind):
    parts = (s.dense((0, 1)), (0, 1)), (s.function("add"), (3, 2)), *behind
    return Steps(tuple(Step(one, reads, (6, 6)) for one, reads in parts))


AVERAGE = (3, 2), (2, 1), ((1, 1), (0, 0))
OPERATIONS = {
    "matmul": (s.matmul(), [X, Y.T.contiguous()], torch.matmul),
    "dense": (s.dense((0, 1), 2), [X, Y, B], F.linear),
    "sum": (s.reduced("sum", (1,)), [X], lambda x: x.sum(1)),
    "mean": (s.reduced("mean", (1,)), [X], lambda x: x.mean(1)),
    "mean of 2^n": (s.reduced("mean", (1,)), [X[:, :32].clone()], lambda x: x.mean(1)),
    "avg_pool": (
        pool("average", *AVERAGE),
        [PICTURES],
        lambda x: F.avg_pool2d(x, *AVERAGE[:2], (1, 0), count_include_pad=False),
    ),
    "avg_pool over padding": (
        pool("average", *AVERAGE, counts_padding=True),
        [PICTURES],
        lambda x: F.avg_pool2d(x, *AVERAGE[:2], (1, 0)),
    ),
    "relu": (steps((s.function("relu"), (4,))), [X, Y, B], lambda *a: F.relu(F.linear(*a))),
    "clip": (
        steps((s.clip(-1.1, 2.0), (4,))),
        [X, Y, B],
        lambda *a: F.linear(*a).clamp(-1.1, 2.0),
    ),
    "product and sum": (
        Steps((Step(s.dense((0, 1)), (0, 1), (6, 6)), Step(s.function("add"), (3, 2), (6, 6)))),
        [X, Y, normal(6, 6)],
        lambda x, w, c: F.linear(x, w) + c,
    ),
}


def judged(meaning, reads, y, dtype="float32"):
    """What is said of an operation's results."""
    arrays = {f"x{n}": each for n, each in enumerate(reads)}
    run = record_run(
        doubles.Doubles(arrays, [doubles.Step("one", meaning, lambda *_: y, [*arrays])])
    )
    run = replace(run, values=[replace(value, dtype=dtype) for value in run.values])
    number = run.outputs[0]
    side = Alone.of(run, 0, 0, ValuePair.of_all(number, number, y.size), 0)
    enclosure = enclosed_outputs(side, np.arange(y.size))
    return np.full(y.size, UNKNOWN) if enclosure is None else enclosure.judged(y.reshape(-1))[0]


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_library_stays_inside_and_a_wrong_result_does_not(name):
    meaning, reads, run = OPERATIONS[name]
    y, given = run(*reads).numpy(), [each.numpy() for each in reads]
    for right in (y, run(*(one.double() for one in reads)).float().numpy()):
        assert (judged(meaning, given, right) == WITHIN).all()
    # off by a thousandth of the largest result: more than any of these is allowed to be
    far = np.float32(np.abs(y).max() / 1000)
    for wrong in (y + far, y - far):
        assert (judged(meaning, given, wrong) == BEYOND).mean() > 0.95


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_formats_are_enclosed(dtype):
    kind = getattr(torch, dtype)
    x, y = X.to(kind), Y.T.contiguous().to(kind)
    made = [
        each.view(torch.uint16).numpy() if dtype == "bfloat16" else each.numpy()
        for each in (x, y, x @ y)
    ]
    assert (judged(s.matmul(), made[:2], made[2], dtype) == WITHIN).all()
    far = floats.round_to(floats.widen(made[2], dtype) + 9.0, dtype)
    assert (judged(s.matmul(), made[:2], far, dtype) == BEYOND).all()


def test_what_is_no_sum_is_not_enclosed():
    x = X.numpy()
    for meaning in (Unknown(), Moves(), Each("exp"), s.normalised("softmax", (1,))):
        assert (judged(meaning, [x], x) == UNKNOWN).all()
    with np.errstate(over="ignore"):
        infinite = np.full_like(x, 3e38)
    total = s.reduced("mean", (1,))
    assert (judged(total, [infinite], np.full(6, np.inf, np.float32)) == UNKNOWN).all()
