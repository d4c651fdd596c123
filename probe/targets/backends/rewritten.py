"""Rewrites operations: in pieces, wider, in two calls, or with axes swapped.

A spec may carry words that no library knows; each stands for calls of the library's own operation,
once the input's shape is known:

- ``split``: the first channels in one call, the rest in another, and their outputs added, each
  element rounded once: IEEE's addition, which every library's elementwise addition is.
- ``remedy``, what a user may put in the place of an operation so that lengths agree:
  ``{"kind": "chunks", "outputs": N}``: N output positions of the last axis a call, always the same
  shape, the last piece filled up with zeros. However long the input is, an output comes from the
  same place of the same call. ``"axis": A``: of another spatial axis, here and with ``pad``.
  ``{"kind": "pad", "outputs": [N, ...]}``: one call, filled up with zeros to the smallest N that
  holds all outputs. ``{"kind": "float64"}``: operands widened, the operator in float64, its output
  rounded. ``{"kind": "stable", "accumulate": None}``: the operator of ``probe.stable``.
  ``{"kind": "invariant", "sizes": [N, ...]}``: the operator by ``probe.stable.invariant``, for
  these batches. ``"axis": "batch"`` of ``chunks`` and ``pad``: calls of N samples, filled up with
  copies of the first one.
- ``turned``: the operation with its two spatial axes swapped. Here the length is always the last
  spatial axis; the library gets (batch, length, height, channels), as the user's model gives them,
  since the axis decides the kernel.

NumPy cuts, pads, converts and joins arrays between the calls, which belongs to what they cost.
"""

import functools

import numpy as np

from probe.case import floats, layout
from probe.case.operation import operation_of_spec, windows_of_spec
from probe.targets.backends.contract import Around, Operator, Unsupported, pool_kind
from probe.targets.backends.reference import Arithmetic

# Words of a spec that stand for other calls.
WORDS = ("split", "remedy")


def spec_operator(backend, spec):
    """The operator of a spec, whatever words it carries. Raises Unsupported: there is none."""
    backend.lay(layout.layout_of_spec(spec))
    if "turned" in spec:
        return Transposed(spec_operator(backend, library_spec(spec)), spec)
    if not any(word in spec for word in WORDS):
        return backend.operator(spec)
    if "remedy" not in spec:
        return Rewritten(backend, spec)
    require_remedy(spec)
    remedy, plain = spec["remedy"], _without_words(spec)
    if remedy["kind"] == "stable":
        return backend.stable(plain, remedy.get("accumulate"))
    if remedy["kind"] == "invariant":
        return backend.invariant(plain, remedy["sizes"])
    return Rewritten(backend, spec)


def split_specs(spec):
    """Returns the specs of the calls that a spec stands for: itself, or the two of a split one.

    The bias, if there is one, belongs to the first call.
    """
    if "split" not in spec:
        return [spec]
    first, plain = spec["split"], _without_words(spec)
    second = dict(plain, in_channels=spec["in_channels"] - first, bias=False)
    return [dict(plain, in_channels=first), second]


def _without_words(spec):
    return {name: value for name, value in spec.items() if name not in WORDS}


def require_remedy(spec):
    """Raises Unsupported where no remedy is made of a spec."""
    if "split" in spec or pool_kind(spec):
        what = "split=%s" % spec["split"] if "split" in spec else "op=%s" % spec["op"]
        raise Unsupported(what + ": remedies are for single convolutions and products")
    cut = spec["remedy"]["kind"] in ("chunks", "pad") and spec["remedy"].get("axis") != "batch"
    if cut and operation_of_spec(spec).transposed:
        raise Unsupported("op=%s: it is not computed in pieces" % spec["op"])
    if spec["remedy"]["kind"] == "float64" and spec["dtype"] == "float64":
        raise Unsupported("dtype=float64: there is nothing wider to add in")


