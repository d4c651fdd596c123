"""ATen's operations in the words of :mod:`probe.semantics.operations`: one line an operation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from probe.floats import FORMATS
from probe.recorders.torch_calls import Called
from probe.recorders.torch_values import Slot, dtype
from probe.semantics import (
    Accumulates,
    Attends,
    Blends,
    Chooses,
    Each,
    Encodes,
    Holds,
    Made,
    Meaning,
    Normalises,
    Passes,
    Picks,
    Same,
    Scans,
    Step,
    Steps,
    Unknown,
    Whole,
    placed,
)
from probe.semantics import operations as o
from probe.semantics.asked import moved
from probe.semantics.call import Call as Base
from probe.semantics.call import Operand
from probe.semantics.call import meaning as by_table
from probe.semantics.contract import Run


@dataclass(frozen=True)
class Call(Base):
    """A call of ATen: its attributes are all arguments by the names of the schema, with ``Slot`` in
    the places of arrays, and its operands are those that are read. ``called``: as it was called."""

    called: Called = None  # type: ignore[assignment]

    def at(self, slot: int | str) -> int:
        """Returns the place of an array among those that are read. IndexError: it isn't read."""
        number = self[slot].number if isinstance(slot, str) else slot
        if number is None:
            raise IndexError(slot)
        return int(number)

    def has(self, slot: int | str) -> bool:
        """Returns whether an argument is given and is an array."""
        return super().has(slot) if isinstance(slot, int) else isinstance(self.get(slot), Slot)

    def more(self, *known: str) -> tuple[Any, ...]:
        """Returns (name, value) of the arguments that aren't arrays, nor as by default."""
        return self.called.numbers(*known)

    def index(self, name: str) -> np.ndarray:
        """Returns the integers of an argument. NotSettled where there are too many."""
        return self.value(self.at(name))


Row = Callable[[Call], Meaning]

UNTAGGED = {
    *("hardswish", "_prelu_kernel", "floor_divide", "rsub", "complex", "log_sigmoid_forward"),
}
"""Functions of the elements at one place that PyTorch does not call so."""

MOVES = """gather take index _unsafe_index roll flip repeat unfold tril triu diagonal diagonal_copy
 im2col pixel_shuffle pixel_unshuffle channel_shuffle native_channel_shuffle masked_select
 reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d replication_pad2d
 replication_pad3d upsample_nearest1d upsample_nearest2d upsample_nearest3d
 _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d"""
"""What moves the elements of its first operand, by numbers and indices: it is asked where."""


def meaning(called: Called, run: Run | None) -> Meaning:
    """Returns what a call computes; ``Unknown`` if it is not described."""
    if called.random:
        return Unknown("it draws random numbers")
    operands = [_operand(called, number) for number in range(len(called.reads))]
    known = called.name in TABLE
    call = Call(
        op=called.name if known else called.op,
        attributes=called.bound(),
        reads=operands,
        gives=called.shapes,
        dtypes=called.dtypes,
        run=run,
        called=called,
    )
    pointwise = torch.Tag.pointwise in called.func.tags or called.name in UNTAGGED
    table = {call.op: _function} if pointwise and not known else TABLE
    found = by_table(table, call)
    # a reason names the operation as PyTorch does, with its overload
    if isinstance(found, Unknown) and found.why.startswith(f"{call.op} has"):
        return Unknown(f"{called.op} has arguments that are not described in probe")
    return found


def _operand(called: Called, number: int) -> Operand:
    slot = called.reads[number]
    whole = not (slot.dtype.is_floating_point or slot.dtype.is_complex)
    content = (lambda: called.integers(number)) if whole else None
    return Operand(number, tuple(slot.shape), dtype(slot.dtype), content)


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
}
"""Functions with numbers: the arguments' names, in the order in which a constructor takes them."""


