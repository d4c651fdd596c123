"""ATen's operations in the words of :mod:`probe.semantics.operations`: one line an operation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from probe import semantics as s
from probe.floats import FORMATS
from probe.recorders.torch_calls import AtenCall
from probe.recorders.torch_values import Slot, dtype
from probe.semantics import moving
from probe.semantics import operations as o
from probe.semantics.moving import asked_move, asked_resize

# What each operation computes, by its name without ``_`` behind it. Besides, functions of elements
# that PyTorch tags as such.
TABLE = s.OperationTable()

Row = Callable[[AtenCall], s.Meaning]

# Functions of the elements at one place that PyTorch does not call so.
UNTAGGED = set(
    "hardswish _prelu_kernel floor_divide rsub complex polar log_sigmoid_forward".split()
)

# What moves the elements of its first operand, by numbers and indices: it is asked where.
MOVES = """gather take index _unsafe_index roll flip rot90 repeat unfold tril triu diagonal
 diag_embed narrow im2col pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle
 masked_select _pack_padded_sequence reflection_pad1d reflection_pad2d reflection_pad3d
 replication_pad1d replication_pad2d replication_pad3d upsample_nearest1d upsample_nearest2d
 upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d
 _upsample_nearest_exact3d"""


def meaning(call: AtenCall) -> s.Meaning:
    """Returns what a call computes; ``Unknown`` if it is not described."""
    if call.run is None:
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

# Functions with numbers: the arguments' names, in the order in which a constructor takes them.
CONSTRUCTORS: dict[str, tuple[str, Callable[..., s.Meaning]]] = {
    "gelu": ("approximate", lambda approximate: o.gelu(approximate == "tanh")),
    "leaky_relu": ("negative_slope", o.leaky_relu),
    "elu": ("alpha scale input_scale", o.elu),
    "celu": ("alpha", o.celu),
    "softplus": ("beta threshold", o.softplus),
    "hardsigmoid": ("", o.hard_sigmoid),
    "hardtanh": ("min_val max_val", o.clip),
    "clamp": ("min max", o.clip),
    "clamp_min": ("min", lambda low: o.clip(low, None)),
    "clamp_max": ("max", lambda high: o.clip(None, high)),
}


def _aten_function(c: AtenCall) -> s.Meaning:
    """A function of elements. Numbers beside arrays are named by where they stand: ``self`` or
    ``other``."""
    names, constructor = CONSTRUCTORS.get(c.op, ("", None))
    if constructor is not None and not any(c.has(name) for name in names.split()):
        return constructor(*(c[name] for name in names.split()))
    if c.op == "polygamma":
        return o.beside(c.op, 0, c["n"], c.dtype())
    if c.op == "rsub" and c.has("other"):
        return replace(o.function("subtract", **dict(c.more())), reads=(1, 0))
    if c.op == "rsub" and not c.more("other"):
        return o.beside("subtract", 0, c["other"], c.dtype())
    if c.op == "clamp" and c.count == 2 and None in (c["min"], c["max"]):  # by one array
        return o.function("clamp_min" if c.has("min") else "clamp_max")
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
    function = o.function(c.op, **dict(c.more()))
    if c.count == 1 and function.zero == "clears" and not c.has("self"):
        return replace(function, zero="")  # a number over an array
    return function


@TABLE.row("clone lift_fresh detach alias to_mkldnn _to_dense _to_sparse _to_copy")
def _aten_same(c: AtenCall) -> s.Meaning:
    after = c.get("dtype")
    return s.Same() if after is None else o.cast(c.dtype(), dtype(after))


@TABLE.row(
    "mse_loss huber_loss smooth_l1_loss soft_margin_loss binary_cross_entropy"
    " binary_cross_entropy_with_logits"
)
def _loss(c: AtenCall) -> s.Meaning:
    """A function of two elements or more, and perhaps the mean or the sum of all of them."""
    word = "squared_difference" if c.op == "mse_loss" else c.op
    present = [c.has(name) for name in ("weight", "pos_weight") if name in c.attributes]
    more: dict[str, Any] = {"given": tuple(present)} if any(present) else {}
    each = o.function(word, **dict(c.more("reduction")), **more)
    if not c["reduction"]:
        return each
    shape = np.broadcast_shapes(*(operand.shape for operand in c.reads if operand is not None))
    whole = o.reduced(("mean", "sum")[c["reduction"] - 1], range(len(shape)))
    build = s.StepBuilder(c.count)
    build.add(whole, (build.add(each, range(c.count), shape),), c.gives[0])
    return build.done()


@TABLE.row("view _unsafe_view _reshape_alias unsqueeze")
def _viewed(c: AtenCall) -> s.Meaning:
    if c.get("dtype") is not None:
        return o.bitcast(c.dtype(), c.dtypes[0], c.gives[0] == c.shape())
    return o.reshape()


@TABLE.row("squeeze")
def _squeezed(c: AtenCall) -> s.Meaning:
    dim = c.get("dim")
    axes = None if dim is None or not c.shape() else (dim,) if isinstance(dim, int) else dim
    return o.squeeze(c.shape(), axes)


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
        alpha, beta, means = c["alpha"], c["beta"], product(c)
        if beta in (0, 1):
            numbers = () if alpha == 1 else c.more()
            return replace(means, reads=(1, 2), bias=None if beta == 0 else 0, numbers=numbers)
        build = s.StepBuilder(c.count)
        first = build.add(replace(means, numbers=(alpha,)), (1, 2), c.gives[0])
        scaled = build.add(o.function("multiply", other=beta), (0,), c.shape())
        build.add(o.function("add"), (first, scaled), c.gives[0])
        return build.done()

    return row


def _an_axis_each(numbers: Any, rank: int) -> tuple[int, ...]:
    sizes = (numbers,) if isinstance(numbers, int) else tuple(numbers)
    return sizes * rank if len(sizes) == 1 else sizes


@TABLE.row("convolution _convolution mkldnn_convolution _slow_conv2d_forward")
def _aten_conv(c: AtenCall) -> s.Meaning:
    rank = len(c["weight"].shape) - 2
    spatial, turned = tuple(range(2, rank + 2)), bool(c.get("transposed", False))
    frame = o.Frame(
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
        return o.own_rows("average", range(lead), c.more())
    kernel = _an_axis_each(c["kernel_size"], rank)
    frame = o.Frame(
        *(kernel, _an_axis_each(c["stride"], rank) if c["stride"] else kernel),
        (1,) * rank if average else _an_axis_each(c["dilation"], rank),
        tuple((n, n) for n in _an_axis_each(c["padding"], rank)),
    )
    return o.pool(
        *("average" if average else "max", frame),
        counts_padding=average and bool(c["count_include_pad"]),
        ceil=bool(c["ceil_mode"]),
        lead=lead,
    )


@TABLE.row(
    "adaptive_avg_pool1d adaptive_avg_pool2d _adaptive_avg_pool2d _adaptive_avg_pool3d"
    " adaptive_max_pool2d adaptive_max_pool3d"
)
def _adaptive(c: AtenCall) -> s.Meaning:
    rank, lead = _spatial_axes(c)
    sizes, inner = _an_axis_each(c["output_size"], rank), c.shape()[lead:]
    if "max" in c.op or any(n % m for n, m in zip(inner, sizes, strict=True)):
        return o.own_rows(c.op, range(lead), sizes)
    kernel = tuple(n // m for n, m in zip(inner, sizes, strict=True))
    frame = o.Frame(kernel, kernel, (1,) * rank, ((0, 0),) * rank)
    return o.pool("average", frame, counts_padding=True, lead=lead)


@TABLE.row("_cdist_forward _euclidean_dist")
def _aten_cdist(c: AtenCall) -> s.Meaning:
    """A norm of the differences of every pair of rows, however it is computed: of many rows PyTorch
    takes the Euclidean one from a product of matrices."""
    left, right = c["x1"].shape, c["x2"].shape
    lead = np.broadcast_shapes(left[:-2], right[:-2])
    count, others, size = left[-2], right[-2], left[-1]
    norm = o.reduced("cdist", (-1,), numbers=(float(c.get("p", 2.0)),))
    build = s.StepBuilder(2)
    wide = build.add(o.reshape(), (0,), (*left[:-1], 1, size))
    high = build.add(o.reshape(), (1,), (*right[:-2], 1, others, size))
    apart = build.add(s.Each("difference"), (wide, high), (*lead, count, others, size))
    build.add(norm, (apart,), c.gives[0])
    return build.done()


@TABLE.row("dist")
def _distance(c: AtenCall) -> s.Meaning:
    shape = np.broadcast_shapes(c.shape(0), c.shape(1))
    norm = o.reduced("norm", range(len(shape)), numbers=(float(c["p"]),))
    build = s.StepBuilder(2)
    build.add(norm, (build.add(s.Each("difference"), (0, 1), shape),), ())
    return build.done()


# norms, attention, recurrence


@TABLE.row("native_layer_norm _fused_rms_norm")
def _aten_norm(c: AtenCall) -> s.Meaning:
    rank, last = len(c["input"].shape), len(c["normalized_shape"])
    word = "rms_norm" if "rms" in c.op else "layer_norm"
    return o.norm(range(rank - last, rank), c["eps"], c.has("weight"), c.has("bias"), word)


@TABLE.row("native_group_norm")
def _aten_gn(c: AtenCall) -> s.Meaning:
    axes, present = range(1, c.rank()), (c.has("weight"), c.has("bias"))
    return o.norm(axes, c["eps"], *present, "group_norm", (1, c["group"]))


@TABLE.row(
    "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training"
    " cudnn_batch_norm _batch_norm_with_update _batch_norm_no_update"
)
def _aten_bn(c: AtenCall) -> s.Meaning:
    present, eps = (c.has("weight"), c.has("bias")), c.get("eps", c.get("epsilon"))
    if not c.get("training", c.op.endswith("with_update")):
        return o.batch_norm(eps, *present, along=1)
    norm = o.batch_norm_in_training(c.rank(), eps, *present)
    if c.shape()[0] == 1:  # as InstanceNorm calls it, with the batch among the channels
        norm = o.instance_norm(c.rank(), eps, *present)
    if not c.has("running_mean"):
        return norm
    # its running means change in place, each by what is found of its own channel
    reads = [0, *(c.at(name) for name in ("weight", "bias") if c.has(name))]
    build, count = s.StepBuilder(c.count), len(c.gives) - 2
    first = build.add(norm, reads, *c.gives[:count])
    for n, name in enumerate(("running_mean", "running_var")):
        each = s.Each(name, numbers=c.more("training"))
        build.add(each, (c.at(name), first + 1 + n), c.gives[count + n])
    return build.done(*range(first, build.count))


@TABLE.row("_scaled_dot_product_flash_attention_for_cpu")
def _attends(c: AtenCall) -> s.Meaning:
    if c["dropout_p"]:
        return s.Unknown("it draws random numbers")
    ours, theirs = c["query"].shape[:-2], c["key"].shape[:-2]
    if ours != theirs and (ours[:-1] != theirs[:-1] or ours[-1] % theirs[-1]):
        return s.Unknown("keys and queries have different leading axes")
    kind = dtype((c["attn_mask"] if c.has("attn_mask") else c["query"]).dtype)
    scale = c["scale"] if c["scale"] is not None else 1 / math.sqrt(c["query"].shape[-1])
    return s.Attends(bool(c["is_causal"]), (float(scale),), boolean=kind == "bool", dtype=kind)


@TABLE.row("_transformer_encoder_layer_fwd _native_multi_head_attention")
def _encodes(c: AtenCall) -> s.Meaning:
    """A layer of an encoder, or its attention alone, of one tensor as queries, keys and values."""
    layer, mask, numbers = c.op.startswith("_transformer"), c["mask"], c.more("mask_type")
    if not layer and not c.same("query", "key", "value"):
        return s.Unknown("attention with keys or values that differ from the queries")
    if layer and c["src"].strides is None:
        return s.Unknown("sequences of several lengths, packed")
    word = "transformer_encoder_layer" if layer else "multi_head_attention"
    means: s.Meaning = s.Encodes(word, numbers)
    ahead, rows = 0 if layer else 2, c["mask_type"] == 1  # it stands three times in the call
    if mask is not None:
        means = s.Encodes(word, numbers, c.at("mask") - ahead, rows, dtype(mask.dtype))
    of_heads = mask is not None and (len(mask.shape) != 2 or c["mask_type"] not in (0, 1))
    if layer:
        return s.Unknown("attention with a mask for each head") if of_heads else means
    if len(c.gives) > 1 or of_heads:
        # its weights too, or a mask for each head: a sample reads its own row of both
        each = mask is not None and (rows or len(mask.shape) == 4)
        means = o.own_rows(word, (0,), numbers, (c.at("mask") - ahead,) if each else ())
    build = s.StepBuilder(c.count)
    build.add(means, (0, *range(3, c.count)), *c.gives)
    return build.done(*range(c.count, build.count))


# The number of the cell in ``mkldnn_rnn_layer``: PyTorch computes all others by steps.
LSTM = 2


@TABLE.row("mkldnn_rnn_layer")
def _rnn_layer(c: AtenCall) -> s.Meaning:
    if c["batch_sizes"]:
        return s.Unknown("sequences of several lengths, packed")
    numbers, reverse = c.more("reverse"), bool(c["reverse"])
    if c["mode"] == LSTM:
        # without biases it is handed zeros in the shapes of the weights, and reads none of them
        biases = (3, 4) if c["has_biases"] else (-1, -1)
        return s.Recurs("lstm", "ifgo", (0, 1, 2, *biases, 5, 6), reverse=reverse)
    return s.Scans(0, "rnn_layer", reverse, (2,), numbers, states=(5, 6), batch=1)


# sums, means, extremes; whole axes and matrices


def _aten_axes(c: AtenCall) -> tuple[int, ...]:
    dim = c.get("dim") if c.shape() else ()
    return (dim,) if isinstance(dim, int) else tuple(dim or ()) or tuple(range(c.rank()))


@TABLE.row(
    "sum mean amax amin prod logsumexp any all nansum linalg_vector_norm norm count_nonzero"
    " var std var_mean std_mean max min argmax argmin median nanmedian"
)
def _reduces(c: AtenCall) -> s.Meaning:
    keep, more = bool(c.get("keepdim")), c.more("dim", "keepdim")
    if c.op in ("var", "std"):
        correction = 1 if c["correction"] is None else c["correction"]
        return o.variance(c.op, _aten_axes(c), keep, correction)
    places = c.op in ("argmax", "argmin", "median", "nanmedian")
    places |= len(c.gives) > 1 and c.op in ("max", "min")
    if c.op in ("norm", "linalg_vector_norm") and not c.more("dim", "keepdim", "ord", "p"):
        order = c.get("ord", c.get("p"))
        return o.vector_norm(_aten_axes(c), 2 if order is None else order, keep)
    return o.reduced(c.op, _aten_axes(c), keep, more, places)


@TABLE.row("aminmax")
def _aminmax(c: AtenCall) -> s.Meaning:
    axes, keep = _aten_axes(c), bool(c.get("keepdim"))
    build = s.StepBuilder(1)
    both = [build.add(o.reduced(word, axes, keep), (0,), c.gives[0]) for word in ("min", "max")]
    return build.done(*both)


@TABLE.row("sort topk kthvalue mode")
def _sorts(c: AtenCall) -> s.Meaning:
    keep = c.op not in ("kthvalue", "mode") or bool(c["keepdim"])
    if c.op == "sort":
        return o.sort(c.rank(), c["dim"], bool(c["descending"]))
    if c.op == "topk":
        return o.top_k(c.rank(), c["k"], c["dim"], bool(c["largest"]), bool(c["sorted"]))
    return o.along(c.op, c.rank(), (c["dim"],), c.more(), keep)


def _own_index(own: Callable[[AtenCall], Any] = lambda c: (), *rows: int) -> Row:
    """Every output reads its own index of these axes of the first operand, its own of the first
    axis of ``rows``, and all of everything else."""
    return lambda c: o.own_rows(c.op, own(c), c.more(), rows)


EVERYTHING = _own_index()


@TABLE.row("grid_sampler_2d grid_sampler_3d _grid_sampler_2d_cpu_fallback")
def _aten_grid(c: AtenCall) -> s.Meaning:
    mode = ("linear", "nearest", "cubic")[c["interpolation_mode"]]
    padding = ("zeros", "border", "reflection")[c["padding_mode"]]
    return o.grid_sample(mode, padding, bool(c["align_corners"]))


def _aten_solve(*names: str, own: tuple[int, ...] = (2, 2), last: int = 2) -> Row:
    """Every output reads all of its own part of each operand: of these names, with so many axes of
    its ``own``, as the first result has ``last`` ones. Of a linear system that is the solution;
    others are parts of the first operand's factorisation."""

    def row(c: AtenCall) -> s.Meaning:
        slots = [c.at(name) for name in names]
        shapes = [c.shape(slot) for slot in slots]
        right, mine, axes, (to, *rest) = shapes[-1], own, last, c.gives
        if c.op.endswith("solve_ex") and right in ((right[-1],), shapes[0][:-1]):
            mine, axes = (*own[:-1], 1), 1  # of one right side each
        lead, word = to[: len(to) - axes], c.op.lstrip("_").removesuffix("_ex")
        call = replace(c, gives=[to]) if "solve" in c.op else c
        systems = dict(zip(slots, mine, strict=True))
        solution = o.solved(word, call, systems, lead, c.more("check_errors"))
        if len(call.gives) == len(c.gives):
            return solution
        factors, last_one = o.own_rows("factors", range(len(shapes[0]) - 2)), len(solution.steps)
        steps = (*solution.steps, s.Step(factors, (slots[0],), rest[0], tuple(rest[1:])))
        first = c.count + last_one - 1
        return s.Steps(steps, tuple(range(first, first + len(c.gives))))

    return row


