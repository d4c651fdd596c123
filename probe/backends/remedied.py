"""Operators that a user may put in the place of the library's own, so that lengths agree.

A spec with ``remedy`` stands for one of them, made of the same library's operators:

- ``{"kind": "chunks", "outputs": N}``: N output positions of the last axis a call, always the same
  shape, the last piece filled up with zeros. However long the input is, an output comes from the
  same place of the same call. ``"axis": A``: of another spatial axis, here and with ``pad``.
- ``{"kind": "pad", "outputs": [N, ...]}``: one call, filled up with zeros to the smallest N that
  holds all outputs.
- ``{"kind": "float64"}``: operands widened, the operator in float64, its output rounded.
- ``{"kind": "stable", "accumulate": None}``: the operator of ``probe.stable``.

All but the last go around the library's call with the library's own slices, zeros and joins, which
belong to what the call costs. Where values aren't tensors of TensorFlow or PyTorch, NumPy does it.
"""

import numpy as np

from probe import floats
from probe.backends import pooling, products
from probe.backends.contract import Operator, Unsupported
from probe.geometry import Windows


def operator(backend, spec):
    """The operator of a spec with ``remedy``. Raises Unsupported where there is none."""
    remedy = spec["remedy"]
    plain = {name: value for name, value in spec.items() if name != "remedy"}
    if "split" in plain or pooling.kind(plain):
        what = "split=%s" % plain["split"] if "split" in plain else "op=%s" % plain["op"]
        raise Unsupported(what + ": remedies are for single convolutions and products")
    if remedy["kind"] == "stable":
        return backend.stable(plain, remedy.get("accumulate"))
    if remedy["kind"] == "float64":
        return Widened(backend, plain)
    return Pieces(backend, plain, remedy)


def _along(axis, start, stop):
    """The index of some positions of an axis of an array."""
    return (slice(None),) * axis + (slice(start, stop),)


def _around(axis, rank, before, after):
    """Zeros before and behind one axis of an array, as ``numpy.pad`` has them."""
    pads = [(0, 0)] * rank
    pads[axis] = before, after
    return pads


class Containers:
    """Values are container arrays, channels last; the library sees them in the call alone.

    ``axis``, of all these classes: the spatial one along which values are cut and joined.
    """

    def __init__(self, spec, axis):
        self.dtype, self.axis = spec["dtype"], 1 + axis

    def given(self, operator, x):
        return operator.input(np.ascontiguousarray(x))

    def got(self, operator, y):
        return operator.output(y)

    def sizes(self, x):
        return x.shape[1:-1]

    def part(self, x, start, stop):
        return x[_along(self.axis, start, stop)]

    def filled(self, x, before, after):
        return np.pad(x, _around(self.axis, x.ndim, before, after), "constant")

    def joined(self, ys):
        return np.concatenate(ys, axis=self.axis)

    def cast(self, x, dtype):
        if dtype == "float64":
            return floats.widen(x, self.dtype)
        return floats.round_to(x, dtype)


class Tensors:
    """TensorFlow's tensors, channels last."""

    def __init__(self, tf, axis):
        self.tf, self.axis = tf, 1 + axis

    def given(self, operator, x):
        return x

    def got(self, operator, y):
        return y

    def sizes(self, x):
        return tuple(x.shape[1:-1])

    def part(self, x, start, stop):
        return x[_along(self.axis, start, stop)]

    def filled(self, x, before, after):
        return self.tf.pad(x, _around(self.axis, len(x.shape), before, after))

    def joined(self, ys):
        return self.tf.concat(ys, self.axis)

    def cast(self, x, dtype):
        return self.tf.cast(x, dtype)


class Torch:
    """PyTorch's tensors, channels first."""

    def __init__(self, torch, axis):
        self.torch, self.axis = torch, 2 + axis

    given, got = Tensors.given, Tensors.got

    def sizes(self, x):
        return tuple(x.shape[2:])

    def part(self, x, start, stop):
        return x[_along(self.axis, start, stop)].contiguous()

    def filled(self, x, before, after):
        behind = (0, 0) * (x.dim() - 1 - self.axis)
        return self.torch.nn.functional.pad(x, behind + (before, after))

    def joined(self, ys):
        return self.torch.cat(ys, self.axis)

    def cast(self, x, dtype):
        return x.to(getattr(self.torch, dtype))


