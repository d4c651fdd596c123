"""A recorded operation as calls that any target's session can make: its meaning as specs.

What a case or a step of a program can say (:mod:`probe.operation`) is told from the meanings of
:mod:`probe.semantics` alone, so that there is one way from all libraries' operations to all
targets. What an operation reads becomes activations and operands, channels last; what a session
gives becomes the operation's result. An operation that is several in one (a convolution with its
activation, attention's products) becomes several stages, of which NumPy computes those that move
elements or round once: their bits are the same in every library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np

from probe import floats
from probe.activations import ACTIVATIONS
from probe.case import Case
from probe.errors import InputError
from probe.geometry import WindowSizes as Framed
from probe.recording.contract import CONSTANT, WEIGHT
from probe.recording.recording import Operation, Run
from probe.recording.sums import (
    OperandPart,
    ProductLetters,
    Shape,
    behind_of,
    is_filter_bias,
    sum_of,
)
from probe.semantics import (
    Contracts,
    Convolution,
    Each,
    Meaning,
    Normalises,
    Reduces,
    Reshapes,
    Same,
    Step,
    Steps,
    Turns,
    Windows,
)

Arrays = Sequence[np.ndarray]

# Why an operation is not sent: its bits are the same in every library.
SETTLED = "it moves elements or rounds once"

RANKS = {1: "1d", 2: "2d", 3: "3d"}


@dataclass(frozen=True, eq=False)
class TargetCall:
    """One call of a target's library.

    ``spec``: as a worker has it (``Case.spec``, or of a step between windows). ``inputs``: the
    activations, from what is read; ``output``: how the result lies in what is given. ``operands``:
    the spec's own arrays, which are ``parts`` of what is read, or are ``folded`` of it. ``case``:
    the same as a case, where it is one.
    """

    spec: Mapping[str, Any]
    inputs: tuple[OperandPart, ...]
    output: OperandPart
    parts: Mapping[str, OperandPart] = field(default_factory=dict)
    folded: Callable[[Arrays], dict[str, np.ndarray]] | None = None
    case: Case | None = None

    def operands(self, reads: Arrays) -> dict[str, np.ndarray]:
        if self.folded is not None:
            return self.folded(reads)
        return {name: part.taken(reads[part.number]) for name, part in self.parts.items()}


@dataclass(frozen=True, eq=False)
class Stage:
    """One step of an operation: ``does`` it with what it ``reads``, which are numbers of values:
    first what the operation reads, then what each stage gives. ``meaning``, ``shape``: what that is
    and its shape."""

    reads: tuple[int, ...]
    does: TargetCall | Callable[[Arrays], np.ndarray]
    meaning: Meaning
    shape: Shape


@dataclass(frozen=True)
class PortFrame:
    """What is known around a meaning: ``shapes`` and ``dtypes`` of what it reads, of which some are
    ``fixed`` (weights, and what is computed from these alone), the ``shape`` and ``dtype`` of what
    it gives, and the ``axis`` of that with the channels, None where no operation says."""

    shapes: tuple[Shape, ...]
    shape: Shape
    dtypes: tuple[str, ...]
    dtype: str
    fixed: tuple[bool, ...]
    axis: int | None = None


class Ports:
    """The operations of a recording as stages. ``axes``: by value, which axis is the channels'."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.known: dict[tuple[int, tuple[Shape, ...]], list[Stage]] = {}
        self.axes = self._channels()
        self.used = {*run.outputs, *(n for op in run.operations for n in op.reads)}
        self.fixed = [False] * len(run.values)
        for number, value in enumerate(run.values):
            if value.given < 0:
                self.fixed[number] = value.role in (WEIGHT, CONSTANT) or prod(value.shape) == 1
            else:
                reads = run.operations[value.given].reads
                self.fixed[number] = all(self.fixed[n] for n in reads)

    def _channels(self) -> dict[int, int]:
        """Returns the axis of the channels of those values of which a convolution or a pool says
        it, or an operation between that keeps the shape."""
        axes: dict[int, int] = {}
        run, values = self.run, self.run.values
        for op in run.operations:
            first = getattr(op.meaning, "steps", ())[:1]
            meaning: Any = first[0].meaning if first else op.meaning
            inner = meaning.windows if isinstance(meaning, Convolution) else meaning
            if isinstance(inner, Windows):
                turned = getattr(
                    meaning, "turned", range(len(values[op.reads[inner.reads[0]]].shape))
                )
                axes[op.reads[inner.reads[0]]] = tuple(turned)[inner.channels]
                axes[op.gives[0]] = inner.channels
        for some in (run.operations, run.operations[::-1], run.operations):
            for op in some:
                if not isinstance(op.meaning, Each | Normalises | Same):
                    continue
                rank = len(values[op.gives[0]].shape)
                ends = [n for n in (*op.reads, op.gives[0]) if len(values[n].shape) == rank]
                known = next((axes[n] for n in ends if n in axes), None)
                if known is not None:
                    axes.update({n: known for n in ends if n not in axes})
        return axes

    def stages(self, op: Operation, shapes: Sequence[Shape] = ()) -> list[Stage]:
        """Returns an operation's stages. InputError: no part of it is a call, with the reason.

        ``shapes``: of what it reads, where they aren't the recorded ones.
        """
        key = op.number, tuple(shapes)
        if key not in self.known:
            self.known[key] = self._stages(op, key[1])
        return self.known[key]

    def all_stages(self, op: Operation) -> list[Stage]:
        """Returns an operation's stages, also where none is a call. InputError: one is neither a
        call nor what NumPy computes."""
        return _stages_or_computed(op.meaning, self._frame(op))

    def _frame(self, op: Operation) -> PortFrame:
        values = self.run.values
        if not op.gives or self.used.intersection(op.gives[1:]):
            raise _not_a_call(op.op, f"it gives {len(op.gives)} results")
        number = op.gives[0]
        value = values[number]
        return PortFrame(
            tuple(values[n].shape for n in op.reads),
            value.shape,
            tuple(values[n].dtype for n in op.reads),
            value.dtype,
            tuple(self.fixed[n] for n in op.reads),
            self.axes.get(number),
        )

    def _stages(self, op: Operation, shapes: tuple[Shape, ...]) -> list[Stage]:
        frame = self._frame(op)
        if all(self.fixed[n] for n in op.reads):
            raise _not_a_call(op.op, "it reads weights alone")
        if op.meaning.exact and not isinstance(op.meaning, Windows | Steps):
            raise _not_a_call(op.op, SETTLED)
        meaning = op.meaning
        if shapes and shapes != frame.shapes:
            meaning, shape = _resized(meaning, shapes, frame.shape)
            frame = replace(frame, shapes=shapes, shape=shape)
        if 0 in frame.shape or any(0 in shape for shape in frame.shapes):
            raise _not_a_call(op.op, "it has no elements")
        stages = _stages(meaning, frame)
        if not any(isinstance(stage.does, TargetCall) for stage in stages):
            raise _not_a_call(op.op, SETTLED)
        return stages


