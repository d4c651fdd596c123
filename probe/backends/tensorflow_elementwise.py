"""``probe.stable`` as a target's operator: a product and a sum by hand for each weight.

What the report's author compared the operator with. Every output is the same chain of elementwise
operations whatever the length, so this is what prefix-stable looks like inside the same library.
"""

from probe.stable.tensorflow import conv


def convolution(tf, spec, accumulate=None):
    """f(x, w) for a spec: the sum in the order of the window, channels innermost, one by one.

    ``accumulate``: as of ``probe.stable.conv``.
    """
    words = {name: spec[name] for name in ("stride", "dilation", "groups", "padding")}
    kernel = list(spec["kernel"])
    shape = kernel + [spec["in_channels"] // spec["groups"], spec["filters"]]

    if not kernel:  # a dense layer: a convolution of one position
        words, shape = {}, [1] + shape
        return lambda x, w: conv(x[:, None], tf.reshape(w, shape), accumulate=accumulate)[:, 0]
    return lambda x, w: conv(x, tf.reshape(w, shape), accumulate=accumulate, **words)