class Rewritten(Operator):
    """Calls of the library's operation: ``at`` gives what they are for inputs of one shape."""

    def __init__(self, backend, spec):
        Operator.__init__(self, spec)
        self.backend, self.constant_weights = backend, getattr(backend, "constant_weights", False)
        self.by_shape = functools.lru_cache(64)(self._for_shape)

    def at(self, shape):
        return self.by_shape(tuple(shape))

    def _for_shape(self, shape):
        if "split" in self.spec:
            return SplitChannels(self.backend, self.spec, shape)
        remedy = self.spec["remedy"]
        if remedy["kind"] == "float64":
            return Widened(self.backend, self.spec, shape)
        pieces = SamplePieces if remedy.get("axis") == "batch" else AxisPieces
        return pieces(self.backend, self.spec, shape)


class OfArrays(Operator):
    """An operation of container arrays: calls of the library, and NumPy between them."""

    def __init__(self, backend, spec):
        Operator.__init__(self, spec)
        self.backend, self.constant_weights = backend, getattr(backend, "constant_weights", False)

    def made(self, spec, shape):
        """Returns f(operands) -> f(array) -> array: one call for inputs of this shape."""
        operator = spec_operator(self.backend, spec).at(tuple(shape))

        def bound(operands):
            call = operator.bind(operands)
            return lambda x: operator.output(call(operator.input(np.ascontiguousarray(x))))

        return bound

    def input(self, x):
        return x

    def output(self, y):
        return np.ascontiguousarray(y)


class SplitChannels(OfArrays):
    """The first channels in one call, the rest in another, and their outputs added."""

    def __init__(self, backend, spec, shape):
        OfArrays.__init__(self, backend, spec)
        first, second = split_specs(spec)
        at = self.first = spec["split"]
        self.pieces = (
            self.made(first, shape[:-1] + (at,)),
            self.made(second, shape[:-1] + (shape[-1] - at,)),
        )

    def bind(self, operands):
        at, ours, theirs = self.first, dict(operands), {}
        if "w" in operands:  # a sum has none
            ours["w"] = np.ascontiguousarray(operands["w"][..., :at, :])
            theirs["w"] = np.ascontiguousarray(operands["w"][..., at:, :])
        first, second = (call(held) for call, held in zip(self.pieces, (ours, theirs)))
        arithmetic = Arithmetic(self.spec["dtype"])

        def run(x):
            parts = first(x[..., :at]), second(x[..., at:])
            with np.errstate(all="ignore"):
                total = arithmetic.add(*map(arithmetic.widen, parts))
            return arithmetic.narrow(total)

        return run


class Widened(OfArrays):
    """Operands widened, the operation in float64, its output rounded."""

    def __init__(self, backend, spec, shape):
        OfArrays.__init__(self, backend, spec)
        self.piece = self.made(dict(_without_words(spec), dtype="float64"), shape)

    def bind(self, operands):
        dtype = self.spec["dtype"]
        wide = self.piece({name: floats.widen(array, dtype) for name, array in operands.items()})
        return lambda x: floats.round_to(wide(floats.widen(x, dtype)), dtype)


class SamplePieces(OfArrays):
    """Calls of so many samples, filled up with copies of the first one."""

    def __init__(self, backend, spec, shape):
        OfArrays.__init__(self, backend, spec)
        self.size = piece_size(spec["remedy"], shape[0])
        self.piece = self.made(_without_words(spec), (self.size,) + tuple(shape[1:]))

    def bind(self, operands):
        call, size = self.piece(operands), self.size

        def run(x):
            # a call of other samples of the same shape: the first one stands in for those that lack
            more = -len(x) % size
            whole = np.concatenate([x] + [x[:1]] * more) if more else x
            calls = [call(whole[start : start + size]) for start in range(0, len(whole), size)]
            return np.concatenate(calls)[: len(x)]

        return run