def _not_a_call(op: str, why: str) -> InputError:
    return InputError("operation", op, why, "")


def _resized(meaning: Meaning, shapes: tuple[Shape, ...], shape: Shape) -> tuple[Meaning, Shape]:
    """Returns what an operation means for operands of other sizes, and the shape of what it gives
    then; ``shape``: as it was recorded. InputError: that isn't known."""
    if isinstance(meaning, Each):
        used = [shapes[n] for n in meaning.reads or range(len(shapes))]
        return meaning, np.broadcast_shapes(*(used if meaning.along is None else used[:1]))
    if isinstance(meaning, Normalises | Same):
        return meaning, shapes[0]
    inner = meaning.windows if isinstance(meaning, Convolution) else meaning
    if isinstance(inner, Windows) and inner.kind != "transposed":
        turned = getattr(meaning, "turned", range(len(shape)))
        to = [shapes[inner.reads[0]][axis] for axis in turned]
        framed = Framed(inner.kernel, inner.stride, inner.dilation, inner.padding, inner.ceil)
        outputs = framed.outputs([to[axis] for axis in inner.spatial])
        for axis, size in zip(inner.spatial, outputs, strict=True):
            to[axis] = size
        to[inner.channels] = to[inner.channels] if inner.pool else shape[inner.channels]
        return meaning, tuple(to)
    if isinstance(meaning, Contracts):
        product = ProductLetters.of(meaning, shapes)
        return meaning, tuple(product.sizes[letter] for letter in product.out)
    if isinstance(meaning, Reduces):
        axes = {axis % len(shapes[0]) for axis in meaning.axes}
        every = enumerate(shapes[0])
        left = [(axis, 1 if axis in axes else size) for axis, size in every]
        return meaning, tuple(size for axis, size in left if meaning.keep or axis not in axes)
    if isinstance(meaning, Turns):
        return meaning, tuple(shapes[0][axis] for axis in meaning.axes)
    if isinstance(meaning, Steps) and not any(step.more for step in meaning.steps):
        steps, known = list[Step](), list(shapes)
        for step in meaning.steps:
            step_shapes = tuple(known[n] for n in step.reads)
            inside, to_shape = _resized(step.meaning, step_shapes, step.shape)
            steps.append(replace(step, meaning=inside, shape=to_shape))
            known.append(to_shape)
        return replace(meaning, steps=tuple(steps)), known[-1]
    raise _not_a_call(meaning.word or type(meaning).__name__, "it can't be run at other sizes")


