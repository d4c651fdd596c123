"""Layers one after the other as a Keras model has them: its own layers, called or traced as one."""

import numpy as np

from probe.backends import elementwise, keras_pooling, pooling


class Chain:
    """Layers of specs with their operands: ``input`` of a container array, ``call``, ``output``.

    ``made(spec)``: (convolution, padding layer or None). ``wrap(f, spec)``: what is called instead
    of f(x).
    """

    def __init__(self, keras, specs, operands, made, wrap, first):
        self.keras = keras
        steps = [self._step(spec, arrays, made) for spec, arrays in zip(specs, operands)]

        def run(x):
            for step in steps:
                x = step(x)
            return x

        self.call = wrap(run, first)

    def _step(self, spec, arrays, made):
        keras = self.keras
        if pooling.kind(spec):
            return keras_pooling.run(keras, spec)
        if "kernel" in spec:
            layer, padding = made(spec)
            layer.kernel.assign(np.reshape(arrays["w"], tuple(layer.kernel.shape)))
            if "b" in arrays:
                layer.bias.assign(arrays["b"])
            return layer if padding is None else lambda x: layer(padding(x))
        return self._elementwise(spec, arrays)

    def _elementwise(self, spec, arrays):
        ops, activations = self.keras.ops, self.keras.activations
        if spec["op"] == "bias":
            b = ops.convert_to_tensor(arrays["b"])
            return lambda x: x + b
        if spec["op"] == "normalisation":
            scale, shift = (ops.convert_to_tensor(arrays[name]) for name in ("scale", "shift"))
            return lambda x: x * scale + shift
        if spec["op"] == "pad":
            pairs = [(0, 0)] + [tuple(pair) for pair in spec["padding"]] + [(0, 0)]
            value = spec["parameters"].get("value", 0.0)
            return lambda x: ops.pad(x, pairs, constant_values=value)
        if spec["op"] == "extend":
            tail = ops.convert_to_tensor(arrays["tail"])
            axis = elementwise.extended_axis(spec, len(tail.shape))
            kept = elementwise.first(axis, spec["kept"])
            return lambda x: ops.concatenate([x[kept], tail], axis=axis)
        name, alpha = spec["activation"], spec["parameters"].get("alpha", 1.0)
        if name == "relu6":
            return activations.relu6
        if name == "leaky_relu":
            return lambda x: activations.leaky_relu(x, negative_slope=alpha)
        if name == "elu":
            return lambda x: activations.elu(x, alpha=alpha)
        if name == "exp":
            return ops.exp
        return getattr(activations, name)

    def input(self, x):
        return self.keras.ops.convert_to_tensor(np.array(x, order="C"))

    def output(self, y):
        return np.ascontiguousarray(self.keras.ops.convert_to_numpy(y))