def values(backend, spec, axis):
    """How a library's values are cut and joined along a spatial axis."""
    convolution = spec["op"] not in products.OPS
    if backend.name == "tensorflow" and convolution and not backend.session:
        return Tensors(backend.tf, axis)
    if backend.name == "torch" and convolution:
        return Torch(backend.torch, axis)
    return Containers(spec, axis)


class Around(Operator):
    """What goes around operators of the same library and the same dtype."""

    def __init__(self, backend, spec, axis=0):
        Operator.__init__(self, spec)
        self.backend, self.tools = backend, values(backend, spec, axis)
        self.own = backend.operator(spec)
        self.native = not isinstance(self.tools, Containers)
        self.constant_weights = self.own.constant_weights

    def input(self, x):
        return self.own.input(x) if self.native else x

    def weights(self, w):
        return self.own.weights(w)

    def bias(self, b):
        return self.own.bias(b)

    def output(self, y):
        return self.own.output(y) if self.native else np.ascontiguousarray(y)


class Pieces(Around):
    """``chunks`` and ``pad``: calls whose last axis, or ``axis``, has one of a few sizes."""

    def __init__(self, backend, spec, remedy):
        axis = remedy.get("axis", len(spec["kernel"]) - 1)
        Around.__init__(self, backend, spec, axis)
        self.axis, self.operators = axis, {}
        chunks = remedy["kind"] == "chunks"
        sizes = [remedy["outputs"]] if chunks else sorted(remedy["outputs"])
        windows = Windows.of(spec)
        stride, extent = windows.stride[axis], windows.extents[axis]
        tools = self.tools

        def reads(outputs):
            return (outputs - 1) * stride + extent

        def call(x, w, b):
            held = tools.sizes(x)
            spans = windows.spans(held)
            before, count = spans[axis].before, spans[axis].outputs
            size = sizes[0] if chunks else next((n for n in sizes if n >= count), None)
            if size is None:
                why = "outputs=%d: more than the longest piece, %d" % (count, sizes[-1])
                raise Unsupported(why)
            pieces = -(-count // size)
            total = reads(pieces * size)
            more = total - before - held[axis]
            if more < 0:
                x, more = tools.part(x, 0, total - before), 0
            if before or more:
                x = tools.filled(x, before, more)
            inner = self.inner(tuple((one.before, one.after) for one in spans))
            step, length = size * stride, reads(size)
            parts = [x]
            if pieces > 1:
                starts = range(0, pieces * step, step)
                parts = [tools.part(x, start, start + length) for start in starts]
            ys = [tools.got(inner, inner.call(tools.given(inner, part), w, b)) for part in parts]
            y = ys[0] if pieces == 1 else tools.joined(ys)
            return y if pieces * size == count else tools.part(y, 0, count)

        self.call = call

    def inner(self, pads):
        """The library's operator without zeros on ``axis``; ``pads``: what all axes have."""
        pads = pads[: self.axis] + ((0, 0),) + pads[self.axis + 1 :]
        if pads not in self.operators:
            none = not any(map(any, pads))
            padding = "valid" if none else [list(pair) for pair in pads]
            self.operators[pads] = self.backend.operator(dict(self.spec, padding=padding))
        return self.operators[pads]


class Widened(Around):
    """``float64``: the operands, the sums and all roundings but the last one are wider."""

    def __init__(self, backend, spec):
        Around.__init__(self, backend, spec)
        if spec["dtype"] == "float64":
            raise Unsupported("dtype=float64: there is nothing wider to add in")
        self.wide = wide = backend.operator(dict(spec, dtype="float64"))
        tools, dtype = self.tools, spec["dtype"]

        def call(x, w, b):
            x = tools.given(wide, tools.cast(x, "float64"))
            return tools.cast(tools.got(wide, wide.call(x, w, b)), dtype)

        self.call = call

    def weights(self, w):
        return self.wide.weights(floats.widen(w, self.spec["dtype"]))

    def bias(self, b):
        return self.wide.bias(None if b is None else floats.widen(b, self.spec["dtype"]))
