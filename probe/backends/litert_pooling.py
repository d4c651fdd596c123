"""Pooling on LiteRT: models of one MAX_POOL_2D or AVERAGE_POOL_2D, whose padding is SAME or VALID.

Other padding is put around the input by NumPy, where nothing is rounded: see ``pooling.pool``.
"""

import numpy as np

from probe.backends import litert_model, pooling
from probe.backends.contract import Unsupported

OPERATORS = {"max": "MAX_POOL_2D", "avg": "AVERAGE_POOL_2D"}


class Model(litert_model.Model):
    """A model for inputs (batch, height, width, channels) of one shape.

    ``windows``: (kernel, stride), two sizes each. Raises Unsupported where no window fits.
    """

    description = "pooling"

    def __init__(self, schema, kind, windows, shape, same):
        self.schema, self.kind, self.windows, self.same = schema, kind, windows, same
        self.shape, self.spec = tuple(shape), {"dtype": "float32"}
        both = list(zip(shape[1:3], *windows))
        self.sizes = tuple(
            -(-size // stride) if same else (size - reach) // stride + 1
            for size, reach, stride in both
        )
        if min(self.sizes) < 1:
            raise Unsupported("input {}: no window fits into it".format(list(shape)))
        self.packed = bytes(self._pack())

    def _fill(self, graph):
        shape = self.shape[:1] + self.sizes + self.shape[3:]
        graph.tensors = [self._tensor("x", self.shape, 0), self._tensor("y", shape, 0)]
        graph.operators = [self._operator(0, [0], 1, "Pool2DOptions")]
        options, padding = graph.operators[0].builtinOptions, self.schema.Padding
        options.padding = padding.SAME if self.same else padding.VALID
        (options.filterHeight, options.filterWidth), strides = self.windows
        options.strideH, options.strideW = strides
        return [OPERATORS[self.kind]]

    def _buffers(self):
        return [litert_model.aligned_buffer(self.schema)]


class LiteRTPool(pooling.Pool):
    """One spec: an interpreter for each input shape. ``interpreting(content)``: f(x) of a model."""

    def __init__(self, schema, interpreting, spec):
        pooling.Pool.__init__(self, spec)
        if spec["dtype"] != "float32" or any(step != 1 for step in spec["dilation"]):
            raise Unsupported("LiteRT's pooling has float32 and no dilation")
        self.schema, self.interpreting, self.made = schema, interpreting, {}
        self.flat = len(spec["kernel"]) == 1
        ahead = [1] if self.flat else []
        self.windows = tuple(ahead + list(spec[name]) for name in ("kernel", "stride"))
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
        """SAME as LiteRT has it: a maximum of what is there, an average that leaves padding out."""
        if self.spec["padding"] != "same" or self.spec["pad_with"] == "zeros":
            return None
        return None if any(one.beyond for one in found) else self._run(x, True)

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