@TABLE.row("linalg_solve_triangular triangular_solve")
def _aten_triangular(c: AtenCall) -> s.Meaning:
    """``linalg_solve_triangular(self, B)``; ``triangular_solve(B, A)`` also gives a copy of A."""
    older = c.op == "triangular_solve"
    names = ("A", "self") if older else ("self", "B")
    left, turned = older or c["left"], older and c["transpose"]
    how = left, not c["upper"], turned, c["unitriangular"], False
    slots = c.at(names[0]), c.at(names[1])
    solution = o.triangular_solve(replace(c, gives=c.gives[:1]), slots, how)
    if not older:
        return solution
    last = c.count + len(solution.steps)
    copy = s.Step(o.expand(c["A"].shape, c.gives[1]), (c.at("A"),), c.gives[1])
    return s.Steps((*solution.steps, copy), (last - 1, last))


@TABLE.row("linalg_cross")
def _crossed(c: AtenCall) -> s.Meaning:
    along_last = c["dim"] % len(c.gives[0]) == len(c.gives[0]) - 1
    return (_aten_solve("self", "other", own=(1, 1), last=1) if along_last else EVERYTHING)(c)


@TABLE.row("_fft_r2c _fft_c2c _fft_c2r")
def _aten_fft(c: AtenCall) -> s.Meaning:
    kind = "real" if c.op == "_fft_r2c" and c["onesided"] else "complex"
    size = c.shape()[c["dim"][-1]]
    if c.op == "_fft_c2r":
        kind, size = "inverse real", c["last_dim_size"]
    elif not c.get("forward", True):
        kind = "inverse"
    transform = o.fourier(kind, c.rank(), c["dim"], size, c["normalization"])
    if c.op != "_fft_r2c" or c["onesided"]:
        return transform
    build = s.StepBuilder(c.count)  # other libraries convert their input first
    build.add(transform, (build.add(o.cast(c.dtype(), c.dtypes[0]), (0,), c.shape()),), c.gives[0])
    return build.done()


