"""Every meaning of ATen's table against PyTorch: what is labelled alike is the same number, as of
ONNX's in test_onnx_table.py; in float64.
"""

from __future__ import annotations

import itertools
import sys
import unittest
import warnings
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.recorders.rows import ELSEWHERE, _of_torch
from tests.recorders.truth import (
    PROOFS,
    agreed,
    best_shares,
    bits,
    both,
    events,
    inputs,
    reached,
    shares,
)

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from probe.recorders.torch import TorchRecorder, array, tensors  # noqa: E402
from probe.recorders.torch_table import TABLE  # noqa: E402

F = torch.nn.functional
RNG = np.random.default_rng(15)
INPUTS = {
    "a": RNG.standard_normal((4, 6)), "b": RNG.standard_normal((4, 6)),
    "t": RNG.standard_normal((4, 5, 8)), "q": RNG.standard_normal((4, 5, 8)),
    "p": RNG.standard_normal((4, 6, 8, 7)), "v": RNG.standard_normal((4, 2, 4, 5, 6)),
    "m": RNG.standard_normal((4, 3, 3)), "k": RNG.random((4, 6)) < 0.5,
    "h": RNG.standard_normal((4, 2, 5, 8)), "g": RNG.random((4, 3, 2, 2)) - 0.5,
    "g3": RNG.random((4, 2, 3, 2, 3)) - 0.5,
}  # fmt: skip
"""Arrays with the rows of the batch first."""

ROW = RNG.standard_normal(600)
INDEX = torch.tensor([2, 0, 2])
Given = dict[str, Any]


def row(*shape: int) -> Any:
    """The same weights on both sides."""
    return torch.tensor(np.resize(ROW, shape))


def flat(*found: Any) -> list[Any]:
    """The tensors of nested results."""
    every = []
    for one in found:
        every += flat(*one) if isinstance(one, tuple | list) else [one]
    return every


