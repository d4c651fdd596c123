"""What ATen's operations compute: a row for each, in words of :mod:`probe.semantics`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from probe.floats import FORMATS
from probe.recorders import torch_moves, torch_places  # noqa: F401
from probe.recorders.torch_calls import MEANINGS, NO_CONTENTS, Call, row
from probe.recorders.torch_tensors import Slot
from probe.semantics import (
    Attends,
    Contracts,
    Encodes,
    Made,
    Meaning,
    Normalises,
    Picks,
    Reshapes,
    Same,
    Scans,
    Step,
    Steps,
    Turns,
    Unknown,
    Whole,
    Windows,
    operations,
)

UNTAGGED = {
    *("hardswish", "_prelu_kernel", "floor_divide", "rsub", "complex", "log_sigmoid_forward"),
}
"""Functions of the elements at one place that PyTorch does not call so."""


def meaning(call: Call) -> Meaning:
    """Returns what a call computes; Unknown if it is not described."""
    if call.random:
        return Unknown("it draws random numbers")
    found = MEANINGS.get(call.name)
    try:
        if found is not None:
            return found(call)
    except (KeyError, IndexError, ValueError, TypeError, ZeroDivisionError):
        return Unknown(f"{call.op} has arguments that are not described in probe")
    if torch.Tag.pointwise in call.func.tags or call.name in UNTAGGED:
        return _each(call)
    return Unknown(f"{call.op} is not described in probe")


def written(call: Call) -> list[torch.Tensor]:
    """Returns the tensors of a call whose contents it doesn't read."""
    return call.written()


def skipped(call: Call) -> bool:
    """Returns whether what a call gives holds nothing yet."""
    return call.base in NO_CONTENTS


def _each(call: Call) -> Meaning:
    """Returns a function of elements; what PyTorch calls its arguments is settled in ``NUMBERED``.

    Numbers beside arrays are named by where they stand: ``self`` or ``other``.
    """
    if call.name in NUMBERED and not any(isinstance(call[n], Slot) for n in NUMBERED[call.name]):
        return CONSTRUCTORS[call.name](*(call[name] for name in NUMBERED[call.name]))
    if call.name == "sqrt":  # PyTorch 2.13 gives a sixth of them one ulp off
        return operations.approximate("sqrt")
    if call.name == "pow" and isinstance(call["self"], Slot) and len(call.reads) == 1:
        return operations.power(call["exponent"])
    if (made := _beside(call)) is not None:
        return made
    found = operations.function(call.name, **dict(call.numbers()))
    if len(call.reads) == 1 and found.zero == "clears" and not isinstance(call["self"], Slot):
        return replace(found, zero="")  # a number over an array
    return found


def _beside(call: Call) -> Meaning | None:
    """Returns a function of an array and a number, ``x * 0.5``; None of any other call."""
    given = call.bound()
    ends = [given.get(name) for name in ("self", "other")]
    arrays = [one for one in ends if isinstance(one, Slot)]
    numbers = [at for at, one in enumerate(ends) if isinstance(one, bool | int | float)]
    more = {name for name, _ in call.numbers()} - {"self", "other"}
    if len(call.reads) != 1 or len(arrays) != 1 or len(numbers) != 1 or more:
        return None
    dtype = str(arrays[0].dtype).removeprefix("torch.")
    if dtype not in FORMATS:
        return None
    return operations.beside(call.name, numbers[0], ends[numbers[0]], dtype)


CONSTRUCTORS: dict[str, Callable[..., Meaning]] = {
    "gelu": lambda approximate: operations.gelu(approximate == "tanh"),
    "leaky_relu": operations.leaky_relu,
    "elu": operations.elu,
    "celu": operations.celu,
    "softplus": operations.softplus,
    "hardsigmoid": lambda: operations.hard_sigmoid(),
    "hardtanh": operations.clip,
    "clamp": operations.clip,
}
NUMBERED: dict[str, tuple[str, ...]] = {
    "gelu": ("approximate",),
    "leaky_relu": ("negative_slope",),
    "elu": ("alpha", "scale", "input_scale"),
    "celu": ("alpha",),
    "softplus": ("beta", "threshold"),
    "hardsigmoid": (),
    "hardtanh": ("min_val", "max_val"),
    "clamp": ("min", "max"),
}
"""Arguments of functions that are numbers, in the order in which ``CONSTRUCTORS`` take them."""


@row(
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
    "resolve_conj",
    "resolve_neg",
)
def _same(call: Call) -> Meaning:
    dtype = call.bound().get("dtype")
    return Same() if dtype is None else _cast(call["self"].dtype, dtype)


@row("copy")
def _copied(call: Call) -> Meaning:
    source = call["src"]
    return _cast(source.dtype, call["self"].dtype)


@row("_to_copy")
def _to_copy(call: Call) -> Meaning:
    return _cast(call["self"].dtype, call["dtype"] or call["self"].dtype)


def _cast(before: torch.dtype, after: torch.dtype) -> Meaning:
    source, to = (str(one).removeprefix("torch.") for one in (before, after))
    return operations.cast(source, to)


@row("view", "_unsafe_view", "reshape", "_reshape_alias", "squeeze", "unsqueeze", "flatten")
def _reshapes(call: Call) -> Meaning:
    if call.name == "squeeze" and isinstance(call.bound().get("dim"), int):
        axis = call["dim"]
        one = call["self"].shape[axis] == 1 if call["self"].shape else False
        return Picks(axis=axis, index=np.asarray(0)) if one else Same()
    if "dtype" in call.bound() and call["dtype"] is not None:
        return Unknown("the bits are read as a different type")
    return Reshapes()


@row("quantized::linear_dynamic")
def _quantised(call: Call) -> Meaning:
    return Unknown("its scale is taken from the whole batch, so no row of another batch must agree")


@row("permute", "transpose", "t", "numpy_T", "movedim", "swapaxes")
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


@row("mm")
def _mm(call: Call) -> Meaning:
    return Contracts("ik,kj->ij")


@row("bmm")
def _bmm(call: Call) -> Meaning:
    return Contracts("bik,bkj->bij")


@row("mv")
def _mv(call: Call) -> Meaning:
    return Contracts("ik,k->i")


@row("dot", "vdot")
def _dot(call: Call) -> Meaning:
    return Contracts("k,k->")


@row("linear")
def _linear(call: Call) -> Meaning:
    return Contracts("...k,nk->...n", bias=2 if len(call.reads) == 3 else None)


@row("addmm", "baddbmm", "addmv")
def _addmm(call: Call) -> Meaning:
    equation = {"addmm": "ik,kj->ij", "baddbmm": "bik,bkj->bij", "addmv": "ik,k->i"}[call.name]
    bias = None if call["beta"] == 0 else 0
    if call["beta"] in (0, 1):
        numbers = () if call["alpha"] == 1 else call.numbers()
        return Contracts(equation, (1, 2), bias, numbers=numbers)
    scaled = operations.function("multiply", other=call["beta"])
    shape, given = call.shapes[0], call["self"].shape
    product = Step(Contracts(equation, numbers=(call["alpha"],)), (1, 2), shape)
    steps = product, Step(scaled, (0,), given), Step(operations.function("add"), (3, 4), shape)
    return Steps(steps)


@row("convolution", "_convolution", "mkldnn_convolution", "thnn_conv2d", "_slow_conv2d_forward")
def _convolution(call: Call) -> Meaning:
    if call.name not in ("convolution", "_convolution"):
        return Unknown(f"{call.op} is not described in probe")
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


