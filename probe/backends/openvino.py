"""Runs OpenVINO's CPU plugin (``ov.compile_model(model, "CPU")``) on its opsets, NCHW.

The sizes of batch and space are open (-1), so one compiled model serves every length. Weights and
bias are constants, as in users' models; ``weights=argument`` makes them parameters. On processors
with bfloat16 instructions the plugin computes float32 models in bfloat16 unless it is told
otherwise: that is what its users get, and ``precision=f32`` is what they write who don't want it.
float64 is refused, since the plugin would silently compute it in float32.
"""

from probe import activations
from probe.backends.contract import Key, Unsupported
from probe.backends.layers import extended_axis, pool_kind
from probe.backends.source import (
    PRODUCT_OPS,
    ChannelsFirstGraph,
    Writing,
    channels_first_axis,
    indented,
    input_names,
    number_text,
    straight,
    weight_sizes,
)

# Those that the plugin computes, and NumPy can hand over.
DTYPES = ("float32", "float16")
# OpenVINO's names of the conventions whose padding depends on the size.
AUTO_PAD = ("same_upper", "same_lower")

KEYS = {
    "precision": Key(
        ("f32", "bf16", "f16"),
        "bf16 where the processor has instructions for it, else f32",
        "INFERENCE_PRECISION_HINT: what float32 is computed in",
    ),
    "threads": Key(None, "one per physical core", "INFERENCE_NUM_THREADS"),
    "weights": Key(
        ("argument", "constant"), "constant", "constant: in the model; argument: its parameters"
    ),
}
# The properties that switches set.
PROPERTIES = {
    "precision": '"INFERENCE_PRECISION_HINT": "{}"',
    "threads": '"INFERENCE_NUM_THREADS": {}',
}

# Activations as expressions of ``x``; every other one is ``ops.name(x)``.
ACTIVATIONS = {
    "relu6": "ops.clamp({x}, 0.0, 6.0)",
    "leaky_relu": "ops.prelu({x}, np.array({alpha}, {dtype}))",
    "elu": "ops.elu({x}, {alpha})",
    "selu": "ops.selu({x}, np.array({slope}, {dtype}), np.array({scale}, {dtype}))",
    "softmax": "ops.softmax({x}, 1)",
    "hard_sigmoid": "ops.hsigmoid({x})",
    "gelu": 'ops.gelu({x}, "erf")',
    "silu": "ops.swish({x})",
}


class OpenVino(Writing):
    """openvino.compile_model for the CPU, one process a target."""

    name = "openvino"
    distributions = ("openvino",)
    module = "openvino"
    keys = KEYS
    doc = "OpenVINO's CPU plugin: a model of one operation, constant weights, NCHW"
    suggestions = (",precision=f32", ",precision=f32,threads=1", ",weights=argument")
    title = "OpenVINO"
    version_text = 'ov.__version__.partition("-")[0]'
    imports = ("import openvino as ov", "from openvino import opset16 as ops")
    modules = ("openvino",)

    def start(self, switches, device):
        import openvino

        self.refusals = (RuntimeError, TypeError)
        self.opened(switches, device, openvino.__version__.partition("-")[0])
        self.constant_weights = self.holds()
        able = openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        return self.facts(capability=", ".join(able))

    def holds(self):
        return self.switches.get("weights", "constant") == "constant"

    def check(self, program):
        dtype = program.steps[0].layer["dtype"]
        if dtype not in DTYPES:
            wide = "the CPU plugin computes it in float32"
            why = wide if dtype == "float64" else "NumPy lacks it"
            raise Unsupported("dtype=%s: %s" % (dtype, why))

    def emit(self, program, shapes):
        self.check(program)
        graph = OpenVINOGraph(program, shapes, self.holds())
        source = straight(graph, program, shapes, distinct=True)
        names, inputs = program.operands(), input_names(program)
        held, fed = (names, []) if self.holds() else ([], names)
        parameters = [graph.parameter(name, graph.sizes()) for name in inputs]
        parameters += [graph.parameter(name, graph.sizes_of(name)) for name in fed]
        arguments = ", ".join(inputs + fed)
        own = [name for name in PROPERTIES if name in self.switches]
        words = [PROPERTIES[name].format(self.switches[name]) for name in own]
        called = 'ov.Model([y], [%s]), "CPU"%s' % (
            arguments,
            ", {%s}" % ", ".join(words) if words else "",
        )
        network = [*parameters, *source.run, "return ov.compile_model(%s)" % called]
        make = ("", "def network(%s):" % ", ".join(held), *indented(network), "")
        model = ("model = network(%s)" % ", ".join(held),)
        return source._replace(
            make=make if held else make + model,
            load=source.load + (model if held else ()),
            run=("y = model(%s)[0]" % ("x" if arguments == "x" else "[%s]" % arguments),),
        )

    def shown(self, program, shapes):
        return straight(OpenVINOGraph(program, shapes, True), program, shapes, distinct=True).run

    def kernels(self, spec, shapes):
        """Returns the nodes of the compiled model, such as ``Convolution (brgconv_avx512_f32)``."""
        recorder = CompileRecorder(self.namespace["ov"])
        self.watched(spec, shapes, ov=recorder)
        nodes = [node.get_rt_info() for node in recorder.made.get_runtime_model().get_ordered_ops()]
        named = [
            [node[key].astype(str) for key in ("layerType", "primitiveType")] for node in nodes
        ]
        names = ["%s (%s)" % (kind, how) for kind, how in named if kind not in ("Const", "Input")]
        return {"runtime-model": names[:-1]}  # the last one is the output


