"""Runs ONNX Runtime, and OpenVINO's CPU plugin, on models made with the ``onnx`` package, NCHW.

The sizes of batch and space are symbolic, so one model serves every length. Weights and bias are
initializers, as in users' models: ONNX Runtime then packs them, lays channels out in blocks, and
runs other kernels than for weights that are fed (``weights=argument``).

Products: a matrix product with a bias is Gemm, as PyTorch's exporter writes linear layers, and
where Gemm can't be (vectors, stacks of matrices) MatMul and Add. A dense layer is Gemm with a bias
and without one; its weights are (filters, in_channels) and ``transB`` is 1, as in exported layers.

On processors with bfloat16 instructions OpenVINO computes float32 models in bfloat16 unless it is
told otherwise: that is what its users get, and ``precision=f32`` is what they write who don't want
it. float64 is refused, since the plugin would silently compute it in float32.
"""

import json
import os
import tempfile
from typing import Any, Dict

from probe.case import layout
from probe.case.operation import operand_names, operation_of_spec
from probe.targets.backends.contract import Key, Unsupported, pool_kind
from probe.targets.backends.source import (
    PRODUCT_OPS,
    Lines,
    Writing,
    assignment,
    channels_first_weights,
    keywords,
    left_expression,
    result_expression,
    right_expression,
    straight,
    weight_sizes,
)

# ONNX's names of dtypes. Its bfloat16 can't be fed from NumPy, and has no Conv on CPUs.
TYPES = {"float32": "FLOAT", "float64": "DOUBLE", "float16": "FLOAT16"}
# ONNX's names of the conventions whose padding depends on the size.
AUTO_PAD = {"same": "SAME_UPPER", "same_lower": "SAME_LOWER"}
# The operator set, and the first version of the file's format that has it. Of one convolution or
# product: the first in which Conv's text is today's, and ReduceSum's axes are still an attribute.
SINGLE = 11, 6
# Of everything else: the first in which an average has dilations, and ceil_mode means one thing.
OPSET = 19, 9

KEYS = {
    "threads": Key(None, "one per physical core", "threads within an operator"),
    "weights": Key(
        ("argument", "constant"), "constant", "constant: initializers of the model; argument: fed"
    ),
    "deterministic": Key(("0", "1"), "0", "the session's use_deterministic_compute"),
    "flush": Key(("0", "1"), "0", "session.set_denormal_as_zero: subnormal numbers become zero"),
    "x64quantprecision": Key(
        ("0", "1"), "0", "1: int8 products without instructions that saturate (session's option)"
    ),
    "kleidiai": Key(("0", "1"), "1", "KleidiAI's kernels; 0: MLAS's own; Arm processors"),
}

# Switch -> the entry of a session's configuration, and its value for each of the switch's.
CONFIG = {
    "flush": ("session.set_denormal_as_zero", {"0": "0", "1": "1"}),
    "x64quantprecision": ("session.x64quantprecision", {"0": "0", "1": "1"}),
    "kleidiai": ("mlas.disable_kleidiai", {"0": "1", "1": "0"}),
}


def option_lines(switches):
    """Lines that make a session's options, ``settings``. Idle threads sleep instead of
    spinning.

    That moves no bits, and a model is rebuilt for every set of weights: its old threads would
    take the processor from the new ones.
    """
    lines = [
        "settings = onnxruntime.SessionOptions()",
        # 4: fatal errors alone
        "settings.log_severity_level = 4",
        'settings.add_session_config_entry("session.intra_op.allow_spinning", "0")',
    ]
    if "threads" in switches:
        lines.append("settings.intra_op_num_threads = %d" % int(switches["threads"]))
        lines.append("settings.inter_op_num_threads = 1")
    if "deterministic" in switches:
        lines.append("settings.use_deterministic_compute = %s" % (switches["deterministic"] == "1"))
    for name, (key, values) in CONFIG.items():
        if name in switches:
            entry = (key, values[switches[name]])
            lines.append('settings.add_session_config_entry("%s", "%s")' % entry)
    return lines