class AxisPieces(OfArrays):
    """Calls whose last axis, or ``axis`` of the remedy, has one of a few sizes."""

    def __init__(self, backend, spec, shape):
        OfArrays.__init__(self, backend, spec)
        plain, remedy, held = _without_words(spec), spec["remedy"], shape[1:-1]
        axis = remedy.get("axis", len(plain["kernel"]) - 1)
        windows = windows_of_spec(plain)
        before, _, _, count = windows.span(axis, held[axis])
        size = piece_size(remedy, count)
        pieces, stride = -(-count // size), plain["stride"][axis]
        extent = windows.extents[axis]
        self.axis, self.count = 1 + axis, count
        # the last piece is as long as all others: zeros behind, or without what no piece reads
        total = (pieces * size - 1) * stride + extent
        self.read = slice(0, total - before)
        self.around = [(0, 0)] * len(shape)
        self.around[self.axis] = (before, max(total - before - held[axis], 0))
        self.starts = range(0, pieces * size * stride, size * stride)
        self.length = (size - 1) * stride + extent
        inner = shape[: self.axis] + (self.length,) + tuple(shape[self.axis + 1 :])
        self.piece = self.made(inside(plain, axis, windows.pads(held)), inner)

    def bind(self, operands):
        call, whole = self.piece(operands), (slice(None),) * self.axis

        def run(x):
            x = x[whole + (self.read,)]
            x = np.pad(x, self.around, "constant") if any(map(any, self.around)) else x
            parts = [x[whole + (slice(start, start + self.length),)] for start in self.starts]
            return np.concatenate(list(map(call, parts)), self.axis)[whole + (slice(self.count),)]

        return run


def piece_size(remedy, count):
    """The size of the pieces that give that many outputs. Raises Unsupported: none does."""
    if remedy["kind"] == "chunks":
        return remedy["outputs"]
    fitting = [size for size in remedy["outputs"] if size >= count]
    if not fitting:
        longest = max(remedy["outputs"])
        raise Unsupported("outputs=%d: more than the longest piece, %d" % (count, longest))
    return min(fitting)


def inside(spec, axis, pads):
    """Returns the spec without zeros on ``axis``; ``pads``: what all axes have."""
    pads = [list(pair) for pair in pads[:axis] + ((0, 0),) + pads[axis + 1 :]]
    return dict(spec, padding=pads if any(map(any, pads)) else "valid")


def library_spec(spec):
    """The spec as the library has it, without ``turned``."""
    own = {name: value for name, value in spec.items() if name != "turned"}
    for name in ("kernel", "stride", "dilation", "padding"):
        if name in own and not isinstance(own[name], str):
            own[name] = list(own[name])[::-1]
    if own.get("remedy", {}).get("kind") in ("chunks", "pad"):
        own["remedy"] = dict(own["remedy"], axis=0)
    return own


def swapped_axes(x):
    """(batch, height, length, channels) as (batch, length, height, channels), or back."""
    return np.ascontiguousarray(np.swapaxes(x, 1, 2))


def swapped_shapes(shapes):
    """Returns shapes of x and w as the library has them."""
    x, w = shapes["x"], shapes["w"]
    return {"x": (x[0], x[2], x[1]) + x[3:], "w": (w[1], w[0]) + w[2:]}


class Transposed(Around):
    """``inner``: the operator of ``library_spec``."""

    def __init__(self, inner, spec):
        Around.__init__(self, inner, spec)
        self.constant_weights = inner.constant_weights
        # weights are (height, length, ...)
        self.swaps = {"w": lambda w: np.ascontiguousarray(np.swapaxes(w, 0, 1))}
        self.of = functools.lru_cache(64)(self._of)

    def _of(self, inner):
        copy = Transposed.__new__(Transposed)
        copy.__dict__.update(self.__dict__, inner=inner)
        return copy

    def at(self, shape):
        inner = self.inner.at((shape[0], shape[2], shape[1]) + tuple(shape[3:]))
        return self if inner is self.inner else self.of(inner)

    def input(self, x):
        return self.inner.input(swapped_axes(x))

    def bind(self, operands):
        swapped = {name: self.swaps.get(name, np.asarray)(a) for name, a in operands.items()}
        return self.inner.bind(swapped)

    def output(self, y):
        return swapped_axes(self.inner.output(y))
