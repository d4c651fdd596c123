"""Caffe models, run for real: ``cv2.dnn.readNetFromCaffe`` on a prototxt of one layer, NCHW.

A convolution's ``blobs`` take the weights before the first pass. After it they are packed, and new
ones change nothing, so new weights mean a new net (some 30 microseconds). ``matmul`` and ``dense``
are InnerProduct, which reads its weights from the bytes of a model alone: see ``caffe``.
The names, and that pooling rounds sizes up, are Caffe's; the kernels are OpenCV's.
"""

import numpy as np

from probe.backends import caffe, caffe_layers, channels_first, opencv_chain, pooling
from probe.backends._old import WithChain
from probe.backends.contract import Key, Operator, OutOfMemory, Unavailable, Unsupported

KEYS = {
    "winograd": Key(("0", "1"), "1", "Winograd's algorithm for 3x3 kernels of stride 1"),
    "threads": Key(None, "one a core", "threads within a layer"),
}


class OpenCV(WithChain):
    """cv2.dnn on Caffe's prototxt, one process a target."""

    name = "opencv"
    distributions = ("opencv-python-headless", "opencv-python", "opencv-contrib-python")
    module = "cv2"
    keys = KEYS
    doc = "a Caffe model of one layer, or of a whole network, in OpenCV's cv2.dnn, NCHW"
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
        caffe_layers.supported(spec)
        product = spec["op"] in caffe_layers.PRODUCTS
        return InnerProduct(self, spec) if product else CaffeLayer(self, spec)

    def chain(self, specs, operands):
        return opencv_chain.Chain(self, specs, operands)

    def net(self, prototxt, weights=b""):
        """The cv2.dnn.Net of a model's text and the bytes of its weights."""
        given = [np.frombuffer(prototxt.encode(), np.uint8)]
        given += [np.frombuffer(weights, np.uint8)] if weights else []
        net = self.cv2.dnn.readNetFromCaffe(*given)
        net.enableWinograd(self.winograd)
        return net

    def refusing(self, call):
        """``call`` with OpenCV's refusals turned into Unsupported."""

        def guarded(*values):
            try:
                return call(*values)
            except self.cv2.error as error:
                said = " ".join(str(error.err or error).split())[:300]
                if error.code == self.cv2.Error.StsNoMem:
                    raise OutOfMemory(said) from None
                raise Unsupported("OpenCV refuses: " + said) from None

        return guarded


class CaffeLayer(Operator):
    """One convolution or pool. A net is made for each shape; weights are constants of it."""

    constant_weights = True

    def __init__(self, backend, spec):
        Operator.__init__(self, spec)
        self.backend, self.pool = backend, pooling.kind(spec)
        self.flat = len(spec["kernel"]) == 1  # Caffe's one-dimensional layers have a height of 1
        self.call = backend.refusing(self._call())

    def _call(self):
        kept_w = kept_b = kept_shape = net = keep = None

        def call(x, w, b):
            nonlocal kept_w, kept_b, kept_shape, net, keep
            if net is None or w is not kept_w or b is not kept_b or x.shape != kept_shape:
                kept_w, kept_b, kept_shape = w, b, x.shape
                plan = caffe_layers.plan(self.spec, x.shape[3:] if self.flat else x.shape[2:])
                net = self.net(x.shape, plan, w, b)
                ends = [slice(one.drop, one.drop + one.outputs) for one in plan]
                keep = (slice(None), slice(None)) + (slice(None),) * self.flat + tuple(ends)
            net.setInput(x)
            return net.forward()[keep]

        return call

    def net(self, shape, plan, w, b):
        """The cv2.dnn.Net of a prototxt with these weights."""
        pads = [one.pad for one in plan]
        net = self.backend.net(caffe_layers.prototxt(self.spec, shape, pads))
        if not self.pool:
            net.getLayer("y").blobs = [w] if b is None else [w, b]
        return net

    def input(self, x):
        return channels_first.activations(x[:, None] if self.flat else x)

    def weights(self, w):
        return None if self.pool else caffe_layers.weights(self.spec, w)

    def bias(self, b):
        return None if b is None else channels_first.copied(b)

    def output(self, y):
        y = np.ascontiguousarray(y[:, :, 0] if self.flat else y)
        return channels_first.channels_last(y)


class InnerProduct(Operator):
    """Caffe's matrix product, over the last axis of x."""

    constant_weights = True

    def __init__(self, backend, spec):
        Operator.__init__(self, spec)
        self.backend = backend
        self.call = backend.refusing(self._call())

    def _call(self):
        kept_w = kept_b = kept_shape = net = None

        def call(x, w, b):
            nonlocal kept_w, kept_b, kept_shape, net
            if net is None or w is not kept_w or b is not kept_b or x.shape != kept_shape:
                kept_w, kept_b, kept_shape = w, b, x.shape
                blobs = [w] if b is None else [w, b]
                text = caffe_layers.prototxt(self.spec, x.shape, ())
                net = self.backend.net(text, caffe.caffemodel("y", "InnerProduct", blobs))
            net.setInput(x)
            return net.forward()

        return call

    def input(self, x):
        return channels_first.copied(x)

    def weights(self, w):
        return caffe_layers.weights(self.spec, w)

    def bias(self, b):
        return None if b is None else channels_first.copied(b)

    def output(self, y):
        return np.ascontiguousarray(y)
