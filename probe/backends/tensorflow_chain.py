"""Layers one after the other in one TensorFlow program: eager, a tf.function, or a session of 1.x.

Between two layers nothing leaves the library, so its graph optimiser may fuse them, as it does in
a user's model. Weights are tensors that the program captures, as a model's variables are.
"""

import numpy as np

from probe.backends import elementwise, pooling, tensorflow_operators, tensorflow_pooling
from probe.backends.contract import Unsupported
from probe.backends.tensorflow_operators import refusing, release


def layer(tf, spec, arrays):
    """f(x) of tensors for one spec; ``arrays``: its operands as tensors, by name."""
    if spec["op"] == "matmul":
        return _dense(tf, spec, arrays)
    if pooling.kind(spec):
        pooled = tensorflow_pooling.operator(tf, spec)
        return lambda x: pooled(x, None)
    if "kernel" in spec:
        convolve = tensorflow_operators.convolution(tf, spec)
        w, b = arrays["w"], arrays.get("b")
        if b is None:
            return lambda x: convolve(x, w)
        return lambda x: tf.nn.bias_add(convolve(x, w), b)
    return _elementwise(tf, spec, arrays)


def _dense(tf, spec, arrays):
    def dense(x):
        outer = tf.shape(x)[:-1]
        y = tf.matmul(tf.reshape(x, [-1, spec["in_channels"]]), arrays["w"])
        y = tf.nn.bias_add(y, arrays["b"]) if "b" in arrays else y
        return tf.reshape(y, tf.concat([outer, [spec["filters"]]], 0))

    return dense


def _elementwise(tf, spec, arrays):
    if spec["op"] == "bias":
        return lambda x: tf.nn.bias_add(x, arrays["b"])
    if spec["op"] == "normalisation":
        return lambda x: x * arrays["scale"] + arrays["shift"]
    if spec["op"] == "pad":
        pairs = [[0, 0]] + [list(pair) for pair in spec["padding"]] + [[0, 0]]
        value = spec["parameters"].get("value", 0.0)
        return lambda x: tf.pad(x, pairs, constant_values=value)
    if spec["op"] == "extend":
        return _extend(tf, spec["kept"], arrays["tail"], spec)
    name, alpha = spec["activation"], spec["parameters"].get("alpha", 1.0)
    if name == "leaky_relu":
        return lambda x: tf.nn.leaky_relu(x, alpha)
    if name == "hard_sigmoid":
        return lambda x: tf.nn.relu6(x + 3) / 6
    if name == "elu" and alpha != 1.0:
        return lambda x: tf.where(x > 0, x, alpha * tf.math.expm1(x))
    names = {"exp": "exp", "silu": "silu" if hasattr(tf.nn, "silu") else "swish"}
    room = tf if name == "exp" else tf.nn
    found = getattr(room, names.get(name, name), None)
    if found is None:
        raise Unsupported("this release has no tf.nn.{}".format(name))
    return found


def _extend(tf, kept, tail, spec):
    """The first ``kept`` positions of a spatial axis with ``tail`` behind; nothing if it is all."""
    rank = tail.shape.ndims
    axis = elementwise.extended_axis(spec, rank)
    begin, size = [0] * rank, [-1] * rank
    size[axis] = kept
    if release(tf) >= (2, 0):  # once: eager slices with Python numbers cost more than they do
        begin, size = tf.constant(begin), tf.constant(size)
    empty = tail.shape[axis] == 0

    def extend(x):
        if x.shape[axis] != kept:
            x = tf.slice(x, begin, size)
        return x if empty else tf.concat([x, tail], axis)

    return extend


def shaped(spec, name, array):
    """An operand as the library's call has it."""
    if name != "w":
        return np.ascontiguousarray(array)
    if spec["op"] == "matmul":
        return np.ascontiguousarray(array[0])
    if pooling.kind(spec):
        return np.zeros(0, np.float32)
    shape = tensorflow_operators.weight_shape(spec)
    return np.ascontiguousarray(array).reshape(shape)


class Chain:
    """Layers of specs with their operands: ``input`` of a container array, ``call``, ``output``."""

    def __init__(self, tf, specs, operands, function=False, xla=False):
        self.tf = tf
        self.dtype, self.channels = getattr(tf, specs[0]["dtype"]), channels(specs[0])
        tensors = [
            {name: tf.constant(shaped(spec, name, array)) for name, array in arrays.items()}
            for spec, arrays in zip(specs, operands)
        ]
        steps = [layer(tf, spec, arrays) for spec, arrays in zip(specs, tensors)]
        run = composed(steps)
        self.traced = {}
        self.function, self.xla, self.run = function or xla, xla, run
        guarded = refusing(tf, lambda x, w, b: self._run(x))
        self.call = lambda x: guarded(x, None, None)

    def _run(self, x):
        if not self.function:
            return self.run(x)
        rank = len(x.shape)
        if rank not in self.traced:
            self.traced[rank] = self._trace(rank)
        return self.traced[rank](x)

    def _trace(self, rank):
        shape = (1,) + (None,) * (rank - 2) + (self.channels,)
        keywords = {}
        if self.xla:
            renamed = release(self.tf) >= (2, 5)
            keywords["jit_compile" if renamed else "experimental_compile"] = True
        signature = [self.tf.TensorSpec(shape, self.dtype)]
        return self.tf.function(self.run, input_signature=signature, **keywords)

    def input(self, x):
        return self.tf.constant(np.ascontiguousarray(x))

    def output(self, y):
        return np.asarray(y)


class SessionChain:
    """The same before 2.0: one graph, in which weights are fed like the input."""

    def __init__(self, tf, specs, operands, config, device):
        self.fed = [
            shaped(spec, name, arrays[name])
            for spec, arrays in zip(specs, operands)
            for name in sorted(arrays)
            if not pooling.kind(spec)
        ]
        rank = next((len(spec["kernel"]) for spec in specs if "kernel" in spec), None)
        self.tf, self.specs, self.operands = tf, specs, operands
        self.config, self.device, self.rank, self.run = config, device, rank, None
        guarded = refusing(tf, lambda x, w, b: self._call(x))
        self.call = lambda x: guarded(x, None, None)

    def _call(self, x):
        self.run = self.run or self._built(x.ndim)
        return self.run(x, *self.fed)

    def _built(self, rank):
        tf, specs = self.tf, self.specs
        graph, dtype = tf.Graph(), getattr(tf, specs[0]["dtype"])
        with graph.as_default(), tf.device(self.device):
            x = tf.placeholder(dtype, (None,) * (rank - 1) + (channels(specs[0]),))
            fed, y = [x], x
            for spec, arrays in zip(specs, self.operands):
                tensors = {}
                for name in sorted(arrays) if not pooling.kind(spec) else ():
                    tensors[name] = tf.placeholder(dtype, shaped(spec, name, arrays[name]).shape)
                    fed.append(tensors[name])
                y = layer(tf, spec, tensors)(y)
            session = tf.Session(graph=graph, config=self.config)
        if hasattr(session, "make_callable"):  # from 1.2 on
            return session.make_callable(y, fed)
        return lambda *arrays: session.run(y, dict(zip(fed, arrays)))

    def input(self, x):
        return np.ascontiguousarray(x)

    def output(self, y):
        return y


def composed(steps):
    """One function that calls others in turn."""

    def run(x):
        for step in steps:
            x = step(x)
        return x

    return run


def channels(spec):
    """The channels of a spec's input."""
    return spec["in_channels"] if "in_channels" in spec else spec["channels"]
