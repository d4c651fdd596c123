"""One operator with its operands in the child: cut along an axis, called, called again.

Runs in the targets' interpreters (Python 3.6, NumPy and one library).
"""

import time
from typing import List

import numpy as np

BOUNDARY = 64
#: Sets of lines that keep the operands of a call at a time.
BOUND = 16


class Call:
    """One case in the child. ``operators``: a function from a spec to an operator of the backend.

    ``x`` (batch, *spatial, in_channels), ``w`` (*kernel, in_channels/groups, filters), ``b``
    (filters,) or None: container arrays at their largest; every smaller case is a cut of them.
    """

    def __init__(self, operators, spec, x, w, b):
        self.operators, self.spec, self.x, self.w, self.b = operators, spec, x, w, b
        self._operator = operators(spec)
        self._bound = {}

    def at(self, axes=None):
        """The call with each axis in ``axes`` cut to its value: ``{"length": 7}``.

        Axes: ``length`` (of x's last spatial axis), ``batch``, ``filters`` (the first of them), and
        ``channels``: nothing is cut, but those beyond go through a second call whose output is
        added (see ``backends.rewritten``). ValueError for any other axis and for a value outside of
        the operands.
        """
        axes = dict(axes or {})
        x, length = self.x, axes.pop("length", None)
        if self.spec.get("op") != "dense":  # rows of a dense layer have no length to cut
            x = _cut(x, -2, "length", length)
        x = _cut(x, 0, "batch", axes.pop("batch", None))
        filters, channels = axes.pop("filters", None), axes.pop("channels", None)
        if axes:
            known = "length, batch, filters and channels can"
            raise ValueError(f"axis={sorted(axes)}: can't be cut; {known}")
        if channels is not None and channels != self.x.shape[-1]:
            return self._split(x, channels)
        if filters is not None and filters != self.w.shape[-1]:
            return self._fewer(x, filters)
        operator = self._operator.at(x.shape)
        if operator not in self._bound:  # lines for other sizes want the operands again
            if len(self._bound) >= BOUND:
                self._bound.clear()
            self._bound[operator] = operator.bind(self._operands(self.w, self.b))
        return Prepared(operator, x, self._bound[operator])

    def _split(self, x, channels):
        if not 0 < channels < x.shape[-1]:
            raise ValueError(f"channels={channels}: the operands have {x.shape[-1]}")
        operator = self.operators(dict(self.spec, split=channels)).at(x.shape)
        return Prepared(operator, x, operator.bind(self._operands(self.w, self.b)))

    def _fewer(self, x, filters):
        w = _cut(self.w, -1, "filters", filters)
        operator = self.operators(dict(self.spec, filters=filters)).at(x.shape)
        b = None if self.b is None else self.b[:filters].copy()
        return Prepared(operator, x, operator.bind(self._operands(w, b)))

    def _operands(self, w, b):
        return dict({"w": np.ascontiguousarray(w)}, **({} if b is None else {"b": b}))


def _cut(array, axis, name, value):
    if value is None or value == array.shape[axis]:
        return array
    if not 0 < value < array.shape[axis]:
        raise ValueError(f"{name}={value}: the operands have {array.shape[axis]}")
    index = [slice(None)] * array.ndim
    index[axis] = slice(0, value)
    return array[tuple(index)]


class Prepared:
    """An operator with its operands in the library's own layout, ready to be called many times."""

    def __init__(self, operator, x, call, further=()):
        """``call``: the operator with its operands, as ``bind`` gives it.

        ``further``: what it reads beside x, container arrays.
        """
        self.operator, self.call, self.further = operator, call, further
        if further:
            values = [operator.input(np.ascontiguousarray(one)) for one in further]
            self.call = lambda x: call(x, *values)
        self.x = np.ascontiguousarray(x)
        self.input = operator.input(self.x)

    def run(self):
        """The output (container array, channels last, C order) and the seconds of the call."""
        start = time.perf_counter()
        value = self.call(self.input)
        seconds = time.perf_counter() - start
        return np.ascontiguousarray(self.operator.output(value)), seconds

    def repeat(self, seconds):
        """Calls for that long, for whoever samples this process meanwhile: how many calls."""
        call, calls, until = self.call, 0, time.perf_counter() + seconds
        while time.perf_counter() < until:
            call(self.input)
            calls += 1
        return calls

    def times(self, limit):
        """Seconds of every call, float64, for that many seconds in all; one call at least."""
        call, clock = self.call, time.perf_counter
        found: List[float] = []
        start = last = clock()
        while not found or last - start < limit:
            call(self.input)
            now = clock()
            found.append(now - last)
            last = now
        return np.array(found)

    def realigned(self):
        """The same call with its input in a buffer of another alignment."""
        return Prepared(self.operator, realigned(self.x), self.call)


def realigned(array):
    """A copy that starts at a 64-byte boundary where the array does not, and off it where it does.

    Off by 4 bytes, or by one element where that is more.
    """
    step = max(4, array.dtype.itemsize)
    off = step if array.ctypes.data % BOUNDARY == 0 else 0
    raw = np.empty(array.nbytes + 2 * BOUNDARY, np.uint8)
    start = -raw.ctypes.data % BOUNDARY + off
    copy = raw[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy
