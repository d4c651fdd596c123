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
from probe.semantics import Each, Meaning, Same, Step, Steps, Unknown, Whole, moving
from probe.semantics import operations as o
from probe.semantics.asked import moved, resized
from probe.semantics.contract import meaning as by_table
from probe.semantics.contract import reading

Row = Callable[[AtenCall], Meaning]

UNTAGGED = {
    *("hardswish", "_prelu_kernel", "floor_divide", "rsub", "complex", "polar"),
    "log_sigmoid_forward",
}
"""Functions of the elements at one place that PyTorch does not call so."""

MOVES = """gather take index _unsafe_index roll flip rot90 repeat unfold tril triu diagonal
 diag_embed narrow im2col pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle
 masked_select _pack_padded_sequence reflection_pad1d reflection_pad2d reflection_pad3d
 replication_pad1d replication_pad2d replication_pad3d upsample_nearest1d upsample_nearest2d
 upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d
 _upsample_nearest_exact3d"""
"""What moves the elements of its first operand, by numbers and indices: it is asked where."""


def meaning(call: AtenCall) -> Meaning:
    """Returns what a call computes; ``Unknown`` if it is not described."""
    if call.run is None:
        return Unknown("it draws random numbers")
    # what gives a view has a twin that gives a copy
    name = call.op if call.op in TABLE else call.op.removesuffix("_copy")
    pointwise = torch.Tag.pointwise in call.func.tags or name in UNTAGGED
    row = TABLE.get(name, _function if pointwise else None)
    found = by_table({name: row} if row else {}, replace(call, op=name))
    if isinstance(found, Unknown) and found.why.startswith(f"{name} "):  # with its overload
        why = found.why.removeprefix(name).replace("attributes", "arguments")
        return Unknown(str(call.func).removesuffix(".default") + why)
    return found


# functions of elements

CONSTRUCTORS: dict[str, tuple[str, Callable[..., Meaning]]] = {
    "gelu": ("approximate", lambda approximate: o.gelu(approximate == "tanh")),
    "leaky_relu": ("negative_slope", o.leaky_relu),
    "elu": ("alpha scale input_scale", o.elu),
    "celu": ("alpha", o.celu),
    "softplus": ("beta threshold", o.softplus),
    "hardsigmoid": ("", lambda: o.hard_sigmoid()),
    "hardtanh": ("min_val max_val", o.clip),
    "clamp": ("min max", o.clip),
    "clamp_min": ("min", lambda low: o.clip(low, None)),
    "clamp_max": ("max", lambda high: o.clip(None, high)),
}
"""Functions with numbers: the arguments' names, in the order in which a constructor takes them."""


def _function(c: AtenCall) -> Meaning:
    """A function of elements. Numbers beside arrays are named by where they stand: ``self`` or
    ``other``."""
    names, constructor = CONSTRUCTORS.get(c.op, ("", None))
    if constructor is not None and not any(c.has(one) for one in names.split()):
        return constructor(*(c[one] for one in names.split()))
    if c.op == "polygamma":
        return o.beside(c.op, 0, c["n"], c.dtype())
    if c.op == "rsub" and c.has("other"):
        return replace(o.function("subtract", **dict(c.more())), reads=(1, 0))
    if c.op == "rsub" and not c.more("other"):
        return o.beside("subtract", 0, c["other"], c.dtype())
    if c.op == "sqrt":  # PyTorch 2.13 gives a sixth of them one ulp off
        return o.approximate("sqrt")
    if c.op == "pow" and c.has("self") and c.count == 1:
        return o.power(c["exponent"])
    ends = [c.get("self"), c.get("other")]
    numbers = [at for at, one in enumerate(ends) if isinstance(one, bool | int | float)]
    more = {each for each, _ in c.more()} - {"self", "other"}
    if c.count == len(numbers) == 1 and c.has(("other", "self")[numbers[0]]) and not more:
        (at,) = numbers
        if c.dtype() in FORMATS:
            return o.beside(c.op, at, ends[at], c.dtype())
    found = o.function(c.op, **dict(c.more()))
    if c.count == 1 and found.zero == "clears" and not c.has("self"):
        return replace(found, zero="")  # a number over an array
    return found


def _conjugate(c: AtenCall) -> Meaning:
    return o.function("conj") if c["self"].dtype.is_complex else Same()


def _same(c: AtenCall) -> Meaning:
    after = c.get("dtype")
    return Same() if after is None else o.cast(c.dtype(), dtype(after))


