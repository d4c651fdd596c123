"""What JAX's primitives compute: a table by name, in the words of ``probe.semantics``.

A row is a function of an :class:`Equation`, the primitive with its parameters and shapes. What has
no row is ``Unknown``. Movements whose places depend on indices find them by moving positions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from probe.recorders.jax_solvers import SOLVERS
from probe.semantics import (
    Accumulates,
    Broadcasts,
    Chooses,
    Contracts,
    Convolution,
    Each,
    Joins,
    Made,
    Meaning,
    Moves,
    Pads,
    Passes,
    Picks,
    Reshapes,
    Same,
    Scans,
    Splits,
    Step,
    Steps,
    Turns,
    Unknown,
    Vanishes,
    Whole,
    Windows,
    operations,
)
from probe.semantics.labels import tag

LETTERS = "abcdefghijklmnopqrstuvwxyz"
MOST_INDICES = 1 << 20
"""Elements up to which the indices of a gather are kept."""


@dataclass(frozen=True)
class Equation:
    """A primitive with its parameters; ``reads`` and ``gives``: (shape, dtype's name) of arrays.

    ``values``: gives the content of an input by number, None where it isn't at hand.
    """

    primitive: Any
    params: Mapping[str, Any]
    reads: Sequence[tuple[tuple[int, ...], str]]
    gives: Sequence[tuple[tuple[int, ...], str]]
    values: Callable[[int], np.ndarray | None] = lambda _: None

    def shape(self, number: int = 0) -> tuple[int, ...]:
        """Returns the shape of an input."""
        return self.reads[number][0]


def meaning(one: Equation) -> Meaning:
    """Returns what an equation computes; ``Unknown`` where no row of the table says it."""
    row = ROWS.get(one.primitive.name)
    if row is None:
        return Unknown(f"{one.primitive.name} is not described in probe")
    try:
        return row(one)
    except (KeyError, IndexError, ValueError, TypeError):
        return Unknown(f"{one.primitive.name} has parameters that are not described in probe")


def _product(one: Equation) -> Meaning:
    (lhs_sum, rhs_sum), (lhs_batch, rhs_batch) = one.params["dimension_numbers"]
    ranks = len(one.shape(0)), len(one.shape(1))
    letters = iter(LETTERS)
    lhs, rhs = [""] * ranks[0], [""] * ranks[1]
    for pairs in ((lhs_batch, rhs_batch), (lhs_sum, rhs_sum)):
        for left, right in zip(*pairs, strict=True):
            lhs[left] = rhs[right] = next(letters)
    free = []
    for text in (lhs, rhs):
        for axis, letter in enumerate(text):
            if not letter:
                text[axis] = next(letters)
                free.append(text[axis])
    out = "".join([lhs[axis] for axis in lhs_batch] + free)
    word = "product"
    if one.reads[0][1] != one.gives[0][1]:
        word = f"product in {one.gives[0][1]}"
    return Contracts(f"{''.join(lhs)},{''.join(rhs)}->{out}", word=word)


def _convolution(one: Equation) -> Meaning:
    given, numbers = one.params, one.params["dimension_numbers"]
    lhs, rhs, out = numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec
    apart, plain = tuple(given["lhs_dilation"]), tuple(lhs) == tuple(out)
    stride, dilation = tuple(given["window_strides"]), tuple(given["rhs_dilation"])
    kernel = tuple(one.shape(1)[axis] for axis in rhs[2:])
    padding = tuple((int(low), int(high)) for low, high in given["padding"])
    transposed = set(apart) != {1} and set(stride) <= {1}
    batches, size = given["batch_group_count"], len(kernel)
    if transposed and plain and batches == 1:  # taps in the opposite order
        padding = tuple(((kernel[k] - 1) * dilation[k] - padding[k][0],) * 2 for k in range(size))
        stride = apart
    windows = Windows(
        *(tuple(out[2:]), out[1], kernel, stride, dilation, padding),
        kind="transposed" if transposed and plain and batches == 1 else "convolution",
        groups=given["feature_group_count"],
        weights=(*rhs[2:], rhs[1], rhs[0]),
        word="convolution" if not transposed else "transposed convolution",
        flipped=transposed,
    )
    if batches == 1 and plain and (transposed or set(apart) <= {1}):
        return windows
    turned = [0] * len(out)
    for ours, theirs in zip(out, lhs, strict=True):
        turned[ours] = theirs
    return Convolution(windows, tuple(turned), apart, batches)


def _pool(kind: str) -> Callable[[Equation], Meaning]:
    def row(one: Equation) -> Meaning:
        given = one.params
        if set(given.get("base_dilation", (1,))) - {1}:
            return Unknown("a pool with base_dilation")
        sizes = tuple(given["window_dimensions"])
        still = all(
            given["window_strides"][k] == 1 and tuple(given["padding"][k]) == (0, 0)
            for k, size in enumerate(sizes)
            if size == 1
        )
        spatial = tuple(k for k, size in enumerate(sizes) if size > 1)
        rest = [k for k in range(len(sizes)) if k not in spatial]
        if not still or not rest:
            return Unknown("a pool over all axes")
        return Windows(
            *(spatial, rest[-1], tuple(sizes[k] for k in spatial)),
            tuple(given["window_strides"][k] for k in spatial),
            tuple(given["window_dilation"][k] for k in spatial),
            tuple((int(given["padding"][k][0]), int(given["padding"][k][1])) for k in spatial),
            kind=kind,
            reads=(0,),
            word=f"{kind} pool",
        )

    return row


def _each(word: str = "", *names: str) -> Callable[[Equation], Meaning]:
    """Returns a function of elements; ``names``: parameters, left out where they are None."""

    def row(one: Equation) -> Meaning:
        numbers: dict[str, Any] = {
            n: repr(one.params[n]) for n in names if one.params.get(n) is not None
        }
        return operations.function(word or one.primitive.name, **numbers)

    return row


def _rounds(one: Equation) -> Meaning:
    even = one.params["rounding_method"] == jax.lax.RoundingMethod.TO_NEAREST_EVEN
    return operations.function("round" if even else "round_away")


def _exp(one: Equation) -> Meaning:
    accuracy = one.params.get("accuracy")
    return Vanishes("exp", numbers=() if accuracy is None else (repr(accuracy),))


def _clamp(one: Equation) -> Meaning:
    """The bounds come first and last; numbers, as a rule."""
    bounds = [one.values(number) for number in (0, 2)]
    if all(value is not None and value.size == 1 for value in bounds):
        low, high = (float(value.reshape(-1)[0]) for value in bounds if value is not None)
        return operations.clip(low, high, (1,))
    return Each("clamp", reads=(1, 0, 2))


def _maximum(one: Equation) -> Meaning:
    """``relu`` where the other input is zero."""
    for number in (0, 1):
        value = one.values(number)
        if value is not None and value.size and not value.any() and len(one.reads) == 2:
            return operations.function("relu", (1 - number,))
    return operations.function("maximum")


def _integer_power(one: Equation) -> Meaning:
    return operations.power(one.params["y"])


def _cast(one: Equation) -> Meaning:
    return operations.cast(one.reads[0][1], one.gives[0][1])


def _select(one: Equation) -> Meaning:
    if len(one.reads) != 3 or one.reads[0][1] != "bool":
        return Each("select_n")
    if one.shape(0) != one.shape(1):
        return Unknown("one condition for whole arrays") if one.shape(0) else Chooses((0, 2, 1))
    return Chooses((0, 2, 1))


def _reduction(word: str, places: bool = False) -> Callable[[Equation], Meaning]:
    return lambda one: operations.reduced(word, one.params["axes"], places=places)


def _scan(word: str) -> Callable[[Equation], Meaning]:
    return lambda one: Scans(one.params["axis"], word, one.params["reverse"])


def _tile(one: Equation) -> Meaning:
    times = tuple(one.params["reps"])
    kept = tuple(axis for axis, n in enumerate(times) if n == 1 and len(times) == len(one.shape()))
    return Moves(lambda array: np.tile(array, times), kept)


def _pad(one: Equation) -> Meaning:
    config, value = one.params["padding_config"], one.values(1)
    if all(not inside for _, _, inside in config) and value is not None:
        widths = tuple((int(low), int(high)) for low, high, _ in config)
        number = complex(value) if value.dtype.kind == "c" else float(value)
        return Pads(widths, number, one.reads[0][1])
    return Moves(lambda array, value: padded(array, value, config))


def padded(array: np.ndarray, value: np.ndarray, config: Any) -> np.ndarray:
    """``lax.pad`` of any array: (before, after, between) an axis."""
    for axis, (low, high, inside) in enumerate(config):
        size = array.shape[axis]
        wide = size + (size - 1) * inside if size else 0
        shape = list(array.shape)
        shape[axis] = wide + max(low, 0) + max(high, 0)
        found = np.full(shape, value, array.dtype)
        at = [slice(None)] * array.ndim
        at[axis] = slice(max(low, 0), max(low, 0) + wide, inside + 1)
        found[tuple(at)] = array
        at[axis] = slice(max(-low, 0), shape[axis] - max(-high, 0))
        array = found[tuple(at)]
    return array


def _slice(one: Equation) -> Meaning:
    steps = one.params["strides"] or (1,) * len(one.shape())
    limits = zip(one.params["start_indices"], one.params["limit_indices"], steps, strict=True)
    at = tuple(slice(*three) for three in limits)
    kept = tuple(k for k, n in enumerate(one.shape()) if at[k].indices(n) == (0, n, 1))
    at = tuple(slice(None) if k in kept else part for k, part in enumerate(at))
    return Moves(lambda array: array[at], kept)


def _reverse(one: Equation) -> Meaning:
    axes = tuple(one.params["dimensions"])
    kept = tuple(k for k in range(len(one.shape())) if k not in axes)
    return Moves(lambda array: np.flip(array, axes), kept)


def _concatenate(one: Equation) -> Meaning:
    return Joins(one.params["dimension"])


def _unstack(one: Equation) -> Meaning:
    axis = one.params["axis"]
    return Splits(axis, (1,) * one.shape()[axis], drop=True)


def _split(one: Equation) -> Meaning:
    return Splits(one.params["axis"], tuple(one.params["sizes"]))


def _squeeze(one: Equation) -> Meaning:
    """Axes of size 1 go, one after the other; which they are is known, as of no reshape."""
    shape, steps = list(one.shape()), []
    for number, axis in enumerate(sorted(one.params["dimensions"], reverse=True)):
        del shape[axis]
        steps.append(Step(Picks(axis=axis, index=np.asarray(0)), (number,), tuple(shape)))
    if len(steps) == 1:
        return steps[0].meaning
    return Steps(tuple(steps)) if steps else Same()


def _broadcast(one: Equation) -> Meaning:
    return Broadcasts(tuple(one.params["broadcast_dimensions"]))


def _iota(one: Equation) -> Meaning:
    return Made(("iota", one.params["dimension"]), one.gives[0][1], places=True)


def _gather(one: Equation) -> Meaning:
    """Returns rows of a table, where that is all; else whatever moves."""
    numbers, index = one.params["dimension_numbers"], one.values(1)
    shape, rank = one.shape(), len(one.gives[0][0])
    rows = (
        tuple(numbers.collapsed_slice_dims) == tuple(numbers.start_index_map) == (0,)
        and not numbers.operand_batching_dims
        and tuple(one.params["slice_sizes"]) == (1, *shape[1:])
        and tuple(numbers.offset_dims) == tuple(range(rank - len(shape) + 1, rank))
    )
    if rows and index is not None and index.size and 0 <= index.min() <= index.max() < shape[0]:
        return Picks(axis=0, index=np.array(index[..., 0]))
    return _moved(0)(one)


def _lacking(one: Equation) -> str:
    """Returns why the indices of an operation are not known, with their number where it is that."""
    most = max(int(np.prod(shape, dtype=int)) for shape, _ in one.reads)
    if most > MOST_INDICES:
        return f"it reads {most:,} elements, and indices of at most {MOST_INDICES:,} are known"
    return f"the indices of {one.primitive.name} are not at hand"


def _moved(*moved: int) -> Callable[[Equation], Meaning]:
    """Returns a movement whose other inputs are indices; they are kept."""

    def row(one: Equation) -> Meaning:
        kept: dict[int, np.ndarray] = {}
        for number, (shape, _) in enumerate(one.reads):
            if number in moved:
                continue
            value = one.values(number) if np.prod(shape, dtype=int) <= MOST_INDICES else None
            if value is None:
                return Unknown(_lacking(one))
            kept[number] = np.array(value)

        return Moves(_Found(one, kept, moved))

    return row


@dataclass(frozen=True)
class _Found:
    """A movement by indices, found by moving positions instead of elements."""

    one: Equation
    kept: Mapping[int, np.ndarray]
    moved: tuple[int, ...]

    def __call__(self, *arrays: np.ndarray) -> np.ndarray:
        start, positions = 1, dict(self.kept)
        for number in self.moved:
            size = int(np.prod(self.one.shape(number), dtype=int))
            index = np.arange(start, start + size, dtype=np.int32)
            positions[number] = index.reshape(self.one.shape(number))
            start += size
        params = dict(self.one.params)
        if "fill_value" in params:
            params["fill_value"] = 0
        given = [jax.numpy.asarray(positions[n]) for n in range(len(positions))]
        found = np.asarray(self.one.primitive.bind(*given, **params))
        every = np.concatenate([arrays[n].reshape(-1) for n in self.moved])
        inside = (found > 0) & (found < start)
        outside = every.dtype.type(tag("outside")) if every.dtype.kind == "u" else 0
        return np.where(inside, every[np.where(inside, found, 1) - 1], outside)


def _sort(one: Equation) -> Meaning:
    axis = one.params["dimension"] % len(one.shape())
    kept = tuple((k, k) for k in range(len(one.shape())) if k != axis)
    if len(one.reads) == 1:
        return Whole(kept, "sort")
    count, shape = len(one.reads), one.shape()  # several arrays by the first ones, as argsort does
    each = Step(Each("sorted together"), tuple(range(count)), shape)
    whole = Whole(kept, "sort", (one.params["num_keys"],))
    every = Step(whole, (count,), shape, (shape,) * (count - 1))
    return Steps((each, every), tuple(range(count + 1, 2 * count + 1)))


def _scatter_add(one: Equation) -> Meaning:
    """Every element of the updates goes to a place of the first input: a gather tells which."""
    numbers, (shape, updates) = one.params["dimension_numbers"], (one.shape(0), one.shape(2))
    small = max(np.prod(n, dtype=int) for n, _ in one.reads) <= MOST_INDICES
    index = one.values(1) if small else None
    if index is None:
        return Unknown(_lacking(one))
    gone = {*numbers.inserted_window_dims, *numbers.operand_batching_dims}
    windows = iter(updates[axis] for axis in numbers.update_window_dims)
    dimensions = jax.lax.GatherDimensionNumbers(
        *(numbers.update_window_dims, numbers.inserted_window_dims),
        *(numbers.scatter_dims_to_operand_dims, numbers.operand_batching_dims),
        numbers.scatter_indices_batching_dims,
    )
    places = jax.lax.gather(
        np.arange(np.prod(shape, dtype=int), dtype=np.int32).reshape(shape),
        *(np.array(index), dimensions),
        tuple(1 if axis in gone else next(windows) for axis in range(len(shape))),
        mode=one.params["mode"],
        fill_value=-1,
    )
    word = "accumulate" if one.primitive.name == "scatter-add" else one.primitive.name
    added = Accumulates(np.asarray(places).reshape(-1), word)
    return Steps((Step(added, (0, 2), shape),))


def _lines(count: int, *names: str) -> Callable[[Equation], Meaning]:
    """Works on the last ``count`` axes, each stack apart."""

    def row(one: Equation) -> Meaning:
        if len(one.reads) > 1:
            return Unknown(f"{one.primitive.name} of several arrays")
        kept = tuple((k, k) for k in range(len(one.shape()) - count))
        return Whole(kept, numbers=tuple(repr(one.params[name]) for name in names))

    return row


def _several(one: Equation) -> Meaning:
    return Passes(tuple(range(len(one.gives))))


EACH = """sign tan asin atan sinh asinh atanh expm1 log1p sqrt cbrt square erf erf_inv
 floor ceil real imag conj exp2 cos acos acosh cosh rem atan2 erfc lgamma digamma is_finite eq ne lt
 le gt ge and or not xor shift_left shift_right_logical shift_right_arithmetic nextafter
 population_count clz complex igamma igammac eq_to le_to lt_to bessel_i0e bessel_i1e
 regularized_incomplete_beta polygamma sub neg abs mul pow""".split()
ACCURATE = """log sin tanh logistic rsqrt""".split()
"""Functions with a parameter for how accurate they are."""

SAME = """copy copy_p stop_gradient sharding_constraint name reshard pvary stage""".split()

ROWS: dict[str, Callable[[Equation], Meaning]] = {
    **{name: _each() for name in EACH},
    **{name: _each(name, "accuracy") for name in ACCURATE},
    **{name: lambda one: Same() for name in SAME},
    **dict.fromkeys(("add", "add_any"), _each("add")),
    # XLA multiplies by the reciprocal where it knows the divisor
    "div": lambda one: operations.approximate("divide"),
    "max": _maximum,
    "min": lambda one: operations.function("minimum"),
    "exp": _exp,
    "clamp": _clamp,
    "round": _rounds,
    "reduce_precision": _each("reduce_precision", "exponent_bits", "mantissa_bits"),
    "bitcast_convert_type": lambda one: operations.bits(
        one.reads[0][1], one.gives[0][1], one.reads[0][0] == one.gives[0][0]
    ),
    "integer_pow": _integer_power,
    "convert_element_type": _cast,
    "select_n": _select,
    "dot_general": _product,
    "conv_general_dilated": _convolution,
    "reduce_sum": _reduction("sum"),
    "reduce_max": _reduction("max"),
    "reduce_min": _reduction("min"),
    "reduce_prod": _reduction("prod"),
    "reduce_and": _reduction("all"),
    "reduce_or": _reduction("any"),
    "argmax": _reduction("argmax", places=True),
    "argmin": _reduction("argmin", places=True),
    "reduce_window_sum": _pool("sum"),
    "reduce_window_max": _pool("max"),
    "cumsum": _scan("cumsum"),
    "cumprod": _scan("cumprod"),
    "cummax": _scan("cummax"),
    "cummin": _scan("cummin"),
    "cumlogsumexp": _scan("cumlogsumexp"),
    "broadcast_in_dim": _broadcast,
    "reshape": lambda one: Reshapes() if not one.params.get("dimensions") else Unknown("reshape"),
    "squeeze": _squeeze,
    "expand_dims": lambda one: Reshapes(),
    "transpose": lambda one: Turns(tuple(one.params["permutation"])),
    "slice": _slice,
    "rev": _reverse,
    "concatenate": _concatenate,
    "split": _split,
    "stack": lambda one: Joins(one.params["axis"], stacked=True),
    "unstack": _unstack,
    "pad": _pad,
    "tile": _tile,
    "iota": _iota,
    "dynamic_slice": _moved(0),
    "dynamic_update_slice": _moved(0, 1),
    "gather": _gather,
    "scatter": _moved(0, 2),
    "scatter-add": _scatter_add,
    "scatter-mul": _scatter_add,
    "scatter-min": _scatter_add,
    "scatter-max": _scatter_add,
    "sort": _sort,
    "top_k": lambda one: operations.top_k(len(one.shape()), one.params["k"]),
    "cholesky": _lines(2, "symmetrize_input"),
    "lu": _lines(2),
    "lu_pivots_to_permutation": _lines(1),
    "eig": _lines(2),
    "schur": _lines(2),
    "hessenberg": _lines(2),
    "qr": _lines(2),
    "eigh": _lines(2),
    "svd": _lines(2),
    "fft": lambda one: _lines(len(one.params["fft_lengths"]), "fft_type", "fft_lengths")(one),
    **SOLVERS,
    "device_put": _several,
    "optimization_barrier": _several,
}
"""What each primitive computes, by its name."""
