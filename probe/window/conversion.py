"""Finds the padding with which another framework reads the windows of a case.

The code lines run as they are, with ``x`` and ``w`` in the framework's own layout and its module
under the usual name (``F`` and ``torch``, ``tf``, ``keras``, ``lax`` and ``jnp``, ``helper`` of
onnx).
"""

from __future__ import annotations

from dataclasses import dataclass

from probe import backends
from probe.arguments import by, choice
from probe.backends.contract import Unsupported
from probe.backends.source import ValueShapes
from probe.case import Case
from probe.errors import InputError
from probe.geometry import BY_SIZE, Padding, Pair, around
from probe.operation import case_program

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
    """Returns what makes ``framework`` read the same windows as ``case``, whose length must be set.

    ``framework``: a name in :data:`FRAMEWORKS`, or its target's (``onnxruntime``, ``opencv``).
    InputError: an unknown name; an operator without windows; an open length, where padding depends
    on it; what a framework cannot say, with the reason. That the windows are the same can be
    checked by revealing them: ``probe window``, or ``probe.summation.windows.reveal_windows``.
    """
    names = {target: name for name, target in FRAMEWORKS.items()}
    framework = names.get(framework, framework)
    choice("framework", framework, FRAMEWORKS)
    what = case.operation
    if not what.windows:
        raise InputError("op", case.op, "it has no windows", "use a convolution or pooling")
    pairs = case.pads()
    if framework == "caffe":
        return _caffe(case, pairs)
    if framework == "keras" and not what.depthwise and max(case.stride) > 1 < max(case.dilation):
        why = "Keras refuses strides together with dilations"
        raise InputError("dilation", by(case.dilation), why, "use a different framework")
    resolved = case.with_(padding=pairs, ceil_mode=case.rounds_up)
    note = "; ".join(filter(None, (PLAIN[framework], _sizes_said(case, pairs), _pooling(case))))
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


def _library_lines(framework: str, case: Case, pairs: Pairs) -> str:
    """Returns the lines of a framework's library that run the case, without its bias.

    TensorFlow's names of paddings stand for the zeros that they give at every size.
    """
    backend = backends.get(FRAMEWORKS[framework])().described({}, "cpu", "")
    named: Padding = pairs
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
    program = case_program(case.with_(padding=named, ceil_mode=ceil).spec() | {"bias": False})
    return "\n".join(backend.shown(program, ValueShapes(program, case.input_shape())))


def _sizes_said(case: Case, pairs: tuple[Pair, ...]) -> str:
    """For which sizes the zeros are these ones."""
    if case.padding not in ("same", "same_lower") or set(case.stride) == {1}:
        return ""
    told = []
    for axis, size in enumerate(case.spatial()):
        extent, stride = case.effective_kernel[axis], case.stride[axis]
        large = [size + extent * stride + more for more in range(stride)]
        found = {case.windows.around(axis, n): n % stride for n in large}
        by_rest = sorted((rest, pair) for pair, rest in found.items())
        told.append(", ".join(f"{b}:{a} where size mod {stride} is {r}" for r, (b, a) in by_rest))
    return f"{case.padding.upper()} depends on the size: " + "; ".join(dict.fromkeys(told))


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


def _caffe(case: Case, pairs: tuple[Pair, ...]) -> Equivalent:
    """Symmetric padding; where that is not enough, a larger one whose first outputs are dropped."""
    from probe.backends.opencv import caffe_axes, layer_prototxt, slice_text

    pool, pads, keep = case.pool, [], []
    for one in caffe_axes(case.spec(), case.spatial()):
        pads.append(one.pad)
        keep.append(one.kept)
    around = tuple((pad, pad) for pad in pads)
    _check_caffe(case, pairs, around)
    cropped = any(part != slice(None) for part in keep)
    changes = {"ceil_mode": True, "pad_with": "zeros" if pool == "avg" else "nothing"}
    resolved = case.with_(padding=around, **(changes if pool else {}))
    said = (
        *(PLAIN["caffe"], "the extra outputs are cropped" if cropped else ""),
        *("pooling rounds sizes up" if pool else "", _sizes_said(case, pairs), _pooling(case)),
    )
    note = "; ".join(filter(None, said))
    flat = (1,) * (case.spatial_rank == 1)  # of a one-dimensional case the height is 1
    dims = (1, case.in_channels, *flat, *case.spatial())
    text: str = layer_prototxt(case.spec(), dims, pads)
    lines, shown = text[text.index("layer") :].rstrip(), [slice_text(part) for part in keep]
    if set(shown) != {":"}:
        lines += f"\ny = net.forward()[{', '.join([':', ':', *[':'] * len(flat), *shown])}]"
    return Equivalent("caffe", "opencv", around, bool(pool), lines, note, resolved, tuple(keep))


def _check_caffe(case: Case, pairs: tuple[Pair, ...], around: tuple[Pair, ...]) -> None:
    """InputError for pooling whose padding no Caffe layer has."""
    pool, padded = case.pool, any(map(any, pairs))
    if not pool:
        return
    todo = "pad the input in a separate layer, or use a different framework"
    zeros = case.pad_with == "zeros"
    if any(pad >= extent for (pad, _), extent in zip(around, case.effective_kernel, strict=True)):
        why = "Caffe's pooling padding must be smaller than its window"
        raise InputError("padding", case.padding_text, why, todo)
    if pool == "max" and zeros and padded:
        raise InputError("pad_with", "zeros", "Caffe's maximum leaves padding out", todo)
    if pool == "avg" and around != (pairs if zeros else ((0, 0),) * len(pairs)):
        why = "Caffe's average counts only its own symmetric padding"
        raise InputError("padding", case.padding_text, why, todo)
