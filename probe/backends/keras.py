"""Keras 3 layers, called on tensors as a model calls them; TensorFlow below by default.

What Keras 3.15 does beside the library below it (``keras/src/backend/tensorflow/nn.py``):

- A layer that is called runs eagerly, without XLA. ``compile(jit_compile=...)`` rules ``fit`` and
  ``predict`` alone; its default, ``"auto"``, means on TensorFlow a plain tf.function where there is
  no GPU (``mode=graph`` here), and XLA where there is one (``xla=1``).
- On TensorFlow a convolution with groups goes through XLA in every mode, because CPUs used to have
  none; called eagerly, it is compiled again at every call.
- Strides with dilations are refused, except in depthwise convolutions, which are thinned out.
- ``dense`` is a Dense layer, and so is ``matmul``: stacks of its rows have an axis more.
- The bias is an addition, not ``tf.nn.bias_add``. There is no explicit padding: a ZeroPadding layer
  goes before a ``valid`` one.
"""

import numpy as np

from probe import floats
from probe.backends import keras_chain, keras_pooling, pooling, products, tensorflow_chain
from probe.backends import tensorflow as below
from probe.backends._old import WithChain
from probe.backends.contract import Key, Operator, Unavailable, Unsupported
from probe.backends.tensorflow_operators import refusing, said

BACKENDS = ("tensorflow", "jax", "torch")

KEYS = dict(
    below.SWITCHES,
    mode=Key(("eager", "graph"), "eager; graph with xla=1", "graph: the layers in a tf.function"),
    xla=Key(("0", "1"), "0", "the layers in a tf.function with jit_compile"),
    backend=Key(BACKENDS, "tensorflow", "the library below Keras"),
)

LAYERS = {
    "conv1d": ("Conv1D", "ZeroPadding1D"),
    "conv2d": ("Conv2D", "ZeroPadding2D"),
    "conv3d": ("Conv3D", "ZeroPadding3D"),
    "depthwise_conv2d": ("DepthwiseConv2D", "ZeroPadding2D"),
}


def layers(keras, spec):
    """(convolution, padding layer or None) of a spec, built, for every length and batch."""
    if spec["op"] in ("matmul", "dense"):
        layer = keras.layers.Dense(spec["filters"], use_bias=spec["bias"], dtype=spec["dtype"])
        layer.build((None, spec["in_channels"]))
        return layer, None
    if spec["op"] not in LAYERS:
        raise Unsupported(f"op={spec['op']}: Keras has no layer for it")
    name, padding_name = LAYERS[spec["op"]]
    explicit = not isinstance(spec["padding"], str)
    options = {
        "kernel_size": tuple(spec["kernel"]),
        "strides": tuple(spec["stride"]),
        "dilation_rate": tuple(spec["dilation"]),
        "padding": "valid" if explicit else spec["padding"],
        "use_bias": spec["bias"],
        "data_format": "channels_last",
        "dtype": spec["dtype"],
    }
    if spec["op"] == "depthwise_conv2d":
        options["depth_multiplier"] = spec["filters"] // spec["in_channels"]
    else:
        options.update(filters=spec["filters"], groups=spec["groups"])
    layer = getattr(keras.layers, name)(**options)
    layer.build((None,) * (1 + len(spec["kernel"])) + (spec["in_channels"],))
    if not explicit:
        return layer, None
    pairs = tuple(tuple(pair) for pair in spec["padding"])
    around = {"padding": pairs[0] if len(pairs) == 1 else pairs, "dtype": spec["dtype"]}
    if len(pairs) > 1:
        around["data_format"] = "channels_last"
    return layer, getattr(keras.layers, padding_name)(**around)


class Layers(Operator):
    """Layers of one spec. New weights are assigned by the first call that brings them."""

    def __init__(self, keras, spec, wrap):
        """``wrap(f)`` gives what is called instead of f(x): eager, traced or compiled."""
        Operator.__init__(self, spec)
        self.keras, self.narrow = keras, spec["dtype"] == "bfloat16"
        layer, padding = layers(keras, spec)
        run = wrap(layer if padding is None else lambda x: layer(padding(x)))
        kept_w, kept_b = None, None

        def call(x, w, b):
            nonlocal kept_w, kept_b
            if w is not kept_w:
                kept_w = w
                layer.kernel.assign(w)
            if b is not kept_b:
                kept_b = b
                layer.bias.assign(b)
            return run(x)

        self.call, self.shape = call, tuple(layer.kernel.shape)

    def _tensor(self, array):
        array = np.array(array, order="C")  # a copy: JAX and PyTorch may share an array's memory
        array = floats.from_container(array, "bfloat16") if self.narrow else array
        return self.keras.ops.convert_to_tensor(array)

    def input(self, x):
        return self._tensor(products.left(self.spec, x))

    def weights(self, w):
        return self._tensor(np.reshape(w, self.shape))

    def bias(self, b):
        return None if b is None else self._tensor(b)

    def output(self, y):
        y = np.ascontiguousarray(self.keras.ops.convert_to_numpy(y))
        return products.restored(self.spec, y.view(np.uint16) if self.narrow else y)


