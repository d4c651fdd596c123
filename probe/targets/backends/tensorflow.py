"""TensorFlow as its users call it: ``tf.nn``, eager from 2.0 on, fed placeholders before.

Explicit padding goes to the operator where it takes it (conv2d, depthwise_conv2d without dilation,
the maximum of two axes), and through ``tf.pad`` elsewhere. The bias is ``tf.nn.bias_add`` after the
operator. A matrix takes the kernel ``MatMul``, a stack of them (a batch of more than one)
``BatchMatMulV2``, as users' arrays of two and three dimensions do.

A graph is the function ``traced`` in the lines: a tf.function whose sizes are open, so that there
is one trace for all lengths, or before 2.0 the graph of a session. Its input is always fed: with a
constant one it would be folded before oneDNN's rewrite. Weights are arguments
(``weights=constant``: constants of the graph).

How TensorFlow is started, what it says of itself and what its errors say is Keras' too.
"""

import re

from probe.case.geometry import BY_SIZE
from probe.case.operation import operand_names, operation_of_spec, windows_of_spec
from probe.targets.backends.contract import (
    ONEDNN_KEY,
    Key,
    PoolingLibrary,
    Unavailable,
    Unsupported,
    composed_pool,
    isa_variables,
    pool_kind,
)
from probe.targets.backends.source import (
    PRODUCT_OPS,
    Text,
    Writing,
    assignment,
    keywords,
    left_expression,
    major_minor,
    number_text,
    one_or_all,
    result_expression,
    right_expression,
    straight,
)

# Places in a graph, operator names and colours: what an error's line holds beside its message.
NOISE = re.compile(r"\[\[.*?\]\]|{{.*?}}|\[Op:.*?\]|\x1b\[\d+m|\s+name:\s*$|^\s*\w+Error: ")
# Errors that tell where before what.
HEADINGS = ("in user code", "Graph execution error")

KEYS = {
    "onednn": Key(
        ("0", "1"),
        "TensorFlow's own choice: 1 from 2.9 on x86 with VNNI, AVX512_BF16 or AMX",
        "1: oneDNN's operators, 0: TensorFlow's own",
    ),
    "contraction": Key(
        ("0", "1"), "1", "1: oneDNN's sgemm inside Eigen's matrix products, 0: Eigen's own"
    ),
    "isa": ONEDNN_KEY,
    "threads": Key(None, "one per core", "threads within an operator; one operator at a time"),
    "mode": Key(
        ("eager", "graph"),
        "eager; graph before 2.0, with xla=1 and with weights=constant",
        "graph: a tf.function, or a session before 2.0",
    ),
    "xla": Key(("0", "1"), "0", "a tf.function with jit_compile"),
    "weights": Key(
        ("argument", "constant"), "argument", "constant: part of the graph, one graph for each"
    ),
    "deterministic": Key(("0", "1"), "0", "op determinism (2.9 on; TF_DETERMINISTIC_OPS before)"),
    "algorithm": Key(
        ("operator", "elementwise"),
        "operator",
        "elementwise: a multiplication and an addition for each product (probe.stable)",
    ),
}

# Those of every target that runs on TensorFlow; ``keras`` has them too.
SWITCHES = {
    name: KEYS[name] for name in ("onednn", "contraction", "isa", "threads", "deterministic")
}


# Any of these turns oneDNN on by default, under Linux (`DefaultOneDnnPolicy` in TensorFlow's
# core/util/port.cc). Of ARM it is the model, Neoverse V1, which no flag says.
ONEDNN_FLAGS = ("avx512_vnni", "avx512_bf16", "avx_vnni", "amx_tile", "amx_int8", "amx_bf16")


