"""Rewrites programs: in pieces, wider, in two calls, or with axes swapped.

A spec may carry words that no library knows; each stands for other steps, made of the library's
own operations, once the input's shape is known:

- ``split``: the first channels in one call, the rest in another, and their outputs added, each
  element rounded once: IEEE's addition, which every library's elementwise addition is.
- ``remedy``, what a user may put in the place of an operation so that lengths agree:
  ``{"kind": "chunks", "outputs": N}``: N output positions of the last axis a call, always the same
  shape, the last piece filled up with zeros. However long the input is, an output comes from the
  same place of the same call. ``"axis": A``: of another spatial axis, here and with ``pad``.
  ``{"kind": "pad", "outputs": [N, ...]}``: one call, filled up with zeros to the smallest N that
  holds all outputs. ``{"kind": "float64"}``: operands widened, the operator in float64, its output
  rounded. ``{"kind": "stable", "accumulate": None}``: the operator of ``probe.sizes.stable``.
  ``{"kind": "invariant", "sizes": [N, ...]}``: the operator by ``probe.stable.invariant``, for
  these batches. ``"axis": "batch"`` of ``chunks`` and ``pad``: calls of N samples, filled up with
  copies of the first one.
- ``turned``: the operation with its two spatial axes swapped. Here the length is always the last
  spatial axis; the library gets (batch, length, height, channels), as the user's model gives them,
  since the axis decides the kernel.

Where a library joins values itself (``Backend.joins``), the steps are one program of it. Elsewhere
NumPy cuts and joins arrays between its calls, which then belong to what the call costs.
"""

import functools

import numpy as np

from probe.case import floats, layout
from probe.case.geometry import WindowSizes
from probe.case.operation import ProgramStep, case_program
from probe.targets.backends.contract import Around, Operator, Unsupported
from probe.targets.backends.layers import pool_kind
from probe.targets.backends.reference import Arithmetic
from probe.targets.backends.source import shape_of

# Words of a spec that stand for other steps.
WORDS = ("split", "remedy")
# Steps that cut, join and convert; see ``_numpy_step``.
JOINING = ("slice", "concat", "cast", "add", "pad")


def spec_operator(backend, spec):
    """The operator of a spec, whatever words it carries. Raises Unsupported: there is none."""
    backend.lay(layout.layout_of_spec(spec))
    if "turned" in spec:
        return Transposed(spec_operator(backend, library_spec(spec)), spec)
    if spec.get("remedy", {}).get("kind") == "stable":
        require_remedy(spec)
        plain = _without_words(spec)
        return backend.stable(plain, spec["remedy"].get("accumulate"))
    if spec.get("remedy", {}).get("kind") == "invariant":
        require_remedy(spec)
        return backend.invariant(_without_words(spec), spec["remedy"]["sizes"])
    if not any(word in spec for word in WORDS):
        return backend.operator(spec)
    return Rewritten(backend, case_program(spec))


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


class Rewritten(Operator):
    """A program with rewritten steps: ``at`` gives what it is for inputs of one shape."""

    def __init__(self, backend, program):
        Operator.__init__(self, program.steps[0].layer)
        self.backend, self.given = backend, program
        specs = [step.layer for step in program.steps]
        self.constant_weights = getattr(backend, "constant_weights", False)
        for spec in specs:  # what is refused at all sizes is refused at once
            if "remedy" in spec:
                require_remedy(spec)
        self.by_shape = functools.lru_cache(64)(self._for_shape)

    def at(self, shape):
        return self.by_shape(tuple(shape))

    def _for_shape(self, shape):
        joins = self.backend.joins(self.given) and not any(map(of_batch, self.given.steps))
        rewriting = Rewriting(self.given, shape)
        program = self.given._replace(steps=tuple(rewriting.steps))
        if joins:
            inner = self.backend.program(program).at(shape)
        else:
            inner = Stepwise(self.backend, program, rewriting.shapes)
        return Given(inner, rewriting.cut) if rewriting.cut else inner


class Given(Around):
    """An operator that takes its operands from parts of what it is given."""

    def __init__(self, inner, cut):
        """``cut``: name -> (name of what is given, f(array))."""
        Around.__init__(self, inner)
        self.cut = cut

    def bind(self, operands):
        cut = {name: cutting(operands[of]) for name, (of, cutting) in self.cut.items()}
        return self.inner.bind(dict(operands, **cut))


