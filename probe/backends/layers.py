"""Layers that libraries compose alike: what stands between windows, in NumPy's words, and pools.

Biases, scales, padding and activations are computed here in NumPy too:
one rounding an operation, in the container's dtype, so what rounds once at most has the bits that
every library gives. Scales, which a compiler may fuse with their shifts, and functions such as
``tanh`` are NumPy's own here; a backend that has a ``program`` computes them with the library's.

A pool is composed from a library's padding and its pooling of whole windows. Its spec is a
depthwise one without weights, with two entries more: ``ceil_mode`` (a last window may reach beyond
the padded input, as long as it starts in the input or before it) and ``pad_with``: what padding
puts into a window: ``nothing`` (no maximum, not counted in an average) or ``zeros`` (a maximum of
0, counted). What lies beyond the padding is never counted.
"""

from collections import namedtuple

import numpy as np

from probe import activations
from probe.backends.contract import Unsupported
from probe.geometry import BY_SIZE, WindowSizes
from probe.operation import operation_of_spec

# How a library whose arrays are channels last, as NumPy's, is written. ``library``: a column of
# ``probe.activations``; ``module``: where NumPy's functions are, such as ``jnp``;
# ``padded(x, pairs, value)``: text.
Dialect = namedtuple("Dialect", "library module padded")


def extended_axis(spec, rank):
    """Along which of ``rank`` axes (batch, *spatial, channels) ``extend`` goes.

    ``axis`` of its spec is a spatial one, the last where it says none.
    """
    return 1 + spec.get("axis", -1) % (rank - 2)


def numpy_expression(layer, xs, operands, rank, dialect):
    """The expression of what stands between windows, in a library whose arrays are channels last.

    ``xs``: names of the values that it reads; ``operands``: of its operands. ``rank``: of the
    spatial axes.
    """
    op, parameters, x = layer["op"], layer.get("parameters", {}), xs[0]
    library, module, padded = dialect
    if op in ("add", "multiply"):
        return (" + " if op == "add" else " * ").join(xs)
    if op == "concat":
        return "%s.concatenate([%s], axis=%d)" % (module, ", ".join(xs), layer["axis"])
    if op == "product":
        turned = "%s.swapaxes(%s, -1, -2)" % (module, xs[1])
        return "%s.matmul(%s, %s)" % (module, x, turned if layer["transposed"] else xs[1])
    if op == "bias":
        return "%s + %s" % (x, operands["b"])
    if op == "normalisation":
        return "%s * %s + %s" % (x, operands["scale"], operands["shift"])
    if op == "pad":
        return padded(x, layer["padding"], parameters.get("value", 0.0))
    if op == "extend":
        axis = extended_axis(layer, rank + 2)
        index = ":, " * axis + ":%d" % layer["kept"]
        parts = module, x, index, operands["tail"], axis
        return "%s.concatenate([%s[%s], %s], axis=%d)" % parts
    alpha = parameters.get("alpha", 1.0)
    return activations.spelling_lines(layer["activation"], library, alpha, x)[-1]


def numpy_function(spec, arrays):
    """f(x) of channels-last arrays for a spec; ``arrays``: its operands by name.

    ``add`` and ``multiply`` take two arrays, ``concat`` any number.
    """
    op, parameters = spec["op"], spec.get("parameters", {})
    if op in ("add", "multiply"):
        return np.add if op == "add" else np.multiply
    if op == "concat":
        return lambda *xs: np.concatenate(xs, axis=spec["axis"])
    if op == "bias":
        return lambda x: x + arrays["b"]
    if op == "normalisation":
        return lambda x: x * arrays["scale"] + arrays["shift"]
    if op == "pad":
        pairs = [(0, 0)] + [tuple(pair) for pair in spec["padding"]] + [(0, 0)]
        value = parameters.get("value", 0.0)
        return lambda x: np.pad(x, pairs, "constant", constant_values=value)
    if op == "extend":
        axis = extended_axis(spec, arrays["tail"].ndim)
        index = (slice(None),) * axis + (slice(spec["kept"]),)
        return lambda x: np.concatenate([x[index], arrays["tail"]], axis=axis)
    return activations.numpy_activation(spec["activation"], parameters.get("alpha", 1.0))


def pool_kind(spec):
    """``max`` or ``avg`` of a pooling spec; empty for any other operator."""
    return operation_of_spec(spec).pool


def spans(spec, sizes):
    """Returns the Span of every axis. Unsupported: one needs a size that is open, as in a graph."""
    needed = spec["ceil_mode"] or spec["padding"] in BY_SIZE
    if needed and any(size is None for size in sizes):
        raise Unsupported(
            "ceil_mode and SAME by hand require sizes, which a graph does not fix: use mode=eager"
        )
    return WindowSizes.of(spec).spans([None if size is None else int(size) for size in sizes])


# What ``composed_pool`` needs of a library, as functions of its own values. ``pad(x, pairs,
# value)``: pairs of the spatial axes. ``whole(x)``: pooling of whole windows, without padding.
# ``ones(x)``: as x, all 1. ``native(x, spans)``: the library's own padded pooling, or None.
PoolingLibrary = namedtuple("PoolingLibrary", "pad whole ones native")


def composed_pool(spec, library, sizes, x):
    """The pool of a value x of these spatial sizes.

    What the library does not support is padded by hand: a maximum with -inf or 0; an average that
    leaves padding out is divided by the average of ones.
    """
    axes = spans(spec, sizes)
    y = library.native(x, axes)
    if y is not None:
        return y
    pads = [(span.before, span.after) for span in axes]
    beyond = [(0, span.beyond) for span in axes]
    zeros, padded, ragged = spec["pad_with"] == "zeros", any(map(any, pads)), any(map(any, beyond))

    def around(x, inside, outside):
        if inside == outside:
            both = [(before, after + more) for (before, after), (_, more) in zip(pads, beyond)]
            return library.pad(x, both, inside) if padded or ragged else x
        x = library.pad(x, pads, inside) if padded else x
        return library.pad(x, beyond, outside) if ragged else x

    if pool_kind(spec) == "max":
        nothing = -float("inf")
        return library.whole(around(x, 0.0 if zeros else nothing, nothing))
    mean = library.whole(around(x, 0.0, 0.0))
    if not ragged and (zeros or not padded):
        return mean
    return mean / library.whole(around(library.ones(x), float(zeros), 0.0))