def _function(c: Call) -> Meaning:
    """A function of elements. Numbers beside arrays are named by where they stand: ``self`` or
    ``other``."""
    name = c.called.name
    names, constructor = CONSTRUCTORS.get(name, ("", None))
    if constructor is not None and not any(c.has(one) for one in names.split()):
        return constructor(*(c[one] for one in names.split()))
    if name == "sqrt":  # PyTorch 2.13 gives a sixth of them one ulp off
        return o.approximate("sqrt")
    if name == "pow" and c.has("self") and c.count == 1:
        return o.power(c["exponent"])
    ends = [c.get("self"), c.get("other")]
    numbers = [at for at, one in enumerate(ends) if isinstance(one, bool | int | float)]
    more = {each for each, _ in c.more()} - {"self", "other"}
    if c.count == len(numbers) == 1 and c.has(("other", "self")[numbers[0]]) and not more:
        (at,) = numbers
        if c.dtype() in FORMATS:
            return o.beside(name, at, ends[at], c.dtype())
    found = o.function(name, **dict(c.more()))
    if c.count == 1 and found.zero == "clears" and not c.has("self"):
        return replace(found, zero="")  # a number over an array
    return found


def _same(c: Call) -> Meaning:
    after = c.get("dtype")
    return Same() if after is None else o.cast(c.dtype(), dtype(after))


def _viewed(c: Call) -> Meaning:
    if c.get("dtype") is not None:
        return Unknown("the bits are read as a different type")
    return o.reshape()


def _squeezed(c: Call) -> Meaning:
    dim = c.get("dim")
    if isinstance(dim, int):
        return o.squeeze(c.shape(), (dim,)) if c.shape() else Same()
    return o.reshape()


def _transposed(c: Call) -> Meaning:
    axes = list(range(c.rank()))
    one, two = (c["dim0"], c["dim1"]) if c.op in ("transpose", "swapaxes") else (0, -1)
    if axes:
        axes[one], axes[two] = axes[two], axes[one]
    return o.transpose(axes)


# sums of products


def _product_added(c: Call) -> Meaning:
    """``beta * self + alpha * (one @ two)``."""
    alpha, beta = c["alpha"], c["beta"]
    ranks = (c.rank(1), c.rank(2))
    if beta in (0, 1):
        numbers = () if alpha == 1 else c.more()
        return o.matmul(ranks, reads=(1, 2), bias=None if beta == 0 else 0, numbers=numbers)
    product = Step(o.matmul(ranks, numbers=(alpha,)), (1, 2), c.gives[0])
    scaled = Step(o.function("multiply", other=beta), (0,), c.shape())
    return Steps((product, scaled, Step(o.function("add"), (3, 4), c.gives[0])))


def _wide(numbers: Any, rank: int) -> tuple[int, ...]:
    found = (numbers,) if isinstance(numbers, int) else tuple(numbers)
    return found * rank if len(found) == 1 else found


def _convolution(c: Call) -> Meaning:
    rank = len(c["weight"].shape) - 2
    spatial, turned = tuple(range(2, rank + 2)), bool(c["transposed"])
    return o.convolution(
        *(tuple(c["weight"].shape[2:]), _wide(c["stride"], rank), _wide(c["dilation"], rank)),
        tuple((n, n) for n in _wide(c["padding"], rank)),
        weights=(*spatial, *((0, 1) if turned else (1, 0))),
        groups=c["groups"],
        transposed=turned,
        reads=range(c.count),
    )


def _spatial(c: Call) -> tuple[int, int]:
    """How many spatial axes an operation of this name has, and how many stand before them."""
    rank = next(int(d) for d in "123" if f"{d}d" in c.op)
    return rank, c.rank() - rank


def _pool(c: Call) -> Meaning:
    rank, lead = _spatial(c)
    average = c.op.startswith("avg")
    if average and c.get("divisor_override") is not None:
        return Whole(tuple((n, n) for n in range(lead)), "average", c.more())
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


