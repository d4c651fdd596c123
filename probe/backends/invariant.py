"""PyTorch's operator of a case in the mode of ``probe.stable.invariant``: a remedy.

The mode sees what the operator calls, whatever lines make it; it needs the interpreter that probe
itself runs in.
"""

from importlib import import_module

from probe.backends.contract import Operator, Unsupported


def operator(inner, module, sizes):
    """``inner`` in the mode, for batches of these sizes; ``module``: ``torch.nn.Module``.

    Raises Unsupported where the interpreter is too old for it.
    """
    try:
        made = import_module("probe.stable").invariant
    except (ImportError, SyntaxError) as error:
        raise Unsupported("probe.stable.invariant: %s" % error) from None

    class Called(module):  # type: ignore[misc, valid-type]
        """Calls what it is given."""

        def forward(self, run, x):
            return run(x)

    return Invariant(inner, made(Called().eval(), sizes)[0])


class Invariant(Operator):
    """``inner``, run by ``model(run, x)``, a module in the invariant mode."""

    def __init__(self, inner, model):
        Operator.__init__(self, inner.spec)
        self.inner, self.model = inner, model
        self.constant_weights = inner.constant_weights

    def at(self, shape):
        inner = self.inner.at(shape)
        return self if inner is self.inner else Invariant(inner, self.model)

    def input(self, x):
        return self.inner.input(x)

    def lies(self, y):
        return self.inner.lies(y)

    def output(self, y):
        return self.inner.output(y)

    def bind(self, operands):
        run, model = self.inner.bind(operands), self.model
        return lambda x: model(run, x)
