"""What stands between a network's windows, in NumPy: biases, scales, padding, activations.

One rounding an operation, in the container's dtype, so what rounds once at most has the bits that
every library gives. Scales, which a compiler may fuse with their shifts, and functions such as
``tanh`` are NumPy's own here; a backend that has a ``chain`` computes them with the library's.
"""

import numpy as np

from probe import activations


def extended_axis(spec, rank):
    """Along which of ``rank`` axes (batch, *spatial, channels) ``extend`` goes.

    ``axis`` of its spec is a spatial one, the last where it says none.
    """
    return 1 + spec.get("axis", -1) % (rank - 2)


def first(axis, count):
    """The index of so many positions of an axis."""
    return (slice(None),) * axis + (slice(count),)


def text(layer, x, given, rank, library, padded, join):
    """The expression of what stands between windows, in a library whose arrays are channels last.

    ``given``: names of its operands. ``rank``: of the spatial axes. ``library``: a column of
    ``probe.activations``. ``padded(x, pairs, value)``: text. ``join``: concatenates along ``axis``.
    """
    op, parameters = layer["op"], layer["parameters"]
    if op == "bias":
        return "%s + %s" % (x, given["b"])
    if op == "normalisation":
        return "%s * %s + %s" % (x, given["scale"], given["shift"])
    if op == "pad":
        return padded(x, layer["padding"], parameters.get("value", 0.0))
    if op == "extend":
        axis = extended_axis(layer, rank + 2)
        kept = ":, " * axis + ":%d" % layer["kept"]
        return "%s([%s[%s], %s], axis=%d)" % (join, x, kept, given["tail"], axis)
    return activations.lines(layer["activation"], library, parameters.get("alpha", 1.0), x)[-1]


def function(spec, arrays):
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
        kept = first(axis, spec["kept"])
        return lambda x: np.concatenate([x[kept], arrays["tail"]], axis=axis)
    return activations.function(spec["activation"], parameters.get("alpha", 1.0))
