"""Pooling in NumPy: the maximum, or the sum in the order of the window divided once."""

import numpy as np

from probe.backends import pooling
from probe.geometry import Windows


class ReferencePool(pooling.Pool):
    """One spec. ``arithmetic``: see ``reference.Arithmetic``. Values are of its working dtype."""

    def __init__(self, spec, arithmetic):
        pooling.Pool.__init__(self, spec)
        self.arithmetic = arithmetic
        self.call = self._max if pooling.kind(spec) == "max" else self._mean

    def input(self, x):
        return self.arithmetic.widen(x)

    def output(self, y):
        return np.ascontiguousarray(self.arithmetic.narrow(y))

    def _max(self, x, w, b):
        inside = 0.0 if self.spec["pad_with"] == "zeros" else -np.inf
        taps = self._taps(x, inside, -np.inf)
        total = next(taps)
        for tap in taps:
            total = np.maximum(total, tap)
        return total

    def _mean(self, x, w, b):
        with np.errstate(all="ignore"):
            total = None
            for tap in self._taps(x, 0.0, 0.0):
                total = tap if total is None else self.arithmetic.add(total, tap)
            counted = float(self.spec["pad_with"] == "zeros")
            count = sum(self._taps(np.ones_like(x[:1, ..., :1]), counted, 0.0))
            return self.arithmetic.rounded(total / count)

    def _taps(self, x, inside, beyond):
        """What every place of the window meets, (batch, *outputs, channels), row by row."""
        windows = Windows.of(self.spec)
        found = windows.spans(x.shape[1:-1])
        none = [(0, 0)]
        pads = none + [(one.before, one.after) for one in found] + none
        x = np.pad(x, pads, "constant", constant_values=inside)
        pads = none + [(0, one.beyond) for one in found] + none
        x = np.pad(x, pads, "constant", constant_values=beyond)
        outputs = [one.outputs for one in found]
        for place in windows.places():
            yield x[(slice(None),) + windows.seen(place, outputs)]
