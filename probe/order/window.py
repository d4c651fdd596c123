"""Computes which inputs an output reads, and which outputs therefore must agree.

``Geometry`` says where the windows lie: for every output and leaf, the input that it reads. A
*leaf* is one product of an output, counted row by row over (*kernel, in_channels / groups): leaf
``k * group_channels + c``. A *position* is an output's place on the spatial axes, row by row.

``agreeing_blocks`` finds which outputs must agree: their windows hold the same inputs and weights.
Two windows are the same if every leaf reads the same input in both, or padding in both. Where the
padding before depends on the length (``same`` with a stride) and differs between the sides, none
are: it differs by less than a stride. Along each axis they are runs of neighbours; there is more
than one run only where a dilated window steps over the elements that one side lacks, or where
groups of filters shift.

``channels`` is another matter: both sides read the same windows, but the first A channels of B and
the other B - A go through two calls whose outputs are added, against one call for all B. All
outputs are equal in exact arithmetic and are compared; that the orders differ is by construction.

``layout`` changes no value at all, only where the operands lie: all outputs must agree. Its values
are the numbers of :mod:`probe.case.layout`.

``equivalent`` finds the padding with which another framework reads the windows of a case. Its lines
of code run as they are, with ``x`` and ``w`` in the framework's own layout and its module under the
usual name (``F`` and ``torch``, ``tf``, ``keras``, ``lax`` and ``jnp``, ``helper`` of onnx). No
value is rounded here.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from probe.case import floats, layout
from probe.case.arguments import by, choice, whole_number
from probe.case.case import Case, Summed
from probe.case.errors import InputError
from probe.case.geometry import BY_SIZE, Padding, Pair, around
from probe.targets import backends
from probe.targets.backends.contract import Unsupported
from probe.targets.backends.source import InputShape


@dataclass(frozen=True)
class Geometry:
    """The windows of one case at one length, and its batch. Build it with :meth:`of`.

    ``sizes``, ``around`` and ``outputs``: of every spatial axis.
    """

    windows: Any
    sizes: tuple[int, ...]
    around: tuple[Pair, ...]
    outputs: tuple[int, ...]
    groups: int
    in_channels: int
    filters: int
    batch: int

    @classmethod
    def of(cls, case: Summed, length: int | None = None) -> Geometry:
        """The geometry at ``length``; None: the case's own. InputError if there is none."""
        sizes, windows = case.spatial(length), case.windows
        channels = case.groups, case.in_channels, case.filters
        around, outputs = windows.pads(sizes), windows.outputs(sizes)
        return cls(windows, sizes, around, outputs, *channels, case.batch)

    @property
    def positions(self) -> int:
        return math.prod(self.outputs)

    @property
    def group_channels(self) -> int:
        return self.in_channels // self.groups

    def axis_reads(self, axis: int) -> np.ndarray:
        """Indices along one axis, (outputs, kernel) int64; outside [0, size) is padding."""
        return self.windows.reads(axis, self.sizes[axis])

    def reads(self, positions: np.ndarray | None = None) -> np.ndarray:
        """Flat spatial indices read, (positions, prod(kernel)); -1 is padding.

        ``positions`` picks output positions (flat, any order); None is all of them. int32 unless
        the input has 2**31 elements or more.
        """
        chosen = np.arange(self.positions) if positions is None else np.asarray(positions)
        places = np.unravel_index(chosen, self.outputs) if self.outputs else ()
        wide = math.prod(self.sizes) * self.in_channels >= 2**31
        flat = np.zeros((len(chosen), 1), dtype=np.int64 if wide else np.int32)
        inside = np.ones((len(chosen), 1), dtype=bool)
        for axis, size in enumerate(self.sizes):
            index = self.axis_reads(axis).astype(flat.dtype)[places[axis]]
            flat = (flat[:, :, None] * flat.dtype.type(size) + index[:, None, :]).reshape(
                len(chosen), -1
            )
            read = (index >= 0) & (index < size)
            inside = (inside[:, :, None] & read[:, None, :]).reshape(len(chosen), -1)
        flat[~inside] = -1
        return flat

    def channels(self, filter_: int) -> np.ndarray:
        """The input channels that a filter reads, int64."""
        group = filter_ // (self.filters // self.groups)
        return np.arange(group * self.group_channels, (group + 1) * self.group_channels)