class OnnxRuntime(Writing):
    """onnxruntime.InferenceSession, one process a target."""

    name = "onnxruntime"
    distributions = ("onnxruntime",)
    installs = "onnx onnxruntime"
    module = "onnxruntime"
    keys = KEYS
    doc = "a model of one node (Conv, MatMul, ...) with constant weights, NCHW"
    suggestions = (",threads=1", ",threads=2", ",weights=argument")
    title = "ONNX Runtime"
    version_text = "onnxruntime.__version__"
    layouts: Lines = (layout.CONTIGUOUS, "offset:N")
    imports = ("import onnxruntime", "from onnx import TensorProto, helper, numpy_helper")
    modules = ("onnxruntime", "onnx")
    dtypes: Lines = tuple(TYPES)
    runs = 'y = session.run(["y"], {%s})[0]'

    @classmethod
    def requires(cls, switches):
        return (("onnx", "onnx"),)

    def start(self, switches, device):
        import onnx
        import onnxruntime

        said = onnxruntime.capi.onnxruntime_pybind11_state
        self.refusals = (said.NotImplemented, said.InvalidGraph, said.InvalidArgument)
        self.refusals += (said.Fail, said.RuntimeException)
        self.opened(switches, device, onnxruntime.__version__)
        self.constant_weights = self.holds()
        return self.facts(onnx_version=onnx.__version__)

    def run_file(self, path, arrays):
        providers = ["CPUExecutionProvider"]
        onnxruntime, options = self.namespace["onnxruntime"], self.namespace["options"]()
        return onnxruntime.InferenceSession(path, options, providers=providers).run(None, arrays)

    def holds(self):
        return self.switches.get("weights", "constant") == "constant"

    def setup(self):
        lines = ["    " + line for line in option_lines(self.switches)]
        head = ("", "def options():", '    """How it runs."""')
        return (*head, *lines, "    return settings")

    def emit(self, layer, shapes):
        graph = OnnxGraph(layer, shapes)
        source = straight(graph, layer, shapes)
        nodes = ", ".join(source.run)
        # a model without weights, or one that is fed with them, is made once
        names = [name for name in operand_names(layer) if '"%s"' % name in nodes]
        held, fed = (names, []) if self.holds() else ([], names)
        model = self.model(graph, nodes, held, fed)
        feeds = ", ".join('"%s": %s' % (name, name) for name in ["x", *fed])
        return source._replace(
            make=() if held else model,
            load=source.load + (model if held else ()),
            run=(self.runs % feeds,),
        )

    def shown(self, layer, shapes):
        return straight(OnnxGraph(layer, shapes), layer, shapes).run

    def model(self, graph, nodes, held, fed):
        """Lines that make the session of nodes."""
        inputs = [graph.value_info("x", graph.sizes())]
        inputs += [graph.value_info(name, graph.sizes_of(name)) for name in fed]
        constants = ['numpy_helper.from_array(%s, "%s")' % (name, name) for name in held]
        parts = ["nodes", '"model"', "[%s]" % ", ".join(inputs)]
        parts += ["[%s]" % graph.value_info("y", None)]
        parts += ["[%s]" % ", ".join(constants)] if constants else []
        opset, version = OPSET if pool_kind(graph.layer) else SINGLE
        return (
            "value_info = helper.make_tensor_value_info",
            "nodes = [%s]" % nodes,
            "graph = helper.make_graph(%s)" % ", ".join(parts),
            'opset = helper.make_opsetid("", %d)' % opset,
            "model = helper.make_model(graph, opset_imports=[opset], ir_version=%d)" % version,
            *self.opens(),
        )

    def opens(self):
        return (
            "session = onnxruntime.InferenceSession(model.SerializeToString(), options(), "
            'providers=["CPUExecutionProvider"])',
        )

    def kernels(self, spec, shapes):
        """The nodes of the optimised model, such as ``Conv (com.microsoft.nchwc)``."""
        import onnx

        options = self.namespace["options"]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "optimised.onnx")

            def writing():
                written = options()
                written.optimized_model_filepath = path
                return written

            self.watched(spec, shapes, options=writing)
            nodes = onnx.load(path).graph.node
        named = [
            "%s (%s)" % (node.op_type, node.domain) if node.domain else node.op_type
            for node in nodes
        ]
        return {"optimised-model": named}


