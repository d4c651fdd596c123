"""Computes convolutions in NumPy, each operation rounded once, to compare libraries with.

The summands of an output are numbered by kernel position (row-major), then by channel. By default
they are added in that order, starting from the first product; the bias is added last. So bits
depend on the window alone, and every length, batch and set of filters agrees with every other.
"""

from collections import namedtuple

import numpy as np

from probe.case import floats
from probe.case.operation import operation_of_spec, windows_of_spec
from probe.targets.backends.contract import Backend, Key, Operator, Unsupported, pool_kind

# An input as the algorithms take it: ``array`` is (groups, channels/groups, batch, *padded),
# ``out`` holds the output's spatial sizes.
Padded = namedtuple("Padded", "array out")


class Arithmetic:
    """Addition and multiplication of one format, each rounded once, to nearest, ties to even.

    float32 and float64 are NumPy's own. The 16-bit formats are computed in float32 and rounded
    again; that second rounding never changes the result: float32 has 24 bits, and two roundings
    equal one for sums and products of p bits where there are at least 2p + 2 (Figueroa, "When is
    double rounding innocuous?", 1995): 24 for float16 with p = 11, 18 for bfloat16 with p = 8.
    Below the normal range: float16's is normal in float32. A sum of bfloat16 values is exact there,
    and so is a product of at least 2**-134; smaller ones round to zero either way.
    """

    def __init__(self, name):
        self.name, self.native = name, name in ("float32", "float64")
        self.working = np.dtype("float64" if name == "float64" else "float32")

    def widen(self, array):
        """A container array in the working dtype (exact)."""
        return array if self.native else floats.widen(array, self.name).astype(self.working)

    def narrow(self, array):
        """The container array of values that are in the format already."""
        return array if self.native else floats.round_float32_to(array, self.name)

    def rounded(self, array):
        """Values of the working dtype rounded to the format."""
        return array if self.native else self.widen(floats.round_float32_to(array, self.name))

    def add(self, a, b):
        return self.rounded(a + b)

    def multiply(self, a, b):
        return self.rounded(a * b)


def fma32(a, b, c):
    """a * b + c of float32 arrays, rounded once.

    The product is exact in float64. Their sum is rounded to odd there (Boldo and Melquiond,
    "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008),
    after which rounding to float32 gives the correctly rounded result.
    """
    product, addend = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    with np.errstate(invalid="ignore"):
        total = np.asarray(product + addend)
        back = total - product
        error = (product - (total - back)) + (addend - back)  # exact (Knuth's TwoSum)
    bits = total.view(np.int64)
    inexact = np.isfinite(error) & (error != 0) & (bits & 1 == 0)
    away = np.where((error > 0) == (total > 0), 1, -1)
    odd = np.where(inexact, bits + away, bits).view(np.float64)
    with np.errstate(over="ignore"):
        return odd.astype(np.float32)


# An algorithm is f(n, factors, arithmetic) -> the sum of n products as one array. factors(i) gives
# the i-th input and weight, arrays that broadcast to the outputs: see Factors.

# Elements that are multiplied at once: they stay in the processor's cache.
BLOCK = 1 << 15


def sequential(n, factors, arithmetic):
    """One by one, in order. Products are formed in blocks, which saves calls of NumPy."""
    leaf, total = 0, None
    while leaf < n:
        terms = arithmetic.multiply(*factors.block(leaf))
        for term in terms:
            total = term if total is None else arithmetic.add(total, term)
        leaf += len(terms)
    return total


def pairwise(n, factors, arithmetic):
    """Neighbours first: sums of 2, 4, 8, ...; what is left over is joined from the right."""
    sums = []  # (leaves, array), leaves decreasing
    for leaf in range(n):
        sums.append((1, arithmetic.multiply(*factors(leaf))))
        while len(sums) > 1 and sums[-2][0] == sums[-1][0]:
            (left, a), (right, b) = sums[-2:]
            sums[-2:] = [(left + right, arithmetic.add(a, b))]
    total = sums.pop()[1]
    while sums:
        total = arithmetic.add(sums.pop()[1], total)
    return total