def read_classes(case: Summed) -> tuple[np.ndarray, list[np.ndarray]]:
    """Positions grouped by the leaves they read, padding excluded.

    Returns (class of every position, int64 (positions,); for every class its sorted leaves, int64).
    Two positions share a class only if they read the same leaves, whatever values they meet.
    """
    geometry = Geometry.of(case)
    classes, patterns = np.zeros(1, dtype=np.int64), [np.ones(1, dtype=bool)]
    # what a window reads is the product of what it reads along each axis, and so are the classes
    for axis, size in enumerate(geometry.sizes):
        index = geometry.axis_reads(axis)
        inside = (index >= 0) & (index < size)
        # of a million windows few reach over an edge: to sort all rows takes seconds
        edge = ~inside.all(axis=1)
        rows, which = np.unique(inside[edge], axis=0, return_inverse=True)
        labels = np.full(len(inside), len(rows))
        labels[edge] = which.ravel()
        rows = np.concatenate([rows, inside[~edge][:1]])
        classes = (classes[:, None] * len(rows) + labels).ravel()
        patterns = [np.outer(pattern, row).ravel() for pattern in patterns for row in rows]
    leaves = [np.flatnonzero(np.repeat(pattern, geometry.group_channels)) for pattern in patterns]
    merged: dict[bytes, int] = {}  # windows that read nothing may look different axis by axis
    merge = np.array([merged.setdefault(leaf.tobytes(), len(merged)) for leaf in leaves])
    read = [leaves[int(np.flatnonzero(merge == number)[0])] for number in range(len(merged))]
    return merge[classes], read


def columns(case: Summed, x: np.ndarray) -> list[np.ndarray]:
    """For every group what its leaves meet: (leaves, batch * positions), 0 at padding.

    Filters of one group share it. ``x``: container or not, (batch, *spatial, in_channels), of any
    length.
    """
    geometry = _geometry(case, x)
    rows = x.reshape(x.shape[0], -1, x.shape[-1])
    # a gather of whole rows, group by group, costs no index for each channel
    rows = np.concatenate([rows, np.zeros_like(rows[:, :1])], axis=1)  # -1 reads zeros
    reads = geometry.reads().T
    columns = []
    for group in range(geometry.groups):
        first = group * geometry.group_channels
        met = rows[:, reads, first : first + geometry.group_channels]
        leaves = met.transpose(1, 3, 0, 2)  # (kernel positions, channels, batch, positions)
        columns.append(leaves.reshape(len(reads) * geometry.group_channels, -1))
    return columns


def leaves_at_padding(case: Summed, x: np.ndarray) -> np.ndarray:
    """Which leaves meet padding: bool (leaves, batch * positions), as of ``columns``."""
    geometry = _geometry(case, x)
    met = np.repeat(geometry.reads() < 0, geometry.group_channels, axis=1)
    return np.tile(met, (x.shape[0], 1)).T


def scale(case: Case, x: np.ndarray, w: np.ndarray, b: np.ndarray | None = None) -> np.ndarray:
    """The sum of |x * w| and |b| of every output, float64 (batch, *positions, filters).

    A difference divided by eps times this does not grow when a sum cancels. Rounded by float64
    sums, so good to about 1e-15 of itself; one matrix product for each kernel position.
    """
    geometry = _geometry(case, x)
    size = _magnitudes(x, case.dtype)
    rows = size.reshape(size.shape[0], -1, size.shape[-1])
    rows = np.concatenate([rows, np.zeros_like(rows[:, :1])], axis=1)  # -1 reads zeros
    groups, per_group = geometry.groups, geometry.filters // geometry.groups
    weights = _magnitudes(w, case.dtype).reshape(-1, geometry.group_channels, groups, per_group)
    shape = (size.shape[0], groups, geometry.positions, per_group)
    total = np.zeros(shape)
    for reads, weight in zip(geometry.reads().T, weights, strict=True):
        met = rows[:, reads].reshape(size.shape[0], geometry.positions, groups, -1)
        total += met.transpose(0, 2, 1, 3) @ weight.transpose(1, 0, 2)
    result = total.transpose(0, 2, 1, 3).reshape(size.shape[0], *geometry.outputs, case.filters)
    return result if b is None else result + _magnitudes(b, case.dtype)


