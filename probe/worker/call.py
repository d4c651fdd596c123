"""Calls one operator or network in the child, cut along an axis.

This runs in the targets' interpreters (Python 3.6, NumPy and one library).
A network is called layer by layer, or as one program.
"""

import time
from typing import List

import numpy as np

from probe import layout, operation, program
from probe.backends import elementwise, rewritten
from probe.backends.contract import Unsupported
from probe.worker import compare

#: Sets of lines that keep the operands of a call at a time.
BOUND = 16


class CaseCall:
    """One case in the child. ``operators``: a function from a spec to an operator of the backend.

    ``x`` (batch, *spatial, in_channels), ``w`` (*kernel, in_channels/groups, filters), ``b``
    (filters,) or None: container arrays at their largest; every smaller case is a cut of them.
    """

    def __init__(self, operators, spec, x, w, b):
        self.operators, self.spec, self.x, self.w, self.b = operators, spec, x, w, b
        self._operator = operators(spec)
        self._bound = {}
        self._others = {}

    def at(self, axes=None):
        """Returns the call with each axis in ``axes`` cut to its value: ``{"length": 7}``.

        Axes: ``length`` (of x's last spatial axis), ``batch``, ``filters`` (the first of them), and
        ``channels``: nothing is cut, but those beyond go through a second call whose output is
        added (see ``backends.rewritten``). ``layout``: the number of a layout, in which the same
        operands are handed over. ValueError for any other axis and for a value outside of the
        operands.
        """
        axes = dict(axes or {})
        if "layout" in axes:
            return self._laid(layout.layout_of_number(axes.pop("layout"))).at(axes)
        x, length = self.x, axes.pop("length", None)
        if self.spec.get("op") != "dense":  # rows of a dense layer have no length to cut
            x = _cut_axis(x, -2, "length", length)
        x = _cut_axis(x, 0, "batch", axes.pop("batch", None))
        filters, channels = axes.pop("filters", None), axes.pop("channels", None)
        if axes:
            known = "length, batch, filters and channels can"
            raise ValueError(f"axis={sorted(axes)}: can't be cut; {known}")
        if channels is not None and channels != self.x.shape[-1]:
            if not 0 < channels < x.shape[-1]:
                raise ValueError(f"channels={channels}: the operands have {x.shape[-1]}")
            return self._other(x, self.w, self.b, split=channels)
        if filters is not None and filters != self.w.shape[-1]:
            b = None if self.b is None else self.b[:filters].copy()
            return self._other(x, _cut_axis(self.w, -1, "filters", filters), b, filters=filters)
        operator = self._operator.at(x.shape)
        if operator not in self._bound:  # lines for other sizes want the operands again
            if len(self._bound) >= BOUND:
                self._bound.clear()
            self._bound[operator] = operator.bind(self._operands(self.w, self.b))
        return Prepared(operator, x, self._bound[operator])

    def _laid(self, word):
        """The same call with another layout; kept, since both sides of a pair come again."""
        if word == layout.layout_of_spec(self.spec):
            return self
        if word not in self._others:
            spec = layout.with_layout(self.spec, word)
            self._others[word] = CaseCall(self.operators, spec, self.x, self.w, self.b)
        return self._others[word]

    def _other(self, x, w, b, **words):
        operator = self.operators(dict(self.spec, **words)).at(x.shape)
        return Prepared(operator, x, operator.bind(self._operands(w, b)))

    def _operands(self, w, b):
        return dict({"w": np.ascontiguousarray(w)}, **({} if b is None else {"b": b}))


def _cut_axis(array, axis, name, value):
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
        """Calls for that long, while the process is sampled; returns how many calls."""
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
        """Returns the same call with its input in a buffer of another alignment."""
        return Prepared(self.operator, realigned(self.x), self.call)


def realigned(array):
    """A copy that begins elsewhere modulo 16 bytes, and so modulo 64: at a multiple of 64, or where
    the array begins at a multiple of 16, 4 bytes behind one, or one element where that is more.
    """
    step = max(4, array.dtype.itemsize)  # MKL's and Eigen's orders go with the address modulo 16
    return layout.copied(array, 0 if array.ctypes.data % 16 else step)


