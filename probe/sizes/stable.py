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

``conv`` and ``dense`` take tensors of either library. A model is kept to its bits by
``stable.invariant``.
"""

from importlib import import_module
from typing import Any, Dict, List

from probe.case.geometry import BY_SIZE, WindowSizes


def __getattr__(name):
    """``stable.invariant(model, ...)``: see ``probe.sizes.invariant``, which is nearly as fast."""
    if name != "invariant":
        raise AttributeError("probe.sizes.stable has no attribute %r" % name)
    # a room below this one, which a worker never needs
    return import_module("probe.sizes.invariant").invariant


__all__ = ["conv", "dense", "invariant"]  # noqa: F822 (the last one by __getattr__)

# Formats in which a product of two values of the key's format is exact.
WIDER = {
    "float16": ("float32", "float64"),
    "bfloat16": ("float32", "float64"),
    "float32": ("float64",),
    "float64": (),
}


def conv(x, w, b=None, stride=1, dilation=1, groups=1, padding="valid", accumulate=None):
    """Computes a prefix-stable convolution of ``x``, in the layout of its library.

    TensorFlow: x (batch, *spatial, channels), w (*kernel, channels / groups, filters).
    PyTorch: x (batch, channels, *spatial), w (filters, channels / groups, *kernel).
    Both: b (filters,) or None; one to three spatial axes; a depthwise convolution has as many
    groups as channels. ``stride`` and ``dilation``: a number, or one an axis. ``padding``:
    ``valid``, ``same`` (TensorFlow's, also with strides), ``same_lower`` (the odd zero goes
    before), or a pair of zeros before and after, one an axis.
    ``accumulate``: a wider format, see above; None is x's own.

    Returns the outputs in the same layout and x's dtype. Differentiable. Raises ValueError.
    """
    convolve, _ = _functions_for(x)
    return convolve(x, w, b, stride, dilation, groups, padding, accumulate)


def dense(x, w, b=None, accumulate=None):
    """Computes a dense layer whose rows don't depend on each other: ``x @ w + b`` (torch: ``w.T``).

    x (..., in_channels); w (in_channels, filters) in TensorFlow, (filters, in_channels) in PyTorch;
    b (filters,) or None. Products are added in the order of the channels, the bias last.
    ``accumulate``: as of ``conv``. Returns (..., filters) in x's dtype. Differentiable; the weight
    gradient is a sum over all rows. Raises ValueError.
    """
    _, product = _functions_for(x)
    if len(getattr(w, "shape", ())) != 2:
        raise ValueError("w=%s: it takes two axes, channels and filters" % _said(w))
    return product(x, w, b, accumulate)


def _functions_for(x):
    """The convolution and the dense layer for a tensor's library. ValueError: it has neither."""
    root = type(x).__module__.split(".")[0]  # asked without an import: one library may lack
    if root not in ("torch", "tensorflow", "keras"):
        there = "a tensor of TensorFlow or PyTorch"
        raise ValueError(f"x={root}.{type(x).__name__}: no library of ours; give {there}")
    of_torch = root == "torch"
    return (torch_conv, torch_dense) if of_torch else (tensorflow_conv, tensorflow_dense)


def _said(value):
    """What is said of an operand: its shape, of anything else its type."""
    return tuple(value.shape) if hasattr(value, "shape") else type(value).__name__


def check_operands(x, w, b, channels, geometry):
    """``channels``: of x; None: they are not known yet. ValueError."""
    if x.dtype != w.dtype:
        raise ValueError(f"w={w.dtype}: x is {x.dtype}; give both in one format")
    if channels is not None and channels != geometry.channels:
        why = f"w takes {geometry.channels} channels with groups={geometry.groups}"
        raise ValueError(f"x={_said(x)}: it has {channels} channels, and {why}")
    if b is not None and _said(b) != (geometry.filters,):
        raise ValueError(f"b={_said(b)}: w has {geometry.filters} filters")