def moves(x: Given) -> list[Any]:
    a, b, t, p, v = (x[name] for name in "abtpv")
    n, aten = len(a), torch.ops.aten
    found = [
        a.clone(), a.contiguous(), t.permute(2, 0, 1), t.transpose(1, 2).contiguous(), a.t(),
        a[:1].expand(3, 6), a.view(-1, 3), t.reshape(n * 5, 8), t.flatten(1), t[:, :1].squeeze(1),
        a.unsqueeze(1), aten._unsafe_view(a, [n * 2, 3]), t[:, 1], t[:, 1:4:2], t.select(2, -1),
        torch.select_scatter(t, row(n, 8), 1, 2), torch.slice_scatter(a, b[:, :2], 1, 2, 4),
        torch.cat([a, b], 1), torch.stack([a, b], -1), *a.split(4, 1),
        *a.split_with_sizes([1, 5], 1), *a.unbind(1), *a.chunk(3, 1),
        *torch.ops.aten.unsafe_split(a, 4, 1), *torch.ops.aten.unsafe_chunk(a, 2, 1),
        *torch.ops.aten.unsafe_split_with_sizes(a, [2, 4], 1), F.pad(a, (1, -2), value=1.5),
        F.pad(t, (2, 1), mode="reflect"), F.pad(t, (2, -1), mode="replicate"),
        F.pad(t, (-1, 2), mode="replicate"),
        *(F.pad(p, (1, 2, 0, 1), mode=one) for one in ("reflect", "replicate")),
        *(F.pad(v, (1, 0, 1, 1, 0, 2), mode=one) for one in ("reflect", "replicate")), a.roll(2, 1),
        a.roll(1), t.roll((1, -2), (1, 2)), t.flip(1), t.flip(0, 2), a.repeat(2, 1),
        a.repeat_interleave(2, 1), a.tril(1), a.triu(-1), t.diagonal(0, 1, 2),
        torch.diagonal_copy(t, 1, 1, 2), t.unfold(2, 3, 2),
        torch.as_strided(row(20), (3, 4), (5, 1)),
        torch.as_strided(a.T.contiguous(), (2, n), (n, 1)), F.pixel_shuffle(p[:, :4], 2),
        F.pixel_unshuffle(p[:, :, :, :6], 2), torch.channel_shuffle(p, 3),
        F.unfold(p, (2, 3), padding=1), F.fold(F.unfold(p, 2), (8, 7), 2), a.index_select(1, INDEX),
        a[:, INDEX], t[:, INDEX, INDEX], a.gather(1, torch.tensor([[1, 0]] * n)),
        F.embedding(INDEX, row(5, 3)), a.take(torch.tensor([3, 0])),
        aten._unsafe_index(a, [None, INDEX]),
        a.masked_select(torch.tensor([[True] + [False] * 5] * n)), a.index_fill(1, INDEX, 2.0),
        a.masked_fill(x["k"], 3.0), a.index_copy(1, torch.tensor([1, 4]), b[:, :2]),
        a.index_add(1, INDEX, b[:, :3]), a.scatter(1, torch.tensor([[1, 0]] * n), b),
        a.scatter_add(1, torch.tensor([[1, 1]] * n), b[:, :2]),
        a.scatter(1, torch.tensor([[1, 4]] * n), 2.0),
    ]  # fmt: skip
    places = torch.tensor([0, 1]), torch.tensor([3, 2])
    found += [
        *(a.index_put(places, row(2), accumulate=adds) for adds in (False, True)),
        aten._unsafe_index_put(a, [None, torch.tensor([3, 2])], row(n, 2)),
        row(6).masked_scatter(torch.tensor([[True, False] * 3] * 2), row(9) + 1),
        a.masked_scatter(torch.tensor([[True] + [False] * 5] * n), row(8)),
        torch.where(x["k"], a, b), torch.where(x["k"], a, 0.0), a.double(), a.to(torch.float32),
        a.half(), a.to(torch.int32), torch.ops.aten._to_copy(a, dtype=torch.bfloat16), a.positive(),
        a.detach().clone(), torch.zeros(3), torch.ones(2), torch.full((3,), 2.5),
        torch.zeros_like(a), torch.ones_like(a), torch.full_like(a, 3.0), torch.eye(3),
        torch.arange(5), torch.arange(1, 9, 2), torch.linspace(0, 1, 4), torch.linspace(0, 2, 4),
        a.new_zeros(2), a.new_ones(2), a.new_full((2,), 3.0), torch.scalar_tensor(2.0),
        torch.hann_window(6), torch.hamming_window(6), torch.blackman_window(6),
        torch.hann_window(6, periodic=False),
    ]  # fmt: skip
    near, smooth = ("nearest", "nearest-exact"), ("bilinear", "bicubic")
    for words in (
        {"size": (16, 14)},
        {"size": (9, 11)},
        {"scale_factor": 1.5},
        {"scale_factor": (2.2, 2.1), "recompute_scale_factor": False},
    ):
        found += [F.interpolate(p, mode=mode, **words) for mode in (*near, *smooth)]
    found += [F.interpolate(p, (9, 11), mode=mode, align_corners=True) for mode in smooth]
    found += [F.interpolate(p, (5, 4), mode=mode, antialias=True) for mode in smooth]
    found += [F.interpolate(t, 11, mode=mode) for mode in (*near, "linear")]
    return flat(found, [F.interpolate(v, (5, 7, 6), mode=mode) for mode in (*near, "trilinear")])