def _adaptive(c: Call) -> Meaning:
    rank, lead = _spatial(c)
    sizes, inner = _wide(c["output_size"], rank), c.shape()[lead:]
    if "max" in c.op or any(n % m for n, m in zip(inner, sizes, strict=True)):
        return Whole(tuple((n, n) for n in range(lead)), c.op, sizes)
    kernel = tuple(n // m for n, m in zip(inner, sizes, strict=True))
    return o.pool("average", kernel, kernel, ((0, 0),) * rank, counts_padding=True, lead=lead)


def _distances(c: Call) -> Meaning:
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


# norms, attention, recurrence


def _norm(word: str) -> Row:
    def row(c: Call) -> Meaning:
        rank, last = len(c["input"].shape), len(c["normalized_shape"])
        return o.norm(range(rank - last, rank), c["eps"], c.has("weight"), c.has("bias"), word)

    return row


def _group_norm(c: Call) -> Meaning:
    axes, present = range(1, c.rank()), (c.has("weight"), c.has("bias"))
    return o.norm(axes, c["eps"], *present, "group_norm", 1, (1, c["group"]))


def _batch_norm(c: Call) -> Meaning:
    present = (c.has("weight"), c.has("bias"))
    if not c.get("training", "no" not in c.op) or c.op.endswith("no_training"):
        return o.batch_norm(c["eps"], *present, along=1)
    if c.has("running_mean") or c.has("running_var"):
        return Unknown("a batch norm in training mode changes its running means")
    axes = tuple(axis for axis in range(c.rank()) if axis != 1)
    numbers = ("training", *present, c["eps"])
    return Normalises(axes, "batch_norm", numbers, along=1, apart=True)


def _attends(c: Call) -> Meaning:
    if c["dropout_p"]:
        return Unknown("it draws random numbers")
    ours, theirs = c["query"].shape[:-2], c["key"].shape[:-2]
    if ours != theirs and (ours[:-1] != theirs[:-1] or ours[-1] % theirs[-1]):
        return Unknown("keys and queries have different leading axes")
    kind = dtype((c["attn_mask"] if c.has("attn_mask") else c["query"]).dtype)
    scale = c["scale"] if c["scale"] is not None else 1 / math.sqrt(c["query"].shape[-1])
    return Attends(bool(c["is_causal"]), (float(scale),), boolean=kind == "bool", dtype=kind)


def _encoder_layer(c: Call) -> Meaning:
    mask, numbers = c["mask"], c.more("mask_type")
    if c["src"].strides is None:
        return Unknown("sequences of several lengths, packed")
    if mask is None:
        return Encodes("transformer_encoder_layer", numbers)
    if len(mask.shape) != 2 or c["mask_type"] not in (0, 1):
        return Unknown("attention with a mask for each head")
    return Encodes(
        *("transformer_encoder_layer", numbers, c.at("mask"), c["mask_type"] == 1),
        dtype(mask.dtype),
    )


def _native_attention(c: Call) -> Meaning:
    if not c.called.same("query", "key", "value"):
        return Unknown("attention with keys or values that differ from the queries")
    mask, numbers, word = c["mask"], c.more("mask_type"), "multi_head_attention"
    rows = c["mask_type"] == 1
    made: Meaning = Encodes(word, numbers)
    if mask is not None:
        made = Encodes(word, numbers, c.at("mask") - 2, rows, dtype(mask.dtype))
    if len(c.gives) > 1 or (mask is not None and len(mask.shape) != 2):
        # its weights too, or a mask for each head: a sample reads its own row of both
        each = mask is not None and (rows or len(mask.shape) == 4)
        made = Whole(((0, 0),), word, numbers, (c.at("mask") - 2,) if each else ())
    # what it reads stands three times in the call: as queries, keys and values
    step = Step(made, (0, *range(3, c.count)), c.gives[0], tuple(c.gives[1:]))
    return Steps((step,), tuple(range(c.count, c.count + len(c.gives))))


def _rnn_layer(c: Call) -> Meaning:
    if c["batch_sizes"]:
        return Unknown("sequences of several lengths, packed")
    numbers, reverse = c.more("reverse"), bool(c["reverse"])
    return Scans(0, "rnn_layer", reverse, (2,), numbers, states=(5, 6), batch=1)


# sums, means, extremes; whole axes and matrices


def _axes(c: Call) -> tuple[int, ...]:
    dim = c.get("dim")
    return (dim,) if isinstance(dim, int) else tuple(dim or ()) or tuple(range(c.rank()))


def _reduces(c: Call) -> Meaning:
    if c.op in ("max", "min") and c.count == 2:
        return o.function(f"{c.op}imum")
    keep = bool(c.get("keepdim", False))
    places = c.op in ("argmax", "argmin", "median")
    places |= len(c.gives) > 1 and c.op in ("max", "min")
    return o.reduced(c.op, _axes(c), keep, c.more("dim", "keepdim"), places)


def _variance(c: Call) -> Meaning:
    correction = c.get("correction", float(bool(c.get("unbiased", True))))
    correction = 1 if correction is None else correction
    return o.variance(c.op, _axes(c), bool(c.get("keepdim", False)), correction)


def _aminmax(c: Call) -> Meaning:
    axes, keep = _axes(c), bool(c.get("keepdim", False))
    both = (Step(o.reduced(one, axes, keep), (0,), c.gives[0]) for one in ("min", "max"))
    return Steps(tuple(both), (1, 2))


def _sorts(c: Call) -> Meaning:
    keep = c.op != "kthvalue" or bool(c["keepdim"])
    return o.along(c.op, c.rank(), (c["dim"],), c.more(), keep)


def _matrix(c: Call) -> Meaning:
    """Every output reads all of its own matrix."""
    return Whole(tuple((a, a) for a in range(c.rank() - 2)), c.op, c.more())


def _solved(*names: str) -> Row:
    """A linear system: of the operands of these names. The first result is the solution; others are
    parts of the first operand's factorisation."""

    def row(c: Call) -> Meaning:
        shapes = [tuple(c[name].shape) for name in names]
        right = shapes[names.index("B" if "B" in names else "self")]
        flat = c.op.endswith("solve_ex") and right in ((right[-1],), shapes[0][:-1])
        own = [1 if name == "pivots" or (name == "B" and flat) else 2 for name in names]
        to, *rest = c.gives
        lead = to[: len(to) - (1 if flat else 2)]
        reads, word = [c.at(name) for name in names], c.op.lstrip("_").removesuffix("_ex")
        found = o.solved(word, c.count, reads, shapes, own, lead, [to], c.more("check_errors"))
        kept, last = range(len(shapes[0]) - 2), c.count + len(found.steps) - 1
        factors = (
            Whole(tuple((a, a) for a in kept), f"{word} {n}") for n in range(1, len(c.gives))
        )
        more = (Step(one, (reads[0],), to) for one, to in zip(factors, rest, strict=True))
        return Steps((*found.steps, *more), tuple(range(last, last + len(c.gives))))

    return row


def _triangular(c: Call) -> Meaning:
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


def _searched(c: Call) -> Meaning:
    """An output reads its own number, and all of one sorted sequence."""
    if not c.has("self") or len(c["sorted_sequence"].shape) != 1:
        return Unknown("every row is searched in a sequence of its own")
    shape = tuple(c["self"].shape)
    turned = Step(Passes((1, 0)), (0, 1), shape, (c["sorted_sequence"].shape,))
    whole = Whole(tuple((a, a) for a in range(len(shape))), "searchsorted", c.more())
    return Steps((turned, Step(whole, (2, 3), c.gives[0])))


# creation


def _made(c: Call) -> Meaning:
    value = c.get("fill_value", c.get("value", c.get("s")))
    if isinstance(value, Slot):
        return Same() if c.count == 1 else Unknown("its value is an array")
    value = int("ones" in c.op) if value is None else value
    kind = c.get("dtype") or (c["self"].dtype if c.has("self") else torch.get_default_dtype())
    return Made(value, dtype(kind))


# movement: what is said here is what sizes of 1 would leave open, and where writes meet


def _sliced(c: Call) -> Meaning:
    index = np.arange(c.shape()[c["dim"]])[c["start"] : c["end"] : c["step"]]
    return o.take(c["dim"], index)


def _splits(c: Call) -> Meaning:
    return o.split(c["dim"], c.gives)


def _padded(c: Call) -> Meaning:
    pad = c["pad"]  # begins with the last axis
    pairs = [(pad[n], pad[n + 1]) for n in range(0, len(pad), 2)]
    widths = ((0, 0),) * (c.rank() - len(pairs)) + tuple(reversed(pairs))
    return o.pad(widths, c["value"] or 0, c.dtype())


def _as_strided(c: Call) -> Meaning:
    """Asked of the operation in memory that has only what it reads: so of an operand with gaps, or
    in the midst of its memory, it isn't known."""
    slot = c["self"]
    dense = slot.strides is not None and math.prod(slot.shape) == 1 + sum(
        (n - 1) * step for n, step in zip(slot.shape, slot.strides, strict=True)
    )
    if not dense or c["storage_offset"] is not None:
        return Unknown("it reads memory by its own strides")
    return moved(c)


def _masked_fill(c: Call) -> Meaning:
    if c.has("value"):
        return Chooses((1, c.at("value"), 0))
    return Chooses((1, -1, 0), c["value"], c.dtype())


def _along(c: Call) -> np.ndarray:
    """Where ``scatter`` puts the element at each place of its index."""
    return placed.along(c.index("index"), c["dim"] % max(c.rank(), 1), c.shape())


def _at_index(c: Call) -> np.ndarray:
    """Where ``index_copy`` puts them: at an index along one axis."""
    index = (slice(None),) * (c["dim"] % max(c.rank(), 1)) + (c.index("index"),)
    return np.asarray(placed.flat(c.shape())[index])


def _at_indices(c: Call) -> np.ndarray:
    """Where ``index_put`` puts them."""
    index = tuple(slice(None) if one is None else c.value(one.number) for one in c["indices"])
    return np.asarray(placed.flat(c.shape())[index])


def _written(where: Callable[[Call], np.ndarray], *sources: str) -> Row:
    """Elements are replaced, by those of an array of one of these names or by a number."""

    def row(c: Call) -> Meaning:
        if c.get("reduce"):
            return Unknown("it combines what it writes")
        places = where(c)
        arrays = [name for name in sources if c.has(name)]
        several = np.unique(places).size != places.size
        if several and arrays and c[arrays[0]].shape:  # which of them is there then, chance decides
            return Unknown("several elements are written into one place")
        return moved(c, 0, *(c.at(name) for name in arrays))

    return row


def _added(where: Callable[[Call], np.ndarray], source: str) -> Row:
    """Elements are added at places; ``scatter_reduce`` has more ways to combine them."""

    def row(c: Call) -> Meaning:
        places = where(c)
        if "index" in c.attributes and places.shape != tuple(c[source].shape):
            return Unknown("it reads a part of what it adds")
        if c.get("alpha", 1) != 1:
            return Unknown("what it adds is multiplied before")
        if c.get("reduce", "sum") != "sum" or not c.get("include_self", True):
            return Unknown(f"it combines what it writes by {c['reduce']}")
        return placed.written(c, places, c.at(source), into=0, adds=True)

    return row


def _index_put(c: Call) -> Meaning:
    if c["accumulate"]:
        return _added(_at_indices, "values")(c)
    return _written(_at_indices, "values")(c)


def _embedding_bag(c: Call) -> Meaning:
    """Sums of rows of a table; the mean knows how many."""
    index, offsets = c.index("indices"), c.index("offsets")
    if c["per_sample_weights"] is not None:
        return Unknown("its rows have weights")
    mode = int(c["mode"])
    if mode not in (0, 1) or c["padding_idx"] not in (None, -1):
        return Unknown("it takes the largest, or leaves rows out")
    starts = offsets[:-1] if c["include_last_offset"] else offsets
    bags = np.searchsorted(starts, np.arange(len(index)), side="right") - 1
    width, count = c["weight"].shape[1], c.count
    places = (bags[:, None] * width + np.arange(width)).reshape(-1)
    steps = [
        Step(o.take(0, index), (c.at("weight"),), (len(index), width)),
        Step(Made(0.0, c.dtype(c.at("weight"))), (), c.gives[0]),
        Step(Accumulates(places, "embedding_bag"), (count + 1, count), c.gives[0]),
    ]
    if mode:  # each bag by its own number of rows
        lengths = np.maximum(np.bincount(bags, minlength=len(starts)), 1)[:, None]
        steps.append(Step(Holds(lengths), (), lengths.shape))
        steps.append(Step(Each("mean_of_bag"), (count + 2, count + 3), c.gives[0]))
    gives = [count + len(steps) - 1]
    for n, shape in enumerate(c.gives[1:]):
        whole = Whole((), f"embedding_bag {n}", (mode, len(starts)))
        steps.append(Step(whole, tuple(range(count)), shape))
        gives.append(count + len(steps) - 1)
    return Steps(tuple(steps), tuple(gives))


def _folded(c: Call) -> Meaning:
    """What overlaps is added: each place of a picture from the windows that have it, which the
    operation that cuts them out is asked for."""
    to = c.gives[0]
    if max(math.prod(c.shape()), math.prod(to)) > 1 << 22:
        return Unknown("it moves too many elements to find out where")
    plane = torch.arange(1, math.prod(to) + 1, dtype=torch.float64).reshape(to)
    words = [c[name] for name in ("kernel_size", "dilation", "padding", "stride")]
    at = torch.ops.aten.im2col(plane, *words).numpy().astype(np.int64) - 1  # 0: of the padding
    return placed.written(c, at, 0, adds=True)


def _interpolates(c: Call) -> Meaning:
    """Along each axis alone the operation is asked what it does to each element."""
    shape, to = c.shape(), c.gives[0]
    rank = len(shape) - 2
    if any(n * m > 1 << 22 for n, m in zip(shape[2:], to[2:], strict=True)):
        return Whole(((0, 0), (1, 1)), c.op, c.more())
    taps = []
    for axis in range(rank):
        size = shape[axis + 2]
        plane = torch.eye(size, dtype=torch.float64)
        lengths = [size if k == axis else n for k, n in enumerate(shape[2:])]
        plane = plane.reshape(size, 1, *(size if k == axis else 1 for k in range(rank)))
        wide = plane.expand(size, 1, *lengths)
        found = c.called.func(wide, *c.called.args[1:], **c.called.kwargs)
        line = found[(slice(None), 0, *(slice(None) if k == axis else 0 for k in range(rank)))]
        matrix = line.numpy().T
        most = int((matrix != 0).sum(1).max(initial=1))
        index = np.argsort(matrix == 0, axis=1, kind="stable")[:, :most]
        taps.append((axis + 2, index, np.take_along_axis(matrix, index, 1)))
    return Blends(tuple(taps))


def _fourier(c: Call) -> Meaning:
    return o.along(c.op, c.rank(), c["dim"], c.more())


def _halves(c: Call) -> Meaning:
    halves = (Step(o.function(word), (0,), c.shape()) for word in ("real", "imag"))
    return Steps((*halves, Step(o.stack(-1), (1, 2), c.gives[0])))


def _of_halves(c: Call) -> Meaning:
    halves = (Step(Picks(axis=-1, index=np.asarray(n)), (0,), c.gives[0]) for n in range(2))
    return Steps((*halves, Step(o.function("complex"), (1, 2), c.gives[0])))


def _gated(c: Call) -> Meaning:
    half = c.gives[0]
    halves = Step(o.split(c["dim"], (half, half)), (0,), half, (half,))
    return Steps((halves, Step(Each("glu"), (1, 2), half)))


def _rows(names: str, row: Row) -> dict[str, Row]:
    return dict.fromkeys(names.split(), row)


UPSAMPLED = """upsample_linear1d upsample_bilinear2d upsample_trilinear3d upsample_bicubic2d
 _upsample_bilinear2d_aa _upsample_bicubic2d_aa"""
NORMED = """native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training
 cudnn_batch_norm batch_norm _batch_norm_with_update _batch_norm_no_update"""
POOLED = """max_pool1d max_pool2d max_pool3d max_pool1d_with_indices max_pool2d_with_indices
 max_pool3d_with_indices mkldnn_max_pool2d avg_pool1d avg_pool2d avg_pool3d"""
ADAPTIVE = """adaptive_avg_pool1d adaptive_avg_pool2d _adaptive_avg_pool2d _adaptive_avg_pool3d
 adaptive_max_pool2d adaptive_max_pool3d"""

TABLE: dict[str, Row] = {
    **_rows("clone lift_fresh lift_fresh_copy detach alias contiguous positive", _same),
    **_rows("to_mkldnn _to_dense to_dense resolve_conj resolve_neg", _same),
    "copy": lambda c: o.cast(dtype(c["src"].dtype), dtype(c["self"].dtype)),
    "_to_copy": _same,
    **_rows("_conj _conj_copy conj _conj_physical conj_physical",
            lambda c: o.function("conj") if c["self"].dtype.is_complex else Same()),
    "_neg_view": lambda c: o.function("negative"),
    "view_as_real": _halves,
    "view_as_complex": _of_halves,
    # sums of products
    **_rows("mm bmm mv dot vdot", lambda c: o.matmul((c.rank(0), c.rank(1)))),
    **_rows("addmm baddbmm addmv", _product_added),
    "linear": lambda c: o.dense(bias=2 if c.count == 3 else None),
    **_rows("convolution _convolution", _convolution),
    **_rows("mkldnn_convolution thnn_conv2d _slow_conv2d_forward",
            lambda c: Unknown(f"{c.called.op} is not described in probe")),
    **_rows("_cdist_forward _euclidean_dist", _distances),
    # windows
    **_rows(POOLED, _pool),
    **_rows(ADAPTIVE, _adaptive),
    **_rows(UPSAMPLED, _interpolates),
    # an output reads its own channel's plane, and the grid of its row of the batch
    **_rows("grid_sampler_2d grid_sampler_3d _grid_sampler_2d_cpu_fallback",
            lambda c: Whole(((0, 0), (1, 1)), "grid_sample", c.more(), rows=(1,))),
    "affine_grid_generator":
        lambda c: Whole(((0, 0),), "affine_grid", (*c["size"][2:], c["align_corners"])),
    # norms, attention, recurrence
    **_rows("native_layer_norm layer_norm", _norm("layer_norm")),
    **_rows("rms_norm _fused_rms_norm", _norm("rms_norm")),
    "native_group_norm": _group_norm,
    **_rows(NORMED, _batch_norm),
    **_rows("_weight_norm _weight_norm_interface",
            lambda c: Whole(((c["dim"], c["dim"]),), "weight_norm")),
    **_rows("softmax _softmax _safe_softmax", lambda c: o.softmax((c["dim"],))),
    **_rows("log_softmax _log_softmax", lambda c: o.log_softmax((c["dim"],))),
    **_rows("_scaled_dot_product_flash_attention_for_cpu scaled_dot_product_attention", _attends),
    "_transformer_encoder_layer_fwd": _encoder_layer,
    "_native_multi_head_attention": _native_attention,
    "mkldnn_rnn_layer": _rnn_layer,
    "glu": _gated,
    "quantized::linear_dynamic": lambda c: Unknown(
        "its scale is taken from the whole batch, so no row of another batch must agree"
    ),
    # whole axes
    **_rows("sum mean amax amin prod logsumexp any all nansum linalg_vector_norm norm count_nonzero"
            " var_mean std_mean max min argmax argmin median", _reduces),
    **_rows("var std", _variance),
    "aminmax": _aminmax,
    **_rows("cumsum cumprod cummax cummin logcumsumexp",
            lambda c: o.cumulated(c.op, c["dim"]) if c.shape() else Each(c.op)),
    **_rows("sort topk argsort kthvalue", _sorts),
    **_rows("_fft_r2c _fft_c2c _fft_c2r", _fourier),
    **_rows("nonzero unique_consecutive _unique2 unique_dim",
            lambda c: Whole((), c.op, c.more())),
    "bucketize": lambda c: Whole(
        tuple((a, a) for a in range(c.rank())), "bucketize", c.more()
    ),
    "searchsorted": _searched,
    # matrices
    **_rows("linalg_inv_ex _linalg_det linalg_cholesky_ex _linalg_eigh _linalg_svd linalg_qr"
            " linalg_lu_factor_ex _linalg_slogdet linalg_eig cholesky", _matrix),
    **_rows("_linalg_solve_ex linalg_solve_ex", _solved("A", "B")),
    "linalg_lu_solve": _solved("LU", "pivots", "B"),
    "cholesky_solve": _solved("input2", "self"),
    "_cholesky_solve_helper": _solved("A", "self"),
    **_rows("linalg_solve_triangular triangular_solve", _triangular),
    # creation
    **_rows("zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full fill zero"
            " scalar_tensor", _made),
    **_rows("arange linspace eye hann_window hamming_window blackman_window",
            lambda c: Made((c.called.op, c.more()), "", places=True)),
    "repeat_interleave": lambda c: Made(
        (c.called.op, tuple(map(int, c.index("repeats")))), "", places=True
    ),
    # movement
    **_rows(MOVES, moved),
    **_rows("view _unsafe_view reshape _reshape_alias unsqueeze flatten", _viewed),
    "squeeze": _squeezed,
    "expand": lambda c: o.expand(c.shape(), c.gives[0]),
    "permute": lambda c: o.transpose(c["dims"]),
    **_rows("transpose t numpy_T movedim swapaxes", _transposed),
    "slice": _sliced,
    "select": lambda c: o.take(c["dim"], c["index"] % c.shape()[c["dim"]]),
    "index_select": lambda c: o.take(c["dim"], c.index("index")),
    "embedding": lambda c: o.take(0, c.index("indices")),
    **_rows("split split_with_sizes unsafe_split chunk unsafe_split_with_sizes unsafe_chunk"
            " tensor_split", _splits),
    "unbind": lambda c: o.unstack(c["dim"], len(c.gives)),
    **_rows("cat concat", lambda c: o.concat(c["dim"])),
    "stack": lambda c: o.stack(c["dim"]),
    **_rows("constant_pad_nd pad", _padded),
    "as_strided": _as_strided,
    "where": lambda c: o.where() if c.count == 3 else Each("where", "", c.more()),
    "masked_fill": _masked_fill,
    **_rows("slice_scatter select_scatter", lambda c: moved(c, 0, c.at("src"))),
    "masked_scatter": lambda c: moved(c, 0, c.at("source")),
    "scatter": _written(_along, "src", "value"),
    "index_copy": _written(_at_index, "source"),
    "index_fill": _written(_at_index, "value"),
    **_rows("index_put _unsafe_index_put", _index_put),
    **_rows("scatter_add scatter_reduce", _added(_along, "src")),
    "index_add": _added(_at_index, "source"),
    **_rows("embedding_bag _embedding_bag _embedding_bag_forward_only", _embedding_bag),
    "col2im": _folded,
}  # fmt: skip
"""What each operation computes, by its name without ``_`` behind it. Besides, functions of elements
that PyTorch tags as such."""