@TABLE.row("searchsorted")
def _aten_search(c: AtenCall) -> s.Meaning:
    """An output reads its own number, and all of one sorted sequence."""
    if not c.has("self") or len(c["sorted_sequence"].shape) != 1:
        return s.Unknown("every row is searched in a sequence of its own")
    if c.has("sorter"):
        return s.Unknown("its sequence is sorted by indices")
    whole = o.own_rows("searchsorted", range(len(c["self"].shape)), c.more())
    return s.reads_of(c, whole, c.at("self"), c.at("sorted_sequence"))


@TABLE.row("_trilinear")
def _trilinear(c: AtenCall) -> s.Meaning:
    """Of a layer with weights between two inputs each row reads its own of both."""
    apart = 0 not in (*c["expand1"], *c["expand3"], *c["sumdim"])
    return o.own_rows(c.op, (0,), c.more(), (2,)) if apart else EVERYTHING(c)


# creation


@TABLE.row(
    "zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full fill zero"
    " scalar_tensor"
)
def _aten_fill(c: AtenCall) -> s.Meaning:
    value = c.get("fill_value", c.get("value", c.get("s")))
    if isinstance(value, Slot):
        return s.Same() if c.count == 1 else s.Unknown("its value is an array")
    value = int("ones" in c.op) if value is None else value
    kind = c.get("dtype") or (c["self"].dtype if c.has("self") else torch.get_default_dtype())
    return s.Made(value, dtype(kind))


