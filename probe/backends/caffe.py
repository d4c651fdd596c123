"""Writes Caffe models: layers as text (prototxt), weights as bytes (caffemodel).

The bytes of a ``.caffemodel`` are a protocol buffer, of which these few fields are written here
(``caffe.proto`` of BVLC/caffe): ``NetParameter.layer`` 100, ``LayerParameter.name`` 1, ``type`` 2,
``blobs`` 7, ``BlobProto.data`` 5 and ``shape`` 7, ``BlobShape.dim`` 1.

Caffe pads both sides alike. Padding that differs gets the larger symmetric one from which the first
windows are a whole number of strides away; the outputs that are then too many are cropped, as a
Caffe user does.
"""

import re
from collections import namedtuple

import numpy as np

from probe.backends import pooling
from probe.backends.contract import Unsupported
from probe.geometry import WindowSizes

#: One axis: padding on both sides, how many outputs there are, and a slice of those that are kept.
Axis = namedtuple("Axis", "pad there kept")

PRODUCTS = ("matmul", "dense")


class Blob:
    """A blob's name and its shape (batch, channels, *spatial)."""

    def __init__(self, name, shape):
        self.name, self.shape = name, tuple(shape)


class CaffeModel:
    """A model that is written layer by layer, of one input ``x``.

    ``shape``: (batch, *spatial, channels) of x; a model has the channels first, and of one spatial
    axis a height of 1: ``flat``. ``constants``: what a user gives once, as inputs beside x:
    (expression, shape) by name.
    """

    def __init__(self, shape):
        self.rank, self.flat, self.last = len(shape), len(shape) == 3, "x"
        self.x = Blob("x", channels_first(shape))
        self.constants, self.lines, self.weights = {}, [], []

    def axis(self, axis):
        """Returns where an axis of (batch, *spatial, channels) is in the model."""
        if axis in (0, self.rank - 1):  # batch, channels
            return min(axis, 1)
        return axis + 1 + self.flat

    def constant(self, expression, shape):
        """Returns a Value that does not change."""
        name = "constant%d" % len(self.constants)
        self.constants[name] = expression, tuple(shape)
        return Blob(name, shape)

    def layer(self, kind, bottoms, shape, fields="", blobs=(), of=(0, 1)):
        """Returns the Value of one layer's output. ``fields``: as text, of the layer's parameters.

        ``blobs``: functions of the operands by name, which give its weights. ``of``: which of how
        many outputs it is.
        """
        name = "%s%d" % (kind.lower(), len(self.lines))
        tops = [name] if of[1] == 1 else ["%s_%d" % (name, top) for top in range(of[1])]
        self.lines.append(layer_text(name, kind, [one.name for one in bottoms], tops, fields))
        if blobs:
            self.weights.append((name, kind, blobs))
        self.last = tops[0]  # what a net gives
        return Blob(tops[of[0]], shape)

    def prototxt(self):
        """Returns the text of the model."""
        inputs = {"x": self.x.shape}
        inputs.update((name, shape) for name, (_, shape) in self.constants.items())
        return "".join(input_text(name, shape) for name, shape in inputs.items()) + "".join(
            self.lines
        )

    def caffemodel(self, operands):
        """``{"caffemodel": bytes}``: the weights, of operands by name."""
        parts = [
            caffemodel(name, kind, [blob(operands) for blob in blobs])
            for name, kind, blobs in self.weights
        ]
        return {"caffemodel": b"".join(parts)}


def channels_first(shape):
    """The shape of x as a model has it: (batch, channels, *spatial), of two axes or more."""
    return (shape[0], shape[-1]) + (1,) * (len(shape) == 3) + tuple(shape[1:-1])


def input_text(name, shape):
    """Returns an input of a prototxt."""
    dims = " ".join("dim: %d" % size for size in shape)
    return 'input: "%s"\ninput_shape { %s }\n' % (name, dims)


def layer_text(name, kind, bottoms, tops, fields):
    """Returns a layer of a prototxt."""
    found = 'layer { name: "%s" type: "%s"' % (name, kind)
    found += "".join(' bottom: "%s"' % one for one in bottoms)
    found += "".join(' top: "%s"' % one for one in tops)
    return found + ("\n  %s }\n" % fields if fields else " }\n")


