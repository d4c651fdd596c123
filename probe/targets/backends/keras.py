"""Runs Keras 3 layers on tensors as a model calls them, on TensorFlow by default.

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

from probe.case.geometry import BY_SIZE
from probe.case.operation import OPERATIONS, operation_of_spec
from probe.targets.backends import tensorflow as below
from probe.targets.backends.contract import (
    Key,
    PoolingLibrary,
    Unavailable,
    Unsupported,
    composed_pool,
    pool_kind,
)
from probe.targets.backends.source import (
    Text,
    Writing,
    defined,
    keywords,
    left_expression,
    number_text,
    one_or_all,
    result_expression,
    right_expression,
    straight,
)

BACKENDS = ("tensorflow", "jax", "torch")

KEYS = dict(
    below.SWITCHES,
    mode=Key(("eager", "graph"), "eager; graph with xla=1", "graph: the layers in a tf.function"),
    xla=Key(("0", "1"), "0", "the layers in a tf.function with jit_compile"),
    backend=Key(BACKENDS, "tensorflow", "the library below Keras"),
)


class Keras(Writing):
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
    operations = tuple(name for name in OPERATIONS if name not in ("dot", "sum"))
    undilated = ("max", "avg")
    title = "Keras"
    version_text = "keras.__version__"
    holds_weights = True

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
        library = switches.get("backend", "tensorflow")
        return ((library, library),)

    @classmethod
    def unneeded(cls, switches):
        """What Keras draws and reads tables with, and JAX where TensorFlow is below."""
        without = ("jax",) * (switches.get("backend") != "jax")
        return ("matplotlib", "pandas", "cv2") + without

    @classmethod
    def defaults_on(cls, version, flags):
        # Keras 3 came with TensorFlow 2.16: its policy holds for whatever release is below
        return below.TensorFlow.defaults_on("2.16", flags)

    @classmethod
    def environment(cls, switches, device):
        """Keras' choice of library, and TensorFlow's variables; PyTorch's threads don't spin."""
        library = switches.get("backend", "tensorflow")
        variables = below.tensorflow_variables(switches, device)
        if library == "torch":
            variables["OMP_WAIT_POLICY"] = "PASSIVE"
        if library == "jax" and device == "cpu":
            variables["JAX_PLATFORMS"] = "cpu"
        return dict(variables, KERAS_BACKEND=library)

    def described(self, switches, device, version):
        self.library = switches.get("backend", "tensorflow")
        self.graph = switches.get("mode") == "graph" or switches.get("xla") == "1"
        more = ("import tensorflow as tf",) if self.library == "tensorflow" else ()
        self.imports, self.modules = ("import keras",) + more, ("keras", self.library)
        return Writing.described(self, switches, device, version)

    def start(self, switches, device):
        """Imports Keras, which imports the library below; its memory is channels last here."""
        library = switches.get("backend", "tensorflow")
        self.refusals = (ValueError, TypeError, NotImplementedError, RuntimeError)
        if library == "tensorflow":
            import tensorflow as tf

            below.require_gpu(tf, device)
            self.refusals = below.refusals(tf)
            self.exhausted = (MemoryError, tf.errors.ResourceExhaustedError)
        elif device != "cpu":
            raise Unavailable(f"keras,backend={library} runs on the CPU alone here")
        import keras

        if not hasattr(keras, "ops"):
            raise Unavailable(f"Keras {keras.__version__} is older than 3; use tensorflow instead")
        self.opened(switches, device, keras.__version__)
        # whatever a user's keras.json says
        keras.config.set_image_data_format("channels_last")
        facts = below.tensorflow_facts(tf) if library == "tensorflow" else {}
        return self.facts(below=f"{library} {__import__(library).__version__}", **facts)

    def setup(self):
        if self.library != "tensorflow":
            return ()
        # Keras 3 came with TensorFlow 2.16: its words hold for whatever release is below
        return below.setup_lines(self.switches, self.device, "2.16")

    def said(self, error):
        return below.error_line(error)

    def emit(self, layer, shapes):
        source = straight(self, layer, shapes)._replace(make=layer_definitions(layer))
        # JAX hands back a result that is still being computed: what is timed waits for it
        if self.library == "jax":
            return source._replace(run=source.run + ("y.block_until_ready()",))
        if not self.graph:
            return source
        traced = (f"@tf.function({self.traced(layer, shapes)})",)
        traced += defined("model", ["x"], source.run)
        run = ("y = model(x)",)
        return source._replace(make=source.make + ("",) + traced, run=run)

    def traced(self, layer, shapes):
        """The arguments of ``tf.function``: one trace for all sizes."""
        axes = shapes.rank + 2 - left_expression(layer, shapes).count("0")
        shape = (None,) * (axes - 1) + (layer["in_channels"],)
        compiled = ", jit_compile=True" if self.switches.get("xla") == "1" else ""
        return f"input_signature=[tf.TensorSpec({shape}, tf.{layer['dtype']})]{compiled}"

    def shown(self, layer, shapes):
        """With each layer where it is called."""
        text = "\n".join(straight(self, layer, shapes).run)
        for line in layer_definitions(layer):
            name, _, made = line.partition(" = ")
            text = text.replace(name + "(", made + "(")
        return tuple(text.splitlines())

    def check(self, layer):
        """Of float64 Keras 3.15 casts some to float32 and says nothing: Unsupported."""
        Writing.check(self, layer)
        if layer["dtype"] != "float64":
            return
        if self.library == "jax":
            raise Unsupported("dtype=float64: JAX below computes it in float32 by default")
        if self.library == "torch" and layer["op"] in ("matmul", "dense"):
            raise Unsupported("dtype=float64: Keras multiplies matrices in float32 on PyTorch")

    def enter(self, layer, shapes):
        return [f"x = {self.tensor(left_expression(layer, shapes), layer)}"]

    def operand(self, layer, name):
        if name == "b":
            return ["layer.bias.assign(b)"]
        w = right_expression(layer, "w")
        if layer["op"] == "depthwise_conv2d":
            channels = layer["in_channels"]
            w += f".reshape({(*layer['kernel'], channels, layer['filters'] // channels)})"
        if operation_of_spec(layer).transposed:
            w = "np.swapaxes(w, -1, -2)"
        return [f"layer.kernel.assign({w})"]

    def leave(self, layer, shapes):
        y = 'keras.ops.cast(y, "float32")' if layer["dtype"] == "bfloat16" else "y"
        return result_expression(layer, f"keras.ops.convert_to_numpy({y})", shapes)

    def tensor(self, array, layer):
        """A tensor of an array; JAX and PyTorch share an array's memory, so they get a copy."""
        copied = "" if self.library == "tensorflow" else ".copy()"
        kind = ', "bfloat16"' if layer["dtype"] == "bfloat16" else ""
        return f"keras.ops.convert_to_tensor({array}{copied}{kind})"

    def lines(self, layer, operands, shapes):
        if pool_kind(layer):
            return [f"y = {self.pooled(layer, 'x', shapes)}"]
        if isinstance(layer["padding"], str):
            return ["y = layer(x)"]
        if operation_of_spec(layer).transposed:
            return ["y = crop(layer(x))"]
        return ["x = zeros(x)", "y = layer(x)"]

    def pooled(self, layer, x, shapes):
        """The expression of a pooling layer: ``valid``, ``same``, or ``keras.ops.pad`` before."""
        padding = layer["padding"]
        if padding in ("valid", "same") and not layer["ceil_mode"]:
            return f"pool({x})"
        library = PoolingLibrary(
            *(padded, lambda x: Text(f"pool({x})"), "keras.ops.ones_like({})".format),
            native=lambda x, spans: None,
        )
        sizes_known = not self.graph and (layer["ceil_mode"] or padding in BY_SIZE)
        sizes = shapes.spatial if sizes_known else [None] * len(layer["kernel"])
        return composed_pool(layer, library, sizes, x)


