"""Rewrites operations: in pieces, wider, or in two calls.

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

NumPy cuts, pads, converts and joins arrays between the calls, which belongs to what they cost.
"""

import functools

import numpy as np

from probe.case import floats, layout
from probe.case.operation import operation_of_spec, windows_of_spec
from probe.targets.backends.contract import Operator, Unsupported, pool_kind
from probe.targets.backends.reference import Arithmetic

# Words of a spec that stand for other calls.
WORDS = ("split", "remedy")


def spec_operator(backend, spec):
    """The operator of a spec, whatever words it carries. Raises Unsupported: there is none."""
    backend.lay(layout.layout_of_spec(spec))
    if not any(word in spec for word in WORDS):
        return backend.operator(spec)
    if "remedy" in spec:
        require_remedy(spec)
        remedy, plain = spec["remedy"], _without_words(spec)
        if remedy["kind"] == "stable":
            return backend.stable(plain, remedy.get("accumulate"))
        if remedy["kind"] == "invariant":
            return backend.invariant(plain, remedy["sizes"])
    return Rewritten(backend, spec)


def split_specs(spec):
    """The specs of the calls that a spec stands for: itself, or the two of a split one.

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
        kind = "split" if "split" in self.spec else self.spec["remedy"]["kind"]
        pieces = {"split": split_channels, "float64": in_float64}.get(kind, axis_pieces)
        if kind in ("chunks", "pad") and self.spec["remedy"].get("axis") == "batch":
            pieces = sample_pieces
        return OfArrays(self, pieces(self.backend, self.spec, shape))


class OfArrays(Operator):
    """An operation of container arrays: calls of the library, and NumPy between them.

    ``made``: f(operands) -> f(array) -> array.
    """

    def __init__(self, rewritten, run_of):
        Operator.__init__(self, rewritten.spec)
        self.constant_weights, self.run_of = rewritten.constant_weights, run_of

    def bind(self, operands):
        return self.run_of(operands)

    def input(self, x):
        return x

    def output(self, y):
        return np.ascontiguousarray(y)


def library_call(backend, spec, shape):
    """f(operands) -> f(array) -> array: one call for inputs of this shape."""
    operator = spec_operator(backend, spec).at(tuple(shape))

    def bind(operands):
        call = operator.bind(operands)
        return lambda x: operator.output(call(operator.input(np.ascontiguousarray(x))))

    return bind


def split_channels(backend, spec, shape):
    """The first channels in one call, the rest in another, and their outputs added."""
    at, arithmetic = spec["split"], Arithmetic(spec["dtype"])
    sizes = shape[:-1] + (at,), shape[:-1] + (shape[-1] - at,)
    calls = [library_call(backend, part, size) for part, size in zip(split_specs(spec), sizes)]

    def bind(operands):
        ahead, behind = dict(operands), {}  # the bias is added once
        if "w" in operands:  # a sum has none
            ahead["w"] = np.ascontiguousarray(operands["w"][..., :at, :])
            behind["w"] = np.ascontiguousarray(operands["w"][..., at:, :])
        first, second = calls[0](ahead), calls[1](behind)

        def run(x):
            outputs = first(x[..., :at]), second(x[..., at:])
            with np.errstate(all="ignore"):
                total = arithmetic.add(*map(arithmetic.widen, outputs))
            return arithmetic.narrow(total)

        return run

    return bind


def in_float64(backend, spec, shape):
    """Operands widened, the operation in float64, its output rounded."""
    dtype, call = (
        spec["dtype"],
        library_call(backend, dict(_without_words(spec), dtype="float64"), shape),
    )

    def bind(operands):
        wide = call({name: floats.widen(array, dtype) for name, array in operands.items()})
        return lambda x: floats.round_to(wide(floats.widen(x, dtype)), dtype)

    return bind


def sample_pieces(backend, spec, shape):
    """Calls of so many samples, filled up with copies of the first one."""
    size = piece_size(spec["remedy"], shape[0])
    run_of = library_call(backend, _without_words(spec), (size,) + shape[1:])

    def bind(operands):
        call = run_of(operands)

        def run(x):
            # a call of other samples of the same shape: the first one stands in for those that lack
            more = -len(x) % size
            filled = np.concatenate([x] + [x[:1]] * more) if more else x
            calls = [call(filled[start : start + size]) for start in range(0, len(filled), size)]
            return np.concatenate(calls)[: len(x)]

        return run

    return bind


def axis_pieces(backend, spec, shape):
    """Calls whose last axis, or ``axis`` of the remedy, has one of a few sizes."""
    plain, remedy, held = _without_words(spec), spec["remedy"], shape[1:-1]
    axis = remedy.get("axis", len(plain["kernel"]) - 1)
    windows = windows_of_spec(plain)
    before, _, _, count = windows.span(axis, held[axis])
    size, stride = piece_size(remedy, count), plain["stride"][axis]
    pieces, extent = -(-count // size), windows.extents[axis]
    # the last piece is as long as all others: zeros behind, or without what no piece reads
    total, length = (pieces * size - 1) * stride + extent, (size - 1) * stride + extent
    around = [(0, 0)] * len(shape)
    around[1 + axis] = (before, max(total - before - held[axis], 0))
    starts = range(0, pieces * size * stride, size * stride)
    ahead = (slice(None),) * (1 + axis)
    pads = [list(pair) for pair in windows.pads(held)]
    pads[axis] = [0, 0]
    inner = dict(plain, padding=pads if any(map(any, pads)) else "valid")
    run_of = library_call(backend, inner, shape[: 1 + axis] + (length,) + shape[2 + axis :])

    def bind(operands):
        call = run_of(operands)

        def run(x):
            x = x[ahead + (slice(0, total - before),)]
            x = np.pad(x, around, "constant") if any(map(any, around)) else x
            parts = [x[ahead + (slice(start, start + length),)] for start in starts]
            return np.concatenate(list(map(call, parts)), 1 + axis)[ahead + (slice(count),)]

        return run

    return bind


def piece_size(remedy, count):
    """The size of the pieces that give that many outputs. Raises Unsupported: none does."""
    if remedy["kind"] == "chunks":
        return remedy["outputs"]
    fitting = [size for size in remedy["outputs"] if size >= count]
    if not fitting:
        longest = max(remedy["outputs"])
        raise Unsupported("outputs=%d: more than the longest piece, %d" % (count, longest))
    return min(fitting)
