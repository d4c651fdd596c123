"""A network in the child: its layers one by one, each a call of its own, or all as one program.

Runs in the targets' interpreters (Python 3.6, NumPy and one library).
"""

import time

import numpy as np

from probe import operation, program
from probe.backends import elementwise, rewritten
from probe.backends.contract import Unsupported
from probe.worker import compare
from probe.worker.call import Prepared


class Network:
    """A program with its operands. ``operators``: a function from a spec to an operator.

    ``given``: the Program; ``operands``: container arrays by the program's names.
    """

    def __init__(self, backend, operators, given, operands):
        self.backend, self.operators = backend, operators
        self.given, self.operands = given, operands
        self.made, self.ready = {}, {}

    def layers(self, x, first, last, control):
        """Outputs of the steps from ``first`` up to ``last`` (excluded), each a call of its own.

        ``x``: what step ``first`` reads. Returns (list of container arrays, seconds of each call,
        for each whether the same shape gives the same bits: ``compare.control``, or empty).
        """
        values, seconds, controls = {first: x}, [], []
        for number in range(first, last):
            read = [values[value] for value in self.given.steps[number].reads]
            values[number + 1], spent, checked = self._layer(number, read, control)
            seconds.append(spent)
            controls.append(checked)
        return [values[number + 1] for number in range(first, last)], seconds, controls

    def _layer(self, number, xs, control):
        step = self.given.steps[number]
        spec, x = step.layer, xs[0]
        of_cases = operation.of(spec).of_cases
        if not of_cases and (operation.rounds_once(spec) or not self._has_own(number)):
            arrays = {name: self.operands[at] for name, at in step.arrays.items()}
            start = time.perf_counter()
            y = elementwise.function(spec, arrays)(*xs)
            return np.ascontiguousarray(y), time.perf_counter() - start, ""
        prepared = self._prepared(number, [_rows(spec, x)] + xs[1:])
        y, spent = prepared.run()
        compared = control and of_cases
        checked = compare.control(prepared, y, spec["dtype"]) if compared else ""
        return _positions(spec, x, y), spent, checked

    def _has_own(self, number):
        """Whether the library has this step, which is no window, as a program of its own."""
        try:
            self._operator(number)
        except Unsupported:
            return False
        return True

    def _operator(self, number=None):
        """The operator of a step: one that has windows is a case; None: of the whole program."""
        if number not in self.made:
            step = None if number is None else self.given.steps[number]
            if step is None:
                made = rewritten.whole(self.backend, self.given)
            elif operation.of(step.layer).of_cases:
                made = self.operators(step.layer)
            else:
                made = rewritten.whole(self.backend, program.alone(step))
            self.made[number] = made
        return self.made[number]

    def _prepared(self, number, xs):
        operator = self._operator(number).at(xs[0].shape)
        bound, call = self.ready.get(number, (None, None))
        if bound is not operator:
            operands = self.operands
            if number is not None and operation.of(self.given.steps[number].layer).of_cases:
                arrays = self.given.steps[number].arrays
                operands = {name: operands[at] for name, at in arrays.items()}
            call = operator.bind(operands)
            self.ready[number] = operator, call
        return Prepared(operator, xs[0], call, xs[1:])

    def program_output(self, x, times):
        """All steps as one program of the library: (output, seconds of ``times`` calls, why not).

        The output is None where there is no such program; then ``layers`` is all there is, and the
        last is a sentence. Else it is empty.
        """
        try:
            prepared, spent = self._prepared(None, [x]), []
            for _ in range(max(times, 1)):
                y, seconds = prepared.run()
                spent.append(seconds)
        except Unsupported as error:
            return None, [], str(error)
        return y, spent, ""


def _rows(spec, x):
    """The rows of a product, which is a call of its own over all positions."""
    return x.reshape(x.shape[0], -1, x.shape[-1]) if spec["op"] == "matmul" else x


def _positions(spec, x, y):
    """What a product gives, at the positions of x."""
    return y.reshape(x.shape[:-1] + y.shape[-1:]) if spec["op"] == "matmul" else y
