"""What ATen's operations compute: a row for each, in words of :mod:`probe.recording.meaning`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from probe.recording.meaning import (
    Attends,
    Blends,
    Chooses,
    Contracts,
    Each,
    Encodes,
    Joins,
    Made,
    Meaning,
    Moves,
    Normalises,
    Pads,
    Picks,
    Reduces,
    Reshapes,
    Same,
    Scans,
    Splits,
    Turns,
    Unknown,
    Whole,
    Windows,
)
from probe.recording.torch_calls import NO_CONTENTS, Call
from probe.recording.torch_values import Slot

Row = Callable[[Call], Meaning]
MEANINGS: dict[str, Row] = {}
"""By the name of the operation, without ``_`` behind it."""

WORDS = {
    "mul": "multiply",
    "sub": "subtract",
    "div": "divide",
    "neg": "negative",
    "pow": "power",
    "abs": "absolute",
    "true_divide": "divide",
    "hardtanh": "clip",
    "clamp": "clip",
}
"""Names that other libraries have too, where ATen's is another."""

ZERO_STAYS = {
    *("relu", "gelu", "tanh", "silu", "sin", "asin", "sinh", "neg", "abs", "sqrt", "leaky_relu"),
    *("elu", "relu6", "hardswish", "erf", "atan", "sgn", "sign", "mish", "selu", "expm1", "log1p"),
    *("round", "floor", "ceil", "trunc", "square", "celu"),
}
"""Functions with f(0) = 0."""


def meaning(call: Call) -> Meaning:
    """Returns what a call computes; Unknown where nobody said."""
    if call.random:
        return Unknown("it draws random numbers")
    row = MEANINGS.get(call.name)
    if row is not None:
        return row(call)
    if torch.Tag.pointwise in call.func.tags:
        return _each(call)
    return Unknown(f"nobody has said what {call.op} computes")


def written(call: Call) -> list[torch.Tensor]:
    """Returns the tensors of a call whose contents it doesn't read."""
    return call.written()


def skipped(call: Call) -> bool:
    """Whether what a call gives holds nothing yet."""
    return call.base in NO_CONTENTS


def _row(*names: str) -> Callable[[Row], Row]:
    def add(row: Row) -> Row:
        for name in names:
            MEANINGS[name] = row
        return row

    return add


def _each(call: Call) -> Meaning:
    word = WORDS.get(call.name, call.name)
    zero = "stays" if call.name in ZERO_STAYS and len(call.reads) == 1 else ""
    numbers = call.numbers()
    if call.name == "gelu" and call["approximate"] == "tanh":
        word, numbers = "gelu_tanh", ()
    if word in ("add", "subtract", "multiply", "divide") and len(call.reads) == 2:
        zero = {"add": "adds", "multiply": "clears", "divide": "clears"}.get(word, "")
    if word in ("multiply", "divide") and len(call.reads) == 1:
        zero = "clears" if isinstance(call["self"], Slot) else ""
    if word == "clip":
        low, high = ("min_val", "max_val") if call.name == "hardtanh" else ("min", "max")
        if all(not isinstance(call[name], Slot) for name in (low, high)):
            limits = tuple(None if call[n] is None else float(call[n]) for n in (low, high))
            relu6 = limits == (0.0, 6.0)
            return Each(
                "relu6" if relu6 else "clip", "stays" if relu6 else "", () if relu6 else limits
            )
    return Each(word, zero, numbers)


@_row(
    "clone",
    "lift_fresh",
    "lift_fresh_copy",
    "detach",
    "alias",
    "expand",
    "contiguous",
    "positive",
    "to_mkldnn",
    "_to_dense",
    "to_dense",
)
def _same(call: Call) -> Meaning:
    dtype = call.bound().get("dtype")
    return Same() if dtype is None else _cast(call["self"].dtype, dtype)


