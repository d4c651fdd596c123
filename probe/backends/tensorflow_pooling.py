"""tf.nn's pooling. It has VALID and SAME, and explicit padding for two-dimensional maxima alone."""

from probe.backends import pooling
from probe.backends.contract import Unsupported
from probe.backends.tensorflow_operators import release

NAMES = {"max": "max_pool", "avg": "avg_pool"}


def operator(tf, spec):
    """f(x, w) of tensors for a pooling spec; w is not looked at."""
    rank, name = len(spec["kernel"]), NAMES[pooling.kind(spec)]
    if any(step != 1 for step in spec["dilation"]):
        raise Unsupported(f"tf.nn.{name}{rank}d has no dilation")
    function = getattr(tf.nn, f"{name}{rank}d", None)
    steps = list(spec["kernel"]), list(spec["stride"])
    if function is None and rank == 2:  # 1.x has the operator under this name
        function = getattr(tf.nn, name)
        steps = [1] + steps[0] + [1], [1] + steps[1] + [1]
    elif function is None:
        raise Unsupported(f"this release has no tf.nn.{name}{rank}d")
    if spec["padding"] in ("valid", "same") and not spec["ceil_mode"]:
        if spec["padding"] == "same" and spec["pad_with"] == "zeros":
            raise Unsupported("SAME of tf.nn's pooling leaves padding out: use explicit padding")
        return lambda x, w: function(x, *steps, padding=spec["padding"].upper())

    pads_itself = release(tf) >= (2, 4)

    def native(x, found):
        if name != "max_pool" or rank != 2 or spec["pad_with"] != "nothing" or not pads_itself:
            return None
        if any(one.beyond for one in found):
            return None
        pads = [[0, 0]] + [[one.before, one.after] for one in found] + [[0, 0]]
        return function(x, *steps, padding=pads)

    library = pooling.Library(
        lambda x, pairs, value: padded(tf, x, pairs, value),
        lambda x: function(x, *steps, padding="VALID"),
        tf.ones_like,
        native,
    )
    return lambda x, w: pooling.pool(spec, library, sizes(x))(x)


def sizes(x):
    """The spatial sizes of a tensor; None where they are open. Before 2.0 they are Dimensions."""
    return [getattr(size, "value", size) for size in x.shape[1:-1]]


def padded(tf, x, pairs, value):
    """x with ``value`` around its spatial axes."""
    pairs = [[0, 0]] + [list(pair) for pair in pairs] + [[0, 0]]
    return tf.pad(x, pairs, constant_values=tf.cast(value, x.dtype))
