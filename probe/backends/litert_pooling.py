"""Pooling on LiteRT: models of one MAX_POOL_2D or AVERAGE_POOL_2D, whose padding is SAME or VALID.

Other padding is put around the input by NumPy, where nothing is rounded: see ``pooling.pool``.
"""

import numpy as np

from probe.backends import litert_model, pooling
from probe.backends.contract import Unsupported
from probe.backends.litert_graph import Graph

OPERATORS = {"max": "MAX_POOL_2D", "avg": "AVERAGE_POOL_2D"}


def supported(spec):
    """Raises Unsupported where LiteRT has no such pooling."""
    if spec["dtype"] != "float32" or any(step != 1 for step in spec["dilation"]):
        raise Unsupported("LiteRT's pooling has float32 and no dilation")


def windows_of(spec):
    """(kernel, stride), two sizes each."""
    ahead = [1] if litert_model.flat(spec) else []
    return tuple(ahead + list(spec[name]) for name in ("kernel", "stride"))


def has_same(spec, found):
    """Whether LiteRT's SAME is what the spec asks: a maximum or an average of what is there.

    ``found``: ``pooling.spans`` of the spec.
    """
    own = spec["padding"] == "same" and spec["pad_with"] != "zeros"
    return own and not any(one.beyond for one in found)


def operator(graph, kind, windows, x, same):
    """The Value of a pool of x (batch, height, width, channels). Unsupported: no window fits."""
    sizes = tuple(
        -(-size // stride) if same else (size - reach) // stride + 1
        for size, reach, stride in zip(x.shape[1:3], *windows)
    )
    if min(sizes) < 1:
        raise Unsupported("input {}: no window fits into it".format(list(x.shape)))
    (height, width), (down, along) = windows
    padding = graph.schema.Padding
    fields = {"filterHeight": height, "filterWidth": width, "strideH": down, "strideW": along}
    fields["padding"] = padding.SAME if same else padding.VALID
    shape = x.shape[:1] + sizes + x.shape[3:]
    return graph.operator(OPERATORS[kind], [x], shape, "Pool2DOptions", **fields)


def layer(graph, spec, x):
    """The Value of a pooling spec for x, padded by the graph where the pool can't do it."""
    supported(spec)
    kind, windows, flat = pooling.kind(spec), windows_of(spec), litert_model.flat(spec)
    ahead = [(0, 0)] * (2 if flat else 1)
    library = pooling.Library(
        lambda x, pairs, value: graph.padded(x, ahead + list(pairs) + [(0, 0)], value),
        lambda x: operator(graph, kind, windows, x, False),
        lambda x: graph.constant("ones", np.ones(x.shape, graph.dtype)),
        lambda x, found: operator(graph, kind, windows, x, True) if has_same(spec, found) else None,
    )
    return pooling.pool(spec, library, x.shape[2:3] if flat else x.shape[1:3])(x)


class Model:
    """A model for inputs (batch, height, width, channels) of one shape: ``packed``, its bytes.

    ``windows``: (kernel, stride), two sizes each. Raises Unsupported where no window fits.
    """

    def __init__(self, schema, kind, windows, shape, same):
        graph = Graph(schema, "float32", shape)
        pooled = operator(graph, kind, windows, graph.x, same)
        self.packed = bytes(graph.packed(pooled, "pooling"))


class LiteRTPool(pooling.Pool):
    """One spec: an interpreter for each input shape. ``interpreting(content)``: f(x) of a model."""

    def __init__(self, schema, interpreting, spec):
        pooling.Pool.__init__(self, spec)
        supported(spec)
        self.schema, self.interpreting, self.made = schema, interpreting, {}
        self.flat, self.windows = litert_model.flat(spec), windows_of(spec)
        library = pooling.Library(self._padded, self._whole, np.ones_like, self._native)
        self.call = lambda x, w, b: pooling.pool(spec, library, self._spatial(x))(x)

    def _spatial(self, x):
        return x.shape[2:3] if self.flat else x.shape[1:3]

    def _padded(self, x, pairs, value):
        ahead = [(0, 0)] * (2 if self.flat else 1)
        return np.pad(x, ahead + list(pairs) + [(0, 0)], "constant", constant_values=value)

    def _whole(self, x):
        return self._run(x, False)

    def _native(self, x, found):
        """SAME as LiteRT has it."""
        return self._run(x, True) if has_same(self.spec, found) else None

    def _run(self, x, same):
        key = x.shape, same
        if key not in self.made:
            kind = pooling.kind(self.spec)
            model = Model(self.schema, kind, self.windows, x.shape, same)
            self.made[key] = self.interpreting(model.packed)
        return self.made[key](np.ascontiguousarray(x))

    def input(self, x):
        return np.array(x[:, None] if self.flat else x, order="C")

    def output(self, y):
        return np.ascontiguousarray(y[:, 0] if self.flat else y)