class Network:
    """A program with its operands. ``operators``: a function from a spec to an operator.

    ``given``: the Program; ``operands``: container arrays by the program's names. ``own``: what the
    library has no call for is Unsupported; else NumPy computes what stands between windows.
    """

    def __init__(self, backend, operators, given, operands, own=False):
        self.backend, self.operators = backend, operators
        self.given, self.operands, self.own = given, operands, own
        self.made, self.ready = {}, {}

    def inputs(self, arrays):
        """Returns the inputs among a request's arrays."""
        return [arrays["x%d" % number if number else "x"] for number in range(self.given.inputs)]

    def layers(self, xs, first, last, control, word=layout.CONTIGUOUS):
        """Outputs of the steps from ``first`` up to ``last`` (excluded), each a call of its own.

        ``xs``: the inputs, or the one value that step ``first`` reads, laid out as ``word`` says;
        ``_lies`` says how the rest lies. Returns (list of container arrays, seconds of each call,
        for each whether the same shape gives the same bits: ``compare.repeat_control``, or empty).
        """
        values, seconds, controls = {first + n: x for n, x in enumerate(xs)}, [], []
        self.words = dict.fromkeys(values, word)
        for number in range(first, last):
            reads, given = self.given.steps[number].reads, number + len(xs)
            read, lying = [values[value] for value in reads], self.words[reads[0]]
            values[given], spent, checked = self._layer(number, read, control, lying)
            self.words[given] = lying
            if word != layout.CONTIGUOUS:
                self.words[given] = self._lies(number, read, lying)
            seconds.append(spent)
            controls.append(checked)
        return [values[number + len(xs)] for number in range(first, last)], seconds, controls

    def _lies(self, number, xs, word):
        """How the output of a step lies in the library's memory; other than windows keep it."""
        if not operation.operation_of_spec(self.given.steps[number].layer).windows:
            return word
        prepared = self._prepared(number, xs, word)
        return prepared.operator.lies(prepared.call(prepared.input))

    def _layer(self, number, xs, control, word):
        step = self.given.steps[number]
        spec, x = step.layer, xs[0]
        of_cases = operation.operation_of_spec(spec).of_cases
        settled = operation.rounds_once(spec) and not self.own
        if not of_cases and (settled or not self._has_own(number, xs)):
            arrays = {name: self.operands[at] for name, at in step.arrays.items()}
            start = time.perf_counter()
            y = elementwise.numpy_function(spec, arrays)(*xs)
            return np.ascontiguousarray(y), time.perf_counter() - start, ""
        word = word if operation.operation_of_spec(spec).windows else layout.CONTIGUOUS
        # a product is a call of its own over the rows of all positions
        product = spec["op"] == "matmul"
        rows = x.reshape(x.shape[0], -1, x.shape[-1]) if product else x
        prepared = self._prepared(number, [rows] + xs[1:], word)
        y, spent = prepared.run()
        compared = control and of_cases
        checked = compare.repeat_control(prepared, y, spec["dtype"]) if compared else ""
        return y.reshape(x.shape[:-1] + y.shape[-1:]) if product else y, spent, checked

    def _has_own(self, number, xs):
        """Whether the library has this step, which is not a window, as a program of its own.
        Raises Unsupported where it has not, and NumPy is not to stand in for it."""
        try:
            self._operator(number).at(xs[0].shape)
        except Unsupported:
            if self.own:
                raise
            return False
        return True

    def _operator(self, number=None, word=layout.CONTIGUOUS):
        """The operator of a step: one that has windows is a case; None: of the whole program."""
        if (number, word) not in self.made:
            step = None if number is None else self.given.steps[number]
            if step is None:
                made = rewritten.program_operator(self.backend, self.given._replace(layout=word))
            elif operation.operation_of_spec(step.layer).of_cases:
                made = self.operators(layout.with_layout(step.layer, word))
            else:
                made = rewritten.program_operator(self.backend, program.single_step(step))
            self.made[number, word] = made
        return self.made[number, word]

    def _prepared(self, number, xs, word=layout.CONTIGUOUS):
        operator = self._operator(number, word).at(xs[0].shape)
        bound, call = self.ready.get((number, word), (None, None))
        if bound is not operator:
            operands = self.operands
            if (
                number is not None
                and operation.operation_of_spec(self.given.steps[number].layer).of_cases
            ):
                arrays = self.given.steps[number].arrays
                operands = {name: operands[at] for name, at in arrays.items()}
            call = operator.bind(operands)
            self.ready[number, word] = operator, call
        return Prepared(operator, xs[0], call, xs[1:])

    def program_output(self, xs, times, word=layout.CONTIGUOUS):
        """All steps as one program of the library: (output, seconds of ``times`` calls, why not).

        ``xs``: the inputs; ``word``: how they are laid out.

        The output is None where there is no such program; then ``layers`` is all there is, and the
        last is a sentence. Else it is empty.
        """
        try:
            prepared, spent = self._prepared(None, xs, word), []
            for _ in range(max(times, 1)):
                y, seconds = prepared.run()
                spent.append(seconds)
        except Unsupported as error:
            return None, [], str(error)
        return y, spent, ""
