"""What ATen's operations compute that write or add into places which an index or a mask names, and
those whose outputs read whole matrices, or pairs of rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from probe.recorders.torch_calls import Call, row
from probe.recorders.torch_tensors import Slot
from probe.semantics import (
    Accumulates,
    Each,
    Holds,
    Made,
    Meaning,
    Moves,
    Passes,
    Picks,
    Reduces,
    Reshapes,
    Scans,
    Splits,
    Step,
    Steps,
    Unknown,
    Whole,
    operations,
)

MOST = 1 << 22
"""Elements of an array up to which an operation is asked where it takes each of them from."""


def _dtype(call: Call) -> str:
    return str(call["self"].dtype).removeprefix("torch.")


def _scattered(index: np.ndarray, axis: int) -> tuple[np.ndarray, ...]:
    """Returns where ``scatter`` puts the element at each place of its index."""
    grid = list[np.ndarray](np.indices(index.shape))
    return tuple(index if n == axis else one for n, one in enumerate(grid))


def _places(shape: tuple[int, ...], index: tuple[np.ndarray | slice, ...]) -> np.ndarray:
    """Returns flat places in an array of ``shape`` of what an index names."""
    return np.arange(int(np.prod(shape, dtype=int))).reshape(shape)[index]


def _written(call: Call, index: tuple[np.ndarray | slice, ...], source: str) -> Meaning:
    """Elements at an index are replaced: by an array of this name, or by a number."""
    places = _places(call["self"].shape, index)
    value = call[source]
    if isinstance(value, Slot) and value.number is None:
        return Unknown("what it writes is not read")
    if np.unique(places).size != places.size and (isinstance(value, Slot) and value.shape):
        return Unknown("several elements are written into one place")

    def move(one: np.ndarray, new: np.ndarray) -> np.ndarray:
        found = np.array(one)
        if new.ndim == places.ndim and new.shape != places.shape and source == "src":
            new = new[tuple(slice(n) for n in places.shape)]  # scatter reads its beginning
        found[index] = new
        return found

    first = call["self"].number
    if isinstance(value, Slot):
        step = Step(Moves(move), (first, value.number or 0), call.shapes[0])
        return Steps((step,))
    count = len(call.reads)
    made = Step(Made(value, _dtype(call)), (), ())
    return Steps((made, Step(Moves(move), (first, count), call.shapes[0])))


@row("scatter")
def _scatter(call: Call) -> Meaning:
    index = call.content("index")
    if index is None or call.bound().get("reduce"):
        return Unknown(call.lacking("index") if index is None else "it combines what it writes")
    return _written(
        call, _scattered(index, _axis(call)), "src" if "src" in call.bound() else "value"
    )


def _axis(call: Call) -> int:
    return int(call["dim"]) % max(len(call["self"].shape), 1)


@row("index_copy", "index_fill")
def _index_copy(call: Call) -> Meaning:
    index = call.content("index")
    if index is None:
        return Unknown(call.lacking("index"))
    at = (slice(None),) * _axis(call) + (index,)
    return _written(call, at, "source" if call.name == "index_copy" else "value")


@row("index_put", "_unsafe_index_put")
def _index_put(call: Call) -> Meaning:
    indices = call.contents("indices")
    if indices is None:
        return Unknown(call.lacking("indices"))
    index = tuple(slice(None) if one is None else one for one in indices)
    if not call["accumulate"]:
        return _written(call, index, "values")
    return _added(call, _places(call["self"].shape, index), "values")


@row("scatter_add")
def _scatter_add(call: Call) -> Meaning:
    index = call.content("index")
    if index is None:
        return Unknown(call.lacking("index"))
    places = _places(call["self"].shape, _scattered(index, _axis(call)))
    if index.shape != call["src"].shape:
        return Unknown("it reads a part of what it adds")
    return _added(call, places, "src")


@row("index_add")
def _index_add(call: Call) -> Meaning:
    index = call.content("index")
    if index is None or call["alpha"] != 1:
        return Unknown(
            call.lacking("index") if index is None else "what it adds is multiplied before"
        )
    places = _places(call["self"].shape, (slice(None),) * _axis(call) + (index,))
    return _added(call, places, "source")


def _added(call: Call, places: np.ndarray, source: str) -> Meaning:
    """Elements of an array are added at places; it may broadcast to them."""
    terms = call[source]
    if terms.number is None:
        return Unknown("what it adds is not read")
    first, count, shape = call["self"].number, len(call.reads), places.shape
    wide = Step(Moves(lambda one: np.broadcast_to(one, shape)), (terms.number,), shape)
    add = Step(Accumulates(places.reshape(-1)), (first, count), call.shapes[0])
    return Steps((wide, add))


@row("scatter_reduce")
def _scatter_reduced(call: Call) -> Meaning:
    """Sums as of ``scatter_add``; of the other reductions what a line along the axis reads."""
    index = call.content("index")
    if index is None:
        return Unknown(call.lacking("index"))
    if index.shape != call["src"].shape:
        return Unknown("it reads a part of what it adds")
    if call["reduce"] != "sum" or not call["include_self"]:
        return Unknown(f"it combines what it writes by {call['reduce']}")
    places = _places(call["self"].shape, _scattered(index, _axis(call)))
    return _added(call, places, "src")


@row("nonzero", "unique_consecutive", "_unique2", "unique_dim")
def _nonzero(call: Call) -> Meaning:
    return Whole((), call.name, call.numbers())


@row("aminmax")
def _aminmax(call: Call) -> Meaning:
    dim, keep = call.bound().get("dim"), bool(call.bound().get("keepdim", False))
    axes = tuple(range(len(call["self"].shape))) if dim is None else (dim,)
    steps = (
        Step(operations.reduced(word, axes, keep), (0,), call.shapes[0])
        for word in ("amin", "amax")
    )
    return Steps(tuple(steps), (1, 2))


@row("masked_select")
def _masked_select(call: Call) -> Meaning:
    mask = call.content("mask")
    if mask is None:
        return Unknown(call.lacking("mask"))
    shape = np.broadcast_shapes(call["self"].shape, mask.shape)
    where = np.broadcast_to(mask.astype(bool), shape)
    return Moves(lambda one, *_: np.broadcast_to(one, shape)[where])


@row("masked_scatter")
def _masked_scatter(call: Call) -> Meaning:
    mask = call.content("mask")
    if mask is None:
        return Unknown(call.lacking("mask"))
    shape = call.shapes[0]
    where = np.broadcast_to(mask.astype(bool), shape)

    def move(one: np.ndarray, _: np.ndarray, source: np.ndarray) -> np.ndarray:
        found = np.array(np.broadcast_to(one, shape))
        found[where] = source.reshape(-1)[: int(where.sum())]
        return found

    return Moves(move)


@row("take")
def _take(call: Call) -> Meaning:
    index = call.content("index")
    if index is None:
        return Unknown(call.lacking("index"))
    return Moves(lambda one, *_: one.reshape(-1)[index])


@row("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only")
def _embedding_bag(call: Call) -> Meaning:
    """Sums of rows of a table; the mean knows how many."""
    index, offsets = call.content("indices"), call.content("offsets")
    if index is None or offsets is None or call["per_sample_weights"] is not None:
        return Unknown(
            call.lacking("indices") if index is None or offsets is None else "its rows have weights"
        )
    mode = int(call["mode"])
    if mode not in (0, 1) or call["padding_idx"] not in (None, -1):
        return Unknown("it takes the largest, or leaves rows out")
    starts = offsets[:-1] if call["include_last_offset"] else offsets
    bags = np.searchsorted(starts, np.arange(len(index)), side="right") - 1
    width, count = call["weight"].shape[1], len(call.reads)
    places = bags[:, None] * width + np.arange(width)
    dtype = str(call["weight"].dtype).removeprefix("torch.")
    steps = [
        Step(Picks(axis=0, index=index), (call["weight"].number,), (len(index), width)),
        Step(Made(0.0, dtype), (), call.shapes[0]),
        Step(Accumulates(places.reshape(-1), "embedding_bag"), (count + 1, count), call.shapes[0]),
    ]
    if mode:  # each bag by its own number of rows
        lengths = np.maximum(np.bincount(bags, minlength=len(starts)), 1)[:, None]
        steps.append(Step(Holds(lengths), (), lengths.shape))
        steps.append(Step(Each("mean_of_bag"), (count + 2, count + 3), call.shapes[0]))
    gives = [count + len(steps) - 1]
    for n, shape in enumerate(call.shapes[1:]):
        whole = Whole((), f"embedding_bag {n}", (mode, len(starts)))
        steps.append(Step(whole, tuple(range(count)), shape))
        gives.append(count + len(steps) - 1)
    return Steps(tuple(steps), tuple(gives))


def _taken(shape: tuple[int, ...], run: Callable[[torch.Tensor], torch.Tensor]) -> np.ndarray:
    """Returns where an operation takes each element from: 1 + its place, 0 for a zero."""
    size = int(np.prod(shape, dtype=int))
    plane = torch.arange(1, size + 1, dtype=torch.float64).reshape(shape)
    return np.asarray(run(plane).numpy()).astype(np.int64)


@row("im2col", "pixel_unshuffle", "channel_shuffle", "native_channel_shuffle", "diagonal_copy")
def _asked(call: Call) -> Meaning:
    """The operation itself is asked where it takes each element from."""
    shape = call["self"].shape
    if int(np.prod(call.shapes[0], dtype=int)) > MOST:
        return Unknown("it moves too many elements to find out where")
    index = _taken(shape, lambda plane: call.func(plane, *call.args[1:], **call.kwargs))

    def move(one: np.ndarray) -> np.ndarray:
        return np.concatenate([np.zeros(1, one.dtype), one.reshape(-1)])[index]

    return Moves(move)


@row("col2im")
def _folded(call: Call) -> Meaning:
    """What overlaps is added: each place of a picture from the windows that have it."""
    batched, to = len(call["self"].shape) == 3, call.shapes[0]
    if int(np.prod(call["self"].shape, dtype=int)) > MOST:
        return Unknown("it moves too many elements to find out where")
    words = [call[name] for name in ("kernel_size", "dilation", "padding", "stride")]
    plane = to if batched else (1, *to)
    at = _taken(plane, lambda one: torch.ops.aten.im2col(one, *words)) - 1
    zeros = Step(Made(0.0, _dtype(call)), (), to)
    return Steps((zeros, Step(Accumulates(at.reshape(-1)), (1, 0), to)))


@row("grid_sampler_2d", "grid_sampler_3d", "_grid_sampler_2d_cpu_fallback")
def _grid_sampled(call: Call) -> Meaning:
    """An output reads its own channel's plane, and the grid of its row of the batch."""
    return Whole(((0, 0), (1, 1)), "grid_sample", call.numbers(), rows=(1,))


