"""Pooling as JAX's users have it (Flax, Haiku): ``lax.reduce_window`` under jit, channels last."""

from probe.backends import pooling


def operator(jax, spec):
    """f(x) of an array for a pooling spec."""
    largest = pooling.kind(spec) == "max"
    start, join = (-jax.numpy.inf, jax.lax.max) if largest else (0.0, jax.lax.add)
    count = 1
    for size in spec["kernel"]:
        count *= size

    def around(entries):
        return (1,) + tuple(entries) + (1,)

    def reduce(x, pads):
        windows = around(spec["kernel"]), around(spec["stride"])
        nothing = ((0, 0),)
        pads = nothing + tuple(pads) + nothing
        first = jax.numpy.asarray(start, x.dtype)
        return jax.lax.reduce_window(
            x, first, join, *windows, pads, window_dilation=around(spec["dilation"])
        )

    def whole(x):
        y = reduce(x, [(0, 0)] * len(spec["kernel"]))
        return y if largest else y / count

    def native(x, found):
        if not largest or spec["pad_with"] == "zeros":
            return None
        return reduce(x, [(one.before, one.after + one.beyond) for one in found])

    def pad(x, pairs, value):
        pairs = [(0, 0)] + list(pairs) + [(0, 0)]
        return jax.numpy.pad(x, pairs, constant_values=value)

    library = pooling.Library(pad, whole, jax.numpy.ones_like, native)
    return lambda x: pooling.pool(spec, library, x.shape[1:-1])(x)
