"""tf.nn's operators: one spec bound to eager tensors, to a tf.function, or to a session of 1.x.

Explicit padding goes to the operator where it takes it (conv2d, depthwise_conv2d without dilation),
and through ``tf.pad`` elsewhere. The bias is ``tf.nn.bias_add`` after the convolution. Input is
always fed: with a constant one the graph would be folded before oneDNN's rewrite.
"""

import re

import numpy as np

from probe.backends.contract import Operator, OutOfMemory, Unsupported


def release(tf):
    """(major, minor) of a TensorFlow."""
    return tuple(int(part) for part in tf.__version__.split(".")[:2])


def convolution(tf, spec):
    """f(x, w) for a spec: the tf.nn call with everything bound but its operands."""
    function, keywords = _function(tf, spec)
    if isinstance(spec["padding"], str):
        keywords["padding"] = spec["padding"].upper()
        return lambda x, w: function(x, w, **keywords)
    pads = [[0, 0]] + [list(pair) for pair in spec["padding"]] + [[0, 0]]
    if takes_padding(tf, spec):
        keywords["padding"] = pads
        return lambda x, w: function(x, w, **keywords)
    keywords["padding"], pad = "VALID", tf.pad
    return lambda x, w: function(pad(x, pads), w, **keywords)


def _function(tf, spec):
    """The function of tf.nn, and its strides and dilations as it names them."""
    op, stride, dilation = spec["op"], list(spec["stride"]), list(spec["dilation"])
    dilated = any(step != 1 for step in dilation)
    if op == "depthwise_conv2d" and dilated and any(step != 1 for step in stride):
        raise Unsupported("tf.nn.depthwise_conv2d has strides or dilations, and warns about both")
    if op == "conv1d":
        steps = {"stride": stride[0]}
        return tf.nn.conv1d, dict(steps, dilations=dilation[0]) if dilated else steps
    if op == "conv3d" and dilated:  # tf.nn.conv3d refuses on CPUs; this rearranges, as Keras does
        return tf.nn.convolution, {"strides": stride, "dilations": dilation}
    steps = {"strides": [1] + stride + [1]}
    if dilated and op == "depthwise_conv2d":
        steps["dilations" if release(tf) >= (2, 0) else "rate"] = dilation
    elif dilated:  # releases up to 1.5 do not know the word
        steps["dilations"] = [1] + dilation + [1]
    return getattr(tf.nn, op), steps


def takes_padding(tf, spec):
    """Whether the operator takes explicit padding; where it doesn't, ``tf.pad`` goes first."""
    if spec["op"] == "depthwise_conv2d":
        return release(tf) >= (2, 4) and all(step == 1 for step in spec["dilation"])
    return spec["op"] == "conv2d" and release(tf) >= (2, 0)


