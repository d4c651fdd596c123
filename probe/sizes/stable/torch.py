"""The prefix-stable convolution in PyTorch: eager, compiled, on every device."""

from typing import Any, Dict, List

from probe.sizes.stable.convolution import ConvolutionSizes, accumulator, check_operands


def conv(x, w, b=None, stride=1, dilation=1, groups=1, padding="valid", accumulate=None):
    """Does as ``probe.stable.conv``, channels first."""
    import torch

    for name, value in (("w", w), ("b", b)):
        if not isinstance(value, torch.Tensor) and not (name == "b" and value is None):
            why = "x is a tensor of PyTorch, and so must this be"
            raise ValueError(f"{name}={type(value).__name__}: {why}")
    kernel = tuple(w.shape[2:])
    if len(w.shape) != len(x.shape):
        raise ValueError(f"w={tuple(w.shape)}: x has {len(x.shape)} axes, w must too")
    options = stride, dilation, groups, padding
    geometry = ConvolutionSizes(kernel, w.shape[1], w.shape[0], *options)
    check_operands(x, w, b, x.shape[1], geometry)
    wide = accumulator(str(x.dtype).split(".")[-1], accumulate)
    y = _stable_function().apply(x, w, geometry, wide)
    return y if b is None else y + b.reshape((-1,) + (1,) * len(kernel))


def dense(x, w, b=None, accumulate=None):
    """Does as ``probe.stable.dense``: x (..., in_channels), w (filters, in_channels)."""
    rows = x.reshape((-1, x.shape[-1]))
    y = conv(rows.t()[None], w[:, :, None], b, accumulate=accumulate)[0].t()
    return y.reshape(tuple(x.shape[:-1]) + (w.shape[0],))


# A dictionary and no ``functools.lru_cache``: torch.compile looks into what that wraps
_MADE: Dict[str, Any] = {}


def _stable_function():
    """The autograd function, made when it is first needed: no PyTorch is imported before."""
    if not _MADE:
        import torch

        class Stable(torch.autograd.Function):
            """Forward and input gradient are stable convolutions."""

            @staticmethod
            def forward(ctx, x, w, geometry, wide):
                ctx.save_for_backward(x, w)
                ctx.geometry, ctx.wide = geometry, wide
                return _chain_of_products(torch, geometry, x, w, wide)

            @staticmethod
            def backward(ctx, dy):
                (x, w), geometry = ctx.saved_tensors, ctx.geometry
                dx = dw = None
                if ctx.needs_input_grad[0]:
                    dx = _gradient_of_input(torch, geometry, x, w, dy, ctx.wide)
                if ctx.needs_input_grad[1]:
                    dw = _gradient_of_weights(torch, geometry, x, w, dy)
                return dx, dw, None, None

        _MADE["stable"] = Stable
    return _MADE["stable"]


def _with_zeros_around(torch, geometry, x):
    """x with its zeros, the zeros, and the outputs on each axis."""
    sizes = tuple(x.shape[2:])
    around, outputs = geometry.around(sizes)
    if any(map(any, around)):
        x = torch.nn.functional.pad(x, [zeros for pair in around[::-1] for zeros in pair])
    return x, around, outputs


def _chain_of_products(torch, geometry, x, w, wide):
    """Returns the outputs: for every product one multiplication and one addition of all outputs."""
    dtype, groups, depth = x.dtype, geometry.groups, geometry.depth
    each, wide = geometry.filters // groups, getattr(torch, wide)
    x, _, outputs = _with_zeros_around(torch, geometry, x)
    x = x.to(wide)
    x = x.reshape((x.shape[0], groups, 1, depth) + tuple(x.shape[2:]))
    w = w.to(wide).reshape((groups, each, depth) + geometry.kernel)
    ones = (1,) * len(outputs)
    y: Any = None
    product: Any = None
    for place in geometry.places:
        seen = x[(slice(None),) * 4 + geometry.seen(place, outputs)]
        weights = w[(Ellipsis,) + place]
        for channel in range(depth):
            factors = seen[:, :, :, channel], weights[:, :, channel].reshape((groups, each) + ones)
            if y is None:
                y = torch.mul(*factors)
            elif product is None:
                product = torch.mul(*factors)
                y.add_(product)
            else:
                # not ``addcmul``, in which the product may be fused with the addition
                torch.mul(*factors, out=product)
                y.add_(product)
    return y.reshape((x.shape[0], geometry.filters) + tuple(outputs)).to(dtype)


def _gradient_of_input(torch, geometry, x, w, dy, wide):
    """Such a convolution of the output gradients, by the weights turned round."""
    rank, groups = len(geometry.kernel), geometry.groups
    each, sizes = geometry.filters // groups, tuple(x.shape[2:])
    around, outputs = geometry.around(sizes)
    spread = [(count - 1) * stride + 1 for count, stride in zip(outputs, geometry.stride)]
    if any(stride > 1 for stride in geometry.stride):
        zeros = dy.new_zeros(tuple(dy.shape[:2]) + tuple(spread))
        steps = tuple(slice(None, None, stride) for stride in geometry.stride)
        zeros[(slice(None), slice(None)) + steps] = dy
        dy = zeros
    pads: List[int] = []
    for size, (before, after), extent, length in zip(sizes, around, geometry.extents, spread):
        rest = size + before + after - (length - 1 + extent)
        pads = [extent - 1, extent - 1 + rest] + pads
    dy = torch.nn.functional.pad(dy, pads)
    mirrored = w.reshape((groups, each, geometry.depth) + geometry.kernel).transpose(1, 2)
    mirrored = mirrored.flip(list(range(3, 3 + rank)))  # the transposed convolution's weights
    mirrored = mirrored.reshape((geometry.channels, each) + geometry.kernel)
    wanted = None if getattr(torch, wide) == dy.dtype else wide
    dx = conv(dy, mirrored, accumulate=wanted, **geometry.transposed())
    inside = [slice(before, before + size) for size, (before, _) in zip(sizes, around)]
    return dx[tuple([slice(None), slice(None)] + inside)]


def _gradient_of_weights(torch, geometry, x, w, dy):
    """Sums over all positions, by matrix products: one for each place of the kernel."""
    groups = geometry.groups
    x, _, outputs = _with_zeros_around(torch, geometry, x)
    x = x.reshape((x.shape[0], groups, geometry.depth) + tuple(x.shape[2:]))
    dy = dy.reshape((dy.shape[0], groups, geometry.filters // groups, -1))
    dw = []
    for place in geometry.places:
        seen = x[(slice(None),) * 3 + geometry.seen(place, outputs)].flatten(3)
        dw.append(torch.einsum("bgcp,bgfp->gfc", seen, dy))
    return torch.stack(dw, -1).reshape(w.shape)
