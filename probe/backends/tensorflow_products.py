"""TensorFlow's matrix products and sums: ``tf.matmul``, ``tf.tensordot`` and ``tf.reduce_sum``.

A matrix takes the kernel ``MatMul``, a stack of them (a batch of more than one) ``BatchMatMulV2``,
as users' arrays of two and three dimensions do. The bias is ``tf.nn.bias_add``. In a tf.function
the sizes are open and the number of dimensions is not, so there is one trace for each.
"""

import numpy as np

from probe.backends import products, tensorflow_operators
from probe.backends.contract import Unsupported


def function(tf, spec):
    """f(x, w) for a spec."""
    if spec["op"] in ("matmul", "dense"):
        return tf.matmul
    if spec["op"] == "dot":
        return lambda x, w: tf.tensordot(x, w, 1)
    return lambda x, w: tf.reduce_sum(x, 2)


class Tensors(tensorflow_operators.Tensors):
    """Eager tensors and tf.functions, see ``tensorflow_operators``."""

    def compute(self, x, w, b):
        """The product with its bias; a bias of one vector is an addition."""
        y = self.convolve(x, w)
        if b is None:
            return y
        return self.tf.nn.bias_add(y, b) if len(y.shape) > 1 else y + b

    def _function(self, bias):
        traced = {}

        def call(x, w, b):
            rank = len(x.shape)
            if rank not in traced:
                traced[rank] = self._trace(rank, bias)
            return traced[rank](x, w) if b is None else traced[rank](x, w, b)

        return call

    def _trace(self, rank, bias):
        shape = tuple(self.weights_written(np.empty(self.shape)).shape)
        signature = [self._spec_of_rank(rank), self.tf.TensorSpec(shape, self.dtype)]
        if not bias:
            return self._traced(lambda x, w: self.compute(x, w, None), signature)
        signature.append(self.tf.TensorSpec((self.spec["filters"],), self.dtype))
        return self._traced(self.compute, signature)

    def _constants(self, w, b):
        traced = {}

        def model(x):
            return self.compute(x, self.tensor(w), None if b is None else self.tensor(b))

        def call(x):
            rank = len(x.shape)
            if rank not in traced:
                traced[rank] = self._traced(model, [self._spec_of_rank(rank)])
            return traced[rank](x)

        return call

    def _spec_of_rank(self, rank):
        shape = (None,) * (rank - 1) + (self.spec["in_channels"],)
        return self.tf.TensorSpec(shape, self.dtype)

    def weights_written(self, w):
        """w as it is written in the call, C-contiguous."""
        return np.ascontiguousarray(products.right(self.spec, w))

    def input(self, x):
        return self.tensor(products.left(self.spec, x))

    def weights(self, w):
        w = self.weights_written(w)
        return w if self.constant_weights else self.tensor(w)

    def output(self, y):
        return products.restored(self.spec, tensorflow_operators.Tensors.output(self, y))


class Session(tensorflow_operators.Session):
    """Releases before 2.0: one graph, of matrices (a product) or of stacks of rows (a sum).

    ``tf.matmul`` broadcasts one matrix over a stack from 1.14 on, and vectors came to the functions
    here at other times still: both are refused.
    """

    def __init__(self, tf, spec, convolve, config, device, constant):
        if spec["op"] == "dot":
            raise Unsupported("op=dot: not in TensorFlow before 2.0 here; use matmul")
        tensorflow_operators.Session.__init__(self, tf, spec, convolve, config, device, constant)
        self.shape = self.shape[1:] if spec["op"] == "matmul" else self.shape

    def _shapes(self):
        rank = 3 if self.spec["op"] == "sum" else 2
        shapes = [(None,) * (rank - 1) + (self.spec["in_channels"],), self.shape]
        return shapes + [(self.spec["filters"],)] if self.spec["bias"] else shapes

    def input(self, x):
        if len(x) > 1 and self.spec["op"] == "matmul":
            raise Unsupported("batch: TensorFlow before 2.0 has no stack of matrices times one")
        return np.ascontiguousarray(products.left(self.spec, x))

    def output(self, y):
        return products.restored(self.spec, y)
