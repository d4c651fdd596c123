"""The code lines by which each framework reads given windows: convolutions and pooling.

The lines run as they are, with ``x`` and ``w`` in the framework's own layout and its module under
the usual name (``F`` and ``torch``, ``tf``, ``keras``, ``lax`` and ``jnp``, ``helper`` of onnx).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from probe import backends
from probe import program as programs
from probe.backends import pooling
from probe.backends.source import Shapes
from probe.case import Case
from probe.geometry import Pair, Span, around

Pairs = tuple[Pair, ...]
Writer = Callable[[Case, Pairs], str]


@dataclass(frozen=True)
class Text:
    """An expression in a framework's code; the quotient of two is one."""

    text: str

    def __truediv__(self, other: Text) -> Text:
        return Text(f"{self.text} / {other.text}")


def written(name: str) -> Writer:
    """The lines of a library that emits them: those of ``run``, without a bias."""

    def lines(case: Case, pairs: Pairs) -> str:
        backend = backends.get(name)().described({}, "cpu", "")
        program = programs.case(case.spec() | {"bias": False})
        found = backend.emit(program, Shapes(program, case.input_shape()))
        return "\n".join(found.run)

    return lines


def tensorflow_convolution(case: Case, pairs: Pairs) -> str:
    """``tf.nn`` with SAME, VALID, or explicit padding, which ``tf.pad`` adds for all but conv2d."""
    word, rank = tensorflow_word(case, pairs), case.spatial_rank
    dilated, lines = set(case.dilation) != {1}, []
    inside = str([[0, 0], *map(list, pairs), [0, 0]])
    direct = case.op == "conv2d" or (case.op == "depthwise_conv2d" and not dilated)
    if not word and not direct:
        lines, word = [f"x = tf.pad(x, {inside})"], "VALID"
    stride, dilation = list(case.stride), list(case.dilation)
    name, words = f"conv{rank}d", {"strides": str(stride)}
    if case.op == "conv1d":
        words = {"stride": str(stride[0])}
    elif case.op == "depthwise_conv2d":
        name, words = case.op, {"strides": str([1, *stride, 1])}
    elif rank == 3:
        name = "convolution"
    words["padding"] = f'"{word}"' if word else inside
    words |= {"dilations": str(dilation[0] if case.op == "conv1d" else dilation)} if dilated else {}
    return "\n".join([*lines, f"y = tf.nn.{name}(x, w, {keywords(words)})"])


def tensorflow_word(case: Case, pairs: Pairs) -> str:
    """``SAME`` or ``VALID`` where that gives these zeros at every size; else empty."""
    if not any(map(any, pairs)):
        return "SAME" if case.padding == "same" else "VALID"
    unit = set(case.stride) == {1}
    same = [around("same", 0, extent, extent, 1) for extent in case.effective_kernel]
    return "SAME" if case.padding == "same" or (unit and list(pairs) == same) else ""


