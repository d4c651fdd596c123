"""Runs Caffe models with ``cv2.dnn.readNetFromCaffe``, NCHW.

The names, and that pooling rounds sizes up, are Caffe's; the kernels are OpenCV's. A model has one
shape, and one spatial axis gets a height of 1. Of a single convolution ``blobs`` take the weights
before the first pass; after it they are packed, and new ones change nothing, so new weights mean a
new net (some 30 microseconds). ``matmul`` and ``dense`` are InnerProduct, which reads its weights
from the bytes of a model alone, and so do the layers of a network.

Layers of a network are those that Caffe's users have: ``Scale`` for normalisations and, with ones,
for biases (OpenCV reads no ``Bias``); ``Permute`` around ``InnerProduct`` for a product over the
channels, the operator of ``matmul``, which a 1x1 convolution is not; ``Slice`` and ``Concat`` with
a constant input for padding of its own, crops and ``extend``. Activations that Caffe lacks are
OpenCV's own layers, under its names for them.
"""

from operator import itemgetter

import numpy as np

from probe import activations
from probe.backends import caffe, elementwise
from probe.backends.contract import Key, Unavailable, Unsupported
from probe.backends.source import Source, Writing

KEYS = {
    "winograd": Key(("0", "1"), "1", "Winograd's algorithm for 3x3 kernels of stride 1"),
    "threads": Key(None, "one per core", "threads within a layer"),
}


class OpenCV(Writing):
    """cv2.dnn on Caffe's prototxt, one process a target."""

    name = "opencv"
    distributions = ("opencv-python-headless", "opencv-python", "opencv-contrib-python")
    installs = "'opencv-python-headless<5'"
    module = "cv2"
    keys = KEYS
    doc = "a Caffe model of one layer, or of a whole network, in OpenCV's cv2.dnn, NCHW"
    suggestions = (",winograd=0", ",threads=1", ",winograd=0,threads=1")
    title = "OpenCV"
    version_text = "cv2.__version__"
    imports = ("import cv2",)
    modules = ("opencv-python-headless",)
    constant_weights = True

    def start(self, switches, device):
        """OpenCV 5 reads no Caffe models: Unavailable."""
        import cv2

        if not hasattr(cv2.dnn, "readNetFromCaffe"):
            why = f"OpenCV {cv2.__version__} reads no Caffe models"
            raise Unavailable(f"{why}; pip install {self.installs}")
        if hasattr(cv2, "utils") and hasattr(cv2.utils, "logging"):
            cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
        self.refusals = (cv2.error,)
        self.opened(switches, device, cv2.__version__)
        return self.facts(threads=cv2.getNumThreads())

    def setup(self):
        threads = self.switches.get("threads")
        return (f"cv2.setNumThreads({threads})",) if threads else ()

    def said(self, error):
        return " ".join(str(getattr(error, "err", "") or error).split())[:300]

    def operator(self, spec):
        caffe.require_caffe(spec)
        return Writing.operator(self, spec)

    def emit(self, program, shapes):
        step, shape = program.steps[0], shapes.shape
        if not program.single or "kernel" not in step.layer:
            return self.network(program, shape)
        caffe.require_caffe(step.layer)
        if step.layer["op"] in caffe.PRODUCTS:
            return self.product(step, shape)
        return self.windowed(step, shape)

    def net(self, prototxt, weights=False):
        """Lines that make a net of a model's text, and of the bytes ``caffemodel`` if any."""
        given = "np.frombuffer(prototxt.encode(), np.uint8)"
        given += ", np.frombuffer(caffemodel, np.uint8)" * weights
        plain = ["net.enableWinograd(False)"] * (self.switches.get("winograd") == "0")
        made = f"net = cv2.dnn.readNetFromCaffe({given})"
        return ['prototxt = """', *caffe.laid_out(prototxt), '"""', made] + plain

    def product(self, step, shape):
        """Returns one matrix product, over the last axis of x."""
        prototxt = caffe.prototxt(step.layer, shape, ())
        model = caffe.CaffeModel(shape)
        model.weights.append(("y", "InnerProduct", blobs_of(step)))
        return Source(
            load=tuple(self.net(prototxt, True)),
            run=("net.setInput(x)", "y = net.forward()"),
            held=("caffemodel",),
            hold=model.caffemodel,
        )

    def windowed(self, step, shape):
        """Returns one convolution or pool, whose outputs NumPy crops."""
        layer, flat = step.layer, len(shape) == 3
        plan = caffe.plan(layer, shape[1:-1])
        load = self.net(
            caffe.prototxt(layer, caffe.channels_first(shape), [one.pad for one in plan])
        )
        if step.arrays:
            w = step.arrays["w"]
            if layer["op"].startswith("depthwise"):
                load.append(f"{w} = {w}.reshape({(*layer['kernel'], 1, layer['filters'])})")
            load.append(f"{w} = np.ascontiguousarray(np.moveaxis({w}, (-1, -2), (0, 1)))")
            load += [f"{w} = {w}[:, :, None]"] * flat
            load.append(f'net.getLayer("y").blobs = [{", ".join(step.arrays.values())}]')
        ends = [caffe.slice_text(one.kept) for one in plan]
        index = ", ".join([":", ":"] + ["0"] * flat + ends)
        crop = (f"y = y[{index}]",) if flat or set(ends) != {":"} else ()
        return Source(
            enter=entering(flat),
            load=tuple(load),
            run=("net.setInput(x)", "y = net.forward()", *crop),
            leave="np.moveaxis(y, 1, -1)",
        )

    def network(self, program, shape):
        """Returns all steps as one model, which OpenCV fuses as it does every model."""
        if program.inputs > 1:
            raise Unsupported(f"inputs={program.inputs}: Caffe models are built for one")
        model = caffe.CaffeModel(shape)
        values = [model.x]
        for step in program.steps:
            values.append(step_layers(model, step, [values[one] for one in step.reads]))
        if values[-1].name != model.last:
            model.layer("Split", [values[-1]], values[-1].shape)
        load = self.net(model.prototxt(), bool(model.weights)) if model.lines else []
        for name, (array, _) in model.constants.items():
            load.append(f'net.setInput({array}, "{name}")')
        given = 'x, "x"' if model.constants else "x"
        run = (f"net.setInput({given})", "y = net.forward()") if model.lines else ("y = x",)
        source = Source(
            enter=entering(model.flat),
            load=tuple(load),
            run=run,
            leave="np.moveaxis(y[:, :, 0], 1, -1)" if model.flat else "np.moveaxis(y, 1, -1)",
        )
        if not model.weights:
            return source
        return source._replace(held=("caffemodel",), hold=model.caffemodel)