@row("diagonal")
def _diagonal(call: Call) -> Meaning:
    offset, first, second = call["offset"], call["dim1"], call["dim2"]
    return Moves(lambda a: np.diagonal(a, offset, first, second))


@row("_cdist_forward", "_euclidean_dist")
def _distances(call: Call) -> Meaning:
    """Returns a norm of the differences of every pair of rows, however it is computed: of many rows
    PyTorch takes the Euclidean one from a product of matrices."""
    power = float(call.bound().get("p", 2.0))
    one, two = call["x1"].shape, call["x2"].shape
    lead = np.broadcast_shapes(one[:-2], two[:-2])
    rows, others, size = one[-2], two[-2], one[-1]
    steps = (
        Step(Reshapes(), (0,), (*one[:-1], 1, size)),
        Step(Reshapes(), (1,), (*two[:-2], 1, others, size)),
        Step(Each("difference"), (2, 3), (*lead, rows, others, size)),
        Step(Reduces((-1,), "cdist", numbers=(power,)), (4,), call.shapes[0]),
    )
    return Steps(steps)


@row("affine_grid_generator")
def _affine_grid(call: Call) -> Meaning:
    """An output reads the matrix of its row of the batch."""
    numbers = (*call["size"][2:], call["align_corners"])
    return Whole(((0, 0),), "affine_grid", numbers)


