"""Layers one after the other as one Caffe model, which OpenCV fuses as it does every model.

Layers are those that Caffe's users have: ``Scale`` for normalisations and, with ones, for biases
(OpenCV reads no ``Bias``); ``Permute`` around ``InnerProduct`` for a product over the channels, the
operator of ``matmul``, which a 1x1 convolution is not; ``Slice`` and ``Concat`` with a constant
input for padding of its own, crops and ``extend``. Activations that Caffe lacks are OpenCV's own
layers, under its names for them.
"""

import numpy as np

from probe.backends import caffe, caffe_layers, channels_first, elementwise, pooling
from probe.backends.contract import Unsupported
from probe.backends.kept import Kept


class Chain:
    """Layers of specs with their operands: ``input`` of a container array, ``call``, ``output``.

    ``backend``: the started OpenCV. Raises Unsupported where Caffe has no layer; ``call`` does
    where it has no such padding.
    """

    def __init__(self, backend, specs, operands):
        self.backend = backend
        self.layers = [(spec, prepared(spec, given)) for spec, given in zip(specs, operands)]
        self.runs = Kept(self._run)
        self.call = backend.refusing(self._call)

    def _call(self, x):
        if x.ndim == 3:
            x = x[:, :, None]
            return self.runs(x.shape)(x)[:, :, 0]
        return self.runs(x.shape)(x)

    def _run(self, shape):
        """f(x) of inputs of this shape."""
        model = self.model(shape)
        if not model.lines:
            return lambda x: x
        net = self.backend.net(model.prototxt(), model.caffemodel())
        for name, array in model.constants.items():
            net.setInput(array, name)

        def run(x):
            net.setInput(x, "x")
            return net.forward()

        return run

    def model(self, shape):
        """The model for inputs (batch, channels, *spatial) of this shape."""
        model = caffe.Model(shape)
        y = model.x
        for spec, given in self.layers:
            y = layer(model, spec, given, y)
        if y.output:
            model.layer("Split", [y], y.shape)
        return model

    def input(self, x):
        return channels_first.activations(x)

    def output(self, y):
        return channels_first.channels_last(y)


def prepared(spec, given):
    """The arrays that a layer's blobs hold. Raises Unsupported where there is no such layer."""
    if "kernel" in spec:
        caffe_layers.supported(spec)
        if pooling.kind(spec):
            return []
        b = [given["b"]] if "b" in given else []
        return [caffe_layers.weights(spec, given["w"])] + b
    if spec["dtype"] != "float32":
        raise Unsupported(f"dtype={spec['dtype']}: OpenCV's Caffe layers are float32")
    if spec["op"] == "bias":
        return [np.ones_like(given["b"]), given["b"]]
    if spec["op"] == "normalisation":
        return [given["scale"], given["shift"]]
    return [given["tail"]] if spec["op"] == "extend" else []


def layer(model, spec, blobs, x):
    """The Value behind one layer."""
    if spec["op"] == "matmul":
        return product(model, spec, blobs, x)
    if "kernel" in spec:
        return windowed(model, spec, blobs, x)
    if spec["op"] == "pad":
        return padded(model, x, spec["padding"], spec["parameters"].get("value", 0.0))
    if spec["op"] == "extend":
        return extended(model, spec, blobs[0], x)
    if spec["op"] == "activation":
        alpha = spec["parameters"].get("alpha", 1.0)
        kind, fields = activation(spec["activation"], alpha)
        return model.layer(kind, [x], x.shape, fields)
    return model.layer("Scale", [x], x.shape, "scale_param { bias_term: true }", blobs)


def activation(name, alpha):
    """(type, fields) of an activation's layer."""
    kind, fields = ACTIVATIONS[name]
    return kind, fields.format(alpha=alpha)