def _stages(meaning: Meaning, frame: PortFrame) -> list[Stage]:
    """Returns what a meaning is in stages. InputError: a part of it is neither call nor known."""
    if not isinstance(meaning, Steps):
        call, count = _call_of(meaning, frame), len(frame.shapes)
        stages = [Stage(tuple(range(count)), call, meaning, frame.shape)]
        bias = getattr(meaning, "bias", None)
        if bias is not None and (call.case is None or call.case.bias is None):
            stages.append(_addition_stage((count, bias), frame.shape))
        return stages
    try:
        first, functions = behind_of(meaning, frame.shapes)
        if isinstance(first, Steps):
            return _in_turn(meaning, frame)
        stages = _stages(first, frame)
    except InputError:
        return _in_turn(meaning, frame)
    behind = replace(frame, shapes=(frame.shape,), dtypes=(frame.dtype,), fixed=(False,))
    for word, numbers in functions:
        last = len(frame.shapes) + len(stages) - 1
        if word == "add":
            if frame.shapes[numbers[0]] != frame.shape:
                return _in_turn(meaning, frame)
            stages.append(_addition_stage((last, numbers[0]), frame.shape))
        else:
            each = Each(word, numbers)
            stages.append(Stage((last,), _call_or_numpy(each, behind), each, frame.shape))
    return stages


def _addition_stage(reads: tuple[int, ...], shape: Shape) -> Stage:
    return Stage(reads, _numpy_function(Each("add"), (), shape), Each("add"), shape)


def _in_turn(meaning: Steps, frame: PortFrame) -> list[Stage]:
    """Returns the stages of each step, one after the other."""
    if any(one.more for one in meaning.steps):
        raise _not_a_call(meaning.word or "several", "a step of it gives several results")
    places = list(range(len(frame.shapes)))
    shapes, fixed = list(frame.shapes), list(frame.fixed)
    dtypes = list(frame.dtypes)
    so_far: list[Stage] = []
    for step in meaning.steps:
        inner = PortFrame(
            tuple(shapes[n] for n in step.reads),
            step.shape,
            tuple(dtypes[n] for n in step.reads),
            frame.dtype,
            tuple(fixed[n] for n in step.reads),
            frame.axis if step.shape == frame.shape else None,
        )
        stages = _stages_or_computed(step.meaning, inner)
        base = len(frame.shapes) + len(so_far)
        reads = [places[n] for n in step.reads]
        for stage in stages:
            numbers = [reads[n] if n < len(reads) else base + n - len(reads) for n in stage.reads]
            so_far.append(replace(stage, reads=tuple(numbers)))
        places.append(len(frame.shapes) + len(so_far) - 1)
        shapes.append(step.shape)
        dtypes.append(frame.dtype)
        fixed.append(all(inner.fixed))
    if meaning.gives and meaning.gives[0] != len(places) - 1:
        raise _not_a_call(meaning.word or "several", "it gives what an earlier step computes")
    return so_far


def _stages_or_computed(meaning: Meaning, frame: PortFrame) -> list[Stage]:
    if isinstance(meaning, Steps):
        return _stages(meaning, frame)
    every = tuple(range(len(frame.shapes)))
    return [Stage(every, _call_or_numpy(meaning, frame), meaning, frame.shape)]