class ConvolutionSizes:
    """A convolution's sizes and options, checked; its input's sizes are given later.

    They may be a library's own scalars.

    ``kernel``: a tuple; ``depth``, channels of a group, and ``filters``: numbers; the rest as of
    ``conv``. ValueError: ``name=value: why``.
    """

    def __init__(self, kernel, depth, filters, stride, dilation, groups, padding):
        rank = len(kernel)
        if not isinstance(groups, int):
            raise ValueError(f"groups={groups}: it takes a whole number")
        channels = depth * groups
        if not 1 <= rank <= 3:
            raise ValueError(
                f"w={rank + 2} axes: a convolution has 1 to 3 spatial ones and two more"
            )
        self.kernel, self.channels, self.filters = kernel, channels, filters
        self.stride = _one_an_axis("stride", stride, rank)
        self.dilation = _one_an_axis("dilation", dilation, rank)
        if groups < 1 or channels % groups or filters % groups:
            why = f"must divide {channels} channels and {filters} filters"
            raise ValueError(f"groups={groups}: {why}")
        self.groups, self.depth = groups, depth
        padding = _checked_padding(padding, rank)
        self.windows = WindowSizes(kernel, self.stride, self.dilation, padding)
        self.extents, self.places = self.windows.extents, self.windows.places()
        self.seen = self.windows.seen

    def around(self, sizes, maximum=max):
        """Zeros (before, after) of each axis, and the outputs on each axis: two lists."""
        spans = self.windows.spans(sizes, maximum)
        return [(span.before, span.after) for span in spans], [span.outputs for span in spans]

    def transposed(self):
        """The words of the convolution from output gradients to those of the padded input.

        The output gradients are spread out and have ``extent - 1`` zeros around them.
        """
        return {"dilation": self.dilation, "groups": self.groups}


def accumulator(dtype, wanted):
    """The name of the format to add in.
    ValueError where a product of ``dtype`` isn't exact."""
    if wanted is None or wanted == dtype:
        return dtype
    if wanted not in WIDER.get(dtype, ()):
        there = ", ".join(WIDER.get(dtype, ())) or "none"
        why = f"not wide enough for exact products of {dtype}"
        raise ValueError(f"accumulate={wanted}: {why}; there is {there}")
    return wanted


def _one_an_axis(name, value, rank):
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,) * rank
    if len(values) != rank or any(not isinstance(step, int) or step < 1 for step in values):
        why = f"one whole number from 1 up, or {rank} of them"
        raise ValueError(f"{name}={value}: it takes {why}")
    return values


def _checked_padding(padding, rank):
    if padding in ("valid",) + BY_SIZE:
        return padding
    pairs = list(padding) if isinstance(padding, (tuple, list)) else []
    if len(pairs) == 2 and rank == 1 and all(isinstance(pair, int) for pair in pairs):
        pairs = [pairs]
    fits = all(isinstance(pair, (tuple, list)) and len(pair) == 2 for pair in pairs)
    counts = fits and all(isinstance(n, int) and n >= 0 for pair in pairs for n in pair)
    if len(pairs) != rank or not counts:
        why = f"it takes valid, same, same_lower, or pairs of zeros for each of {rank} axes"
        raise ValueError(f"padding={padding}: {why}")
    return [tuple(pair) for pair in pairs]


# PyTorch: eager, compiled, on every device.


def torch_conv(x, w, b=None, stride=1, dilation=1, groups=1, padding="valid", accumulate=None):
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


def torch_dense(x, w, b=None, accumulate=None):
    """Does as ``probe.stable.dense``: x (..., in_channels), w (filters, in_channels)."""
    rows = x.reshape((-1, x.shape[-1]))
    y = torch_conv(rows.t()[None], w[:, :, None], b, accumulate=accumulate)[0].t()
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
    """The outputs: for every product one multiplication and one addition of all outputs."""
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
        unread = size + before + after - (length - 1 + extent)
        pads = [extent - 1, extent - 1 + unread] + pads
    dy = torch.nn.functional.pad(dy, pads)
    mirrored = w.reshape((groups, each, geometry.depth) + geometry.kernel).transpose(1, 2)
    mirrored = mirrored.flip(list(range(3, 3 + rank)))  # the transposed convolution's weights
    mirrored = mirrored.reshape((geometry.channels, each) + geometry.kernel)
    wanted = None if getattr(torch, wide) == dy.dtype else wide
    dx = torch_conv(dy, mirrored, accumulate=wanted, **geometry.transposed())
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