def fused_sum(n, factors, arithmetic):
    """In order, every product but the first fused with its addition. float32 alone."""
    if arithmetic.name != "float32":
        raise Unsupported(f"dtype={arithmetic.name}: algorithm=fused is float32 alone")
    total = arithmetic.multiply(*factors(0))
    for leaf in range(1, n):
        x, w = factors(leaf)
        total = fma32(x, w, total)
    return total


SUMS = {"sequential": sequential, "pairwise": pairwise, "fused": fused_sum}

KEYS = {
    "algorithm": Key(
        tuple(SUMS),
        "sequential; pairwise with length_switch",
        "how products are added; fused uses FMA",
    ),
    "length_switch": Key(
        None,
        "none",
        "sequential for shorter outputs, the algorithm from this length on (dense: rows)",
    ),
}


class Factors:
    """What is multiplied: windows of ``x`` (Padded) with ``w`` (leaves, groups, filters/groups, 1,
    *ones), which broadcast to (groups, filters/groups, batch, *out). ``len`` counts the leaves."""

    def __init__(self, spec, x, w):
        self.x, self.w, self.channels = x, w, x.array.shape[1]
        self.windows = windows_of_spec(spec)
        self.positions = self.windows.places()
        if operation_of_spec(spec).transposed:
            self.windows, self.positions = self.windows.spread, self.positions[::-1]
        outputs = w[:1].size * x.array.shape[2] * max(int(np.prod(x.out)), 1)
        self.at_once = max(BLOCK // max(outputs, 1), 1)

    def __len__(self):
        return len(self.positions) * self.channels

    def __call__(self, leaf):
        """The input and the weight of one leaf."""
        position, channel = divmod(leaf, self.channels)
        return self.x.array[(slice(None), channel, None) + self._window(position)], self.w[leaf]

    def block(self, leaf):
        """The same of some leaves from ``leaf`` on, which are the first axis of both arrays."""
        position, first = divmod(leaf, self.channels)
        last = min(first + self.at_once, self.channels)
        x = self.x.array[(slice(None), slice(first, last), None) + self._window(position)]
        return np.moveaxis(x, 1, 0), self.w[leaf : leaf + last - first]

    def _window(self, number):
        return (slice(None),) + self.windows.seen(self.positions[number], self.x.out)


def summing(spec, algorithm, arithmetic):
    """f(x, w) -> (groups, filters/groups, batch, *out): an algorithm bound to a spec's windows."""

    def compute(x, w):
        factors = Factors(spec, x, w)
        return algorithm(len(factors), factors, arithmetic)

    return compute


def spread(x, stride):
    """(channels, batch, *spatial) with stride - 1 zeros between the elements of each axis."""
    sizes = [(size - 1) * step + 1 for size, step in zip(x.shape[2:], stride)]
    wide = np.zeros(x.shape[:2] + tuple(sizes), x.dtype)
    wide[(slice(None),) * 2 + tuple(slice(None, None, step) for step in stride)] = x
    return wide


class ReferenceOperator(Operator):
    """One spec in NumPy. A value is an array of the working dtype, groups and channels first."""

    def __init__(self, spec, long, short, switch):
        """``long(x, w)`` serves outputs of length ``switch`` and more, ``short`` the others."""
        Operator.__init__(self, spec)
        self.arithmetic = arithmetic = Arithmetic(spec["dtype"])

        def call(x, w, b):
            with np.errstate(all="ignore"):
                length = x.out[-1] if x.out else x.array.shape[2]
                y = (long if length >= switch else short)(x, w)
                return y if b is None else arithmetic.add(y, b)

        self.call = call

    def input(self, x):
        windows = windows_of_spec(self.spec)
        spans = windows.spans(x.shape[1:-1])
        pairs = [(span.before, span.after) for span in spans]
        x = np.moveaxis(self.arithmetic.widen(x), -1, 0)
        if operation_of_spec(self.spec).transposed:
            x, pairs = spread(x, windows.stride), windows.spread.padding
        x = np.pad(x, [(0, 0), (0, 0)] + [(max(b, 0), max(a, 0)) for b, a in pairs], "constant")
        x = x[(slice(None),) * 2 + tuple(slice(max(-b, 0), min(a, 0) or None) for b, a in pairs)]
        groups = self.spec["groups"]
        x = x.reshape((groups, x.shape[0] // groups) + x.shape[1:])
        return Padded(x, tuple(span.outputs for span in spans))

    def weights(self, w):
        filters, ones = w.shape[-1], (1,) * (1 + len(self.spec["kernel"]))
        groups = self.spec["groups"]
        w = np.ascontiguousarray(self.arithmetic.widen(w))
        return w.reshape((w.size // filters, groups, filters // groups) + ones)

    def bias(self, b):
        if b is None:
            return None
        groups, ones = self.spec["groups"], (1,) * (1 + len(self.spec["kernel"]))
        return self.arithmetic.widen(b).reshape((groups, b.size // groups) + ones)

    def output(self, y):
        y = y.reshape((y.shape[0] * y.shape[1],) + y.shape[2:])
        return np.ascontiguousarray(self.arithmetic.narrow(np.moveaxis(y, 0, -1)))


class ReferencePool(Operator):
    """The maximum, or the sum in the order of the window (or pairwise), divided once.

    Values are channels-last arrays of the arithmetic's working dtype.
    """

    def __init__(self, spec, arithmetic, algorithm):
        Operator.__init__(self, spec)
        self.arithmetic, self.algorithm = arithmetic, algorithm

    def bind(self, operands):
        return self.largest if pool_kind(self.spec) == "max" else self.mean

    def input(self, x):
        return self.arithmetic.widen(x)

    def output(self, y):
        return np.ascontiguousarray(self.arithmetic.narrow(y))

    def largest(self, x):
        inside = 0.0 if self.spec["pad_with"] == "zeros" else -np.inf
        taps = self.taps(x, inside, -np.inf)
        total = next(taps)
        for tap in taps:
            total = np.maximum(total, tap)
        return total

    def mean(self, x):
        with np.errstate(all="ignore"):
            total = self.total(list(self.taps(x, 0.0, 0.0)))
            counted = float(self.spec["pad_with"] == "zeros")
            count = sum(self.taps(np.ones_like(x[:1, ..., :1]), counted, 0.0))
            return self.arithmetic.rounded(total / count)

    def total(self, taps):
        """The sum of what the places of the window meet."""
        if self.algorithm == "pairwise":
            ones = np.ones(1, self.arithmetic.working)
            return pairwise(len(taps), lambda leaf: (taps[leaf], ones), self.arithmetic)
        total = taps[0]
        for tap in taps[1:]:
            total = self.arithmetic.add(total, tap)
        return total

    def taps(self, x, inside, beyond):
        """What every place of the window meets, (batch, *outputs, channels), row by row."""
        windows = windows_of_spec(self.spec)
        spans = windows.spans(x.shape[1:-1])
        none = [(0, 0)]
        pads = none + [(span.before, span.after) for span in spans] + none
        x = np.pad(x, pads, "constant", constant_values=inside)
        pads = none + [(0, span.beyond) for span in spans] + none
        x = np.pad(x, pads, "constant", constant_values=beyond)
        outputs = [span.outputs for span in spans]
        for place in windows.places():
            yield x[(slice(None),) + windows.seen(place, outputs)]


class Reference(Backend):
    """NumPy, and nothing else."""

    name = "reference"
    distributions = ("numpy",)
    module = "numpy"
    keys = KEYS
    doc = "NumPy: one rounding for each operation, in the order of the window"
    suggestions = (",algorithm=pairwise", ",algorithm=fused")

    def start(self, switches, device):
        self.switch = int(switches.get("length_switch", 0))
        self.algorithm = switches.get("algorithm", "pairwise" if self.switch else "sequential")
        versions = {"library_version": np.__version__, "numpy_version": np.__version__}
        return dict(versions, library="numpy", devices=["cpu"], threads=1)

    def operator(self, spec):
        """Raises Unsupported where the algorithm has no form for the spec."""
        arithmetic = Arithmetic(spec["dtype"])
        if pool_kind(spec):
            return self.pool(spec, arithmetic)
        short = summing(spec, sequential, arithmetic)
        return ReferenceOperator(spec, self.computed(spec, arithmetic), short, self.switch)

    def pool(self, spec, arithmetic):
        return ReferencePool(spec, arithmetic, self.algorithm)

    def computed(self, spec, arithmetic):
        return summing(spec, SUMS[self.algorithm], arithmetic)