def _loss(c: AtenCall) -> Meaning:
    """A function of two elements or more, and perhaps the mean or the sum of all of them."""
    word = "squared_difference" if c.op == "mse_loss" else c.op
    given = [c.has(name) for name in ("weight", "pos_weight") if name in c.attributes]
    more: dict[str, Any] = {"given": tuple(given)} if any(given) else {}
    each = o.function(word, **dict(c.more("reduction")), **more)
    if not c["reduction"]:
        return each
    shape = np.broadcast_shapes(*(one.shape for one in c.reads if one is not None))
    whole = o.reduced(("mean", "sum")[c["reduction"] - 1], range(len(shape)))
    first = Step(each, tuple(range(c.count)), shape)
    return Steps((first, Step(whole, (c.count,), c.gives[0])))


def _viewed(c: AtenCall) -> Meaning:
    if c.get("dtype") is not None:
        return o.bits(c.dtype(), c.dtypes[0], c.gives[0] == c.shape())
    return o.reshape()


def _squeezed(c: AtenCall) -> Meaning:
    dim = c.get("dim")
    axes = None if dim is None or not c.shape() else (dim,) if isinstance(dim, int) else dim
    return o.squeeze(c.shape(), axes)


def _transposed(c: AtenCall) -> Meaning:
    axes = list(range(c.rank()))
    one, two = c.get("dim0", 0), c.get("dim1", -1)
    if axes:
        axes[one], axes[two] = axes[two], axes[one]
    return o.transpose(axes)


# sums of products


def _added(product: Callable[[AtenCall], Any]) -> Row:
    """``beta * self + alpha * product(one, two)``."""

    def row(c: AtenCall) -> Meaning:
        alpha, beta, one = c["alpha"], c["beta"], product(c)
        if beta in (0, 1):
            numbers = () if alpha == 1 else c.more()
            return replace(one, reads=(1, 2), bias=None if beta == 0 else 0, numbers=numbers)
        first = Step(replace(one, numbers=(alpha,)), (1, 2), c.gives[0])
        scaled = Step(o.function("multiply", other=beta), (0,), c.shape())
        return Steps((first, scaled, Step(o.function("add"), (3, 4), c.gives[0])))

    return row


def _wide(numbers: Any, rank: int) -> tuple[int, ...]:
    found = (numbers,) if isinstance(numbers, int) else tuple(numbers)
    return found * rank if len(found) == 1 else found


def _convolution(c: AtenCall) -> Meaning:
    rank = len(c["weight"].shape) - 2
    spatial, turned = tuple(range(2, rank + 2)), bool(c.get("transposed", False))
    return o.convolution(
        *(tuple(c["weight"].shape[2:]), _wide(c["stride"], rank)),
        _wide(c.get("dilation", 1), rank),
        tuple((n, n) for n in _wide(c["padding"], rank)),
        weights=(*spatial, *((0, 1) if turned else (1, 0))),
        groups=c.get("groups", 1),
        transposed=turned,
        reads=range(c.count),
    )


def _spatial(c: AtenCall) -> tuple[int, int]:
    """How many spatial axes an operation of this name has, and how many stand before them."""
    rank = next(int(d) for d in "123" if f"{d}d" in c.op)
    return rank, c.rank() - rank


def _kept(*axes: int) -> tuple[tuple[int, int], ...]:
    return tuple((axis, axis) for axis in axes)


def _pool(c: AtenCall) -> Meaning:
    rank, lead = _spatial(c)
    average = c.op.startswith("avg")
    if average and c.get("divisor_override") is not None:
        return Whole(_kept(*range(lead)), "average", c.more())
    kernel = _wide(c["kernel_size"], rank)
    return o.pool(
        "average" if average else "max",
        kernel,
        _wide(c["stride"], rank) if c["stride"] else kernel,
        tuple((n, n) for n in _wide(c["padding"], rank)),
        dilation=() if average else _wide(c["dilation"], rank),
        counts_padding=average and bool(c["count_include_pad"]),
        ceil=bool(c["ceil_mode"]),
        lead=lead,
    )