class Keras(WithChain):
    """Keras 3 on TensorFlow, JAX or PyTorch."""

    name = "keras"
    distributions = ("keras",)
    module = "keras"
    keys = KEYS
    devices = ("cpu", "gpu:N")
    doc = "Keras layers, called eagerly on TensorFlow"
    suggestions = (
        *(",onednn=0", ",onednn=0,contraction=0", ",isa=avx2", ",mode=graph", ",xla=1"),
        *(",backend=jax", ",backend=torch", "@gpu:0"),
    )

    @classmethod
    def conflict(cls, switches):
        """TensorFlow's switches need TensorFlow; an eager layer is not compiled."""
        library = switches.get("backend", "tensorflow")
        if library != "tensorflow" and set(switches) != {"backend"}:
            key = next(key for key in switches if key != "backend")
            why = f"{switches[key]} is a switch of TensorFlow, and backend={library}"
            return (key, why, f"leave out {key} or backend")
        if switches.get("mode") == "eager" and switches.get("xla") == "1":
            return ("xla", "1 needs a graph, and mode=eager has none", "leave out mode")
        return ()

    @classmethod
    def requires(cls, switches):
        """The library below."""
        library = switches.get("backend", "tensorflow")
        return ((library, library),)

    @classmethod
    def environment(cls, switches, device):
        """Keras' choice of library, and TensorFlow's variables; PyTorch's threads don't spin."""
        library = switches.get("backend", "tensorflow")
        variables = below.environment(switches, device)
        if library == "torch":
            variables["OMP_WAIT_POLICY"] = "PASSIVE"
        if library == "jax" and device == "cpu":
            variables["JAX_PLATFORMS"] = "cpu"
        return dict(variables, KERAS_BACKEND=library)

    def start(self, switches, device):
        """Imports Keras, which imports the library below; TensorFlow is configured before."""
        self.switches, self.library = switches, switches.get("backend", "tensorflow")
        found = {"threads": None}
        if self.library == "tensorflow":
            import tensorflow as tf

            self.tf = tf
            below.configure(tf, switches, device)
            found = below.facts(tf, switches)
        elif device != "cpu":
            raise Unavailable(f"keras,backend={self.library} runs on the CPU alone here")
        import keras

        self.keras = keras
        if not hasattr(keras, "ops"):
            raise Unavailable(f"Keras {keras.__version__} is older than 3; use tensorflow instead")
        names = {"library": "keras", "library_version": keras.__version__, "devices": [device]}
        below_version = __import__(self.library).__version__
        return dict(found, **dict(names, below=f"{self.library} {below_version}"))

    def operator(self, spec):
        """Raises Unsupported where the layer's constructor does, or its library narrows."""
        self._check(spec)
        try:
            kind = keras_pooling.KerasPool if pooling.kind(spec) else Layers
            made = kind(self.keras, spec, lambda run: self._wrapped(run, spec))
        except (ValueError, TypeError, NotImplementedError) as error:
            raise Unsupported("Keras refuses: " + said(error)) from None
        if self.library == "tensorflow":
            made.call = refusing(self.tf, made.call)
        return made

    def _check(self, spec):
        """Raises Unsupported for float64 that Keras 3.15 casts to float32 and says nothing."""
        if spec["dtype"] != "float64":
            return
        if self.library == "jax":
            raise Unsupported("dtype=float64: JAX below computes it in float32 by default")
        if self.library == "torch" and spec["op"] in ("matmul", "dense"):
            raise Unsupported("dtype=float64: Keras multiplies matrices in float32 on PyTorch")

    def chain(self, specs, operands):
        """A model's layers, called eagerly or traced as one."""
        for spec in specs:
            self._check(spec)
        first = dict(specs[0], in_channels=tensorflow_chain.channels(specs[0]))
        return keras_chain.Chain(
            *(self.keras, specs, operands),
            *(lambda spec: layers(self.keras, spec), self._wrapped, first),
        )

    def _wrapped(self, run, spec):
        if self.library == "jax":
            return lambda x: run(x).block_until_ready()
        if self.switches.get("mode") != "graph" and self.switches.get("xla") != "1":
            return run
        traced = {}  # by rank: a product may be of one matrix or of a stack of them

        def call(x):
            rank = len(x.shape)
            if rank not in traced:
                traced[rank] = self._traced(run, spec, rank)
            return traced[rank](x)

        return call

    def _traced(self, run, spec, rank):
        """A tf.function for all sizes of that many dimensions."""
        compiled = True if self.switches.get("xla") == "1" else None
        shape = (None,) * (rank - 1) + (spec["in_channels"],)
        signature = [self.tf.TensorSpec(shape, getattr(self.tf, spec["dtype"]))]
        return self.tf.function(run, input_signature=signature, jit_compile=compiled)