@row(
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


@row(
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


@row("native_layer_norm", "layer_norm", "rms_norm", "_fused_rms_norm")
def _layer_norm(call: Call) -> Meaning:
    rank, last = len(call["input"].shape), len(call["normalized_shape"])
    word = "layer_norm" if "layer" in call.name else "rms_norm"
    scale, shift = _present(call)
    return operations.norm(range(rank - last, rank), call["eps"], scale, shift, word)


def _present(call: Call) -> tuple[bool, ...]:
    """Which optional arrays there are: without that, a scale would be taken for an offset."""
    bound = call.bound()
    return tuple(isinstance(bound.get(name), Slot) for name in ("weight", "bias"))


@row("native_group_norm")
def _group_norm(call: Call) -> Meaning:
    rank = len(call["input"].shape)
    groups = (1, call["group"])
    scale, shift = _present(call)
    return operations.norm(range(1, rank), call["eps"], scale, shift, "group_norm", 1, groups)


@row(
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
        scale, shift = _present(call)
        return operations.batch_norm(bound["eps"], scale, shift, along=1)
    if any(isinstance(bound.get(name), Slot) for name in ("running_mean", "running_var")):
        return Unknown("a batch norm in training mode changes its running means")
    rank = len(bound["input"].shape)
    axes = tuple(axis for axis in range(rank) if axis != 1)
    return Normalises(axes, "batch_norm", ("training", *numbers), along=1, apart=True)


@row("_weight_norm_interface", "_weight_norm")
def _weight_norm(call: Call) -> Meaning:
    return Whole(((call["dim"], call["dim"]),), "weight_norm")


@row("_softmax", "softmax", "_safe_softmax")
def _softmax(call: Call) -> Meaning:
    return operations.softmax((call["dim"],))


@row("_log_softmax", "log_softmax")
def _log_softmax(call: Call) -> Meaning:
    return operations.log_softmax((call["dim"],))


@row("_scaled_dot_product_flash_attention_for_cpu", "scaled_dot_product_attention")
def _attends(call: Call) -> Meaning:
    if call["dropout_p"]:
        return Unknown("it draws random numbers")
    ours, theirs = call["query"].shape[:-2], call["key"].shape[:-2]
    if ours != theirs and (ours[:-1] != theirs[:-1] or ours[-1] % theirs[-1]):
        return Unknown("keys and queries have different leading axes")
    mask = call["attn_mask"]
    dtype = str(mask.dtype if mask else call["query"].dtype).removeprefix("torch.")
    size = call["query"].shape[-1]
    scale = call["scale"] if call["scale"] is not None else 1 / math.sqrt(size)
    return Attends(bool(call["is_causal"]), (float(scale),), boolean=dtype == "bool", dtype=dtype)


@row("_transformer_encoder_layer_fwd")
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


@row("_native_multi_head_attention")
def _native_attention(call: Call) -> Meaning:
    if not call.same("query", "key", "value"):
        return Unknown("attention with keys or values that differ from the queries")
    mask, numbers = call["mask"], call.numbers("mask_type")
    count, shapes = len(call.reads), call.shapes
    made: Meaning = Encodes("multi_head_attention", numbers)
    if mask is not None:
        rows, dtype = call["mask_type"] == 1, str(mask.dtype).removeprefix("torch.")
        made = Encodes("multi_head_attention", numbers, mask.number - 2, rows, dtype)
    if len(shapes) > 1 or (mask is not None and len(mask.shape) != 2):
        # its weights too, or a mask for each head: a sample reads its own row of both
        each = mask is not None and (call["mask_type"] == 1 or len(mask.shape) == 4)
        of_sample = (mask.number - 2,) if each else ()
        made = Whole(((0, 0),), "multi_head_attention", numbers, of_sample)
    # what it reads stands three times in the call: as queries, keys and values
    step = Step(made, (0, *range(3, count)), shapes[0], tuple(shapes[1:]))
    return Steps((step,), tuple(range(count, count + len(shapes))))


@row("mkldnn_rnn_layer")
def _rnn_layer(call: Call) -> Meaning:
    if call["batch_sizes"]:
        return Unknown("sequences of several lengths, packed")
    numbers = call.numbers("reverse")
    return Scans(0, "rnn_layer", bool(call["reverse"]), (2,), numbers, states=(5, 6), batch=1)


# sums, means, extremes


@row(
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
        return operations.function("maximum" if call.name == "max" else "minimum")
    dim = call.bound().get("dim")
    axes = (dim,) if isinstance(dim, int) else tuple(dim or ())
    axes = axes or tuple(range(rank))
    keep = bool(call.bound().get("keepdim", False))
    places = call.name in ("argmax", "argmin", "median") or (
        len(call.shapes) > 1 and call.name in ("max", "min")
    )
    if call.name in ("var", "std"):
        given = call.bound()
        correction = given.get("correction", float(bool(given.get("unbiased", True))))
        return operations.variance(call.name, axes, keep, 1 if correction is None else correction)
    return operations.reduced(call.name, axes, keep, call.numbers("dim", "keepdim"), places)


# creation


@row(
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


@row("arange", "linspace", "eye", "hann_window", "hamming_window", "blackman_window")
def _series(call: Call) -> Meaning:
    return Made((call.op, call.numbers()), "", places=True)
