"""Micro-batches of a training step written as the whole batch's operations."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

import probe
from probe.diff.micro_batches import as_whole_batch
from probe.record.recording import record_run
from probe.record.subject import function_recorder

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.long
nn, F = torch.nn, torch.nn.functional
ROWS = 16


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def perceptron() -> Any:
    return nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 3))


def convolutions(norm: Callable[[int], Any] = nn.Identity) -> Any:
    layers = nn.Conv2d(2, 4, 3), norm(4), nn.ReLU(), nn.Conv2d(4, 4, 3, stride=2), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(16, 3))


def step(
    make: Callable[[], Any],
    parts: int,
    optimizer: Any = torch.optim.SGD,
    scaled: bool = True,
    left: float = 0.0,
    loss: Callable[..., Any] = F.mse_loss,
    dtype: Any = torch.float32,
) -> Callable[[], Any]:
    """A training step. ``scaled``: losses count by their rows; ``left``: a gradient of before."""
    torch.manual_seed(0)
    model = make().to(dtype)
    shape = (12,) if make is perceptron else (2, 7, 7)
    x, y = torch.randn(ROWS, *shape).to(dtype), torch.randn(ROWS, 3).to(dtype)

    def run() -> Any:
        trained = copy.deepcopy(model)
        for weight in trained.parameters():
            weight.grad = torch.full_like(weight, left) if left else None
        ends = optimizer(trained.parameters(), lr=0.1)
        for a, b in zip(x.chunk(parts), y.chunk(parts), strict=True):
            (loss(trained(a), b) * (len(a) / ROWS if scaled else 1)).backward()
        ends.step()
        return [*trained.parameters()]

    return run


def asked(*sides: Callable[[], Any]) -> Any:
    return probe.first_difference(*sides, progress=lambda _: None)


@pytest.mark.parametrize("parts", [2, 16])
def test_gradients_of_micro_batches_are_sums_in_another_order(parts: int) -> None:
    found = asked(step(perceptron, parts), step(perceptron, 1)).found
    causes = [cause for cause in found.causes.values() if cause.examined]
    assert causes and all(cause.kind and cause.explained for cause in causes)
    assert not found.enters and {one.op for one in found.sources} <= {
        "aten.addmm", "aten.mm", "aten.sum.dim_IntList"
    }  # fmt: skip
    names = [[op.op for op in run.operations] for run in (found.left, found.right)]
    # what nobody adds, as the loss, has no partner
    assert set(names[0]) == set(names[1]) - {"aten.mse_loss"}


def test_gradients_of_convolutions_are_sums_over_samples_and_positions() -> None:
    found = asked(step(convolutions, 4), step(convolutions, 1)).found
    weights = [one for one in found.operations if one.op == "aten.convolution_backward.weight"]
    assert len(weights) == 2 and not found.enters
    for each in weights:
        cause = found.causes.get(found.operations.index(each))
        assert each.verdict == "equal" or (cause is not None and cause.explained)


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.AdamW])
def test_an_optimizer_only_passes_differences_on(optimizer: Any) -> None:
    sides = (step(perceptron, n, optimizer) for n in (1, 4))
    found = asked(*sides).found  # either side may be the one in parts
    steps = [one for one in found.operations if one.path == "step"]
    assert steps and {one.verdict for one in steps} <= {"equal", "carried", "healed"}
    assert not found.enters and found.sources


@pytest.mark.parametrize(
    ("make", "wrong", "enters"),
    [
        (perceptron, {"scaled": False}, "aten.mse_loss_backward at backward"),
        (convolutions, {"left": 0.5}, "aten.add_.Tensor at backward."),
        (lambda: convolutions(nn.BatchNorm2d), {}, "aten.native_batch_norm at 1"),
    ],
)
def test_a_mistake_is_named_where_it_enters(make: Any, wrong: Any, enters: str) -> None:
    answer = asked(step(make, 4, **wrong), step(make, 1))
    assert answer.found.enters.startswith(enters) and not answer.classes["explained rounding"]
    assert f"from {answer.found.enters} on" in answer.lines()[1]
    assert answer.to_json()["enters"] == answer.found.enters


def test_right_steps_in_few_digits_are_no_mistake() -> None:
    low = {"dtype": torch.bfloat16, "loss": lambda y, b: ((y - b) ** 2).mean()}
    answer = asked(step(perceptron, 8, **low), step(perceptron, 1, **low))
    assert not answer.found.enters


def test_what_has_no_more_passes_is_left_alone() -> None:
    runs = [record_run(function_recorder(step(perceptron, n))) for n in (1, 2, 4)]
    assert as_whole_batch(runs[0], runs[1]) is None and as_whole_batch(runs[0], runs[0]) is None
    both = as_whole_batch(runs[2], runs[1]), as_whole_batch(runs[2], runs[0])
    assert all(both) and len(both[0][0].operations) > len(both[1][0].operations)


def normed(x: Any, eps: float = 1e-5) -> Any:
    return F.relu(F.layer_norm(x, x.shape[-1:], eps=eps))


def test_a_loop_over_samples_is_the_batchs_operations() -> None:
    """It was one operation of 24 against one of 2, and its cause ``algorithm``."""
    x = torch.randn(12, 6, generator=torch.Generator().manual_seed(0))
    answer = probe.first_difference(
        lambda: torch.cat([normed(row, 1e-2) for row in x.split(1)]), lambda: normed(x)
    )
    assert (answer.first.op, answer.first.compared) == ("aten.native_layer_norm", 96)
    assert answer.first.arguments == "eps 0.01 against 1e-05"


def test_a_batch_norm_that_trains_is_named_by_its_argument() -> None:
    norm, x = nn.BatchNorm1d(6), torch.randn(12, 6, generator=torch.Generator().manual_seed(0))
    trained, norm = copy.deepcopy(norm), norm.eval()
    answer = probe.first_difference(lambda: norm(x), lambda: trained(x))
    assert answer.first.arguments == "training False against True"


def test_samples_in_another_order_are_no_batch_and_no_permuted_weight() -> None:
    x = torch.randn(12, 6, generator=torch.Generator().manual_seed(0))
    rows = [*x.split(1)]
    answer = probe.first_difference(
        lambda: torch.cat([normed(row, 1e-2) for row in rows[::-1]][::-1]), lambda: normed(x)
    )
    assert not answer.to_json()["weights"]
    assert "algorithm" not in str(answer)
    twice = [*rows[:11], rows[10]]
    answer = probe.first_difference(
        lambda: torch.cat([normed(row) for row in twice]), lambda: normed(x)
    )
    assert 4 <= answer.to_json()["window"] <= 6


def test_rows_that_a_loop_holds_are_the_batch_that_the_other_side_holds() -> None:
    """They were said to read what the other side lacks: one row alone had the batch's name."""
    x = torch.randn(12, 6, generator=torch.Generator().manual_seed(0))
    rows = [*x.split(1)]
    answer = probe.first_difference(
        lambda: torch.cat([normed(row) for row in rows]), lambda: normed(x)
    )
    assert answer.verdict == "equal" and answer.to_json()["window"] == 0


def test_what_only_cuts_rows_on_one_side_is_no_open_cause() -> None:
    x = torch.randn(64, 512, generator=torch.Generator().manual_seed(0))
    w = torch.randn(31, 512, generator=torch.Generator().manual_seed(1))
    if torch.equal(F.linear(x[:1], w), F.linear(x, w)[:1]):
        pytest.skip("this processor adds one row and 64 in one order")
    answer = probe.first_difference(lambda: F.linear(x[:1], w), lambda: F.linear(x, w)[:1])
    classes = answer.classes
    moved = probe.first_difference(
        lambda: F.linear(x, w).reshape(-1),
        lambda: torch.cat([F.linear(r, w) for r in x.split(1)]).reshape(-1),
    )
    assert moved.classes["explained rounding"] > 0
    assert classes["explained rounding"] > 0 == classes["not explained"]
    flipped = probe.first_difference(lambda: F.linear(x[:2], w), lambda: F.linear(x, w)[:2].flip(0))
    assert flipped.classes["explained rounding"] == 0