def _adaptive(c: AtenCall) -> Meaning:
    rank, lead = _spatial(c)
    sizes, inner = _wide(c["output_size"], rank), c.shape()[lead:]
    if "max" in c.op or any(n % m for n, m in zip(inner, sizes, strict=True)):
        return Whole(_kept(*range(lead)), c.op, sizes)
    kernel = tuple(n // m for n, m in zip(inner, sizes, strict=True))
    return o.pool("average", kernel, kernel, ((0, 0),) * rank, counts_padding=True, lead=lead)


def _distances(c: AtenCall) -> Meaning:
    """A norm of the differences of every pair of rows, however it is computed: of many rows PyTorch
    takes the Euclidean one from a product of matrices."""
    one, two = c["x1"].shape, c["x2"].shape
    lead = np.broadcast_shapes(one[:-2], two[:-2])
    rows, others, size = one[-2], two[-2], one[-1]
    norm = o.reduced("cdist", (-1,), numbers=(float(c.get("p", 2.0)),))
    return Steps(
        (
            Step(o.reshape(), (0,), (*one[:-1], 1, size)),
            Step(o.reshape(), (1,), (*two[:-2], 1, others, size)),
            Step(Each("difference"), (2, 3), (*lead, rows, others, size)),
            Step(norm, (4,), c.gives[0]),
        )
    )


def _distance(c: AtenCall) -> Meaning:
    shape = np.broadcast_shapes(c.shape(0), c.shape(1))
    norm = o.reduced("norm", range(len(shape)), numbers=(float(c["p"]),))
    return Steps((Step(Each("difference"), (0, 1), shape), Step(norm, (2,), ())))


# norms, attention, recurrence


def _norm(c: AtenCall) -> Meaning:
    rank, last = len(c["input"].shape), len(c["normalized_shape"])
    word = "rms_norm" if "rms" in c.op else "layer_norm"
    return o.norm(range(rank - last, rank), c["eps"], c.has("weight"), c.has("bias"), word)


def _group_norm(c: AtenCall) -> Meaning:
    axes, present = range(1, c.rank()), (c.has("weight"), c.has("bias"))
    return o.norm(axes, c["eps"], *present, "group_norm", 1, (1, c["group"]))


def _batch_norm(c: AtenCall) -> Meaning:
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
    count, kept = c.count, len(c.gives) - 2
    steps = [Step(norm, tuple(reads), c.gives[0], tuple(c.gives[1:kept]))]
    for n, name in enumerate(("running_mean", "running_var")):
        each = Each(name, numbers=c.more("training"))
        steps.append(Step(each, (c.at(name), count + 1 + n), c.gives[kept + n]))
    return Steps(tuple(steps), tuple(range(count, count + len(c.gives))))


def _attends(c: AtenCall) -> Meaning:
    if c["dropout_p"]:
        return Unknown("it draws random numbers")
    ours, theirs = c["query"].shape[:-2], c["key"].shape[:-2]
    if ours != theirs and (ours[:-1] != theirs[:-1] or ours[-1] % theirs[-1]):
        return Unknown("keys and queries have different leading axes")
    kind = dtype((c["attn_mask"] if c.has("attn_mask") else c["query"]).dtype)
    scale = c["scale"] if c["scale"] is not None else 1 / math.sqrt(c["query"].shape[-1])
    return s.Attends(bool(c["is_causal"]), (float(scale),), boolean=kind == "bool", dtype=kind)


def _encodes(c: AtenCall) -> Meaning:
    """A layer of an encoder, or its attention alone, of one tensor as queries, keys and values."""
    layer, mask, numbers = c.op.startswith("_transformer"), c["mask"], c.more("mask_type")
    if not layer and not c.same("query", "key", "value"):
        return Unknown("attention with keys or values that differ from the queries")
    if layer and c["src"].strides is None:
        return Unknown("sequences of several lengths, packed")
    word = "transformer_encoder_layer" if layer else "multi_head_attention"
    made: Meaning = s.Encodes(word, numbers)
    ahead, rows = 0 if layer else 2, c["mask_type"] == 1  # it stands three times in the call
    if mask is not None:
        made = s.Encodes(word, numbers, c.at("mask") - ahead, rows, dtype(mask.dtype))
    of_heads = mask is not None and (len(mask.shape) != 2 or c["mask_type"] not in (0, 1))
    if layer:
        return Unknown("attention with a mask for each head") if of_heads else made
    if len(c.gives) > 1 or of_heads:
        # its weights too, or a mask for each head: a sample reads its own row of both
        each = mask is not None and (rows or len(mask.shape) == 4)
        made = Whole(_kept(0), word, numbers, (c.at("mask") - ahead,) if each else ())
    step = Step(made, (0, *range(3, c.count)), c.gives[0], tuple(c.gives[1:]))
    return Steps((step,), tuple(range(c.count, c.count + len(c.gives))))


LSTM = 2
"""The number of the cell in ``mkldnn_rnn_layer``: PyTorch computes all others by steps."""


def _rnn_layer(c: AtenCall) -> Meaning:
    if c["batch_sizes"]:
        return Unknown("sequences of several lengths, packed")
    numbers, reverse = c.more("reverse"), bool(c["reverse"])
    if c["mode"] == LSTM:
        # without biases it is handed zeros in the shapes of the weights, and reads none of them
        biases = (3, 4) if c["has_biases"] else (-1, -1)
        return s.Recurs("lstm", "ifgo", (0, 1, 2, *biases, 5, 6), reverse=reverse)
    return s.Scans(0, "rnn_layer", reverse, (2,), numbers, states=(5, 6), batch=1)


# sums, means, extremes; whole axes and matrices


def _axes(c: AtenCall) -> tuple[int, ...]:
    dim = c.get("dim") if c.shape() else ()
    return (dim,) if isinstance(dim, int) else tuple(dim or ()) or tuple(range(c.rank()))


def _reduces(c: AtenCall) -> Meaning:
    keep, more = bool(c.get("keepdim")), c.more("dim", "keepdim")
    if c.op in ("var", "std"):
        return o.variance(c.op, _axes(c), keep, 1 if c["correction"] is None else c["correction"])
    places = c.op in ("argmax", "argmin", "median", "nanmedian")
    places |= len(c.gives) > 1 and c.op in ("max", "min")
    if c.op in ("norm", "linalg_vector_norm") and not c.more("dim", "keepdim", "ord", "p"):
        order = c.get("ord", c.get("p"))
        return o.vector_norm(_axes(c), 2 if order is None else order, keep)
    return o.reduced(c.op, _axes(c), keep, more, places)


def _aminmax(c: AtenCall) -> Meaning:
    axes, keep = _axes(c), bool(c.get("keepdim"))
    both = (Step(o.reduced(one, axes, keep), (0,), c.gives[0]) for one in ("min", "max"))
    return Steps(tuple(both), (1, 2))


def _sorts(c: AtenCall) -> Meaning:
    keep = c.op not in ("kthvalue", "mode") or bool(c["keepdim"])
    if c.op == "sort":
        return o.sort(c.rank(), c["dim"], bool(c["descending"]))
    if c.op == "topk":
        return o.top_k(c.rank(), c["k"], c["dim"], bool(c["largest"]), bool(c["sorted"]))
    return o.along(c.op, c.rank(), (c["dim"],), c.more(), keep)


def _whole(kept: Callable[[AtenCall], Any] = lambda c: (), *rows: int) -> Row:
    """Every output reads its own index of these axes of the first operand, its own of the first
    axis of ``rows``, and all of everything else."""
    return lambda c: Whole(_kept(*kept(c)), c.op, c.more(), rows)


EVERYTHING = _whole()


def _sampled(c: AtenCall) -> Meaning:
    mode = ("linear", "nearest", "cubic")[c["interpolation_mode"]]
    padding = ("zeros", "border", "reflection")[c["padding_mode"]]
    return o.grid_sample(mode, padding, bool(c["align_corners"]))


def _stacked(*names: str, own: tuple[int, ...] = (2, 2), last: int = 2) -> Row:
    """Every output reads all of its own part of each operand: of these names, with so many axes of
    its ``own``, as the first result has ``last`` ones. Of a linear system that is the solution;
    others are parts of the first operand's factorisation."""

    def row(c: AtenCall) -> Meaning:
        shapes, reads = [tuple(c[name].shape) for name in names], [c.at(name) for name in names]
        right, mine, axes, (to, *rest) = shapes[-1], own, last, c.gives
        if c.op.endswith("solve_ex") and right in ((right[-1],), shapes[0][:-1]):
            mine, axes = (*own[:-1], 1), 1  # of one right side each
        lead, word = to[: len(to) - axes], c.op.lstrip("_").removesuffix("_ex")
        gives, more = [to] if "solve" in c.op else list(c.gives), c.more("check_errors")
        found = o.solved(word, c.count, reads, shapes, mine, lead, gives, more)
        if len(gives) == len(c.gives):
            return found
        factors, last_one = Whole(_kept(*range(len(shapes[0]) - 2)), "factors"), len(found.steps)
        steps = (*found.steps, Step(factors, (reads[0],), rest[0], tuple(rest[1:])))
        first = c.count + last_one - 1
        return Steps(steps, tuple(range(first, first + len(c.gives))))

    return row


def _triangular(c: AtenCall) -> Meaning:
    """``linalg_solve_triangular(self, B)``; ``triangular_solve(B, A)`` also gives a copy of A."""
    older = c.op == "triangular_solve"
    names = ("A", "self") if older else ("self", "B")
    shapes = [tuple(c[name].shape) for name in names]
    found = o.triangular_solve(
        *(c.count, [c.at(name) for name in names], shapes, c.gives[0]),
        left=older or bool(c["left"]),
        lower=not c["upper"],
        transposed=older and bool(c["transpose"]),
        unit=bool(c["unitriangular"]),
    )
    if not older:
        return found
    last = c.count + len(found.steps)
    copy = Step(o.expand(shapes[0], c.gives[1]), (c.at("A"),), c.gives[1])
    return Steps((*found.steps, copy), (last - 1, last))


def _crossed(c: AtenCall) -> Meaning:
    along_last = c["dim"] % len(c.gives[0]) == len(c.gives[0]) - 1
    return (_stacked("self", "other", own=(1, 1), last=1) if along_last else EVERYTHING)(c)


def _fourier(c: AtenCall) -> Meaning:
    kind = "real" if c.op == "_fft_r2c" and c["onesided"] else "complex"
    size = c.shape()[c["dim"][-1]]
    if c.op == "_fft_c2r":
        kind, size = "inverse real", c["last_dim_size"]
    elif not c.get("forward", True):
        kind = "inverse"
    found = o.fourier(kind, c.rank(), c["dim"], size, c["normalization"])
    if c.op != "_fft_r2c" or c["onesided"]:
        return found
    wide = Step(o.cast(c.dtype(), c.dtypes[0]), (0,), c.shape())  # others convert their input first
    return Steps((wide, Step(found, (c.count,), c.gives[0])))


def _searched(c: AtenCall) -> Meaning:
    """An output reads its own number, and all of one sorted sequence."""
    if not c.has("self") or len(c["sorted_sequence"].shape) != 1:
        return Unknown("every row is searched in a sequence of its own")
    whole = Whole(_kept(*range(len(c["self"].shape))), "searchsorted", c.more())
    return reading(c, whole, c.at("self"), c.at("sorted_sequence"))


def _trilinear(c: AtenCall) -> Meaning:
    """Of a layer with weights between two inputs each row reads its own of both."""
    rows = 0 not in (*c["expand1"], *c["expand3"], *c["sumdim"])
    return Whole(_kept(0) if rows else (), c.op, c.more(), rows=(2,) if rows else ())


# creation


def _made(c: AtenCall) -> Meaning:
    value = c.get("fill_value", c.get("value", c.get("s")))
    if isinstance(value, Slot):
        return Same() if c.count == 1 else Unknown("its value is an array")
    value = int("ones" in c.op) if value is None else value
    kind = c.get("dtype") or (c["self"].dtype if c.has("self") else torch.get_default_dtype())
    return s.Made(value, dtype(kind))


def _ranged(c: AtenCall) -> Meaning:
    if c.count and c.op != "repeat_interleave":
        return EVERYTHING(c)
    numbers = tuple(map(int, c.index("repeats"))) if c.count else c.more()
    return s.Made((c.op, numbers), "", places=True)


# movement: what is said here is what sizes of 1 would leave open, and where writes meet


def _sliced(c: AtenCall) -> Meaning:
    index = np.arange(c.shape()[c["dim"]])[c["start"] : c["end"] : c["step"]]
    return o.take(c["dim"], index)


def _taken(c: AtenCall) -> Meaning:
    return o.take(c["dim"], c.index("index")) if c.shape() else Same()


def _padded(c: AtenCall) -> Meaning:
    pad = c["pad"]  # begins with the last axis
    pairs = [(pad[n], pad[n + 1]) for n in range(0, len(pad), 2)]
    widths = ((0, 0),) * (c.rank() - len(pairs)) + tuple(reversed(pairs))
    return o.pad(widths, c["value"] or 0, c.dtype())


def _as_strided(c: AtenCall) -> Meaning:
    """Asked of the operation in memory that has only what it reads: so of an operand with gaps, or
    in the midst of its memory, it isn't known."""
    if not c["self"].dense or c["storage_offset"] is not None:
        return Unknown("it reads memory by its own strides")
    return moved(c)


def _masked_fill(c: AtenCall) -> Meaning:
    at = c.at("value") if c.has("value") else -1
    return s.Chooses((1, at, 0), c["value"] if at < 0 else 0, c.dtype())


def _places(c: AtenCall) -> np.ndarray:
    """Returns where it writes the elements of its source, as flat places: PyTorch itself picks
    them, by the same indices."""
    shape = c.shape()
    flat = torch.arange(math.prod(shape)).reshape(shape)
    if "indices" in c.attributes:
        index = [slice(None) if one is None else torch.tensor(c.value(one.number))
                 for one in c["indices"]]  # fmt: skip
        return flat[tuple(index)].numpy()
    index = torch.tensor(c.index("index"))
    if c.op == "put":
        return flat.take(index).numpy()
    pick = torch.gather if c.op.startswith("scatter") else torch.index_select
    return pick(flat, c["dim"], index).numpy()


def _scattered(c: AtenCall) -> Meaning:
    """Elements of an array, or a number, are written at places that indices name, or combined with
    what is there."""
    source = next(name for name in ("src", "source", "values", "value") if name in c.attributes)
    adds = c.get("accumulate") or c.op.endswith("_add")
    places, how, array = _places(c), c.get("reduce") or "sum" * bool(adds), c.has(source)
    if not how:
        if array and c[source].shape and np.unique(places).size != places.size:
            return Unknown("several elements are written into one place")  # chance decides
        return moved(c, 0, *([c.at(source)] if array else ()))
    at, steps = c.at(source), list[Step]()
    wide = np.broadcast_shapes(c.shape(at), places.shape)
    if places.shape != wide or (c.op.startswith("scatter") and places.shape != c.shape(at)):
        return Unknown("it reads a part of what it adds")
    kept = () if c.get("include_self", True) else ("without itself",)
    if c.get("alpha", 1) != 1:
        steps.append(Step(o.function("multiply", other=c["alpha"]), (at,), c.shape(at)))
    elif how not in ("sum", "add") or kept:  # a zero among them counts
        steps.append(Step(Each(f"term of {how}"), (at,), c.shape(at)))
    steps.append(Step(o.expand(c.shape(at), wide), (c.count if steps else at,), wide))
    word = "accumulate" if how in ("sum", "add") else f"accumulate {how}"
    into = s.Accumulates(places.reshape(-1), word, kept)
    return Steps((*steps, Step(into, (0, c.count + len(steps) - 1), c.gives[0])))


def _unpooled(c: AtenCall) -> Meaning:
    """Elements are put at places that count through the plane of each channel."""
    rank = _spatial(c)[0]
    index, plane = c.index("indices"), math.prod(c.gives[0][-rank:])
    start = np.arange(math.prod(index.shape[:-rank])) * plane
    places = index + start.reshape(*index.shape[:-rank], *(1,) * rank)
    return moving.written(c, places, updates=0)


def _embedding_bag(c: AtenCall) -> Meaning:
    """Sums of rows of a table, perhaps with a weight each; the mean knows how many."""
    index, offsets = c.index("indices"), c.index("offsets")
    how = ("sum", "mean", "max")[int(c["mode"])]
    starts = offsets[:-1] if c["include_last_offset"] else offsets
    bags = np.searchsorted(starts, np.arange(len(index)), side="right") - 1
    left_out = index == (-1 if c["padding_idx"] is None else c["padding_idx"])
    width, count, table = c["weight"].shape[1], c.count, c.at("weight")
    places = np.where(left_out[:, None], -1, bags[:, None] * width + np.arange(width))
    rows = (len(index), width)
    steps = [Step(o.take(0, index), (table,), rows)]
    if c.has("per_sample_weights"):
        steps.append(Step(o.reshape(), (c.at("per_sample_weights"),), (len(index), 1)))
        steps.append(Step(o.function("multiply"), (count, count + 1), rows))
    if how == "max":  # a zero among them counts
        steps.append(Step(Each("term of max"), (count + len(steps) - 1,), rows))
    terms = count + len(steps) - 1
    steps.append(Step(s.Made(0.0, c.dtype(table)), (), c.gives[0]))
    bag = "embedding_bag" if how != "max" else "embedding_bag max"
    steps.append(Step(s.Accumulates(places.reshape(-1), bag), (terms + 1, terms), c.gives[0]))
    if how == "mean":  # each bag by its own number of rows
        lengths = np.maximum(np.bincount(bags[~left_out], minlength=len(starts)), 1)[:, None]
        steps.append(Step(s.Holds(lengths), (), lengths.shape))
        steps.append(Step(Each("mean_of_bag"), (terms + 2, terms + 3), c.gives[0]))
    gives = [count + len(steps) - 1]
    for n, shape in enumerate(c.gives[1:]):
        whole = Whole((), f"embedding_bag {n}", (how, len(starts)))
        steps.append(Step(whole, tuple(range(count)), shape))
        gives.append(count + len(steps) - 1)
    return Steps(tuple(steps), tuple(gives))


def _folded(c: AtenCall) -> Meaning:
    """What overlaps is added: each place of a picture from the windows that have it, which the
    operation that cuts them out is asked for."""
    to = c.gives[0]
    if max(math.prod(c.shape()), math.prod(to)) > 1 << 22:
        return Unknown("it moves too many elements to find out where")
    plane = torch.arange(1, math.prod(to) + 1, dtype=torch.float64).reshape(to)
    words = [c[name] for name in ("kernel_size", "dilation", "padding", "stride")]
    at = torch.ops.aten.im2col(plane, *words).numpy().astype(np.int64) - 1  # 0: of the padding
    return moving.written(c, at, 0, adds=True)


def _halves(c: AtenCall) -> Meaning:
    halves = (Step(o.function(word), (0,), c.shape()) for word in ("real", "imag"))
    return Steps((*halves, Step(o.stack(-1), (1, 2), c.gives[0])))


def _of_halves(c: AtenCall) -> Meaning:
    halves = (Step(o.take(-1, n), (0,), c.gives[0]) for n in range(2))
    return Steps((*halves, Step(o.function("complex"), (1, 2), c.gives[0])))


def _gated(c: AtenCall) -> Meaning:
    half = c.gives[0]
    halves = Step(o.split(c["dim"], (half, half)), (0,), half, (half,))
    gate = Step(o.function("sigmoid"), (2,), half)
    return Steps((halves, gate, Step(o.function("multiply"), (1, 3), half)))


def _rows(names: str, row: Row) -> dict[str, Row]:
    return dict.fromkeys(names.split(), row)


TABLE: dict[str, Row] = {
    **_rows("clone lift_fresh detach alias to_mkldnn _to_dense _to_sparse _to_copy", _same),
    "copy": lambda c: o.cast(dtype(c["src"].dtype), dtype(c["self"].dtype)),
    **_rows("_conj _conj_physical conj_physical", _conjugate),
    "_neg_view": lambda c: o.function("negative"),
    "view_as_real": _halves,
    "view_as_complex": _of_halves,
    **_rows("mse_loss huber_loss smooth_l1_loss soft_margin_loss binary_cross_entropy"
            " binary_cross_entropy_with_logits", _loss),
    # sums of products
    **_rows("mm bmm mv dot vdot", lambda c: o.matmul((c.rank(0), c.rank(1)))),
    **_rows("addmm baddbmm addmv", _added(lambda c: o.matmul((c.rank(1), c.rank(2))))),
    "addbmm": _added(lambda c: o.einsum("bmk,bkn->mn")),
    "addr": _added(lambda c: o.einsum("m,n->mn")),
    "linear": lambda c: o.dense(bias=2 if c.count == 3 else None),
    "_trilinear": _trilinear,
    **_rows("convolution _convolution mkldnn_convolution _slow_conv2d_forward", _convolution),
    **_rows("_cdist_forward _euclidean_dist", _distances),
    "dist": _distance,
    # windows
    **_rows("max_pool2d_with_indices max_pool3d_with_indices mkldnn_max_pool2d mkldnn_max_pool3d"
            " avg_pool1d avg_pool2d avg_pool3d", _pool),
    **_rows("adaptive_avg_pool1d adaptive_avg_pool2d _adaptive_avg_pool2d _adaptive_avg_pool3d"
            " adaptive_max_pool2d adaptive_max_pool3d", _adaptive),
    **_rows("upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d"
            " _upsample_bilinear2d_aa _upsample_bicubic2d_aa",
            lambda c: resized(c, range(2, c.rank()), (c.op, *c.more()))),
    **_rows("grid_sampler_2d grid_sampler_3d _grid_sampler_2d_cpu_fallback", _sampled),
    **_rows("fractional_max_pool2d fractional_max_pool3d", _whole(lambda c: (0, 1), 1)),
    "affine_grid_generator":
        lambda c: o.affine_grid(c["size"][2:], c["align_corners"]),
    # norms, attention, recurrence
    **_rows("native_layer_norm _fused_rms_norm", _norm),
    "native_group_norm": _group_norm,
    **_rows("native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training"
            " cudnn_batch_norm _batch_norm_with_update _batch_norm_no_update", _batch_norm),
    "_weight_norm_interface": lambda c: Whole(_kept(c["dim"]), "weight_norm"),
    "renorm": _whole(lambda c: (c["dim"] % c.rank(),)),
    **_rows("softmax _softmax _safe_softmax", lambda c: o.softmax((c["dim"],))),
    **_rows("log_softmax _log_softmax", lambda c: o.log_softmax((c["dim"],))),
    "_scaled_dot_product_flash_attention_for_cpu": _attends,
    **_rows("_transformer_encoder_layer_fwd _native_multi_head_attention", _encodes),
    "mkldnn_rnn_layer": _rnn_layer,
    "glu": _gated,
    "quantized::linear_dynamic": EVERYTHING,  # its scale is taken from the whole batch
    # whole axes
    **_rows("sum mean amax amin prod logsumexp any all nansum linalg_vector_norm norm count_nonzero"
            " var std var_mean std_mean max min argmax argmin median nanmedian", _reduces),
    "aminmax": _aminmax,
    **_rows("cumsum cumprod cummax cummin logcumsumexp",
            lambda c: o.cumulated(c.op, c["dim"]) if c.shape() else Each(c.op)),
    **_rows("sort topk kthvalue mode", _sorts),
    **_rows("_fft_r2c _fft_c2c _fft_c2r", _fourier),
    **_rows("nonzero nonzero_static unique_consecutive _unique2 unique_dim bincount histc trace"
            " histogram _pdist_forward nll_loss_forward nll_loss2d_forward multi_margin_loss"
            " multilabel_margin_loss_forward segment_reduce", EVERYTHING),
    "bucketize": lambda c: o.bucketize(c.rank(), c["right"]),
    "isin": _whole(lambda c: range(c.rank())),
    "searchsorted": _searched,
    # matrices
    **_rows("linalg_inv_ex _linalg_det linalg_cholesky_ex _linalg_eigh _linalg_svd linalg_qr"
            " linalg_lu_factor_ex _linalg_slogdet linalg_eig cholesky cholesky_inverse linalg_lu"
            " linalg_matrix_exp linalg_ldl_factor_ex linalg_pinv geqrf",
            lambda c: o.matrices(c.op, c.rank(), *map(str, c.more()))),
    "_linalg_solve_ex": _stacked("A", "B"),
    "linalg_lu_solve": _stacked("LU", "pivots", "B", own=(2, 1, 2)),
    "linalg_ldl_solve": _stacked("LD", "pivots", "B", own=(2, 1, 2)),
    "cholesky_solve": _stacked("input2", "self"),
    "_cholesky_solve_helper": _stacked("A", "self"),
    **_rows("linalg_solve_triangular triangular_solve", _triangular),
    "linalg_cross": _crossed,
    "linalg_lstsq": _stacked("self", "b"),
    "lu_unpack": _stacked("LU_data", "LU_pivots", own=(2, 1)),
    "linalg_householder_product": _stacked("input", "tau", own=(2, 1)),
    "ormqr": _stacked("self", "input2", "input3", own=(2, 1, 2)),
    # creation
    **_rows("zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full fill zero"
            " scalar_tensor", _made),
    **_rows("arange linspace logspace eye tril_indices triu_indices hann_window hamming_window"
            " blackman_window bartlett_window kaiser_window repeat_interleave", _ranged),
    # movement
    **_rows(MOVES, moved),
    **_rows("view _unsafe_view _reshape_alias unsqueeze", _viewed),
    "squeeze": _squeezed,
    "expand": lambda c: o.expand(c.shape(), c.gives[0]),
    "permute": lambda c: o.transpose(c["dims"]),
    **_rows("transpose t", _transposed),
    "slice": _sliced,
    "select": lambda c: o.take(c["dim"], c["index"] % c.shape()[c["dim"]]),
    "index_select": _taken,
    "embedding": lambda c: o.take(0, c.index("indices")),
    **_rows("split split_with_sizes unsafe_split unsafe_split_with_sizes",
            lambda c: o.split(c["dim"], c.gives)),
    "unbind": lambda c: o.unstack(c["dim"], len(c.gives)),
    "cat": lambda c: o.concat(c["dim"]),
    "stack": lambda c: o.stack(c["dim"]),
    **_rows("block_diag _chunk_cat", lambda c: moved(c, *range(c.count))),
    "constant_pad_nd": _padded,
    "as_strided": _as_strided,
    "where": lambda c: o.where() if c.count == 3 else Each("where", "", c.more()),
    "masked_fill": _masked_fill,
    **_rows("slice_scatter select_scatter diagonal_scatter", lambda c: moved(c, 0, c.at("src"))),
    "as_strided_scatter": lambda c: moved(c, 0, c.at("src")) if c["self"].dense else EVERYTHING(c),
    "masked_scatter": lambda c: moved(c, 0, c.at("source")),
    **_rows("scatter scatter_add scatter_reduce index_copy index_fill index_put _unsafe_index_put"
            " put index_add index_reduce", _scattered),
    **_rows("max_unpool2d max_unpool3d", _unpooled),
    **_rows("_embedding_bag _embedding_bag_forward_only", _embedding_bag),
    "col2im": _folded,
}  # fmt: skip
"""What each operation computes, by its name without ``_`` behind it. Besides, functions of elements
that PyTorch tags as such."""
