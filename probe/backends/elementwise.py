"""What stands between a network's windows, in NumPy: biases, scales, padding, activations.

One rounding an operation, in the container's dtype, so what rounds once at most has the bits that
every library gives. Scales, which a compiler may fuse with their shifts, and functions such as
``tanh`` are NumPy's own here; a backend that has a ``chain`` computes them with the library's.
"""

import numpy as np

#: ``op`` of the specs that are made here: see ``Layer.spec``.
OPS = ("activation", "bias", "normalisation", "pad", "extend", "add", "multiply", "concat")
#: Activations that round once at most, so that their bits are the same in every library.
EXACT = ("relu", "relu6", "leaky_relu")

SELU = (1.0507009873554805, 1.6732632423543772)


def extended_axis(spec, rank):
    """Along which of ``rank`` axes (batch, *spatial, channels) ``extend`` goes.

    ``axis`` of its spec is a spatial one, the last where it says none.
    """
    return 1 + spec.get("axis", -1) % (rank - 2)


def first(axis, count):
    """The index of so many positions of an axis."""
    return (slice(None),) * axis + (slice(count),)


def is_exact(spec):
    """Whether a spec's bits do not depend on who computes it."""
    if spec["op"] == "activation":
        return spec["activation"] in EXACT
    return spec["op"] in ("bias", "pad", "extend", "add", "multiply", "concat")


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
    named = ACTIVATIONS[spec["activation"]]

    def activation(x):
        with np.errstate(all="ignore"):
            return named(x, x.dtype.type(parameters.get("alpha", 1.0))).astype(x.dtype)

    return activation


def sigmoid(x, alpha):
    """1 / (1 + exp(-x))."""
    return 1 / (1 + np.exp(-x))


def softmax(x, alpha):
    """Over the channels, less their largest."""
    raised = np.exp(x - x.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)


def gelu(x, alpha):
    """x times the normal distribution's integral up to x."""
    import math

    wide = x.astype(np.float64)
    return wide * 0.5 * (1 + np.vectorize(math.erf, otypes=[np.float64])(wide / math.sqrt(2)))


def selu(x, alpha):
    """Klambauer and others, "Self-Normalizing Neural Networks", 2017."""
    scale, slope = (x.dtype.type(number) for number in SELU)
    return np.where(x > 0, scale * x, scale * (slope * np.expm1(x)))


ACTIVATIONS = {
    "relu": lambda x, alpha: np.maximum(x, 0),
    "relu6": lambda x, alpha: np.minimum(np.maximum(x, 0), 6),
    "leaky_relu": lambda x, alpha: np.where(x > 0, x, x * alpha),
    "hard_sigmoid": lambda x, alpha: np.minimum(np.maximum(x + 3, 0), 6) / 6,
    "sigmoid": sigmoid,
    "tanh": lambda x, alpha: np.tanh(x),
    "softmax": softmax,
    "elu": lambda x, alpha: np.where(x > 0, x, alpha * np.expm1(x)),
    "selu": selu,
    "softplus": lambda x, alpha: np.logaddexp(x, x.dtype.type(0)),
    "softsign": lambda x, alpha: x / (1 + np.abs(x)),
    "gelu": gelu,
    "silu": lambda x, alpha: x * sigmoid(x, alpha),
    "exp": lambda x, alpha: np.exp(x),
}