@TABLE.row(
    "arange linspace logspace eye tril_indices triu_indices hann_window hamming_window"
    " blackman_window bartlett_window kaiser_window repeat_interleave"
)
def _ranged(c: AtenCall) -> s.Meaning:
    if c.count and c.op != "repeat_interleave":
        return EVERYTHING(c)
    if c.op == "arange":
        return o.arange(c.get("start") or 0, c.get("step") or 1, c.gives[0][0], c.dtypes[0])
    numbers = tuple(map(int, c.index("repeats"))) if c.count else c.more()
    return s.Made((c.op, numbers), "", places=True)


# movement: what is said here is what sizes of 1 would leave open, and where writes meet


@TABLE.row("slice")
def _aten_slice(c: AtenCall) -> s.Meaning:
    index = np.arange(c.shape()[c["dim"]])[c["start"] : c["end"] : c["step"]]
    return o.take(c["dim"], index)


@TABLE.row("index_select")
def _aten_take(c: AtenCall) -> s.Meaning:
    return o.take(c["dim"], c.index("index")) if c.shape() else s.Same()


@TABLE.row("constant_pad_nd")
def _aten_pad(c: AtenCall) -> s.Meaning:
    pad = c["pad"]  # begins with the last axis
    pairs = [(pad[n], pad[n + 1]) for n in range(0, len(pad), 2)]
    widths = ((0, 0),) * (c.rank() - len(pairs)) + tuple(reversed(pairs))
    return o.pad(widths, c["value"] or 0, c.dtype())


