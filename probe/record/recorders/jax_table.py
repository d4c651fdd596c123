"""JAX's primitives in the words of :mod:`probe.order.semantics.operations`: one line a
primitive."""

from __future__ import annotations

from dataclasses import replace
from string import ascii_lowercase
from typing import Any

import jax

from probe.order import semantics as s
from probe.order.semantics import operations as o
from probe.order.semantics.contract import Call
from probe.record.recorders.jax_programs import LOOPS, Equation, Flat

# What each primitive computes.
TABLE = s.OperationTable()

# Functions of the elements at one place; some have a parameter for how accurate they are.
FUNCTIONS = s.word_list(
    "sign tan asin atan sinh asinh atanh expm1 log1p sqrt cbrt square erf erf_inv floor ceil real "
    "imag conj exp2 cos acos acosh cosh rem atan2 erfc lgamma digamma is_finite eq ne lt le gt ge "
    "and or not xor shift_left shift_right_logical shift_right_arithmetic nextafter clz complex "
    "population_count igamma igammac igamma_grad_a eq_to le_to lt_to zeta mulhi "
    "bessel_i0e bessel_i1e regularized_incomplete_beta polygamma sub neg abs mul pow log sin "
    "tanh logistic rsqrt exp min:minimum add add_any:add threefry2x32"
)

SAME = "copy stop_gradient sharding_constraint name reshard pvary random_wrap random_unwrap "
SAME += "random_clone optimization_barrier device_put"
REDUCES = s.word_list("reduce_sum:sum reduce_prod:prod")
# What moves, copies, chooses or counts elements, or makes numbers of none.
MOVES = "dynamic_slice tile dynamic_update_slice scatter rev broadcast_in_dim concatenate split "
MOVES += "stack unstack iota slice pad gather select_n sort top_k reduce_max reduce_min reduce_and "
MOVES += "reduce_or argmax argmin reduce_window_min"


# element by element


@TABLE.row(FUNCTIONS)
def _lax_function(c: Call, word: str) -> s.Meaning:
    if word in ("and", "or", "xor", "not") and c.dtype() != "bool":
        word = f"bitwise_{word}"
    if word == "shift_right_logical" and c.dtype().startswith("u"):
        word = "right_shift"  # what other libraries call it, whose shifts of signed numbers keep it
    # how accurate it is, or the format of its result, where a call says that
    said = (c.get("accuracy"), c.get("out_dtype"))
    each = o.function(word)
    return each if said == (None, None) else replace(each, approximate=True)


# sums and windows


@TABLE.row("dot_general")
def _dot_general(c: Call) -> s.Meaning:
    sums, batch = c["dimension_numbers"]
    letters = iter(ascii_lowercase)
    texts: tuple[dict[int, str], dict[int, str]] = {}, {}
    for pairs in (batch, sums):
        for left, right in zip(*pairs, strict=True):
            texts[0][left] = texts[1][right] = next(letters)
    out = [texts[0][axis] for axis in batch[0]]
    for slot, text in enumerate(texts):
        free = [axis for axis in range(c.rank(slot)) if axis not in text]
        text.update(zip(free, letters, strict=False))
        out += [text[axis] for axis in free]
    left_text, right_text = ("".join(text[axis] for axis in sorted(text)) for text in texts)
    wider = c.dtype() != c.dtypes[0]
    word = f"product in {c.dtypes[0]}" if wider else "product"
    return s.Contracts(f"{left_text},{right_text}->{''.join(out)}", word=word)


@TABLE.row("conv_general_dilated")
def _lax_conv(c: Call) -> s.Meaning:
    lhs, weights, out = (tuple(axes) for axes in c["dimension_numbers"])
    apart, stride, dilation = (
        tuple(c[name]) for name in ("lhs_dilation", "window_strides", "rhs_dilation")
    )
    kernel = tuple(c.shape(1)[axis] for axis in weights[2:])
    padding = tuple((int(low), int(high)) for low, high in c["padding"])
    batches, plain = c["batch_group_count"], lhs == out and c["batch_group_count"] == 1
    transposed = set(apart) != {1} and set(stride) <= {1}
    if transposed and plain:  # taps in the opposite order
        ends = zip(kernel, dilation, padding, strict=True)
        padding = tuple(((size - 1) * step - low,) * 2 for size, step, (low, _) in ends)
        stride = apart
    windows = s.Windows(
        *(out[2:], out[1], kernel, stride, dilation, padding),
        kind="transposed" if transposed and plain else "convolution",
        groups=c["feature_group_count"],
        weights=(*weights[2:], weights[1], weights[0]),
        word="transposed convolution" if transposed else "convolution",
        flipped=transposed,
    )
    if plain and (transposed or set(apart) <= {1}):
        return windows
    turned = tuple(lhs[out.index(axis)] for axis in range(len(out)))
    return s.Convolution(windows, turned, apart, batches)


def _slid(c: Call) -> list[int]:
    """Returns the axes along which a window slides."""
    names = "window_dimensions", "window_strides", "padding"
    ends = zip(*(c[name] for name in names), c.shape(), c.gives[0], strict=True)
    frames = [(size, step, *pads, a - b) for size, step, pads, a, b in ends]
    return [axis for axis, frame in enumerate(frames) if frame != (1, 1, 0, 0, 0)]


