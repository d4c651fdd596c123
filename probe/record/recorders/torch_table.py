"""ATen's operations in the words of :mod:`probe.order.semantics.operations`: one line an
operation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from probe.case.floats import FORMATS
from probe.order import semantics as s
from probe.order.semantics import operations as o
from probe.record.recorders.torch_calls import AtenCall
from probe.record.recorders.torch_values import dtype

# What each operation computes, by its name without ``_`` behind it. Besides, functions of elements
# that PyTorch tags as such.
TABLE = s.OperationTable()

Row = Callable[[AtenCall], s.Meaning]

# Functions of the elements at one place that PyTorch does not call so.
UNTAGGED = set(
    "hardswish _prelu_kernel floor_divide rsub complex polar log_sigmoid_forward".split()
)

# What moves, copies, chooses or counts elements, or makes numbers of none.
MOVES = """gather take index _unsafe_index roll flip rot90 repeat unfold tril triu diagonal
 diag_embed narrow im2col pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle
 masked_select _pack_padded_sequence reflection_pad1d reflection_pad2d reflection_pad3d
 replication_pad1d replication_pad2d replication_pad3d upsample_nearest1d upsample_nearest2d
 upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d
 _upsample_nearest_exact3d squeeze expand select slice index_select embedding split split_with_sizes
 unsafe_split unsafe_split_with_sizes unbind cat stack block_diag _chunk_cat where masked_fill
 slice_scatter select_scatter diagonal_scatter as_strided as_strided_scatter masked_scatter
 constant_pad_nd index_fill max_unpool2d max_unpool3d view_as_real view_as_complex max amax amin min
 aminmax any all sort topk kthvalue mode argmax argmin median nonzero
 zeros ones full zeros_like ones_like full_like new_zeros new_ones
 new_full fill zero scalar_tensor arange eye tril_indices triu_indices repeat_interleave"""


def meaning(call: AtenCall) -> s.Meaning:
    """Returns what a call computes; ``Unknown`` if it is not described."""
    if call.drawn:
        return s.Unknown("it draws random numbers")
    # what gives a view has a twin that gives a copy
    name = call.op if call.op in TABLE else call.op.removesuffix("_copy")
    pointwise = torch.Tag.pointwise in call.func.tags or name in UNTAGGED
    row = TABLE.get(name, _aten_function if pointwise else None)
    means = s.by_table({name: row} if row else {}, replace(call, op=name))
    if isinstance(means, s.Unknown) and means.why.startswith(f"{name} "):  # with its overload
        why = means.why.removeprefix(name).replace("attributes", "arguments")
        return s.Unknown(str(call.func).removesuffix(".default") + why)
    return means


# functions of elements

# Functions that cut off, with the arguments that say where.
BOUNDS = {"hardtanh": ("min_val", "max_val"), "clamp": ("min", "max"),
          "clamp_min": ("min", ""), "clamp_max": ("", "max")}  # fmt: skip


def _aten_function(c: AtenCall) -> s.Meaning:
    """A function of elements. Numbers beside arrays are named by where they stand: ``self`` or
    ``other``."""
    if c.op in BOUNDS and not any(map(c.has, BOUNDS[c.op])):
        return o.clip(*(c.get(name) for name in BOUNDS[c.op]))
    if c.op == "gelu":
        return o.gelu(c["approximate"] == "tanh")
    if c.op == "rsub" and c.has("other"):
        return replace(o.function("subtract", **dict(c.more())), reads=(1, 0))
    if c.op == "rsub" and not c.more("other"):
        return o.beside("subtract", 0, c["other"], c.dtype())
    if c.op == "sqrt":  # PyTorch 2.13 gives a sixth of them one ulp off
        return o.approximate("sqrt")
    if c.op == "pow" and c.has("self") and c.count == 1:
        return o.power(c["exponent"])
    ends = [c.get("self"), c.get("other")]
    numbers = [at for at, end in enumerate(ends) if isinstance(end, bool | int | float)]
    more = {each for each, _ in c.more()} - {"self", "other"}
    if c.count == len(numbers) == 1 and c.has(("other", "self")[numbers[0]]) and not more:
        (at,) = numbers
        if c.dtype() in FORMATS:
            return o.beside(c.op, at, ends[at], c.dtype())
    return o.function(c.op, **dict(c.more()))


@TABLE.row("clone lift_fresh detach alias to_mkldnn _to_dense _to_sparse _to_copy")
def _aten_same(c: AtenCall) -> s.Meaning:
    after = c.get("dtype")
    return s.Same() if after is None else o.cast(c.dtype(), dtype(after))


@TABLE.row("view _unsafe_view _reshape_alias unsqueeze")
def _viewed(c: AtenCall) -> s.Meaning:
    if c.get("dtype") is not None:
        return o.bitcast(c.dtype(), c.dtypes[0], c.gives[0] == c.shape())
    return s.Reshapes()


@TABLE.row("transpose t")
def _aten_transpose(c: AtenCall) -> s.Meaning:
    axes = list(range(c.rank()))
    first, second = c.get("dim0", 0), c.get("dim1", -1)
    if axes:
        axes[first], axes[second] = axes[second], axes[first]
    return o.transpose(axes)


# sums of products


def _aten_add(product: Callable[[AtenCall], Any]) -> Row:
    """``beta * self + alpha * product(one, two)``."""

    def row(c: AtenCall) -> s.Meaning:
        return o.gemm(c, replace(product(c), reads=(1, 2)), 0, c["alpha"], c["beta"])

    return row


def _an_axis_each(numbers: Any, rank: int) -> tuple[int, ...]:
    sizes = (numbers,) if isinstance(numbers, int) else tuple(numbers)
    return sizes * rank if len(sizes) == 1 else sizes


@TABLE.row("convolution _convolution mkldnn_convolution _slow_conv2d_forward")
def _aten_conv(c: AtenCall) -> s.Meaning:
    rank = len(c["weight"].shape) - 2
    spatial, turned = tuple(range(2, rank + 2)), bool(c.get("transposed", False))
    frame = s.Frame(
        *(tuple(c["weight"].shape[2:]), _an_axis_each(c["stride"], rank)),
        _an_axis_each(c.get("dilation", 1), rank),
        tuple((n, n) for n in _an_axis_each(c["padding"], rank)),
        turned,
    )
    return o.convolution(
        frame,
        # a transposed convolution's weights have the input's channels first
        weights=(*spatial, *((0, 1) if turned else (1, 0))),
        groups=c.get("groups", 1),
        reads=range(c.count),
    )


def _spatial_axes(c: AtenCall) -> tuple[int, int]:
    """How many spatial axes an operation of this name has, and how many stand before them."""
    rank = next(int(d) for d in "123" if f"{d}d" in c.op)
    return rank, c.rank() - rank


@TABLE.row(
    "max_pool2d_with_indices max_pool3d_with_indices mkldnn_max_pool2d mkldnn_max_pool3d"
    " avg_pool1d avg_pool2d avg_pool3d"
)
def _aten_pool(c: AtenCall) -> s.Meaning:
    rank, lead = _spatial_axes(c)
    average = c.op.startswith("avg")
    if average and c.get("divisor_override") is not None:
        return s.Unknown("it divides by a number of the caller's")
    kernel = _an_axis_each(c["kernel_size"], rank)
    frame = s.Frame(
        *(kernel, _an_axis_each(c["stride"], rank) if c["stride"] else kernel),
        (1,) * rank if average else _an_axis_each(c["dilation"], rank),
        tuple((n, n) for n in _an_axis_each(c["padding"], rank)),
    )
    return o.pool(
        *("average" if average else "max", frame),
        counts_padding=average and bool(c["count_include_pad"]),
        lead=lead,
    )


@TABLE.row(
    "adaptive_avg_pool1d adaptive_avg_pool2d _adaptive_avg_pool2d _adaptive_avg_pool3d"
    " adaptive_max_pool2d adaptive_max_pool3d"
)
def _adaptive(c: AtenCall) -> s.Meaning:
    rank, lead = _spatial_axes(c)
    sizes, inner = _an_axis_each(c["output_size"], rank), c.shape()[lead:]
    if "max" in c.op:
        return s.Moves()
    if any(n % m for n, m in zip(inner, sizes, strict=True)):
        return s.Unknown("its windows are of several sizes")
    kernel = tuple(n // m for n, m in zip(inner, sizes, strict=True))
    frame = s.Frame(kernel, kernel, (1,) * rank, ((0, 0),) * rank)
    return o.pool("average", frame, counts_padding=True, lead=lead)


# norms, attention, recurrence


@TABLE.row(
    "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training"
    " cudnn_batch_norm _batch_norm_with_update _batch_norm_no_update"
)
def _aten_bn(c: AtenCall) -> s.Meaning:
    training = bool(c.get("training", c.op.endswith("with_update")))
    if training and c.has("running_mean"):
        return s.Unknown("it changes its running means, as in training")
    return o.batch_norm(c.rank(), training, count=c.count)


# sums, means, extremes; whole axes and matrices


def _aten_axes(c: AtenCall) -> tuple[int, ...]:
    dim = c.get("dim") if c.shape() else ()
    return (dim,) if isinstance(dim, int) else tuple(dim or ()) or tuple(range(c.rank()))


TABLE |= {
    "copy": lambda c: o.cast(dtype(c["src"].dtype), dtype(c["self"].dtype)),
    **s.rows_for(
        "_conj _conj_physical conj_physical",
        lambda c: o.function("conj") if c["self"].dtype.is_complex else s.Same(),
    ),
    "_neg_view": lambda c: o.function("negative"),
    # sums of products
    **s.rows_for("mm bmm mv dot vdot", lambda c: o.matmul((c.rank(0), c.rank(1)))),
    **s.rows_for("addmm baddbmm addmv", _aten_add(lambda c: o.matmul((c.rank(1), c.rank(2))))),
    "addbmm": _aten_add(lambda c: o.einsum("bmk,bkn->mn")),
    "addr": _aten_add(lambda c: o.einsum("m,n->mn")),
    "linear": lambda c: o.dense(bias=2 if c.count == 3 else None),
    # whole axes
    **s.rows_for(
        "softmax _softmax _safe_softmax log_softmax _log_softmax",
        lambda c: o.normalised(c.op.removeprefix("_"), (c["dim"],)),
    ),
    **s.rows_for(
        "native_layer_norm _fused_rms_norm",
        lambda c: o.normalised(
            "rms_norm" if "rms" in c.op else "layer_norm",
            range(len(c["input"].shape) - len(c["normalized_shape"]), c.rank()),
        ),
    ),
    "native_group_norm": lambda c: o.normalised("group_norm", range(1, c.rank())),
    **s.rows_for(
        "sum mean prod logsumexp nansum linalg_vector_norm norm count_nonzero var std",
        lambda c: o.reduced(c.op, _aten_axes(c)),
    ),
    "permute": lambda c: o.transpose(c["dims"]),
    **s.rows_for(MOVES, lambda c: s.Moves()),
}