def _call_or_numpy(
    meaning: Meaning, frame: PortFrame
) -> TargetCall | Callable[[Arrays], np.ndarray]:
    """Returns a step as a call, or where every library gives the same bits, or it reads weights
    alone, as NumPy's function."""
    settled = meaning.exact and not isinstance(meaning, Windows)
    settled |= all(frame.fixed)
    if not settled:
        return _call_of(meaning, frame)
    return _numpy_function(meaning, frame.shapes, frame.shape)


# what NumPy computes of an operation that is several in one

# NumPy's for what rounds at most once in float32 and float64; its float16 is rounded from float32,
# which comes to the same (:class:`probe.backends.reference.Arithmetic`).
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "sqrt": np.sqrt,
    "square": np.square,
    "negative": np.negative,
    "absolute": np.absolute,
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.minimum(np.maximum(x, 0), 6),
}


def _numpy_function(
    meaning: Meaning, shapes: Sequence[Shape], to: Shape
) -> Callable[[Arrays], np.ndarray]:
    """Returns a step that moves elements or rounds once, as NumPy's function. InputError."""
    if isinstance(meaning, Each) and meaning.reads is None and meaning.along is None:
        known = FUNCTIONS.get(meaning.word)
        if meaning.word == "clip" and len(meaning.numbers) == 2:
            both = zip(meaning.numbers, (-np.inf, np.inf), strict=True)
            low, high = (end if bound is None else bound for bound, end in both)
            known = lambda x: np.minimum(np.maximum(x, x.dtype.type(low)), x.dtype.type(high))  # noqa: E731
        elif meaning.word == "leaky_relu":
            alpha = dict(meaning.numbers)["alpha"]
            known = lambda x: np.where(x > 0, x, x * x.dtype.type(alpha))  # noqa: E731
        elif meaning.numbers:
            known = None
        if known is not None:

            def each(reads: Arrays) -> np.ndarray:
                kind = reads[0].dtype
                if kind.kind != "f":
                    raise _not_a_call("step", f"NumPy computes no {kind} here")
                values: list[Any] = list(reads)
                for place, value, _ in meaning.beside:
                    values.insert(place, kind.type(value))
                with np.errstate(all="ignore"):
                    return np.asarray(known(*values), kind)

            return each
    if isinstance(meaning, Reshapes | Same):
        return lambda reads: np.asarray(reads[0]).reshape(to)
    name = getattr(meaning, "word", "") or type(meaning).__name__
    raise _not_a_call(name, "NumPy does not compute this step")


# what is a call


def _call_of(meaning: Meaning, frame: PortFrame) -> TargetCall:
    """Returns a meaning as a call. InputError: no spec says it, with the reason."""
    if frame.dtype not in floats.FORMATS:
        raise _not_a_call(meaning.word or type(meaning).__name__, f"it gives {frame.dtype}")
    inner = meaning.windows if isinstance(meaning, Convolution) else meaning
    if isinstance(inner, Windows):
        return _window_call(meaning, inner, frame)
    if isinstance(meaning, Contracts):
        return _product_call(meaning, frame)
    if isinstance(meaning, Reduces) and meaning.word == "sum":
        rank = len(frame.shapes[0])
        axes = sorted(axis % rank for axis in meaning.axes)
        if not axes or axes != list(range(rank - len(axes), rank)):
            raise _not_a_call(meaning.word, "it adds along other axes than the last")
        summed = sum_of(meaning, frame.shapes, frame.shape, (*frame.dtypes, frame.dtype))
        case = Case("sum", in_channels=summed.in_channels, length=summed.length, dtype=frame.dtype)
        return TargetCall(case.spec(), (summed.x,), summed.y, case=case)
    if isinstance(meaning, Normalises) and meaning.word == "softmax":
        if meaning.numbers or len(meaning.axes) != 1:
            raise _not_a_call(meaning.word, "no target's call says it")
        part = _channel_rows(frame.shape, meaning.axes[0] % len(frame.shape))
        spec = _step_spec("activation", frame.dtype, part.shape[-1]) | {"activation": "softmax"}
        return TargetCall(spec, (part,), part)
    if isinstance(meaning, Each) and meaning.word == "batch_norm":  # a scale and a shift a channel
        used = list(meaning.reads or range(len(frame.shapes)))
        axis = len(frame.shape) - 1 if meaning.along is None else meaning.along % len(frame.shape)
        part = replace(_channel_rows(frame.shape, axis), number=used[0])
        spec = _step_spec("normalisation", frame.dtype, part.shape[-1])
        eps, scaled, shifted = meaning.numbers

        def folded(reads: Arrays) -> dict[str, np.ndarray]:
            parameters = [floats.widen(reads[n], frame.dtypes[n]).reshape(-1) for n in used[1:]]
            mean, variance = parameters[-2:]
            scale = 1 / np.sqrt(variance + eps)
            scale = scale * parameters[0] if scaled else scale
            shift = (parameters[int(scaled)] if shifted else 0.0) - mean * scale
            both = {"scale": scale, "shift": shift}
            dtype = frame.dtypes[used[0]]
            return {name: floats.round_to(numbers, dtype) for name, numbers in both.items()}

        return TargetCall(spec, (part,), replace(part, number=0), folded=folded)
    if isinstance(meaning, Each):
        return activation_call(meaning, frame)
    name = meaning.word or type(meaning).__name__
    raise _not_a_call(name, getattr(meaning, "why", "") or "no target's call says it")