def weight_shape(spec):
    """The shape of a filter tensor in tf.nn: depthwise ones are (*kernel, in, multiplier)."""
    kernel, channels, filters = spec["kernel"], spec["in_channels"], spec["filters"]
    if spec["op"] == "depthwise_conv2d":
        return tuple(kernel) + (channels, filters // channels)
    return tuple(kernel) + (channels // spec["groups"], filters)


def refusing(tf, call):
    """``call`` with TensorFlow's refusals of an operator turned into Unsupported."""
    refusals = (
        tf.errors.UnimplementedError,
        tf.errors.InvalidArgumentError,
        tf.errors.NotFoundError,
        NotImplementedError,
        ValueError,
        TypeError,
    )
    exhausted = tf.errors.ResourceExhaustedError

    def guarded(x, w, b):
        try:
            return call(x, w, b)
        except exhausted as error:
            raise OutOfMemory(said(error)) from None
        except refusals as error:
            raise Unsupported("TensorFlow refuses: " + said(error)) from None

    return guarded


#: Places in a graph, operator names and colours: what an error's line holds beside its message.
NOISE = re.compile(r"\[\[.*?\]\]|{{.*?}}|\[Op:.*?\]|\x1b\[\d+m|\s+name:\s*$|^\s*\w+Error: ")
#: Errors that tell where before what.
HEADINGS = ("in user code", "Graph execution error")


def said(error):
    """What a library's error says, in one line of at most 300 characters.

    That is its first line after Keras' heading, and its last one where a call stack is in between.
    """
    text = str(error).partition("Original stack trace")[0]
    lines = [NOISE.sub("", line).strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("Exception encountered when")]
    if not lines:
        return type(error).__name__
    return lines[-1 if lines[0].startswith(HEADINGS) else 0][:300]


class TensorFlowOperator(Operator):
    """What eager, function and session share: dtype, bitcasts, rebuilding on constants."""

    def __init__(self, tf, spec, convolve, constant):
        """``convolve``: f(x, w) of tensors, such as ``convolution(tf, spec)``."""
        Operator.__init__(self, spec)
        self.tf, self.convolve, self.constant_weights = tf, convolve, constant
        self.narrow = spec["dtype"] == "bfloat16"
        self.dtype = getattr(tf, spec["dtype"])
        self.shape = weight_shape(spec)

    def tensor(self, array):
        """A tensor of the operator's dtype with a container array's bits (a copy)."""
        made = self.tf.constant(np.ascontiguousarray(array))
        return self.tf.bitcast(made, self.dtype) if self.narrow else made

    def compute(self, x, w, b):
        """The convolution of tensors, with the bias where there is one."""
        y = self.convolve(x, w)
        return y if b is None else self.tf.nn.bias_add(y, b)

    def rebuilding(self, build):
        """A call that makes a new model, by ``build(w, b)``, when it is given other weights."""
        kept_w, kept_b, model = None, None, None

        def call(x, w, b):
            nonlocal kept_w, kept_b, model
            if model is None or w is not kept_w or b is not kept_b:
                kept_w, kept_b, model = w, b, build(w, b)
            return model(x)

        return call


class Tensors(TensorFlowOperator):
    """TensorFlow 2, and eager mode of 1.x: eager tensors on the process's only device."""

    def __init__(self, tf, spec, convolve, function, xla, constant):
        TensorFlowOperator.__init__(self, tf, spec, convolve, constant)
        self.xla = xla
        call = self.compute
        if constant:
            call = self.rebuilding(self._constants)
        elif function:
            call = self._function(spec["bias"])
        self.call = refusing(tf, _awaited(tf, call))

    def _function(self, bias):
        """One trace for all lengths and batches: those dimensions are None in its signature."""
        tf, signature = self.tf, [self._spec_of_input()]
        signature.append(tf.TensorSpec(self.shape, self.dtype))
        if not bias:
            traced = self._traced(lambda x, w: self.compute(x, w, None), signature)
            return lambda x, w, b: traced(x, w)
        signature.append(tf.TensorSpec((self.spec["filters"],), self.dtype))
        return self._traced(self.compute, signature)

    def _constants(self, w, b):
        def model(x):
            return self.compute(x, self.tensor(w), None if b is None else self.tensor(b))

        return self._traced(model, [self._spec_of_input()])

    def _spec_of_input(self):
        unknown = (None,) * (1 + len(self.spec["kernel"]))
        return self.tf.TensorSpec(unknown + (self.spec["in_channels"],), self.dtype)

    def _traced(self, function, signature):
        keywords = {}
        if self.xla:
            renamed = release(self.tf) >= (2, 5)
            keywords["jit_compile" if renamed else "experimental_compile"] = True
        return self.tf.function(function, input_signature=signature, **keywords)

    def input(self, x):
        return self.tensor(x)

    def weights(self, w):
        w = np.ascontiguousarray(w).reshape(self.shape)
        return w if self.constant_weights else self.tensor(w)

    def bias(self, b):
        return b if b is None or self.constant_weights else self.tensor(b)

    def output(self, y):
        return np.asarray(self.tf.bitcast(y, self.tf.uint16) if self.narrow else y)


def _awaited(tf, call):
    """On a GPU, the call returns when the device is done; on a CPU it is done already."""
    if release(tf) < (2, 5) or not tf.config.get_visible_devices("GPU"):
        return call
    wait = getattr(tf.test.experimental, "sync_devices", lambda: None)

    def waiting(x, w, b):
        y = call(x, w, b)
        wait()
        return y

    return waiting


class Session(TensorFlowOperator):
    """TensorFlow before 2.0: fed placeholders; bfloat16 is fed as uint16 and bitcast."""

    def __init__(self, tf, spec, convolve, config, device, constant):
        TensorFlowOperator.__init__(self, tf, spec, convolve, constant)
        self.config, self.device = config, device
        self.call = refusing(tf, self.rebuilding(self._constants) if constant else self._lazily())

    def _lazily(self):
        """Builds the graph at the first call, so that a refusal there is one of the operator."""
        run = None

        def call(x, w, b):
            nonlocal run
            run = run or self._fed()
            return run(x, w, b)

        return call

    def _fed(self):
        graph = self.tf.Graph()
        with graph.as_default(), self.tf.device(self.device):
            fed = [self._placeholder(shape) for shape in self._shapes()]
            y = self.compute(*([self._cast(value) for value in fed] + [None])[:3])
            run = self._callable(graph, y, fed)
        return run if self.spec["bias"] else lambda x, w, b: run(x, w)

    def _constants(self, w, b):
        graph = self.tf.Graph()
        with graph.as_default(), self.tf.device(self.device):
            x = self._placeholder(self._shapes()[0])
            y = self.compute(self._cast(x), self.tensor(w), None if b is None else self.tensor(b))
            return self._callable(graph, y, [x])

    def _shapes(self):
        unknown = (None,) * (1 + len(self.spec["kernel"]))
        shapes = [unknown + (self.spec["in_channels"],), self.shape]
        return shapes + [(self.spec["filters"],)] if self.spec["bias"] else shapes

    def _placeholder(self, shape):
        return self.tf.placeholder(self.tf.uint16 if self.narrow else self.dtype, shape)

    def _cast(self, value):
        return self.tf.bitcast(value, self.dtype) if self.narrow else value

    def _callable(self, graph, y, fed):
        y = self.tf.bitcast(y, self.tf.uint16) if self.narrow else y
        session = self.tf.Session(graph=graph, config=self.config)
        if hasattr(session, "make_callable"):  # from 1.2 on
            return session.make_callable(y, fed)
        return lambda *arrays: session.run(y, dict(zip(fed, arrays)))

    def input(self, x):
        return np.ascontiguousarray(x)

    def weights(self, w):
        return np.ascontiguousarray(w).reshape(self.shape)

    def bias(self, b):
        return b

    def output(self, y):
        return y