@TABLE.row("as_strided")
def _as_strided(c: AtenCall) -> s.Meaning:
    """Asked of the operation in memory that has only what it reads: so of an operand with gaps, or
    in the midst of its memory, it isn't known."""
    if not c["self"].dense or c["storage_offset"] is not None:
        return s.Unknown("it reads memory by its own strides")
    return asked_move(c)


@TABLE.row("masked_fill")
def _masked_fill(c: AtenCall) -> s.Meaning:
    at = c.at("value") if c.has("value") else -1
    return s.Chooses((1, at, 0), c["value"] if at < 0 else 0, c.dtype())


def _aten_places(c: AtenCall) -> np.ndarray:
    """Returns where it writes the elements of its source, as flat places: PyTorch itself picks
    them, by the same indices."""
    shape = c.shape()
    flat = torch.arange(math.prod(shape)).reshape(shape)
    if "indices" in c.attributes:
        index = [slice(None) if slot is None else torch.tensor(c.value(slot.number))
                 for slot in c["indices"]]  # fmt: skip
        return flat[tuple(index)].numpy()
    index = torch.tensor(c.index("index"))
    if c.op == "put":
        return flat.take(index).numpy()
    pick = torch.gather if c.op.startswith("scatter") else torch.index_select
    return pick(flat, c["dim"], index).numpy()


