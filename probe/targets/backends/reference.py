"""Computes convolutions in NumPy, each operation rounded once, to compare libraries with.

The summands of an output are numbered by kernel position (row-major), then by channel. By default
they are added in that order, starting from the first product; the bias is added last. So bits
depend on the window alone, and every length, batch and set of filters agrees with every other.
The other algorithms are test doubles for the tools that look for orders and roundings.
"""

import random
from collections import namedtuple

import numpy as np

from probe.case import floats
from probe.case.geometry import WindowSizes
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
        """Returns a container array in the working dtype (exact)."""
        return array if self.native else floats.widen(array, self.name).astype(self.working)

    def narrow(self, array):
        """Returns the container array of values that are in the format already."""
        return array if self.native else floats.round_float32_to(array, self.name)

    def rounded(self, array):
        """Returns values of the working dtype rounded to the format."""
        return array if self.native else self.widen(floats.round_float32_to(array, self.name))

    def flushed(self, array):
        """Returns values of the format with zeros of their sign for subnormal ones."""
        small = np.abs(array) < floats.flushed_below(self.name, "before")
        return np.where(small, np.copysign(np.zeros_like(array), array), array)

    def add(self, a, b):
        """a + b in the format."""
        return self.rounded(a + b)

    def multiply(self, a, b):
        """a * b in the format."""
        return self.rounded(a * b)


def fma32(a, b, c):
    """a * b + c of float32 arrays, rounded once.

    The product is exact in float64. Their sum is rounded to odd there (Boldo and Melquiond,
    "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd", 2008),
    after which rounding to float32 gives the correctly rounded result.
    """
    product, other = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)
    with np.errstate(invalid="ignore"):
        total = np.asarray(product + other)
        back = total - product
        error = (product - (total - back)) + (other - back)  # exact (Knuth's TwoSum)
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


def added_in_order(order):
    """Returns an algorithm that adds products one by one; ``order(n)`` says in which order."""

    def algorithm(n, factors, arithmetic):
        leaves = iter(order(n))
        total = arithmetic.multiply(*factors(next(leaves)))
        for leaf in leaves:
            total = arithmetic.add(total, arithmetic.multiply(*factors(leaf)))
        return total

    return algorithm


def shuffled(n):
    """Another order at every call, on purpose."""
    order = list(range(n))
    random.SystemRandom().shuffle(order)
    return order


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


def blocked(n, factors, arithmetic):
    """Four accumulators, leaf i goes into number i mod 4; then (0 + 1) + (2 + 3)."""
    one_by_one = added_in_order(range)
    sums = [
        one_by_one(len(range(lane, n, 4)), lambda i, lane=lane: factors(lane + 4 * i), arithmetic)
        for lane in range(min(n, 4))
    ]
    while len(sums) > 1:
        pairs = [arithmetic.add(*pair) for pair in zip(sums[::2], sums[1::2])]
        sums = pairs + sums[2 * len(pairs) :]
    return sums[0]


def fused_sum(n, factors, arithmetic):
    """In order, every product but the first fused with its addition. float32 alone."""
    if arithmetic.name != "float32":
        raise Unsupported(f"dtype={arithmetic.name}: algorithm=fused is float32 alone")
    total = arithmetic.multiply(*factors(0))
    for leaf in range(1, n):
        x, w = factors(leaf)
        total = fma32(x, w, total)
    return total


def truncated_sum(n, factors, arithmetic):
    """In order, exact products and sums in float32; the result is cut to 16 bits, toward zero."""
    if arithmetic.native:
        raise Unsupported(f"dtype={arithmetic.name}: algorithm=truncated is for 16 bits")
    total = np.zeros(1, np.float32)
    for leaf in range(n):
        x, w = factors(leaf)
        total = fma32(x, w, total)
    return arithmetic.widen(floats.cut_to(total.astype(np.float64), arithmetic.name))


def neighbour(n, factors, arithmetic):
    """In order, then the place after the window, times 0: what a NaN there gets into.

    Of a case without spatial axes it is the next batch entry. The last place has no neighbour.
    """
    total = sequential(n, factors, arithmetic)
    for beyond in factors.beyond():
        total = arithmetic.add(total, arithmetic.multiply(beyond, arithmetic.working.type(0)))
    return total


