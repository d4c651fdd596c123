"""Layers one after the other in one function under ``jax.jit``, channels last, as Flax runs them.

XLA compiles the whole for every shape, and may fuse what stands between the layers into them. The
weights are arguments of the compiled function, as parameters of a model are.
"""

import numpy as np

from probe.backends import elementwise, jax_products, pooling
from probe.backends.contract import Unsupported
from probe.backends.jax_arrays import Arrays

#: Activations whose name in ``jax.nn`` is another one.
NAMES = {"softsign": "soft_sign"}


class Chain:
    """Layers of specs with their operands: ``input`` of a container array, ``call``, ``output``.

    ``windows(spec)``: f(x, w, b) of arrays for a convolution or a pool, not compiled.
    """

    def __init__(self, jax, specs, operands, device, windows):
        self.jax, self.windows = jax, windows
        self.arrays = Arrays(jax, device, specs[0]["dtype"])
        steps = [self._step(spec) for spec in specs]
        parameters = [
            {name: self.arrays.put(shaped(spec, name, array)) for name, array in given.items()}
            for spec, given in zip(specs, operands)
        ]

        def run(parameters, x):
            for step, given in zip(steps, parameters):
                x = step(x, given)
            return x

        jitted = jax.jit(run)
        self.call = self.arrays.refusing(lambda x: jitted(parameters, x).block_until_ready())

    def _step(self, spec):
        """f(x, operands by name) of arrays."""
        if spec["op"] == "matmul":
            product = jax_products.operator(self.jax, spec)
            return lambda x, given: product(x, given["w"], given.get("b"))
        if "kernel" in spec:
            run = self.windows(spec)
            return lambda x, given: run(x, given.get("w"), given.get("b"))
        return self._elementwise(spec)

    def _elementwise(self, spec):
        numpy = self.jax.numpy
        if spec["op"] == "bias":
            return lambda x, given: x + given["b"]
        if spec["op"] == "normalisation":
            return lambda x, given: x * given["scale"] + given["shift"]
        if spec["op"] == "pad":
            pairs = [(0, 0)] + [tuple(pair) for pair in spec["padding"]] + [(0, 0)]
            value = spec["parameters"].get("value", 0.0)
            return lambda x, given: numpy.pad(x, pairs, constant_values=value)
        if spec["op"] == "extend":
            return lambda x, given: _extended(numpy, spec, x, given["tail"])
        activation = self._activation(spec["activation"], spec["parameters"].get("alpha", 1.0))
        return lambda x, given: activation(x)

    def _activation(self, name, alpha):
        """f(x) of ``jax.nn``; its ``gelu`` is the exact one, not the approximation by tanh."""
        jax = self.jax
        if name in ("exp", "tanh"):
            return getattr(jax.numpy, name)
        found = getattr(jax.nn, NAMES.get(name, name), None)
        if found is None:
            raise Unsupported("this release has no jax.nn.{}".format(name))
        if name in ("leaky_relu", "elu"):
            return lambda x: found(x, alpha)
        return (lambda x: found(x, approximate=False)) if name == "gelu" else found

    def input(self, x):
        return self.arrays.put(x)

    def output(self, y):
        return self.arrays.container(y)


def shaped(spec, name, array):
    """An operand as the library's call has it; pooling has no weights."""
    if name == "w" and pooling.kind(spec):
        return np.zeros(0, array.dtype)
    return array[0] if name == "w" and spec["op"] == "matmul" else array


def _extended(numpy, spec, x, tail):
    axis = elementwise.extended_axis(spec, tail.ndim)
    return numpy.concatenate([x[elementwise.first(axis, spec["kept"])], tail], axis=axis)