# TensorFlow: eager, in a tf.function, compiled, from 1.x up.
#
# Products are subtracted from the sum, with weights of the other sign: the same bits as adding
# them, and a chain that TensorFlow leaves as it is. Chains of additions in a tf.function whose
# shapes are known become one ``AddN``, which adds in another order (grappler's ``AddOpsRewrite``).


def tensorflow_conv(x, w, b=None, stride=1, dilation=1, groups=1, padding="valid", accumulate=None):
    """Does as ``probe.stable.conv``, channels last; variables are taken too."""
    import tensorflow as tf

    x, w = tf.convert_to_tensor(x), tf.convert_to_tensor(w)
    sizes = _static_sizes(w.shape)
    if len(sizes) != len(x.shape):
        raise ValueError(f"w={sizes}: x has {len(x.shape)} axes, w must too")
    options = stride, dilation, groups, padding
    geometry = ConvolutionSizes(sizes[:-2], sizes[-2], sizes[-1], *options)
    check_operands(x, w, b, _static_sizes(x.shape)[-1], geometry)
    wide = accumulator(x.dtype.name, accumulate)

    def convolve(x, w):
        def gradients(dy):
            return (
                _input_gradient(tf, geometry, x, w, dy, wide),
                _weight_gradient(tf, geometry, x, w, dy),
            )

        return _added_products(tf, geometry, x, w, wide), gradients

    # functions have gradients of their own from TensorFlow 1.7 on
    differentiable = getattr(tf, "custom_gradient", None)
    y = differentiable(convolve)(x, w) if differentiable else convolve(x, w)[0]
    return y if b is None else y + b


def tensorflow_dense(x, w, b=None, accumulate=None):
    """Does as ``probe.stable.dense``: x (..., in_channels), w (in_channels, filters)."""
    import tensorflow as tf

    x, w = tf.convert_to_tensor(x), tf.convert_to_tensor(w)
    channels, filters = _static_sizes(w.shape)
    y = tensorflow_conv(tf.reshape(x, [1, -1, channels]), w[None], b, accumulate=accumulate)
    rows = _static_sizes(x.shape)[:-1]
    y = tf.reshape(y, tf.concat([tf.shape(x)[:-1], [filters]], 0))
    y.set_shape(rows + (filters,))
    return y


def _static_sizes(shape):
    return tuple(getattr(size, "value", size) for size in shape)


def _spatial_sizes(tf, x):
    """The spatial sizes of x: numbers where they are known, else scalar tensors."""
    static = _static_sizes(x.shape)[1:-1]
    sizes = tf.shape(x) if None in static else ()
    return [sizes[1 + axis] if size is None else size for axis, size in enumerate(static)]


def _zeros_around(tf, geometry, x):
    """x with its zeros, and the outputs on each axis."""
    sizes = _spatial_sizes(tf, x)
    static = all(isinstance(size, int) for size in sizes)

    def maximum(a, b):
        return max(a, b) if isinstance(a, int) else tf.maximum(a, b)

    around, outputs = geometry.around(sizes, maximum)
    if not static or any(map(any, around)):
        x = tf.pad(x, [[0, 0]] + [list(pair) for pair in around] + [[0, 0]])
    return x, around, outputs


