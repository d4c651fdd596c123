"""The prefix-stable convolution in TensorFlow: eager, in a tf.function, compiled, from 1.x up.

Products are subtracted from the sum, with weights of the other sign: the same bits as adding them,
and a chain that TensorFlow leaves as it is. Chains of additions in a tf.function whose shapes are
known become one ``AddN``, which adds in another order (grappler's ``AddOpsRewrite``).
"""

from probe.sizes.stable.convolution import ConvolutionSizes, accumulator, check_operands


def conv(x, w, b=None, stride=1, dilation=1, groups=1, padding="valid", accumulate=None):
    """Does as ``probe.stable.conv``, channels last; variables are taken too."""
    import tensorflow as tf

    x, w = tf.convert_to_tensor(x), tf.convert_to_tensor(w)
    known = _static_sizes(w.shape)
    if len(known) != len(x.shape):
        raise ValueError(f"w={known}: x has {len(x.shape)} axes, w must too")
    options = stride, dilation, groups, padding
    geometry = ConvolutionSizes(known[:-2], known[-2], known[-1], *options)
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


def dense(x, w, b=None, accumulate=None):
    """Does as ``probe.stable.dense``: x (..., in_channels), w (in_channels, filters)."""
    import tensorflow as tf

    x, w = tf.convert_to_tensor(x), tf.convert_to_tensor(w)
    channels, filters = _static_sizes(w.shape)
    y = conv(tf.reshape(x, [1, -1, channels]), w[None], b, accumulate=accumulate)
    known = _static_sizes(x.shape)[:-1]
    y = tf.reshape(y, tf.concat([tf.shape(x)[:-1], [filters]], 0))
    y.set_shape(known + (filters,))
    return y


def _static_sizes(shape):
    return tuple(getattr(size, "value", size) for size in shape)


def _spatial_sizes(tf, x):
    """Returns the spatial sizes of x: numbers where they are known, else scalar tensors."""
    known = _static_sizes(x.shape)[1:-1]
    sizes = tf.shape(x) if None in known else ()
    return [sizes[1 + axis] if size is None else size for axis, size in enumerate(known)]


def _zeros_around(tf, geometry, x):
    """x with its zeros, and the outputs on each axis."""
    sizes = _spatial_sizes(tf, x)
    known = all(isinstance(size, int) for size in sizes)

    def maximum(a, b):
        return max(a, b) if isinstance(a, int) else tf.maximum(a, b)

    around, outputs = geometry.around(sizes, maximum)
    if not known or any(map(any, around)):
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
    known = [size if isinstance(size, int) else None for size in outputs]
    y.set_shape([_static_sizes(x.shape)[1]] + known + [geometry.filters])
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
        rest = size + before + after - ((count - 1) * stride + extent)
        zeros = [[0, 0]] * (rank + 2)
        zeros[axis] = [extent - 1, extent - 1 + rest]
        dy = tf.pad(dy, zeros)
    kernel = list(geometry.kernel)
    mirrored = tf.reshape(w, kernel + [geometry.depth, groups, each])
    last = [rank + 2, rank + 1, rank]
    mirrored = tf.reverse(tf.transpose(mirrored, list(range(rank)) + last), list(range(rank)))
    mirrored = tf.reshape(mirrored, kernel + [each, geometry.channels])
    wanted = None if wide == dy.dtype.name else wide
    dx = conv(dy, mirrored, accumulate=wanted, **geometry.transposed())
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