@_row("copy")
def _copied(call: Call) -> Meaning:
    source = call["src"]
    return _cast(source.dtype, call["self"].dtype)


@_row("_to_copy")
def _to_copy(call: Call) -> Meaning:
    return _cast(call["self"].dtype, call["dtype"] or call["self"].dtype)


def _cast(before: torch.dtype, after: torch.dtype) -> Meaning:
    if before == after:
        return Same()
    return Each("cast", "stays", (str(after).removeprefix("torch."),))


@_row("view", "_unsafe_view", "reshape", "_reshape_alias", "squeeze", "unsqueeze", "flatten")
def _reshapes(call: Call) -> Meaning:
    if call.name == "squeeze" and isinstance(call.bound().get("dim"), int):
        axis = call["dim"]
        one = call["self"].shape[axis] == 1 if call["self"].shape else False
        return Picks(axis=axis, index=np.asarray(0)) if one else Same()
    if "dtype" in call.bound() and call["dtype"] is not None:
        return Unknown("the bits are read as another type")
    return Reshapes()


@_row("permute", "transpose", "t", "numpy_T", "movedim", "swapaxes")
def _turns(call: Call) -> Meaning:
    rank = len(call["self"].shape)
    axes = list(range(rank))
    if call.name == "permute":
        return Turns(tuple(axis % rank for axis in call["dims"]))
    one, two = (call["dim0"], call["dim1"]) if call.name == "transpose" else (0, rank - 1)
    if rank > 1:
        axes[one], axes[two] = axes[two], axes[one]
    return Turns(tuple(axes))


# sums of products


@_row("mm")
def _mm(call: Call) -> Meaning:
    return Contracts("ik,kj->ij")


@_row("bmm")
def _bmm(call: Call) -> Meaning:
    return Contracts("bik,bkj->bij")


@_row("mv")
def _mv(call: Call) -> Meaning:
    return Contracts("ik,k->i")


@_row("dot", "vdot")
def _dot(call: Call) -> Meaning:
    return Contracts("k,k->")


@_row("linear")
def _linear(call: Call) -> Meaning:
    return Contracts("...k,nk->...n", bias=2 if len(call.reads) == 3 else None)


@_row("addmm", "baddbmm", "addmv")
def _addmm(call: Call) -> Meaning:
    equation = {"addmm": "ik,kj->ij", "baddbmm": "bik,bkj->bij", "addmv": "ik,k->i"}[call.name]
    bias = None if call["beta"] == 0 else 0
    numbers = () if call["alpha"] == 1 and call["beta"] in (0, 1) else call.numbers()
    return Contracts(equation, (1, 2), bias, numbers=numbers)


@_row("convolution", "_convolution", "mkldnn_convolution", "thnn_conv2d", "_slow_conv2d_forward")
def _convolution(call: Call) -> Meaning:
    if call.name not in ("convolution", "_convolution"):
        return Unknown(f"nobody has said what {call.op} computes")
    weight, rank = call["weight"], len(call["weight"].shape) - 2
    transposed = bool(call["transposed"])
    kernel = tuple(weight.shape[2:])
    padding = _wide(call["padding"], rank)
    return Windows(
        *(tuple(range(2, rank + 2)), 1, kernel, _wide(call["stride"], rank)),
        *(_wide(call["dilation"], rank), tuple((n, n) for n in padding)),
        kind="transposed" if transposed else "convolution",
        groups=call["groups"],
        reads=tuple(range(len(call.reads))),
        weights=(*range(2, rank + 2), *((0, 1) if transposed else (1, 0))),
        word="convolution",
    )


def _wide(numbers: Any, rank: int) -> tuple[int, ...]:
    found = (numbers,) if isinstance(numbers, int) else tuple(numbers)
    return found * rank if len(found) == 1 else found


