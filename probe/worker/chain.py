"""A network in the child: its layers one by one, each a call of its own, or all as one program.

Runs in the targets' interpreters (Python 3.6, NumPy and one library).
"""

import time

import numpy as np

from probe import operation
from probe.backends import elementwise, turned
from probe.backends.contract import Unsupported
from probe.worker import compare
from probe.worker.call import Prepared


class Bound:
    """An operator with its weights, called as a backend's chain is.

    ``native``: its values are the library's own, as a chain's are, and no container arrays.
    """

    def __init__(self, operator, w, b):
        self.input, self.output = operator.input, operator.output
        self.call = lambda x: operator.call(x, w, b)
        self.native = getattr(operator, "native", True)


class Composed:
    """Chains and operators of one library, each called with the value of the one before it."""

    def __init__(self, steps):
        self.input, self.output = steps[0].input, steps[-1].output
        native = [getattr(step, "native", True) for step in steps]

        def call(x):
            for number, step in enumerate(steps):
                if number and not (native[number] and native[number - 1]):
                    x = step.input(np.ascontiguousarray(steps[number - 1].output(x)))
                x = step.call(x)
            return x

        self.call = call


class Network:
    """Layers with their operands. ``operators``: a function from a spec to an operator.

    ``specs``: as ``Case.spec`` and ``Layer.spec`` have them. ``operands``: for each a dict of
    container arrays. ``program(specs, operands)``: the backend's own chain, or None.
    """

    def __init__(self, operators, specs, operands, program):
        self.operators, self.specs, self.operands, self.program = (
            operators,
            specs,
            operands,
            program,
        )
        self.whole = {}
        self.ready = {}

    def layers(self, x, first, last, control):
        """Outputs of the layers from ``first`` up to ``last`` (excluded), each from the one before.

        Returns (list of container arrays, seconds of each call, for each whether the same shape
        gives the same bits: ``compare.control``, or empty).
        """
        outputs, seconds, controls = [], [], []
        for number in range(first, last):
            x, spent, checked = self._layer(number, x, control)
            outputs.append(x)
            seconds.append(spent)
            controls.append(checked)
        return outputs, seconds, controls

    def _layer(self, number, x, control):
        spec = self.specs[number]
        if operation.of(spec).spatial_rank is None:
            return self._between(number, x)
        outer = x.shape[:-1]
        if operation.of(spec).kind == "product":
            x = x.reshape(x.shape[0], -1, x.shape[-1])
        operator, w, b = self._operator(number)
        prepared = Prepared(operator, x, w, b)
        y, spent = prepared.run()
        checked = compare.control(prepared, y, spec["dtype"]) if control else ""
        if operation.of(spec).kind == "product":
            y = y.reshape(outer + y.shape[-1:])
        return y, spent, checked

    def _operator(self, number):
        if number not in self.ready:
            spec, arrays = self.specs[number], self.operands[number]
            operator = self.operators(spec)
            w = operator.weights(np.ascontiguousarray(arrays["w"]))
            self.ready[number] = operator, w, operator.bias(arrays.get("b"))
        return self.ready[number]

    def _between(self, number, x):
        spec, arrays = self.specs[number], self.operands[number]
        own = None if operation.rounds_once(spec) else self._chain(number, number + 1)
        start = time.perf_counter()
        if own is None:
            y = elementwise.function(spec, arrays)(x)
        else:
            y = own.output(own.call(own.input(x)))
        return np.ascontiguousarray(y), time.perf_counter() - start, ""

    def _chain(self, first, last):
        if (first, last) not in self.whole:
            part = slice(first, last)
            if any("remedy" in spec for spec in self.specs[part]):
                self.whole[first, last] = self._composed(first, last)
            else:
                self.whole[first, last] = self._program(self.specs[part], self.operands[part])
        return self.whole[first, last]

    def _program(self, specs, operands):
        """The backend's own chain, in the library's axes; None where it has none."""
        if not any("turned" in spec for spec in specs):
            return self.program(specs, operands)
        operands = [turned.arrays(*each) for each in zip(specs, operands)]
        made = self.program([turned.library_spec(spec) for spec in specs], operands)
        return None if made is None else turned.TurnedChain(made)

    def _composed(self, first, last):
        """Layers with a remedy as operators, what is between them as the backend's own chains."""
        steps, start = [], first
        for number in range(first, last + 1):
            if number < last and "remedy" not in self.specs[number]:
                continue
            if start < number:
                between = self._chain(start, number)
                if between is None:
                    return None
                steps.append(between)
            if number < last:
                steps.append(Bound(*self._operator(number)))
            start = number + 1
        return Composed(steps)

    def program_output(self, x, times):
        """All layers as one program of the library: (output, seconds of ``times`` calls, why not).

        The output is None where there is no such program; then ``layers`` is all there is, and the
        last is a sentence. Else it is empty.
        """
        try:
            chain = self._chain(0, len(self.specs))
            if chain is None:
                return None, [], "no program of a whole network is built for this library"
            given, spent = chain.input(x), []
            for _ in range(max(times, 1)):
                start = time.perf_counter()
                y = chain.call(given)
                spent.append(time.perf_counter() - start)
        except Unsupported as error:
            return None, [], str(error)
        return np.ascontiguousarray(chain.output(y)), spent, ""
