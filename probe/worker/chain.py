"""A network in the child: its layers one by one, each a call of its own, or all as one program.

Runs in the targets' interpreters (Python 3.6, NumPy and one library).
"""

import time

import numpy as np

from probe import program
from probe.backends import elementwise, rewritten
from probe.backends.contract import Unsupported
from probe.worker import compare
from probe.worker.call import Prepared


class Network:
    """Layers with their operands. ``operators``: a function from a spec to an operator.

    ``specs``: as ``Case.spec`` and ``Layer.spec`` have them. ``operands``: for each a dict of
    container arrays.
    """

    def __init__(self, backend, operators, specs, operands):
        self.backend, self.operators = backend, operators
        self.specs, self.operands = specs, operands
        self.made, self.ready = {}, {}

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
        if "kernel" not in spec and (elementwise.is_exact(spec) or not self._has_own(number)):
            start = time.perf_counter()
            y = elementwise.function(spec, self.operands[number])(x)
            return np.ascontiguousarray(y), time.perf_counter() - start, ""
        prepared = self._prepared(number, number + 1, _rows(spec, x))
        y, spent = prepared.run()
        windows = control and "kernel" in spec
        checked = compare.control(prepared, y, spec["dtype"]) if windows else ""
        return _positions(spec, x, y), spent, checked

    def _has_own(self, number):
        """Whether the library has this layer, which is no window, as a program of its own."""
        try:
            self._operator(number, number + 1)
        except Unsupported:
            return False
        return True

    def _operator(self, first, last):
        """The operator of some layers: of one that has windows by itself, else of a program."""
        if (first, last) not in self.made:
            specs = self.specs[first:last]
            if last - first == 1 and "kernel" in specs[0]:
                made = self.operators(specs[0])
            else:
                made = rewritten.whole(self.backend, program.chain(specs))
            self.made[first, last] = made
        return self.made[first, last]

    def _prepared(self, first, last, x):
        operator = self._operator(first, last).at(x.shape)
        bound, call = self.ready.get((first, last), (None, None))
        if bound is not operator:
            operands = self.operands[first]
            if last - first > 1 or "kernel" not in self.specs[first]:
                operands = {
                    name + str(number): array
                    for number, given in enumerate(self.operands[first:last])
                    for name, array in given.items()
                }
            call = operator.bind(operands)
            self.ready[first, last] = operator, call
        return Prepared(operator, x, call)

    def program_output(self, x, times):
        """All layers as one program of the library: (output, seconds of ``times`` calls, why not).

        The output is None where there is no such program; then ``layers`` is all there is, and the
        last is a sentence. Else it is empty.
        """
        try:
            alone = self.specs[0] if len(self.specs) == 1 else {"op": ""}
            prepared, spent = self._prepared(0, len(self.specs), _rows(alone, x)), []
            for _ in range(max(times, 1)):
                y, seconds = prepared.run()
                spent.append(seconds)
        except Unsupported as error:
            return None, [], str(error)
        return _positions(alone, x, y), spent, ""


def _rows(spec, x):
    """The rows of a product, which is a call of its own over all positions."""
    return x.reshape(x.shape[0], -1, x.shape[-1]) if spec["op"] == "matmul" else x


def _positions(spec, x, y):
    """What a product gives, at the positions of x."""
    return y.reshape(x.shape[:-1] + y.shape[-1:]) if spec["op"] == "matmul" else y