class TensorFlow(Writing):
    """tf.nn, one process a target."""

    name = "tensorflow"
    distributions = ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tf-nightly")
    module = "tensorflow"
    keys = KEYS
    devices = ("cpu", "gpu:N")
    doc = "tf.nn, eager from 2.0 on"
    suggestions = (
        *(",onednn=0", ",onednn=0,contraction=0", ",onednn=0,threads=1", ",onednn=1"),
        *(",isa=sse41", ",isa=avx2", ",isa=avx512_core", ",isa=avx512_core_amx"),
        *(",threads=1", ",threads=2", ",mode=graph", ",xla=1", ",weights=constant"),
        *(",deterministic=1", ",algorithm=elementwise", "@gpu:0", "@gpu:0,deterministic=1"),
    )
    undilated = ("max", "avg")
    title = "TensorFlow"
    version_text = "tf.__version__"
    imports = ("import tensorflow as tf",)
    modules = ("tensorflow",)

    @classmethod
    def conflict(cls, switches):
        """Eager operators are neither compiled nor part of a graph."""
        if switches.get("mode") != "eager":
            return ()
        for key, value in (("xla", "1"), ("weights", "constant")):
            if switches.get(key) == value:
                return (key, f"{value} needs a graph, and mode=eager has none", "leave out mode")
        return ()

    @classmethod
    def unneeded(cls, switches):
        """Keras, which registers its classes for saved models, JAX, which tf.lite converts, and
        SciPy, whose sparse matrices its former Keras takes: half of the processor time of
        ``import tensorflow``."""
        return ("keras", "jax", "scipy")

    @classmethod
    def environment(cls, switches, device):
        return tensorflow_variables(switches, device)

    @classmethod
    def defaults_on(cls, version, flags):
        if "asimd" in flags:
            return {}
        on = major_minor(version) >= (2, 9) and not flags.isdisjoint(ONEDNN_FLAGS)
        return {"onednn": "1" if on else "0"}

    def start(self, switches, device):
        import tensorflow as tf

        if major_minor(tf.__version__) >= (2, 0):
            require_gpu(tf, device)
        elif switches.get("mode") == "eager" and not hasattr(tf, "enable_eager_execution"):
            # which is from 1.7 on
            why = f"TensorFlow {tf.__version__} has no eager mode; leave out mode=eager"
            raise Unavailable(why)
        self.refusals, self.exhausted = refusals(tf), (tf.errors.ResourceExhaustedError,)
        self.opened(switches, device, tf.__version__)
        return self.facts(mode=self.mode(), **tensorflow_facts(tf))

    def setup(self):
        return setup_lines(self.switches, self.device, self.version)

    def mode(self):
        """How lines run: ``eager``, ``graph`` (a tf.function) or ``session``."""
        switches = self.switches
        if self.release() < (2, 0) and switches.get("mode") != "eager":
            return "session"
        graph = switches.get("mode") == "graph" or switches.get("weights") == "constant"
        return "graph" if graph or switches.get("xla") == "1" else "eager"

    def said(self, error):
        return error_line(error)

    def stable(self, spec, accumulate=None):
        if operation_of_spec(spec).transposed:
            raise Unsupported(f"op={spec['op']}: the prefix-stable operator is a convolution")
        return self.operator(spec if pool_kind(spec) else dict(spec, stable=accumulate))

    def emit(self, layer, shapes):
        source, mode = straight(self, layer, shapes), self.mode()
        if mode != "eager":
            write = self.in_session if mode == "session" else self.in_function
            source = write(source, layer, shapes)
        if "stable" in layer:
            names = "tensorflow_conv as conv, tensorflow_dense as dense"
            line = f"from probe.sizes.stable import {names}"
            source = source._replace(make=(line,) + source.make)
        if self.device.startswith("gpu") and mode != "session" and self.release() >= (2, 12):
            source = source._replace(run=source.run + ("tf.test.experimental.sync_devices()",))
        return source

    @property
    def constant(self):
        return self.switches.get("weights") == "constant"

    def in_function(self, source, layer, shapes):
        """The Source whose ``run`` calls a tf.function with the lines of ``source``."""
        dtype, arguments = layer["dtype"], ["x"]
        if not self.constant:
            arguments += operand_names(layer)
        specs = [f"tf.TensorSpec({shape}, tf.{dtype})" for shape in self.fed(layer, shapes)]
        options = f"input_signature=[{', '.join(specs[: len(arguments)])}]"
        if self.switches.get("xla") == "1":
            word = "jit_compile" if self.release() >= (2, 5) else "experimental_compile"
            options += f", {word}=True"
        lines = traced_function(arguments, source.run, f"@tf.function({options})")
        run = (f"y = traced({', '.join(arguments)})",)
        if not self.constant:
            return source._replace(make=lines, run=run)
        return source._replace(load=source.load + lines, run=run)

    def in_session(self, source, layer, shapes):
        """The Source whose ``run`` calls a session of a graph with the lines of ``source``."""
        names = () if self.constant else operand_names(layer)
        arguments, body = ["x", *names], source.run
        dtype = layer["dtype"]
        if dtype == "bfloat16":  # fed and fetched as float32
            casts = tuple(f"{name} = tf.cast({name}, tf.bfloat16)" for name in arguments)
            body, dtype = casts + body + ("y = tf.cast(y, tf.float32)",), "float32"
        fed = [f"tf.placeholder(tf.{dtype}, {shape})" for shape in self.fed(layer, shapes)]
        where = self.device if ":" in self.device else f"{self.device}:0"
        lines = traced_function(arguments, body)
        lines += (
            f'with tf.Graph().as_default(), tf.device("/{where}"):',
            f"    fed = [{', '.join(fed[: len(arguments)])}]",
        )
        if self.release() >= (1, 2):
            session = "tf.Session(config=config).make_callable(traced(*fed), fed)"
            lines += (f"    call = {session}",)
            run = (f"y = call({', '.join(arguments)})",)
        else:
            lines += ("    outputs, session = traced(*fed), tf.Session(config=config)",)
            run = (f"y = session.run(outputs, dict(zip(fed, [{', '.join(arguments)}])))",)
        if self.constant:
            return source._replace(load=source.load + lines, run=run)
        return source._replace(make=lines, run=run)

    def fed(self, layer, shapes):
        """Shapes of the inputs and of the operands as texts; batch and sizes are open."""
        axes = shapes.rank + 2
        if self.flat(layer):
            axes -= left_expression(layer, shapes).count("0")
        first = (None,) * (axes - 1) + (layer["in_channels"],)
        names = operand_names(layer)
        return list(map(str, [first, *(self.operand_shape(layer, n, shapes.rank) for n in names)]))

    def operand_shape(self, layer, name, rank):
        """The shape of an operand as the call takes it, with None for what is open."""
        if name != "w":
            return (layer["filters"],)
        channels, filters = layer["in_channels"], layer["filters"]
        if self.flat(layer):
            vector = layer["op"] == "dot" and filters == 1
            return (channels,) if vector else (channels, filters)
        if self.multiplied(layer):
            return tuple(layer["kernel"]) + (channels, filters // channels)
        if operation_of_spec(layer).transposed:
            return tuple(layer["kernel"]) + (filters // layer["groups"], channels)
        return tuple(layer["kernel"]) + (channels // layer["groups"], filters)

    def by_hand(self, layer):
        """Whether lines compute a layer by elementwise operations."""
        chosen = self.switches.get("algorithm") == "elementwise" and "kernel" in layer
        return "stable" in layer or (chosen and not pool_kind(layer))

    def flat(self, layer):
        """Whether a layer is a product whose arrays are handed over as matrices and vectors."""
        return layer["op"] in PRODUCT_OPS and not self.by_hand(layer)

    def multiplied(self, layer):
        """Whether a layer's weights are (*kernel, channels, multiplier)."""
        return layer["op"] == "depthwise_conv2d" and not self.by_hand(layer)

    def enter(self, layer, shapes):
        x = left_expression(layer, shapes) if self.flat(layer) else "x"
        return assignment("x", x if self.mode() == "session" else tensor_expression(x, layer))

    def operand(self, layer, name):
        array = name
        if name == "w" and self.flat(layer):
            array = right_expression(layer, name)
        elif name == "w" and operation_of_spec(layer).transposed:
            array = "np.swapaxes(w, -1, -2)"
            groups = layer["groups"]
            if groups > 1:
                shape = self.operand_shape(layer, name, len(layer["kernel"]))
                split = (*layer["kernel"], layer["in_channels"] // groups, groups, shape[-2])
                array = f"np.swapaxes(w.reshape({split}), -1, -3).reshape({shape})"
        elif name == "w" and self.multiplied(layer):
            array = f"w.reshape({self.operand_shape(layer, name, 2)})"
        fed = self.constant or self.mode() == "session"
        return assignment(name, array if fed else tensor_expression(array, layer))

    def leave(self, layer, shapes):
        array = "y"
        if self.mode() != "session":
            narrow = layer["dtype"] == "bfloat16"
            array = ("tf.cast(y, tf.float32)" if narrow else "y") + ".numpy()"
        return result_expression(layer, array, shapes) if self.flat(layer) else array

    def lines(self, layer, operands, shapes):
        if self.constant:
            operands = {name: tensor_expression(at, layer) for name, at in operands.items()}
        if pool_kind(layer):
            text = self.pooled(layer, "x", shapes)
            total, quotient, count = text.partition(" / ")
            return [f"y = {total}", f"y = y / {count}"] if quotient else [f"y = {text}"]
        if "stable" in layer:
            return [f"y = {stable(layer, 'x', operands)}"]
        if self.flat(layer):
            return self.product(layer, operands, shapes)
        if operation_of_spec(layer).transposed:
            if self.by_hand(layer):
                raise Unsupported(f"op={layer['op']}: algorithm=elementwise is for convolutions")
            lines = transposed_lines(layer, operands["w"])
        elif self.by_hand(layer):
            lines = by_hand(layer, operands, shapes.around, self.mode() != "eager")
        else:
            lines = self.convolution(layer, operands["w"])
        if "b" in operands:
            lines.append(f"y = tf.nn.bias_add(y, {operands['b']})")
        return lines

    def product(self, layer, operands, shapes):
        op, w, b = layer["op"], operands.get("w"), operands.get("b")
        if op == "sum":
            return ["y = tf.reduce_sum(x, 2)"]
        add = [f"y = tf.nn.bias_add(y, {b})"] * bool(b)
        if self.mode() == "session" and op == "dot":
            raise Unsupported("op=dot: not in TensorFlow before 2.0 here; use matmul")
        if self.mode() == "session" and op == "matmul" and shapes.stacked:
            raise Unsupported(
                "batch: TensorFlow before 2.0 can't multiply a stack of matrices by one"
            )
        if op != "dot":
            return [f"y = tf.matmul(x, {w})", *add]
        written = left_expression(layer, shapes) + right_expression(layer, "w")
        if b and written.count("0") > 2:  # of a vector
            add = [f"y = y + {b}"]
        return [f"y = tf.tensordot(x, {w}, 1)", *add]

    def convolution(self, layer, w):
        """Lines of a ``tf.nn`` convolution, behind ``tf.pad`` where it takes no padding itself."""
        op, padding, release = layer["op"], layer["padding"], self.release()
        stride, dilation = list(layer["stride"]), list(layer["dilation"])
        dilated = set(dilation) != {1}
        if op == "conv1d":
            words, more = {"stride": stride[0]}, {"dilations": dilation[0]}
        elif op == "depthwise_conv2d":
            if dilated and set(stride) != {1}:
                both = "tf.nn.depthwise_conv2d has strides or dilations, and warns about both"
                raise Unsupported(both)
            words = {"strides": [1] + stride + [1]}
            more = {"rate" if release < (2, 0) else "dilations": dilation}
        elif (op == "conv2d" and release >= (2, 0)) or (op == "conv3d" and dilated):
            words, more = {"strides": stride}, {"dilations": dilation}
        else:  # releases up to 1.5 do not know the word for dilations
            words, more = {"strides": [1] + stride + [1]}, {"dilations": [1] + dilation + [1]}
        lines, native = [], op == "conv2d" and release >= (2, 0)
        native = native or (op == "depthwise_conv2d" and not dilated and release >= (2, 4))
        if isinstance(padding, str):
            words["padding"] = f'"{padding.upper()}"'
        elif native:
            words["padding"] = outside(padding)
        else:
            lines, words["padding"] = [f"x = {padded('x', padding)}"], '"VALID"'
        # tf.nn.conv3d refuses on CPUs; this rearranges, as Keras
        if op == "conv3d" and dilated:
            op = "convolution"
        words.update(more if dilated else {})
        return lines + [f"y = tf.nn.{op}(x, {w}, {keywords(words)})"]

    def pooled(self, layer, x, shapes):
        """The expression of ``tf.nn``'s pooling: SAME, VALID, or ``tf.pad`` before it."""
        kind, rank, padding = pool_kind(layer), len(layer["kernel"]), layer["padding"]
        name = f"tf.nn.{kind}_pool{rank}d"
        sizes = [list(layer["kernel"]), list(layer["stride"])]
        if self.release() >= (2, 0):
            windows = ", ".join(map(one_or_all, sizes))
        else:  # where the operator of two axes has this name
            name = f"tf.nn.{kind}_pool" if rank == 2 else name
            windows = ", ".join(str([1] + size + [1]) for size in sizes)
        if padding in ("valid", "same") and not layer["ceil_mode"]:
            if padding == "same" and layer["pad_with"] == "zeros":
                why = "SAME of tf.nn's pooling leaves padding out: use explicit padding"
                raise Unsupported(why)
            return f'{name}({x}, {windows}, padding="{padding.upper()}")'
        pads_itself = name == "tf.nn.max_pool2d" and self.release() >= (2, 4)

        def native(x, spans):
            if not pads_itself or layer["pad_with"] == "zeros" or any(s.beyond for s in spans):
                return None
            pairs = outside([(span.before, span.after) for span in spans])
            return f"{name}({x}, {windows}, padding={pairs})"

        def whole(x):
            return Text(f'{name}({x}, {windows}, padding="VALID")')

        library = PoolingLibrary(padded, whole, "tf.ones_like({})".format, native)
        sizes_known = self.mode() == "eager" and (layer["ceil_mode"] or padding in BY_SIZE)
        spatial = shapes.spatial if sizes_known else [None] * rank
        return composed_pool(layer, library, spatial, x)


def transposed_lines(layer, w):
    """A transposed convolution of ``tf.nn``, which is told how many outputs there are; explicit
    padding is trimmed from them."""
    padding, sizes, kept = layer["padding"], [], []
    windows = windows_of_spec(layer)
    for axis, extent in enumerate(windows.extents):
        before, after = windows.around(axis, 1)
        explicit = padding not in ("valid", "same")
        uncut = extent - min(after, 0) - (0 if explicit else before + max(after, 0))
        times = f" * {layer['stride'][axis]}" if layer["stride"][axis] > 1 else ""
        more = uncut - layer["stride"][axis]
        added = f" {'+' if more > 0 else '-'} {abs(more)}" if more else ""
        sizes.append(f"tf.shape(x)[{axis + 1}]{times}{added}")
        kept.append(f"{before or ''}:{-max(after, 0) or ''}" if explicit else ":")
    outputs = f"[tf.shape(x)[0], {', '.join(sizes)}, {layer['filters']}]"
    words = {"strides": one_or_all(layer["stride"])}
    words["padding"] = f'"{"VALID" if explicit else padding.upper()}"'
    if set(layer["dilation"]) != {1}:
        words["dilations"] = one_or_all(layer["dilation"])
    lines = [f"y = tf.nn.{layer['op']}(x, {w}, {outputs}, {keywords(words)})"]
    return lines + [f"y = y[:, {', '.join(kept)}]"] * (set(kept) != {":"})


def traced_function(names, lines, *decorators):
    """The function ``traced`` of these names whose lines end with the assignment of ``y``."""
    *body, last = lines
    body += ["return " + last[4:]] if last.startswith("y = ") else [last, "return y"]
    head = f"def traced({', '.join(names)}):"
    return ("", *decorators, head, *("    " + line for line in body), "")


def tensor_expression(array, layer):
    if layer["dtype"] == "bfloat16":
        return f"tf.cast(tf.constant({array}), tf.bfloat16)"
    return f"tf.constant({array})"


def outside(pairs):
    """Pairs of the spatial axes, with those of the batch and the channels."""
    return [[0, 0]] + [list(pair) for pair in pairs] + [[0, 0]]


def padded(x, pairs, value=0.0):
    fill = f", constant_values={number_text(value)}" if value else ""
    return f"tf.pad({x}, {outside(pairs)}{fill})"


def stable(layer, x, arrays):
    w = arrays.get("w", f"tf.ones([1, {layer['in_channels']}, 1], {x}.dtype)")  # of a sum
    name, words = "dense", {}
    if layer["op"] != "dense":
        name, words = "conv", {n: layer[n] for n in ("stride", "dilation", "groups", "padding")}
    words["accumulate"] = layer["stable"]
    operands = ", ".join([x, w] + [arrays.get("b")] * ("b" in arrays))
    return f"{name}({operands}, {keywords({n: repr(value) for n, value in words.items()})})"


def by_hand(layer, operands, pairs, graph):
    """Lines from ``x`` to ``y``: a multiplication and an addition for each product.

    Products are added row by row of the window, channels innermost, as ``probe.stable`` does, so no
    length moves a bit. Channels of a group are split, groups have an axis of their own. In a graph
    products are subtracted: grappler makes one AddN of a chain of additions.
    """
    groups, filters, windows = layer["groups"], layer["filters"], windows_of_spec(layer)
    depth, lines = layer["in_channels"] // groups, []
    if any(map(any, pairs)):
        lines.append(f"x = {padded('x', pairs)}")
    if groups > 1:
        lines.append(f"x = tf.reshape(x, tf.concat([tf.shape(x)[:-1], [{groups}, {depth}]], 0))")
    letters, parts = "ijk"[: len(layer["kernel"])], []
    for letter, extent, stride in zip(letters, windows.extents, layer["stride"]):
        part = f"{letter} : {letter} - {extent - 1} or None" if extent > 1 else ":"
        parts.append(part + (f" : {stride}" if stride > 1 else ""))
    seen = f"x[:, {', '.join(parts)}]" if set(parts) - {":"} else "x"
    columns = [groups, filters // groups] if groups > 1 else [filters]
    starts = [
        tuple(at * step for at, step in zip(place, layer["dilation"])) for place in windows.places()
    ]
    # an axis along which the kernel has one position takes no slice
    used = [letter if n > 1 else f"_{letter}" for letter, n in zip(letters, windows.extents)]
    names = f"({', '.join(used)})"
    if len(letters) == 1:
        starts, names = [start for (start,) in starts], letters
    w = operands.get("w", f"tf.ones([{depth}, 1], x.dtype)")  # of a sum
    shape = [len(starts) * depth] + columns
    lines += [f"weights = tf.unstack(tf.reshape({w}, {shape}))", "y = None"]
    outer = len(starts) > 1
    if outer:
        lines.append(f"for n, {names} in enumerate({starts}):")
    inner, index = "    " * outer, "n"
    if depth > 1:
        lines.append(f"{inner}for c, part in enumerate(tf.split({seen}, {depth}, axis=-1)):")
        inner, seen, index = inner + "    ", "part", f"{depth} * n + c" if outer else "c"
    weight = f"weights[{index if outer or depth > 1 else 0}]"
    if graph:
        weight = f"{weight} if y is None else -{weight}"
        lines.append(f"{inner}# subtracted, since grappler makes one AddN of a chain of additions")
    lines.append(f"{inner}product = tf.multiply({seen}, {weight})")
    joined = f"tf.{'subtract' if graph else 'add'}(y, product)"
    lines.append(f"{inner}y = product if y is None else {joined}")
    if groups > 1:
        lines.append(f"y = tf.reshape(y, tf.concat([tf.shape(y)[:-2], [{filters}]], 0))")
    return lines


def tensorflow_variables(switches, device):
    """Variables of SWITCHES, and those that keep the log short. CPU targets see no GPU."""
    variables = {"TF_CPP_MIN_LOG_LEVEL": "3", "ABSL_MIN_LOG_LEVEL": "3"}
    variables.update(isa_variables(switches))
    if "onednn" in switches:
        variables["TF_ENABLE_ONEDNN_OPTS"] = switches["onednn"]
    if "contraction" in switches:
        variables["TENSORFLOW_USE_CUSTOM_CONTRACTION_KERNEL"] = switches["contraction"]
    if switches.get("deterministic") == "1":
        variables["TF_DETERMINISTIC_OPS"] = "1"
    if not device.startswith("gpu"):
        variables["CUDA_VISIBLE_DEVICES"] = "-1"
    return variables


def setup_lines(switches, device, version):
    """Lines that apply threads, determinism and device to a TensorFlow that has done nothing yet.

    ``version``: its text. Before 2.0 they make ``config``, the ConfigProto of sessions.
    """
    lines, threads = [], switches.get("threads")
    if major_minor(version) < (2, 0):
        lines.append("config = tf.ConfigProto(allow_soft_placement=True)")
        if threads:
            lines.append(f"config.intra_op_parallelism_threads = {threads}")
            lines.append("config.inter_op_parallelism_threads = 1")
        if switches.get("xla") == "1":
            level = "config.graph_options.optimizer_options.global_jit_level"
            lines.append(f"{level} = tf.OptimizerOptions.ON_1")
        if switches.get("mode") == "eager":
            lines.append("tf.enable_eager_execution(config=config)")
        return tuple(lines)
    if threads:
        lines.append(f"tf.config.threading.set_intra_op_parallelism_threads({threads})")
        lines.append("tf.config.threading.set_inter_op_parallelism_threads(1)")
    if switches.get("deterministic") == "1" and major_minor(version) >= (2, 9):
        lines += ["tf.random.set_seed(1)", "tf.config.experimental.enable_op_determinism()"]
    if device.startswith("gpu"):
        gpu = f'tf.config.list_physical_devices("GPU")[{device.partition(":")[2]}]'
        lines.append(f'tf.config.set_visible_devices({gpu}, "GPU")')
    return tuple(lines)


def require_gpu(tf, device):
    if device.startswith("gpu"):
        number, count = int(device.split(":")[1]), len(tf.config.list_physical_devices("GPU"))
        if number >= count:
            raise Unavailable(f"TensorFlow sees {count} GPUs here, so there is no {device}")


def tensorflow_facts(tf):
    """What to publish about a started TensorFlow; ``onednn`` is None where it doesn't say."""
    try:
        from tensorflow.python.framework import test_util

        rewritten = bool(test_util.IsMklEnabled())
    except (ImportError, AttributeError):
        rewritten = None
    build, compiler = (
        getattr(tf, name, "") for name in ("__git_version__", "__compiler_version__")
    )
    return {"build": str(build), "compiler": str(compiler), "onednn": rewritten}


def refusals(tf):
    """Exceptions by which TensorFlow refuses an operator, or a release does not have it."""
    errors = tf.errors
    refused = (errors.UnimplementedError, errors.InvalidArgumentError, errors.NotFoundError)
    return refused + (NotImplementedError, ValueError, TypeError, AttributeError)


def error_line(error):
    """What a library's error says, in one line of at most 300 characters.

    That is its first line after Keras' heading, and its last one where a call stack is in between.
    """
    text = str(error).partition("Original stack trace")[0]
    lines = [NOISE.sub("", line).strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("Exception encountered when")]
    if not lines:
        return type(error).__name__
    return lines[-1 if lines[0].startswith(HEADINGS) else 0][:300]
