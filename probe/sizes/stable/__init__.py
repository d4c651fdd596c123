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

The functions are in ``stable.convolution``, and of one library in ``stable.tensorflow`` and
``stable.torch``. A model is kept to its bits by ``stable.invariant``.
"""

from probe.sizes.stable.convolution import conv, dense


def __getattr__(name):
    """``stable.invariant(model, ...)``: see ``probe.sizes.invariant``, which is nearly as fast."""
    if name != "invariant":
        raise AttributeError("probe.sizes.stable has no attribute %r" % name)
    from importlib import import_module  # a room below this one, which a worker never needs

    return import_module("probe.sizes.invariant").invariant


__all__ = ["conv", "dense", "invariant"]