def _window_call(meaning: Meaning, inner: Windows, frame: PortFrame) -> TargetCall:
    """Returns a convolution or a pool."""
    word, pooled = inner.word or inner.kind, inner.pool
    if inner.kind in ("transposed", "sum"):
        raise _not_a_call(word, "no case is one")
    if set(getattr(meaning, "holes", (1,))) != {1}:
        raise _not_a_call(word, "its input's elements are apart, as in a transposed convolution")
    if min(min(pair) for pair in inner.padding) < 0:
        raise _not_a_call(word, "its padding is negative: it crops")
    rank, dtypes = len(inner.kernel), [*frame.dtypes, frame.dtype]
    if rank not in RANKS or (pooled and rank > 2):
        raise _not_a_call(word, f"it has {rank} spatial axes")
    # a pool reads what a sum over its windows does, so its parts are found in the same way
    adding = replace(inner, kind="sum") if pooled else inner
    whole = replace(meaning, windows=adding) if isinstance(meaning, Convolution) else adding
    summed = sum_of(whole, frame.shapes, frame.shape, dtypes)
    op = f"{'avg' if inner.kind == 'average' else 'max'}_pool{RANKS[rank]}" if pooled else ""
    depthwise = rank == 2 and 1 < inner.groups == summed.in_channels
    op = op or ("depthwise_conv2d" if depthwise else f"conv{RANKS[rank]}")
    words: dict[str, Any] = {"in_channels": summed.in_channels, "dtype": frame.dtype}
    if pooled:
        words |= {"ceil_mode": inner.ceil}
        words |= {"pad_with": "zeros" if inner.counts_padding else "nothing"}
    else:
        words |= {"filters": summed.filters, "bias": None if summed.b is None else "normal"}
        words |= {} if depthwise else {"groups": inner.groups}
    same = Framed(inner.kernel, inner.stride, inner.dilation, "same").pads(summed.sizes)
    padding: Any = inner.padding
    if not any(map(any, inner.padding)):
        padding = "valid"
    elif inner.padding == same and not inner.counts_padding:
        # what TensorFlow's SAME adds goes by that name, since its users, and those of Keras and
        # JAX, write that: explicit zeros are another call there
        padding = "same"
    case = Case(
        *(op, inner.kernel),
        length=summed.sizes[-1],
        height=summed.sizes[:-1] or None,
        stride=inner.stride,
        dilation=inner.dilation,
        padding=padding,
        batch=summed.batch,
        **words,
    )
    if case.output_spatial() != tuple(len(taken) for taken in summed.index):
        raise _not_a_call(word, "its last windows reach beyond the input as no case's do")
    parts = {name: part for name, part in (("w", summed.w), ("b", summed.b)) if part is not None}
    return TargetCall(case.spec(), (summed.x,), summed.y, parts, case=case)