def windowed(model, spec, blobs, x):
    """A convolution or a pool, and what is cropped off it."""
    plan = caffe_layers.plan(spec, x.shape[2:][-len(spec["kernel"]) :])
    if not all(one.outputs for one in plan):
        raise Unsupported(f"input {list(x.shape)}: no window fits into it")
    kind, fields = caffe_layers.parameters(spec, [one.pad for one in plan])
    ahead = x.shape[2 : len(x.shape) - len(plan)]
    shape = (x.shape[0], spec["filters"]) + ahead + tuple(one.there for one in plan)
    y = model.layer(kind, [x], shape, fields, blobs)
    for axis, one in enumerate(plan, len(shape) - len(plan)):
        y = cropped(model, y, axis, one.drop, one.outputs)
    return y


def product(model, spec, blobs, x):
    """The product over the channels, which are put last for it."""
    last = len(x.shape) - 1
    x = permuted(model, x, [0] + list(range(2, last + 1)) + [1])
    kind, fields = caffe_layers.parameters(spec, (), last)
    y = model.layer(kind, [x], x.shape[:-1] + (spec["filters"],), fields, blobs)
    return permuted(model, y, [0, last] + list(range(1, last)))


def permuted(model, x, order):
    """x with its axes in another order."""
    fields = " ".join("order: %d" % axis for axis in order)
    shape = [x.shape[axis] for axis in order]
    return model.layer("Permute", [x], shape, "permute_param { %s }" % fields)


def padded(model, x, pairs, value):
    """x with ``value`` around its last axes, one axis after the other."""
    for axis, pair in enumerate(pairs, len(x.shape) - len(pairs)):
        parts = [
            model.constant(np.full(resized(x.shape, axis, count), value, np.float32))
            if count
            else None
            for count in pair
        ]
        x = joined(model, axis, [parts[0], x, parts[1]])
    return x


def extended(model, spec, tail, x):
    """The first positions of an axis with constant ones behind; what does nothing is left out."""
    axis = elementwise.extended_axis(spec, tail.ndim) + 1 + len(x.shape) - tail.ndim
    tail = channels_first.activations(tail)
    tail = tail[:, :, None] if tail.ndim < len(x.shape) else tail
    x = cropped(model, x, axis, 0, spec["kept"])
    return joined(model, axis, [x, model.constant(tail) if tail.size else None])


def cropped(model, x, axis, start, count):
    """Some positions of an axis; x itself where they are all."""
    end, size = start + count, x.shape[axis]
    points = [point for point in (start, end) if 0 < point < size]
    if not points:
        return x
    fields = " ".join(["axis: %d" % axis] + ["slice_point: %d" % point for point in points])
    of = (int(start > 0), len(points) + 1)
    shape = resized(x.shape, axis, count)
    return model.layer("Slice", [x], shape, "slice_param { %s }" % fields, of=of)


def joined(model, axis, parts):
    """Values one behind the other along an axis; None are left out."""
    parts = [one for one in parts if one is not None]
    if len(parts) == 1:
        return parts[0]
    shape = resized(parts[0].shape, axis, sum(one.shape[axis] for one in parts))
    return model.layer("Concat", parts, shape, "concat_param { axis: %d }" % axis)


def resized(shape, axis, size):
    """A shape with another size of one axis."""
    return shape[:axis] + (size,) + shape[axis + 1 :]


#: By activation: the layer's type and its fields. From "Gelu" on the layers are not Caffe's.
ACTIVATIONS = {
    "relu": ("ReLU", ""),
    "leaky_relu": ("ReLU", "relu_param {{ negative_slope: {alpha!r} }}"),
    "sigmoid": ("Sigmoid", ""),
    "tanh": ("TanH", ""),
    "softmax": ("Softmax", "softmax_param {{ axis: 1 }}"),
    "elu": ("ELU", "elu_param {{ alpha: {alpha!r} }}"),
    "exp": ("Exp", ""),
    "softplus": ("BNLL", ""),
    "silu": ("Swish", ""),
    "relu6": ("ReLU6", ""),
    "gelu": ("Gelu", ""),
    "selu": ("Selu", ""),
    "softsign": ("Softsign", ""),
    "hard_sigmoid": ("HardSigmoid", "hard_sigmoid_param {{ alpha: %r beta: 0.5 }}" % (1 / 6)),
}
