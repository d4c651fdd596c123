"""Runs Caffe models with ``cv2.dnn.readNetFromCaffe``, NCHW.

The names, and that pooling rounds sizes up, are Caffe's; the kernels are OpenCV's. A model has one
shape, and one spatial axis gets a height of 1. Of a single convolution ``blobs`` take the weights
before the first pass; after it they are packed, and new ones change nothing, so new weights mean a
new net (some 30 microseconds). ``matmul`` and ``dense`` are InnerProduct, which reads its weights
from the bytes of a model alone.

Caffe models are text (prototxt) and weights (caffemodel). The bytes of a ``.caffemodel`` are a
protocol buffer, of which these few fields are written here (``caffe.proto`` of BVLC/caffe):
``NetParameter.layer`` 100, ``LayerParameter.name`` 1, ``type`` 2, ``blobs`` 7, ``BlobProto.data`` 5
and ``shape`` 7, ``BlobShape.dim`` 1. Caffe pads both sides alike. Padding that differs gets the
larger symmetric one from which the first windows are a whole number of strides away; the outputs
that are then too many are cropped, as a Caffe user does.
"""

import re
from collections import namedtuple

import numpy as np

from probe.case.operation import OPERATIONS, operand_names, windows_of_spec
from probe.targets.backends.contract import Key, Unavailable, Unsupported, pool_kind
from probe.targets.backends.source import Source, Writing

KEYS = {
    "winograd": Key(("0", "1"), "1", "Winograd's algorithm for 3x3 kernels of stride 1"),
    "threads": Key(None, "one per core", "threads within a layer"),
}

# One axis: padding on both sides, how many outputs there are, and a slice of those that are kept.
Axis = namedtuple("Axis", "pad there kept")

PRODUCTS = ("matmul", "dense")


class OpenCV(Writing):
    """cv2.dnn on Caffe's prototxt, one process a target."""

    name = "opencv"
    distributions = ("opencv-python-headless", "opencv-python", "opencv-contrib-python")
    installs = "'opencv-python-headless<5'"
    module = "cv2"
    keys = KEYS
    doc = "a Caffe model of one layer in OpenCV's cv2.dnn, NCHW"
    suggestions = (",winograd=0", ",threads=1", ",winograd=0,threads=1")
    operations = tuple(
        name
        for name, what in OPERATIONS.items()
        if what.kind in ("convolution", "pool") or name in PRODUCTS
    )
    dtypes = ("float32",)
    undilated = ("max", "avg")
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

    def check(self, layer):
        Writing.check(self, layer)
        if layer.get("padding") == "same_lower":
            raise Unsupported("padding=same_lower: Caffe has explicit padding alone")

    def emit(self, layer, shapes):
        if layer["op"] in PRODUCTS:
            return self.product(layer, shapes.shape)
        return self.windowed(layer, shapes.shape)

    def net(self, prototxt, weights=False):
        """Lines that make a net of a model's text, and of the bytes ``caffemodel`` if any."""
        arguments = "np.frombuffer(prototxt.encode(), np.uint8)"
        arguments += ", np.frombuffer(caffemodel, np.uint8)" * weights
        plain = ["net.enableWinograd(False)"] * (self.switches.get("winograd") == "0")
        reading = f"net = cv2.dnn.readNetFromCaffe({arguments})"
        return ['prototxt = """', *laid_out(prototxt), '"""', reading] + plain

    def product(self, layer, shape):
        prototxt = layer_prototxt(layer, shape, ())

        def caffemodel(operands):
            w, *bias = [operands[name] for name in operand_names(layer)]
            blobs = [w.reshape(w.shape[-2:]).T, *bias]
            return {"caffemodel": layer_caffemodel("y", "InnerProduct", blobs)}

        return Source(
            load=tuple(self.net(prototxt, True)),
            run=("net.setInput(x)", "y = net.forward()"),
            held=("caffemodel",),
            hold=caffemodel,
        )

    def windowed(self, layer, shape):
        """One convolution or pool, whose outputs NumPy crops."""
        flat = len(shape) == 3
        plan = caffe_plan(layer, shape[1:-1])
        load = self.net(layer_prototxt(layer, channels_first(shape), [axis.pad for axis in plan]))
        names = operand_names(layer)
        if names:
            if layer["op"].startswith("depthwise"):
                load.append(f"w = w.reshape({(*layer['kernel'], 1, layer['filters'])})")
            load.append("w = np.ascontiguousarray(np.moveaxis(w, (-1, -2), (0, 1)))")
            load += ["w = w[:, :, None]"] * flat
            load.append(f'net.getLayer("y").blobs = [{", ".join(names)}]')
        ends = [slice_text(axis.kept) for axis in plan]
        index = ", ".join([":", ":"] + ["0"] * flat + ends)
        crop = (f"y = y[{index}]",) if flat or set(ends) != {":"} else ()
        return Source(
            enter=entering(flat),
            load=tuple(load),
            run=("net.setInput(x)", "y = net.forward()", *crop),
            leave="np.moveaxis(y, 1, -1)",
        )