@TABLE.row(
    "scatter scatter_add scatter_reduce index_copy index_fill index_put _unsafe_index_put"
    " put index_add index_reduce"
)
def _aten_scatter(c: AtenCall) -> s.Meaning:
    """Elements of an array, or a number, are written at places that indices name, or combined with
    what is there."""
    source = next(name for name in ("src", "source", "values", "value") if name in c.attributes)
    adds = c.get("accumulate") or c.op.endswith("_add")
    places, how, array = _aten_places(c), c.get("reduce") or "sum" * bool(adds), c.has(source)
    if not how:
        if array and c[source].shape and np.unique(places).size != places.size:
            return s.Unknown("several elements are written into one place")  # chance decides
        return asked_move(c, 0, *([c.at(source)] if array else ()))
    at, build = c.at(source), s.StepBuilder(c.count)
    wide = np.broadcast_shapes(c.shape(at), places.shape)
    if places.shape != wide or (c.op.startswith("scatter") and places.shape != c.shape(at)):
        return s.Unknown("it reads a part of what it adds")
    numbers = () if c.get("include_self", True) else ("without itself",)
    term = at
    if c.get("alpha", 1) != 1:
        term = build.add(o.function("multiply", other=c["alpha"]), (at,), c.shape(at))
    elif how not in ("sum", "add") or numbers:  # a zero among them counts
        term = build.add(s.Each(f"term of {how}"), (at,), c.shape(at))
    terms = build.add(o.expand(c.shape(at), wide), (term,), wide)
    word = "accumulate" if how in ("sum", "add") else f"accumulate {how}"
    build.add(s.Accumulates(places.reshape(-1), word, numbers), (0, terms), c.gives[0])
    return build.done()


