"""Adds up recorded runs in the recorded order and rounding: NumPy alone, Python 3.8 or later.

A saved run is this very file with the run's data at its end: operands, summation trees, roundings
and the bits that the library gave. It needs neither the library nor its processor. Every node of a
tree is the exact sum of its children rounded once; a fused leaf enters as its exact product, any
other one as its rounded product.

    python FILE          the orders, the first outputs, and whether all bits are the library's
    python FILE --all    every output

Exit status: 0 if every output has the library's bits, 1 if one has not.
"""
# ruff: noqa: B905 (zip has no strict= in Python 3.8)

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import sys
from fractions import Fraction

import numpy as np

SHOWN = 12  # outputs that are printed without --all
AT_ONCE = 1 << 16  # outputs that are added up at once
BIAS = 1 << 30  # the leaf number of the bias
EVERY = -2  # in a set of what is flushed: all of its kind
NOTHING_READ = -2  # in an index of summations: the window reads padding only, the output is 0

# name: precision with the hidden bit, exponents of the smallest normal and largest finite value
GRIDS = {
    "float16": (11, -14, 15),
    "bfloat16": (8, -126, 127),
    "tf32": (11, -126, 127),
    "float32": (24, -126, 127),
    "float64": (53, -1022, 1023),
}


def nearest(values: np.ndarray, name: str) -> np.ndarray:
    """float64 values rounded once to the grid of a format: to the nearest, ties to even."""
    precision, emin, emax = GRIDS[name]
    if name == "float64":
        return values
    if name == "float32":
        return values.astype(np.float32).astype(np.float64)
    drop, one = np.uint64(53 - precision), np.uint64(1)
    bits = values.view(np.uint64)
    rounded = bits + ((one << (drop - one)) - one) + ((bits >> drop) & one)
    rounded = ((rounded >> drop) << drop).view(np.float64)
    shift = 1.5 * 2.0 ** (emin - precision + 53)  # below the normal range the grid is even
    small = np.copysign(values + shift - shift, values)
    rounded = np.where(np.abs(values) < 2.0**emin, small, rounded)
    largest = (2.0 - 2.0 ** (1 - precision)) * 2.0**emax
    rounded = np.where(np.abs(rounded) > largest, np.copysign(np.inf, values), rounded)
    return np.where(np.abs(values) < np.inf, rounded, values)