def entering(flat):
    """Returns lines that give x this shape."""
    found = ("x = np.ascontiguousarray(np.moveaxis(x, -1, 1))",)
    return found + ("x = x[:, :, None]",) * flat


def blobs_of(step):
    """A layer's weights as functions of the operands, which give arrays in Caffe's layout."""
    own = [itemgetter(at) for at in step.arrays.values()]
    if step.layer["op"] == "bias":
        return [lambda given: np.ones_like(own[0](given)), own[0]]
    if "w" in step.arrays:
        return [lambda given: caffe_weights(step.layer, own[0](given))] + own[1:]
    return own


def caffe_weights(layer, w):
    """Returns a container array (*kernel, channels/groups, filters) as Caffe's blob has it."""
    if layer["op"] in caffe.PRODUCTS:
        return w.reshape(w.shape[-2:]).T
    if layer["op"].startswith("depthwise"):
        w = w.reshape((*layer["kernel"], 1, layer["filters"]))
    return np.moveaxis(w[None] if len(layer["kernel"]) == 1 else w, (-1, -2), (0, 1))


def step_layers(model, step, xs):
    """Returns the Value behind one step, which reads the Values ``xs``."""
    spec, x, op = step.layer, xs[0], step.layer["op"]
    caffe.require_caffe(spec)
    if op in caffe.PRODUCTS:
        return inner_product(model, step, x)
    if "kernel" in spec:
        return window_layers(model, step, x)
    if op == "pad":
        return pad_layers(model, x, spec["padding"], spec["parameters"].get("value", 0.0))
    if op == "extend":
        return extend_layers(model, step, x)
    if op == "concat":
        return concat_layer(model, model.axis(spec["axis"]), xs)
    if op in ("add", "multiply"):
        fields = "eltwise_param { operation: %s }" % {"add": "SUM", "multiply": "PROD"}[op]
        return model.layer("Eltwise", xs, x.shape, fields)
    if op == "activation":
        alpha = spec["parameters"].get("alpha", 1.0)
        kind, fields = activations.caffe_layer(spec["activation"], alpha)
        return model.layer(kind, [x], x.shape, fields)
    if op not in ("bias", "normalisation"):
        raise Unsupported(f"op={op}: no Caffe layer is built for it here")
    return model.layer("Scale", [x], x.shape, "scale_param { bias_term: true }", blobs_of(step))