class OnnxGraph:
    """An operation as the text of nodes, channels first; see ``source.straight``.

    Of one product there is no such axis: arrays are as users write them.
    """

    def __init__(self, layer, shapes):
        self.layer, self.shapes, self.rank = layer, shapes, shapes.rank
        self.product = layer["op"] in PRODUCT_OPS
        self.kind = "TensorProto." + TYPES[layer["dtype"]]

    def value_info(self, name, sizes):
        return 'value_info("%s", %s, %s)' % (name, self.kind, json.dumps(sizes) if sizes else None)

    def sizes(self):
        """The sizes of x, all open but the channels."""
        channels = self.layer["in_channels"]
        if not self.product:
            return ["batch", channels] + ["size%d" % axis for axis in range(self.rank)]
        written = left_expression(self.layer, self.shapes)
        outer = {"x": self.rank + 1, "x[0]": 1, "x[0, 0]": 0}[written]
        return ["size%d" % axis for axis in range(outer)] + [channels]

    def sizes_of(self, operand):
        return [self.layer["filters"]] if operand == "b" else weight_sizes(self.layer)

    def enter(self, layer, shapes):
        lines = ["x = np.ascontiguousarray(np.moveaxis(x, -1, 1))"]
        if self.product:
            lines = assignment("x", left_expression(layer, shapes))
        # NumPy's memory is read, not copied
        return lines + layout.offset_copy_lines("x", layout.layout_of_spec(layer))

    def leave(self, layer, shapes):
        return result_expression(layer, "y", shapes) if self.product else "np.moveaxis(y, 1, -1)"

    def operand(self, layer, name):
        if name == "b":  # a Conv or a Gemm takes a bias as it is
            return []
        if not self.product:
            return ["w = np.ascontiguousarray(%s)" % channels_first_weights(layer)]
        w = right_expression(layer, "w") + ".T.copy()" * (layer["op"] == "dense")
        return ["w = %s" % w, *layout.offset_copy_lines("w", layout.layout_of_spec(layer))]

    def lines(self, layer, operands, shapes):
        """The nodes from the value named ``x`` to ``y``."""
        if self.product:
            return self.multiplied(layer, operands)
        if pool_kind(layer):
            return self.pooled(layer)
        words, kind = self.windows(layer), "Conv"
        if operation_of_spec(layer).transposed:
            kind, words = "ConvTranspose", self.transposed_windows(layer)
        if layer["groups"] > 1:
            words["group"] = layer["groups"]
        return [node_text(kind, ["x", *operands], "y", words)]

    def transposed_windows(self, layer):
        """A transposed convolution's attributes, with the numbers at all sizes alike."""
        plain = dict(layer, padding="valid")
        words, (before, after) = self.windows(plain), zip(*self.shapes.around)
        if any(map(any, self.shapes.around)):
            words["pads"] = [*before, *(max(cut, 0) for cut in after)]
        if min(after) < 0:
            words["output_padding"] = [max(-cut, 0) for cut in after]
        return words

    def multiplied(self, layer, operands):
        rank = len(self.sizes())
        if layer["op"] == "sum":
            return [node_text("ReduceSum", ["x"], "y", {"axes": [rank - 1], "keepdims": 0})]
        if layer["op"] == "dense":
            return [node_text("Gemm", ["x", *operands], "y", {"transB": 1})]
        if not layer["bias"]:
            return [node_text("MatMul", ["x", "w"], "y")]
        if rank == 2 and len(self.sizes_of("w")) == 2:
            return [node_text("Gemm", ["x", *operands], "y")]
        product = node_text("MatMul", ["x", "w"], "y_product")
        return [product, node_text("Add", ["y_product", "b"], "y")]

    def windows(self, layer):
        """A convolution's attributes. ``same`` is SAME_UPPER: the odd zero goes after.

        ONNX Runtime refuses auto_pad with dilation. Without a stride its pads are the same at all
        sizes and are written out, as converters do.
        """
        words: Dict[str, Any] = {"kernel_shape": layer["kernel"], "strides": layer["stride"]}
        dilated, name = set(layer["dilation"]) != {1}, AUTO_PAD.get(str(layer["padding"]))
        if dilated:
            words["dilations"] = layer["dilation"]
        if name and (not dilated or set(layer["stride"]) != {1} or pool_kind(layer)):
            words["auto_pad"] = name
        elif layer["padding"] != "valid":
            before, after = zip(*self.shapes.around)
            words["pads"] = [*before, *after]
        return words

    def pooled(self, layer):
        """MaxPool or AveragePool, behind a Pad where zeros count: MaxPool leaves padding out."""
        words, zeros = self.windows(layer), layer["pad_with"] == "zeros"
        if layer["ceil_mode"]:
            words["ceil_mode"] = 1
        if pool_kind(layer) == "avg":
            if zeros:
                words["count_include_pad"] = 1
            return [node_text("AveragePool", ["x"], "y", words)]
        if "auto_pad" in words and zeros:
            raise Unsupported("ONNX's MaxPool leaves auto_pad's padding out: use explicit padding")
        pads = words.pop("pads", None) if zeros else None
        if not pads:
            return [node_text("MaxPool", ["x"], "y", words)]
        before, after = zip(*self.shapes.around)
        numbers = [0, 0, *before, 0, 0, *after]
        text = 'helper.make_tensor("y_padded_pads", TensorProto.INT64, [%d], %s)'
        text = text % (len(numbers), numbers)
        return [
            'helper.make_node("Constant", [], ["y_padded_pads"], value=%s)' % text,
            node_text("Pad", ["x", "y_padded_pads"], "y_padded"),
            node_text("MaxPool", ["y_padded"], "y", words),
        ]