def _lax_pool(kind: str) -> s.Row:
    def row(c: Call) -> s.Meaning:
        slid = _slid(c)
        rest = [axis for axis in range(c.rank()) if axis not in slid]
        if set(c["base_dilation"]) - {1} or not rest:
            return s.Unknown("its window slides between elements, or over all axes")
        kernel, stride, dilation, padding = (
            tuple(c[name][axis] for axis in slid)
            for name in ("window_dimensions", "window_strides", "window_dilation", "padding")
        )
        padding = tuple((int(low), int(high)) for low, high in padding)
        frame = tuple(slid), rest[-1], kernel, stride, dilation, padding
        return s.Windows(*frame, kind=kind, reads=(0,), word=f"{kind}_pool")

    return row


TABLE |= {
    **s.rows_for(
        SAME, lambda c: s.Same() if len(c.gives) == 1 else s.Passes(tuple(range(c.count)))
    ),
    # XLA multiplies by the reciprocal where it knows the divisor
    "div": lambda c: (
        o.arithmetic("divide", c.dtype()) if "int" in c.dtype() else o.approximate("divide")
    ),
    "round": lambda c: o.function(
        "round" if c["rounding_method"] == jax.lax.RoundingMethod.TO_NEAREST_EVEN else "round_away"
    ),
    "reduce_precision": lambda c: o.function("reduce_precision"),
    "bitcast_convert_type": lambda c: o.bitcast(c.dtype(), c.dtypes[0], c.shape() == c.gives[0]),
    "clamp": lambda c: s.Each("clamp", reads=(1, 0, 2)),
    "max": lambda c: o.function("maximum"),
    "integer_pow": lambda c: o.power(c["y"]),
    "convert_element_type": lambda c: o.cast(c.dtype(), c.dtypes[0]),
    **s.worded(REDUCES, lambda c, word: o.reduced(word, c["axes"])),
    "reduce_window_sum": _lax_pool("sum"),
    "reduce_window_max": _lax_pool("max"),
    **s.rows_for(MOVES, lambda c: s.Moves()),
    "reshape": lambda c: s.Unknown("reshape") if c.get("dimensions") else s.Reshapes(),
    "squeeze": lambda c: s.Reshapes(),
    "transpose": lambda c: o.transpose(c["permutation"]),
}


def meaning(c: Call) -> s.Meaning:
    """Returns what a primitive computes; ``Unknown`` where no row of the table says it."""
    means = s.by_table(TABLE, c)
    every = (*c.dtypes, *(operand.dtype for operand in c.reads if operand is not None))
    return s.of_complex(means) if any(dtype.startswith("complex") for dtype in every) else means


# programs


def moves(means: s.Meaning) -> bool:
    """Returns whether elements are only moved, or converted to another format."""
    if isinstance(means, s.Steps):
        return all(moves(step.meaning) for step in means.steps)
    each = isinstance(means, s.Each) and means.word != "cast"
    return means.exact and not each and not isinstance(means, s.Unknown)


def only(program: Flat) -> Equation | None:
    """The one equation of a program that computes; the last, where all move; None for several."""
    computing = [eqn for eqn in program.equations if not moves(meaning(eqn.called()))]
    if len(computing) > 1 or any(eqn.op in LOOPS for eqn in computing):
        return None
    computing = computing or program.equations[-1:]
    return computing[0] if computing else None


def fold(program: Flat, eqn: Equation) -> s.Meaning | None:
    """What a program means whose only equation that computes is a product, beside transposed axes,
    a sum that keeps its axes, or a function of elements and numbers: ``jax.numpy.einsum`` is the
    first, ``sum(keepdims=True)`` the second. None where it is neither."""
    means, last = meaning(eqn.called()), program.equations[-1]
    if program.consts or list(last.gives) != program.outputs:
        return None
    if isinstance(means, s.Contracts) and means.bias is None:
        return _fold_product(program, eqn, means)
    if isinstance(means, s.Reduces) and last.slots == eqn.gives:
        shape = eqn.ins[0].shape
        axes = {axis % len(shape) for axis in means.axes}
        wide = tuple(1 if axis in axes else size for axis, size in enumerate(shape))
        if len(program.equations) == 2 and eqn.slots == (0,) and last.outs[0].shape == wide:
            return means
    if isinstance(means, s.Each) and last is eqn:
        spread = all(each is eqn or each.op == "broadcast_in_dim" for each in program.equations)
        if spread and all(aval.shape in ((), eqn.outs[0].shape) for aval in program.ins):
            return replace(means, reads=None)
    return None


def _fold_product(program: Flat, eqn: Equation, means: s.Contracts) -> s.Meaning | None:
    """Returns a product whose operands and outputs are transposed by the equations around it."""
    texts, out = means.equation.split("->")
    # what stands at the axes of each value: (input, axis) before the product, letters behind it
    axes: dict[Any, list[Any]] = {
        n: [(n, axis) for axis in range(len(aval.shape))] for n, aval in enumerate(program.ins)
    }
    for each in program.equations:
        sources = [axes.get(n) if isinstance(n, int) else None for n in each.slots]
        if each is eqn and all(sources):
            pairs = [
                sorted(zip(sources[n] or [], text, strict=True))
                for n, text in zip(means.reads, texts.split(","), strict=True)
            ]
            axes[each.gives[0]] = list(out)
            continue
        turn = meaning(each.called())
        if not isinstance(turn, s.Turns) or not sources[0]:
            return None
        axes[each.gives[0]] = [sources[0][axis] for axis in turn.axes]
    result = axes[program.equations[-1].gives[0]]
    if not all(isinstance(letter, str) for letter in result):
        return None
    one_text, two_text = ("".join(letter for _, letter in some) for some in pairs)
    reads = pairs[0][0][0][0], pairs[1][0][0][0]
    return replace(means, equation=f"{one_text},{two_text}->{''.join(result)}", reads=reads)
