"""One operator as the sum of two: the first channels in one call, the rest in another, added.

The two calls are the library's, at their own numbers of channels. Their outputs are added here,
each element rounded once: IEEE's addition, which every library's elementwise addition is.
"""

import numpy as np

from probe.backends.contract import Operator
from probe.backends.reference import Arithmetic


def parts(spec):
    """The specs of the calls that a spec stands for: itself, or the two of a split one.

    The bias, if there is one, belongs to the first call.
    """
    if "split" not in spec:
        return [spec]
    first = spec["split"]
    whole = {name: value for name, value in spec.items() if name != "split"}
    second = dict(whole, in_channels=spec["in_channels"] - first, bias=False)
    return [dict(whole, in_channels=first), second]


class SplitOperator(Operator):
    """A spec with ``split``: values are pairs, one for each call."""

    def __init__(self, backend, spec):
        """Raises Unsupported where the backend does for one of the two."""
        Operator.__init__(self, spec)
        self.first, self.second = first, second = [backend.operator(part) for part in parts(spec)]
        self.constant_weights = first.constant_weights
        self.arithmetic = Arithmetic(spec["dtype"])

        def call(x, w, b):
            return first.call(x[0], w[0], b), second.call(x[1], w[1], None)

        self.call = call

    def input(self, x):
        at = self.spec["split"]
        first, second = np.ascontiguousarray(x[..., :at]), np.ascontiguousarray(x[..., at:])
        return self.first.input(first), self.second.input(second)

    def weights(self, w):
        at = self.spec["split"]
        first, second = np.ascontiguousarray(w[..., :at, :]), np.ascontiguousarray(w[..., at:, :])
        return self.first.weights(first), self.second.weights(second)

    def bias(self, b):
        return self.first.bias(b)

    def output(self, y):
        add, widen = self.arithmetic.add, self.arithmetic.widen
        with np.errstate(all="ignore"):
            total = add(widen(self.first.output(y[0])), widen(self.second.output(y[1])))
        return np.ascontiguousarray(self.arithmetic.narrow(total))