@row("bucketize")
def _bucket(call: Call) -> Meaning:
    axes = range(len(call["self"].shape))
    return Whole(tuple((a, a) for a in axes), "bucketize", call.numbers())


@row("searchsorted")
def _searched(call: Call) -> Meaning:
    """An output reads its own number, and all of one sorted sequence."""
    if not isinstance(call["self"], Slot) or len(call["sorted_sequence"].shape) != 1:
        return Unknown("every row is searched in a sequence of its own")
    rank = len(call["self"].shape)
    numbers = call.numbers()
    first = Step(Passes((1, 0)), (0, 1), call["self"].shape, (call["sorted_sequence"].shape,))
    whole = Whole(tuple((a, a) for a in range(rank)), "searchsorted", numbers)
    return Steps((first, Step(whole, (2, 3), call.shapes[0])))


@row("glu")
def _gated(call: Call) -> Meaning:
    half = call.shapes[0]
    axis = call["dim"] % len(half)
    halves = Splits(axis, (half[axis], half[axis]))
    return Steps((Step(halves, (0,), half, (half,)), Step(Each("glu"), (1, 2), half)))


@row(
    *("linalg_inv_ex", "_linalg_det", "linalg_cholesky_ex", "_linalg_eigh", "_linalg_svd"),
    *("linalg_qr", "linalg_lu_factor_ex", "_linalg_slogdet", "linalg_eig", "cholesky"),
)
def _matrix(call: Call) -> Meaning:
    """Every output reads all of its own matrix."""
    lead = len(call["A"].shape if "A" in call.bound() else call["self"].shape) - 2
    return Whole(tuple((a, a) for a in range(lead)), call.name, call.numbers())


@row("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp")
def _scans(call: Call) -> Meaning:
    return Scans(call["dim"], call.name) if call["self"].shape else Each(call.name)


@row("sort", "topk", "argsort", "kthvalue")
def _sorts(call: Call) -> Meaning:
    rank = len(call["self"].shape)
    dim = call["dim"] % max(rank, 1)
    gone = call.name == "kthvalue" and not call["keepdim"]
    kept = tuple((n, n - (gone and n > dim)) for n in range(rank) if n != dim)
    return Whole(kept, call.name, call.numbers())
