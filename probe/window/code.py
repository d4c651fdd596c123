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
from probe.geometry import BY_SIZE, Padding, Pair, around

Pairs = tuple[Pair, ...]
Writer = Callable[[Case, Pairs], str]


def written(name: str) -> Writer:
    """The lines of a library that emits them: those of ``run``, without a bias.

    TensorFlow's names of paddings stand for the zeros that they give at every size.
    """

    def lines(case: Case, pairs: Pairs) -> str:
        backend = backends.get(name)().described({}, "cpu", "")
        named: Padding = tensorflow_word(case, pairs).lower() or pairs
        if name == "onnxruntime":  # which has words for both, at every size
            named = case.padding
        elif case.pool:  # whose padding is no zeros, or counts them
            named = case.padding if case.pad_with == "nothing" else pairs
        ceil = case.rounds_up and named not in BY_SIZE
        program = programs.case(case.with_(padding=named, ceil_mode=ceil).spec() | {"bias": False})
        return "\n".join(backend.shown(program, Shapes(program, case.input_shape())))

    return lines


def tensorflow_word(case: Case, pairs: Pairs) -> str:
    """``SAME`` or ``VALID`` where that gives these zeros at every size; else empty."""
    if not any(map(any, pairs)):
        return "SAME" if case.padding == "same" else "VALID"
    unit = set(case.stride) == {1}
    same = [around("same", 0, extent, extent, 1) for extent in case.effective_kernel]
    return "SAME" if case.padding == "same" or (unit and list(pairs) == same) else ""


CONVOLUTIONS: dict[str, Writer] = {
    "torch": written("torch"),
    "tensorflow": written("tensorflow"),
    "keras": written("keras"),
    "jax": written("jax"),
    "onnx": written("onnxruntime"),
}
POOLING: dict[str, Writer] = {
    "torch": written("torch"),
    "tensorflow": written("tensorflow"),
    "keras": written("keras"),
    "jax": written("jax"),
    "onnx": written("onnxruntime"),
}


def caffe_layer(case: Case, pads: Sequence[int], keep: Sequence[slice]) -> str:
    """The prototxt of a layer, and the crop of its outputs where there is one."""
    from probe.backends import caffe

    layer, shown = prototxt(case, pads), [caffe.shown(part) for part in keep]
    if set(shown) == {":"}:
        return layer
    flat = [":"] * (case.spatial_rank == 1)
    return f"{layer}\ny = net.forward()[{', '.join([':', ':', *flat, *shown])}]"


def prototxt(case: Case, pads: Sequence[int]) -> str:
    """One layer of a Caffe model; of a one-dimensional case the height is 1."""
    from probe.backends import caffe

    dims = (1, case.in_channels, *((1,) * (case.spatial_rank == 1)), *case.spatial())
    text: str = caffe.prototxt(case.spec(), dims, list(pads))
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
