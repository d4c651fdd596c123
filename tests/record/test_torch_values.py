"""PyTorch's tensors: which value each is while memory changes, and how it lies."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the recorder watches PyTorch")

import probe  # noqa: E402
from probe.order.semantics import Moves  # noqa: E402
from probe.record.recording import array_digest, record_run  # noqa: E402
from probe.record.torch import TorchRecorder  # noqa: E402
from probe.record.torch_values import lay_like, slot_of, tensors  # noqa: E402
from tests.record.recorded import bits, events, wrong  # noqa: E402

pytestmark = pytest.mark.long

F = torch.nn.functional

G = torch.Generator().manual_seed(3)


X = torch.randn(2, 6, 9, 9, generator=G)


Y = torch.randn(2, 7, 12, generator=G)


def test_a_change_through_a_view_makes_new_values() -> None:
    def run() -> Any:
        base = torch.zeros(3, 4)
        row = base[1]
        row += 2
        base[:, 2:].copy_(Y[0, :3, :2])
        return base * 1, row * 1, base.T[1] * 1

    live = record_run(TorchRecorder(run))
    assert bits(live.results) == bits(TorchRecorder(run).plain())
    renewed = [o for o in live.operations if o.op == "changed through a view"]
    assert renewed
    for event in events(TorchRecorder(run)):
        if event[0].op == "changed through a view":
            assert isinstance(event[0].meaning, Moves) and not wrong(event)


def test_an_input_that_the_run_changes_is_read_before() -> None:
    given = torch.ones(3)

    def run() -> torch.Tensor:
        return given.mul_(2) + 0

    (first, *_) = events(TorchRecorder(run))
    assert first[1][0].tolist() == [1, 1, 1]
    assert first[2][0].tolist() == [2, 2, 2]


def test_values_are_not_kept_and_addresses_not_mistaken() -> None:
    died = []

    def run() -> torch.Tensor:
        total = torch.zeros(1000)
        for n in range(20):
            one = Y.sum() + torch.full((1000,), float(n))
            reference = weakref.ref(one)
            total = total + one
            del one
            died.append(reference() is None)
        return total

    live = record_run(TorchRecorder(run))
    assert all(died)
    assert len(live.operations) == 1 + 20 * 4
    assert live.operations[-1].reads[0] == live.operations[-5].gives[0]


@dataclass
class Answer:
    """As transformers' models give it."""

    hidden: torch.Tensor
    pooled: tuple[torch.Tensor, ...] = ()


def test_outputs_of_any_kind_are_found() -> None:
    found = tensors({"a": Answer(X, (Y, X[0])), "b": [Y[0], 3, None]})
    assert [one.shape for one in found] == [X.shape, Y.shape, X[0].shape, Y[0].shape]
    live = record_run(TorchRecorder(lambda: Answer(X + 1, (Y * 2,))))
    assert len(live.results) == 2
    one, other = {"a": X, "b": X.exp()}, {"b": X.exp(), "a": X}
    assert probe.first_difference(lambda: one, lambda: other).verdict == "equal"


def test_numbers_of_eight_bits_are_compared_as_bytes() -> None:
    def run() -> torch.Tensor:
        return (Y.to(torch.float8_e4m3fn).to(torch.float32) * 2).to(torch.float8_e5m2)

    live = record_run(TorchRecorder(run))
    kinds = [live.values[one.gives[0]].dtype for one in live.operations]
    assert kinds == ["uint8", "float32", "float32", "uint8"]
    assert np.array_equal(live.results[0], run().view(torch.uint8).numpy())
    for event, reads, gives in events(TorchRecorder(run)):  # each runs alone on its bytes
        assert event.again is not None and bits(event.again(reads)) == bits(gives)


def test_what_nothing_was_written_into_is_no_value() -> None:
    recording = record_run(TorchRecorder(lambda: torch.empty(5).fill_(2.0) + 1))
    assert [o.op for o in recording.operations] == ["aten.fill_.Scalar", "aten.add.Tensor"]
    assert not recording.operations[0].reads


def test_operands_lie_in_memory_as_they_did() -> None:
    wide = torch.arange(60, dtype=torch.float32)
    for one in (wide[1:25].view(4, 6).T, wide[:6].expand(3, 6), X.permute(0, 2, 3, 1), wide[7]):
        other = lay_like(one.numpy(), slot_of(one))
        assert torch.equal(one, other)
        assert one.stride() == other.stride()
    assert lay_like(np.ones((5, 6), np.float32), slot_of(wide[:24].view(6, 4).T)).stride() == (1, 5)
    uneven = lay_like(np.arange(18, dtype=np.float32).reshape(3, 6), slot_of(wide[:6].expand(3, 6)))
    assert uneven[2, 5] == 17


def _filled(x: torch.Tensor) -> torch.Tensor:
    """Memory that is filled part by part, read in between, as a cache of keys is."""
    found = torch.empty(len(x), 3, 8)
    for n in range(3):
        found[:, n] = x * (n + 1)
        found[:, n] += found[:, : n + 1].sum(1)
    return found


@pytest.mark.parametrize("function", [_filled, lambda x: F.pad(x[:, None], (2, 1), "circular") * 2])
def test_memory_that_is_filled_part_by_part_is_no_input(function: Callable[..., Any]) -> None:
    x = torch.randn(6, 8, generator=torch.Generator().manual_seed(3))
    found = probe.first_difference(lambda: function(x[1:3]), lambda: function(x))
    assert found.verdict == "equal" and not found.found.same_inputs
    (output,) = found.found.outputs
    assert output.compared == function(x[1:3]).numel()
    inputs = [v for v in found.found.left.values if v.given < 0 and len(v.shape) > 1]
    assert [v.shape for v in inputs] == [(6, 8)]


def test_a_view_has_the_digest_of_its_own_bits() -> None:
    x = torch.randn(5, 6)
    kept = TorchRecorder(lambda: (x.t()[1:].t().unsqueeze(0) + 1).transpose(1, 2))
    for _ in range(3):
        seen = list[str]()
        kept.record(
            lambda event, into=seen: into.extend(array_digest(g.array()) for g in event.gives)
        )
        live = record_run(kept)
        assert [live.values[n].digest for one in live.operations for n in one.gives] == seen
        x.neg_()