@_row(
    "max_pool2d_with_indices",
    "max_pool3d_with_indices",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "max_pool1d_with_indices",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "mkldnn_max_pool2d",
)
def _pool(call: Call) -> Meaning:
    kernel = call["kernel_size"]
    rank = next(int(d) for d in "123" if f"{d}d" in call.name)
    lead = len(call["self"].shape) - rank
    kernel = _wide(kernel, rank)
    stride = _wide(call["stride"], rank) if call["stride"] else kernel
    padding = tuple((n, n) for n in _wide(call["padding"], rank))
    average = call.name.startswith("avg")
    dilation = (1,) * rank if average else _wide(call["dilation"], rank)
    if average and call.bound().get("divisor_override") is not None:
        return Whole(tuple((n, n) for n in range(lead)), "average", call.numbers())
    return Windows(
        *(tuple(range(lead, lead + rank)), lead - 1, kernel, stride, dilation, padding),
        kind="average" if average else "max",
        reads=(0,),
        counts_padding=average and bool(call["count_include_pad"]),
        ceil=bool(call["ceil_mode"]),
        word="average" if average else "maximum of a window",
    )


@_row(
    "_adaptive_avg_pool2d",
    "_adaptive_avg_pool3d",
    "adaptive_avg_pool2d",
    "adaptive_max_pool2d",
    "adaptive_avg_pool1d",
    "adaptive_max_pool3d",
)
def _adaptive(call: Call) -> Meaning:
    rank = next(int(d) for d in "123" if f"{d}d" in call.name)
    shape, sizes = call["self"].shape, _wide(call["output_size"], rank)
    lead, average = len(shape) - rank, "avg" in call.name
    inner = shape[lead:]
    if not average or any(n % m for n, m in zip(inner, sizes, strict=True)):
        return Whole(tuple((n, n) for n in range(lead)), call.name, tuple(sizes))
    kernel = tuple(n // m for n, m in zip(inner, sizes, strict=True))
    return Windows(
        *(tuple(range(lead, len(shape))), lead - 1, kernel, kernel, (1,) * rank, ((0, 0),) * rank),
        kind="average",
        reads=(0,),
        counts_padding=True,
        word="average",
    )


# norms, softmax, attention


@_row("native_layer_norm", "layer_norm", "rms_norm", "_fused_rms_norm")
def _layer_norm(call: Call) -> Meaning:
    rank, last = len(call["input"].shape), len(call["normalized_shape"])
    word = "layer_norm" if "layer" in call.name else "rms_norm"
    return Normalises(tuple(range(rank - last, rank)), word, (*_present(call), call["eps"]))


def _present(call: Call) -> tuple[bool, ...]:
    """Which optional arrays there are: without that, a scale would be taken for an offset."""
    bound = call.bound()
    return tuple(isinstance(bound.get(name), Slot) for name in ("weight", "bias"))


@_row("native_group_norm")
def _group_norm(call: Call) -> Meaning:
    rank = len(call["input"].shape)
    numbers = (*_present(call), call["eps"])
    return Normalises(
        tuple(range(1, rank)), "group_norm", numbers, along=1, groups=(1, call["group"])
    )


@_row(
    "native_batch_norm",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_no_training",
    "cudnn_batch_norm",
    "batch_norm",
    "_batch_norm_with_update",
    "_batch_norm_no_update",
)
def _batch_norm(call: Call) -> Meaning:
    bound = call.bound()
    training = bound.get("training", "no" not in call.name)
    numbers = (*_present(call), bound["eps"])
    if not training or call.name == "_native_batch_norm_legit_no_training":
        return Each("batch_norm", "", numbers, along=1)
    if any(isinstance(bound.get(name), Slot) for name in ("running_mean", "running_var")):
        return Unknown("a batch norm in training mode changes its running means")
    rank = len(bound["input"].shape)
    axes = tuple(axis for axis in range(rank) if axis != 1)
    return Normalises(axes, "batch_norm", ("training", *numbers), along=1)


@_row("_weight_norm_interface", "_weight_norm")
def _weight_norm(call: Call) -> Meaning:
    return Whole(((call["dim"], call["dim"]),), "weight_norm")


@_row("_softmax", "softmax", "_safe_softmax")
def _softmax(call: Call) -> Meaning:
    return Normalises((call["dim"],), "softmax", vanishes=True)


@_row("_log_softmax", "log_softmax")
def _log_softmax(call: Call) -> Meaning:
    return Normalises((call["dim"],), "log_softmax")


@_row("_scaled_dot_product_flash_attention_for_cpu", "scaled_dot_product_attention")
def _attends(call: Call) -> Meaning:
    if call["dropout_p"]:
        return Unknown("it draws random numbers")
    mask = call["attn_mask"]
    dtype = str(mask.dtype if mask else call["query"].dtype).removeprefix("torch.")
    size = call["query"].shape[-1]
    scale = call["scale"] if call["scale"] is not None else 1 / math.sqrt(size)
    return Attends(bool(call["is_causal"]), (float(scale),), boolean=dtype == "bool", dtype=dtype)


@_row("_transformer_encoder_layer_fwd")
def _encoder_layer(call: Call) -> Meaning:
    mask, numbers = call["mask"], call.numbers("mask_type")
    if call["src"].strides is None:
        return Unknown("sequences of several lengths, packed")
    if mask is None:
        return Encodes("transformer_encoder_layer", numbers)
    if len(mask.shape) != 2 or call["mask_type"] not in (0, 1):
        return Unknown("attention with a mask for each head")
    dtype = str(mask.dtype).removeprefix("torch.")
    rows = call["mask_type"] == 1
    return Encodes("transformer_encoder_layer", numbers, mask.number, rows, dtype)


@_row("_native_multi_head_attention")
def _native_attention(call: Call) -> Meaning:
    if call["query"] is None or call["mask"] is not None or call["key"] != call["query"]:
        return Unknown("attention with a mask or with other keys than queries")
    return Whole(((0, 0),), "multi_head_attention", call.numbers())


@_row("mkldnn_rnn_layer")
def _rnn_layer(call: Call) -> Meaning:
    if call["batch_sizes"]:
        return Unknown("sequences of several lengths, packed")
    numbers = call.numbers("reverse")
    return Scans(0, "rnn_layer", bool(call["reverse"]), (2,), numbers, states=(5, 6), batch=1)


# sums, means, extremes


@_row(
    "sum",
    "mean",
    "amax",
    "amin",
    "prod",
    "var",
    "std",
    "logsumexp",
    "any",
    "all",
    "nansum",
    "linalg_vector_norm",
    "norm",
    "count_nonzero",
    "var_mean",
    "std_mean",
    "max",
    "min",
    "argmax",
    "argmin",
    "median",
)
def _reduces(call: Call) -> Meaning:
    rank = len(call["self"].shape)
    if call.name in ("max", "min") and len(call.reads) == 2:
        return Each("maximum" if call.name == "max" else "minimum")
    dim = call.bound().get("dim")
    axes = (dim,) if isinstance(dim, int) else tuple(dim or ())
    axes = axes or tuple(range(rank))
    keep = bool(call.bound().get("keepdim", False))
    places = call.name in ("argmax", "argmin", "median") or (
        len(call.shapes) > 1 and call.name in ("max", "min")
    )
    word = {"max": "amax", "min": "amin"}.get(call.name, call.name)
    leave_out = "dim", "keepdim"
    return Reduces(axes, word, keep, word == "sum", call.numbers(*leave_out), places)


@_row("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp")
def _scans(call: Call) -> Meaning:
    return Scans(call["dim"], call.name)


@_row("sort", "topk", "argsort", "kthvalue")
def _sorts(call: Call) -> Meaning:
    rank = len(call["self"].shape)
    dim = call["dim"] % max(rank, 1)
    return Whole(tuple((n, n) for n in range(rank) if n != dim), call.name, call.numbers())


# creation


@_row(
    "zeros",
    "ones",
    "full",
    "zeros_like",
    "ones_like",
    "full_like",
    "new_zeros",
    "new_ones",
    "new_full",
    "fill",
    "zero",
    "scalar_tensor",
)
def _made(call: Call) -> Meaning:
    bound = call.bound()
    value = bound.get("fill_value", bound.get("value", bound.get("s")))
    if isinstance(value, Slot):
        return Same() if len(call.reads) == 1 else Unknown("its value is an array")
    if value is None:
        value = 1 if "ones" in call.name else 0
    return Made(value, _given_dtype(call))


def _given_dtype(call: Call) -> str:
    dtype = call.bound().get("dtype")
    first = call.bound().get("self")
    if dtype is None:
        dtype = first.dtype if isinstance(first, Slot) else torch.get_default_dtype()
    return str(dtype).removeprefix("torch.")


@_row("arange", "linspace", "eye", "hann_window", "hamming_window", "blackman_window")
def _series(call: Call) -> Meaning:
    return Made((call.op, call.numbers()), "", places=True)


# moves


def _others(call: Call, *axes: int) -> tuple[int, ...]:
    rank = len(call["self"].shape)
    return tuple(n for n in range(rank) if n not in [axis % rank for axis in axes])


@_row("slice")
def _slice(call: Call) -> Meaning:
    axis = call["dim"]
    index = np.arange(call["self"].shape[axis])[call["start"] : call["end"] : call["step"]]
    return Picks(axis=axis, index=index)


@_row("select")
def _select(call: Call) -> Meaning:
    axis = call["dim"]
    return Picks(axis=axis, index=np.asarray(call["index"] % call["self"].shape[axis]))


@_row("index_select", "embedding")
def _picks(call: Call) -> Meaning:
    name, axis = ("indices", 0) if call.name == "embedding" else ("index", call["dim"])
    index = call.content(name)
    return Unknown("its index is too large") if index is None else Picks(axis=axis, index=index)


@_row("index", "_unsafe_index")
def _index(call: Call) -> Meaning:
    found = call.contents("indices")
    if found is None:
        return Unknown("its index is too large")
    index = tuple(slice(None) if one is None else one for one in found)
    return Moves(lambda one, *_: one[index])


@_row("gather")
def _gather(call: Call) -> Meaning:
    index, axis = call.content("index"), call["dim"]
    if index is None:
        return Unknown("its index is too large")

    def move(one: np.ndarray, *_: np.ndarray) -> np.ndarray:
        at = axis % max(one.ndim, 1)
        part = tuple(slice(None if n == at else size) for n, size in enumerate(index.shape))
        return np.take_along_axis(one[part], index, at)

    return Moves(move)


@_row(
    "split",
    "split_with_sizes",
    "unsafe_split",
    "unbind",
    "chunk",
    "unsafe_split_with_sizes",
    "unsafe_chunk",
    "tensor_split",
)
def _splits(call: Call) -> Meaning:
    axis = call["dim"]
    if call.name == "unbind":
        return Splits(axis, (1,) * len(call.shapes), True)
    return Splits(axis, tuple(shape[axis] for shape in call.shapes))


@_row("cat", "concat", "stack")
def _joins(call: Call) -> Meaning:
    return Joins(call["dim"], stacked=call.name == "stack")


@_row("constant_pad_nd", "pad")
def _pads(call: Call) -> Meaning:
    dtype = str(call["self"].dtype).removeprefix("torch.")
    return Pads(_widths(call["pad"], len(call["self"].shape)), call["value"] or 0, dtype)


def _widths(pad: list[int], rank: int) -> tuple[tuple[int, int], ...]:
    """A pair of widths an axis, from PyTorch's list, which begins with the last axis."""
    pairs = [(pad[n], pad[n + 1]) for n in range(0, len(pad), 2)]
    return ((0, 0),) * (rank - len(pairs)) + tuple(reversed(pairs))


@_row(
    "reflection_pad1d",
    "reflection_pad2d",
    "reflection_pad3d",
    "replication_pad1d",
    "replication_pad2d",
    "replication_pad3d",
)
def _mirrors(call: Call) -> Meaning:
    rank = len(call["self"].shape)
    widths = _widths(call["padding"], rank)
    mode: Any = "reflect" if "reflection" in call.name else "edge"
    kept = tuple(n for n in range(rank) if widths[n] == (0, 0))
    return Moves(lambda one: np.pad(one, widths, mode), kept)


@_row("roll", "flip")
def _rolls(call: Call) -> Meaning:
    axes = tuple(call["dims"])
    if call.name == "flip":
        return Moves(lambda one: np.flip(one, axes), _others(call, *axes))
    shifts = tuple(call["shifts"])
    if not axes:
        return Moves(lambda one: np.roll(one, shifts[0]))
    return Moves(lambda one: np.roll(one, shifts, axes), _others(call, *axes))


@_row("repeat")
def _repeat(call: Call) -> Meaning:
    times = tuple(call["repeats"])
    same = len(times) == len(call["self"].shape)
    kept = tuple(n for n, k in enumerate(times) if k == 1) if same else ()
    return Moves(lambda one: np.tile(one, times), kept)


@_row("repeat_interleave")
def _interleave(call: Call) -> Meaning:
    index = call.content("repeats")
    if index is None:
        return Unknown("its index is too large")
    return Made((call.op, tuple(map(int, index))), "", places=True)


@_row("unfold")
def _unfold(call: Call) -> Meaning:
    axis, size, step = call["dimension"], call["size"], call["step"]
    rank = len(call["self"].shape)
    at = axis % rank

    def move(one: np.ndarray) -> np.ndarray:
        windows = np.lib.stride_tricks.sliding_window_view(one, size, axis=at)
        return windows[(slice(None),) * at + (slice(None, None, step),)]

    return Moves(move, _others(call, axis))


@_row("as_strided")
def _as_strided(call: Call) -> Meaning:
    one = call["self"]
    if one.strides is None or int(np.prod(call.shapes[0])) > 1 << 22:
        return Unknown("it reads memory by its own strides")
    own, wanted = _grid(one.shape, one.strides), _grid(call.shapes[0], call["stride"])
    offset = call["storage_offset"]
    wanted = wanted + (0 if offset is None else offset - one.offset)
    if not own.size or (offset not in (None, 0) and one.offset):
        return Unknown("it reads memory by its own strides")
    place = np.full(int(max(own.max(), wanted.max())) + 1, -1)
    place[own.reshape(-1)] = np.arange(own.size)
    index = place[wanted]
    if wanted.min() < 0 or index.min() < 0:
        return Unknown("it reads memory beyond its input")
    return Moves(lambda array: np.asarray(array).reshape(-1)[index])


def _grid(shape: tuple[int, ...], strides: Any) -> np.ndarray:
    found = np.zeros(tuple(shape), np.int64)
    for axis, (size, step) in enumerate(zip(shape, strides, strict=True)):
        found += np.arange(size).reshape(-1, *(1,) * (len(shape) - axis - 1)) * step
    return found


@_row("tril", "triu")
def _triangle(call: Call) -> Meaning:
    cut = np.tril if call.name == "tril" else np.triu
    k = call["diagonal"]
    rank = len(call["self"].shape)
    return Moves(
        lambda one: np.where(cut(np.ones(one.shape[-2:], bool), k), one, one.dtype.type(0)),
        tuple(range(rank - 2)),
    )


@_row("where")
def _where(call: Call) -> Meaning:
    if len(call.reads) != 3:
        return Each("where", "", call.numbers())
    return Chooses()


@_row("masked_fill")
def _masked_fill(call: Call) -> Meaning:
    value = call["value"]
    if isinstance(value, Slot):
        return Chooses((1, 2, 0))
    return Chooses((1, -1, 0), value, str(call["self"].dtype).removeprefix("torch."))


@_row("index_put", "scatter", "index_copy", "slice_scatter", "select_scatter")
def _puts(call: Call) -> Meaning:
    indices = call.contents("indices") if call.name == "index_put" else None
    if indices is None or call["accumulate"]:
        return Unknown("it writes into places that aren't known")
    index = tuple(slice(None) if one is None else one for one in indices)

    def move(one: np.ndarray, *others: np.ndarray) -> np.ndarray:
        found = np.array(one)
        found[index] = others[-1]
        return found

    return Moves(move)


# pictures


@_row(
    "upsample_nearest1d",
    "upsample_nearest2d",
    "upsample_nearest3d",
    "_upsample_nearest_exact1d",
    "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d",
)
def _nearest(call: Call) -> Meaning:
    shape = call["self"].shape
    inner = shape[2:]
    plane = torch.arange(math.prod(inner), dtype=torch.float64).reshape(1, 1, *inner)
    args = (plane, *call.args[1:])
    index = call.func(*args, **call.kwargs).numpy().astype(np.int64).reshape(-1)

    def move(one: np.ndarray) -> np.ndarray:
        flat = one.reshape(*one.shape[:2], -1)
        return flat[..., index]

    return Moves(move, (0, 1))


@_row(
    "upsample_linear1d",
    "upsample_bilinear2d",
    "upsample_trilinear3d",
    "upsample_bicubic2d",
    "_upsample_bilinear2d_aa",
    "_upsample_bicubic2d_aa",
)
def _interpolates(call: Call) -> Meaning:
    """Along each axis alone the operation is asked what it does to each element."""
    shape, to = call["self"].shape, call.shapes[0]
    rank = len(shape) - 2
    if any(n * m > 1 << 22 for n, m in zip(shape[2:], to[2:], strict=True)):
        return Whole(((0, 0), (1, 1)), call.name, call.numbers())
    taps = []
    for axis in range(rank):
        size = shape[axis + 2]
        plane = torch.eye(size, dtype=torch.float64)
        lengths = [size if k == axis else n for k, n in enumerate(shape[2:])]
        plane = plane.reshape(size, 1, *(size if k == axis else 1 for k in range(rank)))
        found = call.func(plane.expand(size, 1, *lengths), *call.args[1:], **call.kwargs)
        line = found[(slice(None), 0, *(slice(None) if k == axis else 0 for k in range(rank)))]
        taps.append((axis + 2, *_terms(line.numpy().T)))
    return Blends(tuple(taps))


def _terms(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each row isn't zero, and what is there: (rows, terms) both."""
    most = int((matrix != 0).sum(1).max(initial=1))
    index = np.argsort(matrix == 0, axis=1, kind="stable")[:, :most]
    return index, np.take_along_axis(matrix, index, 1)


@_row("_fft_r2c", "_fft_c2c", "_fft_c2r")
def _fourier(call: Call) -> Meaning:
    axes = [axis % len(call["self"].shape) for axis in call["dim"]]
    rest = [axis for axis in range(len(call["self"].shape)) if axis not in axes]
    return Whole(tuple((axis, axis) for axis in rest), call.name, call.numbers())


@_row("pixel_shuffle")
def _shuffle(call: Call) -> Meaning:
    r, to = call["upscale_factor"], call.shapes[0]

    def move(one: np.ndarray) -> np.ndarray:
        *lead, c, h, w = one.shape
        split = one.reshape(*lead, c // (r * r), r, r, h, w)
        k = len(lead)
        turned = split.transpose(*range(k), k, k + 3, k + 1, k + 4, k + 2)
        return turned.reshape(to)

    return Moves(move, tuple(range(len(to) - 3)))
