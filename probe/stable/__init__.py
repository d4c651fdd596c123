"""Convolutions whose every output depends on its own window alone, to the last bit.

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
``stable.keras_layers`` and ``stable.torch_modules``.
"""


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
    root = type(x).__module__.split(".")[0]
    if root == "torch":
        from probe.stable.torch import conv as convolve
    elif root in ("tensorflow", "keras"):
        from probe.stable.tensorflow import conv as convolve
    else:
        there = "a tensor of TensorFlow or PyTorch"
        raise ValueError(f"x={root}.{type(x).__name__}: no library of ours; give {there}")
    return convolve(x, w, b, stride, dilation, groups, padding, accumulate)