def layers(x: Given) -> list[Any]:
    a, b, t, q, p, v, m, h = (x[name] for name in "abtqpvmh")
    aten = torch.ops.aten
    found = [
        a @ row(6, 3), torch.addmm(row(3), a, row(6, 3)), t @ row(8, 2), torch.bmm(t, q.mT),
        a @ row(6), torch.dot(row(6), row(6)), torch.vdot(row(6), row(6)),
        *(torch.addmm(row(3), a, row(6, 3), alpha=n, beta=k)
          for n, k in ((2.0, 1.0), (1.0, 0.0), (0.5, 0.2))),
        torch.addmm(row(3), a * 0, row(6, 3), beta=0.2),
        torch.addmv(row(len(a)), a, row(6), beta=0.5), torch.baddbmm(row(5, 5), t, q.mT, alpha=0.5),
        F.linear(t, row(3, 8), row(3)), torch.cdist(t, q), torch.cdist(t, q, p=1.0),
        torch.einsum("bij,bkj->bik", t, q),
    ]  # fmt: skip
    for words in ({}, {"padding": 1}, {"stride": 2, "dilation": 2}, {"groups": 2}):
        found += [F.conv2d(p, row(4, 6 // words.get("groups", 1), 3, 2), row(4), **words)]
    found += [
        F.conv1d(t, row(3, 5, 3)),
        F.conv3d(v, row(3, 2, 2, 2, 2), padding=1),
        F.conv_transpose2d(p, row(6, 3, 3, 2), stride=2, padding=1, output_padding=1),
    ]
    for pool in (F.max_pool2d, F.avg_pool2d):
        found += [pool(p, (2, 3)), pool(p, 3, 2, 1), pool(p, 3, 2, 1, ceil_mode=True)]
    found += [
        F.avg_pool2d(p, 3, 2, 1, count_include_pad=False), F.avg_pool2d(p, 2, divisor_override=3),
        F.avg_pool1d(t, 2), F.max_pool1d(t, 2), F.avg_pool3d(v, 2), F.max_pool3d(v, 2),
        *(F.adaptive_avg_pool2d(p, n) for n in (1, 3, (4, 2))), F.adaptive_max_pool2d(p, 3),
        F.adaptive_avg_pool1d(t, 3), F.adaptive_avg_pool3d(v, 2), F.adaptive_max_pool3d(v, 2),
        F.max_pool2d(p, 2, return_indices=True), F.max_pool2d(p[..., :6], 2, return_indices=True),
        F.layer_norm(t, (8,), row(8), row(8)), F.layer_norm(t, (5, 8), eps=0.1),
        F.group_norm(p, 3, row(6), row(6)), F.group_norm(p, 2), F.rms_norm(t, (8,), row(8)),
        F.batch_norm(p, row(6), row(6).abs(), row(6), row(6)),
        F.batch_norm(p, row(6), row(6).abs(), eps=0.1), F.instance_norm(p, weight=row(6)),
        F.batch_norm(p, None, None, training=True), *(F.softmax(t, n) for n in (1, -1)),
        *(F.log_softmax(t, n) for n in (1, -1)), aten._safe_softmax(t, -1),
    ]  # fmt: skip
    attend = partial(F.scaled_dot_product_attention, h, h, h)
    found += [attend(is_causal=n, scale=s) for n in (False, True) for s in (None, 2.0)]
    found += [attend(attn_mask=torch.tensor(np.tri(5) > 0))]
    for name in "sum mean amax amin prod logsumexp var std".split():
        found += [getattr(torch, name)(t, n) for n in (1, -1)]
    names = "max min median nansum count_nonzero argmax argmin argsort all any var_mean std_mean"
    found += [
        *(getattr(torch, name)(t, 1) for name in names.split()),
        *(torch.var(t, 1, correction=n) for n in (0, 2)),
        *(torch.linalg.vector_norm(t, n, -1) for n in (1, 2)),
        *(torch.norm(t, n, 1) for n in (1, 2)), torch.max(a, b), torch.min(a, b), a.sum(),
        t.sum((0, 1)), t.mean((1, 2)),
    ]  # fmt: skip
    for name in "cumsum cumprod cummax cummin logcumsumexp".split():
        found += [getattr(torch, name)(t, n) for n in (1, 2)]
    found += [
        torch.cumsum(row(1)[0], 0), t.sort(1), t.sort(-1, descending=True), t.topk(2), t.topk(3),
        t.topk(2, largest=False), t.kthvalue(2), t.kthvalue(3, 1),
        torch.ops.aten._pack_padded_sequence(t, torch.full((len(t),), t.shape[1]), True),
        F.glu(a, 1), torch.bucketize(a, torch.tensor([0.0, 1.0])),
        torch.bucketize(a, torch.tensor([0.2, 1.0])),
        torch.searchsorted(torch.tensor([0.2, 1.0]), a),
        torch.searchsorted(torch.tensor([0.2, 1.0]), a, right=True), torch.cdist(a, row(30, 6)),
        torch.cdist(a, row(30, 6), compute_mode="use_mm_for_euclid_dist"),
        torch.cdist(a, row(30, 6), compute_mode="donot_use_mm_for_euclid_dist"),
        F.affine_grid(m[:, :2], [len(m), 1, 4, 5], align_corners=False),
        F.affine_grid(m[:, :2], [len(m), 1, 4, 5], align_corners=True), a.nonzero(),
        *(torch.unique_consecutive(t.round(), return_inverse=n) for n in (False, True)),
        *(op(a.round(), dim=1) for op in (torch.unique_consecutive, torch.unique)),
        torch.unique(t.round()), *(torch.aminmax(t, dim=n, keepdim=n == 2) for n in (1, 2)),
        torch.aminmax(row(6)), torch._weight_norm(row(3, 4), row(3, 1), 0), torch.linalg.det(m),
        torch.linalg.inv(m), torch.linalg.slogdet(m), torch.linalg.qr(m), torch.linalg.svd(m),
        torch.linalg.lu_factor(m), torch.linalg.eig(m),
    ]  # fmt: skip
    spread, alg = m @ m.mT + torch.eye(3), torch.linalg
    chol, right, bags = alg.cholesky(spread), t[:, :3, :2], torch.tensor([[0, 1], [2, 2]])
    found += [
        alg.cholesky(spread), alg.cholesky(spread, upper=True), alg.eigh(spread),
        alg.solve(spread, right), alg.solve(spread, right.mT, left=False),
        alg.solve(spread, m[:, 0]), alg.solve(row(3, 3) + 9 * torch.eye(3), right),
        alg.lu_solve(*alg.lu_factor(spread), right), torch.cholesky_solve(right, chol),
        torch.cholesky_solve(right, chol.mT, upper=True),
        *(alg.solve_triangular(chol, right, upper=False, unitriangular=n) for n in (False, True)),
        alg.solve_triangular(chol.mT, right.mT, upper=True, left=False),
        torch.triangular_solve(right, chol, upper=False),
        torch.triangular_solve(right, chol, upper=False, transpose=True),
        *(F.grid_sample(p, x["g"], align_corners=False, mode=n) for n in ("bilinear", "nearest")),
        F.grid_sample(p, x["g"], align_corners=True),
        F.grid_sample(v, x["g3"], align_corners=False),
        *(F.embedding_bag(bags, row(5, 3), mode=mode) for mode in ("sum", "mean", "max")),
        *(torch.fft.fft(t, dim=n) for n in (1, 2)), *(torch.fft.rfft(t, n=n) for n in (7, 8)),
        *(torch.fft.irfft(torch.fft.rfft(t), n=n) for n in (8, 9)), torch.fft.fft(t, norm="ortho"),
    ]  # fmt: skip
    z = torch.complex(a, x["b"])
    found += [
        z * z, z * 2, z + z, z / (z + 3), z.abs(), z.angle(),
        z @ torch.view_as_complex(row(6, 4, 2)), z.conj() + 1, torch._neg_view(a) + 1, z.real,
        z.imag, torch.view_as_real(z * 3),
    ]  # fmt: skip
    return flat(found)


def elements(x: Given) -> list[Any]:
    a, b = x["a"], x["b"]
    names = """abs acos acosh asin asinh atan atanh ceil cos cosh digamma erf erfc erfinv exp exp2
 expm1 floor lgamma log log10 log1p log2 logit neg reciprocal relu round rsqrt sigmoid sign sgn sin
 sinc sinh sqrt square tan tanh trunc i0 isnan isinf isfinite signbit frac rad2deg
 deg2rad""".split()
    found = [getattr(torch, name)(a) for name in names]
    layers = """gelu silu mish elu selu celu hardswish hardsigmoid relu6 softplus leaky_relu
 hardtanh logsigmoid softsign hardshrink softshrink""".split()
    found += [
        *(getattr(F, name)(a) for name in layers), F.gelu(a, approximate="tanh"), F.elu(a, 0.5),
        F.celu(a, 0.5), F.softplus(a, 2.0), F.leaky_relu(a, 0.3), F.hardtanh(a, -0.5, 0.5),
        F.hardshrink(a, 0.2), F.softshrink(a, 0.2), F.threshold(a, 0.1, 2.0),
        F.threshold(a, 0.1, 3.0), F.prelu(a, row(6)), a.clamp(-0.5, 0.5), a.clamp(min=0),
        a.clamp(0, 6), a.clamp(row(6), row(6) + 1),
    ]  # fmt: skip
    pairs = """add sub mul div pow maximum minimum fmod remainder atan2 hypot copysign nextafter eq
 ne lt le gt ge xlogy floor_divide fmax fmin logaddexp heaviside""".split()
    found += [
        *(getattr(torch, name)(a, b) for name in pairs),
        *(torch.div(a, b, rounding_mode=one) for one in ("floor", "trunc")), a + 1, a - 1, 1 - a,
        a * 2, a / 2, 2 / a, a**2, a**3, 2**a, a * 0, torch.add(a, b, alpha=2),
        torch.sub(a, b, alpha=2), torch.rsub(a, b), *(torch.lerp(a, b, n) for n in (0.2, 0.5)),
        *(torch.addcmul(a, b, b, value=n) for n in (1, 2)),
        *(torch.addcdiv(a, b, b, value=n) for n in (1, 2)),
        *(torch.round(a, decimals=n) for n in (0, 1)), torch.nan_to_num(a),
        torch.logical_not(x["k"]), torch.logical_and(x["k"], a > 0),
        torch.bitwise_xor(x["k"], a > 0), a.to(torch.int32) << 2, a.to(torch.int32) >> 1,
        torch.polygamma(1, a), torch.complex(a, b), torch.special.i1(a),
    ]  # fmt: skip
    return found


torch.manual_seed(0)
ATTENTION = torch.nn.MultiheadAttention(8, 2, batch_first=True).eval()
ENCODER = torch.nn.TransformerEncoderLayer(8, 2, 8, batch_first=True).eval()
RECURRENT = [one(8, 3, batch_first=True).eval() for one in (torch.nn.GRU, torch.nn.LSTM)]
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # quantised layers move to another package
    QUANTISED = torch.ao.nn.quantized.dynamic.Linear(8, 3)


def kernels(x: Given) -> list[Any]:
    """What other settings, devices or releases call, and what PyTorch's own functions run."""
    a, t, p, v, m, aten = x["a"], x["t"], x["p"], x["v"], x["m"], torch.ops.aten
    scale, wide = row(6).abs() + 1, p.float()
    spread = torch.linalg.cholesky(m @ m.mT + torch.eye(3))
    kernel, picture = row(4, 6, 3, 3), wide.to_mkldnn()
    table, index, bags = row(5, 6), torch.tensor([0, 1, 4, 2]), torch.tensor([0, 3])
    found = [
        aten._convolution(p, kernel, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, *[False] * 4),
        aten.mkldnn_convolution(wide, kernel.float(), None, [1, 1], [2, 2], [1, 1], 1),
        aten._slow_conv2d_forward(p, kernel, [3, 3], row(4), [1, 1], [1, 1]),
        aten._native_batch_norm_legit_no_training(p, scale, scale, row(6), scale, 0.1, 1e-5),
        aten._batch_norm_no_update(p, scale, scale, row(6), scale, 0.1, 1e-5)[:3],
        aten._batch_norm_with_update(p, scale, scale, row(6).clone(), scale.clone(), 0.1, 0.1)[:3],
        F.batch_norm(p, row(6).clone(), scale.clone(), None, scale, True, 0.2),
        aten._cholesky_solve_helper(t[:, :3, :2], spread, False), aten.cholesky_inverse(spread),
        torch.cholesky(m @ m.mT + torch.eye(3)), aten._euclidean_dist(t, t),
        aten._grid_sampler_2d_cpu_fallback(wide, x["g"].float(), 0, 0, False),
        aten._fft_c2c(torch.complex(t, t), [1, 2], 0, True), aten.native_channel_shuffle(p, 3),
        aten._conj_physical(torch.complex(a, a)), torch.complex(a, a).conj_physical_(),
        aten.norm.ScalarOpt_dim(t, 2, [1]), aten._reshape_alias(a, [len(a) * 2, 3], [3, 1]),
        aten.alias(a).exp(), aten.zero(a), aten.fill(a, 2.0), aten.lift_fresh_copy(a),
        torch.detach_copy(a), torch.empty(4, 6).zero_(),
        torch.repeat_interleave(torch.tensor([2, 0, 1])), torch.tril_indices(3, 4),
        torch.triu_indices(3, 4, 1), torch.bartlett_window(6), torch.kaiser_window(6),
        torch.bincount(torch.tensor([0, 2, 2]), minlength=4), torch.unique(a.round(), dim=0),
        picture.to_dense(), aten.mkldnn_max_pool2d(picture, [2, 2]).to_dense(),
        aten.mkldnn_max_pool3d(v.float().to_mkldnn(), [2, 2, 2]).to_dense(),
        a.to_sparse().to_dense(), *(layer(t.float()) for layer in (ENCODER, QUANTISED, *RECURRENT)),
        ATTENTION(*[t.float()] * 3), ATTENTION(*[t.float()] * 3, need_weights=False),
        aten.fractional_max_pool2d(p, [2, 2], [3, 3], p[:, :, :2, 0].sigmoid()),
        aten.fractional_max_pool3d(v, [2, 2, 2], [2, 2, 3], v[:, :, :3, 0, 0].sigmoid()),
        torch.logspace(0, 1, 4), aten.nonzero_static(a, size=5), torch.cross(m, m.roll(1, 1), -1),
        torch.cross(m, m.roll(1, 1), 1), F.bilinear(a, x["b"], row(2, 6, 6), row(2)),
    ]  # fmt: skip
    for into, call in (
        ((4, 4), lambda y: torch._C._nn.linear(a, row(4, 6), row(4), out=y)),
        ((4, 6), lambda y: torch.softmax(a, 1, out=y)),
        ((4, 6), lambda y: torch.log_softmax(a, 1, out=y)),
        ((4, 5, 4), lambda y: aten.avg_pool1d.out(t, [2], out=y)),
        ((4, 5, 4), lambda y: aten.adaptive_avg_pool1d.out(t, [4], out=y)),
        ((4, 6, 4, 7), lambda y: aten.adaptive_avg_pool2d.out(p, [4, 7], out=y)),
        ((4, 6), lambda y: torch.add(a, x["b"], out=y)),
    ):
        found.append(call(torch.empty(len(a), *into[1:], dtype=a.dtype)))
    for mode in (0, 1, 2):
        some = (False, mode, False, row(4) if mode == 0 else None, False, 4)
        found += aten._embedding_bag(table, index, bags, *some)[:1]
        found += aten._embedding_bag_forward_only(table, index, bags, *some)[:1]
    sums = torch.tensor([[1, 1, 0]] * len(a))
    for how in ("sum", "prod", "mean", "amax", "amin"):
        for kept in (True, False):
            words = {"reduce": how, "include_self": kept}
            found.append(a.scatter_reduce(1, sums, x["b"][:, :3], **words))
            if how != "sum":
                found.append(a.index_reduce(1, sums[0], x["b"][:, :3], how, include_self=kept))
    return flat(found)


pytestmark = [
    pytest.mark.slow,  # half a minute
    pytest.mark.filterwarnings("ignore:torch.triangular_solve is deprecated"),
    pytest.mark.filterwarnings("ignore:torch.cholesky is deprecated"),
    pytest.mark.filterwarnings("ignore:index_reduce"),
]

GROUPS: dict[str, Callable[[Given], list[Any]]] = {
    function.__name__: function for function in (elements, kernels, layers, moves)
}


NEAR = {"kernels": 1e-5}
"""Relative; some of them there are in float32 alone."""


def recorder(name: str, rows: list[int] | None = None) -> TorchRecorder:
    program, operands = GROUPS[name], inputs(INPUTS, torch.tensor, rows)
    return TorchRecorder(lambda: program(operands))


@pytest.mark.parametrize("rows", [[2, 0], [0, 1, 2, 3]], ids=str)
@pytest.mark.parametrize("name", GROUPS)
def test_what_is_labelled_alike_is_the_same_number(name: str, rows: list[int]) -> None:
    best = best_shares(recorder(name), recorder(name, rows), NEAR.get(name, 1e-7), UNKNOWN)
    if len(rows) == 4:
        assert not {op for op, share in best.items() if not share} - UNKNOWN


def copied(value: Any) -> Any:
    """Arguments with tensors of their own."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if type(value) in (list, tuple):
        return type(value)(map(copied, value))
    return {k: copied(one) for k, one in value.items()} if isinstance(value, dict) else value


UNCERTAIN = ("jiterator", "chalf", "nn.functional.rrelu", "nn.functional.ctc_loss")
"""Samples that need CUDA, give what NumPy has not, draw numbers or leave memory as it was."""


def sample_refuted(function: Callable[..., Any], given: list[Any]) -> str:
    """Returns what is wrong with the labels of a function of these arguments and of others, in
    which one element is changed; empty if nothing is, or it doesn't run on copies of them."""
    ours, theirs = copied(given), copied(given)
    one = next((t for t in tensors(theirs) if t.is_floating_point() and t.numel()), None)
    if one is not None and one.layout == torch.strided:
        one[tuple(n // 2 for n in one.shape)] += 0.25

    def run(some: list[Any]) -> Any:
        first, args, words = copied(some)
        return function(first, *args, **words)

    try:
        if sum(t.numel() for t in tensors(ours)) > 20000 or not any(
            t.numel() for t in tensors(run(ours))
        ):
            return ""
        run(theirs)
    except (RuntimeError, TypeError, ValueError):  # it needs a tensor's memory, or other numbers
        return ""
    try:
        both(lambda: run(ours), lambda: run(theirs), near=1e-7)
    except AssertionError as error:
        return str(error)
    return ""


@pytest.fixture(scope="module")
def sampled() -> tuple[set[str], dict[str, str]]:
    """The operations that PyTorch's own samples of its functions run, and which are refuted where
    one element of a sample is changed."""
    with pytest.MonkeyPatch.context() as patch:
        # which only PyTorch's tests of texts need
        patch.setitem(sys.modules, "expecttest", SimpleNamespace(TestCase=unittest.TestCase))
        from torch.testing._internal.common_methods_invocations import op_db
    met, refuted, proofs = set[str](), dict[str, str](), len(PROOFS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for op in op_db:
            if op.name.startswith(UNCERTAIN) or not op.supports_dtype(torch.float64, "cpu"):
                continue
            torch.manual_seed(0)
            for sample in itertools.islice(op.sample_inputs("cpu", torch.float64), 5):
                why = sample_refuted(op.op, [sample.input, list(sample.args), dict(sample.kwargs)])
                refuted |= {op.name: why} if why else {}
    for proof in PROOFS[proofs:]:
        met |= proof.known
    return met, refuted


def test_pytorchs_own_samples_refute_no_row(sampled: tuple[set[str], dict[str, str]]) -> None:
    met, refuted = sampled
    assert len(met) > 300 and not refuted


def test_every_row_of_the_table_is_reached(sampled: tuple[set[str], dict[str, str]]) -> None:
    met = sampled[0] | reached(map(recorder, GROUPS))
    assert TABLE.keys() - set(map(_of_torch, met)) == ELSEWHERE["torch"][0]


UNKNOWN = {"aten.nonzero", "aten.sum"}
UNKNOWN |= {"aten.nonzero_static", "aten.bincount", "quantized.linear_dynamic"}
UNKNOWN |= {f"aten.{op}" for op in ("unique_consecutive", "_unique2", "unique_dim")}
"""What reads everything here."""


def layer(x: torch.Tensor) -> list[Any]:
    """Functions that PyTorch itself makes of others."""
    attended = F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None])
    found = [F.conv1d(x, row(3, 5, 3).float()), F.linear(x, row(3, 8).float()), attended]
    found += [x @ x.mT, torch.einsum("bik,bjk->bij", x, x), x.movedim(0, 2).contiguous()]
    found += [F.instance_norm(x), F.layer_norm(x, (8,)), F.max_pool1d(x, 2), x.reshape(-1, 4)]
    return flat(found, *(one(x) for one in RECURRENT))


# Arrays that stand for another argument of the same function: bounds, sizes or ends, an order.
ARGUMENTS: dict[str, Callable[..., Any]] = {
    "clamp": lambda x, t, n: torch.clamp(x, **{("min", "max")[n]: t}),
    "segment_reduce": lambda x, t, n: torch.segment_reduce(
        t, "sum", **{("lengths", "offsets")[n]: torch.tensor([0, 3, 3])}
    ),
    "searchsorted": lambda x, t, n: torch.searchsorted(t, x, sorter=t.argsort(descending=n > 0)),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_array_in_another_argument_gives_other_numbers(name: str) -> None:
    x, t = torch.tensor(INPUTS["a"]), torch.tensor(INPUTS["b"][0])
    one, two = (lambda n=n: ARGUMENTS[name](x, t, n) for n in range(2))
    assert agreed(both(one, two)) == 0


def test_inference_mode_shows_the_operations_that_no_grad_shows() -> None:
    """There PyTorch dispatches ``linear`` and ``gru`` themselves, which are others' operations."""
    x = torch.tensor(INPUTS["t"], dtype=torch.float32)

    def inferred() -> list[Any]:
        with torch.inference_mode():
            return layer(x)

    sides = both(lambda: layer(x), inferred, near=1e-5)
    shown = {one.op for one in sides[1][0].operations}
    assert not {"aten.linear", "aten.gru.input", "aten.matmul"} & shown
    assert not [op.op for op, _, known in shares(sides[1:] * 2) if not known]
    for n in range(len(sides[0][0].outputs)):
        assert agreed(sides, n) == 1, n
    unwatched = TorchRecorder(inferred).plain()
    for one, other in zip(sides[1][0].results, unwatched, strict=True):
        assert np.array_equal(one, other)


ONE_TENSOR = "aten._native_multi_head_attention"
"""Asks whether its operands are one tensor, and runs another kernel where they are."""


@pytest.mark.parametrize("name", GROUPS)
def test_every_operation_alone_gives_its_bits_and_so_do_its_lines(name: str) -> None:
    checked = 0
    for event, reads, gives in events(recorder(name)):
        if event.again is not None:
            assert bits(event.again(reads)) == bits(gives), event.op
        if event.lines is None or event.op == ONE_TENSOR:
            continue
        names = [f"x{n}" for n in range(len(reads))]
        scope: dict[str, Any] = {"np": np}
        for variable, operand, seen in zip(names, reads, event.reads, strict=True):
            tensor = torch.tensor(operand)
            scope[variable] = tensor.view(torch.bfloat16) if seen.dtype == "bfloat16" else tensor
        lines = event.lines(names, "y")
        with torch.no_grad():
            exec("\n".join([*event.imports, *lines]), scope)
        results = scope["y"] if len(gives) > 1 else [scope["y"]]
        assert len(results) == len(gives), (event.op, lines)
        for result, wanted in zip(results, gives, strict=True):
            numbers = wanted.dtype.kind in "fc"
            assert np.array_equal(array(result), wanted, equal_nan=numbers), lines
        checked += 1
    assert checked > 50