def laid_out(prototxt):
    """Returns lines of a model's text, long fields in rows; Caffe's format knows no line ends."""
    found = []
    for line in prototxt.splitlines():
        group, brace, fields = line.partition("_param {")
        if not brace or len(line) <= 84:
            found.append(line)
            continue
        words = re.findall(r"\w+: \S+", fields)
        rows = ["    " + " ".join(words[k : k + 6]) for k in range(0, len(words), 6)]
        found += [group + brace] + rows + ["  }", "}"]
    return found


def caffemodel(name, kind, blobs):
    """Returns the bytes of a layer's weights: a ``LayerParameter`` with its float32 blobs."""
    found = field(1, name.encode()) + field(2, kind.encode())
    for blob in blobs:
        dims = b"".join(varint(size) for size in blob.shape)
        data = np.ascontiguousarray(blob, "<f4").tobytes()
        found += field(7, field(7, field(1, dims)) + field(5, data))
    return field(100, found)


def field(number, content):
    """Returns a field of bytes: its key, its length, its content."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def varint(number):
    """Returns a whole number in groups of 7 bits, the lowest first."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)


def require_caffe(spec):
    """Raises Unsupported where Caffe has no layer for the spec, or OpenCV no such numbers."""
    if spec["dtype"] != "float32":
        raise Unsupported(f"dtype={spec['dtype']}: OpenCV's Caffe layers are float32")
    if spec.get("padding") == "same_lower":
        raise Unsupported("padding=same_lower: Caffe has explicit padding alone")
    known = "conv" in spec["op"] or spec["op"] in PRODUCTS or pooling.pool_kind(spec)
    if "kernel" in spec and not known:
        built = "convolutions, pooling, matmul and dense are built for Caffe"
        raise Unsupported(f"op={spec['op']}: {built}")
    if pooling.pool_kind(spec) and any(step != 1 for step in spec["dilation"]):
        raise Unsupported("Caffe's pooling has no dilation")


def there(spec, axis, size, pad):
    """Outputs of an axis with that padding on both sides; pooling rounds up. 0: none fits."""
    stride = spec["stride"][axis]
    room = size + 2 * pad - WindowSizes.of(spec).extents[axis]
    if room < 0 or not pooling.pool_kind(spec):
        return max(room // stride + 1, 0)
    count = -(-room // stride) + 1
    return count - (pad > 0 and (count - 1) * stride >= size + pad)


def symmetric(spec, axis, size, before, outputs):
    """(padding on both sides, outputs to drop first) that give ``outputs`` windows from -before."""
    drop = 0
    while True:
        pad = before + drop * spec["stride"][axis]
        if there(spec, axis, size, pad) - drop >= max(outputs, 1):
            return pad, drop
        drop += 1


def caffe_axes(spec, sizes):
    """An Axis for every spatial axis of an input of these sizes; none fits: nothing is kept."""
    found = []
    for axis, (before, _, _, outputs) in enumerate(WindowSizes.of(spec).spans(sizes)):
        pad, drop = symmetric(spec, axis, sizes[axis], before, outputs)
        count = there(spec, axis, sizes[axis], pad)
        kept = slice(None) if (drop, count) == (0, outputs) else slice(drop, drop + outputs)
        found.append(Axis(pad, count, kept))
    return found


def slice_text(kept):
    """Returns a slice as it is written in an index."""
    return ":" if kept == slice(None) else f"{kept.start}:{kept.stop}"


def plan(spec, sizes):
    """``caffe_axes``; raises Unsupported where Caffe's own padding can't stand for the spec's."""
    kind, windows, found = pooling.pool_kind(spec), WindowSizes.of(spec), caffe_axes(spec, sizes)
    zeros = spec.get("pad_with") == "zeros"
    for extent, asked, one in zip(windows.extents, windows.pads(sizes), found):
        if kind and one.pad >= extent:
            raise Unsupported("Caffe's pooling padding must be smaller than its window")
        if kind == "avg" and (one.pad, one.pad) != (asked if zeros else (0, 0)):
            raise Unsupported("Caffe's average counts its own symmetric padding, and no other")
        if kind == "max" and zeros and any(asked):
            raise Unsupported("Caffe's maximum leaves padding out")
    return found


def prototxt(spec, shape, pads):
    """Returns the text of a Caffe model of one layer, ``y``, for an input of that shape."""
    kind, fields = parameters(spec, pads, len(shape) - 1)
    return input_text("x", shape) + layer_text("y", kind, ["x"], ["y"], fields)


def parameters(spec, pads, axis=2):
    """(type, fields) of a spec's layer. ``axis``: that of a matrix product's channels."""
    kind, fields = pooling.pool_kind(spec), []
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
