"""Calls of ATen: alone they run as they ran, and what tells one from another is in what is said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
from probe.record.torch_calls import (  # noqa: E402
    TABLE,
    RepeatedCall,
    lay_like,
    op_facts,
    slot_of,
    tensors,
)
from tests.record.recorded import bits, events, held_to_account, inputs  # noqa: E402

pytestmark = pytest.mark.long

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


def test_operands_lie_in_memory_as_they_did() -> None:
    wide = torch.arange(60, dtype=torch.float32)
    for one in (wide[1:25].view(4, 6).T, wide[:6].expand(3, 6), X.permute(0, 2, 3, 1), wide[7]):
        other = lay_like(one.numpy(), slot_of(one))
        assert torch.equal(one, other)
        assert one.stride() == other.stride()
    assert lay_like(np.ones((5, 6), np.float32), slot_of(wide[:24].view(6, 4).T)).stride() == (1, 5)
    uneven = lay_like(np.arange(18, dtype=np.float32).reshape(3, 6), slot_of(wide[:6].expand(3, 6)))
    assert uneven[2, 5] == 17


# every row of ATen's table: what it says of calls of PyTorch is what they give

F, aten = torch.nn.functional, torch.ops.aten
RNG = np.random.default_rng(15)
INPUTS = {
    "a": RNG.standard_normal((4, 6)), "b": RNG.standard_normal((4, 6)),
    "t": RNG.standard_normal((4, 5, 8)), "q": RNG.standard_normal((4, 5, 8)),
    "p": RNG.standard_normal((4, 6, 8, 7)), "v": RNG.standard_normal((4, 2, 4, 5, 6)),
    "k": RNG.random((4, 6)) < 0.5,
}  # fmt: skip
ROW = RNG.standard_normal(600)
INDEX = torch.tensor([2, 0, 2])
Given = dict[str, Any]


def row(*shape: int) -> Any:
    return torch.tensor(np.resize(ROW, shape))


def flat(*results: Any) -> list[Any]:
    """The tensors of nested results."""
    every = []
    for result in results:
        every += flat(*result) if isinstance(result, tuple | list) else [result]
    return every


def moves(x: Given) -> list[Any]:
    """Also what chooses or counts elements, or makes numbers of none."""
    a, b, t, p, v = (x[name] for name in "abtpv")
    most = F.max_pool2d(p[..., :6], 2, return_indices=True)
    deep = F.max_pool3d(v[..., :4, :], 2, return_indices=True)
    names = "max min argmax argmin median all any kthvalue mode".split()
    return flat(
        a.clone(), t.permute(2, 0, 1), t.transpose(1, 2).contiguous(), a.t(), a[:1].expand(3, 6),
        a.view(-1, 3), a.view(torch.int64), t[:, :1].squeeze(1), a.unsqueeze(1),
        aten._unsafe_view(a, [8, 3]), aten._reshape_alias(a, [8, 3], [3, 1]), t[:, 1:4:2],
        torch.slice_scatter(a, b[:, :2], 1, 2, 4), torch.cat([a, b], 1), torch.stack([a, b], -1),
        a.split(4, 1), a.unbind(1), F.pad(a, (1, -2), value=1.5), a.roll(2, 1), t.flip(1),
        a.repeat_interleave(2, 1), a.tril(1), t.unfold(2, 3, 2), F.pixel_shuffle(p[:, :4], 2),
        F.unfold(p, (2, 3), padding=1), a[:, INDEX], F.embedding(INDEX, row(5, 3)),
        a.masked_fill(x["k"], 3.0), torch.where(x["k"], a, b), F.max_unpool2d(*most, 2),
        F.max_unpool3d(*deep, 2), torch.view_as_real(torch.complex(a, b)), a.to(torch.float32),
        a.half(), torch.detach_copy(a), torch.alias_copy(a), aten.lift_fresh_copy(a),
        a.to_sparse().to_dense(), p.float().to_mkldnn().to_dense(), torch.empty(4, 6).copy_(a),
        F.pad(p, (1, 0, 1, 1), mode="reflect"), F.interpolate(p, (9, 11), mode="nearest-exact"),
        *(getattr(torch, name)(t, *((2,) if name == "kthvalue" else ()), dim=1) for name in names),
        t.amax(1), t.amin((0, 1)), torch.aminmax(t, dim=1), t.sort(1), t.topk(2), a.nonzero(),
        torch.zeros(3), torch.full_like(a, 3.0), a.new_ones(2), torch.arange(1, 9, 2),
    )  # fmt: skip


def products(x: Given) -> list[Any]:
    a, t, q, p, v = (x[name] for name in "atqpv")
    found = [
        a @ row(6, 3), torch.bmm(t, q.mT), a @ row(6), torch.dot(row(6), row(6)),
        torch.vdot(row(6), row(6)), torch.addmv(row(4), a, row(6)),
        torch.baddbmm(row(5, 5), t, q.mT), torch.addbmm(row(5, 5), t, q.mT),
        torch.addr(row(4, 6), row(4), row(6)), F.linear(t, row(3, 8), row(3)),
        torch._C._nn.linear(a, row(4, 6), row(4), out=torch.empty(4, 4, dtype=a.dtype)),
        torch.addmm(row(3), a, row(6, 3)), torch.addmm(row(3), a, row(6, 3), beta=0.0),
        F.conv1d(t, row(3, 5, 3)), F.conv3d(v, row(3, 2, 2, 2, 2), padding=1),
        F.conv_transpose2d(p, row(6, 3, 3, 2), stride=2, padding=1, output_padding=1, groups=2),
        aten._convolution(p, row(4, 6, 3, 3), None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1,
                          *[False] * 4),
        aten.mkldnn_convolution(p.float(), row(4, 6, 3, 3).float(), None, [1, 1], [2, 2], [1, 1],
          1),
        aten._slow_conv2d_forward(p, row(4, 6, 3, 3), [3, 3], row(4), [1, 1], [1, 1]),
    ]  # fmt: skip
    for words in ({}, {"padding": 1}, {"stride": 2, "dilation": 2}, {"groups": 2}):
        found += [F.conv2d(p, row(4, 6 // words.get("groups", 1), 3, 2), row(4), **words)]
    for stride, padding, dilation in (([1, 1], [1, 1], [1, 1]), ([2, 1], [0, 2], [1, 2])):
        w = row(4, 6, 3, 2)
        y = F.conv2d(p, w, None, stride, padding, dilation)
        rest = stride, padding, dilation, False, [0, 0], 1
        found += aten.convolution_backward(y, p, w, [4], *rest, [True] * 3)
        found += aten.convolution_backward(y, p, w, [4], *rest, [False, True, False])[1:2]
    return found


def groups(x: Given) -> list[Any]:
    a, t, p, v = (x[name] for name in "atpv")
    scale, picture, deep = row(6).abs() + 1, p.float().to_mkldnn(), v.float().to_mkldnn()
    found = [
        aten.var.correction(t, [1]),
        F.avg_pool2d(p, 3, 2, 1, count_include_pad=False), F.avg_pool1d(t, 2), F.avg_pool3d(v, 2),
        aten.avg_pool1d.out(t, [2], out=torch.empty(4, 5, 4, dtype=t.dtype)),
        F.max_pool3d(v, 2), F.adaptive_max_pool2d(p, 3), F.adaptive_max_pool3d(v, 2),
        aten.mkldnn_max_pool2d(picture, [2, 2]).to_dense(),
        aten.mkldnn_max_pool3d(deep, [2, 2, 2]).to_dense(),
        F.layer_norm(t, (8,), row(8), row(8)), F.layer_norm(t, (5, 8), eps=0.1),
        F.group_norm(p, 3, row(6), row(6)), F.group_norm(p, 2), F.rms_norm(t, (8,), row(8), 1e-5),
        F.batch_norm(p, row(6), scale, row(6), row(6)), F.batch_norm(p, row(6), scale, eps=0.1),
        F.batch_norm(p, None, None, training=True), F.instance_norm(p, weight=row(6)),
        aten._native_batch_norm_legit_no_training(p, scale, scale, row(6), scale, 0.1, 1e-5),
        aten._native_batch_norm_legit(p, scale, row(6), row(6).clone(), scale.clone(), False, 0.1,
          1e-5),
        aten._batch_norm_no_update(p, scale, scale, row(6), scale, 0.1, 1e-5)[0],
        *(function(t, n) for function in (F.softmax, F.log_softmax) for n in (1, -1)),
        aten._safe_softmax(t, -1), torch.softmax(a, 1, out=torch.empty(4, 6, dtype=a.dtype)),
        torch.log_softmax(a, 1, out=torch.empty(4, 6, dtype=a.dtype)),
        *(getattr(torch, name)(t, n) for n in (1, -1)
          for name in "sum mean prod logsumexp var std nansum count_nonzero".split()),
        *(torch.var(t, 1, correction=n) for n in (0, 2)), t.sum((0, 1), keepdim=True), a.sum(),
        *(torch.linalg.vector_norm(t, n, -1) for n in (1, 2, 3)),
        aten.norm.ScalarOpt_dim(t, 2, [1]),
    ]  # fmt: skip
    for pool in (F.max_pool2d, F.avg_pool2d):
        found += [pool(p, (2, 3)), pool(p, 3, 2, 1), pool(p, 3, 2, 1, ceil_mode=True)]
    return flat(found)


def elements(x: Given) -> list[Any]:
    """Rows, and of functions that all libraries have by one name some of each kind."""
    a, b, k = x["a"], x["b"], x["k"]
    names = (
        "abs acosh erf exp floor lgamma logit reciprocal relu round rsqrt sign sqrt tanh".split()
    )
    layers = "gelu silu elu hardswish relu6 softplus leaky_relu hardtanh logsigmoid".split()
    pairs = "add div pow maximum fmod remainder atan2 nextafter eq floor_divide fmin".split()
    z = torch.complex(a, b)
    return [
        *(getattr(torch, name)(a) for name in names), *(getattr(F, name)(a) for name in layers),
        *(getattr(torch, name)(a, b) for name in pairs), F.gelu(a, approximate="tanh"),
        F.hardtanh(a, -0.5, 0.5), F.threshold(a, 0.1, 2.0), F.prelu(a, row(6)), a.clamp(-0.5, 0.5),
        a.clamp(min=0), a.clamp(row(6), row(6) + 1), a.clamp(max=row(6)), torch.clamp_min(a, 0.5),
        torch.div(a, b, rounding_mode="floor"), a + 1, 1 - a, 2 / a, a**2, a**3, 2**a, a**-1,
        torch.add(a, b, alpha=2), torch.rsub(a, b), torch.rsub(a, 3, alpha=2),
        torch.lerp(a, b, 0.2), torch.addcmul(a, b, b, value=2), torch.round(a, decimals=1),
        torch.logical_not(k), torch.bitwise_xor(k, a > 0), torch.polygamma(1, a.abs()),
        torch.bitwise_left_shift(k * 3, 2), z * z, z.abs(), z.conj() + 1, torch._neg_view(a) + 1,
        aten._conj_physical(z), z.clone().conj_physical_(), z.real,
    ]  # fmt: skip


GROUPS: dict[str, Callable[[Given], list[Any]]] = {
    function.__name__: function for function in (moves, products, groups, elements)
}
# Operations of CUDA.
ELSEWHERE = {"_fused_rms_norm", "cudnn_batch_norm", "_batch_norm_with_update"}


def recorder(name: str) -> TorchRecorder:
    operands = inputs(INPUTS, torch.tensor)
    return TorchRecorder(lambda: GROUPS[name](operands))


@pytest.mark.slow
def test_every_row_says_what_pytorch_gives() -> None:
    names = held_to_account(map(recorder, GROUPS))
    called = {name.removeprefix("aten.").partition(".")[0] for name in names}
    called |= {name.removesuffix("_") for name in called}
    assert TABLE.keys() - called - {name.removesuffix("_copy") for name in called} == ELSEWHERE
