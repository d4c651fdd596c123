"""Computes in NumPy what stands between windows: biases, scales, padding, activations.

One rounding an operation, in the container's dtype, so what rounds once at most has the bits that
every library gives. Scales, which a compiler may fuse with their shifts, and functions such as
``tanh`` are NumPy's own here; a backend that has a ``chain`` computes them with the library's.
"""

from collections import namedtuple

import numpy as np

from probe import activations

#: How a library whose arrays are channels last, as NumPy's, is written. ``library``: a column of
#: ``probe.activations``; ``module``: where NumPy's functions are, such as ``jnp``;
#: ``padded(x, pairs, value)``: text.
Dialect = namedtuple("Dialect", "library module padded")


def extended_axis(spec, rank):
    """Along which of ``rank`` axes (batch, *spatial, channels) ``extend`` goes.

    ``axis`` of its spec is a spatial one, the last where it says none.
    """
    return 1 + spec.get("axis", -1) % (rank - 2)


def leading_index(axis, count):
    """Returns the index of that many positions of an axis."""
    return (slice(None),) * axis + (slice(count),)


def numpy_expression(layer, xs, given, rank, dialect):
    """The expression of what stands between windows, in a library whose arrays are channels last.

    ``xs``: names of the values that it reads, ``given``: of its operands. ``rank``: of the spatial
    axes.
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
        return "%s + %s" % (x, given["b"])
    if op == "normalisation":
        return "%s * %s + %s" % (x, given["scale"], given["shift"])
    if op == "pad":
        return padded(x, layer["padding"], parameters.get("value", 0.0))
    if op == "extend":
        axis = extended_axis(layer, rank + 2)
        kept = ":, " * axis + ":%d" % layer["kept"]
        parts = module, x, kept, given["tail"], axis
        return "%s.concatenate([%s[%s], %s], axis=%d)" % parts
    return activations.spelling_lines(
        layer["activation"], library, parameters.get("alpha", 1.0), x
    )[-1]


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
        kept = leading_index(axis, spec["kept"])
        return lambda x: np.concatenate([x[kept], arrays["tail"]], axis=axis)
    return activations.numpy_activation(spec["activation"], parameters.get("alpha", 1.0))