def _product_call(meaning: Contracts, frame: PortFrame) -> TargetCall:
    """Returns rows times weights, or activations times activations. A bias that is not one number a
    filter is left to the caller."""
    word = meaning.word
    if meaning.numbers:
        raise _not_a_call(word, "its sums have a factor")
    if {frame.dtypes[n] for n in meaning.reads} != {frame.dtype}:
        raise _not_a_call(word, "its operands have different formats")
    axes = ProductLetters.of(meaning, frame.shapes)
    out, sizes, own = axes.out, axes.sizes, axes.own
    # weights are the operand that no input changes: on the right, unless the left one alone is such
    first, second = (frame.fixed[n] for n in meaning.reads)
    rows, columns = (1, 0) if first and not second else (0, 1)
    batch = [x for x in out if x in own[0] & own[1] and sizes[x] > 1]
    filters = [x for x in out if x in own[columns] and x not in own[rows]]
    lines = [x for x in out if x not in filters and x not in batch]
    summed, text = axes.summed(rows), axes.texts[columns]
    g, m, k, n = map(axes.count, (batch, lines, summed, filters))
    x_axes, order = [*batch, *lines, *summed], [out.index(x) for x in (*batch, *lines, *filters)]
    if batch or not frame.fixed[meaning.reads[columns]]:
        turned = text[-1:] in summed
        ends = [*summed, *filters] if not turned else [*filters, *summed]
        right = axes.part(columns, [*batch, *ends], g, *((n, k) if turned else (k, n)))
        spec = _step_spec("product", frame.dtype, k) | {"transposed": turned}
        output = OperandPart.of(0, frame.shape, order, g, m, n)
        return TargetCall(spec, (axes.part(rows, x_axes, g, m, k), right), output)
    parts, bias = {"w": axes.part(columns, [*summed, *filters], k, n)}, meaning.bias
    if bias is not None and is_filter_bias(frame.shapes[bias], out, filters, sizes):
        parts["b"] = OperandPart.of(bias, frame.shapes[bias], range(len(frame.shapes[bias])), n)
    biased = "normal" if "b" in parts else None
    case = Case("dense", in_channels=k, filters=n, batch=m, dtype=frame.dtype, bias=biased)
    output = OperandPart.of(0, frame.shape, order, m, n)
    return TargetCall(case.spec(), (axes.part(rows, x_axes, m, k),), output, parts, case=case)


def _step_spec(op: str, dtype: str, channels: int, **numbers: float) -> dict[str, Any]:
    return {"op": op, "dtype": dtype, "channels": channels, "parameters": numbers}


def _channel_rows(shape: Shape, axis: int | None) -> OperandPart:
    """Returns activations as a step between windows takes them: (batch, *spatial, channels); as
    rows where the channels are last, or no operation says which axis is theirs: the elements then
    lie in memory as they are."""
    last = len(shape) - 1
    if axis is None or axis == last or last < 1:
        size = shape[-1] if shape else 1
        return OperandPart.of(0, shape, range(len(shape)), prod(shape) // max(size, 1), size)
    order = [*(n for n in range(last + 1) if n != axis), axis]
    return OperandPart.of(0, shape, order, *(shape[n] for n in order))


def activation_call(meaning: Each, frame: PortFrame) -> TargetCall:
    """Returns an activation. InputError: it is none that a target's call says."""
    named = all(isinstance(pair, tuple) and len(pair) == 2 for pair in meaning.numbers)
    word, numbers = meaning.word, dict(meaning.numbers) if named else None
    alpha = "{alpha}" in ACTIVATIONS[word].numpy if word in ACTIVATIONS else False
    exact = False
    if word not in ACTIVATIONS or meaning.beside or len(meaning.reads or (0,)) != 1:
        raise _not_a_call(word, "no target's call says it")
    if not exact and (numbers is None or set(numbers) != ({"alpha"} if alpha else set())):
        raise _not_a_call(word, f"no target's call has its numbers {meaning.numbers}")
    if meaning.reads is None and len(frame.shapes) != 1:
        raise _not_a_call(word, "it reads more than the activations")
    number = (meaning.reads or (0,))[0]
    parameters = {} if exact or not numbers else {"alpha": numbers["alpha"]}
    part = _channel_rows(frame.shape, frame.axis)
    spec = _step_spec("activation", frame.dtype, part.shape[-1], **parameters)
    return TargetCall(spec | {"activation": word}, (replace(part, number=number),), part)
