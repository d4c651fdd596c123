"""A convolution by hand: products by ``tf.multiply``, added one by one by ``tf.add``.

What the report's author compared the operator with. Every output is the same chain of elementwise
operations whatever the length, so this is what prefix-stable looks like inside the same library. It
costs an operation a product, over all outputs, and memory for one product of each channel.
"""

import itertools


def convolution(tf, spec):
    """f(x, w) for a spec: the sum in the order of the window, channels innermost, one by one."""
    groups, filters = spec["groups"], spec["filters"]
    depth = spec["in_channels"] // groups
    places = list(itertools.product(*[range(size) for size in spec["kernel"]]))

    def convolve(x, w):
        x, out = padded(tf, spec, x)
        x = tf.reshape(x, tf.concat([tf.shape(x)[:-1], [groups, depth, 1]], 0))
        w = tf.reshape(w, [len(places), depth, groups, filters // groups])
        w = tf.transpose(w, [0, 2, 1, 3])
        y = None
        for number, place in enumerate(places):
            products = tf.multiply(x[seen_from(spec, place, out)], w[number])
            for product in tf.unstack(products, depth, axis=-2):
                y = product if y is None else tf.add(y, product)
        return tf.reshape(y, tf.concat([tf.shape(y)[:-2], [filters]], 0))

    return convolve


def padded(tf, spec, x):
    """x with zeros around it, and the number of outputs on each spatial axis (scalar tensors)."""
    pads, out = [], []
    for axis, size in enumerate(spec["kernel"]):
        stride = spec["stride"][axis]
        extent, length = (size - 1) * spec["dilation"][axis] + 1, tf.shape(x)[1 + axis]
        before, after = 0, 0
        if spec["padding"] == "same":
            missing = tf.maximum((length - 1) // stride * stride + extent - length, 0)
            before, after = missing // 2, missing - missing // 2
        elif spec["padding"] != "valid":
            before, after = spec["padding"][axis]
        pads.append([before, after])
        out.append((length + before + after - extent) // stride + 1)
    return tf.pad(x, [[0, 0]] + pads + [[0, 0]]), out


def seen_from(spec, place, out):
    """The index of what every output reads at one place of the kernel."""
    index = [slice(None)]
    for at, stride, dilation, size in zip(place, spec["stride"], spec["dilation"], out):
        start = at * dilation
        index.append(slice(start, start + (size - 1) * stride + 1, stride))
    return tuple(index)