def entering(flat):
    lines = ("x = np.ascontiguousarray(np.moveaxis(x, -1, 1))",)
    return lines + ("x = x[:, :, None]",) * flat


def channels_first(shape):
    """The shape of x as a model has it: (batch, channels, *spatial), of two axes or more."""
    return (shape[0], shape[-1]) + (1,) * (len(shape) == 3) + tuple(shape[1:-1])


def input_text(name, shape):
    dims = " ".join("dim: %d" % size for size in shape)
    return 'input: "%s"\ninput_shape { %s }\n' % (name, dims)


def layer_text(name, kind, bottoms, tops, fields):
    text = 'layer { name: "%s" type: "%s"' % (name, kind)
    text += "".join(' bottom: "%s"' % blob for blob in bottoms)
    text += "".join(' top: "%s"' % blob for blob in tops)
    return text + ("\n  %s }\n" % fields if fields else " }\n")


def laid_out(prototxt):
    """Lines of a model's text, long fields in rows; Caffe's format knows no line ends."""
    lines = []
    for line in prototxt.splitlines():
        group, brace, fields = line.partition("_param {")
        if not brace or len(line) <= 84:
            lines.append(line)
            continue
        words = re.findall(r"\w+: \S+", fields)
        rows = ["    " + " ".join(words[k : k + 6]) for k in range(0, len(words), 6)]
        lines += [group + brace] + rows + ["  }", "}"]
    return lines


def layer_caffemodel(name, kind, blobs):
    """The bytes of a layer's weights: a ``LayerParameter`` with its float32 blobs."""
    content = bytes_field(1, name.encode()) + bytes_field(2, kind.encode())
    for blob in blobs:
        dims = b"".join(varint(size) for size in blob.shape)
        data = np.ascontiguousarray(blob, "<f4").tobytes()
        content += bytes_field(7, bytes_field(7, bytes_field(1, dims)) + bytes_field(5, data))
    return bytes_field(100, content)


def bytes_field(number, content):
    """A protocol buffer's field of bytes: its key, its length, its content."""
    # the key's low bits, 2, say that a length and bytes follow
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(number):
    """A whole number as protocol buffers write it: groups of 7 bits, the lowest first."""
    # protocol buffers' varint: the eighth bit says that another group follows
    groups = bytearray()
    while number > 127:
        groups.append(number & 127 | 128)
        number >>= 7
    groups.append(number)
    return bytes(groups)


