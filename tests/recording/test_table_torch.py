"""Every meaning of ATen's table against PyTorch: what is labelled alike is the same number, as of
ONNX's in test_table_onnx.py; in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.recording.truth import both, changed, shares

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from probe.recorders.torch import Recorder  # noqa: E402
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
        a.clone(),
        a.contiguous(),
        t.permute(2, 0, 1),
        t.transpose(1, 2).contiguous(),
        a.t(),
        a[:1].expand(3, 6),
    ]
    found += [
        a.view(-1, 3),
        t.reshape(n * 5, 8),
        t.flatten(1),
        t[:, :1].squeeze(1),
        a.unsqueeze(1),
        aten._unsafe_view(a, [n * 2, 3]),
    ]
    found += [
        t[:, 1],
        t[:, 1:4:2],
        t.select(2, -1),
        torch.select_scatter(t, row(n, 8), 1, 2),
        torch.slice_scatter(a, b[:, :2], 1, 2, 4),
    ]
    found += [
        torch.cat([a, b], 1),
        torch.stack([a, b], -1),
        *a.split(4, 1),
        *a.split_with_sizes([1, 5], 1),
        *a.unbind(1),
        *a.chunk(3, 1),
    ]
    found += [
        *torch.ops.aten.unsafe_split(a, 4, 1),
        *torch.ops.aten.unsafe_chunk(a, 2, 1),
        *torch.ops.aten.unsafe_split_with_sizes(a, [2, 4], 1),
    ]
    found += [
        F.pad(a, (1, -2), value=1.5),
        F.pad(t, (2, 1), mode="reflect"),
        F.pad(t, (2, -1), mode="replicate"),
        F.pad(t, (-1, 2), mode="replicate"),
    ]
    found += [F.pad(p, (1, 2, 0, 1), mode=one) for one in ("reflect", "replicate")] + [
        F.pad(v, (1, 0, 1, 1, 0, 2), mode=one) for one in ("reflect", "replicate")
    ]
    found += [
        a.roll(2, 1),
        a.roll(1),
        t.roll((1, -2), (1, 2)),
        t.flip(1),
        t.flip(0, 2),
        a.repeat(2, 1),
        a.repeat_interleave(2, 1),
    ]
    found += [
        a.tril(1),
        a.triu(-1),
        t.diagonal(0, 1, 2),
        torch.diagonal_copy(t, 1, 1, 2),
        t.unfold(2, 3, 2),
        torch.as_strided(row(20), (3, 4), (5, 1)),
        torch.as_strided(a.T.contiguous(), (2, n), (n, 1)),
    ]
    found += [
        F.pixel_shuffle(p[:, :4], 2),
        F.pixel_unshuffle(p[:, :, :, :6], 2),
        torch.channel_shuffle(p, 3),
        F.unfold(p, (2, 3), padding=1),
    ]
    found += [
        F.fold(F.unfold(p, 2), (8, 7), 2),
        a.index_select(1, INDEX),
        a[:, INDEX],
        t[:, INDEX, INDEX],
        a.gather(1, torch.tensor([[1, 0]] * n)),
    ]
    found += [
        F.embedding(INDEX, row(5, 3)),
        a.take(torch.tensor([3, 0])),
        aten._unsafe_index(a, [None, INDEX]),
        a.masked_select(torch.tensor([[True] + [False] * 5] * n)),
    ]
    found += [
        a.index_fill(1, INDEX, 2.0),
        a.masked_fill(x["k"], 3.0),
        a.index_copy(1, torch.tensor([1, 4]), b[:, :2]),
        a.index_add(1, INDEX, b[:, :3]),
    ]
    found += [
        a.scatter(1, torch.tensor([[1, 0]] * n), b),
        a.scatter_add(1, torch.tensor([[1, 1]] * n), b[:, :2]),
        a.scatter(1, torch.tensor([[1, 4]] * n), 2.0),
    ]
    found += [
        a.index_put((torch.tensor([0, 1]), torch.tensor([3, 2])), row(2), accumulate=one)
        for one in (False, True)
    ]
    found += [
        aten._unsafe_index_put(a, [None, torch.tensor([3, 2])], row(n, 2)),
        row(6).masked_scatter(torch.tensor([[True, False] * 3] * 2), row(9) + 1),
    ]
    found += [
        a.masked_scatter(torch.tensor([[True] + [False] * 5] * n), row(8)),
        torch.where(x["k"], a, b),
        torch.where(x["k"], a, 0.0),
    ]
    found += [
        a.double(),
        a.to(torch.float32),
        a.half(),
        a.to(torch.int32),
        torch.ops.aten._to_copy(a, dtype=torch.bfloat16),
        a.positive(),
        a.detach().clone(),
    ]
    found += [
        torch.zeros(3),
        torch.ones(2),
        torch.full((3,), 2.5),
        torch.zeros_like(a),
        torch.ones_like(a),
        torch.full_like(a, 3.0),
        torch.eye(3),
    ]
    found += [
        torch.arange(5),
        torch.arange(1, 9, 2),
        torch.linspace(0, 1, 4),
        torch.linspace(0, 2, 4),
        a.new_zeros(2),
        a.new_ones(2),
        a.new_full((2,), 3.0),
    ]
    found += [
        torch.scalar_tensor(2.0),
        torch.hann_window(6),
        torch.hamming_window(6),
        torch.blackman_window(6),
        torch.hann_window(6, periodic=False),
    ]
    for size, words in (
        ((16, 14), {}),
        ((9, 11), {}),
        (None, {"scale_factor": 1.5}),
        (None, {"scale_factor": (2.2, 2.1), "recompute_scale_factor": False}),
    ):
        for mode in ("nearest", "nearest-exact", "bilinear", "bicubic"):
            found += [F.interpolate(p, size, mode=mode, **words)]
    found += [
        F.interpolate(p, (9, 11), mode=mode, align_corners=True) for mode in ("bilinear", "bicubic")
    ]
    found += [
        F.interpolate(p, (5, 4), mode=mode, antialias=True) for mode in ("bilinear", "bicubic")
    ]
    found += [F.interpolate(t, 11, mode=mode) for mode in ("nearest", "nearest-exact", "linear")]
    return flat(
        found,
        [
            F.interpolate(v, (5, 7, 6), mode=mode)
            for mode in ("nearest", "nearest-exact", "trilinear")
        ],
    )


def layers(x: Given) -> list[Any]:
    a, b, t, q, p, v, m, h = (x[name] for name in "abtqpvmh")
    aten = torch.ops.aten
    found = [
        a @ row(6, 3),
        torch.addmm(row(3), a, row(6, 3)),
        t @ row(8, 2),
        torch.bmm(t, q.mT),
        a @ row(6),
        torch.dot(row(6), row(6)),
        torch.vdot(row(6), row(6)),
    ]
    found += [
        torch.addmm(row(3), a, row(6, 3), alpha=n, beta=k)
        for n, k in ((2.0, 1.0), (1.0, 0.0), (0.5, 0.2))
    ]
    found += [
        torch.addmm(row(3), a * 0, row(6, 3), beta=0.2),
        torch.addmv(row(len(a)), a, row(6), beta=0.5),
        torch.baddbmm(row(5, 5), t, q.mT, alpha=0.5),
    ]
    found += [
        F.linear(t, row(3, 8), row(3)),
        torch.cdist(t, q),
        torch.cdist(t, q, p=1.0),
        torch.einsum("bij,bkj->bik", t, q),
    ]
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
        F.avg_pool2d(p, 3, 2, 1, count_include_pad=False),
        F.avg_pool2d(p, 2, divisor_override=3),
        F.avg_pool1d(t, 2),
        F.max_pool1d(t, 2),
        F.avg_pool3d(v, 2),
        F.max_pool3d(v, 2),
    ]
    found += [F.adaptive_avg_pool2d(p, n) for n in (1, 3, (4, 2))] + [
        F.adaptive_max_pool2d(p, 3),
        F.adaptive_avg_pool1d(t, 3),
        F.adaptive_avg_pool3d(v, 2),
        F.adaptive_max_pool3d(v, 2),
    ]
    found += [
        F.max_pool2d(p, 2, return_indices=True),
        F.max_pool2d(p[..., :6], 2, return_indices=True),
    ]
    found += [
        F.layer_norm(t, (8,), row(8), row(8)),
        F.layer_norm(t, (5, 8), eps=0.1),
        F.group_norm(p, 3, row(6), row(6)),
        F.group_norm(p, 2),
        F.rms_norm(t, (8,), row(8)),
    ]
    found += [
        F.batch_norm(p, row(6), row(6).abs(), row(6), row(6)),
        F.batch_norm(p, row(6), row(6).abs(), eps=0.1),
        F.instance_norm(p, weight=row(6)),
        F.batch_norm(p, None, None, training=True),
    ]
    found += (
        [F.softmax(t, n) for n in (1, -1)]
        + [F.log_softmax(t, n) for n in (1, -1)]
        + [aten._safe_softmax(t, -1)]
    )
    found += [
        F.scaled_dot_product_attention(h, h, h, is_causal=n, scale=s)
        for n in (False, True)
        for s in (None, 2.0)
    ]
    found += [F.scaled_dot_product_attention(h, h, h, attn_mask=torch.tensor(np.tri(5) > 0))]
    found += [
        op(t, n)
        for op in (
            torch.sum,
            torch.mean,
            torch.amax,
            torch.amin,
            torch.prod,
            torch.logsumexp,
            torch.var,
            torch.std,
        )
        for n in (1, -1)
    ]
    found += [
        op(t, 1)
        for op in (
            torch.max,
            torch.min,
            torch.median,
            torch.nansum,
            torch.count_nonzero,
            torch.argmax,
            torch.argmin,
            torch.argsort,
            torch.all,
            torch.any,
        )
    ]
    found += (
        [op(t, 1) for op in (torch.var_mean, torch.std_mean)]
        + [torch.var(t, 1, correction=n) for n in (0, 2)]
        + [torch.linalg.vector_norm(t, n, -1) for n in (1, 2)]
    )
    found += [torch.norm(t, n, 1) for n in (1, 2)] + [
        torch.max(a, b),
        torch.min(a, b),
        a.sum(),
        t.sum((0, 1)),
        t.mean((1, 2)),
    ]
    found += [
        op(t, n)
        for op in (torch.cumsum, torch.cumprod, torch.cummax, torch.cummin, torch.logcumsumexp)
        for n in (1, 2)
    ] + [torch.cumsum(row(1)[0], 0)]
    found += [
        t.sort(1),
        t.sort(-1, descending=True),
        t.topk(2),
        t.topk(3),
        t.topk(2, largest=False),
        t.kthvalue(2),
        t.kthvalue(3, 1),
    ]
    found += [
        F.glu(a, 1),
        torch.bucketize(a, torch.tensor([0.0, 1.0])),
        torch.bucketize(a, torch.tensor([0.2, 1.0])),
        torch.searchsorted(torch.tensor([0.2, 1.0]), a),
        torch.searchsorted(torch.tensor([0.2, 1.0]), a, right=True),
        torch.cdist(a, row(30, 6)),
        torch.cdist(a, row(30, 6), compute_mode="use_mm_for_euclid_dist"),
        torch.cdist(a, row(30, 6), compute_mode="donot_use_mm_for_euclid_dist"),
        F.affine_grid(m[:, :2], [len(m), 1, 4, 5], align_corners=False),
        F.affine_grid(m[:, :2], [len(m), 1, 4, 5], align_corners=True),
        a.nonzero(),
        *(torch.unique_consecutive(t.round(), return_inverse=n) for n in (False, True)),
        *(op(a.round(), dim=1) for op in (torch.unique_consecutive, torch.unique)),
        torch.unique(t.round()),
        *(torch.aminmax(t, dim=n, keepdim=n == 2) for n in (1, 2)),
        torch.aminmax(row(6)),
        torch._weight_norm(row(3, 4), row(3, 1), 0),
    ]
    found += [
        torch.linalg.det(m),
        torch.linalg.inv(m),
        torch.linalg.slogdet(m),
        torch.linalg.qr(m),
        torch.linalg.svd(m),
        torch.linalg.lu_factor(m),
        torch.linalg.eig(m),
    ]
    spread = m @ m.mT + torch.eye(3)
    found += [
        torch.linalg.cholesky(spread),
        torch.linalg.cholesky(spread, upper=True),
        torch.linalg.eigh(spread),
    ]
    chol, right = torch.linalg.cholesky(spread), t[:, :3, :2]
    found += [
        torch.linalg.solve(spread, right),
        torch.linalg.solve(spread, right.mT, left=False),
        torch.linalg.solve(spread, m[:, 0]),
        torch.linalg.solve(row(3, 3) + 9 * torch.eye(3), right),
        torch.linalg.lu_solve(*torch.linalg.lu_factor(spread), right),
        torch.cholesky_solve(right, chol),
        torch.cholesky_solve(right, chol.mT, upper=True),
        *(
            torch.linalg.solve_triangular(chol, right, upper=False, unitriangular=n)
            for n in (False, True)
        ),
        torch.linalg.solve_triangular(chol.mT, right.mT, upper=True, left=False),
        torch.triangular_solve(right, chol, upper=False),
        torch.triangular_solve(right, chol, upper=False, transpose=True),
    ]
    found += [
        F.grid_sample(p, x["g"], align_corners=False, mode=mode) for mode in ("bilinear", "nearest")
    ] + [
        F.grid_sample(p, x["g"], align_corners=True),
        F.grid_sample(v, x["g3"], align_corners=False),
    ]
    found += [
        F.embedding_bag(torch.tensor([[0, 1], [2, 2]]), row(5, 3), mode=mode)
        for mode in ("sum", "mean", "max")
    ]
    found += (
        [torch.fft.fft(t, dim=n) for n in (1, 2)]
        + [torch.fft.rfft(t, n=n) for n in (7, 8)]
        + [torch.fft.irfft(torch.fft.rfft(t), n=n) for n in (8, 9)]
        + [torch.fft.fft(t, norm="ortho")]
    )
    z = torch.complex(a, x["b"])
    found += [
        z * z,
        z * 2,
        z + z,
        z / (z + 3),
        z.abs(),
        z.angle(),
        z @ torch.view_as_complex(row(6, 4, 2)),
    ]
    found += [z.conj() + 1, torch._neg_view(a) + 1, z.real, z.imag, torch.view_as_real(z * 3)]
    return flat(found)


def elements(x: Given) -> list[Any]:
    a, b = x["a"], x["b"]
    names = """abs acos acosh asin asinh atan atanh ceil cos cosh digamma erf erfc erfinv exp exp2
 expm1 floor lgamma log log10 log1p log2 logit neg reciprocal relu round rsqrt sigmoid sign sgn sin
 sinc sinh sqrt square tan tanh trunc i0 isnan isinf isfinite signbit frac rad2deg
 deg2rad""".split()
    found = [getattr(torch, name)(a) for name in names]
    functions = (
        F.gelu,
        F.silu,
        F.mish,
        F.elu,
        F.selu,
        F.celu,
        F.hardswish,
        F.hardsigmoid,
        F.relu6,
        F.softplus,
        F.leaky_relu,
        F.hardtanh,
        F.logsigmoid,
        F.softsign,
        F.hardshrink,
        F.softshrink,
    )
    found += [one(a) for one in functions] + [
        F.gelu(a, approximate="tanh"),
        F.elu(a, 0.5),
        F.celu(a, 0.5),
        F.softplus(a, 2.0),
        F.leaky_relu(a, 0.3),
        F.hardtanh(a, -0.5, 0.5),
    ]
    found += [
        F.hardshrink(a, 0.2),
        F.softshrink(a, 0.2),
        F.threshold(a, 0.1, 2.0),
        F.threshold(a, 0.1, 3.0),
        F.prelu(a, row(6)),
        a.clamp(-0.5, 0.5),
        a.clamp(min=0),
        a.clamp(0, 6),
        a.clamp(row(6), row(6) + 1),
    ]
    pairs = """add sub mul div pow maximum minimum fmod remainder atan2 hypot copysign nextafter eq
 ne lt le gt ge xlogy floor_divide fmax fmin logaddexp heaviside""".split()
    found += [getattr(torch, name)(a, b) for name in pairs] + [
        torch.div(a, b, rounding_mode=one) for one in ("floor", "trunc")
    ]
    found += [
        a + 1,
        a - 1,
        1 - a,
        a * 2,
        a / 2,
        2 / a,
        a**2,
        a**3,
        2**a,
        a * 0,
        torch.add(a, b, alpha=2),
        torch.sub(a, b, alpha=2),
        torch.rsub(a, b),
    ]
    found += (
        [torch.lerp(a, b, n) for n in (0.2, 0.5)]
        + [torch.addcmul(a, b, b, value=n) for n in (1, 2)]
        + [torch.addcdiv(a, b, b, value=n) for n in (1, 2)]
    )
    found += [torch.round(a, decimals=n) for n in (0, 1)] + [
        torch.nan_to_num(a),
        torch.logical_not(x["k"]),
        torch.logical_and(x["k"], a > 0),
        torch.bitwise_xor(x["k"], a > 0),
    ]
    return [
        *found,
        a.to(torch.int32) << 2,
        a.to(torch.int32) >> 1,
        torch.polygamma(1, a),
        torch.complex(a, b),
        torch.special.i1(a),
    ]


pytestmark = [
    pytest.mark.slow,  # half a minute
    pytest.mark.filterwarnings("ignore:torch.triangular_solve is deprecated"),
]

GROUPS: dict[str, Callable[[Given], list[Any]]] = {
    "elements": elements,
    "layers": layers,
    "moves": moves,
}


def given(rows: list[int] | None = None) -> Given:
    return {
        k: torch.tensor(one if rows is None else changed(one, rows)) for k, one in INPUTS.items()
    }


@pytest.mark.parametrize("rows", [[2, 0], [0, 1, 2, 3]], ids=str)
@pytest.mark.parametrize("name", GROUPS)
def test_what_is_labelled_alike_is_the_same_number(name: str, rows: list[int]) -> None:
    program, ours, theirs = GROUPS[name], given(), given(rows)
    sides = both(lambda: program(ours), lambda: program(theirs), near=1e-7)
    best: dict[str, float] = {}
    for op, share, known in shares(sides):
        assert known or op.op in UNKNOWN, (op.op, op.attributes, op.meaning)
        best[op.op] = max(best.get(op.op, 0), share)
    if len(rows) == 4:
        silent = {op for op, share in best.items() if not share}
        assert not silent - UNKNOWN, silent


COMPOSITE = """_batch_norm_no_update _batch_norm_with_update _convolution _embedding_bag
 _cholesky_solve_helper
 _reshape_alias _slow_conv2d_forward _weight_norm adaptive_avg_pool1d adaptive_avg_pool2d alias
 argsort avg_pool1d batch_norm cholesky chunk concat contiguous copy cudnn_batch_norm detach
 embedding_bag fill flatten
 layer_norm lift_fresh lift_fresh_copy linear log_softmax max_pool1d max_pool1d_with_indices
 max_pool2d max_pool3d mkldnn_convolution mkldnn_max_pool2d movedim native_channel_shuffle norm
 linalg_solve_ex numpy_T pad positive repeat_interleave reshape rms_norm
 scaled_dot_product_attention softmax
 _conj_copy _conj_physical conj conj_physical resolve_conj resolve_neg
 swapaxes tensor_split thnn_conv2d to_dense _to_dense to_mkldnn unsafe_chunk zero""".split()
"""What dispatch turns into other operations before it is seen, or other settings run."""

LAYERS = """_native_multi_head_attention _transformer_encoder_layer_fwd mkldnn_rnn_layer _fft_c2c
 _fused_rms_norm _grid_sampler_2d_cpu_fallback _native_batch_norm_legit scatter_reduce
 _native_batch_norm_legit_no_training quantized::linear_dynamic""".split()
"""Operations of whole layers, in test_meaning.py and test_places.py, or of other settings."""

UNKNOWN = {"aten.nonzero", "aten.sum", "aten._embedding_bag_forward_only"}
UNKNOWN |= {f"aten.{op}" for op in ("unique_consecutive", "_unique2", "unique_dim")}
"""What reads everything here, or is not described."""


def test_every_row_of_the_table_is_reached() -> None:
    met: set[str] = set()
    for program in GROUPS.values():
        Recorder(lambda program=program: program(given())).record(lambda event: met.add(event.op))
    missing = TABLE.keys() - {one.split(".")[1].removesuffix("_") for one in met}
    assert not missing - {*COMPOSITE, *LAYERS}
