"""Convolutions, pools and matrix products as Caffe has them: their fields, padding and weights.

Caffe pads both sides alike. Padding that differs gets the larger symmetric one from which the first
windows are a whole number of strides away; the outputs that are then too many are cropped, as a
Caffe user does.
"""

from collections import namedtuple

from probe.backends import caffe, channels_first, pooling
from probe.backends.contract import Unsupported
from probe.geometry import Windows

#: One axis: padding on both sides, the first output that is kept, how many are, how many there are.
Axis = namedtuple("Axis", "pad drop outputs there")

PRODUCTS = ("matmul", "dense")


def supported(spec):
    """Raises Unsupported where Caffe has no layer for the spec, or OpenCV no such numbers."""
    if spec["dtype"] != "float32":
        raise Unsupported(f"dtype={spec['dtype']}: OpenCV's Caffe layers are float32")
    if spec["padding"] == "same_lower":
        raise Unsupported("padding=same_lower: Caffe has explicit padding alone")
    known = "conv" in spec["op"] or spec["op"] in PRODUCTS or pooling.kind(spec)
    if not known:
        built = "convolutions, pooling, matmul and dense are built for Caffe"
        raise Unsupported(f"op={spec['op']}: {built}")
    if pooling.kind(spec) and any(step != 1 for step in spec["dilation"]):
        raise Unsupported("Caffe's pooling has no dilation")


def there(spec, axis, size, pad):
    """Outputs of an axis with that padding on both sides; pooling rounds up. 0: none fits."""
    stride = spec["stride"][axis]
    room = size + 2 * pad - Windows.of(spec).extents[axis]
    if room < 0 or not pooling.kind(spec):
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


def plan(spec, sizes):
    """An Axis for every spatial axis of an input of these sizes.

    Raises Unsupported where Caffe's own padding can't stand for the spec's.
    """
    kind, found, windows = pooling.kind(spec), [], Windows.of(spec)
    for axis, size in enumerate(sizes):
        before, after, _, outputs = windows.span(axis, size)
        pad, drop = symmetric(spec, axis, size, before, outputs)
        if kind and pad >= windows.extents[axis]:
            raise Unsupported("Caffe's pooling padding must be smaller than its window")
        zeros = spec.get("pad_with") == "zeros"
        if kind == "avg" and (pad, pad) != ((before, after) if zeros else (0, 0)):
            raise Unsupported("Caffe's average counts its own symmetric padding, and no other")
        if kind == "max" and zeros and before + after:
            raise Unsupported("Caffe's maximum leaves padding out")
        found.append(Axis(pad, drop, outputs, there(spec, axis, size, pad)))
    return found


def weights(spec, w):
    """A container array (*kernel, channels/groups, filters) as Caffe's blob has it, a copy."""
    if spec["op"] in PRODUCTS:
        return channels_first.copied(w.reshape(w.shape[-2:]).T)
    if spec["op"].startswith("depthwise"):
        w = w.reshape(tuple(spec["kernel"]) + (1, spec["filters"]))
    return channels_first.kernels(w[None] if len(spec["kernel"]) == 1 else w)


def prototxt(spec, shape, pads):
    """The text of a Caffe model of one layer, ``y``, for an input of that shape."""
    kind, fields = parameters(spec, pads, len(shape) - 1)
    return caffe.head("x", shape) + caffe.text("y", kind, ["x"], ["y"], fields)


def parameters(spec, pads, axis=2):
    """(type, fields) of a spec's layer. ``axis``: that of a matrix product's channels."""
    kind, fields = pooling.kind(spec), []
    if not kind:
        fields = [f"num_output: {spec['filters']}", f"bias_term: {str(spec['bias']).lower()}"]
    if spec["op"] in PRODUCTS:
        name, group, fields = "InnerProduct", "inner_product_param", fields + [f"axis: {axis}"]
    elif kind:
        fields = [f"pool: {'MAX' if kind == 'max' else 'AVE'}"] + _windows(spec, pads)
        name, group = "Pooling", "pooling_param"
    else:
        fields = fields + [f"group: {spec['groups']}"] + _windows(spec, pads)
        name, group = "Convolution", "convolution_param"
    return name, f"{group} {{ {' '.join(fields)} }}"


def _windows(spec, pads):
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