def output_count(spec, axis, size, pad):
    """Outputs of an axis with that padding on both sides; pooling rounds up. 0: none fits."""
    stride = spec["stride"][axis]
    room = size + 2 * pad - windows_of_spec(spec).extents[axis]
    if room < 0 or not pool_kind(spec):
        return max(room // stride + 1, 0)
    count = -(-room // stride) + 1
    # Caffe: with padding, a last window that would start behind the input is left out
    return count - (pad > 0 and (count - 1) * stride >= size + pad)


def symmetric_padding(spec, axis, size, before, outputs):
    """(padding on both sides, outputs to drop first) that give ``outputs`` windows from -before."""
    drop = 0
    while True:
        pad = before + drop * spec["stride"][axis]
        if output_count(spec, axis, size, pad) - drop >= max(outputs, 1):
            return pad, drop
        drop += 1


def slice_text(part):
    return ":" if part == slice(None) else f"{part.start}:{part.stop}"


def caffe_plan(spec, sizes):
    """An Axis for every spatial axis of an input of these sizes; none fits: nothing is kept.

    Raises Unsupported where Caffe's own padding can't stand for the spec's.
    """
    kind, windows, axes = pool_kind(spec), windows_of_spec(spec), []
    for axis, (before, _, _, outputs) in enumerate(windows.spans(sizes)):
        pad, drop = symmetric_padding(spec, axis, sizes[axis], before, outputs)
        count = output_count(spec, axis, sizes[axis], pad)
        part = slice(None) if (drop, count) == (0, outputs) else slice(drop, drop + outputs)
        axes.append(Axis(pad, count, part))
    zeros = spec.get("pad_with") == "zeros"
    for extent, pads, plan in zip(windows.extents, windows.pads(sizes), axes):
        if kind and plan.pad >= extent:
            raise Unsupported("Caffe's pooling padding must be smaller than its window")
        if kind == "avg" and (plan.pad, plan.pad) != (pads if zeros else (0, 0)):
            raise Unsupported("Caffe's average counts its own symmetric padding, and no other")
        if kind == "max" and zeros and any(pads):
            raise Unsupported("Caffe's maximum leaves padding out")
    return axes


def layer_prototxt(spec, shape, pads):
    """The text of a Caffe model of one layer, ``y``, for an input of that shape."""
    kind, fields = layer_parameters(spec, pads, len(shape) - 1)
    return input_text("x", shape) + layer_text("y", kind, ["x"], ["y"], fields)


def layer_parameters(spec, pads, axis=2):
    """(type, fields) of a spec's layer. ``axis``: that of a matrix product's channels."""
    kind, fields = pool_kind(spec), []
    if not kind:
        fields = [f"num_output: {spec['filters']}", f"bias_term: {str(spec['bias']).lower()}"]
    if spec["op"] in PRODUCTS:
        name, group, fields = "InnerProduct", "inner_product_param", fields + [f"axis: {axis}"]
    elif kind:
        fields = [f"pool: {'MAX' if kind == 'max' else 'AVE'}"] + _window_fields(spec, pads)
        name, group = "Pooling", "pooling_param"
    else:
        fields = fields + [f"group: {spec['groups']}"] + _window_fields(spec, pads)
        name, group = "Convolution", "convolution_param"
    return name, f"{group} {{ {' '.join(fields)} }}"


def _window_fields(spec, pads):
    """Kernel, stride, padding and dilation: by axis as _h and _w, or one for each of three."""
    kernel, stride, dilation = spec["kernel"], spec["stride"], spec["dilation"]
    if len(kernel) == 1:
        kernel, stride, dilation, pads = [
            [n] + list(v) for n, v in ((1, kernel), (1, stride), (1, dilation), (0, pads))
        ]
    dilated = [f"dilation: {step}" for step in dilation] if any(d != 1 for d in dilation) else []
    if len(kernel) == 3:
        sizes = {"kernel_size": kernel, "stride": stride, "pad": pads}
        return [f"{name}: {n}" for name, ns in sizes.items() for n in ns] + dilated
    sizes = {"kernel": kernel, "stride": stride, "pad": pads}
    named = [f"{name}_{axis}: {n}" for name, ns in sizes.items() for axis, n in zip("hw", ns)]
    return named + dilated