def flushing_sum(*what):
    """In order, with zeros for what is subnormal of ``what``, as threads in such a mode do it.

    Results are flushed as x86 does it; products of float64 after they are rounded.
    """

    def algorithm(n, factors, arithmetic):
        if arithmetic.name == "float16":
            raise Unsupported("dtype=float16: algorithm=flush is for wider exponents")
        total = None
        for leaf in range(n):
            x, w = factors(leaf)
            x = arithmetic.flushed(x) if "inputs" in what else x
            w = arithmetic.flushed(w) if "weights" in what else w
            term = arithmetic.multiply(x, w)
            if "products" in what:
                exact = x.astype(np.float64) * w.astype(np.float64)
                # a product of two float64 numbers is rounded in float64 already
                kind = "before" if arithmetic.name == "float64" else None
                small = np.abs(exact) < floats.flushed_below(arithmetic.name, kind)
                term = np.where(small, np.copysign(np.zeros_like(term), term), term)
            total = term if total is None else arithmetic.add(total, term)
            if "sums" in what and leaf:
                total = arithmetic.flushed(total)
        return total

    return algorithm


def short_sum(n, factors, arithmetic):
    """In order, in float32; the result is rounded to bfloat16, as where that is computed in it."""
    if arithmetic.name != "float32":
        raise Unsupported("dtype={}: algorithm=short is float32 alone".format(arithmetic.name))
    total = sequential(n, factors, arithmetic)
    short = floats.widen(floats.round_float32_to(total, "bfloat16"), "bfloat16")
    return short.astype(np.float32)


def short_sums(n, factors, arithmetic):
    """In order, in float32; every second sum is rounded to float16."""
    if arithmetic.name != "float32":
        raise Unsupported("dtype={}: algorithm=short_sums is float32 alone".format(arithmetic.name))
    total = arithmetic.multiply(*factors(0))
    for leaf in range(1, n):
        total = arithmetic.add(total, arithmetic.multiply(*factors(leaf)))
        if leaf % 2 == 0:
            total = floats.round_to(total, "float16").astype(np.float32)
    return total


def from_zero(n, factors, arithmetic):
    """In order, onto +0: a sum of negative zeros is +0."""
    total = np.zeros(1, arithmetic.working)
    for leaf in range(n):
        total = arithmetic.add(total, arithmetic.multiply(*factors(leaf)))
    return total


# Algorithms that do not add the products, in float32 and float64, groups=1: Winograd's F(2,3)
# (Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016),
# and a product of spectra (the convolution theorem).

# F(2,3): the transforms of four inputs, of three weights, and back to two outputs.
OF_INPUT = ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1))
OF_WEIGHTS = ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1))
OF_OUTPUT = ((1, 1, 1, 0), (0, 1, -1, -1))


def _refuse_transform(spec, name, arithmetic):
    """Raises Unsupported for what neither transform does here."""
    if not arithmetic.native:
        raise Unsupported(f"dtype={spec['dtype']}: algorithm={name} is float32 and float64 alone")
    if not spec["kernel"]:
        raise Unsupported(f"op={spec['op']}: algorithm={name} is for convolutions")
    if spec["groups"] != 1:
        raise Unsupported(f"groups={spec['groups']}: algorithm={name} has one group")


def transformed(matrix, array, axis):
    """Returns a small matrix applied along one axis, its terms added in order."""
    rows = []
    for row in matrix:
        terms = [c * array.take(i, axis) for i, c in enumerate(row) if c]
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        rows.append(total)
    return np.stack(rows, axis).astype(array.dtype)


