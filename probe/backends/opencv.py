"""Caffe models, run for real: ``cv2.dnn.readNetFromCaffe`` on a prototxt of one layer, NCHW.

No binary model is needed: a layer's ``blobs`` take the weights before the first pass. After it
they are packed, and new ones change nothing, so new weights mean a new net (some 30 microseconds).
The names, and that pooling rounds sizes up, are Caffe's; the kernels are OpenCV's. Caffe pads both
sides alike. Padding that differs gets the larger symmetric one from which the first windows are a
whole number of strides away, and the outputs that a Caffe user crops are cropped here.
"""

import numpy as np

from probe.backends import channels_first, pooling
from probe.backends.contract import Backend, Key, Operator, OutOfMemory, Unavailable, Unsupported
from probe.backends.reference import zeros_around

KEYS = {
    "winograd": Key(("0", "1"), "1", "Winograd's algorithm for 3x3 kernels of stride 1"),
    "threads": Key(None, "one a core", "threads within a layer"),
}


class OpenCV(Backend):
    """cv2.dnn on Caffe's prototxt, one process a target."""

    name = "opencv"
    distributions = ("opencv-python-headless", "opencv-python", "opencv-contrib-python")
    module = "cv2"
    keys = KEYS
    doc = "a Caffe model of one layer in OpenCV's cv2.dnn, NCHW"
    suggestions = (",winograd=0", ",threads=1", ",winograd=0,threads=1")

    def start(self, switches, device):
        """OpenCV 5 reads no Caffe models: Unavailable."""
        import cv2

        self.cv2, self.winograd = cv2, switches.get("winograd", "1") == "1"
        if not hasattr(cv2.dnn, "readNetFromCaffe"):
            why = f"OpenCV {cv2.__version__} reads no Caffe models"
            raise Unavailable(why + '; pip install "opencv-python-headless<5"')
        if hasattr(cv2, "utils") and hasattr(cv2.utils, "logging"):
            cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
        if "threads" in switches:
            cv2.setNumThreads(int(switches["threads"]))
        return {
            "library": "opencv",
            "library_version": cv2.__version__,
            "numpy_version": np.__version__,
            "devices": ["cpu"],
            "threads": cv2.getNumThreads(),
        }

    def operator(self, spec):
        if spec["dtype"] != "float32":
            raise Unsupported(f"dtype={spec['dtype']}: OpenCV's Caffe layers are float32")
        if spec["padding"] == "same_lower":
            raise Unsupported("padding=same_lower: Caffe has explicit padding alone")
        if "conv" not in spec["op"] and not pooling.kind(spec):
            raise Unsupported(f"op={spec['op']}: convolutions and pooling are built for Caffe")
        return CaffeLayer(self, spec)


