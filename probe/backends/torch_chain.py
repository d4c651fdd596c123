"""Layers one after the other on PyTorch tensors, channels first, as ``nn.Sequential`` runs them."""

import numpy as np

from probe.backends import channels_first, elementwise
from probe.backends.contract import Unsupported


class Chain:
    """Layers of specs with their operands: ``input`` of a container array, ``call``, ``output``.

    ``operator(spec)``: the operator of a convolution, a pool or a product.
    """

    def __init__(self, torch, specs, operands, device, operator):
        self.torch, self.device = torch, device
        steps = [self._step(spec, arrays, operator) for spec, arrays in zip(specs, operands)]

        def call(x):
            for step in steps:
                x = step(x)
            if device.startswith("cuda"):
                torch.cuda.synchronize()
            return x

        self.call = call

    def _step(self, spec, arrays, operator):
        torch = self.torch
        if spec["op"] == "matmul":
            w = self._tensor(np.ascontiguousarray(arrays["w"][0].T))
            b = self._tensor(arrays["b"]) if "b" in arrays else None
            linear = torch.nn.functional.linear
            return lambda x: linear(x.movedim(1, -1), w, b).movedim(-1, 1)
        if "kernel" in spec:
            made = operator(spec)
            w, b = made.weights(arrays["w"]), made.bias(arrays.get("b"))
            return lambda x: made.call(x, w, b)
        return self._elementwise(spec, arrays)

    def _elementwise(self, spec, arrays):
        torch, functional = self.torch, self.torch.nn.functional
        if spec["op"] == "bias":
            b = self._tensor(arrays["b"])
            return lambda x: x + _column(b, x)
        if spec["op"] == "normalisation":
            scale, shift = self._tensor(arrays["scale"]), self._tensor(arrays["shift"])
            mean, variance = torch.zeros_like(scale), torch.ones_like(scale)
            given = mean, variance, scale, shift, False, 0.0, 0.0
            return lambda x: functional.batch_norm(x, *given)
        if spec["op"] == "pad":
            pads = [n for pair in spec["padding"][::-1] for n in pair]
            value = spec["parameters"].get("value", 0.0)
            return lambda x: functional.pad(x, pads, value=value)
        if spec["op"] == "extend":
            tail = self._tensor(np.moveaxis(arrays["tail"], -1, 1))
            axis = 1 + elementwise.extended_axis(spec, tail.dim())
            return lambda x: torch.cat([x.narrow(axis, 0, spec["kept"]), tail], axis)
        name, alpha = spec["activation"], spec["parameters"].get("alpha", 1.0)
        if name in ("leaky_relu", "elu"):
            return lambda x: getattr(functional, name)(x, alpha)
        if name == "softmax":
            return lambda x: functional.softmax(x, 1)
        if name == "hard_sigmoid":
            return lambda x: functional.relu6(x + 3) / 6
        found = getattr(functional, name, None) or getattr(torch, name, None)
        if name in ("sigmoid", "tanh", "exp"):
            found = getattr(torch, name)
        if found is None:
            raise Unsupported("PyTorch has no {}".format(name))
        return found

    def _tensor(self, array):
        made = self.torch.from_numpy(channels_first.copied(np.asarray(array)))
        return made if self.device == "cpu" else made.to(self.device)

    def input(self, x):
        return self._tensor(np.moveaxis(x, -1, 1))

    def output(self, y):
        return channels_first.channels_last(y.cpu().numpy())


def _column(vector, x):
    """A number a channel, to be spread over the positions of x."""
    return vector.reshape((1, -1) + (1,) * (x.dim() - 2))