class CompileRecorder:
    """Stands for ``openvino``; keeps the model that is compiled."""

    def __init__(self, ov):
        self.ov, self.Model = ov, ov.Model

    def compile_model(self, *arguments):
        self.made = self.ov.compile_model(*arguments)
        return self.made


class OpenVINOGraph(ChannelsFirstGraph):
    """A program as calls of an opset, channels first; see ``source.straight``.

    ``holds``: weights are arrays that become constants, else parameters.
    """

    def __init__(self, program, shapes, holds):
        ChannelsFirstGraph.__init__(self, program, shapes)
        self.holds, self.dtype = holds, "np." + program.steps[0].layer["dtype"]

    def parameter(self, name, sizes):
        """Returns the line of an input of the model; -1: an open size."""
        return "%s = ops.parameter(%s, %s)" % (name, sizes, self.dtype)

    def sizes(self):
        """Returns the sizes of x, all open but the channels; of several inputs these too."""
        if self.program.inputs > 1:
            return [-1] * (self.rank + 2)
        return self.sizes_of_x(-1, lambda axis: -1)

    def sizes_of(self, operand):
        """Returns the sizes of an operand as ``operand`` hands it over."""
        layer, name = self.named(operand)
        if name == "tail":
            return [-1] * (self.rank + 2)
        if name != "w":
            column = "kernel" not in layer or layer["op"] not in PRODUCT_OPS
            channels = layer["filters" if "kernel" in layer else "channels"]
            return [1, channels] + [1] * self.rank if column else [channels]
        return list(shape_of_weights(layer))

    def operand(self, layer, name, at):
        lines = ChannelsFirstGraph.operand(self, layer, name, at)
        if name == "w" and layer["groups"] > 1:
            lines.append("%s = %s.reshape(%s)" % (at, at, shape_of_weights(layer)))
        return lines

    def lines(self, layer, number, x, y, operands, shapes):
        """Returns lines from the values named ``x`` to ``y``."""
        op = layer["op"]
        if op in PRODUCT_OPS:
            return self.multiplied(layer, x[0], y, list(operands.values()))
        if pool_kind(layer):
            return self.pooled(layer, number, x[0], y)
        if "kernel" in layer:
            name = "group_convolution" if layer["groups"] > 1 else "convolution"
            words = [layer["stride"], *self.around(layer, number), layer["dilation"]]
            words += ['"%s"' % left for left in self.auto(layer)]
            call = "ops.%s(%s, %s, %s)" % (name, x[0], operands["w"], arguments_text(words))
            bias = ["%s = ops.add(%s, %s)" % (y, y, name) for name in list(operands.values())[1:]]
            return ["%s = %s" % (y, call)] + bias
        if op in ("add", "multiply"):
            return ["%s = ops.%s(%s)" % (y, op, ", ".join(x))]
        if op == "concat":
            axis = channels_first_axis(layer["axis"], self.rank)
            return ["%s = ops.concat([%s], %d)" % (y, ", ".join(x), axis)]
        if op == "product":
            left, right = (self.last(name) for name in x)
            product = "ops.matmul(%s, %s, False, %s)" % (left, right, bool(layer["transposed"]))
            return ["%s = %s" % (y, self.first(product))]
        return self.between(layer, x[0], y, operands)

    def multiplied(self, layer, x, y, operands):
        """A product or a sum; in a network it is over the channels, which come last for it."""
        if layer["op"] == "sum":
            return ["%s = ops.reduce_sum(%s, [%d], False)" % (y, x, self.rank + 1)]
        turned = layer["op"] == "dense"
        x = x if self.product else self.last(x)
        call = "ops.matmul(%s, %s, False, %s)" % (x, operands[0], turned)
        call = "ops.add(%s, %s)" % (call, operands[1]) if len(operands) > 1 else call
        return ["%s = %s" % (y, call if self.product else self.first(call))]

    def last(self, x):
        """Returns the expression that puts the channels last."""
        return "ops.transpose(%s, %s)" % (x, [0, *range(2, self.rank + 2), 1])

    def first(self, x):
        """Returns the expression that puts them first again."""
        return "ops.transpose(%s, %s)" % (x, [0, self.rank + 1, *range(1, self.rank + 1)])

    def auto(self, layer):
        """Returns the word for padding that depends on the size, or none."""
        return [word for word in AUTO_PAD if word.replace("_upper", "") == layer["padding"]]

    def around(self, layer, number):
        """Returns zeros before all axes and behind them: two lists."""
        if self.auto(layer):
            return [[0] * self.rank] * 2
        return [list(zeros) for zeros in zip(*self.shapes.around(number))]

    def pooled(self, layer, number, x, y):
        """``ops.max_pool`` or ``ops.avg_pool``; a maximum leaves padding out."""
        zeros, auto = layer["pad_with"] == "zeros", self.auto(layer)
        before, after = self.around(layer, number)
        kernel, stride, lines = layer["kernel"], layer["stride"], []
        rounding = '"ceil_torch"' if layer["ceil_mode"] else '"floor"'
        word = ['"%s"' % auto[0] if auto else '"explicit"']
        if pool_kind(layer) == "avg":
            words = [stride, before, after, kernel, not zeros, rounding, *word, layer["dilation"]]
            return ["%s = ops.avg_pool(%s, %s)" % (y, x, arguments_text(words))]
        if zeros and auto:
            raise Unsupported("OpenVINO's max_pool leaves auto_pad's padding out: use explicit one")
        if zeros and any(before + after):
            lines = ["%s = %s" % (y, padded(x, before, after, 0.0, self.dtype))]
            x, before, after = y, [0] * self.rank, [0] * self.rank
        words = [stride, layer["dilation"], before, after, kernel, rounding, *word]
        return lines + ["%s = ops.max_pool(%s, %s).output(0)" % (y, x, arguments_text(words))]

    def between(self, layer, x, y, operands):
        """Returns what stands between a network's windows."""
        op, parameters = layer["op"], layer["parameters"]
        if op == "bias":
            return ["%s = ops.add(%s, %s)" % (y, x, operands["b"])]
        if op == "normalisation":
            scaled = "ops.multiply(%s, %s)" % (x, operands["scale"])
            return ["%s = ops.add(%s, %s)" % (y, scaled, operands["shift"])]
        if op == "pad":
            before, after = zip(*layer["padding"])
            value = parameters.get("value", 0.0)
            return ["%s = %s" % (y, padded(x, before, after, value, self.dtype))]
        if op == "extend":
            axis = 1 + extended_axis(layer, self.rank + 2)
            sliced = "ops.slice(%s, [0], [%d], [1], [%d])" % (x, layer["kept"], axis)
            return ["%s = ops.concat([%s, %s], %d)" % (y, sliced, operands["tail"], axis)]
        if op != "activation":
            raise Unsupported("op=%s: no operation is written for it" % op)
        name = layer["activation"]
        words = {"x": x, "dtype": self.dtype, "alpha": parameters.get("alpha", 1.0)}
        words.update(scale=activations.SCALE, slope=activations.SLOPE)
        return ["%s = %s" % (y, ACTIVATIONS.get(name, "ops.%s({x})" % name).format(**words))]


def shape_of_weights(layer):
    sizes, groups = weight_sizes(layer), layer["groups"]
    # group_convolution has the groups in front, each with its own filters
    if groups > 1:
        sizes = [groups, sizes[0] // groups, *sizes[1:]]
    return tuple(sizes)


def padded(x, before, after, value, dtype):
    around = "%s, %s" % ([0, 0, *before], [0, 0, *after])
    return 'ops.pad(%s, %s, "constant", np.array(%s, %s))' % (x, around, number_text(value), dtype)


def arguments_text(words):
    return ", ".join(map(str, words))
