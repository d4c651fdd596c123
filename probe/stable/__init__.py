"""Convolutions and dense layers whose every output depends on its own window alone, bit for bit.

Each output is one chain of the library's elementwise operations: a product for every weight,
rounded, then added to the sum of those before it, kernel positions row by row, channels innermost;
the bias is added last. An elementwise operation rounds every element by itself, so no length,
batch, thread count or set of filters moves a bit, and both libraries give the bits of the target
``reference``. It is also the slowest way to compute a convolution.

``accumulate="float64"`` (of float32 operands; ``"float32"`` of 16-bit ones): products and sums are
kept in the wider format, in which a product is exact, and rounded once at the end. That costs twice
the memory traffic, is nearer to the exact sum, and holds where a compiler fuses multiplications
with additions as it likes (XLA does; it then moves bits of the plain chain): of an exact product a
fused multiply-add gives the bits of the two operations.

Gradients. With respect to the input they are such a convolution themselves: positions whose window
of output gradients is the same have the same bits, whatever the length. With respect to the weights
they are sums over all positions, taken by the library's matrix product: those change with the
length by what they are.

The functions are in ``stable.tensorflow`` and ``stable.torch``; layers for models in
``stable.keras_layers`` and ``stable.torch_modules``, whose ``stabilized`` replaces those of a model
and says what it left: see ``stable.report``.
"""

from importlib import import_module


def conv(x, w, b=None, stride=1, dilation=1, groups=1, padding="valid", accumulate=None):
    """A prefix-stable convolution of ``x``, in the layout and by the operations of its own library.

    TensorFlow: x (batch, *spatial, channels), w (*kernel, channels / groups, filters).
    PyTorch: x (batch, channels, *spatial), w (filters, channels / groups, *kernel).
    Both: b (filters,) or None; one to three spatial axes; a depthwise convolution has as many
    groups as channels. ``stride`` and ``dilation``: a number, or one an axis. ``padding``:
    ``valid``, ``same`` (TensorFlow's, also with strides), ``same_lower`` (the odd zero goes
    before), or a pair of zeros before and after, one an axis.
    ``accumulate``: a wider format, see above; None is x's own.

    Returns the outputs in the same layout and x's dtype. Differentiable. Raises ValueError.
    """
    return _library(x).conv(x, w, b, stride, dilation, groups, padding, accumulate)


def dense(x, w, b=None, accumulate=None):
    """A dense layer whose rows don't depend on each other: ``x @ w + b`` (PyTorch: ``w.T``).

    x (..., in_channels); w (in_channels, filters) in TensorFlow, (filters, in_channels) in PyTorch;
    b (filters,) or None. Products are added in the order of the channels, the bias last.
    ``accumulate``: as of ``conv``. Returns (..., filters) in x's dtype. Differentiable; the weight
    gradient is a sum over all rows. Raises ValueError.
    """
    return _library(x).dense(x, w, b, accumulate)


def normalised(x, mean, variance, scale, shift, epsilon, axis, accumulate=None):
    """Batch normalisation by given means and variances, as at inference.

    ``factor = scale / sqrt(variance + epsilon)``, rounded to x's dtype, and ``offset = shift -
    mean * factor`` are made once, one each for every index of ``axis``; an output is ``x * factor +
    offset``, in two roundings, and depends on nothing but its element. ``scale``, ``shift``: None
    is 1 and 0. ``accumulate``: as of ``conv``; products are exact there too. Returns x's shape and
    dtype. Raises ValueError.
    """
    given = x, mean, variance, scale, shift, epsilon, axis, accumulate
    return _library(x).normalised(*given)


def _library(x):
    """The module for a tensor's library."""
    root = type(x).__module__.split(".")[0]
    if root not in ("torch", "tensorflow", "keras"):
        there = "a tensor of TensorFlow or PyTorch"
        raise ValueError(f"x={root}.{type(x).__name__}: no library of ours; give {there}")
    name = "torch" if root == "torch" else "tensorflow"
    return import_module("probe.stable." + name)