def symmetric(spec, axis, size, before, outputs):
    """(padding on both sides, outputs to drop first) that give ``outputs`` windows from -before."""
    stride, reach, drop = spec["stride"][axis], pooling.extent(spec, axis), 0
    while True:
        pad = before + drop * stride
        room = size + 2 * pad - reach
        there = (-(-room // stride) if pooling.kind(spec) else room // stride) + 1
        if room >= 0 and there - drop >= outputs:
            return pad, drop
        drop += 1


class CaffeLayer(Operator):
    """One layer. A net is made for each shape; weights are constants of it."""

    constant_weights = True

    def __init__(self, backend, spec):
        Operator.__init__(self, spec)
        self.cv2, self.winograd = backend.cv2, backend.winograd
        self.flat = len(spec["kernel"]) == 1  # Caffe's one-dimensional layers have a height of 1
        self.pool = pooling.kind(spec)
        self.call = self._refusing(self._call())

    def plan(self, sizes):
        """(padding, first output kept, outputs kept) of every axis of an input of these sizes."""
        found = []
        for axis, size in enumerate(sizes):
            if self.pool:
                own = pooling.span(self.spec, axis, size)
                before, after, outputs = own.before, own.after, own.outputs
            else:
                (before, after), outputs = zeros_around(self.spec, axis, size)
            pad, drop = symmetric(self.spec, axis, size, before, outputs)
            if self.pool and pad >= pooling.extent(self.spec, axis):
                raise Unsupported("Caffe's pooling padding must be smaller than its window")
            zeros = self.spec.get("pad_with") == "zeros"
            if self.pool == "avg" and (pad, pad) != ((before, after) if zeros else (0, 0)):
                raise Unsupported("Caffe's average counts its own symmetric padding, and no other")
            if self.pool == "max" and zeros and before + after:
                raise Unsupported("Caffe's maximum leaves padding out")
            found.append((pad, drop, outputs))
        return found

    def _call(self):
        kept_w = kept_b = kept_shape = net = keep = None

        def call(x, w, b):
            nonlocal kept_w, kept_b, kept_shape, net, keep
            if net is None or w is not kept_w or b is not kept_b or x.shape != kept_shape:
                kept_w, kept_b, kept_shape = w, b, x.shape
                plan = self.plan(x.shape[3:] if self.flat else x.shape[2:])
                net = self.net(x.shape, plan, w, b)
                ends = [slice(drop, drop + outputs) for _, drop, outputs in plan]
                keep = (slice(None), slice(None)) + (slice(None),) * self.flat + tuple(ends)
            net.setInput(x)
            return net.forward()[keep]

        return call

    def net(self, shape, plan, w, b):
        """The cv2.dnn.Net of a prototxt with these weights."""
        text = prototxt(self.spec, shape, [pad for pad, _, _ in plan])
        net = self.cv2.dnn.readNetFromCaffe(np.frombuffer(text.encode(), np.uint8))
        net.enableWinograd(self.winograd)
        if not self.pool:
            net.getLayer("y").blobs = [w] if b is None else [w, b]
        return net

    def _refusing(self, call):
        """``call`` with OpenCV's refusals turned into Unsupported."""

        def guarded(x, w, b):
            try:
                return call(x, w, b)
            except self.cv2.error as error:
                said = " ".join(str(error.err or error).split())[:300]
                if error.code == self.cv2.Error.StsNoMem:
                    raise OutOfMemory(said) from None
                raise Unsupported("OpenCV refuses: " + said) from None

        return guarded

    def input(self, x):
        return channels_first.activations(x[:, None] if self.flat else x)

    def weights(self, w):
        if self.pool:
            return None
        if self.spec["op"].startswith("depthwise"):
            w = w.reshape(tuple(self.spec["kernel"]) + (1, self.spec["filters"]))
        return channels_first.kernels(w[None] if self.flat else w)

    def bias(self, b):
        return None if b is None else channels_first.copied(b)

    def output(self, y):
        y = np.ascontiguousarray(y[:, :, 0] if self.flat else y)
        return channels_first.channels_last(y)


def prototxt(spec, shape, pads):
    """The text of a Caffe model of one layer for an NCHW input of that shape."""
    fields, kind = _fields(spec, pads), pooling.kind(spec)
    if kind:
        name, group = "Pooling", "pooling_param"
        fields = [f"pool: {'MAX' if kind == 'max' else 'AVE'}"] + fields
    else:
        name, group = "Convolution", "convolution_param"
        bias = str(spec["bias"]).lower()
        head = [f"num_output: {spec['filters']}", f"bias_term: {bias}", f"group: {spec['groups']}"]
        fields = head + fields
    dims = " ".join(f"dim: {size}" for size in shape)
    return (
        f'input: "x"\ninput_shape {{ {dims} }}\n'
        f'layer {{ name: "y" type: "{name}" bottom: "x" top: "y"\n'
        f"  {group} {{ {' '.join(fields)} }} }}\n"
    )


def _fields(spec, pads):
    """Kernel, stride, padding and dilation: by axis as _h and _w, or one for each of three."""
    kernel, stride, dilation = spec["kernel"], spec["stride"], spec["dilation"]
    if len(kernel) == 1:
        kernel, stride, dilation, pads = [
            [n] + list(v) for n, v in ((1, kernel), (1, stride), (1, dilation), (0, pads))
        ]
    if pooling.kind(spec) and any(step != 1 for step in dilation):
        raise Unsupported("Caffe's pooling has no dilation")
    dilated = [f"dilation: {step}" for step in dilation] if any(d != 1 for d in dilation) else []
    if len(kernel) == 3:
        sizes = {"kernel_size": kernel, "stride": stride, "pad": pads}
        return [f"{name}: {n}" for name, ns in sizes.items() for n in ns] + dilated
    sizes = {"kernel": kernel, "stride": stride, "pad": pads}
    named = [f"{name}_{axis}: {n}" for name, ns in sizes.items() for axis, n in zip("hw", ns)]
    return named + dilated