def node_text(kind, inputs, output, attributes=None):
    words = {name: json.dumps(value) for name, value in (attributes or {}).items()}
    text = 'helper.make_node("%s", %s, ["%s"]' % (kind, json.dumps(inputs), output)
    return text + (", " + keywords(words) if words else "") + ")"


OPENVINO_KEYS = {
    "precision": Key(
        ("f32", "bf16", "f16"),
        "bf16 where the processor has instructions for it, else f32",
        "INFERENCE_PRECISION_HINT: what float32 is computed in",
    ),
    "threads": Key(None, "one per physical core", "INFERENCE_NUM_THREADS"),
    "weights": KEYS["weights"],
}
# The properties that switches set.
PROPERTIES = {
    "precision": '"INFERENCE_PRECISION_HINT": "%s"',
    "threads": '"INFERENCE_NUM_THREADS": %s',
}


class OpenVino(OnnxRuntime):
    """openvino.compile_model for the CPU, one process a target."""

    name = "openvino"
    distributions = ("openvino",)
    installs = "onnx openvino"
    module = "openvino"
    keys = OPENVINO_KEYS
    doc = "OpenVINO's CPU plugin: an ONNX model of one operation, constant weights, NCHW"
    suggestions = (",precision=f32", ",precision=f32,threads=1", ",weights=argument")
    title = "OpenVINO"
    version_text = 'ov.__version__.partition("-")[0]'
    layouts = Writing.layouts
    imports = ("import openvino as ov", "from onnx import TensorProto, helper, numpy_helper")
    modules = ("openvino", "onnx")
    dtypes = ("float32", "float16")
    runs = "y = session({%s})[0]"

    def start(self, switches, device):
        import openvino

        self.refusals = (RuntimeError, TypeError)
        self.opened(switches, device, openvino.__version__.partition("-")[0])
        self.constant_weights = self.holds()
        formats = openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
        return self.facts(capability=", ".join(formats))

    def setup(self):
        return ()

    def properties(self):
        """The plugin's properties that the switches set, as the text of a dict."""
        switches = self.switches
        texts = [text % switches[name] for name, text in PROPERTIES.items() if name in switches]
        return "{%s}" % ", ".join(texts)

    def opens(self):
        properties = ", " + self.properties() if self.properties() != "{}" else ""
        return (
            "model = ov.Core().read_model(model.SerializeToString())",
            'session = ov.compile_model(model, "CPU"%s)' % properties,
        )

    def run_file(self, path, arrays):
        properties = json.loads(self.properties())
        model = self.namespace["ov"].compile_model(path, "CPU", properties)
        return list(model(arrays).values())

    def kernels(self, spec, shapes):
        """The nodes of the compiled model, such as ``Convolution (brgconv_avx512_f32)``."""
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
        self.ov, self.Core = ov, ov.Core

    def compile_model(self, *arguments):
        self.made = self.ov.compile_model(*arguments)
        return self.made