@TABLE.row("max_unpool2d max_unpool3d")
def _unpooled(c: AtenCall) -> s.Meaning:
    """Elements are put at places that count through the plane of each channel."""
    rank = _spatial_axes(c)[0]
    index, plane = c.index("indices"), math.prod(c.gives[0][-rank:])
    start = np.arange(math.prod(index.shape[:-rank])) * plane
    places = index + start.reshape(*index.shape[:-rank], *(1,) * rank)
    return moving.put_at(c, places, updates=0)


@TABLE.row("_embedding_bag _embedding_bag_forward_only")
def _embedding_bag(c: AtenCall) -> s.Meaning:
    """Sums of rows of a table, perhaps with a weight each; the mean knows how many."""
    index, offsets = c.index("indices"), c.index("offsets")
    how = ("sum", "mean", "max")[int(c["mode"])]
    starts = offsets[:-1] if c["include_last_offset"] else offsets
    bags = np.searchsorted(starts, np.arange(len(index)), side="right") - 1
    left_out = index == (-1 if c["padding_idx"] is None else c["padding_idx"])
    width, table, build = c["weight"].shape[1], c.at("weight"), s.StepBuilder(c.count)
    places = np.where(left_out[:, None], -1, bags[:, None] * width + np.arange(width))
    picked = (len(index), width)
    terms = build.add(o.take(0, index), (table,), picked)
    if c.has("per_sample_weights"):
        factors = build.add(o.reshape(), (c.at("per_sample_weights"),), (len(index), 1))
        terms = build.add(o.function("multiply"), (terms, factors), picked)
    if how == "max":  # a zero among them counts
        terms = build.add(s.Each("term of max"), (terms,), picked)
    zeros = build.add(s.Made(0.0, c.dtype(table)), (), c.gives[0])
    bag = "embedding_bag" if how != "max" else "embedding_bag max"
    added = build.add(s.Accumulates(places.reshape(-1), bag), (zeros, terms), c.gives[0])
    if how == "mean":  # each bag by its own number of rows
        lengths = np.maximum(np.bincount(bags[~left_out], minlength=len(starts)), 1)[:, None]
        divisors = build.add(s.Holds(lengths), (), lengths.shape)
        added = build.add(s.Each("mean_of_bag"), (added, divisors), c.gives[0])
    rest = [
        build.add(s.Whole((), f"embedding_bag {n}", (how, len(starts))), range(c.count), shape)
        for n, shape in enumerate(c.gives[1:])
    ]
    return build.done(added, *rest)


@TABLE.row("col2im")
def _aten_fold(c: AtenCall) -> s.Meaning:
    """What overlaps is added: each place of a picture from the windows that have it, which the
    operation that cuts them out is asked for."""
    to = c.gives[0]
    if max(math.prod(c.shape()), math.prod(to)) > 1 << 22:
        return s.Unknown("it moves too many elements to find out where")
    plane = torch.arange(1, math.prod(to) + 1, dtype=torch.float64).reshape(to)
    words = [c[name] for name in ("kernel_size", "dilation", "padding", "stride")]
    at = torch.ops.aten.im2col(plane, *words).numpy().astype(np.int64) - 1  # 0: of the padding
    return moving.put_at(c, at, 0, adds=True)


@TABLE.row("view_as_real")
def _halves_of(c: AtenCall) -> s.Meaning:
    build = s.StepBuilder(1)
    halves = [build.add(o.function(word), (0,), c.shape()) for word in ("real", "imag")]
    build.add(o.stack(-1), halves, c.gives[0])
    return build.done()


@TABLE.row("view_as_complex")
def _of_halves(c: AtenCall) -> s.Meaning:
    build = s.StepBuilder(1)
    halves = [build.add(o.take(-1, n), (0,), c.gives[0]) for n in range(2)]
    build.add(o.function("complex"), halves, c.gives[0])
    return build.done()


