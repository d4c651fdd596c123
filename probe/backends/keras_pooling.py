"""Keras' pooling layers: VALID and SAME. Explicit padding is ``keras.ops.pad`` before them."""

import numpy as np

from probe import floats
from probe.backends import pooling
from probe.backends.contract import Unsupported

NAMES = {"max": "MaxPooling", "avg": "AveragePooling"}


def layer(keras, spec, padding):
    """The layer of a pooling spec with ``padding``: ``valid`` or ``same``."""
    name = f"{NAMES[pooling.kind(spec)]}{len(spec['kernel'])}D"
    if any(step != 1 for step in spec["dilation"]):
        raise Unsupported(f"keras.layers.{name} has no dilation")
    if padding == "same" and spec["pad_with"] == "zeros":
        raise Unsupported("Keras' SAME pooling leaves padding out: use explicit padding")
    options = {"padding": padding, "data_format": "channels_last", "dtype": spec["dtype"]}
    return getattr(keras.layers, name)(tuple(spec["kernel"]), tuple(spec["stride"]), **options)


def run(keras, spec):
    """f(x) of a channels-last tensor."""
    if spec["padding"] in ("valid", "same") and not spec["ceil_mode"]:
        return layer(keras, spec, spec["padding"])

    def pad(x, pairs, value):
        pairs = [(0, 0)] + [tuple(pair) for pair in pairs] + [(0, 0)]
        return keras.ops.pad(x, pairs, constant_values=value)

    library = pooling.Library(pad, layer(keras, spec, "valid"), keras.ops.ones_like)
    return lambda x: pooling.pool(spec, library, x.shape[1:-1])(x)


class KerasPool(pooling.Pool):
    """A pooling layer. ``wrap(f)`` gives what is called instead of f(x): eager or compiled."""

    def __init__(self, keras, spec, wrap):
        pooling.Pool.__init__(self, spec)
        self.keras, self.narrow = keras, spec["dtype"] == "bfloat16"
        pooled = wrap(run(keras, spec))
        self.call = lambda x, w, b: pooled(x)

    def input(self, x):
        x = np.array(x, order="C")
        return self.keras.ops.convert_to_tensor(
            floats.from_container(x, "bfloat16") if self.narrow else x
        )

    def output(self, y):
        y = np.ascontiguousarray(self.keras.ops.convert_to_numpy(y))
        return y.view(np.uint16) if self.narrow else y
