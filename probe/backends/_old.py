"""Chains of libraries that do not emit lines yet, as operators of a program."""

from probe.backends.contract import Backend, Operator, Unsupported


class WithChain(Backend):
    """A backend whose ``chain(specs, operands)`` makes an object that has its operands."""

    def program(self, program):
        return Chained(self, program)


class Chained(Operator):
    """The chain of a program; ``bind`` makes it."""

    def __init__(self, backend, program):
        Operator.__init__(self, program.steps[0].layer)
        self.backend, self.program = backend, program

    def bind(self, operands):
        given = [{n: operands[at] for n, at in step.arrays.items()} for step in self.program.steps]
        layers = [step.layer for step in self.program.steps]
        self.made = self.backend.chain(layers, given)
        if self.made is None:
            raise Unsupported("no program of a whole network is built for this library")
        return self.made.call

    def input(self, x):
        return self.made.input(x)

    def output(self, y):
        return self.made.output(y)