def widen(array: np.ndarray, name: str) -> np.ndarray:
    """Exact float64 values of an array; bfloat16 comes as uint16 bit patterns."""
    if name == "bfloat16":
        array = (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return array.astype(np.float64)


def narrow(values: np.ndarray, name: str) -> np.ndarray:
    """float64 values rounded once to an array of the format; bfloat16 as uint16 bit patterns."""
    exact = nearest(values, name)
    if name == "bfloat16":
        return (exact.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    return exact.astype(name)


def truncate(values: np.ndarray, name: str) -> np.ndarray:
    """As ``narrow``, but rounded toward zero."""
    rounded = narrow(values, name)
    beyond = np.abs(widen(rounded, name)) > np.abs(values)
    return (bits(rounded) - beyond.astype(bits(rounded).dtype)).view(rounded.dtype)


def least(name: str, kind: str | None = None) -> float:
    """The size below which a number is flushed to zero; ``kind``: how subnormals are told."""
    precision, emin, _ = GRIDS[name]
    spare = {None: precision + 1, "before": 1024, "grid": precision}[kind]
    return 2.0**emin * (1.0 if spare > 53 else 1.0 - 2.0**-spare)


def flushed(values: np.ndarray, below: np.ndarray | float) -> np.ndarray:
    """Values with zeros of their sign where a mask says so, or where they are below a limit."""
    where = below if isinstance(below, np.ndarray) else np.abs(values) < below
    return np.where(where, np.copysign(0.0, values), values)


def two_sum(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rounded sum and its exact error (Knuth)."""
    total = a + b
    other = total - a
    return total, (a - (total - other)) + (b - other)


def to_odd(total: np.ndarray, error: np.ndarray) -> np.ndarray:
    """A rounded sum and its error to the sum rounded to odd, from which one more rounding is exact.

    Boldo and Melquiond, "Emulation of a FMA and correctly rounded sums: proved algorithms using
    rounding to odd", IEEE Transactions on Computers 57, 2008.
    """
    bits = total.view(np.int64)
    even = ((bits & 1) == 0) & (error != 0) & np.isfinite(total) & np.isfinite(error)
    step = np.where((error > 0) == (total > 0), 1, -1)
    return np.where(even, bits + step, bits).view(np.float64)


def exact_total(
    terms: list[np.ndarray],
    products: list[tuple[np.ndarray, np.ndarray]],
    flush: bool = False,
    kind: str | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The exact sum of float64 terms and products of each output: the nearest float64, and the sign
    of what is left.

    ``flush``: sums that are subnormal numbers of float64 become zeros; ``kind``: how that is told.
    """
    shape = (terms or products[0])[0].shape
    total, rest = np.empty(shape), np.empty(shape)
    limit = Fraction(least("float64")) * (1 if kind == "before" else 1 - Fraction(1, 1 << 54))
    for n in range(len(total)):
        pairs = [(float(a[n]), float(b[n])) for a, b in products]
        single = [float(term[n]) for term in terms]
        if not all(map(math.isfinite, single + [number for pair in pairs for number in pair])):
            total[n], rest[n] = float(np.sum(single + [a * b for a, b in pairs])), 0.0
            continue
        exact = sum((Fraction(a) * Fraction(b) for a, b in pairs), Fraction(0))
        exact += sum(map(Fraction, single), Fraction(0))
        try:
            total[n] = exact.numerator / exact.denominator  # Python rounds this once
        except OverflowError:
            total[n], rest[n] = math.inf if exact > 0 else -math.inf, 0.0
            continue
        below = abs(total[n]) < 2.0**-1022 if kind == "grid" else abs(exact) < limit
        if flush and below:
            total[n], exact = math.copysign(0.0, total[n]), Fraction(0)
        left = exact - Fraction(float(total[n]))
        rest[n] = float((left > 0) - (left < 0))
    return total, rest


class Summation:
    """A tree with its roundings: how some outputs add their products.

    ``nodes``: children of each node, children first: a leaf as its number, node k as ~k.
    ``formats``: ``products``, what operands are rounded to; ``input_format`` and ``weight_format``,
    what one of them is; ``nodes``, that of partial sums;
    ``product_format``, that of products that are not fused; ``dtype`` where one is None;
    ``through``, what every sum is rounded to first, if there is one. ``sets``: ``fused``, leaves
    whose exact product is added; ``narrow``, nodes that are rounded to the dtype too; ``cut``,
    nodes whose last rounding, to the dtype, is toward zero; -1 where there is one leaf and no node;
    ``shortened``, nodes that are rounded to ``short_format``, of fewer bits, last;
    ``flushed_...``: leaves, or nodes, that are zero where they are subnormal. ``tininess``, among
    the formats, is how that is told.
    """

    def __init__(self, nodes: list[list[int]], leaf: int, formats: dict, sets: dict) -> None:
        self.nodes, self.leaf, self.formats = nodes, leaf, formats
        self.sets = {name: set(numbers) for name, numbers in sets.items()}

    def add_up(self, run: Run, positions: np.ndarray, filters: np.ndarray) -> np.ndarray:
        """Outputs of these positions and filters, as float64 values."""
        self.run, self.positions, self.filters = run, positions, filters
        self.sums = self.formats["nodes"] or run.dtype
        values: dict[int, np.ndarray] = {}
        for number, children in enumerate(self.nodes):
            terms = [values.pop(child) for child in children if child < 0]
            products = []
            for leaf in children:
                if leaf >= 0 and run.dtype == "float64" and leaf in self.sets["fused"]:
                    products.append(self._factors(leaf))
                elif leaf >= 0:
                    terms.append(self._leaf(leaf))
            total = self._add(products, terms, self.flushes("sums", number))
            if number in self.sets["narrow"]:
                total = widen(self.rounded(total, number, run.dtype), run.dtype)
            values[~number] = self._short(total, number)
        return values.popitem()[1] if self.nodes else self._short(self._leaf(self.leaf), -1)

    def _short(self, total: np.ndarray, number: int) -> np.ndarray:
        """A node's value, rounded to fewer bits than the dtype has where it is kept so."""
        short = number in self.sets.get("shortened", ())
        return nearest(total, self.formats["short_format"]) if short else total

    def _add(
        self,
        products: list[tuple[np.ndarray, np.ndarray]],
        terms: list[np.ndarray],
        flush: bool,
    ) -> np.ndarray:
        """A node's value: the exact sum of float64 products and terms, rounded, maybe flushed."""
        first, kind = self.formats["through"] or self.sums, self.formats.get("tininess")
        if products or len(terms) != 2:
            total, error = exact_total(terms, products, flush and self.sums == "float64", kind)
        else:
            total, error = two_sum(terms[0], terms[1])
        if first != "float64":
            total = to_odd(total, error)
        # what is rounded once is flushed before, and what is rounded twice is flushed last
        small = least(self.sums, kind) if flush else 0.0
        if first == self.sums:
            return nearest(flushed(total, small), first)
        return flushed(nearest(nearest(total, first), self.sums), small)

    def flushes(self, name: str, number: int) -> bool:
        """Whether a leaf's or a node's subnormal values become zero."""
        numbers = self.sets.get("flushed_" + name, ())
        return number in numbers or EVERY in numbers

    def rounded(self, total: np.ndarray, number: int, dtype: str) -> np.ndarray:
        """The value of a node, or of the only leaf (-1), as an array of the dtype."""
        if self.flushes("sums", number):
            total = flushed(total, least(dtype, self.formats.get("tininess")))
        return (truncate if number in self.sets["cut"] else narrow)(total, dtype)

    def _leaf(self, leaf: int) -> np.ndarray:
        if leaf == BIAS:
            assert self.run.b is not None
            bias = widen(self.run.b[self.filters], self.run.dtype)
            if self.formats.get("bias_format"):
                bias = nearest(bias, self.formats["bias_format"])
            return flushed(bias, least(self.run.dtype, "before") * self.flushes("products", BIAS))
        a, b = self._factors(leaf)
        if leaf in self.sets["fused"] and self.nodes:
            small = least(self.run.dtype, "before") * self.flushes("whole", leaf)
            return flushed(a * b, small)  # exact: operands of 24 bits or less
        form, kind = self.formats["product_format"] or self.sums, self.formats.get("tininess")
        flush = self.flushes("products", leaf)
        if self.run.dtype == "float64" and form != "float64":
            return nearest(to_odd(*exact_total([], [(a, b)])), form)
        if flush and form == "float64":
            return exact_total([], [(a, b)], True, kind)[0]
        return nearest(flushed(a * b, least(form, kind) * flush), form)

    def _factors(self, leaf: int) -> tuple[np.ndarray, np.ndarray]:
        pair = self.run.operands(leaf, self.positions, self.filters)
        both, small = self.formats["products"], least(self.run.dtype, "before")
        grids = [self.formats.get(name) or both for name in ("input_format", "weight_format")]
        a, b = (nearest(values, grid) if grid else values for values, grid in zip(pair, grids))
        a = flushed(a, small * self.flushes("inputs", leaf))
        b = flushed(b, small * self.flushes("weights", leaf))
        whole = leaf in self.sets["fused"] and self.nodes and self.flushes("whole", leaf)
        if self.run.dtype == "float64" and whole:
            where = exact_total([], [(a, b)], True, "before")[0] == 0
            a, b = flushed(a * np.copysign(1.0, b), where), np.where(where, 1.0, np.abs(b))
        return a, b


class Run:
    """One call: operands, windows, what the library gave, and how each output is added up.

    A position is a batch entry and a place on the output's spatial axes, row by row. ``index``
    (positions, filters) numbers the summations; -1 where none is known.
    """

    def __init__(self, about: dict, arrays: dict, number: int) -> None:
        names = [name for name in arrays if name.startswith(f"{number}.")]
        own = {name.split(".", 1)[1]: arrays[name] for name in names}
        self.about, self.dtype = about, about["dtype"]
        self.x, self.w, self.b, self.y = own["x"], own["w"], own.get("b"), own["y"]
        self.index = own["index"].astype(np.int64)
        self.summations = [
            Summation(facts["nodes"], facts["leaf"], facts["formats"], facts["sets"])
            for facts in about["summations"]
        ]
        rows = self.x.reshape(self.x.shape[0], -1, self.x.shape[-1])
        self.rows = np.concatenate([rows, np.zeros_like(rows[:, :1])], axis=1)  # row -1: padding
        self.weights = self.w.reshape(-1, self.w.shape[-1])
        # row of x that each kernel position meets at each place: (places, kernel); -1: padding
        self.reads = own["reads"]

    def operands(
        self, leaf: int, positions: np.ndarray, filters: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Both factors of leaf number ``leaf`` in each output: input and weight,
        float64."""
        groups = self.about["groups"]
        channels = self.rows.shape[2] // groups
        entries, places = np.divmod(positions, len(self.reads))
        channel = filters // (self.weights.shape[1] // groups) * channels + leaf % channels
        x = self.rows[entries, self.reads[places, leaf // channels], channel]
        return widen(x, self.dtype), widen(self.weights[leaf, filters], self.dtype)

    def outputs(self) -> np.ndarray:
        out = np.zeros(self.y.shape, self.y.dtype)
        with np.errstate(all="ignore"):
            for number, summation in enumerate(self.summations):
                positions, filters = np.nonzero(self.index == number)
                for start in range(0, len(positions), AT_ONCE):
                    part = slice(start, start + AT_ONCE)
                    place = positions[part], filters[part]
                    total = summation.add_up(self, *place)
                    last = len(summation.nodes) - 1
                    out[place] = summation.rounded(total, last, self.dtype)
        return out

    @property
    def known(self) -> np.ndarray:
        return (self.index >= 0) | (self.index == NOTHING_READ)

    def place(self, flat: int) -> str:
        shape = (self.x.shape[0], *self.about["outputs"], self.w.shape[-1])
        return f"out[{', '.join(str(int(i)) for i in np.unravel_index(flat, shape))}]"

    def text(self, value: np.ndarray) -> str:
        """One value with its bits, such as 97.20009 (0x42c26672)."""
        shown = widen(value, self.dtype).astype(np.float32) if self.dtype == "bfloat16" else value
        return f"{shown!s} (0x{int(bits(value.reshape(1))[0]):0{2 * value.dtype.itemsize}x})"


def bits(array: np.ndarray) -> np.ndarray:
    return array.view(f"u{array.dtype.itemsize}")


def equal(a: np.ndarray, b: np.ndarray, dtype: str) -> np.ndarray:
    """Where bits are the same; zeros of either sign are equal, and so is any NaN."""
    wide_a, wide_b = widen(a, dtype), widen(b, dtype)
    both_nan = (wide_a != wide_a) & (wide_b != wide_b)
    return (bits(a) == bits(b)) | ((wide_a == 0) & (wide_b == 0)) | both_nan


def load(text: str) -> tuple[dict, list[Run], dict]:
    """From base64 text: what is said of all runs, the runs, and all arrays by name."""
    with np.load(io.BytesIO(base64.b64decode(text)), allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files}
    about = json.loads(arrays.pop("about").tobytes().decode("utf-8"))
    return about, [Run(run, arrays, k) for k, run in enumerate(about["runs"])], arrays


def show(run: Run, out: np.ndarray, most: int) -> bool:
    """Prints one run; whether every output whose order is known has the library's bits."""
    counts = [int((run.index == number).sum()) for number in range(len(run.summations))]
    print(f"{run.about['target']}: {run.about['case']}")
    for count, summation in zip(counts, run.about["summations"]):
        print(f"  {summation['tree']}, {summation['text']}: {count} outputs")
    good, revealed = equal(out, run.y, run.dtype), run.known
    flat, wrong = out.reshape(-1), np.flatnonzero(revealed & ~good)
    for k in np.flatnonzero(revealed)[:most]:
        print(f"  {run.place(k)} = {run.text(flat[k])}")
    for k in wrong[:SHOWN]:
        library = run.text(run.y.reshape(-1)[k])
        print(f"  {run.place(k)} = {run.text(flat[k])}, the library gave {library}")
    digest = hashlib.sha256(np.ascontiguousarray(out).tobytes()).hexdigest()[:16]
    right = int(revealed.sum()) - len(wrong)
    print(f"  {right} of {good.size} outputs have the library's bits; sha256 {digest}")
    if not revealed.all():
        print(f"  of {(~revealed).sum()} outputs no order is known: they are left out")
    return not len(wrong)


def show_pairs(runs: list[Run], outs: list[np.ndarray], arrays: dict, most: int) -> None:
    """Prints outputs of the first two runs that read the same values and differ."""
    places = arrays["left"], arrays["right"]
    first, second = (out.reshape(-1)[place] for out, place in zip(outs, places))
    differ = np.flatnonzero(~equal(first, second, runs[0].dtype))
    print(f"outputs that add the same products in both: {len(first)}, differing: {len(differ)}")
    for k in differ[:most]:
        left, right = (run.place(place[k]) for run, place in zip(runs, places))
        print(f"  {left} = {runs[0].text(first[k])}; {right} = {runs[1].text(second[k])}")


def main(text: str, arguments: list[str]) -> int:
    """Adds everything up, prints it, and returns the exit status."""
    about, runs, arrays = load(text)
    most = sys.maxsize if "--all" in arguments else SHOWN
    if about["note"]:
        print(about["note"])
    outs = [run.outputs() for run in runs]
    good = [show(run, out, most) for run, out in zip(runs, outs)]
    if "left" in arrays:
        show_pairs(runs, outs, arrays, most)
    return 0 if all(good) else 1


DATA = ""

if __name__ == "__main__":
    sys.exit(main(DATA, sys.argv[1:]))
