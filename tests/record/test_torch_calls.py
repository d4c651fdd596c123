"""Calls of ATen: alone they run as they ran, and what tells one from another is in what is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the recorder watches PyTorch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import probe  # noqa: E402
from probe.case import layout  # noqa: E402
from probe.case.errors import InputError  # noqa: E402
from probe.order.semantics import Unknown  # noqa: E402
from probe.record.recording import record_run  # noqa: E402
from probe.record.torch import TorchRecorder  # noqa: E402
from probe.record.torch_calls import RepeatedCall, op_facts  # noqa: E402
from tests.record.recorded import bits, events  # noqa: E402

pytestmark = pytest.mark.long

F = torch.nn.functional

G = torch.Generator().manual_seed(3)


X = torch.randn(2, 6, 9, 9, generator=G)


Y = torch.randn(2, 7, 12, generator=G)


def test_shapes_without_numbers_are_refused() -> None:
    with pytest.raises(InputError, match="it has a shape and no numbers"):
        probe.first_difference(*[lambda: torch.zeros(3, device="meta") + 1] * 2)
    found = record_run(TorchRecorder(lambda: Y.to("meta").size(0) * Y))
    assert [one.op for one in found.operations] == ["aten.mul.Tensor"]


def test_operations_of_other_libraries_are_not_taken_for_atens() -> None:
    @torch.library.custom_op("probe_test::relu", mutates_args=())
    def other(x: torch.Tensor) -> torch.Tensor:
        return x.flip(0).sin()

    (event,) = [e for e, *_ in events(TorchRecorder(lambda: other(Y))) if "probe_test" in e.op]
    assert isinstance(event.meaning, Unknown)
    assert op_facts(torch.ops.probe_test.relu.default).base == "probe_test::relu"


def laid_at(one: torch.Tensor, address: int) -> torch.Tensor:
    """The same values in memory that somebody else has allocated: mapped, or NumPy's."""
    bits = one.contiguous().view(torch.uint8).numpy().reshape(-1)
    return torch.from_numpy(layout.copied(bits, address)).view(one.dtype).view(one.shape)


@pytest.mark.parametrize("address", [0, 2, 4, 5, 24, 32])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_operands_begin_where_they_began(address: int, dtype: Any) -> None:
    whole = laid_at(torch.arange(24).reshape(4, 6).to(dtype), address)
    seen: list[list[int]] = []

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if func is torch.ops.aten.add.Tensor:
                seen.append([one.data_ptr() % 64 for one in args])
            return func(*args, **(kwargs or {}))

    for one in (whole, whole.T, whole[1:, ::2], whole[:1].expand(4, 6), whole[2, 3]):
        at = one.data_ptr() % 64
        ((event, arrays, gives),) = events(TorchRecorder(lambda one=one: torch.add(one, one)))  # type: ignore[misc]
        assert [read.address for read in event.reads] == [at, at]
        alone = event.again
        assert isinstance(alone, RepeatedCall) and bits(alone(arrays)) == bits(gives)
        with Watching():
            alone(arrays)
            alone.moved([12, None])(arrays)
        assert seen[-2:] == [[at, at], [12, at]]
        scope: dict[str, Any] = {"np": np, "torch": torch}
        scope |= {f"x{n}": torch.tensor(a).view(dtype) for n, a in enumerate(arrays)}
        exec("\n".join(event.lines(["x0", "x1"], "y")), scope)
        assert [scope[f"x{n}"].data_ptr() % 64 for n in (0, 1)] == [at, at]
        assert scope["x0"].stride() == one.stride() and torch.equal(scope["x0"], one)


def test_an_operation_alone_runs_on_the_threads_that_it_was_recorded_with(monkeypatch):
    before, told, events = torch.get_num_threads(), [], []

    def function():
        torch.set_num_threads(1)
        return torch.relu(x)

    x = torch.randn(5)
    try:
        recorder = TorchRecorder(function)
        recorder.record(events.append)
        assert recorder.target == "torch,threads=1"
        torch.set_num_threads(2)
        monkeypatch.setattr(torch, "set_num_threads", told.append)
        events[0].again([x.numpy()])
        assert told == [1, 2]
    finally:
        monkeypatch.undo()
        torch.set_num_threads(before)


def on(threads: int, function: Callable[[], Any]) -> Callable[[], Any]:
    """A function that sets the threads for itself, and sets them back."""

    def run() -> Any:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            return function()
        finally:
            torch.set_num_threads(before)

    return run


def test_the_threads_are_those_that_operations_ran_on() -> None:
    sides = [record_run(TorchRecorder(on(n, lambda: X.sin()))) for n in (1, 3)]
    assert [one.target for one in sides] == ["torch,threads=1", "torch,threads=3"]