def layer_definitions(layer):
    """Lines that make and build ``layer`` and, for explicit padding, ``zeros`` or ``crop``; of a
    pool ``pool``."""
    if pool_kind(layer):
        return (f"pool = {pooling_layer(layer)}",)
    op, dtype, lines = layer["op"], typed(layer), []
    words = {"use_bias": str(layer["bias"])}
    if op in ("matmul", "dense"):
        dense = f"keras.layers.Dense({layer['filters']}, {keywords(dict(words, **dtype))})"
        shape = (None, layer["in_channels"])
        return (f"layer = {dense}", f"layer.build({shape})")
    transposed = operation_of_spec(layer).transposed
    rank, padding, more = len(layer["kernel"]), layer["padding"], []
    if not isinstance(padding, str):
        pairs, padding = tuple(tuple(pair) for pair in padding), "valid"
        name = "zeros = keras.layers.ZeroPadding"
        if transposed:
            name, more = "crop = keras.layers.Cropping", [max(-after, 0) for _, after in pairs]
            pairs = tuple((before, max(after, 0)) for before, after in pairs)
        around = str(pairs[0] if rank == 1 else pairs) + f", {keywords(dtype)}" * bool(dtype)
        lines = [f"{name}{rank}D({around})"]
    steps = {"strides": one_or_all(layer["stride"]), "padding": f'"{padding}"'}
    if set(layer["dilation"]) != {1}:
        steps["dilation_rate"] = one_or_all(layer["dilation"])
    kernel = one_or_all(layer["kernel"])
    if op == "depthwise_conv2d":
        call = f"DepthwiseConv2D({kernel}"
        steps["depth_multiplier"] = str(layer["filters"] // layer["in_channels"])
    elif transposed:
        call = f"Conv{rank}DTranspose({layer['filters']}, {kernel}"
        if layer["groups"] > 1:
            raise Unsupported("groups: Keras' transposed convolutions have none")
        if more:
            steps["output_padding"] = one_or_all(more)
    else:
        call = f"Conv{rank}D({layer['filters']}, {kernel}"
        if layer["groups"] > 1:
            steps["groups"] = str(layer["groups"])
    steps.update(words, **dtype)
    shape = (None,) * (1 + rank) + (layer["in_channels"],)
    lines += [f"layer = keras.layers.{call}, {keywords(steps)})"]
    return (*lines, f"layer.build({shape})")


def pooling_layer(layer):
    """The expression of a pooling layer. Raises Unsupported where Keras has none."""
    name = {"max": "MaxPooling", "avg": "AveragePooling"}[pool_kind(layer)]
    name = f"keras.layers.{name}{len(layer['kernel'])}D"
    by_layer = layer["padding"] == "same" and not layer["ceil_mode"]
    if by_layer and layer["pad_with"] == "zeros":
        raise Unsupported("Keras' SAME pooling leaves padding out: use explicit padding")
    words = dict({"padding": '"same"' if by_layer else '"valid"'}, **typed(layer))
    sizes = f"{one_or_all(layer['kernel'])}, {one_or_all(layer['stride'])}"
    return f"{name}({sizes}, {keywords(words)})"


def typed(layer):
    """The word for a layer's dtype where it isn't Keras' default."""
    dtype = layer["dtype"]
    return {} if dtype == "float32" else {"dtype": f'"{dtype}"'}


def padded(x, pairs, value):
    """``keras.ops.pad`` along the spatial axes."""
    fill = f", constant_values={number_text(value)}" if value else ""
    return f"keras.ops.pad({x}, {[(0, 0), *(tuple(pair) for pair in pairs), (0, 0)]}{fill})"
