"""The code lines by which each framework reads given windows: convolutions and pooling.

The lines run as they are, with ``x`` and ``w`` in the framework's own layout and its module under
the usual name (``F`` and ``torch``, ``tf``, ``keras``, ``lax`` and ``jnp``, ``helper`` of onnx).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from probe import backends
from probe import program as programs
from probe.backends.source import Shapes
from probe.case import Case
from probe.geometry import Padding, Pair, around

Pairs = tuple[Pair, ...]
Writer = Callable[[Case, Pairs], str]


def written(name: str) -> Writer:
    """The lines of a library that emits them: those of ``run``, without a bias.

    TensorFlow's names of paddings stand for the zeros that they give at every size.
    """

    def lines(case: Case, pairs: Pairs) -> str:
        backend = backends.get(name)().described({}, "cpu", "")
        named: Padding = tensorflow_word(case, pairs).lower() or pairs
        if case.pool:  # whose padding is no zeros, or counts them
            own = case.padding in ("same", "valid") and case.pad_with == "nothing"
            named = case.padding if own else pairs
        case = case.with_(padding=named, ceil_mode=case.rounds_up, bias=None)
        program = programs.case(case.spec())
        return "\n".join(backend.plain(program, Shapes(program, case.input_shape())))

    return lines


def tensorflow_word(case: Case, pairs: Pairs) -> str:
    """``SAME`` or ``VALID`` where that gives these zeros at every size; else empty."""
    if not any(map(any, pairs)):
        return "SAME" if case.padding == "same" else "VALID"
    unit = set(case.stride) == {1}
    same = [around("same", 0, extent, extent, 1) for extent in case.effective_kernel]
    return "SAME" if case.padding == "same" or (unit and list(pairs) == same) else ""


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


CONVOLUTIONS: dict[str, Writer] = {
    "torch": written("torch"),
    "tensorflow": written("tensorflow"),
    "keras": written("keras"),
    "jax": written("jax"),
    "onnx": onnx_node,
}
POOLING: dict[str, Writer] = {
    "torch": written("torch"),
    "tensorflow": written("tensorflow"),
    "keras": written("keras"),
    "jax": written("jax"),
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