def keras_convolution(case: Case, pairs: Pairs) -> str:
    """A layer with ``same`` or ``valid``, behind a ZeroPadding layer for explicit padding."""
    word, rank, lines = tensorflow_word(case, pairs).lower(), case.spatial_rank, []
    if not word:
        around, word = (str(pairs) if rank > 1 else str(pairs[0])), "valid"
        lines = [f"x = keras.layers.ZeroPadding{rank}D({around})(x)"]
    name, first = f"Conv{rank}D", [str(case.filters)]
    if case.op == "depthwise_conv2d":
        name, first = "DepthwiseConv2D", []
    words = {"strides": one_or_all(case.stride), "padding": f'"{word}"'}
    words |= {"dilation_rate": one_or_all(case.dilation)} if set(case.dilation) != {1} else {}
    if case.op == "depthwise_conv2d":
        words["depth_multiplier"] = str(case.filters // case.in_channels)
    elif case.groups > 1:
        words["groups"] = str(case.groups)
    given = ", ".join([*first, one_or_all(case.kernel), keywords(words)])
    return "\n".join([*lines, f"y = keras.layers.{name}({given})(x)"])


def jax_convolution(case: Case, pairs: Pairs) -> str:
    """``lax.conv_general_dilated``, which takes a pair for each axis."""
    layout = {1: '("NWC", "WIO", "NWC")', 2: '("NHWC", "HWIO", "NHWC")'}
    words = {"window_strides": str(case.stride), "padding": str(pairs)}
    words |= {"rhs_dilation": str(case.dilation)} if set(case.dilation) != {1} else {}
    words["dimension_numbers"] = layout.get(case.spatial_rank, '("NDHWC", "DHWIO", "NDHWC")')
    words |= {"feature_group_count": str(case.groups)} if case.groups > 1 else {}
    return f"y = lax.conv_general_dilated(x, w, {keywords(words)})"


def onnx_node(case: Case, pairs: Pairs) -> str:
    """A Conv, MaxPool or AveragePool node with ``pads``, or ``auto_pad`` where the case has it."""
    pool = case.pool
    name = {"max": "MaxPool", "avg": "AveragePool"}.get(pool, "Conv")
    auto = {"same": "SAME_UPPER", "same_lower": "SAME_LOWER"}.get(str(case.padding))
    dilated = set(case.dilation) != {1}
    words = {"kernel_shape": str(list(case.kernel)), "strides": str(list(case.stride))}
    if auto and not dilated:
        words["auto_pad"] = f'"{auto}"'
    elif any(map(any, pairs)):
        words["pads"] = str([before for before, _ in pairs] + [after for _, after in pairs])
    words |= {"dilations": str(list(case.dilation))} if dilated else {}
    words |= {"ceil_mode": "1"} if case.rounds_up else {}
    words |= {"count_include_pad": "1"} if pool == "avg" and case.pad_with == "zeros" else {}
    words |= {"group": str(case.groups)} if case.groups > 1 and not pool else {}
    given = '["x"]' if pool else '["x", "w"]'
    node = f'helper.make_node("{name}", {given}, ["y"], {keywords(words)})'
    if pool == "max" and case.pad_with == "zeros" and any(map(any, pairs)):
        inner = [0, 0, *(before for before, _ in pairs), 0, 0, *(after for _, after in pairs)]
        plain = onnx_node(case.with_(padding="valid", pad_with="nothing"), ((0, 0),) * len(pairs))
        pads = f'helper.make_node("Pad", ["image", "pads"], ["x"])  # pads: {inner}'
        return f"{pads}\n{plain}"
    return node


def tensorflow_pooling(case: Case, pairs: Pairs) -> str:
    """``tf.nn``'s pooling: SAME and VALID, or ``tf.pad`` before it."""
    name = f"tf.nn.{case.op}"
    steps = f"{one_or_all(case.kernel)}, {one_or_all(case.stride)}"
    word = str(case.padding).upper() if case.padding in ("same", "valid") else ""
    if word and not case.rounds_up and (word == "VALID" or case.pad_with == "nothing"):
        return f'y = {name}(x, {steps}, padding="{word}")'

    def pad(x: Text, around: Pairs, value: float) -> Text:
        fill = f", constant_values={number(value)}" if value else ""
        return Text(f"tf.pad({x.text}, {[[0, 0], *map(list, around), [0, 0]]}{fill})")

    return pooled(
        case,
        pooling.Library(
            pad,
            lambda x: Text(f'{name}({x.text}, {steps}, padding="VALID")'),
            lambda x: Text(f"tf.ones_like({x.text})"),
        ),
    )


def keras_pooling(case: Case, pairs: Pairs) -> str:
    """A pooling layer: ``same`` and ``valid``, or ``keras.ops.pad`` before it."""
    kind = {"max": "MaxPooling", "avg": "AveragePooling"}[case.pool]
    layer = f"keras.layers.{kind}{case.spatial_rank}D"
    steps = f"{one_or_all(case.kernel)}, {one_or_all(case.stride)}"
    word = str(case.padding) if case.padding in ("same", "valid") else ""
    if word and not case.rounds_up and (word == "valid" or case.pad_with == "nothing"):
        return f'y = {layer}({steps}, padding="{word}")(x)'

    def pad(x: Text, around: Pairs, value: float) -> Text:
        fill = f", constant_values={number(value)}" if value else ""
        return Text(f"keras.ops.pad({x.text}, {[(0, 0), *around, (0, 0)]}{fill})")

    return pooled(
        case,
        pooling.Library(
            pad,
            lambda x: Text(f'{layer}({steps}, padding="valid")({x.text})'),
            lambda x: Text(f"keras.ops.ones_like({x.text})"),
        ),
    )


def jax_pooling(case: Case, pairs: Pairs) -> str:
    """``lax.reduce_window``, which takes a pair for each axis; its padding is the start value."""
    largest = case.pool == "max"
    start = "-jnp.inf, lax.max" if largest else "0.0, lax.add"
    steps = f"{(1, *case.kernel, 1)}, {(1, *case.stride, 1)}"

    def reduce(x: Text, around: Sequence[tuple[int, int]]) -> Text:
        words = f"padding={((0, 0), *around, (0, 0))}"
        if set(case.dilation) != {1}:
            words += f", window_dilation={(1, *case.dilation, 1)}"
        return Text(f"lax.reduce_window({x.text}, {start}, {steps}, {words})")

    def native(x: Text, found: Sequence[Span]) -> Text | None:
        if not largest or case.pad_with == "zeros":
            return None
        return reduce(x, [(one.before, one.after + one.beyond) for one in found])

    def pad(x: Text, around: Pairs, value: float) -> Text:
        fill = f", constant_values={number(value)}" if value else ""
        return Text(f"jnp.pad({x.text}, {((0, 0), *around, (0, 0))}{fill})")

    def whole(x: Text) -> Text:
        total = reduce(x, [(0, 0)] * case.spatial_rank)
        return total if largest else Text(f"({total.text} / {case.summands})")

    ones = lambda x: Text(f"jnp.ones_like({x.text})")  # noqa: E731
    return pooled(case, pooling.Library(pad, whole, ones, native))


def pooled(case: Case, library: pooling.Library) -> str:
    """One assignment: what ``pooling.pool`` makes of the library, as text."""
    found: Text = pooling.pool(case.spec(), library, case.spatial())(Text("x"))
    return f"y = {found.text}"


CONVOLUTIONS: dict[str, Writer] = {
    "torch": written("torch"),
    "tensorflow": tensorflow_convolution,
    "keras": keras_convolution,
    "jax": jax_convolution,
    "onnx": onnx_node,
}
POOLING: dict[str, Writer] = {
    "torch": written("torch"),
    "tensorflow": tensorflow_pooling,
    "keras": keras_pooling,
    "jax": jax_pooling,
    "onnx": onnx_node,
}


def caffe_layer(case: Case, pads: Sequence[int], keep: Sequence[slice]) -> str:
    """The prototxt of a layer, and the crop of its outputs where there is one."""
    layer = prototxt(case, pads)
    if all(part == slice(None) for part in keep):
        return layer
    shown = [":" if part == slice(None) else f"{part.start}:{part.stop}" for part in keep]
    flat = [":"] * (case.spatial_rank == 1)
    return f"{layer}\ny = net.forward()[{', '.join([':', ':', *flat, *shown])}]"


def prototxt(case: Case, pads: Sequence[int]) -> str:
    """One layer of a Caffe model; of a one-dimensional case the height is 1."""
    from probe.backends import caffe_layers

    dims = (1, case.in_channels, *((1,) * (case.spatial_rank == 1)), *case.spatial())
    text: str = caffe_layers.prototxt(case.spec(), dims, list(pads))
    return text[text.index("layer") :].rstrip()


def number(value: float) -> str:
    """A number in Python's words, infinity too."""
    return f'float("{value}")' if math.isinf(value) else str(value)


def keywords(words: dict[str, str]) -> str:
    """``name=value`` pairs of a call."""
    return ", ".join(f"{name}={value}" for name, value in words.items())


def one_or_all(entries: Sequence[int]) -> str:
    """``2`` where all axes have the same, else ``(1, 2)``."""
    return str(entries[0]) if len(set(entries)) == 1 else str(tuple(entries))


def flat_backwards(pairs: Sequence[tuple[int, int]]) -> str:
    """Pairs in the order of ``F.pad``: the last axis first."""
    return str(tuple(n for pair in pairs[::-1] for n in pair))