def _magnitudes(array: np.ndarray, dtype: str) -> np.ndarray:
    """Absolute values as float64; NaN stays NaN."""
    return np.abs(floats.widen(floats.to_container(array, dtype), dtype))


def _geometry(case: Summed, x: np.ndarray) -> Geometry:
    """The windows over an input of this shape."""
    geometry = Geometry.of(case, x.shape[-2] if case.spatial_rank else None)
    if x.shape[1:] != (*geometry.sizes, geometry.in_channels):
        why = f"the case has (batch, {', '.join(map(str, geometry.sizes))}, {geometry.in_channels})"
        raise InputError("x.shape", x.shape, why, "pass the case's own input, or a prefix of it")
    return geometry


VARY = ("length", "batch", "filters", "channels", "layout")

Slices = tuple[slice, ...]


def axis_of(case: Case, vary: str | None) -> str:
    """``vary``; for None the length, of a dense layer the batch. InputError."""
    if vary is None:
        return "length" if case.spatial_rank else "batch"
    if choice("vary", vary, VARY) == "length" and not case.spatial_rank:
        why = f"{case.op} has no length: its rows are its batch"
        raise InputError("vary", vary, why, "use batch, filters, channels or layout")
    return vary


def case_for(case: Case, vary: str, values: Iterable[int]) -> Case:
    """The case that ``case_at`` takes for each of the values. Raises InputError.

    The same, but for ``channels``: it has as many as the largest value, from which the others
    split off the first ones. Explicit weights keep those of these channels.
    """
    if vary != "channels":
        return case
    total = max(whole_number("channels", value) for value in values)
    changes: dict[str, object] = {"in_channels": total, "split": None}
    if case.weights is not None:
        if total > case.in_channels:
            why = f"weights are given for {case.in_channels} channels only"
            raise InputError("channels", total, why, "give weights for all, or fewer channels")
        table = np.array(case.weights).reshape(-1, case.group_channels, case.filters)
        changes["weights"] = tuple(table[:, :total].ravel().tolist())
    return case.with_(**changes)


def case_at(case: Case, vary: str, value: int) -> Case:
    """The case with its length, batch, filters or layout set to ``value``. Raises InputError.

    Explicit weights and biases keep those of the first ``value`` filters. ``channels``: those
    beyond ``value`` go through a second call (``Case.split``), so it is at most ``in_channels``.
    """
    choice("vary", vary, VARY)
    if vary == "layout":
        return case.with_(layout=named_layout(value))
    if vary == "channels":
        value = whole_number("channels", value)
        if value > case.in_channels:
            why = f"the case has {case.in_channels} channels to split"
            raise InputError("channels", value, why, f"use {case.in_channels} or fewer")
        return case.with_(split=None if value == case.in_channels else value)
    if vary != "filters":
        return case.with_(**{vary: value})
    value = whole_number("filters", value)
    changes: dict[str, object] = {"filters": value}
    explicit = {"weights": case.weights, "bias": case.bias}
    for name, numbers in explicit.items():
        if not isinstance(numbers, tuple):
            continue
        if value > case.filters:
            why = f"{name} are given for {case.filters} filters only"
            raise InputError("filters", value, why, f"give {name} for all, or fewer filters")
        table = np.array(numbers).reshape(-1, case.filters)
        changes[name] = tuple(table[:, :value].ravel().tolist())
    return case.with_(**changes)


def value_on_axis(case: Case, vary: str) -> int | None:
    """The case's value on an axis, as ``case_at`` takes it; None: an open length."""
    if vary == "channels":
        return case.split or case.in_channels
    if vary == "layout":
        return layout.layout_number(case.layout)
    value: int | None = getattr(case, vary)
    return value