def _added_products(tf, geometry, x, w, wide):
    """The outputs: for every product one multiplication and one subtraction of all outputs."""
    dtype, groups, depth = x.dtype, geometry.groups, geometry.depth
    each = geometry.filters // groups
    x, _, outputs = _zeros_around(tf, geometry, x)
    x, w = tf.cast(x, wide), tf.cast(w, wide)
    rank = len(outputs)
    # channels of a group first, then positions in a line: columns for all filters of a group
    x = tf.reshape(x, tf.concat([tf.shape(x)[:-1], [groups, depth]], 0))
    x = tf.transpose(x, [rank + 2] + list(range(rank + 1)) + [rank + 1])
    column = [depth, -1, groups, 1] if each > 1 and groups > 1 else [depth, -1, groups]
    row = [-1, 1, groups, each] if each > 1 and groups > 1 else [-1, 1, geometry.filters]
    w = tf.reshape(w, row)
    # negated once: x * -w is rounded as x * w is
    first, weights = w[0], tf.unstack(-w, len(geometry.places) * depth)
    y, number, multiply, subtract = None, 0, tf.multiply, tf.subtract
    raw = getattr(tf, "raw_ops", None)
    if raw is not None:  # without the way through Python's dispatch
        mul, sub = raw.Mul, raw.Sub
        multiply, subtract = (lambda a, b: mul(x=a, y=b)), (lambda a, b: sub(x=a, y=b))
    for place in geometry.places:
        seen = x[(slice(None), slice(None)) + geometry.seen(place, outputs)]
        for channel in tf.unstack(tf.reshape(seen, column), depth):
            product = multiply(channel, first if y is None else weights[number])
            y = product if y is None else subtract(y, product)
            number += 1
    y = tf.reshape(y, tf.stack([tf.shape(x)[1]] + outputs + [geometry.filters]))
    static = [size if isinstance(size, int) else None for size in outputs]
    y.set_shape([_static_sizes(x.shape)[1]] + static + [geometry.filters])
    return tf.cast(y, dtype)


def _input_gradient(tf, geometry, x, w, dy, wide):
    """Such a convolution of the output gradients, by the weights turned round."""
    rank, groups = len(geometry.kernel), geometry.groups
    each = geometry.filters // groups
    sizes = _spatial_sizes(tf, x)
    _, around, outputs = _zeros_around(tf, geometry, x)
    axes = zip(sizes, around, outputs, geometry.extents, geometry.stride)
    for axis, (size, (before, after), count, extent, stride) in enumerate(axes, 1):
        if stride > 1:  # ``stride - 1`` zeros between neighbours
            zeros = [[0, 0]] * (len(dy.shape) + 1)
            zeros[axis + 1] = [0, stride - 1]
            spread, shape = tf.pad(tf.expand_dims(dy, axis + 1), zeros), tf.shape(dy)
            length = shape[axis] * stride
            dy = tf.reshape(spread, tf.concat([shape[:axis], [length], shape[axis + 1 :]], 0))
            dy = dy[(slice(None),) * axis + (slice(0, length - stride + 1),)]
        unread = size + before + after - ((count - 1) * stride + extent)
        zeros = [[0, 0]] * (rank + 2)
        zeros[axis] = [extent - 1, extent - 1 + unread]
        dy = tf.pad(dy, zeros)
    kernel = list(geometry.kernel)
    mirrored = tf.reshape(w, kernel + [geometry.depth, groups, each])
    last = [rank + 2, rank + 1, rank]
    mirrored = tf.reverse(tf.transpose(mirrored, list(range(rank)) + last), list(range(rank)))
    mirrored = tf.reshape(mirrored, kernel + [each, geometry.channels])
    wanted = None if wide == dy.dtype.name else wide
    dx = tensorflow_conv(dy, mirrored, accumulate=wanted, **geometry.transposed())
    inside = [slice(before, before + size) for size, (before, _) in zip(sizes, around)]
    return dx[tuple([slice(None)] + inside)]


def _weight_gradient(tf, geometry, x, w, dy):
    """Sums over all positions, by matrix products: one for each place of the kernel."""
    groups = geometry.groups
    x, _, outputs = _zeros_around(tf, geometry, x)
    dy = tf.reshape(dy, [-1, groups, geometry.filters // groups])
    dw = []
    for place in geometry.places:
        seen = x[(slice(None),) + geometry.seen(place, outputs)]
        seen = tf.reshape(seen, [-1, groups, geometry.depth])
        dw.append(tf.einsum("pgc,pgf->cgf", seen, dy))
    return tf.reshape(tf.stack(dw), _static_sizes(w.shape))