def winograd(spec, arithmetic):
    """f(x, w) for kernels of 3 or 3x3, stride and dilation 1: four multiplications for two outputs.

    Tiles of two outputs start at output 0, so that a longer input changes no tile but the last.
    """
    _refuse_transform(spec, "winograd", arithmetic)
    if set(spec["kernel"]) != {3} or len(spec["kernel"]) > 2:
        raise Unsupported(f"kernel={spec['kernel']}: algorithm=winograd is for 3 and 3x3")
    if set(spec["stride"]) | set(spec["dilation"]) != {1}:
        raise Unsupported("algorithm=winograd has stride 1 and dilation 1")
    rank = len(spec["kernel"])

    def compute(x, w):
        channels, filters = x.array.shape[1], w.shape[2]
        w = w.reshape((3,) * rank + (channels, filters))
        tiles, places = [-(-size // 2) for size in x.out], []
        short = [2 * t + 2 - size for t, size in zip(tiles, x.array.shape[3:])]
        d = np.pad(x.array[0], [(0, 0), (0, 0)] + [(0, max(s, 0)) for s in short], "constant")
        for axis in range(rank):  # (channels, batch, tiles, 4, tiles, 4)
            place = 2 + 2 * axis
            windows = 2 * np.arange(tiles[axis])[:, None] + np.arange(4)
            d = transformed(OF_INPUT, d.take(windows, place), place + 1)
            w = transformed(OF_WEIGHTS, w, axis)
            places.append(place + 1)
        # multiplied place by place, then added over the channels in order: (filters, batch, ...)
        between = (1,) + (1, 4) * rank
        y = np.zeros(())
        for channel in range(channels):
            factor = np.moveaxis(w[..., channel, :], -1, 0)
            term = factor.reshape(factor.shape[:1] + between) * d[channel]
            y = term if channel == 0 else y + term
        for place in places:
            y = transformed(OF_OUTPUT, y, place)
        y = y.reshape(y.shape[:2] + tuple(2 * t for t in tiles))
        return y[(None, slice(None), slice(None)) + tuple(slice(size) for size in x.out)]

    return compute


def fft_convolution(spec, arithmetic):
    """f(x, w) for any kernel: the product of the spectra of the whole padded input."""
    _refuse_transform(spec, "fft", arithmetic)
    steps = [tuple(spec[key]) for key in ("kernel", "stride", "dilation")]

    def compute(x, w):
        kernel, stride, dilation = steps
        sizes, axes = x.array.shape[3:], tuple(range(-len(kernel), 0))
        channels, filters = x.array.shape[1], w.shape[2]
        spread = np.zeros((channels, filters, 1) + sizes, w.dtype)
        taps = tuple(slice(0, (k - 1) * d + 1, d) for k, d in zip(kernel, dilation))
        w = w.reshape(kernel + (channels, filters))
        spread[(slice(None), slice(None), 0) + taps] = np.moveaxis(w, (-2, -1), (0, 1))
        # conjugated: a layer's convolution is a correlation, which does not turn the kernel around
        spectra = np.fft.rfftn(x.array[0][:, None], axes=axes) * np.conj(
            np.fft.rfftn(spread, axes=axes)
        )
        total = spectra[0]
        for term in spectra[1:]:
            total = total + term
        y = np.fft.irfftn(total, sizes, axes=axes).astype(w.dtype)
        strided = tuple(slice(0, (n - 1) * s + 1, s) for n, s in zip(x.out, stride))
        return y[(None, slice(None), slice(None)) + strided]

    return compute


SUMS = {
    "sequential": sequential,
    "pairwise": pairwise,
    "blocked": blocked,
    "reversed": added_in_order(lambda n: range(n - 1, -1, -1)),
    "fused": fused_sum,
    "truncated": truncated_sum,
    "neighbour": neighbour,
    "flush": flushing_sum("inputs", "weights", "products", "sums"),
    "flush_inputs": flushing_sum("inputs"),
    "flush_weights": flushing_sum("weights"),
    "flush_products": flushing_sum("products"),
    "flush_sums": flushing_sum("sums"),
    "from_zero": from_zero,
    "short": short_sum,
    "short_sums": short_sums,
    "random": added_in_order(shuffled),
}
TRANSFORMS = {"winograd": winograd, "fft": fft_convolution}

KEYS = {
    "algorithm": Key(
        tuple(SUMS) + tuple(TRANSFORMS),
        "sequential; pairwise with length_switch",
        "how products are added; fused uses FMA, truncated truncates 16-bit results toward zero, "
        "neighbour adds 0 times the input after the window, "
        "flush replaces subnormal numbers by zero, short rounds float32 results to bfloat16, "
        "winograd and fft do not add the products, random changes from call to call",
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
        self.windows = WindowSizes.of(spec)
        self.positions = self.windows.places()
        outputs = w[:1].size * x.array.shape[2] * max(int(np.prod(x.out)), 1)
        self.at_once = max(BLOCK // max(outputs, 1), 1)

    def __len__(self):
        return len(self.positions) * self.channels

    def __call__(self, leaf):
        """Returns the input and the weight of one leaf."""
        position, channel = divmod(leaf, self.channels)
        return self.x.array[(slice(None), channel, None) + self._window(position)], self.w[leaf]

    def block(self, leaf):
        """The same of some leaves from ``leaf`` on, which are the first axis of both arrays."""
        position, first = divmod(leaf, self.channels)
        last = min(first + self.at_once, self.channels)
        x = self.x.array[(slice(None), slice(first, last), None) + self._window(position)]
        return np.moveaxis(x, 1, 0), self.w[leaf : leaf + last - first]

    def beyond(self):
        """What each channel has just behind the windows on the last axis, 0 behind the input."""
        x, axis, kernel = self.x.array, len(self.x.array.shape) - 1, self.windows.kernel
        step = self.windows.dilation[-1] if self.x.out else 1
        around = [(0, 0)] * axis + [(0, step)]
        x = np.pad(x, around, "constant")
        place = tuple(size - 1 for size in kernel[:-1]) + tuple(kernel[-1:])
        inside = self.windows.seen(place, self.x.out) if self.x.out else (slice(1, None),)
        for channel in range(self.channels):
            yield x[(slice(None), channel, None, *([slice(None)] * bool(self.x.out)), *inside)]

    def _window(self, number):
        return (slice(None),) + self.windows.seen(self.positions[number], self.x.out)


def summing(spec, algorithm, arithmetic):
    """f(x, w) -> (groups, filters/groups, batch, *out): an algorithm bound to a spec's windows."""

    def compute(x, w):
        factors = Factors(spec, x, w)
        return algorithm(len(factors), factors, arithmetic)

    return compute


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
        spans = WindowSizes.of(self.spec).spans(x.shape[1:-1])
        x = np.moveaxis(self.arithmetic.widen(x), -1, 0)
        x = np.pad(x, [(0, 0), (0, 0)] + [(span.before, span.after) for span in spans], "constant")
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
    """The maximum, or the sum in the order of the window, divided once.

    Values are channels-last arrays of the arithmetic's working dtype. ``algorithm``: ``reversed``
    and ``pairwise`` add in another order, ``flush`` takes zeros for subnormal numbers.
    """

    def __init__(self, spec, arithmetic, algorithm):
        Operator.__init__(self, spec)
        self.arithmetic, self.algorithm = arithmetic, algorithm
        self.flushed = arithmetic.flushed if algorithm == "flush" else np.asarray

    def bind(self, operands):
        return self._max if pool_kind(self.spec) == "max" else self._mean

    def input(self, x):
        return self.flushed(self.arithmetic.widen(x))

    def output(self, y):
        return np.ascontiguousarray(self.arithmetic.narrow(y))

    def _max(self, x):
        inside = 0.0 if self.spec["pad_with"] == "zeros" else -np.inf
        taps = self._taps(x, inside, -np.inf)
        total = next(taps)
        for tap in taps:
            total = np.maximum(total, tap)
        return total

    def _mean(self, x):
        with np.errstate(all="ignore"):
            total = self._total(list(self._taps(x, 0.0, 0.0)))
            counted = float(self.spec["pad_with"] == "zeros")
            count = sum(self._taps(np.ones_like(x[:1, ..., :1]), counted, 0.0))
            return self.flushed(self.arithmetic.rounded(total / count))

    def _total(self, taps):
        if self.algorithm == "pairwise":
            ones = np.ones(1, self.arithmetic.working)
            return pairwise(len(taps), lambda leaf: (taps[leaf], ones), self.arithmetic)
        total = None
        for tap in taps[::-1] if self.algorithm == "reversed" else taps:
            total = tap if total is None else self.flushed(self.arithmetic.add(total, tap))
        return total

    def _taps(self, x, inside, beyond):
        """Yields what every place of the window meets, (batch, *outputs, channels), row by row."""
        windows = WindowSizes.of(self.spec)
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
    suggestions = (",algorithm=pairwise", ",algorithm=blocked", ",algorithm=fused")

    def start(self, switches, device):
        """Nothing to import; the facts are NumPy's."""
        self.switch = int(switches.get("length_switch", 0))
        self.algorithm = switches.get("algorithm", "pairwise" if self.switch else "sequential")
        versions = {"library_version": np.__version__, "numpy_version": np.__version__}
        return dict(versions, library="numpy", devices=["cpu"], threads=1)

    def operator(self, spec):
        """Raises Unsupported where the algorithm has no form for the spec."""
        arithmetic = Arithmetic(spec["dtype"])
        if pool_kind(spec):
            return ReferencePool(spec, arithmetic, self.algorithm)
        short = summing(spec, SUMS["sequential"], arithmetic)
        if self.algorithm in TRANSFORMS:
            long = TRANSFORMS[self.algorithm](spec, arithmetic)
        else:
            long = summing(spec, SUMS[self.algorithm], arithmetic)
        return ReferenceOperator(spec, long, short, self.switch)