@TABLE.row("glu")
def _gated(c: AtenCall) -> s.Meaning:
    half, build = c.gives[0], s.StepBuilder(1)
    first = build.add(o.split(c["dim"], (half, half)), (0,), half, half)
    gate = build.add(o.function("sigmoid"), (first + 1,), half)
    build.add(o.function("multiply"), (first, gate), half)
    return build.done()


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
    # windows
    **s.rows_for(
        "upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d"
        " _upsample_bilinear2d_aa _upsample_bicubic2d_aa",
        lambda c: asked_resize(c, range(2, c.rank()), (c.op, *c.more())),
    ),
    **s.rows_for("fractional_max_pool2d fractional_max_pool3d", _own_index(lambda c: (0, 1), 1)),
    "affine_grid_generator": lambda c: o.affine_grid(c["size"][2:], c["align_corners"]),
    # norms, attention, recurrence
    "_weight_norm_interface": lambda c: o.own_rows("weight_norm", (c["dim"],)),
    "renorm": _own_index(lambda c: (c["dim"] % c.rank(),)),
    **s.rows_for("softmax _softmax _safe_softmax", lambda c: o.softmax((c["dim"],))),
    **s.rows_for("log_softmax _log_softmax", lambda c: o.log_softmax((c["dim"],))),
    "quantized::linear_dynamic": EVERYTHING,  # its scale is taken from the whole batch
    # whole axes
    **s.rows_for(
        "cumsum cumprod cummax cummin logcumsumexp",
        lambda c: o.cumulated(c.op, c["dim"]) if c.shape() else s.Each(c.op),
    ),
    **s.rows_for(
        "nonzero nonzero_static unique_consecutive _unique2 unique_dim bincount histc trace"
        " histogram _pdist_forward nll_loss_forward nll_loss2d_forward multi_margin_loss"
        " multilabel_margin_loss_forward segment_reduce",
        EVERYTHING,
    ),
    "bucketize": lambda c: o.bucketize(c.rank(), c["right"]),
    "isin": _own_index(lambda c: range(c.rank())),
    # matrices
    **s.rows_for(
        "linalg_inv_ex _linalg_det linalg_cholesky_ex _linalg_eigh _linalg_svd linalg_qr"
        " linalg_lu_factor_ex _linalg_slogdet linalg_eig cholesky cholesky_inverse linalg_lu"
        " linalg_matrix_exp linalg_ldl_factor_ex linalg_pinv geqrf",
        lambda c: o.matrices(c.op, c.rank(), *map(str, c.more())),
    ),
    "_linalg_solve_ex": _aten_solve("A", "B"),
    "linalg_lu_solve": _aten_solve("LU", "pivots", "B", own=(2, 1, 2)),
    "linalg_ldl_solve": _aten_solve("LD", "pivots", "B", own=(2, 1, 2)),
    "cholesky_solve": _aten_solve("input2", "self"),
    "_cholesky_solve_helper": _aten_solve("A", "self"),
    "linalg_lstsq": _aten_solve("self", "b"),
    "lu_unpack": _aten_solve("LU_data", "LU_pivots", own=(2, 1)),
    "linalg_householder_product": _aten_solve("input", "tau", own=(2, 1)),
    "ormqr": _aten_solve("self", "input2", "input3", own=(2, 1, 2)),
    # creation
    # movement
    **s.rows_for(MOVES, asked_move),
    "expand": lambda c: o.expand(c.shape(), c.gives[0]),
    "permute": lambda c: o.transpose(c["dims"]),
    "select": lambda c: o.take(c["dim"], c["index"] % c.shape()[c["dim"]]),
    "embedding": lambda c: o.take(0, c.index("indices")),
    **s.rows_for(
        "split split_with_sizes unsafe_split unsafe_split_with_sizes",
        lambda c: o.split(c["dim"], c.gives),
    ),
    "unbind": lambda c: o.unstack(c["dim"], len(c.gives)),
    "cat": lambda c: o.concat(c["dim"]),
    "stack": lambda c: o.stack(c["dim"]),
    **s.rows_for("block_diag _chunk_cat", lambda c: asked_move(c, *range(c.count))),
    "where": lambda c: o.where() if c.count == 3 else s.Each("where", "", c.more()),
    **s.rows_for(
        "slice_scatter select_scatter diagonal_scatter", lambda c: asked_move(c, 0, c.at("src"))
    ),
    "as_strided_scatter": lambda c: (
        asked_move(c, 0, c.at("src")) if c["self"].dense else EVERYTHING(c)
    ),
    "masked_scatter": lambda c: asked_move(c, 0, c.at("source")),
}