def window_layers(model, step, x):
    """Returns a convolution or a pool, and what is cropped off it."""
    spec = step.layer
    plan = caffe.plan(spec, x.shape[-len(spec["kernel"]) :])
    kind, fields = caffe.parameters(spec, [one.pad for one in plan])
    ahead = x.shape[2 : len(x.shape) - len(plan)]
    shape = (x.shape[0], spec["filters"]) + ahead + tuple(one.there for one in plan)
    y = model.layer(kind, [x], shape, fields, blobs_of(step))
    for axis, one in enumerate(plan, len(shape) - len(plan)):
        start, stop, _ = one.kept.indices(one.there)
        if start == stop:
            raise Unsupported(f"input {list(x.shape)}: no window fits into it")
        y = cropped(model, y, axis, start, stop - start)
    return y


def inner_product(model, step, x):
    """Returns the product over the channels, which are put last for it."""
    spec, last = step.layer, len(x.shape) - 1
    x = permuted(model, x, [0] + list(range(2, last + 1)) + [1])
    kind, fields = caffe.parameters(spec, (), last)
    y = model.layer(kind, [x], x.shape[:-1] + (spec["filters"],), fields, blobs_of(step))
    return permuted(model, y, [0, last] + list(range(1, last)))


def permuted(model, x, order):
    """x with its axes in another order."""
    fields = " ".join("order: %d" % axis for axis in order)
    shape = [x.shape[axis] for axis in order]
    return model.layer("Permute", [x], shape, "permute_param { %s }" % fields)


def pad_layers(model, x, pairs, value):
    """x with ``value`` around its last axes, one axis after the other."""
    for axis, pair in enumerate(pairs, len(x.shape) - len(pairs)):
        shapes = [with_size(x.shape, axis, count) for count in pair]
        parts = [
            model.constant(f"np.full({shape}, {value}, np.float32)", shape) if shape[axis] else None
            for shape in shapes
        ]
        x = concat_layer(model, axis, [parts[0], x, parts[1]])
    return x


def extend_layers(model, step, x):
    """The first positions of an axis with constant ones behind; what does nothing is left out."""
    spec, array = step.layer, f"np.moveaxis({step.arrays['tail']}, -1, 1)"
    axis = model.axis(elementwise.extended_axis(spec, model.rank))
    array = f"np.ascontiguousarray({array + '[:, :, None]' * model.flat})"
    tail = with_size(x.shape, axis, spec["behind"])
    x = cropped(model, x, axis, 0, spec["kept"])
    return concat_layer(model, axis, [x, model.constant(array, tail) if spec["behind"] else None])


def cropped(model, x, axis, start, count):
    """Some positions of an axis; x itself where they are all."""
    end, size = start + count, x.shape[axis]
    points = [point for point in (start, end) if 0 < point < size]
    if not points:
        return x
    fields = " ".join(["axis: %d" % axis] + ["slice_point: %d" % point for point in points])
    of = (int(start > 0), len(points) + 1)
    shape = with_size(x.shape, axis, count)
    return model.layer("Slice", [x], shape, "slice_param { %s }" % fields, of=of)


def concat_layer(model, axis, parts):
    """Returns values one behind the other along an axis; None are left out."""
    parts = [one for one in parts if one is not None]
    if len(parts) == 1:
        return parts[0]
    shape = with_size(parts[0].shape, axis, sum(one.shape[axis] for one in parts))
    return model.layer("Concat", parts, shape, "concat_param { axis: %d }" % axis)


def with_size(shape, axis, size):
    """Returns a shape with another size of one axis."""
    return shape[:axis] + (size,) + shape[axis + 1 :]