def require_remedy(spec):
    """Raises Unsupported where no remedy is made of a spec."""
    if "split" in spec or pool_kind(spec):
        what = "split=%s" % spec["split"] if "split" in spec else "op=%s" % spec["op"]
        raise Unsupported(what + ": remedies are for single convolutions and products")
    if spec["remedy"]["kind"] == "float64" and spec["dtype"] == "float64":
        raise Unsupported("dtype=float64: there is nothing wider to add in")


class Rewriting:
    """Steps for an input of one shape. ``shapes``: of every value; ``cut``: see ``Given``."""

    def __init__(self, program, shape):
        self.steps, self.shapes, self.cut = [], [tuple(shape)], {}
        values = [0]
        for step in program.steps:
            reads = tuple(values[value] for value in step.reads)
            kind = step.layer.get("remedy", {}).get("kind")
            if "split" in step.layer:
                values.append(self._split(step, reads[0]))
            elif kind == "float64":
                values.append(self._widened(step, reads[0]))
            elif kind in ("chunks", "pad"):
                pieces = self._samples if of_batch(step) else self._pieces
                values.append(pieces(step, reads[0]))
            else:
                values.append(self._add(step.layer, reads, step.arrays))

    def _add(self, layer, reads, arrays=None):
        """Adds a step; the number of its value."""
        self.steps.append(ProgramStep(layer, tuple(reads), arrays or {}))
        self.shapes.append(shape_of(layer, [self.shapes[value] for value in reads]))
        return len(self.steps)

    def _slice(self, value, axis, start, stop):
        layer = {"op": "slice", "axis": axis, "start": start, "stop": stop}
        return self._add(self._typed(layer), [value])

    def _typed(self, layer):
        return dict(layer, dtype=self.dtype, parameters={})

    def _split(self, step, value):
        at, total = step.layer["split"], step.layer["in_channels"]
        self.dtype, axis = step.layer["dtype"], len(self.shapes[value]) - 1
        first, second = split_specs(step.layer)
        x = self._slice(value, axis, 0, at), self._slice(value, axis, at, total)
        ours, theirs = dict(step.arrays), {}
        if "w" in ours:  # a sum has none
            w = step.arrays["w"]
            ours["w"], theirs["w"] = w + "_first", w + "_rest"
            self.cut[ours["w"]] = w, lambda array: np.ascontiguousarray(array[..., :at, :])
            self.cut[theirs["w"]] = w, lambda array: np.ascontiguousarray(array[..., at:, :])
        y_first = self._add(first, [x[0]], ours)
        y_rest = self._add(second, [x[1]], theirs)
        return self._add(self._typed({"op": "add"}), [y_first, y_rest])

    def _widened(self, step, value):
        plain = _without_words(step.layer)
        dtype = plain["dtype"]
        wide = {}
        for name, at in step.arrays.items():
            wide[name] = at + "_wide"
            self.cut[at + "_wide"] = at, lambda array: floats.widen(array, dtype)
        x = self._add({"op": "cast", "to": "float64", "dtype": dtype, "parameters": {}}, [value])
        y = self._add(dict(plain, dtype="float64"), [x], wide)
        return self._add({"op": "cast", "to": dtype, "dtype": "float64", "parameters": {}}, [y])

    def _samples(self, step, value):
        """``chunks`` and ``pad`` of the batch: calls of that many samples."""
        spec, remedy = _without_words(step.layer), step.layer["remedy"]
        self.dtype = spec["dtype"]
        count = self.shapes[value][0]
        size = piece_size(remedy, count)
        calls = []
        for start in range(0, count, size):
            there = min(size, count - start)
            part = value if there == count else self._slice(value, 0, start, start + there)
            # a call of other samples of the same shape: the first one stands in for those that lack
            if there < size:
                more = [self._slice(value, 0, 0, 1)] * (size - there)
                part = self._add(self._typed({"op": "concat", "axis": 0}), [part] + more)
            calls.append(self._add(spec, [part], step.arrays))
        if len(calls) > 1:
            calls = [self._add(self._typed({"op": "concat", "axis": 0}), calls)]
        return calls[0] if count % size == 0 else self._slice(calls[0], 0, 0, count)

    def _pieces(self, step, value):
        """``chunks`` and ``pad``: calls whose last axis, or ``axis``, has one of a few sizes."""
        spec, remedy = _without_words(step.layer), step.layer["remedy"]
        self.dtype = spec["dtype"]
        axis = remedy.get("axis", len(spec["kernel"]) - 1)
        held = self.shapes[value][1:-1]
        windows = WindowSizes.of(spec)
        before, _, _, count = windows.span(axis, held[axis])
        size = piece_size(remedy, count)
        pieces, stride = -(-count // size), spec["stride"][axis]
        extent = windows.extents[axis]
        total = (pieces * size - 1) * stride + extent
        # the last piece is as long as all others: zeros behind, or without what no piece reads
        more = total - before - held[axis]
        if more < 0:
            value, more = self._slice(value, 1 + axis, 0, total - before), 0
        if before or more:
            pairs = [[0, 0]] * len(held)
            pairs[axis] = [before, more]
            value = self._add(self._typed({"op": "pad", "padding": pairs}), [value])
        inner = inside(spec, axis, windows.pads(held))
        calls = []
        for start in range(0, pieces * size * stride, size * stride):
            part = value
            if pieces > 1:
                part = self._slice(value, 1 + axis, start, start + (size - 1) * stride + extent)
            calls.append(self._add(inner, [part], step.arrays))
        if pieces > 1:
            calls = [self._add(self._typed({"op": "concat", "axis": 1 + axis}), calls)]
        if pieces * size == count:
            return calls[0]
        return self._slice(calls[0], 1 + axis, 0, count)


def of_batch(step):
    return step.layer.get("remedy", {}).get("axis") == "batch"


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


class Stepwise(Operator):
    """A program whose values are container arrays: the library's calls, and NumPy between them."""

    def __init__(self, backend, program, shapes):
        Operator.__init__(self, program.steps[0].layer)
        self.backend, self.shapes, self.steps = backend, shapes, program.steps
        operators = {}
        for number in range(len(program.steps)):
            key = self._key(number)
            if key not in operators:
                operators[key] = self._made(program.steps[number])
        self.operators = [operators[self._key(number)] for number in range(len(program.steps))]

    def _key(self, number):
        """Returns what makes two steps the same call: pieces of one size share an operator."""
        step = self.steps[number]
        return repr(sorted(step.layer.items())), self.shapes[step.reads[0]]

    def _made(self, step):
        if step.layer["op"] in JOINING:
            return None
        return spec_operator(self.backend, step.layer).at(self.shapes[step.reads[0]])

    def input(self, x):
        return x

    def output(self, y):
        return np.ascontiguousarray(y)

    def bind(self, operands):
        bound, calls = {}, []
        for step, operator in zip(self.steps, self.operators):
            if operator is None:
                calls.append(_numpy_step(step.layer))
                continue
            # pieces of one size share a call, and so its operands
            key = operator, tuple(step.arrays.items())
            if key not in bound:
                arrays = {name: operands[at] for name, at in step.arrays.items()}
                bound[key] = Stepwise._of_arrays(operator, operator.bind(arrays))
            calls.append(bound[key])
        reads = [step.reads for step in self.steps]

        def run(x):
            values = [x]
            for call, read in zip(calls, reads):
                values.append(call(*[values[value] for value in read]))
            return values[-1]

        return run

    @staticmethod
    def _of_arrays(operator, call):
        return lambda x: operator.output(call(operator.input(np.ascontiguousarray(x))))


def _numpy_step(layer):
    """f(*arrays) of a step that cuts, joins or converts, in NumPy."""
    op = layer["op"]
    if op == "slice":
        index = (slice(None),) * layer["axis"] + (slice(layer["start"], layer["stop"]),)
        return lambda x: x[index]
    if op == "cast":
        dtype, to = layer["dtype"], layer["to"]
        if to == "float64":
            return lambda x: floats.widen(x, dtype)
        return lambda x: floats.round_to(x, to)
    if op == "add":
        arithmetic = Arithmetic(layer["dtype"])

        def add(a, b):
            with np.errstate(all="ignore"):
                total = arithmetic.add(arithmetic.widen(a), arithmetic.widen(b))
            return arithmetic.narrow(total)

        return add
    if op == "concat":
        return lambda *xs: np.concatenate(xs, axis=layer["axis"])
    pairs = [(0, 0)] + [tuple(pair) for pair in layer["padding"]] + [(0, 0)]
    return lambda x: np.pad(x, pairs, "constant")


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