def number_of(vary: str, value: int | str | None) -> int | None:
    """The number of an axis' value: that of a layout's word, else itself. InputError."""
    if vary != "layout" or value is None:
        return value  # type: ignore[return-value]
    if isinstance(value, int):
        return layout.layout_number(named_layout(value))
    try:
        return layout.layout_number(layout.parse_layout(value))
    except ValueError as error:
        raise InputError("layout", value, str(error), layout.HOW) from None


def shown_axis_value(vary: str, value: Any) -> Any:
    """A value as JSON and texts have it: a layout's word, else itself."""
    return named_layout(value) if vary == "layout" and value is not None else value


def named_layout(value: int) -> str:
    """The word of a layout's number. InputError: it stands for none."""
    try:
        return layout.layout_of_number(value)
    except ValueError as error:
        raise InputError("layout", value, str(error), layout.HOW) from None


def agreeing_blocks(left: Geometry, right: Geometry) -> tuple[Slices, ...]:
    """The outputs of two sides of a case that must agree, the largest block first.

    Slices over (batch, *positions, filters) of either side; nearly always there is one block. The
    smaller side gets the prefix of the other's input, weights or batch.
    """
    # blocks of partners: the product of the runs along every axis
    axes = [[slice(0, min(left.batch, right.batch))]]
    for axis, size in enumerate(left.sizes):
        index = left.axis_reads(axis)[: right.outputs[axis]]
        short, long = sorted((size, right.sizes[axis]))
        same = np.logical_not(((index >= short) & (index < long)).any(axis=1))
        # else windows of the two sides start between each other
        aligned = right.around[axis][0] == left.around[axis][0]
        axes.append(_runs_of_true(same) if aligned else [])
    # filters read the same channels where they are in groups of the same number
    number = np.arange(min(left.filters, right.filters))
    groups = [number // (side.filters // side.groups) for side in (left, right)]
    axes += [_runs_of_true(groups[0] == groups[1])]
    return tuple(sorted(itertools.product(*axes), key=block_size, reverse=True))


def block_size(block: Slices) -> int:
    """How many outputs a block has."""
    return math.prod(part.stop - part.start for part in block)


def _runs_of_true(mask: np.ndarray) -> list[slice]:
    """The runs of True in a mask."""
    if len(mask) and mask.all():
        return [slice(0, len(mask))]
    # a run begins where the mask rises, and ends where it falls
    edges = np.flatnonzero(np.diff(mask.astype(np.int8), prepend=0, append=0))
    return [slice(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


Pairs = tuple[Pair, ...]


# Frameworks by name, and the target that runs each here. A target's name is taken too.
FRAMEWORKS = {
    "torch": "torch",
    "tensorflow": "tensorflow",
    "keras": "keras",
    "jax": "jax",
    "onnx": "onnxruntime",
    "caffe": "opencv",
}

PLAIN = {
    "torch": "PyTorch pads both ends equally",
    "tensorflow": "tf.nn pads by VALID, SAME or explicit numbers",
    "keras": "a Keras layer supports only valid and same",
    "jax": "JAX takes any padding",
    "onnx": "ONNX takes any padding: all numbers before, then all after",
    "caffe": "Caffe pads both ends equally",
}
# The same of transposed convolutions, whose padding trims their outputs.
PLAIN_TRANSPOSED = {
    "torch": "PyTorch cuts off as much before as after, less output_padding",
    "tensorflow": "tf.nn knows VALID and SAME; the rest is cut off here",
    "keras": "a Keras layer knows valid and same; the rest is cut off here",
    "jax": "the taps of JAX are in the opposite order of TensorFlow's and PyTorch's: w[::-1]",
    "onnx": "ONNX cuts off any numbers: all before, then all after",
}


@dataclass(frozen=True)
class Equivalent:
    """Says how ``framework`` reads the windows of a case; :func:`equivalent` makes it.

    ``padding``: zeros (or, in pooling, what stands for padding) before and after each axis, what is
    asked of the framework itself or added by hand. ``ceil_mode``: whether pooling must round sizes
    up. ``code``: the lines to write. ``note``: what they do, and at which sizes they hold.
    ``case``, on ``target``, has the same windows as the case that was given once its outputs are
    cropped by ``crop``, a slice for each spatial axis: the whole axis except in some Caffe models.
    """

    framework: str
    target: str
    padding: tuple[Pair, ...]
    ceil_mode: bool
    code: str
    note: str
    case: Case
    crop: tuple[slice, ...]


def equivalent(case: Case, framework: str) -> Equivalent:
    """What makes ``framework`` read the same windows as ``case``, whose length must be set.

    ``framework``: a name in :data:`FRAMEWORKS`, or its target's (``onnxruntime``, ``opencv``).
    InputError: an unknown name; an operator without windows; an open length, where padding depends
    on it; what a framework cannot say, with the reason. That the windows are the same can be
    checked by revealing them: ``probe order window``, or
    ``probe.order.windows.reveal_windows``.
    """
    names = {target: name for name, target in FRAMEWORKS.items()}
    framework = names.get(framework, framework)
    choice("framework", framework, FRAMEWORKS)
    what = case.operation
    if not what.windows:
        raise InputError("op", case.op, "it has no windows", "use a convolution or pooling")
    pairs, plain = case.pads(), PLAIN
    if what.transposed:
        plain = PLAIN_TRANSPOSED
        choice("framework", framework, plain)
    if framework == "caffe":
        return _caffe(case)
    if framework == "keras" and not what.depthwise and max(case.stride) > 1 < max(case.dilation):
        why = "Keras refuses strides together with dilations"
        raise InputError("dilation", by(case.dilation), why, "use a different framework")
    resolved = case.with_(padding=pairs, ceil_mode=case.rounds_up)
    shifted = _shifted(framework, case, pairs) if what.transposed else _sizes_said(case)
    note = "; ".join(filter(None, (plain[framework], shifted, _pooling(case))))
    whole = (slice(None),) * case.spatial_rank
    try:
        lines = _library_lines(framework, case, pairs)
    except Unsupported as error:
        raise InputError("framework", framework, str(error), "use a different framework") from None
    # where the code uses the case's convention by name, it holds at every size as the case does
    words = ('"SAME"', '"same"', '"SAME_UPPER"', '"SAME_LOWER"')
    named = isinstance(case.padding, str) and any(word in lines for word in words)
    return Equivalent(
        *(framework, FRAMEWORKS[framework], pairs, case.rounds_up, lines, note),
        *(case if named else resolved, whole),
    )


def ported_windows(case: Case, library: str) -> Equivalent | None:
    """How a target's library reads the windows of a case, whose length is set; None where it has no
    words for them, or they are read alike by all."""
    try:
        return equivalent(case, library)
    except InputError:
        return None


def _library_lines(framework: str, case: Case, pairs: Pairs) -> str:
    """The lines of a framework's library that run the case, without its bias.

    TensorFlow's names of paddings stand for the zeros that they give at every size.
    """
    backend = backends.get(FRAMEWORKS[framework])().described({}, "cpu", "")
    named: Padding = pairs
    if case.operation.transposed:  # whose padding is the same numbers at every size
        words = (word for word in ("same", "valid") if case.with_(padding=word).pads() == pairs)
        named = next(words, pairs)
        layer = case.with_(padding=named).spec() | {"bias": False}
        return "\n".join(backend.shown(layer, InputShape(layer, case.input_shape())))
    zeros = case.pool == "max" and case.pad_with == "zeros"  # which a Pad node has to bring
    if framework == "onnx" and set(case.dilation) == {1} and not zeros:
        named = case.padding  # it has words for both SAMEs, which hold at every size
    elif framework in ("tensorflow", "keras"):
        same = [around("same", 0, extent, extent, 1) for extent in case.effective_kernel]
        if case.pool:  # whose padding is not zeros, or counts them
            named = case.padding if case.pad_with == "nothing" else pairs
        elif case.padding == "same":
            named = "same"
        elif not any(map(any, pairs)):
            named = "valid"
        elif set(case.stride) == {1} and list(pairs) == same:
            named = "same"
    ceil = case.rounds_up and named not in BY_SIZE
    layer = case.with_(padding=named, ceil_mode=ceil).spec() | {"bias": False}
    return "\n".join(backend.shown(layer, InputShape(layer, case.input_shape())))


def _shifted(framework: str, case: Case, pairs: Pairs) -> str:
    """What the library's own words for as many outputs give instead: the same ones, some pixels
    further on."""
    if framework == "torch":
        library_cut = [max(-(-sum(pair) // 2), 0) for pair in pairs]
        more = [2 * both - sum(pair) for both, pair in zip(library_cut, pairs, strict=True)]
        words = f"padding={by(library_cut)}, output_padding={by(more)}"
    elif framework in ("tensorflow", "keras"):
        same = case.with_(padding="same").pads()
        if list(map(sum, same)) != list(map(sum, pairs)):
            return ""
        library_cut, words = [before for before, _ in same], "padding=same"
    else:
        return ""
    shift = [cut - before for cut, (before, _) in zip(library_cut, pairs, strict=True)]
    if not any(shift):
        return ""
    forward, backward = ([max(sign * step, 0) for step in shift] for sign in (1, -1))
    shifted = f"output {by(forward)} here is its output {by(backward)}"
    return f"{words} has as many outputs, shifted: {shifted}"


def _sizes_said(case: Case) -> str:
    """For which sizes the zeros are these ones."""
    if case.padding not in ("same", "same_lower") or set(case.stride) == {1}:
        return ""
    rules = []
    for axis, size in enumerate(case.spatial()):
        extent, stride = case.effective_kernel[axis], case.stride[axis]
        large = [size + extent * stride + more for more in range(stride)]
        rests = {case.windows.around(axis, n): n % stride for n in large}
        by_rest = sorted((rest, pair) for pair, rest in rests.items())
        rules.append(", ".join(f"{b}:{a} where size mod {stride} is {r}" for r, (b, a) in by_rest))
    return f"{case.padding.upper()} depends on the size: " + "; ".join(dict.fromkeys(rules))


def _pooling(case: Case) -> str:
    pool = case.pool
    if not pool:
        return ""
    parts = ["the last window reaches beyond the input"] if case.rounds_up else []
    if pool == "max":
        parts.append("padding is " + ("zeros" if case.pad_with == "zeros" else "-inf, not 0"))
    else:
        parts.append(f"padding is {'' if case.pad_with == 'zeros' else 'not '}counted")
    return "; ".join(parts)


def _caffe(case: Case) -> Equivalent:
    """Symmetric padding; where that is not enough, a larger one whose first outputs are dropped."""
    from probe.targets.backends.opencv import caffe_plan, layer_prototxt, slice_text

    try:
        axes = caffe_plan(case.spec(), case.spatial())
    except Unsupported as error:
        todo = "pad the input in a separate layer, or use a different framework"
        raise InputError("padding", case.padding_text, str(error), todo) from None
    pool, pads, keep = case.pool, [axis.pad for axis in axes], [axis.kept for axis in axes]
    around = tuple((pad, pad) for pad in pads)
    cropped = any(part != slice(None) for part in keep)
    changes = {"ceil_mode": True, "pad_with": "zeros" if pool == "avg" else "nothing"}
    resolved = case.with_(padding=around, **(changes if pool else {}))
    said = (
        *(PLAIN["caffe"], "the extra outputs are cropped" if cropped else ""),
        *("pooling rounds sizes up" if pool else "", _sizes_said(case), _pooling(case)),
    )
    note = "; ".join(filter(None, said))
    flat = (1,) * (case.spatial_rank == 1)  # of a one-dimensional case the height is 1
    dims = (1, case.in_channels, *flat, *case.spatial())
    text: str = layer_prototxt(case.spec(), dims, pads)
    lines, shown = text[text.index("layer") :].rstrip(), [slice_text(part) for part in keep]
    if set(shown) != {":"}:
        lines += f"\ny = net.forward()[{', '.join([':', ':', *[':'] * len(flat), *shown])}]"
    return Equivalent("caffe", "opencv", around, bool(pool), lines, note, resolved, tuple(keep))
